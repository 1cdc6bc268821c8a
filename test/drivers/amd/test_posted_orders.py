"""What the driver does for order alone, on a bus that holds posted writes until a read pushes them and a processor that
combines its writes.
"""

from __future__ import annotations

import random

import pytest

import ringup
from ringup.drivers.amd.smu.published import HEADER, PAGE_BYTES, publish, published
from ringup.drivers.amd.smu.rows import ROWS
from ringup.drivers.amd.smu.tables import metrics_bytes

OLD, NEW = 0x30_0000, 0x31_0000  # pages of VRAM
VA = 0x4_0000_0000
VALID, RIGHTS = 1, 0x70


@pytest.fixture
def held(hands):
    """A card with its memory hub started, on a bus that delays writes until a read pushes them."""
    card = hands()
    card.gmc.start_mmhub()
    card.radeon.settle()
    card.radeon.path.posted.delay_ns = None
    card.radeon.hdp.drain_us = None
    return card


def test_a_flush_of_the_host_data_path_has_arrived_when_it_returns(held):
    held.radeon.bars[0].write32(0x1000, 0x1234_5678)
    held.hdp.flush()
    assert bytes(held.vram(0x1000, 4)) == b"\x78\x56\x34\x12"


def test_a_flush_that_only_goes_ahead_of_a_doorbell_is_on_its_way(held):
    held.radeon.bars[0].write32(0x1000, 1)
    held.hdp.request()
    assert bytes(held.vram(0x1000, 4)) == bytes(4)
    held.radeon.bars[2].write64(0, 0)
    held.radeon.settle()
    held.radeon.violations.clear()  # no engine listens there
    assert bytes(held.vram(0x1000, 4)) == b"\1\0\0\0"


def test_no_client_of_mmhub_sees_an_old_page_once_a_flush_has_returned(held):
    card = held
    card.vram(OLD, 4)[:], card.vram(NEW, 4)[:] = b"old!", b"new!"
    card.map_page(card.VMID, VA, OLD | VALID | RIGHTS)
    card.gmc.set_context(card.VMID, card.root(card.VMID))
    card.radeon.settle()
    # No earlier write is still on its way.
    card.radeon.clock.sleep_us(10)
    assert card.radeon.mmhub.read(card.VMID, VA, 4, "MP0") == b"old!"
    card.map_page(card.VMID, VA, NEW | VALID | RIGHTS)
    card.gmc.flush_tlb(card.VMID)
    assert card.radeon.mmhub.read(card.VMID, VA, 4, "MP0") == b"new!"


def window_page(card, gpu_va, entry):
    """Write a page's entry through the window, which delays it."""
    table = card.root(card.VMID)
    for shift in (39, 30, 21):
        table = card.entry(table, gpu_va >> shift & 511) & 0xFFFF_FFFF_F000
    card.radeon.bars[0].write64(table + 8 * (gpu_va >> 12 & 511), entry)


@pytest.mark.parametrize("flush", [lambda card: card.gmc.flush_tlb(card.VMID), lambda card: card.gmc.start_mmhub()])
def test_a_walk_after_a_flush_or_a_start_finds_what_the_host_wrote_to_the_tables(held, flush):
    card = held
    card.vram(OLD, 4)[:], card.vram(NEW, 4)[:] = b"old!", b"new!"
    card.map_page(card.VMID, VA, OLD | VALID | RIGHTS)
    card.gmc.set_context(card.VMID, card.root(card.VMID))
    assert card.radeon.mmhub.read(card.VMID, VA, 4, "MP0") == b"old!"
    window_page(card, VA, NEW | VALID | RIGHTS)
    flush(card)
    card.radeon.settle()
    assert card.radeon.mmhub.read(card.VMID, VA, 4, "MP0") == b"new!"


def test_a_copy_engine_that_polls_memory_sees_what_went_through_the_window_before(virtual_card):
    """The pointer in host memory is visible at once. Its doorbell and a posted flush are not."""
    radeon = virtual_card(vram_bytes=256 << 20)
    radeon.bars[0].mappable = False
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        source, target = card.alloc(4096, visible=True), card.alloc(4096, "host")
        card.copy.fill(source, 0).wait()
        card.copy.fill(target, 0).wait()
        radeon.hdp.drain_us = radeon.path.posted.delay_ns = None
        data = bytes(range(256)) * 16
        card.spaces.user.access(source).write(0, data)
        point = card.copy.copy_buffer(target, source)
        # The engine's firmware polls the pointer in memory.
        for engine in radeon.sdma:
            for queue in engine.queues:
                if queue.ring is not None:
                    engine._poll(queue)
        # Nothing is read in this time.
        radeon.clock.sleep_us(1_000)
        assert bytes(target.view) == data
        point.wait()


def test_a_compute_queue_sees_what_went_through_the_window_before_its_doorbell(virtual_card):
    radeon = virtual_card(vram_bytes=256 << 20)
    radeon.bars[0].mappable = False
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        source, target = card.alloc(4096, visible=True), card.alloc(4096, "host")
        radeon.hdp.drain_us = None
        data = bytes(range(255, -1, -1)) * 16
        card.spaces.user.access(source).write(0, data)
        stream = card.compute.stream()
        stream.append(stream.pm4.copy_memory(target.gpu_va, source.gpu_va, len(data)))
        card.compute.submit(stream).wait()
        assert bytes(target.view) == data


class Beside:
    """Another process's view of the window. Its reads push what is on the bus, but not what the first process's CPU
    still combines.
    """

    def __init__(self, radeon):
        self.radeon, self.visible_bytes = radeon, radeon.bars[0].size_bytes

    def read(self, vram_pa, size_bytes):
        self.radeon.path.posted.arrive()
        return self.radeon.hdp.read(vram_pa, size_bytes)


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_of_published_metrics_sees_one_whole_table_at_any_moment(boot, seed):
    """Each line of the table carries the counter of its table. The lines leave the CPU in any order that no flush
    forbids.
    """
    card, chance, seen = boot(), random.Random(seed), []
    radeon, page = card.radeon, card.PAGE_PA
    beside = Beside(radeon)

    def pick(places):
        look()
        return chance.randrange(len(places))

    def look():
        found = published(beside, page)
        if found is not None:
            seen.append(found.counter)
            whole = radeon.hdp.read(page + HEADER.size, size)
            assert set(whole) == {found.counter}, f"counter {found.counter} with bytes of {sorted(set(whole))}"

    size = metrics_bytes(ROWS[13, 0, 0])
    assert HEADER.size + size < PAGE_BYTES
    radeon.combine(pick)
    for counter in range(1, 9):
        publish(card.window, card.hdp, page, (13, 0, 0), bytes([counter]) * size, counter)
        look()
        # The table is visible when `publish` returns.
        assert seen[-1] == counter
    assert seen == sorted(seen)
