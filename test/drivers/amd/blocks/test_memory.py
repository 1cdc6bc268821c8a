"""Buffers on a virtual card whose window may delay writes until a flush, and whose hub walks page tables and caches
translations.
"""

from __future__ import annotations

import random

import pytest

from ringup.drivers.amd.bus.discovery import discover
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.gmc.page_table import PageTables
from ringup.drivers.amd.gmc.pte import GFX11
from ringup.drivers.memory.buffers import USER_START, Memory
from ringup.drivers.memory.ranges import Ranges
from ringup.drivers.memory.vram import Vram
from ringup.errors import DeviceLost, DeviceTimeout, OutOfMemory
from ringup.silicon import card

PAGE, MIB = 4096, 1 << 20
VMID = 8
STATE_BYTES = 2 * MIB  # lowest VRAM, reserved by the driver


class Rig:
    """A virtual card with MMHUB up, and a memory of VMID 8 on it. With `mapped`, the driver maps its window, which then
    delays nothing.
    """

    def __init__(self, vram_bytes=64 * MIB, bar0_bytes=256 * MIB, va=None, mapped=True):
        self.card = card("navi31", vram_bytes=vram_bytes, bar0_bytes=bar0_bytes)
        self.card.bars[0].mappable = mapped
        self.card.hdp.drain_us = None
        # memory decoding and bus mastering
        self.card.config.write(4, 6, 2)
        ips, window = discover(self.card, Registers(self.card))
        self.hdp = Hdp(ips.block("nbio"))
        self.hdp.start()
        self.gmc = Gmc(
            [ips.block("mmhub")],
            [ips.block("gc")],
            self.hdp.flush,
            vram_bytes=window.size_bytes,
            scratch_pa=PAGE,
            default_bus_addr=self.card.alloc_host(PAGE).bus_addr(),
        )
        self.gmc.start_mmhub()
        self.vram = Vram(STATE_BYTES, window.size_bytes - 4 * MIB, window.visible_bytes)
        self.tables = PageTables(
            window,
            self.vram.alloc_page,
            GFX11,
            free_page=self.vram.free,
            vram_base=self.gmc.fb_offset,
            barrier=self.hdp.flush,
        )
        self.gmc.set_context(VMID, self.tables.root_pa)
        self.flushes = 0
        self.memory = Memory(
            self.card,
            window,
            self.vram,
            self.tables,
            VMID,
            flush_tlb=self.flush_tlb,
            flush_window=self.hdp.flush,
            va=va,
        )

    def flush_tlb(self, vmid):
        self.flushes += 1
        self.gmc.flush_tlb(vmid)

    def read(self, gpu_va, size_bytes):
        return self.card.mmhub.read(VMID, gpu_va, size_bytes, "test")

    def write(self, gpu_va, data):
        self.card.mmhub.write(VMID, gpu_va, data, "test")

    def reaches(self, gpu_va):
        """Tell whether a read finds a page. A read that finds none is answered from the default page and reported as a
        fault.
        """
        self.read(gpu_va, 1)
        fault = self.gmc.read_fault("mmhub")
        # The next fault must find this one cleared.
        self.card.settle()
        return fault is None


@pytest.fixture
def make_rig():
    made = []

    def make(**options):
        made.append(Rig(**options))
        return made[-1]

    yield make
    for rig in made:
        assert [event for event in rig.card.violations if "fault" not in event.kind] == []


@pytest.fixture
def rig(make_rig):
    return make_rig()


@pytest.fixture
def narrow(make_rig):
    """A card whose window shows 256 MiB of its 320 MiB."""
    return make_rig(vram_bytes=320 * MIB, bar0_bytes=256 * MIB)


@pytest.mark.parametrize("where", ["vram", "host"])
def test_card_and_cpu_see_the_same_bytes(rig, where):
    with rig.memory.alloc(3 * PAGE + 100, where, visible=True, name="shared") as buffer:
        assert (buffer.where, buffer.size_bytes, len(buffer.view)) == (where, 3 * PAGE + 100, 3 * PAGE + 100)
        assert buffer.gpu_va >= USER_START
        buffer.view[2 * PAGE - 2 : 2 * PAGE + 2] = b"seen"
        rig.hdp.flush()
        assert rig.read(buffer.gpu_va + 2 * PAGE - 2, 4) == b"seen"
        rig.write(buffer.gpu_va + 3 * PAGE, b"back")
        assert bytes(buffer.view[3 * PAGE : 3 * PAGE + 4]) == b"back"


