"""Memory by GPU virtual address, read from outside: the CPU walks the page tables in VRAM as a hub does.

For a card that another process drives or that a dead process left running. Only pages in VRAM can be read: pages in
host memory belonged to the process that mapped them. Nothing is written. Source: amdgpu gfxhub_v3_0.c,
gfxhub_v3_0_setup_vmid_config; amdgpu_vm_pt.c.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.drivers.amd.gmc.controller import WALK_DEPTH
from ringup.drivers.amd.gmc.faults import GFXHUB, MMHUB
from ringup.drivers.amd.gmc.hub import CONTEXTS, Hub
from ringup.drivers.amd.gmc.page_table import VA_END, Leaf, walk
from ringup.drivers.amd.gmc.pte import FORMATS, PAGE_BYTES
from ringup.drivers.amd.gmc.words import gfxhub_words, mmhub_words
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.memory.spaces import SYSTEM_VMID
from ringup.errors import DeviceFault, NotSupported

ROOT = (VA_END - 1) & ~(PAGE_BYTES - 1)  # bits of a table base that are its address


class GpuMemory:
    """The address space of one VMID of a card as found."""

    def __init__(self, bare: Bare, vmid: int) -> None:
        """Read the hub's registers. Raises `NotSupported` for a VMID without tables, a `ValueError` for one that no
        card has.
        """
        if not 0 <= vmid < CONTEXTS:
            raise ValueError(f"a vmid is 0 to {CONTEXTS - 1}, not {vmid}")
        self.vmid, self._window = vmid, bare.window
        self.chip = bare.ips.chip
        # every chip that is known has a row
        self._format = FORMATS[bare.ips.version("gc")[0]]
        hub = _hub(bare)
        self._fb_base, self._fb_offset = hub.fb_base, hub.fb_offset
        control, root = hub.context(vmid)
        self._root_pa = (root & ROOT) - self._fb_offset
        self._tables = bool(control.enable_context)
        if self._tables and control.page_table_depth != WALK_DEPTH:
            raise NotSupported(
                f"vmid {vmid} has tables of depth {control.page_table_depth}; those of depth {WALK_DEPTH} can be read"
            )
        if not self._tables and vmid != SYSTEM_VMID:
            raise NotSupported(
                f"vmid {vmid} has no page tables on {bare.device.name}: no driver has started it, or it has let go"
            )

    def find(self, gpu_va: int) -> Leaf | None:
        """Return the page that holds an address; None where nothing is mapped."""
        start = gpu_va - self._fb_base
        # the frame buffer aperture has no tables
        if self.vmid == SYSTEM_VMID and 0 <= start < self._window.size_bytes:
            return Leaf(self._fb_base, 0, self._window.size_bytes, PAGE_BYTES, "vram", True, True)
        if not self._tables or not 0 <= gpu_va < VA_END:
            return None
        return walk(self._window.read, self._format, self._root_pa, self._fb_offset, gpu_va, self._window.size_bytes)

    def pieces(self, gpu_va: int, size_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield (vram_pa, size_bytes) of the memory that a range maps to, in order.

        Raises `DeviceFault` where nothing is mapped, `NotSupported` where a page lies in host memory.
        """
        at, end = gpu_va, gpu_va + size_bytes
        doing = f"reaching {size_bytes} bytes at {gpu_va:#x} of vmid {self.vmid}"
        while at < end:
            leaf = self.find(at)
            if leaf is None:
                raise DeviceFault(f"{doing}: nothing is mapped at {at:#x}")
            if leaf.kind != "vram":
                raise NotSupported(f"{doing}: {at:#x} lies in host memory, of the process that mapped it")
            within = at - leaf.gpu_va
            size = min(end - at, leaf.size_bytes - within)
            yield leaf.address + within, size
            at += size

    def read(self, gpu_va: int, size_bytes: int) -> bytes:
        """Return bytes. Raises as `pieces` does."""
        return b"".join(self._window.read(*piece) for piece in self.pieces(gpu_va, size_bytes))


def _hub(bare: Bare) -> Hub:
    """Choose the hub to read: the graphics core's if it is known to be awake, else the other, which is never switched
    off.
    """
    if bare.core_awake:
        gc = bare.ips.cores[0]
        return Hub(GFXHUB, gc, gfxhub_words(gc.version))
    mmhub = bare.ips.block("mmhub")
    return Hub(MMHUB, mmhub, mmhub_words(mmhub.version))
