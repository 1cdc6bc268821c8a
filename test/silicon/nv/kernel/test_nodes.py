"""The nodes of NVIDIA's kernel driver: what a process does from its first open to its end."""

import csv
import mmap
import os
import struct
from pathlib import Path

import pytest
from nvidia_process.process import (
    COPY_CLASS,
    EXTERNAL,
    FAULTING,
    GRAPHICS,
    MIB,
    PCI,
    Client,
    Copier,
    Uvm,
    address,
    copier,
    doorbell,
)

from ringup.autogen.nv import classes, rm, rm_alloc, uvm
from ringup.autogen.nv import rm_ctrl_0000 as client_controls
from ringup.autogen.nv import rm_ctrl_0000_system as system_controls
from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_channel as channels
from ringup.autogen.structs import memory
from ringup.errors import NotSupported
from ringup.silicon import nvidia_kernel
from ringup.silicon.nv.kernel import escapes
from ringup.silicon.nv.kernel import uvm as uvm_driver

CALLS = Path(__file__).parents[3] / "data/nv-rm/libcuda_calls.txt"
# what libcuda asks and this driver refuses: unknown shapes, and RESET_CHANNEL, whose purpose there is unknown
REFUSED = {"20808162", "20810108", "809909", "906f0102", "801909", "20803801"}
# `out[thread] = thread`, the address of `out` at byte 0 of bank 0: Mesa 25.2.7's NAK, sm_86
PROGRAM = (
    0x000E0400000021000000000000007919,
    0x001FC800000010FF0000000000027A11,
    0x000FCA00000F14FF0000010000037A11,
    0x0001C4000010E9000000000002007386,
    0x001FC20003800000000000000000794D,
)
NONSTALL, DATALESS, HOST_EVENT = 0x08000000, 0x10000000, 35


@pytest.mark.parametrize(
    ("chip", "release", "sm", "device"),
    [("tu102", "535.261.03", 0x705, 0x1E37), ("ga102", "555.58.02", 0x806, 0x2236), ("ad102", "550.163.01", 0x809, 0x26B9),
     ("ga102", "575.64.05", 0x806, 0x2236), ("gh100", "535.261.03", 0x900, 0x2331)],
)  # fmt: skip
def test_a_process_copies_through_either_kind_of_address_space(machine, chip, release, sm, device):
    system = machine(chip, release)
    client = Client(system)
    cards = bytearray(72 * 4)
    system.ioctl(client.control_node, 3 << 30 | len(cards) << 16 | 0x46 << 8 | rm.NV_ESC_CARD_INFO, cards)
    card = rm.nv_ioctl_card_info_t.at(release).view(cards)
    assert (card.valid, card.pci_info.device_id, cards[72]) == (1, device, 0)
    facts = client.make(gr.NV2080_CTRL_GR_GET_INFO_V2_PARAMS, grInfoListSize=1)
    facts.grInfoList[0].index = gr.NV2080_CTRL_GR_INFO_INDEX_SM_VERSION
    client.control(client.subdevice, gr.NV2080_CTRL_CMD_GR_GET_INFO_V2, facts)
    assert facts.grInfoList[0].data == sm
    # the resource manager's own address space
    channel, virtual = copier(client)
    video, ours = client.memory(MIB), client.memory(MIB, PCI)
    in_video, in_system = client.map(video, MIB)[0], client.map(ours, MIB, system=True)[0]
    data = os.urandom(MIB)
    in_system.write(0, data)
    channel.copy(client.map_dma(virtual, ours, MIB), client.map_dma(virtual, video, MIB), MIB)
    assert in_video.read(0, MIB) == data
    # one that UVM keeps
    space, keeper = client.space(EXTERNAL | FAULTING), Uvm(client)
    keeper.take(space)
    handle = client.memory(Copier.BYTES, PCI)
    keeper.range(0x2000000, Copier.BYTES)
    keeper.map(0x2000000, Copier.BYTES, handle)
    other = Copier(client, handle, client.map(handle, Copier.BYTES, system=True)[0], 0x2000000, space=space)
    keeper.channel(other.handle)
    other.start(channel.doorbell)
    keeper.range(0x4000000, 2 * MIB)
    keeper.map(0x4000000, MIB, ours)
    keeper.map(0x4100000, MIB, video)
    in_video.write(0, bytes(MIB))
    other.copy(0x4000000, 0x4100000, MIB)
    assert in_video.read(0, MIB) == data
    assert not system.manager.unmodelled
    assert not system.card.violations


