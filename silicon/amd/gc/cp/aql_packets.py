"""What a runtime and the packet processor share: packets of the Architected Queuing Language (AQL), queues, signals,
kernel descriptors.

Source: ROCR-Runtime rocm-6.1.2 hsa.h, hsa_ext_amd.h, amd_hsa_queue.h, amd_hsa_signal.h, amd_aql_queue.cpp (the PM4
packet's shape); LLVM AMDGPUUsage, "Kernel Descriptor".
"""

from __future__ import annotations

from ringup.autogen.layout import Array, Field, Struct, Word

PACKET_BYTES = 64
PACKET_DWORDS = 16

# --- packets: hsa_packet_type_t, hsa_amd_packet_type_t ------------------------------------------------------------
VENDOR_SPECIFIC, INVALID, KERNEL_DISPATCH, BARRIER_AND, AGENT_DISPATCH, BARRIER_OR = range(6)
NAMES = ("VENDOR_SPECIFIC", "INVALID", "KERNEL_DISPATCH", "BARRIER_AND", "AGENT_DISPATCH", "BARRIER_OR")
FORMAT_PM4_IB, FORMAT_BARRIER_VALUE = 1, 2
CONDITION_EQ, CONDITION_NE, CONDITION_LT, CONDITION_GTE = range(4)  # hsa_signal_condition_t
SCOPE_AGENT, SCOPE_RESERVED = 1, 3  # hsa_fence_scope_t: none 0, agent 1, system 2


class Header(Word, overlaps=True):
    """hsa_packet_header_t, 16 bits, and the packet-specific fields that follow it."""

    type = Field(7, 0)
    barrier = Field(8)
    acquire = Field(10, 9)
    release = Field(12, 11)
    dimensions = Field(17, 16)  # KERNEL_DISPATCH, setup
    format = Field(23, 16)  # VENDOR_SPECIFIC, hsa_amd_packet_type8_t


class KernelDispatch(Struct):
    """hsa_kernel_dispatch_packet_t."""

    SIZE, ALIGN = PACKET_BYTES, 8
    LAYOUT = (
        "header:u16@0 setup:u16@2 workgroup_size:u16[3]@4 grid_size:u32[3]@12 private_segment_size:u32@24 group_segment_size:u32@28 "
        "kernel_object:u64@32 kernarg_address:u64@40 completion_signal:u64@56"
    )
    header: int
    setup: int
    workgroup_size: Array[int]
    grid_size: Array[int]
    private_segment_size: int
    group_segment_size: int
    kernel_object: int
    kernarg_address: int
    completion_signal: int


class Barrier(Struct):
    """hsa_barrier_and_packet_t, hsa_barrier_or_packet_t."""

    SIZE, ALIGN = PACKET_BYTES, 8
    LAYOUT = "header:u16@0 dep_signal:u64[5]@8 completion_signal:u64@56"
    header: int
    dep_signal: Array[int]
    completion_signal: int


class BarrierValue(Struct):
    """hsa_amd_barrier_value_packet_t."""

    SIZE, ALIGN = PACKET_BYTES, 8
    LAYOUT = "header:u16@0 format:u8@2 signal:u64@8 value:i64@16 mask:i64@24 cond:u32@32 completion_signal:u64@56"
    header: int
    format: int
    signal: int
    value: int
    mask: int
    cond: int
    completion_signal: int


class Pm4Ib(Struct):
    """The vendor packet that holds an INDIRECT_BUFFER packet of PM4."""

    SIZE, ALIGN = PACKET_BYTES, 8
    LAYOUT = "header:u16@0 format:u8@2 ib_jump_cmd:u32[4]@4 dw_cnt_remain:u32@20 completion_signal:u64@56"
    header: int
    format: int
    ib_jump_cmd: Array[int]
    dw_cnt_remain: int
    completion_signal: int


