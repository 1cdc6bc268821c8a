"""Virtual time: one clock a machine, a queue of things that fall due. Nothing here sleeps and nothing runs beside
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

READ_NS = 1_000  # a register read crosses the link and comes back
WRITE_NS = 100  # a write is posted
CROWD = 1_024  # timers


@dataclass(eq=False, slots=True)
class Timer:
    """Something that happens at `due_ns`; things due at one time happen in the order they were asked for. `owner`: a
    part of the machine.
    """

    due_ns: int
    action: Callable[[], None]
    owner: PowerDomain | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Make it not happen; cancelling twice, or after it happened, is harmless."""
        self.cancelled = True


class VirtualClock:
    """Time of one virtual machine, and a transport's `Clock`. It passes when somebody sleeps, reads or writes; engines
    run meanwhile.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._timers: list[tuple[int, int, Timer]] = []  # a heap
        self._most = CROWD  # timers before those that were cancelled are thrown out
        self._order = 0
        self._running = False
        self._until_ns = 0  # while it runs: how far at most, and what ends it before
        self._done: Callable[[], object] = _never

    @property
    def now_us(self) -> int:
        """Microseconds since the card got power."""
        return self.now_ns // 1_000

    def ticks(self, hertz: int) -> int:
        """Return what a counter of that frequency shows."""
        return self.now_ns * hertz // 1_000_000_000

    def after(self, delay_us: float, action: Callable[[], None]) -> Timer:
        """Run `action` once `delay_us` has passed; 0 means: as soon as time passes."""
        return self.start(delay_us, action, None)

    def start(self, delay_us: float, action: Callable[[], None], owner: PowerDomain | None) -> Timer:
        """Run `action` once `delay_us` has passed, unless `owner` loses power before."""
        if delay_us < 0:
            raise ValueError(f"a timer cannot fall due {-delay_us} us ago")
        self._order = order = self._order + 1
        due_ns = self.now_ns + round(delay_us * 1_000)
        timer, timers = Timer(due_ns, action, owner), self._timers
        heappush(timers, (due_ns, order, timer))
        if len(timers) > self._most:  # time-outs of what ended in time
            timers[:] = [entry for entry in timers if not entry[2].cancelled]
            heapify(timers)
            self._most = max(CROWD, 2 * len(timers))
        return timer

    def sleep_us(self, time_us: float) -> None:
        """Let time pass."""
        self.advance_ns(round(time_us * 1_000))

    def advance_ns(self, time_ns: int) -> None:
        """Let time pass and do what falls due, in order. From within an action only the time moves, what falls due
        comes later.
        """
        end_ns = self.now_ns + time_ns
        self._run(end_ns, end_ns, _never)

    def _run(self, end_ns: int, until_ns: int, done: Callable[[], object]) -> None:
        """Let time pass up to `end_ns`; who calls goes on up to `until_ns`, and until `done()`, as long as something
        happens.
        """
        timers = self._timers
        # within an action that itself touches the card, such as a debugger's: no nesting
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
        """Let time pass from within an action, as if it ended here and the next one came after `delay_us`. False: do
        that instead.

        It is done where nothing else is to happen before or then, and time goes on so far without anybody's say.
        """
        due_ns, timers = self.now_ns + round(delay_us * 1_000), self._timers
        if due_ns > self._until_ns or (timers and timers[0][0] <= due_ns) or not self._running or self._done():
            return False
        self.now_ns = due_ns
        return True

    def run_until(self, done: Callable[[], object], timeout_us: float) -> bool:
        """Let time pass, event by event, until `done()` or `timeout_us` later; tell whether it was done."""
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
        """When the next thing falls due; None while nothing is to happen."""
        while self._timers and self._timers[0][2].cancelled:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def forget(self) -> None:
        """Drop everything that was to happen: the card lost power."""
        self._timers.clear()

    def drop(self, owner: PowerDomain) -> None:
        """Drop what was to happen in a part of the machine."""
        for _, _, timer in self._timers:
            if timer.owner is owner:
                timer.cancelled = True


def _never() -> bool:
    return False


class PowerDomain(VirtualClock):
    """A part of a machine that loses power alone, such as a card: its time is the machine's, what is to happen in it is
    its own to forget.
    """

    def __init__(self, machine: VirtualClock) -> None:
        """`machine`: the clock of the machine, or of another part of it."""
        self.machine: VirtualClock = machine.machine if isinstance(machine, PowerDomain) else machine

    @property
    def now_ns(self) -> int:  # type: ignore[override]  # read here, moved by the machine
        """Nanoseconds since the machine began."""
        return self.machine.now_ns

    def after(self, delay_us: float, action: Callable[[], None]) -> Timer:
        """Run `action` once `delay_us` has passed, unless this part loses power before."""
        return self.machine.start(delay_us, action, self)

    def advance_ns(self, time_ns: int) -> None:
        """Let time pass, for the whole machine."""
        self.machine.advance_ns(time_ns)

    def go_on(self, delay_us: float) -> bool:
        """Let time pass from within an action, for the whole machine."""
        return self.machine.go_on(delay_us)

    def run_until(self, done: Callable[[], object], timeout_us: float) -> bool:
        """Let time pass for the whole machine until `done()` or `timeout_us` later; tell whether it was done."""
        return self.machine.run_until(done, timeout_us)

    def forget(self) -> None:
        """Drop everything that was to happen in this part: it lost power."""
        self.machine.drop(self)
