"""Adds one operand to a plan: the bits that it sets, and the conditions that it must meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding import constants
from ringup.compiler.isa.amd.encoding.form_modifiers import Modifier
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.plan import Plan
from ringup.compiler.isa.amd.encoding.registers import Literal, Marked, Operand, Register, Scalar
from ringup.compiler.isa.amd.encoding.slots import Slot
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError

KIND_NAMES = {
    "v": "a vector register", "a": "an accumulation register", "s": "a scalar register", "t": "ttmp", "c": "vcc", "x": "exec", "m": "m0",
    "n": "null", "i": "an inline constant", "f": "an inline float", "l": "a literal", "k": "scc", "p": "an aperture", "o": "off",
    "d": "lds_direct",
}  # fmt: skip
# Attributes of a pixel shader.
ATTRIBUTES = 33


def modifier_range(form: Form, modifier: Modifier) -> tuple[int, int]:
    """Return the minimum and maximum that a modifier's field can hold."""
    if modifier.name == "offset" and "_buffer" in form.name and form.format.name == "SMEM" and modifier.width == 21:
        # A buffer's offset is not negative. Source: RDNA3 ISA, "Scalar Memory Addressing".
        return 0, (1 << 20) - 1
    if form.format.name == "FLAT" and modifier.name == "offset":
        # The top bit is a sign elsewhere. Source: RDNA3 ISA, "FLAT Offset".
        return 0, (1 << modifier.width - 1) - 1
    if modifier.signed:
        return -(1 << modifier.width - 1), (1 << modifier.width - 1) - 1
    return 0, (1 << modifier.width) - 1


def describe(slot: Slot) -> str:
    """Describe what an operand's encoding can hold."""
    if slot.codec == "imm":
        return "a number" if slot.field != "simm16" else "a number of 16 bits"
    if slot.codec == "literal":
        return "a literal of 32 bits"
    names = [KIND_NAMES[kind] for kind in slot.kinds if kind in KIND_NAMES]
    width = f" of {slot.size} bits" if slot.size else ""
    return ", ".join(names) + width


def put_operand(
    plan: Plan, slot: Slot, count: int, operands: Sequence[Operand], i: int, limits: Limits, wave_size: int
) -> None:
    """Add one operand to a plan."""
    operand = operands[i]
    codec = slot.codec
    if isinstance(operand, Register):
        if codec in ("src", "vgpr"):
            _put_register(plan, slot, count, operand, i, limits)
            return
        if codec == "soe":
            _put_offset_register(plan, slot, operand, i, limits)
            return
        if codec == "implied":
            if operand.text() not in _implied(slot.text, wave_size):
                raise CompileError(f"it is always {_implied(slot.text, wave_size)[0]}, not {operand}")
            return
        if codec == "compare":
            _put_result(plan, slot, operand, i, limits)
            return
        raise CompileError(f"{operand} is a register; expected {describe(slot)}")
    if isinstance(operand, tuple):
        raise CompileError(f"a list of registers; expected {describe(slot)}")
    if codec == "imm":
        _put_number(plan, slot, operand, i)
    elif codec == "literal":
        _put_literal(plan, slot, i)
    elif codec == "attr":
        _put_attribute(plan, i)
    elif codec == "soe":
        plan.base |= 1 << plan.form.place("imm")[0]
        plan.others.append((i, _buffer_offset if "_buffer" in plan.form.name else _immediate_offset, slot.shift))
    elif codec == "src":
        _put_constant(plan, slot, operand, i, limits)
    else:
        raise CompileError(f"{operand!r}: expected {describe(slot)}")


def _immediate_offset(given: Any) -> int:
    number = given.value if type(given) is Literal else given
    if type(number) is not int or not -(1 << 20) <= number < 1 << 20:
        raise CompileError(f"offset {number!r}: {-(1 << 20)} to {(1 << 20) - 1}")
    return number & 0x1F_FFFF


def _buffer_offset(given: Any) -> int:
    """Return the bits of gfx9's offset into a buffer, which is not negative."""
    number = _immediate_offset(given)
    if number >> 20:
        raise CompileError(f"offset {given!r} into a buffer: 0 to {(1 << 20) - 1}")
    return number


def _put_offset_register(plan: Plan, slot: Slot, register: Register, i: int, limits: Limits) -> None:
    """Put gfx9's offset of a scalar load. A register alone goes into the offset field; a register with an immediate has
    its own field.
    """
    if register.kind not in slot.kinds or register.count != 1 or register.neg or register.abs:
        raise CompileError(f"{register}: expected {describe(slot)}")
    place = slot.shift
    if any(name == "offset" for name, *_ in plan.offsets):
        plan.base |= 1 << plan.form.place("imm")[0] | 1 << plan.form.place("soe")[0]
        place = plan.form.place("soffset")[0]
    if register.kind == "m":
        plan.base |= limits.m0 << place
    else:
        plan.registers.append((i, 0, 127, place))


