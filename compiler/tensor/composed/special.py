"""Special functions: gamma, the inverse of the error function, Bessel's, and those of whole numbers.

Floats are computed in f32 (f64 for f64) and rounded once, integers give f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.conversions import narrowed, widened

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

EULER = 0.5772156649015329
# Bernoulli's numbers B2, B4, …
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# from here on the series in 1 / x are good to the last place
FAR = 10
# Giles, "Approximating the erfinv function" (2012), single precision: in w - 2.5, and in sqrt(w) - 3 from w = 5 on
ERFINV_NEAR = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
ERFINV_FAR = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
    0.000100950558, -0.000200214257,
)  # fmt: skip
# up to here Bessel's functions are their power series, of so many terms; beyond, series in 1 / x of so many
BESSEL = {dtypes.float32: (10.0, 24, 12), dtypes.float64: (20.0, 44, 24)}


def _zeta_less_1(k: int) -> float:
    """Return the sum of n^-k over n from 2 on, by Euler and Maclaurin from 200 on."""
    tail = 200.0 ** (1 - k) / (k - 1) + 200.0**-k / 2 + k * 200.0 ** (-k - 1) / 12
    return math.fsum(n**-k for n in range(2, 200)) + tail - k * (k + 1) * (k + 2) * 200.0 ** (-k - 3) / 720


# log gamma(2 + z) is z times a power series in z
GAMMA = (1 - EULER, *((-1) ** k * _zeta_less_1(k) / k for k in range(2, 30)))


def _series(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Return the sum of coefficient i times x^i."""
    made = x.full_like(coefficients[-1])
    for factor in coefficients[-2::-1]:
        made = made * x + factor
    return made


