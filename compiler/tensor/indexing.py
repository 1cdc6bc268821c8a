"""Elements by place: `t[...]` in full NumPy style, gather and scatter and what is made of them.

Negative places count from the end everywhere. Those given as Python numbers, lists or arrays are checked (IndexError).
Those that are tensors are not known when a graph is made: what lies outside reads 0 and is not written, and `checked()`
makes an IndexError of it (`places`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as operator_index
from typing import TYPE_CHECKING, Any, TypeGuard, cast
from weakref import ref

import numpy as np

from ringup.compiler.graph import dtypes, index
from ringup.compiler.graph import nodes as graph
from ringup.compiler.graph.index import Int
from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor.arrays import as_array
from ringup.compiler.tensor.core import Core, View, broadcast_shapes, is_size, number_of, refuse_complex, spread, total
from ringup.compiler.tensor.movement import base_of, cut_axes, every_nth, is_view_of
from ringup.compiler.tensor.places import counted, watch

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

SCATTERS = {
    "add": Op.ADD,
    "sum": Op.ADD,
    "mul": Op.MUL,
    "prod": Op.MUL,
    "max": Op.MAX,
    "amax": Op.MAX,
    "min": Op.MIN,
    "amin": Op.MIN,
}


def getitem(tensor: Tensor, key: Any) -> Tensor:
    """Return the elements at `key`: a view where numbers and slices of step 1 alone name them, else a copy.

    A bool tensor is a mask, which is read on the host, because the shape of the result depends on it.
    """
    if is_mask(key) and not key.shape:
        return getitem(tensor.unsqueeze(0), key.reshape(1))
    made, advanced = basic_part(tensor, key)
    made = _advanced(made, advanced) if advanced else made
    if made is not tensor and not is_view_of(made, base_of(tensor)):
        refuses = "" if tensor._view is None else tensor._view.refuses
        made._view = View(None, refuses=refuses) if advanced or refuses else View(ref(tensor), key=key)
    return made


def is_mask(key: Any) -> TypeGuard[Tensor]:
    """Return whether an index is a bool tensor."""
    return isinstance(key, Core) and key.dtype.kind == "bool"


def iterate(tensor: Tensor) -> Any:
    """Return an iterator over the parts along the first axis."""
    return (tensor[i] for i in range(len(tensor)))


def basic_part(tensor: Tensor, key: Any) -> tuple[Tensor, dict[int, Tensor]]:
    """Return the part that numbers, slices, None and ... leave, and index tensors by axis of that part."""
    keys = _expanded_keys(tensor, key)
    made, shape, axis = tensor, cast("list[Int]", []), 0
    bounds: list[tuple[Int, Int]] = []
    steps: list[int] = []
    advanced: dict[int, Tensor] = {}
    for one in keys:
        if one is None:
            shape.append(1)
            continue
        if isinstance(one, (Core, np.ndarray)):
            many = 1 if isinstance(one, Core) or one.dtype != np.bool_ else one.ndim
            for part in _index_tensors(tensor, one, axis, len(shape)):
                advanced[part[0]] = part[1]
            for size in tensor.shape[axis : axis + many]:
                bounds.append((0, size))
                steps.append(1)
                shape.append(size)
            axis += many
            continue
        size = tensor.shape[axis]
        if isinstance(one, slice):
            start, stop, step = _slice(tensor, one, axis)
            bounds.append((start, stop))
            steps.append(step)
            shape.append((stop - start + abs(step) - 1) // abs(step))
        else:
            place = _place(tensor, one, axis)
            bounds.append((place, place + 1))
            steps.append(1)
        axis += 1
    made = cut_axes(made, bounds)
    flipped = [i for i, step in enumerate(steps) if step < 0]
    made = made.flip(flipped) if flipped else made
    for i, step in enumerate(steps):
        made = every_nth(made, i, abs(step))
    return made.reshape(shape), advanced


def _expanded_keys(tensor: Tensor, key: Any) -> list[Any]:
    """Return the parts of an index, every axis named."""
    keys = [_as_key(one) for one in (key if isinstance(key, tuple) else (key,))]
    used = sum(
        one.ndim if isinstance(one, np.ndarray) and one.dtype == np.bool_ else one is not None and one is not Ellipsis
        for one in keys
    )
    if used > tensor.ndim:
        raise IndexError(f"{used} indices for a tensor of shape {list(tensor.shape)}")
    dots = [i for i, one in enumerate(keys) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index holds one ... at most")
    at = dots[0] if dots else len(keys)
    full = [*keys[:at], *[slice(None)] * (tensor.ndim - used), *keys[at + 1 :]]
    arrays = [isinstance(one, (Core, np.ndarray)) for one in full]
    # beside arrays, numbers are arrays too where that decides where the axes of the result go
    if any(arrays):
        placed = [i for i, one in enumerate(full) if arrays[i] or is_size(one)]
        if placed[-1] - placed[0] + 1 != len(placed):
            return [
                tensor._lift(one) if isinstance(one, index.Expr) else np.asarray(one) if is_size(one) else one
                for one in full
            ]
    return full


def _as_key(one: Any) -> Any:
    """Return one part of an index as a number, a slice, None, ..., an array of the host or a tensor."""
    if isinstance(one, (bool, np.bool_)):
        raise IndexError("a lone True or False is no index here: use reshape, or where()")
    if isinstance(one, np.integer):
        return int(one)
    if isinstance(one, slice):
        return slice(_bound(one.start), _bound(one.stop), _bound(one.step))
    if one is None or one is Ellipsis or is_size(one):
        return one
    if isinstance(one, Core):
        if one.dtype.kind == "bool":
            # how many are true is known once the mask is computed
            return cast("Tensor", one).numpy()
        if one.dtype.is_inexact:
            raise IndexError(f"an index of {one.dtype}: integers only")
        return one
    try:
        array = np.asarray(one)
    except ValueError:
        # a list of slices, or of lists that differ in length
        array = np.empty(0, object)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexError(
            f"{one!r} is no index: numbers, slices, None, ..., lists or arrays of integers or bools, integer tensors"
        )
    return array


def _bound(value: Any) -> Any:
    """Return a bound of a slice; of a tensor its only element, a whole number."""
    return operator_index(cast("Any", value)) if isinstance(value, Core) else value


def _place(tensor: Tensor, place: Int, axis: int) -> Int:
    """Return a place along an axis counted from its start, checked."""
    size = tensor.shape[axis]
    low, high = index.bounds(place)
    most = index.bounds(size)[1]
    if high < -most or low >= most:
        raise IndexError(f"index {place} of axis {axis} of a tensor of shape {list(tensor.shape)}")
    return place + size if isinstance(place, int) and place < 0 else place


def _slice(tensor: Tensor, one: slice, axis: int) -> tuple[Int, Int, int]:
    """Return (start, stop, step) of a slice, with start below stop also for a negative step."""
    size = tensor.shape[axis]
    step = 1 if one.step is None else one.step
    if not isinstance(step, int) or step == 0:
        raise IndexError(f"a slice with a step of {one.step!r}: a whole number other than 0")
    if all(part is None or isinstance(part, (int, np.integer)) for part in (one.start, one.stop)) and isinstance(
        size, int
    ):
        start, stop, step = one.indices(size)
        count = len(range(start, stop, step))
        if step > 0:
            return start, start + ((count - 1) * step + 1 if count else 0), step
        return (start + (count - 1) * step, start + 1, step) if count else (0, 0, step)
    if step != 1:
        raise IndexError(f"a slice of symbolic bounds with a step of {step}: only 1")
    ends = [edge if part is None else part + size if isinstance(part, int) and part < 0 else part
            for part, edge in ((one.start, 0), (one.stop, size))]  # fmt: skip
    if index.bounds(ends[1] - ends[0])[1] < 0 or index.bounds(size - ends[1])[1] < 0 or index.bounds(ends[0])[0] < 0:
        raise IndexError(
            f"slice {ends[0]}:{ends[1]} of axis {axis} of a tensor of shape {list(tensor.shape)}: outside of it"
        )
    return ends[0], ends[1], 1


def _index_tensors(tensor: Tensor, one: Any, axis: int, place: int) -> list[tuple[int, Tensor]]:
    """Return index tensors by axis of the result of the basic part, host arrays checked and made positive."""
    if isinstance(one, Core):
        return [(place, counted(tensor._of(one._node), tensor.shape[axis], "index"))]
    if one.dtype == np.bool_:
        # a mask without elements leaves nothing, also of an axis that has some
        if any(size not in (0, have) for size, have in zip(one.shape, tensor.shape[axis:], strict=False)):
            raise IndexError(
                f"a mask of shape {list(one.shape)} at axis {axis} of a tensor of shape {list(tensor.shape)}"
            )
        return [(place + i, tensor._from_array(places)) for i, places in enumerate(np.nonzero(one))]
    size = number_of(tensor.shape[axis], "an index array")
    if one.size and (one.max() >= size or one.min() < -size):
        worst = int(one.max() if one.max() >= size else one.min())
        raise IndexError(f"index {worst} of axis {axis} of a tensor of shape {list(tensor.shape)}")
    kind = np.int32 if size < 1 << 31 else np.int64
    return [(place, tensor._from_array(np.where(one < 0, one.astype(np.int64) + size, one).astype(kind)))]


def _flat_places(tensor: Tensor, advanced: dict[int, Tensor]) -> tuple[Tensor, list[int], list[int]]:
    """Return places in the indexed axes made one (outside: -1), those axes, and the others."""
    axes = sorted(advanced)
    shape = broadcast_shapes(*(one.shape for one in advanced.values()))
    wide = dtypes.int64 if index.bounds(total(tensor.shape[axis] for axis in axes))[1] >= 1 << 31 else dtypes.int32
    if len(axes) == 1:
        return advanced[axes[0]], axes, [i for i in range(tensor.ndim) if i not in axes]
    flat, inside = None, None
    for axis in axes:
        place = advanced[axis].cast(wide).expand(shape)
        fine = (place >= 0) & (place < tensor.shape[axis])
        flat = place if flat is None else flat * tensor.shape[axis] + place
        inside = fine if inside is None else inside & fine
    assert flat is not None
    assert inside is not None
    return inside.where(flat, -1), axes, [i for i in range(tensor.ndim) if i not in axes]


def _advanced(tensor: Tensor, advanced: dict[int, Tensor]) -> Tensor:
    """Return the elements at index tensors, given by axis."""
    places, axes, others = _flat_places(tensor, advanced)
    front = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    moved = tensor.permute([*axes, *others]).reshape(
        (total(tensor.shape[i] for i in axes), *(tensor.shape[i] for i in others))
    )
    made = gathered(moved, 0, places.flatten()).reshape((*places.shape, *moved.shape[1:]))
    n = places.ndim
    return made.permute([*range(n, n + front), *range(n), *range(n + front, made.ndim)])


def gathered(tensor: Tensor, axis: int, places: Tensor) -> Tensor:
    """Return the elements at a 1-d tensor of places along an axis."""
    count = places.shape[0]
    shape = tuple(count if i == axis else size for i, size in enumerate(tensor.shape))
    spread_out = places.reshape(tuple(count if i == axis else 1 for i in range(tensor.ndim)))
    return tensor._of(graph.node(Op.GATHER, tensor.dtype, shape, (tensor._node, spread(spread_out._node, shape)), axis))


# by name


def _checked_places(tensor: Tensor, axis: int, places: Any, name: str) -> Tensor:
    """Return places as an integer tensor, counted from the start; those the host knows are checked."""
    if not isinstance(places, Core):
        array = np.asarray(places)
        if array.dtype.kind not in "iu":
            raise TypeError(f"places of {array.dtype}: integers only")
        return _index_tensors(tensor, array, axis, 0)[0][1]
    if not places.dtype.is_integer:
        raise TypeError(f"places of {places.dtype}: integers only")
    return counted(tensor._of(places._node), tensor.shape[axis], name)


def gather(tensor: Tensor, axis: int, places: Any) -> Tensor:
    """Return x[p with p[axis] replaced by places[p]]; places has this rank and no larger other axes."""
    x = tensor if tensor.shape else tensor.reshape((1,))
    at = x._axis(axis)
    where = _checked_places(x, at, places, "gather")
    if not where.shape and x.ndim == 1:
        # beside places without axes a tensor of one axis has none, as in PyTorch
        return picked(x, at, where.reshape((1,))).reshape(())
    return picked(x, at, where)


def picked(tensor: Tensor, axis: int, where: Tensor) -> Tensor:
    """Return what `gather` does, of places that count from the start."""
    source = _cut_to(tensor, where, axis, "gather")
    return tensor._of(graph.node(Op.GATHER, tensor.dtype, where.shape, (source._node, where._node), axis))


def _cut_to(tensor: Tensor, where: Tensor, axis: int, what: str) -> Tensor:
    """Return it cut to the sizes of `where` along the axes other than `axis`; a ValueError where they do not fit."""
    if where.ndim != tensor.ndim or any(
        index.bounds(size - one)[0] < 0
        for i, (one, size) in enumerate(zip(where.shape, tensor.shape, strict=True))
        if i != axis
    ):
        raise ValueError(
            f"{what} along axis {axis} of {list(tensor.shape)} by places {list(where.shape)}: the same rank, no larger other axes"
        )
    sizes = enumerate(zip(where.shape, tensor.shape, strict=True))
    return cut_axes(tensor, [(0, size if i == axis else one) for i, (one, size) in sizes])


def take_along_axis(tensor: Tensor, places: Any, axis: int | None = None) -> Tensor:
    """Return NumPy's take_along_axis: `gather` with the other axes broadcast; of the flattened tensor for None."""
    if axis is None:
        flat = tensor._of(places._node).flatten() if isinstance(places, Core) else np.asarray(places).reshape(-1)
        return tensor.flatten().take_along_axis(flat, 0)
    at = tensor._axis(axis)
    where = _checked_places(tensor, at, places, "take_along_axis")
    if where.ndim != tensor.ndim:
        raise ValueError(f"take_along_axis of {list(tensor.shape)} by {list(where.shape)}: the same rank")
    around = broadcast_shapes(tuple(1 if i == at else size for i, size in enumerate(tensor.shape)),
                              tuple(1 if i == at else size for i, size in enumerate(where.shape)))  # fmt: skip
    x = tensor.expand(tuple(tensor.shape[i] if i == at else size for i, size in enumerate(around)))
    return picked(x, at, where.expand(tuple(where.shape[i] if i == at else size for i, size in enumerate(around))))


