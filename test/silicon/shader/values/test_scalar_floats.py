"""The scalar ALU's floats compared with NumPy's, and RDNA4's rules for minima of NaNs with their definition.

Source: RDNA4 ISA reference, "SALU Floating Point", "V_MIN_NUM_F32", "V_MINIMUM_F32".
"""

import itertools
import math
import struct

import numpy as np
import pytest

KINDS = {"f32": ("<f", "<I", np.float32, np.uint32), "f16": ("<e", "<H", np.float16, np.uint16)}
SPECIAL = {
    "f32": [0, 0x8000_0000, 0x3F80_0000, 0xBF80_0000, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFC0_1234, 0x7F80_0001, 0xFFA0_0000],
    "f16": [0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0xFE12, 0x7C01, 0xFD00],
}  # fmt: skip
QUIET = {"f32": 1 << 22, "f16": 1 << 9}
MODE = {"denorm_f32": 3, "denorm_f16_f64": 3}


def number(kind, bits):
    form, raw, _, _ = KINDS[kind]
    return struct.unpack(form, struct.pack(raw, bits))[0]


def sources(kind):
    draw = np.random.default_rng(12)
    width = 32 if kind == "f32" else 16
    return [*SPECIAL[kind], *(int(one) for one in draw.integers(0, 1 << width, 24))]


def numpy_result(kind, function, *bits):
    _, raw, float_type, int_type = KINDS[kind]
    del raw
    with np.errstate(all="ignore"):
        values = [np.array([one], int_type).view(float_type) for one in bits]
        return int(np.asarray(function(*values), float_type).view(int_type)[0])


FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rndne": np.rint,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arithmetic_is_numpys(alu, name, kind):
    count = 1 if name in ("ceil", "floor", "trunc", "rndne") else 2
    for bits in itertools.product(sources(kind), repeat=count):
        found, scc = alu(f"s_{name}_{kind}", *bits, **MODE)
        assert scc is None
        expected = numpy_result(kind, FUNCTIONS[name], *bits)
        if math.isnan(number(kind, expected)):
            assert math.isnan(number(kind, found)), (name, [hex(one) for one in bits])
        else:
            assert found == expected, (name, [hex(one) for one in bits])


COMPARES = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b, "ge": lambda a, b: a >= b, "o": lambda a, b: a == a and b == b,
    "u": lambda a, b: a != a or b != b, "nge": lambda a, b: not a >= b, "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "neq": lambda a, b: a != b, "nlt": lambda a, b: not a < b,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMPARES)
def test_comparisons_give_scc(alu, name, kind):
    for a, b in itertools.product(sources(kind), repeat=2):
        found, scc = alu(f"s_cmp_{name}_{kind}", a, b, **MODE)
        assert found is None
        assert scc == int(COMPARES[name](number(kind, a), number(kind, b))), (name, hex(a), hex(b))


def expected_number(kind, largest, a, b):
    """Follow the document's formula of minimumNumber and maximumNumber."""
    x, y = number(kind, a), number(kind, b)
    if math.isnan(x) and math.isnan(y):
        return a | QUIET[kind]
    if math.isnan(x):
        return b
    if math.isnan(y):
        return a
    return ordered(kind, largest, a, b)


def expected_any(kind, largest, a, b):
    """Follow the document's formula of minimum and maximum."""
    is_nan = [math.isnan(number(kind, one)) for one in (a, b)]
    signals = [nan and not one & QUIET[kind] for nan, one in zip(is_nan, (a, b), strict=True)]
    for flags in (signals, is_nan):
        for flag, one in zip(flags, (a, b), strict=True):
            if flag:
                return one | QUIET[kind]
    return ordered(kind, largest, a, b)


