"""Runlists: turns of channels in virtual time, channels that stop and go on, and who a fault names."""

import struct
from types import SimpleNamespace

import pytest

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.nv.host.runlist import Runlist

HOST, CE = 0, 4
RELEASE = 1
SLICE_US = 1024


def semaphore(bench, va, payload, execute=RELEASE):
    return bench.incr(HOST, 0x5C, va, 0, payload, 0, execute)


def long_copy(bench, megabytes):
    """Return a copy that takes 52 us a megabyte: many lines of one page."""
    return [
        *bench.incr(CE, 0x400, 0, 0x10000, 0, 0x11000, 0, 0, 4096, megabytes * 256),
        *bench.incr(CE, 0x300, 0x182 | 1 << 9),
    ]


def order(bench, *places):
    """Return when semaphores with time stamps were released, in microseconds."""
    return [struct.unpack("<QQ", bench.peek(va, 16))[1] / 1000 for va in places]


STAMPED = RELEASE | 1 << 25


@pytest.mark.parametrize("shared", [True, False])
def test_channels_of_a_runlist_take_turns_and_others_run_beside_them(bench, shared):
    """Two copies of 4 ms each: on one engine they end together after 8 ms, on two after 4 ms."""
    other = bench.second(runlist=None if shared else 2)
    bench.push(*long_copy(bench, 80), *semaphore(bench, 0x8000, 1, STAMPED))
    bench.submit(other, *long_copy(bench, 80), *semaphore(bench, 0x8010, 1, STAMPED))
    bench.card.clock.sleep_us(12_000)
    first, second = order(bench, 0x8000, 0x8010)
    copy_us = 80 * (1 << 20) / 20_000
    if shared:
        # the first one ended a slice before the second, at most
        assert 2 * copy_us - SLICE_US - 200 < first <= second < 2 * copy_us + 300
    else:
        assert abs(first - second) < 100
        assert copy_us < second < copy_us + 300


def test_the_channels_of_a_group_share_one_slice(bench):
    """Two channels of a group and one beside them copy 4 ms each: the one alone has half of the engine."""
    alone, second = bench.second(), bench.second(number=7, userd=0x400, gpfifo=0x1880)
    second.slice = bench.channel.slice
    bench.push(*long_copy(bench, 80), *semaphore(bench, 0x8000, 1, STAMPED))
    bench.submit(second, *long_copy(bench, 80), *semaphore(bench, 0x8010, 1, STAMPED), at=0x5000)
    bench.submit(alone, *long_copy(bench, 80), *semaphore(bench, 0x8020, 1, STAMPED))
    bench.card.clock.sleep_us(16_000)
    copy_us = 80 * (1 << 20) / 20_000
    *_, at = order(bench, 0x8000, 0x8010, 0x8020)
    assert 2 * copy_us - SLICE_US - 200 < at < 2 * copy_us + SLICE_US + 300


def test_a_group_has_its_engine_for_as_long_as_was_set(bench):
    other = bench.second()
    bench.channel.slice.length_us = 3_000
    bench.push(*long_copy(bench, 80))
    bench.submit(other, *semaphore(bench, 0x8000, 1, STAMPED), wait_us=5_000)
    (at,) = order(bench, 0x8000)
    assert 2_900 < at < 3_300


def test_a_short_job_does_not_wait_for_a_long_one(bench):
    other = bench.second()
    bench.push(*long_copy(bench, 200))
    bench.submit(other, *semaphore(bench, 0x8000, 1, STAMPED), wait_us=12_000)
    (at,) = order(bench, 0x8000)
    assert 0 < at < SLICE_US + 300


def test_a_channel_that_waits_leaves_the_engine_to_others(bench):
    other = bench.second()
    bench.push(*semaphore(bench, 0x8000, 9, 3))
    bench.submit(other, *long_copy(bench, 2), *semaphore(bench, 0x8000, 9), wait_us=300)
    assert (bench.word(0x8000), bench.gp_get, bench.failed) == (9, 1, [])


NOTHING, SLICE, GROUP = 0, 2, 3


@pytest.mark.parametrize(
    ("op", "grouped", "yields"),
    [(NOTHING, False, 0), (SLICE, False, 1), (GROUP, False, 0), (GROUP, True, 1), (SLICE, True, 0)],
)
def test_a_channel_may_yield_its_turn_or_its_group_s(bench, op, grouped, yields):
    """To the group's next channel, or with the group's slice to the next group, of which there may be none."""
    other = bench.second()
    if grouped:
        other.slice = bench.channel.slice
    # both are ready before the first may go on
    for one in (bench.channel, other):
        one.scheduled = False
        bench.card.engines.schedule(one, enable=False)
    # the copy shows whether the other channel was first
    copy = [*bench.incr(CE, 0x400, 0, 0x8000, 0, 0x8010, 4, 4, 4, 1), *bench.incr(CE, 0x300, 0x182)]
    bench.push(*bench.incr(HOST, 0x80, op), *copy)
    bench.submit(other, *semaphore(bench, 0x8000, 1))
    for one in (bench.channel, other):
        one.scheduled = True
        bench.card.engines.schedule(one, enable=True)
    bench.card.clock.sleep_us(200)
    assert (bench.word(0x8000), bench.word(0x8010)) == (1, yields)


