"""Matrix products of CDNA3: where elements are, what is computed from them, and how sums are rounded."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.mfma import MFMA
from ringup.silicon.shader.amd.values.context import Ctx
from ringup.silicon.shader.amd.values.fnuz import BF8, FP8, narrowed, values, widened
from ringup.silicon.shader.amd.values.matrix_sums import multiply_add

# Lane and element of A[i][k] (of B[k][j] with j for i) and of D[i][j] in block b. Source: AMD matrix instruction
# calculator, `--register-layout`, for CDNA3.
PLACES = {
    "v_mfma_f32_32x32x8_f16": (
        lambda b, i, k: (i + 32 * (k // 4), k % 4), lambda b, i, j: (j + 32 * (i // 4 % 2), i % 4 + 4 * (i // 8))
    ),
    "v_mfma_f32_16x16x16_bf16": (
        lambda b, i, k: (i + 16 * (k // 4), k % 4), lambda b, i, j: (j + 16 * (i // 4), i % 4)
    ),
    "v_mfma_f32_16x16x8_xf32": (
        lambda b, i, k: (i + 16 * (k // 2), k % 2), lambda b, i, j: (j + 16 * (i // 4), i % 4)
    ),
    "v_mfma_f32_32x32x1_2b_f32": (
        lambda b, i, k: (i + 32 * b, 0), lambda b, i, j: (j + 32 * (i // 4 % 2), 16 * b + i % 4 + 4 * (i // 8))
    ),
    "v_mfma_i32_16x16x4_4b_i8": (
        lambda b, i, k: (i + 16 * b, k), lambda b, i, j: (j + 16 * (i // 4), 4 * b + i % 4)
    ),
    "v_mfma_i32_4x4x4_16b_i8": (lambda b, i, k: (i + 4 * b, k), lambda b, i, j: (j + 4 * b, i)),
    "v_mfma_f64_16x16x4_f64": (lambda b, i, k: (i + 16 * k, 0), lambda b, i, j: (j + 16 * (i % 4), i // 4)),
    "v_mfma_f64_4x4x4_4b_f64": (lambda b, i, k: (i + 4 * b + 16 * k, 0), lambda b, i, j: (j + 4 * b + 16 * i, 0)),
    "v_mfma_f32_16x16x32_fp8_bf8": (
        lambda b, i, k: (i + 16 * (k // 8), k % 8), lambda b, i, j: (j + 16 * (i // 4), i % 4)
    ),
}  # fmt: skip


def context(**fields):
    return Ctx(
        SimpleNamespace(fields={"cbsz": 0, "abid": 0, "blgp": 0} | fields), 64, np.ones(64, bool), np.zeros((1, 64))
    )


def bits(type_, numbers):
    """Return numbers as the elements' bits, in their own size."""
    if type_ in ("fp8", "bf8"):
        return narrowed({"fp8": FP8, "bf8": BF8}[type_], numbers.astype(float), saturates=False).astype("u1")
    if type_ == "bf16":
        return (numbers.astype("<f4").view("<u4") >> 16).astype("<u2")
    return numbers.astype({"f64": "<f8", "f32": "<f4", "xf32": "<f4", "f16": "<f2", "i8": "i1", "i32": "<i4"}[type_])