def take(tensor: Tensor, places: Any, axis: int | None = None) -> Tensor:
    """Return the elements (of the flattened tensor for None) at places along an axis, which becomes the axes of
    places.
    """
    if axis is None:
        return tensor.flatten().take(places, 0)
    return taken(tensor, places, tensor._axis(axis), "take")


def taken(tensor: Tensor, places: Any, at: int, name: str) -> Tensor:
    """Return what `take` does along an axis counted from the front; `name` is what a check calls it."""
    where = _checked_places(tensor, at, places, name)
    made = gathered(tensor, at, where.flatten())
    return made.reshape((*tensor.shape[:at], *where.shape, *tensor.shape[at + 1 :]))


def index_select(tensor: Tensor, axis: int, places: Any) -> Tensor:
    """Return the parts at a 1-d tensor of places along an axis."""
    ndim = places.ndim if isinstance(places, Core) else np.asarray(places).ndim
    if ndim != 1:
        raise ValueError(f"index_select by places of {ndim} axes: one axis; take() allows more")
    if tensor._is_one(axis):
        return cast("Tensor", tensor._as_one(index_select, 0, places))
    return taken(tensor, places, tensor._axis(axis), "index_select")


def scatter(tensor: Tensor, axis: int, places: Any, values: Any) -> Tensor:
    """Return it with `values` put at places along an axis; where two meet, the last one stays."""
    return scattered(tensor, axis, places, values, None)


