"""Rules for what a vector instruction may read at once: scalar values over the constant bus, and banks of a dual
instruction.

Source: RDNA3 ISA, "Constant Bus" ("at most two"), "VOPD" (restrictions); CDNA3 ISA, "VOP operands" (one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringup.compiler.isa.amd.encoding import constants
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.registers import Literal, Marked, Operand, Register
from ringup.compiler.isa.amd.encoding.slots import Slot
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError

# 64-bit shifts read one scalar value on every processor.
ONE_SCALAR = frozenset(("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64"))
BUS_KINDS = frozenset("stcxmpkFXPd")
Check = Callable[[Sequence[Operand]], None]


def bus_limit(form: Form, limits: Limits) -> int:
    """Return how many scalar values an instruction may read."""
    return 1 if form.name in ONE_SCALAR else limits.constant_bus


def bus_check(
    form: Form, placed: Sequence[tuple[Slot, int, int]], operands: Sequence[Operand], limits: Limits
) -> Check | None:
    """Return a check of the register numbers, None if the kinds of operands alone stay within the limit."""
    readers = []
    fixed = set()
    # Sizes of operands that are the literal. Each size counts.
    wide = set()
    if form.implicit_reads or any(slot.codec == "implied" and slot.direction == "use" for slot in form.slots):
        fixed.add(("vcc", 106))
    for slot, _, i in placed:
        operand = operands[i]
        if slot.direction == "def" or slot.codec == "implied":
            continue
        if form.name.startswith("v_writelane") and slot.field == "src1" and getattr(operand, "kind", "") == "m":
            # M0 additionally selects a lane. Source: llvm-mc 22, gfx942.
            continue
        if isinstance(operand, Register) and operand.kind in BUS_KINDS and slot.codec in ("src", "vgpr"):
            readers.append(i)
        elif slot.codec == "literal" or (slot.codec == "src" and _is_literal(operand, slot)):
            wide.add(slot.size == 64)
    limit, literals = bus_limit(form, limits), len(wide)
    if len(readers) + len(fixed) + literals <= limit:
        return None

    def check(given: Sequence[Operand]) -> None:
        read = set(fixed)
        for i in readers:
            register = given[i]
            if isinstance(register, Register):
                read.add((register.bare().text(), register.code))
        if len(read) + literals > limit:
            names = ", ".join(str(given[i]) for i in readers)
            raise CompileError(
                f"{form.name} reads {len(read) + literals} scalar values ({names}"
                + ", a literal" * literals
                + f"); {limits.name} reads {limit} in one instruction: move one to a vector register first"
            )

    return check


def _is_literal(operand: Operand, slot: Slot) -> bool:
    if isinstance(operand, Literal):
        return True
    if isinstance(operand, Marked):
        return _is_literal(operand.value, slot)
    return isinstance(operand, int | float) and constants.inline_code(operand, slot.type, slot.size) is None
