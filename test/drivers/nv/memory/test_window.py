"""VRAM as the CPU reaches it, and which of it GSP-RM leaves: on a started card, at the edges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringup.drivers.memory.vram import Vram
from ringup.drivers.nv.gsp.system import FbRegion
from ringup.drivers.nv.memory.pramin import Pramin
from ringup.drivers.nv.memory.space import Space, usable_regions
from ringup.drivers.nv.memory.table_memory import TableMemory
from ringup.errors import DeviceHung, OutOfMemory
from ringup.queues.nv.rows import ROWS

MIB, PAGE = 1 << 20, 4096


def region(base, limit, *, reserved=0, protected=False):
    return FbRegion(base, limit, reserved, 10, True, True, protected)


def test_usable_memory_is_what_is_neither_reserved_nor_protected():
    regions = (
        region(0, 0xFFFF),
        region(0x1_0000, 0x1_FFFF, reserved=0x1_0000),
        # not whole pages
        region(0x2_0100, 0x4_0FFF),
        region(0x5_0000, 0x5_FFFF, protected=True),
        region(0x6_0000, 0xF_FFFF),
    )
    assert usable_regions(regions, 0x8_0000, "card") == [(0, 0x1_0000), (0x2_1000, 0x2_0000), (0x6_0000, 0x2_0000)]


@pytest.mark.parametrize(
    ("regions", "said"),
    [
        ((), "leaves none"),
        ((region(0, 0xFFF, reserved=1),), "leaves none"),
        ((region(0, 0xFFFF), region(0x8000, 0x1_FFFF)), "a region of memory from 0x8000 to 0x1ffff"),
        ((region(0x2000, 0x1000),), "a region of memory from 0x2000 to 0x1000"),
        ((region(0x10_0000, 0x1F_FFFF),), "leaves none"),
    ],
)
def test_regions_that_cannot_be_are_refused(regions, said):
    with pytest.raises(DeviceHung, match=said):
        usable_regions(regions, 0x10_0000, "card")


@pytest.mark.parametrize("chip", ["tu102", "gh100", "gb202"])
def test_the_small_window_and_the_bar_show_the_same_memory(bench, chip):
    with bench(chip).running() as running:
        space = Space(running.registers, running.static, ROWS[0])
        pramin, window = Pramin(running.registers), space.window
        data = bytes(range(256)) * 32
        # across the end of the small window as it stands, and of a step of it
        for at in (16 * MIB - 4096, 17 * MIB - 16, 33 * MIB + 4):
            pramin.write(at, data)
            assert window.read(at, len(data)) == data
            window.write(at + 3, b"odd")
            window.flush()
            assert pramin.read(at, 8) == data[:3] + b"odd" + data[6:8]
        # what the BAR does not show is read and written all the same
        edge = window.visible_bytes
        assert edge == 256 * MIB
        window.write(edge - 5, b"over the end")
        assert window.read(edge - 5, 12) == b"over the end"
        assert pramin.read(edge, 8) == b"the end\0"
        assert window.view(edge - 4, 8) is None
        for at, size in ((-1, 4), (window.size_bytes - 4, 8)):
            with pytest.raises(ValueError, match="VRAM has"):
                window.read(at, size)
        with pytest.raises(ValueError, match="whole dwords"):
            pramin.read(2, 4)
        space.lose("freed")


def test_page_tables_of_gsp_rm_that_lie_nowhere_are_refused(bench):
    with bench("ga102").running() as running:
        for at in (0, 0x123, running.static.fb_bytes):
            with pytest.raises(DeviceHung, match=f"page tables at {at:#x}"):
                Space(running.registers, replace(running.static, bar1_pde_base=at), ROWS[0])


def test_small_tables_share_pages_and_give_them_back():
    vram = Vram(0, 16 * PAGE, 8 * PAGE)
    memory = TableMemory(vram)
    places = [memory.alloc(256) for _ in range(20)] + [memory.alloc(PAGE)]
    assert len(set(places)) == len(places)
    assert len({place // PAGE for place in places[:20]}) == 2
    assert not any(place % 256 for place in places)
    assert vram.free_bytes == 13 * PAGE
    for place in places[:20]:
        memory.free(place, 256)
    memory.free(places[20], PAGE)
    assert vram.free_bytes == 16 * PAGE
    # only memory in the window is for tables
    for _ in range(8):
        memory.alloc(PAGE)
    with pytest.raises(OutOfMemory, match="page tables"):
        memory.alloc(PAGE)


def test_memory_of_others_is_kept_on_both_sides_of_the_windows_end():
    vram = Vram(0, 16 * PAGE, 8 * PAGE)
    vram.reserve(6 * PAGE, 4 * PAGE, "GSP-RM")
    assert (vram.visible.free_bytes, vram.hidden.free_bytes) == (6 * PAGE, 6 * PAGE)
    with pytest.raises(ValueError, match="not wholly free"):
        vram.reserve(9 * PAGE, PAGE, "another")
