"""Settings of power and clocks, and their defaults again: at `close`, and at the next start if the card was not closed.

The fan is never controlled: the power controller's firmware runs it, by its own curve and minimum whatever is set here.
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
    """The bounds within which a card may be set. `clocks_mhz`: lowest and highest frequency of each clock that can be
    set.
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
        """The bounds of the settings."""
        clocks = {name: self._smu.clocks(name) for name in CLOCKS}
        bounds = {name: (levels[0], levels[-1]) for name, levels in clocks.items() if levels}
        return CardLimits(**asdict(self._smu.limits), clocks_mhz=bounds)

    @property
    def power_limit_w(self) -> int:
        """The power limit now, in watts."""
        return self._smu.power_limit_w

    def set_power_limit(self, power_w: int) -> None:
        """Set the power limit in watts. The `ValueError` for another value gives the range."""
        self._smu.set_power_limit(power_w)
        self._power_set = True

    def set_clock_range(self, name: str, min_mhz: int, max_mhz: int) -> None:
        """Keep a clock in a range. While the card is slowed down for heat, the range applies from the end of that. The
        `ValueError` for another range gives the bounds.
        """
        self._smu.set_clock_range(name, min_mhz, max_mhz)
        self._ranges[name] = min_mhz, max_mhz
        if self.slowed:
            self._smu.quiet()

    def workload(self, profile: str) -> None:
        """Set the workload profile. The `ValueError` for an unknown one lists the profiles."""
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
        """Set everything to the defaults of a card that was just switched on, whatever process changed it."""
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
        """Restore the power limit; clocks and the workload profile are restored when the power controller stops. Twice
        is harmless.
        """
        if self._power_set:
            try:
                self._smu.set_power_limit(self._smu.limits.power_default_w)
            except NotSupported as error:
                LOG.info("%s", error)
        self._power_set = False
