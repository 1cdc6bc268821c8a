"""AMDHSA code objects: ELF files with a GPU program's machine code, its kernels' descriptors and their arguments.

Source: LLVM AMDGPUUsage, "ELF Code Object", "Code Object Metadata", "Kernel Descriptor"; System V ABI, "Object Files".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ringup.errors import GuestError

EM_AMDGPU, ET_REL, ET_DYN = 224, 1, 3
PT_LOAD, PT_NOTE = 1, 4
SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 4, 7, 8, 11
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHN_UNDEF, SHN_LORESERVE = 0, 0xFF00
PF_X, PF_W = 1, 2
NT_AMDGPU_METADATA = 32
# EF_AMDGPU_MACH of gfx9.4, gfx11 and gfx12. Source: LLVM AMDGPUUsage, "AMDGPU EF_AMDGPU_MACH Values"
MACHINES = {
    0x41: "gfx1100", 0x43: "gfx1150", 0x44: "gfx1103", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200", 0x4A: "gfx1151",
    0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950", 0x55: "gfx1152", 0x58: "gfx1153",
}  # fmt: skip
# Those with one file for VGPRs and accumulation registers.
UNIFIED = frozenset(("gfx942", "gfx950"))
PRELOADED_ENTRY_BYTES = 256
ABS64 = 3
# GOTPCREL kinds, and the kinds that replace them once the table has an address.
THROUGH_TABLE = {7: 4, 8: 10, 9: 11}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
# R_AMDGPU_*: bytes written, low bits dropped, whether it is relative to the place. Source: LLVM AMDGPUUsage,
# "Relocation Records"
RELOCATIONS = {
    1: (4, 0, False), 2: (4, 32, False), 3: (8, 0, False), 4: (4, 0, True), 5: (8, 0, True), 6: (4, 0, False),
    10: (4, 0, True), 11: (4, 32, True), 13: (8, 0, False),
}  # fmt: skip


class Segment(NamedTuple):
    """A loadable part: `data` at `address`, then zeroes up to `size_bytes`."""

    address: int
    size_bytes: int
    data: bytes
    writable: bool
    executable: bool


class Argument(NamedTuple):
    """One argument of a kernel, explicit (`by_value`, `global_buffer`, …) or `hidden_*`."""

    name: str
    kind: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel with the contents of its descriptor. Addresses are relative to the code object's base."""

    name: str
    descriptor_address: int
    entry_address: int
    lds_bytes: int
    scratch_bytes: int  # of one work-item
    kernarg_bytes: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    arguments: tuple[Argument, ...]
    # Its registers are in the unified file of CDNA.
    is_unified: bool = False
    # KERNARG_PRELOAD: how many dwords of the arguments user registers get, and from which one.
    preload_count: int = 0
    preload_first: int = 0

    @property
    def wave_size(self) -> int:
        """32 or 64."""
        return 32 if self.properties >> 10 & 1 else 64

    @property
    def vgpr_count(self) -> int:
        """The VGPRs that RSRC1 requests, in eights for wave32, in fours for wave64; on CDNA those below the
        accumulation registers, whose first one RSRC3 has in fours.
        """
        if self.is_unified:
            return min(((self.rsrc3 & 0x3F) + 1) * 4, self._unified_count)
        return ((self.rsrc1 & 0x3F) + 1) * (8 if self.wave_size == 32 else 4)

    @property
    def _unified_count(self) -> int:
        return ((self.rsrc1 & 0x3F) + 1) * 8

    @property
    def acc_count(self) -> int:
        """The accumulation registers of CDNA: the rest of what RSRC1 requests, in eights."""
        return self._unified_count - self.vgpr_count if self.is_unified else 0

    @property
    def start_bytes(self) -> int:
        """How far beyond the entry a wave starts: what is before loads arguments that were not preloaded.

        Source: LLVM AMDGPUUsage, "Preloaded Kernel Arguments".
        """
        return PRELOADED_ENTRY_BYTES if self.preload_count else 0

    @property
    def uses_dynamic_stack(self) -> bool:
        """Whether it needs more scratch memory than its descriptor states, because it calls code unknown to its
        compiler.

        Source: AMDGPUUsage.
        """
        return bool(self.properties >> 11 & 1)

    def wants(self, name: str) -> bool:
        """Return whether a user register of `USER_REGISTERS` is enabled."""
        return bool(self.properties >> USER_REGISTERS[name][0] & 1)


