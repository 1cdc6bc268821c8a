"""Packets of a compute queue: their effects on memory, registers and interrupts, and the packets that the engine
refuses.

Headers are 0xC0000000 | count << 16 | opcode << 8 with opcodes of nvd.h. Fields lie as in PAL's f32_mec_pm4_packets.h.
"""

from __future__ import annotations

import pytest

from ringup.errors import Unmodelled

WRITE_DATA, COPY_DATA, WAIT_REG_MEM, WAIT_REG_MEM64 = 0x37, 0x40, 0x3C, 0x93
INDIRECT_BUFFER, RELEASE_MEM, ACQUIRE_MEM, EVENT_WRITE = 0x3F, 0x49, 0x58, 0x46
ATOMIC_MEM, DMA_DATA, COND_EXEC, PRED_EXEC, REWIND = 0x1E, 0x50, 0x22, 0x23, 0x59
# A dword of gc_11_0_0_offset.h: base 1 (0xA000) + 0x2040.
SCRATCH_REG0 = 0xC040
# A NOP without a body.
NOP1 = 0xFFFF_1000
SRC_END_OF_PIPE, SRC_BAD_OPCODE, SRC_RESERVED, SRC_PRIV = 181, 183, 180, 184  # irqsrcs_gfx_11_0_0.h


def p(opcode, *body):
    return [0xC000_0000 | len(body) - 1 << 16 | opcode << 8, *body]


def store(at, *values):
    return p(WRITE_DATA, 5 << 8 | 1 << 20, at, 0, *values)


def test_write_data_stores_consecutive_dwords(core, mec):
    mec.run(*store(core.DATA, 1, 2, 3))
    assert core.words(core.DATA, 4) == [1, 2, 3, 0]


def test_write_data_to_one_address_leaves_the_last_value(core, mec):
    mec.run(*p(WRITE_DATA, 5 << 8 | 1 << 16, core.DATA, 0, 1, 2, 3))
    assert core.words(core.DATA, 2) == [3, 0]


def test_write_data_reaches_registers_by_dword_number(core, mec):
    mec.run(*p(WRITE_DATA, 0, SCRATCH_REG0, 0, 0x1234, 0x5678))
    assert (core.get("SCRATCH_REG0"), core.get("SCRATCH_REG1")) == (0x1234, 0x5678)


def test_compute_queues_of_gfx12_set_registers_in_pairs(core, mec, navi48_core):
    """Mesa ac_parse_ib.c: SET_SH_REG_PAIRS and SET_UCONFIG_REG_PAIRS, of which the last is no packet of GFX11."""
    navi48_core.queue().run(
        *p(0xBE, 0x41, 0x2222, 0x40, 0x1111), *p(0xBA, 0x241, 4, 0x240, 3), *store(navi48_core.DATA, 1)
    )
    assert [navi48_core.get(name) for name in ("SCRATCH_REG0", "SCRATCH_REG1")] == [0x1111, 0x2222]
    navi48_core.select(1)
    assert [navi48_core.get(f"COMPUTE_USER_DATA_{number}") for number in range(2)] == [3, 4]
    assert navi48_core.number(navi48_core.DATA) == 1
    mec.run(*p(0xBE, 0x40, 0x1111))
    assert core.ih.entries[0][1] == SRC_BAD_OPCODE


def test_set_uconfig_reg_is_the_ring_test_of_amdgpu(core, mec):
    # gfx_v11_0_ring_test_ring: offset from 0xC000
    mec.run(0xC001_7900, 0x40, 0xDEAD_BEEF)
    assert core.get("SCRATCH_REG0") == 0xDEAD_BEEF


def test_set_sh_reg_sets_the_queues_own_bank(core, mec):
    other = core.queue(pipe=1, doorbell=0x8)
    # COMPUTE_USER_DATA_0: byte 0xB900, dword 0x2E40 - 0x2C00
    mec.run(0xC002_7600, 0x240, 0x11, 0x22)
    other.run(0xC001_7600, 0x240, 0x33)
    for pipe, expected in ((0, (0x11, 0x22)), (1, (0x33, 0))):
        core.select(1, pipe, 0)
        assert (core.get("COMPUTE_USER_DATA_0"), core.get("COMPUTE_USER_DATA_1")) == expected


