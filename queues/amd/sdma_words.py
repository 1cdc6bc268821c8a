"""The words of SDMA's packets, by opcode, and the words of generations that differ from the public headers.

Source: sdma_v6_0_0_pkt_open.h, vega10_sdma_pkt_open.h. The header of SDMA 7 is not public: its words come from
sdma_v7_0.c and Mesa's radv_sdma.c and sid.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.autogen.amd import sdma_packets as sdma
from ringup.autogen.layout import Field, Word
from ringup.errors import NotSupported
from ringup.queues.amd.packets import Version


class COPY_LINEAR_V7(Word, width=256):
    """SDMA 7: if `cpv` is set, an eighth dword says how to treat compressed memory. If not, compression is bypassed."""

    op = Field(7, 0)
    sub_op = Field(15, 8)
    tmz = Field(18)
    cpv = Field(19)
    backwards = Field(25)
    broadcast = Field(27)
    count = Field(61, 32)
    dst_sw = Field(81, 80)
    dst_cache_policy = Field(84, 82)
    src_sw = Field(89, 88)
    src_cache_policy = Field(92, 90)
    src_addr_31_0 = Field(127, 96)
    src_addr_63_32 = Field(159, 128)
    dst_addr_31_0 = Field(191, 160)
    dst_addr_63_32 = Field(223, 192)
    data_format = Field(229, 224)
    num_type = Field(235, 233)
    read_cm = Field(241, 240)
    write_cm = Field(243, 242)
    max_com = Field(249, 248)
    max_ucom = Field(250)


class COPY_LINEAR_SUBWIN_V7(Word, width=416):
    """SDMA 7: pitches begin at bit 16 of their dwords. Where no public source gives a field's width, it is SDMA 6's."""

    op = Field(7, 0)
    sub_op = Field(15, 8)
    tmz = Field(18)
    cpv = Field(19)
    elementsize = Field(31, 29)
    src_addr_31_0 = Field(63, 32)
    src_addr_63_32 = Field(95, 64)
    src_x = Field(109, 96)
    src_y = Field(125, 112)
    src_z = Field(140, 128)
    src_pitch = Field(159, 144)
    src_slice_pitch = Field(187, 160)
    dst_addr_31_0 = Field(223, 192)
    dst_addr_63_32 = Field(255, 224)
    dst_x = Field(269, 256)
    dst_y = Field(285, 272)
    dst_z = Field(300, 288)
    dst_pitch = Field(319, 304)
    dst_slice_pitch = Field(347, 320)
    rect_x = Field(365, 352)
    rect_y = Field(381, 368)
    rect_z = Field(396, 384)


class REG_WRITE_V7(Word, width=96):
    """SDMA 7: `addr` is a byte address; there are no byte enables. Source: sdma_v7_0.c, sdma_v7_0_ring_emit_wreg."""

    op = Field(7, 0)
    sub_op = Field(15, 8)
    addr = Field(63, 32)
    data = Field(95, 64)


class CONSTANT_FILL_V7(Word, width=160):
    """SDMA 7: the header has a field `compress`. Source: sdma_v7_0.c, SDMA_PKT_CONSTANT_FILL_HEADER_COMPRESS."""

    op = Field(7, 0)
    sub_op = Field(15, 8)
    compress = Field(16)
    cache_policy = Field(26, 24)
    cpv = Field(28)
    fillsize = Field(31, 30)
    dst_addr_31_0 = Field(63, 32)
    dst_addr_63_32 = Field(95, 64)
    src_data_31_0 = Field(127, 96)
    count = Field(157, 128)


class Kind(NamedTuple):
    """A packet: the word that covers all its dwords, and its opcodes."""

    name: str
    word: type[Word]
    op: int
    sub_op: int = 0


# the kernel's headers lack it. Source: ROCr sdma_registers.h, SDMA_SUBOP_USER_GCR
USER_GCR = 1
KINDS = (
    Kind("NOP", sdma.SDMA_PKT_NOP, sdma.SDMA_OP_NOP),
    Kind("COPY_LINEAR", sdma.SDMA_PKT_COPY_LINEAR, sdma.SDMA_OP_COPY, sdma.SDMA_SUBOP_COPY_LINEAR),
    Kind(
        "COPY_LINEAR_SUBWIN", sdma.SDMA_PKT_COPY_LINEAR_SUBWIN, sdma.SDMA_OP_COPY, sdma.SDMA_SUBOP_COPY_LINEAR_SUB_WIND
    ),
    Kind(
        "COPY_LINEAR_SUBWIN_LARGE",
        sdma.SDMA_PKT_COPY_LINEAR_SUBWIN_LARGE,
        sdma.SDMA_OP_COPY,
        sdma.SDMA_SUBOP_COPY_LINEAR_SUB_WIND_LARGE,
    ),
    Kind("WRITE_UNTILED", sdma.SDMA_PKT_WRITE_UNTILED, sdma.SDMA_OP_WRITE, sdma.SDMA_SUBOP_WRITE_LINEAR),
    Kind("INDIRECT", sdma.SDMA_PKT_INDIRECT, sdma.SDMA_OP_INDIRECT),
    Kind("FENCE", sdma.SDMA_PKT_FENCE, sdma.SDMA_OP_FENCE),
    Kind("TRAP", sdma.SDMA_PKT_TRAP, sdma.SDMA_OP_TRAP),
    Kind("SEMAPHORE", sdma.SDMA_PKT_SEMAPHORE, sdma.SDMA_OP_SEM),
    Kind("MEM_INCR", sdma.SDMA_PKT_MEM_INCR, sdma.SDMA_OP_SEM, sdma.SDMA_SUBOP_MEM_INCR),
    Kind("POLL_REGMEM", sdma.SDMA_PKT_POLL_REGMEM, sdma.SDMA_OP_POLL_REGMEM),
    Kind(
        "POLL_REG_WRITE_MEM",
        sdma.SDMA_PKT_POLL_REG_WRITE_MEM,
        sdma.SDMA_OP_POLL_REGMEM,
        sdma.SDMA_SUBOP_POLL_REG_WRITE_MEM,
    ),
    Kind("POLL_MEM_VERIFY", sdma.SDMA_PKT_POLL_MEM_VERIFY, sdma.SDMA_OP_POLL_REGMEM, sdma.SDMA_SUBOP_POLL_MEM_VERIFY),
    Kind("VM_INVALIDATION", sdma.SDMA_PKT_VM_INVALIDATION, sdma.SDMA_OP_POLL_REGMEM, sdma.SDMA_SUBOP_VM_INVALIDATION),
    Kind("COND_EXE", sdma.SDMA_PKT_COND_EXE, sdma.SDMA_OP_COND_EXE),
    Kind("ATOMIC", sdma.SDMA_PKT_ATOMIC, sdma.SDMA_OP_ATOMIC),
    Kind("CONSTANT_FILL", sdma.SDMA_PKT_CONSTANT_FILL, sdma.SDMA_OP_CONST_FILL),
    Kind("DATA_FILL_MULTI", sdma.SDMA_PKT_DATA_FILL_MULTI, sdma.SDMA_OP_CONST_FILL, sdma.SDMA_SUBOP_DATA_FILL_MULTI),
    Kind("PTEPDE_GEN", sdma.SDMA_PKT_WRITE_INCR, sdma.SDMA_OP_PTEPDE, sdma.SDMA_SUBOP_PTEPDE_GEN),
    Kind("PTEPDE_COPY", sdma.SDMA_PKT_PTEPDE_COPY, sdma.SDMA_OP_PTEPDE, sdma.SDMA_SUBOP_PTEPDE_COPY),
    Kind("PTEPDE_RMW", sdma.SDMA_PKT_PTEPDE_RMW, sdma.SDMA_OP_PTEPDE, sdma.SDMA_SUBOP_PTEPDE_RMW),
    Kind("TIMESTAMP_SET", sdma.SDMA_PKT_TIMESTAMP_SET, sdma.SDMA_OP_TIMESTAMP, sdma.SDMA_SUBOP_TIMESTAMP_SET),
    Kind("TIMESTAMP_GET", sdma.SDMA_PKT_TIMESTAMP_GET, sdma.SDMA_OP_TIMESTAMP, sdma.SDMA_SUBOP_TIMESTAMP_GET),
    Kind(
        "TIMESTAMP_GET_GLOBAL",
        sdma.SDMA_PKT_TIMESTAMP_GET_GLOBAL,
        sdma.SDMA_OP_TIMESTAMP,
        sdma.SDMA_SUBOP_TIMESTAMP_GET_GLOBAL,
    ),
    Kind("SRBM_WRITE", sdma.SDMA_PKT_SRBM_WRITE, sdma.SDMA_OP_SRBM_WRITE),
    Kind("PRE_EXE", sdma.SDMA_PKT_PRE_EXE, sdma.SDMA_OP_PRE_EXE),
    Kind("GPUVM_INV", sdma.SDMA_PKT_GPUVM_INV, sdma.SDMA_OP_GPUVM_INV),
    Kind("GCR_REQ", sdma.SDMA_PKT_GCR_REQ, sdma.SDMA_OP_GCR_REQ),
    Kind("USER_GCR", sdma.SDMA_PKT_GCR_REQ, sdma.SDMA_OP_GCR_REQ, USER_GCR),
)
V7: Mapping[str, type[Word]] = {
    "COPY_LINEAR": COPY_LINEAR_V7,
    "COPY_LINEAR_SUBWIN": COPY_LINEAR_SUBWIN_V7,
    "SRBM_WRITE": REG_WRITE_V7,
    "CONSTANT_FILL": CONSTANT_FILL_V7,
}


class SdmaRow(NamedTuple):
    """What differs between generations of the engine.

    `copy_max_bytes`, `fill_max_bytes`: the maximum of one packet. `pitch_align`: a rectangle's pitch is a multiple of
    so many elements; 0: of four bytes. `gcr`: GCR_REQ takes the cache bits of this generation of the graphics core;
    None: the engine has no GCR_REQ. `fence_uncached`: fences have the memory type UC. `register_bytes`: register writes
    take byte addresses.
    """

    copy_max_bytes: int
    fill_max_bytes: int
    pitch_align: int
    gcr: int | None
    fence_uncached: bool
    register_bytes: bool
    words: Mapping[str, type[Word]]


# copy_max_bytes: sid.h, SDMA_V*_COPY_MAX_BYTES. It is a little less than the count field can hold, because older
# engines fail there. fill_max_bytes: radv_sdma.c
ROWS = {
    4: SdmaRow(0x3F_FF00, 0x3F_FFFC, 4, None, False, False, {}),
    6: SdmaRow(0x3FFF_FF00, 0x3FFF_FFFC, 0, 11, True, False, {}),
    7: SdmaRow(0x3FFF_FF00, 0x3FFF_FFFC, 0, 12, True, True, V7),
}


def row_of(version: Version) -> SdmaRow:
    """Return the row of an engine's version. Raises `NotSupported` for a version without facts."""
    if version not in sdma.PLACES or version[0] not in ROWS:
        raise NotSupported(f"no packets are known for SDMA {version}; known: {', '.join(map(str, sdma.PLACES))}")
    return ROWS[version[0]]


def words_of(version: Version) -> dict[str, type[Word]]:
    """Return the words of every packet that the version has, by the packet's name."""
    row = row_of(version)
    words = {kind.name: row.words.get(kind.name, kind.word.at(version)) for kind in KINDS}
    return {kind.name: words[kind.name] for kind in KINDS if kind.word in sdma.PLACES[version]}
