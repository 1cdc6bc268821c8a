"""Queues whose hardware was reset: lost work stays failed, later work runs, and a card that accepts no work
says why.
"""

import threading

import pytest

from ringup.errors import DeviceFault, DeviceHung
from ringup.queues.kept import Kept, KeptMemory


def reset(toy):
    """Do what a driver does around `Queue.restart`: stop the engine and set its pointers to 0."""
    toy.queue.restart(DeviceHung("the engine hung"))
    toy.rptr = toy.wptr = toy.waiting = 0
    toy.calls.clear()
    toy.machine.words[toy.word // 8] = toy.queue.timeline.last & ((1 << toy.timeline.word_bits) - 1)


@pytest.mark.parametrize("word_bits", [32, 64])
@pytest.mark.parametrize("start", [0, (1 << 32) - 2])
def test_lost_work_stays_lost_and_later_work_is_done(machine, word_bits, start):
    toy = machine.queue(word_bits=word_bits, start=start)
    finished = toy.queue.submit(toy.stream(1))
    finished.wait()
    machine.stuck = True
    lost = [toy.queue.submit(toy.stream(number)) for number in (2, 3)]
    reset(toy)
    machine.stuck = False
    # The submissions go around the ring, over the places of the lost ones.
    later = [toy.queue.submit(toy.stream(number)) for number in range(10, 40)]
    later[-1].wait()
    assert toy.notes == [1, *range(10, 40)]
    assert later[0].value == lost[-1].value + 1
    assert finished.done
    finished.wait()
    for point in lost:
        assert not point.done
        with pytest.raises(DeviceHung, match="the engine hung"):
            point.wait()


def test_no_queue_waits_for_lost_work(machine):
    first, second = machine.queue(), machine.queue()
    machine.stuck = True
    lost = first.queue.submit(first.stream(1))
    reset(first)
    machine.stuck = False
    second.queue.wait_for(lost)
    with pytest.raises(DeviceHung, match="the engine hung"):
        second.queue.submit(second.stream(2))
    assert second.notes == []


def test_arguments_and_kept_streams_of_lost_work_come_back(machine):
    toy = machine.queue()
    at = machine.take(512)

    def write(offset, data):
        machine.memory[at + offset : at + offset + len(data)] = data

    stream = toy.stream(5)
    kept = Kept(toy.queue, stream, lambda size_bytes: KeptMemory(at, write, lambda: None), copies=1)
    machine.stuck = True
    kept.submit()
    toy.queue._args.take(2048, 0)
    reset(toy)
    machine.stuck = False
    assert toy.queue._args.take(2048, 0) == 0
    # The note's number, after the packet that begins a stream.
    kept.patch(24 + 8, 6)
    kept.submit().wait()
    assert toy.notes == [6]
    kept.free()


def test_a_kept_stream_whose_memory_is_lost_says_so(machine):
    toy = machine.queue()
    memory = KeptMemory(machine.take(512), lambda at, data: None, pytest.fail)
    kept = Kept(toy.queue, toy.stream(1), lambda size_bytes: memory, 2)
    kept.lose("lost in a flood")
    with pytest.raises(ValueError, match="a kept stream of toy was lost in a flood: build and keep it anew"):
        kept.submit()
    kept.free()


def test_the_reason_for_refused_work_is_raised_each_time_until_it_is_cured(machine):
    toy, well = machine.queue(), []
    cause = DeviceFault("a page fault")
    cause.add_note("where it was")
    machine.owner.refuse(cause, lambda: bool(well))
    for _ in range(2):
        with pytest.raises(DeviceFault, match="a page fault") as caught:
            toy.queue.submit(toy.stream(1))
        assert caught.value is not cause
        assert caught.value.__notes__ == ["where it was"]
    well.append(1)
    toy.queue.submit(toy.stream(2)).wait()
    well.clear()
    # The queue does not ask for a refusal any more.
    toy.queue.submit(toy.stream(3)).wait()
    assert toy.notes == [2, 3]


def test_a_refusal_holds_for_the_thread_that_adopts_the_card(machine):
    toy, seen = machine.queue(), []
    machine.owner.refuse(DeviceHung("it hung"))

    def other():
        machine.owner.adopt()
        try:
            toy.queue.submit(toy.stream(1))
        except DeviceHung as error:
            seen.append(str(error))
        machine.owner.accept()
        toy.queue.submit(toy.stream(2)).wait()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(10)
    assert (seen, toy.notes) == (["it hung"], [2])


def test_unfinished_work_is_listed_by_whole_submissions(machine):
    toy = machine.queue()
    toy.queue.submit(toy.stream(1)).wait()
    end = toy.queue.ring.wptr
    machine.stuck = True
    toy.queue.submit(toy.stream(2, 3))
    assert toy.queue.ring.unfinished() == (end, toy.queue.ring.wptr)


def test_a_stream_of_another_card_is_refused(machine):
    other = type(machine)().queue()
    with pytest.raises(ValueError, match="begun for another card"):
        machine.queue().queue.submit(other.stream(1))
