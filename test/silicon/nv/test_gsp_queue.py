"""The message queues: what the firmware accepts, refuses and sends. Source: message_queue_cpu.c, r535.c."""

import struct

import pytest

PAGE = 4096


def test_the_firmware_starts_when_it_knows_the_system(gsp):
    cpu = gsp().prepare()
    assert cpu.start().receive().function == 0x1001
    assert cpu.firmware.violations == []
    assert cpu.card.named("interrupt") == [()]
    # both roots are pages behind what the CPU may use, and are clear
    (bar1,), (bar2,) = cpu.card.named("bar1_page_directory") + cpu.card.named("bar2_page_directory")
    assert bar2 == bar1 + PAGE


def test_without_a_description_of_the_system_there_is_no_init_done(gsp):
    cpu = gsp().prepare(system_info=False).start()
    assert cpu.receive() is None
    cpu.push(72, bytes(664))
    cpu.ring()
    assert cpu.receive() is None
    cpu.push(73, cpu.registry({}))
    cpu.ring()
    assert cpu.receive().function == 0x1001


def test_the_status_queue_has_the_header_that_msgqrxlink_checks(up):
    cpu = up()
    version, size, element, count, written, flags, read_at, entries = struct.unpack("<8I", cpu.load(cpu.status, 32))
    assert (version, size, element, flags) == (0, cpu.queue_bytes, PAGE, 1)
    assert read_at >= 32
    assert entries >= 36
    assert count == (size - entries) // PAGE == cpu.count
    assert written == 1


def test_both_rings_wrap_many_times(up):
    cpu = up(elements=5)
    for number in range(23):
        answer = cpu.call(70, struct.pack("<I4xQQ", 1, number << 12 | 2, 47))
        assert answer.result == 0
    assert cpu.received == 24
    assert [call[1] for call in cpu.card.named("update_bar_pde")] == [number << 12 | 2 for number in range(23)]
    assert cpu.firmware.violations == []


def test_a_message_may_cross_the_end_of_the_ring(up):
    cpu = up(elements=9)
    client, subdevice = cpu.internal()
    for _ in range(6):
        # 3212 bytes take one element, 8 more requests of 2 elements each
        assert cpu.control(client, subdevice, 0x20800A40, bytes(3172))[0] == 0
        assert cpu.control(client, subdevice, 0x20800AFA, bytes(5000))[0] == 0x3A
    assert cpu.firmware.violations == []


def test_answers_wait_until_the_cpu_has_read(up):
    cpu = up(elements=3)
    for _ in range(2):
        cpu.push(70, struct.pack("<I4xQQ", 1, 0, 47))
    cpu.ring()
    cpu.push(70, struct.pack("<I4xQQ", 1, 0, 47))
    cpu.ring()
    assert [cpu.receive().function for _ in range(2)] == [70, 70]
    assert cpu.receive() is None
    cpu.settle()
    assert cpu.receive().function == 70


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("checksum", {"checksum": 1}),
        ("sequence", {"sequence": 99}),
        ("length", {"length": 16}),
        ("length", {"length": 0x10000}),
        ("length", {"count": 0}),
        ("length", {"count": 7}),
    ],
)
def test_a_bad_message_is_named_and_dropped(up, kind, how):
    cpu = up()
    assert cpu.call(70, struct.pack("<I4xQQ", 1, 0, 47), **how) is None
    assert [violation.split(":")[0] for violation in cpu.firmware.violations] == [kind]
    # the sequence goes on with the number that the bad message should have had
    cpu.sequence = 2
    assert cpu.call(70, struct.pack("<I4xQQ", 1, 0, 47)).result == 0


def test_a_message_that_is_not_all_there_is_read_later(up):
    cpu = up()
    client, subdevice = cpu.internal()
    body = struct.pack("<6I", client, subdevice, 0x20800A41, 0, 8204, 0) + bytes(8204)
    element = cpu.element(cpu.header(76, body))
    cpu.push_raw(element)
    cpu.written = (cpu.written - 1) % cpu.count
    cpu.store(cpu.command + 16, struct.pack("<I", cpu.written))
    cpu.ring()
    assert [violation.split(":")[0] for violation in cpu.firmware.violations] == ["incomplete"]
    cpu.store(cpu.command + 16, struct.pack("<I", cpu.written + 1))
    cpu.ring()
    assert cpu.receive().function == 76


def test_a_wild_write_pointer_is_named(up):
    cpu = up()
    cpu.store(cpu.command + 16, struct.pack("<I", 1 << 31))
    cpu.ring()
    assert cpu.firmware.violations == ["pointer: the command queue's write pointer is 2147483648 of 63"]


