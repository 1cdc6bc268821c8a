"""The open firmware on USB: descriptors, requests it answers or ignores, and what a host may do.

Source: handmade/src/usb.h and main.c.
"""

import struct

import pytest
import usb.core

from ringup.silicon import card as make_card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.silicon.common.clock import VirtualClock

# The bytes in usb.h.
DEVICE_SUPER = bytes.fromhex("120120030000000 9d1ad01000100010203 01".replace(" ", ""))
DEVICE_HIGH = bytes.fromhex("1201000200000040d1ad0100010001020301")
ALTERNATE_0 = bytes.fromhex(
    "090400000 2ffffff00 07058102000400 06300f000000 07050202000400 06300f000000".replace(" ", "")
)
CONFIGURATION_HIGH = bytes.fromhex(
    "09022e00010100c000 0904000004ffffff00 07058102000200 07050202000200 07058302000200 07050402000200".replace(" ", "")
)
BOS = bytes.fromhex("050f160002 07100202000000 0a1003000e0003000000".replace(" ", ""))


def fails(code, action):
    with pytest.raises(usb.core.USBError) as caught:
        action()
    return caught.value.backend_error_code == code


def times_out(action):
    with pytest.raises(usb.core.USBTimeoutError):
        action()
    return True


def test_it_is_what_its_descriptors_say(bridge):
    one = bridge(serial=bytes.fromhex("0102a0ff"))
    ask = lambda kind, index, length: bytes(one.dev.ctrl_transfer(0x80, 6, kind << 8 | index, 0x409, length))  # noqa: E731
    assert ask(1, 0, 18) == DEVICE_SUPER
    whole = ask(2, 0, 255)
    assert len(whole) == 121
    assert whole[9 : 9 + len(ALTERNATE_0)] == ALTERNATE_0
    assert ask(15, 0, 255) == BOS
    assert ask(2, 0, 9) == whole[:9]
    assert (one.dev.manufacturer, one.dev.product, one.dev.serial_number) == ("tiny", "custom v0.1", "0102a0ff")
    # A string that the firmware does not have is empty.
    assert ask(3, 9, 255) == b"\x02\x03"
    high = bridge("high")
    assert bytes(high.dev.ctrl_transfer(0x80, 6, 0x100, 0, 18)) == DEVICE_HIGH
    assert bytes(high.dev.ctrl_transfer(0x80, 6, 0x200, 0, 46)) == CONFIGURATION_HIGH
    # LIBUSB_SPEED_HIGH and _SUPER_PLUS
    assert [high.dev.speed, one.dev.speed] == [3, 5]
    assert [high.peek(0x9100)[0] & 3, one.peek(0x9100)[0] & 3] == [1, 3]


def test_later_firmware_has_another_identity_and_more_requests(bridge):
    one = bridge(profile="later")
    assert (one.dev.idVendor, one.dev.idProduct) == (0x3801, 1)
    reply = bytes(one.dev.ctrl_transfer(0xC0, 0xF4, 0, 0, 16))
    assert (reply[:4], reply[6]) == (b"TG24", 16)
    assert struct.unpack("<Hh", bytes(one.dev.ctrl_transfer(0xC0, 0xC0, 0, 0, 4)))[0] == 12_000
    assert fails(-9, lambda: one.dev.ctrl_transfer(0xC0, 0x77, 0, 0, 4))
    # The firmware leaves the slot alone.
    assert one.peek(0xB450) != b"\x78"


def test_what_it_does_not_know_runs_into_a_time_out_unless_it_has_no_data(bridge):
    dev = bridge().dev
    for request in (
        (0x80, 0, 0, 0, 2),
        (0x80, 8, 0, 0, 1),
        (0x80, 6, 0x600, 0, 10),
        (0xC0, 0xF4, 0, 0, 16),
        (0xC0, 0x77, 0, 0, 4),
    ):
        assert times_out(lambda request=request: dev.ctrl_transfer(*request, timeout=100))
    assert dev.ctrl_transfer(0x40, 0x77, 1, 2, None) == 0
    # The firmware keeps working.
    assert dev.ctrl_transfer(0xC0, 0xE4, 0xB450, 0, 1)[0] == 0x78


@pytest.mark.parametrize(("speed", "most"), [("super", 512), ("high", 64)])
def test_a_reply_that_fills_whole_packets_and_is_short_never_ends(bridge, speed, most):
    one = bridge(speed)
    one.poke(0xF000, 1, 2, 3, 4)
    assert one.peek(0xF000, most)[:5] == bytes((1, 2, 3, 4, 0))
    assert times_out(lambda: one.peek(0xF000, most + 1))
    setup = struct.pack("<BBHHH", 0xC0, 0xE4, 0xF000, 0, most + 1)
    transfer = one.host.submit(one.handle, 0, most + 1, setup=setup, timeout_ms=50)
    while not transfer.done:
        one.host.handle_events(100)
    assert (transfer.status, transfer.actual, transfer.data[:4]) == ("timed_out", most, bytes((1, 2, 3, 4)))


