"""The graphics core's caches by themselves: what kernels, CP, SDMA and the host see of a page. Source: LLVM's
AMDGPUUsage, GCR_CNTL.
"""

from __future__ import annotations

import ctypes

import pytest

from ringup.silicon.amd.common.cache_control import Invalidation, from_gcr
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.common.pieces import Piece
from ringup.silicon.amd.memory.caches import CachedMemory, Caches
from ringup.silicon.amd.memory.vm import FORMATS, Kind, WalkFault
from ringup.silicon.common.cells import RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram

RIGHTS = 0x71  # AMDGPU_PTE_VALID, EXECUTABLE, READABLE, WRITEABLE
UNCACHED = {11: 3 << 48, 12: 3 << 54}  # MTYPE_UC: AMDGPU_PTE_MTYPE_NV10, AMDGPU_PTE_MTYPE_GFX12
VA, PA, SIZE = 0x10_0000, 0x4000, 0x8000
EVERYTHING = Invalidation(True, True, True, True, True, True)


class Rig:
    """A hub whose VMID maps one run of VRAM at VA, and the accesses of each party."""

    def __init__(self, flags=RIGHTS, gc=11):
        clock = VirtualClock()
        self.board = Board("navi31", clock, EventLog(clock), Faults(), RegisterSpace(), Vram(1 << 20), HostMemory())
        self.flags, self.caches, self.form = flags, Caches(self.board), FORMATS[gc]
        self.host(b"\1" * SIZE)

    def piece(self, vmid, gpu_va, write, execute=False):
        at = gpu_va - VA
        if not 0 <= at < SIZE:
            raise WalkFault(Kind.VALID, "not mapped")
        return Piece("vram", PA + at, SIZE - at, self.flags)

    def epoch(self, vmid):
        return 0

    def translations(self, vmid):
        return self.flags

    def host(self, data, at=0):
        self.board.vram.write(PA + at, data)

    def seen_by_host(self, at=0, size=4):
        return self.board.vram.read(PA + at, size)

    def kernel(self, *, store=None, code=False, at=0, size=4):
        """Run a kernel that stores, reads or executes; return what it read."""
        memory = CachedMemory(self, 8, "TCP", self.caches)
        region = memory.region(VA + at, store is not None, code)
        assert region.gpu_va <= VA + at
        place = region.pointer + VA + at - region.gpu_va
        if store is not None:
            ctypes.memmove(place, store, len(store))
        found = ctypes.string_at(place, size)
        memory.retire()
        return found

    @property
    def stale(self):
        return [event.text for event in self.board.log.find("stale", "gl")]


@pytest.fixture
def rig():
    return Rig()


def test_what_sdma_stores_is_seen_after_both_first_level_caches_are_invalidated(rig):
    assert rig.kernel() == b"\1" * 4
    rig.caches.write(PA, b"\2" * 4, "SDMA0")
    assert rig.kernel() == b"\1" * 4
    assert rig.stale == [
        f"line {VA:#x}: a stale copy is read from K$, GL0, GL1; it was written since by SDMA0 and not invalidated"
    ]
    rig.caches.invalidate(Invalidation(scalar=True))
    assert rig.kernel() == b"\1" * 4
    rig.caches.invalidate(Invalidation(gl0=True, gl1=True))
    rig.caches.invalidate(Invalidation(scalar=True))
    assert rig.kernel() == b"\2" * 4


def test_caches_may_be_invalidated_by_one_packet_each(rig):
    rig.kernel()
    rig.caches.write(PA, b"\2" * 4, "SDMA0")
    for one in ("scalar", "gl0", "gl1"):
        rig.caches.invalidate(Invalidation(**{one: True}))
    assert rig.kernel() == b"\2" * 4
    assert not rig.stale


@pytest.mark.parametrize(("left_out", "name"), [("scalar", "K$"), ("gl0", "GL0"), ("gl1", "GL1")])
def test_a_cache_that_nobody_invalidated_is_named(rig, left_out, name):
    rig.kernel()
    rig.caches.write(PA, b"\2" * 4, "SDMA0")
    rig.caches.invalidate(Invalidation(**{one: True for one in ("scalar", "gl0", "gl1") if one != left_out}))
    assert rig.kernel() == b"\1" * 4
    assert f"a stale copy is read from {name};" in rig.stale[0]


@pytest.mark.parametrize(
    ("left_out", "stale"), [("glk_inv", 1), ("glv_inv", 1), ("gl1_inv", 1), ("gl2_inv", 0), ("gli_inv", 0)]
)
def test_each_bit_of_gcr_cntl_that_is_left_out_leaves_a_stale_line(rig, left_out, stale):
    class Bits:
        glk_inv = glv_inv = gl1_inv = gl2_inv = gl2_wb = gli_inv = 1

    bits = Bits()
    setattr(bits, left_out, 0)
    rig.kernel()
    rig.caches.write(PA, b"\2" * 4, "SDMA0")
    rig.caches.invalidate(from_gcr(bits, instructions=bool(bits.gli_inv)))
    assert rig.kernel() == (b"\1" if stale else b"\2") * 4


