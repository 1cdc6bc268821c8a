"""Random tensors by counter: Threefry-2x32 of 20 rounds over the element's number, so that an element's bits depend on
key and place alone.

Source: J. Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011): rounds, rotations, key schedule and
known answers. The key of each call is Threefry of the seed over the call's number, done here on the host and put in a
buffer: graphs differ in data only.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.index import bounds, product
from ringup.compiler.graph.nodes import Op, Shape
from ringup.compiler.tensor.movement import cut

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
MASK = 0xFFFF_FFFF
# bits that a uniform number of the type has, and the words they come from
UNIT_BITS = {
    dtypes.float16: 11,
    dtypes.bfloat16: 8,
    dtypes.float8_e4m3: 4,
    dtypes.float8_e5m2: 3,
    dtypes.float32: 24,
    dtypes.float64: 53,
}


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any], rotate: Any) -> tuple[Any, Any]:
    """Return the two words of Threefry-2x32-20. Words are anything with + and ^ on 32 bits; `rotate(word, count)` turns
    one left.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    first, second = counter[0] + keys[0], counter[1] + keys[1]
    for turn in range(20):
        first = first + second
        second = rotate(second, ROTATIONS[turn % 8]) ^ first
        if turn % 4 == 3:
            step = turn // 4 + 1
            first, second = first + keys[step % 3], second + keys[(step + 1) % 3] + step
    return first, second


class Word(int):
    """A Python integer whose sums wrap at 32 bits."""

    def __add__(self, other: int) -> Word:
        return Word(int(self) + int(other) & MASK)

    def __xor__(self, other: int) -> Word:
        return Word(int(self) ^ int(other))


def _rotate_word(word: Word, count: int) -> Word:
    return Word((word << count | word >> 32 - count) & MASK)


class Source:
    """A seed and how many tensors were drawn from it."""

    def __init__(self, seed: int = 0) -> None:
        self.restart(seed)
        self._lock = threading.Lock()

    def restart(self, seed: int) -> None:
        """Begin again from a seed of up to 64 bits."""
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"a seed of {seed}: 0 to 2^64 - 1")
        self.seed, self.drawn = seed, 0

    def next_key(self) -> tuple[int, int]:
        """Return the key of the next tensor."""
        with self._lock:
            number, self.drawn = self.drawn, self.drawn + 1
        seed = (Word(self.seed & MASK), Word(self.seed >> 32))
        first, second = threefry(seed, (Word(number & MASK), Word(number >> 32)), _rotate_word)
        return int(first), int(second)


DEFAULT = Source()


def manual_seed(seed: int) -> None:
    """Start the random numbers of this process again from `seed`."""
    DEFAULT.restart(seed)


def words(cls: type[Tensor], shape: Shape, source: Source | None = None) -> tuple[Tensor, Tensor]:
    """Return two independent uint32 tensors of random bits; element i is Threefry of (i mod 2^32, i / 2^32)."""
    key = cls._from_array(np.array((source or DEFAULT).next_key(), np.uint32))
    size = product(shape)
    wide = bounds(size)[1] >= 1 << 31
    counted = cls._of(nodes.node(Op.IOTA, dtypes.int64 if wide else dtypes.int32, (size,)))
    low = counted.cast(dtypes.uint32) if not wide else (counted & MASK).cast(dtypes.uint32)
    high = (counted >> 32).cast(dtypes.uint32) if wide else low.full_like(0)
    keys = (cut(key, 0, 0, 1).expand((size,)), cut(key, 0, 1, 2).expand((size,)))
    first, second = threefry(keys, (low, high), lambda word, count: (word << count) | (word >> 32 - count))
    return first.reshape(shape), second.reshape(shape)


def unit(first: Tensor, second: Tensor, dtype: dtypes.DType) -> Tensor:
    """Return numbers in [0, 1) of a float type, every multiple of 2^-bits alike probable."""
    count = UNIT_BITS[dtype]
    if dtype is dtypes.float64:
        joined = (first.cast(dtypes.uint64) << 21) ^ (second.cast(dtypes.uint64) >> 11)
        return joined.cast(dtype) * 2.0**-53
    wide = (first >> 32 - count).cast(dtypes.float32) * 2.0**-count
    return wide.cast(dtype)


def normal(first: Tensor, second: Tensor, dtype: dtypes.DType) -> Tensor:
    """Return normally distributed numbers by G. Box and M. Muller: sqrt(-2 log u) cos(2 pi v), u in (0, 1]; in f32
    (f64), then rounded.
    """
    if dtype is dtypes.float64:
        u = (first.cast(dtypes.float64) + 1) * 2.0**-32
        v = second.cast(dtypes.float64) * 2.0**-32
    else:
        u = ((first >> 8).cast(dtypes.float32) + 1) * 2.0**-24
        v = (second >> 8).cast(dtypes.float32) * 2.0**-24
    # the cosine
    turned = ((v + 0.25) * (2 * math.pi)).sin()
    return ((u.log() * -2).sqrt() * turned).cast(dtype)


def integers(first: Tensor, second: Tensor, low: int, high: int, dtype: dtypes.DType) -> Tensor:
    """Return integers from `low` to before `high`: the high half of a product for spans up to 2^32, a remainder of 64
    bits beyond.
    """
    span = high - low
    if span <= 1 << 32:  # noqa: SIM108
        made = (first.cast(dtypes.uint64) * span) >> 32
    else:
        made = ((first.cast(dtypes.uint64) << 32) | second.cast(dtypes.uint64)) % span
    return made.cast(dtypes.int64).cast(dtype) + low if low else made.cast(dtype)
