"""Memory streams of the open firmware: the data they move, the data they drop, and the way out of a bad state.

Source: handmade/src/main.c, pcie_pio.h, test_pcie.py and test_pcie_badstate.py of the firmware.
"""

import random
import struct

import pytest
import usb.core

DRAW = random.Random(11)


@pytest.fixture(params=["super_plus", "high"])
def one(request, bridge):
    return bridge(request.param).set_up_buses()


def recover(one):
    """Recover as test_pcie_badstate.py does between its tests."""
    one.dev.clear_halt(0x02)
    one.dev.clear_halt(0x81)
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.read(0x81, 65536, 100)
    one.dev.clear_halt(0x81)


def works(one):
    data = DRAW.randbytes(4096)
    assert one.write(one.vram + 0xF0000, data) == 4096
    assert one.read(one.vram + 0xF0000, 4096) == data
    return True


@pytest.mark.parametrize("size", [4, 8, 508, 512, 516, 1020, 1024, 1028, 4096, 12_000])
def test_what_is_written_is_where_direct_access_finds_it_and_comes_back(one, size):
    data = DRAW.randbytes(size)
    assert one.write(one.vram + 0x1234, data) == size
    assert one.read(one.vram + 0x1234, size) == data
    assert one.radeon.bars[0].read_block(0x1234, size) == data
    one.radeon.bars[0].write_block(0x4000, data[::-1])
    assert one.read(one.vram + 0x4000, size) == data[::-1]


def test_addresses_carry_into_their_upper_half(bridge):
    one = bridge().set_up_buses()
    one.write(0xB_FFFF_FF00, bytes(512))
    assert one.peek(0xB218, 8) == bytes.fromhex("000001000000000c")


def test_a_doorbell_of_64_bits_rings_in_two_dwords(bridge):
    one = bridge().set_up_buses()
    rung = []
    one.radeon.nbio.doorbell = lambda index, value, size: rung.append((index, value, size))
    one.write(one.doorbells + 0x100, struct.pack("<Q", 0x1_0000_0040))
    assert rung == [(0x40, 0x40, 4), (0x41, 1, 4)]


def test_registers_are_written_and_read_as_dwords_in_order(bridge):
    one = bridge().set_up_buses()
    scratch = one.radeon.gc.grbm.cells.address("SCRATCH_REG0")
    one.write(one.registers + scratch, struct.pack("<4I", 1, 2, 3, 4))
    assert [one.radeon.bars[5].read32(scratch + 4 * at) for at in range(4)] == [1, 2, 3, 4]
    assert one.read(one.registers + scratch, 16) == struct.pack("<4I", 1, 2, 3, 4)


def test_bytes_beyond_a_dword_are_dropped(one):
    one.write(one.vram, b"\xee" * 16)
    one.begin(0x60, one.vram, 2, mode=1)
    one.dev.write(0x02, b"\x11" * 7)
    assert one.read(one.vram, 12) == b"\x11" * 4 + b"\xee" * 8


def test_a_packet_with_more_than_is_left_is_dropped_and_nothing_is_taken_any_more(one):
    one.write(one.vram, b"\xee" * 64)
    one.begin(0x60, one.vram, 8, mode=1)
    # USB reports the packet as accepted.
    assert one.dev.write(0x02, b"\x11" * 36) == 36
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.write(0x02, b"\x22" * 32, 50)
    assert one.radeon.bars[0].read_block(0, 64) == b"\xee" * 64
    recover(one)
    assert works(one)


def test_nothing_is_taken_or_sent_without_a_request(one):
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.write(0x02, b"\x11" * 4, 50)
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.read(0x81, 4, 50)
    assert works(one)


def test_a_read_stream_ends_without_an_empty_packet(one):
    packet = one.enclosure.chip.speed.packet_bytes
    one.begin(0x20, one.vram, packet // 4, mode=2)
    # The read waited for more data until its time was over.
    assert len(one.dev.read(0x81, packet + 4, 50)) == packet
    one.begin(0x20, one.vram, packet // 4 + 1, mode=2)
    # A short packet ends it.
    assert len(one.dev.read(0x81, 3 * packet, 50)) == packet + 4


def test_a_host_that_asks_for_less_than_a_packet_overflows(one):
    one.begin(0x20, one.vram, 4, mode=2)
    with pytest.raises(usb.core.USBError) as caught:
        one.dev.read(0x81, 8)
    assert caught.value.backend_error_code == -8


def test_a_dead_address_gives_what_the_data_registers_held(one):
    one.request(0x20, one.vram)
    one.radeon.bars[0].write_block(0, b"\x01\x02\x03\x04")
    one.request(0x20, one.vram)
    assert one.read(0x7_0000_0000, 32) == b"\x01\x02\x03\x04" * 8
    # Nothing reports a lost write.
    assert one.write(0x7_0000_0000, bytes(64)) == 64
    assert works(one)


def test_a_request_cancels_a_stream(one):
    packet = one.enclosure.chip.speed.packet_bytes
    one.begin(0x60, one.vram, 1024, mode=1)
    one.dev.write(0x02, bytes(packet))
    assert one.request(0x20, one.vram)[1] == 0
    # The endpoint was still armed, and the packet is lost.
    one.dev.write(0x02, b"\x99" * packet)
    assert one.radeon.bars[0].read_block(packet, packet) == bytes(packet)
    recover(one)
    assert works(one)


BAD = {
    "double write setup": lambda one: [one.begin(0x60, one.vram + 0x1000 * at, 100, mode=1) for at in range(2)],
    "double read setup": lambda one: [one.begin(0x20, one.vram + 0x1000 * at, 100, mode=2) for at in range(2)],
    "zero dwords": lambda one: [one.begin(kind, one.vram, 0, mode=mode) for kind, mode in ((0x60, 1), (0x20, 2))],
    "an abandoned write": lambda one: (one.begin(0x60, one.vram, 100, mode=1), one.dev.write(0x02, bytes(64))),
    "a huge count": lambda one: (one.begin(0x60, one.vram, 0xFFFF_FFFF, mode=1), one.dev.write(0x02, bytes(64))),
    "50 switches": lambda one: [one.begin((0x60, 0x20)[at % 2], one.vram, 16, mode=1 + at % 2) for at in range(50)],
}


@pytest.mark.parametrize("state", BAD)
def test_it_is_got_out_of_bad_states(one, state):
    BAD[state](one)
    recover(one)
    assert works(one)


@pytest.mark.parametrize("way", ["configuration", "alternate setting", "halt"])
def test_what_resets_endpoints_drops_the_stream(bridge, way):
    one = bridge().set_up_buses()
    one.begin(0x20, one.vram, 1024, mode=2)
    if way == "halt":
        one.dev.clear_halt(0x81)
    else:
        request = (0x00, 9, 1, 0) if way == "configuration" else (0x01, 11, 0, 0)
        one.dev.ctrl_transfer(*request, None)
    with pytest.raises(usb.core.USBTimeoutError):
        one.dev.read(0x81, 1024, 50)
    assert works(one)


def test_streams_have_the_measured_rates(bridge):
    one = bridge("super").set_up_buses()
    start = one.clock.now_us
    one.write(one.vram, bytes(1 << 18))
    assert (1 << 18) / (one.clock.now_us - start) == pytest.approx(3.6, rel=0.1)  # MB/s
    start = one.clock.now_us
    one.read(one.vram, 1 << 18)
    assert (1 << 18) / (one.clock.now_us - start) == pytest.approx(1.8, rel=0.1)
