"""A Radeon's expansion ROM: a PCI option ROM with an ATOM header, a list of command tables and a list of data tables.

Only what bring-up needs is decoded: the board's names, the location of BIOS_SCRATCH_0, boot clocks, the reference
clock, the memory. Command tables are listed, never run. The ROM's byte sum is reported, but not a reason to refuse it.
Source: include/atomfirmware.h; amdgpu atom.c, amdgpu_atom_parse; amdgpu_bios.c, check_atom_bios; amdgpu_atomfirmware.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from construct import Bytes, Int8ul, Int16ul, Padding
from construct import Struct as Layout

from ringup.autogen.amd import atom
from ringup.autogen.structs import Struct
from ringup.errors import FirmwareError
from ringup.firmware.layouts import Fields, read, read_within

# atom.h: ATOM_BIOS_MAGIC and related constants
MAGIC, ATI_MAGIC, ATOM_MAGIC, PCIR = 0xAA55, b" 761295520", b"ATOM", b"PCIR"
ROM_BLOCK_BYTES = 512  # the unit of byte 2
MAX_BYTES = 16 << 20  # a flash part of a card holds 1 or 2 MiB
MAX_STRING = atom.BIOS_STRING_LENGTH
DATE_BYTES = 14  # MM/DD/YY HH:MM
VERSION_SKIP = len("ATOMBIOSBK-AMD VER")

# The PCI header and the fields of every ATOM ROM: atom.h, amdgpu atom.c
ROM = Layout(
    "magic" / Int16ul,
    "blocks" / Int8ul,
    Padding(0x18 - 3),
    "pcir" / Int16ul,
    Padding(0x2F - 0x1A),
    "strings" / Int8ul,
    "ati_magic" / Bytes(len(ATI_MAGIC)),
    Padding(0x48 - 0x3A),
    "header" / Int16ul,
    Padding(0x50 - 0x4A),
    "date" / Bytes(DATE_BYTES),
    Padding(0x6E - 0x5E),
    "string_start" / Int16ul,
)
# PCI Firmware Specification, "PCI Data Structure"
PCI_DATA = Layout("signature" / Bytes(4), "vendor" / Int16ul, "device" / Int16ul)
HEADER = atom.atom_rom_header_v2_2
TABLE_HEADER = atom.atom_common_table_header
DATA_LIST = atom.atom_master_list_of_data_tables_v2_1
COMMAND_LIST = atom.atom_master_list_of_command_functions_v2_1
# Data table: revision: struct.
DECODED: dict[str, dict[tuple[int, int], type[Struct]]] = {
    "firmwareinfo": {
        (3, 1): atom.atom_firmware_info_v3_1,
        (3, 2): atom.atom_firmware_info_v3_2,
        (3, 3): atom.atom_firmware_info_v3_3,
        (3, 4): atom.atom_firmware_info_v3_4,
        (3, 5): atom.atom_firmware_info_v3_5,
    },
    "smu_info": {(3, 6): atom.atom_smu_info_v3_6, (4, 0): atom.atom_smu_info_v4_0},
    "gfx_info": {(2, 7): atom.atom_gfx_info_v2_7, (3, 0): atom.atom_gfx_info_v3_0},
    "umc_info": {(4, 0): atom.atom_umc_info_v4_0},
    "vram_info": {
        (2, 3): atom.atom_vram_info_header_v2_3,
        (2, 4): atom.atom_vram_info_header_v2_4,
        (2, 5): atom.atom_vram_info_header_v2_5,
        (2, 6): atom.atom_vram_info_header_v2_6,
        (3, 0): atom.atom_vram_info_header_v3_0,
    },
}
MEMORY_TYPES = {
    atom.ATOM_DGPU_VRAM_TYPE_GDDR5: "GDDR5",
    atom.ATOM_DGPU_VRAM_TYPE_HBM2: "HBM2",
    atom.ATOM_DGPU_VRAM_TYPE_HBM2E: "HBM2E",
    atom.ATOM_DGPU_VRAM_TYPE_GDDR6: "GDDR6",
    atom.ATOM_DGPU_VRAM_TYPE_HBM3: "HBM3",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A command or data table: its offset and size, its format and content revision."""

    name: str
    offset_bytes: int
    size_bytes: int
    revision: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """The card's memory: `type` is a `MEMORY_TYPES` name or the bare number, `width_bits` the whole bus."""

    type: str
    channels: int
    width_bits: int
    vendor: int


