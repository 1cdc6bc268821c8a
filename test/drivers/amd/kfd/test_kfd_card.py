"""A card that amdgpu drives, on a kernel made of files: what it asks of the kernel, and the errors of its refusals.

No engine runs here, so nothing is submitted: `test/guest/kfd.py` runs the card on the real amdgpu.
"""

import ctypes
import errno
import mmap
import os
import struct

import pytest
from kernels.compute_machine import GPU_ID, PROPERTIES, Compute

from ringup.autogen.amd import kfd
from ringup.drivers.amd.kfd import faults
from ringup.drivers.amd.kfd.card import identify, start
from ringup.drivers.amd.kfd.memory import KfdMemory
from ringup.drivers.amd.kfd.queues import KfdHostDataPath, KfdQueues, save_area
from ringup.drivers.poll import Poller
from ringup.drivers.transport.kfd import transport
from ringup.drivers.transport.kfd.calls import HwException, MemoryFault, Queue
from ringup.drivers.transport.kfd.device import KfdDevice
from ringup.drivers.transport.kfd.process import Process
from ringup.drivers.transport.kfd.topology import gpus
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, NoSuchCard, NotSupported, OutOfMemory, TransportError
from ringup.queues.queue import Owner

VRAM, GTT, USERPTR = 1, 2, 4  # kfd_ioctl.h, KFD_IOC_ALLOC_MEM_FLAGS_*
WRITABLE, EXECUTABLE, PUBLIC, COHERENT = 1 << 31, 1 << 30, 1 << 29, 1 << 26


@pytest.fixture
def compute(tmp_path):
    machine = Compute(tmp_path)
    machine.node(1)
    machine.card()
    # what is mapped of the nodes is the file's own bytes
    for node in ("dev/dri/renderD128", "dev/kfd"):
        (tmp_path / node).write_bytes(bytes(1 << 16))
    machine.process = Process(machine.kernel)
    yield machine
    machine.process.close()


@pytest.fixture
def device(compute):
    path = KfdDevice("kfd:0", gpus(compute.kernel)[0], compute.process)
    yield path
    path.close()


@pytest.fixture
def memory(device):
    made = KfdMemory(device, 24 << 30, large_bar=True)
    yield made
    made.close()


def flags(compute):
    """Return the flags of the last allocation."""
    return list(compute.memory.values())[-1][2]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, VRAM | WRITABLE | EXECUTABLE),
        ({"visible": True}, VRAM | WRITABLE | EXECUTABLE | PUBLIC),
        ({"where": "host"}, GTT | WRITABLE | EXECUTABLE | PUBLIC | COHERENT),
        ({"cached": False}, VRAM | WRITABLE | EXECUTABLE | COHERENT),
    ],
    ids=["vram", "visible vram", "host", "uncached vram"],
)
def test_memory_is_asked_for_with_its_kind(compute, memory, options, wanted):
    buffer = memory.alloc(5000, name="data", **options)
    more = kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
    assert flags(compute) & ~more == wanted
    assert (buffer.size_bytes, buffer.view is not None) == (5000, bool(wanted & PUBLIC))
    gpu_va, size, _ = list(compute.memory.values())[-1]
    assert (gpu_va, size) == (buffer.gpu_va, 8192)
    buffer.free()
    assert len(compute.memory) == 1  # the page of event slots


def test_the_callers_pages_are_given_by_their_address(compute, memory):
    pages = mmap.mmap(-1, 8192)
    pinned = memory.pin(memoryview(pages))
    assert flags(compute) & (VRAM | GTT | USERPTR) == USERPTR
    pinned.free()
    pages.close()


