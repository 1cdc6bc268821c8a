"""The host data path: the CPU's writes through BAR 0 wait here until a flush, or until the buffer drains after some
time. Engines do not see them before.

UNKNOWN: how long a write waits on metal, so a driver must not rely on it. When the host starts an engine (a doorbell, a
ring pointer, an invalidation), bytes written since the last flush are logged, however slow the host is. Those still in
the buffer are marked. An engine that reads marked bytes is a violation, even if the buffer has drained by then. A flush
clears the marks.

Two cases are only logged, because a driver that does them works on metal (tinygrad); a test can make them violations.
`slow_listeners`: MP0 and MP1 read late, and drivers write their mailboxes and ring pointers without a flush (AM_PSP).
`forgives_left`: bytes that drained before the doorbell, as over a USB bridge, where each request takes 20 us (is_usb).

Source: amdgpu hdp_v6_0.c, nbio_v4_3.c; depth and delay of the buffer are not public. Drivers that notify a slow
listener (the security processor's mailbox) without a flush work on metal, which shows that the buffer drains by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringup.silicon.amd.common.parts import Board
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.clock import Timer
from ringup.silicon.common.memory import PAGE

# UNKNOWN: metal's time; long enough that a doorbell right after the write finds stale memory
DRAIN_US = 10.0
# UNKNOWN: metal's size; older writes drain when newer ones need the space
BUFFER_PAGES = 64
# registers of the engines that read late
SLOW = ("MP0_", "MPASP_", "MP1_")
# the mask of a page whose bytes were all written
WHOLE = b"\1" * PAGE


class Hdp:
    """The write buffer between BAR 0 and VRAM. Reads through the BAR see it; engines see VRAM.

    `drain_us`: how long a write waits without a flush; None: for ever, for tests of missing flushes. `coherent`: VRAM
    itself is mapped (by a virtual machine, `map()`), so nothing can be held back.
    """

    def __init__(self, board: Board) -> None:
        self._vram, self._clock, self._log = board.vram, board.clock, board.log
        self.cells = Cells(board.chip, "hdp")
        board.space.attach(self.cells)
        self.coherent = False
        self.flushes = 0
        self.drain_us: float | None = DRAIN_US
        self._timer: Timer | None = None
        # by page: bytes, and a mask of the written ones
        self._held: dict[int, tuple[bytearray, bytearray]] = {}
        # by page: mask of bytes that drained without a flush
        self._left: dict[int, bytes | bytearray] = {}
        # by page: mask of bytes not flushed before a kick
        self._marked: dict[int, bytes | bytearray] = {}
        self._kick = ""
        self.slow_listeners = self.forgives_left = True

    def reset(self) -> None:
        """Drop the waiting writes."""
        self.cells.reset()
        self._held.clear()
        self._forget()
        self._stop()

    @property
    def holds(self) -> int:
        """How many bytes wait."""
        return sum(mask.count(1) for _, mask in self._held.values())

    def flush(self) -> None:
        """Write everything that waits to VRAM."""
        self.flushes += 1
        self._empty()
        self._forget()

    def _forget(self) -> None:
        """Mark everything as flushed."""
        self._left.clear()
        self._marked.clear()
        self._vram.on_fetch = None

    def kick(self, how: str, *values: object) -> None:
        """Mark unflushed bytes: the host starts an engine, as `how` and `values` describe."""
        if not self._held and not self._left:
            return
        self._kick = how.format(*values)
        waiting = [(page, held[1]) for page, held in self._held.items()]
        unflushed = [*waiting, *self._left.items()]
        waits = sum(mask.count(1) for _, mask in unflushed)
        if not (self.slow_listeners and self._kick.startswith(SLOW)):
            for page, mask in waiting if self.forgives_left else unflushed:
                self._marked[page] = _union(self._marked.get(page), mask)
            self._vram.on_fetch = self._fetched
        self._log.note("hdp", "unflushed", "{} bytes written by the host were not flushed at {}", waits, self._kick)

    def _fetched(self, vram_pa: int, size_bytes: int, client: str) -> None:
        """Check an engine's read for marked bytes; each is reported once."""
        for page, start, _, count in _pages(vram_pa, size_bytes):
            mask = self._marked.get(page)
            if mask is not None and (at := mask.find(1, start, start + count)) >= 0:
                del self._marked[page]
                self._log.note(
                    "hdp", "violation", "{} reads vram_pa {:#x}, which the host wrote and did not flush before {}",
                    client, page * PAGE + at, self._kick,
                )  # fmt: skip

    def _empty(self) -> None:
        self._stop()
        while self._held:
            self._drain(next(iter(self._held)))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def write(self, vram_pa: int, data: bytes | memoryview) -> None:
        """Handle a write from the bus."""
        if self.coherent:
            self._vram.write(vram_pa, data)
            return
        for page, start, first, count in _pages(vram_pa, len(data)):
            held = self._held.pop(page, None) or (bytearray(PAGE), bytearray(PAGE))
            held[0][start : start + count] = data[first : first + count]
            held[1][start : start + count] = b"\1" * count
            self._held[page] = held
        if self._timer is None and self.drain_us is not None:
            self._timer = self._clock.after(self.drain_us, self._empty)
        while len(self._held) > BUFFER_PAGES:
            self._drain(next(iter(self._held)))

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Handle a read from the bus."""
        data = self._vram.read(vram_pa, size_bytes)
        if not self._held:
            return data
        merged = bytearray(data)
        for page, start, first, count in _pages(vram_pa, size_bytes):
            if (held := self._held.get(page)) is not None:
                for lo, hi in _runs(held[1], start, start + count):
                    merged[first + lo - start : first + hi - start] = held[0][lo:hi]
        return bytes(merged)

    def map(self, size_bytes: int) -> memoryview:
        """Return VRAM itself. From now on nothing is held back: reads through the mapping would not see it."""
        self.flush()
        self.coherent = True
        return self._vram.view[:size_bytes]

    def _drain(self, page: int) -> None:
        data, mask = self._held.pop(page)
        self._left[page] = _union(self._left.get(page), mask)
        for lo, hi in _runs(mask, 0, PAGE):
            self._vram.write(page * PAGE + lo, memoryview(data)[lo:hi])


def _union(one: bytes | bytearray | None, other: bytes | bytearray) -> bytes | bytearray:
    """Return the union of two masks; completely written pages share one mask."""
    if one is WHOLE or other is WHOLE or 0 not in other:
        return WHOLE
    if one is None:
        return bytearray(other)
    both = int.from_bytes(one) | int.from_bytes(other)
    return both.to_bytes(PAGE)


def _pages(vram_pa: int, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Split a range at pages: page, offset in it, offset in the range, length."""
    done = 0
    while done < size_bytes:
        page, start = divmod(vram_pa + done, PAGE)
        count = min(PAGE - start, size_bytes - done)
        yield page, start, done, count
        done += count


def _runs(mask: bytearray, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of written bytes."""
    while (lo := mask.find(1, start, end)) >= 0:
        hi = mask.find(0, lo, end)
        start = end if hi < 0 else hi
        yield lo, start
