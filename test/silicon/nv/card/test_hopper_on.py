"""What differs on the bus from Hopper on, on GH100 and GB202: page tables of six levels, the registers that bind BAR1
and place PRAMIN, the mirror of configuration space, interrupts, doorbells, and what these chips' models refuse.

Entries are NV_MMU_VER3_* of dev_mmu.h (gh100); offsets those of dev_vm.h, pri_nv_xal_ep.h and dev_xtl_ep_pri.h.
"""

from __future__ import annotations

import struct

import pytest

from ringup.errors import NotSupported
from ringup.silicon import nvidia_kernel
from ringup.silicon.nv.card import VirtualNvidia

PD4, PD3, PD2, PD1, PD0, SMALL, BIG, INSTANCE = (0x100000 + 0x1000 * n for n in range(8))
LOW, HIGH, WINDOW = 0xB80F60, 0xB80F64, 0x10FD40
# PCF of pages: read and write, read-only, and "no page of 4 KiB is valid" in an entry of a big page
RW, RO, NO_SMALL = 0x10, 0x14, 0x03


def pde(table, aperture=1):
    return aperture << 1 | 2 << 3 | table


def pte(address, pcf=RW, aperture=0):
    return 1 | aperture << 1 | pcf << 3 | 6 << 8 | address


@pytest.fixture(params=["gh100", "gb202"])
def card(request):
    """A card with tables for the start of the address space, and for its upper half, bound to BAR1."""
    made = VirtualNvidia(request.param, vram_bytes=512 << 20)
    put = made.vram.write
    for table, below in ((PD4, PD3), (PD3, PD2), (PD2, PD1), (PD1, PD0)):
        put(table, struct.pack("<Q", pde(below)))
    put(PD0, struct.pack("<QQ", pde(BIG), pde(SMALL)))
    put(PD0 + 16, struct.pack("<QQ", pte(0x400000), 0))
    put(SMALL, struct.pack("<QQ", pte(0x200000), pte(0x201000, RO)))
    put(SMALL + 8 * 16, struct.pack("<Q", pte(0x203000)))
    put(BIG + 8 * 1, struct.pack("<QQ", NO_SMALL << 3, pte(0x300000)))
    put(INSTANCE + 0x200, struct.pack("<Q", PD4 | 1 << 10))
    # mode virtual, video memory; the upper half binds
    made.bars[0].write32(LOW, INSTANCE | 1 << 9)
    made.bars[0].write32(HIGH, 0)
    made.settle()
    return made


@pytest.mark.parametrize(
    ("offset", "vram_pa"), [(0x10, 0x200010), (0x1010, 0x201010), (0x20010, 0x300010), (0x201234, 0x401234)]
)
def test_pages_of_every_size_are_walked(card, offset, vram_pa):
    card.vram.write(vram_pa, b"abcd")
    assert card.bars[card.chip.memory_bars[1]].read32(offset) == 0x64636261


def test_a_page_that_may_only_be_read_drops_writes(card):
    card.bars[card.chip.memory_bars[1]].write32(0x1000, 7)
    card.settle()
    assert card.vram.read(0x201000, 4) == bytes(4)
    assert [event.text for event in card.page_faults] == ["BAR1 written at 0x1000: RO_VIOLATION"]


def test_a_big_page_may_say_that_no_small_one_is_valid(card):
    """The small table has one there."""
    assert card.bars[card.chip.memory_bars[1]].read32(0x10000) == 0xFFFFFFFF
    assert [event.text for event in card.page_faults] == ["BAR1 read at 0x10000: PTE"]


def test_bar1_is_physical_again_without_the_upper_half(card):
    card.vram.write(0x10, b"wxyz")
    card.bars[0].write32(LOW, 0)
    assert card.bars[card.chip.memory_bars[1]].read32(0x10) == 0x7A797877


def test_pramin_is_placed_by_the_bus_interface(card):
    card.vram.write(0x650000, b"here")
    card.bars[0].write32(WINDOW, 0x65)
    assert card.bars[0].read32(0x700000) == 0x65726568


def test_configuration_space_is_mirrored_where_hopper_has_it(card):
    assert card.bars[0].read32(0x92000) == {"gh100": 0x233110DE, "gb202": 0x2BB510DE}[card.chip.name]


def test_enabling_the_top_of_the_tree_allows_the_next_message(card):
    """There are 16 leaves; leaf 9 belongs to bit 4 of the top."""
    sent = []
    card.tree_of_interrupts._send = lambda: sent.append(1)
    card.bars[0].write32(0xB81200 + 4 * 9, 1)
    card.bars[0].write32(0xB81608, 1 << 4)
    for expected in (1, 2):
        card.bars[0].write32(0xB81640, 9 * 32)
        card.settle()
        assert len(sent) == expected
        card.bars[0].write32(0xB81000 + 4 * 9, 1)
        card.bars[0].write32(0xB81608, 1 << 4)
        card.settle()


def test_a_doorbell_of_gb202_that_does_not_enable_itself_is_a_mistake():
    card = VirtualNvidia("gb202", vram_bytes=512 << 20)
    for token in (1 << 16 | 6, 1 << 30 | 1 << 16 | 6):
        card.bars[0].write32(0xBB0090, token)
    card.settle()
    assert [event.text for event in card.violations] == [
        "doorbell 0x10006 does not enable its runlist's doorbell",
        "doorbell 0x40010006 names a channel that there is not",
    ]


def test_the_kernels_driver_in_process_names_the_chip_that_it_does_not_know():
    with pytest.raises(NotSupported, match=r"knows tu102, ga100, ga102, ad102, gh100, not gb202"):
        nvidia_kernel("gb202", vram_bytes=512 << 20)
