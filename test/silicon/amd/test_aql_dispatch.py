"""Kernel dispatches in AQL queues: clang's code objects, their descriptors, and the requests of packets. Tests check
their effects in memory.

Source: LLVM AMDGPUUsage, "Kernel Descriptor"; hsa.h; amd_hsa_queue.h; amd_aql_queue.cpp.
"""

from __future__ import annotations

import struct
import subprocess

import pytest

from ringup.silicon.shader.program import load

CODE, KERNARG, OUT, FLAG, SCRATCH = 0x80_0000, 0x90_0000, 0xC0_0000, 0xC8_0000, 0x100_0000
SOURCE = """
typedef unsigned int uint; typedef unsigned short ushort; typedef unsigned long ulong;
#define PACKET ((__constant const uint *)__builtin_amdgcn_dispatch_ptr())
__kernel void grid(__global uint *out) {
  __constant const ushort *group = (__constant const ushort *)PACKET;
  uint x = __builtin_amdgcn_workgroup_id_x() * group[2] + __builtin_amdgcn_workitem_id_x();
  uint y = __builtin_amdgcn_workgroup_id_y() * group[3] + __builtin_amdgcn_workitem_id_y();
  uint z = __builtin_amdgcn_workgroup_id_z() * group[4] + __builtin_amdgcn_workitem_id_z();
  out[(z * PACKET[4] + y) * PACKET[3] + x] += 1u << 31 | z << 20 | y << 10 | x;
}
__kernel void spin(__global uint *out, __global volatile uint *flag) {
  while (!*flag) ;
  out[__builtin_amdgcn_workgroup_id_x()] = 7;
}
__kernel void reverse(__global uint *out, __local uint *tile) {
  uint id = __builtin_amdgcn_workitem_id_x();
  tile[id * 16] = id;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[id] = tile[(63 - id) * 16];
}
__kernel void stack(__global uint *out, uint n) {
  uint id = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  volatile uint own[40];
  for (uint i = 0; i < 40; i++) own[i] = id * 100 + i;
  out[id] = own[n % 40];
}
ulong dispatch_id(void) __asm("llvm.amdgcn.dispatch.id");
__kernel void who(__global ulong *out) {
  out[0] = (ulong)__builtin_amdgcn_dispatch_ptr(); out[1] = (ulong)__builtin_amdgcn_queue_ptr(); out[2] = dispatch_id();
  out[3] = (ulong)__builtin_amdgcn_kernarg_segment_ptr();
}
"""


@pytest.fixture(scope="module", params=[(32, 5), (64, 4)])
def objects(request, tmp_path_factory):
    """Code objects of each wave size, of version 5 and of version 4."""
    folder = tmp_path_factory.mktemp("aql")
    (folder / "kernels.cl").write_text(SOURCE)
    wave_size, version = request.param
    flags = ("-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-nogpulib", "-O1", "-w")
    wide = (f"-mcode-object-version={version}", *(("-mwavefrontsize64",) if wave_size == 64 else ()))
    subprocess.run(["clang-19", *flags, *wide, "kernels.cl", "-o", "kernels.elf"], check=True, timeout=60, cwd=folder)
    return load((folder / "kernels.elf").read_bytes())


@pytest.fixture
def kernels(core, objects):
    for segment in objects.segments:
        at = CODE + segment.address
        core.hub.span.view[at : at + len(segment.data)] = segment.data
    return {name: CODE + one.descriptor_address for name, one in objects.kernels.items()}


def kernarg(core, *values, at=KERNARG):
    core.hub.span.view[at : at + 8 * len(values)] = struct.pack(f"<{len(values)}Q", *values)
    return at


@pytest.mark.parametrize(
    ("grid", "group"),
    [
        ((64,), (64,)), ((100,), (32,)), ((5,), (64,)), ((1,), (1,)), ((1000,), (1000,)),
        ((33, 9), (8, 4)), ((16, 16), (16, 16)), ((3, 70), (2, 64)), ((7, 5, 3), (4, 2, 2)), ((9, 4, 6), (8, 8, 8)),
    ],
)  # fmt: skip
def test_a_grid_counts_work_items_and_the_last_groups_are_partial(core, aql, kernels, grid, group):
    signal = aql.signal(1)
    aql.run(aql.dispatch(kernels["grid"], kernarg(core, OUT), grid, group, signal=signal))
    x, y, z = (*grid, 1, 1)[:3]
    expected = [1 << 31 | at_z << 20 | at_y << 10 | at_x for at_z in range(z) for at_y in range(y) for at_x in range(x)]
    assert core.violations() == []
    assert core.words(OUT, x * y * z + 64) == expected + [0] * 64
    assert (aql.value(signal), aql.read_index, aql.header(0)) == (0, 1, 1)


