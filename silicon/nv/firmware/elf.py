"""ELF files that hold nothing but named sections, as GSP firmware does."""

from __future__ import annotations

import struct
import zlib

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
# 64 bits, little end first
IDENT = b"\x7fELF\x02\x01\x01"
# ET_REL; EM_RISCV, the processor that such an image is for; SHT_PROGBITS, SHT_STRTAB
RELOCATABLE, RISCV = 1, 243
CONTENT, NAMES = 1, 3
ALIGNMENT = 16


def build(sections: dict[str, bytes]) -> bytes:
    """Return an ELF file with these sections and a table of their names."""
    names, places = b"\0", []
    for name in (*sections, ".shstrtab"):
        places.append(len(names))
        names += name.encode() + b"\0"
    body, rows = bytearray(), [bytes(SECTION.size)]
    for place, content in zip(places, (*sections.values(), names), strict=True):
        kind = NAMES if content is names else CONTENT
        rows.append(SECTION.pack(place, kind, 0, 0, HEADER.size + len(body), len(content), 0, 0, 1, 0))
        body += content + bytes(-len(content) % ALIGNMENT)
    table, count = HEADER.size + len(body), len(rows)
    header = HEADER.pack(
        IDENT, RELOCATABLE, RISCV, 1, 0, 0, table, 0, HEADER.size, 0, 0, SECTION.size, count, count - 1
    )
    return header + bytes(body) + b"".join(rows)


HEADER_32 = struct.Struct("<16sHHIIIIIHHHHHH")
SECTION_32 = struct.Struct("<10I")
IDENT_32 = b"\x7fELF\x01\x01\x01"
# flags of the parts of an FMC, and of the names. Source: nouveau gsp/gh100.c, FMC_SHF_FLAGS and elf_validate_sections
PART_FLAGS, NAMES_FLAGS = 0xF000_0000 | 0x0FF0_0000 | 0x100 | 0x2, 0x20


def build_parts(sections: dict[str, bytes]) -> bytes:
    """Return a 32-bit ELF file as an FMC comes in, the only form that nouveau takes: no type, the table of sections
    right behind the header, the names first, a CRC of each part in its `sh_info`.
    """
    names, places = b"\0", []
    for name in (".shstrtab", *sections):
        places.append(len(names))
        names += name.encode() + b"\0"
    at = HEADER_32.size + SECTION_32.size * (len(sections) + 2)
    rows, body = [bytes(SECTION_32.size)], bytearray()
    for place, content in zip(places, (names, *sections.values()), strict=True):
        is_names = content is names
        kind, flags = (NAMES, NAMES_FLAGS) if is_names else (CONTENT, PART_FLAGS)
        checked = 0 if is_names else zlib.crc32(content)
        rows.append(SECTION_32.pack(place, kind, flags, 0, at + len(body), len(content), 0, checked, 1, 0))
        body += content + bytes(-len(content) % ALIGNMENT)
    header = HEADER_32.pack(
        IDENT_32, 0, 0, 1, 0, 0, HEADER_32.size, 0, HEADER_32.size, 0, 0, SECTION_32.size, len(rows), 1
    )
    return header + b"".join(rows) + bytes(body)
