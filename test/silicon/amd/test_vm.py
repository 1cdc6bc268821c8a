"""VM hubs: faults at every level, huge pages, fragments, apertures, stale translations and their invalidation, by the
documents.

Page-table entries are literals as amdgpu_vm.h defines the bits: valid 0, system 1, snooped 2, executable 4, readable 5,
writable 6, fragment 11:7; PRT 51, leaf 54, in GC 12 PRT 56, leaf 63.
"""

from __future__ import annotations

import ctypes
from functools import partial

import pytest

from ringup.silicon.amd.common.parts import Board, VmFault
from ringup.silicon.amd.memory.hub import GFXHUB, INVALIDATE_US, MMHUB, MMHUB_4_1, VmHub
from ringup.silicon.common.cells import Cells, RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram
from ringup.silicon.shader.common.state import MemoryFault

VALID, SYSTEM, SNOOPED, EXECUTE, READ, WRITE = (1 << n for n in (0, 1, 2, 4, 5, 6))
# By major version of GC.
LEAF, PRT = {11: 1 << 54, 12: 1 << 63}, {11: 1 << 51, 12: 1 << 56}
RW = VALID | READ | WRITE
# CONTEXT1_CNTL: the seven *_ENABLE_INTERRUPT bits 9, 11, ... 21 of gc_11_0_0_sh_mask.h, 10, 12, ... 22 of gc_12_0_0_.
ALL_FAULTS_INTERRUPT = {11: 0x2AAA00, 12: 0x555400}
STATUS = {11: "VM_L2_PROTECTION_FAULT_STATUS", 12: "VM_L2_PROTECTION_FAULT_STATUS_LO32"}
PRIVATE = "VM_L2_BANK_SELECT_RESERVED_CID2"
# get_invalidate_req of gfxhub_v3_0.c: L2 PTEs, PDE0-2 and L1 PTEs.
FULL_FLUSH = 0x00F8_0000
# The tests keep their tables here.
ROOT, PDB1, PDB0, PTB = 0x10000, 0x11000, 0x12000, 0x13000
VA = 0x0000_7F12_3456_7000  # 47:39 0xfe, 38:30 0x48, 29:21 0x1a2, 20:12 0x167
SLOTS = (0xFE, 0x48, 0x1A2, 0x167)


class Bell:
    """Records interrupts."""

    def __init__(self) -> None:
        self.heard: list[dict] = []

    def interrupt(self, client_id, source_id, **rest):
        self.heard.append({"client_id": client_id, "source_id": source_id, **rest})


class Rig:
    """A hub with its memory, and a four-level table for VMID 1 that maps nothing yet."""

    def __init__(self, row, block, chip="navi31"):
        clock = VirtualClock()
        self.board = Board(chip, clock, EventLog(clock), Faults(), RegisterSpace(), Vram(64 << 20), HostMemory())
        self.cells, self.bell, self.prefix = Cells(chip, block), Bell(), row.prefix
        self.major = 12 if chip == "navi48" else 11
        self.leaf, self.prt, self.all_faults, self.status = (
            table[self.major] for table in (LEAF, PRT, ALL_FAULTS_INTERRUPT, STATUS)
        )
        self.hub = VmHub(self.board, self.cells, row, self.bell, self.major)
        self.set("VM_INVALIDATE_ENG17_ADDR_RANGE_LO32", 0xFFFF_FFFF)
        self.set("VM_INVALIDATE_ENG17_ADDR_RANGE_HI32", 0x1F)
        self.set("VM_CONTEXT1_CNTL", 0x1 | 3 << 1 | self.all_faults)
        self.set("VM_CONTEXT1_PAGE_TABLE_BASE_ADDR_LO32", ROOT | VALID)
        self.set("VM_CONTEXT1_PAGE_TABLE_END_ADDR_LO32", 0xFFFF_FFFF)
        self.set("VM_CONTEXT1_PAGE_TABLE_END_ADDR_HI32", 0xF)
        self.entry(ROOT, SLOTS[0], PDB1 | VALID)
        self.entry(PDB1, SLOTS[1], PDB0 | VALID)
        self.entry(PDB0, SLOTS[2], PTB | VALID)

    def entry(self, table, slot, value):
        self.board.vram.write(table + slot * 8, value.to_bytes(8, "little"))

    def map(self, value, va=VA):
        self.entry(PTB, va >> 12 & 0x1FF, value)

    def set(self, name, value):
        self.cells.write(self.cells.address(self.prefix + name), value)

    def get(self, name):
        return self.cells.read(self.cells.address(self.prefix + name))

    def flush(self, request, engine=17):
        if self.prefix == "MM":
            assert self.get(f"VM_INVALIDATE_ENG{engine}_SEM") == 1
        self.set(f"VM_INVALIDATE_ENG{engine}_REQ", request)
        self.board.clock.sleep_us(INVALIDATE_US)
        self.set(f"VM_INVALIDATE_ENG{engine}_SEM", 0)
        if self.prefix == "MM":
            self.set(PRIVATE, 1 << 25)
            self.get(PRIVATE)

    def read(self, va=VA, vmid=1, size=4):
        return self.hub.read(vmid, va, size, "TCP")

    def fault(self, va=VA, write=False):
        """Make an access that must fault; return the status fields and the interrupt."""
        access = partial(self.hub.write, 1, va, b"\1\2\3\4", "TCP") if write else partial(self.read, va)
        with pytest.raises(VmFault):
            access()
        name = self.prefix + self.status
        fields = ("WALKER_ERROR", "PERMISSION_FAULTS", "MAPPING_ERROR", "CID", "RW", "VMID", "MORE_FAULTS")
        return {field: self.cells.get(name, field) for field in fields}


