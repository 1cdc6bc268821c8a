"""Calls of /dev/kfd: their numbers and sizes, and what each refusal means and advises."""

import errno
import os

import pytest

from ringup.drivers.transport.kfd import process as kfd_process
from ringup.drivers.transport.kfd.calls import Calls, Event, HwException, MemoryFault, Queue, QueueSpec
from ringup.drivers.transport.kfd.device import KfdDevice
from ringup.drivers.transport.kfd.topology import gpus
from ringup.errors import (
    CardBusy,
    DeviceHung,
    DeviceLost,
    NoSuchCard,
    NotSupported,
    OutOfMemory,
    PermissionNeeded,
    TransportError,
)

SPEC = QueueSpec(kind=Queue.PM4, ring_va=0x10000, ring_bytes=4096, rptr_va=0x20000, wptr_va=0x20040)
GPU_ID = 44027


@pytest.fixture
def calls(compute):
    node = os.open(compute.root / "dev/kfd", os.O_RDWR)
    yield Calls(compute.kernel, node, "kfd:0")
    os.close(node)


def device(compute):
    return KfdDevice("kfd:0", gpus(compute.kernel)[0], compute.process)


def test_every_call_has_the_number_and_size_of_the_header(compute, calls):
    """The kernel of files checks each."""
    assert calls.version == (1, 17)
    assert calls.apertures()[GPU_ID].gpuvm_limit == (1 << 47) - 1
    assert calls.clocks(GPU_ID) == (1234, 5678)
    assert calls.available_bytes(GPU_ID) == 20 << 30
    calls.set_memory_policy(GPU_ID, coherent=True)
    calls.set_trap_handler(GPU_ID, 0x1000, 0x2000)
    made = calls.alloc(GPU_ID, 0x40000, 8192, 0x8000_0001)
    calls.map(made.handle, [GPU_ID])
    node = calls.export_dmabuf(made.handle)
    assert calls.dmabuf(node) == (8192, 0x8000_0001)
    calls.free(calls.import_dmabuf(GPU_ID, node, 0x80000))
    os.close(node)
    calls.unmap(made.handle, [GPU_ID])
    calls.free(made.handle)
    queue = calls.create_queue(GPU_ID, SPEC)
    calls.update_queue(queue.number, SPEC, running=False)
    calls.destroy_queue(queue.number)
    event = calls.create_event(Event.HW_EXCEPTION)
    assert not calls.wait_events({event: Event.HW_EXCEPTION}, 0).came
    calls.destroy_event(event)
    assert (compute.memory, compute.queues, compute.events) == ({}, {}, {})


@pytest.mark.parametrize(
    ("call", "code", "error", "words"),
    [
        ("alloc_memory_of_gpu", errno.ENOMEM, OutOfMemory, "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU"),
        ("alloc_memory_of_gpu", errno.EFAULT, TransportError, "not this process's own"),
        ("alloc_memory_of_gpu", errno.EINVAL, TransportError, "its interface is 1.17"),
        ("alloc_memory_of_gpu", errno.ENODEV, DeviceLost, "the card or its driver has gone"),
        ("alloc_memory_of_gpu", errno.EBADF, TransportError, "after a fork"),
        ("create_queue", errno.ENOSPC, OutOfMemory, "close one"),
        ("create_queue", errno.EBUSY, OutOfMemory, "doorbells of this process are used up"),
        ("create_queue", errno.EPERM, OutOfMemory, "the queues of all processes"),
        ("create_queue", errno.ENOMEM, OutOfMemory, "no free engine queue, doorbell page"),
        ("create_queue", errno.ESRCH, DeviceLost, "the card or its driver has gone"),
        ("create_queue", errno.EIO, DeviceLost, "the card or its driver has gone"),
        ("create_queue", errno.ENOTTY, NotSupported, "no such call: its interface is 1.17, update the kernel"),
    ],
)
def test_a_refusal_names_the_call_and_what_to_do(compute, calls, call, code, error, words):
    assert calls.version
    compute.fails[call] = code
    with pytest.raises(error) as caught:
        calls.create_queue(GPU_ID, SPEC) if call == "create_queue" else calls.alloc(GPU_ID, 0x40000, 4096, 1)
    assert type(caught.value) is error
    assert str(caught.value).startswith("kfd:0: ")
    assert f"AMDKFD_IOC_{call.upper()}: {os.strerror(code)}" in str(caught.value)
    assert words in str(caught.value)


def test_a_kernel_without_a_call_that_can_be_missed(compute, calls):
    compute.lacks.add("available_memory")
    assert calls.available_bytes(GPU_ID) is None
    # kfd_chardev.c, kfd_ioctl: older kernels answer an unknown call with EINVAL
    compute.lacks.clear()
    compute.fails["available_memory"] = errno.EINVAL
    compute.version, calls._version = (1, 8), None
    assert calls.version == (1, 8)
    assert calls.available_bytes(GPU_ID) is None


@pytest.mark.parametrize("code", [errno.ENOTTY, errno.EINVAL])
def test_a_kernel_that_is_too_old_for_a_call_is_told_with_the_version_that_has_it(compute, calls, code):
    compute.version = (1, 11)
    assert calls.version
    compute.fails["export_dmabuf"] = code
    with pytest.raises(
        NotSupported, match=r"AMDKFD_IOC_EXPORT_DMABUF: .*its interface is 1\.11, it takes 1\.12, update"
    ):
        calls.export_dmabuf(1)


