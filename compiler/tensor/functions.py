"""Mathematical functions, composed of EXP2, LOG2, SIN and polynomials so that f32 and f64 results are good to a few
units in the last place.

f16, bf16 and float8 are computed in f32 and rounded once; integers give f32. Complex tensors go to the functions of
`complex_numbers`. The bounds stated hold where EXP2, LOG2 and SIN are within an ulp. Gradients are the functions' own
(`_with_rule`), not those of the compositions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.complex_numbers import functions as of_complex
from ringup.compiler.tensor.complex_numbers import trigonometry as turned
from ringup.compiler.tensor.conversions import narrowed, upper_bits, widened
from ringup.compiler.tensor.numbers.coefficients import ASIN, ATAN, ERF, ERFC

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# log2(e) in as many bits, and the rest
LOG2_E = {
    dtypes.float32: (2955 / 2048, 1.4426950408889634 - 2955 / 2048),
    dtypes.float64: (48408813 / (1 << 25), -1.0542692476429138e-8),
}
# pi/2 less its rounding to the type
PI_2_REST = {dtypes.float32: -4.371139000186243e-8, dtypes.float64: 6.123233995736766e-17}
# beyond these arguments exp is 0 or infinity
EXP_RANGE = {dtypes.float32: (-104.0, 89.0), dtypes.float64: (-746.0, 710.0)}
# from here on x + 1 is x
LARGE = {dtypes.float32: 2.0**28, dtypes.float64: 2.0**54}
# from here on tanh is 1 to the last place
TANH_ONE = {dtypes.float32: 10.0, dtypes.float64: 20.0}
# from here on sinh and cosh are taken from exp(x/2), which does not overflow
HALF_EXP = {dtypes.float32: 80.0, dtypes.float64: 700.0}


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """Return the sum of coefficient i times x^i, by Horner's scheme."""
    made = x.full_like(coefficients[-1])
    for factor in coefficients[-2::-1]:
        made = made * x + factor
    return made


def _as_float(tensor: Tensor) -> Tensor:
    """Return floats as they are, integers as f32."""
    return tensor if tensor.dtype.is_float else tensor.float()


def sqrt(tensor: Tensor) -> Tensor:
    """Return the square root."""
    if tensor.dtype.is_complex:
        return of_complex.sqrt(tensor)
    return _as_float(tensor)._apply(Op.SQRT)


def rsqrt(tensor: Tensor) -> Tensor:
    """Return 1 / sqrt(x), within 1 ulp."""
    if tensor.dtype.is_complex:
        return of_complex.rsqrt(tensor)
    return _as_float(tensor)._apply(Op.RSQRT)


def reciprocal(tensor: Tensor) -> Tensor:
    """Return 1 / x."""
    if tensor.dtype.is_complex:
        return of_complex.reciprocal(tensor)
    return _as_float(tensor)._apply(Op.RECIP)


def cbrt(tensor: Tensor) -> Tensor:
    """Return the cube root: a power, and one step of Newton's for the rounding of its exponent."""
    x = widened(tensor)
    size = x.abs()
    root = size.pow(1 / 3)
    step = (root - size / (root * root)) * (1 / 3)
    made = root.eq(0).logical_or(root.isinf()).where(root, root - step)
    return narrowed(made.copysign(x)._with_rule(_cbrt_rule, x), tensor)


def exp2(tensor: Tensor) -> Tensor:
    """Return 2 to the power of x."""
    if tensor.dtype.is_complex:
        return of_complex.exp2(tensor)
    return _as_float(tensor)._apply(Op.EXP2)


def log2(tensor: Tensor) -> Tensor:
    """Return the logarithm to base 2."""
    if tensor.dtype.is_complex:
        return of_complex.log2(tensor)
    return _as_float(tensor)._apply(Op.LOG2)


def exp(tensor: Tensor) -> Tensor:
    """Return e to the power of x, within 2 ulp."""
    if tensor.dtype.is_complex:
        return of_complex.exp(tensor)
    # 2^(x log2 e), with the rounding of the product made good to first order
    x = widened(tensor)
    head, rest = LOG2_E[x.dtype]
    held = x.clip(*EXP_RANGE[x.dtype])
    product, upper = held * (head + rest), upper_bits(held)
    error = ((upper * head - product) + (held - upper) * head) + held * rest
    made = product.exp2()
    return narrowed((made + made * (error * math.log(2)))._with_rule(_exp_rule, x), tensor)


