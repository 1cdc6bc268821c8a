"""RDNA4's barriers, which waves signal and wait for with two instructions.

Source: RDNA4 ISA reference, "Work-groups and Barriers".
"""

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter

OUT = 0x30_0000
GROUP = {"group_size": (128, 1, 1), "lds_size_bytes": 1024, "user_sgprs": (OUT, 0)}
# s8 is the wave's number in its group: bits 29:25 of TTMP8. v1 is the work-item's byte address.
NUMBERS = "s_bfe_u32 s8, ttmp8, 0x50019\n v_lshlrev_b32_e32 v1, 2, v0\n"
STORE = "global_store_b32 v1, v2, s[0:1]\n s_endpgm\n"


@pytest.fixture
def out(rdna4):
    return rdna4.buffer(OUT, np.zeros(128))


def test_a_wave_reads_what_another_stored_before_its_signal(rdna4, out):
    rdna4.run(
        NUMBERS
        + """
        v_add_nc_u32_e32 v2, 1000, v0
        ds_store_b32 v1, v2
        s_wait_dscnt 0x0
        s_barrier_signal -1
        s_barrier_wait -1
        v_xor_b32_e32 v3, 0x180, v1    // the lane of another wave
        ds_load_b32 v2, v3
        s_wait_dscnt 0x0
        """
        + STORE,
        **GROUP,
    )
    assert out.tolist() == [1000 + (item ^ 0x60) for item in range(128)]


def test_a_wave_may_work_between_its_signal_and_its_wait(rdna4, out):
    # Wave 3 stores late; the others signal, compute, and see its value after they have waited.
    rdna4.run(
        NUMBERS
        + """
        s_cmp_eq_u32 s8, 3
        s_cbranch_scc0 .Learly
        s_movk_i32 s9, 100
        .Lagain: s_sleep 1
        s_sub_co_u32 s9, s9, 1
        s_cmp_lg_u32 s9, 0
        s_cbranch_scc1 .Lagain
        v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 77
        ds_store_b32 v4, v5
        s_wait_dscnt 0x0
        .Learly:
        s_barrier_signal -1
        v_mov_b32_e32 v4, 0
        s_barrier_wait -1
        ds_load_b32 v2, v4
        s_wait_dscnt 0x0
        """
        + STORE,
        **GROUP,
    )
    assert out.tolist() == [77] * 128


def test_a_wave_that_has_ended_is_not_waited_for(rdna4, out):
    rdna4.run(
        NUMBERS
        + """
        s_cmp_eq_u32 s8, 2
        s_cbranch_scc1 .Lend
        s_barrier_signal -1
        s_barrier_wait -1
        v_mov_b32_e32 v2, 5
        global_store_b32 v1, v2, s[0:1]
        .Lend: s_endpgm
        """,
        **GROUP,
    )
    assert [int(out[32 * wave]) for wave in range(4)] == [5, 5, 0, 5]


def test_a_barrier_that_an_ended_wave_completes_starts_anew(rdna4, out):
    # Wave 2 ends while the others wait for it. Then wave 3 stores late, before the next barrier.
    rdna4.run(
        NUMBERS
        + """
        s_movk_i32 s9, 60
        s_cmp_eq_u32 s8, 2
        s_cbranch_scc1 .Llate
        s_barrier_signal -1
        s_barrier_wait -1
        s_cmp_eq_u32 s8, 3
        s_cbranch_scc0 .Lnext
        .Llate: s_sleep 1
        s_sub_co_u32 s9, s9, 1
        s_cmp_lg_u32 s9, 0
        s_cbranch_scc1 .Llate
        s_cmp_eq_u32 s8, 2
        s_cbranch_scc1 .Lend
        v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 77
        ds_store_b32 v4, v5
        s_wait_dscnt 0x0
        .Lnext:
        s_barrier_signal -1
        v_mov_b32_e32 v4, 0
        s_barrier_wait -1
        ds_load_b32 v2, v4
        s_wait_dscnt 0x0
        global_store_b32 v1, v2, s[0:1]
        .Lend: s_endpgm
        """,
        **GROUP,
    )
    assert [int(out[32 * wave]) for wave in range(4)] == [77, 77, 0, 77]


