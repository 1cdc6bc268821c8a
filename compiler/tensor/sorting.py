"""Running sums, order, and what rests on order. All sorting is stable, with NaN last as NumPy has it.

Integers are sorted: each is an element's key (an integer in the order of the elements) with its place in the bits below
the key. So no two are equal, and equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.complex_numbers.sums import running_product
from ringup.compiler.tensor.conversions import SIGNED, narrowed, widened
from ringup.compiler.tensor.core import Axes, DTypeLike, number_of, refuse_complex, whole_number
from ringup.compiler.tensor.indexing import picked
from ringup.compiler.tensor.movement import add_edges, cut
from ringup.compiler.tensor.reductions import drop_axes, in_statistics, places_along, sum_dtype

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# elements of a long row that one group sorts, where the greatest k are wanted
BLOCK = 4096


# running reductions


def _scan(tensor: Tensor, op: Op, axis: int) -> Tensor:
    """Return the running reduction along an axis."""
    if tensor._is_one(axis):
        return tensor
    if tensor.dtype.is_complex and op is not Op.ADD:
        refuse_complex(f"running {op.value}", tensor.dtype)
    return tensor._of(nodes.scan(op, tensor._node, tensor._axis(axis)))


def cumsum(tensor: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Return the running sum along an axis, of the flattened tensor for None; narrow integers in int32, f16
    and its like kept in f32 and rounded at the end. With `dtype` elements and sums are of that type.
    """
    if dtype is not None:
        return cumsum(tensor.cast(dtype), axis).cast(dtype)
    if axis is None:
        return cumsum(tensor.flatten(), 0)
    x = widened(tensor) if tensor.dtype.is_float else tensor.cast(sum_dtype(tensor))
    return narrowed(_scan(x, Op.ADD, axis), tensor)


