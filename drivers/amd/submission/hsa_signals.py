"""Signals of HSA: 64-bit values in memory that packets wait for and change, with the times of the packet that did it.

A card's signals lie in pages that all its queues reach; each page has room for 63. Host and card both store values.
The card stores the times, before the value, and then interrupts the host. Before it interrupts, it stores a number in
the signal's mailbox. Where a kernel driver wakes the process, that is the slot of an event. Else the mailbox is the
first slot of the page, the number is the signal's, and nobody reads it. Source: AMD's amd_hsa_signal.h; LLVM
AMDGPUUsage, "Signals"; ROCr interrupt_signal.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.memory.access import Access
from ringup.drivers.poll import Poller
from ringup.drivers.submission.queue_memory import UserSpace
from ringup.errors import NotSupported
from ringup.queues.amd.aql import SIGNED, Condition, number
from ringup.queues.amd.hsa_objects import END_BYTE, SIGNAL_BYTES, START_BYTE, VALUE_BYTE, signal_object
from ringup.queues.amd.packets import KernelEvent

PAGE_BYTES = 4096
TICKS_PER_US = 100  # of the reference clock
VALUE = struct.Struct("<q")
MEETS: dict[Condition, Callable[[int, int], bool]] = {
    Condition.EQ: lambda value, wanted: value == wanted,
    Condition.NE: lambda value, wanted: value != wanted,
    Condition.LT: lambda value, wanted: value < wanted,
    Condition.GTE: lambda value, wanted: value >= wanted,
}


class Signal:
    """One signal. Packets name it by `gpu_va`, its handle. Free it when no submitted packet uses it any more."""

    def __init__(self, pages: HsaSignals, page: _Page, slot: int, name: str) -> None:
        """`HsaSignals.make` makes it."""
        self.name = name
        self._pages, self._page, self._slot = pages, page, slot
        self._at = slot * SIGNAL_BYTES
        # how it was lost; empty while it is there
        self._gone = ""

    def __repr__(self) -> str:
        return f"<signal {self.name or hex(self._page.gpu_va + self._at)}>"

    @property
    def where(self) -> Where:
        """The memory in which it lies."""
        return self._page.where

    @property
    def gpu_va(self) -> int:
        """Its address for the card."""
        self.check()
        return self._page.gpu_va + self._at

    @property
    def value_va(self) -> int:
        """The address of its value, 64 bits: for packets of other queues."""
        return self.gpu_va + VALUE_BYTE

    def check(self) -> None:
        """Raise a `ValueError` if its memory was given back, or if another thread than the card's owner calls."""
        self._pages.admit()
        if not self._gone and self._page.buffer.freed:
            self._gone = "its card was closed, or lost its memory"
        if self._gone:
            raise ValueError(f"{self!r} is gone: {self._gone}; make another")

    @property
    def value(self) -> int:
        """The value now, signed."""
        self.check()
        value = self._read(VALUE_BYTE)
        return value - (value >> 63 << 64)

    @value.setter
    def value(self, value: int) -> None:
        self.check()
        self._page.access.write(
            self._at + VALUE_BYTE, VALUE.pack(number(value, "a signal's value", -SIGNED, SIGNED - 1))
        )
        self._pages.flush(self.where)

    @property
    def start_ticks(self) -> int:
        """When the packet began that changed it last, on the card's clock of 100 MHz; 0 for none."""
        self.check()
        return self._read(START_BYTE)

    @property
    def end_ticks(self) -> int:
        """When that packet ended."""
        self.check()
        return self._read(END_BYTE)

    @property
    def duration_us(self) -> float:
        """How long that packet ran."""
        return (self.end_ticks - self.start_ticks) / TICKS_PER_US

    def _read(self, byte: int) -> int:
        return int.from_bytes(self._page.access[self._at + byte : self._at + byte + 8], "little")

    def wait(self, condition: Condition = Condition.EQ, value: int = 0, timeout_s: float = 10.0) -> int:
        """Wait until the value compares with `value` as `condition` says, and return it.

        Raises `DeviceTimeout` after `timeout_s` of the card's clock, or the card's error.
        """
        self.check()
        condition = Condition(condition)
        met, last = MEETS[condition], [0]

        def look() -> bool:
            last[0] = self.value
            return met(last[0], value)

        self._pages.poller.until(
            look,
            lambda: f"waiting for {self!r} to be {condition.name} {value}: it stood at {last[0]}",
            round(timeout_s * 1e6),
        )
        return last[0]

    def free(self) -> None:
        """Give the memory back; twice is harmless."""
        self._pages.admit()
        if not self._gone:
            self._gone = "it was freed"
            self._page.taken.pop(self._slot, None)