def long_control(cpu, size):
    """Send a control of `size` bytes in records of 65,488 bytes, as drivers do; return the records that come back."""
    client, subdevice = cpu.internal()
    body = (
        struct.pack("<6I", client, subdevice, 0x2080A637, 0, size, 1)
        + bytes(range(256)) * (size // 256)
        + bytes(size % 256)
    )
    room = 65488 - 32
    for offset in range(0, len(body), room):
        cpu.push(71 if offset else 76, body[offset : offset + room])
    cpu.ring()
    records = []
    while (message := cpu.receive()) is not None:
        records.append(message)
    return body, records


def test_long_calls_go_in_records_both_ways(up):
    cpu = up()
    body, records = long_control(cpu, 88024)
    assert [record.function for record in records] == [76, 71]
    assert [len(record.body) for record in records] == [65456, 24 + 88024 - 65456]
    answer = b"".join(record.body for record in records)
    # the command is not modelled, so its parameters come back as they were, with the status
    assert struct.unpack_from("<I", answer, 12)[0] == 0x56
    assert answer[24:] == body[24:]
    assert cpu.firmware.violations == []


def test_a_continuation_needs_a_call(up):
    cpu = up()
    cpu.push(71, bytes(100))
    cpu.ring()
    assert cpu.firmware.violations == ["continuation: a continuation without a call"]


def test_a_call_within_a_call_is_named(up):
    cpu = up()
    cpu.push(76, struct.pack("<6I", 1, 1, 1, 0, 88024, 0) + bytes(65488 - 32 - 24))
    cpu.push(70, struct.pack("<I4xQQ", 1, 0, 47))
    cpu.ring()
    assert cpu.firmware.violations == ["continuation: call 0x46 came within call 0x4c"]


@pytest.mark.parametrize("size", [0xFFFF_FFF0, 2 << 20, 100])
def test_hostile_sizes_of_parameters_are_bounded(up, size):
    cpu = up()
    cpu.push(76, struct.pack("<6I", 1, 1, 1, 0, size, 0))
    cpu.push(103, struct.pack("<7I4x", 1, 1, 1, 0x80, 0, min(size + 4096, 0xFFFF_FFFF), 0))
    cpu.ring()
    assert [violation.split(":")[0] for violation in cpu.firmware.violations] == ["length", "length"]


def test_a_foreign_signature_is_named(up):
    cpu = up()
    record = bytearray(cpu.header(70, bytes(24)))
    record[4:8] = b"ABCD"
    cpu.push_raw(cpu.element(bytes(record)))
    cpu.ring()
    assert cpu.firmware.violations[0].startswith("signature: call 0x46 has signature 0x44434241")


def test_an_unknown_call_is_answered_and_counted(up):
    cpu = up()
    assert cpu.call(0xA8, bytes(8)).result == 0xFF100001
    assert cpu.firmware.session.manager.unmodelled == {"call 0xa8": 1}


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda cpu: cpu.put(cpu.arguments, bytes(4096)), "libos"),
        (lambda cpu: cpu.put(cpu.arguments + 25, b"\2" * 1), "libos"),
        (lambda cpu: cpu.put(0x1_0000_2000 + 8, struct.pack("<I", 1 << 30)), "length"),
        (lambda cpu: cpu.put(0x1_0000_2000 + 16, struct.pack("<Q", 1 << 40)), "length"),
        (lambda cpu: cpu.put(0x1_0000_2000 + 24, struct.pack("<Q", 0)), "length"),
        (lambda cpu: cpu.put(cpu.places[0] + 16, struct.pack("<Q", 0x123)), "page table"),
        (lambda cpu: cpu.put(cpu.places[0] + 16, struct.pack("<Q", 0x1000)), "memory"),
        (lambda cpu: cpu.store(cpu.command + 8, struct.pack("<I", 64)), "header"),
        (lambda cpu: cpu.store(cpu.command + 4, struct.pack("<I", 1 << 30)), "length"),
        (lambda cpu: cpu.store(cpu.command + 12, struct.pack("<I", 3)), "header"),
    ],
)
def test_bad_arguments_keep_the_firmware_silent(gsp, spoil, kind):
    cpu = gsp().prepare()
    spoil(cpu)
    cpu.start()
    assert [violation.split(":")[0] for violation in cpu.firmware.violations] == [kind]
    cpu.ring()
    assert cpu.card.named("interrupt") == []


def test_an_unknown_release_is_unmodelled_and_silent(gsp):
    cpu = gsp().prepare().start(release="999.1")
    assert cpu.card.named("interrupt") == []
    assert [event.text for event in cpu.firmware.log.find("unmodelled")] == ["firmware release 999.1"]


def test_queues_may_be_larger_than_one_page_of_their_table(up):
    cpu = up(elements=300)
    assert cpu.call(70, struct.pack("<I4xQQ", 1, 0, 47)).result == 0


def test_unloading_answers_stops_and_frees(up):
    cpu = up()
    cpu.root()
    assert cpu.call(47, struct.pack("<BB2xI", 0, 0, 0)).result == 0
    assert cpu.card.named("suspended") == [(0,)]
    assert cpu.call(70, struct.pack("<I4xQQ", 1, 0, 47)) is None
    cpu.firmware.unload()
    # the next start has new queues and sequence numbers
    cpu.sequence = cpu.received = cpu.read = cpu.written = 0
    assert cpu.prepare().start().receive().function == 0x1001


def test_a_reset_in_the_middle_leaves_no_timer(up):
    cpu = up()
    cpu.push(70, struct.pack("<I4xQQ", 1, 0, 47))
    cpu.firmware.doorbell()
    cpu.firmware.unload()
    cpu.settle()
    assert cpu.card.named("update_bar_pde") == []
