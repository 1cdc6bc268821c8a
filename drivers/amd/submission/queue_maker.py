"""What every driver of a Radeon does to make queues: join their parts, keep them in a list, take them off again."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ringup.drivers.amd.bus.access import Access
from ringup.drivers.amd.gfx.hardware_queue import HardwareQueue
from ringup.drivers.amd.submission.bounce import Bounce
from ringup.drivers.amd.submission.card_queue import CardQueue, CardQueueParts, CopyQueue
from ringup.drivers.amd.submission.peer_points import FarPoints
from ringup.drivers.amd.submission.publisher import Publisher, Rings
from ringup.drivers.amd.submission.queue_memory import (
    ARGS_BYTES,
    INDIRECT_BYTES,
    RING_BYTES,
    RPTR_AT,
    WPTR_AT,
    QueueMemory,
    UserSpace,
)
from ringup.drivers.amd.submission.signals import TimelineWord
from ringup.drivers.amd.submission.transfer import Staging
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.queues.arena import Arena
from ringup.queues.kept import KeptMemory
from ringup.queues.queue import Commands, Inline, Owner
from ringup.queues.ring import Ring
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

    @abstractmethod
    def before_mapping(self) -> None:
        """Make what the host wrote reach the memory of queues."""

    def add(self, make: Callable[[], Q], memory: QueueMemory) -> Q:
        """Make a queue of parts and map it. Where that fails its memory is freed."""
        with undone_on_error(memory.free):
            queue = make()
            # ORDER: last, so that nothing which fails takes memory from a queue that is on: a copy engine that is on
            # polls the write pointer
            queue.hardware.map()
        self.queues.append(queue)
        return queue

    def join(
        self,
        name: str,
        commands: Commands,
        memory: QueueMemory,
        hardware: HardwareQueue,
        doorbell: Rings,
        publisher: Publisher,
        word: TimelineWord,
        *,
        inline: Inline | None = None,
        ring: Ring | None = None,
        pointers_at: tuple[int, int] = (RPTR_AT, WPTR_AT),
    ) -> CardQueueParts:
        """Return what a queue is made of. `ring`: its ring, if it is not a usual one; `pointers_at`: bytes of its
        page.
        """
        args, indirect = self.access(memory.args), self.access(memory.indirect)
        return CardQueueParts(
            name=name,
            commands=commands,
            timeline=Timeline(
                f"{self._card} {name}", word.read, word.gpu_va, self._space, self._waiter, word_bits=word.word_bits
            ),
            ring=ring or self.ring(name, memory, publisher),
            args=Arena(memory.args.gpu_va, ARGS_BYTES, args.write, args.view),
            indirect=Arena(memory.indirect.gpu_va, INDIRECT_BYTES, indirect.write, indirect.view),
            owner=self._owner,
            inline=inline,
            hardware=hardware,
            memory=memory,
            doorbell=doorbell,
            services=self,
            pointers_at=pointers_at,
        )

    def ring(self, name: str, memory: QueueMemory, publisher: Publisher) -> Ring:
        """Return the ring of a queue whose engine reads packets in order."""
        access = self.access(memory.ring)
        return Ring(f"the ring of {name}", RING_BYTES, access.write, publisher.publish, view=access.view)

    def forget(self, queue: CardQueue) -> None:
        """Make the place of a closed queue free for another."""
        if queue in self.queues:
            self.queues.remove(queue)

    def map_again(self, queue: CardQueue, cause: Exception) -> None:
        """Map a queue again that a reset took off; its memory is unchanged. Undone work fails with `cause`."""
        page = self.access(queue.memory.page)
        queue.restart(cause)
        # ORDER: engines look at the write pointer in memory, so it is 0 before the queue is mapped
        for place in queue.pointers_at:
            page.at(place)(0)
        queue.store_timeline()
        self.before_mapping()
        queue.hardware.map()

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
        return KeptMemory(buffer.gpu_va, self.access(buffer).write, buffer.free)

    def byte_path(self, queue: CopyQueue) -> Staging | Bounce:
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
