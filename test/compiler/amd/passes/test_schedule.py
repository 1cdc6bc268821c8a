"""Scheduling: fixed instructions keep their order, latencies start early, register pressure is limited, and the result
is always the same.
"""

import pytest

from ringup.compiler.amd.instructions.code import EXEC_LO, OFF, SCC, Block, Code, Instr, Reg
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.passes.schedule import schedule

IN, OUT, LANE = Reg("s", 2), Reg("s", 2), Reg("v")
ARGS = Reg("s", 2, fixed=0)


def scheduled(*instrs, target="gfx1100", **options):
    head = [Instr("s_load_b64", IN, ARGS, 0), Instr("s_load_b64", OUT, ARGS, 8), Instr("s_nop", 0)]
    program = Program(Code("k", target, [Block("b", instrs=[*head, *instrs])], [ARGS, LANE], 16, 32))
    schedule(program, **options)
    order = [step.instr for step in program.blocks[0]][3:]
    assert sorted(map(id, order)) == sorted(map(id, instrs))
    return [instrs.index(one) for one in order]


def before(order, first, second):
    return order.index(first) < order.index(second)


def test_loads_start_before_arithmetic_that_does_not_need_them():
    values = [Reg("v") for _ in range(4)]
    work = [Instr("v_add_nc_u32", one, i, LANE) for i, one in enumerate(values)]
    loaded = Reg("v")
    order = scheduled(*work, Instr("global_load_b32", loaded, LANE, IN), Instr("v_mov_b32", Reg("v"), loaded))
    assert order[0] == 4
    assert order[-1] == 5


def store(value, base, offset=0, address=LANE):
    return Instr("global_store_b32", address, value, base, offset=offset)


def load(value, base, offset=0, address=LANE):
    return Instr("global_load_b32", value, address, base, offset=offset)


@pytest.mark.parametrize(
    ("first", "second", "moves"),
    [
        # Two arguments are two buffers.
        (store(LANE, OUT), load(Reg("v"), IN), True),
        (store(LANE, OUT), load(Reg("v"), OUT), False),
        # The same address, but other bytes.
        (store(LANE, OUT), load(Reg("v"), OUT, 4), True),
        (store(LANE, OUT), load(Reg("v"), OUT, 3), False),
        # These addresses may be equal.
        (store(LANE, OUT), load(Reg("v"), OUT, 64, Reg("v")), False),
        # A base of unknown origin.
        (store(LANE, OUT), load(Reg("v"), Reg("s", 2)), False),
        (Instr("ds_store_b32", LANE, LANE), load(Reg("v"), IN), True),
        (Instr("ds_store_b32", LANE, LANE), Instr("ds_load_b32", Reg("v"), LANE), False),
        (Instr("ds_store_b32", LANE, LANE), Instr("ds_load_b64", Reg("v", 2), LANE, offset=8), True),
        (Instr("ds_store_b32", LANE, LANE), Instr("s_barrier"), False),
        (Instr("s_barrier"), Instr("ds_load_b32", Reg("v"), LANE), False),
        (Instr("s_mov_b32", EXEC_LO, 1), Instr("v_mov_b32", Reg("v"), 0), False),
        (Instr("s_setreg_imm32_b32", 0x801, 3), Instr("v_add_f32", Reg("v"), LANE, LANE), False),
    ],
)  # fmt: skip
def test_instructions_that_depend_keep_their_order(first, second, moves):
    """The second instruction begins a long chain to the end, so the scheduler puts it first wherever it may."""
    late = []
    if second.mnemonic != "s_barrier":
        result = second.operands[0]
        late = [Instr("v_rcp_f32", Reg("v"), result[0] if result.count > 1 else result)]
    order = scheduled(first, second, *late)
    assert before(order, 1, 0) == (moves and "load" in second.mnemonic)


def test_compares_keep_their_readers():
    a, b, c, d = (Reg("s") for _ in range(4))
    order = scheduled(
        Instr("s_cmp_lt_u32", IN[0], 5), Instr("s_cselect_b32", a, 1, 2), Instr("s_add_u32", b, OUT[0], 3), Instr("s_cselect_b32", c, 1, 2),
        Instr("s_cmp_eq_u32", IN[1], 1), Instr("s_mov_b32", d, SCC),
    )  # fmt: skip
    assert order == sorted(order)


