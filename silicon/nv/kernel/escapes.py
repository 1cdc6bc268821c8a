"""The escapes of /dev/nvidiactl and /dev/nvidia0: which node takes each, its layout, and where its status goes.

Source: NVIDIA's open kernel modules 535.261.03, escape.c (RmIoctl), osapi.c and nv.c (nvidia_ioctl). A wrong node, size
or number is EINVAL; all else is a status in the request.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm, rm_alloc, rm_memory, status
from ringup.autogen.structs import Struct
from ringup.autogen.structs import memory as struct_bytes
from ringup.errors import NotSupported
from ringup.silicon.nv.kernel import mapping
from ringup.silicon.nv.kernel.controls import load, store
from ringup.silicon.nv.kernel.files import File, Node, failure
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.objects import Resource
from ringup.silicon.nv.rm.parts import RmError

if TYPE_CHECKING:
    from ringup.silicon.nv.kernel.system import VirtualKernel

VERSION_BYTES = rm.NV_RM_API_VERSION_STRING_LENGTH
EVENT = struct.Struct("<IIIHxx")
ROOTS = (0, nv.NV01_ROOT_NON_PRIV, nv.NV01_ROOT_CLIENT)
# resserv.h, RS_CLIENT_HANDLE_BASE: where handles of new clients begin
FIRST_CLIENT = 0xC1D00000


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks: an open node of a system."""

    system: VirtualKernel
    file: File

    def client(self, handle: int) -> int:
        """Return a client's handle, if it is this file's. Source: rmclientValidate: clients of others are invalid."""
        self.system.manager.clients.client(handle)
        if self.system.owners.get(handle) is not self.file.owner:
            raise RmError(status.NV_ERR_INVALID_CLIENT, f"client {handle:#x} is another process's")
        return handle

    def find(self, client: int, handle: int) -> Resource:
        """Return an object of a client of this file."""
        return self.system.manager.find(self.client(client), handle)


@dataclass(frozen=True, slots=True)
class Escape:
    """One row. `layout`: None if the handler takes bytes. `node`: the only one that takes it; None for both.

    `status`: the member that a refusal is written to; without one a refusal is EINVAL.
    """

    number: int
    layout: type[Struct] | None
    handler: Callable[[Call, Any], None]
    node: Node | None = Node.CONTROL
    status: str = "status"


# --- the driver itself ------------------------------------------------------------------------------------------------
def _card_info(call: Call, data: bytearray) -> None:
    """Fill in one entry for each card: there is one."""
    layout = rm.nv_ioctl_card_info_t.at(call.system.release)
    count = len(data) // layout.SIZE
    if not count:
        raise failure(errno.EINVAL)
    data[:] = bytes(len(data))
    entry, machine, chip = layout.view(data), call.system.machine, call.system.card.chip
    entry.valid, entry.gpu_id, entry.minor_number = 1, machine.gpu_id, 0
    entry.pci_info.domain, entry.pci_info.bus, entry.pci_info.slot = machine.domain, machine.bus, machine.slot
    entry.pci_info.vendor_id, entry.pci_info.device_id = 0x10DE, chip.device_id
    entry.reg_address, entry.fb_address, _ = machine.windows
    entry.reg_size, entry.fb_size = mapping.REGISTER_BYTES, chip.bar1_bytes


def _check_version(call: Call, params: rm.nv_ioctl_rm_api_version_t) -> None:
    """Compare releases; the answer has the driver's. Relaxed: the branch alone counts."""
    asked, ours = bytes(struct_bytes(params))[-VERSION_BYTES:].split(b"\0")[0], call.system.release.encode()
    params.reply = rm.NV_RM_API_VERSION_REPLY_RECOGNIZED
    relaxed = params.cmd == rm.NV_RM_API_VERSION_CMD_RELAXED
    same = asked.split(b".")[0] == ours.split(b".")[0] if relaxed else asked == ours
    if not same:
        params.versionString[0:VERSION_BYTES] = ours.ljust(VERSION_BYTES, b"\0")
    if not same and params.cmd != rm.NV_RM_API_VERSION_CMD_QUERY:
        raise failure(errno.EINVAL)


def _wait_open(call: Call, params: rm.nv_ioctl_wait_open_complete_t) -> None:
    """Tell that the card is there: opening its node initialised it. Newer than 535."""
    params.rc = params.adapterStatus = 0


def _system_parameters(call: Call, params: rm.nv_ioctl_sys_params_t) -> None:
    """Take the size of the machine's memory blocks, once."""
    if call.system.memory_block and call.system.memory_block != params.memblock_size:
        raise failure(errno.EBUSY)
    call.system.memory_block = params.memblock_size


