"""The tables that the SMU exchanges with its driver: power-play tables and metrics of a board, built from one row of
facts.

Source: smu13_driver_if_v13_0_0.h, _7.h and smu14_driver_if_v14_0.h (layouts), smu_v13_0_0_pptable.h, _7 and
smu_v14_0_2_pptable.h (the driver's part at the start of the combo table, the same in the first two except for its
name). Features, clocks and messages have numbers of their own in each generation; layouts differ. Clocks and limits of
a Radeon RX 7900 XTX are those that owners read from sysfs; those of the other cards are the advertised ones. Where none
is public they are plausible and marked as guesses.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringup.autogen.amd import smu_v13_0_0 as smu
from ringup.autogen.amd import smu_v13_0_6, smu_v13_0_7, smu_v14_0_2
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
    interface: Any = smu  # the module of the firmware's tables, messages, features and clocks
    # of the link, PCI Express
    pcie_generation: int = 4
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
    debug_messages=frozenset(),
)
# GUESS: all except the advertised clocks and power limits, and the memory's clocks (AMD's data sheets). The memory runs
# at 20 Gbit/s per pin
NAVI48 = replace(
    NAVI31,
    frequencies={
        smu_v14_0_2.PPCLK_GFXCLK: (500, 2970),
        smu_v14_0_2.PPCLK_SOCCLK: (500, 643, 750, 858, 948, 1059, 1125, 1200),
        smu_v14_0_2.PPCLK_UCLK: (96, 456, 772, 1258),
        smu_v14_0_2.PPCLK_FCLK: (500, 650, 850, 1100, 1300, 1550, 1750, 2000),
        smu_v14_0_2.PPCLK_DCLK_0: (500, 2000),
        smu_v14_0_2.PPCLK_VCLK_0: (500, 2000),
        smu_v14_0_2.PPCLK_DISPCLK: (487, 1950),
        smu_v14_0_2.PPCLK_DPPCLK: (487, 1950),
        smu_v14_0_2.PPCLK_DPREFCLK: (716,),
        smu_v14_0_2.PPCLK_DCFCLK: (500, 1564),
        smu_v14_0_2.PPCLK_DTBCLK: (1564,),
    },
    power_limit=304,
    degrees_per_watt=0.13,
    advertised=(1660, 2400, 2970),
    interface_version=0x2E,  # SMU14_DRIVER_IF_VERSION_SMU_V14_0_2 of smu_v14_0.h
    firmware_version=0x0068_4400,  # of Debian's smu_14_0_3.bin
    interface=smu_v14_0_2,
    pcie_generation=5,
)
NAVI44 = replace(
    NAVI48,
    frequencies={
        **NAVI48.frequencies,
        smu_v14_0_2.PPCLK_GFXCLK: (500, 3130),
    },
    power_limit=160,
    idle_power=6.0,
    awake_power=8.0,
    clock_power=25.0,
    memory_clock_power=12.0,
    no_features_power=12.0,
    degrees_per_watt=0.24,
    advertised=(1700, 2530, 3130),
)
# AMD's data sheet of the MI300X: board power, peak engine clock, the memory's 5.2 Gbit/s per pin. GUESS: the rest.
# Clocks have 13.0.0's numbers here; 13.0.6 has none for the graphics clock
MI300X = replace(
    NAVI31,
    frequencies={
        smu.PPCLK_GFXCLK: (132, 2100),
        smu.PPCLK_SOCCLK: (800, 900, 1000, 1143),
        smu.PPCLK_UCLK: (900, 1100, 1200, 1300),
        smu.PPCLK_FCLK: (1200, 1600, 1900, 2000),
        smu.PPCLK_DCLK_0: (914, 1100, 1300, 1500),
        smu.PPCLK_VCLK_0: (1143, 1300, 1500, 1800),
    },
    power_limit=750,
    power_limit_percent=(100, 0),
    idle_power=110.0,
    awake_power=20.0,
    degrees_per_watt=0.06,
    fan_rpm=(0, 0),
    advertised=(1300, 2100, 2100),
    interface_version=smu_v13_0_6.SMU13_0_6_DRIVER_IF_VERSION,
    firmware_version=0x0055_7900,  # UNKNOWN: boards'. From 0x557300 on the PSP takes the P2S table
    interface=smu_v13_0_6,
    pcie_generation=5,
    debug_messages=frozenset(),
    flags_address=0x3B1_0028,
)
TABLE_OF_CLOCK = {
    "GFXCLK": "FreqTableGfx", "SOCCLK": "FreqTableSocclk", "UCLK": "FreqTableUclk", "FCLK": "FreqTableFclk",
    "VCLK_0": "FreqTableVclk", "DCLK_0": "FreqTableDclk", "DISPCLK": "FreqTableDispclk", "DPPCLK": "FreqTableDppClk",
    "DPREFCLK": "FreqTableDprefclk", "DCFCLK": "FreqTableDcfclk", "DTBCLK": "FreqTableDtbclk",
}  # fmt: skip


def pptable(row: PowerRow) -> bytes:
    """Build the board's power-play table. Since 14.0.2 parts of the SKU's table are tables of their own."""
    facts = row.interface
    table = facts.PPTable_t()
    sku = table.SkuTable
    custom, settings = getattr(table, "CustomSkuTable", sku), getattr(table, "PFE_Settings", sku)
    sku.Version = settings.Version = facts.PPTABLE_VERSION
    enabled = features(facts)
    settings.FeaturesToRun[0], settings.FeaturesToRun[1] = enabled & 0xFFFF_FFFF, enabled >> 32
    for throttler in range(facts.PPT_THROTTLER_COUNT):
        custom.SocketPowerLimitAc[throttler] = custom.SocketPowerLimitDc[throttler] = row.power_limit
        for source in range(2):
            sku.MsgLimits.Power[throttler][source] = row.power_limit
    below, above = row.power_limit_percent
    lowest = sku.OverDriveLimitsMin if hasattr(sku, "OverDriveLimitsMin") else sku.OverDriveLimitsBasicMin
    for bound, percent in ((lowest, -below), (sku.OverDriveLimitsBasicMax, above)):
        bound.FeatureCtrlMask, bound.Ppt = 1 << facts.PP_OD_FEATURE_PPT_BIT, percent
    limits = {facts.TEMP_EDGE: row.edge_limit, facts.TEMP_MEM: row.memory_limit}
    for sensor in range(facts.TEMP_COUNT):
        custom.TemperatureLimit[sensor] = limits.get(sensor, row.hotspot_limit)
        custom.FwCtfLimit[sensor] = custom.TemperatureLimit[sensor] + 5
    for clock, name in TABLE_OF_CLOCK.items():
        for level, frequency in enumerate(row.frequencies[getattr(facts, f"PPCLK_{clock}")]):
            getattr(sku, name)[level] = frequency
    for number, frequencies in row.frequencies.items():
        sku.DpmDescriptor[number].NumDiscreteLevels = len(frequencies)
        sku.DpmDescriptor[number].SnapToDiscrete = int(number not in row.fine_grained)
        sku.DcModeMaxFreq[number] = frequencies[-1]
    # 2.5 and 8 GT/s, and the link's own
    for level, generation in enumerate((1, 3, row.pcie_generation)):
        sku.PcieGenSpeed[level] = generation - 1
    for level in range(facts.NUM_LINK_LEVELS):
        sku.PcieLaneCount[level] = LANE_CODES[row.pcie_lanes]
    custom.FanMaximumRpm = row.fan_rpm[1]
    reported = sku.DriverReportedClocks
    reported.BaseClockAc, reported.GameClockAc, reported.BoostClockAc = row.advertised
    return bytes(memory(table))


def combo(row: PowerRow, table: bytes) -> bytes:
    """Return the combo table: the driver's part (overdrive limits, thermal controller, shutdown temperature), then the
    power-play table.
    """
    if row.interface is smu_v14_0_2:
        return _combo_v14(row, table)
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


def _combo_v14(row: PowerRow, table: bytes) -> bytes:
    """Return the combo table of 14.0.2 and 14.0.3. GUESS: the header's revisions."""
    layout = smu_v14_0_2.smu_14_0_2_powerplay_table
    whole = layout()
    at = layout.offset_of("smc_pptable")
    whole.header.structuresize, whole.header.format_revision = layout.SIZE, smu_v14_0_2.SMU_14_0_2_TABLE_FORMAT_REVISION
    whole.table_revision, whole.pptable_source = 2, 0
    whole.pmfw_pptable_start_offset, whole.pmfw_pptable_size = at, len(table)
    whole.software_shutdown_temp = row.hotspot_limit + 8
    whole.overdrive_table.revision = smu_v14_0_2.SMU_14_0_2_PP_OVERDRIVE_VERSION
    data = bytearray(memory(whole))
    data[at : at + len(table)] = table
    return bytes(data)


