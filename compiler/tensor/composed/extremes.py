"""Extremes and order with the places they came from. PyTorch's way of asking (`dim`, or by position) gives values and
places, NumPy's (`axis`, `keepdims`) values alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import reductions, sorting
from ringup.compiler.tensor.core import Axes, number_of, whole_number
from ringup.compiler.tensor.movement import cut
from ringup.compiler.tensor.reductions import drop_axes, places_along

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


class Ranked(NamedTuple):
    """Elements and the places along their axis that they came from."""

    values: Tensor
    indices: Tensor


class Extremes(NamedTuple):
    """The least and the greatest."""

    min: Tensor
    max: Tensor


class _All:
    """Stands for an axis that was not given, which None, all axes, would be."""

    def __repr__(self) -> str:
        return "all axes"


_ALL = _All()


def maximum(
    tensor: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Axes | _All = _ALL, keepdims: bool | None = None
) -> Any:
    """Return the greatest element, NaN if there is one. Along `dim` with the places as (values, indices), along `axis`
    (or with `keepdims`) alone, of all without either. With a tensor, the greater of the two.
    """
    return _extreme(tensor, dim, keepdim, axis, keepdims, reductions.amax, reductions.argmax, lambda x, y: x.maximum(y))


def minimum(
    tensor: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Axes | _All = _ALL, keepdims: bool | None = None
) -> Any:
    """Return the least element, NaN if there is one; `dim` and `axis` as `max` has them."""
    return _extreme(tensor, dim, keepdim, axis, keepdims, reductions.amin, reductions.argmin, lambda x, y: x.minimum(y))


def _extreme(
    tensor: Tensor,
    dim: Any,
    keepdim: bool,
    axis: Axes | _All,
    keepdims: bool | None,
    best: Callable[..., Tensor],
    place: Callable[..., Tensor],
    of_two: Callable[[Tensor, Any], Tensor],
) -> Any:
    if dim is not None and not isinstance(axis, _All):
        raise TypeError("dim and axis mean the same; give one")
    if not isinstance(axis, _All) or dim is None or keepdims is not None or isinstance(dim, (tuple, list)):
        kept = keepdim if keepdims is None else keepdims
        found = best(tensor, dim if isinstance(axis, _All) else axis, keepdims=kept)
        return found._with_rule(_among_equals, tensor) if found.numel() == 1 and found.dtype.is_float else found
    if not isinstance(dim, (int, np.integer)):
        return of_two(tensor, dim)
    if tensor._is_one(int(dim)):
        return Ranked(tensor, tensor._constant(0, dtypes.int32))
    at = tensor._axis(int(dim))
    places = place(tensor, at, keepdims=True)
    values = best(tensor, at, keepdims=True)._with_rule(partial(_one_place, at, place), tensor)
    return _kept(Ranked(values, places), at, keepdim)


def _one_place(axis: int, place: Callable[..., Tensor], gradient: Tensor, _result: Tensor, x: Tensor) -> tuple[Tensor]:
    """Give the gradient to the place alone: equal elements do not share it."""
    return (places_along(x, axis).eq(place(x, axis, keepdims=True)).where(gradient, 0),)


def _among_equals(gradient: Tensor, result: Tensor, x: Tensor) -> tuple[Tensor]:
    """Share the gradient among all elements equal to the one found, NaN with NaN."""
    kept = (1,) * x.ndim
    one = result.reshape(kept)
    hit = x.eq(one).logical_or(x.isnan().logical_and(one.isnan()))
    return (hit.where(gradient.reshape(kept) / hit.cast(gradient.dtype).sum(), 0),)


def _kept(found: Ranked, axis: int, keepdim: bool) -> Ranked:
    return found if keepdim else Ranked(drop_axes(found.values, (axis,)), drop_axes(found.indices, (axis,)))


def cummax(tensor: Tensor, dim: int | None = None, *, axis: int | None = None) -> Any:
    """Return the running maximum along `dim` and its places (the last of equals) as (values, indices), along `axis`
    alone; NaN from where there is one.
    """
    return _running(tensor, dim, axis, sorting.cummax)


def cummin(tensor: Tensor, dim: int | None = None, *, axis: int | None = None) -> Any:
    """Return the running minimum along `dim` and its places (the last of equals) as (values, indices), along `axis`
    alone; NaN from where there is one.
    """
    return _running(tensor, dim, axis, sorting.cummin)


def _running(tensor: Tensor, dim: int | None, axis: int | None, scan: Callable[[Tensor, int], Tensor]) -> Any:
    if dim is not None and axis is not None:
        raise TypeError("dim and axis mean the same; give one")
    if dim is None:
        return scan(tensor, 0 if axis is None else axis)
    if tensor._is_one(dim):
        return Ranked(tensor, tensor._constant(0, dtypes.int32))
    at = tensor._axis(dim)
    values = scan(tensor, at)
    here = tensor.detach()
    hit = here.eq(values.detach())
    places = hit.logical_or(here.isnan()).where(places_along(tensor, at), -1)
    return Ranked(values, sorting.cummax(places.expand(tensor.shape), at))


def sort(tensor: Tensor, axis: int | None = -1, *, descending: bool = False) -> Ranked:
    """Return the elements in order along an axis, and the places they came from, as (values, indices)."""
    return Ranked(*sorting.sort(tensor, axis, descending=descending))


def topk(tensor: Tensor, k: int, axis: int = -1, *, largest: bool = True) -> Ranked:
    """Return the k greatest (or least) along an axis, in order, and their places, as (values, indices)."""
    return Ranked(*sorting.topk(tensor, k, axis, largest=largest))


def kthvalue(tensor: Tensor, k: int, axis: int = -1, *, keepdims: bool = False) -> Ranked:
    """Return the k-th least element along an axis, counted from 1, and its place, as (values, indices)."""
    if tensor._is_one(axis):
        return cast("Ranked", tensor._as_one(kthvalue, k))
    at = tensor._axis(axis)
    size, k = number_of(tensor.shape[at], "kthvalue"), whole_number(k, "a count")
    if not 1 <= k <= size:
        raise ValueError(f"kthvalue {k} along axis {axis} of {list(tensor.shape)}: 1 to {size}")
    ranked = topk(tensor, k, at, largest=False)
    return _kept(Ranked(*(cut(one, at, k - 1, k) for one in ranked)), at, keepdims)


def median(
    tensor: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: Axes | _All = _ALL,
    keepdims: bool | None = None,
) -> Any:
    """Return the middle element in order, the lower of two as PyTorch has it: of all, or along `dim` with its place, as
    (values, indices). Along `axis`, or with `keepdims`, NumPy's: the mean of two, as f32 or wider. NaN if there is one.
    """
    if dim is not None and not isinstance(axis, _All):
        raise TypeError("dim and axis mean the same; give one")
    if not isinstance(axis, _All) or keepdims is not None:
        return sorting.median(tensor, dim if isinstance(axis, _All) else axis, keepdims=bool(keepdims))
    if dim is None:
        found = median(tensor.flatten(), 0).values
        return found._with_rule(_among_equals, tensor) if found.dtype.is_float else found
    if tensor._is_one(dim):
        return tensor._as_one(median, 0)
    at = tensor._axis(dim)
    size = number_of(tensor.shape[at], "median")
    if size == 0:
        raise ValueError(f"median of {list(tensor.shape)} along axis {dim}: nothing is there")
    ranked = sort(tensor, at)
    middle, last = (Ranked(*(cut(one, at, i, i + 1) for one in ranked)) for i in ((size - 1) // 2, size - 1))
    if tensor.dtype.is_float:
        unknown = last.values.isnan()
        middle = Ranked(*(unknown.where(one, other) for one, other in zip(last, middle, strict=True)))
    return _kept(middle, at, keepdim)


def aminmax(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Extremes:
    """Return the least and the greatest along axes as (min, max)."""
    return Extremes(reductions.amin(tensor, axis, keepdims=keepdims), reductions.amax(tensor, axis, keepdims=keepdims))


def ptp(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the greatest less the least along axes."""
    low, high = aminmax(tensor, axis, keepdims=keepdims)
    return high - low
