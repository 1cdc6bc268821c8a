"""Surfaces: lines with a pitch, or blocks of GOBs (groups of bytes: 64 bytes by 8 lines).

A block is one GOB wide and a power of two of them high and deep. Blocks follow each other along x, then y, then z; in a
block the GOBs follow along y, then z.

Source: NVC7B5_SET_SRC_BLOCK_SIZE of clc7b5.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.nv.common.gobs import GOB_BYTES, GOB_HEIGHT, GOB_WIDTH, gob_offsets
from ringup.silicon.nv.engines.engine import Lacking, Refused
from ringup.silicon.nv.memory.port import ByteMemory

# SET_*_BLOCK_SIZE: the largest logarithm of GOBs along y and z
MAX_LOG2 = 5
Bytes = NDArray[np.uint8]


@cache
def _order() -> NDArray[np.intp]:
    """Return the offset in a GOB of each byte of its lines, (8, 64)."""
    y, x = np.mgrid[0:GOB_HEIGHT, 0:GOB_WIDTH]
    return gob_offsets(x, y)


@cache
def _lines(gobs: int) -> NDArray[np.intp]:
    """Return the offset of each byte of a column of GOBs, (8 * gobs, 64)."""
    return np.concatenate([_order() + GOB_BYTES * number for number in range(gobs)])


@dataclass(frozen=True, slots=True)
class Blocks:
    """A surface of blocks; sizes in bytes, lines and layers. `height_log2` and `depth_log2` count GOBs of a block."""

    base: int
    width: int
    height: int
    depth: int
    height_log2: int
    depth_log2: int

    def check(self, x: int, y: int, layer: int, width: int, height: int) -> None:
        """Raise `Refused` for a rectangle that is not within the surface."""
        if x + width > self.width or y + height > self.height or layer >= max(self.depth, 1):
            raise Refused(
                f"{width} bytes by {height} lines at ({x}, {y}), layer {layer}, of a surface of "
                f"{self.width} bytes by {self.height} lines by {self.depth} layers"
            )

    def _column(self, x: int, y: int, layer: int) -> int:
        """Return the address of the GOBs of one layer in the block that holds a byte."""
        across = -(-self.width // GOB_WIDTH)
        down = -(-self.height // (GOB_HEIGHT << self.height_log2))
        row, deep = y // (GOB_HEIGHT << self.height_log2), layer >> self.depth_log2
        block = ((deep * down + row) * across) + x // GOB_WIDTH
        inside = (layer & (1 << self.depth_log2) - 1) << self.height_log2
        return self.base + ((block << self.height_log2 + self.depth_log2) + inside) * GOB_BYTES

    def _gobs(self, y: int, end: int) -> tuple[int, int]:
        """Return the first GOB of a column that holds a line, and how many GOBs there are to the last line."""
        first = y // GOB_HEIGHT & (1 << self.height_log2) - 1
        last = (end - 1) // GOB_HEIGHT & (1 << self.height_log2) - 1
        return first, last - first + 1

    def _pieces(self, x: int, y: int, width: int, height: int) -> list[tuple[int, int, int, int]]:
        """Split a rectangle at blocks: (x, y, end of x, end of y) each."""
        tall = GOB_HEIGHT << self.height_log2
        pieces = []
        top = y
        while top < y + height:
            bottom = min(y + height, (top // tall + 1) * tall)
            left = x
            while left < x + width:
                right = min(x + width, (left // GOB_WIDTH + 1) * GOB_WIDTH)
                pieces.append((left, top, right, bottom))
                left = right
            top = bottom
        return pieces

    def read(self, memory: ByteMemory, x: int, y: int, layer: int, width: int, height: int) -> Bytes:
        """Return a rectangle, (height, width)."""
        out = np.empty((height, width), np.uint8)
        for left, top, right, bottom in self._pieces(x, y, width, height):
            first, gobs = self._gobs(top, bottom)
            at = self._column(left, top, layer) + first * GOB_BYTES
            lines = np.frombuffer(memory.read(at, gobs * GOB_BYTES), np.uint8)[_lines(gobs)]
            line, column = top % GOB_HEIGHT, left % GOB_WIDTH
            out[top - y : bottom - y, left - x : right - x] = lines[
                line : line + bottom - top, column : column + right - left
            ]
        return out

    def write(self, memory: ByteMemory, x: int, y: int, layer: int, data: Bytes) -> None:
        """Store a rectangle, (height, width). Other bytes of the GOBs keep their contents."""
        height, width = data.shape
        for left, top, right, bottom in self._pieces(x, y, width, height):
            first, gobs = self._gobs(top, bottom)
            at = self._column(left, top, layer) + first * GOB_BYTES
            part = data[top - y : bottom - y, left - x : right - x]
            if part.size == gobs * GOB_BYTES:
                raw = np.empty(gobs * GOB_BYTES, np.uint8)
            else:
                raw = np.frombuffer(memory.read(at, gobs * GOB_BYTES), np.uint8).copy()
            line, column = top % GOB_HEIGHT, left % GOB_WIDTH
            raw[_lines(gobs)[line : line + bottom - top, column : column + right - left]] = part
            memory.write(at, raw.tobytes())


def block_logs(width: int, height: int, depth: int) -> tuple[int, int]:
    """Return the logarithms of a block's height and depth from the fields of SET_*_BLOCK_SIZE."""
    if width:
        raise Lacking(f"blocks of {1 << width} GOBs along x are not modelled")
    if height > MAX_LOG2 or depth > MAX_LOG2:
        raise Refused(f"a block of 2^{height} GOBs along y and 2^{depth} along z")
    return height, depth