def test_a_mistake_of_a_packet_is_reported_once(core, aql, kernels):
    aql.run(aql.dispatch(kernels["grid"], kernarg(core, OUT), (2, 2), (2, 2), dimensions=1))
    (told,) = core.violations()
    assert "more than 1 dimensions" in told
    assert core.number(OUT) == 1 << 31


def test_the_first_sgprs_are_what_the_descriptor_asks_for(core, make_aql, kernels):
    """clang enables no queue pointer in code objects of version 5, not even on request."""
    queue_pointer = core.number(kernels["who"] + 56, 2) >> 2 & 1
    aql = make_aql(index=0x1_0000_0005)
    aql.run(aql.dispatch(kernels["who"], kernarg(core, OUT), (1,), (1,)))
    packet = aql.ring + 5 * 64
    seen = [core.number(OUT + 8 * place, 8) for place in range(4)]
    assert seen == [packet, aql.shared if queue_pointer else seen[1], 0x1_0000_0005, KERNARG]


def test_a_packet_keeps_its_slot_until_its_kernel_has_ended(core, aql, kernels):
    signal = aql.signal(1, event=3)
    aql.run(aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG), (1,), (1,), signal=signal))
    assert (aql.value(signal), aql.read_index, aql.header(0), core.ih.entries) == (1, 0, 2 | 1 << 8, [])
    core.put(FLAG, 1)
    core.clock.sleep_us(200)
    assert (aql.value(signal), aql.read_index, aql.header(0)) == (0, 1, 1)
    assert core.ih.entries == [(0x14, 181, 4, 8, (3,))]


def test_the_barrier_bit_waits_for_what_came_before(core, aql, kernels):
    spin = aql.dispatch(kernels["spin"], kernarg(core, OUT + 0x1000, FLAG))
    aql.run(spin, aql.dispatch(kernels["grid"], kernarg(core, OUT, at=KERNARG + 64), (4,), (4,)))
    assert core.number(OUT) == 0
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    assert (core.number(OUT), aql.read_index) == (1 << 31, 2)


def test_without_the_barrier_bit_kernels_run_side_by_side_and_retire_in_turn(core, aql, kernels):
    spin = aql.dispatch(kernels["spin"], kernarg(core, OUT + 0x1000, FLAG))
    aql.run(spin, aql.dispatch(kernels["grid"], kernarg(core, OUT, at=KERNARG + 64), (4,), (4,), header=2))
    assert (core.number(OUT), aql.read_index) == (1 << 31, 0)
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    assert aql.read_index == 2


def test_a_barrier_packet_with_the_bit_waits_too_and_one_without_does_not(core, aql, kernels):
    free, bound = aql.signal(1), aql.signal(1)
    spin = aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG))
    aql.run(spin, aql.barrier(signal=free), aql.barrier(signal=bound, bit=1))
    assert (aql.value(free), aql.value(bound)) == (0, 1)
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    assert aql.value(bound) == 0


def test_a_kernel_waits_for_the_kernel_of_another_queue(core, make_aql, kernels):
    one, two = make_aql(), make_aql(1, doorbell=8, vmid=9)
    done, end = one.signal(1), two.signal(1)
    one.write(one.dispatch(kernels["spin"], kernarg(core, OUT, FLAG), signal=done))
    one.ring_bell()
    grid = two.dispatch(kernels["grid"], kernarg(core, OUT + 64, at=KERNARG + 64), (4,), (4,), signal=end)
    two.run(two.barrier(done), grid)
    assert two.value(end) == 1
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    assert (two.value(end), core.number(OUT), core.number(OUT + 64)) == (0, 7, 1 << 31)


def test_a_ring_of_kernels_does_not_run_one_twice(core, aql, kernels):
    at = kernarg(core, OUT)
    aql.run(*[aql.dispatch(kernels["grid"], at, (1,), (1,), header=2)] * 16, us=1000)
    aql.run(*[aql.dispatch(kernels["grid"], at, (1,), (1,))] * 4, us=1000)
    assert core.number(OUT) == (20 << 31) & 0xFFFF_FFFF
    assert aql.read_index == 20


def test_profiled_signals_get_time_stamps_of_the_reference_clock(core, aql, kernels):
    plain, signal = aql.signal(1), aql.signal(1)
    packet = {"kernel": kernels["spin"], "kernarg": kernarg(core, OUT, FLAG)}
    core.put(FLAG, 1)
    aql.run(aql.dispatch(**packet, signal=plain))
    core.put(FLAG, 0)
    # AMD_QUEUE_PROPERTIES_ENABLE_PROFILING
    aql.put(180, struct.pack("<I", 1 << 3))
    before = core.clock.ticks(100_000_000)
    aql.run(aql.dispatch(**packet, signal=signal), us=1000)
    core.put(FLAG, 1)
    core.clock.sleep_us(100)
    start, end = aql.stamps(signal)
    assert aql.stamps(plain) == (0, 0)
    # 5 us
    assert 0 <= start - before < 500
    assert 100_000 <= end - start <= 110_000


