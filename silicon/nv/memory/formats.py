"""The formats of page tables: version 2 of Pascal to Ada, version 3 of Hopper and later. Their last three levels are
alike; an entry is a table's or a page's address with bits around it, which differ.

Sources: NV_MMU_VER2_* in open-gpu-doc, manuals/volta/gv100/dev_mmu.ref.txt; NV_MMU_VER3_* in dev_mmu.h of gh100,
gmmu_fmt_gp10x.c and kern_gmmu_fmt_gh10x.c of NVIDIA's open kernel modules.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Aperture(IntEnum):
    """Where a page lies, as PTEs encode it."""

    VIDEO = 0
    PEER = 1
    SYSTEM_COHERENT = 2
    SYSTEM_NONCOHERENT = 3


class Field(NamedTuple):
    """An address in an entry: its lowest bit, how many bits it has, and the unit as a power of two."""

    low: int
    bits: int
    unit: int

    def of(self, entry: int) -> int:
        """Return the address."""
        return (entry >> self.low & (1 << self.bits) - 1) << self.unit

    def put(self, address: int) -> int:
        """Return the bits of an entry that hold an address. Raises a `ValueError` for one that does not fit."""
        value = address >> self.unit
        if value << self.unit != address or value >> self.bits:
            raise ValueError(f"{address:#x} does not fit an entry's {self.bits} bits in units of 1 << {self.unit}")
        return value << self.low


class Format(NamedTuple):
    """One format. `levels`: shift and count of the bits of an address that each level takes, from the top; the last
    of them has entries for two tables. `video` and `system`: the address of a page or a table in each kind of memory;
    `big`: that of a table of big pages. `read_only`: the bit of a page's entry. `user`: the bits of one that any engine
    may reach with atomic accesses. `no_small`: what an invalid entry for a
    big page has in its bits 7:3 if no small page is valid there; None: small pages are always looked for.
    """

    levels: tuple[tuple[int, int], ...]
    video: Field
    system: Field
    big: Field
    read_only: int
    user: int
    no_small: int | None

    @property
    def address_bits(self) -> int:
        """How many bits a virtual address has."""
        shift, bits = self.levels[0]
        return shift + bits


FORMATS = {
    2: Format(((47, 2), (38, 9), (29, 9), (21, 8)), Field(8, 25, 12), Field(8, 46, 12), Field(4, 50, 8), 6, 0, None),
    # PCF in 7:3: bit 2 of it is read-only; NV_MMU_VER3_PTE_PCF_REGULAR_RW_ATOMIC_CACHED_ACD and _NO_VALID_4KB_PAGE. A
    # table in video memory has the same field as one elsewhere; of a page only 39:12 are for video memory
    3: Format(
        ((56, 1), (47, 9), (38, 9), (29, 9), (21, 8)),
        Field(12, 28, 12),
        Field(12, 40, 12),
        Field(8, 44, 8),
        5,
        0x10 << 3,
        3,
    ),
}
