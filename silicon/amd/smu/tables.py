"""The tables that the SMU exchanges with its driver: power-play tables and metrics of a board, built from one row of
facts.

Source: smu13_driver_if_v13_0_0.h and _7.h (layouts), smu_v13_0_0_pptable.h and _7 (the driver's part at the start of
the combo table, the same in both except for its name). Features, clocks, messages and tables have the same numbers in
both; layouts differ. Clocks and limits of a Radeon RX 7900 XTX are those that owners read from sysfs; those of the
other cards are the advertised ones. Where none is public they are plausible and marked as guesses.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

from ringup.autogen.amd import smu_v13_0_0 as smu
from ringup.autogen.amd import smu_v13_0_7
from ringup.autogen.structs import memory

DEBUG_TEST = 1
# as for 13.0.10; drivers of 13.0.0 send it too, although its header calls it GetDebugData
DEBUG_MODE1_RESET = 2
# in PcieLaneCount; smu_v13_0_0_ppt.c, print_clk_levels
LANE_CODES = {8: 4, 16: 6}
# sizeof(struct smu_13_0_0_powerplay_table), gcc
COMBO_BYTES = 4804
COMBO_PPTABLE_AT, COMBO_OVERDRIVE_AT = 832, 211
OVERDRIVE_CAPS_AT, OVERDRIVE_MAX_AT, OVERDRIVE_MIN_AT = 12, 44, 300  # within struct smu_13_0_0_overdrive_table
CAP_POWER_LIMIT, SETTING_POWER_PERCENTAGE = 2, 4


@dataclass(frozen=True, slots=True)
class PowerRow:
    """The parameters of a board's power management. Frequencies in MHz by clock, lowest first; power in W, temperatures
    in °C.
    """

    frequencies: dict[int, tuple[int, ...]]
    # clocks that can run at any frequency between their ends
    fine_grained: frozenset[int]
    power_limit: int
    # how far below and above a driver may set it
    power_limit_percent: tuple[int, int]
    idle_power: float  # with all saving features active
    # added while the graphics core may not power off
    awake_power: float
    # added while idle at the highest graphics clock
    clock_power: float
    memory_clock_power: float  # added at the highest memory clock
    no_features_power: float  # added without any saving feature
    edge_limit: int
    hotspot_limit: int
    memory_limit: int
    ambient: float
    degrees_per_watt: float  # of the edge sensor in steady state
    thermal_seconds: float  # time constant of its approach
    fan_rpm: tuple[int, int]
    advertised: tuple[int, int, int]  # base, game and boost clock, MHz
    pcie_lanes: int
    interface_version: int
    firmware_version: int
    interface: Any = smu  # the module of the firmware's tables
    # messages of this generation that this firmware lacks
    lacks: frozenset[int] = frozenset()
    # messages of the second mailbox; drivers use no others there
    debug_messages: frozenset[int] = frozenset()
    # where hosts read MP1_FIRMWARE_FLAGS over SMN: smnMP1_FIRMWARE_FLAGS
    flags_address: int = 0x3B1_0024


NAVI31 = PowerRow(
    frequencies={
        smu.PPCLK_GFXCLK: (500, 2482),
        smu.PPCLK_SOCCLK: (500, 643, 750, 858, 948, 1059, 1125, 1200),
        smu.PPCLK_UCLK: (96, 456, 772, 1249),
        smu.PPCLK_FCLK: (500, 650, 850, 1100, 1300, 1550, 1750, 2000),  # GUESS: the steps between the ends
        smu.PPCLK_DCLK_0: (500, 2000),
        smu.PPCLK_VCLK_0: (500, 2000),
        smu.PPCLK_DCLK_1: (500, 2000),
        smu.PPCLK_VCLK_1: (500, 2000),
        smu.PPCLK_DISPCLK: (487, 1950),
        smu.PPCLK_DPPCLK: (487, 1950),
        smu.PPCLK_DPREFCLK: (716,),
        smu.PPCLK_DCFCLK: (500, 1564),
        smu.PPCLK_DTBCLK: (1564,),
    },
    fine_grained=frozenset({smu.PPCLK_GFXCLK}),
    power_limit=303,  # PPT of the chip; the board takes 355
    power_limit_percent=(10, 15),
    idle_power=12.0,
    awake_power=14.0,
    clock_power=45.0,
    memory_clock_power=30.0,
    no_features_power=25.0,
    edge_limit=100,
    hotspot_limit=110,
    memory_limit=108,
    ambient=27.0,
    degrees_per_watt=0.13,
    thermal_seconds=12.0,
    fan_rpm=(0, 3100),
    advertised=(1855, 2269, 2499),
    pcie_lanes=16,
    interface_version=smu.SMU13_0_0_DRIVER_IF_VERSION,
    firmware_version=0x004E_8000,
    debug_messages=frozenset({DEBUG_TEST, DEBUG_MODE1_RESET}),
)
# MP1 13.0.10 has the tables and messages of 13.0.0 (smu_v13_0_0_ppt.c serves both). GUESS: all except the advertised
# clocks and the memory's
NAVI32 = replace(
    NAVI31,
    # the memory runs at 19.5 Gbit/s per pin
    frequencies={
        **NAVI31.frequencies,
        smu.PPCLK_GFXCLK: (500, 2430),
        smu.PPCLK_UCLK: (96, 456, 772, 1218),
    },
    power_limit=212,
    degrees_per_watt=0.19,
    advertised=(1295, 2124, 2430),
    firmware_version=0x0050_5300,
)
# GUESS: all except the advertised clocks, the memory's and the lanes. No public driver uses a second mailbox of 13.0.7
NAVI33 = replace(
    NAVI31,
    # the memory runs at 18 Gbit/s per pin
    frequencies={
        **NAVI31.frequencies,
        smu.PPCLK_GFXCLK: (500, 2655),
        smu.PPCLK_UCLK: (96, 456, 772, 1124),
    },
    power_limit=145,
    idle_power=6.0,
    awake_power=8.0,
    clock_power=25.0,
    memory_clock_power=12.0,
    no_features_power=12.0,
    degrees_per_watt=0.27,
    advertised=(1720, 2250, 2655),
    pcie_lanes=8,
    interface_version=smu_v13_0_7.SMU13_0_7_DRIVER_IF_VERSION,
    firmware_version=0x0052_5C00,
    flags_address=0x3B1_0028,  # smnMP1_FIRMWARE_FLAGS_SMU_13_0_7 of smu_v13_0_7_ppt.c
    interface=smu_v13_0_7,
    # smu_v13_0_7_ppsmc.h
    lacks=frozenset({smu.PPSMC_MSG_DALNotPresent, smu.PPSMC_MSG_Mode2Reset, smu.PPSMC_MSG_GetDebugData}),
    debug_messages=frozenset(),
)
TABLE_OF_CLOCK = {
    smu.PPCLK_GFXCLK: "FreqTableGfx", smu.PPCLK_SOCCLK: "FreqTableSocclk", smu.PPCLK_UCLK: "FreqTableUclk", smu.PPCLK_FCLK: "FreqTableFclk",
    smu.PPCLK_VCLK_0: "FreqTableVclk", smu.PPCLK_DCLK_0: "FreqTableDclk", smu.PPCLK_DISPCLK: "FreqTableDispclk",
    smu.PPCLK_DPPCLK: "FreqTableDppClk", smu.PPCLK_DPREFCLK: "FreqTableDprefclk", smu.PPCLK_DCFCLK: "FreqTableDcfclk",
    smu.PPCLK_DTBCLK: "FreqTableDtbclk",
}  # fmt: skip


def pptable(row: PowerRow) -> bytes:
    """Build the board's power-play table."""
    table = row.interface.PPTable_t()
    sku = table.SkuTable
    sku.Version = row.interface.PPTABLE_VERSION
    sku.FeaturesToRun[0], sku.FeaturesToRun[1] = FEATURES & 0xFFFF_FFFF, FEATURES >> 32
    for throttler in range(smu.PPT_THROTTLER_COUNT):
        sku.SocketPowerLimitAc[throttler] = sku.SocketPowerLimitDc[throttler] = row.power_limit
        for source in range(2):
            sku.MsgLimits.Power[throttler][source] = row.power_limit
    below, above = row.power_limit_percent
    for bound, percent in ((sku.OverDriveLimitsMin, -below), (sku.OverDriveLimitsBasicMax, above)):
        bound.FeatureCtrlMask, bound.Ppt = 1 << smu.PP_OD_FEATURE_PPT_BIT, percent
    limits = {smu.TEMP_EDGE: row.edge_limit, smu.TEMP_MEM: row.memory_limit}
    for sensor in range(smu.TEMP_COUNT):
        sku.TemperatureLimit[sensor] = limits.get(sensor, row.hotspot_limit)
        sku.FwCtfLimit[sensor] = sku.TemperatureLimit[sensor] + 5
    for clock, name in TABLE_OF_CLOCK.items():
        for level, frequency in enumerate(row.frequencies[clock]):
            getattr(sku, name)[level] = frequency
    for clock, frequencies in row.frequencies.items():
        sku.DpmDescriptor[clock].NumDiscreteLevels = len(frequencies)
        sku.DpmDescriptor[clock].SnapToDiscrete = int(clock not in row.fine_grained)
        sku.DcModeMaxFreq[clock] = frequencies[-1]
    sku.PcieGenSpeed[0], sku.PcieGenSpeed[1], sku.PcieGenSpeed[2] = 0, 2, 3  # 2.5, 8 and 16 GT/s
    for level in range(smu.NUM_LINK_LEVELS):
        sku.PcieLaneCount[level] = LANE_CODES[row.pcie_lanes]
    sku.FanMaximumRpm = row.fan_rpm[1]
    reported = sku.DriverReportedClocks
    reported.BaseClockAc, reported.GameClockAc, reported.BoostClockAc = row.advertised
    return bytes(memory(table))


