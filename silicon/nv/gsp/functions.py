"""Calls by number: what each does, and how long its body is.

Source: rpc.c and g_rpc-structures.h of NVIDIA's open kernel modules 535 (what the CPU sends and expects back), and
nouveau 6.12 (r535.c). What the firmware does is inferred from both. Inference from rpcRmApiAlloc_GSP, which looks at
no other word: a failed allocation, duplication or free has its status in the header's result. From
rpcRmApiControl_GSP: a failed control has 0 there, and its status in the body only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from ringup.autogen.nv import classes, status
from ringup.autogen.nv import gsp_rpc as rpc
from ringup.silicon.nv.gsp import registry
from ringup.silicon.nv.gsp.calls import Call
from ringup.silicon.nv.gsp.queue import QueueError
from ringup.silicon.nv.gsp.session import Session
from ringup.silicon.nv.gsp.static_info import build as build_static_info
from ringup.silicon.nv.memory.formats import FORMATS
from ringup.silicon.nv.rm import page_directories
from ringup.silicon.nv.rm.objects import Paged
from ringup.silicon.nv.rm.parts import Aperture, RmError

# rmapi.h, RMAPI_RPC_FLAGS_*
COPYOUT_ON_ERROR, SERIALIZED = 1, 2
# rpc_global_enums.h, NV_RPC_UPDATE_PDE_BAR_*
BARS = {0: 1, 1: 2}
# bits of an address that an entry of the root covers, by the version of the page tables' format
ROOT_SHIFTS = {version: one.levels[0][0] for version, one in FORMATS.items()}
WINDOWS = struct.Struct("<3Q")
# an entry of ALLOC_MEMORY is the number of a page, if the descriptor has no further level: sdk-structures.h
ENTRY, PAGE_SHIFT, DIRECT = 8, 12, 0  # NV_VGPU_PTEDESC_IDR_NONE


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a body, and the two results of the header."""

    body: bytes
    result: int = rpc.NV_VGPU_MSG_RESULT_SUCCESS
    private: int = rpc.NV_VGPU_MSG_RESULT_SUCCESS


Handler = Callable[[Session, Call], Answer | None]


@dataclass(frozen=True, slots=True)
class Function:
    """One row. `size_bytes`: the least body. `extent`: how long the body is, from its first bytes; None if it is fixed.

    `early`: allowed before INIT_DONE. A handler that returns None sends no answer.
    """

    number: int
    name: str
    size_bytes: int
    handler: Handler
    extent: Callable[[bytes], int] | None = None
    early: bool = False


def _set_system_info(session: Session, call: Call) -> None:
    """Keep what the CPU says of the system. Nothing is answered."""
    if len(call.body) != session.release.system_info_bytes:
        raise QueueError(
            "length", f"system information has {len(call.body)} bytes, not {session.release.system_info_bytes}"
        )
    session.system_info = call.body
    # gpuPhysAddr, gpuPhysFbAddr, gpuPhysInstAddr: the first members in every release
    session.manager.windows = WINDOWS.unpack_from(call.body)


def _set_registry(session: Session, call: Call) -> None:
    """Keep the registry. Nothing is answered."""
    session.registry = registry.parse(call.body)


def _set_guest_system_info(session: Session, call: Call) -> Answer:
    """Compare versions; the answer has the firmware's."""
    body = bytearray(call.body)
    info = rpc.rpc_set_guest_system_info_v03_00.view(body)
    same = (info.vgxVersionMajorNum, info.vgxVersionMinorNum) == session.release.vgx
    info.vgxVersionMajorNum, info.vgxVersionMinorNum = session.release.vgx
    private = rpc.NV_VGPU_MSG_RESULT_SUCCESS if same else rpc.NV_VGPU_MSG_RESULT_GUEST_HOST_DRIVER_MISMATCH
    return Answer(bytes(body), private=private)


def _get_static_info(session: Session, call: Call) -> Answer:
    return Answer(build_static_info(session.board, session.chip, session.map, session.boot, session.release.layouts))


def _update_bar_pde(session: Session, call: Call) -> Answer:
    """Write an entry of the root of BAR 1's or BAR 2's address space, which the firmware owns."""
    view = rpc.rpc_update_bar_pde_v15_00.view(bytearray(call.body))
    info = view.info
    bar = BARS.get(info.barType)
    if bar is None or info.entryLevelShift != ROOT_SHIFTS[session.chip.mmu_version]:
        # GUESS: the status
        return Answer(call.body, status.NV_ERR_INVALID_ARGUMENT)
    root = session.map.bar1_root if bar == 1 else session.map.bar2_root
    session.memory.write(Aperture.VRAM, root, struct.pack("<Q", info.entryValue))
    session.events.update_bar_pde(bar, info.entryValue, info.entryLevelShift)
    return Answer(call.body)


