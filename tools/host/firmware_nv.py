"""`ringup firmware` for NVIDIA's cards: the files that boot a chip's GSP, and the contents of such files and ROMs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ringup.errors import FirmwareError
from ringup.firmware.amd.vbios import ATI_MAGIC
from ringup.firmware.nv import booter, bootloader, containers, elf, fmc, gsp, loader, vbios
from ringup.firmware.nv.files import FirmwareSet, Image, read
from ringup.firmware.nv.needs import Need, chip, needs
from ringup.firmware.nv.ucode import FalconUcode, Part
from ringup.firmware.store import FoundFile, Store
from ringup.tools.host.firmware_list import HASH_LETTERS, Checked, Row

Decoded = tuple[dict[str, Any], list[str]]
KEY_NAMES = {fmc.RSA3K: "RSA-3072", fmc.ECDSA_P384: "ECDSA P-384"}
ATI_MAGIC_AT = 0x30
IFR_MAGIC = b"NVGI"
# The beginning of a container's name: what is inside.
NAMES = {
    "booter_": "booter",
    "bootloader": "bootloader",
    "gen_bootloader": "loader",
    "scrubber": "booter",
    "bl": "loader",
}


def check(args: argparse.Namespace, store: Store) -> Checked:
    """Look for the files of a chip: of the release that is asked for, or of the first one that is complete."""
    releases = chip(args.chip).boot.releases if args.release is None else (args.release,)
    tried = [_look_all(args.chip, release, store) for release in releases[:1]]
    for release in releases[1:]:
        if not tried[-1].problems:
            break
        tried.append(_look_all(args.chip, release, store))
    return next((one for one in tried if not one.problems), tried[0])


def _look_all(name: str, release: str, store: Store) -> Checked:
    rows, problems, files, images = [], [], {}, {}
    for need in needs(name, release):
        row, found, image = _look(need, store, name, release)
        rows.append(row)
        if found is not None and image is not None:
            files[need.kind], images[need.kind] = found, image
        else:
            problems.append(str(row["problem"]))
    mark = FirmwareSet(name, release, files, images).fingerprint if not problems else None
    return Checked(rows, problems, sum(len(file.data) for file in files.values()), mark, {"release": release})


def _look(need: Need, store: Store, name: str, release: str) -> tuple[Row, FoundFile | None, Image | None]:
    """Find and read one file. Return its row, the file and the image; the last is None if there is a problem."""
    row: Row = {"kind": need.kind, "name": need.name, "optional": False, "path": None, "problem": None}
    try:
        found = store.load(*need.names)
    except FirmwareError as error:
        return row | {"problem": str(error)}, None, None
    row |= {"name": found.name, "path": str(found.path), "size_bytes": len(found.data), "sha256": found.sha256}
    try:
        image = read(need, found, name, release)
    except FirmwareError as error:
        return row | {"problem": str(error)}, found, None
    return row | {"version": _version(image)}, found, image


def _version(image: Image) -> str:
    """Return what a file says about its version."""
    if isinstance(image, gsp.GspImage):
        return image.release or "not stated"
    if isinstance(image, bootloader.Bootloader):
        return f"{image.app_version:#010x}"
    if isinstance(image, booter.Booter):
        return f"fuse {image.fuse_version}"
    if isinstance(image, loader.Loader):
        return f"block {image.start_tag:#x}"
    return KEY_NAMES.get(image.sizes, "unknown key")


def state(row: Row) -> str:
    """Return what the list says about a file that was read."""
    return f"{row['version']:11}  {row['size_bytes']:8}  {row['sha256'][:HASH_LETTERS]}  {row['path']}"


def recognises(data: bytes) -> bool:
    """Tell whether a file is one of NVIDIA's containers or ROMs, by its first bytes."""
    magic, version = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
    # An amdgpu file begins with its size and with the size of its header, which is more than 1.
    if data[:4] in (elf.MAGIC, IFR_MAGIC) or (magic == containers.MAGIC and version == 1):
        return True
    theirs = data[ATI_MAGIC_AT : ATI_MAGIC_AT + len(ATI_MAGIC)] == ATI_MAGIC
    return magic & 0xFFFF in vbios.ROM_SIGNATURES and not theirs


