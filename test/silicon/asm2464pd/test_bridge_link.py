"""The slot behind the bridge: power, training, the contents of registers, and an absent card.

Source: main.c, registers.h, pull requests 68 and 81 of the firmware.
"""

import pytest
import usb.core

from ringup.silicon import card as make_card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

L0 = b"\x78"


def test_firmware_shows_on_usb_after_it_trained_the_slot_or_before(bridge):
    one = bridge()
    # Generation 3, two lanes.
    assert (one.peek(0xB450), one.peek(0x4092, page=1)) == (L0, b"\x23")
    assert one.peek(0xB432)[0] & 7 == 7
    assert one.peek(0xE765)[0] & 2
    # The firmware looks three times, 100 ms apart.
    assert one.clock.now_us > 300_000
    off = bridge(boots_linked=False)
    assert off.clock.now_us < 300_000
    assert off.peek(0xB450)[0] in (0, 1)
    assert off.peek(0x4092, page=1) == b"\x00"


def test_power_request_trains_and_takes_away(bridge):
    one = bridge(boots_linked=False)
    start = one.clock.now_us
    one.power(True)
    assert 300_000 <= one.clock.now_us - start < 600_000
    assert one.peek(0xB450) == L0
    one.set_up_buses()
    one.radeon.bars[0].write32(0, 0x5A5A)
    one.power(False)
    assert one.peek(0xB450)[0] in (0, 1)
    assert one.radeon.path.lost
    one.power(True)
    # The bridge's own port keeps its bus numbers.
    assert one.config_read(0, 0x18) >> 8 & 0xFF == 1
    # The card lost its bus numbers.
    assert one.request(0x05, 3 << 24)[1] == 1
    one.set_up_buses()
    # The card lost the content of its memory too.
    assert one.read(one.vram, 4) == bytes(4)


def test_reset_signal_resets_the_card(bridge):
    one = bridge().set_up_buses()
    one.radeon.bars[0].write32(0, 0x5A5A)
    one.poke(0xB480, 1)
    assert one.peek(0xB450)[0] in (0, 1)
    one.poke(0xB480, 0)
    one.clock.sleep_us(300_000)
    assert one.peek(0xB450) == L0
    one.set_up_buses()
    assert one.read(one.vram, 4) == bytes(4)


def test_a_card_answers_detection_50_ms_after_its_power_came(bridge):
    one = bridge(boots_linked=False)
    for register, value in ((0xB480, 1), (0xC656, 0x20), (0xC659, 1), (0xE764, 0x1C), (0xB480, 0)):
        one.poke(register, value)
    one.clock.sleep_us(45_000)
    assert one.peek(0xB450)[0] in (0, 1)
    one.clock.sleep_us(10_000)
    # Polling.
    assert one.peek(0xB450)[0] >= 0x10
    one.clock.sleep_us(20_000)
    assert one.peek(0xB450) == L0


@pytest.mark.parametrize("missing", [0xC656, 0xC659, 0xE764])
def test_training_needs_power_lanes_and_the_switch(bridge, missing):
    one = bridge(boots_linked=False)
    one.poke(0xB480, 0)
    for register, value in ((0xC656, 0x20), (0xC659, 1), (0xE764, 0x1C)):
        if register != missing:
            one.poke(register, value)
    one.clock.sleep_us(1_000_000)
    assert one.peek(0xB450)[0] in (0, 1)
    one.poke(missing, {0xC656: 0x20, 0xC659: 1, 0xE764: 0x1C}[missing])
    one.clock.sleep_us(200_000)
    assert one.peek(0xB450) == L0


def test_width_cap_is_kept(bridge):
    one = bridge()
    for cap, lanes in ((0x0E, 1), (0x0C, 2), (0x00, 4)):
        one.poke(0xB480, 1)
        one.poke(0xB431, cap)
        one.poke(0xB480, 0)
        one.clock.sleep_us(300_000)
        assert one.peek(0x4092, page=1)[0] >> 4 == lanes


