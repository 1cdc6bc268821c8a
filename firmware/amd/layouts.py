"""Byte layouts for reading and building images: `construct` descriptions made from the generated C structs.

A struct with which another one begins (`v2_1.v2_0`) is flattened into it. Any other nested struct keeps its name, so
that `ucode_size_bytes` and `header.ucode_size_bytes` of one image remain distinct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from construct import Array, Bytes, ConstructError, Int8ul, Int16ul, Int32ul, Int64ul, Padding
from construct import Struct as Layout

from ringup.autogen.structs import SCALARS, Row, Struct, nested_type
from ringup.errors import FirmwareError

Value = int | bytes | tuple[int, ...]
Fields = Mapping[str, Value]
INTEGERS = {"u8": Int8ul, "u16": Int16ul, "u32": Int32ul, "u64": Int64ul}
VERSIONED = re.compile(r"v\d+_\d+")


_DESCRIBED: dict[type[Struct], Any] = {}


def layout(struct: type[Struct]) -> Any:
    """Describe a generated struct of whole integers, arrays and nested structs. Flexible arrays are left to their
    readers.

    Raises `ValueError` for bit-fields and unions: their formats are described manually, next to their readers.
    """
    if struct not in _DESCRIBED:
        _DESCRIBED[struct] = Layout(*_members(struct))
    return _DESCRIBED[struct]


def integer(fields: Fields, name: str) -> int:
    """Return a field that its description declares as an integer."""
    value = fields[name]
    assert isinstance(value, int)  # the description says so
    return value


def _members(struct: type[Struct]) -> Iterator[Any]:
    at = 0
    for row in struct.members().values():
        if row.flexible:
            continue
        if row.width or row.byte < at:
            raise ValueError(f"{struct.__name__}.{row.name} shares its bytes: describe the struct manually")
        if row.byte > at:
            yield Padding(row.byte - at)
        size = _size(struct, row)
        at = row.byte + size
        if row.base in SCALARS:
            yield row.name / _scalar(row, size)
        elif VERSIONED.fullmatch(row.name):
            yield from _members(nested_type(struct, row.base))
        else:
            nested = layout(nested_type(struct, row.base))
            yield row.name / (Array(row.dims[0], nested) if row.dims else nested)
    if at < struct.SIZE:
        yield Padding(struct.SIZE - at)


def _size(struct: type[Struct], row: Row) -> int:
    one = SCALARS[row.base][0] if row.base in SCALARS else nested_type(struct, row.base).SIZE
    for length in row.dims:
        one *= length
    return one


def _scalar(row: Row, size_bytes: int) -> Any:
    if row.base == "char":
        return Bytes(size_bytes)
    return Array(row.dims[0], INTEGERS[row.base]) if row.dims else INTEGERS[row.base]


def read(description: Any, blob: bytes, offset_bytes: int, name: str, what: str) -> dict[str, Value]:
    """Read the fields at `offset_bytes` of `blob`.

    A nested field has the name `header.crc32`, an element `list[2].hw_id`. Raises `FirmwareError` if the image `name`
    ends before `what` does.
    """
    end = offset_bytes + description.sizeof()
    if offset_bytes < 0 or end > len(blob):
        raise FirmwareError(f"{name}: {what} takes bytes {offset_bytes} to {end}, the image ends at byte {len(blob)}")
    try:
        return dict(_flat(description.parse(blob[offset_bytes:end]), ""))
    except ConstructError as error:
        raise FirmwareError(f"{name}: {what} at byte {offset_bytes}: {error}") from error


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Value]]:
    for key, value in values.items():
        # construct's own
        if key.startswith("_"):
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for index, element in enumerate(value):
                yield from _flat(element, f"{prefix}{key}[{index}].")
        else:
            yield prefix + key, tuple(value) if isinstance(value, list) else value


def read_within(struct: type[Struct], data: bytes, name: str, what: str) -> dict[str, Value]:
    """Read the members of a struct that are entirely inside `data`.

    A table that is older and shorter than its struct has only some of them.
    """
    padded = data.ljust(struct.SIZE, b"\0")
    fields = read(layout(struct), padded, 0, name, what)
    ends = {}
    for row in struct.members().values():
        size, count = _size(struct, row), row.dims[0] if row.dims and row.base not in SCALARS else 1
        for index in range(count):
            key = f"{row.name}[{index}]" if row.dims and row.base not in SCALARS else row.name
            ends[key] = row.byte + size // count * (index + 1)
    return {path: value for path, value in fields.items() if ends[path.partition(".")[0]] <= len(data)}


def build(description: Any, fields: Fields) -> bytes:
    """Build the bytes of a description from fields named as in `read`; missing ones are zero.

    Raises `ValueError` for an unknown field, or a value that does not fit its field.
    """
    values = description.parse(bytes(description.sizeof()))
    for path, value in fields.items():
        *parents, last = re.findall(r"[A-Za-z_]\w*|\d+", path)
        place = values
        for step in parents:
            place = place[int(step) if step.isdigit() else step]
        if last not in place:
            raise ValueError(f"the layout has no field {path}")
        place[last] = list(value) if isinstance(value, tuple) else value
    try:
        return bytes(description.build(values))
    except ConstructError as error:
        raise ValueError(f"a field does not hold its value: {error}") from error
