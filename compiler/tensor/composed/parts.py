"""Parts of tensors by masks and by name: what a mask selects, parts along an axis, values put at places."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ringup.compiler.graph import dtypes, index
from ringup.compiler.graph.dtypes import Scalar
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import indexing
from ringup.compiler.tensor.core import Core, broadcast_shapes, number_of, whole_number
from ringup.compiler.tensor.movement import cut

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# what `scatter` combines by
REDUCED = {None: None, "add": Op.ADD, "multiply": Op.MUL}
# what a reduction that leaves this tensor out starts from
STARTS = {"sum": 0, "add": 0, "mean": 0, "prod": 1, "mul": 1}


# along an axis


def unbind(tensor: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts along an axis, one for each place."""
    return tuple(select(tensor, axis, i) for i in range(number_of(tensor.shape[tensor._axis(axis)], "unbind")))


def select(tensor: Tensor, axis: int, place: Int) -> Tensor:
    """Return the part at one place along an axis, which disappears."""
    return tensor[(slice(None),) * tensor._axis(axis) + (place,)]


def narrow(tensor: Tensor, axis: int, start: Int | Tensor, length: Int) -> Tensor:
    """Return the part of `length` from `start` on along an axis; a negative start counts from the end. That of a tensor
    of one element is computed first.
    """
    start = operator.index(start) if isinstance(start, Core) else start
    at = tensor._axis(axis)
    size = tensor.shape[at]
    first = start + size if isinstance(start, int) and start < 0 else start
    if index.bounds(first)[1] < 0 or index.bounds(length)[1] < 0 or index.bounds(size - first - length)[1] < 0:
        raise IndexError(f"narrow of axis {axis} of {list(tensor.shape)} to {length} from {start}: outside of it")
    return cut(tensor, at, first, first + length)


# what a mask selects


def _flat_mask(tensor: Tensor) -> Tensor:
    """Return where elements are not zero, along one axis."""
    return tensor.bool().flatten()


def first_places(mask: Tensor, size: int, fill: int) -> Tensor:
    """Return the places where a flat mask is true, the first `size` of them, `fill` where there are fewer."""
    kind = dtypes.int64 if index.bounds(mask.numel())[1] >= 1 << 31 else dtypes.int32
    number = mask.cast(kind).cumsum(0) - 1
    # what is not wanted goes to one place more, which is cut off
    target = mask.logical_and(number < size).where(number, size)
    room = mask._constant(fill, kind, (size + 1,))
    made = indexing.put(room, 0, target, mask._counted(mask.numel(), kind), None)
    return cut(made, 0, 0, size)


def nonzero(tensor: Tensor, *, size: int | None = None, fill_value: int = 0, as_tuple: bool = False) -> Any:
    """Return the places of the elements that are not zero, (count, axes), or a tensor for each axis with `as_tuple`.

    Without `size` the tensor is computed, for the count. With it nothing is: the first `size` places, and then places
    of `fill_value`.
    """
    if not as_tuple and not tensor.shape:
        return tensor._constant(
            0, dtypes.int32, (int(bool(tensor)) if size is None else whole_number(size, "a size"), 0)
        )
    if not tensor.shape:
        # along the only axis there could be, as in PyTorch
        return nonzero(tensor.reshape((1,)), size=size, fill_value=fill_value, as_tuple=True)
    if size is None:
        found = np.nonzero(tensor.bool().numpy())
        parts = [
            tensor._from_array(one.astype(np.int32 if index.bounds(tensor.numel())[1] < 1 << 31 else np.int64))
            for one in found
        ]
    else:
        size = whole_number(size, "a size")
        flat = first_places(_flat_mask(tensor), size, -1)
        parts, rest = [], flat
        for length in reversed(tensor.shape):
            # an axis of nothing has no places, whose remainder would be asked for
            count = 1 if isinstance(length, int) and length == 0 else length
            parts.insert(0, (flat < 0).where(int(fill_value), rest % flat._lift(count)))
            rest = rest // flat._lift(count)
    return tuple(parts) if as_tuple else parts[0].stack(*parts[1:], axis=-1)


