"""The window in the registers' BAR through which the CPU reaches 1 MiB of VRAM at a time, before page tables exist.

The card has one such window: it serves one thread at a time. Source: OGKM kern_bus_gm107.c, kbusSetBAR0WindowVidOffset;
published/*/dev_bus.h, NV_PBUS_BAR0_WINDOW; Linux nouveau, instmem of nv50 and gh100.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.autogen.nv.boot import NV_PBUS_BAR0_WINDOW, NV_PBUS_BAR0_WINDOW_TARGET_VID_MEM
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.bus.words import NV_XAL_EP_BAR0_WINDOW

# where the window lies in BAR 0, and how far it reaches. Source: NV_PRAMIN of dev_bus.h
PRAMIN, PRAMIN_BYTES = 0x70_0000, 1 << 20
# the window begins at a multiple of this. Source: NV_PBUS_BAR0_WINDOW_BASE_SHIFT
STEP_SHIFT = 16


class Pramin:
    """Whole dwords of VRAM, by vram_pa."""

    def __init__(self, registers: Registers) -> None:
        self._registers, self._block = registers, Block(registers)
        self._newer = self._block.has(NV_XAL_EP_BAR0_WINDOW)
        self._base = -1

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return whole dwords."""
        return b"".join(self._registers.read_run(at, size) for at, size, _ in self._parts(vram_pa, size_bytes))

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Store whole dwords."""
        dwords = memoryview(data).cast("B").cast("I")
        for at, size, offset in self._parts(vram_pa, dwords.nbytes):
            part = dwords[offset // 4 : (offset + size) // 4]
            self._registers.write_run([(at + 4 * index, value) for index, value in enumerate(part)])

    def _parts(self, vram_pa: int, size_bytes: int) -> Iterator[tuple[int, int, int]]:
        """Move the window from part to part; yield the register's address, the part's bytes, and where it begins."""
        if vram_pa % 4 or size_bytes % 4 or vram_pa < 0:
            raise ValueError(f"this window shows whole dwords, not {size_bytes:#x} bytes at {vram_pa:#x}")
        done = 0
        while done < size_bytes:
            at = vram_pa + done
            base = at >> STEP_SHIFT
            if base != self._base:
                self._move(base)
            offset = at - (base << STEP_SHIFT)
            size = min(size_bytes - done, PRAMIN_BYTES - offset)
            yield PRAMIN + offset, size, done
            done += size

    def _move(self, base: int) -> None:
        if self._newer:
            self._block.set(NV_XAL_EP_BAR0_WINDOW, base=base)
        else:
            self._block.set(NV_PBUS_BAR0_WINDOW, base=base, target=NV_PBUS_BAR0_WINDOW_TARGET_VID_MEM)
        self._base = base
