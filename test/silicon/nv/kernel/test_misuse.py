"""What the kernel's driver refuses, and what becomes of a channel whose memory goes away."""

import errno
import mmap

import pytest
from nvidia_process.process import EXTERNAL, MIB, PCI, Client, Copier, Refused, Uvm, address, copier

from ringup.autogen.nv import classes, rm, rm_alloc, status, uvm
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.structs import memory


def refused(code):
    return pytest.raises(Refused, match=f"{code:#x}$")


@pytest.fixture
def pair(machine):
    """Return two processes on one machine."""
    system = machine()
    return Client(system), Client(system)


def test_objects_of_another_process_are_out_of_reach(pair):
    ours, theirs = pair
    handle = theirs.memory(MIB)
    with refused(status.NV_ERR_INVALID_CLIENT):
        ours.free(handle, root=theirs.root)
    with refused(status.NV_ERR_INVALID_CLIENT):
        ours.control(
            theirs.subdevice, 0x20800110, ours.make(gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS), root=theirs.root
        )
    with refused(status.NV_ERR_INVALID_CLIENT):
        ours.alloc(theirs.device, classes.FERMI_VASPACE_A, root=theirs.root)
    with refused(status.NV_ERR_OBJECT_NOT_FOUND):
        ours.map(0xDEAD, 4096)
    request = ours.make(
        rm.NVOS55_PARAMETERS,
        hClient=ours.root,
        hParent=ours.device,
        hObject=5,
        hClientSrc=theirs.root,
        hObjectSrc=handle,
    )
    with refused(status.NV_ERR_INVALID_CLIENT):
        ours.call(rm.NV_ESC_RM_DUP_OBJECT, request)
    keeper = Uvm(ours)
    keeper.client = theirs
    with refused(status.NV_ERR_INVALID_CLIENT):
        keeper.ask(
            uvm.UVM_REGISTER_GPU_VASPACE, uvm.UVM_REGISTER_GPU_VASPACE_PARAMS, gpuUuid=keeper.uuid,
            rmCtrlFd=ours.control_node, hClient=theirs.root, hVaSpace=theirs.space(EXTERNAL),
        )  # fmt: skip
    # nothing of theirs has suffered
    assert theirs.map(handle, MIB)[0].read(0, 4) == bytes(4)


def test_memory_that_is_freed_while_it_is_mapped_faults(client):
    notes = client.memory(4096, PCI)
    written = client.map(notes, 4096, system=True)[0]
    channel, virtual = copier(client, notifier=notes)
    handle = client.memory(MIB)
    region, gpu_va = client.map(handle, MIB)[0], client.map_dma(virtual, handle, MIB)
    region.write(0, b"here")
    channel.copy(gpu_va, gpu_va + 4096, 4)
    assert region.read(4096, 4) == b"here"
    client.free(handle)
    assert region.read(0, 4) == b"\xff" * 4
    region.write(0, b"lost")
    with pytest.raises(AssertionError):
        channel.copy(gpu_va, gpu_va + 4096, 4)
    code, number, text = client.system.events.xids[-1]
    assert (code, number) == (31, 0)
    assert f"{gpu_va & 0xFFFFF000:08x}" in text
    assert int.from_bytes(written.read(8, 4), "little") == 31
    # whoever gets that memory next does not find what was there
    assert client.map(client.memory(MIB), MIB)[0].read(4096, 4) == bytes(4)


def test_memory_that_uvm_has_mapped_stays_until_it_is_unmapped(client):
    keeper, space = Uvm(client), client.space(EXTERNAL)
    keeper.take(space)
    before = client.system.half.heap.free_bytes
    handle = client.memory(2 * MIB)
    keeper.range(0x4000000, 2 * MIB)
    keeper.map(0x4000000, 2 * MIB, handle)
    client.free(handle)
    assert client.system.half.heap.free_bytes <= before - 2 * MIB
    keeper.free(0x4000000, 2 * MIB)
    # the page tables stay with the space
    assert before - client.system.half.heap.free_bytes <= 4 * 4096


