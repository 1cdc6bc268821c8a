"""A card's figures, for its holder and for a second process that may only read."""

import json

import pytest

from ringup.drivers.amd.bus.registers import REGISTER_BAR
from ringup.drivers.amd.observe.watch import watch
from ringup.drivers.transport.linux.readonly import ReadOnly
from ringup.errors import DeviceLost, NotSupported

CHIPS = ("navi31", "navi32", "navi33", "navi48", "mi300x")


def untouched(radeon):
    """What a reader from outside must not change: the start of VRAM, index and mailbox registers."""
    registers = radeon.bars[REGISTER_BAR]
    return bytes(radeon.vram.view[: 1 << 20]), [registers.read32(at) for at in (0x0, 0x18, 0x50)]


@pytest.mark.parametrize("chip", CHIPS)
def test_stats_are_what_the_card_does(bench, chip):
    bench = bench(chip)
    card, power = bench.card, bench.radeon.smu.power
    before = card.stats()
    assert before.power_limit_w == power.power_limit
    # an MI300X has no sensor at its edge
    sensor = "hotspot" if chip == "mi300x" else "edge"
    assert abs(getattr(before.metrics, f"{sensor}_temperature_c") - power.temperature) <= 1
    assert not before.activity.any
    # to the board's own switch
    assert before.link == (5 if chip in ("navi48", "mi300x") else 4, 16)
    with card.alloc(8 << 20):
        during = card.stats()
        assert during.memory["vram"].used_bytes - before.memory["vram"].used_bytes == 8 << 20
        assert during.memory["vram"].buffers == before.memory["vram"].buffers + 1
    assert before.memory["vram"].used_bytes == card.stats().memory["vram"].used_bytes  # a copy, not a live view
    assert before.memory["vram"].free_bytes <= 512 << 20
    bench.store(bench.flag, 0).wait()
    bench.hang()
    busy = card.stats()
    assert busy.activity.any
    assert busy.activity.shaders
    compute = busy.queues[0]
    assert (compute.submitted, compute.completed, compute.mapped) == (3, 2, True)
    assert compute.wptr_bytes == card.compute.ring.wptr
    card.reset()
    after = card.stats()
    assert (after.resets, after.faults) == (1, 0)
    assert after.interrupts["end of pipe"] >= 2
    json.dumps(after.as_dict())


# an MI300X tells its temperature to its holder alone, in the table of metrics
@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip != "mi300x"])
def test_a_second_process_sees_it_and_changes_nothing(bench, chip):
    bench = bench(chip, bar0_bytes=512 << 20)
    seen = bench.card.stats()
    before = untouched(bench.radeon)
    with watch(bench.radeon) as eyes:
        first = eyes.stats()
        assert first.metrics == seen.metrics
        assert first.temperature_c == round(bench.radeon.smu.power.temperature)
        assert first.link == seen.link
        assert first.vram_bytes == 512 << 20
        assert not first.activity.any
        assert untouched(bench.radeon) == before
        bench.hang()
        assert eyes.stats().activity.shaders
        bench.card.stats()
        assert eyes.stats().looks == first.looks + 1
        json.dumps(first.as_dict())
        bench.card.reset()


def test_a_small_window_shows_the_metrics_and_no_sensors(bench):
    bench = bench(vram_bytes=1 << 30, bar0_bytes=256 << 20)
    seen = bench.card.stats()
    before = untouched(bench.radeon)
    with watch(bench.radeon) as eyes:
        shown = eyes.stats()
    assert (shown.metrics, shown.vram_bytes) == (seen.metrics, 1 << 30)
    assert (shown.temperature_c, shown.activity) == (None, None)
    assert shown.link == seen.link
    assert untouched(bench.radeon) == before


def test_a_core_that_nobody_of_ours_started_is_not_touched(virtual_card):
    radeon = virtual_card("navi31", vram_bytes=64 << 20)
    radeon.config.write(4, 2, 2)  # memory decoding
    with watch(radeon) as eyes:
        shown = eyes.stats()
    assert (shown.metrics, shown.activity) == (None, None)
    assert shown.temperature_c == round(radeon.smu.power.temperature)


def test_a_reader_cannot_write(bench):
    bench = bench()
    device = ReadOnly.of(bench.radeon)
    window = device.bars[0]
    for write in (
        lambda: window.write32(0, 1),
        lambda: window.write64(0, 1),
        lambda: window.write_block(0, b"1234"),
        lambda: window.batch(),
        lambda: device.config.write(4, 0, 2),
        lambda: device.alloc_host(4096),
        lambda: device.pin(memoryview(bytearray(4096))),
        lambda: device.reset("function"),
    ):
        with pytest.raises(ValueError, match="open for looking only"):
            write()
    with pytest.raises(TypeError, match="read-only"):
        window.map()[0] = 1
    assert device.resets() == ()
    assert bench.works(1)


def test_a_card_that_is_gone_is_reported_as_lost(bench):
    bench = bench()
    with watch(bench.radeon) as eyes:
        bench.radeon.tree.set_link(up=False)
        with pytest.raises(DeviceLost):
            eyes.stats()
    with pytest.raises(DeviceLost):
        bench.card.stats()
    with pytest.raises(DeviceLost):
        watch(bench.radeon)


def test_a_virtual_card_by_name_cannot_be_watched():
    with pytest.raises(NotSupported, match="virtual:navi31 cannot be watched from another process"):
        watch("virtual:navi31")
