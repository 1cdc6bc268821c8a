"""Reads a cubin, the ELF file of code for NVIDIA's cards, of both generations: CUDA 12's and CUDA 13's. Damage raises
`CompileError`.

Source: the System V ABI (gABI), "Object Files"; CuAssembler, CuAsm/CubinFile.py and CuNVInfo.py (MIT): sections,
attributes, the places of the numbers of registers and barriers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ringup.errors import CompileError

EM_CUDA = 190
HEADER, SECTION, SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 3, 4, 8, 9
CUDA_INFO, CUDA_CALLGRAPH, CUDA_RELOCINFO = 0x7000_0000, 0x7000_0001, 0x7000_000B
MAX_SECTIONS, MAX_SYMBOLS, MAX_BYTES = 65_000, 1_000_000, 1 << 31
STT_OBJECT, STT_FUNC, STB_GLOBAL = 1, 2, 1
# st_other of a symbol that a launch may begin at.
ENTRY = 0x10
# Where a kernel's parameters begin in constant bank 0. Source: listings of code that ptxas makes.
PARAMETERS_AT = {75: 0x160, 80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210, 100: 0x380, 120: 0x380}


# Global memory of a module: with contents, and cleared. The bank of constants that holds addresses of it.
INITIAL, CLEARED, ADDRESSES = ".nv.global.init", ".nv.global", ".nv.constant4"
ADDRESS_BYTES = 8
# A relocation: the symbol's address, 64 bits. Source: CuAssembler, CubinFile.py, R_CUDA_64.
ABSOLUTE_64 = 2


class Generation(IntEnum):
    """The ABI version of a cubin (ELF header, byte 8): 7 of CUDA 12 and before, 8 of CUDA 13."""

    CUDA_12 = 7
    CUDA_13 = 8


# The OS/ABI byte of each generation.
OSABI = {Generation.CUDA_12: 0x33, Generation.CUDA_13: 0x41}


class Attribute(IntEnum):
    """What an entry of `.nv.info` is about. Source: CuAssembler, CuNVInfo.EIATTR; NUM_BARRIERS: cuobjdump's text of a
    file that ptxas made.
    """

    CTAIDZ_USED = 0x04
    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    EXTERNS = 0x0F
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    EXIT_INSTR_OFFSETS = 0x1C
    CRS_STACK_SIZE = 0x1E
    MAX_STACK_SIZE = 0x23
    COOP_GROUP_INSTR_OFFSETS = 0x28
    REGCOUNT = 0x2F
    INT_WARP_WIDE_INSTR_OFFSETS = 0x31
    INDIRECT_BRANCH_TARGETS = 0x34
    SW2861232_WAR = 0x35
    SW_WAR = 0x36
    CUDA_API_VERSION = 0x37
    NUM_BARRIERS = 0x4C


NO_VALUE, BYTE, HALF, BYTES = 1, 2, 3, 4


class Info(NamedTuple):
    """One entry of `.nv.info`: the attribute's number, and its value (0 for none, bytes for several words)."""

    attribute: int
    form: int
    value: int | bytes


class Section(NamedTuple):
    """One section. `info`: sh_info."""

    name: str
    kind: int
    flags: int
    data: bytes
    size_bytes: int
    link: int
    info: int
    entry_bytes: int
    align: int


class Symbol(NamedTuple):
    """One symbol; `section` is its section's name, empty for none."""

    name: str
    value: int
    size_bytes: int
    kind: int
    binding: int
    other: int
    section: str


class Relocation(NamedTuple):
    """One relocation of a section: its place, the vendor's type, the symbol's name and the addend."""

    section: str
    offset: int
    kind: int
    symbol: str
    addend: int


class Data(NamedTuple):
    """Global memory of a module: `content`, and zeros up to `size_bytes`. Its address is a multiple of `align`."""

    name: str
    size_bytes: int
    align: int
    content: bytes = b""


class Address(NamedTuple):
    """An entry of constant bank 4, which the loader fills in: `addend` bytes behind the beginning of data `name`."""

    name: str
    addend: int = 0


class Parameter(NamedTuple):
    """One parameter of a kernel: its place among the parameters."""

    ordinal: int
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Kernel:
    """One function that can be launched, or that others call (`entry` is false).

    `barriers`: how many of 16 it uses. `parameters_at`: where they begin in constant bank 0. `frame_bytes`: local
    memory of a thread. `exits`: the offsets of its EXIT instructions.
    """

    name: str
    code: bytes
    registers: int
    barriers: int = 0
    shared_bytes: int = 0
    frame_bytes: int = 0
    parameters: tuple[Parameter, ...] = ()
    parameter_bytes: int = 0
    parameters_at: int = 0
    constants: bytes = b""
    exits: tuple[int, ...] = ()
    entry: bool = True
    infos: tuple[Info, ...] = ()


@dataclass(frozen=True)
class Cubin:
    """The contents of a cubin. `chip` is sm_86 and its like."""

    chip: str
    generation: Generation
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]
    kernels: dict[str, Kernel] = field(default_factory=dict)
    data: tuple[Data, ...] = ()
    # by their place in constant bank 4, in bytes
    addresses: dict[int, Address] = field(default_factory=dict)


