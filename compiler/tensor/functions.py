"""Mathematical functions, composed of EXP2, LOG2, SIN and polynomials so that f32 and f64 results are good to a few
units in the last place.

f16, bf16 and float8 are computed in f32 and rounded once; integers give f32. The bounds stated hold where EXP2, LOG2
and SIN are within an ulp. Gradients are the functions' own (`_with_rule`), not those of the compositions.
"""

from __future__ import annotations

import math
from typing import Any, Self

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.coefficients import ASIN, ATAN, ERF, ERFC
from ringup.compiler.tensor.elementwise import UNSIGNED, Elementwise

HEAD_MASK = {
    dtypes.float32: 0xFFFF_F000,
    dtypes.float64: 0xFFFF_FFFF_F800_0000,
}  # the upper half of a mantissa: products of two are exact
LOG2_E = {  # log2(e) as that many bits and the rest
    dtypes.float32: (2955 / 2048, 1.4426950408889634 - 2955 / 2048),
    dtypes.float64: (48408813 / (1 << 25), -1.0542692476429138e-8),
}
PI_2_REST = {
    dtypes.float32: -4.371139000186243e-8,
    dtypes.float64: 6.123233995736766e-17,
}  # pi/2 less its rounding to the type
EXP_RANGE = {
    dtypes.float32: (-104.0, 89.0),
    dtypes.float64: (-746.0, 710.0),
}  # beyond: 0 and infinity, whatever the argument
LARGE = {dtypes.float32: 2.0**28, dtypes.float64: 2.0**54}  # x + 1 is x, with room
TANH_ONE = {dtypes.float32: 10.0, dtypes.float64: 20.0}  # tanh is 1 to the last place
HALF_EXP = {
    dtypes.float32: 80.0,
    dtypes.float64: 700.0,
}  # from here sinh and cosh are taken from exp(x/2), which does not overflow


