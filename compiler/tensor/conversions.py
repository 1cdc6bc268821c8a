"""Conversions: the same numbers as another type, and the same bits as another type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ringup.compiler.graph import dtypes
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import Node, Op
from ringup.compiler.tensor.core import DTypeLike, as_dtype
from ringup.compiler.tensor.movement import as_copy, as_view, cut

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}
SIGNED = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
# the upper half of a mantissa: products of two are exact
UPPER_MASK = {dtypes.float32: 0xFFFF_F000, dtypes.float64: 0xFFFF_FFFF_F800_0000}


def cast(tensor: Tensor, dtype: DTypeLike) -> Tensor:
    """Return the elements converted: floats round to nearest even, float to integer cuts off and saturates (NaN is
    0), to bool is x != 0. A TypeError from complex numbers to real ones.
    """
    return tensor._of(graph.cast(tensor._node, as_dtype(dtype)))


def astype(tensor: Tensor, dtype: DTypeLike) -> Tensor:
    """Return the elements converted, as `cast` does."""
    return tensor.cast(dtype)


def to_bool(tensor: Tensor) -> Tensor:
    """Return where it is not zero."""
    if tensor.dtype.kind == "bool":
        return tensor
    return tensor._of(graph.elementwise(Op.NE, tensor._node, graph.const(0, tensor.dtype, tensor.shape)))


def to_float(tensor: Tensor) -> Tensor:
    """Return it as f32."""
    return tensor.cast(dtypes.float32)


def to_half(tensor: Tensor) -> Tensor:
    """Return it as f16."""
    return tensor.cast(dtypes.float16)


def to_int(tensor: Tensor) -> Tensor:
    """Return it as int32."""
    return tensor.cast(dtypes.int32)


def to_long(tensor: Tensor) -> Tensor:
    """Return it as int64."""
    return tensor.cast(dtypes.int64)


def bitcast(tensor: Tensor, dtype: DTypeLike) -> Tensor:
    """Return the same bits as another type of the same width, a view: assignment to it writes this tensor. No gradient
    passes.
    """
    kind = as_dtype(dtype)
    if kind.is_complex is not tensor.dtype.is_complex:
        raise TypeError(f"bitcast of {tensor.dtype} to {kind}: use view_as_real or view_as_complex")
    if kind.bits != tensor.dtype.bits or "bool" in (kind.kind, tensor.dtype.kind):
        raise TypeError(
            f"bitcast of {tensor.dtype} to {kind}: widths differ or one is bool; view() changes the last axis too"
        )
    return tensor if kind is tensor.dtype else as_view(tensor, partial(bits_as, kind=kind))


def bits_as(node: Node, kind: DType | None) -> Node:
    """Return the same bits as another type, or as the same one for None, which `order.prepared` drops."""
    return graph.node(Op.BITCAST, node.dtype if kind is None else kind, node.shape, (node,))


def view(tensor: Tensor, dtype: DTypeLike) -> Tensor:
    """Return the same bytes as another type, little-endian; the last axis shrinks or grows with the width, as
    NumPy's view. A view of another width is a copy, which refuses assignment.
    """
    kind = as_dtype(dtype)
    have, want = tensor.dtype.bits, kind.bits
    if tensor.dtype.is_complex or kind.is_complex:
        return _view_of_complex(tensor, kind)
    if have == want:
        return tensor.bitcast(kind)
    if "bool" in (kind.kind, tensor.dtype.kind) or not tensor.shape:
        raise TypeError(
            f"view of {tensor.dtype}{list(tensor.shape)} as {kind}: bools and tensors without axes cannot change width"
        )
    bits, last = tensor.bitcast(UNSIGNED[have]), tensor.shape[-1]
    if want > have:
        if last % (want // have) != 0:
            raise ValueError(
                f"view of {tensor.dtype}{list(tensor.shape)} as {kind}: the last axis is no multiple of {want // have}"
            )
        parts = bits.reshape((*tensor.shape[:-1], last // (want // have), want // have)).cast(UNSIGNED[want])
        joined = cut(parts, parts.ndim - 1, 0, 1)
        for place in range(1, want // have):
            joined = joined | cut(parts, parts.ndim - 1, place, place + 1) << place * have
        return as_copy(joined.reshape(joined.shape[:-1]).bitcast(kind), "a view of another width")
    steps = [(bits >> place * want).cast(UNSIGNED[have]) & ((1 << want) - 1) for place in range(have // want)]
    pieces = [one.cast(UNSIGNED[want]) for one in steps]
    made = pieces[0].stack(*pieces[1:], axis=-1).reshape((*tensor.shape[:-1], last * (have // want))).bitcast(kind)
    return as_copy(made, "a view of another width")


def _view_of_complex(tensor: Tensor, kind: DType) -> Tensor:
    """Return the bytes of complex numbers as floats of their parts, or the other way round."""
    if kind is tensor.dtype:
        return tensor
    if kind is tensor.dtype.part and tensor.shape:
        parts = tensor.view_as_real()
        return as_copy(parts.reshape((*tensor.shape[:-1], tensor.shape[-1] * 2)), "a view of another width")
    if tensor.dtype is not kind.part or not tensor.shape or tensor.shape[-1] % 2 != 0:
        raise TypeError(
            f"view of {tensor.dtype}{list(tensor.shape)} as {kind}: only parts become complex numbers, in pairs"
        )
    pairs = tensor.reshape((*tensor.shape[:-1], tensor.shape[-1] // 2, 2))
    return as_copy(pairs.view_as_complex(), "a view of another width")


def detach(tensor: Tensor) -> Tensor:
    """Return a view of the same elements, which no gradient passes."""
    return as_view(tensor, partial(bits_as, kind=None))


def contiguous(tensor: Tensor) -> Tensor:
    """Return the same value, which is stored in memory of its own when it is computed."""
    return tensor._of(graph.node(Op.CONTIGUOUS, tensor.dtype, tensor.shape, (tensor._node,)))


def compute_dtype(tensor: Tensor) -> DType:
    """Return the type that functions are computed in: f32, or f64 for f64; a TypeError for complex numbers."""
    if tensor.dtype.is_complex:
        raise TypeError(f"a function of real numbers got a tensor of {tensor.dtype}: use abs(), .real or .imag")
    return tensor.dtype if tensor.dtype is dtypes.float64 else dtypes.float32


def widened(tensor: Tensor) -> Tensor:
    """Return it in the type that functions are computed in."""
    return tensor.cast(compute_dtype(tensor))


def narrowed(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a result of `widened` in the type that a function of `like` gives: its own, f32 for integers."""
    return tensor.cast(like.dtype) if like.dtype.is_float else tensor


def upper_bits(tensor: Tensor) -> Tensor:
    """Return it with half of its mantissa, so that its square is exact."""
    bits = UNSIGNED[tensor.dtype.bits]
    return (tensor.bitcast(bits) & UPPER_MASK[tensor.dtype]).bitcast(tensor.dtype)
