"""Pieces of tensors by PyTorch's names, parts put back into the whole, and what goes through whole shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import indexing, movement
from ringup.compiler.tensor.composed import parts
from ringup.compiler.tensor.composed.elements import tensor_split
from ringup.compiler.tensor.core import Core, as_shape, broadcast_shapes, number_of, whole_number

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor


# pieces


def _equal_pieces(tensor: Tensor, sections: Any, axis: int, what: str) -> list[Tensor]:
    """Return pieces along an axis that has to be there: equal ones for a number, or from place to place."""
    if not axis < tensor.ndim:
        raise ValueError(f"{what} of {list(tensor.shape)}: {axis + 1} axes at least")
    if not isinstance(sections, (tuple, list, Core)):
        size, count = number_of(tensor.shape[axis], what), whole_number(sections, "a count")
        if count < 1 or size % count:
            raise ValueError(f"{what} of {list(tensor.shape)} into {count} parts: they are not equal")
    return tensor_split(tensor, sections, axis)


def hsplit(tensor: Tensor, sections: int | Sequence[int]) -> list[Tensor]:
    """Return pieces along the second axis, of vectors along the first; see `tensor_split`. They are equal."""
    return _equal_pieces(tensor, sections, min(tensor.ndim - 1, 1) if tensor.shape else 0, "hsplit")


def vsplit(tensor: Tensor, sections: int | Sequence[int]) -> list[Tensor]:
    """Return equal pieces along the first axis of two or more, or from place to place."""
    if tensor.ndim < 2:
        raise ValueError(f"vsplit of {list(tensor.shape)}: 2 axes at least")
    return _equal_pieces(tensor, sections, 0, "vsplit")


def dsplit(tensor: Tensor, sections: int | Sequence[int]) -> list[Tensor]:
    """Return equal pieces along the third axis, or from place to place."""
    return _equal_pieces(tensor, sections, 2, "dsplit")


def split_with_sizes(tensor: Tensor, sizes: Sequence[int], axis: int = 0) -> list[Tensor]:
    """Return pieces of those sizes along an axis."""
    return movement.split(tensor, list(sizes), axis)


# parts put back


def _with_part(tensor: Tensor, values: Any, axis: int, key: slice) -> Tensor:
    """Return it with values for a part along an axis."""
    at = tensor._axis(axis)
    y, whole = tensor._lift(values), (slice(None),) * at + (key,)
    wanted = tensor[whole].shape
    if y.shape != wanted:
        raise ValueError(f"a part of {list(wanted)} of {list(tensor.shape)} given as {list(y.shape)}: the same shape")
    start, stop, step = key.indices(number_of(tensor.shape[at], "a part"))
    if step != 1:
        return indexing.with_part(tensor, whole, y)
    before, after = (movement.cut(tensor, at, a, b) for a, b in ((0, start), (max(start, stop), tensor.shape[at])))
    return movement.cat(before, y.cast(tensor.dtype), after, axis=at)


def select_scatter(tensor: Tensor, values: Any, axis: int, place: int) -> Tensor:
    """Return it with values for the part at one place along an axis."""
    at, y = tensor._axis(axis), tensor._lift(values)
    size = number_of(tensor.shape[at], "select_scatter")
    if not -size <= place < size:
        raise IndexError(f"select_scatter at {place} along axis {axis} of {list(tensor.shape)}: outside of it")
    if y.shape != (wanted := (*tensor.shape[:at], *tensor.shape[at + 1 :])):
        raise ValueError(f"a part of {list(wanted)} of {list(tensor.shape)} given as {list(y.shape)}: the same shape")
    return _with_part(tensor, y.unsqueeze(at), axis, slice(place % size, place % size + 1))


def slice_scatter(
    tensor: Tensor, values: Any, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Return it with values for the part from `start` to before `end` along an axis, every `step`-th."""
    return _with_part(tensor, values, axis, slice(start, end, step))


