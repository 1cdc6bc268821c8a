"""Transfers between USB and the bridge's SRAM (request F2), and the card's view of them. Source: main.c,
test_sram_verify.py, ops_amd.py.
"""

import random
import struct

import pytest
import usb.core

DRAW = random.Random(23)
SRAM, QUEUE, RELEASE = 0x20_0000, 0x82_0000, 0x82_200C
SLOT = 0x4000


@pytest.fixture
def one(bridge):
    return bridge().set_up_buses()


def landed(one):
    one.clock.sleep_us(100)
    return one.sram


def stuck(one, action):
    with pytest.raises(usb.core.USBTimeoutError):
        action()
    assert one.enclosure.violations
    return True


def restart(one):
    """Restart the bridge's CPU through CC31, and find the device again."""
    with pytest.raises(usb.core.USBError) as caught:
        one.poke(0xCC31, 1)
    assert caught.value.backend_error_code == -4
    one.clock.sleep_us(2_000_000)
    one.open()
    one.set_up_buses()


def test_slots_are_16_kib_from_200000_on(one):
    for first, sectors in ((0, 1), (1, 31), (5, 33), (31, 3)):
        data = DRAW.randbytes(512 * sectors)
        assert one.fill(data, first) == len(data)
        assert landed(one)[first * SLOT : first * SLOT + len(data)] == data
        assert one.radeon.host.read(SRAM + first * SLOT, len(data)) == data
    assert one.peek(0xF000, 4) == bytes(one.sram[:4])


