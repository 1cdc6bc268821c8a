"""Table rows of an MI300X: the graphics core as several dies, NBIF 7.9, MMHUB 1.8, SDMA 4.4.2, PSP and SMU 13.0.6, on
registers that only store. Numbers are computed from amdgpu's files, which each test names.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ringup.autogen.amd import discovery as facts
from ringup.autogen.amd import gc, gc_cp, gc_hqd, gc_rlc, mmhub_v1, psp, smu_v13_0_6, ucode
from ringup.autogen.amd import nbio as nbio_words
from ringup.autogen.amd import nbio_doorbell as doorbell
from ringup.autogen.amd.gc_vm_v9 import VM_INVALIDATE_ENG17_ACK, VM_INVALIDATE_ENG17_REQ, VM_INVALIDATE_ENG17_SEM
from ringup.autogen.amd.mqd import v9_mqd
from ringup.autogen.structs import memory
from ringup.drivers.amd.board import known
from ringup.drivers.amd.board.wiring import make_engines, make_nbio
from ringup.drivers.amd.bus import ih_decode
from ringup.drivers.amd.bus.discovery import Ips
from ringup.drivers.amd.bus.discovery import memory as vram_of
from ringup.drivers.amd.bus.doorbells import LAYOUT1
from ringup.drivers.amd.bus.registers import NBIO_EVERYWHERE, Registers
from ringup.drivers.amd.gfx.core import Gfx, start_all
from ringup.drivers.amd.gfx.gating import set_gating
from ringup.drivers.amd.gfx.hqd import Place, SpreadHqd
from ringup.drivers.amd.gfx.mqd import QueueSpec, compute_mqd
from ringup.drivers.amd.gfx.partition import join, share_evenly
from ringup.drivers.amd.gfx.reset import soft_reset
from ringup.drivers.amd.gfx.sdma import SdmaQueue, SdmaQueueSpec
from ringup.drivers.amd.gfx.shape import Design
from ringup.drivers.amd.gfx.waves import waves
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.gmc.pte import FORMATS
from ringup.drivers.amd.psp.firmware import psp_firmware
from ringup.drivers.amd.psp.processor import ROWS, Psp
from ringup.drivers.amd.psp.ring import PspBuffers, Response
from ringup.drivers.amd.smu.accelerator import AcceleratorSmu, make_smu
from ringup.drivers.transport.batch import direct
from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.amd.discovery import Ip
from ringup.firmware.amd.files import load
from ringup.firmware.amd.needs import CHIPS, needs
from ringup.firmware.store import Store
from ringup.queues.amd.dies import Dies
from ringup.queues.amd.hsa_objects import scratch_fields
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.amd.program import Scratch, tmpring_size
from ringup.queues.dwords import to_bytes
from ringup.silicon.common.clock import VirtualClock

GC, BAR_BYTES = (9, 4, 3), 1 << 26
FAR = 1 << 34  # an address on another I/O die


class Window:
    """A register BAR that only stores values. The registers behind the index are kept by their whole address."""

    size_bytes = BAR_BYTES

    def __init__(self):
        self.values, self.answers, self.far, self.written = {}, {}, None, []

    def _whole(self, offset):
        if self.far is None or offset != self.far.data:
            return offset
        return self.values[self.far.select] | self.values.get(self.far.high, 0) << 32

    def read32(self, offset):
        at = self._whole(offset)
        answer = self.answers.get(at, self.values.get(at, 0))
        return answer() if callable(answer) else answer

    def write32(self, offset, value):
        self.values[self._whole(offset)] = value
        self.written.append((self._whole(offset), value))

    def write64(self, offset, value):
        self.write32(offset, value & 0xFFFF_FFFF)
        self.write32(offset + 4, value >> 32)

    def batch(self):
        return direct(self)


class Rig:
    """Blocks of an MI300X by a discovery table. Bases are made up, but all differ."""

    def __init__(self, gone=(), xccs=8, engines=16):
        self.window = Window()
        config = SimpleNamespace(read=lambda offset, size_bytes=4: 0x1002)
        self.registers = Registers(
            SimpleNamespace(
                bars={5: self.window}, clock=VirtualClock(), lost=False, config=config, name="memory", remote=None
            )
        )
        listed = [self.ip(facts.GC_HWID, i, GC, 0x10_0000 + i * 0x1_0000) for i in range(xccs)]
        listed += [self.ip(facts.SDMA0_HWID, i, (4, 4, 2), 0x40_0000 + i * 0x1_0000) for i in range(engines)]
        listed += [self.ip(facts.MMHUB_HWID, i, (1, 8, 0), 0x60_0000 + i * 0x1_0000) for i in range(4)]
        listed += [
            self.ip(hw_id, 0, version, base)
            for hw_id, version, base in (
                (facts.NBIF_HWID, (7, 9, 0), 0x70_0000),
                (facts.SMUIO_HWID, (13, 0, 3), 0x80_0000),
                (facts.MP0_HWID, (13, 0, 6), 0x90_0000),
                (facts.MP1_HWID, (13, 0, 6), 0xA0_0000),
                (facts.HDP_HWID, (4, 4, 2), 0xB0_0000),
            )
        ]
        table = SimpleNamespace(
            find=lambda hw_id: tuple(ip for ip in listed if ip.hw_id == hw_id),
            harvested=lambda hw_id, instance: (hw_id, instance) in gone,
        )
        self.ips = Ips(self.registers, table)

    def ip(self, hw_id, instance, version, base):
        bases = tuple(base + 0x1_0000 * 0x10 * segment for segment in range(9))
        return Ip(hw_id, instance, version, bases, sub_revision=2)

    def value(self, block, word, plus_dwords=0):
        return self.window.values[block.address(word, plus_dwords)]

    def cores(self, inactive=lambda xcc: 0):
        """Return the dies of the graphics core with 2 engines of 5 compute units. `inactive(xcc)`: the units of each
        array of a die that are off.
        """
        found = []
        for xcc, physical in enumerate(self.ips.xccs):
            block = self.ips.block("gc", physical)
            off = gc.CC_GC_SHADER_ARRAY_CONFIG.at(GC)(inactive_cus=inactive(xcc))
            self.window.answers[block.address(gc.CC_GC_SHADER_ARRAY_CONFIG)] = int(off)
            self.window.answers[block.address(gc_hqd.CP_HQD_ACTIVE)] = 1
            found.append(Gfx(block, self.ips.block("smuio"), Design(2, 1, 5), 0, (8,), doorbells=LAYOUT1, xcc=xcc))
        return found


@pytest.fixture
def rig():
    return Rig()


def test_what_is_fused_off_leaves_logical_numbers_without_holes():
    """aqua_vanjaram.c: instances by mask; an I/O die counts with all four copy engines, or with two neighbours."""
    gone = [(facts.GC_HWID, 2), *((facts.SDMA0_HWID, n) for n in (4, 5, 12, 13, 14, 15))]
    ips = Rig(gone).ips
    assert ips.xccs == (0, 1, 3, 4, 5, 6, 7)
    assert ips.sdma_instances == (0, 1, 2, 3, 6, 7, 8, 9, 10, 11)
    assert ips.aids == (0, 1, 2)
    with pytest.raises(FirmwareError, match=r"lists 8 dies of the graphics core .* takes all of them away"):
        _ = Rig([(facts.GC_HWID, n) for n in range(8)]).ips.xccs


def test_memory_of_192_gib_is_believed(rig):
    device, base = rig.registers.device, NBIO_EVERYWHERE[1]
    device.bars[0] = SimpleNamespace(size_bytes=256 << 30)
    offset, segment = nbio_words.RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE.place(NBIO_EVERYWHERE[0])
    rig.window.answers[4 * (base[segment] + offset)] = 192 << 10
    assert vram_of(device, rig.registers).size_bytes == 192 << 30


def test_doorbells_go_to_every_die(rig):
    """nbio_v7_9.c, nbio_v7_9_sdma_doorbell_range and _ih_doorbell_range, for all 16 engines."""
    nbio = make_nbio(rig.registers, rig.ips)
    rig.window.far = rig.registers.far
    # nbio_v7_9_get_rev_id: the discovery table's, where it tells
    assert nbio.revision == 2
    nbio.start(16)
    block = rig.ips.block("nbio")
    lines = [rig.value(block, doorbell.DOORBELL0_CTRL_ENTRY_0, line) for line in range(17)]
    # dwords 0x340 of 8 for interrupts; dwords 0x200, 0x214, ... of 20 each for engines
    assert lines == [0x340 | 8 << 10, *(0x200 + 0x14 * engine | 20 << 10 for engine in range(16))]
    routes = (
        (doorbell.S2A_DOORBELL_ENTRY_1_CTRL, 0x1028_071D),
        (doorbell.S2A_DOORBELL_ENTRY_2_CTRL, 0x2028_0411),
        (doorbell.S2A_DOORBELL_ENTRY_5_CTRL, 0x8028_0493),
        (doorbell.S2A_DOORBELL_ENTRY_6_CTRL, 0x9028_0515),
    )
    for aid in range(4):
        for word, value in routes:
            at = block.address(word) | (FAR | aid << 32 if aid else 0)
            assert rig.window.values[at] == value, (aid, word)
    assert rig.value(block, doorbell.S2A_DOORBELL_ENTRY_3_CTRL) == 8 << 17 | 1
    # no die of the graphics core is fenced off
    assert rig.value(block, doorbell.XCC_DOORBELL_FENCE) == 0
    # a die stays selected as long as it is the one that is wanted, and the index is left on the first die
    high = block.address(nbio_words.BIF_BX0_PCIE_INDEX2_HI)
    assert [value & 3 for at, value in rig.window.written if at == high] == [1, 2, 3, 0, 1, 2, 3, 0]

    def interrupted():
        with rig.registers.far_run():
            rig.registers.read(FAR | 3 << 32)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert rig.window.values[high] == 0


def test_every_hub_starts_and_is_flushed(rig):
    """gfxhub_v1_2.c, mmhub_v1_8.c: one hub for each of eight dies and four I/O dies."""
    hubs = [rig.ips.block("mmhub", aid) for aid in rig.ips.aids]
    cores = [rig.ips.block("gc", xcc) for xcc in rig.ips.xccs]
    for hub in hubs:
        rig.window.answers[hub.address(mmhub_v1.VM_INVALIDATE_ENG17_ACK)] = 0xFFFF
        rig.window.answers[hub.address(mmhub_v1.VM_INVALIDATE_ENG17_SEM)] = 1
        rig.window.answers[hub.address(mmhub_v1.MC_VM_FB_LOCATION_BASE)] = 0x8000
    for core in cores:
        rig.window.answers[core.address(VM_INVALIDATE_ENG17_ACK)] = 0xFFFF
        rig.window.answers[core.address(VM_INVALIDATE_ENG17_SEM)] = 1
    gmc = Gmc(hubs, cores, lambda: None, vram_bytes=192 << 30, scratch_pa=0x1000, default_bus_addr=0x2000)
    gmc.set_context(8, 0x10_0000)
    gmc.start_mmhub()
    gmc.start_gfxhub()
    # all hubs are asked before the first is waited for
    waited: list[int] = []
    acks = [(core.address(VM_INVALIDATE_ENG17_ACK), core.address(VM_INVALIDATE_ENG17_REQ)) for core in cores]
    for ack, _ in acks:
        rig.window.answers[ack] = lambda: waited.append(len(rig.window.written)) or 0xFFFF
    before = len(rig.window.written)
    gmc.flush_tlb(8)
    sent = [at for at, _ in rig.window.written[before:]]
    assert {req for _, req in acks} <= set(sent)
    assert waited == [len(rig.window.written)] * 8
    written = {at for at, _ in rig.window.written}
    for hub in hubs:
        assert hub.address(mmhub_v1.VM_INVALIDATE_ENG17_REQ) in written
    assert len({at for at, value in rig.window.written if value == 0x10_0001}) == 12


def test_pages_of_gfx9():
    """gmc_v9_0.c for 9.4.3: RW for memory of the card, UC for the host's and for what no cache may keep; snooped."""
    row = FORMATS[9]
    vram = row.leaf("vram", writable=True, executable=True, cached=True)
    assert [hex(bits) for bits in vram[1:]] == ["0x240000000000075", "0x200000000000075", "0x200000000000075"]
    assert row.leaf("host", writable=False, executable=False, cached=True)[3] == 3 << 57 | 0x27
    assert row.leaf("vram", writable=True, executable=False, cached=False)[3] == 3 << 57 | 0x65
    assert row.pointers == (0, 9 << 59, 1 << 56, 0)


