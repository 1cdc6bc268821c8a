"""Tokens of assembly text, and errors that show the place: file, line, column, the line itself and a caret."""

from __future__ import annotations

import re
from typing import NamedTuple

from ringup.errors import CompileError

_TOKEN = re.compile(
    r"""[ \t\r\f]*(?:
      (?P<name>[A-Za-z_.$][\w.$]*)
    | (?P<number>0[xX][0-9a-fA-F]+ | 0[bB][01]+ | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<mark>:: | << | >> | == | != | <= | >= | && | \|\| | [][(),:|&+\-*/%~^!<>=@{}#])
    )""",
    re.X,
)
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*|;[^\n]*', re.S)


class Token(NamedTuple):
    """One token: `kind` is name, number, string, mark or end; `at` its column, from 0."""

    kind: str
    text: str
    at: int


class AssemblyError(CompileError):
    """Text that cannot be assembled; `line` and `column` count from 1."""

    def __init__(self, message: str, source: str, line: int, column: int, text: str) -> None:
        shown = text.rstrip().expandtabs(1)
        super().__init__(f"{source}:{line}:{column}: {message}\n  {shown}\n  {' ' * (column - 1)}^")
        self.message, self.source, self.line, self.column = message, source, line, column


class Complaint(Exception):
    """An error at a column (from 0) of the current statement. The assembler adds file and line."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message, self.at = message, at


def strip_comments(source: str) -> str:
    """Return the source with comments (`;`, `//`, `/* */`) replaced by spaces. All other characters
    keep their places.
    """

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)

    return _COMMENT.sub(blank, source)


def tokens(line: str, start: int = 0) -> list[Token]:
    """Return the tokens of a line from a column on, with an end token after them."""
    found = []
    at, match = start, _TOKEN.match
    while True:
        one = match(line, at)
        if one is None:
            rest = line[at:]
            gap = len(rest) - len(rest.lstrip())
            if gap == len(rest):
                found.append(Token("end", "", len(line.rstrip())))
                return found
            raise Complaint(f"unexpected {line[at + gap]!r}", at + gap)
        kind = one.lastgroup or ""
        found.append(Token(kind, one[kind], one.start(kind)))
        at = one.end()


class Reader:
    """Reads the tokens of one statement."""

    __slots__ = ("_all", "_i", "token")

    def __init__(self, all_tokens: list[Token]) -> None:
        self._all, self._i = all_tokens, 0
        self.token = all_tokens[0]

    def peek(self, ahead: int = 1) -> Token:
        """Return a later token, or the end token."""
        return self._all[min(self._i + ahead, len(self._all) - 1)]

    def next(self) -> Token:
        """Return the current token and advance."""
        token = self.token
        if self._i < len(self._all) - 1:
            self._i += 1
        self.token = self._all[self._i]
        return token

    def at(self, text: str) -> bool:
        """Return whether the current token is that mark."""
        return self.token.kind == "mark" and self.token.text == text

    def take(self, text: str) -> bool:
        """Skip a mark if it is the current token. Return whether it was."""
        if self.at(text):
            self.next()
            return True
        return False

    def expect(self, text: str, what: str = "") -> Token:
        """Skip a mark, which must be the current token."""
        if not self.at(text):
            seen = self.token.text or "the end of the line"
            raise Complaint(f"expected {text!r}{' ' + what if what else ''}, not {seen!r}", self.token.at)
        return self.next()

    def name(self, what: str) -> Token:
        """Return the current token, which must be a name, and advance."""
        if self.token.kind != "name":
            seen = self.token.text or "the end of the line"
            raise Complaint(f"expected {what}, not {seen!r}", self.token.at)
        return self.next()

    @property
    def done(self) -> bool:
        """Return whether all tokens are read."""
        return self.token.kind == "end"
