"""A vfio-user server for virtual cards: a virtual machine monitor such as QEMU attaches each card as a PCI device of
its guest.

One loop, no threads in models; a card may translate its shader programs in another thread. Cards live in virtual time,
guests in real time, and the loop keeps both equal: the guest sees the durations of the model. A model that computes too
slowly falls behind by at most `CATCH_UP_S`; beyond that the lost time is not made up. A register access also takes its
own virtual time, and a reset 100 ms; cards that get ahead by more than `CATCH_UP_S` this way do not wait for real time
either. `slow` makes the guest wait instead: its time then is real time without its stops.

A card serves one peer at a time. When a peer leaves, the card keeps its state but loses the peer's memory and
interrupts; the next peer finds it that way. Peers are untrusted: sizes, counts and times are bounded; an invalid
message gets an error or closes the connection, and affects no other connection.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ringup.errors import RingupError, TransportError
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.witness import log_mistakes
from ringup.silicon.serve import unix_socket
from ringup.silicon.serve import vfio_user_wire as wire
from ringup.silicon.serve.closing import try_each
from ringup.silicon.serve.listener import Listener
from ringup.silicon.serve.slow_clock import COMPUTING_S, Lag, SlowClock
from ringup.silicon.serve.vfio_user_channel import Channel, Connection, close_all
from ringup.silicon.serve.vfio_user_function import Card, ServedFunction
from ringup.silicon.serve.vfio_user_wire import Answer, Command, Message, Refused

if TYPE_CHECKING:
    from ringup.silicon.shader.host.beside import Beside

LOG = logging.getLogger(__name__)
Result = TypeVar("Result")
HOUSEKEEPING_S = 0.25
# how long cards compute, or one peer is served, before the others get a turn
SLICE_S = 0.001
CATCH_UP_S = 0.5
# between polls of a translation in another thread; peers' requests are served at once
YIELD_S = 0.0005
# TIMEOUT: for a peer to propose a version
HANDSHAKE_S = 10.0
# the server stops reading from a peer that leaves so much unread
FULL_BYTES = 16 << 20


class _Slot:
    """A served card: its socket path, and its peer."""

    listener: Listener

    def __init__(self, path: str, function: ServedFunction) -> None:
        self.path, self.function = path, function
        self.peer: Connection | None = None


def _refused(path: str, log: EventLog, error: RingupError) -> None:
    """Log a write that the card refuses on arrival; its peer was told earlier that it was posted."""
    log.note("bus", "violation", "{}", str(error))
    LOG.warning("%s: %s", path, error)


class VfioUserServer:
    """Serves cards that share `clock`, each at its own socket. `beside` translates their shader programs in another
    thread, if given.
    """

    def __init__(self, clock: VirtualClock, beside: Beside | None = None) -> None:
        self._clock, self._beside = clock, beside
        self._selector = selectors.DefaultSelector()
        self._slots: list[_Slot] = []
        self._calls: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._began_s, self._began_ns = time.monotonic(), clock.now_ns
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, lambda events: self._woken())
        self._running = True
        self._clocks: list[SlowClock] = []
        # a server that does not run yet is not late
        self._waits = True

    def __enter__(self) -> VfioUserServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve(self, path: str, card: Card) -> None:
        """Offer a card at a socket in the file system; the server owns the card from now on.

        Raises `CardBusy` if another server listens there, `PermissionNeeded`, or `TransportError` for an unusable path.
        """
        sock = unix_socket.listen(path)
        card.path.posted.on_refused = partial(_refused, path, card.log)
        slot = _Slot(path, ServedFunction(card))
        slot.listener = Listener(self._selector, sock, lambda peer, address: self._take(slot, peer), path)
        self._slots.append(slot)
        log_mistakes(card.log, f"{path}: {card.name}", LOG)

    def run(self) -> None:
        """Serve until `stop`, or until an exception such as `KeyboardInterrupt`."""
        while self._running:
            self.step(HOUSEKEEPING_S)

    def stop(self) -> None:
        """Make `run` return soon; may be called from another thread or a signal handler."""
        self._running = False
        self._wake()

    def call(self, action: Callable[[], Result]) -> Future[Result]:
        """Run `action` in the loop between two accesses; may be called from another thread. The future gets
        the result.
        """
        future: Future[Result] = Future()
        self._calls.append((action, future))  # type: ignore[arg-type]  # action and future have the same type, which the queue's type cannot express
        self._wake()
        return future

    def slow(self, monitor: str) -> None:
        """Slow the clock of the guest whose emulator has a QMP monitor at this path, while the cards are behind."""
        self._clocks.append(SlowClock(monitor, self._lag))

    def let_compute(self, spell_s: float = COMPUTING_S) -> None:
        """Choose how long `slow` stops a guest at a time while cards compute: longer for programs that surely end."""
        for one in self._clocks:
            one.computing_s = spell_s

    @property
    def stopped_s(self) -> float:
        """How long guests have been stopped by `slow`."""
        return sum(one.stopped_s for one in self._clocks)

    def step(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for peers and for due timers of the cards; serve both."""
        wait_s = self._wait(timeout_s)
        self._waits = True
        ready = self._selector.select(wait_s)
        self._waits = False
        # ORDER: before the accesses, so that they find the cards at the current time
        self._pass_time()
        for key, events in ready:
            key.data(events)
        for slot in self._slots:
            slot.listener.retry()
            if slot.peer is not None:
                self._maintain(slot, slot.peer)

    def close(self) -> None:
        """Close peers, cards and sockets, all of them even if one fails. Harmless when repeated."""
        # an emulator that awaits a card takes no command, so these end after the cards do
        steps: list[Callable[[], object]] = [one.end for one in self._clocks]
        for slot in self._slots:
            steps += [partial(self._drop, slot, "the server ends"), slot.listener.close, slot.function.card.close]
        self._slots.clear()
        try_each(*steps, *(one.close for one in self._clocks), self._end)

    def _end(self) -> None:
        if self._wake_in.fileno() >= 0:
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()
        while self._calls:
            self._calls.popleft()[1].cancel()

    # Time of the cards

    def _target_ns(self) -> int:
        """Return the time of the cards' clock if it had passed with real time."""
        return self._began_ns + int((time.monotonic() - self.stopped_s - self._began_s) * 1e9)

    def _lag(self) -> Lag:
        """Return how late the cards are; asked by other threads."""
        behind_s = 0.0 if self._waits else (self._target_ns() - self._clock.now_ns) / 1e9
        return Lag(self._beside is not None and self._beside.is_awaited, behind_s)

    def _wait(self, timeout_s: float) -> float:
        # a shorter wait releases the GIL only briefly, and takes it back before the other thread wakes up
        min_s = YIELD_S if self._beside is not None and self._beside.busy else 0.0
        if any(
            slot.peer is not None and slot.peer.pending and slot.peer.channel.outbox_bytes < FULL_BYTES
            for slot in self._slots
        ):
            return min_s
        due_ns = self._clock.due_ns
        if due_ns is None:
            return timeout_s
        return min(timeout_s, max(min_s, (due_ns - self._target_ns()) / 1e9))

    def _pass_time(self) -> None:
        """Let the cards catch up with real time, as far as that can be computed in `SLICE_S`."""
        behind_ns = self._target_ns() - self._clock.now_ns
        if behind_ns <= 0:
            self._began_ns += max(0, -behind_ns - int(CATCH_UP_S * 1e9))
            return
        end_s = time.monotonic() + SLICE_S
        try:
            self._clock.run_until(lambda: time.monotonic() > end_s, behind_ns / 1000)
        except RingupError as error:
            # an error of a model stops what the model was doing, as hardware hangs; everything else continues
            LOG.warning("%s", error, exc_info=LOG.isEnabledFor(logging.DEBUG))
        except Exception:  # a bug in a model too
            LOG.exception("a model failed")
        over_ns = self._target_ns() - self._clock.now_ns - int(CATCH_UP_S * 1e9)
        if over_ns > 0:
            self._began_ns -= over_ns

    # Connections

    def _take(self, slot: _Slot, sock: socket.socket) -> None:
        if slot.peer is not None and slot.peer.awaited & selectors.EVENT_READ:
            # the old peer may have hung up just now, before this one
            self._ready(slot, slot.peer, selectors.EVENT_READ)
        if slot.peer is not None:
            self._maintain(slot, slot.peer)
        if slot.peer is not None:
            LOG.warning("%s: a second peer is refused; the card already has one", slot.path)
            sock.close()
            return
        slot.peer = Connection(sock, slot.function)
        LOG.info("%s: %s has a peer", slot.path, slot.function.name)
        self._await(slot, slot.peer, selectors.EVENT_READ)

    def _ready(self, slot: _Slot, peer: Connection, events: int) -> None:
        # dropped earlier in this round
        if slot.peer is not peer:
            return
        with self._dropping(slot):
            if events & selectors.EVENT_WRITE:
                peer.channel.flush()
            if events & selectors.EVENT_READ and not peer.channel.receive():
                peer.hung_up = True
            self._take_commands(slot, peer)

    @contextlib.contextmanager
    def _dropping(self, slot: _Slot) -> Iterator[None]:
        """Drop the peer if its connection fails or its messages are invalid."""
        try:
            yield
        except OSError as error:
            self._drop(slot, str(error))
        except TransportError as error:
            self._drop(slot, str(error), logging.WARNING)

    def _take_commands(self, slot: _Slot, peer: Connection) -> None:
        """Serve received commands for about `SLICE_S`, while the peer accepts the answers."""
        end_s = time.monotonic() + SLICE_S
        peer.more = True
        while not peer.closing and peer.channel.outbox_bytes < FULL_BYTES:
            message = peer.next()
            if message is None:
                peer.more = False
                return
            try:
                self._serve(slot, peer, message)
            finally:
                close_all(message.descriptors)
            if time.monotonic() > end_s:
                return

    def _serve(self, slot: _Slot, peer: Connection, message: Message) -> None:
        if message.is_reply:
            LOG.info("%s: an answer without a question: %s", slot.path, message.name)
            return
        error, answer = self._do(slot, peer, message)
        if not message.flags & wire.NO_REPLY:
            flags = wire.REPLY | (wire.ERROR if error else 0)
            payload, descriptors = answer.payload, answer.descriptors
            owned = message.command == Command.VERSION and peer.session.takes_twin and not error
            if owned:
                payload, descriptors = self._open_second(peer, payload)
            head = wire.header(message.number, message.command, len(payload), flags, error)
            peer.channel.send(head + payload, descriptors, owned=owned)
        if not peer.session.agreed:
            peer.closing = "no version was agreed on"

    def _do(self, slot: _Slot, peer: Connection, message: Message) -> tuple[int, Answer]:
        """Make the session execute a message; return an errno (0 on success) and the answer."""
        log = slot.function.card.log
        try:
            return 0, peer.session.serve(message)
        except Refused as refusal:
            LOG.log(logging.INFO if peer.session.agreed else logging.WARNING, "%s: %s", slot.path, refusal)
            return refusal.errno, Answer()
        except RingupError as refusal:
            # the guest's mistake, or something that the model lacks: what metal would do is unknown
            LOG.debug("%s: %s", slot.path, refusal, exc_info=True)
            log.note("bus", "violation", "{}", str(refusal))
        # a bug in a model costs this access, and affects no other card
        except Exception as error:
            log.note("bus", "failed", "{}: {}", message.name, repr(error))
            LOG.exception("%s: %s", slot.path, message.name)
        return errno.EIO, Answer()

    @staticmethod
    def _open_second(peer: Connection, payload: bytes) -> tuple[bytes, tuple[int, ...]]:
        """Open a second channel for commands from the server."""
        ours, theirs = socket.socketpair()
        peer.back = Channel(ours)
        return wire.with_twin_socket(payload), (theirs.detach(),)

    def _maintain(self, slot: _Slot, peer: Connection) -> None:
        """Serve waiting commands, send answers, check whether the peer must be dropped, and update the
        awaited events.
        """
        with self._dropping(slot):
            peer.channel.flush()
            if peer.pending:
                self._take_commands(slot, peer)
        if slot.peer is not peer:
            return
        sending = bool(peer.channel.outbox)
        if peer.closing:
            self._drop(slot, peer.closing, logging.WARNING)
        elif peer.hung_up and not peer.pending and not sending:
            self._drop(slot, "it hung up")
        elif not peer.session.agreed and time.monotonic() - peer.began_s > HANDSHAKE_S:
            self._drop(slot, f"it proposed no version within {HANDSHAKE_S:.0f} s")
        else:
            readable = not (peer.hung_up or peer.pending or peer.channel.outbox_bytes >= FULL_BYTES)
            wanted = selectors.EVENT_READ if readable else 0
            self._await(slot, peer, wanted | (selectors.EVENT_WRITE if sending else 0))

    def _await(self, slot: _Slot, peer: Connection, wanted: int) -> None:
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

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is already being woken
            self._wake_out.send(b"\0")

    def _woken(self) -> None:
        self._wake_in.recv(4096)
        while self._calls:
            action, future = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = action()
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                future.set_result(result)
