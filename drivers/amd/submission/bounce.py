"""Bytes between the host and a card behind a bridge: through the bridge's own memory, which its bus fills and drains at
full rate.

That a fill has been sent does not mean that its bytes are there: each has a mark behind them, which the copy engine
waits for before it copies. Windows of the memory take turns, and the engine tells how many fills it has emptied. A
drain is armed by the host before the engine learns of its commands, or told to the engine by the bridge's byte `go`,
and let out by the engine's write to the bridge.

UNKNOWN: what the bridge's memory held before the first fill. A mark that stood there by chance would let bytes go
early, so marks begin anywhere.
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
FILLS_AT_ONCE, DRAINS_AT_ONCE = 128, 128  # of one submission
PUT_STEPS = 14  # from so many on their commands go through the bridge's memory too: a window takes them at 3.6 MB/s
TIMEOUT_US = 10_000_000  # TIMEOUT: ours; a fill takes the slowest link, USB2, 15 ms
RELEASE = 0  # what is written to let a drain out: any value does
SPREAD = 0x9E37_79B1  # an odd number: two processes that begin at like times begin with unlike marks
# How long the engine rests between two looks, in cycles of 100 MHz. UNKNOWN: its clock is a guess. A look at a mark is
# a read on the bus that a fill's bytes come over; `go` comes by a request of a dozen microseconds
MARK_POLL, GO_POLL = 100, 250
EMPTYING_US = 40  # between two looks at how far the engine is, while the next fill takes ten times as long
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
        go_va: int | None,
        release_va: int | None,
        progress_va: int | None,
        clock: Clock,
    ) -> None:
        """The bridge's memory and its words `go`, release and progress in the address space of the queues; None for
        words that it has not.
        """
        self._bulk, self._memory_va, self._clock = bulk, memory_va, clock
        self._go_va, self._release_va, self._progress_va = go_va, release_va, progress_va
        self._told = 0  # what `go` stands at
        if go_va is not None:
            bulk.tell(self._told)
        self.broken: RingupError | None = None  # why nothing is moved any more
        self._moving = False  # an engine has begun what is not at its end
        self._tag = clock.now_us * SPREAD & LOW
        # what the memory holds, as far as the host knows: no mark may stand there already
        self._shadow = bytearray(bulk.total_bytes)
        # sent, and known to be emptied; the word goes on from where another process left it
        self._fills = self._emptied = self._seen()
        self._last: Point | None = None  # where all of them are emptied

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Move all, or refuse all that follows: an engine that was left waiting for bytes is well again after a
        reset.
        """
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
        """Go on after a reset of an engine: what it was to empty is lost."""
        self.broken = None
        self._fills = self._emptied = self._seen()
        self._last = None

    def _seen(self) -> int:
        return self._bulk.progress() if self._progress_va is not None else 0

    # --- to the card ------------------------------------------------------------------------------------------------
    def upload(self, queue: RingQueue, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data` to `target_va` and send it; it may change afterwards. Returns the last point, None for
        no bytes.
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
        """Send some fills. The engine empties one window while the next is filled, and tells that it did if they are
        `counted`.
        """
        progress_va = self._progress_va if counted else None
        queue.admit()
        if len(pieces) > 1 or self._progress_va is None:
            queue.clear()  # or a window would wait for what the queue waits for, however long that is
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
            except DeviceTimeout:  # the bytes may never have come, and its engine wait for the rest
                self._bulk.give_up()
                raise
        self._moving = False
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

    def _submit(
        self, queue: RingQueue, stream: CopyStream, steps: int, stored: Callable[[], None] | None = None
    ) -> Point:
        """Submit commands of so many fills or drains; `stored` is called before the engine learns of them. Many are put
        into the ring by a fill of their own. That changes nothing at the places of the other fills' marks: those lie at
        the end of a window.
        """

        moving, last = self._moving, queue.timeline.last

        def put(at: int, data: bytes | bytearray) -> None:
            nonlocal last
            self._upload(
                queue, queue.memory.ring.gpu_va + at, [(self._bulk.windows[0], memoryview(data))], counted=False
            )
            last += 1  # what it submitted has ended

        try:
            point = queue.submit(
                stream, put=put if self._progress_va is not None and steps >= PUT_STEPS else None, stored=stored
            )
        except BaseException:
            handed = queue.timeline.last != last  # what was taken back was not
            self._moving = self._moving or moving or handed
            raise
        self._moving = True
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
            seen = self._bulk.progress()
            # the bridge reads its bytes one after another, so a look while the engine stores may show what was never
            # stored: more than was sent
            if seen - self._emptied & LOW <= self._fills - self._emptied & LOW:
                self._emptied = seen
            if late and self._emptied - count & LOW > HALF:
                error = DeviceTimeout(
                    f"emptying the bridge's memory: the copy engine stood at {self._emptied} of {count & LOW} fills for {TIMEOUT_US / 1e6:g} s"
                )
                self._ask(last, error)
                self._moving = True  # the bytes may never have come, and the bridge's engine wait for the rest
                self._bulk.give_up()
                raise error

    def _ask(self, point: Point | None, error: DeviceTimeout) -> None:
        """Raise what befell the card, if that is why an engine did not come to `point`."""
        if point is None:
            return
        try:
            point.wait(0)
        except DeviceTimeout as waited:
            for note in getattr(waited, "__notes__", ()):
                error.add_note(note)
        except TransportError as refused:
            LOG.debug("asking why %s did not come: %s", point, refused)  # the way to the card is what is out of order
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
        queue.clear()  # a drain that is armed cannot be taken back, so nothing may keep the engine from letting it out
        self._wait_until_emptied(self._fills)
        if self._go_va is None or self._release_va is None:
            self._download_by_turns(queue, source_va, out)
            return
        most = DRAINS_AT_ONCE * self._bulk.drain_bytes
        for start in range(0, len(out), most):
            self._download(queue, source_va + start, out[start : start + most], self._go_va, self._release_va)

    def _download(self, queue: RingQueue, source_va: int, out: memoryview, go_va: int, release_va: int) -> None:
        """A memoryful at a time: filled by the engine, then drained.

        ORDER: a drain is armed before the engine lets it out. The first is when the engine learns of its commands; for
        each of the others, which are armed once what the memory held before was received, the engine waits.
        """
        stream, room = queue.stream(), self._bulk.drain_bytes
        drains = [out[start : start + room] for start in range(0, len(out), room)]
        for number, drain in enumerate(drains):
            if number:
                go = self._told + number & BYTE
                stream.append(stream.sdma.wait_mem(go_va, go, BYTE, Compare.EQUAL, GO_POLL))
            stream.copy(self._memory_va, source_va, len(drain))
            source_va += len(drain)
            stream.barrier()
            stream.append(stream.sdma.fence(release_va, RELEASE))
        point = self._submit(queue, stream, len(drains), stored=lambda: self._bulk.arm(0, len(drains[0])))
        for number, drain in enumerate(drains):
            if number:
                self._bulk.arm(0, len(drain))
                self._told += 1
                self._bulk.tell(self._told & BYTE)
            try:
                self._take(drain)
            except DeviceTimeout as error:
                self._ask(point, error)
                raise
        point.timeline.reached(point.value)  # all bytes came, and behind them is nothing but its signal
        point.wait()  # else what befell the copy would come out of whatever is waited for next
        self._moving = False

    def _download_by_turns(self, queue: RingQueue, source_va: int, out: memoryview) -> None:
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
