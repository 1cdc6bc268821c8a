"""Controls that prepare for sleep: which memory is saved, and where."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.controls.table import Request, row
from ringup.silicon.nv.rm.objects import Paged, state_of
from ringup.silicon.nv.rm.parts import Aperture, RmError
from ringup.silicon.nv.rm.sleep import MAX_REGIONS, Region, Saving, halt

# g_fbsr_nvoc.h, FBSR_TYPE_DMA: the only one that drivers ask for
BY_DMA = 4


def _memory(request: Request, client: int, handle: int, aperture: Aperture) -> Paged:
    found = state_of(request.manager.find(client, handle), Paged)
    if found.aperture is not aperture:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"memory {handle:#x} is not in {aperture.name}")
    return found


def _check_type(kind: int) -> None:
    if kind != BY_DMA:
        raise RmError(status.NV_ERR_NOT_SUPPORTED, f"memory saved by way {kind}")


def _begin(request: Request, params: layouts.SAVE_INIT) -> None:
    """Take the save area. What was announced before is forgotten.

    Since 555 the area is for the firmware's own memory alone: nouveau's r570_fbsr_suspend saves the rest.
    """
    regions = own_offset = 0
    members = request.manager.layout(layouts.SAVE_INIT).members()
    if "regions" in members:
        _check_type(params.kind)
        regions, own_offset = params.regions, params.own_offset
    if regions > MAX_REGIONS:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{regions} regions")
    area = _memory(request, params.client, params.memory, Aperture.SYSMEM)
    request.manager.saving = Saving(area, regions, own_offset)
    if "metadata" in members:
        request.manager.saving.metadata = params.metadata


def _region(request: Request, params: layouts.SAVE_REGION) -> None:
    """Take one region. Its memory object may go afterwards: nouveau frees it at once."""
    _check_type(params.kind)
    saving = request.manager.saving
    if saving is None:
        raise RmError(status.NV_ERR_INVALID_STATE, "no save area was announced")
    memory = _memory(request, params.client, params.memory, Aperture.VRAM)
    saving.add(Region(memory, params.offset, params.save_offset, params.size))


def _halt(request: Request, params: layouts.HALT_CHANNELS) -> None:
    """Take every channel off its runlist, or let those go on that were on one, also after a sleep."""
    halt(request.manager, bool(params.halt))


ROWS = (
    row(internal, "INTERNAL_FBSR_INIT", layouts.SAVE_INIT, _begin),
    row(internal, "INTERNAL_FBSR_SEND_REGION_INFO", layouts.SAVE_REGION, _region),
    row(internal, "INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING", layouts.HALT_CHANNELS, _halt),
)
