"""SDMA packets, dword by dword, written out by hand from sdma_v6_0_0_pkt_open.h, sdma_v6_0.c, sdma_v7_0.c,
sdma_v4_4_2.c and radv_sdma.c.
"""

import random

import pytest

from ringup.errors import NotSupported
from ringup.queues.amd.decode_sdma import decode_sdma
from ringup.queues.amd.packets import Atomic, Compare
from ringup.queues.amd.pm4_cache import NEW_CODE, TO_OUTSIDE
from ringup.queues.amd.sdma import Plane, Sdma
from ringup.queues.dwords import to_bytes

MI300, NAVI31, STRIX, NAVI48 = (4, 4, 2), (6, 0, 0), (6, 1, 0), (7, 0, 1)
VERSIONS = [MI300, (4, 4, 5), NAVI31, (6, 0, 1), (6, 0, 2), (6, 0, 3), STRIX, (6, 1, 1), (7, 0, 0), NAVI48]
VA = 0x1_2345_6780
ONES = 0xFFFF_FFFF

# op 7:0, sub_op 15:8
SAME = {
    "nop": (lambda s: s.nop(2), [0, 0]),
    "nop burst": (lambda s: s.nop_burst(4), [0x0003_0000, 0, 0, 0]),  # ring_insert_nop: COUNT(count - 1) at 16
    "copy": (lambda s: s.copy_linear(VA, 0x1000, 100), [1, 99, 0, 0x1000, 0, 0x2345_6780, 1]),  # emit_copy_buffer
    "fill": (
        lambda s: s.fill(VA, 7, 64),
        [0x8000_000B, 0x2345_6780, 1, 7, 63],
    ),  # fillsize 2 at 30, count in bytes less one
    "write": (lambda s: s.write(VA, 5, 6, 7), [2, 0x2345_6780, 1, 2, 5, 6, 7]),  # vm_write_pte: count less one
    "entries": (  # vm_set_pte_pde: mask, value, increment, 0, count less one
        lambda s: s.write_ptes(VA, 0x8_0000_2000, 0x4F1, 4096, 512),
        [0xC, 0x2345_6780, 1, 0x4F1, 0, 0x2000, 8, 4096, 0, 511],
    ),
    "trap": (lambda s: s.trap(9), [6, 9]),
    "wait for at least": (  # MEM_POLL 31, FUNC(5) at 28; RETRY_COUNT(0xfff) at 16, INTERVAL(4)
        lambda s: s.wait_mem(VA, 5),
        [0xD000_0008, 0x2345_6780, 1, 5, ONES, 0x0FFF_0004],
    ),
    "wait for equal": (  # emit_pipeline_sync
        lambda s: s.wait_mem(VA, 5, compare=Compare.EQUAL),
        [0xB000_0008, 0x2345_6780, 1, 5, ONES, 0x0FFF_0004],
    ),
    "wait for a register": (  # emit_reg_wait: reg << 2
        lambda s: s.wait_register(0x291D, 8, 8),
        [0x3000_0008, 0xA474, 0, 8, 8, 0x0FFF_000A],
    ),
    "flush": (  # emit_hdp_flush: HDP_FLUSH 26
        lambda s: s.flush_and_wait(0x107, 0x106, 0x400),
        [0x3400_0008, 0x41C, 0x418, 0x400, 0x400, 0x0FFF_000A],
    ),
    "clock": (lambda s: s.store_clock(VA), [0x20D, 0x2345_6780, 1]),  # GET_GLOBAL_TIMESTAMP
    "call": (  # emit_ib, (2 - wptr) & 7 NOPs first: 3 behind wptr 7
        lambda s: s.indirect(0x1_2345_6780, 64, 3, at_dwords=7),
        [0, 0, 0, 0x0003_0004, 0x2345_6780, 1, 64, 0, 0],
    ),
    "run if": (lambda s: s.cond_exe(VA, 9), [9, 0x2345_6780, 1, 1, 9]),  # init_cond_exec: reference 1
    "add": (  # ATOMIC: atomic_op at 25
        lambda s: s.atomic(Atomic.ADD, VA, 5),
        [0x5E00_000A, 0x2345_6780, 1, 5, 0, 0, 0, 0],
    ),
    "compare and swap until": (  # loop at 16
        lambda s: s.atomic(Atomic.CMPSWAP, VA, 1, 2, bits=32, loop=True),
        [0x1001_000A, 0x2345_6780, 1, 1, 0, 2, 0, 0],
    ),
}


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("name", SAME)
def test_packets_that_all_generations_share(name, version):
    build, expected = SAME[name]
    assert build(Sdma(version)) == expected


