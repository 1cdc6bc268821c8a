"""The two directions of a template's pieces: bits to text for the decoder, text to bits for the encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ringup.autogen.isa.sass import Alias, Choice, Number, Optional, Part, Piece
from ringup.compiler.isa.sass import values

ALL = (1 << 128) - 1


class Table(Protocol):
    """What a step of the decoder looks its bits up in."""

    def __getitem__(self, value: int, /) -> str: ...


class Step(NamedTuple):
    """One step of the decoder: the text of some bits. `register`: where a source register begins, 0 for
    anything else."""

    shift: int
    mask: int
    table: Table
    register: int = 0


class _Spread:
    """A table whose index is in several parts of the word."""

    def __init__(self, parts: Iterable[Part], table: Table) -> None:
        self._parts = tuple((part.lo, (1 << part.width) - 1, part.shift) for part in parts)
        self._table = table

    def __getitem__(self, word: int) -> str:
        index = 0
        for low, mask, shift in self._parts:
            index |= (word >> low & mask) << shift
        return self._table[index]


class _Named:
    """The name for what the operands make of the instruction."""

    def __init__(self, alias: Alias, prefix: str) -> None:
        self._alias, self._prefix = alias, prefix

    def __getitem__(self, word: int) -> str:
        return self._prefix + self._alias.text(word)


class _Optional:
    """Text that is there unless some bits hold a value."""

    def __init__(self, piece: Optional, prefix: str) -> None:
        self._left_out, self._prefix = piece.left_out, prefix
        self._steps = steps(piece.pieces)

    def __getitem__(self, word: int) -> str:
        if self._left_out(word):
            return self._prefix
        return self._prefix + "".join([step.table[word >> step.shift & step.mask] for step in self._steps])


def _prefixed(table: Mapping[int, str], prefix: str) -> Table:
    if isinstance(table, values.Texts):
        write = table.write
        return values.Texts(lambda value: prefix + write(value)) if prefix else table
    return {value: prefix + text for value, text in table.items()} if prefix else table


def parts_of(piece: Choice | Number) -> tuple[Part, ...]:
    """Return the bits of a piece as runs."""
    if isinstance(piece, Number):
        return piece.parts
    found: list[Part] = []
    for shift, bit in enumerate(piece.bits):
        if found and found[-1].lo + found[-1].width == bit:
            found[-1] = found[-1]._replace(width=found[-1].width + 1)
        else:
            found.append(Part(bit, 1, shift))
    return tuple(found)


def steps(pieces: Iterable[Piece]) -> tuple[Step, ...]:
    """Compile pieces for the decoder."""
    found: list[Step] = []
    prefix = ""
    for piece in pieces:
        if isinstance(piece, str):
            prefix += piece
            continue
        if isinstance(piece, Optional):
            found.append(Step(0, ALL, _Optional(piece, prefix)))
        elif isinstance(piece, Alias):
            found.append(Step(0, ALL, _Named(piece, prefix)))
        else:
            found.append(_step(piece, prefix))
        prefix = ""
    if prefix:
        found.append(Step(0, 0, {0: prefix}))
    return tuple(found)


def _step(piece: Choice | Number, prefix: str) -> Step:
    parts = parts_of(piece)
    texts = piece.texts if isinstance(piece, Choice) else number_texts(piece)
    table = _prefixed(texts, prefix)
    register = parts[0].lo if isinstance(piece, Number) and piece.kind == "R" else 0
    if len(parts) > 1 or parts[0].shift:
        return Step(0, ALL, _Spread(parts, table), register)
    return Step(parts[0].lo, (1 << parts[0].width) - 1, table, register)


def number_texts(number: Number) -> Mapping[int, str]:
    """Return the texts of a number's value (its parts put together)."""
    kind, width = number.kind, width_of(number)
    if kind in values.REGISTERS:
        return values.Texts(values.register_writer(kind, width, inverted=number.inverted))
    if kind in values.FLOATS:
        return values.Texts(values.FLOATS[kind].text)
    if kind == "set":
        return values.set_texts(width)
    if kind == "x":
        return values.Texts(values.integer_text)
    half = 1 << width - 1
    if kind == "s":
        return values.Texts(lambda value: values.integer_text((value ^ half) - half))
    if kind == "rel":
        # The place is filled in by whoever knows the instruction's address.
        return values.Texts(lambda value: f"\0{(value ^ half) - half}\0")
    raise ValueError(f"a number of kind {kind!r}")


