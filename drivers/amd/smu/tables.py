"""Tables that the power controller (SMU) writes into VRAM: the card's metrics, and its limits.

Bytes in, values with units out; no access to a card. Source: smu13_driver_if_v13_0_0.h and its siblings, SmuMetrics_t,
PPTable_t; smu_v13_0_0_pptable.h; amdgpu smu_v13_0_0_ppt.c, smu_v13_0_0_get_gpu_metrics and smu_v13_0_0_get_power_limit;
smu_v13_0_6_pmfw.h; smu_v13_0_6_ppt.c, smu_v13_0_6_get_gpu_metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, TypeVar

from ringup.drivers.amd.smu.rows import SmuRow
from ringup.firmware.stated import named

METRICS, MAY_HAVE_MOVED = "the table of metrics", "values of its tables may have moved"
V = TypeVar("V", "Metrics", "Limits")
MAX_MHZ, MAX_W = 10_000, 2_000  # bounds of ours, far above any card: what lies beyond is no clock and no power
MAX_BY_UNIT = {"_mhz": MAX_MHZ, "_w": MAX_W, "_c": 200, "_rpm": 30_000}
FRACTION_BITS = 10
BUSY_PERCENT = 15  # above it averages leave deep sleep out: SMU_13_0_0_BUSY_THRESHOLD, SMU_14_0_2_BUSY_THRESHOLD
PLANES = ("SVI_PLANE_GFX", "SVI_PLANE_VDD_GFX")  # the graphics core's supply, as 13 and as 14 call it


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of a card. Clocks in MHz, averages over about a second; temperatures in degrees Celsius; `throttled`:
    what lowers the clocks. What a card's firmware does not tell is 0.
    """

    gfx_clock_mhz: int
    memory_clock_mhz: int
    fabric_clock_mhz: int
    soc_clock_mhz: int
    average_gfx_clock_mhz: int
    average_memory_clock_mhz: int
    gfx_busy_percent: int
    memory_busy_percent: int
    power_w: int
    gfx_voltage_mv: int
    edge_temperature_c: int
    hotspot_temperature_c: int
    memory_temperature_c: int
    vr_gfx_temperature_c: int
    vr_soc_temperature_c: int
    vr_memory_temperature_c: int
    fan_rpm: int
    fan_percent: int
    pcie_generation: int
    pcie_lanes: int
    throttled: tuple[str, ...]
    counter: int
    serial: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a card: power in watts, temperatures in degrees Celsius at which clocks fall; the last one switches it
    off.
    """

    power_default_w: int
    power_min_w: int
    power_max_w: int
    edge_temperature_c: int
    hotspot_temperature_c: int
    memory_temperature_c: int
    shutdown_temperature_c: int
    fan_max_rpm: int
    fan_min_percent: int
    fan_stops_when_cool: bool
    base_clock_mhz: int
    game_clock_mhz: int
    boost_clock_mhz: int


def sifted(values: V, where: str) -> tuple[V, tuple[str, ...]]:
    """Return metrics or limits with 0, which means unknown, for each impossible number; and the values that those
    had.
    """
    doubts: list[str] = []
    changed: dict[str, Any] = {}
    for one in fields(values):
        most = next((most for unit, most in MAX_BY_UNIT.items() if one.name.endswith(unit)), None)
        value = getattr(values, one.name)
        if most is not None and not 0 <= value <= most:
            doubts.append(
                f"{one.name} of {where} is stated as {named(value, 16)}, {value} in decimal; valid are 0 to {most}"
            )
            changed[one.name] = 0
    return (replace(values, **changed) if changed else values), tuple(doubts)


def metrics_bytes(row: SmuRow) -> int:
    """Return the bytes of the table of metrics."""
    return int(getattr(row.module, row.metrics).SIZE)


def power_table(row: SmuRow) -> Any:
    """Return the struct of the combined power table: the driver's part, then the controller's (`smc_pptable`)."""
    name = row.facts.removeprefix("smu_v")
    return getattr(row.module, f"smu_{name}_powerplay_table")


def decode_metrics(row: SmuRow, data: bytes) -> Metrics:
    """Read a table of metrics."""
    if row.accelerator:
        return _of_accelerator(row, data)
    module = row.module
    raw = bytearray(data)
    # kept: the view below refers to its memory
    table = module.SmuMetricsExternal_t.view(raw)
    seen = table.SmuMetrics
    temperature, clock = seen.AvgTemperature, seen.CurrClock
    gfx_busy, memory_busy = seen.AverageGfxActivity > BUSY_PERCENT, seen.AverageUclkActivity > BUSY_PERCENT
    return Metrics(
        gfx_clock_mhz=clock[module.PPCLK_GFXCLK],
        memory_clock_mhz=clock[module.PPCLK_UCLK],
        fabric_clock_mhz=clock[module.PPCLK_FCLK],
        soc_clock_mhz=clock[module.PPCLK_SOCCLK],
        average_gfx_clock_mhz=seen.AverageGfxclkFrequencyPreDs if gfx_busy else seen.AverageGfxclkFrequencyPostDs,
        average_memory_clock_mhz=seen.AverageMemclkFrequencyPreDs if memory_busy else seen.AverageMemclkFrequencyPostDs,
        gfx_busy_percent=seen.AverageGfxActivity,
        memory_busy_percent=seen.AverageUclkActivity,
        power_w=seen.AverageSocketPower,
        gfx_voltage_mv=seen.AvgVoltage[_plane(module)],
        edge_temperature_c=temperature[module.TEMP_EDGE],
        hotspot_temperature_c=temperature[module.TEMP_HOTSPOT],
        memory_temperature_c=temperature[module.TEMP_MEM],
        vr_gfx_temperature_c=temperature[module.TEMP_VR_GFX],
        vr_soc_temperature_c=temperature[module.TEMP_VR_SOC],
        vr_memory_temperature_c=max(temperature[module.TEMP_VR_MEM0], temperature[module.TEMP_VR_MEM1]),
        fan_rpm=seen.AvgFanRpm,
        fan_percent=seen.AvgFanPwm,
        pcie_generation=seen.PcieRate,
        pcie_lanes=seen.PcieWidth,
        throttled=_throttled(module, seen.ThrottlingPercentage),
        counter=seen.MetricsCounter,
        serial=seen.PublicSerialNumberUpper << 32 | seen.PublicSerialNumberLower,
    )


def rounded(fixed: int) -> int:
    """Return a number of an accelerator's tables, which has ten bits of fraction. Source: SMUQ10_ROUND."""
    return fixed + (1 << FRACTION_BITS - 1) >> FRACTION_BITS


