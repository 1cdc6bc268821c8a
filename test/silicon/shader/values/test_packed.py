"""Packed halves, dot products and mixed multiply-adds of the interpreter's ALU compared with exact integers and
fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ringup.silicon.shader.amd.decoding.decode import decode
from ringup.silicon.shader.common.state import MODE, WaveState

LANES = 32
# MODE: denormals kept everywhere, and dx10_clamp.
KEPT, CLAMP_NAN = 0xF0, 0x100
HALVES = [
    0,
    0x8000,
    1,
    0x83FF,
    0x0400,
    0x3C00,
    0xBC00,
    0x3800,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E01,
    0xFE00,
    0x3555,
    0x4248,
]
BRAINS = [0, 0x8000, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC1, 0x3EAB, 0x4049, 0xC2FE, 0x2F80, 0x5F12]
SINGLES = [0, 0x8000_0000, 0x3F80_0000, 0xBF80_0001, 0x7F7F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7FC0_1000, 0x3380_0000, 0x0080_0000,
           0x477F_EFFF, 0x3880_0000]  # fmt: skip
# Bits of the significand, exponent of the last bit of denormals, and exponent of the first number that is too large.
F16, BF16, F32 = (11, -24, 16), (8, -133, 128), (24, -149, 128)


def nearest(value, form):
    """Return the float of a format nearest to a fraction, ties to even."""
    bits, lowest, limit = form
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    step = max(exponent - bits + 1, lowest)
    count = round(value / Fraction(2) ** step)
    found = math.inf if abs(count) * Fraction(2) ** step >= Fraction(2) ** limit else math.ldexp(abs(count), step)
    return -found if value < 0 else found


def fused(a, b, c, form):
    """Return a * b + c rounded once. Infinities, NaNs and signs of zeros are the host's."""
    if math.isfinite(a) and math.isfinite(b) and math.isfinite(c):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact:
            return nearest(exact, form)
        return math.copysign(1, a) * math.copysign(1, b) * 0.0 + (c if c == 0 else 0.0)
    if math.isfinite(a) and math.isfinite(b):
        return c
    return a * b + c


def f16(bits):
    return float(np.uint16(bits).view(np.float16))


def bf16(bits):
    return float(np.uint16(bits).view(ml_dtypes.bfloat16))


def f32(bits):
    return float(np.uint32(bits).view(np.float32))


def is_same(got, wanted):
    return (math.isnan(got) and math.isnan(wanted)) or (
        got == wanted and math.copysign(1, got) == math.copysign(1, wanted)
    )


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


@pytest.fixture(scope="module")
def run(assemble, interpreted):
    """`run(text, registers, mode)` executes one instruction with `registers` in v0 and up; it returns v0's new
    lanes.
    """

    def execute(text, registers, mode=KEPT | CLAMP_NAN):
        wave = WaveState(LANES, 8)
        wave.sgprs[126] = 0xFFFF_FFFF
        wave.words[MODE] = mode
        for number, lanes in enumerate(registers):
            wave.vgprs[number] = lanes
        (call,) = interpreted([decode(assemble(text))], LANES, 8)
        call(wave)
        return wave.vgprs[0].tolist()

    return execute


def lanes_of(rng, special):
    """Return dwords. Half of them are random, half consist of special values (of 16 bits, two of them)."""
    random = rng.integers(0, 1 << 32, LANES, dtype=np.uint64)
    picks = rng.choice(special, (2, LANES)).astype(np.uint64)
    chosen = picks[0] if max(special) > 0xFFFF else picks[0] | picks[1] << np.uint64(16)
    return np.where(rng.random(LANES) < 0.5, random, chosen).astype(np.uint32)


def registers_of(seed, *special):
    rng = np.random.default_rng(seed)
    return [lanes_of(rng, one) for one in special]


def option(name, flags):
    return f" {name}:[{','.join(str(int(one)) for one in flags)}]"


def half_of(value, is_high):
    return value >> 16 if is_high else value & 0xFFFF


# op_sel, op_sel_hi, neg_lo, neg_hi of three sources.
SELECTIONS = [((0, 0, 0), (1, 1, 1), (0, 0, 0), (0, 0, 0)), ((1, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1)),
              ((0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0))]  # fmt: skip

INTEGERS = {
    "v_pk_add": lambda a, b: a + b,
    "v_pk_sub": lambda a, b: a - b,
    "v_pk_mad": lambda a, b, c: a * b + c,
    "v_pk_min": min,
    "v_pk_max": max,
}


