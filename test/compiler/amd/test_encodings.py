"""Operands of gfx9's vector instructions: one scalar each, and literals only where the short encoding has room."""

import pytest

from ringup.compiler.amd.instructions.code import EXEC, VCC, Block, Instr, Reg, Signed
from ringup.compiler.amd.select.encodings import fit_encodings

A, B, C = (Reg("v", name=name) for name in "abc")
S, T = (Reg("s", name=name) for name in "st")
MASK, PAIR, WIDE = Reg("s", 2, name="mask"), Reg("s", 2, name="pair"), Reg("v", 2, name="wide")
LITERAL, OTHER = 0x12345, 0x54321


def fitted(*instrs, depth=0):
    """Return the instructions before the block and in it."""
    blocks = [Block("start"), Block("here", depth, list(instrs))]
    fit_encodings(blocks, "gfx942")
    return blocks[0].instrs, blocks[1].instrs


def names(instrs):
    return [instr.mnemonic for instr in instrs]


@pytest.mark.parametrize(
    "instr",
    [
        Instr("v_add_f32", A, LITERAL, B),
        Instr("v_fmaak_f32", A, B, C, LITERAL),
        Instr("v_cmp_lt_u32", VCC, LITERAL, A),
        Instr("v_mov_b32", A, LITERAL),
        Instr("v_fma_f32", A, S, S, B),
        Instr("v_cndmask_b32", A, 1.0, B, MASK),
        Instr("v_add_co_ci_u32", A, VCC, 0, B, VCC),
        Instr("v_mad_u64_u32", WIDE, VCC, A, B, PAIR),
        Instr("v_readlane_b32", S, A, T),
    ],
    ids=lambda instr: instr.mnemonic,
)
def test_what_an_encoding_holds_stays(instr):
    before = list(instr.operands)
    assert fitted(instr) == ([], [instr])
    assert instr.operands == before


@pytest.mark.parametrize(
    ("instr", "copies"),
    [
        # the long encoding has no literal
        (Instr("v_fma_f32", A, LITERAL, B, C), ["s_mov_b32"]),
        (Instr("v_add_f32", A, LITERAL, Signed(B, True)), ["s_mov_b32"]),
        (Instr("v_cmp_lt_u32", MASK, LITERAL, A), ["s_mov_b32"]),
        (Instr("v_add_f32", A, B, LITERAL), ["s_mov_b32"]),
        # two scalars
        (Instr("v_fma_f32", A, S, T, B), ["v_mov_b32"]),
        (Instr("v_fma_f32", A, S, LITERAL, B), ["v_mov_b32"]),
        (Instr("v_fma_f32", A, LITERAL, OTHER, B), ["s_mov_b32", "v_mov_b32"]),
        (Instr("v_fmaak_f32", A, S, C, LITERAL), ["v_mov_b32"]),
        # a mask is one
        (Instr("v_cndmask_b32", A, LITERAL, B, VCC), ["v_mov_b32"]),
        (Instr("v_cndmask_b32", A, S, B, MASK), ["v_mov_b32"]),
        (Instr("v_div_fmas_f32", A, S, B, C), ["v_mov_b32"]),
        # a pair, dword by dword
        (Instr("v_fma_f64", WIDE, PAIR, Reg("s", 2), WIDE), ["v_mov_b32", "v_mov_b32"]),
    ],
    ids=lambda one: one.mnemonic if isinstance(one, Instr) else "",
)
def test_what_it_does_not_hold_is_copied(instr, copies):
    assert names(fitted(instr)[1]) == [*copies, instr.mnemonic]


def test_a_literal_is_copied_once_for_a_block_and_for_a_loop_before_it():
    def twice():
        return Instr("v_fma_f32", A, LITERAL, B, C), Instr("v_fma_f32", B, C, LITERAL, A)

    assert names(fitted(*twice())[1]) == ["s_mov_b32", "v_fma_f32", "v_fma_f32"]
    start, loop = fitted(*twice(), depth=1)
    assert (names(start), names(loop)) == (["s_mov_b32"], ["v_fma_f32", "v_fma_f32"])


def test_a_literal_in_a_vgpr_is_copied_again_where_other_lanes_run():
    def chosen():
        return Instr("v_cndmask_b32", A, LITERAL, B, MASK)

    assert names(fitted(chosen(), chosen())[1]).count("v_mov_b32") == 1
    narrowed = Instr("s_and_saveexec_b64", PAIR, VCC)
    widened = Instr("s_mov_b64", EXEC, PAIR)
    assert names(fitted(narrowed, chosen(), widened, chosen())[1]).count("v_mov_b32") == 2
