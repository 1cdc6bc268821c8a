"""Copies beyond lines to lines: surfaces of blocks, components, physical memory, semaphores. Words of clc6b5.h."""

import random
import re
import struct

import pytest

CE = 4
# LAUNCH_DMA: a transfer that waits for the one before, source and target with a pitch, several lines, remapping
TRANSFER, PITCH_IN, PITCH_OUT, LINES, REMAP = 2, 1 << 7, 1 << 8, 1 << 9, 1 << 10


def gob(x, y):
    """Return where a byte is in a GOB: 16 bytes of a line, four lines of 16, then the next 16 columns, and so on.

    Source: the list of offsets in Mesa's nil/copy.rs.
    """
    column, line = x // 16, y
    return x % 16 + 0x10 * (line % 4) + 0x40 * (column % 2) + 0x80 * (line // 4) + 0x100 * (column // 2)


def place(x, y, z, width, height, tall, deep):
    """Return where a byte is in a surface of blocks of `tall` by `deep` GOBs, counted out block by block."""
    across, down = -(-width // 64), -(-height // (8 * tall))
    block = (z // deep * down + y // (8 * tall)) * across + x // 64
    return (block * tall * deep + z % deep * tall + y // 8 % tall) * 512 + gob(x % 64, y % 8)


def test_the_order_within_a_gob():
    # offsets of the first bytes of 16-byte pieces, as the source lists them
    assert [gob(x, y) for x, y in ((0, 1), (0, 3), (16, 0), (0, 4), (16, 7), (32, 0), (48, 5))] == [
        0x10, 0x30, 0x40, 0x80, 0xF0, 0x100, 0x1D0,
    ]  # fmt: skip


def surface(bench, way, *, tall, deep, width, height, depth, layer, origin):
    """Return the methods that describe a surface: 0x70c for the target, 0x728 for the source."""
    first, x_at = (0x70C, 0x74C) if way == "out" else (0x728, 0x744)
    size = tall.bit_length() - 1 << 4 | deep.bit_length() - 1 << 8 | 1 << 12
    return [
        *bench.incr(CE, first, size, width, height, depth, layer),
        *bench.incr(CE, x_at, *origin),
    ]


def transfer(bench, source, target, size, lines, launch, pitches=(0, 0)):
    return [
        *bench.incr(CE, 0x400, 0, source, 0, target, *pitches, size, lines),
        *bench.incr(CE, 0x300, launch | TRANSFER | LINES),
    ]


@pytest.mark.parametrize(
    ("tall", "deep", "layer", "origin", "size"),
    [(1, 1, 0, (0, 0), (64, 8)), (4, 1, 0, (13, 5), (90, 40)), (2, 4, 5, (1, 30), (130, 21)), (8, 1, 0, (100, 0), (50, 64))],
)  # fmt: skip
@pytest.mark.parametrize("way", ["out", "in"])
def test_lines_are_copied_to_and_from_blocks(bench, way, tall, deep, layer, origin, size):
    width, height, depth = 150, 70, 6
    (x0, y0), (across, down) = origin, size
    rng = random.Random(7)
    blocks, lines = bytearray(rng.randbytes(0x1E000)), bytearray(rng.randbytes(0x3000))
    before = bytes(blocks)
    bench.poke(0x10000, bytes(blocks))
    bench.poke(0x9000, bytes(lines))
    described = surface(
        bench, way, tall=tall, deep=deep, width=width, height=height, depth=depth, layer=layer, origin=origin
    )
    ends = (0x9000, 0x10000, PITCH_IN) if way == "out" else (0x10000, 0x9000, PITCH_OUT)
    bench.push(*described, *transfer(bench, *ends[:2], across, down, ends[2], (160, 160)))
    bench.card.clock.sleep_us(1_000)
    assert bench.failed == []
    for y in range(down):
        for x in range(across):
            at, line = place(x0 + x, y0 + y, layer, width, height, tall, deep), y * 160 + x
            if way == "out":
                blocks[at] = lines[line]
            else:
                lines[line] = before[at]
    assert bench.peek(0x10000, len(blocks)) == bytes(blocks)
    assert bench.peek(0x9000, len(lines)) == bytes(lines)


def test_blocks_are_copied_to_other_blocks(bench):
    data = random.Random(3).randbytes(0x2000)
    bench.poke(0x10000, data)
    described = [
        *surface(bench, "in", tall=1, deep=1, width=128, height=32, depth=1, layer=0, origin=(0, 0)),
        *surface(bench, "out", tall=4, deep=1, width=64, height=64, depth=1, layer=0, origin=(0, 32)),
    ]
    bench.push(*described, *transfer(bench, 0x10000, 0x14000, 64, 32, 0))
    bench.card.clock.sleep_us(1_000)
    got = bench.peek(0x14000, 0x1000)
    assert all(
        got[place(x, 32 + y, 0, 64, 64, 4, 1)] == data[place(x, y, 0, 128, 32, 1, 1)]
        for x in range(64)
        for y in range(32)
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"origin": (100, 0)}, "64 bytes by 8 lines at \\(100, 0\\), layer 0, of a surface of 128 bytes by 16"),
        ({"layer": 1}, "layer 1, of a surface"),
        ({"tall": 64}, "a block of 2\\^6 GOBs along y"),
    ],
)
def test_a_rectangle_outside_its_surface_is_refused(bench, change, why):
    described = {"tall": 1, "deep": 1, "width": 128, "height": 16, "depth": 1, "layer": 0, "origin": (0, 0)} | change
    bench.push(*surface(bench, "out", **described), *transfer(bench, 0x9000, 0x10000, 64, 8, PITCH_IN, (64, 0)))
    code, text = bench.error
    assert code == 39
    assert re.search(why, text)


CONST_A, CONST_B, KEEP = 4, 5, 6


def components(*places, size, sources):
    """Return SET_REMAP_COMPONENTS."""
    word = size - 1 << 16 | sources - 1 << 20 | len(places) - 1 << 24
    for number, one in enumerate(places):
        word |= one << 4 * number
    return word


@pytest.mark.parametrize(
    ("places", "size", "sources", "before", "source", "after"),
    [
        # BGRA from RGBA
        ((2, 1, 0, 3), 1, 4, "00" * 8, "0102030405060708", "0302010407060508"),
        # the same component twice, a constant, one that stays
        ((0, CONST_A, KEEP), 2, 1, "f0f1f2f3f4f5e0e1e2e3e4e5", "11223344", "11224433f4f533444433e4e5"),
        # wide components; fewer in the target
        ((1,), 4, 2, "00" * 8, "000102030405060708090a0b0c0d0e0f", "040506070c0d0e0f"),
        # a fill needs no source
        ((CONST_B,), 4, 1, "00" * 8, None, "deadbeefdeadbeef"),
    ],
)
def test_components_are_remapped(bench, places, size, sources, before, source, after):
    bench.poke(0x11000, bytes.fromhex(before))
    # an address that is not mapped, if there is no source
    at = 0x10000 if source else 0x7000_0000
    if source:
        bench.poke(at, bytes.fromhex(source))
    bench.push(
        *bench.incr(CE, 0x700, 0x11223344, 0xEFBEADDE, components(*places, size=size, sources=sources)),
        *transfer(bench, at, 0x11000, 2, 1, PITCH_IN | PITCH_OUT | REMAP),
    )
    assert bench.failed == []
    assert bench.peek(0x11000, len(after) // 2 + 1) == bytes.fromhex(after) + b"\0"


def test_a_component_that_the_source_lacks_is_refused(bench):
    bench.push(
        *bench.incr(CE, 0x708, components(3, size=1, sources=2)),
        *transfer(bench, 0x10000, 0x11000, 2, 1, PITCH_IN | PITCH_OUT | REMAP),
    )
    assert "a component comes from 3, of 2" in bench.error[1]


def test_elements_are_remapped_from_blocks_to_lines(bench):
    """Widths, origins and line lengths count elements while components are remapped."""
    data = random.Random(5).randbytes(0x1000)
    bench.poke(0x10000, data)
    described = surface(bench, "in", tall=2, deep=1, width=32, height=16, depth=1, layer=0, origin=(3, 2))
    bench.push(
        *described,
        *bench.incr(CE, 0x708, components(1, 0, size=2, sources=2)),
        *transfer(bench, 0x10000, 0x9000, 5, 4, PITCH_OUT | REMAP, (0, 64)),
    )
    assert bench.failed == []
    for y in range(4):
        for x in range(5):
            low, high = (
                [data[place(4 * (3 + x) + part + n, 2 + y, 0, 128, 16, 2, 1)] for n in (0, 1)] for part in (0, 2)
            )
            assert list(bench.peek(0x9000 + 64 * y + 4 * x)) == high + low


def test_a_privileged_channel_copies_physical_memory(bench):
    bench.channel.privileged = True
    bench.again()
    # the card may send requests to the host
    bench.card.config.write(4, bench.card.config.read(4, 2) | 4, 2)
    bench.card.vram.write(0x40_0000, b"physical")
    host = bench.card.host.allocate(4096)
    bench.push(
        *bench.incr(CE, 0x260, 0, 1),
        *bench.incr(CE, 0x400, 0, 0x40_0000, host.bus_addr() >> 32, host.bus_addr() & 0xFFFFFFFF, 8, 8, 8, 1),
        *bench.incr(CE, 0x300, TRANSFER | PITCH_IN | PITCH_OUT | 1 << 12 | 1 << 13),
    )
    assert bytes(host.view[:8]) == b"physical"
    assert bench.failed == []


@pytest.mark.parametrize(
    ("reduction", "signed", "value", "payload", "result"),
    [(0, False, 7, 3, 3), (1, True, 0xFFFFFFFF, 3, 3), (5, False, 0xFFFFFFFE, 3, 1), (6, False, 3, 3, 0)],
)
def test_the_semaphore_of_a_copy_may_reduce(bench, reduction, signed, value, payload, result):
    bench.poke(0x8000, struct.pack("<I", value))
    bench.push(
        *bench.incr(CE, 0x240, 0, 0x8000, payload),
        *bench.incr(CE, 0x300, 1 << 3 | reduction << 14 | (not signed) << 18 | 1 << 19),
    )
    assert bench.word(0x8000) == result


def test_a_wide_payload_is_for_the_classes_that_have_it(graphics):
    graphics.push(
        *graphics.incr(CE, 0x240, 0, 0x8000, 0x11223344, 0x55667788), *graphics.incr(CE, 0x300, 1 << 3 | 1 << 27)
    )
    assert graphics.peek(0x8000, 8) == struct.pack("<II", 0x11223344, 0x55667788)


@pytest.mark.parametrize(("mode", "reports", "done"), [(0, (1, 1), False), (1, (0, 0), True), (2, (0, 0), False),
                                                       (2, (5, 0), True), (3, (5, 5), True), (3, (5, 6), False),
                                                       (4, (5, 6), True), (4, (5, 5), False)])  # fmt: skip
def test_a_copy_may_depend_on_words_in_memory(bench, mode, reports, done):
    bench.poke(0x8000, struct.pack("<QQQ", reports[0], 99, reports[1]))
    bench.poke(0x10000, b"data")
    bench.push(
        *bench.incr(CE, 0x254, 0, 0x8000, mode),
        *transfer(bench, 0x10000, 0x11000, 4, 1, PITCH_IN | PITCH_OUT),
    )
    assert bench.failed == []
    assert (bench.peek(0x11000) == b"data") == done
