"""A channel's address space: memory by virtual address, through the GMMU, and who asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ringup.silicon.nv.memory.gmmu import Aperture, Directory, Gmmu, Kind, Missing
from ringup.silicon.nv.memory.windows import Memory


class Client(NamedTuple):
    """Who accesses memory, by names and numbers of fault reports: an engine (NV_PFAULT_MMU_ENG_ID_*) and its unit
    (NV_PFAULT_CLIENT_HUB_*, or NV_PFAULT_CLIENT_GPC_* if it is not behind the hub).
    """

    engine: str
    engine_id: int
    unit: str
    unit_id: int
    hub: bool = True


class PageFault(Exception):  # an event of the card
    """An access that no page table entry allows."""

    def __init__(self, gpu_va: int, write: bool, kind: Kind, client: Client) -> None:
        super().__init__(f"{'write to' if write else 'read of'} {gpu_va:#x}: {kind.name}")
        self.gpu_va, self.write, self.kind, self.client = gpu_va, write, kind, client

    @property
    def engine(self) -> str:
        """The name of the engine that asked, such as CE0."""
        return self.client.engine

    @property
    def report(self) -> str:
        """The fault as NVIDIA's driver logs it (Xid 31). Source: kgmmuPrintFaultInfo_GV100, kern_gmmu_gv100.c."""
        client = self.client
        where = f"{self.gpu_va >> 32:#x}_{self.gpu_va & 0xFFFFF000:08x}"
        side = "HUBCLIENT" if client.hub else "GPCCLIENT"
        access = "WRITE" if self.write else "READ"
        return (
            f"MMU Fault: ENGINE {client.engine} {side}_{client.unit} faulted @ {where}. "
            f"Fault is of type FAULT_{self.kind.name} ACCESS_TYPE_VIRT_{access}"
        )


class AddressSpace:
    """Memory as a client of a channel sees it. Accesses are split where pages end, and complete up to the page that
    faults. `root` returns the root of the page tables, which may change while the channel lives.
    """

    def __init__(self, memory: Memory, gmmu: Gmmu, root: Callable[[], Directory], client: Client) -> None:
        self.memory, self.gmmu, self._root, self.client = memory, gmmu, root, client

    @property
    def directory(self) -> Directory:
        """The root of the page tables."""
        return self._root()

    def seen_by(self, client: Client) -> AddressSpace:
        """Return the same space for another client."""
        return AddressSpace(self.memory, self.gmmu, self._root, client)

    def fault(self, gpu_va: int, write: bool, kind: Kind) -> PageFault:
        """Return the fault of an access of this client."""
        return PageFault(gpu_va, write, kind, self.client)

    def _find(self, gpu_va: int, *, write: bool) -> tuple[Aperture, int, int]:
        """Return where an address lies, and how many bytes follow in its page."""
        found = self.gmmu.find(self._root(), gpu_va, write=write)
        if isinstance(found, Missing):
            raise self.fault(gpu_va, write, found.kind)
        inside = gpu_va & (1 << found.shift) - 1
        return found.aperture, found.address + inside, (1 << found.shift) - inside

    def read(self, gpu_va: int, size_bytes: int, /) -> bytes:
        """Return bytes. Raises `PageFault`."""
        parts, end = [], gpu_va + size_bytes
        while gpu_va < end:
            aperture, address, left = self._find(gpu_va, write=False)
            count = min(left, end - gpu_va)
            parts.append(self.memory.read(aperture, address, count))
            gpu_va += count
        return b"".join(parts)

    def write(self, gpu_va: int, data: bytes | memoryview, /) -> None:
        """Store bytes. Raises `PageFault`."""
        at = 0
        while at < len(data):
            aperture, address, left = self._find(gpu_va + at, write=True)
            count = min(left, len(data) - at)
            self.memory.write(aperture, address, data[at : at + count])
            at += count
