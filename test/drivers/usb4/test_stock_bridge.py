"""Stock and patched firmware on virtual enclosures with a card: what reaches the card, how many transfers it takes, and
what happens in faults.
"""

import random

import pytest

from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.transport import open as open_path
from ringup.errors import DeviceLost, DeviceTimeout, RingupError
from ringup.silicon import card as make_card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

VRAM_BYTES = 32 << 20


class Bench:
    """An enclosure with a card, open as the driver opens it. `vram` is the card's memory itself."""

    def __init__(self, firmware, speed):
        self.card = make_card("navi31", vram_bytes=VRAM_BYTES, enumerated=False)
        self.enclosure = Enclosure(self.card, firmware, speed)
        self.host = VirtualUsbHost(self.enclosure.machine)
        self.host.plug(self.enclosure)
        self.host.clock.sleep_us(6_000_000)
        self.device = self.open()
        self.bridge, self.port = self.device.bridge, self.device.bridge.port

    def open(self):
        return open_path("1-1", backend=self.host, clock=self.host.clock)

    @property
    def vram(self):
        return self.card.vram

    @property
    def base(self):
        return next(bar.address for bar in self.device.board.bars if bar.index == 0)


@pytest.fixture(params=[("stock", "super_plus"), ("patched", "super_plus"), ("stock", "high")], ids=" ".join)
def bench(request):
    made = Bench(*request.param)
    yield made
    made.device.close()
    assert not made.enclosure.violations


@pytest.fixture
def stock():
    return Bench("stock", "super_plus")


@pytest.fixture
def patched():
    return Bench("patched", "super_plus")


def test_the_firmware_and_its_transport_are_reported(bench, request):
    name = request.node.callspec.id.split()[0]
    assert (bench.bridge.kind, bench.bridge.version) == (name, "240417_85_00_00")
    assert bench.bridge.transport == (
        "Attached SCSI, 31 streams" if bench.port.speed_mbps > 480 else "Bulk-Only Transport"
    )
    assert bench.bridge.link().up


def test_random_writes_and_reads_are_those_of_the_cards_memory(bench):
    """72 accesses of any size and alignment, both ways, compared with the memory itself."""
    chance = random.Random(9)
    window = bench.device.bars[0]
    for _ in range(12):
        size = chance.choice((1, 2, 3, 4, 7, 8, 60, chance.randrange(1, 100)))
        at = chance.randrange(0x10_0000, 0x20_0000 - size)
        data = chance.randbytes(size)
        window.write_block(at, data)
        assert window.read_block(at, size) == data
        bench.bridge.settle()
        assert bytes(bench.vram.read(at, size)) == data
        beside = chance.randbytes(size)
        bench.vram.write(at, beside)
        assert window.read_block(at, size) == beside


def test_a_read_is_one_wait_and_writes_are_none(stock):
    window, counts = stock.device.bars[0], stock.port.counts
    window.write32(0x1000, 1)
    before = counts.copy()
    assert window.read32(0x1000) == 1
    assert counts.since(before).waits <= 2  # one if nothing was under way
    before = counts.copy()
    for at in range(4):
        window.write32(0x1000 + 4 * at, at)
    assert counts.since(before).waits == 0


@pytest.mark.parametrize("name", ["tlp_glitch", "tlp_timeout"])
def test_a_garbled_request_is_repeated_without_an_error(stock, name):
    window = stock.device.bars[0]
    for after in range(8):
        data = random.Random(after).randbytes(64)
        stock.vram.write(0x2000, data)
        stock.enclosure.faults.inject(name, after)
        assert window.read_block(0x2000, 64) == data


def test_an_unsupported_request_is_an_answer(stock):
    assert stock.bridge.request([tlp.memory_read(0xE000_0000)])[0].status == tlp.UNSUPPORTED
    assert stock.bridge.request([tlp.config_read(4, 7, 0, 0)]) == [tlp.Completion(tlp.UNSUPPORTED)]


