"""The translator: groups, barriers, calls, slices and kept translations, on programs with known results."""

from pathlib import Path

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator import translations
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.translations import QUICK, THOROUGH, THREADED
from ringup.silicon.shader.common.state import Region

IN, OUT = 0x20_0000, 0x30_0000
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "vgpr_count": 24}
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"


@pytest.fixture
def engine():
    return Translator()


@pytest.fixture
def out(machine):
    machine.buffer(IN, np.arange(4096))
    return machine.buffer(OUT, np.zeros(4096))


@pytest.mark.parametrize("wave_size", [32, 64])
def test_every_work_item_of_full_and_partial_groups_runs_once(machine, out, engine, wave_size):
    """Groups of 12x3x2. The last group has 5 items along x and 1 along y. Item (x, y, z) adds 1 to its place in a
    64x8x8 grid.
    """
    program = """
        v_and_b32_e32 v1, 0x3ff, v0
        v_bfe_u32 v2, v0, 10, 10
        v_bfe_u32 v3, v0, 20, 10
        s_mul_i32 s4, s4, 12
        s_mul_i32 s5, s5, 3
        s_lshl_b32 s6, s6, 1
        v_add_nc_u32_e32 v1, s4, v1
        v_add_nc_u32_e32 v2, s5, v2
        v_add_nc_u32_e32 v3, s6, v3
        v_lshl_add_u32 v2, v3, 3, v2
        v_lshl_add_u32 v1, v2, 6, v1
        v_lshlrev_b32_e32 v1, 2, v1
        v_mov_b32_e32 v2, 1
        global_atomic_add_u32 v1, v2, s[2:3]
        s_endpgm
    """
    machine.run(
        program, engine=engine, wave_size=wave_size, group_size=(12, 3, 2), group_count=(4, 2, 3), partial_size=(5, 1, 0),
        tidig_comp_cnt=2, enable_group_id=(True, True, True), **ARGS,
    )  # fmt: skip
    grid = out.reshape(8, 8, 64)
    assert (grid[:6, :4, :41] == 1).all()
    assert grid.sum() == 6 * 4 * 41


def test_a_barrier_holds_every_wave_of_every_group(machine, out, engine):
    program = """
        v_lshlrev_b32_e32 v1, 2, v0
        s_mov_b32 s8, 0
    .L: ds_store_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        v_sub_nc_u32_e32 v2, 0x3fc, v1
        ds_load_b32 v3, v2
        s_waitcnt lgkmcnt(0)
        s_barrier
        v_mov_b32_e32 v0, v3
        s_add_u32 s8, s8, 1
        s_cmp_lt_u32 s8, 3
        s_cbranch_scc1 .L
        s_lshl_b32 s4, s4, 10
        v_add_nc_u32_e32 v1, s4, v1
        global_store_b32 v1, v0, s[2:3]
        s_endpgm
    """
    machine.run(program, engine=engine, group_size=(256, 1, 1), group_count=(4, 1, 1), lds_size_bytes=1024, **ARGS)
    assert (out[:1024].reshape(4, 256) == 255 - np.arange(256)).all()


def test_groups_that_wait_for_each_other_make_progress(machine, out, engine):
    program = """
        v_mov_b32_e32 v1, 0
        s_cmp_eq_u32 s4, 0
        s_cbranch_scc0 .Lset
    .Lspin:
        global_load_b32 v2, v1, s[2:3] glc
        s_waitcnt vmcnt(0)
        v_readfirstlane_b32 s8, v2
        s_cmp_eq_u32 s8, 39
        s_cbranch_scc0 .Lspin
        s_endpgm
    .Lset:
        v_mov_b32_e32 v2, 1
        s_mov_b32 exec_lo, 1
        global_atomic_add_u32 v1, v2, s[2:3]
        s_endpgm
    """
    run = machine.start(program, engine=engine, group_count=(40, 1, 1), **ARGS)
    assert run.step(10_000_000)
    assert out[0] == 39


