"""Controls of video memory and its cache, and of the buffers that page faults and access counters go to."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import faults
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.lists import Values, fill
from ringup.silicon.nv.rm.controls.table import Request, accept, row
from ringup.silicon.nv.rm.parts import RmError

KIB = 1 << 10
PAGE = 4096
# bytes that one tag of compression covers. GUESS: nothing is compressed, so nobody sees it
COMPRESSION_PAGE_SHIFT = 16
INFO: Values = {
    fb.NV2080_CTRL_FB_INFO_INDEX_PARTITION_COUNT: lambda manager: manager.board.frame.fbp_mask.bit_count(),
    fb.NV2080_CTRL_FB_INFO_INDEX_PARTITION_MASK: lambda manager: manager.board.frame.fbp_mask,
    fb.NV2080_CTRL_FB_INFO_INDEX_FBP_COUNT: lambda manager: manager.board.frame.fbp_mask.bit_count(),
    fb.NV2080_CTRL_FB_INFO_INDEX_FBP_MASK: lambda manager: manager.board.frame.fbp_mask,
    fb.NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE: lambda manager: manager.map.total // KIB,
    fb.NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE: lambda manager: manager.map.total // KIB,
    fb.NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE: lambda manager: manager.map.usable // KIB,
    fb.NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE: lambda manager: manager.chip.bar1_bytes // KIB,
    fb.NV2080_CTRL_FB_INFO_INDEX_BUS_WIDTH: lambda manager: manager.board.frame.bus_bits,
    fb.NV2080_CTRL_FB_INFO_INDEX_RAM_TYPE: lambda manager: manager.board.frame.ram_type,
    fb.NV2080_CTRL_FB_INFO_INDEX_RAM_LOCATION: lambda manager: fb.NV2080_CTRL_FB_INFO_RAM_LOCATION_GPU_DEDICATED,
    # GUESS: the maker of the memory chips
    fb.NV2080_CTRL_FB_INFO_INDEX_MEMORYINFO_VENDOR_ID: lambda manager: (
        fb.NV2080_CTRL_FB_INFO_MEMORYINFO_VENDOR_ID_SAMSUNG
    ),
    fb.NV2080_CTRL_FB_INFO_INDEX_L2CACHE_SIZE: lambda manager: manager.board.frame.l2_bytes,
    fb.NV2080_CTRL_FB_INFO_INDEX_LTC_COUNT: lambda manager: manager.board.frame.ltcs,
    fb.NV2080_CTRL_FB_INFO_INDEX_LTS_COUNT: lambda manager: manager.board.frame.ltcs * manager.board.frame.slices,
    fb.NV2080_CTRL_FB_INFO_INDEX_LTC_MASK: lambda manager: (1 << manager.board.frame.ltcs) - 1,
    # what the boards lack
    fb.NV2080_CTRL_FB_INFO_INDEX_L2CACHE_ONLY_MODE: lambda manager: 0,
    fb.NV2080_CTRL_FB_INFO_INDEX_FB_IS_BROKEN: lambda manager: 0,
    fb.NV2080_CTRL_FB_INFO_POISON_FUSE_ENABLED: lambda manager: 0,
    fb.NV2080_CTRL_FB_INFO_FBPA_ECC_ENABLED: lambda manager: 0,
}


def _static(request: Request, params: internal.NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS) -> None:
    """Describe the memory system. Compression is on, as on metal: nvidia.ko allocates with compressible kinds on TU102
    and asserts that it gets them. Nobody can see that this card compresses nothing. GUESS: which of two ways a
    generation has to keep the tags.
    """
    board = request.manager.board
    if board.per_runlist_channels:
        params.bUseRawModeComptaglineAllocation = 1
    else:
        params.bOneToOneComptagLineAllocation = 1
    params.bDisablePostL2Compression = params.bFbpaPresent = 1
    params.comprPageSize, params.comprPageShift = 1 << COMPRESSION_PAGE_SHIFT, COMPRESSION_PAGE_SHIFT
    params.l2CacheSize, params.ramType = board.frame.l2_bytes, board.frame.ram_type
    params.ltcCount, params.ltsPerLtcCount = board.frame.ltcs, board.frame.slices


def _info(request: Request, params: fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS) -> None:
    fill(request.manager, params.fbInfoListSize, params.fbInfoList, INFO, "facts of memory")


def _pages(size: int, entries: list[int]) -> tuple[int, ...]:
    """Return the addresses of a buffer's pages."""
    count = -(-size // PAGE)
    if not 1 <= count <= len(entries) or any(address % PAGE or not address for address in entries[:count]):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a buffer of {size} bytes in {len(entries)} pages at most")
    return tuple(entries[:count])


def _register(request: Request, key: tuple[str, int], pages: tuple[int, ...]) -> None:
    buffers = request.manager.buffers
    if key in buffers:
        # GUESS: the status. kern_gmmu.c of a firmware's half refuses a second shadow buffer with it
        raise RmError(status.NV_ERR_NOT_SUPPORTED, f"there is a {key[0]} {key[1]} already")
    buffers[key] = pages


def _unregister(request: Request, key: tuple[str, int]) -> None:
    """Forget a buffer. GUESS: none that is registered is no error."""
    request.manager.buffers.pop(key, None)


FAULTS = ("fault buffer", faults.REPLAYABLE)


def _fault_buffer(request: Request, params: internal.NV2080_CTRL_INTERNAL_GMMU_REGISTER_FAULT_BUFFER_PARAMS) -> None:
    """Take the replayable faults' buffer; from then on they are written there."""
    _register(request, FAULTS, _pages(params.faultBufferSize, list(params.faultBufferPteArray)))
    request.manager.effects.fault_buffer(True, request.manager.buffers[FAULTS])


def _no_fault_buffer(request: Request, params: object) -> None:
    if FAULTS in request.manager.buffers:
        _unregister(request, FAULTS)
        request.manager.effects.fault_buffer(True, None)


def _shadow(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER_PARAMS
) -> None:
    """Take the buffer into which the firmware copies faults for the CPU; the array has pages of data and metadata."""
    if params.shadowFaultBufferType not in (faults.NON_REPLAYABLE, faults.REPLAYABLE):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"shadow buffer {params.shadowFaultBufferType}")
    size = params.shadowFaultBufferSize
    kind = params.shadowFaultBufferType
    _register(request, (faults.SHADOW, kind), _pages(size, list(params.shadowFaultBufferPteArray)))
    request.manager.buffers[faults.RING, kind] = (params.shadowFaultBufferQueuePhysAddr,)


