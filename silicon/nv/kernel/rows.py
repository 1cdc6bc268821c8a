"""Classes that the kernel's half of the resource manager has beside those of the firmware's.

Source: resource_list.h of NVIDIA's open kernel modules 535.261.03.
"""

from __future__ import annotations

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc as params
from ringup.autogen.structs import Struct
from ringup.silicon.nv.rm.classes import ClassRow, Kind

_LISTS = (Kind.DEVICE, Kind.SUBDEVICE)


class USERMODE:
    """The page of doorbells: clc461.h. `BYTES`: NVC461 has 0x10000; `DOORBELL`: NOTIFY_CHANNEL_PENDING."""

    BYTES, DOORBELL = 0x10000, 0x90


def _row(name: str, kind: Kind, parents: tuple[Kind, ...], layout: type[Struct] | None, *, required: bool) -> ClassRow:
    return ClassRow(int(getattr(nv, name)), name, kind, parents, layout, required)


ROWS = {
    row.number: row
    for row in (
        _row("NV01_MEMORY_SYSTEM", Kind.MEMORY, _LISTS, params.NV_MEMORY_ALLOCATION_PARAMS, required=True),
        _row("NV01_MEMORY_LOCAL_USER", Kind.MEMORY, _LISTS, params.NV_MEMORY_ALLOCATION_PARAMS, required=True),
        _row("NV01_MEMORY_SYSTEM_OS_DESCRIPTOR", Kind.MEMORY, _LISTS, None, required=False),
        _row("NV50_MEMORY_VIRTUAL", Kind.VIRTUAL, (Kind.DEVICE,), params.NV_MEMORY_ALLOCATION_PARAMS, required=True),
        _row("VOLTA_USERMODE_A", Kind.USERMODE, (Kind.SUBDEVICE,), None, required=False),
        _row("TURING_USERMODE_A", Kind.USERMODE, (Kind.SUBDEVICE,), None, required=False),
        _row("AMPERE_USERMODE_A", Kind.USERMODE, (Kind.SUBDEVICE,), None, required=False),
        _row("HOPPER_USERMODE_A", Kind.USERMODE, (Kind.SUBDEVICE,), params.NV_HOPPER_USERMODE_A_PARAMS, required=False),
        _row("NV_CONFIDENTIAL_COMPUTE", Kind.CONFIDENTIAL, (Kind.CLIENT,), params.NV_CONFIDENTIAL_COMPUTE_ALLOC_PARAMS, required=True),
    )
}  # fmt: skip
# which of the pages of doorbells a chip has: those of its generation and before
DOORBELLS = {
    "tu102": ("VOLTA_USERMODE_A", "TURING_USERMODE_A"),
    "ga100": ("VOLTA_USERMODE_A", "TURING_USERMODE_A", "AMPERE_USERMODE_A"),
    "ga102": ("VOLTA_USERMODE_A", "TURING_USERMODE_A", "AMPERE_USERMODE_A"),
    "ad102": ("VOLTA_USERMODE_A", "TURING_USERMODE_A", "AMPERE_USERMODE_A"),
    "gh100": ("VOLTA_USERMODE_A", "TURING_USERMODE_A", "AMPERE_USERMODE_A", "HOPPER_USERMODE_A"),
}
