"""A channel's address space: memory by virtual address, through the GMMU."""

from __future__ import annotations

from ringup.silicon.nv.memory.gmmu import Aperture, Directory, Gmmu, Missing
from ringup.silicon.nv.memory.windows import Memory


class PageFault(Exception):  # an event of the card
    """An access that no page table entry allows."""

    def __init__(self, gpu_va: int, write: bool, why: str) -> None:
        super().__init__(f"{'write to' if write else 'read of'} {gpu_va:#x}: {why}")
        self.gpu_va, self.write = gpu_va, write


class AddressSpace:
    """Memory as a channel sees it. Accesses are split where pages end, and complete up to the page that faults."""

    def __init__(self, memory: Memory, gmmu: Gmmu, directory: Directory) -> None:
        self._memory, self._gmmu, self._directory = memory, gmmu, directory

    def _find(self, gpu_va: int, *, write: bool) -> tuple[Aperture, int, int]:
        """Return where an address lies, and how many bytes follow in its page."""
        found = self._gmmu.find(self._directory, gpu_va, write=write)
        if isinstance(found, Missing):
            raise PageFault(gpu_va, write, found.kind.name)
        inside = gpu_va & (1 << found.shift) - 1
        return found.aperture, found.address + inside, (1 << found.shift) - inside

    def read(self, gpu_va: int, size_bytes: int) -> bytes:
        """Return bytes. Raises `PageFault`."""
        parts, end = [], gpu_va + size_bytes
        while gpu_va < end:
            aperture, address, left = self._find(gpu_va, write=False)
            count = min(left, end - gpu_va)
            parts.append(self._memory.read(aperture, address, count))
            gpu_va += count
        return b"".join(parts)

    def write(self, gpu_va: int, data: bytes | memoryview) -> None:
        """Store bytes. Raises `PageFault`."""
        at = 0
        while at < len(data):
            aperture, address, left = self._find(gpu_va + at, write=True)
            count = min(left, len(data) - at)
            self._memory.write(aperture, address, data[at : at + count])
            at += count
