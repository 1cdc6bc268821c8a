"""Cuts an access log of Linux's amdgpu on a virtual card into the rungs of the ladder: `python test/guest/split_log.py
LOG FOLDER`.

The pieces are logs themselves: `ringup trace --decode` shows them, and `test/support/order_beside_linux.py`
compares them with our driver's. What says the same thing hundreds of times is left out, with a remark in its place that
says how much and what it was.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringup.tools.cards.access_log import HEAD, Entry, read

TITLES = {
    1: "probe and VBIOS",
    2: "discovery",
    3: "bus interface, GMC, GART",
    4: "PSP and firmware loading",
    5: "SMU",
    6: "IH",
    7: "RLC, MEC, MES, KIQ",
    8: "ring tests, SDMA",
    9: "late initialisation, MES self test, IB tests, idle",
    10: "KFD",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the log. It starts at the first entry after the previous piece's start that matches `first`."""

    rung: int
    first: str
    what: str


PIECES = (  # in the order in which amdgpu works; a rung may have several
    Piece(1, r"nbio read nbio\.RCC_DEV0_EPF0_RCC_IOV_FUNC_IDENTIFIER", "amdgpu_detect_virtualization"),
    Piece(2, r"mp read mp\.MP0_SMN_C2PMSG_33", "amdgpu_discovery_read_binary_from_mem"),
    Piece(
        1, r"nbio read nbio\.RCC_STRAP0_RCC_DEV0_EPF0_STRAP0", "soc21_common_early_init; the VBIOS is in the ROM BAR"
    ),
    Piece(3, r"nbio write nbio\.BIF_BX_PF0_RSMU_INDEX", "amdgpu_device_ip_init: soc21_common, gmc_v11_0"),
    Piece(6, r"osssys read osssys\.IH_RB_CNTL", "ih_v6_0_hw_init"),
    Piece(4, r"mp read mp\.MP0_SMN_C2PMSG_81", "psp_hw_init"),
    Piece(5, r"nbio write nbio\.BIF_BX_PF0_RSMU_INDEX", "smu_hw_init"),
    Piece(7, r"gc read gc\.CP_STAT", "gfx_v11_0_hw_init"),
    Piece(8, r"gc write gc\.CP_MAX_CONTEXT", "gfx_v11_0_cp_gfx_start, sdma_v6_0_hw_init"),
    Piece(9, r"mes packet MESAPI__MISC", "amdgpu_device_ip_late_init, amdgpu_ib_ring_tests"),
)
LOADED = "modprobe amdgpu"  # a cold start lies between these remarks
IDLE = "amdgpu is idle"
KEPT = 8  # entries of a run that are shown before the rest is left out


@dataclass(frozen=True, slots=True)
class Bulk:
    """Entries that come in long runs. `match` groups what may change from one entry to the next."""

    match: re.Pattern[str]
    what: str


BULK = (
    Bulk(
        re.compile(r"nbio (?:write nbio\.BIF_BX_PF0_MM_INDEX(?:_HI)? = |read nbio\.BIF_BX_PF0_MM_DATA is ).*"),
        "reads of the discovery binary, a write of MM_INDEX and a read of MM_DATA each, addresses going up by 4",
    ),
    Bulk(re.compile(r"cp packet queue [\d.]+: NOP at .*"), "NOP packets of the command processor, one for every dword"),
)


def text(entry: Entry) -> str:
    """Return the text of an entry, without time and count."""
    return f"{entry.block} {entry.kind} {entry.text}"


def cold_start(path: Path, loaded: str = LOADED) -> list[Entry]:
    """Return the entries of card 0 from loading the driver, which the remark `loaded` says, until the next remark. From
    a log without it, return all.

    Raises `TransportError` when the file is not a log.
    """
    entries, remarks = read(path)
    if loaded not in remarks:
        return entries
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    start = lines.index(f"# {loaded}\n")
    end = next((at for at, line in enumerate(lines) if at > start and line.startswith("# ")), len(lines))
    before, found = (sum(not line.startswith("#") for line in lines[1:at]) for at in (start, end))
    return [entry for entry in entries[before:found] if entry.card == 0]


def pieces(entries: Sequence[Entry]) -> Iterator[tuple[Piece, Sequence[Entry]]]:
    """Cut a cold start. Raises `ValueError` naming a piece whose start is missing."""
    starts, at = [], 0
    for piece in PIECES:
        pattern = re.compile(piece.first)
        at = next((place for place in range(at, len(entries)) if pattern.match(text(entries[place]))), -1)
        if at < 0:
            raise ValueError(f"rung {piece.rung}: no entry begins {piece.what}: {piece.first}")
        starts.append(at)
        at += 1
    for piece, start, end in zip(PIECES, starts, [*starts[1:], len(entries)], strict=True):
        yield piece, entries[start:end]


def shortened(entries: Iterable[Entry], bulks: Sequence[Bulk] = BULK) -> Iterator[str]:
    """Yield the lines of entries. A long run of one of `bulks` becomes its first entries and a remark."""
    run: list[Entry] = []
    kind: Bulk | None = None

    def close() -> Iterator[str]:
        yield from map(str, run[:KEPT])
        if len(run) > KEPT:
            assert kind is not None
            yield f"# left out: {len(run) - KEPT} more entries, up to {run[-1].time_us:.1f} us: {kind.what}"
        run.clear()

    for entry in entries:
        now = next((bulk for bulk in bulks if bulk.match.fullmatch(text(entry))), None)
        if now is not kind:
            yield from close()
            kind = now
        if now is None:
            yield str(entry)
        else:
            run.append(entry)
    yield from close()


def split(log: Path, folder: Path, made: str) -> None:
    """Write a file for each rung into `folder`. `made` is a remark: which kernel, which firmware, when."""
    found: dict[int, list[str]] = {rung: [] for rung in TITLES}
    for piece, entries in pieces(cold_start(log)):
        found[piece.rung] += [f"# {piece.what}", *shortened(entries)]
    found[10].append("# amdgpu_amdkfd_device_init touches no register and sends no packet")
    for rung, lines in found.items():
        head = [HEAD, f"# rung {rung}: {TITLES[rung]}", f"# {made}", "# cut from one log by test/guest/split_log.py"]
        (folder / f"rung_{rung:02}.log").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Split a log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("log", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--made", default="amdgpu on virtual:navi31", help="a remark: which kernel, driver and firmware"
    )
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    split(options.log, options.folder, options.made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
