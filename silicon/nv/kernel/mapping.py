"""Escapes that map memory: into the process, and into address spaces of the card.

Source: NVIDIA's open kernel modules 535.261.03: mapping_cpu.c, mapping.c, virtual_mem.c, osapi.c
(RmCreateMmapContextLocked), nv-usermap.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.autogen.nv import rm, status
from ringup.silicon.nv.kernel.files import CpuMapping, MemoryRegion, Node, Region, RegisterRegion
from ringup.silicon.nv.kernel.memory import SMALL, Backing, Registers, Virtual
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.objects import Resource, Running
from ringup.silicon.nv.rm.parts import Aperture, RmError

if TYPE_CHECKING:
    from ringup.silicon.nv.kernel.escapes import Call

REGISTER_BYTES = 16 << 20
# rmapi's bound for parameters of a call: RMAPI_PARAM_COPY_MAX_PARAMS_SIZE
PARAMETERS_LIMIT = 1 << 20


def _rounded(offset: int, size_bytes: int) -> tuple[int, int]:
    """Return whole pages around a range: first byte and size."""
    first = offset // SMALL * SMALL
    return first, -(-(offset + size_bytes) // SMALL) * SMALL - first


def map_memory(call: Call, request: rm.nv_ioctl_nvos33_parameters_with_fd) -> None:
    """Allow the next mmap of a file to map an object: registers and memory of the card through its own node, memory of
    the system through the control node.
    """
    params, system = request.params, call.system
    found = call.find(params.hClient, params.hMemory)
    above = call.find(params.hClient, params.hDevice)
    if above.row.kind not in (Kind.DEVICE, Kind.SUBDEVICE):
        raise RmError(status.NV_ERR_INVALID_OBJECT_PARENT, f"{above} is no device")
    size = _size(call, found)
    if not params.length or params.offset + params.length > size:
        raise RmError(status.NV_ERR_INVALID_LIMIT, f"{params.length:#x} bytes at {params.offset:#x} of {size:#x} bytes")
    file = system.files.get(request.fd)
    wanted = Node.CONTROL if _in_system(found) else Node.CARD
    if file is None or file.node is not wanted:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"descriptor {request.fd} is no {wanted.value}")
    if file.allowed is not None:
        raise RmError(status.NV_ERR_STATE_IN_USE, f"descriptor {request.fd} has a mapping already")
    made = _allowed(call, found, params)
    file.allowed = made
    system.mappings.append(made)
    params.pLinearAddress = made.linear


def _in_system(found: Resource) -> bool:
    return isinstance(found.state, Backing) and found.state.aperture is Aperture.SYSMEM


def _size(call: Call, found: Resource) -> int:
    state = found.state
    if isinstance(state, Backing) and state.foreign:
        raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{found} is the process's own memory")
    if isinstance(state, Backing | Registers):
        return state.size_bytes
    if isinstance(state, Running) and state.owner:
        call.system.half.channel_memory(state.channel)
        return SMALL
    raise RmError(status.NV_ERR_NOT_SUPPORTED, f"{found} is nothing to map")


def _allowed(call: Call, found: Resource, params: rm.NVOS33_PARAMETERS) -> CpuMapping:
    system, state = call.system, found.state
    first, size = _rounded(params.offset, params.length)
    registers, video, _ = system.machine.windows
    writable = rm.NVOS33_FLAGS(params.flags).access != rm.NVOS33_FLAGS_ACCESS_READ_ONLY

    def nothing() -> None:
        return None

    if isinstance(state, Registers):
        offset = state.offset + first

        def of_registers(size_bytes: int, writable: bool) -> Region:
            return RegisterRegion(system.card.bars[0], offset, size_bytes)

        return CpuMapping(
            params.hClient, params.hMemory, registers + offset, size, of_registers, nothing, writable, exact=True
        )
    if isinstance(state, Running):
        place = system.half.channel_memory(state.channel)
        pointer, backing = system.card.vram.span.pointer + place + first, None
    else:
        assert isinstance(state, Backing)
        pointer, backing = state.pointer + first, state

    def of_memory(size_bytes: int, writable: bool) -> Region:
        return MemoryRegion(pointer, size_bytes, writable=writable)

    if backing is not None and backing.aperture is Aperture.SYSMEM:
        made = CpuMapping(params.hClient, params.hMemory, pointer, size, of_memory, nothing, writable, exact=False)
    else:
        # addresses of BAR 1 are given out in pages
        at = system.window.take(size, SMALL)
        made = CpuMapping(
            params.hClient, params.hMemory, video + at, size, of_memory, lambda: system.window.give(at, size),
            writable, exact=True,
        )  # fmt: skip
    if backing is not None:
        backing.views.append(made)
    return made


def unmap_memory(call: Call, params: rm.NVOS34_PARAMETERS) -> None:
    """End what MAP_MEMORY allowed. The process unmaps its own side by munmap."""
    made = _find(call, params.hClient, params.hMemory, params.pLinearAddress)
    made.revoke()
    call.system.forget_mapping(made)


def moved(call: Call, params: rm.NVOS56_PARAMETERS) -> None:
    """Take the address that the process gave a mapping: it will unmap by that."""
    _find(call, params.hClient, params.hMemory, params.pOldCpuAddress).linear = params.pNewCpuAddress


def _find(call: Call, client: int, memory: int, linear: int) -> CpuMapping:
    call.find(client, memory)
    found = next(
        (
            one
            for one in call.system.mappings
            if (one.client, one.memory) == (client, memory) and one.linear == linear and not one.ended
        ),
        None,
    )
    if found is None:
        raise RmError(status.NV_ERR_OBJECT_NOT_FOUND, f"memory {memory:#x} is not mapped at {linear:#x}")
    return found


# --- address spaces of the card ---------------------------------------------------------------------------------------
def _virtual(call: Call, client: int, handle: int) -> Virtual:
    found = call.find(client, handle)
    if not isinstance(found.state, Virtual):
        raise RmError(status.NV_ERR_INVALID_OBJECT_HANDLE, f"{found} is no range of addresses")
    return found.state


def map_dma(call: Call, params: rm.NVOS46_PARAMETERS) -> None:
    """Map memory into an address space. In a range that was reserved, the caller's address counts from its begin."""
    virtual = _virtual(call, params.hClient, params.hDma)
    memory = call.find(params.hClient, params.hMemory)
    call.find(params.hClient, params.hDevice)
    if not isinstance(memory.state, Backing):
        raise RmError(status.NV_ERR_INVALID_OBJECT, f"{memory} is no memory")
    flags = rm.NVOS46_FLAGS(params.flags)
    fixed = bool(flags.dma_offset_fixed)
    within = params.offset % SMALL
    if virtual.reserved:
        at: int | None = virtual.base + (params.dmaOffset if fixed else 0)
    else:
        at = params.dmaOffset - within if fixed else None
    made = virtual.space.map(
        memory.state,
        params.offset,
        params.length,
        at=at,
        inside=virtual if virtual.reserved else None,
        read_only=flags.access == rm.NVOS46_FLAGS_ACCESS_READ_ONLY,
    )
    params.dmaOffset = made.gpu_va + within


def unmap_dma(call: Call, params: rm.NVOS47_PARAMETERS) -> None:
    """Unmap memory from an address space."""
    virtual = _virtual(call, params.hClient, params.hDma)
    call.find(params.hClient, params.hMemory)
    found = virtual.space.find(params.dmaOffset)
    if found is None or found.gpu_va != params.dmaOffset // SMALL * SMALL:
        raise RmError(status.NV_ERR_OBJECT_NOT_FOUND, f"nothing is mapped at {params.dmaOffset:#x}")
    found.end()
