"""Trigonometric and hyperbolic functions of complex numbers and their inverses.

sin, cos, tan, asin, atan are sinh, cosh, tanh, asinh, atanh at iz, turned back. The inverses are those of W. Kahan,
"Branch Cuts for Complex Elementary Functions" (1987).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringup.compiler.tensor.complex_numbers.functions import analytic, bits, root, sqrt
from ringup.compiler.tensor.complex_numbers.parts import join, split

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# from here on tanh is 1 to the last place
ONE_TANH = {32: 11.0, 64: 22.0}
# from here on the square of a size overflows, or 1 vanishes beside it
LARGE = {32: 2.0**40, 64: 2.0**400}


def _sinh(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    real, imag = x.sinh() * y.cos(), x.cosh() * y.sin()
    real = x.eq(0).where(x, (x.isinf() & ~y.isfinite()).where(math.inf, real))
    return real, y.eq(0).where(y, imag)


def _cosh(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    real, imag = x.cosh() * y.cos(), x.sinh() * y.sin()
    real = (x.isinf() & ~y.isfinite()).where(math.inf, real)
    one = x.full_like(1)
    imag = y.eq(0).where(y * one.copysign(x), x.eq(0).where(x * one.copysign(y), imag))
    return real, imag


def _tanh(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Take it from sinh x and tan y, so that nothing overflows between (W. Kahan)."""
    most = ONE_TANH[bits(x)]
    far = x.abs() > most
    tangent, sine = y.tan(), x.clip(-most, most).sinh()
    square = sine * sine
    beta = tangent * tangent + 1
    below = beta * square + 1
    real, imag = beta * (square + 1).sqrt() * sine / below, tangent / below
    shrunk = (x.abs() * -2).exp()
    real = far.where(x.full_like(1).copysign(x), real)
    imag = far.where(y.sin() * y.cos() * shrunk * 4, imag)
    endless = ~y.isfinite()
    real = (endless & x.isfinite()).where(math.nan, real)
    imag = x.isinf().where(x.full_like(0).copysign(y), y.eq(0).where(y, imag))
    return x.eq(0).where(x, x.isnan().where(x, real)), imag


def _asinh(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return i asin(-iz): the roots of 1 + iz and of 1 - iz."""
    a, b = root(1 - y, x)
    c, d = root(1 + y, -x)
    # no part is lost: the products have one sign
    real = (c * b - a * d).asinh()
    imag = y.atan2(a * c - b * d)
    most, turn = x.abs().maximum(y.abs()), y.abs().atan2(x.abs())
    large = most > LARGE[bits(x)]
    real = (large | x.isinf() | y.isinf()).where(_log_twice(x, y), real.abs()).copysign(x)
    return real, y.eq(0).where(y, large.where(turn.copysign(y), imag))


def _log_twice(x: Tensor, y: Tensor) -> Tensor:
    """Return the logarithm of twice a large size."""
    a, b = x.abs(), y.abs()
    most, least = a.maximum(b), a.minimum(b)
    share = most.isinf().where(0.0, least / most)
    made = most.log() + ((share * share).log1p() * 0.5 + math.log(2))
    return (x.isinf() | y.isinf()).where(math.inf, made)


def _acos(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a, b = root(1 - x, -y)
    c, d = root(1 + x, y)
    real = a.atan2(c) * 2
    imag = (c * b - d * a).asinh()
    large = (x.abs().maximum(y.abs()) > LARGE[bits(x)]) | x.isinf() | y.isinf()
    real = large.where(y.abs().atan2(x), (x.eq(0) & y.isnan()).where(math.pi / 2, real))
    imag = large.where(_log_twice(x, y), imag.abs())
    return real, imag.copysign(-y)


def _atanh(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x.abs(), y.abs()
    most = a.maximum(b)
    large = most > LARGE[bits(x)]
    held, other = large.where(0.0, a), large.where(0.0, y)
    square = other * other
    real = (held * 4 / ((1 - held) * (1 - held) + square)).log1p() * 0.25
    imag = (other * 2).atan2((1 - held) * (1 + held) - square) * 0.5
    size = x.hypot(y)
    real = (large | size.isinf()).where(size.isinf().where(0.0, a / size / size), real)
    imag = ((large | y.isinf()) & ~y.isnan()).where(math.pi / 2, imag.abs())
    return x.eq(0).where(x, real.copysign(x)), imag.copysign(y)


def sinh(tensor: Tensor) -> Tensor:
    """Return the hyperbolic sine."""
    return analytic(join(*_sinh(*split(tensor))), tensor, lambda result, z: z.cosh())


def cosh(tensor: Tensor) -> Tensor:
    """Return the hyperbolic cosine."""
    return analytic(join(*_cosh(*split(tensor))), tensor, lambda result, z: z.sinh())


def tanh(tensor: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return analytic(join(*_tanh(*split(tensor))), tensor, lambda result, z: 1 - result * result)


def sin(tensor: Tensor) -> Tensor:
    """Return the sine."""
    x, y = split(tensor)
    real, imag = _sinh(-y, x)
    return analytic(join(imag, -real), tensor, lambda result, z: z.cos())


def cos(tensor: Tensor) -> Tensor:
    """Return the cosine."""
    x, y = split(tensor)
    return analytic(join(*_cosh(-y, x)), tensor, lambda result, z: -z.sin())


def tan(tensor: Tensor) -> Tensor:
    """Return the tangent."""
    x, y = split(tensor)
    real, imag = _tanh(-y, x)
    return analytic(join(imag, -real), tensor, lambda result, z: result * result + 1)


def asinh(tensor: Tensor) -> Tensor:
    """Return the inverse hyperbolic sine."""
    return analytic(join(*_asinh(*split(tensor))), tensor, lambda result, z: 1 / sqrt(z * z + 1))


def acosh(tensor: Tensor) -> Tensor:
    """Return the inverse hyperbolic cosine, whose real part is not negative: i acos z or -i acos z."""
    x, y = split(tensor)
    real, imag = _acos(x, y)
    made = join(imag.abs(), real.copysign(y))
    return analytic(made, tensor, lambda result, z: 1 / (sqrt(z - 1) * sqrt(z + 1)))


def atanh(tensor: Tensor) -> Tensor:
    """Return the inverse hyperbolic tangent."""
    return analytic(join(*_atanh(*split(tensor))), tensor, lambda result, z: 1 / ((1 - z) * (1 + z)))


def asin(tensor: Tensor) -> Tensor:
    """Return the arc sine."""
    x, y = split(tensor)
    real, imag = _asinh(-y, x)
    return analytic(join(imag, -real), tensor, lambda result, z: 1 / (sqrt(1 - z) * sqrt(1 + z)))


def acos(tensor: Tensor) -> Tensor:
    """Return the arc cosine."""
    return analytic(join(*_acos(*split(tensor))), tensor, lambda result, z: -1 / (sqrt(1 - z) * sqrt(1 + z)))


def atan(tensor: Tensor) -> Tensor:
    """Return the arc tangent."""
    x, y = split(tensor)
    real, imag = _atanh(-y, x)
    return analytic(join(imag, -real), tensor, lambda result, z: 1 / (z * z + 1))
