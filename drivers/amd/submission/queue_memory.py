"""Memory of a card's queue: ring, pointers and timeline, kernel arguments, indirect buffers, what its engine wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringup.drivers.amd.bus.access import Access
from ringup.drivers.amd.submission import transfer
from ringup.drivers.amd.submission.signals import Signals, TimelineWord
from ringup.drivers.buffer import Buffer, Owner, Where
from ringup.drivers.cleanup import undone_on_error

RING_BYTES = 64 << 10
ARGS_BYTES = 1 << 20
INDIRECT_BYTES = 1 << 20
EOP_BYTES = 4096
MQD_BYTES = 4096
PAGE_BYTES = 4096
# of a queue's page: the read pointer that the engine reports, the write pointer, the timeline, a cache line each; what
# kernels see of the queue; of a queue of HSA, where the engine reports errors
RPTR_AT, WPTR_AT, TIMELINE_AT, OBJECT_AT, INACTIVE_AT = 0, 64, 128, 1024, 2048


class Space(Protocol):
    """An address space that buffers are allocated in."""

    def alloc(
        self,
        size_bytes: int,
        where: Where = ...,
        visible: bool = ...,
        name: str = ...,
        align: int | None = ...,
        *,
        cached: bool | None = ...,
    ) -> Buffer:
        """Return a buffer."""
        ...

    def access(self, buffer: Buffer) -> Access:
        """Return the CPU's access to a visible buffer."""
        ...

    def free(self, *buffers: Buffer) -> None:
        """Free buffers."""
        ...


class UserSpace(Space, Owner, Protocol):
    """The address space of the packets of queues."""

    @property
    def admit(self) -> Callable[[], None]:
        """What raises a `ValueError` if another thread than the card's owner calls."""
        ...


class QueueMemory:
    """Memory of one queue. Rings, timeline and arguments lie where both sides reach them: host memory, or VRAM where
    the path has no other.
    """

    def __init__(self, user: UserSpace, where: Where, name: str, system: Space | None = None) -> None:
        """`user`: the `Space` of the queue's packets. `system`: where descriptors lie, if the driver makes them."""

        def take(size_bytes: int, what: str) -> Buffer:
            return user.alloc(size_bytes, where, visible=True, name=f"{name}: {what}", cached=False)

        self._user, self._system, self._where, self._name = user, system, where, name
        # of its timeline, once it was taken
        self._word: TimelineWord | None = None
        self._meeting: Buffer | None = None
        self.buffers: list[tuple[Space, Buffer]] = []
        with undone_on_error(self.free):
            self.ring = self._keep(user, take(RING_BYTES, "ring"))
            self.page = self._keep(user, take(PAGE_BYTES, "pointers and timeline"))
            self.args = self._keep(user, take(ARGS_BYTES, "kernel arguments"))
            self.indirect = self._keep(user, take(INDIRECT_BYTES, "indirect buffers"))

    def _keep(self, memory: Space, buffer: Buffer) -> Buffer:
        self.buffers.append((memory, buffer))
        return buffer

    def timeline_word(self, signals: Signals | None) -> TimelineWord:
        """Take the word of the queue's timeline: one of `signals`, or in the queue's own page, which it goes with."""
        self._word = self._word_in_page() if signals is None else signals.timeline()
        return self._word

    def _word_in_page(self) -> TimelineWord:
        access = self._user.access(self.page)
        return TimelineWord(
            self.page.gpu_va + TIMELINE_AT, access.reader(TIMELINE_AT), access.at(TIMELINE_AT), 64, _nothing
        )

    def store_timeline(self, value: int) -> None:
        """Store the timeline's word in the engine's place, which must not be writing it."""
        assert self._word is not None  # a queue has taken it
        self._word.store(value)

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

    def staging(self, what: str) -> transfer.Place:
        """Return memory that bytes are moved through."""
        memory = self._user
        size, name = transfer.STAGING_BYTES, f"{self._name}: {what}"
        buffer = self._keep(memory, memory.alloc(size, self._where, visible=True, name=name, cached=False))
        return transfer.Place(buffer.gpu_va, memory.access(buffer))

    def scratch(self, size_bytes: int) -> int:
        """Return the address of scratch memory that stays as long as the queue."""
        return self.take(size_bytes, "scratch").gpu_va

    def take(self, size_bytes: int, what: str, *, visible: bool = False, cached: bool | None = None) -> Buffer:
        """Return VRAM that stays as long as the queue."""
        name = f"{self._name}: {what}"
        return self._keep(self._user, self._user.alloc(size_bytes, "vram", visible=visible, name=name, cached=cached))

    def holds(self, buffer: Buffer) -> bool:
        """Tell whether the queue reaches a buffer of a user's: its card handed it out."""
        return buffer.belongs_to(self._user)

    def free(self, *, watched: bool = False) -> None:
        """Give everything back. `watched`: engines may still look at the timeline, whose page then stays until the card
        is closed.
        """
        if self._word is not None and not watched:
            self._word.give_back()
        while self.buffers:
            memory, buffer = self.buffers.pop()
            if not buffer.freed and not (watched and buffer is self.page):
                memory.free(buffer)


def _nothing() -> None:
    """Give no word back: its page goes with the queue."""
