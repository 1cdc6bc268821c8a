"""What statistics and grids are made of besides: the most frequent, medians without NaN, histograms, areas, blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.composed import extremes, sets
from ringup.compiler.tensor.composed.extremes import Ranked
from ringup.compiler.tensor.composed.joining import tensors_of
from ringup.compiler.tensor.composed.statistics import INTERPOLATIONS
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import Axes, Core, DTypeLike, as_dtype, is_list, number_of, whole_number
from ringup.compiler.tensor.movement import cut, meshgrid
from ringup.compiler.tensor.reductions import drop_axes, in_statistics, places_along
from ringup.compiler.tensor.sorting import along_several

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


# elements by rank


def _filled(tensor: Tensor, axis: int, what: str) -> int:
    """Return the size of an axis, which must not be 0."""
    size = number_of(tensor.shape[axis], what)
    if size == 0:
        raise ValueError(f"{what} of {list(tensor.shape)} along axis {axis}: nothing is there")
    return size


def _without(made: Ranked, axis: int, keepdims: bool) -> Ranked:
    return made if keepdims else Ranked(*(drop_axes(one, (axis,)) for one in made))


def mode(tensor: Tensor, axis: int = -1, *, keepdims: bool = False) -> Ranked:
    """Return the most frequent element along an axis, the least of several, and its last place, as (values, indices).
    NaN differs from NaN.
    """
    if tensor._is_one(axis):
        return cast("Ranked", tensor._as_one(mode))
    at = tensor._axis(axis)
    size = _filled(tensor, at, "mode")
    ordered, places = tensor.sort(at)
    counted = places_along(ordered, at)
    if size > 1:
        same = cut(ordered, at, 1, size).eq(cut(ordered, at, 0, size - 1))
        first = cut(ordered, at, 0, 1).full_like(False, dtype="bool").cat(same, axis=at).logical_not()
        # each run of equal elements starts at a place that is carried on through it
        starts = first.where(counted, 0).expand(tensor.shape).cummax(axis=at)
        best = (counted - starts).argmax(at, keepdims=True)
    else:
        best = counted.expand(tensor.shape)
    made = Ranked(ordered.take_along_axis(best, at), places.take_along_axis(best, at))
    return _without(made, at, keepdims)


def nanmedian(
    tensor: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: Axes | extremes._All = extremes._ALL,
    keepdims: bool | None = None,
) -> Any:
    """Return the middle of the elements that are not NaN, the lower of two as PyTorch has it: of all, or along `dim`
    with its place, as (values, indices). Along `axis`, or with `keepdims`, NumPy's: the mean of two. NaN where all are.
    """
    if dim is not None and not isinstance(axis, extremes._All):
        raise TypeError("dim and axis mean the same; give one")
    if not isinstance(axis, extremes._All) or keepdims is not None:
        along: Any = dim if isinstance(axis, extremes._All) else axis
        if isinstance(along, (tuple, list)):
            axes = tensor._axes(along)
            return along_several(
                lambda x, at: nanquantile(x, 0.5, at), in_statistics(tensor), axes, keepdims=bool(keepdims)
            )
        return nanquantile(in_statistics(tensor), 0.5, along, keepdims=bool(keepdims))
    if dim is None:
        return nanmedian(tensor.flatten(), 0).values
    if tensor._is_one(dim):
        return tensor._as_one(nanmedian, 0)
    at, keepdims = tensor._axis(dim), keepdim
    _filled(tensor, at, "nanmedian")
    ordered, places = tensor.sort(at)
    count = tensor.isnan().logical_not().sum(at, keepdims=True).cast(dtypes.int32)
    middle = ((count - 1) // 2).maximum(0)
    made = Ranked(ordered.take_along_axis(middle, at), places.take_along_axis(middle, at))
    return _without(made, at, keepdims)


def nanquantile(
    tensor: Tensor,
    q: float | Sequence[float] | Tensor,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """Return the q-th quantile of the elements that are not NaN; see `quantile`."""
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"nanquantile has no interpolation {interpolation!r}; there are {', '.join(INTERPOLATIONS)}")
    wanted: Any = q.tolist() if isinstance(q, Core) and hasattr(q, "tolist") else q
    if is_list(wanted):
        first, *rest = (
            nanquantile(tensor, one, axis, keepdims=keepdims, interpolation=interpolation) for one in wanted
        )
        return first.stack(*rest)
    if not 0 <= float(wanted) <= 1:
        raise ValueError(f"the quantile {wanted}: 0 to 1")
    if axis is None:
        found = nanquantile(tensor.flatten(), wanted, 0, interpolation=interpolation)
        return found.reshape((1,) * tensor.ndim) if keepdims else found
    if tensor._is_one(axis):
        return cast("Tensor", tensor._as_one(nanquantile, wanted, 0))
    at = tensor._axis(axis)
    _filled(tensor, at, "nanquantile")
    x = in_statistics(tensor.sort(at)[0])
    last = (tensor.isnan().logical_not().sum(at, keepdims=True).cast(dtypes.int32) - 1).maximum(0)
    place = last.cast(x.dtype) * float(wanted)
    low = place.floor().cast(dtypes.int32)
    first, second = x.take_along_axis(low, at), x.take_along_axis((low + 1).minimum(last), at)
    apart = place - low
    # the share of the second of two neighbours
    share = {"lower": apart * 0, "higher": apart.ceil(), "nearest": place.round() - low}.get(interpolation, apart)
    share = apart.ne(0).where(0.5, 0.0) if interpolation == "midpoint" else share
    made = narrowed(share.eq(0).where(first, first + (second - first) * share), tensor)
    return made if keepdims else drop_axes(made, (at,))


def histogram(
    tensor: Tensor,
    bins: int | Sequence[float] | Tensor = 10,
    *,
    range: tuple[float, float] | None = None,
    weight: Any = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return how many elements (or the sum of their weights) are in each of `bins` parts, the last one with its upper
    edge, and the edges. `bins` is a number of parts of one width over `range`, that of the elements, which are then
    computed, unless given; or edges in rising order. With `density` the area is 1.
    """
    x = widened(tensor).flatten()
    if isinstance(bins, Core) or is_list(bins):
        edges = x._lift(bins, weak=False).cast(x.dtype)
    else:
        low, high = range or (float(tensor.amin()), float(tensor.amax()))
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        edges = x._from_array(np.linspace(low, high, whole_number(bins, "a count") + 1).astype(x.dtype.numpy))
    count = number_of(edges.shape[0], "histogram") - 1
    place = sets.searchsorted(edges, x, right=True) - 1
    place = x.eq(edges[-1]).where(count - 1, place)
    inside = (place >= 0) & (place < count)
    weights = x.full_like(1) if weight is None else x._lift(weight, weak=False).flatten().cast(x.dtype)
    made = sets.bincount(inside.where(place, count), weights, size=count)
    return (made / (made.sum() * (edges[1:] - edges[:-1])) if density else made), edges


