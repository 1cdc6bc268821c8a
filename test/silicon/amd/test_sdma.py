"""SDMA: what each packet leaves in memory, rings and pointers, and mistakes that stop a queue. Source: sdma_v6_0.c,
sdma_v7_0.c and the packet headers.

Packets are written as dwords: `op | sub_op << 8`, then the fields as sdma_v6_0_0_pkt_open.h places them. Those of 7.0
differ where a test says so.
"""

from __future__ import annotations

import mmap
import struct

import pytest

from ringup.autogen.structs import memory
from ringup.errors import Unmodelled
from ringup.silicon.amd.board.chips import find
from ringup.silicon.amd.common.parts import Board, VmFault
from ringup.silicon.amd.sdma.engine import Sdma
from ringup.silicon.common.cells import Cells, RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram

# 1024 dwords: RB_SIZE 10.
RING, RING_BYTES = 0x100_0000, 4096
RPTR_AT, WPTR_AT, DATA = 0x110_0000, 0x110_0008, 0x200_0000
PAGE = 4096
# SDMA_PKT_COPY_LINEAR_HEADER_CPV of sdma_v6_0_0_pkt_open.h.
CPV = 1 << 19


class Pages:
    """A hub whose mapped pages are those of `data`. VMID 3 sees the same bytes 16 MiB higher."""

    def __init__(self, mapped=range(0x1000, 0x3000)):
        # Pages that no test accesses cost nothing.
        self.data = mmap.mmap(-1, 64 << 20)
        self.mapped = set(mapped)

    def _runs(self, vmid, gpu_va, size, write):
        at = gpu_va
        while at < gpu_va + size:
            flat = at - (16 << 20 if vmid == 3 else 0)
            if flat // PAGE not in self.mapped:
                raise VmFault("gfxhub", vmid, at, write, "unmapped")
            count = min(PAGE - at % PAGE, gpu_va + size - at)
            yield at - gpu_va, flat, count
            at += count

    def read(self, vmid, gpu_va, size_bytes, client):
        return b"".join(bytes(self.data[at : at + n]) for _, at, n in self._runs(vmid, gpu_va, size_bytes, False))

    def write(self, vmid, gpu_va, data, client):
        for start, at, n in self._runs(vmid, gpu_va, len(data), True):
            self.data[at : at + n] = data[start : start + n]


class Bell:
    def __init__(self):
        self.heard = []

    def interrupt(self, client_id, source_id, *, ring_id=0, vmid=0, pasid=0, data=(), node_id=0):
        self.heard.append((client_id, source_id, ring_id, vmid, tuple(data)))


