"""Queues on a toy engine that executes what it finds in memory: order, wraps, full rings, waits, kept
streams, threads.
"""

import random
import threading

import numpy as np
import pytest

from ringup.errors import DeviceTimeout
from ringup.queues.kept import Kept, KeptMemory
from ringup.queues.queue import ADDRESS, Stream
from ringup.queues.timeline import EPOCH_MARGIN, Point

SIGNAL_BYTES = 24
NOTE, NOTE_ARGS, PACKET_BYTES = 5, 6, 24


def note_args(toy, *numbers):
    """Return a stream that notes numbers from its arguments."""
    stream = Stream(toy.queue.commands, toy.machine.owner)
    for number in numbers:
        stream.fixups.append((len(stream.body) + 8, len(stream.args)))
        stream.body += NOTE_ARGS.to_bytes(8, "little") + bytes(16)
        stream.args += ADDRESS.pack(number)
    return stream


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("offset", range(0, 1024, 8))
def test_a_submission_is_executed_wherever_in_the_ring_it_wraps(machine, offset, mapped):
    toy = machine.queue(ring_bytes=1024, wptr=offset, mapped=mapped)
    points = [toy.queue.submit(toy.stream(n, n + 1)) for n in range(0, 40, 2)]
    points[-1].wait()
    assert toy.notes == list(range(40))
    assert all(point.done for point in points)


@pytest.mark.parametrize("wptr", [(1 << 32) - 48, (1 << 64) - 4096])
def test_write_pointers_of_any_size_go_on(machine, wptr):
    toy = machine.queue(wptr=wptr - wptr % 8)
    for n in range(100):
        toy.queue.submit(toy.stream(n))
    machine.wait(toy.timeline, toy.timeline.last, 1_000_000)
    assert toy.notes == list(range(100))


def test_a_full_ring_waits_for_the_oldest_work_and_loses_nothing(machine):
    toy = machine.queue(ring_bytes=256)
    for n in range(200):
        toy.queue.submit(toy.stream(n))
    Point(toy.timeline, toy.timeline.last).wait()
    assert toy.notes == list(range(200))


def test_a_full_ring_whose_engine_is_stuck_is_an_error_and_what_was_refused_is_not_submitted(machine):
    toy = machine.queue(ring_bytes=256)
    machine.stuck = True
    accepted = 0
    while toy.ring.free_bytes >= 3 * PACKET_BYTES:
        toy.queue.submit(toy.stream(accepted))
        accepted += 1
    with pytest.raises(DeviceTimeout, match="toy timeline stayed at 0"):
        toy.queue.submit(toy.stream(accepted), timeout_s=0.001)
    machine.stuck = False
    assert accepted == toy.timeline.last
    toy.queue.submit(toy.stream(1000)).wait()
    assert toy.notes == [*range(accepted), 1000]


def test_a_stream_longer_than_the_ring_runs_from_memory(machine):
    toy = machine.queue(ring_bytes=256)
    toy.queue.submit(toy.stream(*range(50))).wait()
    toy.queue.submit(toy.stream(*range(50, 60))).wait()
    assert toy.notes == list(range(60))


@pytest.mark.parametrize("wptr", range(0, 4096, 128))
def test_commands_can_be_put_into_the_ring_by_the_queue_itself(machine, wptr):
    """The function that puts commands may first submit to the same queue, anywhere in the ring."""
    toy = machine.queue(ring_bytes=4096, padded=True, wptr=wptr)
    expected, puts = [], []

    def put(at, data):
        toy.queue.submit(toy.stream(255)).wait()
        assert 0 <= at <= 4096 - len(data)
        machine.memory[toy.base + at : toy.base + at + len(data)] = bytes(data)
        puts.append(at)
        expected.append(255)

    for n in range(30):
        notes = [2 * n % 251, *range(n)]
        toy.queue.submit(toy.stream(*notes), put=put).wait()
        expected += notes
    assert toy.notes == expected
    # The function is called twice where the commands cross the ring's end.
    assert 30 < len(puts) < 40


def test_a_put_may_not_submit_more_than_the_room_left_for_it(machine):
    toy = machine.queue(ring_bytes=4096, padded=True)
    with pytest.raises(ValueError, match="took more of it than 256 bytes"):
        toy.queue.submit(toy.stream(1), put=lambda at, data: toy.queue.submit(toy.stream(*range(40))))
    toy.queue.submit(toy.stream(2)).wait()
    assert toy.notes == [*range(40), 2]


