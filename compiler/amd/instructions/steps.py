"""Instructions with their reads and writes as numbers: the form that the passes work on. It is built once, and each
pass keeps it up to date.

A *unit* is one dword of a register file. Units 0 to 7 are the named registers (`effects.py`). Then come virtual
registers in the order of their first appearance, and after allocation the physical ones (`VGPR`, `SGPR`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ringup.compiler.amd.instructions.code import Block, Code, Instr, Operand, Part, Physical, Reg, Signed, Special
from ringup.compiler.amd.instructions.effects import SPECIAL_UNITS, VCC_HI, VCC_LO, Effects, EffectTable, effects
from ringup.errors import CompileError

# The first unit that is not a special register.
FIRST: Final = 8
# The unit of v0 after allocation.
VGPR: Final = 8
# The unit of s0.
SGPR: Final = VGPR + 256
# The number of VCC among the SGPRs.
VCC_SGPR: Final = 106


class Step:
    """One instruction, its effects, and the units that it reads (each once) and writes."""

    __slots__ = ("effects", "instr", "reads", "writes")

    def __init__(self, instr: Instr, effects: Effects, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        self.instr, self.effects, self.reads, self.writes = instr, effects, reads, writes

    def __repr__(self) -> str:
        return repr(self.instr)


class Pair(Instr):
    """Two vector instructions issued as one (VOPD). Its operands are those of `x` and then those of `y`."""

    __slots__ = ("x", "y")

    def __init__(self, x: Instr, y: Instr) -> None:
        super().__init__(f"{x.mnemonic}::{y.mnemonic}", *x.operands, *y.operands)
        self.x, self.y = x, y

    def __repr__(self) -> str:
        return f"{self.x!r} :: {self.y!r}"


class Program:
    """A `Code` while passes work on it: blocks of steps, and the numbers of its virtual registers."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.table: EffectTable = effects(code.target)
        self.wave_size = code.wave_size
        self.regs: list[Reg] = []
        self.base: dict[Reg, int] = {}
        self.unit_count = FIRST
        for reg in code.inputs:
            self.number(reg)
        self.blocks: list[list[Step]] = [[self.step(instr) for instr in block.instrs] for block in code.blocks]

    def number(self, reg: Reg) -> int:
        """Return the first unit of a virtual register."""
        found = self.base.get(reg)
        if found is None:
            found = self.base[reg] = self.unit_count
            self.unit_count += reg.count
            self.regs.append(reg)
        return found

    def units(self, operand: Operand) -> Iterable[int]:
        """Return the units of an operand; constants and labels have none."""
        if isinstance(operand, Reg):
            first = self.base.get(operand, -1)
            if first < 0:
                first = self.number(operand)
            return (first,) if operand.count == 1 else range(first, first + operand.count)
        if isinstance(operand, Part):
            reg, count = operand.reg, operand.count
            if operand.first < 0 or operand.first + count > reg.count:
                raise CompileError(f"{operand} is outside {reg}, which has {reg.count} dwords")
            first = self.number(reg) + operand.first
            return (first,) if count == 1 else range(first, first + count)
        if isinstance(operand, Physical):
            return physical_units(operand)
        if isinstance(operand, Special):
            units = SPECIAL_UNITS.get(operand.name)
            if units is None:
                raise CompileError(f"no special register is called {operand.name}")
            return units
        return self.units(operand.source) if isinstance(operand, Signed) else ()

    def step(self, instr: Instr) -> Step:
        """Return the step of one instruction."""
        if isinstance(instr, Pair):
            x, y = self.step(instr.x), self.step(instr.y)
            return Step(instr, x.effects, x.reads + y.reads, x.writes + y.writes)
        found = self.table.of(instr)
        operands, reads, writes, units = instr.operands, list(found.hidden_uses), list(found.hidden_defs), self.units
        for i in found.uses:
            operand = operands[i]
            if type(operand) is not int:
                reads += units(operand)
        for i in found.defs:
            writes += units(operands[i])
        if len(reads) > 1 and len(set(reads)) < len(reads):
            reads = list(dict.fromkeys(reads))
        return Step(instr, found, tuple(reads), tuple(writes))

    def write_back(self) -> Code:
        """Store the steps' instructions in the code's blocks, for printing."""
        for block, steps in zip(self.code.blocks, self.blocks, strict=True):
            block.instrs = [step.instr for step in steps]
        return self.code

    def edges(self) -> list[tuple[int, ...]]:
        """Return for each block the numbers of the blocks that may follow it."""
        place = {block: i for i, block in enumerate(self.code.blocks)}
        found = []
        for i, steps in enumerate(self.blocks):
            after: list[int] = []
            falls = True
            for step in steps:
                if step.effects.branch:
                    after += [place[one] for one in step.instr.operands if isinstance(one, Block)]
                    falls = step.instr.mnemonic.startswith("s_cbranch")
            if falls and i + 1 < len(self.blocks):
                after.append(i + 1)
            found.append(tuple(dict.fromkeys(after)))
        return found


def physical_units(operand: Physical) -> Iterable[int]:
    """Return the units of a physical register range."""
    bank, first, count = operand.bank, operand.first, operand.count
    if bank == "v":
        return range(VGPR + first, VGPR + first + count)
    if first < VCC_SGPR:
        return range(SGPR + first, SGPR + first + count)
    return tuple((VCC_LO, VCC_HI)[first + i - VCC_SGPR] for i in range(count))


def split_blocks(code: Code) -> None:
    """Split blocks after every branch that is not their last instruction, so that control leaves blocks only at their
    ends.
    """
    blocks: list[Block] = []
    for block in code.blocks:
        rest, start, made = block.instrs, 0, block
        for i, instr in enumerate(rest[:-1]):
            if instr.mnemonic.startswith(("s_branch", "s_cbranch", "s_endpgm")):
                made.instrs = rest[start : i + 1]
                blocks.append(made)
                made, start = Block(f"{block.name}.{len(blocks)}", block.depth), i + 1
        made.instrs = rest[start:]
        blocks.append(made)
        if made is not block:
            for other in code.blocks:
                if other.loop_end is block:
                    other.loop_end = made
    code.blocks = blocks
