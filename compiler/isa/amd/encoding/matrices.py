"""Rules of gfx942 and gfx950 that the fields of the encoding do not express: overlapping matrices, register files,
halves of dot products.

Source: CDNA3 ISA, "Dependency Resolution: Required Independent Instructions", "LDS". The refusals were checked with
llvm-mc 22.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding.bus import Check
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.registers import Operand, Register
from ringup.compiler.isa.amd.encoding.slots import Slot
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError

GLOBAL_WAVE_SYNC = "ds_gws_"
# Bits of a result up to which the addend is read before the result is written.
WHOLE = 128


def check_dot(form: Form, modifiers: Mapping[str, Any], limits: Limits) -> None:
    """Raise a `CompileError` for halves that a dot product cannot select on gfx942 and gfx950, although they decode."""
    if limits.generation == 9 and form.name.startswith("v_dot2_") and form.row.format == "VOP3P":
        chosen = [*modifiers.get("op_sel", ()), *(1 - one for one in modifiers.get("op_sel_hi", ()))]
        if any(chosen):
            raise CompileError(
                f"{form.name}: {limits.name} multiplies low halves with low, high with high: no op_sel, no op_sel_hi"
            )


def check_accumulation(form: Form, placed: Sequence[tuple[Slot, int, int]], operands: Sequence[Operand]) -> None:
    """Raise a `CompileError` if some of the operands that one bit puts into accumulation registers
    are in another file.
    """
    seen: dict[int, Register] = {}
    for slot, _, i in placed:
        operand = operands[i]
        if slot.acc_bit < 0 or not isinstance(operand, Register) or operand.kind not in "va":
            continue
        first = seen.setdefault(slot.acc_bit, operand)
        if first.kind != operand.kind:
            raise CompileError(
                f"{form.name}: {first} and {operand} are both vector registers or both accumulation registers"
            )


def registers_check(form: Form) -> Check | None:
    """Return a check of register numbers, None if a form has no such rule."""
    fields = [slot.field for slot in form.slots]
    if form.name.startswith(GLOBAL_WAVE_SYNC) and fields and form.format.name == "DS":
        return _check_even
    if form.name.startswith("v_mfma_") and "src2" in fields and form.slots[0].size > WHOLE:
        return _overlap_check(form.name, fields.index("src2"))
    return None


def _check_even(operands: Sequence[Operand]) -> None:
    register = operands[0]
    if isinstance(register, Register) and register.code & 1:
        raise CompileError(f"{register}: a global wave sync reads an even register")


def _overlap_check(name: str, third: int) -> Check:
    """Return a check that the addend of a matrix is in the result's own registers or in none of them."""

    def check(operands: Sequence[Operand]) -> None:
        result, added = operands[0], operands[third]
        if not isinstance(result, Register) or not isinstance(added, Register):
            return
        if 0 < abs(result.code - added.code) < result.count:
            raise CompileError(
                f"{name}: {added}, which is added, overlaps {result} in part; the same registers or none of them"
            )

    return check
