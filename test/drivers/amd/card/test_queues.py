"""Edge cases of a card's queues: rings and counters that wrap, all hardware slots in use, running kept streams,
threads, launches.
"""

import mmap
import struct
import threading

import numpy as np
import pytest

import ringup
from ringup.autogen.amd.pm4_events import EVENT_TYPE_CS_PARTIAL_FLUSH
from ringup.drivers.submission.queue_memory import RING_BYTES, TIMELINE_AT
from ringup.errors import NotSupported
from ringup.queues.amd.decode_pm4 import decode_pm4
from ringup.silicon import card as virtual

TARGETS = {"navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102"}
VRAM = 1 << 30  # the scratch of every wave that could run comes from it
SOURCE = """
#define X __builtin_amdgcn_workitem_id_x()
#define Y __builtin_amdgcn_workitem_id_y()
#define Z __builtin_amdgcn_workitem_id_z()
#define GX __builtin_amdgcn_workgroup_id_x()
#define GY __builtin_amdgcn_workgroup_id_y()
#define GZ __builtin_amdgcn_workgroup_id_z()
typedef __global uint *U;

__kernel void mark(U o, uint value) { o[GX * 64 + X] = value; }
__kernel void items(U o, uint wide, uint high) {
  uint x = GX * 8 + X, y = GY * 4 + Y, z = GZ * 2 + Z;
  o[(z * high + y) * wide + x] = 1 + x + 1000 * y + 1000000 * z;
}
__kernel void through_lds(U o, __local uint *l, uint n) {
  for (uint i = X; i < n; i += 64) l[i] = i * 3;
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
  for (uint i = X; i < n; i += 64) o[i] = l[n - 1 - i];
}
__kernel void small_stack(U o, uint n) { uint a[8]; for (uint i = 0; i < n; i++) a[i & 7] = o[i] + X; o[64 + GX * 64 + X] = a[(n + X) & 7]; }
__kernel void large_stack(U o, uint n) {
  uint a[512], s = 0;
  for (uint i = 0; i < 512; i++) a[i] = i * n + X;
  for (uint i = 0; i < n; i++) s += a[(i * 37 + X) & 511]; o[GX * 64 + X] = s;
}
__kernel void packet(U o) {
  __constant ushort *p = (__constant ushort *)__builtin_amdgcn_dispatch_ptr();
  if (X == 0) { o[0] = p[1]; o[1] = p[2]; o[2] = ((__constant uint *)p)[3]; }
}
"""


def connect(radeon):
    return ringup.open(radeon.name, transport={"card": radeon})


@pytest.fixture
def up(card_name, open_metal, opencl):
    """Each chip's card in turn with the kernels above: (virtual card, card, program). Tests marked `metal` do not use
    the virtual card.
    """
    with open_metal(card_name) as card:
        yield card.device, card, card.load(opencl(SOURCE, card.info.target))


def words(card, buffer, count, at=0):
    return card.copy.download_array(buffer, np.uint32, count, 4 * at)


@pytest.mark.metal
def test_a_submission_begins_behind_the_dispatches_of_the_one_before(up):
    _, card, _ = up
    first = next(
        iter(decode_pm4(bytes(card.compute.stream().body), tuple(map(int, card.info.versions["gc"].split(".")))))
    )
    assert first.name == "EVENT_WRITE"
    assert first.fields["event_type"] == EVENT_TYPE_CS_PARTIAL_FLUSH


