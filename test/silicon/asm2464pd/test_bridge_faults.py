"""Fault injection along the whole way through an enclosure: each fault strikes when asked to, acts as on metal, and
ends.
"""

import random

import pytest
import usb.core

from ringup.silicon.asm2464pd.hardware.faults import KINDS

DRAW = random.Random(5)
NO_DEVICE, PIPE = -4, -9


@pytest.fixture
def one(bridge):
    made = bridge().set_up_buses()
    made.sram[:] = DRAW.randbytes(len(made.sram))
    return made


def code_of(action):
    try:
        action()
    except usb.core.USBError as error:
        return error.backend_error_code
    return 0


def test_unknown_faults_are_refused_with_those_there_are(one):
    with pytest.raises(ValueError, match="disconnect_and_return"):
        one.enclosure.faults.inject("gremlins")
    assert {"stall", "short_packet", "lost_completion", "tlp_timeout", "ep0_64"} <= {kind.name for kind in KINDS}


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_stall_strikes_once_after_so_many_transfers(one, after):
    one.enclosure.faults.inject("stall", after)
    assert [code_of(lambda: one.peek(0xB450)) for _ in range(after + 3)] == [0] * after + [PIPE, 0, 0]


def test_a_bulk_endpoint_stays_halted_until_that_is_cleared(one):
    one.enclosure.faults.inject("stall", 1)
    assert code_of(lambda: one.write(one.vram, bytes(8))) == PIPE
    assert code_of(lambda: one.dev.write(0x02, bytes(8), 50)) == PIPE
    one.dev.clear_halt(0x02)
    assert code_of(lambda: one.write(one.vram, bytes(8))) == 0
    one.enclosure.faults.inject("stall")
    assert {code_of(lambda: one.peek(0xB450)) for _ in range(4)} == {PIPE}


def test_a_short_packet_ends_an_in_transfer_early(one):
    one.enclosure.faults.inject("short_packet", 0)
    assert one.peek(0xF000, 64) == bytes(one.sram[:32])
    assert one.peek(0xF000, 64) == bytes(one.sram[:64])
    one.radeon.bars[0].write_block(0, bytes(range(256)))
    one.enclosure.faults.inject("short_packet", 1)
    assert one.read(one.vram, 256) == bytes(range(128))


def test_a_lost_completion_is_a_time_out_of_what_was_done(one):
    one.enclosure.faults.inject("lost_completion", 0)
    with pytest.raises(usb.core.USBTimeoutError):
        one.poke(0xF000, 0x99)
    assert one.peek(0xF000) == b"\x99"
    data = DRAW.randbytes(4096)
    one.begin(0x60, one.vram, 1024, mode=1)
    one.enclosure.faults.inject("lost_completion", 0)
    # All data had moved when the time was over.
    assert one.dev.write(0x02, data, 50) == 4096
    assert one.read(one.vram, 4096) == data


@pytest.mark.parametrize("left", [0, 1, 1023, 1024, 100_000])
def test_a_device_that_leaves_in_the_middle_of_bulk_data_ends_it_there(one, left):
    one.enclosure.faults.inject("disconnect_after_bytes", left)
    one.arm(1023, slots=32)
    moving = one.host.submit(one.handle, 0x02, bytes(1023 * 512), timeout_ms=1000)
    other = one.host.submit(one.handle, 0x81, 512, timeout_ms=1000)
    while not moving.done:
        one.host.handle_events(1000)
    assert (moving.status, other.status) == ("no_device", "no_device")
    assert moving.actual == left
    assert list(one.host.enumerate_devices()) == []
    assert code_of(lambda: one.peek(0xB450)) == NO_DEVICE
    # The enclosure loses power with its bus.
    assert one.radeon.path.lost


def test_a_device_leaves_after_so_many_transfers(one):
    one.enclosure.faults.inject("disconnect_after_transfers", 7)
    assert [code_of(lambda: one.peek(0xB450)) for _ in range(9)] == [0] * 7 + [NO_DEVICE] * 2
    one.clock.sleep_us(10_000_000)
    assert list(one.host.enumerate_devices()) == []