def combo(row: PowerRow, table: bytes) -> bytes:
    """Return the combo table: the driver's part (overdrive limits, thermal controller, shutdown temperature), then the
    power-play table.
    """
    data = bytearray(COMBO_BYTES)
    struct.pack_into("<HBB", data, 0, COMBO_BYTES, 15, 0)
    struct.pack_into("<BBH", data, 4, 2, 0, COMBO_PPTABLE_AT)
    struct.pack_into("<H", data, 16, 0x80)  # format_id
    # SMU_13_0_0_PP_THERMALCONTROLLER_NAVI21
    data[22] = 28
    struct.pack_into("<H", data, 29, row.hotspot_limit + 8)
    below, above = row.power_limit_percent
    # SMU_13_0_0_PP_OVERDRIVE_VERSION
    data[COMBO_OVERDRIVE_AT] = 0x83
    data[COMBO_OVERDRIVE_AT + OVERDRIVE_CAPS_AT + CAP_POWER_LIMIT] = 1
    struct.pack_into("<I", data, COMBO_OVERDRIVE_AT + OVERDRIVE_MAX_AT + 4 * SETTING_POWER_PERCENTAGE, above)
    struct.pack_into("<I", data, COMBO_OVERDRIVE_AT + OVERDRIVE_MIN_AT + 4 * SETTING_POWER_PERCENTAGE, below)
    data[COMBO_PPTABLE_AT : COMBO_PPTABLE_AT + len(table)] = table
    return bytes(data)


