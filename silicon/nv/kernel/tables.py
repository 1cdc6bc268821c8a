"""Page tables that the kernel's driver writes, in the format that `memory/gmmu.py` walks.

Source: NV_MMU_VER2_PDE, _DUAL_PDE and _PTE in open-gpu-doc, manuals/volta/gv100/dev_mmu.ref.txt; NV_MMU_VER3_* in
dev_mmu.h of gh100.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from ringup.silicon.nv.kernel.heap import Heap
from ringup.silicon.nv.memory.gmmu import BIG_SHIFT, HUGE_SHIFT, SMALL_SHIFT, Aperture, Directory, Gmmu

TABLE_BYTES = 4096
VALID, VOLATILE = 1 << 0, 1 << 3
# a directory entry's aperture: video memory
TABLE_IN_VIDEO = 1 << 1
BIG_PER_TABLE, SMALL_PER_TABLE = 1 << HUGE_SHIFT - BIG_SHIFT, 1 << HUGE_SHIFT - SMALL_SHIFT
# a run of pages of one size: virtual address, shift, count
Run = tuple[int, int, int]


def pages_of(gpu_va: int, address: int, size_bytes: int, smallest: int = SMALL_SHIFT) -> list[Run]:
    """Split a mapping into runs of the largest pages that both addresses allow."""
    runs: list[Run] = []
    end = gpu_va + size_bytes
    while gpu_va < end:
        shift = smallest
        for larger in (BIG_SHIFT, HUGE_SHIFT):
            if not (gpu_va | address) & (1 << larger) - 1 and end - gpu_va >= 1 << larger:
                shift = max(shift, larger)
        if runs and runs[-1][1] == shift:
            start, _, count = runs[-1]
            runs[-1] = start, shift, count + 1
        else:
            runs.append((gpu_va, shift, 1))
        gpu_va, address = gpu_va + (1 << shift), address + (1 << shift)
    return runs


class PageTables:
    """The page tables of one address space. They lie in memory of the card that `heap` gives."""

    def __init__(self, heap: Heap, write: Callable[[int, bytes], None], gmmu: Gmmu) -> None:
        self._heap, self._write, self._gmmu, self._format = heap, write, gmmu, gmmu.format
        *self._upper, self._last = self._format.levels
        # the tables, by level and by the address that they begin with, and the tables of big pages
        self._tables: dict[tuple[int, int], int] = {}
        self._big: dict[int, int] = {}
        self.root = self._new()

    @property
    def directory(self) -> Directory:
        """The root."""
        return Directory(Aperture.VIDEO, self.root)

    def free(self) -> None:
        """Give the tables back."""
        for table in (self.root, *self._tables.values(), *self._big.values()):
            self._heap.give(table, TABLE_BYTES)
        self._tables.clear()
        self._big.clear()
        self._flush()

    def map(self, gpu_va: int, address: int, size_bytes: int, aperture: Aperture, *, read_only: bool) -> list[Run]:
        """Map contiguous memory; return the runs of pages, for `clear`."""
        runs = pages_of(gpu_va, address, size_bytes)
        entry = VALID | aperture << 1 | (VOLATILE if aperture is not Aperture.VIDEO else 0)
        entry |= self._format.user | (1 << self._format.read_only if read_only else 0)
        field = self._format.video if aperture is Aperture.VIDEO else self._format.system
        for start, shift, count in runs:
            first = address + start - gpu_va
            self._put(start, shift, [entry | field.put(first + (n << shift)) for n in range(count)])
        self._flush()
        return runs

    def clear(self, runs: list[Run]) -> None:
        """Unmap runs of pages."""
        for start, shift, count in runs:
            self._put(start, shift, [0] * count)
        self._flush()

    def _flush(self) -> None:
        root = self.directory
        self._gmmu.invalidate(lambda one: one == root)

    def _new(self) -> int:
        table = self._heap.take(TABLE_BYTES, TABLE_BYTES)
        self._write(table, bytes(TABLE_BYTES))
        return table

    def _put(self, gpu_va: int, shift: int, entries: list[int]) -> None:
        """Write the entries of neighbouring pages."""
        for place, part in self._places(gpu_va, shift, entries):
            self._write(place, struct.pack(f"<{len(part)}Q", *part))

    def _places(self, gpu_va: int, shift: int, entries: list[int]) -> Iterator[tuple[int, list[int]]]:
        while entries:
            dual = self._dual(gpu_va)
            if shift == HUGE_SHIFT:
                yield dual, entries[:1]
                count = 1
            else:
                per_table = BIG_PER_TABLE if shift == BIG_SHIFT else SMALL_PER_TABLE
                index = gpu_va >> shift & per_table - 1
                count = min(len(entries), per_table - index)
                table = self._below(gpu_va, dual, big=shift == BIG_SHIFT)
                yield table + 8 * index, entries[:count]
            entries, gpu_va = entries[count:], gpu_va + (count << shift)

    def _dual(self, gpu_va: int) -> int:
        """Return where the entry of the lowest directory is; make the directories above it."""
        table = self.root
        for level, (shift, bits) in enumerate(self._upper):
            key = level, gpu_va >> shift
            below = self._tables.get(key)
            if below is None:
                below = self._tables[key] = self._new()
                at = table + 8 * (gpu_va >> shift & (1 << bits) - 1)
                self._write(at, struct.pack("<Q", TABLE_IN_VIDEO | self._format.video.put(below)))
            table = below
        shift, bits = self._last
        return table + 16 * (gpu_va >> shift & (1 << bits) - 1)

    def _below(self, gpu_va: int, dual: int, *, big: bool) -> int:
        """Return the table of big or of small pages below an entry of the lowest directory."""
        where, lowest = gpu_va >> HUGE_SHIFT, len(self._upper)
        table = self._big.get(where) if big else self._tables.get((lowest, where))
        if table is None:
            table = self._new()
            if big:
                self._big[where] = table
            else:
                self._tables[lowest, where] = table
        # a page of 2 MiB may have been there in between
        if big:
            self._write(dual, struct.pack("<Q", TABLE_IN_VIDEO | self._format.big.put(table)))
        else:
            self._write(dual + 8, struct.pack("<Q", TABLE_IN_VIDEO | self._format.video.put(table)))
        return table
