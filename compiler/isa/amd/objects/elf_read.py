"""What a disassembler needs of an ELF file: code, symbols, kernel descriptors, metadata. Bytes in, a frozen row out;
damage is a `CompileError`.

Source: the System V ABI (gABI), "Object Files"; LLVM AMDGPUUsage, "ELF Code Object".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from ringup.compiler.isa.amd.encoding.target import LIMITS
from ringup.compiler.isa.amd.objects import descriptor, metadata
from ringup.compiler.isa.amd.objects.elf import EM_AMDGPU, NOTE_METADATA
from ringup.compiler.isa.common.source_lines import line_table
from ringup.errors import CompileError

MAX_SECTIONS, MAX_SYMBOLS = 10_000, 1_000_000
_HEADER, _SECTION, _SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM, _NOTE, _NOBITS = 2, 11, 7, 8
MACHINE_MASK = 0xFF
_RELOCATED_BYTES = {1: 4, 2: 4, 3: 8, 6: 4}  # R_AMDGPU_ABS32_LO, _HI, ABS64, ABS32


@dataclass(frozen=True)
class ElfSection:
    """One section."""

    name: str
    kind: int
    flags: int
    address: int
    data: bytes
    link: int


@dataclass(frozen=True)
class ElfSymbol:
    """One symbol: where it lies within its section, and how visible it is."""

    name: str
    section: str
    offset: int
    size_bytes: int
    kind: int
    binding: int


@dataclass(frozen=True)
class Object:
    """A code object: its processor and what is in it. `descriptors` are the 64 bytes of each kernel, by its name."""

    processor: str
    sections: dict[str, ElfSection]
    symbols: tuple[ElfSymbol, ...]
    descriptors: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, Any] | None = None
    lines: dict[int, str] = field(default_factory=dict)  # source lines by byte offset in the text


def is_elf(data: bytes) -> bool:
    """Tell whether bytes begin as an ELF file does."""
    return data[:4] == b"\x7fELF"


def read(data: bytes, what: str) -> Object:
    """Read a code object; `what` names it in errors."""
    try:
        return _read(data, what)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise CompileError(f"{what}: damaged ELF file ({error}); build it again") from error


def _read(data: bytes, what: str) -> Object:
    if not is_elf(data) or len(data) < _HEADER.size or data[4:6] != b"\x02\x01":
        raise CompileError(f"{what}: no 64-bit little-endian ELF file")
    head = _HEADER.unpack_from(data)
    machine, table, flags, count, names_at = head[2], head[6], head[7], head[12], head[13]
    if machine != EM_AMDGPU:
        raise CompileError(f"{what}: for machine {machine}, not AMD's shader cores ({EM_AMDGPU})")
    processor = next((row.name for row in LIMITS.values() if row.elf_machine == flags & MACHINE_MASK), None)
    if processor is None:
        raise CompileError(
            f"{what}: for processor {flags & MACHINE_MASK:#x} of the ELF flags; there are {', '.join(LIMITS)}"
        )
    if count > MAX_SECTIONS or table + count * _SECTION.size > len(data) or names_at >= max(count, 1):
        raise CompileError(f"{what}: its section table leaves the file of {len(data)} bytes; build it again")
    rows = [_SECTION.unpack_from(data, table + i * _SECTION.size) for i in range(count)]
    names = _slice(data, rows[names_at], what) if count else b""
    listed = [
        ElfSection(_string(names, row[0]), row[1], row[2], row[3], _slice(data, row, what), row[6]) for row in rows
    ]
    symbols = _symbols(listed, what)
    found = {section.name: section for section in listed if section.name}
    lines = _source_lines(listed, found)
    return Object(processor, found, symbols, _descriptors(found, symbols), _metadata(listed), lines)


def _source_lines(listed: list[ElfSection], found: dict[str, ElfSection]) -> dict[int, str]:
    """Return where source lines begin in the text, by DWARF's line table with its relocations applied."""
    if ".debug_line" not in found or ".text" not in found:
        return {}
    data = {name: section.data for name, section in found.items() if name.startswith(".debug_")}
    table = next((section for section in listed if section.kind == _SYMTAB), None)
    relocations = found.get(".rela.debug_line")
    if relocations is not None and table is not None:
        patched = bytearray(data[".debug_line"])
        for place, info, addend in struct.iter_unpack("<QQq", relocations.data[: len(relocations.data) // 24 * 24]):
            value = _SYMBOL.unpack_from(table.data, (info >> 32) * _SYMBOL.size)[4] + addend
            size = _RELOCATED_BYTES.get(info & 0xFFFF_FFFF, 0)
            if place + size <= len(patched):
                patched[place : place + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        data[".debug_line"] = bytes(patched)
    start = found[".text"].address
    return {address - start: text for address, text in line_table(data).items() if address >= start}


def _slice(data: bytes, row: tuple[Any, ...], what: str) -> bytes:
    kind, offset, size = row[1], row[4], row[5]
    if kind in (0, _NOBITS):
        return b""
    if offset + size > len(data):
        raise CompileError(f"{what}: a section ends at byte {offset + size}, the file at {len(data)}; build it again")
    return data[offset : offset + size]


def _string(table: bytes, at: int) -> str:
    return (
        table[at : table.index(b"\0", at)].decode("utf-8", "replace")
        if 0 <= at < len(table) and b"\0" in table[at:]
        else ""
    )


def _symbols(sections: list[ElfSection], what: str) -> tuple[ElfSymbol, ...]:
    found: dict[tuple[str, str, int], ElfSymbol] = {}
    for section in sections:
        if section.kind not in (_SYMTAB, _DYNSYM) or section.link >= len(sections):
            continue
        count = len(section.data) // _SYMBOL.size
        if count > MAX_SYMBOLS:
            raise CompileError(f"{what}: {count} symbols")
        strings = sections[section.link].data
        for i in range(1, count):
            name_at, info, _, index, value, size = _SYMBOL.unpack_from(section.data, i * _SYMBOL.size)
            if 0 < index < len(sections):
                home = sections[index]
                symbol = ElfSymbol(
                    _string(strings, name_at), home.name, value - home.address, size, info & 15, info >> 4
                )
                if symbol.name and 0 <= symbol.offset <= len(home.data):
                    found.setdefault((symbol.name, symbol.section, symbol.offset), symbol)
    return tuple(found.values())


def _descriptors(sections: dict[str, ElfSection], symbols: tuple[ElfSymbol, ...]) -> dict[str, bytes]:
    found = {}
    for symbol in symbols:
        if symbol.name.endswith(".kd") and symbol.section in sections:
            piece = sections[symbol.section].data[symbol.offset : symbol.offset + descriptor.BYTES]
            if len(piece) == descriptor.BYTES:
                found[symbol.name.removesuffix(".kd")] = piece
    return found


def _metadata(sections: list[ElfSection]) -> dict[str, Any] | None:
    for section in sections:
        at = 0
        while section.kind == _NOTE and at + 12 <= len(section.data):
            name_bytes, size, kind = struct.unpack_from("<III", section.data, at)
            start = at + 12 + name_bytes + -name_bytes % 4
            if kind == NOTE_METADATA and section.data[at + 12 : at + 18] == b"AMDGPU":
                return metadata.unpack(section.data[start : start + size])
            at = start + size + -size % 4
    return None