def chains(count):
    """Loads, all at the start. Each is used once, after all of them."""
    values = [Reg("v") for _ in range(count)]
    total = Reg("v")
    return [*[load(one, IN, 4 * i) for i, one in enumerate(values)], Instr("v_mov_b32", total, 0),
            *[Instr("v_add_nc_u32", total, one, total) for one in values], store(total, OUT)]  # fmt: skip


def test_the_budget_of_the_occupancy_is_kept():
    values = [Reg("v") for _ in range(150)]
    total = Reg("v")
    instrs = [Instr("v_mov_b32", total, 0)]
    for i, one in enumerate(values):
        instrs += [load(one, IN, 4 * i), Instr("v_add_nc_u32", total, one, total)]
    program = Program(Code("k", "gfx1100", [Block("b", instrs=[*instrs, store(total, OUT)])], [IN, OUT, LANE], 16, 32))
    report = schedule(program)
    assert report.before < 8
    assert report.budget == 96
    assert 60 < report.after <= 96
    program = Program(Code("k", "gfx1100", [Block("b", instrs=[*instrs, store(total, OUT)])], [IN, OUT, LANE], 16, 32))
    assert schedule(program, occupancy=8).after > 100


def test_an_order_is_never_worse_than_the_makers_beyond_the_budget(tools):
    for seed in range(20):
        program, _ = tools.prepared(tools.random_program(seed, size=150, live=200).code, "schedule")
        report = schedule(program)
        assert report.after <= max(report.before, report.budget)


def test_loads_of_one_base_stand_together():
    a, b = Reg("s", 2), Reg("s", 2)
    instrs = [load(Reg("v"), (a, b)[i % 2], 4 * i) for i in range(8)]
    order = scheduled(*instrs)
    assert order == [0, 2, 4, 6, 1, 3, 5, 7]


def test_lds_limits_the_waves_and_widens_the_budget():
    row = limits("gfx1100")
    assert row.occupancy(96, 0, 256, 32) == 16
    assert row.occupancy(97, 0, 256, 32) == 12
    assert row.occupancy(256, 0, 256, 32) == 5
    assert row.occupancy(96, 32768, 256, 32) == 8
    assert row.budget(8, 32) == 192
    assert row.budget(5, 32) == 256
    assert row.budget(16, 32) == 96
    assert row.occupancy(64, 0, 256, 64) == 10


def test_scalar_loads_do_not_fill_the_scalar_file():
    values, total = [Reg("s") for _ in range(200)], Reg("s")
    instrs = [Instr("s_mov_b32", total, 0)]
    for i, one in enumerate(values):
        instrs += [Instr("s_load_b32", one, IN, 4 * i), Instr("s_add_u32", total, total, one)]
    program = Program(
        Code("k", "gfx1100", [Block("b", instrs=[*instrs, Instr("s_mov_b32", EXEC_LO, total)])], [IN], 16, 32)
    )
    schedule(program)
    order = [step.instr for step in program.blocks[0]]
    # A run of loads goes first, but not all of them.
    assert 20 < order.index(instrs[2]) < 100


def test_an_argument_loaded_twice_is_one_buffer():
    first, second = Reg("s", 2), Reg("s", 2)
    instrs = [
        Instr("s_load_b64", first, ARGS, 8),
        Instr("s_load_b64", second, ARGS, 8),
        Instr("s_nop", 0),
        store(LANE, first),
        load(Reg("v"), second),
    ]
    program = Program(Code("k", "gfx1100", [Block("b", instrs=instrs)], [ARGS, LANE], 16, 32))
    schedule(program)
    assert [step.instr for step in program.blocks[0]] == instrs


def test_the_maker_may_say_whose_memory_it_is():
    pointer, other, result = Reg("v", 2), Reg("v", 2), Reg("v")
    instrs = [
        Instr("global_store_b32", pointer, LANE, OFF),
        Instr("global_load_b32", result, other, OFF),
        Instr("v_rcp_f32", Reg("v"), result),
    ]
    assert scheduled(*instrs) == [0, 1, 2]
    for i, instr in enumerate(instrs):
        instr.buffer = i
    assert before(scheduled(*instrs), 1, 0)
