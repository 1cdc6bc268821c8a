"""Images resampled and rearranged: each axis by itself, a sum of a few weighed neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ringup.compiler.graph import dtypes
from ringup.compiler.tensor.composed.pooling import adaptive_avg_pool
from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import is_list, number_of, whole_number
from ringup.compiler.tensor.indexing import gathered
from ringup.compiler.tensor.movement import every_nth

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# the language's mode, by the names that PyTorch has for it
MODES = {
    "nearest": "nearest", "nearest-exact": "nearest-exact", "linear": "linear", "bilinear": "linear",
    "trilinear": "linear", "bicubic": "cubic", "cubic": "cubic", "area": "area",
}  # fmt: skip
# the slope of the cubic at its neighbours; PyTorch's
CUBIC = -0.75
WORD_BITS = 15
# places along an axis and their weights, for each neighbour
Parts: TypeAlias = Sequence[tuple[Sequence[int], Sequence[float]]]


def interpolate(
    tensor: Tensor,
    sizes: int | Sequence[int] | None = None,
    mode: str = "nearest",
    *,
    scale_factor: float | Sequence[float] | None = None,
    align_corners: bool | None = False,
) -> Tensor:
    """Return the last axes resampled to `sizes`, or by factors; one number is for all axes but the first two.

    `mode`: nearest (to the left), nearest-exact (to the centre), linear, cubic (both also by PyTorch's names bilinear,
    trilinear, bicubic; half-pixel centres or corners), area (means of parts). Integers stay integers, rounded.
    """
    if mode not in MODES:
        raise ValueError(f"interpolate has no mode {mode!r}; there are {', '.join(MODES)}")
    kind = MODES[mode]
    wanted, steps = _targets(tensor, sizes, scale_factor)
    lead = tensor.ndim - len(wanted)
    if kind == "area":
        return _as_type_of(adaptive_avg_pool(_wide(tensor), wanted, len(wanted)), tensor)
    made = tensor if kind.startswith("nearest") else _wide(tensor)
    # bytes are rounded after each axis, and so the order is PyTorch's
    for place in reversed(range(len(wanted))):
        axis, size, step = lead + place, wanted[place], steps[place]
        length = number_of(tensor.shape[axis], "interpolate")
        if size == length and (align_corners or step is None or step == 1):
            continue
        if kind.startswith("nearest"):
            made = _picked(made, axis, _nearest(length, size, step, exact=kind == "nearest-exact"))
            continue
        at = _centres(length, size, step, corners=bool(align_corners))
        parts = _linear(at) if kind == "linear" else _cubic(at)
        if tensor.dtype is dtypes.uint8:
            made = _rounded(_summed(made, axis, _in_words(parts)), tensor)
        elif kind == "linear":
            made = _between(made, axis, parts)
        else:
            made = _summed(made, axis, parts)
    return made if kind.startswith("nearest") else _as_type_of(made, tensor)


def _targets(
    tensor: Tensor, sizes: int | Sequence[int] | None, factor: float | Sequence[float] | None
) -> tuple[list[int], list[float | None]]:
    """Return the sizes of the last axes, and how far apart their elements lie in the input where a factor says it."""
    if (sizes is None) == (factor is None):
        raise ValueError("interpolate takes a size or a scale_factor")
    given = sizes if factor is None else factor
    each: list[Any] = list(given) if is_list(given) else [given] * max(tensor.ndim - 2, 1)
    if not 0 < len(each) <= tensor.ndim:
        raise ValueError(f"interpolate of {list(tensor.shape)} to {each}: one for some of the last axes")
    lengths = [number_of(one, "interpolate") for one in tensor.shape[-len(each) :]]
    if factor is None:
        wanted = [whole_number(one, "a size") for one in each]
    else:
        wanted = [math.floor(length * float(one)) for length, one in zip(lengths, each, strict=True)]
    if min(wanted) < 1 or min(lengths) < 1:
        raise ValueError(
            f"interpolate of {list(tensor.shape)} to {wanted}: a size of 1 or more for some of the last axes"
        )
    return wanted, [None if factor is None else 1 / float(one) for one in each]


def _wide(tensor: Tensor) -> Tensor:
    """Return it in a float type that holds its elements."""
    if tensor.dtype.is_float:
        return widened(tensor)
    return tensor.cast(dtypes.float64 if tensor.dtype.bits > 16 else dtypes.float32)


def _as_type_of(made: Tensor, tensor: Tensor) -> Tensor:
    """Return floats in the type of a tensor, rounded to whole numbers and held to its range for integers."""
    if tensor.dtype.is_float:
        return narrowed(made, tensor)
    return _rounded(made, tensor).cast(tensor.dtype)


def _rounded(made: Tensor, tensor: Tensor) -> Tensor:
    """Return whole numbers, halves rounded up, in the range of a tensor's type."""
    return (made + 0.5).floor().clip(float(tensor.dtype.least), float(tensor.dtype.greatest))


def _in_words(parts: Parts) -> Parts:
    """Return weights in as many places after the point as signed words of 16 bits have; PyTorch's for bytes."""
    most = max(max(weights) for _, weights in parts)
    places = next(i for i in range(WORD_BITS + 8) if int(0.5 + most * 2 ** (i + 1)) >= 1 << WORD_BITS)
    unit = 2.0**places
    return [(at, [math.floor(abs(one) * unit + 0.5) / unit * (-1 if one < 0 else 1) for one in weights])
            for at, weights in parts]  # fmt: skip


