"""Resets that lose a card's memory: buffers report the loss, queues continue, other cards notice nothing; also cards
that no reset recovers.
"""

import pytest

from ringup.errors import DeviceHung, DeviceLost


@pytest.mark.parametrize(("chip", "rung"), [("navi31", "mode1"), ("navi32", "mode1"), ("navi33", "slot")])
def test_a_reset_of_all_takes_memory_and_says_so(bench, chip, rung):
    bench = bench(chip)
    card, queue, flag = bench.card, bench.card.compute, bench.flag
    begun = queue.stream()
    begun.dispatch(bench.program["store"], 1, 32, [flag, 1])
    kept = queue.keep(begun)
    hung = bench.hang()
    last = queue.timeline.last
    assert [(step.name, step.error) for step in card.reset(rung)] == [(rung, "")]
    with pytest.raises(DeviceHung):
        hung.wait()
    lost = rf"lost in a reset of the card \({rung}\)"
    with pytest.raises(ValueError, match=f"buffer 'flag' was {lost}"):
        _ = flag.gpu_va
    with pytest.raises(ValueError, match=f"store was {lost}: load the program again"):
        queue.stream().dispatch(bench.program["store"], 1, 32, [1, 1])
    with pytest.raises(ValueError, match=f"kept stream of compute 0 was {lost}"):
        kept.submit()
    with pytest.raises(ValueError, match="lost its memory: build it anew"):
        queue.submit(begun)
    bench.program.free()
    kept.free()
    assert card.compute is queue
    assert queue.timeline.last > last
    assert bench.works(11)
    assert card.stats().resets == 1


def test_a_queue_that_went_on_and_is_closed_with_work_under_way_gives_all_its_memory_back(bench):
    """Its timeline stays only while queues with unfinished work may wait for it. Here there are none."""
    bench = bench()
    card, queue = bench.card, bench.card.compute
    card.reset("mode1")
    bench.program, bench.flag = card.load(bench.code, "again"), card.alloc(4096, name="flag")
    card.copy.fill(bench.flag, 0).wait()
    bench.hang()
    page = queue.memory.page
    assert not queue.close(patient=False)
    assert page.freed


def test_another_card_is_not_affected(bench):
    first, second = bench("navi31"), bench("navi33")
    first.hang()
    point = second.store(second.flag, 3)
    first.card.reset("mode1")
    point.wait()
    assert second.works(4)
    assert first.works(5)


def test_a_card_that_is_gone_is_not_reset(bench):
    bench = bench()
    hung = bench.hang()
    bench.radeon.tree.set_link(up=False)
    with pytest.raises(DeviceLost):
        bench.card.reset()
    with pytest.raises(DeviceLost):
        hung.wait(1)
    with pytest.raises(DeviceLost):
        bench.store(1 << 33, 1)


def test_where_no_reset_helps_each_is_reported_and_the_card_takes_no_work(bench):
    bench = bench()
    bench.radeon.faults.inject("smu_silent")
    bench.radeon.resets = lambda: ()
    with pytest.raises(DeviceHung, match=r"no reset helped \(mode1: failed: .*\); switch the card's power off and on"):
        bench.card.reset("mode1")
    with pytest.raises(DeviceHung, match="no reset helped"):
        bench.card.copy.fill(bench.flag, 0)
    bench.radeon.faults.clear()