def test_barriers_follow_each_other(rdna4, out):
    # Every round each wave adds its number to a word that all have read before.
    rdna4.run(
        NUMBERS
        + """
        v_mov_b32_e32 v3, 0
        v_mov_b32_e32 v2, 0
        s_cmp_eq_u32 s8, 0
        s_cbranch_scc0 .Lready
        ds_store_b32 v3, v2
        s_wait_dscnt 0x0
        .Lready:
        s_movk_i32 s9, 5
        .Lround:
        s_barrier_signal -1
        s_barrier_wait -1
        s_mov_b32 exec_lo, 1
        s_add_co_i32 s10, s8, 1
        s_wait_alu depctr_sa_sdst(0)
        v_mov_b32_e32 v4, s10
        ds_add_u32 v3, v4
        s_mov_b32 exec_lo, -1
        s_wait_dscnt 0x0
        s_barrier_signal -1
        s_barrier_wait -1
        s_sub_co_u32 s9, s9, 1
        s_cmp_lg_u32 s9, 0
        s_cbranch_scc1 .Lround
        ds_load_b32 v2, v3
        s_wait_dscnt 0x0
        """
        + STORE,
        **GROUP,
    )
    assert out.tolist() == [5 * (1 + 2 + 3 + 4)] * 128


def test_one_wave_is_the_first_to_signal(rdna4, out):
    rdna4.run(
        NUMBERS
        + """
        s_barrier_signal_isfirst -1
        s_cselect_b32 s9, 1, 0
        s_barrier_wait -1
        v_mov_b32_e32 v2, s9
        """
        + STORE,
        **GROUP,
    )
    assert sorted(int(out[32 * wave]) for wave in range(4)) == [0, 0, 0, 1]


def test_the_state_has_signals_members_and_validity(rdna4, out):
    rdna4.run(
        NUMBERS
        + """
        s_cmp_eq_u32 s8, 0
        s_cbranch_scc1 .Llast
        s_barrier_signal -1
        s_barrier_wait -1
        s_endpgm
        .Llast:
        s_sleep 1
        s_sleep 1
        s_get_barrier_state s9, -1
        s_wait_kmcnt 0x0
        s_barrier_signal -1
        s_barrier_wait -1
        v_mov_b32_e32 v2, s9
        """
        + STORE,
        **GROUP,
    )
    assert out[0] == 3 << 16 | 4 << 4 | 1


def test_a_wave_that_waits_without_a_signal_never_passes(rdna4, out):
    run = rdna4.start(NUMBERS + "s_barrier_wait -1\n s_endpgm", **GROUP)
    assert not run.step(10_000)
    assert len(run.arrived) == 4
    assert not run.violations


def test_a_signal_with_stores_to_lds_in_flight_is_a_hazard(rdna4):
    found = rdna4.broken(NUMBERS + "ds_store_b32 v1, v0\n s_barrier_signal -1\n s_endpgm", **GROUP)
    assert found.kind == "hazard"
    # Translated code does not know the instruction.
    by = " by ds_store_b32" if isinstance(rdna4.engine, Interpreter) else ", and other waves"
    assert f"LDS is still being stored to{by}" in found.detail
    assert "wait on dscnt" in found.detail


def test_barriers_of_a_wave_alone_do_nothing(rdna4, out):
    rdna4.run(
        "v_mov_b32_e32 v1, 0\n s_barrier_signal -1\n s_barrier_wait -1\n s_barrier_wait -2\n v_mov_b32_e32 v2, 9\n"
        + STORE,
        user_sgprs=(OUT, 0),
    )
    assert out[0] == 9


# With what follows the word, as LLVM has it on all of gfx12. Source: RDNA4 ISA reference, "SOP1 Opcodes" 81 and 82,
# "SOPP Opcodes" 21: reserved; "S_BARRIER_SIGNAL": M0 is for other architectures.
NAMED = {
    "s_barrier_init m0": "is no instruction", "s_barrier_join -1": "is no instruction", "s_barrier_leave": "is no instruction",
    "s_barrier_signal m0": "s_barrier_signal with ssrc0 125", "s_get_barrier_state s4, m0": "s_get_barrier_state with ssrc0 125",
    "s_barrier_signal 3": "barrier 3 of s_barrier_signal: RDNA4 has -1 of the group, and -2",
    "s_barrier_signal_isfirst -3": "barrier -3 of s_barrier_signal_isfirst",
}  # fmt: skip


@pytest.mark.parametrize("text", NAMED)
def test_named_barriers_are_illegal_since_rdna4_has_none(rdna4, text):
    found = rdna4.broken("s_mov_b32 m0, 1\n" + text + "\n s_endpgm", **GROUP)
    assert found.kind == "illegal"
    assert NAMED[text] in found.detail