class Rig:
    def __init__(self, index=0, chip="navi31"):
        clock = VirtualClock()
        row = find(chip)
        self.row, self.board = (
            row.gc.sdma,
            Board(chip, clock, EventLog(clock), Faults(), RegisterSpace(), Vram(4096), HostMemory()),
        )
        self.cells, self.pages, self.bell = Cells(chip, "gc"), Pages(), Bell()
        self.board.space.attach(self.cells)
        self.board.space.attach(Cells(chip, row.bus.block))
        self.index = index
        self.engine = Sdma(self.board, self.pages, self.bell, self.cells, index, self.row)
        self.wptr = 0

    def set(self, name, value, queue=0):
        self.cells.write(self.cells.address(f"SDMA{self.index}_QUEUE{queue}_{name}"), value)

    def get(self, name, queue=0):
        return self.cells.read(self.cells.address(f"SDMA{self.index}_QUEUE{queue}_{name}"))

    def engine_set(self, name, value):
        self.cells.write(self.cells.address(f"SDMA{self.index}_{name}"), value)

    def halt(self, value):
        """SDMA0_F32_CNTL.HALT, SDMA0_MCU_CNTL.HALT."""
        self.engine_set(self.row.control, value)

    def freeze(self):
        self.engine_set("FREEZE", self.cells.replace(f"SDMA{self.index}_FREEZE", 0, **{self.row.freeze: 1}))

    def register_write(self, name, value):
        """Return the packet that writes a register: the address counts dwords before 7.0."""
        address = self.cells.address(name)
        return (14, address, value) if self.row.version[0] == 7 else (14 | 0xF << 28, address // 4, value)

    def start(self, queue=0, control=0x80_1000, rptr=0):
        """Start a queue as sdma_v6_0_gfx_resume does: RPTR_WRITEBACK_ENABLE 12, RB_PRIV 23."""
        for number in self.row.firmware:
            self.engine.firmware_loaded(number, b"")
        self.halt(0)
        self.engine_set("CNTL", 1)  # TRAP_ENABLE
        self.set("RB_BASE", RING + queue * 0x10000 >> 8, queue)
        for name, value in (("RB_RPTR", rptr), ("RB_WPTR", rptr)):
            self.set("MINOR_PTR_UPDATE", 1, queue)
            self.set(name, value & 0xFFFF_FFFF, queue)
            self.set(name + "_HI", value >> 32, queue)
            self.set("MINOR_PTR_UPDATE", 0, queue)
        self.set("RB_RPTR_ADDR_LO", RPTR_AT + queue * 64, queue)
        self.set("DOORBELL", 1 << 28, queue)
        self.set("DOORBELL_OFFSET", (0x200 + queue * 2) << 2, queue)
        self.set("IB_CNTL", 1, queue)
        self.set("RB_CNTL", control | 10 << 1 | 1, queue)
        self.wptr = rptr
        return self

    def put(self, *dwords, queue=0):
        for dword in dwords:
            at = RING + queue * 0x10000 + self.wptr % RING_BYTES
            self.pages.data[at : at + 4] = dword.to_bytes(4, "little")
            self.wptr += 4
        return self

    def ring(self, queue=0, time_us=1_000):
        assert self.engine.doorbell(0x200 + queue * 2, self.wptr, 8)
        self.board.clock.sleep_us(time_us)

    def run(self, *dwords, time_us=1_000):
        self.put(*dwords).ring(time_us=time_us)

    @property
    def stopped(self):
        return [event.text for event in self.board.log.find("violation") if "stops" in event.text]

    @property
    def rptr(self):
        return struct.unpack_from("<Q", self.pages.data, RPTR_AT)[0]

    def data(self, size, at=DATA):
        return bytes(self.pages.data[at : at + size])


@pytest.fixture(params=["navi31", "navi48"])
def rig(request):
    """A started engine of 6.0 and one of 7.0 in turn."""
    return Rig(chip=request.param).start()


def both(address):
    return address & 0xFFFF_FFFF, address >> 32


FENCE = (5, DATA, 0, 0x1234_5678)


def test_a_fence_stores_its_dword_and_the_read_pointer_is_reported(rig):
    rig.run(*FENCE)
    assert rig.data(4) == b"\x78\x56\x34\x12"
    assert rig.rptr == 16


@pytest.mark.parametrize("start", range(0, RING_BYTES, 52))
def test_a_packet_is_fetched_over_the_rings_end_at_every_offset(start):
    rig = Rig().start(rptr=start)
    # More than the ring holds, submitted by two writes to the doorbell.
    for number in range(70):
        rig.put(5, DATA + number * 4, 0, number)
        if number % 35 == 34:
            rig.ring()
    assert struct.unpack("<70I", rig.data(280)) == tuple(range(70))
    assert rig.rptr == start + 70 * 16


def test_pointers_go_on_beyond_4_gib():
    rig = Rig().start(rptr=0xFFFF_FFF0)
    rig.run(*FENCE, *FENCE)
    assert rig.rptr == 0x1_0000_0010
    assert (rig.get("RB_RPTR"), rig.get("RB_RPTR_HI")) == (0x10, 1)


@pytest.mark.parametrize("size", [1, 4, 255, 4096, 0x40_0000])
def test_a_copy_moves_count_plus_one_bytes(rig, size):
    rig.pages.mapped.update(range(0x800, 0x1000))
    rig.pages.data[0x80_0000 : 0x80_0000 + size] = bytes(range(251)) * (size // 251) + bytes(range(size % 251))
    rig.run(1, size - 1, 0, *both(0x80_0000), *both(DATA))
    assert rig.data(size) == rig.data(size, 0x80_0000)
    assert rig.data(1, DATA + size) == b"\0"


def test_a_broadcast_copy_has_two_destinations(rig):
    rig.pages.data[DATA : DATA + 5] = b"twice"
    rig.run(1 | 1 << 27, 4, 0, *both(DATA), *both(DATA + 0x100), *both(DATA + 0x200))
    assert rig.data(5, DATA + 0x100) == rig.data(5, DATA + 0x200) == b"twice"


@pytest.mark.parametrize(("mode", "expected"), [(0, b"ABCDEFGH"), (1, b"BADCFEHG"), (2, b"DCBAHGFE"), (3, b"HGFEDCBA")])
def test_a_copy_swaps_bytes_within_units(rig, mode, expected):
    rig.pages.data[DATA : DATA + 8] = b"ABCDEFGH"
    rig.run(1, 7, mode << 16, *both(DATA), *both(DATA + 64))
    assert rig.data(8, DATA + 64) == expected


@pytest.mark.parametrize(("chip", "shift"), [("navi31", 13), ("navi48", 16)])
def test_a_window_of_a_surface_is_copied_with_pitches(chip, shift):
    """`shift`: the first bit of a pitch. Source: Mesa ac_cmdbuf_sdma.c."""
    rig = Rig(chip=chip).start()
    # 16 bytes a row: elements of 2 bytes, pitch 8.
    source = bytearray(16 * 16)
    for row in range(16):
        source[row * 16 : row * 16 + 16] = bytes([row * 16 + column for column in range(16)])
    rig.pages.data[DATA : DATA + 256] = source
    target = DATA + 0x1000
    rig.run(
        1 | 4 << 8 | 1 << 29, *both(DATA), 2 | 3 << 16, 0 | 7 << shift, 63,
        *both(target), 0 | 1 << 16, 0 | 3 << shift, 15, 2 | 1 << 16, 0, 0,
    )  # fmt: skip
    # A box of 3 x 2 elements from (2, 3) to (0, 1); pitch 4.
    for row in range(2):
        assert rig.data(6, target + (1 + row) * 8) == bytes(source[(3 + row) * 16 + 4 : (3 + row) * 16 + 10])


def test_a_write_stores_its_dwords(rig):
    rig.run(2, *both(DATA), 2, 0x11111111, 0x22222222, 0x33333333)
    assert rig.data(16) == b"\x11" * 4 + b"\x22" * 4 + b"\x33" * 4 + bytes(4)


@pytest.mark.parametrize(("size", "unit"), [(0, b"\xbe"), (1, b"\xbe\xd0"), (2, b"\xbe\xd0\xbe\xd1")])
def test_a_fill_repeats_its_unit(rig, size, unit):
    rig.run(0xB | size << 30, *both(DATA), 0xD1BE_D0BE, 4095)
    assert rig.data(4096) == unit * (4096 // len(unit))
    assert rig.data(1, DATA + 4096) == b"\0"


def test_page_table_entries_grow_by_the_step_and_carry_the_flags(rig):
    rig.run(0xC, *both(DATA), 0x71, 0x0004_0000, 0x20_0000, 0, 0x1000, 0, 2)
    assert struct.unpack("<4Q", rig.data(32)) == (*tuple(0x4_0000_0020_0071 + 0x1000 * n for n in range(3)), 0)


def test_a_trap_interrupts_with_engine_and_queue():
    rig = Rig(index=1).start()
    rig.run(6, 0x55)
    assert rig.bell.heard == [(0x0A, 49, 0x10, 0, (0x55,))]


def test_no_trap_while_the_engines_interrupts_are_off(rig):
    rig.engine_set("CNTL", 0)
    rig.run(6, 0x55, *FENCE)
    assert rig.bell.heard == []
    assert rig.rptr == 24


def test_an_indirect_buffer_runs_in_its_vmid(rig):
    # VMID 3 sees it 16 MiB higher.
    ib = 0x240_0000
    code = struct.pack("<4I", 5, DATA + (16 << 20), 0, 0xABCD)
    rig.pages.data[ib : ib + 16] = code
    rig.run(0, 0, 4 | 3 << 16, *both(ib + (16 << 20)), 4, 0, 0)
    assert rig.stopped == []
    assert rig.data(4) == b"\xcd\xab\0\0"


def test_behind_an_indirect_buffer_the_ring_goes_on_with_its_own_packets(rig):
    # 64 bytes of NOP, more than the ring has before its fence.
    rig.run(0, 0, 4, *both(DATA + 0x1000), 16, 0, 0, *FENCE)
    assert rig.stopped == []
    assert rig.data(4) != bytes(4)


def test_an_unprivileged_ring_cannot_choose_another_vmid():
    rig = Rig().start(control=0x1000)
    rig.run(0, 0, 4 | 3 << 16, *both(DATA), 8, 0, 0)
    # Eight NOPs of VMID 0. VMID 3 does not map DATA.
    assert rig.data(4) == bytes(4)
    assert rig.stopped == []


def test_an_indirect_packet_must_end_on_eight_dwords(rig):
    rig.run(4, *both(DATA), 8, 0, 0)
    assert "not at a multiple of 8 dwords" in rig.stopped[0]


def test_indirect_buffers_do_not_nest(rig):
    rig.pages.data[DATA : DATA + 32] = struct.pack("<8I", 0, 0, 4, DATA, 0, 8, 0, 0)
    rig.run(0, 0, 4, *both(DATA), 8, 0, 0)
    assert "calls another" in rig.stopped[0]


def test_an_indirect_buffer_may_not_end_inside_a_packet(rig):
    rig.pages.data[DATA : DATA + 8] = struct.pack("<2I", 5, DATA)
    rig.run(0, 0, 4, *both(DATA), 2, 0, 0)
    assert "ends inside a packet" in rig.stopped[0]


def test_a_poll_of_memory_waits_for_its_value(rig):
    rig.run(8 | 3 << 28 | 1 << 31, *both(DATA + 64), 7, 0xFF, 0xFFF << 16 | 10, *FENCE)
    assert rig.data(4) == bytes(4)
    # The mask leaves the other bits out.
    rig.pages.data[DATA + 64 : DATA + 68] = b"\x07\xaa\xaa\xaa"
    rig.board.clock.sleep_us(10)
    assert rig.data(4) == b"\x78\x56\x34\x12"


def test_a_poll_of_a_register_reads_it_by_its_byte_address(rig):
    scratch = rig.cells.address("SCRATCH_REG0")
    rig.run(8 | 3 << 28, scratch, 0, 5, 0xFFFF_FFFF, 0xFFF << 16 | 10, *FENCE)
    assert rig.data(4) == bytes(4)
    rig.cells["SCRATCH_REG0"] = 5
    rig.board.clock.sleep_us(10)
    assert rig.data(4) != bytes(4)


def test_the_flush_form_writes_one_register_and_polls_the_other(rig):
    done, request = rig.cells.address("SCRATCH_REG0"), rig.cells.address("SCRATCH_REG1")
    rig.cells.on_write("SCRATCH_REG1", lambda value: rig.cells.__setitem__("SCRATCH_REG0", value))
    rig.run(8 | 1 << 26 | 3 << 28, done, request, 0x400, 0x400, 0xFFF << 16 | 10, *FENCE)
    assert rig.cells["SCRATCH_REG1"] == 0x400
    assert rig.data(4) != bytes(4)


def test_a_poll_with_a_count_gives_up_and_says_so(rig):
    rig.run(8 | 3 << 28 | 1 << 31, *both(DATA + 64), 7, 0xFF, 5 << 16 | 10, *FENCE)
    assert rig.data(4) != bytes(4)
    # GFX_11_0_0__SRCID__SDMA_POLL_TIMEOUT
    assert rig.bell.heard[0][:2] == (0x0A, 0x39)


VM_INVALIDATION = 8 | 4 << 8


def hub_register(rig, name):
    return rig.cells.address(f"GCVM_INVALIDATE_ENG12_{name}")


def test_an_invalidation_goes_to_the_named_engine_of_the_hub_and_is_awaited(rig):
    rig.run(VM_INVALIDATION | 12 << 16 | 31 << 24, 0x00F8_0008, 0xFFFF_FFFF, 0x1F << 16 | 0x0008, *FENCE)
    assert rig.cells.read(hub_register(rig, "REQ")) == 0x00F8_0008
    assert rig.cells.read(hub_register(rig, "ADDR_RANGE_LO32")) == 0xFFFF_FFFF
    assert rig.cells.read(hub_register(rig, "ADDR_RANGE_HI32")) == 0x1F
    # Nobody has acknowledged it.
    assert rig.data(4) == bytes(4)
    rig.cells["GCVM_INVALIDATE_ENG12_ACK"] = 0x0018
    rig.board.clock.sleep_us(10)
    assert rig.data(4) == FENCE[3].to_bytes(4, "little")


def test_an_invalidation_by_an_engine_that_no_hub_has_stops_the_queue(rig):
    rig.run(VM_INVALIDATION | 18 << 16 | 31 << 24, 0x00F8_0008, 0xFFFF_FFFF, 0x1F_0008)
    assert "no invalidation engine 18" in rig.stopped[0]


@pytest.mark.parametrize(("seen", "ran"), [(1, True), (0, False)])
def test_a_condition_skips_what_follows_unless_memory_has_the_reference(rig, seen, ran):
    rig.pages.data[DATA + 64] = seen
    rig.run(9, *both(DATA + 64), 1, 4, *FENCE, 5, DATA + 8, 0, 9)
    assert (rig.data(4) != bytes(4)) is ran
    assert rig.data(1, DATA + 8) == b"\x09"


@pytest.mark.parametrize(
    ("code", "before", "source", "result"),
    [
        (0x4F, 5, 7, 12), (0x0F, 0xFFFF_FFFF, 2, 1), (0x50, 5, 7, 0xFFFF_FFFE), (0x51, 0xFFFF_FFFF, 3, 0xFFFF_FFFF), (0x52, 0xFFFF_FFFF, 3, 3),
        (0x53, 0xFFFF_FFFF, 3, 3), (0x54, 0xFFFF_FFFF, 3, 0xFFFF_FFFF), (0x55, 0b1100, 0b1010, 0b1000), (0x56, 0b1100, 0b1010, 0b1110),
        (0x57, 0b1100, 0b1010, 0b0110), (0x58, 4, 5, 5), (0x58, 5, 5, 0), (0x59, 0, 5, 5), (0x59, 9, 5, 5), (0x59, 3, 5, 2), (0x47, 1, 8, 8),
        (0x6F, 0xFFFF_FFFF_FFFF_FFFF, 2, 1),
    ],
)  # fmt: skip
def test_atomics_do_what_the_isa_says(rig, code, before, source, result):
    size = 8 if code & 0x20 else 4
    rig.pages.data[DATA : DATA + size] = before.to_bytes(size, "little")
    rig.run(10 | code << 25, *both(DATA), source & 0xFFFF_FFFF, source >> 32, 0, 0, 0)
    assert int.from_bytes(rig.data(size), "little") == result


def test_a_looping_compare_and_swap_waits_for_its_value(rig):
    rig.run(10 | 1 << 16 | 0x48 << 25, *both(DATA), 9, 0, 4, 0, 10)
    assert rig.rptr == 0
    rig.pages.data[DATA] = 4
    rig.board.clock.sleep_us(10)
    assert rig.data(1) == b"\x09"
    assert rig.rptr == 32


def test_timestamps_are_the_100_mhz_counter_and_the_engines_own(rig):
    rig.board.clock.sleep_us(1_000_000)
    rig.run(0xD | 2 << 8, *both(DATA), 0xD, 0x1000, 0, 0xD | 1 << 8, *both(DATA + 8))
    shared, own = struct.unpack("<2Q", rig.data(16))
    assert 100_000_000 < shared < 100_100_000
    assert 0x1000 <= own < 0x1000 + 1_000


def test_a_register_write_changes_the_enabled_bytes():
    rig = Rig().start()
    rig.cells["SCRATCH_REG0"] = 0x11223344
    scratch = rig.cells.address("SCRATCH_REG0") // 4
    rig.run(14 | 0b0110 << 28, scratch, 0xAABBCCDD)
    assert rig.cells["SCRATCH_REG0"] == 0x11BBCC44


def test_a_register_write_of_7_0_has_a_byte_address_and_no_byte_enables():
    """sdma_v7_0.c, emit_wreg."""
    rig = Rig(chip="navi48").start()
    rig.run(14, rig.cells.address("SCRATCH_REG0"), 0xAABBCCDD)
    assert rig.cells["SCRATCH_REG0"] == 0xAABBCCDD
    rig.run(14, rig.cells.address("SCRATCH_REG0") + 2, 0)
    assert "a register write to byte" in rig.stopped[0]


def test_a_copy_of_7_0_may_have_a_dword_of_compression_settings():
    """sdma_v7_0.c, emit_copy_buffer: the CPV bit of the header."""
    rig = Rig(chip="navi48").start()
    rig.pages.data[DATA : DATA + 4] = b"copy"
    rig.run(1 | CPV, 3, 0, *both(DATA), *both(DATA + 64), 0, 5, *both(DATA + 128), 1)
    assert rig.data(4, DATA + 64) == b"copy"
    assert rig.data(1, DATA + 128) == b"\1"
    with pytest.raises(Unmodelled, match="compressed memory"):
        rig.run(1 | CPV, 3, 0, *both(DATA), *both(DATA + 64), 1 << 8)


@pytest.mark.parametrize(("privileged", "vmid"), [(0, 3), (1, 3), (0, 0)])
def test_a_process_may_not_write_registers(rig, privileged, vmid):
    rig.set("RB_CNTL", 0)
    rig.set("RB_BASE", RING + (16 << 20 if vmid == 3 else 0) >> 8)
    rig.set("RB_CNTL", privileged << 23 | vmid << 24 | 10 << 1 | 1)
    rig.run(*rig.register_write("SCRATCH_REG0", 0xAABBCCDD), 1 << 8)
    allowed = privileged or not vmid
    assert rig.cells["SCRATCH_REG0"] == (0xAABBCCDD if allowed else 0)
    # GFX_11_0_0__SRCID__SDMA_SRBMWRITE
    assert rig.bell.heard == ([] if allowed else [(0x0A, 0x32, 0, 3, ())])
    assert rig.get("RB_RPTR") == 16


def test_a_nop_skips_its_count(rig):
    rig.run(3 << 16, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, *FENCE)
    assert rig.data(4) != bytes(4)


@pytest.mark.parametrize("header", [0x63, 5 | 9 << 8, 9 | 1 << 8, 0xFF])
def test_an_unknown_packet_stops_the_queue_and_is_not_skipped(rig, header):
    rig.run(header, *FENCE)
    assert f"header {header:#010x}" in rig.stopped[0]
    assert rig.data(4) == bytes(4)


def test_the_watchdog_reports_a_stopped_queue(rig):
    rig.engine_set("WATCHDOG_CNTL", 1)
    rig.run(0xFF, time_us=99_000)
    assert rig.bell.heard == []
    rig.board.clock.sleep_us(2_000)
    # GFX_11_0_0__SRCID__SDMA_QUEUE_HANG
    assert rig.bell.heard[0][:2] == (0x0A, 0x37)


def test_a_packet_the_model_lacks_is_named_as_ours(rig):
    with pytest.raises(Unmodelled, match="DATA_FILL_MULTI"):
        rig.run(0xB | 1 << 8, 0, 0, 0, 0, 0)
    with pytest.raises(Unmodelled, match="protected memory"):
        Rig().start().run(1 | 1 << 18, 3, 0, *both(DATA), *both(DATA))


@pytest.mark.parametrize(
    ("packet", "reason"), [((5, DATA + 2, 0, 1), "multiple of 4"), ((2, DATA + 1, 0, 0, 1), "multiple of 4")]
)
def test_misaligned_addresses_stop_the_queue(rig, packet, reason):
    rig.run(*packet)
    assert reason in rig.stopped[0]


def test_a_copy_that_faults_in_the_middle_leaves_what_came_before(rig):
    # The last mapped page.
    target = 0x2FF_F000
    rig.pages.data[DATA : DATA + 8192] = b"x" * 8192
    rig.run(1, 8191, 0, *both(DATA), *both(target))
    assert rig.data(4096, target) == b"x" * 4096
    assert "write to 0x3000000" in rig.stopped[0]


def test_copies_of_two_queues_advance_together(rig):
    rig.start(queue=1)
    rig.pages.mapped.update(range(0x1000))
    size = 0x40_0000
    for queue, target in ((0, 0x200_0000), (1, 0x260_0000)):
        rig.wptr = 0
        rig.put(1, size - 1, 0, *both(0), *both(target), queue=queue)
        assert rig.engine.doorbell(0x200 + queue * 2, rig.wptr, 8)
    rig.pages.data[0:size] = b"\x5a" * size
    rig.board.clock.sleep_us(30)
    progress = [rig.data(size, at).count(b"\x5a") for at in (0x200_0000, 0x260_0000)]
    assert all(0 < done < size for done in progress)
    rig.board.clock.sleep_us(1_000)
    assert rig.data(size, 0x260_0000) == b"\x5a" * size


def test_halting_and_resetting_in_the_middle_of_a_copy_keeps_the_rest_undone(rig):
    rig.pages.mapped.update(range(0x1000))
    rig.pages.data[0:0x40_0000] = b"\x5a" * 0x40_0000
    rig.run(1, 0x3F_FFFF, 0, *both(0), *both(DATA), time_us=20)
    rig.halt(1)
    rig.board.clock.sleep_us(1_000)
    done = rig.data(0x40_0000).count(b"\x5a")
    assert 0 < done < 0x40_0000
    rig.engine_set("QUEUE_RESET_REQ", 1)
    rig.halt(0)
    rig.board.clock.sleep_us(1_000)
    assert rig.data(0x40_0000).count(b"\x5a") == done
    assert rig.get("RB_CNTL") & 1 == 0


def test_a_soft_reset_lifts_the_freeze_drops_the_queues_and_keeps_the_firmware(rig):
    rig.freeze()
    rig.engine.soft_reset()
    assert rig.get("RB_CNTL") & 1 == 0
    assert rig.cells.read(rig.cells.address("SDMA0_FREEZE")) == 0
    # Halted, as sdma_v6_0_soft_reset finds it before its start.
    assert rig.cells.read(rig.cells.address(f"SDMA0_{rig.row.control}")) & 1
    rig.halt(0)
    rig.set("RB_RPTR", 0)
    rig.set("RB_CNTL", 0x80_1000 | 10 << 1 | 1)
    rig.wptr = 0
    rig.run(*FENCE)
    assert rig.data(4) != bytes(4)


def test_an_engine_without_firmware_runs_nothing():
    rig = Rig()
    rig.halt(0)
    assert "without firmware" in rig.board.log.find("violation")[0].text
    rig.set("DOORBELL", 1 << 28)
    rig.set("DOORBELL_OFFSET", 0x200 << 2)
    rig.set("RB_BASE", RING >> 8)
    rig.set("RB_CNTL", 10 << 1 | 1)
    rig.run(*FENCE)
    assert rig.data(4) == bytes(4)


def test_a_doorbell_without_an_owner_is_not_taken(rig):
    assert not rig.engine.doorbell(0x300, 16, 8)
    rig.set("DOORBELL", 0)
    assert not rig.engine.doorbell(0x200, 16, 8)


def test_a_write_pointer_that_overruns_the_ring_stops_the_queue(rig):
    rig.wptr = RING_BYTES + 4
    rig.ring()
    assert "write pointer 0x1004" in rig.stopped[0]


def test_the_write_pointer_register_is_held_off_while_a_minor_update_is_on(rig):
    rig.put(*FENCE)
    rig.set("MINOR_PTR_UPDATE", 1)
    rig.set("RB_WPTR", 16)
    rig.board.clock.sleep_us(100)
    assert rig.data(4) == bytes(4)
    rig.set("MINOR_PTR_UPDATE", 0)
    rig.board.clock.sleep_us(100)
    assert rig.data(4) != bytes(4)


def test_a_queue_that_polls_finds_its_write_pointer_in_memory(rig):
    rig.set("RB_CNTL", 0)
    rig.set("RB_WPTR_POLL_ADDR_LO", WPTR_AT)
    rig.set("RB_CNTL", 0x80_1000 | 1 << 8 | 10 << 1 | 1)
    rig.put(*FENCE)
    rig.pages.data[WPTR_AT : WPTR_AT + 8] = (16).to_bytes(8, "little")
    rig.board.clock.sleep_us(100)
    assert rig.data(4) != bytes(4)


def test_a_descriptor_maps_a_queue_and_unmapping_gives_its_read_pointer(rig):
    mqd = rig.row.mqd(
        sdmax_rlcx_rb_cntl=10 << 1 | 1 << 12,
        sdmax_rlcx_rb_base=RING + 0x20000 >> 8,
        sdmax_rlcx_rb_rptr_addr_lo=RPTR_AT + 64,
        sdmax_rlcx_doorbell_offset=0x240 << 2,
    )
    rig.engine.map_queue(2, bytes(memory(mqd)), vmid=0)
    rig.wptr = 0
    rig.put(*FENCE, queue=2)
    assert rig.engine.doorbell(0x240, 16, 8)
    rig.board.clock.sleep_us(100)
    assert rig.data(4) != bytes(4)
    assert rig.engine.unmap_queue(2) == 16
    assert not rig.engine.doorbell(0x240, 32, 8)


def test_status_says_idle_only_when_nothing_is_to_be_done(rig):
    def idle():
        return rig.cells.read(rig.cells.address("SDMA0_STATUS_REG")) & 1

    assert idle()
    rig.run(8 | 3 << 28 | 1 << 31, *both(DATA + 64), 7, 0xFF, 0xFFF << 16 | 10)
    assert not idle()
    rig.pages.data[DATA + 64] = 7
    rig.board.clock.sleep_us(100)
    assert idle()


def test_fences_can_be_made_to_stick(rig):
    rig.board.faults.inject("sdma_stuck_fence", 1)
    rig.run(*FENCE, 5, DATA + 4, 0, 1)
    assert rig.data(8) == bytes(4) + b"\1\0\0\0"


# More than the 22-bit count before SDMA 6 holds; sdma_v6_0_0_pkt_open.h has 30 bits.
FIVE_MIB = 5 << 20


def test_one_packet_moves_more_than_4_mib(rig):
    rig.pages.data[DATA + FIVE_MIB - 4 : DATA + FIVE_MIB] = b"last"
    rig.run(1, FIVE_MIB - 1, 0, DATA, 0, DATA + (8 << 20), 0)
    assert rig.data(4, DATA + (8 << 20) + FIVE_MIB - 4) == b"last"
    rig.run(11 | 2 << 30, DATA, 0, 0x6C6C6966, FIVE_MIB - 1)
    assert rig.data(5, DATA + FIVE_MIB - 4) == b"fill\0"


def test_a_copy_downwards_is_not_taken_for_one_upwards(rig):
    with pytest.raises(Unmodelled, match="downwards"):
        rig.run(1 | 1 << 25, 3, 0, DATA, 0, DATA + 64, 0)


def test_a_queue_that_asked_for_what_the_model_lacks_goes_no_further(rig):
    with pytest.raises(Unmodelled):
        rig.run(7, 0, 0)
    rig.run(*FENCE)
    assert rig.data(4) == bytes(4)


@pytest.mark.parametrize("register", ["QUEUE_RESET_REQ", "QUEUE0_RB_CNTL"])
def test_a_packet_may_take_its_own_queue_down(rig, register):
    rig.run(*rig.register_write(f"SDMA0_{register}", int(register == "QUEUE_RESET_REQ")), *FENCE)
    assert rig.data(4) == bytes(4)
    rig.start().run(*FENCE)
    assert rig.data(4) == b"\x78\x56\x34\x12"


def test_a_freeze_holds_the_queues_until_it_is_lifted(rig):
    rig.freeze()
    rig.run(*FENCE)
    assert rig.data(4) == bytes(4)
    rig.engine_set("FREEZE", 0)
    rig.board.clock.sleep_us(10)
    assert rig.data(4) == b"\x78\x56\x34\x12"


def test_every_queue_tells_its_status(rig):
    assert [rig.get("CONTEXT_STATUS", queue) & 1 for queue in range(8)] == [1, 0, 0, 0, 0, 0, 0, 0]


def test_a_queue_stopped_within_a_packet_starts_again_at_that_packet(rig):
    rig.pages.mapped.update(range(0x1000))
    rig.pages.data[0:0x40_0000] = b"\x5a" * 0x40_0000
    rig.run(*FENCE, 1, 0x3F_FFFF, 0, *both(0), *both(DATA), time_us=20)
    rig.set("RB_CNTL", 0)
    assert rig.get("RB_RPTR") == 16
    assert 0 < rig.data(0x40_0000).count(b"\x5a") < 0x40_0000
    rig.set("RB_CNTL", 0x80_1000 | 10 << 1 | 1)
    rig.board.clock.sleep_us(1_000)
    assert rig.data(0x40_0000) == b"\x5a" * 0x40_0000
    assert rig.rptr == rig.get("RB_RPTR") == 44