# --- queues and signals in memory ---------------------------------------------------------------------------------
class Queue(Struct):
    """amd_queue_t, without the members that only firmware with asynchronous reclaim of scratch reads."""

    SIZE, ALIGN = 256, 64
    LAYOUT = (
        "write_dispatch_id:u64@56 group_segment_aperture_base_hi:u32@64 private_segment_aperture_base_hi:u32@68 read_dispatch_id:u64@128 "
        "read_dispatch_id_field_base_byte_offset:u32@136 compute_tmpring_size:u32@140 scratch_resource_descriptor:u32[4]@144 "
        "scratch_backing_memory_location:u64@160 scratch_backing_memory_byte_size:u64@168 scratch_wave64_lane_byte_size:u32@176 "
        "queue_properties:u32@180 queue_inactive_signal:u64@192"
    )
    write_dispatch_id: int
    group_segment_aperture_base_hi: int
    private_segment_aperture_base_hi: int
    read_dispatch_id: int
    read_dispatch_id_field_base_byte_offset: int
    compute_tmpring_size: int
    scratch_resource_descriptor: Array[int]
    scratch_backing_memory_location: int
    scratch_backing_memory_byte_size: int
    scratch_wave64_lane_byte_size: int
    queue_properties: int
    queue_inactive_signal: int


class QueueProperties(Word):
    """amd_queue_properties_t."""

    enable_trap_handler = Field(0)
    is_ptr64 = Field(1)
    enable_trap_handler_debug_sgprs = Field(2)
    enable_profiling = Field(3)
    use_scratch_once = Field(4)


class Signal(Struct):
    """amd_signal_t."""

    SIZE, ALIGN = 64, 64
    LAYOUT = (
        "kind:i64@0 value:i64@8 event_mailbox_ptr:u64@16 event_id:u32@24 start_ts:u64@32 end_ts:u64@40 queue_ptr:u64@48"
    )
    kind: int
    value: int
    event_mailbox_ptr: int
    event_id: int
    start_ts: int
    end_ts: int
    queue_ptr: int


SIGNAL_KIND_USER = 1

# What the processor stores in queue_inactive_signal: one bit for each reason. Source: amd_aql_queue.cpp,
# DynamicQueueEventsHandler
INACTIVE_SCRATCH_WAVE64 = 1 << 0
INACTIVE_DIMENSIONS = 1 << 1
INACTIVE_GROUP_MEMORY = 1 << 2
INACTIVE_CODE = 1 << 3
INACTIVE_FORMAT = 1 << 5
INACTIVE_GROUP_SIZE = 1 << 6
INACTIVE_REGISTERS = 1 << 7
INACTIVE_VENDOR_FORMAT = 1 << 8
# scratch that was lent for one dispatch may be reclaimed
INACTIVE_SCRATCH_USED = 1 << 9
INACTIVE_SCRATCH_WAVE32 = 1 << 10


# --- kernels ------------------------------------------------------------------------------------------------------
class KernelDescriptor(Struct):
    """llvm::amdhsa::kernel_descriptor_t."""

    SIZE, ALIGN = 64, 64
    LAYOUT = (
        "group_segment_fixed_size:u32@0 private_segment_fixed_size:u32@4 kernarg_size:u32@8 kernel_code_entry_byte_offset:i64@16 "
        "compute_pgm_rsrc3:u32@44 compute_pgm_rsrc1:u32@48 compute_pgm_rsrc2:u32@52 kernel_code_properties:u16@56 kernarg_preload:u16@58"
    )
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    kernel_code_entry_byte_offset: int
    compute_pgm_rsrc3: int
    compute_pgm_rsrc1: int
    compute_pgm_rsrc2: int
    kernel_code_properties: int
    kernarg_preload: int


class KernelProperties(Word):
    """kernel_code_properties: which values the first user SGPRs hold, in this order."""

    private_segment_buffer = Field(0)
    dispatch_ptr = Field(1)
    queue_ptr = Field(2)
    kernarg_segment_ptr = Field(3)
    dispatch_id = Field(4)
    flat_scratch_init = Field(5)
    private_segment_size = Field(6)
    wavefront_size32 = Field(10)
    uses_dynamic_stack = Field(11)