def check_integers(run, mnemonic, count, compute, is_signed, selection, clamp):
    sel, sel_hi, _, _ = (one[:count] for one in selection)
    text = f"{mnemonic} v0, {', '.join(f'v{i + 1}' for i in range(count))}{option('op_sel', sel)}{option('op_sel_hi', sel_hi)}"
    registers = registers_of(3, *[[0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x0010, 0x000F, 0x1234]] * 4)
    got = run(text + (" clamp" if clamp else ""), registers)
    for lane in range(LANES):
        wanted = 0
        for place, chosen in ((0, sel), (16, sel_hi)):
            values = [half_of(int(registers[i + 1][lane]), chosen[i]) for i in range(count)]
            result = compute(*(signed(one, 16) if is_signed else one for one in values))
            if clamp:
                low = -0x8000 if is_signed else 0
                result = min(max(result, low), low + 0xFFFF)
            wanted |= (result & 0xFFFF) << place
        assert got[lane] == wanted, (text, lane)


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("letter", "iu")
@pytest.mark.parametrize("name", INTEGERS)
def test_packed_integers_wrap_or_with_clamp_saturate(name, letter, clamp, run):
    for selection in SELECTIONS:
        check_integers(
            run, f"{name}_{letter}16", 3 if name == "v_pk_mad" else 2, INTEGERS[name], letter == "i", selection, clamp
        )


@pytest.mark.parametrize(
    ("mnemonic", "compute", "is_signed"),
    [
        ("v_pk_mul_lo_u16", lambda a, b: a * b, False),
        ("v_pk_lshlrev_b16", lambda a, b: b << (a & 15), False),
        ("v_pk_lshrrev_b16", lambda a, b: b >> (a & 15), False),
        ("v_pk_ashrrev_i16", lambda a, b: b >> (a & 15), True),
    ],
)
def test_packed_products_and_shifts_keep_their_low_half(mnemonic, compute, is_signed, run):
    for selection in SELECTIONS:
        check_integers(run, mnemonic, 2, compute, is_signed, selection, False)


def smaller(a, b):
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return a if (a, math.copysign(1, a)) < (b, math.copysign(1, b)) else b


FLOATS = {
    "v_pk_add_f16": (2, lambda a, b: fused(a, 1.0, b, F16)),
    "v_pk_mul_f16": (2, lambda a, b: fused(a, b, math.copysign(0.0, -1), F16) if a * b else a * b),
    "v_pk_fma_f16": (3, lambda a, b, c: fused(a, b, c, F16)),
    "v_pk_min_f16": (2, smaller),
    "v_pk_max_f16": (2, lambda a, b: -smaller(-a, -b)),
}


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("mnemonic", FLOATS)
def test_packed_floats_are_rounded_once_half_by_half(mnemonic, selection, clamp, run):
    count, compute = FLOATS[mnemonic]
    sel, sel_hi, neg, neg_hi = (one[:count] for one in selection)
    text = f"{mnemonic} v0, {', '.join(f'v{i + 1}' for i in range(count))}" + "".join(
        option(name, flags)
        for name, flags in (("op_sel", sel), ("op_sel_hi", sel_hi), ("neg_lo", neg), ("neg_hi", neg_hi))
    )
    registers = registers_of(5, *[HALVES] * 4)
    got = run(text + (" clamp" if clamp else ""), registers)
    for lane in range(LANES):
        for place, chosen, negated in ((0, sel, neg), (16, sel_hi, neg_hi)):
            values = [
                f16(half_of(int(registers[i + 1][lane]), chosen[i]) ^ (0x8000 if negated[i] else 0))
                for i in range(count)
            ]
            wanted = compute(*values)
            if clamp:
                wanted = 0.0 if math.isnan(wanted) or wanted <= 0 else min(wanted, 1.0)
            assert is_same(f16(got[lane] >> place & 0xFFFF), wanted), (text, lane, values)


def test_packed_accumulation_reads_its_destination(run):
    registers = registers_of(6, *[HALVES] * 3)
    got = run("v_pk_fmac_f16 v0, v1, v2", registers)
    for lane in range(LANES):
        for place in (0, 16):
            d, a, b = (f16(int(one[lane]) >> place & 0xFFFF) for one in registers)
            assert is_same(f16(got[lane] >> place & 0xFFFF), fused(a, b, d, F16))


def test_an_inline_constant_fills_the_low_half_alone_but_both_of_an_accumulation(run):
    ones = np.full(LANES, 0x3C00_4000, np.uint32)  # (1, 2)
    zero = np.zeros(LANES, np.uint32)
    assert run("v_pk_add_f16 v0, v1, 1.0", [zero, ones])[0] == 0x3C00_4200
    assert run("v_pk_add_f16 v0, v1, 1.0 op_sel_hi:[1,0]", [zero, ones])[0] == 0x4000_4200
    # v_pk_fmac_f16 v0, 2.0, v1; LLVM writes 2.0 as a literal
    assert run(".long 0x780002f4", [zero, ones])[0] == 0x4000_4400


# ---- dot products


def total_of(pairs, addend, form, product_form):
    """Add products one after another, then the addend. Each step rounds."""
    products = [fused(a, b, math.copysign(0.0, -1), product_form) if a * b else a * b for a, b in pairs]
    return fused(fused(products[0], 1.0, products[1], form), 1.0, addend, form)


def normal(lanes, kind):
    """Replace bf16 denormals by zeros, because dot products do not keep them."""
    if kind != "bf16":
        return lanes
    halves = lanes.view(np.uint16)
    return np.where((halves & 0x7F80) == 0, halves & 0x8000, halves).astype(np.uint16).view(np.uint32)


