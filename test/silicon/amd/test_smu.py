"""The SMU: mailbox, features, clocks, limits, tables, and power that follows the work. Source: smu_cmn.c,
smu_v13_0_0_ppsmc.h.

Message numbers are the header's. Table offsets are those of smu13_driver_if_v13_0_0.h as gcc lays it out.
"""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.amd.common.parts import Board, VmFault
from ringup.silicon.amd.smu import tables as smu_tables
from ringup.silicon.amd.smu.controller import Smu
from ringup.silicon.amd.smu.thm import Thm
from ringup.silicon.common.cells import Cells, RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram

OK, FAILED, UNKNOWN, PREREQUISITE = 1, 0xFF, 0xFE, 0xFD
DRIVER_TABLE = 0x4000
TEST, VERSION, INTERFACE = 1, 2, 3
ALLOW_LOW, ALLOW_HIGH, ENABLE_ALL, DISABLE_ALL, RUNNING_LOW, RUNNING_HIGH = 4, 5, 6, 7, 0xC, 0xD
DRAM_HIGH, DRAM_LOW, TO_DRAM, FROM_DRAM, BACO, BACO_EXIT = 0xE, 0xF, 0x12, 0x13, 0x15, 0x16
SOFT_MIN, SOFT_MAX, MIN_FREQ, MAX_FREQ, LEVEL = 0x19, 0x1A, 0x1D, 0x1E, 0x1F
ALLOW_GFXOFF, DISALLOW_GFXOFF, MODE1, SET_PPT, GET_PPT = 0x28, 0x29, 0x2F, 0x32, 0x33
GFXCLK, UCLK = 0, 2
POWER_AT, ACTIVITY_AT, EDGE_AT, MEMORY_AT, CLOCK_AT, COUNTER_AT, FAN_AT = (
    116,
    104,
    120,
    128,
    0,
    80,
    152,
)  # in SmuMetrics_t


class Pages:
    def __init__(self):
        self.data = bytearray(1 << 16)

    def read(self, vmid, gpu_va, size_bytes, client):
        self._check(gpu_va, size_bytes, False)
        return bytes(self.data[gpu_va : gpu_va + size_bytes])

    def write(self, vmid, gpu_va, data, client):
        self._check(gpu_va, len(data), True)
        self.data[gpu_va : gpu_va + len(data)] = data

    def _check(self, gpu_va, size, write):
        if gpu_va + size > len(self.data):
            raise VmFault("mmhub", 0, gpu_va, write, "unmapped")


class Bell:
    def __init__(self):
        self.heard = []

    def interrupt(self, client_id, source_id, **rest):
        self.heard.append((client_id, source_id))


