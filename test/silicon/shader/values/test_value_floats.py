"""Minima, medians, integral parts, exponents and cube maps, compared with the document's pseudo-code on single lanes
and with Python's math.
"""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest

FORMS = ("f16", "f32", "f64")
CODES = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}


def number(form, bits):
    return struct.unpack(CODES[form][0], struct.pack(CODES[form][1], bits))[0]


def bits_of(form, value):
    return struct.unpack(CODES[form][1], struct.pack(CODES[form][0], value))[0]


def width(form):
    return 64 if form == "f64" else 32


def is_nan(form, bits):
    return math.isnan(number(form, bits))


def is_signalling(exact, form, bits):
    return is_nan(form, bits) and not bits >> exact.SHAPES[form][1] - 1 & 1


def chosen(exact, form, a, b, ieee, less):
    """Return v_min and v_max of one lane, line by line of the pseudo-code."""
    if ieee:
        for one in (a, b):
            if is_signalling(exact, form, one):
                return exact.quiet(form, one)
    if is_nan(form, b):
        return a
    if is_nan(form, a):
        return b
    x, y = number(form, a), number(form, b)
    if x == y == 0:
        first_is_negative, second_is_negative = math.copysign(1, x) < 0, math.copysign(1, y) < 0
        takes_first = (
            first_is_negative and not second_is_negative if less else second_is_negative and not first_is_negative
        )
    else:
        takes_first = x < y if less else x > y
    return a if takes_first else b


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ieee", [False, True])
@pytest.mark.parametrize("denormals", [0, 3])
def test_minimum_and_maximum_follow_the_pseudo_code(alu, exact, form, ieee, denormals):
    columns = [exact.samples(form, 400, f"order {i}") for i in range(3)]
    mode = {"ieee": ieee, "bits": width(form), "denorm_f32" if form == "f32" else "denorm_f16_f64": denormals}
    flush = (lambda one: one) if denormals else (lambda one: exact.flush(form, one))

    def least(a, b):
        return chosen(exact, form, flush(a), flush(b), ieee, True)

    def most(a, b):
        return chosen(exact, form, flush(a), flush(b), ieee, False)

    def median(a, b, c):
        if any(is_nan(form, one) for one in (a, b, c)):
            return least(least(a, b), c)
        top = number(form, most(most(a, b), c))
        if top == number(form, flush(a)):
            return most(b, c)
        return most(a, c) if top == number(form, flush(b)) else most(a, b)

    wanted = {"min": least, "max": most}
    if form != "f64":
        wanted |= {
            "min3": lambda a, b, c: least(least(a, b), c), "max3": lambda a, b, c: most(most(a, b), c), "med3": median,
            "minmax": lambda a, b, c: most(least(a, b), c), "maxmin": lambda a, b, c: least(most(a, b), c),
        }  # fmt: skip
    for name, function in wanted.items():
        sources = columns[: function.__code__.co_argcount]
        found = alu(f"v_{name}_{form}", *sources, **mode).tolist()
        assert found == [function(*row) for row in zip(*sources, strict=True)], name