def test_brain_floats_have_no_denormals_in_dot_products(run):
    registers = [np.full(LANES, one, np.uint32) for one in (0, 0x007F_007F, 0x7F00_7F00, 0)]
    assert run("v_dot2_f32_bf16 v0, v1, v2, v3", registers)[0] == 0


@pytest.mark.parametrize(
    ("kind", "special", "value", "form"), [("f16", HALVES, f16, F16), ("bf16", BRAINS, bf16, BF16)]
)
def test_dot_products_in_their_own_format_write_one_half(kind, special, value, form, run):
    registers = registers_of(9, *[special] * 4)
    registers = [normal(one, kind) for one in registers]
    got = run(f"v_dot2_{kind}_{kind} v0, v1, v2, v3 op_sel:[0,0,1,1]", registers)
    for lane in range(LANES):
        old, a, b, c = (int(one[lane]) for one in registers)
        pairs = [(value(a >> place & 0xFFFF), value(b >> place & 0xFFFF)) for place in (0, 16)]
        wanted = total_of(pairs, value(c >> 16), form, form)
        if kind == "bf16" and abs(wanted) < 2.0**-126:
            # It was flushed at some step.
            continue
        assert is_same(value(got[lane] >> 16), wanted), (lane, pairs)
        assert got[lane] & 0xFFFF == old & 0xFFFF


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("neg", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(("mnemonic", "bits"), [("v_dot4_i32_iu8", 8), ("v_dot8_i32_iu4", 4)])
def test_neg_says_which_source_of_an_integer_dot_product_is_signed(mnemonic, bits, neg, clamp, run):
    registers = registers_of(11, *[[0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x8888_8888, 0x7FFF_FF00]] * 4)
    got = run(f"{mnemonic} v0, v1, v2, v3{option('neg_lo', (*neg, 0))}" + (" clamp" if clamp else ""), registers)
    for lane in range(LANES):
        _, a, b, c = (int(one[lane]) for one in registers)
        total = signed(c, 32)
        for place in range(0, 32, bits):
            x, y = (one >> place & (1 << bits) - 1 for one in (a, b))
            total += (signed(x, bits) if neg[0] else x) * (signed(y, bits) if neg[1] else y)
        if clamp:
            total = min(max(total, -(1 << 31)), (1 << 31) - 1)
        assert got[lane] == total & 0xFFFF_FFFF


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize(("mnemonic", "bits"), [("v_dot4_u32_u8", 8), ("v_dot8_u32_u4", 4)])
def test_unsigned_dot_products(mnemonic, bits, clamp, run):
    registers = registers_of(12, *[[0xFFFF_FFFF, 0x8000_0000, 0xFFFF_FF00, 0x0F0F_0F0F]] * 4)
    got = run(f"{mnemonic} v0, v1, v2, v3" + (" clamp" if clamp else ""), registers)
    for lane in range(LANES):
        _, a, b, total = (int(one[lane]) for one in registers)
        mask = (1 << bits) - 1
        total += sum((a >> place & mask) * (b >> place & mask) for place in range(0, 32, bits))
        assert got[lane] == (min(total, 0xFFFF_FFFF) if clamp else total & 0xFFFF_FFFF)


# ---- mixed precision

MIXES = [  # op_sel, op_sel_hi, neg, abs
    ((0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)), ((1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0)), ((1, 0, 1), (1, 0, 1), (1, 0, 1), (0, 1, 1)),
    ((0, 1, 1), (1, 1, 1), (0, 0, 1), (1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("mnemonic", ["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"])
def test_mixed_sources_are_fused_in_f32(mnemonic, mix, clamp, run):
    sel, sel_hi, neg, magnitude = mix
    names = [f"{'-' if neg[i] else ''}{f'|v{i + 1}|' if magnitude[i] else f'v{i + 1}'}" for i in range(3)]
    text = f"{mnemonic} v0, {', '.join(names)}{option('op_sel', sel)}{option('op_sel_hi', sel_hi)}"
    registers = registers_of(13, *[SINGLES if not one else HALVES for one in (0, *sel_hi)])
    got = run(text + (" clamp" if clamp else ""), registers)
    for lane in range(LANES):
        values = []
        for i in range(3):
            bits = int(registers[i + 1][lane])
            value = f16(half_of(bits, sel[i])) if sel_hi[i] else f32(bits)
            value = abs(value) if magnitude[i] else value
            values.append(-value if neg[i] else value)
        wanted = fused(*values, F32)
        if mnemonic != "v_fma_mix_f32":
            wanted = fused(wanted, 1.0, wanted * 0.0, F16) if math.isfinite(wanted) and wanted else wanted
        if clamp:
            wanted = 0.0 if math.isnan(wanted) or wanted <= 0 else min(wanted, 1.0)
        old = int(registers[0][lane])
        if mnemonic == "v_fma_mix_f32":
            assert is_same(f32(got[lane]), wanted), (text, lane, values)
            continue
        place = 16 if mnemonic == "v_fma_mixhi_f16" else 0
        assert is_same(f16(got[lane] >> place & 0xFFFF), wanted), (text, lane, values)
        assert (got[lane] ^ old) & 0xFFFF << 16 - place == 0
