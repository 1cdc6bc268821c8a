"""Compares our driver's bring-up with that of Linux's amdgpu: both logs of the same card are cut into steps and
compared by order and by value.

The kernel's log is `test/data/amdgpu-ladder/rung_*.log`. `order.toml` beside it names the steps, from amdgpu's source,
and says why our driver differs. Run as a program, this prints what the tables do not explain. With `--page` it writes
the tables into docs/amdgpu-ladder.md.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import ringup
from ringup.silicon import card as virtual
from ringup.tools.cards.access_log import HEAD, AccessLog, Entry, read

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "test/data/amdgpu-ladder"
PAGE = ROOT / "docs/amdgpu-ladder.md"

_ACCESS = re.compile(r"(\S+) (=|is) (0x[0-9a-f]+)")
_BY_QUEUE = re.compile(r"gc\.(?:CP_HQD_|CP_MQD_|CP_(?:MEC_RS64|MES|PFP|ME)_PRGRM_CNTR_START|CPC_INT_CNTL)")
_BY_VMID = re.compile(r"gc\.(?:SH_MEM_|SPI_GDBG_PER_VMID_CNTL)")
_REGISTER = re.compile(r"\S+ (read|write) (\S+) (?:=|is) 0x[0-9a-f]+")
# nbio_v4_3_remap_hdp_registers; hdp_v6_0_flush_hdp
_HDP_FLUSH, _HDP_PUSH = (
    "0x7f000",
    "nbio.RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE",
)
_MESSAGE = re.compile(r"(0x[0-9a-f]+)\((0x[0-9a-f]+)\)(?: = 0x[0-9a-f]+)?")
_FIRMWARE = re.compile(r"0x6, firmware type (0x[0-9a-f]+) done")
_CARRIERS = (  # what they carry is compared instead
    "gc.GRBM_GFX_CNTL", "gc.GRBM_GFX_INDEX", "nbio.BIF_BX_PF0_RSMU_INDEX", "nbio.BIF_BX_PF0_MM_INDEX",
    "nbio.BIF_BX_PF0_MM_INDEX_HI", "mp.MP1_SMN_C2PMSG_66", "mp.MP1_SMN_C2PMSG_82", "mp.MP1_SMN_C2PMSG_90",
)  # fmt: skip


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
    """The contents of `order.toml`. Names and registers are shell patterns, several of them joined by semicolons. Every
    row ends with its reason.
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


def tables(path: Path = DATA / "order.toml") -> Tables:
    """Read the tables."""
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    steps = tuple(
        Step(name, re.compile(does), why.removeprefix("moves: "), why.startswith("moves: "))
        for name, does, why in text["steps"]
    )
    rest = {name: tuple(tuple(row) for row in rows) for name, rows in text.items() if name != "steps"}
    return Tables(steps, **rest)


@dataclass(slots=True)
class Bringup:
    """One side of the comparison. `acts`: every event as text, with banked and indirect registers under their own
    names.
    """

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
        half of an update; its place is that write. The other kind reads the memory size after a flush of the host data
        path; its place is the access that follows.
        """
        accesses = [found.groups() for act in self.acts if (found := _REGISTER.fullmatch(act))]
        found = set()
        for (verb, wrote), (then, name), (later, following) in zip(accesses, accesses[1:], accesses[2:], strict=False):
            if (verb, then) != ("write", "read"):
                continue
            if name == wrote and (later, following) != ("write", name):
                found.add(name)
            elif (wrote, name) == (_HDP_FLUSH, _HDP_PUSH):
                found.add(f"HDP flush ahead of {following}")
        return found

    def place(self, step: Step) -> int | None:
        """Return the position of a step, or None where it is missing."""
        return next((at for at, act in enumerate(self.acts) if step.does.match(act)), None)


def bringup(entries: Iterable[Entry]) -> Bringup:
    """Turn the entries of a log into acts."""
    found, select, index = Bringup(), 0, 0
    for entry in entries:
        access = _ACCESS.fullmatch(entry.text) if entry.kind in ("read", "write") else None
        if access is None:
            found.acts.append(f"{entry.block} {entry.kind} {entry.text}")
            if entry.block == "smu" and (message := _MESSAGE.fullmatch(entry.text)):
                found.write(f"message.{message[1]}", int(message[2], 16))
            if entry.block == "psp" and (firmware := _FIRMWARE.fullmatch(entry.text)):
                found.write("psp.firmware", int(firmware[1], 16))
            continue
        name, sign, value = access[1], access[2], int(access[3], 16)
        if entry.kind == "write" and name == "gc.GRBM_GFX_CNTL":
            select = value
        if entry.kind == "write" and name == "nbio.BIF_BX_PF0_RSMU_INDEX":
            index = value
        if name == "nbio.BIF_BX_PF0_RSMU_DATA":
            name = f"smn.{index:#010x}"
        elif _BY_QUEUE.match(name):
            # GRBM_GFX_CNTL: pipe [1:0], me [3:2], vmid [7:4], queue [10:8]
            name += f"@{select >> 2 & 3}.{select & 3}.{select >> 8 & 7}"
        elif _BY_VMID.match(name):
            name += f"@{select >> 4 & 15}"
        found.acts.append(f"{entry.block} {entry.kind} {name} {sign} {access[3]}")
        if entry.kind == "write" and name not in _CARRIERS:
            found.write(name, value)
    return found


def kernel(folder: Path = DATA) -> Bringup:
    """Return amdgpu's bring-up."""
    entries = [entry for path in sorted(folder.glob("rung_*.log")) for entry in read(path)[0]]
    return bringup(sorted(entries, key=lambda entry: entry.time_us))


def ours() -> Bringup:
    """Start a virtual card with our driver; the card is as large as the kernel's."""
    radeon, stream = virtual("navi31"), io.StringIO(f"{HEAD}\n")
    stream.seek(0, io.SEEK_END)
    log = AccessLog(stream)
    log.follow(radeon)
    with ringup.open(radeon.name, transport={"card": radeon}), tempfile.TemporaryDirectory() as folder:
        log.flush()
        path = Path(folder) / "ours.log"
        path.write_text(stream.getvalue(), encoding="utf-8")
        return bringup(read(path)[0])


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


def _table(kind: str, known: Tables) -> str:
    heading = HEADINGS[kind]
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


def paged(text: str, known: Tables) -> str:
    """Return the page with the current tables."""
    for kind in HEADINGS:
        begin, end = BEGIN.format(kind), END.format(kind)
        before, rest = text.split(begin, 1)
        _, after = rest.split(end, 1)
        text = f"{before}{begin}\n{_table(kind, known)}\n{end}{after}"
    return text


def main(arguments: Sequence[str]) -> int:
    """Print the unexplained differences, or write the page."""
    known = tables()
    if "--page" in arguments:
        PAGE.write_text(paged(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
        return 0
    found = differences(known, kernel(), ours())
    open_ones, stale = unexplained(known, found)
    for difference in open_ones:
        sys.stdout.write(f"{difference}\n")
    for row in stale:
        sys.stdout.write(f"not needed: {row}\n")
    sys.stdout.write(
        f"{len(known.steps)} steps, {len(found)} differences, {len(open_ones)} unexplained, {len(stale)} rows not needed\n"
    )
    return 1 if open_ones or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
