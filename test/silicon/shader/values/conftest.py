"""Fixtures for the ALUs: one function on chosen lanes, and floats as exact fractions."""

import random
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
from ringup.silicon.shader.amd.interpreter.value_table import VALUES, Ctx

# IEEE 754: total bits, and bits of the fraction. bf16 is an f32 cut short.
SHAPES = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}
NEAREST, UP, DOWN, ZERO = range(4)


@pytest.fixture
def alu():
    """`alu(mnemonic, *sources, lanes=…, mode…)` returns the value function's result. Lists become arrays; scalar
    mnemonics get ints.
    """

    def run(
        mnemonic,
        *sources,
        lanes=None,
        bits=32,
        exec_mask=None,
        vgprs=None,
        operands=(),
        fields=None,
        clamp=False,
        **mode,
    ):
        if mnemonic.startswith("s_"):
            count, arrays = 64, sources
        else:
            arrays = [
                one if isinstance(one, np.ndarray) else np.array(one, np.uint64 if bits == 64 else np.uint32)
                for one in sources
            ]
            count = lanes or len(arrays[0])
        active = (
            np.ones(count, np.bool_)
            if exec_mask is None
            else np.array([exec_mask >> i & 1 for i in range(count)], np.bool_)
        )
        ins = Instruction(mnemonic, "VOP3", 0, 8, b"", tuple(operands), fields or {}, clamp=clamp)
        registers = np.zeros((4, count), np.uint32) if vgprs is None else vgprs
        return VALUES[mnemonic](Ctx(ins, count, active, registers, **mode), *arrays)

    return run


@pytest.fixture
def operand():
    """`operand(field, direction="use", type_="f32", size_bits=32, **changes)` returns an operand."""

    def make(field, direction="use", type_="f32", size_bits=32, index=0, **changes):
        return Operand("vgpr", index, size_bits, type_, direction, field, **changes)

    return make


@pytest.fixture
def make_instruction():
    """`make_instruction(mnemonic, type_, size_bits, clamp=False, omod=0, encoding="VOP3")` returns an instruction with
    a result of that type.
    """

    def make(mnemonic, type_, size_bits, clamp=False, omod=0, encoding="VOP3"):
        target = Operand("vgpr", 0, size_bits, type_, "def", "vdst")
        return Instruction(mnemonic, encoding, 0, 8, b"", (target,), {}, clamp=clamp, omod=omod)

    return make


def decode(form, bits):
    """Return a float as a Fraction, or "nan", "+inf", "-inf". The sign of a zero is in `bits`."""
    size, fraction = SHAPES[form]
    field, rest = bits >> fraction & (1 << size - 1 - fraction) - 1, bits & (1 << fraction) - 1
    sign = -1 if bits >> size - 1 else 1
    top = (1 << size - 1 - fraction) - 1
    if field == top:
        return "nan" if rest else ("+inf" if sign > 0 else "-inf")
    bias = top >> 1
    if field == 0:
        return sign * Fraction(rest, 1 << fraction) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(rest, 1 << fraction)) * Fraction(2) ** (field - bias)


def encode(form, value, mode=NEAREST, negative_zero=False):
    """Round a Fraction to a float's bits by definition: compare its two neighbours."""
    size, fraction = SHAPES[form]
    sign = 1 << size - 1
    if value == 0:
        return sign if negative_zero else 0
    # Infinity.
    top = ((1 << size - 1 - fraction) - 1) << fraction
    magnitude = abs(value)
    # Magnitudes have the order of their bits: search the largest one not above.
    low, high = 0, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if decode(form, middle) <= magnitude else (low, middle)
    below = decode(form, low)
    # One step above the exponent range: infinity counts as this number in rounding.
    limit = Fraction(2) ** (1 << size - 2 - fraction)
    above = limit if low + 1 == top else decode(form, low + 1)
    grows = {
        NEAREST: magnitude - below > above - magnitude or (magnitude - below == above - magnitude and low & 1),
        UP: value > 0,
        DOWN: value < 0,
        ZERO: False,
    }[mode]
    bits = low + 1 if magnitude != below and grows else low
    return bits | (sign if value < 0 else 0)


def flush(form, bits):
    """Return the bits with a denormal made zero."""
    size, fraction = SHAPES[form]
    is_small = not bits >> fraction & (1 << size - 1 - fraction) - 1
    return bits & 1 << size - 1 if is_small else bits


def quiet(form, bits):
    """Return the bits with a NaN made quiet."""
    return bits | 1 << SHAPES[form][1] - 1


def samples(form, count, seed):
    """Return `count` bit patterns. Half of them are special; the others have any exponent, or are near one another."""
    size, fraction = SHAPES[form]
    rng = random.Random(f"{form} {seed}")
    one = decode_bits_of_one(form)
    top = ((1 << size - 1 - fraction) - 1) << fraction
    special = [0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, one - 1, one, one + 1, one + (1 << fraction - 1), top - 1, top,
               top + 1, top | 1 << fraction - 1, top | (1 << fraction) - 1, one + (1 << fraction), one + (5 << fraction - 2)]  # fmt: skip
    special += [bits | 1 << size - 1 for bits in special]
    found = []
    for _ in range(count):
        match rng.randrange(4):
            case 0 | 1:
                found.append(rng.choice(special))
            case 2:
                found.append(rng.getrandbits(size))
            case _:
                found.append(
                    (one & ~((1 << fraction) - 1)) + (rng.randrange(-3, 4) << fraction)
                    ^ rng.getrandbits(fraction)
                    ^ rng.getrandbits(1) << size - 1
                )
    return found


def decode_bits_of_one(form):
    """Return the bits of 1.0."""
    size, fraction = SHAPES[form]
    return ((1 << size - 2 - fraction) - 1) << fraction


def invalid(form):
    """Return the NaN of invalid operations. In the document's examples of f32 it is 0xffc00000."""
    size, fraction = SHAPES[form]
    return (1 << size) - (1 << fraction - 1)


@pytest.fixture
def exact():
    """Floats by their definition."""
    return SimpleNamespace(
        decode=decode,
        encode=encode,
        flush=flush,
        quiet=quiet,
        samples=samples,
        one=decode_bits_of_one,
        invalid=invalid,
        SHAPES=SHAPES,
    )
