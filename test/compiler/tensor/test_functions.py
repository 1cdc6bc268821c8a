"""Functions are accurate to a few units in the last place over their whole range. The bounds are those of the
docstrings.
"""

import math

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor

WIDE = np.longdouble
HALF_PI = WIDE(np.pi) / 2 + WIDE(6.123233995736766e-17)
erf, erfc = np.vectorize(math.erf, otypes=[float]), np.vectorize(math.erfc, otypes=[float])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# Function to (the true function, least and greatest argument for f32, the same for f64, ulps).
CASES = {
    "exp": (np.exp, (-103, 88.7), (-745, 709), 2),
    "expm1": (np.expm1, (-50, 88.7), (-50, 709), 4),
    "log": (np.log, (1e-38, 3e38), (1e-300, 1e300), 3),
    "log10": (np.log10, (1e-38, 3e38), (1e-300, 1e300), 3),
    "log1p": (np.log1p, (-0.9999, 3e38), (-0.9999, 1e300), 4),
    "sin": (np.sin, (-1e4, 1e4), (-1e2, 1e2), 2),
    "cos": (np.cos, (-1e4, 1e4), (-1e2, 1e2), 4),
    "tan": (np.tan, (-1e4, 1e4), (-1e2, 1e2), 6),
    "asin": (np.arcsin, (-1, 1), (-1, 1), 4),
    "acos": (np.arccos, (-1, 1), (-1, 1), 4),
    "atan": (np.arctan, (-1e30, 1e30), (-1e30, 1e30), 4),
    "sinh": (np.sinh, (-89.4, 89.4), (-710, 710), 4),
    "cosh": (np.cosh, (-89.4, 89.4), (-710, 710), 4),
    "tanh": (np.tanh, (-12, 12), (-25, 25), 6),
    "asinh": (np.arcsinh, (-1e38, 1e38), (-1e300, 1e300), 4),
    "acosh": (np.arccosh, (1, 1e38), (1, 1e300), 4),
    "atanh": (np.arctanh, (-0.99999, 0.99999), (-0.99999, 0.99999), 4),
    "sqrt": (np.sqrt, (0, 1e38), (0, 1e300), 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-38, 1e38), (1e-300, 1e300), 2),
    "cbrt": (np.cbrt, (-1e38, 1e38), (-1e300, 1e300), 3),
    "exp2": (np.exp2, (-126, 127), (-1000, 1000), 1),
    "log2": (np.log2, (1e-38, 3e38), (1e-300, 1e300), 1),
    "sigmoid": (sigmoid, (-87, 100), (-700, 800), 4),
    "softplus": (lambda x: np.logaddexp(WIDE(0), x), (-87, 100), (-700, 800), 4),
    "silu": (lambda x: x * sigmoid(x), (-80, 100), (-690, 800), 4),
    "mish": (lambda x: x * np.tanh(np.logaddexp(WIDE(0), x)), (-80, 100), (-690, 800), 5),
    "erf": (erf, (-6, 6), (-7, 7), 4),
    "erfc": (erfc, (-6, 9.1), (-7, 26), 8),
    "gelu": (lambda x: x * erfc(-np.asarray(x, float) * math.sqrt(0.5)) / 2, (-5, 20), (-2, 40), 8),
}


def arguments(low, high, kind):
    rng = np.random.default_rng(5)
    least = 1e-30 if kind == "float32" else 1e-200
    spread = np.exp(rng.uniform(math.log(least), math.log(max(abs(low), abs(high))), 3000)) * rng.choice([-1, 1], 3000)
    x = np.concatenate([rng.uniform(low, high, 3000), spread[(spread >= low) & (spread <= high)], [low, high]])
    return np.concatenate([x, [np.pi, np.pi / 2, 11 * np.pi / 2, 100 * np.pi]] if high == 1e4 else [x]).astype(kind)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_functions_are_within_their_ulps(name, kind):
    true, single, double, bound = CASES[name]
    x = arguments(*(single if kind == "float32" else double), kind)
    found = getattr(Tensor(x), name)().numpy()
    assert found.dtype == kind
    expected = np.asarray(true(x.astype(np.float64 if kind == "float32" else WIDE)))
    ulp = np.spacing(np.abs(expected).astype(kind)).astype(WIDE)
    off = np.abs(found.astype(WIDE) - expected) / ulp
    worst = int(np.nanargmax(off))
    assert np.isfinite(found).all()
    assert off[worst] <= bound, f"{name}({x[worst]!r}) is {found[worst]!r}, {off[worst]:.2f} ulp off"


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 1e-40, -1e-40, 1e38, -1e38], np.float32)
NUMPY = {"exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt,
    "asin": np.arcsin,
         "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
         "atanh": np.arctanh, "exp2": np.exp2, "reciprocal": np.reciprocal, "cbrt": np.cbrt, "erf": erf, "erfc": erfc, "sin": np.sin,
         "cos": np.cos,
         "tan": np.tan, "sigmoid": sigmoid}  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", NUMPY)
