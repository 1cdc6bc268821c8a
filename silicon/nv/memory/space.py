"""A channel's address space: memory by virtual address, through the GMMU."""

from __future__ import annotations

from ringup.silicon.nv.memory.gmmu import Aperture, Directory, Gmmu, Kind, Missing
from ringup.silicon.nv.memory.windows import Memory


class PageFault(Exception):  # an event of the card
    """An access that no page table entry allows."""

    def __init__(self, gpu_va: int, write: bool, kind: Kind) -> None:
        super().__init__(f"{'write to' if write else 'read of'} {gpu_va:#x}: {kind.name}")
        self.gpu_va, self.write, self.kind = gpu_va, write, kind


class AddressSpace:
    """Memory as a channel sees it. Accesses are split where pages end, and complete up to the page that faults.

    `directory` is the root of its page tables, which may change while the channel lives.
    """

    def __init__(self, memory: Memory, gmmu: Gmmu, directory: Directory) -> None:
        self.memory, self.gmmu, self.directory = memory, gmmu, directory

    def _find(self, gpu_va: int, *, write: bool) -> tuple[Aperture, int, int]:
        """Return where an address lies, and how many bytes follow in its page."""
        found = self.gmmu.find(self.directory, gpu_va, write=write)
        if isinstance(found, Missing):
            raise PageFault(gpu_va, write, found.kind)
        inside = gpu_va & (1 << found.shift) - 1
        return found.aperture, found.address + inside, (1 << found.shift) - inside

    def read(self, gpu_va: int, size_bytes: int, /) -> bytes:
        """Return bytes. Raises `PageFault`."""
        parts, end = [], gpu_va + size_bytes
        while gpu_va < end:
            aperture, address, left = self._find(gpu_va, write=False)
            count = min(left, end - gpu_va)
            parts.append(self.memory.read(aperture, address, count))
            gpu_va += count
        return b"".join(parts)

    def write(self, gpu_va: int, data: bytes | memoryview, /) -> None:
        """Store bytes. Raises `PageFault`."""
        at = 0
        while at < len(data):
            aperture, address, left = self._find(gpu_va + at, write=True)
            count = min(left, len(data) - at)
            self.memory.write(aperture, address, data[at : at + count])
            at += count