def _put_result(plan: Plan, slot: Slot, register: Register, i: int, limits: Limits) -> None:
    """Put the result of a compare in SDWA. VCC has no bits. Source: CDNA3 ISA, "SDWAB", SD and SDST."""
    if register.text() == "vcc":
        return
    if (
        register.kind not in slot.kinds
        or register.count != 2
        or (register.kind == "s" and register.code + 2 > limits.sgprs)
    ):
        raise CompileError(f"{register}: expected vcc, or {describe(slot)}")
    plan.base |= 1 << slot.scalar_bit
    plan.registers.append((i, 0, (1 << slot.width) - 1, slot.shift))


def _implied(text: str, wave_size: int) -> tuple[str, ...]:
    plain = text.removesuffix("_lo")
    return (f"{plain}_lo",) if wave_size == 32 and plain in ("vcc", "exec") else (plain,)


def _put_register(plan: Plan, slot: Slot, count: int, register: Register, i: int, limits: Limits) -> None:
    kind = register.kind
    if kind not in slot.kinds:
        raise CompileError(f"{register}: expected {describe(slot)}")
    if kind == "z" and limits.generation > 9:
        raise CompileError(f"{limits.name} has no {register}")
    if kind == "o":
        raise CompileError(f"off: expected {describe(slot)}")
    if count != register.count and not _any_size(register, count):
        if count == 0:
            raise CompileError(
                f"{register}: without an index or an offset in a register (idxen, offen) the address is off"
            )
        raise CompileError(
            f"{register} has {32 * register.count} bits; this operand has {32 * count}"
            + f" ({describe(slot)})" * bool(slot.size)
        )
    _put_marks(plan, slot, register)
    if kind in "va":
        _put_half(plan, slot, register)
        if limits.even_vgprs and count > 1 and register.code & 1 and not plan.form.name.startswith("ds_read_b96"):
            raise CompileError(f"{register}: ranges begin at an even register on {limits.name}")
    elif register.half:
        raise CompileError(f"{register}: scalar registers have no halves here")
    if kind == "s" and register.code + register.count > limits.sgprs:
        raise CompileError(f"{register}: {limits.name} has scalar registers s0 to s{limits.sgprs - 1}")
    if slot.acc_bit >= 0 and kind == "a":
        plan.base |= 1 << slot.acc_bit
    if slot.scalar_bit >= 0 and kind != "v":
        plan.base |= 1 << slot.scalar_bit
    mask = (1 << slot.width) - 1
    if kind in "mn":
        code = limits.m0 if kind == "m" else limits.null
        if code is None:
            raise CompileError(f"{limits.name} has no null register")
        plan.base |= (code >> slot.scale & mask) << slot.shift
    else:
        plan.registers.append((i, slot.scale, mask, slot.shift))


def _any_size(register: Register, count: int) -> bool:
    """Return whether a special register fits operands of any size."""
    if register.kind in "nk":
        return True
    return register.kind == "p" and count in (1, 2)


def _put_half(plan: Plan, slot: Slot, register: Register) -> None:
    if slot.half_bit < 0:
        if register.half:
            raise CompileError(f"{register}: this operand is a whole register, without .l or .h")
        return
    if slot.short_half and register.index >= 128:
        raise CompileError(f"{register}: a half is of v0 to v127 in this encoding")
    if register.half == "h":
        plan.base |= 1 << slot.half_bit


def _put_marks(plan: Plan, slot: Slot, operand: Register | Marked) -> None:
    for name, bit, on in (
        ("neg", slot.neg_bit, operand.neg),
        ("abs", slot.abs_bit, operand.abs),
        ("sext", slot.sext_bit, operand.sext),
    ):
        if on:
            if bit < 0:
                raise CompileError(f"{operand!r}: this operand takes no {name}")
            plan.base |= 1 << bit


def _put_number(plan: Plan, slot: Slot, operand: Scalar, i: int) -> None:
    number = operand.value if isinstance(operand, Literal) else operand
    if not isinstance(number, int):
        raise CompileError(f"{operand!r}: expected {describe(slot)}")
    width, mask = slot.width, (1 << slot.width) - 1
    low = (
        -(1 << width - 1)
        if slot.field == "simm16" or (slot.field == "ioffset" and "_buffer" not in plan.form.name)
        else 0
    )
    if set(slot.kinds) & set("GHD"):
        low = 0
    if plan.form.name.startswith("s_cmpk_") and plan.form.name.endswith("u32"):
        low = 0
    high = mask if slot.field == "simm16" else (1 << width - 1) - 1 if slot.field == "ioffset" else mask
    if slot.field == "sdata":
        high = min(high, 31 if "prefetch" in plan.form.name else 127)
    elif plan.form.name.startswith("s_set_gpr_idx_"):
        low, high = 0, 15

    def value(given: Any) -> int:
        number = given.value if type(given) is Literal else given
        if not low <= number <= high:
            raise CompileError(f"{number:#x} does not fit: {low} to {high}")
        return int(number) & mask

    plan.others.append((i, value, slot.shift))


