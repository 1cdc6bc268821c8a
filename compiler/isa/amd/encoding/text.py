"""The text of instructions in the form of LLVM 22."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringup.compiler.isa.amd.encoding import constants, immediates
from ringup.compiler.isa.amd.encoding import memory_forms as memory
from ringup.compiler.isa.amd.encoding.decode import Instruction
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.modifiers import modifier_texts
from ringup.compiler.isa.amd.encoding.names import EXPORT_TARGETS
from ringup.compiler.isa.amd.encoding.registers import Literal, Marked, Operand, Register
from ringup.compiler.isa.amd.encoding.slots import Slot
from ringup.compiler.isa.amd.encoding.target import Limits

# Immediates that are printed as decimal numbers, and those printed as hexadecimal ones. Others are decimal up to 64,
# like inline constants.
DECIMAL = frozenset(("s_endpgm", "s_inst_prefetch"))
HEXADECIMAL = frozenset((
    "s_clause", "s_round_mode", "s_set_inst_prefetch_distance", "s_wait_event", "s_ttracedata_imm", "s_wait_loadcnt", "s_wait_storecnt",
    "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt", "s_wait_dscnt", "s_wait_kmcnt", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt",
))  # fmt: skip
# Literals from here on are negative numbers of 16 bits.
NEGATIVE_HALVES = 0xFFFF_8000


def text(instruction: Instruction, limits: Limits) -> str:
    """Return the text of an instruction."""
    parts = _half(instruction, limits)
    if instruction.second is not None:
        return f"{parts} :: {_half(instruction.second, limits)}"
    return parts


def _half(instruction: Instruction, limits: Limits) -> str:
    form = instruction.form
    slots = iter_slots(form, instruction.operands, instruction.modifiers)
    shown = [
        operand_text(form, slot, operand, limits) for slot, operand in zip(slots, instruction.operands, strict=False)
    ]
    if form.format.name in memory.EXPORT:
        line = f"{form.mnemonic} {shown[0]} {', '.join(shown[1:])}"
    else:
        line = f"{form.mnemonic} {', '.join(shown)}" if shown else form.mnemonic
    modifiers = dict(instruction.modifiers)
    loads = form.format.name == "SMEM" and limits.generation == 12 and len(shown) == 3 and "offset" in form.modifiers
    if loads and isinstance(instruction.operands[2], Register):
        modifiers.setdefault("offset", 0)
    found = modifier_texts(form, modifiers, limits.generation)
    return " ".join([line, *filter(None, found)])


def iter_slots(form: Form, operands: tuple[Operand, ...], modifiers: Mapping[str, Any]) -> list[Slot]:
    """Return the slot of each operand of the text."""
    if form.format.name in memory.IMAGE:
        seen = False
        slots = []
        for slot in form.slots:
            if slot.field.startswith("vaddr"):
                if seen:
                    continue
                seen = True
            slots.append(slot)
        return slots
    if form.format.name in memory.FLAT:
        return [slot for slot, _ in memory.flat_slots(form, modifiers, 32, scalar=False)]
    if form.format.name in memory.BUFFER:
        return [slot for slot, _ in memory.buffer_slots(form, modifiers)]
    return list(form.slots)


def operand_text(form: Form, slot: Slot, operand: Operand, limits: Limits) -> str:
    """Return the text of one operand."""
    if isinstance(operand, Register):
        return operand.text()
    if isinstance(operand, tuple):
        return f"[{', '.join(register.text() for register in operand)}]"
    if isinstance(operand, Marked):
        plain = operand_text(form, slot, operand.value, limits)
        if operand.abs:
            plain = f"|{plain}|"
            return f"-{plain}" if operand.neg else plain
        if operand.sext:
            return f"sext({plain})"
        return f"neg({plain})" if operand.neg else plain
    if isinstance(operand, Literal):
        if form.name == "s_setreg_imm32_b32" and operand.value in constants.INLINE_INTS:
            return str(operand.value)
        return literal_text(form, slot, int(operand.value), limits)
    if isinstance(operand, float):
        return constants.inline_text(_float_code(operand), slot.type, slot.size)
    if slot.codec == "imm":
        return immediate_text(form, slot, operand, limits)
    if slot.codec == "attr":
        return f"attr{operand >> 2}.{'xyzw'[operand & 3]}"
    if slot.codec == "target":
        return EXPORT_TARGETS.get(operand, f"invalid_target_{operand}")
    if form.format.name == "SMEM" and slot.field in ("soffset", "offset"):
        return f"{operand:#x}" if operand >= 0 else f"-{-operand:#x}"
    return str(operand)


def literal_text(form: Form, slot: Slot, value: int, limits: Limits) -> str:
    """Return the text of a literal that gives the same dword again. A value that would become an inline constant, or
    would be too wide, is marked.
    """
    half = slot.size == 16 and slot.type not in constants.HALF_FLOATS
    if value >= NEGATIVE_HALVES and (half or (slot.codec == "literal" and slot.type == "f16")):
        # Compilers fill the upper half with the sign.
        return f"-{(1 << 32) - value:#x}"
    code = constants.operand_code(form.name, value, slot.type, slot.size, limits.generation)
    inline = slot.codec == "src" and code is not None and not {"i", "f"}.isdisjoint(slot.kinds)
    return f"lit({value:#x})" if inline else f"{value:#x}"


def _float_code(value: float) -> int:
    return constants.INLINE_FLOATS.get(value, constants.INVERSE_TWO_PI_CODE)


def immediate_text(form: Form, slot: Slot, value: int, limits: Limits) -> str:
    """Return the text of an immediate, with names if its kind has them."""
    kinds, generation = slot.kinds, limits.generation
    if "L" in kinds:
        return str(value)
    if "W" in kinds:
        return immediates.waitcnt_text(value, generation) if form.name == "s_waitcnt" else immediates.depctr_text(value)
    if "H" in kinds:
        return immediates.hwreg_text(value, generation)
    if "G" in kinds:
        return immediates.message_text(value, generation)
    if "D" in kinds:
        return immediates.delay_text(value)
    if "U" in kinds:
        return immediates.version_text(value) if form.name == "s_version" else immediates.index_mode_text(value)
    if slot.field == "ioffset":
        return f"{value:#x}" if value >= 0 else f"-{-value:#x}"
    if slot.field != "simm16" or form.name in DECIMAL:
        return str(value)
    if form.name in HEXADECIMAL or form.format.name == "SOPK":
        return f"{value:#x}"
    return str(value) if value <= 64 else f"{value:#x}"