def test_a_queue_lies_on_every_die_with_a_descriptor_each(rig):
    """kfd_mqd_manager_v9.c, init_mqd_v9_4_3: number, share and stride; the first die reports the read pointer."""
    cores, cleared = rig.cores(), []
    start_all(cores)
    spec = QueueSpec(0x10_0000, 0x4000, 0x5000, 0x5040, 0x20_0000, 4096, 0x30_0000, 8, 0x18, xccs=8)
    pages = [bytearray(4096) for _ in cores]
    parts = [
        core.queue(Place(1, 2), spec.of_die(xcc), memoryview(pages[xcc]), lambda: None)
        for xcc, core in enumerate(cores)
    ]
    # nothing is mapped when it begins
    for core in cores:
        answers = iter([0, 1])
        rig.window.answers[core.block.address(gc_hqd.CP_HQD_ACTIVE)] = lambda answers=answers: next(answers)
    flushed: list[list[int]] = []
    SpreadHqd(
        parts,
        lambda: cleared.append(len(rig.window.written)),
        lambda: flushed.append([v9_mqd.view(page).cp_mqd_base_addr_lo for page in pages]),
    ).map()
    # one flush, behind the last descriptor and before the first die is switched on
    assert flushed == [[0x30_0000 + xcc * 4096 for xcc in range(8)]]
    assert len(cleared) == 1
    for xcc, page in enumerate(pages):
        mqd = v9_mqd.view(page)
        assert (mqd.compute_current_logic_xcc_id, mqd.compute_tg_chunk_size) == (xcc, 1)
        assert (mqd.cp_mqd_base_addr_lo, mqd.cp_mqd_stride_size) == (0x30_0000 + xcc * 4096, 4096)
        assert mqd.cp_hqd_pq_control >> 27 & 1 == (xcc != 0)
        assert mqd.cp_hqd_pq_base_lo == 0x1000
        gc_block = cores[xcc].block
        # one doorbell rings all dies
        assert rig.value(gc_block, gc_cp.CP_MEC_DOORBELL_RANGE_LOWER) == 0
        assert rig.value(gc_block, gc_cp.CP_MEC_DOORBELL_RANGE_UPPER) == 0x1FE << 2
        assert rig.value(gc_block, gc_hqd.CP_MQD_BASE_ADDR) == 0x30_0000 + xcc * 4096
    alone = v9_mqd.view(bytearray(compute_mqd(GC, QueueSpec(0, 256, 0, 0, 0, 4096, 0, 8, 0))))
    assert alone.compute_tg_chunk_size == alone.cp_mqd_stride_size == 0


