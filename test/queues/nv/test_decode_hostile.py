"""NVIDIA's decoder on what no client means: illegal headers, cut runs, GPFIFOs that lead nowhere, noise.

It never raises, shows every dword once and in order, and says what is wrong.
"""

import random
import struct
import sys

import pytest

from ringup.errors import DeviceLost
from ringup.queues.decode import MAX_DWORDS
from ringup.queues.nv.decode import NvDecoder, decode_nv
from ringup.queues.nv.decode_text import document, lines

STREAMS = 100
# clc56f.h: operation 31:29 (0 and 2: the operation in 17:16), count 28:16, subchannel 15:13, method in dwords 11:0
# dwords, the name of each packet and its note
STRANGE = {
    "nothing": ([0, 0], [("NOP", "")]),
    "reserved operation": ([0xC000_0000], [("ILLEGAL", "no such header")]),
    "reserved old operation": ([0x4001_0000], [("ILLEGAL", "no such header")]),
    "reserved bits": ([0x2001_3040, 0], [("INC_METHOD", "reserved header bits 0x1000")]),
    "no data": ([0x2000_2040], [("INC_METHOD", "")]),
    "header alone": (
        [0x2002_2062],
        [("INC_METHOD", "truncated: 0 of 2 data words are in this segment")],
    ),
    "truncated": (
        [0x2003_2062, 1, 2],
        [("INC_METHOD", "truncated: 2 of 3 data words are in this segment")],
    ),
    "end": (
        [0xE000_0000, 0x8000_2040],
        [("END_PB_SEGMENT", "the rest of the segment is not run"), ("IMMD_DATA_METHOD", "")],
    ),
    "subdevice masks": (
        [0x0001_0FF0, 0x0002_0FF0, 0x0003_0000],
        [("SET_SUB_DEV_MASK", ""), ("STORE_SUB_DEV_MASK", ""), ("USE_SUB_DEV_MASK", "")],
    ),
    # count 28:18, method 12:2 in bytes
    "old headers": (
        [0x0008_2188, 0, 0x1000, 0x4008_21B4, 5, 6],
        [("GRP0_INC_METHOD", ""), ("GRP2_NON_INC_METHOD", "")],
    ),
    "unknown methods": (
        [0x2003_205F, 1, 2, 3, 0x8000_A040],
        [("INC_METHOD", "1 unknown methods"), ("IMMD_DATA_METHOD", "1 unknown methods")],
    ),
    "past the last method": ([0x2002_8FFF, 1, 2], [("INC_METHOD", "2 unknown methods")]),
    "no method of the host": ([0x2001_0003, 1], [("INC_METHOD", "1 unknown methods")]),
}


def words(packets):
    return [dword for packet in packets for dword in packet.raw]


def inc(subchannel, address, *values):
    return [0x2000_0000 | len(values) << 16 | subchannel << 13 | address >> 2, *values]


@pytest.mark.parametrize("name", STRANGE)
def test_what_no_client_means_is_shown(name):
    dwords, expected = STRANGE[name]
    packets = decode_nv(dwords, "ga102")
    assert [(packet.name, packet.note) for packet in packets] == expected
    assert words(packets) == dwords


def test_unknown_methods_say_why():
    packets = decode_nv([*inc(1, 0x2D0, 1, 2), *inc(5, 0x100, 1), *inc(4, 0x3FFC, 1, 2), *inc(0, 0xC, 1)], "ga102")
    assert [(method.name, method.values, method.note) for packet in packets for method in packet.methods] == [
        ("UNKNOWN_0x02d0", (1, 2), "no method of AMPERE_COMPUTE_B"),
        ("UNKNOWN_0x0100", (1,), "no class is bound to subchannel 5"),
        ("UNKNOWN_0x3ffc", (1,), "no method of AMPERE_DMA_COPY_B"),
        ("UNKNOWN_0x4000", (2,), "past the last method 0x3ffc"),
        ("UNKNOWN_0x000c", (1,), "no method of AMPERE_CHANNEL_GPFIFO_A"),
    ]


def test_old_headers_name_the_same_methods():
    packets = decode_nv(STRANGE["old headers"][0], "ga102")
    assert [method.name for packet in packets for method in packet.methods] == [
        "OFFSET_OUT_UPPER",
        "OFFSET_OUT",
        "LOAD_INLINE_DATA",
    ]
    assert packets[0].fields == {"subchannel": 1, "address": 0x188, "count": 2}


def test_one_inc_moves_once():
    (packet,) = decode_nv([0xA003_206C, 0x41, 1, 2], "ga102")  # 0x1b0, then 0x1b4
    assert [(method.name, method.values) for method in packet.methods] == [
        ("LAUNCH_DMA", (0x41,)),
        ("LOAD_INLINE_DATA", (1, 2)),
    ]
    (packet,) = decode_nv([0xA003_08E3, 0, 1, 2], "ga102")  # the same element of an array, twice
    assert [(method.name, method.values) for method in packet.methods] == [
        ("LOAD_CONSTANT_BUFFER_OFFSET", (0,)),
        ("LOAD_CONSTANT_BUFFER[0]", (1, 2)),
    ]


