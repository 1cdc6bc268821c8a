"""Cubins: the ELF files of code for NVIDIA's cards, of CUDA 12 and before (ABI 7) and of CUDA 13 (ABI 8).

A cubin becomes one image for the card's memory: code, the module's data, its constant banks, each at an offset;
`Cubin.at` fills in the addresses. Damage raises `CompileError`, code for another chip `WrongTarget`. Sources: gABI;
CuAssembler, CuNVInfo.py and CubinFile.py (numbers of attributes and relocations); what ptxas 12.2 and 13.5 write for
sm_75 to sm_120 (flags, shared memory, stacks, banks).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from ringup.errors import CompileError, WrongTarget
from ringup.queues.nv.elf import SHN_UNDEF, STT_FUNC, Elf, Relocation, Section
from ringup.queues.nv.rows import (
    MAX_BANK_BYTES,
    MAX_BARRIERS,
    MAX_LOCAL_BYTES,
    MAX_REGISTERS,
    GenerationRow,
)

EM_CUDA = 190
# the ABI version of the ELF header: the bit where the flags hold the SM version. CUDA 12: sm_86 is 0x4b0556; CUDA 13:
# 0x6005604 (ptxas 12.2 and 13.5)
SM_SHIFTS = {7: 0, 8: 8}
# st_other of a function that a launch may begin at (ptxas 12.2 and 13.5)
ENTRY = 0x10
TEXT, INFO, SHARED, BANK = ".text.", ".nv.info", ".nv.shared.", ".nv.constant"
# memory of the module: with contents, and cleared
GLOBAL_INIT, GLOBAL = ".nv.global.init", ".nv.global"
PARAMS_BANK = 0
# bytes: of code, constant banks and data in the image, more than any of them needs
ALIGN = 256
# bytes behind the code that instruction fetch may read
BEHIND_CODE = 512
INSTRUCTION_BYTES = 16
MAX_IMAGE_BYTES = 1 << 28
# for functions that a kernel calls, whose depth the compiler often does not know (recursion, calls by address; it says
# all ones, or leaves them out): CUDA's own default, cudaLimitStackSize
UNKNOWN_STACK, DEFAULT_STACK_BYTES = 0xFFFF_FFFF, 1024
MAX_PARAMS = 4096


class Attribute(IntEnum):
    """What an entry of `.nv.info` is about. Source: CuAssembler, CuNVInfo.EIATTR; NUM_BARRIERS: cuobjdump's text."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    EXTERNS = 0x0F
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    REGCOUNT = 0x2F
    NUM_BARRIERS = 0x4C


# the form of an entry: its value is absent, a byte, two bytes, or so many bytes as the two say
NO_VALUE, BYTE, HALF, BYTES = 1, 2, 3, 4
INFO_HEAD, PAIR = struct.Struct("<BBH"), struct.Struct("<II")


class Patch(NamedTuple):
    """How a relocation stores a value: bits `low` and up, `width` of them, of `value >> shift`."""

    low: int
    width: int
    shift: int = 0


# R_CUDA_32, _64, _G32, _G64 (a generic address is the address itself), _ABS32_LO_20, _ABS32_HI_20, _ABS32_32,
# _ABS32_LO_32, _ABS32_HI_32, _ABS47_34
PATCHES = {
    1: Patch(0, 32),
    2: Patch(0, 64),
    3: Patch(0, 32),
    4: Patch(0, 64),
    43: Patch(20, 32),
    44: Patch(20, 32, 32),
    55: Patch(32, 32),
    56: Patch(32, 32),
    57: Patch(32, 32, 32),
    58: Patch(34, 47, 2),
}
R_CUDA_NONE = 0
# these store half of an address; the others refuse one that is too wide
HALVES = frozenset({43, 56})


