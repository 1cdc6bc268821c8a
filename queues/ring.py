"""A ring in memory: a circular buffer that a producer fills and a consumer reads.

The producer (the host) stores packets, then the write pointer, then rings the doorbell, in that order. The consumer
(the engine) reads the bytes before the pointer. The space of a submission becomes free when its point on the timeline
is done: the engine has read all of it by then. The engine's read pointer is not used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringup.queues.timeline import Point, retire


class Ring:
    """`size_bytes` (a power of two) of memory, which `write(offset, data)` stores to. Pointers count bytes. They only
    grow: the offset in the ring is the pointer modulo the size.
    """

    def __init__(
        self,
        name: str,
        size_bytes: int,
        write: Callable[[int, bytes | bytearray | memoryview], None],
        publish: Callable[[int], None],
        *,
        view: memoryview | None = None,
        start: int = 0,
    ) -> None:
        """`publish(wptr_bytes)` stores the write pointer and rings the doorbell. `view` is the ring's memory where the
        CPU has it mapped; then `write` is not called.
        """
        if size_bytes < 256 or size_bytes & size_bytes - 1:
            raise ValueError(f"a ring's size is a power of two from 256 bytes, not {size_bytes}")
        self.name, self.size_bytes = name, size_bytes
        self._write, self._publish, self._view = write, publish, view
        self._mask = size_bytes - 1
        # the pointers of a full ring equal those of an empty one, so the ring is never filled completely
        self.usable_bytes = size_bytes - 4
        # bytes ever written; bytes known to be read
        self.wptr = self.tail = start
        # the write pointer may not pass this value now
        self.limit = start + self.usable_bytes
        # submissions that are not known to be done, with the ends of their bytes
        self.pending: deque[tuple[Point, int]] = deque()

    @property
    def free_bytes(self) -> int:
        """Bytes that may be written now."""
        return self.limit - self.wptr

    def reserve(self, size_bytes: int, timeout_s: float) -> None:
        """Wait for the oldest submissions until `size_bytes` are free. Raises what their points' `wait` raises."""
        if size_bytes > self.usable_bytes:
            raise ValueError(f"{size_bytes} bytes never fit the {self.size_bytes} of {self.name}")
        pending = self.pending
        while self.free_bytes < size_bytes:
            self.tail = retire(pending, timeout_s)
            self.limit = self.tail + self.usable_bytes

    def put(
        self,
        data: bytes | bytearray,
        point: Point,
        unread_bytes: int = 0,
        at: int | None = None,
        stored: Callable[[], None] | None = None,
    ) -> None:
        """Store one submission, whose last packet signals `point`, and publish it. The caller has reserved its space.

        `unread_bytes`: bytes at the end of `data`, such as padding, that the engine may not have read when `point` is
        done. `at`: where the submission begins; the bytes between the write pointer and `at` are stored already.
        `stored`: called after the bytes are stored and before the write pointer is published.
        """
        if at is None:
            at = self.wptr
        size = len(data)
        end, place, view = at + size, at & self._mask, self._view
        self.pending.append((point, end - unread_bytes))
        try:
            if view is not None and place + size <= self.size_bytes:
                view[place : place + size] = data
            else:
                self._store_wrapped(place, data)
            if stored is not None:
                stored()
        except BaseException:
            self.pending.pop()
            raise
        self.wptr = end
        self._publish(end)

    def put_whole(self, data: bytes | bytearray, point: Point, unread_bytes: int) -> None:
        """Do the same as `put` for a submission that does not wrap: the short path for frequent submissions."""
        start = self.wptr
        end, place, view = start + len(data), start & self._mask, self._view
        self.pending.append((point, end - unread_bytes))
        try:
            if view is not None:
                view[place : place + end - start] = data
            else:
                self._write(place, data)
        except BaseException:
            self.pending.pop()
            raise
        self.wptr = end
        self._publish(end)

    def publish(self) -> None:
        """Publish the write pointer once more."""
        self._publish(self.wptr)

    def store(self, at: int, data: bytes | bytearray) -> None:
        """Store packets at `at`, a count of bytes like the pointers. The packets are not published."""
        self._store_wrapped(at & self._mask, data)

    def _store_wrapped(self, place: int, data: bytes | bytearray) -> None:
        first = self.size_bytes - place
        self._store(place, data[:first])
        self._store(0, data[first:])

    def _store(self, at: int, data: bytes | bytearray) -> None:
        if self._view is not None:
            self._view[at : at + len(data)] = data
        elif data:
            self._write(at, data)

    def unfinished(self) -> tuple[int, int]:
        """Return where the submissions that are not done begin and end, as counts of bytes like the pointers."""
        start = self.tail
        for point, end in self.pending:
            if not point.done:
                break
            start = end
        return start, self.wptr

    def restart(self) -> None:
        """Forget all submissions: the queue was mapped again, and its pointers start at 0."""
        self.pending.clear()
        self.tail = self.wptr = 0
        self.limit = self.usable_bytes
