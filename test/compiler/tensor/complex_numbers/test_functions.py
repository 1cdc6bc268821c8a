"""Functions of complex numbers: values near NumPy's of twice the precision, and what the array API standard says of
zeros, infinities and NaN.
"""

import math

import numpy as np
import pytest

from ringup import Tensor


def log1p(z):
    """Return log(1 + z); NumPy's cancels near 0."""
    x, y = z.real, z.imag
    near = np.log1p(np.where(np.abs(z) < 0.5, x * (x + 2) + y * y, 0)) / 2 + 1j * np.arctan2(y, 1 + x)
    return np.where(np.abs(z) < 0.5, near, np.log(1 + z))


INF, NAN, PI = math.inf, math.nan, math.pi
NUMPY = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "expm1": np.expm1, "log1p": log1p, "log2": np.log2, "log10": np.log10,
    "reciprocal": np.reciprocal, "abs": np.abs, "angle": np.angle, "sign": np.sign, "square": np.square, "exp2": np.exp2,
}  # fmt: skip
# units in the last place of the size, and of each part
BOUND, PART_BOUND = 6, 12


def arguments():
    """Return numbers of many sizes, near the unit circle, near 1, i and -1, and on the axes."""
    draw = np.random.default_rng(3)
    plain = draw.normal(size=60) + 1j * draw.normal(size=60)
    sizes = plain * 10.0 ** draw.integers(-12, 1, 60)
    circle = np.exp(1j * draw.uniform(-PI, PI, 60)) * (1 + draw.normal(size=60) * 1e-3)
    near = (1 + (draw.normal(size=20) + 1j * draw.normal(size=20)) * 1e-3)[:, None] * np.array([1, -1, 1j])
    axes = np.array([0.5, -0.5, 2, -2, 0.5j, -2j, 1e-3, 1 + 1e-7j])
    return np.concatenate([plain, sizes, circle, near.reshape(-1), axes])


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_values_are_numpys(name, kind):
    z = arguments().astype(kind)
    wide = np.longdouble if kind == "complex128" else np.float64
    wanted = NUMPY[name](z.astype(np.clongdouble if wide is np.longdouble else np.complex128))
    found = getattr(Tensor(z), name)().numpy()
    assert found.dtype == (kind if np.iscomplexobj(wanted) else np.dtype(kind).type(0).real.dtype)
    unit = np.finfo(found.dtype).eps / 2
    size = np.abs(wanted)
    error = np.abs(found - wanted) / np.where(size == 0, 1, size) / unit
    assert error.max() <= BOUND, z[error.argmax()]
    if name in ("exp", "sqrt", "sinh", "cosh", "sin", "cos", "asin", "acos", "asinh", "acosh", "tanh", "atanh", "tan"):
        for part in ("real", "imag"):
            want, have = getattr(wanted, part), getattr(found, part)
            some = np.abs(want) > 1e-30
            assert (np.abs(have - want)[some] / np.abs(want[some]) / unit).max() <= PART_BOUND


@pytest.mark.parametrize("name", ["log", "sqrt", "abs", "sign", "atan", "asinh", "acosh", "atanh", "reciprocal"])
def test_great_and_small_numbers_neither_overflow_nor_vanish(name):
    size = np.array([1e-44, 1e-38, 1e-30, 1e-20, 1e20, 1e30, 2e38])
    z = np.concatenate([size * (1 - 0.5j), size * (-0.25 + 1j), size * 1j, size]).astype(np.complex64)
    with np.errstate(all="ignore"):
        wanted = NUMPY[name](z.astype(np.complex128)).astype(np.complex64)
    found = getattr(Tensor(z), name)().numpy()
    some = (np.abs(wanted) < 3e38) & (np.abs(wanted) > 1e-37)
    np.testing.assert_allclose(found[some], wanted[some], rtol=1e-6)


