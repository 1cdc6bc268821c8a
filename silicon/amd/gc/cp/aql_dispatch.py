"""KERNEL_DISPATCH: turn a packet and its kernel descriptor into the registers of a dispatch.

Source: LLVM AMDGPUUsage, "Kernel Descriptor", "Initial Kernel Execution State" and "Kernel Dispatch"; ROCR-Runtime
hsa.h, amd_hsa_queue.h, amd_aql_queue.cpp (which mistakes it distinguishes); kfd_ioctl.h (their exception codes).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ringup.autogen.amd import gc_sq
from ringup.silicon.amd.gc.cp import aql_packets as aql
from ringup.silicon.amd.gc.dispatch import (
    GROUP_LIMIT,
    LDS_GRANULE_BYTES,
    LDS_LIMIT_BYTES,
    USER_DATA,
    BadDispatch,
    NoRoom,
    Order,
    Words,
    words_of,
)

if TYPE_CHECKING:
    from ringup.silicon.amd.gc.cp.aql import Aql

LOW = 0xFFFF_FFFF
CODE_ALIGN = 256  # unit of COMPUTE_PGM_LO
DESCRIPTOR_ALIGN = 64
# kernarg_preload: how many dwords. Such kernels begin with code for firmware that does not preload
PRELOAD_LENGTH, PRELOAD_SKIPPED_BYTES = 0x7F, 256
OWNED = ("priority", "priv", "debug_mode")  # fields of RSRC1 that the packet processor sets; not all chips have each
# Source: kfd_ioctl.h, enum kfd_dbg_trap_exception_code
EC_DIMENSIONS, EC_GROUP_MEMORY, EC_CODE, EC_GROUP_SIZE, EC_REGISTERS = 16, 17, 18, 21, 22


class Refused(Exception):
    """The processor does not execute a packet: `reason` for queue_inactive_signal, `code` for the interrupt."""

    def __init__(self, reason: int, code: int, text: str) -> None:
        super().__init__(text)
        self.reason, self.code = reason, code


def prepare(processor: Aql, head: aql.Header, packet: aql.KernelDispatch) -> tuple[int, int, tuple[int, int, int]]:
    """Set the slot's COMPUTE_* registers; return initiator, wave size, and the grid in work-items. After `Refused` the
    registers are unchanged.
    """
    _check_shape(processor, head, packet)
    layouts = words_of(processor.cp.row.version)
    descriptor, entry = _kernel(processor, packet, layouts)
    properties = aql.KernelProperties(descriptor.kernel_code_properties)
    narrow = {"cs_w32_en": int(properties.wavefront_size32)} if "cs_w32_en" in layouts.initiator.FIELDS else {}
    initiator = layouts.initiator(
        compute_shader_en=1, partial_tg_en=1, force_start_at_000=1, use_thread_dimensions=1, **narrow
    )
    wave_size = layouts.wave_size(int(initiator))
    x, y, z = packet.grid_size
    shared = processor.shared
    registers = _registers(processor, packet, descriptor, entry, shared)
    users = _user_sgprs(processor, packet, properties, shared) + _preloaded(processor, packet, descriptor)
    count = layouts.rsrc2(descriptor.compute_pgm_rsrc2).user_sgpr
    if len(users) > min(count, USER_DATA):
        processor.note("the kernel enables {} user SGPRs and has {}: the last ones are lost", len(users), count)
    registers |= {f"COMPUTE_USER_DATA_{number}": value for number, value in enumerate(users[:USER_DATA])}
    vgprs = sum(layouts.registers(descriptor.compute_pgm_rsrc1, descriptor.compute_pgm_rsrc3, wave_size))
    if vgprs > layouts.form.vgpr_limit:
        text = f"the kernel asks for {vgprs} VGPRs, there are {layouts.form.vgpr_limit}"
        raise Refused(aql.INACTIVE_REGISTERS, EC_REGISTERS, text)
    before = {name: processor.hqd.get(name) for name in registers}
    _set(processor, registers)
    order = Order(processor.hqd.slot, processor.vmid, (x, y, z), int(initiator), 0)
    dispatcher = processor.cp.dispatcher
    try:
        dispatcher.describe(order)
    except NoRoom as error:
        _set(processor, before)
        raise Refused(aql.INACTIVE_REGISTERS, EC_REGISTERS, str(error)) from error
    except BadDispatch:
        # the firmware does not check this: the dispatch hangs when it starts, and is reported then
        pass
    return int(initiator), wave_size, (x, y, z)


def _set(processor: Aql, registers: dict[str, int]) -> None:
    for name, value in registers.items():
        processor.hqd.set(name, value)


def _check_shape(processor: Aql, head: aql.Header, packet: aql.KernelDispatch) -> None:
    grid, group = tuple(packet.grid_size), tuple(packet.workgroup_size)
    if not head.dimensions or 0 in grid:
        text = f"a grid of {grid} work-items in {head.dimensions} dimensions"
        raise Refused(aql.INACTIVE_DIMENSIONS, EC_DIMENSIONS, text)
    if any(size != 1 for size in (*grid[head.dimensions :], *group[head.dimensions :])):
        # UNKNOWN: what metal does; hsa.h allows only 1 beyond the dimensions. Here the sizes given are used
        processor.note("grid {} and group {} have more than {} dimensions", grid, group, head.dimensions)
    if 0 in group or group[0] * group[1] * group[2] > GROUP_LIMIT:
        raise Refused(
            aql.INACTIVE_GROUP_SIZE, EC_GROUP_SIZE, f"groups of {group} work-items, 1 to {GROUP_LIMIT} are possible"
        )
    if packet.group_segment_size > LDS_LIMIT_BYTES:
        text = f"{packet.group_segment_size} bytes of group memory, there are {LDS_LIMIT_BYTES}"
        raise Refused(aql.INACTIVE_GROUP_MEMORY, EC_GROUP_MEMORY, text)


def _kernel(processor: Aql, packet: aql.KernelDispatch, layouts: Words) -> tuple[aql.KernelDescriptor, int]:
    """Return the kernel's descriptor and the gpu_va of its first instruction."""
    at = packet.kernel_object
    if not at or at % DESCRIPTOR_ALIGN:
        raise Refused(aql.INACTIVE_CODE, EC_CODE, f"kernel_object {at:#x} is no descriptor")
    descriptor = aql.KernelDescriptor.view(bytearray(processor.read(at, aql.KernelDescriptor.SIZE)))
    entry = at + descriptor.kernel_code_entry_byte_offset
    if entry % CODE_ALIGN:
        raise Refused(
            aql.INACTIVE_CODE, EC_CODE, f"the kernel at {at:#x} begins at {entry:#x}, not a multiple of {CODE_ALIGN}"
        )
    if layouts.form.preloads and descriptor.kernarg_preload & PRELOAD_LENGTH:
        entry += PRELOAD_SKIPPED_BYTES
    return descriptor, entry


