"""Program flow, scheduling, messages, traps and hardware registers on each engine."""

import numpy as np
import pytest

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.interpreter.engine import Exit, Machine, step_one
from ringup.silicon.shader.common.launch import start_group

OUT = 0x30_0000
ARGS = {"user_sgprs": (OUT, 0), "enable_group_id": (False, False, False)}
STORE = "v_mov_b32_e32 v3, 0\n v_mov_b32_e32 v4, s8\n global_store_b32 v3, v4, s[0:1]\n s_endpgm\n"


@pytest.fixture
def out(machine):
    return machine.buffer(OUT, np.zeros(256))


def test_a_loop_counts(machine, out):
    machine.run("s_mov_b32 s8, 0\n.L: s_add_u32 s8, s8, 3\n s_cmp_lt_u32 s8, 30\n s_cbranch_scc1 .L\n" + STORE, **ARGS)
    assert out[0] == 30


@pytest.mark.parametrize(
    ("setup", "branch", "taken"),
    [
        ("s_cmp_eq_u32 s0, s0", "s_cbranch_scc1", True),
        ("s_cmp_eq_u32 s0, s0", "s_cbranch_scc0", False),
        ("s_mov_b32 vcc_lo, 0", "s_cbranch_vccz", True),
        ("s_mov_b32 vcc_lo, 2", "s_cbranch_vccz", False),
        ("s_mov_b32 vcc_lo, 2", "s_cbranch_vccnz", True),
        ("s_nop 0", "s_cbranch_execnz", True),
        ("s_nop 0", "s_cbranch_execz", False),
        ("s_nop 0", "s_cbranch_cdbgsys", False),
        ("s_nop 0", "s_branch", True),
    ],
)
def test_branches_follow_their_condition(machine, out, setup, branch, taken):
    machine.run(f"s_mov_b32 s8, 1\n{setup}\n{branch} .L\n s_mov_b32 s8, 2\n.L:\n" + STORE, **ARGS)
    assert out[0] == (1 if taken else 2)


def test_the_high_half_of_vcc_counts_in_a_wave64_only(machine, out):
    program = (
        "s_mov_b32 s8, 1\n s_mov_b64 vcc, 0\n s_mov_b32 vcc_hi, 1\n s_cbranch_vccz .L\n s_mov_b32 s8, 2\n.L:\n" + STORE
    )
    machine.run(program, **ARGS)
    assert out[0] == 1
    machine.run(program, **ARGS, wave_size=64)
    assert out[0] == 2


def test_calls_return(machine, out):
    machine.run(
        """
        s_mov_b32 s8, 1
        s_call_b64 s[10:11], .Lnear
        s_getpc_b64 s[12:13]
        s_add_u32 s12, s12, 20 // from here to .Lfar
        s_swappc_b64 s[14:15], s[12:13]
        s_branch .Lend
    .Lnear:
        s_add_u32 s8, s8, 10
        s_setpc_b64 s[10:11]
    .Lfar:
        s_add_u32 s8, s8, 64
        s_setpc_b64 s[14:15]
    .Lend:
    """
        + STORE,
        **ARGS,
    )
    assert out[0] == 75


def test_scalar_registers_are_moved_by_m0(machine, out):
    machine.run(
        "s_mov_b32 s20, 5\n s_mov_b32 m0, 3\n s_movrels_b32 s8, s17\n s_movreld_b32 s21, s8\n s_add_u32 s8, s8, s24\n"
        + STORE,
        **ARGS,
    )
    assert out[0] == 10


def test_a_wave64_may_run_a_loop_half_by_half(machine, out):
    machine.run(
        """
        s_mov_b32 s8, 0
        s_subvector_loop_begin s10, .Lend
    .Lbody:
        s_add_u32 s8, s8, 1
        s_subvector_loop_end s10, .Lbody
    .Lend:
        s_mov_b32 s11, exec_hi
        s_add_u32 s8, s8, s11
    """
        + STORE,
        **ARGS,
        wave_size=64,
        group_size=(34, 1, 1),
    )
    assert out[0] == 2 + 3


def test_a_barrier_holds_every_wave_of_its_group(machine, out):
    machine.run(
        """
        v_lshlrev_b32_e32 v1, 2, v0
        ds_store_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        v_sub_nc_u32_e32 v2, 0x1fc, v1
        ds_load_b32 v3, v2
        s_waitcnt lgkmcnt(0)
        global_store_b32 v1, v3, s[0:1]
        s_endpgm
    """,
        **ARGS,
        group_size=(128, 1, 1),
        lds_size_bytes=512,
    )
    assert (out[:128] == 127 - np.arange(128)).all()


