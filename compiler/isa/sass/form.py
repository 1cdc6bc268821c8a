"""One operand form of an instruction: its row compiled for the decoder and for the encoder.

The encoder knows a form in variants, one for each choice of the optional parts. A variant is a head (the mnemonic with
its modifiers) and slots, one for each operand.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from ringup.autogen.isa.sass import GUARD_BITS, Alias, Choice, Number, Optional, Piece, Row, mask_of
from ringup.compiler.isa.sass import control, pieces

# What a slot remembers of the operands that it has read.
MAX_KEPT = 1 << 16
Constraint = tuple[tuple[int, ...], frozenset[int]]


class Read(NamedTuple):
    """What a text stands for: bits at their places, and for bits that other texts restrict too their legal values."""

    bits: int
    constraints: tuple[Constraint, ...]


class Slot(dict[str, int | Read | None]):
    """One operand, or the head: a text becomes bits, None if it is not of this slot's shape. `Read` stands for bits
    that depend on other operands.
    """

    def __init__(self, parts: tuple[Piece, ...], shared: frozenset[tuple[int, ...]], default: int) -> None:
        super().__init__()
        self._parts, self._shared, self._default = parts, shared, default
        self._pattern: re.Pattern[str] | None = None
        registers = (part for part in parts if isinstance(part, Number) and part.kind == "R")
        # Where the operand's register begins.
        self.register = next((part.parts[0].lo for part in registers), 0)
        self.relative = any(isinstance(part, Number) and part.kind == "rel" for part in parts)
        # The characters that its texts may begin with, "" among them if it may be empty.
        self.beginnings = pieces.beginnings(parts)
        # What is wrong with the last text of the right shape.
        self.complaint = ""

    @staticmethod
    def target(text: str, origin: int) -> str:
        """Return the text with its last word, an address, counted from `origin`. Raises ValueError."""
        before, blank, number = text.rpartition(" ")
        return f"{before}{blank}{int(number, 0) - origin}"

    def __missing__(self, text: str) -> int | Read | None:
        read = self._read(text)
        found = read.bits if read is not None and not read.constraints else read
        if len(self) < MAX_KEPT:
            self[text] = found
        return found

    def _read(self, text: str) -> Read | None:
        if self._pattern is None:
            source = "".join(
                re.escape(part) if isinstance(part, str) else f"({pieces.pattern(part)})"
                for part in self._parts
                if not isinstance(part, Optional)
            )
            self._pattern = re.compile(source)
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        bits = 0
        candidates: dict[tuple[int, ...], set[int]] = {}
        fields = (part for part in self._parts if isinstance(part, Choice | Number | Alias))
        for part, each in zip(fields, match.groups(), strict=True):
            if isinstance(part, Alias):
                continue
            if isinstance(part, Number):
                try:
                    bits |= pieces.number_reader(part)(each)
                except ValueError as error:
                    self.complaint = str(error)
                    return None
            else:
                having = {value for value, its in part.texts.items() if its == each}
                candidates[part.bits] = candidates.get(part.bits, having) & having
        constraints = []
        for places, having in candidates.items():
            if not having:
                return None
            if places in self._shared:
                constraints.append((places, frozenset(having)))
            else:
                bits |= spread(places, preferred(places, having, self._default))
        return Read(bits, tuple(constraints))


def spread(places: tuple[int, ...], value: int) -> int:
    """Return a value's bits at their places."""
    return sum((value >> index & 1) << bit for index, bit in enumerate(places))


def preferred(places: tuple[int, ...], values: set[int] | frozenset[int], default: int) -> int:
    """Return the value that compilers set if it is one of `values`, else the lowest."""
    usual = sum((default >> bit & 1) << index for index, bit in enumerate(places))
    return usual if usual in values else min(values)


class Variant(NamedTuple):
    """A form with some of its optional parts: `bits` are those of the parts left out, the opcode and the defaults."""

    form: Form
    bits: int
    head: Slot
    slots: tuple[Slot, ...]


