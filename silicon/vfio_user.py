"""A vfio-user server for virtual cards: a virtual machine monitor such as QEMU attaches each as a PCI device of its guest.

One loop, no threads in models. Cards live in virtual time, guests in the wall clock's; the loop lets both pass alike: what a card does takes as
long for the guest as its model says. A model that needs longer to compute than that falls behind by `CATCH_UP_S` at most; beyond, its time
stands still rather than be hurried after. A register access costs its own virtual time on top.

A card serves one peer at a time. A peer that goes leaves the card as it is, without its memory and interrupts; the next one finds it so.
Peers are hostile: sizes, counts and time are bounded, nonsense is answered with an error or closes the connection, and touches no other.
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
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from ringup.errors import RingupError, TransportError
from ringup.silicon import unix_socket
from ringup.silicon import vfio_user_wire as wire
from ringup.silicon.clock import VirtualClock
from ringup.silicon.vfio_user_function import Card, ServedFunction
from ringup.silicon.vfio_user_session import Session
from ringup.silicon.vfio_user_wire import HEADER, Answer, Command, Message, Refused

LOG = logging.getLogger(__name__)
Result = TypeVar("Result")
HOUSEKEEPING_S = 0.25
SLICE_S = 0.004  # how long cards compute before peers are looked at again
CATCH_UP_S = 0.5
ANSWER_S = 1.0  # TIMEOUT: how long a peer may take to answer a question about its memory
HANDSHAKE_S = 10.0  # TIMEOUT: a peer proposes a version within this
FULL_BYTES = 16 << 20  # a peer that leaves this much unread is read no further
RECEIVE_BYTES = 256 << 10
ANCILLARY_BYTES = socket.CMSG_SPACE(wire.MOST_DESCRIPTORS * array.array("i").itemsize)


class _Channel:
    """A stream of messages and descriptors, both ways. `OSError` where the other end is gone, `TransportError` where it talks nonsense."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.outbox: deque[tuple[bytes, tuple[int, ...]]] = deque()
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
            raise TransportError(f"more than {wire.MOST_DESCRIPTORS} descriptors in one message")
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

    def send(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send now what the peer takes, the rest later."""
        self.outbox.append((data, descriptors))
        self.outbox_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the peer takes it."""
        while self.outbox:
            data, descriptors = self.outbox[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                sent = self.sock.sendmsg([data], rights)
            except BlockingIOError:
                return
            self.outbox_bytes -= sent
            if sent == len(data):
                self.outbox.popleft()
            else:
                self.outbox[0] = data[sent:], ()

    def close(self) -> None:
        """Let go of the socket and of descriptors that nobody took."""
        self.sock.close()
        for _, came in self._descriptors:
            _close_all(came)
        self._descriptors.clear()


class _Connection:
    """A peer of a card: its channel, what it set up, and commands that came while an answer of its was awaited."""

    def __init__(self, sock: socket.socket, function: ServedFunction) -> None:
        self.channel = _Channel(sock)
        self.back: _Channel | None = None  # for commands of ours, where the peer wanted them apart
        self.session = Session(function, self)
        self.waiting: deque[Message] = deque()
        self.closing = ""
        self.began_s = time.monotonic()
        self.awaited = 0
        self._number = 0
        self._silent = False

    def ask(self, command: Command, payload: bytes) -> bytes:
        """Send a command and wait for its answer; commands that come meanwhile wait. Raises `OSError`.

        A peer that once did not answer within `ANSWER_S` is not asked again: QEMU (11) takes these commands and answers none.
        """
        if self._silent:
            raise OSError(errno.ETIMEDOUT, "this peer answers no questions about its memory")
        self._number = self._number + 1 & 0xFFFF
        channel = self.back or self.channel
        channel.send(wire.header(self._number, command, len(payload)) + payload)
        end_s = time.monotonic() + ANSWER_S
        with selectors.DefaultSelector() as selector:
            selector.register(channel.sock, selectors.EVENT_READ)
            while (left_s := end_s - time.monotonic()) > 0:
                selector.select(left_s)
                alive = channel.receive()
                while (message := channel.take()) is not None:
                    if not message.is_reply:
                        self.waiting.append(message)
                    elif (message.number, message.command) == (self._number, command):
                        _close_all(message.descriptors)
                        if message.flags & wire.ERROR:
                            raise OSError(message.errno or errno.EIO, f"the peer refused {command.name}")
                        return message.payload
                    else:
                        _close_all(message.descriptors)
                if not alive:
                    raise OSError(errno.ECONNRESET, "the peer hung up")
                channel.flush()
        self._silent = True
        LOG.warning("the peer answers no %s; memory that it shares without a descriptor is a bus error", command.name)
        raise OSError(errno.ETIMEDOUT, f"no answer to {command.name} within {ANSWER_S:.0f} s")

    def next(self) -> Message | None:
        """Return the next command."""
        return self.waiting.popleft() if self.waiting else self.channel.take()

    def close(self) -> None:
        """Forget the peer."""
        self.session.close()
        for message in self.waiting:
            _close_all(message.descriptors)
        self.channel.close()
        if self.back:
            self.back.close()


class _Slot:
    """A served card: where it is attached, and by whom."""

    def __init__(self, path: str, sock: socket.socket, function: ServedFunction) -> None:
        self.path, self.sock, self.function = path, sock, function
        self.peer: _Connection | None = None


class VfioUserServer:
    """Serves cards that share `clock`, each at a socket of its own."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._slots: list[_Slot] = []
        self._calls: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._began_s, self._began_ns = time.monotonic(), clock.now_ns
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, lambda events: self._woken())
        self._running = True

    def __enter__(self) -> VfioUserServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve(self, path: str, card: Card) -> None:
        """Offer a card at a socket in the file system; it is the server's from now on.

        Raises `CardBusy` where another server listens, `PermissionNeeded`, `TransportError` for a path that cannot be.
        """
        sock = unix_socket.listen(path)
        sock.setblocking(False)
        slot = _Slot(path, sock, ServedFunction(card))
        self._slots.append(slot)
        self._selector.register(sock, selectors.EVENT_READ, lambda events: self._accept(slot))

    def run(self) -> None:
        """Serve until `stop`, or until an exception such as `KeyboardInterrupt`."""
        while self._running:
            self.step(HOUSEKEEPING_S)

    def stop(self) -> None:
        """End `run` soon; may be called from another thread or a signal handler."""
        self._running = False
        self._wake_out.send(b"\0")

    def call(self, action: Callable[[], Result]) -> Future[Result]:
        """Have the loop run `action` between two accesses; may be called from another thread. The result comes with the future."""
        future: Future[Result] = Future()
        self._calls.append((action, future))  # type: ignore[arg-type]  # both of one type, which a queue of many cannot say
        self._wake_out.send(b"\0")
        return future

    def step(self, timeout_s: float) -> None:
        """Wait for peers and for what falls due in the cards, `timeout_s` at most; serve both."""
        ready = self._selector.select(self._wait(timeout_s))
        self._pass_time()  # ORDER: an access finds the cards as they are by now
        for key, events in ready:
            key.data(events)
        for slot in self._slots:
            if slot.peer is not None:
                self._keep_house(slot, slot.peer)

    def close(self) -> None:
        """Let go of peers, cards and sockets; closing twice is harmless."""
        for slot in self._slots:
            if slot.peer is not None:
                self._drop(slot, "the server ends")
            self._selector.unregister(slot.sock)
            slot.sock.close()
            Path(slot.path).unlink(missing_ok=True)
            slot.function.card.close()
        self._slots.clear()
        if self._wake_in.fileno() >= 0:
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()
        while self._calls:
            self._calls.popleft()[1].cancel()

    # Time of the cards

    def _target_ns(self) -> int:
        """Return what the cards' clock would show if it had passed with ours."""
        return self._began_ns + int((time.monotonic() - self._began_s) * 1e9)

    def _wait(self, timeout_s: float) -> float:
        if any(slot.peer is not None and slot.peer.waiting for slot in self._slots):
            return 0
        due_ns = self._clock.due_ns
        if due_ns is None:
            return timeout_s
        return min(timeout_s, max(0.0, (due_ns - self._target_ns()) / 1e9))

    def _pass_time(self) -> None:
        """Let the cards' time come up to ours, as far as that can be computed in `SLICE_S`."""
        behind_ns = self._target_ns() - self._clock.now_ns
        if behind_ns <= 0:
            return
        end_s = time.monotonic() + SLICE_S
        try:
            self._clock.run_until(lambda: time.monotonic() > end_s, behind_ns / 1000)
        except (
            RingupError
        ) as error:  # what a model refuses stops what it was doing, as hardware hangs; the rest goes on
            LOG.warning("%s", error, exc_info=LOG.isEnabledFor(logging.DEBUG))
        over_ns = self._target_ns() - self._clock.now_ns - int(CATCH_UP_S * 1e9)
        if over_ns > 0:
            self._began_ns -= over_ns

    # Connections

    def _accept(self, slot: _Slot) -> None:
        try:
            sock, _ = slot.sock.accept()
        except OSError as error:  # it went again, or this process has no descriptors left
            LOG.info("accepting a connection: %s", error)
            return
        if slot.peer is not None:
            LOG.warning("%s: a second peer is turned away; the card has one", slot.path)
            sock.close()
            return
        slot.peer = _Connection(sock, slot.function)
        LOG.info("%s: %s has a peer", slot.path, slot.function.name)
        self._await(slot, slot.peer, selectors.EVENT_READ)

    def _ready(self, slot: _Slot, peer: _Connection, events: int) -> None:
        if slot.peer is not peer:  # dropped by what came before in this round
            return
        try:
            if events & selectors.EVENT_WRITE:
                peer.channel.flush()
            if events & selectors.EVENT_READ and not peer.channel.receive():
                self._take_commands(slot, peer)
                self._drop(slot, "it hung up")
                return
            self._take_commands(slot, peer)
        except OSError as error:
            self._drop(slot, str(error))
        except TransportError as error:
            self._drop(slot, str(error), logging.WARNING)

    def _take_commands(self, slot: _Slot, peer: _Connection) -> None:
        while not peer.closing and peer.channel.outbox_bytes < FULL_BYTES and (message := peer.next()) is not None:
            try:
                self._serve(slot, peer, message)
            finally:
                _close_all(message.descriptors)

    def _serve(self, slot: _Slot, peer: _Connection, message: Message) -> None:
        if message.is_reply:
            LOG.info("%s: an answer to nothing: %s", slot.path, message.name)
            return
        error = 0
        answer = Answer()
        try:
            answer = peer.session.serve(message)
        except Refused as refusal:
            error = refusal.errno
            LOG.log(logging.INFO if peer.session.agreed else logging.WARNING, "%s: %s", slot.path, refusal)
        except (
            RingupError
        ) as refusal:  # the guest's mistake, or something the model lacks: what metal would do is not known
            error = errno.EIO
            slot.function.card.log.note("bus", "violation", "{}", str(refusal))
            LOG.warning("%s: %s", slot.path, refusal, exc_info=LOG.isEnabledFor(logging.DEBUG))
        payload, descriptors = (b"", ()) if error else (answer.payload, answer.descriptors)
        if message.command == Command.VERSION and not error:
            payload, descriptors = self._apart(peer, payload)
        if not message.flags & wire.NO_REPLY:
            flags = wire.REPLY | (wire.ERROR if error else 0)
            head = wire.header(message.number, message.command, len(payload), flags, error)
            peer.channel.send(head + payload, descriptors)
            if message.command == Command.VERSION:
                _close_all(list(descriptors))
        if not peer.session.agreed:
            peer.closing = "no version was agreed on"

    @staticmethod
    def _apart(peer: _Connection, payload: bytes) -> tuple[bytes, tuple[int, ...]]:
        """Open a second channel for commands of ours, where the peer wants one."""
        wanted = peer.session.capabilities.get("twin_socket")
        if not isinstance(wanted, dict) or wanted.get("supported") is not True:
            return payload, ()
        ours, theirs = socket.socketpair()
        peer.back = _Channel(ours)
        return wire.with_twin_socket(payload), (theirs.detach(),)

    def _keep_house(self, slot: _Slot, peer: _Connection) -> None:
        """Serve what waited, send, look whether the peer took too long, and say what is awaited of it."""
        try:
            if peer.waiting:
                self._take_commands(slot, peer)
            peer.channel.flush()
        except OSError as error:
            self._drop(slot, str(error))
            return
        except TransportError as error:
            self._drop(slot, str(error), logging.WARNING)
            return
        if peer.closing and not peer.channel.outbox:
            self._drop(slot, peer.closing)
        elif not peer.session.agreed and time.monotonic() - peer.began_s > HANDSHAKE_S:
            self._drop(slot, f"it proposed no version within {HANDSHAKE_S:.0f} s")
        else:
            readable = not peer.closing and peer.channel.outbox_bytes < FULL_BYTES
            wanted = selectors.EVENT_READ if readable else 0
            self._await(slot, peer, wanted | (selectors.EVENT_WRITE if peer.channel.outbox else 0))

    def _await(self, slot: _Slot, peer: _Connection, wanted: int) -> None:
        if wanted == peer.awaited:
            return
        sock = peer.channel.sock
        if not peer.awaited:
            self._selector.register(sock, wanted, lambda events: self._ready(slot, peer, events))
        elif not wanted:
            self._selector.unregister(sock)
        else:
            self._selector.modify(sock, wanted, lambda events: self._ready(slot, peer, events))
        peer.awaited = wanted

    def _drop(self, slot: _Slot, why: str, level: int = logging.INFO) -> None:
        peer = slot.peer
        if peer is None:
            return
        LOG.log(level, "%s: the peer is gone: %s", slot.path, why)
        self._await(slot, peer, 0)
        slot.peer = None
        peer.close()

    def _woken(self) -> None:
        self._wake_in.recv(64)
        while self._calls:
            action, future = self._calls.popleft()
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001  # whatever it is belongs to who asked
                future.set_exception(error)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
