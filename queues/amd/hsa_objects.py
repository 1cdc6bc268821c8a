"""Objects in memory that HSA's kernels and packet processors read: the packet of a launch, the queue, the signal.

Source: hsa.h; AMD's amd_hsa_queue.h and amd_hsa_signal.h; how they are filled: ROCr amd_aql_queue.cpp.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringup.autogen.amd import hsa
from ringup.autogen.layout import Field, Word
from ringup.autogen.structs import memory
from ringup.queues.amd import aql
from ringup.queues.amd.launch import Launch
from ringup.queues.amd.program import LoadedKernel, ScratchBlock
from ringup.queues.triple import Triple

WAVE64_LANES = 64
OLD = 9  # the generation whose descriptors of buffers are of the older form
QUEUE, SIGNAL = hsa.amd_queue_s, hsa.amd_signal_s
QUEUE_BYTES, SIGNAL_BYTES = QUEUE.SIZE, SIGNAL.SIZE
READ_INDEX_BYTE = QUEUE.offset_of("read_dispatch_id")
WRITE_INDEX_BYTE = QUEUE.offset_of("write_dispatch_id")
# of a signal
VALUE_BYTE, START_BYTE, END_BYTE = (SIGNAL.offset_of(name) for name in ("value", "start_ts", "end_ts"))


class SQ_BUF_RSRC_WORD1(Word):
    """Source: ROCr registers.h, SQ_BUF_RSRC_WORD1_GFX11."""

    swizzle_enable = Field(31, 30)
    stride = Field(29, 16)
    base_address_hi = Field(15, 0)


class SQ_BUF_RSRC_WORD3(Word):
    """Source: ROCr registers.h, SQ_BUF_RSRC_WORD3_GFX11; the fields of SQ_BUF_RSRC_WORD3_GFX12 lie there too."""

    type = Field(31, 30)
    oob_select = Field(29, 28)
    add_tid_enable = Field(23)
    index_stride = Field(22, 21)
    format = Field(17, 12)
    dst_sel_w = Field(11, 9)
    dst_sel_z = Field(8, 6)
    dst_sel_y = Field(5, 3)
    dst_sel_x = Field(2, 0)


class OLD_SQ_BUF_RSRC_WORD1(Word):
    """The same of GFX9. Source: ROCr registers.h, SQ_BUF_RSRC_WORD1."""

    swizzle_enable = Field(31)
    cache_swizzle = Field(30)
    stride = Field(29, 16)
    base_address_hi = Field(15, 0)


class OLD_SQ_BUF_RSRC_WORD3(Word):
    """The same of GFX9. Source: ROCr registers.h, SQ_BUF_RSRC_WORD3."""

    type = Field(31, 30)
    add_tid_enable = Field(23)
    index_stride = Field(22, 21)
    element_size = Field(20, 19)
    data_format = Field(18, 15)
    num_format = Field(14, 12)
    dst_sel_w = Field(11, 9)
    dst_sel_z = Field(8, 6)
    dst_sel_y = Field(5, 3)
    dst_sel_x = Field(2, 0)


# ROCr amd_aql_queue.cpp, FillBufRsrcWord3: dwords of 32 bits, unsigned; an element is 4 bytes, an index 64 of them
OLD_SCRATCH_WORD3 = OLD_SQ_BUF_RSRC_WORD3(
    add_tid_enable=1, index_stride=3, element_size=1, data_format=4, num_format=4,
    dst_sel_w=7, dst_sel_z=6, dst_sel_y=5, dst_sel_x=4,
)  # fmt: skip
# ROCr amd_aql_queue.cpp, FillBufRsrcWord3_Gfx11: x, y, z and w of 32 bits, no check of bounds
SCRATCH_WORD3 = SQ_BUF_RSRC_WORD3(
    oob_select=2, add_tid_enable=1, format=20, dst_sel_w=7, dst_sel_z=6, dst_sel_y=5, dst_sel_x=4
)
# the byte of `read_dispatch_id_field_base_byte_offset`'s neighbours that describe scratch memory
SCRATCH_BYTE = QUEUE.offset_of("compute_tmpring_size")
_SCRATCH = struct.Struct("<I4IQQI")


class Apertures(NamedTuple):
    """Bits 63:48 of the addresses of LDS and of scratch memory, as in SH_MEM_BASES."""

    shared_base: int
    private_base: int


class Engine(NamedTuple):
    """What a packet processor is told of its queue. `compute_units` and `waves_per_unit` are the chip's."""

    ring_va: int
    packets: int
    number: int
    compute_units: int
    waves_per_unit: int
    inactive_signal_va: int


