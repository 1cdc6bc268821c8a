"""Compares our driver's start and end of a bare GA102 with those of two other drivers: Linux's nouveau, and NVIDIA's
open kernel modules.

Their logs are `test/data/nvidia-ladder/*.log`: rung 10 of `make nvidia` compares them with what the drivers do now.
`order.toml` beside them names the steps, and says why our driver differs. From the repository's root,
`PYTHONPATH=test/guest:test/support python -m order_beside.nvidia` prints what the tables do not explain, with `--page`
it writes them into docs/nvidia-order.md, and with `--record nouveau LOG` it cuts new logs from the access log of that
rung.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import split_log

import ringup
from order_beside import compare
from ringup.silicon import nvidia_card
from ringup.tools.cards import access_log

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "test/data/nvidia-ladder"
TABLES = DATA / "order.toml"
PAGE = ROOT / "docs/nvidia-order.md"
CHIP = "ga102"
PHASES = ("start", "stop")
# by driver: the remarks in the card's log with which start and end begin; the next remark ends them
REMARKS = {
    "nouveau": ("nouveau is loaded", "nouveau is unloaded"),
    "modules": ("the modules are loaded", "the modules are unloaded"),
    "ringup": ("ringup opens the card", "ringup closes the card"),
}
OTHERS = ("nouveau", "modules")
MADE = {
    "nouveau": "Debian's kernel 6.12.117+deb12-amd64, unmodified nouveau without options",
    "modules": "NVIDIA's open kernel module nvidia.ko 535.261.03 in Debian's kernel 6.12.117+deb12-amd64",
}
# entries that come in long runs
BULK = tuple(
    split_log.Bulk(re.compile(rf"bus (?:read|write) {pattern} .*"), what)
    for pattern, what in (
        (r"PROM\+\w+", "reads of the VBIOS"),
        (r"(?:PRAMIN|BAR\d)\+\w+", "the card's memory through a window"),
        (r"(?:GSP|SEC2)\.NV_PFALCON_FALCON_DMATRF(?:CMD|MOFFS|FBOFFS)", "pieces of a program that a falcon fetches"),
        (r"(?:GSP|SEC2)\.NV_PFALCON_FALCON_(?:IMEM|DMEM)\w\(\d+\)", "words of a program that a falcon is given"),
        (r"NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE\w*", "invalidations of page tables"),
        (r"NV_PTIMER_TIME_\d", "the time"),
    )
)
_ACCESS = re.compile(r"(\S+) (=|is) (0x[0-9a-f]+)")
# of what comes in long runs, only the first values are kept
_UNCOMPARED = re.compile(
    r"\w+\+|.*\.NV_PFALCON_FALCON_(?:DMATRF(?:MOFFS|FBOFFS)|[ID]MEM)|.*_PTIMER_TIME_|.*_INVALIDATE"
)


def cut(log: Path, driver: str, folder: Path) -> None:
    """Write start and end of a driver, as logs of their own, into a folder."""
    for phase, remark in zip(PHASES, REMARKS[driver], strict=True):
        entries = split_log.shortened(split_log.cold_start(log, remark), BULK)
        head = [access_log.HEAD, f"# {phase} on virtual:{CHIP}", f"# {MADE[driver]}"]
        (folder / f"{driver}_{phase}.log").write_text("\n".join([*head, *entries, ""]), encoding="utf-8")


def bringup(phases: Mapping[str, Sequence[access_log.Entry]]) -> compare.Bringup:
    """Turn the entries of a start and an end into acts; `stop:` is before what belongs to the end."""
    found = compare.Bringup()
    for phase, entries in phases.items():
        before = "" if phase == "start" else f"{phase}:"
        for entry in entries:
            found.acts.append(f"{before}{entry.block} {entry.kind} {entry.text}")
            access = _ACCESS.fullmatch(entry.text) if entry.kind == "write" else None
            if access is not None and not _UNCOMPARED.match(access[1]):
                found.write(before + access[1], int(access[3], 16))
    return found


def other(driver: str, folder: Path = DATA) -> compare.Bringup:
    """Return what another driver does, from its logs."""
    return bringup({phase: access_log.read(folder / f"{driver}_{phase}.log")[0] for phase in PHASES})


def ours() -> compare.Bringup:
    """Open a virtual card with our driver, and close it."""
    card = nvidia_card(CHIP)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ours.log"
        with access_log.writing(path) as log:
            assert log is not None
            log.follow(card)
            log.mark(REMARKS["ringup"][0])
            with ringup.open(card.name, transport={"card": card}):
                log.mark(REMARKS["ringup"][1])
        remarks = zip(PHASES, REMARKS["ringup"], strict=True)
        return bringup({phase: split_log.cold_start(path, remark) for phase, remark in remarks})


def tables() -> dict[str, compare.Tables]:
    """Read the tables, one set for each other driver."""
    return {driver: compare.tables(TABLES, driver) for driver in OTHERS}


def paged(text: str, known: Mapping[str, compare.Tables]) -> str:
    """Return the page with the current tables. The steps are there once."""
    for driver in OTHERS:
        text = compare.paged(text, known[driver], driver, without=() if driver == OTHERS[0] else ("steps",))
    return text


def main(arguments: Sequence[str]) -> int:
    """Print the unexplained differences, write the page, or record."""
    if arguments[:1] == ["--record"]:
        cut(Path(arguments[2]), arguments[1], DATA)
        return 0
    known = tables()
    if "--page" in arguments:
        PAGE.write_text(paged(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
        return 0
    mine, status = ours(), 0
    for driver in OTHERS:
        sys.stdout.write(f"--- {driver}\n")
        status |= compare.report(known[driver], other(driver), mine)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