# Registers lie elsewhere in gc_11_0_3 than in gc_11_0_0, and in mmhub_3_0_2 than in mmhub_3_0_0.
@pytest.fixture(
    params=[
        (GFXHUB, "gc", "navi31"),
        (GFXHUB, "gc", "navi32"),
        (GFXHUB, "gc", "navi48"),
        (MMHUB, "mmhub", "navi31"),
        (MMHUB, "mmhub", "navi33"),
        (MMHUB_4_1, "mmhub", "navi48"),
    ],
    ids=["gfxhub 11.0.0", "gfxhub 11.0.3", "gfxhub 12.0.1", "mmhub 3.0.0", "mmhub 3.0.2", "mmhub 4.1.0"],
)
def rig(request):
    return Rig(*request.param)


@pytest.fixture
def gfx():
    return Rig(GFXHUB, "gc")


def test_a_page_is_found_through_four_levels(rig):
    rig.map(0x20_0000 | RW)
    rig.board.vram.write(0x20_0123, b"here")
    assert rig.read(VA + 0x123) == b"here"
    rig.hub.write(1, VA + 0xFFC, b"last", "TCP")
    assert rig.board.vram.read(0x20_0FFC, 4) == b"last"


def test_an_access_crosses_into_the_next_page_wherever_that_lies(rig):
    rig.map(0x20_0000 | RW)
    rig.map(0x30_0000 | RW, VA + 0x1000)
    rig.hub.write(1, VA + 0xFFE, b"abcd", "TCP")
    assert rig.board.vram.read(0x20_0FFE, 2) + rig.board.vram.read(0x30_0000, 2) == b"abcd"


def test_system_pages_lie_at_bus_addresses(rig):
    buffer = rig.board.host.allocate(4096)
    rig.map(buffer.bus_addr() | RW | SYSTEM | SNOOPED)
    rig.hub.write(1, VA + 8, b"host", "TCP")
    assert bytes(buffer.view[8:12]) == b"host"


@pytest.mark.parametrize(
    ("table", "slot", "size"), [(PDB0, SLOTS[2], 2 << 20), (PDB1, SLOTS[1], 1 << 30), (ROOT, SLOTS[0], 512 << 30)]
)
def test_a_leaf_at_any_directory_level_is_a_huge_page(rig, table, slot, size):
    # The huge page begins at the frame buffer's first byte.
    rig.entry(table, slot, RW | rig.leaf)
    rig.board.vram.write(0x1F_1234, b"huge")
    assert rig.read((VA & -size) + 0x1F_1234) == b"huge"
    if size > 2 << 20:
        rig.board.vram.write(0x250_0004, b"more")
        assert rig.read((VA & -size) + 0x250_0004) == b"more"


def test_a_huge_page_begins_at_any_page_of_memory(rig):
    # Drivers align a huge page only by its virtual address.
    rig.entry(PDB0, SLOTS[2], 0x3_4000 | RW | rig.leaf)
    rig.board.vram.write(0x3_4000 + 0x1F_1234, b"huge")
    assert rig.read((VA & -(2 << 20)) + 0x1F_1234) == b"huge"


