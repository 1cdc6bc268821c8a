"""The power controller's tables as bytes. gcc confirms the offsets from the headers; the decoder returns values with
units.
"""

import struct

import pytest

from ringup.drivers.amd.smu.rows import ROWS, row
from ringup.drivers.amd.smu.tables import decode_limits, decode_metrics, metrics_bytes, with_board
from ringup.errors import NotSupported

# Byte offsets in SmuMetrics_t of smu13_driver_if_v13_0_0.h, v13_0_7.h and smu14_driver_if_v14_0.h: clocks, averages
# before and after deep sleep, counter, voltage, activity, power, temperatures (hot spot and memory), PCIe, fan,
# throttling of the hot spot, serial number.
PLACES = {
    (13, 0, 0): {
        "pre": 54,
        "post": 56,
        "counter": 80,
        "voltage": 84,
        "busy": 104,
        "power": 116,
        "edge": 120,
        "rate": 148,
        "rpm": 152,
        "serial": 236,
    },
    (13, 0, 7): {
        "pre": 54,
        "post": 56,
        "counter": 80,
        "voltage": 84,
        "busy": 104,
        "power": 116,
        "edge": 120,
        "rate": 148,
        "rpm": 152,
        "serial": 232,
    },
    (14, 0, 2): {
        "pre": 46,
        "post": 48,
        "counter": 104,
        "voltage": 108,
        "busy": 124,
        "power": 136,
        "edge": 140,
        "rate": 166,
        "rpm": 170,
        "serial": 252,
    },
}
THROTTLING = {(13, 0, 0): 154, (13, 0, 7): 154, (14, 0, 2): 172}


def table(version, busy=60):
    at = PLACES[version]
    raw = bytearray(metrics_bytes(row(version)))
    # PPCLK_GFXCLK, SOCCLK, UCLK, FCLK
    struct.pack_into("<4I", raw, 0, 2345, 1100, 1249, 2000)
    struct.pack_into("<2H", raw, at["pre"], 2400, 700)
    struct.pack_into("<I", raw, at["counter"], 77)
    struct.pack_into("<H", raw, at["voltage"], 812)
    struct.pack_into("<2H", raw, at["busy"], busy, 9)
    struct.pack_into("<H", raw, at["power"], 287)
    # TEMP_EDGE, HOTSPOT, two more hot spots, MEM
    struct.pack_into("<5H", raw, at["edge"], 61, 83, 0, 0, 78)
    struct.pack_into("<3B", raw, at["rate"], 4, 16, 43)
    struct.pack_into("<H", raw, at["rpm"], 1450)
    raw[THROTTLING[version] + 1] = 30  # THROTTLER_TEMP_HOTSPOT_BIT
    struct.pack_into("<2I", raw, at["serial"], 0x89ABCDEF, 0x1234567)
    return bytes(raw)


@pytest.mark.parametrize("version", PLACES)
def test_metrics_have_units(version):
    seen = decode_metrics(row(version), table(version))
    assert (seen.gfx_clock_mhz, seen.soc_clock_mhz, seen.memory_clock_mhz, seen.fabric_clock_mhz) == (
        2345,
        1100,
        1249,
        2000,
    )
    assert (seen.power_w, seen.gfx_voltage_mv, seen.gfx_busy_percent, seen.memory_busy_percent) == (287, 812, 60, 9)
    assert (seen.edge_temperature_c, seen.hotspot_temperature_c, seen.memory_temperature_c) == (61, 83, 78)
    assert (seen.pcie_generation, seen.pcie_lanes, seen.fan_percent, seen.fan_rpm) == (4, 16, 43, 1450)
    assert seen.throttled == ("temp_hotspot",)
    assert (seen.counter, seen.serial) == (77, 0x123456789ABCDEF)


@pytest.mark.parametrize("version", PLACES)
@pytest.mark.parametrize(("busy", "clock"), [(16, 2400), (15, 700), (0, 700)])  # SMU_13_0_0_BUSY_THRESHOLD 15
def test_an_idle_cards_average_counts_deep_sleep(version, busy, clock):
    assert decode_metrics(row(version), table(version, busy)).average_gfx_clock_mhz == clock


def test_limits_of_13_0_0_come_from_the_combined_table():
    one = row((13, 0, 0))
    module = one.module
    raw = bytearray(module.smu_13_0_0_powerplay_table.SIZE)
    view = module.smu_13_0_0_powerplay_table.view(raw)
    view.software_shutdown_temp = 118
    # SMU_13_0_0_ODSETTING_POWERPERCENTAGE
    view.overdrive_table.min[4] = 10
    sku = view.smc_pptable.SkuTable
    sku.SocketPowerLimitAc[0], sku.MsgLimits.Power[0][0] = 339, 355
    sku.OverDriveLimitsBasicMax.FeatureCtrlMask = 1 << 2  # PP_OD_FEATURE_PPT_BIT
    sku.TemperatureLimit[0], sku.TemperatureLimit[1], sku.TemperatureLimit[4] = 100, 110, 108
    sku.FanMaximumRpm, sku.FanPwmMin, sku.FanZeroRpmEnable = 3300, 15, 1
    clocks = sku.DriverReportedClocks
    clocks.BaseClockAc, clocks.GameClockAc, clocks.BoostClockAc = 1929, 2365, 2615
    limits = decode_limits(one, bytes(raw))
    assert (limits.power_default_w, limits.power_max_w, limits.power_min_w) == (339, 355, 305)  # 339 minus 10 %
    assert (limits.edge_temperature_c, limits.hotspot_temperature_c, limits.memory_temperature_c) == (100, 110, 108)
    assert (limits.shutdown_temperature_c, limits.fan_max_rpm, limits.fan_min_percent) == (118, 3300, 15)
    assert limits.fan_stops_when_cool
    assert (limits.base_clock_mhz, limits.game_clock_mhz, limits.boost_clock_mhz) == (1929, 2365, 2615)
    sku.OverDriveLimitsBasicMax.FeatureCtrlMask = 0
    # The limit may not be lowered.
    assert decode_limits(one, bytes(raw)).power_min_w == 339


