"""Words become instructions by the rows of `autogen/isa`. The rows are templates of text; this reads operands from
them, with the values of their fields instead of text.
"""

from __future__ import annotations

import re
import struct
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ringup.autogen.isa import sass
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, URZ, Instruction, Kind, Operand, control_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FILES = {"R": Kind.REGISTER, "U": Kind.UNIFORM, "P": Kind.PREDICATE, "Q": Kind.UNIFORM_PREDICATE, "B": Kind.BARRIER}
_ZEROES = {"R": (RZ, "RZ"), "U": (URZ, "URZ"), "P": (PT, "PT"), "Q": (PT, "UPT")}
_PREFIX = {"Q": "UP", "U": "UR", "S": "SB"}
_MASK32 = 0xFFFF_FFFF


class IllegalInstruction(Exception):
    """A word is no instruction that the tables explain in full."""


class _Field:
    """A number of a template, with its value in a word."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: str, value: int) -> None:
        self.kind, self.value = kind, value


_Token = str | _Field


def _value(number: sass.Number, word: int) -> int:
    found, width = 0, 0
    for part in number.parts:
        found |= (word >> part.lo & (1 << part.width) - 1) << part.shift
        width = max(width, part.shift + part.width)
    if number.inverted:
        found ^= (1 << width) - 1
    if number.kind in ("s", "rel") and found >> (width - 1):
        found -= 1 << width
    return found


def _is_operand(pieces: Sequence[sass.Piece]) -> bool:
    """Return whether what the text leaves out is a register of its own, with a comma behind or before it."""
    texts = [one for one in pieces if isinstance(one, str)]
    has_comma = bool(texts) and (texts[0].startswith(", ") or texts[-1].endswith(", "))
    return has_comma and any(isinstance(one, sass.Number) and one.kind in "PQRU" for one in pieces)


def _tokens(pieces: Sequence[sass.Piece], word: int, *, hidden: bool) -> Iterable[_Token]:
    """Yield texts and fields; with `hidden`, those registers and predicates too that the text leaves out, so that an
    instruction always has the same operands.
    """
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif isinstance(piece, sass.Choice):
            yield piece.texts[sum((word >> bit & 1) << at for at, bit in enumerate(piece.bits))]
        elif isinstance(piece, sass.Number):
            yield _Field(piece.kind, _value(piece, word))
        elif isinstance(piece, sass.Alias):
            if not hidden:
                yield piece.text(word)
        elif not piece.left_out(word) or (hidden and _is_operand(piece.pieces)):
            yield from _tokens(piece.pieces, word, hidden=hidden)


def _shown(field: _Field) -> str:
    kind, value = field.kind, field.value
    if kind in _ZEROES and value == _ZEROES[kind][0]:
        return _ZEROES[kind][1]
    if kind == "f32":
        return repr(struct.unpack("<f", struct.pack("<I", value))[0])
    if kind == "f64":
        return repr(struct.unpack("<d", struct.pack("<Q", value << 32))[0])
    if kind == "f16":
        return repr(struct.unpack("<e", struct.pack("<H", value))[0])
    if kind in ("x", "s"):
        return hex(value)
    if kind == "rel":
        return f".{value + 16:+#x}"
    if kind == "set":
        return "{" + ",".join(str(bit) for bit in range(64) if value >> bit & 1) + "}"
    return f"{_PREFIX.get(kind, kind)}{value}"


def _split(tokens: Iterable[_Token]) -> tuple[str, list[tuple[str, list[_Field]]]]:
    """Return the head, and for each operand its text with `#` for fields, and the fields."""
    text, fields = "", []
    for token in tokens:
        if isinstance(token, str):
            text += token
        else:
            text += "#"
            fields.append(token)
    head, _, rest = text.partition(" ")
    operands, at = [], head.count("#")
    for shape in _BETWEEN.split(rest) if rest else ():
        count = shape.count("#")
        operands.append((shape.strip(), fields[at : at + count]))
        at += count
    return head, operands


_STRIDE = re.compile(r"\.X(\d+)")
_BETWEEN = re.compile(r",? +")
_SIGNS = re.compile(r"([-~!]?)(\|?)(.*?)(\|?)(?:\.(H0_H0|H1_H1|H0|H1|64|reuse|B1|B2|B3|ROW|COL))?")


def _operand(shape: str, fields: list[_Field]) -> Operand:
    match = _SIGNS.fullmatch(shape)
    assert match is not None
    sign, bar, body, _, suffix = match.groups()
    half = suffix if suffix and suffix[0] in "HB" else ""
    signs = Operand(
        Kind.NAME, negate=sign == "-", absolute=bool(bar), invert=sign in ("~", "!") and bool(sign), half=half or "",
        is_wide=suffix == "64",
    )  # fmt: skip
    if body == "#":
        return _plain(signs, fields[0])
    if body.startswith("c["):
        return _constant(signs._replace(bank=fields[0].value), fields[1:])
    if body.startswith("cx["):
        return _constant(signs._replace(bank=-1), fields)
    if body.startswith(("[", "desc[")):
        return _address(signs, body, fields)
    return signs._replace(kind=Kind.NAME, name=shape)


def _plain(signs: Operand, field: _Field) -> Operand:
    kind, value = field.kind, field.value
    if kind in _FILES:
        return signs._replace(kind=_FILES[kind], value=value)
    if kind == "S":
        return signs._replace(kind=Kind.SCOREBOARD, value=value)
    if kind == "rel":
        return signs._replace(kind=Kind.TARGET, value=value)
    if kind in ("f16", "bf16"):
        return signs._replace(kind=Kind.IMMEDIATE, value=value, name="f16")
    # A sign is part of a signed number's bits.
    return signs._replace(kind=Kind.IMMEDIATE, value=value & _MASK32)


def _constant(signs: Operand, fields: list[_Field]) -> Operand:
    found = signs._replace(kind=Kind.CONSTANT)
    for field in fields:
        if field.kind == "R":
            found = found._replace(register=field.value)
        elif field.kind == "U":
            found = found._replace(uniform=field.value)
        else:
            found = found._replace(value=field.value)
    return found


def _address(signs: Operand, body: str, fields: list[_Field]) -> Operand:
    stride = _STRIDE.search(body)
    found = signs._replace(kind=Kind.ADDRESS, is_wide=".64" in body, name=body, scale=int(stride[1]) if stride else 1)
    if body.startswith("desc["):
        fields = fields[1:]
    for field in fields:
        if field.kind == "R":
            found = found._replace(register=field.value)
        elif field.kind == "U":
            found = found._replace(uniform=field.value)
        else:
            found = found._replace(value=found.value + field.value)
    return found


def _merged(operands: list[Operand]) -> tuple[Operand, ...]:
    """Return operands, with the two halves of an f16 immediate as one."""
    found: list[Operand] = []
    for one in operands:
        if one.name == "f16" and found and found[-1].name == "f16":
            upper = found.pop()
            found.append(Operand(Kind.IMMEDIATE, upper.value << 16 | one.value))
        else:
            found.append(one)
    return tuple(found)


@cache
def _index(target: str) -> sass.Index:
    return sass.index(target)


@lru_cache(maxsize=65536)
def decode(target: str, word: int) -> Instruction:
    """Decode a word of 128 bits for a chip such as `sm_86`. Raises `IllegalInstruction`."""
    row = _index(target).find(word)
    if row is None:
        raise IllegalInstruction(f"{word:#034x} is no instruction of {target} that these cores know")
    head, shapes = _split(_tokens(row.pieces, word, hidden=True))
    name, *modifiers = head.split(".")
    file = Kind.UNIFORM_PREDICATE if row.uniform else Kind.PREDICATE
    guard = Operand(file, word >> 12 & 7, invert=bool(word >> 15 & 1))
    text = "".join(one if isinstance(one, str) else _shown(one) for one in _tokens(row.pieces, word, hidden=False))
    if guard.value != PT or guard.invert:
        text = f"@{'!' * guard.invert}{'U' * row.uniform}P{guard.value} {text}"
    operands = _merged([_operand(shape, fields) for shape, fields in shapes])
    return Instruction(name, tuple(modifiers), operands, guard, control_of(word), word, text)
