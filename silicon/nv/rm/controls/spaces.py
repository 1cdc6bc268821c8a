"""Controls of address spaces, and of memory that the firmware copies."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import rm_ctrl_channel as channel_controls
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts, page_directories
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.table import Request, row
from ringup.silicon.nv.rm.objects import AddressSpace, state_of
from ringup.silicon.nv.rm.parts import Aperture, PageDirectory, RmError

# Bytes of one transfer. GUESS: the bound for a hostile CPU; 64 KiB was the largest that was seen
TRANSFER_LIMIT = 16 << 20
# Sizes of the buffers for page faults, in bytes. GUESS: metal's; UVM hands over at most 256 pages for the replayable
# one, by the layout of its control
REPLAYABLE_BYTES, NON_REPLAYABLE_BYTES, SHADOW_METADATA_BYTES = 0x80000, 0x40000, 0x1000
PAGE = 4096


def _root(params: internal.NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS) -> PageDirectory:
    """Return the root of an address space of which the caller describes the upper levels."""
    if not 1 <= params.numLevelsToCopy <= len(params.levels):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.numLevelsToCopy} levels")
    size = params.pageSize
    if not size or size & size - 1 or params.virtAddrLo % size or (params.virtAddrHi + 1) % size:
        raise RmError(
            status.NV_ERR_INVALID_ARGUMENT,
            f"the firmware's part is {params.virtAddrLo:#x} to {params.virtAddrHi:#x} in pages of {size:#x}",
        )
    shifts = [params.levels[level].pageShift for level in range(params.numLevelsToCopy)]
    if sorted(shifts, reverse=True) != shifts:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"levels with shifts {shifts}")
    return page_directories.of_level(params.levels[0].physAddress, params.levels[0].aperture)


def _reserved_pdes(request: Request, params: internal.NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS) -> None:
    """Learn an address space's root. The range that it leaves to the firmware stays empty: nothing here needs it."""
    page_directories.set_root(request.manager, state_of(request.target, AddressSpace), _root(params))


def _global_pdes(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER_PARAMS
) -> None:
    """Learn the root of the address space that the whole driver shares."""
    request.manager.global_root = _root(params.PdeCopyParams)


def _set_page_directory(request: Request, params: device_controls.NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS) -> None:
    """Take the root of an address space that the caller owns: the same as the call of that name."""
    root = page_directories.described(params.physAddress, params.numEntries, params.flags)
    page_directories.set_by_device(request.manager, request.target, params.hVASpace, root)


def _unset_page_directory(
    request: Request, params: device_controls.NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS
) -> None:
    page_directories.set_by_device(request.manager, request.target, params.hVASpace, None)


def _place(surface: layouts.TRANSFER_SURFACE, what: str) -> tuple[Aperture, int]:
    """Return where a transfer reads or writes.

    Inference from nvidia.ko 535.261.03: the surface's size bounds nothing. It writes the 32 bytes of BAR 1's root to a
    surface that it describes as one entry of 8 (kbusPatchBar1Pdb), and asserts that this succeeds.
    """
    try:
        aperture = Aperture(surface.aperture)
    except ValueError:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"the {what} is in aperture {surface.aperture}") from None
    return aperture, surface.base + surface.offset


def _transfer(request: Request, params: layouts.MEMORY_TRANSFER) -> None:
    """Copy or fill memory for the CPU, which has no way to VRAM before it has BAR 2: mem_utils.c."""
    memory, size = request.manager.memory, params.size
    if size > TRANSFER_LIMIT:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a transfer of {size} bytes")
    try:
        target, address = _place(params.dst, "destination")
        if params.operation == layouts.MEMORY_OP_MEMCPY:
            data = memory.read(*_place(params.src, "source"), size)
        elif params.operation == layouts.MEMORY_OP_MEMSET:
            # GUESS: the low byte counts, as memset's argument does
            data = bytes((params.value & 0xFF,)) * size
        else:
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"memory operation {params.operation}")
        memory.write(target, address, data)
    except ValueError as error:
        raise RmError(status.NV_ERR_INVALID_ADDRESS, str(error)) from error


def _fault_sizes(request: Request, params: internal.NV2080_CTRL_INTERNAL_GMMU_GET_STATIC_INFO_PARAMS) -> None:
    params.replayableFaultBufferSize = REPLAYABLE_BYTES
    params.nonReplayableFaultBufferSize = NON_REPLAYABLE_BYTES
    params.replayableShadowFaultBufferMetadataSize = SHADOW_METADATA_BYTES
    params.nonReplayableShadowFaultBufferMetadataSize = SHADOW_METADATA_BYTES


ROWS = (
    row(
        channel_controls,
        "VASPACE_COPY_SERVER_RESERVED_PDES",
        internal.NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS,
        _reserved_pdes,
        kind=Kind.VASPACE,
        prefix="NV90F1_CTRL_CMD_",
    ),
    row(
        internal,
        "INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER",
        internal.NV2080_CTRL_INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER_PARAMS,
        _global_pdes,
    ),
    row(
        device_controls,
        "DMA_SET_PAGE_DIRECTORY",
        device_controls.NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS,
        _set_page_directory,
        kind=Kind.DEVICE,
        prefix="NV0080_CTRL_CMD_",
    ),
    row(
        device_controls,
        "DMA_UNSET_PAGE_DIRECTORY",
        device_controls.NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS,
        _unset_page_directory,
        kind=Kind.DEVICE,
        prefix="NV0080_CTRL_CMD_",
    ),
    row(internal, "INTERNAL_MEMMGR_MEMORY_TRANSFER_WITH_GSP", layouts.MEMORY_TRANSFER, _transfer),
    row(
        internal,
        "INTERNAL_GMMU_GET_STATIC_INFO",
        internal.NV2080_CTRL_INTERNAL_GMMU_GET_STATIC_INFO_PARAMS,
        _fault_sizes,
    ),
)
