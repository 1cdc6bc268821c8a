"""Strict mode with instructions whose registers or bytes are known only at run time: moves by M0, FLAT, direct loads,
LDS, scratch.
"""

import numpy as np
import pytest

from ringup.silicon.shader.common.state import MemoryFault

IN, OUT, SCRATCH = 0x20_0000, 0x30_0000, 0x50_0000
ARGS = {
    "user_sgprs": (IN, 0, OUT, 0), "enable_group_id": (False, False, False), "lds_size_bytes": 1024, "vgpr_count": 24,
    "shared_aperture": 1, "private_aperture": 2,
}  # fmt: skip
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
END = "\ns_endpgm\n"


@pytest.fixture
def buffers(machine):
    machine.buffer(IN, np.arange(4096))
    machine.out = machine.buffer(OUT, np.zeros(4096))
    return machine


LOADING = "v_mov_b32_e32 v8, 8\n v_mov_b32_e32 v9, 9\n global_load_b32 v10, v1, s[0:1]\n"
FLAT = "v_mov_b32_e32 v6, s0\n v_mov_b32_e32 v7, 0\n v_mov_b32_e32 v4, 0\n v_mov_b32_e32 v5, 0\n"
# The shared aperture's high dword is 0x10000.
LDS_FLAT = "ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n v_mov_b32_e32 v6, v1\n v_mov_b32_e32 v7, 0x10000\n"
MIXED_FLAT = (
    LDS_FLAT
    + "v_cmp_eq_u32_e32 vcc_lo, 0, v0\n v_cndmask_b32_e32 v7, 0, v7, vcc_lo\n v_cndmask_b32_e32 v6, s0, v6, vcc_lo\n"
)
# 16 of 32 dwords are written.
LDS_HALF = "s_mov_b32 exec_lo, 0xffff\n ds_store_b32 v1, v0\n s_mov_b32 exec_lo, -1\n"

# The aperture's high dword follows.
OWN_FLAT = "v_lshlrev_b32_e32 v6, 2, v0\n v_and_b32_e32 v6, 12, v6\n v_mov_b32_e32 v7, "
KEEP_V2 = "\n global_store_b32 v1, v2, s[2:3]"