def test_dies_with_fewer_units_are_counted_and_give_their_share_again(rig):
    """gfx_v9_4_3_get_cu_info: a die whose engines have the same units needs no second try."""
    cores = rig.cores(inactive=lambda xcc: 0b11000 if xcc == 3 else 0)
    # the same register answers for both engines, so each die is even
    start_all(cores)
    assert [core.shape.cu_total for core in cores] == [10, 10, 10, 6, 10, 10, 10, 10]
    uneven = iter([0, 0b1])
    half = cores[5]
    off = gc.CC_GC_SHADER_ARRAY_CONFIG.at(GC)
    rig.window.answers[half.block.address(gc.CC_GC_SHADER_ARRAY_CONFIG)] = lambda: int(off(inactive_cus=next(uneven)))
    half.prepare()
    assert half.shape.cu_total == 9
    share_evenly(cores)
    told = [rig.window.values.get(core.block.address(gc_cp.CP_CPC_DEBUG), 0) for core in cores]
    assert told == [0x5000] * 5 + [0] + [0x5000] * 2


def test_dies_are_joined_by_the_security_processor_or_refused(rig):
    """gfx_v9_4_3_switch_compute_partition."""
    cores, asked = rig.cores(), []

    def joined(count):
        for core in cores:
            at = core.block.address(gc_cp.CP_HYP_XCP_CTL)
            rig.window.answers[at] = (core.xcc if count == 8 else 0) | count << 3

    joined(1)
    with pytest.raises(FirmwareError, match=r"lists 8 dies .* contradicts it: XCC 0 says that it is 0 of 1"):
        join(cores, asked.append)
    join(cores, lambda parts: (asked.append(parts), joined(8)))
    assert asked == [1, 1]
    join(cores, asked.append)
    assert asked == [1, 1]


