"""Memory of a Radeon's queue: what every queue has, and what its engine wants besides."""

from __future__ import annotations

from ringup.drivers.amd.submission.signals import Signals
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.submission.queue_memory import PAGE_BYTES, QueueMemory, Space, TimelineWord, UserSpace

EOP_BYTES = 4096
MQD_BYTES = 4096
# of a queue's page: the read pointer that the engine reports, the write pointer, a cache line each; what kernels see of
# the queue; of a queue of HSA, where the engine reports errors
RPTR_AT, WPTR_AT, OBJECT_AT, INACTIVE_AT = 0, 64, 1024, 2048


class RadeonQueueMemory(QueueMemory):
    """Memory of one queue of a Radeon."""

    def __init__(self, user: UserSpace, where: Where, name: str, system: Space | None = None) -> None:
        """`user`: the `Space` of the queue's packets. `system`: where descriptors lie, if the driver makes them."""
        self._system = system
        self._meeting: Buffer | None = None
        super().__init__(user, where, name)

    def timeline_word(self, signals: Signals | None) -> TimelineWord:
        """Take the word of the queue's timeline: one of `signals`, or in the queue's own page, which it goes with."""
        if signals is None:
            return self.word_in_page()
        self._word = signals.timeline()
        return self._word

    def eop(self, cores: int = 1) -> Buffer:
        """Return buffers for work that ends out of order, one for each core, in one; VRAM, so that no card writes
        to a dead process's memory.

        Not cached: what the engine stores there behind the last write-back must not come out of L2 over the memory's
        next owner.
        """
        return self.take(EOP_BYTES * cores, "EOP", visible=True, cached=False)

    def meeting(self, *, visible: bool = True) -> Buffer:
        """Return the VRAM by which dies that share the queue wait for one another; one for all calls."""
        if self._meeting is None:
            self._meeting = self.take(PAGE_BYTES, "meeting of dies", visible=visible, cached=False)
        return self._meeting

    def mqd(self, cores: int = 1) -> Buffer:
        """Return a page of system space for each core's descriptor of the queue, in one buffer."""
        memory = self._system
        assert memory is not None  # only a driver that makes descriptors asks
        name = f"{self._name}: descriptor"
        return self._keep(memory, memory.alloc(MQD_BYTES * cores, "vram", visible=True, name=name))

    def scratch(self, size_bytes: int) -> int:
        """Return the address of scratch memory that stays as long as the queue."""
        return self.take(size_bytes, "scratch").gpu_va
