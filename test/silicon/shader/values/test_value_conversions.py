"""Conversions compared with fractions, comparisons compared with Python's numbers."""

import math
import operator
from fractions import Fraction

import numpy as np
import pytest

FORMS = ("f16", "f32", "f64")
ALL_KEPT = {"denorm_f32": 3, "denorm_f16_f64": 3}


def bits_of(form):
    return 64 if form == "f64" else 32


def limits(type_):
    bits = int(type_[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type_[0] == "i" else (0, (1 << bits) - 1)


def integer(value, type_, integral=math.trunc):
    """Return the integer of a float, which is a Fraction, "nan", "+inf" or "-inf"."""
    low, high = limits(type_)
    special = {"nan": 0, "+inf": high, "-inf": low}
    result = special[value] if value in special else min(max(integral(value), low), high)
    return result & (1 << int(type_[1:])) - 1


@pytest.mark.parametrize(("mnemonic", "form", "type_", "integral"), [
    ("v_cvt_i32_f64", "f64", "i32", math.trunc), ("v_cvt_u32_f64", "f64", "u32", math.trunc), ("v_cvt_i32_f32", "f32", "i32", math.trunc),
    ("v_cvt_u32_f32", "f32", "u32", math.trunc), ("v_cvt_i16_f16", "f16", "i16", math.trunc), ("v_cvt_u16_f16", "f16", "u16", math.trunc),
    ("v_cvt_floor_i32_f32", "f32", "i32", math.floor), ("v_cvt_nearest_i32_f32", "f32", "i32", lambda one: math.floor(one + Fraction(1, 2))),
])  # fmt: skip
def test_floats_become_integers(alu, exact, mnemonic, form, type_, integral):
    one = exact.one(form)
    fraction = exact.SHAPES[form][1]
    # Values around the types' limits are included.
    values = exact.samples(form, 200, mnemonic) + [
        one + (exponent << fraction) + (i & 3) for i, exponent in enumerate(range(-2, 36))
    ]
    values = [one & (1 << exact.SHAPES[form][0]) - 1 for one in values]
    found = alu(mnemonic, values, bits=bits_of(form), **ALL_KEPT).tolist()
    assert found == [integer(exact.decode(form, one), type_, integral) for one in values]


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize(("mnemonic", "form", "type_"), [
    ("v_cvt_f64_i32", "f64", "i32"), ("v_cvt_f64_u32", "f64", "u32"), ("v_cvt_f32_i32", "f32", "i32"), ("v_cvt_f32_u32", "f32", "u32"),
    ("v_cvt_f16_i16", "f16", "i16"), ("v_cvt_f16_u16", "f16", "u16"),
])  # fmt: skip
def test_integers_become_floats(alu, exact, mnemonic, form, type_, mode):
    bits = int(type_[1:])
    values = [(i * 0x9E37_79B9 >> i % 29) & (1 << bits) - 1 for i in range(200)] + [
        0,
        1,
        (1 << bits) - 1,
        1 << bits - 1,
    ]
    numbers = [one - (1 << bits) if type_[0] == "i" and one >> bits - 1 else one for one in values]
    found = alu(mnemonic, values, round_f32=mode, round_f16_f64=mode).tolist()
    assert found == [exact.encode(form, Fraction(one), mode) for one in numbers]


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize(("to", "source"), [("f16", "f32"), ("f32", "f16"), ("f32", "f64"), ("f64", "f32")])
def test_floats_become_other_floats(alu, exact, to, source, mode):
    values = exact.samples(source, 200, f"{to} {mode}")
    # Numbers halfway between two of the narrow format are included.
    step = exact.SHAPES[source][1] - exact.SHAPES[to][1]
    if step > 0:
        values += [exact.one(source) - (i % 30 << exact.SHAPES[source][1]) + (i << step - 1) for i in range(60)]
    found = alu(
        f"v_cvt_{to}_{source}", values, bits=bits_of(source), round_f32=mode, round_f16_f64=mode, **ALL_KEPT
    ).tolist()
    for bits, got in zip(values, found, strict=True):
        value = exact.decode(source, bits)
        is_negative = bits >> exact.SHAPES[source][0] - 1
        if value == "nan":
            assert exact.decode(to, got) == "nan"
            # Quiet.
            assert got >> exact.SHAPES[to][1] - 1 & 1
            assert got >> exact.SHAPES[to][0] - 1 == is_negative
        elif isinstance(value, str):
            assert exact.decode(to, got) == value
        else:
            assert got == exact.encode(to, value, mode, is_negative), hex(bits)


def test_packed_halves_are_truncated_whatever_the_mode(alu, exact):
    a, b = exact.samples("f32", 200, "rtz a"), exact.samples("f32", 200, "rtz b")
    found = alu("v_cvt_pk_rtz_f16_f32", a, b, round_f16_f64=1, **ALL_KEPT).tolist()
    for low, high, got in zip(a, b, found, strict=True):
        for bits, half in ((low, got & 0xFFFF), (high, got >> 16)):
            value = exact.decode("f32", bits)
            if not isinstance(value, str):
                assert half == exact.encode("f16", value, 3, bits >> 31)
            else:
                assert exact.decode("f16", half) == value


NORMALISED = {
    "v_cvt_norm_i16_f16": ("f16", "i16"), "v_cvt_norm_u16_f16": ("f16", "u16"), "v_cvt_pk_norm_i16_f16": ("f16", "i16"),
    "v_cvt_pk_norm_u16_f16": ("f16", "u16"), "v_cvt_pk_norm_i16_f32": ("f32", "i16"), "v_cvt_pk_norm_u16_f32": ("f32", "u16"),
}  # fmt: skip


def normalised(value, type_):
    """Return round(clamp(value) * (2**15 - 1 or 2**16 - 1)), NaN 0."""
    low = -1 if type_ == "i16" else 0
    scale = limits(type_)[1]
    number = {"nan": 0, "+inf": 1, "-inf": low}[value] if isinstance(value, str) else min(max(value, low), 1)
    return round(Fraction(number) * scale) & 0xFFFF


@pytest.mark.parametrize("mnemonic", NORMALISED)
def test_normalised_integers(alu, exact, mnemonic):
    form, type_ = NORMALISED[mnemonic]
    columns = [exact.samples(form, 300, f"{mnemonic} {i}") for i in range(2 if "_pk_" in mnemonic else 1)]
    wanted = [
        sum(normalised(exact.decode(form, one), type_) << 16 * i for i, one in enumerate(row))
        for row in zip(*columns, strict=True)
    ]
    assert alu(mnemonic, *columns, **ALL_KEPT).tolist() == wanted


def test_pairs_of_saturated_integers(alu, exact):
    a, b = exact.samples("f32", 300, "pk a"), exact.samples("f32", 300, "pk b")
    for type_ in ("i16", "u16"):
        wanted = [
            integer(exact.decode("f32", x), type_) | integer(exact.decode("f32", y), type_) << 16
            for x, y in zip(a, b, strict=True)
        ]
        assert alu(f"v_cvt_pk_{type_}_f32", a, b, **ALL_KEPT).tolist() == wanted
    assert alu("v_cvt_pk_i16_i32", [0x7FFF, 0x8000, 0x8000_0000], [0xFFFF_FFFF, 0xFFFF_0000, 5]).tolist() == [
        0xFFFF_7FFF, 0x8000_7FFF, 0x0005_8000,
    ]  # fmt: skip
    assert alu("v_cvt_pk_u16_u32", [0xFFFF, 0x1_0000], [3, 0xFFFF_FFFF]).tolist() == [0x0003_FFFF, 0xFFFF_FFFF]
    assert alu("v_sat_pk_u8_i16", [0x0100_FFFF, 0x00FE_007F]).tolist() == [0xFF00, 0xFE7F]


def test_bytes(alu, exact):
    values = [0x0180_7FFF, 0xFF00_1234]
    for i in range(4):
        wanted = [exact.encode("f32", Fraction(one >> 8 * i & 0xFF)) for one in values]
        assert alu(f"v_cvt_f32_ubyte{i}", values).tolist() == wanted
    floats = [exact.encode("f32", Fraction(one)) for one in (-3, 0.75, 7.9, 255.5, 1e9)]
    found = alu("v_cvt_pk_u8_f32", [*floats, 0x7FC0_0000], [0, 1, 2, 3, 4, 5], [0xAABB_CCDD] * 6)
    assert found.tolist() == [0xAABB_CC00, 0xAABB_00DD, 0xAA07_CCDD, 0xFFBB_CCDD, 0xAABB_CCFF, 0xAABB_00DD]
    table = [
        0.0,
        0.0625,
        0.125,
        0.1875,
        0.25,
        0.3125,
        0.375,
        0.4375,
        -0.5,
        -0.4375,
        -0.375,
        -0.3125,
        -0.25,
        -0.1875,
        -0.125,
        -0.0625,
    ]
    assert alu("v_cvt_off_f32_i4", list(range(16))).tolist() == [exact.encode("f32", Fraction(one)) for one in table]
    assert alu("v_pack_b32_f16", [0x3C00], [0x8001]).tolist() == [0x8001_3C00]


COMPARES = {
    "lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "lg": lambda a, b: a < b or a > b,
    "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b, "nge": lambda a, b: not a >= b, "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b, "nlt": lambda a, b: not a < b, "neq": lambda a, b: a != b, "nlg": lambda a, b: not (a < b or a > b),
    "f": lambda a, b: False, "t": lambda a, b: True,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prefix", ["v_cmp", "v_cmpx"])
def test_float_comparisons(alu, exact, form, prefix):
    a, b = exact.samples(form, 300, "left"), exact.samples(form, 300, "right")
    b[::3] = a[::3]

    def number(bits):
        value = exact.decode(form, bits)
        return value if not isinstance(value, str) else float(value)

    for name, compare in COMPARES.items():
        found = alu(f"{prefix}_{name}_{form}", a, b, bits=bits_of(form), **ALL_KEPT).tolist()
        assert found == [compare(number(x), number(y)) for x, y in zip(a, b, strict=True)], name


def test_comparisons_flush_inputs_if_the_mode_says_so(alu):
    assert alu("v_cmp_eq_f32", [0x8000_0001], [0x0000_0002], denorm_f32=0).tolist() == [True]
    assert alu("v_cmp_eq_f32", [0x8000_0001], [0x0000_0002], denorm_f32=1).tolist() == [False]
    assert alu("v_cmp_lt_f16", [0x0000], [0x0001], denorm_f16_f64=2).tolist() == [False]


@pytest.mark.parametrize("type_", ["i16", "u16", "i32", "u32", "i64", "u64"])
def test_integer_comparisons(alu, type_):
    bits = int(type_[1:])
    a = [(i * 0x9E37_79B9_7F4A_7C15 >> 3) & (1 << bits) - 1 for i in range(100)] + [0, 1 << bits - 1, (1 << bits) - 1]
    b = [*a[5:], *a[:5]]
    b[::4] = a[::4]
    names = {
        "lt": operator.lt,
        "eq": operator.eq,
        "le": operator.le,
        "gt": operator.gt,
        "ne": operator.ne,
        "ge": operator.ge,
    }
    if bits != 16:
        names |= {"f": lambda x, y: False, "t": lambda x, y: True}
    typed = (lambda one: one - (1 << bits) if one >> bits - 1 else one) if type_[0] == "i" else (lambda one: one)
    for name, compare in names.items():
        wanted = [compare(typed(x), typed(y)) for x, y in zip(a, b, strict=True)]
        for prefix in ("v_cmp", "v_cmpx"):
            assert alu(f"{prefix}_{name}_{type_}", a, b, bits=64 if bits == 64 else 32).tolist() == wanted, name


@pytest.mark.parametrize(("form", "classes"), [
    # Signalling NaN, quiet NaN, -inf, -1, -denormal, -0, +0, denormal, 1, +inf.
    ("f16", [0x7C01, 0xFE00, 0xFC00, 0xBC00, 0x8001, 0x8000, 0, 1, 0x3C00, 0x7C00]),
    ("f32", [0x7F80_0001, 0x7FC0_0000, 0xFF80_0000, 0xBF80_0000, 0x807F_FFFF, 1 << 31, 0, 1, 0x0080_0000, 0x7F80_0000]),
    ("f64", [0x7FF0 << 48 | 1, 0x7FF8 << 48, 0xFFF0 << 48, 0xBFF0 << 48, 1 << 63 | 1, 1 << 63, 0, 1, 0x0010 << 48, 0x7FF0 << 48]),
])  # fmt: skip
def test_classes_see_denormals_in_any_mode(alu, form, classes):
    values = np.array(classes, np.uint64 if form == "f64" else np.uint32)
    for number in range(10):
        masks = np.full(10, 1 << number, np.uint32)
        found = alu(f"v_cmp_class_{form}", values, masks, denorm_f32=0, denorm_f16_f64=0)
        assert found.tolist() == [i == number for i in range(10)]
