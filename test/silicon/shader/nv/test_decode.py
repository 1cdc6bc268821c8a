"""Operands of words. Words are NAK's."""

import pytest

from ringup.silicon.shader.nv.decoding.decode import decode
from ringup.silicon.shader.nv.decoding.instruction import Kind


@pytest.mark.parametrize(
    ("word", "text", "kinds"),
    [
        # what the text leaves out has its place
        (0x001FC800000201000000000000FF7806, "VOTE.ANY P1, P0", "RPP"),
        (0x000FC800000010FF0000000000027A11, "LEA R2, P0, R0, c[0x0][0x0], 0x2", "RPRcx"),
        # Mesa 25.0.7
        (0x0001C200001F41000000000608FF798E, "RED.E.ADD.STRONG.SYS [R8], R6", "aR"),
    ],
)
def test_an_instruction_has_all_its_operands(word, text, kinds):
    short = {
        Kind.REGISTER: "R", Kind.PREDICATE: "P", Kind.CONSTANT: "c", Kind.IMMEDIATE: "x", Kind.ADDRESS: "a",
    }  # fmt: skip
    ins = decode("sm_86", word)
    assert ins.text == text
    assert "".join(short[one.kind] for one in ins.operands) == kinds


def test_a_constant_behind_a_descriptor_is_found_by_its_register():
    """LDC R3, cx[UR0][R3], of Mesa 25.0.7."""
    ins = decode("sm_86", 0x003E0C00_08000803_00000000_00037582)
    place = ins.operands[1]
    assert ins.text == "LDC R3, cx[UR0][R3]"
    assert (place.kind, place.bank, place.uniform, place.register, place.value) == (Kind.CONSTANT, -1, 0, 3, 0)
