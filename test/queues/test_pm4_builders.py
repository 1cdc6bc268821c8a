"""PM4 packets, dword by dword, written out by hand from nvd.h, soc15d.h and the packets of gfx_v11_0.c, gfx_v12_0.c and
gfx_v9_4_3.c.
"""

import pytest

from ringup.autogen.amd import gc_compute as regs
from ringup.autogen.amd import gc_hqd
from ringup.errors import NotSupported
from ringup.queues.amd.packets import Atomic, Compare
from ringup.queues.amd.pm4 import CopySource, CopyTarget, Pm4
from ringup.queues.amd.pm4_cache import FROM_OUTSIDE, NEW_CODE, NEXT_DISPATCH, TO_OUTSIDE, Caches
from ringup.queues.amd.pm4_queues import (
    QueueEngine,
    UnmapAction,
    invalidate_tlbs,
    map_queues,
    query_status,
    set_resources,
    unmap_queues,
)

MI300, NAVI31, STRIX, NAVI48 = (9, 4, 3), (11, 0, 0), (11, 5, 0), (12, 0, 1)
VERSIONS = [MI300, (9, 5, 0), NAVI31, (11, 0, 1), (11, 0, 2), (11, 0, 3), STRIX, (11, 5, 1), (12, 0, 0), NAVI48]
VA = 0x1_2345_6780
ONES = 0xFFFF_FFFF

