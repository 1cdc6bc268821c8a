"""One block of a warp as IR: registers as vectors, predicates as masks, memory accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.errors import Unmodelled
from ringup.silicon.shader.host.context import Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.memory_helpers import gather
from ringup.silicon.shader.host.memory_shape import (
    ALIGNMENT,
    CONTEXT,
    DONE,
    MEMORY,
    Answer,
    Shape,
    as_mask,
    first_lane,
    take,
)
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, URZ, Instruction, Kind, Operand
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.layout import Ended, Field, Own

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

STATE = Value("%state", "ptr")
ROW, FLAGS, WIDE = f"<{LANES} x i32>", f"<{LANES} x i1>", f"<{LANES} x i64>"
EVERY = Value("-1", "i32")
SIGN, MAGNITUDE = 0x8000_0000, 0x7FFF_FFFF


class NotTranslated(Unmodelled):
    """The translator has no rule; the interpreter runs the program."""


class Writer:
    """The code of one block. `full`: all 32 lanes are active."""

    def __init__(
        self, code: Code, sites: list[int], registers: int, *, full: bool, strict: bool, target: str = ""
    ) -> None:
        self.code, self.full, self.sites, self.count, self.strict = code, full, sites, registers, strict
        self.target = target
        self.ins: Instruction
        self.at = 0
        self.active = EVERY
        self.mask = EVERY
        self._registers: dict[int, Value] = {}
        self._uniform: dict[int, Value] = {}
        self._predicates: dict[int, Value] = {}
        self._uniform_predicates: dict[int, Value] = {}
        self._dirty: set[tuple[str, int]] = set()
        # texts of vectors without denormals
        self.flushed: set[str] = set()

    # state ------------------------------------------------------------------------------------------------------------

    def word(self, index: int) -> Value:
        """Return the address of a word of the state."""
        at = index if Field.ACTIVE <= index < layout.DEFINED else self.number("word", index)
        return self.code.gep(STATE, at, "i32")

    def load(self, index: int, type_: str = "i32") -> Value:
        """Load from the state."""
        return self.code.load(self.word(index), type_, 64 if type_[0] == "<" else 4)

    def store(self, value: Value, index: int) -> None:
        """Store to the state."""
        self.code.store(value, self.word(index), 64 if value.type[0] == "<" else 4)

    def begin(self, ins: Instruction, at: int) -> None:
        """Take up an instruction: the lanes that execute it are `mask`."""
        self.ins, self.at, self.mask = ins, at, self.active
        if ins.is_guarded:
            self.mask = self.code.op("and", self.active, self.mask_of(ins.guard))

    @property
    def is_uniform(self) -> bool:
        """Whether the instruction is one of the uniform datapath: its values are scalars."""
        return self.ins.name[0] == "U" or self.ins.name in ("S2UR", "R2UR")

    def flush(self) -> None:
        """Write what the block has changed to the state."""
        for file, number in sorted(self._dirty):
            if file == "R":
                self.store(self._registers[number], layout.REGISTERS + LANES * number)
            elif file == "U":
                self.store(self._uniform[number], layout.UNIFORMS + number)
            elif file == "P":
                self.store(self._predicates[number], layout.PREDICATES + number)
            else:
                self.store(
                    self.code.resize(self._uniform_predicates[number], "i32"), layout.UNIFORM_PREDICATES + number
                )
        self._dirty.clear()

    def _somebody(self) -> Value:
        """Return whether any lane executes the instruction."""
        return self.code.icmp("ne", self.mask, self.code.const(0, "i32"))

    # predicates -------------------------------------------------------------------------------------------------------

    def mask_of(self, operand: Operand) -> Value:
        """Return a predicate as a mask (i32), with its inversion."""
        code = self.code
        if operand.kind is Kind.UNIFORM_PREDICATE:
            return code.select(self.flag(operand), EVERY, code.const(0, "i32"))
        if operand.value == PT:
            return code.const(0 if operand.invert else -1, "i32")
        found = self._predicates.get(operand.value)
        if found is None:
            found = self._predicates[operand.value] = self.load(layout.PREDICATES + operand.value)
        return code.invert(found) if operand.invert else found

    def flag(self, operand: Operand) -> Value:
        """Return a uniform predicate (i1), with its inversion."""
        code = self.code
        if operand.value == PT:
            return Value("false" if operand.invert else "true", "i1")
        found = self._uniform_predicates.get(operand.value)
        if found is None:
            found = code.icmp("ne", self.load(layout.UNIFORM_PREDICATES + operand.value), code.const(0, "i32"))
            self._uniform_predicates[operand.value] = found
        return code.invert(found) if operand.invert else found

    def condition(self, operand: Operand) -> Value:
        """Return a predicate in the instruction's shape: i1, or one for each lane."""
        if self.is_uniform:
            return self.flag(operand)
        return self.lanes_of(self.mask_of(operand))

    def lanes_of(self, mask: Value) -> Value:
        """Return a mask as a vector of i1."""
        if mask.is_constant:
            return Value(f"splat (i1 {'true' if mask.text == '-1' else 'false'})", FLAGS)
        return self.code.bitcast(mask, FLAGS)

    def set_condition(self, operand: Operand, value: Value) -> None:
        """Write a predicate: i1 for a uniform one, else a vector of i1 or a mask (i32)."""
        if operand.value == PT:
            return
        code = self.code
        if operand.kind is Kind.UNIFORM_PREDICATE:
            if self.mask.text != self.active.text:
                value = code.select(self._somebody(), value, self.flag(operand._replace(invert=False)))
            self._uniform_predicates[operand.value] = value
            self._dirty.add(("Q", operand.value))
            return
        mask = value if value.type == "i32" else code.bitcast(value, "i32")
        if self.mask.text != "-1":
            old = self.mask_of(operand._replace(invert=False))
            kept = code.op("and", old, code.invert(self.mask))
            mask = code.op("or", kept, code.op("and", mask, self.mask))
        self._predicates[operand.value] = mask
        self._dirty.add(("P", operand.value))

    # sources ----------------------------------------------------------------------------------------------------------

    def shape(self, value: Value) -> Value:
        """Return a scalar in the instruction's shape."""
        return value if self.is_uniform or value.type[0] == "<" else self.code.splat(value, LANES)

    def const(self, value: int, kind: str = "i32") -> Value:
        """Return a constant in the instruction's shape."""
        return self.code.const(value, kind if self.is_uniform else f"<{LANES} x {kind}>")

    def register(self, number: int) -> Value:
        """Return a vector register."""
        if number == RZ:
            return self.code.const(0, ROW)
        self._check(number)
        found = self._registers.get(number)
        if found is None:
            found = self._registers[number] = self.load(layout.REGISTERS + LANES * number, ROW)
        return found

    def _check(self, number: int) -> None:
        if number >= self.count:
            raise NotTranslated(f"{self.ins.text}: R{number} is beyond the launch")

    def uniform(self, number: int) -> Value:
        """Return a uniform register."""
        if number >= URZ:
            return self.code.const(0, "i32")
        found = self._uniform.get(number)
        if found is None:
            found = self._uniform[number] = self.load(layout.UNIFORMS + number)
        return found

    def constant(self, operand: Operand, type_: str = "i32") -> Value:
        """Return a constant (i32 or i64) at an offset that the instruction has."""
        code = self.code
        if operand.bank < 0 or operand.register not in (-1, RZ) or operand.uniform >= 0:
            size = 4 if type_ == "i32" else 8
            rows = self.constants_at(operand, Shape(size, 4, LANES), code.const(1, "i32"))
            parts = [code.extract(row, 0) for row in rows]
            return self.joined(*parts) if size == 8 else parts[0]
        return self.fixed_constant(operand.bank, operand.value, type_)

    def fixed_constant(self, bank: int, offset: int, type_: str) -> Value:
        """Return a constant (i32 or i64) at an offset that is known."""
        code = self.code
        base = code.load(code.gep(CONTEXT, Own.BANKS + bank, "i64"), "ptr", 8)
        return code.load(code.gep(base, self.number("offset", offset)), type_, 4)

    def number(self, use: str, value: int) -> Value:
        """Return a number (i64) that differs between instructions of one form, for a `use`."""
        del use
        return self.code.const(value, "i64")

    def _bank(self, operand: Operand) -> tuple[Value, Value]:
        """Return the gpu_va of a constant bank and its bytes (i64)."""
        code = self.code
        if operand.bank >= 0:
            words = Own.BANK_VAS + operand.bank, Own.BANK_SIZES + operand.bank
            base, size = (code.load(code.gep(CONTEXT, word, "i64"), "i64", 8) for word in words)
            return base, size
        # Source: Mesa's nouveau, nvk_buffer_view.c and nvk_descriptor_types.h: address / 16 in 45 bits, size / 16.
        packed = self.joined(self.uniform(operand.uniform), self.uniform(operand.uniform + 1))
        base = code.op("and", packed, code.const((1 << 45) - 1, "i64"))
        return (
            code.op("shl", base, code.const(4, "i64")),
            code.op("shl", code.op("lshr", packed, code.const(45, "i64")), code.const(4, "i64")),
        )

    def constants_at(self, place: Operand, shape: Shape, mask: Value) -> list[Value]:
        """Return what some lanes find at their offset of a constant bank, which registers may add to."""
        code = self.code
        offset = code.const(place.value, ROW)
        if place.register not in (-1, RZ):
            offset = code.op("add", self.register(place.register), offset)
        if place.bank >= 0 and place.uniform >= 0:
            offset = code.op("add", code.splat(self.uniform(place.uniform), LANES), offset)
        base, size = self._bank(place)
        wide = code.resize(offset, "i64")
        spare = code.intrinsic("usub.sat", size, code.const(shape.size_bytes - 1, "i64"))
        beyond = as_mask(code, code.icmp("uge", wide, code.splat(spare, LANES)))
        low = code.op("and", offset, code.const(shape.align - 1, ROW))
        for wrong, kind in ((as_mask(code, code.icmp("ne", low, code.const(0, ROW))), ALIGNMENT), (beyond, MEMORY)):
            some = code.op("and", mask, wrong)
            if kind == MEMORY and not self.strict:
                # what is beyond the bank reads as zero
                mask = code.op("and", mask, code.invert(wrong))
                continue
            detail = code.resize(code.extract(offset, first_lane(code, some)), "i64")
            answer = Answer(code.const(kind, "i64"), detail, [])
            self.fault(code.icmp("ne", some, code.const(0, "i32")), answer)
        where = code.op("add", wide, code.splat(base, LANES))
        name = gather(shape, strict=True).include(code)
        answer = take(code, name, [ROW] * shape.rows, CONTEXT, self.site(), mask, where)
        self.fault(code.icmp("ne", answer.status, code.const(DONE, "i64")), answer)
        # a mask of one lane may be a constant too
        flags = code.bitcast(mask, FLAGS)
        return [code.select(flags, row, code.const(0, ROW)) for row in answer.rows]

    def raw(self, operand: Operand) -> Value:
        """Return a source's bits, in the instruction's shape."""
        kind = operand.kind
        if kind is Kind.REGISTER:
            return self.register(operand.value)
        if kind is Kind.IMMEDIATE:
            return self.const(operand.value)
        if kind is Kind.CONSTANT:
            return self.shape(self.constant(operand))
        if kind is Kind.UNIFORM:
            return self.shape(self.uniform(operand.value))
        raise NotTranslated(f"{self.ins.text}: an operand of kind {kind.value}")

    def raw64(self, operand: Operand) -> Value:
        """Return 64 bits; an immediate is the upper half."""
        kind = operand.kind
        if kind is Kind.IMMEDIATE:
            return self.const(operand.value << 32, "i64")
        if kind is Kind.CONSTANT:
            return self.shape(self.constant(operand, "i64"))
        if kind is Kind.UNIFORM:
            high = self.uniform(operand.value + 1) if operand.value < URZ else self.code.const(0, "i32")
            return self.shape(self.joined(self.uniform(operand.value), high))
        if operand.value == RZ:
            return self.const(0, "i64")
        return self.joined(self.register(operand.value), self.register(operand.value + 1))

    def joined(self, low: Value, high: Value) -> Value:
        """Return two halves as 64 bits."""
        code = self.code
        upper = code.resize(high, "i64")
        return code.op("or", code.resize(low, "i64"), code.op("shl", upper, code.const(32, upper.type)))

    def u32(self, operand: Operand) -> Value:
        """Return an integer source with its sign or complement."""
        bits = self.raw(operand)
        if operand.negate:
            return self.code.op("sub", self.const(0), bits)
        return self.code.invert(bits) if operand.invert else bits

    def f32(self, operand: Operand, *, flush: bool = False) -> Value:
        """Return an f32 source."""
        code = self.code
        bits = self.raw(operand)
        if flush and bits.text not in self.flushed:
            bits = self.without_denormals(bits)
        if operand.absolute:
            bits = code.op("and", bits, self.const(MAGNITUDE))
        if operand.negate:
            bits = code.op("xor", bits, self.const(SIGN))
        return code.cast("bitcast", bits, "float")

    def without_denormals(self, bits: Value) -> Value:
        """Return the bits of f32 with denormals made zeroes of their sign."""
        code = self.code
        small = code.icmp("ult", code.op("and", bits, self.const(MAGNITUDE)), self.const(0x80_0000))
        found = code.select(small, code.op("and", bits, self.const(SIGN)), bits)
        self.flushed.add(found.text)
        return found

    def f64(self, operand: Operand) -> Value:
        """Return an f64 source."""
        code = self.code
        bits = self.raw64(operand)
        if operand.absolute:
            bits = code.op("and", bits, self.const((1 << 63) - 1, "i64"))
        if operand.negate:
            bits = code.op("xor", bits, self.const(1 << 63, "i64"))
        return code.cast("bitcast", bits, "double")

    # results ----------------------------------------------------------------------------------------------------------

    def write(self, operand: Operand, value: Value) -> None:
        """Write a register in the lanes that execute."""
        if operand.kind is Kind.UNIFORM:
            if operand.value < URZ:
                if self.mask.text != self.active.text:
                    value = self.code.select(self._somebody(), value, self.uniform(operand.value))
                self._uniform[operand.value] = value
                self._dirty.add(("U", operand.value))
            return
        if operand.kind is not Kind.REGISTER:
            raise NotTranslated(f"{self.ins.text}: a result in an operand of kind {operand.kind.value}")
        self.write_register(operand.value, value)

    def write_register(self, number: int, value: Value) -> None:
        """Write a vector register in the lanes that execute."""
        if number == RZ:
            return
        self._check(number)
        if self.mask.text != "-1":
            old = self.register(number)
            clean = value.text in self.flushed and old.text in self.flushed
            value = self.code.select(self.lanes_of(self.mask), value, old)
            if clean:
                self.flushed.add(value.text)
        self._registers[number] = value
        self._dirty.add(("R", number))

    def write64(self, operand: Operand, value: Value) -> None:
        """Write a pair of registers."""
        code = self.code
        high = code.resize(code.op("lshr", value, code.const(32, value.type)), "i32")
        self.write(operand, code.resize(value, "i32"))
        if operand.value != (URZ if operand.kind is Kind.UNIFORM else RZ):
            self.write(operand._replace(value=operand.value + 1), high)

    # leaving ----------------------------------------------------------------------------------------------------------

    def site(self) -> Value:
        """Return the address of the region cache of this memory instruction, the same for both forms of its block."""
        if self.at not in self.sites:
            self.sites.append(self.at)
        code = self.code
        sites = code.load(code.gep(CONTEXT, Own.SITES, "i64"), "ptr", 8)
        return code.gep(sites, self.number("site", 4 * self.sites.index(self.at)), "i64")

    def shared(self) -> Value:
        """Return the host address of the group's shared memory (i64)."""
        return self.code.load(self.word(Field.SHARED), "i64", 8)

    def local(self) -> Value:
        """Return the host address of the warp's local memory (i64)."""
        return self.code.load(self.word(Field.LOCAL), "i64", 8)

    def interpret(self) -> None:
        """Let the interpreter execute the instruction on the warp's state."""
        code = self.code
        self.flush()
        wrong, right = code.fresh("refused"), code.fresh("executed")
        code.branch(code.icmp("ne", self._interpreted(), code.const(0, "i64")), wrong, right, likely=False)
        code.block(wrong)
        code.line(f"ret i64 {int(Ended.FAULT)}")
        code.block(right)
        self.forget()

    def forget(self) -> None:
        """Load from the state again what is read next. Nothing may be dirty."""
        for kept in self._kept():
            kept.clear()
        self.flushed.clear()

    def _interpreted(self) -> Value:
        """Call the interpreter; return zero if it has executed the instruction (i64)."""
        code = self.code
        function = code.load(code.gep(CONTEXT, Word.INTERPRET, "i64"), "ptr", 8)
        at = self.number("at", self.at)
        return code.emit(f"call i64 {function.text}(ptr {STATE.text}, i64 {at.text})", "i64")

    def need_every_lane(self) -> None:
        """Leave an instruction that some lanes of the warp execute, not all or none, to the interpreter, which refuses
        it.
        """
        if self.mask.text == EVERY.text:
            return
        code = self.code
        self.flush()
        some, right = code.fresh("some.lanes"), code.fresh("every.lane")
        parted = code.icmp("ult", code.op("sub", self.mask, code.const(1, "i32")), code.const(-2, "i32"))
        code.branch(parted, some, right, likely=False)
        code.block(some)
        self._interpreted()
        code.line(f"ret i64 {int(Ended.FAULT)}")
        code.block(right)

    def _kept(self) -> tuple[dict[int, Value], ...]:
        return self._registers, self._uniform, self._predicates, self._uniform_predicates

    def attempt(self, rule: Callable[[Self], None]) -> bool:
        """Emit an instruction by its rule; return False, and leave nothing, if the rule does not know its form."""
        code = self.code
        lines, label, dirty = len(code.lines), code.label, set(self._dirty)
        before = [dict(one) for one in self._kept()]
        try:
            rule(self)
        except NotTranslated:
            del code.lines[lines:]
            code.label, self._dirty = label, dirty
            self._registers, self._uniform, self._predicates, self._uniform_predicates = before
            return False
        return True

    def fault(self, condition: Value, answer: Answer) -> None:
        """Stop the warp: its place, what rule was broken, and the address are in the context."""
        code = self.code
        wrong, right = code.fresh("fault"), code.fresh("good")
        code.branch(condition, wrong, right, likely=False)
        code.block(wrong)
        for word, value in (
            (int(Own.FAULT_PC), self.number("at", self.at)),
            (int(Word.FAULT_KIND), answer.status),
            (int(Word.FAULT_DETAIL), answer.detail),
        ):
            code.store(value, code.gep(CONTEXT, word, "i64"), 8)
        code.line(f"ret i64 {int(Ended.FAULT)}")
        code.block(right)