def test_limits_of_14_0_2_come_from_the_vendors_part():
    one = row((14, 0, 2))
    module = one.module
    raw = bytearray(module.smu_14_0_2_powerplay_table.SIZE)
    view = module.smu_14_0_2_powerplay_table.view(raw)
    sku, vendor = view.smc_pptable.SkuTable, view.smc_pptable.CustomSkuTable
    vendor.SocketPowerLimitAc[0], sku.MsgLimits.Power[0][0] = 304, 304
    sku.OverDriveLimitsBasicMax.FeatureCtrlMask = 1 << 3  # PP_OD_FEATURE_PPT_BIT of 14
    sku.OverDriveLimitsBasicMin.Ppt = -30
    vendor.TemperatureLimit[4], vendor.FanMaximumRpm = 108, 3200
    limits = decode_limits(one, bytes(raw))
    assert (limits.power_default_w, limits.power_min_w, limits.memory_temperature_c, limits.fan_max_rpm) == (
        304,
        212,
        108,
        3200,
    )


def test_the_boards_part_replaces_its_bytes_alone():
    one = row((13, 0, 0))
    module = one.module
    combined = bytes(range(256)) * 32
    # Only 488 of them count: sizeof(BoardTable_t).
    board = b"\xcc" * 500
    part = with_board(one, combined, board)
    start = module.smu_13_0_0_powerplay_table.offset_of("smc_pptable")
    assert part[:3484] == combined[start : start + 3484]  # sizeof(SkuTable_t)
    assert part[3484:] == b"\xcc" * 488


def test_allowed_features_are_the_kernels():
    # Recorded from amdgpu.ko: all bits are set with this firmware. FEATURE_DPM_LINK_BIT 7 and FEATURE_DS_LCLK_BIT 14
    # are clear where the host does not support changes of the link speed (smu_v13_0_0_get_allowed_feature_mask,
    # PP_PCIE_DPM_MASK).
    assert row((13, 0, 0)).features(0x004E_8100) == 0xFFFF_FFFF_FFFF_BF7F
    # Before 78.58, FEATURE_GFXOFF_BIT (19) is clear.
    assert row((13, 0, 0)).features(0x004E_3900) == 0xFFFF_FFFF_FFF7_BF7F
    # soc21.c does not gate ATHUB and MMHUB (48).
    assert row((13, 0, 10)).features(0x0050_5300) == 0xFFFE_FFFF_FFFF_BF7F
    allowed = row((13, 0, 7)).features(0)
    assert allowed >> 19 & 1
    assert allowed >> 48 & 1
    assert not allowed & (1 << 7 | 1 << 14)
    # smu_v13_0_7_ppt.c does not name FEATURE_GFX_DCS_BIT.
    assert not allowed >> 31 & 1


def test_every_version_has_its_messages():
    sent = (
        "GetDriverIfVersion GetSmuVersion SetDriverDramAddrHigh SetDriverDramAddrLow TransferTableSmu2Dram TransferTableDram2Smu RunDcBtc "
        "SetAllowedFeaturesMaskHigh SetAllowedFeaturesMaskLow EnableAllSmuFeatures GetRunningSmuFeaturesLow GetRunningSmuFeaturesHigh "
        "GetDpmFreqByIndex SetSoftMaxByFreq SetSoftMinByFreq SetHardMaxByFreq SetHardMinByFreq GetPptLimit SetPptLimit SetWorkloadMask "
        "AllowGfxOff DisallowGfxOff"
    )
    accelerators = (
        "GetDriverIfVersion GetSmuVersion SetDriverDramAddrHigh SetDriverDramAddrLow EnableAllSmuFeatures GetEnabledSmuFeaturesLow "
        "GetEnabledSmuFeaturesHigh GetMetricsTable GetMinGfxDpmFreq GetMaxGfxDpmFreq GetDpmFreqByIndex SetSoftMaxGfxClk SetSoftMinGfxClk "
        "SetSoftMaxByFreq GetPptLimit SetPptLimit ReadThrottlerLimit GetCTFLimit PrepareForDriverUnload"
    )
    for version, one in ROWS.items():
        names = accelerators if one.accelerator else sent
        missing = [name for name in names.split() if not hasattr(one.module, f"PPSMC_MSG_{name}")]
        assert not missing, version
        if one.accelerator:
            # smu_v13_0_6_ppsmc.h
            assert one.module.PPSMC_MSG_GfxDriverReset == 3
            continue
        assert one.mode1_debug or one.module.PPSMC_MSG_Mode1Reset == 0x2F  # smu_v13_0_0_ppsmc.h
        assert not one.no_display or one.module.PPSMC_MSG_DALNotPresent == 0x4E


def test_an_unknown_version_names_the_known_ones():
    with pytest.raises(
        NotSupported, match=r"version 11\.0\.7; known are 13\.0\.0, 13\.0\.6, 13\.0\.7, 13\.0\.10, 14\.0\.2, 14\.0\.3"
    ):
        row((11, 0, 7))