def trapezoid(tensor: Tensor, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """Return the area below points along an axis: at places `x`, or `dx` apart."""
    y = tensor if tensor.dtype.is_inexact else tensor.float()
    at = y._axis(axis)
    size = number_of(y.shape[at], "trapezoid")
    if size < 2:
        return y.sum(at) * 0
    heights = cut(y, at, 1, size) + cut(y, at, 0, size - 1)
    if x is None:
        return heights.sum(at) * (dx / 2)
    places = y._lift(x, weak=False)
    if places.ndim == 1:
        places = places.reshape(tuple(-1 if i == at else 1 for i in _axes_of(y)))
    widths = cut(places, places._axis(at - y.ndim), 1, size) - cut(places, places._axis(at - y.ndim), 0, size - 1)
    return (heights * widths).sum(at) * 0.5


def _axes_of(tensor: Tensor) -> Sequence[int]:
    return tuple(i for i, _ in enumerate(tensor.shape))


# grids and blocks


def logspace(
    cls: type[Tensor], start: float, stop: float, count: int, base: float = 10.0, dtype: DTypeLike = dtypes.float32
) -> Tensor:
    """Return `count` powers of a base whose exponents are evenly spaced, both ends included."""
    kind = as_dtype(dtype)
    # in f64 on the host, so that powers are rounded once
    made = np.float64(base) ** np.linspace(start, stop, whole_number(count, "a count"))
    return cls._from_array(made).cast(kind)


def _triangle(cls: type[Tensor], places: tuple[Any, Any], dtype: DTypeLike) -> Tensor:
    return cls._from_array(np.stack(places).astype(np.int32)).cast(as_dtype(dtype))


def tril_indices(
    cls: type[Tensor], rows: int, columns: int | None = None, offset: int = 0, dtype: DTypeLike = dtypes.int32
) -> Tensor:
    """Return the places (2, count) of the lower triangle of a matrix in row-major order."""
    return _triangle(cls, np.tril_indices(rows, offset, rows if columns is None else columns), dtype)


def triu_indices(
    cls: type[Tensor], rows: int, columns: int | None = None, offset: int = 0, dtype: DTypeLike = dtypes.int32
) -> Tensor:
    """Return the places (2, count) of the upper triangle of a matrix in row-major order."""
    return _triangle(cls, np.triu_indices(rows, offset, rows if columns is None else columns), dtype)


def block_diag(tensor: Any, *others: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal and zeros elsewhere; vectors are rows."""
    parts = [one if one.ndim == 2 else one.reshape((1, -1)) for one in tensors_of((tensor, *others), "block_diag")]
    width = sum(number_of(one.shape[1], "block_diag") for one in parts)
    rows, start = [], 0
    for one in parts:
        size = number_of(one.shape[1], "block_diag")
        rows.append(one.pad([(0, 0), (start, width - start - size)]))
        start += size
    return rows[0].cat(*rows[1:])


def cartesian_prod(tensor: Any, *others: Any) -> Tensor:
    """Return all combinations of elements of vectors as rows, those of the last one fastest."""
    parts = tensors_of((tensor, *others), "cartesian_prod")
    if len(parts) == 1:
        return parts[0]
    first, *rest = (one.flatten() for one in meshgrid(*parts))
    return first.stack(*rest, axis=-1)


def _each(change: Callable[[Tensor], Tensor], tensor: Any, others: tuple[Any, ...], what: str) -> Any:
    """Return one tensor changed, or a tuple of several, given one by one or in a list."""
    if not others and isinstance(tensor, Core):
        return change(cast("Tensor", tensor))
    return tuple(change(one) for one in tensors_of((tensor, *others), what))


def atleast_1d(tensor: Any, *others: Any) -> Any:
    """Return it with one axis at least; of several tensors a tuple."""
    return _each(lambda one: one if one.ndim else one.reshape((1,)), tensor, others, "atleast_1d")


def atleast_2d(tensor: Any, *others: Any) -> Any:
    """Return it with two axes at least; a vector is a row. Of several tensors a tuple."""
    return _each(lambda one: one if one.ndim > 1 else one.reshape((1, -1)), tensor, others, "atleast_2d")


def atleast_3d(tensor: Any, *others: Any) -> Any:
    """Return it with three axes at least: a vector lies along the second, a matrix gets a last one. Of several tensors
    a tuple.
    """
    return _each(_with_three_axes, tensor, others, "atleast_3d")


def _with_three_axes(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(-1) if tensor.ndim == 2 else tensor if tensor.ndim > 2 else tensor.reshape((1, -1, 1))
