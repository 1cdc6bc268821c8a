"""A host's writes are posted: they lie on the way until something pushes them. Source: PCI Express base specification,
2.4.1, "Transaction Ordering".
"""

from __future__ import annotations

import pytest

from ringup.errors import GuestError
from ringup.silicon import card
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.posted import ARRIVE_NS, PostedWrites

SCRATCH_0, SCRATCH_1 = 0x4C * 4, 0x4D * 4  # BIOS_SCRATCH_0 and 1: nbio_4_3_0_offset.h
REMAP_MEM = 0xE4D * 4
UNNAMED = 0x2C


class Window:
    """Records the writes that arrive."""

    def __init__(self):
        self.came = []

    def take(self, offset, data):
        self.came.append((offset, data))


@pytest.fixture
def there():
    return Window()


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def posted(clock):
    return PostedWrites(clock)


@pytest.fixture
def radeon():
    return card("navi31", vram_bytes=64 << 20)


@pytest.fixture
def held(radeon):
    """A card on a bus that keeps writes until something pushes them."""
    radeon.path.posted.delay_ns = None
    return radeon


def scratch(radeon):
    return radeon.nbio.cells["BIF_BX0_BIOS_SCRATCH_0"]


def test_a_write_arrives_when_its_time_has_come_and_not_before(posted, clock, there):
    posted.post(there.take, 4, b"a")
    clock.advance_ns(ARRIVE_NS - 1)
    assert there.came == []
    clock.advance_ns(1)
    assert there.came == [(4, b"a")]


def test_writes_arrive_in_the_order_of_posting_each_in_its_own_time(posted, clock, there):
    seen = []
    for number in range(5):
        posted.post(lambda offset, data: seen.append((clock.now_ns, offset)), number, b"")
        clock.advance_ns(100)
    clock.advance_ns(10_000)
    assert seen == [(ARRIVE_NS + 100 * number, number) for number in range(5)]


def test_what_pushes_brings_everything_before_it(posted, clock, there):
    posted.delay_ns = None
    for number in range(3):
        posted.post(there.take, number, b"")
    clock.advance_ns(10**12)
    assert there.came == []
    posted.push()
    assert [offset for offset, _ in there.came] == [0, 1, 2]


def test_a_write_that_is_refused_on_arrival_leaves_those_behind_it_under_way(posted, clock, there):
    def refuse(offset, data):
        raise GuestError("no such thing")

    posted.post(refuse, 8, b"1234")
    posted.post(there.take, 1, b"")
    with pytest.raises(GuestError, match="no such thing") as caught:
        clock.advance_ns(ARRIVE_NS)
    assert "a write of 4 bytes at 0x8" in caught.value.__notes__[0]
    clock.advance_ns(ARRIVE_NS)
    assert there.came == [(1, b"")]
    told = []
    posted.on_refused = told.append
    posted.post(refuse, 8, b"")
    posted.push()
    assert [str(error) for error in told] == ["no such thing"]


@pytest.mark.parametrize(
    "push",
    [
        lambda radeon: radeon.bars[5].read32(SCRATCH_1),
        lambda radeon: radeon.bars[0].read32(0),
        lambda radeon: radeon.bars[2].read64(0),
        lambda radeon: radeon.bars[0].read_block(0, 128),
        lambda radeon: radeon.rom.read32(0),
        lambda radeon: radeon.bars[0].answer(0, 4),
        lambda radeon: radeon.config.read(0),
        lambda radeon: radeon.config.write(0x3C, 0, 1),
    ],
    ids=["register", "memory", "doorbell", "block", "rom", "routed", "config read", "config write"],
)
def test_every_request_that_waits_for_an_answer_pushes(held, push):
    held.bars[5].write32(SCRATCH_0, 7)
    assert scratch(held) == 0
    push(held)
    assert scratch(held) == 7


@pytest.mark.parametrize(
    "other",
    [
        lambda radeon: radeon.clock.sleep_us(10**6),
        lambda radeon: radeon.bars[5].write32(SCRATCH_1, 1),
        lambda radeon: radeon.bars[0].write_block(0, bytes(4096)),
        lambda radeon: radeon.gpu.interrupt(0),
        lambda radeon: radeon.interrupts.wait(100),
    ],
    ids=["time", "write", "block", "interrupt", "waiting"],
)
def test_nothing_else_pushes_a_write_that_is_held(held, other):
    held.config.write(4, 6, 2)
    held.bars[5].write32(SCRATCH_0, 7)
    other(held)
    assert scratch(held) == 0
    held.violations.clear()


def test_windows_keep_their_order_among_each_other(held):
    order = []
    held.nbio.doorbell = lambda index, value, size: order.append(held.hdp.read(0x1000, 1))
    held.bars[0].write32(0x1000, 0x55)
    held.bars[2].write64(0x20, 1)
    held.bars[0].write32(0x1000, 0x66)
    held.config.read(0)
    assert order == [b"\x55"]


def test_a_link_that_goes_down_loses_what_is_on_its_way(held):
    held.bars[5].write32(SCRATCH_0, 7)
    held.unplug()
    held.replug()
    held.settle()
    assert scratch(held) == 0


def test_by_default_a_write_arrives_within_a_microsecond(radeon):
    radeon.bars[5].write32(SCRATCH_0, 7)
    assert scratch(radeon) == 0
    radeon.clock.sleep_us(1)
    assert scratch(radeon) == 7


def test_a_reset_of_the_card_does_not_strand_what_comes_after(radeon):
    radeon.bars[5].write32(SCRATCH_0, 7)
    radeon.mode1_reset()
    radeon.bars[5].write32(SCRATCH_0, 8)
    radeon.clock.sleep_us(1)
    assert scratch(radeon) == 8


def test_a_mapping_begins_behind_what_was_posted(held):
    held.bars[0].write32(0, 0x11223344)
    assert bytes(held.bars[0].map()[:4]) == b"\x44\x33\x22\x11"


def test_a_mistake_of_the_guest_is_reported_at_the_write(held):
    with pytest.raises(GuestError, match="0x2c"):
        held.bars[5].write32(UNNAMED, 0)
    with pytest.raises(GuestError, match="4 or 8 bytes"):
        held.bars[2].write(0x10, 1, 2)
    with pytest.raises(GuestError, match="written as dwords"):
        held.bars[5].write(SCRATCH_0, 1, 2)


def test_a_write_to_a_door_that_a_write_before_it_opens_arrives_there(held):
    held.bars[5].write32(REMAP_MEM, 0x7F000)
    held.bars[5].write32(0x7F000, 0)
    assert held.hdp.flushes == 1
