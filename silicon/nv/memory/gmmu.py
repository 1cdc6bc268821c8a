"""The GMMU: page tables of five levels, six from Hopper on, pages of 4 KiB, 64 KiB, 2 MiB and 512 MiB, and a cache of
translations that software must invalidate. What entries hold is in `formats.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from ringup.silicon.nv.memory.formats import FORMATS, Aperture, Field

__all__ = ["Aperture", "Directory", "Gmmu", "Kind", "Mapping", "Missing", "PhysicalMemory"]


class Kind(IntEnum):
    """Why an access faults, NV_PFAULT_FAULT_TYPE. Source: dev_fault.h in autogen/nv/mmu.py."""

    PDE = 0x0
    PDE_SIZE = 0x1
    PTE = 0x2
    RO_VIOLATION = 0x6


SMALL_SHIFT, BIG_SHIFT, HUGE_SHIFT, GIANT_SHIFT = 12, 16, 21, 29


class Directory(NamedTuple):
    """The root of a set of page tables: the table of the first level."""

    aperture: Aperture
    address: int


class Mapping(NamedTuple):
    """A page: where it lies and how large it is."""

    aperture: Aperture
    address: int
    shift: int
    read_only: bool


class Missing(NamedTuple):
    """Nothing is mapped."""

    kind: Kind


class PhysicalMemory(Protocol):
    """Memory by aperture and physical address."""

    def read(self, aperture: Aperture, address: int, size_bytes: int) -> bytes:
        """Return bytes."""
        ...


class Gmmu:
    """Walks page tables, and keeps translations until they are invalidated. `version`: of their format."""

    def __init__(self, memory: PhysicalMemory, version: int = 2) -> None:
        self._memory, self.format = memory, FORMATS[version]
        self._cache: dict[Directory, dict[tuple[int, int], Mapping]] = {}
        # grows with each invalidation
        self.epoch = 0

    def invalidate(
        self,
        chosen: Callable[[Directory], bool] = lambda directory: True,
        *,
        first: int = 0,
        size_bytes: int = 1 << 64,
    ) -> None:
        """Drop the translations of chosen directories: all, or those of pages with any of these addresses."""
        self.epoch += 1
        end = first + size_bytes
        for directory in [one for one in self._cache if chosen(one)]:
            if first == 0 and end >= 1 << self.format.address_bits:
                del self._cache[directory]
                continue
            cached = self._cache[directory]
            for shift, page in [key for key in cached if key[1] << key[0] < end and first < key[1] + 1 << key[0]]:
                del cached[shift, page]

    def find(self, directory: Directory, gpu_va: int, *, write: bool) -> Mapping | Missing:
        """Return the page of an address. Only valid translations are cached."""
        if gpu_va >> self.format.address_bits:
            return Missing(Kind.PDE_SIZE)
        cached = self._cache.setdefault(directory, {})
        found: Mapping | Missing | None = None
        for shift in (SMALL_SHIFT, BIG_SHIFT, HUGE_SHIFT, GIANT_SHIFT):
            found = cached.get((shift, gpu_va >> shift))
            if found is not None:
                break
        else:
            found = self._walk(directory, gpu_va)
            if isinstance(found, Mapping):
                cached[found.shift, gpu_va >> found.shift] = found
        if write and isinstance(found, Mapping) and found.read_only:
            return Missing(Kind.RO_VIOLATION)
        return found

    def _walk(self, directory: Directory, gpu_va: int) -> Mapping | Missing:
        aperture, table = directory
        *upper, (last_shift, last_bits) = self.format.levels
        for shift, bits in upper:
            entry = self._entry(aperture, table + 8 * (gpu_va >> shift & (1 << bits) - 1))
            if entry & 1:
                # Ampere's pages of 512 MiB
                return self._page(entry, GIANT_SHIFT) if shift == GIANT_SHIFT else Missing(Kind.PDE_SIZE)
            if not entry >> 1 & 3:
                return Missing(Kind.PDE)
            aperture, table = self._below(entry)
        return self._last(aperture, table + 16 * (gpu_va >> last_shift & (1 << last_bits) - 1), gpu_va)

    def _last(self, aperture: Aperture, at: int, gpu_va: int) -> Mapping | Missing:
        """Walk the lowest level: a page of 2 MiB, or a table of big pages, of small pages, or both."""
        both = int.from_bytes(self._memory.read(aperture, at, 16), "little")
        big, small = both & (1 << 64) - 1, both >> 64
        if big & 1:
            return self._page(big, HUGE_SHIFT)
        if big >> 1 & 3:
            table = self.format.big.of(big)
            entry = self._entry(_table_aperture(big), table + 8 * (gpu_va >> BIG_SHIFT & 0x1F))
            if entry & 1:
                return self._page(entry, BIG_SHIFT)
            if entry >> 3 & 0x1F == self.format.no_small:
                return Missing(Kind.PTE)
        if small >> 1 & 3:
            aperture, table = self._below(small)
            entry = self._entry(aperture, table + 8 * (gpu_va >> SMALL_SHIFT & 0x1FF))
            if entry & 1:
                return self._page(entry, SMALL_SHIFT)
            return Missing(Kind.PTE)
        return Missing(Kind.PTE if big >> 1 & 3 else Kind.PDE)

    def _entry(self, aperture: Aperture, address: int) -> int:
        return int.from_bytes(self._memory.read(aperture, address, 8), "little")

    def _field(self, aperture: Aperture) -> Field:
        return self.format.video if aperture is Aperture.VIDEO else self.format.system

    def _below(self, entry: int) -> tuple[Aperture, int]:
        aperture = _table_aperture(entry)
        return aperture, self._field(aperture).of(entry)

    def _page(self, entry: int, shift: int) -> Mapping:
        aperture = Aperture(entry >> 1 & 3)
        address = self._field(aperture).of(entry)
        return Mapping(aperture, address >> shift << shift, shift, bool(entry >> self.format.read_only & 1))


def _table_aperture(entry: int) -> Aperture:
    """Return where a directory entry's table lies: 1 is video memory there, and 0 means that there is none."""
    value = entry >> 1 & 3
    return Aperture.VIDEO if value == 1 else Aperture(value)
