"""VRAM for page tables: whole pages, and pieces of pages for the tables of big pages."""

from __future__ import annotations

from ringup.drivers.memory.vram import Vram
from ringup.drivers.nv.mmu.formats import PAGE_BYTES

HOLDER = "page tables"


class TableMemory:
    """Gives page tables memory that the CPU's window shows, aligned to its size."""

    def __init__(self, vram: Vram) -> None:
        self._vram = vram
        # by size: free pieces
        self._free: dict[int, list[int]] = {}
        # by page: pieces of it that are taken
        self._taken: dict[int, int] = {}

    def alloc(self, size_bytes: int) -> int:
        """Return vram_pa of a page, or of a piece of one. Raises `OutOfMemory`."""
        if size_bytes >= PAGE_BYTES:
            return self._vram.alloc(size_bytes, visible=True, holder=HOLDER)
        free = self._free.setdefault(size_bytes, [])
        if not free:
            page = self._vram.alloc(PAGE_BYTES, visible=True, holder=HOLDER)
            free += range(page + PAGE_BYTES - size_bytes, page - 1, -size_bytes)
            self._taken[page] = 0
        vram_pa = free.pop()
        self._taken[vram_pa & -PAGE_BYTES] += 1
        return vram_pa

    def free(self, vram_pa: int, size_bytes: int) -> None:
        """Take memory back. A page goes with its last piece."""
        if size_bytes >= PAGE_BYTES:
            self._vram.free(vram_pa)
            return
        page, free = vram_pa & -PAGE_BYTES, self._free[size_bytes]
        free.append(vram_pa)
        self._taken[page] -= 1
        if not self._taken[page]:
            del self._taken[page]
            self._free[size_bytes] = [piece for piece in free if piece & -PAGE_BYTES != page]
            self._vram.free(page)