# PACKET3(op, n) is 3 << 30 | op << 8 | n << 16, where n is the number of following dwords minus one. It is the same in
# every generation.
SAME = {
    "nop": (lambda p: p.nop(), [0xFFFF_1000]),  # gfx_v11_0.c: funcs.nop is PACKET3(PACKET3_NOP, 0x3FFF)
    "nop of 5": (lambda p: p.nop(5), [0xC003_1000, 0, 0, 0, 0]),
    "scratch by uconfig": (
        lambda p: p.set_uconfig_at(0xC040, 0xDEAD_BEEF),
        [0xC001_7900, 0x40, 0xDEAD_BEEF],
    ),  # test_ring
    "configuration": (lambda p: p.set_config_at(0x2001, 1, 2), [0xC002_6800, 1, 1, 2]),  # SET_CONFIG_REG_START 0x2000
    "write data": (  # DST_SEL(5), WR_CONFIRM
        lambda p: p.write_data(VA, 0xDEAD_BEEF),
        [0xC003_3700, 0x0010_0500, 0x2345_6780, 1, 0xDEAD_BEEF],
    ),
    "write data in passing": (
        lambda p: p.write_data(VA, 1, 2, confirm=False),
        [0xC004_3700, 0x500, 0x2345_6780, 1, 1, 2],
    ),
    "write a register": (lambda p: p.write_register(0x2955, 7), [0xC003_3700, 0x0010_0000, 0x2955, 0, 7]),  # emit_wreg
    "write one register twice": (  # WR_ONE_ADDR
        lambda p: p.write_register(0x2955, 7, 8, increment=False),
        [0xC004_3700, 0x0011_0000, 0x2955, 0, 7, 8],
    ),
    "wait for at least": (lambda p: p.wait_mem(VA, 5), [0xC005_3C00, 0x15, 0x2345_6780, 1, 5, ONES, 4]),
    "wait for equal": (  # emit_pipeline_sync: MEM_SPACE(1), FUNCTION(3)
        lambda p: p.wait_mem(VA, 5, compare=Compare.EQUAL),
        [0xC005_3C00, 0x13, 0x2345_6780, 1, 5, ONES, 4],
    ),
    "wait for a register": (lambda p: p.wait_register(0x291D, 8, 8), [0xC005_3C00, 3, 0x291D, 0, 8, 8, 0x20]),
    "flush and wait": (  # emit_reg_write_reg_wait: OPERATION(1)
        lambda p: p.write_then_wait(0x290B, 0x291D, 0xF8_0100, 0x100),
        [0xC005_3C00, 0x43, 0x290B, 0x291D, 0xF8_0100, 0x100, 0x20],
    ),
    "register to memory": (
        lambda p: p.store_register(0xC040, VA),
        [0xC004_4000, 0x0010_0500, 0xC040, 0, 0x2345_6780, 1],
    ),
    "clock to memory": (  # COPY_DATA_TIMESTAMP 9, COUNT_SEL, WR_CONFIRM, DST_MEM 5
        lambda p: p.store_clock(VA),
        [0xC004_4000, 0x0011_0509, 0, 0, 0x2345_6780, 1],
    ),
    "immediate to register": (  # COPY_DATA_IMM 5
        lambda p: p.copy_data(CopySource.IMMEDIATE, 9, CopyTarget.REGISTER, 0x2E40, confirm=False),
        [0xC004_4000, 5, 9, 0, 0x2E40, 0],
    ),
    "copy by the processor": (  # SRC_SEL(3), DST_SEL(3), CP_SYNC
        lambda p: p.copy_memory(VA, 0x1000, 256),
        [0xC005_5000, 0xE030_0000, 0x1000, 0, 0x2345_6780, 1, 0x100],
    ),
    "fill by the processor": (  # SRC_SEL(2), DST_SEL(3), CP_SYNC
        lambda p: p.fill_memory(VA, 7, 64),
        [0xC005_5000, 0xC030_0000, 7, 0, 0x2345_6780, 1, 0x40],
    ),
    "call": (lambda p: p.indirect_buffer(VA, 64, 8), [0xC002_3F00, 0x2345_6780, 1, 0x0880_0040]),  # VALID, vmid << 24
    "call in the queue's space": (  # gfx_v11_0_ring_emit_ib_compute: 0x40000000
        lambda p: p.indirect_buffer(VA, 64, inherit_vmid=True),
        [0xC002_3F00, 0x2345_6780, 1, 0x4080_0040],
    ),
    "jump": (lambda p: p.indirect_buffer(VA, 64, chain=True), [0xC002_3F00, 0x2345_6780, 1, 0x0090_0040]),
    "run if": (lambda p: p.cond_exec(VA, 9), [0xC003_2200, 0x2345_6780, 1, 0, 9]),
    "run on dies": (lambda p: p.pred_exec(5, 9), [0xC000_2300, 0x0500_0009]),
    "add": (lambda p: p.atomic_mem(Atomic.ADD, VA, 5), [0xC007_1E00, 0x2F, 0x2345_6780, 1, 5, 0, 0, 0, 0]),  # RTN_64
    "compare and swap until": (
        lambda p: p.atomic_mem(Atomic.CMPSWAP, VA, 1, 2, bits=32, loop=True),
        [0xC007_1E00, 0x108, 0x2345_6780, 1, 1, 0, 2, 0, 0x100],
    ),
    "change a register": (lambda p: p.reg_rmw(0xC040, 0xFF, 0x100), [0xC002_2100, 0xC040, 0xFF, 0x100]),
    "prefetcher waits": (lambda p: p.pfp_sync_me(), [0xC000_4200, 0]),
    "dispatch": (lambda p: p.dispatch(5, 3, 2), [0xC003_1502, 5, 3, 2, 0x45]),
    "dispatch from memory": (lambda p: p.dispatch_indirect(VA), [0xC002_1602, 0x2345_6780, 1, 0x45]),
    "dispatches done": (lambda p: p.wait_for_dispatches(), [0xC000_4600, 0x407]),  # CS_PARTIAL_FLUSH 7, index 4
}


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("name", SAME)
def test_packets_that_all_generations_share(name, version):
    build, expected = SAME[name]
    assert build(Pm4(version)) == expected


