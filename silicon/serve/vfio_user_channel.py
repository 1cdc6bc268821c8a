"""A peer's connection: messages and descriptors both ways, and questions to it, which are bounded: it may answer late,
wrongly or never.
"""

from __future__ import annotations

import array
import errno
import logging
import os
import selectors
import socket
import time
from collections import deque

from ringup.errors import TransportError
from ringup.silicon.serve import vfio_user_wire as wire
from ringup.silicon.serve.vfio_user_function import ServedFunction
from ringup.silicon.serve.vfio_user_session import Session
from ringup.silicon.serve.vfio_user_wire import HEADER, Command, Message

LOG = logging.getLogger(__name__)
# TIMEOUT: how long all other cards wait for a peer that is slow to answer about its memory, in one question or in many
ANSWER_S = 1.0
PROMPT_S = 0.01  # an answer within this is not slow
REGAINED = 0.05  # how much of that time a peer gets back, of the time that passes
RECEIVE_BYTES = 256 << 10
MAX_WAITING = 4096  # commands that come while an answer is awaited
MAX_WAITING_BYTES = 16 << 20
MAX_HELD_DESCRIPTORS = 256  # of commands that are not served yet
ANCILLARY_BYTES = socket.CMSG_SPACE(wire.MAX_DESCRIPTORS * array.array("i").itemsize)


