"""A PCI function through the kernel's sysfs files: BARs mapped, physical addresses for DMA, no interrupts, no
protection.

If a card is unplugged while its BARs are mapped, the next access ends the process (SIGBUS): the kernel removes the
mapping. VFIO notifies the process first. Source: Linux PCI/sysfs-pci.rst; ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from typing import Final

from ringup.autogen.linux import pci
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.config_space import NodeConfig, answers, change_command
from ringup.drivers.transport.linux import dma
from ringup.drivers.transport.linux.device import FUNCTION, SLOT, Window
from ringup.drivers.transport.linux.dma import HostMemory
from ringup.drivers.transport.linux.function import Function, Resource, way_up
from ringup.drivers.transport.linux.kernel import Nodes
from ringup.drivers.transport.linux.mmio import FileWindow, MappedWindow, WriteCombining
from ringup.drivers.transport.linux.physical import Pin, runs_of
from ringup.drivers.transport.polling import Polling
from ringup.errors import DeviceLost, RingupError

LOG = logging.getLogger(__name__)
# of `reset_method`, gentle first; "bus" reaches the slot
FUNCTION_RESETS = (
    "flr",
    "af_flr",
    "device_specific",
    "acpi",
    "pm",
)
BUS_RESET = "bus"
ROM_SHOWN, ROM_HIDDEN = "1", "0"
LOW_ADDRESS = pci.PCI_BASE_ADDRESS_MEM_MASK & 0xFFFF_FFFF  # of a BAR's first dword


def stale(function: Function) -> bool:
    """Whether the function has lost the addresses that the kernel assigned: its link went down and came back, or
    another program reset it.

    Its BARs hold other addresses then, or nothing answers at all.
    """
    node = function.kernel.open(function.path / "config", f"looking at pci:{function.address}", os.O_RDONLY)
    try:
        config = NodeConfig(node)
        if not answers(config):
            return True
        held = ((bar.start, config.read(pci.PCI_BASE_ADDRESS_0 + 4 * index)) for index, bar in function.bars().items())
        return any((start ^ value) & LOW_ADDRESS for start, value in held)
    finally:
        os.close(node)


def revive(function: Function) -> None:
    """Make the kernel remove the function and rescan the bus below its bridge, which assigns its addresses again.

    Raises `DeviceLost` when it is not found again. Only for a function without a driver.
    """
    kernel, doing = function.kernel, f"looking for pci:{function.address} anew"
    above = next(function.above(), None)
    rescan = (above.path if above else kernel.path("sys/bus/pci")) / "rescan"
    kernel.write(function.path / "remove", "1", doing)
    kernel.write(rescan, "1", doing)
    if not function.there or stale(function):
        raise DeviceLost(f"{doing}: nothing answers at its place on the bus; check power and cable")
    LOG.warning("pci:%s had lost its addresses and was given them anew", function.address)


class SysfsWay:
    """Files of one function. `close` restores power control, `enable` and `reset_method`."""

    shown: Final = "sysfs"

    def __init__(self, function: Function) -> None:
        self._function, self._kernel = function, function.kernel
        self._doing = f"opening pci:{function.address}"
        self.interrupts = Polling(HostClock())
        # files that were written, with their old contents; newest last
        self._undo: list[tuple[str, str]] = []
        self._nodes = Nodes(self._kernel, self._doing)
        self._combining = WriteCombining()
        with undone_on_error(self.close):
            self.config = NodeConfig(self._open("config"))
            self._wake()
            # ORDER: after the kernel has enabled the function, which enables line interrupts. Nothing handles them
            # here, and the kernel disables a line that stays asserted for all its devices. Source: Linux
            # do_pci_enable_device, __report_bad_irq
            change_command(self.config, on=pci.PCI_COMMAND_INTX_DISABLE)

    @property
    def revoked(self) -> bool:
        """Whether the function has left sysfs."""
        return not self._function.there

    def map_windows(self) -> tuple[dict[int, Window], Window | None]:
        """Map every memory BAR; the ROM is read through its file, switched on while it is.

        A small BAR that begins inside a page is left out: a mapping would show its neighbour. Writes are combined in
        the largest prefetchable BAR alone, the card's memory: others of that kind hold doorbells, and one that is kept
        back rings late.
        """
        bars: dict[int, Window] = {}
        rows = self._function.bars()
        prefetchable = [(bar.size_bytes, -index) for index, bar in rows.items() if bar.prefetchable]
        memory = -max(prefetchable)[1] if prefetchable else None
        for index, bar in rows.items():
            if bar.start % mmap.PAGESIZE:
                LOG.warning("BAR %d of %s begins inside a page and cannot be mapped", index, self._function.address)
            else:
                bars[index] = self._map(bar, memory=index == memory)
        return bars, self._rom()

    def alloc_host(self, size_bytes: int) -> HostMemory:
        """Return pinned pages with their physical addresses."""
        return dma.lend_own(size_bytes, self._lend)

    def pin(self, buffer: memoryview) -> HostMemory:
        """Pin the caller's pages in place."""
        return dma.lend_callers(buffer, self._lend)

    def reach(self, start: int, view: memoryview) -> HostMemory:
        """Give the card the physical address: the host looks at no request between two functions here."""
        return HostMemory(view, [(start, len(view))], lambda: None)

    def bar_start(self, bar: int) -> int:
        """Return the address of a BAR that the kernel has assigned."""
        return self._function.bars()[bar].start

    def resets(self) -> tuple[str, ...]:
        """Return the names of the kernel's resets; empty where the function has none."""
        offered = self._methods()
        slot = self._slot_file() or BUS_RESET in offered
        return (*([FUNCTION] if set(offered) & set(FUNCTION_RESETS) else []), *([SLOT] if slot else []))

    def reset(self, method: str) -> None:
        """Make the kernel reset the function; it saves and restores its configuration space."""
        doing = f"resetting pci:{self._function.address} ({method})"
        if method == SLOT and (bridge := self._slot_file()):
            self._kernel.write(bridge.path / "reset_subordinate", "1", doing)
            return
        offered = self._methods()
        kind = BUS_RESET if method == SLOT else next(kind for kind in FUNCTION_RESETS if kind in offered)
        self._kernel.write(self._function.path / "reset_method", kind, doing)
        try:
            self._kernel.write(self._function.path / "reset", "1", doing)
        finally:
            self._kernel.write(self._function.path / "reset_method", " ".join(offered), doing)

    def dma_state(self) -> str:
        """Say how the IOMMU treats the physical addresses that the card is given, and which bridges are shut."""
        kind = self._function.group_type
        iommu = (
            f"the IOMMU is in mode {kind!r} and the card is given physical addresses" if kind else "no IOMMU is seen"
        )
        return "; ".join(filter(None, (iommu, way_up(self._function))))

    def close(self) -> None:
        """Restore the files. Twice is harmless."""
        while self._undo:
            name, text = self._undo.pop()
            with contextlib.suppress(RingupError):  # the function may be gone
                self._kernel.write(self._function.path / name, text, "closing")
        self._nodes.close()

    def _wake(self) -> None:
        """Keep the function out of runtime suspend, and make the kernel enable it: that brings it to D0 and enables its
        BARs.
        """
        path = self._function.path
        control = self._kernel.text(path / "power/control")
        if control == "auto":
            self._kernel.write(path / "power/control", "on", self._doing)
            self._undo.append(("power/control", control))
        if self._kernel.text(path / "enable") == "0":
            self._kernel.write(path / "enable", "1", self._doing)
            self._undo.append(("enable", "0"))

    def _map(self, bar: Resource, *, memory: bool) -> MappedWindow:
        name = f"resource{bar.index}"
        combined = memory and (self._function.path / f"{name}_wc").exists()
        node = self._open(f"{name}_wc" if combined else name)
        remedy = "another driver may have claimed the range: see /proc/iomem, and boot with iomem=relaxed"
        mapping = self._kernel.map(node, bar.size_bytes, f"{self._doing}: mapping BAR {bar.index}", remedy)
        return MappedWindow(
            f"BAR {bar.index} of {self._function.address}",
            mapping,
            bar.size_bytes,
            memory_like=bar.prefetchable,
            combining=self._combining,
            combined=combined,
        )

    def _rom(self) -> Window | None:
        path = self._function.path / "rom"
        try:
            size = path.stat().st_size
        except OSError:
            return None
        if not size:
            return None
        self._kernel.write(path, ROM_SHOWN, self._doing)
        self._undo.append(("rom", ROM_HIDDEN))
        return FileWindow(f"ROM of {self._function.address}", self._open("rom", os.O_RDONLY), 0, size, writable=False)

    def _open(self, name: str, flags: int = os.O_RDWR) -> int:
        return self._nodes.open(self._function.path / name, flags)

    def _lend(self, anchor: dma.Anchor, size_bytes: int) -> tuple[list[dma.Run], dma.Release]:
        pin = Pin(self._kernel, anchor.address, size_bytes, huge=anchor.huge)
        with undone_on_error(pin.release):
            return runs_of(self._kernel, anchor.address, size_bytes), pin.release

    def _methods(self) -> list[str]:
        return self._kernel.text(self._function.path / "reset_method").split()

    def _slot_file(self) -> Function | None:
        """Return the bridge whose subordinate bus the kernel can reset (Linux 6.13), if no other device is on that
        bus.
        """
        bridge = next(self._function.above(), None)
        if bridge is None or not (bridge.path / "reset_subordinate").exists():
            return None
        slot = self._function.address.rpartition(".")[0]
        here = [name for name in self._kernel.names(bridge.path.resolve()) if name.rpartition(".")[0] == slot]
        mates = [Function(self._kernel, name) for name in here]
        return bridge if all(not mate.driver for mate in mates) else None