def entry(gpu_va, count, level=0, sync=0, fetch=0):
    """clc56f.h, GP_ENTRY: address 39:2, level 41, length 62:42, sync 63, conditional fetch 0."""
    return [gpu_va & 0xFFFF_FFFC | fetch, gpu_va >> 32 | level << 9 | count << 10 | sync << 31]


def memory(segments):
    def fetch(gpu_va, size_bytes):
        return struct.pack(f"<{len(segments[gpu_va])}I", *segments[gpu_va])[:size_bytes]

    return fetch


def test_entries_of_a_gpfifo_pull_in_their_segments():
    segments = {0x12_3456_7000: inc(1, 0, 0xC7C0), 0x1000: [*inc(1, 0x2B4, 5), *inc(4, 0x300, 0x182)]}
    fifo = [*entry(0x12_3456_7000, 2), *entry(0x1000, 4, level=1, sync=1, fetch=1), *[0] * 6]
    decoder = NvDecoder("ga102", fetch=memory(segments | {0x500: [0] * 64}))
    packets = decoder.decode_gpfifo(fifo)
    assert words(packets) == fifo
    assert [packet.note for packet in packets] == ["", "", "3 entries of zeros: no operation"]
    assert packets[0].fields["gpu_va"] == 0x12_3456_7000
    assert (packets[1].fields["length"], packets[1].names) == (
        4,
        {"level": "SUBROUTINE", "sync": "WAIT", "fetch": "CONDITIONAL"},
    )
    assert [inner.methods[0].name for packet in packets for inner in packet.inner] == [
        "SET_OBJECT",
        "SEND_PCAS_A",
        "LAUNCH_DMA",
    ]
    # no fetch function: the entries alone
    assert [packet.inner for packet in NvDecoder("ga102").decode_gpfifo(fifo)] == [(), (), ()]


def test_a_run_may_go_on_in_the_next_segment():
    # dev_pbdma.ref of open-gpu-doc: "the compressed method sequence is split across PB segments". NVK does it for
    # arguments that stand in a buffer of the application.
    segments = {0x1000: [0x2003_2062], 0x2000: [0, 0x5000], 0x3000: [0x8806_20C4]}
    fifo = [*entry(0x1000, 1), *entry(0x2000, 2), *entry(0x2000, 1), *entry(0x3000, 1)]
    packets = NvDecoder("ga102", fetch=memory(segments)).decode_gpfifo(fifo)
    inner = [one for packet in packets for one in packet.inner]
    assert [(one.name, one.note) for one in inner] == [
        ("INC_METHOD", "truncated: 0 of 3 data words are in this segment"),
        ("INC_METHOD", "goes on from the segment before; truncated: 2 of 3 data words are in this segment"),
        ("INC_METHOD", "goes on from the segment before"),
        ("IMMD_DATA_METHOD", ""),
    ]
    assert [method.name for one in inner for method in one.methods] == [
        "OFFSET_OUT_UPPER",
        "OFFSET_OUT",
        "PITCH_OUT",
        "SET_SPA_VERSION",
    ]
    # a segment that is missing in between: the next one begins with a header
    packets = NvDecoder("ga102", fetch=memory(segments)).decode_gpfifo([*fifo[:2], *entry(0x9000, 2), *fifo[6:]])
    assert packets[1].note == "not followed: 36864"
    assert [inner.note for inner in packets[2].inner] == [""]


def test_operations_of_a_gpfifo_are_named():
    # clc56f.h, clc86f.h: length 0; the operation is in 7:0 of the second dword
    packets = NvDecoder("gh100").decode_gpfifo([5, 2, 5, 1, 5, 9, 3 << 8, 4, *entry(0x1000, 1), *entry(0x1000, 0)])
    assert [packet.names.get("opcode") for packet in packets[:4]] == [
        "GP_CRC",
        "ILLEGAL",
        None,
        "SET_PB_SEGMENT_EXTENDED_BASE",
    ]
    assert [packet.note for packet in packets] == ["", "an illegal opcode", "an illegal opcode", "", "", ""]
    assert packets[4].fields["gpu_va"] == 3 << 40 | 0x1000
    (old,) = NvDecoder("ga102").decode_gpfifo([3 << 8, 4])
    assert old.note == "an illegal opcode on ga102"
    (odd,) = NvDecoder("ga102").decode_gpfifo([0x1002, 1 << 10 | 1 << 8])
    assert odd.note == "reserved bits are set"
    assert [one.note for one in NvDecoder("ga102").decode_gpfifo(b"\1\0\0\0\5")] == [
        "half an entry",
        "1 bytes behind the last whole dword",
    ]


