"""Points of one card that queues of another card wait for, without the host between them.

The word of a timeline lies in host memory. It is mapped for the card that waits, whose engines poll it as they poll the
words of their own card. Its page stays mapped when the card that signals is closed or loses its memory: an engine may
look at it later.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple, Protocol

from ringup.drivers.buffer import Buffer
from ringup.errors import DeviceLost, OutOfMemory, RingupError
from ringup.queues.timeline import Failed, Point, Timeline, copy_of

LOG = logging.getLogger(__name__)


class Place(NamedTuple):
    """What a queue waits for: at least this value, at an address of its own card."""

    gpu_va: int
    value: int


class WordMemory(Protocol):
    """The address space of a card's queues, as far as words in it need it."""

    def find(self, gpu_va: int) -> Buffer | None:
        """Return the buffer that contains an address."""
        ...

    def reach(self, other: object, buffer: Buffer, name: str, *, outlives: bool = ...) -> Buffer:
        """Map a buffer of another card's address space here."""
        ...


class WaitingCard(Protocol):
    """A card, as far as waiting for points of another one needs it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...

    @property
    def memory(self) -> WordMemory:
        """The address space of its queues."""
        ...

    def look(self) -> None:
        """Take in what the card reports, and raise its error."""
        ...


class Wait(NamedTuple):
    """Work of this card that waits for a point of the other one."""

    mine: Point
    far: Point


class FarPoints:
    """The points of `other` that queues of `card` wait for."""

    def __init__(self, card: WaitingCard, other: WaitingCard) -> None:
        self._card, self._other = card, other
        self._memories = card.memory, other.memory
        # by the address of a word there: its address here; None where it is not reached
        self._words: dict[int, tuple[Buffer, int] | None] = {}
        self._pages: dict[Buffer, Buffer] = {}
        self._waits: deque[Wait] = deque()

    @property
    def pending(self) -> bool:
        """Whether work waited for the other card since the last `check`."""
        return bool(self._waits)

    @property
    def busy(self) -> bool:
        """Whether engines of the card may still look at words of the other one."""
        return any(not (wait.mine.done or wait.mine.timeline.failed) for wait in self._waits)

    def place(self, waiting: Timeline, point: Point, arrived: Point) -> Place | None:
        """Return what a queue waits for in place of a point of the other card; None where the host has to wait.

        `waiting`: the timeline of the queue whose next submission waits. `arrived`: the point of the other card at
        which what was stored up to `point` has arrived here; the same one where nothing was.
        """
        timeline = arrived.timeline
        if point.timeline.failed or timeline.failed or not timeline.comparable(arrived.value):
            return None
        if timeline.gpu_va not in self._words:
            self._words[timeline.gpu_va] = self._map(timeline)
        word = self._words[timeline.gpu_va]
        if word is None:
            return None
        page, gpu_va = word
        if page.freed:
            del self._words[timeline.gpu_va]
            return self.place(waiting, point, arrived)
        self._waits.append(Wait(Point(waiting, waiting.last + 1), point))
        return Place(gpu_va, arrived.value)

    def check(self) -> None:
        """Raise the error of the other card if work of this one waits for it in vain; once if that work went on."""
        waits, self._waits = self._waits, deque()
        if not waits:
            return
        cause: Exception | None = None
        # of work that is done, too, an error may say that its results are wrong
        if not self._other.is_closed:
            try:
                self._other.look()
            except RingupError as error:
                cause = _noted(error, waits[0])
        for wait in waits:
            reason = _error_of(wait.far)
            if reason is not None:
                cause = cause or _noted(reason, wait)
            elif not (wait.mine.done or wait.mine.timeline.failed):
                self._waits.append(wait)
        if cause is not None:
            raise cause

    def explain(self) -> list[str]:
        """Return what work of the card waits for, in lines for an error."""
        return [
            f"{wait.mine!r} waits for {wait.far!r} of {self._other.name}, which stands at {wait.far.timeline.completed}"
            for wait in self._waits
            if not wait.far.done
        ]

    def _map(self, timeline: Timeline) -> tuple[Buffer, int] | None:
        """Return the page of a word as this card sees it, and the word's address."""
        mine, far = self._memories
        there = far.find(timeline.gpu_va)
        if there is None or there.where != "host":
            return None
        for old, page in list(self._pages.items()):
            if old.freed and not self.busy:
                del self._pages[old]
                page.free()
        here = self._pages.get(there)
        if here is None or here.freed:
            try:
                name = f"timelines of {self._other.name}"
                here = self._pages[there] = mine.reach(far, there, name, outlives=True)
            except (DeviceLost, OutOfMemory):
                raise
            except RingupError as error:
                LOG.info("%s: the host waits for %s: %s", self._card.name, self._other.name, error)
                return None
        return here, here.gpu_va + timeline.gpu_va - there.gpu_va


def _error_of(far: Point) -> Exception | None:
    """Return why a point is never reached; None while it may be."""
    waiter = far.timeline.waiter
    return waiter.cause if isinstance(waiter, Failed) and not far.done else None


def _noted(error: Exception, wait: Wait) -> Exception:
    fresh = copy_of(error)
    fresh.add_note(f"{wait.mine!r} waits for {wait.far!r}")
    return fresh
