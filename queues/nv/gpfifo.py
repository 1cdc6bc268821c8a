"""The GPFIFO of a channel: a ring of entries, each of which makes the host fetch a piece of pushbuffer.

The host computer stores entries, then the index behind the last (GP_PUT), then rings the doorbell. The card only reads
entries. Source: open-gpu-doc dev_pbdma.ref.txt, "GP_ENTRY0 and GP_ENTRY1", "GP_PUT".
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from threading import get_ident
from typing import NamedTuple, Protocol

from ringup.autogen.nv import methods_host as host
from ringup.queues.kept import Kept, KeptMemory, KeptPlace
from ringup.queues.nv.methods import PUSH_NOP
from ringup.queues.queue import TIMEOUT_S, Call, Queue, QueueParts, Stream
from ringup.queues.timeline import Point

ENTRY = struct.Struct("<Q")
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
# a signal stores all of a value at one place
VALUE_BYTES = 8
NO_MEMORY = memoryview(b"")


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


def entries_of(gpu_va: int, size_bytes: int) -> list[int]:
    """Return the entries for any number of bytes, in pieces as long as an entry can name."""
    return [entry(gpu_va + at, min(MAX_PIECE_BYTES, size_bytes - at)) for at in range(0, size_bytes, MAX_PIECE_BYTES)]


class Cells(Protocol):
    """Memory of the card, cell by cell: a `memoryview` where the CPU has it mapped."""

    def __setitem__(self, index: int, value: int, /) -> None: ...


class WrittenCells:
    """Entries in memory that the CPU has not mapped: `write(at_bytes, data)` stores there."""

    def __init__(self, write: Callable[[int, bytes], None]) -> None:
        self._write = write

    def __setitem__(self, index: int, value: int) -> None:
        """Store an entry."""
        self._write(index * ENTRY_BYTES, ENTRY.pack(value))


class Gpfifo:
    """The entries of one channel. `publish` is what a `Ring` calls: it makes entries for the ring's new bytes.

    `put`: the index of the next entry; `published`: the ring's write pointer then; `words`: where entries are stored.
    Commands in memory, which `splice` names, run between two bytes of the ring.
    """

    def __init__(
        self,
        ring_va: int,
        ring_bytes: int,
        entries: int,
        write: Callable[[int, bytes], None],
        put_cell: Cells,
        ring_doorbell: Callable[[], None],
        *,
        fence: Callable[[], None] | None = None,
        view: memoryview | None = None,
        start: int = 0,
    ) -> None:
        """`ring_va`, `ring_bytes`: the pushbuffer ring. `entries`: a power of two; with fewer than one for 12 bytes of
        the ring, the ring is not used in full. `write(at_bytes, data)` stores entries, `view` is their memory where the
        CPU has it mapped. `put_cell`: GP_PUT in USERD, one dword. `ring_doorbell()` writes the channel's work-submit
        token. `fence()` makes earlier stores visible to the card before later ones; None where the CPU's
        stores arrive in order. `start`: the ring's write pointer now.
        """
        if entries < MIN_ENTRIES or entries & entries - 1:
            raise ValueError(f"a GPFIFO has a power of two of entries, at least {MIN_ENTRIES}, not {entries}")
        # raises for a ring that no entry reaches
        entry(ring_va, min(ring_bytes, MAX_PIECE_BYTES))
        if ring_bytes > MAX_PIECE_BYTES or ring_va + ring_bytes >= 1 << ADDRESS_BITS:
            raise ValueError(f"a pushbuffer ring of {ring_bytes} bytes at {ring_va:#x}: an entry cannot name it")
        # the last index, which wraps an index too
        self.entries, self.last, self.put = entries, entries - 1, 0
        self._ring_va, self._ring_bytes, self._mask = ring_va, ring_bytes, ring_bytes - 1
        self.words: Cells = WrittenCells(write) if view is None else view[: entries * ENTRY_BYTES].cast("Q")
        self._put_cell, self._ring_doorbell, self._fence = put_cell, ring_doorbell, fence
        # the ring's bytes that have entries, or that pay for one
        self.published = start
        # of the submission that is being stored: the write pointer before which they run, entries
        self.spliced: tuple[int, list[int]] | None = None

    @property
    def max_ring_bytes(self) -> int:
        """How many of the ring's bytes may be in flight, so that their entries never overtake the card's index."""
        return (self.entries - SPARE_ENTRIES) * BYTES_PER_ENTRY

    def splice(self, at: int, entries: list[int]) -> None:
        """Run commands in memory, which `entries` fetch, before the ring's byte `at`, once that is published. A
        submission does so once at most.
        """
        self.spliced = at, entries

    def move_splice(self, by_bytes: int) -> None:
        """Move what was spliced and is not published: its submission begins later in the ring."""
        if self.spliced is not None:
            at, entries = self.spliced
            self.spliced = at + by_bytes, entries

    def drop_splice(self) -> None:
        """Forget what was spliced and is not published."""
        self.spliced = None

    def publish(self, wptr: int) -> None:
        """Tell the card of the ring's bytes up to `wptr`, and of entries that were stored before `put` was changed.

        ORDER: what the entries fetch and the entries themselves are visible before GP_PUT, which is before the
        doorbell. Source: OGKM uvm_volta_host.c, uvm_hal_volta_host_write_gpu_put.
        """
        start, put = self.published, self.put
        if start != wptr:
            place, size = start & self._mask, wptr - start
            if self.spliced is None and place + size <= self._ring_bytes:
                self.words[put] = self._ring_va + place | size << LENGTH_SHIFT
                put += 1
            else:
                entries = self._entries(start, wptr)
                self._store(put, entries)
                put += len(entries)
            put &= self.last
            # in one step: an interruption leaves all as it was before, or as it is afterwards
            self.put, self.published, self.spliced = put, wptr, None
        fence = self._fence
        if fence is None:
            self._put_cell[0] = put
        else:
            fence()
            self._put_cell[0] = put
            fence()
        self._ring_doorbell()

    def _entries(self, start: int, wptr: int) -> list[int]:
        """Return the entries for the ring's bytes and for what was spliced between them."""
        if self.spliced is None:
            return self._of_ring(start, wptr)
        at, entries = self.spliced
        return [*self._of_ring(start, at), *entries, *self._of_ring(at, wptr)]

    def _of_ring(self, start: int, end: int) -> list[int]:
        """Return the entries for a range of the ring's bytes, two where it wraps."""
        place, size = start & self._mask, end - start
        first = min(size, self._ring_bytes - place)
        return entries_of(self._ring_va + place, first) + entries_of(self._ring_va, size - first)

    def _store(self, put: int, entries: list[int]) -> None:
        """Store entries from an index on, which may wrap."""
        words, last = self.words, self.last
        for index, word in enumerate(entries, put):
            words[index & last] = word

    def restart(self) -> None:
        """Begin anew: the channel was made again, its indices are 0, nothing is in flight."""
        self.put = self.published = 0
        self.spliced = None


