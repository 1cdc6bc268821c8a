"""What a word of a program says: name, modifiers, operands, guard, control word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

WORD_BYTES = 16
# Numbers of registers that read as zero or true and that drop what is written.
RZ, URZ, PT = 255, 63, 7
NO_BARRIER = 7


class Kind(Enum):
    """What an operand is."""

    REGISTER = "R"
    UNIFORM = "U"
    PREDICATE = "P"
    UNIFORM_PREDICATE = "Q"
    # a convergence barrier
    BARRIER = "B"
    SCOREBOARD = "S"
    # raw bits
    IMMEDIATE = "immediate"
    CONSTANT = "constant"
    ADDRESS = "address"
    # bytes from the next instruction
    TARGET = "target"
    # a special register, a word
    NAME = "name"


class Operand(NamedTuple):
    """One operand.

    `value`: the number of a register, raw bits of an immediate, byte offset of a constant or an address. `bank`: number
    of the constant bank, -1 if a descriptor in uniform register `uniform` selects it. `register`: the register that is
    added to an offset, -1 for none, times `scale`. `is_wide`: it is a pair of registers. `half`: H0_H0, H1_H1 or none.
    """

    kind: Kind
    value: int = 0
    negate: bool = False
    absolute: bool = False
    invert: bool = False
    half: str = ""
    bank: int = 0
    register: int = -1
    uniform: int = -1
    is_wide: bool = False
    scale: int = 1
    name: str = ""


class Control(NamedTuple):
    """The control word: how the scheduler treats an instruction.

    `stall`: cycles until the next instruction of the warp may issue. `yields`: bit 109. `write_barrier` is released
    when the results are written, `read_barrier` when the operands have been read; 7: none. The instruction waits for
    the scoreboards of `waits`.
    """

    stall: int
    yields: bool
    write_barrier: int
    read_barrier: int
    waits: int
    reuse: int


@dataclass(frozen=True)
class Instruction:
    """A decoded word. `modifiers` are in the order of the text, without dots."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand
    control: Control
    word: int
    text: str

    def has(self, modifier: str) -> bool:
        """Return whether the instruction has a modifier."""
        return modifier in self.modifiers

    @property
    def is_guarded(self) -> bool:
        """Whether lanes may skip it."""
        return self.guard.value != PT or self.guard.invert


def control_of(word: int) -> Control:
    """Return the control word. Source: Mesa's NAK, sm70_encode.rs, set_instr_deps."""
    return Control(
        stall=word >> 105 & 15, yields=bool(word >> 109 & 1), write_barrier=word >> 110 & 7,
        read_barrier=word >> 113 & 7, waits=word >> 116 & 63, reuse=word >> 122 & 15,
    )  # fmt: skip
