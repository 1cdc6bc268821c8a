"""Buffers of a card that NVIDIA's kernel driver drives: the driver allocates memory, gives it addresses and maps it.

Each buffer is an object of memory, and an object that stands for a range of addresses one page longer, so that running
over its end is a fault. Source: NVIDIA open-gpu-kernel-modules: nvos.h (NV_MEMORY_ALLOCATION_PARAMS, NVOS32_ATTR…),
mem_mgr/virtual_mem.c, video_mem.c, system_mem.c, os_desc_mem.c.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm as nvos
from ringup.autogen.nv import rm_alloc
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_memory as rm
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.memory.access import Access
from ringup.drivers.memory.table import BufferTable, Usage, whole_size
from ringup.drivers.nv.nodes.objects import CardObjects
from ringup.drivers.nv.rm import facts
from ringup.drivers.transport.linux.dma import Anchor, callers_bytes
from ringup.drivers.transport.nvidia.calls import MappedMemory
from ringup.drivers.transport.nvidia.status import RmRefused
from ringup.drivers.transport.nvidia.system import Kind
from ringup.errors import DeviceLost, NotSupported, OutOfMemory, RingupError

LOG = logging.getLogger(__name__)
PAGE_BYTES = 4096
# pages of the card's memory: of 2 MiB, and of 64 KiB for what is smaller. The driver takes the same by itself.
# Source: OGKM 535.261.03 mem_mgr.c, memmgrDeterminePageSize
BIG_BYTES, HUGE_BYTES = 64 << 10, 2 << 20
PAGE_SIZES = {
    PAGE_BYTES: rm.NVOS32_ATTR_PAGE_SIZE_4KB,
    BIG_BYTES: rm.NVOS32_ATTR_PAGE_SIZE_BIG,
    HUGE_BYTES: rm.NVOS32_ATTR_PAGE_SIZE_HUGE,
}
KIB = 1024
# nvos.h, NVOS32_TYPE_IMAGE: memory of no special use
TYPE_IMAGE = 0
ALIGNED = rm.NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE | rm.NVOS32_ALLOC_FLAGS_MAP_NOT_REQUIRED

# host memory is cached by the CPU: the card's accesses look there. Without it they may find what memory held before.
# Nothing for the card's own memory. Source: OGKM 535.261.03 virt_mem_allocator_gm107.c, dmaAllocMapping_GM107;
# nv_gpu_ops.c ("Always enable snooping"); nvidia-push-init.c
SNOOPED = int(nvos.NVOS46_FLAGS(cache_snoop=nvos.NVOS46_FLAGS_CACHE_SNOOP_ENABLE))


@dataclass(slots=True)
class Held:
    """The memory of a buffer: the driver's handles of the memory and of its addresses, its mapping in this process, the
    caller's pages.
    """

    buffer: Buffer
    mapped_bytes: int
    memory: int = 0
    virtual: int = 0
    first_va: int = 0
    mapped: MappedMemory | None = None
    anchor: Anchor | None = None


class NoWindow:
    """The card's memory as the CPU sees it where no buffer is mapped: not at all."""

    def view(self, vram_pa: int, size_bytes: int) -> memoryview | None:
        """Return None."""
        return None

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Raise a `ValueError`."""
        raise ValueError("the kernel's driver shows the CPU only visible buffers: ask for one")

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Raise a `ValueError`."""
        self.read(vram_pa, len(data))