class Copy(NamedTuple):
    """A copy of a kept stream. `word`: the entry that runs it alone, 0 if none does. `memory`: its bytes in the card's
    memory; `value`: the cell of them for the value that it signals.
    """

    place: KeptPlace
    word: int
    memory: memoryview
    value: memoryview


class GpfifoQueue(Queue):
    """A queue of a channel. Its ring is the pushbuffer ring, whose `publish` is the `publish` of `gpfifo`.

    Long streams and kept ones are entries of their own between the ring's bytes.
    """

    def __init__(self, parts: QueueParts, gpfifo: Gpfifo) -> None:
        super().__init__(parts)
        self._install_gpfifo(gpfifo)

    def _install_gpfifo(self, gpfifo: Gpfifo) -> None:
        """Use `gpfifo` from now on, with the ring of the parts."""
        self.gpfifo = gpfifo
        ring = self.ring
        ring.usable_bytes = min(ring.size_bytes - 4 - UNREAD_BYTES, gpfifo.max_ring_bytes)
        ring.limit = ring.tail + ring.usable_bytes
        # a stream in the ring needs space besides the packets of the queue
        self._longest_bytes = min(ring.size_bytes // 4, ring.usable_bytes // 4)

    @property
    def signal(self) -> bytes:
        """The packets that signal its timeline, without a value."""
        return bytes(self._signal)

    def value_in(self, signal: memoryview) -> memoryview:
        """Return the cell for the value in a copy of `signal`."""
        return signal[self._low_at :][:VALUE_BYTES].cast("Q")

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
        if get_ident() != self.owner.thread:
            self.owner.admit()
        head = self._prefix(waits) if self.waits or waits else b""
        entries = entries_of(gpu_va, size_bytes)
        try:
            self.gpfifo.splice(self.ring.wptr + len(head), entries)
            point = self._push(head + _paid(entries), timeout_s)
        except BaseException:
            self._forget_begun()
            raise
        if self.waits:
            self.waits.clear()
        return point

    def _outside(self, head: bytes, body: bytes | bytearray, timeout_s: float) -> tuple[bytes, bytes | bytearray]:
        """Store a long stream in the indirect arena and let an entry of its own run it behind `head`."""
        at = self._indirect.take(len(body), timeout_s)
        self._indirect.put(at, body)
        entries = entries_of(self._indirect.gpu_va + at, len(body))
        self.gpfifo.splice(self.ring.wptr + len(head), entries)
        return head, _paid(entries)

    def _ahead(self, at: int, size_bytes: int) -> int:
        """Return the bytes up to the ring's end, for a submission that would wrap: no run of methods is cut in two."""
        rest = self.ring.size_bytes - (at & self.ring.size_bytes - 1)
        if rest >= size_bytes:
            return 0
        self.gpfifo.move_splice(rest)
        return rest

    def _blank(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)

    def _forget_begun(self) -> None:
        self.gpfifo.drop_splice()

    def restart(self, cause: Exception) -> None:
        """Go on after a reset of the hardware: the channel was made again."""
        super().restart(cause)
        self.gpfifo.restart()


class GpfifoKept(Kept):
    """A kept stream of a channel. Each copy ends with the queue's signal, whose value is stored with the values that
    were patched: a submission is one entry.

    A copy that may still run, and one whose queue must wait first, is called instead: its signal is in the ring then.
    """

    queue: GpfifoQueue

    def __init__(self, queue: GpfifoQueue, stream: Stream, alloc: Callable[[int], KeptMemory], copies: int = 2) -> None:
        """As `Kept` says."""
        super().__init__(queue, stream, alloc, copies, behind=queue.signal)
        self._turn = itertools.cycle([self._copy(place) for place in self._places]).__next__

    def _copy(self, place: KeptPlace) -> Copy:
        """Return a copy. No entry alone runs a stream that is too long for it, one that waits, and one in memory that
        the CPU has not mapped.
        """
        size = self.commands_bytes + len(self.queue.signal)
        if size > MAX_PIECE_BYTES or self._waits or self._view is None:
            return Copy(place, 0, NO_MEMORY, NO_MEMORY)
        memory = self._view[place.at_bytes : place.at_bytes + len(place.image)]
        return Copy(place, entry(place.gpu_va, size), memory, self.queue.value_in(memory[self.commands_bytes :]))

    def lose(self, how: str) -> None:
        """Forget the memory, as `Kept` says."""
        super().lose(how)
        self._turn = iter(()).__next__

    def submit(self, timeout_s: float = TIMEOUT_S) -> Point:
        """Submit the stream, as every kept stream is."""
        if not self._places:
            raise self._gone()
        (place, word, memory, cell), queue = self._turn(), self.queue
        ring, timeline, gpfifo, before = queue.ring, queue.timeline, queue.gpfifo, place.last
        start, last = ring.wptr, timeline.last
        # bytes of the ring pay for the entry. They hold nothing, and no entry fetches them
        end = start + BYTES_PER_ENTRY
        if (
            not word
            # values of a timeline that has ended are below those of its successor
            or (before is not None and timeline.known < before.value and timeline.completed < before.value)
            or end > ring.limit
            or queue.waits
        ):
            self._store(place, timeout_s)
            place.last = point = self._run(place, timeout_s)
            return point
        if get_ident() != queue.owner.thread:
            queue.owner.admit()
        value, put = last + 1, gpfifo.put
        point = Point(timeline, value)
        ring.pending.append((point, end))
        try:
            if place.version != self._version:
                memory[:] = place.image
                place.version = self._version
            cell[0] = value
            gpfifo.words[put] = word
            # in one step: an interruption leaves all as it was before, or as it is afterwards
            timeline.last, ring.wptr, gpfifo.put, gpfifo.published = value, end, put + 1 & gpfifo.last, end
            place.last = point
            gpfifo.publish(end)
        except BaseException:
            if ring.wptr == start:
                ring.pending.pop()
            queue.broken_off(start, last)
            raise
        return point


def _paid(entries: list[int]) -> bytes:
    """Return packets that do nothing: bytes of the ring for entries beyond one, so that its bytes in flight bound the
    entries in flight.
    """
    return PUSH_NOP * (BYTES_PER_ENTRY // len(PUSH_NOP) * (len(entries) - 1))
