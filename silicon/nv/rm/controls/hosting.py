"""Controls of runlists, channels and their contexts."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import rm_ctrl_channel as channel_controls
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import numbers
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.table import Request, accept, row
from ringup.silicon.nv.rm.objects import Group, Resource, Running, Subdevice, state_of
from ringup.silicon.nv.rm.parts import Channel, RmError

# g_kernel_fifo_nvoc.h, ENGINE_INFO_TYPE_*: the words of an engine's entry, in order
WORDS = (
    "descriptor",
    "tag",
    "rm_type",
    "runlist",
    "fault_id",
    "error_mask",
    "reset_id",
    "interrupt",
    "mc_index",
    "device_type",
    "instance",
    "runlist_base",
    "host_driven",
    "group",
    "channel_ram_base",
)
ENTRIES_AT_ONCE = 32  # NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_MAX_ENTRIES
# GUESS: the fault numbers of PBDMAs; on Volta and later headers they follow those of the physical engines
PBDMA_FAULT_BASE = 0x20
# NV2080_NOTIFIERS_MAXCOUNT and NV2080_NOTIFIERS_TIMER of 535: cl2080_notification.h
NOTIFIERS, TIMER = 181, 11
# ctrl2080gpu.h, NV2080_CTRL_GPU_COMPUTE_MODE_RULES_*
COMPUTE_RULES = frozenset((0, 1, 2, 3))
# ctrl2080gr.h, NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_*: when all is idle, between blocks or triangles, anywhere
COMPUTE_MODES = GRAPHICS_MODES = frozenset((0, 1, 2))
BUFFERS = frozenset(range(13))  # NV2080_CTRL_GPU_PROMOTE_CTX_BUFFER_ID_*: ctrl2080gpu.h
PAGE = 4096


def _device_table(request: Request, params: fifo.NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS) -> None:
    """Tell the engines that the host feeds, 32 at a time. GUESS: tag, interrupt and mask of errors, which nothing on
    the CPU's side uses on these chips.
    """
    engines, at = request.manager.board.engines, numbers.of(request.manager.release)
    part = engines[params.baseIndex : params.baseIndex + ENTRIES_AT_ONCE]
    params.numEntries = len(part)
    params.bMore = params.baseIndex + len(part) < len(engines)
    for number, engine in enumerate(part):
        index = params.baseIndex + number
        special = {"tag": index, "error_mask": 1 << index, "interrupt": index, "host_driven": 1}
        special |= {"rm_type": at.rm_type(engine), "mc_index": at.mc_index(engine)}
        entry = params.entries[number]
        for place, word in enumerate(WORDS):
            entry.engineData[place] = special[word] if word in special else getattr(engine, word)
        entry.numPbdmas = len(engine.pbdmas)
        for place, pbdma in enumerate(engine.pbdmas):
            entry.pbdmaIds[place], entry.pbdmaFaultIds[place] = pbdma, PBDMA_FAULT_BASE + pbdma
        entry.engineName[0 : len(engine.name)] = engine.name.encode()


def _channel_count(request: Request, params: internal.NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS) -> None:
    board = request.manager.board
    if params.runlistId not in {engine.runlist for engine in board.engines}:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{board.chip} has no runlist {params.runlistId}")
    params.numChannels = board.channels


def _bind(request: Request, params: channel_controls.NVA06F_CTRL_BIND_PARAMS) -> None:
    """Bind a channel to an engine of its runlist. GUESS: another engine is INVALID_ARGUMENT."""
    channel = state_of(request.target, Running).channel
    engine = request.manager.board.engine(params.engineType)
    if engine is None or engine.runlist != channel.runlist:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"engine {params.engineType:#x} on runlist {channel.runlist}")
    channel.engine_type = params.engineType
    request.manager.effects.channel_bound(channel)


def _schedule(request: Request, channel: Channel, enable: bool) -> None:
    if channel.scheduled != enable:
        channel.scheduled, channel.stopped = enable, False
        if not request.manager.halted:
            request.manager.effects.channel_scheduled(channel, enable)


def _schedule_channel(request: Request, params: channel_controls.NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS) -> None:
    _schedule(request, state_of(request.target, Running).channel, bool(params.bEnable))


def _schedule_group(request: Request, params: channel_controls.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS) -> None:
    for channel in tuple(state_of(request.target, Group).channels):
        _schedule(request, channel, bool(params.bEnable))


def _set_slice(request: Request, params: channel_controls.NVA06C_CTRL_SET_TIMESLICE_PARAMS) -> None:
    """Set how long a group's channels have their engine. GUESS: any time but none; metal rounds it to what its fields
    hold, and is told so by the header.
    """
    if not params.timesliceUs:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a slice without time")
    state_of(request.target, Group).slice.length_us = float(params.timesliceUs)


def _get_slice(request: Request, params: channel_controls.NVA06C_CTRL_GET_TIMESLICE_PARAMS) -> None:
    params.timesliceUs = round(state_of(request.target, Group).slice.length_us)


def _stop(request: Request, params: channel_controls.NVA06F_CTRL_STOP_CHANNEL_PARAMS) -> None:
    """Preempt a channel for good."""
    channel = state_of(request.target, Running).channel
    _schedule(request, channel, False)
    if not channel.stopped:
        channel.stopped = True
        request.manager.effects.channel_stopped(channel)


def _token(request: Request, params: channel_controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS) -> None:
    """Tell what to write to the doorbell: the channel's number. Inference from tinygrad (nv/ip.py, rpc_rm_control): the
    firmware leaves the runlist, which the doorbell wants too, to the caller.
    """
    params.workSubmitToken = state_of(request.target, Running).channel.number


def _whose(request: Request, client: int, handle: int) -> Resource:
    """Return the channel or group whose context a control names."""
    found = request.manager.find(client, handle)
    if found.row.kind not in (Kind.CHANNEL, Kind.GROUP):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{found} has no context")
    return found


def _promote(request: Request, params: gpu.NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS) -> None:
    """Take over the buffers of a channel's context: by a list for graphics, by one address for falcons.

    GUESS: the statuses for buffers that make no sense; the header says only that a buffer that is not mapped must be
    initialised.
    """
    whose = _whose(request, params.hChanClient, params.hObject)
    if request.manager.board.engine(params.engineType) is None:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no engine {params.engineType:#x}")
    if params.entryCount > len(params.promoteEntry):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.entryCount} buffers")
    context = request.manager.contexts.setdefault(whose.number, {})
    for number in range(params.entryCount):
        entry = params.promoteEntry[number]
        if entry.bufferId not in BUFFERS or (entry.bNonmapped and not entry.bInitialize):
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"buffer {entry.bufferId} of {whose}")
        if entry.bInitialize and (not entry.size or entry.gpuPhysAddr % PAGE):
            raise RmError(
                status.NV_ERR_INVALID_ARGUMENT,
                f"buffer {entry.bufferId} has {entry.size} bytes at {entry.gpuPhysAddr:#x}",
            )
        context[entry.bufferId] = (entry.gpuVirtAddr, entry.gpuPhysAddr, entry.size)


def _evict(request: Request, params: gpu.NV2080_CTRL_GPU_EVICT_CTX_PARAMS) -> None:
    request.manager.contexts.pop(_whose(request, params.hChanClient, params.hObject).number, None)


def compute_rules(request: Request, params: gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS) -> None:
    """Take the administrator's compute mode, which the kernel's half keeps. Source: subdevice_ctrl_gpu_kernel.c."""
    if params.rules not in COMPUTE_RULES:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no compute mode {params.rules}")


def preemption(request: Request, params: gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS) -> None:
    """Take what may be in the middle of when a context is switched. Work is never switched away from here.

    GUESS: the statuses; the header lists which values are legal.
    """
    _whose(request, request.target.client.handle, params.hChannel)
    asked = (
        (gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET, params.cilpPreemptMode, COMPUTE_MODES),
        (gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_GFXP_SET << 1, params.gfxpPreemptMode, GRAPHICS_MODES),
    )
    for flag, mode, modes in asked:
        if params.flags & flag and mode not in modes:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no mode {mode} of switching contexts")


def _method_buffers(
    request: Request, params: channel_controls.NVA06C_CTRL_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS_PARAMS
) -> None:
    """Take over a group's buffers for methods after a fault, one for each PBDMA of its runlist."""
    if params.numValidEntries > len(params.methodBufferMemdesc):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.numValidEntries} method buffers")
    state_of(request.target, Group).method_buffers = params.numValidEntries


