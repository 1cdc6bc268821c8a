"""Tables of registers: how a model treats each register of a block, one row for a register or a family.

A row has one of three kinds. *Behaviour*: the model acts on the register or answers from it. *Inert*: the register is
stored and has no effect that the model could show; the row gives the reason and its source. *Unmodelled*: metal acts on
the register, the model only stores it. A register without a row is unmodelled too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

ALL = 0xFFFF_FFFF
LAST = "\x7f"  # sorts after every character of a name


class Kind(Enum):
    """How the model treats a register."""

    BEHAVIOUR = "behaviour"
    INERT = "inert"
    UNMODELLED = "unmodelled"


@dataclass(frozen=True, slots=True)
class Row:
    """A register or a family.

    `names`: patterns separated by blanks; `*` matches any text, `#` a decimal number. `why`: what the register does
    here, or why it does nothing. `source`: where that is documented. Bits: `read_only` bits cannot be changed by the
    bus, `clears` bits are cleared by writing 1, `spare` bits belong to no field of the header and are set by known
    drivers nevertheless. `starts`: fields that start something that the model lacks, as `NAME` (any non-zero value),
    `NAME=value`, or `*` (any bit); such a write raises `Unmodelled`.
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
        """The separate patterns of `names`."""
        return self.names.split()

    def with_prefix(self, old: str, new: str) -> Row:
        """Return the row with another prefix of names, for a twin block."""
        return replace(self, names=" ".join(new + name.removeprefix(old) for name in self.patterns))


def behaviour(
    names: str, why: str, source: str = "", *, reset: int = 0, read_only: int = 0, clears: int = 0, spare: int = 0
) -> Row:
    """Return the row of registers that the model acts on; `why` names the module and what it does."""
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
    """Return the row of registers that are stored without any effect that the model could show; `source` documents
    that.
    """
    return Row(Kind.INERT, names, why, source, reset, read_only, 0, spare, starts)


def unmodelled(
    names: str, why: str, source: str = "", *, reset: int = 0, spare: int = 0, starts: tuple[str, ...] = ()
) -> Row:
    """Return the row of registers that metal acts on and the model only stores; `why` says what metal does."""
    return Row(Kind.UNMODELLED, names, why, source, reset, 0, 0, spare, starts)


_SIGNS = {"*": ".*", "#": "[0-9]+"}


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_SIGNS.get(part, re.escape(part)) for part in re.split(r"([*#])", pattern)))


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """List the sorted `names` that match a pattern; only names with its first characters are compared."""
    parts = re.split(r"[*#]", pattern)
    start, longest = parts[0], max(parts, key=len)
    matches = _expression(pattern).fullmatch
    alike = names[bisect_left(names, start) : bisect_left(names, start + LAST)]
    return [name for name in alike if longest in name and matches(name)]


@dataclass(frozen=True, eq=False)
class Rows:
    """A block's table. An exact name takes precedence over patterns; of several patterns the first row applies."""

    rows: tuple[Row, ...]

    def of(self, names: Iterable[str]) -> dict[str, Row]:
        """Return the row of each register that has one. `NAME` also matches elements of an array, `NAME[2]`."""
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
