"""Virtual time: order, cancellation, bounded waits."""

from __future__ import annotations

import pytest

from ringup.silicon.common.clock import PRUNE_ABOVE, PowerDomain, VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_what_falls_due_happens_in_order_of_time_then_of_asking(clock):
    seen = []
    clock.after(5, lambda: seen.append("late"))
    clock.after(1, lambda: seen.append("first"))
    clock.after(1, lambda: seen.append("second"))
    clock.sleep_us(4.9)
    assert seen == ["first", "second"]
    clock.sleep_us(0.1)
    assert seen == ["first", "second", "late"]


def test_an_action_sees_the_time_it_fell_due_not_the_end_of_the_sleep(clock):
    seen = []
    clock.after(3, lambda: seen.append(clock.now_us))
    clock.sleep_us(100)
    assert seen == [3]
    assert clock.now_us == 100


def test_an_action_may_ask_for_more_within_the_same_sleep(clock):
    seen = []

    def tick() -> None:
        seen.append(clock.now_us)
        clock.after(10, tick)

    clock.after(10, tick)
    clock.sleep_us(35)
    assert seen == [10, 20, 30]


def test_a_cancelled_timer_never_fires(clock):
    seen = []
    timer = clock.after(1, lambda: seen.append("fired"))
    timer.cancel()
    clock.sleep_us(2)
    assert seen == []


def test_time_that_an_action_spends_delays_what_comes_after_it(clock):
    seen = []
    # The action itself accesses the card.
    clock.after(1, lambda: clock.sleep_us(10))
    clock.after(2, lambda: seen.append(clock.now_us))
    clock.sleep_us(5)
    assert seen == [11]


def test_a_wait_ends_when_done_or_at_its_bound(clock):
    seen = []
    clock.after(7, lambda: seen.append(1))
    assert clock.run_until(lambda: bool(seen), timeout_us=1_000)
    assert clock.now_us == 7
    assert not clock.run_until(lambda: len(seen) == 2, timeout_us=50)
    assert clock.now_us == 57


def test_counters_count_at_their_frequency(clock):
    clock.sleep_us(2_500)
    assert clock.ticks(100_000_000) == 250_000


def test_nothing_falls_due_in_the_past(clock):
    with pytest.raises(ValueError, match="1 us ago"):
        clock.after(-1, lambda: None)


def test_parts_of_a_machine_share_its_time_and_forget_alone(clock):
    seen = []
    card, bridge = PowerDomain(clock), PowerDomain(clock)
    for name, part in (("card", card), ("bridge", bridge), ("host", clock)):
        part.after(2, lambda name=name, part=part: seen.append((name, part.now_us)))
    card.forget()
    bridge.sleep_us(3)
    assert seen == [("bridge", 2), ("host", 2)]
    assert card.now_us == clock.now_us == 3
    card.after(1, lambda: seen.append("again"))
    assert clock.run_until(lambda: seen[-1] == "again", 10)


def test_a_part_forgets_what_another_part_is_about_to_see_it_do(clock):
    seen = []
    card = PowerDomain(clock)
    clock.after(1, card.forget)
    card.after(1, lambda: seen.append("too late"))
    cancelled = card.after(0.5, lambda: seen.append("cancelled"))
    cancelled.cancel()
    clock.sleep_us(5)
    assert seen == []


def test_time_outs_of_what_ended_in_time_do_not_pile_up(clock):
    card = PowerDomain(clock)
    happens = []
    card.after(1e6, lambda: happens.append(1))
    for _ in range(10 * PRUNE_ABOVE):
        card.after(1e6, lambda: happens.append(2)).cancel()
    assert len(clock._timers) <= PRUNE_ABOVE + 1
    clock.sleep_us(1e6)
    assert happens == [1]


def test_an_action_goes_on_where_nothing_else_happens_meanwhile(clock):
    seen = []

    def work():
        while len(seen) < 20 and clock.go_on(2):
            seen.append(clock.now_us)

    clock.after(1, work)
    clock.after(6, lambda: seen.append("other"))
    clock.sleep_us(10)
    # The next part would come after the action at 6.
    assert seen == [3, 5, "other"]
    assert clock.now_us == 10
    # No action is in progress.
    assert not clock.go_on(1)
    clock.after(1, work)
    clock.sleep_us(4)
    # The next part would come at 15, and nobody waits until then yet.
    assert seen[3:] == [13]


def test_an_action_goes_on_no_longer_than_somebody_waits(clock):
    seen = []

    def work():
        while clock.go_on(1):
            seen.append(clock.now_us)

    clock.after(1, work)
    assert clock.run_until(lambda: len(seen) == 3, timeout_us=100)
    assert (seen, clock.now_us) == ([2, 3, 4], 4)
    clock.after(1, work)
    assert not clock.run_until(lambda: False, timeout_us=5)
    # The clock itself runs what is due at the bound.
    assert (seen[3:], clock.now_us) == ([6, 7, 8], 9)


def test_a_part_made_with_another_parts_clock_is_of_the_same_machine(clock):
    seen = []
    card = PowerDomain(clock)
    other = PowerDomain(card)
    other.after(1, lambda: seen.append("other"))
    card.after(1, lambda: seen.append("card"))
    card.forget()
    card.sleep_us(2)
    assert seen == ["other"]
