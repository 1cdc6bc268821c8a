"""ELF files of GPU programs, laid out into one image: pieces, symbols, relocations and notes. All input is checked.

Linked objects (ET_DYN) are laid out by their program headers and read through their dynamic section, as a loader does,
because section headers may be stripped. Unlinked objects (ET_REL) are laid out by section, with a table of addresses
(GOT) if their code needs one. Sources: System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; LLVM
AMDGPUUsage, "ELF Code Object".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringup.errors import NotSupported
from ringup.queues.amd.objects.elf import (
    DT_HASH,
    DT_JMPREL,
    DT_NULL,
    DT_PLTRELSZ,
    DT_REL,
    DT_RELA,
    DT_RELAENT,
    DT_RELASZ,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMENT,
    DT_SYMTAB,
    DYN,
    ET_DYN,
    ET_REL,
    MAGIC,
    PAGE_BYTES,
    PF_W,
    PF_X,
    PHDR,
    PT_DYNAMIC,
    PT_LOAD,
    PT_NOTE,
    RELA,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHN_ABS,
    SHN_AMDGPU_LDS,
    SHN_LORESERVE,
    SHN_UNDEF,
    SHN_XINDEX,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_RELA,
    SHT_SYMTAB,
    STB_WEAK,
    SYM,
    Bytes,
    Names,
    Note,
    Shdr,
    header,
    notes,
    sections,
)  # fmt: skip

# GOTPCREL, GOTPCREL32_LO, _HI become REL32, REL32_LO, _HI of the slot in the GOT
R_GOTPCREL = {7: 4, 8: 10, 9: 11}
R_ABS64 = 3

# a file of a few bytes may ask for any amount of zeros
MAX_IMAGE_BYTES = 256 << 20
MAX_ALIGN = 2 << 20


@dataclass(frozen=True)
class Piece:
    """A part of the image with one kind of access."""

    offset: int
    size_bytes: int
    executable: bool
    writable: bool


@dataclass(frozen=True)
class Symbol:
    """A name and its offset in the image. If it is `absolute`, the offset is a plain value. None: another object must
    define the symbol.
    """

    name: str
    offset: int | None
    size_bytes: int = 0
    absolute: bool = False
    weak: bool = False


@dataclass(frozen=True)
class Relocation:
    """A place in the image that depends on addresses. `kind`: the machine's number of the relocation type. Without a
    symbol, the relocation is relative to the image's base.
    """

    place: int
    kind: int
    symbol: Symbol | None
    addend: int


@dataclass
class Elf:
    """The contents of a file, laid out from offset 0 on."""

    linked: bool
    machine: int
    os_abi: int
    abi_version: int
    flags: int
    image: bytes = b""
    align: int = PAGE_BYTES
    pieces: tuple[Piece, ...] = ()
    symbols: dict[str, Symbol] = field(default_factory=dict)
    relocations: tuple[Relocation, ...] = ()
    notes: tuple[Note, ...] = ()


def read(data: bytes, what: str) -> Elf:
    """Read and lay out a file. Raises `CompileError` for a damaged file and `NotSupported` for another kind of ELF
    file. Both begin with `what`.
    """
    file = Bytes(bytes(data), what)
    head = header(file)
    if not head.ident.startswith(MAGIC):
        raise file.bad(f"it begins with {head.ident[:4].hex()}, not as an ELF file (7f454c46)")
    if not head.is_64_bit_little:
        raise NotSupported(
            f"{what}: ELF class {head.ident[4]}, byte order {head.ident[5]}; only 64 bits little-endian is read"
        )
    elf = Elf(head.type == ET_DYN, head.machine, os_abi=head.ident[7], abi_version=head.ident[8], flags=head.flags)
    if head.type == ET_DYN:
        if head.phentsize != PHDR.size:
            raise file.bad(f"program headers of {head.phentsize} bytes")
        _Linked(file, elf, list(file.rows(PHDR, head.phoff, head.phnum, "the program headers"))).read()
    elif head.type == ET_REL:
        _Unlinked(file, elf, sections(file, head)).read()
    else:
        raise NotSupported(f"{what}: ELF type {head.type}; a shared object (3) or an unlinked one (1) is needed")
    return elf


def _alignment(file: Bytes[bytes], align: int) -> int:
    if align & (align - 1) or align > MAX_ALIGN:
        raise file.bad(f"an alignment of {align:#x}; powers of two to {MAX_ALIGN:#x} are known")
    return max(align, 1)


class _Linked:
    """A shared object."""

    def __init__(self, file: Bytes[bytes], elf: Elf, programs: list[tuple[int, ...]]) -> None:
        self.file, self.elf, self.programs = file, elf, programs
        self.base = 0
        self.image = Bytes(b"", file.what)

    def read(self) -> None:
        self._lay_out()
        tables = [(at, size) for kind, _, _, at, _, size, _, _ in self.programs if kind == PT_DYNAMIC]
        if len(tables) > 1:
            raise self.file.bad(f"{len(tables)} dynamic sections")
        for at, size in tables:
            self._read_dynamic(at, size)
        segments = [program for program in self.programs if program[0] == PT_NOTE]
        if sum(segment[5] for segment in segments) > len(self.file.data):
            raise self.file.bad("its notes overlap")
        self.elf.notes = tuple(
            note
            for _, _, offset, _, _, size, _, _ in segments
            for note in notes(self.file, self.file.take(offset, size, "the notes"))
        )

    def _lay_out(self) -> None:
        loads = [program for program in self.programs if program[0] == PT_LOAD]
        if not loads:
            raise self.file.bad("nothing to load: no PT_LOAD segment")
        align = max(PAGE_BYTES, *(_alignment(self.file, load[7]) for load in loads))
        self.base = loads[0][3] & -align
        parts, pieces, end = [], [], 0
        for _, flags, offset, address, _, file_bytes, memory_bytes, _ in loads:
            start = address - self.base
            if start < end or file_bytes > memory_bytes:
                raise self.file.bad(f"its segment at {address:#x} overlaps the one before it, or its own end")
            if start + memory_bytes > MAX_IMAGE_BYTES:
                raise self.file.bad(f"it needs {start + memory_bytes:#x} bytes of memory, above {MAX_IMAGE_BYTES:#x}")
            parts += [
                bytes(start - end),
                self.file.take(offset, file_bytes, "a segment"),
                bytes(memory_bytes - file_bytes),
            ]
            pieces.append(Piece(start, memory_bytes, bool(flags & PF_X), bool(flags & PF_W)))
            end = start + memory_bytes
        self.elf.image, self.elf.align, self.elf.pieces = b"".join(parts), align, tuple(pieces)
        self.image = Bytes(self.elf.image, self.file.what)

    def _at(self, address: int) -> int:
        if address < self.base:
            raise self.file.bad(f"a table at {address:#x}, below the image")
        return address - self.base

    def _read_dynamic(self, address: int, size_bytes: int) -> None:
        tags: dict[int, int] = {}
        for tag, value in self.image.rows(DYN, self._at(address), size_bytes // DYN.size, "the dynamic section"):
            if tag == DT_NULL:
                break
            tags.setdefault(tag, value)
        if tags.get(DT_SYMENT, SYM.size) != SYM.size or tags.get(DT_RELAENT, RELA.size) != RELA.size:
            raise self.file.bad("table rows of unknown size")
        if DT_REL in tags:
            raise NotSupported(f"{self.file.what}: relocations without addends; AMDHSA objects have them with")
        symbols = self._symbols(tags) if DT_SYMTAB in tags else []
        relocations: list[Relocation] = []
        for table, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            if table in tags:
                rows = self.image.rows(RELA, self._at(tags[table]), tags.get(size, 0) // RELA.size, "the relocations")
                relocations += (self._relocation(row, symbols) for row in rows)
        self.elf.relocations = tuple(relocations)

    def _symbols(self, tags: dict[int, int]) -> list[Symbol]:
        if DT_HASH not in tags:
            raise NotSupported(f"{self.file.what}: no DT_HASH, which counts the symbols; link with --hash-style=both")
        # a hash table begins with its counts of buckets and of symbols
        count = int.from_bytes(self.image.take(self._at(tags[DT_HASH]) + 4, 4, "the hash table"), "little")
        strings = self.image.take(self._at(tags.get(DT_STRTAB, 0)), tags.get(DT_STRSZ, 0), "the names")
        names = Names(strings, self.file)
        found = []
        for name, info, _, section, value, size in self.image.rows(
            SYM, self._at(tags[DT_SYMTAB]), count, "the symbols"
        ):
            if section == SHN_AMDGPU_LDS:
                raise NotSupported(f"{self.file.what}: {names.at(name)} lies in LDS without a place; link it in")
            absolute = section == SHN_ABS
            offset = None if section == SHN_UNDEF else value if absolute else self._at(value)
            symbol = Symbol(names.at(name) if name else "", offset, size, absolute, weak=info >> 4 == STB_WEAK)
            found.append(symbol)
            if symbol.name and offset is not None:
                self.elf.symbols.setdefault(symbol.name, symbol)
        return found

    def _relocation(self, row: tuple[int, ...], symbols: list[Symbol]) -> Relocation:
        place, kind, index, addend = row
        # B + A: the addend is an address in the file
        if index == 0:
            return Relocation(self._at(place), kind, None, addend - self.base)
        if index >= len(symbols):
            raise self.file.bad(f"a relocation names symbol {index} of {len(symbols)}")
        return Relocation(self._at(place), kind, symbols[index], addend)


class _Unlinked:
    """An unlinked object. Read-only sections come first, then code, then writable sections: so a page has one kind of
    access.
    """

    def __init__(self, file: Bytes[bytes], elf: Elf, sections: list[Shdr]) -> None:
        self.file, self.elf, self.sections = file, elf, sections
        # section number to offset in the image
        self.places: dict[int, int] = {}
        # symbol to the number of the slot that holds its address
        self.got: dict[Symbol, int] = {}
        self.got_at = 0

    def read(self) -> None:
        parts, end = self._lay_out()
        relocations: list[Relocation] = []
        symbols: list[Symbol] | None = None
        # the rows that may still be read: relocation tables may not overlap
        left = len(self.file.data) // RELA.size
        self.got_at = (end + PAGE_BYTES - 1) & -PAGE_BYTES
        for section in self.sections:
            if section.type != SHT_RELA or section.info not in self.places:
                continue
            count = section.size // RELA.size
            left -= count
            if left < 0:
                raise self.file.bad("its relocation tables overlap")
            symbols = self._symbols() if symbols is None else symbols
            for row in self.file.rows(RELA, section.offset, count, "the relocations"):
                relocations.append(self._relocation(row, section.info, symbols))
        if symbols is None:
            self._symbols()
        if self.got:
            parts.append(bytes(self.got_at - end + 8 * len(self.got)))
            # read-only: the relocations fill in the addresses before a kernel runs
            self.elf.pieces += (Piece(self.got_at, 8 * len(self.got), executable=False, writable=False),)
            slots = self.got.items()
            relocations += (Relocation(self.got_at + 8 * slot, R_ABS64, symbol, 0) for symbol, slot in slots)
        self.elf.image, self.elf.relocations = b"".join(parts), tuple(relocations)
        noted = [section for section in self.sections if section.type == SHT_NOTE]
        if sum(section.size for section in noted) > len(self.file.data):
            raise self.file.bad("its notes overlap")
        self.elf.notes = tuple(
            note
            for section in noted
            for note in notes(self.file, self.file.take(section.offset, section.size, "the notes"))
        )

    def _lay_out(self) -> tuple[list[bytes], int]:
        parts: list[bytes] = []
        pieces: list[Piece] = []
        end, align = 0, PAGE_BYTES
        for wanted in (0, SHF_EXECINSTR, SHF_WRITE):
            first = True
            for number, (_, kind, flags, _, offset, size, _, _, section_align, _) in enumerate(self.sections):
                if not flags & SHF_ALLOC or self._access(flags) != wanted or kind == SHT_NOTE or not size:
                    continue
                step = max(PAGE_BYTES if first else 1, _alignment(self.file, section_align))
                start = (end + step - 1) & -step
                if start + size > MAX_IMAGE_BYTES:
                    raise self.file.bad(f"it needs {start + size:#x} bytes of memory, above {MAX_IMAGE_BYTES:#x}")
                text = bytes(size) if kind == SHT_NOBITS else self.file.take(offset, size, "a section")
                parts += [bytes(start - end), text]
                pieces.append(Piece(start, size, wanted == SHF_EXECINSTR, wanted == SHF_WRITE))
                self.places[number] = start
                first, end, align = False, start + size, max(align, section_align)
        if not parts:
            raise self.file.bad("nothing to load: no section with SHF_ALLOC")
        self.elf.align, self.elf.pieces = align, tuple(pieces)
        return parts, end

    @staticmethod
    def _access(flags: int) -> int:
        return SHF_EXECINSTR if flags & SHF_EXECINSTR else flags & SHF_WRITE

    def _symbols(self) -> list[Symbol]:
        tables = [section for section in self.sections if section.type == SHT_SYMTAB]
        if len(tables) != 1:
            raise self.file.bad(f"{len(tables)} symbol tables")
        table = tables[0]
        if table.link >= len(self.sections):
            raise self.file.bad(f"its names lie in section {table.link} of {len(self.sections)}")
        strings = self.sections[table.link]
        names = Names(self.file.take(strings.offset, strings.size, "the names"), self.file)
        rows = self.file.rows(SYM, table.offset, table.size // SYM.size, "the symbols")
        found = []
        for name, info, _, section, value, length in rows:
            if section == SHN_XINDEX:
                raise NotSupported(f"{self.file.what}: more than {SHN_LORESERVE} sections; link it first")
            absolute = section == SHN_ABS
            offset_in_image = value if absolute else self._place(section, value)
            text = names.at(name) if name else ""
            symbol = Symbol(text, offset_in_image, length, absolute, weak=info >> 4 == STB_WEAK)
            found.append(symbol)
            if text and offset_in_image is not None:
                self.elf.symbols.setdefault(text, symbol)
        return found

    def _place(self, section: int, value: int) -> int | None:
        # undefined symbols, symbols in LDS and symbols of debug sections have no place
        start = self.places.get(section)
        return None if start is None else start + value

    def _relocation(self, row: tuple[int, ...], target: int, symbols: list[Symbol]) -> Relocation:
        place, kind, index, addend = row
        if index >= len(symbols):
            raise self.file.bad(f"a relocation names symbol {index} of {len(symbols)}")
        symbol: Symbol | None = symbols[index] if index else None
        if kind in R_GOTPCREL and symbol is not None:
            slot = self.got.setdefault(symbol, len(self.got))
            kind, symbol = R_GOTPCREL[kind], Symbol(f"GOT slot of {symbol.name}", self.got_at + 8 * slot)
        return Relocation(self.places[target] + place, kind, symbol, addend)
