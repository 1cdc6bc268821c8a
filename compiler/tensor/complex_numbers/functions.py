"""Exponentials, logarithms, roots and powers of complex numbers.

Where a function f is analytic, the gradient by its operand is that of the result times the conjugate of f'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringup.compiler.tensor.complex_numbers.parts import join, split
from ringup.compiler.tensor.conversions import upper_bits

if TYPE_CHECKING:
    from ringup.compiler.graph.dtypes import DType
    from ringup.compiler.tensor.tensor import Tensor

# from here on exp is taken in two steps, since the size alone may overflow
LARGE_EXP = {32: 80.0, 64: 700.0}
# parts above the first are scaled down before they are squared, below the second scaled up
LARGE_SQUARE = {32: 2.0**124, 64: 2.0**1020}
SMALL_SQUARE = {32: 2.0**-100, 64: 2.0**-960}
# exponents up to here are products
MAX_PRODUCTS = 64


def analytic(made: Tensor, tensor: Tensor, slope: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the result of an analytic function with its gradient; `slope` gets the result and the operand."""

    def rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
        return (gradient * slope(result, x).conj(),)

    return made._with_rule(rule, tensor)


def bits(tensor: Tensor) -> int:
    """Return the bits of one part."""
    kind: DType = tensor.dtype
    return kind.part.bits


def raised(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of exp(x + iy)."""
    large = x > LARGE_EXP[bits(x)]
    power = large.where(x * 0.5, x).exp()
    again = large.where(power, 1.0)
    real, imag = power * y.cos() * again, power * y.sin() * again
    # zero times infinity and what an endless turn leaves open
    endless = ~y.isfinite()
    gone = endless & x.eq(-math.inf)
    real = gone.where(0.0, (endless & x.eq(math.inf)).where(math.inf, real))
    imag = gone.where(0.0, y.eq(0).where(y, imag))
    return real, imag


def exp(tensor: Tensor) -> Tensor:
    """Return e to the power of z."""
    return analytic(join(*raised(*split(tensor))), tensor, lambda result, z: result)


def exp2(tensor: Tensor) -> Tensor:
    """Return 2 to the power of z."""
    return exp(tensor * math.log(2))


def expm1(tensor: Tensor) -> Tensor:
    """Return exp(z) - 1 without the loss of digits near 0."""
    x, y = split(tensor)
    real, imag = raised(x, y)
    half = (y * 0.5).sin()
    near = x.expm1() * y.cos() - half * half * 2
    real = ((x.abs() < 1) & y.isfinite()).where(near, real - 1)
    real = (x.eq(0) & y.eq(0)).where(0.0, real)
    return analytic(join(real, imag), tensor, lambda result, z: result + 1)


def _log_size(x: Tensor, y: Tensor) -> Tensor:
    """Return the logarithm of the size of x + iy."""
    a, b = x.abs(), y.abs()
    most, least = a.maximum(b), a.minimum(b)
    share = (most.eq(0) | most.isinf()).where(0.0, least / most)
    far = most.log() + (share * share).log1p() * 0.5
    # near the unit circle from the size's square less 1, with squares in two parts each
    held = most.clip(0.25, 4.0)
    first, second = upper_bits(held), upper_bits(least)
    rest = (held - first) * (held + first) + (least - second) * (least + second)
    near = (((first * first - 1) + second * second) + rest).log1p() * 0.5
    made = ((most > 0.5) & (most < 2)).where(near, far)
    infinite = x.isinf() | y.isinf()
    return infinite.where(math.inf, made)


def log(tensor: Tensor) -> Tensor:
    """Return the natural logarithm; its imaginary part lies in -pi to pi."""
    x, y = split(tensor)
    return analytic(join(_log_size(x, y), y.atan2(x)), tensor, lambda result, z: 1 / z)


def log2(tensor: Tensor) -> Tensor:
    """Return the logarithm to base 2."""
    return log(tensor) * math.log2(math.e)


def log10(tensor: Tensor) -> Tensor:
    """Return the logarithm to base 10."""
    return log(tensor) * math.log10(math.e)


def log1p(tensor: Tensor) -> Tensor:
    """Return log(1 + z) without the loss of digits near 0."""
    x, y = split(tensor)
    small = (x.abs() < 0.5) & (y.abs() < 0.5)
    near = (x * (x + 2) + y * y).log1p() * 0.5
    real = small.where(near, _log_size(x + 1, y))
    return analytic(join(real, y.atan2(x + 1)), tensor, lambda result, z: 1 / (z + 1))


def root(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of the square root of x + iy, the real one not negative."""
    a, b = x.abs(), y.abs()
    most, width = a.maximum(b), bits(x)
    large, small = most > LARGE_SQUARE[width], most < SMALL_SQUARE[width]
    up = 2.0**48 if width == 32 else 2.0**200
    one = x.full_like(1)
    scale = large.where(0.25, small.where(up, one))
    back = large.where(2.0, small.where(1 / math.sqrt(up), one))
    c, d = a * scale, b * scale
    greater = ((c + c.hypot(d)) * 0.5).sqrt()
    lesser = greater.eq(0).where(0.0, d / (greater + greater))
    left = x.signbit()
    real, imag = left.where(lesser, greater) * back, left.where(greater, lesser) * back
    # beside an infinity
    real = y.isinf().where(math.inf, x.eq(math.inf).where(x, real))
    real = (x.eq(-math.inf) & y.isfinite()).where(0.0, real)
    imag = (y.isinf() | x.eq(-math.inf)).where(math.inf, (x.eq(math.inf) & y.isfinite()).where(0.0, imag))
    return real, (x.eq(math.inf) & y.isnan()).where(y, imag.copysign(y))


def sqrt(tensor: Tensor) -> Tensor:
    """Return the square root whose real part is not negative."""
    return analytic(join(*root(*split(tensor))), tensor, lambda result, z: 0.5 / result)


def rsqrt(tensor: Tensor) -> Tensor:
    """Return 1 / sqrt(z)."""
    return reciprocal(sqrt(tensor))


def reciprocal(tensor: Tensor) -> Tensor:
    """Return 1 / z."""
    return tensor.full_like(1) / tensor


def whole_power(tensor: Tensor, exponent: int) -> Tensor:
    """Return the power with a whole exponent by repeated squaring."""
    if exponent < 0:
        return reciprocal(whole_power(tensor, -exponent))
    if exponent == 0:
        return tensor.full_like(1)
    made, base = None, tensor
    while exponent:
        if exponent % 2:
            made = base if made is None else made * base
        exponent //= 2
        base = base * base if exponent else base
    return made if made is not None else tensor


def power(tensor: Tensor, exponent: Tensor) -> Tensor:
    """Return z to a power of one type and shape with it: exp(w log z); 0 to a power is 0, or 1 for 0."""
    zero, none = tensor.eq(0), exponent.eq(0)
    held = zero.where(tensor.full_like(1), tensor)
    made = exp(exponent * log(held))
    positive = split(exponent)[0] > 0
    made = zero.where(positive.where(tensor.full_like(0), tensor.full_like(complex(math.nan, math.nan))), made)
    made = none.where(tensor.full_like(1), made)
    return made._with_rule(_power_rule, tensor, exponent)


def _power_rule(gradient: Tensor, result: Tensor, z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    by_base = w.eq(0).where(z.full_like(0), gradient * (w * power(z, w - 1)).conj())
    still = z.eq(0) & (split(w)[0] >= 0)
    held = z.eq(0).where(z.full_like(1), z)
    return by_base, still.where(z.full_like(0), gradient * (result * log(held)).conj())
