"""HSA queues in trouble: packets that the engine refuses, barriers that nobody opens, faults, full rings, resets, lost
cards, Ctrl-C. Every wait is bounded, every error names the queue and the packet.
"""

import struct

import pytest

import ringup
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout
from ringup.queues.amd import aql

SLOTS = 1024
PATHS = ["virtual:navi31", "virtual:navi31@asm2464pd"]


@pytest.fixture(params=PATHS)
def card(request):
    with ringup.open(request.param, kind=ringup.Radeon) as card:
        yield card


def dispatch(card, **changed):
    """Return a dispatch of no kernel, with values at bytes of the packet that the builder would refuse."""
    packet = bytearray(aql.kernel_dispatch(0x1_0000_0000, (64, 1, 1), (64, 1, 1)))
    for at, (form, value) in changed.items():
        struct.pack_into(form, packet, int(at[1:]), value)
    return bytes(packet)


REFUSED = {
    "a grid of nothing": ({"b12": ("<I", 0)}, "a grid or a work-group of a wrong size"),
    "no dimensions": ({"b2": ("<H", 0)}, "a grid or a work-group of a wrong size"),
    "a group that is too large": ({"b4": ("<H", 2048)}, "a work-group that is too large"),
    "no kernel": ({"b32": ("<Q", 0)}, "no kernel at that address"),
    "an unknown type": ({"b0": ("<B", 23)}, "a packet of no known type"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_packet_is_named_with_the_reason_and_a_reset_of_the_queue_helps(card, what):
    changed, reason = REFUSED[what]
    queue = card.aql
    stream = queue.stream()
    stream.append(dispatch(card, **changed))
    stream.append(aql.barrier_and())
    point = queue.submit(stream)
    with pytest.raises(DeviceHung, match=rf"{queue.name} has stopped at packet 1 \(\w+\): .*{reason}.* \(code 0x"):
        point.wait(0.2)
    # the first cause refuses later work, until a reset
    with pytest.raises(DeviceHung, match=reason):
        queue.submit(queue.stream())
    report = str(card.report())
    assert f"queue {queue.name} (compute 1.1.0): 0 of 1 done" in report
    assert "aql_error=0x1" in report
    assert [rung.name for rung in card.reset()] == ["queue"]
    queue.submit(queue.stream()).wait(1)
    with pytest.raises(DeviceHung, match=reason):
        point.wait(1)
    card.compute.submit(card.compute.stream()).wait(1)


def test_packets_for_agents_and_of_other_vendors_are_refused_by_the_engine(card):
    for packet, name, code in (
        (aql.agent_dispatch(1), "AGENT_DISPATCH", "0x20"),
        (bytes([0, 0, 9]).ljust(64, b"\0"), "VENDOR_0x9", "0x100"),
    ):
        stream = card.aql.stream()
        stream.append(packet)
        with pytest.raises(DeviceHung, match=rf"has stopped at packet \d+ \({name}\): .* \(code {code}\)"):
            card.aql.submit(stream).wait(0.2)
        card.reset()


def test_a_barrier_that_nobody_opens_is_named_with_its_signal(card):
    gate, queue = card.signal(1, name="gate"), card.aql
    stream = queue.stream()
    stream.barrier_and(card.signal(0), gate)
    point = queue.submit(stream)
    with pytest.raises(DeviceTimeout, match=f"waiting for 1 on {card.name} {queue.name}: it stood at 0") as caught:
        point.wait(0.02)
    notes = "\n".join(caught.value.__notes__)
    assert f"{queue.name}: packet 1, BARRIER_AND, waits for <signal " in notes
    assert "<signal gate>, which is 1" in notes
    # the host may still open it
    gate.value = 0
    point.wait(1)


def test_a_barrier_for_a_value_is_named_too_and_a_reset_kills_it(card):
    gate, queue = card.signal(5, name="counter"), card.aql
    stream = queue.stream()
    stream.barrier_value(gate, aql.Condition.LT, 3)
    point = queue.submit(stream)
    with pytest.raises(DeviceTimeout) as caught:
        point.wait(0.02)
    assert any("BARRIER_VALUE, waits for <signal counter>, which is 5" in note for note in caught.value.__notes__)
    assert [rung.name for rung in card.reset()] == ["queue"]
    with pytest.raises(DeviceHung, match="was reset before the work was done"):
        point.wait(1)
    queue.submit(queue.stream()).wait(1)
    assert gate.value == 5


def test_a_full_ring_waits_a_bounded_time_and_then_says_what_it_waits_for(card):
    gate, queue = card.signal(1, name="gate"), card.aql
    stream = queue.stream()
    stream.barrier_and(gate)
    queue.submit(stream)
    # three packets, and two of each other submission: this is all that fits, since a ring is never filled
    for _ in range((SLOTS - 1 - 3) // 2):
        queue.submit(queue.stream(), timeout_s=0.02)
    with pytest.raises(DeviceTimeout, match=f"waiting for 1 on {card.name} {queue.name}") as caught:
        queue.submit(queue.stream(), timeout_s=0.02)
    assert any("waits for <signal gate>" in note for note in caught.value.__notes__)
    last = queue.timeline.last
    gate.value = 0
    queue.submit(queue.stream()).wait(5)
    assert queue.timeline.completed == last + 1


def test_a_signal_in_memory_that_was_freed_faults_with_its_address(card):
    buffer = card.alloc(1 << 21, name="short-lived", visible=True)
    signal_va = buffer.gpu_va
    buffer.free()
    stream = card.aql.stream()
    stream.append(aql.barrier_and(signal_va))
    with pytest.raises(DeviceFault, match=f"page {signal_va:#x} of vmid 8: .*short-lived"):
        card.aql.submit(stream).wait(0.2)
    card.reset()
    card.aql.submit(card.aql.stream()).wait(1)


@pytest.mark.parametrize("path", PATHS)
def test_a_fault_inside_a_kernel_names_the_kernel_and_the_buffer(path, trouble):
    with ringup.open(path, kind=ringup.Radeon) as card:
        program = card.load(trouble("gfx1100"), "trouble")
        with card.alloc(1 << 21, name="weights") as out:
            stream = card.aql.stream()
            stream.dispatch(program["store"], 1, 32, [out.gpu_va + (1 << 21), 1])
            with pytest.raises(DeviceFault, match=r"wrote page 0x\w+ of vmid 8: .*behind the end of .*'weights'"):
                card.aql.submit(stream).wait(1)
        card.reset()
        card.aql.submit(card.aql.stream()).wait(1)


def test_a_kernel_that_never_ends_stops_one_queue_only_and_scratch_survives_its_reset(bench):
    made = bench("navi31")
    card, queue, other = made.card, made.card.aql, made.card.new_aql_queue()
    point = made.hang(queue)
    assert made.works(7, card.compute)
    assert made.works(8, other)
    with pytest.raises(DeviceTimeout, match=queue.name):
        point.wait(0.02)
    assert [rung.name for rung in card.reset()] == ["queue"]
    with pytest.raises(DeviceHung):
        point.wait()
    for number, one in enumerate((queue, other, card.compute)):
        assert made.works(20 + number, one)
    made.radeon.violations.clear()


def test_queues_go_on_behind_a_reset_of_the_whole_card_and_old_streams_and_signals_are_refused(bench):
    made = bench("navi31")
    card, queue = made.card, made.card.aql
    signal, stream = card.signal(1, name="old"), queue.stream()
    kept = queue.keep(queue.stream())
    assert made.works(1, queue)
    last = queue.timeline.last
    card.reset("mode1")
    assert card.aql is queue
    with pytest.raises(ValueError, match="the stream was begun for another card, or before"):
        queue.submit(stream)
    with pytest.raises(ValueError, match=r"a kept stream of .* was lost in a reset of the card \(mode1\)"):
        kept.submit()
    with pytest.raises(ValueError, match="<signal old> is gone: its card was closed, or lost its memory"):
        signal.check()
    assert made.works(2, queue)
    assert queue.timeline.last > last


def test_a_lost_card_fails_the_waits_for_points_and_signals(bench):
    made = bench("navi31")
    card = made.card
    signal = card.signal(1)
    stream = card.aql.stream()
    stream.barrier_and(signal)
    point = card.aql.submit(stream)
    made.radeon.faults.inject("all_ones_after_reads", 1)
    for wait in (point.wait, signal.wait):
        with pytest.raises(DeviceLost):
            wait()


@pytest.mark.parametrize("path", PATHS)
def test_ctrl_c_in_a_wait_is_raised_and_the_queue_goes_on(path, monkeypatch):
    with ringup.open(path, kind=ringup.Radeon) as card:
        gate, queue = card.signal(1), card.aql
        stream = queue.stream()
        stream.barrier_and(gate)
        point = queue.submit(stream)
        interrupts = card.device.interrupts

        class Pressed:
            def wait(self, timeout_us):
                raise KeyboardInterrupt

            def __getattr__(self, name):
                return getattr(interrupts, name)

        monkeypatch.setattr(card.device, "interrupts", Pressed(), raising=False)
        for wait in (point.wait, gate.wait):
            with pytest.raises(KeyboardInterrupt):
                wait()
        monkeypatch.undo()
        gate.value = 0
        point.wait(1)
        queue.submit(queue.stream()).wait(1)


def test_a_submission_interrupted_while_it_is_stored_is_as_if_it_had_not_been(card):
    queue = card.aql
    write = queue.ring._write

    def interrupted(at, data):
        raise KeyboardInterrupt

    queue.ring._write = interrupted
    before = queue.timeline.last
    with pytest.raises(KeyboardInterrupt):
        queue.submit(queue.stream())
    queue.ring._write = write
    assert queue.timeline.last == before
    queue.submit(queue.stream()).wait(1)


def test_a_closed_queue_refuses_work_and_its_place_is_free_again(card):
    queue, stream = card.aql, card.aql.stream()
    point = queue.submit(stream)
    assert queue.close()
    point.wait()
    with pytest.raises(ValueError, match=f"{queue.name} was closed"):
        queue.submit(stream)
    assert card.aql is not queue
    assert card.aql.name == queue.name
    card.aql.submit(card.aql.stream()).wait(1)


def test_a_card_that_a_process_left_in_a_barrier_starts_again(bench):
    made = bench("navi31")
    stream = made.card.aql.stream()
    stream.barrier_and(made.card.signal(1))
    made.card.aql.submit(stream)
    made.radeon.kill_holder()
    with ringup.open(made.radeon.name, kind=ringup.Radeon, transport={"card": made.radeon}) as card:
        assert card.info.found == "dirty"
        card.aql.submit(card.aql.stream()).wait(1)
    # memory of the dead process is gone, and its queue reads ones there
    assert all(
        "no memory" in event.form or "fence scope" in event.form or "stops" in event.form
        for event in made.radeon.violations
    )
    made.radeon.violations.clear()
