"""/dev/nvidia-uvm: an address space of a process, whose page tables this driver writes instead of the resource manager.

Source: NVIDIA's open kernel modules 535.261.03, nvidia-uvm: uvm.c (routing), uvm_va_space.c, uvm_map_external.c,
uvm_user_channel.c, uvm_va_range.c. Managed memory is not modelled.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringup.autogen.nv import status, uvm
from ringup.autogen.structs import Struct
from ringup.silicon.nv.kernel.files import File, MemoryRegion, Node, failure
from ringup.silicon.nv.kernel.memory import SMALL, Backing, Mapping, Space
from ringup.silicon.nv.rm import identity
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.objects import AddressSpace, Running, state_of
from ringup.silicon.nv.rm.parts import Channel, RmError

if TYPE_CHECKING:
    from ringup.silicon.nv.kernel.system import VirtualKernel

ADDRESS_END = 1 << 49
EXTERNAL, SEMAPHORES, REFLECTED, CHANNEL = "external", "semaphore pool", "dynamic parallelism", "channel"


@dataclass(eq=False, slots=True)
class Range:
    """A range of addresses. `memory`: what is mapped there, each with UVM's own handle of the memory."""

    base: int
    size_bytes: int
    kind: str
    memory: list[tuple[Mapping, int]] = field(default_factory=list)
    pool: Backing | None = None

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.base + self.size_bytes


@dataclass(eq=False, slots=True)
class UvmSpace:
    """What a file of UVM has. `held`: UVM's own handle of the address space that was registered."""

    flags: int
    registered: bool = False
    space: Space | None = None
    held: int = 0
    helper: File | None = None
    ranges: list[Range] = field(default_factory=list)
    channels: dict[tuple[int, int], tuple[Channel, Range | None]] = field(default_factory=dict)
    groups: int = 0

    def find(self, base: int, size_bytes: int = 1) -> Range | None:
        """Return a range that has any of these addresses."""
        return next((one for one in self.ranges if one.base < base + size_bytes and base < one.end), None)

    def add(self, base: int, size_bytes: int, kind: str) -> Range:
        """Add a range. Raises `RmError` (UVM_ADDRESS_IN_USE) where there is one already."""
        if self.find(base, size_bytes) is not None:
            raise RmError(status.NV_ERR_UVM_ADDRESS_IN_USE, f"{size_bytes:#x} bytes at {base:#x}")
        made = Range(base, size_bytes, kind)
        self.ranges.append(made)
        return made


