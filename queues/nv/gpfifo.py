"""The GPFIFO of a channel: a ring of entries, each of which makes the host fetch a piece of pushbuffer.

The host computer stores entries, then the index behind the last (GP_PUT), then rings the doorbell. The card only reads
entries. Source: open-gpu-doc dev_pbdma.ref.txt, "GP_ENTRY0 and GP_ENTRY1", "GP_PUT".
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from threading import get_ident
from typing import NamedTuple

from ringup.autogen.nv import methods_host as host
from ringup.queues.kept import Kept, KeptMemory
from ringup.queues.nv.methods import PUSH_NOP
from ringup.queues.queue import TIMEOUT_S, Call, Put, Queue, QueueParts, Stream
from ringup.queues.timeline import Point

Store = Callable[[int, bytes | bytearray], None]
ENTRY = struct.Struct("<Q")
PACK_ENTRY = ENTRY.pack_into
ENTRY_BYTES = host.GP_ENTRY__SIZE
# an entry is its address, whose low two bits are zero, and its length in dwords from bit 42 on: bytes from bit 40 on
LENGTH_SHIFT = 32 + host.GP_ENTRY1.FIELDS["length"].lo - 2
MAX_PIECE_BYTES = 4 * ((1 << host.GP_ENTRY1.FIELDS["length"].width) - 1)
ADDRESS_BITS = 32 + host.GP_ENTRY1.FIELDS["get_hi"].width
# bytes of the ring for each entry, at least: a kept stream takes the 24 bytes of its semaphore release and two entries.
# A submission takes more entries where the ring wraps: SPARE_ENTRIES for those in flight, one of them always free,
# because a full GPFIFO looks empty
BYTES_PER_ENTRY, SPARE_ENTRIES = 12, 4
MIN_ENTRIES = 32
# bytes behind the release of a submission that the host may not have fetched when its point is done: the interrupt
UNREAD_BYTES = 8


def entry(gpu_va: int, size_bytes: int) -> int:
    """Return the entry for a piece of pushbuffer. Raises a `ValueError` for one that no entry can name."""
    if gpu_va % 4 or size_bytes % 4 or not 0 < size_bytes <= MAX_PIECE_BYTES:
        raise ValueError(
            f"an entry fetches whole dwords, 4 to {MAX_PIECE_BYTES} bytes, not {size_bytes} at {gpu_va:#x}"
        )
    # the address space's last dword cannot be fetched
    if not 0 <= gpu_va < (1 << ADDRESS_BITS) - size_bytes:
        raise ValueError(f"pushbuffers lie below {1 << ADDRESS_BITS:#x}, not at {gpu_va:#x}")
    return gpu_va | size_bytes << LENGTH_SHIFT


def entries_of(gpu_va: int, size_bytes: int) -> bytes:
    """Return the entries for any number of bytes, in pieces as long as an entry can name."""
    return b"".join(
        ENTRY.pack(entry(gpu_va + at, min(MAX_PIECE_BYTES, size_bytes - at)))
        for at in range(0, size_bytes, MAX_PIECE_BYTES)
    )


class Gpfifo:
    """The entries of one channel. `publish` is what a `Ring` calls: it makes entries for the ring's new bytes.

    `put`: the index of the next entry; `published`: the ring's write pointer then. Commands in memory, which `splice`
    names, run between two bytes of the ring.
    """

    def __init__(
        self,
        ring_va: int,
        ring_bytes: int,
        entries: int,
        write: Callable[[int, bytes], None],
        store_put: Callable[[int], None],
        ring_doorbell: Callable[[], None],
        *,
        fence: Callable[[], None] | None = None,
        view: memoryview | None = None,
        start: int = 0,
    ) -> None:
        """`ring_va`, `ring_bytes`: the pushbuffer ring. `entries`: a power of two; with fewer than one for 12 bytes of
        the ring, the ring is not used in full. `write(at_bytes, data)` stores entries, `view` is their memory where the
        CPU has it mapped. `store_put(index)` stores GP_PUT into USERD. `ring_doorbell()` writes the channel's
        work-submit token. `fence()` makes earlier stores visible to the card before later ones; None where the CPU's
        stores arrive in order. `start`: the ring's write pointer now.
        """
        if entries < MIN_ENTRIES or entries & entries - 1:
            raise ValueError(f"a GPFIFO has a power of two of entries, at least {MIN_ENTRIES}, not {entries}")
        # raises for a ring that no entry reaches
        entry(ring_va, min(ring_bytes, MAX_PIECE_BYTES))
        if ring_bytes > MAX_PIECE_BYTES or ring_va + ring_bytes >= 1 << ADDRESS_BITS:
            raise ValueError(f"a pushbuffer ring of {ring_bytes} bytes at {ring_va:#x}: an entry cannot name it")
        self.entries, self.put, self._end = entries, 0, entries * ENTRY_BYTES
        self._ring_va, self._ring_bytes, self._mask = ring_va, ring_bytes, ring_bytes - 1
        self._write, self._view = write, view
        self._store_put, self._ring_doorbell, self._fence = store_put, ring_doorbell, fence
        # the ring's bytes that have entries, or that pay for one
        self.published = start
        # (write pointer before which they run, entries), all of one submission, in order
        self.splices: list[tuple[int, bytes]] = []

    @property
    def max_ring_bytes(self) -> int:
        """How many of the ring's bytes may be in flight, so that their entries never overtake the card's index."""
        return (self.entries - SPARE_ENTRIES) * BYTES_PER_ENTRY

    def splice(self, at: int, entries: bytes) -> None:
        """Run commands in memory, which `entries` fetch, before the ring's byte `at`, once that is published."""
        self.splices.append((at, entries))

    def move_splices(self, by_bytes: int) -> None:
        """Move what was spliced and is not published: its submission begins later in the ring."""
        self.splices = [(at + by_bytes, entries) for at, entries in self.splices]

    def drop_splices(self) -> None:
        """Forget what was spliced and is not published."""
        self.splices.clear()

    def publish(self, wptr: int) -> None:
        """Tell the card of the ring's bytes up to `wptr`.

        ORDER: what the entries fetch and the entries themselves are visible before GP_PUT, which is before the
        doorbell. Source: OGKM uvm_volta_host.c, uvm_hal_volta_host_write_gpu_put.
        """
        start = self.published
        if start != wptr:
            place, size, put, splices = start & self._mask, wptr - start, self.put, self.splices
            whole = place + size <= self._ring_bytes
            word = self._ring_va + place | size << LENGTH_SHIFT
            view, at = self._view, put * ENTRY_BYTES
            if not splices and whole:
                if view is not None:
                    PACK_ENTRY(view, at, word)
                else:
                    self._write(at, ENTRY.pack(word))
                put += 1
            else:
                # a kept stream, most often
                usual = whole and len(splices) == 1 and splices[0][0] == start
                entries = splices[0][1] + ENTRY.pack(word) if usual else self._entries(start, wptr)
                if view is not None and at + len(entries) <= self._end:
                    view[at : at + len(entries)] = entries
                else:
                    self._store_wrapped(at, entries)
                put += len(entries) // ENTRY_BYTES
            # in one step: an interruption leaves all as it was before, or as it is afterwards
            self.put, self.published, self.splices = put & self.entries - 1, wptr, []
        self.tell()

    def tell(self) -> None:
        """Store the index behind the last entry, and ring the doorbell."""
        fence = self._fence
        if fence is not None:
            fence()
        self._store_put(self.put)
        if fence is not None:
            fence()
        self._ring_doorbell()

    def store_alone(self, word: int) -> int:
        """Store an entry behind all that was published, and return the index behind it. It does not count yet."""
        put, view = self.put, self._view
        if view is not None:
            PACK_ENTRY(view, put * ENTRY_BYTES, word)
        else:
            self._write(put * ENTRY_BYTES, ENTRY.pack(word))
        return put + 1 & self.entries - 1

    def _entries(self, start: int, wptr: int) -> bytes:
        """Return the entries for the ring's bytes and for what was spliced between them."""
        parts = []
        for at, entries in self.splices:
            parts += [self._of_ring(start, at), entries]
            start = at
        return b"".join((*parts, self._of_ring(start, wptr)))

    def _of_ring(self, start: int, end: int) -> bytes:
        """Return the entries for a range of the ring's bytes, two where it wraps."""
        place, size = start & self._mask, end - start
        first = min(size, self._ring_bytes - place)
        return entries_of(self._ring_va + place, first) + entries_of(self._ring_va, size - first)

    def _store_wrapped(self, at: int, entries: bytes) -> None:
        """Store entries from byte `at` on, which may wrap."""
        first = self._end - at
        for place, data in ((at, entries[:first]), (0, entries[first:])):
            if self._view is not None:
                self._view[place : place + len(data)] = data
            elif data:
                self._write(place, data)

    def restart(self) -> None:
        """Begin anew: the channel was made again, its indices are 0, nothing is in flight."""
        self.put = self.published = 0
        self.splices.clear()