def test_group_memory_is_what_the_packet_asks_for(core, aql, kernels):
    aql.run(aql.dispatch(kernels["reverse"], kernarg(core, OUT, 0), (64,), (64,), lds=4096))
    assert core.words(OUT, 64) == list(range(63, -1, -1))
    aql.run(aql.dispatch(kernels["reverse"], kernarg(core, OUT, 0), (64,), (64,), lds=512))
    assert "LDS" in core.violations()[0]


def lend(aql, lane_bytes, wave_size, waves=32):
    """Lend scratch as InitScratchSRD does: the size of a wave in units of 256 bytes, waves for each shader engine, and
    the size for a lane of a wave64.
    """
    wave = -(-lane_bytes * wave_size // 256)
    aql.put(140, struct.pack("<I", waves | wave << 12))
    aql.put(160, struct.pack("<QQI", SCRATCH, wave * 256 * waves * 6, wave * 256 // 64))


def test_scratch_lies_where_the_queue_says(core, aql, kernels, objects):
    lend(aql, 192, objects.kernels["stack"].wave_size)
    signal = aql.signal(1)
    aql.run(aql.dispatch(kernels["stack"], kernarg(core, OUT, 9), (256,), (64,), scratch=192, signal=signal))
    assert core.violations() == []
    assert core.words(OUT, 256) == [number * 100 + 9 for number in range(256)]
    assert (aql.value(signal), any(core.words(SCRATCH, 64))) == (0, True)


def test_a_queue_with_too_little_scratch_asks_for_more_and_goes_on(core, aql, kernels, objects):
    size = objects.kernels["stack"].wave_size
    spin, signal = aql.dispatch(kernels["spin"], kernarg(core, OUT + 0x8000, FLAG)), aql.signal(1)
    stack = aql.dispatch(
        kernels["stack"], kernarg(core, OUT, 9, at=KERNARG + 64), (64,), (64,), scratch=192, header=2, signal=signal
    )
    aql.run(spin, stack)
    # Otherwise the runtime would free memory that may be in use.
    assert aql.value(aql.inactive) == 0
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    assert (aql.value(aql.inactive), aql.read_index, aql.header(1)) == ({32: 0x400, 64: 1}[size], 1, 2)
    lend(aql, 192, size)
    aql.set(aql.inactive, 0)
    core.clock.sleep_us(300)
    assert (aql.value(signal), core.number(OUT + 4), core.violations()) == (0, 109, [])


def test_scratch_for_one_packet_is_given_back_behind_it(core, aql, kernels, objects):
    lend(aql, 192, objects.kernels["stack"].wave_size)
    # AMD_QUEUE_PROPERTIES_USE_SCRATCH_ONCE
    aql.put(180, struct.pack("<I", 1 << 4))
    signal = aql.signal(1)
    aql.run(
        aql.dispatch(kernels["stack"], kernarg(core, OUT, 9), (64,), (64,), scratch=192), aql.barrier(signal=signal)
    )
    assert (aql.value(aql.inactive), core.number(OUT), aql.value(signal)) == (512, 9, 1)
    aql.set(aql.inactive, 0)
    aql.put(180, struct.pack("<I", 0))
    core.clock.sleep_us(300)
    assert aql.value(signal) == 0


@pytest.mark.parametrize(
    ("change", "reason", "code"),
    [
        ({"dimensions": 0}, 2, 16),
        ({"grid": (0,)}, 2, 16),
        ({"lds": 65 << 10}, 4, 17),
        ({"kernel": 0}, 8, 18),
        ({"kernel": CODE + 4}, 8, 18),
        ({"group": (1025,)}, 64, 21),
        ({"group": (64, 64), "grid": (64, 64)}, 64, 21),
        ({"group": (0,)}, 64, 21),
    ],
)
def test_a_dispatch_that_is_wrong_stops_the_queue_and_is_reported(core, aql, kernels, change, reason, code):
    core.put(OUT, 0)
    aql.run(aql.barrier(), aql.dispatch(**{"kernel": kernels["grid"], "kernarg": kernarg(core, OUT), **change}))
    assert (aql.value(aql.inactive), aql.read_index, core.number(OUT)) == (reason, 1, 0)
    # The doorbell by its place among those of 64 bits.
    assert core.ih.entries == [(0x14, 183, 4, 8, (aql.bell >> 1 | code << 10,))]


def test_a_group_that_has_no_room_for_its_registers_stops_the_queue(core, aql, kernels, objects):
    rsrc1 = core.number(kernels["grid"] + 48)
    core.put(kernels["grid"] + 48, rsrc1 | (0x1F if objects.kernels["grid"].wave_size == 32 else 0x3F))  # 256 VGPRs
    aql.run(aql.dispatch(kernels["grid"], kernarg(core, OUT), (1024,), (1024,)))
    assert aql.value(aql.inactive) == 128


def test_waves_that_are_preempted_go_on_in_another_slot_with_their_signal(core, aql, kernels):
    signal = aql.signal(1, event=2)
    aql.run(aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG), (3,), (1,), signal=signal))
    assert core.dequeue(core.SAVE)
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    # Nothing runs while the queue is disconnected.
    assert (aql.value(signal), core.number(OUT)) == (1, 0)
    core.select(1, 2, 5)
    assert core.gc.cp.map_queue(core.gc.grbm.slot(), aql.mqd, aql.shared + 56, aql.bell, 9) == ""
    core.hub.vmids.clear()
    aql.run(aql.barrier(signal=signal, bit=1))
    assert set(core.hub.vmids) == {9}
    assert (aql.value(signal), core.words(OUT, 3), aql.read_index) == (-1, [7, 7, 7], 2)
    assert [entry[:3] for entry in core.ih.entries] == [(0x14, 181, 1 << 2 | 2 | 5 << 4)] * 2


def test_waves_saved_with_an_mqd_are_not_those_of_a_new_queue_at_its_place(core, make_aql, kernels):
    aql = make_aql()
    aql.run(aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG)))
    assert core.dequeue(core.SAVE)
    again = make_aql()
    assert core.dequeue(core.SAVE)
    core.put(FLAG, 1)
    assert core.gc.cp.map_queue(core.gc.grbm.slot(), again.mqd, again.shared + 56, again.bell, 8) == ""
    core.clock.sleep_us(300)
    assert (core.number(OUT), again.read_index) == (0, 0)


