"""Allocation: exact limits, tuples, copies that must disappear or must stay, spilling, and inactive lanes."""

import numpy as np
import pytest

from ringup.compiler.amd.instructions.code import EXEC_LO, VCC_LO, Block, Instr, Part, Physical, Reg
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.registers.allocate import allocate
from ringup.compiler.amd.registers.liveness import Liveness
from ringup.errors import CompileError


def instructions(code, mnemonic=""):
    return [one for block in code.blocks for one in block.instrs if one.mnemonic.startswith(mnemonic)]


def many(tools, count):
    """A program with `count` loaded values and an address alive at once."""
    make = tools.maker()
    values = [make.load(i) for i in range(count)]
    total = make.v("v_mov_b32", 0)
    for value in reversed(values):
        make("v_xor_b32", total, value, total)
    for value in values:
        make("v_add_nc_u32", total, value, total)
    make.store(total)
    return make


@pytest.mark.parametrize("count", [10, 40, 120])
def test_a_program_fits_exactly_the_registers_that_it_needs(tools, count):
    code = many(tools, count).end()
    program = Program(code)
    liveness = Liveness(program)
    vector = [
        unit
        for reg in program.regs
        if reg.bank == "v"
        for unit in range(program.base[reg], program.base[reg] + reg.count)
    ]
    most = max(sum(liveness.mask[unit] >> bit & 1 for unit in vector) for bit in range(2 * liveness.count))
    found = allocate(program, max_vgprs=most)
    assert (found.vgprs, found.spilled) == (most, 0)
    less = Program(many(tools, count).end())
    assert allocate(less, max_vgprs=most - 1).spilled > 0


def test_spilled_values_come_back(tools):
    make = many(tools, 60)
    binary = tools.check(make.end(), make.out_words, max_vgprs=16)
    assert binary.vgprs <= 16
    assert binary.scratch_bytes >= 4 * 40


def test_scratch_far_away_is_reached_through_a_register(tools):
    make = many(tools, 300)
    # The maker itself keeps values there.
    make.code.scratch_bytes = 4000
    binary = tools.check(make.end(), make.out_words, max_vgprs=16)
    assert binary.scratch_bytes > 4096 + 100
    assert any(isinstance(one.operands[1], Physical) for one in instructions(make.code, "scratch_load"))


def test_constants_are_made_again_and_not_spilled(tools):
    make = tools.maker()
    constants = [make.v("v_mov_b32", 1000 + i) for i in range(30)]
    values = [make.load(i) for i in range(4)]
    for value in values:
        for constant in constants:
            make("v_add_nc_u32", value, constant, value)
        make.store(value)
    binary = tools.check(make.end(), make.out_words, max_vgprs=12)
    assert binary.scratch_bytes == 0


def test_one_instruction_that_needs_more_than_there_is_is_refused(tools):
    make = tools.maker()
    wide = [make.load(i, 4) for i in range(3)]
    sum_, first, second = (Reg("v", 8) for _ in range(3))
    for one in (sum_, first, second):
        for i in range(8):
            make("v_mov_b32", one[i], i)
    make("v_wmma_f32_16x16x16_f16", sum_, first, second, sum_)
    for one in wide:
        make.store(one[0])
    make.store(sum_[0])
    with pytest.raises(CompileError, match=r"v_wmma.* VGPRs are needed at once .*; there are 16"):
        tools.check(make.end(), make.out_words, max_vgprs=16, engines=())


@pytest.mark.parametrize("bank", ["s", "v"])
def test_a_register_that_nothing_writes_is_a_mistake_of_the_generator(tools, bank):
    make = tools.maker()
    value = make.load(0)
    make("v_add_nc_u32", value, Reg(bank, name="forgotten"), value)
    make.store(value)
    with pytest.raises(ValueError, match=r"`v_add_nc_u32 .*` reads .%forgotten, which nothing writes"):
        tools.check(make.end(), make.out_words, engines=())


def test_scalar_ranges_lie_at_their_multiples(tools):
    make = tools.maker()
    singles = [make.s("s_mov_b32", i) for i in range(3)]
    pair = make.s("s_mov_b64", 5, count=2)
    quad = make.s("s_load_b128", make.kernarg, 0, count=4)
    eight = make.s("s_load_b256", make.kernarg, 0, count=8)
    for reg, count in ((pair, 2), (quad, 4), (eight, 8)):
        for k in range(count):
            make.store(make.v("v_mov_b32", reg[k]))
    for one in singles:
        make.store(make.v("v_mov_b32", one))
    code = make.end()
    tools.check(code, make.out_words)
    for name, align in (("s_mov_b64", 2), ("s_load_b128", 4), ("s_load_b256", 4)):
        assert all(one.operands[0].first % align == 0 for one in instructions(code, name))


