"""GPFIFO queues: entries at every offset of the ring, wraps, commands in memory, full rings, kept streams."""

import sys
from types import SimpleNamespace

import pytest

from ringup.errors import DeviceTimeout
from ringup.queues import kept as kept_module
from ringup.queues import queue as queue_module
from ringup.queues import ring as ring_module
from ringup.queues.nv import gpfifo
from ringup.queues.nv.gpfifo import BYTES_PER_ENTRY, MAX_PIECE_BYTES, Gpfifo, GpfifoKept, entry
from ringup.queues.nv.rows import ROWS, host_methods
from ringup.queues.nv.semaphores import HostCommands
from ringup.queues.queue import Form, Stream
from ringup.queues.timeline import Point


@pytest.fixture
def commands():
    return HostCommands(host_methods(0xC56F))


def notes(at, *numbers):
    """Return a stream whose methods 0x100 of subchannel 1 carry numbers."""
    stream = Stream(at.queue.commands, at.owner)
    for number in numbers:
        # an increment-method header for one word: 1 << 29 | 1 << 16 | 1 << 13 | 0x100 / 4
        stream.body += (0x2001_2040).to_bytes(4, "little") + number.to_bytes(4, "little")
    return stream


def noted(at):
    return [value for _, _, value in at.methods]


@pytest.mark.parametrize(
    ("offset", "mapped"),
    [(at, True) for at in range(0, 1024, 8)] + [(at, False) for at in range(4, 1024, 40)],
)
def test_a_submission_runs_wherever_in_the_ring_it_wraps(channel, commands, offset, mapped):
    one = channel(commands, start=offset, mapped=mapped)
    points = [one.queue.submit(notes(one, n, n + 1)) for n in range(0, 40, 2)]
    points[-1].wait()
    assert noted(one) == list(range(40))
    assert all(point.done for point in points)


def test_every_submission_rings_once_and_a_whole_one_takes_one_entry(channel, commands):
    one = channel(commands)
    for n in range(5):
        one.queue.submit(notes(one, n)).wait()
    assert one.doorbells == 5
    assert len(one.segments) == 5
    ring = range(one.ring_at, one.ring_at + one.ring_bytes)
    assert all(at in ring for at, _ in one.segments)


@pytest.mark.parametrize("offset", range(0, 1024, 20))
def test_long_and_kept_streams_run_between_others_in_order(channel, commands, offset):
    one = channel(commands, start=offset)
    kept = GpfifoKept(one.queue, notes(one, 7, 8), one.kept_memory)
    wanted = []
    for n in range(20):
        one.queue.submit(notes(one, n))
        one.queue.submit(notes(one, *range(100, 150)))
        kept.submit()
        wanted += [n, *range(100, 150), 7, 8]
    Point(one.timeline, one.timeline.last).wait()
    assert noted(one) == wanted


def test_a_kept_stream_and_its_signal_are_one_entry_that_bytes_of_the_ring_pay_for(channel, commands):
    one = channel(commands)
    kept = GpfifoKept(one.queue, notes(one, 7), one.kept_memory)
    for turn in range(1, 6):
        kept.submit().wait()
        assert one.ring.wptr == turn * BYTES_PER_ENTRY
        # 8 bytes of the stream, a release of 24 bytes and the interrupt
        assert [size for _, size in one.segments] == [36] * turn
    assert noted(one) == [7] * 5
    assert one.timeline.completed == 5


def test_a_copy_that_may_still_run_is_called_and_its_signal_is_in_the_ring(channel, commands):
    one = channel(commands)
    kept = GpfifoKept(one.queue, notes(one, 7), one.kept_memory, copies=1)
    points = [kept.submit() for _ in range(3)]
    points[-1].wait()
    assert [size for _, size in one.segments] == [36, 8, 28, 8, 28]
    # new values wait for the copy
    kept.submit()
    kept.patch(4, 8, 4)
    point = kept.submit()
    assert one.timeline.completed == 4
    point.wait()
    assert noted(one) == [7] * 4 + [8]
    assert [size for _, size in one.segments][5:] == [36, 8, 28]
    assert point.done


def test_a_kept_stream_that_waits_has_its_waits_in_the_ring(channel, commands):
    one, other = channel(commands), channel(commands)
    other.timeline.space, other.timeline.gpu_va = one.timeline.space, one.timeline.gpu_va
    other.timeline.last = 9
    kept = GpfifoKept(one.queue, notes(one, 7), one.kept_memory)
    kept.submit().wait()
    one.queue.wait_for(Point(other.timeline, 1))
    kept.submit().wait()
    # the wait, the stream, the signal
    assert [size for _, size in one.segments][2:] == [8, 28]
    kept.submit().wait()
    stream = notes(one, 8)
    stream.wait_for(Point(other.timeline, 2))
    GpfifoKept(one.queue, stream, one.kept_memory).submit().wait()
    assert noted(one) == [7, 7, 7, 8]


