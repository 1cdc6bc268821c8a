"""Registers that load firmware without the PSP: code RAMs, instruction cache addresses, the RLC's bootloader in the
IMU.

On production cards they are locked: only the PSP loads firmware. A write is logged and has no effect, so the engine
does not start. Source: AMDGPU_FW_LOAD_DIRECT and _RLC_BACKDOOR_AUTO in gfx_v11_0.c, imu_v11_0.c, sdma_v6_0.c,
mes_v11_0.c, which write these for pre-production chips. UNKNOWN: what a read returns; here 0.
"""

from __future__ import annotations

from functools import partial

from ringup.silicon.amd.common.parts import Board
from ringup.silicon.common.cells import Cells

DOORS = (
    "GFX_IMU_I_RAM_DATA", "GFX_IMU_D_RAM_DATA", "GFX_IMU_RLC_BOOTLOADER_SIZE", "RLC_GPM_UCODE_DATA", "RLC_PACE_UCODE_DATA",
    "RLC_GPU_IOV_UCODE_DATA", "CP_HYP_PFP_UCODE_DATA", "CP_PFP_UCODE_DATA", "CP_HYP_ME_UCODE_DATA", "CP_HYP_MEC1_UCODE_DATA",
    "CP_MEC_ME1_UCODE_DATA", "CP_HYP_MEC2_UCODE_DATA", "CP_MEC_ME2_UCODE_DATA", "CP_PFP_IC_BASE_LO", "CP_ME_IC_BASE_LO",
    "CP_CPC_IC_BASE_LO", "CP_MES_IC_BASE_LO", "SDMA0_UCODE_DATA", "SDMA0_BROADCAST_UCODE_DATA", "SDMA1_UCODE_DATA",
    "SDMA1_BROADCAST_UCODE_DATA", "SDMA_UCODE_DATA",
)  # fmt: skip


class DirectLoad:
    """All registers of one graphics core that load firmware directly."""

    def __init__(self, board: Board, cells: Cells) -> None:
        self._board, self._cells = board, cells
        self._reported: set[str] = set()
        for name in DOORS:
            if name in cells:
                cells.on_write(name, partial(self._refuse, name))

    def _refuse(self, name: str, value: int) -> None:
        self._cells[name] = 0
        if name not in self._reported:
            self._reported.add(name)
            self._board.log.note(
                "psp", "violation", "{}: firmware loaded without the PSP, which production cards refuse", name
            )

    def reset(self) -> None:
        """Log the next write again. The core resets the registers."""
        self._reported.clear()
