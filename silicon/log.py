"""What happened in a card: a bounded list of events, put into words only when somebody reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ringup.silicon.clock import VirtualClock


@dataclass(frozen=True, slots=True)
class Event:
    """One event, the `number`th of its log. `kind` is a short stable word (read, write, packet, fault, …) that filters can name."""

    time_ns: int
    block: str
    kind: str
    form: str | Callable[..., str]
    values: tuple[Any, ...]
    number: int = 0

    @property
    def text(self) -> str:
        """The event in words."""
        return self.form.format(*self.values) if isinstance(self.form, str) else self.form(*self.values)

    def __str__(self) -> str:
        return f"{self.time_ns / 1_000:12.1f} us  {self.block:8} {self.kind:10} {self.text}"


class EventLog:
    """The last `limit` events of a card. `watch` gets each as it happens."""

    def __init__(self, clock: VirtualClock, limit: int = 100_000) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=limit)
        self._watchers: list[Callable[[Event], None]] = []
        self._count = 0
        self.accesses = False  # whether register accesses are noted too: many

    def note(self, block: str, kind: str, form: str | Callable[..., str], *values: object) -> None:
        """Add an event: `form.format(*values)` or `form(*values)` puts it into words later."""
        event = Event(self._clock.now_ns, block, kind, form, values, self._count)
        self._count += 1
        self._events.append(event)
        for watcher in self._watchers:
            watcher(event)

    def watch(self, watcher: Callable[[Event], None]) -> None:
        """Call `watcher` with every event from now on."""
        self._watchers.append(watcher)

    def find(self, kind: str = "", block: str = "") -> list[Event]:
        """Return the kept events of that kind and block, oldest first; an empty word matches all."""
        return [event for event in self._events if kind in ("", event.kind) and block in ("", event.block)]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)
