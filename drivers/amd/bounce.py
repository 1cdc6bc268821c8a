"""Bytes between the host and a card behind a bridge: through the bridge's own memory, which its bus fills and drains at full rate.

That a fill has been sent does not mean that its bytes are there. So it goes in parts, each with a mark behind its bytes: the copy engine waits
for a part's mark before it copies the part. It stores how many fills it has emptied; the next one is sent when the last was. Its commands come
with the first fill. A drain is armed by the host, told to the engine by the word `go`, and let out by the engine's write to the bridge.

UNKNOWN: what the bridge's memory held before the first fill. A mark that stood there by chance would let bytes go early, so marks begin
anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from ringup.drivers.amd.signals import Signals
from ringup.drivers.buffer import Buffer
from ringup.drivers.transport.seam import Bulk, Clock
from ringup.errors import DeviceTimeout
from ringup.queues.packets import Compare, to_bytes
from ringup.queues.timeline import Point

KIB = 1024
SLOT_BYTES, SECTOR_BYTES, MARK = 16 * KIB, 512, struct.Struct("<I")
COMMANDS_BYTES = (
    512  # what one fill's commands take at most, and more: seven parts, a packet to wait and one to copy for each
)
PIECES = tuple(
    slots * SLOT_BYTES for slots in (15, 8, 4, 2, 1)
)  # of a drain: what is refilled last, when nothing else goes on, is small
FILLS_AT_ONCE, DRAINS_AT_ONCE = 16, 48  # of one submission, whose commands lie in the first slot
FEW = 3  # fills that go one behind the other; below a megabyte and a half that saves transfers, above it costs time
TIMEOUT_US = 10_000_000  # TIMEOUT: ours; a fill takes the slowest link, USB2, 15 ms
RELEASE = 1 << 16  # the phase bit of a completion's last dword. Source: NVM Express base specification 1.4, 4.6
SPREAD = 0x9E37_79B1  # an odd number: two processes that begin at like times begin with unlike marks
LOW, HALF = 0xFFFF_FFFF, 1 << 31


class Part(NamedTuple):
    """Bytes of a fill that go together: where in the bridge's memory, how many of the caller's, where their mark lies."""

    at: int
    size_bytes: int
    mark_at: int


@dataclass(slots=True)
class Fill:
    """What is sent at once: from `at` on in the bridge's memory; the bytes with their marks."""

    at: int
    image: bytearray


