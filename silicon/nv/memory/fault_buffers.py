"""The MMU's buffers of page faults in memory, one for faults that may be replayed and one for the others.

The MMU puts a packet of 32 bytes at PUT; software takes it at GET. Sources: dev_vm.h of NVIDIA's open kernel modules
(NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_*), clc369.h (the packet, NVC369_BUF_ENTRY), kern_gmmu_gv100.c and
uvm_volta_fault_buffer.c (who moves which pointer, when the interrupt comes again).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from ringup.autogen.nv import mmu
from ringup.silicon.nv.common.registers import ALL, PRIV_BASE, Registers
from ringup.silicon.nv.memory.gmmu import Aperture
from ringup.silicon.nv.memory.space import PageFault

PACKET_BYTES, PAGE = 32, 4096
GET, PUT, SIZE = (
    mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_GET,
    mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_PUT,
    mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_SIZE,
)
# the parts of the packet's last words
REPLAYABLE, ENABLED, VALID, HUB_CLIENT = 1 << 7, 1 << 30, 1 << 31, 1 << 20
# NVC369_BUF_ENTRY_INST_APERTURE
APERTURES = {Aperture.VIDEO: 0, Aperture.SYSTEM_COHERENT: 2, Aperture.SYSTEM_NONCOHERENT: 3}


class Which(IntEnum):
    """The number of a buffer in its registers."""

    NON_REPLAYABLE = 0
    REPLAYABLE = 1


class Origin(NamedTuple):
    """Whose access faulted: where the channel's instance block is, and whether its faults may be replayed or handled
    without stopping it (the bits FAULT_REPLAY of the instance block).
    """

    aperture: Aperture
    instance: int
    replays: bool


def packet(fault: PageFault, origin: Origin, time_ns: int, *, replayable: bool) -> bytes:
    """Return the 32 bytes that describe a fault."""
    client = fault.client
    info = (
        fault.kind
        | (REPLAYABLE if replayable else 0)
        | client.unit_id << 8
        | int(fault.write) << 16
        | (HUB_CLIENT if client.hub else 0)
        | (ENABLED if origin.replays else 0)
        | VALID
    )
    page = fault.gpu_va & ~(PAGE - 1)
    return struct.pack(
        "<8I",
        origin.instance & 0xFFFF_F000 | APERTURES[origin.aperture] << 8,
        origin.instance >> 32,
        page & ALL,
        page >> 32,
        time_ns & ALL,
        time_ns >> 32,
        client.engine_id,
        info,
    )


class HostBytes(Protocol):
    """System memory by bus address."""

    def write(self, bus_addr: int, data: bytes) -> None:
        """Store bytes."""
        ...


class Buffer:
    """One buffer. `interrupt` says that there is a packet, `error` that one was lost."""

    def __init__(
        self,
        which: Which,
        registers: Registers,
        host: HostBytes,
        interrupt: Callable[[], None],
        error: Callable[[], None],
    ) -> None:
        self._host, self._interrupt, self._error = host, interrupt, error
        self._pages: tuple[int, ...] = ()
        self._taken = self._next = 0
        self._overflow = self._corrupted = False
        self._size = registers.cell(SIZE, which, PRIV_BASE)
        get = registers.cell(GET, which, PRIV_BASE)
        get.on_read, get.on_write = lambda: int(GET(ptr=self._taken, **self._flags())), self._take
        put = registers.cell(PUT, which, PRIV_BASE, fixed=ALL)
        put.on_read = lambda: int(PUT(ptr=self._next, **self._flags()))

    def _flags(self) -> dict[str, int]:
        return {"overflow": int(self._overflow), "getptr_corrupted": int(self._corrupted)}

    @property
    def places(self) -> int:
        """How many packets the ring has room for, and one more; 0 while the buffer is disabled."""
        size = SIZE(self._size.value)
        return min(size.val, PAGE // PACKET_BYTES * len(self._pages)) if size.enable else 0

    def enable(self, pages: tuple[int, ...] | None) -> None:
        """Use these pages of system memory; None: use none."""
        self._pages = pages or ()
        self._taken = self._next = 0
        self._overflow = self._corrupted = False
        count = PAGE // PACKET_BYTES * len(self._pages)
        self._size.value = int(SIZE(val=count, enable=1)) if count else 0

    def reset(self) -> None:
        """Use no memory: the chip was reset."""
        self.enable(None)

    def _take(self, value: int) -> None:
        """Software has taken packets. While some are left, the interrupt comes again. Writing a flag clears it."""
        word = GET(value)
        self._overflow = self._overflow and not word.overflow
        self._corrupted = self._corrupted and not word.getptr_corrupted
        if word.ptr >= max(self.places, 1):
            self._corrupted = True
        else:
            self._taken = word.ptr
        if self._taken != self._next:
            self._interrupt()

    def put(self, data: bytes) -> bool:
        """Add a packet; return whether there was a place for it: after an overflow not until its flag is cleared."""
        if not self.places:
            return False
        following = (self._next + 1) % self.places
        if self._overflow or following == self._taken:
            self._overflow = True
            self._error()
            return False
        page, offset = divmod(self._next * PACKET_BYTES, PAGE)
        self._host.write(self._pages[page] + offset, data)
        self._next = following
        self._interrupt()
        return True