def test_a_channel_that_is_stopped_goes_on_where_it_was(bench):
    """In the middle of a segment, after a copy of which the half is done."""
    bench.poke(0x10000, b"a" * 4096)
    bench.push(*long_copy(bench, 10), *semaphore(bench, 0x8000, 1))
    bench.card.clock.sleep_us(100)
    bench.card.engines.schedule(bench.channel, enable=False)
    bench.card.clock.sleep_us(5_000)
    assert (bench.word(0x8000), bench.gp_get) == (0, 0)
    bench.card.engines.schedule(bench.channel, enable=True)
    bench.card.clock.sleep_us(300)
    assert bench.word(0x8000) == 0
    bench.card.clock.sleep_us(400)
    assert (bench.word(0x8000), bench.gp_get, bench.failed) == (1, 1, [])


def test_a_channel_that_is_saved_outlives_a_reset(bench):
    bench.push(*semaphore(bench, 0x8000, 1, 0), *semaphore(bench, 0x8010, 2))
    bench.card.engines.save(bench.channel)
    bench.card.engines.reset()
    bench.poke(0x8000, struct.pack("<I", 1))
    bench.card.clock.sleep_us(5_000)
    assert bench.word(0x8010) == 0
    bench.card.engines.add(bench.channel)
    bench.card.engines.schedule(bench.channel, enable=True)
    bench.card.clock.sleep_us(2_000)
    assert (bench.word(0x8010), bench.gp_get) == (2, 1)
    # another reset forgets it
    bench.card.engines.reset()
    bench.ring()
    assert bench.said() == ["doorbell 0x10005 names a channel that there is not"]


def test_the_error_of_a_channel_leaves_the_others_alone(bench):
    other = bench.second()
    bench.push(6 << 29 | 1 << 16)
    bench.submit(other, *semaphore(bench, 0x8000, 1))
    assert [number for number, _, _ in bench.failed] == [5]
    assert bench.word(0x8000) == 1


def test_work_that_is_stuck_never_ends_until_the_channel_is_made_anew(bench):
    # it has nothing to do
    bench.card.clock.sleep_us(50)
    bench.card.faults.inject("engine_stuck", 1)
    bench.push(*bench.incr(0, 0, 0xC6B5))
    bench.card.clock.sleep_us(5e6)
    assert (bench.gp_get, bench.failed) == (0, [])
    assert bench.card.engines.waiting() != []
    bench.again()
    bench.push(*bench.incr(0, 0, 0xC6B5))
    bench.card.clock.sleep_us(2_000)
    assert (bench.gp_get, bench.card.engines.waiting()) == (1, [])


@pytest.mark.parametrize("kind", ["bench", "graphics"])
def test_time_in_which_an_engine_works_is_counted_as_its_use(request, kind):
    made = request.getfixturevalue(kind)
    made.card.clock.sleep_us(200_000)
    assert not any(one.memory or one.graphics for one in made.card.power.usage())
    made.push(*[0] * 1000, *made.incr(0, 0x5C, 0x8000, 0, 1, 0, 1))
    made.card.clock.sleep_us(200_000)
    assert made.word(0x8000) == 1
    used = made.card.power.usage()
    assert any(one.memory for one in used)
    assert any(one.graphics for one in used) is (kind == "graphics")


def test_an_engine_is_busy_while_this_computer_is_late_with_its_work():
    """Two steps of 1 ms, but this computer needs 9 ms for the second, and 4 ms until it looks for a third."""
    clock, counted, ended = VirtualClock(), [0], []
    load = SimpleNamespace(worked=lambda ns, graphics: counted.append(counted[-1] + ns), advance=lambda: None)
    runlist = Runlist(clock, lambda running, error: ended.append(clock.now_ns), load)

    def going():
        yield 1000.0
        clock.now_ns += 9_000_000
        yield 1000.0
        clock.now_ns += 4_000_000

    channel = SimpleNamespace(slice=SimpleNamespace(length_us=SLICE_US))
    runlist.add(SimpleNamespace(channel=channel, yields=False, yields_slice=False), going(), 0)
    clock.sleep_us(100_000)
    assert (counted[-1], ended) == (15_000_000, [15_000_000])