class Rig:
    def __init__(self, row=smu_tables.NAVI31, chip="navi31"):
        clock = VirtualClock()
        self.board = Board(chip, clock, EventLog(clock), Faults(), RegisterSpace(), Vram(4096), HostMemory())
        self.cells, self.pages, self.bell = Cells(chip, "mp"), Pages(), Bell()
        self.board.space.attach(self.cells)
        self.busy, self.busy_from, self.load = 0, 0, 0.0
        self.resets = []
        self.smu = Smu(
            self.board,
            self.cells,
            self.pages,
            row,
            busy_ns=self.busy_ns,
            on_mode1_reset=self.reset_card,
        )
        self.thm = Thm(self.board, self.smu.power, self.bell)

    def reset_card(self):
        self.resets.append(1)
        self.cells.reset()

    def busy_ns(self):
        """Return the time worked: the share `load` of the time since the load last changed."""
        return int(self.busy + (self.board.clock.now_ns - self.busy_from) * self.load)

    def set_load(self, load):
        self.busy, self.busy_from, self.load = self.busy_ns(), self.board.clock.now_ns, load

    def register(self, number, value=None):
        address = self.cells.address(f"MP1_SMN_C2PMSG_{number}")
        if value is None:
            return self.cells.read(address)
        self.cells.write(address, value)
        return value

    def start(self):
        self.smu.firmware_loaded(18, b"")
        self.board.clock.sleep_us(10_000)
        return self

    def send(self, message, argument=0):
        """Send as smu_cmn_send_smc_msg_with_param does; return answer and result."""
        self.register(90, 0)
        self.register(82, argument)
        self.register(66, message)
        # There is no answer at once.
        assert self.register(90) == 0
        self.board.clock.sleep_us(1_000)
        return self.register(90), self.register(82)

    def ready(self):
        self.start()
        for message, argument in (
            (ALLOW_LOW, 0xFFFF_FFFF),
            (ALLOW_HIGH, 0xFFFF_FFFF),
            (ENABLE_ALL, 0),
            (DRAM_HIGH, 0),
            (DRAM_LOW, DRIVER_TABLE),
        ):
            assert self.send(message, argument)[0] == OK
        return self

    def metrics(self):
        assert self.send(TO_DRAM, 5)[0] == OK
        table = self.pages.data[DRIVER_TABLE : DRIVER_TABLE + 392]

        def half(at):
            return struct.unpack_from("<H", table, at)[0]

        return {
            "power": half(POWER_AT), "activity": half(ACTIVITY_AT), "edge": half(EDGE_AT), "memory": half(MEMORY_AT), "fan": half(FAN_AT),
            "gfxclk": struct.unpack_from("<I", table, CLOCK_AT)[0], "counter": struct.unpack_from("<I", table, COUNTER_AT)[0],
        }  # fmt: skip

    def seconds(self, count):
        for _ in range(count * 4):
            self.board.clock.sleep_us(250_000)
            self.metrics()
        return self.metrics()


@pytest.fixture
def rig():
    return Rig().ready()


def test_nobody_answers_before_the_firmware_is_loaded():
    rig = Rig()
    assert rig.send(TEST, 5) == (0, 5)
    # MP1_Public | MP1_FIRMWARE_FLAGS, as smu_v13_0_check_fw_status reads it
    assert rig.board.space.read(0x3B1_0024) == 0
    rig.start()
    assert rig.board.space.read(0x3B1_0024) & 1
    assert rig.send(TEST, 5) == (OK, 6)


@pytest.mark.parametrize(
    ("row", "chip", "address"),
    [
        (smu_tables.NAVI31, "navi31", 0x3B1_0024),  # smu_v13_0.c: MP1_Public | smnMP1_FIRMWARE_FLAGS
        (smu_tables.NAVI33, "navi33", 0x3B1_0028),  # smu_v13_0_7_ppt.c: smnMP1_FIRMWARE_FLAGS_SMU_13_0_7
        (smu_tables.NAVI48, "navi48", 0x3B1_0024),  # smu_v14_0.c: MP1_Public | smnMP1_FIRMWARE_FLAGS
    ],
    ids=["13.0.0", "13.0.7", "14.0.3"],
)
def test_hosts_see_at_their_versions_address_whether_the_firmware_runs(row, chip, address):
    rig = Rig(row, chip)
    assert rig.board.space.read(address) == 0
    rig.start()
    assert rig.board.space.read(address) & 1


def test_versions_are_the_rows(rig):
    assert rig.send(INTERFACE) == (OK, 0x3D)  # SMU13_0_0_DRIVER_IF_VERSION
    # The first firmware that has mode-1 reset: smu_v13_0_0_ppt.c.
    assert rig.send(VERSION)[1] >= 0x004E_2900


@pytest.mark.parametrize("message", [0, 0x4D, 0x52, 0x1234])
def test_an_unknown_message_is_answered_so(rig, message):
    assert rig.send(message)[0] == UNKNOWN


def test_a_message_before_the_last_answer_is_lost(rig):
    rig.register(90, 0)
    rig.register(82, 1)
    rig.register(66, TEST)
    rig.register(82, 40)
    rig.register(66, TEST)
    rig.board.clock.sleep_us(1_000)
    assert (rig.register(90), rig.register(82)) == (OK, 2)
    assert "before the last one was answered" in rig.board.log.find("violation")[0].text


