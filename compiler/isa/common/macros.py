"""Expands macros, repetitions and conditions of assembly text: `.macro`, `.rept`, `.if` and their ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ringup.compiler.isa.common.expression import Value, parse
from ringup.compiler.isa.common.lexer import Complaint, Reader, tokens

# The number of lines to which macros may expand a text.
MAX_LINES = 1_000_000
# Of macros that use macros.
MAX_DEPTH = 100
_OPENING = {".macro": ".endm", ".rept": ".endr", ".if": ".endif", ".ifdef": ".endif", ".ifndef": ".endif"}


class Line(NamedTuple):
    """One line of the source, numbered from 1. A line from a macro has the number of the line that uses the macro."""

    number: int
    text: str


class Macro(NamedTuple):
    """A macro's parameters with their defaults, and its lines."""

    parameters: tuple[tuple[str, str], ...]
    body: list[str]


Report = Callable[[str, Line, int], None]


def expand(source: str, report: Report) -> Iterator[Line]:
    """Yield the lines of a text with macros, repetitions and conditions expanded. Errors go to `report`."""
    lines = [Line(number, text) for number, text in enumerate(source.splitlines(), 1)]
    if not re.search(r"\.(macro|rept|if)", source):
        yield from lines
        return
    expander = _Expander(report)
    try:
        yield from expander.run(lines, 0)
    except Complaint as complaint:
        report(complaint.message, expander.line, complaint.at)


class _Expander:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._macros: dict[str, Macro] = {}
        self._symbols: dict[str, int] = {}
        self._uses = self._count = 0
        self.line = Line(1, "")

    def run(self, lines: list[Line], depth: int) -> Iterator[Line]:
        """Yield the expanded lines of a block."""
        if depth > MAX_DEPTH:
            raise Complaint("macros are nested too deeply", 0)
        i = 0
        while i < len(lines):
            line = self.line = lines[i]
            word = line.text.split(None, 1)[0] if line.text.strip() else ""
            if word in _OPENING:
                end = self._end(lines, i, word)
                body = lines[i + 1 : end]
                if word == ".macro":
                    self._define(line, body)
                elif word == ".rept":
                    for _ in range(self._number(line, word)):
                        self._tick()
                        yield from self.run(body, depth + 1)
                else:
                    yield from self.run(self._chosen(line, word, body), depth + 1)
                i = end + 1
                continue
            i += 1
            if word in self._macros:
                yield from self.run(self._use(line, word), depth + 1)
                continue
            self._remember(line)
            self._tick()
            yield line

    def _tick(self) -> None:
        """Count a line or a repetition. The limit applies to both together."""
        self._count += 1
        if self._count > MAX_LINES:
            raise Complaint(f"macros grow the text above {MAX_LINES} lines", 0)

    def _end(self, lines: list[Line], start: int, word: str) -> int:
        closing, depth = _OPENING[word], 0
        opening = {one for one, close in _OPENING.items() if close == closing}
        for i in range(start, len(lines)):
            first = lines[i].text.split(None, 1)[:1]
            if first and first[0] in opening:
                depth += 1
            elif first and first[0] == closing:
                depth -= 1
                if depth == 0:
                    return i
        raise Complaint(f"{word} is never closed by {closing}", 0)

    def _define(self, line: Line, body: list[Line]) -> None:
        words = line.text.split(None, 2)
        if len(words) < 2:
            raise Complaint(".macro needs a name", len(line.text))
        parameters = []
        for part in re.split(r"[,\s]+", words[2].strip()) if len(words) > 2 else ():
            name, _, default = part.partition("=")
            parameters.append((name, default))
        self._macros[words[1].rstrip(",")] = Macro(tuple(parameters), [one.text for one in body])

    def _use(self, line: Line, word: str) -> list[Line]:
        macro = self._macros[word]
        rest = line.text.strip()[len(word) :].strip()
        given = _arguments(rest)
        named = dict(macro.parameters)
        positions = [name for name, _ in macro.parameters]
        for i, text in enumerate(given):
            match = re.fullmatch(r"(\w+)\s*=\s*(.*)", text)
            if match and match[1] in named:
                named[match[1]] = match[2]
            elif i < len(positions):
                named[positions[i]] = text
            else:
                raise Complaint(f"{word} takes {len(positions)} arguments", line.text.find(word))
        self._uses += 1
        made = []
        for text in macro.body:
            for name in sorted(named, key=len, reverse=True):
                text = re.sub(rf"\\{re.escape(name)}(?![\w])", lambda _, name=name: named[name], text)  # type: ignore[misc]
            made.append(Line(line.number, text.replace("\\@", str(self._uses)).replace("\\()", "")))
        return made

    def _number(self, line: Line, word: str) -> int:
        at = line.text.find(word) + len(word)
        value = parse(Reader(tokens(line.text, at))).value(self._lookup).number
        if not 0 <= value <= MAX_LINES:
            raise Complaint(f"{word} {value}: 0 to {MAX_LINES}", at)
        return value

    def _lookup(self, name: str) -> Value:
        return Value(self._symbols[name])

    def _remember(self, line: Line) -> None:
        match = re.match(r"\s*(?:\.(?:set|equ)\s+)?([A-Za-z_.$][\w.$]*)\s*[=,]\s*([^=].*)$", line.text)
        if match:
            try:
                self._symbols[match[1]] = parse(Reader(tokens(match[2]))).value(self._lookup).number
            except Complaint:
                self._symbols.pop(match[1], None)

    def _chosen(self, line: Line, word: str, body: list[Line]) -> list[Line]:
        """Return the part of a condition's body that is taken."""
        if word == ".if":
            holds = bool(parse(Reader(tokens(line.text, line.text.find(word) + 3))).value(self._lookup).number)
        else:
            name = line.text.split()[1:2]
            holds = (bool(name) and name[0] in self._symbols) == (word == ".ifdef")
        chosen, depth, part = [], 0, holds
        done = holds
        for each in body:
            first = each.text.split(None, 1)[0] if each.text.strip() else ""
            depth += first in (".if", ".ifdef", ".ifndef")
            depth -= first == ".endif"
            if depth == 0 and first == ".else":
                part = not done
            elif depth == 0 and first == ".elseif":
                at = each.text.find(".elseif") + 7
                part = not done and bool(parse(Reader(tokens(each.text, at))).value(self._lookup).number)
                done = done or part
            elif part:
                chosen.append(each)
        return chosen


def _arguments(text: str) -> list[str]:
    """Split a macro's arguments at commas outside brackets."""
    found, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*found, last] if last or found else []
