"""The SMU of MI300X (MP1 13.0.6): its firmware runs before any driver, has no tables of boards, and has metrics of its
own form.

Source: smu_v13_0_6_ppt.c (use), smu_v13_0_6_ppsmc.h (messages), smu_v13_0_6_pmfw.h (metrics), psp_v13_0.c
(regMP1_PUB_SCRATCH0).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.amd import smu_v13_0_0 as smu
from ringup.autogen.amd import smu_v13_0_6 as facts
from ringup.autogen.structs import memory
from ringup.silicon.amd.common.parts import Board, Hub
from ringup.silicon.amd.smu import tables as smu_tables
from ringup.silicon.amd.smu.controller import CLIENT, MESSAGES, Handler, Smu, failed
from ringup.silicon.amd.smu.tables import PowerRow
from ringup.silicon.common.cells import Cells

# where hosts read the firmware's version over SMN
PUBLIC_SCRATCH_0 = 0x3B1_0090
# of the metrics table. UNKNOWN: metal's; amdgpu only passes it on
METRICS_VERSION = 5
MODE_1, MODE_2 = 1, 2  # arguments of GfxDriverReset: SMU_RESET_MODE_1 and 2 of amdgpu_smu.h
Q10 = 1 << 10  # fixed point
CLOCKS = {  # enum PPCLK_e, and the numbers of the power row
    facts.PPCLK_VCLK: smu.PPCLK_VCLK_0,
    facts.PPCLK_DCLK: smu.PPCLK_DCLK_0,
    facts.PPCLK_SOCCLK: smu.PPCLK_SOCCLK,
    facts.PPCLK_UCLK: smu.PPCLK_UCLK,
    facts.PPCLK_FCLK: smu.PPCLK_FCLK,
    facts.PPCLK_LCLK: smu.PPCLK_SOCCLK,  # GUESS: as fast
}
TABLES = {"Fclk": smu.PPCLK_FCLK, "Uclk": smu.PPCLK_UCLK, "Socclk": smu.PPCLK_SOCCLK, "Vclk": smu.PPCLK_VCLK_0,
          "Dclk": smu.PPCLK_DCLK_0, "Lclk": smu.PPCLK_SOCCLK}  # fmt: skip
NANOSECONDS_PER_TICK = 10  # of the metrics' time stamp


class InstinctSmu(Smu):
    """The firmware of one card."""

    def __init__(
        self,
        board: Board,
        cells: Cells,
        hub: Hub,
        row: PowerRow,
        *,
        busy_ns: Callable[[], int],
        on_mode1_reset: Callable[[], None],
        on_mode2_reset: Callable[[], None] | None = None,
    ) -> None:
        board.space.door(PUBLIC_SCRATCH_0, 4, lambda _: row.firmware_version, lambda address, value: None)
        super().__init__(
            board, cells, hub, row, busy_ns=busy_ns, on_mode1_reset=on_mode1_reset, on_mode2_reset=on_mode2_reset
        )
        self._run()

    def _run(self) -> None:
        self.allowed_features = self.power.features = self._features
        self._start(self._generation)

    def reset(self) -> None:
        """Start again: the board's own boot loads the firmware."""
        super().reset()
        self._run()

    def _all_features(self) -> int:
        return smu_tables.features(self.row.interface, smu_tables.INSTINCT_FEATURE_NAMES)

    def _board_tables(self) -> dict[int, bytes]:
        return {}

    # --- messages -----------------------------------------------------------------------------------------------
    def _clock(self, argument: int) -> tuple[int, int]:
        """Split `clock << 16 | value`, with the firmware's numbers of clocks."""
        clock, value = argument >> 16, argument & 0xFFFF
        if clock not in CLOCKS:
            raise failed(f"there is no clock {clock}")
        return CLOCKS[clock], value

    def _last_level(self, argument: int) -> int:
        """Return the frequency of a level; for level 0xff, the number of the last level."""
        clock, index = self._clock(argument)
        frequencies = self.row.frequencies[clock]
        if index == 0xFF:
            return len(frequencies) - 1
        return self._level(argument)

    def _graphics_limit(self, megahertz: int, upper: bool) -> None:
        lowest, highest = self.row.frequencies[smu.PPCLK_GFXCLK]
        if not lowest <= megahertz <= highest:
            raise failed(f"a graphics clock of {megahertz} MHz; it runs from {lowest} to {highest}")
        low, high = self.power.limits.soft.get(smu.PPCLK_GFXCLK, (0, 0))
        self.power.limits.soft[smu.PPCLK_GFXCLK] = (low, megahertz) if upper else (megahertz, high)

    def _driver_reset(self, mode: int) -> None:
        """Reset the card, or with mode 2 its engines. The answer to mode 2 comes behind it."""
        if mode == MODE_1:
            self._mode1(mode)
        elif mode == MODE_2 and self._on_mode2_reset is not None:
            self._on_mode2_reset()
        else:
            raise failed(f"there is no reset {mode}")

    def _export_metrics(self, argument: int) -> None:
        """Write the metrics to the driver's address."""
        self._metrics_counter += 1
        self._hub.write(0, self._driver_address(), self._metrics(), CLIENT)

    def _metrics(self) -> bytes:
        """Build the metrics. Power in W, temperatures in °C, frequencies in MHz, activity in percent, all with ten bits
        after the point.
        """
        power, row = self.power, self.row
        table = facts.MetricsTableX_t()
        table.AccumulationCounter = self._metrics_counter
        temperature = round(power.temperature * Q10)
        table.MaxSocketTemperature = temperature
        table.MaxVrTemperature, table.MaxHbmTemperature = temperature, temperature + 8 * Q10
        table.SocketPowerLimit, table.MaxSocketPowerLimit = power.power_limit * Q10, row.power_limit * Q10
        table.SocketPower = round(power.power * Q10)
        table.Timestamp = self.board.clock.now_ns // NANOSECONDS_PER_TICK
        table.SocketEnergyAcc = int(power.energy * 1_000_000 / 15.259)
        lowest, highest = row.frequencies[smu.PPCLK_GFXCLK]
        table.MinGfxclkFrequency, table.MaxGfxclkFrequency = lowest * Q10, highest * Q10
        table.GfxclkFrequencyLimit = power.bounds(smu.PPCLK_GFXCLK)[1] * Q10
        for core in range(len(table.GfxclkFrequency)):
            table.GfxclkFrequency[core] = power.frequency(smu.PPCLK_GFXCLK) * Q10
        table.UclkFrequency, table.FclkFrequency = (
            power.frequency(clock) * Q10 for clock in (smu.PPCLK_UCLK, smu.PPCLK_FCLK)
        )
        for name, clock in TABLES.items():
            for level, frequency in enumerate(row.frequencies[clock]):
                getattr(table, f"{name}FrequencyTable")[level] = frequency * Q10
        table.SocketGfxBusy = round(100 * power.activity * Q10)
        table.PCIeLinkSpeed, table.PCIeLinkWidth = row.pcie_generation, row.pcie_lanes
        table.XgmiWidth, table.XgmiBitrate = 16, 32  # AMD's data sheet: Infinity Fabric links of 16 lanes, 32 GT/s
        # GUESS: some number; a driver shows it as the card's own
        table.PublicSerialNumber_AID[0] = 0x0030_0A00_0000_0001
        return bytes(memory(table))


