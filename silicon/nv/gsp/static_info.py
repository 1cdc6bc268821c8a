"""GspStaticConfigInfo: what the firmware tells of the card in one long answer. All of it comes from the board's row.

Source: gsp_static_config.h. Members that are not named here are zero: features that the board lacks (SR-IOV, sleep
states, NVLink, displays).
"""

from __future__ import annotations

from ringup.autogen.nv import gsp_static, rm_ctrl_2080_gpu
from ringup.autogen.structs import memory
from ringup.silicon.nv.gsp.ports import Boot
from ringup.silicon.nv.rm import identity
from ringup.silicon.nv.rm.boards.facts import REGISTER_BANKS, THREADS_PER_WARP, Board
from ringup.silicon.nv.rm.manager import INTERNAL_CLIENT, INTERNAL_DEVICE, INTERNAL_SUBDEVICE
from ringup.silicon.nv.rm.memory_map import MemoryMap
from ringup.silicon.nv.rm.parts import Chip

# g_gpu_nvoc.h, COMPUTE_BRANDING_TYPE_TESLA: the boards of the rows are accelerators
TESLA = 1
# GUESS: FB regions have a rank of speed; with one kind of memory all are alike
PERFORMANCE = 100


def build(board: Board, chip: Chip, layout: MemoryMap, boot: Boot, release: str) -> bytes:
    """Return the answer in the layout of a release."""
    info = gsp_static.GspStaticConfigInfo.at(release)()
    _identity(info, chip)
    if _has(info, "gpcInfo"):
        _shaders(info, board)
    _frame(info, board, layout)
    for engine in board.engines:
        info.engineCaps[engine.nv2080_type // 32] |= 1 << engine.nv2080_type % 32
    info.bar1PdeBase, info.bar2PdeBase = layout.bar1_root, layout.bar2_root
    if _has(info, "fwWprLayoutOffset"):
        places = info.fwWprLayoutOffset
        places.nonWprHeapOffset, places.frtsOffset = boot.reserved_start, boot.frts_start
    # the CPU's half hands the top of each address space to the firmware: COPY_SERVER_RESERVED_PDES
    info.bSplitVasBetweenServerClientRm = 1
    info.hInternalClient, info.hInternalDevice, info.hInternalSubdevice = (
        INTERNAL_CLIENT,
        INTERNAL_DEVICE,
        INTERNAL_SUBDEVICE,
    )
    return bytes(memory(info))


def _has(info: gsp_static.GspStaticConfigInfo, name: str) -> bool:
    """Return whether a release's layout has a member: 550 and later lack some."""
    return hasattr(info, name)


def _identity(info: gsp_static.GspStaticConfigInfo, chip: Chip) -> None:
    uuid = identity.uuid(chip)
    info.gidInfo.flags = rm_ctrl_2080_gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY
    info.gidInfo.length = len(uuid)
    info.gidInfo.data[0 : len(uuid)] = uuid
    name = identity.name(chip)
    info.gpuNameString[0 : len(name)] = name
    info.gpuShortNameString[0 : len(name)] = identity.short_name(chip)
    info.gpuNameString_Unicode[0 : len(name)] = list(name)
    info.bIsTesla = 1
    if _has(info, "computeBranding"):
        info.computeBranding = TESLA
    info.bVbiosValid = 1
    info.vbiosSubVendor, info.vbiosSubDevice = identity.VENDOR, chip.subsystem_id


def _shaders(info: gsp_static.GspStaticConfigInfo, board: Board) -> None:
    shaders = board.shaders
    info.gpcInfo.gpcMask = (1 << len(shaders.tpc_masks)) - 1
    for number, mask in enumerate(shaders.tpc_masks):
        info.tpcInfo[number].gpcId, info.tpcInfo[number].tpcMask = number, mask
        info.zcullInfo[number].gpcId, info.zcullInfo[number].zcullMask = number, (1 << shaders.pes_per_gpc) - 1
    sm = info.SM_info
    sm.version, sm.maxWarpsPerSM, sm.maxThreadsPerWarp = shaders.sm_version, shaders.warps_per_sm, THREADS_PER_WARP
    sm.regBankCount, sm.regBankRegCount = REGISTER_BANKS, shaders.registers_per_sm // REGISTER_BANKS
    sm.maxSPPerSM, sm.rtCoreCount = shaders.cores_per_sm, shaders.rt_cores_per_sm


def _frame(info: gsp_static.GspStaticConfigInfo, board: Board, layout: MemoryMap) -> None:
    frame = board.frame
    info.fb_length, info.fb_bus_width, info.fb_ram_type = layout.total, frame.bus_bits, frame.ram_type
    # GUESS: one FBIO partition for each FB partition
    info.fbp_mask = info.fbio_mask = frame.fbp_mask
    info.l2_cache_size = frame.l2_bytes
    regions = info.fbRegionInfoParams
    # what the CPU uses, and the rest, up to the end of memory
    for number, (base, end) in enumerate(((0, layout.usable), (layout.usable, layout.total))):
        region = regions.fbRegion[number]
        region.base, region.limit, region.performance = base, end - 1, PERFORMANCE
        region.supportCompressed = region.supportISO = 1
        region.reserved = 0 if number == 0 else end - base
    regions.numFBRegions = 2
