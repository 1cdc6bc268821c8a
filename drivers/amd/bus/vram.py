"""VRAM as the host reaches it: the window of BAR 0 over its lower part, and the index registers for every byte beyond
the window.

The window goes through the host data path: what was written there is in VRAM only after `Hdp.flush`. The index
registers bypass it. The card has one set of them: two processes that use them at once read each other's bytes, so a
second process uses the window only.

Source: amdgpu amdgpu_device.c, amdgpu_device_aper_access and amdgpu_device_mm_access.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property

from ringup.autogen.amd.nbio import BIF_BX_PF0_MM_DATA, BIF_BX_PF0_MM_INDEX, BIF_BX_PF0_MM_INDEX_HI
from ringup.drivers.amd.bus.registers import ONES, Block, Registers
from ringup.drivers.transport import bars
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceLost, NotSupported

VRAM_BAR = 0
GONE = b"\xff\xff\xff\xff"  # what reads of a card that is gone give
# Where the table of blocks lies in VRAM. Source: amdgpu_discovery.h, DISCOVERY_TMR_OFFSET
TABLE_FROM_END_BYTES = 64 << 10
INDEX_FACTS = (4, 3, 0)  # MM_INDEX, MM_DATA and MM_INDEX_HI lie at dwords 0, 1 and 6 of every chip's register BAR
LOW_BITS = BIF_BX_PF0_MM_INDEX.FIELDS["mm_offset"].width  # MM_INDEX_HI holds the address from there on


class VramWindow:
    """All of a card's VRAM, `size_bytes` of it, by vram_pa."""

    def __init__(self, device: Device, registers: Registers, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._bar = bars.window(device, VRAM_BAR)
        self.visible_bytes = min(self._bar.size_bytes, size_bytes)
        self._index = Block(registers, "NBIO", INDEX_FACTS, (0,))

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return `size_bytes` of VRAM. Raises `ValueError` outside of it, `DeviceLost` when the card is gone."""
        seen = self._seen(vram_pa, size_bytes)
        near = self._bar.read_block(vram_pa, seen) if seen else b""
        # a card that is lost in the middle of a block returns ones at its end
        if near and near[-4:] == GONE[-len(near) :]:
            self._check(f"reading {seen:#x} bytes of VRAM at {vram_pa:#x}")
        return near + self._read_far(vram_pa + seen, size_bytes - seen) if seen < size_bytes else near

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Store `data`. Raises `ValueError` outside of VRAM."""
        seen = self._seen(vram_pa, len(data))
        if seen:
            self._bar.write_block(vram_pa, data[:seen])
        if seen < len(data):
            self._write_far(vram_pa + seen, bytes(data[seen:]))

    def view(self, vram_pa: int, size_bytes: int) -> memoryview | None:
        """Return the bytes as plain memory when the window shows all of them and the path maps it; None otherwise."""
        if self._seen(vram_pa, size_bytes) < size_bytes or self._map is None:
            return None
        return self._map[vram_pa : vram_pa + size_bytes]

    @cached_property
    def _map(self) -> memoryview | None:
        try:
            return self._bar.map()
        except NotSupported:
            return None

    def _check(self, doing: str) -> None:
        """Raise `DeviceLost` for a card that is gone, and for a window that reaches no memory: then the table of blocks
        reads as ones too.
        """
        self._index.registers.check(doing)
        table = self.size_bytes - TABLE_FROM_END_BYTES
        if 0 <= table <= self.visible_bytes - 4 and self._bar.read32(table) == ONES:
            name = self._index.registers.device.name
            raise DeviceLost(
                f"{doing}: {name}: its window (BAR {VRAM_BAR}) reads all ones though its registers answer: the bridges above it do not lead "
                "there; reset its slot or power it off"
            )

    def _seen(self, vram_pa: int, size_bytes: int) -> int:
        """Return how many of the bytes lie in the window."""
        if vram_pa < 0 or size_bytes < 0 or vram_pa + size_bytes > self.size_bytes:
            raise ValueError(f"VRAM has {self.size_bytes:#x} bytes, none of {size_bytes:#x} at {vram_pa:#x}")
        return max(0, min(size_bytes, self.visible_bytes - vram_pa))

    def _read_far(self, vram_pa: int, size_bytes: int) -> bytes:
        """Read through the index registers, whole dwords of it."""
        first = vram_pa & ~3
        dwords = [int(self._index.read(BIF_BX_PF0_MM_DATA)) for _ in self._each(first, vram_pa + size_bytes)]
        return struct.pack(f"<{len(dwords)}I", *dwords)[vram_pa - first :][:size_bytes]

    def _write_far(self, vram_pa: int, data: bytes) -> None:
        """Write through the index registers; other bytes of a dword at the edge are kept."""
        first, end = vram_pa & ~3, vram_pa + len(data)
        whole = self._read_far(first, vram_pa - first) + data + self._read_far(end, -end % 4)
        dwords = struct.unpack(f"<{len(whole) // 4}I", whole)
        for at in self._each(first, end):
            self._index.write(self._index.make(BIF_BX_PF0_MM_DATA, mm_data=dwords[(at - first) // 4]))

    def _each(self, first: int, end: int) -> Iterator[int]:
        """Point the index registers at one dword after another; the high half only when it changes."""
        selected = -1
        for at in range(first, end, 4):
            low, high = at & ((1 << LOW_BITS) - 1), at >> LOW_BITS
            self._index.write(self._index.make(BIF_BX_PF0_MM_INDEX, mm_offset=low, mm_aper=1))
            if high != selected:
                self._index.write(self._index.make(BIF_BX_PF0_MM_INDEX_HI, mm_offset_hi=high))
                selected = high
            yield at
