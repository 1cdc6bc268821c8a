"""Addresses that an IOMMU translates for one card: which are free, which are forbidden."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from ringup.drivers.transport.linux.dma import HUGE_PAGE, PAGE
from ringup.errors import OutOfMemory

# the addresses below stay unmapped: a card that uses an address of 0, which nobody set, faults
LOWEST = 1 << 20
Range = tuple[int, int]  # first byte, byte after the last


class Iovas:
    """The lowest free address first, so that cards with few address bits are served."""

    def __init__(self, usable: Iterable[Range], forbidden: Iterable[Range]) -> None:
        """`usable`: what the IOMMU takes. `forbidden`: bus addresses that a bridge on the way would send to a BAR
        instead of up to the IOMMU.
        """
        self._free: list[Range] = []
        for start, end in sorted(usable):
            self._free.append((max(-(-start // PAGE) * PAGE, LOWEST), end // PAGE * PAGE))
        self._free = [(start, end) for start, end in self._free if start < end]
        for start, end in forbidden:
            self._take(start // PAGE * PAGE, -(-end // PAGE) * PAGE)

    def alloc(self, size_bytes: int) -> int:
        """Take whole pages; large pieces lie at a multiple of 2 MiB, so that the IOMMU can use large pages. Raises
        `OutOfMemory`.
        """
        align = HUGE_PAGE if size_bytes >= HUGE_PAGE else PAGE
        for start, end in self._free:
            at = -(-start // align) * align
            if at + size_bytes <= end:
                self._take(at, at + size_bytes)
                return at
        largest = max((end - start for start, end in self._free), default=0)
        free = sum(end - start for start, end in self._free)
        raise OutOfMemory(
            f"addresses behind the IOMMU: {size_bytes:#x} bytes asked, {free:#x} free, the largest piece {largest:#x}"
        )

    def free(self, start: int, size_bytes: int) -> None:
        """Free a piece."""
        end = start + size_bytes
        index = bisect_left(self._free, (start, end))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index and self._free[index - 1][1] == start:
            start = self._free.pop(index - 1)[0]
        insort(self._free, (start, end))

    def _take(self, start: int, end: int) -> None:
        kept: list[Range] = []
        for low, high in self._free:
            kept += [piece for piece in ((low, min(high, start)), (max(low, end), high)) if piece[0] < piece[1]]
        self._free = kept