def cumprod(tensor: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Return the running product along an axis, of the flattened tensor for None; with `dtype` elements and products
    are of that type.
    """
    if dtype is not None:
        return cumprod(tensor.cast(dtype), axis).cast(dtype)
    if axis is None:
        return cumprod(tensor.flatten(), 0)
    if tensor.dtype.is_complex:
        return tensor if tensor._is_one(axis) else running_product(tensor, tensor._axis(axis))
    x = widened(tensor) if tensor.dtype.is_float else tensor.cast(sum_dtype(tensor))
    return narrowed(_scan(x, Op.MUL, axis), tensor)


def cummax(tensor: Tensor, axis: int = 0) -> Tensor:
    """Return the running maximum along an axis; NaN from where there is one."""
    return _scan(tensor, Op.MAX if tensor.dtype.kind != "bool" else Op.OR, axis)


def cummin(tensor: Tensor, axis: int = 0) -> Tensor:
    """Return the running minimum along an axis; NaN from where there is one."""
    return _scan(tensor, Op.MIN if tensor.dtype.kind != "bool" else Op.AND, axis)


def logcumsumexp(tensor: Tensor, axis: int = 0) -> Tensor:
    """Return the logarithm of the running sum of exponentials along an axis, accurate also far below the greatest
    element of a row.
    """
    return narrowed(_scan(widened(tensor), Op.LOGADDEXP, axis), tensor)


def diff(tensor: Tensor, axis: int = -1) -> Tensor:
    """Return the differences of neighbours along an axis; of bools where they differ."""
    at = tensor._axis(axis)
    size = number_of(tensor.shape[at], "diff")
    if size < 1:
        return tensor
    after, before = cut(tensor, at, 1, size), cut(tensor, at, 0, size - 1)
    return after.ne(before) if tensor.dtype.kind == "bool" else after - before


# order


def _order_keys(tensor: Tensor, *, descending: bool) -> Tensor:
    """Return integers in the order of the elements: -0.0 with 0.0, NaN as the greatest; turned around for
    descending.
    """
    if tensor.dtype.is_complex:
        refuse_complex("sorting", tensor.dtype)
    if tensor.dtype.kind == "bool":
        keys = tensor.cast(dtypes.int8)
    elif not tensor.dtype.is_float:
        keys = tensor
    else:
        signed = SIGNED[tensor.dtype.bits]
        bits = tensor.eq(0).where(tensor.full_like(0), tensor).detach().bitcast(signed)
        folded = bits ^ ((bits >> tensor.dtype.bits - 1) & int(signed.greatest))
        keys = tensor.isnan().where(folded.full_like(int(signed.greatest)), folded)
    return ~keys if descending else keys


def argsort(tensor: Tensor, axis: int | None = -1, *, descending: bool = False) -> Tensor:
    """Return the places of the elements in rising (or falling) order along an axis, of the flattened tensor for None,
    int32; equals keep their order.
    """
    if axis is None:
        return argsort(tensor.flatten(), 0, descending=descending)
    if tensor._is_one(axis):
        return tensor._constant(0, dtypes.int32)
    at = tensor._axis(axis)
    if number_of(tensor.shape[at], "sorting") == 0:
        return tensor._constant(0, dtypes.int32, tensor.shape)
    return _places_in_order(_order_keys(tensor, descending=descending), at)


def _places_in_order(tensor: Tensor, axis: int) -> Tensor:
    """Return the places of keys in rising order, equals as they stand."""
    # 64 bits by the lower half first: the second sorting keeps its order where it sees equals
    if tensor.dtype.bits == 64:
        low = _places_in_order((tensor & 0xFFFF_FFFF).cast(dtypes.uint32), axis)
        high = (tensor >> 32).cast(dtypes.int32 if tensor.dtype.kind == "int" else dtypes.uint32)
        return picked(low, axis, _places_in_order(picked(high, axis, low), axis))
    return _place_of(_in_order(_with_places(tensor, axis), axis), tensor.shape[axis])


def _in_order(tensor: Tensor, axis: int) -> Tensor:
    """Return integers in rising order along an axis."""
    return tensor._of(nodes.sort(tensor._node, axis))


def _with_places(tensor: Tensor, axis: int) -> Tensor:
    """Return keys below 64 bits with their places along an axis below them in one number: no two are equal."""
    size = number_of(tensor.shape[axis], "sorting")
    bits = (size - 1).bit_length()
    signed = tensor.dtype.kind == "int"
    if tensor.dtype.bits + bits > 32:
        wide, bits = dtypes.int64 if signed else dtypes.uint64, 32
    else:
        wide = dtypes.int32 if signed else dtypes.uint32
    return (tensor.cast(wide) << bits) | places_along(tensor, axis).cast(wide)


def _place_of(tensor: Tensor, size: Int) -> Tensor:
    """Return the place in a number that `_with_places` made of an axis of `size`."""
    bits = 32 if tensor.dtype.bits == 64 else (number_of(size, "sorting") - 1).bit_length()
    return (tensor & ((1 << bits) - 1)).cast(dtypes.int32)


def sort(tensor: Tensor, axis: int | None = -1, *, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Return the elements in order along an axis, of the flattened tensor for None, and the places they came from."""
    if axis is None:
        return sort(tensor.flatten(), 0, descending=descending)
    places = tensor.argsort(axis, descending=descending)
    if tensor._is_one(axis):
        return tensor, places
    return picked(tensor, tensor._axis(axis), places), places


def topk(tensor: Tensor, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    """Return the k greatest (or least) along an axis, in order, and their places."""
    if tensor._is_one(axis):
        return cast("tuple[Tensor, Tensor]", tensor._as_one(topk, k))
    at = tensor._axis(axis)
    size, k = number_of(tensor.shape[at], "topk"), whole_number(k, "a count")
    if not 0 <= k <= size:
        raise ValueError(f"topk of {k} along axis {axis} of {list(tensor.shape)}: 0 to {size}")
    places = _first_places(tensor, at, k, descending=largest)
    return picked(tensor, at, places), places


def _first_places(tensor: Tensor, axis: int, k: int, *, descending: bool) -> Tensor:
    """Return the first k places in order along an axis. Of a long row, only the first k of each block are looked at
    again.
    """
    if k == 0:
        return cut(tensor._constant(0, dtypes.int32, tensor.shape), axis, 0, 0)
    keys = _order_keys(tensor, descending=descending)
    if keys.dtype.bits == 64:
        return cut(_places_in_order(keys, axis), axis, 0, k)
    packed = _with_places(keys, axis).movedim(axis, -1)
    lead, count = packed.shape[:-1], number_of(packed.shape[-1], "topk")
    while count > BLOCK >= 4 * k:
        blocks = -(-count // BLOCK)
        edges = [*[(0, 0)] * len(lead), (0, blocks * BLOCK - count)]
        rows = add_edges(packed, edges, int(packed.dtype.greatest)).reshape((*lead, blocks, BLOCK))
        firsts = cut(_in_order(rows, rows.ndim - 1), rows.ndim - 1, 0, k)
        packed, count = firsts.reshape((*lead, blocks * k)), blocks * k
    found = cut(_in_order(packed, packed.ndim - 1), packed.ndim - 1, 0, k)
    return _place_of(found.movedim(-1, axis), tensor.shape[axis])


def along_several(
    function: Callable[..., Tensor], tensor: Tensor, axes: tuple[int, ...], *given: object, keepdims: bool
) -> Tensor:
    """Return what a function of one axis makes of several, which are made one."""
    kept = tuple(i for i in range(tensor.ndim) if i not in axes)
    flat = tensor.permute((*kept, *axes)).reshape((*(tensor.shape[i] for i in kept), -1 if tensor.numel() else 0))
    made = function(flat, *given, -1)
    return made.reshape(tuple(1 if i in axes else size for i, size in enumerate(tensor.shape))) if keepdims else made


def median(tensor: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return the middle element in order along axes, the mean of two for an even count, of the type of `mean`; NaN
    if there is one.
    """
    if axis is not None and not isinstance(axis, int):
        return along_several(median, tensor, tensor._axes(axis), keepdims=keepdims)
    if axis is None:
        found = median(tensor.flatten(), 0)
        return found.reshape((1,) * tensor.ndim) if keepdims else found
    at = tensor._axis(axis)
    size = number_of(tensor.shape[at], "median")
    if size == 0:
        raise ValueError(f"median of {list(tensor.shape)} along axis {axis}: nothing is there")
    x = in_statistics(sort(tensor, at)[0])
    low, high = cut(x, at, (size - 1) // 2, (size - 1) // 2 + 1), cut(x, at, size // 2, size // 2 + 1)
    made = (low + high) * 0.5 if size % 2 == 0 else low
    if tensor.dtype.is_float:
        last = cut(x, at, size - 1, size)
        made = last.isnan().where(last, made)
    return narrowed(made if keepdims else drop_axes(made, (at,)), tensor)
