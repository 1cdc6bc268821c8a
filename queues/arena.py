"""An arena: memory that the card sees, used like a ring. It holds what lives as long as a submission: kernel arguments
and indirect buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringup.queues.timeline import Point, retire


class Arena:
    """`size_bytes` at `gpu_va`. Pieces are taken in turn. They become free in the same order, each when its submission
    is done.
    """

    # bytes: at least a cache line, and the largest alignment of indirect buffers and kernel arguments
    ALIGN = 256

    def __init__(
        self,
        gpu_va: int,
        size_bytes: int,
        write: Callable[[int, bytes | bytearray | memoryview], None],
        view: memoryview | None = None,
    ) -> None:
        self.gpu_va, self.size_bytes = gpu_va, size_bytes
        self._write, self._view = write, view
        # bytes ever taken, bytes ever freed. While `head` stays the same, the last piece keeps its contents
        self.head = self._tail = 0
        self._pending: deque[tuple[Point, int]] = deque()

    def take(self, size_bytes: int, timeout_s: float) -> int:
        """Return the offset of a free piece. Wait for old submissions if there is no room. The caller then calls
        `keep_until` with the point of its submission.
        """
        need, head, most = -(-size_bytes // self.ALIGN) * self.ALIGN, self.head, self.size_bytes
        at = head % most
        if at + need <= most and head + need - self._tail <= most:
            self.head = head + need
            return at
        if need > most:
            raise ValueError(f"{size_bytes} bytes never fit an arena of {self.size_bytes}")
        # a piece does not wrap: skip the end of the arena
        if at + need > self.size_bytes:
            need += self.size_bytes - at
            at = 0
        pending = self._pending
        while self.head + need - self._tail > self.size_bytes:
            # no work is in flight, so nothing is in use. The piece and the skipped end are larger than the arena: start
            # again at offset 0
            if not pending:
                self._tail = self.head
                self.head = self._tail = -(-self.head // self.size_bytes) * self.size_bytes
                need, at = -(-size_bytes // self.ALIGN) * self.ALIGN, 0
                continue
            self._tail = retire(pending, timeout_s)
        self.head += need
        return at

    def put(self, offset_bytes: int, data: bytes | bytearray | memoryview) -> None:
        """Store bytes in a taken piece."""
        view = self._view
        if view is not None:
            view[offset_bytes : offset_bytes + len(data)] = data
        else:
            self._write(offset_bytes, data)

    def keep_until(self, point: Point) -> None:
        """Keep the pieces taken so far until `point` is done."""
        self._pending.append((point, self.head))

    def keep_on(self, point: Point) -> None:
        """Keep the last piece until a later `point`, whose submission uses the piece too."""
        # replace the entry of `keep_until`: with two entries of the same end, the first would free the piece too early
        self._pending[-1] = point, self.head

    def forget(self) -> None:
        """Free all pieces. No work may be in flight."""
        self._pending.clear()
        # a changed `head` tells streams that the last piece no longer holds their arguments
        self.head += self.ALIGN
        self._tail = self.head
