"""Controls that no public header names, with the answer chosen for each. The only place for such rows.

They were seen in the requests that nvidia-smi and libcuda 535.261.03 make (data/nv-rm, gsp-*.log.gz). Which answer
metal gives is unknown, so all of this is a GUESS. NOT_SUPPORTED is chosen unless a driver is known to stop for it. What
a control is about follows from its bits 15:8: without the highest they are the number of a documented interface.
"""

from __future__ import annotations

from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.lists import Values, fill
from ringup.silicon.nv.rm.controls.table import Answer, Control, Request, refuse

# cuInit asks for these two and stops without an answer
FACTS: Values = {0xC: lambda manager: 0, 0x25: lambda manager: 0}
# index of NV2080_CTRL_CMD_GPU_GET_INFO_V2 that both nvidia-smi and libcuda ask the firmware for
GPU_INFO: Values = {0x11: lambda manager: 0}


def _facts(request: Request, params: layouts.UNDOCUMENTED_LIST) -> None:
    """Fill in a list. That it is one is read off a request: 2, then 0xc, 0, 0x25, 0, and room for 41 entries."""
    fill(request.manager, params.count, params.entries, FACTS, "facts of 0x20808159")


def _row(command: int, size_bytes: int, why: str) -> Control:
    answer: Answer = refuse(status.NV_ERR_NOT_SUPPORTED, why)
    return Control(command, f"undocumented {command:#010x}", Kind.SUBDEVICE, None, size_bytes, answer)


ROWS = (
    Control(0x20808159, "undocumented 0x20808159", Kind.SUBDEVICE, layouts.UNDOCUMENTED_LIST, 0, _facts),
    _row(0x20808161, 952, "of the whole GPU; asked by nvidia-smi and cuInit; nothing is known of its shape"),
    _row(0x2080852E, 528, "of temperatures or fans; asked by nvidia-smi"),
    _row(0x20809009, 8, "of clocks; asked by nvidia-smi and cuInit"),
    _row(0x2080A068, 4, "of performance; asked by nvidia-smi"),
    _row(0x2080A612, 3608, "of power; asked by nvidia-smi"),
    _row(0x2080A618, 6944, "of power; asked by nvidia-smi"),
    _row(0x2080A637, 88024, "of power; asked by nvidia-smi, in a continuation record"),
)