def test_packed_pairs_set_registers_anywhere_in_the_window(core, mec):
    mec.run(0xC006_BB00, 4, 0x241 << 16 | 0x240, 5, 6, 0x250 << 16 | 0x242, 7, 8)
    core.select(1, 0, 0)
    names = ("COMPUTE_USER_DATA_0", "COMPUTE_USER_DATA_1", "COMPUTE_USER_DATA_2")
    assert [core.get(name) for name in names] == [5, 6, 7]


@pytest.mark.parametrize(("select", "size"), [(0, 4), (1, 8)])
def test_copy_data_moves_32_or_64_bits_of_memory(core, mec, select, size):
    core.put(core.DATA, 0x1111_2222, 0x3333_4444)
    mec.run(*p(COPY_DATA, 2 | 2 << 8 | select << 16, core.DATA, 0, core.DATA + 0x100, 0))
    expected = 0x3333_4444_1111_2222 & (1 << 8 * size) - 1
    assert core.number(core.DATA + 0x100, 8) == expected


def test_copy_data_stores_an_immediate_a_register_and_the_clock(core, mec):
    core.set("SCRATCH_REG0", 0xABCD)
    at = core.DATA
    mec.write(*p(COPY_DATA, 5 | 5 << 8, 77, 0, at, 0))
    mec.write(*p(COPY_DATA, 0 | 5 << 8, SCRATCH_REG0, 0, at + 4, 0))
    mec.run(*p(COPY_DATA, 9 | 5 << 8 | 1 << 16, 0, 0, at + 8, 0))
    assert core.words(at, 2) == [77, 0xABCD]
    # The core booted 1 ms ago: 100 MHz.
    assert 100_000 <= core.number(at + 8, 8) <= core.clock.ticks(100_000_000)


@pytest.mark.parametrize(
    ("function", "below", "equal", "above"),
    [(0, 1, 1, 1), (1, 1, 0, 0), (2, 1, 1, 0), (3, 0, 1, 0), (4, 1, 0, 1), (5, 0, 1, 1), (6, 0, 0, 1)],
)
def test_wait_reg_mem_compares_as_its_function_says(core, mec, function, below, equal, above):
    for value, passes in ((4, below), (5, equal), (6, above)):
        at = core.DATA + 0x40 * value
        core.put(at, value | 0x100)
        mec.run(*p(WAIT_REG_MEM, function | 1 << 4, at, 0, 5, 0xFF, 4), *store(core.DATA, value), us=300)
        assert (core.number(core.DATA) == value) == bool(passes)
        # Let the queue go on.
        core.put(at, 5 if function in (0, 2, 3, 5) else 4 if function in (1, 4) else 6)
        core.clock.sleep_us(300)
        assert mec.done()


def test_wait_reg_mem_64_looks_at_both_halves(core, mec):
    core.put(core.DATA, 7, 0)
    mec.run(*p(WAIT_REG_MEM64, 5 | 1 << 4, core.DATA, 0, 0, 1, 0xFFFF_FFFF, 0xFFFF_FFFF, 4))
    assert not mec.done()
    core.put(core.DATA, 0, 1)
    core.clock.sleep_us(200)
    assert mec.done()


