"""Dwords that a known driver accesses although no header of the chip names a register there.

UNKNOWN: what metal answers. amdgpu reads these, or writes them, on working cards, and ignores the result. Here they
read as 0 and writes are dropped, so a driver learns nothing from them.
"""

from __future__ import annotations

from typing import NamedTuple


class Unnamed(NamedTuple):
    """Dwords without a name, starting at `first`, a register of `chip` (empty: the card itself).

    `to`: the last named register of the range, whose unnamed dwords are meant. `distance`: bytes from `first` to the
    range. `radeon`: the driver that does so knows Radeons only.
    """

    block: str
    first: str
    why: str
    to: str = ""
    distance: int = 0
    chip: str = ""
    radeon: bool = False


ROWS = (
    Unnamed(
        "gc", "CP_MQD_BASE_ADDR",
        "a driver loads a queue by writing every dword of the range: amdgpu_amdkfd_gfx_v11.c, hqd_load_v11",
        to="CP_HQD_PQ_WPTR_HI",
    ),
    Unnamed(
        "gc", "GRBM_STATUS2",
        "a dump of SDMA 1's state uses SDMA 0's list plus a distance, and some of these are no SDMA registers: sdma_v6_0.c, reg_list",
        distance=0x1800, radeon=True,
    ),
    *(
        Unnamed(
            "gc", name, "a dump of the command processor's state uses one list for all chips: gfx_v11_0.c, gc_reg_list_11_0",
            chip="navi31", radeon=True,
        )
        for name in ("CP_MES_DEBUG_INTERRUPT_INSTR_PNTR", "GRBM_STATUS_SE3", "GRBM_STATUS_SE4", "GRBM_STATUS_SE5")
    ),
)  # fmt: skip
# GUESS: which bits: UMC, SDMA, GFX and MMHUB, by enum amdgpu_ras_block; 24: bad data is marked (poison)
RAS_CAPABILITIES = 0x0100_000F
RAS_CAPABILITY = Unnamed(
    "mp", "MP0_SMN_C2PMSG_32", "the bits say which memories of 13.0.6 report errors: psp_v13_0.c, get_ras_capability",
    distance=(127 - 32) * 4,
)  # fmt: skip
BASE_ZERO = 7 * 4
BASE_ZERO_WHY = (
    "a driver reads BIOS_SCRATCH_7 with base 0, before it knows the base: amdgpu_atombios.c, scratch_need_asic_init"
)
