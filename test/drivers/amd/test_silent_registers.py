"""A card that is on the bus while one of its windows reads all ones: the driver takes no such reading for a value, and
a reset recovers the card.
"""

import pytest

import ringup
from ringup.drivers.amd.lifecycle import shutdown
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.errors import DeviceHung, DeviceLost

VRAM = 64 << 20
SILENT = "registers read all ones though the card is on the bus: it sleeps or hangs; reset its slot or power it off"


class Ones:
    """A BAR of a virtual card. After a number of reads it reads all ones and drops writes, until `over`."""

    def __init__(self, radeon, number, after=0):
        self.left = after
        self.written = []
        bar = radeon.bars[number]
        read, block, write = bar.read, bar.read_block, bar.write
        bar.read = lambda offset, size: (1 << 8 * size) - 1 if self.silent() else read(offset, size)
        bar.read_block = lambda offset, size: b"\xff" * size if self.silent() else block(offset, size)

        def store(offset, value, size):
            if self.left < 0:
                self.written.append((offset, value))
            else:
                write(offset, value, size)

        bar.write = store
        bar.mappable = False

    def silent(self):
        self.left -= 1
        return self.left < 0

    def over(self):
        self.left = 1 << 60


def start(radeon):
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        return str(card.report())


@pytest.mark.parametrize("after", [0, 30, 90, 150, 220])
def test_a_start_names_registers_that_answer_no_more(virtual_card, after):
    radeon = virtual_card(vram_bytes=VRAM)
    ones = Ones(radeon, 5, after)
    before_us = radeon.clock.now_us
    with pytest.raises(DeviceLost, match=SILENT):
        start(radeon)
    assert radeon.clock.now_us - before_us < 5_000_000
    # Nothing that was read is written back.
    assert not [value for _, value in ones.written if value == 0xFFFF_FFFF]


def test_reading_ones_is_not_taken_for_a_state(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    Ones(radeon, 5)
    with pytest.raises(DeviceLost, match=SILENT):
        Bare(radeon).state()


def test_a_report_of_a_card_that_goes_silent_meanwhile_names_that(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    card = ringup.open(radeon.name, transport={"card": radeon})
    Ones(radeon, 5, 30)
    report = card.report()
    assert SILENT in report.cause
    assert report.unreachable
    assert report.queues
    card.close()


def test_a_window_without_a_device_gives_no_data(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    bare = Bare(radeon)
    Ones(radeon, 0)
    with pytest.raises(DeviceLost, match=r"its window \(BAR 0\) reads all ones though its registers answer"):
        bare.window.read(0, 64)


def test_memory_that_holds_ones_is_data(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    radeon.vram.view[0:64] = b"\xff" * 64
    assert Bare(radeon).window.read(0, 64) == b"\xff" * 64


def test_a_reset_from_the_bus_gets_silent_registers_back(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    ones, reset = Ones(radeon, 5), radeon.reset

    def by_bus(method):
        reset(method)
        ones.over()

    radeon.reset = by_bus
    rungs = shutdown.reset(Bare(radeon))
    assert [(rung.name, bool(rung.error)) for rung in rungs] == [("mode1", True), ("slot", False)]
    assert "nothing is wrong" in start(radeon)


def test_a_card_that_stays_silent_behind_every_reset_is_hung(virtual_card):
    radeon = virtual_card(vram_bytes=VRAM)
    Ones(radeon, 5)
    with pytest.raises(DeviceHung, match=f"no reset helped .*slot: failed: .*{SILENT}"):
        shutdown.reset(Bare(radeon))
