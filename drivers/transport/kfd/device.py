"""The path to one card that amdgpu drives: its nodes, its doorbells and events, mappings of its memory.

It has of the seam's `Device` what a kernel's driver leaves to a program: name, clock, interrupts, and whether the card
is lost. There are no registers.
"""

from __future__ import annotations

import logging
import mmap
from collections import deque
from typing import Final

from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.transport.clock import HostClock
from ringup.drivers.transport.kfd.calls import Event, HwException, MemoryFault, Woken
from ringup.drivers.transport.kfd.process import EVENT_PAGE_VA, SLOT_BYTES, SUSPENDED, Process, own
from ringup.drivers.transport.kfd.topology import Node, gpus
from ringup.drivers.transport.linux.kernel import explained
from ringup.drivers.transport.linux.mapping import put_node
from ringup.drivers.transport.linux.mmio import MappedWindow, WriteCombining
from ringup.errors import DeviceHung, DeviceLost, RingupError

LOG = logging.getLogger(__name__)
US_PER_MS = 1000
# doorbells of a process: 8 bytes for each of its queues. Source: kfd_doorbell.c, kfd_doorbell_process_slice
DOORBELLS_BYTES = 8 * 1024
Happened = MemoryFault | HwException


class KfdEvents:
    """The seam's `Interrupts`: signals of the card's queues, faults and resets wake a sleeping process."""

    def __init__(self, process: Process, device: KfdDevice) -> None:
        self._calls, self._gpu_id = device.calls, device.node.gpu_id
        self.signal = process.signal_event(device.calls, device.gpu)
        self._kinds = {self.signal: Event.SIGNAL}
        with undone_on_error(self.close):
            for kind in (Event.MEMORY, Event.HW_EXCEPTION):
                self._kinds[device.calls.create_event(kind)] = kind
        self._faults = {number: kind for number, kind in self._kinds.items() if kind is not Event.SIGNAL}
        self._happened: deque[Happened] = deque()

    @property
    def slot_va(self) -> int:
        """Where a queue stores something before it interrupts, so that the kernel finds the event."""
        return EVENT_PAGE_VA + self.signal * SLOT_BYTES

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Sleep until the card signals or faults, at most that long, in whole milliseconds. Return (0,) if it did."""
        woken = self._calls.wait_events(self._kinds, max(1, -(-int(timeout_us) // US_PER_MS)))
        self._note(woken)
        return (0,) if woken.came else ()

    def faults(self) -> list[Happened]:
        """Return what happened to this card's work since the last call: faults and resets."""
        self._note(self._calls.wait_events(self._faults, 0))
        found = list(self._happened)
        self._happened.clear()
        return found

    def close(self) -> None:
        """Destroy the events. Twice is harmless."""
        while self._kinds:
            number, _ = self._kinds.popitem()
            try:
                self._calls.destroy_event(number)
            except RingupError as error:
                LOG.info("closing: %s", error)

    def _note(self, woken: Woken) -> None:
        # the events of a process are of all its GPUs
        self._happened.extend(one for one in woken.faults if one.gpu_id == self._gpu_id)
        self._happened.extend(one for one in woken.exceptions if one.gpu_id == self._gpu_id)


