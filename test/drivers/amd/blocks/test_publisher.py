"""How an engine is notified of work: for each kind of path and engine, which accesses are sent, and in which order."""

import pytest

from ringup.drivers.amd.bus.doorbells import Doorbell
from ringup.drivers.amd.submission.publisher import Publisher

FLUSH, REQUEST, SENT = "flush", "request", "sent"
WPTR_BYTES = 0x1_0000_0100


class Bus:
    """Records, in order, what reaches the card's path: doorbell writes, host data path flushes, memory stores,
    collected requests.
    """

    size_bytes = 0x1000

    def __init__(self):
        self.seen = []

    def request(self):
        self.seen.append(REQUEST)

    def flush(self):
        self.seen.append(FLUSH)

    def store_pointer(self, value):
        self.seen.append(("pointer", value))

    def write64(self, offset, value):
        self.seen.append(("doorbell", offset, value))

    def write32(self, offset, value):
        self.seen.append(("half a doorbell", offset, value))


class Remote:
    def __init__(self, bus):
        self.bus = bus

    def flush(self):
        self.bus.seen.append(SENT)


def published(wptr_bytes=WPTR_BYTES, *, collects=False, **kind):
    bus = Bus()
    bell = Doorbell(bus, 6, halved=kind["through_window"])
    Publisher(bus, bus.store_pointer, bell, Remote(bus) if collects else None, **kind).publish(wptr_bytes)
    return bus.seen


def test_a_pointer_in_host_memory_that_an_engine_polls_is_stored_behind_a_flush_that_has_arrived():
    pointer, bell = ("pointer", WPTR_BYTES), ("doorbell", 24, WPTR_BYTES)
    assert published(unit_bytes=1, polled=True, through_window=False) == [FLUSH, pointer, bell]


def test_a_pointer_in_host_memory_that_no_engine_polls_needs_no_flush_that_has_arrived():
    pointer, bell = ("pointer", WPTR_BYTES), ("doorbell", 24, WPTR_BYTES)
    assert published(unit_bytes=1, polled=False, through_window=False) == [REQUEST, pointer, bell]


def test_a_pointer_in_vram_is_flushed_itself_before_the_doorbell():
    halves = [("half a doorbell", 28, 1), ("half a doorbell", 24, 0x100)]
    sent = published(unit_bytes=1, polled=True, through_window=True, collects=True)
    assert sent == [REQUEST, ("pointer", WPTR_BYTES), REQUEST, *halves, SENT]


def test_an_engine_that_hears_doorbells_alone_gets_no_pointer_in_vram():
    sent = published(unit_bytes=1, polled=False, through_window=True, collects=True)
    assert sent == [REQUEST, ("half a doorbell", 28, 1), ("half a doorbell", 24, 0x100), SENT]


@pytest.mark.parametrize(("unit_bytes", "units"), [(1, WPTR_BYTES), (4, 0x4000_0040)])
def test_pointer_and_doorbell_count_the_engines_units(unit_bytes, units):
    _, pointer, bell = published(unit_bytes=unit_bytes, polled=True, through_window=False)
    assert (pointer[-1], bell[-1]) == (units, units)
