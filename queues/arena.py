"""A ring-like arena of card-visible memory for what lives only as long as a submission: kernel arguments, indirect
buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringup.queues.timeline import Point, retire


class Arena:
    """`size_bytes` at `gpu_va`; pieces are taken in turn and come back in order, when their submission is done."""

    ALIGN = 256  # bytes: a cache line, and what indirect buffers and kernel arguments ask at most

    def __init__(
        self,
        gpu_va: int,
        size_bytes: int,
        write: Callable[[int, bytes | bytearray | memoryview], None],
        view: memoryview | None = None,
    ) -> None:
        self.gpu_va, self.size_bytes = gpu_va, size_bytes
        self._write, self._view = write, view
        # bytes ever taken, bytes ever given back. While `head` stands, the last piece is as it was put
        self.head = self._tail = 0
        self._pending: deque[tuple[Point, int]] = deque()

    def take(self, size_bytes: int, timeout_s: float) -> int:
        """Return the offset of a free piece, waiting for old submissions where needed. Name its point with `keep_until`
        next.
        """
        need, head, most = -(-size_bytes // self.ALIGN) * self.ALIGN, self.head, self.size_bytes
        at = head % most
        if at + need <= most and head + need - self._tail <= most:
            self.head = head + need
            return at
        if need > most:
            raise ValueError(f"{size_bytes} bytes never fit an arena of {self.size_bytes}")
        if at + need > self.size_bytes:  # no piece wraps
            need += self.size_bytes - at
            at = 0
        pending = self._pending
        while self.head + need - self._tail > self.size_bytes:
            if not pending:  # nothing is under way, so nothing is in use; the skipped end alone asked for more than all
                self._tail = self.head
                self.head = self._tail = -(-self.head // self.size_bytes) * self.size_bytes
                need, at = -(-size_bytes // self.ALIGN) * self.ALIGN, 0
                continue
            self._tail = retire(pending, timeout_s)
        self.head += need
        return at

    def put(self, offset_bytes: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes in a piece that was taken."""
        view = self._view
        if view is not None:
            view[offset_bytes : offset_bytes + len(data)] = data
        else:
            self._write(offset_bytes, data)

    def keep_until(self, point: Point) -> None:
        """Say until when what was taken so far is in use."""
        self._pending.append((point, self.head))

    def keep_on(self, point: Point) -> None:
        """Say until when the last piece is in use, which `keep_until` was told of and which is used once more."""
        self._pending[-1] = point, self.head  # in place of that: two with one end would tell too early that it is free

    def forget(self) -> None:
        """Take everything back: nothing is under way any more."""
        self._pending.clear()
        self.head += self.ALIGN  # the last piece is nobody's now
        self._tail = self.head
