"""The power controller of a card: start, limits, no answer, refusals, reset, and its last metrics table for a second
process.
"""

import struct
from dataclasses import replace

import pytest

from ringup.autogen.amd import smu_v13_0_0 as facts
from ringup.drivers.amd.bus.discovery import memory
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.psp import runtime as psp_runtime
from ringup.drivers.amd.psp import vbios
from ringup.drivers.amd.smu.control import Control
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.amd.smu.published import HEADER, publish, published
from ringup.drivers.amd.smu.reset import mode1_reset
from ringup.drivers.amd.smu.rows import ROWS
from ringup.drivers.amd.smu.sensors import Sensors
from ringup.drivers.transport.link import Link
from ringup.errors import DeviceFault, DeviceTimeout, NotSupported
from ringup.silicon.amd.smu import tables as smu_tables

CHIPS = ("navi31", "navi32", "navi33", "navi44", "navi48")
SMU_13 = CHIPS[:3]  # whose driver hands the board's table back and tells of mains
BOARD_MARK = b"board of this very card"
RUNTIME_DB = 1 << 20  # below the end of VRAM: amdgpu_psp.h, PSP_RUNTIME_DB_OFFSET
GFX, MEMORY = facts.PPCLK_GFXCLK, facts.PPCLK_UCLK


@pytest.fixture
def up(boot):
    """`up(chip)` is a card whose power controller runs and manages it."""

    def make(chip="navi31", **options):
        card = boot(chip, **options).load()
        card.smu.start(vbios.board_table(vbios.read(card.radeon, card.ips)), signed=False)
        return card

    return make


def sign(card, status):
    """Write the runtime database, which says whether the power table is signed."""
    start = card.radeon.vram.size_bytes - RUNTIME_DB
    # boot configuration, then SCPM: psp_runtime_entry
    entries = struct.pack("<IHHIHH", 5, 0x100, 8, 6, 0x200, 4)
    card.radeon.vram.view[start : start + 24] = struct.pack("<HHHxx", 0x0ED5, 0x0100, 2) + entries
    card.radeon.vram.view[start + 0x200 : start + 0x204] = struct.pack("<I", status)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_firmware_manages_the_card_once_started(up, chip):
    card = up(chip)
    power, smu = card.radeon.smu.power, card.radeon.smu
    assert smu.driver_address == card.fb_base + card.TABLE_PA
    assert card.smu.features == power.features != 0
    assert card.smu.firmware_version == smu.row.firmware_version
    assert card.smu.running


@pytest.mark.parametrize("chip", SMU_13)
def test_the_boards_own_power_table_goes_back(boot, chip):
    card = boot(chip).load()
    module = card.smu.facts
    board = BOARD_MARK.ljust(module.BoardTable_t.SIZE, b"\xee")
    card.smu.start(board, signed=False)
    at = module.PPTable_t.offset_of("BoardTable")
    assert card.radeon.smu.tables[module.TABLE_PPTABLE][at : at + len(board)] == board


@pytest.mark.parametrize("chip", SMU_13)
@pytest.mark.parametrize("caps", [0, 0x4])  # smu_v13_0_0_pptable.h, smu_v13_0_7_pptable.h: PP_PLATFORM_CAP_HARDWAREDC
def test_the_driver_reports_mains_power_unless_a_pin_does(boot, monkeypatch, chip, caps):
    def with_caps(*arguments, made=smu_tables.combo):
        table = bytearray(made(*arguments))
        struct.pack_into("<I", table, 18, caps)  # platform_caps
        return bytes(table)

    # The boards of the model have 0 here.
    monkeypatch.setattr(smu_tables, "combo", with_caps)
    card = boot(chip).load()
    card.smu.start(None, signed=False)
    told = [event.text for event in card.radeon.log.find("message", "smu") if event.text.startswith("0x35(")]
    # PPSMC_MSG_NotifyPowerSource, POWER_SOURCE_AC
    assert told == ([] if caps else ["0x35(0x0) = 0x0"])


def test_firmware_that_amdgpu_sends_no_power_source_gets_none(boot):
    assert [version for version, row in ROWS.items() if not row.told_of_mains] == [(13, 0, 6), (14, 0, 2), (14, 0, 3)]
    card = boot("navi31").load()
    card.smu.row = replace(card.smu.row, told_of_mains=False)
    card.smu.start(None, signed=False)
    assert not [event for event in card.radeon.log.find("message", "smu") if event.text.startswith("0x35(")]


