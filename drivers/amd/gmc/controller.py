"""The memory controller of a Radeon: its VM hubs, their VM contexts, TLB flushes and page faults.

MMHUB serves the security processor, SMU, interrupts and video. The graphics core's hub (GFXHUB) serves compute and
SDMA, and answers only after the graphics core has booted. A card of several dies has a GFXHUB on each die of its
graphics core and an MMHUB, which serves the copy engines too, on each I/O die. Contexts are set on all hubs. Those that
are set before the graphics core is up reach its hubs in `start_gfxhub`. Source: amdgpu gmc_v11_0.c, gfx_v11_0.c
(gfx_v11_0_gfxhub_enable); gmc_v9_0.c; gfxhub_v1_2.c, gfxhub_v1_2_get_xgmi_info.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ringup.autogen.amd.gc_cp import CP_DEBUG
from ringup.autogen.amd.gc_vm_v9 import MC_VM_XGMI_LFB_CNTL, MC_VM_XGMI_LFB_SIZE
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gmc import hub as gmc_hub
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB, Fault
from ringup.drivers.amd.gmc.hub import Apertures, Context, Hub
from ringup.drivers.amd.gmc.words import gfxhub_words, mmhub_words
from ringup.firmware.stated import within

# the levels below the root directory of a four-level table
WALK_DEPTH = 3


# of a hive. Source: gfxhub_v1_2_get_xgmi_info
MAX_MEMBERS = 8


class Gmc:
    """All hubs of one card. `flush_hdp` makes the CPU's writes to VRAM visible to the card.

    `mmhubs`: the registers of each MMHUB; `cores`: those of each die of the graphics core. `scratch_pa` is an unused
    page of VRAM, `default_bus_addr` an unused page of host memory. The hubs redirect stray accesses to them.
    """

    def __init__(
        self,
        mmhubs: Sequence[Block],
        cores: Sequence[Block],
        flush_hdp: Callable[[], None],
        *,
        vram_bytes: int,
        scratch_pa: int,
        default_bus_addr: int,
    ) -> None:
        self._mmhubs = [Hub(MMHUB, block, mmhub_words(block.version), number) for number, block in _numbered(mmhubs)]
        self._gfxhubs = [Hub(GFXHUB, block, gfxhub_words(block.version), number) for number, block in _numbered(cores)]
        self._flush_hdp = flush_hdp
        self._contexts: dict[int, Context] = {}
        self._up: list[Hub] = []
        # where VRAM begins for every hub, which of a hive is the first member's
        self._base = self._mmhubs[0].fb_base
        self.apertures = _apertures(
            self._base,
            self._mmhubs[0],
            cores[0],
            vram_bytes=vram_bytes,
            scratch_pa=scratch_pa,
            default_bus_addr=default_bus_addr,
        )

    @property
    def fb_base(self) -> int:
        """The address of VRAM's first byte for VMID 0 and the firmware processors."""
        return self.apertures.fb_base

    @property
    def fb_offset(self) -> int:
        """The offset that page tables add to a vram_pa."""
        return self.apertures.fb_offset

    def start_mmhub(self) -> None:
        """Bring up every MMHUB. No other block needs to be up."""
        self._start(self._mmhubs)

    def start_gfxhub(self) -> None:
        """Bring up the graphics core's hubs. The graphics core's firmware must have booted."""
        mm = self._mmhubs[0]
        for hub in self._gfxhubs:
            gc, words = hub.block, hub.words
            # all hubs must have VRAM at the same address
            if hub.fb_base != self._base:
                gc.write(words.fb_location.at(gc.version)(int(mm.block.read(mm.words.fb_location))))
                gc.write(words.fb_location_top.at(gc.version)(int(mm.block.read(mm.words.fb_location_top))))
        self._start(self._gfxhubs)
        for hub in self._gfxhubs:
            gc = hub.block
            if "cpg_utcl1_error_halt_disable" in CP_DEBUG.at(gc.version).FIELDS:
                # the command processor continues after a fault
                gc.ensure(CP_DEBUG, cpg_utcl1_error_halt_disable=1)

    def stop_gfxhub(self) -> None:
        """Switch the graphics core's hubs off. May be called twice, and after a reset of the graphics core."""
        self._stop(GFXHUB)

    def stop(self) -> None:
        """Switch all hubs off. May be called twice."""
        self.stop_gfxhub()
        self._stop(MMHUB)

    def _stop(self, kind: str) -> None:
        going = [hub for hub in self._up if hub.kind == kind]
        self._up = [hub for hub in self._up if hub.kind != kind]
        for hub in going:
            hub.stop()

    def _start(self, hubs: Sequence[Hub]) -> None:
        for hub in hubs:
            hub.start(self.apertures)
            for vmid, context in self._contexts.items():
                hub.set_context(vmid, context, self.fb_offset)
            if hub not in self._up:
                self._up.append(hub)
        self._flush_hdp()
        for vmid in sorted({0, *self._contexts}):
            gmc_hub.flush(hubs, vmid)

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
        for hub in self._up:
            hub.set_context(vmid, self._contexts[vmid], self.fb_offset)
        self.flush_tlb(vmid)

    def disable_context(self, vmid: int) -> None:
        """Remove a VMID's page tables."""
        _check_vmid(vmid)
        self._contexts.pop(vmid, None)
        for hub in self._up:
            hub.disable_context(vmid)
        self.flush_tlb(vmid)

    def flush_tlb(self, vmid: int) -> None:
        """Invalidate every cached translation of `vmid` on the hubs that are up.

        The CPU's writes to page tables in VRAM are flushed first.
        """
        _check_vmid(vmid)
        self._flush_hdp()
        gmc_hub.flush(self._up, vmid)

    def read_fault(self, kind: str, page_va: int | None = None) -> Fault | None:
        """Return the first fault that the hubs of a kind ("mmhub", "gfxhub") hold, of several the one at `page_va`, and
        clear all. None if there is none or the hubs are down.
        """
        if kind not in (MMHUB, GFXHUB):
            raise ValueError(f"the hubs are {MMHUB} and {GFXHUB}, not {kind!r}")
        held = [fault for hub in self._up if hub.kind == kind and (fault := hub.read_fault()) is not None]
        return next((fault for fault in held if fault.gpu_va == page_va), held[0] if held else None)


