"""The bridge's CPU as its firmware sees it: 64 KiB of XDATA in two pages, registers among them, and the one 8051 that
runs handlers.

Source: asm2464pd-firmware registers.h and main.c; page 1 is what DPX selects, the PHY and switch registers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.common.log import EventLog

R = TypeVar("R")
Job = Generator[
    float, None, R
]  # a handler: each yield keeps the CPU busy for so many microseconds; math.inf: until it is restarted
SIZE = 1 << 16
BYTE = 0xFF
BLOCKS = ((0x9000, 0x9400), (0xB200, 0xB800), (0xC000, 0xE800))  # of page 0, where registers are
UNWRITABLE = (0x7000, 0x8000)  # the flash controller's buffer. Source: registers.h


class Xdata:
    """Bytes by page and address, with what a write may change and hooks. `get`, `put`: the chip's own hand; `read`,
    `write`: the CPU's.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._pages = (bytearray(SIZE), bytearray(SIZE))
        self._reset: dict[tuple[int, int], int] = {}
        self._fixed: dict[tuple[int, int], int] = {}
        self._clears: dict[tuple[int, int], int] = {}
        self._read: dict[tuple[int, int], Callable[[], int]] = {}
        self._write: dict[tuple[int, int], Callable[[int], None]] = {}
        self._windows: dict[int, tuple[int, memoryview]] = {}  # by 256 bytes: where one begins, and its memory
        self._known: set[tuple[int, int]] = set()

    # --- setting up ---------------------------------------------------------------------------------------------
    def storage(self, first: int, last: int, page: int = 0) -> None:
        """Say that plain storage is all there is to `first` to `last`."""
        self._known.update((page, address) for address in range(first, last + 1))

    def resets_to(self, address: int, value: int, page: int = 0) -> None:
        """Give a register its value after reset; it takes it at once."""
        self._know(page, address)
        self._reset[page, address] = self._pages[page][address] = value

    def read_only(self, address: int, bits: int = BYTE, page: int = 0) -> None:
        """Make the CPU's writes leave `bits` alone."""
        self._fixed[self._know(page, address)] = bits

    def write_one_clears(self, address: int, bits: int, page: int = 0) -> None:
        """Make a written 1 clear a bit, and a written 0 leave it."""
        self._clears[self._know(page, address)] = bits

    def on_read(self, address: int, hook: Callable[[], int], page: int = 0) -> None:
        """Answer the CPU's reads with what `hook()` returns."""
        self._read[self._know(page, address)] = hook

    def on_write(self, address: int, hook: Callable[[int], None], page: int = 0) -> None:
        """Call `hook(value)` with the byte that the CPU wrote, once it is stored."""
        self._write[self._know(page, address)] = hook

    def window(self, first: int, memory: memoryview) -> None:
        """Put memory at `first` of page 0 in place of storage, whole runs of 256 bytes."""
        self._windows.update(dict.fromkeys(range(first >> 8, first + len(memory) >> 8), (first, memory)))
        self.storage(first, first + len(memory) - 1)

    def _know(self, page: int, address: int) -> tuple[int, int]:
        self._known.add((page, address))
        return page, address

    # --- the chip's own hand ------------------------------------------------------------------------------------
    def get(self, address: int, page: int = 0) -> int:
        """Return what is stored, without a hook."""
        return self._pages[page][address]

    def put(self, address: int, value: int, page: int = 0) -> None:
        """Store a byte, without a hook; bits that the CPU cannot change too."""
        self._pages[page][address] = value

    def get_bytes(self, first: int, size_bytes: int, page: int = 0) -> bytes:
        """Return stored bytes, without hooks."""
        return bytes(self._pages[page][first : first + size_bytes])

    def put_bytes(self, first: int, data: bytes, page: int = 0) -> None:
        """Store bytes, without hooks."""
        self._pages[page][first : first + len(data)] = data

    def reset(self) -> None:
        """Return registers to their reset values; firmware's RAM keeps what it holds, as a restart of the CPU leaves
        it.
        """
        for page, bank in enumerate(self._pages):
            for first, end in BLOCKS if page == 0 else ((0, SIZE),):
                bank[first:end] = bytes(end - first)
        for (page, address), value in self._reset.items():
            self._pages[page][address] = value

    def lose(self) -> None:
        """Forget everything, as the loss of power does; memory behind windows is its owner's."""
        for bank in self._pages:
            bank[:] = bytes(SIZE)
        self.reset()

    # --- the CPU ------------------------------------------------------------------------------------------------
    def read(self, address: int, page: int = 0) -> int:
        """Read a byte as the CPU does."""
        place = page & 1, address & 0xFFFF
        hook = self._read.get(place)
        if hook is not None:
            return hook() & BYTE
        window = self._window(place)
        if window is not None:
            return window[0][window[1]]
        self._look(place)
        return self._pages[place[0]][place[1]]

    def write(self, address: int, value: int, page: int = 0) -> None:
        """Write a byte as the CPU does."""
        place = page & 1, address & 0xFFFF
        window = self._window(place)
        if window is not None:
            window[0][window[1]] = value
            return
        if place[0] == 0 and UNWRITABLE[0] <= place[1] < UNWRITABLE[1]:
            return
        self._look(place)
        bank, at = self._pages[place[0]], place[1]
        old, new = bank[at], value & BYTE
        if clears := self._clears.get(place, 0):
            new = new & ~clears | old & ~new & clears
        if fixed := self._fixed.get(place, 0):
            new = new & ~fixed | old & fixed
        bank[at] = new
        hook = self._write.get(place)
        if hook is not None:
            hook(value & BYTE)

    def _window(self, place: tuple[int, int]) -> tuple[memoryview, int] | None:
        found = self._windows.get(place[1] >> 8) if place[0] == 0 else None
        return None if found is None else (found[1], place[1] - found[0])

    def _look(self, place: tuple[int, int]) -> None:
        """Note the first access to a register that nobody thought about: it is only storage here."""
        if place in self._known:
            return
        self._known.add(place)
        if place[0] == 1 or any(first <= place[1] < end for first, end in BLOCKS):
            self._log.note("bridge", "unmodelled", "XDATA {:#06x} of page {} is only storage", place[1], place[0])


class Cpu:
    """The one 8051: handlers run one after another, in the order in which their interrupts came."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[Job[Any], Callable[[Any], None]]] = deque()
        self._current: tuple[Job[Any], Callable[[Any], None]] | None = None
        self._timer: Timer | None = None

    def run(self, job: Job[R], done: Callable[[R], None] = lambda result: None) -> None:
        """Run a handler once those before it have ended; `done` gets what it returns."""
        self._waiting.append((job, done))
        self._next()

    def reset(self) -> None:
        """Drop the handler that runs and those that wait."""
        self._waiting.clear()
        self._current = None
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._step()

    def _step(self) -> None:
        assert self._current is not None
        job, done = mine = self._current
        try:
            wait_us = next(job)
        except StopIteration as end:
            self._current = None
            done(end.value)
            self._next()
            return
        except BaseException:
            self._current = None  # the guest's mistake: whoever let time pass hears of it
            raise
        if self._current is mine and wait_us != math.inf:
            self._timer = self._clock.after(wait_us, self._step)
