"""Element by element: arithmetic, comparison, logic, bits, conversions, mathematical functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row, aligned, binary, unary
from ringup.onnx.common.values import dtype_of

# the greatest finite number of the types that Cast saturates to
GREATEST = {dtypes.float8_e4m3: 448.0, dtypes.float8_e5m2: 57344.0}


def divide(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return the quotient, of integers cut toward zero."""
    x, y = aligned(node, x, y)
    return (x / y).cast(x.dtype) if x.dtype.is_float else x.div(y, rounding_mode="trunc").cast(x.dtype)


def modulo(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return the remainder, with the sign of the divisor, or of the dividend with `fmod`."""
    return x.fmod(y) if node.get("fmod", 0) else x.mod(y)


def power(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return the power in the type of the base."""
    x, y = aligned(node, x, y)
    if x.dtype.is_float or y.dtype.is_float:
        kind = dtypes.promote(x.dtype, y.dtype)
        return x.cast(kind).pow(y.cast(kind)).cast(x.dtype)
    return x.pow(y).cast(x.dtype)


def shift(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return the bits moved to the left or right."""
    return x << y if node.get("direction") == "LEFT" else x >> y


def folded(name: str) -> Callable[..., Tensor]:
    """Return an operator of any number of operands, combined by a method of two."""

    def run(node: Node, *operands: Tensor) -> Tensor:
        return reduce(lambda x, y: getattr(x, name)(y), operands)

    return run


def mean(node: Node, *operands: Tensor) -> Tensor:
    """Return the mean of operands."""
    return (reduce(lambda x, y: x + y, operands) / len(operands)).cast(operands[0].dtype)


def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Return it held between bounds, which are inputs; the upper one wins where they cross."""
    made = x if low is None else x.maximum(low)
    return made if high is None else made.minimum(high)


def clip_by_attributes(node: Node, x: Tensor) -> Tensor:
    """Return it held between bounds, which are attributes."""
    return x.clip(node.get("min"), node.get("max")) if {"min", "max"} & set(node.attributes) else x


def where(node: Node, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return x where the condition is true, y elsewhere."""
    return condition.where(x, y)


def converted(x: Tensor, kind: DType, *, saturate: bool) -> Tensor:
    """Return it as another type; what float8 cannot hold becomes its greatest number, or infinity (NaN where it has
    none).
    """
    if kind not in GREATEST or x.dtype is kind:
        return x.cast(kind)
    wide = x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)
    greatest = GREATEST[kind]
    if saturate:
        return wide.isnan().where(wide, wide.clip(-greatest, greatest)).cast(kind)
    if kind is dtypes.float8_e4m3:
        # the middle between the greatest number and the next one that there would be rounds to the even, greatest one
        wide = (wide.abs() > greatest + 16).where(float("nan"), wide)
    return wide.cast(kind)


def cast(node: Node, x: Tensor) -> Tensor:
    """Return it as the type of the attribute `to`."""
    return converted(x, dtype_of(node.get("to"), str(node)), saturate=bool(node.get("saturate", 1)))


def cast_like(node: Node, x: Tensor, like: Tensor) -> Tensor:
    """Return it as the type of another tensor."""
    return converted(x, like.dtype, saturate=bool(node.get("saturate", 1)))


def bit_cast(node: Node, x: Tensor) -> Tensor:
    """Return the same bits as another type."""
    kind = dtype_of(node.get("to"), str(node))
    if "bool" in (kind.kind, x.dtype.kind):
        return x.cast(kind) if kind.kind != "bool" else x.ne(0)
    return x.bitcast(kind)


def is_infinite(node: Node, x: Tensor) -> Tensor:
    """Return where it is infinite, of the signs asked for."""
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if positive and negative:
        return x.isinf()
    none = x.full_like(False, dtypes.bool_)
    return x.isinf() & (x > 0) if positive else x.isinf() & (x < 0) if negative else none


# operators that are methods of their name
METHODS = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Neg",
    "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
ROWS = (
    Row("Add", binary("add")),
    Row("Sub", binary("sub")),
    Row("Mul", binary("mul")),
    Row("Div", divide),
    Row("Mod", modulo),
    Row("Pow", power),
    Row("BitShift", shift),
    Row("BitwiseAnd", binary("__and__")),
    Row("BitwiseOr", binary("__or__")),
    Row("BitwiseXor", binary("__xor__")),
    Row("BitwiseNot", unary("__invert__")),
    Row("And", binary("logical_and")),
    Row("Or", binary("logical_or")),
    Row("Xor", binary("logical_xor")),
    Row("Not", unary("logical_not")),
    Row("Equal", binary("eq")),
    Row("Greater", binary("gt")),
    Row("GreaterOrEqual", binary("ge")),
    Row("Less", binary("lt")),
    Row("LessOrEqual", binary("le")),
    Row("Max", folded("maximum")),
    Row("Min", folded("minimum")),
    Row("Sum", folded("add")),
    Row("Mean", mean),
    Row("Clip", clip_by_attributes),
    Row("Clip", clip, since=11),
    Row("Where", where),
    Row("Cast", cast),
    Row("CastLike", cast_like),
    Row("BitCast", bit_cast),
    Row("IsInf", is_infinite),
    Row("IsNaN", lambda node, x: x.isnan()),
    *(Row(name, unary(name.lower())) for name in METHODS),
)