def test_everything_is_given_back_at_the_end(machine):
    system = machine()
    before, window = system.half.heap.free_bytes, system.window.free_bytes
    client = Client(system)
    channel, virtual = copier(client)
    space, keeper = client.space(EXTERNAL), Uvm(client)
    keeper.take(space)
    handle = client.memory(3 * MIB)
    client.map(handle, 3 * MIB)
    keeper.range(0x4000000, 4 * MIB)
    keeper.map(0x4000000, 3 * MIB, handle)
    client.map_dma(virtual, handle, 2 * MIB)
    # dies in the middle of a submission: the doorbell rings and nobody waits
    channel.submit(*channel.wait())
    system.sleep_us(50)
    assert system.card.witness.unfinished()
    for node in sorted(system.files, reverse=True):
        system.close(node)
    assert system.half.heap.free_bytes == before
    assert system.window.free_bytes == window
    assert not system.owners
    assert not system.mappings
    assert not system.card.witness.unfinished()
    # the next process finds a card that works
    Client(system)
    again, _ = copier(Client(system))
    again.submit(*again.release(5))
    system.sleep_us(50)
    assert again.semaphore == 5


def test_a_registered_file_keeps_the_clients_of_its_control_node(machine):
    system = machine()
    client = Client(system)
    system.close(client.control_node)
    assert client.root in system.owners
    system.close(client.card_node)
    assert client.root not in system.owners


def test_interrupts_and_errors_reach_the_files_that_listen(client):
    system = client.system
    channel, _ = copier(client)
    quiet, loud = system.open("/dev/nvidia0"), system.open("/dev/nvidia0")
    client.events(quiet)
    client.events(loud)
    client.listen(client.subdevice, HOST_EVENT | NONSTALL | DATALESS, quiet)
    heard = client.listen(channel.handle, 0, loud)
    assert system.poll([quiet, loud], 1) == []
    channel.submit(*channel.release(1, interrupt=True))
    ((node, _),) = system.poll([quiet, loud], 1)
    assert (node, channel.semaphore) == (quiet, 1)
    assert system.poll([quiet], 0) == []
    channel.submit(*channel.method(0x400, 0, 0, subchannel=3))
    ((node, _),) = system.poll([quiet, loud], 1)
    assert node == loud
    (source, index, code, _), more = client.event(loud)
    assert (source, index, code, more) == (heard, 0, 32, False)
    assert system.events.xids[-1][0] == 32


def test_a_group_s_slice_is_set_and_told(client):
    params = client.make(rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, engineType=9)
    group = client.alloc(client.device, classes.KEPLER_CHANNEL_GROUP_A, params)
    channel, _ = copier(client, parent=group)
    slice_of = client.make(channels.NVA06C_CTRL_GET_TIMESLICE_PARAMS)
    assert client.control(group, channels.NVA06C_CTRL_CMD_GET_TIMESLICE, slice_of).timesliceUs == 1024
    wanted = client.make(channels.NVA06C_CTRL_SET_TIMESLICE_PARAMS, timesliceUs=5000)
    client.control(group, channels.NVA06C_CTRL_CMD_SET_TIMESLICE, wanted)
    (made,) = client.system.manager.numbers
    assert made.slice.length_us == 5000
    channel.submit(*channel.release(1))
    client.system.sleep_us(50)
    assert channel.semaphore == 1


