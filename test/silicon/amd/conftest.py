"""Fixtures for the blocks of a Radeon."""

from __future__ import annotations

import mmap
import struct
from functools import partial

import pytest

from ringup.silicon import card
from ringup.silicon.amd.board.chips import CHIPS, find
from ringup.silicon.amd.board.core import GraphicsCore
from ringup.silicon.amd.common.parts import Board, VmFault
from ringup.silicon.common.cells import Cells, RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram, span_of
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.common.state import MemoryFault, Region


@pytest.fixture(params=CHIPS)
def radeon(request):
    """A virtual card with little memory, in the state that a host's firmware leaves. Tests run on every chip in
    turn.
    """
    return card(request.param, vram_bytes=64 << 20)


@pytest.fixture
def navi31():
    """A virtual navi31 with little memory."""
    return card("navi31", vram_bytes=64 << 20)


# The values of psp_gfx_if.h in a driver's order: PFP, ME, MEC and their stacks; MES and its stack; KIQ and its stack;
# IMU; RLC's lists and codes.
KIQ = 0x51
FIRMWARE = (87, 88, 89, *range(90, 98), 33, 34, KIQ, 0x52, 68, 69, 20, 21, 26, 48, 25, 7, 8)
# The kind of the scheduler's image, at 0x58, which the KIQ of GC 12 gets too: gc_12_0_1_uni_mes.bin.
UNIFIED = bytes(0x58) + b"\x07\x20" + bytes(6)


