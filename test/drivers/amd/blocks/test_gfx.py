"""The graphics core: boot, shape, compute queues in a VMID that the host maps, and the steps that remove a hung
queue.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace

import pytest

from ringup.autogen.amd.gc import (
    GC_USER_SA_UNIT_DISABLE,
    GC_USER_SHADER_ARRAY_CONFIG,
)
from ringup.autogen.amd.gc_hqd import CP_HQD_ACTIVE
from ringup.drivers.amd.board import mark
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, NAVI10, Doorbell
from ringup.drivers.amd.bus.ih import Ih
from ringup.drivers.amd.gfx.gating import set_gating
from ringup.drivers.amd.gfx.hqd import Place, selected
from ringup.drivers.amd.gfx.mqd import QueueSpec, compute_mqd
from ringup.drivers.amd.gfx.reset import soft_reset
from ringup.drivers.amd.gfx.sdma import SdmaEngine
from ringup.drivers.amd.gfx.shape import instance, read_shape
from ringup.drivers.amd.gfx.waves import waves
from ringup.errors import DeviceHung, DeviceTimeout

RING, RPTR, WPTR, EOP, FENCE, CODE = 0x0000, 0x4000, 0x4008, 0x5000, 0x7000, 0x8000  # in VMID 8's host memory
RING_DWORDS = 256
FIRST = Place(0, 0)
ENDLESS = 0xBFA0_FFFF  # llvm-mc, gfx1100: s_branch 0xffff, to itself


class Queue:
    """A mapped compute queue, and the memory that its user writes and reads."""

    def __init__(self, card, place=FIRST, slot=0):
        self.card, self.at, self.wptr = card, 0x1_0000 * slot, 0
        number = place.pipe * 4 + place.queue
        pa = card.MQD_PA + 4096 * number
        self.spec = QueueSpec(
            ring_va=card.USER + self.at + RING,
            ring_dwords=RING_DWORDS,
            rptr_va=card.USER + self.at + RPTR,
            wptr_va=card.USER + self.at + WPTR,
            eop_va=card.USER + self.at + EOP,
            eop_bytes=4096,
            mqd_va=card.gmc.fb_base + pa,
            vmid=card.VMID,
            doorbell_index=NAVI10.compute_index(number),
        )
        self.hqd = card.gfx.queue(place, self.spec, card.vram(pa, 4096), card.hdp.flush)
        self.bell = Doorbell(card.radeon.bars[DOORBELL_BAR], self.spec.doorbell_index)
        self.hqd.map()

    def submit(self, *words):
        for word in words:
            self.card.put(self.at + RING + self.wptr % RING_DWORDS * 4, word)
            self.wptr += 1
        self.card.put(self.at + WPTR, self.wptr, 0)
        self.bell.ring(self.wptr)
        self.card.radeon.clock.sleep_us(200)

    def fence(self, value):
        """RELEASE_MEM (soc15d.h): a cache flush event, 32 bits of data, and an interrupt after the write."""
        va = self.card.USER + self.at + FENCE
        self.submit(0xC006_4900, 0x0000_0514, 0x2200_0000, va & 0xFFFF_FFFF, va >> 32, value, 0, 0)

    @property
    def seen(self):
        return self.card.get(self.at + FENCE)

    def endless(self):
        """Dispatch one wave of a program that never ends (SET_SH_REG, DISPATCH_DIRECT: soc15d.h; registers:
        gc_11_0_0_offset.h).
        """
        # s_code_end follows the program.
        self.card.put(self.at + CODE, ENDLESS, *[0xBF9F_0000] * 64)
        program = self.card.USER + self.at + CODE >> 8
        self.submit(
            *(0xC002_7600, 0x20C, program & 0xFFFF_FFFF, program >> 32),  # COMPUTE_PGM_LO
            *(0xC002_7600, 0x212, 0x600C_0000, 0x80),  # COMPUTE_PGM_RSRC1: float mode, WGP, ordered; RSRC2: group id x
            *(0xC001_7600, 0x228, 0),  # COMPUTE_PGM_RSRC3
            *(0xC001_7600, 0x215, 0),  # COMPUTE_RESOURCE_LIMITS
            *(0xC003_7600, 0x207, 32, 1, 1),  # COMPUTE_NUM_THREAD_X
            *(0xC003_1500, 1, 1, 1, 0x8005),  # wave32, from 0
        )


@pytest.fixture
def queue(up):
    """A compute queue, on every chip."""
    return Queue(up)


@pytest.fixture
def navi31(hands):
    """A navi31 with its hubs and graphics core started."""
    return hands().start()


def test_a_queue_runs_packets_stores_a_fence_and_interrupts(up):
    base, pa = up.gmc.fb_base, up.RING_PA
    interrupts = Ih(up.osssys, up.vram(pa, 4096), base + pa, up.vram(pa + 8192, 4), base + pa + 8192)
    interrupts.start(message_signalled=False)
    queue = Queue(up, Place(2, 1))
    va = up.USER + 0x6000
    # WRITE_DATA to memory, confirmed
    queue.submit(0xC003_3700, 0x0010_0500, va & 0xFFFF_FFFF, va >> 32, 0x1234_5678)
    queue.fence(0xCAFE)
    assert up.get(0x6000) == 0x1234_5678
    assert queue.seen == 0xCAFE
    (entry,) = interrupts.drain()
    assert (entry.kind, entry.queue, entry.vmid) == ("end of pipe", (1, 2, 1), 8)
    where = queue.hqd.pointers()
    assert (where.active, where.rptr, where.wptr) == (True, 13, 13)
    assert up.get(RPTR) == 13


def test_queues_of_all_pipes_run_side_by_side(up):
    queues = [Queue(up, Place(pipe, queue), slot=pipe * 4 + queue) for pipe in range(4) for queue in (0, 3)]
    for number, queue in enumerate(queues):
        queue.fence(100 + number)
    assert [queue.seen for queue in queues] == [100 + number for number in range(8)]
    assert up.gfx.active_queues() == [Place(pipe, queue) for pipe in range(4) for queue in (0, 3)]


def test_a_queue_that_was_taken_off_can_be_mapped_again(queue):
    queue.fence(1)
    assert queue.hqd.unmap()
    assert not queue.hqd.pointers().active
    again = Queue(queue.card)
    again.fence(2)
    assert again.seen == 2


def test_running_work_of_a_queue_ends_before_it_is_unmapped(queue):
    for value in range(1, 9):
        queue.fence(value)
    assert queue.hqd.unmap()
    assert queue.seen == 8


def test_a_hung_queue_is_killed_and_the_others_go_on(navi31):
    hung, other = Queue(navi31), Queue(navi31, Place(1, 0), slot=1)
    hung.endless()
    hung.fence(1)
    assert hung.seen == 0
    assert hung.hqd.unmap(timeout_us=1000) is False
    assert navi31.gfx.active_queues() == [Place(1, 0)]
    other.fence(7)
    assert other.seen == 7
    fresh = Queue(navi31)
    fresh.fence(3)
    assert fresh.seen == 3


def test_mapping_removes_what_an_earlier_owner_left(navi31):
    Queue(navi31).endless()
    fresh = Queue(navi31)
    assert not any(queue.grids for queue in navi31.radeon.gc.cp.queues.values())
    fresh.fence(5)
    assert fresh.seen == 5
    assert fresh.hqd.pointers().rptr == 8


def test_a_soft_reset_frees_the_core_of_hung_queues(navi31):
    for pipe in range(3):
        Queue(navi31, Place(pipe, 0), slot=pipe).endless()
    assert not navi31.gfx.idle
    soft_reset(navi31.gfx)
    assert navi31.gfx.active_queues() == []
    navi31.gfx.wait_idle()
    fresh = Queue(navi31, Place(1, 0), slot=1)
    fresh.fence(9)
    assert fresh.seen == 9


def test_stop_takes_everything_off_and_start_brings_it_back(navi31):
    Queue(navi31).endless()
    navi31.gfx.stop()
    assert navi31.gfx.active_queues() == []
    navi31.gfx.stop()
    navi31.gfx.boot()
    navi31.gfx.place_programs()
    navi31.gfx.start()
    fresh = Queue(navi31)
    fresh.fence(4)
    assert fresh.seen == 4


def test_a_page_fault_of_a_queue_is_reported_with_its_address(navi31):
    base, pa = navi31.gmc.fb_base, navi31.RING_PA
    interrupts = Ih(navi31.osssys, navi31.vram(pa, 4096), base + pa, navi31.vram(pa + 8192, 4), base + pa + 8192)
    interrupts.start(message_signalled=False)
    va = 0x6_0000_5000
    Queue(navi31).submit(0xC003_3700, 0x0010_0500, va & 0xFFFF_FFFF, va >> 32, 1)
    faults = [entry for entry in interrupts.drain() if entry.kind == "page fault"]
    assert (faults[0].fault_va, faults[0].fault_write, faults[0].vmid) == (va, True, 8)
    kept = navi31.gmc.read_fault("gfxhub")
    assert (kept.gpu_va, kept.vmid, kept.write, kept.client) == (va, 8, True, "CPC")


def test_firmware_that_never_boots_is_named(hands):
    card = hands()
    card.gmc.start_mmhub()
    with pytest.raises(DeviceTimeout, match=r"graphics core's firmware: RLC_RLCS_BOOTLOAD_STATUS read .* for 500 ms"):
        card.gfx.boot()


def test_parts_that_are_off_are_not_counted(navi31):
    gc, gfx = navi31.gc, navi31.gfx
    # Linux on a navi31: "SE 6, SH per SE 2, CU per SH 8, active_cu_number 96"
    assert gfx.shape.cu_total == 96
    with instance(gc, 4, 1):
        gc.write(gc.make(GC_USER_SHADER_ARRAY_CONFIG, inactive_wgps=0b0101))
    gc.write(gc.make(GC_USER_SA_UNIT_DISABLE, sa_disable=0b10))
    shape = read_shape(gc, navi31.design)
    # work-group processors 0 and 2, two compute units each
    assert shape.cu_masks[4] == (0xFF, 0xCC)
    assert shape.cu_masks[0] == (0xFF, 0)
    assert shape.cu_total == 96 - 4 - 8
    assert (0, 1) not in shape.arrays


def test_the_clock_counts_the_card_s_time(navi31):
    before = navi31.gfx.gpu_clock()
    navi31.radeon.clock.sleep_us(1000)
    assert 100_000 <= navi31.gfx.gpu_clock() - before <= 101_000  # 100 MHz


def test_clocks_of_idle_parts_stop_and_work_goes_on(up):
    engines = tuple(SdmaEngine(up.gc, up.radeon.chip.external_ips[index][2], index) for index in range(2))
    for on in (True, False, True):
        set_gating([up.gfx], up.mmhub, engines, on)
        control = up.radeon.gc.grbm.cells["RLC_CGCG_CGLS_CTRL"] & 0xFFFF
        # gfx_v11_0.c: "enable cgcg FSM(0x0000363F)"
        assert control == (0x363F if on else 0x363C)
        queue = Queue(up)
        queue.fence(5 + on)
        assert queue.seen == 5 + on


def test_a_post_mortem_names_the_engine_that_is_busy(navi31):
    Queue(navi31).endless()
    status = navi31.gfx.status()
    assert status["GRBM_STATUS"].gui_active
    assert status["GRBM_STATUS"].spi_busy


def test_the_descriptor_in_memory_is_what_the_queue_was_loaded_with(queue):
    image = compute_mqd(queue.card.gc.version, queue.spec)
    number = queue.card.MQD_PA
    assert bytes(queue.card.vram(number, len(image))) == image
    with selected(queue.card.gc, Place(0, 0)):
        assert queue.card.gc.read(CP_HQD_ACTIVE).active


@pytest.mark.parametrize("version", [(11, 0, 0), (12, 0, 1)])
def test_the_descriptor_of_an_hsa_queue_has_the_words_of_the_kernel_driver(navi31, version):
    # what amdgpu 6.12 stores for an AQL queue with a ring of 64 KiB: kfd_mqd_manager_v11.c, init_mqd and update_mqd
    spec = replace(Queue(navi31).spec, ring_dwords=16384, aql=True)
    words = struct.unpack("<1024I", compute_mqd(version, spec).ljust(4096, b"\0"))
    assert words[145] == 0x1808_450D  # CP_HQD_PQ_CONTROL
    assert words[181] == 1  # CP_HQD_AQL_CONTROL
    assert words[143] == spec.doorbell_index << 2 | 2  # CP_HQD_PQ_DOORBELL_CONTROL with doorbell_bif_drop
    assert not struct.unpack("<1024I", compute_mqd(version, replace(spec, aql=False)).ljust(4096, b"\0"))[181]


def test_impossible_queues_are_refused(navi31):
    spec = Queue(navi31).spec
    for changed, message in (
        ({"ring_dwords": 100}, "power of two"),
        ({"ring_va": 0x1010}, "ring_va is a 48 bit address on 256 bytes"),
        ({"eop_bytes": 16384}, "2048 to 8192"),
        ({"vmid": 16}, "0 to 15"),
    ):
        with pytest.raises(ValueError, match=message):
            QueueSpec(**{name: getattr(spec, name) for name in spec.__slots__} | changed)
    with pytest.raises(ValueError, match="pipes 0 to 3"):
        Place(4, 0)
    with pytest.raises(ValueError, match="no compute queue descriptor"):
        compute_mqd((10, 3, 0), spec)


def test_an_incomplete_mark_is_ignored(navi31, monkeypatch):
    """Interrupt the driver before each of its writes, over an earlier mark. The mark then reads either complete or
    absent.
    """
    old, new = mark.Mark(1, 2, 3), mark.Mark(4, 5, 6)
    write = type(navi31.gc).write
    for allowed in range(6):
        mark.write(navi31.gc, old)
        done = []

        def cut(self, word, *rest, done=done, allowed=allowed):
            if len(done) == allowed:
                raise KeyboardInterrupt
            done.append(word)
            write(self, word, *rest)

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(type(navi31.gc), "write", cut)
            mark.write(navi31.gc, new)
        assert mark.read(navi31.gc) in (None, old if not done else new)
    assert mark.read(navi31.gc) == new


def test_a_queue_that_does_not_become_active_is_a_hang(navi31):
    navi31.radeon.gc.grbm.cells.on_read("CP_HQD_ACTIVE", lambda: 0)
    with pytest.raises(
        DeviceHung, match=r"compute queue 1\.0\.0 did not become active; the graphics core needs a reset"
    ):
        Queue(navi31)


def test_a_queue_that_does_not_let_go_is_a_hang(navi31, monkeypatch):
    hung = Queue(navi31)
    hung.endless()
    # The card's engines stand still.
    monkeypatch.setattr(navi31.radeon.clock, "after", lambda *_: None)
    message = (
        r"compute queue 1\.0\.0 cannot be taken off.*asking the RLC for safe mode: RLC_SAFE_MODE read .* for 100 ms"
    )
    with pytest.raises(DeviceHung, match=message):
        hung.hqd.reset()


def test_waves_are_found_where_they_are(navi31):
    """The test stands in for the sequencers: two waves, with the indices of gc_11_0_0_offset.h (ixSQ_WAVE_*)."""
    cells = navi31.radeon.gc.grbm.cells
    active, status, pc_lo, pc_hi, exec_lo, hw_id2, trapsts = 0x00A, 0x102, 0x108, 0x109, 0x27E, 0x118, 0x103
    there = {  # engine, array, instance (work-group processor << 2 | SIMD), slot
        (2, 1, 3 << 2 | 1, 5): {
            status: 0x1_0000,
            pc_lo: 0x8000,
            pc_hi: 2,
            exec_lo: 0xFF,
            hw_id2: 8 << 24 | 2 << 4 | 1,
            trapsts: 0x800,
        },
        (5, 0, 0, 0): {status: 0x1_0000, pc_lo: 0x9000, hw_id2: 9 << 24},
    }

    def data():
        index, selected = cells["GRBM_GFX_INDEX"], cells["SQ_IND_INDEX"]
        unit = (index >> 16 & 0xFF, index >> 8 & 0xFF, index & 0xFF)
        if selected >> 16 == active:
            return sum(1 << place[3] for place in there if place[:3] == unit)
        return there.get((*unit, selected & 31), {}).get(selected >> 16, 0)

    cells.on_read("SQ_IND_DATA", data)
    first, second = waves(navi31.gc, navi31.gfx.shape, 10)
    assert (first.engine, first.array, first.wgp, first.simd, first.slot) == (2, 1, 3, 1, 5)
    assert (first.vmid, first.pipe, first.queue) == (8, 2, 1)
    assert (first.pc, first.exec_mask, first.more[0].illegal_inst) == (0x2_0000_8000, 0xFF, 1)
    assert "wave 2.1.3.1.5 vmid 8 queue 1.2.1 at 0x200008000, exec 0xff" in str(first)
    assert (second.engine, second.vmid, second.pc) == (5, 9, 0x9000)
    assert len(waves(navi31.gc, navi31.gfx.shape, 1)) == 1
