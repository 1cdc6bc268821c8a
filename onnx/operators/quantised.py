"""Whole numbers that stand for others by a scale and a zero point."""

from __future__ import annotations

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import UINT8, dtype_of, known_size
from ringup.onnx.operators.convolution import convolved
from ringup.onnx.operators.elementwise import converted


def _spread(node: Node, x: Tensor, one: Tensor) -> Tensor:
    """Return a scale or a zero point in a shape that broadcasts with an input: of all, of an axis, or of blocks."""
    if one.ndim == 0 or one.numel() == 1:
        return one.reshape(())
    axis = node.get("axis", 1) % x.ndim
    if one.ndim == 1 and not node.get("block_size", 0):
        return one.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    size = known_size(x.shape[axis], str(node))
    block = node.get("block_size", 0) or -(-size // known_size(one.shape[axis], str(node)))
    wide = one.repeat_interleave(block, axis)
    return wide.shrink([(0, size) if i == axis else None for i in range(x.ndim)])


def rounded(x: Tensor, zero: Tensor | None, kind: DType, *, saturate: bool) -> Tensor:
    """Return scaled numbers as a quantised type: rounded, moved by the zero point, held in its range."""
    if kind.is_float:
        return converted(x, kind, saturate=saturate)
    whole = x.round()
    whole = whole if zero is None else whole + zero.cast(x.dtype)
    return whole.clip(float(kind.least), float(kind.greatest)).cast(kind)


def quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Return x / scale rounded, in the type of the zero point."""
    wanted = node.get("output_dtype", 0)
    kind = dtype_of(wanted or UINT8, str(node)) if zero is None else zero.dtype
    precision = node.get("precision", 0)
    wide = dtype_of(precision, str(node)) if precision else scale.dtype if scale.dtype.is_float else dtypes.float32
    # f16 holds no range of 16 bits, and rounds where zero points are added
    made = (x.cast(wide) / _spread(node, x, scale).cast(wide)).cast(dtypes.float32)
    return rounded(made, None if zero is None else _spread(node, x, zero), kind, saturate=bool(node.get("saturate", 1)))


def dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Return (x - zero) scale."""
    wanted = node.get("output_dtype", 0)
    kind = dtype_of(wanted, str(node)) if wanted else scale.dtype
    made = x.cast(dtypes.float32)
    if zero is not None:
        made = made - _spread(node, x, zero).cast(dtypes.float32)
    return (made * _spread(node, x, scale).cast(dtypes.float32)).cast(kind)


def dynamic_quantize(node: Node, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return uint8 with the scale and the zero point that its extremes ask for."""
    low, high = x.amin().minimum(0.0), x.amax().maximum(0.0)
    scale = (high - low) / 255
    scale = scale.eq(0).where(1.0, scale)
    zero = (-low / scale).round().clip(0, 255)
    made = ((x / scale).round() + zero).clip(0, 255).cast(dtypes.uint8)
    return made, scale, zero.cast(dtypes.uint8)


def _less_zero(x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Return int32 of it less its zero point, of all or of an axis."""
    wide = x.cast(dtypes.int32)
    if zero is None:
        return wide
    moved = zero.cast(dtypes.int32)
    if moved.ndim == 1 and moved.numel() != 1:
        moved = moved.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return wide - (moved.reshape(()) if moved.numel() == 1 else moved)


def matmul_integer(
    node: Node, a: Tensor, b: Tensor, zero_a: Tensor | None = None, zero_b: Tensor | None = None
) -> Tensor:
    """Return the matrix product in int32 of operands less their zero points."""
    return _less_zero(a, zero_a, -2).matmul(_less_zero(b, zero_b, -1))


def matmul_quantised(
    node: Node, a: Tensor, scale_a: Tensor, zero_a: Tensor, b: Tensor, scale_b: Tensor, zero_b: Tensor,
    scale: Tensor, zero: Tensor,
) -> Tensor:  # fmt: skip
    """Return the matrix product of quantised operands, quantised."""
    product = _less_zero(a, zero_a, -2).matmul(_less_zero(b, zero_b, -1)).cast(dtypes.float32)
    left = scale_a.unsqueeze(-1) if scale_a.ndim == 1 and scale_a.numel() != 1 else scale_a
    factor = left.cast(dtypes.float32) * scale_b.cast(dtypes.float32) / scale.cast(dtypes.float32)
    return rounded(product * factor, zero, zero.dtype, saturate=True)


def conv_integer(
    node: Node, x: Tensor, weight: Tensor, zero_x: Tensor | None = None, zero_w: Tensor | None = None
) -> Tensor:
    """Return the convolution in int32 of operands less their zero points."""
    return convolved(node, _less_zero(x, zero_x, 1), _less_zero(weight, zero_w, 0))


def conv_quantised(
    node: Node, x: Tensor, scale_x: Tensor, zero_x: Tensor, weight: Tensor, scale_w: Tensor, zero_w: Tensor,
    scale: Tensor, zero: Tensor, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the convolution of quantised operands, quantised."""
    made = convolved(node, _less_zero(x, zero_x, 1), _less_zero(weight, zero_w, 0), bias).cast(dtypes.float32)
    factor = scale_x.reshape(()) * (
        scale_w.reshape(()) if scale_w.numel() == 1 else scale_w.reshape((-1, *[1] * (x.ndim - 2)))
    )
    return rounded(made * (factor / scale.reshape(())), zero.reshape(()), zero.dtype, saturate=True)


ROWS = (
    Row("QuantizeLinear", quantize),
    Row("DequantizeLinear", dequantize),
    Row("DynamicQuantizeLinear", dynamic_quantize),
    Row("MatMulInteger", matmul_integer),
    Row("QLinearMatMul", matmul_quantised),
    Row("ConvInteger", conv_integer),
    Row("QLinearConv", conv_quantised),
)
