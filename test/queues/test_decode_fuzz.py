"""Decoders given 100,000 streams of noise and damaged packets. They raise no exception, show every dword once and in
order, and take time in proportion to the length.
"""

import random
import struct
import sys

import pytest

from ringup.autogen.amd import gc_compute as regs
from ringup.queues.amd import aql
from ringup.queues.amd.decode_aql import AqlDecoder
from ringup.queues.amd.decode_pm4 import Pm4Decoder
from ringup.queues.amd.decode_sdma import SdmaDecoder
from ringup.queues.amd.packets import Atomic
from ringup.queues.amd.pm4 import Pm4
from ringup.queues.amd.sdma import Plane, Sdma
from ringup.queues.amd.umr_text import lines
from ringup.queues.dwords import to_bytes

STREAMS = 12_500  # of each of eight kinds
LENGTH = 12  # dwords


def pm4_stream(version):
    p = Pm4(version)
    return [
        *p.set_sh(regs.COMPUTE_PGM_LO(1), regs.COMPUTE_PGM_HI(2)),
        *p.dispatch(1, 2, 3),
        *p.acquire_mem(),
        *p.release_mem(0x1000, 5),
        *p.wait_mem(0x1000, 5),
        *p.write_data(0x1000, 1, 2, 3),
        *p.store_clock(0x1000),
        *p.copy_memory(0x2000, 0x1000, 64),
        *p.atomic_mem(Atomic.ADD, 0x1000, 1),
        *p.indirect_buffer(0x1000, 16),
        *p.nop(4),
    ]


def sdma_stream(version):
    s = Sdma(version)
    return [
        *s.copy_linear(0x2000, 0x1000, 64),
        *s.copy_rect(Plane(0x1000, 64), Plane(0x2000, 64), 8, 8),
        *s.fill(0x1000, 1, 64),
        *s.write(0x1000, 1, 2, 3),
        *s.fence64(0x1000, 5),
        *s.trap(),
        *s.wait_mem(0x1000, 5),
        *s.atomic(Atomic.ADD, 0x1000, 1),
        *s.indirect(0x1000, 16),
        *s.nop_burst(3),
    ]


def aql_stream(version):
    return b"".join(
        (
            aql.kernel_dispatch(0x1000, (64, 1, 1), (32, 1, 1), kernarg_address=0x2000, completion_signal=0x40),
            aql.barrier_and(0x40, 0x80),
            *[aql.pm4_indirect(Pm4(version), 0x1000, 16)] * 3,
            aql.barrier_value(0x40, -1, aql.Condition.LT),
            aql.invalid(),
        )
    )


KINDS = {
    "gfx9": (Pm4Decoder((9, 4, 3)), to_bytes(pm4_stream((9, 4, 3)))),
    "gfx11": (Pm4Decoder((11, 0, 0)), to_bytes(pm4_stream((11, 0, 0)))),
    "gfx12": (Pm4Decoder((12, 0, 1)), to_bytes(pm4_stream((12, 0, 1)))),
    "aql": (AqlDecoder((11, 0, 0)), aql_stream((11, 0, 0))),
    "sdma4": (SdmaDecoder((4, 4, 2)), to_bytes(sdma_stream((4, 4, 2)))),
    "sdma6": (SdmaDecoder((6, 0, 0)), to_bytes(sdma_stream((6, 0, 0)))),
    "sdma7": (SdmaDecoder((7, 0, 0)), to_bytes(sdma_stream((7, 0, 0)))),
}


def damaged(draw, valid):
    """Return a piece of a valid stream with a few bits flipped, bytes replaced, or its end cut off in the middle of a
    dword.
    """
    start = draw.randrange(len(valid) // 4 - LENGTH) * 4
    data = bytearray(valid[start : start + 4 * LENGTH])
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(data))
        data[at] = data[at] ^ 1 << draw.randrange(8) if draw.random() < 0.5 else draw.randrange(256)
    return bytes(data[: len(data) - draw.randrange(8)])


def shown(packets):
    """Return the bytes that packets show, in order."""
    whole = [dword for packet in packets if packet.name != "BYTES" for dword in packet.raw]
    data = struct.pack(f"<{len(whole)}I", *whole)
    if packets and packets[-1].name == "BYTES":
        data += packets[-1].raw[0].to_bytes(int(packets[-1].note.split()[0]), "little")
    return data


@pytest.mark.parametrize("kind", KINDS)
def test_noise_and_damage_are_shown_and_nothing_is_lost(kind):
    decoder, valid = KINDS[kind]
    draw = random.Random(f"fuzz {kind}")
    for i in range(STREAMS * 8 // 6):
        data = damaged(draw, valid) if i % 2 else draw.randbytes(draw.randrange(4 * LENGTH))
        packets = decoder.decode(data)
        assert shown(packets) == data
        if i % 50 == 0:
            assert list(lines(packets)) or not data


@pytest.mark.parametrize("kind", KINDS)
def test_indirect_buffers_of_noise_end(kind):
    decoder, valid = KINDS[kind]
    draw = random.Random(f"calls {kind}")
    asked = [0]

    def fetch(gpu_va, size_bytes):
        asked[0] += 1
        if draw.random() < 0.2:
            raise OSError("no page there")
        return damaged(draw, valid)[:size_bytes]

    following = type(decoder)(decoder.version, fetch)
    for _ in range(500):
        following.decode(valid)
    assert asked[0] > 500  # buffers inside buffers


def calls(decoder, data):
    """Return how many Python functions a decoding calls."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        decoder.decode(data)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_four_times_the_dwords_are_about_four_times_the_work(kind):
    decoder, _ = KINDS[kind]
    data = random.Random(1).randbytes(1 << 14) * 4
    assert calls(decoder, data) < 5 * calls(decoder, data[: 1 << 14])