@pytest.mark.parametrize(
    ("table", "slot", "walker"),
    [(PDB0, SLOTS[2], 2), (PDB1, SLOTS[1], 3), (ROOT, SLOTS[0], 4)],
    ids=["pde0", "pde1", "pde2"],
)
def test_an_invalid_directory_entry_faults_at_its_level(rig, table, slot, walker):
    rig.entry(table, slot, PTB)
    seen = rig.fault()
    assert (seen["WALKER_ERROR"], seen["MAPPING_ERROR"]) == (walker, 1)


def test_an_invalid_page_is_the_documented_fault(gfx):
    # Documentation/gpu/amdgpu/debugging.rst: status 0x00301030 is TCP, permission faults 3, read, vmid 3
    assert gfx.fault()["PERMISSION_FAULTS"] == 3
    assert gfx.get("VM_L2_PROTECTION_FAULT_STATUS") == 0x0010_1030
    assert gfx.get("VM_L2_PROTECTION_FAULT_ADDR_LO32") == VA >> 12 & 0xFFFF_FFFF
    assert gfx.get("VM_L2_PROTECTION_FAULT_ADDR_HI32") == VA >> 44


@pytest.mark.parametrize(("flags", "write", "permission"), [(VALID | READ, True, 4), (VALID | WRITE, False, 2)])
def test_a_missing_permission_faults_and_says_which(rig, flags, write, permission):
    rig.map(0x20_0000 | flags)
    seen = rig.fault(write=write)
    assert (seen["PERMISSION_FAULTS"], seen["RW"], seen["WALKER_ERROR"]) == (permission, int(write), 0)


def test_code_needs_the_execute_bit(gfx):
    gfx.map(0x20_0000 | RW)
    memory = gfx.hub.memory(1, "TCP")
    with pytest.raises(MemoryFault, match="EXECUTE"):
        memory.region(VA, False, execute=True)
    gfx.map(0x20_0000 | RW | EXECUTE)
    gfx.flush(FULL_FLUSH | 2)
    assert memory.region(VA, False, execute=True).executable


@pytest.mark.parametrize("page", [0xF, 0x21])
def test_pages_outside_start_and_end_are_a_range_fault(rig, page):
    rig.set("VM_CONTEXT1_PAGE_TABLE_START_ADDR_LO32", 0x10)
    rig.set("VM_CONTEXT1_PAGE_TABLE_END_ADDR_LO32", 0x20)
    rig.set("VM_CONTEXT1_PAGE_TABLE_END_ADDR_HI32", 0)
    assert rig.fault(page << 12)["WALKER_ERROR"] == 1


def test_a_disabled_context_translates_nothing(rig):
    rig.map(0x20_0000 | RW)
    rig.set("VM_CONTEXT1_CNTL", 3 << 1 | rig.all_faults)
    assert rig.fault()["WALKER_ERROR"] == 1


def test_the_first_fault_stays_until_it_is_cleared_and_later_ones_only_leave_a_mark(rig):
    rig.fault(VA)
    second = rig.fault(VA + 0x5000, write=True)
    assert (second["MORE_FAULTS"], second["RW"]) == (1, 0)
    assert rig.get("VM_L2_PROTECTION_FAULT_ADDR_LO32") == VA >> 12 & 0xFFFF_FFFF
    rig.set("VM_L2_PROTECTION_FAULT_CNTL", 1)
    assert rig.get(rig.status) == 0
    assert rig.fault(VA + 0x5000, write=True)["RW"] == 1


def test_a_fault_interrupts_with_page_and_direction_when_its_kind_is_enabled(gfx):
    gfx.fault(write=True)
    # gmc_v11_0.c, process_interrupt: data 0 is the page's low word, data 1 bits 3:0 the high ones, bit 5 a write
    assert gfx.bell.heard == [
        {"client_id": 0x0A, "source_id": 0, "vmid": 1, "data": (VA >> 12 & 0xFFFF_FFFF, VA >> 44 | 0x20)}
    ]
    gfx.bell.heard.clear()
    gfx.set("VM_CONTEXT1_CNTL", 0x1 | 3 << 1)
    gfx.fault()
    assert gfx.bell.heard == []


