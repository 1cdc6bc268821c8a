"""Kernel descriptors: 64 bytes that define how a wave of a kernel starts and which registers are filled for it.

Source: LLVM AMDGPUUsage, "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.amd.gc_compute import COMPUTE_PGM_RSRC2
from ringup.autogen.layout import Field, Word
from ringup.errors import CompileError

DESCRIPTOR_BYTES, DESCRIPTOR_ALIGN = 64, 64
DESCRIPTOR_SUFFIX = ".kd"  # of its symbol: the kernel's name comes before it
ENTRY_ALIGN = 256
ENTRY_FIELD_BYTE = 16  # where kernel_code_entry_byte_offset lies


class KERNEL_CODE_PROPERTIES(Word):
    """Bits 448 to 479 of a descriptor: the user SGPRs asked for, the wave size, arguments to preload."""

    kernarg_preload_spec_offset = Field(31, 23)  # dwords
    kernarg_preload_spec_length = Field(22, 16)  # dwords
    reserved_12 = Field(15, 12)
    uses_dynamic_stack = Field(11)
    enable_wavefront_size32 = Field(10)
    reserved_7 = Field(9, 7)
    enable_sgpr_private_segment_size = Field(6)
    enable_sgpr_flat_scratch_init = Field(5)
    enable_sgpr_dispatch_id = Field(4)
    enable_sgpr_kernarg_segment_ptr = Field(3)
    enable_sgpr_queue_ptr = Field(2)
    enable_sgpr_dispatch_ptr = Field(1)
    enable_sgpr_private_segment_buffer = Field(0)


class KERNEL_DESCRIPTOR(Word, width=512):
    """A descriptor; `kernel_code_entry_byte_offset` is signed, from the descriptor's own address."""

    reserved_480 = Field(511, 480)
    kernel_code_properties = Field(479, 448)
    compute_pgm_rsrc2 = Field(447, 416)
    compute_pgm_rsrc1 = Field(415, 384)
    compute_pgm_rsrc3 = Field(383, 352)
    reserved_192 = Field(351, 192)
    kernel_code_entry_byte_offset = Field(191, 128)
    reserved_96 = Field(127, 96)
    kernarg_size = Field(95, 64)
    private_segment_fixed_size = Field(63, 32)
    group_segment_fixed_size = Field(31, 0)


RESERVED = ("reserved_96", "reserved_192", "reserved_480")
USER_SGPRS = {  # what a property asks for, in the order of the registers: how many dwords
    "private_segment_buffer": 4,  # buffer descriptor of scratch; not where flat scratch is architected (gfx11 on)
    "dispatch_ptr": 2,  # address of the AQL dispatch packet
    "queue_ptr": 2,  # address of the queue's amd_queue_t
    "kernarg_segment_ptr": 2,  # address of the arguments
    "dispatch_id": 2,
    "flat_scratch_init": 2,  # address of the scratch memory; not where flat scratch is architected
    "private_segment_size": 1,  # bytes of scratch of a work-item
}
PRELOADED = "kernarg_preload"


class UserSgprs(NamedTuple):
    """A run of user SGPRs: what they hold, the first of them, how many of a dword each."""

    holds: str
    first: int
    count_dwords: int


def user_sgprs(properties: KERNEL_CODE_PROPERTIES, rsrc2: int, what: str) -> tuple[UserSgprs, ...]:
    """Return what a dispatcher writes to USER_DATA_0 and on, in order. Registers counted by rsrc2 beyond these hold
    nothing.

    UNKNOWN: the table of registers puts preloaded arguments before the scratch size, its text and the compiler after
    everything; the text is followed. Nothing that runs on gfx10 to gfx12.0 preloads.
    """
    found, first = [], 0
    wanted = {name: count for name, count in USER_SGPRS.items() if getattr(properties, f"enable_sgpr_{name}")}
    if properties.kernarg_preload_spec_length:
        wanted[PRELOADED] = properties.kernarg_preload_spec_length
    for name, count in wanted.items():
        found.append(UserSgprs(name, first, count))
        first += count
    has = COMPUTE_PGM_RSRC2(rsrc2).user_sgpr
    if first > has:
        raise CompileError(f"{what}: its descriptor asks for {first} user SGPRs, its COMPUTE_PGM_RSRC2 has {has}")
    return tuple(found)


def parse(data: bytes, what: str) -> KERNEL_DESCRIPTOR:
    """Read a descriptor of 64 bytes. Raises `CompileError` where it breaks a rule of the format."""
    word = KERNEL_DESCRIPTOR(int.from_bytes(data, "little"))
    properties = KERNEL_CODE_PROPERTIES(word.kernel_code_properties)
    filled = [name for name in RESERVED if getattr(word, name)]
    if filled or properties.reserved_7 or properties.reserved_12:
        raise CompileError(
            f"{what}: reserved bits of its descriptor are set ({word!r}); it is none, or of a later format"
        )
    return word


def entry_offset(word: KERNEL_DESCRIPTOR) -> int:
    """Return the signed distance in bytes from descriptor to entry point."""
    distance: int = word.kernel_code_entry_byte_offset
    return distance - (1 << 64) if distance >> 63 else distance
