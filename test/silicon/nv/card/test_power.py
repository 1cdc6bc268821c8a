"""Work warms a board, and the counters of use show it."""

import pytest

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.nv.board.power import ROWS, SAMPLES, Power

SECOND, MS = 1_000_000_000, 1_000_000


@pytest.fixture(params=["tu102", "ga102", "ad102"])
def board(request):
    clock = VirtualClock()
    return Power(clock, request.param), clock


def work(power, clock, seconds, *, graphics=True):
    power.advance()
    for _ in range(round(seconds * 100)):
        power.worked(10 * MS, graphics=graphics)
        clock.advance_ns(10 * MS)
    power.advance()


def test_work_warms_a_board_and_rest_cools_it(board):
    power, clock = board
    clock.advance_ns(60 * SECOND)
    idle = power.celsius
    assert 25 < idle < 45
    assert power.power == pytest.approx(power.row.idle)
    work(power, clock, 0.5)
    first, watts = power.celsius, power.power
    assert first > idle + 5
    assert 0.8 * power.row.limit < watts <= power.row.limit
    work(power, clock, 60)
    assert first + 15 < power.celsius < 95
    clock.advance_ns(SECOND)
    power.advance()
    assert power.power < power.row.idle + 1
    clock.advance_ns(120 * SECOND)
    assert idle <= power.celsius <= idle + 1


def test_copies_take_less_power_than_shaders(board):
    power, clock = board
    work(power, clock, 2, graphics=False)
    copying = power.power
    work(power, clock, 2)
    assert power.row.idle + 10 < copying < power.power - 10


def test_samples_tell_when_engines_worked(board):
    power, clock = board
    clock.advance_ns(20 * SECOND)
    work(power, clock, 2)
    clock.advance_ns(3 * SECOND)
    work(power, clock, 1, graphics=False)
    clock.advance_ns(SECOND)
    samples = power.usage()
    assert len(samples) == SAMPLES
    assert [one.place for one in samples] == [(samples[0].place + number) % SAMPLES for number in range(SAMPLES)]
    assert clock.now_ns - 139 * MS <= samples[-1].end_ns <= clock.now_ns
    span = 10 / SAMPLES
    assert sum(one.graphics for one in samples) * span == pytest.approx(2, abs=0.01)
    assert sum(one.memory for one in samples) * span == pytest.approx(1 + 2 * 0.5, abs=0.01)
    assert max(one.graphics for one in samples) == pytest.approx(1.0, abs=0.01)
    # shaders first, then copies, with a rest between
    assert [bool(one.graphics) for one in samples].index(True) < [one.memory > 0.9 for one in samples].index(True)
    clock.advance_ns(11 * SECOND)
    assert not any(one.graphics or one.memory for one in power.usage())


def test_the_first_samples_fill_the_ring(board):
    power, clock = board
    clock.advance_ns(SECOND)
    assert [one.place for one in power.usage()] == list(range(7))


def test_every_chip_has_a_row(board):
    assert all(row.idle < row.limit for row in ROWS.values())
