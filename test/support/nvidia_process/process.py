"""A small client of NVIDIA's device nodes, written from the headers of the modules. It makes system calls only."""

import ctypes
import struct

from ringup.autogen.nv import classes, rm, rm_alloc, uvm
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_channel as channels
from ringup.autogen.structs import memory

MIB = 1 << 20
COPY0, GRAPHICS = 9, 1
VIDMEM, PCI = 0, 1 << 25
EXTERNAL = rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED
FAULTING = rm_alloc.NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING
CHANNEL_CLASS = {"tu102": 0xC46F, "ga102": 0xC56F, "ad102": 0xC56F, "gh100": 0xC86F}
COPY_CLASS = {"tu102": 0xC5B5, "ga102": 0xC7B5, "ad102": 0xC7B5, "gh100": 0xC8B5}
ENTRIES = 64


class Refused(Exception):
    def __init__(self, what, status):
        super().__init__(f"{what}: {status:#x}")
        self.status = status


def address(data):
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


class Client:
    """A process: a control node, the card's node, a client with device and subdevice."""

    def __init__(self, system):
        self.system, self.release = system, system.release
        self.control_node, self.card_node = system.open("/dev/nvidiactl"), system.open("/dev/nvidia0")
        registered = self.make(rm.nv_ioctl_register_fd_t, ctl_fd=self.control_node)
        self.call(rm.NV_ESC_REGISTER_FD, registered, self.card_node, "")
        made = rm.NVOS21_PARAMETERS.at(self.release)(hClass=classes.NV01_ROOT_CLIENT)
        self.root = self.call(rm.NV_ESC_RM_ALLOC, made).hObjectNew
        self._next = 0xCAFE0000
        self.device = self.alloc(self.root, 0x80, self.make(rm_alloc.NV0080_ALLOC_PARAMETERS))
        self.subdevice = self.alloc(self.device, 0x2080, self.make(rm_alloc.NV2080_ALLOC_PARAMETERS))

    def make(self, layout, **values):
        return layout.at(self.release)(**values)

    def call(self, number, request, node=None, status="status"):
        data = bytearray(memory(request))
        code = 3 << 30 | len(data) << 16 | rm.NV_IOCTL_MAGIC << 8 | number
        self.system.ioctl(self.control_node if node is None else node, code, data)
        memory(request)[:] = data
        view = request
        for name in status.split(".") if status else ():
            view = getattr(view, name)
        if status and view:
            raise Refused(f"escape {number:#x}", view)
        return request

    def alloc(self, parent, number, params=None, handle=None, root=None):
        if handle is None:
            self._next += 1
            handle = self._next
        body = bytearray(memory(params)) if params is not None else None
        request = self.make(
            rm.NVOS21_PARAMETERS, hRoot=root or self.root, hObjectParent=parent, hObjectNew=handle, hClass=number,
            pAllocParms=address(body) if body else 0, paramsSize=len(body) if body else 0,
        )  # fmt: skip
        self.call(rm.NV_ESC_RM_ALLOC, request)
        if body:
            memory(params)[:] = body
        return request.hObjectNew

    def free(self, handle, root=None):
        self.call(rm.NV_ESC_RM_FREE, self.make(rm.NVOS00_PARAMETERS, hRoot=root or self.root, hObjectOld=handle))

    def control(self, handle, command, params, root=None):
        body = bytearray(memory(params))
        request = self.make(
            rm.NVOS54_PARAMETERS, hClient=root or self.root, hObject=handle, cmd=command, params=address(body),
            paramsSize=len(body),
        )  # fmt: skip
        self.call(rm.NV_ESC_RM_CONTROL, request)
        memory(params)[:] = body
        return params

    # --- memory ---
    def memory(self, size, place=VIDMEM, **values):
        number = classes.NV01_MEMORY_SYSTEM if place else classes.NV01_MEMORY_LOCAL_USER
        params = self.make(rm_alloc.NV_MEMORY_ALLOCATION_PARAMS, size=size, attr=place, **values)
        return self.alloc(self.device, number, params)

    def map(self, handle, size, *, system=False, offset=0):
        """Map an object through a node of its own; return the region and the address to unmap it by."""
        node = self.system.open("/dev/nvidiactl" if system else "/dev/nvidia0")
        request = self.make(rm.nv_ioctl_nvos33_parameters_with_fd, fd=node)
        asked = request.params
        asked.hClient, asked.hDevice, asked.hMemory = self.root, self.device, handle
        asked.offset, asked.length = offset, size
        self.call(rm.NV_ESC_RM_MAP_MEMORY, request, status="params.status")
        return self.system.mmap(node, size), request.params.pLinearAddress

    def unmap(self, handle, linear):
        request = self.make(
            rm.NVOS34_PARAMETERS, hClient=self.root, hDevice=self.device, hMemory=handle, pLinearAddress=linear
        )
        self.call(rm.NV_ESC_RM_UNMAP_MEMORY, request)

    def virtual(self, space=0):
        params = self.make(rm_alloc.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, hVASpace=space)
        return self.alloc(self.device, classes.NV01_MEMORY_VIRTUAL, params)

    def map_dma(self, virtual, handle, size, offset=0, flags=0, at=0):
        request = self.make(
            rm.NVOS46_PARAMETERS, hClient=self.root, hDevice=self.device, hDma=virtual, hMemory=handle, offset=offset,
            length=size, flags=flags, dmaOffset=at,
        )  # fmt: skip
        return self.call(rm.NV_ESC_RM_MAP_MEMORY_DMA, request).dmaOffset

    def unmap_dma(self, virtual, handle, gpu_va):
        request = self.make(
            rm.NVOS47_PARAMETERS, hClient=self.root, hDevice=self.device, hDma=virtual, hMemory=handle, dmaOffset=gpu_va
        )
        self.call(rm.NV_ESC_RM_UNMAP_MEMORY_DMA, request)

    def space(self, flags=0):
        params = self.make(rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS, flags=flags)
        return self.alloc(self.device, classes.FERMI_VASPACE_A, params)

    def uuid(self):
        params = self.make(gpu.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, flags=2)
        self.control(self.subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO, params)
        return bytes(params.data[0 : params.length])

    def events(self, node):
        """Let a node get events of this client."""
        request = self.make(rm.nv_ioctl_alloc_os_event_t, hClient=self.root, fd=node)
        self.call(rm.NV_ESC_ALLOC_OS_EVENT, request, node=node, status="Status")

    def listen(self, source, index, node):
        params = self.make(
            rm_alloc.NV0005_ALLOC_PARAMETERS, hParentClient=self.root, hSrcResource=source, data=node,
            hClass=classes.NV01_EVENT_OS_EVENT, notifyIndex=index,
        )  # fmt: skip
        return self.alloc(source, classes.NV01_EVENT_OS_EVENT, params)

    def event(self, node):
        """Return the next event of a node: object, index, 32 and 16 bits; and whether there are more."""
        place = bytearray(16)
        request = self.make(rm.NVOS41_PARAMETERS, pEvent=address(place))
        self.call(rm.NV_ESC_RM_GET_EVENT_DATA, request, node=node)
        return struct.unpack("<IIIH2x", place), bool(request.MoreEvents)


