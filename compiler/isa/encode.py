"""From a mnemonic, operands and modifiers to bytes: a form is chosen and checked once per shape of operands, then words are put together.

A `Plan` is what remains of an instruction when only register numbers and values may still change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringup.compiler.isa import constants, memory_forms as memory
from ringup.compiler.isa.bus import bus_check
from ringup.compiler.isa.forms import DPP8_CODE, DPP16_CODE, SDWA_CODE, Form, Modifier, Slot
from ringup.compiler.isa.modifiers import encode_modifiers
from ringup.compiler.isa.names import EXPORT_TARGETS
from ringup.compiler.isa.registers import Literal, Marked, Operand, Register, Scalar
from ringup.compiler.isa.target import Limits
from ringup.errors import CompileError

KIND_NAMES = {
    "v": "a vector register", "a": "an accumulation register", "s": "a scalar register", "t": "ttmp", "c": "vcc", "x": "exec", "m": "m0",
    "n": "null", "i": "an inline constant", "f": "an inline float", "l": "a literal", "k": "scc", "p": "an aperture", "o": "off", "d": "lds_direct",
}  # fmt: skip
ATTRIBUTES = 33  # that a pixel shader can have
EXTENSION_CODES = {"DPP16": DPP16_CODE, "DPP": DPP16_CODE, "DPP8": DPP8_CODE, "SDWA": SDWA_CODE, "SDWAB": SDWA_CODE}
Value = Callable[[Any], int]


class Refused(CompileError):
    """A form that cannot hold the operands; `depth` tells how far it got, so that the best reason is reported."""

    def __init__(self, message: str, depth: int, operand: int | None = None) -> None:
        super().__init__(message)
        self.depth, self.operand = depth, operand


class Plan:
    """An instruction of which only register numbers, values and offsets are open."""

    __slots__ = ("base", "check", "form", "literals", "nbytes", "offsets", "others", "registers")

    def __init__(self, form: Form) -> None:
        self.form = form
        self.base = form.base
        self.nbytes = form.width // 8
        self.registers: list[tuple[int, int, int, int]] = []  # operand, shift down, mask, shift up
        self.others: list[tuple[int, Value, int]] = []  # operand, its value's bits, shift up
        self.literals: list[tuple[int, Value]] = []  # operands that are the literal dword
        self.offsets: list[tuple[str, int, int, int, int]] = []  # modifier, least, most, mask, shift
        self.check: Callable[[Sequence[Operand]], None] | None = None

    def word(self, operands: Sequence[Operand], modifiers: Mapping[str, Any]) -> int:
        """Return the instruction as an integer, its first byte lowest."""
        word = self.base
        for i, down, mask, up in self.registers:
            word |= (operands[i].code >> down & mask) << up  # type: ignore[union-attr]
        for i, value, up in self.others:
            word |= value(operands[i]) << up
        if self.literals:
            word |= self._literal(operands) << self.form.width
        for name, least, most, mask, up in self.offsets:
            number = modifiers[name]
            if not least <= number <= most:
                raise CompileError(f"{name}:{number} of {self.form.name}: {least} to {most}")
            word |= (number & mask) << up
        if self.check is not None:
            self.check(operands)
        return word

    def _literal(self, operands: Sequence[Operand]) -> int:
        values = {value(operands[i]) for i, value in self.literals}
        if len(values) > 1:
            raise CompileError(
                f"{self.form.name}: an instruction has one literal, not {' and '.join(f'{value:#x}' for value in sorted(values))};"
                " move one to a register first"
            )
        return values.pop()


def bind(form: Form, operands: Sequence[Operand], modifiers: Mapping[str, Any], limits: Limits, wave_size: int) -> Plan:
    """Return the plan of a form for operands of these shapes; `Refused` says why it cannot hold them."""
    plan = Plan(form)
    name = form.format.name
    try:
        bits, offsets = encode_modifiers(form, modifiers, limits.generation)
    except CompileError as error:
        raise Refused(str(error), 50) from None
    plan.base |= bits | memory.fixed_bits(form, limits.generation)
    try:
        memory.check_modifiers(form, _plain_modifiers(form, modifiers))
    except CompileError as error:
        raise Refused(str(error), 50) from None
    for each, modifier in offsets:
        plan.offsets.append((each, *_range(form, modifier), (1 << modifier.width) - 1, modifier.shift))
    if form.ext and form.ext != "DPP8":
        plan.base |= EXTENSION_CODES[form.ext] << form.place("src0")[0]
    if name in memory.IMAGE:
        placed = _image(plan, operands, modifiers, limits)
    elif name in memory.EXPORT:
        placed = _export(plan, operands)
    elif name in memory.FLAT:
        placed = _flat(plan, operands, modifiers, limits, wave_size)
    elif name in memory.BUFFER:
        placed = _buffer(form, operands, modifiers)
    else:
        placed = [(slot, count, i) for i, (slot, count) in enumerate(memory.matrix_slots(form, modifiers, wave_size))]
        if form.name == "s_endpgm" and not operands:
            placed = []
        if form.row.format == "VOPC" and len(operands) == len(placed) - 1 and placed[0][0].codec == "implied":
            placed = [(slot, count, i - 1) for slot, count, i in placed[1:]]  # VCC may be left out
        if len(operands) != len(placed):
            raise Refused(f"{form.name} takes {len(placed)} operands, not {len(operands)}", 0)
    for slot, count, i in placed:
        try:
            _put(plan, slot, count, operands, i, limits, wave_size)
        except CompileError as error:
            raise Refused(f"{form.name}, operand {i + 1}: {error}", 10 + i, i) from None
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
    if form.name.startswith("v_cmpx") and name in ("VOP3", "VOP3A"):
        plan.base |= 126 << form.place("vdst")[0]
    if plan.nbytes * 8 == form.width and form.tail:
        plan.nbytes += 4
    if name.startswith(("VOP", "VINTERP")):
        plan.check = bus_check(form, placed, operands, limits)
    return plan


def _check_op_sel(
    form: Form, placed: Sequence[tuple[Slot, int, int]], operands: Sequence[Operand], modifiers: Mapping[str, Any]
) -> None:
    """Raise `Refused` where op_sel says another half of a register than its name."""
    given = modifiers.get("op_sel")
    if given is None or "op_sel" not in form.modifiers:
        return
    places = form.modifiers["op_sel"].bits
    for slot, _, i in placed:
        operand = operands[i]
        if slot.half_bit in places and isinstance(operand, Register) and operand.half:
            at = places.index(slot.half_bit)
            if at < len(given) and bool(given[at]) != (operand.half == "h"):
                raise Refused(f"{form.name}: op_sel:{list(given)} and {operand} say different halves", 20, i)


def _range(form: Form, modifier: Modifier) -> tuple[int, int]:
    if modifier.name == "offset" and "_buffer" in form.name and form.format.name == "SMEM" and modifier.width == 21:
        return 0, (1 << 20) - 1  # a buffer's offset is not negative. Source: RDNA3 ISA, "Scalar Memory Addressing"
    if form.format.name == "FLAT" and modifier.name == "offset":
        return 0, (1 << modifier.width - 1) - 1  # the top bit is a sign elsewhere. Source: RDNA3 ISA, "FLAT Offset"
    if modifier.signed:
        return -(1 << modifier.width - 1), (1 << modifier.width - 1) - 1
    return 0, (1 << modifier.width) - 1


def describe(slot: Slot) -> str:
    """Say what an operand's encoding can hold."""
    if slot.codec == "imm":
        return "a number" if slot.field != "simm16" else "a number of 16 bits"
    if slot.codec == "literal":
        return "a literal of 32 bits"
    names = [KIND_NAMES[kind] for kind in slot.kinds if kind in KIND_NAMES]
    width = f" of {slot.size} bits" if slot.size else ""
    return ", ".join(names) + width


