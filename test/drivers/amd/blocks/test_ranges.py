"""The range allocator against a model that recomputes every range from scratch, and the text of its errors."""

from __future__ import annotations

import random

import pytest

from ringup.drivers.memory.ranges import Ranges, natural_align
from ringup.errors import OutOfMemory

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 4096


def gaps(start, end, live):
    """Return the free gaps as (start, end), computed from the live ranges alone."""
    at = start
    for first in sorted(live):
        if at < first:
            yield at, first
        at = first + live[first]
    if at < end:
        yield at, end


def fits(start, end, live, size, align):
    return any(-(-low // align) * align + size <= high for low, high in gaps(start, end, live))


@pytest.mark.parametrize("seed", range(3))
def test_random_ranges_never_overlap_and_are_refused_only_when_nothing_fits(seed):
    rnd, start, size = random.Random(seed), 0x10_0000, 96 * MIB
    ranges, live = Ranges(start, size, "test"), {}
    refused = 0
    for _ in range(3500):
        if live and rnd.random() < 0.46:
            victim = rnd.choice(list(live))
            ranges.free(victim)
            del live[victim]
            continue
        want = rnd.choice((PAGE, 3 * PAGE, 64 * KIB, rnd.randrange(1, 4 * MIB)))
        align = rnd.choice((None, PAGE, 64 * KIB, 2 * MIB))
        whole = -(-want // PAGE) * PAGE
        aligned = natural_align(whole) if align is None else align
        found = ranges.find(want, align)
        if found is None:
            refused += 1
            assert not fits(start, start + size, live, whole, aligned)
            continue
        assert found % aligned == 0
        assert fits(start, start + size, live, whole, aligned)
        assert any(low <= found and found + whole <= high for low, high in gaps(start, start + size, live))
        live[found] = whole
        assert ranges.free_bytes == size - sum(live.values())
        assert ranges.largest_bytes == max((high - low for low, high in gaps(start, start + size, live)), default=0)
    assert refused > 10
    for first in live:
        ranges.free(first)
    assert (ranges.free_bytes, ranges.largest_bytes, ranges.live) == (size, size, 0)


def test_freed_ranges_merge_into_one_in_any_order():
    rnd = random.Random(7)
    for _ in range(20):
        ranges = Ranges(0, 4 * MIB, "test")
        live = [ranges.alloc(64 * KIB) for _ in range(64)]
        assert ranges.free_bytes == 0
        assert ranges.find(PAGE) is None
        rnd.shuffle(live)
        for start in live:
            ranges.free(start)
        assert ranges.alloc(4 * MIB) == 0


def test_sizes_are_aligned_to_themselves_up_to_two_mebibytes():
    ranges = Ranges(PAGE, GIB - PAGE, "test")
    assert ranges.alloc(5 * MIB) % (2 * MIB) == 0
    assert ranges.alloc(100 * KIB) % (64 * KIB) == 0
    # The lower gap is used; nothing is cut from the large one.
    assert ranges.alloc(PAGE) == PAGE
    assert natural_align(3 * GIB, 1 << 40) == 2 * GIB


def test_a_request_takes_the_smallest_piece_that_holds_it():
    ranges = Ranges(0, 16 * MIB, "test")
    first, _, third, _ = (ranges.alloc(size) for size in (2 * MIB, 64 * KIB, 64 * KIB, 64 * KIB))
    ranges.free(first)
    ranges.free(third)
    assert ranges.alloc(64 * KIB) == third


def test_a_range_that_was_not_allocated_cannot_be_freed():
    ranges = Ranges(0, MIB, "VRAM")
    start = ranges.alloc(PAGE)
    ranges.free(start)
    with pytest.raises(ValueError, match="VRAM: no range starts at 0x0"):
        ranges.free(start)
    with pytest.raises(ValueError, match="no range starts at 0x1000"):
        ranges.free(PAGE)
    assert ranges.free_bytes == MIB


def test_a_shortage_reports_asked_free_largest_and_the_largest_holders():
    ranges = Ranges(0, 16 * MIB, "VRAM")
    for holder, count in (("weights", 3), ("cache", 2), ("scratch", 1)):
        for _ in range(count):
            ranges.alloc(2 * MIB, holder=holder)
    ranges.alloc(PAGE, holder="a page")
    with pytest.raises(OutOfMemory) as caught:
        ranges.alloc(8 * MIB, holder="logits")
    assert str(caught.value) == (
        "VRAM: 8 MiB asked for logits, 3.996 MiB of 16 MiB free, the largest piece 3.996 MiB; "
        "most is held by: weights 6 MiB, cache 4 MiB, scratch 2 MiB"
    )


def test_a_reserved_range_is_never_allocated():
    ranges = Ranges(0, MIB, "test")
    ranges.reserve(256 * KIB, 512 * KIB, "firmware")
    assert {ranges.alloc(256 * KIB), ranges.alloc(256 * KIB)} == {0, 768 * KIB}
    assert ranges.find(PAGE) is None
    with pytest.raises(ValueError, match="not wholly free"):
        ranges.reserve(0, PAGE, "somebody")
    ranges.free(256 * KIB)
    assert ranges.largest_bytes == 512 * KIB


@pytest.mark.parametrize(("size", "align"), [(0, None), (-PAGE, None), (PAGE, 3 * PAGE), (PAGE, 0)])
def test_nonsense_is_refused(size, align):
    with pytest.raises(ValueError, match="test: "):
        Ranges(0, MIB, "test").alloc(size, align)


def test_an_empty_space_has_no_free_range():
    ranges = Ranges(MIB, 0, "VRAM beyond the CPU window")
    assert (ranges.find(PAGE), ranges.largest_bytes, ranges.free_bytes) == (None, 0, 0)
