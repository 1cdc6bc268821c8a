"""What the blocks of a Radeon know of each other: the protocols between them, and the board that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ringup.silicon.amd.common.cache_control import CacheControl
from ringup.silicon.common.cells import RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram
from ringup.silicon.shader.common.state import Memory

# dwords of the doorbell page that belongs to the driver; the pages of processes follow
FIRST_PAGE_DWORDS = 1024


@dataclass(slots=True)
class Board:
    """What every block shares: the chip's name in the register database, time, log, faults, the register bus, memories,
    and caches if the card has them.
    """

    chip: str
    clock: VirtualClock
    log: EventLog
    faults: Faults
    space: RegisterSpace
    vram: Vram
    host: HostMemory
    # what an engine executes at this moment, in words, for reports of faults
    doing: Callable[[], str] | None = None
    caches: CacheControl | None = None


class VmFault(Exception):
    """A hub refused an access. It has set its fault status and raised the interrupt; the client stops what it was
    doing.
    """

    def __init__(self, hub: str, vmid: int, gpu_va: int, write: bool, reason: str) -> None:
        verb = "write to" if write else "read of"
        super().__init__(f"{hub} vmid {vmid}: {verb} {gpu_va:#x}: {reason}")
        self.hub, self.vmid, self.gpu_va, self.write, self.reason = hub, vmid, gpu_va, write, reason


class Hub(Protocol):
    """A VM hub as its clients see it: every engine reaches memory through one. `client` names the engine, for the fault
    status.
    """

    def read(self, vmid: int, gpu_va: int, size_bytes: int, client: str) -> bytes:
        """Return bytes at a virtual (or aperture) address, or raise `VmFault`."""
        ...

    def reach(self, vmid: int, gpu_va: int, size_bytes: int) -> int:
        """Return how many of `size_bytes` from `gpu_va` can be read before a fault; nothing is recorded."""
        ...

    def write(self, vmid: int, gpu_va: int, data: bytes | memoryview, client: str) -> None:
        """Store bytes, or raise `VmFault`; bytes before the faulting page are stored."""
        ...

    def memory(self, vmid: int, client: str) -> Memory:
        """Return the address space for the shader cores."""
        ...


class InterruptSink(Protocol):
    """The interrupt handler block."""

    def interrupt(
        self,
        client_id: int,
        source_id: int,
        *,
        ring_id: int = 0,
        vmid: int = 0,
        pasid: int = 0,
        data: tuple[int, ...] = (),
        node_id: int = 0,
    ) -> None:
        """Queue one entry for the host; `data` are up to four source-data dwords."""
        ...


class DoorbellClient(Protocol):
    """An engine that listens to doorbells."""

    def doorbell(self, index: int, value: int, size_bytes: int) -> bool:
        """Handle a write to the doorbell at dword `index` of the doorbell BAR; return False if the doorbell belongs to
        another engine.
        """
        ...


class Resettable(Protocol):
    """A block that a card-wide reset reaches."""

    def reset(self) -> None:
        """Return to the state after power-on: registers, rings, loaded firmware."""
        ...


class FirmwareTarget(Protocol):
    """A block whose firmware the PSP loads."""

    def firmware_loaded(self, fw_type: int, image: bytes) -> None:
        """Take an image that the PSP has accepted; `fw_type` is a GFX_FW_TYPE_* number of psp_gfx_if.h."""
        ...
