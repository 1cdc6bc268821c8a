"""Registers that NVIDIA's published headers lack: a few bits of each are known from drivers in Linux.

Written by hand; the same shape as the generated facts. PLACES: byte offset in BAR 0, by chip.
"""

from __future__ import annotations

from ringup.autogen.layout import Field, Word


class NV_PMC_BOOT_42(Word):
    """Which chip it is. Source: Linux nova-core regs.rs."""

    architecture = Field(29, 24)
    implementation = Field(23, 20)
    major_revision = Field(19, 16)
    minor_revision = Field(15, 12)


class NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE(Word):
    """The size of memory before GA102: `lower_mag << lower_scale` MiB. Source: Linux nova-core fb/regs.rs."""

    lower_scale = Field(3, 0)
    lower_mag = Field(9, 4)
    ecc_mode_enabled = Field(30)


class NV_PDISP_VGA_WORKSPACE_BASE(Word):
    """Where the VBIOS has put its workspace, in 64 KiB. Source: Linux nova-core fb/regs.rs."""

    status_valid = Field(3)
    addr = Field(31, 8)


class NV_XAL_EP_BAR0_WINDOW(Word):
    """Which memory the window in BAR 0 shows, from GH100 on, in 64 KiB. Source: Linux nouveau, instmem of gh100."""

    base = Field(22, 0)


class NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_LO(Word):
    """Source: Linux nova-core fb/regs.rs. Writing it starts the flush."""

    adr = Field(31, 0)


class NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_HI(Word):
    """Source: Linux nova-core fb/regs.rs."""

    adr = Field(19, 0)


# the base of the first HSHUB's registers, for GB10x's flush page. Source: Linux nova-core fb/hal/gb100.rs
HSHUB0_BASE = 0x87_0000
OLDER: dict[type[Word], int] = {
    NV_PMC_BOOT_42: 0xA00,
    NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE: 0x10_0CE0,
    NV_PDISP_VGA_WORKSPACE_BASE: 0x62_5F04,
}
NEWER: dict[type[Word], int] = {NV_PMC_BOOT_42: 0xA00, NV_XAL_EP_BAR0_WINDOW: 0x10_FD40}
PLACES: dict[str, dict[type[Word], int | tuple[int, int, int]]] = {
    "tu102": {**OLDER},
    "ga100": {**OLDER},
    "ga102": {**OLDER},
    "ad102": {**OLDER},
    "gh100": {**NEWER},
    "gb100": {**NEWER},
    "gb202": {
        **NEWER,
        NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_LO: 0x8A_1D58,
        NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_HI: 0x8A_1D5C,
    },
}
CHANGES: dict[str, dict[type[Word], dict[str, tuple[int, ...] | None]]] = {}