class Uvm:
    """The driver. It holds what it maps by a client of its own, so memory stays as long as it is mapped."""

    def __init__(self, system: VirtualKernel, client: int, device: int) -> None:
        self._system, self._client, self._device = system, client, device
        self._uuid = identity.uuid(system.card.chip)

    # --- checks -----------------------------------------------------------------------------------------------------
    def _range(self, base: int, size_bytes: int) -> None:
        """Check addresses: uvm_api_range_invalid_4k."""
        if base % SMALL or size_bytes % SMALL or not base or not size_bytes or base + size_bytes >> 64:
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"{size_bytes:#x} bytes at {base:#x}")

    def _card(self, space: UvmSpace, uuid: Any, *, with_space: bool = False) -> None:
        if bytes(uuid.uuid) != self._uuid or not space.registered or (with_space and space.space is None):
            raise RmError(status.NV_ERR_INVALID_DEVICE, "the card is not registered")

    def _owned(self, descriptor: int, client: int) -> int:
        """Return a client's handle, if the control node is open and the client its own."""
        file = self._system.files.get(descriptor)
        if file is None or file.node is not Node.CONTROL:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"descriptor {descriptor} is no control node")
        self._system.manager.clients.client(client)
        if self._system.owners.get(client) is not file.owner:
            raise RmError(status.NV_ERR_INVALID_CLIENT, f"client {client:#x} is another process's")
        return client

    # --- the file ---------------------------------------------------------------------------------------------------
    def initialize(self, file: File, params: uvm.UVM_INITIALIZE_PARAMS) -> None:
        """Make the file an address space."""
        if params.flags & ~uvm.UVM_INIT_FLAGS_MASK:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"flags {params.flags:#x}")
        if file.space is None:
            file.space = UvmSpace(params.flags)
        elif file.space.flags != params.flags or file.space.helper is file:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, "the file is initialised otherwise")

    def helper(self, file: File, params: uvm.UVM_MM_INITIALIZE_PARAMS) -> None:
        """Let a second file hold the process's memory for the first."""
        other = self._system.files.get(params.uvmFd)
        if other is None or other.node is not Node.UVM or other.space is None:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"descriptor {params.uvmFd} is no address space of UVM")
        if file.space is not None:
            raise RmError(status.NV_ERR_IN_USE, "the file has a use already")
        if other.space.helper is not None:
            raise RmError(status.NV_ERR_INVALID_STATE, "another file holds the process's memory")
        other.space.helper = file
        file.space = UvmSpace(0, helper=file)

    def close(self, space: UvmSpace) -> None:
        """Undo all of it."""
        self._end_space(space)
        for one in tuple(space.ranges):
            self._end_range(space, one)
        space.registered = False

    # --- the card and its address space -----------------------------------------------------------------------------
    def register_gpu(self, space: UvmSpace, params: uvm.UVM_REGISTER_GPU_PARAMS) -> None:
        """Use a card."""
        self._owned(params.rmCtrlFd, params.hClient) if params.hClient else None
        if bytes(params.gpu_uuid.uuid) != self._uuid:
            raise RmError(status.NV_ERR_GPU_UUID_NOT_FOUND, "there is no such card")
        if space.registered:
            raise RmError(status.NV_ERR_INVALID_DEVICE, "the card is registered already")
        space.registered = True
        params.numaEnabled, params.numaNodeId = 0, -1

    def unregister_gpu(self, space: UvmSpace, params: uvm.UVM_UNREGISTER_GPU_PARAMS) -> None:
        """Use a card no more."""
        self._card(space, params.gpu_uuid)
        self._end_space(space)
        space.registered = False

    def register_space(self, space: UvmSpace, params: uvm.UVM_REGISTER_GPU_VASPACE_PARAMS) -> None:
        """Keep the page tables of an address space that the resource manager leaves to others."""
        self._card(space, params.gpuUuid)
        if space.space is not None:
            raise RmError(status.NV_ERR_INVALID_DEVICE, "the card has an address space here already")
        client = self._owned(params.rmCtrlFd, params.hClient)
        manager = self._system.manager
        found = manager.find(client, params.hVaSpace)
        if found.row.kind is not Kind.VASPACE:
            raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no address space")
        state = state_of(found, AddressSpace)
        if not state.external:
            # GUESS: the status; nvGpuOpsDupAddressSpace leaves it to the resource manager
            raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{found} is kept by the resource manager")
        if state.page_directory is not None:
            raise RmError(status.NV_ERR_INVALID_STATE, f"{found} has a page directory")
        held = manager.dup(self._client, self._device, 0, client, params.hVaSpace)
        space.space, space.held = self._system.half.keep(state, None), held

    def unregister_space(self, space: UvmSpace, params: uvm.UVM_UNREGISTER_GPU_VASPACE_PARAMS) -> None:
        """Let the address space go."""
        self._card(space, params.gpuUuid, with_space=True)
        self._end_space(space)

    def _end_space(self, space: UvmSpace) -> None:
        for key in tuple(space.channels):
            self._end_channel(space, key)
        for one in space.ranges:
            self._unmap(one, one.base, one.size_bytes)
        if space.space is not None:
            self._system.half.leave(space.space.state)
            self._system.manager.free(self._client, space.held)
            space.space = None

    # --- memory -----------------------------------------------------------------------------------------------------
    def create_range(self, space: UvmSpace, params: uvm.UVM_CREATE_EXTERNAL_RANGE_PARAMS) -> None:
        """Reserve addresses for memory of the resource manager."""
        self._range(params.base, params.length)
        if params.base + params.length > ADDRESS_END:
            raise RmError(status.NV_ERR_OUT_OF_RANGE, f"{params.length:#x} bytes at {params.base:#x}")
        space.add(params.base, params.length, EXTERNAL)

    def _external(self, space: UvmSpace, base: int, size_bytes: int) -> Range:
        self._range(base, size_bytes)
        found = space.find(base)
        if found is None or found.kind != EXTERNAL or found.end < base + size_bytes:
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"{size_bytes:#x} bytes at {base:#x} are in no range for them")
        return found

    def map_external(self, space: UvmSpace, params: uvm.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS) -> None:
        """Map memory of the resource manager. What was mapped there is not any more."""
        if not 0 < params.gpuAttributesCount <= len(params.perGpuAttributes):
            self._range(params.base, params.length)
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.gpuAttributesCount} cards")
        found = self._external(space, params.base, params.length)
        attributes = [params.perGpuAttributes[number] for number in range(params.gpuAttributesCount)]
        for one in attributes:
            self._attributes(one)
            self._card(space, one.gpuUuid, with_space=True)
        client = self._owned(params.rmCtrlFd, params.hClient)
        manager = self._system.manager
        memory = manager.find(client, params.hMemory)
        if not isinstance(memory.state, Backing):
            raise RmError(status.NV_ERR_INVALID_OBJECT, f"{memory} is no memory")
        if params.offset + params.length > memory.state.size_bytes or params.offset % SMALL:
            raise RmError(status.NV_ERR_INVALID_OFFSET, f"{params.length:#x} bytes at {params.offset:#x} of {memory}")
        self._unmap(found, params.base, params.length)
        held = manager.dup(self._client, self._device, 0, client, params.hMemory)
        assert space.space is not None
        try:
            made = space.space.map(
                memory.state,
                params.offset,
                params.length,
                at=params.base,
                read_only=attributes[0].gpuMappingType == READ_ONLY,
            )
        except RmError:
            manager.free(self._client, held)
            raise
        found.memory.append((made, held))

    def _attributes(self, one: uvm.UvmGpuMappingAttributes) -> None:
        """Check how memory is to be mapped: uvm_api_mapping_type_invalid and its neighbours."""
        limits = (one.gpuMappingType, MAPPING_TYPES), (one.gpuCachingType, CACHING_TYPES), (one.gpuFormatType, FORMATS)
        if any(value >= count for value, count in limits):
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, "a mapping's type, caching or format")

    def unmap_external(self, space: UvmSpace, params: uvm.UVM_UNMAP_EXTERNAL_PARAMS) -> None:
        """Unmap memory of the resource manager."""
        found = self._external(space, params.base, params.length)
        self._card(space, params.gpuUuid)
        self._unmap(found, params.base, params.length)

    def _unmap(self, where: Range, base: int, size_bytes: int) -> None:
        """Unmap what lies in a part of a range. GUESS: what lies in it by halves is an error; metal splits it."""
        for made, held in tuple(where.memory):
            if made.gpu_va + made.size_bytes <= base or base + size_bytes <= made.gpu_va:
                continue
            if made.gpu_va < base or made.gpu_va + made.size_bytes > base + size_bytes:
                raise RmError(status.NV_ERR_INVALID_ADDRESS, f"a mapping at {made.gpu_va:#x} would be split")
            where.memory.remove((made, held))
            made.end()
            if held:
                self._system.manager.free(self._client, held)

    def free(self, space: UvmSpace, params: uvm.UVM_FREE_PARAMS) -> None:
        """Free a range, whole."""
        size = getattr(params, "length", None)
        found = space.find(params.base)
        if size is not None:
            self._range(params.base, size)
        wrong = found is None or found.kind == CHANNEL or found.base != params.base
        if found is None or wrong or size not in (None, found.size_bytes):
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"no range begins at {params.base:#x} and has that size")
        self._end_range(space, found)

    def _end_range(self, space: UvmSpace, one: Range) -> None:
        self._unmap(one, one.base, one.size_bytes)
        space.ranges.remove(one)
        if one.pool is not None:
            one.pool.end()

    def semaphores(self, space: UvmSpace, params: uvm.UVM_ALLOC_SEMAPHORE_POOL_PARAMS) -> None:
        """Make memory of the system for semaphores, mapped on every registered card. The process maps it by mmap at
        the same address.
        """
        self._range(params.base, params.length)
        if params.gpuAttributesCount > len(params.perGpuAttributes):
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.gpuAttributesCount} cards")
        made = space.add(params.base, params.length, SEMAPHORES)
        made.pool = self._system.half.system_memory(params.length)
        if space.space is not None:
            made.memory.append((space.space.map(made.pool, 0, params.length, at=params.base), 0))

    def reflected(self, space: UvmSpace, params: uvm.UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS) -> None:
        """Reserve addresses that the card's scheduler answers itself."""
        self._range(params.base, params.length)
        self._card(space, params.gpuUuid, with_space=True)
        space.add(params.base, params.length, REFLECTED)

    def validate(self, space: UvmSpace, params: uvm.UVM_VALIDATE_VA_RANGE_PARAMS) -> None:
        """Tell whether there is exactly this range."""
        found = space.find(params.base)
        if found is None or (found.base, found.size_bytes) != (params.base, params.length):
            raise RmError(status.NV_ERR_INVALID_ADDRESS, f"there is no range {params.length:#x} at {params.base:#x}")

    def region(self, space: UvmSpace, base: int, size_bytes: int) -> MemoryRegion:
        """Map a pool of semaphores into the process. Raises `OSError`."""
        found = space.find(base)
        if found is None or found.pool is None:
            self._system.manager.unmodelled["managed memory"] += 1
            raise failure(errno.EINVAL)
        if (base, size_bytes) != (found.base, found.size_bytes):
            raise failure(errno.EINVAL)
        made = MemoryRegion(found.pool.pointer, size_bytes, writable=True)
        found.pool.views.append(made)
        return made

    # --- channels ---------------------------------------------------------------------------------------------------
    def register_channel(self, space: UvmSpace, params: uvm.UVM_REGISTER_CHANNEL_PARAMS) -> None:
        """Know a channel of the address space, and reserve addresses for what it needs."""
        self._card(space, params.gpuUuid, with_space=True)
        client = self._owned(params.rmCtrlFd, params.hClient)
        found = self._system.manager.find(client, params.hChannel)
        key = client, params.hChannel
        if found.row.kind is not Kind.CHANNEL or key in space.channels:
            raise RmError(status.NV_ERR_INVALID_CHANNEL, f"{found} cannot be registered")
        channel = state_of(found, Running).channel
        assert space.space is not None
        if channel not in space.space.state.channels:
            raise RmError(status.NV_ERR_INVALID_CHANNEL, f"{found} runs in another address space")
        room = None
        if params.length:
            self._range(params.base, params.length)
            room = space.add(params.base, params.length, CHANNEL)
        space.channels[key] = channel, room

    def unregister_channel(self, space: UvmSpace, params: uvm.UVM_UNREGISTER_CHANNEL_PARAMS) -> None:
        """Stop a channel, and forget it."""
        key = params.hClient, params.hChannel
        if key not in space.channels:
            raise RmError(status.NV_ERR_INVALID_CHANNEL, f"channel {params.hChannel:#x} is not registered")
        self._end_channel(space, key)

    def _end_channel(self, space: UvmSpace, key: tuple[int, int]) -> None:
        """Stop a channel: nvUvmInterfaceStopChannel."""
        channel, room = space.channels.pop(key)
        if channel in self._system.manager.numbers and channel.scheduled:
            channel.scheduled = False
            self._system.manager.effects.channel_scheduled(channel, False)
        if room is not None:
            space.ranges.remove(room)

    # --- small things -----------------------------------------------------------------------------------------------
    def pageable(self, space: UvmSpace, params: Any) -> None:
        """Tell that the card reaches no memory that was not made for it."""
        params.pageableMemAccess = 0

    def create_group(self, space: UvmSpace, params: uvm.UVM_CREATE_RANGE_GROUP_PARAMS) -> None:
        """Make a group of ranges."""
        space.groups += 1
        params.rangeGroupId = space.groups

    def destroy_group(self, space: UvmSpace, params: uvm.UVM_DESTROY_RANGE_GROUP_PARAMS) -> None:
        """Forget a group of ranges. GUESS: numbers are not used again."""
        if not 0 < params.rangeGroupId <= space.groups:
            raise RmError(status.NV_ERR_OBJECT_NOT_FOUND, f"there is no group {params.rangeGroupId}")