def test_functions_of_zeros_infinities_and_nan(name, kind):
    x = SPECIAL.astype(kind)
    with np.errstate(all="ignore"):
        found, expected = getattr(Tensor(x), name)().numpy(), NUMPY[name](x.astype(np.float64)).astype(kind)
    large = np.abs(x) > 1e30
    keep = ~large if name in ("sin", "cos", "tan") else np.ones(x.shape, bool)
    np.testing.assert_allclose(found[keep], expected[keep], rtol=1e-6 if kind == "float32" else 1e-14, atol=1e-45)
    np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_atan2_in_every_quadrant(kind):
    x = np.array([0.0, -0.0, 1.0, -1.0, 0.3, -7.0, 1e-30, 1e30, np.inf, -np.inf, np.nan], kind)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    found, expected = Tensor(a).atan2(Tensor(b)).numpy(), np.arctan2(a, b)
    np.testing.assert_allclose(found, expected, rtol=5e-7 if kind == "float32" else 1e-15)
    np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_narrow_types_are_computed_in_f32_and_rounded_once(kind):
    x = np.linspace(-4, 4, 500).astype(np.float32)
    t = Tensor(x).cast(kind)
    exact = t.float().numpy().astype(np.float64)
    for name, function in {
        "exp": np.exp,
        "tanh": np.tanh,
        "sigmoid": sigmoid,
        "erf": erf,
        "sin": np.sin,
        "cos": np.cos,
    }.items():
        found = getattr(t, name)()
        assert found.dtype is t.dtype
        off = np.abs(found.float().numpy() - function(exact)) / (np.abs(function(exact)) + 1e-7)
        assert off.max() < {"float16": 2.0**-11, "bfloat16": 2.0**-8}[kind] * 1.02, name


def test_activations():
    x = np.linspace(-8, 8, 101)
    t = Tensor(x)
    minus = np.minimum(x, 0)
    for name, expected in {
        "relu": np.maximum(x, 0),
        "relu6": np.clip(x, 0, 6),
        "leaky_relu": np.where(x > 0, x, 0.01 * x),
        "elu": np.where(x > 0, x, np.expm1(minus)),
        "celu": np.where(x > 0, x, np.expm1(minus)),
        "selu": 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(minus)),
        "logsigmoid": np.log(sigmoid(x)),
        "hardsigmoid": np.clip(x / 6 + 0.5, 0, 1),
        "hardswish": x * np.clip(x + 3, 0, 6) / 6,
        "hardtanh": np.clip(x, -1, 1),
        "softsign": x / (1 + np.abs(x)),
        "quick_gelu": x * sigmoid(1.702 * x),
        "tanhshrink": x - np.tanh(x),
        "hardshrink": np.where(np.abs(x) > 0.5, x, 0),
        "softshrink": np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0)),
    }.items():
        np.testing.assert_allclose(getattr(t, name)().numpy(), expected, rtol=1e-12, atol=1e-15, err_msg=name)
    tanh_form = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(t.gelu("tanh").numpy(), tanh_form, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(t.softplus(2.0).numpy(), np.logaddexp(0, 2 * x) / 2, rtol=1e-13)
    np.testing.assert_allclose(
        Tensor(x).logaddexp(Tensor(x[::-1].copy())).numpy(), np.logaddexp(x, x[::-1]), rtol=1e-13
    )
    assert Tensor([np.inf, -np.inf]).logaddexp(Tensor([np.inf, -np.inf])).tolist() == [np.inf, -np.inf]
    with pytest.raises(ValueError, match="gelu has no form 'x'; there are none, tanh"):
        t.gelu("x")


def test_tails_do_not_break():
    for kind, far in (("float32", 1e30), ("float64", 1e300)):
        t = Tensor(np.array([-far, far, -np.inf, np.inf], kind))
        np.testing.assert_array_equal(t.sigmoid().numpy(), [0, 1, 0, 1])
        np.testing.assert_array_equal(t.softplus().numpy(), np.array([0, far, 0, np.inf], kind))
        np.testing.assert_array_equal(t.tanh().numpy(), [-1, 1, -1, 1])
        np.testing.assert_array_equal(t.erf().numpy(), [-1, 1, -1, 1])
        np.testing.assert_array_equal(t.erfc().numpy(), [2, 0, 2, 0])
        np.testing.assert_array_equal(t.gelu().numpy()[:2], np.array([-0.0, far], kind))