def test_every_die_is_gated_reset_and_stopped(rig):
    """gfx_v9_4_3_xcc_update_gfx_clock_gating and gfx_v9_4_3_soft_reset; sdma_v4_4_2.c for the last engine."""
    cores, engines = rig.cores(), make_engines(rig.ips)
    start_all(cores)
    overrides = [core.block.address(gc_rlc.RLC_CGTT_MGCG_OVERRIDE) for core in cores]
    for core, at in zip(cores, overrides, strict=True):
        rig.window.values[at] = 0xFFFF
        rig.window.answers[core.block.address(gc_hqd.CP_HQD_ACTIVE)] = 0
        rig.window.answers[core.block.address(gc_rlc.RLC_SAFE_MODE)] = 0
        rig.window.answers[core.block.address(gc_rlc.RLC_GPU_CLOCK_COUNT_LSB)] = 0x1234
    set_gating(cores, rig.ips.mmhubs[0], engines, True)
    assert [rig.window.values[at] for at in overrides] == [0xFC81] * 8
    last = cores[7].block
    assert rig.value(last, gc_rlc.RLC_CGCG_CGLS_CTRL) >> 8 & 0xFFFF == 0x2710
    assert rig.value(last, gc_hqd.CP_RB_WPTR_POLL_CNTL) == 0x3345_0100
    set_gating(cores, rig.ips.mmhubs[0], engines, False)
    assert [rig.window.values[at] for at in overrides] == [0xFFFF] * 8
    start = len(rig.window.written)
    soft_reset(cores[7])
    reset = [value for at, value in rig.window.written[start:] if at == last.address(gc.GRBM_SOFT_RESET)]
    assert [bool(value & 1 << 16) for value in reset] == [True, False]
    assert cores[0].gpu_clock() == 0x1234
    assert waves(last, cores[7].shape, 5, 7) == []
    assert cores[7].status()["CP_MEC_CNTL"] == 0
    cores[7].stop()
    assert cores[7].halted
    engine = engines[15]
    for queue in range(8):
        at = engine.block.address(engine.words.context, engine.queue_at(queue))
        rig.window.answers[at] = int(engine.block.make(engine.words.context, idle=1))
    engine.start()
    assert not engine.halted
    queue = SdmaQueue(engine, 1, SdmaQueueSpec(0x1000, 1024, 0x2000, 0x2040, 8, 0x33C))
    queue.map()
    assert queue.position().mapped
    assert queue.unmap()
    # its firmware stays on, as the security processor has started it; no queue does
    queue.map()
    engine.stop()
    assert not engine.halted
    assert not queue.position().mapped


