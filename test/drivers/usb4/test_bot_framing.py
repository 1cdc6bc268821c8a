"""Bulk-Only Transport on the wire: the bytes are those of the specification. A transfer out of step is reset and
reported.
"""

import contextlib
import random

import pytest

from ringup.drivers.usb4 import scsi
from ringup.drivers.usb4.bot import Bot
from ringup.drivers.usb4.scsi import Refused
from ringup.errors import DeviceLost, DeviceTimeout, RingupError, TransportError

IN, OUT = 0x81, 0x02
RESET = bytes.fromhex("21ff000000000000")  # Bulk-Only Transport 1.0, 3.1
NO_MEDIUM = bytes.fromhex("70000200000000 0a00000000 3a00 00000000".replace(" ", ""))  # SPC-4, fixed format: 02/3a/00


def csw(tag, residue=0, status=0, signature=b"USBS"):
    return signature + tag.to_bytes(4, "little") + residue.to_bytes(4, "little") + bytes([status])


@pytest.fixture
def bot(wire):
    device, port = wire()
    return device, scsi.connect(port, bulk_only=True)


def test_the_rom_and_usb2_are_spoken_to_by_bulk_only_transport(wire, no_streams):
    device, port = wire()
    assert scsi.connect(port, bulk_only=True).name == "Bulk-Only Transport"
    assert device.alt == 0
    device, port = wire(device.configuration[9:41] + no_streams, 480)
    assert isinstance(scsi.connect(port), Bot)


def test_a_read_is_a_wrapper_data_and_a_status(bot):
    device, transport = bot
    device.say(IN, b"\x24\x04\x17\x85\0\0", csw(1))
    assert transport.execute([scsi.xdata_read(0x07F0, 6)]) == [b"\x24\x04\x17\x85\0\0"]
    assert device.sent == [
        (OUT, 0, bytes.fromhex("55534243 01000000 06000000 80 00 06 e4065007f000 00000000000000000000"))
    ]


def test_a_command_without_data_takes_one_wait(bot):
    device, transport = bot
    device.say(IN, csw(1), csw(2))
    before = transport.port.counts.copy()
    transport.execute([scsi.xdata_write(0xB254, 0x0F), scsi.xdata_write(0xB296, 4)])
    assert transport.port.counts.since(before).waits == 2
    assert [data[:15].hex() for _, _, data in device.sent] == [
        "555342430100000000000000000006",
        "555342430200000000000000000006",
    ]
    assert [data[15:].hex() for _, _, data in device.sent] == [
        "e50f50b25400" + "00" * 10,
        "e50450b29600" + "00" * 10,
    ]


def test_a_write_sends_its_data_behind_the_wrapper(bot):
    device, transport = bot
    device.say(IN, csw(1))
    transport.execute([scsi.config_write(0, bytes(range(128)))])
    (_, _, wrapper), (endpoint, _, data) = device.sent
    assert wrapper == bytes.fromhex("55534243 01000000 80000000 00 00 0f e15000000000000000000000000000 00")
    assert (endpoint, data) == (OUT, bytes(range(128)))


def test_a_failed_command_is_reported_with_its_sense(bot):
    device, transport = bot
    device.say(IN, csw(1, status=1), NO_MEDIUM, csw(2))
    with pytest.raises(Refused, match=r"not ready, no medium: .* \(02/3a/00\)") as caught:
        transport.execute([scsi.write_16(bytes(512), 1000)])
    assert (caught.value.sense.key, caught.value.sense.code) == (2, 0x3A)
    assert device.sent[-1][2][15:21] == bytes.fromhex("030000001200")
    assert RESET not in device.controls


def test_a_stalled_data_stage_is_cleared_and_the_status_read(bot):
    device, transport = bot
    device.say(IN, "stall", csw(1, residue=6, status=1), NO_MEDIUM, csw(2))
    with pytest.raises(Refused):
        transport.execute([scsi.xdata_read(0x07F0, 6)])
    assert device.cleared == [IN]


def test_a_device_that_skips_the_data_stage_is_understood(bot):
    device, transport = bot
    device.say(IN, csw(1, residue=128, status=1), NO_MEDIUM, csw(2))
    with pytest.raises(Refused, match="02/3a/00"):
        transport.execute([scsi.config_read(0)])


def test_an_empty_packet_before_the_status_is_passed_over(bot):
    device, transport = bot
    device.say(IN, b"", csw(1))
    transport.execute([scsi.xdata_write(0, 0x33)])
    # The command is sent once.
    assert len(device.sent) == 1


def test_a_stalled_status_is_asked_for_once_more(bot):
    device, transport = bot
    device.say(IN, "stall", csw(1))
    transport.execute([scsi.xdata_write(0, 0x33)])
    assert device.cleared == [IN]
    assert RESET not in device.controls


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (csw(1, status=2), "phase error"),
        (csw(2), "not USBS and tag 1"),
        (csw(1, signature=b"USBC"), "not USBS and tag 1"),
        (csw(1)[:12], "a status of 12 bytes came"),
        (csw(1) + b"\0", "a status of 14 bytes came"),
        (csw(1, status=3), "the status says 3"),
        (csw(1, residue=1), "the status says 0 and 1 of 0 bytes left"),
        (b"", "a status of 0 bytes came"),
    ],
)
def test_a_malformed_status_resets_the_transport(bot, status, words):
    device, transport = bot
    device.say(IN, status, *([status] if not status else []))
    with pytest.raises(TransportError, match=words):
        transport.execute([scsi.xdata_write(0, 0x33)])
    assert device.controls[-1] == RESET
    assert device.cleared == [IN, OUT]


