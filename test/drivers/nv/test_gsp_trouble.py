"""Mistakes of programs, and trouble of a bare card: each is one clear error, and the card works again."""

from __future__ import annotations

import numpy as np
import pytest
from nvidia_code import sass_programs

from ringup.autogen.nv import status
from ringup.autogen.nv.gsp_rpc import NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.card import CARD_RUNG
from ringup.drivers.nv.gsp.falcon import Falcon
from ringup.drivers.nv.gsp.rpc import Rpc
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, OutOfMemory, RingupError
from ringup.queues.timeline import Point

COMPUTING = ("tu102", "ga100", "ga102", "ad102")
NOWHERE = 0x7F_0000_0000
COMMAND, MASTER = 4, 4  # the command register, and its bit for bus mastering


def program(card):
    return card.load(sass_programs.cubin(card.target), "sass_programs")


def submit(card, kernel, args, block=32):
    stream = card.compute.stream()
    stream.dispatch(kernel, 1, block, args)
    return card.compute.submit(stream)


def works(card):
    """Check that a card copies and computes."""
    cell = card.alloc(4096)
    card.copy.fill(cell, 0).wait()
    submit(card, program(card)["counts"], [cell]).wait()
    assert (card.copy.download_array(cell, "u4", 1) == np.uint32(32)).all()


@pytest.mark.parametrize("chip", COMPUTING)
def test_a_page_fault_names_address_and_channel_and_leaves_others_alone(bare, chip):
    card = bare(chip)
    kernels, cell = program(card), card.alloc(4096, name="cell")
    with pytest.raises(DeviceFault, match=r"stopped channel 0 of the graphics engine: Xid 31 .*in no buffer") as seen:
        submit(card, kernels["counts"], [NOWHERE]).wait(1)
    assert f"{NOWHERE:#x} is" in str(seen.value)
    # all work is refused until the reset, with the same cause
    with pytest.raises(DeviceFault, match="Xid 31"):
        card.copy.fill(cell, 1)
    report = card.report()
    assert "Xid 31" in report.cause
    assert any("Xid 31" in line for line in report.errors)
    assert "RC_TRIGGERED" in report.events
    assert report.queues[0].submitted > report.queues[0].completed
    assert [rung.error for rung in card.reset()] == [""]
    card.copy.fill(cell, 0).wait()
    submit(card, kernels["counts"], [cell]).wait()
    assert card.copy.download_array(cell, "u4", 1)[0] == 32
    assert card.stats().faults == card.stats().resets == 1


@pytest.mark.parametrize("chip", ["ga102", "gh100", "gb202"])
def test_a_fault_of_a_copy_names_its_engine_and_memory_stays(bare, chip):
    card = bare(chip)
    kept = card.alloc(4096)
    card.copy.fill(kept, 5).wait()
    stream = card.copy.stream()
    stream.copy(NOWHERE, NOWHERE + 4096, 64)
    with pytest.raises(DeviceFault, match=r"copy engine 0: Xid 31"):
        card.copy.submit(stream).wait(1)
    assert card.reset()[0].survived
    assert card.copy.download(kept, None, 0, 4) == b"\5\0\0\0"


def test_running_over_a_buffers_end_is_a_fault_that_names_it(bare):
    card = bare()
    buffer = card.alloc(4096, name="short")
    with pytest.raises(DeviceFault, match="0x0 bytes behind the end of <Buffer 'short'"):
        submit(card, program(card)["counts"], [buffer.gpu_va + 4096]).wait(1)
    card.reset()


def test_a_program_that_writes_to_itself_is_a_fault_once_it_is_protected(bare):
    card = bare()
    buffer = card.alloc(8192, name="constants")
    card.copy.fill(buffer, 1).wait()
    card.memory.write_protect(buffer, [(4096, 4)])
    card.copy.fill(buffer, 2, 4096, 4).wait()
    with pytest.raises(DeviceFault, match="byte 0x0 of <Buffer 'constants'"):
        card.copy.fill(buffer, 2, 0, 4).wait(1)
    card.reset()
    assert card.copy.download(buffer, None, 0, 1) == b"\1"
    assert card.copy.download(buffer, None, 4096, 1) == b"\2"