def test_following_is_bounded_and_says_why_it_ends():
    def lost(gpu_va, size_bytes):
        raise DeviceLost("the card is gone")

    (packet,) = NvDecoder("ga102", fetch=lost).decode_gpfifo(entry(0x1000, 4))
    assert packet.note == "not followed: the card is gone"
    (packet,) = NvDecoder("ga102", fetch=lost).decode(inc(1, 0x2B4, 5))
    assert packet.methods[0].note == "descriptor not shown: the card is gone"
    (packet,) = NvDecoder("ga102", fetch=lost).decode_gpfifo(entry(0x1000, 0x1F_FFFF))
    assert packet.note == f"not followed: 2097151 dwords, {MAX_DWORDS} are left of the limit"
    asked = []

    def fetch(gpu_va, size_bytes):
        asked.append(gpu_va)
        return bytes(size_bytes)

    packets = NvDecoder("ga102", fetch=fetch).decode([0x6000_20AD | 0x1FFF << 16, *range(0x1FFF)] * 3)
    # a run of one method launches once, with the last word
    assert len(asked) == 3
    packets = NvDecoder("ga102", fetch=fetch).decode(inc(1, 0x2B4, 5) * (MAX_DWORDS // 64 + 1))
    assert packets[-2].inner
    assert packets[-1].methods[0].note == "descriptor not shown: the limit of what is read is reached"


VALID = [
    *inc(1, 0, 0xC7C0),
    *inc(0, 0, 0xC797),
    *inc(1, 0x188, 0, 0x10_0000, 0),
    *inc(1, 0x1B0, 0x41),
    0x6004_206D, 1, 2, 3, 4,
    *inc(1, 0x318, 0, 0x10, *range(64)),
    *inc(1, 0x2B4, 0x1000),
    *inc(4, 0x400, 1, 2, 3, 4),
    *inc(4, 0x300, 0x182),
    *inc(0, 0x5C, 0x1000, 0, 5, 0, 1),
    0xA003_0E00, 1, 2, 3,
    0x8806_20C4,
    *inc(0, 0x1614, 1, 2, 3),
    *inc(5, 0, 0xC7B0),
    *inc(5, 0x200, 7, 0x100),
    0, 0, 0xE000_0000, 0x0001_0FF0,
]  # fmt: skip


def damaged(draw):
    """Return a piece of the valid stream with bits flipped or bytes replaced, and maybe cut inside a dword."""
    start = draw.randrange(len(VALID) - 8)
    data = bytearray(struct.pack(f"<{len(VALID) - start}I", *VALID[start:])[: draw.randrange(4, 400)])
    for _ in range(draw.randrange(5)):
        at = draw.randrange(len(data))
        data[at] = data[at] ^ 1 << draw.randrange(8) if draw.random() < 0.5 else draw.randrange(256)
    return bytes(data)


def shown(packets):
    """Return the bytes that packets show, in order."""
    whole = words([packet for packet in packets if packet.name != "BYTES"])
    data = struct.pack(f"<{len(whole)}I", *whole)
    if packets and packets[-1].name == "BYTES":
        data += packets[-1].raw[0].to_bytes(int(packets[-1].note.split()[0]), "little")
    return data


@pytest.mark.parametrize("chip", ["tu102", "ga100", "ga102", "ad102", "gh100", "gb100", "gb202"])
@pytest.mark.seeds(1)
def test_noise_is_shown_whole_and_never_raises(chip, seed):
    draw = random.Random(f"nvidia {chip} {seed}")

    def fetch(gpu_va, size_bytes):
        if draw.random() < 0.2:
            raise OSError("no page there")
        return damaged(draw)[:size_bytes]

    decoder = NvDecoder(chip, fetch=fetch)
    for i in range(STREAMS):
        data = damaged(draw) if i % 2 else draw.randbytes(draw.randrange(400))
        for decode in (decoder.decode, decoder.decode_gpfifo, decoder.decode_descriptors):
            packets = decode(data)
            assert shown(packets) == data
        if i % 25 == 0:
            assert list(lines(decoder.decode_gpfifo(data))) or not data
            assert [document(packet) for packet in decoder.decode(data)] or not data
        # the methods of a run have its data words, all and in order
        for packet in decoder.decode(data):
            if packet.name.endswith(("INC_METHOD", "ONE_INC")):
                assert [word for method in packet.methods for word in method.values] == list(packet.raw[1:])


def test_four_times_the_dwords_are_about_four_times_the_work():
    def calls(data):
        count = 0

        def profile(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            NvDecoder("ga102").decode(data)
        finally:
            sys.setprofile(None)
        return count

    # one-word runs, so that no header swallows the rest
    draw = random.Random(1)
    data = [
        word for _ in range(500) for word in inc(draw.randrange(5), draw.randrange(0x1000) * 4, draw.getrandbits(32))
    ]
    calls(data)
    assert calls(data * 4) < 5 * calls(data)