class Functions(Elementwise):
    """exp, log, trigonometry and its like."""

    __slots__ = ()

    def _polynomial(self, coefficients: tuple[float, ...]) -> Self:
        made = self._like(coefficients[-1])
        for factor in coefficients[-2::-1]:
            made = made * self + factor
        return made

    def _head(self) -> Self:
        """Return it cut off to half its mantissa, so that its square is exact."""
        bits = UNSIGNED[self.dtype.bits]
        return (self.bitcast(bits) & HEAD_MASK[self.dtype]).bitcast(self.dtype)

    def sqrt(self) -> Self:
        """Return the square root."""
        x = self if self.dtype.is_float else self.float()
        return x._apply(Op.SQRT)

    def rsqrt(self) -> Self:
        """Return 1 / sqrt(x), within 1 ulp."""
        x = self if self.dtype.is_float else self.float()
        return x._apply(Op.RSQRT)

    def reciprocal(self) -> Self:
        """Return 1 / x."""
        x = self if self.dtype.is_float else self.float()
        return x._apply(Op.RECIP)

    def cbrt(self) -> Self:
        """Return the cube root: a power, and one step of Newton's for the rounding of its exponent."""
        x = self._wide()
        size = x.abs()
        root = size.pow(1 / 3)
        step = (root - size / (root * root)) * (1 / 3)
        made = root.eq(0).logical_or(root.isinf()).where(root, root - step)
        return made.copysign(x)._with_rule(_cbrt_rule, x)._narrow(self)

    def exp2(self) -> Self:
        """Return 2 to the power of x."""
        x = self if self.dtype.is_float else self.float()
        return x._apply(Op.EXP2)

    def log2(self) -> Self:
        """Return the logarithm to base 2."""
        x = self if self.dtype.is_float else self.float()
        return x._apply(Op.LOG2)

    def _exp(self) -> Self:
        """Return e to the power of x within 2 ulp: 2^(x log2 e), the rounding of the product made good to first
        order.
        """
        kind = self.dtype
        head, rest = LOG2_E[kind]
        x = self.clip(*EXP_RANGE[kind])
        product, x_head = x * (head + rest), x._head()
        error = ((x_head * head - product) + (x - x_head) * head) + x * rest
        made = product._apply(Op.EXP2)
        return (made + made * (error * math.log(2)))._with_rule(_exp_rule, self)

    def _exp_negative(self) -> Self:
        """Return e to the power of x, x not above 0, within |x| / 2 + 1 ulp: one product and EXP2, as sums of many such
        need it.
        """
        return (self * math.log2(math.e))._apply(Op.EXP2)._with_rule(_exp_rule, self)

    def exp(self) -> Self:
        """Return e to the power of x, within 2 ulp."""
        return self._wide()._exp()._narrow(self)

    def expm1(self) -> Self:
        """Return exp(x) - 1, within 4 ulp near 0 too: (u - 1) x / log u for u = exp x, in which the errors of u cancel
        (W. Kahan).
        """
        return self._wide()._expm1()._narrow(self)

    def _expm1(self) -> Self:
        raised = self._exp()
        less = raised - 1
        made = less * (self / raised._log())
        made = raised.eq(1).where(self, less.eq(-1).where(less, made))
        return raised.eq(float("inf")).where(raised, made)._with_rule(_expm1_rule, self)

    def log(self) -> Self:
        """Return the natural logarithm, within 3 ulp."""
        return self._wide()._log()._narrow(self)

    def _log(self) -> Self:
        return (self._apply(Op.LOG2) * math.log(2))._with_rule(_log_rule, self)

    def log10(self) -> Self:
        """Return the logarithm to base 10."""
        x = self._wide()
        return (x._apply(Op.LOG2) * math.log10(2))._with_rule(_log10_rule, x)._narrow(self)

    def log1p(self) -> Self:
        """Return log(1 + x), within 4 ulp near 0 too: log(u) x / (u - 1) for u = 1 + x."""
        return self._wide()._log1p()._narrow(self)

    def _log1p(self) -> Self:
        more = self + 1
        made = more._log() * (self / (more - 1))
        made = more.eq(1).where(self, made)
        return more.eq(float("inf")).where(more, made)._with_rule(_log1p_rule, self)

    def logaddexp(self, other: Any) -> Self:
        """Return log(exp(x) + exp(y)) without overflow."""
        x, y = (one._wide() for one in self._fit(other))
        top = x.maximum(y)
        apart = x.eq(y).where(x._like(0), (x - y).abs())  # two equal infinities have no difference
        made = top + (-apart)._exp()._log1p()
        return made._with_rule(_logaddexp_rule, x, y)._narrow(self._fit(other)[0])

    # trigonometry

    def sin(self) -> Self:
        """Return the sine of radians."""
        x = self if self.dtype.is_float else self.float()
        return x._apply(Op.SIN)

    def cos(self) -> Self:
        """Return the cosine of radians, within 4 ulp near its zeros too: sin(2x) / (2 sin x) there, sqrt(1 - sin^2)
        elsewhere.
        """
        return self._wide()._cos()._narrow(self)

    def _cos(self) -> Self:
        most = 2.0**126 if self.dtype is dtypes.float32 else 2.0**1022
        huge = self.abs() >= most  # twice it would overflow: from the half, whose sine gives 1 - 2 sin^2
        x = huge.where(self * 0.5, self)
        sine, double = x._apply(Op.SIN), (x + x)._apply(Op.SIN)
        square = sine * sine
        root = (1 - square).maximum(0)._apply(Op.SQRT)
        near_one = ((double < 0) ^ (sine < 0)).where(-root, root)
        made = (square > 0.25).where(double / (sine + sine), near_one)
        return huge.where(1 - 2 * square, made)._with_rule(_cos_rule, self)

    def tan(self) -> Self:
        """Return the tangent of radians, within 6 ulp."""
        x = self._wide()
        return (x._apply(Op.SIN) / x._cos())._with_rule(_tan_rule, x)._narrow(self)

    def _atan_unit(self) -> Self:
        """Return the arc tangent of x in 0 … 1."""
        far = self > math.tan(math.pi / 8)
        z = far.where((self - 1) / (self + 1), self)
        square = z * z
        made = z + z * (square * square._polynomial(ATAN[self.dtype]))
        return far.where(made + PI_2_REST[self.dtype] / 2 + math.pi / 4, made)

    def atan(self) -> Self:
        """Return the arc tangent, within 4 ulp."""
        x = self._wide()
        size = x.abs()
        outside = size > 1
        inner = outside.where(1 / size, size)._atan_unit()
        made = outside.where(math.pi / 2 - (inner - PI_2_REST[x.dtype]), inner)
        return made.copysign(x)._with_rule(_atan_rule, x)._narrow(self)

    def atan2(self, other: Any) -> Self:
        """Return the angle of the point (other, self), -pi to pi, signs of zeros and infinities as C has them; within 4
        ulp.
        """
        y, x = (one._wide() for one in self._fit(other))
        high, wide = y.abs(), x.abs()
        steep = high > wide
        top, bottom = steep.where(wide, high), steep.where(high, wide)
        quotient = top / bottom
        quotient = top.eq(bottom).where(top.eq(0).where(x._like(0), 1), quotient)  # 0/0 is 0 here, inf/inf 1
        rest = PI_2_REST[x.dtype]
        angle = quotient._atan_unit()
        angle = steep.where(math.pi / 2 - (angle - rest), angle)
        angle = x.signbit().where(math.pi - (angle - 2 * rest), angle).copysign(y)
        return (
            (y + x)
            .isnan()
            .logical_and(y.isnan().logical_or(x.isnan()))
            .where(y + x, angle)
            ._with_rule(_atan2_rule, y, x)
            ._narrow(self._fit(other)[0])
        )

    def _asin_small(self) -> Self:
        square = self * self
        return self + self * (square * square._polynomial(ASIN[self.dtype]))

    def asin(self) -> Self:
        """Return the arc sine, NaN outside of -1 … 1; within 4 ulp."""
        x = self._wide()
        size = x.abs()
        root = ((1 - size) * 0.5)._apply(Op.SQRT)
        large = size > 0.5
        part = large.where(root, size)._asin_small()
        made = large.where(math.pi / 2 - (part + part - PI_2_REST[x.dtype]), part)
        return made.copysign(x)._with_rule(_asin_rule, x)._narrow(self)

    def acos(self) -> Self:
        """Return the arc cosine, NaN outside of -1 … 1; within 4 ulp."""
        x = self._wide()
        size, rest = x.abs(), PI_2_REST[self._compute_dtype()]
        root = ((1 - size) * 0.5)._apply(Op.SQRT)
        large = size > 0.5
        part = large.where(root, x)._asin_small()
        far = (x < 0).where(math.pi - (part + part - 2 * rest), part + part)
        return large.where(far, math.pi / 2 - (part - rest))._with_rule(_acos_rule, x)._narrow(self)

    def _half_exp(self) -> Self:
        """Return exp(x) / 2 where exp(x) itself may overflow."""
        root = (self * 0.5)._exp()
        return (root * 0.5) * root

    def sinh(self) -> Self:
        """Return the hyperbolic sine."""
        x = self._wide()
        size = x.abs()
        less = size._expm1()
        made = (less + less / (less + 1)) * 0.5
        return (
            (size > HALF_EXP[x.dtype]).where(size._half_exp(), made).copysign(x)._with_rule(_sinh_rule, x)._narrow(self)
        )

    def cosh(self) -> Self:
        """Return the hyperbolic cosine."""
        x = self._wide()
        size = x.abs()
        raised = size._exp()
        made = (raised + 1 / raised) * 0.5
        return (size > HALF_EXP[x.dtype]).where(size._half_exp(), made)._with_rule(_cosh_rule, x)._narrow(self)

    def tanh(self) -> Self:
        """Return the hyperbolic tangent, within 6 ulp."""
        return self._wide()._tanh()._narrow(self)

    def _tanh(self) -> Self:
        less = (self.abs().minimum(TANH_ONE[self.dtype]) * 2)._expm1()
        return (less / (less + 2)).copysign(self)._with_rule(_tanh_rule, self)

    def asinh(self) -> Self:
        """Return the inverse hyperbolic sine."""
        x = self._wide()
        size = x.abs()
        large = size > LARGE[x.dtype]
        inner = large.where(x._like(1), size)
        square = inner * inner
        made = (inner + square / (1 + (square + 1)._apply(Op.SQRT)))._log1p()
        return large.where(size._log() + math.log(2), made).copysign(x)._with_rule(_asinh_rule, x)._narrow(self)

    def acosh(self) -> Self:
        """Return the inverse hyperbolic cosine, NaN below 1."""
        x = self._wide()
        large = x > LARGE[x.dtype]
        less = large.where(x._like(1), x) - 1
        made = (less + (less * (less + 2))._apply(Op.SQRT))._log1p()
        made = large.where(x._log() + math.log(2), made)
        return (x < 1).where(x._like(float("nan")), made)._with_rule(_acosh_rule, x)._narrow(self)

    def atanh(self) -> Self:
        """Return the inverse hyperbolic tangent, infinite at 1, NaN beyond."""
        x = self._wide()
        size = x.abs()
        made = ((size + size) / (1 - size))._log1p() * 0.5
        return made.copysign(x)._with_rule(_atanh_rule, x)._narrow(self)

    # the error function

    def _erfc_tail(self, square: Self, square_rest: Self) -> Self:
        """Return erfc of x in 0 … infinity, whose square is `square + square_rest` to twice the precision."""
        x = self.minimum(1e4)
        made = ((x - 3.75) / (x + 3.75))._polynomial(ERFC[self.dtype]) / (1 + (x + x))
        return (-square)._exp() * ((-square_rest)._exp() * made)

    def erf(self) -> Self:
        """Return the error function, within 3 ulp."""
        x = self._wide()
        size = x.abs()
        small = size < 1
        square = size * size
        inner = size * small.where(square, size._like(0))._polynomial(ERF[x.dtype])
        outer = 1 - size._erfc_tail(square.minimum(1e4), square._like(0))
        return small.where(inner, outer).copysign(x)._with_rule(_erf_rule, x)._narrow(self)

    def erfc(self) -> Self:
        """Return 1 - erf(x) without cancellation, within 8 ulp down to where it vanishes."""
        x = self._wide()
        size = x.abs().minimum(1e3)
        head = size._head()
        tail = size._erfc_tail(head * head, (size - head) * (size + head))
        return (x < 0).where(2 - tail, tail)._with_rule(_erfc_rule, x)._narrow(self)


