"""Waits: neither too few nor too many. The test loosens each field of each wait by one, and the cores in strict mode
must then stop.
"""

import pytest

from ringup.compiler.amd.emit import emit
from ringup.compiler.amd.instructions.code import NULL, Block, Code, Instr, Reg
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.passes.waits import insert_waits, waits_of


def waits(program):
    return [
        waits_of(step.instr, program.table.counters)
        for steps in program.blocks
        for step in steps
        if step.effects.kind == "wait"
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_wait_for_one_less_is_noticed(tools, seed):
    made = tools.random_program(seed, size=30, nests=0)
    program, counts = tools.prepared(made.code)
    insert_waits(program)
    assert not tools.run_binary(emit(program, *counts), made.out_words)[1].violations
    loosened, counters = 0, program.table.counters
    for steps in program.blocks:
        for step in steps:
            if step.instr.mnemonic == "s_waitcnt":
                old = step.instr.operands[0]
                for name, count in counters.waited(old).items():
                    step.instr.operands[0] = counters.s_waitcnt(counters.waited(old) | {name: count + 1})
                    _, run = tools.run_binary(emit(program, *counts), made.out_words)
                    assert run.violations, (step, name)
                    loosened += 1
                step.instr.operands[0] = old
    assert loosened > 2


@pytest.mark.parametrize("number", range(3))
def test_a_wait_left_out_around_a_loop_is_noticed(tools, number):
    """Loads before the loop and at its end are first used at its start. One wait inside covers both."""
    make = tools.maker()
    carried = make.load(1)
    total = make.v("v_mov_b32", 0)

    def body(counter):
        make("v_xor_b32", total, carried, total)
        make("global_load_b32", carried, make.lane4, make.source, offset=256)

    make.loop(3, body)
    make.store(make.v("v_xor_b32", total, carried))
    program, counts = tools.prepared(make.end())
    insert_waits(program)
    places = [
        (b, i) for b, steps in enumerate(program.blocks) for i, step in enumerate(steps) if step.effects.kind == "wait"
    ]
    assert len(places) == 3
    _out, run = tools.run_binary(emit(program, *counts), make.out_words)
    assert not run.violations
    b, i = places[number]
    del program.blocks[b][i]
    assert tools.run_binary(emit(program, *counts), make.out_words)[1].violations


def straight(target, *instrs):
    """A program of virtual registers that look like physical ones, with waits inserted."""
    program = Program(Code("k", target, [Block("b", instrs=list(instrs))], [], 0, 32))
    insert_waits(program)
    return program


BASE, LANE = Reg("s", 2), Reg("v")


def load(reg, **modifiers):
    return Instr("global_load_b32", reg, LANE, BASE, **modifiers)


def test_vector_loads_are_waited_for_by_their_order():
    a, b, c = (Reg("v") for _ in range(3))
    use = [Instr("v_mov_b32", Reg("v"), one) for one in (a, c, b)]
    program = straight("gfx1100", load(a), load(b), load(c), *use)
    assert waits(program) == [{"vmcnt": 2}, {"vmcnt": 0}]


def test_local_loads_behind_a_scalar_load_are_waited_for_by_their_own_order():
    a, s = Reg("v"), Reg("s")
    program = straight(
        "gfx1100", Instr("ds_load_b32", a, LANE), Instr("s_load_b32", s, BASE, 0), Instr("ds_store_b32", LANE, LANE),
        Instr("v_mov_b32", Reg("v"), a), Instr("s_mov_b32", Reg("s"), s),
    )  # fmt: skip
    assert waits(program) == [{"lgkmcnt": 1}, {"lgkmcnt": 0}]


def test_counters_are_told_together_where_one_instruction_can():
    a, b = Reg("v"), Reg("v")
    program = straight("gfx1100", load(a), Instr("ds_load_b32", b, LANE), Instr("v_add_nc_u32", Reg("v"), a, b))
    assert waits(program) == [{"vmcnt": 0, "lgkmcnt": 0}]


def test_rdna4_has_a_counter_for_each_kind():
    a, b, s = Reg("v"), Reg("v"), Reg("s")
    program = straight(
        "gfx1201", load(a), Instr("ds_load_b32", b, LANE), Instr("s_load_b32", s, BASE, 0), Instr("v_add_nc_u32", Reg("v"), a, b),
        Instr("s_mov_b32", Reg("s"), s),
    )  # fmt: skip
    assert [str(step) for step in program.blocks[0] if step.effects.kind == "wait"] == [
        "s_wait_loadcnt_dscnt 0",
        "s_wait_kmcnt 0",
    ]


def test_a_load_over_a_load_of_the_same_order_needs_none_and_of_another_does():
    a = Reg("v")
    assert waits(straight("gfx1100", load(a), load(a))) == []
    assert waits(straight("gfx1100", load(a), Instr("ds_load_b32", a, LANE))) == [{"vmcnt": 0}]


def test_stores_and_the_end_need_none():
    assert (
        waits(
            straight(
                "gfx1100",
                Instr("global_store_b32", LANE, LANE, BASE),
                Instr("v_mov_b32", LANE, 0),
                Instr("s_endpgm", 0),
            )
        )
        == []
    )


def test_a_wait_of_the_maker_counts():
    a, b = Reg("v"), Reg("v")
    made = straight("gfx1100", load(a), load(b), Instr("s_waitcnt", 0x3F7), Instr("v_add_nc_u32", Reg("v"), a, b))
    assert waits(made) == [{"vmcnt": 0}]
    made = straight("gfx1100", load(a), Instr("s_waitcnt_vscnt", NULL, 0), Instr("v_mov_b32", Reg("v"), a))
    assert waits(made) == [{"vscnt": 0}, {"vmcnt": 0}]


def test_a_full_counter_waits_by_itself():
    first, others = Reg("v"), [Reg("v") for _ in range(70)]
    program = straight("gfx1100", load(first), *map(load, others), Instr("v_mov_b32", Reg("v"), first))
    assert waits(program) == []


def test_an_atomic_that_returns_is_a_load_and_one_that_does_not_a_store():
    old = Reg("v")
    made = straight(
        "gfx1100", Instr("global_atomic_add_u32", old, LANE, LANE, BASE, glc=1), Instr("v_mov_b32", Reg("v"), old)
    )
    assert waits(made) == [{"vmcnt": 0}]
    assert (
        waits(straight("gfx1100", Instr("global_atomic_add_u32", LANE, LANE, BASE), Instr("v_mov_b32", LANE, 0))) == []
    )