def test_rings_wrap_many_times_and_lose_nothing(up):
    """2,000 submissions a queue without a wait between them: more bytes than four rings hold."""
    _, card, program = up
    with card.alloc(4096) as dispatched, card.alloc(4096) as copied:
        for number in range(2000):
            stream = card.compute.stream()
            stream.dispatch(program["mark"], 1, 64, [dispatched, number])
            stream.store(dispatched.gpu_va + 1024, number)
            card.compute.submit(stream)
            stream = card.copy.stream()
            stream.fill(copied.gpu_va, number, 256)
            stream.store(copied.gpu_va + 1024, *range(number, number + 16))
            card.copy.submit(stream)
        assert card.compute.ring.wptr > 4 * RING_BYTES
        assert card.copy.ring.wptr > 4 * RING_BYTES
        card.copy.wait_for(card.compute.submit(card.compute.stream()))
        assert words(card, dispatched, 64).tolist() == [1999] * 64
        assert words(card, dispatched, 1, 256).tolist() == [1999]
        assert words(card, copied, 64).tolist() == [1999] * 64
        assert words(card, copied, 16, 256).tolist() == list(range(1999, 2015))


def test_a_stream_longer_than_the_ring_runs_whole(up):
    _, card, program = up
    with card.alloc(4 * 64 * 1200) as target:
        stream = card.compute.stream()
        for number in range(1200):
            stream.dispatch(program["mark"], 1, 64, [target.gpu_va + 256 * number, number])
            stream.append(stream.pm4.write_data(target.gpu_va + 256 * number, 0xFFFF_0000 + number))
            stream.barrier()
        assert stream.size_bytes > RING_BYTES
        card.copy.wait_for(card.compute.submit(stream))
        got = words(card, target, 64 * 1200).reshape(1200, 64)
        assert (got[:, 1:] == np.arange(1200)[:, None]).all()
        # The two stores are not ordered.
        assert np.isin(got[:, 0], [np.arange(1200), 0xFFFF_0000 + np.arange(1200)]).all()
        copies = card.copy.stream()
        for number in range(6000):
            copies.store(target.gpu_va + 4 * number, number)
        assert copies.size_bytes > RING_BYTES
        card.copy.submit(copies)
        assert words(card, target, 6000).tolist() == list(range(6000))


@pytest.mark.parametrize("wrap", [1 << 32, 1 << 33])
def test_waits_across_queues_are_right_around_a_wrap_of_the_low_half(up, wrap):
    """40 submissions on either side of the wrap on two queues. Each waits for the other's last one."""
    _, card, _ = up
    queues = [card.compute, card.copy]
    for queue in queues:
        start = wrap - 40
        queue.memory.page.view[TIMELINE_AT : TIMELINE_AT + 8] = struct.pack("<Q", start)
        queue.timeline.skip_to(start)
    with card.alloc(4096) as cell:
        card.copy.fill(cell, 0).wait()
        last = None
        for number in range(1, 161):
            queue = queues[number % 2]
            stream = queue.stream()
            if last is not None:
                stream.wait_for(last)
            stream.store(cell.gpu_va, number)
            last = queue.submit(stream)
            if number % 16 == 0:
                last.wait(1)
        assert all(queue.timeline.last > wrap for queue in queues)
        assert words(card, cell, 1).tolist() == [160]


def test_all_hardware_queues_are_handed_out_and_a_closed_ones_place_again(up):
    _, card, _ = up
    free = card.spaces.vram.free_bytes
    for new, left, text in (
        (card.new_compute_queue, 15, "compute queues"),
        (card.new_copy_queue, 7, "queues of copy engine 0"),
    ):
        made = [new() for _ in range(left)]
        with pytest.raises(NotSupported, match=f"all .*{text}.* in use; close one"):
            new()
        points = [queue.submit(queue.stream()) for queue in made]
        for point in points:
            point.wait(1)
        closed = made.pop(3)
        stream, point = closed.stream(), points[3]
        closed.close()
        point.wait()
        with pytest.raises(ValueError, match=f"{closed.name} was closed"):
            closed.submit(stream)
        made.append(new())
        assert closed not in card.queues
        made[-1].submit(made[-1].stream()).wait(1)
        for queue in made:
            queue.close()
    assert card.spaces.vram.free_bytes == free


