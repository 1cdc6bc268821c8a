"""The same view as a cffi struct, in plain Python: for the few layouts that cffi cannot express, and to check the quick views against."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ringup.autogen.structs import SCALARS, Row, Struct, element_size, near, nested_type


class PlainView:
    """A struct over `memory`; members are attributes."""

    __slots__ = ("_memory", "_owner", "_rows")

    def __init__(self, memory: memoryview, owner: type[Struct]) -> None:
        for name, value in (("_memory", memory), ("_owner", owner), ("_rows", owner.members())):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        row = self._row(name)
        if row.width:
            word = int.from_bytes(self._bytes(row), "little") >> row.bit & (1 << row.width) - 1
            signed = SCALARS[row.base][1]
            return word - (1 << row.width) if signed and word >> row.width - 1 else word
        if row.dims:
            return PlainArray(self._memory[row.byte :], self._owner, row, row.dims)
        return _read(self._memory[row.byte :], self._owner, row)

    def __setattr__(self, name: str, value: Any) -> None:
        row = self._row(name)
        if row.width:
            low, high = (-1 << row.width - 1, 1 << row.width - 1) if SCALARS[row.base][1] else (0, 1 << row.width)
            if not low <= value < high:
                raise OverflowError(f"value {value} outside the range of {row.width} bits: {low} <= x < {high}")
            mask = (1 << row.width) - 1 << row.bit
            word = int.from_bytes(self._bytes(row), "little") & ~mask | value << row.bit & mask
            self._bytes(row)[:] = word.to_bytes(len(self._bytes(row)), "little")
        elif row.dims:
            PlainArray(self._memory[row.byte :], self._owner, row, row.dims)[:] = value
        else:
            _write(self._memory[row.byte :], self._owner, row, value)

    def _row(self, name: str) -> Row:
        try:
            return self._rows[name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"{self._owner.__name__} has no member {name}{near(name, self._rows)}") from None

    def _bytes(self, row: Row) -> memoryview:
        memory: memoryview = self._memory
        return memory[row.byte : row.byte + (row.bit + row.width + 7) // 8]


class PlainArray:
    """An array member of a `PlainView`."""

    __slots__ = ("_dims", "_memory", "_owner", "_row", "_stride")

    def __init__(self, memory: memoryview, owner: type[Struct], row: Row, dims: tuple[int, ...]) -> None:
        self._stride = element_size(owner, row)
        for length in dims[1:]:
            self._stride *= length
        length = memory.nbytes // self._stride if dims[0] < 0 else dims[0]
        self._memory, self._owner, self._row, self._dims = memory, owner, row, (length, *dims[1:])

    def __len__(self) -> int:
        return self._dims[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int) -> Any:
        part = self._element(index)
        if len(self._dims) > 1:
            return PlainArray(part, self._owner, self._row, self._dims[1:])
        return _read(part, self._owner, self._row)

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            places = range(*index.indices(len(self)))
            if len(value) > len(places):
                raise IndexError(
                    f"too many values for {self._owner.__name__}.{self._row.name}: {len(value)} > {len(places)}"
                )
            for i, element in zip(places, value, strict=False):
                self[i] = element
        elif len(self._dims) > 1:
            PlainArray(self._element(index), self._owner, self._row, self._dims[1:])[:] = value
        else:
            _write(self._element(index), self._owner, self._row, value)

    def _element(self, index: int) -> memoryview:
        if not 0 <= index < len(self):
            raise IndexError(f"{self._owner.__name__}.{self._row.name} has {len(self)} elements, not [{index}]")
        return self._memory[index * self._stride : (index + 1) * self._stride]


def _read(memory: memoryview, owner: type[Struct], row: Row) -> Any:
    if row.base not in SCALARS:
        inner = nested_type(owner, row.base)
        return PlainView(memory[: inner.SIZE], inner)
    return struct.unpack_from("<" + SCALARS[row.base][2], memory)[0]


def _write(memory: memoryview, owner: type[Struct], row: Row, value: Any) -> None:
    if row.base not in SCALARS:
        raise TypeError(f"{owner.__name__}.{row.name} is a struct: set its members")
    try:
        struct.pack_into("<" + SCALARS[row.base][2], memory, 0, value)
    except struct.error as error:
        raise OverflowError(f"{owner.__name__}.{row.name} cannot hold {value!r}: {error}") from None