def test_descriptors_that_are_no_memory_are_refused(compute, calls):
    assert calls.version
    node = os.memfd_create("no memory of a card")
    for call in (calls.dmabuf, lambda node: calls.import_dmabuf(GPU_ID, node, 0x40000)):
        with pytest.raises(TransportError, match="is of no memory of amdgpu's"):
            call(node)
    os.close(node)
    for call in (calls.dmabuf, lambda node: calls.import_dmabuf(GPU_ID, node, 0x40000)):
        with pytest.raises(TransportError, match="the file descriptor is closed"):
            call(node)


def test_another_major_version_is_refused_with_it(compute, calls):
    compute.version = (2, 0)
    with pytest.raises(NotSupported, match=r"/dev/kfd has interface 2\.0, and ringup knows 1\.x"):
        _ = calls.version


def test_a_signal_ends_a_wait_early(compute, calls):
    event = calls.create_event(Event.HW_EXCEPTION)
    compute.fails["wait_events"] = errno.EINTR
    assert not calls.wait_events({event: Event.HW_EXCEPTION}, 1000).came


def test_a_wait_for_an_event_that_another_thread_destroyed_fails(compute, calls):
    event = calls.create_event(Event.HW_EXCEPTION)
    compute.fails["wait_events"] = errno.EIO
    with pytest.raises(DeviceLost, match="AMDKFD_IOC_WAIT_EVENTS"):
        calls.wait_events({event: Event.HW_EXCEPTION}, 1000)


def fault(view):
    seen = view.memory_exception_data
    seen.gpu_id, seen.va, seen.ErrorType = GPU_ID, 0x7000, 0
    seen.failure.NotPresent = 1


def foreign(view):
    fault(view)
    view.memory_exception_data.gpu_id = 1


def reset(view):
    seen = view.hw_exception_data
    seen.gpu_id, seen.reset_cause, seen.memory_lost = GPU_ID, 1, 1


def test_faults_and_resets_are_told_apart_and_those_of_other_cards_left(compute):
    path = device(compute)
    by_kind = {kind: number for number, kind in compute.events.items()}
    compute.come = {by_kind[8]: fault, by_kind[3]: reset}
    assert path.interrupts.faults() == [
        MemoryFault(GPU_ID, 0x7000, True, False, False, False, 0),
        HwException(GPU_ID, 0, 1, True),
    ]
    assert path.interrupts.faults() == []
    compute.come = {by_kind[8]: foreign}
    assert path.interrupts.wait(1) == (0,)
    assert path.interrupts.faults() == []
    path.close()


def test_a_card_is_opened_again_in_the_same_process(compute):
    """The kernel keeps address space and event page: a second address space would be refused."""
    device(compute).close()
    again = device(compute)
    assert compute.log.count("acquire_vm") == 1
    assert len(compute.memory) == 1
    with pytest.raises(CardBusy, match=r"this process .* has it open"):
        device(compute)
    again.close()
    assert compute.events == {}


def test_a_process_whose_queues_the_kernel_stopped_is_sent_away(compute):
    path = device(compute)
    path.stop("kfd:0: page fault at 0x7000")
    path.close()
    with pytest.raises(DeviceHung, match="page fault at 0x7000; start a new process"):
        device(compute)


def test_another_library_of_the_process_has_the_address_space(compute):
    compute.fails["acquire_vm"] = errno.EBUSY
    with pytest.raises(CardBusy, match="another render node descriptor already"):
        device(compute)


def test_without_the_group_the_error_names_it(compute, monkeypatch):
    def refuse(path, flags, *rest):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("ringup.drivers.transport.linux.kernel.os.open", refuse)
    with pytest.raises(PermissionNeeded, match=r"opening kfd:0: opening /dev/kfd: .*add yourself to group"):
        kfd_process.open_node(compute.kernel, compute.root / "dev/kfd", "opening kfd:0")


def test_a_render_node_that_may_not_be_used_is_named_and_can_be_tried_again(compute, monkeypatch):
    open_, shut = os.open, [True]

    def refuse(path, flags, *rest, **more):
        if shut[0] and str(path).endswith("renderD128"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return open_(path, flags, *rest, **more)

    monkeypatch.setattr("ringup.drivers.transport.linux.kernel.os.open", refuse)
    with pytest.raises(PermissionNeeded, match=r"opening /dev/dri/renderD128: .*add yourself to group"):
        device(compute)
    assert (compute.vms, compute.events, compute.memory) == ({}, {}, {})
    shut[0] = False
    device(compute).close()


def test_without_amdgpu_the_error_says_what_to_load(compute):
    (compute.root / "dev/kfd").unlink()
    with pytest.raises(NotSupported, match="/dev/kfd is not there: load the kernel's amdgpu"):
        device(compute)


def test_a_card_that_amdkfd_no_longer_lists_for_the_process(compute):
    node = gpus(compute.kernel)[0]
    compute.get_process_apertures_new = lambda args: setattr(args, "num_of_nodes", 0)
    with pytest.raises(NoSuchCard, match="does not list GPU 44027"):
        KfdDevice("kfd:0", node, compute.process)


def test_a_card_that_is_unbound_is_lost(compute):
    path = device(compute)
    assert not path.lost
    compute.node(1, gpu_id=0)
    with pytest.raises(DeviceLost, match="waiting: kfd:0 is gone: amdgpu no longer drives it"):
        path.check("waiting")
    path.close()


def test_an_opening_that_fails_leaves_no_event_and_can_be_tried_again(compute):
    compute.fails["create_event"] = errno.ENOSPC
    with pytest.raises(OutOfMemory, match="all the events"):
        device(compute)
    assert (compute.events, compute.memory) == ({}, {})
    compute.fails.clear()
    device(compute).close()
