"""Memory that the kernel's driver gives out, and the address spaces that it is mapped in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ringup.autogen.nv import status
from ringup.silicon.nv.kernel.heap import Heap
from ringup.silicon.nv.kernel.tables import PageTables, Run
from ringup.silicon.nv.memory import gmmu
from ringup.silicon.nv.rm.objects import AddressSpace, State
from ringup.silicon.nv.rm.parts import Aperture, RmError

SMALL, BIG, HUGE = 1 << gmmu.SMALL_SHIFT, 1 << gmmu.BIG_SHIFT, 1 << gmmu.HUGE_SHIFT
# GUESS: where the driver begins to give out addresses of its own spaces; it keeps the lowest ones free
FIRST_VA, END_VA = HUGE, 1 << 47
APERTURES = {Aperture.VRAM: gmmu.Aperture.VIDEO, Aperture.SYSMEM: gmmu.Aperture.SYSTEM_COHERENT}


class View(Protocol):
    """A mapping of memory into a process."""

    def revoke(self) -> None:
        """The memory is gone: reads are ones from now on."""
        ...


@dataclass(eq=False, slots=True)
class Backing(State):
    """Contiguous memory of the card, or of the system. `pointer`: where this process has its first byte.

    `foreign`: it is a process's own. `release` gives it back. `mappings`: where address spaces have it; `views`: where
    processes have it.
    """

    aperture: Aperture
    address: int
    size_bytes: int
    pointer: int
    release: Callable[[], None]
    foreign: bool = False
    mappings: list[Mapping] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    def end(self) -> None:
        """Give the memory back: it is unmapped everywhere first, as the resource server does."""
        for mapping in tuple(self.mappings):
            mapping.end()
        for view in self.views:
            view.revoke()
        self.views.clear()
        self.release()


@dataclass(eq=False, slots=True)
class Registers(State):
    """A page of registers: a byte offset in BAR 0."""

    offset: int
    size_bytes: int


@dataclass(eq=False, slots=True)
class Virtual(State):
    """A range of virtual addresses. `reserved`: it was given out as a whole, and mappings lie in it by offset."""

    space: Space
    base: int
    size_bytes: int
    reserved: bool


@dataclass(eq=False, slots=True)
class Mapping:
    """Memory in an address space. `inside`: the range that it lies in, if that was reserved."""

    space: Space
    gpu_va: int
    size_bytes: int
    backing: Backing
    runs: list[Run]
    inside: Virtual | None = None

    def end(self) -> None:
        """Take the memory out of the address space."""
        del self.space.mappings[self.gpu_va]
        self.backing.mappings.remove(self)
        self.space.tables.clear(self.runs)
        if self.inside is None and self.space.heap is not None:
            self.space.heap.give(self.gpu_va, self.size_bytes)


class Space:
    """An address space: its page tables, the addresses that are taken, and what is mapped. `heap`: None if its owner
    chooses all addresses.
    """

    def __init__(self, state: AddressSpace, tables: PageTables, heap: Heap | None) -> None:
        self.state, self.tables, self.heap = state, tables, heap
        self.mappings: dict[int, Mapping] = {}

    def map(
        self,
        backing: Backing,
        offset: int,
        size_bytes: int,
        *,
        at: int | None = None,
        inside: Virtual | None = None,
        read_only: bool = False,
    ) -> Mapping:
        """Map part of memory; both ends are rounded to whole pages. `at`: the address that the caller wants."""
        if not size_bytes or offset + size_bytes > backing.size_bytes:
            raise RmError(
                status.NV_ERR_INVALID_BASE, f"{size_bytes:#x} bytes at {offset:#x} of {backing.size_bytes:#x}"
            )
        first = offset // SMALL * SMALL
        size_bytes = -(-(offset + size_bytes) // SMALL) * SMALL - first
        address = backing.address + first
        gpu_va = self._place(address, size_bytes, at, inside)
        try:
            runs = self.tables.map(gpu_va, address, size_bytes, APERTURES[backing.aperture], read_only=read_only)
        except RmError:
            if inside is None and self.heap is not None:
                self.heap.give(gpu_va, size_bytes)
            raise
        made = Mapping(self, gpu_va, size_bytes, backing, runs, inside)
        self.mappings[gpu_va] = made
        backing.mappings.append(made)
        return made

    def _place(self, address: int, size_bytes: int, at: int | None, inside: Virtual | None) -> int:
        if at is not None and at % SMALL:
            raise RmError(status.NV_ERR_INVALID_OFFSET, f"address {at:#x} begins no page")
        if inside is not None:
            at = inside.base if at is None else at
            if not inside.base <= at <= at + size_bytes <= inside.base + inside.size_bytes:
                raise RmError(status.NV_ERR_INVALID_OFFSET, f"{size_bytes:#x} bytes at {at:#x} leave their range")
            if self.find(at, size_bytes) is not None:
                raise RmError(status.NV_ERR_INVALID_OFFSET, f"there is a mapping at {at:#x}")
            return at
        if self.heap is None:
            assert at is not None
            return at
        if at is None:
            return self.heap.take(size_bytes, alignment_of(address, size_bytes))
        self.heap.take_at(at, size_bytes)
        return at

    def find(self, gpu_va: int, size_bytes: int = 1) -> Mapping | None:
        """Return a mapping that has any of these addresses."""
        return next(
            (
                one
                for one in self.mappings.values()
                if one.gpu_va < gpu_va + size_bytes and gpu_va < one.gpu_va + one.size_bytes
            ),
            None,
        )

    def free(self) -> None:
        """Unmap everything, and give the page tables back."""
        for mapping in tuple(self.mappings.values()):
            mapping.end()
        self.tables.free()


def alignment_of(address: int, size_bytes: int) -> int:
    """Return the alignment that lets memory have the largest pages."""
    return next((page for page in (HUGE, BIG) if size_bytes >= page and not address % page), SMALL)