def test_write_wait_write_asks_one_register_and_waits_for_another(core, mec):
    request, acknowledge = (core.cells.address(f"GCVM_INVALIDATE_ENG0_{name}") // 4 for name in ("REQ", "ACK"))
    # gmc_v11_0_emit_flush_gpu_tlb of VMID 3: a whole request, and one bit to wait for.
    mec.run(*p(WAIT_REG_MEM, 3 | 1 << 6, request, acknowledge, 0xF8_0008, 8, 0x20))
    assert mec.done()
    assert core.flushed == [0xF8_0008]


def test_dma_data_copies_and_fills(core, mec):
    core.put(core.DATA, *range(64))
    mec.write(*p(DMA_DATA, 3 << 29 | 3 << 20, core.DATA, 0, core.DATA + 0x1000, 0, 256))
    mec.run(*p(DMA_DATA, 2 << 29 | 3 << 20, 0x5A5A_5A5A, 0, core.DATA + 0x2000, 0, 16))
    assert core.words(core.DATA + 0x1000, 65) == [*range(64), 0]
    assert core.words(core.DATA + 0x2000, 5) == [0x5A5A_5A5A] * 4 + [0]


@pytest.mark.parametrize(
    ("operation", "old", "source", "new"),
    [
        (0x47, 5, 9, 9),
        (0x4F, 0xFFFF_FFFF, 2, 1),
        (0x50, 1, 2, 0xFFFF_FFFF),
        (0x51, 0xFFFF_FFFF, 1, 0xFFFF_FFFF),
        (0x52, 0xFFFF_FFFF, 1, 1),
        (0x53, 0xFFFF_FFFF, 1, 1),
        (0x54, 0xFFFF_FFFF, 1, 0xFFFF_FFFF),
        (0x55, 0xC, 0xA, 8),
        (0x56, 0xC, 0xA, 0xE),
        (0x57, 0xC, 0xA, 6),
        (0x58, 7, 7, 0),
        (0x59, 0, 7, 7),
    ],
)
def test_atomics_of_32_bits(core, mec, operation, old, source, new):  # numbers: navi10_enum.h, TC_OP_ATOMIC_*_32
    core.put(core.DATA, old, 0x77)
    mec.run(*p(ATOMIC_MEM, operation, core.DATA, 0, source, 0, 0, 0, 0))
    assert core.words(core.DATA, 2) == [new, 0x77]


def test_a_looping_compare_and_swap_waits_for_its_comparison(core, mec):
    core.put(core.DATA, 1, 0)
    mec.run(*p(ATOMIC_MEM, 0x28 | 1 << 8, core.DATA, 0, 5, 6, 0, 0, 1))
    assert not mec.done()
    core.put(core.DATA, 0, 0)
    core.clock.sleep_us(200)
    assert mec.done()
    assert core.words(core.DATA, 2) == [5, 6]


def test_cond_exec_leaves_dwords_out_when_its_word_is_zero(core, mec):
    at = core.DATA
    core.put(at + 0x100, 0, 1)
    mec.write(*p(COND_EXEC, at + 0x100, 0, 0, 5), *store(at, 1))
    mec.run(*p(COND_EXEC, at + 0x104, 0, 0, 5), *store(at + 4, 1))
    assert core.words(at, 2) == [0, 1]


def test_pred_exec_executes_only_what_is_for_this_device(core, mec):
    mec.write(*p(PRED_EXEC, 2 << 24 | 5), *store(core.DATA, 1))
    mec.run(*p(PRED_EXEC, 1 << 24 | 5), *store(core.DATA + 4, 1))
    assert core.words(core.DATA, 2) == [0, 1]


def test_nops_of_any_length_do_nothing(core, mec):
    mec.run(NOP1, NOP1, 0xC000_1000, 0xDEAD, 0xC003_1000, 0, 0, 0, 0, *store(core.DATA, 1))
    assert core.number(core.DATA) == 1


# --- end of pipe -------------------------------------------------------------------------------------------------
def fence(at, value, data_sel=2, int_sel=2, context=0, op=0x1428_0514):
    return p(
        RELEASE_MEM,
        op,
        data_sel << 29 | int_sel << 24,
        at & 0xFFFF_FFFF,
        at >> 32,
        value & 0xFFFF_FFFF,
        value >> 32,
        context,
    )


@pytest.mark.parametrize(("data_sel", "expected"), [(0, 0), (1, 0x89AB_CDEF), (2, 0x0123_4567_89AB_CDEF)])
def test_release_mem_stores_what_data_sel_says(core, mec, data_sel, expected):
    mec.run(*fence(core.DATA, 0x0123_4567_89AB_CDEF, data_sel))
    assert core.number(core.DATA, 8) == expected


def test_release_mem_stores_the_clock(core, mec):
    mec.run(*fence(core.DATA, 0, data_sel=3))
    assert 0 < core.number(core.DATA, 8) <= core.clock.ticks(100_000_000)


@pytest.mark.parametrize(("int_sel", "raised"), [(0, False), (1, True), (2, True), (3, False), (4, True)])
def test_release_mem_interrupts_as_int_sel_says(core, mec, int_sel, raised):
    mec.run(*fence(core.DATA, 7, int_sel=int_sel, context=0x55))
    # ring id: me 1, pipe 0, queue 0
    entry = (0x14, SRC_END_OF_PIPE, 1 << 2, 0, (0x55,))
    assert core.ih.entries == ([entry] if raised else [])


def test_the_end_of_pipe_interrupt_needs_its_pipe_to_enable_it(core, mec):
    core.set("CP_ME1_PIPE0_INT_CNTL", 0)
    mec.run(*fence(core.DATA, 7))
    assert (core.number(core.DATA), core.ih.entries) == (7, [])


def test_an_event_that_is_no_time_stamp_never_completes(core, mec):
    mec.run(*fence(core.DATA, 7, op=0x0507))  # CS_PARTIAL_FLUSH
    assert core.number(core.DATA) == 0
    assert "never completes" in core.violations()[0]


# --- indirect buffers ---------------------------------------------------------------------------------------------
def ib(at, dwords, flags=1 << 23):
    return p(INDIRECT_BUFFER, at, 0, dwords | flags)


def test_an_indirect_buffer_is_executed_and_left_again(core, mec):
    at = core.DATA + 0x1000
    core.put(at, *store(core.DATA, 1))
    mec.run(*ib(at, 5), *store(core.DATA + 4, 2))
    assert core.words(core.DATA, 2) == [1, 2]


def test_the_vmid_of_an_indirect_buffer_is_the_packets_for_kernel_queues(core, mec):
    at = core.DATA + 0x1000
    core.put(at, *store(core.DATA, 1))
    core.hub.vmids.clear()
    mec.run(*ib(at, 5, 1 << 23 | 3 << 24))
    assert set(core.hub.vmids) == {0, 3}


def test_the_vmid_of_a_user_queue_is_its_own_whatever_the_packet_says(core):
    user = core.queue(vmid=9, control=0x0030_8907)
    core.put(core.DATA + 0x1000, *store(core.DATA, 1))
    core.hub.vmids.clear()
    user.run(*ib(core.DATA + 0x1000, 5, 1 << 23 | 3 << 24))
    assert set(core.hub.vmids) == {9}
    assert core.number(core.DATA) == 1


def test_a_chained_buffer_takes_the_place_of_the_one_before(core, mec):
    first, second = core.DATA + 0x1000, core.DATA + 0x2000
    core.put(first, *store(core.DATA, 1), *ib(second, 5, 1 << 23 | 1 << 20), *store(core.DATA + 8, 9))
    core.put(second, *store(core.DATA + 4, 2))
    mec.run(*ib(first, 14), *store(core.DATA + 12, 3))
    assert core.words(core.DATA, 4) == [1, 2, 0, 3]


def test_mec_has_one_level_of_indirect_buffers(core, mec):
    first, second = core.DATA + 0x1000, core.DATA + 0x2000
    core.put(first, *ib(second, 5))
    core.put(second, *store(core.DATA, 1))
    mec.run(*ib(first, 4))
    assert core.number(core.DATA) == 0
    assert "nest deeper" in core.violations()[0]


def test_a_packet_must_end_within_its_indirect_buffer(core, mec):
    core.put(core.DATA + 0x1000, *store(core.DATA, 1))
    mec.run(*ib(core.DATA + 0x1000, 4))
    assert core.number(core.DATA) == 0
    assert core.ih.entries[0][1] == SRC_RESERVED


def test_rewind_waits_for_its_own_valid_bit(core, mec):
    at = core.DATA + 0x1000
    core.put(at, *p(REWIND, 0), *store(core.DATA, 1))
    mec.run(*ib(at, 7))
    assert core.number(core.DATA) == 0
    core.put(at + 4, 1 << 31)
    core.clock.sleep_us(200)
    assert core.number(core.DATA) == 1


# --- refusals -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "source"),
    [
        ([0x0000_0000], SRC_BAD_OPCODE),  # type 0
        ([0x8000_0000], SRC_BAD_OPCODE),  # type 2
        ([0xC000_FE00, 0], SRC_BAD_OPCODE),  # no such opcode
        ([0xC001_2800, 1 << 31, 0], SRC_BAD_OPCODE),  # CONTEXT_CONTROL is graphics'
        ([0xC005_A200, 0, 0, 0, 0, 0, 0], SRC_BAD_OPCODE),  # MAP_QUEUES is the KIQ's
        ([0xC004_3C00, 0x13, 0, 0, 0, 0], SRC_RESERVED),  # WAIT_REG_MEM one dword short
        ([0xC005_3C00, 0x17, 0x30_0000, 0, 0, 0, 4], SRC_RESERVED),  # function 7
        ([0xC003_3708, 0x500, 0x30_0000, 0, 1], SRC_RESERVED),  # header bit 3
        ([0xC002_7600, 0x400, 1, 2], SRC_RESERVED),  # SET_SH_REG behind its window
    ],
)
def test_a_bad_packet_stops_its_queue_with_an_interrupt(core, mec, words, source):
    mec.run(*words, *store(core.DATA, 1))
    assert core.number(core.DATA) == 0
    assert [entry[:3] for entry in core.ih.entries] == [(0x14, source, 4)]
    assert core.ih.entries[0][4][0] & 0x3FF == 3  # KFD_CTXID0_DOORBELL_ID: of doorbells with 64 bits
    mec.run(*store(core.DATA + 4, 1))
    assert core.number(core.DATA + 4) == 0
    assert len(core.violations()) == 1