class _Page:
    """A page of signals."""

    def __init__(self, buffer: Buffer, access: Access, where: Where) -> None:
        self.buffer, self.access, self.where = buffer, access, where
        self.gpu_va = buffer.gpu_va
        self.taken: dict[int, Signal] = {}

    def free_slot(self) -> int | None:
        return next((slot for slot in range(1, PAGE_BYTES // SIGNAL_BYTES) if slot not in self.taken), None)


class HsaSignals:
    """The signals of one card."""

    def __init__(
        self,
        space: UserSpace,
        poller: Poller,
        where: Where,
        flush_hdp: Callable[[], None],
        *,
        interrupts: bool,
        event: KernelEvent | None = None,
    ) -> None:
        """`where`: the memory that both sides reach: "host" if there is such memory, else "vram". `interrupts`: the
        card interrupts the host when it has changed a signal. `event`: of the kernel driver that gets the interrupt.
        """
        self.poller = poller
        self._space, self._where, self._flush_hdp, self._interrupts = space, where, flush_hdp, interrupts
        self._event = event
        self._pages: list[_Page] = []

    def make(self, value: int, where: Where | None = None, name: str = "") -> Signal:
        """Return a signal with this value. `where` is by default the memory that the host reads faster.

        Raises `NotSupported` for host memory on a path where the card has none, and `OutOfMemory`.
        """
        number(value, "a signal's value", -SIGNED, SIGNED - 1)
        where = where or self._where
        if where not in ("host", "vram"):
            raise ValueError(f'a signal lies in "host" or "vram", not in {where!r}')
        if where == "host" and self._where != "host":
            raise NotSupported('the card reaches no memory of the host on this path: let signals lie in "vram"')
        page = next((one for one in self._pages if one.where == where and one.free_slot() is not None), None)
        if page is None:
            page = self._new_page(where)
        slot = page.free_slot()
        assert slot is not None  # the page has one
        signal = page.taken[slot] = Signal(self, page, slot, name)
        page.access.write(slot * SIGNAL_BYTES, signal_object(value, *self._mailbox(page, slot)))
        self.flush(where)
        return signal

    def _mailbox(self, page: _Page, slot: int) -> tuple[int, int]:
        """Return what the card stores when it has changed a signal: where, and which number."""
        if self._event is not None:
            return self._event
        return (page.gpu_va, slot) if self._interrupts else (0, 0)

    def admit(self) -> None:
        """Raise a `ValueError` if another thread than the card's owner calls."""
        self._space.admit()

    def _new_page(self, where: Where) -> _Page:
        buffer = self._space.alloc(PAGE_BYTES, where, visible=True, name="HSA signals", cached=False)
        page = _Page(buffer, self._space.access(buffer), where)
        if where == "vram":
            page.access.write(0, bytes(PAGE_BYTES))
        self._pages.append(page)
        return page

    def flush(self, where: Where) -> None:
        """Let what the host has stored arrive, before the card is told of anything."""
        if where == "vram":
            self._flush_hdp()

    def at(self, gpu_va: int) -> Signal | None:
        """Return the signal at an address, None if there is none."""
        for page in self._pages:
            slot, rest = divmod(gpu_va - page.gpu_va, SIGNAL_BYTES)
            if not rest and slot in page.taken:
                return page.taken[slot]
        return None