@dataclass(frozen=True, slots=True)
class Vbios:
    """A checked ROM.

    `decoded` holds the fields of the tables that bring-up reads; `reasons` says why one is missing there. A table that
    is shorter than its revision's struct has the fields that are inside it.
    """

    part_number: str
    title: str
    version: str
    date: str
    pci_vendor: int
    pci_device: int
    size_bytes: int
    sum_is_zero: bool
    data: Mapping[str, Table] = field(repr=False)
    commands: Mapping[str, Table] = field(repr=False)
    decoded: Mapping[str, Fields] = field(repr=False)
    reasons: Mapping[str, str] = field(repr=False)
    blob: bytes = field(repr=False)

    def require(self, table: str) -> Fields:
        """Return a decoded data table. Raises `FirmwareError` with the reason if the ROM has no readable one."""
        if table not in self.decoded:
            raise FirmwareError(f"vbios: no {table}: {self.reasons.get(table, 'it is not one of those decoded')}")
        return self.decoded[table]

    def table_bytes(self, table: str) -> bytes:
        """Return a data table with its header, for tables decoded elsewhere (`smc_dpm_info`, `powerplayinfo`)."""
        if table not in self.data:
            raise FirmwareError(f"vbios: the ROM has no {table} table")
        found = self.data[table]
        return self.blob[found.offset_bytes : found.offset_bytes + found.size_bytes]

    @property
    def scratch_dword(self) -> int:
        """The address of BIOS_SCRATCH_0, in dwords of the register BAR."""
        return _integer(self.require("firmwareinfo"), "bios_scratch_reg_startaddr")

    @property
    def reference_clock_hz(self) -> int:
        """The frequency of the graphics core's time stamps. Source: amdgpu_atomfirmware_get_clock_info."""
        info = self.require("gfx_info")
        name = "golden_tsc_count_lower_refclk" if "golden_tsc_count_lower_refclk" in info else "rlc_gpu_timer_refclk"
        return _integer(info, name) * 10_000

    def memory(self, module: int = 0) -> Memory:
        """Return the card's memory; `module` selects one of the layouts that a ROM of revision 2 lists.

        Source: amdgpu_atomfirmware_get_vram_info, which takes the module from BIOS_SCRATCH_4 bits 23:16, and 0 if the
        ROM has no such module.
        """
        # Graphics core 12.
        if "vram_info" not in self.decoded and "umc_info" in self.decoded:
            info = self.decoded["umc_info"]
            channels, width = _integer(info, "channel_num"), 1 << (_integer(info, "channel_width") & 31)
            return Memory(_memory_type(_integer(info, "vram_type")), channels, channels * width, 0)
        info = self.require("vram_info")
        # Revision 3: one kind for all modules, channels of 16 bits.
        if "memory_type" in info:
            channels = _integer(info, "channel_num")
            vendor = _integer(info, "vram_module[0].dram_vendor_id") & 0xF
            return Memory(_memory_type(_integer(info, "memory_type")), channels, channels * 16, vendor)
        stem = f"vram_module[{module if f'vram_module[{module}].memory_type' in info else 0}]"
        channels = _integer(info, f"{stem}.channel_num")
        width = channels << (_integer(info, f"{stem}.channel_width") & 31)
        vendor = _integer(info, f"{stem}.vender_rev_id") & 0xF
        return Memory(_memory_type(_integer(info, f"{stem}.memory_type")), channels, width, vendor)


def _memory_type(number: int) -> str:
    return MEMORY_TYPES.get(number, f"{number:#x}")


def _integer(fields: Fields, name: str) -> int:
    if name not in fields:
        raise FirmwareError(f"vbios: {name} is beyond the end of its table")
    value = fields[name]
    assert isinstance(value, int)  # what the layout says
    return value


def _text(value: Any) -> str:
    """Return the printable beginning of bytes that should be text."""
    assert isinstance(value, bytes)  # what the layout says
    text = value.partition(b"\0")[0].decode("latin-1")
    return "".join(letter for letter in text if " " <= letter <= "~").strip()


