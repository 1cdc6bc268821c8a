"""Operators and conversions give NumPy's results, over types and edge values."""

import operator

import ml_dtypes
import numpy as np
import pytest

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import Tensor

FLOATS = ("float16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-3, 1e4, -6e4, np.inf, -np.inf, np.nan]


def floats(kind):
    x = np.array(EDGES, kind)
    return np.repeat(x, len(x)), np.tile(x, len(x))


def integers(kind):
    info = np.iinfo(kind)
    x = np.array(
        sorted(
            {
                info.min,
                info.min + 1,
                info.max,
                info.max - 1,
                0,
                1,
                2,
                3,
                5,
                7,
                100,
                *([-1, -2, -3, -7] if info.min else []),
            }
        ),
        kind,
    )
    return np.repeat(x, len(x)), np.tile(x, len(x))


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "mod", "lt", "le", "gt", "ge", "eq", "ne"])
def test_float_operators_are_numpys(kind, name):
    x, y = floats(kind)
    found = getattr(operator, name)(Tensor(x), Tensor(y)).numpy()
    expected = getattr(operator, name)(x.astype(np.float32) if kind == "float16" and name == "mod" else x, y)
    np.testing.assert_array_equal(found, expected.astype(found.dtype))


@pytest.mark.parametrize("kind", INTS)
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"]
)
def test_integer_operators_are_numpys_and_wrap(kind, name):
    x, y = integers(kind)
    found = getattr(operator, name)(Tensor(x), Tensor(y)).numpy()
    expected = getattr(operator, name)(x, y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", INTS)
def test_shifts_past_the_width_shift_everything_out(kind):
    bits = np.iinfo(kind).bits
    x = integers(kind)[0]
    for by in (0, 1, bits - 1, bits, bits + 3, 100):
        wide = [int(one) for one in x]
        left = [one << by if by < bits else 0 for one in wide]
        np.testing.assert_array_equal(
            (Tensor(x) << by).numpy(),
            np.array([one & (1 << bits) - 1 for one in left], np.uint64).astype(f"uint{bits}").view(kind),
        )
        np.testing.assert_array_equal((Tensor(x) >> by).numpy(), np.array([one >> by for one in wide], kind))


@pytest.mark.parametrize("kind", FLOATS)
def test_floor_division_of_floats_is_numpys(kind):
    x, y = floats(kind)
    found = (Tensor(x) // Tensor(y)).numpy()
    expected = np.floor_divide(x.astype(np.float64), y.astype(np.float64)) if kind != "float64" else x // y
    # Above these numbers, the quotient itself is rounded.
    small = np.abs(expected) < {"float16": 1e3, "float32": 1e6, "float64": 1e15}[kind]
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(found[small | special], expected[small | special].astype(kind))


def test_powers():
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, np.inf, -np.inf, np.nan], np.float32)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    np.testing.assert_array_equal((Tensor(a) ** Tensor(b)).numpy(), a**b)
    np.testing.assert_array_equal((Tensor(x) ** 2).numpy(), x * x)
    np.testing.assert_array_equal((2 ** Tensor(x)).numpy(), 2**x)
    for kind in INTS:
        a, b = integers(kind)
        keep = (b >= 0) & (b < 200)
        np.testing.assert_array_equal((Tensor(a[keep]) ** Tensor(b[keep])).numpy(), a[keep] ** b[keep])
    np.testing.assert_array_equal((Tensor([2, 1, -1, -1, 0]) ** Tensor([-1, -5, -3, -2, -1])).numpy(), [0, 1, -1, 1, 0])
    with pytest.raises(ValueError, match="power of -1: cast it to a float type"):
        Tensor([1, 2]) ** -1


def test_python_numbers_adapt_and_reflect():
    x = np.array([1, 2, 3], np.int8)
    t = Tensor(x)
    for made, expected, kind in (
        (5 - t, 5 - x, "int8"),
        (t + 1.5, x + 1.5, "float32"),
        (7 // t, 7 // x, "int8"),
        (7 % t, 7 % x, "int8"),
        (1 / t, (1 / x), "float32"),
        (2**t, 2**x, "int8"),
        (1 << t, 1 << x, "int8"),
        (64 >> t, 64 >> x, "int8"),
        (6 & t, 6 & x, "int8"),
        (Tensor(x.astype(np.float16)) * 2.5, x * 2.5, "float16"),
        (Tensor([True, False]) + 1, [2, 1], "int32"),
        (np.array([10, 20, 30], np.int8) - t, [9, 18, 27], "int8"),
        (Tensor(x.astype(np.float32)) + [0.5, 0.5, 0.5], x + 0.5, "float32"),  # noqa: RUF005
    ):
        assert made.dtype.name == kind
        np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"a whole number of 1329 bits does not fit float32"):
        Tensor([1.5]) + 10**400
    with pytest.raises(ValueError, match=r"300 does not fit int8 \(-128 to 127\); cast the tensor"):
        t + 300
    with pytest.raises(TypeError, match="do not go together"):
        t + "x"


