"""How work warms a chip: activity and power follow the work, and temperature follows power. Shared by all cards.

GUESS: the laws are simple; nothing was measured on metal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ringup.silicon.common.clock import VirtualClock

# time over which activity and power are averaged
AVERAGE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Cooling:
    """A board's cooler: °C of the air, °C for each W in the end, and the time constant of the approach to that."""

    ambient: float
    degrees_per_watt: float
    seconds: float


class Heat(ABC):
    """State that follows virtual time. `busy_ns` counts the time for which the chip has worked.

    `activity`: 0 to 1. `power`: W. `energy`: J. `temperature`: °C.
    """

    def __init__(self, clock: VirtualClock, busy_ns: Callable[[], int], cooling: Cooling, idle_power: float) -> None:
        self._clock, self._busy_ns, self._cooling, self._idle_power = clock, busy_ns, cooling, idle_power
        # a reset does not change these two
        self.energy, self.temperature = 0.0, cooling.ambient
        self.restart()

    def restart(self) -> None:
        """Begin with an idle chip; the board stays warm."""
        self.activity, self.power = 0.0, self._idle_power
        self._last_ns, self._last_busy_ns = self._clock.now_ns, self._busy_ns()
        self._idle_since_ns = self._clock.now_ns

    @abstractmethod
    def demand(self) -> float:
        """Return the power that the present activity takes, in W."""

    def advance(self) -> None:
        """Bring the state to the current time, as if the work since the last call had been even."""
        now_ns, busy_ns = self._clock.now_ns, self._busy_ns()
        seconds = (now_ns - self._last_ns) / 1e9
        if seconds <= 0:
            return
        busy = min(1.0, (busy_ns - self._last_busy_ns) / 1e9 / seconds)
        if busy_ns != self._last_busy_ns:
            self._idle_since_ns = now_ns
        self.activity = _approach(self.activity, busy, seconds, AVERAGE_SECONDS)
        self._last_ns, self._last_busy_ns = now_ns, busy_ns
        before = self.power
        self.power = _approach(before, self.demand(), seconds, AVERAGE_SECONDS)
        self.energy += (before + self.power) / 2 * seconds
        settled = self._cooling.ambient + self._cooling.degrees_per_watt * self.power
        self.temperature = _approach(self.temperature, settled, seconds, self._cooling.seconds)


def _approach(value: float, target: float, seconds: float, time_constant: float) -> float:
    return target + (value - target) * math.exp(-seconds / time_constant)
