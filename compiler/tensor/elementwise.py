"""Operators and simple functions of one element: arithmetic, comparison, bits, choice, rounding.

Python numbers take the type of the tensor beside them. A function whose name starts with `reverse` has its operands the
other way round, for a number or an array to the left of a tensor.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.complex_numbers import functions as of_complex
from ringup.compiler.tensor.complex_numbers import parts
from ringup.compiler.tensor.conversions import SIGNED, UNSIGNED, narrowed, widened
from ringup.compiler.tensor.core import Core, broadcast_shapes, refuse_complex, spread
from ringup.compiler.tensor.indexing import as_elements

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# the types in which a quotient's floor is exact or, where it has more digits than the elements, far from every number
# at which their rounding changes
QUOTIENTS = {
    dtypes.float8_e4m3: dtypes.float32,
    dtypes.float8_e5m2: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
    dtypes.float16: dtypes.float64,
    dtypes.float32: dtypes.float64,
    dtypes.float64: dtypes.float64,
}
# what arithmetic is on bools; the rest is refused, as NumPy does
BOOL_OPS = {Op.ADD: Op.OR, Op.MUL: Op.AND, Op.MAX: Op.OR, Op.MIN: Op.AND}


def _binary(tensor: Tensor, op: Op, other: object, *, reverse: bool = False) -> Tensor:
    x, y = tensor._fit(other)
    if reverse:
        x, y = y, x
    if x.dtype.kind == "bool":
        if op not in BOOL_OPS:
            raise TypeError(f"{op.value} of two bool tensors: cast one to an integer or a float type")
        op = BOOL_OPS[op]
    return x._apply(op, y)


def _compare(tensor: Tensor, op: Op, other: object, *, reverse: bool = False) -> Tensor:
    if isinstance(other, (int, float)) and not isinstance(other, bool) and not tensor.dtype.is_complex:
        tensor = tensor.cast(dtypes.uint8) if tensor.dtype.kind == "bool" else tensor
        find = _among_floats if tensor.dtype.is_float else _among_integers
        found = find(tensor.dtype, op, other, reverse=reverse)
        if isinstance(found, bool):
            return tensor._constant(found, dtypes.bool_, tensor.shape)
        op, other = found
    lifted = tensor._lift(other)
    x, y = (lifted, tensor) if reverse else (tensor, lifted)
    if {x.dtype.kind, y.dtype.kind} == {"int", "uint"} and dtypes.promote(x.dtype, y.dtype).is_float:
        return _compare_signed(x, op, y)
    x, y = x._fit(y)
    if x.dtype.kind == "bool" and op in (Op.LT, Op.LE):
        x, y = x.cast(dtypes.uint8), y.cast(dtypes.uint8)
    return x._apply(op, y)


def _compare_signed(x: Tensor, op: Op, y: Tensor) -> Tensor:
    """Compare integers of which one is uint64 and the other has a sign, exactly: whether that is negative, and if not,
    as uint64.
    """
    signed = x if x.dtype.kind == "int" else y
    made = _compare(x.cast(dtypes.uint64), op, y.cast(dtypes.uint64))
    less_holds = op is Op.NE or (op is not Op.EQ and signed is x)
    return made.logical_or(signed < 0) if less_holds else made.logical_and(signed >= 0)


def _among_integers(kind: DType, op: Op, number: float, *, reverse: bool) -> bool | tuple[Op, int]:
    """Return the comparison with a whole number of the type that gives what the one with `number` gives, or its one
    result where the number lies outside of the type or between two of its numbers.
    """
    if op in (Op.EQ, Op.NE):
        fits = math.isfinite(number) and number == math.trunc(number) and dtypes.fits(number, kind)
        return (op, int(number)) if fits else op is Op.NE
    if math.isnan(number):
        return False
    if number < kind.least or number > kind.greatest:
        return (number > 0) is not reverse
    return op, math.ceil(number) if (op is Op.LT) is not reverse else math.floor(number)


def _among_floats(kind: DType, op: Op, number: float, *, reverse: bool) -> bool | tuple[Op, float]:
    """Return the comparison with a number of a float type that gives what the one with `number` gives, which may be
    too large for the type, or its one result.
    """
    if dtypes.fits(number, kind):
        return op, number
    if op in (Op.EQ, Op.NE):
        return op is Op.NE
    infinite, positive = kind is not dtypes.float8_e4m3, number > 0
    if positive is reverse and not infinite:
        return False
    # all finite numbers lie on the same side of it, which infinity does not
    edge = kind.greatest if positive else kind.least
    return (Op.LT if positive is not reverse and infinite else Op.LE), float(edge)


def _bits(tensor: Tensor, op: Op, other: object, *, reverse: bool = False) -> Tensor:
    x, y = tensor._fit(other)
    if x.dtype.is_inexact or (x.dtype.kind == "bool" and op in (Op.SHL, Op.SHR)):
        raise TypeError(
            f"{op.value} of {tensor.dtype} and {y.dtype}: integers only{' or bools' if op not in (Op.SHL, Op.SHR) else ''}"
        )
    return y._apply(op, x) if reverse else x._apply(op, y)


def add(tensor: Tensor, other: Any) -> Tensor:
    """Return the sum."""
    return _binary(tensor, Op.ADD, other)


def reverse_add(tensor: Tensor, other: Any) -> Tensor:
    """Return the sum."""
    return _binary(tensor, Op.ADD, other, reverse=True)


def sub(tensor: Tensor, other: Any) -> Tensor:
    """Return the difference."""
    return _binary(tensor, Op.SUB, other)


def reverse_sub(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` less this."""
    return _binary(tensor, Op.SUB, other, reverse=True)