def show(found: FoundFile, kind: str | None) -> Decoded:
    """Decode a file; return it as a document and as lines."""
    return KINDS[kind or _kind(found)](found.data, found.name)


def _kind(found: FoundFile) -> str:
    """Return a file's kind from its first bytes and its name. Raises `FirmwareError` if neither shows it."""
    if found.data[:4] == elf.MAGIC:
        return "fmc" if found.data[4:5] == bytes((elf.CLASS_32,)) else "gsp"
    if int.from_bytes(found.data[:4], "little") != containers.MAGIC:
        return "rom"
    name = re.split(r"[-.]", found.name)[0]
    for start, kind in NAMES.items():
        if name.startswith(start) and (start != "bl" or name == start):
            return kind
    raise FirmwareError(
        f"{found.name}: the name shows no kind of NVIDIA's firmware, such as booter_load-570.144.bin; give it: --kind"
    )


def _gsp(data: bytes, name: str) -> Decoded:
    image = gsp.parse(data, name)
    sections = [asdict(section) for section in image.sections]
    signatures = {family: len(signature) for family, signature in image.signatures.items()}
    document = {"name": name, "kind": "gsp", "release": image.release, "signatures": signatures, "sections": sections}
    lines = [f"{name}: GSP-RM, release {image.release or 'not stated'}, {len(data)} bytes"]
    lines.append(f"  signatures for {', '.join(image.signatures)}")
    lines += [f"  {one.offset_bytes:#10x} {one.size_bytes:#10x}  {one.name}" for one in image.sections]
    return document, lines


def _bootloader(data: bytes, name: str) -> Decoded:
    image = bootloader.parse(data, name)
    fields = {key: value for key, value in asdict(image).items() if isinstance(value, int)}
    lines = [f"{name}: the GSP's bootloader, version {image.app_version:#x}, an image of {len(image.image)} bytes"]
    for what, offset, size in (
        ("monitor's code", image.code_offset_bytes, image.code_size_bytes),
        ("monitor's data", image.data_offset_bytes, image.data_size_bytes),
        ("manifest", image.manifest_offset_bytes, image.manifest_size_bytes),
    ):
        lines.append(f"  {offset:#10x} {size:#10x}  {what}")
    return {"name": name, "kind": "bootloader", "image_bytes": len(image.image), **fields}, lines


def _booter(data: bytes, name: str) -> Decoded:
    image = booter.parse(data, name)
    parts = (image.os_code, image.app_code, image.os_data)
    document = {
        "name": name,
        "kind": "booter",
        "image_bytes": len(image.image),
        "parts": [asdict(part) for part in parts],
        "signatures": [len(signature) for signature in image.signatures],
        "signature_offset_bytes": image.patch_offset_bytes,
        "fuse_version": image.fuse_version,
        "engine_id_mask": image.engine_id_mask,
        "ucode_id": image.ucode_id,
    }
    lines = [f"{name}: a booter, an image of {len(image.image)} bytes"]
    lines += [f"  {part.offset_bytes:#10x} {part.size_bytes:#10x}  {part.name}" for part in parts]
    each = len(image.signatures[0])
    lines.append(f"  {image.patch_offset_bytes:#10x} {each:#10x}  the signature: one of {len(image.signatures)}")
    lines.append(f"  fuse version {image.fuse_version}, engines {image.engine_id_mask:#x}, program {image.ucode_id}")
    return document, lines


def _loader(data: bytes, name: str) -> Decoded:
    image = loader.parse(data, name)
    document = {
        "name": name,
        "kind": "loader",
        "code_size_bytes": image.code_size_bytes,
        "start_tag": image.start_tag,
        "dmem_load_bytes": image.dmem_load_bytes,
    }
    size, at = image.code_size_bytes, image.boot_bytes
    return document, [f"{name}: the generic falcon loader, {size} bytes of code at {at:#x}"]


