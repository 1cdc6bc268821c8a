"""Creates tuples of consecutive registers for one instruction: single registers become parts of a new wide one,
everywhere in the program.

That needs no copy, so it is done only for registers without other constraints: whole registers that one instruction
writes, that are not inputs, and that no copy connects with another register (coalescing could remove such a copy).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ringup.compiler.amd.instructions.code import Operand, Part, Reg, Signed
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.registers.coalesce import is_copy


class Tuples:
    """The tuples of a program, made from `candidates`. `rename` applies all of them."""

    def __init__(self, program: Program, candidates: Iterable[Operand]) -> None:
        self._program = program
        self._part_of: dict[Reg, Part] = {}
        self._touching: list[Step] = []
        units = {unit: one for one in candidates if isinstance(one, Reg) for unit in program.units(one)}
        wanted = units.keys()
        times: dict[int, int] = {}
        tied: set[Reg] = set(program.code.inputs)
        for steps in program.blocks if units else ():
            for step in steps:
                writes = not wanted.isdisjoint(step.writes)
                if writes or not wanted.isdisjoint(step.reads):
                    self._touching.append(step)
                    if writes:
                        for unit in step.writes:
                            times[unit] = times.get(unit, 0) + 1
                    if is_copy(step):
                        tied.update(units[unit] for unit in (*step.reads, *step.writes) if unit in units)
        self._align = limits(program.code.target).vgpr_align
        self._once = set(units.values()) - {one for unit, one in units.items() if times.get(unit) != 1}
        self._free = {one for one in self._once if one not in tied and one.fixed is None}

    def written_once(self, operand: Operand) -> bool:
        """Return whether a candidate is a whole register that one instruction writes."""
        return operand in self._once

    def of(self, operands: Sequence[Operand]) -> Reg | Part | None:
        """Return a register that holds the operands consecutively: a part of their common one, or a new one for `take`;
        None if neither is possible.
        """
        placed = [self.renamed(one) for one in operands]
        parts = [one for one in placed if isinstance(one, Part)]
        if len(parts) == len(operands):
            first, count = parts[0], 0
            for one in parts:
                if one.reg is not first.reg or one.first != first.first + count:
                    return None
                count += one.count
            return Part(first.reg, first.first, count)
        regs = [one for one in placed if isinstance(one, Reg) and one in self._free]
        if len(set(regs)) < len(operands):
            return None
        at = 0
        for reg in regs:
            if reg.count > 1 and at % self._align:
                return None
            at += reg.count
        return Reg("v", sum(one.count for one in regs))

    def take(self, operands: Sequence[Operand], into: Reg) -> None:
        """Register the operands as parts of a register; `rename` applies it."""
        at = 0
        for one in operands:
            if isinstance(one, Reg):
                self._part_of[one] = Part(into, at, one.count)
                at += one.count

    def rename(self) -> None:
        """Apply the tuples to all operands and units of the existing steps."""
        program, part_of = self._program, self._part_of
        if not part_of:
            return
        unit_of: dict[int, int] = {}
        for reg, part in part_of.items():
            unit_of.update(zip(program.units(reg), program.units(part), strict=True))
        for step in self._touching:
            step.instr.operands = [self.renamed(one) for one in step.instr.operands]
            step.reads = tuple([unit_of.get(unit, unit) for unit in step.reads])
            step.writes = tuple([unit_of.get(unit, unit) for unit in step.writes])
        program.regs = [reg for reg in program.regs if reg not in part_of]
        for reg in part_of:
            del program.base[reg]

    def renamed(self, one: Operand) -> Operand:
        """Return the name that an operand has after `rename`."""
        if isinstance(one, Reg):
            return self._part_of.get(one, one)
        if isinstance(one, Part):
            whole = self._part_of.get(one.reg)
            return one if whole is None else Part(whole.reg, whole.first + one.first, one.count)
        return Signed(self.renamed(one.source), one.neg, one.abs) if isinstance(one, Signed) else one