def width_of(number: Number) -> int:
    """Return how many bits the number in the text has."""
    return max(part.shift + part.width for part in number.parts)


def place(number: Number, value: int) -> int:
    """Return a value's bits at their places. Raises ValueError if it does not fit or has bits that are not encoded."""
    width = width_of(number)
    raw = value & (1 << width) - 1
    signed = number.kind in ("s", "rel")
    if not (-(1 << width - 1) if signed else 0) <= value < (1 << width - signed):
        raise ValueError(f"{values.integer_text(value)} does not fit into {width} bits")
    found = 0
    for part in number.parts:
        found |= (raw >> part.shift & (1 << part.width) - 1) << part.lo
        raw &= ~(((1 << part.width) - 1) << part.shift)
    if raw:
        raise ValueError(f"{values.integer_text(value)} is no multiple of {1 << min(p.shift for p in number.parts)}")
    return found


_PATTERNS = {
    "R": r"RZ|R\d+", "U": r"URZ|UR\d+", "P": r"PT|P\d", "Q": r"UPT|UP\d", "B": r"B\d+",
    "x": r"-?0[xX][0-9a-fA-F]+|-?\d+", "s": r"-?0[xX][0-9a-fA-F]+|-?\d+", "rel": r"-?0[xX][0-9a-fA-F]+|-?\d+",
    "set": r"\{[\d,]+\}",
    **dict.fromkeys(values.FLOATS, r"[+-]?(?:\d[\d.]*(?:[eE][+-]?\d+)?|INF|QNAN|SNAN)"),
}  # fmt: skip


def pattern(piece: Choice | Number | Alias) -> str:
    """Return a regular expression, without groups, of a piece's texts."""
    if isinstance(piece, Alias):
        return "|".join(re.escape(text) for text, _ in piece.choices) + "|"
    if isinstance(piece, Number):
        return _PATTERNS[piece.kind]
    texts = sorted(set(piece.texts.values()), key=lambda text: (-len(text), text))
    return "|".join(re.escape(text) for text in texts)


_NUMBERS_BEGIN = {
    "R": "R", "U": "U", "P": "P", "Q": "U", "B": "B", "set": "{",
    **dict.fromkeys(("x", "s", "rel"), "-0123456789"),
    **dict.fromkeys(values.FLOATS, "+-0123456789IQS"),
}  # fmt: skip


def beginnings(parts: Iterable[Piece]) -> frozenset[str]:
    """Return the characters that a text of these pieces may begin with, "" too if it may be empty. Optional pieces
    count as left out, as in `Slot`.
    """
    found: set[str] = set()
    for part in parts:
        if isinstance(part, Optional):
            continue
        if isinstance(part, Number):
            return frozenset(found | set(_NUMBERS_BEGIN[part.kind]))
        if isinstance(part, str):
            texts = {part}
        elif isinstance(part, Choice):
            texts = set(part.texts.values())
        else:
            texts = {text for text, _ in part.choices} | {""}
        found |= {text[0] for text in texts if text}
        if "" not in texts:
            return frozenset(found)
    return frozenset(found | {""})


def number_reader(number: Number) -> Callable[[str], int]:
    """Return the function from a text to bits at their places; it raises ValueError."""
    kind, width = number.kind, width_of(number)
    if kind in values.REGISTERS:
        read = values.register_reader(kind, width, inverted=number.inverted)
    elif kind in values.FLOATS:
        read = values.FLOATS[kind].parse
    elif kind == "set":
        back = {text: value for value, text in values.set_texts(width).items()}

        def read(text: str) -> int:
            if text not in back:
                raise ValueError(f"{text} is no set of numbers below {width}, highest first")
            return back[text]
    else:
        read = values.integer
    return lambda text: place(number, read(text))
