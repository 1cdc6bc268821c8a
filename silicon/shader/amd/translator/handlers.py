"""Write handlers: the host functions of threaded code, one for each form of instructions (`forms.py`).

A handler is `i64 handler(ptr wave, ptr context, ptr record)`. Registers are in the wave's state before and after it. It
ends by calling the handler of the next record as its last act, which the host does with a jump, or returns like a
program, see `context.Exit`. A record is the address of its handler, the offset of its instruction's PC and the operand
words, padded to 8 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.analysis import ALL
from ringup.silicon.shader.amd.decoding.generations import RDNA3
from ringup.silicon.shader.amd.translator.forms import CONSTANT, SCALAR_SPAN, VECTOR, VECTOR_SPAN, WIDE_CONSTANT, Form
from ringup.silicon.shader.amd.translator.lower import COUNTED_FORMATS, apply_rules, pass_barrier
from ringup.silicon.shader.amd.writer.wave import Wave
from ringup.silicon.shader.common import state
from ringup.silicon.shader.common.launch import GROUP_BARRIER, STATUS_NO_VGPRS, TRAP_BARRIER
from ringup.silicon.shader.host.context import COUNTS_WORD, SITES_WORD, Exit, Leave, Word
from ringup.silicon.shader.host.emitter import Code, Value
from ringup.silicon.shader.host.scheduler import TRANSLATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringup.silicon.shader.amd.writer.registers import Register

# Bytes of a record before its operand words: the handler's address, the PC's offset.
HEAD_BYTES = 12
_TYPE = "i64 @{}(ptr %wave, ptr %context, ptr %record)"
# A translated program: it finds the records of its entries before the counts of its blocks.
_ENTER = f"""define i64 @{{}}(ptr %wave, ptr %context, i64 %number) #0 {{{{
entry:
  %counts.place = getelementptr i32, ptr %wave, i64 {COUNTS_WORD}
  %counts = load ptr, ptr %counts.place
  %entries.place = getelementptr i8, ptr %counts, i64 -8
  %entries = load ptr, ptr %entries.place
  %place = getelementptr ptr, ptr %entries, i64 %number
  %record = load ptr, ptr %place
  %handler = load ptr, ptr %record
  %reason = musttail call i64 %handler(ptr %wave, ptr %context, ptr %record)
  ret i64 %reason
}}}}"""
_ATTRIBUTES = 'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }'


def record_words(form: Form) -> int:
    """Return the size of a form's record in dwords: an even number."""
    return (HEAD_BYTES // 4 + form.words + 1) // 2 * 2


class Handler(Wave):
    """The wave while a handler is written. Its operands are where the record's words say."""

    def __init__(self, form: Form) -> None:
        super().__init__(
            Code(), form.lanes, 256, strict=form.strict, counting=form.counting, in_state=True,
            generation=form.ins.generation if form.ins is not None else RDNA3,
        )  # fmt: skip
        self.form = form
        self.full, self.mode, self.everything = form.full, self.mode_of(form.mode), ALL
        # by name: lines of the first block that give places of operands their names
        self._first: dict[str, list[str]] = {}
        at = int(form.has_site)
        # the first operand word of each place
        self._words: dict[tuple[str, int], int] = {}
        self._spans: dict[tuple[str, int], int] = {}
        for place in form.places:
            bank = "v" if place.kind == VECTOR else "s"
            self._words[bank, place.number] = at
            if place.kind in (CONSTANT, WIDE_CONSTANT):
                self._spans[bank, place.number] = place.words
            at += place.words
        self._offsets = at

    # operand words ----------------------------------------------------------------------------------------------------

    def _at_start(self, name: str, *lines: str) -> Value:
        """Return a pointer that the first block computes with these lines."""
        self._first.setdefault(name, list(lines))
        return Value(name, "ptr")

    def _record_place(self, byte: int) -> Value:
        name = f"%record.{byte}"
        return self._at_start(name, f"{name} = getelementptr i8, ptr %record, i64 {byte}")

    def word(self, number: int) -> Value:
        """Return an operand word (i32)."""
        return self.code.load(self._record_place(HEAD_BYTES + 4 * number), "i32", 4)

    def _moved(self, name: str, base: str, number: int) -> Value:
        """Return the place at a byte offset from a pointer that an operand word holds."""
        place = self._record_place(HEAD_BYTES + 4 * number)
        return self._at_start(
            name,
            f"{name}.word = load i32, ptr {place.text}, align 4",
            f"{name}.bytes = zext i32 {name}.word to i64",
            f"{name} = getelementptr i8, ptr {base}, i64 {name}.bytes",
        )

    def _pointer_of(self, name: str, word: int) -> Value:
        """Return a pointer that the wave's state holds."""
        return self._at_start(
            name, f"{name}.place = getelementptr i32, ptr %wave, i64 {word}", f"{name} = load ptr, ptr {name}.place"
        )

    def register_place(self, register: Register) -> Value:
        """Return the address of a register: of the operand that it stands for, or in the wave's state."""
        bank, index = register
        span = VECTOR_SPAN if bank == "v" else SCALAR_SPAN
        if bank == "v" or (bank == "s" and index < state.SGPR_COUNT):
            number, at = divmod(index, span)
            word = self._words[bank, number]
            constant = self._spans.get((bank, number))
            if constant is not None:
                assert at < constant
                return self._record_place(HEAD_BYTES + 4 * (word + at))
            place = self._moved(f"%{bank}.{number}", "%wave", word)
            return self.code.gep(place, at * (4 * self.lanes if bank == "v" else 4)) if at else place
        return super().register_place(register)

    def immediate(self, value: int, kind: str, number: int = 0) -> Value:
        """Return offset number `number` from the record."""
        del value
        return self.code.resize(self.word(self._offsets + number), kind, signed=True)

    def scratch_base(self) -> Value:
        """Return the gpu_va of the wave's scratch memory (i64). It is no operand, so the wave's state has it."""
        return self.wave_word(self.generation.start.flat_scratch, "i64")

    def site(self) -> Value:
        """Return the address of the instruction's region cache."""
        assert self.form.has_site
        assert not self.sites
        self.sites += 1
        return self._moved("%site", self._pointer_of("%sites", SITES_WORD).text, 0)

    def _save_pc(self, offset: int) -> None:
        del offset
        self.set_wave_word(state.PC_LO, self.pc())

    def pc(self) -> Value:
        """Return the address at the record's offset of the PC (i64)."""
        offset = self.code.cast("sext", self.code.load(self._record_place(8), "i32", 4), "i64")
        return self.code.op("add", self.context_word(Word.BASE), offset)

    def leave(self, reason: Value) -> None:
        """Return from the program with a reason (i64)."""
        self.code.line(f"ret i64 {reason.text}")

    # the function -----------------------------------------------------------------------------------------------------

    def go_on(self, record: Value | None = None) -> None:
        """End with the handler of another record, by default of the next one."""
        code = self.code
        self.flush()
        if record is None:
            record = code.gep(Value("%record", "ptr"), 4 * record_words(self.form))
        function = code.load(record, "ptr", 8)
        reason = code.emit(f"musttail call i64 {function.text}(ptr %wave, ptr %context, ptr {record.text})", "i64")
        self.leave(reason)

    def target(self, number: int) -> Value:
        """Return the record at the distance in bytes that an operand word holds."""
        return self.code.gep(Value("%record", "ptr"), self.code.resize(self.word(number), "i64", signed=True))

    def counts(self) -> Value:
        """Return the address of the counts of blocks."""
        return self._pointer_of("%counts", COUNTS_WORD)

    def text(self) -> str:
        """Return the function."""
        self.close()
        first = [line for lines in self._first.values() for line in lines]
        head = f"define {_TYPE.format(self.form.name)} #0 {{"
        return "\n".join((head, "entry:", *first, *self.code.lines, "}"))


# parts of control flow ------------------------------------------------------------------------------------------------


def _block(made: Handler) -> None:
    """Count a block, and take its instructions from the wave's fuel: byte offset of the count, instructions."""
    code = made.code
    place = code.gep(made.counts(), code.cast("zext", made.word(0), "i64"))
    code.store(code.op("add", code.load(place, "i64", 8), code.const(1, "i64")), place, 8)
    length = code.cast("zext", made.word(1), "i64")
    made.set_context_word(Word.FUEL, code.op("sub", made.context_word(Word.FUEL), length))
    made.go_on()


def _jump(made: Handler) -> None:
    made.go_on(made.target(0))


def _back(made: Handler) -> None:
    """Jump while the wave has fuel, else return: distance, reason."""
    code, on, out = made.code, made.code.fresh("on"), made.code.fresh("out")
    code.branch(code.icmp("slt", made.context_word(Word.FUEL), code.const(0, "i64")), out, on, likely=False)
    code.block(on)
    made.go_on(made.target(0))
    code.block(out)
    _suspend(made, 1)


def _suspend(made: Handler, number: int = 0) -> None:
    """Return and continue at the PC later: reason."""
    made.save(0, 0)
    made.leave(made.code.cast("zext", made.word(number), "i64"))


def _wait(number: int) -> Callable[[Handler], None]:
    """Return the writer of a wait for a split barrier: reason to return until it is complete."""

    def write(made: Handler) -> None:
        code, on, out = made.code, made.code.fresh("on"), made.code.fresh("out")
        code.branch(pass_barrier(made, number), on, out)
        code.block(on)
        made.go_on()
        code.block(out)
        _suspend(made)

    return write


def _branch(condition: Callable[[Handler], Value]) -> Callable[[Handler], None]:
    """Return the writer of a branch: distance if the condition holds, else the next record."""

    def write(made: Handler) -> None:
        code = made.code
        taken, other = made.target(0), code.gep(Value("%record", "ptr"), 4 * record_words(made.form))
        made.go_on(code.select(condition(made), taken, other))

    return write


def _is_zero(made: Handler, whole: Value, *, inverted: bool) -> Value:
    return made.code.icmp("ne" if inverted else "eq", whole, made.code.const(0, whole.type))


def _leave(made: Handler) -> None:
    made.save(0, 0)
    made.leave(made.code.const(Exit.LEAVE | Leave.INTERPRET << 8, "i64"))


def _illegal(made: Handler) -> None:
    made.fault(made.code.const(1, "i1"), "illegal")
    made.code.line("unreachable")


def _interpret(made: Handler) -> None:
    made.save(0, 0)
    made.interpret()
    made.go_on()


def _mode(made: Handler) -> None:
    made.set_wave_word(state.MODE, made.word(0))
    made.go_on()


def _release(made: Handler) -> None:
    code, status = made.code, made.wave_word(state.STATUS)
    made.set_wave_word(state.STATUS, code.op("or", status, code.const(STATUS_NO_VGPRS, "i32")))
    made.go_on()


def _put_pc(made: Handler) -> None:
    assert made.form.ins is not None
    made.put_scalar(made.form.ins.operands[0], made.pc())
    made.go_on()


def _lanes(made: Handler) -> None:
    _count_lanes(made)
    made.go_on()


def _aligned(made: Handler) -> None:
    """Stop the wave if its PC is not a multiple of 4."""
    code, target = made.code, made.pc()
    low = code.op("and", target, code.const(3, "i64"))
    made.fault(code.icmp("ne", low, code.const(0, "i64")), "alignment", target)
    made.go_on()


def _zero(made: Handler) -> None:
    """Clear a dword of the wave's state: byte offset."""
    place = made.code.gep(Value("%wave", "ptr"), made.code.cast("zext", made.word(0), "i64"))
    made.code.store(made.code.const(0, "i32"), place, 4)
    made.go_on()


def _zero_row(made: Handler) -> None:
    """Clear a VGPR: byte offset."""
    place = made.code.gep(Value("%wave", "ptr"), made.code.cast("zext", made.word(0), "i64"))
    made.code.store(made.code.const(0, made.row), place, 64)
    made.go_on()


def _count_lanes(made: Handler) -> None:
    made.count("lanes", made.code.cast("zext", made.code.intrinsic("ctpop", made.exec_bits()), "i64"))


# By name, with the number of operand words.
PARTS: dict[str, tuple[Callable[[Handler], None], int]] = {
    "block": (_block, 2), "jump": (_jump, 1), "back": (_back, 2), "suspend": (_suspend, 1), "leave": (_leave, 0),
    "illegal": (_illegal, 0), "interpret": (_interpret, 0), "mode": (_mode, 1), "release": (_release, 0), "pc": (_put_pc, 0),
    "wait -1": (_wait(GROUP_BARRIER), 1), "wait -2": (_wait(TRAP_BARRIER), 1),
    "lanes": (_lanes, 0), "aligned": (_aligned, 0), "zero": (_zero, 1), "zero row": (_zero_row, 1),
    "end": (lambda made: made.leave(made.code.const(Exit.END, "i64")), 0),
    "scc0": (_branch(lambda made: made.code.invert(made.scc())), 1), "scc1": (_branch(Handler.scc), 1),
    "vccz": (_branch(lambda made: _is_zero(made, made.mask_bits(state.VCC_LO), inverted=False)), 1),
    "vccnz": (_branch(lambda made: _is_zero(made, made.mask_bits(state.VCC_LO), inverted=True)), 1),
    "execz": (_branch(lambda made: _is_zero(made, made.exec_bits(), inverted=False)), 1),
    "execnz": (_branch(lambda made: _is_zero(made, made.exec_bits(), inverted=True)), 1),
}  # fmt: skip


def _write(form: Form) -> Handler:
    made = Handler(form)
    if form.what:
        PARTS[form.what][0](made)
        return made
    ins = form.ins
    assert ins is not None
    if not form.full and ins.format in COUNTED_FORMATS:
        _count_lanes(made)
    apply_rules(made, ins)
    made.go_on()
    return made


def module(forms: Iterable[Form]) -> tuple[str, dict[str, str]]:
    """Return the text of a module with the handlers of some forms, and the declarations that it needs."""
    declared: dict[str, str] = {}
    texts = []
    for form in forms:
        if form.what == "enter":
            texts.append(_ENTER.format(form.name))
            continue
        made = _write(form)
        texts.append(made.text())
        declared |= made.code.declarations
    if "translate" in declared or any("@translate(" in one for one in declared.values()):
        declared["translate"] = TRANSLATE.strip()
    return "\n".join([*texts, _ATTRIBUTES, ""]), declared
