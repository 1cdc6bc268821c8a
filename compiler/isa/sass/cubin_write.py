"""Writes a cubin of kernels that need no linking: one code section, constant bank and attributes for each; and global
memory, whose addresses the loader puts into constant bank 4.

Source: as `cubin`. What ptxas writes besides (unwind tables, tool notes, the call graph) is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from ringup.compiler.isa.sass import cubin
from ringup.compiler.isa.sass.cubin import BYTE, BYTES, HALF, NO_VALUE, Address, Attribute, Data, Generation, Kernel

SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK = 1, 2, 4, 0x40
ET_EXEC, PT_PHDR, PT_LOAD = 2, 6, 1
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
RELOCATION = struct.Struct("<QQ")
READ_EXECUTE, READ_WRITE = 5, 6
CODE_ALIGN = 128
# Bits of e_flags besides the chip. Source: files that ptxas of CUDA 12.2 and 13.5 made.
FLAGS = {Generation.CUDA_12: 0x500, Generation.CUDA_13: 0x0600_0004}
# e_version, and the value of EIATTR_CUDA_API_VERSION: CUDA 12.2, 13.5.
VERSIONS = {Generation.CUDA_12: (0x7A, 0x7A), Generation.CUDA_13: (1, 0x87)}
# What a parameter's last word says besides its size: it is in the constant bank of the launch.
IN_BANK = 0x1F000
MAX_REGISTERS, MAX_BARRIERS = 255, 16


@dataclass
class _Part:
    """A section that is being written."""

    name: str
    kind: int
    flags: int = 0
    data: bytes = b""
    align: int = 1
    link: int = 0
    info: int = 0
    entry_bytes: int = 0
    size_bytes: int = 0
    offset: int = field(default=0, init=False)


def write(
    kernels: Sequence[Kernel],
    chip: str,
    generation: Generation,
    data: Sequence[Data] = (),
    addresses: Sequence[Address] = (),
) -> bytes:
    """Return a cubin. `data`: global memory; `addresses`: the contents of constant bank 4. Raises ValueError for what a
    kernel cannot have, and for an address of no data.
    """
    for kernel in kernels:
        _check(kernel)
    for each in addresses:
        if all(each.name != one.name for one in data):
            raise ValueError(f"constant bank 4 holds the address of {each.name}, which is no data of this cubin")
    parts, symbols = _parts(kernels, generation, data, addresses), _Symbols()
    numbers = {part.name: index for index, part in enumerate(parts)}
    by_name = {part.name: part for part in parts}
    bank_symbols = {kernel.name: symbols.section(numbers[f".nv.constant0.{kernel.name}"]) for kernel in kernels}
    for part in parts:
        if part.name.startswith((".text.", ".nv.shared.")):
            symbols.section(numbers[part.name])
    places = {each.name: symbols.data_at(each, numbers, by_name) for each in data}
    first_global = symbols.count
    for kernel in kernels:
        text = by_name[f".text.{kernel.name}"]
        symbol = symbols.function(kernel, numbers[text.name])
        own = by_name[f".nv.info.{kernel.name}"]
        own.data = _kernel_info(kernel, generation, bank_symbols[kernel.name])
        text.info = symbol | kernel.registers << 24
        by_name[".nv.info"].data += _module_info(kernel, symbol, generation)
        for name in (own.name, f".nv.constant0.{kernel.name}", f".nv.shared.{kernel.name}"):
            if name in by_name:
                by_name[name].info = numbers[text.name]
    if addresses:
        by_name[f".rel{cubin.ADDRESSES}"].info = numbers[cubin.ADDRESSES]
        by_name[f".rel{cubin.ADDRESSES}"].data = b"".join(
            RELOCATION.pack(index * cubin.ADDRESS_BYTES, places[each.name] << 32 | cubin.ABSOLUTE_64)
            for index, each in enumerate(addresses)
        )
    by_name[".symtab"].data, by_name[".symtab"].info = bytes(symbols.data), first_global
    by_name[".strtab"].data = bytes(symbols.strings)
    return _file(parts, chip, generation)


def _parts(
    kernels: Sequence[Kernel], generation: Generation, data: Sequence[Data], addresses: Sequence[Address]
) -> list[_Part]:
    """Return the sections in their order; what depends on the symbols is filled in later."""
    parts = [_Part("", 0), _Part(".shstrtab", cubin.SHT_STRTAB), _Part(".strtab", cubin.SHT_STRTAB)]
    parts += [_Part(".symtab", cubin.SHT_SYMTAB, link=2, align=8, entry_bytes=cubin.SYMBOL.size)]
    parts += [_Part(".nv.info", cubin.CUDA_INFO, link=3, align=4)]
    parts += [_Part(f".nv.info.{kernel.name}", cubin.CUDA_INFO, SHF_INFO_LINK, align=4, link=3) for kernel in kernels]
    if addresses:
        kind, name = cubin.SHT_REL, f".rel{cubin.ADDRESSES}"
        parts.append(_Part(name, kind, SHF_INFO_LINK, align=8, link=3, entry_bytes=RELOCATION.size))
        bank = b"".join(each.addend.to_bytes(cubin.ADDRESS_BYTES, "little") for each in addresses)
        parts.append(_Part(cubin.ADDRESSES, 1, SHF_ALLOC, bank, cubin.ADDRESS_BYTES))
    parts += [
        _Part(f".nv.constant0.{kernel.name}", 1, SHF_ALLOC | SHF_INFO_LINK, _constants(kernel), 4, link=0)
        for kernel in kernels
    ]
    for kernel in kernels:
        barriers = kernel.barriers << 20 if generation is Generation.CUDA_12 else 0
        flags = SHF_ALLOC | SHF_EXECINSTR | barriers
        parts.append(_Part(f".text.{kernel.name}", 1, flags, kernel.code, CODE_ALIGN, link=3))
    writable = SHF_WRITE | SHF_ALLOC
    if any(each.content for each in data):
        parts.append(_Part(cubin.INITIAL, 1, writable))
    if not all(each.content for each in data):
        parts.append(_Part(cubin.CLEARED, cubin.SHT_NOBITS, writable))
    parts += [
        _Part(f".nv.shared.{kernel.name}", cubin.SHT_NOBITS, writable, align=16, size_bytes=kernel.shared_bytes)
        for kernel in kernels
        if kernel.shared_bytes
    ]
    return parts


def _check(kernel: Kernel) -> None:
    if not kernel.name or "\0" in kernel.name:
        raise ValueError(f"{kernel.name!r} is no name of a kernel")
    if not 0 < kernel.registers <= MAX_REGISTERS:
        raise ValueError(f"{kernel.name} has {kernel.registers} registers; a thread has 1 to {MAX_REGISTERS}")
    if not 0 <= kernel.barriers <= MAX_BARRIERS:
        raise ValueError(f"{kernel.name} has {kernel.barriers} barriers; there are {MAX_BARRIERS}")
    if len(kernel.code) % 16 or not kernel.code:
        raise ValueError(f"{kernel.name} has {len(kernel.code)} bytes of code; an instruction has 16")


def _constants(kernel: Kernel) -> bytes:
    return kernel.constants or bytes(kernel.parameters_at + kernel.parameter_bytes)


class _Symbols:
    """The symbol table and its names, as they grow."""

    def __init__(self) -> None:
        self.data, self.strings, self.count = bytearray(cubin.SYMBOL.size), bytearray(1), 1

    def section(self, index: int) -> int:
        """Add the symbol of a section and return its number."""
        return self._add(cubin.SYMBOL.pack(0, 3, 0, index, 0, 0))

    def function(self, kernel: Kernel, index: int) -> int:
        """Add the symbol of a kernel in section `index` and return its number."""
        name = len(self.strings)
        self.strings += kernel.name.encode() + b"\0"
        other = cubin.ENTRY if kernel.entry else 0
        info = cubin.STB_GLOBAL << 4 | cubin.STT_FUNC
        return self._add(cubin.SYMBOL.pack(name, info, other, index, 0, len(kernel.code)))

    def data_at(self, data: Data, numbers: dict[str, int], parts: dict[str, _Part]) -> int:
        """Put data into its section, add its symbol and return its number."""
        part = parts[cubin.INITIAL if data.content else cubin.CLEARED]
        part.align = max(part.align, data.align)
        if data.content:
            part.data += bytes(-len(part.data) % data.align)
            at = len(part.data)
            part.data += data.content.ljust(data.size_bytes, b"\0")
        else:
            at = -(-part.size_bytes // data.align) * data.align
            part.size_bytes = at + data.size_bytes
        name = len(self.strings)
        self.strings += data.name.encode() + b"\0"
        return self._add(cubin.SYMBOL.pack(name, cubin.STT_OBJECT, 0, numbers[part.name], at, data.size_bytes))

    def _add(self, row: bytes) -> int:
        self.data += row
        self.count += 1
        return self.count - 1


def _words(attribute: Attribute, *words: int) -> bytes:
    return struct.pack(f"<BBH{len(words)}I", BYTES, attribute, 4 * len(words), *words)


def _module_info(kernel: Kernel, symbol: int, generation: Generation) -> bytes:
    found = _words(Attribute.REGCOUNT, symbol, kernel.registers)
    if generation is Generation.CUDA_12:
        found += _words(Attribute.MAX_STACK_SIZE, symbol, 0)
    return (
        found
        + _words(Attribute.MIN_STACK_SIZE, symbol, kernel.frame_bytes)
        + _words(Attribute.FRAME_SIZE, symbol, kernel.frame_bytes)
    )


def _kernel_info(kernel: Kernel, generation: Generation, bank: int) -> bytes:
    found = _words(Attribute.CUDA_API_VERSION, VERSIONS[generation][1])
    found += struct.pack("<BBH", NO_VALUE, Attribute.SW2861232_WAR, 0)
    found += _words(Attribute.PARAM_CBANK, bank, kernel.parameters_at | kernel.parameter_bytes << 16)
    found += struct.pack("<BBH", HALF, Attribute.CBANK_PARAM_SIZE, kernel.parameter_bytes)
    for each in reversed(kernel.parameters):
        found += _words(Attribute.KPARAM_INFO, 0, each.ordinal | each.offset << 16, each.size_bytes << 18 | IN_BANK)
    found += struct.pack("<BBH", HALF, Attribute.MAXREG_COUNT, MAX_REGISTERS)
    if generation is Generation.CUDA_13:
        found += struct.pack("<BBH", BYTE, Attribute.NUM_BARRIERS, kernel.barriers)
    return found + _words(Attribute.EXIT_INSTR_OFFSETS, *kernel.exits)


def _file(parts: list[_Part], chip: str, generation: Generation) -> bytes:
    names = bytearray(1)
    places = []
    for part in parts:
        places.append(len(names) if part.name else 0)
        names += part.name.encode() + b"\0" if part.name else b""
    parts[1].data = bytes(names)
    body = bytearray(cubin.HEADER.size)
    for part in parts[1:]:
        body += bytes(-len(body) % part.align)
        part.offset = len(body)
        body += part.data
    body += bytes(-len(body) % 8)
    table = len(body)
    for part, name in zip(parts, places, strict=True):
        size = part.size_bytes if part.kind == cubin.SHT_NOBITS else len(part.data)
        align = part.align if part.kind else 0
        row = (name, part.kind, part.flags, 0, part.offset, size, part.link, part.info, align, part.entry_bytes)
        body += cubin.SECTION.pack(*row)
    programs = len(body)
    body += _programs(parts, programs)
    number = int(chip.removeprefix("sm_"))
    flags = FLAGS[generation] | (number | number << 16 if generation is Generation.CUDA_12 else number << 8)
    identity = b"\x7fELF\x02\x01\x01" + bytes((cubin.OSABI[generation], generation)) + bytes(7)
    count = (len(body) - programs) // PROGRAM_HEADER.size
    head = (identity, ET_EXEC, cubin.EM_CUDA, VERSIONS[generation][0], 0, programs, table, flags, cubin.HEADER.size)
    cubin.HEADER.pack_into(body, 0, *head, PROGRAM_HEADER.size, count, cubin.SECTION.size, len(parts), 1)
    return bytes(body)


def _programs(parts: list[_Part], at: int) -> bytes:
    """Return the program headers: themselves, what is loaded from the file, and memory that is cleared."""
    placed = [part for part in parts if part.flags & SHF_ALLOC]
    fixed = [part for part in placed if not part.flags & SHF_WRITE]
    initial = [part for part in placed if part.flags & SHF_WRITE and part.kind != cubin.SHT_NOBITS]
    cleared = sum(part.size_bytes for part in placed if part.kind == cubin.SHT_NOBITS)
    first, end = fixed[0].offset, fixed[-1].offset + len(fixed[-1].data)
    rows = [(PT_LOAD, READ_EXECUTE, first, end - first, end - first)]
    if initial or cleared:
        at = initial[0].offset if initial else end
        size = sum(len(part.data) for part in initial)
        rows.append((PT_LOAD, READ_WRITE, at, size, size + cleared))
    own = (len(rows) + 2) * PROGRAM_HEADER.size
    rows = [(PT_PHDR, READ_EXECUTE, at, own, own), *rows, (PT_LOAD, READ_EXECUTE, at, own, own)]
    return b"".join(
        PROGRAM_HEADER.pack(kind, flags, offset, 0, 0, size, memory, 8) for kind, flags, offset, size, memory in rows
    )