def scatter_add(tensor: Tensor, axis: int, places: Any, values: Any) -> Tensor:
    """Return it with `values` added at places along an axis."""
    return scattered(tensor, axis, places, values, Op.ADD)


def scatter_reduce(tensor: Tensor, axis: int, places: Any, values: Any, reduce: str) -> Tensor:
    """Return it with `values` combined at places along an axis: add, mul, max or min."""
    if reduce not in SCATTERS:
        raise ValueError(f"scatter_reduce by {reduce!r}; there are {', '.join(SCATTERS)}")
    return scattered(tensor, axis, places, values, SCATTERS[reduce])


def scattered(tensor: Tensor, axis: int, places: Any, values: Any, op: Op | None) -> Tensor:
    """Return it with `values` at places along an axis: combined by an operation, or put there for None."""
    if not tensor.shape:
        return cast("Tensor", tensor._as_one(scattered, axis, _with_axis(places), _with_axis(values), op))
    at, y = tensor._axis(axis), of_its_kind(tensor, values, "scatter")
    return put(tensor, at, _checked_places(tensor, at, places, "scatter"), y, op)


def _with_axis(value: Any) -> Any:
    """Return an array or a tensor without axes with one of 1."""
    return value.reshape((1,)) if hasattr(value, "reshape") and not value.shape else value


