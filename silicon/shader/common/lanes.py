"""Lanes of a wave as one boolean each.

A wave has so few lanes that calls of NumPy cost more than the lanes do. The reference engine needs these for every
instruction, so they are the quickest ways.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Lanes = NDArray[np.bool_]


@lru_cache(maxsize=4096)
def lanes_of(mask: int, lane_count: int) -> Lanes:
    """Return the lanes whose bits are set in `mask`. The array is shared, so it is read-only."""
    bits = np.frombuffer(mask.to_bytes(lane_count // 8, "little"), np.uint8)
    lanes = np.unpackbits(bits, bitorder="little").view(np.bool_)
    lanes.setflags(write=False)
    return lanes


def mask_of(lanes: Lanes) -> int:
    """Return a mask of the lanes that are set."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


def some(lanes: Lanes) -> bool:
    """Return whether a lane is set: `lanes.any()` in a tenth of the time."""
    return 1 in lanes.tobytes()


def every(lanes: Lanes) -> bool:
    """Return whether all lanes are set: `lanes.all()` in a tenth of the time."""
    return 0 not in lanes.tobytes()
