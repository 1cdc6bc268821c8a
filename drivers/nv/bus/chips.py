"""Which chip a card has, and what differs between chips before GSP runs: one row each.

Source: OGKM g_chips2halspec_nvoc.h (architectures and implementations); kernel_gsp_tu102.c, _ga100.c, _ga102.c,
_gh100.c; Linux nova-core gpu.rs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ringup.drivers.nv.bus.words import NV_PMC_BOOT_42
from ringup.errors import NotSupported


class Boot(Enum):
    """Who starts GSP: what runs on the security processor (SEC2), or the foundation security processor (FSP)."""

    BOOTER = "booter"
    FSP = "FSP"


@dataclass(frozen=True, slots=True)
class Family:
    """What chips of one family have in common.

    `facts`: the chip whose rows the generated modules have. `boot_rom`: the falcons' boot ROM checks signatures of what
    DMA has loaded; before, code is loaded by ports and the secure mode checks it. `frts`: the VBIOS' firmware FWSEC
    sets up the write-protected region; else the booter does all of it. `libos`: the major version of GSP's kernel.
    `display_fuse`: where the VBIOS may have put a workspace at memory's end. `rm_heap_bytes`, `non_wpr_heap_bytes`,
    `pmu_bytes`: what GSP-RM needs of memory. `cot_version`: FSP's chain-of-trust message; 0: there is no FSP.
    `frts_from_end_bytes`: where the region lies, for FSP. `mmu_lock`: the VBIOS may have locked a part of memory.
    """

    facts: str
    boot: Boot
    boot_rom: bool
    frts: bool
    libos: int
    rm_heap: str
    non_wpr_heap_bytes: int
    pmu_bytes: int = 0
    cot_version: int = 0
    frts_from_end_bytes: int = 0
    mmu_lock: bool = False


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip."""

    name: str
    family: Family
    architecture: int
    implementation: int

    @property
    def facts(self) -> str:
        """The chip whose rows the generated modules have."""
        return self.family.facts


MIB = 1 << 20
KIB = 1 << 10
TU, GH = "GSP_FW_HEAP_PARAM_BASE_RM_SIZE_TU10X", "GSP_FW_HEAP_PARAM_BASE_RM_SIZE_GH100"
# Source of the PMU's bytes (8 MiB + 16 MiB + 4 KiB, up to a multiple of 128 KiB) and of the heaps outside of the
# protected region: Linux nova-core fb/hal/*.rs, for release 570.144
PMU_BYTES = 24 * MIB + 128 * KIB
TURING = Family("tu102", Boot.BOOTER, False, True, 2, TU, MIB)
GA100 = Family("ga100", Boot.BOOTER, False, False, 2, TU, MIB, mmu_lock=True)
AMPERE = Family("ga102", Boot.BOOTER, True, True, 3, TU, MIB)
ADA = Family("ad102", Boot.BOOTER, True, True, 3, TU, MIB)
HOPPER = Family("gh100", Boot.FSP, True, True, 3, GH, 2 * MIB, 0, 1, 2 * MIB)
BLACKWELL_10 = Family("gb100", Boot.FSP, True, True, 3, GH, 2 * MIB, PMU_BYTES, 2, 2 * MIB + 128 * KIB)
BLACKWELL_20 = Family("gb202", Boot.FSP, True, True, 3, GH, 2 * MIB + 128 * KIB, PMU_BYTES, 2, 2 * MIB + 128 * KIB)

CHIPS = tuple(
    Chip(f"{prefix}{number}", family, architecture, implementation)
    for prefix, family, architecture, rows in (
        ("tu", TURING, 0x16, {102: 2, 104: 4, 106: 6, 116: 8, 117: 7}),
        ("ga", GA100, 0x17, {100: 0}),
        ("ga", AMPERE, 0x17, {102: 2, 103: 3, 104: 4, 106: 6, 107: 7}),
        ("gh", HOPPER, 0x18, {100: 0}),
        ("ad", ADA, 0x19, {102: 2, 103: 3, 104: 4, 106: 6, 107: 7}),
        ("gb", BLACKWELL_10, 0x1A, {100: 0, 102: 2}),
        ("gb", BLACKWELL_20, 0x1B, {202: 2, 203: 3, 205: 5, 206: 6, 207: 7}),
    )
    for number, implementation in rows.items()
)


def identify(boot: NV_PMC_BOOT_42, name: str) -> Chip:
    """Return the chip that `NV_PMC_BOOT_42` names; `name` is the card's, for the error.

    Raises `NotSupported` for a chip without a row, such as one before Turing, which has no GSP.
    """
    for chip in CHIPS:
        if (chip.architecture, chip.implementation) == (boot.architecture, boot.implementation):
            return chip
    known = ", ".join(chip.name for chip in CHIPS)
    raise NotSupported(
        f"{name}: NV_PMC_BOOT_42 reads {int(boot):#010x}: architecture {boot.architecture:#x}, implementation "
        f"{boot.implementation:#x}, which this driver does not know; it knows {known}"
    )
