"""A runlist: channels with work take turns on the engine that it serves.

A channel has the engine for a slice of virtual time, then the next one with work has it. One that waits for a semaphore
leaves it at once and looks again later. Sources: manuals/ampere/ga100/dev_pbdma.ref.txt of open-gpu-doc ("Semaphore
switch option", "YIELD"); kfifoChannelGroupGetDefaultTimeslice_GV100 of NVIDIA's open kernel modules. GUESS: each
channel has a slice of its own, where metal gives one to a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ringup.autogen.nv import ram
from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.nv.engines.engine import Refused
from ringup.silicon.nv.host.channel import RunningChannel
from ringup.silicon.nv.host.pushbuffer import BadPushbuffer
from ringup.silicon.nv.memory.semaphores import Idle
from ringup.silicon.nv.memory.space import PageFault

SLICE_US = float(ram.NV_RAMRL_ENTRY_TSG_TIMESLICE_TIMEOUT_128 << ram.NV_RAMRL_ENTRY_TSG_TIMESLICE_SCALE_3)
US = 1_000
# what stops a channel
Stop = PageFault | BadPushbuffer | Refused


@dataclass(slots=True)
class Turn:
    """A channel with work: what it does, and when it can go on."""

    running: RunningChannel
    going: Iterator[float]
    ready_ns: int


class Runlist:
    """The channels of one runlist that have work, the one that has the engine first.

    `ended(channel, error)` is called when a channel has no more work, or stopped with an error.
    """

    def __init__(self, clock: VirtualClock, ended: Callable[[RunningChannel, Stop | None], None]) -> None:
        self._clock, self._ended = clock, ended
        self._turns: list[Turn] = []
        self._left_us = SLICE_US
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
        if found is self._turns[0]:
            self._left_us = SLICE_US
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
        """Return the turn that has the engine now: the first one that can go on."""
        now_ns = self._clock.now_ns
        for place, turn in enumerate(self._turns):
            if turn.ready_ns <= now_ns:
                if place:
                    # the others keep their order, behind it
                    self._turns[:] = self._turns[place:] + self._turns[:place]
                    self._left_us = SLICE_US
                return turn
        return None

    def _rotate(self) -> None:
        self._turns.append(self._turns.pop(0))
        self._left_us = SLICE_US

    def _go(self) -> None:
        self._timer = None
        turn = self._next()
        if turn is not None:
            self._step(turn)
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
            self._rotate()
            return
        self._busy_ns = turn.ready_ns
        self._left_us -= delay_us
        if running.yields or self._left_us <= 0:
            running.yields = False
            self._rotate()