# User SGPRs in order: bit of kernel_code_properties, registers.
USER_REGISTERS = {
    "private_segment_buffer": (0, 4), "dispatch_ptr": (1, 2), "queue_ptr": (2, 2), "kernarg_segment_ptr": (3, 2), "dispatch_id": (4, 2),
    "flat_scratch_init": (5, 2), "private_segment_size": (6, 1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A program: linked, or an object file whose sections are laid out here."""

    target: str
    segments: tuple[Segment, ...]
    kernels: dict[str, Kernel]
    relocations: tuple[tuple[int, int, int, int], ...]  # place, type, symbol's address, addend

    @property
    def size_bytes(self) -> int:
        """The length of the image."""
        return max(one.address + one.size_bytes for one in self.segments)

    def image(self, base: int) -> bytes:
        """Return the program's memory contents at gpu_va `base`, relocated."""
        data = bytearray(self.size_bytes)
        for one in self.segments:
            data[one.address : one.address + len(one.data)] = one.data
        for place, kind, symbol, addend in self.relocations:
            if kind not in RELOCATIONS or place + RELOCATIONS[kind][0] > len(data):
                raise GuestError(f"code object: relocation type {kind} at {place:#x} cannot be done: link it first")
            size, dropped, from_place = RELOCATIONS[kind]
            value = symbol + addend + (-place if from_place else base) >> dropped
            data[place : place + size] = (value & (1 << size * 8) - 1).to_bytes(size, "little")
        return bytes(data)


def load(elf: bytes) -> CodeObject:
    """Read an AMDHSA code object (version 3 to 6), linked or not.

    Raises `GuestError` if it is damaged or for another machine.
    """
    try:
        return _load(elf)
    except struct.error as error:
        raise GuestError(
            f"code object of {len(elf)} bytes is damaged: one of its tables lies beyond its end"
        ) from error
    except (IndexError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise GuestError(f"code object of {len(elf)} bytes is damaged: {error!r}") from error


def _load(elf: bytes) -> CodeObject:
    ident, kind, machine, _, _, phoff, shoff, flags, _, _, phnum, _, shnum, _ = _HEADER.unpack_from(elf)
    if ident[:6] != b"\x7fELF\x02\x01" or machine != EM_AMDGPU:
        raise GuestError(f"code object begins {ident[:6].hex()} for machine {machine}: no 64-bit AMDGPU ELF")
    sections = [_SECTION.unpack_from(elf, shoff + i * _SECTION.size) for i in range(shnum)]
    if kind == ET_DYN:
        headers = [_SEGMENT.unpack_from(elf, phoff + i * _SEGMENT.size) for i in range(phnum)]
        segments = tuple(
            Segment(address, memory, _cut(elf, offset, size), bool(rights & PF_W), bool(rights & PF_X))
            for type_, rights, offset, address, _, size, memory, _ in headers
            if type_ == PT_LOAD
        )
        # symbols of a linked object hold addresses
        places = [0] * len(sections)
        notes = [_cut(elf, one[2], one[5]) for one in headers if one[0] == PT_NOTE]
    elif kind == ET_REL:
        places, segments = _laid_out(elf, sections)
        notes = [_cut(elf, one[4], one[5]) for one in sections if one[1] == SHT_NOTE]
    else:
        raise GuestError(f"code object is of ELF type {kind}: neither linked nor an object file")
    if not segments:
        raise GuestError("code object has nothing to load")
    symbols = _symbols(elf, sections, SHT_DYNSYM if kind == ET_DYN else SHT_SYMTAB, places)
    arguments = {name: found for note in notes for name, found in _metadata(note)}
    target = MACHINES.get(flags & 0xFF, f"machine {flags & 0xFF:#x}")
    program = _with_offsets(CodeObject(target, segments, {}, tuple(_relocations(elf, sections, places))))
    image = program.image(0)
    kernels = {
        name.removesuffix(".kd"): _kernel(image, name.removesuffix(".kd"), address, arguments, target)
        for name, address in symbols
        if name.endswith(".kd")
    }
    return replace(program, kernels=kernels)


def _with_offsets(program: CodeObject) -> CodeObject:
    """Give an unlinked program its global offset table: a slot with the address of each symbol accessed through it."""
    through = dict.fromkeys(symbol for _, kind, symbol, _ in program.relocations if kind in THROUGH_TABLE)
    if not through:
        return program
    table = -(-program.size_bytes // 0x1000) * 0x1000
    slots = {symbol: table + 8 * number for number, symbol in enumerate(through)}
    relocations = [
        (place, THROUGH_TABLE[kind], slots[symbol], addend) if kind in THROUGH_TABLE else (place, kind, symbol, addend)
        for place, kind, symbol, addend in program.relocations
    ]
    relocations += [(slot, ABS64, symbol, 0) for symbol, slot in slots.items()]
    segment = Segment(table, 8 * len(slots), b"", False, False)
    return replace(program, segments=(*program.segments, segment), relocations=tuple(relocations))


def _laid_out(elf: bytes, sections: list[tuple[Any, ...]]) -> tuple[list[int], tuple[Segment, ...]]:
    """Give the sections of an object file addresses, one after the other, each on its own pages."""
    places, segments, end = [0] * len(sections), [], 0
    for number, (_, type_, flags, _, offset, size, _, _, alignment, _) in enumerate(sections):
        if not flags & SHF_ALLOC or not size:
            continue
        step = max(alignment, 0x1000)
        places[number] = end = -(-end // step) * step
        data = b"" if type_ == SHT_NOBITS else _cut(elf, offset, size)
        segments.append(Segment(end, size, data, bool(flags & SHF_WRITE), bool(flags & SHF_EXECINSTR)))
        end += size
    return places, tuple(segments)


def _cut(elf: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(elf):
        raise GuestError(f"code object: bytes {offset:#x} to {offset + size:#x} lie beyond its end at {len(elf):#x}")
    return elf[offset : offset + size]


def _symbols(elf: bytes, sections: list[tuple[Any, ...]], wanted: int, places: list[int]) -> list[tuple[str, int]]:
    found = []
    for section in sections:
        if section[1] == wanted:
            names = _cut(elf, sections[section[6]][4], sections[section[6]][5])
            for at in range(0, section[5], _SYMBOL.size):
                name, address = _symbol(elf, section, at, places)
                if address is not None:
                    found.append((names[name : names.index(b"\0", name)].decode(), address))
    return found


def _symbol(elf: bytes, table: tuple[Any, ...], at: int, places: list[int]) -> tuple[int, int | None]:
    """Return the offset of a symbol's name, and its address; None for a symbol that is not in this file."""
    name, _, _, section, value, _ = _SYMBOL.unpack_from(elf, table[4] + at)
    if section == SHN_UNDEF:
        return name, None
    return name, value + (places[section] if section < SHN_LORESERVE else 0)


def _relocations(elf: bytes, sections: list[tuple[Any, ...]], places: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the relocations of loaded sections. Raises `GuestError` for one against an undefined symbol."""
    for section in sections:
        # of a dynamic object: not of a section
        is_linked = section[7] == 0
        if section[1] != SHT_RELA or not (is_linked or sections[section[7]][2] & SHF_ALLOC):
            continue
        table, moved = sections[section[6]], 0 if is_linked else places[section[7]]
        for at in range(0, section[5], _RELA.size):
            place, info, addend = _RELA.unpack_from(elf, section[4] + at)
            address = _symbol(elf, table, (info >> 32) * _SYMBOL.size, places)[1] if info >> 32 else 0
            if address is None:
                raise GuestError(f"code object: a relocation at {place:#x} is against a symbol it does not define")
            yield place + moved, info & 0xFFFF_FFFF, address, addend


def _kernel(image: bytes, name: str, address: int, arguments: dict[str, tuple[Argument, ...]], target: str) -> Kernel:
    lds, scratch, kernarg, entry, rsrc3, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack_from(image, address)
    return Kernel(
        name,
        address,
        address + entry,
        lds,
        scratch,
        kernarg,
        rsrc1,
        rsrc2,
        rsrc3,
        properties,
        arguments.get(name, ()),
        target in UNIFIED,
        preload & 0x7F,
        preload >> 7,
    )


def _metadata(note: bytes) -> Iterator[tuple[str, tuple[Argument, ...]]]:
    at = 0
    while at + 12 <= len(note):
        name_size, size, kind = struct.unpack_from("<III", note, at)
        start = at + 12 + (name_size + 3) // 4 * 4
        if kind == NT_AMDGPU_METADATA and note[at + 12 : at + 12 + name_size] == b"AMDGPU\0":
            described, _ = unpack(note, start)
            for kernel in described["amdhsa.kernels"]:
                yield (
                    kernel[".name"],
                    tuple(
                        Argument(one.get(".name", ""), one[".value_kind"], one[".offset"], one[".size"])
                        for one in kernel.get(".args", ())
                    ),
                )
        at = start + (size + 3) // 4 * 4


# MessagePack: first byte, bytes of the length or number, format. Source: the MessagePack specification, "Formats".
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {
    0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I"), 0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
    0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: bytes, at: int = 0) -> tuple[Any, int]:
    """Read the MessagePack value at byte `at`; return it and the offset of the byte after it."""
    first, at = data[at], at + 1
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 256), at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        return struct.unpack_from(_NUMBERS[first], data, at)[0], at + struct.calcsize(_NUMBERS[first])
    if first < 0xC0:
        kind, count = (
            ("map", first & 15) if first < 0x90 else ("array", first & 15) if first < 0xA0 else ("text", first & 31)
        )
    else:
        kind, form = _LENGTHS[first]
        count, at = struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if kind in ("bytes", "text"):
        if at + count > len(data):
            raise IndexError(f"a string of {count} bytes at {at}")
        return (data[at : at + count] if kind == "bytes" else data[at : at + count].decode()), at + count
    items = []
    for _ in range(count * (2 if kind == "map" else 1)):
        item, at = unpack(data, at)
        items.append(item)
    return (items if kind == "array" else dict(zip(items[::2], items[1::2], strict=True))), at
