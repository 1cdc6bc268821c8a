"""The queues of a card whose GSP-RM ringup has started: channels that GSP-RM schedules, filled and rung from here."""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.nv.channels.channel import Channel, ChannelMemory, ChannelParts
from ringup.drivers.nv.submission.queue_maker import ChannelMaker
from ringup.drivers.nv.submission.queue_memory import ENTRIES, USERD_AT, ChannelQueueMemory
from ringup.drivers.submission.hardware_queue import COMPUTE
from ringup.queues.queue import Owner
from ringup.queues.timeline import Waiter


class GspQueues(ChannelMaker):
    """Makes queues of one card."""

    def __init__(self, card: str, parts: ChannelParts, waiter: Waiter, owner: Owner) -> None:
        super().__init__(card, parts.space.memory, "host", waiter, owner, parts.objects.facts.row)
        self._parts = parts

    @property
    def fence(self) -> Callable[[], None]:
        """What makes bytes that went through the window into VRAM arrive there, where some may be on their way.

        ORDER: before GP_PUT, not only before the doorbell: the host may look at GP_PUT for an earlier doorbell. Source:
        OGKM nvidia-push.c (NV_CPU_MEMFENCE).
        """
        window = self._parts.space.window

        def arrive() -> None:
            if window.is_dirty:
                window.flush()

        return arrive

    @property
    def copy_engines(self) -> int:
        """How many copy engines work beside the graphics engine."""
        return len(self._parts.objects.engines.copies)

    @property
    def tpcs(self) -> int:
        """How many TPCs the chip has."""
        return self._parts.objects.facts.tpcs

    def channel(self, memory: ChannelQueueMemory, engine: int) -> Channel:
        """Return a channel of an engine that is not made yet."""
        compute, row, engines = engine == COMPUTE, self.row, self._parts.objects.engines
        parts = ChannelMemory(memory.gpfifo.gpu_va, ENTRIES, memory.page, USERD_AT)
        return Channel(
            self._parts,
            parts,
            engines.graphics if compute else engines.copies[engine],
            engine,
            row.compute_class if compute else row.copy_class,
        )
