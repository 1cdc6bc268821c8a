"""Which physical copy engines (PCEs) work for which logical ones (LCEs), the ones that channels name.

The copy engines of the graphics runlist (GRCEs) are LCEs too; one may share the PCEs of another LCE. Source:
ctrl2080ce.h and kernel_ce_ga100.c of NVIDIA's open kernel modules 535.261.03.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.autogen.nv import status
from ringup.silicon.nv.rm.boards.facts import Board, EngineKind
from ringup.silicon.nv.rm.parts import RmError

NONE = 0xF  # NV2080_CTRL_CE_UPDATE_PCE_LCE_MAPPINGS_INVALID_LCE


# dev_ce.h, NV_CE_GRCE_CONFIG: whether a GRCE shares, and with which LCE
SHARED, SHARED_LCE = 1 << 30, 0xF


class CopyMap:
    """The mapping that is in force."""

    def __init__(self, board: Board) -> None:
        self.pces, self.hub = board.copying.pces, board.copying.hub
        self.graphics = board.copying.graphics_lces
        self.lces = [engine.instance for engine in board.of_kind(EngineKind.CE)]
        self.lce_of = dict(board.copying.lce_of_pce)
        # of a GRCE: the LCE whose PCEs it shares
        self.shared = dict(zip(self.graphics, board.copying.shared, strict=True))

    def update(self, lce_of_pce: Sequence[int], grce_config: Sequence[int]) -> None:
        """Take a new mapping: the LCE of each PCE, and the configuration word of each GRCE."""
        wanted = {pce: lce for pce, lce in enumerate(lce_of_pce) if lce != NONE}
        for pce, lce in wanted.items():
            if not self.pces >> pce & 1 or lce not in self.lces:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"PCE {pce} for LCE {lce}")
        words = zip(self.graphics, grce_config, strict=False)
        sharing = {grce: word & SHARED_LCE for grce, word in words if word & SHARED}
        for grce, lce in sharing.items():
            if lce not in self.lces or lce in self.graphics:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"GRCE {grce} shares with LCE {lce}")
        self.lce_of, self.shared = wanted, sharing

    def pce_mask(self, lce: int) -> int:
        """Return the PCEs that work for an LCE."""
        lce = self.shared.get(lce, lce)
        return sum(1 << pce for pce, owner in self.lce_of.items() if owner == lce)

    @property
    def without(self) -> int:
        """The LCEs that no PCE works for."""
        return sum(1 << lce for lce in self.lces if not self.pce_mask(lce))

    def is_shared(self, lce: int) -> bool:
        """Return whether an LCE has its PCEs together with another."""
        return lce in self.shared or lce in self.shared.values()
