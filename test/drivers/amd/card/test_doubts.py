"""Processors that do not answer, and firmware with table versions that the driver does not know: every place where a
user looks reports them.
"""

import logging
import re
import struct
from dataclasses import replace

import pytest

import ringup
from ringup.drivers.amd.observe.watch import watch
from ringup.errors import DeviceFault, DeviceTimeout, NotSupported
from ringup.silicon import card as virtual
from ringup.silicon.amd.board import discovery as made

VRAM = 64 << 20
# What distributions ship in 2026. Source: smu13_driver_if_v13_0_0.h, SMU13_0_0_DRIVER_IF_VERSION.
SPOKEN, KNOWN, RUNNING = (
    0x41,
    0x3D,
    0x4E8500,
)


@pytest.fixture
def radeon():
    return virtual("navi31", vram_bytes=VRAM)


def opened(radeon):
    return ringup.open(radeon.name, transport={"card": radeon})


def speaks(radeon, interface=SPOKEN):
    radeon.smu.row = replace(radeon.smu.row, interface_version=interface, firmware_version=RUNNING)


def test_a_card_that_is_well_is_called_well(radeon):
    with opened(radeon) as card:
        assert str(card.report()).startswith("virtual:navi31: nothing is wrong with it")
        assert (card.info.doubts, card.stats().doubts, card.report().silent, card.report().doubts) == ((), (), [], [])


def test_a_silent_power_controller_is_named_with_its_last_answers_age(radeon):
    with opened(radeon) as card:
        card.stats()
        heard_us = radeon.clock.now_us
        radeon.clock.sleep_us(3_000_000)
        radeon.faults.inject("smu_silent")
        begun_us = radeon.clock.now_us
        with pytest.raises(DeviceTimeout):
            card.stats()
        radeon.clock.sleep_us(5_000_000)
        first = str(card.report()).splitlines()[0]
        seen = re.search(
            r"the power controller \(SMU, MP1\) is silent: no answer to SMU message .* for (.*) s; its last answer is (.*) s old",
            first,
        )
        now_us = radeon.clock.now_us
        assert float(seen[1]) == pytest.approx((now_us - begun_us) / 1e6, rel=0.01)
        assert float(seen[2]) == pytest.approx((now_us - heard_us) / 1e6, rel=0.01)
        radeon.faults.clear("smu_silent")


def test_the_report_itself_finds_a_silent_power_controller(radeon):
    with opened(radeon) as card:
        radeon.faults.inject("smu_silent")
        begun_us = radeon.clock.now_us
        assert "(SMU, MP1) is silent: no answer to SMU message TestMessage" in card.report().silent[0]
        assert radeon.clock.now_us - begun_us < 200_000
        radeon.faults.clear("smu_silent")


def test_engines_that_stand_still_are_named(radeon):
    with opened(radeon) as card:
        radeon.gc.grbm.cells["CP_MEC_RS64_CNTL"] |= 1 << 30  # MEC_HALT
        assert card.report().silent == ["the compute micro engine (MEC) is halted: no compute queue goes on"]
        radeon.gc.grbm.cells["CP_MEC_RS64_CNTL"] &= ~(1 << 30)


def test_a_stuck_queue_is_reported_with_its_engine(bench):
    bench = bench()
    with pytest.raises(DeviceTimeout):
        bench.hang().wait(0.005)
    (line,) = bench.card.report().silent
    assert line.startswith(
        "the compute micro engine (MEC) does not go on: compute 0 has stood at 1 of 2 since a wait ran out"
    )
    assert "nothing is wrong" not in str(bench.card.report())
    bench.card.reset()
    assert bench.card.report().silent == []


def test_another_interface_version_is_reported_once_and_shown_everywhere(radeon, caplog):
    speaks(radeon)
    with caplog.at_level(logging.WARNING, logger="ringup"), opened(radeon) as card:
        (doubt,) = card.info.doubts
        assert all(f"{number:#x}" in doubt for number in (SPOKEN, KNOWN, RUNNING))
        assert card.stats().doubts == (doubt,)
        assert doubt in str(card.report())
        # The version that runs, not the file's.
        assert card.info.firmware["smu"] == f"{RUNNING:#x}"
        card.reset("mode1")
        card.stats()
        assert [record.message for record in caplog.records] == [f"virtual:navi31: {doubt}"]
        (watched,) = watch(radeon).stats().doubts
        assert "speaks interface 0x41, the tables are of 0x3d" in watched