def test_what_the_host_stores_is_behind_the_second_level_until_that_is_invalidated(rig):
    rig.kernel()
    rig.host(b"\2" * 4)
    first = Invalidation(scalar=True, gl0=True, gl1=True)
    rig.caches.invalidate(first)
    assert rig.kernel() == b"\1" * 4
    # CP and SDMA read the same.
    assert rig.caches.read(PA, 4) == b"\1" * 4
    rig.caches.invalidate(Invalidation(scalar=True, gl0=True, gl1=True, second_invalidate=True))
    assert rig.kernel() == b"\2" * 4


def test_what_a_kernel_stores_is_the_hosts_after_a_write_back(rig):
    rig.kernel(store=b"\7" * 8, at=0x1010)
    assert rig.seen_by_host(0x1010) == b"\1" * 4
    assert rig.caches.read(PA + 0x1010, 4) == b"\7" * 4
    rig.caches.invalidate(Invalidation(scalar=True, gl0=True, gl1=True, second_invalidate=True))
    assert rig.seen_by_host(0x1010) == b"\1" * 4
    rig.caches.invalidate(Invalidation(second_writeback=True))
    assert rig.seen_by_host(0x1010, 9) == b"\7" * 8 + b"\1"


def test_a_write_back_leaves_alone_what_others_stored_beside(rig):
    rig.kernel(store=b"\7" * 4)
    rig.host(b"\5" * 4, at=4)
    rig.caches.write(PA + 8, b"\6" * 4, "SDMA0")
    rig.caches.invalidate(EVERYTHING)
    assert rig.seen_by_host(0, 16) == b"\7" * 4 + b"\5" * 4 + b"\6" * 4 + b"\1" * 4
    assert rig.kernel(size=16) == rig.seen_by_host(0, 16)


def test_an_invalidation_without_write_back_keeps_unwritten_lines_and_renews_the_others(rig):
    rig.kernel(store=b"\7" * 4)
    rig.host(b"\5" * 4, at=4)
    rig.caches.invalidate(Invalidation(scalar=True, gl0=True, gl1=True, second_invalidate=True))
    assert rig.kernel(size=8) == b"\7" * 4 + b"\5" * 4


def test_a_kernel_of_another_queue_reads_lines_that_were_read_before(rig):
    rig.kernel()
    rig.kernel(store=b"\7" * 4)
    assert rig.kernel() == b"\1" * 4
    rig.caches.invalidate(Invalidation(scalar=True, gl0=True, gl1=True))
    assert rig.kernel() == b"\7" * 4


def test_code_is_fetched_anew_after_the_instruction_cache_is_invalidated(rig):
    rig.kernel(code=True)
    rig.caches.write(PA, b"\2" * 4, "CPC")
    rig.caches.invalidate(Invalidation(scalar=True, gl0=True, gl1=True, second_writeback=True, second_invalidate=True))
    assert rig.kernel(code=True) == b"\1" * 4
    assert rig.stale == [f"line {VA:#x}: a stale copy is read from I$; it was written since by CPC and not invalidated"]
    rig.caches.invalidate(Invalidation(instructions=True))
    assert rig.kernel(code=True) == b"\2" * 4


def test_a_run_of_code_is_contiguous(rig):
    rig.host(bytes(range(256)) * 32)
    memory = CachedMemory(rig, 8, "TCP", rig.caches)
    region = memory.region(VA, write=False, execute=True)
    assert region.size_bytes == SIZE
    assert ctypes.string_at(region.pointer, 0x2000) == bytes(range(256)) * 32


@pytest.mark.parametrize("gc", UNCACHED)
@pytest.mark.parametrize("translated", [True, False])
def test_uncached_memory_is_not_held_by_the_second_level(gc, translated):
    """Memory with MTYPE_UC, and memory that no table translates: gfxhub_v3_0.c, init_tlb_regs."""
    rig = Rig(RIGHTS | UNCACHED[gc] if translated else 0, gc)
    rig.kernel(store=b"\7" * 4)
    assert rig.seen_by_host() == b"\7" * 4
    rig.kernel()
    rig.host(b"\2" * 4)
    # The first level does hold it.
    assert rig.kernel() == b"\7" * 4
    rig.caches.invalidate(Invalidation(scalar=True, gl0=True, gl1=True))
    assert rig.kernel() == b"\2" * 4


def test_a_reset_forgets_unwritten_bytes(rig):
    rig.kernel(store=b"\7" * 4)
    rig.caches.reset()
    assert rig.kernel() == b"\1" * 4
    assert rig.seen_by_host() == b"\1" * 4


def test_lines_that_no_kernel_read_are_never_stale(rig):
    rig.kernel(at=0x80)
    rig.caches.write(PA, b"\2" * 0x200, "SDMA0")
    assert [rig.kernel(at=at) for at in (0, 0x80, 0x100)] == [b"\2" * 4, b"\1" * 4, b"\2" * 4]
    rig.host(b"\3" * 0x400)
    assert rig.kernel(at=0x200) == b"\3" * 4


def test_regions_handed_out_before_are_asked_for_again_after_an_invalidation(rig):
    memory = CachedMemory(rig, 8, "TCP", rig.caches)
    before = memory.epoch
    rig.caches.invalidate(Invalidation(second_writeback=True))
    assert memory.epoch > before
