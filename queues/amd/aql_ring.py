"""The ring of an HSA queue: slots of 64 bytes, whose packets an engine takes when it sees that their type is valid.

The host stores the header of a submission's first packet last: until then its slot says INVALID, and an engine takes
packets only in order. So one store of a dword makes any number of packets valid, also on a path where each store is a
request. The engine makes a slot INVALID again when it has taken its packet, and then counts it in the queue's read
index. Source: HSA Platform System Architecture 1.2, "User mode queuing" (packet processing, in-order launch); ROCr
amd_aql_queue.cpp, AqlQueue::ExecutePM4.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.queues.amd import aql
from ringup.queues.ring import Ring
from ringup.queues.timeline import Point

HEADER_BYTES = 4


class AqlRing(Ring):
    """See `Ring`. A slot is free once its packet's work is done and the engine has counted it as taken."""

    def __init__(
        self,
        name: str,
        size_bytes: int,
        write: Callable[[int, bytes | bytearray | memoryview], None],
        publish: Callable[[int], None],
        consumed: Callable[[int, float], int],
    ) -> None:
        """`consumed(packets, timeout_s)` waits until the engine has taken so many packets since the queue began, and
        returns how many it has taken. It need not count each packet at once (ROCr, HandleInsufficientScratch).
        """
        super().__init__(name, size_bytes, write, publish)
        self._consumed = consumed
        self.clear()

    def clear(self) -> None:
        """Make every slot INVALID. No queue may be on this memory."""
        self._write(0, aql.invalid() * (self.size_bytes // aql.PACKET_BYTES))

    def restart(self) -> None:
        """Forget all submissions: the queue was mapped again, and its pointers start at 0."""
        super().restart()
        self.clear()

    def reserve(self, size_bytes: int, timeout_s: float) -> None:
        """Wait until slots for `size_bytes` are free. Raises what points' `wait` and `consumed` raise."""
        self.limit = self.tail + self.usable_bytes
        super().reserve(size_bytes, timeout_s)
        need = -(-(self.wptr + size_bytes - self.usable_bytes) // aql.PACKET_BYTES)
        taken = self._consumed(max(0, need), timeout_s)
        self.limit = min(self.limit, taken * aql.PACKET_BYTES + self.usable_bytes)

    def put(
        self,
        data: bytes | bytearray,
        point: Point,
        unread_bytes: int = 0,
        at: int | None = None,
        stored: Callable[[], None] | None = None,
    ) -> None:
        """Store one submission and publish it. Its last packet, which signals `point`, may not be counted as taken when
        the point is done.
        """
        super().put(data, point, aql.PACKET_BYTES, at, stored)

    def put_whole(self, data: bytes | bytearray, point: Point, unread_bytes: int) -> None:
        """Do the same as `put` for a submission that does not wrap."""
        super().put(data, point, aql.PACKET_BYTES)

    def _store_wrapped(self, place: int, data: bytes | bytearray) -> None:
        """Store packets; those that wrapped come first, and the header of the first one last."""
        room = self.size_bytes - place
        self._store(0, data[room:])
        self._store(place + HEADER_BYTES, data[HEADER_BYTES:room])
        self._store(place, data[:HEADER_BYTES])
