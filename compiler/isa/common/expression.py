"""Expressions of assembly text: numbers, symbols and labels. They are evaluated when the places of labels are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ringup.compiler.isa.common.lexer import Complaint, Reader

_PRECEDENCE = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">="),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
RELOCATIONS = ("rel32", "rel64", "abs32", "abs64", "gotpcrel32")
# Of nested brackets.
MAX_DEPTH = 100


class Value(NamedTuple):
    """A number, or an offset in a section (`section` is its name)."""

    number: int
    section: str = ""


# Raises KeyError for a symbol that has no value yet.
Lookup = Callable[[str], Value]


class Expression:
    """A parsed expression. `value` evaluates it. `symbols`: the symbols that it needs."""

    __slots__ = ("_run", "at", "relative", "symbols")

    def __init__(self, run: Callable[[Lookup], Value], symbols: frozenset[str], at: int, relative: str = "") -> None:
        self._run, self.symbols, self.at = run, symbols, at
        # Such as rel32@lo.
        self.relative = relative

    def value(self, lookup: Lookup) -> Value:
        """Evaluate the expression. Raises `Complaint` for a symbol that has no value."""
        try:
            return self._run(lookup)
        except KeyError as error:
            raise Complaint(f"{error.args[0]} is not defined", self.at) from None


def parse(reader: Reader, level: int = 0, depth: int = 0) -> Expression:
    """Parse an expression with the operators from `level` of the precedence table on."""
    if depth > MAX_DEPTH:
        raise Complaint("brackets are nested too deeply", reader.token.at)
    if level == len(_PRECEDENCE):
        return _unary(reader, depth)
    left = parse(reader, level + 1, depth)
    while reader.token.kind == "mark" and reader.token.text in _PRECEDENCE[level]:
        mark = reader.next()
        left = _combine(mark.text, left, parse(reader, level + 1, depth), mark.at)
    return left


def _unary(reader: Reader, depth: int) -> Expression:
    token = reader.token
    if token.kind == "mark" and token.text in "-~!+":
        reader.next()
        inner = _unary(reader, depth + 1)
        sign = token.text

        def run(lookup: Lookup) -> Value:
            value = inner.value(lookup)
            if value.section:
                raise Complaint(f"{sign} of a place in a section", token.at)
            number = value.number
            return Value({"-": -number, "~": ~number, "!": int(not number), "+": number}[sign])

        return Expression(run, inner.symbols, token.at)
    if reader.take("("):
        inner = parse(reader, 0, depth + 1)
        reader.expect(")", "to close the bracket")
        return inner
    if token.kind == "number":
        reader.next()
        number = integer(token.text, token.at)
        return Expression(lambda lookup: Value(number), frozenset(), token.at)
    if token.kind == "name":
        return _symbol(reader)
    if token.kind == "string" and len(token.text) == 3:
        reader.next()
        code = ord(token.text[1])
        return Expression(lambda lookup: Value(code), frozenset(), token.at)
    raise Complaint(f"expected a number or a symbol, not {token.text or 'the end of the line'!r}", token.at)


def _symbol(reader: Reader) -> Expression:
    token = reader.next()
    name = token.text
    relative = ""
    while reader.at("@"):
        reader.next()
        part = reader.name("a relocation such as rel32").text
        relative += ("@" if relative else "") + part
    if relative and relative.split("@")[0] not in RELOCATIONS:
        raise Complaint(
            f"no relocation {relative}; there are {', '.join(RELOCATIONS)}, followed by @lo or @hi", token.at
        )
    return Expression(lambda lookup: lookup(name), frozenset((name,)), token.at, relative)


def _combine(mark: str, left: Expression, right: Expression, at: int) -> Expression:
    def run(lookup: Lookup) -> Value:
        a, b = left.value(lookup), right.value(lookup)
        if mark == "+" and not (a.section and b.section):
            return Value(a.number + b.number, a.section or b.section)
        if mark == "-":
            if a.section and a.section == b.section:
                return Value(a.number - b.number)
            if not b.section:
                return Value(a.number - b.number, a.section)
        if a.section or b.section:
            raise Complaint(
                f"{mark} needs numbers; a place in a section may only be moved or subtracted from one in the same", at
            )
        return Value(_arithmetic(mark, a.number, b.number, at))

    return Expression(run, left.symbols | right.symbols, left.at, left.relative or right.relative)


def _arithmetic(mark: str, a: int, b: int, at: int) -> int:
    if mark in "/%" and b == 0:
        raise Complaint("a division by zero", at)
    if mark in ("<<", ">>") and not 0 <= b < 64:
        raise Complaint(f"a shift by {b}", at)
    if mark == "/":
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if mark == "%":
        return a - b * _arithmetic("/", a, b, at)
    comparisons = {
        "==": a == b,
        "!=": a != b,
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
        "&&": bool(a and b),
        "||": bool(a or b),
    }
    if mark in comparisons:
        return -int(comparisons[mark]) if mark not in ("&&", "||") else int(comparisons[mark])
    return {
        "+": a + b,
        "-": a - b,
        "*": a * b,
        "|": a | b,
        "^": a ^ b,
        "&": a & b,
        "<<": a << b if b < 64 else 0,
        ">>": a >> b,
    }[mark]


def integer(text: str, at: int) -> int:
    """Return the integer that a text denotes: hexadecimal, binary, octal or decimal."""
    try:
        if text[:2].lower() == "0b":
            return int(text[2:], 2)
        if len(text) > 1 and text[0] == "0" and text[1] not in "xX":
            return int(text, 8)
        return int(text, 0)
    except ValueError:
        raise Complaint(f"{text} is not an integer", at) from None
