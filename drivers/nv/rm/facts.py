"""What the resource manager tells of a card: its chip, classes, engines, sizes, versions.

Source: NVIDIA open-gpu-kernel-modules: ctrl0000gpu.h, ctrl0080gpu.h, ctrl2080gpu.h, ctrl2080gr.h, ctrl2080mc.h,
ctrl2080fb.h, ctrl2080ce.h, cl2080_notification.h (engine types).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_fifo as mc
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.drivers.nv.rm.client import RmClient
from ringup.drivers.transport.nvidia.status import RmRefused
from ringup.errors import NotSupported, TransportError
from ringup.queues.nv.rows import GenerationRow, row_among

KIB = 1024
# cl2080_notification.h: NV2080_ENGINE_TYPE_GRAPHICS, NV2080_ENGINE_TYPE_COPY0 to COPY9
ENGINE_GRAPHICS, ENGINE_COPY0, COPY_ENGINES = 1, 9, 10
# major version of SMs from which on its code is called by another number
NUMBERED_OTHERWISE = 10
# ctrl2080gpu.h, NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY
GID_BINARY = 2
# architecture of ctrl2080mc.h: how its chips are called, with their implementation behind
ARCHITECTURES = {
    0x160: "tu1{:02}",
    0x170: "ga1{:02}",
    0x180: "gh1{:02}",
    0x190: "ad1{:02}",
    0x1A0: "gb1{:02}",
    0x1B0: "gb2{:02}",
}
# NV2080_CTRL_MC_ARCH_INFO_IMPLEMENTATION_TU116, TU117: two that are not called by their number
ODD_CHIPS = {(0x160, 8): "tu116", (0x160, 7): "tu117"}


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card is, as far as its driver needs it. Sizes in bytes. `copy_engines`: types of those that are not the
    graphics engine's own; `row`: its generation.
    """

    product: str
    chip: str
    row: GenerationRow
    classes: frozenset[int]
    copy_engines: tuple[int, ...]
    sms: int
    tpcs: int
    gpcs: int
    warps_per_sm: int
    vram_bytes: int
    bar1_bytes: int
    l2_bytes: int
    gid: bytes


def read(client: RmClient, device: int, subdevice: int) -> CardFacts:
    """Ask the card's objects. Raises `NotSupported` for a generation that ringup does not drive."""
    arch = client.ask(subdevice, mc.NV2080_CTRL_CMD_MC_GET_ARCH_INFO, mc.NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS)
    classes = _classes(client, device)
    try:
        shape = _shape(client, subdevice)
    except RmRefused as error:
        raise NotSupported(
            f"{error}; where MIG is on (`nvidia-smi -L` shows parts of the card), a process has no whole card: ringup drives "
            "cards without MIG"
        ) from error
    gpcs, tpcs, sms_per_tpc, warps, version = shape
    row = row_among(classes)
    _check_version(row, version)
    vram, bar1, l2 = memory_sizes(
        client,
        subdevice,
        fb.NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE,
        fb.NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE,
        fb.NV2080_CTRL_FB_INFO_INDEX_L2CACHE_SIZE,
    )
    return CardFacts(
        product=product(client, subdevice),
        chip=chip_name(arch.architecture, arch.implementation),
        row=row,
        classes=classes,
        copy_engines=copy_engines(client, subdevice),
        sms=tpcs * max(sms_per_tpc, 1),
        tpcs=tpcs,
        gpcs=gpcs,
        warps_per_sm=warps,
        vram_bytes=vram * KIB,
        bar1_bytes=bar1 * KIB,
        l2_bytes=l2,
        gid=gid(client, subdevice),
    )


def _shape(client: RmClient, subdevice: int) -> list[int]:
    """Return how many GPCs, TPCs, SMs of a TPC and warps of an SM there are, and the version of the SMs."""
    return graphics(
        client,
        subdevice,
        gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC,
        gr.NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM,
        gr.NV2080_CTRL_GR_INFO_INDEX_SM_VERSION,
    )


