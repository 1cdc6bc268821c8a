"""Prints the RDNA code of one kernel after each pass. A virtual register keeps the number it was first printed with."""

from __future__ import annotations

from ringup.compiler.amd.instructions.code import Block, Code, Instr, Operand, Part, Reg, Signed
from ringup.compiler.amd.instructions.names import spelled
from ringup.compiler.amd.instructions.steps import Pair

INDENT = "  "


class Printer:
    """Prints the same kernel any number of times, with the same names for the same registers and blocks."""

    def __init__(self) -> None:
        self._regs: dict[Reg, str] = {}
        self._blocks: dict[Block, str] = {}
        self._target = ""

    def text(self, code: Code) -> str:
        """Return the code: blocks with their labels, and instructions indented by the loops around them."""
        self._target = code.target
        for block in code.blocks:
            self._label(block)
        lines = [
            f"{code.name}: {code.target}, groups of {code.group_size}, waves of {code.wave_size}, {code.lds_bytes} bytes of LDS"
        ]
        for block in code.blocks:
            loop = f"  loop to {self._label(block.loop_end)}" if block.loop_end is not None else ""
            lines.append(f"{self._label(block)}:{loop}")
            lines += [f"{INDENT * (block.depth + 1)}{self.instr(one)}" for one in block.instrs]
        return "\n".join(lines) + "\n"

    def instr(self, instr: Instr) -> str:
        """Return one instruction."""
        if isinstance(instr, Pair):
            return f"{self.instr(instr.x)} :: {self.instr(instr.y)}"
        modifiers = "".join(f" {name}:{value}" for name, value in instr.modifiers.items())
        note = f"  // {instr.note}" if instr.note else ""
        return (
            f"{spelled(self._target, instr.mnemonic)} {', '.join(map(self._operand, instr.operands))}".rstrip()
            + modifiers
            + note
        )

    def _operand(self, operand: Operand) -> str:
        if isinstance(operand, Reg):
            return self._reg(operand) + (f":{operand.count}" if operand.count > 1 else "")
        if isinstance(operand, Part):
            last = operand.first + operand.count - 1
            return f"{self._reg(operand.reg)}[{operand.first}{f':{last}' if operand.count > 1 else ''}]"
        if isinstance(operand, Signed):
            plain = self._operand(operand.source)
            plain = f"|{plain}|" if operand.abs else plain
            return f"-{plain}" if operand.neg else plain
        if isinstance(operand, Block):
            return self._label(operand)
        return str(operand)

    def _reg(self, reg: Reg) -> str:
        found = self._regs.get(reg)
        if found is None:
            found = self._regs[reg] = f"{reg.bank}%{len(self._regs)}" + (f".{reg.name}" if reg.name else "")
        return found

    def _label(self, block: Block) -> str:
        if block not in self._blocks:
            self._blocks[block] = f"b{len(self._blocks)}"
        return self._blocks[block]