class Copy(NamedTuple):
    """A copy of a kept stream that one entry runs. `at_bytes`: where it begins in the stream's memory. In the copy, the
    signal's value is at byte `value_at`, and the commands end at byte `end`.
    """

    word: int
    at_bytes: int
    value_at: int
    end: int


class GpfifoQueue(Queue):
    """A queue of a channel. Its ring is the pushbuffer ring, whose `publish` is the `publish` of `gpfifo`.

    Long streams and kept ones are entries of their own between the ring's bytes.
    """

    def __init__(self, parts: QueueParts, gpfifo: Gpfifo) -> None:
        super().__init__(parts)
        self._install_gpfifo(gpfifo)

    def _install_gpfifo(self, gpfifo: Gpfifo) -> None:
        """Use `gpfifo` from now on, with the ring of the parts."""
        self._gpfifo = gpfifo
        ring = self.ring
        ring.usable_bytes = min(ring.size_bytes - 4 - UNREAD_BYTES, gpfifo.max_ring_bytes)
        ring.limit = ring.tail + ring.usable_bytes
        # a stream in the ring needs space besides the packets of the queue
        self._longest_bytes = min(ring.size_bytes // 4, ring.usable_bytes // 4)

    @property
    def signal(self) -> bytes:
        """The packets that signal its timeline, without a value."""
        return bytes(self._signal)

    @property
    def value_at(self) -> int:
        """Where the low part of the value lies in `signal`."""
        return self._low_at

    def call(
        self,
        gpu_va: int,
        size_bytes: int,
        waits: list[Point],
        known: dict[int, Call],
        timeout_s: float = TIMEOUT_S,
    ) -> Point:
        """Run commands in the card's memory and return the point that is reached when they are done. They begin with
        the packets of `Commands.begin` themselves.
        """
        if get_ident() != self._owner.thread:
            self._owner.admit()
        # of a submission that was interrupted before its first byte
        if self._gpfifo.splices:
            self._gpfifo.drop_splices()
        call = known.get(0)
        if call is None:
            # an owner of commands keeps its entries, and what pays for them
            entries = entries_of(gpu_va, size_bytes)
            paid = _paid(entries)
            call = known[0] = Call(entries, bytearray(paid + self._signal), 0, len(paid) + self._low_at, 0)
        ring, timeline, whole = self.ring, self.timeline, call.submission
        start, last, size = ring.wptr, timeline.last, len(whole)
        if (
            not (waits or self._waits)
            and last < self._low_mask
            and start + size <= ring.limit
            and (start & ring.size_bytes - 1) + size <= ring.size_bytes
        ):
            try:
                self._gpfifo.splice(start, call.packets)
                timeline.last = value = last + 1
                self._pack_low(whole, call.low_at, value)
                point = Point(timeline, value)
                ring.put_whole(whole, point, 0)
            except BaseException:
                self._broken_off(start, last)
                raise
            return point
        head: bytes = self._prefix(waits) if self._waits or waits else b""
        self._gpfifo.splice(start + len(head), call.packets)
        point = self._push(head + _paid(call.packets), timeout_s)
        if self._waits:
            self._waits.clear()
        return point

    def run_alone(self, image: bytearray, copy: Copy, write: Store, begin: int) -> Point | None:
        """Run a copy of commands by one entry and return the point that is reached when they are done. Return None, and
        do nothing, when the queue must store packets before them.

        `image`: the bytes of the copy, which `write` stores from byte `begin` on once the signal has its value.
        """
        owner = self._owner
        if get_ident() != owner.thread:
            owner.admit()
        ring, timeline, gpfifo = self.ring, self.timeline, self._gpfifo
        start, last = ring.wptr, timeline.last
        # bytes of the ring pay for the entry. They hold nothing, and no entry fetches them
        end = start + BYTES_PER_ENTRY
        if self._waits or last >= self._low_mask or end > ring.limit or gpfifo.splices:
            return None
        value = last + 1
        point = Point(timeline, value)
        ring.pending.append((point, end))
        try:
            self._pack_low(image, copy.value_at, value)
            write(copy.at_bytes + begin, image[begin : copy.end] if begin else image)
            put = gpfifo.store_alone(copy.word)
            # in one step: an interruption leaves all as it was before, or as it is afterwards
            timeline.last, ring.wptr, gpfifo.put, gpfifo.published = value, end, put, end
            gpfifo.tell()
        except BaseException:
            if ring.wptr == start:
                ring.pending.pop()
            self._broken_off(start, last)
            raise
        return point

    def submit(
        self,
        stream: Stream,
        timeout_s: float = TIMEOUT_S,
        put: Put | None = None,
        stored: Callable[[], None] | None = None,
    ) -> Point:
        """Submit a stream, as every queue does."""
        # of a submission that was interrupted before its first byte
        if self._gpfifo.splices:
            self._gpfifo.drop_splices()
        return super().submit(stream, timeout_s, put, stored)

    def _outside(self, head: bytes, body: bytes | bytearray, timeout_s: float) -> tuple[bytes, bytes | bytearray]:
        """Store a long stream in the indirect arena and let an entry of its own run it behind `head`."""
        at = self._indirect.take(len(body), timeout_s)
        self._indirect.put(at, body)
        entries = entries_of(self._indirect.gpu_va + at, len(body))
        self._gpfifo.splice(self.ring.wptr + len(head), entries)
        return head, _paid(entries)

    def _ahead(self, at: int, size_bytes: int) -> int:
        """Return the bytes up to the ring's end, for a submission that would wrap: no run of methods is cut in two."""
        rest = self.ring.size_bytes - (at & self.ring.size_bytes - 1)
        if rest >= size_bytes:
            return 0
        self._gpfifo.move_splices(rest)
        return rest

    def _blank(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)

    def _broken_off(self, start: int, last: int) -> None:
        # nothing was stored
        if self.ring.wptr == start:
            self._gpfifo.drop_splices()
        super()._broken_off(start, last)

    def restart(self, cause: Exception) -> None:
        """Go on after a reset of the hardware: the channel was made again."""
        super().restart(cause)
        self._gpfifo.restart()


class GpfifoKept(Kept):
    """A kept stream of a channel. Each copy ends with the queue's signal, whose value is stored with the values that
    were patched: a submission is one entry.

    A copy that may still run, and one whose queue must wait first, is called instead: its signal is in the ring then.
    """

    queue: GpfifoQueue

    def __init__(self, queue: GpfifoQueue, stream: Stream, alloc: Callable[[int], KeptMemory], copies: int = 2) -> None:
        """As `Kept` says."""
        super().__init__(queue, stream, alloc, copies, behind=queue.signal)
        end = self.commands_bytes + len(queue.signal)
        self._value_at = value_at = self.commands_bytes + queue.value_at
        # none for a stream that one entry cannot fetch, or that waits: it is called
        alone = end <= MAX_PIECE_BYTES and not self._waits
        copies_alone = [
            Copy(entry(place.gpu_va, end), place.at_bytes, value_at, end) if alone else None for place in self._places
        ]
        self._turn = itertools.cycle(zip(self._places, copies_alone, strict=True)).__next__

    def submit(self, timeout_s: float = TIMEOUT_S) -> Point:
        """Submit the stream, as every kept stream is."""
        if not self._places:
            raise self._gone()
        (place, copy), version, queue = self._turn(), self._version, self.queue
        last, timeline = place.last, queue.timeline
        point = None
        # values of a timeline that has ended are below those of its successor
        busy = last is not None and timeline.known < last.value and timeline.completed < last.value
        current = place.version == version
        if copy is not None and not (busy and current):
            if busy and last is not None:
                last.wait(timeout_s)
            point = queue.run_alone(place.image, copy, self._write, self._value_at if current else 0)
            if point is not None:
                place.version = version
        if point is None:
            self._store(place, timeout_s)
            point = self._run(place, timeout_s)
        place.last = point
        return point


def _paid(entries: bytes) -> bytes:
    """Return packets that do nothing: bytes of the ring for entries beyond one, so that its bytes in flight bound the
    entries in flight.
    """
    extra = len(entries) // ENTRY_BYTES - 1
    return PUSH_NOP * (BYTES_PER_ENTRY // len(PUSH_NOP) * extra)