def test_stored_is_called_before_the_engine_is_notified(machine):
    toy = machine.queue()
    told = []

    def stored():
        told.append(toy.wptr)
        assert bytes([41]) in bytes(machine.memory[toy.base : toy.base + toy.size])

    toy.queue.submit(toy.stream(41), stored=stored).wait()
    assert told == [0]
    assert toy.wptr > 0


def test_a_submission_is_taken_back_when_stored_raises(machine):
    toy = machine.queue()

    def object_to_it():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toy.queue.submit(toy.stream(1), stored=object_to_it)
    toy.queue.submit(toy.stream(2)).wait()
    assert toy.notes == [2]


def test_a_stream_that_fits_nowhere_is_refused(machine):
    toy = machine.queue(ring_bytes=256)
    with pytest.raises(ValueError, match="never fit an arena of 4096"):
        toy.queue.submit(toy.stream(*range(400)))
    toy.queue.submit(toy.stream(7)).wait()
    assert toy.notes == [7]


@pytest.mark.parametrize("padded", [True, False])
def test_padding_is_not_read_or_does_nothing(machine, padded):
    toy = machine.queue(padded=padded)
    for n in range(200):
        toy.queue.submit(toy.stream(*range(n % 7))).wait()
        assert not padded or toy.ring.wptr % 64 == 0  # eight NOPs
    Point(toy.timeline, toy.timeline.last).wait()
    assert toy.notes == [number for n in range(200) for number in range(n % 7)]


def test_a_queue_waits_for_another_before_it_goes_on(machine):
    first, second = machine.queue(), machine.queue()
    slow = first.queue.submit(first.stream(*range(20)))
    stream = second.stream(1)
    stream.wait_for(slow)
    after = second.queue.submit(stream)
    while not after.done:
        # The waiting engine gets the first turn.
        for engine in (second, first):
            engine.step()
        assert not second.notes or len(first.notes) == 20
    assert second.notes == [1]


def test_a_queues_wait_holds_back_later_work_once(machine):
    first, second = machine.queue(), machine.queue()
    point = first.queue.submit(first.stream(1))
    second.queue.wait_for(point)
    second.queue.submit(second.stream(2))
    assert second.ring.wptr == 4 * PACKET_BYTES  # wait, begin, note, signal
    second.queue.submit(second.stream(3)).wait()
    assert second.ring.wptr == 7 * PACKET_BYTES
    assert (first.notes, second.notes) == ([1], [2, 3])


@pytest.mark.parametrize("start", [(1 << 32) - 3, (1 << 32) - EPOCH_MARGIN - 2, (5 << 32) - 1, (1 << 63) - 2])
@pytest.mark.parametrize("word_bits", [32, 64])
def test_timelines_and_waits_across_queues_survive_the_wrap_of_32_bits(machine, start, word_bits):
    first = machine.queue(start=start, word_bits=word_bits)
    second = machine.queue(start=start, word_bits=word_bits)
    for n in range(12):
        toy, other = (first, second) if n % 2 else (second, first)
        other.queue.wait_for(toy.queue.submit(toy.stream(n)))
        other.queue.submit(other.stream(100 + n))
    for toy in (first, second):
        Point(toy.timeline, toy.timeline.last).wait()
        assert toy.timeline.completed == toy.timeline.last == start + 12
    assert sorted(first.notes + second.notes) == sorted([*range(12), *range(100, 112)])


def test_points_of_another_address_space_are_waited_for_by_the_host(machine):
    toy, elsewhere = machine.queue(), machine.queue()
    elsewhere.timeline.space = "another card"
    toy.queue.wait_for(elsewhere.queue.submit(elsewhere.stream(1)))
    toy.queue.submit(toy.stream(2)).wait()
    assert elsewhere.notes == [1]
    assert toy.ring.wptr == 3 * PACKET_BYTES