def _notification(request: Request, params: fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS) -> None:
    """Switch a notification on or off: subdeviceCtrlCmdEventSetNotification. What is on cannot be switched on."""
    if not request.manager.subscribed(request.target):
        raise RmError(status.NV_ERR_INVALID_STATE, f"{request.target} has no event")
    if params.event >= NOTIFIERS or params.event == TIMER:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no notification {params.event}")
    actions = state_of(request.target, Subdevice).actions
    off = fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_DISABLE
    if params.action == off:
        actions.pop(params.event, None)
    elif params.action not in (
        fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_SINGLE,
        fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT,
    ):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no action {params.action}")
    elif params.event in actions:
        raise RmError(status.NV_ERR_INVALID_STATE, f"notification {params.event} is on")
    else:
        actions[params.event] = params.action


ROWS = (
    row(fifo, "FIFO_GET_DEVICE_INFO_TABLE", fifo.NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS, _device_table),
    row(
        internal,
        "INTERNAL_FIFO_GET_NUM_CHANNELS",
        internal.NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS,
        _channel_count,
    ),
    row(
        channel_controls,
        "BIND",
        channel_controls.NVA06F_CTRL_BIND_PARAMS,
        _bind,
        kind=Kind.CHANNEL,
        prefix="NVA06F_CTRL_CMD_",
    ),
    row(
        channel_controls,
        "GPFIFO_SCHEDULE",
        channel_controls.NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS,
        _schedule_channel,
        kind=Kind.CHANNEL,
        prefix="NVA06F_CTRL_CMD_",
    ),
    row(
        channel_controls,
        "GPFIFO_GET_WORK_SUBMIT_TOKEN",
        channel_controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS,
        _token,
        kind=Kind.CHANNEL,
        prefix="NVC36F_CTRL_CMD_",
    ),
    row(
        channel_controls,
        "STOP_CHANNEL",
        channel_controls.NVA06F_CTRL_STOP_CHANNEL_PARAMS,
        _stop,
        kind=Kind.CHANNEL,
        prefix="NVA06F_CTRL_CMD_",
    ),
    row(
        channel_controls,
        "GPFIFO_SCHEDULE",
        channel_controls.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS,
        _schedule_group,
        kind=Kind.GROUP,
        prefix="NVA06C_CTRL_CMD_",
    ),
    *(
        row(channel_controls, name, layout, answer, kind=Kind.GROUP, prefix="NVA06C_CTRL_CMD_")
        for name, layout, answer in (
            ("SET_TIMESLICE", channel_controls.NVA06C_CTRL_SET_TIMESLICE_PARAMS, _set_slice),
            ("INTERNAL_SET_TIMESLICE", channel_controls.NVA06C_CTRL_INTERNAL_SET_TIMESLICE_PARAMS, _set_slice),
            ("GET_TIMESLICE", channel_controls.NVA06C_CTRL_GET_TIMESLICE_PARAMS, _get_slice),
        )
    ),
    row(
        channel_controls,
        "INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS",
        channel_controls.NVA06C_CTRL_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS_PARAMS,
        _method_buffers,
        kind=Kind.GROUP,
        prefix="NVA06C_CTRL_CMD_",
    ),
    row(gpu, "GPU_PROMOTE_CTX", gpu.NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS, _promote),
    row(gpu, "GPU_SET_COMPUTE_MODE_RULES", gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS, compute_rules),
    row(gr, "GR_SET_CTXSW_PREEMPTION_MODE", gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, preemption),
    row(gpu, "GPU_EVICT_CTX", gpu.NV2080_CTRL_GPU_EVICT_CTX_PARAMS, _evict),
    row(fifo, "EVENT_SET_NOTIFICATION", fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS, _notification),
    # the firmware services its interrupts when they come; none waits for being asked
    row(fifo, "MC_SERVICE_INTERRUPTS", fifo.NV2080_CTRL_MC_SERVICE_INTERRUPTS_PARAMS, accept),
)
