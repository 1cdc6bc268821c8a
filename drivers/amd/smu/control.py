"""What a card's user may set of power and clocks, and how it all goes back: at `close`, and at the next start where
nobody closed.

The fan is never taken over: the power controller's firmware runs it, and its own curve and minimum hold whatever is set
here.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from ringup.drivers.amd.smu.controller import CLOCKS, Smu
from ringup.drivers.amd.smu.tables import Limits
from ringup.errors import NotSupported

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CardLimits(Limits):
    """What the card may do, and within which bounds it may be set. `clocks_mhz`: lowest and highest of each clock that
    can be set.
    """

    clocks_mhz: dict[str, tuple[int, int]]


class Control:
    """The settings of one card whose power controller is up."""

    def __init__(self, smu: Smu) -> None:
        self._smu = smu
        self._ranges: dict[str, tuple[int, int]] = {}
        self._power_set = False
        self.slowed = False

    @property
    def limits(self) -> CardLimits:
        """What the card may do."""
        clocks = {name: self._smu.clocks(name) for name in CLOCKS}
        bounds = {name: (levels[0], levels[-1]) for name, levels in clocks.items() if levels}
        return CardLimits(**asdict(self._smu.limits), clocks_mhz=bounds)

    @property
    def power_limit_w(self) -> int:
        """The power that the card may take now, watts."""
        return self._smu.power_limit_w

    def set_power_limit(self, power_w: int) -> None:
        """Set the power that the card may take, watts; a `ValueError` gives the range."""
        self._smu.set_power_limit(power_w)
        self._power_set = True

    def set_clock_range(self, name: str, min_mhz: int, max_mhz: int) -> None:
        """Keep a clock in a range; while the card is slowed down for heat it holds from the end of that. A `ValueError`
        gives the range.
        """
        self._smu.set_clock_range(name, min_mhz, max_mhz)
        self._ranges[name] = min_mhz, max_mhz
        if self.slowed:
            self._smu.quiet()

    def workload(self, profile: str) -> None:
        """Hint at the work to come; a `ValueError` names the profiles."""
        self._smu.workload(profile)

    def slow(self) -> None:
        """Hold every clock at its lowest until `resume`."""
        self.slowed = True
        self._smu.quiet()

    def resume(self) -> None:
        """Let clocks follow the load again, in the ranges that were set."""
        self.slowed = False
        self._smu.automatic()
        for name, (min_mhz, max_mhz) in self._ranges.items():
            self._smu.set_clock_range(name, min_mhz, max_mhz)

    def restore(self) -> None:
        """Set everything as a card has it that was just switched on, whoever changed it."""
        self._ranges.clear()
        self.slowed = False
        self._smu.workload("default")
        self._smu.automatic()
        limits = self._smu.limits
        # a table that says so is to be believed
        known = 0 < limits.power_min_w <= limits.power_default_w <= limits.power_max_w
        self._power_set = known and self._smu.power_limit_w != limits.power_default_w
        self.close()

    def close(self) -> None:
        """Give the power limit back that was set; clocks and hints go back as the power controller stops. Twice is
        harmless.
        """
        if self._power_set:
            try:
                self._smu.set_power_limit(self._smu.limits.power_default_w)
            except NotSupported as error:
                LOG.info("%s", error)
        self._power_set = False