def test_a_signed_power_table_is_left_to_the_security_processor(boot):
    card = boot("navi31").load()
    sign(card, 1)
    assert psp_runtime.power_table_is_signed(card.window)
    before = dict(card.radeon.smu.tables)
    card.smu.start(None, signed=True)
    assert card.radeon.smu.tables == before
    assert card.radeon.smu.allowed_features == 0


@pytest.mark.parametrize(
    ("cookie", "count", "status", "signed"),
    [(0x0ED5, 2, 0, False), (0, 2, 1, False), (0x0ED5, 1, 1, False), (0x0ED5, 64, 1, False)],
)
def test_a_runtime_database_that_says_nothing_signs_nothing(boot, cookie, count, status, signed):
    card = boot("navi31")
    sign(card, status)
    start = card.radeon.vram.size_bytes - RUNTIME_DB
    card.radeon.vram.view[start : start + 6] = struct.pack("<HHH", cookie, 0x0100, count)
    assert psp_runtime.power_table_is_signed(card.window) is signed


def test_without_the_boards_table_the_firmware_keeps_its_own(boot, caplog):
    card = boot("navi31").load()
    card.smu.start(None, signed=False)
    assert card.smu.features
    assert "no power table of this board (smc_dpm_info) was found in a VBIOS" in caplog.text


def test_an_empty_power_table_is_never_written_back(boot):
    card = boot("navi31").load()
    read = card.window.read
    card.window.read = lambda at, size: bytes(size) if at == card.TABLE_PA else read(at, size)
    card.smu.start(vbios.board_table(vbios.read(card.radeon, card.ips)), signed=False)
    messages = [event.text for event in card.radeon.log.find("message", "smu")]
    assert not [text for text in messages if text.startswith(f"{facts.PPSMC_MSG_TransferTableDram2Smu:#x}(")]
    assert [text for text in messages if text.startswith(f"{facts.PPSMC_MSG_RunDcBtc:#x}(")]


def test_metrics_are_what_the_card_does(up):
    card = up("navi31")
    seen, power = card.smu.metrics(), card.radeon.smu.power
    assert seen.gfx_clock_mhz == power.frequency(GFX)
    assert seen.memory_clock_mhz == power.frequency(MEMORY)
    assert abs(seen.edge_temperature_c - power.temperature) < 2
    assert (seen.pcie_generation, seen.pcie_lanes, seen.throttled) == (4, 16, ())
    assert card.smu.metrics().counter > seen.counter


@pytest.mark.parametrize("chip", CHIPS)
def test_clocks_are_bounded_held_low_and_let_go(up, chip):
    card = up(chip)
    power, gfx = card.radeon.smu.power, card.smu.clocks("gfx")
    card.smu.set_clock_range("gfx", 800, 1200)
    assert power.bounds(GFX) == (800, 1200)
    card.smu.set_clock_range("gfx", 900, 1100, hard=True)
    assert power.bounds(GFX) == (900, 1100)
    card.smu.set_clock_range("gfx", gfx[0], gfx[-1], hard=True)
    card.smu.quiet()
    assert power.bounds(GFX) == (gfx[0], gfx[0])
    assert power.bounds(MEMORY) == (card.smu.clocks("memory")[0],) * 2
    card.smu.automatic()
    assert power.bounds(GFX) == (gfx[0], gfx[-1])
    assert len(card.smu.clocks("memory")) == 4  # NUM_UCLK_DPM_LEVELS
    card.smu.stop()
    assert power.bounds(GFX) == (gfx[0], gfx[0])


@pytest.mark.parametrize(("hard", "kind"), [(False, "Soft"), (True, "Hard")])
def test_the_upper_bound_of_a_clock_goes_first(up, hard, kind):
    """The order in which smu_v13_0_set_soft_freq_limited_range sends them."""
    card = up("navi31")
    card.smu.set_clock_range("gfx", 800, 1200, hard=hard)
    sent = [int(event.text.partition("(")[0], 16) for event in card.radeon.log.find("message", "smu")]
    assert sent[-2:] == [getattr(facts, f"PPSMC_MSG_Set{kind}{bound}ByFreq") for bound in ("Max", "Min")]


def test_a_clock_outside_its_range_is_refused_before_it_is_sent(up):
    card = up("navi31")
    for low, high in ((100, 1000), (800, 9000), (1200, 800)):
        with pytest.raises(ValueError, match=rf"the gfx clock takes 500 to 2482 MHz, not {low} to {high}"):
            card.smu.set_clock_range("gfx", low, high)
    with pytest.raises(ValueError, match="there is no clock 'video'; there are gfx, memory"):
        card.smu.clocks("video")


