"""Tables of registers: what each register of a block is to its model, a row for a register or a family.

A row says one of three things. *Behaviour*: the model acts on the register or answers from it. *Inert*: it is kept, and
changes nothing that the model could show; the row says why, and from which source. *Unmodelled*: metal acts on it, and
the model only keeps it. A register without a row is unmodelled too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

ALL = 0xFFFF_FFFF
LAST = "\x7f"  # behind every letter of a name


class Kind(Enum):
    """What a register is to its model."""

    BEHAVIOUR = "behaviour"
    INERT = "inert"
    UNMODELLED = "unmodelled"


@dataclass(frozen=True, slots=True)
class Row:
    """A register or a family.

    `names`: patterns separated by blanks; `*` stands for any text, `#` for a decimal number. `why`: what it does here,
    or why it does nothing. `source`: where that is written. Bits: `read_only` ones the bus cannot change, `clears` ones
    that a written 1 clears, `spare` ones that no field of the header names and that known drivers set all the same.
    `starts`: fields that start what the model lacks, as `NAME` (any value but 0), `NAME=value`, or `*` (any bit): such
    a write raises `Unmodelled`.
    """

    kind: Kind
    names: str
    why: str
    source: str = ""
    reset: int = 0
    read_only: int = 0
    clears: int = 0
    spare: int = 0
    starts: tuple[str, ...] = ()

    @property
    def patterns(self) -> list[str]:
        """Each of the names."""
        return self.names.split()

    def with_prefix(self, old: str, new: str) -> Row:
        """Return the row for the registers of a twin block, whose names begin otherwise."""
        return replace(self, names=" ".join(new + name.removeprefix(old) for name in self.patterns))


def behaviour(
    names: str, why: str, source: str = "", *, reset: int = 0, read_only: int = 0, clears: int = 0, spare: int = 0
) -> Row:
    """Make the row of registers that the model acts on; `why` says which module, and what it does."""
    return Row(Kind.BEHAVIOUR, names, why, source, reset, read_only, clears, spare)


def inert(
    names: str,
    why: str,
    source: str,
    *,
    reset: int = 0,
    read_only: int = 0,
    spare: int = 0,
    starts: tuple[str, ...] = (),
) -> Row:
    """Make the row of registers that are kept and change nothing that the model could show; `source` says who knows."""
    return Row(Kind.INERT, names, why, source, reset, read_only, 0, spare, starts)


def unmodelled(
    names: str, why: str, source: str = "", *, reset: int = 0, spare: int = 0, starts: tuple[str, ...] = ()
) -> Row:
    """Make the row of registers that metal acts on and the model only keeps; `why` says what metal does with them."""
    return Row(Kind.UNMODELLED, names, why, source, reset, 0, 0, spare, starts)


_SIGNS = {"*": ".*", "#": "[0-9]+"}


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_SIGNS.get(part, re.escape(part)) for part in re.split(r"([*#])", pattern)))


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """List those of the sorted `names` that a pattern means; only names that begin as it does are compared."""
    parts = re.split(r"[*#]", pattern)
    start, longest = parts[0], max(parts, key=len)
    matches = _expression(pattern).fullmatch
    alike = names[bisect_left(names, start) : bisect_left(names, start + LAST)]
    return [name for name in alike if longest in name and matches(name)]


@dataclass(frozen=True, eq=False)
class Rows:
    """A block's table. A name spelled out goes before patterns; of several patterns the first row has the register."""

    rows: tuple[Row, ...]

    def of(self, names: Iterable[str]) -> dict[str, Row]:
        """Return the row of each register that has one. Elements of an array, `NAME[2]`, are found by `NAME`."""
        elements: dict[str, list[str]] = {}
        for name in names:
            elements.setdefault(name.partition("[")[0], []).append(name)
        bases = sorted(elements)
        found: dict[str, Row] = {}
        for exact in (True, False):
            for row in self.rows:
                for pattern in row.patterns:
                    if exact == ("*" in pattern or "#" in pattern):
                        continue
                    for base in (pattern,) if exact else _matching(pattern, bases):
                        for name in elements.get(base, ()):
                            found.setdefault(name, row)
        return found
