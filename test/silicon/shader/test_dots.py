"""Dot products that add to an f32, on both engines, compared with integers of any size and with measurements on
cards.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.common.state import MODE, WaveState

LANES, VGPRS, NONE = 32, 8, -2000
# S2, the factors of both products, and the result. Source: github.com/ROCm/rocm-systems, issue 12056. If all signs are
# positive, the result is exact. If S2 has the other sign, each product is one unit of 2**-19 too far from zero. For 55,
# the two units make one step of f32 (worked out by hand).
MEASURED = [
    (1.0, (3.0, 8.0), (8.0, 4.0), 0x4264_0000),
    (-1.0, (3.0, 8.0), (8.0, 4.0), 0x425C_0001),
]
SPECIAL = {
    "f16": [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0xFD00],
    "bf16": [0, 0x8000, 1, 0x807F, 0x0080, 0x8080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC1, 0xFF81],
}
SINGLES = [
    0,
    1 << 31,
    1,
    0x8000_0001,
    0x0080_0000,
    0x8080_0000,
    0x3F80_0000,
    0xBF80_0001,
    0x7F7F_FFFF,
    0x7F80_0000,
    0xFF80_0000,
    0x7F80_0001,
]


def opened(bits, fraction, bias, keeps):
    """Return (whole number, its exponent, the exponent that the bits name, sign, is infinite, is NaN)."""
    size = 31 if fraction == 23 else 15
    field, low = (bits & (1 << size) - 1) >> fraction, bits & (1 << fraction) - 1
    whole = low | 1 << fraction if field else low * keeps
    is_special = field == (1 << size - fraction) - 1
    place = max(field, 1) - bias
    return whole, place - fraction, place, bits >> size & 1, is_special and not low, is_special and low > 0


def special(pairs, addend, bits):
    """Return the result of NaNs and infinities; None if there are none."""
    if any(one[5] for pair in pairs for one in pair):
        return 0xFFC0_0A3D
    signs = {a[3] ^ b[3] for a, b in pairs if a[4] or b[4]}
    if len(signs) == 2 or any((a[4] and not b[0]) or (b[4] and not a[0]) for a, b in pairs):
        return 0xFFC0_0000
    if addend[5]:
        return bits | 0x0040_0000
    signs |= {addend[3]} if addend[4] else set()
    if not signs:
        return None
    return 0xFFC0_0000 if len(signs) == 2 else 0x7F80_0000 | max(signs) << 31


def wanted(kind, a, b, c):
    """Return the f32 bits of the sum of two products of halves and `c`."""
    shape = (10, 15, True) if kind == "f16" else (7, 127, False)
    pairs = [[opened(one >> place & 0xFFFF, *shape) for one in (a, b)] for place in (0, 16)]
    addend = opened(c, 23, 127, False)
    found = special(pairs, addend, c)
    if found is not None:
        return found
    products = [(x[0] * y[0], x[1] + y[1], x[2] + y[2], x[3] ^ y[3]) for x, y in pairs]
    terms = [(addend[0], addend[1], NONE, addend[3]), *products]
    if not any(one[0] for one in terms):
        return 0
    unit = max(
        bound for number, low, place, _ in terms if number for bound in (low + number.bit_length() - 27, place - 24)
    )
    total = 0
    for number, low, _, sign in terms:
        size = int(Fraction(number) * Fraction(2) ** (low - unit))
        total += size if sign == addend[3] else -size - 1
    return rounded(abs(total), unit, (total < 0) != bool(addend[3]))


def rounded(number, unit, is_negative):
    """Round number * 2**unit to 24 bits, ties to even. A result below the normal numbers is +0."""
    if not number:
        return 0
    length = number.bit_length()
    size = round(Fraction(number) * Fraction(2) ** (24 - length))
    exponent = unit + length - 1
    if size == 1 << 24:
        size, exponent = 1 << 23, exponent + 1
    if exponent < -126:
        return 0
    magnitude = 0x7F80_0000 if exponent > 127 else exponent + 127 << 23 | size & 0x7F_FFFF
    return magnitude | is_negative << 31


@pytest.fixture(scope="module", params=["interpreter", "translator"])
def run(request, assemble, interpreted, translated):
    """`run(text, registers, mode)` executes one instruction with `registers` in v0 and up; it returns v0's new
    lanes.
    """
    built = {}

    def execute(text, registers, mode=0xF0):
        key = text, mode
        if key not in built:
            found = [decode(assemble(text))]
            build = interpreted if request.param == "interpreter" else translated
            built[key] = build(found, LANES, VGPRS, *([mode] if build is translated else []))[0]
        wave = WaveState(LANES, VGPRS)
        wave.sgprs[126] = 0xFFFF_FFFF
        wave.words[MODE] = mode
        for number, lanes in enumerate(registers):
            wave.vgprs[number] = lanes
        built[key](wave)
        return wave.vgprs[0].tolist()

    return execute


def lanes_of(rng, kind):
    """Return the registers old, a, b, c: in turn random bits, numbers near one, and edge values."""
    edges = SPECIAL[kind]
    one = 0x3C00 if kind == "f16" else 0x3F80

    def pair():
        halves = rng.integers(0, 1 << 16, (3, 2, LANES))
        halves[1] = rng.integers(one - 0x180, one + 0x180, (2, LANES)) | rng.integers(0, 2, (2, LANES)) << 15
        halves[2] = rng.choice(edges, (2, LANES))
        return (halves[:, 0] | halves[:, 1] << 16).astype(np.uint32)

    near = (rng.normal(size=LANES) * 4).astype(np.float32).view(np.uint32)
    singles = [rng.integers(0, 1 << 32, LANES, dtype=np.uint32), near, rng.choice(np.array(SINGLES, np.uint32), LANES)]
    a, b = pair(), pair()
    chosen = ((0, 0, 0), (1, 1, 1), (2, 2, 2), (1, 2, 1), (1, 1, 2), (2, 1, 0))
    return [[np.full(LANES, 9, np.uint32), a[i], b[j], singles[k]] for i, j, k in chosen]


@pytest.mark.parametrize("kind", SPECIAL)
def test_three_terms_are_added_at_once(kind, run):
    rng = np.random.default_rng(21)
    count = 0
    for _ in range(20):
        for registers in lanes_of(rng, kind):
            got = run(f"v_dot2_f32_{kind} v0, v1, v2, v3", registers)
            sums = [wanted(kind, *(int(one[lane]) for one in registers[1:])) for lane in range(LANES)]
            assert [hex(one) for one in got] == [hex(one) for one in sums]
            count += sum(one not in (0, 0xFFC0_0A3D, 0xFFC0_0000) for one in sums)
    assert count > 1000


def test_the_measured_sums(run):
    for addend, first, second, result in MEASURED:
        a, b = (np.array(one, np.float16).view(np.uint16).astype(np.uint32) for one in zip(first, second, strict=True))
        registers = [0, a[0] | a[1] << 16, b[0] | b[1] << 16, np.float32(addend).view(np.uint32)]
        got = run("v_dot2_f32_f16 v0, v1, v2, v3", [np.full(LANES, one, np.uint32) for one in registers])
        assert set(got) == {result}


@pytest.mark.parametrize("mode", [0, 0xFF, 0x3F])
def test_the_short_encodings_add_as_the_long_one_does_in_any_mode(mode, run):
    rng = np.random.default_rng(22)
    for _, a, b, c in lanes_of(rng, "f16"):
        long = run("v_dot2_f32_f16 v0, v1, v2, v3", [c, a, b, c])
        assert run("v_dot2acc_f32_f16 v0, v1, v2", [c, a, b], mode) == long
        assert run("v_dot2_f32_f16 v0, v1, v2, v0", [c, a, b], mode) == long


def test_the_halves_and_their_signs_are_chosen(run):
    rng = np.random.default_rng(23)
    how = " op_sel:[1,0,0] op_sel_hi:[0,1,0] neg_lo:[0,1,1] neg_hi:[1,0,1]"
    for kind in SPECIAL:
        for registers in lanes_of(rng, kind):
            got = run(f"v_dot2_f32_{kind} v0, v1, v2, v3{how}", registers)
            for lane in range(LANES):
                _, a, b, c = (int(one[lane]) for one in registers)
                a = (a >> 16 | a << 16) & 0xFFFF_FFFF ^ 0x8000_0000
                assert got[lane] == wanted(kind, a, b ^ 0x8000, c | 1 << 31), lane