def test_a_channel_that_goes_wrong_stops_alone(client):
    stuck, _ = copier(client)
    wild, _ = copier(client)
    sound, _ = copier(client)
    stuck.submit(*stuck.wait())
    # a put pointer beyond the ring
    wild.region.write32(wild.USERD + 0x8C, 64)
    wild.doorbell.write32(0x90, wild.token)
    client.system.sleep_us(5000)
    assert [code for code, _, _ in client.system.events.xids] == [32]
    assert "GP_PUT is 64" in client.system.events.xids[0][2]
    sound.submit(*sound.release(3))
    client.system.sleep_us(5000)
    assert sound.semaphore == 3
    (waits,) = client.system.card.witness.unfinished()
    assert "waits for EQUAL 0x1" in waits.text
    client.free(stuck.handle)
    assert not client.system.card.witness.unfinished()


def test_wrong_sizes_numbers_and_nodes_are_errors_of_the_call(client):
    system, magic = client.system, 3 << 30 | rm.NV_IOCTL_MAGIC << 8

    def fails(number, node, code, size, argument=None):
        with pytest.raises(OSError, match=r"\w") as error:
            system.ioctl(node, magic | size << 16 | number, bytearray(size) if argument is None else argument)
        assert error.value.errno == code

    fails(rm.NV_ESC_RM_FREE, client.control_node, errno.EINVAL, 15)
    fails(rm.NV_ESC_RM_FREE, client.card_node, errno.EINVAL, 16)
    fails(rm.NV_ESC_RM_ALLOC, client.control_node, errno.EINVAL, 40)
    fails(0x99, client.control_node, errno.EINVAL, 16)
    fails(rm.NV_ESC_RM_FREE, client.control_node, errno.EFAULT, 16, bytearray(8))
    fails(rm.NV_ESC_RM_FREE, client.control_node, errno.EFAULT, 16, 0x10)
    fails(rm.NV_ESC_RM_FREE, 999, errno.EBADF, 16)
    with pytest.raises(OSError, match="Invalid argument"):
        system.mmap(client.card_node, 4096)
    node = system.open("/dev/nvidia-uvm")
    with pytest.raises(OSError, match="Invalid argument"):
        system.ioctl(node, 0x7777, bytearray(64))


def test_pointers_into_nowhere_are_refused(client):
    request = client.make(
        rm.NVOS54_PARAMETERS,
        hClient=client.root,
        hObject=client.subdevice,
        cmd=0x20800110,
        params=0x1000,
        paramsSize=132,
    )
    with refused(status.NV_ERR_INVALID_ADDRESS):
        client.call(rm.NV_ESC_RM_CONTROL, request)
    request.params = 0
    with refused(status.NV_ERR_INVALID_ARGUMENT):
        client.call(rm.NV_ESC_RM_CONTROL, request)
    request = client.make(rm.nv_ioctl_nvos02_parameters_with_fd)
    asked = request.params
    asked.hRoot, asked.hObjectParent, asked.hObjectNew = client.root, client.device, 0xBEEF
    asked.hClass, asked.flags = classes.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 1 << 30 | 1 << 12
    hole = mmap.mmap(-1, 8192)
    asked.pMemory, asked.limit = address(hole) + 1, 4095
    with refused(status.NV_ERR_NOT_SUPPORTED):
        client.call(rm.NV_ESC_RM_ALLOC_MEMORY, request, client.card_node, "params.status")
    asked.pMemory = 0x1000
    with refused(status.NV_ERR_INVALID_ADDRESS):
        client.call(rm.NV_ESC_RM_ALLOC_MEMORY, request, client.card_node, "params.status")


def test_controls_of_the_kernel_are_not_a_process_s(client):
    with refused(status.NV_ERR_NOT_SUPPORTED):
        client.control(
            client.subdevice,
            internal.NV2080_CTRL_CMD_INTERNAL_GPU_GET_CHIP_INFO,
            client.make(internal.NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS),
        )
    with refused(status.NV_ERR_INSUFFICIENT_PERMISSIONS):
        client.control(
            client.subdevice, gpu.NV2080_CTRL_CMD_GPU_PROMOTE_CTX, client.make(gpu.NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS)
        )


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"size": 0}, status.NV_ERR_INVALID_ARGUMENT),
        ({"size": 1 << 40}, status.NV_ERR_NO_MEMORY),
        ({"size": 4096, "alignment": 3}, status.NV_ERR_INVALID_ARGUMENT),
        ({"size": 4096, "attr": PCI}, status.NV_ERR_INVALID_ARGUMENT),
    ],
)
def test_memory_that_cannot_be(client, how, code):
    params = client.make(rm_alloc.NV_MEMORY_ALLOCATION_PARAMS, **how)
    before = client.system.half.heap.free_bytes
    with refused(code):
        client.alloc(client.device, classes.NV01_MEMORY_LOCAL_USER, params)
    assert client.system.half.heap.free_bytes == before


