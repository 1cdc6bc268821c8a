"""Page tables, and the CPU's windows that use them. Entries are written as open-gpu-doc's dev_mmu.ref.txt has them."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.common.clock import WRITE_NS

# VRAM of the tables, one page each
ROOT, PD2, PD1, PD0, SMALL, BIG, INSTANCE = (0x100000 + 0x1000 * n for n in range(7))
BAR1_BLOCK, BAR2_BLOCK = 0xB80F40, 0xB80F48
VIDEO, COHERENT = 0, 2


def pde(table):
    """Return a directory entry: the table in video memory, aperture 1 in 2:1, its address from bit 8 on in 4 KiB."""
    return 1 << 1 | table >> 12 << 8


def pte(address, aperture=VIDEO, *, read_only=False):
    return 1 | aperture << 1 | read_only << 6 | address >> 12 << 8


@pytest.fixture
def memory(board):
    """A card with tables of all levels, bound to BAR1 by an instance block. 2 MiB of it have small and big pages."""
    put = board.vram.write
    put(ROOT, struct.pack("<Q", pde(PD2)))
    put(PD2, struct.pack("<Q", pde(PD1)))
    put(PD1, struct.pack("<Q", pde(PD0)))
    # a dual entry: the big table in units of 256 bytes from bit 4 on, then the small one
    put(PD0, struct.pack("<QQ", 1 << 1 | BIG >> 8 << 4, pde(SMALL)))
    put(PD0 + 16, struct.pack("<QQ", pte(0x400000), 0))
    put(SMALL, struct.pack("<QQ", pte(0x200000), pte(0x201000, read_only=True)))
    put(BIG + 8 * 2, struct.pack("<Q", pte(0x300000)))
    # PAGE_DIR_BASE: video memory, format of version 2 (bit 10)
    put(INSTANCE + 0x200, struct.pack("<Q", ROOT | 1 << 10))
    board.bars[0].write32(BAR1_BLOCK, 1 << 31 | INSTANCE >> 12)
    return board


def write(board, offset, value):
    board.bars[1].write32(offset, value)
    board.settle()


def faults(board):
    return [event.text for event in board.page_faults]


def invalidate(board, root=ROOT, command=0x80000001):
    board.bars[0].write32(0xB830A0, root >> 12 << 4)
    board.bars[0].write32(0xB830A4, 0)
    board.bars[0].write32(0xB830B0, command)
    assert not board.bars[0].read32(0xB830B0) >> 31


@pytest.mark.parametrize(
    ("offset", "vram_pa"), [(0x10, 0x200010), (0x2_0020, 0x300020), (0x20_0000, 0x400000), (0x3F_FFFC, 0x5FFFFC)]
)
def test_bar1_reaches_pages_of_every_size(memory, offset, vram_pa):
    write(memory, offset, 0x12345678)
    assert memory.vram.read(vram_pa, 4) == b"\x78\x56\x34\x12"
    assert memory.bars[1].read32(offset) == 0x12345678
    assert faults(memory) == []


def test_an_access_may_cross_pages(memory):
    memory.vram.write(0x200FF0, b"a" * 16)
    memory.vram.write(0x201000, b"b" * 16)
    assert memory.bars[1].read_block(0xFF0, 32) == b"a" * 16 + b"b" * 16


def test_adjacent_bytes_arrive_together_and_take_the_time_of_each(memory):
    data = bytes(range(1, 201))
    before_ns = memory.clock.now_ns
    memory.bars[1].write_run(0x2_0F80, data, 1)
    assert memory.clock.now_ns - before_ns == len(data) * WRITE_NS
    memory.settle()
    assert memory.vram.read(0x300F80, 201) == data + b"\0"
    # the second page is read-only
    memory.bars[1].write_run(0xFFC, b"abcdefgh", 2)
    memory.settle()
    assert memory.vram.read(0x200FFC, 8) == b"abcd" + bytes(4)
    assert faults(memory) == ["BAR1 written at 0x1000: RO_VIOLATION"]
    # registers get words
    memory.bars[0].write_run(0xB830A0, struct.pack("<II", 0x1230, 0), 4)
    memory.settle()
    assert memory.bars[0].read32(0xB830A0) == 0x1230
    with pytest.raises(ValueError, match="3 bytes at 0x0 are no words of 2 bytes"):
        memory.bars[1].write_run(0, b"abc", 2)


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        (0x1000, "BAR1 written at 0x1000: RO_VIOLATION"),
        (0x5000, "BAR1 written at 0x5000: PTE"),
        (0x40_0000, "BAR1 written at 0x400000: PDE"),
        (0x800_0000, "BAR1 written at 0x8000000: PDE"),
    ],
)
def test_a_fault_drops_the_access_and_says_where(memory, offset, why):
    write(memory, offset, 1)
    assert faults(memory) == [why]
    memory.page_faults.clear()
    assert memory.bars[1].read32(0x5000) == 0xFFFFFFFF
    assert faults(memory) == ["BAR1 read at 0x5000: PTE"]


def test_a_translation_stays_until_it_is_invalidated(memory):
    write(memory, 0, 0xAAAAAAAA)
    memory.vram.write(SMALL, struct.pack("<Q", pte(0x210000)))
    write(memory, 0, 0xBBBBBBBB)
    assert memory.vram.read(0x200000, 4) == b"\xbb" * 4
    # of another directory
    invalidate(memory, root=PD2)
    write(memory, 0, 0xCCCCCCCC)
    assert memory.vram.read(0x200000, 4) == b"\xcc" * 4
    invalidate(memory)
    write(memory, 0, 0xDDDDDDDD)
    assert (memory.vram.read(0x200000, 4), memory.vram.read(0x210000, 4)) == (b"\xcc" * 4, b"\xdd" * 4)
    memory.vram.write(SMALL, struct.pack("<Q", pte(0x220000)))
    # all page directories
    invalidate(memory, root=PD2, command=0x80000003)
    write(memory, 0, 0xEEEEEEEE)
    assert memory.vram.read(0x220000, 4) == b"\xee" * 4


def test_pages_may_lie_in_host_memory(memory):
    memory.config.write(4, memory.config.read(4, 2) | 4, 2)
    buffer = memory.alloc_host(4096)
    memory.vram.write(SMALL + 8 * 8, struct.pack("<Q", pte(buffer.bus_addr(), COHERENT)))
    write(memory, 0x8010, 0x1234)
    assert bytes(buffer.view[0x10:0x14]) == b"\x34\x12\0\0"


def test_bar2_is_physical_until_it_is_bound(memory):
    memory.bars[3].write32(0x200000, 0x55)
    memory.settle()
    assert memory.vram.read(0x200000, 4) == b"\x55\0\0\0"
    memory.bars[0].write32(BAR2_BLOCK, 1 << 31 | INSTANCE >> 12)
    memory.bars[3].write32(0, 0x66)
    memory.settle()
    assert memory.vram.read(0x200000, 4) == b"\x66\0\0\0"
    memory.bars[0].write32(BAR2_BLOCK, 0)
    assert memory.bars[3].read32(0x200000) == 0x66


def test_the_older_register_makes_bar1_physical_again(memory):
    memory.bars[0].write32(0x1704, 0)
    write(memory, 0x500000, 0x77)
    assert memory.vram.read(0x500000, 4) == b"\x77\0\0\0"
    memory.bars[0].write32(0x1704, 1 << 31 | INSTANCE >> 12)
    write(memory, 0, 0x78)
    assert memory.vram.read(0x200000, 4) == b"\x78\0\0\0"


def test_an_instance_block_without_a_directory_is_not_bound(memory):
    memory.bars[0].write32(BAR2_BLOCK, 1 << 31 | 0x500)
    memory.settle()
    assert [event.text for event in memory.violations] == ["BAR2's instance block has no page directory of version 2"]