def test_a_translation_stays_until_it_is_invalidated(rig):
    rig.map(0x20_0000 | RW)
    rig.board.vram.write(0x20_0000, b"old!")
    rig.board.vram.write(0x30_0000, b"new!")
    assert rig.read() == b"old!"
    rig.map(0x30_0000 | RW)
    assert rig.read() == b"old!"
    # This flush is for another VMID.
    rig.flush(FULL_FLUSH | 1 << 2)
    assert rig.read() == b"old!"
    rig.flush(FULL_FLUSH | 1 << 1)
    assert rig.read() == b"new!"


@pytest.mark.parametrize("rig", [(MMHUB, "mmhub", "navi31")], ids=["mmhub 3.0.0"], indirect=True)
@pytest.mark.parametrize("waits", [True, False])
def test_mmhub_keeps_translations_that_no_invalidation_engine_reaches(waits, rig):
    """gmc_v11_0.c, flush_gpu_tlb: bit 25, then "Read back the register to ensure the invalidation is complete"."""
    rig.map(0x20_0000 | RW)
    rig.board.vram.write(0x20_0000, b"old!")
    rig.board.vram.write(0x30_0000, b"new!")
    rig.read()
    rig.map(0x30_0000 | RW)
    assert rig.get("VM_INVALIDATE_ENG17_SEM") == 1
    rig.set("VM_INVALIDATE_ENG17_REQ", FULL_FLUSH | 1 << 1)
    rig.board.clock.sleep_us(INVALIDATE_US)
    assert rig.get("VM_INVALIDATE_ENG17_ACK") == 1 << 1
    rig.set("VM_INVALIDATE_ENG17_SEM", 0)
    assert rig.read() == b"old!"
    # Without bit 25 the write invalidates nothing.
    rig.set(PRIVATE, 0)
    assert rig.get(PRIVATE) == 0
    assert rig.read() == b"old!"
    rig.set(PRIVATE, 1 << 25)
    if waits:
        assert rig.get(PRIVATE) == 1 << 25
    else:
        # The invalidation is in progress.
        assert rig.read() == b"old!"
        rig.board.clock.sleep_us(1)
    assert rig.read() == b"new!"


def test_an_unmapped_page_is_still_reached_until_the_flush(rig):
    rig.map(0x20_0000 | RW)
    before = rig.read()
    rig.map(0)
    assert rig.read() == before
    rig.flush(FULL_FLUSH | 2)
    rig.fault()


def test_a_page_that_was_invalid_is_seen_at_once_when_it_is_mapped(rig):
    rig.fault()
    rig.map(0x20_0000 | RW)
    assert rig.read() == bytes(4)


def test_directories_are_cached_too_and_need_their_own_bits(rig):
    rig.map(0x20_0000 | RW)
    rig.board.vram.write(0x20_0000, b"old!")
    rig.read()
    rig.board.vram.write(0x30_0000, b"new!")
    rig.entry(0x15000, SLOTS[3], 0x30_0000 | RW)
    rig.entry(PDB0, SLOTS[2], 0x15000 | VALID)
    # It invalidates page-table entries only.
    rig.flush(1 << 19 | 1 << 23 | 2)
    assert rig.read() == b"old!"
    rig.flush(FULL_FLUSH | 2)
    assert rig.read() == b"new!"


@pytest.mark.parametrize("bits", [1 << 19, 1 << 23])
def test_one_of_the_two_cache_levels_alone_leaves_the_translation(rig, bits):
    rig.map(0x20_0000 | RW)
    rig.read()
    rig.map(0)
    rig.flush(bits | 2)
    assert rig.read() == bytes(4)


def test_an_invalidation_of_a_range_leaves_the_rest(rig):
    rig.map(0x20_0000 | RW)
    rig.map(0x21_0000 | RW, VA + 0x1000)
    rig.read(VA)
    rig.read(VA + 0x1000)
    rig.map(0)
    rig.map(0, VA + 0x1000)
    page = (VA >> 12) + 1
    # S is clear: this page only.
    rig.set("VM_INVALIDATE_ENG17_ADDR_RANGE_LO32", page << 1 & 0xFFFF_FFFF)
    rig.set("VM_INVALIDATE_ENG17_ADDR_RANGE_HI32", page >> 31)
    rig.flush(FULL_FLUSH | 2)
    rig.read(VA)
    rig.fault(VA + 0x1000)


