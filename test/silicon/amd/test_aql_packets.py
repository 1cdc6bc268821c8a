"""AQL queues without kernels: pointers and doorbells, barriers, signals, the vendor's packets, errors and preemption.

Source: hsa.h, hsa_ext_amd.h, amd_hsa_queue.h, amd_hsa_signal.h, amd_aql_queue.cpp of ROCR-Runtime;
kfd_int_process_v11.c, kfd_ioctl.h.
"""

from __future__ import annotations

import struct

import pytest

from ringup.autogen.amd.mqd import v11_compute_mqd

INVALID = 1


def store(at, *values):
    return [0xC000_0000 | len(values) + 2 << 16 | 0x3700, 5 << 8 | 1 << 20, at, 0, *values]


def wait_for(at, value):
    return [0xC005_3C00, 3 | 1 << 4, at, 0, value, 0xFFFF_FFFF, 4]


def test_a_barrier_without_dependencies_completes_its_signal(core, aql):
    signal = aql.signal(3)
    aql.run(aql.barrier(signal=signal))
    assert (aql.value(signal), aql.read_index, aql.header(0)) == (2, 1, INVALID)
    assert (core.ih.entries, core.violations()) == ([], [])


def test_what_the_processor_touches_is_in_the_queues_vmid(core, aql):
    core.hub.vmids.clear()
    aql.run(aql.barrier(signal=aql.signal(1)))
    assert set(core.hub.vmids) == {8}


def test_a_signal_with_an_event_is_put_in_the_mailbox_and_interrupts(core, aql):
    signal = aql.signal(1, event=5)
    aql.run(aql.barrier(signal=signal))
    assert core.number(aql.EVENTS + 40, 8) == 5
    assert core.ih.entries == [(0x14, 181, 1 << 2, 8, (5,))]


def test_values_go_below_zero(aql):
    signal = aql.signal(0)
    aql.run(aql.barrier(signal=signal))
    assert aql.value(signal) == -1


@pytest.mark.parametrize("size_bytes", [4, 8])
def test_the_doorbell_is_the_number_of_the_last_packet(core, make_aql, size_bytes):
    aql = make_aql(index=0x1_0000_0003)
    one, two = aql.signal(1), aql.signal(1)
    aql.write(aql.barrier(signal=one), aql.barrier(signal=two))
    aql.ring_bell(0x1_0000_0003 if size_bytes == 8 else 3, size_bytes)
    core.clock.sleep_us(100)
    assert (aql.value(one), aql.value(two)) == (0, 1)
    aql.ring_bell(0x1_0000_0004 if size_bytes == 8 else 4, size_bytes)
    core.clock.sleep_us(100)
    assert (aql.value(two), aql.read_index) == (0, 0x1_0000_0005)


def test_a_32_bit_doorbell_goes_on_past_its_range(core, make_aql):
    aql = make_aql(index=0xFFFF_FFFF)
    signals = [aql.signal(1), aql.signal(1)]
    aql.write(*(aql.barrier(signal=one) for one in signals))
    aql.ring_bell(0xFFFF_FFFF, 4)
    aql.ring_bell(0, 4)
    core.clock.sleep_us(100)
    assert [aql.value(one) for one in signals] == [0, 0]


def test_a_32_bit_doorbell_from_before_the_range_ended_moves_nothing(core, make_aql):
    aql = make_aql(index=0xFFFF_FFFF)
    signals = [aql.signal(1), aql.signal(1)]
    aql.write(*(aql.barrier(signal=one) for one in signals))
    aql.ring_bell(0, 4)
    # A late producer rings the doorbell for the first packet.
    aql.ring_bell(0xFFFF_FFFF, 4)
    core.clock.sleep_us(100)
    assert [aql.value(one) for one in signals] == [0, 0]


def test_producers_may_ring_out_of_turn(core, aql):
    signals = [aql.signal(1) for _ in range(3)]
    aql.write(*(aql.barrier(signal=one) for one in signals))
    aql.ring_bell(2)
    aql.ring_bell(0)
    core.clock.sleep_us(100)
    assert [aql.value(one) for one in signals] == [0, 0, 0]


def test_an_invalid_packet_stops_the_processor_until_it_is_valid(core, aql):
    first, second = aql.signal(1), aql.signal(1)
    aql.write(aql.barrier(signal=first), header=INVALID)
    aql.write(aql.barrier(signal=second))
    aql.ring_bell()
    core.clock.sleep_us(500)
    assert (aql.value(first), aql.value(second), aql.read_index) == (1, 1, 0)
    core.put(aql.ring, 3)
    core.clock.sleep_us(500)
    assert (aql.value(first), aql.value(second), aql.read_index) == (0, 0, 2)