def test_memory_that_begins_inside_a_page_is_given_with_its_pages(compute, memory):
    pages = mmap.mmap(-1, 16384)
    first, second = memoryview(pages)[100:5000], memoryview(pages)[5000:6000]
    pinned = memory.pin(first, "first")
    where, size, _ = list(compute.memory.values())[-1]
    assert size == 8192
    assert (pinned.size_bytes, pinned.gpu_va) == (4900, where + 100)
    # at the CPU's own address, as far as that is free: the second one shares a page with the first
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    other = memory.pin(second, "second")
    assert where == start
    assert other.gpu_va % 4096 == 5000 % 4096
    assert other.gpu_va != start + 5000
    used = memory.va.used_bytes
    for buffer in (pinned, other):
        buffer.free()
    assert memory.va.used_bytes < used
    memory.va.reserve(start, 8192, "free again")
    memory.va.free(start)
    with pytest.raises(ValueError, match="writable, contiguous and not empty"):
        memory.pin(memoryview(bytes(100)))


# kfd_ioctl.h: KFD_IOCTL_SVM_FLAG_HOST_ACCESS, COHERENT, GPU_EXEC, GPU_ALWAYS_MAPPED
SHARED = 1 | 2 | 0x10 | 0x40


def test_memory_of_the_process_is_shared_at_its_own_address(compute, memory):
    pages = mmap.mmap(-1, 16384)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    first, second = memoryview(pages)[100:5000], memoryview(pages)[5000:6000]
    shared, other = memory.share(first, "first"), memory.share(second, "second")
    assert (shared.gpu_va, other.gpu_va) == (start + 100, start + 5000)
    assert compute.shared == [(GPU_ID, start, 8192, SHARED), (GPU_ID, start + 4096, 4096, SHARED)]
    shared.view[0] = 7
    assert pages[100] == 7
    with pytest.raises(ValueError, match=r"the card reaches this memory already: it is byte 0x0 of .*first"):
        memory.share(first)
    with pytest.raises(ValueError, match="has no file descriptor"):
        memory.export(shared)
    # the kernel is not asked to end it: it would forget to unmap the pages later
    shared.free()
    assert shared.freed
    assert len(compute.shared) == 2
    assert memory.share(first).gpu_va == start + 100


@pytest.mark.parametrize(
    ("shared", "code", "error", "words"),
    [
        (None, 0, NotSupported, "sharing 4096 bytes .data.: AMDKFD_IOC_SVM: .*built without HSA_AMD_SVM"),
        ([], errno.EINVAL, NotSupported, "shares no memory of processes with this card"),
        ([], errno.EADDRINUSE, TransportError, "a buffer of a card, or memory that is pinned, has these addresses"),
        ([], errno.EFAULT, TransportError, "not this process's own"),
        ([], errno.ENOTTY, NotSupported, r"its interface is 1\.17, it takes 1\.5, update the kernel"),
    ],
)
def test_a_kernel_that_shares_no_memory_says_why(compute, memory, shared, code, error, words):
    compute.shared = shared
    if code:
        compute.fails["svm"] = code
    pages = mmap.mmap(-1, 4096)
    before = memory.va.used_bytes
    with pytest.raises(error, match=words):
        memory.share(memoryview(pages), "data")
    assert memory.va.used_bytes == before
    assert memory.stats()["host"].buffers == 0
    # nothing holds the pages
    pages.close()


@pytest.mark.parametrize("call", ["alloc_memory_of_gpu", "map_memory_to_gpu"])
def test_memory_that_is_refused_leaves_nothing(compute, memory, call):
    free = memory.va.free_bytes
    compute.fails[call] = errno.ENOMEM
    with pytest.raises(OutOfMemory, match=r"8192 bytes of vram \(data\)"):
        memory.alloc(8192, name="data")
    assert memory.va.free_bytes == free
    assert len(compute.memory) == 1
    compute.fails.clear()
    memory.alloc(8192).free()


def test_out_of_memory_says_what_is_free(compute, memory):
    compute.fails["alloc_memory_of_gpu"] = errno.ENOMEM
    with pytest.raises(OutOfMemory, match=f"of {24 << 30} bytes of VRAM .* {20 << 30} are free"):
        memory.alloc(8192)


