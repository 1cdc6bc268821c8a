"""Calls and events, with GSP-RM played by the test."""

from __future__ import annotations

import struct
from collections import deque

import pytest

from ringup.drivers.nv.gsp.door import Door
from ringup.drivers.nv.gsp.queue import Arrived
from ringup.drivers.nv.gsp.rpc import MAX_PAYLOAD_BYTES, Rpc, name_of
from ringup.drivers.transport.nvidia.status import RmRefused, status_name
from ringup.errors import DeviceHung, DeviceLost, DeviceTimeout
from ringup.silicon.common.clock import VirtualClock

# g_rpc-structures.h, rpc_global_enums.h of 535.113.01
SIGNATURE = 0x4350_5256
CONTINUATION, CONTROL, ALLOC, FREE, STATIC_INFO = 0x47, 0x4C, 0x67, 0xA, 0x41
INIT_DONE, OS_ERROR_LOG, POST_EVENT = 0x1001, 0x1006, 0x1003


class Queues:
    """Queues whose other side is a function: message in, messages out."""

    def __init__(self):
        self.messages, self.waiting, self.received, self.numbers = [], deque(), 0, []
        self.answer = lambda function, payload: []

    def send(self, message, doing):
        head = struct.unpack_from("<8I", message)
        assert head[0] == 3 << 24
        assert head[1] == SIGNATURE
        assert head[2] == len(message)
        assert head[4] == head[5] == 0xFFFF_FFFF
        self.messages.append((head[3], bytes(message[32:])))
        self.numbers.append(head[6])
        self.waiting.extend(self.answer(*self.messages[-1]))

    @property
    def sent(self):
        return len(self.messages)

    def peek(self):
        return Arrived(self.waiting[0], 1) if self.waiting else None

    def advance(self, arrived):
        assert self.waiting.popleft() == arrived.message
        self.received += 1


def said(function, payload=b"", result=0):
    """Return a message as GSP-RM writes it."""
    return struct.pack("<8I", 3 << 24, SIGNATURE, 32 + len(payload), function, result, 0, 0, 0) + payload


@pytest.fixture
def ends():
    """(calls, queues, the list of checks)."""
    queues, checks = Queues(), []
    return Rpc(queues, VirtualClock(), checks.append), queues, checks


def test_names_are_those_of_the_headers():
    assert name_of(0x4C) == "GSP_RM_CONTROL"
    assert name_of(0x1001) == "GSP_INIT_DONE"
    assert name_of(0x7777) == "function 0x7777"
    assert status_name(0x22) == "NV_ERR_INVALID_CLASS (0x22)"
    assert status_name(0x1234) == "an unknown status (0x1234)"


def test_events_before_an_answer_are_handled_in_order(ends):
    rpc, queues, _ = ends
    seen = []
    rpc.on(OS_ERROR_LOG, lambda payload: seen.append(payload))
    queues.answer = lambda function, payload: [
        said(OS_ERROR_LOG, b"one"),
        said(POST_EVENT, b"nobody's"),
        said(OS_ERROR_LOG, b"two"),
        said(function, b"answer"),
        said(OS_ERROR_LOG, b"later"),
    ]
    assert rpc.call(STATIC_INFO, b"").payload == b"answer"
    assert seen == [b"one", b"two"]
    assert rpc.drain() == 1
    assert seen[2:] == [b"later"]
    assert [event.name for event in rpc.events] == ["OS_ERROR_LOG", "POST_EVENT", "OS_ERROR_LOG", "OS_ERROR_LOG"]


def test_an_event_may_come_before_it_is_waited_for_only_if_somebody_listens(ends):
    rpc, queues, checks = ends
    queues.waiting.append(said(INIT_DONE, b"\0\0\0\0"))
    assert rpc.wait_event(INIT_DONE, 1000) == b"\0\0\0\0"
    with pytest.raises(DeviceTimeout, match="waiting for GSP_INIT_DONE: nothing came for 1 ms"):
        rpc.wait_event(INIT_DONE, 1000)
    assert checks


def test_an_event_with_an_error_is_one(ends):
    """OGKM kernel_gsp.c, kgspWaitForRmInitDone_IMPL: rpc_result of GSP_INIT_DONE is checked."""
    rpc, queues, _ = ends
    queues.waiting.append(said(INIT_DONE, result=0x56))
    with pytest.raises(DeviceHung, match="sent GSP_INIT_DONE with the error NV_ERR_NOT_SUPPORTED"):
        rpc.wait_event(INIT_DONE, 1000)


