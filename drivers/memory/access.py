"""The CPU's access to a visible buffer by byte offset: plain memory where the path maps it, else the window's own
requests.

Sliced like a `memoryview`; what is read is a copy where there is no mapping. Quadwords are read and written in one
access.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Window(Protocol):
    """VRAM as the CPU sees it."""

    def view(self, vram_pa: int, size_bytes: int) -> memoryview | None:
        """Return the bytes as plain memory, None where the CPU does not see all of them so."""
        ...

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return bytes of VRAM."""
        ...

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Store bytes in VRAM."""
        ...


class Halves:
    """Stores a quadword where that takes two requests: the high half before the low one, which readers go by, and only
    when it is a new one.
    """

    __slots__ = ("_high", "_store")

    def __init__(self, store: Callable[[int, int], None], high: int = -1) -> None:
        """`store(at, half)`: a dword, 0 or 4 bytes behind the quadword's start. `high`: what the high half is known to
        be.
        """
        self._store, self._high = store, high

    def __call__(self, value: int) -> None:
        """Store."""
        high = value >> 32
        if high != self._high:
            self._store(4, high)
            self._high = high
        self._store(0, value & 0xFFFF_FFFF)


class Access:
    """`size_bytes` behind `view`, or from `vram_pa` on in `window` where there is no view."""

    def __init__(self, size_bytes: int, view: memoryview | None, window: Window, vram_pa: int) -> None:
        self.size_bytes, self.view = size_bytes, view
        self._window, self._vram_pa = window, vram_pa

    def __len__(self) -> int:
        return self.size_bytes

    def __getitem__(self, where: slice) -> bytes | memoryview:
        """Read the bytes of a slice without a step."""
        start, stop, _ = where.indices(self.size_bytes)
        if self.view is not None:
            return self.view[start:stop]
        return self._window.read(self._vram_pa + start, stop - start)

    def __setitem__(self, where: slice, data: bytes | bytearray | memoryview) -> None:
        """Store the bytes of a slice without a step."""
        start, stop, _ = where.indices(self.size_bytes)
        if stop - start != len(data):
            raise ValueError(f"{len(data)} bytes do not fill bytes {start} to {stop}")
        self.write(start, data)

    def part(self, at: int, size_bytes: int) -> Access:
        """Return the access to some of the bytes."""
        view = None if self.view is None else self.view[at : at + size_bytes]
        return Access(size_bytes, view, self._window, self._vram_pa + at)

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes."""
        if self.view is not None:
            self.view[at : at + len(data)] = data
        else:
            self._window.write(self._vram_pa + at, memoryview(data))

    def at(self, offset: int) -> Callable[[int], None]:
        """Return what stores a quadword at `offset`. Without a mapping its high half is stored first, and only when it
        has changed.
        """
        if self.view is None:
            place = self._vram_pa + offset
            return Halves(lambda at, half: self._window.write(place + at, half.to_bytes(4, "little")))
        cell = self.view[offset : offset + 8].cast("Q")

        def store(value: int) -> None:
            cell[0] = value

        return store

    def reader(self, offset: int) -> Callable[[], int]:
        """Return what loads the quadword at `offset`."""
        if self.view is None:
            return lambda: int.from_bytes(self._window.read(self._vram_pa + offset, 8), "little")
        cell = self.view[offset : offset + 8].cast("Q")
        return lambda: cell[0]
