"""Operators and simple functions of one element: arithmetic, comparison, bits, choice, rounding.

Python numbers take the type of the tensor beside them. A function whose name starts with `reverse` has its operands the
other way round, for a number or an array to the left of a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.conversions import SIGNED, UNSIGNED
from ringup.compiler.tensor.core import Core, broadcast_shapes, spread

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

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
    x, y = tensor._fit(other)
    if reverse:
        x, y = y, x
    if x.dtype.kind == "bool" and op in (Op.LT, Op.LE):
        x, y = x.cast(dtypes.uint8), y.cast(dtypes.uint8)
    return x._apply(op, y)


def _bits(tensor: Tensor, op: Op, other: object, *, reverse: bool = False) -> Tensor:
    x, y = tensor._fit(other)
    if x.dtype.is_float or (x.dtype.kind == "bool" and op in (Op.SHL, Op.SHR)):
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
    if not x.dtype.is_float:
        x, y = x.cast(dtypes.float32), y.cast(dtypes.float32)
    return x._apply(Op.DIV, y)


def reverse_div(tensor: Tensor, other: Any) -> Tensor:
    """Return `other` divided by this, as `div` does."""
    return div(tensor, other, reverse=True)


def floordiv(tensor: Tensor, other: Any, *, reverse: bool = False) -> Tensor:
    """Return the quotient rounded down as Python's //; integers by zero give 0, floats what / gives."""
    x, y = tensor._fit(other)
    if reverse:
        x, y = y, x
    if not x.dtype.is_float:
        return _binary(x, Op.IDIV, y)
    whole = ((x - x % y) / y).round()
    beside_infinity = ((x < 0) ^ (y < 0)).logical_and(x.ne(0)).where(x.full_like(-1), 0)
    return y.eq(0).where(x / y, y.isinf().logical_and(x.isfinite()).where(beside_infinity, whole))


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
        return (x.abs() % y.abs()).copysign(x)
    rest = x.abs() % y.abs() if x.dtype.kind == "int" else x % y
    return (x < 0).where(-rest, rest) if x.dtype.kind == "int" else rest


def power(tensor: Tensor, other: Any, *, reverse: bool = False) -> Tensor:
    """Return the power: C's pow for floats, by repeated squaring for integers (negative exponents give 0 but for 1
    and -1).
    """
    if not reverse and not isinstance(other, Core) and tensor.dtype.kind != "bool":
        if other == 2:
            return tensor * tensor
        if tensor.dtype.is_integer and isinstance(other, int) and other < 0:
            raise ValueError(f"an integer tensor to the power of {other}: cast it to a float type first")
    x, y = tensor._fit(other)
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
    return tensor if tensor.dtype.kind in ("bool", "uint") else tensor._apply(Op.ABS)


def invert(tensor: Tensor) -> Tensor:
    """Return it with every bit inverted; bools become their opposite."""
    if tensor.dtype.is_float:
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


def maximum(tensor: Tensor, other: Any) -> Tensor:
    """Return the greater of the two, NaN if either is."""
    return _binary(tensor, Op.MAX, other)


def minimum(tensor: Tensor, other: Any) -> Tensor:
    """Return the lesser of the two, NaN if either is."""
    return _binary(tensor, Op.MIN, other)