def parse(blob: bytes, name: str = "vbios") -> Vbios:
    """Read and check a ROM.

    Raises `FirmwareError`, with the byte, if it is not an ATOM ROM or if a list of tables exceeds it.
    """
    if len(blob) > MAX_BYTES:
        raise FirmwareError(f"{name}: {len(blob)} bytes are more than any ROM has ({MAX_BYTES})")
    rom = read(ROM, blob, 0, name, "the ROM header")
    size = _integer(rom, "blocks") * ROM_BLOCK_BYTES
    for at, seen, wanted in ((0, rom["magic"], MAGIC), (0x30, rom["ati_magic"], ATI_MAGIC)):
        if seen != wanted:
            raise FirmwareError(f"{name}: byte {at:#x} holds {seen!r}, an ATOM ROM has {wanted!r} there")
    if not 0 < size <= len(blob):
        raise FirmwareError(f"{name}: byte 2 says {size} bytes, the image has {len(blob)}")
    pci = read(PCI_DATA, blob, _integer(rom, "pcir"), name, "the PCI data")
    if pci["signature"] != PCIR:
        raise FirmwareError(f"{name}: byte {_integer(rom, 'pcir')} holds {pci['signature']!r}, not {PCIR!r}")
    start = _integer(rom, "header")
    header = read(HEADER, blob, start, name, "the ATOM header")
    if bytes(blob[start + 4 : start + 8]) != ATOM_MAGIC:
        raise FirmwareError(f"{name}: byte {start + 4} holds {blob[start + 4 : start + 8]!r}, not {ATOM_MAGIC!r}")
    data = _tables(blob, _integer(header, "masterdatatable_offset"), DATA_LIST, name, "data")
    commands = _tables(blob, _integer(header, "masterhwfunction_offset"), COMMAND_LIST, name, "command")
    decoded, reasons = _decode(blob, data, name)
    part_number, title = _strings(blob, rom)
    return Vbios(
        part_number,
        title,
        _version(blob, _integer(rom, "string_start"), start),
        _text(rom["date"]),
        _integer(pci, "vendor"),
        _integer(pci, "device"),
        size,
        sum(blob[:size]) & 0xFF == 0,
        data,
        commands,
        decoded,
        reasons,
        blob,
    )


def _tables(blob: bytes, start: int, description: type[Struct], name: str, what: str) -> dict[str, Table]:
    """Read a master list: a header, then the offset of each table, 0 if there is none."""
    read(TABLE_HEADER, blob, start, name, f"the header of the {what} tables' list")
    stated = int.from_bytes(blob[start : start + 2], "little")
    if stated < TABLE_HEADER.SIZE:
        raise FirmwareError(
            f"{name}: byte {start} says {stated} bytes for the list of {what} tables, less than its header"
        )
    first = start + TABLE_HEADER.SIZE
    # A ROM older or newer than the struct lists fewer or more tables: only those that both have are read.
    listed = blob[first : start + stated].ljust(description.SIZE, b"\0")
    if start + stated > len(blob):
        raise FirmwareError(
            f"{name}: the list of {what} tables ends at byte {start + stated}, the image at {len(blob)}"
        )
    found = {}
    for table, at in read(description, listed, 0, name, f"the list of {what} tables").items():
        if not isinstance(at, int) or not at:
            continue
        head = read(TABLE_HEADER, blob, at, name, f"the header of {what} table {table}")
        size = _integer(head, "structuresize")
        if at + size > len(blob):
            raise FirmwareError(f"{name}: {what} table {table} ends at byte {at + size}, the image at {len(blob)}")
        found[table] = Table(table, at, size, (_integer(head, "format_revision"), _integer(head, "content_revision")))
    return found


def _decode(blob: bytes, data: Mapping[str, Table], name: str) -> tuple[dict[str, Fields], dict[str, str]]:
    decoded: dict[str, Fields] = {}
    reasons: dict[str, str] = {}
    for table, revisions in DECODED.items():
        found = data.get(table)
        if found is None:
            reasons[table] = "the ROM lists none"
        elif found.revision not in revisions:
            known = ", ".join(f"{major}.{minor}" for major, minor in revisions)
            reasons[table] = f"revision {found.revision[0]}.{found.revision[1]} is not known; known: {known}"
        else:
            own = blob[found.offset_bytes : found.offset_bytes + found.size_bytes]
            decoded[table] = read_within(revisions[found.revision], own, name, table)
    return decoded, reasons


def _strings(blob: bytes, rom: Fields) -> tuple[str, str]:
    """Return part number and title: the first string, and the one after the last string and a line end.

    Source: atom_get_vbios_name.
    """
    at = _integer(rom, "string_start")
    strings: list[str] = []
    if not _integer(rom, "strings") or not at:
        return "", ""
    for _ in range(_integer(rom, "strings")):
        end = blob.find(b"\0", at, at + 4096)
        if end < 0:
            return (strings or [""])[0], ""
        strings.append(_text(blob[at : min(end, at + MAX_STRING)]))
        at = end + 1
    return strings[0], _text(blob[at + 2 : at + 2 + 64])


def _version(blob: bytes, start: int, end: int) -> str:
    """Find the version string between the strings and the ATOM header. Source: atom_get_vbios_version."""
    if end <= start:
        start, end = 3, 1024
    at = blob.find(atom.BIOS_VERSION_PREFIX.encode(), start, end)
    return "" if at < 0 else _text(blob[at + VERSION_SKIP : at + VERSION_SKIP + 20])