def ordered(kind, largest, a, b):
    x, y = number(kind, a), number(kind, b)
    if x == y == 0:
        # -0 is less than +0
        x, y = math.copysign(1, x), math.copysign(1, y)
    return (a if x > y else b) if largest else (a if x < y else b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "expected", "largest"),
    [("min_num", expected_number, False), ("max_num", expected_number, True), ("minimum", expected_any, False),
     ("maximum", expected_any, True)],
)  # fmt: skip
def test_minima_and_maxima_follow_their_definition(alu, name, expected, largest, kind):
    pairs = list(itertools.product(sources(kind), repeat=2))
    wanted = [expected(kind, largest, a, b) for a, b in pairs]
    found = alu(f"v_{name}_{kind}", [a for a, _ in pairs], [b for _, b in pairs], **MODE)
    assert found.tolist() == wanted
    assert [alu(f"s_{name}_{kind}", a, b, **MODE)[0] for a, b in pairs] == wanted
    # Of three, and of a minimum and a maximum.
    triples = list(itertools.product(SPECIAL[kind], repeat=3))
    first, second, third = zip(*triples, strict=True)
    inner = [expected(kind, largest, a, b) for a, b in zip(first, second, strict=True)]
    three = alu(f"v_{name.replace('_num', '')}3{'_num' if '_num' in name else ''}_{kind}", first, second, third, **MODE)
    assert three.tolist() == [expected(kind, largest, a, b) for a, b in zip(inner, third, strict=True)]
    other = {
        "min_num": "minmax_num",
        "max_num": "maxmin_num",
        "minimum": "minimummaximum",
        "maximum": "maximumminimum",
    }[name]
    mixed = alu(f"v_{other}_{kind}", first, second, third, **MODE)
    assert mixed.tolist() == [expected(kind, not largest, a, b) for a, b in zip(inner, third, strict=True)]


def test_packed_minima_work_on_both_halves(alu):
    a, b = SPECIAL["f16"], SPECIAL["f16"][::-1]
    packed = [low | high << 16 for low, high in zip(a, b, strict=True)]
    swapped = [high | low << 16 for low, high in zip(a, b, strict=True)]
    for name, expected, largest in (("minimum", expected_any, False), ("max_num", expected_number, True)):
        found = alu(f"v_pk_{name}_f16", packed, swapped, **MODE)
        wanted = [
            expected("f16", largest, low, high) | expected("f16", largest, high, low) << 16
            for low, high in zip(a, b, strict=True)
        ]
        assert found.tolist() == wanted


def test_multiply_adds_round_once(alu):
    # (1 + 2**-12)**2 - 1 loses its last bit if the product is rounded first.
    one = struct.unpack("<I", struct.pack("<f", 1 + 2.0**-12))[0]
    minus = 0xBF80_0000
    wanted = struct.unpack("<I", struct.pack("<f", 2.0**-11 + 2.0**-24))[0]
    assert alu("s_fmac_f32", minus, one, one, **MODE) == (wanted, None)
    assert alu("s_fmaak_f32", one, one, minus, **MODE) == (wanted, None)
    assert alu("s_fmamk_f32", one, one, minus, **MODE) == (wanted, None)


def test_conversions_are_numpys(alu):
    with np.errstate(all="ignore"):
        for bits in sources("f32"):
            value = np.array([bits], np.uint32).view(np.float32)
            if not np.isnan(value[0]):
                half = int(value.astype(np.float16).view(np.uint16)[0])
                assert alu("s_cvt_f16_f32", bits, **MODE) == (half, None)
                whole = int(np.clip(np.trunc(value.astype(np.float64)), -(2**31), 2**31 - 1)[0])
                assert alu("s_cvt_i32_f32", bits, **MODE) == (whole & 0xFFFF_FFFF, None)
        for bits in sources("f16"):
            wide = int(np.array([bits], np.uint16).view(np.float16).astype(np.float32).view(np.uint32)[0])
            if not math.isnan(number("f32", wide)):
                assert alu("s_cvt_f32_f16", bits | 0x1234_0000, **MODE) == (wide, None)
                assert alu("s_cvt_hi_f32_f16", bits << 16 | 0x1234, **MODE) == (wide, None)
    assert alu("s_cvt_f32_i32", 0xFFFF_FFFF, **MODE) == (0xBF80_0000, None)
    assert alu("s_cvt_f32_u32", 0xFFFF_FFFF, **MODE) == (0x4F80_0000, None)
    assert alu("s_cvt_pk_rtz_f16_f32", 0x3F80_1FFF, 0xBF80_1FFF, **MODE) == (0xBC00_3C00, None)


def test_64_bit_integers_set_no_scc(alu):
    most = (1 << 64) - 1
    assert alu("s_add_nc_u64", most, 2) == (1, None)
    assert alu("s_sub_nc_u64", 1, 2) == (most, None)
    assert alu("s_mul_u64", most, most) == (1, None)