def test_the_acknowledge_drops_with_the_request_and_comes_back_when_it_is_done(rig):
    rig.flush(FULL_FLUSH | 0b110)
    assert rig.get("VM_INVALIDATE_ENG17_ACK") == 0b110
    rig.get("VM_INVALIDATE_ENG17_SEM")
    rig.set("VM_INVALIDATE_ENG17_REQ", FULL_FLUSH | 0b010)
    assert rig.get("VM_INVALIDATE_ENG17_ACK") == 0b100
    rig.board.clock.sleep_us(INVALIDATE_US)
    assert rig.get("VM_INVALIDATE_ENG17_ACK") == 0b110


def test_an_engine_that_never_acknowledges_can_be_switched_on(rig):
    rig.board.faults.inject("stuck_tlb_ack", 1)
    rig.flush(FULL_FLUSH | 2)
    assert rig.get("VM_INVALIDATE_ENG17_ACK") == 0
    rig.flush(FULL_FLUSH | 2)
    assert rig.get("VM_INVALIDATE_ENG17_ACK") == 2


def test_the_semaphore_is_one_owners_until_it_is_given_back(rig):
    assert [rig.get("VM_INVALIDATE_ENG3_SEM") for _ in range(3)] == [1, 0, 0]
    rig.set("VM_INVALIDATE_ENG3_SEM", 0)
    assert rig.get("VM_INVALIDATE_ENG3_SEM") == 1
    assert rig.get("VM_INVALIDATE_ENG4_SEM") == 1


def test_mmhub_notes_a_request_without_its_semaphore_and_gfxhub_does_not_ask(rig):
    rig.set("VM_INVALIDATE_ENG17_REQ", FULL_FLUSH | 2)
    assert len(rig.board.log.find("unguarded")) == (rig.prefix == "MM")
    # gmc_v11_0.c does so once the micro engine scheduler runs.
    assert not rig.board.log.find("violation")


def test_a_fragment_is_cached_as_a_whole(rig):
    for number in range(16):
        rig.map(0x20_0000 + number * 4096 | RW | 4 << 7, (VA & ~0xFFFF) + number * 4096)
    rig.read(VA)
    # The entries are gone, but one cached entry covers all sixteen pages.
    rig.board.vram.write(PTB, bytes(4096))
    assert rig.read((VA & ~0xFFFF) + 15 * 4096) == bytes(4)
    rig.flush(FULL_FLUSH | 2)
    rig.fault((VA & ~0xFFFF) + 15 * 4096)


def test_a_fragment_whose_pages_are_not_contiguous_gives_wrong_memory_as_on_the_card(rig):
    first = VA & ~0xFFFF
    for number in range(16):
        rig.map(0x20_0000 + number * 0x10000 | RW | 4 << 7, first + number * 4096)
    rig.board.vram.write(0x20_0000 + 0x3000, b"next")
    rig.read(first)
    assert rig.read(first + 0x3000) == b"next"


def test_partly_resident_pages_read_zero_and_swallow_writes(rig):
    rig.map(rig.prt | SYSTEM | SNOOPED | READ | WRITE)
    rig.hub.write(1, VA, b"gone", "TCP")
    assert rig.read() == bytes(4)
    memory = rig.hub.memory(1, "TCP")
    region = memory.region(VA, False)
    assert (region.writable, ctypes.string_at(region.pointer, 4)) == (False, bytes(4))


def test_a_flat_table_counts_from_its_start(rig):
    """Context 0 as amdgpu's GART uses it: depth 0, and the first entry of the table is that of the start page."""
    rig.set("VM_CONTEXT0_CNTL", 1)
    start = 0x7FFF_0000_0000 >> 12
    for name, value in (("START", start), ("END", start + 0x1FFFF)):
        rig.set(f"VM_CONTEXT0_PAGE_TABLE_{name}_ADDR_LO32", value & 0xFFFF_FFFF)
        rig.set(f"VM_CONTEXT0_PAGE_TABLE_{name}_ADDR_HI32", value >> 32)
    rig.set("VM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", 0x40_0000 | VALID)
    rig.set("MC_VM_MX_L1_TLB_CNTL", 1 | 3 << 3)
    buffer = rig.board.host.allocate(4096)
    rig.entry(0x40_0000, 0x700, buffer.bus_addr() | 0x73 | SNOOPED)
    buffer.view[0:4] = b"gart"
    assert rig.read(0x7FFF_0070_0000, vmid=0) == b"gart"


