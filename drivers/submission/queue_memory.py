"""Memory of a card's queue: ring, a page with its timeline, kernel arguments, indirect buffers, and what is taken
later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ringup.drivers.buffer import Buffer, Owner, Where
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.memory.access import Access
from ringup.drivers.submission import transfer

RING_BYTES = 64 << 10
ARGS_BYTES = 1 << 20
INDIRECT_BYTES = 1 << 20
PAGE_BYTES = 4096
TIMELINE_AT = 128  # of a queue's page


class TimelineWord(NamedTuple):
    """A timeline's word: its address for queues, how the host reads and stores it, how many bits the host sees, how it
    is freed.
    """

    gpu_va: int
    read: Callable[[], int]
    store: Callable[[int], None]
    word_bits: int
    give_back: Callable[[], None]


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

    def __init__(self, user: UserSpace, where: Where, name: str) -> None:
        """`user`: the `Space` of the queue's commands."""

        def take(size_bytes: int, what: str) -> Buffer:
            return user.alloc(size_bytes, where, visible=True, name=f"{name}: {what}", cached=False)

        self._user, self._where, self._name = user, where, name
        # of its timeline, once it was taken
        self._word: TimelineWord | None = None
        self.buffers: list[tuple[Space, Buffer]] = []
        with undone_on_error(self.free):
            self.ring = self._keep(user, take(RING_BYTES, "ring"))
            self.page = self._keep(user, take(PAGE_BYTES, "pointers and timeline"))
            self.args = self._keep(user, take(ARGS_BYTES, "kernel arguments"))
            self.indirect = self._keep(user, take(INDIRECT_BYTES, "indirect buffers"))

    def _keep(self, memory: Space, buffer: Buffer) -> Buffer:
        self.buffers.append((memory, buffer))
        return buffer

    def word_in_page(self) -> TimelineWord:
        """Take the word of the queue's timeline in the queue's own page, which it goes with."""
        access = self._user.access(self.page)
        self._word = TimelineWord(
            self.page.gpu_va + TIMELINE_AT, access.reader(TIMELINE_AT), access.at(TIMELINE_AT), 64, _nothing
        )
        return self._word

    def store_timeline(self, value: int) -> None:
        """Store the timeline's word in the engine's place, which must not be writing it."""
        assert self._word is not None  # a queue has taken it
        self._word.store(value)

    def staging(self, what: str) -> transfer.Place:
        """Return memory that bytes are moved through."""
        memory = self._user
        size, name = transfer.STAGING_BYTES, f"{self._name}: {what}"
        buffer = self._keep(memory, memory.alloc(size, self._where, visible=True, name=name, cached=False))
        return transfer.Place(buffer.gpu_va, memory.access(buffer))

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