def test_a_queue_resets_with_its_waves(core, aql, kernels):
    aql.run(aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG)))
    assert core.dequeue(core.RESET)
    core.put(FLAG, 1)
    core.clock.sleep_us(300)
    assert (core.get("CP_HQD_ACTIVE"), core.number(OUT), aql.read_index) == (0, 0, 0)


def test_a_queue_that_was_reset_with_its_ring_in_flight_takes_packets_again(core, aql, kernels):
    lost, done = aql.signal(16), aql.signal(1)
    spin = aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG), signal=lost, header=2)
    aql.run(*[spin] * 16)
    assert core.dequeue(core.RESET)
    core.put(FLAG, 1)
    assert core.gc.cp.map_queue(core.gc.grbm.slot(), aql.mqd, aql.shared + 56, aql.bell, 8) == ""
    core.clock.sleep_us(300)
    assert (aql.read_index, aql.header(0), aql.header(15)) == (16, 1, 1)
    aql.run(aql.barrier(signal=done, bit=1))
    assert (aql.value(done), aql.value(lost), core.number(OUT), aql.read_index) == (0, 16, 0, 17)


def test_waves_go_on_in_a_queue_that_registers_activate_again(core, aql, kernels):
    signal = aql.signal(1)
    aql.run(aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG), (3,), (1,), signal=signal))
    assert core.dequeue(core.SAVE)
    core.put(FLAG, 1)
    core.set("CP_HQD_ACTIVE", 1)
    core.clock.sleep_us(300)
    assert (aql.value(signal), core.words(OUT, 3), aql.read_index) == (0, [7, 7, 7], 1)
    assert not core.gc.cp.saved


def test_pm4_in_a_packet_and_its_completion_waits_for_the_grids_it_starts(core, aql, kernels):
    """The registers still hold the code of an earlier packet, so it runs again: PM4 shares these registers."""
    signal, at = aql.signal(1), core.DATA + 0x1000
    aql.run(aql.dispatch(kernels["spin"], kernarg(core, OUT, FLAG + 4)))
    core.put(FLAG + 4, 1)
    core.clock.sleep_us(300)
    core.put(FLAG + 4, 0)
    wave32 = core.number(kernels["spin"] + 56, 2) >> 10 & 1
    core.put(at, 0xC003_1500, 1, 1, 1, 1 | 1 << 2 | wave32 << 15)
    aql.run(aql.pm4_ib(at, 5, signal=signal))
    assert aql.value(signal) == 1
    core.put(FLAG + 4, 1)
    core.clock.sleep_us(300)
    assert aql.value(signal) == 0