def exp_negative(x: Tensor) -> Tensor:
    """Return e to the power of x, x not above 0, within |x| / 2 + 1 ulp: one product and EXP2, as sums of many such
    need it. x is f32 or f64.
    """
    return (x * math.log2(math.e)).exp2()._with_rule(_exp_rule, x)


def expm1(tensor: Tensor) -> Tensor:
    """Return exp(x) - 1, within 4 ulp near 0 too: (u - 1) x / log u for u = exp x, in which the errors of u cancel
    (W. Kahan).
    """
    if tensor.dtype.is_complex:
        return of_complex.expm1(tensor)
    x = widened(tensor)
    raised = x.exp()
    less = raised - 1
    made = less * (x / raised.log())
    made = raised.eq(1).where(x, less.eq(-1).where(less, made))
    made = raised.eq(float("inf")).where(raised, made)
    return narrowed(made._with_rule(_expm1_rule, x), tensor)


def log(tensor: Tensor) -> Tensor:
    """Return the natural logarithm, within 3 ulp."""
    if tensor.dtype.is_complex:
        return of_complex.log(tensor)
    x = widened(tensor)
    return narrowed((x.log2() * math.log(2))._with_rule(_log_rule, x), tensor)


def log10(tensor: Tensor) -> Tensor:
    """Return the logarithm to base 10."""
    if tensor.dtype.is_complex:
        return of_complex.log10(tensor)
    x = widened(tensor)
    return narrowed((x.log2() * math.log10(2))._with_rule(_log10_rule, x), tensor)


def log1p(tensor: Tensor) -> Tensor:
    """Return log(1 + x), within 4 ulp near 0 too: log(u) x / (u - 1) for u = 1 + x."""
    if tensor.dtype.is_complex:
        return of_complex.log1p(tensor)
    x = widened(tensor)
    more = x + 1
    made = more.log() * (x / (more - 1))
    made = more.eq(1).where(x, made)
    made = more.eq(float("inf")).where(more, made)
    return narrowed(made._with_rule(_log1p_rule, x), tensor)


def logaddexp(tensor: Tensor, other: Any) -> Tensor:
    """Return log(exp(x) + exp(y)) without overflow."""
    fitted = tensor._fit(other)
    x, y = (widened(one) for one in fitted)
    top = x.maximum(y)
    # two equal infinities have no difference
    apart = x.eq(y).where(x.full_like(0), (x - y).abs())
    made = top + (-apart).exp().log1p()
    return narrowed(made._with_rule(_logaddexp_rule, x, y), fitted[0])


# trigonometry


def sin(tensor: Tensor) -> Tensor:
    """Return the sine of radians."""
    if tensor.dtype.is_complex:
        return turned.sin(tensor)
    return _as_float(tensor)._apply(Op.SIN)


def cos(tensor: Tensor) -> Tensor:
    """Return the cosine of radians, within 4 ulp near its zeros too: sin(2x) / (2 sin x) there, sqrt(1 - sin^2)
    elsewhere.
    """
    if tensor.dtype.is_complex:
        return turned.cos(tensor)
    x = widened(tensor)
    # twice a huge x would overflow: its half is taken, whose sine gives 1 - 2 sin^2
    huge = x.abs() >= (2.0**126 if x.dtype is dtypes.float32 else 2.0**1022)
    held = huge.where(x * 0.5, x)
    sine, double = held.sin(), (held + held).sin()
    square = sine * sine
    root = (1 - square).maximum(0).sqrt()
    near_one = ((double < 0) ^ (sine < 0)).where(-root, root)
    made = (square > 0.25).where(double / (sine + sine), near_one)
    made = huge.where(1 - 2 * square, made)
    return narrowed(made._with_rule(_cos_rule, x), tensor)


def tan(tensor: Tensor) -> Tensor:
    """Return the tangent of radians, within 6 ulp."""
    if tensor.dtype.is_complex:
        return turned.tan(tensor)
    x = widened(tensor)
    return narrowed((x.sin() / x.cos())._with_rule(_tan_rule, x), tensor)


def _atan_unit(x: Tensor) -> Tensor:
    """Return the arc tangent of x in 0 … 1."""
    far = x > math.tan(math.pi / 8)
    z = far.where((x - 1) / (x + 1), x)
    square = z * z
    made = z + z * (square * _polynomial(square, ATAN[x.dtype]))
    return far.where(made + PI_2_REST[x.dtype] / 2 + math.pi / 4, made)


