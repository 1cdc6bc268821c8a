"""The power controller of a card of several dies (MI300): it has its tables from the card's flash, and states its
limits in the table of metrics.

Source: amdgpu smu_v13_0_6_ppt.c: setup_driver_pptable, set_default_dpm_table, system_features_control, get_power_limit,
set_gfx_soft_freq_limited_range, set_soft_freq_limited_range, get_thermal_temperature_range, notify_unload.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import Block, Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.smu.controller import CLOCKS, DPM, FREQUENCY, LEVELS, MAX_LEVELS, PROFILES, Smu
from ringup.drivers.amd.smu.rows import row
from ringup.drivers.amd.smu.tables import MAX_MHZ, MAX_W, Limits, metrics_bytes, rounded, sifted
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceFault, DeviceTimeout, NotSupported
from ringup.firmware.stated import within

LOG = logging.getLogger(__name__)
# the levels of a clock in the table of metrics
TABLES = {"memory": "UclkFrequencyTable", "fabric": "FclkFrequencyTable", "soc": "SocclkFrequencyTable"}
# TIMEOUT: setup_driver_pptable: 100 tries, a millisecond between
TABLE_TIMEOUT_US, TABLE_POLL_US = 200_000, 1_000
LIMITS_SINCE = 0x55_4500  # the firmware that tells temperatures
MIN_POWER_W = 1  # amdgpu's lowest limit is 0, which would be none
MASK_MHZ = 0xFFFF


def make_smu(block: Block, version: Version, window: VramWindow, hdp: Hdp, table_pa: int, fb_base: int) -> Smu:
    """Make the power controller of a card; see `Smu`."""
    kind = AcceleratorSmu if row(version).accelerator else Smu
    return kind(block, version, window, hdp, table_pa, fb_base)


class AcceleratorSmu(Smu):
    """The power controller of one card of several dies."""

    def start(self, board_table: bytes | None, *, signed: bool) -> None:
        """Let the firmware manage the card, as `Smu.start` does; it wants no table."""
        self._wait_running()
        self.ask_versions()
        self._place_tables()
        self.send("EnableAllSmuFeatures")
        self._read_features()
        self._read_limits()

    def attach(self) -> None:
        """Use the firmware that an earlier process started."""
        self.ask_versions()
        self._place_tables()
        self._read_features()
        self._read_limits()

    def stop(self) -> None:
        """Leave the card cold, and tell the firmware that nobody drives the card any more."""
        self.quiet()
        self._optional("PrepareForDriverUnload")

    def _read_features(self) -> None:
        self.features = self.ask("GetEnabledSmuFeaturesLow") | self.ask("GetEnabledSmuFeaturesHigh") << 32

    def _read_limits(self) -> None:
        """Read the table that states the limits, once the firmware has filled it."""
        counter = self.facts.MetricsTableX_t
        first = poll(
            self.metrics_table,
            lambda table: bool(counter.view(bytearray(table)).AccumulationCounter),
            clock=self._block.registers.clock,
            timeout_us=TABLE_TIMEOUT_US,
            poll_us=TABLE_POLL_US,
        )
        if not counter.view(bytearray(first)).AccumulationCounter:
            raise DeviceTimeout(
                f"starting the power controller: its table of metrics is still empty after {TABLE_TIMEOUT_US / 1000:g} ms; reset the card"
            )
        self._power_table = first
        self.__dict__.pop("limits", None)
        self._levels.clear()

    @property
    def _stated(self) -> Any:
        """The table that states the limits."""
        if not self._power_table:
            raise ValueError("the power controller has not been started")
        return self.facts.MetricsTableX_t.view(bytearray(self._power_table))

    @cached_property
    def limits(self) -> Limits:
        """The card's limits. Temperatures of firmware that does not tell them are 0."""
        hotspot, memory, shutdown = self._temperatures()
        power = rounded(self._stated.MaxSocketPowerLimit)
        gfx = self.clocks("gfx")
        limits, self.doubts = sifted(
            Limits(
                power_default_w=power,
                power_min_w=MIN_POWER_W,
                power_max_w=power,
                edge_temperature_c=0,
                hotspot_temperature_c=hotspot,
                memory_temperature_c=memory,
                shutdown_temperature_c=shutdown,
                fan_max_rpm=0,
                fan_min_percent=0,
                fan_stops_when_cool=False,
                base_clock_mhz=gfx[0],
                game_clock_mhz=gfx[-1],
                boost_clock_mhz=gfx[-1],
            ),
            "the table of metrics",
        )
        return limits

    def _temperatures(self) -> tuple[int, int, int]:
        """Ask at which temperatures clocks fall, of the dies and of memory, and at which the card switches off."""
        if self.firmware_version < LIMITS_SINCE:
            return 0, 0, 0
        facts = self.facts
        kinds = facts.PPSMC_THROTTLING_LIMIT_TYPE_SOCKET, facts.PPSMC_THROTTLING_LIMIT_TYPE_HBM
        hotspot, memory = (self.ask("ReadThrottlerLimit", kind) for kind in kinds)
        last = (self.ask("GetCTFLimit", kind) for kind in (facts.PPSMC_AID_THM_TYPE, facts.PPSMC_XCD_THM_TYPE))
        return hotspot, memory, max(last)

    def metrics_table(self) -> bytes:
        """Return the table that `decode_metrics` reads, fresh from the controller."""
        self.send("GetMetricsTable")
        return self._window.read(self._table_pa, metrics_bytes(self.row))

    def clocks(self, name: str) -> tuple[int, ...]:
        """Return the frequencies of a clock as `Smu.clocks` does: those of the table, as many as there are levels."""
        if name not in CLOCKS:
            raise ValueError(f"there is no clock {name!r}; there are {', '.join(CLOCKS)}")
        if name not in self._levels:
            levels = self._gfx_range() if name == "gfx" else self._listed(name)
            self._levels[name] = tuple(sorted(set(levels)))
        return self._levels[name]

    def _gfx_range(self) -> tuple[int, ...]:
        lowest = rounded(self._stated.MinGfxclkFrequency)
        if not self._runs(DPM["gfx"]):
            return (
                within(lowest, 0, MAX_MHZ, "the lowest gfx clock in MHz, by the table of metrics,", error=DeviceFault),
            )
        what = "the power controller's answer to {}, in MHz,"
        return tuple(
            within(self.ask(message), 0, MAX_MHZ, what.format(message), error=DeviceFault)
            for message in ("GetMinGfxDpmFreq", "GetMaxGfxDpmFreq")
        )

    def _listed(self, name: str) -> list[int]:
        count = 1
        if self._runs(DPM[name]):
            what = f"the power controller's answer to GetDpmFreqByIndex for the {name} clock, the last level,"
            last = self.ask("GetDpmFreqByIndex", self._clock(name) << 16 | LEVELS) & FREQUENCY
            count = within(last, 0, MAX_LEVELS, what, error=DeviceFault) + 1
        levels = [rounded(fixed) for fixed in getattr(self._stated, TABLES[name])][:count]
        what = f"a frequency of the {name} clock in MHz, by the table of metrics,"
        return [within(level, 0, MAX_MHZ, what, error=DeviceFault) for level in levels]

    def set_clock_range(self, name: str, min_mhz: int, max_mhz: int, *, hard: bool = False) -> None:
        """Keep the gfx clock between two frequencies, or the memory clock below one. Raises `NotSupported` for the
        others, which the firmware keeps to itself, and for `hard` bounds.
        """
        levels = self.clocks(name)
        if not levels[0] <= min_mhz <= max_mhz <= levels[-1]:
            raise ValueError(f"the {name} clock takes {levels[0]} to {levels[-1]} MHz, not {min_mhz} to {max_mhz}")
        if hard or name not in ("gfx", "memory"):
            raise NotSupported(
                f"the power controller of this card takes no {'hard' if hard else name} bounds of clocks"
            )
        if name == "gfx":
            self.send("SetSoftMaxGfxClk", max_mhz & MASK_MHZ)
            self.send("SetSoftMinGfxClk", min_mhz & MASK_MHZ)
        else:
            self.send("SetSoftMaxByFreq", self._clock(name) << 16 | max_mhz)

    @property
    def power_limit_w(self) -> int:
        """The power limit in watts."""
        what = "the power controller's answer to GetPptLimit, in watts,"
        return within(self.ask("GetPptLimit"), 0, MAX_W, what, error=DeviceFault)

    def workload(self, profile: str) -> None:
        """Take a workload profile. The firmware of this card has none, so that nothing changes."""
        if profile not in PROFILES:
            raise ValueError(f"there is no workload {profile!r}; there are {', '.join(PROFILES)}")
        if profile != "default":
            LOG.info("the power controller of this card has no workload profiles; %r changes nothing", profile)

    def _moved(self) -> list[str]:
        return [name for name in ("gfx", "memory") if self._runs(DPM[name])]
