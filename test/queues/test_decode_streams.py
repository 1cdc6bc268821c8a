"""Decoders: what no engine accepts is shown with a note, indirect buffers are followed within limits, and live rings
are read around their end.
"""

import pytest

from ringup.errors import DeviceLost, NotSupported
from ringup.queues.amd.decode_pm4 import Pm4Decoder, decode_pm4
from ringup.queues.amd.decode_sdma import SdmaDecoder, decode_sdma
from ringup.queues.amd.umr_text import document, lines
from ringup.queues.decode import MAX_DEPTH, MAX_DWORDS, decode_ring
from ringup.queues.dwords import to_bytes

NAVI31, SDMA6, SDMA7 = (11, 0, 0), (6, 0, 0), (7, 0, 0)
CALL = [0xC002_3F00, 0x1000, 0, 0x0080_0004]  # 4 dwords at 0x1000

# dwords, the name of each packet and its note
STRANGE_PM4 = {
    "unknown opcode": ([0xC001_FE00, 1, 2], [("UNKNOWN_0xfe", "no opcode 0xfe in this version")]),
    "of another version": (
        [0xC000_D200, 0],
        [("UNKNOWN_0xd2", "no opcode 0xd2 in this version")],
    ),  # soc15d.h: RUN_CLEANER_SHADER, GFX9
    "truncated": ([0xC003_1500, 1, 2], [("DISPATCH_DIRECT", "truncated: the header says 5 dwords, 3 are left")]),
    "header alone": ([0xC003_3700], [("WRITE_DATA", "truncated: the header says 5 dwords, 1 are left")]),
    "too short": ([0xC002_1500, 1, 2, 3], [("DISPATCH_DIRECT", "3 dwords behind the header, its layout has 4")]),
    "too long": ([0xC001_4600, 0x407, 9], [("EVENT_WRITE", "1 dwords more than its layout has")]),
    "type 0": ([0x0001_2E40, 5, 6], [("TYPE_0", "type-0 packets are not taken by compute queues")]),
    "type 0, truncated": (
        [0x0005_2E40, 5],
        [("TYPE_0", "type-0 packets are not taken by compute queues; truncated: the header says 7 dwords, 2 are left")],
    ),
    "type 1": ([0x4000_0000], [("TYPE_1", "no engine takes type-1 packets")]),
    "type 2": ([0x8000_0000, 0xC000_4200, 0], [("TYPE_2", "filler of one dword"), ("PFP_SYNC_ME", "")]),
    "reserved header bits": ([0xC000_4208, 0], [("PFP_SYNC_ME", "reserved header bits 0x8")]),
    "known, not laid out": ([0xC001_2700, 1, 2], [("DRAW_INDEX_2", "")]),
}


@pytest.mark.parametrize("name", STRANGE_PM4)
def test_pm4_that_no_engine_takes_is_shown(name):
    dwords, expected = STRANGE_PM4[name]
    packets = decode_pm4(dwords, NAVI31)
    assert [(packet.name, packet.note) for packet in packets] == expected
    assert [dword for packet in packets for dword in packet.raw] == dwords


def test_operands_are_as_many_as_were_there():
    (packet,) = decode_pm4([0xC003_1500, 1, 2], NAVI31)
    assert packet.fields == {"dim_x": 1, "dim_y": 2}
    (packet,) = decode_pm4([0xC001_2700, 1, 2], NAVI31)
    assert packet.fields == {"dword_1": 1, "dword_2": 2}
    (packet,) = decode_pm4([0x0001_2E40, 5, 6], NAVI31)
    assert packet.registers == ((0x2E40, 5), (0x2E41, 6))
    # EVENT_WRITE has no field for this bit.
    (packet,) = decode_pm4([0xC000_4600, 0x407 | 1 << 20], NAVI31)
    assert packet.fields["EVENT_WRITE_CONTROL.reserved"] == 1 << 20
    (packet,) = decode_pm4([0xC000_4201, 0], NAVI31)
    assert packet.fields["predicate"] == 1


def test_operands_that_a_selector_chooses_have_the_chosen_names():
    wait = decode_pm4([0xC005_3C00, 0x43, 0x290B, 0x291D, 1, 1, 0x20], NAVI31)[0]
    assert (wait.fields["poll_register"], wait.fields["second_register"]) == (0x290B, 0x291D)
    assert "poll_addr" not in wait.fields
    copy = decode_pm4([0xC004_4000, 0x0010_0500, 0xC040, 0, 0x1000, 2], NAVI31)[0]
    assert (copy.fields["src_register"], copy.fields["dst_addr"]) == (0xC040, 0x2_0000_1000)
    write = decode_pm4([0xC003_3700, 0x0010_0000, 0x2955, 0, 7], NAVI31)[0]
    assert (write.fields["dst_register"], write.fields["data[0]"]) == (0x2955, 7)


