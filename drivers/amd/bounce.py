"""Bytes between the host and a card behind a bridge: through the bridge's own memory, which its bus fills and drains at full rate.

That a fill has been sent does not mean that its bytes are there. So it goes in parts, each with a mark behind its bytes: the copy engine waits
for a part's mark before it copies the part. It stores how many fills it has emptied; the next one is sent when the last was. A drain is armed by
the host, told to the engine by the word `go`, and let out by the engine's write to the bridge.

UNKNOWN: what the bridge's memory held before the first fill. A mark that stood there by chance would let bytes go early, so marks begin
anywhere.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ringup.drivers.amd.signals import Signals
from ringup.drivers.buffer import Buffer
from ringup.drivers.transport.seam import Bulk, Clock
from ringup.errors import DeviceTimeout
from ringup.queues.packets import Compare
from ringup.queues.timeline import Point

KIB = 1024
# Sizes of a fill's parts: large ones, since each costs three packets, and small ones at the end, where nothing else is under way
PARTS = (*([64 * KIB] * 7), 32 * KIB, 16 * KIB)
SECTOR_BYTES, MARK = 512, struct.Struct("<I")
SLOT_BYTES = 16 * KIB
FILLS_AT_ONCE, DRAINS_AT_ONCE = 16, 64  # of one submission: its packets go into the ring as one
RELEASE = 1 << 16  # the phase bit of a completion's last dword. Source: NVM Express base specification 1.4, 4.6
SPREAD = 0x9E37_79B1  # an odd number: two processes that begin at like times begin with unlike marks
LOW, HALF = 0xFFFF_FFFF, 1 << 31
TIMEOUT_US = 10_000_000  # TIMEOUT: ours; a fill takes the slowest link, USB2, 15 ms


class Part(NamedTuple):
    """Bytes of a fill that go together: where in the fill, how many of the caller's, where their mark lies."""

    at: int
    size_bytes: int
    mark_at: int