def test_a_value_of_the_timeline_beyond_the_signals_low_part_is_right(channel, commands):
    one = channel(commands)
    kept = GpfifoKept(one.queue, notes(one, 7), one.kept_memory)
    one.timeline.skip_to((1 << 32) - 3)
    one.words[one.word // 8] = (1 << 32) - 3
    for n in range(6):
        kept.patch(4, n, 4)
        kept.submit().wait()
    assert noted(one) == list(range(6))
    assert one.timeline.completed == (1 << 32) + 3


def keep(one, numbers):
    return GpfifoKept(one.queue, notes(one, *numbers), one.kept_memory)


def keep_one_that_waits(one, numbers):
    stream = notes(one, *numbers)
    stream.wait_for(Point(one.timeline, 0))
    return GpfifoKept(one.queue, stream, one.kept_memory)


def submits(one, numbers):
    return SimpleNamespace(submit=lambda: one.queue.submit(notes(one, *numbers)))


@pytest.mark.parametrize(
    ("make", "numbers"),
    [(keep, [7]), (keep_one_that_waits, [7]), (submits, [7]), (submits, range(100, 150))],
    ids=["kept", "called", "short", "long"],
)
def test_what_is_interrupted_anywhere_is_run_once_or_not_at_all(channel, commands, make, numbers):
    """Every line of the submission raises in turn, as ctrl-C may."""
    files = {module.__file__ for module in (gpfifo, kept_module, ring_module, queue_module)}
    runs = 0
    for last in range(200):
        one = channel(commands)
        work, kept = make(one, numbers), keep(one, [3])
        left = [last]

        def trace(frame, event, arg, left=left):
            if frame.f_code.co_filename not in files:
                return None
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work.submit()
        except KeyboardInterrupt:
            runs += 1
        finally:
            sys.settrace(before)
        ran = [*numbers] * one.timeline.last
        # the harness's own order, which the interruption may have left in the middle
        one.order.clear()
        point = one.queue.submit(notes(one, 2))
        kept.patch(4, 8, 4)
        kept.submit()
        if isinstance(work, GpfifoKept):
            work.patch(4, 5, 4)
            work.submit()
            ran += [2, 8, 5]
        else:
            ran += [2, 8]
        one.queue.submit(notes(one, 9)).wait()
        assert point.done
        assert noted(one) == [*ran, 9], last
        if left[0] > 0:
            break
    assert runs > 20


def test_a_kept_stream_is_patched_between_submissions(channel, commands):
    one = channel(commands)
    kept = GpfifoKept(one.queue, notes(one, 7), one.kept_memory)
    for value in range(10):
        kept.patch(4, value, 4)
        kept.submit()
    Point(one.timeline, one.timeline.last).wait()
    assert noted(one) == list(range(10))


def test_a_queue_waits_for_points_of_others_of_the_same_space(channel, commands):
    one = channel(commands)
    other = channel(commands)
    other.timeline.space = one.timeline.space
    other.timeline.gpu_va = one.timeline.gpu_va
    other.timeline.last = 5
    one.queue.wait_for(Point(other.timeline, 0))
    one.queue.submit(notes(one, 1)).wait()
    assert noted(one) == [1]
    # not done, so the queue waits
    one.queue.wait_for(Point(other.timeline, 1))
    one.queue.submit(notes(one, 2)).wait()
    # clc56f.h: ACQ_CIRC_GEQ 3, ACQUIRE_SWITCH_TSG bit 12, PAYLOAD_SIZE 64 bits bit 24
    words = one.memory[one.ring_at : one.ring_at + one.ring_bytes].cast("I")
    assert 0x0100_1003 in list(words)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("mapped", [True, False])
def test_a_full_ring_waits_and_the_gpfifo_is_never_overrun(channel, commands, mapped, copies):
    """32 entries last for 336 bytes of the ring; the harness notices an overrun."""
    one = channel(commands, entries=32, mapped=mapped)
    kept = GpfifoKept(one.queue, notes(one, 9), one.kept_memory, copies=copies)
    wanted = []
    for n in range(100):
        one.queue.submit(notes(one, n))
        kept.submit()
        wanted += [n, 9]
    Point(one.timeline, one.timeline.last).wait()
    assert noted(one) == wanted


def test_what_a_stuck_channel_refuses_is_not_submitted(channel, commands):
    one = channel(commands, ring_bytes=256)
    one.stuck = True
    accepted = 0
    while one.ring.free_bytes >= 44:
        one.queue.submit(notes(one, accepted, 0))
        accepted += 1
    with pytest.raises(DeviceTimeout):
        one.queue.submit(notes(one, accepted, 0), timeout_s=0.001)
    # a long stream takes its entry only when it is published
    with pytest.raises(DeviceTimeout):
        one.queue.submit(notes(one, *range(40)), timeout_s=0.001)
    one.stuck = False
    one.queue.submit(notes(one, 1000)).wait()
    assert noted(one) == [*(number for n in range(accepted) for number in (n, 0)), 1000]


def test_an_interrupted_submission_is_published_or_taken_back(channel, commands):
    """The doorbell raises once, as ctrl-C may anywhere: what was stored runs, and nothing runs twice."""
    one = channel(commands)
    kept = GpfifoKept(one.queue, notes(one, 7), one.kept_memory)
    ring_doorbell = one.gpfifo._ring_doorbell
    for submit in (lambda: one.queue.submit(notes(one, 5)), kept.submit):
        calls = []

        def once(calls=calls):
            calls.append(1)
            if len(calls) == 1:
                one.order.clear()
                raise KeyboardInterrupt
            ring_doorbell()

        one.gpfifo._ring_doorbell = once
        with pytest.raises(KeyboardInterrupt):
            submit()
        one.gpfifo._ring_doorbell = ring_doorbell
    one.queue.submit(notes(one, 6)).wait()
    assert noted(one) == [5, 7, 6]


def test_a_restart_begins_at_index_0(channel, commands):
    one = channel(commands)
    one.queue.submit(notes(one, 1)).wait()
    one.stuck = True
    lost = one.queue.submit(notes(one, 2))
    one.queue.restart(ValueError("a reset"))
    one.get = one.gp_put = 0
    one.stuck = False
    one.queue.submit(notes(one, 3)).wait()
    assert noted(one) == [1, 3]
    with pytest.raises(ValueError, match="a reset"):
        lost.wait()


def test_arguments_whose_addresses_are_shifted_are_filled_in(channel, commands):
    """The form of SEND_PCAS_A in the body, an address beside other bits in the arguments."""

    def pack32(memory, at, value):
        memory[at : at + 4] = value.to_bytes(4, "little")

    def pack64(memory, at, value):
        memory[at : at + 8] = value.to_bytes(8, "little")

    one = channel(commands)
    stream = notes(one, 0)
    stream.forms = Form(pack32, 8), Form(pack64, 6)
    stream.args += bytes(512)
    stream.fixups.append((4, 1))
    stream.arg_fixups.append((0, 0xABC << 52 | 4))
    for _ in range(3):
        one.queue.submit(stream).wait()
    base = noted(one)[-1] - 1 << 8
    at = base - 0x1_2340_0000
    assert int.from_bytes(one.memory[at : at + 8], "little") == 0xABC << 52 | (base + 256) >> 6
    kept = GpfifoKept(one.queue, stream, one.kept_memory)
    kept.submit().wait()
    base = noted(one)[-1] - 1 << 8
    at = base - 0x1_2340_0000
    assert int.from_bytes(one.memory[at : at + 8], "little") == 0xABC << 52 | (base + 256) >> 6


def test_an_entry_has_the_manuals_layout():
    # dev_pbdma.ref.txt: GET 39:2, LENGTH (dwords) 62:42
    assert entry(0x12_3456_7890, 24) == 0x12_3456_7890 | 6 << 42
    assert entry(4, MAX_PIECE_BYTES) == 4 | 0x1F_FFFF << 42


@pytest.mark.parametrize(
    ("gpu_va", "size"),
    [(2, 4), (0, 0), (0, 6), (0, MAX_PIECE_BYTES + 4), (1 << 40, 4), ((1 << 40) - 4, 4), (-4, 4)],
)
def test_what_no_entry_can_name_is_refused(gpu_va, size):
    with pytest.raises(ValueError, match=r"entry fetches whole dwords|pushbuffers lie below"):
        entry(gpu_va, size)


def test_commands_longer_than_an_entry_take_more_and_pay_for_them(channel, commands):
    one = channel(commands)
    one.stuck = True
    before = one.gpfifo.put
    one.queue.call(0x1_5000_0000, 3 * MAX_PIECE_BYTES + 8, [], {})
    assert one.gpfifo.put - before == 5  # four pieces; what pays, and the signal
    assert one.ring.wptr == 36 + 28


@pytest.mark.parametrize(("ring_bytes", "entries", "ring_va"), [(1024, 31, 0), (1024, 16, 0), (1024, 64, 1 << 40)])
def test_impossible_gpfifos_are_refused(ring_bytes, entries, ring_va):
    with pytest.raises(ValueError, match=r"GPFIFO has a power of two|pushbuffer"):
        Gpfifo(ring_va, ring_bytes, entries, lambda at, data: None, lambda put: None, lambda: None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_signal_of_every_channel_class(row):
    signal = HostCommands(host_methods(row.channel_class)).signal(0x12_3456_7890, 0x1_0000_0002)
    words = [int.from_bytes(signal[at : at + 4], "little") for at in range(0, len(signal), 4)]
    # header: incrementing, 5 words, SEM_ADDR_LO 0x5c; SEM_EXECUTE: RELEASE 1, WFI bit 20, 64 bits bit 24; then
    # NON_STALL_INTERRUPT 0x20, immediate
    assert words == [0x2005_0017, 0x3456_7890, 0x12, 2, 1, 0x0110_0001, 0x8000_0008]