FEATURES = sum(  # features of this firmware; the others need a display, a laptop or a debugger
    1 << bit
    for bit in (
        smu.FEATURE_FW_DATA_READ_BIT, smu.FEATURE_DPM_GFXCLK_BIT, smu.FEATURE_DPM_UCLK_BIT, smu.FEATURE_DPM_FCLK_BIT,
        smu.FEATURE_DPM_SOCCLK_BIT, smu.FEATURE_DPM_LINK_BIT, smu.FEATURE_DS_GFXCLK_BIT, smu.FEATURE_DS_SOCCLK_BIT,
        smu.FEATURE_DS_FCLK_BIT, smu.FEATURE_DS_LCLK_BIT, smu.FEATURE_DS_UCLK_BIT, smu.FEATURE_GFX_ULV_BIT, smu.FEATURE_FW_DSTATE_BIT,
        smu.FEATURE_GFXOFF_BIT, smu.FEATURE_BACO_BIT, smu.FEATURE_MM_DPM_BIT, smu.FEATURE_THROTTLERS_BIT, smu.FEATURE_FW_CTF_BIT,
        smu.FEATURE_FAN_CONTROL_BIT, smu.FEATURE_GFX_IMU_BIT, smu.FEATURE_SOC_CG_BIT, smu.FEATURE_DF_CSTATE_BIT,
        smu.FEATURE_MEM_TEMP_READ_BIT, smu.FEATURE_ATHUB_MMHUB_PG_BIT,
    )
)  # fmt: skip
SAVING = sum(
    1 << bit
    for bit in (
        smu.FEATURE_DS_GFXCLK_BIT,
        smu.FEATURE_DS_SOCCLK_BIT,
        smu.FEATURE_DS_FCLK_BIT,
        smu.FEATURE_FW_DSTATE_BIT,
    )
)
