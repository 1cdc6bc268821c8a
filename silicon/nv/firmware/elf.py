"""ELF files that hold nothing but named sections, as GSP firmware does."""

from __future__ import annotations

import struct

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
