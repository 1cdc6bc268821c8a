"""A drain of the bridge's memory: it is armed before the card releases it, does not disturb other accesses, and is
never armed twice.
"""

import random

import pytest

from ringup.drivers.amd.memory.spaces import USER_VMID
from ringup.drivers.usb4.open_firmware import BULK_IN, BULK_OUT, OpenBulk
from ringup.errors import DeviceFault, TransportError

PLACE = 128 << 20  # in BAR 0, far from what the driver uses
SUBMISSION = ["streaming", "draining", "memory", "memory", "memory", "memory"]  # the requests on endpoint 0
REST = ["draining", "request"]


@pytest.mark.parametrize(("size", "drains"), [(4096, 1), (3 * OpenBulk.size_bytes, 3)])
def test_a_drain_is_armed_between_its_commands_and_the_doorbell_and_nothing_streams_until_it_is_in(docks, size, drains):
    """A stream in between would take the endpoint's bytes. A doorbell before the drain could release them while nothing
    takes them.
    """
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
    """Such a drain remains when ctrl-C interrupts before the engine was notified. Arming twice would hang the bridge's
    engine.
    """
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


def test_what_befalls_the_card_while_bytes_come_out_is_raised_by_that_copy(docks, monkeypatch):
    """The arriving bytes show that they were copied, but show no fault. The driver looks for a fault after them."""
    up = docks()
    card = up.open()
    up.download(0)
    bulk, engine = card.device.bulk, up.radeon.sdma[0]
    drain = bulk.drain

    def faulty():
        data = drain()
        engine.hub.read(USER_VMID, 0x7FFF_0000_0000, 4, engine.client)
        return data

    with card.alloc(4096) as buffer:
        monkeypatch.setattr(bulk, "drain", faulty)
        with pytest.raises(DeviceFault, match="0x7fff"):
            card.copy.download(buffer)
        monkeypatch.undo()
    card.reset()
    up.radeon.violations.clear()
    up.download(1)


def test_the_engine_is_armed_while_commands_are_sent_and_notified_after_both(docks, monkeypatch):
    up, begun = docks(), []
    card, submit = up.open(), up.host.submit

    def watched(handle, endpoint, payload, *, setup=b"", **options):
        begun.append((endpoint, setup[1:2], submit(handle, endpoint, payload, setup=setup, **options)))
        under_way.append([transfer for _, _, transfer in begun if not transfer.done])
        return begun[-1][-1]

    up.upload(0)
    with card.alloc(4096) as buffer:
        under_way = []
        monkeypatch.setattr(up.host, "submit", watched)
        card.copy.download(buffer)
        monkeypatch.undo()
    (stream, _, _), (commands, _, sent), (_, arm, armed), (drain, _, drained) = begun[:4]
    assert (stream, commands, arm, drain) == (0, BULK_OUT, b"\xf2", BULK_IN)
    assert under_way[2] == [sent, armed]
    # The others have ended: the notification of the engine comes after them.
    assert under_way[4][:1] == [drained]
    assert not {id(sent), id(armed)} & {id(transfer) for transfer in under_way[4]}


def test_a_drain_takes_the_whole_memory_but_for_pages_that_somebody_was_given(docks):
    up = docks()
    device, sizes = up.open().device, []
    size = 2 * device.bulk.total_bytes
    device.bridge.port.observer = lambda seen: sizes.append(seen.size_bytes) if seen.endpoint == BULK_IN else None
    up.download(1, size)
    page = device.alloc_host(4096)
    kept = up.enclosure.chip.sram.view[page.bus_addr() - device.bulk.bus_addr :][:4096]
    kept[:] = data = random.Random(5).randbytes(4096)
    up.download(2, size)
    assert kept == data
    page.free()
    up.download(3, size)
    device.bridge.port.observer = None
    whole, rest = device.bulk.total_bytes, device.bulk.size_bytes
    assert [size for size in sizes if size > 4096] == [whole, whole, rest, rest, 2 * (whole - rest), whole, whole]
