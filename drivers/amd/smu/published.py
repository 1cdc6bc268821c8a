"""The last table of metrics that a card's holder read, left in a page of its VRAM for every process that may read the
window.

The holder writes a header, the table, the header's counter again. A reader that sees two different counters, or an odd
one, read during a write and reads again. Readers use only the window: the power controller's mailbox serves one
process.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.smu.rows import ROWS
from ringup.drivers.amd.smu.tables import MAY_HAVE_MOVED, METRICS, Metrics, decode_metrics, metrics_bytes, sifted

PAGE_BYTES = 0x1000
MAGIC = b"SMUM"
# magic, counter, version of MP1, interface of its firmware (0: unknown), bytes of the table
HEADER = struct.Struct("<4sIBBBBI")
COUNTER = struct.Struct("<I")  # behind the table: the header's again
TRIES = 4  # a writer needs microseconds for a page


class Published(NamedTuple):
    """The metrics that a card's holder read last, for the `counter`th time."""

    counter: int
    metrics: Metrics
    doubts: tuple[str, ...] = ()


def publish(
    window: VramWindow, hdp: Hdp, page_pa: int, version: Version, table: bytes, counter: int, interface: int = 0
) -> None:
    """Leave `table`, the `counter`th one, in the page at `page_pa` of a card whose power controller is of `version`.

    `interface` is what that one's firmware speaks.
    """
    if HEADER.size + len(table) + COUNTER.size > PAGE_BYTES:
        raise ValueError(f"a page has no room for a table of {len(table)} bytes")
    # ORDER: the counter behind the table changes first and is right last; the flush between keeps the halves apart
    window.write(page_pa + HEADER.size + len(table), COUNTER.pack(0))
    hdp.flush()
    window.write(page_pa, HEADER.pack(MAGIC, counter, *version, interface & 0xFF, len(table)) + table)
    hdp.flush()
    window.write(page_pa + HEADER.size + len(table), COUNTER.pack(counter))
    hdp.flush()


def published(window: VramWindow, page_pa: int) -> Published | None:
    """Return the metrics that the holder left; None when there are none that can be read.

    Raises `ValueError` for a page outside the window: only the holder may use the index registers.
    """
    if page_pa + PAGE_BYTES > window.visible_bytes:
        raise ValueError(f"the page at {page_pa:#x} lies beyond the {window.visible_bytes:#x} bytes of the window")
    for _ in range(TRIES):
        page = window.read(page_pa, PAGE_BYTES)
        magic, counter, major, minor, revision, interface, size = HEADER.unpack_from(page)
        row = ROWS.get((major, minor, revision))
        if magic != MAGIC or row is None or size != metrics_bytes(row):
            return None
        (behind,) = COUNTER.unpack_from(page, HEADER.size + size)
        if counter and counter == behind:
            metrics, doubts = sifted(decode_metrics(row, page[HEADER.size : HEADER.size + size]), METRICS)
            if interface and interface != row.interface & 0xFF:
                speaks = f"the power controller's firmware speaks interface {interface:#x}"
                doubts = (f"{speaks}, the tables are of {row.interface:#x}: {MAY_HAVE_MOVED}", *doubts)
            return Published(counter, metrics, doubts)
    return None
