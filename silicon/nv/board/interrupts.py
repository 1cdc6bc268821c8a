"""The interrupt tree of Turing and later: 8 leaves of 32 vectors (16 from Hopper on), one top register, one message to
the CPU. Turing has the one before it, too.

A source sets its vector's bit in a leaf, whether enabled or not. Bit n of the top is set while leaf 2n or 2n + 1 has an
enabled bit. A message is sent when the enabled part of the top becomes non-zero, and again after the CPU has told the
bus interface that it has taken the last one; from Hopper on, after it has enabled the top.

Sources: dev_vm.h of NVIDIA's open kernel modules; intr_tu102.c, intr_gp100.c; nouveau vfn/tu102.c, pci/gp100.c and
pci/gh100.c.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ringup.autogen.nv import boot, mmu
from ringup.silicon.nv.common.registers import ALL, PRIV_BASE, Cell, Registers


def wire_master(registers: Registers) -> None:
    """Make the tree of Pascal, NV_PMC_INTR. Turing still has it beside the other one, and nvidia.ko switches both.

    NVIDIA's intr_tu102.c has the timer's alarm as its only source on Turing, and drivers that use a GSP do not set that
    alarm; so nothing reports here.
    """

    def enable(cell: Cell, value: int) -> None:
        cell.value |= value

    def disable(cell: Cell, value: int) -> None:
        cell.value &= ~value

    for index in range(registers.count(boot.NV_PMC_INTR_EN)):
        registers.cell(boot.NV_PMC_INTR, index, fixed=ALL)
        enabled = registers.cell(boot.NV_PMC_INTR_EN, index, fixed=ALL)
        registers.cell(boot.NV_PMC_INTR_EN_SET, index).on_write = partial(enable, enabled)
        registers.cell(boot.NV_PMC_INTR_EN_CLEAR, index).on_write = partial(disable, enabled)


class InterruptTree:
    """`send` sends a message to the CPU. `levels`: by vector, whether a source still asks; its bit stays set as long.

    A level that ends leaves nothing behind. Inference: nvidia.ko clears the leaf before it serves the GSP on Turing
    (intrservClearInterrupt), and complains if it is called again with nothing to do (kgspService_TU102).
    """

    def __init__(self, registers: Registers, send: Callable[[], None]) -> None:
        self._send, self._rearms = send, registers.chip.bus.rearms
        self._leaves = registers.count(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF)
        self.levels: dict[int, Callable[[], bool]] = {}
        cell = partial(registers.cell, base=PRIV_BASE)
        self._pending = [0] * self._leaves
        self._enabled = [0] * self._leaves
        self._top_enabled = 0
        self._armed, self._sent = True, False
        for leaf in range(self._leaves):
            pending = cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF, leaf)
            pending.on_read, pending.on_write = partial(self._leaf, leaf), partial(self._clear, leaf)
            on = cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET, leaf)
            on.on_read, on.on_write = partial(self._enables, leaf), partial(self._enable, leaf)
            off = cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR, leaf)
            off.on_read, off.on_write = partial(self._enables, leaf), partial(self._disable, leaf)
        cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP, fixed=ALL).on_read = lambda: self.top
        on = cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET)
        on.on_read, on.on_write = lambda: self._top_enabled, self._enable_top
        off = cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR)
        off.on_read, off.on_write = lambda: self._top_enabled, self._disable_top
        cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_TRIGGER).on_write = lambda value: self.pulse(value & 0xFFF)

    def reset(self) -> None:
        """Forget everything: the chip was reset."""
        self._pending, self._enabled = [0] * self._leaves, [0] * self._leaves
        self._top_enabled = 0
        self._armed, self._sent = True, False

    @property
    def top(self) -> int:
        """The top register: a bit for each pair of leaves with an enabled pending bit."""
        return sum(
            1 << pair
            for pair in range(self._leaves // 2)
            if any(self._leaf(leaf) & self._enabled[leaf] for leaf in (2 * pair, 2 * pair + 1))
        )

    def pulse(self, vector: int) -> None:
        """Set a vector's bit."""
        if vector < 32 * self._leaves:
            self._pending[vector // 32] |= 1 << vector % 32
            self._update()

    def rearm(self) -> None:
        """Allow the next message: the CPU has taken the last one."""
        self._armed, self._sent = True, False
        self._update()

    def _leaf(self, leaf: int) -> int:
        asking = (1 << vector % 32 for vector, asks in self.levels.items() if vector // 32 == leaf and asks())
        return self._pending[leaf] | sum(asking)

    def _enables(self, leaf: int) -> int:
        return self._enabled[leaf]

    def _clear(self, leaf: int, value: int) -> None:
        self._pending[leaf] &= ~value
        self._update()

    def _enable(self, leaf: int, value: int) -> None:
        self._enabled[leaf] |= value
        self._update()

    def _disable(self, leaf: int, value: int) -> None:
        self._enabled[leaf] &= ~value
        self._update()

    def _enable_top(self, value: int) -> None:
        self._top_enabled |= value
        if self._rearms:
            self.rearm()
        else:
            self._update()

    def _disable_top(self, value: int) -> None:
        self._top_enabled &= ~value
        self._update()

    def _update(self) -> None:
        """Send a message if the enabled top has become non-zero."""
        asks = bool(self.top & self._top_enabled)
        if asks and self._armed and not self._sent:
            self._sent, self._armed = True, False
            self._send()
        elif not asks:
            self._sent = False
