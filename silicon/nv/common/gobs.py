"""A GOB (group of bytes): 64 bytes of each of 8 lines, of which the blocks of a surface consist.

Within one of Turing and later, bits 4 to 8 of the offset are y0, y1, x4, y2, x5. Source: Mesa src/nouveau/nil/copy.rs
(Turing 2D).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

GOB_WIDTH, GOB_HEIGHT, GOB_BYTES = 64, 8, 512
Integers = TypeVar("Integers", bound=NDArray[np.signedinteger])


def gob_offsets(x: Integers, y: Integers) -> Integers:
    """Return the offsets of bytes in their GOBs; higher bits of x and y do not count."""
    return x & 15 | (y & 3) << 4 | (x >> 4 & 1) << 6 | (y >> 2 & 1) << 7 | (x >> 5 & 1) << 8  # type: ignore[return-value]
