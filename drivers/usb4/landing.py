"""The check that bytes have arrived in the bridge's memory: a mark is sent after them, to the memory's start, and read
back.

This works because the bridge's engine does fills one after another, and the first page of the memory can be read.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.transport.wait import until
from ringup.drivers.usb4.bridge import SRAM_WINDOW
from ringup.drivers.usb4.port import Port

SECTOR_BYTES, MARK_BYTES = 512, 8
# TIMEOUT: ours; bytes are in the bridge's memory microseconds after they were sent
LAND_US, POLL_US = 1_000_000, 20


class Landing:
    """Marks of one port. `read(address, count)` reads XDATA."""

    def __init__(self, port: Port, read: Callable[[int, int], bytes]) -> None:
        self._port, self._read = port, read
        # so that no earlier process used the same marks
        self._marks = port.clock.now_us << 20

    def wait(self, fill: Callable[[bytes], None]) -> None:
        """Send a mark by `fill`, which stores a sector at the memory's start. Read until the mark is there. Raises
        `DeviceTimeout`.
        """
        self._marks += 1
        mark = self._marks.to_bytes(MARK_BYTES, "little")
        fill(mark * (SECTOR_BYTES // MARK_BYTES))
        until(
            lambda: self._read(SRAM_WINDOW, MARK_BYTES),
            lambda seen: seen == mark,
            clock=self._port.clock,
            timeout_us=LAND_US,
            poll_us=POLL_US,
            doing=f"{self._port.name}: filling the bridge's memory",
            describe=lambda seen: f"{seen.hex()} stood there",
            advice=f", {mark.hex()} was sent; close the card and open it again",
        )
