"""Reads the parts of an ELF file that a disassembler needs: code, symbols, kernel descriptors, metadata. Damage raises
`CompileError`.

Source: the System V ABI (gABI), "Object Files"; LLVM AMDGPUUsage, "ELF Code Object".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from ringup.compiler.isa.amd.encoding.target import LIMITS
from ringup.compiler.isa.amd.objects import metadata
from ringup.compiler.isa.common.source_lines import line_table
from ringup.errors import CompileError
from ringup.queues.amd.objects import elf, hsa_metadata
from ringup.queues.amd.objects.code_object import RELOCATIONS
from ringup.queues.amd.objects.kernel_descriptor import DESCRIPTOR_BYTES, DESCRIPTOR_SUFFIX
from ringup.queues.amd.objects.processors import E_FLAGS

MAX_SECTIONS, MAX_SYMBOLS = 10_000, 1_000_000


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
    """One symbol: its place within its section, and its visibility."""

    name: str
    section: str
    offset: int
    size_bytes: int
    kind: int
    binding: int


@dataclass(frozen=True)
class Object:
    """A code object: its processor and its contents. `descriptors`: the 64 bytes of each kernel, by its name."""

    processor: str
    sections: dict[str, ElfSection]
    symbols: tuple[ElfSymbol, ...]
    descriptors: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, Any] | None = None
    # Source lines by byte offset in the text.
    lines: dict[int, str] = field(default_factory=dict)


def read(data: bytes, what: str) -> Object:
    """Read a code object. `what` is its name in errors."""
    try:
        return _read(data, what)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise CompileError(f"{what}: damaged ELF file ({error}); build it again") from error


def _read(data: bytes, what: str) -> Object:
    file = elf.Bytes(data, what)
    if not elf.is_elf(data) or len(data) < elf.EHDR.size or not (head := elf.header(file)).is_64_bit_little:
        raise CompileError(f"{what}: no 64-bit little-endian ELF file")
    if head.machine != elf.EM_AMDGPU:
        raise CompileError(f"{what}: for machine {head.machine}, not AMD's shader cores ({elf.EM_AMDGPU})")
    mach = E_FLAGS(head.flags).mach
    processor = next((row.name for row in LIMITS.values() if row.elf_machine == mach), None)
    if processor is None:
        raise CompileError(f"{what}: for processor {mach:#x} of the ELF flags; there are {', '.join(LIMITS)}")
    if head.shnum > MAX_SECTIONS or head.shstrndx >= max(head.shnum, 1):
        raise file.bad(f"it has {head.shnum} sections (at most {MAX_SECTIONS}), their names in section {head.shstrndx}")
    rows = elf.sections(file, head)
    names = _contents(file, rows[head.shstrndx]) if rows else b""
    listed = [
        ElfSection(_string(names, row.name), row.type, row.flags, row.addr, _contents(file, row), row.link)
        for row in rows
    ]
    symbols = _symbols(listed, file)
    found = {section.name: section for section in listed if section.name}
    lines = _source_lines(listed, found)
    return Object(processor, found, symbols, _descriptors(found, symbols), _metadata(listed, file), lines)


def _source_lines(listed: list[ElfSection], found: dict[str, ElfSection]) -> dict[int, str]:
    """Return the start of each source line in the text, from DWARF's line table with its relocations applied."""
    if ".debug_line" not in found or ".text" not in found:
        return {}
    data = {name: section.data for name, section in found.items() if name.startswith(".debug_")}
    table = next((section for section in listed if section.kind == elf.SHT_SYMTAB), None)
    relocations = found.get(".rela.debug_line")
    if relocations is not None and table is not None:
        patched = bytearray(data[".debug_line"])
        rows = elf.RELA.iter_unpack(relocations.data[: len(relocations.data) // elf.RELA.size * elf.RELA.size])
        for place, kind, symbol, addend in rows:
            row = RELOCATIONS.get(kind)
            if row is None or place + row.size_bytes > len(patched):
                continue
            value = row.value(elf.SYM.unpack_from(table.data, symbol * elf.SYM.size)[4], addend, place)
            field_bits = (1 << 8 * row.size_bytes) - 1
            patched[place : place + row.size_bytes] = (value & field_bits).to_bytes(row.size_bytes, "little")
        data[".debug_line"] = bytes(patched)
    start = found[".text"].address
    return {address - start: text for address, text in line_table(data).items() if address >= start}


def _contents(file: elf.Bytes[bytes], row: elf.Shdr) -> bytes:
    return b"" if row.type in (elf.SHT_NULL, elf.SHT_NOBITS) else file.take(row.offset, row.size, "a section")


def _string(table: bytes, at: int) -> str:
    """Return a name; an empty one if it is outside its table."""
    return (elf.name_at(table, at) or b"").decode("utf-8", "replace")


def _symbols(sections: list[ElfSection], file: elf.Bytes[bytes]) -> tuple[ElfSymbol, ...]:
    found: dict[tuple[str, str, int], ElfSymbol] = {}
    for section in sections:
        if section.kind not in (elf.SHT_SYMTAB, elf.SHT_DYNSYM) or section.link >= len(sections):
            continue
        count = len(section.data) // elf.SYM.size
        if count > MAX_SYMBOLS:
            raise CompileError(f"{file.what}: {count} symbols")
        strings = sections[section.link].data
        rows = elf.SYM.iter_unpack(section.data[: count * elf.SYM.size])
        # The first row stands for no symbol.
        next(rows, None)
        for name_at, info, _, index, value, size in rows:
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
        if symbol.name.endswith(DESCRIPTOR_SUFFIX) and symbol.section in sections:
            piece = sections[symbol.section].data[symbol.offset : symbol.offset + DESCRIPTOR_BYTES]
            if len(piece) == DESCRIPTOR_BYTES:
                found[symbol.name.removesuffix(DESCRIPTOR_SUFFIX)] = piece
    return found


def _metadata(sections: list[ElfSection], file: elf.Bytes[bytes]) -> dict[str, Any] | None:
    for section in sections:
        for note in elf.notes(file, section.data) if section.kind == elf.SHT_NOTE else ():
            if (note.owner, note.kind) == (hsa_metadata.NOTE_OWNER, hsa_metadata.NOTE_KIND):
                return metadata.unpack(note.text, file.what)
    return None
