"""Packed f32 of gfx942: random code computes the same before and after, by an interpreter of these few instructions."""

import random

import numpy as np
import pytest

from ringup.compiler.amd.emit import _operands
from ringup.compiler.amd.instructions.code import Block, Code, Instr, Signed, physical
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.passes.packed import pack
from ringup.compiler.isa.amd.encoding.processor import processor

REGISTERS = 10
PLAIN = {
    "v_add_f32": (2, lambda a, b: a + b),
    "v_sub_f32": (2, lambda a, b: a - b),
    "v_subrev_f32": (2, lambda a, b: b - a),
    "v_mul_f32": (2, lambda a, b: a * b),
    "v_max_f32": (2, np.maximum),
}


def v(number, count=1):
    return physical("v", number, count)


def value(registers, operand):
    return -registers[operand.source.first] if isinstance(operand, Signed) else registers[operand.first]


def dword(registers, operand, modifiers, which, i, upper):
    """Return a source of a packed instruction. Source: CDNA3 ISA reference, "Packed Math"."""
    selected = modifiers.get(which, (int(upper),) * 3)[i]
    found = registers[operand.first + selected]
    return -found if modifiers.get("neg_hi" if upper else "neg_lo", (0, 0, 0))[i] else found


def run(instrs):
    registers = np.arange(1, REGISTERS + 1, dtype=np.float64) / 8
    for instr in instrs:
        name, (result, *sources) = instr.mnemonic, instr.operands
        if name.startswith("v_pk_"):
            made = []
            for upper, which in ((False, "op_sel"), (True, "op_sel_hi")):
                a, b, *c = (dword(registers, one, instr.modifiers, which, i, upper) for i, one in enumerate(sources))
                made.append(a + b if "add" in name else a * b if "mul" in name else a * b + c[0])
            registers[result.first : result.first + 2] = made
        elif name == "v_fmac_f32":
            a, b = (value(registers, one) for one in sources)
            registers[result.first] += a * b
        elif name == "v_fma_f32":
            a, b, c = (value(registers, one) for one in sources)
            registers[result.first] = a * b + c
        else:
            registers[result.first] = PLAIN[name][1](*(value(registers, one) for one in sources))
    return registers


def random_code(rng, size):
    made = []
    while len(made) < size:
        name = rng.choice([*PLAIN, "v_fma_f32", "v_fma_f32", "v_fmac_f32"])
        count = 3 if name == "v_fma_f32" else 2
        first = rng.randrange(0, REGISTERS, 2)
        sources = [rng.randrange(REGISTERS) for _ in range(count)]
        # Often a pair, in either order.
        for place in rng.sample((0, 1), 2):
            operands = [v(one ^ (place & rng.randrange(2))) for one in sources]
            if rng.random() < 0.2:
                operands[0] = Signed(operands[0], neg=True)
            made.append(Instr(name, v(first + place), *operands))
    return made


def packed(instrs):
    block = Block("b", 0, [*instrs, Instr("s_endpgm", 0)])
    program = Program(Code("k", "gfx942", [block], [], 0, 64, 64))
    count = pack(program)
    return [step.instr for step in program.blocks[0][:-1]], count


@pytest.mark.seeds(3)
def test_packed_code_computes_the_same(seed):
    rng, joined = random.Random(seed), 0
    isa = processor("gfx942", 64)
    for _ in range(60):
        instrs = random_code(rng, 10)
        made, count = packed(instrs)
        joined += count
        assert len(made) == len(instrs) - count
        with np.errstate(all="ignore"):
            assert np.array_equal(run(instrs), run(made), equal_nan=True), [*map(repr, instrs), "", *map(repr, made)]
        for instr in made:
            isa.encode(instr.mnemonic, _operands(instr), **instr.modifiers)
    assert joined > 60


def test_what_does_not_fit_stays_apart():
    for first, second in (
        # results of an odd register and the next, and of two pairs
        (Instr("v_add_f32", v(1), v(4), v(6)), Instr("v_add_f32", v(2), v(5), v(7))),
        (Instr("v_add_f32", v(0), v(4), v(6)), Instr("v_add_f32", v(3), v(5), v(7))),
        # sources of different pairs
        (Instr("v_mul_f32", v(0), v(4), v(6)), Instr("v_mul_f32", v(1), v(5), v(8))),
        # another operation, a result that is read, a magnitude, a constant
        (Instr("v_mul_f32", v(0), v(4), v(6)), Instr("v_add_f32", v(1), v(5), v(7))),
        (Instr("v_mul_f32", v(0), v(4), v(6)), Instr("v_mul_f32", v(1), v(0), v(7))),
        (Instr("v_mul_f32", v(0), Signed(v(4), abs=True), v(6)), Instr("v_mul_f32", v(1), v(5), v(7))),
        (Instr("v_mul_f32", v(0), 2.0, v(6)), Instr("v_mul_f32", v(1), 2.0, v(7))),
    ):
        assert packed([first, second])[1] == 0