def put(tensor: Tensor, at: int, where: Tensor, values: Any, op: Op | None) -> Tensor:
    """Return what `scattered` does, of places that count from the start."""
    if tensor.dtype.is_complex and op not in (None, Op.ADD):
        refuse_complex(f"scatter by {'' if op is None else op.value}", tensor.dtype)
    y = tensor._of(as_elements(tensor, values)._node).cast(tensor.dtype)
    y = y.expand(where.shape) if not y.shape else y
    _cut_to(tensor, where, at, "scatter")
    if y.ndim != where.ndim or any(index.bounds(a - b)[0] < 0 for a, b in zip(y.shape, where.shape, strict=True)):
        raise ValueError(f"scatter of values {list(y.shape)} by places {list(where.shape)}: values no smaller")
    y = cut_axes(y, [(0, size) for size in where.shape])
    return tensor._of(
        graph.node(Op.SCATTER, tensor.dtype, tensor.shape, (tensor._node, where._node, y._node), (at, op))
    )


def one_hot(tensor: Tensor, classes: int) -> Tensor:
    """Return int32 1 where the class is this integer, 0 elsewhere, along a new last axis of `classes`."""
    if not tensor.dtype.is_integer:
        raise TypeError(f"one_hot of {tensor.dtype}: integers only")
    return is_class(tensor.unsqueeze(-1), tensor._counted(classes), tensor, "one_hot").cast(dtypes.int32)


