"""The macros of a set of headers and their values. Headers are untrusted input: bodies are evaluated, never
executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ringup.autogen.generate.c import tokens as tk
from ringup.autogen.generate.c.ctype import CType, Names, NoNames
from ringup.autogen.generate.c.expand import Definition, Expansion
from ringup.autogen.generate.c.expression import Parser, Range, Value, integer_value
from ringup.autogen.generate.c.tokens import Token, Unreadable
from ringup.autogen.generate.emit.facts import BitRange

__all__ = ["Macros", "Unreadable"]

ALIASES_MAX = 100
# Limit of tokens made by all expansions of one parse, about 10 s; an NVIDIA release's 88,000 constants make 208,000.
BUDGET = 2_000_000
_WRAPPERS_MAX = 10

_COMMENT = r"(?:\s*+/\*[^*]*\*/)*\s*"
_NUMBER = r"0[xX][0-9a-fA-F]{1,16}|[1-9][0-9]{0,17}|0"
_SUFFIX = r"(?:[uU]?(?:ll|LL|[lL])?|(?:ll|LL|[lL])[uU])\b"
# The form of most bodies, which is read without tokens.
_SIMPLE = re.compile(
    rf"\s*(?P<open>\()?\s*(?:(?P<hi>{_NUMBER})(?:\s*:\s*(?P<lo>{_NUMBER})|{_SUFFIX})"
    rf"|(?P<alias>[A-Za-z_][A-Za-z0-9_]*))\s*(?(open)\)){_COMMENT}",
)
# asm-generic/ioctl.h, for headers that use these without including it
_FALLBACK = {
    "_IOC": (("dir", "type", "nr", "size"), "(((dir)<<30)|((type)<<8)|((nr)<<0)|((size)<<16))"),
    "_IO": (("type", "nr"), "_IOC(0U,(type),(nr),0)"),
    "_IOR": (("type", "nr", "size"), "_IOC(2U,(type),(nr),sizeof(size))"),
    "_IOW": (("type", "nr", "size"), "_IOC(1U,(type),(nr),sizeof(size))"),
    "_IOWR": (("type", "nr", "size"), "_IOC(3U,(type),(nr),sizeof(size))"),
}

Result = int | float | str | BitRange


@cache
def _fallback(name: str) -> Definition | None:
    if name not in _FALLBACK:
        return None
    params, body = _FALLBACK[name]
    return Definition(name, params, body, "asm-generic/ioctl.h")


class Macros:
    """Definitions by name. `names` has the meaning of typedefs, tags and enumerators."""

    def __init__(self, names: Names | None = None) -> None:
        self.names: Names = names or NoNames()
        self._definitions: dict[str, Definition] = {}
        self._known: dict[str, Result | Unreadable] = {}
        # tokens of all expansions so far
        self._made = 0

    def __contains__(self, name: object) -> bool:
        return name in self._definitions

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())

    def get(self, name: str) -> Definition | None:
        return self._definitions.get(name)

    def define(self, name: str, params: tuple[str, ...] | None, body: str, where: str) -> None:
        """Add or replace a macro; a last parameter `...` or `rest...` takes the remaining arguments."""
        self._known.clear()
        variadic = ""
        if params and params[-1].endswith("..."):
            variadic = params[-1][:-3].strip() or "__VA_ARGS__"
            params = (*params[:-1], variadic)
        self._definitions[name] = Definition(name, params, body, where, variadic)

    def undefine(self, name: str) -> None:
        self._known.clear()
        self._definitions.pop(name, None)

    def refuse(self, name: str, reason: str) -> None:
        """Mark `name`, and all macros that expand it, as without value: it is a macro whose definition is unknown."""
        if (macro := self._definitions.get(name)) is not None:
            self._known.clear()
            macro.refused = reason

    def value(self, name: str) -> Result:
        """Return the value of the object-like macro `name`. Raises `Unreadable` with the reason if it has none."""
        found = self._known.get(name)
        if found is None:
            try:
                found = self._simple(name)
                if found is None:
                    found = self._result(self._whole([Token(tk.NAME, name)]))
            except Unreadable as reason:
                found = reason
            self._known[name] = found
        if isinstance(found, Unreadable):
            raise Unreadable(*found.args)
        return found

    def typed(self, name: str) -> tuple[Result, CType | None]:
        """Return the value of `name` with its C type; a bit range has none."""
        whole = self._whole([Token(tk.NAME, name)])
        return self._result(whole), whole.type if isinstance(whole, Value) else None

    def call(self, name: str, *args: int) -> int | BitRange:
        """Return the value of the function-like macro `name` with these arguments."""
        macro = self._definitions.get(name)
        if macro is None or macro.params is None:
            raise Unreadable(f"{name} is no function-like macro")
        tokens = [Token(tk.NAME, name), Token(tk.PUNCTUATOR, "(")]
        for at, argument in enumerate(args):
            if at:
                tokens.append(Token(tk.PUNCTUATOR, ","))
            tokens += tk.lex(_spelled(argument))
        result = self._result(self._whole([*tokens, Token(tk.PUNCTUATOR, ")")]))
        if not isinstance(result, (int, BitRange)):
            raise Unreadable(f"{name} gives {type(result).__name__}, not an integer")
        return result

    def _simple(self, name: str) -> Result | None:
        """Return the value if the body is one number, one range of numbers, or the name of such a macro; else None."""
        for _ in range(ALIASES_MAX):
            macro = self._definitions.get(name)
            if macro is None or macro.params is not None or macro.refused:
                return None
            match = _SIMPLE.fullmatch(macro.body)
            if match is None:
                return None
            _, hi, lo, alias = match.groups()
            if alias is not None:
                name = alias
                continue
            if lo is not None:
                # NVIDIA's capability tables: `1:0x04`
                if lo[:2] in ("0x", "0X") and hi[:2] not in ("0x", "0X"):
                    raise Unreadable("a byte number and a mask, not a bit range")
                return _bits(int(hi, 0), int(lo, 0))
            return int(hi, 0)
        return None

    def _whole(self, tokens: list[Token]) -> Value | Range:
        if self._made > BUDGET:
            raise Unreadable(f"the macros before it expanded to {BUDGET} tokens, the budget of one parse is used up")
        expansion = Expansion(self._find)
        try:
            tokens = self._unwrapped(expansion.expand(tokens))
        finally:
            self._made += expansion.made
        if len(tokens) == 1 and tokens[0].kind == tk.NAME:
            self._refuse_lone_name(tokens[0].text)
        try:
            return Parser(tokens, self.names).whole()
        except RecursionError:
            raise Unreadable("nested too deep") from None

    def _find(self, name: str) -> Definition | None:
        macro = self._definitions.get(name)
        if macro is not None and macro.refused:
            raise Unreadable(f"{name}: {macro.refused}")
        return macro or _fallback(name)

    def _refuse_lone_name(self, name: str) -> None:
        macro = self._definitions.get(name)
        if macro is None or self.names.enumerator(name) is not None:
            return
        if macro.params is None:
            raise Unreadable("stands for itself")
        raise Unreadable(f"names the function-like macro {name} without arguments")

    def _unwrapped(self, tokens: list[Token]) -> list[Token]:
        """Return the tokens inside parentheses or an unknown wrapper such as `MW(31:0)` if they are only a bit range.

        Otherwise return `tokens`.
        """
        inner = tokens
        for _ in range(_WRAPPERS_MAX):
            if len(inner) < 5 or inner[-1].text != ")":
                break
            if inner[0].text == "(" and _closes_last(inner, 0):
                inner = inner[1:-1]
            elif inner[0].kind == tk.NAME and inner[1].text == "(" and _closes_last(inner, 1):
                if inner[0].text in self._definitions:
                    break
                inner = inner[2:-1]
            else:
                break
        return inner if inner is not tokens and _is_range(inner) else tokens

    def _result(self, whole: Value | Range) -> Result:
        if isinstance(whole, Range):
            hi, lo = whole.hi.number, whole.lo.number
            if not isinstance(hi, int) or not isinstance(lo, int):
                raise Unreadable("a bit range whose ends are no integers")
            return _bits(hi, lo)
        if isinstance(whole.number, float) and whole.number - whole.number != 0:
            raise Unreadable("is not finite")
        if not isinstance(whole.number, str) and whole.type.kind not in ("int", "float", "pointer"):
            raise Unreadable(f"a value of type {whole.type.name}")
        return whole.number


def _bits(hi: int, lo: int) -> BitRange:
    if not 0 <= lo <= hi:
        raise Unreadable(f"the bit range {hi}:{lo} runs the wrong way")
    return BitRange(hi, lo)


def _closes_last(tokens: list[Token], start: int) -> bool:
    """Return whether the last token closes the parenthesis at `start`."""
    level = 0
    for at in range(start, len(tokens)):
        if tokens[at].kind == tk.PUNCTUATOR:
            level += (tokens[at].text == "(") - (tokens[at].text == ")")
            if level == 0:
                return at == len(tokens) - 1
    return False


def _is_range(tokens: list[Token]) -> bool:
    """Return whether a colon that belongs to no `?` is outside all parentheses."""
    level = questions = 0
    for token in tokens:
        if token.kind != tk.PUNCTUATOR:
            continue
        level += (token.text in "([{") - (token.text in ")]}")
        if level == 0 and token.text == "?":
            questions += 1
        elif level == 0 and token.text == ":":
            if not questions:
                return True
            questions -= 1
    return False


def _spelled(number: int) -> str:
    """Return an integer argument as C text that has the type of the number itself."""
    if number < 0:
        return f"(-{-number})" if number > -(1 << 63) else "(-9223372036854775807-1)"
    kind = integer_value(number, "", False).type
    return f"{number}u" if not kind.signed else str(number)
