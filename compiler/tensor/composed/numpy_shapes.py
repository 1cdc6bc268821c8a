"""NumPy's functions that put arrays together, take them apart or count places, for tensors, arrays and lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.index import Int
from ringup.compiler.tensor import core
from ringup.compiler.tensor.core import DTypeLike, as_dtype, as_shape, number_of, total, whole_number
from ringup.compiler.tensor.tensor import Tensor


def as_tensor_of(value: Any) -> Tensor:
    """Return a tensor, an array or a list as a tensor."""
    return value if isinstance(value, Tensor) else Tensor(value)


# shapes and types


def shape(a: Any) -> tuple[Int, ...]:
    """Return the sizes of the axes."""
    return as_tensor_of(a).shape


def ndim(a: Any) -> int:
    """Return the number of axes."""
    return as_tensor_of(a).ndim


def isscalar(element: object) -> bool:
    """Return whether something is a single number or text, not an array of one."""
    return isinstance(element, (bool, int, float, complex, str, bytes, np.generic))


def broadcast_shapes(*shapes: Sequence[Int] | int) -> tuple[Int, ...]:
    """Return the shape that all of some shapes spread to."""
    return core.broadcast_shapes((), *(as_shape((one,) if core.is_size(one) else tuple(one)) for one in shapes))  # type: ignore[arg-type]


def broadcast_arrays(*args: Any) -> tuple[Tensor, ...]:
    """Return arrays spread to one shape."""
    found = [as_tensor_of(one) for one in args]
    wanted = core.broadcast_shapes(*(one.shape for one in found)) if found else ()
    return tuple(one.expand(wanted) for one in found)


def promote_types(type1: DTypeLike, type2: DTypeLike) -> DType:
    """Return the type that holds the values of two types."""
    return dtypes.promote(as_dtype(type1), as_dtype(type2))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the type of an operation on tensors, types and Python numbers; these take the type of those beside."""
    if not arrays_and_dtypes:
        raise ValueError("result_type of nothing")
    numbers = [
        one
        for one in arrays_and_dtypes
        if isinstance(one, (bool, int, float, complex)) and not isinstance(one, np.generic)
    ]
    kinds = [
        one.dtype
        if isinstance(one, Tensor)
        else as_tensor_of(one).dtype
        if isinstance(one, (list, np.ndarray))
        else as_dtype(one)
        for one in arrays_and_dtypes
        if not any(one is number for number in numbers)
    ]
    made = kinds[0] if kinds else dtypes.of_scalar(numbers[0])
    for kind in kinds[1:]:
        made = dtypes.promote(made, kind)
    for number in numbers:
        made = dtypes.promote(made, dtypes.of_scalar(number, made))
    return made


# together and apart


def append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    """Return values behind an array along an axis; both flattened for None."""
    first, second = as_tensor_of(arr), as_tensor_of(values)
    if axis is None:
        first, second, axis = first.flatten(), second.flatten(), 0
    return first.cat(second, axis=axis)


def _chosen(obj: Any, count: int, most: int) -> list[int]:
    """Return places from the front, checked; `most` is the largest that there may be."""
    if isinstance(obj, slice):
        return list(range(*obj.indices(count)))
    places = np.atleast_1d(np.asarray(obj.tolist() if isinstance(obj, Tensor) else obj))
    if places.dtype == np.bool_:
        if places.shape != (count,):
            raise ValueError(f"a mask of shape {list(places.shape)} for an axis of {count}")
        places = places.nonzero()[0]
    made = []
    for one in places.reshape(-1).tolist():
        place = whole_number(one, "a place")
        if not -count <= place <= most:
            raise IndexError(f"place {place} of an axis of {count}")
        made.append(place + count if place < 0 else place)
    return made


def delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    """Return an array without the elements at some places of an axis; flattened for None."""
    tensor = as_tensor_of(arr)
    if axis is None:
        tensor, axis = tensor.flatten(), 0
    count = number_of(tensor.shape[tensor._axis(axis)], "delete")
    gone = set(_chosen(obj, count, count - 1))
    left = np.array([place for place in range(count) if place not in gone], np.int32)
    return tensor.index_select(axis, Tensor(left))


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """Return an array with values put before some places of an axis; flattened for None."""
    tensor = as_tensor_of(arr)
    if axis is None:
        tensor, axis = tensor.flatten(), 0
    at = tensor._axis(axis)
    count = number_of(tensor.shape[at], "insert")
    single = isinstance(obj, (int, np.integer))
    places = _chosen(obj, count, count)
    new = as_tensor_of(values).cast(tensor.dtype)
    if single and new.ndim and tensor.ndim == new.ndim:
        # several values before one place
        places = places * number_of(new.shape[at], "insert")
    elif single and new.ndim:
        new = new.unsqueeze(at) if tensor.ndim > 1 else new
        places = places * number_of(new.shape[at], "insert")
    new = new.expand((*tensor.shape[:at], len(places), *tensor.shape[at + 1 :]))
    order = sorted(range(len(places)), key=lambda i: places[i])
    rows, following = [], 0
    for place in range(count + 1):
        while following < len(order) and places[order[following]] == place:
            rows.append(count + order[following])
            following += 1
        if place < count:
            rows.append(place)
    return tensor.cat(new, axis=at).index_select(at, Tensor(np.array(rows, np.int32)))


