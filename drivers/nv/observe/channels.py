"""A post-mortem of a card with channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringup.drivers.submission.health import CardReport
from ringup.drivers.submission.queue_stats import QueueStats


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport(CardReport):
    """A post-mortem. `channels`: by queue, what its channel fetched last and the methods that it has not done."""

    channels: dict[str, tuple[str, ...]]

    def _of_queue(self, queue: QueueStats) -> Iterator[str]:
        yield (
            f"{queue.name}: {queue.completed} of {queue.submitted} done, fetched up to byte {queue.rptr_bytes:#x} of "
            f"{queue.wptr_bytes:#x} of its GPFIFO" + ("" if queue.mapped else ", off")
        )
        yield from (f"  {line}" for line in self.channels.get(queue.name, ()))
