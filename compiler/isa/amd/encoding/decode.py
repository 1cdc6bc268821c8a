"""Decodes bytes into instructions: the identifying bits give the form, then each slot and modifier is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringup.compiler.isa.amd.encoding import constants
from ringup.compiler.isa.amd.encoding import memory_forms as memory
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.modifiers import decode_modifiers
from ringup.compiler.isa.amd.encoding.registers import (
    NAMED,
    NULL,
    OFF,
    Literal,
    Marked,
    Operand,
    Register,
    a,
    s,
    special,
    ttmp,
    v,
)
from ringup.compiler.isa.amd.encoding.slots import DPP8_CODE, DPP8_FI_CODE, DPP16_CODE, SDWA_CODE, Slot
from ringup.compiler.isa.amd.encoding.target import Limits
from ringup.errors import CompileError

EXTENSIONS_OF_CODE = {
    DPP16_CODE: ("DPP16", "DPP"), DPP8_CODE: ("DPP8",), DPP8_FI_CODE: ("DPP8",), SDWA_CODE: ("SDWA", "SDWAB"),
}  # fmt: skip
_BY_CODE: dict[tuple[int, int], Register] = {}
for _name, (_kind, _code, _dwords) in NAMED.items():
    if _code >= 0:
        _BY_CODE[_code, _dwords] = special(_name)


class Illegal(Exception):
    """A field has a value that no instruction has."""


class Instruction:
    """One decoded instruction. `second` is the other half of a dual one. Encoding its parts again gives its bytes."""

    __slots__ = ("form", "modifiers", "operands", "second", "size_bytes")

    def __init__(self, form: Form, operands: tuple[Operand, ...], modifiers: dict[str, Any], size_bytes: int) -> None:
        self.form, self.operands, self.modifiers, self.size_bytes = form, operands, modifiers, size_bytes
        self.second: Instruction | None = None

    @property
    def mnemonic(self) -> str:
        """Return the mnemonic with the suffix that selects this encoding again."""
        return self.form.mnemonic

    def __repr__(self) -> str:
        return f"Instruction({self.mnemonic}, {list(self.operands)}, {self.modifiers})"


def choose(forms: tuple[Form, ...], word: int) -> Form | None:
    """Return the form whose extension the first source requires."""
    plain = forms[0]
    if "src0" in plain.format.fields and len(forms) > 1:
        lo, width = plain.place("src0")
        wanted = EXTENSIONS_OF_CODE.get(word >> lo & (1 << width) - 1)
        if wanted is not None:
            return next((form for form in forms if form.ext in wanted), None)
    return plain


def read(form: Form, word: int, available: int, limits: Limits, wave_size: int) -> Instruction | None:
    """Read one instruction of a known form from `word`, of which `available` bytes exist. Return None if it is not a
    legal instruction.
    """
    size = form.width // 8
    if available < size:
        return None
    modifiers = decode_modifiers(form, word, limits.generation)
    if modifiers is None:
        return None
    reader = _Reader(form, word, available, limits, wave_size)
    try:
        operands = reader.operands(modifiers)
    except (Illegal, CompileError):
        return None
    if reader.size > available:
        return None
    return Instruction(form, tuple(operands), modifiers, reader.size)


class _Reader:
    def __init__(self, form: Form, word: int, available: int, limits: Limits, wave_size: int) -> None:
        self.form, self.word, self.limits, self.wave_size = form, word, limits, wave_size
        self.size = form.width // 8 + 4 * form.tail
        self.available = available
        self._literal_end = form.width // 8 + 4

    def operands(self, modifiers: dict[str, Any]) -> list[Operand]:
        """Return the operands in the text's order. Modifiers that the text shows as operands are removed."""
        form, name = self.form, self.form.format.name
        if name in memory.IMAGE:
            return self._image(modifiers)
        if name in memory.EXPORT:
            enabled = self._field("en")
            found: list[Operand] = [self._field("target")]
            found += [self._operand(slot, 1) if enabled >> i & 1 else OFF for i, slot in enumerate(form.slots[1:])]
            return found
        if name in memory.FLAT:
            return self._flat(modifiers)
        if name in memory.BUFFER:
            return [
                self._operand(slot, count) if count else OFF for slot, count in memory.buffer_slots(form, modifiers)
            ]
        if name == "SMEM":
            return self._scalar_memory(modifiers)
        found = [self._operand(slot, count) for slot, count in memory.matrix_slots(form, modifiers, self.wave_size)]
        if form.name == "s_endpgm" and found == [0]:
            return []
        return found

    def _field(self, name: str) -> int:
        lo, width = self.form.place(name)
        return self.word >> lo & (1 << width) - 1

    def _operand(self, slot: Slot, count: int) -> Operand:
        codec = slot.codec
        if codec == "implied":
            plain = slot.text.removesuffix("_lo")
            return special(plain + "_lo" * (self.wave_size == 32)) if plain in ("vcc", "exec") else special(slot.text)
        if codec == "compare":
            code = self.word >> slot.shift & (1 << slot.width) - 1
            return self._register(slot, code, 2) if self.word >> slot.scalar_bit & 1 else special("vcc")
        if codec == "literal":
            return Literal(self._literal())
        if codec == "attr":
            return self._field("attr") << 2 | self._field("attr_chan")
        code = self.word >> slot.shift & (1 << slot.width) - 1
        if codec == "imm":
            if slot.field == "ioffset" and code >> slot.width - 1:
                code -= 1 << slot.width
            return code
        if codec == "vgpr":
            if slot.field == "vdsty":
                code = code << 1 | ~self._field("vdstx") & 1
            return self._vector(slot, code, count)
        if codec == "soe":
            return self._offset(slot, code)
        if slot.scalar_bit >= 0 and not self.word >> slot.scalar_bit & 1:
            return self._vector(slot, code, count)
        return self._source(slot, code << slot.scale, count)

    def _offset(self, slot: Slot, code: int) -> Operand:
        """Read gfx9's offset of a scalar load: a number, a register, or a register with a number."""
        immediate, register = self._field("imm"), self._field("soe")
        if register:
            return self._register(slot, self._field("soffset"), 1)
        return code - (code >> 20 << 21) if immediate else self._register(slot, code & 127, 1)

    def _literal(self) -> int:
        self.size = max(self.size, self._literal_end)
        return self.word >> self.form.width & 0xFFFF_FFFF

    def _vector(self, slot: Slot, code: int, count: int) -> Operand:
        half = ""
        if slot.half_bit >= 0:
            half = "h" if self.word >> slot.half_bit & 1 else "l"
            if slot.short_half:
                code &= 0x7F
        if self.limits.even_vgprs and count > 1 and code & 1 and not self.form.name.startswith("ds_read_b96"):
            raise Illegal
        bank = a if slot.kinds == "a" or (slot.acc_bit >= 0 and self.word >> slot.acc_bit & 1) else v
        register = bank.span(code, count)
        if half:
            register = register.high if half == "h" else register.low
        return self._marked(slot, register)

    def _marked(self, slot: Slot, register: Register) -> Register:
        word = self.word
        return register.marked(
            neg=slot.neg_bit >= 0 and bool(word >> slot.neg_bit & 1),
            abs_=slot.abs_bit >= 0 and bool(word >> slot.abs_bit & 1),
            sext=slot.sext_bit >= 0 and bool(word >> slot.sext_bit & 1),
        )

    def _register(self, slot: Slot, code: int, count: int) -> Register:
        """Return the scalar register of a code. `count` is the operand's size in dwords."""
        limits = self.limits
        if code < limits.sgprs:
            kind, register = "s", s.span(code, count)
        elif 108 <= code < 124:
            kind, register = "t", ttmp.span(code - 108, count)
        elif code == limits.m0:
            if count > 1:
                raise Illegal
            kind, register = "m", special("m0")
        elif code == limits.null:
            kind, register = "n", NULL
        else:
            found = _BY_CODE.get((code, count)) or _BY_CODE.get((code, 1)) or _BY_CODE.get((code, 2))
            if found is None or (found.count not in (count, 0) and found.kind in "cxFX"):
                raise Illegal
            kind, register = found.kind, found
        if kind not in slot.kinds or (kind == "z" and limits.generation > 9):
            raise Illegal
        return register

    def _source(self, slot: Slot, code: int, count: int) -> Operand:
        if code >= 256:
            if not {"v", "a"} & set(slot.kinds):
                raise Illegal
            return self._vector(slot, code - 256, count)
        value: int | float | Literal
        if code == constants.LITERAL_CODE:
            if "l" not in slot.kinds and not (self.form.tail and "i" in slot.kinds):
                raise Illegal
            value = Literal(self._literal())
        elif code in constants.CODE_VALUES:
            if not ({"i", "f"} & set(slot.kinds)):
                raise Illegal
            value = constants.CODE_VALUES[code]
        else:
            register = self._register(slot, code, count)
            if (
                slot.codec == "src"
                and slot.half_bit >= 0
                and slot.short_half is False
                and self.word >> slot.half_bit & 1
            ):
                # The op_sel modifier holds the op_sel of a scalar.
                pass
            return self._marked(slot, register)
        negated = slot.neg_bit >= 0 and bool(self.word >> slot.neg_bit & 1)
        absolute = slot.abs_bit >= 0 and bool(self.word >> slot.abs_bit & 1)
        extended = slot.sext_bit >= 0 and bool(self.word >> slot.sext_bit & 1)
        return Marked(value, neg=negated, abs_=absolute, sext=extended) if negated or absolute or extended else value

    def _flat(self, modifiers: Mapping[str, Any]) -> list[Operand]:
        form, generation = self.form, self.limits.generation
        scalar = (
            any(slot.field == "saddr" for slot in form.slots) and self._field("saddr") != memory.NO_SADDR[generation]
        )
        found: list[Operand] = []
        for slot, count in memory.flat_slots(form, modifiers, self.wave_size, scalar=scalar):
            if slot.field == "saddr":
                found.append(self._operand(slot, slot.count) if scalar else OFF)
            elif form.format.name in memory.SCRATCH and slot.field in ("addr", "vaddr"):
                on = self._field("sve" if "sve" in form.format.fields else "lds")
                found.append(self._operand(slot, count) if on else OFF)
            else:
                found.append(self._operand(slot, count))
        return found

    def _scalar_memory(self, modifiers: dict[str, Any]) -> list[Operand]:
        found = []
        for slot in self.form.slots:
            if (
                slot.field == "soffset"
                and "offset" in self.form.modifiers
                and self._field("soffset") == self.limits.null
            ):
                offset = modifiers.pop("offset", 0)
                found.append(NULL if offset == 0 and self.limits.generation == 11 else offset)
            else:
                found.append(self._operand(slot, slot.count))
        return found

    def _image(self, modifiers: Mapping[str, Any]) -> list[Operand]:
        form = self.form
        sizes = memory.image_address(form, modifiers)
        fields = form.format.fields
        places = [
            form.place(name)[0]
            for name in ("vaddr", "vaddr0", "vaddr1", "vaddr2", "vaddr3", "vaddr4")
            if name in fields
        ]
        scattered = form.format.name != "MIMG"
        if form.format.name == "MIMG" and self._field("nsa"):
            places += [64, 72, 80, 88]
            self.size += 4
            scattered = True
        if scattered:
            partial = form.format.name != "VIMAGE" and form.name not in memory.BITS_OF_RAY
            if len(sizes) > len(places) and partial:
                sizes = (*sizes[: len(places) - 1], sum(sizes[len(places) - 1 :]))
            if len(sizes) > len(places):
                raise Illegal
        else:
            sizes = (sum(sizes),)
        registers = tuple(v.span(self.word >> place & 0xFF, size) for place, size in zip(places, sizes, strict=False))
        data = memory.image_data(form, modifiers, self.limits.generation)
        found: list[Operand] = []
        done = False
        for slot in form.slots:
            if slot.field.startswith("vaddr"):
                if not done:
                    found.append(registers if scattered and len(registers) > 1 else registers[0])
                done = True
            elif slot.field == "vdata":
                found.append(self._operand(slot, data))
            else:
                found.append(self._operand(slot, slot.count))
        return found