BROKEN = {
    "source that M0 picks": (LOADING + "s_mov_b32 m0, 2\n v_movrels_b32_e32 v2, v8", "hazard", "v10 is still being loaded"),
    "target that M0 picks": (LOADING + "s_mov_b32 m0, 1\n v_movreld_b32_e32 v9, v0", "hazard", "v10 is still being loaded"),
    "target that M0 does not move": (LOADING + "s_mov_b32 m0, 1\n v_movrels_b32_e32 v10, v8", "hazard", "v10 is still being loaded"),
    "scalar that M0 picks": (
        "s_mov_b32 s8, 0\n s_load_b32 s9, s[0:1], 0x0\n s_mov_b32 m0, 1\n s_movrels_b32 s12, s8", "hazard", "s9 is still being loaded",
    ),
    "register that M0 picks beyond the allocation": ("s_mov_b32 m0, 40\n v_movrels_b32_e32 v2, v0", "register", "24 VGPRs allocated"),
    "FLAT load of memory, waited for in the other counter": (
        FLAT + "flat_load_b32 v2, v[6:7]\n s_waitcnt lgkmcnt(0)\n v_mov_b32_e32 v3, v2", "hazard", "wait on vmcnt",
    ),
    "FLAT load of LDS, waited for in the other counter": (
        LDS_FLAT + "flat_load_b32 v2, v[6:7]\n s_waitcnt vmcnt(0)\n v_mov_b32_e32 v3, v2", "hazard", "wait on lgkmcnt",
    ),
    "FLAT load of memory and LDS, waited for in one counter": (
        MIXED_FLAT + "flat_load_b32 v2, v[6:7]\n s_waitcnt vmcnt(0)\n v_mov_b32_e32 v3, v2", "hazard", "wait on lgkmcnt",
    ),
    "FLAT atomic of LDS, waited for in the other counter": (
        LDS_FLAT + "flat_atomic_add_u32 v2, v[6:7], v0 glc\n s_waitcnt vmcnt(0)\n v_mov_b32_e32 v3, v2", "hazard", "wait on lgkmcnt",
    ),
    "direct load": (
        "ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n s_mov_b32 m0, 0x20000\n lds_direct_load v2\n v_mov_b32_e32 v3, v2",
        "hazard", "wait on expcnt",
    ),
    "scalar pair that begins at an odd number": (".long 0xbe840101", "alignment", "s1"),  # s_mov_b64 s[4:5], s[1:2]
    "jump through a pair that begins at an odd number": (".long 0xbe804801", "alignment", "s1"),  # s_setpc_b64 s[1:2]
    # s_swappc_b64 s[7:8], s[4:5]
    "call that returns through one": ("s_mov_b64 s[4:5], 0\n .long 0xbe874904", "alignment", "s7"),
    "direct call that returns through one": (".long 0xba070001", "alignment", "s7"),  # s_call_b64 s[7:8]
    "scratch beyond a lane's part": (
        "v_mov_b32_e32 v2, 0\n scratch_store_b32 off, v2, off offset:16", "memory", "lane 0 reaches scratch 0x10; 0x10 bytes",
    ),
    "one lane's scratch": (
        "v_lshrrev_b32_e32 v2, 1, v0\n v_and_b32_e32 v2, 12, v2\n scratch_store_b32 v2, v0, off offset:4", "memory",
        "lane 24 reaches scratch 0x10",
    ),
    "half of LDS": (LDS_HALF + "ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)" + KEEP_V2, "uninitialised", "lane 16 of v2"),
    "second register of a wide load": (
        "v_lshlrev_b32_e32 v2, 3, v0\n ds_store_b32 v2, v0\n ds_load_b64 v[4:5], v2\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b32 v1, v4, s[2:3]\n global_store_b32 v1, v5, s[2:3]",
        "uninitialised", "lane 0 of v5",
    ),
    "second of two places": (
        "ds_store_b32 v1, v0\n ds_load_2addr_b32 v[4:5], v1 offset0:0 offset1:64\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b32 v1, v4, s[2:3]\n global_store_b32 v1, v5, s[2:3]",
        "uninitialised", "lane 0 of v5",
    ),
    "a byte of LDS": (
        "v_lshlrev_b32_e32 v2, 1, v0\n ds_store_b8 v2, v0\n ds_load_u16 v3, v2\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b16 v1, v3, s[2:3]",
        "uninitialised", "lane 0 of v3",
    ),
    "lanes of different places": (
        LDS_HALF + "v_xor_b32_e32 v4, 0x44, v1\n ds_load_b32 v2, v4\n s_waitcnt lgkmcnt(0)" + KEEP_V2,
        "uninitialised", "lane 0 of v2",
    ),
    "lanes counted where nobody wrote": ("s_mov_b32 m0, 64\n ds_append v2", "uninitialised", "LDS 0x40 was never written"),
    "undefined value, stored where others are defined": (
        "ds_store_b32 v1, v0\n v_mov_b32_e32 v2, 4\n ds_store_b32 v2, v5\n ds_load_b32 v3, v1\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b32 v1, v3, s[2:3]",
        "uninitialised", "lane 1 of v3",
    ),
    "undefined value, stored to scratch and memory by FLAT": (
        OWN_FLAT + "0x20000\n v_cmp_eq_u32_e32 vcc_lo, 0, v0\n v_cndmask_b32_e32 v7, 0, v7, vcc_lo\n v_cndmask_b32_e32 v6, s0, v6, vcc_lo\n"
        "flat_store_b32 v[6:7], v5",
        "uninitialised", "lane 1 of v5",
    ),
    "undefined address of FLAT": (OWN_FLAT + "0x20000\n flat_store_b32 v[7:8], v5", "uninitialised", "lane 0 of v8"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_an_instruction_reaches_at_run_time_is_held_to_the_rules(buffers, name):
    buffers.buffer(SCRATCH, np.zeros(1024))
    program, kind, report = BROKEN[name]
    violation = buffers.broken(LANE + program + END, **ARGS, scratch_base=SCRATCH, scratch_wave_bytes=512)
    assert violation.kind == kind, violation
    assert report in violation.detail


RIGHT = {
    "another source than M0 picks": LOADING + "s_mov_b32 m0, 1\n v_movrels_b32_e32 v2, v8",
    "another target than M0 picks": LOADING + "s_mov_b32 m0, 2\n v_movreld_b32_e32 v9, v0",
    "FLAT loads return in order": (
        FLAT + "flat_load_b32 v2, v[6:7]\n flat_load_b32 v3, v[6:7]\n s_waitcnt vmcnt(1) lgkmcnt(1)\n v_mov_b32_e32 v4, v2"
    ),
    "FLAT load of memory, waited for in vmcnt": FLAT + "flat_load_b32 v2, v[6:7]\n s_waitcnt vmcnt(0)\n v_mov_b32_e32 v3, v2",
    "FLAT atomic of memory, waited for in vmcnt": (
        FLAT + "flat_atomic_add_u32 v2, v[6:7], v0 glc\n s_waitcnt vmcnt(0)\n v_mov_b32_e32 v3, v2"
    ),
    "FLAT load of LDS, waited for": LDS_FLAT + "flat_load_b32 v2, v[6:7]\n s_waitcnt vmcnt(0) lgkmcnt(0)\n v_mov_b32_e32 v3, v2",
    "direct load, waited for": (
        "ds_store_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n s_mov_b32 m0, 0x20000\n lds_direct_load v2\n s_waitcnt expcnt(0)\n v_mov_b32_e32 v3, v2"
    ),
    "LDS that nobody wrote, passed on": LDS_HALF + "ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n scratch_store_b32 off, v2, off",
    "lanes of LDS that somebody wrote": (
        LDS_HALF + "ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n s_mov_b32 exec_lo, 0xffff\n v_add_nc_u32_e32 v3, v2, v2"
    ),
    "LDS that another wave wrote": (
        "v_xor_b32_e32 v4, 0x80, v1\n ds_store_b32 v4, v0\n s_waitcnt lgkmcnt(0)\n s_barrier\n ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n"
        "v_add_nc_u32_e32 v3, v2, v2"
    ),
    "bytes that make a dword": (
        "v_lshlrev_b32_e32 v2, 1, v0\n ds_store_b8 v2, v0\n ds_store_b8 v2, v0 offset:1\n ds_load_u16 v3, v2\n s_waitcnt lgkmcnt(0)\n"
        "v_add_nc_u32_e32 v4, v3, v3"
    ),
    "undefined value, moved to scratch by FLAT": (
        OWN_FLAT + "0x20000\n flat_store_b32 v[6:7], v5\n flat_store_b8 v[6:7], v9\n flat_load_b32 v2, v[6:7]"
    ),
    "no lanes counted where nobody wrote": "s_mov_b32 m0, 64\n s_mov_b32 exec_lo, 0\n ds_consume v2\n s_mov_b32 exec_lo, -1",
    "scratch up to its end": "v_mov_b32_e32 v2, 0\n scratch_store_b32 off, v2, off offset:12",
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_it_does_not_reach_is_no_mistake(buffers, name):
    buffers.buffer(SCRATCH, np.zeros(1024))
    group = (64, 1, 1) if "another wave" in name else (32, 1, 1)
    buffers.run(LANE + RIGHT[name] + END, **ARGS, scratch_base=SCRATCH, scratch_wave_bytes=512, group_size=group)


STORED_ANYHOW = {
    "by FLAT": "v_mov_b32_e32 v6, v1\n v_mov_b32_e32 v7, 0x10000\n flat_store_b32 v[6:7], v0",
    "by an exchange of two places": "v_mov_b32_e32 v6, 0\n ds_storexchg_2addr_rtn_b32 v[8:9], v1, v0, v6 offset1:64",
    "by an addition": "v_mov_b32_e32 v6, 0\n ds_store_b32 v1, v6\n ds_add_u32 v1, v0",
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", STORED_ANYHOW)
def test_lds_holds_what_was_stored_with_and_without_strict_mode(buffers, name, strict):
    zeroes = "v_mov_b32_e32 v2, 0\n ds_store_b32 v1, v2\n ds_store_b32 v1, v2 offset:256\n"
    look = (
        "\n s_waitcnt vmcnt(0) lgkmcnt(0)\n s_waitcnt_vscnt null, 0\n ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)"
        + KEEP_V2
    )
    buffers.run(LANE + zeroes + STORED_ANYHOW[name] + look + END, **ARGS, strict=strict)
    assert buffers.out[:32].tolist() == list(range(32))


# In LDS, lanes 16 and up of v2 were never written, and lanes 8 and up of each row of v9.
HALVES = (
    LDS_HALF
    + "s_mov_b32 exec_lo, 0x00ff00ff\n ds_store_b32 v1, v0 offset:256\n s_mov_b32 exec_lo, -1\n ds_load_b32 v2, v1\n"
    "ds_load_b32 v9, v1 offset:256\n s_waitcnt lgkmcnt(0)\n"
)
FIRST_HALF = "\n s_mov_b32 exec_lo, 0xffff\n global_store_b32 v1, v3, s[2:3]"
STORE = "\n global_store_b32 v1, v3, s[2:3]"

MATRIX = "".join(f"v_mov_b32_e32 v{one}, 0\n" for one in (10, 11, *range(14, 22)))

ROWS = (
    MATRIX
    + "v_mov_b32_e32 v12, v9\n v_mov_b32_e32 v13, v9\n v_wmma_i32_16x16x16_iu4 v[14:21], v[12:13], v[10:11], v[14:21]\n"
)

DECIDES = {
    "stored": ("v_add_nc_u32_e32 v3, v2, v2" + STORE, "lane 16 of v3"),
    "stored as one half": ("v_mov_b32_e32 v3, v2\n global_store_d16_hi_b16 v1, v3, s[2:3]", "lane 16 of v3"),
    "stored by FLAT": (FLAT + "v_mul_f32_e32 v3, v2, v2\n flat_store_b32 v[6:7], v3", "lane 16 of v3"),
    "stored to a buffer": ("v_not_b32_e32 v3, v2\n buffer_store_b32 v3, v1, s[4:7], 0 offen", "lane 16 of v3"),
    "added in memory": ("v_not_b32_e32 v3, v2\n global_atomic_add_u32 v1, v3, s[2:3]", "lane 16 of v3"),
    "address": ("v_and_b32_e32 v3, 4, v2\n global_load_b32 v4, v3, s[0:1]", "lane 16 of v3"),
    "branch": ("v_cmp_eq_u32_e32 vcc_lo, 0, v2\n s_cbranch_vccz .Lend\n.Lend:", "vcc_lo is undefined: it comes from LDS"),
    "mask for EXEC": ("v_cmp_eq_u32_e32 vcc_lo, 0, v2\n s_and_saveexec_b32 s8, vcc_lo", "EXEC would get bits"),
    "comparison to EXEC": ("v_cmpx_eq_u32_e32 0, v2", "lane 16 of v2"),
    "scalar": ("v_readlane_b32 s8, v2, 16\n s_add_u32 s9, s8, s8\n v_mov_b32_e32 v3, s9" + STORE, "comes from LDS that was never written"),
    "scalar operand": ("v_readlane_b32 s8, v2, 16\n v_add_nc_u32_e32 v3, s8, v0" + STORE, "lane 0 of v3"),
    "lane number": ("v_readlane_b32 s8, v2, 16\n v_readlane_b32 s9, v0, s8", "s8 is undefined: it comes from LDS"),
    "select": ("v_cmp_eq_u32_e32 vcc_lo, 0, v2\n v_cndmask_b32_e32 v3, v0, v1, vcc_lo" + STORE, "lane 16 of v3"),
    "carry": ("v_add_co_u32 v4, s8, v2, v2\n v_add_co_ci_u32_e64 v3, null, v0, v0, s8" + STORE, "lane 16 of v3"),
    "carry of a carry": (
        "v_add_co_u32 v4, s8, v0, v2\n v_add_co_ci_u32_e64 v4, s8, v0, v0, s8\n v_cndmask_b32_e64 v3, v0, v1, s8" + STORE, "lane 16 of v3",
    ),
    "division": ("v_div_scale_f32 v4, vcc_lo, v2, v2, v0\n v_div_fmas_f32 v3, v0, v0, v0" + STORE, "lane 16 of v3"),
    "low half of a sum": ("v_mad_u64_u32 v[3:4], null, v2, v0, v[0:1]" + STORE, "lane 16 of v3"),
    "high half of a sum": ("v_mad_u64_u32 v[2:3], null, v0, v0, v[1:2]" + STORE, "lane 16 of v3"),
    "pair": ("v_add_f64 v[2:3], v[0:1], v[1:2]" + STORE, "lane 16 of v3"),
    "shifted pair": ("v_lshlrev_b64 v[2:3], 3, v[1:2]" + STORE, "lane 16 of v3"),
    "dual": ("v_dual_mul_f32 v4, v0, v1 :: v_dual_add_f32 v3, v2, v0" + STORE, "lane 16 of v3"),
    "packed": ("v_pk_add_f16 v3, v2, v0" + STORE, "lane 16 of v3"),
    "two halves": ("v_pack_b32_f16 v3, v2, v2" + STORE, "lane 16 of v3"),
    "two conversions": ("v_cvt_pk_u16_u32 v3, v2, v2" + STORE, "lane 16 of v3"),
    "bits of two": ("v_lshl_or_b32 v3, v2, 16, v2" + STORE, "lane 16 of v3"),
    "distance of a shift": ("v_and_b32_e32 v4, 3, v2\n v_lshl_or_b32 v3, v0, v4, v0" + STORE, "lane 16 of v3"),
    "bytes": ("s_mov_b32 s8, 0x07060504\n v_perm_b32 v3, v2, v0, s8" + STORE, "lane 16 of v3"),
    "which bytes": ("v_and_b32_e32 v4, 3, v2\n v_perm_b32 v3, v0, v0, v4" + STORE, "lane 16 of v3"),
    "accumulator": ("v_mov_b32_e32 v3, 0\n v_fmac_f32_e32 v3, v2, v0" + STORE, "lane 16 of v3"),
    "out of LDS again": (
        "v_add_nc_u32_e32 v3, v2, v2\n ds_store_b32 v1, v3\n ds_load_b32 v3, v1\n s_waitcnt lgkmcnt(0)" + STORE, "lane 16 of v3",
    ),
    "neighbour": ("v_add_nc_u32_dpp v3, v9, v0 row_ror:8 row_mask:0xf bank_mask:0xf" + FIRST_HALF, "lane 0 of v3"),
    "moved neighbour": ("v_mov_b32_dpp v3, v9 row_ror:8 row_mask:0xf bank_mask:0xf" + FIRST_HALF, "lane 0 of v3"),
    "accumulator of a matrix product": (
        MATRIX + "v_mov_b32_e32 v18, v2\n v_wmma_i32_16x16x16_iu4 v[14:21], v[10:11], v[10:11], v[14:21]\n v_mov_b32_e32 v3, v18" + STORE,
        "lane 16 of v3",
    ),
    "row of a matrix": (
        ROWS + " v_mov_b32_e32 v3, v18" + FIRST_HALF, "lane 0 of v3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDES)
def test_what_comes_of_lds_that_nobody_wrote_may_not_decide(buffers, name):
    program, report = DECIDES[name]
    arguments = ARGS | {"user_sgprs": (IN, 0, OUT, 0, IN, 0, 0x4000, 0x3101_4FAC)}
    violation = buffers.broken(LANE + HALVES + program + END, **arguments)
    assert violation.kind == "uninitialised", violation
    assert report in violation.detail


COMPUTED = {
    "lanes that are right": "v_add_nc_u32_e32 v3, v2, v2" + FIRST_HALF,
    "bits that are cut off": (
        "v_cmp_eq_u32_e32 vcc_lo, 0, v2\n s_and_b32 vcc_lo, vcc_lo, 0xffff\n s_cbranch_vccz .L\n s_and_saveexec_b32 s8, vcc_lo\n.L:"
    ),
    "carries of lanes that are right": (
        "v_add_co_u32 v4, s8, v2, v2\n v_add_co_ci_u32_e64 v3, null, v0, v0, s8" + FIRST_HALF
    ),
    "select of the right lanes": "v_cmp_eq_u32_e32 vcc_lo, 0, v2\n v_cndmask_b32_e32 v3, v0, v1, vcc_lo" + FIRST_HALF,
    "scalar of some lanes": (
        "v_readlane_b32 s8, v2, 16\n s_mov_b32 exec_lo, 2\n v_max_f32_e32 v3, s8, v0\n s_mov_b32 exec_lo, 1\n v_mov_b32_e32 v3, 0" + STORE
    ),
    "lane that is read": "v_readlane_b32 s8, v2, 15\n s_add_u32 s9, s8, s8",
    "low half of a sum": "v_mad_u64_u32 v[3:4], null, v0, v0, v[1:2]" + STORE,
    "halves of which one is right": "v_pack_b32_f16 v3, v0, v2" + STORE,
    "conversions of which one is right": "v_cvt_pk_u16_u32 v3, v2, v0" + STORE,
    "half that is right and stays": "v_mov_b32_e32 v3, 0\n v_fma_mixhi_f16 v3, v0, v2, v0" + STORE,
    "half that is loaded beside another": "v_mov_b32_e32 v3, 0\n ds_load_u16_d16 v3, v1\n s_waitcnt lgkmcnt(0)" + STORE,
    "dword of which half was written": "ds_store_b16 v1, v0 offset:512\n ds_load_b32 v3, v1 offset:512\n s_waitcnt lgkmcnt(0)" + STORE,
    "bits of which some are right": "v_lshl_or_b32 v3, v2, 16, v0" + STORE,
    "bytes of the other": "s_mov_b32 s8, 0x03020100\n v_perm_b32 v3, v2, v0, s8" + STORE,
    "overwritten": "v_add_nc_u32_e32 v3, v2, v2\n v_mov_b32_e32 v3, 0" + STORE,
    "neighbours that are right": (
        "v_add_nc_u32_dpp v3, v9, v0 row_ror:8 row_mask:0xf bank_mask:0xf\n s_mov_b32 exec_lo, 0xff00" + STORE
    ),
    # A row of A is undefined; the high halves of D are defined.
    "halves of a matrix beside those that are right": (
        "".join(f"v_mov_b32_e32 v{one}, 0\n" for one in range(24, 48)) + "v_mov_b32_e32 v24, v9\n"
        "v_wmma_f16_16x16x16_f16 v[40:47], v[24:31], v[32:39], v[40:47]\n v_mov_b32_e32 v3, v44" + STORE
    ),
    "rows that are right": (
        ROWS + " v_mov_b32_e32 v3, v17" + STORE
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_lds_that_nobody_wrote_may_be_computed_with(buffers, name):
    buffers.run(LANE + HALVES + COMPUTED[name] + END, **(ARGS | {"vgpr_count": 48}))


def test_registers_that_nobody_wrote_may_be_computed_with_and_not_stored(buffers):
    """Some unwritten LDS excuses no other mistake."""
    buffers.run(LANE + "v_add_nc_u32_e32 v3, v5, v5\n" + HALVES + END, **ARGS)
    violation = buffers.broken(LANE + "v_add_nc_u32_e32 v3, v5, v5\n" + STORE + "\n" + HALVES + END, **ARGS)
    assert "lane 0 of v3 is undefined: it comes from v5" in violation.detail


@pytest.mark.parametrize(
    ("before", "behind", "report"),
    [
        ("", "v_add_nc_u32_e32 v3, v5, v5" + STORE, "lane 0 of v3 is undefined: it comes from v5"),
        ("v_mul_u32_u24_e32 v3, v5, v0\n", STORE, "lane 0 of v3 is undefined: it comes from v5"),
        ("s_add_u32 s8, s9, s0\n", "s_cmp_eq_u32 s8, 0\n s_cbranch_scc1 .Lend\n.Lend:", "it comes from s9"),
        ("s_mov_b32 s20, 3\n", "s_mov_b32 exec_lo, s21", "EXEC would get bits"),
    ],
)
def test_a_wave_that_met_lds_nobody_wrote_keeps_what_is_known_of_its_registers(buffers, before, behind, report):
    violation = buffers.broken(LANE + before + HALVES + behind + END, **ARGS)
    assert violation.kind == "uninitialised"
    assert report in violation.detail


def test_a_wave_goes_on_behind_lds_that_nobody_wrote_with_all_its_registers(buffers):
    """Half of the loaded data was never written. The other half decides, before and behind a loop."""
    program = (
        LDS_HALF
        + """
        v_mov_b32_e32 v2, 7
        s_mov_b32 s8, 0
    .L: v_add_nc_u32_e32 v2, v2, v0
        ds_load_b32 v3, v1
        s_add_u32 s8, s8, 1
        s_waitcnt lgkmcnt(0)
        s_mov_b32 exec_lo, 0xffff
        v_add_nc_u32_e32 v2, v2, v3
        s_mov_b32 exec_lo, -1
        s_cmp_lt_u32 s8, 5
        s_cbranch_scc1 .L
        global_store_b32 v1, v2, s[2:3]"""
    )
    buffers.run(LANE + program + END, **ARGS)
    lanes = np.arange(32)
    assert (buffers.out[:32] == 7 + 5 * lanes + 5 * lanes * (lanes < 16)).all()


def test_memory_hears_of_an_access_once(buffers):
    refused, region = [], buffers.arena.region

    def asked(gpu_va, write, execute=False):
        try:
            return region(gpu_va, write, execute)
        except MemoryFault:
            refused.append(gpu_va)
            raise

    buffers.arena.region = asked
    violation = buffers.broken(LANE + "global_load_b32 v2, v1, s[0:1] offset:-4" + END, **ARGS)
    assert violation.kind == "memory"
    assert refused == [IN - 4]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_kill_ends_the_wave_where_its_bit_is_set(buffers, killed):
    program = f"s_setkill {killed}\n v_mov_b32_e32 v2, 1\n global_store_b32 v1, v2, s[2:3]"
    buffers.run(LANE + program + END, **ARGS)
    assert buffers.out[0] == 1 - killed