def test_a_semaphore_that_never_comes_is_bounded_and_named(bare):
    card = bare()
    stream = card.copy.stream()
    stream.wait_for(Point(card.compute.timeline, card.compute.timeline.last + 5))
    point = card.copy.submit(stream)
    with pytest.raises(DeviceTimeout, match=r"copy 0: it stood at \d+ .* for 0.05 s") as seen:
        point.wait(0.05)
    assert any("a semaphore that waits for" in note for note in seen.value.__notes__)
    card.reset()
    with pytest.raises(DeviceHung, match="was reset before the work was done"):
        point.wait()
    works(card)


def test_a_kernel_that_never_ends_is_ended_by_a_reset(bare):
    card = bare()
    cell = card.alloc(4096, "host")
    point = submit(card, program(card)["spin"], [cell], block=1)
    with pytest.raises(DeviceTimeout, match="compute"):
        point.wait(0.01)
    card.reset()
    with pytest.raises(DeviceHung):
        point.wait()
    works(card)


@pytest.mark.parametrize("chip", COMPUTING)
def test_a_reset_of_the_card_loses_memory_and_keeps_queues(bare, chip):
    card = bare(chip)
    buffer, kernels, queue = card.alloc(4096, name="old"), program(card), card.compute
    card.copy.fill(buffer, 1).wait()
    assert [str(rung) for rung in card.reset(CARD_RUNG)] == ["card: verified; survived: nothing"]
    with pytest.raises(ValueError, match="was lost in a reset of the card"):
        card.copy.fill(buffer, 1)
    with pytest.raises(ValueError, match="was lost in a reset of the card"):
        submit(card, kernels["counts"], [0])
    assert card.compute is queue
    works(card)
    assert "reset: card: verified" in str(card.report())


def test_a_gsp_rm_that_stays_silent_is_started_anew(bare):
    card = bare()
    card.device.faults.inject("gsp_silent", 1)
    with pytest.raises(DeviceTimeout, match="GSP-RM's answer to GSP_RM_ALLOC"):
        card.new_copy_queue(1)
    # nothing is wrong with the queues there are
    with card.alloc(64, "host") as buffer:
        card.copy.fill(buffer, 3).wait()
    rungs = card.reset()
    assert [bool(rung.error) for rung in rungs] == [True, False]
    assert rungs[0].name == "channel"
    assert "GSP_RM_ALLOC failed before" in rungs[0].error
    works(card)


@pytest.mark.parametrize("chip", ["ga102", "gh100", "gb202"])
def test_work_of_a_gsp_rm_that_stays_silent_ends_before_the_bus_is_taken(bare, chip):
    """A channel waits for a semaphore in the host's memory, and looks there again and again."""
    card = bare(chip)
    stream = card.copy.stream()
    stream.wait_for(Point(card.compute.timeline, card.compute.timeline.last + 5))
    card.copy.submit(stream)
    card.device.faults.inject("gsp_silent", -1)
    card.close()
    assert not card.device.config.read(COMMAND, 2) & MASTER
    card.device.faults.clear()
    assert bare(chip, model=card.device).info.found.startswith("cold")


def test_a_gsp_rm_that_crashes_is_an_error_and_started_anew(bare):
    card = bare()
    card.device.faults.inject("gsp_crash", 1)
    with pytest.raises(DeviceHung, match="GSP's processor has stopped"):
        card.new_copy_queue(1)
    assert card.reset(CARD_RUNG)
    works(card)


