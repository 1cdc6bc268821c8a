"""A peer's connection: messages and descriptors in both directions, and bounded questions to the peer, which may answer
late, wrongly or never.
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
# TIMEOUT: how long all other cards wait for a peer that answers questions about its memory slowly, in one question or
# several
ANSWER_S = 1.0
# a faster answer does not count as slow
PROMPT_S = 0.01
# share of passing time by which a peer regains that time
REGAINED = 0.05
RECEIVE_BYTES = 256 << 10
# commands that arrive during a wait for an answer
MAX_WAITING = 4096
MAX_WAITING_BYTES = 16 << 20
# descriptors of commands that are not served yet
MAX_HELD_DESCRIPTORS = 256
ANCILLARY_BYTES = socket.CMSG_SPACE(wire.MAX_DESCRIPTORS * array.array("i").itemsize)


class Channel:
    """A stream of messages and descriptors in both directions. Raises `OSError` if the peer is gone, `TransportError`
    if its messages are invalid.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.outbox: deque[tuple[bytes, tuple[int, ...], bool]] = deque()
        self.outbox_bytes = 0
        self._inbox = bytearray()
        self._taken = 0  # bytes of the stream before the inbox
        # by the position in the stream where the bytes sent with them end
        self._descriptors: deque[tuple[int, list[int]]] = deque()

    def receive(self) -> bool:
        """Receive what has arrived; return whether the peer is still there."""
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
                f"more than {wire.MAX_DESCRIPTORS} descriptors at once, or more than this process can receive"
            )
        if sum(len(held) for _, held in self._descriptors) > MAX_HELD_DESCRIPTORS:
            raise TransportError("descriptors without the messages that they belong to")
        return bool(data)

    def take(self) -> Message | None:
        """Return the next message; None while it is incomplete."""
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

    def send(self, data: bytes, descriptors: tuple[int, ...] = (), *, owned: bool = False) -> None:
        """Send what the peer accepts now, and the rest later. `owned` descriptors are closed once sent."""
        self.outbox.append((data, descriptors, owned))
        self.outbox_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Send queued data, as far as the peer accepts it."""
        while self.outbox:
            data, descriptors, owned = self.outbox[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                sent = self.sock.sendmsg([data], rights)
            except BlockingIOError:
                return
            if owned:
                close_all(list(descriptors))
            self.outbox_bytes -= sent
            if sent == len(data):
                self.outbox.popleft()
            else:
                self.outbox[0] = data[sent:], (), False

    def close(self) -> None:
        """Close the socket, and descriptors that no message took."""
        self.sock.close()
        for _, came in self._descriptors:
            close_all(came)
        self._descriptors.clear()
        for _, descriptors, owned in self.outbox:
            if owned:
                close_all(list(descriptors))
        self.outbox.clear()


class Connection:
    """A peer of a card: its channel, its session, and commands that arrived during a wait for an answer."""

    def __init__(self, sock: socket.socket, function: ServedFunction) -> None:
        self.channel = Channel(sock)
        # for the server's commands, if the peer wants them on a separate channel
        self.back: Channel | None = None
        self.session = Session(function, self)
        self.closing = ""  # why the connection closes
        self.hung_up = False
        # whether received commands may still be unserved
        self.more = False
        self.began_s = time.monotonic()
        self.awaited = 0
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._number = 0
        self._silent = False
        self._patience_s, self._patience_at_s = ANSWER_S, self.began_s

    @property
    def pending(self) -> bool:
        """Whether there may be commands to serve that are already received."""
        return not self.closing and (self.more or bool(self._waiting))

    def ask(self, command: Command, payload: bytes) -> bytes:
        """Send a command and wait for its answer; commands that arrive meanwhile are queued. Raises only `OSError`,
        whatever the peer does.

        A peer that once exceeded its time is not asked again. QEMU (11) answers from its main loop: not while it waits
        for the server.
        """
        if self._silent or self.closing:
            raise OSError(errno.ETIMEDOUT, "this peer does not answer questions about its memory")
        began_s = time.monotonic()
        self._patience_s = min(ANSWER_S, self._patience_s + (began_s - self._patience_at_s) * REGAINED)
        self._number = self._number + 1 & 0xFFFF
        # commands may arrive together with the answer, and then nothing else wakes the server
        self.more = True
        try:
            answer = self._exchange(command, payload, began_s + self._patience_s)
        except TransportError as error:
            self.closing = str(error)
            raise OSError(errno.EPROTO, str(error)) from error
        finally:
            self._patience_at_s = time.monotonic()
            self._patience_s -= max(0.0, self._patience_at_s - began_s - PROMPT_S)
        if answer is None:
            self._silent = True
            LOG.warning(
                "the peer does not answer %s; accesses to memory that it shares without a descriptor are bus errors",
                command.name,
            )
            raise OSError(errno.ETIMEDOUT, f"no answer to {command.name} in time")
        if answer.flags & wire.ERROR:
            raise OSError(answer.errno or errno.EIO, f"the peer refused {command.name}")
        return answer.payload

    def _exchange(self, command: Command, payload: bytes, end_s: float) -> Message | None:
        """Return the answer; None if none arrives in time."""
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
        """Queue commands until the answer is there, and return it; later messages stay in the channel."""
        while (message := channel.take()) is not None:
            if message.is_reply:
                close_all(message.descriptors)
                if (message.number, message.command) == (self._number, command):
                    return message
                continue
            self._waiting.append(message)
            self._waiting_bytes += HEADER.size + len(message.payload)
            if channel is self.back:
                raise TransportError("a command on the channel for answers")
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
        """Close the session, the channels and received descriptors."""
        self.session.close()
        for message in self._waiting:
            close_all(message.descriptors)
        self._waiting.clear()
        self.channel.close()
        if self.back:
            self.back.close()


def close_all(descriptors: list[int]) -> None:
    """Close descriptors and empty the list."""
    while descriptors:
        os.close(descriptors.pop())