class Uvm:
    """A file of UVM, with the card registered."""

    def __init__(self, client, *, register=True):
        self.client, self.release = client, client.release
        self.node = client.system.open("/dev/nvidia-uvm")
        self.ask(uvm.UVM_INITIALIZE, uvm.UVM_INITIALIZE_PARAMS)
        self.uuid = client.uuid()
        if register:
            self.ask(uvm.UVM_REGISTER_GPU, uvm.UVM_REGISTER_GPU_PARAMS, gpu_uuid=self.uuid)

    def ask(self, command, layout, **values):
        params = layout.at(self.release)()
        for name, value in values.items():
            if isinstance(value, bytes):
                getattr(params, name).uuid[0:16] = list(value)
            else:
                setattr(params, name, value)
        data = bytearray(memory(params))
        self.client.system.ioctl(self.node, command, data)
        memory(params)[:] = data
        if params.rmStatus:
            raise Refused(f"UVM request {command:#x}", params.rmStatus)
        return params

    def take(self, space):
        self.ask(
            uvm.UVM_REGISTER_GPU_VASPACE, uvm.UVM_REGISTER_GPU_VASPACE_PARAMS, gpuUuid=self.uuid,
            rmCtrlFd=self.client.control_node, hClient=self.client.root, hVaSpace=space,
        )  # fmt: skip

    def range(self, base, size):
        self.ask(uvm.UVM_CREATE_EXTERNAL_RANGE, uvm.UVM_CREATE_EXTERNAL_RANGE_PARAMS, base=base, length=size)

    def map(self, base, size, handle, offset=0, kind=0):
        params = uvm.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.at(self.release)(
            base=base, length=size, offset=offset, gpuAttributesCount=1, rmCtrlFd=self.client.control_node,
            hClient=self.client.root, hMemory=handle,
        )  # fmt: skip
        params.perGpuAttributes[0].gpuUuid.uuid[0:16] = list(self.uuid)
        params.perGpuAttributes[0].gpuMappingType = kind
        data = bytearray(memory(params))
        self.client.system.ioctl(self.node, uvm.UVM_MAP_EXTERNAL_ALLOCATION, data)
        status = uvm.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.at(self.release).view(data).rmStatus
        if status:
            raise Refused("mapping", status)

    def free(self, base, size):
        self.ask(uvm.UVM_FREE, uvm.UVM_FREE_PARAMS, base=base, length=size)

    def channel(self, handle, base=0, size=0):
        self.ask(
            uvm.UVM_REGISTER_CHANNEL, uvm.UVM_REGISTER_CHANNEL_PARAMS, gpuUuid=self.uuid,
            rmCtrlFd=self.client.control_node, hClient=self.client.root, hChannel=handle, base=base, length=size,
        )  # fmt: skip


