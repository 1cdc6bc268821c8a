"""Dual issue: two instructions are joined exactly where LLVM's assembler accepts them in some order, and never where
one needs the other.
"""

import random
from itertools import product

import pytest

from ringup.autogen.generate.isa.probe import Disassembler, llvm_mc
from ringup.compiler.amd.instructions.code import VCC_LO, Block, Code, Instr, physical
from ringup.compiler.amd.instructions.steps import Pair, Program
from ringup.compiler.amd.passes.dual import EXCHANGED, pair

NAMES = tuple(
    f"v_{name}" for name in ("fmac_f32", "add_f32", "sub_f32", "subrev_f32", "mul_f32", "max_f32", "mov_b32", "cndmask_b32", "add_nc_u32",
                             "lshlrev_b32", "and_b32", "fmaak_f32", "fmamk_f32", "dot2acc_f32_f16")
)  # fmt: skip
GFX12 = {"v_max_f32": "v_max_num_f32", "v_dot2acc_f32_f16": "v_mul_f32"}


def v(number):
    return physical("v", number, 1)


def joined(target, *instrs, window=()):
    program = Program(Code("k", target, [Block("b", instrs=[*instrs])], [], 0, 32))
    pair(program)
    return [step.instr for step in program.blocks[0]]


def some(chance, name, result):
    source = chance.choice(
        [*map(v, range(8)), *map(v, range(8)), physical("s", 4, 1), physical("s", 5, 1), 3, 0x12345, 0x54321]
    )
    second, literal = v(chance.randrange(8)), chance.choice((0x12345, 0x54321))
    if name == "v_mov_b32":
        return Instr(name, result, source)
    if name == "v_cndmask_b32":
        return Instr(name, result, source, second, VCC_LO)
    if name in ("v_fmaak_f32", "v_fmamk_f32"):
        plain = source if not isinstance(source, int) or source == 3 else v(1)
        return Instr(name, result, plain, *((second, literal) if name == "v_fmaak_f32" else (literal, second)))
    return Instr(name, result, source, second)


def text(instr, exchange):
    name, operands = instr.mnemonic, [*map(str, instr.operands)]
    if exchange:
        name, operands = EXCHANGED[name], [operands[0], operands[2], operands[1]]
    if name == "v_cndmask_b32":
        operands = operands[:3]
    return f"{name.replace('v_', 'v_dual_', 1)} {', '.join(operands)}"


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_what_llvm_takes_is_joined_and_nothing_else(headers, target):
    chance = random.Random(11)
    names = [GFX12.get(name, name) if target == "gfx1201" else name for name in NAMES]
    cases, texts, owners = [], [], []
    for _ in range(700):
        first, second = (some(chance, chance.choice(names), v(20 + chance.randrange(4))) for _ in range(2))
        if str(first.operands[0]) == str(second.operands[0]):
            continue
        cases.append((first, second))
        for one, other in ((first, second), (second, first)):
            for a, b in product((False, True), repeat=2):
                if (not a or (one.mnemonic in EXCHANGED and len(one.operands) == 3)) and (
                    not b or (other.mnemonic in EXCHANGED and len(other.operands) == 3)
                ):
                    owners.append(len(cases) - 1)
                    texts.append(f"{text(one, a)} :: {text(other, b)}")
    accepted = Disassembler(llvm_mc(headers("llvm-22")), target).accepts(texts)
    possible = {owner for owner, good in zip(owners, accepted, strict=True) if good}
    ours = {i for i, case in enumerate(cases) if len(joined(target, *case)) == 1}
    assert not ours - possible, [(*cases[i], *joined(target, *cases[i])) for i in sorted(ours - possible)][:6]
    left = possible - ours
    if target == "gfx1100":
        assert not left, [cases[i] for i in left][:3]
    else:
        # Two moves through one bank stay apart. Only RDNA4 allows that pair.
        assert all({one.mnemonic for one in cases[i]} == {"v_mov_b32"} for i in left), [cases[i] for i in left][:3]
    assert len(ours) > 150


def test_a_later_one_moves_up_where_nothing_between_needs_it():
    first, between, last = Instr("v_mov_b32", v(0), 1), Instr("v_exp_f32", v(9), v(8)), Instr("v_mov_b32", v(1), 2)
    assert [type(one) for one in joined("gfx1100", first, between, last)] == [Pair, Instr]
    for hindrance in (Instr("v_exp_f32", v(1), v(8)), Instr("v_exp_f32", v(9), v(1)), Instr("s_nop", 0)):
        assert len(joined("gfx1100", first, hindrance, last)) == 3
    uses = Instr("v_add_f32", v(1), v(0), v(5))
    # The second instruction needs the first one's result.
    assert len(joined("gfx1100", Instr("v_mov_b32", v(0), v(2)), uses)) == 2
    overwrites = joined("gfx1100", Instr("v_add_f32", v(0), v(1), v(2)), Instr("v_mov_b32", v(1), 2))
    # The first instruction reads the old value.
    assert [type(one) for one in overwrites] == [Pair]
    assert str(overwrites[0].x.operands[0]) == "v0"


def test_a_first_use_of_a_load_does_not_move_up():
    """Its wait would move up with it."""
    loaded = Instr("global_load_b32", v(7), v(8), physical("s", 4, 2))
    between = Instr("v_exp_f32", v(9), v(8))
    assert len(joined("gfx1100", loaded, Instr("v_mov_b32", v(0), 1), between, Instr("v_mov_b32", v(1), v(7)))) == 4


def test_wave64_has_none():
    program = Program(
        Code(
            "k",
            "gfx1100",
            [Block("b", instrs=[Instr("v_mov_b32", v(0), 1), Instr("v_mov_b32", v(1), 2)])],
            [],
            0,
            64,
            64,
        )
    )
    assert pair(program) == 0


def test_modifiers_and_wide_encodings_are_left_alone():
    plain = Instr("v_mov_b32", v(1), 2)
    assert len(joined("gfx1100", plain, Instr("v_add_f32", v(0), v(2), v(3), clamp=1))) == 2
    assert len(joined("gfx1100", plain, Instr("v_cndmask_b32", v(0), v(2), v(3), physical("s", 4, 1)))) == 2