def _check_version(row: GenerationRow, version: int) -> None:
    """Raise `NotSupported` for SMs of another version than the row's, of which only limits and code are known.

    UNKNOWN: which versions Blackwell's chips tell: those of their code are other numbers.
    """
    told = version >> 8, version & 0xFF
    if 0 < told[0] < NUMBERED_OTHERWISE and told != row.sm:
        raise NotSupported(
            f"the card's SMs are of version {told[0]}.{told[1]}: ringup drives {row.target} of that class"
        )


def chip_name(architecture: int, implementation: int) -> str:
    """Return a chip's name. Raises `NotSupported` for an architecture before Turing, or one that is not known."""
    if (architecture, implementation) in ODD_CHIPS:
        return ODD_CHIPS[architecture, implementation]
    pattern = ARCHITECTURES.get(architecture)
    if pattern is None:
        raise NotSupported(f"the card's architecture is {architecture:#x}: ringup drives Turing to Blackwell")
    return pattern.format(implementation)


def product(client: RmClient, subdevice: int) -> str:
    """Return the name that the card is sold under."""
    told = client.ask(subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS)
    return bytes(told.gpuNameString.ascii).partition(b"\0")[0].decode("ascii", "replace")


def gid(client: RmClient, subdevice: int) -> bytes:
    """Return the 16 bytes that identify the card."""
    told = client.ask(
        subdevice,
        gpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO,
        gpu.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS,
        flags=GID_BINARY,
    )
    return bytes(told.data[0 : min(told.length, len(told.data))])


def graphics(client: RmClient, subdevice: int, *indices: int) -> list[int]:
    """Return facts of the graphics engine, by their indices (NV2080_CTRL_GR_INFO_INDEX_…)."""
    request = client.make(gr.NV2080_CTRL_GR_GET_INFO_V2_PARAMS, grInfoListSize=len(indices))
    return _listed(client, subdevice, gr.NV2080_CTRL_CMD_GR_GET_INFO_V2, request, request.grInfoList, indices)


def memory_sizes(client: RmClient, subdevice: int, *indices: int) -> list[int]:
    """Return facts of the card's memory, by their indices (NV2080_CTRL_FB_INFO_INDEX_…); most in KiB."""
    request = client.make(fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS, fbInfoListSize=len(indices))
    return _listed(client, subdevice, fb.NV2080_CTRL_CMD_FB_GET_INFO_V2, request, request.fbInfoList, indices)


def _listed(
    client: RmClient, handle: int, command: int, request: Any, rows: Any, indices: tuple[int, ...]
) -> list[int]:
    for at, index in enumerate(indices):
        rows[at].index = index
    client.control(handle, command, request)
    return [rows[at].data for at in range(len(indices))]


def _classes(client: RmClient, device: int) -> frozenset[int]:
    told = client.ask(
        device,
        device_controls.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
        device_controls.NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS,
    )
    if told.numClasses > len(told.classList):
        raise TransportError(f"the driver lists {told.numClasses} classes in room for {len(told.classList)}")
    return frozenset(told.classList[0 : told.numClasses])


def engines(client: RmClient, subdevice: int) -> tuple[int, ...]:
    """Return the types of the card's engines."""
    told = client.ask(subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_ENGINES_V2, gpu.NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS)
    if told.engineCount > len(told.engineList):
        raise TransportError(f"the driver lists {told.engineCount} engines in room for {len(told.engineList)}")
    return tuple(told.engineList[0 : told.engineCount])


def copy_engines(client: RmClient, subdevice: int) -> tuple[int, ...]:
    """Return the types of the copy engines that work beside the graphics engine, the others only where there is none.

    A copy engine of the graphics engine shares its runlist, so it waits while a kernel runs.
    """
    present = [one for one in engines(client, subdevice) if ENGINE_COPY0 <= one < ENGINE_COPY0 + COPY_ENGINES]
    byte, bit = mc.NV2080_CTRL_CE_CAPS_CE_GRCE
    try:
        told = client.ask(subdevice, mc.NV2080_CTRL_CMD_CE_GET_ALL_CAPS, mc.NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS)
        alone = [one for one in present if not told.capsTbl[one - ENGINE_COPY0][byte] & bit]
    # a driver that does not tell it
    except RmRefused:
        alone = present
    if not present:
        raise NotSupported("the card has no copy engine that this process may use")
    return tuple(alone or present)
