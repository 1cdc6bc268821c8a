"""Controls of the graphics engine: masks, order of the SMs, sizes of context buffers.

Every answer has room for eight graphics engines; these chips have one, the first. What is not set is zero.
"""

from __future__ import annotations

from typing import Any

from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.boards.facts import REGISTER_BANKS, THREADS_PER_WARP, Board, Shaders
from ringup.silicon.nv.rm.controls.table import Control, Request, accept, refuse, row
from ringup.silicon.nv.rm.parts import RmError

PREFIX = "NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_"
INDEX = "NV2080_CTRL_GR_INFO_INDEX_"
# address spaces that the channels of a group may have together. Source: nvidia.ko asserts on it when it makes contexts
SUBCONTEXTS = 64
# bytes of one request to memory. GUESS
REQUEST_BYTES = 32
# all of the graphics engine's kinds of classes are there
CAPABILITIES = sum(
    1 << field[0]
    for field in (
        gr.NV2080_CTRL_GR_INFO_GFX_CAPABILITIES_2D,
        gr.NV2080_CTRL_GR_INFO_GFX_CAPABILITIES_3D,
        gr.NV2080_CTRL_GR_INFO_GFX_CAPABILITIES_COMPUTE,
        gr.NV2080_CTRL_GR_INFO_GFX_CAPABILITIES_I2M,
    )
)
# bytes of a record of the context switch's log. GUESS
FECS_RECORD_BYTES = 128
# the shape of the Z-cull memory. GUESS: alignments in pixels and sizes in bytes, per TPC or GPC
ZCULL_ALIGN, ZCULL_HEADER, ZCULL_SUBREGIONS = 16, 32, 16


def info(board: Board) -> dict[str, int]:
    """Return what NV2080_CTRL_GR_INFO_INDEX_* say of a board. Counts of crossbar ports are left out."""
    shaders, frame = board.shaders, board.frame
    gpcs = len(shaders.tpc_masks)
    return {
        "SHADER_PIPE_COUNT": gpcs,
        "SHADER_PIPE_SUB_COUNT": shaders.tpc_count,
        "VPE_COUNT": gpcs * shaders.pes_per_gpc,
        "SM_REG_BANK_COUNT": REGISTER_BANKS,
        "SM_REG_BANK_REG_COUNT": shaders.registers_per_sm // REGISTER_BANKS,
        "SM_VERSION": shaders.sm_version,
        "MAX_WARPS_PER_SM": shaders.warps_per_sm,
        "MAX_THREADS_PER_WARP": THREADS_PER_WARP,
        "FB_MEMORY_REQUEST_GRANULARITY": REQUEST_BYTES,
        "HOST_MEMORY_REQUEST_GRANULARITY": REQUEST_BYTES,
        "MAX_SP_PER_SM": shaders.cores_per_sm,
        "LITTER_NUM_GPCS": shaders.max_gpcs,
        "LITTER_NUM_TPC_PER_GPC": shaders.max_tpcs_per_gpc,
        "LITTER_NUM_PES_PER_GPC": shaders.pes_per_gpc,
        "LITTER_NUM_TPCS_PER_PES": -(-shaders.max_tpcs_per_gpc // shaders.pes_per_gpc),
        "LITTER_NUM_SM_PER_TPC": shaders.sms_per_tpc,
        "LITTER_NUM_GPCMMU_PER_GPC": 1,
        "LITTER_NUM_ROP_PER_GPC": shaders.rop_units_per_gpc,
        "LITTER_NUM_GRS": 1,
        "FAMILY_MAX_TPC_PER_GPC": shaders.max_tpcs_per_gpc,
        "LITTER_NUM_FBPS": frame.fbp_mask.bit_length(),
        "LITTER_NUM_FBPAS": frame.fbp_mask.bit_length(),
        "LITTER_NUM_FBPA_PER_FBP": 1,
        "LITTER_NUM_LTCS": frame.ltcs,
        "LITTER_NUM_LTC_SLICES": frame.slices,
        "LITTER_NUM_SLICES_PER_LTC": frame.slices,
        "LITTER_NUM_LTC_PER_FBP": frame.ltcs // frame.fbp_mask.bit_length(),
        "TIMESLICE_ENABLED": 1,
        "GPU_CORE_COUNT": shaders.sm_count * shaders.cores_per_sm,
        "RT_CORE_COUNT": shaders.sm_count * shaders.rt_cores_per_sm,
        "TENSOR_CORE_COUNT": shaders.sm_count * shaders.tensor_cores_per_sm,
        "MAX_SUBCONTEXT_COUNT": SUBCONTEXTS,
        "MAX_PER_ENGINE_SUBCONTEXT_COUNT": SUBCONTEXTS,
        "GFX_CAPABILITIES": CAPABILITIES,
    }


def _context_buffers(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO_PARAMS
) -> None:
    sizes = params.engineContextBuffersInfo[0]
    for name, (size, alignment) in request.manager.board.context_buffers.items():
        entry = sizes.engine[getattr(device_controls, PREFIX + name)]
        entry.size, entry.alignment = size, alignment


def _info(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_INFO_PARAMS) -> None:
    """Fill the list, in which the CPU finds an index at its own place: kernel_graphics.c."""
    entries = params.engineInfo[0].infoList
    for index in range(len(entries)):
        entries[index].index = index
    for name, value in info(request.manager.board).items():
        entries[getattr(gr, INDEX + name)].data = value


def _masks(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS_PARAMS) -> None:
    """Tell which units are left. GPCs by logical number; GUESS: neighbouring TPCs share a PES."""
    shaders = request.manager.board.shaders
    masks = params.floorsweepingMasks[0]
    masks.gpcMask = (1 << len(shaders.tpc_masks)) - 1
    masks.physGpcMask = masks.physGfxGpcMask = shaders.physical_gpcs
    masks.numGfxTpc = shaders.tpc_count
    for gpc, mask in enumerate(shaders.tpc_masks):
        masks.tpcMask[gpc], masks.tpcCount[gpc] = mask, mask.bit_count()
        masks.mmuPerGpc[gpc], masks.numPesPerGpc[gpc] = 1, shaders.pes_per_gpc
        masks.zcullMask[gpc] = (1 << shaders.pes_per_gpc) - 1
    for tpc in range(shaders.max_tpcs_per_gpc):
        masks.tpcToPesMap[tpc] = tpc * shaders.pes_per_gpc // shaders.max_tpcs_per_gpc


def _gpcs(request: Request, params: gpu.NV2080_CTRL_GPU_GET_FERMI_GPC_INFO_PARAMS) -> None:
    """Tell which GPCs are left, by logical number. Source: nouveau asks for the TPCs of each of them."""
    params.gpcMask = (1 << len(request.manager.board.shaders.tpc_masks)) - 1


def _tpcs(request: Request, params: gpu.NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS) -> None:
    """Tell which TPCs of a GPC are left. GUESS: a GPC that is not there is INVALID_ARGUMENT."""
    masks = request.manager.board.shaders.tpc_masks
    if params.gpcId >= len(masks):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"there is no GPC {params.gpcId}")
    params.tpcMask = masks[params.gpcId]