def test_vmid_0_reaches_the_frame_buffer_through_its_aperture_and_others_do_not(rig):
    rig.set("MC_VM_FB_LOCATION_BASE", 0x8000)  # << 24: 0x80_0000_0000
    rig.set("MC_VM_FB_LOCATION_TOP", 0x8003)
    rig.set("MC_VM_MX_L1_TLB_CNTL", 1 | 3 << 3)
    rig.set("MC_VM_SYSTEM_APERTURE_LOW_ADDR", 0x80_0000_0000 >> 18)
    rig.set("MC_VM_SYSTEM_APERTURE_HIGH_ADDR", 0x80_03FF_FFFF >> 18)
    rig.board.vram.write(0x123_4000, b"vram")
    assert rig.read(0x80_0123_4000, vmid=0) == b"vram"
    with pytest.raises(VmFault):
        rig.read(0x80_0123_4000, vmid=1)


def test_agp_reaches_bus_addresses_without_a_table(rig):
    rig.set("MC_VM_MX_L1_TLB_CNTL", 1 | 3 << 3)
    rig.set("MC_VM_AGP_BASE", 0x1_0000_0000 >> 24)
    rig.set("MC_VM_AGP_BOT", 0x90_0000_0000 >> 24)
    rig.set("MC_VM_AGP_TOP", 0x90_00FF_FFFF >> 24)
    rig.set("MC_VM_SYSTEM_APERTURE_LOW_ADDR", 0x90_0000_0000 >> 18)
    rig.set("MC_VM_SYSTEM_APERTURE_HIGH_ADDR", 0x90_00FF_FFFF >> 18)
    buffer = rig.board.host.allocate(4096)
    assert buffer.bus_addr() >> 24 == 0x1_0000_0000 >> 24
    buffer.view[0:4] = b"agp!"
    assert rig.read(0x90_0000_0000 + buffer.bus_addr() % (1 << 24), vmid=0) == b"agp!"


def test_faults_fall_back_to_the_default_page_when_context_and_hub_say_so(rig):
    spare = rig.board.host.allocate(4096)
    spare.view[0:4] = b"dumb"
    # Every interrupt bit and default bit.
    rig.set("VM_CONTEXT1_CNTL", 1 | 3 << 1 | rig.all_faults | rig.all_faults << 1)
    rig.set("VM_L2_PROTECTION_FAULT_CNTL", 0x1FFC)
    # ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY
    rig.set("VM_L2_CNTL", 1 << 11)
    rig.set("VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32", spare.bus_addr() >> 12)
    for faults in (1, 2):
        assert rig.read(VA) == b"dumb"
        assert len(rig.bell.heard) == faults


def test_tables_in_host_memory_are_walked_too(rig):
    table = rig.board.host.allocate(4096)
    table.view[SLOTS[3] * 8 : SLOTS[3] * 8 + 8] = (0x20_0000 | RW).to_bytes(8, "little")
    rig.entry(PDB0, SLOTS[2], table.bus_addr() | VALID | SYSTEM)
    rig.board.vram.write(0x20_0000, b"walk")
    assert rig.read() == b"walk"


def test_host_memory_that_was_reached_before_is_there_only_as_long_as_it_is(rig):
    first, second = rig.board.host.allocate(4096), rig.board.host.allocate(4096)
    first.view[:4], second.view[:4] = b"1111", b"2222"
    rig.map(first.bus_addr() | RW | SYSTEM)
    for _ in range(2):
        rig.hub.write(1, VA + 4, b"abcd", "TCP")
        assert rig.read(size=8) == b"1111abcd"
    rig.map(second.bus_addr() | RW | SYSTEM)
    # The translation is cached.
    assert rig.read() == b"1111"
    rig.flush(FULL_FLUSH | 1 << 1)
    assert rig.read() == b"2222"
    rig.board.host.reachable = False
    assert rig.read() == b"\xff" * 4
    rig.board.host.reachable = True
    assert rig.read() == b"2222"
    second.free()
    assert rig.read() == b"\xff" * 4
    assert rig.board.host.errors == 2


def test_host_memory_that_was_reached_before_keeps_its_permissions_and_its_watchers(rig):
    memory, heard = rig.board.host.allocate(4096), []
    rig.map(memory.bus_addr() | VALID | READ | SYSTEM)
    for _ in range(2):
        assert rig.read() == bytes(4)
        assert rig.fault(write=True)["RW"] == 1
    rig.map(memory.bus_addr() | RW | SYSTEM)
    rig.flush(FULL_FLUSH | 1 << 1)
    for _ in range(2):
        rig.hub.write(1, VA, b"abcd", "TCP")
    rig.board.host.watch(memory.bus_addr(), memory.bus_addr() + 4, lambda *where: heard.append(where))
    rig.hub.write(1, VA, b"efgh", "TCP")
    assert heard == [(memory.bus_addr(), 4)]


