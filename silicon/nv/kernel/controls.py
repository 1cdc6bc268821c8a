"""Controls of clients, devices and channels, which the kernel's half answers itself.

Source: ctrl*.h and the …CtrlCmd… functions of NVIDIA's open kernel modules 535.261.03. Answers come from the same rows
as the firmware's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_ctrl_0000 as client_controls
from ringup.autogen.nv import rm_ctrl_0000_system as system
from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_cc as confidential
from ringup.autogen.nv import rm_ctrl_channel as channel_controls
from ringup.autogen.nv import rm_ctrl_debug as debug
from ringup.autogen.nv import status
from ringup.silicon.nv.kernel import process
from ringup.silicon.nv.kernel.facts import Machine
from ringup.silicon.nv.kernel.memory import Backing, Registers
from ringup.silicon.nv.kernel.rows import DOORBELLS
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.every import CONTROLS
from ringup.silicon.nv.rm.controls.table import Control, Request, accept, refuse, row
from ringup.silicon.nv.rm.objects import EngineObject, Running, state_of
from ringup.silicon.nv.rm.parts import Aperture, RmError

NOBODY = client_controls.NV0000_CTRL_GPU_INVALID_ID
# classes that every chip of these has: gpu_class_list.c
COMMON = (
    "FERMI_CONTEXT_SHARE_A",
    "FERMI_VASPACE_A",
    "KEPLER_CHANNEL_GROUP_A",
    "NV01_MEMORY_VIRTUAL",
    "NV50_MEMORY_VIRTUAL",
    "GF100_TIMED_SEMAPHORE_SW",
    "GP100_UVM_SW",
    "GF100_SUBDEVICE_INFOROM",
    "NV_CONFIDENTIAL_COMPUTE",
)
# ctrl0000system.h, NV0000_CTRL_GET_SYSTEM_FABRIC_STATUS_SKIP: there is no fabric to wait for
FABRIC_SKIP = 1
# what only the kernel's own clients may ask: the flags of the functions in g_subdevice_nvoc.c
KERNEL_ONLY = frozenset(
    f"NV2080_CTRL_CMD_{name}"
    for name in (
        "GPU_PROMOTE_CTX",
        "GPU_EVICT_CTX",
        "GPU_REPORT_NON_REPLAYABLE_FAULT",
        "FIFO_GET_DEVICE_INFO_TABLE",
        "CE_UPDATE_PCE_LCE_MAPPINGS",
        "CE_UPDATE_CLASS_DB",
        "VGPU_MGR_INTERNAL_SET_VGPU_MGR_CONFIG",
    )
)


def class_list(request: Request) -> list[int]:
    """Return the numbers of the classes that the chip has."""
    board = request.manager.board
    return sorted({int(getattr(nv, name)) for name in (*board.classes, *DOORBELLS[board.chip], *COMMON)})


def load(address: int, size_bytes: int) -> bytes:
    """Return bytes of the caller's memory. Raises `RmError` (INVALID_ADDRESS)."""
    try:
        return process.load(address, size_bytes)
    except OSError as error:
        raise RmError(status.NV_ERR_INVALID_ADDRESS, f"the caller's memory at {address:#x}: {error}") from error


def store(address: int, data: bytes) -> None:
    """Store bytes in the caller's memory. Raises `RmError` (INVALID_ADDRESS)."""
    try:
        process.store(address, data)
    except OSError as error:
        raise RmError(status.NV_ERR_INVALID_ADDRESS, f"the caller's memory at {address:#x}: {error}") from error


# --- clients ----------------------------------------------------------------------------------------------------------
def _ids(machine: Machine) -> Callable[[Request, Any], None]:
    def answer(request: Request, params: Any) -> None:
        params.gpuIds[0 : len(params.gpuIds)] = [machine.gpu_id] + [NOBODY] * (len(params.gpuIds) - 1)
        if hasattr(params, "excludedGpuIds"):
            params.excludedGpuIds[0 : len(params.excludedGpuIds)] = [NOBODY] * len(params.excludedGpuIds)

    return answer