def test_bytes_behind_the_last_dword_are_shown():
    packets = decode_pm4(to_bytes([0xFFFF_1000]) + b"\1\2", NAVI31)
    assert [(packet.name, packet.raw, packet.note) for packet in packets] == [
        ("NOP", (0xFFFF_1000,), ""),
        ("BYTES", (0x201,), "2 bytes behind the last whole dword"),
    ]


STRANGE_SDMA = {
    "unknown opcode": (
        [0x3F, 1],
        [
            ("UNKNOWN_0x3f_0x0", "no such packet in this version"),
            ("COPY_LINEAR", "truncated: it has 7 dwords, 1 are left"),
        ],
    ),
    "unknown sub-opcode": ([0x0901], [("UNKNOWN_0x1_0x9", "no such packet in this version")]),
    "truncated": ([5, 0x1000], [("FENCE", "truncated: it has 4 dwords, 2 are left")]),
    "truncated data": ([2, 0x1000, 0, 3, 1, 2], [("WRITE_UNTILED", "truncated: it has 8 dwords, 6 are left")]),
    "truncated before its count": ([2, 0x1000], [("WRITE_UNTILED", "truncated: it has 4 dwords, 2 are left")]),
    "skipped dwords": ([0x0002_0000, 0xFFFF_FFFF, 5, 0x06, 9], [("NOP", ""), ("TRAP", "")]),
}


@pytest.mark.parametrize("name", STRANGE_SDMA)
def test_sdma_that_no_engine_takes_is_shown(name):
    dwords, expected = STRANGE_SDMA[name]
    packets = decode_sdma(dwords, SDMA6)
    assert [(packet.name, packet.note) for packet in packets] == expected
    assert [dword for packet in packets for dword in packet.raw] == dwords


def test_a_copy_of_sdma_7_has_an_eighth_dword_when_its_header_says_so():
    plain = [1, 99, 0, 0x1000, 0, 0x2000, 0]
    treated = [0x0008_0001, 99, 0, 0x1000, 0, 0x2000, 0, 0x0105_0000]  # sdma_v7_0.c: CPV(1)
    packets = decode_sdma([*plain, *treated, 6, 0], SDMA7)
    assert [(packet.name, len(packet.raw)) for packet in packets] == [
        ("COPY_LINEAR", 7),
        ("COPY_LINEAR", 8),
        ("TRAP", 2),
    ]
    assert [packets[1].fields[name] for name in ("read_cm", "write_cm", "max_com")] == [1, 1, 1]
    # SDMA 6 takes the eighth dword for a header.
    assert [packet.name for packet in decode_sdma(treated, SDMA6)] == [
        "COPY_LINEAR",
        "NOP",
    ]


def test_indirect_buffers_are_followed():
    asked = []

    def fetch(gpu_va, size_bytes):
        asked.append((gpu_va, size_bytes))
        return to_bytes([0xC000_4600, 0x407, 0xFFFF_1000, 0xFFFF_1000])

    (packet,) = decode_pm4(CALL, NAVI31, fetch)
    assert asked == [(0x1000, 16)]
    assert [inner.name for inner in packet.inner] == ["EVENT_WRITE", "NOP", "NOP"]
    (packet,) = decode_sdma(
        [4, 0x1000, 1, 8, 0, 0], SDMA6, lambda gpu_va, size_bytes: to_bytes([6, gpu_va >> 32, *[0] * 6])
    )
    assert [inner.name for inner in packet.inner] == ["TRAP", *["NOP"] * 6]
    assert packet.inner[0].fields["int_context"] == 1


def test_following_is_bounded_and_says_why_it_ends():
    (packet,) = decode_pm4(CALL, NAVI31, lambda gpu_va, size_bytes: to_bytes(CALL))
    assert [inner.note for inner in packet.inner] == ["not followed: it is being shown already"]

    depth, packet = (
        0,
        decode_pm4(CALL, NAVI31, lambda gpu_va, size_bytes: to_bytes([CALL[0], gpu_va + 16, 0, CALL[3]]))[0],
    )
    while packet.inner:
        depth, packet = depth + 1, packet.inner[0]
    assert (depth, packet.note) == (MAX_DEPTH, f"not followed: deeper than {MAX_DEPTH} indirect buffers")

    # Each has nearly as many dwords as the decoder follows in total.
    many = [0xC002_3F00, 0x1000, 0, 0x008F_FFFF] * 2
    packets = decode_pm4(many, NAVI31, lambda gpu_va, size_bytes: bytes(8))
    assert packets[0].note == "8 of its 4194300 bytes were there"
    assert packets[1].note == f"not followed: 1048575 dwords, {MAX_DWORDS - 0xF_FFFF} are left of the limit"

    def lost(gpu_va, size_bytes):
        raise DeviceLost("the card is gone")

    assert decode_pm4(CALL, NAVI31, lost)[0].note == "not followed: the card is gone"
    assert decode_sdma([4, 0x1000, 0, 8, 0, 0], SDMA6, lost)[0].note == "not followed: the card is gone"
    assert decode_pm4([*CALL[:3], CALL[3] | 1 << 20], NAVI31)[0].note == "chained: what follows is not run"


