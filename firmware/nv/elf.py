"""Sections of an ELF file that is used as a container: GSP-RM (64-bit) and the FSP's boot code (32-bit).

Only section headers are read; programs, symbols and addresses have no meaning here. Source: System V ABI, "Object
Files"; OGKM kernel_gsp.c, _kgspFwContainerGetSection; nouveau gh100.c, elf_validate_sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from construct import Bytes, Int16ul, Int32ul, Int64ul
from construct import Struct as Layout

from ringup.errors import FirmwareError
from ringup.firmware.layouts import Description, integer, read, size_bytes
from ringup.firmware.nv.containers import Span, check_apart, check_inside

MAGIC = b"\x7fELF"
CLASS_32, CLASS_64, LITTLE_ENDIAN = 1, 2, 1
EM_NONE, EM_RISCV = 0, 243
SHT_NULL, SHT_STRTAB, SHT_NOBITS = 0, 3, 8
MAX_SECTIONS = 64  # published files have fewer than 20
MAX_NAME = 64


class Shape(NamedTuple):
    """The two headers of one ELF class."""

    header: Description
    section: Description


def _shape(word: Description) -> Shape:
    header = Layout(
        "e_ident" / Bytes(16),
        "e_type" / Int16ul,
        "e_machine" / Int16ul,
        "e_version" / Int32ul,
        "e_entry" / word,
        "e_phoff" / word,
        "e_shoff" / word,
        "e_flags" / Int32ul,
        "e_ehsize" / Int16ul,
        "e_phentsize" / Int16ul,
        "e_phnum" / Int16ul,
        "e_shentsize" / Int16ul,
        "e_shnum" / Int16ul,
        "e_shstrndx" / Int16ul,
    )
    section = Layout(
        "sh_name" / Int32ul,
        "sh_type" / Int32ul,
        "sh_flags" / word,
        "sh_addr" / word,
        "sh_offset" / word,
        "sh_size" / word,
        "sh_link" / Int32ul,
        "sh_info" / Int32ul,
        "sh_addralign" / word,
        "sh_entsize" / word,
    )
    return Shape(header, section)


SHAPES = {CLASS_32: _shape(Int32ul), CLASS_64: _shape(Int64ul)}


@dataclass(frozen=True, slots=True)
class Section:
    """A section's place in the file; `info` is its `sh_info`."""

    name: str
    offset_bytes: int
    size_bytes: int
    info: int

    def data(self, blob: bytes) -> bytes:
        """Return the section's bytes."""
        return blob[self.offset_bytes : self.offset_bytes + self.size_bytes]


def sections(blob: bytes, name: str, elf_class: int) -> Mapping[str, Section]:
    """Return the sections of a little-endian ELF file of one class by their names.

    Raises `FirmwareError` for a file that is truncated, of another class or for another machine, and for sections
    outside the file, over one another or of the same name.
    """
    shape = SHAPES[elf_class]
    head = read(shape.header, blob, 0, name, "the ELF header")
    ident = head["e_ident"]
    assert isinstance(ident, bytes)  # the layout says so
    if ident[:4] != MAGIC:
        raise FirmwareError(f"{name}: the file begins with {ident[:4]!r}, an ELF file with {MAGIC!r}")
    if ident[4] != elf_class or ident[5] != LITTLE_ENDIAN:
        raise FirmwareError(
            f"{name}: bytes 4 and 5 say class {ident[4]}, byte order {ident[5]};"
            f" such a file has class {elf_class}, byte order {LITTLE_ENDIAN}"
        )
    machine = integer(head, "e_machine")
    if machine not in (EM_NONE, EM_RISCV):
        raise FirmwareError(f"{name}: byte 18 says machine {machine}; the GSP runs RISC-V code ({EM_RISCV})")
    count, entry = integer(head, "e_shnum"), size_bytes(shape.section)
    if count > MAX_SECTIONS:
        raise FirmwareError(f"{name}: the ELF header counts {count} sections; such a file has at most {MAX_SECTIONS}")
    if integer(head, "e_shentsize") != entry:
        raise FirmwareError(
            f"{name}: the ELF header says {integer(head, 'e_shentsize')} bytes for a section header, not {entry}"
        )
    table = Span("the table of sections", integer(head, "e_shoff"), count * entry)
    check_inside((table,), len(blob), name, "the file")
    rows = [
        read(shape.section, blob, table.offset_bytes + index * entry, name, f"the header of section {index}")
        for index in range(count)
    ]
    names = integer(head, "e_shstrndx")
    if names >= count or integer(rows[names], "sh_type") != SHT_STRTAB:
        raise FirmwareError(f"{name}: section {names} of {count} should hold the sections' names")
    start, size = integer(rows[names], "sh_offset"), integer(rows[names], "sh_size")
    check_inside((Span("the table of names", start, size),), len(blob), name, "the file")
    titles = blob[start : start + size]
    found: dict[str, Section] = {}
    for index, row in enumerate(rows):
        kind = integer(row, "sh_type")
        if kind in (SHT_NULL, SHT_NOBITS):
            continue
        title = _title(titles, integer(row, "sh_name"), name, index)
        if title in found:
            raise FirmwareError(f"{name}: section {index} is a second {title}; the file does not say which one counts")
        found[title] = Section(title, integer(row, "sh_offset"), integer(row, "sh_size"), integer(row, "sh_info"))
    placed = [Span(f"section {one.name}", one.offset_bytes, one.size_bytes) for one in found.values()]
    check_inside(placed, len(blob), name, "the file")
    check_apart((Span("the ELF header", 0, size_bytes(shape.header)), table, *placed), name)
    return found


def _title(names: bytes, at: int, name: str, index: int) -> str:
    """Return the name at `at` of the table of names."""
    end = names.find(b"\0", at, at + MAX_NAME) if at < len(names) else -1
    if end < 0:
        raise FirmwareError(
            f"{name}: the name of section {index}, at byte {at} of {len(names)} of the names, has no end"
        )
    title = names[at:end].decode("latin-1")
    return title if title.isprintable() else repr(names[at:end])


def require(found: Mapping[str, Section], section: str, name: str) -> Section:
    """Return a section that must exist and have bytes. Raises `FirmwareError`, which lists the file's sections."""
    if section not in found or not found[section].size_bytes:
        have = ", ".join(title for title, one in found.items() if title and one.size_bytes)
        raise FirmwareError(f"{name}: the file has no section {section}; it has {have or 'none'}")
    return found[section]