def test_xdata_is_memory_registers_and_windows(bridge):
    one = bridge()
    one.poke(0x0100, 0xAB)
    one.poke(0x0100, 0xCD, page=1)
    assert (one.peek(0x0100), one.peek(0x0100, page=1)) == (b"\xab", b"\xcd")
    one.poke(0x7000, 0x55)
    # The flash controller's buffer takes no writes.
    assert one.peek(0x7000) == b"\x00"
    for window, bus_addr in ((0xF000, 0x20_0000), (0xA000, 0x82_0000), (0xB000, 0x80_0000), (0xB800, 0x82_2000)):
        one.poke(window + 4, 0x77)
        assert one.enclosure.chip.sram.spans[bus_addr].view[4] == 0x77
    before = len(one.enclosure.log.find("unmodelled"))
    one.poke(0xB500, 1)
    one.poke(0xB500, 2)
    assert one.peek(0xB500) == b"\x02"
    # A register without a model is storage. The card reports it once.
    assert len(one.enclosure.log.find("unmodelled")) == before + 1


def test_a_host_needs_permission_a_free_interface_and_an_endpoint_that_is_there(bridge):
    one = bridge()
    host, handle = one.host, one.handle
    other = host.open_device(next(iter(host.enumerate_devices())))
    assert fails(-6, lambda: host.claim_interface(other, 0))
    assert fails(-5, lambda: host.submit(other, 0x81, 4, timeout_ms=1))
    # An endpoint of alternate setting 1.
    assert fails(-5, lambda: host.submit(handle, 0x83, 4, timeout_ms=1))
    assert fails(-6, lambda: host.set_configuration(handle, 1))
    host.close_device(handle)
    host.claim_interface(other, 0)
    host.set_interface_altsetting(other, 0, 1)
    host.submit(other, 0x83, 4, timeout_ms=1)
    assert fails(-5, lambda: host.set_interface_altsetting(other, 0, 2))
    host.denied.add("1-1")
    assert fails(-3, lambda: host.open_device(next(iter(host.enumerate_devices()))))


def test_the_kernels_driver_keeps_a_stock_device_until_it_is_detached():
    host = VirtualUsbHost()
    host.plug(Enclosure(None, "stock"))
    dev = usb.core.find(backend=host, idVendor=0x174C)
    assert dev.is_kernel_driver_active(0)
    handle = dev._ctx.handle
    assert fails(-6, lambda: host.claim_interface(handle, 0))
    dev.detach_kernel_driver(0)
    host.claim_interface(handle, 0)
    assert fails(-5, lambda: dev.detach_kernel_driver(0))
    assert fails(-6, lambda: dev.attach_kernel_driver(0))
    host.release_interface(handle, 0)
    dev.attach_kernel_driver(0)
    assert dev.is_kernel_driver_active(0)


def test_unplugging_ends_every_transfer_and_the_device_returns_as_another(bridge):
    one = bridge()
    pending = [one.host.submit(one.handle, endpoint, 512, timeout_ms=0) for endpoint in (0x81, 0x81)]
    pending.append(one.host.submit(one.handle, 0x02, b"x" * 8, timeout_ms=0))
    one.host.unplug()
    one.host.handle_events(1)
    assert [transfer.status for transfer in pending] == ["no_device"] * 3
    assert list(one.host.enumerate_devices()) == []
    assert fails(-4, lambda: one.peek(0xB450))
    first = one.dev.address
    one.host.plug(one.enclosure)
    one.open()
    assert one.dev.address == first + 1
    assert one.peek(0xB450) == b"\x78"


def test_transfers_of_an_endpoint_end_in_order_and_one_wait_serves_many(bridge):
    one = bridge()
    setup = bytes((0xC0, 0xE4, 0x50, 0xB4, 0, 0, 1, 0))
    transfers = [one.host.submit(one.handle, 0, 1, setup=setup, timeout_ms=1000) for _ in range(10)]
    waits, start_us = one.host.waits, one.clock.now_us
    order = []
    while not all(transfer.done for transfer in transfers):
        one.host.handle_events(1000)
        order += [number for number, transfer in enumerate(transfers) if transfer.done and number not in order]
    assert order == list(range(10))
    assert {(transfer.status, transfer.data) for transfer in transfers} == {("completed", b"\x78")}
    assert one.host.waits - waits <= 10
    assert one.clock.now_us - start_us < 10 * 14.5 + 8 * 10
    before = one.host.waits
    one.host.submit(one.handle, 0, 1, setup=setup, timeout_ms=1000)
    one.clock.sleep_us(100)
    one.host.handle_events(1000)
    # The transfer had ended before the host waited for it.
    assert one.host.waits == before