def test_only_queues_that_may_run_are_switched_off_and_waited_for(rig):
    """sdma_v4_4_2_inst_gfx_stop; sdma_v4_4_2_is_idle: an idle engine has no work of any queue."""
    engine = make_engines(rig.ips)[9]
    words, block, status = engine.words, engine.block, engine.block.address(engine.words.status)
    contexts = [block.address(words.context, engine.queue_at(queue)) for queue in range(8)]
    read: list[int] = []

    def context(queue):
        read.append(queue)
        return int(block.make(words.context, idle=1))

    for queue, at in enumerate(contexts):
        rig.window.answers[at] = lambda queue=queue: context(queue)
    rig.window.answers[status] = 1
    engine.start()
    del rig.window.written[:]
    engine.reset()
    rings = [block.address(words.ring, engine.queue_at(queue)) for queue in range(8)]
    assert not {at for at, _ in rig.window.written} & {*rings, block.address(words.settings)}
    assert read == []
    on = block.make(words.indirect, ib_enable=1)
    rig.window.values[rings[3]] = int(block.make(words.ring, rb_enable=1, rb_size=10))
    rig.window.values[block.address(words.indirect, engine.queue_at(3))] = int(on)
    engine.reset()
    assert rig.window.values[rings[3]] == int(block.make(words.ring, rb_size=10))
    assert rig.value(block, words.indirect, engine.queue_at(3)) == 0
    assert read == [3]
    # a queue of an earlier driver whose ring is off may still run an indirect buffer
    rig.window.answers[status] = 0
    rig.window.values[block.address(words.indirect, engine.queue_at(5))] = int(on)
    engine.reset()
    assert rig.value(block, words.indirect, engine.queue_at(5)) == 0
    assert read == [3, *range(8)]