def test_only_allowed_features_run():
    rig = Rig().start()
    rig.send(ALLOW_LOW, 0b1010)  # DPM_GFXCLK and DPM_UCLK
    rig.send(ENABLE_ALL)
    assert rig.send(RUNNING_LOW)[1] == 0b1010
    assert rig.send(RUNNING_HIGH)[1] == 0
    rig.send(DISABLE_ALL)
    assert rig.send(RUNNING_LOW)[1] == 0


def test_levels_of_a_clock_are_counted_and_listed(rig):
    assert rig.send(LEVEL, UCLK << 16 | 0xFF)[1] == 4  # discrete
    assert [rig.send(LEVEL, UCLK << 16 | n)[1] for n in range(4)] == [96, 456, 772, 1249]
    assert rig.send(LEVEL, UCLK << 16 | 4)[0] == FAILED
    # Bit 31 means fine grained: the two levels are the ends of the range. Source: smu_v13_0.c.
    assert rig.send(LEVEL, GFXCLK << 16 | 0xFF)[1] == 2 | 1 << 31
    assert rig.send(LEVEL, 0x3F << 16)[0] == FAILED
    assert (rig.send(MIN_FREQ, UCLK << 16)[1], rig.send(MAX_FREQ, UCLK << 16)[1]) == (96, 1249)


def test_a_table_needs_the_drivers_address_first():
    rig = Rig().start()
    assert rig.send(TO_DRAM, 5)[0] == PREREQUISITE


@pytest.mark.parametrize("number", [0x20, 0xD])
def test_an_unknown_table_fails(rig, number):
    assert rig.send(TO_DRAM, number)[0] == FAILED


def test_an_unmapped_address_fails_and_is_noted(rig):
    rig.send(DRAM_HIGH, 7)
    assert rig.send(TO_DRAM, 5)[0] == FAILED
    assert "unmapped" in rig.board.log.find("violation")[0].text


def test_the_combo_table_holds_the_power_play_table_where_the_driver_looks(rig):
    assert rig.send(TO_DRAM, 1)[0] == OK
    table = rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 4804]
    assert struct.unpack_from("<HB", table) == (4804, 15)
    # Offset of smc_pptable; then FreqTableUclk at 764, SocketPowerLimitAc at 16, PPTable version 0x2b.
    sku = 832
    assert struct.unpack_from("<I", table, sku)[0] == 0x2B
    assert struct.unpack_from("<4H", table, sku + 764) == (96, 456, 772, 1249)
    assert struct.unpack_from("<H", table, sku + 16)[0] == rig.send(GET_PPT)[1]


def test_a_table_written_is_the_table_read(rig):
    mark = bytes(range(100)) * 2
    rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 200] = mark
    assert rig.send(FROM_DRAM, 8)[0] == OK  # TABLE_OVERDRIVE
    rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 200] = bytes(200)
    assert rig.send(TO_DRAM, 8)[0] == OK
    assert rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 128] == mark[:128]
    # The driver cannot write metrics.
    assert rig.send(FROM_DRAM, 5)[0] == FAILED


@pytest.mark.parametrize(
    ("watts", "answer"), [(303, OK), (273, OK), (272, OK), (271, FAILED), (304, FAILED), (0, FAILED)]
)
def test_a_power_limit_is_taken_within_the_boards_bounds(rig, watts, answer):
    assert rig.send(SET_PPT, watts)[0] == answer
    assert rig.send(GET_PPT)[1] == (watts if answer == OK else 303)


def test_work_makes_power_and_heat_and_idling_takes_them_away(rig):
    rig.send(ALLOW_GFXOFF)
    idle = rig.seconds(2)
    assert idle["power"] < 20
    assert idle["activity"] == 0
    rig.set_load(1.0)
    soon, later = rig.seconds(1), rig.seconds(40)
    assert soon["activity"] > 95
    assert 250 < soon["power"] <= 303
    assert idle["edge"] < soon["edge"] < later["edge"]
    assert soon["gfxclk"] > 4 * idle["gfxclk"]
    assert later["fan"] > 500
    rig.set_load(0.0)
    cooling, cold = rig.seconds(2), rig.seconds(120)
    assert cooling["power"] < 40
    assert cooling["edge"] > cold["edge"]
    assert abs(cold["edge"] - idle["edge"]) <= 2


