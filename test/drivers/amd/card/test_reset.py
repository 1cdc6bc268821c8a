"""A card that is reset while it is open: hung work fails, other work continues, and everything works again."""

import struct

import pytest

from ringup.errors import DeviceFault, DeviceHung, DeviceTimeout

# navi48: test_gfx12.py
CHIPS = ("navi31", "navi32", "navi33", "mi300x")


def mapped(radeon):
    """The compute queues that the model's command processor has mapped."""
    return {slot for slot, queue in radeon.gc.cp.queues.items() if queue.hqd.active}


def hang_copies(bench):
    """Make the first copy queue wait for a word that never changes; return the point."""
    card = bench.card
    stream = card.copy.stream()
    stream.body += card.copy.commands.wait(bench.flag.gpu_va, 5)
    return card.copy.submit(stream)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("first", ["queue", "engine"])
def test_an_endless_kernel_is_killed_and_its_queue_works_again(bench, chip, first):
    bench = bench(chip)
    card, kept = bench.card, bench.card.alloc(4096, name="kept")
    card.copy.fill(kept, 0xA5A5A5A5).wait()
    queue, before = card.compute, mapped(bench.radeon)
    hung = bench.hang()
    with pytest.raises(DeviceTimeout):
        hung.wait(0.01)
    rungs = card.reset(first)
    assert [(rung.name, rung.error) for rung in rungs] == [(first, "")]
    assert "VRAM" in rungs[0].survived
    with pytest.raises(DeviceHung, match="was reset before the work was done"):
        hung.wait()
    assert not hung.done
    assert card.compute is queue
    assert mapped(bench.radeon) == before
    assert bench.works(7)
    # The count continues.
    assert queue.timeline.last > hung.value
    assert card.copy.download(kept) == struct.pack("<I", 0xA5A5A5A5) * 1024
    # Later work does not complete the lost work.
    assert not hung.done


def test_work_that_ends_within_a_moment_is_not_lost(bench):
    bench = bench()
    with bench.card.alloc(64 << 20) as large:
        filled = bench.card.copy.fill(large, 3)
        hung = bench.hang()
        bench.card.reset()
        filled.wait()
        assert filled.done
        with pytest.raises(DeviceHung):
            hung.wait()


def test_only_queues_with_unfinished_work_are_touched(bench):
    bench = bench()
    second = bench.card.new_compute_queue()
    assert bench.works(1, second)
    timelines = second.timeline, bench.card.copy.timeline
    bench.hang()
    bench.card.reset()
    assert (second.timeline, bench.card.copy.timeline) == timelines
    assert bench.works(2, second)
    assert bench.works(3)


def test_a_hung_copy_engine_is_reset_alone(bench):
    bench = bench()
    card = bench.card
    other, sibling = card.copies[1], card.new_copy_queue(0)
    assert bench.works(1, copy=other)
    hung = hang_copies(bench)
    with pytest.raises(DeviceTimeout):
        hung.wait(0.01)
    timelines = other.timeline, card.compute.timeline
    assert [rung.name for rung in card.reset("engine")] == ["engine"]
    with pytest.raises(DeviceHung):
        hung.wait()
    assert (other.timeline, card.compute.timeline) == timelines
    for value, queue in enumerate((card.copy, sibling, other)):
        assert bench.works(value, copy=queue)


def test_work_that_would_wait_for_lost_work_is_refused(bench):
    bench = bench()
    hung = bench.hang()
    bench.card.reset()
    stream = bench.card.copy.stream()
    stream.fill(bench.flag.gpu_va, 0, 4096)
    stream.wait_for(hung)
    with pytest.raises(DeviceHung, match="was reset"):
        bench.card.copy.submit(stream)
    assert bench.works(5)


def test_a_kept_stream_works_after_a_reset_of_its_queue(bench):
    bench = bench()
    card, out = bench.card, bench.card.alloc(4096)
    stream = card.compute.stream()
    stream.dispatch(bench.program["store"], 1, 32, [out, 1])
    kept = card.compute.keep(stream, copies=1)
    bench.hang()
    kept.submit()
    card.reset()
    kept.patch_args(8, struct.pack("<I", 0x1234))
    card.copy.wait_for(kept.submit())
    assert card.copy.download(out, size_bytes=128) == struct.pack("<I", 0x1234) * 32
    kept.free()


@pytest.mark.parametrize("chip", CHIPS)
def test_a_fault_stops_submissions_until_a_reset(bench, chip):
    bench = bench(chip)
    card, gone = bench.card, bench.card.alloc(4096, name="weights")
    gone_va = gone.gpu_va
    gone.free()
    faulted = bench.store(gone_va, 1)
    with pytest.raises(DeviceFault, match="'weights', which was freed") as first:
        faulted.wait(1)
    for use in (lambda: card.compute.submit(card.compute.stream()), lambda: card.copy.fill(bench.flag, 0)):
        with pytest.raises(DeviceFault) as again:
            use()
        assert str(again.value) == str(first.value)
    card.reset()
    with pytest.raises(DeviceFault, match="weights"):
        faulted.wait()
    assert bench.works(9)
    bench.radeon.violations.clear()


def test_the_first_fault_is_the_one_that_is_reported(bench):
    bench = bench()
    second = bench.card.new_compute_queue()
    points = [bench.store(0xDEAD_0000, 1), bench.store(0xBEEF_0000, 1, second)]
    texts = set()
    for point in points:
        with pytest.raises(DeviceFault) as caught:
            point.wait(1)
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "0xdead0000" in texts.pop()
    bench.radeon.violations.clear()


def test_a_copy_that_faults_and_yet_ends_is_not_taken_as_done(bench):
    bench = bench()
    stream = bench.card.copy.stream()
    # Nothing is mapped there: the writes go to the default page.
    stream.fill(0xDEAD_0000, 1, 4096)
    point = bench.card.copy.submit(stream)
    bench.radeon.clock.sleep_us(5000)
    assert point.done
    with pytest.raises(DeviceFault, match="SDMA0 wrote page 0xdead0000 of vmid 8"):
        point.wait()
    bench.card.reset()
    assert bench.works(6)


def test_an_unknown_reset_is_refused_by_name(bench):
    with pytest.raises(ValueError, match="no reset 'hammer'; it has queue, engine, mode1"):
        bench().card.reset("hammer")
