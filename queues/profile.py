"""Profiles: when each dispatch and each copy of a queue began and ended, by stamps that the engines store, gathered
into a trace.

A stamped command waits for those before it and is waited for by its own end stamp: what is measured is each command
alone, in order, not how they overlap. A stream submitted again overwrites its stamps; the last run is what a profile
shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ringup.queues.trace import Correlation, Trace

STAMP_BYTES = 8
NEVER = 0  # what a stamp holds that no engine has stored


class Stamped(Protocol):
    """A stream that can store the reference clock."""

    def barrier(self) -> None:
        """Let what follows wait for what was before."""
        ...

    def stamp(self, gpu_va: int) -> None:
        """Store the clock when all before has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """One command as it ran, in ticks of the reference clock."""

    track: str
    name: str
    begin_ticks: int
    end_ticks: int


class Profile:
    """Stamps for up to `places` commands in memory at `gpu_va`, which `read(byte)` looks into."""

    def __init__(self, gpu_va: int, places: int, read: Callable[[int], int]) -> None:
        self._gpu_va, self._places, self._read = gpu_va, places, read
        self._taken: list[tuple[str, str]] = []  # track and name, by place
        self.dropped = 0  # commands that found no place any more
        self.host: list[tuple[str, float, float]] = []  # submissions: name, begin and duration in us

    def around(self, track: str) -> Callable[[Stamped, str], Callable[[], None]]:
        """Return a hook for streams of a queue: called before a command with its name, it returns what to call behind
        it.
        """

        def before(stream: Stamped, name: str) -> Callable[[], None]:
            place = len(self._taken)
            if place == self._places:
                self.dropped += 1
                return _nothing
            self._taken.append((track, name))
            at = self._gpu_va + 2 * STAMP_BYTES * place
            stream.barrier()
            stream.stamp(at)
            return lambda: stream.stamp(at + STAMP_BYTES)

        return before

    def spans(self) -> list[Span]:
        """Return the commands that have run, by their beginning."""
        found = []
        for place, (track, name) in enumerate(self._taken):
            begin, end = (self._read(2 * STAMP_BYTES * place + at) for at in (0, STAMP_BYTES))
            if begin != NEVER and end >= begin:
                found.append(Span(track, name, begin, end))
        return sorted(found, key=lambda span: span.begin_ticks)

    def trace(self, clock: Correlation, spans: list[Span], stages: tuple[Any, ...] = ()) -> Trace:
        """Return a trace of the commands, of the host's submissions, and of a bring-up's stages, on the host's time."""
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
    """Do nothing: the command has no place."""