@pytest.mark.parametrize("chip", CHIPS)
def test_the_power_limit_is_set_within_the_cards_range(up, chip):
    card = up(chip)
    limits = card.smu.limits
    assert limits.power_min_w < limits.power_default_w <= limits.power_max_w
    card.smu.set_power_limit(limits.power_min_w)
    assert card.radeon.smu.power.power_limit == limits.power_min_w == card.smu.power_limit_w
    for power_w in (limits.power_min_w - 1, limits.power_max_w + 1):
        with pytest.raises(
            ValueError, match=f"the power limit takes {limits.power_min_w} to {limits.power_max_w} W, not {power_w}"
        ):
            card.smu.set_power_limit(power_w)


def test_the_hint_of_work_to_come_arrives(up):
    card = up("navi31")
    card.smu.workload("compute")
    both = 1 << facts.WORKLOAD_PPLIB_COMPUTE_BIT | 1 << facts.WORKLOAD_PPLIB_POWER_SAVING_BIT
    # Firmware supports this since 0x4e7300: smu_v13_0_0_ppt.c.
    assert card.radeon.smu.workload == both
    card.smu.firmware_version = 0x004E_7200
    card.smu.workload("compute")
    assert card.radeon.smu.workload == 1 << facts.WORKLOAD_PPLIB_COMPUTE_BIT
    with pytest.raises(ValueError, match="there is no workload 'mining'; there are default"):
        card.smu.workload("mining")


def test_the_graphics_core_may_not_be_switched_off(up):
    card = up("navi31")
    card.smu.automatic()
    assert not card.radeon.smu.power.gfxoff_allowed


def test_a_second_driver_of_a_running_firmware_takes_up_with_it(up):
    card = up("navi31")
    again = card.make_smu()
    again.attach()
    assert again.features == card.smu.features
    assert again.limits == card.smu.limits
    assert again.clocks("gfx") == card.smu.clocks("gfx")


# --- refusals ---------------------------------------------------------------------------------------------------
def test_firmware_that_was_not_loaded_is_reported(boot):
    card = boot("navi31")
    with pytest.raises(DeviceTimeout, match=r"its firmware does not run \(flags 0x0\) 100 ms after it was loaded"):
        card.smu.start(None, signed=True)


def test_a_silent_controller_is_given_time(boot):
    card = boot("navi31").load()
    card.radeon.clock.sleep_us(1000)
    card.radeon.faults.inject("smu_silent")
    with pytest.raises(
        DeviceTimeout, match=r"SMU message GetDriverIfVersion\(0x0\): MP1_SMN_C2PMSG_90 read 0x00000000 .* for 4000 ms"
    ):
        card.smu.start(None, signed=True)
    with pytest.raises(DeviceTimeout, match=r"GetSmuVersion\(0x0\), behind SMU message GetDriverIfVersion\(0x0\)"):
        card.smu.send("GetSmuVersion")


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (0xFF, DeviceFault, r"the power controller failed at it \(response 0xff\)"),
        (0xFE, NotSupported, "firmware does not know it"),
        (0xFD, DeviceFault, "something must come before it"),
        (0xFC, DeviceTimeout, "stayed busy"),
        (0x77, DeviceFault, r"no response that is known \(response 0x77\)"),
    ],
)
def test_every_refusal_has_its_name(up, answer, error, text):
    card = up("navi31")
    card.radeon.faults.inject("smu_answer", answer)
    with pytest.raises(error, match=rf"SMU message SetPptLimit\(0x12c\): .*{text}"):
        card.smu.set_power_limit(300)


def test_messages_that_old_firmware_lacks_stop_nothing(up):
    card = up("navi31")
    card.radeon.faults.inject("smu_answer", 0xFE)
    before = len(card.radeon.log.find(block="smu"))
    card.smu.workload("compute")
    # The driver asked the firmware.
    assert len(card.radeon.log.find(block="smu")) > before


def test_a_clock_that_the_firmware_does_not_let_be_held_stops_nothing(up):
    card = up("navi31")
    for name in ("gfx", "memory", "fabric", "soc"):
        card.smu.clocks(name)
    card.radeon.faults.inject("smu_answer", 0xFF)
    before = len(card.radeon.log.find(block="smu"))
    card.smu.quiet()
    asked = len(card.radeon.log.find(block="smu"))
    card.smu.automatic()
    assert before < asked < len(card.radeon.log.find(block="smu"))


