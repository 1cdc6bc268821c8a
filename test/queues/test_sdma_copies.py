"""Copies of any size and shape: a few lines that follow only the packet header execute the packets, and the tests check
the memory.
"""

import random

import pytest

from ringup.queues.amd.sdma import Sdma
from ringup.queues.amd.sdma_copy import copy_all, copy_rect_all, fill_all

VERSIONS = [(4, 4, 2), (6, 0, 0), (7, 0, 0)]
COPY_MAX = {4: 0x3F_FF00, 6: 0x3FFF_FF00, 7: 0x3FFF_FF00}  # sid.h, SDMA_V2_0_ and SDMA_V5_2_COPY_MAX_BYTES


def execute(memory, dwords, version):
    """Run COPY_LINEAR, its sub-window, CONSTANT_FILL and NOP. All copies since the last NOP may run at the
    same time.
    """
    # ranges that copies since the last NOP write
    busy = []
    at = 0
    while at < len(dwords):
        head, *rest = dwords[at : at + 13]
        if head == 0:  # NOP
            busy, at = [], at + 1
        elif head & 0xFFFF == 1:  # COPY_LINEAR
            source, target, size = rest[2] | rest[3] << 32, rest[4] | rest[5] << 32, rest[0] + 1
            assert abs(source - target) >= size, "a packet's ranges overlap"
            assert not any(start < source + size and source < end for start, end in busy), "reads what is being written"
            busy.append((target, target + size))
            memory[target : target + size] = memory[source : source + size]
            at += 7
        elif head & 0xFFFF == 0x401:  # COPY_LINEAR_SUBWIN
            element, low = 1 << (head >> 29), 16 if version[0] == 7 else 13
            sides = []
            for low_va, high_va, place, pitch in (rest[0:4], rest[5:9]):
                x, y = place & 0x3FFF, place >> 16
                sides.append((low_va | high_va << 32) + (y * ((pitch >> low) + 1) + x) * element)
            pitches = [((rest[i] >> low) + 1) * element for i in (3, 8)]
            assert not any(va % 4 for va in (rest[0], rest[5]))
            assert not any(pitch % 4 for pitch in pitches)
            width, height = ((rest[10] & 0x3FFF) + 1) * element, (rest[10] >> 16) + 1
            for row in range(height):
                source, target = (side + row * pitch for side, pitch in zip(sides, pitches, strict=True))
                memory[target : target + width] = memory[source : source + width]
            at += 13
        else:
            assert head == 0x8000_000B  # CONSTANT_FILL of dwords
            size = rest[3] + 1
            target = rest[0] | rest[1] << 32
            memory[target : target + size] = rest[2].to_bytes(4, "little") * (size // 4)
            at += 5


def copies(dwords):
    """Return (source, target, size) of every COPY_LINEAR. The stream holds nothing else except NOPs."""
    found, at = [], 0
    while at < len(dwords):
        if dwords[at]:
            _, size, _, *halves = dwords[at : at + 7]
            found.append((halves[0] | halves[1] << 32, halves[2] | halves[3] << 32, size + 1))
        at += 7 if dwords[at] else 1
    return found


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_copies_leave_the_bytes_a_memmove_leaves(version):
    draw = random.Random(1)
    for _ in range(300):
        memory = bytearray(draw.randbytes(4096))
        align = draw.choice((1, 4, 8))
        size = draw.choice((0, 1, 3, 4, 5, 63, 64, 1000))
        source = draw.randrange(0, 2048, align)
        target = max(0, source + draw.choice((-1, 1)) * draw.choice((0, 4, 8, 24, 64, 1500)))
        expected = bytearray(memory)
        expected[target : target + size] = memory[source : source + size]
        execute(memory, copy_all(Sdma(version), target, source, size), version)
        assert memory == expected


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_large_copies_are_cut_at_the_engines_limit_and_the_odd_bytes_go_last(version):
    limit = COPY_MAX[version[0]]
    found = copies(copy_all(Sdma(version), 1 << 40, 0, 2 * limit + 7))
    assert found == [
        (0, 1 << 40, limit),
        (limit, (1 << 40) + limit, limit),
        (2 * limit, (1 << 40) + 2 * limit, 4),
        (2 * limit + 4, (1 << 40) + 2 * limit + 4, 3),
    ]
    assert [size for *_, size in copies(copy_all(Sdma(version), (1 << 40) + 1, 0, limit + 7))] == [limit, 7]


def test_overlapping_copies_go_in_the_safe_direction_each_behind_the_one_before():
    s = Sdma((6, 0, 0))
    up = copy_all(s, 0x1100, 0x1000, 0x280)
    assert copies(up) == [(0x1200, 0x1300, 0x80), (0x1100, 0x1200, 0x100), (0x1000, 0x1100, 0x100)]
    # NOP: the engine waits for its copies
    assert up[7] == up[15] == 0
    assert copies(copy_all(s, 0x1000, 0x1100, 0x280)) == [
        (0x1100, 0x1000, 0x100),
        (0x1200, 0x1100, 0x100),
        (0x1300, 0x1200, 0x80),
    ]


def test_an_overlap_that_takes_too_many_packets_is_refused():
    with pytest.raises(
        ValueError, match=r"1073741824 bytes over a distance of 4 takes 268435456 packets; copy through other memory"
    ):
        copy_all(Sdma((6, 0, 0)), 4, 0, 1 << 30)
    with pytest.raises(ValueError, match="no -1 bytes"):
        copy_all(Sdma((6, 0, 0)), 4, 0, -1)


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_fills_are_cut_at_the_engines_limit(version):
    limit = {4: (1 << 22) - 4, 6: (1 << 30) - 4, 7: (1 << 30) - 4}[version[0]]  # radv_sdma_fill_buffer
    fill = fill_all(Sdma(version), 1 << 33, 9, limit + 8)
    assert fill == [0x8000_000B, 0, 2, 9, limit - 1, 0x8000_000B, limit, 2, 9, 7]
    assert fill_all(Sdma(version), 0, 0, 0) == []
    with pytest.raises(ValueError, match="whole dwords, not 6 bytes"):
        fill_all(Sdma(version), 0, 0, 6)


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_rectangles_leave_rows_and_nothing_between_them(version):
    draw = random.Random(2)
    for _ in range(200):
        width, height = draw.choice((1, 3, 4, 6, 8, 16, 48, 64)), draw.randrange(5)
        target_pitch, source_pitch = (width + draw.choice((0, 1, 2, 4, 12, 16, 64)) for _ in range(2))
        source, target = draw.choice((0, 1, 4, 16)), 4096 + draw.choice((0, 2, 4, 32))
        memory = bytearray(draw.randbytes(8192))
        expected = bytearray(memory)
        for row in range(height):
            to, start = target + row * target_pitch, source + row * source_pitch
            expected[to : to + width] = memory[start : start + width]
        execute(
            memory, copy_rect_all(Sdma(version), target, target_pitch, source, source_pitch, width, height), version
        )
        assert memory == expected


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_large_rectangles_are_cut_into_tiles(version):
    memory = bytearray(random.Random(3).randbytes(1 << 20))
    expected = bytearray(memory)
    pitch, width, rows = (
        20004,
        20004 - 8,
        20,
    )
    for row in range(rows):
        start = row * pitch
        to = (1 << 19) + row * (pitch + 4)
        expected[to : to + width] = memory[start : start + width]
    execute(memory, copy_rect_all(Sdma(version), 1 << 19, pitch + 4, 0, pitch, width, rows), version)
    assert memory == expected
    tall = copy_rect_all(Sdma(version), 1 << 32, 64, 0, 32, 16, 20000)
    assert [tall[at + 11] >> 16 for at in range(0, len(tall), 13)] == [16383, 3615]
    # the second tile's target, low and high
    assert (tall[13 + 6], tall[13 + 7]) == (16384 * 64, 1)


def test_rows_closer_than_they_are_wide_are_refused():
    with pytest.raises(ValueError, match="rows of 64 bytes do not lie 32 and 128 bytes apart"):
        copy_rect_all(Sdma((6, 0, 0)), 0, 32, 4096, 128, 64, 2)
