"""Byte layouts for reading and building images. A generated C struct reads and builds itself; `construct` describes the
containers around such structs, and bit-fields and unions.

A struct with which another one begins (`v2_1.v2_0`) is flattened into it. Any other nested struct keeps its name, so
that `ucode_size_bytes` and `header.ucode_size_bytes` of one image remain distinct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from construct import ConstructError, Int8ul, Int16ul, Int32ul, Int64ul
from construct import Struct as Layout

from ringup.autogen.structs import SCALARS, Struct, element_size, nested_type
from ringup.errors import FirmwareError

Value = int | bytes | tuple[int, ...]
Fields = Mapping[str, Value]
# a generated struct, or a description of `construct`
Description = Any
Versions = Mapping[int, Mapping[int, Description]]  # major version: minor version: layout
INTEGERS = {"u8": Int8ul, "u16": Int16ul, "u32": Int32ul, "u64": Int64ul}
VERSIONED = re.compile(r"v\d+_\d+")


class _Field(NamedTuple):
    """A field of a generated struct and its place in the values of `unpack`; `length` is None for one integer."""

    name: str
    first: int
    length: int | None
    base: str

    @property
    def is_bytes(self) -> bool:
        """Return whether `unpack` gives the field as one value of `bytes`."""
        return self.length is not None and self.base in ("u8", "char")

    def read(self, values: Sequence[Any]) -> Value:
        """Return the field from the values of `unpack`."""
        first: Value = values[self.first]
        if self.length is None or self.base == "char":
            return first
        return tuple(first) if isinstance(first, bytes) else tuple(values[self.first : self.first + self.length])


def layout(struct: type[Struct]) -> Any:
    """Describe a generated struct for use inside a description of `construct`.

    Raises `ValueError` for a struct that holds more than integers without gaps.
    """
    rows = struct.members().values()
    if (
        any(row.dims or row.base not in INTEGERS for row in rows)
        or sum(SCALARS[row.base][0] for row in rows) != struct.SIZE
    ):
        raise ValueError(f"{struct.__name__} holds more than integers: describe the struct manually")
    return Layout(*(row.name / INTEGERS[row.base] for row in rows))


def size_bytes(description: Description) -> int:
    """Return the bytes that a description takes."""
    return int(description.SIZE if _is_struct(description) else description.sizeof())


def integer(fields: Fields, name: str) -> int:
    """Return a field that its description declares as an integer."""
    value = fields[name]
    assert isinstance(value, int)  # the description says so
    return value


def _is_struct(description: Description) -> TypeGuard[type[Struct]]:
    return isinstance(description, type)


_FIELDS: dict[type[Struct], tuple[_Field, ...]] = {}


def _fields(struct: type[Struct]) -> tuple[_Field, ...]:
    if struct not in _FIELDS:
        _FIELDS[struct] = tuple(_placed(struct))
    return _FIELDS[struct]


def _placed(struct: type[Struct]) -> Iterator[_Field]:
    first = 0
    for name, length, base in _walk(struct, ""):
        field = _Field(name, first, length, base)
        yield field
        first += 1 if length is None or field.is_bytes else length


def _walk(struct: type[Struct], prefix: str) -> Iterator[tuple[str, int | None, str]]:
    """Yield name, length and type of each field, in the order of `Struct.leaves`. Flexible arrays are left to their
    readers.

    Raises `ValueError` for bit-fields and unions: their formats are described manually, next to their readers.
    """
    at = 0
    for row in struct.members().values():
        if row.flexible:
            continue
        if row.width or row.byte < at:
            raise ValueError(f"{struct.__name__}.{row.name} shares its bytes: describe the struct manually")
        length = row.dims[0] if row.dims else None
        at = row.byte + element_size(struct, row) * (length or 1)
        if row.base in SCALARS:
            yield prefix + row.name, length, row.base
            continue
        nested = nested_type(struct, row.base)
        if VERSIONED.fullmatch(row.name):
            yield from _walk(nested, prefix)
        elif length is None:
            yield from _walk(nested, f"{prefix}{row.name}.")
        else:
            for index in range(length):
                yield from _walk(nested, f"{prefix}{row.name}[{index}].")


def read(description: Description, blob: bytes, offset_bytes: int, name: str, what: str) -> dict[str, Value]:
    """Read the fields at `offset_bytes` of `blob`.

    A nested field has the name `header.crc32`, an element `list[2].hw_id`. Raises `FirmwareError` if the image `name`
    ends before `what` does.
    """
    end = offset_bytes + size_bytes(description)
    if offset_bytes < 0 or end > len(blob):
        raise FirmwareError(f"{name}: {what} takes bytes {offset_bytes} to {end}, the image ends at byte {len(blob)}")
    if _is_struct(description):
        values = description.unpack(blob, offset_bytes)
        return {field.name: field.read(values) for field in _fields(description)}
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
    fields = read(struct, padded, 0, name, what)
    ends = {}
    for row in struct.members().values():
        size, count = element_size(struct, row), row.dims[0] if row.dims else 1
        if not row.dims or row.base in SCALARS:
            ends[row.name] = row.byte + size * count
        else:
            ends |= {f"{row.name}[{index}]": row.byte + size * (index + 1) for index in range(count)}
    return {path: value for path, value in fields.items() if ends[path.partition(".")[0]] <= len(data)}


def build(description: Description, fields: Fields) -> bytes:
    """Build the bytes of a description from fields named as in `read`; missing ones are zero.

    Raises `ValueError` for an unknown field, or a value that does not fit its field.
    """
    if _is_struct(description):
        return _packed(description, fields)
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


def _packed(struct: type[Struct], fields: Fields) -> bytes:
    places = {field.name: field for field in _fields(struct)}
    values = list(struct.unpack(bytes(struct.SIZE)))
    for name, value in fields.items():
        if name not in places:
            raise ValueError(f"the layout has no field {name}")
        field = places[name]
        if isinstance(value, int) != (field.length is None):
            raise ValueError(f"a field does not hold its value: {name} is {value!r}")
        if isinstance(value, int):
            values[field.first] = value
            continue
        if len(value) != field.length:
            raise ValueError(f"a field does not hold its value: {name} has {field.length} elements, not {len(value)}")
        if field.is_bytes:
            values[field.first] = bytes(value)
        else:
            values[field.first : field.first + field.length] = value
    try:
        return struct.pack(*values)
    except ValueError as error:
        raise ValueError(f"a field does not hold its value: {error}") from error