@pytest.fixture
def files(sources):
    blocks = CHIPS["mi300x"]
    folder = sources.root("firmware-amd") / "lib/firmware"
    return load(needs(blocks.gc, blocks.mp0, blocks.mp1, blocks.sdma), Store([folder]))


def test_firmware_goes_in_the_kernels_order(files):
    """psp_load_non_psp_fw, without autoload: the P2S table, copies for the four engines of a die, MEC with its jump
    table, RLC.
    """
    made = psp_firmware(files, GC, ROWS[13, 0, 6], 0x74A1)
    assert [part.fw_type for part in made.parts] == [0x81, 9, 0xA, 0x34, 0x35, 4, 5, 22, 20, 21, 8]
    whole = files.image("mec").section("code").size_bytes
    sizes = {part.fw_type: len(part.data) for part in made.parts}
    assert sizes[psp.GFX_FW_TYPE_CP_MEC] + sizes[psp.GFX_FW_TYPE_CP_MEC_ME1] == whole
    assert made.register_list.fw_type == psp.GFX_FW_TYPE_REG_LIST
    other = psp_firmware(files, GC, ROWS[13, 0, 6], 0x74A5, aux=True)
    assert other.parts[0].data != made.parts[0].data
    assert other.boot[ucode.PSP_FW_TYPE_PSP_SOS].name == "sos_aux"
    assert other.register_list.data != made.register_list.data


def test_the_security_processor_keeps_its_own_memory(rig, files):
    """psp_hw_start with a TMR of boot time: no table of contents, a TMR of nothing, no autoload."""
    sent = []
    window = SimpleNamespace(write=lambda at, data: None, size_bytes=1 << 34)
    hdp = SimpleNamespace(flush=lambda: None)
    made = Psp(rig.ips.block("mp0"), (13, 0, 6), window, hdp, PspBuffers(0, 0x10_0000, 0x11_0000), 0)

    def submit(cmd, doing):
        sent.append((cmd.cmd_id, cmd.cmd.cmd_setup_tmr.buf_size if cmd.cmd_id == psp.GFX_CMD_ID_SETUP_TMR else None))
        return Response(0, 0)

    made.ring = SimpleNamespace(create=lambda stale: None, submit=submit, mailbox=made.ring.mailbox)
    made.load(psp_firmware(files, GC, made.row, 0x74A1), lambda size: pytest.fail("nothing is placed"))
    assert sent[0] == (psp.GFX_CMD_ID_SETUP_TMR, 0)
    assert {command for command, _ in sent[1:]} == {psp.GFX_CMD_ID_LOAD_IP_FW}
    assert made.tmr_bytes == 0


class Mailbox:
    """Answers messages of the power controller by name, and keeps them."""

    def __init__(self, rig, window, answers):
        self.sent, self.window, self.answers = [], window, answers

    def send(self, message, argument=0, *, name, timeout_us=0):
        self.sent.append((name, argument))

    def ask(self, message, argument=0, *, name, timeout_us=0):
        self.send(message, argument, name=name)
        answer = self.answers[name]
        return answer(argument) if callable(answer) else answer

    def tell(self, message, argument=0, *, debug=False):
        self.sent.append((message, argument, debug))