def atan(tensor: Tensor) -> Tensor:
    """Return the arc tangent, within 4 ulp."""
    if tensor.dtype.is_complex:
        return turned.atan(tensor)
    x = widened(tensor)
    size = x.abs()
    outside = size > 1
    inner = _atan_unit(outside.where(1 / size, size))
    made = outside.where(math.pi / 2 - (inner - PI_2_REST[x.dtype]), inner)
    return narrowed(made.copysign(x)._with_rule(_atan_rule, x), tensor)


def atan2(tensor: Tensor, other: Any) -> Tensor:
    """Return the angle of the point (x, y), y being this and x `other`: -pi to pi, signs of zeros and infinities as C
    has them; within 4 ulp.
    """
    fitted = tensor._fit(other)
    y, x = (widened(one) for one in fitted)
    high, wide = y.abs(), x.abs()
    steep = high > wide
    top, bottom = steep.where(wide, high), steep.where(high, wide)
    quotient = top / bottom
    # 0/0 is 0 here, inf/inf 1
    quotient = top.eq(bottom).where(top.eq(0).where(x.full_like(0), 1), quotient)
    rest = PI_2_REST[x.dtype]
    angle = _atan_unit(quotient)
    angle = steep.where(math.pi / 2 - (angle - rest), angle)
    angle = x.signbit().where(math.pi - (angle - 2 * rest), angle).copysign(y)
    unknown = (y + x).isnan().logical_and(y.isnan().logical_or(x.isnan()))
    return narrowed(unknown.where(y + x, angle)._with_rule(_atan2_rule, y, x), fitted[0])


def _asin_small(x: Tensor) -> Tensor:
    square = x * x
    return x + x * (square * _polynomial(square, ASIN[x.dtype]))


def asin(tensor: Tensor) -> Tensor:
    """Return the arc sine, NaN outside of -1 … 1; within 4 ulp."""
    if tensor.dtype.is_complex:
        return turned.asin(tensor)
    x = widened(tensor)
    size = x.abs()
    root = ((1 - size) * 0.5).sqrt()
    large = size > 0.5
    part = _asin_small(large.where(root, size))
    made = large.where(math.pi / 2 - (part + part - PI_2_REST[x.dtype]), part)
    return narrowed(made.copysign(x)._with_rule(_asin_rule, x), tensor)


def acos(tensor: Tensor) -> Tensor:
    """Return the arc cosine, NaN outside of -1 … 1; within 4 ulp."""
    if tensor.dtype.is_complex:
        return turned.acos(tensor)
    x = widened(tensor)
    size, rest = x.abs(), PI_2_REST[x.dtype]
    root = ((1 - size) * 0.5).sqrt()
    large = size > 0.5
    part = _asin_small(large.where(root, x))
    far = (x < 0).where(math.pi - (part + part - 2 * rest), part + part)
    return narrowed(large.where(far, math.pi / 2 - (part - rest))._with_rule(_acos_rule, x), tensor)


def _half_exp(x: Tensor) -> Tensor:
    """Return exp(x) / 2 where exp(x) itself may overflow."""
    root = (x * 0.5).exp()
    return (root * 0.5) * root


def sinh(tensor: Tensor) -> Tensor:
    """Return the hyperbolic sine."""
    if tensor.dtype.is_complex:
        return turned.sinh(tensor)
    x = widened(tensor)
    size = x.abs()
    less = size.expm1()
    made = (less + less / (less + 1)) * 0.5
    made = (size > HALF_EXP[x.dtype]).where(_half_exp(size), made)
    return narrowed(made.copysign(x)._with_rule(_sinh_rule, x), tensor)


def cosh(tensor: Tensor) -> Tensor:
    """Return the hyperbolic cosine."""
    if tensor.dtype.is_complex:
        return turned.cosh(tensor)
    x = widened(tensor)
    size = x.abs()
    raised = size.exp()
    made = (raised + 1 / raised) * 0.5
    made = (size > HALF_EXP[x.dtype]).where(_half_exp(size), made)
    return narrowed(made._with_rule(_cosh_rule, x), tensor)


def tanh(tensor: Tensor) -> Tensor:
    """Return the hyperbolic tangent, within 6 ulp."""
    if tensor.dtype.is_complex:
        return turned.tanh(tensor)
    x = widened(tensor)
    less = (x.abs().minimum(TANH_ONE[x.dtype]) * 2).expm1()
    return narrowed((less / (less + 2)).copysign(x)._with_rule(_tanh_rule, x), tensor)


