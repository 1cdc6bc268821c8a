"""Controls about what these boards lack: NVLink, partitions, confidential computing, an InfoROM, I2C ports, ECC."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_firmware as firmware
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import rm_ctrl_2080_nvlink as nvlink
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.table import Control, Request, accept, refuse, row

NO_NVLINK = refuse(status.NV_ERR_NOT_SUPPORTED, "the board has no NVLink")
NO_INFOROM = refuse(status.NV_ERR_NOT_SUPPORTED, "the board has no InfoROM")
NO_ECC = refuse(status.NV_ERR_NOT_SUPPORTED, "the board's memory has no ECC")
UNSUPPORTED = gpu.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_UNSUPPORTED
NVSWITCH_NOT_SUPPORTED = 0  # ctrl2080pmgr.h


def _open(request: Request, params: internal.NV2080_CTRL_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO_PARAMS) -> None:
    """Tell that nothing is confidential, so that the CPU may use the BARs: kern_bus_gm107.c blocks them otherwise."""
    params.bIsBar1Trusted = params.bIsPcieTrusted = 1


def _no_secure_channels(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS_PARAMS
) -> None:
    params.maxSec2SecureChannels = params.maxCeSecureChannels = 0


def _no_map(request: Request, params: internal.NV2080_CTRL_INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP_PARAMS) -> None:
    """Tell that no map says which registers users may touch: a size of 0, gpu_register_access_map.c. GUESS: metal of
    these chips has a map.
    """
    params.userRegisterAccessMapSize = params.compressedSize = params.profilingRangesSize = 0


def _no_partitions(request: Request, params: internal.NV2080_CTRL_INTERNAL_GPU_GET_SMC_MODE_PARAMS) -> None:
    params.smcMode = UNSUPPORTED


def _no_boost(request: Request, params: layouts.BOOST_SYNC_INFO) -> None:
    """Tell that boost is not kept equal among several cards."""
    params.hysteresis_us = params.hysteresis = params.enabled = 0


def _module(request: Request, params: layouts.MODULE_INFO) -> None:
    params.module, params.nvswitch = 0, NVSWITCH_NOT_SUPPORTED


def _ecc_status(request: Request, params: gpu.NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS) -> None:
    """Tell of every unit that it has no ECC, so that no error is counted."""
    for number in range(len(params.units)):
        unit = params.units[number]
        unit.enabled = unit.supported = unit.scrubComplete = 0
    params.bFatalPoisonError = params.uncorrectableError = 0


def _ports(request: Request, params: layouts.I2C_PORTS) -> None:
    """Tell of every port that it is not there: NV402C_CTRL_I2C_GET_PORT_INFO_IMPLEMENTED_NO."""
    for number in range(len(params.ports)):
        params.ports[number] = 0


def _nvlink(name: str, size_bytes: int, prefix: str = "NV2080_CTRL_CMD_") -> Control:
    module = internal if name.startswith("INTERNAL") else nvlink
    return row(module, name, None, NO_NVLINK, size_bytes=size_bytes, prefix=prefix)


ROWS = (
    # knvlink… takes NOT_SUPPORTED of the first for "no NVLink", and asks for none of the others then
    _nvlink("NVLINK_GET_NVLINK_DEVICE_INFO", 532),
    _nvlink("NVLINK_PROGRAM_LINK_SPEED", 12),
    _nvlink("NVLINK_HSHUB_GET_SYSMEM_NVLINK_MASK", 4),
    _nvlink("NVLINK_SYNC_LINK_MASKS_AND_VBIOS_INFO", 32),
    _nvlink("NVLINK_PROCESS_INIT_DISABLED_LINKS", 8),
    _nvlink("NVLINK_IS_REDUCED_CONFIG", 1),
    _nvlink("INTERNAL_NVLINK_GET_NUM_ACTIVE_LINK_PER_IOCTRL", 4, "NV2080_CTRL_"),
    _nvlink("INTERNAL_NVLINK_GET_TOTAL_NUM_LINK_PER_IOCTRL", 4, "NV2080_CTRL_"),
    row(
        internal,
        "INTERNAL_CONF_COMPUTE_GET_STATIC_INFO",
        internal.NV2080_CTRL_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO_PARAMS,
        _open,
    ),
    row(
        internal,
        "INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS",
        internal.NV2080_CTRL_INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS_PARAMS,
        _no_secure_channels,
    ),
    row(
        internal,
        "INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP",
        internal.NV2080_CTRL_INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP_PARAMS,
        _no_map,
    ),
    row(
        internal,
        "INTERNAL_GPU_GET_SMC_MODE",
        internal.NV2080_CTRL_INTERNAL_GPU_GET_SMC_MODE_PARAMS,
        _no_partitions,
    ),
    row(internal, "INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO", layouts.BOOST_SYNC_INFO, _no_boost),
    # the card has one speed, so there is nothing to raise
    row(firmware, "PERF_BOOST", firmware.NV2080_CTRL_PERF_BOOST_PARAMS, accept),
    row(firmware, "PMGR_GET_MODULE_INFO", layouts.MODULE_INFO, _module),
    row(
        gpu,
        "GPU_GET_VMMU_SEGMENT_SIZE",
        gpu.NV2080_CTRL_GPU_GET_VMMU_SEGMENT_SIZE_PARAMS,
        refuse(status.NV_ERR_NOT_SUPPORTED, "the board is not divided among virtual machines"),
    ),
    # one flag: whether the CPU runs a manager of virtual cards. ctrl2080vgpumgrinternal.h
    Control(0x2080400B, "NV2080_CTRL_CMD_VGPU_MGR_INTERNAL_SET_VGPU_MGR_CONFIG", Kind.SUBDEVICE, None, 1, accept),
    row(gpu, "GPU_GET_INFOROM_OBJECT_VERSION", gpu.NV2080_CTRL_GPU_GET_INFOROM_OBJECT_VERSION_PARAMS, NO_INFOROM),
    row(gpu, "GPU_QUERY_INFOROM_ECC_SUPPORT", None, NO_INFOROM),
    # ctrl208fgpu.h has this status for boards without one
    Control(0x208F1105, "NV208F_CTRL_CMD_GPU_VERIFY_INFOROM", Kind.DIAGNOSTICS, None, 8, NO_INFOROM),
    row(gpu, "GPU_QUERY_ECC_CONFIGURATION", gpu.NV2080_CTRL_GPU_QUERY_ECC_CONFIGURATION_PARAMS, NO_ECC),
    row(gpu, "GPU_QUERY_ECC_STATUS", gpu.NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS, _ecc_status),
    Control(0x402C0101, "NV402C_CTRL_CMD_I2C_GET_PORT_INFO", Kind.I2C, layouts.I2C_PORTS, 0, _ports),
)