def test_impossible_numbers_of_moved_tables_are_zero_and_reported(radeon, monkeypatch):
    with opened(radeon) as card:
        from ringup.drivers.amd.observe import health

        decode = health.decode_metrics
        monkeypatch.setattr(
            health,
            "decode_metrics",
            lambda row, table: replace(decode(row, table), hotspot_temperature_c=0xFFFF, power_w=0xDEAD),
        )
        stats = card.stats()
        assert (stats.metrics.hotspot_temperature_c, stats.metrics.power_w, stats.too_hot) == (0, 0, False)
        assert (
            "hotspot_temperature_c of the table of metrics is stated as 0xffff (all ones: nothing answered)"
            in stats.doubts[1]
        )
        assert (
            "power_w of the table of metrics is stated as 0xdead, 57005 in decimal; valid are 0 to 2000"
            in stats.doubts[0]
        )


@pytest.mark.parametrize("levels", [65, 0x7FFF_FFFF, 0x5EAD_BEEF])
def test_a_clock_of_a_billion_levels_is_refused_at_once(radeon, monkeypatch, levels):
    with opened(radeon) as card:
        smu = card.blocks.smu
        smu._levels.clear()
        asked = []
        monkeypatch.setattr(smu, "ask", lambda name, argument=0: asked.append(argument) or levels)
        with pytest.raises(
            DeviceFault, match=f"the memory clock, the number of levels, is stated as {levels:#x}.*valid are 0 to 64"
        ):
            smu.clocks("memory")
        assert len(asked) == 1
        monkeypatch.undo()


def test_a_table_newer_than_the_known_ones_is_reported(radeon):
    place = radeon.vram.size_bytes - made.TOP_OFFSET
    (size,) = struct.unpack_from("<H", radeon.vram.view, place + 10)
    blob = bytearray(radeon.vram.view[place : place + size])
    # the graphics core's table; discovery.h, binary_header.table_list
    (at,) = struct.unpack_from("<H", blob, 12 + 8)
    struct.pack_into("<H", blob, at + 6, 9)  # its minor version
    (length,) = struct.unpack_from("<I", blob, at + 8)
    grown = blob[at : at + length].ljust(256, b"\0")
    struct.pack_into("<I", grown, 8, len(grown))
    new_at = len(blob)
    blob += grown
    struct.pack_into("<HH", blob, 12 + 8, new_at, sum(grown) & 0xFFFF)
    struct.pack_into("<H", blob, 10, len(blob))
    struct.pack_into("<H", blob, 8, sum(blob[10:]) & 0xFFFF)
    radeon.vram.view[place : place + len(blob)] = blob
    with opened(radeon) as card:
        assert card.info.doubts == ("the card's gc table is version 1.9, the driver knows 1.3",)


def test_a_block_of_an_unknown_version_is_driven_as_the_nearest_one_on_demand(caplog):
    radeon = virtual("navi48", vram_bytes=VRAM)
    place = radeon.vram.size_bytes - made.TOP_OFFSET
    (size,) = struct.unpack_from("<H", radeon.vram.view, place + 10)
    blob = bytearray(radeon.vram.view[place : place + size])
    # struct ip_v3 of discovery.h: hw_id, instance, number of bases, version
    at = re.search(rb"\x22\x00\x00.\x04\x01\x00", blob, re.DOTALL).start()
    blob[at + 6] = 9
    # binary_header.table_list: the list of blocks
    first, _, length = struct.unpack_from("<HHH", blob, 12)
    struct.pack_into("<H", blob, 14, sum(blob[first : first + length]) & 0xFFFF)
    struct.pack_into("<H", blob, 8, sum(blob[10:]) & 0xFFFF)
    radeon.vram.view[place : place + size] = blob
    wanted = r"MMHUB is version 4\.1\.9, .*no rows.*; the nearest is 4\.1\.0 and `ringup up --force`"
    with pytest.raises(NotSupported, match=wanted):
        opened(radeon)
    with ringup.open(radeon.name, transport={"card": radeon}, force=True) as card:
        told = "MMHUB is version 4.1.9, which this driver has no rows for; it is driven as 4.1.0, by force"
        assert card.info.doubts == (told,)
        assert told in caplog.text
