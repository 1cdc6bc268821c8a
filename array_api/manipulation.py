"""The same elements in other places: shapes, axes, arrays joined and taken apart, elements by place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringup.array_api.arguments import axes_of, check_arrays, own
from ringup.compiler.tensor import core, movement
from ringup.compiler.tensor.core import number_of, whole_number
from ringup.compiler.tensor.tensor import Tensor


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Return arrays repeated to the one shape that they broadcast to."""
    check_arrays(arrays, "broadcast_arrays")
    if not arrays:
        return ()
    shape = core.broadcast_shapes(*(one.shape for one in arrays))
    return tuple(one.expand(shape) for one in arrays)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that several shapes broadcast to."""
    return core.broadcast_shapes(*map(core.as_shape, shapes)) if shapes else ()  # type: ignore[return-value]


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Return an array repeated to a shape."""
    return x.expand(core.as_shape((shape,)))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Return arrays one after the other along an axis, flattened for None."""
    check_arrays(arrays, "concat")
    parts = [one.flatten() for one in arrays] if axis is None else list(arrays)
    return own(parts[0], movement.cat(*parts, axis=0 if axis is None else axis))


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return an array with axes of size 1 put in at those places of the result."""
    given = axis if isinstance(axis, tuple) else (axis,)
    at = [x._axis(one, extra=len(given)) for one in given]
    if len(set(at)) != len(at):
        raise ValueError(f"expand_dims of {list(x.shape)} at {axis}: a place comes twice")
    sizes = iter(x.shape)
    return x.reshape([1 if i in at else next(sizes) for i in range(x.ndim + len(at))])


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return elements in the opposite order along axes, all of them for None."""
    return x.flip(axis)


def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return an array with axes moved to other places."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Return an array with its axes in another order."""
    return x.permute(tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return each element as often as `repeats` says, of the flattened array for None.

    Counts that are an array are read on the host, because the shape depends on them.
    """
    made, at = (x.flatten(), 0) if axis is None else (x, x._axis(axis))
    size = number_of(made.shape[at], "repeat")
    counts = repeats.numpy() if isinstance(repeats, Tensor) else np.array(whole_number(repeats, "a count"))
    if counts.ndim > 1 or (counts < 0).any():
        raise ValueError("repeat by counts that are negative or have more than one axis")
    places = np.repeat(np.arange(size), np.broadcast_to(counts.reshape(-1), size) if size != counts.size else counts)
    return made.take(places.astype(np.int32), at)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the elements under another shape, in which one size may be -1. The result is a view, unless `copy`."""
    made = x.reshape(tuple(shape))
    return made.clone() if copy else made


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return elements moved along axes, those that leave at one end coming in at the other; of the flattened array
    for None.
    """
    if axis is None:
        return own(x, x.flatten().roll(shift, 0).reshape(x.shape))
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes_of(x, axis))
    made = x
    for one, at in zip(shifts, axes_of(x, axis), strict=True):
        made = made.roll(one, at)
    return own(x, made)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return an array without some axes, which have to be of size 1."""
    return movement.squeeze(x, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Return arrays of one shape side by side along a new axis."""
    check_arrays(arrays, "stack")
    return own(arrays[0], movement.stack(*arrays, axis=axis))


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Return an array repeated as a whole along each axis."""
    return own(x, x.tile(tuple(repetitions)))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts along an axis, without it."""
    moved = x.movedim(x._axis(axis), 0)
    return tuple(moved[i] for i in range(len(moved)))


# elements by place


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the elements at places along an axis; negative places count from the end."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"take of {list(x.shape)} without an axis: an array of one axis only")
    at = 0 if axis is None else x._axis(axis)
    return x.take(indices, at)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the element at a place of its own for each row along an axis; negative places count from the end."""
    return x.take_along_axis(indices, axis)