SOURCE, TARGET = Plane(VA, 64, x=3, y=5, z=1), Plane(0x2000, 128, slice_pitch=0x4000)
DIFFERENT = {
    # sdma_v6_0_ring_emit_fence: MTYPE(3) at 16; sdma_v4_4_2.c has none
    ("fence", MI300): (lambda s: s.fence(VA, 6), [5, 0x2345_6780, 1, 6]),
    ("fence", NAVI31): (lambda s: s.fence(VA, 6), [0x0003_0005, 0x2345_6780, 1, 6]),
    ("fence of 64 bits", NAVI48): (
        lambda s: s.fence64(VA, 0x5_0000_0006),
        [0x0003_0005, 0x2345_6780, 1, 6, 0x0003_0005, 0x2345_6784, 1, 5],
    ),
    # emit_wreg: BYTE_EN(0xf) at 28 and the dword address; SDMA 7 the byte address
    ("register", MI300): (lambda s: s.write_register(0x2955, 7), [0xF000_000E, 0x2955, 7]),
    ("register", NAVI31): (lambda s: s.write_register(0x2955, 7), [0xF000_000E, 0x2955, 7]),
    ("register", NAVI48): (lambda s: s.write_register(0x2955, 7), [0xE, 0xA554, 7]),
    # emit_mem_sync: the bits of SDMA_GCR_*, 15:0 at bit 16 of dword 2
    ("caches", NAVI31): (lambda s: s.acquire(NEW_CODE), [0x11, 0, 0xC3B1_0000, 0, 0]),
    # ROCr amd_blit_sdma.cpp, BuildGCRCommand: sub-opcode 1, GL2_WB 15, GL2_INV 14, GL1_INV 9, GLV_INV 8, GLK_INV 7,
    # GLK_WB 6
    ("a user's caches", NAVI31): (lambda s: s.acquire_user(), [0x111, 0, 0xC3C0_0000, 0, 0]),
    ("a user's caches", NAVI48): (lambda s: s.acquire_user(), [0x111, 0, 0xC3C0_0000, 0, 0]),
    ("caches", NAVI48): (lambda s: s.acquire(TO_OUTSIDE, vmid=8), [0x11, 0, 0x8000_0000, 0, 8 << 24]),
    # emit_vm_flush: GFX_ENG_ID 16, MM_ENG_ID(0x1f) 24, INVALIDATEACK 1 << vmid, ADDRESSRANGEHI(0x1f) 16
    ("translations", NAVI31): (
        lambda s: s.invalidate_vmid(0xF8_0100, 8, 5),
        [0x1F05_0408, 0xF8_0100, ONES, 0x001F_0100],
    ),
    # radv_sdma_emit_copy_linear_sub_window: log2 bytes at 29, y << 16, pitch less one << 13, from SDMA 7 on << 16
    ("rectangle", MI300): (
        lambda s: s.copy_rect(TARGET, SOURCE, 10, 20),
        [
            0x4000_0401,
            0x2345_6780,
            1,
            0x0005_0003,
            63 << 13 | 1,
            0x63F,
            0x2000,
            0,
            0,
            127 << 13,
            0x3FFF,
            0x0013_0009,
            0,
        ],
    ),
    ("rectangle", NAVI31): (
        lambda s: s.copy_rect(TARGET, SOURCE, 10, 20, 2, element_bytes=16),
        [
            0x8000_0401,
            0x2345_6780,
            1,
            0x0005_0003,
            63 << 13 | 1,
            0x63F,
            0x2000,
            0,
            0,
            127 << 13,
            0x3FFF,
            0x0013_0009,
            1,
        ],
    ),
    ("rectangle", NAVI48): (
        lambda s: s.copy_rect(TARGET, SOURCE, 10, 20),
        [
            0x4000_0401,
            0x2345_6780,
            1,
            0x0005_0003,
            63 << 16 | 1,
            0x63F,
            0x2000,
            0,
            0,
            127 << 16,
            0x3FFF,
            0x0013_0009,
            0,
        ],
    ),
    ("large rectangle", NAVI31): (  # sub_op 36, every coordinate a dword
        lambda s: s.copy_rect_large(
            Plane(0x2000, 0x10_0000), Plane(VA, 0x2_0000, 0x1_0000_0001, 0x1_0000, 5), 0x8000, 7
        ),
        [
            0x2401,
            0x2345_6780,
            1,
            0x1_0000,
            5,
            0,
            0x1_FFFF,
            0,
            1,
            0x2000,
            0,
            0,
            0,
            0,
            0xF_FFFF,
            0x6F_FFFF,
            0,
            0x7FFF,
            6,
            0,
        ],
    ),
}