def is_cubin(data: bytes) -> bool:
    """Return whether a file begins like a cubin."""
    return data[:4] == b"\x7fELF" and len(data) >= 20 and int.from_bytes(data[18:20], "little") == EM_CUDA


def read(data: bytes, what: str = "the cubin") -> Cubin:
    """Read a cubin. `what` names it in errors."""
    try:
        return _read(data, what)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CompileError(f"{what} is a damaged cubin: {error}") from error


def _read(data: bytes, what: str) -> Cubin:
    if not is_cubin(data):
        raise CompileError(f"{what} is no cubin: it is not an ELF file for NVIDIA's cards")
    if len(data) > MAX_BYTES:
        raise CompileError(f"{what} has {len(data)} bytes; ringup reads cubins of at most {MAX_BYTES}")
    head = HEADER.unpack_from(data)
    identity, flags, table = head[0], head[7], head[6]
    if identity[4:6] != b"\x02\x01":
        raise CompileError(f"{what} is no 64-bit little-endian cubin")
    if identity[8] not in tuple(Generation):
        raise CompileError(
            f"{what} has ABI version {identity[8]}; ringup reads {', '.join(map(str, map(int, Generation)))}"
        )
    generation = Generation(identity[8])
    number = flags & 0xFF if generation is Generation.CUDA_12 else flags >> 8 & 0xFF
    sections = _sections(data, table, head[12], head[13], what)
    symbols = _symbols(sections, what)
    relocations = _relocations(sections, symbols, what)
    cubin = Cubin(
        f"sm_{number}", generation, sections, symbols, relocations, data=tuple(_data(sections, symbols, what))
    )
    known = {each.name for each in cubin.data}
    moved = (each for each in relocations if each.section == ADDRESSES and each.kind == ABSOLUTE_64)
    cubin.addresses.update((each.offset, Address(each.symbol, each.addend)) for each in moved if each.symbol in known)
    cubin.kernels.update((kernel.name, kernel) for kernel in _kernels(cubin))
    return cubin


def _sections(data: bytes, table: int, count: int, names: int, what: str) -> tuple[Section, ...]:
    if count > MAX_SECTIONS or table + count * SECTION.size > len(data):
        raise CompileError(f"{what} has {count} sections at byte {table}, and {len(data)} bytes")
    rows = [SECTION.unpack_from(data, table + index * SECTION.size) for index in range(count)]
    for index, (_, kind, _, _, offset, size, *_) in enumerate(rows):
        if kind not in (0, SHT_NOBITS) and offset + size > len(data):
            raise CompileError(f"{what}: section {index} ends at byte {offset + size}, the file at {len(data)}")
        if kind == SHT_NOBITS and size > MAX_BYTES:
            raise CompileError(f"{what}: section {index} has {size} bytes")
    if names >= count or rows[names][1] != SHT_STRTAB:
        raise CompileError(f"{what}: section {names} does not hold the names of the sections")
    strings = data[rows[names][4] : rows[names][4] + rows[names][5]]
    found = []
    for name, kind, flags, _, offset, size, link, info, align, entry in rows:
        body = b"" if kind in (0, SHT_NOBITS) else data[offset : offset + size]
        found.append(Section(_string(strings, name, what), kind, flags, body, size, link, info, entry, align))
    return tuple(found)


def _string(strings: bytes, at: int, what: str) -> str:
    end = strings.find(b"\0", at)
    if at and (at >= len(strings) or end < 0):
        raise CompileError(f"{what}: a name begins at byte {at} of {len(strings)}, or does not end")
    return strings[at:end].decode() if end >= 0 else ""


def _symbols(sections: tuple[Section, ...], what: str) -> tuple[Symbol, ...]:
    tables = [section for section in sections if section.kind == SHT_SYMTAB]
    if len(tables) > 1:
        raise CompileError(f"{what} has {len(tables)} symbol tables")
    found = []
    for table in tables:
        if len(table.data) % SYMBOL.size or len(table.data) > MAX_SYMBOLS * SYMBOL.size:
            raise CompileError(f"{what}: {len(table.data)} bytes of symbols; one has {SYMBOL.size}")
        if table.link >= len(sections) or sections[table.link].kind != SHT_STRTAB:
            raise CompileError(f"{what}: section {table.link} does not hold the names of the symbols")
        strings = sections[table.link].data
        for name, info, other, index, value, size in SYMBOL.iter_unpack(table.data):
            # Reserved numbers are no sections.
            if index >= len(sections) and index < 0xFF00:
                raise CompileError(f"{what}: a symbol is in section {index} of {len(sections)}")
            where = sections[index].name if 0 < index < len(sections) else ""
            found.append(Symbol(_string(strings, name, what), value, size, info & 15, info >> 4, other, where))
    return tuple(found)


