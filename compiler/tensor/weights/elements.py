"""Elements of a weight file that become a tensor's bytes when it is first used: put in order, and in our byte order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, Protocol

import numpy as np

from ringup.compiler.graph import dtypes, nodes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.tensor.tensor import Tensor
from ringup.errors import CompileError

# of NumPy's arrays, which put the elements in order
MAX_RANK = 64
MAX_SIZE = 1 << 63


class Source(Protocol):
    """Bytes that are read on demand."""

    @property
    def size_bytes(self) -> int:
        """Return how many they are."""
        ...

    def read(self) -> memoryview:
        """Return the bytes."""
        ...


class Elements:
    """Elements at places of some bytes; `read` returns them row-major."""

    __slots__ = ("_dtype", "_offset", "_shape", "_source", "_strides", "_swapped")

    def __init__(
        self, source: Source, dtype: DType, offset: int, shape: Sequence[int], strides: Sequence[int], *, swapped: bool
    ) -> None:
        """`offset` and `strides` count elements, and are known to lie inside; `swapped` for the other byte order."""
        self._source, self._dtype, self._offset = source, dtype, offset
        self._shape, self._strides, self._swapped = tuple(shape), tuple(strides), swapped

    def read(self) -> memoryview:
        """Return the elements' bytes, little-endian."""
        width, count = self._dtype.size_bytes, prod(self._shape)
        raw = self._source.read()
        plain = self._strides == row_major(self._shape)
        used = count if plain else 1 + sum((n - 1) * step for n, step in zip(self._shape, self._strides, strict=True))
        # of complex numbers, each part has a byte order of its own
        found: Any = np.frombuffer(raw, f"{'c' if self._dtype.is_complex else 'u'}{width}", used, self._offset * width)
        if not plain:
            places: Any = np.lib.stride_tricks.as_strided
            found = np.ascontiguousarray(places(found, self._shape, [step * width for step in self._strides]))
        if self._swapped:
            found = found.byteswap()
        if self._dtype is dtypes.bool_:
            # any byte but 0 is true there; here 1 is
            found = found != 0
        return memoryview(found.reshape(-1).view(np.uint8))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of elements one after another."""
    behind = accumulate(reversed(shape[1:]), mul, initial=1)
    return tuple(behind)[::-1][: len(shape)] if shape else ()


def tensor_of(data: object, dtype: DType, shape: tuple[int, ...], name: str) -> Tensor:
    """Return a tensor whose bytes `data` has, or reads on demand."""
    made = Tensor._of(nodes.buffer(dtype, shape, name, data))
    made._owns = True
    return made


def whole(source: Source, dtype: DType, shape: tuple[int, ...], name: str) -> Tensor:
    """Return a tensor of little-endian elements one after another."""
    if dtype is dtypes.bool_ and 0 not in shape:
        return tensor_of(Elements(source, dtype, 0, shape, row_major(shape), swapped=False), dtype, shape, name)
    return tensor_of(source, dtype, shape, name)


def strided(
    source: Source,
    dtype: DType,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    name: str,
    path: object,
    *,
    swapped: bool = False,
) -> Tensor:
    """Return a tensor of elements at places of some bytes. Raises `CompileError` where they do not lie inside.

    Axes of step 0 stay one element in memory. `offset` and `strides` count elements.
    """
    held = source.size_bytes // dtype.size_bytes
    if len(shape) > MAX_RANK or prod(shape) >= MAX_SIZE:
        raise CompileError(
            f"{path}: {name or 'a tensor'} has {len(shape)} axes and too many elements, or over {MAX_RANK} axes"
        )
    if not prod(shape):
        return tensor_of(b"", dtype, shape, name)
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if last >= held:
        raise CompileError(
            f"{path} is damaged: {name or 'a tensor'} of shape {list(shape)} reaches to element {last} of {held}; fetch it again"
        )
    kept: tuple[int, ...] = tuple(1 if step == 0 else size for size, step in zip(shape, strides, strict=True))
    if prod(kept) > held:
        raise CompileError(
            f"{path}: the elements of {name or 'a tensor'} of shape {list(shape)} overlap in memory; save a contiguous() copy"
        )
    # the step of an axis of one element does not count
    steps = tuple(
        plain if size == 1 else step for size, step, plain in zip(kept, strides, row_major(kept), strict=True)
    )
    made = tensor_of(Elements(source, dtype, offset, kept, steps, swapped=swapped), dtype, kept, name)
    return made if kept == shape else made.expand(shape)