def _of_accelerator(row: SmuRow, data: bytes) -> Metrics:
    """Read a table of metrics of a card of several dies: of what dies have each, the highest counts. The table says
    nothing of fans, of edges and of the graphics core's voltage, and no average of a clock.
    """
    raw = bytearray(data)
    # kept: the view refers to its memory
    seen = getattr(row.module, row.metrics).view(raw)
    gfx = max(rounded(clock) for clock in seen.GfxclkFrequency)
    memory = rounded(seen.UclkFrequency)
    return Metrics(
        gfx_clock_mhz=gfx,
        memory_clock_mhz=memory,
        fabric_clock_mhz=rounded(seen.FclkFrequency),
        soc_clock_mhz=max(rounded(clock) for clock in seen.SocclkFrequency),
        average_gfx_clock_mhz=gfx,
        average_memory_clock_mhz=memory,
        gfx_busy_percent=rounded(seen.SocketGfxBusy),
        memory_busy_percent=rounded(seen.DramBandwidthUtilization),
        power_w=rounded(seen.SocketPower),
        gfx_voltage_mv=0,
        edge_temperature_c=0,
        hotspot_temperature_c=rounded(seen.MaxSocketTemperature),
        memory_temperature_c=rounded(seen.MaxHbmTemperature),
        vr_gfx_temperature_c=rounded(seen.MaxVrTemperature),
        vr_soc_temperature_c=rounded(seen.MaxVrTemperature),
        vr_memory_temperature_c=rounded(seen.MaxVrTemperature),
        fan_rpm=0,
        fan_percent=0,
        pcie_generation=seen.PCIeLinkSpeed,
        pcie_lanes=seen.PCIeLinkWidth,
        # the table only counts how long each limit has held since the start
        throttled=(),
        counter=seen.AccumulationCounter,
        serial=seen.PublicSerialNumber_AID[0],
    )


