"""Host memory for a card: addresses behind an IOMMU, physical addresses from the page map, pages of the caller."""

import mmap
import random
import struct

import pytest

from ringup.drivers.transport.linux import dma
from ringup.drivers.transport.linux.dma import Anchor, HostMemory, callers_pages
from ringup.drivers.transport.linux.iova import Iovas
from ringup.drivers.transport.linux.physical import Pin, runs_of
from ringup.errors import OutOfMemory, PermissionNeeded

PAGE = 4096


def test_addresses_never_overlap_and_are_free_again():
    chance = random.Random(3)
    usable, forbidden = ((0, 0x4000_0000), (0x5000_0000, 0x5100_0000)), ((0x1000_0800, 0x1000_2800),)
    iovas = Iovas(usable, forbidden)
    live = {}
    for _ in range(3000):
        if live and chance.random() < 0.45:
            start = chance.choice(list(live))
            iovas.free(start, live.pop(start))
            continue
        size = chance.choice((1, 1, 2, 16, 512, 600)) * PAGE
        start = iovas.alloc(size)
        assert start % (dma.HUGE_PAGE if size >= dma.HUGE_PAGE else PAGE) == 0
        assert any(low <= start and start + size <= high for low, high in usable)
        assert start >= 1 << 20
        assert not (start < 0x1000_3000 and start + size > 0x1000_0000)
        assert all(start + size <= other or other + length <= start for other, length in live.items())
        live[start] = size
    for start, size in live.items():
        iovas.free(start, size)
    # merged again, up to the forbidden range
    assert iovas.alloc(0x1000_0000 - (2 << 20)) == 2 << 20


def test_the_lowest_address_comes_first():
    """Cards with few address bits are served as long as there are free low addresses."""
    iovas = Iovas([(0, 1 << 48)], [])
    assert [iovas.alloc(PAGE) for _ in range(3)] == [0x100000, 0x101000, 0x102000]


def test_no_room_says_what_is_left():
    iovas = Iovas([(1 << 20, (1 << 20) + 3 * PAGE)], [])
    iovas.alloc(PAGE)
    with pytest.raises(OutOfMemory, match="0x3000 bytes asked, 0x2000 free, the largest piece 0x2000"):
        iovas.alloc(3 * PAGE)


def test_every_byte_has_the_address_of_its_piece():
    runs = [(0x10_0000, PAGE), (0x80_0000, 3 * PAGE), (0x20_0000, PAGE)]
    freed = []
    memory = HostMemory(memoryview(bytearray(5 * PAGE)), runs, lambda: freed.append(True))
    assert not memory.contiguous
    assert list(memory.runs()) == runs
    addresses = [memory.bus_addr(offset) for offset in (0, PAGE - 1, PAGE, 4 * PAGE - 1, 4 * PAGE, 5 * PAGE - 1)]
    assert addresses == [0x10_0000, 0x10_0FFF, 0x80_0000, 0x80_2FFF, 0x20_0000, 0x20_0FFF]
    for outside in (-1, 5 * PAGE):
        with pytest.raises(ValueError, match="has no byte"):
            memory.bus_addr(outside)
    memory.free()
    memory.free()
    assert freed == [True]


def pagemap(machine, address, entries):
    path = machine.write("proc/self/pagemap", "")
    with path.open("r+b") as file:
        file.seek(address // PAGE * 8)
        file.write(struct.pack(f"<{len(entries)}Q", *entries))


def test_physical_pages_are_joined_where_they_follow_on_each_other(machine):
    present, soft_dirty = 1 << 63, 1 << 55  # admin-guide/mm/pagemap.rst
    address = 0x7F00_0000_0000
    pagemap(machine, address, [present | 0x1234, present | soft_dirty | 0x1235, present | 0x99, present | 0x98])
    assert runs_of(machine.kernel, address, 4 * PAGE) == [(0x123_4000, 2 * PAGE), (0x9_9000, PAGE), (0x9_8000, PAGE)]
    assert runs_of(machine.kernel, address + PAGE, PAGE) == [(0x123_5000, PAGE)]


@pytest.mark.parametrize(
    "entries", [[1 << 63, 1 << 63 | 5], [1 << 63 | 5, 5], [1 << 63 | 5]], ids=["hidden", "swapped", "short"]
)
def test_a_page_map_without_page_numbers_asks_for_the_right_to_see_them(machine, entries):
    pagemap(machine, 0x7F00_0000_0000, entries)
    with pytest.raises(PermissionNeeded, match="CAP_SYS_ADMIN"):
        runs_of(machine.kernel, 0x7F00_0000_0000, 2 * PAGE)


def test_memory_of_ours_is_zero_whole_and_given_back(machine):
    pages, _ = dma.anonymous(5 * PAGE)
    assert pages[: 5 * PAGE] == bytes(5 * PAGE)
    anchor = Anchor(pages)
    assert anchor.address % PAGE == 0
    pin = Pin(machine.kernel, anchor.address, 5 * PAGE, huge=False)
    pin.release()
    pin.release()
    with pytest.raises(BufferError):
        pages.close()  # while it is mapped
    anchor.release()
    pages.close()


@pytest.mark.parametrize("size", [0, -1])
def test_no_memory_at_all_is_the_callers_mistake(size):
    with pytest.raises(ValueError, match="1 byte or more"):
        dma.whole_pages(size)


def test_a_refused_buffer_is_not_held():
    pages = mmap.mmap(-1, PAGE + 1)
    with pytest.raises(ValueError, match="whole pages"):
        callers_pages(memoryview(pages))
    pages.close()
