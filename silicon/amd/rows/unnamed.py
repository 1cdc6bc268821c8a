"""Dwords that a known driver asks for although no header of the chip names a register there.

What metal answers is not public. amdgpu reads these, or stores to them, on cards that work, and goes on whatever comes;
here they read 0 and stores are lost. A driver that uses such an answer has found nothing out.
"""

from __future__ import annotations

from typing import NamedTuple


class Unnamed(NamedTuple):
    """Dwords without a name: from `first` on, a register of `chip`, empty for the card's own.

    `to`: the last named register of the range, whose unnamed dwords are meant. `distance`: bytes behind `first`.
    """

    block: str
    first: str
    why: str
    to: str = ""
    distance: int = 0
    chip: str = ""


ROWS = (
    Unnamed(
        "gc", "CP_MQD_BASE_ADDR",
        "a queue is loaded by storing every dword of the range: amdgpu_amdkfd_gfx_v11.c, hqd_load_v11",
        to="CP_HQD_PQ_WPTR_HI",
    ),
    Unnamed(
        "gc", "GRBM_STATUS2",
        "SDMA 1's state is dumped at SDMA 0's distance, and not all of it is an engine's: sdma_v6_0.c, reg_list",
        distance=0x1800,
    ),
    *(
        Unnamed(
            "gc", name, "one list of the command processor's state for every chip: gfx_v11_0.c, gc_reg_list_11_0",
            chip="navi31",
        )
        for name in ("CP_MES_DEBUG_INTERRUPT_INSTR_PNTR", "GRBM_STATUS_SE3", "GRBM_STATUS_SE4", "GRBM_STATUS_SE5")
    ),
)  # fmt: skip
BASE_ZERO = 7 * 4
BASE_ZERO_WHY = (
    "BIOS_SCRATCH_7 is asked for before its base is known, with a base of 0: amdgpu_atombios.c, scratch_need_asic_init"
)
