"""Bytes between the host and a card's memory, through pinned staging memory that the copy engines reach."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

from ringup.drivers.buffer import Buffer
from ringup.drivers.memory.access import Access
from ringup.queues.amd.sdma_stream import CopyStream
from ringup.queues.arena import Arena
from ringup.queues.timeline import Point

STAGING_BYTES = 4 << 20
# several are in flight at once: the host fills one while the engine copies another
CHUNK_BYTES = 1 << 20
# TIMEOUT: ours; a chunk takes a second on the slowest link
TIMEOUT_S = 10.0


def host_bytes(data: Any) -> memoryview:
    """Return the bytes of an object with the buffer protocol or `__dlpack__`, without copying. They must be
    contiguous.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)) and hasattr(data, "__dlpack__"):
        # only callers with arrays pay for it
        import numpy as np

        data = np.from_dlpack(data)
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError(
            "the data does not lie row by row without gaps: make such a copy first (numpy.ascontiguousarray)"
        )
    return view.cast("B") if view.nbytes else memoryview(b"")


def check_range(buffer: Buffer, offset_bytes: int, size_bytes: int) -> int:
    """Return the address of a range of a buffer. Raises a `ValueError` for one that leaves the buffer."""
    if offset_bytes < 0 or size_bytes < 0 or offset_bytes + size_bytes > buffer.size_bytes:
        raise ValueError(
            f"bytes {offset_bytes} to {offset_bytes + size_bytes} lie outside {buffer!r}, which has {buffer.size_bytes}"
        )
    return buffer.gpu_va + offset_bytes


class Place(NamedTuple):
    """Memory that both sides reach: its address for the card, access for the CPU."""

    gpu_va: int
    access: Access


class Copies(Protocol):
    """A copy queue, as far as moving bytes needs one."""

    def stream(self) -> CopyStream:
        """Return an empty stream."""
        ...

    def submit(self, stream: CopyStream) -> Point:
        """Hand a stream to the engine."""
        ...


class Staging:
    """Memory that one copy queue moves bytes through: a part for uploads, a part for downloads."""

    def __init__(self, up: Place, down: Place) -> None:
        self.up = Arena(up.gpu_va, len(up.access), up.access.write, up.access.view)
        self.down_va, self.down = down

    def forget(self) -> None:
        """Go on after a reset: nothing is in flight any more."""
        self.up.forget()

    def upload(self, queue: Copies, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data` to `target_va`, a chunk at a time; `data` may change afterwards. Return the last
        point, None for no bytes.
        """
        point = None
        for at in range(0, len(data), CHUNK_BYTES):
            piece = data[at : at + CHUNK_BYTES]
            place = self.up.take(len(piece), TIMEOUT_S)
            self.up.put(place, piece)
            stream = queue.stream()
            stream.copy(target_va + at, self.up.gpu_va + place, len(piece))
            point = queue.submit(stream)
            self.up.keep_until(point)
        return point

    def download(self, queue: Copies, source_va: int, out: memoryview) -> None:
        """Copy from `source_va` into `out` and wait until all is there."""
        places = len(self.down) // CHUNK_BYTES
        # when, where in staging, where in `out`
        pending: deque[tuple[Point, int, int]] = deque()

        def take_oldest() -> None:
            point, place, at = pending.popleft()
            point.wait(TIMEOUT_S)
            size = min(CHUNK_BYTES, len(out) - at)
            out[at : at + size] = self.down[place : place + size]

        for number, at in enumerate(range(0, len(out), CHUNK_BYTES)):
            if len(pending) == places:
                take_oldest()
            place = number % places * CHUNK_BYTES
            stream = queue.stream()
            stream.copy(self.down_va + place, source_va + at, min(CHUNK_BYTES, len(out) - at))
            pending.append((queue.submit(stream), place, at))
        while pending:
            take_oldest()
