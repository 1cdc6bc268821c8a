"""Waves read through the sequencers' index registers, as gfx_v11_0_read_wave_data reads them."""

from __future__ import annotations

import pytest

CODE, TARGET = 0x40_0000, 0x50_0000
# spin: s_load_b32 s4, s[0:1], 0x0 glc; s_waitcnt lgkmcnt(0); s_cmp_eq_u32 s4, 0; s_cbranch_scc1 spin; s_endpgm.
# Source: llvm-mc, gfx1100.
SPIN = (0xF400_4100, 0xF800_0000, 0xBF89_FC07, 0xBF06_8004, 0xBFA2_FFFB, 0xBFB0_0000)
ACTIVE, PC_LO, EXEC_LO, HW_ID1, HW_ID2 = 0x0A, 0x108, 0x27E, 0x117, 0x118  # gc_11_0_0_offset.h, ixSQ_WAVE_*
W32 = 0x8001 | 1 << 2  # COMPUTE_SHADER_EN, FORCE_START_AT_000, CS_W32_EN


def sh(offset, *values):
    return [0xC000_0000 | len(values) << 16 | 0x7600, offset, *values]


def spin(core, groups):
    core.put(CODE, *SPIN)
    return [
        *sh(0x20C, CODE >> 8, 0), *sh(0x212, 0x602C_0000, 2 << 1 | 1 << 7), *sh(0x207, 32, 1, 1), *sh(0x240, TARGET, 0),
        0xC003_1500, groups, 1, 1, W32,
    ]  # fmt: skip


def read(core, word, simd=0, wgp=0, wave=0, engine=0, array=0):
    core.set("GRBM_GFX_INDEX", engine << 16 | array << 8 | wgp << 2 | simd)
    core.set("SQ_IND_INDEX", word << 16 | wave)
    return core.get("SQ_IND_DATA")


def test_nothing_runs_at_first(core, mec):
    assert [read(core, ACTIVE, simd) for simd in range(4)] == [0] * 4


def test_a_wave_that_spins_tells_where_it_is_and_whose(core):
    core.queue(pipe=1, doorbell=8).run(*spin(core, 1))
    assert read(core, ACTIVE) == 1
    assert CODE <= read(core, PC_LO) <= CODE + 0x14
    assert read(core, EXEC_LO) == 0xFFFF_FFFF
    # The pipe.
    assert read(core, HW_ID2) >> 4 & 3 == 1
    # The compute micro engine.
    assert read(core, HW_ID2) >> 8 & 3 == 1
    core.put(TARGET, 1)
    core.clock.sleep_us(200)
    assert read(core, ACTIVE) == 0


@pytest.mark.parametrize("groups", [1, 5, 40])
def test_every_wave_is_found_once_and_knows_its_own_place(core, mec, groups):
    mec.run(*spin(core, groups))
    found = 0
    for engine in range(6):
        for array in range(2):
            for wgp in range(4):
                for simd in range(4):
                    here = {"simd": simd, "wgp": wgp, "engine": engine, "array": array}
                    active = read(core, ACTIVE, **here)
                    for wave in range(16):
                        if active >> wave & 1:
                            place = wave | simd << 8 | wgp << 10 | array << 16 | engine << 18
                            assert read(core, HW_ID1, wave=wave, **here) == place
                            found += 1
    assert found == groups
    core.put(TARGET, 1)
    core.clock.sleep_us(1000)
