"""Kernel arguments in the ring, used where each store into the card's memory is a round trip. They are aligned,
complete, and right at every position in the ring.
"""

import random

import numpy as np
import pytest
from far_path import Far

from ringup.drivers import select

KERNEL = """
struct big { ulong words[60]; };
__kernel void one(__global ulong *out, ulong at, ulong value) { out[at] = value; }
__kernel void many(__global ulong *out, ulong at, struct big big) { ulong s = 0; for (int i = 0; i < 60; i++) s += big.words[i]; out[at] = s; }
"""
RING_BYTES = 64 << 10


@pytest.fixture
def card(virtual_card):
    with select.start(Far(virtual_card("navi31", vram_bytes=256 << 20))) as card:
        yield card


def test_kernels_find_their_arguments_wherever_in_the_ring_they_came_to_lie(card, opencl):
    program = card.load(opencl(KERNEL, card.info.target))
    out, rng = card.alloc(8 * 400), random.Random(1)
    ring, arguments = card.compute.ring, set()
    expected = np.zeros(400, np.uint64)
    at = 0
    while at < 400 or ring.wptr < 2 * RING_BYTES:
        stream = card.compute.stream()
        for _ in range(rng.randrange(1, 4)):
            place, words = at % 400, [rng.getrandbits(56) for _ in range(60)]
            if rng.random() < 0.5:
                stream.dispatch(program["one"], grid=1, block=1, args=[out, place, words[0]])
                expected[place] = words[0]
            else:
                stream.dispatch(
                    program["many"], grid=1, block=1, args=[out, place, np.array(words, np.uint64).tobytes()]
                )
                expected[place] = sum(words)
            stream.barrier()
            at += 1
        before = ring.wptr
        card.compute.submit(stream).wait()
        arguments.add(before % RING_BYTES // 4096)
    assert len(arguments) == RING_BYTES // 4096
    assert np.array_equal(card.copy.download_array(out, np.uint64, 400), expected)
    assert card.compute._args.head == 0


def test_arguments_too_large_for_the_ring_are_in_separate_memory(card, opencl):
    program = card.load(opencl(KERNEL, card.info.target))
    out = card.alloc(8 * 40)
    stream = card.compute.stream()
    for place in range(40):
        words = np.arange(place, place + 60, dtype=np.uint64)
        stream.dispatch(program["many"], grid=1, block=1, args=[out, place, words.tobytes()])
    card.compute.submit(stream).wait()
    expected = np.array([sum(range(place, place + 60)) for place in range(40)], np.uint64)
    assert np.array_equal(card.copy.download_array(out, np.uint64, 40), expected)
    assert card.compute._args.head > 0