def test_a_reset_that_fails_can_be_tried_again(bare):
    card = bare()
    extra, compute = card.new_copy_queue(1), card.compute
    card.device.faults.inject("gsp_no_start", -1)
    with pytest.raises(DeviceTimeout, match="waiting for GSP-RM"):
        card.reset(CARD_RUNG)
    with pytest.raises(DeviceTimeout):
        card.look()
    assert "waiting for GSP-RM" in card.report().cause
    assert card.stats().memory["vram"].buffers == 0
    card.device.faults.clear()
    # channels cannot be made anew without GSP-RM
    assert [rung.name for rung in card.reset()] == [CARD_RUNG]
    works(card)
    assert card.compute is compute
    with card.alloc(64) as buffer:
        extra.fill(buffer, 4).wait()
        assert extra.download(buffer) == b"\4\0\0\0" * 16


@pytest.mark.parametrize(
    ("code", "error"), [(status.NV_ERR_INVALID_STATE, None), (status.NV_ERR_NO_MEMORY, OutOfMemory)]
)
def test_a_reset_whose_channels_are_refused_goes_on_with_the_card_unless_memory_lacks(bare, virtual_card, code, error):
    model = virtual_card("ga102")

    def watch(stage):
        if stage == "waking the bus":
            model.faults.clear()

    card = bare(model=model, watch=watch)
    kept = card.alloc(4096)
    card.copy.fill(kept, 6).wait()
    model.faults.inject("rm_status", code)
    if error is None:
        assert [bool(rung.error) for rung in card.reset()] == [True, False]
        assert kept.freed
    else:
        with pytest.raises(error):
            card.reset()
        model.faults.clear()
        card.reset()
        assert card.copy.download(kept, None, 0, 4) == b"\6\0\0\0"
    works(card)


def test_a_reset_whose_new_queues_do_not_run_can_be_tried_again(bare):
    card = bare()
    card.device.faults.inject("engine_stuck", -1)
    with pytest.raises(DeviceTimeout, match="making queues"):
        card.reset(CARD_RUNG)
    # the memory of those queues is gone
    assert "making queues" in str(card.report())
    card.device.faults.clear()
    card.reset()
    works(card)


def test_the_first_cause_stays_when_a_card_is_closed_after_a_failed_reset(bare):
    card = bare()
    card.device.faults.inject("gsp_no_start", -1)
    with pytest.raises(DeviceTimeout):
        card.reset(CARD_RUNG)
    card.device.faults.clear()
    card.close()
    works(bare(model=card.device))


def test_an_invalidation_that_never_ends_is_bounded(bare):
    card = bare()
    card.device.faults.inject("invalidate_stuck", 1)
    with pytest.raises(DeviceTimeout, match=r"invalidating the translations .* for 2000 ms"):
        card.alloc(4096)
    card.reset(CARD_RUNG)
    works(card)


def test_waits_end_without_interrupts(bare):
    card = bare()
    card.device.faults.inject("lost_interrupt")
    works(card)


@pytest.mark.parametrize("chip", ["ga102", "gh100"])
def test_a_lost_card_fails_its_work_and_can_be_closed(bare, chip):
    card = bare(chip)
    buffer = card.alloc(4096)
    card.device.unplug()
    with pytest.raises(DeviceLost):
        card.copy.fill(buffer, 1).wait(1)
    with pytest.raises(DeviceLost):
        card.reset()
    assert card.report().unreachable == "the card is gone"
    card.close()
    assert card.report().unreachable == "the card was closed"


@pytest.mark.parametrize(("chip", "memory"), [("ga102", True), ("ga102", False), ("gh100", True), ("gb202", False)])
def test_a_card_of_a_killed_process_starts(bare, chip, memory):
    first = bare(chip)
    model, buffer = first.device, first.alloc(4096)
    first.copy.fill(buffer, 1)
    model.kill_holder(memory=memory)

    def watch(stage):
        # until now, what the dead process has started accesses its freed memory
        if stage == "preparing memory":
            model.violations.clear()

    second = bare(chip, model=model, watch=watch)
    assert second.info.found.startswith("running")
    with second.alloc(4096) as cell:
        second.copy.fill(cell, 9).wait()
        assert second.copy.download(cell, None, 0, 4) == b"\x09\0\0\0"
    # the dead process does nothing any more
    first._closed = True