def _check_plain(session: Session, flags: int) -> None:
    """Refuse parameters in the compact form of FINN, which no driver has sent yet."""
    if flags & SERIALIZED:
        session.manager.unmodelled["serialized parameters"] += 1
        raise RmError(status.NV_ERR_NOT_SUPPORTED, "serialized parameters are not modelled")


def _alloc(session: Session, call: Call) -> Answer:
    """RM_ALLOC. NVIDIA's driver leaves the parameters out of the length, and they are in the elements all the same."""
    head = rpc.rpc_gsp_rm_alloc_v03_00
    size = struct.unpack_from("<I", call.body, head.offset_of("paramsSize"))[0]
    source = call.body if len(call.body) >= head.SIZE + size else call.beyond
    if len(source) < head.SIZE + size:
        raise QueueError("length", f"an allocation says it has {size} bytes of parameters; the message ends before")
    body = bytearray(source[: head.SIZE + size])
    client, parent, handle, number, _, _, flags = struct.unpack_from("<7I", body)
    code = status.NV_OK
    try:
        _check_plain(session, flags)
        made, params = session.manager.alloc(client, parent, handle, number, bytes(body[head.SIZE :]))
        struct.pack_into("<I", body, head.offset_of("hObject"), made)
        body[head.SIZE :] = params
    except RmError as error:
        code = session.refused(f"allocation of class {number:#06x}", error)
    struct.pack_into("<I", body, head.offset_of("status"), code)
    return Answer(bytes(body), code)


def _control_extent(body: bytes) -> int:
    head = rpc.rpc_gsp_rm_control_v03_00
    return head.SIZE + int(struct.unpack_from("<I", body, head.offset_of("paramsSize"))[0])


def _control(session: Session, call: Call) -> Answer:
    head = rpc.rpc_gsp_rm_control_v03_00
    size = _control_extent(call.body) - head.SIZE
    body = bytearray(call.body[: head.SIZE + size])
    client, handle, command, _, _, flags = struct.unpack_from("<6I", body)
    data = bytearray(body[head.SIZE :])
    code = status.NV_OK
    try:
        _check_plain(session, flags)
        session.controls.run(session.manager, client, handle, command, data)
    except RmError as error:
        code = session.refused(f"control {command:#010x}", error)
    if code == status.NV_OK or flags & COPYOUT_ON_ERROR:
        body[head.SIZE :] = data
    struct.pack_into("<I", body, head.offset_of("status"), code)
    return Answer(bytes(body))


def _free(session: Session, call: Call) -> Answer:
    body = bytearray(call.body)
    view = rpc.rpc_free_v03_00.view(body)
    params = view.params
    try:
        session.manager.free(params.hRoot, params.hObjectOld)
    except RmError as error:
        params.status = session.refused(f"free of {params.hObjectOld:#x}", error)
    code = params.status
    return Answer(bytes(body), code)


def _dup(session: Session, call: Call) -> Answer:
    body = bytearray(call.body)
    view = rpc.rpc_dup_object_v03_00.view(body)
    params = view.params
    try:
        params.hObject = session.manager.dup(
            params.hClient, params.hParent, params.hObject, params.hClientSrc, params.hObjectSrc
        )
    except RmError as error:
        params.status = session.refused(f"duplication of {params.hObjectSrc:#x}", error)
    code = params.status
    return Answer(bytes(body), code)


def _set_page_directory(session: Session, call: Call) -> Answer:
    view = rpc.rpc_set_page_directory_v1E_05.view(bytearray(call.body))
    params, code = view.params, status.NV_OK
    try:
        page_directories.set_by_device(
            session.manager,
            session.manager.find(view.hClient, view.hDevice),
            params.hVASpace,
            page_directories.described(params.physAddress, params.numEntries, params.flags),
        )
    except RmError as error:
        code = session.refused("SET_PAGE_DIRECTORY", error)
    return Answer(call.body, code)


def _unset_page_directory(session: Session, call: Call) -> Answer:
    view = rpc.rpc_unset_page_directory_v1E_05.view(bytearray(call.body))
    code = status.NV_OK
    try:
        page_directories.set_by_device(
            session.manager, session.manager.find(view.hClient, view.hDevice), view.params.hVASpace, None
        )
    except RmError as error:
        code = session.refused("UNSET_PAGE_DIRECTORY", error)
    return Answer(call.body, code)


def _memory_extent(body: bytes) -> int:
    """Return the length with all entries. Their number is not in the descriptor, which has 16 bits for it."""
    head = rpc.rpc_alloc_memory_v13_01
    return head.SIZE + ENTRY * int(struct.unpack_from("<I", body, head.offset_of("pageCount"))[0])


