"""Profiles: when each dispatch and each copy of a queue began and ended. The engines store time stamps; a trace shows
them.

A stamped command starts after all commands before it have ended, and its end stamp waits for the command. So a profile
measures each command alone, in order, not how commands overlap. A stream that is submitted again overwrites its stamps:
the profile shows the last run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ringup.queues.trace import Correlation, Trace

STAMP_BYTES = 8
# the value of a stamp that no engine has stored
NEVER = 0


class Stamped(Protocol):
    """A stream that can store the reference clock."""

    def barrier(self) -> None:
        """Make later commands wait for all earlier ones."""
        ...

    def stamp(self, gpu_va: int) -> None:
        """Store the clock when all earlier commands have ended."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """One command as it ran, in ticks of the reference clock."""

    track: str
    name: str
    begin_ticks: int
    end_ticks: int


class Profile:
    """Stamps for up to `places` commands, in memory at `gpu_va`. `read(byte)` returns the stamp at a byte offset."""

    def __init__(
        self,
        gpu_va: int,
        places: int,
        read: Callable[[int], int],
        *,
        stamp_bytes: int = STAMP_BYTES,
        clock_at: int = 0,
    ) -> None:
        """`stamp_bytes`: of memory that an engine stores for a stamp; `clock_at`: the byte of the clock among them."""
        self._gpu_va, self._places, self._read = gpu_va, places, read
        self._stamp_bytes, self._clock_at = stamp_bytes, clock_at
        # track and name, by place
        self._taken: list[tuple[str, str]] = []
        # commands without a stamp, because all places were taken
        self.dropped = 0
        # submissions: name, begin and duration in us
        self.host: list[tuple[str, float, float]] = []

    def around(self, track: str) -> Callable[[Stamped, str], Callable[[], None]]:
        """Return a hook for streams of a queue. A stream calls it with a command's name before it adds the command, and
        calls the returned function after.
        """

        def before(stream: Stamped, name: str) -> Callable[[], None]:
            place = len(self._taken)
            if place == self._places:
                self.dropped += 1
                return _nothing
            self._taken.append((track, name))
            at = self._gpu_va + 2 * self._stamp_bytes * place
            stream.barrier()
            stream.stamp(at)
            return lambda: stream.stamp(at + self._stamp_bytes)

        return before

    def spans(self) -> list[Span]:
        """Return the commands that have run, sorted by their start."""
        found = []
        for place, (track, name) in enumerate(self._taken):
            first = 2 * self._stamp_bytes * place + self._clock_at
            begin, end = (self._read(first + at) for at in (0, self._stamp_bytes))
            if begin != NEVER and end >= begin:
                found.append(Span(track, name, begin, end))
        return sorted(found, key=lambda span: span.begin_ticks)

    def trace(self, clock: Correlation, spans: list[Span], stages: tuple[Any, ...] = ()) -> Trace:
        """Return a trace of the commands, the host's submissions and a bring-up's stages, all in the host's time."""
        trace = Trace()
        for stage in stages:
            trace.add(
                "bring-up", stage.name, stage.started_us, stage.took_us, {"error": stage.error} if stage.error else {}
            )
        for name, begin_us, took_us in self.host:
            trace.add("host", name, begin_us, took_us)
        for span in spans:
            begin = clock.us(span.begin_ticks)
            trace.add(f"card/{span.track}", span.name, max(0.0, begin), max(0.0, clock.us(span.end_ticks) - begin))
        return trace


def _nothing() -> None:
    """Do nothing: the command has no stamps."""