# The array API standard 2025.12, "Special cases" of each function for complex floating-point operands: function,
# operand, result. NaN stands for any; the sign of a zero or infinity is compared unless the standard leaves it open.
CORNERS = [
    ("exp", 0j, 1 + 0j), ("exp", complex(1, INF), complex(NAN, NAN)), ("exp", complex(INF, 0), complex(INF, 0)),
    ("exp", complex(-INF, 2), complex(-0.0, 0)), ("exp", complex(INF, 2), complex(-INF, INF)), ("exp", complex(-INF, INF), 0j),
    ("exp", complex(INF, INF), complex(INF, NAN)), ("exp", complex(-INF, NAN), 0j), ("exp", complex(INF, NAN), complex(INF, NAN)),
    ("exp", complex(NAN, 0), complex(NAN, 0)), ("exp", complex(NAN, 1), complex(NAN, NAN)),
    ("expm1", 0j, 0j), ("expm1", complex(1, INF), complex(NAN, NAN)), ("expm1", complex(INF, 0), complex(INF, 0)),
    ("expm1", complex(-INF, INF), complex(-1, 0)), ("expm1", complex(INF, INF), complex(INF, NAN)),
    ("expm1", complex(-INF, NAN), complex(-1, 0)), ("expm1", complex(NAN, 0), complex(NAN, 0)),
    ("log", complex(-0.0, 0), complex(-INF, PI)), ("log", 0j, complex(-INF, 0)), ("log", complex(1, INF), complex(INF, PI / 2)),
    ("log", complex(-INF, 1), complex(INF, PI)), ("log", complex(INF, 1), complex(INF, 0)),
    ("log", complex(-INF, INF), complex(INF, 3 * PI / 4)), ("log", complex(INF, INF), complex(INF, PI / 4)),
    ("log", complex(INF, NAN), complex(INF, NAN)), ("log", complex(NAN, INF), complex(INF, NAN)),
    ("log", complex(NAN, 1), complex(NAN, NAN)), ("log1p", complex(-1, 0), complex(-INF, 0)), ("log1p", complex(1, INF), complex(INF, PI / 2)),
    ("log1p", complex(-INF, 1), complex(INF, PI)), ("log1p", complex(INF, 1), complex(INF, 0)),
    ("sqrt", 0j, 0j), ("sqrt", complex(-0.0, 0), 0j), ("sqrt", complex(1, INF), complex(INF, INF)),
    ("sqrt", complex(NAN, INF), complex(INF, INF)),
    ("sqrt", complex(-INF, 1), complex(0, INF)), ("sqrt", complex(INF, 1), complex(INF, 0)),
    ("sqrt", complex(INF, NAN), complex(INF, NAN)), ("sqrt", complex(NAN, 1), complex(NAN, NAN)),
    ("sinh", 0j, 0j), ("sinh", complex(0, INF), complex(0, NAN)), ("sinh", complex(0, NAN), complex(0, NAN)),
    ("sinh", complex(1, INF), complex(NAN, NAN)), ("sinh", complex(INF, 0), complex(INF, 0)), ("sinh", complex(INF, 1), complex(INF, INF)),
    ("sinh", complex(INF, INF), complex(INF, NAN)), ("sinh", complex(INF, NAN), complex(INF, NAN)), ("sinh", complex(NAN, 0), complex(NAN, 0)),
    ("cosh", 0j, 1 + 0j), ("cosh", complex(0, INF), complex(NAN, 0)), ("cosh", complex(0, NAN), complex(NAN, 0)),
    ("cosh", complex(INF, 0), complex(INF, 0)), ("cosh", complex(INF, 1), complex(INF, INF)), ("cosh", complex(INF, INF), complex(INF, NAN)),
    ("cosh", complex(NAN, 0), complex(NAN, 0)),
    ("tanh", 0j, 0j), ("tanh", complex(1, INF), complex(NAN, NAN)), ("tanh", complex(0, INF), complex(0, NAN)),
    ("tanh", complex(0, NAN), complex(0, NAN)), ("tanh", complex(INF, 1), complex(1, 0)),
    ("tanh", complex(INF, 2), complex(1, 0)), ("tanh", complex(-INF, -2), complex(-1, -0.0)), ("tanh", complex(INF, INF), complex(1, 0)),
    ("tanh", complex(INF, NAN), complex(1, 0)), ("tanh", complex(NAN, 0), complex(NAN, 0)),
    ("asinh", 0j, 0j), ("asinh", complex(1, INF), complex(INF, PI / 2)), ("asinh", complex(INF, 1), complex(INF, 0)),
    ("asinh", complex(INF, INF), complex(INF, PI / 4)), ("asinh", complex(INF, NAN), complex(INF, NAN)),
    ("asinh", complex(NAN, 0), complex(NAN, 0)), ("asinh", complex(NAN, INF), complex(INF, NAN)),
    ("acos", 0j, complex(PI / 2, -0.0)), ("acos", complex(-0.0, 0), complex(PI / 2, -0.0)), ("acos", complex(0, NAN), complex(PI / 2, NAN)),
    ("acos", complex(1, INF), complex(PI / 2, -INF)), ("acos", complex(-INF, 1), complex(PI, -INF)), ("acos", complex(INF, 1), complex(0, -INF)),
    ("acos", complex(-INF, INF), complex(3 * PI / 4, -INF)), ("acos", complex(INF, INF), complex(PI / 4, -INF)),
    ("acos", complex(INF, NAN), complex(NAN, INF)), ("acos", complex(NAN, INF), complex(NAN, -INF)),
    ("acosh", 0j, complex(0, PI / 2)), ("acosh", complex(1, INF), complex(INF, PI / 2)), ("acosh", complex(-INF, 1), complex(INF, PI)),
    ("acosh", complex(INF, 1), complex(INF, 0)), ("acosh", complex(INF, NAN), complex(INF, NAN)),
    ("acosh", complex(NAN, INF), complex(INF, NAN)),
    ("atanh", 0j, 0j), ("atanh", complex(0, NAN), complex(0, NAN)), ("atanh", complex(1, 0), complex(INF, 0)),
    ("atanh", complex(1, INF), complex(0, PI / 2)), ("atanh", complex(INF, 1), complex(0, PI / 2)),
    ("atanh", complex(INF, NAN), complex(0, NAN)),
    ("atanh", complex(NAN, INF), complex(0, PI / 2)), ("abs", complex(INF, NAN), INF), ("abs", complex(NAN, -INF), INF),
    ("sign", 0j, 0j),
]  # fmt: skip
# parts whose sign the standard leaves open
OPEN = {
    ("acos", "inf+nanj", "imag"),
    ("atanh", "nan+infj", "real"),
    ("atanh", "inf+nanj", "real"),
    ("tanh", "inf+infj", "imag"),
}


