"""What happens to a page fault that may be handled: a client of the CPU's gets it, through a buffer in system memory.

UVM registers the buffer. The firmware copies packets there and says so; the channel waits. UVM either reports the fault
back, and then the channel stops, or handles it. Sources: NVIDIA's open kernel modules 535.261.03 and 595.45.04:
kern_gmmu.c (kgmmuClientShadowFaultBufferRegister), queue.h and queue.c (the ring's indices),
_kgmmuFaultEntryRmServiceable_GV100 (which faults are the client's), ctrl2080gpu.h (REPORT_NON_REPLAYABLE_FAULT).
"""

from __future__ import annotations

import struct

from ringup.silicon.nv.rm.manager import BLOCK, Manager
from ringup.silicon.nv.rm.parts import Aperture, Channel

# the key of the buffer's pages and of its ring in `Manager.buffers`, each with the number of the buffer
SHADOW, RING = "shadow fault buffer", "shadow fault ring"
NON_REPLAYABLE, REPLAYABLE = 0, 1
PACKET_BYTES, PAGE = 32, 4096
# struct Queue: the indices have cache lines of their own
CAPACITY, GET_INDEX, PUT_INDEX = 0, 64, 128
# NVC369_BUF_ENTRY_INST: the address of the faulting channel's instance block, in units of a page, and its aperture
INSTANCE_APERTURE = {0: Aperture.VRAM, 2: Aperture.SYSMEM, 3: Aperture.SYSMEM}


def _word(manager: Manager, address: int) -> int:
    return int.from_bytes(manager.memory.read(Aperture.SYSMEM, address, 8), "little")


def offer(manager: Manager, packet: bytes) -> bool:
    """Give a packet to the client that registered a buffer for it; return whether there is one, with a free place."""
    pages = manager.buffers.get((SHADOW, NON_REPLAYABLE))
    ring = manager.buffers.get((RING, NON_REPLAYABLE))
    if pages is None or ring is None:
        return False
    try:
        capacity, get, put = (_word(manager, ring[0] + at) for at in (CAPACITY, GET_INDEX, PUT_INDEX))
        if not max(get, put) < capacity <= len(pages) * PAGE // PACKET_BYTES:
            manager.log.note(
                BLOCK, "violation", "the ring of faults has capacity {}, get {} and put {}", capacity, get, put
            )
            return False
        following = (put + 1) % capacity
        if following == get:
            return False
        page, offset = divmod(put * PACKET_BYTES, PAGE)
        manager.memory.write(Aperture.SYSMEM, pages[page] + offset, packet)
        # the packet is there before the index says so
        manager.memory.write(Aperture.SYSMEM, ring[0] + PUT_INDEX, struct.pack("<Q", following))
    except ValueError as error:
        manager.log.note(BLOCK, "violation", "the buffer of faults: {}", error)
        return False
    manager.events.fault_queued()
    return True


def channel_of(manager: Manager, packet: bytes) -> Channel | None:
    """Return the channel that a packet names by its instance block."""
    low, high = struct.unpack_from("<II", packet)
    address, aperture = high << 32 | low & 0xFFFF_F000, INSTANCE_APERTURE.get(low >> 8 & 3)
    for channel in manager.numbers:
        if channel.instance.address == address and channel.instance.aperture is aperture:
            return channel
    return None