def fill_order(board: Board, order: Any) -> None:
    """Number the SMs: the first TPC of every GPC, then the second of every GPC. Source: nouveau's
    gf100_gr_oneinit_sm_id, which numbers TPCs so. GUESS: virtual and migratable numbers are the same. `order`: a view
    of a struct with `globalSmId`, `numSm` and `numTpc`.
    """
    shaders = board.shaders
    counts = [mask.bit_count() for mask in shaders.tpc_masks]
    tpcs = [(gpc, tpc) for tpc in range(max(counts)) for gpc, count in enumerate(counts) if tpc < count]
    for number, (gpc, tpc) in enumerate(tpcs):
        for sm in range(shaders.sms_per_tpc):
            entry = order.globalSmId[number * shaders.sms_per_tpc + sm]
            entry.gpcId, entry.localTpcId, entry.localSmId = gpc, tpc, sm
            entry.globalTpcId = entry.migratableTpcId = number
            entry.virtualGpcId = gpc
    order.numSm, order.numTpc = shaders.sm_count, shaders.tpc_count


def _order(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER_PARAMS) -> None:
    fill_order(request.manager.board, params.globalSmOrder[0])


def _ppc(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_PPC_MASKS_PARAMS) -> None:
    """Tell the units behind the PESs of each GPC: one each."""
    shaders = request.manager.board.shaders
    masks = params.enginePpcMasks[0]
    for gpc in range(len(shaders.tpc_masks)):
        masks.mask[gpc] = (1 << shaders.pes_per_gpc) - 1


def _zcull(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_ZCULL_INFO_PARAMS) -> None:
    _fill_zcull(request.manager.board.shaders, params.engineZcullInfo[0])


def _client_zcull(request: Request, params: gr.NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS) -> None:
    _fill_zcull(request.manager.board.shaders, params)


