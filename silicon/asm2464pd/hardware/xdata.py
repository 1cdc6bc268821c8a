"""The bridge's CPU as its firmware sees it: 64 KiB of XDATA in two pages, including registers, and the one 8051 that
runs handlers.

Source: asm2464pd-firmware registers.h and main.c; DPX selects page 1, the PHY and switch registers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.common.log import EventLog

R = TypeVar("R")
# a handler: each yield keeps the CPU busy for so many microseconds; math.inf: until it is restarted
Job = Generator[float, None, R]
SIZE = 1 << 16
BYTE = 0xFF
BLOCKS = ((0x9000, 0x9400), (0xB200, 0xB800), (0xC000, 0xE800))  # registers in page 0
# the flash controller's buffer. Source: registers.h
UNWRITABLE = (0x7000, 0x8000)


class Xdata:
    """Bytes by page and address, with hooks and masks for writes. The chip uses `get` and `put`; the CPU uses `read`
    and `write`.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._pages = (bytearray(SIZE), bytearray(SIZE))
        self._reset: dict[tuple[int, int], int] = {}
        self._fixed: dict[tuple[int, int], int] = {}
        self._clears: dict[tuple[int, int], int] = {}
        self._read: dict[tuple[int, int], Callable[[], int]] = {}
        self._write: dict[tuple[int, int], Callable[[int], None]] = {}
        # by 256-byte page: start of the window, and its memory
        self._windows: dict[int, tuple[int, memoryview]] = {}
        self._known: set[tuple[int, int]] = set()

    # --- setting up ---------------------------------------------------------------------------------------------
    def storage(self, first: int, last: int, page: int = 0) -> None:
        """Declare `first` to `last` as plain storage."""
        self._known.update((page, address) for address in range(first, last + 1))

    def resets_to(self, address: int, value: int, page: int = 0) -> None:
        """Set a register's reset value, and its current value."""
        self._declare(page, address)
        self._reset[page, address] = self._pages[page][address] = value

    def read_only(self, address: int, bits: int = BYTE, page: int = 0) -> None:
        """Protect `bits` from the CPU's writes."""
        self._fixed[self._declare(page, address)] = bits

    def write_one_clears(self, address: int, bits: int, page: int = 0) -> None:
        """Make a bit clear when a 1 is written, and stay when a 0 is written."""
        self._clears[self._declare(page, address)] = bits

    def on_read(self, address: int, hook: Callable[[], int], page: int = 0) -> None:
        """Return `hook()` for the CPU's reads."""
        self._read[self._declare(page, address)] = hook

    def on_write(self, address: int, hook: Callable[[int], None], page: int = 0) -> None:
        """Call `hook(value)` with the byte that the CPU wrote, once it is stored."""
        self._write[self._declare(page, address)] = hook

    def window(self, first: int, memory: memoryview) -> None:
        """Map memory at `first` of page 0 instead of storage, in multiples of 256 bytes."""
        self._windows.update(dict.fromkeys(range(first >> 8, first + len(memory) >> 8), (first, memory)))
        self.storage(first, first + len(memory) - 1)

    def _declare(self, page: int, address: int) -> tuple[int, int]:
        self._known.add((page, address))
        return page, address

    # --- accesses by the chip -----------------------------------------------------------------------------------
    def get(self, address: int, page: int = 0) -> int:
        """Return the stored byte, without a hook."""
        return self._pages[page][address]

    def put(self, address: int, value: int, page: int = 0) -> None:
        """Store a byte, without a hook, including bits that the CPU cannot change."""
        self._pages[page][address] = value

    def get_bytes(self, first: int, size_bytes: int, page: int = 0) -> bytes:
        """Return stored bytes, without hooks."""
        return bytes(self._pages[page][first : first + size_bytes])

    def put_bytes(self, first: int, data: bytes, page: int = 0) -> None:
        """Store bytes, without hooks."""
        self._pages[page][first : first + len(data)] = data

    def reset(self) -> None:
        """Reset registers to their reset values. The firmware's RAM keeps its contents, as in a restart of the CPU."""
        for page, bank in enumerate(self._pages):
            for first, end in BLOCKS if page == 0 else ((0, SIZE),):
                bank[first:end] = bytes(end - first)
        for (page, address), value in self._reset.items():
            self._pages[page][address] = value

    def lose(self) -> None:
        """Clear everything, as a loss of power does. Memory behind windows belongs to its owner."""
        for bank in self._pages:
            bank[:] = bytes(SIZE)
        self.reset()

    # --- accesses by the CPU ------------------------------------------------------------------------------------
    def read(self, address: int, page: int = 0) -> int:
        """Read a byte as the CPU does."""
        place = page & 1, address & 0xFFFF
        hook = self._read.get(place)
        if hook is not None:
            return hook() & BYTE
        window = self._window(place)
        if window is not None:
            return window[0][window[1]]
        self._log_unmodelled(place)
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
        self._log_unmodelled(place)
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

    def _log_unmodelled(self, place: tuple[int, int]) -> None:
        """Log the first access to a register without a model: here it is only storage."""
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
        """Run a handler after those before it; `done` gets its result."""
        self._waiting.append((job, done))
        self._next()

    def reset(self) -> None:
        """Drop the running handler and the waiting ones."""
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
            # the guest's mistake: the caller that lets time pass gets the error
            self._current = None
            raise
        if self._current is mine and wait_us != math.inf:
            self._timer = self._clock.after(wait_us, self._step)
