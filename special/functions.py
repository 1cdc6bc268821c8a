"""Special functions that the language composes of others, under the names of `torch.special`.

Floats are computed in f32 (f64 for f64) and rounded once, integers give f32.
"""

from __future__ import annotations

import math
from typing import Any

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.composed.special import BERNOULLI, BESSEL
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.tensor import Tensor

# from here on a series in 1 / x² gives erfcx to the last place of f64, in so many terms
ERFCX_FAR, ERFCX_TERMS = 8.0, 20
# below this area the quantile begins with the terms of the tail; then so many steps give it to the last place
NDTRI_FAR, NDTRI_STEPS = 1e-5, 4
# terms of Hurwitz's sum before the tail by Euler and Maclaurin
ZETA_TERMS = 10


def _operand(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(value)


def entr(input: Any) -> Tensor:
    """Return -x log x: 0 at 0, -infinity below."""
    given = _operand(input)
    x = widened(given)
    inside = (x > 0).where(x, 1)
    made = (x > 0).where(-x * inside.log(), x.eq(0).where(0.0, -math.inf))
    return narrowed(x.isnan().where(x, made), given)


def erfcx(input: Any) -> Tensor:
    """Return exp(x²) erfc(x), which falls like 1 / x."""
    given = _operand(input)
    x = widened(given)
    # in f64, since what erfc lost relative to 1 is raised by exp(x²)
    wide = x.cast(dtypes.float64)
    near = wide.minimum(ERFCX_FAR)
    far = wide.maximum(ERFCX_FAR)
    inverse = 0.5 / (far * far)
    tail = far.full_like(1)
    for k in range(ERFCX_TERMS, 0, -1):
        tail = 1 - tail * inverse * (2 * k - 1)
    made = (wide < ERFCX_FAR).where((near * near).exp() * near.erfc(), tail / (far * math.sqrt(math.pi)))
    return narrowed(made.cast(x.dtype)._with_rule(_erfcx_rule, x), given)


def _erfcx_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (x * result * 2 - 2 / math.sqrt(math.pi)),)


def ndtr(input: Any) -> Tensor:
    """Return the area under the standard normal density up to x."""
    given = _operand(input)
    x = widened(given)
    scaled = x * math.sqrt(0.5)
    # near 0 by erf, which is exact there; the tail by erfc, which is small
    made = (scaled.abs() < 0.5).where(scaled.erf() * 0.5 + 0.5, (-scaled).erfc() * 0.5)
    return narrowed(made, given)


def log_ndtr(input: Any) -> Tensor:
    """Return the logarithm of `ndtr`, which is accurate far below 0 too."""
    given = _operand(input)
    x = widened(given)
    low = x.minimum(-1.0)
    below = (erfcx(low * -math.sqrt(0.5)) * 0.5).log() - low * low * 0.5
    above = (x.maximum(-1.0) * math.sqrt(0.5)).erfc() * -0.5
    made = (x < -1).where(below, above.log1p())
    return narrowed(made._with_rule(_log_ndtr_rule, x), given)


def _log_ndtr_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    # the density by the area: without overflow as erfcx
    low, high = x.minimum(0.0), x.maximum(0.0)
    below = math.sqrt(2 / math.pi) / erfcx(low * -math.sqrt(0.5))
    above = (high * high * -0.5).exp() * (1 / math.sqrt(2 * math.pi)) / ndtr(high)
    return (gradient * (x < 0).where(below, above),)


def ndtri(input: Any) -> Tensor:
    """Return the number up to which the area under the standard normal density is p: infinite at 0 and 1."""
    given = _operand(input)
    x = widened(given)
    # the lower half in f64, where small areas keep their places
    p = x.cast(dtypes.float64)
    low = (p > 0.5).where(1 - p, p)
    inside = (low > 0).where(low, 0.25)
    logarithm = inside.log()
    # the leading terms of the tail where the area is small, then Newton's steps in the logarithm of the area
    tail = (inside < NDTRI_FAR).where(logarithm, -20.0) * -2
    made = (inside < NDTRI_FAR).where(
        -(tail - (tail * (2 * math.pi)).log()).sqrt(), (inside.maximum(NDTRI_FAR) * 2 - 1).erfinv() * math.sqrt(2)
    )
    for _ in range(NDTRI_STEPS):
        area = log_ndtr(made)
        density = made * made * -0.5 - math.log(2 * math.pi) / 2
        made = made - (area - logarithm) * (area - density).exp()
    made = low.eq(0).where(-math.inf, (low < 0).where(math.nan, made))
    made = (p > 0.5).where(-made, made)
    return narrowed(p.isnan().where(p, made).cast(x.dtype)._with_rule(_ndtri_rule, x), given)


