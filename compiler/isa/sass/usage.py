"""The registers that an instruction writes and reads, from its row: names such as R4, UR6, P0, UP1.

A row shows where a register begins; how many it takes follows from the instruction and its modifiers. Sources: the
operands of Mesa's NAK (sm70_encode.rs), and the fragments of matrices in the PTX ISA.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from ringup.autogen.isa.sass import Choice, Number, Optional, Piece, Row, index
from ringup.compiler.isa.sass import texture_usage

FILES = {"R": "R", "U": "UR", "P": "P", "Q": "UP"}
# Where results begin: a register, two predicates.
RESULTS = (16, 81, 84)
GUARD = 12
# Bits 73 to 75 of loads and stores: how many registers.
_SIZES = (1, 1, 1, 1, 1, 2, 4, 4)
# Registers of D, A, B and C by the name of a matrix instruction.
_MATRICES = {
    r"HMMA\.884\.F16": (2, 2, 2, 2), r"HMMA\.884\.F32": (2, 2, 2, 2),
    r"HMMA\.1688\.F16": (2, 2, 1, 2), r"HMMA\.1688\.F32\.TF32": (4, 4, 2, 4), r"HMMA\.1688\.F32": (4, 2, 1, 4),
    r"HMMA\.16816\.F16": (2, 4, 2, 2), r"HMMA\.16816\.F32": (4, 4, 2, 4), r"HMMA\.1684\.F32": (4, 2, 1, 4),
    r"IMMA\.(?:8816|8832)": (2, 1, 1, 2), r"IMMA\.16816": (4, 2, 1, 4),
    r"IMMA\.16832\.[US]4\.[US]4": (4, 2, 1, 4), r"IMMA\.(?:16832|16864)": (4, 4, 2, 4),
    r"DMMA": (4, 2, 2, 4), r"BMMA\.88128": (2, 1, 1, 2), r"BMMA\.168128": (4, 2, 1, 4), r"BMMA\.168256": (4, 4, 2, 4),
}  # fmt: skip
Count = Callable[[int], int]


class Usage(NamedTuple):
    """The registers that an instruction writes and reads."""

    writes: frozenset[str]
    reads: frozenset[str]


class _Field(NamedTuple):
    """A register field: its file, first bit, width, and how many registers it names in a word."""

    file: str
    low: int
    width: int
    inverted: bool
    written: bool
    count: Count


def usage(chip: str, word: int) -> Usage | None:
    """Return the registers of an instruction; None if the word is no known instruction of the chip."""
    row = index(chip).find(word)
    if row is None:
        return None
    written: set[str] = set()
    read: set[str] = set()
    for field in _fields(row):
        top = (1 << field.width) - 1
        value = word >> field.low & top
        value ^= top if field.inverted else 0
        if value != top:
            names = (f"{FILES[field.file]}{value + each}" for each in range(field.count(word)))
            (written if field.written else read).update(names)
    if (guard := word >> GUARD & 7) != 7:
        read.add(f"{'UP' if row.uniform else 'P'}{guard}")
    return Usage(frozenset(written), frozenset(read))


@cache
def _fields(row: Row) -> tuple[_Field, ...]:
    count = _counts(row)
    found = []
    for piece in _numbers(row.pieces):
        low, width = piece.parts[0].lo, piece.parts[0].width
        written = low in RESULTS and row.mnemonic != "LDGSTS"
        if row.mnemonic in texture_usage.TEXTURES:
            written |= low == texture_usage.MORE_RESULTS
        found.append(_Field(piece.kind, low, width, piece.inverted, written, count(piece.kind, low)))
    if "101=0" in row.bits and "desc" not in row.template:
        # A descriptor that the text does not show.
        low = 64 if re.search(r"6[4]-69=\*", row.bits) else 32
        found.append(_Field("U", low, 6, inverted=False, written=False, count=_always(2)))
    return tuple(dict.fromkeys(found))


def _numbers(pieces: tuple[Piece, ...]) -> Iterator[Number]:
    for piece in pieces:
        if isinstance(piece, Number) and piece.kind in FILES:
            yield piece
        elif isinstance(piece, Optional):
            yield from _numbers(piece.pieces)


@cache
def _always(count: int) -> Count:
    return lambda _: count


def _if_bit(bit: int) -> Count:
    return lambda word: 1 + (word >> bit & 1)


def _if_double(low: int) -> Count:
    """Return two for a type of 64 bits in the two bits from `low` on."""
    return lambda word: 2 if word >> low & 3 == 3 else 1


def _by_size(word: int) -> int:
    return _SIZES[word >> 73 & 7]


def _counts(row: Row) -> Callable[[str, int], Count]:
    """Return the function that says how many registers a field of a file at a place names."""
    head = row.template.partition(" ")[0]
    name = row.mnemonic
    if name in ("DADD", "DMUL", "DFMA", "DSETP") or head.startswith("UIADD3.64"):
        return lambda file, _: _always(2 if file in "RU" else 1)
    if name in ("ATOMG", "ATOM", "ATOMS", "RED", "REDG"):
        value = _atomic(row)
        return lambda file, low: _address(row, file, low) or (_always(1) if low == 24 or file != "R" else value)
    if name in (*texture_usage.TEXTURES, *texture_usage.SURFACES):
        return lambda file, low: (
            (lambda word: texture_usage.count(_names(row.pieces, word), word >> 72 & 0xF, low))
            if file == "R"
            else _always(1)
        )
    for names, places in _PLACES.items():
        if name in names:
            return lambda file, low: (
                _address(row, file, low) or places.get(low, _always(1)) if file in "RU" else _always(1)
            )
    if name in ("HMMA", "IMMA", "DMMA", "BMMA"):
        return lambda file, low: _matrix(row, low) if file == "R" else _always(1)
    if "WIDE" in head or (".HI" in head and name in ("IMAD", "UIMAD")):
        third = 32 if row.form[1:] in ("c", "x", "u", "i") else 64
        pair = {third: _always(2)} | ({16: _always(2)} if "WIDE" in head else {})
        return lambda file, low: pair.get(low, _always(1)) if file in "RU" else _always(1)
    if row.opcode & 0x1FF in (0x110, 0x111, 0x112, 0x113):
        return lambda file, low: _if_double(75 if low == 16 else 84) if file in "RU" else _always(1)
    return lambda _, __: _always(1)


def _atomic(row: Row) -> Count:
    """Return how many registers the value of an atomic has, by the name of its type."""
    choices = [piece for piece in row.pieces if isinstance(piece, Choice) and 73 in piece.bits]
    if not choices:
        return _always(2 if "64" in row.template else 1)
    (choice,) = choices

    def count(word: int) -> int:
        text = choice.texts.get(sum((word >> bit & 1) << index for index, bit in enumerate(choice.bits)), "")
        match = re.match(r"\.(?:(?P<bits>[SF]?64)|B?F16x(?P<halves>\d)|F32x(?P<words>\d))", text)
        if match is None:
            return 1
        return 2 if match["bits"] else int(match["halves"] or 0) // 2 or int(match["words"] or 1)

    return count


def _address(row: Row, file: str, low: int) -> Count | None:
    """Return how many registers a part of an address has, None for what is no address."""
    if row.mnemonic not in ("LDG", "STG", "LD", "ST", "ATOMG", "ATOM", "RED", "REDG", "LDGSTS", "QSPC", "CCTL"):
        if row.mnemonic in ("LDC", "ULDC", "LDCU") and file == "U" and low == 24 and "cx[" in row.template:
            return _always(2)
        return None
    if file == "U":
        return _always(2 if "desc[" in row.template or row.fixed.mask >> 72 & row.fixed.value >> 72 & 1 else 1)
    if low != 24:
        return None
    pair = re.search(r"\{=pair@(\d+)\}", row.template)
    if pair is not None:
        return _if_bit(int(pair[1]))
    if "]<" in row.template or ".64" in row.template.partition("[")[2] or row.mnemonic == "LDGSTS":
        return _always(2)
    return _if_bit(72)


def _matrix(row: Row, low: int) -> Count:
    place = (16, 24, 32, 64).index(low)

    def count(word: int) -> int:
        head = _head(row, word)
        return next((sizes[place] for pattern, sizes in _MATRICES.items() if re.match(pattern, head)), 1)

    return count


def _head(row: Row, word: int) -> str:
    return _names(row.pieces, word).partition(" ")[0]


def _names(pieces: tuple[Piece, ...], word: int) -> str:
    """Return an instruction's text without its numbers, and without what may be left out."""
    return "".join(
        piece.texts[sum((word >> bit & 1) << index for index, bit in enumerate(piece.bits))]
        if isinstance(piece, Choice)
        else piece
        for piece in pieces
        if isinstance(piece, Choice | str)
    )


def _value(place: int) -> dict[int, Count]:
    return {place: _by_size}


# How many registers begin at a place, by instruction; one where nothing is said.
_PLACES: dict[frozenset[str], dict[int, Count]] = {
    frozenset(("LDG", "LD", "LDL", "LDS", "LDC", "ULDC", "LDCU")): _value(16),
    frozenset(("STG", "STL", "STS")): _value(32),
    frozenset(("ST",)): {32: _by_size, 64: _by_size},
    frozenset(("LDSM",)): {16: lambda word: 1 << (word >> 72 & 3)},
    frozenset(("CS2R",)): {16: _if_bit(80)},
    frozenset(("MATCH",)): {24: _if_bit(73)},
    frozenset(("LEPC",)): {16: _always(2)},
    frozenset(("RET", "BRX", "BRXU", "CALL")): {24: _always(2)},
    frozenset(("QSPC", "CCTL", "LDGSTS")): {},
}
