"""Reads the committed instruction facts. A target opens in a few milliseconds; instructions are unpacked when asked
for.
"""

from __future__ import annotations

import types
import zlib
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from ringup.errors import HeaderError

if TYPE_CHECKING:
    from ringup.autogen.layout import Word

TARGETS = ("gfx1100", "gfx1151", "gfx1201", "gfx942", "gfx950")
_DIRECTIONS = {"d": "def", "u": "use", "b": "both"}
_KINDS = {
    "v": "vgpr", "a": "agpr", "s": "sgpr", "t": "ttmp", "c": "vcc", "x": "exec", "m": "m0", "n": "null", "k": "scc", "p": "aperture",
    "d": "lds_direct", "o": "off", "F": "flat_scratch", "X": "xnack_mask", "P": "pops", "i": "imm", "f": "float", "l": "literal", "L": "label",
    "W": "waitcnt", "H": "hwreg", "G": "sendmsg", "D": "delay", "A": "attribute", "E": "export", "U": "symbol",
}  # fmt: skip


class FormatFacts(NamedTuple):
    """One encoding format. `fields` maps a name to (hi, lo); the bits of `mask` hold `value` in every word of the
    format.

    An extension is the dword that follows a base word (DPP, SDWA, more image addresses); its bits count from its own
    bit 0.
    """

    name: str
    width_bits: int
    mask: int
    value: int
    fields: Mapping[str, tuple[int, int]]
    is_extension: bool

    def word(self) -> type[Word]:
        """Return the format as a `Word` class; the identifying bits are the caller's to set (`value`)."""
        return _word(self.name, self.width_bits, tuple((name, hi, lo) for name, (hi, lo) in self.fields.items()))


class OperandFacts(NamedTuple):
    """One operand in the order of the assembly text.

    `field` names the encoding field, or `literal` (the dword after the word), `implied` (in the text, in no field) or
    `hidden` (not even in the text); the last two hold the register in `text`. `direction` is def, use or both.
    `size_bits` is what the registers of the text cover, 0 for what is no register. `type` is the mnemonic's suffix
    (f16, b64…), `mask` for one bit per lane (shown for wave32 on gfx11 and gfx12), or empty.
    """

    field: str
    direction: str
    kinds: tuple[str, ...]
    size_bits: int
    type: str
    text: str = ""


class ModifierFacts(NamedTuple):
    """Bits of `field` that change the text's `effect` (neg, abs, clamp, offset…); `signed` for offsets that may be
    negative.
    """

    field: str
    bits: int
    effect: str
    signed: bool = False


class InstructionFacts(NamedTuple):
    """One opcode of one format. Sizes of images are those of `dmask` 15 (or 1) and 2D, those of matrices of a wave32.

    `flags`: names of the extension formats it takes (dpp16, dpp8, dpp, sdwa, sdwab; dpp-newbcast: no other control),
    `tail` (a literal follows), `needs-FIELD=VALUE` (a bit the disassembler insists on), `returns` (an atomic that
    returns the old value when glc, sc0 or bit 0 of th is set; without it nothing is written and `vdst` is unused).
    """

    format: str
    op: int
    mnemonic: str
    operands: tuple[OperandFacts, ...]
    modifiers: tuple[ModifierFacts, ...]
    flags: frozenset[str]