def test_calls_through_registers_and_memory_return(machine, out, engine):
    """The target of the second call is only known at run time. Its code is translated when a wave arrives there."""
    program = Path(__file__).with_name("calls.s").read_text()
    machine.run(LANE + program, engine=engine, **ARGS)
    assert (out[:32] == 65 * 3).all()


def test_what_has_no_rule_is_interpreted_in_place(machine, out, engine):
    program = """
        s_mov_b32 m0, 2
        v_mov_b32_e32 v5, 7
        v_movrels_b32_e32 v6, v3
        v_add_nc_u32_e32 v6, v6, v0
        global_store_b32 v1, v6, s[2:3]
        s_endpgm
    """
    run = machine.run(LANE + program, engine=engine, **ARGS)
    assert out[:32].tolist() == [7 + lane for lane in range(32)]
    assert run.counters.instructions == 7


@pytest.mark.parametrize("mode", [0xC0, 0xF0])
def test_code_between_mode_changes_runs_under_its_mode(machine, out, engine, mode):
    """The sum of two f32 denormals under three modes: flushed, kept, and as the wave began."""
    program = """
        v_mov_b32_e32 v2, 0x100
        s_denorm_mode 0xc
        v_add_f32_e32 v3, v2, v2
        s_denorm_mode 0xf
        v_add_f32_e32 v4, v2, v2
        global_store_b32 v1, v3, s[2:3]
        global_store_b32 v1, v4, s[2:3] offset:128
        s_endpgm
    """
    before = "v_mov_b32_e32 v2, 0x100\n v_add_f32_e32 v3, v2, v2\n global_store_b32 v1, v3, s[2:3] offset:256\n"
    machine.run(LANE + before + program, engine=engine, float_mode=mode, **ARGS)
    assert out[:96:32].tolist() == [0, 0x200, 0x200 if mode == 0xF0 else 0]


COUNTING = """
    v_mov_b32_e32 v2, 0
    s_mov_b32 s8, 0
.L: v_cmp_gt_u32_e32 vcc_lo, 20, v0
    s_and_saveexec_b32 s9, vcc_lo
    v_add_nc_u32_e32 v2, v2, v0
    s_or_b32 exec_lo, exec_lo, s9
    s_add_u32 s8, s8, 1
    s_cmp_lt_u32 s8, 9
    s_cbranch_scc1 .L
    s_lshl_b32 s4, s4, 8
    v_add_nc_u32_e32 v1, s4, v1
    global_store_b32 v1, v2, s[2:3]
    s_endpgm
"""


@pytest.mark.parametrize("size", [1, 3, 100, 1 << 40])
def test_slices_of_any_size_do_and_count_what_the_interpreter_does(machine, out, engine, size):
    args = ARGS | {"group_size": (56, 1, 1), "group_count": (3, 1, 1)}
    expected = machine.run(LANE + COUNTING, engine=Interpreter(), **args).counters
    wanted, out[:] = out.copy(), 0
    run = machine.start(LANE + COUNTING, engine=engine, **args)
    for _ in range(2000):
        if run.step(size):
            break
    found = run.counters
    assert not run.violations
    assert (out == wanted).all()
    assert (found.waves, found.instructions, found.lanes) == (expected.waves, expected.instructions, expected.lanes)
    assert found.by_class == expected.by_class
    assert sorted(found.by_pc.values()) == sorted(expected.by_pc.values())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_wave_that_goes_back_to_its_first_instruction_keeps_its_registers(machine, out, engine, strict, size):
    program = """
    .L: s_cmp_lg_u32 s4, 0
        s_cbranch_scc1 .Lagain
        s_mov_b32 s9, 5
        v_mov_b32_e32 v3, 7
    .Lagain:
        s_add_u32 s9, s9, 1
        s_add_u32 s4, s4, 1
        s_cmp_lt_u32 s4, 10
        s_cbranch_scc1 .L
        v_add_nc_u32_e32 v2, s9, v3
        v_lshlrev_b32_e32 v1, 2, v0
        global_store_b32 v1, v2, s[2:3]
        s_endpgm
    """
    run = machine.start(program, engine=engine, strict=strict, **ARGS)
    for _ in range(100):
        if run.step(size):
            break
    assert not run.violations
    assert (out[:32] == 5 + 10 + 7).all()