def test_a_temporary_moved_into_a_wide_register_is_made_there(tools):
    make = tools.maker()
    wide = Reg("v", 4)
    for k in range(4):
        make("v_mov_b32", wide[k], make.v("v_add_nc_u32", k, make.thread))
    make("global_store_b128", make.v("v_lshlrev_b32", 4, make.thread), wide, make.target)
    make.out_words = 128
    code = make.end()
    tools.check(code, make.out_words)
    assert not instructions(code, "v_mov_b32")


def test_carried_values_that_change_places_keep_their_moves(tools):
    make = tools.maker()
    a, b = make.v("v_mov_b32", 1), make.v("v_mov_b32", 2)

    def body(counter):
        hold = make.v("v_mov_b32", a)
        make("v_mov_b32", a, b)
        make("v_mov_b32", b, hold)
        make("v_add_nc_u32", b, counter, b)

    make.loop(3, body)
    make.store(a)
    make.store(b)
    tools.check(make.end(), make.out_words)


def test_a_carried_value_is_computed_in_place(tools):
    make = tools.maker()
    total = make.v("v_mov_b32", 0)

    def body(counter):
        make("v_mov_b32", total, make.v("v_add3_u32", total, counter, make.thread))

    make.loop(3, body)
    make.store(total)
    code = make.end()
    program, _ = tools.prepared(code, "dual")
    moves = [step for steps in program.blocks for step in steps if step.instr.mnemonic == "v_mov_b32"]
    # The first value.
    assert len(moves) == 1


def test_lanes_that_are_off_keep_the_value_from_before(tools):
    """`outer` is written again under a mask. Code between the writes must not take its register, although every path
    writes it.
    """
    make = tools.maker()
    outer = make.v("v_mov_b32", 7)
    saved = make.s("s_and_saveexec_b32", make.s("v_cmp_lt_u32", make.thread, 9))
    others = [make.v("v_add_nc_u32", i, make.thread) for i in range(8)]
    total = make.v("v_mov_b32", 0)
    for one in others:
        make("v_xor_b32", total, one, total)
    make("v_mov_b32", outer, total)
    make("s_mov_b32", EXEC_LO, saved)
    make.store(outer)
    tools.check(make.end(), make.out_words)


def test_a_value_spilled_under_one_mask_is_whole_under_another(tools):
    make = tools.maker()
    mask = make.s("v_cmp_lt_u32", make.thread, 13)
    first = [make.load(i) for i in range(12)]
    second = [make.v("v_mov_b32", i) for i in range(12)]
    saved = make.s("s_and_saveexec_b32", mask)
    for one, value in zip(second, first, strict=True):
        make("v_add_nc_u32", one, value, value)
    make("s_mov_b32", EXEC_LO, saved)
    for one in first + second:
        make.store(one)
    binary = tools.check(make.end(), make.out_words, ("interpreter", "translator"), max_vgprs=10)
    assert binary.scratch_bytes


def test_what_reads_lanes_that_are_off_is_not_spilled(tools):
    make = tools.maker()
    values = [make.load(i) for i in range(14)]
    saved = make.s("s_and_saveexec_b32", make.s("v_cmp_lt_u32", make.thread, 4))
    lane = make.s("v_readlane_b32", values[0], 20)
    make("s_mov_b32", EXEC_LO, saved)
    for one in values:
        make.store(one)
    make.store(make.v("v_mov_b32", lane))
    code = make.end()
    binary = tools.check(code, make.out_words, max_vgprs=10)
    assert binary.scratch_bytes


def test_scalars_go_to_lanes_of_vector_registers(tools):
    make = tools.maker()
    values = [make.s("s_mul_i32", make.scalars[0], 3 + i) for i in range(40)]
    saved = make.s("s_and_saveexec_b32", make.s("v_cmp_lt_u32", make.thread, 4))
    inner = [make.s("s_add_u32", value, 1) for value in values]
    make("s_mov_b32", EXEC_LO, saved)
    for one in (*values, *inner):
        make.store(make.v("v_mov_b32", one))
    code = make.end()
    tools.check(code, make.out_words, max_sgprs=20)
    assert instructions(code, "v_writelane_b32")


def test_a_mask_of_a_compare_takes_vcc_where_nothing_else_does(tools):
    make = tools.maker()
    mask = make.s("v_cmp_lt_u32", 5, make.thread)
    chosen = make.v("v_cndmask_b32", make.thread, make.lane4, mask)
    make.store(chosen)
    code = make.end()
    tools.check(code, make.out_words)
    assert [str(one.operands[0]) for one in instructions(code, "v_cmp")] == ["vcc_lo"]
    make = tools.maker()
    mask = make.s("v_cmp_lt_u32", 5, make.thread)
    make("v_cmp_lt_u32", VCC_LO, 9, make.thread)
    first = make.v("v_cndmask_b32", make.thread, make.lane4, VCC_LO)
    make.store(make.v("v_cndmask_b32", first, make.thread, mask))
    tools.check(make.end(), make.out_words)