# features of this firmware; the others need a display, a laptop or a debugger
FEATURE_NAMES = (
    "FW_DATA_READ", "DPM_GFXCLK", "DPM_UCLK", "DPM_FCLK", "DPM_SOCCLK", "DPM_LINK", "DS_GFXCLK", "DS_SOCCLK", "DS_FCLK",
    "DS_LCLK", "DS_UCLK", "GFX_ULV", "FW_DSTATE", "GFXOFF", "BACO", "MM_DPM", "THROTTLERS", "FW_CTF", "FAN_CONTROL",
    "GFX_IMU", "SOC_CG", "DF_CSTATE", "MEM_TEMP_READ", "ATHUB_MMHUB_PG",
)  # fmt: skip
# of 13.0.6. GUESS: which of them run
INSTINCT_FEATURE_NAMES = (
    "DATA_CALCULATION", "DPM_FCLK", "DPM_GFXCLK", "DPM_LCLK", "DPM_SOCCLK", "DPM_UCLK", "DPM_XGMI", "DS_FCLK", "DS_GFXCLK",
    "DS_LCLK", "DS_SOCCLK", "DF_CSTATE", "PPT", "TDC", "THERMAL", "FW_CTF", "SMU_CG",
)  # fmt: skip
SAVING_NAMES = ("DS_GFXCLK", "DS_SOCCLK", "DS_FCLK", "FW_DSTATE")
INSTINCT_SAVING_NAMES = ("DS_GFXCLK", "DS_SOCCLK", "DS_FCLK", "DF_CSTATE")


def features(interface: Any, names: Sequence[str] = FEATURE_NAMES) -> int:
    """Return the mask of features, by the numbers of a firmware's interface. Some headers' names lack the ending."""
    end = "" if hasattr(interface, f"FEATURE_{names[0]}") else "_BIT"
    return sum(1 << getattr(interface, f"FEATURE_{name}{end}") for name in names)
