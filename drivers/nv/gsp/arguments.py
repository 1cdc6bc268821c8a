"""What GSP's kernel (LIBOS) and GSP-RM are given at their start: a list of memory regions with 8-letter names, of which
most are logs that GSP writes, and one is GSP-RM's own arguments.

A log begins with GSP's write position and the addresses of its pages; the rest are GSP's records, which only its
firmware's own tables can spell out. Source: OGKM kernel_gsp.c, kgspSetupLibosInitArgs_IMPL,
kgspPopulateGspRmInitArgs_IMPL, _kgspInitLibosLoggingStructures; libos_init_args.h.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Mapping

from ringup.autogen.nv.gsp_queue import (
    GSP_ARGUMENTS_CACHED,
    LIBOS_MEMORY_REGION_CONTIGUOUS,
    LIBOS_MEMORY_REGION_LOC_SYSMEM,
    LibosMemoryRegionInitArgument,
)
from ringup.autogen.structs import memory as bytes_of
from ringup.drivers.nv.gsp.host_memory import HostMemory, pages
from ringup.drivers.nv.gsp.queue import QUEUE_BYTES, TABLE_BYTES, TABLE_ENTRIES, Queues
from ringup.drivers.nv.gsp.releases import struct

LOG_BYTES = 0x1_0000
# ORDER: LOGINIT first, for what is logged before the list is read
LOGS = ("LOGINIT", "LOGINTR", "LOGRM")
ARGUMENTS = "RMARGS"
PAGE_BYTES = 4096


def region_id(name: str) -> int:
    """Return a region's name as a number, the first letter highest."""
    if not 1 <= len(name) <= 8 or not name.isascii():
        raise ValueError(f"a region's name has 1 to 8 letters, not {name!r}")
    return int.from_bytes(name.encode(), "big")


class Arguments:
    """Logs, GSP-RM's arguments and the list of them, in host memory. `bus_addr` is what GSP's mailboxes get."""

    def __init__(self, memory: HostMemory, queues: Queues, release: str) -> None:
        self._logs = {name: memory.alloc(LOG_BYTES, f"the log {name}", contiguous=True) for name in LOGS}
        for log in self._logs.values():
            packing.pack_into(f"<{LOG_BYTES // PAGE_BYTES}Q", log.view, 8, *pages(log))
        rm = memory.put(_rm_arguments(queues, release), "GSP-RM's arguments")
        regions = {name: (log.bus_addr(), LOG_BYTES) for name, log in self._logs.items()}
        regions[ARGUMENTS] = (rm.bus_addr(), PAGE_BYTES)
        self._list = memory.put(_list(regions, release), "the list of GSP's arguments")

    @property
    def bus_addr(self) -> int:
        """Where the list lies."""
        return self._list.bus_addr()

    def logs(self) -> dict[str, bytes]:
        """Return what GSP has written to each log so far, without the pages' addresses: raw records of 8 bytes.

        A log is a ring: the oldest records are overwritten. One that GSP has not written is empty.
        """
        return {name: _records(bytes(log.view)) for name, log in self._logs.items()}


def _records(raw: bytes) -> bytes:
    # the pages' addresses behind the counter are overwritten: GSP has read them before. Source: OGKM liblogdecode.c
    written = packing.unpack_from("<Q", raw)[0]
    room = len(raw) // 8 - 1
    ring = raw[8:]
    if written <= room:
        return ring[: 8 * written]
    at = 8 * (written % room)
    return ring[at:] + ring[:at]


def _rm_arguments(queues: Queues, release: str) -> bytes:
    made = struct(GSP_ARGUMENTS_CACHED, release)()
    shared = made.messageQueueInitArguments
    shared.sharedMemPhysAddr = queues.bus_addr
    shared.pageTableEntryCount = TABLE_ENTRIES
    shared.cmdQueueOffset = TABLE_BYTES
    shared.statQueueOffset = TABLE_BYTES + QUEUE_BYTES
    if "bDmemStack" in struct(GSP_ARGUMENTS_CACHED, release).members():
        # GSP-RM's stack in its data memory. Source: OGKM 570 kgspPopulateGspRmInitArgs_IMPL
        made.bDmemStack = 1
    return bytes(bytes_of(made))


def _list(regions: Mapping[str, tuple[int, int]], release: str) -> bytes:
    listed = bytearray()
    for name, (bus_addr, size_bytes) in regions.items():
        one = struct(LibosMemoryRegionInitArgument, release)(
            id8=region_id(name),
            pa=bus_addr,
            size=size_bytes,
            kind=LIBOS_MEMORY_REGION_CONTIGUOUS,
            loc=LIBOS_MEMORY_REGION_LOC_SYSMEM,
        )
        listed += bytes_of(one)
    return bytes(listed)
