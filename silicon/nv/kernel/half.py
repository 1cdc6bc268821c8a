"""The kernel's half of the resource manager: it gives memory out, keeps page tables, and makes what the firmware's half
is told of when a channel is made.

Source: NVIDIA's open kernel modules 535.261.03: video_mem.c, system_mem.c, virtual_mem.c, vaspace_api.c,
usermode_api.c, kernel_channel.c, event.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc, rm_memory, status
from ringup.silicon.common.memory import HostMemory, Span, Vram
from ringup.silicon.nv.kernel import process
from ringup.silicon.nv.kernel.compute_mode import ComputeMode
from ringup.silicon.nv.kernel.heap import Heap
from ringup.silicon.nv.kernel.memory import BIG, END_VA, FIRST_VA, HUGE, SMALL, Backing, Registers, Space, Virtual
from ringup.silicon.nv.kernel.rows import ROWS, USERMODE
from ringup.silicon.nv.kernel.tables import PageTables
from ringup.silicon.nv.memory.gmmu import Gmmu
from ringup.silicon.nv.rm import construct, page_directories
from ringup.silicon.nv.rm.classes import ClassRow, Kind
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.objects import AddressSpace, Resource, Running, State, state_of
from ringup.silicon.nv.rm.parts import Aperture, Channel, PageDirectory, RmError

# the state of the host engine, its method buffer, and a control block, in bytes
INSTANCE_BYTES, METHOD_BYTES, USERD_BYTES = 0x1000, 0x5000, 0x200
ERROR_NOTIFIER_BYTES = 16
DEFAULT_PAGE = rm_memory.NVOS32_ATTR_PAGE_SIZE_DEFAULT
PAGES = {
    rm_memory.NVOS32_ATTR_PAGE_SIZE_4KB: SMALL,
    rm_memory.NVOS32_ATTR_PAGE_SIZE_BIG: BIG,
    rm_memory.NVOS32_ATTR_PAGE_SIZE_HUGE: HUGE,
}
FIXED = rm_memory.NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE
VIRTUAL_FLAG = rm_memory.NVOS32_ALLOC_FLAGS_VIRTUAL


class Card(Protocol):
    """What the kernel's half needs of its card."""

    @property
    def vram(self) -> Vram:
        """The card's memory."""
        ...

    @property
    def host(self) -> HostMemory:
        """The system's memory."""
        ...


