"""Where texels lie: levels follow each other in a layer, and a layer consists of blocks of GOBs, as in a copy.

Source: Mesa's nil/image.rs and tiling.rs. A level's block is made smaller until it is less than twice as high and deep
as the level. A layer takes whole blocks of level 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.nv.common.gobs import GOB_BYTES, GOB_HEIGHT, GOB_WIDTH, gob_offsets
from ringup.silicon.shader.nv.textures.headers import BLOCKS, PITCH, Texture

if TYPE_CHECKING:
    from ringup.silicon.shader.common.sampling import Indices


class Level(NamedTuple):
    """One level of a layer: its size in texels, where it begins, the logarithms of its blocks, how many of them."""

    width: int
    height: int
    depth: int
    offset: int = 0
    tall_log2: int = 0
    deep_log2: int = 0
    across: int = 0
    down: int = 0


def size_of(texture: Texture, level: int) -> tuple[int, int, int]:
    """Return a level's width, height and depth."""
    return max(texture.width >> level, 1), max(texture.height >> level, 1), max(texture.depth >> level, 1)


@lru_cache(maxsize=1024)
def levels_of(texture: Texture) -> tuple[tuple[Level, ...], int]:
    """Return the levels of a layer, and the layer's size in bytes."""
    if texture.memory != BLOCKS:
        return (Level(*size_of(texture, 0)),), 0
    found, offset, block_bytes = [], 0, 0
    for number in range(texture.levels):
        width, height, depth = size_of(texture, number)
        line = width * texture.format.size_bytes
        tall, deep, wide = texture.block
        if line < GOB_WIDTH << wide or height < GOB_HEIGHT << tall or depth < 1 << deep:
            wide = 0
        tall = min(tall, (-(-height // GOB_HEIGHT) - 1).bit_length())
        deep = min(deep, (depth - 1).bit_length())
        across = -(-line // (GOB_WIDTH << wide)) << wide
        down = -(-height // (GOB_HEIGHT << tall))
        found.append(Level(width, height, depth, offset, tall, deep, across, down))
        offset += GOB_BYTES * (across * down << tall + deep) * -(-depth // (1 << deep))
        if not number:
            block_bytes = GOB_BYTES << tall + deep + wide
    return tuple(found), -(-offset // block_bytes) * block_bytes


def addresses(texture: Texture, number: int, x: Indices, y: Indices, z: Indices, layer: Indices) -> Indices:
    """Return the addresses of texels of a level; their indices must be in it."""
    at = x * texture.format.size_bytes
    if texture.memory == PITCH:
        return texture.base + y * texture.pitch + at
    if texture.memory != BLOCKS:
        return texture.base + at
    levels, layer_bytes = levels_of(texture)
    level = levels[number]
    row, gob = y // (GOB_HEIGHT << level.tall_log2), y // GOB_HEIGHT & (1 << level.tall_log2) - 1
    slab, inside = z >> level.deep_log2, z & (1 << level.deep_log2) - 1
    block = (slab * level.down + row) * level.across + at // GOB_WIDTH
    gobs = (block << level.tall_log2 + level.deep_log2) + (inside << level.tall_log2) + gob
    found: Indices = texture.base + layer * layer_bytes + level.offset + gobs * GOB_BYTES + gob_offsets(at, y)
    return found
