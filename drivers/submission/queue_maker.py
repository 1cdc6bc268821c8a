"""What every driver does to make queues of its card: keep them in a list, give them memory, take them off again."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.memory.access import Access
from ringup.drivers.submission.card_queue import BytePath, CardQueue, CopyVerbs
from ringup.drivers.submission.peer_points import FarPoints
from ringup.drivers.submission.queue_memory import QueueMemory, UserSpace
from ringup.drivers.submission.transfer import Staging
from ringup.queues.kept import KeptMemory
from ringup.queues.queue import Owner
from ringup.queues.timeline import Point, Timeline, Waiter

Q = TypeVar("Q", bound=CardQueue)


class QueueMaker(ABC):
    """The queues of one card. `where` their rings lie: host memory, or VRAM where the path has no other."""

    def __init__(self, card: str, space: UserSpace, where: Where, waiter: Waiter, owner: Owner) -> None:
        self._card, self._space, self._where = card, space, where
        self._waiter, self._owner = waiter, owner
        self.queues: list[CardQueue] = []
        # what other cards wait for of these queues
        self._watching: weakref.WeakSet[FarPoints] = weakref.WeakSet()
        # what these queues wait for of other cards, once the card has peers
        self._far: Callable[[Timeline, Point], tuple[int, int] | None] = _no_peers

    def add(self, make: Callable[[], Q], memory: QueueMemory) -> Q:
        """Make a queue of parts and map it. Where that fails its memory is freed."""
        with undone_on_error(memory.free):
            queue = make()
            # ORDER: last, so that nothing which fails takes memory from a queue that is on: a copy engine that is on
            # polls the write pointer
            queue.hardware.map()
        self.queues.append(queue)
        return queue

    def forget(self, queue: CardQueue) -> None:
        """Make the place of a closed queue free for another."""
        if queue in self.queues:
            self.queues.remove(queue)

    @abstractmethod
    def map_again(self, queue: CardQueue, cause: Exception) -> None:
        """Map a queue again that a reset took off; its memory is unchanged. Undone work fails with `cause`."""

    def others_busy(self, queue: CardQueue) -> bool:
        """Tell whether other queues have work under way that may wait for this one, also those of other cards."""
        mine = any(not other.timeline.idle for other in self.queues if other is not queue)
        return mine or any(others.busy for others in self._watching)

    def watch(self, points: FarPoints) -> None:
        """Note that another card waits for points of these queues."""
        self._watching.add(points)

    def wait_across(self, far: Callable[[Timeline, Point], tuple[int, int] | None]) -> None:
        """Let queues wait for points of other cards as `far` says."""
        self._far = far

    def across(self, waiting: Timeline, point: Point) -> tuple[int, int] | None:
        """Return what a queue waits for in place of a point of another card, as `FarPoints.place` does."""
        return self._far(waiting, point)

    def kept_memory(self, size_bytes: int) -> KeptMemory:
        """Return memory for a kept stream."""
        buffer = self._space.alloc(size_bytes, self._where, visible=True, name="a kept stream", cached=False)
        access = self.access(buffer)
        return KeptMemory(buffer.gpu_va, access.write, buffer.free, access.view)

    def byte_path(self, queue: CopyVerbs) -> BytePath:
        """Return what a queue moves bytes of the host through: its own staging memory."""
        return Staging(queue.memory.staging("upload staging"), queue.memory.staging("download staging"))

    def access(self, buffer: Buffer) -> Access:
        """Return the CPU's access to a buffer."""
        return self._space.access(buffer)

    def close(self, *, patient: bool) -> None:
        """Take every queue off, the newest first. Raises the first error after all were tried, `DeviceHung` for a queue
        that does not let go.

        `patient`: the card has no fault, so work in flight gets a second to end.
        """
        with Teardown(f"closing the queues of {self._card}", kept=Exception) as teardown:
            while self.queues:
                teardown.attempt(partial(_close, self.queues.pop(), patient=patient))


def _no_peers(waiting: Timeline, point: Point) -> None:
    """Let the host wait for points of other cards."""


def _close(queue: CardQueue, *, patient: bool) -> None:
    """Close a queue; it refuses work afterwards even if that fails."""
    try:
        queue.close(patient=patient)
    except Exception as error:
        queue.lose(error, "closed with its card")
        queue.refuse(ValueError(f"{queue.name} was closed"))
        raise
