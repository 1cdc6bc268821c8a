"""Buffers of a Radeon that amdgpu drives: the kernel allocates and maps them, the addresses are chosen here.

Source: Linux amdkfd kfd_chardev.c (alloc_memory_of_gpu, map_memory_to_gpu); amdgpu amdgpu_amdkfd_gpuvm.c
(amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu: what the flags mean), gmc_v11_0.c (gmc_v11_0_get_vm_pte: how they cache).
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ringup.autogen.amd import kfd
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.memory.access import Access
from ringup.drivers.memory.buffers import GIANT_BYTES, USER_END, USER_START
from ringup.drivers.memory.ranges import Ranges, natural_align
from ringup.drivers.memory.table import BufferTable, Usage, whole_size
from ringup.drivers.transport.kfd.device import KfdDevice
from ringup.drivers.transport.linux.dma import Anchor, callers_bytes
from ringup.drivers.transport.linux.mapping import give_up, reserve
from ringup.errors import DeviceLost, NotSupported, OutOfMemory, RingupError, TransportError

LOG = logging.getLogger(__name__)
PAGE_BYTES = 4096
# left unmapped behind every buffer: running over its end is a fault
GUARD_BYTES = PAGE_BYTES
COMMON = kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
# the card's L2 keeps nothing of it
UNCACHED = kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
PEER_ADVICE = (
    "cards reach each other's VRAM through amdkfd if the kernel is built with HSA_AMD_P2P and PCI_P2PDMA, the BARs show all of VRAM, "
    "and the kernel knows that what lies between passes requests on"
)
PLACES = {"vram": kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM, "host": kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT}


@dataclass(slots=True)
class Held:
    """The memory of a buffer: the kernel's number for it, its mapping in this process, the caller's pages.

    `flags`: as the kernel was asked for it. `lent`: it is another card's, mapped for this one at the address that it
    has there. `outlives`: then it becomes this card's when the other one frees it. `first_va`: where its first page
    lies, if the buffer begins inside the page. `shared`: its pages are the process's own, at the CPU's address.
    """

    buffer: Buffer
    mapped_bytes: int
    handle: int = 0
    mapping: mmap.mmap | None = None
    anchor: Anchor | None = None
    lent: bool = False
    outlives: bool = False
    first_va: int = 0
    flags: int = 0
    shared: bool = False


class NoWindow:
    """VRAM as the CPU sees it where no buffer is mapped: not at all."""

    def view(self, vram_pa: int, size_bytes: int) -> memoryview | None:
        """Return None."""
        return None

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Raise a `ValueError`."""
        raise ValueError("amdgpu shows the CPU only visible buffers: ask for one")

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Raise a `ValueError`."""
        self.read(vram_pa, len(data))


class KfdMemory:
    """The buffers of this process on one card. `large_bar`: the CPU can see all of VRAM."""

    def __init__(self, device: KfdDevice, vram_bytes: int, *, large_bar: bool) -> None:
        apertures = device.gpu.apertures
        start, end = max(USER_START, apertures.gpuvm_base), min(USER_END, apertures.gpuvm_limit + 1)
        size = end // PAGE_BYTES * PAGE_BYTES - start
        # one for all cards of the process: memory has the same address for every card
        known = device.addresses.get((start, size))
        self.va = known if isinstance(known, Ranges) else Ranges(start, size, "addresses of amdkfd's cards")
        device.addresses[start, size] = self.va
        self._device, self._vram_bytes, self._large_bar = device, vram_bytes, large_bar
        # called before buffers are made or freed; raises an error for a caller that may not
        self.admit: Callable[[], None] = lambda: None
        self.table: BufferTable[Held] = BufferTable()
        # by buffer: where other cards have mapped it
        self._lent: dict[Buffer, list[tuple[KfdMemory, Buffer]]] = {}
        # buffers of visible VRAM, by address: what the host wrote there waits in the host data path
        self._visible_vram: dict[int, mmap.mmap] = {}

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
        """Return a buffer. The kernel clears it.

        `visible`: the CPU must see it; it always sees host memory. `align`: of gpu_va, a power of two. `cached`:
        whether the card's L2 may keep it, by default VRAM yes, host memory no. Raises `OutOfMemory`, and `NotSupported`
        for visible VRAM where the BAR does not show all of it.
        """
        self.admit()
        size_bytes = whole_size(size_bytes, name)
        if where not in PLACES:
            raise ValueError(f"a buffer lies in vram or host, not {where!r} ({name or 'unnamed'})")
        seen = visible or where == "host"
        if where == "vram" and visible and not self._large_bar:
            raise NotSupported(
                f"{name or 'a buffer'} of VRAM that the CPU sees: the card's BAR shows a part of VRAM, and amdkfd then gives none of it; "
                'switch resizable BAR on in the firmware set-up, or use where="host"'
            )
        cached = where == "vram" if cached is None else cached
        flags = PLACES[where] | COMMON | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | (0 if cached else UNCACHED)
        if seen:
            flags |= kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC
        buffer = Buffer(self, 0, size_bytes, where, None, name)
        held = Held(buffer, size_bytes + -size_bytes % PAGE_BYTES)
        self._take(held, flags, align, seen=seen)
        if seen:
            assert held.mapping is not None  # `_take` mapped it
            buffer.view = memoryview(held.mapping)[:size_bytes]
        if where == "vram" and held.mapping is not None:
            self._visible_vram[buffer.gpu_va] = held.mapping
            # its writes are combined; doorbells drain them
            self._device.combining.pending = self._device.combining.mapped = True
        return buffer

    def pin(self, memory: memoryview, name: str = "") -> Buffer:
        """Let the card reach the caller's memory where it is, with all of the pages that it lies in. Freeing the buffer
        ends that; the memory stays the caller's. The card sees it at the CPU's address where that is free.
        """
        self.admit()
        anchor = callers_bytes(memory)
        view = memory.cast("B")[:]
        offset = anchor.address % PAGE_BYTES
        buffer = Buffer(self, 0, anchor.size_bytes, "host", view, name)
        held = Held(buffer, -(-(offset + anchor.size_bytes) // PAGE_BYTES) * PAGE_BYTES, anchor=anchor)
        flags = kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | COMMON | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | UNCACHED
        with undone_on_error(anchor.release), undone_on_error(view.release):
            self._take(held, flags, None, seen=False)
        return buffer

    def share(self, memory: memoryview, name: str = "") -> Buffer:
        """Let the card reach the caller's memory at the CPU's address, with all of the pages that it lies in, wherever
        the kernel moves them.

        QUIRK: a card keeps what it was given until the process unmaps the pages, also when the buffer is freed: if it
        is told that the card needs them no longer, the kernel leaves the card's mapping, and forgets to take it away
        when the pages go. Source: kfd_svm.c, svm_range_set_attr ("unmap ranges from GPU that lost access"),
        svm_range_unmap_from_gpus.
        """
        self.admit()
        anchor = callers_bytes(memory)
        view = memory.cast("B")[:]
        buffer = Buffer(self, 0, anchor.size_bytes, "host", view, name)
        offset = anchor.address % PAGE_BYTES
        start, size = anchor.address - offset, offset + anchor.size_bytes
        held = Held(buffer, size + -size % PAGE_BYTES, anchor=anchor, shared=True)
        with undone_on_error(anchor.release), undone_on_error(view.release):
            if self.table.find(anchor.address) is not None:
                raise ValueError(f"the card reaches this memory already: it is {self.describe(anchor.address)}")
            doing = f"sharing {size} bytes ({name or 'unnamed'})"
            self._device.calls.share(self._device.gpu_id, start, held.mapped_bytes, doing)
        # what shares a page with others is taken by them already
        with suppress(ValueError):
            self.va.reserve(start, held.mapped_bytes, name)
        self.table.add(anchor.address, held)
        return buffer

    def reach(self, other: object, buffer: Buffer, name: str, *, outlives: bool = False) -> Buffer:
        """Map a buffer of another card of this process for this one. It is freed with `buffer` at the latest, unless it
        is host memory that `outlives` it: that becomes this card's then.

        Raises `NotSupported` where the kernel does not map it.
        """
        self.admit()
        if not isinstance(other, KfdMemory) or other is self:
            raise NotSupported(f"{buffer!r} is not of another card that stays with amdgpu, as {self._device.name}")
        held, device = other.table.held(buffer), self._device
        if held.shared:
            raise NotSupported(f"{buffer!r} is the process's own memory: {device.name} reaches it by its own `share`")
        if held.lent or other.va is not self.va:
            raise NotSupported(f"{buffer!r} has no address that is free for {device.name} too")
        doing = f"{device.name}: mapping {name}"
        try:
            device.calls.map(held.handle, [device.gpu_id], doing)
        except (DeviceLost, OutOfMemory):
            raise
        except RingupError as error:
            raise NotSupported(f"{doing}: {_refusal(error)}: {PEER_ADVICE}") from error
        mapped = Buffer(self, 0, buffer.size_bytes, "host", None, name)
        outlives = outlives and buffer.where == "host"
        self.table.add(buffer.gpu_va, Held(mapped, held.mapped_bytes, held.handle, lent=True, outlives=outlives))
        users = [(memory, one) for memory, one in other._lent.get(buffer, ()) if not one.freed]
        other._lent[buffer] = [*users, (self, mapped)]
        return mapped

    def export(self, buffer: Buffer) -> int:
        """Return a new file descriptor of a buffer's memory."""
        held = self.table.held(buffer)
        if held.lent:
            raise ValueError(f"{buffer!r} is another card's: export it there")
        if held.shared:
            raise ValueError(f"{buffer!r} is the process's own memory, which has no file descriptor")
        return self._device.calls.export_dmabuf(held.handle, f"exporting {buffer.name or 'memory'}")

    def import_memory(self, node: int, name: str) -> Buffer:
        """Map the memory behind a file descriptor that another process exported."""
        self.admit()
        device, calls = self._device, self._device.calls
        if not isinstance(node, int) or node < 0:
            raise ValueError(f"memory is imported from a file descriptor, not from {node!r}")
        doing = f"importing {name or 'memory'}"
        size, flags = calls.dmabuf(node, doing)
        buffer = Buffer(self, 0, size, "vram" if flags & PLACES["vram"] else "host", None, name)
        held = Held(buffer, size + -size % PAGE_BYTES)
        gpu_va, _ = self._address(held, None, seen=False)
        with undone_on_error(partial(self.va.free, gpu_va)):
            held.handle = calls.import_dmabuf(device.gpu_id, node, gpu_va, doing)
            with undone_on_error(partial(calls.free, held.handle)):
                calls.map(held.handle, [device.gpu_id], doing)
        self.table.add(gpu_va, held)
        return buffer

    def renew(self, buffer: Buffer) -> None:
        """Give VRAM that the CPU does not see new memory at its address, which the kernel has cleared. No engine may
        use it meanwhile.
        """
        held, device = self.table.held(buffer), self._device
        calls, doing = device.calls, f"clearing {buffer.name}"
        calls.unmap(held.handle, [device.gpu_id])
        calls.free(held.handle)
        held.handle = calls.alloc(device.gpu_id, held.first_va, held.mapped_bytes, held.flags, doing=doing).handle
        calls.map(held.handle, [device.gpu_id], doing)

    def write_protect(self, buffer: Buffer, writable: Iterable[tuple[int, int]] = ()) -> None:
        """Do nothing: the kernel cannot take the right to write from memory that has it."""

    def free(self, *buffers: Buffer) -> None:
        """Free buffers; no submitted work may use them any more.

        Raises `ValueError`, and frees nothing, for a buffer of another memory or one freed before.
        """
        self.admit()
        with Teardown(f"{self._device.name}: freeing", kept=RingupError) as teardown:
            for held in [self.table.held(buffer) for buffer in dict.fromkeys(buffers)]:
                teardown.attempt(partial(self._free, held, "freed"))

    def access(self, buffer: Buffer) -> Access:
        """Return the CPU's access to a visible buffer."""
        self.table.held(buffer)
        if buffer.view is None:
            raise ValueError(f"{buffer!r} is not visible: ask for a visible one")
        return Access(buffer.size_bytes, buffer.view, NoWindow(), 0)

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        return self.table.find(gpu_va)

    def describe(self, gpu_va: int) -> str:
        """Return in words where an address lies."""
        return self.table.describe(gpu_va)

    def describe_page(self, page_va: int) -> str:
        """Return in words what lies in a page, for a fault of which the kernel tells no more."""
        inside = (self.table.find(page_va + at) for at in (0, PAGE_BYTES - 1))
        found = next((buffer for buffer in inside if buffer is not None), None)
        if found is None:
            return self.describe(page_va)
        return f"in the page from byte {max(page_va - found.gpu_va, 0):#x} of {found!r} on"

    @property
    def has_visible_vram(self) -> bool:
        """Whether the CPU sees some of the VRAM that was handed out."""
        return bool(self._visible_vram)

    def touch(self) -> None:
        """Read a byte of visible VRAM, if there is any: it comes back after all that was written to the card before."""
        for mapping in self._visible_vram.values():
            mapping[0]
            return

    def stats(self) -> dict[str, Usage]:
        """Return this process's usage of VRAM and of host memory; `free_bytes` is what all processes leave."""
        vram, host = self.table.usage["vram"], self.table.usage["host"]
        vram.free_bytes = self._device.calls.available_bytes(self._device.gpu_id)
        return {"vram": vram, "host": host}

    def close(self, how: str = "freed") -> None:
        """Free every buffer. Twice is harmless."""
        with Teardown(f"{self._device.name}: freeing", logged=RingupError) as teardown:
            for held in self.table:
                teardown.attempt(partial(self._free, held, how))

    def _take(self, held: Held, flags: int, align: int | None, *, seen: bool) -> None:
        """Allocate memory, map it for the card, and for this process if the CPU sees it."""
        device, buffer, size = self._device, held.buffer, held.mapped_bytes
        calls, gpu_ids, doing = (
            device.calls,
            [device.gpu_id],
            f"{size} bytes of {buffer.where} ({buffer.name or 'unnamed'})",
        )
        gpu_va, over = self._address(held, align, seen=seen)
        with undone_on_error(partial(self.va.free, gpu_va)):
            offset = held.anchor.address % PAGE_BYTES if held.anchor else 0
            user_address = held.anchor.address - offset if held.anchor else 0
            try:
                made = calls.alloc(device.gpu_id, gpu_va, size, flags, user_address=user_address, doing=doing)
            except OutOfMemory as error:
                raise OutOfMemory(f"{error}: {self._shortage(buffer.where)}") from error
            # what the kernel says of a card that its driver has given up
            except TransportError:
                device.check(doing)
                raise
            with undone_on_error(partial(calls.free, made.handle)):
                calls.map(made.handle, gpu_ids, doing)
                with undone_on_error(partial(calls.unmap, made.handle, gpu_ids)):
                    if seen:
                        held.mapping = device.map_memory(
                            made.mmap_offset, size, f"{device.name}: mapping {doing}", over
                        )
        held.handle, held.first_va, held.flags = made.handle, gpu_va, flags
        self.table.add(gpu_va + offset, held)

    def _address(self, held: Held, align: int | None, *, seen: bool) -> tuple[int, mmap.mmap | None]:
        """Return an address for a buffer, and the reserved pages of this process at the same address, if there are any.

        QUIRK: when a copy queue is destroyed, the kernel reads a counter behind its read pointer as this process would,
        by the GPU's address (kfd_device_queue_manager.c, read_sdma_queue_counter). So a page of host memory, as that of
        a queue's pointers, lies at the same address for both, where that is free.
        """
        buffer, size = held.buffer, held.mapped_bytes
        if held.anchor is not None:
            address = held.anchor.address - held.anchor.address % PAGE_BYTES
            # another buffer or another array in the same page may have it: the card sees this one elsewhere then
            with suppress(ValueError):
                self.va.reserve(address, size, buffer.name)
                return address, None
        if seen and buffer.where == "host" and size == PAGE_BYTES:
            try:
                pages, address = reserve(size)
                self.va.reserve(address, size, buffer.name)
            except (OSError, ValueError):
                LOG.debug("%s: no common address for a page", self._device.name)
            else:
                return address, pages
        return self.va.alloc(size + GUARD_BYTES, align or natural_align(size, GIANT_BYTES), buffer.name), None

    def _free(self, held: Held, how: str) -> None:
        """Take a buffer from the card. If the kernel refuses, its address and memory stay taken."""
        device, buffer = self._device, held.buffer
        gpu_va = buffer.gpu_va
        # ORDER: the kernel frees nothing that is mapped
        has_heir = self._take_back(buffer, f"{how}, with the memory of {device.name}")
        self.table.remove(held, how)
        if held.mapping is not None:
            give_up(held.mapping)
        self._visible_vram.pop(gpu_va, None)
        if held.shared and held.anchor is not None:
            held.anchor.release()
            return
        try:
            device.calls.unmap(held.handle, [device.gpu_id])
            if not (held.lent or has_heir):
                device.calls.free(held.handle)
        except DeviceLost:
            LOG.info("%s is gone: no memory to free", device.name)
        if held.lent or has_heir:
            return
        if held.anchor is not None:
            held.anchor.release()
        self.va.free(held.first_va or gpu_va)

    def _take_back(self, buffer: Buffer, how: str) -> bool:
        """End what other cards have mapped of a buffer, but for what outlives it: that becomes the first one's. Return
        whether there is such.
        """
        heirs = []
        for memory, mapped in self._lent.pop(buffer, ()):
            if mapped.freed:
                continue
            held = memory.table.held(mapped)
            if held.outlives:
                heirs.append((memory, mapped))
            else:
                memory._free(held, how)
        if not heirs:
            return False
        (memory, heir), *rest = heirs
        memory.table.held(heir).lent = False
        memory._lent[heir] = rest
        return True

    def _shortage(self, where: Where) -> str:
        usage = self.table.usage[where]
        if where == "host":
            return f"this process has {usage.used_bytes} bytes of host memory on the card in {usage.buffers} buffers"
        left = self._device.calls.available_bytes(self._device.gpu_id)
        free = "" if left is None else f", {left} are free"
        return (
            f"of {self._vram_bytes} bytes of VRAM this process has {usage.used_bytes} in {usage.buffers} buffers{free}; "
            "other processes may have the rest"
        )


def _refusal(error: RingupError) -> str:
    """Return the kernel's words for a call that it refused."""
    cause = error.__cause__
    return f"the kernel says: {cause.strerror}" if isinstance(cause, OSError) else str(error)
