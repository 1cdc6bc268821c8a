"""Filters of texture units: which texels a place between texels is made of, with which weights.

Sources: Vulkan 1.3, "Texel Coordinate Systems", "Wrapping Operation", "Texel Filtering". GUESS: coordinates between
texels have eight bits, as the drivers' subTexelPrecisionBits say, and are rounded to the nearest; a mean is rounded
once.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Indices = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Lanes = NDArray[np.bool_]

STEPS = 256
# An index that a wrap takes back; others leave the image anyway.
_FARTHEST = 2.0**40


class Wrap(Enum):
    """What an index outside an image becomes along one axis."""

    REPEAT = 0
    MIRROR = 1
    CLAMP = 2
    BORDER = 3
    MIRROR_ONCE = 4
    MIRROR_ONCE_BORDER = 5


def wrapped(mode: Wrap, at: Indices, size: Indices | int) -> tuple[Indices, Lanes]:
    """Return the texel of an index along one axis, and where it is the border instead."""
    outside = (at < 0) | (at >= size)
    nowhere = np.zeros_like(outside)
    if mode is Wrap.REPEAT:
        return at % size, nowhere
    if mode is Wrap.MIRROR:
        turned = at % (2 * size)
        return np.where(turned < size, turned, 2 * size - 1 - turned), nowhere
    if mode in (Wrap.MIRROR_ONCE, Wrap.MIRROR_ONCE_BORDER):
        at = np.where(at < 0, -1 - at, at)
        outside = at >= size
    clamped: Indices = np.clip(at, 0, size - 1)
    return clamped, outside if mode in (Wrap.BORDER, Wrap.MIRROR_ONCE_BORDER) else nowhere


def between(place: Floats, is_linear: Lanes) -> tuple[Indices, Floats]:
    """Return the first texel that a place along one axis needs, and the weight of the second one.

    `place` counts texels; a NaN is zero. Without a mean the second one has no weight.
    """
    place = np.clip(np.nan_to_num(place), -_FARTHEST, _FARTHEST)
    middle = np.floor((place - 0.5) * STEPS + 0.5) / STEPS
    first = np.floor(np.where(is_linear, middle, place))
    return first.astype(np.int64), np.where(is_linear, middle - first, 0.0)


def taps(
    firsts: Sequence[Indices], parts: Sequence[Floats], wraps: Sequence[Wrap], sizes: Sequence[Indices | int]
) -> Iterator[tuple[Floats, list[Indices], Lanes]]:
    """Yield each texel of a mean, the first ones of all axes first: its weight, its indices, where it is the border."""
    for corner in itertools.product((0, 1), repeat=len(firsts)):
        weight = np.ones(firsts[0].size)
        is_border = np.zeros(firsts[0].size, np.bool_)
        indices = []
        for axis, high in enumerate(corner):
            weight = weight * (parts[axis] if high else 1 - parts[axis])
            index, beyond = wrapped(wraps[axis], firsts[axis] + high, sizes[axis])
            indices.append(index)
            is_border |= beyond
        yield weight, indices, is_border
