"""Statistics of a queue: how far it is, by its timeline and by its hardware."""

from __future__ import annotations

from dataclasses import dataclass

from ringup.drivers.submission.card_queue import CardQueue


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue: how many submissions it was given, how many are done, and its ring pointers in bytes as the hardware
    has them.
    """

    name: str
    submitted: int
    completed: int
    mapped: bool
    rptr_bytes: int
    wptr_bytes: int


def queue_stats(queue: CardQueue) -> QueueStats:
    """Return the statistics of a queue."""
    timeline, at = queue.timeline, queue.position()
    return QueueStats(queue.name, timeline.last, timeline.completed, at.mapped, at.rptr_bytes, at.wptr_bytes)