class Target:
    """The facts of one processor."""

    def __init__(
        self,
        name: str,
        formats: Mapping[str, FormatFacts],
        rows: Mapping[tuple[str, int], str],
        unsettled: tuple[str, ...],
    ) -> None:
        self.name, self.formats, self.unsettled = name, formats, unsettled
        self._rows = rows
        words = [fmt for fmt in formats.values() if not fmt.is_extension]
        self._by_identity = sorted(words, key=lambda fmt: -fmt.mask.bit_count())

    @cached_property
    def instructions(self) -> tuple[InstructionFacts, ...]:
        """Every instruction, by format and opcode."""
        return tuple(_instruction(row) for row in self._rows.values())

    @cached_property
    def _mnemonics(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for key, row in self._rows.items():
            found.setdefault(row.split("\t", 3)[2], []).append(key)
        return found

    def by_opcode(self, fmt: str, op: int) -> InstructionFacts | None:
        """Return the instruction of an opcode, None when the processor has none there. Dual instructions: VOPDX,
        VOPDY.
        """
        row = self._rows.get((fmt, op))
        return None if row is None else _instruction(row)

    def by_mnemonic(self, name: str) -> tuple[InstructionFacts, ...]:
        """Return the instructions of that name in every format that has it; none is an empty tuple."""
        return tuple(_instruction(self._rows[key]) for key in self._mnemonics.get(name, ()))

    def identify(self, data: bytes) -> tuple[InstructionFacts, ...]:
        """Return the instruction that begins `data` (little-endian, at least one dword): one, two for a dual
        instruction, none if illegal.
        """
        word = int.from_bytes(data[:16], "little")
        for fmt in self._by_identity:
            if word & fmt.mask != fmt.value or len(data) * 8 < fmt.width_bits:
                continue
            names = [("VOPDX", "opx"), ("VOPDY", "opy")] if "opx" in fmt.fields else [(fmt.name, "op")]
            found = [self.by_opcode(name, _take(word, fmt.fields.get(field))) for name, field in names]
            if all(found):
                return tuple(row for row in found if row is not None)
        return ()


@cache
def target(name: str) -> Target:
    """Open the facts of a processor of `TARGETS`."""
    if name not in TARGETS:
        raise ValueError(f"no instruction facts for {name}; there are {', '.join(TARGETS)}")
    return parse(name, (resources.files(__package__) / f"{name}.tsv").read_bytes())


def parse(name: str, data: bytes) -> Target:
    """Read one facts file; a damaged one is a HeaderError."""
    try:
        return _parse(name, data)
    except (ValueError, KeyError, IndexError) as error:
        raise HeaderError(
            f"instruction facts of {name} ({len(data)} bytes) are damaged: {error}; install ringup again or regenerate them"
        ) from error


def _parse(name: str, data: bytes) -> Target:
    body, _, end = data.decode().removesuffix("\n").rpartition("\n")
    body += "\n"
    lines = body.splitlines()
    if end != f"end\t{len(lines)}\t{zlib.crc32(body.encode()):08x}" or data[-1:] != b"\n":
        raise ValueError("its end line does not match its content")
    kind, version, written_for, base_name = lines[0].split("\t")
    if (kind, version, written_for) != ("ringup-isa", "1", name):
        raise ValueError(f"it begins {lines[0]!r}")
    base = None if base_name == "-" else target(base_name)
    formats = dict(base.formats) if base else {}
    rows = dict(base._rows) if base else {}
    unsettled = []
    for line in lines[1:]:
        tag, _, rest = line.partition("\t")
        if tag == "i":
            fmt, op, _ = rest.split("\t", 2)
            rows[fmt, int(op, 16)] = rest
        elif tag in ("format", "extension"):
            facts = _format(rest, tag == "extension")
            formats[facts.name] = facts
        elif tag == "gone":
            fmt, op = rest.split("\t")
            del rows[fmt, int(op, 16)]
        elif tag == "unsettled":
            unsettled.append(rest)
        else:
            raise ValueError(f"a line begins {tag!r}")
    order = {fmt: i for i, fmt in enumerate(formats)} | {"VOPDX": -2, "VOPDY": -1}
    ordered = dict(sorted(rows.items(), key=lambda item: (order[item[0][0]], item[0][1]))) if base else rows
    return Target(name, formats, ordered, tuple(unsettled))


def _format(rest: str, is_extension: bool) -> FormatFacts:
    name, width, mask, value, fields = rest.split("\t")
    places = {}
    for part in fields.split(" "):
        field, hi, lo = part.split(":")
        places[field] = (int(hi), int(lo))
    return FormatFacts(name, int(width), int(mask, 16), int(value, 16), places, is_extension)


@cache
def _word(name: str, width_bits: int, fields: tuple[tuple[str, int, int], ...]) -> type[Word]:
    # on first use: facts open without it
    from ringup.autogen.layout import Field, Word

    body: dict[str, object] = {"__slots__": (), "__module__": __name__}
    body |= {field: Field(hi, lo) for field, hi, lo in fields}
    made: type[Word] = types.new_class(name, (Word,), {"width": width_bits}, lambda space: space.update(body))
    return made


def _take(word: int, place: tuple[int, int] | None) -> int:
    if place is None:  # exports have no opcode
        return 0
    hi, lo = place
    return word >> lo & (1 << hi - lo + 1) - 1


@cache
def _instruction(row: str) -> InstructionFacts:
    fmt, op, mnemonic, operands, modifiers, flags = row.split("\t")
    return InstructionFacts(
        fmt,
        int(op, 16),
        mnemonic,
        tuple(_operand(part) for part in operands.split(" ")) if operands != "-" else (),
        tuple(_modifier(part) for part in modifiers.split(" ")) if modifiers != "-" else (),
        frozenset(flags.split(" ")) if flags != "-" else frozenset(),
    )


@cache
def _operand(part: str) -> OperandFacts:
    part, _, text = part.partition("=")
    field, direction, kinds, size, kind = part.split(":")
    return OperandFacts(field, _DIRECTIONS[direction], tuple(_KINDS[letter] for letter in kinds), int(size), kind, text)


@cache
def _modifier(part: str) -> ModifierFacts:
    field, bits, effect, *signed = part.split(":")
    return ModifierFacts(field, int(bits, 16), effect, signed == ["s"])