DIFFERENT = {
    # gfx_v9_4_3_emit_mem_sync; gfx_v11_0_emit_mem_sync, which RADV uses in full.
    ("all caches", MI300): (lambda p: p.acquire_mem(NEW_CODE), [0xC005_5800, 0x28C4_0000, ONES, 0xFF_FFFF, 0, 0, 0xA]),
    ("all caches", NAVI31): (lambda p: p.acquire_mem(NEW_CODE), [0xC006_5800, 0, ONES, 0xFF_FFFF, 0, 0, 0xA, 0xC3B1]),
    # GFX12 without GLM, bits 4 and 5: radv_cs.c
    ("all caches", NAVI48): (lambda p: p.acquire_mem(NEW_CODE), [0xC006_5800, 0, ONES, 0xFF_FFFF, 0, 0, 0xA, 0xC381]),
    # GLK_INV 7, GLV_INV 8, GL1_INV 9; SH_KCACHE 27, TCL1 22
    ("next dispatch", MI300): (lambda p: p.acquire_mem(NEXT_DISPATCH)[1:2], [0x0840_0000]),
    ("next dispatch", NAVI31): (lambda p: p.acquire_mem(NEXT_DISPATCH)[-1:], [0x380]),
    ("next dispatch", NAVI48): (lambda p: p.acquire_mem(NEXT_DISPATCH)[-1:], [0x380]),
    # GL2_WB 15, GLM_WB 4, GLM_INV 5; TC 23, TC_WB 18, TCL1 22
    ("for others", MI300): (lambda p: p.acquire_mem(TO_OUTSIDE)[1:2], [0x00C4_0000]),
    ("for others", NAVI31): (lambda p: p.acquire_mem(TO_OUTSIDE)[-1:], [0x8030]),
    ("for others", NAVI48): (lambda p: p.acquire_mem(TO_OUTSIDE)[-1:], [0x8000]),
    # a range: 0x300 bytes that straddle four units of 256
    ("range", NAVI31): (
        lambda p: p.acquire_range(0x1_0000_0080, 0x300, FROM_OUTSIDE),
        [0xC006_5800, 0, 4, 0, 0x0100_0000, 0, 0xA, 0xC3B0],
    ),
    ("range", MI300): (
        lambda p: p.acquire_range(0x100_0000_0000, 0x100),
        [0xC005_5800, 0x08C4_0000, 1, 0, 0, 1, 0xA],
    ),
    # gfx_v9_4_3_ring_emit_fence, 64 bits, with an interrupt: TC_WB 15, TCL1 16, TC 17, TC_MD 21, event 20, index 5;
    # DATA_SEL(2), INT_SEL(2)
    ("fence", MI300): (
        lambda p: p.release_mem(VA, 0x5_0000_0006, interrupt=True),
        [0xC006_4900, 0x0023_8514, 0x4200_0000, 0x2345_6780, 1, 6, 5, 0],
    ),
    # gfx_v11_0_ring_emit_fence: SEQ 22, GL2_WB 21, GLM_INV 13, GLM_WB 12, CACHE_POLICY(3)
    ("fence", NAVI31): (
        lambda p: p.release_mem(VA, 0x5_0000_0006, interrupt=True, context_id=9),
        [0xC006_4900, 0x0660_3514, 0x4200_0000, 0x2345_6780, 1, 6, 5, 9],
    ),
    # gfx_v12_0_ring_emit_fence: no GLM
    ("fence", NAVI48): (
        lambda p: p.release_mem(VA, 6, bits=32, interrupt=True),
        [0xC006_4900, 0x0660_0514, 0x2200_0000, 0x2345_6780, 1, 6, 0, 0],
    ),
    # radv_cs_emit_write_event_eop: INT_SEL(3), data after write confirm
    ("fence without interrupt", NAVI31): (lambda p: p.release_mem(VA, 6)[2:3], [0x4300_0000]),
    # BOTTOM_OF_PIPE_TS 40, no cache; DATA_SEL(3)
    ("clock at the end", NAVI31): (
        lambda p: p.release_clock(VA),
        [0xC006_4900, 0x0640_0528, 0x6300_0000, 0x2345_6780, 1, 0, 0, 0],
    ),
    # CS_W32_EN is bit 15 of the initiator
    ("wave32", NAVI31): (lambda p: p.dispatch(1, 1, 1, p.initiator_wave32)[-1:], [0x8045]),
    ("wave32", NAVI48): (lambda p: p.dispatch(1, 1, 1, p.initiator_wave32)[-1:], [0x8045]),
    ("wait for 64 bits", NAVI31): (
        lambda p: p.wait_mem64(VA, 0x5_0000_0006),
        [0xC007_9300, 0x15, 0x2345_6780, 1, 6, 5, ONES, ONES, 4],
    ),
    # The base of segment 0 differs: 0xE0C + 0x2000 and 0x1BAC + 0x1260 are the same register.
    ("program address", MI300): (lambda p: p.set_sh_at(regs.COMPUTE_PGM_LO, 1, 2), [0xC002_7600, 0x20C, 1, 2]),
    ("program address", NAVI31): (lambda p: p.set_sh_at(regs.COMPUTE_PGM_LO, 1, 2), [0xC002_7600, 0x20C, 1, 2]),
    ("program address", NAVI48): (lambda p: p.set_sh_at(regs.COMPUTE_PGM_LO, 1, 2), [0xC002_7600, 0x20C, 1, 2]),
    ("masked by the driver", NAVI31): (  # SET_SH_REG_INDEX, index 3 at bit 28
        lambda p: p.set_sh_index(regs.COMPUTE_STATIC_THREAD_MGMT_SE0(ONES)),
        [0xC001_9B00, 0x3000_0216, ONES],
    ),
}


