"""Float sums, products and fused multiply-adds compared with fractions, in every rounding and denormal mode."""

import struct
from fractions import Fraction

import pytest

FORMS = ("f16", "f32", "f64")
INFINITE = ("+inf", "-inf")


def sum_of(a, b, sign_a, sign_b, mode):
    """Return a + b as (value, whether a zero is negative); None if the sum is invalid."""
    if a in INFINITE or b in INFINITE:
        if a in INFINITE and b in INFINITE and a != b:
            return None
        return (a if a in INFINITE else b), False
    negative = sign_a if sign_a == sign_b else mode == 2
    return a + b, negative


def product_of(a, b, sign_a, sign_b):
    negative = sign_a != sign_b
    if a in INFINITE or b in INFINITE:
        return None if a == 0 or b == 0 else (("-inf" if negative else "+inf"), negative)
    return a * b, negative


def judged(exact, form, operation, sources, mode, denormals):
    """Return the bits that an operation must give."""
    size, _ = exact.SHAPES[form]
    if not denormals & 1:
        sources = [exact.flush(form, one) for one in sources]
    if operation == "subrev":
        sources = sources[::-1]
    for one in sources:
        if exact.decode(form, one) == "nan":
            return exact.quiet(form, one)
    values = [exact.decode(form, one) for one in sources]
    signs = [bool(one >> size - 1) for one in sources]
    if operation in ("sub", "subrev"):
        second = values[1]
        values[1] = {"+inf": "-inf", "-inf": "+inf"}[second] if second in INFINITE else -second
        signs[1] = not signs[1]
    if operation == "mul":
        result = product_of(*values, *signs)
    elif operation == "fma":
        product = product_of(values[0], values[1], signs[0], signs[1])
        result = None if product is None else sum_of(product[0], values[2], product[1], signs[2], mode)
    else:
        result = sum_of(*values, *signs, mode)
    if result is None:
        return exact.invalid(form)
    value, negative = result
    if value in INFINITE:
        return exact.invalid(form) & ~(1 << exact.SHAPES[form][1] - 1) & ~(0 if value == "-inf" else 1 << size - 1)
    bits = exact.encode(form, value, mode, negative)
    return bits if denormals & 2 else exact.flush(form, bits)


def settings(form, mode, denormals):
    kind = "f32" if form == "f32" else "f16_f64"
    return {f"round_{kind}": mode, f"denorm_{kind}": denormals}


CASES = [
    (form, operation)
    for form in FORMS
    for operation in ("add", "sub", "subrev", "mul", "fma")
    if form != "f64" or not operation.startswith("sub")
]


@pytest.mark.parametrize(("form", "operation"), CASES)
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.sweep(26)
def test_results_are_rounded_once(alu, exact, form, mode, operation):
    count = 60 if form == "f64" else 150
    columns = [exact.samples(form, count, f"{operation} {i}") for i in range(3 if operation == "fma" else 2)]
    for denormals in (3, 0, 1, 2):
        bits = 64 if form == "f64" else 32
        found = alu(f"v_{operation}_{form}", *columns, bits=bits, **settings(form, mode, denormals))
        wanted = [judged(exact, form, operation, list(row), mode, denormals) for row in zip(*columns, strict=True)]
        rows = zip(zip(*columns, strict=True), found.tolist(), wanted, strict=True)
        wrong = [([hex(x) for x in row], hex(a), hex(b)) for row, a, b in rows if a != b]
        assert not wrong, wrong[:3]


@pytest.mark.parametrize("form", FORMS)
def test_a_fused_multiply_add_keeps_what_cancels(alu, exact, form):
    # (1 + u)(1 - u) - 1 = -u * u, which two roundings lose.
    one, (_, fraction) = exact.one(form), exact.SHAPES[form]
    (found,) = alu(
        f"v_fma_{form}", [one + 1], [one - 2], [one | 1 << exact.SHAPES[form][0] - 1], bits=64 if form == "f64" else 32
    )
    assert found == exact.encode(form, -(Fraction(1, 1 << 2 * fraction)))


def test_a_sum_is_not_rounded_twice(alu):
    one, above = 0x3F80_0000, 0x3F80_0001
    # 2**-24 * (1 + 2**-23) squared, and 1. In f64 the last bit is lost, and a tie remains that rounds to 1.
    assert alu("v_fma_f32", [0x3980_0001], [0x3980_0000], [one]).tolist() == [above]
    # A little more than half an ulp.
    assert alu("v_fma_f32", [0x3380_0001], [one], [one]).tolist() == [above]
    tiny = 0x1780_0000  # 2**-80
    assert alu("v_fma_f32", [tiny], [tiny], [one], round_f32=1).tolist() == [above]
    assert alu("v_fma_f32", [tiny], [tiny], [one], round_f32=2).tolist() == [one]


