"""The ELF format, 64 bits and little-endian: rows of its tables, notes, and reads that check the file's bounds.

Used by `elf_image`, which lays out an image for a loader; by `fat_binary`, which finds one section; and by the
compiler, which writes and disassembles objects. Sources: System V ABI, "Object Files" and "Program Loading and Dynamic
Linking"; LLVM AMDGPUUsage, "ELF Code Object".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from ringup.errors import CompileError

EHDR = Struct("<16sHHIQQQIHHHHHH")
PHDR = Struct("<IIQQQQQQ")
SHDR = Struct("<IIQQQQIIQQ")
SYM = Struct("<IBBHQQ")
RELA = Struct("<QIIq")  # little-endian: type, then symbol
DYN = Struct("<qQ")
NHDR = Struct("<III")  # name bytes, descriptor bytes, type

MAGIC, CLASS64, LITTLE, VERSION = b"\x7fELF", 2, 1, 1
EM_AMDGPU, OS_ABI_HSA = 224, 64
ET_REL, ET_DYN = 1, 3
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 4, 6, 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4
SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE = 0, 1, 2, 3, 4, 5, 6, 7
SHT_NOBITS, SHT_DYNSYM = 8, 11
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHN_UNDEF, SHN_LORESERVE, SHN_AMDGPU_LDS, SHN_ABS, SHN_XINDEX = 0, 0xFF00, 0xFF00, 0xFFF1, 0xFFFF
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
STV_DEFAULT, STV_INTERNAL, STV_HIDDEN, STV_PROTECTED = 0, 1, 2, 3
DT_NULL, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 0, 2, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_REL, DT_JMPREL = 10, 11, 17, 23

PAGE_BYTES = 4096


class Ehdr(NamedTuple):
    """The header of a file."""

    ident: bytes
    type: int
    machine: int
    version: int
    entry: int
    phoff: int
    shoff: int
    flags: int
    ehsize: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int

    @property
    def is_64_bit_little(self) -> bool:
        """Return whether the file has 64-bit fields in little-endian order. This module reads no other files."""
        return self.ident[4:6] == bytes((CLASS64, LITTLE))


class Shdr(NamedTuple):
    """The row of a section."""

    name: int
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int


@dataclass(frozen=True)
class Note:
    """A note record: its owner, its type, its contents."""

    owner: str
    kind: int
    text: bytes


Data = TypeVar("Data", bytes, memoryview)


class Bytes(Generic[Data]):
    """Reads of a file or image with bounds checks. Pieces have the type of the whole. `what` begins every error."""

    def __init__(self, data: Data, what: str) -> None:
        self.data: Data = data
        self.what = what

    def bad(self, why: str) -> CompileError:
        """Make the error for a damaged file."""
        return CompileError(f"{self.what}: {why}; build it again")

    def take(self, offset: int, size_bytes: int, part: str) -> Data:
        """Return `size_bytes` bytes. `part` names them in the error."""
        if offset + size_bytes > len(self.data):
            raise self.bad(f"{part} would end at byte {offset + size_bytes:#x}, the data ends at {len(self.data):#x}")
        piece: Data = self.data[offset : offset + size_bytes]
        return piece

    def rows(self, layout: Struct, offset: int, count: int, part: str) -> Iterator[tuple[int, ...]]:
        """Yield the rows of a table."""
        return layout.iter_unpack(self.take(offset, layout.size * count, part))


class Names:
    """A string table. The total length of the names that are read is limited, because many rows may share one long
    name.
    """

    def __init__(self, table: bytes, of: Bytes[bytes]) -> None:
        self._table, self._of = table, of
        self._left = 4 * len(table) + PAGE_BYTES

    def at(self, offset: int) -> str:
        """Return the name that begins at `offset`."""
        name = name_at(self._table, offset)
        if name is None:
            raise self._of.bad(f"a name at {offset:#x} leaves its table of {len(self._table):#x} bytes")
        self._left -= len(name)
        if self._left < 0:
            raise self._of.bad("names overlap")
        return name.decode("utf-8", "replace")


def is_elf(data: bytes) -> bool:
    """Return whether bytes begin like an ELF file."""
    return data.startswith(MAGIC)


def header(file: Bytes[Data]) -> Ehdr:
    """Return the header of a file. The caller checks that it is an ELF file."""
    return Ehdr._make(EHDR.unpack(file.take(0, EHDR.size, "the ELF header")))


def sections(file: Bytes[Data], head: Ehdr) -> list[Shdr]:
    """Return the table of sections."""
    if head.shnum and head.shentsize != SHDR.size:
        raise file.bad(f"section headers of {head.shentsize} bytes")
    return [Shdr._make(row) for row in file.rows(SHDR, head.shoff, head.shnum, "the section headers")]


def name_at(table: bytes, offset: int) -> bytes | None:
    """Return the name that begins at `offset` of a string table; None if it leaves the table."""
    end = table.find(b"\0", offset)
    return None if end < 0 else table[offset:end]


def notes(file: Bytes[bytes], text: bytes) -> Iterator[Note]:
    """Yield the records of a note segment or section."""
    records, at = Bytes(text, file.what), 0
    while at < len(text):
        name_bytes, text_bytes, kind = NHDR.unpack(records.take(at, NHDR.size, "a note"))
        at += NHDR.size
        owner = records.take(at, name_bytes, "a note's owner").rstrip(b"\0").decode("ascii", "replace")
        at += name_bytes + -name_bytes % 4
        yield Note(owner, kind, records.take(at, text_bytes, "a note's text"))
        at += text_bytes + -text_bytes % 4


def note_record(note: Note) -> bytes:
    """Return the bytes of a note, as `notes` reads them."""
    owner = note.owner.encode("ascii") + b"\0"
    head = NHDR.pack(len(owner), len(note.text), note.kind)
    return head + owner + bytes(-len(owner) % 4) + note.text + bytes(-len(note.text) % 4)
