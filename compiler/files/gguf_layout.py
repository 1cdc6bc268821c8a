"""Whether a GGUF file is laid out as its format wants: every count, string, array and tensor lies within the file, none
over another.

Its reader takes what it finds: a string that is cut short is a shorter string there, and two tensors may share their
bytes. Source: ggml docs/gguf.md, "File Structure"; ggml.h, GGML_MAX_DIMS.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ringup.errors import CompileError

MAGIC = b"GGUF"
HEAD_BYTES = 24
DEFAULT_ALIGNMENT, ALIGNMENT_KEY = 32, "general.alignment"
MAX_RANK = 4
MAX_NESTING = 4
STRING, ARRAY, UINT32, BOOL = 8, 9, 4, 7
# gguf_metadata_value_type: bytes of one value
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
# The least bytes of one entry: an empty key and a byte; an empty name, its rank, type and offset.
MIN_PAIR_BYTES, MIN_TENSOR_BYTES, MIN_STRING_BYTES, MIN_ARRAY_BYTES = 13, 24, 8, 12
SIZE_LIMIT = 1 << 63


class Blocks(NamedTuple):
    """A type of tensor: its name, and how many elements and bytes a block has."""

    name: str
    elements: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a tensor's data lie, from the start of the file."""

    name: str
    start: int
    end: int


class _Cursor:
    """Reads a file in order. A read beyond its end is an error that says what was to be read and where."""

    def __init__(self, data: memoryview, path: object) -> None:
        self._data, self._path, self.at = data, path, 0

    def fail(self, what: str) -> CompileError:
        return CompileError(f"{self._path} is no whole GGUF file: {what}; fetch it again")

    def take(self, size_bytes: int, what: str) -> memoryview:
        left = len(self._data) - self.at
        if size_bytes > left:
            raise self.fail(f"{what} at byte {self.at} wants {size_bytes} bytes and the file has {left} more")
        self.at += size_bytes
        return self._data[self.at - size_bytes : self.at]

    def number(self, code: str, what: str) -> int:
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(code), what))[0])

    def count(self, min_bytes: int, what: str) -> int:
        """Read a 64-bit count of things that have at least `min_bytes` each."""
        count = self.number("Q", f"the number of {what}")
        if count * min_bytes > len(self._data) - self.at:
            raise self.fail(f"{count} {what} are claimed and the file has {len(self._data) - self.at} more bytes")
        return count

    def text(self, what: str) -> str:
        raw = bytes(self.take(self.number("Q", f"the length of {what}"), what))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} at byte {self.at - len(raw)} is no UTF-8 text ({error.reason})") from error


