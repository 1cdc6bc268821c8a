"""The layout of a GGUF file: fields, tensors and where their bytes lie. Every count, string, array and tensor lies
within the file, none over another.

Source: ggml docs/gguf.md, "File Structure"; ggml.h, GGML_MAX_DIMS and enum ggml_type; ggml-common.h, sizes of blocks.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ringup.errors import CompileError

MAGIC = b"GGUF"
HEAD_BYTES = 24
DEFAULT_ALIGNMENT, ALIGNMENT_KEY = 32, "general.alignment"
MAX_RANK = 4
MAX_NESTING = 4
STRING, ARRAY, UINT32, BOOL = 8, 9, 4, 7
VERSIONS = (2, 3)
# gguf_metadata_value_type: struct's code of one value
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# The least bytes of one entry: an empty key and a byte; an empty name, its rank, type and offset.
MIN_PAIR_BYTES, MIN_TENSOR_BYTES, MIN_STRING_BYTES, MIN_ARRAY_BYTES = 13, 24, 8, 12
SIZE_LIMIT = 1 << 63


class Blocks(NamedTuple):
    """A type of tensor: its name, and how many elements and bytes a block has."""

    name: str
    elements: int
    size_bytes: int


TYPES = {  # enum ggml_type: name, elements and bytes of a block
    0: Blocks("F32", 1, 4), 1: Blocks("F16", 1, 2), 2: Blocks("Q4_0", 32, 18), 3: Blocks("Q4_1", 32, 20),
    6: Blocks("Q5_0", 32, 22), 7: Blocks("Q5_1", 32, 24), 8: Blocks("Q8_0", 32, 34), 9: Blocks("Q8_1", 32, 36),
    10: Blocks("Q2_K", 256, 84), 11: Blocks("Q3_K", 256, 110), 12: Blocks("Q4_K", 256, 144), 13: Blocks("Q5_K", 256, 176),
    14: Blocks("Q6_K", 256, 210), 15: Blocks("Q8_K", 256, 292), 16: Blocks("IQ2_XXS", 256, 66),
    17: Blocks("IQ2_XS", 256, 74), 18: Blocks("IQ3_XXS", 256, 98), 19: Blocks("IQ1_S", 256, 50),
    20: Blocks("IQ4_NL", 32, 18), 21: Blocks("IQ3_S", 256, 110), 22: Blocks("IQ2_S", 256, 82), 23: Blocks("IQ4_XS", 256, 136),
    24: Blocks("I8", 1, 1), 25: Blocks("I16", 1, 2), 26: Blocks("I32", 1, 4), 27: Blocks("I64", 1, 8),
    28: Blocks("F64", 1, 8), 29: Blocks("IQ1_M", 256, 56), 30: Blocks("BF16", 1, 2), 34: Blocks("TQ1_0", 256, 54),
    35: Blocks("TQ2_0", 256, 66), 39: Blocks("MXFP4", 32, 17), 40: Blocks("NVFP4", 64, 36), 41: Blocks("Q1_0", 128, 18),
}  # fmt: skip


class Extent(NamedTuple):
    """A tensor: its name, its type's name, its sizes, the slowest first, and where its bytes lie from the start of the
    file.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
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


