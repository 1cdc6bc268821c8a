"""What GSP-RM is told and tells, in the bytes of each release."""

from __future__ import annotations

import struct

import pytest

from ringup.autogen.nv.gsp_rpc import rpc_rc_triggered_v17_02
from ringup.autogen.nv.gsp_static import GspStaticConfigInfo, GspSystemInfo
from ringup.drivers.nv.bus.chips import CHIPS
from ringup.drivers.nv.gsp import arguments, events, releases, system
from ringup.errors import DeviceHung, NotSupported
from ringup.silicon import nvidia_card

ROWS = {chip.name: chip for chip in CHIPS}
# gsp_static_config.h of each tag, by the sizes that its members add up to
SYSTEM_BYTES = {"535.113.01": 664, "535.261.03": 672, "570.144": 928, "570.195.03": 936}
STATIC_BYTES = {"535.113.01": 2168, "535.261.03": 2168, "570.144": 1656, "570.195.03": 1656}


@pytest.mark.parametrize("release", SYSTEM_BYTES)
def test_structs_have_the_bytes_of_their_exact_release(release):
    assert SYSTEM_BYTES[release] == releases.struct(GspSystemInfo, release).SIZE
    assert STATIC_BYTES[release] == releases.struct(GspStaticConfigInfo, release).SIZE
    assert len(system.system_info(nvidia_card("ga102"), ROWS["ga102"], release)) == SYSTEM_BYTES[release]


def test_an_unknown_release_has_no_structs():
    with pytest.raises(NotSupported, match=r"release 535\.54\.03: its structs are not known"):
        releases.struct(GspSystemInfo, "535.54.03")


def test_535_113_has_its_own_places():
    # OGKM 535.113.01 gsp_static_config.h, g_rpc-structures.h
    assert releases.struct(GspSystemInfo, "535.113.01").offset_of("bIsPassthru") == 608
    assert releases.struct(GspSystemInfo, "535.113.01").offset_of("gspVFInfo") == 624
    assert releases.struct(GspSystemInfo, "535.261.03").offset_of("bIsPassthru") == 610
    assert releases.struct(rpc_rc_triggered_v17_02, "535.113.01").SIZE == 20
    assert "virtualConfigBits" not in releases.struct(GspSystemInfo, "570.144").members()


def test_system_information_names_the_bars_and_the_mirror():
    card = nvidia_card("ga102")
    raw = system.system_info(card, ROWS["ga102"], "535.113.01")
    bars = struct.unpack_from("<3Q", raw)
    assert bars == system.memory_bars(card)[:3]
    assert len(set(bars)) == 3
    assert struct.unpack_from("<QII", raw, 56) == (1 << 47, 0x8_8000, 0x1000)
    raw = system.system_info(nvidia_card("gh100"), ROWS["gh100"], "570.144")
    # pciConfigMirrorBase and Size, PCIDeviceID
    assert struct.unpack_from("<II", raw, 80) == (0x9_2000, 0x1000)
    assert struct.unpack_from("<HH", raw, 88)[0] == 0x10DE


