"""A path for firmware to the security processor through a bridge's memory: megabytes that would be slow through the
window into VRAM.

The processor reads through the memory hub, so a separate page table maps the bridge's memory for VMID 0 until the real
address space is made. amdgpu puts firmware into host memory and maps that for VMID 0 too. Source: amdgpu_psp.c,
psp_sw_init (fw_pri_bo), amdgpu_gart.c.
"""

from __future__ import annotations

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.gmc.page_table import PageTables
from ringup.drivers.amd.gmc.pte import FORMATS, PAGE_BYTES
from ringup.drivers.amd.memory.spaces import SYSTEM_END, SYSTEM_VMID
from ringup.drivers.transport.seam import Bulk

MIB = 1 << 20
TABLE_PAGES = 16
MIN_BYTES = 256 << 10  # of a bridge's memory that has room for the parts of firmware


class FirmwareDoor:
    """Up once something is put; the hub of the memory must be. `tables`: where in VRAM `TABLE_PAGES` pages are free for
    its page table.
    """

    # on a MiB, as the boot loader wants it, and away from what the address space gives out first
    gpu_va = SYSTEM_END - MIB

    def __init__(self, bulk: Bulk, window: VramWindow, gmc: Gmc, hdp: Hdp, gc_generation: int, tables: int) -> None:
        self._bulk, self._window, self._gmc, self._hdp = bulk, window, gmc, hdp
        self._format, self._tables = FORMATS[gc_generation], tables
        self._open = False
        # the first page is where the bridge shows that what was sent has come
        self.size_bytes = bulk.size_bytes - PAGE_BYTES

    def takes(self, size_bytes: int) -> bool:
        """Return whether a part takes this path."""
        return self._bulk.min_fill_bytes <= size_bytes <= self.size_bytes

    def put(self, data: bytes) -> int:
        """Copy a part into the bridge's memory, wait until it has arrived, and return its address for the security
        processor.
        """
        if not self._open:
            self._map()
        self._bulk.fill(0, bytes(PAGE_BYTES) + data)
        self._bulk.land()
        return self.gpu_va

    def shut(self) -> None:
        """Forget the page table: the card was reset, or VMID 0 has another."""
        self._open = False

    def _map(self) -> None:
        free = iter(range(self._tables, self._tables + TABLE_PAGES * PAGE_BYTES, PAGE_BYTES))
        tables = PageTables(
            self._window,
            lambda: next(free),
            self._format,
            free_page=lambda vram_pa: None,
            vram_base=self._gmc.fb_offset,
            barrier=self._hdp.flush,
        )
        runs = [(self._bulk.bus_addr + PAGE_BYTES, self.size_bytes)]
        tables.map(self.gpu_va, runs, "host", cached=False, writable=True, executable=True)
        self._hdp.flush()
        self._gmc.set_context(SYSTEM_VMID, tables.root_pa)
        self._open = True
