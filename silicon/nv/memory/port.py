"""Memory as an engine sees it: bytes by address, virtual or physical."""

from __future__ import annotations

from typing import Protocol

from ringup.silicon.nv.memory.gmmu import Aperture
from ringup.silicon.nv.memory.windows import Memory


class ByteMemory(Protocol):
    """Bytes by address."""

    def read(self, address: int, size_bytes: int, /) -> bytes:
        """Return bytes."""
        ...

    def write(self, address: int, data: bytes | memoryview, /) -> None:
        """Store bytes."""
        ...


class Physical:
    """One aperture of physical memory."""

    def __init__(self, memory: Memory, aperture: Aperture) -> None:
        self._memory, self._aperture = memory, aperture

    def read(self, address: int, size_bytes: int, /) -> bytes:
        """Return bytes; all ones where there is nothing."""
        return self._memory.read(self._aperture, address, size_bytes)

    def write(self, address: int, data: bytes | memoryview, /) -> None:
        """Store bytes."""
        self._memory.write(self._aperture, address, data)
