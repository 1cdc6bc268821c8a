"""The post-mortem of every kind of failed card: its errors in order, and the state of each queue."""

import json
import re
import struct

import pytest
from far_path import Far

from ringup.drivers import select
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout

CHIPS = ("navi31", "navi32", "navi33")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_hung_kernel_is_seen_in_its_queue(bench, chip):
    bench = bench(chip)
    hung = bench.hang()
    with pytest.raises(DeviceTimeout) as caught:
        hung.wait(0.005)
    assert re.search(
        r"compute 0: 1 of 2 done; not done: .*DISPATCH_DIRECT x1.*RELEASE_MEM x1", caught.value.__notes__[0]
    )
    report = bench.card.report()
    compute, copy = report.queues
    assert (compute.name, compute.completed, compute.submitted) == ("compute 0", 1, 2)
    assert compute.state["mapped"] == "True"
    assert compute.state["wptr"] == compute.state["wptr (ours)"]
    packets = "\n".join(compute.packets)
    assert "DISPATCH_DIRECT" in packets
    assert "RELEASE_MEM" in packets
    assert f"address: {bench.card.compute.timeline.gpu_va:#x}" in packets
    assert copy.packets == ()
    assert "spi_busy" in report.registers["graphics core"]["GRBM_STATUS"]
    assert any("end of pipe" in line for line in report.interrupts)
    assert any(line.startswith("trouble: ") for line in report.holders)
    (wave,) = report.waves
    assert re.search(r"vmid 8 queue 1\.0\.0 at 0x[0-9a-f]+, exec 0xffffffff, .*: spin\+0x[0-9a-f]+ of trouble$", wave)
    assert report.unknown == []
    text = str(report)
    assert text.startswith(f"virtual:{chip}: DeviceTimeout: waiting for 2 on virtual:{chip} compute 0: it stood at 1")
    assert "the compute micro engine (MEC) does not go on: compute 0 has stood at 1 of 2" in text
    assert "nothing is wrong" not in text
    assert "queue compute 0 (compute 1.0.0): 1 of 2 done" in text
    assert json.loads(json.dumps(report.as_dict()))["name"] == f"virtual:{chip}"
    bench.card.reset()
    assert bench.card.report().waves == []


def test_a_hung_copy_is_seen_too(bench):
    bench = bench()
    card = bench.card
    stream = card.copy.stream()
    stream.body += card.copy.commands.wait(bench.flag.gpu_va, 5)
    card.copy.submit(stream)
    queue = next(queue for queue in card.report().queues if queue.name == "copy 0.0")
    assert any("POLL_REGMEM" in line for line in queue.packets)
    bench.store(bench.flag, 5).wait()


def test_a_fault_names_buffer_and_cause_and_stays_in_the_report_after_a_reset(bench):
    bench = bench()
    card = bench.card
    weights = card.alloc(8192, name="weights")
    with pytest.raises(DeviceFault) as caught:
        bench.store(weights.gpu_va + 8192, 1).wait(1)
    assert "0x0 bytes behind the end of <Buffer 'weights'" in str(caught.value)
    assert caught.value.__notes__
    report = card.report()
    assert report.cause == f"DeviceFault: {caught.value}"
    assert any(line.startswith("page fault: gfxhub vmid 8 wrote page") for line in report.interrupts)
    card.reset()
    report = card.report()
    assert report.cause == ""
    assert report.errors_so_far == [f"DeviceFault: {caught.value}"]
    assert report.rungs == ["queue: verified; survived: firmware, VRAM, clocks"]
    assert "errors so far:\n  DeviceFault" in str(report)
    bench.radeon.violations.clear()


def test_the_packets_of_a_kept_stream_are_followed(bench):
    bench = bench()
    stream = bench.card.compute.stream()
    stream.dispatch(bench.program["spin"], 3, 32, [bench.flag])
    bench.card.compute.keep(stream).submit()
    packets = "\n".join(bench.card.report().queues[0].packets)
    assert re.search(r"INDIRECT_BUFFER[\s\S]*DISPATCH_DIRECT[\s\S]*dim_x: 3", packets)
    bench.card.reset()


def test_long_queues_are_shown_in_part(bench):
    bench = bench()
    bench.hang()
    for value in range(100):
        bench.store(bench.flag, value)
    lines = bench.card.report().queues[0].packets
    assert len(lines) < 24 * 13 + 3
    assert any("packets before" in line for line in lines) or any("packets more" in line for line in lines)
    bench.card.reset()


def test_an_address_is_shown_by_kernel_and_offset(bench):
    program = bench().program
    spin, store = program["spin"].entry_va, program["store"].entry_va
    assert program.where(spin + 8) == "spin+0x8 of trouble"
    assert program.where(store + 0x10) == "store+0x10 of trouble"
    assert program.where(program.base_va - 4) == ""


def test_a_lost_card_is_reported_from_memory(bench):
    bench = bench()
    hung = bench.hang()
    bench.radeon.tree.set_link(up=False)
    with pytest.raises(DeviceLost):
        hung.wait(1)
    reads = bench.card.blocks.registers.reads
    report = bench.card.report()
    assert bench.card.blocks.registers.reads == reads
    assert report.unreachable == "the card is gone"
    assert report.cause.startswith("DeviceLost")
    assert any("DISPATCH_DIRECT" in line for line in report.queues[0].packets)
    assert "registers: the card is gone" in report.unknown


def test_a_closed_card_still_reports_its_errors(bench):
    bench = bench()
    with pytest.raises(DeviceFault):
        bench.store(0xDEAD_0000, 1).wait(1)
    bench.card.close()
    report = bench.card.report()
    assert report.cause.startswith("DeviceFault")
    assert report.unreachable == "the card was closed"
    bench.radeon.violations.clear()


def test_a_ring_full_of_nonsense_is_shown(bench):
    bench = bench()
    hung = bench.hang()
    view, start = bench.card.compute.memory.ring.view, bench.card.compute.ring.unfinished()[0]
    view[start : start + 16] = struct.pack("<4I", 0xFFFFFFFF, 0x12345678, 0, 0xC0FF9900)
    report = bench.card.report()
    assert report.queues[0].packets
    bench.card.reset()
    with pytest.raises(DeviceHung):
        hung.wait()
    bench.radeon.violations.clear()


def test_a_card_behind_a_path_that_maps_nothing_is_reported_and_reset(virtual_card, trouble):
    radeon = virtual_card("navi31", vram_bytes=256 << 20)
    with select.start(Far(radeon)) as card:
        program, flag = card.load(trouble("gfx1100")), card.alloc(4096)
        card.copy.fill(flag, 0).wait()
        stream = card.compute.stream()
        stream.dispatch(program["spin"], 1, 32, [flag])
        hung = card.compute.submit(stream)
        with pytest.raises(DeviceTimeout):
            hung.wait(0.002)
        assert any("DISPATCH_DIRECT" in line for line in card.report().queues[0].packets)
        card.reset()
        card.compute.submit(card.compute.stream()).wait()
        again = card.compute.submit(stream)
        radeon.tree.set_link(up=False)
        with pytest.raises(DeviceLost):
            again.wait(0.1)
        assert card.report().cause.startswith("DeviceLost")
