"""The stock firmware's USB Attached SCSI: units by the specification, with and without streams, tags, task management,
and 31 commands at once.
"""

import pytest

READ_VERSION = bytes.fromhex("e4065007f000")
VERSION = bytes.fromhex("240417850000")
WRITE_CONFIG_1 = bytes.fromhex("e15101")
# The sense unit of tag 7: status 0, no sense data.
GOOD_7 = bytes.fromhex("03000007000000000000000000000000")


@pytest.fixture
def uas(storage):
    s = storage()
    s.start_uas()
    return s


@pytest.fixture
def slow(storage):
    s = storage(speed="high")
    s.start_uas()
    return s


def stuck(s, tag=1):
    """Start a task that never ends: NVMe administration goes to a device that is no SSD."""
    for address, value in ((0x07EF, 0), (0x05A8, 2), (0x05F8, 4)):
        s.uas(bytes([0xE5, value, 0x50, *address.to_bytes(2, "big"), 0]), tag=20)
    status = s.submit(0x83, 64, tag, timeout_ms=100)
    s.send_unit(s.command_unit(tag, bytes.fromhex("e606")))
    s.wait(status)
    return status


@pytest.fixture
def linked(storage):
    s = storage(card=True)
    s.start_uas()
    return s


def test_a_command_with_data_gets_it_on_the_stream_of_its_tag_and_a_sense_unit(uas):
    assert uas.uas(READ_VERSION, 6, tag=7) == (GOOD_7, VERSION)


def test_a_refused_command_brings_fixed_sense_data_in_its_unit(uas):
    # The form of the ASM236x.
    unit, _ = uas.uas(bytes.fromhex("e4060007f000"), tag=3)
    # Check condition, with 18 bytes of sense data.
    assert unit[:16] == bytes.fromhex("03000003 0000 02 00000000000000 0012")
    assert unit[16:] == bytes.fromhex("700005000000000a00000000240000000000")
    sense = uas.uas(bytes.fromhex("030000001200"), 18)[1]
    # The sense data came with the status before.
    assert (sense[2], sense[12]) == (0, 0)


def test_data_to_the_device_arrives(uas):
    config = bytes(range(128))
    assert uas.uas(bytes.fromhex("e15100"), data=config, tag=7) == (GOOD_7, b"")
    assert uas.uas(bytes.fromhex("e05100"), 128)[1] == config


def test_without_streams_the_device_says_when_it_is_ready(slow):
    s = slow
    s.send_unit(s.command_unit(5, READ_VERSION))
    assert s.wait(s.submit(0x83, 64)).data == bytes.fromhex("06000005")  # READ READY
    assert s.wait(s.submit(0x81, 6)).data == VERSION
    assert s.wait(s.submit(0x83, 64)).data[:7] == bytes.fromhex("03000005000000")
    s.send_unit(s.command_unit(6, WRITE_CONFIG_1))
    assert s.wait(s.submit(0x83, 64)).data == bytes.fromhex("07000006")  # WRITE READY
    s.wait(s.submit(0x02, bytes(128)))
    assert s.wait(s.submit(0x83, 64)).data[:7] == bytes.fromhex("03000006000000")


def test_without_streams_a_refusal_comes_where_write_ready_would(slow):
    slow.send_unit(slow.command_unit(9, bytes.fromhex("e10001")))
    assert slow.wait(slow.submit(0x83, 64)).data[:7] == bytes.fromhex("03000009000002")


