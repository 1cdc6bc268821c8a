"""Bytes between the host and a card behind a bridge: through the bridge's own memory, which its bus fills and drains at
full rate.

A fill that was sent may not have arrived. So each ends with a mark, and the copy engine waits for the mark before it
copies. Windows of the memory take turns, and the engine reports how many fills it has copied out. The host arms a drain
before the engine learns of its commands, or announces it to the engine by the bridge's byte `go`; the engine's write to
the bridge starts the drain.

UNKNOWN: what the bridge's memory held before the first fill. A mark that stood there by chance would let bytes go
early, so marks begin at a number that differs from process to process.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ringup.drivers.buffer import Buffer
from ringup.drivers.transport.seam import Bulk, Clock
from ringup.errors import DeviceHung, DeviceLost, DeviceTimeout, RingupError, TransportError
from ringup.queues.amd.packets import Compare
from ringup.queues.amd.sdma_stream import CopyStream
from ringup.queues.queue import Put
from ringup.queues.timeline import Point, Timeline, copy_of

LOG = logging.getLogger(__name__)
SECTOR_BYTES, MARK = 512, struct.Struct("<I")
# of one submission
FILLS_AT_ONCE, DRAINS_AT_ONCE = 128, 128
# from this many steps on, their commands go through the bridge's memory too: the BAR window takes them at 3.6 MB/s
PUT_STEPS = 14
# TIMEOUT: ours; a fill takes 15 ms on the slowest link, USB2
TIMEOUT_US = 10_000_000
# what is written to start a drain: any value does
RELEASE = 0
# an odd number: two processes that begin at similar times begin with different marks
SPREAD = 0x9E37_79B1
# how long the engine pauses between two reads, in cycles of 100 MHz. UNKNOWN: its clock is a guess. A read of a mark
# uses the bus that a fill's bytes come over; `go` comes by a request of a dozen microseconds
MARK_POLL, GO_POLL = 100, 250
# between two looks at the engine's progress, while the next fill takes ten times as long
EMPTYING_US = 40
LOW, HALF, BYTE = 0xFFFF_FFFF, 1 << 31, 0xFF


class RingMemory(Protocol):
    """The memory of a queue, as far as its ring goes."""

    @property
    def ring(self) -> Buffer:
        """The ring."""
        ...


class RingQueue(Protocol):
    """A copy queue whose ring the bridge's memory may be copied into."""

    timeline: Timeline

    @property
    def memory(self) -> RingMemory:
        """Its memory."""
        ...

    def admit(self) -> None:
        """Raise what keeps the calling thread from submitting, if anything does."""
        ...

    def clear(self) -> None:
        """Wait until what is submitted next will start at once."""
        ...

    def stream(self) -> CopyStream:
        """Return an empty stream."""
        ...

    def submit(
        self,
        stream: CopyStream,
        timeout_s: float = ...,
        put: Put | None = None,
        stored: Callable[[], None] | None = None,
    ) -> Point:
        """Hand a stream to the engine."""
        ...


@dataclass(slots=True)
class _Fill:
    """Bytes for a window, followed by the mark at the end of the last sector."""

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
        """Return the dword that it stores at a place, no bytes where it does not reach."""
        if not self.start <= place <= self.mark_at:
            return b""
        piece = bytes(self.piece[place - self.start :][: MARK.size])
        return MARK.pack(self.mark) if place == self.mark_at else piece.ljust(MARK.size, b"\0")

    def image(self) -> bytearray:
        """Return the bytes that are sent."""
        image = bytearray(self.size_bytes)
        image[: len(self.piece)] = self.piece
        MARK.pack_into(image, len(image) - MARK.size, self.mark)
        return image


