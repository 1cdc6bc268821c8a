"""Places of elements, order and sets. Results whose shape depends on the values read these on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ringup.array_api.arguments import Axis, Number, fitted, lifted
from ringup.array_api.types import DEFAULT_INTEGER
from ringup.compiler.graph import dtypes
from ringup.compiler.tensor import movement, sorting
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor

SIDES = ("left", "right")


class UniqueAll(NamedTuple):
    """Distinct values; where each comes first; which of them every element is; how often each comes."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values, and how often each comes."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values, and which of them every element is."""

    values: Tensor
    inverse_indices: Tensor


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the place of the greatest along an axis (of the flattened array for None), the first of equals."""
    return x.argmax(axis, keepdims=keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the place of the least along an axis (of the flattened array for None), the first of equals."""
    return x.argmin(axis, keepdims=keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return how many elements along axes are not 0."""
    return x.count_nonzero(axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the places of elements that are not 0, one array for each axis, in row-major order; read on the host."""
    if not x.ndim:
        raise ValueError("nonzero of an array without axes: it has no places")
    return tuple(_places(one) for one in np.nonzero(x.bool().numpy()))


def _places(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tensor:
    """Return places that the host counted in the type of places."""
    return Tensor(array.astype(DEFAULT_INTEGER.numpy))


def searchsorted(x1: Tensor, x2: Tensor | Number, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return where elements of x2 would go into x1, which is in rising order (that of `sorter`): before its equals for
    "left", after them for "right".
    """
    if side not in SIDES:
        raise ValueError(f"searchsorted on side {side!r}: left or right")
    if x1.ndim != 1:
        raise ValueError(f"searchsorted in {list(x1.shape)}: an array of one axis")
    rising, wanted = fitted(x1 if sorter is None else x1.take(sorter, 0), x2)
    kind = dtypes.promote(rising.dtype, wanted.dtype)
    rising, wanted = rising.cast(kind), wanted.cast(kind)
    size = number_of(rising.shape[0], "searchsorted")
    place = wanted._constant(0, DEFAULT_INTEGER, wanted.shape)
    # the place grows by powers of 2 while what lies before it goes before the wanted element
    for step in [1 << i for i in range(size.bit_length())][::-1]:
        further = place + step
        before = rising.take(further.minimum(size) - 1, 0)
        goes = before < wanted if side == "left" else before <= wanted
        if kind.is_float:
            # NaN is last in the order
            last = wanted.isnan() & ~before.isnan() if side == "left" else wanted.isnan()
            goes = goes | last
        place = (goes & (further <= size)).where(further, place)
    return place


def where(condition: Tensor, x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return x1 where the condition is true, x2 elsewhere; all three broadcast."""
    return condition.where(*fitted(x1, x2))


# order


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the places of the elements in order along an axis, NaN as the greatest; equals always keep their order."""
    return x.argsort(axis, descending=descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the elements in order along an axis, NaN as the greatest; equals always keep their order."""
    return sorting.sort(x, axis, descending=descending)[0]


# sets


def isin(x1: Tensor | Number, x2: Tensor | Number, /, *, invert: bool = False) -> Tensor:
    """Return which elements of x1 are in x2, or are not with `invert`; NaN is in nothing."""
    x, y = fitted(x1, x2)
    values = y.flatten()
    if not values.numel():
        return x._constant(invert, x.bool().dtype, x.shape)
    kind = dtypes.promote(x.dtype, values.dtype)
    wanted, rising = x.cast(kind), sort(values.cast(kind))
    place = searchsorted(rising, wanted).minimum(len(rising) - 1)
    found = rising.take(place, 0).eq(wanted)
    return ~found if invert else found


def _groups(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the flattened elements in order, the places they came from, where a value is the first of its equals, and
    the places of these.
    """
    flat = x.flatten()
    if flat.dtype.is_complex:
        # by the real part, equals by the imaginary one
        places = flat.imag.argsort(0)
        places = places.take(flat.real.take(places, 0).argsort(0), 0) if flat.numel() else places
        elements = flat.take(places, 0)
    else:
        elements, places = sorting.sort(flat, 0)
    first = elements.full_like(1).bool()
    if flat.numel():
        first = movement.cat(first[:1], elements[1:].ne(elements[:-1]))
    elements.realize(places, first)
    return elements, places, first, _places(np.nonzero(first.numpy())[0])


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct values in rising order, where each comes first, which of them every element is, and how often
    each comes. Each NaN is a value of its own.
    """
    elements, places, first, starts = _groups(x)
    return UniqueAll(elements.take(starts, 0), places.take(starts, 0), _inverse(x, places, first), _counts(x, starts))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct values in rising order, and how often each comes."""
    elements, _, _, starts = _groups(x)
    return UniqueCounts(elements.take(starts, 0), _counts(x, starts))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct values in rising order, and which of them every element is."""
    elements, places, first, starts = _groups(x)
    return UniqueInverse(elements.take(starts, 0), _inverse(x, places, first))


def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct values in rising order."""
    elements, _, _, starts = _groups(x)
    return elements.take(starts, 0)


def _counts(x: Tensor, starts: Tensor) -> Tensor:
    return movement.cat(starts, lifted(starts, number_of(x.numel(), "unique")).unsqueeze(0)).diff()


def _inverse(x: Tensor, places: Tensor, first: Tensor) -> Tensor:
    """Return the number of its value for every element."""
    return (first.cumsum(0) - 1).take(places.argsort(0), 0).reshape(x.shape)
