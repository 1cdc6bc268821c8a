"""USB Attached SCSI on the wire: information units byte by byte, tags and streams, and a command that does not end."""

import contextlib
import random

import pytest

from ringup.drivers.usb4 import scsi
from ringup.drivers.usb4.scsi import ATTACHED, Refused
from ringup.drivers.usb4.uas import Uas
from ringup.errors import DeviceTimeout, NotSupported, RingupError, TransportError

DATA_IN, DATA_OUT, STATUS, COMMAND = 0x81, 0x02, 0x83, 0x04
GOOD, CHECK = 0, 2
FIELD_NOT_VALID = bytes.fromhex("700005000000000a00000000240000000000")  # 05/24/00


def sense(tag, status=GOOD, data=b""):
    """Return a sense information unit of UAS."""
    head = bytes([3, 0]) + tag.to_bytes(2, "big") + bytes(2) + bytes([status]) + bytes(7)
    return head + len(data).to_bytes(2, "big") + data


def response(tag, code):
    return bytes([4, 0]) + tag.to_bytes(2, "big") + bytes(3) + bytes([code])


def ready(kind, tag):
    return bytes([kind, 0]) + tag.to_bytes(2, "big")


class Chip:
    """Answers command units on the stream of their tag, or on the one status pipe."""

    def __init__(self, device, streams=True):
        self.device, self.streams = device, streams
        self.seen, self.bad, self.silent, self.aborts = [], {}, set(), []
        self.abort_code = 0
        device.answer = self.take

    def take(self, endpoint, stream, data):
        if endpoint != COMMAND:
            return
        tag = int.from_bytes(data[2:4], "big")
        where = tag if self.streams else 0
        if data[0] == 5:
            self.aborts.append(data)
            self.device.say(STATUS, response(tag, self.abort_code), stream=where)
            return
        self.seen.append(data)
        number = len(self.seen)
        if number in self.silent:
            return
        if number in self.bad:
            self.device.say(STATUS, self.bad[number](tag), stream=where)
            return
        if data[16] == 0xE4:
            self.device.say(DATA_IN, bytes([number & 0xFF]) * data[17], stream=where)
        self.device.say(STATUS, sense(tag), stream=where)


@pytest.fixture
def uas(wire):
    device, port = wire()
    chip = Chip(device)
    return device, chip, scsi.connect(port)


def test_streams_choose_attached_scsi_and_its_setting(uas):
    device, _, transport = uas
    assert transport.name == "Attached SCSI, 31 streams"
    assert (device.alt, device.streams) == (1, 31)


def test_the_pipes_are_recognised_by_their_usage_not_by_their_number(wire):
    _, port = wire()
    (attached,) = [one for one in scsi.settings(port.configuration()) if one.protocol == ATTACHED]
    assert attached.pipes == {1: 0x04, 2: 0x83, 3: 0x81, 4: 0x02}
    assert attached.streams == {0x81: 32, 0x02: 32, 0x83: 32}


@pytest.mark.parametrize("cut", range(9, 122, 7))
def test_descriptors_that_are_cut_short_are_no_setting(wire, cut):
    device, port = wire()
    device.configuration = device.configuration[:cut]
    assert all(len(one.pipes) in (2, 4) for one in scsi.settings(port.configuration()))
    if cut < 30:
        with pytest.raises(NotSupported, match="speaks no SCSI"):
            scsi.connect(port)


def test_a_command_unit_has_32_bytes_and_goes_by_tag(uas):
    device, chip, transport = uas
    assert transport.execute([scsi.xdata_read(0x07F0, 6)]) == [b"\x01" * 6]
    assert chip.seen == [bytes.fromhex("01000001" + "00" * 12 + "e4065007f000" + "00" * 10)]
    assert device.sent[0][:2] == (COMMAND, 0)


def test_status_and_data_have_buffers_before_the_device_knows_of_the_command(uas):
    """A device that is faster than its host may answer at once."""
    device, chip, transport = uas
    seen = []

    def take(endpoint, stream, data):
        if endpoint == COMMAND:
            tag = int.from_bytes(data[2:4], "big")
            ready = {one.place for one in device.waiting}
            seen.append(((STATUS, tag) in ready, (DATA_IN, tag) in ready or (DATA_OUT, tag) in sent()))
        chip.take(endpoint, stream, data)

    def sent():
        return {(endpoint, stream) for endpoint, stream, _ in device.sent}

    device.answer = take
    transport.execute([scsi.xdata_read(0x07F0, 6), scsi.config_write(0, bytes(128))])
    assert seen == [(True, True)] * 2