@pytest.mark.parametrize("garbage", [(1 << 64) - 1, 1 << 40])
def test_an_impossible_timeline_value_is_no_progress(machine, garbage):
    toy = machine.queue()
    machine.stuck = True
    point = toy.queue.submit(toy.stream(1))
    machine.words[toy.word // 8] = garbage
    assert not point.done
    with pytest.raises(DeviceTimeout):
        point.wait(0.001)


def test_arguments_of_every_submission_are_its_own(machine):
    toy = machine.queue()
    stream = note_args(toy, 11, 22, 33)
    toy.queue.submit(stream)
    stream.args[0:8] = ADDRESS.pack(44)
    toy.queue.submit(stream).wait()
    assert toy.notes == [11, 22, 33, 44, 22, 33]


def test_unchanged_arguments_are_not_stored_again(machine):
    toy, stored = machine.queue(), []
    args = toy.queue._args
    write = args._write
    args._write = lambda at, data: (stored.append(at), write(at, data))
    stream, other = note_args(toy, 7), note_args(toy, 8)
    for _ in range(100):
        toy.queue.submit(stream)
    assert len(stored) == 2
    toy.queue.submit(other)
    toy.queue.submit(stream).wait()
    assert len(stored) == 4
    assert toy.notes == [7] * 100 + [8, 7]


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_that_is_submitted_again_finds_its_arguments_whatever_was_between(machine, seed):
    """Other numbers, other streams, another queue, one more command for the same argument, or a remapped queue may come
    between.
    """
    draw = random.Random(seed)
    toys = [machine.queue(), machine.queue()]
    streams = [note_args(toys[0], 100 + n) for n in range(2)]
    numbers = [[100 + n] for n in range(2)]
    expected = [[], []]
    for step in range(200):
        at, which = draw.choice((0, 0, 0, 1)), draw.choice((0, 0, 0, 1))
        toy, stream, noted = toys[at], streams[which], numbers[which]
        change = draw.randrange(12)
        if change == 0:
            noted[:] = [step] * len(noted)
            ADDRESS.pack_into(stream.args, 0, step)
        elif change == 1 and len(noted) < 8:
            noted.append(noted[0])
            stream.fixups.append((len(stream.body) + 8, 0))
            stream.body += NOTE_ARGS.to_bytes(8, "little") + bytes(16)
        elif change == 2:
            Point(toy.timeline, toy.timeline.last).wait()
        toy.queue.submit(stream)
        expected[at] += noted
    for toy, notes in zip(toys, expected, strict=True):
        Point(toy.timeline, toy.timeline.last).wait()
        assert toy.notes == notes


def test_arguments_of_before_a_reset_are_stored_again(machine):
    toy = machine.queue()
    stream = note_args(toy, 7)
    for _ in range(3):
        toy.queue.submit(stream).wait()
    toy.queue.restart(DeviceTimeout("reset"))
    toy.rptr = toy.wptr = 0
    toy.queue.submit(stream)
    # These fill the arena.
    others = [note_args(toy, *[n] * 30) for n in range(8)]
    for other in others:
        toy.queue.submit(other)
    Point(toy.queue.timeline, toy.queue.timeline.last).wait()
    assert toy.notes == [7] * 4 + [n for n in range(8) for _ in range(30)]


def test_arguments_come_back_when_their_work_is_done(machine):
    toy = machine.queue(ring_bytes=2048)
    for n in range(300):
        toy.queue.submit(note_args(toy, *range(n, n + 20)))
    Point(toy.timeline, toy.timeline.last).wait()
    assert toy.notes == [n + k for n in range(300) for k in range(20)]


def keep(toy, stream, copies=2):
    freed = []

    def alloc(size_bytes):
        at = toy.machine.take(size_bytes)

        def write(offset, data):
            toy.machine.memory[at + offset : at + offset + len(data)] = data

        return KeptMemory(at, write, lambda: freed.append(at))

    return Kept(toy.queue, stream, alloc, copies), freed


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("padded", [True, False])
def test_a_kept_stream_runs_with_the_values_it_had_when_submitted(machine, copies, padded):
    toy = machine.queue(padded=padded)
    kept, freed = keep(toy, toy.stream(1, 2), copies)
    # after `begin`: the first note's number
    place = PACKET_BYTES + 8
    wanted = []
    for n in range(30):
        kept.patch(place, 1000 + n)
        kept.submit()
        wanted += [1000 + n, 2]
    kept.free()
    assert toy.notes == wanted
    assert freed == [kept.gpu_va]


def test_a_kept_stream_keeps_its_arguments_and_takes_new_ones(machine):
    toy = machine.queue()
    kept, _ = keep(toy, note_args(toy, 5, 6))
    kept.submit()
    kept.patch_args(8, ADDRESS.pack(77))
    kept.submit()
    kept.submit().wait()
    assert toy.notes == [5, 6, 5, 77, 5, 77]


@pytest.mark.parametrize(("at", "size"), [(-8, 8), (41, 8), (1 << 20, 4)])
def test_a_patch_outside_is_refused(machine, at, size):
    toy = machine.queue()
    kept, _ = keep(toy, toy.stream(1))
    with pytest.raises(ValueError, match="lies outside the 48 bytes of commands"):
        kept.patch(at, 0, size)
    with pytest.raises(ValueError, match="lie outside 0 bytes of arguments"):
        kept.patch_args(0, b"1")


@pytest.mark.parametrize(("value", "size"), [(-1, 8), (1 << 32, 4), (1.5, 8), (1, 3)])
def test_a_patch_of_what_the_bytes_cannot_hold_is_refused_and_leaves_the_stream_alone(machine, value, size):
    toy = machine.queue()
    kept, _ = keep(toy, toy.stream(7))
    with pytest.raises(ValueError, match=r"hold a whole number from 0 on|4 or 8 bytes"):
        kept.patch(24 + 8, value, size)
    kept.submit().wait()
    assert toy.notes == [7]


def test_arguments_are_patched_with_the_bytes_of_an_array(machine):
    toy = machine.queue()
    kept, _ = keep(toy, note_args(toy, 5, 6))
    kept.patch_args(0, np.array([8, 9], np.uint64))
    kept.submit().wait()
    assert toy.notes == [8, 9]


def test_a_kept_stream_that_was_freed_is_refused_and_freed_once(machine):
    toy = machine.queue()
    kept, freed = keep(toy, toy.stream(1))
    kept.submit().wait()
    kept.free()
    kept.free()
    assert freed == [kept.gpu_va]
    for use in (kept.submit, lambda: kept.patch(24, 1), lambda: kept.patch_args(0, b"")):
        with pytest.raises(ValueError, match="was freed: build and keep it anew"):
            use()
    assert toy.notes == [1]


def test_a_stream_of_another_card_is_not_kept(machine):
    toy, other = machine.queue(), type(machine)().queue()
    with pytest.raises(ValueError, match="begun for another card"):
        keep(toy, other.stream(1))


def test_objects_that_are_no_stream_or_point_are_named_and_change_nothing(machine):
    toy = machine.queue()
    stream = toy.stream(1)
    for wait_for in (toy.queue.wait_for, stream.wait_for):
        with pytest.raises(TypeError, match="a point is waited for, such as `submit` returns, not Queue"):
            wait_for(toy.queue)
    with pytest.raises(TypeError, match="takes streams, not NoneType"):
        toy.queue.submit(None)
    toy.queue.submit(stream).wait()
    assert toy.notes == [1]


def test_another_threads_error_names_the_queues_owner(machine):
    toy = machine.queue()
    seen = []

    def elsewhere():
        try:
            toy.queue.submit(toy.stream(1))
        except ValueError as error:
            seen.append(str(error))
        machine.owner.adopt()
        toy.queue.submit(toy.stream(2)).wait()

    thread = threading.Thread(target=elsewhere, name="worker")
    thread.start()
    thread.join()
    assert seen == ["toy belongs to thread 'MainThread', not to 'worker': call `card.adopt()` here first"]
    assert toy.notes == [2]
    with pytest.raises(ValueError, match="belongs to a thread that has ended, not to 'MainThread'"):
        toy.queue.submit(toy.stream(3))


def test_random_mixes_of_queues_run_in_the_order_that_waits_ask(machine):
    random.seed(7)
    toys = [machine.queue(ring_bytes=512, wptr=random.randrange(0, 512, 8)) for _ in range(3)]
    points, wanted = [], {toy: [] for toy in toys}
    for n in range(600):
        toy = random.choice(toys)
        if points and random.random() < 0.4:
            toy.queue.wait_for(random.choice(points[-20:]))
        numbers = [n] * random.randrange(1, 6)
        points.append(toy.queue.submit(toy.stream(*numbers) if random.random() < 0.5 else note_args(toy, *numbers)))
        wanted[toy] += numbers
        if random.random() < 0.1:
            points[-1].wait()
    for toy in toys:
        Point(toy.timeline, toy.timeline.last).wait()
        assert toy.notes == wanted[toy]
