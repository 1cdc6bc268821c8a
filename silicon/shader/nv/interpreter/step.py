"""One instruction being executed: its operands as lanes, and where its results go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.lanes import lanes_of, mask_of
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, URZ, Instruction, Kind, Operand
from ringup.silicon.shader.nv.state import EVERY, LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.common.state import Memory
    from ringup.silicon.shader.nv.state import Group, Warp

    Lanes = NDArray[np.uint32]
    Wide = NDArray[np.uint64]
    Flags = NDArray[np.bool_]

_SIGN = np.uint32(0x8000_0000)
_SIGN64 = np.uint64(1 << 63)
CONSTANT_BANKS = 8


class RuleBroken(Exception):
    """A program broke a rule; `kind` is a violation's."""

    def __init__(self, kind: str, detail: str, lane: int | None = None, gpu_va: int | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.lane, self.gpu_va = kind, detail, lane, gpu_va


class Machine(NamedTuple):
    """What all warps of a launch share."""

    memory: Memory
    strict: bool
    target: str
    # nanoseconds of the card's timer
    now_ns: Callable[[], int] = lambda: 0


class Step:
    """An instruction of a warp. `mask` are the lanes that execute it; the others keep their registers."""

    __slots__ = ("group", "ins", "machine", "mask", "pc", "track", "warp")

    def __init__(self, ins: Instruction, pc: int, warp: Warp, machine: Machine) -> None:
        self.ins, self.pc, self.warp, self.machine = ins, pc, warp, machine
        self.group: Group = warp.group
        self.mask = warp.active
        self.track = warp.track
        if self.track is not None:
            self.track.begin(ins)
        if ins.is_guarded:
            self._read(ins.guard, guard=True)
            self.mask &= self._predicate(ins.guard)
        if self.track is not None:
            self.track.lanes(self.mask)

    def _read(self, operand: Operand, *, guard: bool = False) -> None:
        """Note that a predicate is read."""
        if self.track is None or operand.value == PT:
            return
        file = operand.kind.value
        self.track.read(file, operand.value, guard=guard, lanes=self.warp.active)
        if guard and file == "P" and (lanes := self.track.is_undefined(file, operand.value, self.warp.active)):
            lane = (lanes & -lanes).bit_length() - 1
            raise RuleBroken(
                "uninitialised", f"P{operand.value} guards it and was never given a value in lane {lane}", lane
            )

    # predicates -------------------------------------------------------------------------------------------------------

    def predicate_mask(self, operand: Operand) -> int:
        """Return a predicate as a mask of lanes, with its inversion."""
        self._read(operand)
        return self._predicate(operand)

    def _predicate(self, operand: Operand) -> int:
        if operand.kind is Kind.UNIFORM_PREDICATE:
            mask = EVERY * self.warp.uniform_predicates[operand.value]
        else:
            mask = self.warp.predicates[operand.value]
        return mask ^ EVERY if operand.invert else mask

    def flags(self, operand: Operand) -> Flags:
        """Return a predicate as one boolean a lane."""
        return lanes_of(self.predicate_mask(operand), LANES)

    def set_flags(self, operand: Operand, values: Flags) -> None:
        """Write a predicate in the lanes that execute; a uniform one gets lane 0's value."""
        if operand.value == PT:
            return
        if self.track is not None:
            self.track.write(operand.kind.value, operand.value)
        if operand.kind is Kind.UNIFORM_PREDICATE:
            if self.mask:
                self.warp.uniform_predicates[operand.value] = bool(values[0])
            return
        old = self.warp.predicates[operand.value]
        self.warp.predicates[operand.value] = old & ~self.mask | mask_of(np.ascontiguousarray(values)) & self.mask

    # sources ----------------------------------------------------------------------------------------------------------

    def raw(self, operand: Operand) -> Lanes:
        """Return a source's bits in each lane, without its signs."""
        kind = operand.kind
        if kind is Kind.REGISTER:
            return self.register(operand.value)
        if kind is Kind.IMMEDIATE:
            return np.full(LANES, operand.value, np.uint32)
        if kind is Kind.CONSTANT:
            return np.full(LANES, self.constant(operand, 4), np.uint32)
        if kind is Kind.UNIFORM:
            return np.full(LANES, self.uniform(operand.value), np.uint32)
        raise Unmodelled(f"{self.ins.text}: an operand of kind {kind.value}")

    def raw64(self, operand: Operand) -> Wide:
        """Return a pair of registers, or 64 bits of a constant; an immediate is the upper half."""
        kind = operand.kind
        if kind is Kind.IMMEDIATE:
            return np.full(LANES, operand.value << 32, np.uint64)
        if kind is Kind.CONSTANT:
            return np.full(LANES, self.constant(operand, 8), np.uint64)
        if kind is Kind.UNIFORM:
            return np.full(LANES, self.uniform_pair(operand.value), np.uint64)
        return self.pair(operand.value)

    def uniform(self, number: int) -> int:
        """Return a uniform register; URZ is zero."""
        if number >= URZ:
            return 0
        if self.track is not None:
            self.track.read("U", number)
        return int(self.warp.uniform[number])

    def uniform_pair(self, number: int) -> int:
        """Return two uniform registers as 64 bits."""
        return 0 if number >= URZ else self.uniform(number) | self.uniform(number + 1) << 32

    def register(self, number: int) -> Lanes:
        """Return a register; RZ is zero."""
        if number == RZ:
            return np.zeros(LANES, np.uint32)
        self.check_register(number)
        if self.track is not None:
            self.track.read("R", number)
        row: Lanes = self.warp.registers[number]
        return row

    def pair(self, number: int) -> Wide:
        """Return two registers as 64 bits."""
        if number == RZ:
            return np.zeros(LANES, np.uint64)
        low, high = self.register(number), self.register(number + 1)
        return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)

    def check_register(self, number: int) -> None:
        """Raise for a register beyond those of the launch."""
        if number >= len(self.warp.registers):
            raise RuleBroken("register", f"R{number} is beyond the {len(self.warp.registers)} registers of the launch")

    def constant(self, operand: Operand, size_bytes: int) -> int:
        """Return a constant's bits."""
        return self.constant_at(operand, operand.value, size_bytes)

    def constant_at(self, operand: Operand, offset: int, size_bytes: int) -> int:
        """Return the bits at an offset of an operand's bank. Bits beyond the bank read as zero."""
        if operand.bank < 0:
            # Source: Mesa's nouveau, nvk_buffer_view.c and nvk_descriptor_types.h: address / 16 in 45 bits, size / 16.
            packed = self.uniform_pair(operand.uniform)
            gpu_va, size = (packed & (1 << 45) - 1) << 4, (packed >> 45) << 4
        else:
            banks = self.group.launch.constants
            bank = banks[operand.bank] if operand.bank < len(banks) else None
            if bank is None:
                raise RuleBroken("memory", f"constant bank {operand.bank} is not valid in this launch")
            gpu_va, size = bank.gpu_va, bank.size_bytes
        if offset + size_bytes > size:
            if self.machine.strict:
                raise RuleBroken("memory", f"byte {offset:#x} is beyond the {size:#x} bytes of the constant bank")
            return 0
        from ringup.silicon.shader.nv.interpreter.memory import read_bytes

        return int.from_bytes(read_bytes(self.machine.memory, gpu_va + offset, size_bytes), "little")

    def u32(self, operand: Operand) -> Lanes:
        """Return an integer source: negated or complemented as its signs say."""
        bits = self.raw(operand)
        if operand.negate:
            return np.uint32(0) - bits
        return ~bits if operand.invert else bits

    def f32(self, operand: Operand, *, flush: bool = False) -> NDArray[np.float64]:
        """Return an f32 source in f64, which holds it exactly."""
        bits = self.raw(operand)
        if operand.absolute:
            bits = bits & ~_SIGN
        if operand.negate:
            bits = bits ^ _SIGN
        if flush:
            bits = np.where(bits & np.uint32(0x7F80_0000) == 0, bits & _SIGN, bits)
        return bits.view(np.float32).astype(np.float64)

    def f64(self, operand: Operand) -> NDArray[np.float64]:
        """Return an f64 source."""
        bits = self.raw64(operand)
        if operand.absolute:
            bits = bits & ~_SIGN64
        if operand.negate:
            bits = bits ^ _SIGN64
        return bits.view(np.float64)

    # results ----------------------------------------------------------------------------------------------------------

    def write(self, operand: Operand, values: Lanes) -> None:
        """Write a register in the lanes that execute; a uniform register gets lane 0's value."""
        if operand.kind is Kind.UNIFORM:
            if operand.value != URZ and self.mask:
                if self.track is not None:
                    self.track.write("U", operand.value)
                self.warp.uniform[operand.value] = values[0]
            return
        if operand.kind is not Kind.REGISTER:
            raise Unmodelled(f"{self.ins.text}: a result in an operand of kind {operand.kind.value}")
        self.write_register(operand.value, values)

    def write_register(self, number: int, values: Lanes) -> None:
        """Write a vector register in the lanes that execute."""
        if number == RZ:
            return
        self.check_register(number)
        if self.track is not None:
            self.track.write("R", number)
        if self.mask == EVERY:
            self.warp.registers[number] = values
        elif self.mask:
            np.copyto(self.warp.registers[number], values, where=lanes_of(self.mask, LANES), casting="unsafe")

    def write64(self, operand: Operand, values: Wide) -> None:
        """Write a pair of registers."""
        low, high = values.astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)
        self.write(operand, low)
        if operand.value != (URZ if operand.kind is Kind.UNIFORM else RZ):
            self.write(operand._replace(value=operand.value + 1), high)