@pytest.mark.parametrize(("what", "version"), DIFFERENT, ids=str)
def test_packets_whose_bits_are_a_generations_own(what, version):
    build, expected = DIFFERENT[what, version]
    assert build(Sdma(version)) == expected


def test_a_call_ends_where_the_engine_wants_it_from_everywhere_in_the_ring():
    for at in range(16):
        packets = Sdma(NAVI31).indirect(0x1000, 8, at_dwords=at)
        assert (at + len(packets)) % 8 == 0
        assert len(packets) < 14


def test_every_operand_is_checked_by_name():
    s = Sdma(NAVI31)
    plane = Plane(0x1000, 64)
    refused = [
        (lambda: s.copy_linear(VA, 0, 0), "COPY_LINEAR.count takes 1 to 1073741568 bytes, not 0"),  # 0x3fffff00
        (lambda: Sdma(MI300).copy_linear(VA, 0, 0x40_0000), "COPY_LINEAR.count takes 1 to 4194048 bytes"),  # 0x3fff00
        (lambda: s.copy_linear(1 << 64, 0, 1), "COPY_LINEAR.dst_addr"),
        (lambda: s.fill(VA, 0, 6), "CONSTANT_FILL.count takes a multiple of 4"),
        (lambda: s.fill(VA + 1, 0, 8), "CONSTANT_FILL.dst_addr is a 64-bit address aligned to 4 bytes"),
        (lambda: s.fill(VA, 1 << 32, 8), "CONSTANT_FILL.src_data holds 32 bits"),
        (lambda: s.write(VA), "WRITE_UNTILED carries at least one dword"),
        (lambda: s.write(VA, *[0] * ((1 << 20) + 1)), "WRITE_UNTILED.count holds 20 bits"),
        (lambda: s.write_ptes(VA, 0, 0, 4096, 0), "at least one entry"),
        (lambda: s.write_ptes(VA, 0, 0, 4096, (1 << 19) + 1), "PTEPDE.count holds 19 bits"),
        (lambda: s.write_ptes(VA + 4, 0, 0, 4096, 1), "PTEPDE.dst_addr"),
        (lambda: s.fence(VA + 2, 1), "FENCE.addr"),
        (lambda: s.fence64(VA + 4, 1), "FENCE.addr is a 64-bit address aligned to 8 bytes"),
        (lambda: s.trap(1 << 28), "TRAP.int_context holds 28 bits"),
        (lambda: s.wait_mem(VA, 1 << 32), "POLL_REGMEM.value holds 32 bits"),
        (lambda: s.wait_mem(VA, 1, poll=1 << 16), "POLL_REGMEM.interval holds 16 bits"),
        (lambda: s.wait_register(1 << 18, 1), "dword address holds 18 bits"),
        (lambda: s.store_clock(VA + 4), "TIMESTAMP.write_addr"),
        (lambda: s.indirect(VA + 16, 8), "INDIRECT.ib_base is a 64-bit address aligned to 32 bytes"),
        (lambda: s.indirect(VA, 12), "INDIRECT.ib_size is a multiple of 8"),
        (lambda: s.indirect(VA, 8, 16), "INDIRECT.vmid holds 4 bits"),
        (lambda: s.copy_rect(plane, plane, 1, 1, element_bytes=3), "1, 2, 4, 8 or 16 bytes, not 3"),
        (
            lambda: s.copy_rect(plane, Plane(0x1000, 63), 1, 1, element_bytes=2),
            "src_pitch is a multiple of 2 elements, not 63",
        ),
        (lambda: s.copy_rect(plane, plane, (1 << 14) + 1, 1), "rect_x holds 14 bits, not 0x4000"),
        (lambda: s.copy_rect(plane, plane, 1, 0), "at least one element each way"),
        (lambda: s.copy_rect(plane, Plane(0x1002, 64), 1, 1), "COPY_LINEAR_SUBWIN.src_addr"),
    ]
    for build, message in refused:
        with pytest.raises(ValueError, match=message):
            build()


