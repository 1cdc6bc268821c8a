"""RDNA instructions on virtual registers. Selection creates them, and the passes after it work on them until registers
are physical and bytes are encoded.

The form is not single assignment: a virtual register may be written more than once (a loop's carried value, an
accumulator). An instruction that also reads its destination (`v_fmac_f32`) names one register for both. The mnemonic
determines what an instruction reads and writes besides its operands (VCC, EXEC, SCC, M0, memory, counters):
`effects.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

Bank = Literal["v", "s"]


class Reg:
    """A virtual register: `count` consecutive VGPRs or SGPRs. SGPRs of 2 dwords are aligned to 2, of 4 and more to 4.
    Two registers are equal only if they are the same object.

    `fixed` is the physical number it must have (inputs of a kernel, operands that an instruction requires there).
    `name` is for the printed text. A 16-bit value is in the low half of its VGPR; the high half is undefined. A
    condition that varies between lanes is a mask in SGPRs (1 for wave32, 2 for wave64).
    """

    __slots__ = ("bank", "count", "fixed", "name")

    def __init__(self, bank: Bank, count: int = 1, *, name: str = "", fixed: int | None = None) -> None:
        self.bank, self.count, self.name, self.fixed = bank, count, name, fixed

    def __repr__(self) -> str:
        return f"{self.bank}%{self.name or hex(id(self))[-5:]}{f':{self.count}' if self.count > 1 else ''}"

    def __getitem__(self, index: int | slice) -> Part:
        if isinstance(index, slice):
            first, stop = index.start or 0, self.count if index.stop is None else index.stop
            return Part(self, first, stop - first)
        return Part(self, index, 1)


class Part:
    """Some dwords of a virtual register, as an operand."""

    __slots__ = ("count", "first", "reg")

    def __init__(self, reg: Reg, first: int, count: int) -> None:
        self.reg, self.first, self.count = reg, first, count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and (self.reg, self.first, self.count) == (other.reg, other.first, other.count)

    def __hash__(self) -> int:
        return hash((self.reg, self.first, self.count))

    def __repr__(self) -> str:
        last = self.first + self.count - 1
        return f"{self.reg}[{self.first}]" if self.count == 1 else f"{self.reg}[{self.first}:{last}]"


class Physical:
    """A range of physical registers, to which allocation assigns a register or a part. The same range is always the
    same object (`physical`).
    """

    __slots__ = ("bank", "count", "first")

    def __init__(self, bank: Bank, first: int, count: int) -> None:
        self.bank, self.first, self.count = bank, first, count

    def __repr__(self) -> str:
        if self.bank == "s" and self.first >= 106:
            return {(106, 1): "vcc_lo", (106, 2): "vcc", (107, 1): "vcc_hi"}[self.first, self.count]
        if self.count == 1:
            return f"{self.bank}{self.first}"
        return f"{self.bank}[{self.first}:{self.first + self.count - 1}]"


physical = cache(Physical)


class Special(NamedTuple):
    """A named register, as the text spells it: vcc, vcc_lo, exec, exec_lo, m0, null, scc."""

    name: str

    def __str__(self) -> str:
        return self.name


class Signed(NamedTuple):
    """A source with a sign change."""

    source: Operand
    neg: bool = False
    abs: bool = False

    def __str__(self) -> str:
        plain = f"|{self.source}|" if self.abs else f"{self.source}"
        return f"-{plain}" if self.neg else plain


VCC, VCC_LO, EXEC, EXEC_LO, M0, NULL, SCC, OFF = map(
    Special, ("vcc", "vcc_lo", "exec", "exec_lo", "m0", "null", "scc", "off")
)
Operand: TypeAlias = "Reg | Part | Physical | Special | Signed | Block | int | float"


class Instr:
    """One instruction: the mnemonic as LLVM spells it without an encoding suffix, the operands in the order of the
    text, the modifiers by LLVM's names.

    A branch's operand is the `Block` it goes to. `note` is a comment for the printed text. `buffer` identifies the
    memory that a memory instruction accesses (any value; different ones never overlap). If it is None, the base
    register determines the memory; if that is not a kernel argument, it may be any.
    """

    __slots__ = ("buffer", "mnemonic", "modifiers", "note", "operands")

    def __init__(self, mnemonic: str, *operands: Operand, note: str = "", **modifiers: object) -> None:
        self.mnemonic, self.operands, self.modifiers, self.note = mnemonic, list(operands), modifiers, note
        self.buffer: object = None

    def __repr__(self) -> str:
        parts = ", ".join(map(str, self.operands))
        return f"{self.mnemonic} {parts}" + "".join(f" {name}:{value}" for name, value in self.modifiers.items())


@dataclass(slots=True, eq=False)
class Block:
    """Straight-line code. Control falls through to the next block unless the last instruction is an unconditional
    branch or s_endpgm.

    `depth` counts the loops around it. `loop_end` is set on the first block of a loop: it is the last block of that
    loop, which branches back.
    """

    name: str
    depth: int = 0
    instrs: list[Instr] = field(default_factory=list)
    loop_end: Block | None = None

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Code:
    """One kernel's instructions. `inputs` are the registers (with `fixed`) that hold a value at its start.

    The dispatcher puts the kernarg pointer into the first two SGPRs. `group_ids` says which of the group's numbers
    follow. Selection is responsible for the alignment of memory operands. `scratch_bytes` (per lane) grows by spilling.
    """

    name: str
    target: str
    blocks: list[Block]
    inputs: list[Reg]
    kernarg_bytes: int
    group_size: int
    wave_size: int = 32
    lds_bytes: int = 0
    group_ids: tuple[bool, bool, bool] = (True, False, False)
    scratch_bytes: int = 0

    def release(self) -> None:
        """Free the instructions, which must not be used afterwards. Loops refer to themselves, so without this only the
        garbage collector would free them.
        """
        for block in self.blocks:
            block.instrs.clear()
            block.loop_end = None

    def __str__(self) -> str:
        lines = []
        for block in self.blocks:
            lines.append(f"{block.name}:")
            lines += [f"{'  ' * (block.depth + 1)}{instr}" for instr in block.instrs]
        return "\n".join(lines)