def _put_literal(plan: Plan, slot: Slot, i: int) -> None:
    plan.nbytes = plan.form.width // 8 + 4
    type_, size = slot.type, 16 if slot.type in ("f16", "bf16") else 32

    def value(given: Any) -> int:
        plain = given.value if type(given) is Literal else given
        if isinstance(plain, int | float):
            return constants.literal_bits(plain, _tail_type(type_, plain), size)
        raise CompileError(f"{given!r}: expected a literal of 32 bits")

    plan.literals.append((i, value))


def _tail_type(type_: str, value: int | float) -> str:
    """Return the type in which a literal that always follows is written. An integer keeps its sign above a half.
    Source: llvm-mc 22.
    """
    return "i16" if isinstance(value, int) and type_ == "f16" else type_


def _put_constant(plan: Plan, slot: Slot, operand: Scalar, i: int, limits: Limits) -> None:
    type_, size = slot.type, slot.size
    form = plan.form
    if form.format.name == "SMEM" and slot.field == "soffset" and not isinstance(operand, Marked):
        _put_scalar_offset(plan, slot, operand, i, limits)
        return
    if isinstance(operand, Marked):
        _put_marks(plan, slot, operand)
        plain: Any = operand.value
    else:
        plain = operand
    if isinstance(plain, Literal):
        code = None
        plain = plain.value
    else:
        known = not isinstance(plain, Register)
        code = constants.operand_code(form.name, plain, type_, size, limits.generation) if known else None
    if code is not None and ("i" in slot.kinds or "f" in slot.kinds):
        plan.base |= 1 << slot.scalar_bit if slot.scalar_bit >= 0 else 0
        if isinstance(operand, Marked) or isinstance(plain, float) or operand_is_open(plain):
            plan.base |= code << slot.shift
        else:
            plan.others.append((i, constants.INLINE_INTS.__getitem__, slot.shift))
        return
    if code is not None and "l" not in slot.kinds:
        raise CompileError(f"{operand!r}: expected {describe(slot)}")
    if "l" not in slot.kinds and not (form.tail and "i" in slot.kinds):
        if "i" in slot.kinds:
            raise CompileError(f"{operand!r} would need a literal, which this operand cannot have")
        raise CompileError(f"{operand!r}: expected {describe(slot)}")
    type_ = _tail_type(type_, plain) if form.tail else type_
    bits = constants.literal_bits(plain, type_, size)
    form_width = form.width
    plan.base |= constants.LITERAL_CODE << slot.shift
    plan.nbytes = form_width // 8 + 4
    if isinstance(operand, Marked):
        plan.literals.append((i, lambda given: bits))
        return

    def value(given: Any) -> int:
        number = given.value if type(given) is Literal else given
        return constants.literal_bits(number, type_, size)

    plan.literals.append((i, value))


def operand_is_open(value: int | float) -> bool:
    """Return whether a constant's shape contains its value, so that the plan is for this value only."""
    return not isinstance(value, int) or value not in constants.INLINE_INTS


def _put_scalar_offset(plan: Plan, slot: Slot, operand: Scalar, i: int, limits: Limits) -> None:
    """Put an integer in the place of a scalar load's offset register: it is the immediate offset."""
    if "offset" not in plan.form.modifiers or any(name == "offset" for name, *_ in plan.offsets):
        raise CompileError(f"{operand!r}: expected a scalar register")
    modifier = plan.form.modifiers["offset"]
    least, most = modifier_range(plan.form, modifier)
    mask = (1 << modifier.width) - 1
    if limits.null is not None:
        plan.base |= limits.null << slot.shift

    def value(given: Any) -> int:
        number = given.value if type(given) is Literal else given
        if type(number) is not int or not least <= number <= most:
            raise CompileError(f"offset {number!r}: {least} to {most}")
        return number & mask

    plan.others.append((i, value, modifier.shift))


def _put_attribute(plan: Plan, i: int) -> None:
    attr, channel = plan.form.place("attr")[0], plan.form.place("attr_chan")[0]

    def value(given: Any) -> int:
        number = given.value if type(given) is Literal else given
        if type(number) is not int or not 0 <= number < 4 * ATTRIBUTES:
            raise CompileError(
                f"attribute {number!r}: four times its number (0 to {ATTRIBUTES - 1}) plus the channel (0 to 3)"
            )
        return number >> 2 << attr | (number & 3) << channel

    plan.others.append((i, value, 0))
