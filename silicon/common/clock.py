"""Virtual time: one clock for each machine, with a queue of timers. Nothing sleeps, and there are no threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

# a register read crosses the link and comes back
READ_NS = 1_000
WRITE_NS = 100  # a write is posted
PRUNE_ABOVE = 1_024  # timers


@dataclass(eq=False, slots=True)
class Timer:
    """An action at `due_ns`; actions with the same due time run in the order of their creation. `owner`: a part of the
    machine.
    """

    due_ns: int
    action: Callable[[], None]
    owner: PowerDomain | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the action. Harmless when repeated, or after the action has run."""
        self.cancelled = True


class VirtualClock:
    """The time of one virtual machine, and a transport's `Clock`. Time passes when a caller sleeps, reads or writes;
    engines run meanwhile.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._timers: list[tuple[int, int, Timer]] = []  # a heap
        # number of timers above which cancelled ones are removed
        self._prune_above = PRUNE_ABOVE
        self._order = 0
        self._running = False
        # while it runs: the latest time, and `_done`, a condition that ends it earlier
        self._until_ns = 0
        self._done: Callable[[], object] = _never

    @property
    def now_us(self) -> int:
        """Microseconds since the machine started."""
        return self.now_ns // 1_000

    def ticks(self, hertz: int) -> int:
        """Return the value of a counter with that frequency."""
        return self.now_ns * hertz // 1_000_000_000

    def after(self, delay_us: float, action: Callable[[], None]) -> Timer:
        """Run `action` after `delay_us`; 0 means as soon as time passes."""
        return self.start(delay_us, action, None)

    def start(self, delay_us: float, action: Callable[[], None], owner: PowerDomain | None) -> Timer:
        """Run `action` after `delay_us`, unless `owner` loses power before."""
        if delay_us < 0:
            raise ValueError(f"a timer cannot fall due {-delay_us} us ago")
        self._order = order = self._order + 1
        due_ns = self.now_ns + round(delay_us * 1_000)
        timer, timers = Timer(due_ns, action, owner), self._timers
        heappush(timers, (due_ns, order, timer))
        # time-outs of operations that ended in time
        if len(timers) > self._prune_above:
            timers[:] = [entry for entry in timers if not entry[2].cancelled]
            heapify(timers)
            self._prune_above = max(PRUNE_ABOVE, 2 * len(timers))
        return timer

    def sleep_us(self, time_us: float) -> None:
        """Let time pass."""
        self.advance_ns(round(time_us * 1_000))

    def advance_ns(self, time_ns: int) -> None:
        """Let time pass and run due timers, in order. When called from an action, only the time moves; due timers run
        later.
        """
        end_ns = self.now_ns + time_ns
        self._run(end_ns, end_ns, _never)

    def _run(self, end_ns: int, until_ns: int, done: Callable[[], object]) -> None:
        """Let time pass up to `end_ns`. The caller continues up to `until_ns`, or until `done()`, while there are
        timers.
        """
        timers = self._timers
        # when an action accesses the card itself, such as a debugger's: no nesting
        if self._running or not timers or timers[0][0] > end_ns:
            self.now_ns = end_ns
            return
        self._running, self._until_ns, self._done = True, until_ns, done
        try:
            while timers and timers[0][0] <= end_ns:
                due_ns, _, timer = heappop(timers)
                if not timer.cancelled:
                    if due_ns > self.now_ns:
                        self.now_ns = due_ns
                    timer.action()
            if end_ns > self.now_ns:
                self.now_ns = end_ns
        finally:
            self._running = False

    def go_on(self, delay_us: float) -> bool:
        """Let `delay_us` pass within an action, as if the action ended here and the next one ran then. If that is not
        possible, return False: the caller then starts a timer.

        It is possible if no timer is due until then, and if the running call lets so much time pass.
        """
        due_ns, timers = self.now_ns + round(delay_us * 1_000), self._timers
        if due_ns > self._until_ns or (timers and timers[0][0] <= due_ns) or not self._running or self._done():
            return False
        self.now_ns = due_ns
        return True

    def run_until(self, done: Callable[[], object], timeout_us: float) -> bool:
        """Let time pass, event by event, until `done()` or for `timeout_us`; return whether `done()`."""
        end_ns, timers = self.now_ns + round(timeout_us * 1_000), self._timers
        while not done():
            due_ns = timers[0][0] if timers else end_ns
            if due_ns >= end_ns:
                self.advance_ns(max(0, end_ns - self.now_ns))
                return bool(done())
            self._run(max(due_ns, self.now_ns), end_ns - 1, done)
        return True

    @property
    def due_ns(self) -> int | None:
        """The time of the next timer; None if there is none."""
        while self._timers and self._timers[0][2].cancelled:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def forget(self) -> None:
        """Drop all timers: the machine lost power."""
        self._timers.clear()

    def drop(self, owner: PowerDomain) -> None:
        """Cancel the timers of a part of the machine."""
        for _, _, timer in self._timers:
            if timer.owner is owner:
                timer.cancelled = True


def _never() -> bool:
    return False


class PowerDomain(VirtualClock):
    """A part of a machine that can lose power alone, such as a card. It has the machine's time and its own timers."""

    def __init__(self, machine: VirtualClock) -> None:
        """`machine`: the clock of the machine, or of another part of it."""
        self.machine: VirtualClock = machine.machine if isinstance(machine, PowerDomain) else machine

    @property
    def now_ns(self) -> int:  # type: ignore[override]  # read here, moved by the machine
        """Nanoseconds since the machine started."""
        return self.machine.now_ns

    def after(self, delay_us: float, action: Callable[[], None]) -> Timer:
        """Run `action` after `delay_us`, unless this part loses power before."""
        return self.machine.start(delay_us, action, self)

    def advance_ns(self, time_ns: int) -> None:
        """Let time pass, for the whole machine."""
        self.machine.advance_ns(time_ns)

    def go_on(self, delay_us: float) -> bool:
        """Let time pass from within an action, for the whole machine."""
        return self.machine.go_on(delay_us)

    def run_until(self, done: Callable[[], object], timeout_us: float) -> bool:
        """Let time pass for the whole machine until `done()` or for `timeout_us`; return whether `done()`."""
        return self.machine.run_until(done, timeout_us)

    def forget(self) -> None:
        """Drop all timers of this part: it lost power."""
        self.machine.drop(self)
