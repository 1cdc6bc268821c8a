"""The files of the register database: a checked frame, and the columns that hold one block's registers.

A frame is magic, size and CRC-32. All three are checked when a file is opened, so a damaged file raises `HeaderError`
and never gives a wrong answer. A block file continues with columns of unsigned little-endian integers, each as wide as
its largest value. A column whose values are all equal is stored as that one value. Names are sequences of words from
one table. A register is found by name through a table of CRC-32 hashes. A list of fields is stored once, however many
registers share it.
"""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from ringup.errors import HeaderError

BLOCK_MAGIC = b"RINGREG1"
CHIP_MAGIC = b"RINGCHP1"
FRAME = struct.Struct("<8sII")  # magic, size of the whole file, CRC-32 of all bytes after it
COLUMN = struct.Struct("<BxxxIQ")  # bytes per value or 0 for a constant, count, place in the file or the constant
FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}

# The contents of a block file, in this order. Texts are indices of names. A `start` column has one entry more than it
# has rows.
COLUMNS = (
    "words",  # bytes of the word table; words are separated by line feeds
    "name_start",  # of each name: first index into name_words
    "name_words",  # indices of words; a name is its words joined by underscores
    "hash_tag",  # of each hash slot: 0 if free, else the top byte of the name's CRC-32 with bit 0 set
    "hash_register",  # of each hash slot: the first register of that name
    "register_name",  # registers of one name are adjacent
    "register_kind",
    "register_offset",  # plus 1; 0: none
    "register_segment",  # plus 2; 1: unknown, 0: none
    "register_unit",
    "register_width",
    "register_stride",
    "register_count",
    "register_layout",
    "register_variant",
    "register_note",
    "layout_start",  # of each layout: first index into layout_fields
    "layout_fields",
    "field_name",
    "field_hi",
    "field_lo",
    "field_mask",  # 0: the bits hi..lo
    "field_values",  # index of a value list
    "field_variant",
    "field_note",
    "values_start",  # of each value list: first index into value_name
    "value_name",
    "value_number",
)
WHOLE = frozenset({"words", "name_words", "hash_tag", "layout_fields"})  # never a constant: these are read in ranges
# In bits. Registers and descriptors have far fewer; a mask with a corrupt number of bits would fill memory.
FIELD_LIMIT = 1 << 16
_DAMAGE = (IndexError, KeyError, ValueError, TypeError, struct.error)


@dataclass(frozen=True, slots=True)
class RegisterField:
    """Bits `hi` down to `lo` of a register; `mask` has every bit of the field in place, without gaps' bits."""

    name: str
    hi: int
    lo: int
    mask: int
    values: tuple[tuple[str, int], ...]
    variant: str
    note: str

    def of(self, word: int) -> int:
        """Return the field's value in `word`, shifted down to bit 0."""
        return (word & self.mask) >> self.lo

    def named(self, value: int) -> str:
        """Return the first name of `value`, empty if it has none."""
        return next((name for name, number in self.values if number == value), "")


@dataclass(frozen=True, slots=True)
class RegisterRow:
    """One register as in the file; see `RegisterFacts` of the generator for the members."""

    name: str
    kind: str
    offset: int | None
    segment: int | None
    unit_bytes: int
    width_bits: int
    stride: int
    count: int
    variant: str
    note: str


class _Constant(Sequence[int]):
    """A column whose values are all equal."""

    def __init__(self, value: int, count: int) -> None:
        self._value, self._count = value, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int | slice) -> int:  # type: ignore[override]
        if not isinstance(index, int) or not 0 <= index < self._count:
            raise IndexError(index)
        return self._value


def open_frame(path: Path, magic: bytes) -> memoryview:
    """Map a file and return all of it, if magic, size and checksum match its first bytes."""
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        # ValueError: an empty file cannot be mapped
        raise HeaderError(f"register database {path.name} cannot be opened: {error}") from error
    if len(data) < FRAME.size:
        raise HeaderError(f"register database {path.name} is cut short: {len(data)} bytes; make it again")
    seen, size_bytes, checksum = FRAME.unpack_from(data)
    if seen != magic:
        raise HeaderError(f"register database {path.name} begins with {bytes(seen)!r}, not {magic!r}")
    if size_bytes != len(data):
        raise HeaderError(f"register database {path.name} has {len(data)} bytes, not {size_bytes}; make it again")
    if zlib.crc32(data[FRAME.size :]) != checksum:
        raise HeaderError(f"register database {path.name} is damaged: its checksum differs; make it again")
    return data