def test_bools():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    x, y = Tensor(a), Tensor(b)
    for made, expected in ((x + y, a + b), (x * y, a * b), (x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a), (x < y, a < b),
                           (x <= y, a <= b), (x == y, a == b), (x.maximum(y), a | b), (x.logical_not(), ~a),
                           (x.logical_xor(y), a ^ b)):  # fmt: skip
        assert made.dtype is dtypes.bool_
        np.testing.assert_array_equal(made.numpy(), expected)
    for wrong in (
        lambda: x - y,
        lambda: -x,
        lambda: x << y,
        lambda: Tensor([1.0]) & 1,
        lambda: ~Tensor([1.0]),
        lambda: x // y,
    ):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("kind", FLOATS)
def test_rounding_and_signs(kind):
    x = np.array([*EDGES, 1.5, 2.5, -0.5, -1.5, 0.49, 7.9], kind)
    t = Tensor(x)
    for name in ("floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "signbit"):
        np.testing.assert_array_equal(getattr(t, name)().numpy(), getattr(np, name)(x), err_msg=name)
    np.testing.assert_array_equal(t.round().numpy(), np.rint(x))
    np.testing.assert_array_equal(abs(t).numpy(), np.abs(x))
    np.testing.assert_array_equal(t.sign().numpy(), np.sign(x))
    a, b = floats(kind)
    found = Tensor(a).copysign(Tensor(b)).numpy()
    np.testing.assert_array_equal(found, np.copysign(a, b))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(b))
    np.testing.assert_array_equal(Tensor(a).maximum(Tensor(b)).numpy(), np.maximum(a, b))
    np.testing.assert_array_equal(Tensor(a).minimum(Tensor(b)).numpy(), np.minimum(a, b))
    np.testing.assert_array_equal(t.clip(-1, 2).numpy(), np.clip(x, -1, 2))
    np.testing.assert_array_equal(Tensor(a).fmod(Tensor(b)).numpy(), np.fmod(a, b))
    np.testing.assert_allclose(
        Tensor([1.2345, -2.5]).round(2).numpy(), np.round(np.float32([1.2345, -2.5]), 2), rtol=1e-6
    )


def test_where_broadcasts_three_ways_and_wants_a_bool():
    c = np.array([[True], [False]])
    x, y = np.arange(3, dtype=np.float32), np.arange(6, dtype=np.float64).reshape(2, 1, 3)
    found = Tensor(c).where(Tensor(x), Tensor(y))
    assert found.dtype.name == "float64"
    np.testing.assert_array_equal(found.numpy(), np.where(c, x, y))
    np.testing.assert_array_equal(Tensor(c).where(1, 2.5).numpy(), np.where(c, 1, 2.5))
    np.testing.assert_array_equal(Tensor(x).masked_fill(Tensor(x) > 1, -1).numpy(), [0, 1, -1])
    with pytest.raises(TypeError, match="the condition is a bool tensor"):
        Tensor(x).where(1, 2)


