"""Operators and simple functions of one element: arithmetic, comparison, bits, choice, rounding, conversion. Python
numbers adapt to tensors.
"""

from __future__ import annotations

from typing import Any, Self

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.core import Core, DTypeLike, as_dtype, broadcast_shapes, detached, spread
from ringup.compiler.tensor.movement import Movement

UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
SIGNED = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
BOOL_OPS = {
    Op.ADD: Op.OR,
    Op.MUL: Op.AND,
    Op.MAX: Op.OR,
    Op.MIN: Op.AND,
}  # what arithmetic is on bools; the rest is refused, as NumPy does


class Conversions(Movement):
    """Conversions under the names of Python's types, apart from where those names are needed for the types."""

    __slots__ = ()

    def bool(self) -> Self:
        """Return where it is not zero."""
        if self.dtype.kind == "bool":
            return self
        return self._of(graph.elementwise(Op.NE, self._node, graph.const(0, self.dtype, self.shape)))

    def float(self) -> Self:
        """Return it as f32."""
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """Return it as f16."""
        return self.cast(dtypes.float16)

    def int(self) -> Self:
        """Return it as int32."""
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Return it as int64."""
        return self.cast(dtypes.int64)


class Elementwise(Conversions):
    """Arithmetic, comparisons, bits, choices, rounding, conversions."""

    __slots__ = ()

    def _binary(self, op: Op, other: object, *, reverse: bool = False) -> Self:
        x, y = self._fit(other)
        if reverse:
            x, y = y, x
        if x.dtype.kind == "bool":
            if op not in BOOL_OPS:
                raise TypeError(f"{op.value} of two bool tensors: cast one to an integer or a float type")
            op = BOOL_OPS[op]
        return x._apply(op, y)

    def _compare(self, op: Op, other: object, *, reverse: bool = False) -> Self:
        x, y = self._fit(other)
        if reverse:
            x, y = y, x
        if x.dtype.kind == "bool" and op in (Op.LT, Op.LE):
            x, y = x.cast(dtypes.uint8), y.cast(dtypes.uint8)
        return x._apply(op, y)

    def _bits(self, op: Op, other: object, *, reverse: bool = False) -> Self:
        x, y = self._fit(other)
        if x.dtype.is_float or (x.dtype.kind == "bool" and op in (Op.SHL, Op.SHR)):
            raise TypeError(
                f"{op.value} of {self.dtype} and {y.dtype}: integers only{' or bools' if op not in (Op.SHL, Op.SHR) else ''}"
            )
        return y._apply(op, x) if reverse else x._apply(op, y)

    def __add__(self, other: Any) -> Self:
        return self._binary(Op.ADD, other)

    def __radd__(self, other: Any) -> Self:
        return self._binary(Op.ADD, other, reverse=True)

    def __sub__(self, other: Any) -> Self:
        return self._binary(Op.SUB, other)

    def __rsub__(self, other: Any) -> Self:
        return self._binary(Op.SUB, other, reverse=True)

    def __mul__(self, other: Any) -> Self:
        return self._binary(Op.MUL, other)

    def __rmul__(self, other: Any) -> Self:
        return self._binary(Op.MUL, other, reverse=True)

    def div(self, other: Any, *, reverse: bool = False) -> Self:
        """Return the quotient as a float: integers are divided in f32."""
        x, y = self._fit(other)
        if reverse:
            x, y = y, x
        if not x.dtype.is_float:
            x, y = x.cast(dtypes.float32), y.cast(dtypes.float32)
        return x._apply(Op.DIV, y)

    def __truediv__(self, other: Any) -> Self:
        return self.div(other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.div(other, reverse=True)

    def floordiv(self, other: Any, *, reverse: bool = False) -> Self:
        """Return the quotient rounded down as Python's //; integers by zero give 0, floats what / gives."""
        x, y = self._fit(other)
        if reverse:
            x, y = y, x
        if not x.dtype.is_float:
            return x._binary(Op.IDIV, y)
        whole = ((x - x % y) / y).round()
        beside_infinity = ((x < 0) ^ (y < 0)).logical_and(x.ne(0)).where(x._like(-1), 0)
        return y.eq(0).where(x / y, y.isinf().logical_and(x.isfinite()).where(beside_infinity, whole))

    def __floordiv__(self, other: Any) -> Self:
        return self.floordiv(other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self.floordiv(other, reverse=True)

    def __mod__(self, other: Any) -> Self:
        return self._binary(Op.MOD, other)

    def __rmod__(self, other: Any) -> Self:
        return self._binary(Op.MOD, other, reverse=True)

    def fmod(self, other: Any) -> Self:
        """Return the remainder with the sign of the dividend, as C's fmod and %."""
        x, y = self._fit(other)
        if x.dtype.is_float:
            return (x.abs() % y.abs()).copysign(x)
        rest = x.abs() % y.abs() if x.dtype.kind == "int" else x % y
        return (x < 0).where(-rest, rest) if x.dtype.kind == "int" else rest

    def pow(self, other: Any, *, reverse: bool = False) -> Self:
        """Return the power: C's pow for floats, by repeated squaring for integers (negative exponents give 0 but for 1
        and -1).
        """
        if not reverse and not isinstance(other, Core) and self.dtype.kind != "bool":
            if other == 2:
                return self * self
            if self.dtype.is_integer and isinstance(other, int) and other < 0:
                raise ValueError(f"an integer tensor to the power of {other}: cast it to a float type first")
        x, y = self._fit(other)
        if x.dtype.kind == "bool":
            x, y = x.cast(dtypes.int32), y.cast(dtypes.int32)
        return y._apply(Op.POW, x) if reverse else x._apply(Op.POW, y)

    def __pow__(self, other: Any) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Any) -> Self:
        return self.pow(other, reverse=True)

    def __neg__(self) -> Self:
        if self.dtype.kind == "bool":
            raise TypeError("minus of a bool tensor: use ~, or cast it to a number type")
        return self._apply(Op.NEG)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self if self.dtype.kind in ("bool", "uint") else self._apply(Op.ABS)

    abs = __abs__
    neg = __neg__
    add, sub, mul, mod = __add__, __sub__, __mul__, __mod__

    def __invert__(self) -> Self:
        if self.dtype.is_float:
            raise TypeError(f"~ of {self.dtype}: integers and bools only")
        return self._apply(Op.NOT)

    def __and__(self, other: Any) -> Self:
        return self._bits(Op.AND, other)

    def __rand__(self, other: Any) -> Self:
        return self._bits(Op.AND, other, reverse=True)

    def __or__(self, other: Any) -> Self:
        return self._bits(Op.OR, other)

    def __ror__(self, other: Any) -> Self:
        return self._bits(Op.OR, other, reverse=True)

    def __xor__(self, other: Any) -> Self:
        return self._bits(Op.XOR, other)

    def __rxor__(self, other: Any) -> Self:
        return self._bits(Op.XOR, other, reverse=True)

    def __lshift__(self, other: Any) -> Self:
        return self._bits(Op.SHL, other)

    def __rlshift__(self, other: Any) -> Self:
        return self._bits(Op.SHL, other, reverse=True)

    def __rshift__(self, other: Any) -> Self:
        return self._bits(Op.SHR, other)

    def __rrshift__(self, other: Any) -> Self:
        return self._bits(Op.SHR, other, reverse=True)

    def __lt__(self, other: Any) -> Self:
        return self._compare(Op.LT, other)

    def __gt__(self, other: Any) -> Self:
        return self._compare(Op.LT, other, reverse=True)

    def __le__(self, other: Any) -> Self:
        return self._compare(Op.LE, other)

    def __ge__(self, other: Any) -> Self:
        return self._compare(Op.LE, other, reverse=True)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._compare(Op.NE, other)

    __hash__ = object.__hash__  # an __eq__ without it would leave tensors unhashable

    def eq(self, other: Any) -> Self:
        """Return where the two are equal."""
        return self._compare(Op.EQ, other)

    def ne(self, other: Any) -> Self:
        """Return where the two differ; NaN differs from itself."""
        return self._compare(Op.NE, other)

    def maximum(self, other: Any) -> Self:
        """Return the greater of the two, NaN if either is."""
        return self._binary(Op.MAX, other)

    def minimum(self, other: Any) -> Self:
        """Return the lesser of the two, NaN if either is."""
        return self._binary(Op.MIN, other)

    def clip(self, low: Any = None, high: Any = None) -> Self:
        """Return it held between `low` and `high`; either may be None or a tensor. NaN stays NaN."""
        made = self if low is None else self.maximum(low)
        return made if high is None else made.minimum(high)

    clamp = clip

    def where(self, yes: Any, no: Any) -> Self:
        """Return `yes` where this bool tensor is true, `no` elsewhere; all three broadcast."""
        if self.dtype.kind != "bool":
            raise TypeError(f"where on {self.dtype}: the condition is a bool tensor, such as t != 0")
        first = (
            self._of(yes._node)
            if isinstance(yes, Core)
            else no._lift(yes)
            if isinstance(no, Core)
            else self._number(yes)
        )
        second = first._lift(no)
        kind = dtypes.promote(first.dtype, second.dtype)
        shape = broadcast_shapes(self.shape, first.shape, second.shape)
        nodes = (spread(self._node, shape), *(spread(graph.cast(one._node, kind), shape) for one in (first, second)))
        return self._of(graph.node(Op.WHERE, kind, shape, nodes))

    def _number(self, value: Any) -> Self:
        return (
            self._constant(value, dtypes.of_scalar(value))
            if isinstance(value, (bool, int, float))
            else self._lift(value)
        )

    def masked_fill(self, mask: Core, value: Any) -> Self:
        """Return it with `value` where the bool `mask` is true; the mask broadcasts to this shape."""
        return self._of(mask._node).where(self._lift(value).cast(self.dtype), self)

    def _like(self, value: float) -> Self:
        """Return a constant of this dtype and shape."""
        return self._constant(value, self.dtype, self.shape)

    # predicates

    def isnan(self) -> Self:
        """Return where it is NaN."""
        return self.ne(self) if self.dtype.is_float else self._constant(False, dtypes.bool_, self.shape)

    def isinf(self) -> Self:
        """Return where it is plus or minus infinity."""
        has = self.dtype.is_float and self.dtype is not dtypes.float8_e4m3
        return self.abs().eq(float("inf")) if has else self._constant(False, dtypes.bool_, self.shape)

    def isfinite(self) -> Self:
        """Return where it is neither infinite nor NaN."""
        if not self.dtype.is_float:
            return self._constant(True, dtypes.bool_, self.shape)
        return self.abs() < float("inf") if self.dtype is not dtypes.float8_e4m3 else self.eq(self)

    def signbit(self) -> Self:
        """Return where the sign bit is set: negative numbers, -0.0, negative NaNs."""
        if self.dtype.kind in ("bool", "uint"):
            return self._constant(False, dtypes.bool_, self.shape)
        return (self.bitcast(SIGNED[self.dtype.bits]) if self.dtype.is_float else self) < 0

    def logical_not(self) -> Self:
        """Return where it is zero or false."""
        return ~self.bool()

    def logical_and(self, other: Any) -> Self:
        """Return where both are nonzero."""
        return self.bool() & self._lift(other).bool()

    def logical_or(self, other: Any) -> Self:
        """Return where either is nonzero."""
        return self.bool() | self._lift(other).bool()

    def logical_xor(self, other: Any) -> Self:
        """Return where exactly one is nonzero."""
        return self.bool() ^ self._lift(other).bool()

    # rounding and signs

    def _rounded(self, op: Op) -> Self:
        return self._apply(op) if self.dtype.is_float else self

    def floor(self) -> Self:
        """Return it rounded down."""
        return self._rounded(Op.FLOOR)

    def ceil(self) -> Self:
        """Return it rounded up."""
        return self._rounded(Op.CEIL)

    def trunc(self) -> Self:
        """Return it rounded toward zero."""
        return self._rounded(Op.TRUNC)

    def round(self, decimals: int = 0) -> Self:
        """Return it rounded to nearest, halves to even; to `decimals` places by a multiplication, as NumPy does."""
        if decimals == 0 or not self.dtype.is_float:
            return self._rounded(Op.ROUND)
        scale = 10.0 ** abs(decimals)
        return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale

    def sign(self) -> Self:
        """Return -1, 0 or 1 as the sign is; zeros and NaN stay themselves."""
        if self.dtype.kind == "bool":
            return self
        positive = (self > 0).where(self._like(1), self)
        return positive if self.dtype.kind == "uint" else (self < 0).where(self._like(-1), positive)

    def copysign(self, other: Any) -> Self:
        """Return it with the sign of `other`, bit by bit."""
        x, y = self._fit(other)
        if not x.dtype.is_float:
            x, y = x.cast(dtypes.float32), y.cast(dtypes.float32)
        bits = UNSIGNED[x.dtype.bits]
        top = 1 << x.dtype.bits - 1
        made = ((x.bitcast(bits) & (top - 1)) | (y.bitcast(bits) & top)).bitcast(x.dtype)
        return made._with_rule(_copysign_rule, x, y)

    def lerp(self, end: Any, weight: Any) -> Self:
        """Return the point between this (weight 0) and `end` (weight 1)."""
        return self + self._lift(end).sub(self).mul(weight)

    def square(self) -> Self:
        """Return it times itself."""
        return self * self

    # conversions

    def astype(self, dtype: DTypeLike) -> Self:
        """Return the elements converted, as `cast` does."""
        return self.cast(dtype)

    def bitcast(self, dtype: DTypeLike) -> Self:
        """Return the same bits as another type of the same width. No gradient passes."""
        kind = as_dtype(dtype)
        if kind.bits != self.dtype.bits or "bool" in (kind.kind, self.dtype.kind):
            raise TypeError(
                f"bitcast of {self.dtype} to {kind}: widths differ or one is bool; view() changes the last axis too"
            )
        return self if kind is self.dtype else self._of(graph.node(Op.BITCAST, kind, self.shape, (self._node,)))

    def view(self, dtype: DTypeLike) -> Self:
        """Return the same bytes as another type, little-endian; the last axis shrinks or grows with the width, as
        NumPy's view.
        """
        kind = as_dtype(dtype)
        have, want = self.dtype.bits, kind.bits
        if have == want:
            return self.bitcast(kind)
        if "bool" in (kind.kind, self.dtype.kind) or not self.shape:
            raise TypeError(
                f"view of {self.dtype}{list(self.shape)} as {kind}: bools and tensors without axes cannot change width"
            )
        bits, last = self.bitcast(UNSIGNED[have]), self.shape[-1]
        if want > have:
            if last % (want // have) != 0:
                raise ValueError(
                    f"view of {self.dtype}{list(self.shape)} as {kind}: the last axis is no multiple of {want // have}"
                )
            parts = bits.reshape((*self.shape[:-1], last // (want // have), want // have)).cast(UNSIGNED[want])
            joined = parts._cut(parts.ndim - 1, 0, 1)
            for place in range(1, want // have):
                joined = joined | parts._cut(parts.ndim - 1, place, place + 1) << place * have
            return joined.reshape(joined.shape[:-1]).bitcast(kind)
        steps = [(bits >> place * want).cast(UNSIGNED[have]) & ((1 << want) - 1) for place in range(have // want)]
        pieces = [one.cast(UNSIGNED[want]) for one in steps]
        return pieces[0].stack(*pieces[1:], axis=-1).reshape((*self.shape[:-1], last * (have // want))).bitcast(kind)

    def detach(self) -> Self:
        """Return it without its past: no gradient passes."""
        return self._of(detached(self._node))

    def contiguous(self) -> Self:
        """Return it asked to lie in memory of its own."""
        return self._of(graph.node(Op.CONTIGUOUS, self.dtype, self.shape, (self._node,)))

    def _compute_dtype(self) -> DType:
        """Return the type that functions are computed in: f32, or f64 for f64."""
        return self.dtype if self.dtype is dtypes.float64 else dtypes.float32

    def _wide(self) -> Self:
        return self.cast(self._compute_dtype())

    def _narrow(self, like: Core) -> Self:
        """Return a result computed wide as what `like` should give: its own type, f32 for integers."""
        return self.cast(like.dtype) if like.dtype.is_float else self


def _copysign_rule(
    gradient: Elementwise, _result: Elementwise, x: Elementwise, y: Elementwise
) -> tuple[Elementwise, None]:
    return (x.signbit() == y.signbit()).where(gradient, -gradient), None
