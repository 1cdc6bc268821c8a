"""The queues of a card that NVIDIA's kernel driver drives: channels that it schedules, filled and rung from here."""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.nv.nodes.channel import Channel, ChannelMemory
from ringup.drivers.nv.nodes.memory import NodesMemory
from ringup.drivers.nv.nodes.objects import CardObjects
from ringup.drivers.nv.rm.facts import ENGINE_GRAPHICS
from ringup.drivers.nv.submission.queue_maker import ChannelMaker
from ringup.drivers.nv.submission.queue_memory import ENTRIES, USERD_AT, ChannelQueueMemory
from ringup.drivers.submission.hardware_queue import COMPUTE
from ringup.queues.queue import Owner
from ringup.queues.timeline import Waiter


class NodesQueues(ChannelMaker):
    """Makes queues of one card through the kernel's driver."""

    def __init__(self, objects: CardObjects, memory: NodesMemory, waiter: Waiter, owner: Owner) -> None:
        super().__init__(objects.path.name, memory, "host", waiter, owner, objects.facts.row)
        self._objects, self._memory = objects, memory

    @property
    def copy_engines(self) -> int:
        """How many copy engines work beside the graphics engine."""
        return len(self._objects.facts.copy_engines)

    @property
    def fence(self) -> Callable[[], None]:
        """What drains the processor's write-combining buffers, where something may wait there.

        ORDER: before GP_PUT, not only before the doorbell: the host may look at GP_PUT for an earlier doorbell. Source:
        OGKM nvidia-push.c (NV_CPU_MEMFENCE).
        """
        combining = self._objects.path.system.combining

        def drain() -> None:
            if combining.pending:
                combining.drain()

        return drain

    @property
    def tpcs(self) -> int:
        """How many TPCs the chip has."""
        return self._objects.facts.tpcs

    def channel(self, memory: ChannelQueueMemory, engine: int) -> Channel:
        """Return a channel of an engine that is not made yet."""
        compute, row = engine == COMPUTE, self.row
        parts = ChannelMemory(memory.gpfifo.gpu_va, ENTRIES, memory.page, USERD_AT, memory.notifier)
        return Channel(
            self._objects,
            self._memory,
            parts,
            ENGINE_GRAPHICS if compute else self._objects.facts.copy_engines[engine],
            engine,
            row.compute_class if compute else row.copy_class,
        )
