"""The buffer of access counters: registers that say where it is and how far it was read.

Sources: dev_access_counter.h and dev_vm.h of NVIDIA's open kernel modules; uvm_gv100.c and uvm_tu102.c, which use them.
No access is counted, so nothing is ever put into the buffer: a driver that waits for it to be quiet sees that it is.
"""

from __future__ import annotations

from functools import partial

from ringup.autogen.nv import mmu
from ringup.silicon.nv.common.registers import ALL, PRIV_BASE, Registers

ENABLE, PUSHED = 1 << 0, 1 << 1


class AccessCounters:
    """The registers. Turning the buffer on is logged, since no notification will come."""

    def __init__(self, registers: Registers) -> None:
        self._note = registers.note
        cell = partial(registers.cell, base=PRIV_BASE)
        low = cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_LO)
        low.on_write = self._enable
        cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_HI)
        cell(
            mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_SIZE,
            reset=mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_SIZE_HW_ENTRIES,
            fixed=ALL,
        )
        cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_GET)
        cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_PUT, fixed=ALL)
        # not full, and all that was to be written has been
        cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_INFO, reset=PUSHED, fixed=ALL)
        cell(
            mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_CONFIG,
            reset=mmu.NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_CONFIG_THRESHOLD_INIT,
        )

    def _enable(self, value: int) -> None:
        if value & ENABLE:
            self._note("mmu", "unmodelled", "access counters are turned on; no access is counted")
