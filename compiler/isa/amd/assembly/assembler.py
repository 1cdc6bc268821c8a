"""The text assembler. It reads LLVM's syntax of AMD's shader instructions, with labels, expressions and directives, and
returns a `Program`.

Statements are parsed once and processed in two passes: the first determines sizes and places, the second what depends
on a label's place. Every error gives file, line and column, and shows the line. The first twenty are reported together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ringup.compiler.isa.amd.assembly.directives import Directives
from ringup.compiler.isa.amd.assembly.parse import InstructionParser, Parsed
from ringup.compiler.isa.amd.encoding.plan import Refused
from ringup.compiler.isa.amd.encoding.processor import Processor
from ringup.compiler.isa.amd.encoding.registers import Literal, Register
from ringup.compiler.isa.common import expression
from ringup.compiler.isa.common.expression import Expression, Value
from ringup.compiler.isa.common.lexer import AssemblyError, Complaint, Reader, Token, strip_comments, tokens
from ringup.compiler.isa.common.macros import Line, expand
from ringup.compiler.isa.common.program import TEXT, Program
from ringup.errors import CompileError

MAX_ERRORS = 20
BRANCH_UNIT, BRANCH_MIN, BRANCH_MAX = 4, -0x8000, 0x7FFF


class Fixup(NamedTuple):
    """An instruction or number whose value depends on the places of labels."""

    section: str
    offset: int
    size_bytes: int
    line: Line
    halves: list[Parsed] | None
    value: Expression | None


class Assembler:
    """Assembles one text for one processor."""

    def __init__(self, machine: Processor, source: str = "<text>") -> None:
        self.machine, self.source = machine, source
        self.program = Program(machine.name, machine.wave_size, {TEXT: bytearray()})
        self.section = TEXT
        self.aliases: dict[str, Register] = {}
        self.constants: dict[str, int] = {}
        self.parser = InstructionParser(machine.limits.generation, self.aliases, self.constants)
        self.fixups: list[Fixup] = []
        self.errors: list[AssemblyError] = []
        # The value of source fields that an instruction has no operand for.
        self.unused_sources = 0
        self._numbered: dict[str, int] = {}
        self._directives = Directives(self)

    def run(self, text: str) -> Program:
        """Assemble a whole text. Raises `CompileError` with a list of the errors."""
        lines = expand(strip_comments(text), self._error)
        block: list[Line] | None = None
        for line in lines:
            word = line.text.strip()
            if block is not None:
                if word == ".end_amdgpu_metadata":
                    self._guard(line, lambda block=block: self._directives.metadata_block(block))
                    block = None
                else:
                    block.append(line)
            elif word == ".amdgpu_metadata":
                block = []
                opened = line
            else:
                self._guard(line, lambda line=line: self._statement(line))
            if len(self.errors) >= MAX_ERRORS:
                break
        if block is not None:
            self._error(".amdgpu_metadata is never closed by .end_amdgpu_metadata", opened, 0)
        self._directives.close()
        for fixup in self.fixups:
            self._guard(fixup.line, lambda fixup=fixup: self._resolve(fixup))
        self.errors.sort(key=lambda error: error.line)
        if not self.errors:
            self._directives.finish()
        if self.errors:
            more = f"\n({len(self.errors)} errors)" if len(self.errors) > 1 else ""
            if len(self.errors) == 1:
                raise self.errors[0]
            raise CompileError("\n".join(str(error) for error in self.errors[:MAX_ERRORS]) + more)
        return self.program

    def _guard(self, line: Line, action: Any) -> None:
        try:
            action()
        except Complaint as complaint:
            self._error(complaint.message, line, complaint.at)
        except RecursionError:
            self._error("brackets or signs are nested too deeply", line, 0)
        except CompileError as error:
            self._error(str(error), line, len(line.text) - len(line.text.lstrip()))

    def _error(self, message: str, line: Line, at: int) -> None:
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(AssemblyError(message, self.source, line.number, at + 1, line.text))

    @property
    def data(self) -> bytearray:
        """Return the bytes of the current section."""
        return self.program.sections.setdefault(self.section, bytearray())

    def here(self) -> Value:
        """Return the place of the next byte."""
        return Value(len(self.data), self.section)

    def lookup(self, name: str) -> Value:
        """Return a symbol's value. Raises KeyError if it has none yet."""
        if name == ".":
            return self.here()
        found = self.program.symbols.get(name)
        if found is None or found.value is None:
            raise KeyError(name)
        return found.value

    def _statement(self, line: Line) -> None:
        found = tokens(line.text)
        while found[0].kind in ("name", "number") and len(found) > 1 and found[1].text == ":":
            token = found[0]
            del found[:2]
            if token.kind == "number":
                self._numbered[token.text] = self._numbered.get(token.text, 0) + 1
                self.define(f"{token.text}\x00{self._numbered[token.text]}", self.here(), token.at)
            else:
                self.define(token.text, self.here(), token.at)
        reader = Reader(self._local_labels(found))
        if reader.done:
            return
        token = reader.token
        if token.kind == "name" and reader.peek().text == "=" and reader.peek(2).text != "=":
            reader.next()
            reader.next()
            self.assign(token.text, reader)
        elif token.kind == "name" and token.text.startswith("."):
            self._directives.run(reader, line)
        elif self._directives.kernel is not None:
            raise Complaint(
                "only .amdhsa_ directives may stand between .amdhsa_kernel and .end_amdhsa_kernel", token.at
            )
        else:
            self._instruction(reader, line)

    def _local_labels(self, found: list[Token]) -> list[Token]:
        """Replace `1b` and `2f` by the names of the numbered labels that they refer to."""
        made = []
        i = 0
        while i < len(found):
            token = found[i]
            following = found[i + 1] if i + 1 < len(found) else token
            if (
                token.kind == "number"
                and token.text.isdigit()
                and following.text in ("b", "f")
                and following.at == token.at + len(token.text)
            ):
                count = self._numbered.get(token.text, 0) + (following.text == "f")
                made.append(Token("name", f"{token.text}\x00{count}", token.at))
                i += 2
            else:
                made.append(token)
                i += 1
        return made

    def define(self, name: str, value: Value, at: int) -> None:
        """Set the place of a label."""
        symbol = self.program.symbol(name)
        if symbol.value is not None:
            raise Complaint(f"{name} is defined twice", at)
        symbol.value = value

    def assign(self, name: str, reader: Reader) -> None:
        """Set a symbol to the value of an expression, or make it an alias of a register."""
        register = self.parser._register(reader) if reader.token.kind == "name" else None
        if register is not None:
            self.aliases[name] = register
            return
        value = expression.parse(reader).value(self.lookup)
        if not reader.done:
            raise Complaint(f"expected the end of the line, not {reader.token.text!r}", reader.token.at)
        self.program.symbol(name).value = value
        if value.section:
            self.constants.pop(name, None)
        else:
            self.constants[name] = value.number

    def _instruction(self, reader: Reader, line: Line) -> None:
        halves = self.parser.parse(reader)
        deferred = any(isinstance(operand, Expression) for half in halves for operand in half.operands)
        code = self._encode(halves, None)
        if deferred:
            self.fixups.append(Fixup(self.section, len(self.data), len(code), line, halves, None))
        self.data.extend(code)

    def _encode(self, halves: list[Parsed], place: tuple[str, int] | None) -> bytes:
        """Encode an instruction. Without a place, labels count as zero."""
        if len(halves) == 2:
            x, y = halves
            for half in halves:
                if not half.mnemonic.startswith("v_dual_"):
                    raise Complaint(
                        f"{half.mnemonic} is not a half of a dual instruction; their names start with v_dual_", half.at
                    )
            pair = [(half.mnemonic, self._values(half, place)) for half in (x, y)]
            if x.modifiers or y.modifiers:
                raise Complaint("dual instructions have no modifiers", x.at)
            try:
                return self.machine.encode_dual(pair[0], pair[1])
            except CompileError as error:
                raise Complaint(str(error), x.at) from None
        (half,) = halves
        try:
            code = self.machine.encode(half.mnemonic, self._values(half, place), **half.modifiers)
            return self._filled(code) if self.unused_sources else code
        except Refused as refused:
            at = (
                half.columns[refused.operand]
                if refused.operand is not None and refused.operand < len(half.columns)
                else half.at
            )
            raise Complaint(str(refused), self._modifier_column(half, str(refused), at)) from None
        except CompileError as error:
            raise Complaint(str(error), self._modifier_column(half, str(error), half.at)) from None
        except TypeError as error:
            raise Complaint(f"a modifier has a value of the wrong kind: {error}", half.at) from None

    def _filled(self, code: bytes) -> bytes:
        """Return an instruction with its unused source fields filled."""
        found = self.machine.decode(code)
        word = int.from_bytes(code, "little")
        for place in found.form.unused_sources if found else ():
            word |= self.unused_sources << place
        return word.to_bytes(len(code), "little")

    @staticmethod
    def _modifier_column(half: Parsed, message: str, at: int) -> int:
        """Return the column of the modifier that a message is about, else `at`."""
        if at != half.at:
            return at
        for name, column in half.modifier_columns.items():
            if f"modifier {name};" in message or message.startswith(f"{name}:"):
                return column
        return at

    def _values(self, half: Parsed, place: tuple[str, int] | None) -> list[Any]:
        if not any(isinstance(operand, Expression) for operand in half.operands):
            return half.operands
        return [
            self._value(half, i, operand, place) if isinstance(operand, Expression) else operand
            for i, operand in enumerate(half.operands)
        ]

    def _value(self, half: Parsed, i: int, operand: Expression, place: tuple[str, int] | None) -> Any:
        if place is None:
            return Literal(0)
        value = operand.value(self.lookup)
        section, offset = place
        if operand.relative:
            return Literal(self._relative(operand, value, section, offset, half))
        if not value.section:
            return Literal(value.number)
        if value.section != section:
            raise Complaint(
                "a label of another section: its distance is known only at load time; write label@rel32@lo+4",
                operand.at,
            )
        distance = value.number - offset - 4
        if distance % BRANCH_UNIT:
            raise Complaint(
                f"the label is {distance} bytes away; instructions are aligned to {BRANCH_UNIT}", operand.at
            )
        units = distance // BRANCH_UNIT
        if not half.mnemonic.startswith(("s_branch", "s_cbranch", "s_call", "s_subvector")):
            raise Complaint(
                "a label's address is known only at load time; write label@rel32@lo+4 (and @hi+12)", operand.at
            )
        if not BRANCH_MIN <= units <= BRANCH_MAX:
            raise Complaint(
                f"the label is {units} dwords away; a branch reaches {BRANCH_MIN} to {BRANCH_MAX}", operand.at
            )
        return units

    def _relative(self, operand: Expression, value: Value, section: str, offset: int, half: Parsed) -> int:
        """Return the value of `label@rel32@lo+4`: the distance from the literal itself, as the loader's relocation
        computes it.
        """
        if value.section != section or not operand.relative.startswith("rel"):
            raise Complaint(f"@{operand.relative} of a label outside this section needs a linker", operand.at)
        form = self.machine.form(
            half.mnemonic,
            [Literal(0) if isinstance(one, Expression) else one for one in half.operands],
            **half.modifiers,
        )
        distance = value.number - (offset + form.width // 8)
        return (distance >> 32 if operand.relative.endswith("hi") else distance) & 0xFFFF_FFFF

    def _resolve(self, fixup: Fixup) -> None:
        data = self.program.sections[fixup.section]
        if fixup.halves is not None:
            code = self._encode(fixup.halves, (fixup.section, fixup.offset))
            if len(code) != fixup.size_bytes:
                raise Complaint("the instruction changed its size when its label became known", fixup.halves[0].at)
        elif fixup.value is not None:
            value = fixup.value.value(self.lookup)
            number = value.number
            if fixup.value.relative.startswith("rel") and value.section == fixup.section:
                number -= fixup.offset
            elif value.section:
                raise Complaint(
                    "the address of a label is known only at load time; use a difference of labels", fixup.value.at
                )
            code = self.number_bytes(number, fixup.size_bytes, fixup.value.at)
        data[fixup.offset : fixup.offset + fixup.size_bytes] = code

    def instruction_bytes(self, text: str) -> bytes:
        """Return the bytes of one instruction's text, without labels."""
        try:
            halves = self.parser.parse(Reader(tokens(strip_comments(text))))
            for half in halves:
                for operand in half.operands:
                    if isinstance(operand, Expression):
                        operand.value(self.lookup)
            return self._encode(halves, None)
        except Complaint as complaint:
            raise AssemblyError(complaint.message, self.source, 1, complaint.at + 1, text) from None
        except RecursionError:
            raise AssemblyError("brackets or signs are nested too deeply", self.source, 1, 1, text) from None

    @staticmethod
    def number_bytes(number: int, size_bytes: int, at: int) -> bytes:
        """Return a number's bytes. Raises `Complaint` if it does not fit."""
        bits = 8 * size_bytes
        if not -(1 << bits - 1) <= number < 1 << bits:
            raise Complaint(f"{number:#x} does not fit {bits} bits", at)
        return (number & (1 << bits) - 1).to_bytes(size_bytes, "little")


def assemble(text: str, machine: Processor, source: str = "<text>") -> Program:
    """Assemble a text for a processor. `source` is its name in errors."""
    return Assembler(machine, source).run(text)


def assemble_line(machine: Processor, text: str) -> bytes:
    """Return the bytes of one instruction's text."""
    return Assembler(machine).instruction_bytes(text)