def clip(tensor: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """Return it held between `low` and `high`; either may be None or a tensor. NaN stays NaN."""
    made = tensor if low is None else tensor.maximum(low)
    return made if high is None else made.minimum(high)


def where(tensor: Tensor, yes: Any, no: Any) -> Tensor:
    """Return `yes` where this bool tensor is true, `no` elsewhere; all three broadcast."""
    if tensor.dtype.kind != "bool":
        raise TypeError(f"where on {tensor.dtype}: the condition is a bool tensor, such as t != 0")
    if isinstance(yes, Core):
        first = tensor._of(yes._node)
    elif isinstance(no, Core):
        first = tensor._of(no._lift(yes)._node)
    else:
        first = _number(tensor, yes)
    second = first._lift(no)
    kind = dtypes.promote(first.dtype, second.dtype)
    shape = broadcast_shapes(tensor.shape, first.shape, second.shape)
    nodes = (spread(tensor._node, shape), *(spread(graph.cast(one._node, kind), shape) for one in (first, second)))
    return tensor._of(graph.node(Op.WHERE, kind, shape, nodes))


def _number(tensor: Tensor, value: Any) -> Tensor:
    """Return a value as a tensor of its own type."""
    if isinstance(value, (bool, int, float)):
        return tensor._constant(value, dtypes.of_scalar(value))
    return tensor._lift(value)


def masked_fill(tensor: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Return it with `value` where the bool `mask` is true; the mask broadcasts to this shape."""
    return tensor._of(mask._node).where(tensor._lift(value).cast(tensor.dtype), tensor)


# predicates


def isnan(tensor: Tensor) -> Tensor:
    """Return where it is NaN."""
    return tensor.ne(tensor) if tensor.dtype.is_float else tensor._constant(False, dtypes.bool_, tensor.shape)


def isinf(tensor: Tensor) -> Tensor:
    """Return where it is plus or minus infinity."""
    has = tensor.dtype.is_float and tensor.dtype is not dtypes.float8_e4m3
    return tensor.abs().eq(float("inf")) if has else tensor._constant(False, dtypes.bool_, tensor.shape)


def isfinite(tensor: Tensor) -> Tensor:
    """Return where it is neither infinite nor NaN."""
    if not tensor.dtype.is_float:
        return tensor._constant(True, dtypes.bool_, tensor.shape)
    return tensor.abs() < float("inf") if tensor.dtype is not dtypes.float8_e4m3 else tensor.eq(tensor)


def signbit(tensor: Tensor) -> Tensor:
    """Return where the sign bit is set: negative numbers, -0.0, negative NaNs."""
    if tensor.dtype.kind in ("bool", "uint"):
        return tensor._constant(False, dtypes.bool_, tensor.shape)
    return (tensor.bitcast(SIGNED[tensor.dtype.bits]) if tensor.dtype.is_float else tensor) < 0


def logical_not(tensor: Tensor) -> Tensor:
    """Return where it is zero or false."""
    return ~tensor.bool()


def logical_and(tensor: Tensor, other: Any) -> Tensor:
    """Return where both are nonzero."""
    return tensor.bool() & tensor._lift(other).bool()


def logical_or(tensor: Tensor, other: Any) -> Tensor:
    """Return where either is nonzero."""
    return tensor.bool() | tensor._lift(other).bool()


def logical_xor(tensor: Tensor, other: Any) -> Tensor:
    """Return where exactly one is nonzero."""
    return tensor.bool() ^ tensor._lift(other).bool()


# rounding and signs


def _rounded(tensor: Tensor, op: Op) -> Tensor:
    return tensor._apply(op) if tensor.dtype.is_float else tensor


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
    """Return it rounded to nearest, halves to even; to `decimals` places by a multiplication, as NumPy does."""
    if decimals == 0 or not tensor.dtype.is_float:
        return _rounded(tensor, Op.ROUND)
    scale = 10.0 ** abs(decimals)
    return (tensor * scale).round() / scale if decimals > 0 else (tensor / scale).round() * scale


def sign(tensor: Tensor) -> Tensor:
    """Return -1, 0 or 1 as the sign is; zeros and NaN stay themselves."""
    if tensor.dtype.kind == "bool":
        return tensor
    positive = (tensor > 0).where(tensor.full_like(1), tensor)
    return positive if tensor.dtype.kind == "uint" else (tensor < 0).where(tensor.full_like(-1), positive)


def copysign(tensor: Tensor, other: Any) -> Tensor:
    """Return it with the sign of `other`, bit by bit."""
    x, y = tensor._fit(other)
    if not x.dtype.is_float:
        x, y = x.cast(dtypes.float32), y.cast(dtypes.float32)
    bits = UNSIGNED[x.dtype.bits]
    top = 1 << x.dtype.bits - 1
    made = ((x.bitcast(bits) & (top - 1)) | (y.bitcast(bits) & top)).bitcast(x.dtype)
    return made._with_rule(_copysign_rule, x, y)


def lerp(tensor: Tensor, end: Any, weight: Any) -> Tensor:
    """Return the point between this (weight 0) and `end` (weight 1)."""
    return tensor + tensor._lift(end).sub(tensor).mul(weight)


def square(tensor: Tensor) -> Tensor:
    """Return it times itself."""
    return tensor * tensor


def _copysign_rule(gradient: Tensor, _result: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, None]:
    return (x.signbit() == y.signbit()).where(gradient, -gradient), None