def _put(
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
        raise CompileError(f"{operand} is a register; here stands {describe(slot)}")
    if isinstance(operand, tuple):
        raise CompileError(f"a list of registers; here stands {describe(slot)}")
    if codec == "imm":
        _put_number(plan, slot, operand, i)
    elif codec == "literal":
        _put_literal(plan, slot, i)
    elif codec == "attr":
        _put_attribute(plan, i)
    elif codec == "soe":
        plan.base |= 1 << plan.form.place("imm")[0]
        plan.others.append((i, _immediate_offset, slot.shift))
    elif codec == "src":
        _put_constant(plan, slot, operand, i, limits)
    else:
        raise CompileError(f"{operand!r}: here stands {describe(slot)}")


def _immediate_offset(given: Any) -> int:
    number = given.value if type(given) is Literal else given
    if type(number) is not int or not -(1 << 20) <= number < 1 << 20:
        raise CompileError(f"offset {number!r}: {-(1 << 20)} to {(1 << 20) - 1}")
    return number & 0x1F_FFFF


def _put_offset_register(plan: Plan, slot: Slot, register: Register, i: int, limits: Limits) -> None:
    """Put gfx9's offset of a scalar load: a register alone lies in the offset field, one beside an immediate in its own."""
    if register.kind not in slot.kinds or register.count != 1 or register.neg or register.abs:
        raise CompileError(f"{register}: here stands {describe(slot)}")
    place = slot.shift
    if any(name == "offset" for name, *_ in plan.offsets):
        plan.base |= 1 << plan.form.place("imm")[0] | 1 << plan.form.place("soe")[0]
        place = plan.form.place("soffset")[0]
    if register.kind == "m":
        plan.base |= limits.m0 << place
    else:
        plan.registers.append((i, 0, 127, place))


def _implied(text: str, wave_size: int) -> tuple[str, ...]:
    plain = text.removesuffix("_lo")
    return (f"{plain}_lo",) if wave_size == 32 and plain in ("vcc", "exec") else (plain,)


def _put_register(plan: Plan, slot: Slot, count: int, register: Register, i: int, limits: Limits) -> None:
    kind = register.kind
    if kind not in slot.kinds:
        raise CompileError(f"{register}: here stands {describe(slot)}")
    if kind == "z" and limits.generation > 9:
        raise CompileError(f"{limits.name} has no {register}")
    if kind == "o":
        raise CompileError(f"off: here stands {describe(slot)}")
    if count != register.count and not _any_size(register, count):
        if count == 0:
            raise CompileError(
                f"{register}: without an index or an offset in a register (idxen, offen) the address is off"
            )
        raise CompileError(
            f"{register} has {32 * register.count} bits; here stand {32 * count}"
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
    if slot.acc_bit >= 0 and (kind == "a" if "a" in slot.kinds else kind != "v"):
        plan.base |= 1 << slot.acc_bit
    mask = (1 << slot.width) - 1
    if kind in "mn":
        code = limits.m0 if kind == "m" else limits.null
        if code is None:
            raise CompileError(f"{limits.name} has no null register")
        plan.base |= (code >> slot.scale & mask) << slot.shift
    else:
        plan.registers.append((i, slot.scale, mask, slot.shift))


def _any_size(register: Register, count: int) -> bool:
    """Tell whether a special register stands for operands of any size it meets."""
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
        raise CompileError(f"{operand!r}: here stands {describe(slot)}")
    width, mask = slot.width, (1 << slot.width) - 1
    low = (
        -(1 << width - 1)
        if slot.field == "simm16" or (slot.field == "ioffset" and "_buffer" not in plan.form.name)
        else 0
    )
    if plan.form.name.startswith("s_cmpk_") and plan.form.name.endswith("u32"):
        low = 0
    high = mask if slot.field == "simm16" else (1 << width - 1) - 1 if slot.field == "ioffset" else mask
    if slot.field == "sdata":
        high = min(high, 127)

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
            return constants.literal_bits(plain, type_, size)
        raise CompileError(f"{given!r}: here stands a literal of 32 bits")

    plan.literals.append((i, value))


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
        code = constants.inline_code(plain, type_, size) if not isinstance(plain, Register) else None
    if form.name == "v_pk_fmac_f16" and code is not None and code > 208 and limits.generation > 9:
        code = None  # as LLVM does: what an inline float is in both halves is not said here
    if code is not None and ("i" in slot.kinds or "f" in slot.kinds):
        if isinstance(operand, Marked) or isinstance(plain, float) or operand_is_open(plain):
            plan.base |= code << slot.shift
        else:
            plan.others.append((i, constants.INLINE_INTS.__getitem__, slot.shift))
        return
    if code is not None and not ("l" in slot.kinds):
        raise CompileError(f"{operand!r}: here stands {describe(slot)}")
    if "l" not in slot.kinds and not (form.tail and "i" in slot.kinds):
        if "i" in slot.kinds:
            raise CompileError(f"{operand!r} would need a literal, which this operand cannot have")
        raise CompileError(f"{operand!r}: here stands {describe(slot)}")
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
    """Tell whether a constant's shape holds its value: the plan is for it alone."""
    return not isinstance(value, int) or value not in constants.INLINE_INTS


def _put_scalar_offset(plan: Plan, slot: Slot, operand: Scalar, i: int, limits: Limits) -> None:
    """An integer in place of the offset register of a scalar load is the immediate offset."""
    if "offset" not in plan.form.modifiers or any(name == "offset" for name, *_ in plan.offsets):
        raise CompileError(f"{operand!r}: here stands a scalar register")
    modifier = plan.form.modifiers["offset"]
    least, most = _range(plan.form, modifier)
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


def _buffer(form: Form, operands: Sequence[Operand], modifiers: Mapping[str, Any]) -> list[tuple[Slot, int, int]]:
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


def _flat(
    plan: Plan, operands: Sequence[Operand], modifiers: Mapping[str, Any], limits: Limits, wave_size: int
) -> list[tuple[Slot, int, int]]:
    form = plan.form
    where = [slot.field for slot in form.slots]
    scalar = False
    if "saddr" in where and operands:
        last = operands[-1]
        scalar = not (
            isinstance(last, Register) and (last.kind == "o" or (last.kind == "n" and limits.null is not None))
        )
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
        if "returns" in form.row.flags:
            hint = " (with the bit that makes it return: glc, sc0 or th:TH_ATOMIC_RETURN, one more)"
        else:
            hint = ""
        raise Refused(f"{form.name} takes {len(placed)} operands, not {len(operands)}{hint}", 0)
    return [part for part in kept if part[1] >= 0]


def _export(plan: Plan, operands: Sequence[Operand]) -> list[tuple[Slot, int, int]]:
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


def _image(
    plan: Plan, operands: Sequence[Operand], modifiers: Mapping[str, Any], limits: Limits
) -> list[tuple[Slot, int, int]]:
    """Place an image's operands; the addresses are put into the word here, since they may lie in several registers."""
    form = plan.form
    plain = _plain_modifiers(form, modifiers)
    slots = [slot for slot in form.slots if not slot.field.startswith("vaddr")]
    at = next(i for i, slot in enumerate(form.slots) if slot.field.startswith("vaddr"))
    if len(operands) != len(slots) + 1:
        raise Refused(f"{form.name} takes {len(slots) + 1} operands, not {len(operands)}", 0)
    address = operands[at]
    sizes = memory.image_address(form, plain)
    total = sum(sizes)
    parts = address if isinstance(address, tuple) else (address,)
    if not all(isinstance(part, Register) and part.kind == "v" and not part.half for part in parts):
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
    oversized = given == (8,) and 5 <= total <= 7  # older programs round ranges up
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


def _plain_modifiers(form: Form, modifiers: Mapping[str, Any]) -> dict[str, Any]:
    """Return modifiers with names resolved to numbers, as far as the layout of operands depends on them."""
    from ringup.compiler.isa.names import DIMENSION_PREFIX, DIMENSIONS

    plain = dict(modifiers)
    dim = plain.get("dim", 0)
    if isinstance(dim, str):
        plain["dim"] = DIMENSIONS.index(dim.removeprefix(DIMENSION_PREFIX).upper())
    return plain


def _spread(sizes: tuple[int, ...], places: int, *, partial: bool) -> tuple[int, ...]:
    """Return the sizes of scattered addresses: what does not fit in single places is one range in the last."""
    if len(sizes) <= places or not partial:
        return sizes
    return (*sizes[: places - 1], sum(sizes[places - 1 :]))