@pytest.mark.parametrize("form", FORMS)
def test_integral_parts(alu, exact, form):
    values = exact.samples(form, 300, "integral")
    functions = {"trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "rndne": round}
    for name, function in functions.items():
        found = alu(f"v_{name}_{form}", values, bits=width(form), denorm_f32=3).tolist()
        for bits, got in zip(values, found, strict=True):
            value = number(form, bits)
            if math.isnan(value):
                assert got == exact.quiet(form, bits)
            elif math.isinf(value):
                assert got == bits
            else:
                assert got == bits_of(form, math.copysign(function(value), value)), (name, hex(bits))


@pytest.mark.parametrize("form", FORMS)
def test_fractions_are_below_one(alu, exact, form):
    values = exact.samples(form, 300, "fraction")
    largest = exact.one(form) - 1
    for bits, got in zip(values, alu(f"v_fract_{form}", values, bits=width(form), denorm_f32=3).tolist(), strict=True):
        value = exact.decode(form, bits)
        if isinstance(value, str):
            assert got == (exact.quiet(form, bits) if value == "nan" else exact.invalid(form))
        else:
            assert got == min(exact.encode(form, value - math.floor(value)), largest), hex(bits)


@pytest.mark.parametrize("form", FORMS)
def test_significand_times_power_is_the_number(alu, exact, form):
    values = exact.samples(form, 300, "frexp")
    size = exact.SHAPES[form][0]
    name = {"f16": "v_frexp_exp_i16_f16", "f32": "v_frexp_exp_i32_f32", "f64": "v_frexp_exp_i32_f64"}[form]
    significands = alu(f"v_frexp_mant_{form}", values, bits=width(form), denorm_f32=3).tolist()
    exponents = alu(name, values, bits=width(form), denorm_f32=3).tolist()
    for bits, significand, exponent in zip(values, significands, exponents, strict=True):
        value = exact.decode(form, bits)
        if isinstance(value, str):
            assert (significand, exponent) == (exact.quiet(form, bits) if value == "nan" else bits, 0)
            continue
        limit = 1 << (15 if form == "f16" else 31)
        power = exponent - 2 * limit if exponent >= limit else exponent
        assert exact.decode(form, significand) * Fraction(2) ** power == value
        assert significand >> size - 1 == bits >> size - 1
        assert value == 0 or Fraction(1, 2) <= abs(exact.decode(form, significand)) < 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", range(4))
def test_scaling_by_powers_of_two_rounds_once(alu, exact, form, mode):
    values = exact.samples(form, 200, "ldexp")
    reach = {"f16": 60, "f32": 320, "f64": 2200}[form]
    powers = [(-1) ** i * (i * 37 % reach) for i in range(198)] + [-30000, 30000]
    limit = 0xFFFF if form == "f16" else 0xFFFF_FFFF
    kind = "f32" if form == "f32" else "f16_f64"
    found = alu(f"v_ldexp_{form}", values, np.array([one & limit for one in powers], np.uint32), bits=width(form),
                **{f"round_{kind}": mode, f"denorm_{kind}": 3}).tolist()  # fmt: skip
    for bits, power, got in zip(values, powers, found, strict=True):
        value = exact.decode(form, bits)
        if isinstance(value, str):
            assert got == (exact.quiet(form, bits) if value == "nan" else bits)
        else:
            scaled = value * Fraction(2) ** max(min(power, 5000), -5000)
            assert got == exact.encode(form, scaled, mode, bits >> exact.SHAPES[form][0] - 1), (hex(bits), power)


def test_faces_of_a_cube(alu):
    # x, y, z and id, s, t, twice the major axis: AMD's order of faces +x -x +y -y +z -z
    rows = [
        ((2.0, 1.0, -0.5), 0.0, 0.5, -1.0, 4.0),
        ((-2.0, 1.0, -0.5), 1.0, -0.5, -1.0, -4.0),
        ((1.0, 3.0, -0.5), 2.0, 1.0, -0.5, 6.0),
        ((1.0, -3.0, -0.5), 3.0, 1.0, 0.5, -6.0),
        ((1.0, -2.0, 4.0), 4.0, 1.0, 2.0, 8.0),
        ((1.0, -2.0, -4.0), 5.0, -1.0, 2.0, -8.0),
        # z wins ties.
        ((2.0, 2.0, 2.0), 4.0, 2.0, -2.0, 4.0),
    ]
    sources = [[bits_of("f32", row[0][axis]) for row in rows] for axis in range(3)]
    for place, name in enumerate(("id", "sc", "tc", "ma"), 1):
        found = [number("f32", one) for one in alu(f"v_cube{name}_f32", *sources).tolist()]
        assert found == [row[place] for row in rows], name


def test_lighting_products(alu):
    largest, infinity, nan, one = 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000, 0x3F80_0000
    dark = 0xFF7F_FFFF
    seconds = [largest | 1 << 31, infinity | 1 << 31, nan, one, one, one, 0, 0x4000_0000]
    thirds = [one, one, one, 0, 0xBF80_0000, nan, one, one]
    assert alu("v_mullit_f32", [one] * 8, seconds, thirds).tolist() == [dark] * 6 + [0, 0x4000_0000]


# The document's "functional examples".
EXAMPLES = {
    "v_exp_f32": [(0xFF80_0000, 0), (0x8000_0000, 0x3F80_0000), (0x7F80_0000, 0x7F80_0000)],
    "v_log_f32": [
        (0xFF80_0000, 0xFFC0_0000),
        (0xBF80_0000, 0xFFC0_0000),
        (0x8000_0000, 0xFF80_0000),
        (0, 0xFF80_0000),
        (0x3F80_0000, 0),
    ],
    "v_rcp_f32": [
        (0xFF80_0000, 0x8000_0000),
        (0xC000_0000, 0xBF00_0000),
        (0x8000_0000, 0xFF80_0000),
        (0, 0x7F80_0000),
        (0x7F80_0000, 0),
    ],
    "v_rsq_f32": [
        (0xFF80_0000, 0xFFC0_0000),
        (0x8000_0000, 0xFF80_0000),
        (0, 0x7F80_0000),
        (0x4080_0000, 0x3F00_0000),
        (0x7F80_0000, 0),
    ],
    "v_sqrt_f32": [
        (0xFF80_0000, 0xFFC0_0000),
        (0x8000_0000, 0x8000_0000),
        (0, 0),
        (0x4080_0000, 0x4000_0000),
        (0x7F80_0000, 0x7F80_0000),
    ],
    "v_sin_f32": [(0xFF80_0000, 0xFFC0_0000), (0xFF7F_FFFF, 0), (0x8000_0000, 0x8000_0000), (0x3E80_0000, 0x3F80_0000)],
    "v_cos_f32": [(0xFF80_0000, 0xFFC0_0000), (0xFF7F_FFFF, 0x3F80_0000), (0x8000_0000, 0x3F80_0000), (0x3E80_0000, 0)],
    "v_rcp_f16": [(0xFC00, 0x8000), (0xC000, 0xB800), (0x8000, 0xFC00), (0, 0x7C00), (0x7C00, 0)],
    "v_sqrt_f16": [(0xFC00, 0xFE00), (0x8000, 0x8000), (0, 0), (0x4400, 0x4000), (0x7C00, 0x7C00)],
    "v_rsq_f16": [(0xFC00, 0xFE00), (0x8000, 0xFC00), (0, 0x7C00), (0x4400, 0x3800), (0x7C00, 0)],
    "v_log_f16": [(0xFC00, 0xFE00), (0xBC00, 0xFE00), (0x8000, 0xFC00), (0, 0xFC00), (0x3C00, 0), (0x7C00, 0x7C00)],
    "v_exp_f16": [(0xFC00, 0), (0x8000, 0x3C00), (0x7C00, 0x7C00)],
    "v_sin_f16": [(0xFC00, 0xFE00), (0xFBFF, 0), (0x8000, 0x8000), (0x3400, 0x3C00), (0x7BFF, 0), (0x7C00, 0xFE00)],
    "v_cos_f16": [
        (0xFC00, 0xFE00),
        (0xFBFF, 0x3C00),
        (0x8000, 0x3C00),
        (0x3400, 0),
        (0x7BFF, 0x3C00),
        (0x7C00, 0xFE00),
    ],
}


@pytest.mark.parametrize("mnemonic", EXAMPLES)
def test_the_documents_examples(alu, mnemonic):
    sources, wanted = zip(*EXAMPLES[mnemonic], strict=True)
    assert alu(mnemonic, list(sources)).tolist() == list(wanted)


FUNCTIONS = {
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / math.sqrt(x),
    "sqrt": math.sqrt,
    "exp": lambda x: math.pow(2, x),
    "log": math.log2,
    "sin": lambda x: math.sin(2 * math.pi * math.fmod(x, 1)),
    "cos": lambda x: math.cos(2 * math.pi * math.fmod(x, 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("form", ["f16", "f32"])
def test_functions_are_the_nearest_numbers(alu, exact, name, form):
    one, fraction = exact.one(form), exact.SHAPES[form][1]
    sources = [one + ((i * 7919) % (9 << fraction)) - (4 << fraction) for i in range(200)]
    for bits, got in zip(sources, alu(f"v_{name}_{form}", sources).tolist(), strict=True):
        true = Fraction(FUNCTIONS[name](number(form, bits)))
        value = exact.decode(form, got)
        if value == "+inf":
            assert exact.encode(form, true) == got
            continue
        ulp = exact.decode(form, (got & ~(1 << exact.SHAPES[form][0] - 1)) + 1) - abs(value)
        assert abs(value - true) <= ulp * Fraction(51, 100) + Fraction(1, 10**15), hex(bits)


def test_single_precision_functions_flush_denormals_in_any_mode(alu):
    assert alu("v_rcp_f32", [0x0000_0001, 0x7E80_0001], denorm_f32=3).tolist() == [0x7F80_0000, 0]
    assert alu("v_log_f32", [0x0000_0001], denorm_f32=3).tolist() == [0xFF80_0000]
    assert alu("v_exp_f32", [0xC2FE_0000], denorm_f32=3).tolist() == [0]  # 2 ** -127
    assert alu("v_exp_f16", [0xCB80], denorm_f16_f64=3).tolist() == [0x0200]  # 2 ** -15
    assert alu("v_exp_f16", [0xCB80], denorm_f16_f64=0).tolist() == [0]
