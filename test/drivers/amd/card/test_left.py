"""A card that another process left: its identity, the contents of its memory, and its shutdown, all without a start."""

import pytest

import ringup
from ringup.autogen.amd.discovery import BINARY_SIGNATURE
from ringup.drivers.amd.lifecycle import inspect as states
from ringup.drivers.amd.lifecycle import shutdown
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.observe.gpu_memory import GpuMemory
from ringup.drivers.amd.observe.post_mortem import examine
from ringup.drivers.transport.linux.readonly import ReadOnly
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, NotSupported

MIB = 1 << 20
TEXT = b"what a dead process left"


@pytest.fixture
def radeon(virtual_card):
    return virtual_card("navi31", vram_bytes=256 * MIB)


def up(radeon):
    return ringup.open(radeon.name, transport={"card": radeon})


def found(radeon):
    return Bare(ringup.connect(radeon.name, card=radeon))


@pytest.fixture
def left(radeon):
    """Leave a card whose process died with a buffer of text in it; return the buffer's address."""
    card = up(radeon)
    buffer = card.alloc(64 << 10, name="text")
    card.copy.upload(buffer, TEXT).wait()
    gpu_va = buffer.gpu_va
    # This leaves the metrics for readers from outside.
    card.stats()
    radeon.kill_holder()
    return gpu_va


def test_a_card_reports_its_identity_before_anything_is_started(radeon):
    bare = found(radeon)
    assert bare.state() == states.COLD
    assert bare.pci_ids[:2] == (0x1002, 0x744C)
    assert bare.versions()["gc"] == "11.0.0"  # amdgpu_discovery.c: navi31
    assert bare.links[0] == (4, 16)
    assert not radeon.gpu.masters_bus


def test_a_card_that_was_closed_is_at_rest(radeon):
    up(radeon).close()
    bare = found(radeon)
    assert bare.state() == states.CLEAN
    # Its firmware stays loaded.
    assert shutdown.rest(bare).rungs == []
    radeon.close()
    with up(radeon) as card:
        assert card.info.found == "clean"


def test_memory_of_a_dead_process_is_read_by_its_own_addresses(radeon, left):
    bare = found(radeon)
    assert bare.state() == states.LEFT
    memory = GpuMemory(bare, 8)
    assert memory.read(left, len(TEXT)) == TEXT
    # The read crosses a page's end; the model's memory was zero.
    assert memory.read(left - left % 4096 + 4096 - 4, 8) == b"\0" * 8
    with pytest.raises(DeviceFault, match="nothing is mapped at 0x10"):
        memory.read(0x10, 4)
    with pytest.raises(NotSupported, match="vmid 5 has no page tables"):
        GpuMemory(bare, 5)
    with pytest.raises(ValueError, match="a vmid is 0 to 15"):
        GpuMemory(bare, 16)


def test_vmid_0_reaches_memory_through_the_frame_buffer_aperture(radeon):
    bare = found(radeon)
    # where the discovery binary is
    top = radeon.vram.size_bytes - 0x10000
    # where the VBIOS puts it: silicon/amd/card.py
    fb_base = GpuMemory(bare, 0).find(0x80_0000_0000).gpu_va
    assert GpuMemory(bare, 0).read(fb_base + top, 4) == BINARY_SIGNATURE.to_bytes(4, "little")


def test_a_card_left_running_is_reset_and_sleeps(radeon, left):
    done = shutdown.rest(found(radeon))
    assert (done.found, [rung.name for rung in done.rungs], done.power) == (states.LEFT, ["mode1"], "D3hot")
    assert radeon.gpu.power_state == 3
    assert not radeon.gpu.masters_bus
    radeon.close()
    with up(radeon) as card:
        assert card.info.found == "cold"


def test_the_bus_resets_a_card_without_running_firmware(radeon):
    assert [rung.name for rung in shutdown.reset(found(radeon))] == ["slot"]
    with pytest.raises(ValueError, match="has no reset 'engine'; it has mode1, slot"):
        shutdown.reset(Bare(radeon), "engine")


def test_a_power_controller_that_hangs_is_passed_by_the_slot(radeon, left):
    radeon.faults.inject("smu_silent")
    rungs = shutdown.reset(found(radeon))
    assert [rung.name for rung in rungs] == ["mode1", "slot"]
    assert rungs[0].error


def test_a_report_from_outside_changes_nothing_and_knows_its_limits(radeon, left):
    writes = [radeon.vram.read(0, 4096)]
    report = examine(Bare(ReadOnly.of(radeon), own=False), "process 7 (python3)")
    assert report.state == states.HELD
    assert "queues and waves" in " ".join(report.unknown)
    assert report.metrics["power_w"] > 0
    mine = examine(found(radeon))
    assert mine.state == states.LEFT
    assert mine.queues[0].startswith("compute 1.0.0: rptr ")
    assert mine.mark["state"] == 1
    assert writes == [radeon.vram.read(0, 4096)]
    assert str(mine).startswith("virtual:navi31: left running")


def test_a_core_that_may_be_asleep_is_not_read(radeon):
    # Memory decoding is on, as a holder would have it.
    radeon.config.write(4, 2, 2)
    report = examine(Bare(ReadOnly.of(radeon), own=False))
    assert "would hang the host" in " ".join(report.unknown)
    assert "graphics core" not in report.registers


def test_a_card_that_is_gone_is_reported_at_once(radeon):
    radeon.unplug()
    with pytest.raises(DeviceLost, match="nothing answers"):
        Bare(radeon)


def test_when_no_reset_helps_the_error_names_all_that_were_tried(radeon, left, monkeypatch):
    monkeypatch.setattr(type(radeon), "resets", lambda self: ())
    radeon.faults.inject("smu_silent")
    with pytest.raises(DeviceHung, match="no reset helped"):
        shutdown.reset(found(radeon))
