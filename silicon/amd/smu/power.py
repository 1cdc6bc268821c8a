"""Power, clocks and temperature of a board, as the metrics report them: work heats it, limits bound it, idling cools
it.

GUESS: the laws are simple and the constants plausible; nothing was measured on metal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ringup.autogen.amd import smu_v13_0_0 as smu
from ringup.autogen.structs import memory
from ringup.silicon.amd.smu.tables import INSTINCT_SAVING_NAMES, SAVING_NAMES, PowerRow, features
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.heat import Cooling, Heat

GFXOFF_AFTER_SECONDS = 0.05  # of idle time
# sensors at hot spots, by generation
HOTSPOTS = ("TEMP_HOTSPOT", "TEMP_HOTSPOT_G", "TEMP_HOTSPOT_M", "TEMP_HOTSPOT_GFX", "TEMP_HOTSPOT_SOC")
MOVING = "MovingAverage"
FAN_STARTS, FAN_FULL = 52.0, 95.0  # °C


@dataclass(slots=True)
class Limits:
    """The limits that a driver has set, by clock: bounds in MHz, 0 for none."""

    soft: dict[int, tuple[int, int]] = field(default_factory=dict)
    hard: dict[int, tuple[int, int]] = field(default_factory=dict)


class Power(Heat):
    """State that follows virtual time. `busy_ns` counts the time for which the graphics core has worked."""

    def __init__(self, clock: VirtualClock, row: PowerRow, busy_ns: Callable[[], int]) -> None:
        self.row = row
        names = SAVING_NAMES if hasattr(row.interface, "FEATURE_FW_DSTATE_BIT") else INSTINCT_SAVING_NAMES
        self._saving = features(row.interface, names)
        super().__init__(
            clock, busy_ns, Cooling(row.ambient, row.degrees_per_watt, row.thermal_seconds), row.idle_power
        )
        self.reset()

    def reset(self) -> None:
        """Forget the driver's settings; the board stays warm."""
        self.limits = Limits()
        self.message_limit = self.row.power_limit  # W, as the message sets it
        # on top of that, as the overdrive table sets it
        self.overdrive_percent = 0
        self.features = 0
        self.gfxoff_allowed = False
        self.restart()

    # --- clocks -------------------------------------------------------------------------------------------------
    def bounds(self, clock: int) -> tuple[int, int]:
        """Return the lowest and highest frequency that a clock may have now."""
        table = self.row.frequencies[clock]
        low, high = table[0], table[-1]
        for chosen in (self.limits.soft, self.limits.hard):
            asked_low, asked_high = chosen.get(clock, (0, 0))
            low = max(low, min(asked_low, table[-1]))
            high = min(high, max(asked_high, table[0])) if asked_high else high
        return min(low, high), high

    def frequency(self, clock: int) -> int:
        """Return a clock's frequency: it follows the load between its bounds, and the power limit lowers it."""
        low, high = self.bounds(clock)
        wanted = low + (high - low) * min(1.0, self.activity * 1.25)
        if clock == smu.PPCLK_GFXCLK and self.throttled:
            wanted = low + (wanted - low) * 0.85
        table = self.row.frequencies[clock]
        if clock in self.row.fine_grained:
            return round(wanted)
        return next((step for step in table if step >= wanted - 1), table[-1])

    @property
    def gfx_is_off(self) -> bool:
        """Whether the graphics core has no power: GFXOFF is allowed, the feature runs, and the core has been idle for a
        while.
        """
        allowed = self.gfxoff_allowed and self.features >> self.row.interface.FEATURE_GFXOFF_BIT & 1
        idle_ns = self._clock.now_ns - self._idle_since_ns
        return bool(allowed) and self._busy_ns() == self._last_busy_ns and idle_ns > GFXOFF_AFTER_SECONDS * 1e9

    @property
    def power_limit(self) -> int:
        """The power limit in effect, in W."""
        return self.message_limit * (100 + self.overdrive_percent) // 100

    @property
    def throttled(self) -> bool:
        """Whether power or temperature limits the clocks."""
        return self.power >= self.power_limit * 0.98 or self.temperature >= self.row.edge_limit - 1

    # --- time ---------------------------------------------------------------------------------------------------
    def demand(self) -> float:
        """Return the power that load, clocks and disabled savings take, within the limit."""
        return min(self._demand(), self.power_limit)

    def _demand(self) -> float:
        """Return the power that load, clocks and disabled savings would take without a limit."""
        row = self.row
        idle = row.idle_power
        if not self.gfx_is_off:
            idle += row.awake_power
        if self.features & self._saving != self._saving:
            idle += row.no_features_power
        idle += row.clock_power * self._floor(smu.PPCLK_GFXCLK) + row.memory_clock_power * self._floor(smu.PPCLK_UCLK)
        high = self.bounds(smu.PPCLK_GFXCLK)[1]
        top = row.frequencies[smu.PPCLK_GFXCLK][-1]
        return idle + self.activity * (row.power_limit * 1.1 - row.idle_power) * (high / top) ** 2

    def _floor(self, clock: int) -> float:
        """Return how far a clock is held above its lowest frequency, 0 to 1."""
        table = self.row.frequencies[clock]
        return (self.bounds(clock)[0] - table[0]) / (table[-1] - table[0])

    @property
    def fan_rpm(self) -> int:
        """The speed of the fan."""
        share = (self.temperature - FAN_STARTS) / (FAN_FULL - FAN_STARTS)
        low, high = self.row.fan_rpm
        return 0 if share <= 0 else round(low + (high - low) * min(1.0, 0.2 + 0.8 * share))

    # --- metrics ------------------------------------------------------------------------------------------------
    def metrics(self, counter: int) -> bytes:
        """Build the current metrics table. Power in W, temperatures in °C, frequencies in MHz, activity in percent."""
        self.advance()
        table = self.row.interface.SmuMetricsExternal_t()
        m = table.SmuMetrics
        for clock in self.row.frequencies:
            m.CurrClock[clock] = self.frequency(clock)
        gfx = 0 if self.gfx_is_off else self.frequency(smu.PPCLK_GFXCLK)
        m.AverageGfxclkFrequencyTarget = m.AverageGfxclkFrequencyPreDs = self.frequency(smu.PPCLK_GFXCLK)
        m.AverageGfxclkFrequencyPostDs = round(gfx * self.activity)
        m.AverageMemclkFrequencyPreDs = m.AverageMemclkFrequencyPostDs = self.frequency(smu.PPCLK_UCLK)
        m.AverageFclkFrequencyPreDs = m.AverageFclkFrequencyPostDs = self.frequency(smu.PPCLK_FCLK)
        m.AverageGfxActivity, m.AverageUclkActivity = round(100 * self.activity), round(60 * self.activity)
        m.MetricsCounter = counter
        m.EnergyAccumulator = int(self.energy * 1_000_000 / 15.259) & 0xFFFF_FFFF  # units of 15.259 uJ
        m.AverageSocketPower = round(self.power)
        # GUESS: losses of the regulators, fan, memory
        m.AverageTotalBoardPower = round(self.power * 1.17)
        edge = self.temperature
        facts = self.row.interface
        for sensor in range(facts.TEMP_COUNT):
            m.AvgTemperature[sensor] = round(edge)
        hotspot = round(edge + 12 * self.activity + 2)
        for name in HOTSPOTS:
            if (spot := getattr(facts, name, None)) is not None:
                m.AvgTemperature[spot] = hotspot
        m.AvgTemperature[smu.TEMP_MEM] = round(edge + 8)
        m.AvgTemperatureFanIntake = round(self.row.ambient)
        m.AvgFanRpm, m.AvgFanPwm = self.fan_rpm, round(100 * self.fan_rpm / self.row.fan_rpm[1])
        # generation and lanes, decoded: not as PcieGenSpeed and PcieLaneCount count
        m.PcieRate, m.PcieWidth = self.row.pcie_generation, self.row.pcie_lanes
        for plane in range(2):
            m.AvgVoltage[plane] = round(650 + 450 * self.activity)  # mV
            m.AvgCurrent[plane] = round(self.power / 2)
        m.ThrottlingPercentage[smu.THROTTLER_TEMP_EDGE_BIT] = 100 * int(self.temperature >= self.row.edge_limit - 1)
        # 14.0.2 has moving averages beside the averages
        members = facts.SmuMetrics_t.members()
        for name in members:
            average = name.replace(MOVING, "Average", 1)
            if name != average and average in members:
                setattr(m, name, getattr(m, average))
        return bytes(memory(table))
