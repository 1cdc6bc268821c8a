"""The classes of objects: which parents each has, which parameters it takes, and whether a parent has only one of them.

Source: resource_list.h of NVIDIA's open kernel modules 535.261.03, and of 570.144 for classes of Hopper and later
(parents, multi-instance, parameters, free priority). The physical half of the resource manager registers the same
classes; that its rows are alike is an inference from the class numbers that the CPU forwards to it unchanged.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc as params
from ringup.autogen.structs import Struct
from ringup.silicon.nv.rm import layouts


class Kind(enum.Enum):
    """What an object is, whichever generation's class it has."""

    CLIENT = "client"
    DEVICE = "device"
    SUBDEVICE = "subdevice"
    VASPACE = "address space"
    GROUP = "channel group"
    SHARE = "context share"
    CHANNEL = "channel"
    RETAINER = "channel retainer"
    GRAPHICS = "graphics or compute object"
    COPY = "copy object"
    VIDEO = "video object"
    SOFTWARE = "software object"
    EVENT = "event"
    VIRTUAL = "virtual memory"
    MEMORY = "memory"
    DEBUGGER = "debugger session"
    I2C = "I2C object"
    DIAGNOSTICS = "diagnostics object"
    INFOROM = "inforom object"
    PROFILER = "profiler"
    BINARY = "object of the closed interface"
    USERMODE = "page of doorbells"
    CONFIDENTIAL = "confidential computing object"
    DISPLAYS = "displays of a device"
    DISPLAY = "display engine"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class. `parents`: None for any. `params`: the parameters' layout; without them `required` is false.

    `single`: a parent has at most one of its kind. `early`: freed before other objects of the same tree.
    """

    number: int
    name: str
    kind: Kind
    parents: tuple[Kind, ...] | None
    params: type[Struct] | None = None
    required: bool = False
    single: bool = False
    early: bool = False


_DEVICE, _SUBDEVICE, _CHANNEL = (Kind.DEVICE,), (Kind.SUBDEVICE,), (Kind.CHANNEL,)
_ON_GROUP = (Kind.DEVICE, Kind.GROUP)
_LISTS = (Kind.DEVICE, Kind.SUBDEVICE)


def _row(
    name: str,
    kind: Kind,
    parents: tuple[Kind, ...] | None,
    layout: type[Struct] | None = None,
    *,
    required: bool = False,
    single: bool = False,
    early: bool = False,
) -> ClassRow:
    # NV01_ROOT is 0 and not in the generated list, which leaves out names that are worth nothing
    number = 0 if name == "NV01_ROOT" else int(getattr(nv, name))
    return ClassRow(number, name, kind, parents, layout, required, single, early)


def _family(names: str, kind: Kind, layout: type[Struct] | None, *, single: bool = False) -> tuple[ClassRow, ...]:
    """Return the rows of the objects that channels have, which differ only in their numbers."""
    return tuple(_row(name, kind, _CHANNEL, layout, single=single) for name in names.split())


ROWS = (
    _row("NV01_ROOT", Kind.CLIENT, (), params.NV0000_ALLOC_PARAMETERS),
    _row("NV01_ROOT_NON_PRIV", Kind.CLIENT, (), params.NV0000_ALLOC_PARAMETERS),
    _row("NV01_ROOT_CLIENT", Kind.CLIENT, (), params.NV0000_ALLOC_PARAMETERS),
    _row("NV01_DEVICE_0", Kind.DEVICE, (Kind.CLIENT,), params.NV0080_ALLOC_PARAMETERS),
    _row("NV20_SUBDEVICE_0", Kind.SUBDEVICE, _DEVICE, params.NV2080_ALLOC_PARAMETERS),
    _row("FERMI_VASPACE_A", Kind.VASPACE, _LISTS, params.NV_VASPACE_ALLOCATION_PARAMETERS, required=True),
    _row(
        "KEPLER_CHANNEL_GROUP_A",
        Kind.GROUP,
        _DEVICE,
        params.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
        required=True,
        early=True,
    ),
    _row("FERMI_CONTEXT_SHARE_A", Kind.SHARE, (Kind.GROUP,), params.NV_CTXSHARE_ALLOCATION_PARAMETERS, required=True),
    *(
        _row(name, Kind.CHANNEL, _ON_GROUP, params.NV_CHANNEL_ALLOC_PARAMS, required=True, early=True)
        for name in (
            "VOLTA_CHANNEL_GPFIFO_A",
            "TURING_CHANNEL_GPFIFO_A",
            "AMPERE_CHANNEL_GPFIFO_A",
            "HOPPER_CHANNEL_GPFIFO_A",
            "BLACKWELL_CHANNEL_GPFIFO_A",
            "BLACKWELL_CHANNEL_GPFIFO_B",
        )
    ),
    _row("UVM_CHANNEL_RETAINER", Kind.RETAINER, _ON_GROUP, layouts.UVM_CHANNEL_RETAINER, required=True, early=True),
    *_family(
        "TURING_A TURING_COMPUTE_A AMPERE_A AMPERE_COMPUTE_A AMPERE_B AMPERE_COMPUTE_B ADA_A ADA_COMPUTE_A FERMI_TWOD_A "
        "KEPLER_INLINE_TO_MEMORY_B HOPPER_A HOPPER_COMPUTE_A BLACKWELL_B BLACKWELL_COMPUTE_B "
        "BLACKWELL_INLINE_TO_MEMORY_A",
        Kind.GRAPHICS,
        params.NV_GR_ALLOCATION_PARAMETERS,
    ),
    *_family(
        "TURING_DMA_COPY_A AMPERE_DMA_COPY_A AMPERE_DMA_COPY_B HOPPER_DMA_COPY_A BLACKWELL_DMA_COPY_B",
        Kind.COPY,
        params.NVB0B5_ALLOCATION_PARAMETERS,
    ),
    *_family(
        "NVC4B0_VIDEO_DECODER NVC6B0_VIDEO_DECODER NVC7B0_VIDEO_DECODER NVC9B0_VIDEO_DECODER NVB8B0_VIDEO_DECODER NVCFB0_VIDEO_DECODER",
        Kind.VIDEO,
        params.NV_BSP_ALLOCATION_PARAMETERS,
    ),
    *_family(
        "NVC4B7_VIDEO_ENCODER NVC7B7_VIDEO_ENCODER NVC9B7_VIDEO_ENCODER NVCFB7_VIDEO_ENCODER",
        Kind.VIDEO,
        params.NV_MSENC_ALLOCATION_PARAMETERS,
    ),
    *_family(
        "NVC4D1_VIDEO_NVJPG NVC9D1_VIDEO_NVJPG NVB8D1_VIDEO_NVJPG NVCFD1_VIDEO_NVJPG",
        Kind.VIDEO,
        params.NV_NVJPG_ALLOCATION_PARAMETERS,
    ),
    *_family(
        "NVC6FA_VIDEO_OFA NVC7FA_VIDEO_OFA NVC9FA_VIDEO_OFA NVB8FA_VIDEO_OFA NVCFFA_VIDEO_OFA",
        Kind.VIDEO,
        params.NV_OFA_ALLOCATION_PARAMETERS,
        single=True,
    ),
    *_family("GF100_TIMED_SEMAPHORE_SW GP100_UVM_SW", Kind.SOFTWARE, None),
    *(
        _row(name, Kind.EVENT, None, params.NV0005_ALLOC_PARAMETERS, required=True)
        for name in ("NV01_EVENT", "NV01_EVENT_KERNEL_CALLBACK", "NV01_EVENT_OS_EVENT", "NV01_EVENT_KERNEL_CALLBACK_EX")
    ),
    _row("NV01_MEMORY_VIRTUAL", Kind.VIRTUAL, _DEVICE, params.NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, required=True),
    *(
        _row(name, Kind.MEMORY, _LISTS, params.NV_MEMORY_LIST_ALLOCATION_PARAMS, required=True)
        for name in ("NV01_MEMORY_LIST_SYSTEM", "NV01_MEMORY_LIST_FBMEM", "NV01_MEMORY_LIST_OBJECT")
    ),
    _row("GT200_DEBUGGER", Kind.DEBUGGER, _DEVICE, params.NV83DE_ALLOC_PARAMETERS, required=True),
    _row("NV04_DISPLAY_COMMON", Kind.DISPLAYS, _DEVICE, single=True),
    _row("NVCA70_DISPLAY", Kind.DISPLAY, _DEVICE, single=True),
    _row("NV40_I2C", Kind.I2C, _SUBDEVICE, single=True),
    _row("NV20_SUBDEVICE_DIAG", Kind.DIAGNOSTICS, _SUBDEVICE, single=True),
    _row("GF100_SUBDEVICE_INFOROM", Kind.INFOROM, _SUBDEVICE),
    _row("GF100_PROFILER", Kind.PROFILER, (Kind.SUBDEVICE, Kind.CHANNEL, Kind.GROUP)),
    _row("NV2081_BINAPI", Kind.BINARY, _SUBDEVICE, params.NV2081_ALLOC_PARAMETERS),
)
BY_NUMBER = {row.number: row for row in ROWS}
# a chip has only some of these: its board row lists them
OF_A_GENERATION = frozenset((Kind.CHANNEL, Kind.GRAPHICS, Kind.COPY, Kind.VIDEO, Kind.DISPLAYS, Kind.DISPLAY))
