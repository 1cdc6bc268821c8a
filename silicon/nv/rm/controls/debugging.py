"""Controls of a debugger's session and of a channel: what went wrong on it.

Source: ctrl83dedebug.h and ctrl906f.h of NVIDIA's open kernel modules, which describe each parameter.
"""

from __future__ import annotations

from typing import Any

from ringup.autogen.nv import mmu, status
from ringup.autogen.nv import rm_ctrl_channel as channels
from ringup.autogen.nv import rm_ctrl_debug as debug
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.table import Request, row
from ringup.silicon.nv.rm.objects import Debugged, Running, state_of
from ringup.silicon.nv.rm.parts import RmError

# NV_PFAULT_ACCESS_TYPE_VIRT_READ and _WRITE: dev_fault.h
READ, WRITE = 0, 1
# GUESS: faultInfo has its fields where NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_INFO has them
ACCESS_SHIFT = 16


def _core_errors(request: Request, params: debug.NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS) -> None:
    """Tell the errors of the shader cores, none, and whether a page fault stopped the channel.

    Refused for a channel that another error stopped: the cores' error registers are not modelled.
    """
    if params.numSMsToRead > len(params.smErrorStateArray):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.numSMsToRead} shader cores at one time")
    found = request.manager.clients.find(request.target.client, params.hTargetChannel)
    if found.row.kind is not Kind.CHANNEL:
        raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no channel")
    channel = state_of(found, Running).channel
    faults = channel.mmu_faults
    if channel.stopped and not faults:
        raise RmError(status.NV_ERR_NOT_SUPPORTED, "error registers of shader cores are not modelled")
    for number in range(params.numSMsToRead):
        core = params.smErrorStateArray[number]
        core.hwwGlobalEsr = core.hwwWarpEsr = core.hwwWarpEsrPc = core.hwwEsrAddr = core.hwwWarpEsrPc64 = 0
    params.mmuFault.valid = bool(faults)
    info = faults[0].kind | (WRITE if faults[0].write else READ) << ACCESS_SHIFT if faults else 0
    params.mmuFault.faultInfo = params.mmuFaultInfo = info


def _page_faults(request: Request, params: debug.NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS) -> None:
    """Tell the last page faults of the session's channel."""
    faults = state_of(request.target, Debugged).channel.mmu_faults[-len(params.mmuFaultInfoList) :]
    for number, fault in enumerate(faults):
        entry = params.mmuFaultInfoList[number]
        # GUESS: an MMU reports the page
        entry.faultAddress, entry.faultType = fault.gpu_va & ~0xFFF, fault.kind
        entry.accessType = WRITE if fault.write else READ
    params.count = len(faults)


def _told_fault(request: Request, params: Any) -> None:
    """Tell the channel's page fault once: zeros from then on. GUESS: the text is the type's name in dev_fault.h."""
    channel = state_of(request.target, Running).channel
    if channel.fault_was_told or not channel.mmu_faults:
        return
    channel.fault_was_told = True
    fault = channel.mmu_faults[-1]
    # GUESS: an MMU reports the page
    params.addrHi, params.addrLo, params.faultType = fault.gpu_va >> 32, fault.gpu_va & 0xFFFF_F000, fault.kind
    params.faultString = FAULT_NAMES.get(fault.kind, "FAULT").encode()


FAULT_NAMES = {
    value: name.replace("NV_PFAULT_FAULT_TYPE_", "FAULT_")
    for name, value in vars(mmu).items()
    if name.startswith("NV_PFAULT_FAULT_TYPE_") and name != "NV_PFAULT_FAULT_TYPE_CC_VIOLATION"
}

ROWS = (
    row(
        channels,
        "GET_MMU_FAULT_INFO",
        channels.NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS,
        _told_fault,
        kind=Kind.CHANNEL,
        prefix="NV906F_CTRL_CMD_",
    ),
    row(
        debug,
        "DEBUG_READ_ALL_SM_ERROR_STATES",
        debug.NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS,
        _core_errors,
        kind=Kind.DEBUGGER,
        prefix="NV83DE_CTRL_CMD_",
    ),
    row(
        debug,
        "DEBUG_READ_MMU_FAULT_INFO",
        debug.NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS,
        _page_faults,
        kind=Kind.DEBUGGER,
        prefix="NV83DE_CTRL_CMD_",
    ),
)
