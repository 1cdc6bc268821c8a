"""The stock firmware's Bulk-Only Transport compared with the class specification: wrappers, the thirteen cases and
reset recovery.
"""

import struct

import pytest
import usb.core

TEST_UNIT_READY = bytes(6)
INQUIRY = bytes.fromhex("120000004c00")
# The command writes 128 bytes of the second copy. No code runs from there.
WRITE_CONFIG_1 = bytes.fromhex("e15101")
STALL = -9


def read_memory(count):
    return bytes([0xE4, count, 0x50, 0x07, 0xF0, 0x00])


def test_wrappers_look_as_the_specification_prints_them(storage):
    s = storage()
    # Bulk-Only Transport 1.0, table 5.1: signature, tag, length, flags (to host), LUN, length of the block, block
    # padded to 16.
    cbw = bytes.fromhex("55534243 78563412 24000000 80 00 06 120000002400 00000000000000000000")
    assert s.dev.write(0x02, cbw) == 31
    assert len(s.dev.read(0x81, 36)) == 36
    # Table 5.2: signature, the same tag, no residue, passed.
    assert bytes(s.dev.read(0x81, 13)) == bytes.fromhex("55534253 78563412 00000000 00")


# 6.7: what the host expects, what the command does, and the required end: (status, residue, stalled endpoints).
CASES = {
    # Refused: there is no data, as the host expects.
    "1 Hn=Dn": (read_memory(0)[:2] + bytes([0x00]) + bytes(3), 0, 0, (1, 0, [])),
    "2 Hn<Di": (read_memory(6), 0, 0, (2, 0, [])),
    "3 Hn<Do": (WRITE_CONFIG_1, 0, 0, (2, 0, [])),
    "4 Hi>Dn": (TEST_UNIT_READY, 64, 0, (1, 64, [0x81])),
    "5 Hi>Di": (read_memory(6), 64, 0, (0, 58, [0x81])),
    "6 Hi=Di": (read_memory(6), 6, 0, (0, 0, [])),
    "7 Hi<Di": (read_memory(64), 6, 0, (2, 0, [0x81])),
    "8 Hi<>Do": (WRITE_CONFIG_1, 128, 0, (2, 0, [0x81])),
    "9 Ho>Dn": (TEST_UNIT_READY, 0, 1500, (1, 1500, [])),
    "10 Ho<>Di": (read_memory(64), 0, 64, (2, 0, [0x02])),
    # The device takes all and then refuses it, because a block has 128 bytes.
    "11 Ho>Do": (WRITE_CONFIG_1, 0, 256, (1, 0, [])),
    "12 Ho=Do": (WRITE_CONFIG_1, 0, 128, (0, 0, [])),
    "13 Ho<Do": (WRITE_CONFIG_1, 0, 64, (2, 0, [0x02])),
}


@pytest.mark.parametrize("speed", ["super", "high"])
@pytest.mark.parametrize("case", CASES)
def test_each_of_the_thirteen_cases_ends_as_it_must_and_the_next_command_works(storage, case, speed):
    cdb, read, write, expected = CASES[case]
    s = storage(speed=speed)
    done = s.bot(cdb, read, bytes(write))
    assert (done.status, done.residue, done.stalls) == expected
    assert s.peek(0x07F0, 6) == bytes.fromhex("240417850000")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"USBX" + bytes(27), id="signature"),
        pytest.param(b"USBC" + bytes(26), id="30 bytes"),
        pytest.param(b"USBC" + bytes(28), id="32 bytes"),
        pytest.param(struct.pack("<4sIIBBB16s", b"USBC", 1, 0, 0, 0, 0, b""), id="no command"),
        pytest.param(struct.pack("<4sIIBBB16s", b"USBC", 1, 0, 0, 0, 17, b""), id="17 bytes of command"),
        pytest.param(struct.pack("<4sIIBBB16s", b"USBC", 1, 0, 1, 0, 6, b""), id="reserved flag"),
    ],
)
def test_a_bad_wrapper_halts_both_endpoints_until_reset_recovery(storage, bad):
    s = storage()
    s.dev.write(0x02, bad)
    # Clearing the halts is not enough.
    for _ in range(2):
        for endpoint in (0x81, 0x02):
            with pytest.raises(usb.core.USBError) as caught:
                s.dev.read(0x81, 13) if endpoint == 0x81 else s.dev.write(0x02, bytes(31))
            assert caught.value.backend_error_code == STALL
            s.dev.clear_halt(endpoint)
    assert s.dev.ctrl_transfer(0x21, 0xFF, 0, 0, None) == 0  # Bulk-Only Mass Storage Reset
    s.dev.clear_halt(0x81)
    s.dev.clear_halt(0x02)
    assert s.peek(0x07F0, 3) == bytes.fromhex("240417")


def test_a_reset_drops_the_command_under_way(storage):
    s = storage()
    s.dev.write(0x02, s.wrapper(read_memory(6), 6, to_host=True))
    s.dev.ctrl_transfer(0x21, 0xFF, 0, 0, None)
    assert s.bot(INQUIRY, 76).status == 0


def test_a_host_that_sends_less_than_it_promised_gets_a_phase_error(storage):
    s = storage()
    s.dev.write(0x02, s.wrapper(WRITE_CONFIG_1, 128, to_host=False))
    s.dev.write(0x02, bytes(100))
    assert s.status([]).status == 2


def test_class_requests_are_answered_in_the_bulk_only_setting_alone(storage):
    s = storage()
    assert bytes(s.dev.ctrl_transfer(0xA1, 0xFE, 0, 0, 1)) == b"\0"  # Get Max LUN
    s.dev.set_interface_altsetting(0, 1)
    for kind, request, value, more in ((0xA1, 0xFE, 0, 1), (0x21, 0xFF, 0, None)):
        with pytest.raises(usb.core.USBError) as caught:
            s.dev.ctrl_transfer(kind, request, value, 0, more)
        assert caught.value.backend_error_code == STALL


def test_the_wrapper_after_the_data_waits_for_the_host(storage):
    s = storage()
    s.dev.write(0x02, s.wrapper(read_memory(6), 6, to_host=True))
    s.dev.read(0x81, 6)
    with pytest.raises(usb.core.USBTimeoutError):
        # The device takes one command at a time.
        s.dev.write(0x02, s.wrapper(TEST_UNIT_READY, 0, to_host=False), timeout=50)