OWN: dict[str, Handler] = {
    "GetEnabledSmuFeaturesLow": lambda s, a: s.power.features & 0xFFFF_FFFF,
    "GetEnabledSmuFeaturesHigh": lambda s, a: s.power.features >> 32,
    "GetMetricsVersion": lambda s, a: METRICS_VERSION,
    "GetMetricsTable": lambda s, a: _own(s)._export_metrics(a),
    "GetDpmFreqByIndex": lambda s, a: _own(s)._last_level(a),
    "GetMinGfxDpmFreq": lambda s, a: s.row.frequencies[smu.PPCLK_GFXCLK][0],
    "GetMaxGfxDpmFreq": lambda s, a: s.row.frequencies[smu.PPCLK_GFXCLK][-1],
    "SetSoftMinGfxClk": lambda s, a: _own(s)._graphics_limit(a, upper=False),
    "SetSoftMaxGfxClk": lambda s, a: _own(s)._graphics_limit(a, upper=True),
    "GetCTFLimit": lambda s, a: s.row.hotspot_limit,
    "ReadThrottlerLimit": lambda s, a: s.row.hotspot_limit - 5,
    # no memory has an error
    "QueryValidMcaCount": lambda s, a: 0,
    "QueryValidMcaCeCount": lambda s, a: 0,
    "GfxDriverReset": lambda s, a: _own(s)._driver_reset(a),
}


def _own(controller: Smu) -> InstinctSmu:
    assert isinstance(controller, InstinctSmu)
    return controller


InstinctSmu.messages = MESSAGES | OWN
InstinctSmu.state_only = frozenset({  # accepted, without any effect that the model shows
    "SetToolsDramAddrHigh", "SetToolsDramAddrLow", "DramLogSetDramAddrHigh", "DramLogSetDramAddrLow", "DramLogSetDramSize",
    "SetSystemVirtualDramAddrHigh", "SetSystemVirtualDramAddrLow", "SetNumBadHbmPagesRetired", "DFCstateControl",
    "GmiPwrDnControl", "SetGmiPwrDnHyst", "EnableDeterminism", "DisableDeterminism", "GfxDriverResetRecovery",
    "PrepareForDriverUnload", "ClearMcaOnRead", "SelectPLPDMode", "RmaDueToBadPageThreshold", "SelectPstatePolicy",
})  # fmt: skip
