"""The parts of a card's VRAM that the driver itself uses, by vram_pa: fixed places, so that the next start finds what
this one left.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.drivers.amd.psp.ring import PspBuffers
from ringup.firmware.stated import within

PAGE_BYTES = 4096
MIB = 1 << 20
# GUESS: what the board's own firmware keeps at the top, the discovery table in its last 64 KiB among it: amdgpu takes
# the size from the VBIOS (`fw_reserved_size_in_kb` of atom_firmware_info_v3_4), where tens of MiB were seen
TOP_BYTES = 64 * MIB
TOP_SHARE = 8  # a card with little memory keeps at most this part of it
MIN_POOL_BYTES = 4 * MIB  # tables, rings and queues take less

PSP_BUFFERS = PspBuffers(message=MIB, ring=PAGE_BYTES, command=2 * PAGE_BYTES)


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of one card with `vram_bytes` of memory. `pool` to `end` is free for buffers."""

    vram_bytes: int
    scratch: int = 0  # a page where accesses that went astray end
    psp: PspBuffers = PSP_BUFFERS
    smu_table: int = 16 * PAGE_BYTES  # 16 KiB that the power controller moves its tables through
    metrics: int = 32 * PAGE_BYTES  # a page: the last table of metrics, for who watches the card
    tables: int = 64 * PAGE_BYTES  # the page table through which firmware comes from a bridge's memory: 16 pages
    pool: int = 2 * MIB

    @property
    def end(self) -> int:
        """Where the memory of the board's own firmware begins."""
        return (self.vram_bytes - min(TOP_BYTES, self.vram_bytes // TOP_SHARE)) // MIB * MIB

    def tmr(self, size_bytes: int) -> int:
        """Return where the trusted memory region lies: whole MiB below the end. Raises `FirmwareError` for a size that
        leaves no memory.
        """
        within(
            size_bytes,
            0,
            self.end - self.pool - MIN_POOL_BYTES,
            "the size of the trusted memory region",
            todo="reset the card",
        )
        return self.end - -(-size_bytes // MIB) * MIB
