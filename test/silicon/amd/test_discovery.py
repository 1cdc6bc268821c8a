"""The discovery binary, read by an independent parser. It is written from amdgpu's discovery.h, with plain offsets and
without generated layouts.
"""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.amd.board import discovery
from ringup.silicon.amd.board.chips import CHIPS, find

HEADER, TABLES = "<IHHHH", 6
# Dwords of gc_info_v1_2 behind its 12-byte header.
GC_MEMBERS = 30


def u16(data, at):
    return struct.unpack_from("<H", data, at)[0]


class Parsed:
    def __init__(self, data):
        self.signature, major, _, checksum, size = struct.unpack_from(HEADER, data)
        assert self.signature == 0x28211407
        assert major in (1, 2)
        assert size == len(data)
        assert checksum == sum(data[10:]) & 0xFFFF
        self.data = data
        self.tables = [struct.unpack_from("<HHHH", data, 12 + 8 * n) for n in range(TABLES)]
        for offset, checksum, size, _ in self.tables:
            if offset:
                assert checksum == sum(data[offset : offset + size]) & 0xFFFF
        self.blocks = list(self._blocks(self.tables[0][0]))

    def _blocks(self, at):
        signature, version, size, _, dies = struct.unpack_from("<IHHIH", self.data, at)
        assert (signature, version, dies) == (0x53445049, 3, 1)
        die_id, die_offset = struct.unpack_from("<HH", self.data, at + 14)
        assert (die_id, u16(self.data, die_offset)) == (0, 0)
        count, place = u16(self.data, die_offset + 2), die_offset + 4
        for _ in range(count):
            hw_id, instance, bases, major, minor, revision, _ = struct.unpack_from("<HBBBBBB", self.data, place)
            found = struct.unpack_from(f"<{bases}I", self.data, place + 8)
            yield hw_id, instance, (major, minor, revision), found
            place += 8 + 4 * bases
        assert place == at + size


@pytest.fixture(scope="module", params=CHIPS)
def chip(request):
    return request.param


@pytest.fixture(scope="module")
def parsed(chip):
    return Parsed(discovery.build(find(chip)))


def test_every_checksum_and_length_is_right(parsed):
    # A driver reads DISCOVERY_TMR_SIZE bytes.
    assert len(parsed.data) < 10 << 10


# Of a generation.
SHARED = {
    11: {4: (13, 0, 6), 41: (6, 0, 0), 46: (4, 3, 0), 150: (8, 10, 0)},
    12: {4: (14, 0, 2), 41: (7, 0, 0), 46: (4, 15, 0), 150: (8, 14, 0), 70: (6, 1, 0), 35: (4, 1, 0)},
}
# Counts by number of soc15_hw_ip.h. Graphics, copies, security, power and display are from the kernel's
# dgpu-asic-info-table.csv.
VERSIONS = {
    "navi31": {11: (11, 0, 0), 42: (6, 0, 0), 43: (6, 0, 0), 255: (13, 0, 0), 1: (13, 0, 0), 34: (3, 0, 0), 108: (4, 3, 0),
               40: (6, 0, 0), 271: (3, 2, 0), 91: (6, 0, 0)},
    "navi32": {11: (11, 0, 3), 42: (6, 0, 3), 43: (6, 0, 3), 255: (13, 0, 10), 1: (13, 0, 10), 34: (3, 0, 0), 108: (4, 3, 0),
               40: (6, 0, 0), 271: (3, 2, 0), 91: (6, 0, 3)},
    "navi33": {11: (11, 0, 2), 42: (6, 0, 2), 43: (6, 0, 2), 255: (13, 0, 7), 1: (13, 0, 7), 34: (3, 0, 2), 108: (4, 3, 1),
               40: (6, 0, 2), 271: (3, 2, 1), 91: (6, 0, 2)},
    "navi44": {11: (12, 0, 0), 42: (7, 0, 0), 43: (7, 0, 0), 255: (14, 0, 2), 1: (14, 0, 2), 34: (4, 1, 0), 108: (6, 3, 1),
               40: (7, 0, 0), 271: (4, 1, 0), 91: (7, 0, 0)},
    "navi48": {11: (12, 0, 1), 42: (7, 0, 1), 43: (7, 0, 1), 255: (14, 0, 3), 1: (14, 0, 3), 34: (4, 1, 0), 108: (6, 3, 1),
               40: (7, 0, 0), 271: (4, 1, 0), 91: (7, 0, 1)},
}  # fmt: skip