def test_half_the_load_is_half_the_activity_and_less_power(rig):
    rig.set_load(0.5)
    half = rig.seconds(2)
    assert 45 <= half["activity"] <= 55
    rig.set_load(1.0)
    assert rig.seconds(2)["power"] > half["power"] + 50


def test_a_lower_power_limit_holds_the_power_down(rig):
    rig.set_load(1.0)
    rig.send(SET_PPT, 280)
    assert rig.seconds(3)["power"] <= 280


def test_a_card_left_with_high_clocks_and_no_gfxoff_stays_warm(rig):
    rig.send(ALLOW_GFXOFF)
    good = rig.seconds(60)
    rig.send(DISALLOW_GFXOFF)
    rig.send(SOFT_MIN, GFXCLK << 16 | 2482)
    rig.send(SOFT_MIN, UCLK << 16 | 1249)
    rig.send(DISABLE_ALL)
    hot = rig.seconds(60)
    assert hot["power"] > good["power"] + 60
    assert hot["edge"] > good["edge"] + 8


def test_clocks_stay_within_the_limits_a_driver_asks_for(rig):
    rig.send(SOFT_MAX, GFXCLK << 16 | 1000)
    rig.set_load(1.0)
    assert rig.seconds(2)["gfxclk"] <= 1000
    rig.set_load(0.0)
    rig.send(SOFT_MIN, GFXCLK << 16 | 900)
    assert 900 <= rig.seconds(2)["gfxclk"] <= 1000


def test_metrics_are_counted(rig):
    first = rig.metrics()["counter"]
    assert rig.metrics()["counter"] == first + 1


def test_baco_turns_the_chip_off_until_it_is_left(rig):
    assert rig.send(BACO)[0] == OK
    assert rig.send(VERSION)[0] == PREREQUISITE
    assert rig.send(BACO_EXIT)[0] == OK
    assert rig.send(VERSION)[0] == OK


def test_mode_1_reset_is_answered_before_it_happens(rig):
    rig.register(90, 0)
    rig.register(66, MODE1)
    rig.board.clock.sleep_us(100)
    assert (rig.register(90), rig.resets) == (OK, [])
    rig.board.clock.sleep_us(2_000)
    # A host that reads late, as in a busy emulator, finds the answer too.
    assert (rig.register(90), rig.register(66), rig.resets) == (OK, 0, [1])


def test_the_debug_mailbox_tests_and_resets(rig):
    for message, answer in ((1, OK), (3, UNKNOWN), (2, OK)):
        rig.register(54, 0)
        rig.register(75, message)
        rig.board.clock.sleep_us(100)
        assert rig.register(54) == answer
    rig.board.clock.sleep_us(2_000)
    assert (rig.register(54), rig.register(75), rig.resets) == (OK, 0, [1])


def test_reset_forgets_the_firmware_but_not_the_heat(rig):
    rig.set_load(1.0)
    hot = rig.seconds(20)
    rig.set_load(0.0)
    rig.smu.reset()
    assert rig.send(TEST, 1)[0] == 0
    rig.ready()
    assert rig.send(GET_PPT)[1] == 303
    assert abs(rig.metrics()["edge"] - hot["edge"]) <= 2


def test_faults_of_the_smu_can_be_switched_on(rig):
    rig.board.faults.inject("smu_answer", 0xFC)
    assert rig.send(VERSION)[0] == 0xFC
    rig.board.faults.clear()
    rig.board.faults.inject("smu_silent")
    assert rig.send(VERSION)[0] == 0


def test_the_die_temperature_is_read_in_eighths_of_a_degree(rig):
    value = rig.board.space.read(rig.thm.cells.address("THM_TCON_CUR_TMP"))
    assert abs((value >> 21) / 8 - rig.metrics()["edge"]) < 1


