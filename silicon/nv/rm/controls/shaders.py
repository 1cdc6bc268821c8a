"""Controls of the graphics engine: masks, order of the SMs, sizes of context buffers."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_0080 as device_controls
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.silicon.nv.rm.controls.table import Request, row

PREFIX = "NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_"


def _context_buffers(
    request: Request, params: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO_PARAMS
) -> None:
    """Tell the sizes of a graphics context's buffers; only the first of eight graphics engines exists."""
    sizes = params.engineContextBuffersInfo[0]
    for name, (size, alignment) in request.manager.board.context_buffers.items():
        entry = sizes.engine[getattr(device_controls, PREFIX + name)]
        entry.size, entry.alignment = size, alignment


ROWS = (
    row(
        internal,
        "INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO",
        internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO_PARAMS,
        _context_buffers,
    ),
)