def _turned(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return pi times what x is from the nearest whole number, and where x is one."""
    rest = x - x.round()
    return rest * math.pi, rest.eq(0)


# gamma


def lgamma(tensor: Tensor) -> Tensor:
    """Return the logarithm of gamma(x) without its sign, infinite at 0 and the whole numbers below."""
    x = widened(tensor)
    positive = _lgamma_positive((x < 0.5).where(1 - x, x))
    angle, pole = _turned(x)
    mirrored = pole.where(math.inf, math.log(math.pi) - angle.sin().abs().log() - positive)
    made = x.isinf().where(math.inf, (x < 0.5).where(mirrored, positive))
    return narrowed(made._with_rule(_lgamma_rule, x), tensor)


def _lgamma_positive(x: Tensor) -> Tensor:
    """Return log gamma of x from 0.5 on."""
    # down to 1.5 … 2.5: the factors that gamma loses
    near, product = x.minimum(FAR), x.full_like(1)
    for _ in range(FAR - 2):
        large = near > 2.5
        product = large.where(product * (near - 1), product)
        near = large.where(near - 1, near)
    below = near <= 1.5
    z = below.where(near - 1, near - 2)
    small = z * _series(z, GAMMA) - below.where(z, 0).log1p() + product.log()
    far = x.maximum(FAR)
    inverse = 1 / far
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]
    rest = _series(inverse * inverse, terms) * inverse + math.log(2 * math.pi) / 2
    return (x < FAR).where(small, (far - 0.5) * (far.log() - 1) - 0.5 + rest)


def digamma(tensor: Tensor) -> Tensor:
    """Return the slope of log gamma, -infinity at 0, NaN at the whole numbers below."""
    x = widened(tensor)
    far, lost = (x < 0.5).where(1 - x, x), x.full_like(0)
    for _ in range(FAR):
        small = far < FAR
        lost = lost + small.where(1 / far, 0)
        far = small.where(far + 1, far)
    inverse = 1 / far
    square = inverse * inverse
    rest = square * _series(square, [b / (2 * k) for k, b in enumerate(BERNOULLI, 1)])
    positive = far.log() - inverse * 0.5 - rest - lost
    angle, pole = _turned(x)
    mirrored = pole.where(x.eq(0).where(-math.inf, math.nan), positive - math.pi / pole.where(1, angle).tan())
    return narrowed((x < 0.5).where(mirrored, positive)._with_rule(_digamma_rule, x), tensor)


def _trigamma(x: Tensor) -> Tensor:
    """Return the slope of digamma."""
    far, lost = (x < 0.5).where(1 - x, x), x.full_like(0)
    for _ in range(FAR):
        small = far < FAR
        lost = lost + small.where(1 / (far * far), 0)
        far = small.where(far + 1, far)
    inverse = 1 / far
    square = inverse * inverse
    positive = inverse + square * 0.5 + inverse * square * _series(square, BERNOULLI) + lost
    sine = _turned(x)[0].sin()
    return (x < 0.5).where(math.pi**2 / (sine * sine) - positive, positive)


def _lgamma_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * digamma(x),)


def _digamma_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * _trigamma(x),)


# the inverse of the error function


def erfinv(tensor: Tensor) -> Tensor:
    """Return what has this error function: infinite at -1 and 1, NaN beyond."""
    y = widened(tensor)
    size = y.abs()
    inside = (size < 1).where(size, 0)
    w = -((1 - inside) * (1 + inside)).log()
    x = inside * (w < 5).where(_series(w - 2.5, ERFINV_NEAR), _series(w.sqrt() - 3, ERFINV_FAR))
    steps = 1
    if y.dtype is dtypes.float64:
        # nearer to 1 than f32 comes, by the leading terms of erfc
        tail = -((1 - inside) * math.sqrt(math.pi)).log()
        x, steps = (w > 16).where((tail - tail.log() * 0.5).sqrt(), x), 3
    # Halley's steps, of the part that is known without cancellation
    for _ in range(steps):
        apart = (inside > 0.5).where((1 - inside) - x.erfc(), x.erf() - inside)
        step = apart * (math.sqrt(math.pi) / 2) * (x * x).exp()
        x = x - step / (1 + x * step)
    made = (size < 1).where(x, size.eq(1).where(math.inf, math.nan)).copysign(y)
    return narrowed(made._with_rule(_erfinv_rule, y), tensor)


def _erfinv_rule(gradient: Tensor, result: Tensor, y: Tensor) -> tuple[Tensor]:
    return (gradient * (result * result).exp() * (math.sqrt(math.pi) / 2),)


# Bessel's functions


def _bessel(x: Tensor, order: int) -> Tensor:
    """Return the modified function of the first kind of |x|, of order 0 or 1."""
    size = x.abs()
    edge, near, far = BESSEL[x.dtype]
    held = size.minimum(edge) * 0.5
    powers = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(near)]
    small = _series(held * held, powers) * (held if order else 1)
    terms = [1.0]
    for k in range(1, far):
        terms.append(terms[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))
    large = size.maximum(edge)
    # two factors, of which none overflows before the product does
    root = (large * 0.5).exp()
    raised = root * (_series(1 / large, terms) * (2 * math.pi) ** -0.5 * large.rsqrt()) * root
    return (size < edge).where(small, size.isinf().where(math.inf, raised))


def i0(tensor: Tensor) -> Tensor:
    """Return Bessel's modified function of the first kind of order 0."""
    x = widened(tensor)
    return narrowed(_bessel(x, 0)._with_rule(_i0_rule, x), tensor)


def _i0_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * _bessel(x, 1) * x.sign(),)


# whole numbers


def gcd(tensor: Tensor, other: Any) -> Tensor:
    """Return the greatest common divisor of integers, not negative."""
    x, y = _whole(tensor, other, "gcd")
    x, y = x.abs(), y.abs()
    # the most steps that Euclid's algorithm takes: of neighbours in Fibonacci's sequence
    for _ in range(math.ceil(x.dtype.bits * math.log(2) / math.log((1 + math.sqrt(5)) / 2))):
        nothing = y.eq(0)
        x, y = nothing.where(x, y), nothing.where(0, x % nothing.where(1, y))
    return x


def lcm(tensor: Tensor, other: Any) -> Tensor:
    """Return the least common multiple of integers, not negative, 0 where one is."""
    x, y = _whole(tensor, other, "lcm")
    return (x // gcd(x, y).maximum(1) * y).abs()


def _whole(tensor: Tensor, other: Any, what: str) -> list[Tensor]:
    """Return two tensors of one integer type."""
    fitted = tensor._fit(other)
    if not fitted[0].dtype.is_integer:
        raise TypeError(f"{what} of {fitted[0].dtype}: integers only")
    return fitted
