"""GSP-RM's image in the host's memory, in any pages: a tree of three levels of page tables leads to them.

Source: OGKM kernel_gsp.c, kgspCreateRadix3_IMPL; LIBOS_MEMORY_REGION_RADIX_PAGE_SIZE.
"""

from __future__ import annotations

import struct

from ringup.drivers.nv.gsp.host_memory import PAGE_BYTES, HostMemory, pages
from ringup.drivers.transport.seam import DmaMemory
from ringup.errors import FirmwareError

ENTRY_BYTES = 8
LEVELS = 3


def put(image: bytes, memory: HostMemory, what: str) -> int:
    """Copy the image into the host's memory; return where the tree's root lies. Raises `FirmwareError` for an image
    that is too large for it.
    """
    level = memory.put(image, what, contiguous=False)
    for depth in range(LEVELS, 0, -1):
        level = _table(level, memory, f"{what}'s page table of level {depth - 1}")
    if level.size_bytes != PAGE_BYTES:
        raise FirmwareError(f"{what}: {len(image)} bytes are more than a tree of {LEVELS} levels reaches")
    return level.bus_addr()


def _table(level: DmaMemory, memory: HostMemory, what: str) -> DmaMemory:
    addresses = list(pages(level))
    table = memory.alloc(ENTRY_BYTES * len(addresses), what)
    struct.pack_into(f"<{len(addresses)}Q", table.view, 0, *addresses)
    return table