@pytest.mark.parametrize(("least", "default", "most"), [(0, 0, 0), (200, 400, 300)])
def test_a_power_table_that_makes_no_sense_sets_no_power_limit(up, least, default, most):
    card = up("navi31")
    changed = {"power_min_w": least, "power_default_w": default, "power_max_w": most}
    card.smu.limits = replace(card.smu.limits, **changed)
    before = card.smu.power_limit_w
    Control(card.smu).restore()
    assert card.smu.power_limit_w == before


# --- reset ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("chip", CHIPS)
def test_a_mode_1_reset_leaves_a_cold_posted_card_that_starts_again(up, chip):
    card = up(chip)
    radeon = card.radeon
    bars = [radeon.config.read(0x10 + 4 * bar) for bar in range(6)]
    mode1_reset(radeon, card.nbio, card.psp, card.smu)
    assert not radeon.psp.alive
    assert not radeon.smu.running
    assert card.nbio.posted
    # ATOM_S3_ASIC_GUI_ENGINE_HUNG is clear again.
    assert not radeon.nbio.cells["BIF_BX0_BIOS_SCRATCH_3"] & 1 << 29
    assert [radeon.config.read(0x10 + 4 * bar) for bar in range(6)] == bars
    # Memory decoding is on, bus mastering is off.
    assert radeon.config.read(4, 2) & 6 == 2
    radeon.config.write(4, 6, 2)
    card.psp, card.smu = card.make_psp(), card.make_smu()
    card.hdp.start()
    card.nbio.start(2)
    card.load()
    card.smu.start(vbios.board_table(vbios.read(radeon, card.ips)), signed=False)
    assert radeon.psp.alive


def test_a_controller_that_does_not_run_cannot_reset_the_card(boot):
    card = boot("navi31")
    with pytest.raises(NotSupported, match="the power controller's firmware does not run, so it cannot reset the card"):
        mode1_reset(card.radeon, card.nbio, card.psp, card.smu)


def test_an_unloaded_controller_is_asked_whether_it_listens(up):
    card = up("navi31")
    card.radeon.smu.cells["MP1_FIRMWARE_FLAGS"] = 0
    assert not card.smu.running
    mode1_reset(card.radeon, card.nbio, card.psp, card.smu)
    assert not card.radeon.psp.alive


def test_firmware_that_is_too_old_cannot_reset_the_card(up):
    card = up("navi31")
    card.smu.firmware_version = 0x004E_2800
    with pytest.raises(NotSupported, match="SMU firmware 0x4e2800 cannot reset the card, 0x4e2900 and later can"):
        card.smu.tell_mode1_reset()


def test_an_unknown_version_is_named(boot):
    card = boot("navi31")
    with pytest.raises(NotSupported, match=r"the power controller is version 11\.0\.7; known are 13\.0\.0"):
        Smu(card.ips.block("mp1"), (11, 0, 7), card.window, card.hdp, card.TABLE_PA, card.fb_base)


# --- beside the driver ------------------------------------------------------------------------------------------
def test_a_second_process_sees_the_last_table(up):
    card = up("navi31")
    registers = Registers(card.radeon)
    beside = memory(card.radeon, registers)
    assert published(beside, card.PAGE_PA) is None
    table = card.smu.metrics_table()
    publish(card.window, card.hdp, card.PAGE_PA, (13, 0, 0), table, 7)
    seen = published(beside, card.PAGE_PA)
    assert seen.counter == 7
    # AverageSocketPower: smu13_driver_if_v13_0_0.h
    assert seen.metrics.power_w == struct.unpack_from("<H", table, 116)[0]
    assert (registers.reads, registers.writes) == (1, 0)  # reads how much memory there is


def test_a_table_that_is_being_replaced_is_not_read(up):
    card = up("navi31")
    table = card.smu.metrics_table()
    publish(card.window, card.hdp, card.PAGE_PA, (13, 0, 0), table, 7)
    card.window.write(card.PAGE_PA, HEADER.pack(b"SMUM", 8, 13, 0, 0, 0, len(table)))
    card.hdp.flush()
    assert published(card.window, card.PAGE_PA) is None
    with pytest.raises(ValueError, match="lies beyond the"):
        published(card.window, card.window.visible_bytes)


def test_sensors_change_nothing(up):
    card = up("navi31")
    registers = Registers(card.radeon)
    beside = type(card.ips)(registers, card.ips.table)
    sensors = Sensors(card.radeon, beside)
    assert abs(sensors.temperature_c - card.radeon.smu.power.temperature) < 2
    assert sensors.vram_bytes == 64 << 20
    assert not sensors.activity().any
    assert sensors.link() == Link(4, 16)
    assert registers.writes == 0