class Channel:
    """A stream of messages and descriptors, both ways. `OSError` where the other end is gone, `TransportError` where it
    talks nonsense.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.outbox: deque[tuple[bytes, tuple[int, ...], bool]] = deque()
        self.outbox_bytes = 0
        self._inbox = bytearray()
        self._taken = 0  # bytes of the stream before the inbox
        self._descriptors: deque[tuple[int, list[int]]] = deque()  # by where in the stream the bytes they came with end

    def receive(self) -> bool:
        """Take what has come; tell whether the peer is still there."""
        try:
            data, ancillary, flags, _ = self.sock.recvmsg(RECEIVE_BYTES, ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return True
        came = array.array("i")
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                came.frombytes(payload[: len(payload) - len(payload) % came.itemsize])
        self._inbox += data
        if came:
            self._descriptors.append((self._taken + len(self._inbox), came.tolist()))
        if flags & socket.MSG_CTRUNC:
            raise TransportError(
                f"more than {wire.MAX_DESCRIPTORS} descriptors at once, or more than there is room for"
            )
        if sum(len(held) for _, held in self._descriptors) > MAX_HELD_DESCRIPTORS:
            raise TransportError("descriptors without the messages that they belong to")
        return bool(data)

    def take(self) -> Message | None:
        """Return the next message; None while it is not whole."""
        if len(self._inbox) < HEADER.size:
            return None
        number, command, size_bytes, flags, error = wire.parse_header(self._inbox)
        if len(self._inbox) < size_bytes:
            return None
        payload = bytes(memoryview(self._inbox)[HEADER.size : size_bytes])
        del self._inbox[:size_bytes]
        self._taken += size_bytes
        descriptors: list[int] = []
        while self._descriptors and self._descriptors[0][0] <= self._taken:
            descriptors += self._descriptors.popleft()[1]
        return Message(number, command, flags, payload, descriptors, error)

    def send(self, data: bytes, descriptors: tuple[int, ...] = (), *, given: bool = False) -> None:
        """Send now what the peer takes, the rest later. Descriptors that are `given` are closed once they have gone."""
        self.outbox.append((data, descriptors, given))
        self.outbox_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the peer takes it."""
        while self.outbox:
            data, descriptors, given = self.outbox[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                sent = self.sock.sendmsg([data], rights)
            except BlockingIOError:
                return
            if given:
                close_all(list(descriptors))
            self.outbox_bytes -= sent
            if sent == len(data):
                self.outbox.popleft()
            else:
                self.outbox[0] = data[sent:], (), False

    def close(self) -> None:
        """Let go of the socket and of descriptors that nobody took."""
        self.sock.close()
        for _, came in self._descriptors:
            close_all(came)
        self._descriptors.clear()
        for _, descriptors, given in self.outbox:
            if given:
                close_all(list(descriptors))
        self.outbox.clear()


class Connection:
    """A peer of a card: its channel, what it set up, and commands that came while an answer of its was awaited."""

    def __init__(self, sock: socket.socket, function: ServedFunction) -> None:
        self.channel = Channel(sock)
        self.back: Channel | None = None  # for commands of ours, where the peer wanted them apart
        self.session = Session(function, self)
        self.closing = ""  # why it is to go
        self.hung_up = False
        self.more = False  # commands may be left that were received and not served
        self.began_s = time.monotonic()
        self.awaited = 0
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._number = 0
        self._silent = False
        self._patience_s, self._patient_s = ANSWER_S, self.began_s

    @property
    def pending(self) -> bool:
        """Whether there may be commands to serve, with nothing more to receive."""
        return not self.closing and (self.more or bool(self._waiting))

    def ask(self, command: Command, payload: bytes) -> bytes:
        """Send a command and wait for its answer; commands that come meanwhile wait. Raises `OSError`, whatever the
        peer does.

        A peer that once took longer than it may is not asked again. QEMU (11) answers from its main loop: none while it
        waits for us itself.
        """
        if self._silent or self.closing:
            raise OSError(errno.ETIMEDOUT, "this peer answers no questions about its memory")
        began_s = time.monotonic()
        self._patience_s = min(ANSWER_S, self._patience_s + (began_s - self._patient_s) * REGAINED)
        self._number = self._number + 1 & 0xFFFF
        try:
            answer = self._exchange(command, payload, began_s + self._patience_s)
        except TransportError as error:
            self.closing = str(error)
            raise OSError(errno.EPROTO, str(error)) from error
        finally:
            self._patient_s = time.monotonic()
            self._patience_s -= max(0.0, self._patient_s - began_s - PROMPT_S)
        if answer is None:
            self._silent = True
            LOG.warning(
                "the peer answers no %s; memory that it shares without a descriptor is a bus error", command.name
            )
            raise OSError(errno.ETIMEDOUT, f"no answer to {command.name} in time")
        if answer.flags & wire.ERROR:
            raise OSError(answer.errno or errno.EIO, f"the peer refused {command.name}")
        return answer.payload

    def _exchange(self, command: Command, payload: bytes, end_s: float) -> Message | None:
        """Return the answer; None where none comes in time."""
        channel = self.back or self.channel
        channel.send(wire.header(self._number, command, len(payload)) + payload)
        with selectors.DefaultSelector() as selector:
            selector.register(channel.sock, selectors.EVENT_READ)
            while (left_s := end_s - time.monotonic()) > 0:
                writing = selectors.EVENT_WRITE if channel.outbox else 0
                selector.modify(channel.sock, selectors.EVENT_READ | writing)
                selector.select(left_s)
                channel.flush()
                alive = channel.receive()
                if (answer := self._sort(channel, command)) is not None:
                    return answer
                if not alive:
                    raise OSError(errno.ECONNRESET, "the peer hung up")
        return None

    def _sort(self, channel: Channel, command: Command) -> Message | None:
        """Put commands aside until the answer is there, and return that; what came after it stays where it is."""
        while (message := channel.take()) is not None:
            if message.is_reply:
                close_all(message.descriptors)
                if (message.number, message.command) == (self._number, command):
                    return message
                continue
            self._waiting.append(message)
            self._waiting_bytes += HEADER.size + len(message.payload)
            if channel is self.back:
                raise TransportError("a command on the socket for answers")
            if (
                len(self._waiting) > MAX_WAITING
                or self._waiting_bytes > MAX_WAITING_BYTES
                or sum(len(one.descriptors) for one in self._waiting) > MAX_HELD_DESCRIPTORS
            ):
                raise TransportError("too many commands while an answer is awaited")
        return None

    def next(self) -> Message | None:
        """Return the next command."""
        if not self._waiting:
            return self.channel.take()
        message = self._waiting.popleft()
        self._waiting_bytes -= HEADER.size + len(message.payload)
        return message

    def close(self) -> None:
        """Forget the peer."""
        self.session.close()
        for message in self._waiting:
            close_all(message.descriptors)
        self._waiting.clear()
        self.channel.close()
        if self.back:
            self.back.close()


def close_all(descriptors: list[int]) -> None:
    """Close descriptors; the list is empty afterwards."""
    while descriptors:
        os.close(descriptors.pop())