def test_a_device_that_comes_back_has_another_address_and_a_cold_card(one):
    one.radeon.bars[0].write32(0, 0x77)
    before = one.dev.address
    one.enclosure.faults.inject("disconnect_and_return", 2)
    assert [code_of(lambda: one.peek(0xB450)) for _ in range(4)] == [0, 0, NO_DEVICE, NO_DEVICE]
    assert list(one.host.enumerate_devices()) == []
    one.clock.sleep_us(4_000_000)
    # The old handle belongs to the dead device for ever.
    assert code_of(lambda: one.peek(0xB450)) == NO_DEVICE
    one.open()
    assert one.dev.address == before + 1
    one.set_up_buses()
    assert one.read(one.vram, 4) == bytes(4)


def test_requests_on_pci_express_fail_by_name(one):
    read = lambda: one.request(0x20, one.vram)  # noqa: E731
    for name, result in (("tlp_timeout", 1), ("tlp_glitch", 1), ("tlp_hang", 0xFF)):
        one.enclosure.faults.inject(name, 1)
        start = one.clock.now_us
        assert read()[-1] == 0
        assert read()[-1] == result
        took_us = one.clock.now_us - start
        assert read()[-1] == 0
        assert (took_us > 5_000) == (name != "tlp_glitch")
    one.enclosure.faults.inject("unsupported_request", 0)
    assert (read()[1], read()[1]) == (1, 0)


def test_a_stream_does_not_tell_failed_requests_apart(one):
    one.radeon.bars[0].write_block(0, bytes(range(64)))
    one.enclosure.faults.inject("tlp_timeout", 4)
    data = one.read(one.vram, 32)
    # One failed request gives the data registers' older content.
    assert data == bytes(range(16)) + bytes(range(12, 16)) + bytes(range(20, 32))


def test_posted_writes_are_not_lost_where_requests_go_without_a_completion(one):
    for name in ("tlp_timeout", "tlp_hang", "tlp_glitch", "unsupported_request"):
        one.enclosure.faults.inject(name, 2)
        one.write(one.vram, bytes(range(32)))
        one.clock.sleep_us(1000)
        assert one.radeon.bars[0].read_block(0, 32) == bytes(range(32))
        # The fault waits for a request with a completion.
        assert one.enclosure.faults.get(name) == 2
        one.enclosure.faults.clear()
        one.radeon.bars[0].write_block(0, bytes(32))


def test_a_request_without_an_end_in_a_stream_hangs_the_firmware_until_the_device_is_unplugged(one):
    one.enclosure.faults.inject("tlp_hang", 3)
    with pytest.raises(usb.core.USBTimeoutError):
        one.read(one.vram, 64)
    for _ in range(2):
        with pytest.raises(usb.core.USBTimeoutError):
            one.peek(0xB450)
    one.host.unplug()
    one.host.plug(one.enclosure)
    one.open()
    assert one.peek(0xB450) == b"\x78"


def test_control_replies_of_64_bytes_at_any_speed(one):
    one.enclosure.faults.inject("ep0_64")
    assert len(one.peek(0xF000, 64)) == 64
    with pytest.raises(usb.core.USBTimeoutError):
        one.peek(0xF000, 65)
    one.enclosure.faults.clear("ep0_64")
    assert len(one.peek(0xF000, 65)) == 65


def test_faults_come_at_the_same_point_every_time(bridge):
    ends = []
    for _ in range(2):
        one = bridge().set_up_buses()
        one.enclosure.faults.inject("disconnect_after_bytes", 33_000)
        data = random.Random(3).randbytes(50_000 // 4 * 4)
        code = code_of(lambda one=one, data=data: one.write(one.vram, data))
        ends.append((code, one.clock.now_ns))
    assert ends[0] == ends[1]
    assert ends[0][0] == NO_DEVICE