def test_killed_waves_do_nothing_more(machine, out, engine):
    run = machine.start(".L: s_branch .L", engine=engine, **ARGS)
    assert not run.step(100)
    run.kill()
    assert run.step(1)


def test_a_program_is_translated_once_and_again_when_its_code_changes(machine, out, engine):
    program = LANE + "v_add_nc_u32_e32 v2, 5, v0\n global_store_b32 v1, v2, s[2:3]\n s_endpgm\n"
    first = machine.start(program, engine=engine, **ARGS)
    # The same program at another address.
    again = machine.start(program, engine=engine, **ARGS)
    other = machine.start(program.replace("5", "6"), engine=engine, **ARGS)
    assert sum(map(len, engine.cache.values())) == 2
    for run, added in ((first, 5), (again, 5), (other, 6)):
        out[:] = 0
        assert run.step(1000)
        assert (out[:32] == np.arange(32) + added).all()


def test_a_limited_number_of_the_translations_used_last_is_kept(machine, out, monkeypatch):
    """A session that compiles all day must not keep every program it has run. It must keep those that it still runs."""
    engine = Translator(max_kept=2)
    begun = []
    begin = translations.Job.begin
    monkeypatch.setattr(translations.Job, "begin", lambda *words: begun.append(1) or begin(*words))

    def started(added):
        program = LANE + f"v_add_nc_u32_e32 v2, {added}, v0\n global_store_b32 v1, v2, s[2:3]\n s_endpgm\n"
        return machine.start(program, engine=engine, **ARGS)

    runs = {added: started(added) for added in (1, 2, 3)}
    assert (len(begun), sum(map(len, engine.cache.values()))) == (3, 2)
    started(2)
    # The new translation replaces that of 3.
    started(4)
    started(2)
    assert (len(begun), sum(map(len, engine.cache.values()))) == (4, 2)
    started(3)
    assert len(begun) == 5
    for added, run in runs.items():
        out[:] = 0
        assert run.step(1000)
        assert (out[:32] == np.arange(32) + added).all()


def levels(engine):
    return [one.made.result().level for known in engine.cache.values() for one in known]


@pytest.mark.parametrize("first", [THREADED, QUICK])
def test_a_program_that_runs_often_gets_better_code(machine, out, monkeypatch, first):
    program = LANE + "v_add_nc_u32_e32 v2, 5, v0\n global_store_b32 v1, v2, s[2:3]\n s_endpgm\n"
    monkeypatch.setattr(translations, "OUTGROWN", 2)
    engine = Translator(level=first)
    for made in ([first], [first], [first, THOROUGH], [first, THOROUGH]):
        out[:] = 0
        run = machine.start(program, engine=engine, **ARGS)
        assert levels(engine) == made
        assert run.step(1000)
        assert (out[:32] == np.arange(32) + 5).all()


def test_regions_met_before_are_forgotten_when_the_epoch_grows(machine, out, engine):
    program = """
    .L: global_load_b32 v2, v1, s[0:1]
        s_waitcnt vmcnt(0)
        global_store_b32 v1, v2, s[2:3]
        v_cmp_eq_u32_e32 vcc_lo, 77, v2
        s_cbranch_vccz .L
        s_endpgm
    """
    run = machine.start(LANE + program, engine=engine, **ARGS)
    assert not run.step(1000)
    assert (out[:32] == np.arange(32)).all()
    moved = np.full(4096, 77, np.uint32)
    regions = machine.arena.regions
    (at,) = (i for i, (one, _) in enumerate(regions) if one.gpu_va == IN)
    regions[at] = (Region(IN, moved.nbytes, moved.ctypes.data), moved)
    machine.arena.epoch += 1
    assert run.step(1000)
    assert (out[:32] == 77).all()


