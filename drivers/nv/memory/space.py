"""The memory of a bare card, and the one address space of its queues: page tables that the driver writes, in VRAM.

GSP-RM knows the address space as an object; it puts entries of its own below one directory, for what its engines map.
Source: Linux nouveau, mmu/r535.c, r535_mmu_promote_vmm; gsp/r535.c, r535_gsp_rpc_get_gsp_static_info (regions); OGKM
ctrl90f1.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ringup.autogen.nv.mmu_formats import NV_MMU_PTE_KIND_PITCH
from ringup.drivers.buffer import Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.memory.buffers import GUARD_BYTES, USER_END, USER_START, Memory
from ringup.drivers.memory.ranges import Ranges
from ringup.drivers.memory.vram import PAGE_BYTES, Run, Vram
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp.system import FbRegion, StaticInfo
from ringup.drivers.nv.memory.invalidate import MmuCaches
from ringup.drivers.nv.memory.pramin import Pramin
from ringup.drivers.nv.memory.table_memory import TableMemory
from ringup.drivers.nv.memory.window import VramWindow, number_of_bar, shown_bytes
from ringup.drivers.nv.mmu.formats import FORMATS, Flags, Level
from ringup.drivers.nv.mmu.page_tables import PageTables
from ringup.errors import DeviceHung
from ringup.queues.nv.rows import GenerationRow

# addresses that GSP-RM maps at, and a page behind them that keeps the directories above it
SERVER_VA, SERVER_BYTES = 0x2000_0000, 0x2000_0000
KEEPER_VA = SERVER_VA + SERVER_BYTES
# the lowest bit of the address that an entry of the last directory which GSP-RM writes to translates
SERVER_SHIFT = 29


@dataclass(frozen=True, slots=True)
class PrivateMemory:
    """VRAM for the card's own engines, of whole pages. `gpu_va` is 0 where it is not mapped."""

    vram_pa: int
    gpu_va: int
    size_bytes: int


class SpaceTables:
    """Page tables as `Memory` uses them. The MMU keeps that an entry was not valid, so each mapping makes it stale."""

    def __init__(self, tables: PageTables) -> None:
        self.tables = tables

    def map(
        self,
        gpu_va: int,
        runs: Iterable[Run],
        kind: Where,
        *,
        cached: bool = True,
        writable: bool = True,
        executable: bool = True,
    ) -> bool:
        """Map pieces of memory. Entries have no bit that forbids execution. VRAM is always cached."""
        volatile = kind == "host" and not cached
        flags = Flags(kind, NV_MMU_PTE_KIND_PITCH, read_only=not writable, volatile=volatile)
        self.tables.map(gpu_va, runs, flags)
        return True

    @property
    def root_pa(self) -> int:
        """Where the root directory lies, as vram_pa."""
        return self.tables.root_pa

    def unmap(self, gpu_va: int, size_bytes: int) -> None:
        """Unmap a range."""
        self.tables.unmap(gpu_va, size_bytes)

    def settle(self) -> None:
        """Free tables that are no longer used."""
        self.tables.settle()

    def close(self) -> None:
        """Free all tables."""
        self.tables.close()


