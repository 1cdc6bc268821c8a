"""Queues of HSA (AQL): kernels, order, signals, waits for other queues, scratch memory, rings that wrap, kept streams.
On cards over PCI and behind a USB bridge.
"""

import struct

import numpy as np
import pytest

import ringup
from ringup.errors import DeviceTimeout, NotSupported
from ringup.queues.amd import aql
from ringup.queues.amd.aql import Condition, Order, Scope
from ringup.queues.amd.decode_aql import decode_aql

SOURCE = """
#define X __builtin_amdgcn_workitem_id_x()
#define Y __builtin_amdgcn_workitem_id_y()
#define Z __builtin_amdgcn_workitem_id_z()
#define GX __builtin_amdgcn_workgroup_id_x()
#define GY __builtin_amdgcn_workgroup_id_y()
#define GZ __builtin_amdgcn_workgroup_id_z()
typedef __global uint *U;

__kernel void mark(U o, uint value) { o[GX * 64 + X] = value; }
__kernel void add(U o, uint value) { o[GX * 64 + X] += value; }
__kernel void nothing(void) {}
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
__kernel void medium_stack(U o, uint n) {
  uint a[64], s = 0;
  for (uint i = 0; i < 64; i++) a[i] = i * n + X;
  for (uint i = 0; i < n; i++) s += a[(i * 37 + X) & 63]; o[GX * 64 + X] = s;
}
__kernel void packet(U o) {
  __constant ushort *p = (__constant ushort *)__builtin_amdgcn_dispatch_ptr();
  if (X == 0) { o[0] = p[1]; o[1] = p[2]; o[2] = ((__constant uint *)p)[3]; }
}
"""
SLOTS = 1024  # of a queue's ring


@pytest.fixture
def up(card_name, open_metal, opencl):
    """Each chip's card in turn, and the kernels above."""
    with open_metal(card_name) as card:
        yield card, card.load(opencl(SOURCE, card.info.target))


@pytest.fixture(params=["virtual:navi31", "virtual:navi31@asm2464pd"])
def paths(request, opencl):
    """One card over both paths, and the kernels above."""
    with ringup.open(request.param, kind=ringup.Radeon) as card:
        yield card, card.load(opencl(SOURCE, card.info.target))
        assert card.mistakes == []


def words(card, buffer, count, at=0):
    return card.copy.download_array(buffer, np.uint32, count, 4 * at)


@pytest.mark.metal
def test_kernels_run_and_a_copy_queue_waits_for_them(up):
    card, program = up
    with card.alloc(4 * 64 * 5) as target:
        stream = card.aql.stream()
        stream.dispatch(program["mark"], 5, 64, [target, 77])
        card.copy.wait_for(card.aql.submit(stream))
        assert (words(card, target, 320) == 77).all()


def test_kernels_run_on_both_paths_and_all_queues_wait_for_each_other(paths):
    card, program = paths
    queues = [card.aql, card.compute, card.new_aql_queue(), card.copy]
    with card.alloc(4096) as target:
        last = card.copy.fill(target, 0)
        for number in range(1, 41):
            queue = queues[number % 4]
            stream = queue.stream()
            stream.wait_for(last)
            if queue is card.copy:
                stream.store(target.gpu_va + 1024, number)
            else:
                stream.dispatch(program["add"], 1, 64, [target, number])
            last = queue.submit(stream)
        last.wait()
        assert words(card, target, 1, 256).tolist() == [39]
        assert (words(card, target, 64) == sum(n for n in range(1, 41) if n % 4 != 3)).all()


def test_dispatches_behind_a_barrier_see_what_those_before_stored(paths):
    card, program = paths
    with card.alloc(4096) as target:
        stream = card.aql.stream()
        stream.dispatch(program["mark"], 1, 64, [target, 1000])
        for number in range(10):
            stream.barrier()
            stream.dispatch(program["add"], 1, 64, [target, number])
        stream.store(target.gpu_va, 5)
        card.copy.wait_for(card.aql.submit(stream))
        assert words(card, target, 64).tolist() == [5] + [1045] * 63