def diagonal_scatter(tensor: Tensor, values: Any, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    """Return it with values for the elements (i, i + offset) of two axes; see `diagonal`."""
    places = tensor._counted(tensor.numel()).reshape(tensor.shape).diagonal(offset, first, second)
    y = tensor._lift(values)
    if y.shape != places.shape:
        raise ValueError(f"a diagonal of {list(places.shape)} of {list(tensor.shape)} given as {list(y.shape)}")
    flat = indexing.scattered(tensor.flatten(), 0, places.flatten(), y.flatten(), None)
    return flat.reshape(tensor.shape)


def put(tensor: Tensor, places: Any, values: Any, *, accumulate: bool = False) -> Tensor:
    """Return it with values at places of the flattened tensor, or with them added."""
    flat = (
        places.flatten() if isinstance(places, Core) and hasattr(places, "flatten") else np.asarray(places).reshape(-1)
    )
    y = indexing.as_elements(tensor, values).flatten()
    op = Op.ADD if accumulate else None
    return indexing.scattered(tensor.flatten(), 0, flat, y, op).reshape(tensor.shape)


def index_reduce(
    tensor: Tensor, axis: int, places: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return it with the parts of `source` combined at places along an axis: prod, mean, amax or amin. Without
    `include_self` the elements there before do not count.
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ValueError(f"index_reduce by {reduce!r}; there are prod, mean, amax, amin")
    if tensor._is_one(axis):
        made = index_reduce(tensor.reshape((1,)), 0, places, source, reduce, include_self=include_self)
        return made.reshape(())
    at, where, y = parts._parts_at(tensor, axis, places, source, "index_reduce")
    return parts.scatter_reduce(tensor, at, where, y, reduce, include_self=include_self)


# whole shapes


def as_strided(tensor: Tensor, sizes: Sequence[int], steps: Sequence[int], offset: int | None = None) -> Tensor:
    """Return the elements at `offset` and steps from there along each axis, counted in the flattened tensor: a copy."""
    shape, by = as_shape((tuple(sizes),)), [whole_number(one, "a step") for one in steps]
    if len(shape) != len(by):
        raise ValueError(f"as_strided to {list(shape)} in steps of {by}: one for each axis")
    place = np.full((), whole_number(offset or 0, "an offset"), np.int64)
    for size, step in zip(shape, by, strict=True):
        place = place[..., None] + np.arange(number_of(size, "as_strided")) * step
    if place.size and (place.min() < 0 or place.max() >= number_of(tensor.numel(), "as_strided")):
        raise IndexError(f"as_strided of {tensor.size} elements from {place.min()} to {place.max()}: outside of them")
    return tensor.flatten().take(place.reshape(-1), 0).reshape(shape)


def sum_to_size(tensor: Tensor, *sizes: Int | Sequence[Int]) -> Tensor:
    """Return the sums that make it that size, from which it could have been broadcast."""
    shape = as_shape(sizes)
    if broadcast_shapes(shape, tensor.shape) != tensor.shape:
        raise ValueError(f"sum_to_size of {list(tensor.shape)} to {list(shape)}: it does not broadcast back")
    lead = tensor.ndim - len(shape)
    axes = [i for i, size in enumerate(tensor.shape) if i < lead or shape[i - lead] != size]
    return tensor.sum(tuple(axes), keepdims=True).reshape(shape) if axes else tensor


def unique_consecutive(
    tensor: Tensor, *, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> Any:
    """Return the first of each run of equal elements (parts, along an axis); with them, as asked, the number of the run
    that each element is in, and the lengths of runs. It looks at the values.
    """
    x = tensor.flatten() if axis is None else tensor
    at = 0 if axis is None else x._axis(axis)
    size = number_of(x.shape[at], "unique_consecutive")
    before, after = movement.cut(x, at, 0, max(size - 1, 0)), movement.cut(x, at, min(1, size), size)
    others = tuple(i for i in range(x.ndim) if i != at)
    begins = np.concatenate([np.ones(min(size, 1), bool), before.ne(after).any(others).numpy()])
    starts = np.flatnonzero(begins)
    made = [x.index_select(at, starts)]
    if return_inverse:
        number = x._from_array((np.cumsum(begins) - 1).astype(np.int32))
        made.append(number.reshape(tensor.shape) if axis is None else number)
    if return_counts:
        made.append(x._from_array(np.diff(np.append(starts, size)).astype(np.int32)))
    return tuple(made) if len(made) > 1 else made[0]


def combinations(tensor: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return the choices of `r` elements of a vector in their order, (count, r); each one again `with_replacement`."""
    if tensor.ndim != 1:
        raise ValueError(f"combinations of {list(tensor.shape)}: a vector")
    if whole_number(r, "a count") < 0:
        raise ValueError(f"combinations of {r} elements: 0 or more")
    if r == 0:
        return movement.cut(tensor, 0, 0, 0)
    choose: Callable[..., Any] = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(number_of(tensor.shape[0], "combinations")), r))
    return tensor.take(np.array(chosen, np.int64).reshape(-1, r), 0)
