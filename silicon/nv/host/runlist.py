"""A runlist: channels with work take turns on the engine that it serves.

A group's channels have the engine for a slice of virtual time, then those of the next group with work have it. Within a
slice the channels of a group take turns when one waits for a semaphore, has no more work or yields to the group; the
slice goes on. Sources: manuals/turing/tu104/dev_ram.ref.txt ("Runlist TSG Entry Type") and
manuals/ampere/ga100/dev_pbdma.ref.txt ("Semaphore switch option", "YIELD") of open-gpu-doc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.nv.engines.engine import Refused
from ringup.silicon.nv.host.channel import RunningChannel
from ringup.silicon.nv.host.pushbuffer import BadPushbuffer
from ringup.silicon.nv.memory.semaphores import Idle
from ringup.silicon.nv.memory.space import PageFault
from ringup.silicon.nv.rm.parts import Slice

US = 1_000
# what stops a channel
Stop = PageFault | BadPushbuffer | Refused


@dataclass(slots=True)
class Turn:
    """A channel with work: what it does, and when it can go on."""

    running: RunningChannel
    going: Iterator[float]
    ready_ns: int

    @property
    def slice(self) -> Slice:
        """The slice that it shares with its group."""
        return self.running.channel.slice


class Load(Protocol):
    """Who is told how long engines work."""

    def worked(self, ns: int, *, graphics: bool) -> None:
        """Count the time for which an engine works, from now on."""
        ...

    def advance(self) -> None:
        """Note that an engine begins to work, or has stopped."""
        ...


class Runlist:
    """The channels of one runlist that have work, the one that has the engine first, or will have it next in its group.

    `ended(channel, error)` is called when a channel has no more work, or stopped with an error. `load` is told how long
    the engine works; `graphics`: it is the graphics engine.
    """

    def __init__(
        self,
        clock: VirtualClock,
        ended: Callable[[RunningChannel, Stop | None], None],
        load: Load | None = None,
        graphics: bool = False,
    ) -> None:
        self._clock, self._ended, self._load, self._graphics = clock, ended, load, graphics
        self._works = False
        self._turns: list[Turn] = []
        # whose slice it is, and what is left of it
        self._slice: Slice | None = None
        self._left_us = 0.0
        # the engine is busy until then; the event that comes next
        self._busy_ns = 0
        self._timer: Timer | None = None

    def __contains__(self, running: RunningChannel) -> bool:
        return any(turn.running is running for turn in self._turns)

    def add(self, running: RunningChannel, going: Iterator[float], delay_us: float) -> None:
        """Let a channel run, at the earliest after a time."""
        self._turns.append(Turn(running, going, self._clock.now_ns + round(delay_us * US)))
        self._arm()

    def remove(self, running: RunningChannel) -> Iterator[float] | None:
        """Take a channel off, and return what it was doing."""
        found = next((turn for turn in self._turns if turn.running is running), None)
        if found is None:
            return None
        self._turns.remove(found)
        return found.going

    def _arm(self) -> None:
        """Wake up when something can be done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._turns:
            at_ns = max(self._busy_ns, min(turn.ready_ns for turn in self._turns))
            self._timer = self._clock.after(max(at_ns - self._clock.now_ns, 0) / US, self._go)

    def _next(self) -> Turn | None:
        """Return the turn that has the engine now: the first one that can go on, of the slice's group if any can."""
        now_ns = self._clock.now_ns
        ready = [turn for turn in self._turns if turn.ready_ns <= now_ns]
        found = next((turn for turn in ready if turn.slice is self._slice), None)
        if found is None and ready:
            found = ready[0]
            self._slice, self._left_us = found.slice, found.slice.length_us
        return found

    def _behind(self, turn: Turn) -> None:
        """Put a turn behind the others."""
        self._turns.remove(turn)
        self._turns.append(turn)

    def _expire(self) -> None:
        """End the slice: its group comes after the others, its channels in their order."""
        mine = [turn for turn in self._turns if turn.slice is self._slice]
        self._turns[:] = [turn for turn in self._turns if turn.slice is not self._slice] + mine
        self._slice = None

    def _work(self, delay_ns: int) -> None:
        """Tell that the engine works for a time from now on, or has stopped.

        An engine that had work all the time is busy all the time: also while this computer is late with it.
        """
        if self._load is None:
            return
        if self._works:
            self._load.worked(max(self._clock.now_ns - self._busy_ns, 0), graphics=self._graphics)
        if bool(delay_ns) is not self._works:
            self._load.advance()
            self._works = bool(delay_ns)
        self._load.worked(delay_ns, graphics=self._graphics)

    def _go(self) -> None:
        self._timer = None
        turn = self._next()
        if turn is not None:
            self._step(turn)
        if not self._turns:
            self._work(0)
        self._arm()

    def _step(self, turn: Turn) -> None:
        running = turn.running
        try:
            delay_us = next(turn.going)
        except StopIteration:
            self.remove(running)
            self._ended(running, None)
            return
        except (PageFault, BadPushbuffer, Refused) as error:
            self.remove(running)
            self._ended(running, error)
            return
        now_ns = self._clock.now_ns
        # what it did may have stopped the channel
        if turn not in self._turns:
            return
        turn.ready_ns = now_ns + round(delay_us * US)
        if isinstance(delay_us, Idle):
            self._work(0)
            self._behind(turn)
            return
        self._work(turn.ready_ns - now_ns)
        self._busy_ns = turn.ready_ns
        self._left_us -= delay_us
        yields, whole = running.yields, running.yields_slice
        running.yields = running.yields_slice = False
        if yields and not whole:
            self._behind(turn)
        if whole or self._left_us <= 0:
            self._expire()