def test_a_wave_that_ended_holds_up_no_barrier(machine, out):
    machine.run(
        "v_readfirstlane_b32 s9, v0\n s_cmp_eq_u32 s9, 0\n s_cbranch_scc1 .L\n s_barrier\n.L: s_mov_b32 s8, 4\n"
        + STORE,
        **ARGS,
        group_size=(96, 1, 1),
    )
    assert out[0] == 4


def test_groups_that_wait_for_each_other_make_progress(machine, out):
    """The first group spins until the last one has stored. All groups must be resident at once and take turns."""
    machine.run(
        """
        v_mov_b32_e32 v1, 0
        s_cmp_eq_u32 s2, 0
        s_cbranch_scc0 .Lset
    .Lspin:
        s_sleep 1
        global_load_b32 v2, v1, s[0:1] glc
        s_waitcnt vmcnt(0)
        v_readfirstlane_b32 s8, v2
        s_cmp_eq_u32 s8, 39
        s_cbranch_scc0 .Lspin
        s_endpgm
    .Lset:
        v_mov_b32_e32 v2, 1
        s_mov_b32 exec_lo, 1
        global_atomic_add_u32 v1, v2, s[0:1]
        s_endpgm
    """,
        user_sgprs=(OUT, 0),
        group_count=(40, 1, 1),
    )
    assert out[0] == 39


def test_the_same_dispatch_does_the_same_in_slices_of_any_size(machine, out):
    program = "v_mov_b32_e32 v1, 0\n v_mov_b32_e32 v2, 1\n global_atomic_add_u32 v3, v1, v2, s[0:1] glc\n s_endpgm\n"
    counts = []
    for size in (1, 7, 10_000):
        run = machine.start(program, user_sgprs=(OUT, 0), group_count=(5, 1, 1), group_size=(64, 1, 1))
        while not run.step(size):
            pass
        counts.append((run.counters.instructions, run.counters.waves, run.counters.lanes))
    assert counts == [(40, 10, 960)] * 3
    assert out[0] == 3 * 5 * 64


def test_killed_waves_do_nothing_more(machine, out):
    run = machine.start(".L: s_branch .L", **ARGS)
    assert not run.step(100)
    run.kill()
    assert run.step(1)


def test_a_halted_wave_never_ends(machine, out):
    run = machine.start("s_sethalt 1\n s_endpgm", **ARGS)
    assert not run.step(1000)
    assert run.counters.instructions == 1
    assert not run.violations


def test_messages_reach_the_card(machine, out):
    machine.run(
        "s_mov_b32 m0, 0x1234\n s_sendmsg sendmsg(MSG_INTERRUPT)\n s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)\n s_endpgm",
        **ARGS,
    )
    # The other message goes to the SPI.
    assert machine.heard.messages == [(1, 0x1234, (0, 0, 0, 0))]


def test_released_vgprs_are_gone(machine, out):
    violation = machine.broken("s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)\n v_mov_b32_e32 v0, 0\n s_endpgm", **ARGS)
    assert violation.kind == "register"


@pytest.mark.parametrize(
    ("message", "answer"),
    [("MSG_RTN_GET_REALTIME", 0x2345_6789), ("MSG_RTN_GET_DOORBELL", 7), ("MSG_RTN_GET_TBA", 0x5000)],
)
def test_messages_answer(machine, out, message, answer):
    machine.run(f"s_sendmsg_rtn_b32 s8, sendmsg({message})\n s_waitcnt lgkmcnt(0)\n" + STORE, **ARGS, trap_base=0x5000)
    assert out[0] == answer


def test_a_trap_enters_the_handler_with_its_number_and_address(machine, out):
    handler = machine.assemble(
        """
        s_and_b32 ttmp2, ttmp1, 0xff0000
        s_add_u32 ttmp0, ttmp0, 4
        s_mov_b32 s8, ttmp2
        s_and_b32 ttmp1, ttmp1, 0xffff
        s_rfe_b64 ttmp[0:1]
    """
    )
    machine.arena.place(0x60_0000, handler, executable=True)
    machine.run(
        "s_trap 5\n s_mov_b32 s9, ttmp2\n s_add_u32 s8, s8, s9\n" + STORE,
        **ARGS,
        trap_enabled=True,
        trap_base=0x60_0000,
    )
    # Outside of the trap handler, ttmp2 reads as zero.
    assert out[0] == 5 << 16


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("s_getreg_b32 s8, hwreg(HW_REG_MODE)", 0x1C0),
        ("s_getreg_b32 s8, hwreg(HW_REG_MODE, 4, 4)", 0xC),
        ("s_round_mode 0x5\n s_denorm_mode 0xf\n s_getreg_b32 s8, hwreg(HW_REG_MODE)", 0x1F5),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0xff\n s_getreg_b32 s8, hwreg(HW_REG_MODE)", 0x1CF),
        ("s_mov_b32 s9, 2\n s_setreg_b32 hwreg(HW_REG_MODE, 2, 2), s9\n s_getreg_b32 s8, hwreg(HW_REG_MODE)", 0x1C8),
        ("s_getreg_b32 s8, hwreg(HW_REG_SH_MEM_BASES)", 0x1_0002),
        ("s_setreg_imm32_b32 hwreg(HW_REG_STATUS, 13, 1), 1\n s_getreg_b32 s8, hwreg(HW_REG_STATUS, 13, 1)", 0),
        ("s_cmp_eq_u32 s0, s0\n s_getreg_b32 s8, hwreg(HW_REG_STATUS, 0, 1)", 1),
        ("s_mov_b32 s8, src_shared_base", 0),
        ("s_mov_b64 s[8:9], src_private_base\n s_mov_b32 s8, s9", 2 << 16),
        ("s_mov_b64 s[8:9], src_shared_limit", 0xFFFF_FFFF),
    ],
)
def test_hardware_registers_read_and_write(machine, out, program, value):
    machine.run(program + "\n" + STORE, **ARGS, shared_aperture=1, private_aperture=2)
    assert out[0] == value