def _attach(call: Call, data: bytearray) -> None:
    """Keep cards initialised as long as the file is open."""
    if not data or len(data) % 4 or call.file.cards:
        raise failure(errno.EINVAL)
    asked = struct.unpack(f"<{len(data) // 4}I", data)
    if any(one not in (0, call.system.machine.gpu_id) for one in asked):
        raise failure(errno.EINVAL)
    call.file.cards = asked


def _register(call: Call, params: rm.nv_ioctl_register_fd_t) -> None:
    """Let a file act for the clients of a control node."""
    control = call.system.files.get(params.ctl_fd)
    if call.file.control is not None or control is None or control.node is not Node.CONTROL:
        raise failure(errno.EINVAL)
    if control is call.file or control.control is not None:
        raise failure(errno.EINVAL)
    call.file.control = control


# --- objects ----------------------------------------------------------------------------------------------------------
def _alloc(call: Call, params: Any) -> None:
    """RM_ALLOC, in its shorter and its longer form."""
    manager = call.system.manager
    if params.hClass in ROOTS:
        if call.file.node is not Node.CONTROL:
            raise failure(errno.EINVAL)
        params.hObjectNew = params.hRoot = call.system.new_client(call.file.owner, params.hObjectNew)
        return
    events = (nv.NV01_EVENT, nv.NV01_EVENT_OS_EVENT, nv.NV01_EVENT_KERNEL_CALLBACK, nv.NV01_EVENT_KERNEL_CALLBACK_EX)
    if call.file.node is not Node.CONTROL and params.hClass not in events:
        raise failure(errno.EINVAL)
    client = call.client(params.hRoot)
    found = manager.rows.get(params.hClass)
    size = params.paramsSize
    if found is not None and found.params is not None and params.pAllocParms and not size:
        size = manager.layout(found.params).SIZE
    if size > mapping.PARAMETERS_LIMIT:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{size} bytes of parameters")
    data = load(params.pAllocParms, size) if params.pAllocParms else b""
    handle, answer = manager.alloc(client, params.hObjectParent, params.hObjectNew, params.hClass, data)
    params.hObjectNew = handle
    if answer:
        store(params.pAllocParms, answer)


def _free(call: Call, params: rm.NVOS00_PARAMETERS) -> None:
    call.system.manager.free(call.client(params.hRoot), params.hObjectOld)
    if params.hObjectOld == params.hRoot:
        call.system.forget_client(params.hRoot)


