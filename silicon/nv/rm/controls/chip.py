"""Controls that describe the chip: engines, interrupt vectors, falcons, register bases. All from the board's row."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.silicon.nv.rm import identity, numbers
from ringup.silicon.nv.rm.boards.facts import (
    NO_VECTOR,
    NOTIFICATION_SUBTREE,
    STALL_SUBTREE,
    UVM_OWNED_SUBTREE,
    UVM_SHARED_SUBTREE,
)
from ringup.silicon.nv.rm.controls.table import Request, row

# g_gpu_nvoc.h, NV_REG_BASE_*
REG_BASE_USERMODE = 4
NO_REG_BASE = 0xFFFFFFFF
# ctrl2080internal.h, NV2080_INTR_CATEGORY_*
(
    ENGINE,
    ENGINE_NOTIFICATION,
    RUNLIST,
    RUNLIST_NOTIFICATION,
    UVM_OWNED,
    UVM_SHARED,
) = range(1, 7)
NO_SUBTREE = 0xFF  # NV2080_INTR_INVALID_SUBTREE


def _chip_info(request: Request, params: internal.NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS) -> None:
    chip = request.manager.chip
    if hasattr(params, "bar1Size"):
        # releases since 550 ask for it elsewhere
        params.bar1Size = chip.bar1_bytes >> 20
    params.pciDeviceId, params.pciSubDeviceId = identity.pci_ids(chip)
    params.pciRevisionId = chip.revision
    for index in range(len(params.regBases)):
        params.regBases[index] = NO_REG_BASE
    params.regBases[REG_BASE_USERMODE] = request.manager.board.usermode_base


def _kernel_table(request: Request, params: internal.NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS) -> None:
    """Tell which vector each unit has. Inference: engines' stalling interrupts are the firmware's own, which resets
    engines, so the CPU gets no vector for them.
    """
    board, vectors = request.manager.board, request.manager.board.vectors
    at = numbers.of(request.manager.release)
    entries = [(at.mc_index(engine), NO_VECTOR, engine.notification_vector) for engine in board.engines]
    entries += [
        (index, vector, NO_VECTOR)
        for index, vector in (
            (at.timer, vectors.timer),
            (at.gsp, vectors.gsp),
            (at.replayable_fault, vectors.replayable_fault),
            (at.access_counter, vectors.access_counter),
            (at.non_replayable_fault, vectors.non_replayable_fault),
            (at.replayable_fault_error, vectors.replayable_fault_error),
            (at.non_replayable_fault_error, vectors.non_replayable_fault_error),
            (at.cpu_doorbell, vectors.cpu_doorbell),
        )
    ]
    if board.display is not None:
        entries.append((at.display, board.display.vector, NO_VECTOR))
        if at.display_low:
            entries.append((at.display_low, board.display.low_latency_vector, NO_VECTOR))
    params.tableLen = len(entries)
    for number, (index, stall, notification) in enumerate(entries):
        entry = params.table[number]
        entry.engineIdx, entry.vectorStall, entry.vectorNonStall = index, stall, notification
    subtrees = {
        ENGINE: STALL_SUBTREE,
        ENGINE_NOTIFICATION: NOTIFICATION_SUBTREE,
        UVM_OWNED: UVM_OWNED_SUBTREE,
        UVM_SHARED: UVM_SHARED_SUBTREE,
    }
    for category in range(len(params.subtreeMap)):
        place = params.subtreeMap[category]
        place.subtreeStart = place.subtreeEnd = subtrees.get(category, NO_SUBTREE)


def _device_info(request: Request, params: internal.NV2080_CTRL_INTERNAL_GET_DEVICE_INFO_TABLE_PARAMS) -> None:
    engines = request.manager.board.engines
    params.numEntries = len(engines)
    for number, engine in enumerate(engines):
        entry = params.deviceInfoTable[number]
        entry.faultId, entry.instanceId, entry.typeEnum = engine.fault_id, engine.instance, engine.device_type
        entry.resetId, entry.devicePriBase, entry.isEngine = engine.reset_id, engine.register_base, 1
        entry.rlEngId, entry.runlistPriBase, entry.groupId = engine.group, engine.runlist_base, 0


def _falcons(
    request: Request,
    params: internal.NV2080_CTRL_INTERNAL_GET_CONSTRUCTED_FALCON_INFO_PARAMS
    | gpu.NV2080_CTRL_GPU_GET_CONSTRUCTED_FALCON_INFO_PARAMS,
) -> None:
    """Tell the falcons that channels run on, and how large a channel's context of each is."""
    falcons = [engine for engine in request.manager.board.engines if engine.context_bytes]
    params.numConstructedFalcons = len(falcons)
    for number, engine in enumerate(falcons):
        entry = params.constructedFalconsTable[number]
        entry.engDesc, entry.ctxBufferSize = engine.descriptor, engine.context_bytes
        # ADDR_FBMEM, the only place that this firmware offers: 1 << 2
        entry.addrSpaceList, entry.registerBase = 1 << 2, engine.register_base


def _engines(request: Request, params: gpu.NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS) -> None:
    engines = request.manager.board.engines
    params.engineCount = len(engines)
    for number, engine in enumerate(engines):
        params.engineList[number] = engine.nv2080_type


ROWS = (
    row(internal, "INTERNAL_GPU_GET_CHIP_INFO", internal.NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS, _chip_info),
    row(
        internal,
        "INTERNAL_INTR_GET_KERNEL_TABLE",
        internal.NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS,
        _kernel_table,
    ),
    row(
        internal,
        "INTERNAL_GET_DEVICE_INFO_TABLE",
        internal.NV2080_CTRL_INTERNAL_GET_DEVICE_INFO_TABLE_PARAMS,
        _device_info,
    ),
    row(
        internal,
        "INTERNAL_GET_CONSTRUCTED_FALCON_INFO",
        internal.NV2080_CTRL_INTERNAL_GET_CONSTRUCTED_FALCON_INFO_PARAMS,
        _falcons,
    ),
    # its number since 550
    row(
        gpu,
        "GPU_GET_CONSTRUCTED_FALCON_INFO",
        gpu.NV2080_CTRL_GPU_GET_CONSTRUCTED_FALCON_INFO_PARAMS,
        _falcons,
    ),
    row(gpu, "GPU_GET_ENGINES_V2", gpu.NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS, _engines),
)