def test_a_small_bar_shows_no_vram(device):
    memory = KfdMemory(device, 24 << 30, large_bar=False)
    with pytest.raises(NotSupported, match="resizable BAR"):
        memory.alloc(4096, visible=True)
    memory.alloc(4096).free()


def test_a_page_is_described_by_what_lies_in_it(memory):
    buffer = memory.alloc(5000, name="weights")
    start = buffer.gpu_va
    assert memory.describe_page(start) == f"in the page from byte 0x0 of {buffer!r} on"
    assert memory.describe_page(start + 4096) == f"in the page from byte 0x1000 of {buffer!r} on"
    assert "behind the end of" in memory.describe_page(start + 8192)
    buffer.free()
    assert "'weights', which was freed" in memory.describe_page(start)


def test_memory_of_a_card_that_left_is_freed_without_its_kernel(compute, memory):
    buffer = memory.alloc(4096, "host")
    compute.fails["unmap_memory_from_gpu"] = errno.ENODEV
    buffer.free()
    assert buffer.freed
    compute.fails.clear()


def test_a_card_that_its_driver_has_given_up_is_lost_though_it_is_listed(compute):
    """As Linux 6.12 does while a process uses it: the topology keeps the node, and calls fail with EINVAL."""
    node = gpus(compute.kernel)[0]
    link = node.function.path / "driver"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("../../drivers/amdgpu")
    device = KfdDevice("kfd:0", node, compute.process)
    memory = KfdMemory(device, 24 << 30, large_bar=True)
    compute.fails["alloc_memory_of_gpu"] = errno.EINVAL
    with pytest.raises(TransportError, match="does not take these values"):
        memory.alloc(4096)
    assert not device.lost
    link.unlink()
    with pytest.raises(DeviceLost, match=r"4096 bytes of vram .*: kfd:0 is gone: amdgpu no longer drives it"):
        memory.alloc(4096)
    assert device.lost
    compute.fails.clear()
    memory.close()
    device.close()


