"""C's constant expressions over expanded tokens, with gcc's arithmetic for x86-64. Nothing is executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringup.autogen.generate.c import ctype as ct
from ringup.autogen.generate.c import tokens as tk
from ringup.autogen.generate.c.ctype import CType, Names, Place
from ringup.autogen.generate.c.operators import binary, unary
from ringup.autogen.generate.c.tokens import Token, Unreadable
from ringup.autogen.generate.c.typename import TypeNames, starts_type

NESTING_MAX = 80

_LEVELS = (
    {"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"},
)  # fmt: skip
PRECEDENCE = {sign: level for level, signs in enumerate(_LEVELS, 1) for sign in signs}
_CHARACTERS = {"": ct.INT, "L": ct.INT, "u": ct.USHORT, "U": ct.UINT}
_CHARACTER_ARRAYS = {"": ct.CHAR, "u8": ct.CHAR, "L": ct.INT, "u": ct.USHORT, "U": ct.UINT}
_SUFFIXED = {"u": ct.UINT, "l": ct.LONG, "ul": ct.ULONG, "ll": ct.LLONG, "ull": ct.ULLONG}
_ALIGNOF = {"_Alignof", "__alignof__", "__alignof", "alignof"}
_STATEMENTS = {
    "do", "while", "for", "if", "else", "return", "goto", "switch", "case", "break", "continue", "asm", "__asm__",
    "extern", "static", "inline", "__inline", "__inline__", "typedef", "register", "auto", "__attribute__", "_Pragma",
}  # fmt: skip
_OFFSETOF = {"__builtin_offsetof", "offsetof"}


class Value(NamedTuple):
    """A number of some type.

    With `place` it is an object of that type at the address `number`, which must not be read.
    """

    type: CType
    number: int | float | str
    place: bool = False


class Range(NamedTuple):
    """Two expressions with a colon between them."""

    hi: Value
    lo: Value


def integer_value(number: int, suffix: str, decimal: bool) -> Value:
    """Return an integer constant with the type that C gives it."""
    if "u" in suffix:
        suffix = "u" + suffix.replace("u", "")
    start = _SUFFIXED[suffix] if suffix else ct.INT
    for kind in (ct.INT, ct.UINT, ct.LONG, ct.ULONG, ct.LLONG, ct.ULLONG):
        if kind.rank < start.rank or (start.signed is False and kind.signed):
            continue
        if decimal and start.signed and not kind.signed:
            continue
        if number < 1 << (kind.size * 8 - kind.signed):
            return Value(kind, number)
    raise Unreadable(f"integer constant {number} is too large")


class Parser(TypeNames):
    """One pass over one token list.

    `_dead` counts the operands that C does not evaluate, where a division by zero is not an error.
    """

    def __init__(self, tokens: Sequence[Token], names: Names) -> None:
        super().__init__(tokens, names)
        self._dead = 0
        self._nesting = 0

    def whole(self) -> Value | Range:
        """Return the value of all tokens, or the two ends of a bit range."""
        if not self.tokens:
            raise Unreadable("the body is empty")
        first = self._conditional()
        if self.take(":"):
            last = self._conditional()
            self._end()
            return Range(self.rvalue(first), self.rvalue(last))
        if self.peek == ",":
            raise Unreadable("a list, not one value")
        self._end()
        return first if isinstance(first.number, str) else self.rvalue(first)

    def _end(self) -> None:
        if self.at < len(self.tokens):
            raise Unreadable(f"{self.tokens[self.at].text[:40]!r} does not continue an expression")

    def rvalue(self, value: Value) -> Value:
        """Return the result of using `value`: arrays become pointers, objects cannot be read."""
        if value.type.kind == "array" and value.type.target is not None:
            if not value.place:
                if self._dead:
                    return Value(ct.pointer(value.type.target), 0)
                raise Unreadable("the address of a string is no constant")
            return Value(ct.pointer(value.type.target), value.number)
        if value.place:
            if not self._dead:
                raise Unreadable("reads memory")
            return Value(value.type, 0)
        return value

    def expression(self) -> Value:
        value = self._conditional()
        while self.take(","):
            self.rvalue(value)
            value = self._conditional()
        return value

    def constant(self) -> int:
        """Return an integer expression in a type, such as an array's length."""
        value = self.rvalue(self._conditional())
        if not isinstance(value.number, int):
            raise Unreadable("an array length that is no integer")
        return value.number

    def type_of_expression(self) -> CType:
        self._dead += 1
        kind = self.expression().type
        self._dead -= 1
        return kind

    def _deeper(self) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise Unreadable(f"nested more than {NESTING_MAX} deep")

    def _conditional(self) -> Value:
        condition = self._binary(1)
        if not self.take("?"):
            return condition
        self._deeper()
        truth = self._truth(condition)
        # GNU: a ?: b
        if self.peek == ":":
            yes = self.rvalue(condition)
        else:
            self._dead += not truth
            yes = self.rvalue(self.expression())
            self._dead -= not truth
        self.need(":")
        self._dead += truth
        no = self.rvalue(self._conditional())
        self._dead -= truth
        self._nesting -= 1
        kind = self._branch_type(yes, no)
        chosen = yes if truth else no
        return chosen if kind == chosen.type or isinstance(chosen.number, str) else self._convert(chosen, kind)

    def _branch_type(self, yes: Value, no: Value) -> CType:
        arithmetic = ("int", "float")
        if yes.type.kind in arithmetic and no.type.kind in arithmetic:
            return ct.common(yes.type, no.type)
        for one, other in ((yes, no), (no, yes)):
            if one.type.kind == "pointer" and (other.type.kind == "pointer" or other.number == 0):
                return one.type
        if yes.type == no.type:
            return yes.type
        raise Unreadable("the branches of ?: have types that do not meet")

    def _truth(self, value: Value) -> bool:
        value = self.rvalue(value)
        if isinstance(value.number, str) or value.type.kind not in ("int", "float", "pointer"):
            raise Unreadable(f"{value.type.name} is neither true nor false")
        return bool(value.number)

    def _binary(self, lowest: int) -> Value:
        left = self._unary()
        while True:
            sign = self.peek
            level = PRECEDENCE.get(sign, 0)
            if level < lowest:
                return left
            self.at += 1
            # && and ||
            if level <= 2:
                truth = self._truth(left)
                skip = truth if sign == "||" else not truth
                self._dead += skip
                right = self._truth(self._binary(level + 1))
                self._dead -= skip
                left = Value(ct.INT, int(truth or right) if sign == "||" else int(truth and right))
                continue
            right_value = self.rvalue(self._binary(level + 1))
            left = self.rvalue(left)
            kind, number = binary(sign, left.type, left.number, right_value.type, right_value.number, bool(self._dead))
            left = Value(kind, number)

    def _unary(self) -> Value:
        self._deeper()
        value = self._operand()
        self._nesting -= 1
        return value

    def _operand(self) -> Value:
        token = self.next()
        text = token.text
        if token.kind == tk.PUNCTUATOR:
            if text == "(":
                return self._parenthesis()
            return self._prefix(text)
        if token.kind == tk.NAME:
            if text == "sizeof" or text in _ALIGNOF:
                kind = self._measured()
                return Value(ct.ULONG, self._size(kind) if text == "sizeof" else kind.align)
            if text in _OFFSETOF and self.peek == "(":
                return self._offsetof()
            if text == "__extension__":
                return self._unary()
            return self._postfix(self._name(text))
        return self._postfix(self._literal(token))

    def _prefix(self, sign: str) -> Value:
        if sign == "&":
            value = self._unary()
            if not value.place:
                raise Unreadable("takes the address of something that has none")
            return Value(ct.pointer(value.type), value.number)
        if sign == "*":
            value = self.rvalue(self._unary())
            if value.type.kind != "pointer" or value.type.target is None:
                raise Unreadable("follows something that is no pointer")
            return Value(value.type.target, value.number, place=True)
        if sign == "!":
            return Value(ct.INT, int(not self._truth(self._unary())))
        if sign in ("-", "+", "~"):
            value = self.rvalue(self._unary())
            return Value(*unary(sign, value.type, value.number))
        if sign in ("++", "--"):
            raise Unreadable(f"{sign} changes a variable")
        if sign == "{":
            raise Unreadable("an initialiser, not an expression")
        raise Unreadable(f"{sign!r} does not start an expression")

    def _parenthesis(self) -> Value:
        """Return what follows an open parenthesis: a cast or an expression."""
        if self.at_type():
            kind = self.type_name()
            self.need(")")
            if self.peek == "{":
                raise Unreadable("a compound literal")
            if self.at >= len(self.tokens):
                raise Unreadable("a type, not a value")
            return self._convert(self.rvalue(self._unary()), kind)
        if self.peek == "{":
            raise Unreadable("a statement, not an expression")
        value = self.expression()
        self.need(")")
        return self._postfix(value)

    def _convert(self, value: Value, kind: CType) -> Value:
        if kind.kind == "void":
            return Value(kind, 0)
        if kind.kind not in ("int", "float", "pointer") or isinstance(value.number, str):
            raise Unreadable(f"a cast to {kind.name}")
        if value.type.kind not in ("int", "float", "pointer") or {value.type.kind, kind.kind} == {"float", "pointer"}:
            raise Unreadable(f"a cast from {value.type.name} to {kind.name}")
        return Value(kind, ct.convert(value.number, kind))

    def _measured(self) -> CType:
        """Return the type of the operand of sizeof and _Alignof."""
        if self.peek == "(" and self.at + 1 < len(self.tokens) and starts_type(self.tokens[self.at + 1], self.names):
            self.at += 1
            kind = self.type_name()
            self.need(")")
            return kind
        self._dead += 1
        kind = self._unary().type
        self._dead -= 1
        return kind

    @staticmethod
    def _size(kind: CType) -> int:
        if kind.size < 0:
            raise Unreadable(f"{kind.name} has no size here")
        return kind.size

    def _offsetof(self) -> Value:
        self.need("(")
        kind = self.type_name()
        self.need(",")
        value = self._postfix(self._member(Value(kind, 0, place=True), self.next()))
        self.need(")")
        return Value(ct.ULONG, value.number)

    def _postfix(self, value: Value) -> Value:
        while (sign := self.peek) in ("[", ".", "->", "(", "++", "--"):
            self.at += 1
            if sign == ".":
                value = self._member(value, self.next())
            elif sign == "->":
                value = self.rvalue(value)
                if value.type.kind != "pointer" or value.type.target is None:
                    raise Unreadable("-> follows something that is no pointer")
                value = self._member(Value(value.type.target, value.number, place=True), self.next())
            elif sign == "[":
                index = self.rvalue(self.expression())
                self.need("]")
                kind, number = binary("+", *self.rvalue(value)[:2], index.type, index.number, bool(self._dead))
                if kind.kind != "pointer" or kind.target is None:
                    raise Unreadable("[ follows something that is no array")
                value = Value(kind.target, number, place=True)
            else:
                raise Unreadable("calls a function" if sign == "(" else f"{sign} changes a variable")
        return value

    def _member(self, value: Value, name: Token) -> Value:
        members = value.type.members
        if value.type.kind != "record" or members is None or not isinstance(value.number, int):
            raise Unreadable(f"{value.type.name} has no members")
        place: Place | None = members().get(name.text)
        if place is None:
            raise Unreadable(f"{value.type.name} has no member {name.text}")
        if place.bits is not None:
            if not self._dead:
                raise Unreadable(f"{name.text} is a bit-field, which has no address")
            return Value(place.type, 0)
        return Value(place.type, value.number + place.offset, place=True)

    def _name(self, name: str) -> Value:
        if (known := self.names.enumerator(name)) is not None:
            return Value(known[1], known[0])
        if name in _STATEMENTS:
            raise Unreadable(f"{name} is no expression")
        if self.peek == "(":
            raise Unreadable(f"calls {name}, which is no macro")
        if starts_type(Token(tk.NAME, name), self.names):
            raise Unreadable("a type, not a value")
        raise Unreadable(f"unknown identifier {name[:80]}")

    def _literal(self, token: Token) -> Value:
        text = token.text
        if token.kind == tk.NUMBER:
            if (whole := tk.integer(text)) is not None:
                return integer_value(*whole)
            if (real := tk.floating(text)) is None:
                raise Unreadable(f"{text[:40]} is no number of C")
            kind = {"": ct.DOUBLE, "f": ct.FLOAT, "l": ct.LONG_DOUBLE}[real[1]]
            return Value(kind, ct.convert(real[0], kind))
        if token.kind == tk.CHAR:
            code, prefix = tk.character(text)
            return Value(_CHARACTERS[prefix], code)
        if token.kind == tk.STRING:
            return self._string(token)
        raise Unreadable(f"stray {text[:1]!r}")

    def _string(self, token: Token) -> Value:
        """Return a string joined with those that follow it, as in C."""
        text, prefix = tk.string(token.text)
        while self.at < len(self.tokens) and self.tokens[self.at].kind == tk.STRING:
            more, other = tk.string(self.next().text)
            if prefix and other and prefix != other:
                raise Unreadable("joins strings of different kinds")
            text, prefix = text + more, prefix or other
        unit = _CHARACTER_ARRAYS[prefix]
        count = len(text.encode("utf-8", "surrogateescape")) if unit is ct.CHAR else len(text)
        if unit is ct.USHORT:
            count += sum(ord(one) > 0xFFFF for one in text)
        return Value(ct.array(unit, count + 1), text)
