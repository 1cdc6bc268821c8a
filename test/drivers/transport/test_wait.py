"""Bounded waits: when they look, how long they sleep, and what the error says after the time limit."""

import pytest

from ringup.drivers.transport.wait import poll, until
from ringup.errors import DeviceLost, DeviceTimeout

TIMEOUT_US, POLL_US = 1_000, 300


class Clock:
    """A clock that advances in sleeps and, where a test wants it, in looks."""

    def __init__(self):
        self.now_us = 5_000
        self.naps = []

    def sleep_us(self, time_us):
        self.naps.append(time_us)
        self.now_us += time_us


class Register:
    """Returns `done` from a given moment on. It records each look, and a look takes `look_us`."""

    def __init__(self, clock, done_us, look_us=0):
        self.clock, self.done_us, self.look_us, self.looks = clock, clock.now_us + done_us, look_us, []
        self.start_us = clock.now_us

    def read(self):
        self.looks.append(self.clock.now_us - self.start_us)
        value = "done" if self.clock.now_us >= self.done_us else "busy"
        self.clock.now_us += self.look_us
        return value


def is_done(seen):
    return seen == "done"


def wait(register, timeout_us=TIMEOUT_US, **more):
    return until(
        register.read,
        is_done,
        clock=register.clock,
        timeout_us=timeout_us,
        poll_us=POLL_US,
        doing="waking the card",
        **more,
    )


@pytest.fixture
def clock():
    return Clock()


def test_a_condition_that_holds_already_costs_one_look_and_no_sleep(clock):
    register = Register(clock, 0)
    assert wait(register) == "done"
    assert (register.looks, clock.naps) == ([0], [])


def test_every_look_except_the_first_follows_one_sleep(clock):
    register = Register(clock, 600)
    assert wait(register) == "done"
    assert (register.looks, clock.naps) == ([0, 300, 600], [300, 300])


def test_an_answer_during_the_sleep_across_the_deadline_is_seen(clock):
    register = Register(clock, 1_001)
    assert wait(register) == "done"
    assert register.looks == [0, 300, 600, 900, 1_200]


def test_a_look_during_which_the_time_runs_out_is_not_the_last(clock):
    """This happens when the process was not running in the middle of a look."""
    register = Register(clock, 1_500, look_us=1_500)
    assert wait(register) == "done"
    assert register.looks == [0, 1_800]


def test_an_expired_wait_names_its_condition_and_the_last_value(clock):
    register = Register(clock, 1_201)
    with pytest.raises(DeviceTimeout) as caught:
        wait(register, describe=lambda seen: f"it read {seen}", advice="; reset the card")
    assert str(caught.value) == "waking the card: it read busy for 1 ms; reset the card"
    assert register.looks == [0, 300, 600, 900, 1_200]


def test_the_last_value_is_shown_by_its_repr_by_default(clock):
    with pytest.raises(DeviceTimeout, match=r"^waking the card: 'busy' for 1 ms$"):
        wait(Register(clock, 9_999))


def test_no_time_at_all_is_one_look(clock):
    register = Register(clock, 1)
    with pytest.raises(DeviceTimeout, match="'busy' for 0 ms"):
        wait(register, timeout_us=0)
    assert (register.looks, clock.naps) == ([0], [])
    assert wait(Register(clock, 0), timeout_us=0) == "done"


def test_an_error_in_a_look_is_raised_at_once(clock):
    def gone():
        raise DeviceLost("the link is down")

    with pytest.raises(DeviceLost, match="the link is down"):
        until(gone, is_done, clock=clock, timeout_us=TIMEOUT_US, poll_us=POLL_US, doing="waking the card")
    assert clock.naps == []


@pytest.mark.parametrize(("done_us", "seen"), [(600, "done"), (1_200, "done"), (1_201, "busy")])
def test_a_poll_returns_the_last_value_in_any_case(clock, done_us, seen):
    register = Register(clock, done_us)
    assert poll(register.read, is_done, clock=clock, timeout_us=TIMEOUT_US, poll_us=POLL_US) == seen
