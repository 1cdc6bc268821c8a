"""Creates a plan from a mnemonic's form, operands and modifiers: the form is chosen and checked once for each
combination of operand shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding import memory_forms as memory
from ringup.compiler.isa.amd.encoding.bus import bus_check
from ringup.compiler.isa.amd.encoding.encode_memory import (
    place_buffer,
    place_export,
    place_flat,
    place_image,
    plain_modifiers,
)
from ringup.compiler.isa.amd.encoding.encode_operands import modifier_range, put_operand
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.matrices import check_accumulation, check_dot, registers_check
from ringup.compiler.isa.amd.encoding.modifiers import encode_modifiers
from ringup.compiler.isa.amd.encoding.plan import Plan, Refused
from ringup.compiler.isa.amd.encoding.registers import Operand, Register
from ringup.compiler.isa.amd.encoding.slots import DPP8_CODE, DPP16_CODE, SDWA_CODE, Slot
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError

EXTENSION_CODES = {"DPP16": DPP16_CODE, "DPP": DPP16_CODE, "DPP8": DPP8_CODE, "SDWA": SDWA_CODE, "SDWAB": SDWA_CODE}


def bind(form: Form, operands: Sequence[Operand], modifiers: Mapping[str, Any], limits: Limits, wave_size: int) -> Plan:
    """Return the plan of a form for operands of these shapes. Raises `Refused` with the reason if
    it cannot hold them.
    """
    plan = Plan(form)
    name = form.format.name
    try:
        bits, offsets = encode_modifiers(form, modifiers, limits.generation)
    except CompileError as error:
        raise Refused(str(error), 50) from None
    plan.base |= bits | memory.fixed_bits(form, limits.generation)
    try:
        memory.check_modifiers(form, plain_modifiers(form, modifiers))
        check_dot(form, modifiers, limits)
    except CompileError as error:
        raise Refused(str(error), 50) from None
    for each, modifier in offsets:
        plan.offsets.append((each, *modifier_range(form, modifier), (1 << modifier.width) - 1, modifier.shift))
    if form.ext and form.ext != "DPP8":
        plan.base |= EXTENSION_CODES[form.ext] << form.place("src0")[0]
    if name in memory.IMAGE:
        placed = place_image(plan, operands, modifiers, limits)
    elif name in memory.EXPORT:
        placed = place_export(plan, operands)
    elif name in memory.FLAT:
        placed = place_flat(plan, operands, modifiers, limits, wave_size)
    elif name in memory.BUFFER:
        placed = place_buffer(form, operands, modifiers)
    else:
        placed = [(slot, count, i) for i, (slot, count) in enumerate(memory.matrix_slots(form, modifiers, wave_size))]
        if form.name == "s_endpgm" and not operands:
            placed = []
        if (
            form.row.format == "VOPC"
            and len(operands) == len(placed) - 1
            and placed[0][0].codec in ("implied", "compare")
        ):
            # VCC may be omitted.
            placed = [(slot, count, i - 1) for slot, count, i in placed[1:]]
        if (
            name == "SMEM"
            and "offset" in form.modifiers
            and placed[-1][0].field == "soffset"
            and len(operands) == len(placed) - 1
        ):
            # No offset means zero.
            plan.base |= (limits.null or 0) << placed.pop()[0].shift
        if len(operands) != len(placed):
            raise Refused(f"{form.name} takes {len(placed)} operands, not {len(operands)}", 0)
    for slot, count, i in placed:
        try:
            put_operand(plan, slot, count, operands, i, limits, wave_size)
        except CompileError as error:
            raise Refused(f"{form.name}, operand {i + 1}: {error}", 10 + i, i) from None
    try:
        check_accumulation(form, placed, operands)
    except CompileError as error:
        raise Refused(str(error), 20) from None
    halves = {
        bool(operand.half)
        for slot, _, i in placed
        if slot.half_bit >= 0 and isinstance(operand := operands[i], Register) and operand.kind == "v"
    }
    _check_op_sel(form, placed, operands, modifiers)
    if len(halves) == 2:
        raise Refused(f"{form.name}: 16-bit registers with and without .l or .h in one instruction", 20)
    if form.name.startswith("s_waitcnt_") and form.row.format == "SOPK" and getattr(operands[0], "kind", "") != "n":
        raise Refused(f"{form.name}, operand 1: it is always null, not {operands[0]}", 10, 0)
    # gfx9 encodes its destination.
    if form.name.startswith("v_cmpx") and name == "VOP3":
        plan.base |= 126 << form.place("vdst")[0]
    if plan.nbytes * 8 == form.width and form.tail:
        plan.nbytes += 4
    if name.startswith(("VOP", "VINTERP")):
        plan.check = bus_check(form, placed, operands, limits)
    if limits.generation == 9:
        plan.check = plan.check or registers_check(form)
    return plan


def _check_op_sel(
    form: Form, placed: Sequence[tuple[Slot, int, int]], operands: Sequence[Operand], modifiers: Mapping[str, Any]
) -> None:
    """Raise `Refused` if op_sel and the name of a register mean different halves."""
    given = modifiers.get("op_sel")
    if given is None or "op_sel" not in form.modifiers:
        return
    places = form.modifiers["op_sel"].bits
    for slot, _, i in placed:
        operand = operands[i]
        if slot.half_bit in places and isinstance(operand, Register) and operand.half:
            at = places.index(slot.half_bit)
            if at < len(given) and bool(given[at]) != (operand.half == "h"):
                raise Refused(f"{form.name}: op_sel:{list(given)} and {operand} mean different halves", 20, i)