class Space:
    """The memory of one card, once its GSP-RM answers."""

    def __init__(self, registers: Registers, static: StaticInfo, row: GenerationRow) -> None:
        """Raises `DeviceHung` for memory that GSP-RM tells nonsense of, `NotSupported` for a card without a window."""
        device, name = registers.device, registers.device.name
        if static.bar1_pde_base % PAGE_BYTES or not 0 < static.bar1_pde_base < static.fb_bytes:
            raise DeviceHung(f"{name}: GSP-RM tells of page tables at {static.bar1_pde_base:#x}; reset the card")
        usable = usable_regions(static.regions, static.fb_bytes, name)
        first, end = usable[0][0], sum(usable[-1])
        self.vram = Vram(first, end, shown_bytes(device, end))
        for (at, size), (following, _) in pairwise(usable):
            self.vram.reserve(at + size, following - at - size, "GSP-RM")
        self.caches, fmt = MmuCaches(registers), FORMATS[registers.chip.name[:2]]
        pramin = Pramin(registers)
        self.window = window = VramWindow(
            device, pramin, self.caches, self.vram, fmt, static.bar1_pde_base, static.fb_bytes
        )
        self._lost = False
        memory = TableMemory(self.vram)
        self.tables = PageTables(fmt, self._write, memory.alloc, free_table=memory.free, barrier=self._flush_window)
        va = Ranges(USER_START, USER_END - USER_START, f"addresses of {name}")
        for start, size in (
            (row.shared_window_va, row.shared_window_bytes),
            (row.local_window_va, row.local_window_bytes),
        ):
            if start >= USER_START:
                va.reserve(start, size, "windows of kernels")
        self.memory = Memory(
            device,
            window,
            self.vram,
            SpaceTables(self.tables),
            self.root_pa,
            flush_tlb=self._flush_caches,
            flush_window=self._flush_window,
            va=va,
            vram_bar=number_of_bar(device),
        )
        self._keeper = self.vram.alloc(PAGE_BYTES, visible=True, holder="page tables")
        self.tables.map(KEEPER_VA, [(self._keeper, PAGE_BYTES)], Flags(read_only=True, privileged=True))
        self._flush()

    @property
    def root_pa(self) -> int:
        """Where the root directory lies, as vram_pa."""
        return self.tables.root_pa

    def server_directories(self) -> list[tuple[Level, int]]:
        """Return level and vram_pa of the directories that GSP-RM's own addresses are below."""
        return [(level, at) for level, at in self.tables.directories(KEEPER_VA) if level.low_bit >= SERVER_SHIFT]

    def alloc_vram(self, size_bytes: int, holder: str, *, align: int | None = None) -> int:
        """Return vram_pa of one piece of zeroed VRAM that is not mapped. Raises `OutOfMemory`."""
        vram_pa = self.vram.alloc(size_bytes, visible=True, align=align, holder=holder)
        with undone_on_error(lambda: self.vram.free(vram_pa)):
            self.window.write(vram_pa, bytes(size_bytes))
            self._flush_window()
        return vram_pa

    def alloc_private(
        self, size_bytes: int, holder: str, *, align: int = PAGE_BYTES, read_only: bool = False, zeroed: bool = True
    ) -> PrivateMemory:
        """Return VRAM that only the card's own engines reach by its address. Raises `OutOfMemory`."""
        size = -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
        vram_pa = self.alloc_vram(size, holder) if zeroed else self.vram.alloc(size, holder=holder)
        with undone_on_error(lambda: self.vram.free(vram_pa)):
            return PrivateMemory(
                vram_pa, self.map_private(vram_pa, size, holder, align=align, read_only=read_only), size
            )

    def map_private(self, vram_pa: int, size_bytes: int, holder: str, *, align: int, read_only: bool) -> int:
        """Map VRAM for the card's own engines; return its address."""
        gpu_va = self.memory.va.alloc(size_bytes + GUARD_BYTES, align, holder)
        with undone_on_error(lambda: self.memory.va.free(gpu_va)):
            self.tables.map(gpu_va, [(vram_pa, size_bytes)], Flags(privileged=True, read_only=read_only))
            self._flush()
        return gpu_va

    def free_private(self, *pieces: PrivateMemory) -> None:
        """Free memory that no engine uses any more."""
        for one in pieces:
            if one.gpu_va:
                self.tables.unmap(one.gpu_va, one.size_bytes)
        self._flush()
        for one in pieces:
            if one.gpu_va:
                self.memory.va.free(one.gpu_va)
            self.vram.free(one.vram_pa)

    def lose(self, how: str) -> None:
        """Free all memory of a card whose GSP-RM has ended, or that is gone: nothing is written to it any more."""
        self._lost = True
        self.memory.close(how)

    def _flush(self) -> None:
        self._flush_window()
        self._flush_caches(self.root_pa)
        self.tables.settle()

    def _write(self, vram_pa: int, data: bytes) -> None:
        if not self._lost:
            self.window.write(vram_pa, data)

    def _flush_window(self) -> None:
        if not self._lost:
            self.window.flush()

    def _flush_caches(self, root_pa: int) -> None:
        if not self._lost:
            self.caches.invalidate(root_pa)


def usable_regions(regions: Iterable[FbRegion], fb_bytes: int, name: str) -> list[Run]:
    """Return the parts of VRAM that GSP-RM leaves to others, by address, whole pages."""
    usable: list[Run] = []
    at = 0
    for one in sorted(regions, key=lambda region: region.base):
        if one.base < at or one.limit < one.base:
            raise DeviceHung(
                f"{name}: GSP-RM tells of a region of memory from {one.base:#x} to {one.limit:#x}; reset the card"
            )
        at = one.limit + 1
        start = -(-one.base // PAGE_BYTES) * PAGE_BYTES
        end = min(at, fb_bytes) // PAGE_BYTES * PAGE_BYTES
        if not one.reserved and not one.protected and start < end:
            usable.append((start, end - start))
    if not usable:
        raise DeviceHung(f"{name}: GSP-RM leaves none of its {fb_bytes} bytes of memory to others; reset the card")
    return usable