def _exp_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * result,)


def _cbrt_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient / (result * result * 3),)


def _expm1_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * x._exp(),)


def _log_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient / x,)


def _log10_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient / (x * math.log(10)),)


def _log1p_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient / (x + 1),)


def _logaddexp_rule(gradient: Functions, result: Functions, x: Functions, y: Functions) -> tuple[Functions, Functions]:
    return gradient * (x - result)._exp(), gradient * (y - result)._exp()


def _cos_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (-gradient * x.sin(),)


def _tan_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * (1 + result * result),)


def _atan_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient / (1 + x * x),)


def _atan2_rule(gradient: Functions, result: Functions, y: Functions, x: Functions) -> tuple[Functions, Functions]:
    scaled = gradient / (x * x + y * y)
    return scaled * x, -scaled * y


def _asin_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * ((1 - x) * (1 + x)).rsqrt(),)


def _acos_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (-gradient * ((1 - x) * (1 + x)).rsqrt(),)


def _sinh_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * x.cosh(),)


def _cosh_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * x.sinh(),)


def _tanh_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * (1 - result * result),)


def _asinh_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * (x * x + 1).rsqrt(),)


def _acosh_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * ((x - 1) * (x + 1)).rsqrt(),)


def _atanh_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient / ((1 - x) * (1 + x)),)


def _erf_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * (2 / math.sqrt(math.pi)) * (-(x * x))._exp(),)


def _erfc_rule(gradient: Functions, result: Functions, x: Functions) -> tuple[Functions]:
    return (gradient * (-2 / math.sqrt(math.pi)) * (-(x * x))._exp(),)
