"""The same view as a cffi struct, in plain Python.

It serves the few layouts that cffi cannot express, and checks the fast views.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ringup.autogen.structs import SCALARS, Row, Struct, element_size, near, nested_type


class PlainView:
    """A struct over `memory`; members are attributes. Unlike a fast view it keeps its memory alive."""

    __slots__ = ("__memory", "__owner", "__rows")  # mangled, so that no member has such a name

    def __init__(self, memory: memoryview, owner: type[Struct]) -> None:
        object.__setattr__(self, "_PlainView__memory", memory)
        object.__setattr__(self, "_PlainView__owner", owner)
        object.__setattr__(self, "_PlainView__rows", owner.members())

    def __getattr__(self, name: str) -> Any:
        # A copy under construction has no filled slots yet.
        if name.startswith("_PlainView__"):
            raise AttributeError(name)
        row = self.__row(name)
        if row.width:
            word = int.from_bytes(self.__bytes(row), "little") >> row.bit & (1 << row.width) - 1
            signed = SCALARS[row.base][1]
            return word - (1 << row.width) if signed and word >> row.width - 1 else word
        if row.dims:
            return PlainArray(self.__memory[row.byte :], self.__owner, row, row.dims)
        return _read(self.__memory[row.byte :], self.__owner, row)

    def __setattr__(self, name: str, value: Any) -> None:
        row = self.__row(name)
        if row.width:
            low, high = (-1 << row.width - 1, 1 << row.width - 1) if SCALARS[row.base][1] else (0, 1 << row.width)
            if not low <= value < high:
                raise OverflowError(f"value {value} outside the range of {row.width} bits: {low} <= x < {high}")
            mask = (1 << row.width) - 1 << row.bit
            word = int.from_bytes(self.__bytes(row), "little") & ~mask | value << row.bit & mask
            self.__bytes(row)[:] = word.to_bytes(len(self.__bytes(row)), "little")
        elif row.dims:
            _fill(PlainArray(self.__memory[row.byte :], self.__owner, row, row.dims), value)
        else:
            _write(self.__memory[row.byte :], self.__owner, row, value)

    def __dir__(self) -> list[str]:
        return list(self.__rows)

    def __copy__(self) -> PlainView:
        return PlainView(self.__memory, self.__owner)

    def __row(self, name: str) -> Row:
        rows: dict[str, Row] = self.__rows
        if name not in rows:
            raise AttributeError(f"{self.__owner.__name__} has no member {name}{near(name, rows)}")
        return rows[name]

    def __bytes(self, row: Row) -> memoryview:
        memory: memoryview = self.__memory
        return memory[row.byte : row.byte + (row.bit + row.width + 7) // 8]


def memory_of(view: PlainView) -> memoryview:
    """Return the bytes of a plain view."""
    flat: memoryview = object.__getattribute__(view, "_PlainView__memory")
    return flat


class PlainArray:
    """An array member of a `PlainView`."""

    __slots__ = ("_memory", "_owner", "dims", "row", "stride")

    def __init__(self, memory: memoryview, owner: type[Struct], row: Row, dims: tuple[int, ...]) -> None:
        self.stride = element_size(owner, row)
        for length in dims[1:]:
            self.stride *= length
        length = memory.nbytes // self.stride if dims[0] < 0 else dims[0]
        self._memory, self._owner, self.row, self.dims = memory, owner, row, (length, *dims[1:])

    def __len__(self) -> int:
        return self.dims[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        part = self._element(index)
        if len(self.dims) > 1:
            return PlainArray(part, self._owner, self.row, self.dims[1:])
        return part[:1].tobytes() if self.row.base == "char" else _read(part, self._owner, self.row)

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            places = range(*index.indices(len(self)))
            if len(value) != len(places):
                raise ValueError(f"{self.name} needs {len(places)} items there, not {len(value)}")
            for i, element in zip(places, value, strict=True):
                self[i] = element
        elif len(self.dims) > 1:
            _fill(PlainArray(self._element(index), self._owner, self.row, self.dims[1:]), value)
        elif self.row.base == "char":
            if not isinstance(value, bytes) or len(value) != 1:
                raise TypeError(f"{self.name}[{index}] takes one byte of `bytes`, not {value!r}")
            self._element(index)[:1] = value
        else:
            _write(self._element(index), self._owner, self.row, value)

    @property
    def name(self) -> str:
        return f"{self._owner.__name__}.{self.row.name}"

    def _element(self, index: int) -> memoryview:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} elements, not [{index}]")
        return self._memory[index * self.stride : (index + 1) * self.stride]


def _fill(array: PlainArray, value: Sequence[Any]) -> None:
    """Store the first elements of an array, like C initialisers; shorter `bytes` in a `char` array get a terminating
    zero.
    """
    if len(value) > len(array):
        raise IndexError(f"too many values for {array.name}: {len(value)} > {len(array)}")
    if isinstance(value, bytes) and array.row.base == "char":
        value = [bytes((byte,)) for byte in value] + [b"\0"] * (len(value) < len(array))
    for i, element in enumerate(value):
        array[i] = element


def _read(memory: memoryview, owner: type[Struct], row: Row) -> Any:
    if row.base not in SCALARS:
        inner = nested_type(owner, row.base)
        return PlainView(memory[: inner.SIZE], inner)
    return struct.unpack_from("<" + SCALARS[row.base][2], memory)[0]


def _write(memory: memoryview, owner: type[Struct], row: Row, value: Any) -> None:
    if row.base not in SCALARS:
        view = _read(memory, owner, row)
        members = (
            value
            if isinstance(value, Mapping)
            else dict(zip(nested_type(owner, row.base).members(), value, strict=False))
        )
        for name, part in members.items():
            setattr(view, name, part)
        return
    try:
        struct.pack_into("<" + SCALARS[row.base][2], memory, 0, value)
    except struct.error as error:
        raise OverflowError(f"{owner.__name__}.{row.name} cannot hold {value!r}: {error}") from None
