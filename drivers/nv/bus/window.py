"""A window of 1 MiB in BAR 0 that shows a part of the card's memory, before any page table is there (PRAMIN).

Slow: each dword is a request. Source: OGKM kern_bus_gm107.c, kbusMemAccessBar0Window_GM107; Linux nouveau
instmem/nv50.c; dev_bus.h, NV_PBUS_BAR0_WINDOW.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ringup.autogen.nv.boot import NV_PBUS_BAR0_WINDOW
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.bus.words import NV_XAL_EP_BAR0_WINDOW

WINDOW, WINDOW_BYTES = 0x70_0000, 1 << 20
STEP_BYTES = 1 << 16  # what the base counts in


class VramWindow:
    """The window of one card. Accesses are whole dwords."""

    def __init__(self, registers: Registers) -> None:
        self._registers, self._block = registers, Block(registers)
        # NV_PBUS_BAR0_WINDOW is listed for newer chips too, from the headers of older ones
        self._word = NV_XAL_EP_BAR0_WINDOW if self._block.has(NV_XAL_EP_BAR0_WINDOW) else NV_PBUS_BAR0_WINDOW
        self._base: int | None = None

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Read whole dwords of the card's memory. Raises `DeviceLost`."""
        out = bytearray()
        for at, count in self._pieces(vram_pa, size_bytes):
            out += self._registers.read_run(at, count)
        return bytes(out)

    def write(self, vram_pa: int, data: bytes | bytearray | memoryview) -> None:
        """Write whole dwords to the card's memory; posted."""
        done = 0
        for at, count in self._pieces(vram_pa, len(data)):
            values = struct.unpack(f"<{count // 4}I", data[done : done + count])
            self._registers.write_run([(at + 4 * index, value) for index, value in enumerate(values)])
            done += count

    def forget(self) -> None:
        """Forget where the window is: the card was reset."""
        self._base = None

    def _pieces(self, vram_pa: int, size_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield (byte address in BAR 0, bytes) of an access, with the window moved to each."""
        if vram_pa % 4 or size_bytes % 4 or vram_pa < 0:
            raise ValueError(f"the window takes whole dwords, not {size_bytes} bytes at {vram_pa:#x}")
        end = vram_pa + size_bytes
        while vram_pa < end:
            base = vram_pa // STEP_BYTES * STEP_BYTES
            if self._base is None or not self._base <= vram_pa < self._base + WINDOW_BYTES:
                self._block.set(self._word, base=base // STEP_BYTES)
                self._base = base
            offset = vram_pa - self._base
            count = min(end - vram_pa, WINDOW_BYTES - offset)
            yield WINDOW + offset, count
            vram_pa += count