class Parameter(NamedTuple):
    """One parameter of a kernel: its place among the parameters."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel. `entry_offset` is in the image, and so are its `banks`: (offset, bytes) of a constant bank.

    `shared_bytes`: shared memory of a block before the dynamic one. `local_bytes`: local memory of a thread.
    `params_at`: where bank 0 holds the parameters. `max_threads`: of a block, 0 for no limit of its own.
    `required_block`: the one block that it may be started with. `externs`: functions that are in no file.
    """

    name: str
    entry_offset: int
    code_bytes: int
    registers: int
    barriers: int
    shared_bytes: int
    local_bytes: int
    parameters: tuple[Parameter, ...]
    param_bytes: int
    params_at: int
    banks: dict[int, tuple[int, int]]
    max_threads: int = 0
    required_block: tuple[int, int, int] | None = None
    externs: tuple[str, ...] = ()


def is_cubin(data: bytes) -> bool:
    """Return whether a file begins like a cubin."""
    return data[:4] == b"\x7fELF" and len(data) >= 20 and int.from_bytes(data[18:20], "little") == EM_CUDA


class Cubin:
    """A cubin that was read. `what` names it in errors; `target` is like `sm_86`."""

    def __init__(self, data: bytes, what: str = "the cubin") -> None:
        self.what = what
        self._elf = elf = Elf(bytes(data), what)
        if elf.machine != EM_CUDA:
            raise CompileError(f"{what} is an ELF file for machine {elf.machine}, not for NVIDIA's cards ({EM_CUDA})")
        abi = elf.identity[8]
        if abi not in SM_SHIFTS:
            raise CompileError(f"{what} has ABI version {abi}; ringup reads {' and '.join(map(str, SM_SHIFTS))}")
        self.target = f"sm_{elf.flags >> SM_SHIFTS[abi] & 0xFF}"
        self._by_name = {section.name: section for section in elf.sections}
        self._numbers = {section.name: number for number, section in enumerate(elf.sections)}
        # where each section begins in the image, by its number
        self._places: dict[int, int] = {}
        self.image_bytes = self._lay_out()
        self._module_infos = self._infos_by_symbol()
        # functions that kernels call, by the number of their section
        self._called: dict[int, list[int]] = {}
        for number, symbol in enumerate(elf.symbols):
            if symbol.kind == STT_FUNC and not symbol.other & ENTRY:
                self._called.setdefault(symbol.section, []).append(number)
        # constant banks by the name of the kernel that they belong to, empty for all: (number, section)
        self._bank_sections: dict[str, list[tuple[int, int]]] = {}
        for number in self._places:
            name = elf.sections[number].name
            bank = _bank_of(name)
            if bank is not None:
                self._bank_sections.setdefault(name.partition(f"{BANK}{bank}")[2].removeprefix("."), []).append(
                    (bank, number)
                )
        self.kernels = {kernel.name: kernel for kernel in self._kernels()}
        # raises for a relocation that cannot be made
        self._patches = tuple(self._resolve(relocation) for relocation in self._relocations())

    def check(self, row: GenerationRow) -> None:
        """Raise `WrongTarget` unless a generation runs this code: that of its own target, or of a lower minor number of
        the same major one.
        """
        major, minor = divmod(int(self.target[3:]), 10)
        if major != row.sm[0] or minor > row.sm[1]:
            raise WrongTarget(
                f"{self.what} was compiled for {self.target}; the card runs {row.target}: compile it anew"
            )

    def _lay_out(self) -> int:
        """Give every section that a card needs a place; return the size of all."""
        end = 0
        kinds = ((TEXT, BEHIND_CODE), (GLOBAL_INIT, 0), (GLOBAL, 0), (BANK, 0))
        for prefix, behind in kinds:
            for number, section in enumerate(self._elf.sections):
                wanted = section.name.startswith(prefix) and number not in self._places
                # bank 0 of a kernel is made by each launch
                if not wanted or _bank_of(section.name) == PARAMS_BANK or not section.size_bytes:
                    continue
                if section.align > 4096:
                    raise CompileError(f"{self.what}: {section.name} is aligned to {section.align} bytes, 4096 at most")
                if _bank_of(section.name) is not None and section.size_bytes > MAX_BANK_BYTES:
                    raise CompileError(
                        f"{self.what}: {section.name} has {section.size_bytes} bytes, a bank at most {MAX_BANK_BYTES}"
                    )
                align = max(ALIGN, section.align)
                self._places[number] = end = -(-end // align) * align
                end += section.size_bytes
            end += behind if end else 0
            if end > MAX_IMAGE_BYTES:
                raise CompileError(
                    f"{self.what} has {end} bytes of code and data; at most {MAX_IMAGE_BYTES} are loaded"
                )
        return -(-end // ALIGN) * ALIGN

    @cached_property
    def _image(self) -> bytes:
        image = bytearray(self.image_bytes)
        for number, at in self._places.items():
            data = self._elf.sections[number].data
            image[at : at + len(data)] = data
        return bytes(image)

    def at(self, base_va: int) -> bytes:
        """Return the image as it lies at `base_va`, a multiple of 256."""
        if base_va % ALIGN:
            raise ValueError(f"an image begins at a multiple of {ALIGN} bytes, not at {base_va:#x}")
        image = bytearray(self._image)
        for at, size, patch, offset, halved in self._patches:
            value = base_va + offset if offset is not None else 0
            word = int.from_bytes(image[at : at + size], "little")
            value >>= patch.shift
            if value >> patch.width and not halved:
                raise CompileError(f"{self.what}: address {base_va:#x} does not fit {patch.width} bits at byte {at}")
            mask = (1 << patch.width) - 1
            word = word & ~(mask << patch.low) | (value & mask) << patch.low
            image[at : at + size] = word.to_bytes(size, "little")
        return bytes(image)

    def _relocations(self) -> Iterator[Relocation]:
        for relocation in self._elf.relocations:
            # others are about debugging, or about bank 0
            if relocation.section in self._places and relocation.kind != R_CUDA_NONE:
                yield relocation

    def _resolve(self, relocation: Relocation) -> tuple[int, int, Patch, int | None, bool]:
        """Return for a relocation: byte in the image, bytes there, how it stores, offset in the image of what it names
        (None for what is in no file), whether it stores half of an address.
        """
        section = self._elf.sections[relocation.section]
        patch = PATCHES.get(relocation.kind)
        if patch is None:
            raise CompileError(
                f"{self.what}: {section.name} has a relocation of kind {relocation.kind} at {relocation.offset:#x};"
                f" ringup makes {', '.join(map(str, PATCHES))} (separately compiled code has to be linked)"
            )
        size = 8 if patch.low + patch.width <= 64 else INSTRUCTION_BYTES
        if patch.low + patch.width <= 32:
            size = 4
        if relocation.offset + size > len(section.data):
            raise CompileError(
                f"{self.what}: a relocation at byte {relocation.offset} of {section.name}, which has {len(section.data)}"
            )
        symbol = self._elf.symbols[relocation.symbol]
        at = self._places[relocation.section] + relocation.offset
        halved = relocation.kind in HALVES
        if symbol.section == SHN_UNDEF:
            # the kernels that use it say so in their EXTERNS, and are not launched
            return at, size, patch, None, halved
        place = self._places.get(symbol.section)
        if place is None:
            raise CompileError(
                f"{self.what}: {section.name} wants the address of {symbol.name or 'a section'}, which is not loaded"
            )
        if relocation.addend is not None:
            addend = relocation.addend
        else:
            word = int.from_bytes(section.data[relocation.offset : relocation.offset + size], "little")
            addend = (word >> patch.low & (1 << patch.width) - 1) << patch.shift
        offset = place + symbol.value + addend
        if not 0 <= offset <= self.image_bytes:
            raise CompileError(f"{self.what}: {section.name} wants byte {offset} of an image of {self.image_bytes}")
        return at, size, patch, offset, halved

    def _infos(self, section: Section | None) -> Iterator[tuple[int, int | bytes]]:
        """Read the entries of a `.nv.info` section: attribute, value."""
        data, at = section.data if section is not None else b"", 0
        while at < len(data):
            if at + INFO_HEAD.size > len(data):
                raise CompileError(f"{self.what}: an attribute at byte {at} of {len(data)} is cut off")
            form, attribute, value = INFO_HEAD.unpack_from(data, at)
            at += INFO_HEAD.size
            if form == BYTES:
                if at + value > len(data):
                    raise CompileError(
                        f"{self.what}: attribute {attribute:#x} ends at byte {at + value} of {len(data)}"
                    )
                yield attribute, data[at : at + value]
                at += value
            elif form in (NO_VALUE, BYTE, HALF):
                yield attribute, value & 0xFF if form == BYTE else value
            else:
                raise CompileError(f"{self.what}: attribute {attribute:#x} has form {form}")

    def _infos_by_symbol(self) -> dict[tuple[int, int], int]:
        """Return the module's attributes that are about functions: (attribute, number of the symbol) to value."""
        found: dict[tuple[int, int], int] = {}
        for attribute, value in self._infos(self._by_name.get(INFO)):
            if attribute in (Attribute.REGCOUNT, Attribute.FRAME_SIZE, Attribute.MIN_STACK_SIZE):
                symbol, number = self._unpack(PAIR, value, attribute)
                found[attribute, symbol] = number
        return found

    def _unpack(self, form: struct.Struct, value: int | bytes, attribute: int) -> tuple[int, ...]:
        if not isinstance(value, bytes) or len(value) != form.size:
            raise CompileError(f"{self.what}: attribute {attribute:#x} has {value!r}, not {form.size} bytes")
        return form.unpack(value)

    def _kernels(self) -> Iterator[Kernel]:
        for number, symbol in enumerate(self._elf.symbols):
            if symbol.kind != STT_FUNC or not symbol.other & ENTRY or symbol.section not in self._places:
                continue
            text = self._elf.sections[symbol.section]
            if text.name != TEXT + symbol.name:
                raise CompileError(f"{self.what}: kernel {symbol.name} lies in {text.name}")
            end = symbol.value + symbol.size_bytes
            if end > len(text.data) or symbol.value % INSTRUCTION_BYTES or not symbol.size_bytes:
                raise CompileError(
                    f"{self.what}: kernel {symbol.name} has bytes {symbol.value} to {end} of {len(text.data)}"
                )
            yield self._kernel(number, symbol.name, self._places[symbol.section] + symbol.value, symbol.size_bytes)

    def _kernel(self, number: int, name: str, entry_offset: int, code_bytes: int) -> Kernel:
        numbers = self._module_infos
        registers = numbers.get((Attribute.REGCOUNT, number), 0)
        if not 0 < registers <= MAX_REGISTERS:
            raise CompileError(f"{self.what}: {name} has {registers} registers; 1 to {MAX_REGISTERS} are possible")
        local = self._stack_bytes(number)
        if local > MAX_LOCAL_BYTES:
            raise CompileError(f"{self.what}: {name} has {local} bytes of local memory; {MAX_LOCAL_BYTES} is the limit")
        own = self._by_name.get(f"{INFO}.{name}")
        values: dict[int, int | bytes] = {}
        table: dict[int, Parameter] = {}
        for attribute, value in self._infos(own):
            values[attribute] = value
            if attribute == Attribute.KPARAM_INFO:
                # index, then ordinal and offset, then the size from bit 18 on
                _, place, shape = self._unpack(struct.Struct("<III"), value, attribute)
                table[place & 0xFFFF] = Parameter(place >> 16, shape >> 18)
        params_at, param_bytes = 0, 0
        if Attribute.PARAM_CBANK in values:
            _, place = self._unpack(PAIR, values[Attribute.PARAM_CBANK], Attribute.PARAM_CBANK)
            params_at, param_bytes = place & 0xFFFF, place >> 16
        shared = self._by_name.get(SHARED + name)
        # before CUDA 13, ptxas says it in the flags of the code
        flags = self._by_name[TEXT + name].flags
        barriers = values.get(Attribute.NUM_BARRIERS, flags >> 20 & 0x7F)
        if not isinstance(barriers, int) or barriers > MAX_BARRIERS:
            raise CompileError(f"{self.what}: {name} uses {barriers!r} barriers; there are {MAX_BARRIERS}")
        return Kernel(
            name=name,
            entry_offset=entry_offset,
            code_bytes=code_bytes,
            registers=registers,
            barriers=barriers,
            shared_bytes=shared.size_bytes if shared is not None else 0,
            local_bytes=local,
            parameters=self._parameters(name, table, param_bytes),
            param_bytes=param_bytes,
            params_at=params_at,
            banks=dict(self._banks(name)),
            max_threads=self._max_threads(values),
            required_block=self._required_block(values),
            externs=self._externs(values),
        )

    def _stack_bytes(self, number: int) -> int:
        """Return the local memory that a thread of a kernel needs, a symbol's number."""
        numbers, section = self._module_infos, self._elf.symbols[number].section
        frame = numbers.get((Attribute.FRAME_SIZE, number), 0)
        stack = numbers.get((Attribute.MIN_STACK_SIZE, number), 0)
        if stack == UNKNOWN_STACK:
            stack = 0
        elif not any(numbers.get((Attribute.FRAME_SIZE, other)) for other in self._called.get(section, ())):
            return max(frame, stack)
        return max(stack, frame + DEFAULT_STACK_BYTES)

    def _parameters(self, name: str, table: dict[int, Parameter], param_bytes: int) -> tuple[Parameter, ...]:
        """Return the parameters in order; they may not overlap or leave their `param_bytes`."""
        if len(table) > MAX_PARAMS or sorted(table) != list(range(len(table))):
            raise CompileError(f"{self.what}: {name} has parameters {sorted(table)[:8]}, which do not count from 0")
        parameters, end = tuple(table[number] for number in range(len(table))), 0
        for number, (offset, size) in enumerate(parameters):
            if offset < end or not size or offset + size > param_bytes:
                raise CompileError(
                    f"{self.what}: parameter {number} of {name} has bytes {offset} to {offset + size} of {param_bytes}"
                )
            end = offset + size
        return parameters

    def _banks(self, name: str) -> Iterator[tuple[int, tuple[int, int]]]:
        """Return a kernel's constant banks but bank 0: those of the module and its own."""
        for bank, number in (*self._bank_sections.get("", ()), *self._bank_sections.get(name, ())):
            yield bank, (self._places[number], self._elf.sections[number].size_bytes)

    def _max_threads(self, values: dict[int, int | bytes]) -> int:
        if Attribute.MAX_THREADS not in values:
            return 0
        x, y, z = self._unpack(struct.Struct("<III"), values[Attribute.MAX_THREADS], Attribute.MAX_THREADS)
        return x * y * z

    def _required_block(self, values: dict[int, int | bytes]) -> tuple[int, int, int] | None:
        if Attribute.REQNTID not in values:
            return None
        x, y, z = self._unpack(struct.Struct("<III"), values[Attribute.REQNTID], Attribute.REQNTID)
        return x, y, z

    def _externs(self, values: dict[int, int | bytes]) -> tuple[str, ...]:
        value = values.get(Attribute.EXTERNS, b"")
        if not isinstance(value, bytes) or len(value) % 4:
            raise CompileError(f"{self.what}: the list of functions in other files has {value!r}")
        numbers = [number for (number,) in struct.iter_unpack("<I", value)]
        wrong = [number for number in numbers if number >= len(self._elf.symbols)]
        if wrong:
            raise CompileError(f"{self.what}: a kernel uses symbol {wrong[0]} of {len(self._elf.symbols)}")
        return tuple(self._elf.symbols[number].name for number in numbers)


def _bank_of(section: str) -> int | None:
    """Return the number of a constant bank's section, None for any other section."""
    if not section.startswith(BANK):
        return None
    digits = section.removeprefix(BANK).split(".")[0]
    return int(digits) if digits.isdecimal() and digits.isascii() else None