def test_the_power_controller_starts_without_a_table_and_states_limits_in_its_metrics(rig):
    """smu_v13_0_6_ppt.c: setup_driver_pptable, set_default_dpm_table; Q10 numbers are rounded."""
    table = smu_v13_0_6.MetricsTableX_t(
        AccumulationCounter=7, MaxSocketPowerLimit=750 << 10, MaxSocketTemperature=(61 << 10) + 512,
        SocketPower=140 << 10, UclkFrequency=900 << 10, SocketGfxBusy=55 << 10, PCIeLinkSpeed=5, PCIeLinkWidth=16,
    )  # fmt: skip
    for xcc in range(8):
        table.GfxclkFrequency[xcc] = (132 + xcc) << 10
    for level, mhz in enumerate((900, 1100, 1300, 1300)):
        table.UclkFrequencyTable[level] = mhz << 10
    window = SimpleNamespace(read=lambda at, size: bytes(memory(table)))
    smu = make_smu(rig.ips.block("mp1"), (13, 0, 6), window, None, 0x1000, 0x80_0000_0000)
    assert isinstance(smu, AcceleratorSmu)
    flags = smu.row.flags
    rig.window.answers[flags] = 1
    smu.mailbox = mailbox = Mailbox(
        rig, window,
        {
            "GetDriverIfVersion": 0x0804_2024, "GetSmuVersion": 0x55_7300,
            "GetEnabledSmuFeaturesLow": 1 << 3 | 1 << 6 | 1 << 23, "GetEnabledSmuFeaturesHigh": 0,
            "GetMinGfxDpmFreq": 132, "GetMaxGfxDpmFreq": 2100, "GetDpmFreqByIndex": 2, "GetPptLimit": 750,
            "ReadThrottlerLimit": lambda kind: {1: 100, 2: 94}[kind], "GetCTFLimit": lambda kind: {1: 110, 3: 112}[kind],
        },
    )  # fmt: skip
    smu.start(None, signed=False)
    assert mailbox.sent[2:5] == [
        ("SetDriverDramAddrHigh", 0x80), ("SetDriverDramAddrLow", 0x1000), ("EnableAllSmuFeatures", 0)
    ]  # fmt: skip
    assert (smu.clocks("gfx"), smu.clocks("memory")) == ((132, 2100), (900, 1100, 1300))
    limits, seen = smu.limits, smu.metrics()
    assert (limits.power_max_w, limits.hotspot_temperature_c, limits.memory_temperature_c) == (750, 100, 94)
    assert limits.shutdown_temperature_c == 112
    assert (seen.hotspot_temperature_c, seen.power_w, seen.gfx_clock_mhz, seen.counter) == (62, 140, 139, 7)
    mailbox.sent.clear()
    smu.set_clock_range("gfx", 500, 1700)
    smu.set_clock_range("memory", 900, 1100)
    smu.set_power_limit(600)
    smu.stop()
    assert mailbox.sent[:4] == [
        ("SetSoftMaxGfxClk", 1700), ("SetSoftMinGfxClk", 500), ("SetSoftMaxByFreq", 3 << 16 | 1100), ("SetPptLimit", 600)
    ]  # fmt: skip
    assert mailbox.sent[-1] == ("PrepareForDriverUnload", 0)
    assert smu.tell_mode1_reset() == 500_000
    assert mailbox.sent[-1] == (smu_v13_0_6.PPSMC_MSG_GfxDriverReset, 1, False)


MEETING = 0x7_0000_0100
MEET = [
    word
    for low in (0x100, 0x104)
    for word in (
        # PACKET3_ATOMIC_MEM: INC of 32 bits that wraps at 7; PACKET3_WAIT_REG_MEM: memory, equal
        *(0xC007_1E00, 0x18, low, 7, 7, 0, 0, 0, 0),
        *(0xC005_3C00, 0x13, low, 7, 0, 0xFFFF_FFFF, 4),
    )
]