def test_usb_ends_before_the_memory_has_the_last_bytes(one):
    data = DRAW.randbytes(32 * 1024 - 512)
    one.fill(data)
    assert one.sram[: len(data)] != data
    assert one.sram[: SLOT // 2] == data[: SLOT // 2]
    assert landed(one)[: len(data)] == data


def test_data_goes_to_the_host_once_the_card_wrote_to_the_completion_queue(one):
    one.sram[:4096] = data = DRAW.randbytes(4096)
    one.arm(8, to_host=True)
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.read(0x81, 4096, 50)
    # A write of the bridge's CPU does not count as one of the card.
    one.poke(0xB80C, 1)
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.read(0x81, 4096, 50)
    one.radeon.host.write(RELEASE, bytes(4))
    assert bytes(one.dev.read(0x81, 4096)) == data
    # The card's write releases a transfer that is armed, not a later one.
    one.radeon.host.write(RELEASE, bytes(4))
    one.arm(8, to_host=True)
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.read(0x81, 4096, 50)


def test_a_whole_memory_comes_out_as_it_is_when_it_goes(one):
    one.arm(1024, slots=32, to_host=True)
    pending = one.host.submit(one.handle, 0x81, 1 << 19, timeout_ms=1000)
    one.sram[:] = data = DRAW.randbytes(1 << 19)
    one.radeon.host.write(RELEASE, struct.pack("<I", 0x1_0000))
    while not pending.done:
        one.host.handle_events(1000)
    assert pending.data == data
    assert not one.enclosure.violations


@pytest.mark.parametrize(("safe", "last"), [(True, True), (False, False)])
def test_a_window_that_is_filled_to_its_end_may_lose_its_last_slot(bridge, safe, last):
    one = bridge(spoils_full_windows=not safe).set_up_buses()
    data = DRAW.randbytes(16 * SLOT)
    one.fill(data)
    kept = landed(one)
    assert kept[: 15 * SLOT] == data[: 15 * SLOT]
    assert (kept[15 * SLOT : 16 * SLOT] == data[15 * SLOT :]) == last
    one.fill(data[: 15 * SLOT])
    assert landed(one)[: 15 * SLOT] == data[: 15 * SLOT]


@pytest.mark.parametrize(("sectors", "first", "slots"), [(0, 0, 1), (33, 0, 1), (1, 31, 2), (1, 32, 1)])
def test_an_arming_that_fits_no_slots_hangs_the_endpoint_until_a_restart(one, sectors, first, slots):
    one.arm(sectors, first, slots)
    assert stuck(one, lambda: one.dev.write(0x02, bytes(512), 50))
    one.dev.clear_halt(0x02)
    assert stuck(one, lambda: one.fill(bytes(512)))
    restart(one)
    assert one.fill(b"\x42" * 512) == 512
    assert landed(one)[:512] == b"\x42" * 512


@pytest.mark.parametrize("size", [512, 3072, 8192])
def test_a_transfer_of_another_size_than_was_armed_hangs_the_endpoint(one, size):
    one.arm(8)
    # USB took these bytes. Of a transfer larger than the armed one it took the armed size.
    assert one.dev.write(0x02, bytes(size), 50) == min(size, 4096)
    assert stuck(one, lambda: one.fill(bytes(512)))


def test_an_interrupted_transfer_leaves_the_engine_armed_and_only_later_firmware_forgets_that_at_a_bus_reset(bridge):
    for profile, recovers in (("custom", False), ("later", True)):
        one = bridge(profile=profile)
        one.power(True)
        one.set_up_buses()
        one.arm(64, slots=2)
        # Half of the armed size.
        one.dev.write(0x02, bytes(SLOT))
        one.dev.reset()
        one.open()
        if recovers:
            assert one.fill(b"\x17" * 512) == 512
            assert landed(one)[:512] == b"\x17" * 512
        else:
            assert stuck(one, lambda one=one: (one.fill(bytes(512)), one.fill(bytes(512)), one.fill(bytes(512))))


def test_one_transfer_may_be_armed_while_the_one_before_it_moves_and_no_more(one):
    first, second = DRAW.randbytes(15 * SLOT), DRAW.randbytes(8 * SLOT - 512)
    one.arm(len(first) // 512, 0, 16)
    moving = one.host.submit(one.handle, 0x02, first, timeout_ms=1000)
    one.arm(len(second) // 512, 16, 8)
    assert not moving.done
    following = one.host.submit(one.handle, 0x02, second, timeout_ms=1000)
    while not following.done:
        one.host.handle_events(1000)
    memory = landed(one)
    assert (memory[: len(first)], memory[16 * SLOT : 16 * SLOT + len(second)]) == (first, second)
    assert not one.enclosure.violations
    for slot in range(3):
        one.arm(1, slot)
    assert stuck(one, lambda: one.dev.write(0x02, bytes(512), 50))


def test_writes_of_the_card_to_the_queue_entries_spoil_a_transfer_that_moves(one):
    data = DRAW.randbytes(4 * SLOT - 512)
    one.arm(len(data) // 512, 0, 4)
    moving = one.host.submit(one.handle, 0x02, data, timeout_ms=1000)
    one.clock.sleep_us(30)
    # Writes to the upper half of the page do no harm.
    one.radeon.host.write(QUEUE + 0x800, bytes(8))
    assert not one.enclosure.violations
    one.radeon.host.write(QUEUE + 0x100, bytes(8))
    while not moving.done:
        one.host.handle_events(1000)
    assert landed(one)[: len(data)] != data
    assert "0x820100" in one.enclosure.violations[0].text
    one.radeon.host.write(QUEUE + 0x100, bytes(8))
    # A write does no harm while nothing moves.
    assert len(one.enclosure.violations) == 1


@pytest.mark.parametrize(
    ("speed", "rate"), [("super_plus", 700), ("super_plus_by2", 700), ("super", 450), ("high", 40)]
)
def test_a_transfer_of_512_kib_has_the_measured_rate(bridge, speed, rate):
    one = bridge(speed).set_up_buses()
    start = one.clock.now_us
    one.fill(bytes(1 << 19))
    assert (1 << 19) / (one.clock.now_us - start) == pytest.approx(rate, rel=0.05)  # MB/s
    one.arm(1024, slots=32, to_host=True)
    one.radeon.host.write(RELEASE, bytes(4))
    start = one.clock.now_us
    assert len(one.dev.read(0x81, 1 << 19)) == 1 << 19
    assert (1 << 19) / (one.clock.now_us - start) == pytest.approx(rate, rel=0.06)
