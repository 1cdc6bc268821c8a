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
from collections.abc import Iterable, Sequence
from pathlib import Path

from order_beside import compare
from order_beside.compare import Tables

import ringup
from ringup.silicon import card as virtual
from ringup.tools.cards.access_log import HEAD, AccessLog, Entry, read

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "test/data/amdgpu-ladder"
PAGE = ROOT / "docs/amdgpu-ladder.md"

_ACCESS = re.compile(r"(\S+) (=|is) (0x[0-9a-f]+)")
_BY_QUEUE = re.compile(r"gc\.(?:CP_HQD_|CP_MQD_|CP_(?:MEC_RS64|MES|PFP|ME)_PRGRM_CNTR_START|CPC_INT_CNTL)")
_BY_VMID = re.compile(r"gc\.(?:SH_MEM_|SPI_GDBG_PER_VMID_CNTL)")
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


def tables(path: Path = DATA / "order.toml") -> Tables:
    """Read the tables."""
    return compare.tables(path)


class Bringup(compare.Bringup):
    """One side of the comparison."""

    FLUSH = _HDP_FLUSH, _HDP_PUSH
    FLUSH_NAME = "HDP flush"


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


def main(arguments: Sequence[str]) -> int:
    """Print the unexplained differences, or write the page."""
    known = tables()
    if "--page" in arguments:
        PAGE.write_text(compare.paged(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
        return 0
    return compare.report(known, kernel(), ours())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
