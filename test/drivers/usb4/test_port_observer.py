"""An observer of a port receives every transfer: its purpose, its byte count and its result, in the order in which they
ended.
"""

import pytest

import ringup
from ringup import silicon
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

VRAM_BAR = 0
IN = 0x80


@pytest.fixture
def enclosure():
    one = Enclosure(silicon.card("navi31", vram_bytes=256 << 20, enumerated=False))
    VirtualUsbHost().plug(one)
    return one


@pytest.fixture
def path(enclosure):
    with_bridge = ringup.connect("virtual:navi31@asm2464pd", enclosure=enclosure)
    yield with_bridge
    with_bridge.close()


def test_every_transfer_is_reported_once_with_its_bytes(path):
    seen, before = [], path.counts.copy()
    path.bridge.port.observer = seen.append
    path.bars[VRAM_BAR].read_block(0, 4096)
    path.bars[VRAM_BAR].write_block(0, bytes(range(256)) * 64)
    path.close()
    counts = path.counts.since(before)
    assert [one.endpoint for one in seen].count(0) == counts.control
    assert sum(one.endpoint != 0 for one in seen) == counts.bulk
    assert sum(one.size_bytes for one in seen if one.endpoint & IN) == 4096
    assert {one.status for one in seen} == {"completed"}
    assert all(one.doing for one in seen)


def test_a_removed_observer_receives_nothing(path):
    seen = []
    path.bridge.port.observer = seen.append
    path.bars[VRAM_BAR].read32(0)
    told = len(seen)
    path.bridge.port.observer = None
    path.bars[VRAM_BAR].read32(0)
    assert len(seen) == told > 0


def test_times_of_a_transfer_lie_within_what_passed(path):
    seen, began = [], path.clock.now_us
    path.bridge.port.observer = seen.append
    path.bars[VRAM_BAR].read_block(0, 4096)
    assert all(began <= one.submitted_us <= one.ended_us <= path.clock.now_us for one in seen)
    assert [one.ended_us for one in seen] == sorted(one.ended_us for one in seen)


def test_a_transfer_that_a_pulled_cable_ends_is_reported_as_such(path, enclosure):
    seen = []
    path.bridge.port.observer = seen.append
    enclosure.faults.inject("disconnect_after_transfers", 0)
    path.bars[VRAM_BAR].read32(0)
    assert path.lost
    assert seen[-1].status == "no_device"