class KernelHalf:
    """`os_event(client, descriptor)` returns whether a process registered a descriptor for events."""

    def __init__(self, card: Card, gmmu: Gmmu, usable_bytes: int, os_event: Callable[[int, int], bool]) -> None:
        self._card, self._gmmu, self._os_event = card, gmmu, os_event
        # address 0 is nobody's, as a pointer without a target should fault
        self.heap = Heap(BIG, usable_bytes)
        self.rows: Mapping[int, ClassRow] = ROWS
        self._manager: Manager | None = None
        self.spaces: dict[AddressSpace, Space] = {}
        self.compute_mode = ComputeMode()
        # what the driver made for a channel: by channel's object until it is known, then by channel
        self._waiting: dict[int, list[tuple[int, int]]] = {}
        self._of_channels: dict[Channel, list[tuple[int, int]]] = {}

    @property
    def manager(self) -> Manager:
        """The other half."""
        assert self._manager is not None
        return self._manager

    def join(self, manager: Manager) -> None:
        """Know the other half."""
        self._manager = manager

    # --- the resource manager's calls -------------------------------------------------------------------------------
    def prepare(self, made: Resource, params: Any) -> None:
        """Give a new object its state, or fill in what the firmware's half is told."""
        kind = made.row.kind
        if kind is Kind.MEMORY and made.row.number in ROWS:
            if made.row.number == nv.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
                raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{made.row.name} comes by ALLOC_MEMORY or VID_HEAP_CONTROL")
            made.state = self._memory(made.row.number, params)
        elif kind is Kind.VIRTUAL:
            made.state = self._virtual(made, params)
        elif kind is Kind.USERMODE:
            made.state = Registers(self.manager.board.usermode_base, USERMODE.BYTES)
        elif kind is Kind.EVENT and made.row.number == nv.NV01_EVENT_OS_EVENT:
            if not self._os_event(made.client.handle, params.data & 0xFFFFFFFF):
                raise RmError(status.NV_ERR_OBJECT_NOT_FOUND, f"descriptor {params.data} is not registered for events")
        elif kind is Kind.CHANNEL:
            self._channel(made, params)

    def complete(self, made: Resource, params: Any) -> None:
        """Give an address space its page tables; forget what only the firmware's half needed to know."""
        if made.row.kind is Kind.VASPACE:
            space = state_of(made, AddressSpace)
            if not space.external and params.index == rm_alloc.NV_VASPACE_ALLOCATION_INDEX_GPU_NEW:
                self.space_of(space, params.vaBase, params.vaSize)
        elif made.row.kind is Kind.CHANNEL:
            self._of_channels[state_of(made, Running).channel] = self._waiting.pop(made.number)
            for name in ("instanceMem", "ramfcMem", "userdMem", "mthdbufMem", "errorNotifierMem"):
                place = getattr(params, name)
                place.base = place.size = place.addressSpace = place.cacheAttrib = 0

    def dropped(self, gone: Resource, state: State) -> None:
        """Give back what an object had."""
        self.compute_mode.dropped(gone)
        for address, size in self._waiting.pop(gone.number, ()):
            self.heap.give(address, size)
        if isinstance(state, Running):
            alive = set(self.manager.numbers)
            for channel in [one for one in self._of_channels if one not in alive]:
                for address, size in self._of_channels.pop(channel):
                    self.heap.give(address, size)
        if self._shared(gone, state):
            return
        if isinstance(state, Backing):
            state.end()
        elif isinstance(state, Virtual):
            self._drop_virtual(state)
        elif isinstance(state, AddressSpace) and state in self.spaces:
            self.spaces.pop(state).free()

    def _shared(self, gone: Resource, state: State) -> bool:
        return any(
            other is not gone and other.state is state
            for client in self.manager.clients
            for other in client.resources.values()
        )

    # --- memory -----------------------------------------------------------------------------------------------------
    def _memory(self, number: int, params: rm_alloc.NV_MEMORY_ALLOCATION_PARAMS) -> Backing:
        attributes = rm_memory.NVOS32_ATTR(params.attr)
        if params.flags & VIRTUAL_FLAG:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, "memory of this class is not virtual")
        if number == nv.NV01_MEMORY_SYSTEM:
            if attributes.location == rm_memory.NVOS32_ATTR_LOCATION_VIDMEM:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, "memory of the system is in no card")
            made = self.system_memory(params.size)
        else:
            if attributes.location != rm_memory.NVOS32_ATTR_LOCATION_VIDMEM:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"memory of the card at location {attributes.location}")
            fixed = params.offset if params.flags & FIXED else None
            made = self.video_memory(params.size, attributes.page_size, params.alignment, fixed)
        # GUESS: callers see no physical address
        params.size, params.limit, params.offset = made.size_bytes, made.size_bytes - 1, 0
        return made

    def video_memory(self, size_bytes: int, page_size: int, alignment: int = 0, fixed: int | None = None) -> Backing:
        """Return zeroed memory of the card. `page_size`: NVOS32_ATTR_PAGE_SIZE_*.

        GUESS: without one, pages are as large as the memory fills.
        """
        page = PAGES.get(page_size) or next((one for one in (HUGE, BIG) if size_bytes >= one), SMALL)
        if not 0 < size_bytes <= self.heap.end:
            raise RmError(
                status.NV_ERR_NO_MEMORY if size_bytes else status.NV_ERR_INVALID_ARGUMENT, f"{size_bytes:#x} bytes"
            )
        if alignment & alignment - 1:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"an alignment of {alignment:#x}")
        size = -(-size_bytes // page) * page
        if fixed is not None:
            self.heap.take_at(fixed, size)
            address = fixed
        else:
            address = self.heap.take(size, max(page, alignment))
        # the driver scrubs memory before it gives it to another client
        self._card.vram.clear(address, address + size)
        pointer = self._card.vram.span.pointer + address
        return Backing(Aperture.VRAM, address, size, pointer, lambda: self.heap.give(address, size))

    def system_memory(self, size_bytes: int) -> Backing:
        """Return zeroed memory of the system. GUESS: at most 2**40 bytes; metal ends where pages run out."""
        if not 0 < size_bytes < 1 << 40:
            raise RmError(
                status.NV_ERR_NO_MEMORY if size_bytes else status.NV_ERR_INVALID_ARGUMENT, f"{size_bytes:#x} bytes"
            )
        try:
            buffer = self._card.host.allocate(size_bytes)
        except OSError as error:
            raise RmError(status.NV_ERR_NO_MEMORY, f"{size_bytes:#x} bytes: {error}") from error
        span = buffer.span
        return Backing(Aperture.SYSMEM, span.base, span.size_bytes, span.pointer, buffer.free)

    def user_memory(self, address: int, size_bytes: int, *, writable: bool) -> Backing:
        """Return a process's own pages as memory. Metal pins them: here the caller must keep them mapped."""
        if address % SMALL or size_bytes % SMALL or not size_bytes:
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{size_bytes:#x} bytes at {address:#x} are no whole pages")
        try:
            for page in range(address, address + size_bytes, SMALL):
                byte = process.load(page, 1)
                if writable:
                    process.store(page, byte)
        except OSError as error:
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"nothing is mapped at {address:#x}") from error
        view = memoryview((ctypes.c_ubyte * size_bytes).from_address(address)).cast("B")
        buffer = self._card.host.place(Span(0, size_bytes, view, address, writable=writable))
        return Backing(Aperture.SYSMEM, buffer.span.base, size_bytes, address, buffer.free, foreign=True)

    # --- address spaces ---------------------------------------------------------------------------------------------
    def space_of(self, state: AddressSpace, base: int = 0, size_bytes: int = 0) -> Space:
        """Return an address space that the driver keeps; its page tables are made when they are first needed."""
        if state.external:
            raise RmError(status.NV_ERR_NOT_SUPPORTED, "someone else keeps this address space")
        found = self.spaces.get(state)
        if found is None:
            start = max(base, FIRST_VA)
            end = min(base + size_bytes if size_bytes else END_VA, END_VA)
            if start >= end:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"no addresses from {base:#x} on, {size_bytes:#x} bytes")
            found = self.keep(state, Heap(start, end))
        return found

    def keep(self, state: AddressSpace, heap: Heap | None) -> Space:
        """Make page tables for an address space, and tell the channels that run in it."""
        tables = PageTables(self.heap, self._card.vram.write, self._gmmu)
        found = self.spaces[state] = Space(state, tables, heap)
        page_directories.set_root(self.manager, state, PageDirectory(Aperture.VRAM, tables.root))
        return found

    def leave(self, state: AddressSpace) -> None:
        """Take the page tables of an address space away."""
        space = self.spaces.pop(state, None)
        if space is not None:
            page_directories.set_root(self.manager, state, None)
            space.free()

    def named(self, made: Resource, handle: int) -> Space:
        """Return the address space that a parameter names, or the device's."""
        if handle:
            found = self.manager.clients.find(made.client, handle)
            if found.row.kind is not Kind.VASPACE:
                raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no address space")
            return self.space_of(state_of(found, AddressSpace))
        device = made.ancestor(Kind.DEVICE)
        if device is None:
            raise RmError(status.NV_ERR_INVALID_DEVICE, f"{made} is below no device")
        return self.space_of(state_of(device, AddressSpace))

    def _virtual(self, made: Resource, params: Any) -> Virtual:
        space = self.named(made, params.hVASpace)
        heap = space.heap
        assert heap is not None
        if made.row.number == nv.NV01_MEMORY_VIRTUAL:
            # the whole space, or the part that the caller names
            params.limit = params.limit or heap.end - 1
            if params.offset > params.limit:
                raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"addresses from {params.offset:#x} to {params.limit:#x}")
            return Virtual(space, params.offset, params.limit + 1 - params.offset, reserved=False)
        size = -(-params.size // SMALL) * SMALL
        if not size:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a range without addresses")
        if params.flags & FIXED:
            base = params.offset
            if base % SMALL:
                raise RmError(status.NV_ERR_INVALID_OFFSET, f"a range at {base:#x}")
            heap.take_at(base, size)
        else:
            page = HUGE if size >= HUGE else BIG if size >= BIG else SMALL
            base = heap.take(size, max(page, params.alignment))
        params.offset, params.size, params.limit = base, size, base + size - 1
        return Virtual(space, base, size, reserved=True)

    def _drop_virtual(self, state: Virtual) -> None:
        for mapping in tuple(state.space.mappings.values()):
            if mapping.inside is state:
                mapping.end()
        if state.reserved and state.space.heap is not None:
            state.space.heap.give(state.base, state.size_bytes)

    # --- channels ---------------------------------------------------------------------------------------------------
    def _channel(self, made: Resource, params: rm_alloc.NV_CHANNEL_ALLOC_PARAMS) -> None:
        """Make a channel's instance block, and find its control block and error notifier."""
        _, space, _, _ = construct.surroundings(self.manager, made, params)
        if not space.external:
            self.space_of(space)
        # nobody but the kernel names addresses
        taken = self._waiting[made.number] = []
        sizes = (INSTANCE_BYTES, METHOD_BYTES)
        for size in sizes:
            taken.append((self.heap.take(size, SMALL), size))
            self._card.vram.clear(taken[-1][0], taken[-1][0] + size)
        (instance, _), (methods, _) = taken
        for name, address, size in (
            ("instanceMem", instance, INSTANCE_BYTES),
            ("ramfcMem", instance, USERD_BYTES),
            ("mthdbufMem", methods, METHOD_BYTES),
        ):
            _describe(getattr(params, name), Aperture.VRAM, address, size)
        if params.hUserdMemory[0]:
            backing, at = self._part(made, params.hUserdMemory[0], params.userdOffset[0], USERD_BYTES)
            _describe(params.userdMem, backing.aperture, backing.address + at, USERD_BYTES)
        else:
            taken.append((self.heap.take(SMALL, SMALL), SMALL))
            self._card.vram.clear(taken[-1][0], taken[-1][0] + SMALL)
            _describe(params.userdMem, Aperture.VRAM, taken[-1][0], USERD_BYTES)
        if params.hObjectError:
            backing, at = self._part(made, params.hObjectError, 0, ERROR_NOTIFIER_BYTES)
            _describe(params.errorNotifierMem, backing.aperture, backing.address + at, backing.size_bytes)
        else:
            _describe(params.errorNotifierMem, 0, 0, 0)

    def _part(self, made: Resource, handle: int, offset: int, size_bytes: int) -> tuple[Backing, int]:
        """Return memory that a channel's parameters name."""
        found = self.manager.clients.find(made.client, handle)
        if not isinstance(found.state, Backing):
            raise RmError(status.NV_ERR_OBJECT_NOT_FOUND, f"{found} is no memory")
        if offset + size_bytes > found.state.size_bytes or offset % size_bytes:
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"{size_bytes:#x} bytes at {offset:#x} of {found}")
        return found.state, offset

    def channel_memory(self, channel: Channel) -> int:
        """Return where the control block lies that the driver made for a channel, in memory of the card."""
        taken = self._of_channels.get(channel, [])
        if len(taken) < 3:
            raise RmError(status.NV_ERR_INVALID_OBJECT, "the channel's control block is the caller's memory")
        return taken[2][0]


def _describe(place: Any, aperture: int, address: int, size_bytes: int) -> None:
    place.base, place.size, place.addressSpace, place.cacheAttrib = address, size_bytes, int(aperture), 0