class NodesMemory:
    """The buffers of this process on one card."""

    def __init__(self, objects: CardObjects) -> None:
        self._objects, self._client, self._calls = objects, objects.client, objects.calls
        self._name = objects.path.name
        # called before buffers are made or freed; raises an error for a caller that may not
        self.admit: Callable[[], None] = lambda: None
        self.table: BufferTable[Held] = BufferTable()

    # --- buffers ----------------------------------------------------------------------------------------------------
    def alloc(
        self,
        size_bytes: int,
        where: Where = "vram",
        visible: bool = False,
        name: str = "",
        align: int | None = None,
        *,
        cached: bool | None = None,
    ) -> Buffer:
        """Return a buffer.

        `visible`: the CPU must see it; it always sees host memory. `align`: of gpu_va, a power of two. `cached`:
        whether the card's L2 may keep it, by default VRAM yes, host memory no; VRAM always is. Raises `OutOfMemory`.
        """
        self.admit()
        size_bytes = whole_size(size_bytes, name)
        if where not in ("vram", "host"):
            raise ValueError(f"a buffer lies in vram or host, not {where!r} ({name or 'unnamed'})")
        in_vram = where == "vram"
        page = PAGE_BYTES if not in_vram else HUGE_BYTES if size_bytes >= HUGE_BYTES else BIG_BYTES
        buffer = Buffer(self, 0, size_bytes, where, None, name)
        held = Held(buffer, -(-size_bytes // page) * page)
        doing = f"{size_bytes} bytes of {where} ({name or 'unnamed'})"
        window = self._objects.facts.bar1_bytes
        # the driver answers NV_ERR_INVALID_ARGUMENT, and its messages speak of a failed assertion: OGKM 535.261.03
        # gpu_vaspace.c, gvaspaceAlloc
        # a window of 0: the CPU reaches the card's memory by another way than a BAR (memmgrGetBAR1InfoForDevice)
        if in_vram and visible and 0 < window < held.mapped_bytes:
            raise OutOfMemory(
                f"{self._name}: {doing} that the CPU sees: it sees {window} bytes of the card's memory at once (BAR 1); "
                "ask for less, or for memory that is not visible"
            )
        with self._shortage_explained(where), undone_on_error(partial(self._release, held)):
            held.memory = self._memory(held.mapped_bytes, page, in_vram=in_vram, cached=bool(cached), doing=doing)
            self._map(held, page, max(page, align or 0), doing)
            if visible or not in_vram:
                held.mapped = self._calls.map_memory(
                    self._client.root,
                    self._objects.device,
                    held.memory,
                    held.mapped_bytes,
                    Kind.VRAM if in_vram else Kind.HOST,
                    doing=f"mapping {doing} into this process",
                )
        if held.mapped is not None and held.mapped.mapping.view is not None:
            buffer.view = held.mapped.mapping.view[:size_bytes]
        self.table.add(held.first_va, held)
        return buffer

    def pin(self, memory: memoryview, name: str = "") -> Buffer:
        """Let the card reach the caller's memory where it is, with all of the pages that it lies in. Freeing the buffer
        ends that; the memory stays the caller's.
        """
        self.admit()
        anchor = callers_bytes(memory)
        view = memory.cast("B")[:]
        # escape.c, RmCreateOsDescriptor: whole pages of the operating system
        offset = anchor.address % mmap.PAGESIZE
        whole = -(-(offset + anchor.size_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        buffer = Buffer(self, 0, anchor.size_bytes, "host", view, name)
        held = Held(buffer, whole, anchor=anchor)
        doing = f"{anchor.size_bytes} bytes of the caller ({name or 'unnamed'})"
        with undone_on_error(view.release), undone_on_error(partial(self._release, held)):
            handle = self._client.new_handle(self._objects.device)
            # before the call: it may be interrupted when the driver has made the object
            held.memory = handle
            self._calls.pin(
                self._client.root, self._objects.device, handle, anchor.address - offset, whole, f"pinning {doing}"
            )
            self._map(held, PAGE_BYTES, PAGE_BYTES, doing)
        self.table.add(held.first_va + offset, held)
        return buffer

    def reach(self, other: object, buffer: Buffer, name: str, *, outlives: bool = False) -> Buffer:
        """Raise `NotSupported`: the host carries bytes between this card and another."""
        raise NotSupported(
            f"{buffer!r} of another card: {self._name} stays with NVIDIA's driver, through which ringup maps no other "
            "card's memory; the host carries the bytes"
        )

    def write_protect(self, buffer: Buffer, writable: Iterable[tuple[int, int]] = ()) -> None:
        """Do nothing: the driver does not take the right to write from memory that has it."""

    def free(self, *buffers: Buffer) -> None:
        """Free buffers; no submitted work may use them any more.

        Raises `ValueError`, and frees nothing, for a buffer of another memory or one freed before.
        """
        self.admit()
        with Teardown(f"{self._name}: freeing", kept=RingupError) as teardown:
            for held in [self.table.held(buffer) for buffer in dict.fromkeys(buffers)]:
                teardown.attempt(partial(self._free, held, "freed"))

    def _free(self, held: Held, how: str) -> None:
        self.table.remove(held, how)
        try:
            self._release(held)
        except DeviceLost:
            LOG.info("%s is gone: no memory to free", self._name)

    def access(self, buffer: Buffer) -> Access:
        """Return the CPU's access to a visible buffer."""
        self.table.held(buffer)
        if buffer.view is None:
            raise ValueError(f"{buffer!r} is not visible: ask for a visible one")
        return Access(buffer.size_bytes, buffer.view, NoWindow(), 0)

    def handle(self, buffer: Buffer) -> int:
        """Return the driver's handle of a buffer's memory, for objects that use it."""
        return self.table.held(buffer).memory

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        return self.table.find(gpu_va)

    def describe(self, gpu_va: int) -> str:
        """Return in words where an address lies."""
        return self.table.describe(gpu_va)

    def stats(self) -> dict[str, Usage]:
        """Return this process's usage of the card's memory and of host memory; `free_bytes` is what all processes
        leave.
        """
        vram, host = self.table.usage["vram"], self.table.usage["host"]
        vram.free_bytes = self.free_vram_bytes()
        return {"vram": vram, "host": host}

    def free_vram_bytes(self) -> int:
        """Return how much of the card's memory no process has."""
        (free,) = facts.memory_sizes(self._client, self._objects.subdevice, fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE)
        return free * KIB

    def close(self, how: str = "freed") -> None:
        """Free every buffer. Twice is harmless."""
        with Teardown(f"{self._name}: freeing", logged=RingupError) as teardown:
            for held in self.table:
                teardown.attempt(partial(self._free, held, how))

    # --- the driver's objects ---------------------------------------------------------------------------------------
    def _memory(self, size_bytes: int, align: int, *, in_vram: bool, cached: bool, doing: str) -> int:
        if in_vram:
            attr = rm.NVOS32_ATTR(
                location=rm.NVOS32_ATTR_LOCATION_VIDMEM, physicality=rm.NVOS32_ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS
            )
            cacheable = rm.NVOS32_ATTR2_GPU_CACHEABLE_DEFAULT
        else:
            # cached by the CPU, which the card's accesses snoop
            attr = rm.NVOS32_ATTR(
                location=rm.NVOS32_ATTR_LOCATION_PCI,
                physicality=rm.NVOS32_ATTR_PHYSICALITY_NONCONTIGUOUS,
                coherency=rm.NVOS32_ATTR_COHERENCY_WRITE_BACK,
            )
            cacheable = rm.NVOS32_ATTR2_GPU_CACHEABLE_YES if cached else rm.NVOS32_ATTR2_GPU_CACHEABLE_NO
        params = self._client.make(
            rm_alloc.NV_MEMORY_ALLOCATION_PARAMS,
            owner=self._client.root,
            type=TYPE_IMAGE,
            flags=ALIGNED,
            attr=int(attr),
            attr2=int(rm.NVOS32_ATTR2(gpu_cacheable=cacheable)),
            size=size_bytes,
            alignment=align,
        )
        class_id = nv.NV01_MEMORY_LOCAL_USER if in_vram else nv.NV01_MEMORY_SYSTEM
        return self._client.alloc(self._objects.device, class_id, params, f"allocating {doing}")

    def _map(self, held: Held, page: int, align: int, doing: str) -> None:
        """Give memory of pages of so many bytes addresses, and one page more that nothing is mapped at.

        Without a page size the driver makes and clears page tables of all page sizes: of 4 KiB pages, 4 KiB of tables
        for each 2 MiB. Source: OGKM 535.261.03 gpu_vaspace.c, gvaspaceApplyDefaultAlignment and gvaspaceAlloc.
        """
        params = self._client.make(
            rm_alloc.NV_MEMORY_ALLOCATION_PARAMS,
            owner=self._client.root,
            type=TYPE_IMAGE,
            flags=ALIGNED | rm.NVOS32_ALLOC_FLAGS_VIRTUAL,
            attr=int(rm.NVOS32_ATTR(page_size=PAGE_SIZES[page])),
            size=held.mapped_bytes + page,
            alignment=align,
            hVASpace=self._objects.space,
        )
        held.virtual = self._client.alloc(
            self._objects.device, nv.NV50_MEMORY_VIRTUAL, params, f"finding addresses for {doing}"
        )
        self._calls.map_dma(
            self._client.root,
            self._objects.device,
            held.virtual,
            held.memory,
            held.mapped_bytes,
            flags=SNOOPED,
            doing=f"mapping {doing} for the card",
        )
        held.first_va = params.offset

    def _release(self, held: Held) -> None:
        """Give back what a buffer has of the driver, in the order opposite to its making."""
        with Teardown(f"{self._name}: freeing", kept=RingupError) as teardown:
            if held.mapped is not None:
                teardown.attempt(partial(self._calls.unmap_memory, held.mapped))
            # the driver unmaps what is mapped there
            for handle in (held.virtual, held.memory):
                if handle:
                    teardown.attempt(partial(self._client.free, handle))
            if held.anchor is not None:
                teardown.attempt(held.anchor.release)

    def _shortage_explained(self, where: Where) -> _Explained:
        return _Explained(self, where)

    def shortage(self, where: Where) -> str:
        """Say in words how much of a kind of memory there is."""
        usage = self.table.usage[where]
        if where == "host":
            return f"this process has {usage.used_bytes} bytes of host memory on the card in {usage.buffers} buffers"
        try:
            free = f", {self.free_vram_bytes()} are free"
        # the first error says more
        except RingupError:
            free = ""
        return (
            f"of {self._objects.facts.vram_bytes} bytes of VRAM this process has {usage.used_bytes} in {usage.buffers} "
            f"buffers{free}; other processes may have the rest; the CPU sees "
            f"{self._objects.facts.bar1_bytes} bytes of it at once, those of all processes together"
        )


class _Explained:
    """Adds to an `OutOfMemory` how much memory there is."""

    def __init__(self, memory: NodesMemory, where: Where) -> None:
        self._memory, self._where = memory, where

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OutOfMemory) and isinstance(error, RmRefused):
            raise OutOfMemory(f"{error}: {self._memory.shortage(self._where)}") from error
