"""Controls that tell who the board is: names, identity, BIOS, firmware."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_firmware as firmware
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import identity
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.lists import Values, fill
from ringup.silicon.nv.rm.controls.table import Request, row
from ringup.silicon.nv.rm.controls.undocumented import GPU_INFO
from ringup.silicon.nv.rm.parts import RmError

# bit by which the CPU marks what the firmware shall fill in: getGpuInfos, indexForwardToGsp
FORWARDED = 1 << 31
INFO: Values = {
    **GPU_INFO,
    gpu.NV2080_CTRL_GPU_INFO_INDEX_SYSMEM_ACCESS: lambda manager: gpu.NV2080_CTRL_GPU_INFO_SYSMEM_ACCESS_YES,
    gpu.NV2080_CTRL_GPU_INFO_INDEX_GEMINI_BOARD: lambda manager: gpu.NV2080_CTRL_GPU_INFO_INDEX_GEMINI_BOARD_NO,
    gpu.NV2080_CTRL_GPU_INFO_INDEX_GPU_SM_VERSION: lambda manager: manager.board.shaders.sm_version,
    gpu.NV2080_CTRL_GPU_INFO_INDEX_GLOBAL_POISON_FUSE_ENABLED: lambda manager: (
        gpu.NV2080_CTRL_GPU_INFO_INDEX_GLOBAL_POISON_FUSE_ENABLED_NO
    ),
    gpu.NV2080_CTRL_GPU_INFO_INDEX_PER_RUNLIST_CHANNEL_RAM: lambda manager: int(manager.board.per_runlist_channels),
    gpu.NV2080_CTRL_GPU_INFO_INDEX_GPU_SMC_MODE: lambda manager: gpu.NV2080_CTRL_GPU_INFO_GPU_SMC_MODE_UNSUPPORTED,
    gpu.NV2080_CTRL_GPU_INFO_INDEX_DISPLAY_ENABLED: lambda manager: gpu.NV2080_CTRL_GPU_INFO_DISPLAY_ENABLED_NO,
    gpu.NV2080_CTRL_GPU_INFO_INDEX_CMP_SKU: lambda manager: gpu.NV2080_CTRL_GPU_INFO_INDEX_CMP_SKU_NO,
}
BIOS: Values = {
    firmware.NV2080_CTRL_BIOS_INFO_INDEX_REVISION: lambda manager: manager.board.bios[0],
    firmware.NV2080_CTRL_BIOS_INFO_INDEX_OEM_REVISION: lambda manager: manager.board.bios[1],
}
FORMAT = gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT


def _info(request: Request, params: gpu.NV2080_CTRL_GPU_GET_INFO_V2_PARAMS) -> None:
    """Fill in what the CPU does not know itself. Inference: the firmware takes the mark off, as callers of the CPU's
    driver get their own indices back.
    """
    fill(request.manager, params.gpuInfoListSize, params.gpuInfoList, INFO, "facts of the card", FORWARDED)


def _bios(request: Request, params: firmware.NV2080_CTRL_BIOS_GET_INFO_V2_PARAMS) -> None:
    fill(request.manager, params.biosInfoListSize, params.biosInfoList, BIOS, "facts of the BIOS")


def _name(request: Request, params: gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS) -> None:
    name, place = identity.name(request.manager.chip), params.gpuNameString
    if params.gpuNameStringFlags == gpu.NV2080_CTRL_GPU_GET_NAME_STRING_FLAGS_TYPE_ASCII:
        place.ascii[0 : len(name)] = name
    elif params.gpuNameStringFlags == gpu.NV2080_CTRL_GPU_GET_NAME_STRING_FLAGS_TYPE_UNICODE:
        place.unicode[0 : len(name)] = list(name)
    else:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a name of type {params.gpuNameStringFlags}")


def _short_name(request: Request, params: gpu.NV2080_CTRL_GPU_GET_SHORT_NAME_STRING_PARAMS) -> None:
    name = identity.short_name(request.manager.chip)
    params.gpuShortNameString[0 : len(name)] = name


def _uuid(request: Request, params: gpu.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS) -> None:
    """Tell the identity: the same bytes as in the static information."""
    shape, uuid = params.flags & 0b11, identity.uuid(request.manager.chip)
    if params.flags >> FORMAT[0] + 1 or params.index:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"identity {params.index} with flags {params.flags:#x}")
    if shape == gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY:
        text = uuid
    elif shape == gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII:
        text = identity.uuid_text(request.manager.chip) + b"\0"
    else:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"identity with flags {params.flags:#x}")
    params.length = len(text)
    params.data[0 : len(params.data)] = text.ljust(len(params.data), b"\0")


def _board(request: Request, params: gpu.NV2080_CTRL_GPU_GET_OEM_BOARD_INFO_PARAMS) -> None:
    """Tell the marketing name. A virtual board has no serial number, part number or date."""
    size = len(params.marketingName)
    params.marketingName[0:size] = identity.name(request.manager.chip)[: size - 1].ljust(size, b"\0")


def _brands(request: Request, params: device_controls.NV0080_CTRL_GPU_GET_BRAND_CAPS_PARAMS) -> None:
    """Tell that the boards are none of Quadro, NVS and Titan."""
    params.brands = 0


def _features(request: Request, params: firmware.NV2080_CTRL_GSP_GET_FEATURES_PARAMS) -> None:
    """Tell the running firmware's release. GUESS: boards of this kind run GSP-RM by default."""
    params.gspFeatures = (
        firmware.NV2080_CTRL_GSP_GET_FEATURES_UVM_ENABLED_TRUE << firmware.NV2080_CTRL_GSP_GET_FEATURES_UVM_ENABLED[1]
    )
    params.bValid = params.bDefaultGspRmGpu = 1
    version = request.manager.version.encode("ascii")
    params.firmwareVersion[0 : len(params.firmwareVersion)] = version.ljust(len(params.firmwareVersion), b"\0")


ROWS = (
    row(gpu, "GPU_GET_INFO_V2", gpu.NV2080_CTRL_GPU_GET_INFO_V2_PARAMS, _info),
    row(gpu, "GPU_GET_NAME_STRING", gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, _name),
    row(gpu, "GPU_GET_SHORT_NAME_STRING", gpu.NV2080_CTRL_GPU_GET_SHORT_NAME_STRING_PARAMS, _short_name),
    row(gpu, "GPU_GET_GID_INFO", gpu.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, _uuid),
    row(gpu, "GPU_GET_OEM_BOARD_INFO", gpu.NV2080_CTRL_GPU_GET_OEM_BOARD_INFO_PARAMS, _board),
    row(
        device_controls,
        "GPU_GET_BRAND_CAPS",
        device_controls.NV0080_CTRL_GPU_GET_BRAND_CAPS_PARAMS,
        _brands,
        kind=Kind.DEVICE,
        prefix="NV0080_CTRL_CMD_",
    ),
    row(firmware, "BIOS_GET_INFO_V2", firmware.NV2080_CTRL_BIOS_GET_INFO_V2_PARAMS, _bios),
    row(firmware, "GSP_GET_FEATURES", firmware.NV2080_CTRL_GSP_GET_FEATURES_PARAMS, _features),
)
