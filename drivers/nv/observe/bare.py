"""What a card whose GSP-RM ringup has started does now, and its post-mortem."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ringup.drivers.memory.table import Usage
from ringup.drivers.stages import Stage
from ringup.drivers.submission.queue_stats import QueueStats

# lines of the report for what came of GSP-RM
MAX_LINES = 20


@dataclass(frozen=True, slots=True)
class GspStats:
    """What a card does now. `calls`: of GSP-RM; `interrupts`: with which engines woke this process."""

    name: str
    at_us: int
    memory: dict[str, Usage]
    queues: tuple[QueueStats, ...]
    faults: int
    resets: int
    interrupts: int
    calls: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class GspReport:
    """A post-mortem: the first cause, earlier errors, queues and their channels, memory, what GSP-RM has sent.

    `logs`: GSP-RM's own, as it writes them, for its maker. `unreachable`: why the card says nothing.
    """

    name: str
    cause: str
    errors_so_far: tuple[str, ...]
    unreachable: str
    found: str
    stages: tuple[Stage, ...]
    rungs: tuple[str, ...]
    queues: tuple[QueueStats, ...]
    channels: dict[str, tuple[str, ...]]
    memory: dict[str, Usage]
    release: str
    errors: tuple[str, ...]
    events: tuple[str, ...]
    logs: dict[str, bytes] = field(repr=False)
    mistakes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON. Logs are hexadecimal."""
        return asdict(self) | {"logs": {name: data.hex() for name, data in self.logs.items()}}

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.cause or self.unreachable or 'no error'}",
            f"GSP-RM {self.release}; found: {self.found}",
        ]
        lines += [f"earlier: {text}" for text in self.errors_so_far if text != self.cause]
        lines += [f"mistake: {text}" for text in self.mistakes]
        lines += [f"reset: {text}" for text in self.rungs]
        for queue in self.queues:
            lines.append(
                f"{queue.name}: {queue.completed} of {queue.submitted} done, fetched up to byte {queue.rptr_bytes:#x} of "
                f"{queue.wptr_bytes:#x} of its GPFIFO" + ("" if queue.mapped else ", off")
            )
            lines += [f"  {line}" for line in self.channels.get(queue.name, ())]
        lines += [
            f"{place}: {usage.used_bytes} bytes in {usage.buffers} buffers" for place, usage in self.memory.items()
        ]
        lines += [f"GSP-RM said: {text}" for text in self.errors[-MAX_LINES:]]
        if self.events:
            lines.append(f"events of GSP-RM: {', '.join(self.events[-MAX_LINES:])}")
        lines += [f"{name}: {len(data)} bytes of GSP-RM's own log" for name, data in self.logs.items()]
        return "\n".join(lines)
