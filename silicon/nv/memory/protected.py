"""VRAM with its write-protected region, WPR2: only signed firmware reaches it once it is up.

Sources: NV_PFB_PRI_MMU_WPR2_ADDR_LO and _HI in dev_fb.h; kgspIsWpr2Up_TU102 (a high end of 0 means that it is down).
"""

from __future__ import annotations

from ringup.autogen.nv import mmu
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import Vram
from ringup.silicon.nv.common.registers import ALL, Registers

# the registers hold units of 4 KiB in bits 31:4; regions begin and end at 128 KiB
UNIT_SHIFT, FIELD_SHIFT = 12, 4
GRANULE = 128 << 10


class ProtectedVram:
    """What the CPU's windows see of VRAM. Firmware uses `vram` itself."""

    def __init__(self, vram: Vram, registers: Registers, log: EventLog) -> None:
        self.vram, self._log = vram, log
        self._low = registers.cell(mmu.NV_PFB_PRI_MMU_WPR2_ADDR_LO, fixed=ALL)
        self._high = registers.cell(mmu.NV_PFB_PRI_MMU_WPR2_ADDR_HI, fixed=ALL)
        # the region, empty while it is down
        self.first = self.end = 0

    def reset(self) -> None:
        """Take the region down: the chip was reset."""
        self.first = self.end = 0

    @property
    def up(self) -> bool:
        """Whether there is a region."""
        return self.end > 0

    def protect(self, first: int, end: int) -> None:
        """Protect a range of VRAM; an empty one takes the region down. GUESS: the high register names the last granule
        of 128 KiB.
        """
        self.first, self.end = (first, end) if end > first else (0, 0)
        self._low.value = self.first >> UNIT_SHIFT << FIELD_SHIFT
        self._high.value = max(0, self.end - GRANULE) >> UNIT_SHIFT << FIELD_SHIFT

    def clear(self, first: int, end: int) -> None:
        """Scrub a range of VRAM."""
        self.vram.clear(first, end)

    def _refused(self, vram_pa: int, size_bytes: int, verb: str) -> bool:
        if vram_pa + size_bytes > self.vram.size_bytes:
            self._log.note("fb", "violation", "{} VRAM {:#x}, which the board does not have", verb, vram_pa)
        elif vram_pa < self.end and vram_pa + size_bytes > self.first:
            self._log.note("fb", "violation", "{} VRAM {:#x}, inside the protected region", verb, vram_pa)
        else:
            return False
        return True

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return bytes to the CPU; all ones where it may not read."""
        if self._refused(vram_pa, size_bytes, "the CPU reads"):
            return b"\xff" * size_bytes
        return self.vram.read(vram_pa, size_bytes)

    def pointer(self, vram_pa: int, size_bytes: int) -> int | None:
        """Return the address in this process of a range that an engine may use, None for another."""
        return None if self._refused(vram_pa, size_bytes, "a shader uses") else self.vram.span.pointer + vram_pa

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Store bytes of the CPU; dropped where it may not write."""
        if not self._refused(vram_pa, len(data), "the CPU writes"):
            self.vram.write(vram_pa, data)