def parts_of(size_bytes: int) -> Iterator[Part]:
    """Cut `size_bytes` of data into the parts of one fill; `FILL_BYTES` at most."""
    at = 0
    for room in PARTS:
        taken = min(size_bytes, room - MARK.size)
        end = -(-(taken + MARK.size) // SECTOR_BYTES) * SECTOR_BYTES
        yield Part(at, taken, at + end - MARK.size)
        size_bytes -= taken
        if not size_bytes:
            return
        at += room


FILL_BYTES = sum(room - MARK.size for room in PARTS)


class Bounce:
    """The way through a bridge's memory for one card; its copy queues use it in turn."""

    def __init__(
        self,
        bulk: Bulk,
        memory: Buffer,
        release_va: int | None,
        signals: Signals,
        clock: Clock,
        flush: Callable[[], None],
    ) -> None:
        """`memory` and `release_va` are the bridge's memory and release word in the address space of the queues.

        `flush` makes what the host stored among the signals reach the card.
        """
        self.bulk, self._memory, self._release_va = bulk, memory, release_va
        self._signals, self._clock, self._flush = signals, clock, flush
        self._emptied, self._go = signals.take(), signals.take()
        self._fills = self._drains = 0
        self._tag = clock.now_us * SPREAD & LOW
        self._shadow = bytearray(
            bulk.size_bytes
        )  # what the memory holds as far as the host knows: no mark may stand there already
        self._image = bytearray(bulk.size_bytes)

    def forget(self) -> None:
        """Go on after a reset of an engine: what it was to empty is lost."""
        self._signals.store(self._emptied, self._fills)

    # --- to the card ------------------------------------------------------------------------------------------------
    def upload(self, queue: Any, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data` to `target_va` and send it; it may change afterwards. Returns the last point, None for no bytes."""
        point = None
        for start in range(0, len(data), FILLS_AT_ONCE * FILL_BYTES):
            point = self._upload(queue, target_va + start, data[start : start + FILLS_AT_ONCE * FILL_BYTES])
        return point

    def _upload(self, queue: Any, target_va: int, data: memoryview) -> Point:
        stream, marks = queue.stream(), deque[int]()
        base, before = self._memory.gpu_va, self._fills
        fills = [data[start : start + FILL_BYTES] for start in range(0, len(data), FILL_BYTES)]
        for number, fill in enumerate(fills):
            for part in parts_of(len(fill)):
                mark = self._next_mark(part.mark_at, fills[number - 1] if number else None)
                marks.append(mark)
                stream.append(stream.sdma.wait_mem(base + part.mark_at, mark, compare=Compare.EQUAL))
                stream.copy(target_va, base + part.at, part.size_bytes)
                target_va += part.size_bytes
            stream.barrier()
            stream.append(stream.sdma.fence(self._signals.gpu_va(self._emptied), before + number + 1 & LOW))
        point: Point = queue.submit(stream)
        for number, fill in enumerate(fills):
            self._wait_until_empty(before + number)
            self._fills += 1
            self._send(fill, marks)
        return point

    def _next_mark(self, mark_at: int, before: memoryview | None) -> int:
        """Return a mark that does not stand at its place already: behind the fill `before` of the same submission, or as the memory is."""
        self._tag = self._tag + 1 & LOW
        (held,) = MARK.unpack_from(self._shadow, mark_at)
        if before is not None:
            part, taken = next(
                (part, taken) for part, taken in _with_offsets(len(before)) if mark_at < part.mark_at + MARK.size
            )
            if mark_at != part.mark_at:
                at = taken + mark_at - part.at
                (held,) = MARK.unpack(bytes(before[at : at + MARK.size]).ljust(MARK.size, b"\0"))
        if self._tag == held:
            self._tag = self._tag + 1 & LOW
        return self._tag

    def _send(self, fill: memoryview, marks: deque[int]) -> None:
        """Send one fill with its marks."""
        image, end = self._image, 0
        for part, taken in _with_offsets(len(fill)):
            image[part.at : part.at + part.size_bytes] = fill[taken : taken + part.size_bytes]
            MARK.pack_into(image, part.mark_at, marks.popleft())
            end = part.mark_at + MARK.size
        self.bulk.fill(0, bytes(memoryview(image)[:end]))
        self._shadow[:end] = image[:end]

    def _wait_until_empty(self, count: int) -> None:
        """Wait until the engine has stored that it emptied so many fills."""
        signals, place, wanted = self._signals, self._emptied, count & LOW
        end_us = self._clock.now_us + TIMEOUT_US
        while signals.seen(place) - wanted & LOW > HALF:
            late = self._clock.now_us > end_us
            signals.look()
            if late and signals.seen(place) - wanted & LOW > HALF:
                raise DeviceTimeout(
                    f"emptying the bridge's memory: the copy engine stood at {signals.seen(place)} of {wanted} fills for {TIMEOUT_US / 1e6:g} s"
                )

    # --- from the card ----------------------------------------------------------------------------------------------
    def download(self, queue: Any, source_va: int, out: memoryview) -> None:
        """Copy from `source_va` into `out` and wait until all is there."""
        self._wait_until_empty(self._fills)
        if self._release_va is None:
            self._download_by_turns(queue, source_va, out)
            return
        room = self.bulk.drain_bytes // 2 // SLOT_BYTES * SLOT_BYTES
        for start in range(0, len(out), DRAINS_AT_ONCE * room):
            self._download(queue, source_va + start, out[start : start + DRAINS_AT_ONCE * room], room)

    def _download(self, queue: Any, source_va: int, out: memoryview, room: int) -> None:
        """Two halves of the memory in turn: the engine fills one while the other is drained."""
        stream, base, before = queue.stream(), self._memory.gpu_va, self._drains
        pieces = [
            (number % 2 * room, out[start : start + room]) for number, start in enumerate(range(0, len(out), room))
        ]
        for number, (half, piece) in enumerate(pieces):
            stream.copy(base + half, source_va, len(piece))
            source_va += len(piece)
            stream.barrier()
            stream.append(
                stream.sdma.wait_mem(self._signals.gpu_va(self._go), before + number + 1 & LOW, compare=Compare.EQUAL)
            )
            stream.append(stream.sdma.fence(self._release_va, RELEASE))
        queue.submit(stream)
        for half, piece in pieces:
            self.bulk.arm(half, len(piece))
            self._drains += 1
            self._signals.store_low(self._go, self._drains & LOW)
            self._flush()
            data = self.bulk.drain()
            piece[:] = data[: len(piece)]
            self._shadow[half : half + len(piece)] = piece

    def _download_by_turns(self, queue: Any, source_va: int, out: memoryview) -> None:
        """A piece at a time: the engine is done with it before it is read."""
        room = self.bulk.drain_bytes
        for start in range(0, len(out), room):
            piece = out[start : start + room]
            stream = queue.stream()
            stream.copy(self._memory.gpu_va, source_va + start, len(piece))
            queue.submit(stream).wait()
            self.bulk.arm(0, len(piece))
            piece[:] = self.bulk.drain()[: len(piece)]
            self._shadow[: len(piece)] = piece


def _with_offsets(size_bytes: int) -> Iterator[tuple[Part, int]]:
    """Yield the parts of a fill and where their bytes begin among the caller's."""
    taken = 0
    for part in parts_of(size_bytes):
        yield part, taken
        taken += part.size_bytes
