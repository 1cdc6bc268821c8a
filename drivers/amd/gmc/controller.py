"""The memory controller of a Radeon: both hubs, the VM contexts in them, TLB flushes and page faults.

MMHUB serves the security processor, SMU, interrupts and video; the graphics core's hub serves compute and SDMA and
answers only once the graphics core has booted. Contexts are set on both; what is set before the graphics core is up
reaches its hub in `start_gfxhub`. Source: amdgpu gmc_v11_0.c, gfx_v11_0.c (gfx_v11_0_gfxhub_enable).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.amd.gc_cp import CP_DEBUG
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gmc import hub as gmc_hub
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB, Fault
from ringup.drivers.amd.gmc.hub import Apertures, Context, Hub
from ringup.drivers.amd.gmc.words import gfxhub_words, mmhub_words

WALK_DEPTH = 3  # levels below the root directory of a four-level table


class Gmc:
    """Both hubs of one card. `flush_hdp` makes the CPU's writes to VRAM visible to the card.

    `scratch_pa` is an unused page of VRAM, `default_bus_addr` one of host memory: stray accesses go there.
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
        """VRAM's first byte as VMID 0 and the firmware processors see it."""
        return self.apertures.fb_base

    @property
    def fb_offset(self) -> int:
        """What page tables add to a vram_pa."""
        return self.apertures.fb_offset

    def start_mmhub(self) -> None:
        """Bring up MMHUB; needs nothing else up."""
        self._start(self._mmhub)

    def start_gfxhub(self) -> None:
        """Bring up the graphics core's hub; its firmware must have booted."""
        gc, words = self._gfxhub.block, self._gfxhub.words
        if self._gfxhub.fb_base != self.fb_base:  # both hubs must agree where VRAM is
            mm = self._mmhub
            gc.write(words.fb_location.at(gc.version)(int(mm.block.read(mm.words.fb_location))))
            gc.write(words.fb_location_top.at(gc.version)(int(mm.block.read(mm.words.fb_location_top))))
        self._start(self._gfxhub)
        gc.update(CP_DEBUG, cpg_utcl1_error_halt_disable=1)  # the command processor goes on after a fault

    def stop_gfxhub(self) -> None:
        """Switch the graphics core's hub off, or forget it when the core was reset; twice is harmless."""
        if self._up.pop(GFXHUB, None):
            self._gfxhub.stop()

    def stop(self) -> None:
        """Switch both hubs off; twice is harmless."""
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
        """Set a VMID's page tables on every hub: now, and on a hub that comes up later.

        `root_pa`: vram_pa of the root directory, whose first entry is for `first_page`; pages are 4 KiB, the last one
        included.
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
        """Drop every cached translation of `vmid` on the hubs that are up.

        The CPU's writes to page tables in VRAM are flushed first.
        """
        _check_vmid(vmid)
        self._flush_hdp()
        for hub in self._up.values():
            hub.flush(vmid)

    def read_fault(self, hub: str) -> Fault | None:
        """Return and clear the fault that `hub` ("mmhub", "gfxhub") holds; None without one, or if the hub is down."""
        if hub not in (MMHUB, GFXHUB):
            raise ValueError(f"the hubs are {MMHUB} and {GFXHUB}, not {hub!r}")
        up = self._up.get(hub)
        return up.read_fault() if up else None


def _check_vmid(vmid: int) -> None:
    if not 0 <= vmid < gmc_hub.CONTEXTS:
        raise ValueError(f"a vmid is 0 to {gmc_hub.CONTEXTS - 1}, not {vmid}")
