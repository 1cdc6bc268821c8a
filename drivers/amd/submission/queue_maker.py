"""What every driver of a Radeon does to make queues: join their parts, map them again after a reset."""

from __future__ import annotations

from abc import abstractmethod

from ringup.drivers.amd.submission.publisher import Publisher
from ringup.drivers.amd.submission.queue_memory import RPTR_AT, WPTR_AT, RadeonQueueMemory
from ringup.drivers.submission.card_queue import CardQueue, CardQueueParts
from ringup.drivers.submission.hardware_queue import HardwareQueue, Rings
from ringup.drivers.submission.queue_maker import QueueMaker
from ringup.drivers.submission.queue_memory import ARGS_BYTES, INDIRECT_BYTES, RING_BYTES, TimelineWord
from ringup.queues.arena import Arena
from ringup.queues.commands import Commands
from ringup.queues.queue import Inline
from ringup.queues.ring import Ring
from ringup.queues.timeline import Timeline


class RadeonQueueMaker(QueueMaker):
    """The queues of one Radeon."""

    @abstractmethod
    def before_mapping(self) -> None:
        """Make what the host wrote reach the memory of queues."""

    def join(
        self,
        name: str,
        commands: Commands,
        memory: RadeonQueueMemory,
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

    def ring(self, name: str, memory: RadeonQueueMemory, publisher: Publisher) -> Ring:
        """Return the ring of a queue whose engine reads packets in order."""
        access = self.access(memory.ring)
        return Ring(f"the ring of {name}", RING_BYTES, access.write, publisher.publish, view=access.view)

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
