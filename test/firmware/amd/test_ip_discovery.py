"""The discovery binary: what a card's own list contains, and damage that must be reported."""

import re
import struct

import pytest

from ringup.autogen.amd import discovery as facts
from ringup.errors import FirmwareError
from ringup.firmware.amd import build_tables, discovery
from ringup.firmware.amd.discovery import Ip, parse
from ringup.silicon import card

GC, VCN, SDMA0, UMC = facts.GC_HWID, facts.VCN_HWID, facts.SDMA0_HWID, facts.UMC_HWID
VRAM_BYTES = 64 << 20
IPS = (
    Ip(GC, 0, (11, 0, 0), (0x1260, 0xA000)),
    Ip(VCN, 1, (4, 0, 0), (0x7800,), fused=0x80),
    Ip(SDMA0, 0, (6, 0, 0), ()),
)


def table(index):
    """Return a binary with one of each table, version 1."""
    rows = {
        facts.GC: build_tables.info_table(facts.GC, (1, 2), {"gc_num_se": 6}),
        facts.HARVEST_INFO: build_tables.harvest_table([(VCN, 1), (UMC, 5)]),
        facts.MALL_INFO: build_tables.info_table(facts.MALL_INFO, (2, 0), {"mall_size_per_umc": 0x100_0000}),
        facts.VCN_INFO: build_tables.info_table(facts.VCN_INFO, (1, 0), {"num_of_instances": 2}),
        facts.NPS_INFO: build_tables.info_table(facts.NPS_INFO, (1, 0), {"count": 4}),
    }
    return rows[index]


FULL = tuple(map(table, (facts.GC, facts.HARVEST_INFO, facts.VCN_INFO, facts.MALL_INFO, facts.NPS_INFO)))


def patched(blob, at, value, form="<H", *, whole=True):
    """Change a field. Also correct the checksum of the whole binary, unless it is to be wrong too."""
    made = bytearray(blob)
    struct.pack_into(form, made, at, value)
    if whole:
        struct.pack_into("<H", made, 8, sum(made[10 : struct.unpack_from("<H", made, 10)[0]]) & 0xFFFF)
    return bytes(made)


def table_at(blob, index):
    return struct.unpack_from("<H", blob, 12 + 8 * index)[0]


@pytest.mark.parametrize(
    (
        "chip",
        "version",
        "units",
    ),  # gc_info of a full card: shader engines, work-group processors of an array, arrays of an engine
    [("navi31", (11, 0, 0), (6, 4, 2)), ("navi32", (11, 0, 3), (3, 5, 2)), ("navi33", (11, 0, 2), (2, 4, 2))],
)
def test_a_card_is_read_as_its_memory_shows_it(chip, version, units):
    radeon = card(chip, vram_bytes=VRAM_BYTES)
    found = parse(radeon.vram.read(VRAM_BYTES - discovery.FROM_END_BYTES, discovery.SIZE_BYTES))
    core = found.ip(GC)
    assert core.version == version
    assert core.bases[:2] == (0x1260, 0xA000)
    info = found.require("gc")
    assert (info["gc_num_se"], info["gc_num_wgp0_per_sa"], info["gc_num_sa_per_se"]) == units
    # Such a card may lack these tables.
    assert set(found.reasons) <= {"vcn", "nps"}


def test_every_table_is_read():
    found = parse(build_tables.discovery_binary([IPS], FULL))
    assert found.ips == IPS
    assert found.harvest == ((VCN, 1), (UMC, 5))
    assert found.harvested(VCN, 1)
    assert not found.harvested(VCN, 0)
    assert found.require("gc")["gc_num_se"] == 6
    assert found.require("mall")["mall_size_per_umc"] == 0x100_0000
    assert found.require("vcn")["num_of_instances"] == 2
    assert found.require("nps")["count"] == 4
    assert not found.reasons


def test_a_damaged_harvest_table_is_never_taken_for_a_whole_card():
    blob = build_tables.discovery_binary([IPS], FULL)
    at = table_at(blob, facts.HARVEST_INFO)
    with pytest.raises(
        FirmwareError, match="what is fused off is not known: discovery: the bytes of the harvest table"
    ):
        parse(patched(blob, at + 8, 0)).harvested(VCN, 1)
    assert not parse(build_tables.discovery_binary([IPS])).harvested(VCN, 1)  # a card without the table


def test_bits_of_a_video_cores_revision_are_no_version():
    """amdgpu_discovery.c: bits 7:6 of a VCN's revision say what is fused off."""
    blob = build_tables.discovery_binary([[Ip(VCN, 0, (4, 0, 2), (1,), fused=0x40), Ip(SDMA0, 0, (6, 0, 0x42), ())]])
    video, copy = parse(blob).ips
    assert (video.version, video.fused) == ((4, 0, 2), 0x40)
    assert (copy.version, copy.fused) == ((6, 0, 0x42), 0)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_of_the_list_is_read(version):
    ip = (
        Ip(UMC, 7, (8, 10, 1), (1, 0xFFFF_FFFF), sub_revision=3, variant=2)
        if version >= 3
        else Ip(UMC, 7, (8, 10, 1), (1, 2), harvest=5)
    )
    assert parse(build_tables.discovery_binary([[ip]], version=version)).ips == (ip,)


