"""Numbers that do not fit, exact results of integers, and the floor of quotients."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor

SIGNED = ("int8", "int16", "int32", "int64")


# an integer to the power of a float


@pytest.mark.parametrize("exponent", [2.0, 0.5, -1.0, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("kind", ["bool", "uint8", "int32", "int64"])
def test_an_integer_to_the_power_of_a_float_is_a_float(kind, exponent):
    made = Tensor([1, 0, 1], kind) ** exponent
    assert made.dtype is dtypes.float32
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(made.numpy(), np.array([1, 0, 1], np.float32) ** np.float32(exponent))
    assert (Tensor([100000]) ** 2.0).tolist() == [1e10]
    assert (Tensor([3]) ** 2).dtype is dtypes.int32


# ranges


@pytest.mark.parametrize(
    "ends", [(2**31, 2**31 + 3), (0, 2**33, 2**31), (-(2**31) - 2, -(2**31)), (5, 0, -2), (2**31 + 5, 2**31 - 5, -3)]
)
def test_ranges_past_int32_are_int64(ends):
    made = Tensor.arange(*ends)
    assert made.tolist() == list(range(*ends))
    assert made.dtype is (dtypes.int32 if ends == (5, 0, -2) else dtypes.int64)


def test_ranges_of_unsigned_types_reach_their_ends():
    assert Tensor.arange(2**32 - 2, 2**32, dtype="uint32").tolist() == [2**32 - 2, 2**32 - 1]
    assert Tensor.arange(2**64 - 2, 2**64, dtype="uint64").tolist() == [2**64 - 2, 2**64 - 1]
    assert Tensor.arange(2**63, 2**63 + 2).dtype is dtypes.uint64
    for ends, kind in (
        ((0, 257), "uint8"),
        ((-1, 3), "uint64"),
        ((0, 2**31 + 1), "int32"),
        ((0, 70000, 7e4 - 1), "float16"),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            Tensor.arange(*ends, dtype=kind)
    assert Tensor.arange(0, 256, dtype="uint8").tolist() == list(range(256))


def test_even_spacing_of_integers():
    for start, stop, count, kind in (
        (0, 2**40, 5, "int64"),
        (0, 10, 4, "int32"),
        (-7, 7, 6, "int8"),
        (9, -9, 5, "int16"),
    ):
        # NumPy rounds down too
        wanted = np.linspace(start, stop, count, dtype=kind).tolist()
        assert Tensor.linspace(start, stop, count, dtype=kind).tolist() == wanted
    with pytest.raises(ValueError, match="300 does not fit uint8"):
        Tensor.linspace(0, 300, 3, dtype="uint8")


# the extremes of signed types


def _fmod(a, b):
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


@pytest.mark.parametrize("kind", SIGNED)
def test_remainders_of_the_extremes_of_signed_types(kind):
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    numbers = [low, low + 1, -7, -1, 0, 1, 7, high - 1, high]
    x, y = (np.array(one).reshape(-1) for one in np.meshgrid(numbers, [one for one in numbers if one]))
    a, b = Tensor(x.astype(kind)), Tensor(y.astype(kind))
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    assert a.fmod(b).tolist() == [_fmod(*pair) for pair in pairs]
    assert (a % b).tolist() == [i % j for i, j in pairs]
    for divisor in (3, -3, low, high, -1):
        assert Tensor(numbers, kind).fmod(divisor).tolist() == [_fmod(i, divisor) for i in numbers]
    # NumPy wraps too
    assert abs(Tensor([low], kind)).tolist() == (-Tensor([low], kind)).tolist() == [low]


# means and what is made of them

EQUAL = {"int32": 16777217, "uint32": 2**32 - 1, "int64": 2**62 + 2**10, "uint64": 2**64 - 2**12}


@pytest.mark.parametrize("kind", EQUAL)
def test_the_mean_of_equal_integers_is_the_integer(kind):
    for count in (1, 3, 1000):
        made = Tensor.full((count,), EQUAL[kind], dtype=kind).mean()
        assert made.dtype is dtypes.float64
        assert made.item() == float(EQUAL[kind])


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_means_of_integers_are_the_exact_mean_rounded(kind):
    rng = np.random.default_rng(1)
    info = (0, 1) if kind == "bool" else (np.iinfo(kind).min, np.iinfo(kind).max)
    x = rng.integers(*info, (5, 301), dtype="uint8" if kind == "bool" else kind, endpoint=True).astype(kind)
    made = Tensor(x).mean(1)
    exact = [Fraction(sum(map(int, row)), 301) for row in x]
    kept = np.float64 if x.dtype.itemsize >= 4 else np.float32
    # one unit in the last place: the rounded whole part and the rounded rest are added
    np.testing.assert_allclose(made.numpy(), np.array([float(one) for one in exact], kept), rtol=np.finfo(kept).eps)
    assert made.numpy().dtype == kept
    assert math.isnan(Tensor(x[:, :0]).mean(1).tolist()[0])


def test_deviations_of_large_integers_do_not_cancel():
    for base, kind in ((2**60, "int64"), (-(2**63), "int64"), (2**63, "uint64"), (2**31 - 8, "int32")):
        x = Tensor([base, base + 1, base + 2, base + 5], kind)
        # those of 0, 1, 2, 5
        np.testing.assert_allclose(x.var().item(), 14 / 3, rtol=1e-12)
        np.testing.assert_allclose(x.std(correction=0).item(), math.sqrt(3.5), rtol=1e-12)
    assert Tensor([3 * 2**40, 4 * 2**40]).norm().item() == 5 * 2.0**40
    assert Tensor([-(2**31)], "int32").norm(1).item() == 2.0**31
    assert Tensor([16777217]).median().item() == 16777217
    assert Tensor([[[16777217, 16777217], [16777217, 16777217]]]).avg_pool2d(2).tolist() == [[[16777217.0]]]


def test_promotion_of_int64_and_uint64():
    for signed in SIGNED:
        made = Tensor([-1], signed) + Tensor([1], "uint64")
        assert made.dtype is dtypes.float64
        assert made.tolist() == [0.0]
    assert dtypes.promote(dtypes.int64, dtypes.uint64) is dtypes.float64
    assert dtypes.promote(dtypes.float16, dtypes.uint64) is dtypes.float16


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_integers_are_rounded_to_tens_with_halves_to_even(kind):
    info = np.iinfo(kind)
    numbers = [n for n in (1234, -1250, 1350, 50, -50, 25, 35, -25, 0, 7, 99, 101) if info.min <= n <= info.max]
    for places in (1, 2, 3):
        wanted = [round(n, -places) for n in numbers]
        inside = [i for i, one in enumerate(wanted) if info.min <= one <= info.max]
        found = Tensor(numbers, kind).round(-places)
        assert found.dtype.name == kind
        assert [found.tolist()[i] for i in inside] == [wanted[i] for i in inside]
    assert Tensor([info.max], kind).round(-30).tolist() == [0]


def test_floats_are_rounded_to_places_without_overflow():
    assert Tensor([1e30, 1.25, 2.675]).round(30).tolist() == Tensor([1e30, 1.25, 2.675]).tolist()
    np.testing.assert_allclose(Tensor([1234.567, 0.5]).round(-2).numpy(), [1200.0, 0.0])
    assert Tensor([65504.0, 1.2345], "float16").round(3).tolist() == [65504.0, float(np.float16(1.234))]
    assert Tensor([3e38]).round(-50).tolist() == [0.0]


# quotients


def _rounded(n, kind):
    """Return a whole number rounded to a float type, halves to even."""
    digits = kind.mantissa_bits + 1
    size = abs(n)
    extra = max(size.bit_length() - digits, 0)
    kept, rest = size >> extra, size & (1 << extra) - 1
    kept += rest * 2 > 1 << extra or (rest * 2 == 1 << extra and kept & 1)
    if not extra:
        kept = size
    made = kept << extra
    if made > dtypes._largest(kind):
        return math.nan if kind is dtypes.float8_e4m3 else math.copysign(math.inf, n)
    return float(-made if n < 0 else made)


def _pairs(kind):
    rng = np.random.default_rng(2)
    digits = kind.mantissa_bits + 1
    y = rng.integers(1, 1 << digits, 400).astype(np.float64)
    # quotients at and beside whole numbers, of few and of more digits than the type has
    n = np.floor(2.0 ** rng.uniform(0, digits + 14, 400))
    x = np.concatenate([y * n, -y * n, rng.integers(-99, 99, 400) * 0.1, 2.0 ** rng.uniform(-6, 7, 400)])
    y = np.concatenate([y, y, rng.integers(1, 99, 400) * 0.1, -(2.0 ** rng.uniform(-6, 7, 400))])
    top = dtypes._largest(kind)
    x = np.clip(x, -top, top)
    return Tensor(x).cast(kind), Tensor(np.clip(y, -top, top)).cast(kind)


@pytest.mark.parametrize("kind", [one for one in dtypes.ALL if one.is_float], ids=str)
def test_the_floor_of_a_quotient_is_exact(kind):
    x, y = _pairs(kind)
    found = (x // y).cast("float64").numpy()
    for a, b, one in zip(x.cast("float64").tolist(), y.cast("float64").tolist(), found.tolist(), strict=True):
        if b and a == a:
            wanted = _rounded(Fraction(a) // Fraction(b), kind)
            assert one == wanted or (one != one and wanted != wanted), (a, b)


def test_quotients_at_infinity_and_0_are_pythons():
    inf = math.inf
    x = [1.0, -1.0, 0.0, 1e-40, -1e-30, inf, -inf, 5.0, -5.0, 0.0, math.nan]
    y = [inf, inf, -inf, -1e30, 1e30, 2.0, 2.0, 0.0, 0.0, 0.0, 1.0]
    # NumPy 2: floor_divide
    wanted = [0.0, -1.0, -0.0, -1.0, -1.0, math.nan, math.nan, inf, -inf, math.nan, math.nan]
    np.testing.assert_array_equal((Tensor(x) // Tensor(y)).numpy(), np.array(wanted, np.float32))


# numbers beside tensors


NUMBERS = (
    -1, 0, 1, 127, 128, 255, 256, 300, -129, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.5, 254.5, 3e38,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


@pytest.mark.parametrize("kind", ["bool", "uint8", "int8", "int16", "uint32", "int64", "uint64"])
def test_comparisons_of_integers_with_any_number_are_exact(kind):
    info = (0, 1) if kind == "bool" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    values = sorted({info[0], info[1], *(one for one in (0, 1, 127, -128) if info[0] <= one <= info[1])})
    t = Tensor(values, kind)
    for number in NUMBERS:
        assert (t < number).tolist() == [one < number for one in values]
        assert (t <= number).tolist() == [one <= number for one in values]
        assert (t > number).tolist() == [one > number for one in values]
        assert (t >= number).tolist() == [one >= number for one in values]
        assert (t == number).tolist() == [one == number for one in values]
        assert (t != number).tolist() == [one != number for one in values]
        assert (number < t).tolist() == [number < one for one in values]


@pytest.mark.parametrize("kind", ["float16", "float8_e4m3", "float8_e5m2", "bfloat16", "float32"])
def test_comparisons_of_floats_with_numbers_too_large_for_them_are_exact(kind):
    infinite = [] if kind == "float8_e4m3" else [math.inf, -math.inf]
    values = [0.0, 448.0, -448.0, math.nan, *infinite]
    t = Tensor(values, kind)
    for number in (10**400, -(10**400), 1e300, -1e300, 10**39):
        assert (t < number).tolist() == [one < number for one in values]
        assert (t <= number).tolist() == [one <= number for one in values]
        assert (number < t).tolist() == [number < one for one in values]
        assert (number <= t).tolist() == [number <= one for one in values]
        assert (t == number).tolist() == [False] * len(values)
        assert (t != number).tolist() == [True] * len(values)


def _set(t, value):
    t[0] = value


NOT_FITTING = {
    "a number": lambda v: Tensor(v, "uint8"),
    "a list": lambda v: Tensor([1, v], "uint8"),
    "an array": lambda v: Tensor(np.array([v]), "uint8"),
    "full": lambda v: Tensor.full((2,), v, dtype="uint8"),
    "full_like": lambda v: Tensor([1], "uint8").full_like(v),
    "masked_fill": lambda v: Tensor([1], "uint8").masked_fill(Tensor([True]), v),
    "a pad's value": lambda v: Tensor([1], "uint8").pad([(1, 1)], value=v),
    "assign": lambda v: Tensor([1], "uint8").assign(v),
    "assign to a part": lambda v: _set(Tensor([1, 2], "uint8"), v),
    "scatter": lambda v: Tensor([1, 2], "uint8").scatter(0, Tensor([0]), v),
}


@pytest.mark.parametrize("where", NOT_FITTING)
def test_numbers_that_do_not_fit_a_type_are_refused(where):
    for value in (300, -1, -1.5, 256.0, math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match=r"does not fit uint8 \(0 to 255\)"):
            NOT_FITTING[where](value)
    # a fraction is cut off, as by a cast
    for value in (255, 0, 255.5, -0.5):
        NOT_FITTING[where](value)


@pytest.mark.parametrize(
    "make", [lambda v: Tensor([1], "uint8") + v, lambda v: Tensor([1], "uint8").clip(0, v), lambda v: v - Tensor([1], "uint8"),
             lambda v: Tensor([1], "uint8").maximum(v), lambda v: Tensor([True]).where(Tensor([1], "uint8"), v)]
)  # fmt: skip
def test_operations_with_an_integer_that_does_not_fit_are_refused(make):
    for value in (256, -1):
        with pytest.raises(ValueError, match="does not fit uint8"):
            make(value)


def test_numbers_that_overflow_a_float_type_are_refused():
    for value, kind in ((65520.0, "float16"), (1e39, "float32"), (465.0, "float8_e4m3"), (math.inf, "float8_e4m3"), (10**400, "float64"),
                        (3.4e38, "bfloat16")):  # fmt: skip
        with pytest.raises(ValueError, match=f"does not fit {kind}"):
            Tensor(value, kind)
        if value != 10**400:
            with pytest.raises(ValueError, match=f"does not fit {kind}"):
                Tensor(np.array([1.0, value]), kind)
    for value in (1e39, [1.0, -1e39], [[4e38]]):
        with pytest.raises(ValueError, match="does not fit float32"):
            Tensor(value)
    for value, kind in ((65519.9, "float16"), (math.inf, "float16"), (464.0, "float8_e4m3"), (math.nan, "float8_e4m3")):
        Tensor(value, kind)
        Tensor([value], kind)


def test_integers_past_64_bits_are_refused():
    for values in ([2**64], [2**63, -1], [[-(2**63) - 1]]):
        with pytest.raises(ValueError, match="not fit 64 bits"):
            Tensor(values)
    assert Tensor([True]).where(1, 2**40).tolist() == [1]


def test_comparisons_of_uint64_with_signed_integers_are_exact():
    signed, unsigned = [-1, -(2**63), 2**60, 2**60 + 1, 2**63 - 1, 0], [0, 2**63, 2**60, 2**60 + 1, 2**64 - 1]
    pairs = [(a, b) for a in signed for b in unsigned]
    x, y = Tensor([a for a, _ in pairs], "int64"), Tensor([b for _, b in pairs], "uint64")
    for made, wanted in (
        (x < y, [a < b for a, b in pairs]),
        (x <= y, [a <= b for a, b in pairs]),
        (x > y, [a > b for a, b in pairs]),
        (y < x, [b < a for a, b in pairs]),
        (y >= x, [b >= a for a, b in pairs]),
        (x == y, [a == b for a, b in pairs]),
        (y != x, [b != a for a, b in pairs]),
    ):
        assert made.tolist() == wanted
    assert (Tensor([-1], "int8") < Tensor([0], "uint64")).tolist() == [True]


def test_differences_of_unsigned_integers_do_not_wrap_inside_functions():
    low, high = Tensor([0, 10], "uint8"), Tensor([255, 0], "uint8")
    assert low.l1_loss(high, reduction="none").tolist() == [255.0, 10.0]
    assert low.mse_loss(high, reduction="none").tolist() == [65025.0, 100.0]
    assert low.huber_loss(high, reduction="none").tolist() == [254.5, 9.5]
    assert low.lerp(high, 0.5).tolist() == [127.5, 5.0]
    assert not low.allclose(high, rtol=0.1).item()


def test_numbers_of_any_size_are_true_or_false():
    t = Tensor([0, 1], "uint8")
    assert t.logical_and(300).tolist() == [False, True]
    assert t.logical_or(-1).tolist() == [True, True]
    assert t.logical_xor(10**30).tolist() == [True, False]


def test_lists_and_arrays_that_do_not_fit_are_not_assigned():
    for value in ([300, 1], np.array([1, -1]), [1.5, math.nan]):
        t = Tensor([1, 2], "uint8")
        with pytest.raises(ValueError, match="does not fit uint8"):
            t.assign(value)
        with pytest.raises(ValueError, match="does not fit uint8"):
            _set(Tensor([[1, 2]], "uint8"), value)
    t.assign([200.5, 3])
    assert t.tolist() == [200, 3]


def test_lists_are_rounded_once():
    # half-way between two of bf16 in f32, but above it
    value = 1 + 2.0**-8 + 2.0**-40
    assert Tensor([value], "bfloat16").float().tolist() == [1 + 2.0**-7]
    assert Tensor([1 + 2.0**-4 + 2.0**-40], "float8_e4m3").float().tolist() == [1.125]


def test_results_in_place_keep_to_the_kind_of_the_tensor():
    # as NumPy and PyTorch
    for kind, change in (("int32", lambda t: t.__iadd__(0.5)), ("uint8", lambda t: t.__itruediv__(2)), ("int8", lambda t: t.__ipow__(2.0)),
                         ("int64", lambda t: t.mul_(1.5)), ("bool", lambda t: t.__iadd__(1))):  # fmt: skip
        with pytest.raises(TypeError, match=f"does not go into a tensor of {kind} in place"):
            change(Tensor([1, 0], kind))
    t = Tensor([7, 8], "int8")
    t += Tensor([1, 1], "int64")
    t //= 2
    assert t.tolist() == [4, 4]
    h = Tensor([1.0], "float16")
    h += Tensor([1], "int32")
    h *= Tensor([1.5])
    assert (h.dtype.name, h.tolist()) == ("float16", [3.0])


def test_statistics_of_integers_past_24_bits():
    t = Tensor([16777217] * 3)
    for made in (t.nanmean(), t.quantile(0.5), t.median(axis=0), t.var_mean()[1], t.median()):
        assert made.item() == 16777217
    assert Tensor([2**60 + 1, -(2**63), 5]).isclose(Tensor([2**60, 2**63 - 1, 5]), rtol=0, atol=0).tolist() == [
        False,
        False,
        True,
    ]
    assert Tensor([200, 100, 100], "uint8").bincount(Tensor([200, 100, 200], "uint8")).tolist()[100] == 300