@pytest.mark.metal
def test_a_kept_stream_is_patched_while_it_runs_and_every_run_keeps_its_values(up):
    """200 submissions; each is patched right after the one before it was submitted."""
    _, card, program = up
    with card.alloc(256) as source, card.alloc(4 * 64 * 200) as target:
        stream = card.compute.stream()
        stream.dispatch(program["mark"], 1, 64, [source, 0])
        kept = card.compute.keep(stream)
        for number in range(200):
            kept.patch_args(0, struct.pack("<QI", target.gpu_va + 256 * number, number))
            last = kept.submit()
        card.copy.wait_for(last)
        assert (words(card, target, 64 * 200).reshape(200, 64) == np.arange(200)[:, None]).all()
        kept.free()


@pytest.mark.metal
def test_dispatch_returns_the_place_of_each_kernels_arguments(up):
    _, card, program = up
    kernel = program["mark"]
    with card.alloc(4 * 64 * 3) as target:
        stream = card.compute.stream()
        places = [stream.dispatch(kernel, 1, 64, [target.gpu_va + 256 * number, 1]) for number in range(3)]
        kept = card.compute.keep(stream)
        for number, place in enumerate(places):
            kept.patch_args(place + kernel.arg_offset(1), np.uint32(70 + number))
        card.copy.wait_for(kept.submit())
        assert words(card, target, 64 * 3)[::64].tolist() == [70, 71, 72]
        kept.free()


@pytest.mark.metal
@pytest.mark.parametrize("size", [(8, 4, 2), (13, 9, 5), (1, 1, 1), (41, 1, 3), (8, 7, 1)])
def test_grids_of_three_dimensions_start_every_item_once(up, size):
    _, card, program = up
    wide, high, deep = size
    with card.alloc(4 * (wide * high * deep + 64)) as target:
        card.copy.fill(target, 0)
        stream = card.compute.stream()
        stream.wait_for(card.copy.fill(target, 0))
        stream.dispatch_items(program["items"], size, (8, 4, 2), [target, wide, high])
        card.copy.wait_for(card.compute.submit(stream))
        got = words(card, target, wide * high * deep + 64)
    z, y, x = np.indices((deep, high, wide))
    assert np.array_equal(got[:-64], (1 + x + 1000 * y + 1_000_000 * z).reshape(-1))
    assert not got[-64:].any()


@pytest.mark.metal
def test_dynamic_lds_up_to_the_limit(up):
    _, card, program = up
    for count in (1, 64, 1000, 16384):
        with card.alloc(4 * count) as target:
            stream = card.compute.stream()
            stream.dispatch(program["through_lds"], 1, 64, [target, 4 * count, count], dynamic_lds_bytes=4 * count)
            card.copy.wait_for(card.compute.submit(stream))
            assert np.array_equal(words(card, target, count), 3 * np.arange(count, dtype=np.uint32)[::-1])
    stream = card.compute.stream()
    with card.alloc(4) as target, pytest.raises(ValueError, match="a group has 65536"):
        stream.dispatch(program["through_lds"], 1, 64, [target, 65540, 1], dynamic_lds_bytes=65540)


@pytest.mark.metal
def test_kernels_with_small_and_large_stacks_share_a_stream(up):
    _, card, program = up
    with card.alloc(4 * 64 * 16) as small, card.alloc(4 * 64 * 16) as large:
        filled = card.copy.fill(small, 5)
        stream = card.compute.stream()
        stream.wait_for(filled)
        for _ in range(3):
            stream.dispatch(program["small_stack"], 8, 64, [small, 20])
            stream.dispatch(program["large_stack"], 16, 64, [large, 11])
        card.copy.wait_for(card.compute.submit(stream))
        item = np.arange(64)
        expected = sum(((i * 37 + item) & 511) * 11 + item for i in range(11))
        assert (words(card, large, 64 * 16).reshape(16, 64) == expected).all()
        assert (words(card, small, 64 * 8, 64).reshape(8, 64) == 5 + item).all()


@pytest.mark.metal
def test_a_kernel_reads_its_dispatch_packet(up):
    _, card, program = up
    with card.alloc(64) as target:
        stream = card.compute.stream()
        stream.dispatch(program["packet"], 5, 64, [target])
        card.copy.wait_for(card.compute.submit(stream))
        # dimensions, group size, work items
        assert words(card, target, 3).tolist() == [1, 64, 320]


