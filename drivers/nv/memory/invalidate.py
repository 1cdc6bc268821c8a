"""The MMU's caches of translations, and how they are made invalid. Source: OGKM kern_gmmu_tu102.c,
kgmmuCommitTlbInvalidate_TU102 and kgmmuSetPdbToInvalidate_TU102; Linux nouveau, vmmtu102.c and vmmgh100.c.
"""

from __future__ import annotations

from ringup.autogen.nv.mmu import (
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE,
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB,
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB,
)
from ringup.drivers.nv.bus.registers import VIRTUAL_FUNCTION, Block, Registers

# TIMEOUT: Linux nouveau's own bound, tu102_vmm_flush
INVALIDATE_US = 2_000_000
# it takes a few microseconds, so the first read mostly finds it done
INVALIDATE_POLL_US = 50
# the registers hold an address in 4 KiB, this many bits of it in the lower one
PDB_SHIFT, LOWER_BITS = 12, 28


class MmuCaches:
    """The caches of one card. Address spaces are known by where their root directory lies in VRAM ("PDB")."""

    def __init__(self, registers: Registers) -> None:
        self._block = Block(registers, "the MMU", VIRTUAL_FUNCTION)
        self._name = registers.device.name

    def invalidate(self, root_pa: int, *, hub_only: bool = False) -> None:
        """Make every translation of an address space be looked up again. `hub_only`: only windows use it, no engine.

        Raises `DeviceTimeout`, `DeviceLost`.
        """
        block, page = self._block, root_pa >> PDB_SHIFT
        block.set(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB, addr=page & (1 << LOWER_BITS) - 1)
        block.set(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB, addr=page >> LOWER_BITS)
        block.set(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE, all_va=1, hubtlb_only=int(hub_only), trigger=1)
        block.wait(
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE,
            lambda seen: not seen.trigger,
            INVALIDATE_US,
            f"invalidating the translations of the page tables at {root_pa:#x}",
            poll_us=INVALIDATE_POLL_US,
            advice="; reset the card",
        )
