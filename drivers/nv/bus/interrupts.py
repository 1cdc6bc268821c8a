"""The tree through which the chip's interrupts reach the host: a bit for each vector in the leaves, and a bit for each
two leaves at the top.

A message is sent when an enabled bit appears at the top that was zero. So after one came, the top is disabled, the
leaves' bits are cleared, their engines are served, and the top is enabled again: what came meanwhile sends the next
message. Up to Ada the bus interface, too, sends no message until it was told that the last one was served. Source:
OGKM intr_tu102.c, intr_swintr_tu102.c; kernel_bif_gm107.c, kbifRearmMSI_GM107; kernel_bif.c,
kbifCheckAndRearmMSI_IMPL; dev_vm.h, NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_*; Linux nouveau vfn/tu102.c.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.nv.mmu import (
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF,
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR,
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET,
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP,
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR,
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET,
)
from ringup.drivers.nv.bus.chips import Boot
from ringup.drivers.nv.bus.registers import ONES, VIRTUAL_FUNCTION, Block, Registers

LEAVES_PER_TOP_BIT = 2
VECTORS_PER_LEAF = 32
MAX_LEAVES = 64
# Source: OGKM dev_nv_xve.h, DEVICE_BASE(NV_PCFG) and NV_XVE_CYA_2
CONFIGURATION_MIRROR, NV_XVE_CYA_2 = 0x8_8000, 0x704
Serve = Callable[[], None]


class InterruptTree:
    """The tree of one card. Quiet until a vector is armed."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers
        self._block = Block(registers, "the interrupt tree", VIRTUAL_FUNCTION)
        self._served: dict[int, Serve] = {}

    def arm(self, vector: int, serve: Serve) -> None:
        """Let a vector send messages; `serve` is called for each. Raises a `ValueError` for no vector."""
        if not 0 <= vector < MAX_LEAVES * VECTORS_PER_LEAF:
            raise ValueError(f"an interrupt vector lies below {MAX_LEAVES * VECTORS_PER_LEAF}, not {vector}")
        if not self._served:
            # OGKM intrStateLoad_TU102: older drivers leave leaves enabled
            self.silence()
        leaf, bit = divmod(vector, VECTORS_PER_LEAF)
        self._served[vector] = serve
        self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET, 1 << bit, leaf)
        self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET, self._top_bits())

    def disarm(self, vector: int) -> None:
        """Let a vector send no more messages. Twice is harmless."""
        if self._served.pop(vector, None) is None:
            return
        leaf, bit = divmod(vector, VECTORS_PER_LEAF)
        self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR, 1 << bit, leaf)

    def silence(self) -> None:
        """Disable everything, also what another driver has left."""
        self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR, ONES)
        for leaf in range(self._block.count(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR)):
            self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR, ONES, leaf)
        self._served.clear()

    def serve(self) -> list[int]:
        """Serve what is pending and allow the next message; return the vectors."""
        if not self._served:
            return []
        bits = self._top_bits()
        self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR, bits)
        try:
            top = int(self._block.read(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP))
            pending = [vector for vector in sorted(self._served) if top & self._top_bit(vector) and self._clear(vector)]
            for vector in pending:
                self._served[vector]()
        finally:
            self._rearm()
            self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET, bits)
        return pending

    def _rearm(self) -> None:
        """Let the bus interface send the next message. ORDER: before the top is enabled, whose edge sends it."""
        if self._registers.chip.family.boot is Boot.BOOTER:
            # the value does not matter
            self._registers.write(CONFIGURATION_MIRROR + NV_XVE_CYA_2, 0)

    def _clear(self, vector: int) -> bool:
        """Clear a vector's bit; return whether it was set. ORDER: before its engine is served, or one is lost."""
        leaf, bit = divmod(vector, VECTORS_PER_LEAF)
        if not int(self._block.read(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF, leaf)) & 1 << bit:
            return False
        self._block.set(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF, 1 << bit, leaf)
        return True

    def _top_bits(self) -> int:
        bits = 0
        for vector in self._served:
            bits |= self._top_bit(vector)
        return bits

    @staticmethod
    def _top_bit(vector: int) -> int:
        return 1 << vector // VECTORS_PER_LEAF // LEAVES_PER_TOP_BIT
