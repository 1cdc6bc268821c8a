"""What the security processor's boot firmware leaves in VRAM, 1 MiB below its end: a small directory of facts about
this boot.

One of them says whether the power controller's tables are signed (SCPM): then the security processor hands them over,
and a driver's table or feature mask is refused. `power_table_is_signed(window)`. Source: amdgpu amdgpu_psp.c,
psp_get_runtime_db_entry and psp_sw_init; amdgpu_psp.h, struct psp_runtime_data_directory.
"""

from __future__ import annotations

import struct

from ringup.autogen.amd import psp_boot as facts
from ringup.drivers.amd.bus.vram import VramWindow

# psp_runtime_data_header: cookie, version; then psp_runtime_data_directory: entry_count
HEADER = struct.Struct("<HHHxx")
ENTRY = struct.Struct("<IHH")  # psp_runtime_entry: entry_type, offset from the header, size
WORD = struct.Struct("<I")


def entry(window: VramWindow, kind: int) -> int | None:
    """Return the first word of a fact (`PSP_RUNTIME_ENTRY_TYPE_*`); None when this boot left none."""
    start = window.size_bytes - facts.PSP_RUNTIME_DB_OFFSET
    cookie, _, count = HEADER.unpack(window.read(start, HEADER.size))
    if cookie != facts.PSP_RUNTIME_DB_COOKIE_ID or count >= facts.PSP_RUNTIME_DB_DIAG_ENTRY_MAX_COUNT:
        return None
    for found, offset, size in ENTRY.iter_unpack(window.read(start + HEADER.size, count * ENTRY.size)):
        if found == kind and size >= WORD.size and offset + size <= facts.PSP_RUNTIME_DB_SIZE_IN_BYTES:
            return int(WORD.unpack(window.read(start + offset, WORD.size))[0])
    return None


def power_table_is_signed(window: VramWindow) -> bool:
    """Whether the power controller takes its tables from the security processor alone."""
    status = entry(window, facts.PSP_RUNTIME_ENTRY_TYPE_PPTABLE_ERR_STATUS)
    return status is not None and status != facts.SCPM_DISABLE