def test_commands_fill_31_tags_and_then_wait_once(uas):
    _, chip, transport = uas
    before = transport.port.counts.copy()
    transport.execute([scsi.xdata_write(0xB220 + at % 4, at) for at in range(62)])
    assert [int.from_bytes(unit[2:4], "big") for unit in chip.seen[:31]] == list(range(1, 32))
    assert sorted(int.from_bytes(unit[2:4], "big") for unit in chip.seen[31:]) == list(range(1, 32))
    assert transport.port.counts.since(before).waits == 2


def test_answers_come_back_in_the_order_of_the_commands(uas):
    _, _, transport = uas
    assert transport.execute([scsi.xdata_read(at, 1) for at in range(100)]) == [bytes([at + 1]) for at in range(100)]


def test_a_status_that_is_not_good_is_reported_with_its_sense_and_the_rest_is_done(uas):
    device, chip, transport = uas
    chip.bad[2] = lambda tag: sense(tag, CHECK, FIELD_NOT_VALID)
    with pytest.raises(Refused, match=r"illegal request, a field of the command is not valid \(05/24/00\)"):
        transport.execute([scsi.xdata_write(0, 1), scsi.xdata_read(1, 4), scsi.xdata_write(2, 1)])
    assert len(chip.seen) == 3
    # The missing data stage is abandoned.
    assert not device.waiting
    assert device.clock.now_us < 1_000_000
    assert transport.execute([scsi.xdata_read(1, 4)]) == [b"\x04" * 4]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (lambda tag: response(tag, 0x0A), "tag in use"),
        (lambda tag: sense(tag % 31 + 1), "a status of command 2 came, expected was 1"),
        (lambda tag: b"", "nothing came, which is no status"),
        (lambda tag: sense(tag)[:15], "which is no status"),
        (lambda tag: b"\x06" + sense(tag)[1:], "which is no status"),
        (lambda tag: sense(tag, 0x28), "too many commands at once"),
    ],
)
def test_a_transfer_that_ends_well_with_a_bad_unit_is_an_error(uas, unit, words):
    _, chip, transport = uas
    chip.bad[1] = unit
    with pytest.raises(TransportError, match=words):
        transport.execute([scsi.xdata_write(0, 1)])


def test_missing_bytes_are_an_error(uas):
    device, chip, transport = uas
    chip.bad[1] = lambda tag: (device.say(DATA_IN, b"ab", stream=tag), sense(tag))[1]
    with pytest.raises(TransportError, match="2 of 6 bytes were moved though the status is good"):
        transport.execute([scsi.xdata_read(0x07F0, 6)])


def test_posted_commands_are_not_waited_for_until_their_tags_are_needed(uas):
    _, chip, transport = uas
    before = transport.port.counts.copy()
    transport.post([scsi.xdata_write(0xB218, at) for at in range(31)])
    assert transport.port.counts.since(before).waits == 0
    transport.post([scsi.xdata_write(0xB218, 31)])
    assert transport.port.counts.since(before).waits == 1
    transport.settle()
    assert [unit[17] for unit in chip.seen] == list(range(32))


def test_an_error_of_a_posted_command_is_raised_later(uas):
    _, chip, transport = uas
    chip.bad[1] = lambda tag: sense(tag, CHECK, FIELD_NOT_VALID)
    transport.post([scsi.xdata_write(0, 1)])
    with pytest.raises(Refused):
        transport.execute([scsi.xdata_read(0, 1)])


def test_a_stuck_command_is_aborted_within_the_bound_and_the_next_works(uas):
    device, chip, transport = uas
    chip.silent = {2}
    with pytest.raises(DeviceTimeout, match=r"write of the chip's memory .*1000 ms"):
        transport.execute([scsi.xdata_write(0, 1), scsi.xdata_write(1, 1)])
    assert device.clock.now_us <= 2_100_000
    # ABORT TASK SET, on its own tag
    assert [unit.hex() for unit in chip.aborts] == ["0500000302000000" + "00" * 8]
    assert not device.waiting
    assert transport.execute([scsi.xdata_read(0, 1)]) == [b"\x03"]


