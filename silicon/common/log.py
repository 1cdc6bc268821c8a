"""The events of a card: a bounded list, formatted only when read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ringup.silicon.common.clock import PowerDomain, VirtualClock


class Event(NamedTuple):
    """One event; `number` is its position in the log. `kind` is a short stable word for filters (read, write, packet,
    fault, …).
    """

    time_ns: int
    block: str
    kind: str
    form: str | Callable[..., str]
    values: tuple[Any, ...]
    number: int = 0

    @property
    def text(self) -> str:
        """The formatted text."""
        return self.form.format(*self.values) if isinstance(self.form, str) else self.form(*self.values)

    def __str__(self) -> str:
        return f"{self.time_ns / 1_000:12.1f} us  {self.block:8} {self.kind:10} {self.text}"


class EventLog:
    """The last `limit` events of a card. `watch` gets each event as it happens."""

    def __init__(self, clock: VirtualClock, limit: int = 100_000) -> None:
        self._clock = clock.machine if isinstance(clock, PowerDomain) else clock
        # the parts of an `Event`: most are never formatted
        self._events: deque[tuple[int, str, str, str | Callable[..., str], tuple[Any, ...], int]] = deque(maxlen=limit)
        self._watchers: list[tuple[Callable[[Event], None], frozenset[str]]] = []
        self._count = 0
        # whether register accesses are logged too: there are many
        self.accesses = False

    def note(self, block: str, kind: str, form: str | Callable[..., str], *values: object) -> None:
        """Add an event. `form.format(*values)` or `form(*values)` makes its text later."""
        event = (self._clock.now_ns, block, kind, form, values, self._count)
        self._count += 1
        self._events.append(event)
        for watcher, kinds in self._watchers:
            if not kinds or kind in kinds:
                watcher(Event._make(event))

    def watch(self, watcher: Callable[[Event], None], *kinds: str) -> None:
        """Call `watcher` with every new event, or only with those of some kinds."""
        self._watchers.append((watcher, frozenset(kinds)))

    def find(self, kind: str = "", block: str = "") -> list[Event]:
        """Return the kept events of a kind and block, oldest first; an empty string matches all."""
        return [event for event in self if kind in ("", event.kind) and block in ("", event.block)]

    def __iter__(self) -> Iterator[Event]:
        return map(Event._make, self._events)

    def __len__(self) -> int:
        return len(self._events)
