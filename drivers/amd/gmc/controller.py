"""The memory controller of a Radeon: both VM hubs, their VM contexts, TLB flushes and page faults.

MMHUB serves the security processor, SMU, interrupts and video. The graphics core's hub (GFXHUB) serves compute and
SDMA, and answers only after the graphics core has booted. Contexts are set on both hubs. Those that are set before the
graphics core is up reach its hub in `start_gfxhub`. Source: amdgpu gmc_v11_0.c, gfx_v11_0.c (gfx_v11_0_gfxhub_enable).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.amd.gc_cp import CP_DEBUG
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gmc import hub as gmc_hub
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB, Fault
from ringup.drivers.amd.gmc.hub import Apertures, Context, Hub
from ringup.drivers.amd.gmc.words import gfxhub_words, mmhub_words

# the levels below the root directory of a four-level table
WALK_DEPTH = 3


class Gmc:
    """Both hubs of one card. `flush_hdp` makes the CPU's writes to VRAM visible to the card.

    `scratch_pa` is an unused page of VRAM, `default_bus_addr` an unused page of host memory. The hubs redirect stray
    accesses to them.
    """

    def __init__(
        self,
        mmhub: Block,
        gc: Block,
        flush_hdp: Callable[[], None],
        *,
        vram_bytes: int,
        scratch_pa: int,
        default_bus_addr: int,
    ) -> None:
        self._mmhub = Hub(MMHUB, mmhub, mmhub_words(mmhub.version), semaphore=True)
        self._gfxhub = Hub(GFXHUB, gc, gfxhub_words(gc.version), semaphore=False)
        self._flush_hdp = flush_hdp
        self._contexts: dict[int, Context] = {}
        self._up: dict[str, Hub] = {}
        self.apertures = Apertures(self._mmhub.fb_base, self._mmhub.fb_offset, vram_bytes, scratch_pa, default_bus_addr)

    @property
    def fb_base(self) -> int:
        """The address of VRAM's first byte for VMID 0 and the firmware processors."""
        return self.apertures.fb_base

    @property
    def fb_offset(self) -> int:
        """The offset that page tables add to a vram_pa."""
        return self.apertures.fb_offset

    def start_mmhub(self) -> None:
        """Bring up MMHUB. No other block needs to be up."""
        self._start(self._mmhub)

    def start_gfxhub(self) -> None:
        """Bring up the graphics core's hub. The graphics core's firmware must have booted."""
        gc, words = self._gfxhub.block, self._gfxhub.words
        # both hubs must have VRAM at the same address
        if self._gfxhub.fb_base != self.fb_base:
            mm = self._mmhub
            gc.write(words.fb_location.at(gc.version)(int(mm.block.read(mm.words.fb_location))))
            gc.write(words.fb_location_top.at(gc.version)(int(mm.block.read(mm.words.fb_location_top))))
        self._start(self._gfxhub)
        # the command processor continues after a fault
        gc.update(CP_DEBUG, cpg_utcl1_error_halt_disable=1)

    def stop_gfxhub(self) -> None:
        """Switch the graphics core's hub off. May be called twice, and after a reset of the graphics core."""
        if self._up.pop(GFXHUB, None):
            self._gfxhub.stop()

    def stop(self) -> None:
        """Switch both hubs off. May be called twice."""
        self.stop_gfxhub()
        if self._up.pop(MMHUB, None):
            self._mmhub.stop()

    def _start(self, hub: Hub) -> None:
        hub.start(self.apertures)
        for vmid, context in self._contexts.items():
            hub.set_context(vmid, context, self.fb_offset)
        self._up[hub.name] = hub
        self._flush_hdp()
        for vmid in sorted({0, *self._contexts}):
            hub.flush(vmid)

    def set_context(
        self, vmid: int, root_pa: int, first_page: int = 0, last_page: int = gmc_hub.LAST_PAGE, depth: int = WALK_DEPTH
    ) -> None:
        """Set a VMID's page tables on every hub that is up, and on a hub that comes up later.

        `root_pa`: vram_pa of the root directory, whose first entry is for `first_page`. Pages have 4 KiB. `last_page`
        is included.
        """
        _check_vmid(vmid)
        if root_pa % 4096:
            raise ValueError(f"page tables of vmid {vmid} start on a page, not at {root_pa:#x}")
        if not 0 <= first_page <= last_page <= gmc_hub.LAST_PAGE:
            raise ValueError(f"pages {first_page:#x} to {last_page:#x} are no range of a 48 bit address space")
        self._contexts[vmid] = Context(root_pa, first_page, last_page, depth)
        for hub in self._up.values():
            hub.set_context(vmid, self._contexts[vmid], self.fb_offset)
        self.flush_tlb(vmid)

    def disable_context(self, vmid: int) -> None:
        """Remove a VMID's page tables."""
        _check_vmid(vmid)
        self._contexts.pop(vmid, None)
        for hub in self._up.values():
            hub.disable_context(vmid)
        self.flush_tlb(vmid)

    def flush_tlb(self, vmid: int) -> None:
        """Invalidate every cached translation of `vmid` on the hubs that are up.

        The CPU's writes to page tables in VRAM are flushed first.
        """
        _check_vmid(vmid)
        self._flush_hdp()
        for hub in self._up.values():
            hub.flush(vmid)

    def read_fault(self, hub: str) -> Fault | None:
        """Return the fault that `hub` ("mmhub", "gfxhub") holds, and clear it. None if there is none or the hub is
        down.
        """
        if hub not in (MMHUB, GFXHUB):
            raise ValueError(f"the hubs are {MMHUB} and {GFXHUB}, not {hub!r}")
        up = self._up.get(hub)
        return up.read_fault() if up else None


def _check_vmid(vmid: int) -> None:
    if not 0 <= vmid < gmc_hub.CONTEXTS:
        raise ValueError(f"a vmid is 0 to {gmc_hub.CONTEXTS - 1}, not {vmid}")