def test_all_dies_end_before_one_of_them_signals():
    commands = Pm4Commands(GC, dies=Dies(8, MEETING))
    one = Pm4Commands(GC)
    release = one.signal(0x1000, 0x1234)
    finish = to_bytes(one.pm4.wait_for_dispatches()) + to_bytes(MEET)
    seen = commands.signal(0x1000, 0x1234)
    # PRED_EXEC: the next 8 dwords on die 0
    assert seen.endswith(to_bytes(MEET) + to_bytes([0xC000_2300, 1 << 24 | 8]) + release)
    assert len(seen) > len(finish) + len(release)
    ((at, form, shift),) = commands.signal_places
    assert form.unpack_from(seen, at)[0] == 0x1234
    assert shift == 0
    assert to_bytes(MEET) in commands.barrier


def test_each_die_has_its_part_of_the_scratch_memory():
    """ROCr amd_aql_queue.cpp, FillBufRsrcWord0 to 3, FillComputeTmpRingSize: sizes are one die's."""
    scratch = Scratch(8 * 1216, lambda size: 0x12_3400_0000, 8)
    block = scratch.block(4096)
    assert (block.part_waves, block.part_bytes) == (1216, 1216 * 4096)
    tmpring = tmpring_size(GC, block, 4)
    assert int(tmpring) == 1216 | 4 << 12
    size = 1216 * 4096
    assert scratch_fields(block, int(tmpring), 9) == struct.pack(
        "<I4IQQI", int(tmpring), 0x3400_0000, 0x8000_0012, size, 0x00EA_4FAC, 0x12_3400_0000, size, 64
    )


@pytest.mark.parametrize(
    ("client", "source", "node", "data", "text"),
    [
        (0x1B, 0, 0x5, (0x7_0000, 0x20), "page fault: gfxhub vmid 8 wrote page 0x70000000"),
        (0x12, 0, 0x4, (0x7_0000, 0), "page fault: mmhub vmid 8 read page 0x70000000"),
        (0x01, 0xE0, 0x8, (5, 0), "SDMA trap: SDMA10 queue 0 vmid 8 data 0x5"),
        (0x0B, 0xEF, 0x1, (2 << 26, 0x10), "shader: illegal instruction, vmid 8 data 0x8000000 0x10"),
        (0x14, 0xB5, 0x1, (9, 0), "end of pipe: queue 0.0.0 vmid 8 data 0x9"),
    ],
)
def test_interrupts_of_older_clients_are_told_apart(client, source, node, data, text):
    """gmc_v9_0_process_interrupt, sdma_v4_4_2_process_trap_irq, kfd_int_process_v9.c."""
    entry = struct.pack("<8I", client | source << 8 | 8 << 24, 0, 0, node << 16, *data, 0, 0)
    assert ih_decode.decode(entry, (4, 4, 2)).text == text


def test_a_version_without_rows_is_driven_as_the_nearest_by_force_alone(rig, caplog):
    listed = rig.ips.table.find
    newer = {facts.GC_HWID: (9, 4, 4), facts.MP0_HWID: (13, 0, 14)}
    rig.ips.table.find = lambda hw_id: tuple(replace(ip, version=newer.get(hw_id, ip.version)) for ip in listed(hw_id))
    ips = Ips(rig.registers, rig.ips.table)
    with pytest.raises(NotSupported, match=r"version 9\.4\.4; .*the nearest is mi300x"):
        _ = ips.chip
    ips = Ips(rig.registers, rig.ips.table)
    known.force(ips, "a card")
    assert (ips.chip.name, ips.block("gc", 3).version, ips.version("mp0")) == ("mi300x", GC, (13, 0, 10))
    assert (ips.stated("gc"), ips.spread) == ((9, 4, 4), True)
    assert "GC is version 9.4.4, which this driver has no rows for; it is driven as 9.4.3, by force" in caplog.text
    # files of its own name, of the nearest version's kinds
    blocks = CHIPS["mi300x"]
    with pytest.raises(NotSupported, match=r"gc 9\.4\.4; known"):
        needs((9, 4, 4), blocks.mp0, blocks.mp1, blocks.sdma)
    names = [need.name for need in needs((9, 4, 4), blocks.mp0, blocks.mp1, blocks.sdma, force=True)]
    assert names[-2:] == ["amdgpu/gc_9_4_4_mec.bin", "amdgpu/gc_9_4_4_rlc.bin"]