def queue_object(apertures: Apertures, engine: Engine | None = None) -> bytes:
    """Return an `amd_queue_t`. Kernels read the apertures; a packet processor reads the rest, with `engine`."""
    queue = QUEUE(
        group_segment_aperture_base_hi=apertures.shared_base << 16,
        private_segment_aperture_base_hi=apertures.private_base << 16,
    )
    if engine is not None:
        queue.hsa_queue.type = hsa.HSA_QUEUE_TYPE_MULTI
        queue.hsa_queue.features = hsa.HSA_QUEUE_FEATURE_KERNEL_DISPATCH
        queue.hsa_queue.base_address = engine.ring_va
        queue.hsa_queue.size, queue.hsa_queue.id = engine.packets, engine.number
        queue.max_cu_id, queue.max_wave_id = engine.compute_units - 1, engine.waves_per_unit - 1
        queue.read_dispatch_id_field_base_byte_offset = READ_INDEX_BYTE
        queue.queue_properties = hsa.AMD_QUEUE_PROPERTIES_IS_PTR64 | hsa.AMD_QUEUE_PROPERTIES_ENABLE_PROFILING
        queue.queue_inactive_signal.handle = engine.inactive_signal_va
    return bytes(memory(queue))


def scratch_fields(block: ScratchBlock, tmpring_size: int, generation: int) -> bytes:
    """Return the bytes of an `amd_queue_t` from `SCRATCH_BYTE` on that describe its scratch memory; sizes are of one
    die. `generation`: of the graphics core.
    """
    size, base = block.part_bytes, block.gpu_va
    old = generation == OLD
    word1 = (OLD_SQ_BUF_RSRC_WORD1 if old else SQ_BUF_RSRC_WORD1)(swizzle_enable=1, base_address_hi=base >> 32)
    word3 = OLD_SCRATCH_WORD3 if old else SCRATCH_WORD3
    return _SCRATCH.pack(
        tmpring_size, base & 0xFFFF_FFFF, int(word1), min(size, 0xFFFF_FFFF), int(word3), base, size,
        block.wave_bytes // WAVE64_LANES,
    )  # fmt: skip


def signal_object(value: int, mailbox_va: int = 0, event_id: int = 0) -> bytes:
    """Return an `amd_signal_t`. Whoever changes its value then stores `event_id` at `mailbox_va`, if there is one, and
    interrupts the host.
    """
    signal = SIGNAL(kind=hsa.AMD_SIGNAL_KIND_USER, value=value, event_mailbox_ptr=mailbox_va, event_id=event_id)
    return bytes(memory(signal))


def kernel_packet(kernel: LoadedKernel, launch: Launch) -> bytes:
    """Return the dispatch packet of a launch, with the address of its arguments and its signal still 0."""
    code = kernel.kernel
    return aql.kernel_dispatch(
        kernel.program.base_va + (code.descriptor_offset or 0),
        grid_items(launch),
        launch.block,
        dimensions=launch.dimensions,
        private_segment_size=code.scratch_bytes_per_item,
        group_segment_size=code.lds_bytes + launch.dynamic_lds_bytes,
    )


def grid_items(launch: Launch) -> Triple:
    """Return the work-items of a grid along each axis."""
    x, y, z = (
        groups * items - (items - last if last else 0)
        for groups, items, last in zip(launch.grid, launch.block, launch.last, strict=True)
    )
    return x, y, z
