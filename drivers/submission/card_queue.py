"""The queues of a card as a program holds them: the neutral `Queue`, and what lies below it on a card."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from ringup.drivers.buffer import Buffer
from ringup.drivers.submission import transfer
from ringup.drivers.submission.hardware_queue import HardwareQueue, Position, Rings
from ringup.drivers.submission.queue_memory import QueueMemory
from ringup.errors import RingupError
from ringup.queues.kept import Kept, KeptMemory
from ringup.queues.queue import TIMEOUT_S, Owner, Queue, QueueParts, Stream
from ringup.queues.timeline import Point, Timeline

CLOSE_S = 1.0  # TIMEOUT: ours, for work under way when its queue is closed
S = TypeVar("S", bound=Stream)


class BytePath(Protocol):
    """What a copy queue moves bytes of the host through."""

    def upload(self, queue: Any, target_va: int, data: memoryview) -> Point | None:
        """Queue copies of `data`, which may change afterwards. Return the last point, None for no bytes."""
        ...

    def download(self, queue: Any, source_va: int, out: memoryview) -> None:
        """Fill `out` and wait until all is there."""
        ...

    def forget(self) -> None:
        """Go on after a reset: nothing is in flight any more."""
        ...


class QueueServices(Protocol):
    """What a queue asks of the `QueueSet` that made it."""

    def kept_memory(self, size_bytes: int) -> KeptMemory:
        """Return memory for a kept stream."""
        ...

    def byte_path(self, queue: CopyVerbs) -> BytePath:
        """Return what a copy queue moves bytes of the host through."""
        ...

    def others_busy(self, queue: CardQueue) -> bool:
        """Tell whether other queues, also of other cards, have work under way that may wait for this one's points."""
        ...

    def across(self, waiting: Timeline, point: Point) -> tuple[int, int] | None:
        """Return what a queue waits for in place of a point of another card; None where the host has to wait.
        `waiting`: the queue's timeline.
        """
        ...

    def map_again(self, queue: CardQueue, cause: Exception) -> None:
        """Map a queue again that was taken off, with pointers of 0; undone work fails with `cause`."""
        ...

    def forget(self, queue: CardQueue) -> None:
        """Let another queue have the place of one that was closed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CardQueueParts(QueueParts):
    """What a queue of a card is made of besides."""

    hardware: HardwareQueue
    memory: QueueMemory
    doorbell: Rings
    services: QueueServices
    # bytes of the queue's page: the pointers that its engine reads and writes there
    pointers_at: tuple[int, ...] = ()


class Hooks(NamedTuple):
    """What a profile sees of a queue: `around` is each stream's, `submit` is called instead of the queue's own."""

    around: Callable[[Any, str], Callable[[], None]]
    submit: Callable[..., Point]


class CardQueue(Queue, ABC):
    """A queue of a card: the neutral one, and what lies below it.

    What it is made of is replaced as a whole when a reset has taken the card's memory; the object that a program holds
    stays.
    """

    def __init__(self, parts: CardQueueParts) -> None:
        super().__init__(parts)
        self._install_card(parts)

    def _install_card(self, parts: CardQueueParts) -> None:
        self.hardware, self.memory, self.doorbell = parts.hardware, parts.memory, parts.doorbell
        self.pointers_at = parts.pointers_at
        self._services = parts.services
        self._kept: weakref.WeakSet[Kept] = weakref.WeakSet()
        self._refused = False
        self.set_hooks(None)

    def _replace(self, parts: CardQueueParts) -> None:
        """Go on with parts that a new queue was made of and tried with; the count of the timeline goes on."""
        # never back: what the parts were tried with stands in memory already
        parts.timeline.skip_to(max(self.timeline.last, parts.timeline.last))
        self._install(parts)
        self._install_card(parts)

    @abstractmethod
    def stream(self) -> Stream:
        """Return an empty stream."""

    def _begin(self, begin: Callable[[], S]) -> S:
        if self._refused:
            self.owner.admit()
        stream = begin()
        if self._hooks is not None:
            stream.around = self._hooks.around
        return stream

    def position(self) -> Position:
        """Read where the queue stands."""
        return self.hardware.position()

    def set_hooks(self, hooks: Hooks | None) -> Hooks | None:
        """Let a profile see streams begun and submitted from now on, none with `None`; return the hooks before."""
        before = vars(self).get("_hooks")
        self._hooks: Hooks | None = hooks
        if hooks is not None:
            # it hides the method, so that submissions without a profile cost nothing more
            vars(self)["submit"] = hooks.submit
        else:
            vars(self).pop("submit", None)
        return before

    def keep(self, stream: Stream, copies: int = 2) -> Kept:
        """Put a stream into the card's memory, to be patched and submitted again."""
        kept = self._make_kept(stream, copies)
        self._kept.add(kept)
        return kept

    def _make_kept(self, stream: Stream, copies: int) -> Kept:
        return Kept(self, stream, self._services.kept_memory, copies)

    def idle(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all submitted work is done."""
        Point(self.timeline, self.timeline.last).wait(timeout_s)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self.memory.buffers

    def lose(self, cause: Exception, how: str) -> None:
        """Give up what lay in the card's memory, which is lost: undone work fails with `cause`, later uses of kept
        streams raise an error that says `how`.
        """
        done = self.timeline.idle
        self.timeline = self.timeline.fail(cause)
        # as in `close`
        if not done and self._services.others_busy(self):
            self.store_timeline()
        for kept in self._kept:
            kept.lose(how)

    def _across(self, point: Point) -> tuple[int, int] | None:
        return self._services.across(self.timeline, point)

    def store_timeline(self) -> None:
        """Store the timeline's last value in memory, for engines that wait for it and for a queue that goes on behind
        it. The queue is off the hardware.
        """
        self.memory.store_timeline(self.timeline.last)

    def close(self, *, patient: bool = True) -> bool:
        """Take the queue off the hardware and free its memory. Return whether its work had ended. Twice is harmless.

        If `patient`, submitted work gets a second to end. Work that has not ended is killed: its points fail, and
        queues that wait for them go on.
        """
        self.owner.check()
        # its hardware may belong to another queue by now
        if self.closed:
            return True
        if patient:
            # the points themselves raise it
            with suppress(RingupError):
                self.idle(CLOSE_S)
        done = self.timeline.idle
        ended = self.hardware.unmap() and done
        cause = ValueError(f"{self.name} was closed")
        # before its memory is freed; done work stays done
        self.timeline.fail(cause)
        services = self._services
        # as amdgpu_fence_driver_force_completion does for a ring that hangs
        if not done and services.others_busy(self):
            self.store_timeline()
        self.memory.free(watched=services.others_busy(self))
        self.refuse(cause)
        services.forget(self)
        return ended

    def refuse(self, cause: Exception) -> None:
        """Make every later `stream` and `submit` raise `cause`."""
        self.owner = Owner(self.name)
        self.owner.refuse(cause)
        self._refused = True


class CopyVerbs(CardQueue):
    """What every copy queue offers: bytes between host, buffers and planes."""

    # how bytes move between host and card; set when some are moved for the first time
    _path: BytePath | None = None

    def restart(self, cause: Exception) -> None:
        """Go on after a reset of the hardware."""
        super().restart(cause)
        if self._path is not None:
            self._path.forget()

    def clear(self) -> None:
        """Wait until the next submission would start at once. Raises what a point's `wait` raises."""
        if not self.clear_ahead:
            self.submit(self.stream()).wait()

    def upload(self, target: Buffer, data: Any, offset_bytes: int = 0) -> Point:
        """Copy host bytes (buffer protocol or `__dlpack__`) into a buffer. They are read before this returns, so they
        may change afterwards.
        """
        view = transfer.host_bytes(data)
        target_va, _ = self._range(target, offset_bytes, len(view))
        return self._byte_path().upload(self, target_va, view) or self._last()

    def download(
        self, source: Buffer, out: Any = None, offset_bytes: int = 0, size_bytes: int | None = None
    ) -> bytes | Any:
        """Copy bytes of a buffer to the host and wait for them: they fill `out`, a writable buffer, or new bytes.
        Return what was filled.

        `size_bytes`: by default all bytes up to the buffer's end.
        """
        if out is None:
            source_va, size = self._range(source, offset_bytes, size_bytes)
            result = bytearray(size)
            view = memoryview(result)
        else:
            result, view = out, transfer.host_bytes(out)
            if view.readonly:
                raise ValueError("what is to be filled is read-only")
            if size_bytes not in (None, len(view)):
                raise ValueError(f"what is to be filled has {len(view)} bytes, not {size_bytes}")
            source_va, _ = self._range(source, offset_bytes, len(view))
        self._byte_path().download(self, source_va, view)
        return bytes(result) if out is None else out

    def download_array(self, source: Buffer, dtype: Any, shape: int | tuple[int, ...], offset_bytes: int = 0) -> Any:
        """Return a NumPy array of that type and shape from the buffer's bytes. The array supports DLPack."""
        # imported only by callers with arrays
        import numpy as np

        array = np.empty(shape, dtype)
        if array.nbytes:
            self.download(source, array.reshape(-1).view(np.uint8), offset_bytes)
        return array

    def copy_buffer(
        self,
        target: Buffer,
        source: Buffer,
        size_bytes: int | None = None,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
    ) -> Point:
        """Copy between buffers, or within one: the ranges may overlap. Without a size, copy all of the source."""
        source_va, size = self._range(source, source_offset, size_bytes)
        target_va, _ = self._range(target, target_offset, size)
        stream: Any = self.stream()
        stream.copy(target_va, source_va, size)
        return self.submit(stream)

    def fill(self, target: Buffer, value: int, offset_bytes: int = 0, size_bytes: int | None = None) -> Point:
        """Fill a buffer, or whole dwords of it, with a dword."""
        target_va, size = self._range(target, offset_bytes, size_bytes)
        stream: Any = self.stream()
        stream.fill(target_va, value, size)
        return self.submit(stream)

    def copy_rect(
        self,
        target: Buffer,
        target_pitch_bytes: int,
        source: Buffer,
        source_pitch_bytes: int,
        width_bytes: int,
        height: int,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
    ) -> Point:
        """Copy `height` rows of `width_bytes` whose starts lie a pitch apart in each buffer; the planes must not
        overlap.
        """
        rows = max(height - 1, 0)
        target_va, _ = self._range(target, target_offset, rows * target_pitch_bytes + width_bytes)
        source_va, _ = self._range(source, source_offset, rows * source_pitch_bytes + width_bytes)
        stream: Any = self.stream()
        stream.copy_rect(target_va, target_pitch_bytes, source_va, source_pitch_bytes, width_bytes, height)
        return self.submit(stream)

    def _range(self, buffer: Buffer, offset_bytes: int, size_bytes: int | None) -> tuple[int, int]:
        """Return address and size of a range; a size of None means up to the buffer's end. Raises a `ValueError` for a
        range that leaves the buffer, or another card's buffer.
        """
        if not isinstance(buffer, Buffer):
            raise TypeError(
                f"{self.name} copies between buffers, such as `card.alloc` returns, not {type(buffer).__name__}"
            )
        size = buffer.size_bytes - offset_bytes if size_bytes is None else size_bytes
        gpu_va = transfer.check_range(buffer, offset_bytes, size)
        if not self.memory.holds(buffer):
            raise ValueError(f"{buffer!r} is another card's, not {self.name}'s")
        return gpu_va, size

    def _last(self) -> Point:
        """Return the point that is reached when all submitted work is done: the point of a copy of no bytes."""
        return Point(self.timeline, self.timeline.last)

    def _byte_path(self) -> BytePath:
        if self._path is None:
            self._path = self._services.byte_path(self)
        return self._path
