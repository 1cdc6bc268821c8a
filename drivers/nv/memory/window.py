"""VRAM as the CPU reaches it: BAR 1 over its lower part, and the small window in BAR 0 for what lies beyond.

BAR 1 goes through page tables, whose root GSP-RM makes and tells; the entries below it are the driver's. They map the
BAR to VRAM one to one once and for all, so that the BAR is a plain view. Source: OGKM kern_bus.c,
kbusPatchBar1Pdb_GSPCLIENT; Linux nouveau, bar/r535.c, r535_bar_bar1_init.
"""

from __future__ import annotations

import struct
from functools import cached_property

from ringup.autogen.linux import pci
from ringup.drivers.memory.vram import Vram
from ringup.drivers.nv.memory.invalidate import MmuCaches
from ringup.drivers.nv.memory.pramin import Pramin
from ringup.drivers.nv.memory.table_memory import TableMemory
from ringup.drivers.nv.mmu.formats import HUGE_PAGE_BYTES, Flags, Format
from ringup.drivers.nv.mmu.page_tables import PageTables
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device, Mmio
from ringup.errors import DeviceLost, NotSupported

ONES = b"\xff\xff\xff\xff"


def shown_bytes(device: Device, end: int) -> int:
    """Return how much of VRAM up to `end` the card's BAR can show. Raises `NotSupported` for a card without one."""
    return min(bar_of(device).size_bytes, end) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES


def number_of_bar(device: Device) -> int:
    """Return the number of the BAR that shows VRAM: the one behind the registers, which take two places where their BAR
    is one of 64 bits, as on GH100. Source: OGKM nv-pci.c, nv_pci_probe; Linux nouveau device/pci.c.
    """
    low = ask(device.config, pci.PCI_BASE_ADDRESS_0, 4, f"reading BAR 0 of {device.name}")
    return 2 if low & pci.PCI_BASE_ADDRESS_MEM_TYPE_MASK == pci.PCI_BASE_ADDRESS_MEM_TYPE_64 else 1


def bar_of(device: Device) -> Mmio:
    """Return the BAR that shows VRAM. Raises `NotSupported`."""
    bar = device.bars.get(number_of_bar(device))
    if bar is None or bar.size_bytes < HUGE_PAGE_BYTES:
        raise NotSupported(
            f"{device.name}: BAR {number_of_bar(device)} shows {0 if bar is None else bar.size_bytes} bytes of its memory, "
            f"{HUGE_PAGE_BYTES} are the least; switch resizable BAR on in the firmware set-up"
        )
    return bar


class VramWindow:
    """A card's VRAM up to `size_bytes`, by vram_pa. Opened when it is made."""

    def __init__(
        self, device: Device, pramin: Pramin, caches: MmuCaches, vram: Vram, fmt: Format, root_pa: int, size_bytes: int
    ) -> None:
        """`root_pa`: where GSP-RM has put the root of the BAR's page tables."""
        self.size_bytes = size_bytes
        self.visible_bytes = vram.visible_end
        self._device, self._pramin = device, pramin
        self._bar = bar_of(device)
        # bytes were written that may be on their way; a caller has a view, whose writes nobody sees
        self._written = self._shown = False
        memory = TableMemory(vram)
        tables = PageTables(
            fmt,
            pramin.write,
            memory.alloc,
            free_table=memory.free,
            barrier=lambda: self._settle(root_pa),
            root_pa=root_pa,
        )
        if self.visible_bytes:
            tables.map(0, [(0, self.visible_bytes)], Flags(atomics=False))
            self._settle(root_pa)
            caches.invalidate(root_pa, hub_only=True)

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return `size_bytes` of VRAM. Raises `ValueError` outside of it, `DeviceLost` when the card is gone."""
        seen = self._seen(vram_pa, size_bytes)
        near = self._bar.read_block(vram_pa, seen) if seen else b""
        # a card that is lost in the middle of a block returns ones at its end
        if near and near[-4:] == ONES[-len(near) :] and self._device.lost:
            raise DeviceLost(f"reading {seen:#x} bytes of VRAM at {vram_pa:#x}: {self._device.name} is gone")
        return near + self._read_far(vram_pa + seen, size_bytes - seen) if seen < size_bytes else near

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Store `data`. Raises `ValueError` outside of VRAM."""
        seen = self._seen(vram_pa, len(data))
        if seen:
            self._written = True
            self._bar.write_block(vram_pa, data[:seen])
        if seen < len(data):
            self._write_far(vram_pa + seen, bytes(data[seen:]))

    def view(self, vram_pa: int, size_bytes: int) -> memoryview | None:
        """Return the bytes as plain memory when the BAR shows all of them and the path maps it; None otherwise."""
        if self._seen(vram_pa, size_bytes) < size_bytes or self._map is None:
            return None
        self._shown = True
        return self._map[vram_pa : vram_pa + size_bytes]

    @property
    def is_dirty(self) -> bool:
        """Whether bytes that were written through the BAR may not have reached VRAM."""
        return self._written or self._shown

    def flush(self) -> None:
        """Make what was written through the BAR reach VRAM: a read does not overtake writes."""
        if self.visible_bytes:
            self._bar.read32(0)
        self._written = False

    @cached_property
    def _map(self) -> memoryview | None:
        try:
            return self._bar.map()
        except NotSupported:
            return None

    def _settle(self, vram_pa: int) -> None:
        """Make what was written through the small window reach VRAM."""
        self._pramin.read(vram_pa, 4)

    def _seen(self, vram_pa: int, size_bytes: int) -> int:
        """Return how many of the bytes lie in the window."""
        if vram_pa < 0 or size_bytes < 0 or vram_pa + size_bytes > self.size_bytes:
            raise ValueError(f"VRAM has {self.size_bytes:#x} bytes, none of {size_bytes:#x} at {vram_pa:#x}")
        return max(0, min(size_bytes, self.visible_bytes - vram_pa))

    def _read_far(self, vram_pa: int, size_bytes: int) -> bytes:
        first = vram_pa & ~3
        whole = self._pramin.read(first, vram_pa + size_bytes - first + 3 & ~3)
        return whole[vram_pa - first :][:size_bytes]

    def _write_far(self, vram_pa: int, data: bytes) -> None:
        """Write through the small window; other bytes of a dword at the edge are kept."""
        first, end = vram_pa & ~3, vram_pa + len(data)
        whole = self._read_far(first, vram_pa - first) + data + self._read_far(end, -end % 4)
        self._pramin.write(first, struct.pack(f"{len(whole)}s", whole))