@pytest.mark.parametrize(("name", "z", "wanted"), CORNERS, ids=lambda one: str(one))
def test_corners_are_the_array_api_standards(name, z, wanted):
    found = getattr(Tensor(np.array([z], np.complex64)), name)().numpy()[0]
    for part in ("real", "imag"):
        have, want = float(getattr(found, part)), getattr(wanted, part)
        if math.isnan(want):
            assert math.isnan(have)
            continue
        assert abs(have) == pytest.approx(abs(want), rel=1e-6)
        is_open = (name, f"{z.real:g}{z.imag:+g}j", part) in OPEN
        assert is_open or math.copysign(1, have) == math.copysign(1, want)


@pytest.mark.parametrize("name", ["sqrt", "log", "asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_signs_of_zeros_tell_the_sides_of_a_cut_apart(name):
    parts = [complex(x, y) for x in (2.0, -2.0, 0.0, -0.0) for y in (2.0, -2.0, 0.0, -0.0)]
    z = np.array([one for one in parts if 0 in (one.real, one.imag)], np.complex128)
    with np.errstate(all="ignore"):
        wanted = NUMPY[name](z)
    found = getattr(Tensor(z), name)().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15)


def test_powers():
    draw = np.random.default_rng(5)
    z, w = (draw.normal(size=40) + 1j * draw.normal(size=40) for _ in range(2))
    np.testing.assert_allclose((Tensor(z) ** Tensor(w)).numpy(), z**w, rtol=1e-13)
    np.testing.assert_allclose((Tensor(z) ** 2.5).numpy(), z**2.5, rtol=1e-13)
    np.testing.assert_allclose((Tensor(z) ** 0.5).numpy(), np.sqrt(z), rtol=1e-15)
    np.testing.assert_allclose((2 ** Tensor(z)).numpy(), 2**z, rtol=1e-13)
    np.testing.assert_allclose((Tensor(z) ** 100).numpy(), z**100, rtol=1e-12)
    np.testing.assert_allclose((Tensor(np.abs(z)) ** Tensor(w)).numpy(), np.abs(z) ** w, rtol=1e-13)
    zero = Tensor([0j, 0j, 0j, 1j])
    np.testing.assert_array_equal((zero ** Tensor([0j, 2 + 1j, -1 + 0j, 0j])).numpy(), [1, 0, complex(NAN, NAN), 1])


def test_functions_made_of_others():
    z = np.array([0.5 + 0.25j, -1.0 + 2.0j, 0j])
    np.testing.assert_allclose(Tensor(z).sigmoid().numpy(), 1 / (1 + np.exp(-z)), rtol=1e-14)
    np.testing.assert_allclose(Tensor(z).sinc().numpy(), np.sinc(z), rtol=1e-14)
    np.testing.assert_allclose(Tensor([2.0]).float_power(1j).numpy(), np.float_power(2.0, 1j), rtol=1e-14)
    np.testing.assert_array_equal(Tensor([[1.0, 2.0]]).cfloat().adjoint().numpy(), [[1], [2]])
    assert Tensor([1]).cdouble().dtype == "complex128"


def test_predicates_and_rounding_look_at_both_parts():
    z = Tensor([1 + 2j, complex(INF, 0), complex(0, NAN), complex(NAN, INF)])
    assert z.isfinite().tolist() == [True, False, False, False]
    assert z.isinf().tolist() == [False, True, False, True]
    assert z.isnan().tolist() == [False, False, True, True]
    assert Tensor([1.5 - 2.5j]).round().tolist() == [2 - 2j]
    assert Tensor([1 + 0j, 2j]).isreal().tolist() == [True, False]
    assert Tensor([complex(NAN, 1)]).nan_to_num().tolist() == [1j]


def test_the_angle_of_a_real_number_keeps_its_type():
    made = Tensor([-1.5, 2.0], dtype="float16").angle()
    assert made.dtype.name == "float16"
    np.testing.assert_allclose(made.numpy(), [np.pi, 0], rtol=1e-3)