def argwhere(tensor: Tensor, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """Return the places of the elements that are not zero, (count, axes); see `nonzero`."""
    made: Tensor = nonzero(tensor, size=size, fill_value=fill_value)
    return made


def masked_select(tensor: Tensor, mask: Any, *, size: int | None = None, fill_value: Scalar = 0) -> Tensor:
    """Return the elements where a mask is true, along one axis; both broadcast. Without `size` the mask is computed,
    for the count; with it the first `size` elements, and then `fill_value`.
    """
    wanted = tensor._lift(mask)
    shape = broadcast_shapes(tensor.shape, wanted.shape)
    x, where = tensor.expand(shape).flatten(), _flat_mask(tensor._of(wanted._node).expand(shape))
    if size is None:
        return x[where]
    places = first_places(where, whole_number(size, "a size"), -1)
    return (places < 0).where(indexing.as_elements(x, fill_value), indexing.gathered(x, 0, places.maximum(0)))


def with_masked(tensor: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Return it with `value` where a mask over its first axes is true: what `t[mask] = value` makes, without a look at
    the mask. A value with an axis more than the rest has an element for each true one, in order.
    """
    where = tensor._of(mask._node)
    if where.shape != tensor.shape[: where.ndim]:
        raise IndexError(f"a mask of shape {list(where.shape)} for a tensor of shape {list(tensor.shape)}")
    rest = tensor.shape[where.ndim :]
    spread = where.reshape((*where.shape, *[1] * len(rest)))
    y = indexing.as_elements(tensor, value)
    if y.ndim > len(rest) and y.shape[0] == 1:
        y = y.reshape(y.shape[1:])
    if y.ndim <= len(rest):
        return spread.where(y.cast(tensor.dtype).expand(tensor.shape), tensor)
    if y.ndim > len(rest) + 1:
        raise ValueError(
            f"a value of shape {list(y.shape)} for what a mask of {list(where.shape)} selects of {list(tensor.shape)}"
        )
    number = where.flatten().cast(dtypes.int32).cumsum(0) - 1
    rows = indexing.gathered(y.cast(tensor.dtype).expand((y.shape[0], *rest)), 0, number.maximum(0))
    return spread.where(rows.reshape(tensor.shape), tensor)


# values at places


def _along(tensor: Tensor, axis: int, places: Any, shape: Sequence[Int]) -> Any:
    """Return a list of places along an axis for every element of a shape."""
    given = places if isinstance(places, Core) else np.asarray(places)
    if given.ndim > 1:
        raise ValueError(f"places of shape {list(given.shape)} along an axis: one axis")
    pattern = tuple(-1 if i == axis else 1 for i in range(len(shape)))
    if isinstance(given, Core):
        return tensor._of(given._node).reshape(pattern).expand(tuple(shape))
    return np.broadcast_to(given.reshape(pattern), [number_of(size, "places") for size in shape])


def _parts_at(tensor: Tensor, axis: int, places: Any, source: Any, what: str) -> tuple[int, Any, Tensor]:
    """Return an axis counted from the front, places for every element of the parts, and the parts."""
    at = tensor._axis(axis)
    count = (
        places.shape[0]
        if isinstance(places, Core) and places.ndim
        else np.size(places)
        if not isinstance(places, Core)
        else 1
    )
    shape = (*tensor.shape[:at], count, *tensor.shape[at + 1 :])
    y = indexing.of_its_kind(tensor, source, what).expand(shape)
    return at, _along(tensor, at, places, shape), y


def index_add(tensor: Tensor, axis: int, places: Any, source: Any, *, alpha: float = 1) -> Tensor:
    """Return it with the parts of `source`, `alpha` times, added at places along an axis."""
    if tensor._is_one(axis):
        return cast("Tensor", tensor._as_one(index_add, 0, places, source, alpha=alpha))
    at, where, y = _parts_at(tensor, axis, places, source, "index_add")
    return indexing.scattered(tensor, at, where, y if alpha == 1 else y * alpha, Op.ADD)


def index_copy(tensor: Tensor, axis: int, places: Any, source: Any) -> Tensor:
    """Return it with the parts of `source` put at places along an axis."""
    if tensor._is_one(axis):
        return cast("Tensor", tensor._as_one(index_copy, 0, places, source))
    at, where, y = _parts_at(tensor, axis, places, source, "index_copy")
    return indexing.scattered(tensor, at, where, y, None)


def index_fill(tensor: Tensor, axis: int, places: Any, value: Any) -> Tensor:
    """Return it with a value put at places along an axis."""
    return index_copy(tensor, axis, places, value)


def index_put(tensor: Tensor, places: Sequence[Any], values: Any, *, accumulate: bool = False) -> Tensor:
    """Return it with values put, or added with `accumulate`, at index tensors for its first axes."""
    key, values = tuple(places), indexing.of_its_kind(tensor, values, "index_put")
    if len(key) == 1 and isinstance(key[0], Core) and key[0].dtype.kind == "bool" and not accumulate:
        return with_masked(tensor, tensor._of(key[0]._node), values)
    return indexing.with_part(tensor, key, values, Op.ADD if accumulate else None)


def scatter(tensor: Tensor, axis: int, places: Any, values: Any, *, reduce: str | None = None) -> Tensor:
    """Return it with `values` put at places along an axis, where two meet the last one stays; or added to or multiplied
    with what is there (`reduce` add or multiply).
    """
    if reduce not in REDUCED:
        raise ValueError(f"scatter has no reduce {reduce!r}; there are None, add and multiply")
    return indexing.scattered(tensor, axis, places, values, REDUCED[reduce])


def scatter_reduce(
    tensor: Tensor, axis: int, places: Any, values: Any, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return it with `values` combined at places along an axis: sum, prod, mean, amax or amin. Without `include_self`
    the elements there before do not count.
    """
    if reduce != "mean" and include_self:
        return indexing.scatter_reduce(tensor, axis, places, values, reduce)
    if reduce != "mean" and reduce not in indexing.SCATTERS:
        raise ValueError(f"scatter_reduce by {reduce!r}; there are mean, {', '.join(indexing.SCATTERS)}")
    zeros = tensor._constant(0, dtypes.int32, tensor.shape)
    count = indexing.scattered(zeros, axis, places, 1, Op.ADD)
    if not include_self:
        start = STARTS.get(reduce, tensor.dtype.least if "max" in reduce else tensor.dtype.greatest)
        begun = (count > 0).where(tensor.full_like(start), tensor)
        if reduce != "mean":
            return indexing.scatter_reduce(begun, axis, places, values, reduce)
        summed, count = indexing.scattered(begun, axis, places, values, Op.ADD), count.maximum(1)
    else:
        summed, count = indexing.scattered(tensor, axis, places, values, Op.ADD), count + 1
    return summed / count.cast(summed.dtype) if tensor.dtype.is_float else summed // count.cast(summed.dtype)
