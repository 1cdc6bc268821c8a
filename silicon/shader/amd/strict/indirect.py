"""Strict rules for moves whose registers M0 selects at run time.

They give the registers that such a move may access, and the effect of undefined ones among them. A move passes its
value on. A register that the move may have written keeps its state, and becomes undefined if a register that the move
may have read is undefined. Source: RDNA3 ISA reference, "VGPR Indexing", "S_MOVRELSD_2_B32", "V_MOVRELSD_2_B32",
"V_SWAPREL_B32"; CDNA3 ISA reference, "VGPR Indexing".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR, INDIRECT, registers
from ringup.silicon.shader.amd.decoding.gcn import INDEXED, INDEXED_PREFIX
from ringup.silicon.shader.amd.strict.registers import REGIONS
from ringup.silicon.shader.common import state

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand


INDEXED_MOVE = f"{INDEXED_PREFIX}mov_b32"


class Side(NamedTuple):
    """A register operand of a move.

    `bits` are the bits of M0 (lowest, count) that are added to its number; None if none are. On CDNA they are added if
    bit `gate` of M0 is set.
    """

    operand: Operand
    bits: tuple[int, int] | None
    gate: int | None = None

    @property
    def first(self) -> int:
        """The first register when M0 is 0, numbered as in `analysis`."""
        return self.operand.index + (FIRST_VGPR if self.operand.kind == "vgpr" else 0)

    def reached(self, lanes: int) -> int:
        """Return the registers that the operand may be."""
        if self.bits is None or self.operand.index == state.NULL:
            return registers(self.operand, lanes)
        high = (
            next(end for low, end in REGIONS if low <= self.first < end)
            if self.operand.kind == "sgpr"
            else FIRST_VGPR + state.FIRST_ACC
        )
        return (1 << high) - 1 >> self.first << self.first


class Move(NamedTuple):
    """What a move by M0 writes, and its source; None for a constant."""

    target: Side
    source: Side | None


def is_indirect(ins: Instruction) -> bool:
    """Return whether M0 selects registers of an instruction."""
    return ins.mnemonic.startswith(INDIRECT)


def sides(ins: Instruction) -> tuple[Side, ...]:
    """Return the register operands of a move by M0, the target first."""
    name = ins.mnemonic
    if name.startswith(INDEXED_PREFIX):
        return tuple(
            Side(one, (0, 8), INDEXED[one.field]) if one.kind == "vgpr" and one.field in INDEXED else Side(one, None)
            for one in ins.operands
            if one.kind in ("vgpr", "sgpr")
        )
    whole, low, high = (0, 32), (0, 10), (16, 10)
    by_source, by_target = (low, high) if "_2_" in name or "swap" in name else (whole, whole)
    found = []
    for operand in ins.operands:
        is_target = operand.direction != "use" and operand is ins.operands[0]
        moves = "rels" not in name or "relsd" in name if is_target else "reld" not in name
        if operand.kind in ("vgpr", "sgpr"):
            found.append(Side(operand, (by_target if is_target else by_source) if moves else None))
    return tuple(found)


def moves(ins: Instruction) -> tuple[Move, ...]:
    """Return the moves of an instruction by M0: two for a swap, none for any other instruction."""
    if not is_indirect(ins):
        return ()
    if ins.mnemonic.startswith(INDEXED_PREFIX) and ins.mnemonic != INDEXED_MOVE:
        raise Unmodelled(f"strict mode: {ins.spelling} whose registers M0 selects")
    target, *sources = sides(ins)
    source = sources[-1] if sources else None
    there = Move(target, source)
    if source is None or "swap" not in ins.mnemonic:
        return (there,)
    return there, Move(source, target)


def reached(ins: Instruction, lanes: int) -> int:
    """Return the registers that a move by M0 may access."""
    found = 1 << state.M0
    for side in sides(ins):
        found |= side.reached(lanes)
    return found