def check(data: memoryview, path: object, types: Mapping[int, Blocks]) -> list[Extent]:
    """Return where each tensor's data lie, in the file's order. Raises `CompileError` for a file that is damaged.

    `types`: the types of tensors by their numbers in the file.
    """
    cursor = _Cursor(data, path)
    if bytes(cursor.take(len(MAGIC), "its first word")) != MAGIC:
        raise cursor.fail("it does not begin with GGUF")
    if struct.unpack_from("<I", cursor.take(4, "its version"))[0] & 0xFFFF == 0:
        # Its version, 2 or 3, is in the high half.
        raise CompileError(
            f"{path} is a GGUF file of the other byte order; `gguf-convert-endian {path} little` turns it over"
        )
    tensors = cursor.count(MIN_TENSOR_BYTES, "tensors")
    pairs = cursor.count(MIN_PAIR_BYTES, "fields")
    alignment = _pairs(cursor, pairs)
    rows = [_tensor(cursor, types) for _ in range(tensors)]
    base = -(-cursor.at // alignment) * alignment
    extents = [_extent(cursor, row, base, alignment, len(data)) for row in rows]
    _separate(cursor, extents)
    return extents


def _pairs(cursor: _Cursor, count: int) -> int:
    """Go over the fields; return the alignment of the tensors' data."""
    alignment, seen = DEFAULT_ALIGNMENT, set()
    for _ in range(count):
        key = cursor.text("a field's name")
        if key in seen:
            raise cursor.fail(f"two fields are called {key}")
        seen.add(key)
        kind = cursor.number("I", f"the type of {key}")
        if key == ALIGNMENT_KEY:
            alignment = cursor.number("I", key) if kind == UINT32 else 0
            if alignment < 8 or alignment & (alignment - 1):
                raise cursor.fail(f"{key} is {alignment or 'no 32-bit number'}; a power of two from 8 on is one")
        else:
            _value(cursor, kind, key, 0)
    return alignment


def _value(cursor: _Cursor, kind: int, key: str, depth: int) -> None:
    """Go over one value."""
    if kind in SCALAR_BYTES:
        value = cursor.take(SCALAR_BYTES[kind], key)
        if kind == BOOL and value[0] > 1:
            raise cursor.fail(f"{key} is a truth value of {value[0]}")
    elif kind == STRING:
        cursor.text(key)
    elif kind == ARRAY and depth < MAX_NESTING:
        inner = cursor.number("I", f"the type of the elements of {key}")
        size = SCALAR_BYTES.get(inner)
        least = size or {STRING: MIN_STRING_BYTES, ARRAY: MIN_ARRAY_BYTES}.get(inner, 1)
        count = cursor.count(least, f"elements of {key}")
        if size:
            cursor.take(count * size, key)
        else:
            for _ in range(count):
                _value(cursor, inner, key, depth + 1)
    else:
        raise cursor.fail(f"{key} has type {kind}, nested {depth} deep, which is none")


class _Row(NamedTuple):
    name: str
    size_bytes: int
    offset: int


def _tensor(cursor: _Cursor, types: Mapping[int, Blocks]) -> _Row:
    name = cursor.text("a tensor's name")
    rank = cursor.number("I", f"the rank of {name}")
    if rank > MAX_RANK:
        raise cursor.fail(f"{name} has {rank} dimensions, {MAX_RANK} are the most")
    sizes = [cursor.number("Q", f"a size of {name}") for _ in range(rank)]
    kind = cursor.number("I", f"the type of {name}")
    offset = cursor.number("Q", f"the offset of {name}")
    if kind not in types:
        raise cursor.fail(f"{name} has type {kind}, which is none")
    elements = 1
    for size in sizes:
        elements *= size
    blocks = types[kind]
    if elements >= SIZE_LIMIT or (sizes[0] if sizes else 1) % blocks.elements:
        raise cursor.fail(f"{name} is {sizes} of {blocks.name}, whose rows hold whole blocks of {blocks.elements}")
    return _Row(name, elements // blocks.elements * blocks.size_bytes, offset)


def _extent(cursor: _Cursor, row: _Row, base: int, alignment: int, size_bytes: int) -> Extent:
    if row.offset % alignment:
        raise cursor.fail(f"{row.name} begins at {row.offset:#x} of the data, which is no multiple of {alignment}")
    start = base + row.offset
    if start + row.size_bytes > size_bytes:
        raise cursor.fail(
            f"{row.name} lies at bytes {start:#x} to {start + row.size_bytes:#x} and the file ends at {size_bytes:#x}"
        )
    return Extent(row.name, start, start + row.size_bytes)


def _separate(cursor: _Cursor, extents: list[Extent]) -> None:
    """Refuse tensors that are called alike or share bytes."""
    names: set[str] = set()
    for one in extents:
        if one.name in names:
            raise cursor.fail(f"two tensors are called {one.name}")
        names.add(one.name)
    before: Extent | None = None
    for one in sorted((one for one in extents if one.end > one.start), key=lambda one: one.start):
        if before is not None and one.start < before.end:
            raise cursor.fail(
                f"{before.name} lies at bytes {before.start:#x} to {before.end:#x} and {one.name} begins at {one.start:#x}: they overlap"
            )
        before = one