def mul(tensor: Tensor, other: Any) -> Tensor:
    """Return the product."""
    return _binary(tensor, Op.MUL, other)


def reverse_mul(tensor: Tensor, other: Any) -> Tensor:
    """Return the product."""
    return _binary(tensor, Op.MUL, other, reverse=True)


def div(tensor: Tensor, other: Any, *, reverse: bool = False) -> Tensor:
    """Return the quotient as a float: integers are divided in f32."""
    x, y = tensor._fit(other)
    if reverse:
        x, y = y, x
    if not x.dtype.is_inexact:
        x, y = x.cast(dtypes.float32), y.cast(dtypes.float32)
    return x._apply(Op.DIV, y)


def reverse_div(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` divided by this, as `div` does."""
    return div(tensor, other, reverse=True)


def floordiv(tensor: Tensor, other: Any, *, reverse: bool = False) -> Tensor:
    """Return the floor of the exact quotient as Python's //, rounded once; integers by zero give 0, floats what /
    gives. Its slope is 0.
    """
    x, y = tensor._fit(other)
    if reverse:
        x, y = y, x
    if not x.dtype.is_float:
        # of complex numbers an error
        return _binary(x, Op.IDIV, y)
    given = x, y
    wide = QUOTIENTS[x.dtype]
    left, right = x.cast(wide), y.cast(wide)
    below = (x < 0) ^ (y < 0)
    if x.dtype.bits >= 32:
        rest = x.abs() % y.abs()
        more = below.logical_and(rest.ne(0)).cast(wide)
        whole = _whole_quotient(left.abs(), right.abs(), rest.cast(wide), more, halves=x.dtype is wide)
        made = below.where(-whole, whole)
    else:
        made = (left / right).floor()
    # what lies between -1 and 0 may have vanished
    made = made.eq(0).logical_and(below).logical_and(x.ne(0)).where(-1.0, made)
    made = x.isinf().where(float("nan"), made)
    return y.eq(0).where(left / right, made).cast(x.dtype)._with_rule(_no_slopes, *given)


def _whole_quotient(x: Tensor, y: Tensor, rest: Tensor, more: Tensor, *, halves: bool) -> Tensor:
    """Return (x - rest) / y, a whole number, plus 0 or 1, of f64, none negative. With `halves`, for f64 elements, in
    two parts, each of which is exact; from 2**91 on it is the rounded quotient.
    """
    near = ((x - rest) / y).round()
    if not halves:
        return near + more
    unit = y * 2.0**40
    upper = x % unit
    parts = ((x - upper) / unit).round() * 2.0**40 + (((upper - rest) / y).round() + more)
    return (near < 2.0**51).where(near + more, (near < 2.0**91).where(parts, x / y))


def reverse_floordiv(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` divided by this, as `floordiv` does."""
    return tensor.floordiv(other, reverse=True)


def mod(tensor: Tensor, other: Any) -> Tensor:
    """Return the remainder with the sign of the divisor, as Python's %."""
    return _binary(tensor, Op.MOD, other)


def reverse_mod(tensor: Tensor, other: Any) -> Tensor:
    """Return the remainder of `other` divided by this."""
    return _binary(tensor, Op.MOD, other, reverse=True)


def fmod(tensor: Tensor, other: Any) -> Tensor:
    """Return the remainder with the sign of the dividend, as C's fmod and %."""
    x, y = tensor._fit(other)
    if x.dtype.is_float:
        return (x.abs() % y.abs()).copysign(x)._with_rule(_fmod_rule, x, y)
    rest = x % y
    if x.dtype.kind != "int":
        return rest
    # % has the sign of the divisor: one divisor less has the other one
    return rest.ne(0).logical_and((x < 0) ^ (y < 0)).where(rest - y, rest)


def power(tensor: Tensor, other: Any, *, reverse: bool = False) -> Tensor:
    """Return the power: C's pow for floats, by repeated squaring for integers (negative exponents give 0 but for 1
    and -1). An integer to the power of a float is a float, whatever that float is. Complex numbers are multiplied up
    to a power of 64, and are exp(y log x) otherwise.
    """
    if not reverse and isinstance(other, (int, float)) and tensor.dtype.kind != "bool":
        if other == 2 and (tensor.dtype.is_inexact or isinstance(other, int)):
            return tensor * tensor
        if tensor.dtype.is_integer and isinstance(other, int) and other < 0:
            raise ValueError(f"an integer tensor to the power of {other}: cast it to a float type first")
        if tensor.dtype.is_complex and abs(other) <= of_complex.MAX_PRODUCTS and other == int(other):
            return of_complex.whole_power(tensor, int(other))
        if tensor.dtype.is_complex and other == 0.5:
            return of_complex.sqrt(tensor)
    x, y = tensor._fit(other)
    if x.dtype.is_complex:
        return of_complex.power(y, x) if reverse else of_complex.power(x, y)
    if x.dtype.kind == "bool":
        x, y = x.cast(dtypes.int32), y.cast(dtypes.int32)
    return y._apply(Op.POW, x) if reverse else x._apply(Op.POW, y)


def reverse_power(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` to the power of this."""
    return tensor.pow(other, reverse=True)


def neg(tensor: Tensor) -> Tensor:
    """Return it with its sign changed."""
    if tensor.dtype.kind == "bool":
        raise TypeError("minus of a bool tensor: use ~, or cast it to a number type")
    return tensor._apply(Op.NEG)


def pos(tensor: Tensor) -> Tensor:
    """Return it as it is."""
    return tensor


def absolute(tensor: Tensor) -> Tensor:
    """Return its absolute value."""
    if tensor.dtype.is_complex:
        return parts.absolute(tensor)
    return tensor if tensor.dtype.kind in ("bool", "uint") else tensor._apply(Op.ABS)


def invert(tensor: Tensor) -> Tensor:
    """Return it with every bit inverted; bools become their opposite."""
    if tensor.dtype.is_inexact:
        raise TypeError(f"~ of {tensor.dtype}: integers and bools only")
    return tensor._apply(Op.NOT)


def bits_and(tensor: Tensor, other: Any) -> Tensor:
    """Return the bits set in both."""
    return _bits(tensor, Op.AND, other)


def reverse_bits_and(tensor: Tensor, other: Any) -> Tensor:
    """Return the bits set in both."""
    return _bits(tensor, Op.AND, other, reverse=True)


def bits_or(tensor: Tensor, other: Any) -> Tensor:
    """Return the bits set in either."""
    return _bits(tensor, Op.OR, other)


def reverse_bits_or(tensor: Tensor, other: Any) -> Tensor:
    """Return the bits set in either."""
    return _bits(tensor, Op.OR, other, reverse=True)


def bits_xor(tensor: Tensor, other: Any) -> Tensor:
    """Return the bits set in exactly one."""
    return _bits(tensor, Op.XOR, other)


def reverse_bits_xor(tensor: Tensor, other: Any) -> Tensor:
    """Return the bits set in exactly one."""
    return _bits(tensor, Op.XOR, other, reverse=True)


def shift_left(tensor: Tensor, other: Any) -> Tensor:
    """Return it with its bits shifted left by `other`."""
    return _bits(tensor, Op.SHL, other)


def reverse_shift_left(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` with its bits shifted left by this."""
    return _bits(tensor, Op.SHL, other, reverse=True)


def shift_right(tensor: Tensor, other: Any) -> Tensor:
    """Return it with its bits shifted right by `other`."""
    return _bits(tensor, Op.SHR, other)


def reverse_shift_right(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` with its bits shifted right by this."""
    return _bits(tensor, Op.SHR, other, reverse=True)


def less(tensor: Tensor, other: Any) -> Tensor:
    """Return where it is less than `other`."""
    return _compare(tensor, Op.LT, other)


def greater(tensor: Tensor, other: Any) -> Tensor:
    """Return where it is greater than `other`."""
    return _compare(tensor, Op.LT, other, reverse=True)


def less_equal(tensor: Tensor, other: Any) -> Tensor:
    """Return where it is at most `other`."""
    return _compare(tensor, Op.LE, other)


def greater_equal(tensor: Tensor, other: Any) -> Tensor:
    """Return where it is at least `other`."""
    return _compare(tensor, Op.LE, other, reverse=True)


def eq(tensor: Tensor, other: Any) -> Tensor:
    """Return where the two are equal."""
    return _compare(tensor, Op.EQ, other)


def ne(tensor: Tensor, other: Any) -> Tensor:
    """Return where the two differ; NaN differs from itself."""
    return _compare(tensor, Op.NE, other)


def equals(tensor: Tensor, other: Any) -> Tensor:
    """Return where the two are equal; not for None and texts, to which Python finds no tensor equal."""
    return cast("Tensor", NotImplemented) if other is None or isinstance(other, str) else eq(tensor, other)


def differs(tensor: Tensor, other: Any) -> Tensor:
    """Return where the two differ; not for None and texts, from which Python finds every tensor different."""
    return cast("Tensor", NotImplemented) if other is None or isinstance(other, str) else ne(tensor, other)


def maximum(tensor: Tensor, other: Any) -> Tensor:
    """Return the greater of the two, NaN if either is."""
    return _binary(tensor, Op.MAX, other)


def minimum(tensor: Tensor, other: Any) -> Tensor:
    """Return the lesser of the two, NaN if either is."""
    return _binary(tensor, Op.MIN, other)


def clip(tensor: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """Return it held between `low` and `high`; either may be None or a tensor. NaN stays NaN. Where it equals a number
    given as a bound its slope is 1, and it shares with a tensor.
    """
    made = tensor if low is None else tensor.maximum(low)
    made = made if high is None else made.minimum(high)
    if made is tensor or not made.dtype.is_float:
        return made
    if all(one is None or _is_number(one) for one in (low, high)):
        rule = partial(_clip_rule, -math.inf if low is None else low, math.inf if high is None else high)
        return made._with_rule(rule, tensor) if tensor.dtype.is_float else made
    return made if low is None or high is None else made._with_rule(_between_rule, *tensor._fit(low, high))


def where(tensor: Tensor, yes: Any, no: Any) -> Tensor:
    """Return `yes` where this bool tensor is true, `no` elsewhere; all three broadcast."""
    if tensor.dtype.kind != "bool":
        raise TypeError(f"where on {tensor.dtype}: the condition is a bool tensor, such as t != 0")
    first = tensor._of((no._lift(yes) if isinstance(no, Core) else _number(tensor, yes))._node)
    second = first._lift(no) if isinstance(yes, Core) or not _is_number(no) else _number(tensor, no)
    kind = dtypes.promote(first.dtype, second.dtype)
    shape = broadcast_shapes(tensor.shape, first.shape, second.shape)
    nodes = (spread(tensor._node, shape), *(spread(graph.cast(one._node, kind), shape) for one in (first, second)))
    return tensor._of(graph.node(Op.WHERE, kind, shape, nodes))


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _number(tensor: Tensor, value: Any) -> Tensor:
    """Return a value as a tensor of its own type."""
    if _is_number(value):
        return tensor._constant(value, dtypes.of_scalar(value))
    return tensor._lift(value)


def masked_fill(tensor: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Return it with `value` where the bool `mask` is true; the mask broadcasts to this shape. A number that does not
    fit this type is a ValueError.
    """
    return tensor._of(mask._node).where(as_elements(tensor, value).cast(tensor.dtype), tensor)


# predicates


def isnan(tensor: Tensor) -> Tensor:
    """Return where it is NaN."""
    return tensor.ne(tensor) if tensor.dtype.is_inexact else tensor._constant(False, dtypes.bool_, tensor.shape)


def isinf(tensor: Tensor) -> Tensor:
    """Return where it is plus or minus infinity; where a part of a complex number is."""
    if tensor.dtype.is_complex:
        return tensor.real.isinf() | tensor.imag.isinf()
    has = tensor.dtype.is_float and tensor.dtype is not dtypes.float8_e4m3
    return tensor.abs().eq(float("inf")) if has else tensor._constant(False, dtypes.bool_, tensor.shape)


def isfinite(tensor: Tensor) -> Tensor:
    """Return where it is neither infinite nor NaN."""
    if tensor.dtype.is_complex:
        return tensor.real.isfinite() & tensor.imag.isfinite()
    if not tensor.dtype.is_float:
        return tensor._constant(True, dtypes.bool_, tensor.shape)
    return tensor.abs() < float("inf") if tensor.dtype is not dtypes.float8_e4m3 else tensor.eq(tensor)


def signbit(tensor: Tensor) -> Tensor:
    """Return where the sign bit is set: negative numbers, -0.0, negative NaNs."""
    if tensor.dtype.kind in ("bool", "uint"):
        return tensor._constant(False, dtypes.bool_, tensor.shape)
    if tensor.dtype.is_complex:
        refuse_complex("signbit", tensor.dtype)
    return (tensor.bitcast(SIGNED[tensor.dtype.bits]) if tensor.dtype.is_float else tensor) < 0


def logical_not(tensor: Tensor) -> Tensor:
    """Return where it is zero or false."""
    return ~tensor.bool()


def logical_and(tensor: Tensor, other: Any) -> Tensor:
    """Return where both are nonzero."""
    return tensor.bool() & _truth(tensor, other)


def logical_or(tensor: Tensor, other: Any) -> Tensor:
    """Return where either is nonzero."""
    return tensor.bool() | _truth(tensor, other)


def logical_xor(tensor: Tensor, other: Any) -> Tensor:
    """Return where exactly one is nonzero."""
    return tensor.bool() ^ _truth(tensor, other)


def _truth(tensor: Tensor, other: Any) -> Tensor:
    """Return where an operand is not zero; a number may be of any size."""
    return tensor._lift(bool(other) if _is_number(other) else other).bool()


# rounding and signs


def _rounded(tensor: Tensor, op: Op) -> Tensor:
    return tensor._apply(op) if tensor.dtype.is_inexact else tensor


def floor(tensor: Tensor) -> Tensor:
    """Return it rounded down."""
    return _rounded(tensor, Op.FLOOR)


def ceil(tensor: Tensor) -> Tensor:
    """Return it rounded up."""
    return _rounded(tensor, Op.CEIL)


def trunc(tensor: Tensor) -> Tensor:
    """Return it rounded toward zero."""
    return _rounded(tensor, Op.TRUNC)


def round_to(tensor: Tensor, decimals: int = 0) -> Tensor:
    """Return it rounded to nearest, halves to even; to `decimals` places by a multiplication, as NumPy does. Integers
    are rounded for negative `decimals`, exactly, and complex numbers part by part.
    """
    if tensor.dtype.is_complex:
        return parts.each(tensor, lambda part: part.round(decimals))
    if tensor.dtype.is_float and decimals:
        return _rounded_places(tensor, decimals)
    if tensor.dtype.is_integer and decimals < 0:
        return _rounded_whole(tensor, 10**-decimals)
    return _rounded(tensor, Op.ROUND)


def _rounded_places(tensor: Tensor, decimals: int) -> Tensor:
    x = widened(tensor)
    scale = 10.0 ** min(abs(decimals), 400 if x.dtype is dtypes.float64 else 60)
    if decimals < 0:
        made = (x / scale).round() * scale if dtypes.fits(scale, x.dtype) else x * 0
    elif not dtypes.fits(scale, x.dtype):
        return tensor
    else:
        # from here on every number is whole
        whole = 2.0 ** (x.dtype.mantissa_bits + 1)
        scaled = x * scale
        made = (scaled.abs() < whole).where(scaled.round() / scale, x)
    return narrowed(made, tensor)


def _rounded_whole(tensor: Tensor, unit: int) -> Tensor:
    """Return integers rounded to multiples of an even number, halves to even ones; what overflows wraps."""
    half = unit // 2
    if half > int(tensor.dtype.greatest):
        return tensor.full_like(0)
    if unit > int(tensor.dtype.greatest):
        wrapped = tensor._constant(unit, tensor.dtype, tensor.shape)
        made = (tensor > half).where(wrapped, 0)
        return made if tensor.dtype.kind == "uint" else (tensor < -half).where(-wrapped, made)
    whole, rest = tensor // unit, tensor % unit
    odd = (whole % 2).ne(0)
    more = (rest > half).logical_or(rest.eq(half).logical_and(odd))
    return (whole + more.cast(tensor.dtype)) * unit


def sign(tensor: Tensor) -> Tensor:
    """Return -1, 0 or 1 as the sign is, 0 of -0.0 too; NaN stays NaN. A complex number is divided by its size."""
    if tensor.dtype.is_complex:
        return parts.sign(tensor)
    if tensor.dtype.kind == "bool":
        return tensor
    still = tensor.eq(0).where(tensor.full_like(0), tensor) if tensor.dtype.is_float else tensor
    positive = (tensor > 0).where(tensor.full_like(1), still)
    made = positive if tensor.dtype.kind == "uint" else (tensor < 0).where(tensor.full_like(-1), positive)
    return made._with_rule(no_slope, tensor) if tensor.dtype.is_float else made


def copysign(tensor: Tensor, other: Any) -> Tensor:
    """Return it with the sign of `other`, bit by bit."""
    x, y = tensor._fit(other)
    if x.dtype.is_complex:
        refuse_complex("copysign", x.dtype)
    if not x.dtype.is_float:
        x, y = x.cast(dtypes.float32), y.cast(dtypes.float32)
    bits = UNSIGNED[x.dtype.bits]
    top = 1 << x.dtype.bits - 1
    made = ((x.bitcast(bits) & (top - 1)) | (y.bitcast(bits) & top)).bitcast(x.dtype)
    return made._with_rule(_copysign_rule, x, y)


def lerp(tensor: Tensor, end: Any, weight: Any) -> Tensor:
    """Return the point between this (weight 0) and `end` (weight 1)."""
    x = tensor if tensor.dtype.is_inexact else tensor.float()
    return x + x._lift(end).sub(x).mul(weight)


def square(tensor: Tensor) -> Tensor:
    """Return it times itself."""
    return tensor * tensor


def no_slope(gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    """Return the gradient of a function whose slope is 0 wherever it has one."""
    return (x.full_like(0),)


def _no_slopes(_gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.full_like(0), y.full_like(0)


def _copysign_rule(gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, None]:
    slope = (x.signbit() == y.signbit()).where(gradient, -gradient)
    return x.eq(0).where(0, slope), None


def _fmod_rule(gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return gradient, -gradient * (x / y).trunc()


def _clip_rule(low: float, high: float, gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    return ((x >= low).logical_and(x <= high).where(gradient, 0),)


def _between_rule(
    gradient: Tensor, _result: Tensor, x: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    crossed, apart = low > high, low < high
    below = (x < low).logical_and(~crossed)
    above = crossed.logical_or(x > high)
    half, with_low, with_high = gradient * 0.5, apart.logical_and(x.eq(low)), apart.logical_and(x.eq(high))
    outside = (x < low).logical_or(x > high)
    by_x = outside.where(0, with_low.logical_or(with_high).where(half, gradient))
    by_low = below.where(gradient, with_low.where(half, 0))
    return by_x, by_low, above.where(gradient, with_high.where(half, 0))
