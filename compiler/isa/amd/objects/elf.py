"""Code objects: programs as the AMDHSA loader takes them, an ELF shared object of version 5.

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

PAGE, TEXT_ALIGN = 0x1000, 256
EM_AMDGPU, OSABI_HSA, ABI_VERSION = 224, 64, 3  # ABI version 3: code object v5
XNACK_ANY, SRAMECC_ANY = 0x100, 0x400  # of gfx9's flags: the code runs whatever the setting
NOTE_NAME, NOTE_METADATA = b"AMDGPU\0", 32
_PHDR, _DYNAMIC, _LOAD, _NOTE, _STACK, _RELRO = 6, 2, 1, 4, 0x6474E551, 0x6474E552
_EXECUTE, _WRITE, _READ = 1, 2, 4
_FUNC, _OBJECT = 2, 1
_BINDINGS = {"local": 0, "global": 1, "weak": 2}
_VISIBILITIES = {"default": 0, "internal": 1, "hidden": 2, "protected": 3}
_HEADER, _SECTION, _SEGMENT, _SYMBOL = (
    struct.Struct("<16sHHIQQQIHHHHHH"),
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IIQQQQQQ"),
    struct.Struct("<IBBHQQ"),
)


class Piece(NamedTuple):
    """One section: contents and where they lie; addresses and offsets are equal up to the loaded end."""

    name: str
    kind: int
    flags: int
    data: bytes
    align: int
    entry_size: int = 0
    link: str = ""
    info: int = 0


def write(program: Program) -> bytes:
    """Return a program as a linked code object; every kernel gets its descriptor and metadata.

    Raises `CompileError` for a kernel whose label or descriptor is not right.
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
    note_data = metadata.pack(document)
    note = struct.pack("<III", len(NOTE_NAME), len(note_data), NOTE_METADATA) + NOTE_NAME.ljust(8, b"\0") + note_data
    note += bytes(-len(note) % 4)
    return _Layout(program, note).image()