class Copier:
    """A channel on a copy engine. Its ring, control block, pushbuffer and semaphores are one piece of memory."""

    RING, USERD, PUSH, SEMAPHORE, BYTES = 0, 0x1000, 0x2000, 0x8000, 0x10000

    def __init__(
        self, client, handle, region, gpu_va, *, space=0, parent=None, notifier=0, engine=COPY0, number=None, share=0
    ):
        self.client, self.region, self.gpu_va, self.engine = client, region, gpu_va, engine
        chip = client.system.card.chip.name
        params = client.make(
            rm_alloc.NV_CHANNEL_ALLOC_PARAMS, gpFifoOffset=gpu_va + self.RING, gpFifoEntries=ENTRIES, hVASpace=space,
            hContextShare=share,
            engineType=engine, hObjectError=notifier,
        )  # fmt: skip
        params.hUserdMemory[0], params.userdOffset[0] = handle, self.USERD
        self.handle = client.alloc(parent or client.device, CHANNEL_CLASS[chip], params)
        self.object = client.alloc(self.handle, number or COPY_CLASS[chip])
        self.put, self.count = 0, 0

    def start(self, doorbell):
        client = self.client
        client.control(
            self.handle,
            channels.NVA06F_CTRL_CMD_BIND,
            client.make(channels.NVA06F_CTRL_BIND_PARAMS, engineType=self.engine),
        )
        client.control(
            self.handle, channels.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
            client.make(channels.NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, bEnable=1),
        )  # fmt: skip
        params = client.make(channels.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS)
        client.control(self.handle, channels.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, params)
        self.token, self.doorbell = params.workSubmitToken, doorbell
        return self

    def submit(self, *words, ring=True):
        at = self.PUSH + 0x100 * (self.put % 0x40)
        self.region.write(at, struct.pack(f"<{len(words)}I", *words))
        where = self.gpu_va + at
        self.region.write(
            self.RING + 8 * self.put, struct.pack("<II", where & 0xFFFFFFFF, where >> 32 | len(words) << 10)
        )
        self.put = (self.put + 1) % ENTRIES
        self.region.write32(self.USERD + 0x8C, self.put)
        if ring:
            self.doorbell.write32(0x90, self.token)

    def method(self, address, *data, subchannel=4):
        return [1 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]

    def release(self, value, *, interrupt=False):
        """Host methods that write the channel's semaphore."""
        where = self.gpu_va + self.SEMAPHORE
        words = self.method(0x5C, where & 0xFFFFFFFF, where >> 32, value, 0, 1, subchannel=0)
        return words + (self.method(0x20, 0, subchannel=0) if interrupt else [])

    def wait(self):
        """Host methods that wait for a semaphore that nobody writes."""
        where = self.gpu_va + self.SEMAPHORE + 64
        return self.method(0x10, where >> 32, where & 0xFFFFFFFF, 1, 1, subchannel=0)

    def copy(self, source, target, size):
        """Copy bytes, then write the semaphore; wait until it is there."""
        self.count += 1
        words = self.method(
            0x400, source >> 32, source & 0xFFFFFFFF, target >> 32, target & 0xFFFFFFFF, size, size, size, 1
        )
        where = self.gpu_va + self.SEMAPHORE
        words += self.method(0x240, where >> 32, where & 0xFFFFFFFF, self.count)
        words += self.method(0x300, 0x18E)
        self.submit(*words)
        for _ in range(1000):
            if self.semaphore == self.count:
                return
            self.client.system.sleep_us(100)
        raise AssertionError("the copy does not end")

    @property
    def semaphore(self):
        return self.region.read32(self.SEMAPHORE)


def doorbell(client):
    """Return the mapped page of doorbells."""
    number = classes.TURING_USERMODE_A
    return client.map(client.alloc(client.subdevice, number), 0x10000)[0]


def copier(client, **how):
    """Return a channel in the device's own address space, and that space's object."""
    virtual = client.virtual()
    handle = client.memory(Copier.BYTES, PCI)
    region, _ = client.map(handle, Copier.BYTES, system=True)
    made = Copier(client, handle, region, client.map_dma(virtual, handle, Copier.BYTES), **how)
    return made.start(doorbell(client)), virtual