def test_a_group_s_channel_launches_a_program(client):
    """As a CUDA context is made: UVM's address space, a group with a context share, a compute object."""
    space, keeper = client.space(EXTERNAL | FAULTING), Uvm(client)
    keeper.take(space)
    handle = client.memory(Copier.BYTES, PCI)
    keeper.range(0x2000000, Copier.BYTES)
    keeper.map(0x2000000, Copier.BYTES, handle)
    region = client.map(handle, Copier.BYTES, system=True)[0]
    group = client.alloc(
        client.device,
        classes.KEPLER_CHANNEL_GROUP_A,
        client.make(rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, engineType=GRAPHICS, hVASpace=space),
    )
    share = client.alloc(
        group,
        classes.FERMI_CONTEXT_SHARE_A,
        client.make(rm_alloc.NV_CTXSHARE_ALLOCATION_PARAMETERS, hVASpace=space, flags=1),
    )
    made = Copier(client, handle, region, 0x2000000, parent=group, engine=GRAPHICS, number=0xC7C0, share=share)
    keeper.channel(made.handle)
    made.start(doorbell(client))
    program, constants, out, semaphore = (0x2009000 + 0x1000 * number for number in range(4))
    region.write(0x9000, b"".join(word.to_bytes(16, "little") for word in PROGRAM))
    region.write(0xA000, struct.pack("<Q", out))
    fields = {580: 3, 384: 1, 416: 1, 448: 1, 592: 64, 608: 1, 624: 1, 648: 19, 1536: program, 640: 1, 1024: constants,
              1075: 16, 823: 1, 830: 1, 768: semaphore, 832: 5}  # fmt: skip
    descriptor = sum(number << bit for bit, number in fields.items()).to_bytes(256, "little")
    words = made.method(0x318, 0, 0x200D000 >> 8, subchannel=1)
    for at in range(0, 64, 32):
        part = struct.unpack("<32I", descriptor[4 * at : 4 * at + 128])
        words += made.method(0x320 + 4 * at, *part, subchannel=1)
    made.submit(*words[:3])
    for at in range(3, len(words), 33):
        made.submit(*words[at : at + 33])
    client.system.sleep_us(1000)
    assert client.system.events.xids == []
    assert struct.unpack("<64I", region.read(0xB000, 256)) == tuple(range(64))
    assert region.read32(0xC000) == 5


def test_own_pages_are_memory_that_the_card_reads(client):
    channel, virtual = copier(client)
    place = mmap.mmap(-1, 8192)
    place[:6] = b"ringup"
    request = client.make(rm.nv_ioctl_nvos02_parameters_with_fd)
    asked = request.params
    asked.hRoot, asked.hObjectParent, asked.hObjectNew = client.root, client.device, 0xBEEF
    asked.hClass, asked.flags = classes.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 1 << 30 | 1 << 12 | 1 << 4
    asked.pMemory, asked.limit = address(place), len(place) - 1
    client.call(rm.NV_ESC_RM_ALLOC_MEMORY, request, client.card_node, "params.status")
    video = client.memory(4096)
    channel.copy(client.map_dma(virtual, 0xBEEF, 8192), client.map_dma(virtual, video, 4096), 4096)
    assert client.map(video, 4096)[0].read(0, 6) == b"ringup"
    client.free(0xBEEF)


def test_the_heap_control_makes_the_same_objects(client):
    request = client.make(rm.NVOS32_PARAMETERS, hRoot=client.root, hObjectParent=client.device, function=2)
    request.data.AllocSize.size, request.data.AllocSize.hMemory = 5 * MIB, 0x77
    request.data.AllocSize.flags = 0x4000
    client.call(rm.NV_ESC_RM_VID_HEAP_CONTROL, request)
    assert (request.data.AllocSize.hMemory, request.data.AllocSize.size) == (0x77, 6 * MIB)
    assert request.free + 6 * MIB <= request.total
    client.map(0x77, 6 * MIB)[0].write(0, b"x")
    facts = client.make(fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS, fbInfoListSize=1)
    facts.fbInfoList[0].index = fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE
    client.control(client.subdevice, fb.NV2080_CTRL_CMD_FB_GET_INFO_V2, facts)
    assert facts.fbInfoList[0].data == request.free >> 10


def test_ranges_of_addresses_are_reserved_and_filled(client):
    channel, _ = copier(client)
    params = client.make(rm_alloc.NV_MEMORY_ALLOCATION_PARAMS, size=4 * MIB)
    reserved = client.alloc(client.device, classes.NV50_MEMORY_VIRTUAL, params)
    source, target = client.memory(MIB), client.memory(MIB)
    fixed = 1 << 15
    first = client.map_dma(reserved, source, MIB, flags=fixed, at=MIB)
    second = client.map_dma(reserved, target, MIB, flags=fixed, at=3 * MIB)
    assert (first, second) == (params.offset + MIB, params.offset + 3 * MIB)
    client.map(source, MIB)[0].write(0, b"reserved")
    channel.copy(first, second, MIB)
    region = client.map(target, MIB)[0]
    assert region.read(0, 8) == b"reserved"
    client.unmap_dma(reserved, target, second)
    client.free(reserved)
    assert len(channel.client.system.half.spaces) == 1