def _attach(machine: Machine) -> Callable[[Request, Any], None]:
    def answer(request: Request, params: Any) -> None:
        """Attach cards, of which there is one: the first number may ask for all."""
        asked = [
            one for one in params.gpuIds if one not in (NOBODY, client_controls.NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS)
        ]
        wrong = [one for one in asked if one != machine.gpu_id]
        if wrong:
            if hasattr(params, "failedId"):
                params.failedId = wrong[0]
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no card {wrong[0]:#x}")

    return answer


def _id_info(machine: Machine) -> Callable[[Request, Any], None]:
    def answer(request: Request, params: Any) -> None:
        if params.gpuId != machine.gpu_id:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no card {params.gpuId:#x}")
        params.gpuFlags = client_controls.NV0000_CTRL_GPU_ID_INFO_IN_USE_TRUE
        params.deviceInstance = params.subDeviceInstance = params.sliStatus = params.gpuInstance = 0
        params.boardId, params.numaId = machine.gpu_id, -1

    return answer


def _version(machine: Machine) -> Callable[[Request, Any], None]:
    texts = tuple(
        text.encode() + b"\0"
        for text in (machine.release, f"NVIDIA UNIX Open Kernel Module {machine.release}", "ringup")
    )

    def answer(request: Request, params: Any) -> None:
        """Tell the release: by pointers, or in place. Without pointers the caller asks how much room to give."""
        if not hasattr(params, "pVersionBuffer"):
            names = ("driverVersionBuffer", "versionBuffer", "titleBuffer")
            for name, text in zip(names, texts, strict=True):
                getattr(params, name)[0 : len(text)] = text
            return
        places = params.pDriverVersionBuffer, params.pVersionBuffer, params.pTitleBuffer
        room = max(len(text) for text in texts)
        if not all(places):
            params.sizeOfStrings = room
            return
        if params.sizeOfStrings < room:
            raise RmError(status.NV_ERR_INVALID_PARAM_STRUCT, f"the version in {params.sizeOfStrings} bytes")
        for place, text in zip(places, texts, strict=True):
            store(place, text)

    return answer


def _fabric(request: Request, params: system.NV0000_CTRL_SYSTEM_GET_FABRIC_STATUS_PARAMS) -> None:
    params.fabricStatus = FABRIC_SKIP


def _address_type(request: Request, params: client_controls.NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS) -> None:
    """Tell what a mapping of an object would be."""
    state = request.manager.clients.find(request.target.client, params.hObject).state
    prefix = "NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_"
    if isinstance(state, Registers):
        name = "REGMEM"
    elif isinstance(state, Backing):
        name = "VIDMEM" if state.aperture is Aperture.VRAM else "SYSMEM"
    elif isinstance(state, Running):
        # the control block that the driver made
        name = "VIDMEM"
    else:
        raise RmError(status.NV_ERR_INVALID_OBJECT, f"object {params.hObject:#x} is nothing to map")
    params.addrSpaceType = getattr(client_controls, prefix + name)


def _clients(machine: Machine) -> tuple[Control, ...]:
    def one(module: Any, name: str, layout: Any, answer: Any) -> Control:
        return row(module, name, layout, answer, kind=Kind.CLIENT, prefix="NV0000_CTRL_CMD_")

    return (
        one(system, "SYSTEM_GET_BUILD_VERSION", system.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS, _version(machine)),
        one(system, "SYSTEM_GET_BUILD_VERSION_V2", system.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS, _version(machine)),
        one(system, "SYSTEM_GET_FABRIC_STATUS", system.NV0000_CTRL_SYSTEM_GET_FABRIC_STATUS_PARAMS, _fabric),
        # zeros: no capabilities between cards, no features
        one(system, "SYSTEM_GET_P2P_CAPS_MATRIX", system.NV0000_CTRL_SYSTEM_GET_P2P_CAPS_MATRIX_PARAMS, accept),
        one(system, "SYSTEM_GET_FEATURES", system.NV0000_CTRL_SYSTEM_GET_FEATURES_PARAMS, accept),
        one(client_controls, "GPU_GET_ATTACHED_IDS", client_controls.NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS, _ids(machine)),
        one(client_controls, "GPU_GET_PROBED_IDS", client_controls.NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS, _ids(machine)),
        one(client_controls, "GPU_ATTACH_IDS", client_controls.NV0000_CTRL_GPU_ATTACH_IDS_PARAMS, _attach(machine)),
        one(client_controls, "GPU_DETACH_IDS", client_controls.NV0000_CTRL_GPU_DETACH_IDS_PARAMS, _attach(machine)),
        one(client_controls, "GPU_GET_ID_INFO", client_controls.NV0000_CTRL_GPU_GET_ID_INFO_PARAMS, _id_info(machine)),
        one(client_controls, "GPU_GET_ID_INFO_V2", client_controls.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, _id_info(machine)),
        one(client_controls, "GPU_GET_MEMOP_ENABLE", client_controls.NV0000_CTRL_GPU_GET_MEMOP_ENABLE_PARAMS, accept),
        one(client_controls, "SYNC_GPU_BOOST_GROUP_INFO", client_controls.NV0000_SYNC_GPU_BOOST_GROUP_INFO_PARAMS, accept),
        one(
            client_controls,
            "CLIENT_GET_ADDR_SPACE_TYPE",
            client_controls.NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS,
            _address_type,
        ),
        # who may duplicate objects: here every client of the process may
        one(
            client_controls,
            "CLIENT_SET_INHERITED_SHARE_POLICY",
            client_controls.NV0000_CTRL_CLIENT_SET_INHERITED_SHARE_POLICY_PARAMS,
            accept,
        ),
        row(
            confidential,
            "SYSTEM_GET_CAPABILITIES",
            confidential.NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES_PARAMS,
            accept,
            kind=Kind.CONFIDENTIAL,
            prefix="NV_CONF_COMPUTE_CTRL_CMD_",
        ),
    )  # fmt: skip


# --- devices ----------------------------------------------------------------------------------------------------------
def _subdevices(request: Request, params: device_controls.NV0080_CTRL_GPU_GET_NUM_SUBDEVICES_PARAMS) -> None:
    params.numSubDevices = 1


def _classes(request: Request, params: device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS) -> None:
    """Tell the classes by pointer; without one, or without room, how many there are."""
    numbers = class_list(request)
    if params.classList and params.numClasses:
        if params.numClasses < len(numbers):
            raise RmError(status.NV_ERR_INVALID_PARAM_STRUCT, f"{len(numbers)} classes in {params.numClasses} places")
        store(params.classList, struct.pack(f"<{len(numbers)}I", *numbers))
    params.numClasses = len(numbers)


def _classes_in_place(request: Request, params: device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS) -> None:
    numbers = class_list(request)
    params.numClasses = len(numbers)
    params.classList[0 : len(numbers)] = numbers


def _channel_list(request: Request, params: device_controls.NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS) -> None:
    """Tell the numbers of channels."""
    count = params.numChannels
    if not 0 < count <= request.manager.board.channels:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a list of {count} channels")
    handles = struct.unpack(f"<{count}I", load(params.pChannelHandleList, 4 * count))
    found = [request.manager.clients.find(request.target.client, handle) for handle in handles]
    numbers = [state_of(one, Running).channel.number for one in found]
    store(params.pChannelList, struct.pack(f"<{count}I", *numbers))


def _devices() -> tuple[Control, ...]:
    def one(name: str, layout: Any, answer: Any) -> Control:
        return row(device_controls, name, layout, answer, kind=Kind.DEVICE, prefix="NV0080_CTRL_CMD_")

    return (
        one("GPU_GET_NUM_SUBDEVICES", device_controls.NV0080_CTRL_GPU_GET_NUM_SUBDEVICES_PARAMS, _subdevices),
        # NV0080_CTRL_GPU_VIRTUALIZATION_MODE_NONE is 0
        one("GPU_GET_VIRTUALIZATION_MODE", device_controls.NV0080_CTRL_GPU_GET_VIRTUALIZATION_MODE_PARAMS, accept),
        one("GPU_GET_CLASSLIST", device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS, _classes),
        one("GPU_GET_CLASSLIST_V2", device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS, _classes_in_place),
        # GUESS: none of the capabilities, which are about displays and old chips
        one("FB_GET_CAPS_V2", device_controls.NV0080_CTRL_FB_GET_CAPS_V2_PARAMS, accept),
        one("HOST_GET_CAPS_V2", device_controls.NV0080_CTRL_HOST_GET_CAPS_V2_PARAMS, accept),
        one("FIFO_GET_CHANNELLIST", device_controls.NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS, _channel_list),
    )


# --- channels ---------------------------------------------------------------------------------------------------------
def _token(request: Request, params: channel_controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS) -> None:
    """Tell what to write to the doorbell: dev_vm.h, NV_VIRTUAL_FUNCTION_DOORBELL."""
    channel = state_of(request.target, Running).channel
    params.workSubmitToken = channel.runlist << 16 | channel.number


def _class_engine(request: Request, params: Any) -> None:
    """Tell what SET_OBJECT of an object on the channel carries. GUESS: the class, without an engine above it."""
    found = request.manager.clients.find(request.target.client, params.hObject)
    state = state_of(found, EngineObject)
    if state.channel is not state_of(request.target, Running).channel:
        raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is on another channel")
    params.classEngineID = params.classID = found.row.number
    params.engineID = state.engine_type


def _channels() -> tuple[Control, ...]:
    return (
        row(
            channel_controls,
            "GPFIFO_GET_WORK_SUBMIT_TOKEN",
            channel_controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS,
            _token,
            prefix="NVC36F_CTRL_CMD_",
            kind=Kind.CHANNEL,
        ),
        row(
            channel_controls,
            "GET_CLASS_ENGINEID",
            channel_controls.NVC36F_CTRL_GET_CLASS_ENGINEID_PARAMS,
            _class_engine,
            prefix="NVC36F_CTRL_",
            kind=Kind.CHANNEL,
        ),
        row(
            channel_controls,
            "GET_CLASS_ENGINEID",
            channel_controls.NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS,
            _class_engine,
            prefix="NV906F_CTRL_",
            kind=Kind.CHANNEL,
        ),
        # which exceptions stop a shader for a debugger: none is attached
        row(
            debug,
            "DEBUG_SET_EXCEPTION_MASK",
            debug.NV83DE_CTRL_DEBUG_SET_EXCEPTION_MASK_PARAMS,
            accept,
            kind=Kind.DEBUGGER,
            prefix="NV83DE_CTRL_CMD_",
        ),
    )


def _for_callers(one: Control) -> Control:
    """Return a row of the firmware's half as a process meets it: what is internal is refused (rmControl…Validate)."""
    if "INTERNAL" in one.name:
        answer = refuse(status.NV_ERR_NOT_SUPPORTED, f"{one.name} is internal")
    elif one.name in KERNEL_ONLY:
        answer = refuse(status.NV_ERR_INSUFFICIENT_PERMISSIONS, f"{one.name} is for the kernel's clients")
    else:
        return one
    return Control(one.command, one.name, one.kind, one.layout, one.size_bytes, answer)


def every(machine: Machine, subdevices: tuple[Control, ...]) -> tuple[Control, ...]:
    """Return all controls that a process may ask: the kernel's own in place of the firmware's."""
    rows = {one.command: _for_callers(one) for one in CONTROLS.rows.values()}
    for one in (*_clients(machine), *_devices(), *subdevices, *_channels()):
        rows[one.command] = one
    return *rows.values(), *(_for_callers(one) for one in CONTROLS.later.values())