def test_mappings_that_cannot_be(client):
    handle, ours = client.memory(MIB), client.memory(MIB, PCI)
    with refused(status.NV_ERR_INVALID_LIMIT):
        client.map(handle, MIB + 4096)
    with refused(status.NV_ERR_INVALID_ARGUMENT):
        client.map(handle, MIB, system=True)
    with refused(status.NV_ERR_INVALID_ARGUMENT):
        client.map(ours, MIB)
    virtual = client.virtual()
    with refused(status.NV_ERR_INVALID_BASE):
        client.map_dma(virtual, handle, MIB, offset=4096)
    gpu_va = client.map_dma(virtual, handle, MIB, flags=1 << 15, at=0x40000000)
    assert gpu_va == 0x40000000
    with refused(status.NV_ERR_NO_MEMORY):
        client.map_dma(virtual, ours, MIB, flags=1 << 15, at=0x40000000)
    with refused(status.NV_ERR_OBJECT_NOT_FOUND):
        client.unmap_dma(virtual, handle, 0x50000000)
    _, linear = client.map(handle, MIB)
    client.unmap(handle, linear)
    with refused(status.NV_ERR_OBJECT_NOT_FOUND):
        client.unmap(handle, linear)


def test_what_uvm_refuses(client):
    bare = Uvm(client, register=False)
    handle = client.memory(MIB)
    bare.range(0x4000000, 2 * MIB)
    with refused(status.NV_ERR_INVALID_DEVICE):
        bare.map(0x4000000, MIB, handle)
    with refused(status.NV_ERR_UVM_ADDRESS_IN_USE):
        bare.range(0x4100000, 2 * MIB)
    with refused(status.NV_ERR_INVALID_ADDRESS):
        bare.range(0x5000001, 4096)
    with refused(status.NV_ERR_INVALID_ADDRESS):
        bare.free(0x4000000, MIB)
    keeper = Uvm(client)
    with refused(status.NV_ERR_INVALID_DEVICE):
        keeper.ask(uvm.UVM_REGISTER_GPU, uvm.UVM_REGISTER_GPU_PARAMS, gpu_uuid=keeper.uuid)
    with refused(status.NV_ERR_NOT_SUPPORTED):
        keeper.take(client.space())
    space = client.space(EXTERNAL)
    keeper.take(space)
    other = Uvm(client)
    with refused(status.NV_ERR_INVALID_STATE):
        other.take(space)
    keeper.range(0x4000000, 2 * MIB)
    with refused(status.NV_ERR_INVALID_OFFSET):
        keeper.map(0x4000000, 2 * MIB, handle)
    with refused(status.NV_ERR_INVALID_ARGUMENT):
        keeper.map(0x4000000, MIB, handle, kind=9)
    channel, _ = copier(client)
    with refused(status.NV_ERR_INVALID_CHANNEL):
        keeper.channel(channel.handle)
    node = client.system.open("/dev/nvidia-uvm")
    data = bytearray(memory(uvm.UVM_FREE_PARAMS.at(client.release)(base=4096, length=4096)))
    client.system.ioctl(node, uvm.UVM_FREE, data)
    assert uvm.UVM_FREE_PARAMS.at(client.release).view(data).rmStatus == status.NV_ERR_ILLEGAL_ACTION


def test_a_mapping_that_is_read_only_stops_a_write(client):
    keeper, space = Uvm(client), client.space(EXTERNAL)
    keeper.take(space)
    handle, target = client.memory(Copier.BYTES, PCI), client.memory(MIB)
    keeper.range(0x2000000, Copier.BYTES)
    keeper.map(0x2000000, Copier.BYTES, handle)
    keeper.range(0x4000000, MIB)
    keeper.map(0x4000000, MIB, target, kind=uvm.UvmGpuMappingTypeReadOnly)
    first, _ = copier(client)
    made = Copier(client, handle, client.map(handle, Copier.BYTES, system=True)[0], 0x2000000, space=space)
    made.start(first.doorbell)
    made.submit(*made.method(0x5C, 0x4000000, 0, 1, 0, 1, subchannel=0))
    client.system.sleep_us(100)
    assert "FAULT_RO_VIOLATION" in client.system.events.xids[-1][2]