@pytest.mark.parametrize("why", ["no card", "no power", "never trains"])
def test_a_slot_that_finds_nobody_is_seen_to_look_and_is_acknowledged_all_the_same(why):
    radeon = None if why == "no card" else make_card("navi31", vram_bytes=64 << 20, enumerated=False)
    enclosure, host = Enclosure(radeon, powered=why != "no power"), VirtualUsbHost()
    if why == "never trains":
        enclosure.faults.inject("link_never_trains")
    host.plug(enclosure)
    dev = usb.core.find(backend=host)
    # The firmware waited its 2 s before it appeared on USB.
    assert enclosure.machine.now_us > 2_000_000
    seen = set()
    for _ in range(20):
        seen.add(dev.ctrl_transfer(0xC0, 0xE4, 0xB450, 0, 1)[0])
        enclosure.machine.sleep_us(7_000)
    assert seen == {0, 1}
    start = enclosure.machine.now_us
    dev.ctrl_transfer(0x40, 0xF3, 1, 0, None, timeout=10_000)
    assert enclosure.machine.now_us - start > 1_900_000


def test_a_slow_card_may_be_there_shortly_after_the_request(bridge):
    one = bridge(boots_linked=False, training_ms=2_500)
    one.power(True)
    assert one.peek(0xB450) != L0
    one.clock.sleep_us(1_000_000)
    assert one.peek(0xB450) == L0


def test_a_card_that_is_taken_out_and_put_back(bridge):
    one = bridge().set_up_buses()
    one.enclosure.unplug_card()
    assert one.peek(0xB450)[0] in (0, 1)
    assert one.radeon.path.lost
    one.enclosure.plug_card()
    one.clock.sleep_us(500_000)
    assert one.peek(0xB450) == L0
    assert not one.radeon.path.lost
    # The card is in its first state again.
    assert one.request(0x05, 3 << 24)[1] == 1


def test_a_link_that_drops_by_itself_stays_down_until_it_is_switched(bridge):
    one = bridge().set_up_buses()
    one.radeon.faults.inject("link_drop_after_bytes", 64)
    one.write(one.vram, bytes(256))
    # The packet is accepted before its dwords are sent.
    one.clock.sleep_us(1_000)
    assert one.peek(0xB450)[0] in (0, 1)
    one.clock.sleep_us(1_000_000)
    assert one.peek(0xB450)[0] in (0, 1)
    one.power(True)
    assert one.peek(0xB450) == L0


# The places of the capability in the port, the card's switch and the GPU.
EXPRESS = {1: 0x90, 2: 0x58, 4: 0x64}


def test_ports_tell_the_link_that_was_trained(bridge):
    one = bridge().set_up_buses()
    for bus in (1, 2):
        # LNKSTA: two lanes, 8 GT/s.
        assert one.config_read(bus, EXPRESS[bus] + 0x10) >> 16 & 0x3FF == 2 << 4 | 3
    # The data link layer is active.
    assert one.config_read(1, EXPRESS[1] + 0x10) >> 29 & 1
    one.enclosure.unplug_card()
    assert not one.enclosure.chip.fabric.downstream.config.get(EXPRESS[1] + 0x12, 2) >> 13 & 1


@pytest.mark.parametrize("bus", [0, 1, 3])
def test_a_reset_of_a_secondary_bus_resets_the_card_below(bridge, bus):
    one = bridge().set_up_buses()
    one.radeon.bars[0].write32(0, 0x1234)
    control = one.config_read(bus, 0x3C)
    one.config_write(bus, 0x3C, control | 0x40 << 16)
    assert one.request(0x05, 4 << 24)[1] == 1
    one.config_write(bus, 0x3C, control)
    if bus == 1:
        # The firmware retries for a while.
        assert one.request(0x05, 2 << 24)[1] == 2
    one.clock.sleep_us(100_000)
    one.set_up_buses()
    assert one.read(one.vram, 4) == bytes(4)