def test_features_that_a_version_lacks_are_refused():
    with pytest.raises(NotSupported, match=r"no packets are known for SDMA \(5, 2, 0\); known: \(4, 4, 2\)"):
        Sdma((5, 2, 0))
    with pytest.raises(NotSupported, match=r"SDMA \(4, 4, 2\) has no GCR_REQ"):
        Sdma(MI300).acquire()
    with pytest.raises(NotSupported, match=r"SDMA \(4, 4, 2\) has no COPY_LINEAR_SUBWIN_LARGE"):
        Sdma(MI300).copy_rect_large(Plane(0, 64), Plane(0, 64), 1, 1)


@pytest.mark.parametrize("version", [MI300, NAVI31, NAVI48], ids=str)
def test_a_patched_template_is_the_stream_built_with_those_values(version):
    s = Sdma(version)

    def stream(source, target, size, value, fence_va, fence):
        return [
            *s.copy_linear(target, source, size),
            *s.fill(target, value, size),
            *s.write(target, value),
            *s.fence64(fence_va, fence),
        ]

    template = s.template(stream(0, 0, 4, 0, 0, 0))
    buffer = bytearray(template.data)
    values = {
        "COPY_LINEAR.src_addr": VA,
        "COPY_LINEAR.dst_addr": 0x2000,
        "COPY_LINEAR.count": 4096,
        "CONSTANT_FILL.dst_addr": 0x2000,
        "CONSTANT_FILL.src_data": 7,
        "CONSTANT_FILL.count": 4096,
        "WRITE_UNTILED.dst_addr": 0x2000,
        "WRITE_UNTILED.data": 7,
        "FENCE.addr": 0x3000,
        "FENCE.data": 6,
        "FENCE.addr[1]": 0x3004,
        "FENCE.data[1]": 5,
    }
    template.patch(buffer, 0, **values)
    assert buffer == to_bytes(stream(VA, 0x2000, 4096, 7, 0x3000, 0x5_0000_0006))
    with pytest.raises(ValueError, match=r"COPY_LINEAR.count holds (22|30) bits, not 0x40000001"):
        template.patch(buffer, 0, **{"COPY_LINEAR.count": (1 << 30) + 1})


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_packets_built_from_random_operands_decode_to_the_same_operands(version):
    draw, s = random.Random(6), Sdma(version)
    for _ in range(50):
        va, other, value = draw.randrange(1 << 59) * 32, draw.getrandbits(64), draw.getrandbits(64)
        low, size, count = value & ONES, draw.randrange(1, 0x3F_0000), draw.randrange(1, 20)
        data = [draw.getrandbits(32) for _ in range(count)]
        stream = [
            *s.copy_linear(va, other, size),
            *s.write(va, *data),
            *s.wait_mem(va, low),
            *s.fence(va, low),
            *s.write_ptes(va, other, value, 4096, count),
            *s.atomic(Atomic.XOR, va, value, other),
            *s.indirect(va, 8 * count, 7),
        ]
        copy, write, wait, fence, entries, atomic, call = decode_sdma(stream, version)
        assert [copy.fields[name] for name in ("dst_addr", "src_addr", "count")] == [va, other, size - 1]
        assert (write.fields["dst_addr"], [write.fields[f"data[{i}]"] for i in range(count)]) == (va, data)
        assert [wait.fields[name] for name in ("addr", "value", "func")] == [va, low, 5]
        assert [fence.fields[name] for name in ("addr", "data")] == [va, low]
        assert [entries.fields[name] for name in ("dst_addr", "init", "mask", "incr", "count")] == [
            va,
            other,
            value,
            4096,
            count - 1,
        ]
        assert [atomic.fields[name] for name in ("addr", "src_data", "cmp_data", "atomic_op")] == [
            va,
            value,
            other,
            0x37,
        ]
        assert [call.fields[name] for name in ("ib_base", "ib_size", "vmid")] == [va, 8 * count, 7]
        assert not any(packet.note for packet in (copy, write, wait, fence, entries, atomic, call))
