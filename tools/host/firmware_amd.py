"""`ringup firmware` for Radeons: a chip's files, and the contents of amdgpu's files, discovery binaries and ROMs."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ringup.autogen.amd import discovery as facts
from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.amd import discovery, toc, vbios
from ringup.firmware.amd.files import FirmwareSet
from ringup.firmware.amd.image import Image, parse
from ringup.firmware.amd.needs import CHIPS, Need, needs
from ringup.firmware.store import FoundFile, Store
from ringup.tools.host.firmware_list import HASH_LETTERS, Checked, Row


def check(args: argparse.Namespace, store: Store) -> Checked:
    """Look for the files of a chip."""
    if args.release is not None:
        raise NotSupported(f"--release is for NVIDIA's chips; the files of {args.chip} have no releases")
    blocks = CHIPS[args.chip]
    device, revision = _pci(args.pci)
    rows, problems, files, images = [], [], {}, {}
    for need in needs(blocks.gc, blocks.mp0, blocks.mp1, blocks.sdma, device, revision):
        row, found, image = _look(need, store)
        rows.append(row)
        if found is not None and image is not None:
            files[need.kind], images[need.kind] = found, image
        elif row["problem"] is not None and not (need.optional and row["path"] is None):
            problems.append(str(row["problem"]))
    mark = FirmwareSet(files, images).fingerprint if not problems else None
    return Checked(rows, problems, sum(len(file.data) for file in files.values()), mark, {})


def _pci(text: str) -> tuple[int, int]:
    try:
        device, revision = (int(part, 16) for part in text.split(":"))
    except ValueError:
        raise FirmwareError(f"--pci {text}: write device and revision in hex, such as 744b:00") from None
    return device, revision


def _look(need: Need, store: Store) -> tuple[Row, FoundFile | None, Image | None]:
    """Find and read one file. Return its row, the file and the image; the last is None if there is a problem."""
    row: Row = {
        "kind": need.kind,
        "name": need.name,
        "optional": need.optional,
        "path": None,
        "problem": None,
    }
    try:
        found = store.load(*need.names)
    except FirmwareError as error:
        return row | {"problem": str(error)}, None, None
    row |= {"name": found.name, "path": str(found.path), "size_bytes": len(found.data), "sha256": found.sha256}
    try:
        image = parse(found.data, found.name)
    except FirmwareError as error:
        return row | {"problem": str(error)}, found, None
    header = f"{image.header_version[0]}.{image.header_version[1]}"
    crc = {"crc32": image.crc32, "crc_is_over": image.crc_rule}
    return row | {"version": image.version, "header": header, **crc}, found, image


def state(row: Row) -> str:
    """Return what the list says about a file that was read."""
    checksum, hashed = _crc(row["crc_is_over"]), row["sha256"][:HASH_LETTERS]
    return f"{row['version']:#010x}  {row['size_bytes']:7}  {hashed}  {checksum:11}  {row['path']}"


def _crc(rule: str) -> str:
    return f"CRC {rule}" if rule in ("file", "payload") else "CRC unknown"


def show(found: FoundFile, kind: str | None) -> tuple[dict[str, Any], list[str]]:
    """Decode a file; return it as a document and as lines."""
    head = found.data[:4]
    if head == facts.BINARY_SIGNATURE.to_bytes(4, "little"):
        return _discovery(discovery.parse(found.data, found.name))
    if head[:2] == vbios.MAGIC.to_bytes(2, "little"):
        return _rom(vbios.parse(found.data, found.name))
    return _image(parse(found.data, found.name, kind))


def _image(image: Image) -> tuple[dict[str, Any], list[str]]:
    fields = {name: value for name, value in image.fields.items() if isinstance(value, int)}
    document = {
        "name": image.name,
        "kind": image.kind,
        "header": list(image.header_version),
        "ip_version": list(image.ip_version),
        "version": image.version,
        "crc_is_over": image.crc_rule,
        "fields": fields,
        "sections": [asdict(section) for section in image.sections],
    }
    major, minor = image.header_version
    lines = [
        f"{image.name}: {image.kind} image, header {major}.{minor}, version {image.version:#x}, {len(image.blob)} bytes"
    ]
    lines.append(f"  CRC {image.crc32:#010x}: {image.crc_rule}")
    lines += [f"  {name:40} {value:#x}" for name, value in fields.items() if value and not name.startswith("header.")]
    for section in image.sections:
        version = "" if section.version is None else f"  version {section.version:#x}"
        number = "" if section.number is None else f"  number {section.number}"
        lines.append(f"  {section.offset_bytes:#9x} {section.size_bytes:#9x}  {section.name}{version}{number}")
    lines += _contents(image)
    return document, lines


def _contents(image: Image) -> list[str]:
    """List the RLC's table of contents of a graphics core's `toc` file; only the PSP reads its own, which is signed."""
    code = image.section("code")
    if (
        image.kind != "toc"
        or not image.name.startswith("gc_")
        or code is None
        or image.ip_version[0] not in toc.LAYOUTS
    ):
        return []
    entries = toc.parse(image.data(code), (image.ip_version[0], 0, 0), image.name)
    return [f"  {entry.offset_bytes:#9x} {entry.size_bytes:#9x}  {entry.id:2} {entry.name}" for entry in entries]


def _discovery(found: discovery.Discovery) -> tuple[dict[str, Any], list[str]]:
    document = {
        "kind": "discovery",
        "version": list(found.version),
        "blocks": [asdict(ip) | {"name": ip.name} for ip in found.ips],
        "gc": dict(found.gc) if found.gc is not None else None,
        "harvest": found.harvest,
        "reasons": dict(found.reasons),
    }
    lines = [f"discovery binary {found.version[0]}.{found.version[1]}, {found.size_bytes} bytes"]
    for ip in found.ips:
        bases = " ".join(f"{base:#x}" for base in ip.bases)
        lines.append(f"  {ip.name:10} {ip.instance:2}  {'.'.join(map(str, ip.version)):8}  {bases}")
    lines += [f"  {name} {value!r}" for name, value in (found.gc or {}).items() if not name.startswith("header.")]
    lines += [f"  fused off: {discovery.NAMES.get(hw_id, hw_id)} {instance}" for hw_id, instance in found.harvest or ()]
    lines += [f"  no {table} table: {reason}" for table, reason in found.reasons.items()]
    return document, lines


def _rom(rom: vbios.Vbios) -> tuple[dict[str, Any], list[str]]:
    document = {
        "kind": "vbios",
        "part_number": rom.part_number,
        "title": rom.title,
        "version": rom.version,
        "date": rom.date,
        "pci": [rom.pci_vendor, rom.pci_device],
        "sum_is_zero": rom.sum_is_zero,
        "data": [asdict(table) for table in rom.data.values()],
        "commands": [asdict(table) for table in rom.commands.values()],
        "reasons": dict(rom.reasons),
    }
    state = "" if rom.sum_is_zero else ", its bytes do not add up to 0"
    lines = [
        f"{rom.part_number}  {rom.title}  {rom.version}  {rom.date}  {rom.pci_vendor:04x}:{rom.pci_device:04x}{state}"
    ]
    for what, tables in (("data", rom.data), ("command", rom.commands)):
        for table in tables.values():
            major, minor = table.revision
            lines.append(f"  {table.offset_bytes:#7x} {table.size_bytes:6}  {what} {table.name} {major}.{minor}")
    lines += [f"  no {table}: {reason}" for table, reason in rom.reasons.items() if table in rom.data]
    return document, lines