def _no_shadow(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER_PARAMS
) -> None:
    for key in (faults.SHADOW, faults.RING):
        _unregister(request, (key, params.shadowFaultBufferType))


def _report_fault(request: Request, params: gpu.NV2080_CTRL_GPU_REPORT_NON_REPLAYABLE_FAULT_PARAMS) -> None:
    """Stop the channel of a fault that the client could not handle."""
    found = faults.channel_of(request.manager, bytes(params.faultPacket.data))
    if found is None:
        raise RmError(status.NV_ERR_INVALID_CHANNEL, "the fault's instance block is no channel's")
    request.manager.effects.fault_reported(found)


def _counters(request: Request, params: internal.NV2080_CTRL_INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER_PARAMS) -> None:
    """Take the buffer of an access counter. GUESS: a chip of these has one."""
    if params.accessCounterIndex:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"access counter {params.accessCounterIndex}")
    _register(request, ("access counters", 0), _pages(params.bufferSize, list(params.bufferPteArray)))


def _no_counters(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER_PARAMS
) -> None:
    _unregister(request, ("access counters", params.accessCounterIndex))


def _tags(request: Request, params: device_controls.NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS) -> None:
    """Describe the memory behind the compression tags: none, as nothing is compressed. GUESS: metal's size."""
    params.AddressSpace = device_controls.NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO_ADDRESS_SPACE_UNKNOWN
    if request.manager.board.per_runlist_channels:
        params.comptaglineAllocationPolicy = device_controls.NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO_POLICY_RAWMODE
    else:
        params.comptaglineAllocationPolicy = device_controls.NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO_POLICY_1TO1


ROWS = (
    row(
        device_controls,
        "FB_GET_COMPBIT_STORE_INFO",
        device_controls.NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS,
        _tags,
        kind=Kind.DEVICE,
        prefix="NV0080_CTRL_CMD_",
    ),
    # how tags are kept: nothing is compressed
    row(
        internal,
        "INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE",
        internal.NV2080_CTRL_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE_PARAMS,
        accept,
    ),
    row(
        internal,
        "INTERNAL_MEMSYS_GET_STATIC_CONFIG",
        internal.NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS,
        _static,
    ),
    # nothing stands between this card's memory and what reads it
    row(internal, "INTERNAL_MEMSYS_L2_INVALIDATE_EVICT", None, accept, size_bytes=4),
    row(
        gpu,
        "GPU_REPORT_NON_REPLAYABLE_FAULT",
        gpu.NV2080_CTRL_GPU_REPORT_NON_REPLAYABLE_FAULT_PARAMS,
        _report_fault,
    ),
    row(fb, "FB_GET_INFO_V2", fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS, _info),
    row(
        internal,
        "INTERNAL_GMMU_REGISTER_FAULT_BUFFER",
        internal.NV2080_CTRL_INTERNAL_GMMU_REGISTER_FAULT_BUFFER_PARAMS,
        _fault_buffer,
    ),
    row(internal, "INTERNAL_GMMU_UNREGISTER_FAULT_BUFFER", None, _no_fault_buffer),
    row(
        internal,
        "INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER",
        internal.NV2080_CTRL_INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER_PARAMS,
        _shadow,
    ),
    row(
        internal,
        "INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER",
        internal.NV2080_CTRL_INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER_PARAMS,
        _no_shadow,
    ),
    row(
        internal,
        "INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER",
        internal.NV2080_CTRL_INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER_PARAMS,
        _counters,
    ),
    row(
        internal,
        "INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER",
        internal.NV2080_CTRL_INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER_PARAMS,
        _no_counters,
    ),
)