READ_ONLY = uvm.UvmGpuMappingTypeReadOnly
MAPPING_TYPES, CACHING_TYPES = uvm.UvmGpuMappingTypeCount, uvm.UvmGpuCachingTypeCount
FORMATS = uvm.UvmGpuFormatTypeCount
Handler = Callable[[Uvm, UvmSpace, Any], None]
ROWS: dict[int, tuple[type[Struct], Handler]] = {
    uvm.UVM_REGISTER_GPU: (uvm.UVM_REGISTER_GPU_PARAMS, Uvm.register_gpu),
    uvm.UVM_UNREGISTER_GPU: (uvm.UVM_UNREGISTER_GPU_PARAMS, Uvm.unregister_gpu),
    uvm.UVM_REGISTER_GPU_VASPACE: (uvm.UVM_REGISTER_GPU_VASPACE_PARAMS, Uvm.register_space),
    uvm.UVM_UNREGISTER_GPU_VASPACE: (uvm.UVM_UNREGISTER_GPU_VASPACE_PARAMS, Uvm.unregister_space),
    uvm.UVM_CREATE_EXTERNAL_RANGE: (uvm.UVM_CREATE_EXTERNAL_RANGE_PARAMS, Uvm.create_range),
    uvm.UVM_MAP_EXTERNAL_ALLOCATION: (uvm.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, Uvm.map_external),
    uvm.UVM_UNMAP_EXTERNAL: (uvm.UVM_UNMAP_EXTERNAL_PARAMS, Uvm.unmap_external),
    uvm.UVM_FREE: (uvm.UVM_FREE_PARAMS, Uvm.free),
    uvm.UVM_ALLOC_SEMAPHORE_POOL: (uvm.UVM_ALLOC_SEMAPHORE_POOL_PARAMS, Uvm.semaphores),
    uvm.UVM_MAP_DYNAMIC_PARALLELISM_REGION: (uvm.UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS, Uvm.reflected),
    uvm.UVM_VALIDATE_VA_RANGE: (uvm.UVM_VALIDATE_VA_RANGE_PARAMS, Uvm.validate),
    uvm.UVM_REGISTER_CHANNEL: (uvm.UVM_REGISTER_CHANNEL_PARAMS, Uvm.register_channel),
    uvm.UVM_UNREGISTER_CHANNEL: (uvm.UVM_UNREGISTER_CHANNEL_PARAMS, Uvm.unregister_channel),
    uvm.UVM_PAGEABLE_MEM_ACCESS: (uvm.UVM_PAGEABLE_MEM_ACCESS_PARAMS, Uvm.pageable),
    uvm.UVM_PAGEABLE_MEM_ACCESS_ON_GPU: (uvm.UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS, Uvm.pageable),
    uvm.UVM_CREATE_RANGE_GROUP: (uvm.UVM_CREATE_RANGE_GROUP_PARAMS, Uvm.create_group),
    uvm.UVM_DESTROY_RANGE_GROUP: (uvm.UVM_DESTROY_RANGE_GROUP_PARAMS, Uvm.destroy_group),
}


def layout_of(command: int, release: str) -> type[Struct]:
    """Return the layout of a request. Raises `OSError` (EINVAL) for one that is not modelled."""
    if command in (uvm.UVM_INITIALIZE, uvm.UVM_MM_INITIALIZE):
        first = uvm.UVM_INITIALIZE_PARAMS if command == uvm.UVM_INITIALIZE else uvm.UVM_MM_INITIALIZE_PARAMS
        return first.at(release)
    found = ROWS.get(command)
    if found is None:
        raise failure(errno.EINVAL)
    return found[0].at(release)


def carry_out(driver: Uvm, file: File, command: int, params: Any) -> None:
    """Carry a request out; its own status says how it went."""
    params.rmStatus = status.NV_OK
    try:
        if command == uvm.UVM_INITIALIZE:
            driver.initialize(file, params)
        elif command == uvm.UVM_MM_INITIALIZE:
            driver.helper(file, params)
        elif file.space is None or file.space.helper is file:
            params.rmStatus = status.NV_ERR_ILLEGAL_ACTION
        else:
            ROWS[command][1](driver, file.space, params)
    except RmError as error:
        params.rmStatus = error.code
