"""What every card says of itself: what it does now, and a post-mortem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ringup.drivers.memory.table import Usage
from ringup.drivers.submission.queue_stats import QueueStats


@dataclass(frozen=True, slots=True, kw_only=True)
class CardStats:
    """What a card does now. `at_us`: by its path's clock; `memory`: this process's, by place; `faults` and `resets`:
    how many since it was opened.
    """

    name: str
    at_us: int
    memory: dict[str, Usage]
    queues: tuple[QueueStats, ...]
    faults: int
    resets: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: name and time, then what this kind of card alone says, then the rest."""
        values = asdict(self)
        last = {key: values.pop(key) for key in ("memory", "queues", "faults", "resets")}
        return values | last


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReport:
    """A post-mortem: the first cause, earlier errors, queues, memory. `unreachable`: why the card says nothing;
    `mistakes`: what a virtual card saw.
    """

    name: str
    cause: str
    errors_so_far: tuple[str, ...]
    unreachable: str
    queues: tuple[QueueStats, ...]
    memory: dict[str, Usage]
    mistakes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.cause or self.unreachable or 'no error'}"
        yield self._driver()
        yield from (f"the virtual card saw: {text}" for text in self.mistakes)
        yield from (f"earlier: {text}" for text in self.errors_so_far if text != self.cause)
        for queue in self.queues:
            yield from self._of_queue(queue)
        for place, usage in self.memory.items():
            yield f"{place}: {usage.used_bytes} bytes in {usage.buffers} buffers"

    def _driver(self) -> str:
        """Say what drives the card."""
        raise NotImplementedError

    def _of_queue(self, queue: QueueStats) -> Iterator[str]:
        """Say where a queue stands."""
        yield (
            f"{queue.name}: {queue.completed} of {queue.submitted} done, read pointer {queue.rptr_bytes:#x}, "
            f"write pointer {queue.wptr_bytes:#x}" + ("" if queue.mapped else ", not mapped")
        )
