"""Memory that a card reaches at a bus address and the host does not: a bridge's own, as `DmaMemory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringup.errors import NotSupported


def _nothing() -> None:
    """Free nothing: the memory was not allocated."""


class BusMemory:
    """`size_bytes` at `start` on the bus. `give_back` is called when it is freed."""

    contiguous = coherent = True

    def __init__(self, start: int, size_bytes: int, give_back: Callable[[], None] = _nothing) -> None:
        self._start, self.size_bytes, self.free = start, size_bytes, give_back

    @property
    def view(self) -> memoryview:
        """Raise `NotSupported`."""
        raise NotSupported("the memory is the bridge's, not the host's: the CPU sees none of it")

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return what the card puts on the bus to reach that byte."""
        if not 0 <= offset_bytes < self.size_bytes:
            raise ValueError(f"offset {offset_bytes:#x} lies outside {self.size_bytes:#x} bytes")
        return self._start + offset_bytes

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (bus_addr, size_bytes) of its one piece."""
        yield self._start, self.size_bytes
