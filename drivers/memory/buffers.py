"""Buffers of one address space whose page tables the driver writes: VRAM, and host memory that the card reaches over
the bus, each at its own virtual address.

The CPU writes page tables through the window into VRAM. First a flush makes the tables reach VRAM, then another empties
the translation caches (TLB), and only then unmapped memory is used again. Source: amdgpu amdgpu_vm.c,
amdgpu_vm_update_range and amdgpu_vm_bo_update; amdgpu_vm_cpu.c, amdgpu_vm_cpu_commit; gmc_v11_0_flush_gpu_tlb; nouveau
vmm.c, nvkm_vmm_flush.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.memory.access import Access, Window
from ringup.drivers.memory.ranges import Ranges, natural_align
from ringup.drivers.memory.table import BufferTable, Usage, release_view, whole_size
from ringup.drivers.memory.vram import PAGE_BYTES, Run, Vram
from ringup.drivers.transport.seam import Device, DmaMemory, Reaches
from ringup.errors import DeviceLost, LinkDown, NotSupported, OutOfMemory

LOG = logging.getLogger(__name__)
# where users' buffers lie unless an address space says otherwise; docs/driver.md, "Address spaces of a Radeon"
USER_START, USER_END = 0x1_0000_0000, 0x7FFF_0000_0000
GUARD_BYTES = PAGE_BYTES  # left unmapped behind every buffer: running over its end is a fault, not a neighbour's damage
GIANT_BYTES = 1 << 30  # a page of the second directory level


class Tables(Protocol):
    """The page tables of one address space."""

    def map(
        self,
        gpu_va: int,
        runs: Iterable[Run],
        kind: Where,
        *,
        cached: bool = ...,
        writable: bool = ...,
        executable: bool = ...,
    ) -> bool:
        """Map pieces of memory one after another; return whether the translation caches may be stale."""
        ...

    @property
    def root_pa(self) -> int:
        """Where the root table lies, as vram_pa."""
        ...

    def unmap(self, gpu_va: int, size_bytes: int) -> object:
        """Unmap a range; the translation caches are stale then."""
        ...

    def settle(self) -> None:
        """Free tables that are no longer used; the translation caches were flushed."""
        ...

    def close(self) -> None:
        """Free all tables."""
        ...


class Held(NamedTuple):
    """The memory of a buffer. `dma` is freed with the buffer if the buffer owns it; `runs`: the pieces that `alloc`
    took from VRAM.
    """

    buffer: Buffer
    mapped_bytes: int
    vram: tuple[int, ...]
    dma: DmaMemory | None
    runs: tuple[Run, ...] = ()


class JoinedMemory:
    """Pieces of memory that a card reaches, one after the other, as one `DmaMemory`. The CPU does not see it."""

    coherent = True

    def __init__(self) -> None:
        self._parts: list[DmaMemory] = []

    def add(self, part: DmaMemory) -> None:
        """Add a piece at the end, which is freed with the others."""
        self._parts.append(part)

    @property
    def size_bytes(self) -> int:
        """The size of all pieces."""
        return sum(part.size_bytes for part in self._parts)

    @property
    def contiguous(self) -> bool:
        """Whether it is one piece."""
        return len(self._parts) == 1

    @property
    def view(self) -> memoryview:
        """Raise `NotSupported`."""
        raise NotSupported("the memory is another card's: look at it through that card")

    def bus_addr(self, offset_bytes: int = 0) -> int:
        """Return what the card puts on the bus to reach that byte."""
        for bus_addr, size in self.runs():
            if 0 <= offset_bytes < size:
                return bus_addr + offset_bytes
            offset_bytes -= size
        raise ValueError("the offset lies outside the memory")

    def runs(self) -> Iterator[Run]:
        """Yield (bus_addr, size_bytes) of every piece."""
        for part in self._parts:
            yield from part.runs()

    def free(self) -> None:
        """End it. Twice is harmless."""
        for part in self._parts:
            part.free()


class Memory:
    """The buffers of `vmid`. The caller gives the page tables and their memory; the hubs must use the tables before
    anything runs.

    `vmid`: the address space's number for the hardware. `flush_window` makes what the CPU wrote through the window
    reach VRAM; `flush_tlb(vmid)` empties the translation caches. `vram_bar`: the BAR that shows VRAM from its start on.

    Mapping at addresses where nothing was needs no TLB flush where the caches keep no invalid entry: the tables say so.
    Unmapping, and mapping where a page or a fault was, flushes; memory and tables are free only after that.
    """

    def __init__(
        self,
        device: Device,
        window: Window,
        vram: Vram,
        tables: Tables,
        vmid: int,
        *,
        flush_tlb: Callable[[int], None],
        flush_window: Callable[[], None],
        va: Ranges | None = None,
        vram_bar: int = 0,
    ) -> None:
        self.vram, self.tables, self.vmid = vram, tables, vmid
        self.va = Ranges(USER_START, USER_END - USER_START, f"addresses of vmid {vmid}") if va is None else va
        self._device, self._window = device, window
        self._flush_tlb, self._flush_window, self._vram_bar = flush_tlb, flush_window, vram_bar
        # called before buffers are made or freed; raises an error for a caller that may not
        self.admit: Callable[[], None] = _anybody
        self.table: BufferTable[Held] = BufferTable()
        # by buffer: where other cards have mapped it
        self._lent: dict[Buffer, list[tuple[Memory, Buffer]]] = {}
        # mapping or unmapping failed half-way: the card may reach this memory until it is closed
        self._stuck: list[Held] = []
        # stale translations may be cached: of a walk that failed, or after a flush that was interrupted
        self._stale = False

    def alloc(
        self,
        size_bytes: int,
        where: Where = "vram",
        visible: bool = False,
        name: str = "",
        align: int | None = None,
        *,
        cached: bool | None = None,
        writable: bool = True,
        executable: bool = True,
    ) -> Buffer:
        """Return a buffer. VRAM is not cleared, host memory is zero.

        `visible`: the CPU must see it; it always sees host memory. `align`: of gpu_va, a power of two, by default the
        size's own up to 1 GiB. `cached`: whether the card's L2 may keep it between releases and acquires, by default
        VRAM yes, host memory no. Raises `OutOfMemory`, and allocates nothing then.
        """
        self.admit()
        size_bytes = whole_size(size_bytes, name)
        mapped = size_bytes + -size_bytes % PAGE_BYTES
        dma: DmaMemory | None = None
        runs: Iterable[Run]
        if where == "vram":
            taken = self.vram.alloc_runs(mapped, visible=visible, holder=name)
            view = self._window.view(taken[0][0], size_bytes) if len(taken) == 1 else None
            runs = taken
        elif where == "host":
            if self._device.polls_vram:
                raise NotSupported(
                    f"{size_bytes} bytes of host memory ({name or 'unnamed'}): the card does not reach the host's memory over this path; "
                    'use where="vram" and the copy queue'
                )
            taken, dma = [], self._device.alloc_host(mapped)
            view, runs, mapped = dma.view[:size_bytes], dma.runs(), dma.size_bytes
        else:
            raise ValueError(f"a buffer lies in vram or host, not {where!r} ({name or 'unnamed'})")
        if cached is None:
            cached = where == "vram"
        buffer = Buffer(self, 0, size_bytes, where, view, name)
        held = Held(buffer, mapped, tuple(vram_pa for vram_pa, _ in taken), dma, tuple(taken))
        self._map(held, runs, align, cached, writable, executable)
        return buffer

    def import_host(
        self,
        dma: DmaMemory,
        name: str = "",
        *,
        cached: bool = False,
        writable: bool = True,
        executable: bool = False,
        adopt: bool = False,
        seen: bool = True,
    ) -> Buffer:
        """Map the caller's host memory at an address. Freeing the buffer unmaps it; the caller frees `dma` after that.

        `adopt`: the buffer owns `dma` and frees it; it is freed here if mapping fails. `seen`: whether the CPU sees the
        memory; it does not see a bridge's.
        """
        self.admit()
        buffer = Buffer(self, 0, dma.size_bytes, "host", dma.view[:] if seen else None, name)
        held = Held(buffer, dma.size_bytes, (), dma if adopt else None)
        self._map(held, dma.runs(), None, cached, writable, executable)
        return buffer

    def reach(self, other: object, buffer: Buffer, name: str, *, outlives: bool = False) -> Buffer:
        """Map a buffer of another card here, not cached: its VRAM over the bus, its host memory where it lies.

        It is freed with `buffer` at the latest, unless it is host memory that `outlives` it: such pages stay until the
        result is freed. Raises `NotSupported` where this card does not reach it.
        """
        self.admit()
        if not isinstance(other, Memory) or other is self:
            raise NotSupported(
                f"{buffer!r} is not of another card that ringup drives by itself, as {self._device.name}"
            )
        dma = other.lend(buffer, self._device)
        mapped = self.import_host(dma, name, adopt=True, seen=False)
        mapped.size_bytes = buffer.size_bytes
        if outlives and buffer.where == "host":
            return mapped
        users = [(memory, one) for memory, one in other._lent.get(buffer, ()) if not one.freed]
        other._lent[buffer] = [*users, (self, mapped)]
        return mapped

    def lend(self, buffer: Buffer, device: Device) -> DmaMemory:
        """Let another card's device reach a buffer. Raises `NotSupported` where it cannot."""
        held, name = self.table.held(buffer), self._device.name
        if held.dma is not None:
            return device.pin(held.dma.view)
        if not isinstance(device, Reaches):
            raise NotSupported(f"{device.name} reaches no memory of other cards over its path")
        shown = self.vram.visible_end
        if any(vram_pa + size > shown for vram_pa, size in held.runs) or not held.runs:
            raise NotSupported(
                f"{buffer!r} lies beyond the {shown >> 20} MiB of VRAM that the BAR of {name} shows: ask for a visible buffer, or switch "
                "resizable BAR on in the firmware set-up"
            )
        joined = JoinedMemory()
        with undone_on_error(joined.free):
            for vram_pa, size in held.runs:
                joined.add(device.reach(self._device, self._vram_bar, vram_pa, size))
        return joined

    def _take_back(self, buffer: Buffer, how: str) -> None:
        """End what other cards have mapped of a buffer."""
        for memory, mapped in self._lent.pop(buffer, ()):
            if not mapped.freed:
                with suppress(DeviceLost, LinkDown):
                    held = memory.table.held(mapped)
                    memory._unmap([held], f"{how}, with the memory of {self._device.name}")
                    memory._release(held)

    def write_protect(self, buffer: Buffer, writable: Iterable[Run] = ()) -> None:
        """Make a cached VRAM buffer read-only for the card, except the pages that the (offset, size) ranges touch.

        All submitted writes to it must be done. Raises `OutOfMemory` where there is no page for a table; the caller
        frees the buffer then.
        """
        held = self.table.held(buffer)
        kept = {page for at, size in writable for page in range(at // PAGE_BYTES, -(-(at + size) // PAGE_BYTES))}
        stale, start = False, 0
        while start < held.mapped_bytes:
            is_kept = start // PAGE_BYTES in kept
            end = start + PAGE_BYTES
            while end < held.mapped_bytes and (end // PAGE_BYTES in kept) == is_kept:
                end += PAGE_BYTES
            if not is_kept:
                runs = _cut(held.runs, start, end)
                stale |= self.tables.map(buffer.gpu_va + start, runs, buffer.where, writable=False)
            start = end
        self._flush(stale)

    def share(self, other: Memory, buffer: Buffer, name: str = "") -> Buffer:
        """Map the VRAM of another address space's buffer here too, not cached. Free the result before that buffer."""
        self.admit()
        held = other.table.held(buffer)
        (vram_pa,) = held.vram
        shared = Buffer(self, 0, held.mapped_bytes, "vram", None, name)
        self._map(Held(shared, held.mapped_bytes, (), None), [(vram_pa, held.mapped_bytes)], None, False, True, False)
        return shared

    def place(self, buffer: Buffer) -> int:
        """Return vram_pa of a buffer that lies in one piece of VRAM."""
        (vram_pa,) = self.table.held(buffer).vram
        return vram_pa

    def bus_runs(self, buffer: Buffer) -> list[Run]:
        """Return (bus_addr, size_bytes) of every piece of a buffer in host memory, none for one in VRAM."""
        dma = self.table.held(buffer).dma
        return list(dma.runs()) if dma is not None else []

    def free(self, *buffers: Buffer) -> None:
        """Free buffers with one flush for all; no submitted work may use them any more.

        Raises `ValueError`, and frees nothing, for a buffer of another memory or one freed before. If unmapping fails,
        the buffers are unusable and their memory stays taken until `close`, since the card may still reach it. An array
        made from a `view` keeps host pages alive, which the card no longer reaches; an array over VRAM shows the
        memory's next use.
        """
        self.admit()
        held = [self.table.held(buffer) for buffer in dict.fromkeys(buffers)]
        for one in held:
            for memory, _ in self._lent.get(one.buffer, ()):
                memory.admit()
        self._unmap(held)
        for one in held:
            self._release(one)

    def access(self, buffer: Buffer) -> Access:
        """Return the CPU's access to a visible buffer, also over a path that maps nothing."""
        held = self.table.held(buffer)
        if buffer.view is None and len(held.vram) != 1:
            raise ValueError(f"{buffer!r} lies in pieces or beyond the window: ask for a visible one")
        return Access(buffer.size_bytes, buffer.view, self._window, held.vram[0] if held.vram else 0)

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        return self.table.find(gpu_va)

    def describe(self, gpu_va: int) -> str:
        """Return in words where an address lies."""
        return self.table.describe(gpu_va)

    def faulted(self, gpu_va: int) -> str:
        """Note a fault, so that the next mapping flushes what the caches keep of the failed walk; return `describe`."""
        self._stale = True
        return self.describe(gpu_va)

    def stats(self) -> dict[str, Usage]:
        """Return the usage of VRAM and of host memory."""
        vram, host = self.table.usage["vram"], self.table.usage["host"]
        vram.free_bytes, vram.largest_bytes = self.vram.free_bytes, self.vram.largest_bytes
        return {"vram": vram, "host": host}

    def close(self, how: str = "freed") -> None:
        """Free every buffer and the tables. The root table stays, empty, for hubs that still use it. `how`: what later
        uses of a buffer say in their error.

        For a card that is gone nothing is flushed. Twice is harmless.
        """
        held = list(self.table)
        try:
            self._unmap(held, how)
        except (DeviceLost, LinkDown):
            LOG.info("the card is gone: no translations to flush")
            self.tables.settle()
        else:
            self._stuck += held
        for one in self._stuck:
            self._release(one)
        self._stuck.clear()
        self.tables.close()

    def _map(
        self, held: Held, runs: Iterable[Run], align: int | None, cached: bool, writable: bool, executable: bool
    ) -> None:
        buffer, mapped = held.buffer, held.mapped_bytes
        if align is None:
            align = natural_align(mapped, GIANT_BYTES)
        kind = buffer.where
        try:
            gpu_va = self.va.alloc(mapped + GUARD_BYTES, align, buffer.name)
        except (OutOfMemory, ValueError):
            self._release(held)
            raise
        try:
            try:
                stale = self.tables.map(gpu_va, runs, kind, cached=cached, writable=writable, executable=executable)
            except (OutOfMemory, ValueError):
                self._flush(stale=True)
                self.va.free(gpu_va)
                self._release(held)
                raise
            self._flush(stale)
        except BaseException as error:
            self._stale = True
            if not isinstance(error, (OutOfMemory, ValueError)):
                self._stuck.append(held)
            raise
        self.table.add(gpu_va, held)

    def _unmap(self, held: list[Held], how: str = "freed") -> None:
        """Unmap buffers and make them unusable."""
        if not held:
            return
        for one in held:
            self._take_back(one.buffer, how)
        places = [one.buffer.gpu_va for one in held]
        for one in held:
            self.table.remove(one, how)
        self._stale = True
        try:
            for gpu_va, one in zip(places, held, strict=True):
                self.tables.unmap(gpu_va, one.mapped_bytes)
            self._flush(stale=True)
        except BaseException:
            self._stuck += held
            raise
        for gpu_va in places:
            self.va.free(gpu_va)

    def _flush(self, stale: bool) -> None:
        """ORDER: the entries reach VRAM, then the translation caches are flushed, then the unmapped memory may be
        reused.
        """
        self._stale = self._stale or stale
        self._flush_window()
        if self._stale:
            self._flush_tlb(self.vmid)
            self.tables.settle()
            self._stale = False

    def _release(self, held: Held) -> None:
        """Free the memory of a buffer that is not mapped."""
        if not held.buffer.freed:
            release_view(held.buffer)
        self.vram.free(*held.vram)
        if held.dma is not None:
            held.dma.free()


def _cut(runs: Iterable[Run], start: int, end: int) -> list[Run]:
    """Return the part from byte `start` to `end` of pieces of memory that follow one another."""
    found, at = [], 0
    for address, size in runs:
        first, last = max(start - at, 0), min(end - at, size)
        if first < last:
            found.append((address + first, last - first))
        at += size
    return found


def _anybody() -> None:
    """Keep nobody from it."""