def test_what_memory_raises_comes_out_of_the_step(machine, out, engine):
    def refuse(gpu_va, write, execute=False):
        raise ZeroDivisionError(gpu_va)

    run = machine.start(LANE + "global_load_b32 v2, v1, s[0:1]\n s_endpgm\n", engine=engine, **ARGS)
    machine.arena.region = refuse
    with pytest.raises(ZeroDivisionError):
        run.step(100)


@pytest.mark.parametrize("strict", [True, False])
def test_a_broken_rule_leaves_the_registers_of_its_instruction_in_the_wave(machine, out, engine, strict):
    program = """
        s_mov_b32 s8, 0
        v_mov_b32_e32 v3, 0x40
    .L: v_add_nc_u32_e32 v3, v3, v0
        s_add_u32 s8, s8, 1
        s_cmp_lt_u32 s8, 3
        s_cbranch_scc1 .L
        s_mov_b32 exec_lo, 0xff
        v_lshlrev_b32_e32 v4, 20, v3
        global_store_b32 v4, v3, s[2:3]
        v_mov_b32_e32 v5, s8
        global_store_b32 v1, v5, s[2:3]
        s_endpgm
    """
    run = machine.start(LANE + program, engine=engine, strict=strict, **ARGS)
    assert not run.step(1000)
    (wave,) = run.stopped
    assert wave.pc == run.violations[0].pc
    assert (wave.exec_mask, int(wave.sgprs[8])) == (0xFF, 3)
    wanted = 0x40 + 3 * np.arange(8)
    assert wave.vgprs[3][:8].tolist() == wanted.tolist()
    assert wave.vgprs[4][:8].tolist() == (wanted << 20).tolist()


@pytest.mark.parametrize(
    ("size", "count", "partial", "start"),
    [
        ((32, 1, 1), (1, 1, 1), (5, 0, 0), (0, 0, 0)),
        ((40, 1, 1), (3, 1, 1), (33, 0, 0), (0, 0, 0)),
        ((8, 6, 1), (2, 1, 1), (3, 5, 0), (0, 0, 0)),
        ((8, 2, 4), (1, 2, 3), (0, 1, 3), (0, 0, 0)),
        ((8, 2, 4), (2, 2, 2), (7, 1, 3), (1, 0, 2)),
    ],
)
def test_grids_of_every_shape_are_those_of_the_interpreter(machine, out, engine, size, count, partial, start):
    """Each work-item adds what it knows about itself to a place of its own."""
    program = """
        s_mul_i32 s7, s5, 7
        s_mul_i32 s8, s6, 49
        s_add_u32 s7, s7, s8
        s_add_u32 s7, s7, s4
        s_lshl_b32 s8, s7, 8
        v_mov_b32_e32 v2, s8
        v_xor_b32_e32 v2, v2, v0
        v_and_b32_e32 v3, 0x3ff, v0
        v_bfe_u32 v4, v0, 10, 10
        v_bfe_u32 v5, v0, 20, 10
        v_lshl_or_b32 v3, v4, 3, v3
        v_lshl_or_b32 v3, v5, 5, v3
        v_add_lshl_u32 v3, v3, s8, 2
        v_and_b32_e32 v3, 0x3fff, v3
        global_atomic_add_u32 v3, v2, s[2:3]
        s_endpgm
    """
    args = ARGS | {
        "group_size": size, "group_count": count, "partial_size": partial, "group_start": start, "tidig_comp_cnt": 2,
        "enable_group_id": (True, True, True),
    }  # fmt: skip
    expected = machine.run(program, engine=Interpreter(), **args)
    wanted, out[:] = out.copy(), 0
    found = machine.run(program, engine=engine, **args)
    assert wanted.any()
    assert (out == wanted).all()
    assert (found.counters.waves, found.counters.lanes) == (expected.counters.waves, expected.counters.lanes)
