"""The card's clock in ns, which stamps are taken of. Source: published/*/dev_vm.h, NV_VIRTUAL_FUNCTION_TIME_0 and _1;
OGKM timer_gh100.c (the high half is read again until it stays).
"""

from __future__ import annotations

from ringup.autogen.nv.mmu import NV_VIRTUAL_FUNCTION_TIME_0, NV_VIRTUAL_FUNCTION_TIME_1
from ringup.drivers.nv.bus.registers import VIRTUAL_FUNCTION, Block, Registers

# the high half changes every 4 s
TRIES = 3


def clock_ns(registers: Registers) -> int:
    """Read the clock. Raises `DeviceLost`."""
    block = Block(registers, "the timer", VIRTUAL_FUNCTION)
    low_at, high_at = block.address(NV_VIRTUAL_FUNCTION_TIME_0), block.address(NV_VIRTUAL_FUNCTION_TIME_1)
    high = registers.read(high_at)
    for _ in range(TRIES):
        low, before = registers.read(low_at), high
        high = registers.read(high_at)
        if high == before:
            break
    return high << 32 | low
