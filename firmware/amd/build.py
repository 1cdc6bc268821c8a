"""Build firmware files from their sections: for tests, and for synthetic cards that need files of the right format.

This module writes what `parse` reads, from the same descriptions. The bytes inside the sections are the caller's;
nothing here can sign them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from ringup.autogen.amd import ucode
from ringup.firmware.amd.containers import CODE, CONTAINERS, Container, Cut
from ringup.firmware.amd.image import COMMON_BYTES, PACKED, PPTABLE_ENTRY
from ringup.firmware.layouts import Fields, Value, build

ALIGN_BYTES = 256  # the payload alignment of the published files
AUX = "_aux"


@dataclass(frozen=True, slots=True)
class Piece:
    """A section to include: its bytes, and the version or type that the image stores for it."""

    data: bytes
    version: int = 0
    number: int | None = None


def image(
    kind: str,
    header_version: tuple[int, int],
    pieces: Mapping[str, bytes | Piece],
    *,
    version: int = 1,
    ip_version: tuple[int, int] = (0, 0),
    fields: Fields | None = None,
) -> bytes:
    """Build a firmware file from named sections, in their order.

    `fields` sets further header fields, such as start addresses. Raises `ValueError` for a section that such an image
    does not have.
    """
    container = CONTAINERS[kind][header_version]
    given = {name: piece if isinstance(piece, Piece) else Piece(piece) for name, piece in pieces.items()}
    head_bytes = container.header.SIZE + len(given) * ucode.psp_fw_bin_desc.SIZE * bool(container.packed)
    start = -(-head_bytes // ALIGN_BYTES) * ALIGN_BYTES
    prefix = "" if container.header is ucode.common_firmware_header else "header."
    values: dict[str, Value] = {
        f"{prefix}header_size_bytes": container.header.SIZE,
        f"{prefix}header_version_major": header_version[0],
        f"{prefix}header_version_minor": header_version[1],
        f"{prefix}ip_version_major": ip_version[0],
        f"{prefix}ip_version_minor": ip_version[1],
        f"{prefix}ucode_version": version,
        f"{prefix}ucode_array_offset_bytes": start,
        **(fields or {}),
    }
    if container.packed:
        listed, payload = _pack(container, kind, given, values)
    else:
        listed, payload = b"", _lay_out(container, given, values, start)
    values[f"{prefix}size_bytes"] = start + len(payload)
    values.setdefault(f"{prefix}ucode_size_bytes", len(payload))
    described = container.header
    head = (build(described, _own(values, prefix)) + listed).ljust(start, b"\0")
    values[f"{prefix}crc32"] = zlib.crc32(head[COMMON_BYTES:] + payload)
    return (build(described, _own(values, prefix)) + listed).ljust(start, b"\0") + payload


def _own(values: Fields, prefix: str) -> Fields:
    """Return the common fields under the names of an image without its own header."""
    return values if prefix else {name.removeprefix("header."): value for name, value in values.items()}


def _lay_out(container: Container, given: Mapping[str, Piece], values: dict[str, Value], start: int) -> bytes:
    """Set the fields that locate each section and return the payload.

    The caller's `fields` locate sections inside others.
    """
    payload = bytearray()
    tables = {name: piece for name, piece in given.items() if container.tables and name.startswith("pptable_")}
    known = {cut.name: cut for cut in container.cuts if not cut.inside}
    for name in given:
        if name not in known and name not in tables:
            raise ValueError(f"such an image has no section {name}; it has {', '.join(known)}")
    at_start = [cut for cut in known.values() if cut.at is None]
    # The section that begins the payload comes first.
    for cut in (*at_start, *(cut for cut in known.values() if cut.at is not None)):
        if cut.name not in given:
            continue
        piece = given[cut.name]
        _place(cut, piece, values, start, len(payload))
        payload += piece.data
    if container.tables:
        payload += _power_tables(tables, values, start + len(payload))
    return bytes(payload)


def _place(cut: Cut, piece: Piece, values: dict[str, Value], start: int, at: int) -> None:
    values[cut.size] = len(piece.data)
    if cut.at is not None:
        values[cut.at] = at if cut.base == CODE else start + at
    if cut.version is not None:
        values[cut.version] = piece.version


def _power_tables(tables: Mapping[str, Piece], values: dict[str, Value], at: int) -> bytes:
    rows, data = bytearray(), bytearray()
    first = at + len(tables) * PPTABLE_ENTRY.sizeof()
    for name, piece in tables.items():
        number = int(name.removeprefix("pptable_"))
        row = {"id": number, "ppt_offset_bytes": first + len(data), "ppt_size_bytes": len(piece.data)}
        rows += build(PPTABLE_ENTRY, row)
        data += piece.data
    values["pptable_count"], values["pptable_entry_offset"] = len(tables), at
    return bytes(rows + data)


def _pack(container: Container, kind: str, given: Mapping[str, Piece], values: dict[str, Value]) -> tuple[bytes, bytes]:
    """Return the list of packed parts and the payload. Parts named `..._aux` form the second set and come last."""
    numbers = {name: number for number, name in PACKED[kind].items()}
    rows, payload = bytearray(), bytearray()
    ordered = sorted(given.items(), key=lambda item: item[0].endswith(AUX))
    for name, piece in ordered:
        number = numbers.get(name.removesuffix(AUX)) if piece.number is None else piece.number
        if number is None:
            raise ValueError(f"no packed part is called {name}: give its number")
        place = {
            "fw_type": number,
            "fw_version": piece.version,
            "offset_bytes": len(payload),
            "size_bytes": len(piece.data),
        }
        rows += build(ucode.psp_fw_bin_desc, place)
        payload += piece.data
    values[container.packed] = len(ordered)
    if "psp_aux_fw_bin_index" in container.header.members():
        values["psp_aux_fw_bin_index"] = sum(name.endswith(AUX) for name in given)
    return bytes(rows), bytes(payload)
