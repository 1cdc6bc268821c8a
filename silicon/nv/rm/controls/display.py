"""Controls of the display engine, as far as a board without connectors has one: heads and windows, and nothing that
they could show pictures on. Channels of the engine are not modelled; a driver that finds no display makes none.

Sources: ctrl0073system.h, ctrl0073specific.h, ctrl0073dp.h and ctrl2080internal.h of NVIDIA's open kernel modules
570.144, dev_disp.h (what feHwSysCap says); nouveau 7.3, rm/r535/disp.c and rm/r570/disp.c (who asks for what).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.boards.facts import Display
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.table import Control, Request, accept, row
from ringup.silicon.nv.rm.parts import RmError

# bits of feHwSysCap: heads from 0 on, output resources from 8 on
FIRST_OUTPUT = 8
# ADDR_FBMEM
VIDEO_MEMORY = 2
# GUESS: the core channel, and two channels and a cursor of each window and head, as the class list has them
CHANNELS_OF_A_WINDOW = 2


def _of_display(answer: Callable[[Request, Display, Any], None]) -> Callable[[Request, Any], None]:
    """Refuse a control on a board without a display engine. GUESS: the status."""

    def run(request: Request, params: Any) -> None:
        display = request.manager.board.display
        if display is None:
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{request.manager.board.chip} has no display engine")
        answer(request, display, params)

    return run


def _instance_memory(request: Request, display: Display, params: layouts.DISPLAY_INSTANCE_MEMORY) -> None:
    """Take the memory in which the engine's channels find their objects. There are none, so it is not read."""
    if params.space != VIDEO_MEMORY or params.address + params.size > request.manager.chip.vram_bytes:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"instance memory at {params.address:#x} of space {params.space}")


def _static_info(request: Request, display: Display, params: layouts.DISPLAY_STATIC_INFO) -> None:
    """Tell heads, outputs and windows; no display is active."""
    heads = display.heads.bit_count()
    params.capabilities = display.heads | display.outputs << FIRST_OUTPUT
    params.windows, params.heads = display.windows, heads
    params.channels = 1 + CHANNELS_OF_A_WINDOW * display.windows.bit_count() + heads
    params.i2c_port = params.active = params.embedded = 0
    params.remapper = params.external_mux = params.internal_mux = 0


def _heads(request: Request, display: Display, params: layouts.DISPLAY_HEADS) -> None:
    params.heads = display.heads.bit_count()


def _head_mask(request: Request, display: Display, params: layouts.DISPLAY_HEAD_MASK) -> None:
    params.mask = display.heads


def _supported(request: Request, display: Display, params: layouts.DISPLAYS_SUPPORTED) -> None:
    """Tell which displays the board's connectors support: none."""
    params.displays = params.with_ddc = 0


ROWS = (
    row(internal, "INTERNAL_DISPLAY_WRITE_INST_MEM", layouts.DISPLAY_INSTANCE_MEMORY, _of_display(_instance_memory)),
    row(internal, "INTERNAL_DISPLAY_GET_STATIC_INFO", layouts.DISPLAY_STATIC_INFO, _of_display(_static_info)),
    # how bright ACPI says that an internal panel is; there is no panel
    row(internal, "INTERNAL_INIT_BRIGHTC_STATE_LOAD", layouts.DISPLAY_BRIGHTNESS, accept),
    Control(0x730102, "NV0073_CTRL_CMD_SYSTEM_GET_NUM_HEADS", Kind.DISPLAYS, layouts.DISPLAY_HEADS, 0, _of_display(_heads)),
    Control(0x730107, "NV0073_CTRL_CMD_SYSTEM_GET_SUPPORTED", Kind.DISPLAYS, layouts.DISPLAYS_SUPPORTED, 0, _of_display(_supported)),
    Control(0x730287, "NV0073_CTRL_CMD_SPECIFIC_GET_ALL_HEAD_MASK", Kind.DISPLAYS, layouts.DISPLAY_HEAD_MASK, 0, _of_display(_head_mask)),
    # the CPU does the work of DisplayPort by itself from now on, of which there is none
    Control(0x731365, "NV0073_CTRL_CMD_DP_SET_MANUAL_DISPLAYPORT", Kind.DISPLAYS, None, 4, accept),
)  # fmt: skip
