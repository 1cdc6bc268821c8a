"""ATHUB: which process a VMID belongs to, for its own translations, of which the model has none; drivers write a number
and wait until it has arrived.

Source: amdgpu_amdkfd_gc_9_4_3.c (kgd_gfx_v9_4_3_set_pasid_vmid_mapping).
"""

from __future__ import annotations

from functools import partial

from ringup.silicon.amd.common.parts import Board
from ringup.silicon.common.cells import Cells

STATUS = "ATC_VMID_PASID_MAPPING_UPDATE_STATUS"
VMIDS = 16


class Athub:
    """The block of a card whose driver writes process ids to it."""

    def __init__(self, board: Board) -> None:
        self.cells = Cells(board.chip, "athub")
        board.space.attach(self.cells)
        for vmid in range(VMIDS):
            self.cells.on_write(f"ATC_VMID{vmid}_PASID_MAPPING", partial(self._arrived, vmid))

    def _arrived(self, vmid: int, value: int) -> None:
        self.cells[STATUS] |= 1 << vmid

    def reset(self) -> None:
        """Forget all numbers."""
        self.cells.reset()