def test_one_step_leaves_the_wave_at_the_next_instruction(machine, out):
    run = machine.start("s_mov_b32 s8, 17\n s_barrier\n s_endpgm", **ARGS, group_size=(64, 1, 1))
    dispatch = run.machine.dispatch
    group = start_group(dispatch, (0, 0, 0), 0)
    wave, alone = group.waves[0], Machine(dispatch, machine.arena, machine.heard)
    outcomes = [step_one(wave, group, alone) for _ in range(3)]
    assert outcomes == [Exit.NEXT, Exit.BARRIER, Exit.END]
    assert int(wave.sgprs[8]) == 17
    assert wave.pc == dispatch.pc + 12


def test_a_broken_rule_leaves_the_wave_at_its_instruction(machine, out):
    run = machine.start("s_nop 0\n s_code_end", **ARGS)
    dispatch = run.machine.dispatch
    group = start_group(dispatch, (0, 0, 0), 0)
    alone = Machine(dispatch, machine.arena, machine.heard)
    assert [step_one(group.waves[0], group, alone) for _ in range(2)] == [Exit.NEXT, Exit.FAULT]
    assert group.waves[0].pc == dispatch.pc + 4
    assert alone.violations[0].kind == "illegal"


def test_counters_tell_classes_places_and_lanes(machine, out):
    run = machine.run(
        "v_lshlrev_b32_e32 v1, 2, v0\n s_nop 0\n global_store_b32 v1, v0, s[0:1]\n s_load_b32 s8, s[0:1], 0x0\n s_endpgm\n",
        **ARGS,
        group_size=(40, 1, 1),
    )
    counters = run.counters
    assert counters.by_class == {"valu": 2, "control": 4, "vmem": 2, "smem": 2}
    assert counters.by_pc[0x10_0000] == 2
    assert (counters.waves, counters.instructions, counters.lanes) == (2, 10, 80)
    assert counters.memory_transactions == 4
    assert counters.cache_lines == 1 + 1 + 1 + 1


@pytest.mark.parametrize(
    "program", ["exp mrt0 v0, v0, v0, v0 done", "image_load v[0:3], v0, s[0:7] dmask:0xf dim:SQ_RSRC_IMG_1D unorm"]
)
def test_graphics_is_refused_by_name(machine, out, program):
    run = machine.start(program + "\n s_endpgm", **ARGS)
    with pytest.raises(Unmodelled, match=program.split()[0]):
        run.step(10)


# Rounding to nearest, up, down, to zero. Source: RDNA3 ISA reference, "MODE".
@pytest.mark.parametrize(("rounding", "infinite"), [(0, True), (1, True), (2, False), (3, False)])
@pytest.mark.parametrize(
    "line", ["v_max_f32_e64 v2, v2, v2 mul:2", "v_floor_f32_e64 v2, v2 mul:4", "v_add_f32_e64 v2, v2, v2"]
)
def test_what_goes_beyond_the_largest_number_is_rounded_as_mode_says(machine, line, rounding, infinite):
    """An output modifier multiplies and therefore rounds, even after an operation that only selects."""
    out = machine.buffer(0x30_0000, np.zeros(32))
    text = (
        f"v_mov_b32_e32 v2, 0x7f7fffff\n{line}\nv_lshlrev_b32_e32 v1, 2, v0\nglobal_store_b32 v1, v2, s[0:1]\ns_endpgm"
    )
    machine.run(text, user_sgprs=(0x30_0000, 0), float_mode=rounding, ieee_mode=False)
    assert set(out.tolist()) == {0x7F80_0000 if infinite else 0x7F7F_FFFF}
