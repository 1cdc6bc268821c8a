"""Controls of a subdevice that the kernel's half answers from what the firmware's half told it at the start.

Source: subdevice_ctrl_*.c and kernel_graphics_manager.c of NVIDIA's open kernel modules 535.261.03.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ringup.autogen.nv import rm_ctrl_2080_bus as bus
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_firmware as firmware
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_2080_nvlink as nvlink
from ringup.autogen.nv import status
from ringup.silicon.nv.kernel.controls import load, store
from ringup.silicon.nv.kernel.facts import Machine
from ringup.silicon.nv.kernel.half import KernelHalf
from ringup.silicon.nv.rm import identity
from ringup.silicon.nv.rm.controls import about, frame, hosting, shaders
from ringup.silicon.nv.rm.controls import bus as bus_facts
from ringup.silicon.nv.rm.controls.copying import caps
from ringup.silicon.nv.rm.controls.lists import Values, fill
from ringup.silicon.nv.rm.controls.table import Control, Request, accept, row
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.parts import RmError

KIB = 1 << 10
# an entry of a list of facts: its index and its value
ENTRY = struct.Struct("<II")


def _graphics(manager: Manager) -> Values:
    """Return the facts of the graphics engine by index."""

    def fact(value: int) -> Callable[[Manager], int]:
        return lambda manager: value

    facts = shaders.info(manager.board)
    return {int(getattr(gr, shaders.INDEX + name)): fact(value) for name, value in facts.items()}


def _gr_info(request: Request, params: gr.NV2080_CTRL_GR_GET_INFO_PARAMS) -> None:
    """Fill in a list that the caller points to. GUESS: an index without a fact of ours is 0, as the driver's table
    begins with zeros.
    """
    count = params.grInfoListSize
    if not 1 <= count <= gr.NV2080_CTRL_GR_INFO_MAX_SIZE:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a list of {count} facts")
    data, values = load(params.grInfoList, ENTRY.size * count), _graphics(request.manager)
    answers = []
    for index, _ in ENTRY.iter_unpack(data):
        if index >= gr.NV2080_CTRL_GR_INFO_MAX_SIZE:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"fact {index:#x} of the graphics engine")
        value = values.get(index)
        answers.append(ENTRY.pack(index, value(request.manager) if value is not None else 0))
    store(params.grInfoList, b"".join(answers))


def _gr_info_in_place(request: Request, params: gr.NV2080_CTRL_GR_GET_INFO_V2_PARAMS) -> None:
    zero: Values = {index: lambda manager: 0 for index in range(len(params.grInfoList))}
    values = {**zero, **_graphics(request.manager)}
    fill(request.manager, params.grInfoListSize, params.grInfoList, values, "facts of the graphics engine")


def _gpc_mask(request: Request, params: gr.NV2080_CTRL_GR_GET_GPC_MASK_PARAMS) -> None:
    params.gpcMask = (1 << len(request.manager.board.shaders.tpc_masks)) - 1


def _tpc_mask(request: Request, params: gr.NV2080_CTRL_GR_GET_TPC_MASK_PARAMS) -> None:
    masks = request.manager.board.shaders.tpc_masks
    if params.gpcId >= len(masks):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"GPC {params.gpcId} of {len(masks)}")
    params.tpcMask = masks[params.gpcId]


def _sm_order(request: Request, params: gr.NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS) -> None:
    shaders.fill_order(request.manager.board, params)


def _context_size(request: Request, params: gr.NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS) -> None:
    """Tell how much a channel's context takes. GUESS: the sum of its buffers."""
    params.totalBufferSize = sum(size for size, _ in request.manager.board.context_buffers.values())


def _architecture(request: Request, params: fifo.NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS) -> None:
    board = request.manager.board
    params.architecture, params.implementation = board.architecture, board.implementation
    params.revision, params.subRevision = request.manager.chip.revision, 0


def _pci(request: Request, params: bus.NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS) -> None:
    chip = request.manager.chip
    params.pciDeviceId, params.pciSubSystemId = identity.pci_ids(chip)
    params.pciRevisionId, params.pciExtDeviceId = chip.revision, chip.device_id


def _copy_caps(request: Request, params: fifo.NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS) -> None:
    """Tell what each copy engine can. A channel's own copies are no concern of a process."""
    params.present = 0
    copying = request.manager.copying
    for lce in copying.lces:
        if copying.pce_mask(lce):
            params.present |= 1 << lce
            params.capsTbl[lce][0:2] = caps(request, lce)


def _gpu_info(request: Request, params: gpu.NV2080_CTRL_GPU_GET_INFO_V2_PARAMS) -> None:
    """Fill in facts of the card. GUESS: what the firmware has no fact of is 0."""
    zero: Values = {index: lambda manager: 0 for index in range(len(params.gpuInfoList))}
    fill(request.manager, params.gpuInfoListSize, params.gpuInfoList, {**zero, **about.INFO}, "facts of the card")


