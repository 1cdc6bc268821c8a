"""What the CPU hands to the firmware before it starts: named regions of memory, and in one of them its arguments.

Source: libos_init_args.h, gsp_init_args.h; kgspSetupLibosInitArgs and nouveau's r535_gsp_libos_init, which write them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.autogen.nv import gsp_queue as q
from ringup.silicon.nv.gsp.queue import PAGE, QueueError
from ringup.silicon.nv.rm.parts import Aperture, PhysicalMemory

ARGUMENTS_BYTES = q.LIBOS_MEMORY_REGION_INIT_ARGUMENTS_MAX
ARGUMENTS = "RMARGS"
# the regions that the firmware logs to; both drivers hand over these three
LOGS = ("LOGINIT", "LOGINTR", "LOGRM")


@dataclass(frozen=True, slots=True)
class Region:
    """One region: its name, where it is on the bus, and how large it is."""

    name: str
    address: int
    size_bytes: int
    kind: int


def regions(memory: PhysicalMemory, address: int) -> dict[str, Region]:
    """Return the regions by name. The list ends with a name of 0, or with its page.

    Raises `QueueError` for a region that no firmware could use.
    """
    found: dict[str, Region] = {}
    data = bytearray(memory.read(Aperture.SYSMEM, address, ARGUMENTS_BYTES))
    entry = q.LibosMemoryRegionInitArgument
    for offset in range(0, ARGUMENTS_BYTES, entry.SIZE):
        row = entry.view(data, offset)
        if row.id8 == 0:
            break
        # the name's letters, the first in the highest byte that is used
        name = row.id8.to_bytes(8, "big").lstrip(b"\0").decode("ascii", "replace")
        if row.loc != q.LIBOS_MEMORY_REGION_LOC_SYSMEM or row.kind not in (
            q.LIBOS_MEMORY_REGION_CONTIGUOUS,
            q.LIBOS_MEMORY_REGION_RADIX3,
        ):
            raise QueueError("libos", f"region {name} has kind {row.kind} and location {row.loc}")
        if row.pa % PAGE or row.size == 0 or row.size % PAGE:
            raise QueueError("libos", f"region {name} has {row.size:#x} bytes at {row.pa:#x}")
        found[name] = Region(name, row.pa, row.size, row.kind)
    return found


@dataclass(frozen=True, slots=True)
class Queues:
    """Where the queues are: the first page of their memory, its number of pages, and the offsets within."""

    shared: int
    pages: int
    command: int
    status: int
    end: int
    resumed: bool


def arguments(memory: PhysicalMemory, found: dict[str, Region], release: str) -> Queues:
    """Return the arguments, whose layout is that of the firmware's release."""
    region = found.get(ARGUMENTS)
    if region is None:
        raise QueueError("libos", f"there is no region {ARGUMENTS} among {', '.join(found) or 'none'}")
    layout = q.GSP_ARGUMENTS_CACHED.at(release)
    if region.size_bytes < layout.SIZE:
        raise QueueError("libos", f"region {ARGUMENTS} has {region.size_bytes} bytes, not {layout.SIZE}")
    view = layout.view(bytearray(memory.read(Aperture.SYSMEM, region.address, layout.SIZE)))
    queues = view.messageQueueInitArguments
    whole = queues.pageTableEntryCount * PAGE
    # a second pair of queues, for interrupts, lies behind if there is one
    second = getattr(queues, "locklessCmdQueueOffset", 0)
    return Queues(
        queues.sharedMemPhysAddr,
        queues.pageTableEntryCount,
        queues.cmdQueueOffset,
        queues.statQueueOffset,
        second or whole,
        bool(view.srInitArguments.bInPMTransition),
    )