def test_crossing_the_threshold_interrupts_once_each_way(rig):
    cells = rig.thm.cells
    # smu_v13_0_set_irq_state: thresholds, both masks open, hardware interrupts on (bit 28).
    cells.write(cells.address("THM_THERMAL_INT_CTRL"), 50 | 45 << 8 | 1 << 28)
    cells.write(cells.address("THM_THERMAL_INT_ENA"), 0b11000)
    rig.set_load(1.0)
    rig.seconds(30)
    assert rig.bell.heard == [(0x0F, 0)]
    rig.set_load(0.0)
    rig.seconds(60)
    assert rig.bell.heard == [(0x0F, 0), (0x0F, 1)]


def test_a_thermal_trip_can_be_switched_on(rig):
    cells = rig.thm.cells
    cells.write(cells.address("THM_THERMAL_INT_CTRL"), 105 | 1 << 28)
    cells.write(cells.address("THM_THERMAL_INT_ENA"), 0b11000)
    rig.board.faults.inject("thermal_trip", 1)
    rig.board.clock.sleep_us(15_000)
    assert rig.bell.heard == [(0x0F, 0)]


def test_the_link_is_reported_decoded(rig):
    rig.metrics()
    # PcieRate and PcieWidth: generation and lanes.
    assert rig.pages.data[DRIVER_TABLE + 148 : DRIVER_TABLE + 150] == b"\x04\x10"


@pytest.mark.parametrize(
    ("percent", "answer", "watts"), [(15, OK, 348), (16, FAILED, 303), (-10, OK, 272), (-11, FAILED, 303)]
)
def test_more_power_than_messages_give_is_the_overdrive_tables_to_ask_for(rig, percent, answer, watts):
    place = rig.pages.data, DRIVER_TABLE
    # FeatureCtrlMask, Ppt of OverDriveTable_t
    struct.pack_into("<I24xh", *place, 1 << 2, percent)
    assert rig.send(FROM_DRAM, 8)[0] == answer
    assert rig.send(GET_PPT)[1] == watts


def test_the_table_tells_drivers_how_far_the_power_limit_may_go(rig):
    assert rig.send(TO_DRAM, 0)[0] == OK
    # OverDriveLimitsMin, OverDriveLimitsBasicMax in SkuTable_t
    for at, percent in ((2928, -10), (3016, 15)):
        mask, ppt = struct.unpack_from("<I14xh", rig.pages.data, DRIVER_TABLE + at)
        assert (mask, ppt) == (1 << 2, percent)


# Row, interface version, table version, memory clocks, lanes as the table codes them, lanes as metrics give them,
# advertised clocks.
BOARDS = {
    "navi31": (smu_tables.NAVI31, 0x3D, 0x2B, (96, 456, 772, 1249), 6, 16, (1855, 2269, 2499)),
    "navi32": (smu_tables.NAVI32, 0x3D, 0x2B, (96, 456, 772, 1218), 6, 16, (1295, 2124, 2430)),
    "navi33": (smu_tables.NAVI33, 0x35, 0x27, (96, 456, 772, 1124), 4, 8, (1720, 2250, 2655)),
}


@pytest.mark.parametrize("name", BOARDS)
def test_every_boards_tables_are_those_of_its_firmware(name):
    row, interface, version, memory_clocks, lane_code, lanes, advertised = BOARDS[name]
    rig = Rig(row).ready()
    assert rig.send(INTERFACE) == (OK, interface)
    # TABLE_PPTABLE, beginning with the chip's part.
    assert rig.send(TO_DRAM, 0)[0] == OK
    table = bytes(rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 3484])
    assert struct.unpack_from("<I", table)[0] == version
    # The offset of FreqTableUclk in both headers, by gcc.
    assert struct.unpack_from("<4H", table, 764) == memory_clocks
    assert table[1235] == lane_code  # PcieLaneCount
    assert struct.unpack_from("<3H", table, 2780) == advertised  # DriverReportedClocks
    assert rig.metrics()["power"] > 0
    assert rig.pages.data[DRIVER_TABLE + 149] == lanes  # PcieWidth


# The same for 14.0.2 and 14.0.3, whose interface has other layouts and numbers: gfx and memory clocks, lanes, link.
BOARDS_14 = {
    "navi44": (smu_tables.NAVI44, (500, 3130), (96, 456, 772, 1258), (1700, 2530, 3130), 160),
    "navi48": (smu_tables.NAVI48, (500, 2970), (96, 456, 772, 1258), (1660, 2400, 2970), 304),
}