def _bus_info(request: Request, params: bus.NV2080_CTRL_BUS_GET_INFO_V2_PARAMS) -> None:
    """Fill in facts of the bus. GUESS: what the firmware has no fact of is 0."""
    zero: Values = {index: lambda manager: 0 for index in range(len(params.busInfoList))}
    fill(request.manager, params.busInfoListSize, params.busInfoList, {**zero, **bus_facts.INFO}, "facts of the bus")


def _memory(half: KernelHalf) -> Callable[[Request, Any], None]:
    values: Values = {
        **frame.INFO,
        fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE: lambda manager: (half.heap.end - half.heap.start) // KIB,
        fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE: lambda manager: half.heap.free_bytes // KIB,
        fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_START: lambda manager: half.heap.start // KIB,
        fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_BASE_KB: lambda manager: half.heap.start // KIB,
        fb.NV2080_CTRL_FB_INFO_INDEX_VISTA_RESERVED_HEAP_SIZE: lambda manager: 0,
    }

    def answer(request: Request, params: fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS) -> None:
        zero: Values = {index: lambda manager: 0 for index in range(len(params.fbInfoList))}
        fill(request.manager, params.fbInfoListSize, params.fbInfoList, {**zero, **values}, "facts of memory")

    return answer


def _number(machine: Machine) -> Callable[[Request, Any], None]:
    def answer(request: Request, params: gpu.NV2080_CTRL_GPU_GET_ID_PARAMS) -> None:
        params.gpuId = machine.gpu_id

    return answer


def rows(machine: Machine, half: KernelHalf, now_ns: Callable[[], int]) -> tuple[Control, ...]:
    """Return the controls. `now_ns`: the time of the card's timer."""

    def time(request: Request, params: fifo.NV2080_CTRL_TIMER_GET_TIME_PARAMS) -> None:
        params.time_nsec = now_ns()

    return (
        row(gr, "GR_GET_INFO", gr.NV2080_CTRL_GR_GET_INFO_PARAMS, _gr_info),
        row(gr, "GR_GET_INFO_V2", gr.NV2080_CTRL_GR_GET_INFO_V2_PARAMS, _gr_info_in_place),
        row(gr, "GR_GET_GPC_MASK", gr.NV2080_CTRL_GR_GET_GPC_MASK_PARAMS, _gpc_mask),
        row(gr, "GR_GET_TPC_MASK", gr.NV2080_CTRL_GR_GET_TPC_MASK_PARAMS, _tpc_mask),
        row(gr, "GR_GET_GLOBAL_SM_ORDER", gr.NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS, _sm_order),
        row(gr, "GR_GET_CTX_BUFFER_SIZE", gr.NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS, _context_size),
        # zeros: no named capabilities, nothing slowed down, a whole card, no link
        row(gr, "GR_GET_CAPS_V2", gr.NV2080_CTRL_GR_GET_CAPS_V2_PARAMS, accept),
        row(gr, "GR_GET_SM_ISSUE_RATE_MODIFIER", gr.NV2080_CTRL_GR_GET_SM_ISSUE_RATE_MODIFIER_PARAMS, accept),
        row(gpu, "GPU_GET_SIMULATION_INFO", gpu.NV2080_CTRL_GPU_GET_SIMULATION_INFO_PARAMS, accept),
        *half.compute_mode.rows(),
        row(gpu, "GPU_GET_ACTIVE_PARTITION_IDS", gpu.NV2080_CTRL_GPU_GET_ACTIVE_PARTITION_IDS_PARAMS, accept),
        row(nvlink, "NVLINK_GET_NVLINK_STATUS", nvlink.NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS_PARAMS, accept),
        row(gr, "GR_SET_CTXSW_PREEMPTION_MODE", gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS, hosting.preemption),
        # the clocks do not change; no watchdog runs
        row(firmware, "PERF_BOOST", firmware.NV2080_CTRL_PERF_BOOST_PARAMS, accept),
        row(fifo, "RC_RELEASE_WATCHDOG_REQUESTS", None, accept),
        row(fifo, "RC_SOFT_DISABLE_WATCHDOG", None, accept),
        row(gpu, "GPU_GET_ID", gpu.NV2080_CTRL_GPU_GET_ID_PARAMS, _number(machine)),
        row(gpu, "GPU_GET_INFO_V2", gpu.NV2080_CTRL_GPU_GET_INFO_V2_PARAMS, _gpu_info),
        row(fifo, "MC_GET_ARCH_INFO", fifo.NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS, _architecture),
        row(fifo, "TIMER_GET_TIME", fifo.NV2080_CTRL_TIMER_GET_TIME_PARAMS, time),
        row(fifo, "CE_GET_ALL_CAPS", fifo.NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS, _copy_caps),
        row(bus, "BUS_GET_PCI_INFO", bus.NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS, _pci),
        row(bus, "BUS_GET_INFO_V2", bus.NV2080_CTRL_BUS_GET_INFO_V2_PARAMS, _bus_info),
        row(fb, "FB_GET_INFO_V2", fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS, _memory(half)),
    )