def asinh(tensor: Tensor) -> Tensor:
    """Return the inverse hyperbolic sine."""
    if tensor.dtype.is_complex:
        return turned.asinh(tensor)
    x = widened(tensor)
    size = x.abs()
    large = size > LARGE[x.dtype]
    inner = large.where(x.full_like(1), size)
    square = inner * inner
    made = (inner + square / (1 + (square + 1).sqrt())).log1p()
    made = large.where(size.log() + math.log(2), made)
    return narrowed(made.copysign(x)._with_rule(_asinh_rule, x), tensor)


def acosh(tensor: Tensor) -> Tensor:
    """Return the inverse hyperbolic cosine, NaN below 1."""
    if tensor.dtype.is_complex:
        return turned.acosh(tensor)
    x = widened(tensor)
    large = x > LARGE[x.dtype]
    less = large.where(x.full_like(1), x) - 1
    made = (less + (less * (less + 2)).sqrt()).log1p()
    made = large.where(x.log() + math.log(2), made)
    made = (x < 1).where(x.full_like(float("nan")), made)
    return narrowed(made._with_rule(_acosh_rule, x), tensor)


def atanh(tensor: Tensor) -> Tensor:
    """Return the inverse hyperbolic tangent, infinite at 1, NaN beyond."""
    if tensor.dtype.is_complex:
        return turned.atanh(tensor)
    x = widened(tensor)
    size = x.abs()
    made = ((size + size) / (1 - size)).log1p() * 0.5
    return narrowed(made.copysign(x)._with_rule(_atanh_rule, x), tensor)


# the error function


def erfc_tail(x: Tensor, square: Tensor, square_rest: Tensor) -> Tensor:
    """Return erfc of x in 0 … infinity, whose square is `square + square_rest` to twice the precision."""
    held = x.minimum(1e4)
    made = _polynomial((held - 3.75) / (held + 3.75), ERFC[x.dtype]) / (1 + (held + held))
    return (-square).exp() * ((-square_rest).exp() * made)


def erf(tensor: Tensor) -> Tensor:
    """Return the error function, within 3 ulp."""
    x = widened(tensor)
    size = x.abs()
    small = size < 1
    square = size * size
    inner = size * _polynomial(small.where(square, size.full_like(0)), ERF[x.dtype])
    outer = 1 - erfc_tail(size, square.minimum(1e4), square.full_like(0))
    return narrowed(small.where(inner, outer).copysign(x)._with_rule(_erf_rule, x), tensor)


def erfc(tensor: Tensor) -> Tensor:
    """Return 1 - erf(x) without cancellation, within 8 ulp down to where it vanishes."""
    x = widened(tensor)
    size = x.abs().minimum(1e3)
    upper = upper_bits(size)
    tail = erfc_tail(size, upper * upper, (size - upper) * (size + upper))
    return narrowed((x < 0).where(2 - tail, tail)._with_rule(_erfc_rule, x), tensor)


def _exp_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * result,)


def _cbrt_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient / (result * result * 3),)


def _expm1_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * x.exp(),)


def _log_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient / x,)


def _log10_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient / (x * math.log(10)),)


def _log1p_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient / (x + 1),)


def _logaddexp_rule(gradient: Tensor, result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return gradient * (x - y).sigmoid(), gradient * (y - x).sigmoid()


def _cos_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (-gradient * x.sin(),)


def _tan_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (1 + result * result),)


def _atan_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient / (1 + x * x),)


def _atan2_rule(gradient: Tensor, result: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    square = x * x + y * y
    scaled = square.eq(0).where(0, gradient / square)
    return scaled * x, -scaled * y


def _asin_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * ((1 - x) * (1 + x)).rsqrt(),)


def _acos_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (-gradient * ((1 - x) * (1 + x)).rsqrt(),)


def _sinh_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * x.cosh(),)


def _cosh_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * x.sinh(),)


def _tanh_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (1 - result * result),)


def _asinh_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (x * x + 1).rsqrt(),)


def _acosh_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * ((x - 1) * (x + 1)).rsqrt(),)


def _atanh_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient / ((1 - x) * (1 + x)),)


def _erf_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (2 / math.sqrt(math.pi)) * (-(x * x)).exp(),)


def _erfc_rule(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (gradient * (-2 / math.sqrt(math.pi)) * (-(x * x)).exp(),)
