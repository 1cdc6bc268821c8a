"""An ELF file as cubins have it: 64 bits, little endian, with sections, symbols and relocations. Damage raises
`CompileError`.

Source: System V ABI (gABI), "Object Files".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringup.errors import CompileError

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION, SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
REL, RELA = struct.Struct("<QQ"), struct.Struct("<QQq")
SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 0, 2, 3, 4, 8, 9
SHF_ALLOC = 2
SHN_UNDEF, SHN_LORESERVE = 0, 0xFF00
STT_OBJECT, STT_FUNC, STT_SECTION = 1, 2, 3
IDENTITY = b"\x7fELF\x02\x01\x01"
# of a file that is read; compilers stay far below
MAX_SECTIONS, MAX_SYMBOLS, MAX_RELOCATIONS, MAX_FILE_BYTES = 65_000, 1_000_000, 4_000_000, 1 << 31
# ours: of the name of a section or a symbol
MAX_NAME_BYTES = 64 << 10


class Section(NamedTuple):
    """One section. `data` is empty for one without contents in the file, such as cleared memory; `size_bytes` counts
    then.
    """

    name: str
    kind: int
    flags: int
    data: bytes
    size_bytes: int
    link: int
    info: int
    align: int


class Symbol(NamedTuple):
    """One symbol: a place in a section, by the section's number; 0 for one that another file has."""

    name: str
    value: int
    size_bytes: int
    kind: int
    other: int
    section: int


class Relocation(NamedTuple):
    """What a loader does at a place: `section` and `symbol` are numbers. `addend` is None where the place holds it."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int | None


class Elf:
    """A file that was read. `what` names it in errors."""

    def __init__(self, data: bytes, what: str) -> None:
        self.what = what
        if len(data) < HEADER.size or data[: len(IDENTITY)] != IDENTITY:
            raise CompileError(f"{what}: {len(data)} bytes that begin with {data[:7].hex()} are no 64-bit ELF file")
        if len(data) > MAX_FILE_BYTES:
            raise CompileError(f"{what} has {len(data)} bytes; at most {MAX_FILE_BYTES} are read")
        head = HEADER.unpack_from(data)
        self.identity, self.machine, self.flags = head[0], head[2], head[7]
        self.sections = self._sections(data, head[6], head[11], head[12], head[13])
        tables = [number for number, section in enumerate(self.sections) if section.kind == SHT_SYMTAB]
        if len(tables) > 1:
            raise CompileError(f"{what} has {len(tables)} symbol tables, not one")
        self.symbols = self._symbols(self.sections[tables[0]]) if tables else ()
        self.relocations = self._relocations()

    def _sections(self, data: bytes, table: int, row_bytes: int, count: int, names: int) -> tuple[Section, ...]:
        what = self.what
        if count and row_bytes != SECTION.size:
            raise CompileError(f"{what}: a section's header has {row_bytes} bytes, not {SECTION.size}")
        if count > MAX_SECTIONS or table + count * SECTION.size > len(data):
            raise CompileError(f"{what}: {count} section headers at byte {table} do not fit a file of {len(data)}")
        rows = [SECTION.unpack_from(data, table + number * SECTION.size) for number in range(count)]
        bodies, total = [], 0
        for number, (_, kind, _, _, at, size, *_) in enumerate(rows):
            stored = kind not in (SHT_NULL, SHT_NOBITS)
            if stored and at + size > len(data):
                raise CompileError(f"{what}: section {number} ends at byte {at + size}, the file at {len(data)}")
            if size > MAX_FILE_BYTES and kind != SHT_NULL:
                raise CompileError(f"{what}: section {number} has {size} bytes; at most {MAX_FILE_BYTES} are read")
            total += size if stored else 0
            # sections share no bytes in a file that a tool made
            if total > len(data):
                raise CompileError(f"{what}: its sections have more bytes than the {len(data)} of the file")
            bodies.append(data[at : at + size] if stored else b"")
        if count and not (names < count and rows[names][1] == SHT_STRTAB):
            raise CompileError(f"{what}: section {names} of {count} does not hold the sections' names")
        strings = bodies[names] if count else b""
        return tuple(
            Section(self._string(strings, row[0]), row[1], row[2], body, row[5], row[6], row[7], row[8])
            for row, body in zip(rows, bodies, strict=True)
        )

    def _string(self, strings: bytes, at: int) -> str:
        end = strings.find(b"\0", at)
        if at >= len(strings) or end < 0 or end - at > MAX_NAME_BYTES:
            raise CompileError(
                f"{self.what}: a name begins at byte {at} of {len(strings)} and does not end within {MAX_NAME_BYTES}"
            )
        try:
            return strings[at:end].decode()
        except UnicodeDecodeError as error:
            raise CompileError(f"{self.what}: the name {strings[at:end]!r} is no text") from error

    def _strings_of(self, section: Section) -> bytes:
        if section.link >= len(self.sections) or self.sections[section.link].kind != SHT_STRTAB:
            raise CompileError(f"{self.what}: section {section.link} does not hold the names of {section.name}")
        return self.sections[section.link].data

    def _symbols(self, table: Section) -> tuple[Symbol, ...]:
        if len(table.data) % SYMBOL.size or len(table.data) > MAX_SYMBOLS * SYMBOL.size:
            raise CompileError(f"{self.what}: {len(table.data)} bytes of symbols; one has {SYMBOL.size}")
        strings, found = self._strings_of(table), []
        for name, info, other, section, value, size in SYMBOL.iter_unpack(table.data):
            if len(self.sections) <= section < SHN_LORESERVE:
                raise CompileError(f"{self.what}: a symbol lies in section {section} of {len(self.sections)}")
            text = self._string(strings, name) if name else ""
            found.append(Symbol(text, value, size, info & 15, other, section))
        return tuple(found)

    def _relocations(self) -> tuple[Relocation, ...]:
        found: list[Relocation] = []
        for section in self.sections:
            if section.kind not in (SHT_REL, SHT_RELA):
                continue
            row = REL if section.kind == SHT_REL else RELA
            if len(section.data) % row.size or section.info >= len(self.sections):
                raise CompileError(
                    f"{self.what}: {section.name} has {len(section.data)} bytes for section {section.info};"
                    f" a relocation has {row.size}"
                )
            if len(found) + len(section.data) // row.size > MAX_RELOCATIONS:
                raise CompileError(f"{self.what} has more than {MAX_RELOCATIONS} relocations")
            for offset, info, *addend in row.iter_unpack(section.data):
                if info >> 32 >= len(self.symbols):
                    raise CompileError(f"{self.what}: {section.name} names symbol {info >> 32} of {len(self.symbols)}")
                found.append(
                    Relocation(section.info, offset, info & 0xFFFF_FFFF, info >> 32, addend[0] if addend else None)
                )
        return tuple(found)
