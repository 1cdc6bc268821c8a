"""Writes code objects: programs in the form of the AMDHSA loader, an ELF shared object of version 5.

Source: LLVM AMDGPUUsage, "ELF Code Object", "Note Records"; the System V ABI (gABI), "Object Files" and "Dynamic
Linking".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringup.compiler.isa.amd.encoding.target import LIMITS
from ringup.compiler.isa.amd.objects import descriptor, metadata
from ringup.compiler.isa.common.program import RODATA, TEXT, Program
from ringup.errors import CompileError
from ringup.queues.amd.objects import elf, hsa_metadata
from ringup.queues.amd.objects.kernel_descriptor import DESCRIPTOR_SUFFIX, ENTRY_ALIGN
from ringup.queues.amd.objects.processors import E_FLAGS, SETTINGS

# Code object v5.
ABI_VERSION = 3
_BINDINGS = {"local": elf.STB_LOCAL, "global": elf.STB_GLOBAL, "weak": elf.STB_WEAK}
_VISIBILITIES = {
    "default": elf.STV_DEFAULT,
    "internal": elf.STV_INTERNAL,
    "hidden": elf.STV_HIDDEN,
    "protected": elf.STV_PROTECTED,
}


class Piece(NamedTuple):
    """One section: its contents and attributes. Addresses equal file offsets up to the end of the
    read-only sections.
    """

    name: str
    kind: int
    flags: int
    data: bytes
    align: int
    entry_size: int = 0
    link: str = ""
    info: int = 0


def write(program: Program) -> bytes:
    """Return a program as a linked code object. Every kernel gets its descriptor and metadata.

    Raises `CompileError` for a kernel with a wrong label or descriptor.
    """
    limits = LIMITS[program.processor]
    extra = [name for name, data in program.sections.items() if name not in (TEXT, RODATA) and data]
    if extra:
        raise CompileError(f"sections {', '.join(extra)}: a code object holds {TEXT} and {RODATA}")
    _check_kernels(program)
    if not any(kernel.directives.get("wavefront_size32", 1) == 0 for kernel in program.kernels):
        document = metadata.complete(program.metadata, program.kernels, limits, program.wave_size)
    else:
        document = metadata.complete(program.metadata, program.kernels, limits, 64)
    note = elf.Note(hsa_metadata.NOTE_OWNER, hsa_metadata.NOTE_KIND, metadata.pack(document))
    return _Layout(program, elf.note_record(note)).image()


def _check_kernels(program: Program) -> None:
    for kernel in program.kernels:
        symbol = program.symbols.get(kernel.name)
        if symbol is None or symbol.value is None or symbol.value.section != TEXT:
            raise CompileError(f"kernel {kernel.name} has no label {kernel.name} in {TEXT}")
        if symbol.value.number % ENTRY_ALIGN:
            raise CompileError(
                f"kernel {kernel.name} starts at {symbol.value.number:#x}; entries must be at multiples of {ENTRY_ALIGN}: use .p2align 8"
            )


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._known: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        """Return the place of a string; add it if it is new."""
        if text not in self._known:
            self._known[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._known[text]


class _Layout:
    """Places the sections one after another, and fills in what depends on their places: symbols, descriptors, the
    dynamic section.
    """

    def __init__(self, program: Program, note: bytes) -> None:
        self._program, self._limits = program, LIMITS[program.processor]
        self._rodata = bytearray(program.sections.get(RODATA, b""))
        self._rodata += bytes(-len(self._rodata) % descriptor.ALIGN)
        self._descriptors = len(self._rodata)
        self._rodata += bytes(descriptor.BYTES * len(program.kernels))
        self._note = note
        self._names = self._dynamic_names()

    def _dynamic_names(self) -> list[str]:
        public = [
            s.name
            for s in self._program.symbols.values()
            if s.value is not None and s.value.section and s.binding != "local"
        ]
        names = [name for name in public if self._program.symbols[name].visibility in ("default", "protected")]
        for kernel in self._program.kernels:
            if kernel.name not in names and self._program.symbols[kernel.name].visibility != "hidden":
                names.append(kernel.name)
            names.append(kernel.name + DESCRIPTOR_SUFFIX)
        return list(dict.fromkeys(names))

    def image(self) -> bytes:
        """Return the whole file."""
        segments = 8
        strings = _Strings()
        name_offsets = [strings.add(name) for name in self._names]
        at = elf.EHDR.size + segments * elf.PHDR.size
        # section: file offset and address
        places: dict[str, tuple[int, int]] = {}
        pieces: list[Piece] = [
            Piece(".note", elf.SHT_NOTE, elf.SHF_ALLOC, self._note, 4),
            Piece(
                ".dynsym",
                elf.SHT_DYNSYM,
                elf.SHF_ALLOC,
                bytes(elf.SYM.size * (len(self._names) + 1)),
                8,
                elf.SYM.size,
                ".dynstr",
                1,
            ),
            Piece(".hash", elf.SHT_HASH, elf.SHF_ALLOC, self._hash(), 4, 4, ".dynsym"),
            Piece(".dynstr", elf.SHT_STRTAB, elf.SHF_ALLOC, bytes(strings.data), 1),
            Piece(
                RODATA,
                elf.SHT_PROGBITS,
                elf.SHF_ALLOC,
                bytes(self._rodata),
                max(descriptor.ALIGN, self._program.aligns.get(RODATA, 1)),
            ),
        ]
        for piece in pieces:
            at += -at % piece.align
            places[piece.name] = at, at
            at += len(piece.data)
        text = Piece(
            TEXT,
            elf.SHT_PROGBITS,
            elf.SHF_ALLOC | elf.SHF_EXECINSTR,
            self._program.text,
            max(ENTRY_ALIGN, self._program.aligns.get(TEXT, 1)),
        )
        at += -at % text.align
        address = at + elf.PAGE_BYTES
        places[TEXT] = at, address
        at, address = at + len(text.data), address + len(text.data)
        at += -at % 8
        address += -address % 8
        address += elf.PAGE_BYTES
        places[".dynamic"] = at, address
        dynamic = self._dynamic(places, len(strings.data))
        pieces += [
            text,
            Piece(".dynamic", elf.SHT_DYNAMIC, elf.SHF_ALLOC | elf.SHF_WRITE, dynamic, 8, elf.DYN.size, ".dynstr"),
        ]
        symbols = self._symbols(places, name_offsets)
        pieces[1] = pieces[1]._replace(data=symbols)
        pieces[4] = pieces[4]._replace(data=self._with_descriptors(places))
        at += len(dynamic)
        return self._file(pieces, places, at)

    def _value(self, name: str, places: dict[str, tuple[int, int]]) -> tuple[int, str, int, int]:
        """Return address, section, type and size of a public symbol."""
        for i, kernel in enumerate(self._program.kernels):
            if name == kernel.name + DESCRIPTOR_SUFFIX:
                return (
                    places[RODATA][1] + self._descriptors + i * descriptor.BYTES,
                    RODATA,
                    elf.STT_OBJECT,
                    descriptor.BYTES,
                )
        symbol = self._program.symbols[name]
        assert symbol.value is not None
        kernel_entry = any(kernel.name == name for kernel in self._program.kernels)
        kind = (
            elf.STT_FUNC
            if kernel_entry or symbol.kind == "func"
            else elf.STT_OBJECT
            if symbol.kind == "object"
            else elf.STT_NOTYPE
        )
        return (
            places[symbol.value.section][1] + symbol.value.number,
            symbol.value.section,
            kind,
            symbol.size_bytes or self._span(name),
        )

    def _span(self, name: str) -> int:
        """Return the bytes from a kernel's entry to the next kernel or the end of the text."""
        starts = sorted(
            symbol.value.number
            for kernel in self._program.kernels
            if (symbol := self._program.symbols[kernel.name]).value is not None
        )
        value = self._program.symbols[name].value
        if value is None or value.number not in starts or value.section != TEXT:
            return 0
        later = [start for start in starts if start > value.number]
        return (later[0] if later else len(self._program.text)) - value.number

    def _symbols(self, places: dict[str, tuple[int, int]], name_offsets: list[int]) -> bytes:
        order = [".note", ".dynsym", ".hash", ".dynstr", RODATA, TEXT, ".dynamic"]
        made = bytes(elf.SYM.size)
        for name, offset in zip(self._names, name_offsets, strict=True):
            value, section, kind, size = self._value(name, places)
            symbol = self._program.symbols.get(name)
            binding = _BINDINGS["weak" if symbol is not None and symbol.binding == "weak" else "global"]
            visibility = _VISIBILITIES[
                symbol.visibility if symbol is not None and symbol.visibility != "default" else "protected"
            ]
            made += elf.SYM.pack(offset, binding << 4 | kind, visibility, order.index(section) + 1, value, size)
        return made

    def _all_symbols(self, pieces: list[Piece], places: dict[str, tuple[int, int]]) -> tuple[bytes, bytes, int]:
        """Return the symbol table with local labels before the public symbols, its strings, and the number of the first
        public one.
        """
        order = [piece.name for piece in pieces]
        strings = _Strings()
        made, count = bytes(elf.SYM.size), 1
        for symbol in self._program.symbols.values():
            hidden = symbol.name.startswith(".L") or "\0" in symbol.name or symbol.name in self._names
            if symbol.value is None or symbol.value.section not in order or hidden:
                continue
            address = places[symbol.value.section][1] + symbol.value.number
            made += elf.SYM.pack(strings.add(symbol.name), 0, 0, order.index(symbol.value.section) + 1, address, 0)
            count += 1
        offsets = [strings.add(name) for name in self._names]
        return made + self._symbols(places, offsets)[elf.SYM.size :], bytes(strings.data), count

    def _with_descriptors(self, places: dict[str, tuple[int, int]]) -> bytes:
        data = bytearray(self._rodata)
        for i, kernel in enumerate(self._program.kernels):
            at = self._descriptors + i * descriptor.BYTES
            value = self._program.symbols[kernel.name].value
            assert value is not None
            distance = places[TEXT][1] + value.number - (places[RODATA][1] + at)
            data[at : at + descriptor.BYTES] = descriptor.build(
                kernel.directives, self._limits, distance, self._program.wave_size
            )
        return bytes(data)

    def _hash(self) -> bytes:
        """Return the System V hash table of the dynamic symbols, with one bucket for each symbol."""
        count = len(self._names) + 1
        buckets, chains = [0] * max(1, len(self._names)), [0] * count
        for i, name in enumerate(self._names, 1):
            code = 0
            for byte in name.encode():
                code = (code << 4) + byte
                high = code & 0xF000_0000
                code = (code ^ high >> 24) & ~high & 0xFFFF_FFFF
            slot = code % len(buckets)
            chains[i], buckets[slot] = buckets[slot], i
        return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)

    @staticmethod
    def _dynamic(places: dict[str, tuple[int, int]], strings_bytes: int) -> bytes:
        rows = (
            (elf.DT_HASH, places[".hash"][1]),
            (elf.DT_STRTAB, places[".dynstr"][1]),
            (elf.DT_SYMTAB, places[".dynsym"][1]),
            (elf.DT_STRSZ, strings_bytes),
            (elf.DT_SYMENT, elf.SYM.size),
            (elf.DT_NULL, 0),
        )
        return b"".join(elf.DYN.pack(tag, value) for tag, value in rows)

    def _file(self, pieces: list[Piece], places: dict[str, tuple[int, int]], at: int) -> bytes:
        names = _Strings()
        symbols, strings, locals_ = self._all_symbols(pieces, places)
        everything = [
            *pieces,
            Piece(".symtab", elf.SHT_SYMTAB, 0, symbols, 8, elf.SYM.size, ".strtab", locals_),
            Piece(".strtab", elf.SHT_STRTAB, 0, strings, 1),
            Piece(".shstrtab", elf.SHT_STRTAB, 0, b"", 1),
        ]
        name_offsets = [names.add(piece.name) for piece in everything]
        everything[-1] = everything[-1]._replace(data=bytes(names.data))
        for piece in everything[len(pieces) :]:
            at += -at % piece.align
            places[piece.name] = at, 0
            at += len(piece.data)
        at += -at % 8
        indices = {piece.name: i for i, piece in enumerate(everything, 1)}
        headers = bytes(elf.SHDR.size)
        for piece, name in zip(everything, name_offsets, strict=True):
            offset, address = places[piece.name]
            headers += elf.SHDR.pack(
                name,
                piece.kind,
                piece.flags,
                address,
                offset,
                len(piece.data),
                indices.get(piece.link, 0),
                piece.info,
                piece.align,
                piece.entry_size,
            )
        setting = SETTINGS.index("any" if self._limits.generation == 9 else "unsupported")
        flags = E_FLAGS(mach=self._limits.elf_machine, xnack=setting, sramecc=setting)
        ident = elf.MAGIC + bytes((elf.CLASS64, elf.LITTLE, elf.VERSION, elf.OS_ABI_HSA, ABI_VERSION)) + bytes(7)
        segments = self._segments(places, {piece.name: len(piece.data) for piece in pieces})
        head = elf.Ehdr(
            ident=ident,
            type=elf.ET_DYN,
            machine=elf.EM_AMDGPU,
            version=elf.VERSION,
            entry=0,
            phoff=elf.EHDR.size,
            shoff=at,
            flags=int(flags),
            ehsize=elf.EHDR.size,
            phentsize=elf.PHDR.size,
            phnum=len(segments) // elf.PHDR.size,
            shentsize=elf.SHDR.size,
            shnum=len(everything) + 1,
            shstrndx=len(everything),
        )
        image = bytearray(elf.EHDR.pack(*head) + segments)
        for piece in everything:
            offset = places[piece.name][0]
            image += bytes(offset - len(image)) if len(image) < offset else b""
            image[offset : offset + len(piece.data)] = piece.data
        image += bytes(at - len(image))
        return bytes(image + headers)

    @staticmethod
    def _segments(places: dict[str, tuple[int, int]], sizes: dict[str, int]) -> bytes:
        read_end = places[RODATA][0] + sizes[RODATA]
        text_at, text_va = places[TEXT]
        dynamic_at, dynamic_va = places[".dynamic"]
        note_at, note_va = places[".note"]
        text, dynamic, note = sizes[TEXT], sizes[".dynamic"], sizes[".note"]
        table = 8 * elf.PHDR.size
        rows = (
            (elf.PT_PHDR, elf.PF_R, elf.EHDR.size, elf.EHDR.size, table, table, 8),
            (elf.PT_LOAD, elf.PF_R, 0, 0, read_end, read_end, elf.PAGE_BYTES),
            (elf.PT_LOAD, elf.PF_R | elf.PF_X, text_at, text_va, text, text, elf.PAGE_BYTES),
            (elf.PT_LOAD, elf.PF_R | elf.PF_W, dynamic_at, dynamic_va, dynamic, dynamic, elf.PAGE_BYTES),
            (elf.PT_DYNAMIC, elf.PF_R | elf.PF_W, dynamic_at, dynamic_va, dynamic, dynamic, 8),
            (elf.PT_GNU_RELRO, elf.PF_R, dynamic_at, dynamic_va, dynamic, dynamic, 1),
            (elf.PT_GNU_STACK, elf.PF_R | elf.PF_W, 0, 0, 0, 0, 0),
            (elf.PT_NOTE, elf.PF_R, note_at, note_va, note, note, 4),
        )
        return b"".join(
            elf.PHDR.pack(kind, flags, offset, va, va, in_file, in_memory, align)
            for kind, flags, offset, va, in_file, in_memory, align in rows
        )
