"""Table rows of versions that no virtual card has yet: gfx12, MMHUB 4.1 and SDMA 7. They start on registers that only
store, and access only registers that those versions have.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ringup.autogen import regdb
from ringup.autogen.amd import gc, gc_cp, gc_hqd, gc_rlc, gc_vm, mmhub, sdma
from ringup.drivers.amd.bus.ih import Ih
from ringup.drivers.amd.bus.registers import Block, Registers
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.hqd import Place
from ringup.drivers.amd.gfx.mqd import QueueSpec
from ringup.drivers.amd.gfx.sdma import SdmaEngine, SdmaQueue, SdmaQueueSpec
from ringup.drivers.amd.gfx.shape import Design
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.transport.batch import direct
from ringup.silicon.common.clock import VirtualClock

GC, MMHUB, SDMA, OSSSYS = (12, 0, 0), (4, 1, 0), (7, 0, 0), (7, 0, 0)


class Window:
    """A register BAR that only stores values; `answers` overrides what chosen registers read as."""

    size_bytes = 1 << 28

    def __init__(self):
        self.values, self.answers = {}, {}

    def read32(self, offset):
        return self.answers.get(offset, self.values.get(offset, 0))

    def write32(self, offset, value):
        self.values[offset] = value

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


@pytest.fixture
def rig():
    return Rig()


def test_both_hubs_start(rig):
    gmc = Gmc(rig.mmhub, rig.gc, lambda: None, vram_bytes=1 << 34, scratch_pa=0x1000, default_bus_addr=0x2000)
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


def test_the_graphics_core_starts_two_pipes_and_maps_a_queue(rig):
    gfx = Gfx(rig.gc, rig.smuio, Design(4, 2, 8), 0x8000_0000_0000)
    gfx.boot()
    gfx.start()
    control = gc_cp.CP_MEC_RS64_CNTL.at(GC)(rig.value(rig.gc, gc_cp.CP_MEC_RS64_CNTL))
    assert (control.mec_pipe0_active, control.mec_pipe1_active, control.mec_pipe2_active) == (1, 1, 0)
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