class FlatHub:
    """A VM hub with flat memory: a gpu_va is an offset, the same in all VMIDs. Pages in `unmapped` fault. `vmids` holds
    the VMIDs of all accesses.
    """

    PAGE = 4096

    def __init__(self, size_bytes=32 << 20):
        # Pages that no test accesses cost nothing.
        self.span = span_of(mmap.mmap(-1, size_bytes))
        self.unmapped, self.epoch, self.vmids = set(), 0, []

    def _check(self, vmid, gpu_va, size_bytes, write):
        self.vmids.append(vmid)
        for page in range(gpu_va // self.PAGE, (gpu_va + max(size_bytes, 1) - 1) // self.PAGE + 1):
            if page in self.unmapped or page * self.PAGE >= self.span.size_bytes:
                raise VmFault("gfxhub", vmid, gpu_va, write, "unmapped")

    def read(self, vmid, gpu_va, size_bytes, client):
        self._check(vmid, gpu_va, size_bytes, False)
        return bytes(self.span.view[gpu_va : gpu_va + size_bytes])

    def write(self, vmid, gpu_va, data, client):
        self._check(vmid, gpu_va, len(data), True)
        self.span.view[gpu_va : gpu_va + len(data)] = data

    def memory(self, vmid, client):
        return self

    def region(self, gpu_va, write, execute=False):
        page = gpu_va // self.PAGE
        if page in self.unmapped or gpu_va >= self.span.size_bytes:
            raise MemoryFault(gpu_va, write, "unmapped")
        return Region(page * self.PAGE, self.PAGE, self.span.pointer + page * self.PAGE)


class Interrupted:
    """An interrupt handler that only records: (client, source, ring, vmid, data)."""

    def __init__(self):
        self.entries = []

    def interrupt(self, client_id, source_id, *, ring_id=0, vmid=0, pasid=0, data=(), node_id=0):
        self.entries.append((client_id, source_id, ring_id, vmid, tuple(data)))


class GraphicsRig:
    """A booted graphics core by itself, and what a driver does with it: registers by name, rings, doorbells."""

    RING, MQD, REPORT, POINTER, DATA = 0x10_0000, 0x20_0000, 0x21_0000, 0x21_1000, 0x30_0000
    # CP_HQD_PQ_CONTROL.queue_size 7
    RING_DWORDS = 256
    # CP_HQD_DEQUEUE_REQUEST.dequeue_req
    DRAIN, RESET, SAVE = 1, 2, 3

    def __init__(self, boot=True, chip="navi31"):
        clock = VirtualClock()
        self.board = Board(chip, clock, EventLog(clock), Faults(), RegisterSpace(), Vram(4096), HostMemory())
        self.clock, self.hub, self.ih = clock, FlatHub(), Interrupted()
        self.cells, self.osssys = Cells(chip, "gc"), Cells(chip, "osssys")
        row = find(chip)
        for cells in (self.cells, self.osssys, Cells(chip, row.bus.block)):
            self.board.space.attach(cells)
        self.sdma = Recorder()
        core = row.gc.core
        self.engine = Translator(target=core.target)
        self.gc = GraphicsCore(self.board, self.cells, self.hub, self.ih, self.engine, row=core, sdma=(self.sdma,))
        # The rig plays the hub: it acknowledges requests at once.
        for number in range(18):
            self.cells.on_write(f"GCVM_INVALIDATE_ENG{number}_REQ", partial(self._acknowledge, number))
        self.flushed = []
        if boot:
            self.boot()

    def _acknowledge(self, number, request):
        self.flushed.append(request)
        self.cells[f"GCVM_INVALIDATE_ENG{number}_ACK"] = request & 0xFFFF

    def load(self, without=None):
        """Hand over Debian's firmware as the security processor does, all files but one."""
        for kind in FIRMWARE:
            if kind != without:
                self.gc.firmware_loaded(kind, UNIFIED if kind == KIQ and self.gc.grbm.row.version[0] == 12 else b"")

    def boot(self, without=None):
        self.load(without)
        self.gc.autoload()
        self.clock.sleep_us(1000)
        # gfx_v11_0.c leaves it so: four pipes active, not halted.
        self.set("CP_MEC_RS64_CNTL", 0x3C00_0000)
        self.set("CP_MES_CNTL", 0x0C00_0000)
        self.set("CP_MEC_DOORBELL_RANGE_LOWER", 0)
        self.set("CP_MEC_DOORBELL_RANGE_UPPER", 0x450)
        self.set("CP_RB_DOORBELL_RANGE_LOWER", 0x458)
        self.set("CP_RB_DOORBELL_RANGE_UPPER", 0x7F8)
        for pipe in range(self.gc.grbm.row.mec_pipes):
            # Time stamp, generic 0 and errors.
            self.set(f"CP_ME1_PIPE{pipe}_INT_CNTL", 0x8D80_0000)

    def set(self, name, value):
        self.board.space.write(self.cells.address(name), value)

    def get(self, name):
        return self.board.space.read(self.cells.address(name))

    def select(self, me=0, pipe=0, queue=0, vmid=0):
        self.set("GRBM_GFX_CNTL", pipe | me << 2 | vmid << 4 | queue << 8)

    def dequeue(self, how, pipe=0):
        """Ask for a queue of MEC 1 to be disconnected; return whether it was."""
        self.select(1, pipe)
        self.set("CP_HQD_DEQUEUE_REQUEST", how)
        self.clock.sleep_us(500)
        return not self.get("CP_HQD_ACTIVE") & 1

    def words(self, at, count):
        return list(struct.unpack(f"<{count}I", self.hub.span.view[at : at + 4 * count]))

    def put(self, at, *words):
        self.hub.span.view[at : at + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)

    def number(self, at, size=4):
        return int.from_bytes(self.hub.span.view[at : at + size], "little")

    def violations(self):
        return [event.text for event in self.board.log.find("violation")]

    def queue(
        self, me=1, pipe=0, queue=0, *, doorbell=0x6, vmid=0, wptr=0, ring=None, control=0xD830_8907, **registers
    ):
        """Activate a queue by registers, in the order of gfx_v11_0_kiq_init_register."""
        ring = self.RING + 0x1000 * (pipe * 8 + queue) if ring is None else ring
        self.select(me, pipe, queue)
        values = {
            "CP_MQD_BASE_ADDR": self.MQD + 0x1000 * (pipe * 8 + queue),
            "CP_HQD_PQ_BASE": ring >> 8,
            "CP_HQD_PQ_BASE_HI": 0,
            "CP_HQD_PQ_CONTROL": control & ~0x0800_0000,
            "CP_HQD_PQ_RPTR_REPORT_ADDR": self.REPORT + 8 * (pipe * 8 + queue),
            "CP_HQD_PQ_DOORBELL_CONTROL": doorbell << 2 | 1 << 30,
            "CP_HQD_PQ_RPTR": wptr & 0xFFFF_FFFF,
            "CP_HQD_PQ_WPTR_LO": wptr & 0xFFFF_FFFF,
            "CP_HQD_PQ_WPTR_HI": wptr >> 32,
            "CP_HQD_VMID": vmid,
            **registers,
            "CP_HQD_ACTIVE": 1,
        }
        for name, value in values.items():
            self.set(name, value)
        self.select()
        return Feeder(self, ring, doorbell, wptr, self.REPORT + 8 * (pipe * 8 + queue))


class Feeder:
    """A driver's side of one ring: writes packets and rings the doorbell."""

    def __init__(self, rig, ring, doorbell, wptr, report, dwords=GraphicsRig.RING_DWORDS):
        self.rig, self.ring, self.doorbell, self.wptr, self.report, self.dwords = (
            rig,
            ring,
            doorbell,
            wptr,
            report,
            dwords,
        )

    def write(self, *words):
        for word in words:
            self.rig.put(self.ring + self.wptr % self.dwords * 4, word)
            self.wptr += 1

    def ring_bell(self, size_bytes=8):
        value = self.wptr if size_bytes == 8 else self.wptr & 0xFFFF_FFFF
        return self.rig.gc.doorbell(self.doorbell, value, size_bytes)

    def run(self, *words, us=2000):
        """Submit, and let time pass."""
        self.write(*words)
        self.ring_bell()
        self.rig.clock.sleep_us(us)

    def done(self):
        """Whether the reported read pointer has caught up with the write pointer."""
        return self.rig.number(self.report) == self.wptr & 0xFFFF_FFFF


class AqlQueue:
    """A runtime's side of one AQL queue: amd_queue_t, packets and signals. The layouts are written by hand from hsa.h
    and amd_hsa_*.h of ROCR-Runtime.
    """

    SHARED, SIGNALS, EVENTS, SLOTS = 0xA0_0000, 0xA1_0000, 0xA2_0000, 16
    # As in kfd_mqd_manager_v11.c: 256 dwords, rptr_block_size 5, queue full, slots, no rptr, unordered.
    CONTROL = 7 | 5 << 8 | 1 << 14 | 2 << 18 | 1 << 27 | 1 << 28

    def __init__(self, rig, number=0, doorbell=6, vmid=8, index=0, **registers):
        self.rig, self.number, self.bell = rig, number, doorbell
        self.ring, self.shared = 0x98_0000 + 0x1000 * number, self.SHARED + 0x1000 * number
        self.signals, self.written, self.vmid = self.SIGNALS + 0x1000 * number, index, vmid
        self.mqd = rig.MQD + 0x1000 * 8 * number
        for slot in range(self.SLOTS):
            # INVALID
            rig.put(self.ring + 64 * slot, 1)
        rig.put(self.shared, *[0] * 64)
        self.inactive = self.signal(0)
        # read_dispatch_id, and its place.
        self.put(128, struct.pack("<QI", index, 128))
        self.put(56, struct.pack("<Q", index))
        self.put(192, struct.pack("<Q", self.inactive))
        values = {
            "CP_HQD_PQ_CONTROL": self.CONTROL,
            "CP_HQD_PQ_RPTR_REPORT_ADDR": self.shared + 128,
            "CP_HQD_PQ_WPTR_POLL_ADDR": self.shared + 56,
            "CP_HQD_PQ_DOORBELL_CONTROL": doorbell << 2 | 1 << 30 | 1 << 1,
            "CP_HQD_AQL_CONTROL": 1,
            "CP_HQD_PERSISTENT_STATE": 1 << 30 | 0x55 << 8 | 1,
            **registers,
        }
        rig.queue(pipe=number, doorbell=doorbell, vmid=vmid, wptr=index * 16, ring=self.ring, **values)

    def put(self, offset, data):
        """Write into amd_queue_t."""
        self.rig.hub.span.view[self.shared + offset : self.shared + offset + len(data)] = data

    def signal(self, value, event=None):
        """Make a signal, with an event if one is given."""
        at, self.signals = self.signals, self.signals + 64
        mailbox = 0 if event is None else self.EVENTS + 8 * event
        self.rig.hub.span.view[at : at + 64] = struct.pack("<qqQIIQQQQ", 1, value, mailbox, event or 0, 0, 0, 0, 0, 0)
        return at

    def value(self, signal):
        return struct.unpack("<q", self.rig.hub.span.view[signal + 8 : signal + 16])[0]

    def set(self, signal, value):
        self.rig.hub.span.view[signal + 8 : signal + 16] = struct.pack("<q", value)

    def stamps(self, signal):
        return struct.unpack("<QQ", self.rig.hub.span.view[signal + 32 : signal + 48])

    @property
    def read_index(self):
        return self.rig.number(self.shared + 128, 8)

    @staticmethod
    def dispatch(
        kernel, kernarg=0, grid=(1,), group=(1,), *, scratch=0, lds=0, signal=0, header=2 | 1 << 8, dimensions=None
    ):
        """Return an hsa_kernel_dispatch_packet_t. The barrier bit is set unless `barrier` says otherwise."""
        dimensions = len(grid) if dimensions is None else dimensions
        grid, group = (*grid, 1, 1)[:3], (*group, 1, 1)[:3]
        return struct.pack(
            "<HHHHHHIIIIIQQQQ", header, dimensions, *group, 0, *grid, scratch, lds, kernel, kernarg, 0, signal
        )

    @staticmethod
    def barrier(*signals, kind=3, signal=0, bit=0):
        """Return an hsa_barrier_and_packet_t (3) or an hsa_barrier_or_packet_t (5)."""
        return struct.pack("<HHIQQQQQQQ", kind | bit << 8, 0, 0, *(*signals, 0, 0, 0, 0, 0)[:5], 0, signal)

    @staticmethod
    def pm4_ib(at, dwords, *, signal=0, bit=0, jump=0xC002_3F00):
        """Return the vendor's packet with an INDIRECT_BUFFER, as ROCR's ExecutePM4 makes it."""
        return struct.pack("<HBBIIIII8IQ", bit << 8, 1, 0, jump, at, 0, dwords | 1 << 23, 10, *[0] * 8, signal)

    def write(self, *packets, header=None):
        """Put packets into the ring. A `header` replaces the last packet's own, so that a test can write that one
        later.
        """
        for packet in packets:
            at = self.ring + self.written % self.SLOTS * 64
            self.rig.hub.span.view[at : at + 64] = packet
            self.written += 1
            self.put(56, struct.pack("<Q", self.written))
        if header is not None:
            self.rig.hub.span.view[at : at + 2] = struct.pack("<H", header)

    def ring_bell(self, index=None, size_bytes=8):
        self.rig.gc.doorbell(self.bell, self.written - 1 if index is None else index, size_bytes)

    def run(self, *packets, us=500):
        self.write(*packets)
        self.ring_bell()
        self.rig.clock.sleep_us(us)

    def header(self, index):
        return self.rig.number(self.ring + index % self.SLOTS * 64, 2)


class Recorder:
    """Records SDMA queues as schedulers see them."""

    def __init__(self):
        self.mapped = {}

    def map_queue(self, number, descriptor, vmid, privileged=False):
        self.mapped[number] = (descriptor, vmid)

    def unmap_queue(self, number):
        del self.mapped[number]
        return 0


@pytest.fixture
def core():
    """A booted graphics core with flat memory."""
    return GraphicsRig()


@pytest.fixture(params=CHIPS)
def any_core(request):
    """A booted graphics core of every chip in turn."""
    return GraphicsRig(chip=request.param)


@pytest.fixture
def navi48_core():
    """A booted graphics core of navi48."""
    return GraphicsRig(chip="navi48")


@pytest.fixture
def cold_core():
    """A graphics core before its firmware is loaded."""
    return GraphicsRig(boot=False)


@pytest.fixture
def mec(core):
    """The core's first compute queue, the kernel driver's, at doorbell 6."""
    return core.queue()


@pytest.fixture
def make_aql(core):
    """Make AQL queues of a booted core. The first is in slot 1.0.0 at doorbell 6, in VMID 8."""
    return partial(AqlQueue, core)


@pytest.fixture
def aql(make_aql):
    """The core's first AQL queue."""
    return make_aql()