@pytest.mark.parametrize("fault", ["rm_status", "gsp_silent"])
def test_a_start_that_fails_names_its_stage_and_leaves_a_card_that_starts(bare, virtual_card, fault):
    model = virtual_card("ga102")

    def watch(stage):
        if stage == "opening the memory":
            model.faults.inject(fault, 0x22 if fault == "rm_status" else -1)

    with pytest.raises(RingupError, match=r"^virtual:ga102: (opening the memory|making objects of GSP-RM): "):
        bare(model=model, watch=watch)
    assert not model.config.read(COMMAND, 2) & MASTER
    model.faults.clear()
    works(bare(model=model))


def test_a_gsp_rm_that_never_gets_ready_is_not_asked_to_unload(bare, virtual_card):
    """It would take the call when it is not set up yet, which the model reports as a mistake."""
    model = virtual_card("ga102")

    def watch(stage):
        if stage == "starting GSP-RM":
            # what it is told of the system is lost
            model.faults.inject("gsp_silent", 1)

    with pytest.raises(DeviceTimeout, match="waiting for GSP_INIT_DONE"):
        bare(model=model, watch=watch)
    assert not model.config.read(COMMAND, 2) & MASTER
    works(bare(model=model))


@pytest.mark.parametrize("chip", ["tu102", "ga102"])
def test_an_interrupt_while_the_booter_runs_leaves_no_gsp_rm(bare, virtual_card, monkeypatch, chip):
    """SEC2 would start GSP-RM while it is taken down."""
    model, wait = virtual_card(chip), Falcon.wait_halted

    def interrupt(falcon, doing, timeout_us):
        if "booter_load" in doing:
            raise KeyboardInterrupt
        return wait(falcon, doing, timeout_us)

    monkeypatch.setattr(Falcon, "wait_halted", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bare(model=model)
    monkeypatch.undo()
    assert not model.config.read(COMMAND, 2) & MASTER
    assert bare(model=model).info.found.startswith("cold")


@pytest.fixture
def interrupted(monkeypatch):
    """`interrupted(n)` lets the nth access to registers from now on be interrupted, as by Ctrl-C."""
    left = [-1]

    def watch(name):
        access = getattr(Registers, name)

        def watched(self, *args):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return access(self, *args)

        monkeypatch.setattr(Registers, name, watched)

    for name in ("read", "write", "write_run"):
        watch(name)

    def interrupt_at(count):
        left[0] = count

    return interrupt_at


def test_an_interrupt_anywhere_leaves_a_card_that_is_used_and_closed(bare, interrupted, sample):
    card = bare()

    def use():
        buffer = card.alloc(100)
        try:
            card.copy.upload(buffer, b"q" * 100).wait()
            assert card.copy.download(buffer) == b"q" * 100
        finally:
            # a copy whose wait was interrupted may still run
            card.copy.idle()
            buffer.free()
        card.new_copy_queue(1).close()

    use()
    for count in sample(range(1, 90), few=4):
        interrupted(count)
        with pytest.raises(KeyboardInterrupt):
            use()
        use()


def test_an_interrupted_close_ends_all_the_same(bare, interrupted):
    card = bare()
    # while GSP-RM is asked to take the first queue off
    interrupted(1)
    with pytest.raises(KeyboardInterrupt):
        card.close()
    assert not card.device.config.read(COMMAND, 2) & MASTER
    card.close()
    works(bare(model=card.device))


@pytest.mark.parametrize("chip", ["ga102", "gh100"])
def test_an_interrupt_while_gsp_rm_ends_does_not_free_its_memory_before(bare, monkeypatch, chip):
    card, call = bare(chip), Rpc._answer

    def interrupt(rpc, function, *args):
        if function == NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER:
            raise KeyboardInterrupt
        return call(rpc, function, *args)

    monkeypatch.setattr(Rpc, "_answer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        card.close()
    monkeypatch.undo()
    assert bare(chip, model=card.device).info.found.startswith("cold")


def test_another_reset_is_refused(bare):
    with pytest.raises(ValueError, match="it has channel, card"):
        bare().reset("mode1")