def is_class(classes: Tensor, numbers: Tensor, given: Tensor, name: str) -> Tensor:
    """Return where classes are these numbers, all from 0 on. Nothing is a class outside of them, which a check finds in
    `given`.
    """
    hit = classes.eq(numbers.cast(classes.dtype) if classes.dtype.bits == 64 else numbers)
    watch(hit, name, given, 0, total(numbers.shape))
    return hit


def as_elements(tensor: Tensor, value: Any) -> Tensor:
    """Return a value as a tensor, a Python number as one of this tensor's type: a ValueError where it, or an element of
    a list or an array, does not fit.
    """
    if isinstance(value, (bool, int, float, complex)):
        return tensor._constant(dtypes.fitting(value, tensor.dtype), tensor.dtype)
    if isinstance(value, (np.ndarray, np.generic, list, tuple)):
        return tensor._from_array(as_array(value, tensor.dtype))
    return tensor._lift(value)


def of_its_kind(tensor: Tensor, value: Any, what: str) -> Tensor:
    """Return a value as elements of this tensor's type; a TypeError for a tensor of floats where this one holds
    integers, and for one of numbers where it holds bools.
    """
    y = as_elements(tensor, value)
    if y.dtype.is_float > tensor.dtype.is_float or (tensor.dtype.kind == "bool" and y.dtype.kind != "bool"):
        raise TypeError(f"{what} of values of {y.dtype} into {tensor.dtype}: cast the tensor or the values")
    return y.cast(tensor.dtype)


def with_part(tensor: Tensor, key: Any, value: Any, op: Op | None = None) -> Tensor:
    """Return it with `value` at `key`: what `t[key] = value` makes of a part that is no plain view, through one
    SCATTER, which combines by an operation or puts the value there.
    """
    kind = dtypes.int64 if index.bounds(tensor.numel())[1] >= 1 << 31 else dtypes.int32
    every = tensor._of(graph.node(Op.IOTA, kind, (tensor.numel(),))).reshape(tensor.shape)
    part, advanced = basic_part(every, key)
    if advanced:
        # what lies outside reads 0
        outside = _advanced(part.full_like(1), advanced).eq(0)
        part = outside.where(-1, _advanced(part, advanced))
    y = as_elements(tensor, value).cast(tensor.dtype)
    if y.ndim > part.ndim:
        y = y.reshape(without_leading_ones(y.shape, part.ndim))
    y = y.expand(part.shape).flatten()
    return put(tensor.flatten(), 0, part.flatten(), y, op).reshape(tensor.shape)


def without_leading_ones(shape: Sequence[Int], ndim: int) -> Sequence[Int]:
    """Return a value's shape cut to the axes of the part it goes into."""
    extra = len(shape) - ndim
    if any(size != 1 for size in shape[:extra]):
        raise ValueError(f"a value of shape {list(shape)} for a part of {ndim} axes")
    return shape[extra:]
