"""Axes folded to one value: sums and their like, extremes and where they are, statistics, softmax.

f16, bf16 and float8 are summed in f32 and rounded once. Integers narrower than 32 bits and bools are summed in int32 or
uint32.
"""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from ringup.compiler.graph import dtypes, index, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.complex_numbers.sums import product as complex_product
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import Axes, DTypeLike, as_dtype, refuse_complex, total, whole_number
from ringup.compiler.tensor.functions import exp_negative

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


def reduce_axes(tensor: Tensor, op: Op, axes: Axes, *, keepdims: bool) -> Tensor:
    """Return it folded along axes by an operation; they become 1 or disappear."""
    folded = tensor._axes(axes)
    if tensor.dtype.is_complex and op is not Op.ADD:
        refuse_complex(f"{op.value} along axes", tensor.dtype)
    made = tensor._of(nodes.reduce(op, tensor._node, folded))
    return made if keepdims else drop_axes(made, folded)


def drop_axes(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return it without axes of size 1."""
    return tensor._of(nodes.reshape(tensor._node, tuple(size for i, size in enumerate(tensor.shape) if i not in axes)))


def sum_dtype(tensor: Tensor) -> DType:
    """Return the type that sums and products are kept in."""
    if tensor.dtype.kind == "bool" or (tensor.dtype.kind == "int" and tensor.dtype.bits < 32):
        return dtypes.int32
    return dtypes.uint32 if tensor.dtype.kind == "uint" and tensor.dtype.bits < 32 else tensor.dtype


def _sum_type(tensor: Tensor, axes: Axes) -> DType:
    """Return the type in which a sum of integers or bools narrower than 64 bits is exact: int32 or int64."""
    return dtypes.int32 if index.bounds(_count(tensor, axes))[1] * _largest(tensor) < 1 << 31 else dtypes.int64


def _largest(tensor: Tensor) -> int:
    """Return the greatest size of an integer or a bool of its type."""
    return 1 if tensor.dtype.kind == "bool" else max(int(tensor.dtype.greatest), -int(tensor.dtype.least))


def sum_along(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Return the sum along axes (all for None, none for ()); 0 of nothing."""
    kind = sum_dtype(tensor) if dtype is None else as_dtype(dtype)
    return reduce_axes(tensor.cast(kind), Op.ADD, axis, keepdims=keepdims)


def prod(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Return the product along axes; 1 of nothing."""
    kind = sum_dtype(tensor) if dtype is None else as_dtype(dtype)
    if kind.is_complex:
        return complex_product(tensor.cast(kind), tensor._axes(axis), keepdims=keepdims)
    return reduce_axes(tensor.cast(kind), Op.MUL, axis, keepdims=keepdims)


def _extreme(tensor: Tensor, op: Op, axis: Axes, *, keepdims: bool) -> Tensor:
    """Return the greatest (MAX) or the least (MIN) along axes."""
    for one in tensor._axes(axis):
        if tensor.shape[one] == 0:
            raise ValueError(f"{op.value} of {list(tensor.shape)} along axis {one}: nothing there has no {op.value}")
    if tensor.dtype.kind == "bool":
        op = Op.OR if op is Op.MAX else Op.AND
    return reduce_axes(tensor, op, axis, keepdims=keepdims)


def amax(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the greatest along axes, NaN if there is one."""
    return _extreme(tensor, Op.MAX, axis, keepdims=keepdims)


def amin(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the least along axes, NaN if there is one."""
    return _extreme(tensor, Op.MIN, axis, keepdims=keepdims)


def any_along(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return whether any element along axes is not zero."""
    return reduce_axes(tensor.bool(), Op.OR, axis, keepdims=keepdims)


def all_along(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return whether no element along axes is zero."""
    return reduce_axes(tensor.bool(), Op.AND, axis, keepdims=keepdims)


def count_nonzero(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return how many along axes are not zero, as int32; as int64 where there may be more."""
    found = tensor.bool()
    return found.sum(axis, keepdims=keepdims, dtype=_sum_type(found, axis))


def _best(tensor: Tensor, op: Op, axis: int | None, *, keepdims: bool) -> Tensor:
    """Return the place of the greatest (MAX) or the least (MIN) along an axis, the first of equals."""
    if axis is None or tensor._is_one(axis):
        found = _best(tensor.flatten(), op, 0, keepdims=False)
        return found.reshape((1,) * tensor.ndim) if keepdims else found
    at = tensor._axis(axis)
    size = tensor.shape[at]
    best = _extreme(tensor, op, at, keepdims=True)
    hit = tensor.eq(best).logical_or(tensor.isnan()) if tensor.dtype.is_float else tensor.eq(best)
    places = places_along(tensor, at)
    return reduce_axes(hit.where(places, places._lift(size)), Op.MIN, at, keepdims=keepdims)


def places_along(tensor: Tensor, axis: int) -> Tensor:
    """Return 0, 1, … along an axis, 1 wide along the others; int32, int64 where that is too narrow."""
    size = tensor.shape[axis]
    kind = dtypes.int32 if (size if isinstance(size, int) else size.hi) < 1 << 31 else dtypes.int64
    counted = nodes.node(Op.IOTA, kind, (size,))
    return tensor._of(nodes.reshape(counted, tuple(size if i == axis else 1 for i in range(tensor.ndim))))


def argmax(tensor: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the place of the greatest along an axis (of the flattened tensor for None), the first of equals; NaN
    counts as greatest.
    """
    return _best(tensor, Op.MAX, axis, keepdims=keepdims)


def argmin(tensor: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the place of the least along an axis, the first of equals; NaN counts as least."""
    return _best(tensor, Op.MIN, axis, keepdims=keepdims)


# statistics


def _count(tensor: Tensor, axes: Axes) -> Int:
    """Return how many elements lie along axes."""
    return total(tensor.shape[axis] for axis in tensor._axes(axes))


def in_statistics(tensor: Tensor) -> Tensor:
    """Return it in the type that statistics are computed in: f32; f64 for f64 and for integers from 32 bits on; complex
    numbers as they are.
    """
    if tensor.dtype.is_complex:
        return tensor
    wide = tensor.dtype.is_integer and tensor.dtype.bits >= 32
    return tensor.cast(dtypes.float64) if wide else widened(tensor)


def mean(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the mean along axes, of nothing NaN. That of integers from 32 bits on is f64, of others f32, and exact but
    for its rounding.
    """
    if tensor.dtype.is_complex:
        return over_count(tensor.sum(axis, keepdims=keepdims), _count(tensor, axis))
    if not tensor.dtype.is_float:
        return _whole_mean(tensor, axis, keepdims=keepdims)
    x = widened(tensor)
    return narrowed(over_count(x.sum(axis, keepdims=keepdims), _count(tensor, axis)), tensor)


def _whole_mean(tensor: Tensor, axis: Axes, *, keepdims: bool) -> Tensor:
    """Return the mean of integers or bools, whose sum is exact."""
    kind, count = in_statistics(tensor).dtype, _count(tensor, axis)
    if index.bounds(count)[1] * _largest(tensor) <= 1 << kind.mantissa_bits + 1:
        return over_count(tensor.sum(axis, keepdims=keepdims, dtype=_sum_type(tensor, axis)).cast(kind), count)
    whole, rest = _parts_of_mean(tensor, axis, keepdims=keepdims)
    return whole.cast(kind) + over_count(rest.cast(kind), count)


def _parts_of_mean(tensor: Tensor, axis: Axes, *, keepdims: bool) -> tuple[Tensor, Tensor]:
    """Return the floor of the mean of integers or bools, in 64 bits, and what the sum is above its multiple."""
    count = _count(tensor, axis)
    if tensor.dtype.bits < 64:
        summed = tensor.sum(axis, keepdims=keepdims, dtype=dtypes.int64)
        by = summed._lift(count).cast(dtypes.int64)
        return summed // by, summed % by
    # the upper and the lower half by themselves: their sums do not overflow
    kind = tensor.dtype
    upper = (tensor >> 32).sum(axis, keepdims=keepdims)
    lower = (tensor & 0xFFFF_FFFF).sum(axis, keepdims=keepdims)
    by = upper._lift(count).cast(kind)
    # what is left of the upper half is below the count
    left = (upper % by).cast(dtypes.uint64) * (1 << 32) + lower.cast(dtypes.uint64)
    below = by.cast(dtypes.uint64)
    return ((upper // by) << 32) + (left // below).cast(kind), left % below


def _apart_from_mean(tensor: Tensor, axis: Axes) -> Tensor:
    """Return it less its mean along axes, in the type of statistics."""
    x = in_statistics(tensor)
    if tensor.dtype.bits < 64 or not tensor.dtype.is_integer:
        return x - (x if tensor.dtype.is_inexact else tensor).mean(axis, keepdims=True)
    # the difference of the upper halves and that of the lower halves are exact
    whole, rest = _parts_of_mean(tensor, axis, keepdims=True)
    upper = (tensor >> 32).cast(x.dtype) - (whole >> 32).cast(x.dtype)
    lower = (tensor & 0xFFFF_FFFF).cast(x.dtype) - (whole & 0xFFFF_FFFF).cast(x.dtype)
    return upper * 2.0**32 + lower - over_count(rest.cast(x.dtype), _count(tensor, axis))


def over_count(tensor: Tensor, count: Int | float) -> Tensor:
    """Return it divided by a count: multiplied by the reciprocal where that is exact, for powers of 2."""
    if isinstance(count, int) and count and not count & (count - 1):
        return tensor * (1 / count)
    return tensor / tensor._lift(count)


def corrected(axis: Axes | bool, correction: float | None) -> tuple[Axes, float]:
    """Return axes, and what a variance's count is less. PyTorch's `unbiased` may stand first, and None for 1."""
    if isinstance(axis, bool):
        return None, int(axis)
    return axis, 1 if correction is None else correction + 0


def var(tensor: Tensor, axis: Axes = None, *, correction: float | None = None, keepdims: bool = False) -> Tensor:
    """Return the variance along axes, divided by the count less `correction` (NumPy's ddof; 1 unless given)."""
    axis, correction = corrected(axis, correction)
    apart = _apart_from_mean(tensor, axis)
    count = _count(tensor, axis)
    # beside a size that is known later the correction is a whole number
    below = max(count - correction, 0) if isinstance(count, int) else count - whole_number(correction, "a correction")
    if apart.dtype.is_complex:
        return over_count(squared_size(apart).sum(axis, keepdims=keepdims), below)
    return narrowed(over_count((apart * apart).sum(axis, keepdims=keepdims), below), tensor)


def std(tensor: Tensor, axis: Axes = None, *, correction: float | None = None, keepdims: bool = False) -> Tensor:
    """Return the square root of the variance; its slope at 0 is 0."""
    if tensor.dtype.is_complex:
        return flat_root(tensor.var(axis, correction=correction, keepdims=keepdims))
    x = widened(tensor) if tensor.dtype.is_float else tensor
    return narrowed(flat_root(x.var(axis, correction=correction, keepdims=keepdims)), tensor)


def flat_root(tensor: Tensor, order: float = 2) -> Tensor:
    """Return the root of that order of what is not negative; its slope at 0 is 0."""
    made = tensor.sqrt() if order == 2 else tensor.pow(1 / order)
    return made._with_rule(partial(_flat_root_rule, order), tensor)


def _flat_root_rule(order: float, gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    slope = gradient * 0.5 / result if order == 2 else gradient * x.pow(1 / order - 1) * (1 / order)
    return (result.eq(0).where(0, slope),)


def norm(tensor: Tensor, order: float | str | None = 2, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the vector norm of that order along axes: 0 counts, infinity is the greatest, minus infinity the
    least. No gradient passes where the norm is 0, nor an element that is 0.
    """
    if order == "nuc":
        axes = tensor._axes(axis)
        if len(axes) != 2:
            raise ValueError(f"norm of order 'nuc' of {list(tensor.shape)} along {axis}: two axes")
        # the sum of singular values, of the package above
        made: Tensor = import_module("ringup.linalg").matrix_norm(tensor, "nuc", axes, keepdims)
        return made
    if isinstance(order, str) and order != "fro":
        raise ValueError(f"norm of order {order!r}: a number, 'fro' or 'nuc'")
    order = 2 if order is None or isinstance(order, str) else order
    if tensor.dtype.is_complex:
        return _norm_of_complex(tensor, order, axis, keepdims=keepdims)
    x = in_statistics(tensor)
    size = x.abs()
    if order == 0:
        counted = x.bool().cast(x.dtype).sum(axis, keepdims=keepdims)
        made = counted._with_rule(_no_slopes, x)
    elif math.isinf(order):
        made = size.amax(axis, keepdims=keepdims) if order > 0 else size.amin(axis, keepdims=keepdims)
    elif order == 1:
        made = size.sum(axis, keepdims=keepdims)
    elif order == 2:
        made = flat_root((x * x).sum(axis, keepdims=keepdims))
    else:
        made = size.pow(order).sum(axis, keepdims=keepdims).pow(1 / order)
        made = made._with_rule(partial(_norm_rule, order, tensor._axes(axis)), x)
    return narrowed(made, tensor)


def squared_size(tensor: Tensor) -> Tensor:
    """Return the squares of the sizes of complex numbers."""
    x, y = tensor.real, tensor.imag
    return x * x + y * y


def _norm_of_complex(tensor: Tensor, order: float, axis: Axes, *, keepdims: bool) -> Tensor:
    if order == 2:
        return flat_root(squared_size(tensor).sum(axis, keepdims=keepdims))
    return norm(tensor.abs(), order, axis, keepdims=keepdims)


def _no_slopes(_gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    return (x.full_like(0),)


def _norm_rule(order: float, axes: tuple[int, ...], gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    kept = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    whole = result.reshape(kept)
    scale = whole.eq(0).where(0, gradient.reshape(kept) * whole.pow(1 - order))
    return (x.eq(0).where(0, x.abs().pow(order - 1).copysign(x) * scale),)


# softmax


def _softmax_parts(tensor: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x less its greatest, e to the power of that, the sum of the powers), in f32 or f64. No gradient passes
    the greatest: it cancels out.
    """
    x = widened(tensor)
    less = x - x.amax(axis, keepdims=True).detach()
    powers = exp_negative(less)
    return less, powers, powers.sum(axis, keepdims=True)


def softmax(tensor: Tensor, axis: int = -1) -> Tensor:
    """Return the powers of e along an axis, divided by their sum."""
    if tensor.numel() == 0:
        return narrowed(widened(tensor), tensor)
    _, powers, below = _softmax_parts(tensor, axis)
    return narrowed(powers / below, tensor)


def log_softmax(tensor: Tensor, axis: int = -1) -> Tensor:
    """Return the logarithm of softmax."""
    if tensor.numel() == 0:
        return narrowed(widened(tensor), tensor)
    less, _, below = _softmax_parts(tensor, axis)
    return narrowed(less - below.log(), tensor)


def logsumexp(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) along axes without overflow; of nothing minus infinity."""
    x = widened(tensor)
    if tensor.numel() == 0:
        return narrowed(x.sum(axis, keepdims=keepdims).log(), tensor)
    top = x.amax(axis, keepdims=True).detach()
    top = top.isfinite().where(top, 0)
    made = (x - top).exp().sum(axis, keepdims=True).log() + top
    return narrowed(made if keepdims else drop_axes(made, tensor._axes(axis)), tensor)


# triangles


def _triangle(tensor: Tensor, diagonal: int) -> Tensor:
    """Return where column - row is at most `diagonal`, over the last two axes."""
    if tensor.ndim < 2:
        raise ValueError(f"a triangle of {list(tensor.shape)}: two axes at least")
    return places_along(tensor, tensor.ndim - 1) <= places_along(tensor, tensor.ndim - 2) + diagonal


def tril(tensor: Tensor, diagonal: int = 0) -> Tensor:
    """Return it with 0 above the diagonal of the last two axes."""
    return _triangle(tensor, diagonal).where(tensor, tensor.full_like(0))


def triu(tensor: Tensor, diagonal: int = 0) -> Tensor:
    """Return it with 0 below the diagonal of the last two axes."""
    return _triangle(tensor, diagonal - 1).where(tensor.full_like(0), tensor)


def trace(tensor: Tensor) -> Tensor:
    """Return the sum of the diagonal of a matrix."""
    return tensor.diagonal().sum(-1)