def _numbered(blocks: Sequence[Block]) -> Iterator[tuple[int | None, Block]]:
    """Yield blocks with their numbers; a single one needs none."""
    for number, block in enumerate(blocks):
        yield (None if len(blocks) == 1 else number), block


def _apertures(
    base: int, mmhub: Hub, gc: Block, *, vram_bytes: int, scratch_pa: int, default_bus_addr: int
) -> Apertures:
    """Return where the hubs see VRAM. In a hive, the members' memories follow one another."""
    offset = mmhub.fb_offset
    if not mmhub.row.further:
        return Apertures(base, offset, vram_bytes, scratch_pa, default_bus_addr)
    control, size = gc.read(MC_VM_XGMI_LFB_CNTL), gc.read(MC_VM_XGMI_LFB_SIZE)
    members = int(control.pf_max_region) + 1
    if members == 1:
        return Apertures(base, offset, vram_bytes, scratch_pa, default_bus_addr)
    todo = "reset all cards of the hive"
    within(
        members,
        2,
        MAX_MEMBERS,
        "the number of cards that are linked (MC_VM_XGMI_LFB_CNTL.PF_MAX_REGION + 1)",
        todo=todo,
    )
    mine = within(int(control.pf_lfb_region), 0, members - 1, "the card's place among them (PF_LFB_REGION)", todo=todo)
    own = mine * (int(size.pf_lfb_size) << gmc_hub.LOCATION_SHIFT)
    top = int(mmhub.block.read(mmhub.words.fb_location_top).fb_top) + 1 << gmc_hub.LOCATION_SHIFT
    return Apertures(base + own, offset + own, vram_bytes, scratch_pa, default_bus_addr, hive=(base, top - 1))


def _check_vmid(vmid: int) -> None:
    if not 0 <= vmid < gmc_hub.CONTEXTS:
        raise ValueError(f"a vmid is 0 to {gmc_hub.CONTEXTS - 1}, not {vmid}")
