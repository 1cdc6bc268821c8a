"""The words of USB/IP, compared with the protocol's own text and the capture in it."""

import pytest

from ringup.errors import TransportError
from ringup.silicon.serve import usbip_wire as wire
from ringup.silicon.serve.usbip_wire import Record, Refusal, Speed, Status, Submit, Unlink

# Documentation/usb/usbip_protocol.rst, "EXAMPLE"
CAPTURED_IN = bytes.fromhex(
    "00000001 00000d05 0001000f 00000001 00000001 00000200 00000040 ffffffff 00000000 00000004 00000000 00000000"
)
CAPTURED_OUT = bytes.fromhex(
    "00000001 00000d06 0001000f 00000000 00000001 00000000 00000040 ffffffff 00000000 00000004 00000000 00000000"
)
MAX_TRANSFER_BYTES = 1 << 20
RECORD = Record("1-2", 1, 9, Speed.SUPER, 0x1209, 0x0001, 0x0100, (0, 0, 0), 1, 1, ((255, 255, 255), (8, 6, 80)))


def test_captured_commands_are_read_as_the_text_explains_them():
    incoming, outgoing = (
        wire.parse_command(CAPTURED_IN, MAX_TRANSFER_BYTES),
        wire.parse_command(CAPTURED_OUT, MAX_TRANSFER_BYTES),
    )
    assert incoming == Submit(0xD05, 0x1000F, 0x81, True, 0x200, 64, 0, bytes(8))
    assert outgoing == Submit(0xD06, 0x1000F, 0x01, False, 0, 64, 0, bytes(8))
    assert (incoming.payload_bytes, outgoing.payload_bytes) == (0, 64)


def test_an_answer_has_zeros_where_the_text_wants_them():
    command = wire.parse_command(CAPTURED_IN, MAX_TRANSFER_BYTES)
    answer = wire.ret_submit(command, Status.OK, 3, b"abc")
    assert answer == bytes.fromhex("00000003 00000d05" + "00000000" * 3 + "00000000 00000003" + "00000000" * 5) + b"abc"
    assert wire.ret_submit(command, Status.EPIPE, 0)[20:24] == bytes.fromhex("ffffffe0")  # -32


def test_a_peer_that_marks_plain_transfers_as_the_text_says_gets_its_mark_back():
    marked = CAPTURED_IN[:32] + bytes.fromhex("ffffffff") + CAPTURED_IN[36:]
    assert wire.ret_submit(wire.parse_command(marked, MAX_TRANSFER_BYTES), Status.OK, 0)[32:36] == bytes.fromhex(
        "ffffffff"
    )


def test_unlink_and_its_answer():
    data = bytes.fromhex("00000002 00000d07 0001000f 00000000 00000000 00000d05") + bytes(24)
    command = wire.parse_command(data, MAX_TRANSFER_BYTES)
    assert command == Unlink(0xD07, 0x1000F, 0xD05)
    assert wire.ret_unlink(command, Status.ECONNRESET) == bytes.fromhex(
        "00000004 00000d07" + "00000000" * 3 + "ffffff98" + "00000000" * 6  # -104
    )


@pytest.mark.parametrize(
    ("at", "word", "what"),
    [
        (0, 3, "command 3"),
        (0, 0, "command 0"),
        (12, 2, "direction 2"),
        (16, 16, "endpoint 16"),
        (24, MAX_TRANSFER_BYTES + 1, "1048577 bytes"),
        (24, 0x8000_0000, "2147483648 bytes"),
        (32, 1, "isochronous"),
    ],
)
def test_what_cannot_be_a_command_is_refused(at, word, what):
    data = bytearray(CAPTURED_IN)
    data[at : at + 4] = word.to_bytes(4, "big")
    with pytest.raises(TransportError, match=what):
        wire.parse_command(bytes(data), MAX_TRANSFER_BYTES)


def test_a_list_has_every_field_at_the_texts_offset():
    data = wire.device_list([RECORD, RECORD])
    assert data[:12] == bytes.fromhex("0111 0005 00000000 00000002")
    assert data[0x10C : 0x10C + 4] == b"1-2\0"
    assert data[0x12C:0x144] == bytes.fromhex("00000001 00000009 00000005 1209 0001 0100 00 00 00 01 01 02")
    assert data[0x144:0x14C] == bytes.fromhex("ffffff00 08065000")
    # The second device.
    assert data[0x0C + 0x138 + 2 * 4 :][:5] == b"/sys/"
    assert len(data) == 0x0C + 2 * (0x138 + 8)


def test_a_device_is_given_or_refused():
    assert wire.imported(RECORD)[:8] == bytes.fromhex("0111 0003 00000000")
    assert len(wire.imported(RECORD)) == 0x140
    assert wire.refused(Refusal.NO_DEVICE) == bytes.fromhex("0111 0003 00000004")
    assert RECORD.devid == 0x0001_0009


@pytest.mark.parametrize("data", ["0110 8005 00000000", "0111 8004 00000000", "0111 0005 00000000"])
def test_another_protocol_is_refused(data):
    with pytest.raises(TransportError, match="not a request"):
        wire.parse_operation(bytes.fromhex(data))


def test_a_name_that_is_no_text_is_just_no_device():
    assert wire.parse_bus_id(b"1-1" + bytes(29)) == "1-1"
    assert wire.parse_bus_id(bytes(range(128, 160))) not in ("1-1", "")