def test_the_ring_wraps_around(core, aql):
    signal = aql.signal(100)
    for _ in range(10):
        aql.run(*[aql.barrier(signal=signal)] * 7, us=200)
    assert (aql.value(signal), aql.read_index) == (30, 70)
    assert [aql.header(slot) for slot in range(16)] == [INVALID] * 16
    core.select(1, 0, 0)
    assert core.get("CP_HQD_PQ_RPTR") == 70 * 16
    assert core.violations() == []


def test_the_read_pointer_of_32_bits_wraps_and_the_index_does_not(core, make_aql):
    # Packets of 16 dwords.
    aql = make_aql(index=0x0FFF_FFFE)
    signal = aql.signal(9)
    for _ in range(4):
        aql.run(aql.barrier(signal=signal), us=100)
    assert (aql.value(signal), aql.read_index) == (5, 0x1000_0002)
    assert core.violations() == []


def test_a_write_index_more_than_a_ring_ahead_runs_no_packet_twice(core, aql):
    signal, gate = aql.signal(100), aql.signal(1)
    aql.write(aql.barrier(gate), *[aql.barrier(signal=signal)] * 15)
    aql.ring_bell(40)
    core.clock.sleep_us(200)
    aql.set(gate, 0)
    core.clock.sleep_us(500)
    assert (aql.value(signal), aql.read_index, core.violations()) == (85, 16, [])


def test_the_write_index_can_be_polled_from_memory(core, aql):
    signal = aql.signal(1)
    aql.write(aql.barrier(signal=signal))
    core.set("CP_PQ_WPTR_POLL_CNTL", 1 << 31)
    core.clock.sleep_us(100)
    assert aql.value(signal) == 0


def test_a_queue_reads_its_write_index_once_when_asked_before_it_is_active(core, aql):
    signal = aql.signal(1)
    assert core.dequeue(core.SAVE)
    aql.write(aql.barrier(signal=signal))
    core.select(1, 0, 0)
    # As hqd_load_v11 does.
    core.set("CP_PQ_WPTR_POLL_CNTL1", 1)
    core.set("CP_HQD_ACTIVE", 1)
    core.clock.sleep_us(100)
    assert aql.value(signal) == 0


# --- barriers -----------------------------------------------------------------------------------------------------
def test_barrier_and_waits_for_all_of_its_signals(core, aql):
    gates, signal = [aql.signal(1) for _ in range(5)], aql.signal(1)
    aql.run(aql.barrier(*gates, signal=signal))
    for gate in gates:
        assert aql.value(signal) == 1
        aql.set(gate, 0)
        core.clock.sleep_us(200)
    assert aql.value(signal) == 0


@pytest.mark.parametrize("which", range(5))
def test_barrier_or_waits_for_one_of_its_signals(core, aql, which):
    gates, signal = [aql.signal(1) for _ in range(5)], aql.signal(1)
    aql.run(aql.barrier(*gates, kind=5, signal=signal))
    assert aql.value(signal) == 1
    aql.set(gates[which], 0)
    core.clock.sleep_us(200)
    assert aql.value(signal) == 0


def test_a_null_signal_satisfies_no_barrier_or(core, aql):
    signal, gate = aql.signal(1), aql.signal(1)
    aql.run(aql.barrier(0, gate, kind=5, signal=signal))
    assert aql.value(signal) == 1
    aql.set(gate, 0)
    core.clock.sleep_us(200)
    assert aql.value(signal) == 0


def test_a_dependency_must_be_zero_not_less(core, aql):
    gate, signal = aql.signal(-1), aql.signal(1)
    aql.run(aql.barrier(gate, signal=signal))
    assert aql.value(signal) == 1


def test_two_queues_wait_for_each_other(core, make_aql):
    one, two = make_aql(), make_aql(1, doorbell=8)
    there, back, done = one.signal(1), two.signal(1), one.signal(1)
    one.run(one.barrier(there), one.barrier(signal=back), one.barrier(signal=done))
    assert one.value(done) == 1
    two.run(two.barrier(signal=there), two.barrier(back, signal=done))
    # Both queues have decremented the signal.
    assert one.value(done) == -1
    assert (one.read_index, two.read_index) == (3, 2)


@pytest.mark.parametrize(
    ("condition", "mask", "before", "after"),
    [(0, -1, 6, 7), (1, -1, 7, 8), (2, -1, 7, 6), (3, -1, 6, 7), (0, 0xF, 0x16, 0x17), (2, -1, 9, -5)],
)  # hsa_signal_condition_t
def test_barrier_value_compares_a_signal(core, aql, condition, mask, before, after):
    gate, signal = aql.signal(before), aql.signal(1)
    packet = struct.pack("<HBBIQqqIIQQQ", 0, 2, 0, 0, gate, 7, mask, condition, 0, 0, 0, signal)
    aql.run(packet)
    assert aql.value(signal) == 1
    aql.set(gate, after)
    core.clock.sleep_us(200)
    assert aql.value(signal) == 0