def test_host_memory_is_zero_and_outside_the_cards_caches(rig):
    buffer = rig.memory.alloc(2 * PAGE, "host")
    assert rig.read(buffer.gpu_va, 2 * PAGE) == bytes(2 * PAGE)
    assert rig.tables.walk(buffer.gpu_va).kind == "host"


def test_a_buffer_is_mapped_to_its_last_byte_and_not_beyond_its_page(rig):
    buffer = rig.memory.alloc(PAGE + 1)
    rig.memory.alloc(PAGE)
    assert rig.reaches(buffer.gpu_va + PAGE)
    assert not rig.reaches(buffer.gpu_va + 2 * PAGE)
    assert not rig.reaches(buffer.gpu_va - 1)


def test_large_buffers_are_mapped_by_large_pages(rig):
    buffer = rig.memory.alloc(8 * MIB)
    assert rig.tables.walk(buffer.gpu_va).size_bytes == 2 * MIB
    assert rig.tables.tables == 3


def test_memory_that_need_not_be_seen_leaves_the_window_to_memory_that_must(narrow):
    hidden, seen = (
        narrow.memory.alloc(40 * MIB, name="weights"),
        narrow.memory.alloc(200 * MIB, visible=True, name="ring"),
    )
    assert narrow.tables.walk(hidden.gpu_va).address >= 256 * MIB
    assert narrow.tables.walk(seen.gpu_va + 200 * MIB - 1).address < 256 * MIB
    assert hidden.view is None
    assert len(seen.view) == 200 * MIB
    narrow.write(hidden.gpu_va + 40 * MIB - 4, b"far.")
    assert narrow.card.vram.read(narrow.tables.walk(hidden.gpu_va + 38 * MIB).address + 2 * MIB - 4, 4) == b"far."
    with pytest.raises(OutOfMemory, match=r"VRAM in the CPU window: 100 MiB asked for second.*held by: ring 200 MiB"):
        narrow.memory.alloc(100 * MIB, visible=True, name="second")


def test_memory_that_need_not_be_seen_takes_the_window_when_there_is_no_other(narrow):
    first, second = narrow.memory.alloc(50 * MIB), narrow.memory.alloc(50 * MIB)
    assert narrow.tables.walk(first.gpu_va).address >= 256 * MIB > narrow.tables.walk(second.gpu_va).address
    assert len(second.view) == 50 * MIB


