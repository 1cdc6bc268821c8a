"""C tokens in a macro's body, and the values of literals."""

from __future__ import annotations

import re
from typing import NamedTuple

NOTHING_HIDDEN: frozenset[str] = frozenset()

NUMBER, NAME, CHAR, STRING, PUNCTUATOR, OTHER, PLACEMARKER = range(7)

_TOKEN = re.compile(
    r"""
    (?P<space>   (?: [ \t\r\n\f\v]++ | \\[ \t]*\r?\n | /\*.*?\*/ | //[^\n]*+ )++ )
  | (?P<string>  (?:u8|[uUL])? " (?: [^"\\\n] | \\. )*+ " )
  | (?P<char>    (?:u8|[uUL])? ' (?: [^'\\\n] | \\. )++ ' )
  | (?P<name>    [A-Za-z_$] [\w$]*+ )
  | (?P<number>  \.?[0-9] (?: [eEpP][+-] | [\w.] )*+ )
  | (?P<punct>   \.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> | <= | >= | == | != | && | \|\| | \#\#
               | [-+*/%&|^]= | [][(){}.&*+\-~!/%<>^|?:;=,\#] )
  | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS = {"string": STRING, "char": CHAR, "name": NAME, "number": NUMBER, "punct": PUNCTUATOR, "other": OTHER}
_CONTINUATION = re.compile(r"\\[ \t]*\r?\n")
_INTEGER = re.compile(
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)|(?P<octal>0[0-7]*)|(?P<decimal>[1-9][0-9]*))"
    r"(?P<suffix>[uU]?(?:ll|LL|[lL])?|(?:ll|LL|[lL])[uU])"
)
_FLOAT = re.compile(
    r"(?:(?P<decimal>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+))(?P<suffix>[fFlL]?)"
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]+)|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|(?P<one>.))"
    r"|(?P<plain>[^\\]+)",
    re.DOTALL,
)
_ONE = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "e": 27, "E": 27}
_ONE |= {mark: ord(mark) for mark in "\\'\"?"}


class Unreadable(Exception):
    """A macro has no value that can be computed.

    The text is the reason, from which every caller makes a `Rejected`.
    """


class Token(NamedTuple):
    """One preprocessing token. `hidden` are the macros that must no longer expand it."""

    kind: int
    text: str
    spaced: bool = False
    hidden: frozenset[str] = NOTHING_HIDDEN


def lex(text: str) -> list[Token]:
    """Split `text` into tokens; comments and continued lines are white space. Text has one character per source
    byte.
    """
    tokens = []
    spaced = False
    for match in _TOKEN.finditer(_CONTINUATION.sub("", text) if "\\" in text else text):
        kind = match.lastgroup
        if kind == "space":
            spaced = True
            continue
        tokens.append(Token(_KINDS[str(kind)], match[0], spaced))
        spaced = False
    return tokens


def relex(text: str) -> Token | None:
    """Return the one token that `text` is, or None if it is none or several (an invalid `##`)."""
    match = _TOKEN.fullmatch(text)
    if match is None or match.lastgroup in ("space", "other"):
        return None
    return Token(_KINDS[str(match.lastgroup)], text)


def integer(text: str) -> tuple[int, str, bool] | None:
    """Return value, suffix in lower case, and whether it is decimal; None if `text` is not an integer constant."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    if len(text) > 140:
        raise Unreadable("integer constant is too long")
    suffix = match["suffix"].lower()
    if (digits := match["hex"]) is not None:
        return int(digits, 16), suffix, False
    if (digits := match["binary"]) is not None:
        return int(digits, 2), suffix, False
    if (digits := match["octal"]) is not None:
        return int(digits, 8), suffix, False
    return int(match["decimal"]), suffix, True


def floating(text: str) -> tuple[float, str] | None:
    """Return value and suffix in lower case; None if `text` is not a floating constant."""
    match = _FLOAT.fullmatch(text)
    if match is None:
        return None
    if len(text) > 400:
        raise Unreadable("floating constant is too long")
    suffix = match["suffix"].lower()
    if match["hex"] is None:
        return float(match["decimal"]), suffix
    try:
        return float.fromhex(match["hex"]), suffix
    except OverflowError:
        return float("inf"), suffix


def _units(body: str) -> list[int | str]:
    """Return numeric escapes as numbers, all else as text, in order. `body` has one character per byte."""
    units: list[int | str] = []
    for match in _ESCAPE.finditer(body):
        if (plain := match["plain"]) is not None:
            units.append(plain.encode("latin-1", "replace").decode("utf-8", "surrogateescape"))
        elif match["octal"]:
            units.append(int(match["octal"], 8))
        elif match["hex"]:
            units.append(int(match["hex"][-16:], 16))
        elif code := match["u4"] or match["u8"]:
            if int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) < 0xE000:
                raise Unreadable(f"\\u{code} is no character")
            units.append(chr(int(code, 16)))
        elif match["one"] in _ONE:
            units.append(_ONE[match["one"]])
        else:
            raise Unreadable(f"unknown escape {match[0]}")
    return units


def _prefix(text: str) -> tuple[str, str]:
    start = text.find(text[-1])
    return text[:start], text[start + 1 : -1]


def _narrow(units: list[int | str]) -> bytes:
    parts = [bytes([u & 0xFF]) if isinstance(u, int) else u.encode("utf-8", "surrogateescape") for u in units]
    return b"".join(parts)


def character(text: str) -> tuple[int, str]:
    """Return code and prefix of a character constant; several characters are combined as in gcc, eight bits each."""
    prefix, body = _prefix(text)
    units = _units(body)
    if prefix in ("", "u8"):
        data = _narrow(units)
        if prefix:
            raise Unreadable("u8 character constants are no C11")
        if len(data) == 1:
            return data[0] - 256 if data[0] > 127 else data[0], prefix
        code = int.from_bytes(data[-4:], "big")
        return code - (1 << 32) if code >> 31 else code, prefix
    codes = [c for u in units for c in ([u] if isinstance(u, int) else map(ord, u))]
    if len(codes) != 1:
        raise Unreadable("a wide character constant of several characters")
    limit = 16 if prefix == "u" else 32
    code = codes[0] & ((1 << limit) - 1)
    return code - (1 << 32) if prefix == "L" and code >> 31 else code, prefix


def string(text: str) -> tuple[str, str]:
    """Return text and prefix of a string literal.

    Bytes that are not UTF-8 become lone surrogates, as in Python's file names.
    """
    prefix, body = _prefix(text)
    units = _units(body)
    if prefix in ("", "u8"):
        return _narrow(units).decode("utf-8", "surrogateescape"), prefix
    try:
        return "".join(chr(u) if isinstance(u, int) else u for u in units), prefix
    except (ValueError, OverflowError):
        raise Unreadable("a wide string with a code that is no character") from None
