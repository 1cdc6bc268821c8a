"""The control word of an instruction, bits 105 to 125: what the compiler tells the scheduler.

Text: `[B01----:R2:W0:Y:S04]`. `B`: the scoreboards 0 to 5 to wait for before the instruction issues. `R`: the
scoreboard that is released when its sources are read, `W`: when its result is written, `-` for none. `Y`: the warp may
yield to another after it, `-`: it stays. `S`: the cycles until the warp's next instruction may issue. The notation is
that of the public assemblers maxas and CuAssembler. Source of the bits: Mesa NAK, sm70_encode.rs, set_instr_deps.
"""

from __future__ import annotations

import re
from typing import NamedTuple

STALL, STAY, WRITE, READ, WAIT, REUSE = 105, 109, 110, 113, 116, 122
# No scoreboard.
NONE = 7
CONTROL_MASK = (1 << 126) - (1 << 105)
_PATTERN = re.compile(r"\[B([-0-5]{6}):R([-0-6]):W([-0-6]):([Y-]):S(\d\d?)(?::T([0-7]))?(?::\^([0-9a-fA-F]+))?\]")


class Control(NamedTuple):
    """A control word. `stall` is 0 to 15 cycles; `write` and `read` are scoreboards 0 to 6, 7 for none; `wait` has one
    bit for each scoreboard. `stay`: the warp does not yield.

    `hint`: bits 122 to 125, apart from the registers kept for reuse.
    """

    stall: int = 1
    stay: int = 0
    write: int = NONE
    read: int = NONE
    wait: int = 0
    hint: int = 0

    def bits(self) -> int:
        """Return the word's bits at their places in the instruction."""
        return (
            self.stall << STALL
            | self.stay << STAY
            | self.write << WRITE
            | self.read << READ
            | self.wait << WAIT
            | self.hint << REUSE
        )

    def text(self, rest: int = 0) -> str:
        """Return the control word as text. `rest`: bits of the instruction that its text does not show."""
        waits = "".join(str(each) if self.wait >> each & 1 else "-" for each in range(6))
        read, write = ("-" if each == NONE else str(each) for each in (self.read, self.write))
        hint = f":T{self.hint}" if self.hint else ""
        return (
            f"[B{waits}:R{read}:W{write}:{'-' if self.stay else 'Y'}:S{self.stall:02}{hint}"
            + (f":^{rest:x}" if rest else "")
            + "]"
        )


def of(word: int) -> Control:
    """Return the control word of an instruction. Registers kept for reuse count as a hint."""
    return Control(
        word >> STALL & 15, word >> STAY & 1, word >> WRITE & 7, word >> READ & 7, word >> WAIT & 63, word >> REUSE & 15
    )


def parse(text: str) -> tuple[Control, int]:
    """Read a control word, and the bits that the instruction's text does not show. Raises ValueError."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is no control word; one looks like [B01----:R2:W0:Y:S04]")
    wait = 0
    for place, each in enumerate(match[1]):
        if each not in ("-", str(place)):
            raise ValueError(f"{text}: scoreboard {each} stands at the place of {place}")
        wait |= (each != "-") << place
    read, write = (NONE if each == "-" else int(each) for each in (match[2], match[3]))
    stall = int(match[5])
    if stall > 15:
        raise ValueError(f"{text}: a stall of {stall} cycles; at most 15")
    control = Control(stall, int(match[4] == "-"), write, read, wait, int(match[6] or "0"))
    return control, int(match[7] or "0", 16)