def test_a_buffer_is_joined_from_pieces_when_none_is_large_enough(rig):
    small = [rig.memory.alloc(2 * MIB, name=f"part {i}") for i in range(28)]
    rig.memory.free(*small[::2])
    free = rig.vram.free_bytes
    joined = rig.memory.alloc(23 * MIB, name="joined")
    assert joined.view is None
    marks = {offset: bytes([1 + offset // MIB] * 8) for offset in range(0, 23 * MIB, MIB)}
    for offset, mark in marks.items():
        rig.write(joined.gpu_va + offset, mark)
    assert all(rig.read(joined.gpu_va + offset, 8) == mark for offset, mark in marks.items())
    joined.free()
    assert rig.vram.free_bytes == free
    with pytest.raises(OutOfMemory, match="40 MiB asked for an unnamed buffer") as told:
        rig.memory.alloc(40 * MIB)
    assert rig.vram.free_bytes == free
    # Read the count again: what was gathered now counts as free.
    assert str(told.value) == rig.vram.visible.shortage(40 * MIB)


def test_freed_memory_is_unmapped_from_the_card_before_it_is_reused(rig):
    first = rig.memory.alloc(PAGE, visible=True, name="first")
    first_va, first_pa = first.gpu_va, rig.tables.walk(first.gpu_va).address
    # The hub keeps the translation.
    assert rig.reaches(first_va)
    first.free()
    assert not rig.reaches(first_va)
    second = rig.memory.alloc(PAGE, visible=True, name="second")
    assert rig.tables.walk(second.gpu_va).address == first_pa
    second.view[:4] = b"anew"
    rig.hdp.flush()
    assert rig.read(second.gpu_va, 4) == b"anew"


def test_translations_are_flushed_when_something_goes_and_not_when_it_comes(rig):
    buffers = [rig.memory.alloc(PAGE) for _ in range(10)]
    assert rig.flushes == 0
    rig.memory.free(*buffers)
    assert rig.flushes == 1


def test_a_page_that_faulted_is_flushed_when_it_is_mapped(make_rig):
    rig = make_rig(va=Ranges(USER_START, 64 * PAGE, "few addresses"))
    assert "in no buffer" in rig.memory.faulted(USER_START + 123)
    rig.memory.alloc(PAGE)
    assert rig.flushes == 1
    rig.memory.alloc(PAGE)
    assert rig.flushes == 1


def test_translations_are_walked_again_when_the_entries_are_in_vram(make_rig):
    rig = make_rig(mapped=False)
    buffer, waiting = rig.memory.alloc(2 * MIB, name="goes"), []

    def flush_tlb(vmid):
        rig.card.settle()
        waiting.append(rig.card.hdp.holds)
        rig.gmc.flush_tlb(vmid)

    rig.memory._flush_tlb = flush_tlb
    buffer.free()
    assert waiting == [0]


def test_when_the_flush_fails_memory_stays_taken(rig):
    buffer = rig.memory.alloc(2 * MIB, name="stuck")
    free = rig.vram.free_bytes

    def fails(vmid):
        raise DeviceTimeout("no answer")

    rig.memory._flush_tlb = fails
    with pytest.raises(DeviceTimeout):
        buffer.free()
    assert buffer.freed
    assert rig.vram.free_bytes == free


def test_a_mapping_that_cannot_be_flushed_keeps_its_memory(rig):
    rig.memory.alloc(PAGE)
    free = rig.vram.free_bytes

    def fails():
        raise DeviceTimeout("no answer")

    rig.memory._flush_window = fails
    with pytest.raises(DeviceTimeout):
        rig.memory.alloc(PAGE)
    assert rig.vram.free_bytes == free - PAGE


def test_use_after_free_is_refused(rig):
    buffer = rig.memory.alloc(PAGE, "host", name="gone")
    view = buffer.view
    buffer.free()
    for use in (lambda: buffer.gpu_va, lambda: buffer.view, lambda: buffer.size_bytes, buffer.free):
        with pytest.raises(ValueError, match="'gone' was freed"):
            use()
    with pytest.raises(ValueError, match="released"):
        view[0]
    assert repr(buffer) == "<Buffer 'gone', freed>"


def test_another_memorys_buffer_is_refused(make_rig):
    rig, other = make_rig(), make_rig()
    mine, theirs = rig.memory.alloc(PAGE), other.memory.alloc(PAGE)
    with pytest.raises(ValueError, match="no buffer of this memory"):
        rig.memory.free(mine, theirs)
    assert not mine.freed


def test_memory_of_the_callers_gets_an_address_and_stays_the_callers(rig):
    dma = rig.card.alloc_host(5 * PAGE)
    buffer = rig.memory.import_host(dma, "pinned")
    buffer.view[4 * PAGE : 4 * PAGE + 4] = b"mine"
    assert rig.read(buffer.gpu_va + 4 * PAGE, 4) == b"mine"
    buffer.free()
    assert bytes(dma.view[4 * PAGE : 4 * PAGE + 4]) == b"mine"
    dma.free()


def test_a_fault_names_the_buffer_that_it_hit_or_passed_or_that_was_freed(rig):
    buffer = rig.memory.alloc(3000, name="table")
    va = buffer.gpu_va
    assert rig.memory.find(va + 2999) is buffer
    assert rig.memory.find(va + 3000) is None
    assert rig.memory.describe(va + 16).startswith("byte 0x10 of <Buffer 'table', 3000 bytes of vram at")
    assert rig.memory.describe(va + 5000).startswith("0x7d0 bytes behind the end of <Buffer 'table'")
    buffer.free()
    assert rig.memory.describe(va + 16) == f"byte 0x10 of 'table', which was freed (3000 bytes at {va:#x})"
    assert rig.memory.describe(0x5000) == "in no buffer (0x5000)"


@pytest.mark.parametrize("size", [4 * MIB, 70 * MIB])
def test_a_shortage_leaves_nothing_behind(make_rig, size):
    rig = make_rig(va=Ranges(USER_START, 2 * MIB, "few addresses"))
    before, host = rig.vram.free_bytes, rig.memory.stats()["host"]
    with pytest.raises(OutOfMemory):  # out of addresses, out of VRAM
        rig.memory.alloc(size)
    with pytest.raises(OutOfMemory, match=r"few addresses: .* asked for staging"):
        rig.memory.alloc(4 * MIB, "host", name="staging")
    assert rig.vram.free_bytes == before
    assert (host.buffers, host.used_bytes) == (0, 0)


def test_figures_of_each_place(rig):
    kept = rig.memory.alloc(5 * PAGE - 1, name="kept")
    rig.memory.alloc(2 * MIB).free()
    vram = rig.memory.stats()["vram"]
    assert (vram.buffers, vram.used_bytes, vram.peak_bytes) == (1, 5 * PAGE, 5 * PAGE + 2 * MIB)
    assert vram.free_bytes == 64 * MIB - STATE_BYTES - 4 * MIB - 5 * PAGE - rig.tables.tables * PAGE - 4 * PAGE
    assert vram.largest_bytes <= vram.free_bytes
    kept.free()


@pytest.mark.parametrize(
    "arguments",
    [{"size_bytes": 0}, {"size_bytes": -1}, {"size_bytes": PAGE, "where": "moon"}, {"size_bytes": PAGE, "align": 3}],
)
def test_nonsense_is_refused(rig, arguments):
    free = rig.vram.free_bytes
    with pytest.raises(ValueError, match=r"buffer|alignment"):
        rig.memory.alloc(**arguments)
    assert rig.vram.free_bytes == free


def test_a_thousand_rounds_leak_nothing(rig):
    rnd = random.Random(3)
    whole = rig.vram.free_bytes
    for _ in range(1000):
        buffers = [
            rig.memory.alloc(rnd.choice((100, PAGE, 5 * PAGE, MIB, 3 * MIB)), rnd.choice(("vram", "host")))
            for _ in range(rnd.randint(1, 5))
        ]
        rnd.shuffle(buffers)
        if rnd.random() < 0.5:
            rig.memory.free(*buffers)
        else:
            for buffer in buffers:
                buffer.free()
        assert rig.vram.free_bytes == whole
    assert (rig.memory.va.live, rig.memory.va.largest_bytes) == (0, rig.memory.va.size_bytes)
    assert rig.tables.tables == 1
    assert rig.memory.stats()["host"].used_bytes == 0


def test_random_buffers_never_share_a_byte(rig):
    rnd, live = random.Random(5), {}
    for number in range(600):
        if live and rnd.random() < 0.45:
            buffer = rnd.choice(list(live))
            mark = live.pop(buffer)
            assert rig.read(buffer.gpu_va, 4) == mark
            assert rig.read(buffer.gpu_va + buffer.size_bytes - 4, 4) == mark
            buffer.free()
            continue
        try:
            buffer = rig.memory.alloc(rnd.choice((8, PAGE, 3 * PAGE, MIB + 8, 5 * MIB)), rnd.choice(("vram", "host")))
        except OutOfMemory:
            continue
        mark = live[buffer] = number.to_bytes(4, "little")
        rig.write(buffer.gpu_va, mark)
        rig.write(buffer.gpu_va + buffer.size_bytes - 4, mark)
    assert all(rig.read(buffer.gpu_va, 4) == mark for buffer, mark in live.items())


def test_closing_gives_everything_back(rig):
    buffers = [rig.memory.alloc(3 * MIB), rig.memory.alloc(PAGE, "host"), rig.memory.alloc(100, visible=True)]
    addresses = [buffer.gpu_va for buffer in buffers]
    assert all(rig.reaches(gpu_va) for gpu_va in addresses)
    rig.memory.close()
    assert all(buffer.freed for buffer in buffers)
    assert not any(rig.reaches(gpu_va) for gpu_va in addresses)
    assert rig.vram.visible.used_bytes == rig.vram.hidden.used_bytes == 0
    rig.memory.close()
    with pytest.raises(ValueError, match="page tables are closed"):
        rig.memory.alloc(PAGE)
    assert rig.vram.visible.used_bytes == rig.vram.hidden.used_bytes == 0


def test_closing_a_card_that_is_gone_gives_everything_back(make_rig):
    rig = make_rig()
    rig.memory.alloc(3 * MIB)
    rig.memory.alloc(PAGE, "host")

    def gone(vmid):
        raise DeviceLost("gone")

    rig.memory._flush_tlb = gone
    rig.memory.close()
    assert rig.vram.visible.used_bytes == rig.vram.hidden.used_bytes == 0


def test_a_thousand_address_spaces_leave_nothing(rig):
    whole = rig.vram.free_bytes + 5 * PAGE
    rig.memory.close()
    for _ in range(1000):
        tables = PageTables(
            rig.tables._vram, rig.vram.alloc_page, GFX11, free_page=rig.vram.free, barrier=rig.hdp.flush
        )
        tables.map(USER_START, [(8 * MIB, PAGE)], "vram")
        tables.close()
        assert rig.vram.free_bytes == whole
