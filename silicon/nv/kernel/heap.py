"""A heap of addresses: memory of the card, or virtual addresses."""

from __future__ import annotations

import bisect

from ringup.autogen.nv import status
from ringup.silicon.nv.rm.parts import RmError


class Heap:
    """Addresses from `start` to `end`, given out from the lowest. Neighbours that are given back become one again."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        # free ranges, in order: start and end
        self._free = [(start, end)]

    @property
    def free_bytes(self) -> int:
        """Bytes that are left."""
        return sum(end - start for start, end in self._free)

    def take(self, size_bytes: int, alignment: int) -> int:
        """Return the lowest free address of that alignment. Raises `RmError` (NO_MEMORY)."""
        for start, end in self._free:
            address = -(-start // alignment) * alignment
            if address + size_bytes <= end:
                self.take_at(address, size_bytes)
                return address
        raise RmError(status.NV_ERR_NO_MEMORY, f"{size_bytes:#x} bytes of {self.free_bytes:#x} that are free")

    def take_at(self, address: int, size_bytes: int) -> None:
        """Take a range that the caller chose. Raises `RmError` (NO_MEMORY) if some of it is not free."""
        place = bisect.bisect_right(self._free, (address, self.end)) - 1
        if place < 0 or not self._free[place][0] <= address < address + size_bytes <= self._free[place][1]:
            raise RmError(status.NV_ERR_NO_MEMORY, f"{size_bytes:#x} bytes at {address:#x} are not free")
        start, end = self._free[place]
        pieces = ((start, address), (address + size_bytes, end))
        self._free[place : place + 1] = [piece for piece in pieces if piece[0] < piece[1]]

    def give(self, address: int, size_bytes: int) -> None:
        """Take a range back."""
        bisect.insort(self._free, (address, address + size_bytes))
        joined: list[tuple[int, int]] = []
        for start, end in self._free:
            if joined and joined[-1][1] == start:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((start, end))
        self._free = joined