def parse(data: memoryview, path: object) -> tuple[list[Extent], dict[str, Any]]:
    """Return the tensors in the file's order, and the fields by name. Raises `CompileError` for a file that is
    damaged.
    """
    cursor = _Cursor(data, path)
    if bytes(cursor.take(len(MAGIC), "its first word")) != MAGIC:
        raise cursor.fail("it does not begin with GGUF")
    version = cursor.number("I", "its version")
    if version & 0xFFFF == 0:
        # Its version, 2 or 3, is in the high half.
        raise CompileError(
            f"{path} is a GGUF file of the other byte order; `gguf-convert-endian {path} little` turns it over"
        )
    if version not in VERSIONS:
        raise cursor.fail(f"it is of version {version}; there are {' and '.join(map(str, VERSIONS))}")
    tensors = cursor.count(MIN_TENSOR_BYTES, "tensors")
    fields = _fields(cursor, cursor.count(MIN_PAIR_BYTES, "fields"))
    alignment = fields.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    rows = [_tensor(cursor) for _ in range(tensors)]
    base = -(-cursor.at // alignment) * alignment
    extents = [_extent(cursor, row, base, alignment, len(data)) for row in rows]
    _separate(cursor, extents)
    return extents, fields


def _fields(cursor: _Cursor, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text("a field's name")
        if key in found:
            raise cursor.fail(f"two fields are called {key}")
        kind = cursor.number("I", f"the type of {key}")
        if key == ALIGNMENT_KEY:
            value = cursor.number("I", key) if kind == UINT32 else 0
            if value < 8 or value & (value - 1):
                raise cursor.fail(f"{key} is {value or 'no 32-bit number'}; a power of two from 8 on is one")
        else:
            value = _value(cursor, kind, key, 0)
        found[key] = value
    return found


def _value(cursor: _Cursor, kind: int, key: str, depth: int) -> Any:
    """Return one value as Python has it."""
    if kind == STRING:
        return cursor.text(key)
    if kind in SCALARS:
        return _scalars(cursor, kind, key, 1)[0]
    if kind != ARRAY or depth >= MAX_NESTING:
        raise cursor.fail(f"{key} has type {kind}, nested {depth} deep, which is none")
    inner = cursor.number("I", f"the type of the elements of {key}")
    if inner in SCALARS:
        count = cursor.count(struct.calcsize(SCALARS[inner]), f"elements of {key}")
        return list(_scalars(cursor, inner, key, count))
    count = cursor.count({STRING: MIN_STRING_BYTES, ARRAY: MIN_ARRAY_BYTES}.get(inner, 1), f"elements of {key}")
    return [_value(cursor, inner, key, depth + 1) for _ in range(count)]


def _scalars(cursor: _Cursor, kind: int, key: str, count: int) -> tuple[Any, ...]:
    code = SCALARS[kind]
    raw = cursor.take(count * struct.calcsize(code), key)
    if kind == BOOL and count and max(raw) > 1:
        raise cursor.fail(f"{key} is a truth value of {max(raw)}")
    return struct.unpack(f"<{count}{code}", raw)


class _Row(NamedTuple):
    name: str
    kind: str
    shape: tuple[int, ...]
    size_bytes: int
    offset: int


def _tensor(cursor: _Cursor) -> _Row:
    name = cursor.text("a tensor's name")
    rank = cursor.number("I", f"the rank of {name}")
    if rank > MAX_RANK:
        raise cursor.fail(f"{name} has {rank} dimensions, {MAX_RANK} are the most")
    sizes = [cursor.number("Q", f"a size of {name}") for _ in range(rank)]
    kind = cursor.number("I", f"the type of {name}")
    offset = cursor.number("Q", f"the offset of {name}")
    if kind not in TYPES:
        raise cursor.fail(f"{name} has type {kind}, which is none")
    elements = 1
    for size in sizes:
        elements *= size
    blocks = TYPES[kind]
    if elements >= SIZE_LIMIT or (sizes[0] if sizes else 1) % blocks.elements:
        raise cursor.fail(f"{name} is {sizes} of {blocks.name}, whose rows hold whole blocks of {blocks.elements}")
    return _Row(name, blocks.name, tuple(sizes[::-1]), elements // blocks.elements * blocks.size_bytes, offset)


def _extent(cursor: _Cursor, row: _Row, base: int, alignment: int, size_bytes: int) -> Extent:
    if row.offset % alignment:
        raise cursor.fail(f"{row.name} begins at {row.offset:#x} of the data, which is no multiple of {alignment}")
    start = base + row.offset
    if start + row.size_bytes > size_bytes:
        raise cursor.fail(
            f"{row.name} lies at bytes {start:#x} to {start + row.size_bytes:#x} and the file ends at {size_bytes:#x}"
        )
    return Extent(row.name, row.kind, row.shape, start, start + row.size_bytes)


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
