"""A drain of the bridge's memory: armed before the card lets it out, in nobody's way meanwhile, and never armed twice."""

import random

import pytest

from ringup.drivers.usb4.open_firmware import OpenBulk
from ringup.errors import TransportError

PLACE = 128 << 20  # in BAR 0: far from what the driver has taken
SUBMISSION = ["streaming", "draining", "memory", "memory", "memory", "memory"]  # what is asked of endpoint 0
REST = ["draining", "request"]


@pytest.mark.parametrize(("size", "drains"), [(4096, 1), (3 * OpenBulk.size_bytes, 3)])
def test_a_drain_is_armed_between_its_commands_and_the_doorbell_and_nothing_streams_until_it_is_in(docks, size, drains):
    """A stream meanwhile would take the endpoint's bytes; a doorbell before it might let them out while nobody takes them."""
    up, seen = docks(), []
    card = up.open()
    up.download(0, 3 * OpenBulk.size_bytes)
    with card.alloc(size) as buffer:
        card.copy.fill(buffer, 1).wait()
        card.device.bridge.port.observer = seen.append
        card.copy.download(buffer)
        card.device.bridge.port.observer = None
    asked = [one.doing.partition(" ")[0] for one in seen if not one.endpoint]
    assert asked == [*SUBMISSION, *REST * (drains - 1), "streaming"]


def test_what_is_looked_at_while_a_drain_is_armed_is_not_what_the_drain_brings(docks):
    up = docks()
    device, place = up.open().device, PLACE
    up.radeon.vram.write(place, bytes(range(32)))
    up.enclosure.chip.sram.view[:4096] = data = random.Random(3).randbytes(4096)
    device.bulk.arm(0, 4096)
    assert device.remote.poll(0, place, 32) == bytes(range(32))
    up.radeon.host.write(device.bulk.release_bus_addr, bytes(4))
    assert device.bulk.drain() == data


def test_a_drain_that_nobody_lets_out_is_no_second_one_s_nor_a_fill_s(docks):
    """As one that ctrl-C met before the engine was told: arming twice would hang the bridge's engine."""
    dock = docks()
    for again in (lambda: dock.download(1), lambda: dock.upload(1)):
        dock.open()
        dock.upload(0)
        dock.card.device.bulk.arm(0, 4096)
        with pytest.raises(TransportError, match="its engine waits for the rest; close the card, which restarts"):
            again()
        dock.recover()
        dock.upload(2)
        dock.download(2)