def _fill_zcull(
    shaders: Shaders,
    zcull: internal.NV2080_CTRL_INTERNAL_STATIC_GR_ZCULL_INFO | gr.NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS,
) -> None:
    """Tell the shape of the Z-cull memory: more TPCs, wider regions. GUESS: every number."""
    gpcs, tpcs = len(shaders.tpc_masks), shaders.tpc_count
    zcull.widthAlignPixels = zcull.subregionWidthAlignPixels = tpcs * ZCULL_ALIGN
    zcull.heightAlignPixels, zcull.subregionHeightAlignPixels = ZCULL_ALIGN * 2, ZCULL_ALIGN * 4
    zcull.pixelSquaresByAliquots, zcull.aliquotTotal = ZCULL_ALIGN * ZCULL_ALIGN, tpcs * ZCULL_ALIGN
    zcull.zcullRegionByteMultiplier = zcull.zcullRegionHeaderSize = gpcs * ZCULL_HEADER
    zcull.zcullSubregionHeaderSize, zcull.subregionCount = gpcs * ZCULL_HEADER, ZCULL_SUBREGIONS


def _rop(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_ROP_INFO_PARAMS) -> None:
    """Count the raster units. GUESS: each does one operation at a time."""
    shaders = request.manager.board.shaders
    rop = params.engineRopInfo[0]
    rop.ropUnitCount = len(shaders.tpc_masks) * shaders.rop_units_per_gpc
    rop.ropOperationsFactor, rop.ropOperationsCount = 1, rop.ropUnitCount


def _record(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_GR_GET_FECS_RECORD_SIZE_PARAMS) -> None:
    entry = params.fecsRecordSize[0]
    entry.fecsRecordSize = FECS_RECORD_BYTES


def _properties(request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES_PARAMS) -> None:
    """Tell that a context has a header for each subcontext, as subcontexts are there. GUESS."""
    entry = params.pdbTable[0]
    entry.bPerSubCtxheaderSupported = 1


def _tracing(request: Request, params: layouts.TRACE_ENABLE) -> None:
    """Tell that the context switch writes no log. The CPU asks when it stops, and asserts an answer."""
    params.enable = 0


def _trace(request: Request, params: layouts.TRACE_ENABLE) -> None:
    if params.enable:
        raise RmError(status.NV_ERR_NOT_SUPPORTED, "the context switch writes no log")


def _table(name: str) -> Control:
    """Return the row of a table in which zeros are what the firmware has to say."""
    full = f"INTERNAL_STATIC_KGR_GET_{name}"
    return row(internal, full, getattr(internal, f"NV2080_CTRL_{full}_PARAMS"), accept)


ROWS = (
    row(gpu, "GPU_GET_FERMI_GPC_INFO", gpu.NV2080_CTRL_GPU_GET_FERMI_GPC_INFO_PARAMS, _gpcs),
    row(gpu, "GPU_GET_FERMI_TPC_INFO", gpu.NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS, _tpcs),
    row(gr, "GR_GET_ZCULL_INFO", gr.NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS, _client_zcull),
    # a driver for TU10x keeps a channel for a fault of the chip that is not modelled
    row(
        internal,
        "INTERNAL_KGR_INIT_BUG4208224_WAR",
        internal.NV2080_CTRL_INTERNAL_KGR_INIT_BUG4208224_WAR_PARAMS,
        accept,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO_PARAMS,
        _context_buffers,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_INFO",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_INFO_PARAMS,
        _info,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS_PARAMS,
        _masks,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER_PARAMS,
        _order,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_PPC_MASKS",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_PPC_MASKS_PARAMS,
        _ppc,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_ZCULL_INFO",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_ZCULL_INFO_PARAMS,
        _zcull,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_ROP_INFO",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_ROP_INFO_PARAMS,
        _rop,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_FECS_RECORD_SIZE",
        internal.NV2080_CTRL_INTERNAL_STATIC_GR_GET_FECS_RECORD_SIZE_PARAMS,
        _record,
    ),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES_PARAMS,
        _properties,
    ),
    row(internal, "INTERNAL_GR_GET_FECS_TRACE_HW_ENABLE", layouts.TRACE_ENABLE, _tracing),
    row(internal, "INTERNAL_GR_SET_FECS_TRACE_HW_ENABLE", layouts.TRACE_ENABLE, _trace),
    # GUESS: none of the capabilities, whose bits have no names in the headers of 535
    _table("CAPS"),
    # NV2080_CTRL_GR_GET_SM_ISSUE_RATE_MODIFIER_*_FULL_SPEED is 0: nothing is slowed down
    _table("SM_ISSUE_RATE_MODIFIER"),
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_FECS_TRACE_DEFINES",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_FECS_TRACE_DEFINES_PARAMS,
        refuse(status.NV_ERR_NOT_SUPPORTED, "the context switch writes no log; kernel_graphics.c accepts that"),
    ),
)