def test_a_transport_whose_commands_stay_stuck_says_so_from_then_on(uas):
    _, chip, transport = uas
    chip.silent, chip.abort_code = {1}, 5
    with pytest.raises(DeviceTimeout):
        transport.execute([scsi.xdata_write(0, 1)])
    with pytest.raises(TransportError, match=r"could not be aborted .* switch the enclosure off and on"):
        transport.execute([scsi.xdata_write(0, 1)])


def test_ctrl_c_abandons_running_commands_and_the_next_one_works(uas):
    device, chip, transport = uas
    events = device.handle_events

    def interrupted(timeout_ms):
        device.handle_events = events
        raise KeyboardInterrupt

    device.handle_events = interrupted
    with pytest.raises(KeyboardInterrupt):
        transport.execute([scsi.xdata_write(0, 1), scsi.xdata_read(0, 3)])
    assert not device.waiting
    assert len(chip.aborts) == 1
    # An aborted command reports nothing.
    device.ready.clear()
    assert transport.execute([scsi.xdata_read(0, 1)]) == [b"\x03"]


@pytest.mark.parametrize("seed", range(40))
def test_hostile_answers_end_in_an_error_of_ours_within_a_bound(wire, seed):
    """40 devices that answer 25 commands each with random bytes."""
    device, port = wire()
    chance = random.Random(seed)

    def answer(endpoint, stream, data):
        if endpoint == COMMAND and chance.random() < 0.9:
            tag = int.from_bytes(data[2:4], "big")
            unit = bytearray(
                sense(tag, chance.choice((0, 0, 2, 8, 0x40, 0xFF)), chance.randbytes(chance.randrange(20)))
            )
            for _ in range(chance.randrange(4)):
                unit[chance.randrange(len(unit))] = chance.getrandbits(8)
            device.say(
                STATUS,
                bytes(unit[: chance.randrange(len(unit) + 1)]) if chance.random() < 0.5 else bytes(unit),
                stream=tag,
            )
            device.say(DATA_IN, chance.choice(("stall", chance.randbytes(chance.randrange(5)))), stream=tag)

    device.answer = answer
    transport = scsi.connect(port)
    for _ in range(25):
        before_us = device.clock.now_us
        with contextlib.suppress(RingupError):
            assert len(transport.execute([scsi.xdata_read(0, 4)])[0]) == 4
        assert device.clock.now_us - before_us < 4_000_000
        device.ready.clear()
        device.stalled.clear()


@pytest.fixture
def serial(wire, no_streams):
    device, port = wire(no_streams, 480)
    return device, Chip(device, streams=False), scsi.connect(port)


def test_without_streams_the_device_asks_for_each_data_stage(serial):
    device, chip, transport = serial
    assert transport.name == "Attached SCSI without streams"
    chip.bad[1] = lambda tag: (device.say(DATA_IN, b"abcd"), device.say(STATUS, ready(6, tag)), sense(tag))[2]
    assert transport.execute([scsi.xdata_read(0x100, 4)]) == [b"abcd"]
    chip.bad[2] = lambda tag: (device.say(STATUS, ready(7, tag)), sense(tag))[1]
    transport.execute([scsi.config_write(1, bytes(128))])
    assert device.sent[-1] == (DATA_OUT, 0, bytes(128))


def test_a_good_status_instead_of_a_ready_unit_repeats_the_command(serial):
    device, chip, transport = serial
    chip.bad[1] = sense
    chip.bad[2] = lambda tag: (device.say(DATA_IN, b"abcd"), device.say(STATUS, ready(6, tag)), sense(tag))[2]
    assert transport.execute([scsi.xdata_read(0x100, 4)]) == [b"abcd"]
    assert [unit[3] for unit in chip.seen] == [1, 2]
    chip.bad |= dict.fromkeys(range(3, 9), sense)
    with pytest.raises(TransportError, match="asked for no data, 3 times"):
        transport.execute([scsi.xdata_read(0x100, 4)])


def test_an_unexpected_ready_unit_is_no_status(serial):
    _, chip, transport = serial
    chip.bad[1] = lambda tag: ready(7, tag)
    with pytest.raises(TransportError, match="which is no status"):
        transport.execute([scsi.xdata_write(0, 1)])
    assert isinstance(transport, Uas)
