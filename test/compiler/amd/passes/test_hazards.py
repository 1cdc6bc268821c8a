"""Hazards, clauses and delays: the code has what the tables demand, and not more."""

import pytest

from ringup.compiler.amd.emit import emit
from ringup.compiler.amd.instructions.code import EXEC_LO, VCC, VCC_LO, Block, Code, Instr, physical
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.passes.clause import insert_clauses
from ringup.compiler.amd.passes.delay import insert_delays
from ringup.compiler.amd.passes.hazards import avoid_hazards
from ringup.compiler.amd.passes.waits import insert_waits


def v(first, count=1):
    return physical("v", first, count)


def s(first, count=1):
    return physical("s", first, count)


def program(*instrs, target="gfx1100", wave=32, blocks=None):
    return Program(Code("k", target, blocks or [Block("b", instrs=list(instrs))], [], 0, wave, wave))


def text(made, b=0):
    return [str(step).strip() for step in made.blocks[b]]


def after(pass_, *instrs, **options):
    made = program(*instrs, **options)
    pass_(made)
    return text(made)


EXP, USE, PLAIN = Instr("v_exp_f32", v(0), v(1)), Instr("v_add_f32", v(2), v(0), v(1)), Instr("v_mov_b32", v(9), 0)


@pytest.mark.parametrize(("between", "needed"), [(0, True), (5, True), (6, False)])
def test_a_transcendental_result_is_not_read_too_early(between, needed):
    found = after(avoid_hazards, EXP, *[PLAIN] * between, USE)
    assert ("s_waitcnt_depctr 4095" in found) == needed
    if needed:
        assert found.index("s_waitcnt_depctr 4095") == len(found) - 2
    assert "s_waitcnt_depctr 4095" not in after(avoid_hazards, EXP, *[PLAIN] * between, USE, target="gfx1151")


def test_memory_and_other_transcendentals_end_the_wait():
    assert len(after(avoid_hazards, EXP, Instr("ds_load_b32", v(4), v(5)), USE)) == 3
    assert len(after(avoid_hazards, EXP, *[Instr("v_exp_f32", v(8 + i), v(1)) for i in range(2)], USE)) == 4
    assert len(after(avoid_hazards, EXP, Instr("v_exp_f32", v(8), v(1)), USE)) == 4


def test_strict_cores_want_every_one_of_them(tools):
    make = tools.maker()
    one = make.v("v_exp_f32", make.v("v_cvt_f32_u32", make.thread))
    make.store(make.v("v_add_f32", one, one))
    made, counts = tools.prepared(make.end())
    insert_waits(made)
    assert "too early" in str(tools.run_binary(emit(made, *counts), make.out_words)[1].violations[0])
    assert avoid_hazards(made) == 1
    assert not tools.run_binary(emit(made, *counts), make.out_words)[1].violations


def test_a_hazard_comes_around_a_loop():
    head, tail = Block("head"), Block("tail")
    head.instrs = [USE, *[PLAIN] * 2, EXP, Instr("s_cbranch_scc1", head)]
    tail.instrs = [PLAIN, USE]
    made = program(blocks=[head, tail])
    assert avoid_hazards(made) == 2
    assert text(made)[0] == text(made, 1)[1] == "s_waitcnt_depctr 4095"


def test_a_permute_behind_a_compare_that_writes_exec():
    compare, permute = Instr("v_cmpx_lt_u32", v(0), v(1)), Instr("v_permlanex16_b32", v(2), v(3), 0, 0)
    assert after(avoid_hazards, compare, permute)[1] == "v_mov_b32 v3, v3"
    assert len(after(avoid_hazards, compare, PLAIN, permute)) == 3
    assert len(after(avoid_hazards, compare, Instr("v_nop"), permute)) == 4


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_a_matrix_product_behind_the_one_that_made_its_factor(target):
    n = 8 if target == "gfx1100" else 4

    def product(d, a, b):
        return Instr("v_wmma_f32_16x16x16_f16", v(d, 8), v(a, n), v(b, n), v(d, 8))

    assert "v_nop" in after(avoid_hazards, product(0, 16, 24), product(32, 0, 24), target=target)
    assert "v_nop" not in after(avoid_hazards, product(0, 16, 24), product(0, 16, 24), target=target)
    assert "v_nop" not in after(avoid_hazards, product(0, 16, 24), PLAIN, product(32, 0, 24), target=target)


def test_wave64_masks_that_are_rewritten():
    choose = Instr("v_cndmask_b32", v(0), v(1), v(2), s(4, 2))
    change = Instr("s_mov_b64", s(4, 2), 0)
    assert after(avoid_hazards, choose, change, choose, wave=64)[2] == "s_waitcnt_depctr 65534"
    assert len(after(avoid_hazards, choose, change, choose)) == 3


def test_wave64_forwarding_across_a_change_of_exec():
    first, second = Instr("v_mov_b32", v(0), 1), Instr("v_mov_b32", v(1), 2)
    read, mask = Instr("v_add_nc_u32", v(2), v(0), v(1)), Instr("s_mov_b64", EXEC_LO._replace(name="exec"), -1)
    assert "s_waitcnt_depctr 4095" in after(avoid_hazards, first, mask, second, read, wave=64)
    assert "s_waitcnt_depctr 4095" not in after(avoid_hazards, first, mask, second, *[PLAIN] * 5, read, wave=64)
    assert "s_waitcnt_depctr 4095" not in after(avoid_hazards, first, second, mask, read, wave=64)