class Config:
    """Configuration space with the BARs of a list."""

    def __init__(self, bars):
        self.bars = bars

    def read(self, offset, size_bytes=4):
        """Read a dword of the BARs."""
        return self.bars[(offset - 0x10) // 4]


# PCI local bus specification 3.0, 6.2.5.1: bit 0 for I/O, bits 2:1 are 2 for a BAR of 64 bits, bit 3 for prefetchable
BARS = {
    "registers of 32 bits": (0xF600_0000, 0xE000_000C, 0x20, 0xF000_000C, 0x21, 0xE001),
    "registers of 64 bits": (0xF600_000C, 0, 0xE000_000C, 0x20, 0xF000_000C, 0x21),
}


@pytest.mark.parametrize("kind", BARS)
def test_bars_are_counted_not_numbered(kind):
    device = type("Device", (), {"config": Config(BARS[kind]), "name": "card"})()
    assert system.memory_bars(device) == (0xF600_0000, 0x20_E000_0000, 0x21_F000_0000)
    device.config.bars = (0xF600_0000, 0xE000_000C, 0x20, 0, 0, 0xE001)
    with pytest.raises(DeviceHung, match="card: 2 of its BARs have addresses"):
        system.memory_bars(device)


def test_a_cards_place_is_taken_from_its_name():
    assert system._bus_device_function("pci:0001:03:1f.7") == 0x1_0000_031F
    assert system._bus_device_function("virtual:ga102") == 0


def test_the_registry_is_entries_and_then_names():
    # g_rpc-structures.h, PACKED_REGISTRY_TABLE: size, count; entries of name offset, type 1 (dword), data, length
    assert system.registry({"RMx": 7, "RMyy": 0xFFFF_FFFF}) == (
        struct.pack("<II", 8 + 2 * 16 + 9, 2)
        + struct.pack("<IB3xII", 40, 1, 7, 4)
        + struct.pack("<IB3xII", 44, 1, 0xFFFF_FFFF, 4)
        + b"RMx\0RMyy\0"
    )


def test_static_information_that_cannot_be_is_refused():
    with pytest.raises(DeviceHung, match=r"tells 100 bytes of the card, release 535\.113\.01 has 2168"):
        system.static_info(bytes(100), "535.113.01")
    raw = bytearray(2168)
    struct.pack_into("<I", raw, 840, 17)
    with pytest.raises(DeviceHung, match="17 regions of memory; the most are 16"):
        system.static_info(bytes(raw), "535.113.01")
    raw = bytearray(b"\xff" * 2168)
    struct.pack_into("<I", raw, 840, 0)
    assert len(system.static_info(bytes(raw), "535.113.01").gid) == 16


def test_names_of_regions_are_numbers_with_the_first_letter_highest():
    # libos_init_args.h; Linux nouveau r535.c, r535_gsp_libos_id8
    assert arguments.region_id("RMARGS") == 0x524D_4152_4753
    assert arguments.region_id("LOGINTR") == 0x4C4F_4749_4E54_52
    for name in ("", "LOGLOGLOG", "Ümlaut"):
        with pytest.raises(ValueError, match="1 to 8 letters"):
            arguments.region_id(name)


def test_events_are_decoded_by_release():
    # rpc_os_error_log_v17_00: exceptType, runlistId, chid, errString
    line = struct.pack("<III", 31, 0, 5) + b"MMU Fault".ljust(256, b"\0")
    assert events.error_log(line, "535.113.01") == events.ErrorLog(31, 5, "MMU Fault")
    # rpc_rc_triggered_v17_02 of 535.113.01: engine, chid, exceptType, scope
    assert events.triggered(struct.pack("<IIIIHxx", 1, 5, 31, 1, 0), "535.113.01") == events.Triggered(1, 5, 31, 1)
    # of 570: engine, chid, gfid, exceptLevel, exceptType, scope, …
    newer = struct.pack("<IIIIIIHxx5I", 1, 5, 0, 2, 31, 1, 0, 0, 0, 0, 0, 0)
    assert events.triggered(newer, "570.144") == events.Triggered(1, 5, 31, 1)
    posted = struct.pack("<IIIIHxxIIB", 1, 2, 3, 4, 5, 6, 3, 1) + b"abcdef"
    assert events.posted(posted, "535.113.01") == events.Posted(1, 2, 3, 4, 5, 6, b"abc")
    printed = struct.pack("<II", 9, 2) + b"xyz"
    assert events.printed(printed, "570.144") == events.Printed(9, b"xy")
    for decode in (events.error_log, events.triggered, events.posted, events.printed):
        with pytest.raises(DeviceHung, match="an event of 3 bytes"):
            decode(b"abc", "535.113.01")