def _nearest(length: int, size: int, step: float | None, *, exact: bool) -> list[int]:
    """Return the places of `size` elements of an axis."""
    if step is None:
        return [(2 * i + 1) * length // (2 * size) if exact else i * length // size for i in range(size)]
    return [min(math.floor((i + 0.5 * exact) * step), length - 1) for i in range(size)]


def _centres(length: int, size: int, step: float | None, *, corners: bool) -> list[float]:
    """Return where the centres of `size` elements lie in an axis, as places between its elements."""
    if corners:
        return [i * (length - 1) / max(size - 1, 1) for i in range(size)]
    apart = length / size if step is None else step
    return [(i + 0.5) * apart - 0.5 for i in range(size)]


def _summed(tensor: Tensor, axis: int, parts: Parts) -> Tensor:
    """Return the sum of elements at places along an axis, each times its weight; places beyond are at the edge."""
    last = number_of(tensor.shape[axis], "interpolate") - 1
    made = None
    for places, weights in parts:
        shape = tuple(len(weights) if i == axis else 1 for i in range(tensor.ndim))
        weight = tensor._from_array(np.array(weights, tensor.dtype.numpy)).reshape(shape)
        one = _picked(tensor, axis, [min(max(i, 0), last) for i in places]) * weight
        made = one if made is None else made + one
    assert made is not None
    return made


def _between(tensor: Tensor, axis: int, parts: Parts) -> Tensor:
    """Return the first of two neighbours and a share of how far the second is away: exact between equal ones."""
    (low, _), (high, weights) = parts
    last = number_of(tensor.shape[axis], "interpolate") - 1
    weight = tensor._from_array(np.array(weights, tensor.dtype.numpy))
    first, second = (_picked(tensor, axis, [min(i, last) for i in places]) for places in (low, high))
    return first + (second - first) * weight.reshape(tuple(len(low) if i == axis else 1 for i in range(tensor.ndim)))


def _linear(at: Sequence[float]) -> Parts:
    """Return two neighbours and their weights, before the first place those of that."""
    held = [max(x, 0.0) for x in at]
    low = [math.floor(x) for x in held]
    rest = [x - i for x, i in zip(held, low, strict=True)]
    return [(low, [1 - x for x in rest]), ([i + 1 for i in low], rest)]


def _cubic(at: Sequence[float]) -> Parts:
    """Return four neighbours and their weights in the cubic through them (R. Keys, 1981)."""
    low = [math.floor(x) for x in at]
    rest = [x - i for x, i in zip(at, low, strict=True)]
    return [
        ([i - 1 for i in low], [_far(x + 1) for x in rest]),
        (low, [_near(x) for x in rest]),
        ([i + 1 for i in low], [_near(1 - x) for x in rest]),
        ([i + 2 for i in low], [_far(2 - x) for x in rest]),
    ]


def _near(x: float) -> float:
    """Return the weight of a neighbour at a distance of 0 to 1."""
    return ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1


def _far(x: float) -> float:
    """Return the weight of a neighbour at a distance of 1 to 2."""
    return ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC


def _picked(tensor: Tensor, axis: int, places: Sequence[int]) -> Tensor:
    """Return the elements at `places` along an axis: by a view where they are evenly spread, else gathered."""
    count, length = len(places), number_of(tensor.shape[axis], "a pick")
    if count % length == 0 and list(places) == [i // (count // length) for i in range(count)]:
        return tensor.repeat_interleave(count // length, axis)
    if length % count == 0 and list(places) == [i * (length // count) for i in range(count)]:
        return every_nth(tensor, axis, length // count)
    return gathered(tensor, axis, tensor._from_array(np.array(places, np.int32)))


# channels and pixels


def pixel_shuffle(tensor: Tensor, factor: int) -> Tensor:
    """Return (…, C r^2, H, W) as (…, C, H r, W r)."""
    r = whole_number(factor, "a factor")
    *lead, channels, high, wide = tensor.shape
    if r < 1 or channels % (r * r) != 0:
        raise ValueError(f"pixel_shuffle of {list(tensor.shape)} by {r}: channels a multiple of {r * r}")
    n = len(lead)
    made = tensor.reshape((*lead, channels // (r * r), r, r, high, wide))
    return made.permute([*range(n), n, n + 3, n + 1, n + 4, n + 2]).reshape(
        (*lead, channels // (r * r), high * r, wide * r)
    )


def pixel_unshuffle(tensor: Tensor, factor: int) -> Tensor:
    """Return (…, C, H r, W r) as (…, C r^2, H, W)."""
    r = whole_number(factor, "a factor")
    *lead, channels, high, wide = tensor.shape
    if r < 1 or high % r != 0 or wide % r != 0:
        raise ValueError(f"pixel_unshuffle of {list(tensor.shape)} by {r}: sizes a multiple of it")
    n = len(lead)
    made = tensor.reshape((*lead, channels, high // r, r, wide // r, r))
    return made.permute([*range(n), n, n + 2, n + 4, n + 1, n + 3]).reshape(
        (*lead, channels * r * r, high // r, wide // r)
    )