def test_a_user_queue_may_not_write_privileged_registers(core):
    user = core.queue(vmid=9, control=0x0030_8907)
    sh_mem = core.cells.address("SH_MEM_CONFIG") // 4
    user.run(*p(WRITE_DATA, 0, sh_mem, 0, 0xFFFF_FFFF), *store(core.DATA, 1))
    assert core.ih.entries[0][1] == SRC_PRIV
    assert core.number(core.DATA) == 0


def test_a_packet_the_model_lacks_says_so(core, mec):
    mec.write(0xC009_1D00, *[0] * 10)  # ATOMIC_GDS
    mec.ring_bell()
    with pytest.raises(Unmodelled, match="ATOMIC_GDS"):
        core.clock.sleep_us(100)
    mec.run(*store(core.DATA, 1))
    # The queue stays where it is.
    assert core.number(core.DATA) == 0


def test_a_fault_while_fetching_stops_the_queue_and_says_where(core, mec):
    core.hub.unmapped.add(0x900)
    mec.run(*ib(0x90_0000, 5), *store(core.DATA, 1))
    core.select(1, 0, 0)
    assert core.cells.field("CP_HQD_ERROR", "ib_utcl1_error", core.get("CP_HQD_ERROR"))
    assert core.number(core.DATA) == 0


def test_a_fault_while_storing_stops_the_queue(core, mec):
    core.hub.unmapped.add(core.DATA // 4096)
    mec.run(*store(core.DATA, 1))
    core.select(1, 0, 0)
    assert core.cells.field("CP_HQD_ERROR", "tc_utcl1_error", core.get("CP_HQD_ERROR"))
    assert not mec.done()
