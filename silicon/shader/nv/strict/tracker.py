"""The history of one warp: which results are in flight, when others were issued, which registers were written.

A reader of a register must come as many cycles after its writer as `latencies.py` says. Cycles are the stall counts of
the control words; on a card more may pass, so a program that keeps the rule here keeps it there. A result of variable
latency must be waited for through its scoreboard. Registers are tracked with the lanes that wrote them, because paths
of a warp interleave.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.silicon.shader.nv.decoding.instruction import NO_BARRIER, Instruction, Kind
from ringup.silicon.shader.nv.strict.latencies import (
    SCOREBOARD_CYCLES,
    SCOREBOARDED,
    Unit,
    issue_cycles,
    predicate_cycles,
    register_cycles,
    uniform_cycles,
    unit_of,
)

FILES = {"R": "register", "U": "uniform register", "P": "predicate", "Q": "uniform predicate"}
_NAMES = {"R": "R", "U": "UR", "P": "P", "Q": "UP"}
Register = tuple[str, int]
EVERY = 0xFFFF_FFFF
# No fixed latency is longer.
LONGEST = 26


class HazardError(Exception):
    """A register is used too early."""


class _Write(NamedTuple):
    cycle: int
    unit: Unit
    lanes: int
    # the scoreboard that must be waited for, NO_BARRIER if there is none; None for a fixed latency
    barrier: int | None
    text: str


class _Read(NamedTuple):
    # scoreboards of which any says that the source has been read
    barriers: tuple[int, ...]
    lanes: int
    text: str


class Tracker:
    """What one warp has in flight."""

    def __init__(self, target: str) -> None:
        self.target, self.cycle = target, 0
        self._writes: dict[Register, _Write] = {}
        self._reads: dict[Register, list[_Read]] = {}
        # the cycle in which an instruction last took a scoreboard
        self._scoreboards: dict[int, int] = {}
        # lanes that hold something
        self._defined: dict[Register, int] = {}
        self._ins: Instruction | None = None
        self._unit = Unit.SLOW
        self._mask = 0
        self._read: list[Register] = []
        self._written: list[Register] = []
        self._undefined = EVERY
        self._wide: dict[int, Unit] = {}

    def copy(self) -> Tracker:
        """Return a tracker that has the same in flight, for another path."""
        other = Tracker(self.target)
        other._writes = {
            key: one._replace(cycle=one.cycle - self.cycle)
            for key, one in self._writes.items()
            if one.barrier is not None or self.cycle - one.cycle <= LONGEST
        }
        other._reads = {key: list(reads) for key, reads in self._reads.items()}
        for number, cycle in self._scoreboards.items():
            if self.cycle - cycle < SCOREBOARD_CYCLES:
                other._scoreboards[number] = cycle - self.cycle
        return other

    def state(self) -> frozenset[object]:
        """Return what distinguishes this history from another one, of a fresh copy."""
        writes = ((key, one.cycle, one.unit, one.barrier) for key, one in self._writes.items())
        reads = ((key, one.barriers) for key, found in self._reads.items() for one in found)
        return frozenset((*writes, *reads, *self._scoreboards.items()))

    def begin(self, ins: Instruction) -> None:
        """Take up an instruction: its scoreboards have been waited for."""
        self._ins, self._unit = ins, unit_of(ins)
        self._read, self._written, self._undefined = [], [], EVERY
        self._wide = {}
        if self._unit is Unit.WIDE_LOW and ins.has("WIDE"):
            *_, a, b, c = (one for one in ins.operands if one.kind is not Kind.PREDICATE)
            if c.kind is Kind.REGISTER:
                self._wide = {c.value: Unit.WIDE_C_LOW, c.value + 1: Unit.WIDE_C_HIGH}
            for one in (a, b):
                if one.kind is Kind.REGISTER:
                    self._wide[one.value] = Unit.WIDE_FACTOR
        if ins.control.waits:
            self._wait(ins.control.waits)

    def _wait(self, mask: int) -> None:
        for barrier, cycle in self._scoreboards.items():
            if mask >> barrier & 1 and self.cycle - cycle < SCOREBOARD_CYCLES:
                raise HazardError(f"scoreboard {barrier} is waited for {self.cycle - cycle} cycle after it was taken")
        done = [key for key, one in self._writes.items() if one.barrier is not None and mask >> one.barrier & 1]
        for key in done:
            del self._writes[key]
        for key, reads in list(self._reads.items()):
            left = [one for one in reads if not any(mask >> barrier & 1 for barrier in one.barriers)]
            if left:
                self._reads[key] = left
            else:
                del self._reads[key]

    def lanes(self, mask: int) -> None:
        """Say which lanes execute the instruction."""
        self._mask = mask

    # accesses ---------------------------------------------------------------------------------------------------------

    def read(self, file: str, number: int, *, guard: bool = False, lanes: int | None = None) -> None:
        """Note that the instruction reads a register; raise `HazardError` if it is too early."""
        key = file, number
        mask = self._mask if lanes is None else lanes
        write = self._writes.get(key)
        if write is not None and (write.lanes & mask or file in "UQ"):
            if write.barrier is not None:
                raise HazardError(f"{_name(key)} is read before {_awaited(write.barrier)}: {write.text} writes it")
            needed = self._needed(write.unit, key, guard=guard)
            passed = self.cycle - write.cycle
            if passed < needed:
                raise HazardError(
                    f"{_name(key)} is read {passed} cycles after {write.text} began to write it; that takes {needed}"
                )
        if not guard:
            self._read.append(key)
            self._undefined &= ~self._defined.get(key, 0)

    def _needed(self, writer: Unit, key: Register, *, guard: bool) -> int:
        file, number = key
        if file == "R":
            reader = self._wide.get(number, Unit.WIDE_FACTOR if self._unit is Unit.WIDE_LOW else self._unit)
            return register_cycles(self.target, writer, reader)
        if file == "P":
            assert self._ins is not None
            is_vote = self._ins.name == "VOTE"
            reader = Unit.GUARD if guard else Unit.VOTE if is_vote else self._unit
            return predicate_cycles(self.target, writer, reader)
        is_guard = guard and self._unit is not Unit.BRANCH
        return uniform_cycles(writer, Unit.GUARD if is_guard else self._unit, predicate=file == "Q")

    def write(self, file: str, number: int) -> None:
        """Note that the instruction writes a register; raise `HazardError` if it is still in use."""
        key = file, number
        write = self._writes.get(key)
        if write is not None and write.barrier is not None and (write.lanes & self._mask or file in "UQ"):
            raise HazardError(f"{_name(key)} is overwritten before {_awaited(write.barrier)}: {write.text} writes it")
        for one in self._reads.get(key, ()):
            if one.lanes & self._mask or file in "UQ":
                awaited = _awaited(*one.barriers) if one.barriers else "a scoreboard has been waited for"
                raise HazardError(f"{_name(key)} is overwritten before {awaited}: {one.text} reads it")
        self._written.append(key)

    def is_undefined(self, file: str, number: int, lanes: int) -> int:
        """Return those of some lanes in which a register was never given a value."""
        return lanes & ~self._defined.get((file, number), 0)

    def finish(self) -> None:
        """Complete the instruction: what it wrote and read is in flight, and its stall count passes."""
        ins = self._ins
        assert ins is not None
        control, unit = ins.control, self._unit
        needed = issue_cycles(self.target, ins)
        if max(control.stall, 1) < needed:
            raise HazardError(f"the next instruction issues {control.stall} cycles after it; that takes {needed}")
        scoreboarded = unit in SCOREBOARDED
        if scoreboarded:
            barriers = tuple(one for one in (control.read_barrier, control.write_barrier) if one != NO_BARRIER)
            for key in set(self._read):
                self._reads.setdefault(key, []).append(_Read(barriers, self._mask, ins.text))
            for taken in barriers:
                self._scoreboards[taken] = self.cycle
        undefined = self._undefined if self._read else 0
        for place, key in enumerate(self._written):
            is_high = unit is Unit.WIDE_LOW and (place == 1 or ins.has("HI"))
            kind = Unit.WIDE_HIGH if is_high else unit
            barrier = control.write_barrier if scoreboarded else None
            self._writes[key] = _Write(self.cycle, kind, self._mask, barrier, ins.text)
            lanes = EVERY if key[0] in "UQ" else self._mask
            self._defined[key] = self._defined.get(key, 0) & ~lanes | lanes & ~undefined
        self.cycle += max(control.stall, 1)


def _name(key: Register) -> str:
    return f"{_NAMES[key[0]]}{key[1]}"


def _awaited(*barriers: int) -> str:
    used = [one for one in barriers if one != NO_BARRIER]
    if not used:
        return "it is complete, and no scoreboard says when"
    return f"scoreboard {' or '.join(map(str, used))} has been waited for"
