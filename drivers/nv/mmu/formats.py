"""The formats of the GPU's page tables: levels, directory entries and page entries of version 2 (Pascal to Ada) and
version 3 (Hopper on).

An entry of the last directory, PD0, has two words: for a table of 64 KiB pages ("big") and one of 4 KiB pages
("small") of the same 2 MiB; or the first word is a page of 2 MiB. The walker takes a big page where that is valid, and
else looks for a small one. Source: OGKM published/pascal/gp100/dev_mmu.h and hopper/gh100/dev_mmu.h, NV_MMU_VER2_* and
NV_MMU_VER3_*; kern_gmmu_fmt_gp10x.c and kern_gmmu_fmt_gh10x.c; nouveau vmmgp100.c, gp100_vmm_valid and gp100_vmm_pde;
vmmgh100.c, gh100_vmm_valid and gh100_vmm_pde.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ringup.autogen.layout import Field, Word
from ringup.autogen.nv import mmu_formats as facts
from ringup.autogen.nv.mmu_formats import NV_MMU_VER2_PDE, NV_MMU_VER3_PDE, NV_MMU_VER3_PTE

Aperture = Literal["vram", "peer", "host"]
PAGE_BYTES = 4096
BIG_PAGE_BYTES = 64 << 10
HUGE_PAGE_BYTES = 2 << 20
WORD_BYTES = 8
# Tables of big pages are aligned to their own size, all others to this.
TABLE_ALIGN_BYTES = 4096
# NV_MMU_VER2_PTE_APERTURE_* and NV_MMU_VER3_PTE_APERTURE_*
APERTURES: dict[Aperture, int] = {
    "vram": facts.NV_MMU_VER3_PTE_APERTURE_VIDEO_MEMORY,
    "peer": facts.NV_MMU_VER3_PTE_APERTURE_PEER_MEMORY,
    "host": facts.NV_MMU_VER3_PTE_APERTURE_SYSTEM_COHERENT_MEMORY,
}
MAX_PEER = 7
# The bits of a page's PCF field, by which NV_MMU_VER3_PTE_PCF_* enumerates its combinations.
PCF_UNCACHED, PCF_PRIVILEGE, PCF_READ_ONLY, PCF_NO_ATOMIC = 1, 2, 4, 8
PCF_ACCESS_COUNTERS_OFF = 16


class PTE_VER2(Word, width=64, overlaps=True):
    """A page of version 2. Headers newer than gp100/dev_mmu.h have only some of these fields."""

    valid = Field(0)
    aperture = Field(2, 1)
    vol = Field(3)
    encrypted = Field(4)
    privilege = Field(5)
    read_only = Field(6)
    atomic_disable = Field(7)
    # In pages of 4 KiB. Memory of this card and of a peer has a narrower field than the host's.
    address_vid = Field(32, 8)
    address_vid_peer = Field(35, 33)
    address_sys = Field(53, 8)
    kind = Field(63, 56)


class Level(NamedTuple):
    """One level of tables: the lowest bit of the address that it translates, and its entries.

    `page` tells whether an entry may be a page.
    """

    name: str
    low_bit: int
    entries: int
    words: int = 1
    page: bool = False

    @property
    def span_bytes(self) -> int:
        """The address range of one entry."""
        return 1 << self.low_bit

    @property
    def table_bytes(self) -> int:
        return self.entries * self.words * WORD_BYTES


PT_BIG, PT_SMALL = Level("PT_BIG", 16, 32, page=True), Level("PT_SMALL", 12, 512, page=True)


@dataclass(frozen=True)
class Flags:
    """How pages are accessed.

    `kind` is NV_MMU_PTE_KIND_*, the layout that the memory has. `volatile` keeps the GPU's L2 from caching; None is the
    rule for the aperture: pages of the host are not cached. `peer` selects the card of a peer aperture.
    `largest_page_bytes` limits the size of pages.
    """

    aperture: Aperture = "vram"
    kind: int = facts.NV_MMU_PTE_KIND_PITCH
    read_only: bool = False
    privileged: bool = False
    atomics: bool = True
    volatile: bool | None = None
    peer: int = 0
    largest_page_bytes: int = 1 << 63

    @property
    def uncached(self) -> bool:
        return self.aperture == "host" if self.volatile is None else self.volatile


@dataclass(frozen=True)
class Format:
    """One version of the tables.

    `directories` are the levels from the root to PD0, below which are `big` and `small`. `page` makes a page entry for
    address 0, `pointer` a directory entry for a table in VRAM at an address. An address is shifted right by
    `address_shift` in an entry. `address_bits` are the physical addresses' widths by aperture.
    """

    version: int
    directories: tuple[Level, ...]
    page: Callable[[Flags], int]
    pointer: Callable[[int], int]
    address_shift: int
    address_bits: dict[Aperture, int]
    kind_bits: int
    big: Level = PT_BIG
    small: Level = PT_SMALL

    @property
    def va_bits(self) -> int:
        """Bits of a virtual address."""
        root = self.directories[0]
        return root.low_bit + (root.entries - 1).bit_length()

    @property
    def page_sizes(self) -> tuple[int, ...]:
        """The sizes of pages in bytes, large ones first."""
        levels = (*self.directories, self.big, self.small)
        return tuple(level.span_bytes for level in levels if level.page)


def _page_2(flags: Flags) -> int:
    peer = flags.peer if flags.aperture == "peer" else 0
    entry = PTE_VER2(
        valid=1,
        aperture=APERTURES[flags.aperture],
        vol=flags.uncached,
        privilege=flags.privileged,
        read_only=flags.read_only,
        atomic_disable=not flags.atomics,
        address_vid_peer=peer,
        kind=flags.kind,
    )
    return int(entry)


def _pointer_2(vram_pa: int) -> int:
    # A table of big pages is aligned to 256 bytes only; its address has four more bits, at the same place.
    return int(NV_MMU_VER2_PDE(aperture=facts.NV_MMU_PDE_APERTURE_BIG_VIDEO_MEMORY)) | vram_pa >> 4


def _page_3(flags: Flags) -> int:
    pcf = PCF_ACCESS_COUNTERS_OFF
    for wanted, bit in (
        (flags.uncached, PCF_UNCACHED),
        (flags.privileged, PCF_PRIVILEGE),
        (flags.read_only, PCF_READ_ONLY),
        (not flags.atomics, PCF_NO_ATOMIC),
    ):
        pcf |= bit if wanted else 0
    peer = flags.peer if flags.aperture == "peer" else 0
    return int(NV_MMU_VER3_PTE(valid=1, aperture=APERTURES[flags.aperture], pcf=pcf, kind=flags.kind, peer_id=peer))


def _pointer_3(vram_pa: int) -> int:
    entry = NV_MMU_VER3_PDE(
        aperture=facts.NV_MMU_VER3_PDE_APERTURE_VIDEO_MEMORY,
        pcf=facts.NV_MMU_VER3_PDE_PCF_VALID_CACHED_ATS_NOT_ALLOWED,
    )
    return int(entry) | vram_pa


VER2 = Format(
    2,
    (Level("PD3", 47, 4), Level("PD2", 38, 512), Level("PD1", 29, 512), Level("PD0", 21, 256, words=2, page=True)),
    _page_2,
    _pointer_2,
    4,
    {"vram": 37, "peer": 37, "host": 58},
    8,
)
VER3 = Format(
    3,
    (
        Level("PD4", 56, 2),
        Level("PD3", 47, 512),
        Level("PD2", 38, 512),
        Level("PD1", 29, 512, page=True),
        Level("PD0", 21, 256, words=2, page=True),
    ),
    _page_3,
    _pointer_3,
    0,
    {"vram": 40, "peer": 52, "host": 52},
    4,
)
# Architecture, by the first letters of a chip's name: format.
FORMATS = {"tu": VER2, "ga": VER2, "ad": VER2, "gh": VER3, "gb": VER3}