def registers(type_, matrix, place):
    """Return the registers that have a matrix (block, row, column or k), as the interpreter gives them."""
    cells = {place(*at): one for at, one in zip(np.ndindex(matrix.shape), bits(type_, matrix).ravel(), strict=True)}
    found = np.array([[cells[lane, item] for item in range(len(cells) // 64)] for lane in range(64)])
    dwords = np.ascontiguousarray(found).view("<u4")
    return dwords if dwords.shape[1] > 2 else dwords.view("<u8" if dwords.shape[1] == 2 else "<u4")[:, 0]


def shape(name):
    parts = name.split("_")
    rows, _, depth = map(int, parts[3].split("x"))
    blocks = int(parts[4][:-1]) if parts[4].endswith("b") and parts[4][0].isdigit() else 1
    return rows, depth, blocks, parts[2], (parts[-2] if parts[-2] in ("fp8", "bf8") else parts[-1], parts[-1])


def product(name, a, b, c, **fields):
    """Return D (block, row, column) of A (block, row, k), B (block, k, column) and C."""
    _, _, blocks, result, types = shape(name)
    factor, place = PLACES[name]
    given = MFMA[name](
        context(**fields), registers(types[0], a, factor), registers(types[1], b.transpose(0, 2, 1), factor),
        registers(result, c, place),
    )  # fmt: skip
    found = np.ascontiguousarray(given).view({"f64": "<f8", "f32": "<f4", "i32": "<i4"}[result]).reshape(64, -1)
    size = len(c[0])
    return np.array(
        [[[found[place(at, i, j)] for j in range(size)] for i in range(size)] for at in range(blocks)], float
    )


def matrices(name, seed=5):
    rows, depth, blocks, _, _ = shape(name)
    draw = np.random.default_rng(seed)
    return (
        draw.integers(-7, 8, (blocks, rows, depth)),
        draw.integers(-7, 8, (blocks, depth, rows)),
        draw.integers(-60, 60, (blocks, rows, rows)),
    )


@pytest.mark.parametrize("name", PLACES)
def test_products_of_integers_are_numpys_in_the_documents_layout(name):
    a, b, c = matrices(name)
    np.testing.assert_array_equal(product(name, a, b, c), a @ b + c)


def test_blocks_of_a_are_broadcast():
    name = "v_mfma_i32_16x16x4_4b_i8"
    a, b, c = matrices(name)
    np.testing.assert_array_equal(product(name, a, b, c, cbsz=1, abid=1), a[[1, 1, 3, 3]] @ b + c)


def test_lanes_of_b_are_broadcast():
    name = "v_mfma_f32_32x32x1_2b_f32"
    a, b, c = matrices(name)
    np.testing.assert_array_equal(product(name, a, b, c, blgp=2), a @ b[[1, 1]] + c)


def test_the_pattern_of_b_is_signs_for_f64():
    name = "v_mfma_f64_4x4x4_4b_f64"
    a, b, c = matrices(name)
    np.testing.assert_array_equal(product(name, a, b, c, blgp=5), -(a @ b) - c)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_a_sparse_product_takes_the_kept_elements_places_from_its_index(type_):
    draw = np.random.default_rng(3)
    kept, b, c = draw.integers(-7, 8, (16, 16)), draw.integers(-7, 8, (32, 16)), draw.integers(-60, 60, (16, 16))
    pairs = [sorted(draw.choice(4, 2, replace=False).tolist()) for _ in range(16 * 8)]
    places = np.array(pairs).reshape(16, 16)
    dense, index = np.zeros((16, 32), int), np.zeros(64, np.uint32)
    for i, k in np.ndindex(16, 16):
        dense[i, k // 2 * 4 + places[i, k]] = kept[i, k]
        # The third of four sets of eight bits.
        index[i + 16 * (k // 4)] |= np.uint32(int(places[i, k]) << 2 * (k % 4) + 16)
    quarter, eighth = PLACES["v_mfma_f32_16x16x16_bf16"][0], PLACES["v_mfma_f32_16x16x32_fp8_bf8"][0]
    place = PLACES["v_mfma_f32_16x16x16_bf16"][1]
    found = MFMA[f"v_smfmac_f32_16x16x32_{type_}"](
        context(abid=2), registers("f32", c[None], place), registers(type_, kept[None], quarter),
        registers(type_, b.T[None], eighth), index,
    )  # fmt: skip
    given = found.view("<f4").reshape(64, -1)
    np.testing.assert_array_equal([[given[place(0, i, j)] for j in range(16)] for i in range(16)], dense @ b + c)


# ---- rounding


def exponent(value, least):
    """Return the exponent of a number, not below that of denormals."""
    if value == 0:
        return least
    number = abs(Fraction(value))
    found = number.numerator.bit_length() - number.denominator.bit_length()
    return max(found - (number < Fraction(2) ** found), least)


def toward_zero(value, unit):
    return int(value / unit) * unit


def expected(a, b, c, least):
    """Return the sum of products plus c as the matrix cores were measured to round it, exactly computed."""
    products = [(Fraction(x) * Fraction(y), exponent(x, least) + exponent(y, least)) for x, y in zip(a, b, strict=True)]
    top = max(at if value else -126 for value, at in products)
    total = sum(toward_zero(value, Fraction(2) ** (top - 24)) for value, _ in products)
    whole = max(top, exponent(c, -126))
    unit, coarse = Fraction(2) ** (whole - 31), Fraction(2) ** (whole - 24)
    return total // unit * unit + Fraction(c) // coarse * coarse


@pytest.mark.parametrize(("type_", "least"), [("f16", -14), ("bf16", -126)])
def test_eight_products_are_cut_and_added_at_once(type_, least):
    draw = np.random.default_rng(9)
    raw = draw.integers(0, 1 << 16, (2, 300, 8)).astype("<u2")
    if type_ == "bf16":
        # Exponents of at most 2**32 and at least 2**-31.
        raw = raw & 0x8FFF | 0x3000
    factors = (raw.view("<f2") if type_ == "f16" else (raw.astype("<u4") << 16).view("<f4")).astype(float)
    addend = (draw.standard_normal(300) * 10.0 ** draw.integers(-6, 7, 300)).astype("<f4")
    usable = np.isfinite(factors).all(axis=(0, 2)) & (np.abs(factors).max(axis=(0, 2)) < 1e15)
    found = multiply_add(
        (type_, type_), raw[0].astype("<u4")[:, None], raw[1].astype("<u4")[:, None], addend.view("<u4")[:, None, None]
    ).view("<f4")[:, 0, 0]
    for at in np.flatnonzero(usable):
        exact = expected(factors[0, at].tolist(), factors[1, at].tolist(), float(addend[at]), least)
        assert found[at] == np.float32(float(exact)), at
    assert usable.sum() > 100


def test_small_addends_are_lost_below_the_largest_product():
    # 2**-25 of a product of exponent 0 is cut, 2**-24 of it is kept until the result is rounded to even.
    one = np.full((1, 1, 1, 8), 0x3C00, np.uint32)
    tiny = np.array([-(2.0**-25)], "<f4").view("<u4").reshape(1, 1, 1)
    only = one.copy()
    only[..., 1:] = 0
    found = multiply_add(("f16", "f16"), only[0], one[0], tiny).view("<f4")
    # An addend is cut downwards: to -2**-24.
    assert found.ravel()[0] == np.float32(1 - 2.0**-24)


def test_infinities_and_nans_are_kept():
    a = np.array([[[0x7C00, 0x3C00]], [[0x7C00, 0xFC00]], [[0x7E00, 0]], [[0x7BFF, 0x7BFF]]], np.uint32)
    b = np.full_like(a, 0x3C00)
    found = multiply_add(("f16", "f16"), a, b, np.zeros((4, 1, 1), np.uint32)).ravel()
    assert [hex(one) for one in found] == ["0x7f800000", "0x7fc00000", "0x7fc00000", "0x47ffe000"]


# ---- eight bits


@pytest.mark.parametrize(
    ("form", "literals"),
    [
        (FP8, {0x80: np.nan, 0x7F: 240.0, 0x01: 2.0**-10, 0x08: 2.0**-7, 0x40: 1.0, 0xC0: -1.0}),
        (BF8, {0x80: np.nan, 0x7F: 57344.0, 0x01: 2.0**-17, 0x40: 1.0, 0xC4: -2.0}),
    ],
    ids=["fp8", "bf8"],
)
def test_eight_bits_have_one_nan_and_no_infinity(form, literals):
    found = widened(form, np.array(list(literals), np.uint32)).view("<f4")
    np.testing.assert_array_equal(found, np.array(list(literals.values()), "<f4"))
    octets = np.arange(256, dtype=np.uint32)
    np.testing.assert_array_equal(narrowed(form, values(form, octets), saturates=False), octets)


def test_what_is_too_large_for_eight_bits_is_nan_or_the_largest():
    numbers = np.array([247.9, 248.0, -1e9, np.inf, np.nan, 2.0**-11, 3 * 2.0**-11])
    assert narrowed(FP8, numbers, saturates=False).tolist() == [0x7F, 0x80, 0x80, 0x80, 0x80, 0, 2]
    assert narrowed(FP8, numbers, saturates=True).tolist() == [0x7F, 0x7F, 0xFF, 0x7F, 0x80, 0, 2]
