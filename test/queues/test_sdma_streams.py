"""A stream's copies equal the builder's packets, whichever code path adds them."""

import random

import pytest

from ringup.queues.amd.packets import Waits
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.amd.sdma_copy import copy_all
from ringup.queues.amd.sdma_stream import CopyStream, SdmaCommands
from ringup.queues.dwords import to_bytes
from ringup.queues.queue import Owner


@pytest.fixture(params=[(4, 4, 2), (6, 0, 0), (6, 0, 3), (7, 0, 1)])
def stream(request):
    return CopyStream(SdmaCommands(request.param, 8), Owner("a card"))


def test_a_copy_is_the_builder_s_packets_whatever_its_size_and_place(stream):
    random.seed(3)
    for _ in range(500):
        source, size = random.randrange(1 << 47), random.choice([0, 1, 3, 4, 64, 4096, 4098, 1 << 20, 1 << 24])
        target = random.choice([random.randrange(1 << 47), source + random.choice([-4096, -4, 4, 8192])])
        if random.random() < 0.7:
            source, target = source & ~3, target & ~3
        if abs(source - target) and size // abs(source - target) > 60_000:
            continue
        before = len(stream.body)
        stream.copy(target, source, size)
        assert stream.body[before:] == to_bytes(copy_all(stream.sdma, target, source, size))


def test_a_submission_begins_behind_the_copies_of_the_one_before(stream):
    """It begins with an empty packet, as radv_barrier of Mesa's radv_cmd_buffer.c waits for copies."""
    assert bytes(stream.body[:4]) == bytes(4)


@pytest.mark.parametrize(("target", "source"), [(-4096, 0), (0, -4), (1 << 64, 0), (0, 1 << 70)])
def test_an_address_that_no_packet_holds_is_refused_and_the_stream_is_as_before(stream, target, source):
    before = bytes(stream.body)
    with pytest.raises(ValueError, match=r"COPY_LINEAR.*64-bit address"):
        stream.copy(target, source, 64)
    assert stream.body == before


@pytest.mark.parametrize(("word_bits", "fences"), [(64, [(0, 7), (4, 1)]), (32, [(0, 7)])])
def test_a_signal_stores_as_much_as_its_timeline_s_word_has(word_bits, fences):
    commands = SdmaCommands((6, 0, 0), 8, interrupts=False, word_bits=word_bits)
    value = 7 | (1 << 32 if word_bits == 64 else 0)
    words = [dword for at, stored in fences for dword in (0x0003_0005, 0x9_0000 + at, 0, stored)]  # sdma_v6_0.c
    assert commands.signal(0x9_0000, value) == to_bytes(words)
    assert [(at, shift) for at, _, shift in commands.signal_places] == [(12, 0), (28, 32)][: len(fences)]


def test_waits_are_the_builder_s_packets_however_many_timelines_there_are():
    sdma, pm4 = SdmaCommands((6, 0, 0), 8), Pm4Commands((11, 0, 0))
    for number in range(3 * Waits.MAX_WAITS):
        gpu_va, value = 0x1_0000_0000 + 4 * (number % (2 * Waits.MAX_WAITS)), number << 28
        assert sdma.wait(gpu_va, value) == to_bytes(sdma.sdma.wait_mem(gpu_va, value & 0xFFFF_FFFF))
        assert pm4.wait(gpu_va, value) == to_bytes(pm4.pm4.wait_mem(gpu_va, value & 0xFFFF_FFFF))
    with pytest.raises(ValueError, match="aligned to 4 bytes"):
        pm4.wait(2, 1)