def test_accumulating_forms_take_the_destination_as_addend(alu):
    two, three, five = 0x4000_0000, 0x4040_0000, 0x40A0_0000
    assert alu("v_fmac_f32", [five], [two], [three]).tolist() == [0x4130_0000]  # 2 * 3 + 5 = 11
    assert alu("v_fmamk_f32", [two], [three], [five]).tolist() == [0x4130_0000]  # src0 * K + src1
    assert alu("v_fmaak_f32", [two], [three], [five]).tolist() == [0x4130_0000]  # src0 * src1 + K
    assert alu("v_subrev_f32", [two], [five]).tolist() == [0x4040_0000]


def test_dx9_products_with_zero_are_zero(alu):
    infinity, nan, one = 0x7F80_0000, 0x7FC0_0000, 0x3F80_0000
    assert alu("v_mul_dx9_zero_f32", [0, 0x8000_0000, nan, one], [infinity, nan, 0, infinity]).tolist() == [
        0,
        0,
        0,
        infinity,
    ]
    assert alu("v_fma_dx9_zero_f32", [0, one], [nan, one], [one, one]).tolist() == [one, 0x4000_0000]
    assert alu("v_fmac_dx9_zero_f32", [one, one], [infinity, one], [0, one]).tolist() == [one, 0x4000_0000]


@pytest.mark.parametrize("form", ["f32", "f64"])
def test_division_as_compilers_write_it_is_correctly_rounded(alu, exact, form):
    bits, small = (64, 30) if form == "f64" else (32, 120)
    kind = {"bits": bits} | settings(form, 0, 3)
    tops, bottoms = exact.samples(form, small, "top"), exact.samples(form, small, "bottom")

    def run(name, *sources):
        return alu(f"v_{name}_{form}", *sources, **kind)

    sign = 1 << bits - 1
    bottom, _ = run("div_scale", bottoms, bottoms, tops)
    top, needs_scale = run("div_scale", tops, bottoms, tops)
    minus = bottom ^ bottom.dtype.type(sign)
    one = [exact.one(form)] * small
    guess = run("rcp", bottom)
    for _ in range(2):
        guess = run("fma", run("fma", minus, guess, one), guess, guess)
    quotient = run("mul", top, guess)
    if form == "f32":
        quotient = run("fma", run("fma", minus, quotient, top), guess, quotient)
    error = run("fma", minus, quotient, top)
    result = run("div_fixup", run("div_fmas", error, guess, quotient, needs_scale), bottoms, tops)
    for x, y, found in zip(tops, bottoms, result.tolist(), strict=True):
        top_value, bottom_value = exact.decode(form, x), exact.decode(form, y)
        if isinstance(top_value, str) or isinstance(bottom_value, str) or bottom_value == 0:
            continue
        wanted = exact.encode(form, top_value / bottom_value, 0, (x ^ y) >> bits - 1)
        assert found == wanted, (hex(x), hex(y), hex(found), hex(wanted))


@pytest.mark.parametrize(("mnemonic", "nan", "infinity", "one", "bits"), [
    ("v_div_fixup_f16", 0xFE00, 0x7C00, 0x3C00, 32),
    ("v_div_fixup_f32", 0xFFC0_0000, 0x7F80_0000, 0x3F80_0000, 32),
    ("v_div_fixup_f64", 0xFFF8 << 48, 0x7FF0 << 48, 0x3FF0 << 48, 64),
])  # fmt: skip
def test_fixup_of_special_quotients(alu, mnemonic, nan, infinity, one, bits):
    sign = {"v_div_fixup_f16": 1 << 15, "v_div_fixup_f32": 1 << 31, "v_div_fixup_f64": 1 << 63}[mnemonic]
    # Quotient, denominator, numerator, result.
    rows = [
        (one, 0, 0, nan), (one, infinity, infinity, nan), (one, 0, one | sign, infinity | sign), (one, one, infinity, infinity),
        (one, infinity | sign, one, sign), (one, one | sign, 0, sign), (one, one, one | sign, one | sign),
        (one, one, infinity + 1, infinity + 1 | nan & ~sign & ~infinity),
    ]  # fmt: skip
    found = alu(mnemonic, *(list(column) for column in list(zip(*rows, strict=True))[:3]), bits=bits)
    assert found.tolist() == [row[3] for row in rows]


def test_segments_of_two_over_pi_add_up(alu):
    # 2/pi = 0.6366197723675813430755350534900574481378385829618257949906…
    one = 0x3FF0_0000_0000_0000
    parts = [
        Fraction(struct.unpack("<d", struct.pack("<Q", int(alu("v_trig_preop_f64", [one], [i], bits=64)[0])))[0])
        for i in range(4)
    ]
    total = sum(parts)
    assert abs(total - Fraction("0.6366197723675813430755350534900574481378385829618257949906")) < Fraction(1, 10**57)
    assert parts[0] > parts[1] > parts[2] > 0