def test_a_loop_that_changes_exec_comes_to_rest():
    head = Block("head")
    mask = Instr("s_mov_b64", EXEC_LO._replace(name="exec"), -1)
    head.instrs = [
        Instr("v_add_nc_u32", v(2), v(0), v(1)),
        Instr("v_mov_b32", v(0), 1),
        mask,
        Instr("v_mov_b32", v(1), 2),
        Instr("s_cbranch_scc1", head),
    ]
    assert avoid_hazards(program(blocks=[head, Block("end", instrs=[Instr("s_endpgm")])], wave=64)) == 1
    assert str(head.instrs[0]) == "v_add_nc_u32 v2, v0, v1"


def test_each_mask_that_is_rewritten_waits_for_itself():
    choose = [Instr("v_cndmask_b32", v(0), v(1), v(2), s(n, 2)) for n in (4, 6)]
    change = [Instr("s_mov_b64", s(n, 2), 0) for n in (4, 6)]
    assert after(avoid_hazards, *choose, *change, *choose, wave=64).count("s_waitcnt_depctr 65534") == 2


def test_rdna4_pairs_that_a_vector_instruction_has_read():
    """The example of the RDNA4 ISA reference, and its three rules."""
    read = Instr("v_mov_b32", v(0), s(1))
    write, again = Instr("s_mov_b32", s(0), 0x42), Instr("s_mov_b32", s(2), s(0))
    assert after(avoid_hazards, read, write, again, target="gfx1201")[2] == "s_wait_alu 65534"
    compare, choose = Instr("v_cmp_lt_u32", s(0), v(1), v(2)), Instr("v_cndmask_b32", v(3), v(1), v(2), s(0))
    assert after(avoid_hazards, read, compare, choose, target="gfx1201")[2] == "s_wait_alu 61951"
    vcc = Instr("v_cmp_lt_u32", VCC_LO, v(1), v(2)), Instr("v_cndmask_b32", v(3), v(1), v(2), VCC_LO)
    assert after(avoid_hazards, *vcc, *vcc, target="gfx1201")[3] == "s_wait_alu 65533"
    # Both ALUs wrote: a vector instruction waits for both, a scalar one only for the scalar ALU.
    both = after(avoid_hazards, read, compare, write, choose, target="gfx1201")
    assert both[3] == f"s_wait_alu {0xFFFE & 0xF1FF}"
    assert after(avoid_hazards, read, compare, write, again, target="gfx1201")[3] == "s_wait_alu 65534"
    assert len(after(avoid_hazards, write, again, target="gfx1201")) == 2
    assert len(after(avoid_hazards, read, write, again, target="gfx1100")) == 3
    assert VCC.name == "vcc"


def load(n, offset=0):
    return Instr("global_load_b32", v(n), v(40), s(4, 2), offset=offset)


def test_runs_of_loads_are_clauses():
    found = after(insert_clauses, load(0), load(1), load(2), PLAIN, load(3))
    assert found[0] == "s_clause 2"
    assert len(found) == 6
    found = after(insert_clauses, *[load(i) for i in range(40)])
    assert (found[0], found[33]) == ("s_clause 31", "s_clause 7")
    stores = [Instr("global_store_b32", v(40), v(i), s(4, 2)) for i in range(2)]
    assert after(insert_clauses, load(0), load(1), *stores)[::3] == ["s_clause 1", "s_clause 1"]
    assert len(after(insert_clauses, load(0), stores[0])) == 2


def add(d, a, b):
    return Instr("v_add_f32", v(d), v(a), v(b))


def test_a_result_needed_soon_is_reported():
    """The codes are those in the table of the RDNA3 ISA reference."""
    assert after(insert_delays, add(0, 8, 9), add(1, 0, 9))[1] == "s_delay_alu 1"
    assert after(insert_delays, add(0, 8, 9), add(5, 8, 9), add(1, 0, 9))[2] == "s_delay_alu 2"
    assert len(after(insert_delays, add(0, 8, 9), *[add(20 + i, 8, 9) for i in range(4)], add(1, 0, 9))) == 6
    assert after(insert_delays, Instr("v_exp_f32", v(0), v(9)), add(1, 0, 9))[1] == "s_delay_alu 5"
    assert after(insert_delays, Instr("s_add_u32", s(0), s(1), 1), Instr("v_mov_b32", v(0), s(0)))[1] == "s_delay_alu 9"


def test_two_needs_share_one_hint():
    """The example of the RDNA3 ISA reference, "S_DELAY_ALU"."""
    found = after(
        insert_delays, Instr("v_mov_b32", v(3), v(0)), Instr("v_lshlrev_b32", v(30), 1, v(31)), Instr("v_lshlrev_b32", v(24), 1, v(25)),
        add(0, 1, 3), Instr("v_sub_f32", v(11), v(9), v(9)), Instr("v_mul_f32", v(10), v(13), v(11)),
    )  # fmt: skip
    assert found[3] == f"s_delay_alu {3 | 2 << 4 | 1 << 7}"
    assert len(found) == 7
    assert (
        after(insert_delays, add(0, 8, 9), Instr("v_exp_f32", v(1), v(9)), add(2, 0, 1))[2]
        == f"s_delay_alu {5 | 0 << 4 | 2 << 7}"
    )


def test_memory_waits_for_vector_results_by_itself():
    assert len(after(insert_delays, add(40, 8, 9), load(1))) == 2
