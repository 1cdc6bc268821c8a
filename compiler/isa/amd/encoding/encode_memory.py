"""Adds the operands of memory instructions to a plan: operands that may be off, and image addresses in several
registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding import memory_forms as memory
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.names import DIMENSION_PREFIX, DIMENSIONS, EXPORT_TARGETS
from ringup.compiler.isa.amd.encoding.plan import Plan, Refused
from ringup.compiler.isa.amd.encoding.registers import Operand, Register
from ringup.compiler.isa.amd.encoding.slots import Slot
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError


def place_buffer(form: Form, operands: Sequence[Operand], modifiers: Mapping[str, Any]) -> list[tuple[Slot, int, int]]:
    placed = [(slot, count, i) for i, (slot, count) in enumerate(memory.buffer_slots(form, modifiers))]
    if len(operands) != len(placed):
        raise Refused(f"{form.name} takes {len(placed)} operands, not {len(operands)}", 0)
    kept = []
    for slot, count, i in placed:
        operand = operands[i]
        off = isinstance(operand, Register) and operand.kind == "o"
        if not (off and count == 0):
            kept.append((slot, count, i))
        if off and count and slot.field == "vaddr":
            raise Refused(
                f"{form.name}, operand {i + 1}: idxen and offen take an index or offset from a register, not off",
                10 + i,
                i,
            )
    return kept


def place_flat(
    plan: Plan, operands: Sequence[Operand], modifiers: Mapping[str, Any], limits: Limits, wave_size: int
) -> list[tuple[Slot, int, int]]:
    form = plan.form
    where = [slot.field for slot in form.slots]
    scalar = False
    if "saddr" in where and operands:
        last = operands[-1]
        # In these instructions null means that there is no address; in others only off does.
        null = form.format.name in memory.SCRATCH or "_addtid_" in form.name
        scalar = not (
            isinstance(last, Register) and (last.kind == "o" or (last.kind == "n" and null and limits.null is not None))
        )
        if scalar and isinstance(last, Register) and last.text() == "exec_hi":
            raise Refused(f"{form.name}, operand {len(operands)}: exec_hi is not an address", 10, len(operands) - 1)
        if not scalar:
            plan.base |= memory.NO_SADDR[limits.generation] << form.place("saddr")[0]
    placed = [
        (slot, count, i) for i, (slot, count) in enumerate(memory.flat_slots(form, modifiers, wave_size, scalar=scalar))
    ]
    kept = []
    for slot, count, i in placed:
        operand = operands[i] if i < len(operands) else None
        off = isinstance(operand, Register) and operand.kind == "o"
        if slot.field == "saddr" and not scalar:
            kept.append((slot, -1, i))
        elif form.format.name in memory.SCRATCH and slot.field in ("addr", "vaddr"):
            sve = form.format.fields.get("sve", form.format.fields.get("lds"))
            if not off and sve is not None:
                plan.base |= 1 << sve[1]
            kept.append((slot, -1 if off else count, i))
        else:
            kept.append((slot, count, i))
    if len(placed) != len(operands):
        atomic = "returns" in form.row.flags
        hint = " (with the bit that makes it return: glc, sc0 or th:TH_ATOMIC_RETURN, one more)" * atomic
        raise Refused(f"{form.name} takes {len(placed)} operands, not {len(operands)}{hint}", 0)
    return [part for part in kept if part[1] >= 0]


def place_export(plan: Plan, operands: Sequence[Operand]) -> list[tuple[Slot, int, int]]:
    form = plan.form
    if len(operands) != 5:
        raise Refused(f"{form.name} takes a target and four registers or off", 0)

    def value(given: Any) -> int:
        if type(given) is not int or not 0 <= given < 64:
            raise CompileError(
                f"{form.name}, operand 1: a target of 0 to 63, such as {', '.join(EXPORT_TARGETS.values())}"
            )
        return given

    plan.others.append((0, value, form.place("target")[0]))
    placed = []
    for i, slot in enumerate(form.slots[1:], 1):
        operand = operands[i]
        if not (isinstance(operand, Register) and operand.kind == "o"):
            plan.base |= 1 << form.place("en")[0] + i - 1
            placed.append((slot, 1, i))
    return placed


def place_image(
    plan: Plan, operands: Sequence[Operand], modifiers: Mapping[str, Any], limits: Limits
) -> list[tuple[Slot, int, int]]:
    """Place an image's operands. The addresses are put into the word here, since they may be in several registers."""
    form = plan.form
    plain = plain_modifiers(form, modifiers)
    slots = [slot for slot in form.slots if not slot.field.startswith("vaddr")]
    at = next(i for i, slot in enumerate(form.slots) if slot.field.startswith("vaddr"))
    if len(operands) != len(slots) + 1:
        raise Refused(f"{form.name} takes {len(slots) + 1} operands, not {len(operands)}", 0)
    address = operands[at]
    sizes = memory.image_address(form, plain)
    total = sum(sizes)
    parts = address if isinstance(address, tuple) else (address,)
    if not all(
        isinstance(part, Register) and part.kind == "v" and not (part.half or part.neg or part.abs) for part in parts
    ):
        raise Refused(f"{form.name}, operand {at + 1}: addresses are vector registers", 10 + at, at)
    registers = [part for part in parts if isinstance(part, Register)]
    given = tuple(part.count for part in registers)
    places = [
        form.place(name)[0]
        for name in ("vaddr", "vaddr0", "vaddr1", "vaddr2", "vaddr3", "vaddr4")
        if name in form.format.fields
    ]
    if form.format.name == "MIMG":
        places += [64, 72, 80, 88]
    spread = _spread(sizes, len(places), partial=form.format.name != "VIMAGE" and form.name not in memory.BITS_OF_RAY)
    # Older programs round ranges up.
    oversized = given == (8,) and 5 <= total <= 7
    contiguous = (given == (total,) or oversized) and form.format.name == "MIMG"
    if given != spread and not contiguous:
        raise Refused(
            f"{form.name}, operand {at + 1}: addresses of {given} registers; it takes {spread}"
            + f" or one range of {total}" * (form.format.name == "MIMG"), 10 + at, at,
        )  # fmt: skip
    if form.format.name == "MIMG" and isinstance(address, tuple) and len(registers) > 1:
        plan.base |= 1 << form.place("nsa")[0]
        plan.nbytes += 4

    def value(given: Any) -> int:
        each = given if type(given) is tuple else (given,)
        return sum((register.code & 0xFF) << place for place, register in zip(places, each, strict=False))

    plan.others.append((at, value, 0))
    data = memory.image_data(form, plain, limits.generation)
    return [
        (slot, data if slot.field == "vdata" else slot.count, i)
        for slot, i in zip(slots, [i for i in range(len(operands)) if i != at], strict=True)
    ]


def plain_modifiers(form: Form, modifiers: Mapping[str, Any]) -> dict[str, Any]:
    """Return modifiers with names resolved to numbers, as far as the layout of operands depends on them."""
    plain = dict(modifiers)
    dim = plain.get("dim", 0)
    if isinstance(dim, str):
        plain["dim"] = DIMENSIONS.index(dim.removeprefix(DIMENSION_PREFIX).upper())
    return plain


def _spread(sizes: tuple[int, ...], places: int, *, partial: bool) -> tuple[int, ...]:
    """Return the sizes of scattered addresses. What does not fit in single places is one range in the last place."""
    if len(sizes) <= places or not partial:
        return sizes
    return (*sizes[: places - 1], sum(sizes[places - 1 :]))
