"""Bytes between the host and a card behind a bridge: through the bridge's own memory, which its bus fills and drains at full rate.

That a fill has been sent does not mean that its bytes are there: each has a mark behind them, which the copy engine waits for before it copies.
Windows of the memory take turns, and the engine tells how many fills it has emptied. A drain is armed by the host, told to the engine by the
word `go`, and let out by the engine's write to the bridge.

UNKNOWN: what the bridge's memory held before the first fill. A mark that stood there by chance would let bytes go early, so marks begin
anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ringup.drivers.amd.signals import Signals
from ringup.drivers.transport.seam import Bulk, Clock
from ringup.errors import DeviceHung, DeviceLost, DeviceTimeout, RingupError
from ringup.queues.packets import Compare
from ringup.queues.timeline import Point, copy_of

SECTOR_BYTES, MARK = 512, struct.Struct("<I")
FILLS_AT_ONCE, DRAINS_AT_ONCE = 128, 128  # of one submission
CALLED = 28  # steps from which on their commands go through the bridge's memory too: into the ring they go by a window, at 3.6 MB/s
TIMEOUT_US = 10_000_000  # TIMEOUT: ours; a fill takes the slowest link, USB2, 15 ms
RELEASE = 0  # what is written to let a drain out: any value does
SPREAD = 0x9E37_79B1  # an odd number: two processes that begin at like times begin with unlike marks
# How long the engine rests between two looks, in cycles of 100 MHz. UNKNOWN: its clock is a guess. A look at a mark is a read on the bus
# that a fill's bytes come over; the host's word takes a request of a dozen microseconds to come
MARK_POLL, GO_POLL = 100, 250
EMPTYING_US = 40  # between two looks at how far the engine is, while the next fill takes ten times as long
LOW, HALF = 0xFFFF_FFFF, 1 << 31


@dataclass(slots=True)
class _Fill:
    """Bytes for a window, and behind them, at the end of the last sector, the mark."""

    start: int
    piece: memoryview
    mark: int

    @property
    def size_bytes(self) -> int:
        return -(-(len(self.piece) + MARK.size) // SECTOR_BYTES) * SECTOR_BYTES

    @property
    def mark_at(self) -> int:
        return self.start + self.size_bytes - MARK.size

    def at(self, place: int) -> bytes:
        """Return the dword that it puts at a place, nothing where it does not reach."""
        if not self.start <= place <= self.mark_at:
            return b""
        piece = bytes(self.piece[place - self.start :][: MARK.size])
        return MARK.pack(self.mark) if place == self.mark_at else piece.ljust(MARK.size, b"\0")

    def image(self) -> bytearray:
        """Return what is sent."""
        image = bytearray(self.size_bytes)
        image[: len(self.piece)] = self.piece
        MARK.pack_into(image, len(image) - MARK.size, self.mark)
        return image


class Bounce:
    """The way through a bridge's memory for one card; its copy queues use it in turn."""

    def __init__(
        self,
        bulk: Bulk,
        memory_va: int,
        release_va: int | None,
        progress_va: int | None,
        signals: Signals,
        clock: Clock,
        flush: Any,
    ) -> None:
        """The bridge's memory, release word and progress word in the address space of the queues, the words where the bridge has them.

        `flush()` makes what the host stored among the signals reach the card.
        """
        self._bulk, self._memory_va = bulk, memory_va
        self._release_va, self._progress_va = release_va, progress_va
        self._signals, self._clock, self._flush = signals, clock, flush
        self._go = signals.take()
        self._told = 0  # what `go` stands at
        self.broken: RingupError | None = None  # why nothing is moved any more
        self._tag = clock.now_us * SPREAD & LOW
        # what the memory holds, as far as the host knows: no mark may stand there already
        self._shadow = bytearray(bulk.size_bytes)
        # sent, and known to be emptied; the word goes on from where another process left it
        self._fills = self._emptied = self._seen()
        self._last: Point | None = None  # where all of them are emptied

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Move all, or refuse all that follows: an engine that was left waiting for bytes is well again after a reset."""
        if self.broken is not None:
            raise copy_of(self.broken)
        try:
            yield
        except DeviceLost as error:
            self.broken = error
            raise
        except BaseException as error:
            self.broken = DeviceHung(
                f"moving bytes through the bridge's memory: a copy ended half-way ({type(error).__name__}: {error}); "
                "reset the card, or close it and open it again"
            )
            raise

    def forget(self) -> None:
        """Go on after a reset of an engine: what it was to empty is lost."""
        self.broken = None
        self._fills = self._emptied = self._seen()
        self._last = None

    def _seen(self) -> int:
        return self._bulk.progress() if self._progress_va is not None else 0

    # --- to the card ------------------------------------------------------------------------------------------------
    def upload(self, queue: Any, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data` to `target_va` and send it; it may change afterwards. Returns the last point, None for no bytes."""
        with self._whole():
            return self._upload_all(queue, target_va, data)

    def _upload_all(self, queue: Any, target_va: int, data: memoryview) -> Point | None:
        windows = self._bulk.windows
        point, at = None, 0
        while at < len(data):
            fills: list[tuple[range, memoryview]] = []
            while at < len(data) and len(fills) < (FILLS_AT_ONCE if self._progress_va is not None else 1):
                window = windows[len(fills) % len(windows)]
                fills.append((window, data[at : at + len(window) - MARK.size]))
                at += len(fills[-1][1])
            point = self._upload(queue, target_va, fills)
            target_va += sum(len(piece) for _, piece in fills)
        return point

    def _upload(self, queue: Any, target_va: int, pieces: list[tuple[range, memoryview]]) -> Point:
        """Send some fills. The engine empties one window while the next is filled."""
        if len(pieces) > 1 or self._progress_va is None:
            queue.clear()  # or a window would wait for what the queue waits for, however long that is
        self._wait_until_emptied(self._fills)
        stream, fills = queue.stream(), self._marked(pieces)
        first = self._fills + (self._progress_va is not None and len(fills) >= CALLED)  # the commands' own fill is one
        for number, fill in enumerate(fills, 1):
            stream.append(
                stream.sdma.wait_mem(self._memory_va + fill.mark_at, fill.mark, compare=Compare.EQUAL, poll=MARK_POLL)
            )
            stream.copy(target_va, self._memory_va + fill.start, len(fill.piece))
            target_va += len(fill.piece)
            stream.barrier()
            if self._progress_va is not None:
                stream.append(stream.sdma.fence(self._progress_va, first + number & LOW))
        self._last = point = self._submit(queue, stream, len(fills))
        ahead = min(len(fills), len(self._bulk.windows))
        for number, fill in enumerate(fills, 1):
            self._bulk.settle(ahead - 1)
            self._wait_until_emptied(first + max(0, number - ahead), EMPTYING_US)
            self._fills += self._progress_va is not None
            image = fill.image()
            self._bulk.fill(fill.start, image)
            self._shadow[fill.start : fill.start + len(image)] = image
        if self._progress_va is None:
            point.wait()
        return point

    def _marked(self, pieces: list[tuple[range, memoryview]]) -> list[_Fill]:
        """Give every piece a mark that does not stand at its place already when it is sent."""
        fills: list[_Fill] = []
        for window, piece in pieces:
            self._tag = self._tag + 1 & LOW
            fill = _Fill(window.start, piece, self._tag)
            sent = (before.at(fill.mark_at) for before in reversed(fills) if before.start == window.start)
            there = next(filter(None, sent), bytes(self._shadow[fill.mark_at :][: MARK.size]))
            if MARK.pack(self._tag) == there:
                self._tag = fill.mark = self._tag + 1 & LOW
            fills.append(fill)
        return fills

    def _submit(self, queue: Any, stream: Any, steps: int) -> Point:
        """Submit commands of so many fills or drains; long ones are put into memory first.

        That takes a fill of its own, which changes nothing at the places of the other fills' marks: those lie at the end of a window.
        """

        def put(gpu_va: int, data: bytes | bytearray) -> None:
            self._upload(queue, gpu_va, [(self._bulk.windows[0], memoryview(data))]).wait()

        point: Point = queue.submit(stream, put=put if self._progress_va is not None and steps >= CALLED else None)
        return point

    def _wait_until_emptied(self, count: int, rest_us: int = 0) -> None:
        """Wait until the engine has told that it emptied so many fills."""
        last = self._last
        if last is not None and count == self._fills and last.timeline.known >= last.value:
            self._emptied = count
        end_us = self._clock.now_us + TIMEOUT_US
        while self._emptied - count & LOW > HALF:
            late = self._clock.now_us > end_us
            if rest_us:
                self._clock.sleep_us(rest_us)
            self._emptied = self._bulk.progress()
            if late and self._emptied - count & LOW > HALF:
                raise DeviceTimeout(
                    f"emptying the bridge's memory: the copy engine stood at {self._emptied} of {count & LOW} fills for {TIMEOUT_US / 1e6:g} s"
                )

    # --- from the card ----------------------------------------------------------------------------------------------
    def download(self, queue: Any, source_va: int, out: memoryview) -> None:
        """Copy from `source_va` into `out` and wait until all is there."""
        if len(out):
            with self._whole():
                self._download_all(queue, source_va, out)

    def _download_all(self, queue: Any, source_va: int, out: memoryview) -> None:
        queue.clear()  # a drain that is armed cannot be taken back, so nothing may keep the engine from letting it out
        self._wait_until_emptied(self._fills)
        if self._release_va is None:
            self._download_by_turns(queue, source_va, out)
            return
        if (
            self._told > HALF
        ):  # no engine waits for a count now, and none may be asked to wait across the wrap of the word
            self._told = 0
            self._signals.store_low(self._go, 0)
        most = DRAINS_AT_ONCE * self._bulk.drain_bytes
        for start in range(0, len(out), most):
            self._download(queue, source_va + start, out[start : start + most], self._release_va)

    def _download(self, queue: Any, source_va: int, out: memoryview, release_va: int) -> None:
        """A memoryful at a time: filled by the engine, then drained."""
        stream, room = queue.stream(), self._bulk.drain_bytes
        drains = [out[start : start + room] for start in range(0, len(out), room)]
        for number, drain in enumerate(drains):
            armed = stream.sdma.wait_mem(
                self._signals.gpu_va(self._go), self._told + number + 1, compare=Compare.GREATER_EQUAL, poll=GO_POLL
            )
            if number:
                stream.append(armed)  # what the memory held before was received
            stream.copy(self._memory_va, source_va, len(drain))
            source_va += len(drain)
            stream.barrier()
            if not number:
                stream.append(armed)
            stream.append(stream.sdma.fence(release_va, RELEASE))
        self._submit(queue, stream, len(drains))
        for drain in drains:
            self._bulk.arm(0, len(drain))
            self._told += 1
            self._signals.store_low(self._go, self._told)
            self._flush()
            self._take(drain)

    def _download_by_turns(self, queue: Any, source_va: int, out: memoryview) -> None:
        """A piece at a time: the engine is done with it before it is read."""
        room = self._bulk.drain_bytes
        for start in range(0, len(out), room):
            piece = out[start : start + room]
            stream = queue.stream()
            stream.copy(self._memory_va, source_va + start, len(piece))
            queue.submit(stream).wait()
            self._bulk.arm(0, len(piece))
            self._take(piece)

    def _take(self, piece: memoryview) -> None:
        """Receive what was armed."""
        piece[:] = self._bulk.drain()[: len(piece)]
        self._shadow[: len(piece)] = piece
