"""The expansion ROM of an NVIDIA card: PCI images in a chain, the BIOS information table (BIT), and the table of falcon
programs, of which FWSEC starts the GSP's boot.

Only what bring-up needs is decoded. A ROM that is read through the register window (NV_PROM) may begin with
initialisation data (IFR) and a ROM directory. Source: PCI Firmware Specification, "Expansion ROM"; OGKM
pci_exp_table.h; kernel_gsp_vbios_tu102.c, s_romImgFindPciHeader_TU102 and s_locateExpansionRoms; kernel_gsp_fwsec.c,
s_vbiosFindBitHeader and s_vbiosParseFwsecUcodeDescFromBit; nouveau bios/image.c, base.c and pmu.c; nova-core vbios.rs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from construct import Bytes, Int8ul, Int16ul, Int32ul, Padding
from construct import Struct as Layout

from ringup.autogen.nv import boot
from ringup.errors import FirmwareError
from ringup.firmware.layouts import Fields, integer, read
from ringup.firmware.nv import fwsec
from ringup.firmware.nv.ucode import FalconUcode

MAX_BYTES = 16 << 20  # a flash part holds 1 or 2 MiB
MAX_ROM_BYTES = 0x10_0000  # OGKM, s_getBaseBiosMaxSize_TU102
MAX_IMAGES = 32  # published ROMs have up to 6
BLOCK_BYTES = 512  # the unit of an image's length
ROM_SIGNATURES = {0xAA55, 0x4E56, 0xBB77}
PCIR_SIGNATURES = {b"PCIR", b"NPDS", b"RGIS"}
NPDE, NPDE_REVISIONS, NPDE_ALIGN = b"NPDE", {0x100, 0x101}, 16
LAST_IMAGE = 0x80
ROM_DIRECTORY, FLASH_STATUS_BYTES = b"RFRD", 4096
# Code types of images.
BASE, EFI, NBSI, EXTENSION = 0x00, 0x03, 0x70, 0xE0
CODE_TYPES = {BASE: "base", EFI: "EFI", NBSI: "NBSI", EXTENSION: "extension"}

ROM_HEADER = Layout("signature" / Int16ul, Padding(0x16), "pcir" / Int16ul)
PCIR = Layout(
    "signature" / Bytes(4),
    "vendor" / Int16ul,
    "device" / Int16ul,
    "device_list" / Int16ul,
    "length" / Int16ul,
    "revision" / Int8ul,
    "class_code" / Bytes(3),
    "image_blocks" / Int16ul,
    "rom_revision" / Int16ul,
    "code_type" / Int8ul,
    "last_image" / Int8ul,
)
# NVIDIA's extension of the PCI data structure, 16-byte aligned behind it.
NPDE_HEAD = Layout("signature" / Bytes(4), "revision" / Int16ul, "length" / Int16ul, "subimage_blocks" / Int16ul)
NPDE_LAST_OFFSET = 0xA
BIT_MAGIC = b"\xff\xb8BIT\0"
BIT = Layout(
    "magic" / Bytes(6),
    "bcd_version" / Int16ul,
    "header_size" / Int8ul,
    "token_size" / Int8ul,
    "token_entries" / Int8ul,
    "checksum" / Int8ul,
)
TOKEN = Layout("id" / Bytes(1), "data_version" / Int8ul, "data_size" / Int16ul, "data_offset" / Int16ul)
# BIT_DATA_BIOSDATA_BINVER; nouveau reads the same five bytes from token i.
VERSION = Layout("version" / Int32ul, "oem_version" / Int8ul)
VERSION_TOKENS = ("i", "B")
FALCON_TOKEN, FALCON_TOKEN_VERSION = "p", 2
NUMBER = Layout("value" / Int32ul)
UCODE_TABLE = Layout(
    "version" / Int8ul,
    "header_size" / Int8ul,
    "entry_size" / Int8ul,
    "entry_count" / Int8ul,
    "desc_version" / Int8ul,
    "desc_size" / Int8ul,
)
UCODE_ENTRY = Layout("application_id" / Int8ul, "target_id" / Int8ul, "descriptor" / Int32ul)
UCODE_TABLE_VERSION = 1
# Application ids of FWSEC: for cards with production and with debug fuses, and of older ROMs.
FWSEC_PROD, FWSEC_DBG, FWSEC_LIC = 0x85, 0x45, 0x05
APPLICATIONS = {FWSEC_PROD: "FWSEC", FWSEC_DBG: "FWSEC for debug fuses", FWSEC_LIC: "FWSECLIC"}


@dataclass(frozen=True, slots=True)
class RomImage:
    """One image of the chain; `offset_bytes` counts from the first image."""

    code_type: int
    offset_bytes: int
    size_bytes: int
    vendor: int
    device: int

    @property
    def kind(self) -> str:
        return CODE_TYPES.get(self.code_type, f"type {self.code_type:#x}")


@dataclass(frozen=True, slots=True)
class Token:
    """An entry of the BIOS information table. `offset_bytes` points to its data in the ROM, not checked."""

    id: str
    version: int
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UcodeEntry:
    """A falcon program in the ROM. `descriptor_bytes` counts from the first image; it is not checked."""

    application_id: int
    target_id: int
    descriptor_bytes: int

    @property
    def kind(self) -> str:
        return APPLICATIONS.get(self.application_id, f"application {self.application_id:#x}")


@dataclass(frozen=True, slots=True)
class Vbios:
    """A checked ROM.

    `blob` begins with the first image, which was at `start_bytes`, and ends with the last one. `version` is such as
    `94.02.42.00.a1`, empty if the ROM has none. `reason` says why there are no falcon programs; empty if there are.
    """

    name: str
    version: str
    start_bytes: int
    images: tuple[RomImage, ...] = field(repr=False)
    tokens: tuple[Token, ...] = field(repr=False)
    ucodes: tuple[UcodeEntry, ...] = field(repr=False)
    reason: str
    sum_is_zero: bool
    blob: bytes = field(repr=False)

    @property
    def pci_vendor(self) -> int:
        return self.images[0].vendor

    @property
    def pci_device(self) -> int:
        return self.images[0].device

    def fwsec(self, debug: bool = False) -> FalconUcode:
        """Return FWSEC, for a card with production fuses or with debug fuses.

        It has no command yet, see `FalconUcode.commanded` and `fwsec`. Raises `FirmwareError` if the ROM has none, or a
        damaged one.
        """
        wanted = FWSEC_DBG if debug else FWSEC_PROD
        for application in (wanted, FWSEC_LIC):
            for entry in self.ucodes:
                if entry.application_id == application:
                    return fwsec.parse(self.blob, entry.descriptor_bytes, self.name)
        listed = ", ".join(f"{entry.application_id:#x}" for entry in self.ucodes) or "none"
        why = self.reason or f"the ROM lists applications: {listed}"
        raise FirmwareError(f"{self.name}: no FWSEC (application {wanted:#x}): {why}")


class _Pointers(NamedTuple):
    """How a pointer of the base image becomes an offset in the ROM.

    NVIDIA's tables count as if the extension followed the base image; an EFI image may lie between them.
    """

    base_size_bytes: int
    shift_bytes: int

    def resolve(self, pointer: int) -> int:
        return pointer + self.shift_bytes if pointer >= self.base_size_bytes else pointer


def parse(rom: bytes, name: str = "vbios") -> Vbios:
    """Read and check a ROM, as the card's ROM window or a file has it.

    Raises `FirmwareError`, with the byte, if there is no chain of PCI images with a BIOS information table. A ROM
    without falcon programs is accepted: cards with an FSP boot without FWSEC. `fwsec` says what is missing.
    """
    if len(rom) > MAX_BYTES:
        raise FirmwareError(f"{name}: {len(rom)} bytes are more than any ROM has ({MAX_BYTES})")
    start = _first_image(rom, name)
    images = tuple(_chain(rom, start, name))
    end = images[-1].offset_bytes + images[-1].size_bytes
    if end > MAX_ROM_BYTES:
        raise FirmwareError(f"{name}: the images have {end} bytes; a ROM has at most {MAX_ROM_BYTES}")
    blob = rom[start : start + end]
    base = next((image for image in images if image.code_type == BASE), None)
    if base is None:
        kinds = ", ".join(image.kind for image in images)
        raise FirmwareError(f"{name}: the ROM has no base image (type 0), only: {kinds}")
    tokens = _tokens(blob, base, name)
    try:
        ucodes, reason = _ucodes(blob, base, images, tokens, name)
    except FirmwareError as error:
        # A card with an FSP boots in spite of it.
        ucodes, reason = (), str(error).removeprefix(f"{name}: ")
    whole = blob[base.offset_bytes : base.offset_bytes + base.size_bytes]
    version = _version(blob, tokens, name)
    return Vbios(name, version, start, images, tokens, ucodes, reason, sum(whole) & 0xFF == 0, blob)


def _number(rom: bytes, offset_bytes: int, name: str, what: str) -> int:
    return integer(read(NUMBER, rom, offset_bytes, name, what), "value")


def _first_image(rom: bytes, name: str) -> int:
    """Return where the first image begins: at the start, or where the initialisation data (IFR) says."""
    magic = integer(read(ROM_HEADER, rom, 0, name, "the ROM header"), "signature")
    if magic in ROM_SIGNATURES:
        return 0
    words = [_number(rom, at, name, "the IFR header") for at in (0, 4, 8)]
    fixed0, fixed1, fixed2 = (
        boot.NV_PBUS_IFR_FMT_FIXED0(words[0]),
        boot.NV_PBUS_IFR_FMT_FIXED1(words[1]),
        boot.NV_PBUS_IFR_FMT_FIXED2(words[2]),
    )
    if fixed0.signature != boot.NV_PBUS_IFR_FMT_FIXED0_SIGNATURE_VALUE:
        raise FirmwareError(
            f"{name}: byte 0 holds {words[0]:#010x}; a ROM begins with 0xaa55 or with the IFR header"
            f" {boot.NV_PBUS_IFR_FMT_FIXED0_SIGNATURE_VALUE:#010x}"
        )
    if fixed1.versionsw in (1, 2):
        start = _number(rom, fixed1.fixed_data_size + 4, name, "the IFR's extended data")
    elif fixed1.versionsw == 3:
        status = _number(rom, fixed2.total_data_size, name, "the IFR's flash status offset")
        directory = status + FLASH_STATUS_BYTES
        seen = rom[directory : directory + 4]
        if seen != ROM_DIRECTORY:
            raise FirmwareError(
                f"{name}: byte {directory} holds {seen!r}, a ROM directory begins with {ROM_DIRECTORY!r}"
            )
        start = _number(rom, directory + 8, name, "the ROM directory")
    else:
        raise FirmwareError(f"{name}: byte 5 says IFR version {fixed1.versionsw}; known: 1, 2, 3")
    if start % 4:
        raise FirmwareError(f"{name}: the IFR header puts the first image at byte {start:#x}, which is not a dword's")
    return start


def _chain(rom: bytes, start: int, name: str) -> Iterator[RomImage]:
    """Read the images one after another."""
    at = start
    for index in range(MAX_IMAGES):
        what = f"image {index}"
        magic = integer(read(ROM_HEADER, rom, at, name, f"the header of {what}"), "signature")
        if magic not in ROM_SIGNATURES:
            raise FirmwareError(f"{name}: {what} at byte {at:#x} begins with {magic:#06x}, an image with 0xaa55")
        pcir_at = at + integer(read(ROM_HEADER, rom, at, name, what), "pcir")
        pcir = read(PCIR, rom, pcir_at, name, f"the PCI data of {what}")
        if pcir["signature"] not in PCIR_SIGNATURES:
            raise FirmwareError(
                f"{name}: the PCI data of {what} at byte {pcir_at:#x} begins with {pcir['signature']!r}"
            )
        blocks, last = _length(rom, pcir_at, pcir, name)
        size = blocks * BLOCK_BYTES
        if not size:
            raise FirmwareError(f"{name}: {what} at byte {at:#x} states a length of 0")
        if at + size > len(rom):
            raise FirmwareError(f"{name}: {what} ends at byte {at + size}, the ROM at {len(rom)}")
        code_type = integer(pcir, "code_type")
        yield RomImage(code_type, at - start, size, integer(pcir, "vendor"), integer(pcir, "device"))
        if last:
            return
        at += size
    raise FirmwareError(f"{name}: {MAX_IMAGES} images and none is the last")


def _length(rom: bytes, pcir_at: int, pcir: Fields, name: str) -> tuple[int, bool]:
    """Return an image's length in blocks, and whether it is the last one.

    NVIDIA's extension overrides the PCI data structure: that one describes what the BIOS may see.
    """
    blocks, last = integer(pcir, "image_blocks"), bool(integer(pcir, "last_image") & LAST_IMAGE)
    at = -(-(pcir_at + integer(pcir, "length")) // NPDE_ALIGN) * NPDE_ALIGN
    if rom[at : at + 4] != NPDE:
        return blocks, last
    extension = read(NPDE_HEAD, rom, at, name, "the PCI data extension")
    if integer(extension, "revision") not in NPDE_REVISIONS:
        return blocks, last
    shorter = integer(extension, "subimage_blocks")
    if integer(extension, "length") > NPDE_LAST_OFFSET and at + NPDE_LAST_OFFSET < len(rom):
        return shorter, bool(rom[at + NPDE_LAST_OFFSET] & LAST_IMAGE)
    return shorter, last and shorter >= blocks


def _tokens(blob: bytes, base: RomImage, name: str) -> tuple[Token, ...]:
    """Find the BIOS information table in the base image and list its entries."""
    first, end = base.offset_bytes, base.offset_bytes + base.size_bytes
    at = blob.find(BIT_MAGIC, first, end)
    while at >= 0:
        head = read(BIT, blob, at, name, "the BIT header")
        size = integer(head, "header_size")
        if sum(blob[at : at + size]) & 0xFF == 0 and size >= BIT.sizeof():
            break
        at = blob.find(BIT_MAGIC, at + 1, end)
    if at < 0:
        raise FirmwareError(f"{name}: the base image has no BIOS information table with a right checksum")
    step = integer(head, "token_size")
    if step < TOKEN.sizeof():
        raise FirmwareError(f"{name}: the BIT header at byte {at:#x} says {step} bytes for an entry")
    found = []
    for index in range(integer(head, "token_entries")):
        row = read(TOKEN, blob, at + size + index * step, name, f"entry {index} of the BIT")
        letter = row["id"]
        assert isinstance(letter, bytes)  # the layout says so
        token = letter.decode("latin-1")
        version, length, place = (integer(row, one) for one in ("data_version", "data_size", "data_offset"))
        found.append(Token(token, version, place + first, length))
    return tuple(found)


def _version(blob: bytes, tokens: tuple[Token, ...], name: str) -> str:
    """Return the ROM's version, such as 94.02.42.00.a1."""
    for letter in VERSION_TOKENS:
        for token in tokens:
            outside = token.offset_bytes + VERSION.sizeof() > len(blob)
            if token.id != letter or token.size_bytes < VERSION.sizeof() or outside:
                continue
            row = read(VERSION, blob, token.offset_bytes, name, f"the data of BIT entry {letter}")
            number = integer(row, "version")
            parts = (*(number >> shift & 0xFF for shift in (24, 16, 8, 0)), integer(row, "oem_version"))
            return ".".join(f"{part:02x}" for part in parts)
    return ""


