"""What the vector ALU of GCN does to operands and results besides RDNA's: parts of registers (SDWA), indexed registers.

Source: CDNA3 ISA reference, "SDWA", "VGPR Indexing", "S_SET_GPR_IDX_ON".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.silicon.shader.amd.decoding.gcn import INDEXED, MODE_INDEXED, PRESERVE, SIGN_EXTEND, part
from ringup.silicon.shader.amd.interpreter.step import Exit
from ringup.silicon.shader.common.state import M0, MODE

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.interpreter.step import Step, Words

_U32 = np.uint32


def _extended(values: Words, bits: int) -> Words:
    sign = _U32(1 << bits - 1)
    found: Words = (values ^ sign) - sign
    return found


def selected(operand: Operand, values: Any) -> Any:
    """Return the byte or word of a source that SDWA selects, extended to its type."""
    low, bits = part(operand.select)
    found = values >> _U32(low) & _U32((1 << bits) - 1)
    if operand.extends:
        found = _extended(found, bits)
    return found & _U32(0xFFFF) if operand.size_bits == 16 else found


def placed(ins: Instruction, old: Words, result: Words) -> Words:
    """Return the destination's register with the result in the byte or word that SDWA selects."""
    low, bits = part(ins.fields["dst_sel"])
    mask = _U32((1 << bits) - 1)
    taken = result & mask
    unused = ins.fields["dst_u"]
    if unused == PRESERVE:
        found: Words = old & ~(mask << _U32(low)) | taken << _U32(low)
        return found
    return (_extended(taken, bits) if unused == SIGN_EXTEND else taken) << _U32(low)


def indexed(step: Step, ins: Instruction) -> Instruction:
    """Return an instruction with M0's index added to the numbers of its VGPRs, if the mode is on."""
    if not step.regs.words[MODE] & MODE_INDEXED:
        return ins
    m0 = step.regs.scalar(M0)
    operands = tuple(
        replace(one, index=one.index + (m0 & 0xFF))
        if one.kind == "vgpr" and m0 >> INDEXED.get(one.field, 31) & 1 and one.field in INDEXED
        else one
        for one in ins.operands
    )
    return replace(ins, operands=operands)


def _set_m0(step: Step, mask: int, value: int) -> None:
    words = step.regs.words
    step.regs.set_scalar(M0, int(words[M0]) & ~mask | value)


def set_index_mode(step: Step) -> Exit:
    """s_set_gpr_idx_on, _off, _mode and _idx."""
    name, words = step.ins.mnemonic, step.regs.words
    if name == "s_set_gpr_idx_off":
        words[MODE] &= _U32(~MODE_INDEXED & 0xFFFF_FFFF)
        return Exit.NEXT
    if name == "s_set_gpr_idx_mode":
        _set_m0(step, 0xF000, (step.field["simm16"] & 0xF) << 12)
        return Exit.NEXT
    operand = next(one for one in step.ins.uses if one.field == "ssrc0")
    index = (step.regs.scalar(operand.index) if operand.kind == "sgpr" else operand.bits) & 0xFF
    if name == "s_set_gpr_idx_idx":
        _set_m0(step, 0xFF, index)
        return Exit.NEXT
    _set_m0(step, 0xF0FF, index | (step.field["ssrc1"] & 0xF) << 12)
    words[MODE] |= _U32(MODE_INDEXED)
    return Exit.NEXT
