"""Functions of the namespace give what `array-api-strict` gives, which computes with NumPy."""

import array_api_cases
import array_api_strict as strict
import numpy as np
import pytest

import ringup.array_api as xp

# the standard leaves the width of these results to the library: ours has 32 bits, strict's has 64
UNIQUE = ("unique_all", "unique_counts", "unique_inverse")
PLACES = (*UNIQUE, "argmax", "argmin", "argsort", "count_nonzero", "nonzero", "searchsorted")
# the standard leaves the sign of a zero open
EXTREMES = ("clip", "maximum", "minimum", "max", "min", "sort")
ZEROS = (*EXTREMES, "remainder", "prod", "cumulative_prod", "round", "mean", "sum")
# the result may be near 0 where the arguments are not: both sides lose their last places
NEAR_ZERO = ("logaddexp",)


@pytest.fixture(autouse=True)
def newest():
    strict.set_array_api_strict_flags(api_version=xp.__array_api_version__)
    yield
    strict.reset_array_api_strict_flags()


def kinds(call, theirs):
    """Return the type that each result has here, by the type that it has in strict."""
    if call.name in PLACES:
        return [one if call.name in UNIQUE and not i else np.dtype("int32") for i, one in enumerate(theirs)]
    if call.name in array_api_cases.SUMS and call.given[0].dtype.itemsize <= 4:
        return [{"int64": np.dtype("int32"), "uint64": np.dtype("uint32")}.get(one.name, one) for one in theirs]
    return theirs


def expected_of(call):
    """Return strict's results, by the standard where NumPy's are not: for a scalar power of one half it takes the
    square root, which of minus infinity is NaN and not infinite.
    """
    made = array_api_cases.called(strict, call)
    if call.name != "pow":
        return made
    base, power = np.broadcast_arrays(*call.given)
    return [np.where((base == -np.inf) & (power == 0.5), one.dtype.type(np.inf), one) for one in made]


def check(call):
    """Compare a call's results in type, shape and values."""
    found, expected = array_api_cases.called(xp, call), expected_of(call)
    types = kinds(call, [one.dtype for one in expected])
    assert [(one.dtype, one.shape) for one in found] == [
        (kind, one.shape) for kind, one in zip(types, expected, strict=True)
    ], call
    for one, other, kind in zip(found, expected, types, strict=True):
        if kind.kind != "f":
            # sums past 32 bits wrap around
            np.testing.assert_array_equal(one, other.astype(kind), str(call))
            continue
        scale = np.abs(other[np.isfinite(other)]).max(initial=0) if call.ulp >= 64 else call.name in NEAR_ZERO
        last = np.finfo(kind).eps
        np.testing.assert_allclose(one, other, call.ulp * last, call.ulp * last * scale, err_msg=str(call))
        if call.name not in ZEROS and not call.ulp:
            zero = (other == 0) & (one == 0)
            np.testing.assert_array_equal(np.signbit(one[zero]), np.signbit(other[zero]), str(call))


@pytest.mark.parametrize("name", array_api_cases.NAMES)
@pytest.mark.seeds(3)
def test_a_random_call_gives_stricts_results(name, seed):
    check(array_api_cases.draw(name, seed))


def grid(kind):
    """Return edge values of a type."""
    if kind == "bool":
        return np.array([False, True])
    if kind in array_api_cases.FLOATS:
        info = np.finfo(kind)
        edges = [info.max, -info.max, info.tiny, info.eps, 1 - info.eps, 0.1, -0.1, 3.5, 100.0, 1e9]
        return np.array([*array_api_cases.SPECIAL, *edges], kind)
    info = np.iinfo(kind)
    return np.array(
        sorted({info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7, *([-1, -2] if info.min else [])}), kind
    )


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kinds in array_api_cases.UNARY.items() for kind in kinds]
)
@pytest.mark.sweep(40)
def test_a_function_of_edge_values_gives_stricts_results(name, kind):
    check(array_api_cases.Call(name, (grid(kind),), ulp=array_api_cases.ULP.get(name, 0)))


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kinds in array_api_cases.BINARY.items() for kind in kinds]
)
@pytest.mark.sweep(60)
def test_a_function_of_two_edge_values_gives_stricts_results(name, kind):
    values = grid(kind)
    x, y = (one.reshape(-1) for one in np.meshgrid(values, values))
    if name.endswith("shift"):
        y = np.clip(y, 0, np.iinfo(kind).bits - 1).astype(kind)
    elif kind in array_api_cases.INTEGERS and name in ("floor_divide", "remainder"):
        # integers by 0 are unspecified, and so is the least by -1
        fine = (y != 0) & ((y >= 0) | (x != x.min()))
        x, y = x[fine], y[fine]
    elif name == "floor_divide":
        # NumPy's quotient is Python's for these, which the standard's is not
        fine = np.isfinite(x) & np.isfinite(y) & (y != 0)
        x, y = x[fine], y[fine]
    check(array_api_cases.Call(name, (x, y), ulp=array_api_cases.ULP.get(name, 0)))


# functions of complex numbers, which array-api-strict computes with NumPy
COMPLEX = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "conj",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "multiply",
    "negative",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "prod",
    "mean",
    "cumulative_sum",
    "cumulative_prod",
    "matmul",
    "matrix_transpose",
    "vecdot",
    "tensordot",
    "concat",
    "stack",
    "flip",
    "roll",
    "take",
    "where",
    "count_nonzero",
    "any",
    "all",
]


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_numbers_give_stricts_results(name, kind):
    draw = np.random.default_rng(7)
    a, b = ((draw.normal(size=(3, 3)) + 1j * draw.normal(size=(3, 3))).astype(kind) for _ in range(2))
    calls = {
        "concat": lambda xp, x, y: xp.concat([x, y]),
        "stack": lambda xp, x, y: xp.stack([x, y]),
        "roll": lambda xp, x, y: xp.roll(x, 1),
        "take": lambda xp, x, y: xp.take(x, xp.asarray([2, 0]), axis=0),
        "where": lambda xp, x, y: xp.where(xp.real(x) > 0, x, y),
        "tensordot": lambda xp, x, y: xp.tensordot(x, y, axes=1),
        "cumulative_sum": lambda xp, x, y: xp.cumulative_sum(x, axis=0),
        "cumulative_prod": lambda xp, x, y: xp.cumulative_prod(x, axis=0),
    }
    of_two = ("add", "divide", "equal", "multiply", "not_equal", "pow", "subtract", "matmul", "vecdot")
    call = calls.get(name, lambda xp, x, y: getattr(xp, name)(*((x, y) if name in of_two else (x,))))
    found = np.asarray(call(xp, xp.asarray(a), xp.asarray(b)))
    wanted = np.asarray(call(strict, strict.asarray(a), strict.asarray(b)))
    unit = np.finfo(kind).eps
    assert found.dtype == (np.int32 if name == "count_nonzero" else wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=32 * unit, atol=16 * unit * np.abs(wanted).max(initial=0))
