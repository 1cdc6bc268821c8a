"""Calls of GSP-RM over the message queues, and the events that it sends between answers.

A call's answer has the call's function number; what comes before it are events, which are handed to handlers. Messages
that do not fit into one are followed by continuation records, both ways. After a call that was not answered, no other
is made: its answer may still come, and would be taken for another one's. Source: OGKM rpc.c, _issueRpcAndWait,
_issueRpcLarge; kernel_gsp.c, _kgspRpcRecvPoll, _kgspProcessRpcEvent.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.nv import gsp_rpc
from ringup.autogen.nv.gsp_queue import rpc_message_header_v03_00
from ringup.autogen.structs import memory
from ringup.drivers.nv.gsp.queue import MAX_MESSAGE_BYTES, MESSAGE_HEADER_BYTES, Arrived, Queues
from ringup.drivers.transport.nvidia.status import status_name
from ringup.drivers.transport.seam import Clock
from ringup.errors import DeviceHung, DeviceTimeout, RingupError

LOG = logging.getLogger(__name__)
VERSION = gsp_rpc.NV_VGPU_MSG_HEADER_VERSION_MAJOR_TOT << 24
SIGNATURE = gsp_rpc.NV_VGPU_MSG_SIGNATURE_VALID
PENDING = gsp_rpc.NV_VGPU_MSG_RESULT_RPC_PENDING
CONTINUATION = gsp_rpc.NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD
FIRST_EVENT = gsp_rpc.NV_VGPU_MSG_EVENT_FIRST_EVENT
MAX_PAYLOAD_BYTES = MAX_MESSAGE_BYTES - MESSAGE_HEADER_BYTES
# a limit of ours, for what an answer may claim
MAX_CALL_BYTES = 4 << 20
# TIMEOUT: _kgspRpcRecvPoll waits 1.5 times the default of 4 s
CALL_US = 6_000_000
# a wait looks this often at memory, and after this many looks whether GSP still lives; both grow with the wait
MIN_POLL_US, MAX_POLL_US = 5, 500
LOOKS_PER_CHECK = 32
EVENTS_KEPT = 256
MAX_PER_LOOK = 256
NAMES: dict[int, str] = {}


def name_of(function: int) -> str:
    """Return the name of a function or event, as the headers spell it without their prefix."""
    if not NAMES:
        for prefix in ("NV_VGPU_MSG_FUNCTION_", "NV_VGPU_MSG_EVENT_"):
            for name, value in vars(gsp_rpc).items():
                if name.startswith(prefix) and isinstance(value, int):
                    NAMES.setdefault(value, name.removeprefix(prefix))
    return NAMES.get(function, f"function {function:#x}")


@dataclass(frozen=True, slots=True)
class Message:
    """A message without its header. `result` is GSP-RM's for an answer."""

    function: int
    result: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Received:
    """An event as it came: when, which, and its bytes."""

    at_us: int
    name: str
    payload: bytes


class Books(NamedTuple):
    """What was taken of GSP-RM's messages. It is replaced as a whole, so an interrupt finds it before or after."""

    taken: int
    # answers of interrupted calls that still come
    owed: tuple[int, ...]
    # whether the call that is made now has its answer
    answered: bool


Handler = Callable[[bytes], None]