def test_a_request_that_hangs_is_reported_within_a_bound(stock):
    stock.enclosure.faults.inject("tlp_hang", -1)
    before_us = stock.host.clock.now_us
    with pytest.raises((DeviceTimeout, DeviceLost)):
        stock.bridge.request([tlp.memory_read(stock.base)])
    assert stock.host.clock.now_us - before_us < 5_000_000
    stock.enclosure.faults.clear("tlp_hang")
    assert stock.bridge.request([tlp.memory_read(stock.base)])[0].status == tlp.SUCCESS


def test_a_card_that_is_pulled_out_is_lost_and_the_bridge_is_not(stock):
    stock.enclosure.unplug_card()
    with pytest.raises(DeviceLost, match="the link between enclosure and card is down"):
        stock.bridge.request([tlp.memory_read(stock.base)])
    assert stock.bridge.xdata_read(0x07F0, 3) == bytes.fromhex("240417")


@pytest.mark.parametrize("transfers", [1, 3, 50])
def test_an_unplugged_cable_is_a_lost_device_at_any_transfer(stock, transfers):
    window = stock.device.bars[0]
    stock.enclosure.faults.inject("disconnect_after_transfers", transfers)
    before_us = stock.host.clock.now_us
    while not stock.port.lost:
        window.write_block(0x3000, bytes(64))
        window.read_block(0x3000, 64)
    assert stock.host.clock.now_us - before_us < 3_000_000
    with pytest.raises(DeviceLost):
        stock.bridge.request([tlp.memory_read(stock.base)])


@pytest.mark.parametrize("name", ["stall", "short_packet", "lost_completion", "scsi_check_condition"])
def test_a_fault_of_a_transfer_is_an_error_and_the_bridge_works_after_it_or_after_a_reopen(stock, name):
    """Five points of each copy. The read bytes are right, or an error comes within the time limit. The next program
    finds a bridge that works.
    """
    chance = random.Random(name)
    for _ in range(5):
        data, bridge = chance.randbytes(64), stock.device.bridge
        stock.enclosure.faults.inject(name, chance.randrange(1, 60))
        before_us = stock.host.clock.now_us
        try:
            for _ in range(4):
                bridge.write_block(stock.base + 0x4000, data)
                assert bridge.read_block(stock.base + 0x4000, len(data)) == data
        except RingupError:
            stock.enclosure.faults.clear(name)
            stock.device.close()
            stock.device = stock.open()
        assert stock.host.clock.now_us - before_us < 10_000_000
        stock.enclosure.faults.clear(name)
        bridge = stock.device.bridge
        bridge.write_block(stock.base + 0x4000, data[::-1])
        assert bridge.read_block(stock.base + 0x4000, len(data)) == data[::-1]


def test_a_window_of_bytes_is_filled_by_usb_and_read_back_through_the_page(patched):
    bulk = patched.bridge.bulk
    chance = random.Random(1)
    for size in (1, 512, 4096, 0x4000, 0x4001, 0x1_0000, 0x2_3456, bulk.size_bytes):
        data = chance.randbytes(size)
        bulk.fill(0, data)
        patched.bridge.settle()
        bulk.arm(0, min(size, 4096))
        assert bulk.drain() == data[:4096]
        assert bytes(patched.enclosure.chip.sram.view[:size]) == data
    bulk.fill(0x1_8000, b"later" * 1000)
    held = bytes(patched.enclosure.chip.sram.view[: bulk.size_bytes])
    assert held == data[:0x1_8000] + b"later" * 1000 + data[0x1_8000 + 5000 :]
    assert not patched.enclosure.violations


def test_bytes_go_into_the_buffer_at_more_than_60_megabytes_a_second_of_modelled_time(patched):
    bulk, clock = patched.bridge.bulk, patched.host.clock
    bulk.fill(0, bytes(512))
    before, before_us = patched.port.counts.copy(), clock.now_us
    bulk.fill(0, bytes(bulk.size_bytes))
    assert bulk.size_bytes / (clock.now_us - before_us) > 60  # bytes a microsecond
    assert patched.port.counts.since(before).transfers < 150


def test_a_page_is_filled_and_drained_without_the_patch(stock):
    bulk = stock.bridge.page
    data = random.Random(2).randbytes(4096)
    bulk.fill(0, data)
    bulk.arm(0, 4096)
    assert bulk.drain() == data
    assert not stock.enclosure.violations