def _control(call: Call, params: rm.NVOS54_PARAMETERS) -> None:
    size = params.paramsSize
    if bool(size) != bool(params.params) or size > mapping.PARAMETERS_LIMIT:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{size} bytes of parameters at {params.params:#x}")
    data = bytearray(load(params.params, size))
    call.system.controls.run(call.system.manager, call.client(params.hClient), params.hObject, params.cmd, data)
    store(params.params, bytes(data))


def _dup(call: Call, params: rm.NVOS55_PARAMETERS) -> None:
    """Give a client another handle of an object. GUESS: of the same process's clients only."""
    source = call.client(params.hClientSrc)
    client = call.client(params.hClient)
    params.hObject = call.system.manager.dup(client, params.hParent, params.hObject, source, params.hObjectSrc)


# --- memory -----------------------------------------------------------------------------------------------------------
def _alloc_memory(call: Call, request: rm.nv_ioctl_nvos02_parameters_with_fd) -> None:
    """ALLOC_MEMORY: a process's own pages as memory. Other classes come by RM_ALLOC."""
    params = request.params
    flags = rm.NVOS02_FLAGS(params.flags)
    if params.hClass != nv.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
        call.system.manager.unmodelled[f"ALLOC_MEMORY of class {params.hClass:#06x}"] += 1
        raise RmError(status.NV_ERR_NOT_SUPPORTED, f"ALLOC_MEMORY of class {params.hClass:#06x} is not modelled")
    if flags.location != rm.NVOS02_FLAGS_LOCATION_PCI or flags.mapping != rm.NVOS02_FLAGS_MAPPING_NO_MAP:
        raise RmError(status.NV_ERR_INVALID_FLAGS, f"a process's memory with flags {params.flags:#x}")
    if flags.coherency not in (
        rm.NVOS02_FLAGS_COHERENCY_CACHED,
        rm.NVOS02_FLAGS_COHERENCY_WRITE_BACK,
        rm.NVOS02_FLAGS_COHERENCY_UNCACHED,
    ):
        raise RmError(status.NV_ERR_INVALID_FLAGS, f"a process's memory with flags {params.flags:#x}")
    params.hObjectNew = _user_memory(
        call, params.hRoot, params.hObjectParent, params.hObjectNew, params.pMemory, params.limit,
        writable=not flags.alloc_user_read_only,
    )  # fmt: skip


def _user_memory(call: Call, client: int, parent: int, handle: int, address: int, limit: int, *, writable: bool) -> int:
    if limit + 1 >> 64:
        raise RmError(status.NV_ERR_INVALID_LIMIT, f"memory up to {limit:#x}")
    half = call.system.half
    client = call.client(client)
    # the handle and the parent are checked before pages are pinned
    place = call.system.manager.find(client, parent)
    if place.row.kind not in (Kind.DEVICE, Kind.SUBDEVICE):
        raise RmError(status.NV_ERR_INVALID_OBJECT_PARENT, f"memory cannot be below {place}")
    backing = half.user_memory(address, limit + 1, writable=writable)
    try:
        number = nv.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
        return call.system.manager.alloc_pages(client, parent, handle, number, backing)
    except RmError:
        backing.end()
        raise


def _heap(call: Call, params: rm.NVOS32_PARAMETERS) -> None:
    """VID_HEAP_CONTROL: older clients allocate by it. It makes the same objects."""
    half = call.system.half
    params.total, params.free = half.heap.end - half.heap.start, half.heap.free_bytes
    call.client(params.hRoot)
    match params.function:
        case rm.NVOS32_FUNCTION_ALLOC_SIZE:
            _heap_alloc(call, params)
        case rm.NVOS32_FUNCTION_FREE:
            # GUESS: the status for what is no memory
            found = call.find(params.hRoot, params.data.Free.hMemory)
            if found.row.kind not in (Kind.MEMORY, Kind.VIRTUAL):
                raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no memory")
            call.system.manager.free(params.hRoot, found.handle)
        case rm.NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
            asked = params.data.AllocOsDesc
            if asked.descriptorType != rm.NVOS32_DESCRIPTOR_TYPE_VIRTUAL_ADDRESS:
                raise RmError(status.NV_ERR_NOT_SUPPORTED, f"a descriptor of type {asked.descriptorType}")
            asked.hMemory = _user_memory(
                call, params.hRoot, params.hObjectParent, asked.hMemory, asked.descriptor, asked.limit, writable=True
            )
        case rm.NVOS32_FUNCTION_INFO:
            pass
        case other:
            call.system.manager.unmodelled[f"VID_HEAP_CONTROL {other}"] += 1
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"function {other} of the heap is not modelled")
    params.free = half.heap.free_bytes


def _heap_alloc(call: Call, params: rm.NVOS32_PARAMETERS) -> None:
    asked, manager = params.data.AllocSize, call.system.manager
    if asked.flags & rm_memory.NVOS32_ALLOC_FLAGS_VIRTUAL:
        number = nv.NV50_MEMORY_VIRTUAL
    elif rm_memory.NVOS32_ATTR(asked.attr).location == rm_memory.NVOS32_ATTR_LOCATION_VIDMEM:
        number = nv.NV01_MEMORY_LOCAL_USER
    else:
        number = nv.NV01_MEMORY_SYSTEM
    layout = manager.layout(rm_alloc.NV_MEMORY_ALLOCATION_PARAMS)
    body = bytearray(layout.SIZE)
    view: Any = layout.view(body)
    for name in ("owner", "type", "flags", "attr", "attr2", "size", "alignment", "offset"):
        setattr(view, name, getattr(asked, name))
    view.hVASpace = params.hVASpace
    handle = asked.hMemory if asked.flags & rm_memory.NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED else 0
    made, answer = manager.alloc(params.hRoot, params.hObjectParent, handle, number, bytes(body))
    asked.hMemory = made
    view = layout.view(bytearray(answer))
    for name in ("size", "offset", "limit", "attr", "attr2"):
        setattr(asked, name, getattr(view, name))


# --- events -----------------------------------------------------------------------------------------------------------
def _os_event(call: Call, params: rm.nv_ioctl_alloc_os_event_t) -> None:
    """Let a file get a client's events. A client has one file for each number. Source: allocate_os_event."""
    key = params.hClient, params.fd
    if key in call.system.events.files:
        raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"descriptor {params.fd} has events of this client already")
    call.system.events.files[key] = call.file


def _no_os_event(call: Call, params: rm.nv_ioctl_free_os_event_t) -> None:
    if call.system.events.files.pop((params.hClient, params.fd), None) is None:
        raise RmError(
            status.NV_ERR_INVALID_EVENT, f"descriptor {params.fd} has no events of client {params.hClient:#x}"
        )


def _event_data(call: Call, params: rm.NVOS41_PARAMETERS) -> None:
    """Hand out the oldest event of the file."""
    events = call.file.events
    if not events:
        raise RmError(status.NV_ERR_OPERATING_SYSTEM, "there is no event")
    store(params.pEvent, EVENT.pack(*events[0]))
    events.popleft()
    params.MoreEvents = int(bool(events))


