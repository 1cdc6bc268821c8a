"""Machine code to `Instruction`s: what interpreter and translator share. Facts come from `autogen.isa`, no meaning is given here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["vgpr", "sgpr", "constant", "off"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand. Scalar registers of every sort are `sgpr` by encoding number (vcc 106, ttmp0 108, null 124, m0 125, exec 126).

    `bits` is a constant's value as the operand's type takes it: inline integers sign-extended to `size_bits`, inline floats in the
    operand's own float type, literals as the ISA widens them; for `imm` fields (simm16, offsets) the sign-extended integer, masked to 64 bits.
    Special sources have negative `index` and kind `constant`: SCC, apertures, see SPECIAL.
    """

    kind: Kind
    index: int
    size_bits: int  # 16, 32, 64, 96, ... ; 0 for what is no register
    type: str  # f32, u16, b64, mask, ...; from the mnemonic
    direction: str  # def, use, both
    field: str  # encoding field, or implied
    bits: int = 0
    neg: bool = False
    abs: bool = False
    high: bool = False  # op_sel: the high half of a 16-bit operand
    # packed operands (VOP3P): which half feeds each half of the result, and its sign change
    sel: tuple[bool, bool] = (False, True)
    neg_halves: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class Dpp:
    """A lane permutation of src0. `ctrl` is DPP16's dpp_ctrl; `lanes` the eight selectors of DPP8."""

    ctrl: int = 0
    row_mask: int = 0xF
    bank_mask: int = 0xF
    bound_ctrl: bool = False
    fetch_inactive: bool = False
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction. A dual instruction (VOPD) has two `parts` that read their sources before either writes."""

    mnemonic: str
    format: str
    op: int
    size_bytes: int
    raw: bytes
    operands: tuple[Operand, ...]
    fields: dict[str, int]  # every encoding field by name: offset, glc, simm16, ... as raw unsigned numbers
    dpp: Dpp | None = None
    clamp: bool = False
    omod: int = 0
    literal: int | None = None
    parts: tuple[Instruction, ...] = ()
    flags: frozenset[str] = frozenset()

    @property
    def uses(self) -> tuple[Operand, ...]:
        """Operands read, in the order of the text."""
        return tuple(one for one in self.operands if one.direction != "def")

    @property
    def defs(self) -> tuple[Operand, ...]:
        """Operands written."""
        return tuple(one for one in self.operands if one.direction != "use")
