"""Parses the text of one instruction: mnemonic, operands and modifiers, with their columns."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ringup.compiler.isa.amd.encoding import immediates
from ringup.compiler.isa.amd.encoding.immediates import Call
from ringup.compiler.isa.amd.encoding.modifiers import DPP_NAMES
from ringup.compiler.isa.amd.encoding.names import EXPORT_TARGETS
from ringup.compiler.isa.amd.encoding.registers import ALIASES, NAMED, Literal, Marked, Register, a, s, special, ttmp, v
from ringup.compiler.isa.amd.encoding.swizzle import read_swizzle
from ringup.compiler.isa.common import expression
from ringup.compiler.isa.common.expression import Expression
from ringup.compiler.isa.common.lexer import Complaint, Reader
from ringup.errors import CompileError

_REGISTER = re.compile(r"(v|s|a|acc|ttmp)(\d+)(?:\.([lh]))?")
_FILES = {"v": v, "s": s, "a": a, "acc": a, "ttmp": ttmp}
# Mnemonics whose operand is a chain of calls.
_CHAINS = {
    "s_waitcnt": "wait", "s_waitcnt_depctr": "depctr", "s_wait_alu": "depctr", "s_delay_alu": "delay",
}  # fmt: skip
_TARGETS = {name: code for code, name in EXPORT_TARGETS.items()}
FLAG_MODIFIERS = frozenset((
    "glc", "slc", "dlc", "sc0", "sc1", "nt", "lds", "gds", "tfe", "lwe", "unorm", "clamp", "idxen", "offen", "r128", "a16", "d16",
    "done", "row_en", "nv", "row_mirror", "row_half_mirror",
))  # fmt: skip
_OPERATORS = frozenset(
    ("+", "-", "*", "/", "%", "<<", ">>", "&", "^", "|", "||", "<", ">", "<=", ">=", "==", "!=", "&&", "||")
)
# Modifiers that need a value.
_VALUED = (
    r"wait_\w+|offset[01]?|dmask|dim|op_sel(_hi)?|neg_(lo|hi)|mul|div|quad_perm|dpp8"
    r"|row_\w+|bank_mask|bound_ctrl|fi|th|scope|format|byte_sel"
)
_VERSIONS = {name: code for code, name in immediates.VERSIONS.items()} | immediates.VERSION_BITS


class Parsed(NamedTuple):
    """One instruction, or one half. `operands` may contain `Expression`s. `columns` are the columns of the operands."""

    mnemonic: str
    operands: list[Any]
    columns: list[int]
    modifiers: dict[str, Any]
    modifier_columns: dict[str, int]
    at: int


class InstructionParser:
    """Parses instructions of one generation. `aliases`: register names that the program has set. `constants`: its
    absolute symbols.
    """

    def __init__(self, generation: int, aliases: dict[str, Register], constants: dict[str, int]) -> None:
        self._generation, self._aliases, self._constants = generation, aliases, constants
        # On generation 9, a16 is an accumulation register.
        self._flags = FLAG_MODIFIERS - {"a16"} if generation == 9 else FLAG_MODIFIERS
        self._in_bars = False

    def parse(self, reader: Reader) -> list[Parsed]:
        """Return the instruction, in two halves if it is a dual one."""
        self._in_bars = False
        halves = [self._half(reader)]
        if reader.take("::"):
            halves.append(self._half(reader))
        if reader.at("::"):
            raise Complaint("a dual instruction has two halves", reader.token.at)
        if not reader.done:
            raise Complaint(f"expected the end of the line, not {reader.token.text!r}", reader.token.at)
        return halves

    def _half(self, reader: Reader) -> Parsed:
        first = reader.name("a mnemonic")
        mnemonic = first.text.lower()
        operands: list[Any] = []
        columns: list[int] = []
        modifiers: dict[str, Any] = {}
        places: dict[str, int] = {}
        parsed = Parsed(mnemonic, operands, columns, modifiers, places, first.at)
        chain = _CHAINS.get(mnemonic)
        if chain and reader.token.kind == "name" and reader.peek().text == "(":
            columns.append(reader.token.at)
            operands.append(self._chain(reader, chain))
            return parsed
        if not self._at_end(reader) and (mnemonic.startswith("s_") or not self._at_modifier(reader)):
            export = mnemonic in ("exp", "export")
            while True:
                columns.append(reader.token.at)
                operands.append(
                    self._export_target(reader) if export and not operands else self._operand(reader, mnemonic)
                )
                if reader.take(","):
                    if self._at_modifier(reader) and not mnemonic.startswith("s_"):
                        break
                    continue
                if export and len(operands) == 1:
                    continue
                following = reader.token
                if following.kind == "number" or (
                    following.kind == "name" and self._is_register(following.text) and following.text not in self._flags
                ):
                    raise Complaint(f"expected ',' before {following.text}", following.at)
                break
        while not self._at_end(reader):
            reader.take(",")
            self._modifier(reader, modifiers, places)
        return parsed

    @staticmethod
    def _at_end(reader: Reader) -> bool:
        return reader.done or reader.at("::")

    def _at_modifier(self, reader: Reader) -> bool:
        return reader.token.kind == "name" and (reader.token.text in self._flags or reader.peek().text == ":")

    def _chain(self, reader: Reader, kind: str) -> int:
        start = reader.token.at
        calls: list[Call] = []
        while reader.token.kind == "name":
            name = reader.next().text
            reader.expect("(")
            arguments: list[int | str] = []
            if reader.token.kind == "name":
                word = reader.token.text
                if word in self._constants:
                    arguments.append(self._integer(reader))
                else:
                    arguments.append(reader.next().text)
            else:
                arguments.append(self._integer(reader))
            reader.expect(")")
            calls.append((name, tuple(arguments)))
            if (reader.at("&") or reader.at("|") or reader.at(",")) and not reader.done:
                reader.next()
                if reader.token.kind != "name":
                    raise Complaint("expected the name of a counter", reader.token.at)
        try:
            if kind == "wait":
                return immediates.read_waitcnt(calls, self._generation)
            return immediates.read_depctr(calls) if kind == "depctr" else immediates.read_delay(calls)
        except CompileError as error:
            raise Complaint(str(error), start) from None

    def _export_target(self, reader: Reader) -> int:
        token = reader.name("an export target such as mrt0")
        if token.text in _TARGETS:
            return _TARGETS[token.text]
        raise Complaint(f"no export target {token.text}; there are {', '.join(_TARGETS)}", token.at)

    def _operand(self, reader: Reader, mnemonic: str) -> Any:
        token = reader.token
        if token.kind == "mark":
            if token.text == "[":
                return self._list(reader, mnemonic)
            if token.text == "|":
                reader.next()
                self._in_bars = True
                inner = self._operand_plain(reader, mnemonic)
                self._in_bars = False
                reader.expect("|", "to close the absolute value")
                return self._mark(inner, token.at, abs_=True)
            if token.text == "-":
                following = reader.peek()
                if (
                    following.text == "|"
                    or (following.kind == "name" and self._is_register(following.text))
                    or (following.text in ("abs", "neg", "sext") and reader.peek(2).text == "(")
                ):
                    reader.next()
                    return self._mark(self._operand(reader, mnemonic), token.at, neg=True)
        return self._operand_plain(reader, mnemonic)

    def _mark(self, inner: Any, at: int, *, neg: bool = False, abs_: bool = False, sext: bool = False) -> Any:
        if isinstance(inner, Register):
            if neg and inner.neg:
                raise Complaint("two signs in a row", at)
            return inner.marked(neg=neg, abs_=abs_, sext=sext)
        if isinstance(inner, Marked):
            return Marked(inner.value, neg=inner.neg or neg, abs_=inner.abs or abs_, sext=inner.sext or sext)
        if isinstance(inner, int | float | Literal):
            return Marked(inner, neg=neg, abs_=abs_, sext=sext)
        raise Complaint("only a register or a constant can have a sign or an absolute value", at)

    def _operand_plain(self, reader: Reader, mnemonic: str) -> Any:
        token = reader.token
        if mnemonic == "s_version":
            known = _VERSIONS | self._constants
            return expression.parse(reader).value(lambda name: expression.Value(known[name])).number
        if token.kind == "name":
            text = token.text
            if reader.peek().text == "(" and reader.peek().kind == "mark":
                found = self._call(reader, mnemonic)
                if found is not None:
                    return found
            register = self._register(reader)
            if register is not None:
                return register
            match = re.fullmatch(r"attr(\d+)\.([xyzw])", text)
            if match and int(match[1]) < 64:
                reader.next()
                return int(match[1]) << 2 | "xyzw".index(match[2])
        elif token.kind == "number" or (token.text == "-" and reader.peek().kind == "number"):
            number = reader.peek() if token.text == "-" else token
            if "." in number.text or (number.text[:2] not in ("0x", "0X") and "e" in number.text.lower()):
                reader.next()
                if token.text == "-":
                    reader.next()
                return -float(number.text) if token.text == "-" else float(number.text)
        return self._number(reader)

    def _number(self, reader: Reader) -> int | Expression:
        token = reader.token
        if token.kind == "number" and reader.peek().text not in _OPERATORS:
            return expression.integer(reader.next().text, token.at)
        # `|` closes an absolute value.
        found = expression.parse(reader, 4 if self._in_bars else 0)
        if found.symbols <= self._constants.keys():
            return found.value(lambda name: expression.Value(self._constants[name])).number
        return found

    def _integer(self, reader: Reader) -> int:
        at = reader.token.at
        found = self._number(reader)
        if not isinstance(found, int):
            raise Complaint("a number must be known here: this symbol has no value yet", at)
        return found

    def _call(self, reader: Reader, mnemonic: str) -> Any:
        name = reader.token
        if name.text in ("neg", "abs", "sext"):
            reader.next()
            reader.expect("(")
            inner = self._operand(reader, mnemonic)
            reader.expect(")")
            return self._mark(inner, name.at, neg=name.text == "neg", abs_=name.text == "abs", sext=name.text == "sext")
        if name.text in ("lit", "lit64"):
            reader.next()
            reader.expect("(")
            inner = self._operand_plain(reader, mnemonic)
            reader.expect(")")
            if not isinstance(inner, int | float):
                raise Complaint("lit takes a number", name.at)
            return Literal(inner)
        if name.text not in ("hwreg", "sendmsg", "gpr_idx"):
            return None
        reader.next()
        reader.expect("(")
        arguments: list[int | str] = []
        while not (name.text == "gpr_idx" and reader.at(")")):
            token = reader.token
            if token.kind == "name" and token.text not in self._constants:
                if re.fullmatch(r"id|offset|size", token.text) and reader.peek().text == ":":
                    return self._hwreg_fields(reader)
                arguments.append(reader.next().text)
            else:
                arguments.append(self._integer(reader))
            if not reader.take(","):
                break
        reader.expect(")")
        try:
            if name.text == "gpr_idx":
                return immediates.read_index_mode(arguments)
            if name.text == "hwreg":
                return immediates.read_hwreg(arguments, self._generation)
            return immediates.read_message(arguments, self._generation)
        except CompileError as error:
            raise Complaint(str(error), name.at) from None

    def _hwreg_fields(self, reader: Reader) -> int:
        fields: dict[str, int] = {"id": 0, "offset": 0, "size": 32}
        while True:
            token = reader.name("id, offset or size")
            reader.expect(":")
            fields[token.text] = self._integer(reader)
            if not reader.take(","):
                break
        reader.expect(")")
        return immediates.read_hwreg((fields["id"], fields["offset"], fields["size"]), self._generation)

    def _is_register(self, text: str) -> bool:
        return bool(_REGISTER.fullmatch(text)) or text in (
            "v",
            "s",
            "a",
            "acc",
            "ttmp",
            *NAMED,
            *ALIASES,
            *self._aliases,
        )

    def _register(self, reader: Reader) -> Register | None:
        token = reader.token
        text = token.text
        try:
            match = _REGISTER.fullmatch(text)
            if match:
                reader.next()
                found = _FILES[match[1]][int(match[2])]
                return (found.low if match[3] == "l" else found.high) if match[3] else found
            if text in _FILES and reader.peek().text == "[":
                return self._range(reader)
            if text in self._aliases:
                reader.next()
                return self._aliases[text]
            if text in NAMED or text in ALIASES:
                reader.next()
                return special(text)
        except CompileError as error:
            raise Complaint(str(error), token.at) from None
        return None

    def _range(self, reader: Reader) -> Register:
        token = reader.next()
        reader.expect("[")
        first = self._integer(reader)
        last = self._integer(reader) if reader.take(":") else first
        reader.expect("]", "to close the register range")
        found = _FILES[token.text].span(first, last - first + 1)
        if reader.token.kind == "name" and reader.token.text in (".l", ".h"):
            return found.low if reader.next().text == ".l" else found.high
        return found

    def _list(self, reader: Reader, mnemonic: str) -> Any:
        start = reader.expect("[").at
        found: list[Register] = []
        while True:
            at = reader.token.at
            register = self._register(reader) if reader.token.kind == "name" else None
            if register is None:
                raise Complaint("expected a register in this list", at)
            found.append(register)
            if not reader.take(","):
                break
        reader.expect("]", "to close the list of registers")
        if mnemonic.startswith("image_") and found[0].kind == "v":
            return tuple(found) if len(found) > 1 else found[0]
        return _joined(found, start)

    def _modifier(self, reader: Reader, modifiers: dict[str, Any], places: dict[str, int]) -> None:
        token = reader.name("a modifier")
        name = token.text
        if name in places:
            raise Complaint(f"{name} is given twice", token.at)
        places[name] = token.at
        if not reader.take(":"):
            if name.startswith("no") and name[2:] in FLAG_MODIFIERS:
                return
            if name not in FLAG_MODIFIERS and re.fullmatch(_VALUED, name):
                raise Complaint(f"{name} needs a value: {name}:", token.at)
            modifiers[name] = 1
            return
        modifiers[name] = self._modifier_value(reader, name)

    def _modifier_value(self, reader: Reader, name: str) -> Any:
        token = reader.token
        if name == "dim":
            return self._dimension(reader)
        if reader.take("["):
            found: list[Any] = []
            while not reader.at("]"):
                if reader.token.kind == "name" and reader.token.text not in self._constants:
                    found.append(reader.next().text)
                else:
                    found.append(self._integer(reader))
                if not reader.take(","):
                    break
            reader.expect("]", "to close the list")
            return (found[0] if len(found) == 1 else tuple(found)) if name == "format" else tuple(found)
        if token.kind == "name" and token.text == "swizzle":
            return self._swizzle(reader)
        if (
            token.kind == "name"
            and token.text not in self._constants
            and (name in ("th", "scope", "format", "blgp") or name.endswith(("_sel", "_unused")))
        ):
            return reader.next().text
        if name in DPP_NAMES or name in ("mul", "div"):
            return self._integer(reader)
        value = self._number(reader)
        if not isinstance(value, int):
            raise Complaint(f"the number of {name} must be known here", token.at)
        return value

    def _dimension(self, reader: Reader) -> str:
        token = reader.next()
        text = token.text
        if token.kind == "number" and reader.token.kind == "name" and reader.token.at == token.at + len(text):
            text += reader.next().text
        return text

    def _swizzle(self, reader: Reader) -> int:
        start = reader.next()
        reader.expect("(")
        mode = reader.name("a swizzle mode").text
        numbers: list[int | str] = []
        while reader.take(","):
            if reader.token.kind == "string":
                numbers.append(reader.next().text[1:-1])
            else:
                numbers.append(self._integer(reader))
        reader.expect(")")
        try:
            return read_swizzle(mode, numbers)
        except CompileError as error:
            raise Complaint(str(error), start.at) from None


def _joined(found: list[Register], at: int) -> Register:
    """Return the range that a list of consecutive registers forms."""
    first = found[0]
    if any(one.kind != first.kind or one.count != 1 or one.code != first.code + i for i, one in enumerate(found)):
        names = ", ".join(map(str, found))
        raise Complaint(f"[{names}]: registers of a list must be consecutive in one file", at)
    if len(found) == 1:
        return first
    if first.kind in "vast" and not first.name:
        file = {"v": v, "a": a, "s": s, "t": ttmp}[first.kind]
        try:
            return file.span(first.index, len(found))
        except CompileError as error:
            raise Complaint(str(error), at) from None
    pair = {106: "vcc", 126: "exec", 102: "flat_scratch", 104: "xnack_mask"}.get(first.code)
    if pair is None or len(found) != 2:
        raise Complaint("these registers do not form a range", at)
    return special(pair)