def test_a_ring_is_read_around_its_end():
    ring = bytearray(to_bytes([0xFFFF_1000] * 16))
    ring[14 * 4 :] = to_bytes([0xC003_3700, 0x0010_0500])
    ring[: 3 * 4] = to_bytes([0x1000, 0, 7])
    decoder = Pm4Decoder(NAVI31)
    # The pointers of a compute ring never wrap.
    for turns in (0, 5):
        (packet,) = decode_ring(decoder, memoryview(ring), 14 + 16 * turns, 19 + 16 * turns)
        assert (packet.name, packet.fields["dst_addr"], packet.fields["data[0]"]) == ("WRITE_DATA", 0x1000, 7)
    # These pointers wrap with the ring.
    assert decode_ring(decoder, ring, 14, 3) == decode_ring(decoder, ring, 14, 19)
    assert decode_ring(decoder, ring, 3, 3) == []
    # Only the last ringful of dwords is there: from dword 3 round to it.
    assert len(decode_ring(decoder, ring, 0, 3 + 160)) == 12
    sdma = bytearray(to_bytes([0, 0, 0, 9, 6, 0, 0, 6]))  # SDMA rings count bytes
    packets = decode_ring(SdmaDecoder(SDMA6), sdma, 16, 24, unit_bytes=1)
    assert [packet.name for packet in packets] == ["TRAP"]
    assert decode_ring(SdmaDecoder(SDMA6), sdma, 28, 36, unit_bytes=1)[0].fields == {"int_context": 0}
    with pytest.raises(ValueError, match="whole number of dwords, not 6 bytes"):
        decode_ring(decoder, bytes(6), 0, 1)
    with pytest.raises(ValueError, match="whole dwords, not at bytes 2 and 8"):
        decode_ring(decoder, ring, 2, 8, unit_bytes=1)


def test_text_names_registers_events_and_comparisons():
    names = {0x2E12: ("COMPUTE_PGM_RSRC1", [("VGPRS", 0, 0x3F), ("FLOAT_MODE", 12, 0xFF000), ("PRIV", 20, 0x100000)])}
    stream = [
        0xC002_7600,
        0x212,
        0x000C_0002,
        0x86,
        0xC000_4600,
        0x407,
        0xC005_3C00,
        0x15,
        0x1000,
        0,
        5,
        0xFFFF_FFFF,
        4,
    ]
    assert list(lines(decode_pm4(stream, NAVI31), names.get, everything=False)) == [
        "[0x0000] SET_SH_REG  (c0027600 00000212 000c0002 00000086)",
        "    reg_offset: 0x212",
        "    COMPUTE_PGM_RSRC1 (0x2e12) <- 0x000c0002",
        "        VGPRS: 0x2",
        "        FLOAT_MODE: 0xc0",
        "    0x2e13 <- 0x00000086",
        "[0x0004] EVENT_WRITE  (c0004600 00000407)",
        "    event_type: 0x7 (CS_PARTIAL_FLUSH)",
        "    event_index: 0x4",
        "[0x0006] WAIT_REG_MEM  (c0053c00 00000015 00001000 00000000 00000005 ffffffff 00000004)",
        "    function: 0x5 (GREATER_EQUAL)",
        "    mem_space: 0x1",
        "    poll_addr: 0x1000",
        "    reference: 0x5",
        "    mask: 0xffffffff",
        "    poll_interval: 4",
    ]


def test_text_shows_notes_inner_buffers_and_the_length_of_long_packets():
    packets = decode_pm4([*CALL, 0xC009_1000, *[1] * 5], NAVI31, lambda *_: to_bytes([0xFFFF_1000] * 4))
    text = list(lines(packets, everything=False))
    assert text[0] == "[0x0000] INDIRECT_BUFFER  (c0023f00 00001000 00000000 00800004)"
    assert text[4] == "    [0x0000] NOP  (ffff1000)"
    assert (
        text[8]
        == "[0x0004] NOP  (c0091000 00000001 00000001 00000001 00000001 00000001)  ! truncated: the header says 11 dwords, 6 are left"
    )
    assert " +3)" in next(lines(decode_pm4([0xC009_1000, *[1] * 10], NAVI31)))
    shown = document(packets[0])
    assert shown["fields"]["ib_size"] == 4
    assert [inner["name"] for inner in shown["inner"]] == ["NOP"] * 4


def test_a_version_without_facts_is_refused():
    with pytest.raises(NotSupported, match=r"graphics core \(8, 0, 0\)"):
        Pm4Decoder((8, 0, 0))
    with pytest.raises(NotSupported, match=r"SDMA \(5, 0, 0\)"):
        SdmaDecoder((5, 0, 0))