def test_a_transfer_is_cancelled_or_times_out_with_what_had_moved(bridge):
    one = bridge().set_up_buses()
    waiting = one.host.submit(one.handle, 0x81, 512, timeout_ms=0)
    one.host.cancel(waiting)
    one.host.handle_events(1)
    assert (waiting.status, waiting.data) == ("cancelled", b"")
    # The firmware expects 2 KiB.
    one.begin(0x60, one.vram, 512, mode=1)
    late = one.host.submit(one.handle, 0x02, bytes(3072), timeout_ms=50)
    start_us = one.clock.now_us
    while not late.done:
        one.host.handle_events(1000)
    assert (late.status, late.actual) == ("timed_out", 2048)
    assert 50_000 <= one.clock.now_us - start_us < 50_100


@pytest.mark.parametrize(
    ("speed", "without", "with_data"), [("super", 12, 14), ("super_plus", 12, 14), ("high", 250, 250)]
)
def test_control_requests_take_their_time(bridge, speed, without, with_data):
    one = bridge(speed)
    times = []
    for action in (lambda: one.poke(0x100, 1), lambda: one.peek(0x100)):
        start = one.clock.now_ns
        action()
        # 8 us of the time are the host's own way back.
        times.append((one.clock.now_ns - start) / 1000 - 8)
    assert times == pytest.approx([without, with_data], abs=1)


def test_two_enclosures_share_a_host_and_its_time():
    clock = VirtualClock()
    host = VirtualUsbHost(clock)
    for port in ("1-1", "2-3.1"):
        host.plug(Enclosure(make_card("navi31", vram_bytes=64 << 20, enumerated=False, clock=clock)), port)
    found = list(usb.core.find(find_all=True, backend=host, idVendor=0xADD1))
    assert [(dev.bus, dev.port_numbers) for dev in found] == [(1, (1,)), (2, (3, 1))]
    found[0].ctrl_transfer(0x40, 0xE5, 0xF000, 0x11, None)
    host.unplug("1-1")
    assert bytes(found[1].ctrl_transfer(0xC0, 0xE4, 0xF000, 0, 1)) == b"\x00"
    with pytest.raises(ValueError, match="has its own clock"):
        host.plug(Enclosure(make_card("navi31", vram_bytes=64 << 20, enumerated=False)), "1-2")
    with pytest.raises(ValueError, match=r"2-3\.1 already has an enclosure"):
        host.plug(Enclosure(None, clock=clock), "2-3.1")


def test_streams_are_for_superspeed_endpoints_whose_setting_has_them(bridge):
    one = bridge()
    assert fails(-2, lambda: one.host.alloc_streams(one.handle, 31, (0x81,)))
    one.host.set_interface_altsetting(one.handle, 0, 1)
    assert one.host.alloc_streams(one.handle, 100, (0x81, 0x02)) == 31
    assert fails(-2, lambda: one.host.submit(one.handle, 0x81, 4, timeout_ms=1))
    one.host.free_streams(one.handle, (0x81,))
    one.host.submit(one.handle, 0x81, 4, timeout_ms=1)
    high = bridge("high")
    assert fails(-2, lambda: high.host.alloc_streams(high.handle, 1, (0x81,)))


def test_a_bridge_in_usb4_mode_is_seen_and_answers_nothing(bridge):
    host = VirtualUsbHost()
    host.plug(Enclosure(None, usb4=True))
    dev = usb.core.find(backend=host)
    assert (dev.idVendor, dev.idProduct) == (0x174C, 0x2463)
    assert times_out(lambda: dev.ctrl_transfer(0xC0, 0xE4, 0xB450, 0, 1, timeout=100))


def test_a_request_that_comes_while_the_one_before_is_worked_on_is_damaged(bridge):
    one = bridge().set_up_buses()
    # F0 lets the host have its status before the firmware reads registers and data: main.c, USB_CTRL_PHASE_STAT_IN.
    read = struct.pack("<BBHHH", 0x40, 0xF0, 0x0F04, 0, 12), struct.pack("<QI", 0, 0)
    answer = struct.pack("<BBHHH", 0xC0, 0xF0, 0, 0, 8)
    one.host.submit(one.handle, 0, read[1], setup=read[0], timeout_ms=100)
    behind = one.host.submit(one.handle, 0, 8, setup=answer, timeout_ms=100)
    while not behind.done:
        one.host.handle_events(1000)
    assert behind.status == "timed_out"
    assert "while F0 was still running" in one.enclosure.violations[0].text
    asked = one.host.submit(one.handle, 0, read[1], setup=read[0], timeout_ms=100)
    while not asked.done:
        one.host.handle_events(1000)
    behind = one.host.submit(one.handle, 0, 8, setup=answer, timeout_ms=100)
    while not behind.done:
        one.host.handle_events(1000)
    assert (behind.status, len(behind.data)) == ("completed", 8)
    one.enclosure.violations.clear()
