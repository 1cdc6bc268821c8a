"""Table rows of gfx12, NBIF 6.3.1, MMHUB 4.1, SDMA 7 and SMU 14, on registers that only store. The blocks access only
registers that those versions have, and write what amdgpu's files of those versions write.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ringup.autogen import regdb
from ringup.autogen.amd import gc, gc_cp, gc_hqd, gc_pipe, gc_rlc, gc_sq, gc_ucode, gc_vm, mmhub, mp, sdma, thm
from ringup.autogen.amd import nbio as nbio_words
from ringup.autogen.amd import nbio_doorbell as doorbell
from ringup.autogen.amd.nbio_link import RCC_DEV0_EPF2_STRAP2
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.ih import Ih
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Block, Registers
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.gating import set_gating
from ringup.drivers.amd.gfx.hqd import Place
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.reset import reset_command_processors, soft_reset
from ringup.drivers.amd.gfx.sdma import SdmaEngine, SdmaQueue, SdmaQueueSpec
from ringup.drivers.amd.gfx.shape import Design
from ringup.drivers.amd.gfx.waves import waves
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.amd.smu.thermal import Thermal
from ringup.drivers.transport.batch import direct
from ringup.errors import NotSupported
from ringup.silicon.common.clock import VirtualClock

GC, MMHUB, SDMA, OSSSYS = (12, 0, 0), (4, 1, 0), (7, 0, 0), (7, 0, 0)
PFP, ME, MEC = 0x1000, 0x2000, 0x8000_0000_0000  # where programs begin, byte addresses


class Window:
    """A register BAR that only stores values and keeps what was written, in order; `answers` overrides what chosen
    registers read as: a value, or what to call for it.
    """

    size_bytes = 1 << 28

    def __init__(self):
        self.values, self.answers, self.written = {}, {}, []

    def read32(self, offset):
        answer = self.answers.get(offset, self.values.get(offset, 0))
        return answer() if callable(answer) else answer

    def write32(self, offset, value):
        self.values[offset] = value
        self.written.append((offset, value))

    def write64(self, offset, value):
        self.write32(offset, value & 0xFFFF_FFFF)
        self.write32(offset + 4, value >> 32)

    def batch(self):
        return direct(self)


class Rig:
    """Blocks of a gfx12 card. The bases are navi31's: no public source gives those of gfx12, and no test here depends
    on them.
    """

    def __init__(self):
        self.window = Window()
        config = SimpleNamespace(read=lambda offset, size_bytes=4: 0x1002)
        self.registers = Registers(
            SimpleNamespace(
                bars={5: self.window}, clock=VirtualClock(), lost=False, config=config, name="memory", remote=None
            )
        )
        bases = {place.block: place.bases[0] for place in regdb.open_chip("navi31").row.places}
        self.gc, self.mmhub = self.block("gc", GC, bases), self.block("mmhub", MMHUB, bases)
        self.osssys, self.smuio = self.block("osssys", OSSSYS, bases), self.block("smuio", (14, 0, 2), bases)
        self.nbio, self.thm = self.block("nbio", (6, 3, 1), bases), self.block("thm", (14, 0, 2), bases)
        self.mp1 = Block(self.registers, "mp1", (14, 0, 2), bases["mp"])
        for block, word, value in (
            (self.mmhub, mmhub.MMMC_VM_FB_LOCATION_BASE, 0x8000),
            (self.mmhub, mmhub.MMVM_INVALIDATE_ENG17_SEM, 1),
            (self.mmhub, mmhub.MMVM_INVALIDATE_ENG17_ACK, 0xFFFF),
            (self.gc, gc_vm.GCVM_INVALIDATE_ENG17_ACK, 0xFFFF),
            (self.gc, gc_rlc.RLC_RLCS_BOOTLOAD_STATUS, 1 << 31),
            (self.gc, gc.GB_ADDR_CONFIG, 0x545),
            (self.gc, gc_hqd.CP_HQD_ACTIVE, 1),
        ):
            self.window.answers[block.address(word)] = value

    def block(self, name, version, bases):
        return Block(self.registers, name, version, bases[name])

    def value(self, block, word, plus_dwords=0):
        return self.window.values[block.address(word, plus_dwords)]

    def sent(self, block, word):
        """Return all that was written to a register, in order."""
        return [value for offset, value in self.window.written if offset == block.address(word)]

    def answer(self, block, word, value):
        self.window.answers[block.address(word)] = value

    def gfx(self, first_silicon=False):
        """Return the core, booted and started."""
        made = Gfx(
            self.gc,
            self.smuio,
            Design(4, 2, 8),
            MEC,
            front_starts=(PFP, ME),
            first_silicon=lambda: first_silicon,
        )
        made.boot()
        made.place_programs()
        made.start()
        return made


@pytest.fixture
def rig():
    return Rig()


def test_both_hubs_start(rig):
    gmc = Gmc([rig.mmhub], [rig.gc], lambda: None, vram_bytes=1 << 34, scratch_pa=0x1000, default_bus_addr=0x2000)
    gmc.set_context(8, 0x10_0000)
    gmc.start_mmhub()
    gmc.start_gfxhub()
    assert rig.value(rig.gc, gc_vm.GCMC_VM_FB_LOCATION_BASE) == 0x8000  # copied from the other hub
    for block, base, cntl3 in (
        (rig.mmhub, mmhub.MMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32, mmhub.MMVM_L2_CNTL3),
        (rig.gc, gc_vm.GCVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32, gc_vm.GCVM_L2_CNTL3),
    ):
        assert rig.value(block, base, 8 * 2) == 0x10_0001
        # mmhub_v4_1_0.c: 0x80100007, gfxhub_v12_0.c: 0x80120007; both with bank_select 9, l2_cache_bigk_fragment_size 6
        # (bits 19:15)
        assert rig.value(block, cntl3) == 0x8013_0009
    rig.window.answers[rig.gc.address(gc_vm.GCVM_L2_PROTECTION_FAULT_STATUS_LO32)] = 8 << 20 | 20 << 9
    assert gmc.read_fault("gfxhub").client == "PA"  # gfxhub_v12_0.c


def test_the_graphics_core_starts_and_maps_a_queue_on_one_of_two_pipes(rig):
    gfx = rig.gfx()
    # gfx_v12_0_cp_compute_enable: all four pipes of the control register are active, none is halted
    assert rig.value(rig.gc, gc_cp.CP_MEC_RS64_CNTL) == 0xF << 26
    assert gfx.shape.cu_total == 64
    spec = QueueSpec(0x1_0000_0000, 256, 0x2_0000_0000, 0x2_0000_0008, 0x3_0000_0000, 4096, 0x80_0011_0000, 8, 6)
    page = memoryview(bytearray(4096))
    del rig.window.answers[rig.gc.address(gc_hqd.CP_HQD_ACTIVE)]
    flushed = []
    active = rig.gc.address(gc_hqd.CP_HQD_ACTIVE)
    gfx.queue(Place(1, 0), spec, page, lambda: flushed.append((bytes(page[:4]), active in rig.window.values))).map()
    # The descriptor was in memory before the queue became active.
    assert flushed == [(b"\0\x08\x31\xc0", False)]
    assert rig.value(rig.gc, gc_hqd.CP_HQD_PQ_BASE) == 0x100_0000
    assert rig.value(rig.gc, gc_hqd.CP_HQD_VMID) == 8
    with pytest.raises(ValueError, match="pipes 0 to 1"):
        gfx.queue(Place(2, 0), spec, page, flushed.clear)


def test_every_engine_is_told_where_its_program_begins(rig):
    """gfx_v12_0_config_gfx_rs64: for PFP, then ME, both pipes' starts and a pulse of their resets; then MEC."""
    rig.gfx()
    assert rig.sent(rig.gc, gc_ucode.CP_PFP_PRGRM_CNTR_START) == [PFP >> 2] * 2
    assert rig.sent(rig.gc, gc_ucode.CP_PFP_PRGRM_CNTR_START_HI) == [0] * 2
    assert rig.sent(rig.gc, gc_ucode.CP_ME_PRGRM_CNTR_START) == [ME >> 2] * 2
    assert rig.sent(rig.gc, gc_cp.CP_ME_CNTL) == [0x3 << 18, 0, 0x3 << 20, 0]
    assert rig.sent(rig.gc, gc_ucode.CP_MEC_RS64_PRGRM_CNTR_START) == [0] * 4
    assert rig.sent(rig.gc, gc_ucode.CP_MEC_RS64_PRGRM_CNTR_START_HI) == [MEC >> 34] * 4
    assert rig.sent(rig.gc, gc_cp.CP_MEC_RS64_CNTL)[:2] == [0xF << 16, 0]
    # soc24_grbm_select: the two front ends are of micro engine 0, pipes 0 and 1; MEC's pipes of micro engine 1
    places = [(value >> 2 & 3, value & 3) for value in rig.sent(rig.gc, gc.GRBM_GFX_CNTL) if value]
    start = places.index((0, 1))
    assert places[start : start + 6] == [(0, 1), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    # gfx_v12_0_hw_init: before the memory hub is started, and so before all that `start` sets
    written = [offset for offset, _ in rig.window.written]
    last = written.index(rig.gc.address(gc_cp.CP_MEC_RS64_CNTL))
    assert last < written.index(rig.gc.address(gc_pipe.DB_MEM_CONFIG))


@pytest.mark.parametrize(
    ("first", "memory", "colour", "second_level"),
    [(False, 0x8000, None, None), (True, 0x800F, 0x0300_0000, 0x8000_0020)],
)
def test_golden_settings_are_the_kernels(rig, first, memory, colour, second_level):
    """golden_settings_gc_12_0 and golden_settings_gc_12_0_rev0 of gfx_v12_0.c."""
    rig.answer(rig.gc, gc_pipe.GL2C_CTRL5, 0x8000_0050)
    rig.gfx(first)
    for word, expected in (
        (gc_pipe.DB_MEM_CONFIG, memory),
        (gc_pipe.CB_HW_CONTROL_1, colour),
        (gc_pipe.GL2C_CTRL5, second_level),
    ):
        assert rig.window.values.get(rig.gc.address(word)) == expected


def test_vmids_get_no_global_data_share(rig):
    rig.gfx()
    # gfx_v12_0_constants_init and gfx_v12_0_init_compute_vmid: bits 63:48 of LDS and scratch, nothing of GDS
    assert set(rig.sent(rig.gc, gc.SH_MEM_BASES)) == {0x0001_0002}
    with pytest.raises(NotSupported, match="GDS_VMID0_BASE"):
        rig.gc.address(gc.GDS_VMID0_BASE)


def test_clocks_are_gated_as_soc24_asks(rig):
    gfx = rig.gfx()
    engines = tuple(SdmaEngine(rig.gc, SDMA, index) for index in range(2))
    rig.answer(rig.gc, gc_rlc.RLC_SAFE_MODE, 0)
    start = 0xFFFF_FFFF
    rig.window.values[rig.gc.address(gc_rlc.RLC_CGTT_MGCG_OVERRIDE)] = start
    for word in (mmhub.DAGB0_CNTL_MISC2, mmhub.DAGB1_CNTL_MISC2):
        rig.window.values[rig.mmhub.address(word)] = 0x1A0
    set_gating([gfx], rig.mmhub, engines, True)
    # soc24.c, cg_flags of 12.0.0 and 12.0.1; gfx_v12_0_update_coarse_grain_clock_gating and its neighbours: every
    # override is off but GFXIP_MGLS's (bit 6)
    assert rig.value(rig.gc, gc_rlc.RLC_CGTT_MGCG_OVERRIDE) == 0xFFFF_F840
    for word in (gc_rlc.RLC_CGCG_CGLS_CTRL, gc_rlc.RLC_CGCG_CGLS_CTRL_3D):
        assert rig.value(rig.gc, word) == 0x36 << 8 | 0xF << 2 | 3
    for word in (mmhub.DAGB0_CNTL_MISC2, mmhub.DAGB1_CNTL_MISC2):  # mmhub_v4_1_0.c, DISABLE_*_TAP_CHAIN_FGCG
        assert rig.value(rig.mmhub, word) == 0x20
    set_gating([gfx], rig.mmhub, engines, False)
    assert rig.value(rig.gc, gc_rlc.RLC_CGTT_MGCG_OVERRIDE) == start
    assert rig.value(rig.gc, gc_rlc.RLC_CGCG_CGLS_CTRL_3D) & 3 == 0
    assert rig.value(rig.mmhub, mmhub.DAGB0_CNTL_MISC2) == 0x1A0


def test_waves_show_the_state_and_the_exceptions_of_gfx12(rig):
    """The indices of gc_12_0_0_offset.h, ixSQ_WAVE_*; VM_ID, PIPE_ID and QUEUE_ID of gc_12_0_0_sh_mask.h."""
    gfx = rig.gfx()
    active, status, state, privileged, user = 0x00A, 0x102, 0x104, 0x111, 0x112
    pc_lo, pc_hi, exec_lo, hw_id2 = 0x140, 0x141, 0x27E, 0x118
    there = {status: 0x1_0000, state: 1, privileged: 0x40, user: 1, pc_lo: 0x8000, pc_hi: 2, exec_lo: 0xFF}
    there[hw_id2] = 8 << 24 | 1 << 4 | 3

    def data():
        index, selected = (rig.value(rig.gc, word) for word in (gc.GRBM_GFX_INDEX, gc_sq.SQ_IND_INDEX))
        if index & 0xFF_FFFF != (2 << 16 | 1 << 8 | 3 << 2 | 1):
            return 0
        if selected >> 16 == active:
            return 1 << 5
        return there.get(selected >> 16, 0) if selected & 31 == 5 else 0

    rig.answer(rig.gc, gc_sq.SQ_IND_DATA, data)
    (seen,) = waves(rig.gc, gfx.shape, 10)
    assert (seen.engine, seen.array, seen.wgp, seen.simd, seen.slot) == (2, 1, 3, 1, 5)
    assert (seen.vmid, seen.pipe, seen.queue, seen.pc, seen.exec_mask) == (8, 1, 3, 0x2_0000_8000, 0xFF)
    assert [int(word) for word in seen.more] == [1, 0x40, 1]
    assert "SQ_WAVE_EXCP_FLAG_PRIV(" in str(seen)


def test_a_soft_reset_starts_the_core_again(rig):
    gfx = rig.gfx()
    rig.answer(rig.gc, gc_rlc.RLC_SAFE_MODE, 0)
    rig.answer(rig.gc, gc_hqd.CP_HQD_ACTIVE, 0)
    rig.answer(rig.gc, gc_cp.CP_VMID_RESET, 0)
    del rig.window.written[:]
    reset_command_processors([gfx])
    assert not rig.window.written
    soft_reset(gfx)
    # CP, GFX, CPF, CPC and CPG of gc_12_0_0_sh_mask.h
    lines = 1 << 0 | 1 << 16 | 1 << 17 | 1 << 18 | 1 << 19
    assert rig.sent(rig.gc, gc.GRBM_SOFT_RESET) == [lines, 0]
    assert rig.value(rig.gc, gc_cp.CP_MEC_RS64_CNTL) == 0xF << 26
    assert {"GRBM_STATUS", "CP_MEC_RS64_CNTL"} <= set(gfx.status())


def test_an_engine_starts_and_a_queue_is_mapped(rig):
    engine = SdmaEngine(rig.gc, SDMA, 1)
    engine.start()
    at = engine.step + 2 * engine.queue_step
    rig.window.answers[engine.block.address(sdma.SDMA0_QUEUE0_CONTEXT_STATUS, at)] = 1 << 2  # idle
    SdmaQueue(engine, 2, SdmaQueueSpec(0x1_0000_0000, 256, 0x2_0000_0000, 0x2_0000_0008, 8, 0x218)).map()
    control = sdma.SDMA0_QUEUE0_RB_CNTL.at(SDMA)(rig.value(engine.block, sdma.SDMA0_QUEUE0_RB_CNTL, at))
    assert (control.rb_enable, control.rb_size, control.rb_vmid, control.mcu_wptr_poll_enable) == (1, 8, 8, 1)
    assert "SDMA1_STATUS_REG" in engine.status


def test_the_interrupt_ring_starts(rig):
    ring = Ih(rig.osssys, memoryview(bytearray(4096)), 0x80_0010_0000, memoryview(bytearray(4)), 0x80_0010_2000)
    ring.start(message_signalled=True)
    assert ring.drain() == []


def test_an_engine_is_reset_and_halted(rig):
    engine = SdmaEngine(rig.gc, SDMA, 1)
    for queue in range(8):
        rig.window.answers[engine.block.address(sdma.SDMA0_QUEUE0_CONTEXT_STATUS, engine.queue_at(queue))] = 1 << 2
    engine.reset()
    assert rig.sent(rig.gc, gc.GRBM_SOFT_RESET) == [1 << 24, 0]  # SOFT_RESET_SDMA1
    assert not engine.halted
    engine.stop()
    assert engine.halted
    # regSDMA1_MCU_CNTL of gc_12_0_0_offset.h, 0x20 behind engine 0's; HALT is bit 0
    assert rig.value(engine.block, sdma.SDMA0_MCU_CNTL, 0x20) == 1


def test_doorbells_go_where_nbif_6_3_1_sends_them(rig):
    nbio = Nbio(rig.nbio, (6, 3, 1))
    # the strap lies beyond the window and is reached through an index and a data register
    rig.window.values[0x54] = 0x0FFF_FFFF
    nbio.start(2)
    # nbif_v6_3_1_gc_doorbell_init
    assert rig.value(rig.nbio, doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_0_CTRL) == 0x3000_0007
    assert rig.value(rig.nbio, doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_3_CTRL) == 0x3000_000D
    # nbif_v6_3_1_ih_doorbell_range and _sdma_doorbell_range: AMDGPU_NAVI10_DOORBELL_IH and _sDMA_ENGINE0, twice in
    # dwords; two dwords and 20 for each engine; fields of nbif_6_3_1_sh_mask.h
    assert rig.value(rig.nbio, doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_1_CTRL) == 1 | 2 * 0x178 << 7 | 2 << 17
    sdma_route = 1 | 0xE << 1 | 2 * 0x100 << 7 | 40 << 17 | 3 << 28
    assert rig.value(rig.nbio, doorbell.GDC_S2A0_S2A_DOORBELL_ENTRY_2_CTRL) == sdma_route
    assert rig.value(rig.nbio, doorbell.RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN) & 1
    # nbif_v6_3_1_init_registers: STRAP_NO_SOFT_RESET_DEV0_F2 is bit 7
    strap = rig.window.written.index((0x54, 0x0FFF_FF7F))
    assert rig.window.written[strap - 1] == (0x50, rig.nbio.address(RCC_DEV0_EPF2_STRAP2))


def test_the_host_data_path_is_flushed_through_its_hole(rig):
    hdp = Hdp(rig.nbio)
    hdp.start()
    # MMIO_REG_HOLE_OFFSET and KFD_MMIO_REMAP_HDP_*_FLUSH_CNTL
    assert rig.value(rig.nbio, nbio_words.BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL) == 0x7F000
    assert rig.value(rig.nbio, nbio_words.BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL) == 0x7F004
    hdp.flush()
    assert rig.window.written[-1] == (0x7F000, 0)


def test_heat_is_watched(rig):
    Thermal(rig.thm, rig.mp1).start(110)
    # smu_v14_0_set_irq_state, bits of thm_14_0_2_sh_mask.h
    assert rig.value(rig.thm, thm.THM_THERMAL_INT_CTRL) == 5 << 29 | 1 << 28 | 110
    assert rig.value(rig.thm, thm.THM_THERMAL_INT_ENA) == 0x38
    assert rig.value(rig.mp1, mp.MP1_SMN_IH_SW_INT) & 0xFF == 0xFE


class Controller:
    """Firmware of the power controller that answers every message with OK, or as `refused` says."""

    def __init__(self, rig):
        self.rig, self.refused, self.sent = rig, {}, []
        rig.answer(rig.mp1, mp.MP1_SMN_C2PMSG_90, self.respond)

    def respond(self):
        message = self.rig.value(self.rig.mp1, mp.MP1_SMN_C2PMSG_66)
        self.sent.append((message, self.rig.value(self.rig.mp1, mp.MP1_SMN_C2PMSG_82)))
        return self.refused.get(message, 1)


def test_deep_sleep_ends_while_the_workload_is_compute(rig):
    """smu_v14_0_2_set_power_profile_mode; numbers of smu_v14_0_2_ppsmc.h, bits of smu14_driver_if_v14_0.h."""
    firmware = Controller(rig)
    smu = Smu(rig.mp1, (14, 0, 2), None, None, 0x1000, 0)
    # FEATURE_DS_GFXCLK_BIT 10, SOCCLK 11, FCLK 12, UCLK 15, VCN 44
    low, high = 1 << 10 | 1 << 11 | 1 << 12 | 1 << 15, 1 << 12
    smu.workload("compute")
    assert firmware.sent[:2] == [(0xA, low), (0xB, high)]
    smu.workload("default")
    assert firmware.sent[3:5] == [(0x8, low), (0x9, high)]
    # PPSMC_MSG_SetWorkloadMask with WORKLOAD_PPLIB_COMPUTE_BIT 5, WORKLOAD_PPLIB_DEFAULT_BIT 0
    assert [firmware.sent[index] for index in (2, 5)] == [(0x24, 1 << 5), (0x24, 1 << 0)]
    firmware.refused[0xA] = 0xFF
    del firmware.sent[:]
    smu.workload("compute")
    assert [message for message, _ in firmware.sent] == [0xA, 0x24]


def test_a_mode_1_reset_goes_through_the_second_mailbox(rig):
    smu = Smu(rig.mp1, (14, 0, 2), None, None, 0x1000, 0)
    smu.firmware_version = 0x0066_3000
    rig.registers.write(smu.row.flags, 1)
    # smu_v14_0_2_mode1_reset: DEBUGSMC_MSG_Mode1Reset; MODE1_RESET_WAIT_TIME_IN_MS 500 twice
    assert smu.tell_mode1_reset() == 1_000_000
    assert rig.value(rig.mp1, mp.MP1_SMN_C2PMSG_75) == 2
    assert rig.value(rig.mp1, mp.MP1_SMN_C2PMSG_54) == 0
