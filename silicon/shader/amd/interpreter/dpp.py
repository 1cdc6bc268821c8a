"""Data parallel primitives: the lane from which a vector instruction takes its first source, and the lanes it writes.

Source: RDNA3 ISA reference, "Data Parallel Processing". Its table of BC and FI and its text differ for a source beyond
the row. This module follows the text: BC alone decides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.decode import Dpp
    from ringup.silicon.shader.amd.interpreter.step import Lanes

ROW = 16
OUTSIDE = -1
# Of GCN: shifts and rotations of the whole wave by a lane, and the last lane of a row given to the next rows.
WAVE_SHL, WAVE_ROL, WAVE_SHR, WAVE_ROR, BCAST15, BCAST31 = 0x130, 0x134, 0x138, 0x13C, 0x142, 0x143
ACROSS_ROWS = frozenset((WAVE_SHL, WAVE_ROL, WAVE_SHR, WAVE_ROR, BCAST15, BCAST31))


def source_in_row(ctrl: int, lane: int) -> int:
    """Return the lane of its row that `lane` (0..15) reads, OUTSIDE if that is beyond the row."""
    count = ctrl & 0xF
    match ctrl >> 4:
        case 0x10:  # row_shl
            found = lane + count
        case 0x11:  # row_shr
            found = lane - count
        case 0x12:  # row_ror
            found = (lane - count) % ROW
        case 0x14:  # row_mirror, row_half_mirror
            found = lane ^ (7 if count else 15)
        case 0x15:  # row_share
            found = count
        case 0x16:  # row_xmask
            found = lane ^ count
        case _:  # quad_perm
            found = lane & ~3 | ctrl >> 2 * (lane & 3) & 3
    return found if 0 <= found < ROW else OUTSIDE


def source_in_wave(ctrl: int, lane: int, count: int) -> int:
    """Return the lane of the wave that `lane` reads, OUTSIDE if there is none.

    Source: CDNA3 ISA reference, "DPP"; LLVM AMDGPUUsage.
    """
    match ctrl:
        case 0x130:
            found = lane + 1
        case 0x134:
            found = (lane + 1) % count
        case 0x138:
            found = lane - 1
        case 0x13C:
            found = (lane - 1) % count
        case 0x142:
            found = lane // ROW * ROW - 1
        case _:
            found = 31 if lane > 31 else OUTSIDE
    return found if 0 <= found < count else OUTSIDE


@lru_cache(maxsize=512)
def _of_full_wave(dpp: Dpp, count: int) -> tuple[NDArray[np.int64], Lanes, Lanes]:
    """Return by lane of a wave of `count` active lanes: its source, whether it has one, and whether the masks let it be
    written.
    """
    lanes = np.arange(count)
    if dpp.lanes:
        sources = np.array([lane & ~7 | dpp.lanes[lane & 7] for lane in lanes.tolist()])
        valid = np.ones(count, np.bool_)
    elif dpp.ctrl in ACROSS_ROWS:
        within = np.array([source_in_wave(dpp.ctrl, lane, count) for lane in lanes.tolist()])
        valid = within != OUTSIDE
        sources = np.where(valid, within, 0)
    else:
        within = np.resize(np.array([source_in_row(dpp.ctrl, lane) for lane in range(ROW)]), count)
        valid = within != OUTSIDE
        sources = np.where(valid, within + (lanes & ~(ROW - 1)), 0)
    rows = (dpp.row_mask >> lanes // ROW & 1).astype(np.bool_)
    banks = (dpp.bank_mask >> (lanes // 4 & 3) & 1).astype(np.bool_)
    return sources, valid, rows & banks


class Permutation:
    """How one DPP dword permutes the lanes of a wave."""

    def __init__(self, dpp: Dpp, active: Lanes) -> None:
        self.sources, valid, self.written = _of_full_wave(dpp, active.size)
        if not dpp.fetch_inactive:
            valid = valid & active[self.sources]
        self.valid: Lanes = valid
        if not (dpp.bound_ctrl or dpp.lanes):
            self.written = self.written & valid

    def moved(self, values: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return values by the lane that reads them; 0 from a lane that may not be read."""
        return np.where(self.valid, values[self.sources], values.dtype.type(0))
