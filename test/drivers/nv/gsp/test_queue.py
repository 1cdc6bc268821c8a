"""The message queues, with the other side played by the test: bytes as GSP-RM would write and read them."""

from __future__ import annotations

import inspect
import random
import struct
import sys
from itertools import count

import pytest

from ringup.drivers.nv.gsp.host_memory import HostMemory
from ringup.drivers.nv.gsp.queue import COUNT, MAX_MESSAGE_BYTES, QUEUE_BYTES, TABLE_BYTES, Queues, checksum
from ringup.drivers.nv.gsp.rpc import Rpc
from ringup.errors import DeviceHung, DeviceTimeout
from ringup.silicon import nvidia_card

PAGE = 4096
STATUS = TABLE_BYTES + QUEUE_BYTES
# msgq_priv.h, msgqTxHeader: version, size, msgSize, msgCount, writePtr, flags, rxHdrOff, entryOff
HEADER = (0, 0x4_0000, 0x1000, 63, 0, 1, 32, 0x1000)


class Gsp:
    """The other side: its queue is the status queue."""

    def __init__(self, view):
        self.view, self.written, self.number = view, 0, 0

    def set_up(self, header=HEADER):
        """Write the header of the status queue."""
        struct.pack_into("<8I", self.view, STATUS, *header)

    def say(self, message, count=None, *, number=None, damage=0):
        """Put a message into the status queue."""
        count = -(-(48 + len(message)) // PAGE) if count is None else count
        number = self.number if number is None else number
        element = bytearray(struct.pack("<32xIII4x", 0, number, count) + message)
        struct.pack_into("<I", element, 32, checksum(element) ^ damage)
        for at in range(0, len(element), PAGE):
            to = STATUS + PAGE + (self.written + at // PAGE) % 63 * PAGE
            part = element[at : at + PAGE]
            self.view[to : to + len(part)] = part
        self.written, self.number = (self.written + max(1, count)) % 63, self.number + 1
        struct.pack_into("<I", self.view, STATUS + 16, self.written)

    def has_read(self, count):
        """Say how many elements of the command queue were read, modulo its length."""
        struct.pack_into("<I", self.view, STATUS + 32, count % 63)

    @property
    def told(self):
        """How far the driver says that it has read."""
        return struct.unpack_from("<I", self.view, TABLE_BYTES + 32)[0]


@pytest.fixture
def sides():
    """(queues, the other side, the list of doorbells)."""
    card = nvidia_card("ga102")
    rung = []
    memory = HostMemory(card)
    queues = Queues(memory, card.clock, lambda: rung.append(1))
    yield queues, Gsp(memory._kept[0].view), rung
    memory.free()


def message(size_bytes, function=0x41):
    """Return a message of a size, header included, as rpc_message_header_v03_00 has it."""
    head = struct.pack("<8I", 3 << 24, 0x4350_5256, size_bytes, function, 0, 0, 0, 0)
    return head + bytes(at * 7 & 0xFF for at in range(size_bytes - 32))


def test_memory_begins_with_its_own_pages_and_the_command_queues_header(sides):
    _, gsp, _ = sides
    entries = struct.unpack_from("<129Q", gsp.view)
    assert all(entry % PAGE == 0 for entry in entries)
    assert len(set(entries)) == 129
    # 1 page of addresses and twice 64 pages: message_queue_cpu.c, _getMsgQueueParams
    assert TABLE_BYTES == PAGE
    assert struct.unpack_from("<8I", gsp.view, TABLE_BYTES) == HEADER


def test_a_checksum_is_the_exclusive_or_of_all_dwords():
    assert checksum(struct.pack("<3I", 1, 2, 0xF0)) == 0xF3
    assert checksum(b"\x01") == 1


def test_a_message_is_written_whole_before_it_is_told(sides):
    queues, gsp, rung = sides
    queues.send(message(40), "testing")
    at = TABLE_BYTES + PAGE
    assert struct.unpack_from("<II", gsp.view, at + 36) == (0, 1)
    assert checksum(gsp.view[at : at + 48 + 40]) == 0
    assert bytes(gsp.view[at + 48 : at + 88]) == message(40)
    assert struct.unpack_from("<I", gsp.view, TABLE_BYTES + 16) == (1,)
    assert rung == [1]
    queues.send(message(PAGE), "testing")
    assert struct.unpack_from("<II", gsp.view, at + PAGE + 36) == (1, 2)
    assert struct.unpack_from("<I", gsp.view, TABLE_BYTES + 16) == (3,)


def test_a_queue_wraps_and_waits_for_space(sides):
    queues, gsp, _ = sides
    for _ in range(3):
        queues.send(message(MAX_MESSAGE_BYTES), "testing")
    with pytest.raises(DeviceTimeout, match="testing: GSP-RM does not read its queue: 14 elements are free of 63"):
        queues.send(message(MAX_MESSAGE_BYTES), "testing")
    gsp.has_read(20)
    queues.send(message(MAX_MESSAGE_BYTES), "testing")
    assert struct.unpack_from("<I", gsp.view, TABLE_BYTES + 16) == (1,)
    # its last element lies at the queue's begin
    assert bytes(gsp.view[TABLE_BYTES + PAGE :][:8]) == message(MAX_MESSAGE_BYTES)[15 * PAGE - 48 :][:8]
    gsp.has_read(63)
    with pytest.raises(ValueError, match="a message has 32 to 65488 bytes"):
        queues.send(message(MAX_MESSAGE_BYTES + 4), "testing")


def test_messages_come_in_order_over_the_queues_end(sides):
    queues, gsp, _ = sides
    gsp.set_up()
    queues.link(lambda: None)
    assert queues.receive() is None
    for size in [40, 4040, 4049, 20_000, MAX_MESSAGE_BYTES] * 4:
        gsp.say(message(size))
        assert queues.receive() == message(size)
        assert gsp.told == gsp.written
    assert queues.receive() is None


def test_the_other_sides_header_must_have_the_shape_that_was_agreed(sides):
    queues, gsp, _ = sides
    with pytest.raises(DeviceTimeout, match="waiting for GSP-RM to set up its queue"):
        queues.link(lambda: None)
    gsp.set_up((0, 0x4_0000, 0x800, 63, 0, 1, 32, 0x1000))
    with pytest.raises(
        DeviceTimeout, match=r"its header has \(0, 262144, 2048, .* whose release is what its file says"
    ):
        queues.link(lambda: None)


def test_a_header_that_is_written_in_parts_is_waited_for(sides):
    queues, gsp, _ = sides
    gsp.set_up((0, 0x4_0000, 0, 0, 0, 1, 0, 0x1000))
    queues.link(gsp.set_up)


def test_what_watches_over_gsp_is_asked_while_its_queue_is_not_there(sides):
    queues, _, _ = sides

    def dead():
        raise DeviceHung("it is dead")

    with pytest.raises(DeviceHung, match="it is dead"):
        queues.link(dead)


HOSTILE = {
    "no elements": ({"count": 0}, "it counts 0 elements"),
    "too many elements": ({"count": 17}, "it counts 17 elements"),
    "a wrong checksum": ({"damage": 0x10}, "its checksum is wrong by 0x00000010"),
    "a number of the past": ({"number": 7}, "its number is 7, not 0"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_damaged_messages_are_named(sides, kind):
    queues, gsp, _ = sides
    how, said = HOSTILE[kind]
    gsp.say(message(40), **how)
    with pytest.raises(DeviceHung, match=said):
        queues.receive()


@pytest.mark.parametrize("length", [0, 31, PAGE - 47, 0xFFFF_FFFF])
def test_a_length_outside_of_the_elements_is_named(sides, length):
    queues, gsp, _ = sides
    bad = bytearray(message(40))
    struct.pack_into("<I", bad, 8, length)
    gsp.say(bytes(bad))
    with pytest.raises(DeviceHung, match=f"it has {length} bytes in 1 elements"):
        queues.receive()


def test_more_elements_than_were_told_are_not_read(sides):
    queues, gsp, _ = sides
    gsp.say(message(9000))
    struct.pack_into("<I", gsp.view, STATUS + 16, 1)
    with pytest.raises(DeviceHung, match="it counts 3 elements, of 1 that there are"):
        queues.receive()


def test_a_message_that_arrives_late_is_read_at_the_second_look(sides):
    queues, gsp, _ = sides
    gsp.say(message(40), damage=1)
    at = STATUS + PAGE + 32

    class Clock:
        now_us = 0

        def sleep_us(self, time_us):
            value = struct.unpack_from("<I", gsp.view, at)[0]
            struct.pack_into("<I", gsp.view, at, value ^ 1)

    queues._clock = Clock()
    assert queues.receive() == message(40)


def test_any_bytes_are_a_message_or_an_error(sides):
    queues, gsp, _ = sides
    dice = random.Random(3)
    queues._clock = type("Clock", (), {"now_us": 0, "sleep_us": lambda self, time_us: None})()
    for _ in range(100):
        at = STATUS + PAGE + dice.randrange(63) * PAGE
        gsp.view[at : at + 96] = dice.randbytes(96)
        struct.pack_into("<II", gsp.view, at + 36, dice.choice((0, 1)), dice.randrange(20))
        struct.pack_into("<I", gsp.view, at + 56, dice.choice((0, 40, 4000, dice.getrandbits(32))))
        struct.pack_into("<I", gsp.view, STATUS + 16, dice.randrange(70))
        try:
            got = queues.receive()
        except DeviceHung:
            continue
        assert got is None or len(got) >= 32


@pytest.mark.parametrize("pointer", [COUNT, 0xFFFF_FFFF])
def test_pointers_outside_of_the_queue_are_named(sides, pointer):
    queues, gsp, _ = sides
    struct.pack_into("<I", gsp.view, STATUS + 16, pointer)
    with pytest.raises(DeviceHung, match=f"write pointer is {pointer}"):
        queues.receive()
    struct.pack_into("<I", gsp.view, STATUS + 32, pointer)
    with pytest.raises(DeviceHung, match=f"read pointer is {pointer}"):
        queues.send(message(40), "testing")


class Interrupt:
    """Raises KeyboardInterrupt before the n-th line that the queues and calls execute."""

    # nothing is executed between the answer's return and this line, so no signal comes there
    AFTER = 'self._waiting = ""'

    def __init__(self, number):
        self.left, self.files = number, {inspect.getfile(Rpc), inspect.getfile(Queues)}
        lines, first = inspect.getsourcelines(Rpc.call)
        self.after = first + next(at for at, line in enumerate(lines) if line.strip() == self.AFTER)

    def __call__(self, frame, event, argument):
        """Trace one frame."""
        if frame.f_code.co_filename not in self.files:
            return None
        if event == "line" and not (frame.f_code is Rpc.call.__code__ and frame.f_lineno == self.after):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self

    def run(self, act):
        """Return whether `act` was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            act()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def make_answering(card):
    """Return calls over queues whose other side answers every message with the payload that it has."""
    memory, heard = HostMemory(card), 0

    def answer():
        nonlocal heard
        written = struct.unpack_from("<I", gsp.view, TABLE_BYTES + 16)[0]
        while heard != written:
            at = TABLE_BYTES + PAGE + heard * PAGE
            length = struct.unpack_from("<I", gsp.view, at + 56)[0]
            gsp.say(message(32, function=0x1003))
            gsp.say(bytes(gsp.view[at + 48 : at + 48 + length]))
            heard += 1
        gsp.has_read(heard)

    queues = Queues(memory, card.clock, answer)
    gsp = Gsp(memory._kept[0].view)
    return Rpc(queues, card.clock, lambda doing: None), memory


def test_an_interrupt_at_any_line_of_a_call_leaves_the_next_one_its_own_answer():
    card = nvidia_card("ga102")
    for number in count(1):
        rpc, memory = make_answering(card)
        interrupted = Interrupt(number).run(lambda rpc=rpc: rpc.call(0x41, b"first"))
        for payload in (b"second", b"third"):
            assert rpc.call(0x41, payload).payload == payload, f"interrupted before line {number}"
        rpc.drain()
        memory.free()
        if not interrupted:
            break
    assert number > 100
