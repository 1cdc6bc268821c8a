"""Counting, distinct elements, places in what is sorted, and drawing by weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import indexing
from ringup.compiler.tensor.composed.parts import first_places
from ringup.compiler.tensor.conversions import widened
from ringup.compiler.tensor.core import number_of, whole_number
from ringup.compiler.tensor.movement import cut
from ringup.compiler.tensor.random import Source
from ringup.compiler.tensor.sorting import sort, topk

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# the least wait of an exponential clock, so that nothing is divided by 0
LEAST_WAIT = 1e-37


def bincount(tensor: Tensor, weights: Any = None, *, minlength: int = 0, size: int | None = None) -> Tensor:
    """Return how often each whole number from 0 on is among the elements, int32, or the sums of their weights, f64 for
    whole numbers.

    Without `size` the greatest element is computed, for the count of numbers; with it, greater ones are left out.
    """
    if tensor.ndim != 1 or not tensor.dtype.is_integer:
        raise ValueError(f"bincount of {tensor.dtype}{list(tensor.shape)}: integers along one axis")
    if size is None:
        most = int(tensor.amax()) if tensor.numel() else -1
        if tensor.numel() and int(tensor.amin()) < 0:
            raise ValueError(f"bincount of numbers from {int(tensor.amin())} on: none below 0")
        size = max(most + 1, whole_number(minlength, "a count"))
    each = tensor._constant(1, dtypes.int32) if weights is None else tensor._lift(weights, weak=False)
    each = each if weights is None or each.dtype.is_float else each.cast(dtypes.float64)
    made = each._constant(0, each.dtype, (size,))
    inside = tensor.cast(dtypes.int64) if tensor.dtype.bits > 32 or tensor.dtype is dtypes.uint32 else tensor.int()
    where = (inside < 0).where(size, inside)
    return indexing.put(made, 0, where, each.expand(tensor.shape), indexing.SCATTERS["add"])


def unique(
    tensor: Tensor,
    *,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: float = 0,
) -> Any:
    """Return the distinct elements in rising order (parts, along an axis); with them, as asked, the place of each
    element among them, and how often each is there. NaN differs from NaN.

    Without `size` the tensor is computed, for the count. With it nothing is: the first `size` elements, and then
    `fill_value`, which is there 0 times.
    """
    if size is None:
        found = cast("Any", np.unique)(
            tensor.numpy(), return_inverse=return_inverse, return_counts=return_counts, axis=axis, equal_nan=False
        )
        parts = [*found] if isinstance(found, tuple) else [found]
        kept = [tensor._from_array(parts[0])]
        kept += [tensor._from_array(one.astype(np.int32)) for one in parts[1:]]
        if return_inverse and axis is None:
            kept[1] = kept[1].reshape(tensor.shape)
        return tuple(kept) if len(kept) > 1 else kept[0]
    if axis is not None:
        raise ValueError("unique of a stated size is of single elements, not of parts along an axis")
    x, places = sort(tensor.flatten(), 0)
    count = number_of(x.shape[0], "unique")
    start = tensor._constant(True, dtypes.bool_, (min(count, 1),))
    first = start.cat(cut(x, 0, 1, count).ne(cut(x, 0, 0, count - 1))) if count else start
    at = first_places(first, whole_number(size, "a size"), count)
    made = [
        at.eq(count).where(indexing.as_elements(x, fill_value), indexing.gathered(x, 0, at.minimum(max(count - 1, 0))))
    ]
    if return_inverse:
        number = first.cast(dtypes.int32).cumsum(0) - 1
        made.append(indexing.put(number.full_like(0), 0, places, number, None).reshape(tensor.shape))
    if return_counts:
        made.append(first_places(first, size + 1, count).diff())
    return tuple(made) if len(made) > 1 else made[0]


def isin(tensor: Tensor, elements: Any) -> Tensor:
    """Return where the element is among others."""
    return tensor.unsqueeze(-1).eq(tensor._lift(elements, weak=False).flatten()).any(-1)


def searchsorted(
    tensor: Tensor,
    values: Any,
    *,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
    out_int32: bool | None = None,
) -> Tensor:
    """Return the places where values go into this, whose last axis is in rising order: before equal elements, after
    them with `right` or a `side` of "right". Several rows take as many rows of values. NaN is the greatest. `sorter`
    holds the places of elements that are in no order, in theirs. int32, int64 for `out_int32=False`.
    """
    if side not in (None, "left", "right"):
        raise ValueError(f"searchsorted has no side {side!r}; there are left and right")
    if right and side == "left":
        raise ValueError("searchsorted with right and the side 'left': they differ")
    right = right or side == "right"
    x, y = (tensor if sorter is None else tensor.take_along_axis(sorter, -1)), tensor._lift(values)
    if not x.shape or (x.ndim > 1 and x.shape[:-1] != y.shape[:-1]):
        raise ValueError(f"searchsorted of {list(y.shape)} in {list(x.shape)}: one row, or as many rows as values have")
    kind = dtypes.promote(x.dtype, y.dtype)
    x, y = x.cast(kind), y.cast(kind)
    size = number_of(x.shape[-1], "searchsorted")
    place, step = y._constant(0, dtypes.int32, y.shape), 1 << max(size.bit_length() - 1, 0)
    while step and size:
        ahead = place + step
        probe = ahead.minimum(size) - 1
        seen = (
            indexing.gathered(x, 0, probe.flatten()).reshape(y.shape) if x.ndim == 1 else x.take_along_axis(probe, -1)
        )
        goes = (seen <= y) | y.isnan() if right else (seen < y) | (y.isnan() & ~seen.isnan())
        place = (goes & (ahead <= size)).where(ahead, place)
        step >>= 1
    return place.cast(dtypes.int64) if out_int32 is False else place


def bucketize(tensor: Tensor, boundaries: Any, *, right: bool = False, out_int32: bool | None = None) -> Tensor:
    """Return the number of the bucket that each element is in, between boundaries in rising order; an element on one is
    below it, above it with `right`. int32, int64 for `out_int32=False`.
    """
    return searchsorted(tensor._lift(boundaries, weak=False), tensor, right=right, out_int32=out_int32)


def multinomial(tensor: Tensor, count: int, replacement: bool = False, *, source: Source | None = None) -> Tensor:
    """Return `count` places along the last axis drawn at random by weights, which need not sum to 1: each once, or
    again and again with `replacement`. int32.
    """
    size, count = number_of(tensor.shape[-1], "multinomial"), whole_number(count, "a count")
    if not tensor.dtype.is_float or tensor.ndim not in (1, 2):
        raise ValueError(f"multinomial by {tensor.dtype}{list(tensor.shape)}: floats along one axis or two")
    if count < 1 or (count > size and not replacement):
        raise ValueError(f"multinomial of {count} among {size}: 1 to {size}, or more with replacement")
    weights = widened(tensor)
    if replacement:
        sums = weights.cumsum(-1)
        drawn = tensor.rand((*tensor.shape[:-1], count), dtype=weights.dtype, source=source)
        return searchsorted(sums, drawn * cut(sums, tensor.ndim - 1, size - 1, size), right=True).minimum(size - 1)
    # of exponential clocks at the rates of the weights, those that ring first
    waits = -(-tensor.rand(tensor.shape, dtype=weights.dtype, source=source)).log1p()
    return topk(weights / waits.maximum(LEAST_WAIT), count, -1)[1]