def test_bytes_that_are_missing_from_a_good_answer_are_an_error(bot):
    device, transport = bot
    device.say(IN, b"\x24\x04", csw(1, residue=4))
    with pytest.raises(TransportError, match="2 of 6 bytes were moved though the command passed"):
        transport.execute([scsi.xdata_read(0x07F0, 6)])


def test_an_inquiry_may_be_answered_in_short(bot):
    device, transport = bot
    device.say(IN, bytes(20), csw(1, residue=16))
    assert transport.execute([scsi.inquiry()]) == [bytes(20)]


def test_a_silent_device_is_reset_within_the_bound_and_works_again(bot):
    device, transport = bot
    with pytest.raises(DeviceTimeout, match=r"read of the chip's memory .*1000 ms"):
        transport.execute([scsi.xdata_read(0, 1)])
    assert device.clock.now_us <= 2_100_000
    assert device.controls[-1] == RESET
    device.say(IN, b"x", csw(2))
    assert transport.execute([scsi.xdata_read(0, 1)]) == [b"x"]


def test_a_device_that_is_gone_is_lost_at_once(bot):
    device, transport = bot
    device.gone = True
    with pytest.raises(DeviceLost):
        transport.execute([scsi.xdata_read(0, 1)])
    assert RESET not in device.controls


def test_ctrl_c_resets_the_transport_and_the_next_command_works(bot):
    device, transport = bot
    events = device.handle_events

    def interrupted(timeout_ms):
        device.handle_events = events
        raise KeyboardInterrupt

    device.handle_events = interrupted
    with pytest.raises(KeyboardInterrupt):
        transport.execute([scsi.xdata_read(0, 1)])
    assert device.controls[-1] == RESET
    device.say(IN, b"x", csw(2))
    assert transport.execute([scsi.xdata_read(0, 1)]) == [b"x"]


@pytest.mark.parametrize("seed", range(40))
def test_hostile_answers_end_in_an_error_of_ours_within_a_bound(wire, seed):
    """40 devices that answer 25 commands each with random bytes."""
    device, port = wire()
    transport = scsi.connect(port, bulk_only=True)
    chance = random.Random(seed)

    def answer(endpoint, stream, wrapper):
        tag = int.from_bytes(wrapper[4:8], "little")
        status = bytearray(csw(tag, chance.choice((0, 0, 4, 1 << 31)), chance.choice((0, 0, 1, 2, 9))))
        if chance.random() < 0.3:
            status[chance.randrange(13)] = chance.getrandbits(8)
        data = chance.randbytes(chance.choice((4, 4, 4, 0, 2, 18)))
        replies = [data, bytes(status), "stall", bytes(status), b"", csw(tag)]
        device.say(IN, *replies[chance.choice((0, 0, 0, 1, 2)) :][: chance.randrange(7)])

    device.answer = answer
    for _ in range(25):
        before_us = device.clock.now_us
        with contextlib.suppress(RingupError):
            assert len(transport.execute([scsi.xdata_read(0, 4)])[0]) == 4
        assert device.clock.now_us - before_us < 8_000_000
        device.ready.clear()
        device.stalled.clear()


@pytest.mark.parametrize(
    ("build", "cdb"),
    [  # docs/asm2464pd.md, "Vendor commands"
        (lambda: scsi.config_read(1, copy=1), "e05101000000"),
        (lambda: scsi.flash_read(0, 0xFF00), "e2500000ff00"),
        (lambda: scsi.flash_read(1, 0x10000, copy=1), "e2d100010000"),
        (lambda: scsi.flash_write(1, bytes(32736)), "e3d000007fe0"),
        (lambda: scsi.detach(), "e851" + "00" * 13),
        (lambda: scsi.write_16(bytes(0x10000), 1), "8a000000000000000000000000800000"),
        (lambda: scsi.xdata_read(0x4092, 1, page=1), "e40151409200"),
    ],
)
def test_command_blocks_are_those_of_the_firmware(build, cdb):
    assert build().cdb.hex() == cdb


@pytest.mark.parametrize(
    ("data", "sense"),
    [
        (NO_MEDIUM, (2, 0x3A, 0)),
        (bytes.fromhex("7205240000000000"), (5, 0x24, 0)),  # descriptor format
        (NO_MEDIUM[:13], None),
        (b"", None),
        (bytes(18), None),
    ],
)
def test_sense_data_of_both_formats_is_read(data, sense):
    parsed = scsi.parse_sense(data)
    assert (parsed and (parsed.key, parsed.code, parsed.qualifier)) == sense