@pytest.mark.parametrize(("what", "version"), DIFFERENT, ids=str)
def test_packets_whose_bits_are_a_generations_own(what, version):
    build, expected = DIFFERENT[what, version]
    assert build(Pm4(version)) == expected


def test_registers_side_by_side_share_a_packet_and_others_do_not():
    words = [regs.COMPUTE_NUM_THREAD_X(64), regs.COMPUTE_NUM_THREAD_Y(2), regs.COMPUTE_PGM_RSRC1(7)]
    assert Pm4(NAVI31).set_sh(*words) == [0xC002_7600, 0x207, 64, 2, 0xC001_7600, 0x212, 7]


def test_a_word_of_another_version_goes_to_the_register_it_was_made_from():
    word = regs.COMPUTE_PGM_RSRC1.at(NAVI48)(5)
    assert Pm4(NAVI48).set_sh(word) == [0xC001_7600, 0x212, 5]


def test_large_copies_of_the_processor_wait_once_at_the_end():
    # radv_cp_dma.c: at most 32767 bytes, down to a multiple of 32
    packets = Pm4(NAVI31).copy_memory(VA, 0x1000, 0x8000)
    assert packets[:7] == [0xC005_5000, 0x6030_0000, 0x1000, 0, 0x2345_6780, 1, 0x7FE0]
    assert packets[7:] == [0xC005_5000, 0xE030_0000, 0x8FE0, 0, 0x2345_E760, 1, 0x20]


def test_kiq_packets_are_the_kernels():
    assert set_resources(NAVI31, 0xFF) == [0xC006_A000, 0x000A_0000, 0xFF, 0, 0, 0, 0, 0]  # gfx11_kiq_set_resources
    # gfx11_kiq_map_queues: ME(1) at 18, NUM_QUEUES(1) at 29, doorbell << 2; the MES queue has ME(2), ENGINE_SEL(5) at
    # 26
    assert map_queues(NAVI31, VA, 0x1000, 6) == [0xC005_A200, 0x2004_0000, 0x18, 0x2345_6780, 1, 0x1000, 0]
    mes = map_queues(NAVI31, VA, 0x1000, 0x16, me=2, engine=QueueEngine.MES)
    assert mes[1:3] == [0x3408_0000, 0x58]
    assert unmap_queues(NAVI31, [6], UnmapAction.RESET) == [0xC004_A300, 0x2000_0001, 0x18, 0, 0, 0]
    assert unmap_queues(MI300, [6, 8, 10], UnmapAction.PREEMPT) == [0xC004_A300, 0x6000_0000, 0x18, 0x20, 0x28, 0]
    assert query_status(NAVI31, 6, VA, 0x5_0000_0006) == [0xC005_A400, 0x8000_0000, 0x18, 0x2345_6780, 1, 6, 5]
    # DST_SEL(1), ALL_HUB(1) at 4, PASID at 5, FLUSH_TYPE(2) at 29
    assert invalidate_tlbs(NAVI31, 0x8003, 2) == [0xC000_9800, 0x4010_0071]