def test_long_payloads_go_and_come_in_continuation_records(ends):
    rpc, queues, _ = ends
    payload = bytes(at * 31 & 0xFF for at in range(3 * MAX_PAYLOAD_BYTES + 10))
    parts = [payload[at : at + MAX_PAYLOAD_BYTES] for at in range(0, len(payload), MAX_PAYLOAD_BYTES)]

    def answer(function, payload):
        if len(queues.messages) < 4:
            return []
        return [said(STATIC_INFO, parts[0][::-1]), said(POST_EVENT), *(said(CONTINUATION, one) for one in parts[1:])]

    queues.answer = answer
    got = rpc.call(STATIC_INFO, payload).payload
    assert [function for function, _ in queues.messages] == [STATIC_INFO, CONTINUATION, CONTINUATION, CONTINUATION]
    assert b"".join(part for _, part in queues.messages) == payload
    assert got == parts[0][::-1] + b"".join(parts[1:])


def test_calls_have_running_numbers_and_other_messages_have_none(ends):
    """Linux nouveau 90caca3b7264: GSP-RM of release 570 checks the order. OGKM kernel_gsp.c: of every record."""
    rpc, queues, _ = ends
    rpc.post(STATIC_INFO, bytes(MAX_PAYLOAD_BYTES + 1))
    queues.answer = lambda function, payload: [said(CONTROL)] if function == CONTROL else []
    rpc.call(CONTROL, b"")
    rpc.call(CONTROL, bytes(MAX_PAYLOAD_BYTES + 1), answer_bytes=0)
    rpc.post(STATIC_INFO, b"")
    rpc.call(CONTROL, b"")
    assert queues.numbers == [0, 0, 0, 1, 2, 0, 3]


def test_a_continuation_that_does_not_come_is_a_timeout(ends):
    rpc, queues, _ = ends
    queues.answer = lambda function, payload: [said(STATIC_INFO, bytes(MAX_PAYLOAD_BYTES))]
    with pytest.raises(DeviceTimeout, match="answer to GET_GSP_STATIC_INFO"):
        rpc.call(STATIC_INFO, b"", answer_bytes=MAX_PAYLOAD_BYTES + 1, timeout_us=1000)


def test_a_foreign_signature_is_named(ends):
    rpc, queues, _ = ends
    queues.waiting.append(struct.pack("<8I", 0, 0x1234, 32, 0, 0, 0, 0, 0))
    with pytest.raises(DeviceHung, match="signature 0x1234"):
        rpc.drain()


def test_a_lost_card_ends_the_wait(ends):
    _, queues, _ = ends

    def lost(doing):
        raise DeviceLost(f"{doing}: gone")

    rpc = Rpc(queues, VirtualClock(), lost)
    with pytest.raises(DeviceLost, match="waiting for GSP-RM's answer to GET_GSP_STATIC_INFO: gone"):
        rpc.call(STATIC_INFO, b"")


def test_what_gsp_sent_before_its_processor_stopped_is_handled_first(ends):
    _, queues, _ = ends
    asked = []

    def stopped(doing):
        asked.append(doing)
        if len(asked) == 1:
            queues.waiting.append(said(POST_EVENT))
            raise DeviceHung("its processor has stopped")
        queues.waiting.append(said(STATIC_INFO, b"well"))

    rpc = Rpc(queues, VirtualClock(), stopped)
    assert rpc.call(STATIC_INFO, b"").payload == b"well"
    assert len(asked) == 2


def test_a_gsp_that_sends_without_end_does_not_hold_a_call(ends):
    _, queues, _ = ends
    queues.peek = lambda: Arrived(said(POST_EVENT), 1)
    queues.advance = lambda arrived: setattr(queues, "received", queues.received + 1)
    rpc = Rpc(queues, VirtualClock(), lambda doing: None)
    with pytest.raises(DeviceTimeout, match="answer to GET_GSP_STATIC_INFO"):
        rpc.call(STATIC_INFO, b"", timeout_us=2000)
    assert rpc.drain() == 256


def test_the_answer_of_an_interrupted_call_is_not_taken_for_another_ones(ends):
    _, queues, _ = ends

    class Clock(VirtualClock):
        def sleep_us(self, time_us):
            raise KeyboardInterrupt

    rpc = Rpc(queues, Clock(), lambda doing: None)
    with pytest.raises(KeyboardInterrupt):
        rpc.call(CONTROL, b"first")
    rpc._clock = VirtualClock()
    queues.answer = lambda function, payload: [said(CONTROL, b"first's"), said(CONTROL, b"second's")]
    assert rpc.call(CONTROL, b"second").payload == b"second's"
    queues.answer = lambda function, payload: [said(CONTROL, b"third's")]
    assert rpc.call(CONTROL, b"third").payload == b"third's"


