"""Parameters that the generated modules lack: structs of NVIDIA's open kernel modules 535.261.03 that its manifest does
not name. 535.113.01 has the same.

Each docstring names struct and header; members have plain names. Offsets follow the C rules of alignment.
"""

from __future__ import annotations

from ringup.autogen.layout import Array, Struct


class UVM_CHANNEL_RETAINER(Struct):
    """NV_UVM_CHANNEL_RETAINER_ALLOC_PARAMS: clc574.h. Handles of a client and of its channel."""

    SIZE, ALIGN = 8, 4
    LAYOUT = "client:u32@0 channel:u32@4"
    client: int
    channel: int


class TRANSFER_SURFACE(Struct):
    """NV2080_CTRL_INTERNAL_TRANSFER_SURFACE_INFO: ctrl2080internal.h."""

    SIZE, ALIGN = 32, 8
    LAYOUT = "base:u64@0 size:u64@8 offset:u64@16 aperture:u32@24 caching:u32@28"
    base: int
    size: int
    offset: int
    aperture: int
    caching: int


class MEMORY_TRANSFER(Struct):
    """NV2080_CTRL_INTERNAL_MEMMGR_MEMORY_TRANSFER_WITH_GSP_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 96, 8
    LAYOUT = "src:TRANSFER_SURFACE@0 tag:u8[16]@32 dst:TRANSFER_SURFACE@48 size:u64@80 value:u32@88 operation:u32@92"
    src: TRANSFER_SURFACE
    tag: Array[int]
    dst: TRANSFER_SURFACE
    size: int
    value: int
    operation: int


# enum NV2080_CTRL_MEMMGR_MEMORY_OP, ctrl2080internal.h
MEMORY_OP_MEMCPY, MEMORY_OP_MEMSET = 0, 1