class BlockFile:
    """The registers of one block version, numbered in the order of the headers."""

    def __init__(self, path: Path) -> None:
        """Open the file and check its frame; the columns stay in the file until they are used."""
        if sys.byteorder != "little":
            raise HeaderError(f"register database {path.name} is read on little-endian hosts only")
        self.name = path.name
        data = open_frame(path, BLOCK_MAGIC)
        try:
            columns = [_column(data, FRAME.size + i * COLUMN.size) for i in range(len(COLUMNS))]
        except _DAMAGE as error:
            raise self._contradiction(error) from error
        self._columns = dict(zip(COLUMNS, columns, strict=True))
        # fields that have been read, by row
        self._known: dict[int, RegisterField] = {}
        self._name_start, self._name_words = self._columns["name_start"], self._columns["name_words"]
        self._register_name = self._columns["register_name"]
        self.hash_tag: Sequence[int] = self._columns["hash_tag"]
        self._hash_register = self._columns["hash_register"]
        # A constant column takes no space: nothing else limits its count.
        if max(map(len, columns)) > len(data):
            raise self._contradiction("more rows than bytes")
        for name in ("words", "hash_tag"):
            column = self._columns[name]
            if not isinstance(column, memoryview) or column.itemsize != 1:
                raise self._contradiction(f"{name} are no bytes")
        if len(self.hash_tag) & len(self.hash_tag) - 1 or 0 not in bytes(self.hash_tag):
            raise self._contradiction("hash table")
        if len({len(column) for name, column in self._columns.items() if name.startswith("register_")}) != 1:
            raise self._contradiction("number of registers")

    def __len__(self) -> int:
        return len(self._register_name)

    def _contradiction(self, what: object) -> HeaderError:
        return HeaderError(f"register database {self.name} contradicts itself ({what}); make it again")

    @cached_property
    def _words(self) -> list[str]:
        return bytes(self._columns["words"]).decode().split("\n")

    def _text(self, index: int) -> str:
        words, start = self._words, self._name_start
        return "_".join([words[i] for i in self._name_words[start[index] : start[index + 1]]])

    def names(self) -> list[str]:
        """Return every register's name, including rows that share one."""
        try:
            return [self._text(name) for name in self._register_name]
        except _DAMAGE as error:
            raise self._contradiction(error) from error

    def find(self, name: str, digest: int, slot: int) -> int:
        """Return the first register of that name, -1 if there is none.

        `digest` is the name's CRC-32 and `slot` where its probing starts: `digest & len(hash_tag) - 1`.
        """
        tags, tag, mask = self.hash_tag, digest >> 24 | 1, len(self.hash_tag) - 1
        try:
            while seen := tags[slot]:
                if seen == tag:
                    index = self._hash_register[slot]
                    if self._text(self._register_name[index]) == name:
                        return index
                slot = slot + 1 & mask
        except _DAMAGE as error:
            raise self._contradiction(error) from error
        return -1

    def same_name(self, index: int) -> range:
        """Return the registers that share the name of `index`, which is the first of them."""
        names, end = self._register_name, index + 1
        while end < len(names) and names[end] == names[index]:
            end += 1
        return range(index, end)

    def place(self, index: int) -> tuple[int | None, int | None]:
        """Return offset and segment of a register."""
        try:
            offset, segment = self._columns["register_offset"][index], self._columns["register_segment"][index]
        except _DAMAGE as error:
            raise self._contradiction(error) from error
        return (offset - 1 if offset else None), (segment - 2 if segment else None)

    def row(self, index: int) -> RegisterRow:
        """Return all that the file says about a register, except its fields."""
        column = self._columns
        try:
            return RegisterRow(
                self._text(self._register_name[index]),
                self._text(column["register_kind"][index]),
                *self.place(index),
                column["register_unit"][index],
                column["register_width"][index],
                column["register_stride"][index],
                column["register_count"][index],
                self._text(column["register_variant"][index]),
                self._text(column["register_note"][index]),
            )
        except _DAMAGE as error:
            raise self._contradiction(error) from error

    def fields(self, index: int) -> tuple[RegisterField, ...]:
        """Return the fields of a register in the order of the facts, lowest bit first."""
        column = self._columns
        try:
            layout = column["register_layout"][index]
            start = column["layout_start"]
            # the layouts of many registers share rows
            known = self._known
            rows = column["layout_fields"][start[layout] : start[layout + 1]]
            return tuple([known.get(row) or self._field(row) for row in rows])
        except _DAMAGE as error:
            raise self._contradiction(error) from error

    def _field(self, index: int) -> RegisterField:
        column = self._columns
        hi, lo, listed = column["field_hi"][index], column["field_lo"][index], column["field_values"][index]
        rows = range(column["values_start"][listed], column["values_start"][listed + 1])
        if not lo <= hi < FIELD_LIMIT:
            raise ValueError(f"a field of bits {hi}:{lo}")
        made = self._known[index] = RegisterField(
            self._text(column["field_name"][index]),
            hi,
            lo,
            column["field_mask"][index] or (2 << hi) - (1 << lo),
            tuple([(self._text(column["value_name"][i]), column["value_number"][i]) for i in rows]),
            self._text(column["field_variant"][index]),
            self._text(column["field_note"][index]),
        )
        return made


def _column(data: memoryview, at: int) -> Sequence[int]:
    size, count, place = COLUMN.unpack_from(data, at)
    if not size:
        return _Constant(place, count)
    if place + count * size > len(data):
        raise IndexError(f"a column at {place} ends beyond the file")
    return data[place : place + count * size].cast(FORMATS[size])
