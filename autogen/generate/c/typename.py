"""Type names in casts and sizeof: `unsigned long`, `struct foo *`, `NvU32 [4]`, `void (*)(int)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ringup.autogen.generate.c import ctype as ct
from ringup.autogen.generate.c import tokens as tk
from ringup.autogen.generate.c.ctype import CType, Names
from ringup.autogen.generate.c.tokens import Token, Unreadable

_IGNORED = {"const", "volatile", "__const", "__volatile__", "__const__", "restrict", "__restrict", "__restrict__"}
_IGNORED |= {"__extension__", "_Atomic"}
_TYPEOF = {"typeof", "__typeof__", "__typeof"}
_TAGS = {"struct", "union", "enum"}
_WORDS = {
    "void", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "_Bool", "__int128",
    "__signed__", "__signed", "_Complex", "__complex__", "_Float128", "__float128", "__int128_t", "__uint128_t",
}  # fmt: skip
_START = _IGNORED | _TYPEOF | _TAGS | _WORDS
_SPELLINGS = {
    "void": ct.VOID, "_Bool": ct.BOOL, "float": ct.FLOAT, "double": ct.DOUBLE, "double long": ct.LONG_DOUBLE,
    "char": ct.CHAR, "char signed": ct.SCHAR, "char unsigned": ct.UCHAR,
    "short": ct.SHORT, "int": ct.INT, "long": ct.LONG, "long long": ct.LLONG, "__int128": ct.INT128,
    "__int128_t": ct.INT128, "__uint128_t": ct.UINT128,
}  # fmt: skip
_UNSIGNED = {"short": ct.USHORT, "int": ct.UINT, "long": ct.ULONG, "long long": ct.ULLONG, "__int128": ct.UINT128}


def starts_type(token: Token, names: Names) -> bool:
    """Return whether a type name may begin with `token`."""
    return token.kind == tk.NAME and (token.text in _START or names.typedef(token.text) is not None)


def _basic(words: list[str]) -> CType:
    """Return the type of keywords in any order, such as `long unsigned int`."""
    signs = [word.strip("_") for word in words if word.strip("_") in ("signed", "unsigned")]
    rest = sorted(word for word in words if word.strip("_") not in ("signed", "unsigned"))
    if len(rest) > 1 and "int" in rest:
        rest.remove("int")
    name = " ".join(rest) or "int"
    if len(signs) > 1:
        raise Unreadable(f"{' '.join(words)} is no type")
    if name == "char" and signs:
        name = f"char {signs[0]}"
    elif signs == ["unsigned"] and name in _UNSIGNED:
        return _UNSIGNED[name]
    elif signs and name not in _UNSIGNED:
        raise Unreadable(f"{' '.join(words)} is no type")
    if name not in _SPELLINGS:
        raise Unreadable(f"the type {' '.join(words)} is not supported")
    return _SPELLINGS[name]


class TypeNames(ABC):
    """A reader of tokens that knows type names; the expression parser is based on it."""

    def __init__(self, tokens: Sequence[Token], names: Names) -> None:
        self.tokens = tokens
        self.names = names
        self.at = 0

    @property
    def peek(self) -> str:
        """The next token's text if it is a punctuator, else an empty string."""
        if self.at < len(self.tokens) and self.tokens[self.at].kind == tk.PUNCTUATOR:
            return self.tokens[self.at].text
        return ""

    def next(self) -> Token:
        if self.at >= len(self.tokens):
            raise Unreadable("the expression breaks off")
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, sign: str) -> bool:
        if self.peek != sign:
            return False
        self.at += 1
        return True

    def need(self, sign: str) -> None:
        if not self.take(sign):
            seen = repr(self.tokens[self.at].text[:40]) if self.at < len(self.tokens) else "the end"
            raise Unreadable(f"{sign!r} is missing before {seen}")

    @abstractmethod
    def constant(self) -> int:
        """Read a constant expression, such as an array's length."""

    @abstractmethod
    def type_of_expression(self) -> CType:
        """Read an expression for its type alone, as `typeof` and `sizeof` do."""

    def at_type(self) -> bool:
        return self.at < len(self.tokens) and starts_type(self.tokens[self.at], self.names)

    def type_name(self) -> CType:
        """Return a type with its abstract declarator."""
        kind = self._specifiers()
        while self.take("*") or self._qualifier():
            if self.tokens[self.at - 1].text == "*":
                kind = ct.pointer(kind)
        if self.peek == "(":
            self._function_pointer()
            return ct.pointer(ct.FUNCTION)
        lengths = []
        while self.take("["):
            lengths.append(self.constant())
            self.need("]")
        for length in reversed(lengths):
            kind = ct.array(kind, length)
        return kind

    def _qualifier(self) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].text in _IGNORED:
            self.at += 1
            return True
        return False

    def _function_pointer(self) -> None:
        self.need("(")
        self.need("*")
        self.need(")")
        self.need("(")
        level = 1
        while level:
            text = self.next().text
            level += (text == "(") - (text == ")")

    def _specifiers(self) -> CType:
        words: list[str] = []
        named: CType | None = None
        while self.at < len(self.tokens) and self.tokens[self.at].kind == tk.NAME:
            text = self.tokens[self.at].text
            if text in _IGNORED:
                self.at += 1
            elif text in _WORDS:
                self.at += 1
                words.append(text)
            elif named is not None or words:
                break
            elif text in _TAGS:
                self.at += 1
                named = self._tagged(text)
            elif text in _TYPEOF:
                self.at += 1
                named = self._typeof()
            elif (known := self.names.typedef(text)) is not None:
                self.at += 1
                named = known
            else:
                break
        if named is None:
            return _basic(words)
        if words:
            raise Unreadable(f"{named.name} {' '.join(words)} is no type")
        return named

    def _tagged(self, keyword: str) -> CType:
        tag = self.next()
        if tag.kind != tk.NAME:
            raise Unreadable(f"defines a {keyword} inside an expression")
        if (known := self.names.tag(keyword, tag.text)) is not None:
            return known
        return CType("record", f"{keyword} {tag.text}", -1)

    def _typeof(self) -> CType:
        self.need("(")
        kind = self.type_name() if self.at_type() else self.type_of_expression()
        self.need(")")
        return kind