@pytest.mark.parametrize("same", [True, False], ids=["added in place", "added beside"])
def test_matrix_products(tools, same):
    """Sources and result of a product share no register. C and D are the same registers or share none."""
    make = tools.maker()
    a, b = Reg("v", 8), Reg("v", 8)
    for k in range(8):
        for one in (a, b):
            small = make.v("v_and_b32", 0x3C003C00, make.load(3 * k + (one is b)))
            make("v_mov_b32", one[k], small)
    c = Reg("v", 8)
    for k in range(8):
        make("v_mov_b32", c[k], 1.0)
    d = c if same else Reg("v", 8)
    make("v_wmma_f32_16x16x16_f16", d, a, b, c)
    if not same:
        for k in range(8):
            make.store(c[k])
    for k in range(8):
        make.store(d[k])
    code = make.end()
    finished = tools.prepared(code, "waits")[0]
    (product,) = [step.instr for steps in finished.blocks for step in steps if step.effects.kind == "wmma"]
    places = [set(range(one.first, one.first + one.count)) for one in product.operands]
    assert not places[0] & (places[1] | places[2])
    assert places[0] == places[3] if same else places[0] == places[3] or not places[0] & places[3]


@pytest.mark.parametrize("size", [0, 48])
def test_a_loop_of_products_computes_them(tools, size):
    """The halves are 0 and 1, so sums are exact. With 48 registers the fragments do not fit and are spilled as
    a whole.
    """
    make = tools.maker()
    totals = [Reg("v", 8) for _ in range(3)]
    for total in totals:
        for k in range(8):
            make("v_mov_b32", total[k], 0)
    lane16 = make.v("v_and_b32", 15, make.thread)
    address = make.v("v_lshlrev_b32", 4, lane16)

    def body(counter):
        parts = []
        for i in range(4):
            wide = Reg("v", 8)
            for half in range(2):
                loaded = make.v("global_load_b128", address, make.source, count=4, offset=64 * i + 256 * half)
                for k in range(4):
                    spread = make.v("v_sub_nc_u32", 0, make.v("v_and_b32", 0x00010001, loaded[k]))
                    make("v_and_b32", wide[4 * half + k], 0x3C003C00, spread)
            parts.append(wide)
        for i, total in enumerate(totals):
            make("v_wmma_f32_16x16x16_f16", total, parts[i], parts[i + 1], total)

    make.loop(2, body)
    for total in totals:
        for k in range(8):
            make.store(total[k])
    binary = tools.check(make.end(), make.out_words, ("interpreter", "translator"), max_vgprs=size)
    assert (binary.scratch_bytes > 0) == (size > 0)


def test_products_into_new_registers_add_in_place_where_the_old_ones_die(tools):
    make = tools.maker()
    a, b = make.load(1, 4), make.load(2, 4)
    wide = [Reg("v", 8) for _ in range(2)]
    for one, source in zip(wide, (a, b), strict=True):
        for k in range(8):
            make("v_mov_b32", one[k], source[k % 4])
    total = Reg("v", 8)
    for k in range(8):
        make("v_mov_b32", total[k], 0)

    def body(counter):
        new = make.v("v_wmma_f32_16x16x16_f16", *wide, total, count=8)
        for k in range(8):
            make("v_mov_b32", total[k], new[k])

    make.loop(2, body)
    make.store(total[0])
    code = make.end()
    program, _ = tools.prepared(code, "waits")
    inside = [step.instr.mnemonic for step in program.blocks[1]]
    assert "v_mov_b32" not in inside
    assert inside.count("v_wmma_f32_16x16x16_f16") == 1


def test_a_mad_of_64_bits_writes_none_of_its_sources(tools):
    for seed in range(40):
        program, _ = tools.prepared(tools.random_program(seed, nests=0).code, "waits")
        for step in (step for steps in program.blocks for step in steps if step.instr.mnemonic == "v_mad_u64_u32"):
            assert not set(step.writes) & set(step.reads)


def test_inputs_stay_where_the_dispatcher_puts_them(tools):
    make = tools.maker()
    make.store(make.thread)
    make.store(make.v("v_mov_b32", make.group))
    code = make.end()
    binary = tools.check(code, make.out_words)
    # gfx1100: user and group SGPRs are at most 16 together.
    assert binary.user_sgprs == 15
    out, _ = tools.run_binary(binary, make.out_words, groups=3)
    assert set(out[32:64].tolist()) <= {0, 1, 2}
    assert np.array_equal(out[:32], np.arange(32))


def test_a_part_beyond_its_register_is_refused(tools):
    make = tools.maker()
    make("v_mov_b32", Part(Reg("v", 2), 2, 1), 0)
    with pytest.raises(CompileError, match="which has 2 dwords"):
        tools.check(make.end(), 0, engines=())


def test_an_undefined_block_target_names_nothing(tools):
    make = tools.maker()
    make("s_branch", Block("elsewhere"))
    with pytest.raises(KeyError):
        tools.prepared(make.code, "waits")
    assert Instr("s_nop", 0).operands == [0]
