"""Host memory that GSP and the engines that boot it read and write, until the card is stopped."""

from __future__ import annotations

from collections.abc import Iterator

from ringup.drivers.transport.seam import Device, DmaMemory
from ringup.errors import NotSupported

PAGE_BYTES = 4096


def pages(memory: DmaMemory) -> Iterator[int]:
    """Yield the address of every page, in order."""
    for start, size_bytes in memory.runs():
        yield from range(start, start + size_bytes, PAGE_BYTES)


class HostMemory:
    """What one start allocates. `free` frees all of it; twice is harmless."""

    def __init__(self, device: Device) -> None:
        """Raises `NotSupported` where the card does not reach the host's memory."""
        if device.polls_vram:
            raise NotSupported(f"{device.name}: GSP boots from the host's memory, which the card does not reach here")
        self._device = device
        self._kept: list[DmaMemory] = []

    def alloc(self, size_bytes: int, what: str, *, contiguous: bool = False) -> DmaMemory:
        """Return zeroed memory, whole pages. Raises `NotSupported` if it must be contiguous and is not."""
        memory = self._device.alloc_host(-(-size_bytes // PAGE_BYTES) * PAGE_BYTES)
        self._kept.append(memory)
        if contiguous and not memory.contiguous:
            raise NotSupported(
                f"{self._device.name}: {what} needs {size_bytes} bytes of contiguous memory, and this path gives none; "
                "use an IOMMU (VFIO), or reserve huge pages"
            )
        return memory

    def put(self, data: bytes | bytearray | memoryview, what: str, *, contiguous: bool = True) -> DmaMemory:
        """Return memory that holds `data`."""
        memory = self.alloc(len(data), what, contiguous=contiguous)
        memory.view[: len(data)] = data
        return memory

    def release(self, memory: DmaMemory) -> None:
        """Free one piece early."""
        self._kept.remove(memory)
        memory.free()

    def free(self) -> None:
        """Free all. ORDER: only when nothing on the card can write to it any more."""
        while self._kept:
            self._kept.pop().free()