def _ndtri_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (result * result * 0.5).exp() * math.sqrt(2 * math.pi),)


def _scaled_bessel(given: Tensor, order: int) -> Tensor:
    """Return exp(-|x|) times the modified function of the first kind of |x|."""
    x = widened(given)
    size = x.abs()
    edge, near, far = BESSEL[x.dtype]
    held = size.minimum(edge)
    small = held.full_like(0)
    for k in range(near - 1, -1, -1):
        small = small * (held * held * 0.25) + 1 / (math.factorial(k) * math.factorial(k + order))
    if order:
        small = small * held * 0.5
    large = size.maximum(edge)
    term, rest = 1.0, large.full_like(0)
    terms = [term]
    for k in range(1, far):
        term = term * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k)
        terms.append(term)
    for factor in reversed(terms):
        rest = rest / large + factor
    made = (size < edge).where(small * (-held).exp(), rest * (2 * math.pi) ** -0.5 * large.rsqrt())
    return size.isinf().where(0.0, made)


def i0e(input: Any) -> Tensor:
    """Return exp(-|x|) i0(x)."""
    given = _operand(input)
    x = widened(given)
    return narrowed(_scaled_bessel(x, 0)._with_rule(_i0e_rule, x), given)


def _i0e_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (_scaled_bessel(x, 1) - result) * x.sign(),)


def i1e(input: Any) -> Tensor:
    """Return exp(-|x|) i1(x)."""
    given = _operand(input)
    x = widened(given)
    return narrowed((_scaled_bessel(x, 1) * x.sign())._with_rule(_i1e_rule, x), given)


def _i1e_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    flat = x.eq(0)
    inner = flat.where(1, x)
    slope = _scaled_bessel(x, 0) - result * (inner.sign() + 1 / inner)
    return (gradient * flat.where(0.5, slope),)


def i1(input: Any) -> Tensor:
    """Return Bessel's modified function of the first kind of order 1."""
    given = _operand(input)
    x = widened(given)
    # two factors, of which none overflows before the product does
    root = (x.abs() * 0.5).exp()
    made = x.isinf().where(x, root * (_scaled_bessel(x, 1) * x.sign()) * root)
    return narrowed(made._with_rule(_i1_rule, x), given)


def _i1_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    flat = x.eq(0)
    return (gradient * flat.where(0.5, x.i0() - result / flat.where(1, x)),)


def xlog1py(input: Any, other: Any) -> Tensor:
    """Return x log(1 + y), 0 where x is 0, unless y is NaN."""
    x = _operand(input)
    x, y = x._fit(other)
    given = x
    x, y = widened(x), widened(y)
    made = x.eq(0).where(y.isnan().where(y, 0.0), x * x.eq(0).where(1.0, y).log1p())
    return narrowed(made, given)


def zeta(input: Any, other: Any) -> Tensor:
    """Return Hurwitz's zeta function: the sum of (q + k)^-x over k from 0 on, for x above 1 and q above 0."""
    first = _operand(input)
    x, q = first._fit(other)
    given = x
    x, q = widened(x), widened(q)
    valid = (x > 1) & (q > 0)
    s, at = valid.where(x, 2), valid.where(q, 1)
    total = at**-s
    for k in range(1, ZETA_TERMS):
        total = total + (at + k) ** -s
    far = at + ZETA_TERMS
    power = far**-s
    total = total + power * (far / (s - 1) + 0.5)
    # Bernoulli's numbers times x (x + 1) … over (2 k)!
    factor = s * power / far
    for k, number in enumerate(BERNOULLI, 1):
        total = total + factor * (number / math.factorial(2 * k))
        factor = factor * (s + (2 * k - 1)) * (s + 2 * k) / (far * far)
    made = valid.where(total, (x.eq(1) | (x > 1) & (q <= 0) & q.eq(q.floor())).where(math.inf, math.nan))
    return narrowed(made._with_rule(_zeta_rule, x, q), given)


def _zeta_rule(gradient: Tensor, result: Tensor, x: Tensor, q: Tensor) -> tuple[None, Tensor]:
    # by x there is no closed form, and PyTorch has none either
    return None, gradient * (-x * zeta(x + 1, q))


def polygamma(n: int, input: Any) -> Tensor:
    """Return derivative n of digamma, which `polygamma(0, x)` is; x above 0 for the others."""
    given = _operand(input)
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"derivative {n!r} of digamma: a whole number from 0 on")
    if n == 0:
        return given.digamma()
    x = widened(given)
    made = zeta(x.full_like(n + 1.0), x) * ((-1.0) ** (n + 1) * math.factorial(n))
    return narrowed(made, given)