def test_the_first_header_is_stored_last_and_the_doorbell_names_the_last_packet(virtual_card):
    """Seen from the card: the order of stores into the ring and of the doorbell."""
    card = ringup.open("virtual:navi31", kind=ringup.Radeon)
    with card:
        queue, seen = card.aql, []
        ring, doorbell = queue.ring, queue.doorbell
        write, rung = ring._write, doorbell.ring
        ring._write = lambda at, data: (seen.append((at, bytes(data))), write(at, data))[1]
        doorbell.ring = lambda value: (seen.append(("doorbell", value)), rung(value))[1]
        stream = queue.stream()
        stream.append(aql.barrier_and())
        before = queue.ring.wptr
        queue.submit(stream).wait()
        *_, header, doorbell_rung = seen
        assert header == (before, bytes(stream.body[:4]))
        assert doorbell_rung == ("doorbell", before // 64 + 2)
        assert all(at != before for at, _ in seen[:-2])


def test_rings_wrap_many_times_and_lose_nothing(up):
    card, program = up
    with card.alloc(4096) as target:
        for number in range(1500):
            stream = card.aql.stream()
            stream.dispatch(program["mark"], 1, 64, [target, number])
            card.aql.submit(stream)
        assert card.aql.ring.wptr > 4 * SLOTS * 64
        card.copy.wait_for(card.aql.submit(card.aql.stream()))
        assert (words(card, target, 64) == 1499).all()


def test_a_stream_longer_than_the_ring_runs_whole_behind_what_it_waits_for(up):
    card, program = up
    count = 1300
    with card.alloc(4 * 64 * count) as target:
        stream = card.aql.stream()
        stream.wait_for(card.copy.fill(target, 0xFFFF_FFFF))
        for number in range(count):
            stream.dispatch(program["mark"], 1, 64, [target.gpu_va + 256 * number, number])
        assert stream.size_bytes > SLOTS * 64
        card.copy.wait_for(card.aql.submit(stream))
        assert (words(card, target, 64 * count).reshape(count, 64) == np.arange(count)[:, None]).all()


@pytest.mark.metal
@pytest.mark.parametrize("size", [(8, 4, 2), (13, 9, 5), (1, 1, 1), (41, 1, 3), (8, 7, 1)])
def test_grids_of_three_dimensions_start_every_item_once(up, size):
    card, program = up
    wide, high, deep = size
    with card.alloc(4 * (wide * high * deep + 64)) as target:
        stream = card.aql.stream()
        stream.wait_for(card.copy.fill(target, 0))
        stream.dispatch_items(program["items"], size, (8, 4, 2), [target, wide, high])
        card.copy.wait_for(card.aql.submit(stream))
        got = words(card, target, wide * high * deep + 64)
    z, y, x = np.indices((deep, high, wide))
    assert np.array_equal(got[:-64], (1 + x + 1000 * y + 1_000_000 * z).reshape(-1))
    assert not got[-64:].any()


@pytest.mark.metal
def test_dynamic_lds_stacks_and_the_packet_are_what_kernels_expect(up):
    card, program = up
    small, medium, large = (card.alloc(4 * 64 * 16) for _ in range(3))
    with card.alloc(4 * 16384) as target, small, medium, large:
        stream = card.aql.stream()
        stream.wait_for(card.copy.fill(small, 5))
        stream.dispatch(program["through_lds"], 1, 64, [target, 65536, 16384], dynamic_lds_bytes=65536)
        card.copy.wait_for(card.aql.submit(stream))
        assert np.array_equal(words(card, target, 16384), 3 * np.arange(16384, dtype=np.uint32)[::-1])
        # the queue is mapped again for each of the two, with more scratch memory
        needs = [program[name].kernel.scratch_bytes_per_item for name in ("medium_stack", "large_stack")]
        assert 0 < needs[0] < needs[1] / 4
        stream = card.aql.stream()
        stream.dispatch(program["medium_stack"], 16, 64, [medium, 20])
        card.aql.submit(stream)
        stream = card.aql.stream()
        for _ in range(3):
            stream.dispatch(program["small_stack"], 8, 64, [small, 20])
            stream.dispatch(program["large_stack"], 16, 64, [large, 11])
        stream.dispatch(program["packet"], 5, 64, [target])
        card.copy.wait_for(card.aql.submit(stream))
        item = np.arange(64)
        expected = sum(((i * 37 + item) & 511) * 11 + item for i in range(11))
        assert (words(card, large, 64 * 16).reshape(16, 64) == expected).all()
        expected = sum(((i * 37 + item) & 63) * 20 + item for i in range(20))
        assert (words(card, medium, 64 * 16).reshape(16, 64) == expected).all()
        assert (words(card, small, 64 * 8, 64).reshape(8, 64) == 5 + item).all()
        # dimensions, group size, work items
        assert words(card, target, 3).tolist() == [1, 64, 320]


def test_packets_of_ones_own_bring_their_scratch_memory_and_read_arguments_where_they_say(up):
    card, program = up
    kernel = program["large_stack"]
    with card.alloc(4 * 64 * 2) as large, card.alloc(4096, "host", visible=True) as arguments:
        arguments.view[:12] = struct.pack("<QI", large.gpu_va, 11)
        stream = card.aql.stream()
        stream.append(
            aql.kernel_dispatch(
                program.base_va + kernel.kernel.descriptor_offset,
                (128, 1, 1),
                (64, 1, 1),
                kernarg_address=arguments.gpu_va,
                private_segment_size=kernel.kernel.scratch_bytes_per_item,
                order=aql.EVERYBODY,
            )
        )
        card.copy.wait_for(card.aql.submit(stream))
        item = np.arange(64)
        expected = sum(((i * 37 + item) & 511) * 11 + item for i in range(11))
        assert (words(card, large, 128).reshape(2, 64) == expected).all()


def test_scratch_memory_that_was_reserved_needs_no_wait_for_work_that_waits_for_the_host(up):
    card, program = up
    gate, queue = card.signal(1), card.new_aql_queue()
    need = program["medium_stack"].kernel.scratch_bytes_per_item * 32
    with card.alloc(4 * 64 * 2) as medium:
        held, stream = queue.stream(), queue.stream()
        held.barrier_and(gate)
        stream.dispatch(program["medium_stack"], 2, 64, [medium, 11])
        assert stream.scratch_bytes_per_wave == need
        queue.reserve_scratch(need)
        queue.submit(held)
        last = queue.submit(stream)
        with pytest.raises(DeviceTimeout, match=f"waiting for {last.value} on {card.name} {queue.name}"):
            queue.reserve_scratch(4 * need, timeout_s=0.01)
        assert not last.done
        gate.value = 0
        last.wait(1)
        queue.reserve_scratch(4 * need)
        queue.submit(stream).wait(1)
        with pytest.raises(ValueError, match="bytes_per_wave is 0 to 0xffffffff, not -0x1"):
            queue.reserve_scratch(-1)
    queue.close()


def test_a_wait_for_another_queue_outlasts_the_growth_of_scratch_memory(up):
    card, program = up
    with card.alloc(4 * 64 * 4) as large:
        card.aql.submit(card.aql.stream()).wait()
        card.aql.wait_for(card.copy.fill(large, 0xFFFF_FFFF))
        stream = card.aql.stream()
        stream.dispatch(program["large_stack"], 2, 64, [large, 11])
        card.copy.wait_for(card.aql.submit(stream))
        assert (words(card, large, 128, 128) == 0xFFFF_FFFF).all()
        assert not (words(card, large, 128) == 0xFFFF_FFFF).any()


def test_waves_of_64_lanes_have_scratch_memory_too(opencl):
    with ringup.open("virtual:navi31", kind=ringup.Radeon) as card, card.alloc(4 * 64 * 2) as large:
        program = card.load(opencl(SOURCE, card.info.target, "-mwavefrontsize64"))
        stream = card.aql.stream()
        stream.dispatch(program["large_stack"], 2, 64, [large, 11])
        card.copy.wait_for(card.aql.submit(stream))
        item = np.arange(64)
        expected = sum(((i * 37 + item) & 511) * 11 + item for i in range(11))
        assert (words(card, large, 128).reshape(2, 64) == expected).all()
        assert card.mistakes == []


@pytest.mark.parametrize("chip", ["navi44", "navi48"])
def test_queues_of_rdna4_run_kernels_with_signals_and_scratch_memory(chip, opencl):
    with ringup.open(f"virtual:{chip}", kind=ringup.Radeon) as card, card.alloc(4 * 256) as target:
        program, signal = card.load(opencl(SOURCE, card.info.target)), card.signal(1)
        stream = card.aql.stream()
        stream.dispatch(program["mark"], 4, 64, [target, 7], completion=signal)
        stream.barrier()
        stream.dispatch(program["add"], 4, 64, [target, 1])
        card.copy.wait_for(card.aql.submit(stream))
        assert words(card, target, 256).tolist() == [8] * 256
        assert signal.value == 0
        stream = card.aql.stream()
        stream.dispatch(program["large_stack"], 2, 64, [target, 11])
        card.copy.wait_for(card.aql.submit(stream))
        item = np.arange(64)
        expected = sum(((i * 37 + item) & 511) * 11 + item for i in range(11))
        assert (words(card, target, 128).reshape(2, 64) == expected).all()
        assert card.mistakes == []


@pytest.mark.metal
def test_a_kept_stream_is_patched_while_it_runs_and_every_run_keeps_its_values(up):
    card, program = up
    with card.alloc(256) as source, card.alloc(4 * 64 * 200) as target:
        stream = card.aql.stream()
        stream.dispatch(program["mark"], 1, 64, [source, 0])
        kept = card.aql.keep(stream)
        for number in range(200):
            kept.patch_args(0, struct.pack("<QI", target.gpu_va + 256 * number, number))
            last = kept.submit()
        card.copy.wait_for(last)
        assert (words(card, target, 64 * 200).reshape(200, 64) == np.arange(200)[:, None]).all()
        kept.free()
        with pytest.raises(ValueError, match=f"a kept stream of {card.aql.name} was freed"):
            kept.submit()


def test_packets_of_a_kept_stream_are_patched_too(up):
    card, program = up
    with card.alloc(4096) as target, card.alloc(4096) as other:
        stream = card.aql.stream()
        at = stream.size_bytes
        stream.dispatch(program["mark"], 1, 64, [target, 3])
        card.copy.fill(other, 0).wait()
        kept = card.aql.keep(stream)
        # grid_size_x of hsa_kernel_dispatch_packet_t: half of the work-items
        kept.patch(at + 12, 32, 4)
        kept.patch_args(0, struct.pack("<Q", other.gpu_va))
        card.copy.wait_for(kept.submit())
        assert words(card, other, 64).tolist() == [3] * 32 + [0] * 32
        kept.free()


# --- signals --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["host", "vram"])
def test_a_dispatch_counts_its_signal_down_and_stamps_it(up, where):
    card, program = up
    signal = card.signal(3, where, name="done")
    with card.alloc(4096) as target:
        stream = card.aql.stream()
        for number in range(2):
            stream.dispatch(program["mark"], 4, 64, [target, number], completion=signal)
            stream.barrier()
        card.aql.submit(stream)
        assert signal.wait(Condition.LT, 2) == 1
        assert signal.where == where
        assert 0 < signal.start_ticks <= signal.end_ticks <= card.blocks.gfx.gpu_clock()
        assert signal.duration_us == (signal.end_ticks - signal.start_ticks) / 100
        # the results are there when the signal is
        assert (words(card, target, 256) == 1).all()
    signal.value = -(1 << 63)
    assert signal.value == -(1 << 63)
    signal.free()


def test_signals_work_behind_a_bridge_and_lie_in_vram_there(paths):
    card, program = paths
    signal, gate = card.signal(1), card.signal(1, name="gate")
    assert signal.where == ("vram" if card.device.polls_vram else "host")
    if card.device.polls_vram:
        with pytest.raises(NotSupported, match=r"the card reaches no memory of the host on this path"):
            card.signal(1, "host")
    with card.alloc(4096) as target:
        card.copy.fill(target, 0).wait()
        stream = card.aql.stream()
        stream.barrier_and(gate)
        stream.dispatch(program["mark"], 1, 64, [target, 9], completion=signal)
        card.aql.submit(stream)
        with pytest.raises(DeviceTimeout, match=r"waiting for <signal 0x.*> to be EQ 0: it stood at 1 for 0.01 s"):
            signal.wait(timeout_s=0.01)
        assert (words(card, target, 64) == 0).all()
        gate.value = 0
        assert signal.wait() == 0
        assert (words(card, target, 64) == 9).all()


def test_barriers_wait_for_all_for_one_and_for_a_value(up):
    card, program = up
    queue = card.aql
    gates = [card.signal(1, name=f"gate {n}") for n in range(7)]
    with card.alloc(4096) as target:
        card.copy.fill(target, 0).wait()
        stream = queue.stream()
        stream.barrier_and(*gates)
        stream.dispatch(program["mark"], 1, 64, [target, 1])
        stream.barrier()
        all_zero = card.signal(1)
        stream.barrier_and(completion=all_zero)
        stream.barrier_or(*gates[:5])
        stream.barrier_value(gates[6], Condition.GTE, 0x40, mask=0xF0)
        after = card.signal(1)
        stream.dispatch(program["mark"], 1, 64, [target, 2], completion=after)
        last = queue.submit(stream)
        for gate in gates[:-1]:
            gate.value = 0
            with pytest.raises(DeviceTimeout):
                all_zero.wait(timeout_s=0.002)
        gates[-1].value = 0
        all_zero.wait()
        with pytest.raises(DeviceTimeout):
            after.wait(timeout_s=0.002)
        gates[-1].value = 0x3F
        with pytest.raises(DeviceTimeout):
            after.wait(timeout_s=0.002)
        gates[-1].value = 0x4F
        after.wait()
        card.copy.wait_for(last)
        assert (words(card, target, 64) == 2).all()


def test_a_dispatch_on_one_queue_opens_a_barrier_of_another(up):
    card, program = up
    first, second, pm4 = card.aql, card.new_aql_queue(), card.compute
    signal = card.signal(2)
    with card.alloc(4096) as target:
        waiting = second.stream()
        waiting.barrier_and(signal)
        waiting.dispatch(program["add"], 1, 64, [target, 5])
        last = second.submit(waiting)
        first.wait_for(card.copy.fill(target, 10))
        for _ in range(2):
            stream = first.stream()
            stream.dispatch(program["add"], 1, 64, [target, 1], completion=signal)
            first.submit(stream)
        # a queue of PM4 may look at the signal as well
        stream = pm4.stream()
        stream.append(stream.pm4.wait_mem(signal.value_va, 0))
        stream.wait_for(last)
        stream.dispatch(program["add"], 1, 64, [target, 100])
        card.copy.wait_for(pm4.submit(stream))
        assert (words(card, target, 64) == 117).all()


def test_pages_of_signals_are_used_again(up):
    card, _ = up
    card.signal(0)
    free = card.spaces.vram.free_bytes
    signals = [card.signal(n, "vram") for n in range(130)]
    assert [signal.value for signal in signals] == list(range(130))
    assert len({signal.gpu_va for signal in signals}) == 130
    assert all(signal.gpu_va % 64 == 0 for signal in signals)
    places = {signal.gpu_va for signal in signals}
    for signal in signals:
        signal.free()
        signal.free()
    assert {card.signal(1, "vram").gpu_va for _ in range(130)} == places
    assert free - card.spaces.vram.free_bytes <= 4 * 4096


# --- what streams refuse --------------------------------------------------------------------------------------------
def test_wrong_uses_are_refused_by_name_and_leave_the_stream_as_it_was(up):
    card, program = up
    queue = card.aql
    stream, mark = queue.stream(), program["mark"]
    size = stream.size_bytes
    with card.alloc(4096) as target:
        gone = card.signal(1, name="old")
        gone.free()
        for call, error in (
            (
                lambda: stream.dispatch(mark, 0, 64, [target, 1]),
                "grid x is 0 work-groups; 1 to 4294967295 are possible",
            ),
            (lambda: stream.dispatch(mark, 1, 1025, [target, 1]), "block x is 1025 work-items; 1 to 1024 are possible"),
            (lambda: stream.dispatch(mark, 1, (64, 32), [target, 1]), r"a block of \(64, 32, 1\) is 2048 work-items"),
            (lambda: stream.dispatch(mark, 1, 64, [target]), "mark"),
            (lambda: stream.dispatch(mark, 1, 64, [target, 1], completion=gone), "<signal old> is gone: it was freed"),
            (lambda: stream.barrier_and(gone), "<signal old> is gone: it was freed"),
            (lambda: stream.barrier_or(*[card.signal(1)] * 6), "dep_signal holds at most 5 signals, not 6"),
            (
                lambda: stream.barrier_and(*[card.signal(1)] * 7, completion=gone),
                "<signal old> is gone: it was freed",
            ),
            (lambda: stream.append(bytes(63)), "63 bytes are not whole packets"),
            (lambda: stream.append(aql.invalid()), "packet 0 has the type INVALID"),
            (lambda: card.signal(1 << 63), "a signal's value is -9223372036854775808 to 0x7fffffffffffffff"),
            (lambda: card.signal(1, "disk"), 'a signal lies in "host" or "vram", not in \'disk\''),
            (
                lambda: stream.dispatch(mark, 1, 64, [target, 1], order=Order(True, 5)),
                "acquire_fence_scope is 0 to 0x2, not 0x5",
            ),
        ):
            with pytest.raises((ValueError, TypeError), match=error):
                call()
            assert (stream.size_bytes, stream.signals, stream.fixups) == (size, [], [])
        with pytest.raises(TypeError, match=r"a signal is wanted, such as `card.signal` returns, not 5"):
            stream.barrier_and(5)
        with pytest.raises(ValueError, match=f"{queue.name} takes aql streams, not pm4"):
            queue.submit(card.compute.stream())
        with pytest.raises(ValueError, match="compute 0 takes pm4 streams, not aql"):
            card.compute.submit(stream)


def test_a_signal_freed_before_the_submission_is_refused_and_nothing_is_submitted(up):
    card, program = up
    signal = card.signal(1, name="short-lived")
    stream = card.aql.stream()
    with card.alloc(4096) as target:
        stream.dispatch(program["mark"], 1, 64, [target, 1], completion=signal)
        kept = card.aql.keep(stream)
        signal.free()
        before = card.aql.timeline.last
        for submit in (lambda: card.aql.submit(stream), kept.submit):
            with pytest.raises(ValueError, match="<signal short-lived> is gone: it was freed; make another"):
                submit()
        assert card.aql.timeline.last == before
        kept.free()


def test_signals_and_queues_of_a_closed_card_are_refused():
    card = ringup.open("virtual:navi31", kind=ringup.Radeon)
    signal, queue = card.signal(1, name="old"), card.aql
    stream = queue.stream()
    card.close()
    for call in (signal.wait, lambda: signal.gpu_va, lambda: setattr(signal, "value", 0)):
        with pytest.raises(ValueError, match="<signal old> is gone: its card was closed, or lost its memory"):
            call()
    for call in (lambda: queue.submit(stream), queue.stream, lambda: card.aql, card.new_aql_queue, card.signal):
        with pytest.raises(ValueError, match="was closed"):
            call()
    signal.free()


def test_kernels_of_another_card_or_target_are_refused(opencl):
    with (
        ringup.open("virtual:navi31", kind=ringup.Radeon) as card,
        ringup.open("virtual:navi33", kind=ringup.Radeon) as other,
    ):
        code = opencl(SOURCE, "gfx1100")
        with pytest.raises(ringup.errors.WrongTarget, match="gfx1100"):
            other.load(code)
        program = card.load(code)
        stream = card.aql.stream()
        with card.alloc(4096) as target:
            stream.dispatch(program["mark"], 1, 64, [target, 1])
            with pytest.raises(ValueError, match="mark was loaded on another card: load it on virtual:navi33"):
                other.aql.stream().dispatch(program["mark"], 1, 64, [target, 1])


def test_decoded_streams_show_order_and_scopes(up):
    card, program = up
    signal = card.signal(1)
    stream = card.aql.stream()
    stream.dispatch(program["nothing"], 1, 64)
    stream.barrier()
    stream.dispatch(program["nothing"], 2, 64, completion=signal)
    stream.dispatch(program["nothing"], 3, 64, order=Order(False, Scope.SYSTEM, Scope.NONE))
    begin, *rest = decode_aql(bytes(stream.body), card.blocks.ips.version("gc"))
    assert (begin.name, begin.fields["barrier"]) == ("PM4_IB", 1)
    shown = [
        (one.fields["barrier"], one.fields["acquire_fence_scope"], one.fields["release_fence_scope"]) for one in rest
    ]
    assert shown == [(0, 0, 1), (1, 1, 2), (0, 2, 0)]
    assert [one.fields["grid_size_x"] for one in rest] == [64, 128, 192]
    assert rest[1].fields["completion_signal"] == signal.gpu_va
    card.aql.submit(stream).wait()
    assert signal.value == 0