def _paged(view: rpc.rpc_alloc_memory_v13_01, numbers: tuple[int, ...]) -> Paged:
    if not numbers or view.pteDesc.idr != DIRECT or view.length > len(numbers) << PAGE_SHIFT:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{view.length:#x} bytes in {len(numbers)} pages")
    aperture = Aperture.VRAM if view.hClass == classes.NV01_MEMORY_LIST_FBMEM else Aperture.SYSMEM
    return Paged(aperture, tuple(number << PAGE_SHIFT for number in numbers))


def _alloc_memory(session: Session, call: Call) -> Answer:
    """ALLOC_MEMORY: a memory object of pages. Nothing but the header's result tells of a failure.

    Inference from _issueRpcLarge, which takes one record back for a call that goes one way: the answer has no entries.
    """
    head = rpc.rpc_alloc_memory_v13_01
    view = head.view(bytearray(call.body[: head.SIZE]))
    code = status.NV_OK
    try:
        paged = _paged(view, struct.unpack_from(f"<{view.pageCount}Q", call.body, head.SIZE))
        session.manager.alloc_pages(view.hClient, view.hDevice, view.hMemory, view.hClass, paged)
    except RmError as error:
        code = session.refused(f"memory {view.hMemory:#x}", error)
    return Answer(call.body[: head.SIZE], code)


def _unload(session: Session, call: Call) -> Answer:
    """The CPU's driver goes, or the machine sleeps. The firmware answers and stops."""
    session.ending = True
    session.sleeping = bool(rpc.rpc_unloading_guest_driver_v1F_07.view(bytearray(call.body)).bInPMTransition)
    return Answer(call.body)


def _row(
    name: str,
    size_bytes: int,
    handler: Handler,
    extent: Callable[[bytes], int] | None = None,
    *,
    early: bool = False,
) -> Function:
    return Function(int(getattr(rpc, f"NV_VGPU_MSG_FUNCTION_{name}")), name, size_bytes, handler, extent, early)


ROWS = {
    row.number: row
    for row in (
        _row("GSP_SET_SYSTEM_INFO", 0, _set_system_info, early=True),
        _row("SET_REGISTRY", rpc.PACKED_REGISTRY_TABLE.SIZE, _set_registry, registry.extent, early=True),
        _row("SET_GUEST_SYSTEM_INFO", rpc.rpc_set_guest_system_info_v03_00.SIZE, _set_guest_system_info),
        _row("GET_GSP_STATIC_INFO", 0, _get_static_info),
        _row("UPDATE_BAR_PDE", rpc.rpc_update_bar_pde_v15_00.SIZE, _update_bar_pde),
        _row("GSP_RM_ALLOC", rpc.rpc_gsp_rm_alloc_v03_00.SIZE, _alloc),
        _row("GSP_RM_CONTROL", rpc.rpc_gsp_rm_control_v03_00.SIZE, _control, _control_extent),
        _row("ALLOC_MEMORY", rpc.rpc_alloc_memory_v13_01.SIZE, _alloc_memory, _memory_extent),
        _row("FREE", rpc.rpc_free_v03_00.SIZE, _free),
        _row("DUP_OBJECT", rpc.rpc_dup_object_v03_00.SIZE, _dup),
        _row("SET_PAGE_DIRECTORY", rpc.rpc_set_page_directory_v1E_05.SIZE, _set_page_directory),
        _row("UNSET_PAGE_DIRECTORY", rpc.rpc_unset_page_directory_v1E_05.SIZE, _unset_page_directory),
        _row("UNLOADING_GUEST_DRIVER", rpc.rpc_unloading_guest_driver_v1F_07.SIZE, _unload),
    )
}


def extent(function: int, body: bytes) -> int:
    """Return how long a call's body is, as far as its first bytes tell."""
    row = ROWS.get(function)
    if row is None or row.extent is None or len(body) < row.size_bytes:
        return 0
    return row.extent(body)


def carry_out(session: Session, call: Call) -> Answer | None:
    """Carry a call out. Raises `QueueError` for a body that is too short, and for a call that came too early."""
    row = ROWS.get(call.function)
    session.note("call", hex(call.function) if row is None else row.name)
    if row is None:
        session.manager.unmodelled[f"call {call.function:#x}"] += 1
        session.note("unmodelled", f"call {call.function:#x} of {len(call.body)} bytes")
        return Answer(call.body, rpc.NV_VGPU_MSG_RESULT_RPC_UNKNOWN_FUNCTION)
    if len(call.body) < row.size_bytes:
        raise QueueError("length", f"{row.name} has {len(call.body)} bytes, not {row.size_bytes}")
    if not session.initialised and not row.early:
        # GUESS: metal, which reads the queue in order, answers it after INIT_DONE; no driver does this
        raise QueueError("state", f"{row.name} before INIT_DONE")
    return row.handler(session, call)