class KfdDevice:
    """One card, held by this process; other processes use it too."""

    # the driver that uses it
    driver_module: Final = "ringup.drivers.amd.kfd.card"
    polls_vram: Final = False
    remote: Final = None

    def __init__(self, name: str, node: Node, process: Process | None = None) -> None:
        """Take the card's nodes. Raises what `Process.attach` raises."""
        self.name, self.node, self.kernel = name, node, node.kernel
        self.clock = HostClock()
        self.combining = WriteCombining()
        self._process = process or own()
        self._windows: list[MappedWindow] = []
        self._doorbells: MappedWindow | None = None
        self._lost = self._closed = False
        # the kernel lists a card for the processes that use it, also after its driver has given it up
        self._driver = node.function.driver
        self._others = {other: other.driver for other in (one.function for one in gpus(node.kernel)) if other.driver}
        self.calls, self.gpu = self._process.attach(node, name)
        with undone_on_error(self._leave):
            self.interrupts = KfdEvents(self._process, self)

    @property
    def gpu_id(self) -> int:
        """The kernel's number of the card."""
        return self.node.gpu_id

    @property
    def lost(self) -> bool:
        """Whether the card was unplugged or taken from amdgpu: the kernel no longer lists it, or its driver left it."""
        self._lost = self._lost or not self.node.there or self.node.function.driver != self._driver
        return self._lost

    @property
    def why_lost(self) -> str:
        """For errors once the card is lost, after its name."""
        return "is gone: amdgpu no longer drives it (it was unplugged or unbound); open it again once it does"

    def check(self, doing: str) -> None:
        """Raise `DeviceLost` if the card is lost, and `DeviceHung` if the kernel runs no queue of any card any more.

        QUIRK: when a card is taken from amdgpu (unbound, or its slot switched off), amdkfd takes the queues of all
        processes off all cards, as before a sleep, and never puts them back; nor may a process open /dev/kfd then.
        Source: Linux 6.12 amdgpu_device.c, amdgpu_device_ip_fini_early; kfd_device.c, kgd2kfd_suspend (`kfd_locked`);
        kfd_process.c, kfd_create_process.
        """
        if self.lost:
            raise DeviceLost(f"{doing}: {self.name} {self.why_lost}")
        left = next((other for other, driver in self._others.items() if other.driver != driver), None)
        if left is not None and self._process.suspended:
            self._process.stopped = f"amdgpu was taken from the card at {left.address}, and {SUSPENDED}"
            raise DeviceHung(f"{doing}: no queue runs on {self.name} any more: {self._process.stopped}")

    @property
    def addresses(self) -> dict[tuple[int, int], object]:
        """What hands out addresses of the process's memory, by (start, size in bytes) of the range: the driver's."""
        return self._process.addresses

    @property
    def stopped(self) -> bool:
        """Whether the kernel runs no queue of this process on the card any more."""
        return bool(self.gpu.stopped or self._process.stopped)

    def stop(self, why: str) -> None:
        """Remember that the kernel runs no queue of this process on the card any more."""
        self.gpu.stopped = self.gpu.stopped or why

    def map_memory(self, mmap_offset: int, size_bytes: int, doing: str, over: mmap.mmap | None = None) -> mmap.mmap:
        """Map memory of the card, or host memory that it reaches, into this process. `over`: these reserved pages."""
        if over is None:
            return self.kernel.map(self.gpu.render, size_bytes, doing, start=mmap_offset)
        try:
            put_node(over, self.gpu.render, mmap_offset)
        except OSError as error:
            raise explained(error, doing) from error
        return over

    def doorbell(self, offset: int) -> tuple[MappedWindow, int]:
        """Return the window of this process's doorbells, and the dword index in it of the one that `create_queue` gave.

        The kernel maps all doorbells of a process at once.
        """
        if self._doorbells is None:
            start = offset & ~(DOORBELLS_BYTES - 1)
            self._doorbells = self._window("doorbells", start, DOORBELLS_BYTES)
        return self._doorbells, (offset & DOORBELLS_BYTES - 1) // 4

    def flush_window(self, mmap_offset: int) -> MappedWindow:
        """Return the page of registers that any process may use: they flush the host data path."""
        return self._window("flush registers", mmap_offset, mmap.PAGESIZE)

    def close(self) -> None:
        """Unmap and release everything of this card. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        with Teardown(f"{self.name}: closing", logged=RingupError) as teardown:
            for window in self._windows:
                teardown.attempt(window.close)
            teardown.attempt(self.interrupts.close)
            teardown.attempt(self._leave)

    def _leave(self) -> None:
        self.gpu.in_use = False

    def _window(self, what: str, start: int, size_bytes: int) -> MappedWindow:
        mapping = self.kernel.map(self.calls.node, size_bytes, f"{self.name}: mapping its {what}", start=start)
        window = MappedWindow(
            f"{what} of {self.name}", mapping, size_bytes, memory_like=False, combining=self.combining, combined=False
        )
        self._windows.append(window)
        return window