def test_31_commands_are_in_flight_and_end_in_order(uas):
    assert uas.streams == 31
    ended, all_of_them = [], []
    for tag in range(1, 32):
        status = uas.submit(0x83, 64, tag)
        data = uas.submit(0x81, 64, tag)
        all_of_them += [status, data, uas.submit(0x04, uas.command_unit(tag, bytes([0xE4, 64, 0x50, 0x40, tag, 0])))]
    while not all(one.done for one in all_of_them):
        uas.host.handle_events(1_000)
        ended += [one.stream for one in all_of_them if one.done and one.endpoint == 0x83 and one.stream not in ended]
    assert ended == list(range(1, 32))
    assert {one.status for one in all_of_them} == {"completed"}


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(bytes(31), id="31 bytes"),
        pytest.param(bytes([2]) + bytes(1) + (5).to_bytes(2, "big") + bytes(28), id="unknown unit"),
        pytest.param(
            bytes([1]) + bytes(1) + (5).to_bytes(2, "big") + bytes([0, 0, 4, 0]) + bytes(24), id="longer command"
        ),
    ],
)
def test_a_unit_that_is_none_is_answered_as_invalid(slow, unit):
    slow.send_unit(unit)
    response = slow.wait(slow.submit(0x83, 64)).data
    assert (response[0], response[7], len(response)) == (4, 0x02, 8)
    assert int.from_bytes(response[2:4], "big") == int.from_bytes(unit[2:4], "big")


def test_a_tag_that_is_in_use_aborts_everything(linked):
    stuck(linked, 1)
    stuck(linked, 2)
    status = linked.submit(0x83, 64, 1)
    linked.send_unit(linked.command_unit(1, READ_VERSION))
    # Overlapped tag.
    assert linked.wait(status).data == bytes.fromhex("040000010000000a")
    # The task no longer exists.
    assert [linked.manage(0x80, tag)[7] for tag in (1, 2)] == [0, 0]
    assert linked.uas(READ_VERSION, 6, tag=1)[1] == VERSION


def test_a_task_that_never_ends_lets_others_pass_and_can_be_aborted(linked):
    assert stuck(linked).status == "timed_out"
    assert linked.uas(READ_VERSION, 6, tag=7) == (GOOD_7, VERSION)
    # QUERY TASK: the task is there.
    assert linked.manage(0x80, 1) == bytes.fromhex("0400001e00000008")
    # ABORT TASK: done.
    assert linked.manage(0x01, 1) == bytes.fromhex("0400001e00000000")
    assert linked.manage(0x80, 1) == bytes.fromhex("0400001e00000000")
    # The task's tag is free.
    assert linked.uas(READ_VERSION, 6, tag=1)[1] == VERSION


@pytest.mark.parametrize("function", [0x02, 0x04, 0x08, 0x10], ids=["task set", "clear", "unit", "nexus"])
def test_functions_that_abort_all_tasks_do(linked, function):
    stuck(linked, 1)
    stuck(linked, 2)
    assert linked.manage(function)[7] == 0
    assert [linked.manage(0x80, tag)[7] for tag in (1, 2)] == [0, 0]


def test_functions_that_do_not_exist_and_units_that_do_not_are_told_apart(uas):
    assert uas.manage(0x40)[7] == 0x04
    assert uas.manage(0x01, 1, lun=1)[7] == 0x09


def test_another_unit_than_0_is_refused_and_an_inquiry_says_nothing_is_there(uas):
    unit, _ = uas.uas(bytes(6), lun=1)
    assert (unit[6], unit[18], unit[28]) == (2, 5, 0x25)
    assert uas.uas(bytes.fromhex("120000004c00"), 76, lun=1)[1][0] == 0x7F


def test_data_that_ends_early_fails_the_command(uas):
    unit, _ = uas.uas(WRITE_CONFIG_1, data=bytes(100))
    assert (unit[6], unit[18], unit[28], unit[29]) == (2, 0x0B, 0x47, 0x03)


def test_the_bulk_only_setting_drops_all_tasks(linked):
    stuck(linked)
    linked.host.free_streams(linked.handle, (0x81, 0x83, 0x02))
    linked.dev.set_interface_altsetting(0, 0)
    assert linked.peek(0x07F0, 6) == VERSION
    linked.start_uas()
    assert linked.manage(0x80, 1)[7] == 0
