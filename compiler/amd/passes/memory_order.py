"""Decides which memory accesses may not be reordered: which buffer each accesses, and where they are known not to
overlap.

Two kernel arguments never overlap (selection gives each buffer one argument). A base register that one scalar load
writes, and nothing else, stands for its argument; any other base may point anywhere. Within one buffer, accesses
through the same unchanged address registers do not overlap if their offsets do not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ringup.compiler.amd.instructions.code import Instr
from ringup.compiler.amd.instructions.steps import FIRST, Program, Step

_SIZE = re.compile(r"_[biuf](8|16|32|64|96|128)(?:_|$)|_(2addr)")
# Accesses of a kind that are tracked separately. Beyond that, the last one stands for all.
MAX_KEPT = 64


class Place(NamedTuple):
    """One access: its buffer (None: any), the address registers with their writers, the first byte and the end of its
    offsets, and whether it writes and reads.
    """

    owner: object
    address: tuple[object, ...]
    first: int
    end: int
    writes: bool
    reads: bool


class Roots:
    """Finds the kernel argument behind a base register."""

    def __init__(self, program: Program) -> None:
        self._units = program.units
        times: dict[int, int] = {}
        origin: dict[int, int | tuple[str, int]] = {}
        inputs = {unit for reg in program.code.inputs for unit in program.units(reg)}
        for steps in program.blocks:
            for step in steps:
                instr = step.instr
                name = instr.mnemonic
                if name[0] != "s":
                    continue
                argument = None
                if step.effects.memory == "scalar" and inputs.issuperset(program.units(instr.operands[1])):
                    # An offset in the argument segment: the same offset is the same argument, even if loaded twice.
                    argument = instr.operands[2]
                moves = name in ("s_mov_b32", "s_mov_b64")
                for k, unit in enumerate(step.writes):
                    if unit >= FIRST:
                        times[unit] = times.get(unit, 0) + 1
                        if isinstance(argument, int):
                            origin[unit] = ("argument", argument + 4 * k)
                        elif moves and k < len(step.reads):
                            origin[unit] = step.reads[k]
        self._origin, self._times = origin, times

    def owner(self, unit: int) -> object:
        """Return the kernel argument that a register holds a copy of, or None."""
        for _ in range(8):
            source = self._origin.get(unit)
            if source is None or self._times[unit] != 1:
                return None
            if isinstance(source, tuple):
                return source
            unit = source
        return None

    def place(self, step: Step, writer: dict[int, int]) -> Place:
        """Describe an access. `writer` holds the step that last wrote each address register."""
        instr, effects = step.instr, step.effects
        access = effects.access
        owner: object
        data = set(effects.defs) | _data_positions(instr, effects.memory, access)
        address: list[object] = []
        base = None
        for i in effects.uses:
            if i not in data:
                operand = instr.operands[i]
                units = tuple(self._units(operand))
                if not units:
                    address.append(operand if isinstance(operand, int) else str(operand))
                for unit in units:
                    address.append((unit, writer.get(unit, -1)))
                base = units[0] if units and effects.memory == "global" and i == _base_position(instr) else base
        if effects.memory in ("lds", "scratch"):
            owner = effects.memory
        elif instr.buffer is not None:
            owner = ("buffer", instr.buffer)
        else:
            owner = self.owner(base) if base is not None else None
        first, end = _span(instr)
        return Place(owner, tuple(address), first, end, access != "read", access not in ("write",))


def _base_position(instr: Instr) -> int:
    """Return the position of the scalar base: saddr is last; in buffer instructions, the descriptor stands before
    soffset.
    """
    return len(instr.operands) - (2 if instr.mnemonic.startswith(("buffer", "tbuffer")) else 1)


def _data_positions(instr: Instr, memory: str, access: str) -> set[int]:
    """Return the positions of operands with stored data."""
    if access == "read":
        return set()
    if memory in ("lds", "global", "scratch", "flat"):
        if instr.mnemonic.startswith(("buffer", "tbuffer")):
            return {0}
        return {1, 2} if memory == "lds" else {1} if access in ("write", "update") else {2}
    return set()


def _span(instr: Instr) -> tuple[int, int]:
    """Return the bytes of an access relative to its address registers. An unknown size covers everything."""
    found = _SIZE.search(instr.mnemonic)
    modifiers = instr.modifiers
    if (
        found is None
        or found[2]
        or "offset0" in modifiers
        or "offset1" in modifiers
        or "permute" in instr.mnemonic
        or "addtid" in instr.mnemonic
    ):
        return -(1 << 40), 1 << 40
    offset = modifiers.get("offset", 0)
    first = offset if isinstance(offset, int) else 0
    return first, first + int(found[1]) // 8


def memory_edges(accesses: list[tuple[int, Place]]) -> list[tuple[int, int]]:
    """Return pairs (earlier, later) that must keep their order."""
    found: list[tuple[int, int]] = []
    writes: dict[object, list[tuple[int, Place]]] = {}
    reads: dict[object, list[tuple[int, Place]]] = {}
    for j, place in accesses:
        owner = place.owner
        owners = (
            [owner]
            if isinstance(owner, str)
            else [one for one in (*writes, *reads) if not isinstance(one, str)]
            if owner is None
            else [owner, None]
        )
        for one in dict.fromkeys(owners):
            for i, other in writes.get(one, ()):
                if not _apart(place, other):
                    found.append((i, j))
            if place.writes:
                for i, other in reads.get(one, ()):
                    if not _apart(place, other):
                        found.append((i, j))
        kept = (writes if place.writes else reads).setdefault(owner, [])
        kept.append((j, place))
        if len(kept) >= MAX_KEPT:
            found += [(i, j) for i, _ in kept[:-1]]
            kept[:] = [(j, place._replace(address=("all of them",), first=-(1 << 40), end=1 << 40))]
    return found


def _apart(one: Place, other: Place) -> bool:
    return (
        one.address == other.address and one.owner == other.owner and (one.end <= other.first or other.end <= one.first)
    )