def parts_of(size_bytes: int, at: int, end: int) -> Iterator[Part]:
    """Cut `size_bytes` of data for the room from `at` to `end` into parts, each half of what room is left.

    Large ones come first, since each costs two packets; small ones at the end, where nothing else is under way.
    """
    while size_bytes:
        room = max((end - at) // 2, min(SLOT_BYTES, end - at)) // SECTOR_BYTES * SECTOR_BYTES
        taken = min(size_bytes, room - MARK.size)
        behind = at + -(-(taken + MARK.size) // SECTOR_BYTES) * SECTOR_BYTES
        yield Part(at, taken, behind - MARK.size)
        at, size_bytes = behind, size_bytes - taken


def capacity(at: int, end: int) -> int:
    """Return how many bytes of data the room from `at` to `end` takes."""
    total = 0
    while at < end:
        (part,) = islice(parts_of(end - at, at, end), 1)
        total, at = total + part.size_bytes, part.mark_at + MARK.size
    return total


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
        self._fills = self._told = 0
        self._known = 0  # fills that are known to be emptied
        self._tag = clock.now_us * SPREAD & LOW
        self._shadow = bytearray(
            bulk.size_bytes
        )  # what the memory holds as far as the host knows: no mark may stand there already

    def forget(self) -> None:
        """Go on after a reset of an engine: what it was to empty is lost."""
        self._signals.store(self._emptied, self._fills)
        self._known = self._fills & LOW

    # --- to the card ------------------------------------------------------------------------------------------------
    def upload(self, queue: Any, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data` to `target_va` and send it; it may change afterwards. Returns the last point, None for no bytes."""
        point, at = None, 0
        while at < len(data):
            point, sent = self._upload(queue, target_va + at, data[at:])
            at += sent
        return point

    def _upload(self, queue: Any, target_va: int, data: memoryview) -> tuple[Point, int]:
        """Send some fills; return how many bytes that were. The first begins with the engine's commands for all, which the ring takes slowly."""
        rooms, pieces = self._plan(data)
        fills, commands = self._lay_out(queue, target_va, rooms, pieces)
        point, before = self._call(queue, commands, fills[0], rooms[0].start), self._fills
        ahead = len({room.stop for room in rooms})  # fills that may be under way together: each has a room of its own
        for number, fill in enumerate(fills):
            self.bulk.settle(ahead - 1)
            self._wait_until_empty(before + max(0, number + 1 - ahead))
            self._send(fill)
        return point, sum(map(len, pieces))

    def _call(self, queue: Any, commands: bytes, fill: Fill, end: int) -> Point:
        """Have the queue run commands that a fill begins with, once their mark at `end` is there."""
        assert len(commands) <= end - MARK.size
        fill.image[: len(commands)] = commands
        base, at = self._memory.gpu_va, end - MARK.size
        wait = queue.commands.sdma.wait_mem(base + at, self._mark(fill, at, []), compare=Compare.EQUAL)
        point: Point = queue.call(base, len(commands), [], {}, first=to_bytes(wait))
        return point

    def _send(self, fill: Fill) -> None:
        """Send a fill, whose emptying the engine will count."""
        self._fills += 1
        self.bulk.fill(fill.at, bytes(fill.image))
        self._shadow[fill.at : fill.at + len(fill.image)] = fill.image

    def _plan(self, data: memoryview) -> tuple[list[range], list[memoryview]]:
        """Return the rooms that fills take in the bridge's memory, and the data of each.

        Little data goes in few fills, one after another; more goes in two halves of the memory in turn, one filled while the other is emptied.
        The first room has the commands before it, and the first slot stays theirs until the last of them is done.
        """
        end, half = self.bulk.size_bytes, self.bulk.size_bytes // 2 // SLOT_BYTES * SLOT_BYTES
        most = FILLS_AT_ONCE if half else 1
        for ends in ((end,), (half, end)) if half and self.bulk.fills_at_once > 1 else ((end,),):
            rooms = [range(most * COMMANDS_BYTES, ends[0])]
            for number in range(1, most):
                turn = number % len(ends)
                rooms.append(range(ends[0] if turn else SLOT_BYTES, ends[turn]))
            if len(data) <= sum(capacity(room.start, room.stop) for room in rooms[:FEW]):
                break
        pieces, taken = [], 0
        for room in rooms:
            size = min(len(data) - taken, capacity(room.start, room.stop))
            if size:
                pieces.append(data[taken : taken + size])
                taken += size
        rooms[0] = range(len(pieces) * COMMANDS_BYTES, rooms[0].stop)
        return rooms[: len(pieces)], pieces

    def _lay_out(
        self, queue: Any, target_va: int, rooms: list[range], pieces: list[memoryview]
    ) -> tuple[list[Fill], bytes]:
        """Return what is to be sent, and the commands that empty it."""
        stream, base, fills = queue.stream(), self._memory.gpu_va, list[Fill]()
        for room, data in zip(rooms, pieces, strict=True):
            parts = list(parts_of(len(data), room.start, room.stop))
            begin, taken = room.start if fills else 0, 0
            fill = Fill(begin, bytearray(parts[-1].mark_at + MARK.size - begin))
            for part in parts:
                at = part.at - begin
                fill.image[at : at + part.size_bytes] = data[taken : taken + part.size_bytes]
                mark = self._mark(fill, part.mark_at, fills)
                stream.append(stream.sdma.wait_mem(base + part.mark_at, mark, compare=Compare.EQUAL))
                stream.copy(target_va, base + part.at, part.size_bytes)
                target_va, taken = target_va + part.size_bytes, taken + part.size_bytes
            fills.append(fill)
            stream.barrier()
            emptied = self._fills + len(fills) & LOW
            stream.append(stream.sdma.fence(self._signals.gpu_va(self._emptied), emptied))
        return fills, _padded(stream, queue)

    def _mark(self, fill: Fill, at: int, before: list[Fill]) -> int:
        """Put a mark into a fill and return it: one that does not stand in its place already when it is sent, behind those `before`."""
        self._tag = self._tag + 1 & LOW
        held = next((one for one in reversed(before) if one.at <= at < one.at + len(one.image)), None)
        there = held.image[at - held.at :][: MARK.size] if held else self._shadow[at : at + MARK.size]
        if MARK.pack(self._tag) == bytes(there):
            self._tag = self._tag + 1 & LOW
        MARK.pack_into(fill.image, at - fill.at, self._tag)
        return self._tag

    def _wait_until_empty(self, count: int) -> None:
        """Wait until the engine has stored that it emptied so many fills."""
        signals, place, wanted = self._signals, self._emptied, count & LOW
        end_us = self._clock.now_us + TIMEOUT_US
        if self._known - wanted & LOW > HALF:
            self._known = signals.seen(place)  # who waits for points looks at all words
        while self._known - wanted & LOW > HALF:
            late = self._clock.now_us > end_us
            self._known = signals.peek(place)
            if late and self._known - wanted & LOW > HALF:
                raise DeviceTimeout(
                    f"emptying the bridge's memory: the copy engine stood at {self._known} of {wanted} fills for {TIMEOUT_US / 1e6:g} s"
                )

    # --- from the card ----------------------------------------------------------------------------------------------
    def download(self, queue: Any, source_va: int, out: memoryview) -> None:
        """Copy from `source_va` into `out` and wait until all is there."""
        self._wait_until_empty(self._fills)
        if self._release_va is None:
            self._download_by_turns(queue, source_va, out)
            return
        if (
            self._told > HALF
        ):  # no engine waits for a count now, and none may be asked to wait across the wrap of the word
            self._told = 0
            self._signals.store_low(self._go, 0)
        if len(out) <= FEW * self.bulk.size_bytes:
            self._download_few(queue, source_va, out)
            return
        most = DRAINS_AT_ONCE * sum(PIECES)
        for start in range(0, len(out), most):
            self._download_many(queue, source_va + start, out[start : start + most])

    def _download_few(self, queue: Any, source_va: int, out: memoryview) -> None:
        """A memoryful at a time, filled by the engine, then drained: few transfers."""
        stream, room = queue.stream(), self.bulk.size_bytes
        drains = [out[start : start + room] for start in range(0, len(out), room)]
        for told, drain in enumerate(drains, self._told + 1):
            if told > self._told + 1:
                self._until(stream, told)  # what the memory held before was received
            stream.copy(self._memory.gpu_va, source_va, len(drain))
            source_va += len(drain)
            self._release(stream, told)
        queue.submit(stream)
        for drain in drains:
            self.bulk.arm(0, len(drain))
            self._tell()
            self._take(drain, 0)

    def _download_many(self, queue: Any, source_va: int, out: memoryview) -> None:
        """Drains in pieces: the engine fills a piece anew once it was received, while those behind are on their way. Its commands are sent."""
        stream, base = queue.stream(), self._memory.gpu_va
        drains, told = [list(_pieces(out[start:])) for start in range(0, len(out), sum(PIECES))], self._told + 1
        before: int | None = None  # the count at which the drain before was armed
        for pieces in drains:
            for number, (at, piece) in enumerate(pieces):
                if before is not None:
                    self._until(stream, min(before + 1 + number, told))
                stream.copy(base + at, source_va, len(piece))
                source_va += len(piece)
            self._release(stream, told)
            before, told = told, told + len(pieces)
        stream.append(stream.sdma.fence(self._signals.gpu_va(self._emptied), self._fills + 1 & LOW))
        commands = _padded(stream, queue)
        fill = Fill(0, bytearray(-(-(len(commands) + MARK.size) // SECTOR_BYTES) * SECTOR_BYTES))
        self._call(queue, commands, fill, len(fill.image))
        self._send(fill)
        for pieces in drains:
            self.bulk.arm(SLOT_BYTES, *(len(piece) for _, piece in pieces))
            for at, piece in pieces:
                self._tell()
                self._take(piece, at)

    def _until(self, stream: Any, told: int) -> None:
        """Hold the engine until the host has told so much."""
        stream.append(stream.sdma.wait_mem(self._signals.gpu_va(self._go), told, compare=Compare.GREATER_EQUAL))

    def _release(self, stream: Any, told: int) -> None:
        """Let the engine release a drain, behind its copies and once it is armed."""
        stream.barrier()
        self._until(stream, told)
        stream.append(stream.sdma.fence(self._release_va, RELEASE))

    def _tell(self) -> None:
        """Tell the engine that a drain is armed, or that a piece of it was received."""
        self._told += 1
        self._signals.store_low(self._go, self._told)
        self._flush()

    def _take(self, piece: memoryview, at: int) -> None:
        """Receive a piece."""
        piece[:] = self.bulk.drain()[: len(piece)]
        self._shadow[at : at + len(piece)] = piece

    def _download_by_turns(self, queue: Any, source_va: int, out: memoryview) -> None:
        """A piece at a time: the engine is done with it before it is read."""
        room = self.bulk.drain_bytes
        for start in range(0, len(out), room):
            piece = out[start : start + room]
            stream = queue.stream()
            stream.copy(self._memory.gpu_va, source_va + start, len(piece))
            queue.submit(stream).wait()
            self.bulk.arm(0, len(piece))
            self._take(piece, 0)


def _pieces(out: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Cut what one drain takes into its pieces, each with its place."""
    at = SLOT_BYTES
    for size in PIECES:
        piece = out[:size]
        if not piece:
            return
        yield at, piece
        at, out = at + size, out[size:]


def _padded(stream: Any, queue: Any) -> bytes:
    """Return the commands of a stream, filled up to what an indirect buffer must be."""
    pad: bytes = queue.commands.pad
    return bytes(stream.body) + pad * (-len(stream.body) // len(pad) % 8)