class Form:
    """One row, ready for use. `mask` and `value` are the bits that every such instruction has."""

    def __init__(self, row: Row) -> None:
        self.row = row
        # The opcode has led here; the guard is looked at apart.
        self.mask, self.value = row.fixed.mask & ~0xFFFF, row.fixed.value & ~0xFFFF
        # Bits 122 to 124 as far as they keep a register.
        self.reuse = sum(1 << index for index, place in enumerate(row.reuse) if place)
        self.base = row.default & ~GUARD_BITS

    @cached_property
    def alias(self) -> Alias | None:
        """The name that depends on the operands, if the form has one."""
        return next((piece for piece in self.row.pieces if isinstance(piece, Alias)), None)

    def plan(self, key: int) -> Plan:
        """Return the steps for all words with these bits outside of plain numbers. Raises KeyError if they are not of
        this form.
        """
        return Plan(self, pieces.steps(self._settled(self.row.pieces, key)))

    def _settled(self, parts: tuple[Piece, ...], key: int) -> tuple[Piece, ...]:
        """Return the pieces with those that the key decides replaced by their text."""
        found: list[Piece] = []
        for part in parts:
            if isinstance(part, Choice):
                found.append(part.texts[sum((key >> bit & 1) << index for index, bit in enumerate(part.bits))])
            elif isinstance(part, Number) and part.kind == "set":
                first = part.parts[0]
                found.append(pieces.number_texts(part)[key >> first.lo & (1 << first.width) - 1])
            else:
                found.append(part)
        return tuple(found)

    @cached_property
    def heads(self) -> frozenset[str]:
        """The mnemonics that the form's text may begin with."""
        found: set[str] = set()
        for piece in self.row.pieces:
            if isinstance(piece, Choice):
                texts = set(piece.texts.values())
                found |= {text.partition(".")[0] for text in texts if text}
                if "" not in texts:
                    break
            else:
                text = piece if isinstance(piece, str) else ""
                found.add(text.partition(" ")[0].partition(".")[0])
                break
        return frozenset(found)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every choice of optional parts, those with all of them first."""
        return tuple(self._variant(chosen.bits, chosen.pieces) for chosen in _flat(self.row.pieces))

    def _variant(self, bits: int, flat: tuple[Piece, ...]) -> Variant:
        groups: list[list[Piece]] = [[]]
        for piece in flat:
            if not isinstance(piece, str):
                groups[-1].append(piece)
                continue
            separator = " " if len(groups) == 1 else ", "
            first, *rest = piece.split(separator, 1) if len(groups) == 1 else piece.split(separator)
            if first:
                groups[-1].append(first)
            for each in rest:
                # What follows the head's blank may hold commas.
                for text in each.split(", ") if separator == " " else (each,):
                    groups.append([text] if text else [])
        seen: list[tuple[int, ...]] = []
        for group in groups:
            seen += {part.bits for part in group if isinstance(part, Choice)}
        shared = frozenset(places for places in seen if seen.count(places) > 1)
        head, *slots = (Slot(tuple(group), shared, self.row.default) for group in groups)
        return Variant(self, self.base | bits, head, tuple(slots))


class Plan:
    """A form with its modifiers settled: what is left to look up are numbers and registers."""

    __slots__ = ("form", "reuse", "steps", "uniform")

    def __init__(self, form: Form, steps: tuple[pieces.Step, ...]) -> None:
        self.form, self.steps = form, steps
        self.reuse, self.uniform = form.reuse << control.REUSE, form.row.uniform

    def text(self, word: int) -> str:
        """Return the text without guard and control word. Raises KeyError if an operand is illegal."""
        if word & self.reuse and word >> control.STAY & 1:
            return self._text_with_reuse(word)
        return "".join([table[word >> shift & mask] for shift, mask, table, _ in self.steps])

    def _text_with_reuse(self, word: int) -> str:
        texts = [table[word >> shift & mask] for shift, mask, table, _ in self.steps] + [""]
        kept = word >> control.REUSE
        places = {place for index, place in enumerate(self.form.row.reuse) if place and kept >> index & 1}
        for index, step in enumerate(self.steps):
            if step.register in places:
                # The bar of an absolute value stands before the mark, a half's name behind it.
                if texts[index + 1].startswith("|"):
                    texts[index + 1] = "|.reuse" + texts[index + 1][1:]
                else:
                    texts[index] += ".reuse"
        return "".join(texts)


def deciding_bits(parts: tuple[Piece, ...]) -> int:
    """Return the bits that decide about anything but numbers."""
    found = 0
    for part in parts:
        if isinstance(part, Choice) or (isinstance(part, Number) and part.kind == "set"):
            found |= mask_of(part)
        elif isinstance(part, Optional):
            found |= deciding_bits(part.pieces)
    return found


class _Chosen(NamedTuple):
    """Pieces with a choice of their optional parts: `mask` and `bits` are what that choice says about the word."""

    mask: int
    bits: int
    pieces: tuple[Piece, ...]


def _flat(parts: tuple[Piece, ...]) -> Iterator[_Chosen]:
    """Yield the pieces for each choice of optional parts."""
    choices: list[list[_Chosen]] = []
    for part in parts:
        if not isinstance(part, Optional):
            choices.append([_Chosen(0, 0, (part,))])
            continue
        mask, bits = part.hidden
        there, away = ((mask, bits), (0, 0)) if part.negated else ((0, 0), (mask, bits))
        shown = [_Chosen(each.mask | there[0], each.bits | there[1], each.pieces) for each in _flat(part.pieces)]
        choices.append([*shown, _Chosen(*away, ())])
    for chosen in itertools.product(*choices):
        mask = bits = 0
        flat: tuple[Piece, ...] = ()
        for each in chosen:
            mask, bits, flat = mask | each.mask, bits | each.bits, flat + each.pieces
        # A number that is shown does not also hold a value that decides about something else.
        if not any(isinstance(piece, Number) and mask & mask_of(piece) for piece in flat):
            yield _Chosen(mask, bits, flat)