class Rpc:
    """Calls over a pair of queues. `check` raises if GSP is dead, lost or hung."""

    def __init__(self, queues: Queues, clock: Clock, check: Callable[[str], None]) -> None:
        self._queues, self._clock, self._check = queues, clock, check
        self._handlers: dict[int, list[Handler]] = {}
        self._sequence = 0
        self._waiting = self._broken = ""
        self._books = Books(queues.received, (), answered=False)
        self.calls = 0
        self.events: deque[Received] = deque(maxlen=EVENTS_KEPT)

    def on(self, event: int, handler: Handler) -> None:
        """Hand the payload of every such event to `handler`, which must make no call itself."""
        self._handlers.setdefault(event, []).append(handler)

    def post(self, function: int, payload: bytes) -> None:
        """Send a message that GSP-RM does not answer. Raises `DeviceTimeout` if there is no space for it."""
        self._usable(function)
        self._send(function, payload, counted=False)

    def call(
        self, function: int, payload: bytes, *, answer_bytes: int | None = None, timeout_us: int = CALL_US
    ) -> Message:
        """Send a message and return the answer. `answer_bytes`: of the answer's payload, where it has more than fits
        into a message; None: as many as were sent.

        Raises `DeviceTimeout`, `DeviceHung`, `DeviceLost`. The caller checks `result`.
        """
        self._usable(function)
        if self._waiting:
            raise ValueError(f"{name_of(function)} is called while {self._waiting} waits for its answer")
        self._books = self._books._replace(answered=False)
        before, name = self._queues.sent, name_of(function)
        try:
            self._waiting = name
            self.calls += 1
            self._send(function, payload, counted=True)
            return self._answer(function, len(payload) if answer_bytes is None else answer_bytes, timeout_us)
        except RingupError as error:
            self._broken = f"{name_of(function)} failed before: {error}"
            raise
        except BaseException:
            self._interrupted(function, payload, self._queues.sent - before & 0xFFFF_FFFF)
            raise
        finally:
            self._waiting = ""

    def _interrupted(self, function: int, payload: bytes, sent: int) -> None:
        """Note what an interrupted call leaves, of whose message parts were sent."""
        if sent and sent < 1 + max(0, len(payload) - 1) // MAX_PAYLOAD_BYTES:
            self._broken = f"{name_of(function)} was interrupted when a part of it was sent"
        elif sent and not self._books.answered:
            # the answer still comes, before that of any later call
            self._books = self._books._replace(owed=(*self._books.owed, function))

    def wait_event(self, event: int, timeout_us: int) -> bytes:
        """Wait for one event and return its payload. Raises `DeviceTimeout`, `DeviceHung` for one whose result is an
        error, and what `check` does.
        """
        found: list[Message] = []
        self._wait(lambda: self._take(event, found), f"waiting for {name_of(event)}", timeout_us)
        self._dispatch(found[0])
        if result := found[0].result:
            raise DeviceHung(f"GSP-RM sent {name_of(event)} with the error {status_name(result)}; reset the card")
        return found[0].payload

    def drain(self) -> int:
        """Handle the events that have come, without waiting; return how many, at most `MAX_PER_LOOK`. A late answer
        counts as one.
        """
        count = 0
        for arrived in self._arrived():
            self._pass(arrived)
            count += 1
        return count

    def owes(self, function: int) -> bool:
        """Whether GSP-RM has yet to answer such a call, whose wait was interrupted."""
        return function in self._books.owed

    def forget(self) -> None:
        """Refuse further calls: GSP-RM is gone."""
        self._broken = "GSP-RM was stopped"

    def _usable(self, function: int) -> None:
        if self._broken:
            raise DeviceHung(f"calling {name_of(function)}: {self._broken}; reset the card")

    def _send(self, function: int, payload: bytes, *, counted: bool) -> None:
        """Send a message and its continuation records. `counted`: each has a running number; GSP-RM of release 570
        checks the order of those. Others have 0. Source: Linux nouveau, NVKM_GSP_RPC_REPLY_NOSEQ.
        """
        doing = f"calling {name_of(function)}"
        first, rest = payload[:MAX_PAYLOAD_BYTES], payload[MAX_PAYLOAD_BYTES:]
        parts = [(function, first)]
        parts += [(CONTINUATION, rest[at : at + MAX_PAYLOAD_BYTES]) for at in range(0, len(rest), MAX_PAYLOAD_BYTES)]
        for kind, part in parts:
            message = self._message(kind, part, self._sequence if counted else 0)
            if counted:
                self._sequence = self._sequence + 1 & 0xFFFF_FFFF
            self._queues.send(message, doing)

    def _message(self, function: int, payload: bytes, sequence: int) -> bytes:
        head = rpc_message_header_v03_00(
            header_version=VERSION,
            signature=SIGNATURE,
            length=MESSAGE_HEADER_BYTES + len(payload),
            function=function,
            rpc_result=PENDING,
            rpc_result_private=PENDING,
            sequence=sequence,
        )
        return bytes(memory(head)) + payload

    def _answer(self, function: int, wanted_bytes: int, timeout_us: int) -> Message:
        doing = f"waiting for GSP-RM's answer to {name_of(function)}"
        found: list[Message] = []

        self._wait(lambda: self._take(function, found), doing, timeout_us)
        first = found[0]
        payload = bytearray(first.payload)
        # an answer that filled its message goes on in the next ones
        while len(payload) < wanted_bytes and len(first.payload) == MAX_PAYLOAD_BYTES:
            found.clear()
            self._wait(lambda: self._take(CONTINUATION, found), doing, timeout_us)
            if not found[0].payload:
                raise DeviceHung(f"{doing}: a continuation record without bytes; reset the card")
            payload += found[0].payload
        return Message(function, first.result, bytes(payload))

    def _take(self, function: int, found: list[Message]) -> bool:
        """Handle what has come up to a message of one function, and keep that; return whether it came."""
        for arrived in self._arrived():
            message = decoded(arrived.message)
            if message.function == function and function not in self._books.owed:
                self._keep(arrived, self._books.owed, answered=True)
                found.append(message)
                return True
            self._pass(arrived)
        return False

    def _pass(self, arrived: Arrived) -> None:
        """Take an event and hand it to its handlers, or take the late answer of an interrupted call."""
        message, owed = decoded(arrived.message), self._books.owed
        if message.function in owed:
            at = owed.index(message.function)
            self._keep(arrived, owed[:at] + owed[at + 1 :], answered=self._books.answered)
            return
        self._keep(arrived, owed, answered=self._books.answered)
        self._dispatch(message)

    def _keep(self, arrived: Arrived, owed: tuple[int, ...], *, answered: bool) -> None:
        # ORDER: the books first: an interrupt before the queue's part is seen in `_arrived`
        self._books = Books(self._books.taken + 1 & 0xFFFF_FFFF, owed, answered)
        self._queues.advance(arrived)

    def _arrived(self) -> Iterator[Arrived]:
        """Yield what has come; not for ever, so that a wait's bound holds for a GSP-RM that sends without end."""
        for _ in range(MAX_PER_LOOK):
            arrived = self._queues.peek()
            if arrived is not None and self._queues.received != self._books.taken:
                self._queues.advance(arrived)
                arrived = self._queues.peek()
            if arrived is None:
                return
            yield arrived

    def _wait(self, look: Callable[[], bool], doing: str, timeout_us: int) -> None:
        end_us = self._clock.now_us + timeout_us
        looks, nap = 0, MIN_POLL_US
        while not look():
            late = self._clock.now_us >= end_us
            if (late or looks % LOOKS_PER_CHECK == LOOKS_PER_CHECK - 1) and self._checked(look, doing):
                return
            if late:
                raise DeviceTimeout(f"{doing}: nothing came for {timeout_us / 1000:g} ms; reset the card")
            self._clock.sleep_us(nap)
            looks, nap = looks + 1, min(nap * 2, MAX_POLL_US)

    def _checked(self, look: Callable[[], bool], doing: str) -> bool:
        """Check that GSP lives, then look again; return whether that is done. A GSP-RM that has asked the host to run a
        program stops its processor by itself.
        """
        before = self._books.taken
        try:
            self._check(doing)
        except DeviceHung:
            if look():
                return True
            if self._books.taken == before:
                raise
            return False
        return look()

    def _dispatch(self, message: Message) -> None:
        name = name_of(message.function)
        self.events.append(Received(self._clock.now_us, name, message.payload))
        handlers = self._handlers.get(message.function, ())
        if not handlers:
            # OGKM does the same: an answer that came too late is one of these
            LOG.info("GSP-RM sent %s (%d bytes), which nothing handles", name, len(message.payload))
        for handler in tuple(handlers):
            handler(message.payload)


def decoded(raw: bytes) -> Message:
    """Return a message without its header. Raises `DeviceHung` for one that has no valid one."""
    _, signature, length, function, result = struct.unpack_from("<5I", raw)
    if signature != SIGNATURE or length != len(raw):
        raise DeviceHung(
            f"GSP-RM sent a message with signature {signature:#x} and {length} bytes, not {SIGNATURE:#x} and "
            f"{len(raw)}; reset the card"
        )
    return Message(function, result, raw[MESSAGE_HEADER_BYTES:])