class Bounce:
    """Moves bytes through a bridge's memory for one card; its copy queues use it in turn."""

    def __init__(
        self,
        bulk: Bulk,
        memory_va: int,
        go_va: int | None,
        release_va: int | None,
        progress_va: int | None,
        clock: Clock,
    ) -> None:
        """`memory_va`: the bridge's memory in the address space of the queues; `go_va`, `release_va`, `progress_va`:
        the bridge's words there, None for a word that it does not have.
        """
        self._bulk, self._memory_va, self._clock = bulk, memory_va, clock
        self._go_va, self._release_va, self._progress_va = go_va, release_va, progress_va
        self._go = 0  # the value of the word `go`
        if go_va is not None:
            bulk.tell(self._go)
        # why nothing is moved any more
        self.broken: RingupError | None = None
        # an engine has begun a copy that has not ended
        self._moving = False
        self._tag = clock.now_us * SPREAD & LOW
        # what the memory holds, as far as the host knows: a new mark must differ from it
        self._shadow = bytearray(bulk.total_bytes)
        # fills that were sent, and fills known to be copied out; the word counts on from where another process left it
        self._fills = self._emptied = self._seen()
        # reached when all of them are copied out
        self._last: Point | None = None

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Move all bytes, or refuse all later moves: an engine that was left waiting for bytes needs a reset."""
        if self.broken is not None:
            raise copy_of(self.broken)
        self._moving = False
        try:
            yield
        except DeviceLost as error:
            self.broken = error
            raise
        except BaseException as error:
            if self._moving:
                self.broken = DeviceHung(
                    f"moving bytes through the bridge's memory: a copy ended half-way ({type(error).__name__}: {error}); "
                    "reset the card, or close it and open it again"
                )
            raise

    def forget(self) -> None:
        """Go on after a reset of an engine: the fills that it had not copied out are lost."""
        self.broken = None
        self._fills = self._emptied = self._seen()
        self._last = None

    def _seen(self) -> int:
        return self._bulk.progress() if self._progress_va is not None else 0

    # --- to the card ------------------------------------------------------------------------------------------------
    def upload(self, queue: RingQueue, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data` to `target_va` and send the bytes, so `data` may change afterwards. Return the last
        point, None for no bytes.
        """
        with self._whole():
            return self._upload_all(queue, target_va, data)

    def _upload_all(self, queue: RingQueue, target_va: int, data: memoryview) -> Point | None:
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

    def _upload(
        self, queue: RingQueue, target_va: int, pieces: list[tuple[range, memoryview]], *, counted: bool = True
    ) -> Point:
        """Send some fills. The engine copies one window out while the next is filled; it counts them if `counted`."""
        progress_va = self._progress_va if counted else None
        queue.admit()
        if len(pieces) > 1 or self._progress_va is None:
            # else a window would wait for what the queue waits for, however long that takes
            queue.clear()
        self._wait_until_emptied(self._fills)
        stream, fills = queue.stream(), self._marked(pieces)
        for number, fill in enumerate(fills, 1):
            stream.append(
                stream.sdma.wait_mem(self._memory_va + fill.mark_at, fill.mark, compare=Compare.EQUAL, poll=MARK_POLL)
            )
            stream.copy(target_va, self._memory_va + fill.start, len(fill.piece))
            target_va += len(fill.piece)
            stream.barrier()
            if progress_va is not None:
                stream.append(stream.sdma.fence(progress_va, self._fills + number & LOW))
        self._last = point = self._submit(queue, stream, len(fills))
        ahead, first = min(len(fills), len(self._bulk.windows)), self._fills
        for number, fill in enumerate(fills, 1):
            self._bulk.settle(ahead - 1)
            self._wait_until_emptied(first + max(0, number - ahead), EMPTYING_US)
            self._fills += progress_va is not None
            image = fill.image()
            self._bulk.fill(fill.start, image)
            self._shadow[fill.start : fill.start + len(image)] = image
        if progress_va is None:
            try:
                point.wait()
            except DeviceTimeout:
                # the bytes may never have arrived, and the bridge's engine may wait for the rest
                self._bulk.give_up()
                raise
        self._moving = False
        return point

    def _marked(self, pieces: list[tuple[range, memoryview]]) -> list[_Fill]:
        """Give every piece a mark that differs from the dword at its place at that time."""
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

    def _submit(
        self, queue: RingQueue, stream: CopyStream, steps: int, stored: Callable[[], None] | None = None
    ) -> Point:
        """Submit commands of `steps` fills or drains; `stored` is called before the engine learns of them. Many
        commands are put into the ring by a fill of their own. That fill does not reach the places of the other fills'
        marks, which lie at the end of a window.
        """

        moving, last = self._moving, queue.timeline.last

        def put(at: int, data: bytes | bytearray) -> None:
            nonlocal last
            self._upload(
                queue, queue.memory.ring.gpu_va + at, [(self._bulk.windows[0], memoryview(data))], counted=False
            )
            # the work of that fill has ended
            last += 1

        try:
            point = queue.submit(
                stream, put=put if self._progress_va is not None and steps >= PUT_STEPS else None, stored=stored
            )
        except BaseException:
            # a submission that was taken back does not count
            submitted = queue.timeline.last != last
            self._moving = self._moving or moving or submitted
            raise
        self._moving = True
        return point

    def _wait_until_emptied(self, count: int, rest_us: int = 0) -> None:
        """Wait until the engine has copied out `count` fills."""
        last = self._last
        if last is not None and count == self._fills and last.timeline.known >= last.value:
            self._emptied = count
        end_us = self._clock.now_us + TIMEOUT_US
        while self._emptied - count & LOW > HALF:
            late = self._clock.now_us > end_us
            if rest_us:
                self._clock.sleep_us(rest_us)
            seen = self._bulk.progress()
            # the bridge reads the word byte by byte, so a read while the engine stores it may show a value that was
            # never stored; one that is larger than the fills sent is ignored
            if seen - self._emptied & LOW <= self._fills - self._emptied & LOW:
                self._emptied = seen
            if late and self._emptied - count & LOW > HALF:
                error = DeviceTimeout(
                    f"emptying the bridge's memory: the copy engine stood at {self._emptied} of {count & LOW} fills for {TIMEOUT_US / 1e6:g} s"
                )
                self._ask(last, error)
                # the bytes may never have arrived, and the bridge's engine may wait for the rest
                self._moving = True
                self._bulk.give_up()
                raise error

    def _ask(self, point: Point | None, error: DeviceTimeout) -> None:
        """Raise the card's error, if that is why an engine did not reach `point`."""
        if point is None:
            return
        try:
            point.wait(0)
        except DeviceTimeout as waited:
            for note in getattr(waited, "__notes__", ()):
                error.add_note(note)
        except TransportError as refused:
            # the path to the card is out of order
            LOG.debug("asking why %s did not come: %s", point, refused)
        except RingupError as cause:
            raise cause from error

    # --- from the card ----------------------------------------------------------------------------------------------
    def download(self, queue: RingQueue, source_va: int, out: memoryview) -> None:
        """Copy from `source_va` into `out` and wait until all is there."""
        if len(out):
            with self._whole():
                self._download_all(queue, source_va, out)

    def _download_all(self, queue: RingQueue, source_va: int, out: memoryview) -> None:
        queue.admit()
        # an armed drain cannot be taken back, so nothing may keep the engine from starting it
        queue.clear()
        self._wait_until_emptied(self._fills)
        if self._go_va is None or self._release_va is None:
            self._download_by_turns(queue, source_va, out)
            return
        most = DRAINS_AT_ONCE * self._bulk.drain_bytes
        for start in range(0, len(out), most):
            self._download(queue, source_va + start, out[start : start + most], self._go_va, self._release_va)

    def _download(self, queue: RingQueue, source_va: int, out: memoryview, go_va: int, release_va: int) -> None:
        """Copy as many bytes at a time as the memory holds: the engine fills it, then it is drained.

        ORDER: a drain is armed before the engine starts it. The first is armed before the engine learns of its
        commands. The others are armed once the bytes before were received; the engine waits for each by `go`.
        """
        stream, room = queue.stream(), self._bulk.drain_bytes
        drains = [out[start : start + room] for start in range(0, len(out), room)]
        for number, drain in enumerate(drains):
            if number:
                go = self._go + number & BYTE
                stream.append(stream.sdma.wait_mem(go_va, go, BYTE, Compare.EQUAL, GO_POLL))
            stream.copy(self._memory_va, source_va, len(drain))
            source_va += len(drain)
            stream.barrier()
            stream.append(stream.sdma.fence(release_va, RELEASE))
        point = self._submit(queue, stream, len(drains), stored=lambda: self._bulk.arm(0, len(drains[0])))
        for number, drain in enumerate(drains):
            if number:
                self._bulk.arm(0, len(drain))
                self._go += 1
                self._bulk.tell(self._go & BYTE)
            try:
                self._take(drain)
            except DeviceTimeout as error:
                self._ask(point, error)
                raise
        # all bytes came, and nothing but the signal follows them
        point.timeline.reached(point.value)
        # raises an error of the copy here and not from a later wait
        point.wait()
        self._moving = False

    def _download_by_turns(self, queue: RingQueue, source_va: int, out: memoryview) -> None:
        """Copy a piece at a time: the engine has copied it before the host reads it."""
        room = self._bulk.drain_bytes
        for start in range(0, len(out), room):
            piece = out[start : start + room]
            stream = queue.stream()
            stream.copy(self._memory_va, source_va + start, len(piece))
            queue.submit(stream).wait()
            self._bulk.arm(0, len(piece))
            self._take(piece)

    def _take(self, piece: memoryview) -> None:
        """Receive the bytes of the armed drain."""
        piece[:] = self._bulk.drain()[: len(piece)]
        self._shadow[: len(piece)] = piece