def test_regions_for_the_cores_join_what_is_contiguous(gfx):
    for number in range(8):
        gfx.map(0x20_0000 + number * 4096 | RW, VA + number * 4096)
    gfx.map(0x70_0000 | RW, VA + 8 * 4096)
    memory = gfx.hub.memory(1, "TCP")
    region = memory.region(VA + 0x2345, True)
    assert (region.gpu_va, region.size_bytes) == (VA + 0x2000, 6 * 4096)
    gfx.board.vram.write(0x20_2000, b"core")
    assert ctypes.string_at(region.pointer, 4) == b"core"


def test_a_region_found_again_is_as_the_tables_are_then(gfx):
    gfx.map(0x20_0000 | RW)
    memory = gfx.hub.memory(1, "TCP")
    first = memory.region(VA, False)
    assert (first.size_bytes, memory.region(VA + 8, False)) == (4096, first)
    # A page that was invalid before is seen at once.
    gfx.map(0x20_1000 | RW, VA + 4096)
    assert memory.region(VA, False).size_bytes == 2 * 4096
    assert gfx.hub.memory(1, "TCP").region(VA, False).size_bytes == 2 * 4096
    gfx.map(0x30_0000 | RW)
    # The translation is cached.
    assert memory.region(VA, False).pointer == first.pointer
    gfx.flush(FULL_FLUSH | 1 << 1)
    assert memory.region(VA, False).pointer == first.pointer + 0x10_0000
    assert memory.region(VA, True).size_bytes == 4096
    with pytest.raises(MemoryFault, match="EXECUTE fault"):
        memory.region(VA, False, execute=True)


def test_a_region_of_host_memory_goes_with_it(gfx):
    host = gfx.board.host.allocate(4096)
    gfx.map(host.bus_addr() | RW | SYSTEM)
    memory = gfx.hub.memory(1, "TCP")
    assert memory.region(VA, True) == memory.region(VA, True)
    host.free()
    with pytest.raises(MemoryFault, match="nothing answers"):
        memory.region(VA, True)


def test_an_invalidation_or_freed_host_memory_ages_the_regions(gfx):
    memory = gfx.hub.memory(1, "TCP")
    before = memory.epoch
    gfx.flush(FULL_FLUSH | 4)
    assert memory.epoch == before
    gfx.flush(FULL_FLUSH | 2)
    assert memory.epoch > before
    before = memory.epoch
    gfx.board.host.allocate(4096).free()
    assert memory.epoch > before


def test_a_fault_of_the_cores_is_recorded_with_their_client(gfx):
    with pytest.raises(MemoryFault, match="VALID fault"):
        gfx.hub.memory(1, "TCP").region(VA + 0x123, True)
    name = "GCVM_L2_PROTECTION_FAULT_STATUS"
    # TCP is client 8 of gfxhub_v3_0.c
    assert (gfx.cells.get(name, "CID"), gfx.cells.get(name, "RW")) == (8, 1)


def test_a_page_beyond_the_cards_memory_answers_nothing_and_is_noted(rig):
    rig.map(0x4000_0000 | RW)
    assert rig.read() == b"\xff" * 4
    assert "where no memory is" in rig.board.log.find("violation")[0].text


def test_behind_the_end_of_vram_is_nothing_however_large_the_frame_buffer_claims_to_be(rig):
    # 128 MiB, of which 64 exist.
    rig.set("MC_VM_FB_LOCATION_TOP", 0x7)
    end = rig.board.vram.size_bytes
    rig.hub.write(0, end - 2, b"abcd", "MP0")
    assert rig.hub.read(0, end - 2, 4, "MP0") == b"ab\xff\xff"
    assert rig.board.log.find("violation")


def test_the_interrupt_handler_is_mmhubs_client_15():
    # mmhub_v3_0.c, mmhub_client_ids_v3_0_0: OSSSYS
    rig = Rig(MMHUB, "mmhub")
    with pytest.raises(VmFault):
        rig.hub.write(1, VA, b"\0", "OSSSYS")
    assert rig.cells.get("MMVM_L2_PROTECTION_FAULT_STATUS", "CID") == 15