def test_wide_bases_are_cut_to_dwords_of_a_32_bit_space():
    """amdgpu_discovery_reg_base_init: the low half, without its two highest bits."""
    blob = build_tables.discovery_binary([[Ip(UMC, 0, (8, 14, 0), (0x1_C000_0123, 5)), *IPS]], version=4, wide=True)
    assert parse(blob).ips[0].bases == (0x123, 5)
    assert parse(blob).ips[1:] == IPS


def test_blocks_of_a_second_die_follow_those_of_the_first():
    found = parse(build_tables.discovery_binary([IPS, [Ip(SDMA0, 3, (6, 0, 0), (9,))]]))
    assert found.ips[:3] == IPS
    assert (found.ips[3].die, found.ips[3].bases) == (1, (9,))
    assert [ip.instance for ip in found.find(SDMA0)] == [0, 3]
    with pytest.raises(FirmwareError, match="the card lists no SDMA0 instance 2"):
        found.ip(SDMA0, 2)


def test_entries_that_amdgpu_skips_are_skipped():
    """amdgpu_discovery_validate_ip: hw_id below 300, instance below 44."""
    blob = build_tables.discovery_binary([[Ip(300, 0, (1, 0, 0), (1,)), Ip(GC, 44, (1, 0, 0), (2,)), *IPS]])
    assert parse(blob).ips == IPS


@pytest.mark.parametrize("minor", [3, 4, 9])
def test_a_newer_minor_version_of_a_table_is_read_as_the_newest_known(minor):
    gc = build_tables.info_table(facts.GC, (1, 3), {"gc_tcc_size": 77})
    newer = bytearray(gc.data)
    struct.pack_into("<H", newer, 6, minor)
    found = parse(build_tables.discovery_binary([IPS], [build_tables.TableBytes(facts.GC, bytes(newer))]))
    assert found.require("gc")["gc_tcc_size"] == 77


@pytest.mark.parametrize("index", [facts.GC, facts.HARVEST_INFO, facts.MALL_INFO, facts.VCN_INFO, facts.NPS_INFO])
def test_a_damaged_table_is_left_out_with_its_reason_and_the_others_stay(index):
    name = {
        facts.GC: "gc",
        facts.HARVEST_INFO: "harvest",
        facts.MALL_INFO: "mall",
        facts.VCN_INFO: "vcn",
        facts.NPS_INFO: "nps",
    }[index]
    blob = build_tables.discovery_binary([IPS], FULL)
    at = table_at(blob, index)
    size = len(table(index).data)
    damages = {
        r"add up to 0x": patched(blob, at + size - 1, 0x55, "<B"),
        rf"byte {at} holds 0x": patched(blob, at, 0x1111),
        r"the binary ends at byte|the image ends at byte": patched(blob, 12 + 8 * index, len(blob) - 9),
    }
    for reason, damaged in damages.items():
        found = parse(damaged)
        assert list(found.reasons) == [name]
        assert re.search(reason, found.reasons[name])
        assert getattr(found, name) is None
        assert found.ips == IPS
    assert parse(patched(blob, 12 + 8 * index, 0)).reasons == {name: "the binary has none"}


def test_a_table_that_must_be_there_says_why_it_is_not():
    with pytest.raises(FirmwareError, match="no gc table: the binary has none"):
        parse(build_tables.discovery_binary([IPS])).require("gc")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda blob: b"", "the binary header takes bytes 0 to 60, the image ends at byte 0"),
        (lambda blob: blob[:59], "the binary header takes bytes 0 to 60"),
        (
            lambda blob: patched(blob, 0, 0x1234, "<I"),
            "byte 0 holds 0x00001234, a discovery binary begins with 0x28211407",
        ),
        (lambda blob: blob[:-1], "byte 10 says"),
        (lambda blob: patched(blob, 10, 59, whole=False), "byte 10 says 59 bytes"),
        (lambda blob: patched(blob, 8, 0, whole=False), "the bytes of the binary from byte 10 add up to"),
        (lambda blob: patched(blob, 12, len(blob) - 8), "the list of blocks takes bytes"),
        (lambda blob: patched(blob, 60, 0, "<I"), "byte 60 holds 0x00000000, a list of blocks begins with 0x53445049"),
        (lambda blob: patched(blob, 14, 0), "the bytes of the list of blocks from byte 60 add up to"),
        (lambda blob: patched(blob, 66, 0xFFFF), "the list of blocks takes bytes 60 to 65595"),
    ],
)
def test_a_damaged_list_of_blocks_is_an_error_that_names_the_byte(damage, message):
    with pytest.raises(FirmwareError) as caught:
        parse(damage(build_tables.discovery_binary([IPS], FULL)), "card 3")
    assert str(caught.value).startswith("card 3: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    # Bytes in the list of blocks. The test corrects the checksums.
    [
        (4, 0, "says version 0 of the list of blocks"),
        (4, 5, "says version 5 of the list of blocks"),
        (12, 17, "counts 17 dies"),
        (80, 3, "byte 140 calls the die 3, the list calls it 0"),
        (16, 0xFFFF, "die 0 takes bytes 65535"),
        (82, 0xFFFF, "counts 65535 blocks"),
        (82, 900, "takes bytes"),
    ],
)
def test_an_impossible_list_is_an_error(at, value, message):
    made = bytearray(build_tables.discovery_binary([IPS]))
    struct.pack_into("<H", made, 60 + at, value)
    size = struct.unpack_from("<H", made, 66)[0]
    struct.pack_into("<H", made, 14, sum(made[60 : 60 + size]) & 0xFFFF)
    with pytest.raises(FirmwareError, match=message):
        parse(patched(bytes(made), 60 + at, value))