def _preloaded(processor: Aql, packet: aql.KernelDispatch, descriptor: aql.KernelDescriptor) -> list[int]:
    """List the dwords of the kernel's arguments that SGPRs hold from the start. Source: LLVM AMDGPUUsage, "Preloaded
    Kernel Arguments".
    """
    length = descriptor.kernarg_preload & PRELOAD_LENGTH
    if not length or not words_of(processor.cp.row.version).form.preloads:
        return []
    first = packet.kernarg_address + 4 * (descriptor.kernarg_preload >> 7)
    return list(struct.unpack(f"<{length}I", processor.read(first, 4 * length)))


def _registers(
    processor: Aql, packet: aql.KernelDispatch, descriptor: aql.KernelDescriptor, entry: int, shared: aql.Queue
) -> dict[str, int]:
    """Return the register values, including those that the packet processor sets: trap handler, LDS, scratch,
    privilege.
    """
    layouts = words_of(processor.cp.row.version)
    rsrc1, rsrc2 = layouts.rsrc1(descriptor.compute_pgm_rsrc1), layouts.rsrc2(descriptor.compute_pgm_rsrc2)
    owned = {name: 0 for name in OWNED if name in rsrc1.FIELDS}
    has_trap_bit = "trap_present" in rsrc2.FIELDS
    if any(getattr(rsrc1, name) for name in owned) or rsrc2.lds_size or (has_trap_bit and rsrc2.trap_present):
        processor.note("the kernel sets fields that the packet processor owns: {!r}, {!r}", rsrc1, rsrc2)
    size = packet.workgroup_size
    traps = gc_sq.SQ_SHADER_TBA_HI(processor.cp.cells.of(processor.vmid, "SQ_SHADER_TBA_HI")).trap_en
    trap_bit = bool(traps or aql.QueueProperties(shared.queue_properties).enable_trap_handler)
    scratch = _scratch_base(processor, layouts, shared) >> 8
    at = processor.place(processor.index)
    return {
        "COMPUTE_NUM_THREAD_X": size[0],
        "COMPUTE_NUM_THREAD_Y": size[1],
        "COMPUTE_NUM_THREAD_Z": size[2],
        "COMPUTE_PGM_LO": entry >> 8 & LOW,
        "COMPUTE_PGM_HI": entry >> 40,
        "COMPUTE_PGM_RSRC1": int(rsrc1.replace(**owned)),
        "COMPUTE_PGM_RSRC2": int(
            rsrc2.replace(
                # UNKNOWN: whether scratch stays enabled without memory; a kernel with a dynamic stack may get none
                scratch_en=int(bool(rsrc2.scratch_en and packet.private_segment_size)),
                lds_size=-(-packet.group_segment_size // LDS_GRANULE_BYTES),
                **({"trap_present": int(trap_bit)} if has_trap_bit else {}),
            )
        ),
        "COMPUTE_PGM_RSRC3": descriptor.compute_pgm_rsrc3,
        "COMPUTE_TMPRING_SIZE": shared.compute_tmpring_size,
        "COMPUTE_DISPATCH_SCRATCH_BASE_LO": scratch & LOW,
        "COMPUTE_DISPATCH_SCRATCH_BASE_HI": scratch >> 32,
        "COMPUTE_DISPATCH_PKT_ADDR_LO": at & LOW,
        "COMPUTE_DISPATCH_PKT_ADDR_HI": at >> 32,
        "COMPUTE_DISPATCH_ID": processor.index & LOW,
    }


def _scratch_base(processor: Aql, layouts: Words, shared: aql.Queue) -> int:
    """Return where the scratch memory of the queue begins on this core. GUESS: cores that share a grid have as many
    waves of COMPUTE_TMPRING_SIZE each, one core's after another's.
    """
    ring = layouts.scratch(shared.compute_tmpring_size)
    part = ring.waves * ring.wavesize * layouts.form.scratch_granule_bytes
    return int(shared.scratch_backing_memory_location + (processor.cp.number * part if processor.team else 0))


def _user_sgprs(
    processor: Aql, packet: aql.KernelDispatch, properties: aql.KernelProperties, shared: aql.Queue
) -> list[int]:
    """List the initial values of the kernel's first SGPRs, in the order of the property bits."""
    values: list[int] = []
    if properties.private_segment_buffer:
        values += shared.scratch_resource_descriptor
    for enabled, value in (
        (properties.dispatch_ptr, processor.place(processor.index)),
        (properties.queue_ptr, processor.at),
        (properties.kernarg_segment_ptr, packet.kernarg_address),
        (properties.dispatch_id, processor.index),
        # GFX11 has architected scratch, so compilers request neither the buffer nor this value. GUESS: the start of the
        # memory, as on GFX9
        (properties.flat_scratch_init, shared.scratch_backing_memory_location),
    ):
        if enabled:
            values += (value & LOW, value >> 32)
    if properties.private_segment_size:
        values.append(packet.private_segment_size)
    return values