def test_semaphores_of_uvm_are_seen_by_process_and_card(client):
    keeper, space = Uvm(client), client.space(EXTERNAL)
    keeper.take(space)
    params = uvm.UVM_ALLOC_SEMAPHORE_POOL_PARAMS.at(client.release)(base=0x8000000, length=0x10000)
    data = bytearray(memory(params))
    client.system.ioctl(keeper.node, uvm.UVM_ALLOC_SEMAPHORE_POOL, data)
    pool = client.system.mmap(keeper.node, 0x10000, 0x8000000)
    handle = client.memory(Copier.BYTES, PCI)
    keeper.range(0x2000000, Copier.BYTES)
    keeper.map(0x2000000, Copier.BYTES, handle)
    made = Copier(client, handle, client.map(handle, Copier.BYTES, system=True)[0], 0x2000000, space=space)
    made.start(doorbell(client))
    made.submit(*made.method(0x5C, 0x8000010, 0, 99, 0, 1, subchannel=0))
    client.system.sleep_us(50)
    assert pool.read32(0x10) == 99


def test_the_release_and_the_classes_are_told(client):
    texts = [bytearray(64) for _ in range(3)]
    params = client.make(system_controls.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS)
    command = system_controls.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION
    assert client.control(client.root, command, params).sizeOfStrings <= 64
    params.sizeOfStrings = 64
    params.pDriverVersionBuffer, params.pVersionBuffer, params.pTitleBuffer = map(address, texts)
    client.control(client.root, command, params)
    assert texts[0].split(b"\0")[0] == b"535.261.03"
    found = client.make(device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS)
    client.control(client.device, device_controls.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, found)
    numbers = list(found.classList)[: found.numClasses]
    assert {0xC461, 0xC561, 0xC56F, 0xC7C0, COPY_CLASS["ga102"]} <= set(numbers)
    ids = client.make(client_controls.NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS)
    client.control(client.root, client_controls.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, ids)
    assert (ids.gpuIds[0], ids.gpuIds[1]) == (0x100, 0xFFFFFFFF)


def test_a_version_is_checked_as_strictly_as_asked(client):
    def check(text, how):
        request = client.make(rm.nv_ioctl_rm_api_version_t, cmd=how)
        request.versionString[0 : len(text)] = text
        client.call(rm.NV_ESC_CHECK_VERSION_STR, request, status="")
        return request.reply

    assert check(b"535.261.03", rm.NV_RM_API_VERSION_CMD_STRICT) == 1
    assert check(b"535.1", rm.NV_RM_API_VERSION_CMD_RELAXED) == 1
    with pytest.raises(OSError, match="Invalid argument"):
        check(b"535.1", rm.NV_RM_API_VERSION_CMD_STRICT)


def test_what_libcuda_calls_has_an_answer(machine):
    """The calls that libcuda 535, 550 and 555 made on a stand-in, by name: each is there, or in the list of lacks."""
    system = machine()
    missing = set()
    for row in csv.DictReader(CALLS.open(), delimiter="\t"):
        number = int(row["number"] or "0", 16)
        known = {
            "control": lambda number=number: number in system.controls.rows,
            "alloc": lambda number=number: number in system.manager.rows,
            "escape": lambda name=row["name"]: escape(name) in escapes.ROWS,
            "uvm": lambda name=row["name"]: request(name),
        }[row["kind"]]()
        if not known:
            missing.add(row["number"] or row["name"])
    assert missing == REFUSED


def escape(name):
    return getattr(rm, f"NV_ESC_{name}", None) or getattr(rm, f"NV_ESC_RM_{name}")


def request(name):
    return getattr(uvm, name) in {*uvm_driver.ROWS, uvm.UVM_INITIALIZE, uvm.UVM_MM_INITIALIZE}


def test_an_unknown_release_and_node_are_refused(machine):
    with pytest.raises(NotSupported, match=r"535\.261\.03"):
        nvidia_kernel("ga102", release="470.1", vram_bytes=512 * MIB)
    with pytest.raises(FileNotFoundError):
        machine().open("/dev/nvidia7")


def test_an_escape_that_a_release_lacks_is_unknown_to_it(machine):
    """WAIT_OPEN_COMPLETE came with 550."""
    for release, known in (("535.261.03", False), ("550.163.01", True)):
        system = machine(release=release)
        node, data = system.open("/dev/nvidia0"), bytearray(8)
        request = 3 << 30 | 8 << 16 | 0x46 << 8 | rm.NV_ESC_WAIT_OPEN_COMPLETE
        if known:
            assert system.ioctl(node, request, data) == 0
            assert data == bytes(8)
        else:
            with pytest.raises(OSError, match="Invalid argument"):
                system.ioctl(node, request, data)
