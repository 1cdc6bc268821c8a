"""Kernel descriptors: 64 bytes that define how a wave of a kernel starts and which registers hold values at its start.

Source: LLVM AMDGPUUsage, "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.autogen.amd.gc_compute import COMPUTE_PGM_RSRC2
from ringup.autogen.layout import Field, Word
from ringup.errors import CompileError

DESCRIPTOR_BYTES, DESCRIPTOR_ALIGN = 64, 64
# the symbol of a descriptor is the kernel's name and this
DESCRIPTOR_SUFFIX = ".kd"
ENTRY_ALIGN = 256
# the byte of kernel_code_entry_byte_offset
ENTRY_FIELD_BYTE = 16


class KERNEL_CODE_PROPERTIES(Word):
    """Bits 448 to 479 of a descriptor: the user SGPRs that the kernel needs, the wave size, arguments to preload."""

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
    """A descriptor. `kernel_code_entry_byte_offset` is signed and counts from the descriptor's own address."""

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
# the values that a kernel may ask for, in the order of the registers: how many dwords each has
USER_SGPRS = {
    # buffer descriptor of scratch; not used where flat scratch is architected (from gfx11 on)
    "private_segment_buffer": 4,
    "dispatch_ptr": 2,  # address of the AQL dispatch packet
    "queue_ptr": 2,  # address of the queue's amd_queue_t
    "kernarg_segment_ptr": 2,  # address of the arguments
    "dispatch_id": 2,
    # address of the scratch memory; not used where flat scratch is architected
    "flat_scratch_init": 2,
    "private_segment_size": 1,  # bytes of scratch of a work-item
}
PRELOADED = "kernarg_preload"


class UserSgprs(NamedTuple):
    """Consecutive user SGPRs: the value that they hold, the first of them, and their number."""

    holds: str
    first: int
    count_dwords: int


def user_sgprs(properties: KERNEL_CODE_PROPERTIES, rsrc2: int, what: str) -> tuple[UserSgprs, ...]:
    """Return the values that a dispatcher writes to USER_DATA_0 and the registers after it, in order. rsrc2 may count
    more registers: those hold nothing.

    UNKNOWN: the place of preloaded arguments. The table of registers puts them before the scratch size; its text and
    the compiler put them last, and so does this function. No code for gfx10 to gfx12.0 preloads arguments.
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
    """Read a descriptor of 64 bytes. Raises `CompileError` if it breaks a rule of the format."""
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
