"""The TLP engine by its registers, and the way of requests through the ports. Source: usb-to-pcie-re, registers.h, PCI
Express 4.0.
"""

import pytest

FORMAT, LENGTH, ENABLES, ADDRESS, DATA, STATUS, EXECUTE = 0xB210, 0xB213, 0xB217, 0xB218, 0xB220, 0xB296, 0xB254
ASM2461, UPSTREAM, DOWNSTREAM, GPU, AUDIO = 0x2461_1B21, 0x1478_1002, 0x1479_1002, 0x744C_1002, 0xAB30_1002
UNSUPPORTED, RETRY = 1, 2


def give(one, kind, address, value=None, enables=0xF):
    """Write a request's fields, byte by byte."""
    if value is not None:
        one.poke(DATA, *value.to_bytes(4, "big"))
    one.poke(ADDRESS, *(address & 0xFFFF_FFFF).to_bytes(4, "big"), *(address >> 32).to_bytes(4, "big"))
    one.poke(ENABLES, enables)
    one.poke(FORMAT, kind)


def answer(one):
    """Return (data, completion header, carried data) from the registers."""
    return int.from_bytes(one.peek(DATA, 4), "big"), int.from_bytes(one.peek(0xB22A, 2), "big"), one.peek(0xB284)[0]