# --- PM4 ----------------------------------------------------------------------------------------------------------
def test_the_vendors_packet_executes_pm4(core, aql):
    signal, at = aql.signal(1), core.DATA + 0x1000
    words = store(core.DATA, 7)
    core.put(at, *words)
    aql.run(aql.pm4_ib(at, len(words), signal=signal), aql.barrier(signal=signal))
    assert (core.number(core.DATA), aql.value(signal), aql.read_index) == (7, -1, 2)
    assert core.violations() == []


def test_a_queue_preempted_within_pm4_goes_on_there(core, aql):
    signal, at, flag = aql.signal(1), core.DATA + 0x1000, core.DATA + 0x100
    words = [*store(core.DATA, 1), *wait_for(flag, 1), *store(core.DATA + 4, 2)]
    core.put(at, *words)
    aql.run(aql.pm4_ib(at, len(words), signal=signal))
    assert core.dequeue(core.SAVE)
    core.put(core.DATA, 0)
    core.put(flag, 1)
    assert core.gc.cp.map_queue(core.gc.grbm.slot(), aql.mqd, aql.shared + 56, aql.bell, 8) == ""
    core.clock.sleep_us(300)
    assert core.words(core.DATA, 2) == [0, 2]
    assert (aql.value(signal), aql.read_index) == (0, 1)


def test_a_bad_packet_within_pm4_hangs_the_queue(core, aql):
    signal, at = aql.signal(1), core.DATA + 0x1000
    core.put(at, 0xC000_FE00, 0)
    aql.run(aql.pm4_ib(at, 2, signal=signal))
    assert (aql.value(signal), core.ih.entries[0][1]) == (1, 183)


# --- errors -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("packet", "reason", "code"),
    [
        (struct.pack("<H62x", 4), 32, 20),  # AGENT_DISPATCH
        (struct.pack("<H62x", 6), 32, 20),
        (struct.pack("<H62x", 0xFF), 32, 20),
        (struct.pack("<HB61x", 0, 9), 256, 23),
        # There is no INDIRECT_BUFFER in it.
        (struct.pack("<HB61x", 0, 1), 256, 23),
    ],
)
def test_a_packet_the_processor_does_not_know_stops_the_queue_and_is_reported(core, aql, packet, reason, code):
    # opcode_error and time_stamp are KFD's own.
    core.set("CP_ME1_PIPE0_INT_CNTL", 1 << 24 | 1 << 26)
    signal = aql.signal(1)
    core.hub.span.view[aql.inactive + 16 : aql.inactive + 28] = struct.pack("<QI", aql.EVENTS + 8, 1)
    aql.run(aql.barrier(signal=signal), packet, aql.barrier(signal=signal))
    assert (aql.value(signal), aql.read_index, aql.value(aql.inactive)) == (0, 1, reason)
    assert core.ih.entries == [(0x14, 181, 4, 8, (1,)), (0x14, 183, 4, 8, (aql.bell >> 1 | code << 10,))]
    core.select(1, 0, 0)
    assert core.get("CP_HQD_ERROR") >> 5 & 1
    assert "stops" in core.violations()[0]


def test_a_queue_that_was_stopped_by_a_bad_packet_can_be_taken_away(core, aql):
    aql.run(struct.pack("<H62x", 4))
    assert core.dequeue(core.SAVE)


def test_a_fault_of_the_processor_hangs_the_queue(core, aql):
    core.hub.unmapped.add(0x1FF)
    aql.run(aql.barrier(0x1FF040))
    core.select(1, 0, 0)
    assert core.get("CP_HQD_ERROR") >> 19 & 1
    assert "0x1ff048" in core.violations()[-1]


# --- preemption ---------------------------------------------------------------------------------------------------
def test_a_queue_that_waits_is_preempted_and_goes_on_in_another_slot(core, aql):
    gate, signal = aql.signal(1), aql.signal(1)
    aql.run(aql.barrier(), aql.barrier(gate, signal=signal))
    assert core.dequeue(core.SAVE)
    image = v11_compute_mqd.view(bytearray(core.hub.read(0, aql.mqd, v11_compute_mqd.SIZE, "")))
    assert (image.cp_hqd_pq_rptr, aql.read_index) == (16, 1)
    # The packet is written while the queue is disconnected.
    aql.write(aql.barrier(signal=signal))
    core.select(1, 3, 2)
    assert core.gc.cp.map_queue(core.gc.grbm.slot(), aql.mqd, aql.shared + 56, aql.bell, 9) == ""
    core.clock.sleep_us(300)
    assert aql.value(signal) == 1
    aql.set(gate, 0)
    core.clock.sleep_us(300)
    assert (aql.value(signal), aql.read_index, core.violations()) == (-1, 3, [])


def test_indices_that_disagree_are_reported(core, make_aql):
    aql = make_aql(CP_HQD_PQ_RPTR=0x4000)
    aql.run(aql.barrier())
    assert "disagree" in core.violations()[0]
