"""Compares two bring-ups of the same card, ours and another driver's, by order and by value.

Both logs are cut into steps. A file of tables names the steps and says why our driver differs.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

_REGISTER = re.compile(r"\S+ (read|write) (\S+) (?:=|is) 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a bring-up. `does` matches the text of the access that identifies it. `moves` means that its place does
    not matter.
    """

    name: str
    does: re.Pattern[str]
    why: str
    moves: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """The contents of a file of tables. Names and registers are shell patterns, several of them joined by semicolons.
    Every row ends with its reason.
    """

    steps: tuple[Step, ...]
    missing: tuple[tuple[str, str], ...]  # steps that only the kernel has
    added: tuple[tuple[str, str], ...]  # steps that only we have
    swapped: tuple[tuple[str, str, str], ...]  # the kernel does the first before the second, we do it after
    values: tuple[tuple[str, str], ...]  # registers that both write, with other values
    unwritten: tuple[tuple[str, str], ...]  # registers that only the kernel writes
    written: tuple[tuple[str, str], ...]  # registers that only we write
    unpushed: tuple[tuple[str, str], ...]  # reads for order alone that only the kernel has
    pushed: tuple[tuple[str, str], ...]  # reads for order alone that only we have


def tables(path: Path, part: str = "") -> Tables:
    """Read the tables. `part`: all but the steps are in this table of the file, and more steps."""
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    found = text[part] if part else text
    steps = tuple(
        Step(name, re.compile(does), why.removeprefix("moves: "), why.startswith("moves: "))
        for name, does, why in (*text.pop("steps"), *found.pop("steps", ()))
    )
    rest = {name: tuple(tuple(row) for row in rows) for name, rows in found.items()}
    return Tables(steps, **rest)


def unclear(known: Tables) -> list[str]:
    """Return the names of steps that are there twice, or that have no reason."""
    names = [step.name for step in known.steps]
    return [step.name for step in known.steps if names.count(step.name) > 1 or not step.why]


@dataclass
class Bringup:
    """One side of the comparison. `acts`: every event as text, with banked and indirect registers under their own
    names.
    """

    # A write and the read that pushes it, where that is another register.
    FLUSH: ClassVar[tuple[str, str]] = ("", "")
    FLUSH_NAME: ClassVar[str] = ""
    acts: list[str] = field(default_factory=list)
    # Values by register, in order, without repeats.
    writes: dict[str, list[int]] = field(default_factory=dict)

    def write(self, name: str, value: int) -> None:
        """Record a value of a register, of a message's argument, or a type of firmware."""
        values = self.writes.setdefault(name, [])
        if not values or values[-1] != value:
            values.append(value)

    def pushes(self) -> set[str]:
        """Return the reads that push posted writes, by their place.

        One kind reads a register right after its own write, where no write of the same register follows as the second
        half of an update; its place is that write. The other kind is the pair `FLUSH`; its place is the
        access that follows.
        """
        accesses = [found.groups() for act in self.acts if (found := _REGISTER.fullmatch(act))]
        found = set()
        for (verb, wrote), (then, name), (later, following) in zip(accesses, accesses[1:], accesses[2:], strict=False):
            if (verb, then) != ("write", "read"):
                continue
            if name == wrote and (later, following) != ("write", name):
                found.add(name)
            elif (wrote, name) == self.FLUSH:
                found.add(f"{self.FLUSH_NAME} ahead of {following}")
        return found

    def place(self, step: Step) -> int | None:
        """Return the position of a step, or None where it is missing."""
        return next((at for at, act in enumerate(self.acts) if step.does.match(act)), None)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the two. `kind` is the name of the table that must explain it, `names` what its row must
    match.
    """

    kind: str
    names: tuple[str, ...]
    seen: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {' | '.join(self.names)}  {self.seen}"


def _hex(values: Sequence[int]) -> str:
    shown = [f"{value:#x}" for value in values]
    return " ".join(shown if len(shown) <= 4 else [*shown[:3], f".. ({len(shown)}) {shown[-1]}"])


def differences(known: Tables, one: Bringup, other: Bringup) -> list[Difference]:
    """Compare the kernel's bring-up with ours."""
    found: list[Difference] = []
    places: list[tuple[str, int, int]] = []
    for step in known.steps:
        first, second = one.place(step), other.place(step)
        if first is None and second is None:
            found.append(Difference("neither", (step.name,)))
        elif second is None:
            found.append(Difference("missing", (step.name,)))
        elif first is None:
            found.append(Difference("added", (step.name,)))
        elif not step.moves:
            places.append((step.name, first, second))
    places.sort(key=lambda row: row[1])
    for at, (name, _, mine) in enumerate(places):
        found += [Difference("swapped", (name, later)) for later, _, theirs in places[at + 1 :] if theirs < mine]
    theirs, mine = one.pushes(), other.pushes()
    found += [Difference("unpushed", (name,)) for name in theirs - mine]
    found += [Difference("pushed", (name,)) for name in mine - theirs]
    for name in one.writes.keys() | other.writes.keys():
        first, second = one.writes.get(name), other.writes.get(name)
        if second is None:
            found.append(Difference("unwritten", (name,), _hex(first or ())))
        elif first is None:
            found.append(Difference("written", (name,), _hex(second)))
        elif first != second:
            found.append(Difference("values", (name,), f"{_hex(first)} : {_hex(second)}"))
    return sorted(found, key=lambda row: (row.kind, row.names))