@pytest.mark.parametrize("chip", TARGETS)
def test_waves_of_64_lanes_run_beside_those_of_32(chip, opencl):
    radeon = virtual(chip, vram_bytes=VRAM)
    with connect(radeon) as card, card.alloc(4 * 640) as narrow, card.alloc(4 * 640) as wide:
        stream = card.compute.stream()
        for target, flags in ((narrow, ()), (wide, ("-mwavefrontsize64",))):
            program = card.load(opencl(SOURCE, TARGETS[chip], *flags))
            stream.dispatch(program["mark"], 10, 64, [target, 77])
        card.copy.wait_for(card.compute.submit(stream))
        assert (words(card, narrow, 640) == 77).all()
        assert (words(card, wide, 640) == 77).all()
    assert radeon.violations == []


def entries(card):
    """Return every call that accesses a card, by name."""
    buffer, compute = card.alloc(4096), card.compute
    kept, queue = compute.keep(compute.stream()), card.new_compute_queue()
    point = compute.submit(compute.stream())
    pages, signal = mmap.mmap(-1, 4096), card.signal(0)
    return {
        "alloc": lambda: card.alloc(4096),
        "pin": lambda: card.pin(memoryview(pages)),
        "load": lambda: card.load(b""),
        "new_compute_queue": card.new_compute_queue,
        "new_copy_queue": card.new_copy_queue,
        "new_aql_queue": card.new_aql_queue,
        "aql": lambda: card.aql,
        "signal": card.signal,
        "signal value": lambda: signal.value,
        "signal set": lambda: setattr(signal, "value", 1),
        "signal wait": signal.wait,
        "signal free": signal.free,
        "copies": lambda: card.copies,
        "stats": card.stats,
        "limits": lambda: card.limits,
        "set_power_limit": lambda: card.set_power_limit(300),
        "set_clock_range": lambda: card.set_clock_range("gfx", 500, 1000),
        "workload": lambda: card.workload("compute"),
        "report": card.report,
        "reset": card.reset,
        "submit": lambda: compute.submit(compute.stream()),
        "upload": lambda: card.copy.upload(buffer, b"1234"),
        "download": lambda: card.copy.download(buffer),
        "fill": lambda: card.copy.fill(buffer, 1),
        "copy_buffer": lambda: card.copy.copy_buffer(buffer, buffer, 16, target_offset=64),
        "copy_rect": lambda: card.copy.copy_rect(buffer, 64, buffer, 64, 16, 2, target_offset=1024),
        "keep": lambda: compute.keep(compute.stream()),
        "kept submit": kept.submit,
        "kept free": kept.free,
        "wait": point.wait,
        "wait_for": lambda: compute.wait_for(point),
        "queue close": queue.close,
        "buffer free": buffer.free,
        "close": card.close,
    }


def in_thread(work):
    """Call in another thread; return the exception."""
    raised = []

    def run():
        try:
            work()
        except Exception as error:  # noqa: BLE001  whatever it is, the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run, name="other")
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_calls_of_another_thread_name_the_owner_and_adopting_moves_the_card(virtual_card):
    radeon = virtual_card(vram_bytes=64 << 20)
    card = connect(radeon)
    calls = entries(card)
    for name, call in calls.items():
        error = in_thread(call)
        assert isinstance(error, ValueError), name
        assert "belongs to thread 'MainThread', not to 'other': call `card.adopt()` here first" in str(error), name

    def use():
        card.adopt()
        card.stats()
        with card.alloc(4096) as buffer:
            card.copy.upload(buffer, b"1234").wait()
            assert card.copy.download(buffer, size_bytes=4) == b"1234"

    assert in_thread(use) is None
    with pytest.raises(ValueError, match="belongs to a thread that has ended, not to 'MainThread'"):
        card.alloc(4096)
    card.adopt()
    card.close()