@pytest.mark.parametrize("chip", BOARDS_14)
def test_a_board_of_14_0_has_the_tables_of_smu14_driver_if(chip):
    row, gfx, memory_clocks, advertised, watts = BOARDS_14[chip]
    rig = Rig(row, chip).ready()
    assert rig.send(INTERFACE) == (OK, 0x2E)  # SMU14_DRIVER_IF_VERSION_SMU_V14_0_2
    # TABLE_COMBO_PPTABLE: struct smu_14_0_2_powerplay_table, 5812 bytes, with PPTable_t at 1344.
    assert rig.send(TO_DRAM, 1)[0] == OK
    combo = bytes(rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 5812])
    assert struct.unpack_from("<H", combo)[0] == 5812
    assert rig.send(TO_DRAM, 0)[0] == OK
    table = bytes(rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 4468])
    assert combo[1344:] == table
    # The offsets of PPTable_t, by gcc: PFE_Settings.Version, SkuTable, CustomSkuTable.
    assert struct.unpack_from("<I", table)[0] == 0x1B
    # FEATURE_FAN_CONTROL_BIT is 29 here; without it amdgpu takes the board as one without a fan.
    assert struct.unpack_from("<I", table, 4)[0] >> 29 & 1
    assert struct.unpack_from("<4H", table, 676) == memory_clocks
    assert struct.unpack_from("<3B", table, 1136) == (0, 2, 4)  # PcieGenSpeed
    assert struct.unpack_from("<3H", table, 2604) == advertised
    assert struct.unpack_from("<H", table, 3580)[0] == watts  # SocketPowerLimitAc
    # PPCLK_GFXCLK, by message.
    assert (rig.send(MIN_FREQ, 0)[1], rig.send(MAX_FREQ, 0)[1]) == gfx


@pytest.mark.parametrize("chip", BOARDS_14)
def test_metrics_of_14_0_have_averages_and_moving_averages(chip):
    rig = Rig(BOARDS_14[chip][0], chip).ready()
    rig.set_load(1.0)
    for _ in range(20):
        rig.board.clock.sleep_us(250_000)
        assert rig.send(TO_DRAM, 5)[0] == OK
    metrics = bytes(rig.pages.data[DRIVER_TABLE : DRIVER_TABLE + 260])
    power, moving = struct.unpack_from("<H", metrics, 136)[0], struct.unpack_from("<H", metrics, 100)[0]
    assert power == moving > 100
    assert metrics[166:168] == bytes([5, 16])  # PcieRate, PcieWidth


@pytest.mark.parametrize("chip", BOARDS_14)
def test_14_0_resets_by_its_second_mailbox_alone(chip):
    # PPSMC_MSG_Mode1Reset of 13.0; smu_v14_0_2_ppsmc.h has no such message.
    rig = Rig(BOARDS_14[chip][0], chip).start()
    assert rig.send(0x2F)[0] == UNKNOWN
    rig.register(54, 0)
    rig.register(75, 2)  # DEBUGSMC_MSG_Mode1Reset
    rig.board.clock.sleep_us(10_000)
    assert (rig.register(54), rig.resets) == (OK, [1])


@pytest.mark.parametrize(
    ("row", "chip", "answer"),
    [
        (smu_tables.NAVI31, "navi31", OK),
        (smu_tables.NAVI32, "navi32", OK),
        (smu_tables.NAVI33, "navi33", UNKNOWN),
    ],
)
def test_a_message_that_only_some_headers_have_is_unknown_to_the_others(row, chip, answer):
    # PPSMC_MSG_DALNotPresent of smu_v13_0_0_ppsmc.h
    assert Rig(row, chip).start().send(0x4E)[0] == answer


def test_a_firmware_without_a_second_mailbox_leaves_it_alone():
    rig = Rig(smu_tables.NAVI33).start()
    rig.register(54, 0)
    rig.register(75, 2)
    rig.board.clock.sleep_us(10_000)
    assert (rig.register(54), rig.resets) == (0, [])