def resize(a: Any, new_shape: int | Sequence[int]) -> Tensor:
    """Return the elements of an array in another shape, repeated as often as that needs."""
    flat = as_tensor_of(a).flatten()
    wanted = as_shape((new_shape,) if isinstance(new_shape, int) else tuple(new_shape))
    count, have = number_of(total(wanted), "resize"), number_of(flat.shape[0], "resize")
    if not have:
        return flat._constant(0, flat.dtype, wanted)
    return flat.repeat(-(-count // have) or 1)[:count].reshape(wanted)


def trim_zeros(filt: Any, trim: str = "fb") -> Tensor:
    """Return a line of numbers without the zeros at its front (f) and back (b). It looks at the values."""
    tensor = as_tensor_of(filt)
    if tensor.ndim != 1:
        raise ValueError(f"trim_zeros of {tensor.ndim} axes: one")
    places = tensor.numpy().nonzero()[0]
    if not len(places):
        return tensor[:0]
    first = int(places[0]) if "f" in trim.lower() else 0
    return tensor[first : int(places[-1]) + 1 if "b" in trim.lower() else None]


def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts along an axis, without it."""
    return tuple(as_tensor_of(x).unbind(axis))


def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    """Return an array whose axis stands before the one at `start`."""
    tensor = as_tensor_of(a)
    at = tensor._axis(axis)
    before = tensor.ndim if start == tensor.ndim else tensor._axis(start)
    return tensor.movedim(at, before - 1 if at < before else before)


def permute_dims(a: Any, axes: Sequence[int]) -> Tensor:
    """Return the axes in another order."""
    return as_tensor_of(a).permute(tuple(axes))


def matrix_transpose(x: Any) -> Tensor:
    """Return the last two axes exchanged."""
    return as_tensor_of(x).transpose(-2, -1)


# places


def identity(n: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return the square matrix with ones on its diagonal."""
    return Tensor.eye(n, dtype="float32" if dtype is None else dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike = "float32") -> Tensor:  # noqa: N803
    """Return a matrix with ones on and below its k-th diagonal."""
    return Tensor.ones(N, N if M is None else M, dtype=dtype).tril(k)


def indices(dimensions: Sequence[int], dtype: DTypeLike = "int64") -> Tensor:
    """Return the places of a grid along each of its axes: the axis first."""
    wanted = as_shape(tuple(dimensions))
    if not wanted:
        return Tensor.zeros(0, dtype=dtype)
    grid = [
        Tensor.arange(size)
        .cast(as_dtype(dtype))
        .reshape(tuple(-1 if i == j else 1 for j in range(len(wanted))))
        .expand(wanted)
        for i, size in enumerate(wanted)
    ]
    return grid[0].stack(*grid[1:])


def fromfunction(function: Callable[..., Any], shape: Sequence[int], dtype: DTypeLike = "float32") -> Any:
    """Return what a function makes of the places along each axis."""
    return function(*indices(shape, dtype).unbind(0)) if len(shape) else function()


def ix_(*args: Any) -> tuple[Tensor, ...]:
    """Return places along each axis in shapes that spread to their grid, to index with. Masks are looked at."""
    made = []
    for i, one in enumerate(args):
        line = as_tensor_of(one)
        if line.ndim != 1:
            raise ValueError(f"ix_ of {line.ndim} axes: one")
        if line.dtype.kind == "bool":
            line = line.nonzero().flatten()
        made.append(line.reshape(tuple(-1 if i == j else 1 for j in range(len(args)))))
    return tuple(made)


def flatnonzero(a: Any) -> Tensor:
    """Return the places of what is not 0, as if the array were a line. It looks at the values."""
    found: Tensor = as_tensor_of(a).flatten().nonzero().flatten()
    return found


def unravel_index(indices: Any, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Return the places along each axis of a shape, of places in its elements as a line."""
    wanted = [
        number_of(size, "unravel_index") for size in as_shape((shape,) if isinstance(shape, int) else tuple(shape))
    ]
    rest, made = as_tensor_of(indices), []
    if not rest.dtype.is_integer:
        raise TypeError(f"unravel_index of {rest.dtype}: integers")
    rest = rest.cast(dtypes.of_range(int(rest.dtype.least), *wanted) if rest.dtype.bits < 32 else rest.dtype)
    for size in reversed(wanted):
        made.append(rest % size)
        rest = rest // size
    return tuple(reversed(made))


def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int]) -> Tensor:
    """Return places in the elements of a shape as a line, of the places along each of its axes."""
    wanted = [number_of(size, "ravel_multi_index") for size in as_shape(tuple(dims))]
    if len(multi_index) != len(wanted):
        raise ValueError(f"places along {len(multi_index)} axes of a shape of {len(wanted)}")
    made: Tensor = as_tensor_of(multi_index[0])
    for one, size in zip(multi_index[1:], wanted[1:], strict=True):
        made = made * size + as_tensor_of(one)
    return made
