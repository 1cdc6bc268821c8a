"""Host data path: what the host writes through BAR 0 waits here until it is flushed into VRAM.

Flush after the last byte that was written through the window and before the card learns of it. HDP 6 and 7 do not cache
reads, so there is nothing to invalidate (hdp_v6_0.c and hdp_v7_0.c have no `invalidate_hdp`, that of hdp_v4_0.c does
nothing for 4.4.2).

Source: amdgpu hdp_v6_0.c, hdp_v6_0_flush_hdp; hdp_v4_0.c; nbio_v4_3.c, nbio_v4_3_remap_hdp_registers; nbio_v7_9.c.
"""

from __future__ import annotations

from ringup.autogen.amd.hdp import HDP_NONSURFACE_BASE, HDP_NONSURFACE_BASE_HI
from ringup.autogen.amd.kfd import KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL, KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL
from ringup.autogen.amd.nbio import (
    BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL,
    BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL,
    RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE,
)
from ringup.drivers.amd.bus.registers import ONES, Block, Version

# byte offset in the register BAR that no block has: MMIO_REG_HOLE_OFFSET of nbio_v4_3.c, nbio_v7_9.c
HOLE = 0x7F000
HOLES: dict[Version, int] = {(7, 9, 0): 0x1A000}


class Hdp:
    """The host data path of one card. Needs the NBIO's registers and nothing else up."""

    def __init__(self, nbio: Block, hdp: Block | None = None) -> None:
        """`hdp`: its own registers, for a version whose registers the driver must set."""
        self._nbio, self._hdp = nbio, hdp
        self._hole = HOLES.get(nbio.version, HOLE)
        self.flushes = 0

    @property
    def flush_at(self) -> int:
        """Where a store flushes it, as a byte of the register BAR; for every process and card that reaches the BAR."""
        return self._hole + KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL

    def start(self) -> None:
        """Put the flush registers where every process that maps the BAR may use them."""
        for word, at in (
            (BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL, KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL),
            (BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL, KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL),
        ):
            # the address field holds bits 18:2 in place
            self._nbio.write(word.at(self._nbio.version)(self._hole + at))

    def place(self, vram: int) -> None:
        """Say where VRAM's first byte lies, by the firmware processors' addresses; for a block that must be told.
        Source: hdp_v4_0_init_registers.
        """
        hdp = self._hdp
        if hdp is None:
            return
        hdp.write(HDP_NONSURFACE_BASE.at(hdp.version)(vram >> 8 & ONES))
        hdp.write(HDP_NONSURFACE_BASE_HI.at(hdp.version)(vram >> 40))

    def request(self) -> None:
        """Request a flush before a doorbell: posted writes stay in order, so the flush reaches the card first."""
        self.flushes += 1
        self._nbio.registers.write(self.flush_at, 0)

    def flush(self) -> None:
        """Make everything written through BAR 0 so far visible to the card."""
        self.request()
        # ORDER: a read pushes the posted write; the flush register itself must not be read, some boards stall on it
        self._nbio.push(RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE)