def test_a_card_that_leaves_amdgpu_stops_the_others_where_the_kernel_says_so(compute, both, monkeypatch):
    """As Linux 6.12 does: it takes all queues off all cards, and refuses /dev/kfd to all processes."""
    nodes = gpus(compute.kernel)
    for node in nodes:
        node.function.path.mkdir(parents=True, exist_ok=True)
        (node.function.path / "driver").symlink_to("../../drivers/amdgpu")
    compute.node(3, PROPERTIES | {"drm_render_minor": 130, "location_id": 0x500}, gpu_id=6)
    (compute.root / "dev/dri/renderD130").write_bytes(bytes(1 << 16))
    device = KfdDevice("kfd:2", gpus(compute.kernel)[2], compute.process)
    device.check("waiting")
    (nodes[0].function.path / "driver").unlink()
    # newer kernels may let the others run
    device.check("waiting")
    open_ = os.open

    def refuse(path, flags, *rest, **more):
        if str(path).endswith("/dev/kfd"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return open_(path, flags, *rest, **more)

    monkeypatch.setattr("ringup.drivers.transport.kfd.process.os.open", refuse)
    with pytest.raises(
        DeviceHung,
        match=r"waiting: no queue runs on kfd:2 any more: amdgpu was taken from the card at 0000:03:00\.0.*"
        "`modprobe -r amdgpu` and `modprobe amdgpu`",
    ):
        device.check("waiting")
    assert device.stopped
    device.close()
    with pytest.raises(DeviceHung, match=r"opening kfd:2: amdgpu was taken from the card at 0000:03:00\.0"):
        KfdDevice("kfd:2", gpus(compute.kernel)[2], compute.process)
    with pytest.raises(TransportError, match=r"opening /dev/kfd: .*about to sleep, or a card was taken from amdgpu"):
        KfdDevice("kfd:2", gpus(compute.kernel)[2], Process(compute.kernel))


# cwsr_size and ctl_stack_size as Linux 6.12 tells them of a navi31 with 96 units; the rest: kfd_queue.c,
# debug_memory_size = 96 * 32 * 32
def test_the_area_of_saved_waves_is_that_of_the_kernel(compute):
    node = gpus(compute.kernel)[0]
    assert save_area(node) == (40960, 46047232, 46047232 + 98304)
    # 38 units and 4 engines on each of 8 dies; kfd_queue.c: 512 waves of an engine at most, 40 of a unit
    compute.node(1, MI300X)
    stack, registers = 40 + 1520 * 8 + 8, 38 * (0x80000 + 0x4000 + 0x10000 + 0x1000)
    waves = -(-stack // 4096) * 4096 + registers
    assert save_area(gpus(compute.kernel)[0]) == (12288, waves, -(-8 * (waves + 1520 * 32) // 4096) * 4096)
    compute.node(1, PROPERTIES | {"cwsr_size": 8 << 20, "ctl_stack_size": 8192})
    assert save_area(gpus(compute.kernel)[0])[:2] == (8192, 8 << 20)


# of the topology of Linux 6.12 with a virtual MI300X
MI300X = PROPERTIES | {
    "simd_count": 1216, "simd_per_cu": 4, "array_count": 32, "simd_arrays_per_engine": 1, "cu_per_simd_array": 10,
    "num_xcc": 8, "max_waves_per_simd": 8, "gfx_target_version": 90402, "wave_front_size": 64, "device_id": 0x74A1,
}  # fmt: skip
OTHER_ID = 5


@pytest.fixture
def both(compute):
    """Memory on two cards of the process."""
    compute.node(2, PROPERTIES | {"drm_render_minor": 129, "location_id": 0x400}, gpu_id=OTHER_ID)
    (compute.root / "dev/dri/renderD129").write_bytes(bytes(1 << 16))
    devices = [KfdDevice(f"kfd:{n}", node, compute.process) for n, node in enumerate(gpus(compute.kernel))]
    memories = [KfdMemory(one, 24 << 30, large_bar=True) for one in devices]
    yield memories
    for one in (*memories, *devices):
        one.close()


def test_cards_of_a_process_never_share_an_address_by_chance(both):
    taken = [memory.alloc(4096) for memory in both for _ in range(5)]
    assert len({buffer.gpu_va for buffer in taken}) == 10


def test_memory_is_mapped_for_another_card_at_its_address_and_ends_with_it(compute, both):
    first, second = both
    near = first.alloc(4096, "host", name="near")
    here = second.reach(first, near, "theirs")
    handle = near.gpu_va == here.gpu_va and list(compute.memory)[-1]
    assert {gpu for one, gpu in compute.mapped if one == handle} == {GPU_ID, OTHER_ID}
    here.free()
    assert {gpu for one, gpu in compute.mapped if one == handle} == {GPU_ID}
    again = second.reach(first, near, "theirs")
    near.free()  # the kernel of files refuses to free what is mapped
    assert again.freed
    assert handle not in compute.memory
    far = first.alloc(4096)
    with pytest.raises(NotSupported, match=r"kfd:1: mapping theirs: the kernel says: Invalid.*HSA_AMD_P2P"):
        second.reach(first, far, "theirs")
    compute.peers = True
    here = second.reach(first, far, "theirs")
    with pytest.raises(NotSupported, match="no address that is free"):
        first.reach(second, here, "back")
    first.close()
    assert here.freed
    near = second.alloc(4096, "host")
    compute.fails["map_memory_to_gpu"] = errno.ENODEV
    with pytest.raises(DeviceLost):
        first.reach(second, near, "gone")


def test_words_of_a_card_stay_for_the_one_that_waits_for_them(compute, both):
    """An engine may poll a page after its owner has freed it: the page is the other card's then."""
    first, second = both
    page = first.alloc(4096, "host", name="words")
    handle, where = list(compute.memory)[-1], page.gpu_va
    here = second.reach(first, page, "words of kfd:0", outlives=True)
    first.close()
    assert page.freed
    assert (here.freed, here.gpu_va) == (False, where)
    assert {gpu for one, gpu in compute.mapped if one == handle} == {OTHER_ID}
    with pytest.raises(ValueError, match="is not wholly free"):
        second.va.reserve(where, 4096, "another")
    here.free()
    assert handle not in compute.memory
    second.va.reserve(where, 4096, "another")
    second.va.free(where)
    # what does not outlive is freed with its owner
    far = second.alloc(4096, "host")
    mapped = first.reach(second, far, "far")
    far.free()
    assert mapped.freed


def test_memory_goes_to_another_process_and_comes_from_one(compute, memory):
    buffer = memory.alloc(8192, name="shared")
    node = memory.export(buffer)
    taken = memory.import_memory(node, "taken")
    assert (taken.size_bytes, taken.where) == (8192, "vram")
    assert taken.gpu_va != buffer.gpu_va
    taken.free()
    buffer.free()
    os.close(node)
    before = memory.va.used_bytes
    for wrong, error in ((node, TransportError), (-1, ValueError), (None, ValueError)):
        with pytest.raises(error):
            memory.import_memory(wrong, "bad")
    compute.fails["map_memory_to_gpu"] = errno.ENOMEM
    node = os.memfd_create("dmabuf")
    compute.exported[node] = (0, 4096, VRAM)
    with pytest.raises(OutOfMemory):
        memory.import_memory(node, "refused")
    os.close(node)
    assert memory.va.used_bytes == before
    assert len(compute.memory) == 1


def test_a_queue_of_hsa_is_asked_for_with_its_object(compute, device, memory):
    """The firmware finds the object by the queue's pointers, and signals interrupt through the process's event."""
    gc, sdma = (11, 0, 0), (6, 0, 0)
    poller = Poller(device, lambda last: None, lambda looked: False, lambda error: None)
    queues = KfdQueues(device, memory, gc, sdma, poller, Owner("kfd:0"))
    queue = queues.aql()
    (kind, ring_bytes), page = compute.queues[queue.hardware.created.number], queue.memory.page
    assert (kind, ring_bytes) == (kfd.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL, 64 << 10)
    # amd_hsa_queue.h: write_dispatch_id at 56, read_dispatch_id at 128, max_cu_id at 72
    object_va = compute.asked["write_pointer_address"] - 56
    assert compute.asked["read_pointer_address"] == object_va + 128
    seen = bytes(page.view[object_va - page.gpu_va :][:256])
    assert struct.unpack_from("<II", seen, 72) == (95, 31)
    assert struct.unpack_from("<QQI", seen, 8)[:1] == (queue.memory.ring.gpu_va,)
    # amd_hsa_signal.h: value at 8, event_mailbox_ptr at 16, event_id at 24
    signal = queues.hsa_signal(-3, None, "")
    raw = bytes(memory.find(signal.gpu_va).view)[signal.gpu_va % 4096 :][:32]
    slot = device.interrupts.slot_va, device.interrupts.signal
    assert struct.unpack_from("<qQI", raw, 8) == (-3, *slot)
    queues.close(patient=False)
    assert compute.queues == {}


def test_dies_of_a_core_share_a_queue_of_hsa_and_count_anew_when_it_is_mapped_again(compute, device):
    """One descriptor for all dies, memory for the waves of each, and cleared memory in which they meet."""
    compute.node(1, MI300X)
    (compute.root / "dev/dri/renderD128").write_bytes(bytes(1 << 16))
    device.node = gpus(compute.kernel)[0]
    memory = KfdMemory(device, 24 << 30, large_bar=False)
    poller = Poller(device, lambda last: None, lambda looked: False, lambda error: None)
    queues = KfdQueues(device, memory, (9, 4, 3), (4, 4, 2), poller, Owner("kfd:0"))
    queue = queues.aql()
    meeting = queue.memory.meeting()
    where = [handle for handle, (gpu_va, _, _) in compute.memory.items() if gpu_va == meeting.gpu_va]
    assert compute.memory[where[0]][2] & (VRAM | PUBLIC) == VRAM
    assert queues._core.dies == 8
    (saved,) = [size for gpu_va, size, _ in compute.memory.values() if size > 100 << 20]
    assert saved == save_area(device.node).whole
    queue.hardware.reset()
    queues.map_again(queue, DeviceHung("reset"))
    again = [handle for handle, (gpu_va, _, _) in compute.memory.items() if gpu_va == meeting.gpu_va]
    assert (len(again), again == where) == (1, False)
    assert {gpu for handle, gpu in compute.mapped if handle == again[0]} == {GPU_ID}
    # a queue for PM4 is one die's
    queues.compute()
    assert [kind for kind, _ in compute.queues.values()] == [Queue.AQL, Queue.PM4]
    queues.close(patient=False)
    memory.close()
    assert len(compute.memory) == 1


def test_doorbells_that_run_out_leave_nothing_and_come_back_with_a_closed_queue(compute, device, memory):
    poller = Poller(device, lambda last: None, lambda looked: False, lambda error: None)
    queues = KfdQueues(device, memory, (11, 0, 0), (6, 0, 0), poller, Owner("kfd:0"))
    compute.doorbells = 3
    made = [queues.compute(), queues.aql(), queues.copy(1)]
    before, used = dict(compute.memory), memory.va.used_bytes
    for make in (queues.compute, queues.aql, lambda: queues.copy(0)):
        with pytest.raises(OutOfMemory, match="the doorbells of this process are used up: close a queue"):
            make()
    assert compute.memory == before
    assert memory.va.used_bytes == used
    assert len(queues.queues) == 3
    made[2].close()
    queues.copy(0)
    queues.close(patient=False)
    assert compute.queues == {}


@pytest.mark.parametrize(("version", "kind"), [((1, 17), Queue.SDMA_OF_ENGINE), ((1, 16), Queue.SDMA)])
def test_a_kernel_too_old_to_be_told_an_engine_chooses_it(compute, device, memory, version, kind):
    device.calls._version = version
    poller = Poller(device, lambda last: None, lambda looked: False, lambda error: None)
    queues = KfdQueues(device, memory, (11, 0, 0), (6, 0, 0), poller, Owner("kfd:0"))
    queues.copy(1)
    assert [asked for asked, _ in compute.queues.values()] == [kind]
    queues.close(patient=False)


@pytest.mark.parametrize(("target", "chip"), [(110000, "navi31"), (110002, "navi33"), (110001, "navi32")])
def test_chips_are_known_by_their_target(compute, target, chip):
    compute.node(1, PROPERTIES | {"gfx_target_version": target})
    assert identify(gpus(compute.kernel)[0])[0].name == chip


def test_an_unknown_chip_and_an_old_kernel_are_refused(compute):
    compute.node(1, PROPERTIES | {"gfx_target_version": 90010})
    with pytest.raises(NotSupported, match=r"the card is a gfx90a; ringup drives .*navi31 \(gfx1100\)"):
        identify(gpus(compute.kernel)[0])
    compute.node(1, PROPERTIES | {"gfx_target_version": 90500})
    with pytest.raises(NotSupported, match=r"queues of gfx950 through amdkfd"):
        save_area(gpus(compute.kernel)[0])
    compute.node(1)
    (compute.root / "sys/bus/pci/devices/0000:03:00.0/ip_discovery/die/0/GC/0/major").unlink()
    with pytest.raises(NotSupported, match=r"it takes Linux 5\.18"):
        identify(gpus(compute.kernel)[0])


@pytest.mark.parametrize("call", ["create_queue", "alloc_memory_of_gpu"])
def test_a_start_that_fails_gives_everything_back(compute, device, call):
    compute.fails[call] = errno.ENOMEM
    with pytest.raises(OutOfMemory, match="kfd:0: creating queues: kfd:0: "):
        start(device)
    assert (compute.queues, compute.events) == ({}, {})
    assert len(compute.memory) == 1


def test_firmware_of_ones_own_is_refused(device, tmp_path):
    with pytest.raises(NotSupported, match="amdgpu has loaded the system's already"):
        start(device, firmware=tmp_path)


def test_names_of_cards_that_are_not_there(compute):
    with pytest.raises(NoSuchCard, match="has no such GPU; it has kfd:0"):
        transport.open("1", process=compute.process)
    for rest in ("x", "-1", "0x0", "99999"):
        with pytest.raises(NoSuchCard, match="names no card: a number follows"):
            transport.open(rest, process=compute.process)


def test_a_card_is_listed_with_the_reason_why_it_cannot_be_opened(compute):
    (found,) = transport.find(compute.kernel)
    assert (found.name, found.skipped) == ("kfd:0", "")
    assert found.description == "AMD 1002:744c gfx1100, 24576 MiB, at 0000:03:00.0, driven by amdgpu"
    compute.node(1, PROPERTIES | {"device_id": 0x73BF, "gfx_target_version": 100300})
    (found,) = transport.find(compute.kernel)
    assert found.skipped.startswith("seen, not supported: there is no driver for Navi 21")
    compute.node(1)
    (compute.root / "dev/kfd").unlink()
    (found,) = transport.find(compute.kernel)
    assert found.skipped.startswith("/dev/kfd is not there: load the kernel's amdgpu")


def fault(**more):
    seen = {"gpu_id": GPU_ID, "gpu_va": 0x7000, "not_present": True, "read_only": False, "no_execute": False}
    return MemoryFault(**seen | {"imprecise": False, "error_type": 0} | more)


@pytest.mark.parametrize(
    ("event", "error", "words"),
    [
        (fault(), DeviceFault, "page fault at 0x7000 (no page is mapped there): there; amdgpu runs no queue"),
        (fault(not_present=False, read_only=True), DeviceFault, "page fault at 0x7000 (a write): there"),
        (fault(not_present=False), DeviceFault, "page fault at 0x7000: there"),
        (fault(error_type=1), DeviceHung, "memory inside the card was damaged (ECC)"),
        (fault(error_type=9), DeviceHung, "memory error 9"),
        (HwException(GPU_ID, 0, 0, True), DeviceHung, "amdgpu reset the card, since it hung; its memory is lost"),
        (HwException(GPU_ID, 1, 1, False), DeviceHung, "amdgpu reset an engine of the card, since its memory was"),
        (HwException(GPU_ID, 7, 7, False), DeviceHung, "amdgpu reset the card, since cause 7"),
    ],
)
def test_faults_and_resets_become_errors(event, error, words):
    made = faults.error_of("kfd:0", event, lambda page: "there")
    assert type(made) is error
    assert words in str(made)
    assert "start the work again in a new process" in str(made)


def test_the_host_data_path_is_flushed_only_for_vram_that_the_cpu_sees(compute, device, memory):
    path = KfdHostDataPath(device, memory)
    memory.alloc(4096, "host")
    path.flush()
    assert path.flushes == 0
    assert compute.log.count("alloc_memory_of_gpu") == 2
    seen = memory.alloc(4096, visible=True)
    for _ in range(3):
        path.flush()
    assert path.flushes == 3
    assert flags(compute) == kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP
    assert compute.log.count("alloc_memory_of_gpu") == 4  # the event page, two buffers, one page of registers
    seen.free()
    path.flush()
    assert path.flushes == 3
    path.close()
    path.close()
    assert kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP not in [asked for _, _, asked in compute.memory.values()]