def decode_limits(row: SmuRow, data: bytes) -> Limits:
    """Read a combined power table. The range of power is what the controller takes without overclocking."""
    module = row.module
    raw = bytearray(data)
    # kept: the views below refer to its memory
    table = power_table(row).view(raw)
    sku = table.smc_pptable.SkuTable
    # 14 moved what a vendor sets
    board = table.smc_pptable.CustomSkuTable if hasattr(module, "CustomSkuTable_t") else sku
    default = board.SocketPowerLimitAc[module.PPT_THROTTLER_PPT0]
    message = sku.MsgLimits.Power[module.PPT_THROTTLER_PPT0][module.POWER_SOURCE_AC]
    clocks, temperature = sku.DriverReportedClocks, board.TemperatureLimit
    return Limits(
        power_default_w=default,
        power_min_w=min(default, message) * (100 - _lower_percent(module, table)) // 100,
        power_max_w=message,
        edge_temperature_c=temperature[module.TEMP_EDGE],
        hotspot_temperature_c=temperature[module.TEMP_HOTSPOT],
        memory_temperature_c=temperature[module.TEMP_MEM],
        shutdown_temperature_c=table.software_shutdown_temp,
        fan_max_rpm=board.FanMaximumRpm,
        fan_min_percent=board.FanPwmMin,
        fan_stops_when_cool=bool(board.FanZeroRpmEnable),
        base_clock_mhz=clocks.BaseClockAc,
        game_clock_mhz=clocks.GameClockAc,
        boost_clock_mhz=clocks.BoostClockAc,
    )


def with_board(row: SmuRow, data: bytes, board: bytes) -> bytes:
    """Return the controller's part of a combined power table with the board's part of the VBIOS (`smc_dpm_info` behind
    its header) in place.
    """
    table = power_table(row)
    start = table.offset_of("smc_pptable")
    part = bytearray(data[start : start + row.module.PPTable_t.SIZE])
    at, size = row.module.PPTable_t.offset_of("BoardTable"), row.module.BoardTable_t.SIZE
    part[at : at + size] = board[:size]
    return bytes(part)


def _plane(module: ModuleType) -> int:
    return next(int(value) for name in PLANES if (value := getattr(module, name, None)) is not None)


def _throttled(module: ModuleType, percentages: Any) -> tuple[str, ...]:
    """Name what throttled in the last second: `temp_hotspot`, `ppt0`, `tdc_gfx`…"""
    names = {
        value: name.removeprefix("THROTTLER_").removesuffix("_BIT").lower()
        for name, value in vars(module).items()
        if name.startswith("THROTTLER_") and name.endswith("_BIT")
    }
    return tuple(names[bit] for bit, percent in enumerate(percentages) if percent and bit in names)


def _lower_percent(module: ModuleType, table: Any) -> int:
    """Return by how much the power limit may be set below the default, percent."""
    sku = table.smc_pptable.SkuTable
    if not sku.OverDriveLimitsBasicMax.FeatureCtrlMask >> module.PP_OD_FEATURE_PPT_BIT & 1:
        return 0
    setting = getattr(
        module, "SMU_13_0_0_ODSETTING_POWERPERCENTAGE", getattr(module, "SMU_13_0_7_ODSETTING_POWERPERCENTAGE", None)
    )
    if setting is not None:
        return int(table.overdrive_table.min[setting])
    return abs(int(sku.OverDriveLimitsBasicMin.Ppt))
