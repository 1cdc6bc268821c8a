"""Faults by name, and the log of a card."""

from __future__ import annotations

import pytest

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import FaultKind, Faults
from ringup.silicon.common.log import EventLog


def test_a_fault_strikes_as_often_as_asked():
    faults = Faults()
    faults.inject("lost_interrupt", 2)
    assert [faults.take("lost_interrupt") for _ in range(4)] == [True, True, False, False]


def test_a_fault_without_a_count_strikes_until_it_is_cleared():
    faults = Faults()
    faults.inject("lost_interrupt")
    assert all(faults.take("lost_interrupt") for _ in range(100))
    faults.clear("lost_interrupt")
    assert not faults.take("lost_interrupt")


def test_a_threshold_is_reached_after_its_amount_and_stays_reached():
    faults = Faults()
    faults.inject("link_drop_after_bytes", 1_000)
    assert not faults.reached("link_drop_after_bytes", 999)
    assert faults.reached("link_drop_after_bytes", 1)
    assert faults.reached("link_drop_after_bytes", 1)


def test_an_unknown_fault_is_refused_with_the_list_of_those_there_are():
    faults = Faults()
    faults.know(FaultKind("stuck_fence", "fences are never written"))
    with pytest.raises(ValueError, match=r"no fault 'stuck_fnece'; it has .*stuck_fence: fences are never written"):
        faults.inject("stuck_fnece")


def test_events_are_put_into_words_only_when_read():
    log = EventLog(VirtualClock())
    asked = []

    def form(number: int) -> str:
        asked.append(number)
        return f"number {number}"

    log.note("gc", "packet", form, 7)
    assert asked == []
    assert "packet" in str(next(iter(log)))
    assert next(iter(log)).text == "number 7"


def test_the_log_is_bounded_and_keeps_the_newest():
    log = EventLog(VirtualClock(), limit=10)
    for number in range(25):
        log.note("gc", "read", "{}", number)
    assert [event.text for event in log] == [str(number) for number in range(15, 25)]


def test_a_watcher_gets_every_event_and_find_filters():
    clock = VirtualClock()
    log, seen = EventLog(clock), []
    log.watch(seen.append)
    log.note("gc", "fault", "a")
    clock.sleep_us(3)
    log.note("ih", "interrupt", "b")
    assert [event.text for event in seen] == ["a", "b"]
    assert [event.time_ns for event in log.find("interrupt")] == [3_000]
    assert log.find(block="gc") == seen[:1]


def test_a_watcher_gets_the_kinds_that_it_asks_for():
    log, seen = EventLog(VirtualClock()), []
    log.watch(seen.append, "fault", "violation")
    for kind in ("read", "fault", "packet", "violation"):
        log.note("gc", kind, "{}", kind)
    assert [event.text for event in seen] == ["fault", "violation"]
    assert len(log) == 4
