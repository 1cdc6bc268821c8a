"""Garbage for the graphics and copy engines: each channel works, waits, runs a macro on, or stops with an error."""

import random
import struct

import pytest

from ringup.autogen.nv import methods_3d, methods_compute, methods_copy

DRAW, COMPUTE, CE = 0, 1, 4
TABLES = {DRAW: methods_3d.METHODS[0xC797], COMPUTE: methods_compute.METHODS[0xC7C0], CE: methods_copy.METHODS[0xC7B5]}
HOST = (0, 8, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x30, 0x34, 0x50, 0x5C, 0x60, 0x64, 0x6C, 0x78, 0x80, 0x84)
VALUES = (0, 1, 2, 4, 0x41, 0x8000, 0x10000, 0x182, 0x582, 0x10000000, 0xC7C0, 0xC797, 0xC7B5, 1 << 20, 64, 128)
# PBDMA_ERROR, GR_CLASS_ERROR, CE0_ERROR, an MMU fault
CODES = (32, 69, 39, 31)


def method(rng, subchannel):
    """Return the address of a method that exists."""
    place = rng.choice(list(TABLES[subchannel].values()))
    return place if isinstance(place, int) else place[0] + place[1] * rng.randrange(max(place[2], 1))


def words(rng, bench):
    """Return a segment: anything, an upload, a macro and its call, or methods with data that may make sense."""
    kind = rng.random()
    if kind < 0.15:
        return [rng.getrandbits(32) for _ in range(rng.randrange(1, 1000))]
    if kind < 0.25:
        data = [rng.getrandbits(32) for _ in range(rng.randrange(1, 1000))]
        subchannel = rng.choice((DRAW, COMPUTE, 2))
        head = [*bench.incr(subchannel, 0x180, 4 * len(data), 1, 0, 0x10000, 0), *bench.incr(subchannel, 0x1B0, 0x41)]
        return [*head, *bench.repeat(subchannel, 0x1B4, *data)]
    if kind < 0.35:
        code = [rng.getrandbits(32) for _ in range(rng.randrange(3, 400))]
        start = bench.incr(DRAW, 0x11C, rng.randrange(4), rng.randrange(60))
        call = bench.once(DRAW, 0x3800 + 8 * rng.randrange(4), *(rng.getrandbits(32) for _ in range(5)))
        return [*start, *bench.once(DRAW, 0x114, rng.randrange(60), *code), *call]
    out = []
    for _ in range(rng.randrange(1, 40)):
        subchannel = rng.choice((DRAW, COMPUTE, CE, CE))
        address = rng.choice(HOST) if rng.random() < 0.15 else method(rng, subchannel)
        data = [
            rng.choice(VALUES) if rng.random() < 0.6 else rng.getrandbits(rng.choice((8, 16, 32)))
            for _ in range(rng.randrange(1, 12))
        ]
        out += rng.choice((bench.incr, bench.once, bench.repeat))(subchannel, address, *data)
    return out


@pytest.mark.seeds(2, share=4)
def test_garbage_ends_in_an_error_or_a_wait(graphics, seed):
    rng = random.Random(seed)
    for _ in range(60):
        graphics.push(*words(rng, graphics))
        graphics.card.clock.sleep_us(200)
        assert all(code in CODES and text for _, code, text in graphics.failed)
        if graphics.failed or graphics.gp_get != graphics.put:
            graphics.again()
    # the card still works
    graphics.again()
    graphics.push(*graphics.incr(COMPUTE, 0x1B00, 0, 0x8000, 0x600D, 1 << 28))
    assert graphics.word(0x8000) == struct.unpack("<I", b"\x0d\x60\0\0")[0]