def matching(patterns: str, name: str) -> set[str]:
    """Return the patterns of a cell that a name matches."""
    return {pattern for pattern in patterns.split("; ") if fnmatchcase(name, pattern)}


def explains(row: Sequence[str], names: Sequence[str]) -> bool:
    """Tell whether a row of a table is about a difference: every name matches its cell."""
    return all(matching(cell, name) for cell, name in zip(row, names, strict=False))


def unexplained(known: Tables, found: Sequence[Difference]) -> tuple[list[Difference], list[str]]:
    """Return the differences without a row, and the rows and patterns that are not needed.

    A row is needed if it alone explains a difference. A pattern is needed if it matches in a difference that its row
    explains.
    """
    open_ones: list[Difference] = []
    needed: set[tuple[str, ...]] = set()
    used: set[tuple[str, ...]] = set()
    for difference in found:
        rows = [row for row in getattr(known, difference.kind, ()) if explains(row, difference.names)]
        if not rows:
            open_ones.append(difference)
        elif len(rows) == 1:
            needed.add((difference.kind, *rows[0]))
        for row in rows:
            for cell, name in zip(row, difference.names, strict=False):
                used |= {(difference.kind, *row, cell, pattern) for pattern in matching(cell, name)}
    stale = []
    for kind in sorted(HEADINGS.keys() - {"steps"}):
        for row in getattr(known, kind):
            if (kind, *row) not in needed:
                stale.append(f"{kind}: {' | '.join(row[:-1])}")
            stale += [
                f"{kind}: {pattern!r} in {' | '.join(row[:-1])}"
                for cell in row[:-1]
                for pattern in cell.split("; ")
                if (kind, *row, cell, pattern) not in used
            ]
    return open_ones, stale


# --- the page ---------------------------------------------------------------------------------------------------------
BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
HEADINGS = {
    "steps": ("step", "why at this position"),
    "missing": ("step of the kernel", "why not ours"),
    "added": ("our step", "why"),
    "swapped": ("earlier in the kernel", "earlier in ours", "why"),
    "values": ("register", "why"),
    "unwritten": ("register that only the kernel writes", "why"),
    "written": ("register that only we write", "why"),
    "unpushed": ("read for order that only the kernel has", "why not ours"),
    "pushed": ("read for order that only ours has", "why"),
}


def _table(kind: str, known: Tables, heading: Sequence[str]) -> str:
    rows: list[Sequence[str]] = (
        [(step.name, ("may move: " if step.moves else "") + step.why) for step in known.steps]
        if kind == "steps"
        else list(getattr(known, kind))
    )
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    code = kind in ("values", "unwritten", "written", "unpushed", "pushed")
    for row in rows:
        cells = [f"`{cell}`" if code and at < len(row) - 1 else cell for at, cell in enumerate(row)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def paged(
    text: str,
    known: Tables,
    part: str = "",
    *,
    without: Sequence[str] = (),
    headings: Mapping[str, Sequence[str]] = HEADINGS,
) -> str:
    """Return the page with the current tables, but for some kinds; those of a part are marked with its name."""
    for kind in (kind for kind in HEADINGS if kind not in without):
        begin, end = BEGIN.format(f"{part} {kind}".strip()), END.format(f"{part} {kind}".strip())
        before, rest = text.split(begin, 1)
        _, after = rest.split(end, 1)
        text = f"{before}{begin}\n{_table(kind, known, headings[kind])}\n{end}{after}"
    return text


def report(known: Tables, one: Bringup, other: Bringup) -> int:
    """Print what the tables do not explain; return the exit status."""
    found = differences(known, one, other)
    open_ones, stale = unexplained(known, found)
    for difference in open_ones:
        sys.stdout.write(f"{difference}\n")
    for row in stale:
        sys.stdout.write(f"not needed: {row}\n")
    sys.stdout.write(
        f"{len(known.steps)} steps, {len(found)} differences, {len(open_ones)} unexplained, {len(stale)} rows not needed\n"
    )
    return 1 if open_ones or stale else 0