def _relocations(sections: tuple[Section, ...], symbols: tuple[Symbol, ...], what: str) -> tuple[Relocation, ...]:
    found = []
    for section in sections:
        if section.kind not in (SHT_REL, SHT_RELA):
            continue
        shape = struct.Struct("<QQ" if section.kind == SHT_REL else "<QQq")
        if len(section.data) % shape.size or section.info >= len(sections):
            raise CompileError(f"{what}: {section.name} has {len(section.data)} bytes for section {section.info}")
        target = sections[section.info]
        for offset, info, *addend in shape.iter_unpack(section.data):
            if info >> 32 >= len(symbols) or offset >= max(target.size_bytes, 1):
                raise CompileError(f"{what}: {section.name} has a relocation at {offset:#x} with symbol {info >> 32}")
            # Without a column for it, the addend is what the place holds.
            stored = int.from_bytes(target.data[offset : offset + ADDRESS_BYTES], "little")
            kind, symbol = info & 0xFFFF_FFFF, symbols[info >> 32].name
            found.append(Relocation(target.name, offset, kind, symbol, addend[0] if addend else stored))
    return tuple(found)


def _data(sections: tuple[Section, ...], symbols: tuple[Symbol, ...], what: str) -> Iterator[Data]:
    by_name = {section.name: section for section in sections}
    for symbol in symbols:
        if symbol.kind != STT_OBJECT or symbol.section not in (INITIAL, CLEARED):
            continue
        section = by_name[symbol.section]
        end = symbol.value + symbol.size_bytes
        if end > section.size_bytes:
            raise CompileError(f"{what}: {symbol.name} ends at byte {end} of {section.size_bytes} of {section.name}")
        content = section.data[symbol.value : end].rstrip(b"\0")
        yield Data(symbol.name, symbol.size_bytes, section.align, content)


def infos(data: bytes) -> tuple[Info, ...]:
    """Read the entries of a `.nv.info` section. Raises ValueError if they are damaged."""
    found, at = [], 0
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError(f"an attribute ends at byte {at + 4} of {len(data)}")
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form not in (NO_VALUE, BYTE, HALF, BYTES):
            raise ValueError(f"attribute {attribute:#x} has form {form}")
        if form == BYTES:
            if at + value > len(data):
                raise ValueError(f"attribute {attribute:#x} ends at byte {at + value} of {len(data)}")
            found.append(Info(attribute, form, data[at : at + value]))
            at += value
        else:
            found.append(Info(attribute, form, 0 if form == NO_VALUE else value))
    return tuple(found)


def _kernels(cubin: Cubin) -> list[Kernel]:
    by_name = {section.name: section for section in cubin.sections}
    numbers = {index: symbol.name for index, symbol in enumerate(cubin.symbols)}
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for entry in infos(by_name[".nv.info"].data) if ".nv.info" in by_name else ():
        if entry.attribute in (Attribute.REGCOUNT, Attribute.FRAME_SIZE) and isinstance(entry.value, bytes):
            symbol, count = struct.unpack("<II", entry.value)
            table = registers if entry.attribute == Attribute.REGCOUNT else frames
            table[numbers.get(symbol, "")] = count
    found = []
    for symbol in cubin.symbols:
        if symbol.kind != STT_FUNC or not symbol.section.startswith(".text."):
            continue
        text = by_name[symbol.section]
        if symbol.value + symbol.size_bytes > len(text.data):
            raise ValueError(f"{symbol.name} ends at byte {symbol.value + symbol.size_bytes} of {len(text.data)}")
        found.append(_kernel(symbol, text, by_name, registers.get(symbol.name, 0), frames.get(symbol.name, 0)))
    return found


def _kernel(symbol: Symbol, text: Section, by_name: dict[str, Section], registers: int, frame_bytes: int) -> Kernel:
    name = symbol.name
    own = infos(by_name[f".nv.info.{name}"].data) if f".nv.info.{name}" in by_name else ()
    words = {entry.attribute: entry.value for entry in own}
    parameters, at, size = [], 0, 0
    for entry in own:
        if entry.attribute == Attribute.KPARAM_INFO and isinstance(entry.value, bytes):
            _, place, shape = struct.unpack("<III", entry.value)
            parameters.append(Parameter(place & 0xFFFF, place >> 16, shape >> 18))
        elif entry.attribute == Attribute.PARAM_CBANK and isinstance(entry.value, bytes):
            place = struct.unpack("<II", entry.value)[1]
            at, size = place & 0xFFFF, place >> 16
    exits = words.get(Attribute.EXIT_INSTR_OFFSETS, b"")
    barriers = words.get(Attribute.NUM_BARRIERS, text.flags >> 20 & 0x7F)
    shared, bank = by_name.get(f".nv.shared.{name}"), by_name.get(f".nv.constant0.{name}")
    return Kernel(
        name,
        text.data[symbol.value : symbol.value + symbol.size_bytes],
        registers or text.info >> 24,
        barriers if isinstance(barriers, int) else 0,
        shared.size_bytes if shared else 0,
        frame_bytes,
        tuple(sorted(parameters)),
        size,
        at,
        bank.data if bank else b"",
        tuple(each for (each,) in struct.iter_unpack("<I", exits)) if isinstance(exits, bytes) else (),
        bool(symbol.other & ENTRY),
        own,
    )