VALUES = [
    0.0,
    -0.0,
    0.4,
    0.5,
    1.5,
    -1.5,
    100.7,
    -128.9,
    127.5,
    255.9,
    256.0,
    3e4,
    7e4,
    -3e9,
    3e9,
    2.0**31,
    2.0**63,
    -(2.0**63),
    1e20,
    -1e20,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize("kind", INTS)
def test_floats_to_integers_cut_off_and_saturate(kind):
    info = np.iinfo(kind)
    expected = [0 if x != x else int(np.clip(x, info.min, info.max)) if abs(x) == np.inf else min(max(int(x), info.min), info.max)
                for x in (v if abs(v) != np.inf and v == v else 0 if v != v else (1e30 if v > 0 else -1e30) for v in VALUES)]  # fmt: skip
    for source in ("float32", "float64"):
        exact = np.array(VALUES, source)
        again = [
            0
            if v != v
            else min(max(int(v), info.min), info.max)
            if np.isfinite(v)
            else (info.max if v > 0 else info.min)
            for v in exact.tolist()
        ]
        found = Tensor(exact).cast(kind).numpy()
        assert [int(v) for v in found] == again
    assert len(expected) == len(VALUES)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_narrow_floats_round_once(kind):
    narrow = np.dtype(getattr(ml_dtypes, kind, kind))
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(0, 1, 200), rng.normal(0, 100, 50), [0, 1e-8, -0.0, 448, 1e-3]]).astype(np.float32)
    y = rng.normal(0, 2, x.size).astype(np.float32)
    a, b = x.astype(narrow), y.astype(narrow)
    t, u = Tensor(a), Tensor(b)
    np.testing.assert_array_equal(t.numpy().view(f"u{narrow.itemsize}"), a.view(f"u{narrow.itemsize}"))
    for op in (operator.add, operator.sub, operator.mul, operator.truediv):
        found = op(t, u)
        assert found.dtype is t.dtype
        expected = op(a.astype(np.float32), b.astype(np.float32)).astype(narrow)
        np.testing.assert_array_equal(found.numpy().astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(Tensor(x).cast(t.dtype).numpy().astype(np.float32), a.astype(np.float32))
    np.testing.assert_array_equal(np.array(t.tolist(), np.float32), a.astype(np.float32))


def test_casts_from_wide_types_to_bf16_round_once_only():
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40, 1 + 3 * 2.0**-8])
    found = Tensor(x).cast("bfloat16").cast("float32").numpy()
    np.testing.assert_array_equal(found, [1 + 2.0**-7, 1, 1, 1 + 2.0**-6])
    assert Tensor(np.array([(1 << 24) + (1 << 16) + 1])).cast("bfloat16").float().item() == (1 << 24) + (1 << 17)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "int32"),
        ("uint8", "float32"),
        ("uint8", "int16"),
        ("int64", "uint8"),
        ("float64", "uint16"),
        ("uint8", "int8"),
    ],
)
def test_view_is_numpys_view_of_the_bytes(source, target):
    x = np.frombuffer(np.random.default_rng(3).bytes(64), source).reshape(2, -1)
    np.testing.assert_array_equal(Tensor(x).view(target).numpy().view(np.uint8), x.view(target).view(np.uint8))


def test_types_meet_as_the_lattice_says():
    assert (Tensor([1], "int32") + Tensor([1.0], "float16")).dtype is dtypes.float16
    assert (Tensor([1.0], "bfloat16") + Tensor([1.0], "float16")).dtype is dtypes.float32
    assert (Tensor([1], "int8") * Tensor([1], "uint8")).dtype is dtypes.int16
    assert (Tensor([1]) / Tensor([2])).dtype is dtypes.float32


def test_from_scalars_lists_arrays_and_dlpack():
    assert Tensor(3).dtype is dtypes.int32
    assert Tensor(2.5).dtype is dtypes.float32
    assert Tensor(True).dtype is dtypes.bool_
    assert Tensor([1, 2]).dtype is dtypes.int32
    assert Tensor([1 << 40]).dtype is dtypes.int64
    assert Tensor([1.5]).dtype is dtypes.float32
    assert Tensor([0.1], dtype="float64").item() == 0.1
    assert Tensor([]).shape == (0,)
    source = np.arange(6.0).reshape(2, 3)
    t = Tensor(source)
    # The tensor has copied the bytes.
    source[0, 0] = 99
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Tensor.from_dlpack(source).tolist() == source.tolist()
    assert np.from_dlpack(t).tolist() == t.tolist()
    assert np.asarray(t).tolist() == t.tolist()
    assert Tensor(source.T).tolist() == source.T.tolist()
    assert Tensor(source.astype(">f8")).tolist() == source.tolist()
    for wrong, error in (
        ([[1], [1, 2]], ValueError),
        ("abc", TypeError),
        (np.array([1j], np.clongdouble), TypeError),
        ([None], TypeError),
    ):
        with pytest.raises(error):
            Tensor(wrong)
    with pytest.raises(ValueError, match="no element type 'float12'"):
        Tensor([1], "float12")
    with pytest.raises(ValueError, match="hold one element"):
        Tensor([1, 2]).item()
    with pytest.raises(
        TypeError, match=r"the truth of a tensor of shape \[2\]: only one element has it; there is any\(\) or all\(\)"
    ):
        bool(Tensor([1, 2]) == 1)


def test_no_tensor_equals_none_or_a_text():
    x = Tensor([1.0, 2.0])
    assert (x == None) is False  # noqa: E711
    assert (x != None) is True  # noqa: E711
    assert (x == "x") is False
    assert x not in [None, "x"]
    with pytest.raises(TypeError, match="do not go together"):
        x.eq(None)