def _fmc(data: bytes, name: str) -> Decoded:
    image = fmc.parse(data, name)
    key = KEY_NAMES.get(image.sizes, "unknown key")
    document = {
        "name": name,
        "kind": "fmc",
        "image_bytes": len(image.image),
        "hash384": image.hash384.hex(),
        **image.sizes._asdict(),
    }
    lines = [f"{name}: the GSP's first code for an FSP, an image of {len(image.image)} bytes"]
    lines += [f"  signed with {key}", f"  SHA-384 {image.hash384.hex()}"]
    return document, lines


def _rom(data: bytes, name: str) -> Decoded:
    rom = vbios.parse(data, name)
    programs: list[dict[str, Any]] = []
    document = {
        "name": name,
        "kind": "rom",
        "version": rom.version,
        "pci": [rom.pci_vendor, rom.pci_device],
        "start_bytes": rom.start_bytes,
        "sum_is_zero": rom.sum_is_zero,
        "images": [asdict(image) | {"kind": image.kind} for image in rom.images],
        "tokens": [asdict(token) for token in rom.tokens],
        "programs": programs,
        "reason": rom.reason,
    }
    total = "" if rom.sum_is_zero else ", the base image's bytes do not add up to 0"
    lines = [f"{name}: ROM {rom.version or 'without a version'}, {rom.pci_vendor:04x}:{rom.pci_device:04x}{total}"]
    lines += [f"  {image.offset_bytes:#8x} {image.size_bytes:#8x}  {image.kind}" for image in rom.images]
    tokens = " ".join(f"{token.id}{token.version}" for token in rom.tokens)
    lines.append(f"  BIT entries with their versions: {ascii(tokens)[1:-1] or 'none'}")
    for entry in rom.ucodes:
        lines.append(f"  {entry.descriptor_bytes:#8x}  falcon program: {entry.kind}, target {entry.target_id:#x}")
        programs.append(asdict(entry) | {"kind": entry.kind})
    if rom.reason:
        lines.append(f"  no falcon programs: {rom.reason}")
    for debug in (False, True):
        if any(entry.application_id == (vbios.FWSEC_DBG if debug else vbios.FWSEC_PROD) for entry in rom.ucodes):
            lines += _fwsec(rom, document, debug=debug)
    return document, lines


def _fwsec(rom: vbios.Vbios, document: dict[str, Any], *, debug: bool) -> list[str]:
    """Decode FWSEC into the document; return its lines. A damaged one is reported."""
    what = "fwsec_debug" if debug else "fwsec"
    try:
        ucode = rom.fwsec(debug)
    except FirmwareError as error:
        document[what] = {"problem": str(error)}
        return [f"  damaged: {error}"]
    parts = {"unsigned code": ucode.non_secure, "signed code": ucode.secure, "data": ucode.data}
    document[what] = {
        "parts": {name: asdict(part) for name, part in parts.items() if part is not None},
        "needs_loader": ucode.needs_loader,
        "signatures": len(ucode.signatures),
        "signature_versions": ucode.signature_versions,
        "engine_id_mask": ucode.engine_id_mask,
        "ucode_id": ucode.ucode_id,
        "mapper": asdict(ucode.mapper) if ucode.mapper is not None else None,
    }
    lines = [f"  FWSEC{' for debug fuses' if debug else ''}, {_loaded_by(ucode)}"]
    lines += [_part(name, part) for name, part in parts.items() if part is not None]
    return lines


def _loaded_by(ucode: FalconUcode) -> str:
    if ucode.needs_loader:
        return "for the generic loader"
    versions = [str(bit) for bit in range(16) if (ucode.signature_versions or 0) >> bit & 1]
    return f"engines {ucode.engine_id_mask:#x}, program {ucode.ucode_id}, signatures for fuses {', '.join(versions)}"


def _part(name: str, part: Part) -> str:
    return f"    {part.offset_bytes:#8x} {part.size_bytes:#8x}  {name}, to {part.memory_bytes:#x}"


# What `--kind` may be.
KINDS: dict[str, Callable[[bytes, str], Decoded]] = {
    "gsp": _gsp,
    "bootloader": _bootloader,
    "booter": _booter,
    "loader": _loader,
    "fmc": _fmc,
    "rom": _rom,
}