ROWS = {
    row.number: row
    for row in (
        Escape(rm.NV_ESC_CARD_INFO, None, _card_info, status=""),
        Escape(rm.NV_ESC_CHECK_VERSION_STR, rm.nv_ioctl_rm_api_version_t, _check_version, status=""),
        Escape(rm.NV_ESC_WAIT_OPEN_COMPLETE, rm.nv_ioctl_wait_open_complete_t, _wait_open, Node.CARD, ""),
        Escape(rm.NV_ESC_SYS_PARAMS, rm.nv_ioctl_sys_params_t, _system_parameters, status=""),
        Escape(rm.NV_ESC_ATTACH_GPUS_TO_FD, None, _attach, status=""),
        Escape(rm.NV_ESC_REGISTER_FD, rm.nv_ioctl_register_fd_t, _register, None, ""),
        Escape(rm.NV_ESC_RM_FREE, rm.NVOS00_PARAMETERS, _free),
        Escape(rm.NV_ESC_RM_CONTROL, rm.NVOS54_PARAMETERS, _control),
        Escape(rm.NV_ESC_RM_DUP_OBJECT, rm.NVOS55_PARAMETERS, _dup),
        Escape(
            rm.NV_ESC_RM_ALLOC_MEMORY,
            rm.nv_ioctl_nvos02_parameters_with_fd,
            _alloc_memory,
            Node.CARD,
            "params.status",
        ),
        Escape(rm.NV_ESC_RM_VID_HEAP_CONTROL, rm.NVOS32_PARAMETERS, _heap),
        Escape(
            rm.NV_ESC_RM_MAP_MEMORY,
            rm.nv_ioctl_nvos33_parameters_with_fd,
            mapping.map_memory,
            status="params.status",
        ),
        Escape(rm.NV_ESC_RM_UNMAP_MEMORY, rm.NVOS34_PARAMETERS, mapping.unmap_memory),
        Escape(rm.NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, rm.NVOS56_PARAMETERS, mapping.moved),
        Escape(rm.NV_ESC_RM_MAP_MEMORY_DMA, rm.NVOS46_PARAMETERS, mapping.map_dma),
        Escape(rm.NV_ESC_RM_UNMAP_MEMORY_DMA, rm.NVOS47_PARAMETERS, mapping.unmap_dma),
        Escape(rm.NV_ESC_ALLOC_OS_EVENT, rm.nv_ioctl_alloc_os_event_t, _os_event, None, "Status"),
        Escape(rm.NV_ESC_FREE_OS_EVENT, rm.nv_ioctl_free_os_event_t, _no_os_event, None, "Status"),
        Escape(rm.NV_ESC_RM_GET_EVENT_DATA, rm.NVOS41_PARAMETERS, _event_data, None),
    )
}


def _layout(row: Escape, release: str) -> type[Struct] | None:
    """Return a row's layout. A release that has not got it does not know the escape."""
    try:
        return None if row.layout is None else row.layout.at(release)
    except NotSupported:
        raise failure(errno.EINVAL) from None


def _set_status(view: Any, path: str, code: int) -> None:
    *outer, last = path.split(".")
    for name in outer:
        view = getattr(view, name)
    setattr(view, last, code)


def carry_out(system: VirtualKernel, file: File, number: int, data: bytearray) -> None:
    """Carry an escape out; `data` has the answer. Raises `OSError`."""
    call = Call(system, file)
    if number == rm.NV_ESC_RM_ALLOC:
        # two forms, which only their sizes tell apart
        forms: tuple[type[Struct], ...] = (rm.NVOS21_PARAMETERS, rm.NVOS64_PARAMETERS)
        layouts = [one.at(system.release) for one in forms]
        layout = next((one for one in layouts if len(data) == one.SIZE), None)
        row = Escape(number, layout, _alloc, None)
        if layout is None:
            raise failure(errno.EINVAL)
    else:
        found = ROWS.get(number)
        if found is None:
            system.manager.unmodelled[f"escape {number:#x}"] += 1
            raise failure(errno.EINVAL)
        row, layout = found, _layout(found, system.release)
    if row.node not in (None, file.node) or (layout is not None and len(data) != layout.SIZE):
        raise failure(errno.EINVAL)
    view: Any = data if layout is None else layout.view(data)
    code = status.NV_OK
    try:
        row.handler(call, view)
    except RmError as error:
        system.card.log.note("kernel", "refused", "escape {:#x}: {}", number, error)
        if not row.status:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from error
        code = error.code
    if row.status:
        _set_status(view, row.status, code)