def _check_kernels(program: Program) -> None:
    for kernel in program.kernels:
        symbol = program.symbols.get(kernel.name)
        if symbol is None or symbol.value is None or symbol.value.section != TEXT:
            raise CompileError(f"kernel {kernel.name} has no label {kernel.name} in {TEXT}")
        if symbol.value.number % TEXT_ALIGN:
            raise CompileError(
                f"kernel {kernel.name} begins at {symbol.value.number:#x}; entries lie at multiples of {TEXT_ALIGN}: .p2align 8"
            )


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._known: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        """Return where a string lies, adding it if it is new."""
        if text not in self._known:
            self._known[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._known[text]


class _Layout:
    """Places sections one after another and fills in what depends on places: symbols, descriptors, the dynamic
    section.
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
            names.append(f"{kernel.name}.kd")
        return list(dict.fromkeys(names))

    def image(self) -> bytes:
        """Return the whole file."""
        segments = 8
        strings = _Strings()
        name_offsets = [strings.add(name) for name in self._names]
        at = _HEADER.size + segments * _SEGMENT.size
        places: dict[str, tuple[int, int]] = {}  # section: file offset and address
        pieces: list[Piece] = [
            Piece(".note", 7, 2, self._note, 4),
            Piece(".dynsym", 11, 2, bytes(_SYMBOL.size * (len(self._names) + 1)), 8, _SYMBOL.size, ".dynstr", 1),
            Piece(".hash", 5, 2, self._hash(), 4, 4, ".dynsym"),
            Piece(".dynstr", 3, 2, bytes(strings.data), 1),
            Piece(RODATA, 1, 2, bytes(self._rodata), max(descriptor.ALIGN, self._program.aligns.get(RODATA, 1))),
        ]
        for piece in pieces:
            at += -at % piece.align
            places[piece.name] = at, at
            at += len(piece.data)
        text = Piece(TEXT, 1, 2 | 4, self._program.text, max(TEXT_ALIGN, self._program.aligns.get(TEXT, 1)))
        at += -at % text.align
        address = at + PAGE
        places[TEXT] = at, address
        at, address = at + len(text.data), address + len(text.data)
        at += -at % 8
        address += -address % 8
        address += PAGE
        places[".dynamic"] = at, address
        dynamic = self._dynamic(places, len(strings.data))
        pieces += [text, Piece(".dynamic", 6, 2 | 1, dynamic, 8, 16, ".dynstr")]
        symbols = self._symbols(places, name_offsets)
        pieces[1] = pieces[1]._replace(data=symbols)
        pieces[4] = pieces[4]._replace(data=self._with_descriptors(places))
        at += len(dynamic)
        return self._file(pieces, places, at)

    def _value(self, name: str, places: dict[str, tuple[int, int]]) -> tuple[int, str, int, int]:
        """Return address, section, type and size of a public symbol."""
        for i, kernel in enumerate(self._program.kernels):
            if name == f"{kernel.name}.kd":
                return places[RODATA][1] + self._descriptors + i * descriptor.BYTES, RODATA, _OBJECT, descriptor.BYTES
        symbol = self._program.symbols[name]
        assert symbol.value is not None
        kernel_entry = any(kernel.name == name for kernel in self._program.kernels)
        kind = _FUNC if kernel_entry or symbol.kind == "func" else _OBJECT if symbol.kind == "object" else 0
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
        made = bytes(_SYMBOL.size)
        for name, offset in zip(self._names, name_offsets, strict=True):
            value, section, kind, size = self._value(name, places)
            symbol = self._program.symbols.get(name)
            binding = _BINDINGS["weak" if symbol is not None and symbol.binding == "weak" else "global"]
            visibility = _VISIBILITIES[
                symbol.visibility if symbol is not None and symbol.visibility != "default" else "protected"
            ]
            made += _SYMBOL.pack(offset, binding << 4 | kind, visibility, order.index(section) + 1, value, size)
        return made

    def _all_symbols(self, pieces: list[Piece], places: dict[str, tuple[int, int]]) -> tuple[bytes, bytes, int]:
        """Return the symbol table with local labels in front of the public symbols, its strings, and the number of the
        first public one.
        """
        order = [piece.name for piece in pieces]
        strings = _Strings()
        made, count = bytes(_SYMBOL.size), 1
        for symbol in self._program.symbols.values():
            hidden = symbol.name.startswith(".L") or "\0" in symbol.name or symbol.name in self._names
            if symbol.value is None or symbol.value.section not in order or hidden:
                continue
            address = places[symbol.value.section][1] + symbol.value.number
            made += _SYMBOL.pack(strings.add(symbol.name), 0, 0, order.index(symbol.value.section) + 1, address, 0)
            count += 1
        offsets = [strings.add(name) for name in self._names]
        return made + self._symbols(places, offsets)[_SYMBOL.size :], bytes(strings.data), count

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
        """Return the System V hash table of the dynamic symbols: one bucket a symbol."""
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
            (4, places[".hash"][1]), (5, places[".dynstr"][1]), (6, places[".dynsym"][1]), (10, strings_bytes), (11, _SYMBOL.size), (0, 0),
        )  # fmt: skip
        return b"".join(struct.pack("<qQ", tag, value) for tag, value in rows)

    def _file(self, pieces: list[Piece], places: dict[str, tuple[int, int]], at: int) -> bytes:
        names = _Strings()
        symbols, strings, locals_ = self._all_symbols(pieces, places)
        everything = [
            *pieces,
            Piece(".symtab", 2, 0, symbols, 8, _SYMBOL.size, ".strtab", locals_),
            Piece(".strtab", 3, 0, strings, 1),
            Piece(".shstrtab", 3, 0, b"", 1),
        ]
        name_offsets = [names.add(piece.name) for piece in everything]
        everything[-1] = everything[-1]._replace(data=bytes(names.data))
        for piece in everything[len(pieces) :]:
            at += -at % piece.align
            places[piece.name] = at, 0
            at += len(piece.data)
        at += -at % 8
        indices = {piece.name: i for i, piece in enumerate(everything, 1)}
        headers = bytes(_SECTION.size)
        for piece, name in zip(everything, name_offsets, strict=True):
            offset, address = places[piece.name]
            headers += _SECTION.pack(
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
        flags = self._limits.elf_machine | (XNACK_ANY | SRAMECC_ANY if self._limits.generation == 9 else 0)
        ident = b"\x7fELF" + bytes((2, 1, 1, OSABI_HSA, ABI_VERSION)) + bytes(7)
        segments = self._segments(places, {piece.name: len(piece.data) for piece in pieces})
        head = _HEADER.pack(
            ident, 3, EM_AMDGPU, 1, 0, _HEADER.size, at, flags, _HEADER.size, _SEGMENT.size, len(segments) // _SEGMENT.size, _SECTION.size,
            len(everything) + 1, len(everything),
        )  # fmt: skip
        image = bytearray(head + segments)
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
        table = 8 * _SEGMENT.size
        rows = (
            (_PHDR, _READ, _HEADER.size, _HEADER.size, table, table, 8),
            (_LOAD, _READ, 0, 0, read_end, read_end, PAGE),
            (_LOAD, _READ | _EXECUTE, text_at, text_va, text, text, PAGE),
            (_LOAD, _READ | _WRITE, dynamic_at, dynamic_va, dynamic, dynamic, PAGE),
            (_DYNAMIC, _READ | _WRITE, dynamic_at, dynamic_va, dynamic, dynamic, 8),
            (_RELRO, _READ, dynamic_at, dynamic_va, dynamic, dynamic, 1),
            (_STACK, _READ | _WRITE, 0, 0, 0, 0, 0),
            (_NOTE, _READ, note_at, note_va, note, note, 4),
        )
        return b"".join(
            _SEGMENT.pack(kind, flags, offset, va, va, in_file, in_memory, align)
            for kind, flags, offset, va, in_file, in_memory, align in rows
        )