def _ucodes(
    blob: bytes, base: RomImage, images: tuple[RomImage, ...], tokens: tuple[Token, ...], name: str
) -> tuple[tuple[UcodeEntry, ...], str]:
    """Return the list of falcon programs; without one, the reason."""
    token = next((one for one in tokens if one.id == FALCON_TOKEN and one.version == FALCON_TOKEN_VERSION), None)
    if token is None or token.size_bytes < NUMBER.sizeof():
        return (), f"the BIT has no entry {FALCON_TOKEN} of version {FALCON_TOKEN_VERSION}, which lists falcon programs"
    extension = next((image for image in images if image.code_type == EXTENSION), None)
    behind = base.offset_bytes + base.size_bytes
    pointers = _Pointers(behind, extension.offset_bytes - behind if extension is not None else 0)
    pointer = _number(blob, token.offset_bytes, name, f"the data of BIT entry {FALCON_TOKEN}")
    if not pointer:
        return (), "the BIT's pointer to the list of falcon programs is 0"
    at = pointers.resolve(pointer)
    if at >= len(blob):
        return (), f"the list of falcon programs is at byte {at:#x}, the ROM ends at {len(blob):#x}"
    head = read(UCODE_TABLE, blob, at, name, "the list of falcon programs")
    version, first, step = (integer(head, one) for one in ("version", "header_size", "entry_size"))
    if version != UCODE_TABLE_VERSION or first < UCODE_TABLE.sizeof() or step < UCODE_ENTRY.sizeof():
        return (), f"the list of falcon programs has version {version}, a header of {first} and entries of {step} bytes"
    found = []
    for index in range(integer(head, "entry_count")):
        row = read(UCODE_ENTRY, blob, at + first + index * step, name, f"falcon program {index}")
        place = pointers.resolve(integer(row, "descriptor"))
        found.append(UcodeEntry(integer(row, "application_id"), integer(row, "target_id"), place))
    return tuple(found), "" if found else "the list of falcon programs is empty"