@pytest.mark.parametrize(("parts", "left"), [(0, ""), (1, "when a part of it was sent"), (2, "")])
def test_a_call_that_is_interrupted_while_it_is_sent(ends, parts, left):
    """Of none of it no answer comes; a part of it leaves GSP-RM waiting for the rest."""
    rpc, queues, _ = ends
    whole = bytes(MAX_PAYLOAD_BYTES + 1)

    def interrupt(function, payload):
        if len(queues.messages) == max(parts, 1):
            if not parts:
                queues.messages.clear()
            raise KeyboardInterrupt
        return []

    queues.answer = interrupt
    with pytest.raises(KeyboardInterrupt):
        rpc.call(CONTROL, whole)
    queues.waiting.extend([said(CONTROL, b"late")] if parts == 2 else [])
    queues.answer = lambda function, payload: [said(CONTROL, b"its own")]
    if left:
        with pytest.raises(DeviceHung, match=left):
            rpc.call(CONTROL, b"next")
    else:
        assert rpc.call(CONTROL, b"next").payload == b"its own"


def test_a_call_that_is_interrupted_between_the_records_of_its_answer(ends):
    rpc, queues, _ = ends

    def interrupt(payload):
        raise KeyboardInterrupt

    rpc.on(POST_EVENT, interrupt)
    queues.answer = lambda function, payload: [said(STATIC_INFO, bytes(MAX_PAYLOAD_BYTES)), said(POST_EVENT)]
    with pytest.raises(KeyboardInterrupt):
        rpc.call(STATIC_INFO, b"", answer_bytes=MAX_PAYLOAD_BYTES + 1)
    queues.answer = lambda function, payload: [said(CONTINUATION, b"rest"), said(STATIC_INFO, b"its own")]
    assert rpc.call(STATIC_INFO, b"").payload == b"its own"


def test_a_handler_makes_no_call_itself(ends):
    rpc, queues, _ = ends
    rpc.on(POST_EVENT, lambda payload: rpc.call(FREE, b""))
    queues.answer = lambda function, payload: [said(POST_EVENT), said(function)]
    with pytest.raises(ValueError, match="FREE is called while GET_GSP_STATIC_INFO waits"):
        rpc.call(STATIC_INFO, b"")


def door_to(queues, release="535.113.01"):
    """Return a door over such queues."""
    return Door(Rpc(queues, VirtualClock(), lambda doing: None), release)


def test_the_door_writes_the_structs_of_the_headers():
    queues = Queues()
    queues.answer = lambda function, payload: [said(function, payload[:-1] + b"\x99" if function != FREE else payload)]
    door = door_to(queues)
    assert door.release == "535.113.01"
    assert door.alloc(1, 2, 3, 0x2080, b"abcd") == b"abc\x99"
    assert door.control(1, 3, 0x2080_0110, b"efgh") == b"efg\x99"
    door.free(1, 2, 3)
    # rpc_gsp_rm_alloc_v03_00, rpc_gsp_rm_control_v03_00, NVOS00_PARAMETERS_v03_00
    assert queues.messages == [
        (ALLOC, struct.pack("<8I", 1, 2, 3, 0x2080, 0, 4, 0, 0) + b"abcd"),
        (CONTROL, struct.pack("<6I", 1, 3, 0x2080_0110, 0, 4, 0) + b"efgh"),
        (FREE, struct.pack("<4I", 1, 2, 3, 0)),
    ]


def test_a_status_in_the_struct_or_in_the_head_is_a_refusal():
    queues = Queues()
    queues.answer = lambda function, payload: [said(function, payload[:12] + struct.pack("<I", 0x56) + payload[16:])]
    with pytest.raises(RmRefused, match=r"control 0x20800110 of object 0x3: .* NV_ERR_NOT_SUPPORTED") as refused:
        door_to(queues).control(1, 3, 0x2080_0110, b"efgh")
    assert refused.value.status == 0x56
    assert refused.value.name == "NV_ERR_NOT_SUPPORTED (0x56)"
    queues.answer = lambda function, payload: [said(function, payload, result=0x1F)]
    with pytest.raises(RmRefused, match="NV_ERR_INVALID_ARGUMENT"):
        door_to(queues).alloc(1, 2, 3, 0, b"")


def test_an_answer_that_is_too_short_is_named():
    queues = Queues()
    queues.answer = lambda function, payload: [said(function, payload[:-4])]
    with pytest.raises(DeviceHung, match="answered with 4 bytes of 8"):
        door_to(queues).control(1, 3, 0x2080_0110, bytes(8))
    queues.answer = lambda function, payload: [said(function, b"")]
    with pytest.raises(DeviceHung, match="without a status"):
        door_to(queues).control(1, 3, 0x2080_0110, bytes(8))