def test_every_operand_is_checked_by_name():
    p = Pm4(NAVI31)
    refused = [
        (
            lambda: p.write_data(VA + 2, 1),
            r"WRITE_DATA.dst_mem_addr is a 64-bit address aligned to 4 bytes, not 0x123456782",
        ),
        (lambda: p.write_data(VA), "WRITE_DATA carries at least one dword"),
        (lambda: p.write_data(VA, 1, 1 << 32), "WRITE_DATA carries dwords of 32 bits, not 0x100000000"),
        (lambda: p.write_data(VA, *[0] * 0x3FFD), "at most 16383 dwords"),
        (lambda: p.wait_mem(1 << 64, 1), "WAIT_REG_MEM.mem_poll_addr"),
        (lambda: p.wait_mem(VA, -1), "WAIT_REG_MEM.reference holds 32 bits, not -0x1"),
        (lambda: p.wait_mem64(VA + 4, 1), "WAIT_REG_MEM64.mem_poll_addr"),
        (lambda: p.release_mem(VA + 4, 1), "RELEASE_MEM.address is a 64-bit address aligned to 8 bytes"),
        (lambda: p.release_mem(VA, 1 << 32, bits=32), "RELEASE_MEM.data holds 32 bits"),
        (lambda: p.release_mem(VA, 1, bits=16), "32 or 64 bits, not 16"),
        (lambda: p.release_mem(VA, 1, context_id=1 << 28), "RELEASE_MEM.int_ctxid holds 28 bits"),
        (lambda: p.release_mem(VA, 1, caches=Caches(instructions=True)), "no bit for instructions; acquire them"),
        (lambda: p.dispatch(1, -1, 1), "DISPATCH_DIRECT takes dimensions of 32 bits, not 1, -1, 1"),
        (lambda: p.set_sh_at(0x2BFF, 1), "SET_SH_REG reaches dwords 0x2c00 to 0x2fff, not 0x2bff"),
        (lambda: p.set_sh_at(0x2FFF, 1, 2), "not 0x2fff and 1 after it"),
        (lambda: p.set_sh(), "at least one register"),
        (lambda: p.set_uconfig_at(0x2E40, 1), "SET_UCONFIG_REG reaches"),
        (lambda: p.set_sh(gc_hqd.CP_HQD_ACTIVE(1)), "SET_SH_REG reaches"),
        (lambda: p.write_register(1 << 18, 1), "dword address holds 18 bits"),
        (lambda: p.indirect_buffer(VA, 1 << 20), "INDIRECT_BUFFER runs 1 to 1048575 dwords"),
        (lambda: p.indirect_buffer(VA, 1, 16), "vmid holds 4 bits"),
        (lambda: p.nop(0), "NOP fills 1 to 16384 dwords, not 0"),
        (lambda: p.cond_exec(VA, 1 << 14), "exec_count holds 14 bits"),
        (lambda: p.atomic_mem(Atomic.ADD, VA + 4, 1), "ATOMIC_MEM.addr"),
        (lambda: p.atomic_mem(Atomic.ADD, VA, 1, bits=8), "32 or 64 bits wide, not 8"),
        (lambda: p.copy_memory(VA, VA, 0), "at least one byte"),
        (lambda: p.fill_memory(VA, 0, 6), "whole dwords"),
        (lambda: unmap_queues(NAVI31, [], UnmapAction.RESET), "1 to 4 doorbells"),
    ]
    for build, message in refused:
        with pytest.raises(ValueError, match=message):
            build()


def test_features_that_a_version_lacks_are_refused():
    with pytest.raises(NotSupported, match=r"no packets are known for graphics core \(10, 3, 0\); known: \(11, 0, 0\)"):
        Pm4((10, 3, 0))
    with pytest.raises(NotSupported, match=r"\(9, 4, 3\) has no WAIT_REG_MEM64"):
        Pm4(MI300).wait_mem64(VA, 1)
    assert Pm4(MI300).initiator_wave32 is None
