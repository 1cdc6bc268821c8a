"""PTIMER and the user-mode timer: nanoseconds since the card got power, in steps of 32.

Sources: dev_timer.h, dev_vm.h (NV_VIRTUAL_FUNCTION_TIME_0) of NVIDIA's open kernel modules; nouveau timer/gk20a.c.
"""

from __future__ import annotations

from ringup.autogen.nv import fifo, mmu
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.nv.common.registers import ALL, PRIV_BASE, Registers

STEP_NS = 32


class Timer:
    """The counter, and registers of its alarm, which nobody asks for an interrupt yet."""

    def __init__(self, registers: Registers, clock: VirtualClock) -> None:
        self._clock = clock
        for low, high, base in (
            (fifo.NV_PTIMER_TIME_0, fifo.NV_PTIMER_TIME_1, 0),
            (mmu.NV_VIRTUAL_FUNCTION_TIME_0, mmu.NV_VIRTUAL_FUNCTION_TIME_1, PRIV_BASE),
        ):
            registers.cell(low, 0, base, fixed=ALL).on_read = lambda: self.now_ns & ALL
            registers.cell(high, 0, base, fixed=ALL).on_read = lambda: self.now_ns >> 32
        # cleared by writing 1; an alarm needs an interrupt enable, and no driver sets one
        registers.cell(fifo.NV_PTIMER_INTR_0, clears=ALL)
        registers.cell(fifo.NV_PTIMER_INTR_EN_0).on_write = lambda value: self._enable(value, registers)
        # anybody may write the time
        registers.cell(fifo.NV_PTIMER_TIME_PRIV_LEVEL_MASK, reset=ALL, fixed=ALL)

    @property
    def now_ns(self) -> int:
        """The time, in whole steps."""
        return self._clock.now_ns // STEP_NS * STEP_NS

    def _enable(self, value: int, registers: Registers) -> None:
        if value:
            registers.note("timer", "unmodelled", "the alarm's interrupt is enabled ({:#x}); it never comes", value)
