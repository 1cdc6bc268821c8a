"""Virtual time: one clock a machine, a queue of things that fall due. Nothing here sleeps and nothing runs beside it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

READ_NS = 1_000  # a register read crosses the link and comes back
WRITE_NS = 100  # a write is posted
CROWD = 1_024  # timers


@dataclass(order=True, slots=True)
class Timer:
    """Something that happens at `due_ns`; things due at one time happen in the order they were asked for."""

    due_ns: int
    order: int
    action: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Make it not happen; cancelling twice, or after it happened, is harmless."""
        self.cancelled = True


class VirtualClock:
    """Time of one virtual machine, and a transport's `Clock`. It passes when somebody sleeps, reads or writes; engines run meanwhile."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._timers: list[tuple[int, int, Timer]] = []  # a heap
        self._most = CROWD  # timers before those that were cancelled are thrown out
        self._order = 0
        self._running = False

    @property
    def now_us(self) -> int:
        """Microseconds since the card got power."""
        return self.now_ns // 1_000

    def ticks(self, hertz: int) -> int:
        """Return what a counter of that frequency shows."""
        return self.now_ns * hertz // 1_000_000_000

    def after(self, delay_us: float, action: Callable[[], None]) -> Timer:
        """Run `action` once `delay_us` has passed; 0 means: as soon as time passes."""
        if delay_us < 0:
            raise ValueError(f"a timer cannot fall due {-delay_us} us ago")
        self._order += 1
        timer = Timer(self.now_ns + round(delay_us * 1_000), self._order, action)
        heapq.heappush(self._timers, (timer.due_ns, timer.order, timer))
        if len(self._timers) > self._most:  # time-outs of what ended in time
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._most = max(CROWD, 2 * len(self._timers))
        return timer

    def sleep_us(self, time_us: float) -> None:
        """Let time pass."""
        self.advance_ns(round(time_us * 1_000))

    def advance_ns(self, time_ns: int) -> None:
        """Let time pass and do what falls due, in order. From within an action only the time moves, what falls due comes later."""
        end_ns = self.now_ns + time_ns
        # within an action that itself touches the card, such as a debugger's: no nesting
        if self._running or not self._timers or self._timers[0][0] > end_ns:
            self.now_ns = end_ns
            return
        self._running = True
        try:
            while self._timers and self._timers[0][0] <= end_ns:
                due_ns, _, timer = heapq.heappop(self._timers)
                if not timer.cancelled:
                    self.now_ns = max(self.now_ns, due_ns)
                    timer.action()
            self.now_ns = max(self.now_ns, end_ns)
        finally:
            self._running = False

    def run_until(self, done: Callable[[], bool], timeout_us: float) -> bool:
        """Let time pass, event by event, until `done()` or `timeout_us` later; tell whether it was done."""
        end_ns = self.now_ns + round(timeout_us * 1_000)
        while not done():
            due_ns = self._timers[0][0] if self._timers else end_ns
            if due_ns >= end_ns:
                self.advance_ns(max(0, end_ns - self.now_ns))
                return done()
            self.advance_ns(max(0, due_ns - self.now_ns))
        return True

    @property
    def due_ns(self) -> int | None:
        """When the next thing falls due; None while nothing is to happen."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def forget(self) -> None:
        """Drop everything that was to happen: the card lost power."""
        self._timers.clear()


class PowerDomain(VirtualClock):
    """A part of a machine that loses power alone, such as a card: its time is the machine's, what is to happen in it is its own to forget."""

    def __init__(self, machine: VirtualClock) -> None:
        self.machine = machine
        self._most = CROWD
        self._own: dict[int, Timer] = {}

    @property
    def now_ns(self) -> int:  # type: ignore[override]  # read here, moved by the machine
        """Nanoseconds since the machine began."""
        return self.machine.now_ns

    def after(self, delay_us: float, action: Callable[[], None]) -> Timer:
        """Run `action` once `delay_us` has passed, unless this part loses power before."""

        def happen() -> None:
            del self._own[timer.order]
            action()

        timer = self.machine.after(delay_us, happen)
        self._own[timer.order] = timer
        if len(self._own) > self._most:
            self._own = {order: own for order, own in self._own.items() if not own.cancelled}
            self._most = max(CROWD, 2 * len(self._own))
        return timer

    def advance_ns(self, time_ns: int) -> None:
        """Let time pass, for the whole machine."""
        self.machine.advance_ns(time_ns)

    def run_until(self, done: Callable[[], bool], timeout_us: float) -> bool:
        """Let time pass for the whole machine until `done()` or `timeout_us` later; tell whether it was done."""
        return self.machine.run_until(done, timeout_us)

    def forget(self) -> None:
        """Drop everything that was to happen in this part: it lost power."""
        for timer in self._own.values():
            timer.cancel()
        self._own.clear()
