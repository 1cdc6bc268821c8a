"""The two address spaces of a card, and the VRAM that both allocate from: VMID 0 for queue descriptors and firmware
processors, VMID 8 for users.
"""

from __future__ import annotations

from typing import Any

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.gmc.page_table import PageTables
from ringup.drivers.amd.gmc.pte import FORMATS
from ringup.drivers.buffer import Buffer
from ringup.drivers.memory.buffers import USER_END, USER_START, Memory
from ringup.drivers.memory.ranges import Ranges
from ringup.drivers.memory.vram import Vram
from ringup.drivers.transport.seam import Device

SYSTEM_VMID, USER_VMID = 0, 8  # 8: the first that amdgpu gives to user queues
SYSTEM_START, SYSTEM_END = 0x7FFF_0000_0000, 0x7FFF_4000_0000


class Spaces:
    """Memory of a card whose bytes `first` to `end` of VRAM are free. The constructor sets the hubs' page tables."""

    def __init__(
        self, device: Device, window: VramWindow, gmc: Gmc, hdp: Hdp, version: Version, first: int, end: int
    ) -> None:
        self.vram = Vram(first, end, window.visible_bytes)
        self._lost = False

        def flush_tlb(vmid: int) -> None:
            if not self._lost:
                gmc.flush_tlb(vmid)

        def flush_hdp() -> None:
            if not self._lost:
                hdp.flush()

        def tables() -> PageTables:
            return PageTables(
                window,
                self.vram.alloc_page,
                FORMATS[version[0]],
                free_page=self.vram.free,
                vram_base=gmc.fb_offset,
                barrier=flush_hdp,
            )

        def memory(vmid: int, start: int, end: int, name: str) -> Memory:
            return Memory(
                device,
                window,
                self.vram,
                tables(),
                vmid,
                flush_tlb=flush_tlb,
                flush_window=flush_hdp,
                va=Ranges(start, end - start, name),
            )

        self.system = memory(SYSTEM_VMID, SYSTEM_START, SYSTEM_END, "system addresses")
        self.user = memory(USER_VMID, USER_START, USER_END, "addresses of the card")
        hdp.flush()
        gmc.set_context(SYSTEM_VMID, self.system.tables.root_pa)
        gmc.set_context(USER_VMID, self.user.tables.root_pa)

    def firmware_page(self, where: Any, size_bytes: int, name: str) -> Buffer:
        """Return memory of system space that the CPU sees."""
        return self.system.alloc(size_bytes, where, visible=True, name=name, cached=False, executable=False)

    def close(self) -> None:
        """Free all buffers and tables."""
        self.user.close()
        self.system.close()

    def lose(self, how: str) -> None:
        """Free all memory of a card that was reset as a whole. Nothing is flushed; later uses of a buffer raise an
        error that says `how` it was lost.
        """
        if self._lost:
            return
        self._lost = True
        self.user.close(how)
        self.system.close(how)