# The three orders that are known to work.
ORDERS = {
    "trigger first": ((STATUS, 0x01), (STATUS, 0x02), (EXECUTE, 0x0F), (STATUS, 0x04)),
    "send first": ((STATUS, 0x01), (STATUS, 0x02), (STATUS, 0x04), (EXECUTE, 0x0F)),
    "at once": ((STATUS, 0x07), (EXECUTE, 0x0F)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_request_goes_once_both_were_written_in_either_order(bridge, order):
    one = bridge()
    give(one, 0x04, 0)
    sent = one.enclosure.chip.tlp.sent
    *first, last = ORDERS[order]
    for register, value in first:
        one.poke(register, value)
    assert one.enclosure.chip.tlp.sent == sent
    assert not one.peek(STATUS)[0] & 3
    one.poke(*last)
    assert one.enclosure.chip.tlp.sent == sent + 1
    assert one.peek(STATUS)[0] & 3 == 2
    assert answer(one) == (ASM2461, 0x0004, 1)
    one.poke(EXECUTE, 0x0F)
    # The next request needs both steps again.
    assert one.enclosure.chip.tlp.sent == sent + 1


def test_the_engine_is_ready_between_the_two(bridge):
    one = bridge()
    give(one, 0x04, 0)
    one.poke(EXECUTE, 0x0F)
    assert one.peek(STATUS) == b"\x04"
    one.poke(STATUS, 0x04)
    assert one.peek(STATUS) == b"\x02"


def test_done_and_its_data_stay_until_they_are_cleared_and_a_new_completion_comes(bridge):
    one = bridge()
    one.config_read(0, 0)
    give(one, 0x04, 8)
    assert one.peek(STATUS)[0] & 3 == 2
    one.poke(STATUS, 0x01)
    assert one.peek(STATUS)[0] & 3 == 2
    one.poke(STATUS, 0x02)
    assert one.peek(STATUS)[0] & 3 == 0
    assert answer(one)[0] == ASM2461


def test_a_completion_sometimes_shows_more_than_its_done_bit(bridge):
    one = bridge()
    seen = set()
    for _ in range(16):
        one.config_read(0, 0)
        seen.add(one.peek(STATUS)[0])
    assert seen == {0x02, 0x06}


def test_config_writes_complete_without_data_and_posted_writes_do_not_complete(bridge):
    one = bridge().set_up_buses()
    one.begin(0x44, 0x18, 0x0004_0100)
    assert one.completion()[1:] == (0, 4, 0, 0)
    one.begin(0x60, one.vram, 0x1234)
    assert one.peek(STATUS)[0] & 3 == 0
    # The firmware gives up polling.
    assert one.completion()[-1] == 0xFF
    assert one.radeon.bars[0].read32(0) == 0x1234


def test_byte_enables_choose_lanes(bridge):
    one = bridge().set_up_buses()
    one.begin(0x60, one.vram, 0x4433_2211)
    one.begin(0x60, one.vram, 0xDDCC_BBAA, enables=0b0110)
    assert one.radeon.bars[0].read32(0) == 0x44CC_BB11
    data, status, count, carried, _ = one.request(0x20, one.vram, enables=0b0100)
    assert (data >> 16 & 0xFF, status, count, carried) == (0xCC, 0, 1, 1)
    # A lane without its byte enable holds no reliable value.
    assert data & 0xFF != 0x11
    assert one.request(0x20, one.vram, enables=0b0011)[2] == 2
    # Formats with 32-bit addresses reach addresses below 4 GiB.
    for short in (0x00, 0x40):
        assert one.request(short & ~0x40, one.registers + 0x378C)[1] == 0


def test_bus_0_answers_for_every_device_number_and_the_slot_lies_behind_bus_1(bridge):
    one = bridge()
    assert {one.config_read(0, 0, device) for device in (0, 1, 17, 31)} == {ASM2461}
    # Bus 0 has one function.
    assert one.request(0x04, 1 << 16)[1] == UNSUPPORTED
    # There is no bus 1 before it is numbered.
    assert one.request(0x05, 1 << 24)[1] == UNSUPPORTED
    one.set_up_buses()
    assert [one.config_read(bus, 0) for bus in range(5)] == [ASM2461, ASM2461, UPSTREAM, DOWNSTREAM, GPU]
    assert one.config_read(4, 0, function=1) == AUDIO
    for bus, device in ((1, 1), (2, 3), (4, 1), (5, 0)):
        assert one.request(0x05, bus << 24 | device << 19)[1] == UNSUPPORTED
    assert one.config_read(0, 0x08) >> 8 == 0x060400


def test_a_bus_outside_the_range_of_a_port_is_not_reached(bridge):
    one = bridge().set_up_buses()
    # Up to bus 3.
    one.config_write(1, 0x18, 0x0003_0201)
    assert one.config_read(3, 0) == DOWNSTREAM
    assert one.request(0x05, 4 << 24)[1] == UNSUPPORTED
    one.config_write(0, 0x18, 0)
    assert one.request(0x05, 1 << 24)[1] == UNSUPPORTED


def test_memory_requests_need_decoding_and_a_window_at_every_port(bridge):
    one = bridge().set_up_buses()
    one.radeon.bars[0].write32(0x40, 0xCAFE)
    assert one.request(0x20, one.vram + 0x40)[:2] == (0xCAFE, 0)
    for bus in range(5):
        # Memory decoding is off.
        one.config_write(bus, 0x04, 0x05, 0x3)
        assert one.request(0x20, one.vram + 0x40)[1] == UNSUPPORTED, bus
        one.config_write(bus, 0x04, 0x07, 0x3)
    for bus in range(4):
        # The window begins behind it.
        one.config_write(bus, 0x28, 0x9)
        assert one.request(0x20, one.vram + 0x40)[1] == UNSUPPORTED, bus
        one.config_write(bus, 0x28, 0x8)
    assert one.request(0x20, one.vram + 0x40)[:2] == (0xCAFE, 0)
    assert one.request(0x20, one.vram - 0x1000)[1] == UNSUPPORTED
    # The BAR moves away.
    one.config_write(4, 0x10, one.vram + 0x1000_0000 & 0xFFFF_FFFF)
    assert one.request(0x20, one.vram + 0x40)[1] == UNSUPPORTED
    assert one.request(0x20, one.vram + 0x1000_0040)[:2] == (0xCAFE, 0)
    assert not one.enclosure.violations


def test_a_card_answers_with_a_retry_for_a_while_after_its_link_came_up(bridge):
    one = bridge(boots_linked=False)
    one.power(True)
    for bus in (0, 1):
        one.config_write(bus, 0x18, bus | bus + 1 << 8 | 4 << 16)
    # The firmware samples for 300 ms, which is long enough.
    assert one.config_read(2, 0) == UPSTREAM
    one.poke(0xB480, 1)
    one.poke(0xB480, 0)
    while one.peek(0xB450) != b"\x78":
        one.clock.sleep_us(1000)
    for bus in (0, 1):
        one.config_write(bus, 0x18, bus | bus + 1 << 8 | 4 << 16)
    assert one.request(0x05, 2 << 24)[1] == RETRY
    assert one.config_read(1, 0) == ASM2461
    one.clock.sleep_us(80_000)
    assert one.config_read(2, 0) == UPSTREAM


def test_nothing_hangs_while_the_link_is_down(bridge):
    one = bridge().set_up_buses()
    one.enclosure.unplug_card()
    assert one.peek(0xB450)[0] in (0, 1)
    for kind, address in ((0x04, 0), (0x05, 4 << 24), (0x20, one.vram)):
        # The engine's error bit.
        assert one.request(kind, address)[-1] == 1
    one.write(one.vram, bytes(64))
    assert len(one.read(one.vram, 64)) == 64


def test_a_card_that_fell_off_its_bus_completes_nothing_while_the_link_is_up(bridge):
    one = bridge().set_up_buses()
    one.radeon.faults.inject("all_ones_after_reads", 2)
    assert [one.request(0x20, one.vram)[-1] for _ in range(4)] == [0, 0, 1, 1]
    assert one.request(0x05, 4 << 24)[-1] == 1
    assert one.config_read(1, 0) == ASM2461
    assert one.peek(0xB450) == b"\x78"


@pytest.mark.parametrize(
    ("register", "value", "says"),
    [(LENGTH, 2, "length of 2 dwords"), (FORMAT, 0x30, "format 0x30"), (0xB21B, 2, "address 0x2 with byte enables")],
)
def test_requests_that_it_cannot_send_end_with_an_error(bridge, register, value, says):
    one = bridge()
    give(one, 0x04, 0)
    one.poke(register, value)
    one.poke(STATUS, 0x07)
    one.poke(EXECUTE, 0x0F)
    assert one.peek(STATUS)[0] & 3 == 1
    assert says in one.enclosure.violations[0].text


def test_a_field_that_was_never_given_is_reported(bridge):
    one = bridge()
    one.poke(STATUS, 0x07)
    one.poke(EXECUTE, 0x0F)
    assert one.peek(STATUS)[0] & 3 == 1
    assert "no value in B210" in one.enclosure.violations[0].text


def test_the_card_reaches_the_bridges_memories_while_it_may_and_no_window_covers_them(bridge):
    one = bridge().set_up_buses()
    host = one.radeon.host
    for bus_addr in (0x20_0000, 0x27_FFF0, 0x80_0000, 0x80_8000, 0x82_0000, 0x82_2000, 0x82_8000):
        host.write(bus_addr, b"\x12\x34\x56\x78")
        assert host.read(bus_addr, 4) == b"\x12\x34\x56\x78"
    assert (
        one.peek(0xF000, 4) == one.peek(0xA000, 4) == one.peek(0xB000, 4) == one.peek(0xB800, 4) == b"\x12\x34\x56\x78"
    )
    assert host.errors == 0
    for outside in (0x1F_FFFC, 0x28_0000, 0x82_1000, 0x81_0000):
        assert host.read(outside, 4) == b"\xff" * 4
    assert host.errors == 4
    for bus in range(5):
        # The card is not a bus master.
        one.config_write(bus, 0x04, 0x03, 0x3)
        assert host.read(0x20_0000, 4) == b"\xff" * 4, bus
        one.config_write(bus, 0x04, 0x07, 0x3)
    assert host.read(0x20_0000, 4) == b"\x12\x34\x56\x78"
    # A window from 2 MiB on.
    one.config_write(0, 0x20, 0xFFF0_0020)
    assert host.read(0x20_0000, 4) == b"\xff" * 4