def test_a_driver_finds_the_blocks_of_the_chip(parsed, chip):
    wanted = VERSIONS[chip] | SHARED[VERSIONS[chip][11][0]]
    assert {block[0]: block[2] for block in parsed.blocks if block[0] in wanted} == wanted


def test_bases_lead_to_registers_the_driver_has_compiled_in(parsed):
    bases = {(hw_id, instance): bases for hw_id, instance, _, bases in parsed.blocks}
    # mmMP0_SMN_C2PMSG_33 of amdgpu_discovery.c
    assert bases[255, 0][0] + 0x61 == 0x16061
    assert bases[108, 0][2] + 0xC3 == 0xDE3  # mmRCC_CONFIG_MEMSIZE there
    assert bases[4, 0][1] == 0x16A00  # mmIP_DISCOVERY_VERSION there
    # SDMA's registers belong to GC.
    assert bases[11, 0] == bases[42, 0] == bases[43, 0]


def test_the_data_fabric_has_the_segment_that_its_header_names(parsed):
    # regDF_CS_UMC_AON0_HardwareAssertMaskLow_BASE_IDX is 4. A driver indexes the list without a check.
    assert [len(bases) for hw_id, _, _, bases in parsed.blocks if hw_id == 46] == [5]


def test_the_shape_of_the_graphics_core_is_the_boards(parsed, chip):
    cus, channels, l2_kib = {
        "navi31": (96, 24, 6144),
        "navi32": (60, 16, 4096),
        "navi33": (32, 8, 2048),
        "navi44": (32, 8, 4096),
        "navi48": (64, 16, 8192),
    }[chip]
    at = parsed.tables[1][0]
    table_id, major, minor, size = struct.unpack_from("<IHHI", parsed.data, at)
    assert (table_id, major, minor, size) == (0x4347, 1, 2, 12 + 4 * GC_MEMBERS)
    gc = struct.unpack_from(f"<{GC_MEMBERS}I", parsed.data, at + 12)
    engines, wgp0, wgp1, arrays = gc[0], gc[1], gc[2], gc[16]
    assert engines * arrays * (wgp0 + wgp1) * 2 == cus
    # Render backends, GL2 channels, wave size, LDS in KiB.
    assert (gc[3], gc[4], gc[11], gc[14]) == (
        4,
        channels,
        32,
        64,
    )
    # GL2 of the chip.
    assert gc[29] == l2_kib


def test_video_is_listed_and_harvested(parsed):
    at = parsed.tables[2][0]
    assert struct.unpack_from("<I", parsed.data, at)[0] == 0x56524148
    entries = [struct.unpack_from("<HBB", parsed.data, at + 8 + 4 * n) for n in range(32)]
    listed = {(hw_id, instance) for hw_id, instance, _, _ in parsed.blocks if hw_id == 12}
    assert {(hw_id, instance) for hw_id, instance, _ in entries if hw_id} == listed == {(12, 0), (12, 1)}


def test_the_last_level_cache_is_the_boards(parsed, chip):
    # The Infinity Cache, from AMD's data sheets.
    mib = {"navi31": 96, "navi32": 64, "navi33": 32, "navi44": 32, "navi48": 64}[chip]
    at = parsed.tables[4][0]
    table_id, major, _, size, each, present, half = struct.unpack_from("<IHHIIII", parsed.data, at)
    assert (table_id, major, size, present, half) == (0x4C4C414D, 1, 48, 0, 0)
    assert each * sum(hw_id == 150 for hw_id, *_ in parsed.blocks) == mib << 20


def test_the_bus_interface_has_the_six_segments_that_its_header_names(parsed):
    # nbio_4_3_0_offset.h and nbif_6_3_1_offset.h: BASE_IDX 0 to 5
    assert {len(bases) for hw_id, _, _, bases in parsed.blocks if hw_id == 108} == {6}
