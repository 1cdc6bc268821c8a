"""A USB/IP server for virtual USB devices. A real kernel (vhci_hcd) attaches them, and its drivers and libusb see them
as if plugged in.

One loop, no threads. Devices live in virtual time, kernels in real time:

- While the loop waits for peers, the time of every device passes with the wall clock, whether or not it is imported: an
  unplugged device may return.
- After a request the device's time runs ahead by at most `BURST_MS`, as long as the device ends transfers without
  further input.
- A transfer that needs more input from the peer waits in real time.

So work that a device finishes within a burst costs no real waiting, and the device is as fast as its model computes. A
model that computes slower than real time falls behind; the server does not make peers wait for it. The protocol carries
neither USB resets (vhci resets its own port only) nor streams.

Peers are untrusted: sizes, counts and times are bounded; an invalid message closes its connection, is logged, and
affects no other connection.
"""

from __future__ import annotations

import logging
import math
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from usb.core import USBError

from ringup.errors import CardBusy, NoSuchCard, RingupError, TransportError
from ringup.silicon.common.witness import log_mistakes
from ringup.silicon.serve import unix_socket
from ringup.silicon.serve import usbip_wire as wire
from ringup.silicon.serve.closing import try_each
from ringup.silicon.serve.listener import Listener
from ringup.silicon.serve.usbip_session import Exported, Host, Session, exports
from ringup.silicon.serve.usbip_wire import Record, Refusal, Submit

LOG = logging.getLogger(__name__)
PORT = 3240
LOOPBACK = "127.0.0.1"
BURST_MS = 20.0
# first slice of a device's time, while its speed is unknown
SLICE_MS = 0.02
# how long a burst computes before peers are served again
BURST_S = 0.05
# limit of the time that passes after one wait
CATCH_UP_MS = 1000.0
HOUSEKEEPING_S = 0.25
# poll interval of pending transfers while nothing happens, first and last
LOOK_FIRST_S, LOOK_LAST_S = 0.001, 0.016
# TIMEOUT: for a peer's request, and for taking its last answer
PATIENCE_S = 10.0
MAX_CONNECTIONS = 32
# the limit of Linux's usbfs in total (usbfs_memory_mb)
MAX_TRANSFER_BYTES = 16 << 20
RECEIVE_BYTES = 1 << 20
# the server stops reading from a peer that leaves so much unread
FULL_BYTES = 32 << 20


class _Connection:
    """A peer: first it sends a request (list, or import of a device), then transfers. `session` is its
    imported device.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.sock, self.name = sock, name
        self.inbox, self.outbox = bytearray(), bytearray()
        self.session: Session | None = None
        self.asks_for_device = False
        self.command: Submit | None = None  # a command whose payload is still missing
        # why the connection closes once the rest is sent
        self.closing = ""
        # when the connection is closed in any case; never while it has a device
        self.ends_s = time.monotonic() + PATIENCE_S
        # when its device was last seen plugged in
        self.seen_s = 0.0
        self.awaited = 0
        self.ready: Callable[[int], None] = lambda events: None

    def finish(self, why: str) -> None:
        """Receive nothing more, send the rest, and close."""
        self.closing = self.closing or why
        self.ends_s = min(self.ends_s, time.monotonic() + PATIENCE_S)


class UsbipServer:
    """Serves the devices plugged into `hosts`. It listens on loopback only, unless given an address."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = tuple(hosts)
        self._selector = selectors.DefaultSelector()
        self._connections: list[_Connection] = []
        self._listeners: list[Listener] = []
        # by host index: milliseconds that the host may run ahead, because it has new work
        self._bursts: dict[int, float] = {}
        self._look_s = LOOK_FIRST_S
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._woken)
        self._running = True
        for host in self.hosts:
            for name, log in getattr(host, "logs", dict)().items():
                log_mistakes(log, name, LOG)

    def __enter__(self) -> UsbipServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[Record]:
        """The devices plugged in, imported or not."""
        return [exported.record for exported in exports(self.hosts)]

    def listen(self, port: int = PORT, address: str = LOOPBACK) -> int:
        """Accept connections at a TCP port; 0 chooses a free one. Returns the port. Raises `OSError`."""
        sock = socket.create_server((address, port))
        self._listeners.append(Listener(self._selector, sock, self._take_peer))
        return int(sock.getsockname()[1])

    def listen_unix(self, path: str) -> None:
        """Accept connections at a socket in the file system; a stale one is replaced.

        Raises `CardBusy` if another process listens there, `PermissionNeeded`, or `TransportError` for an unusable
        path.
        """
        self._listeners.append(Listener(self._selector, unix_socket.listen(path), self._take_peer, path))

    def adopt(self, sock: socket.socket, bus_id: str) -> Record:
        """Serve the transfers of one device on a stream socket, without a handshake; the socket's other end goes to
        vhci_hcd's `attach`.

        The server owns the socket from now on. Raises `NoSuchCard` for a device that is not plugged in, `CardBusy` for
        an imported one.
        """
        connection = self._connect(sock, "socket")
        try:
            connection.session = self._open(bus_id, connection)
        except BaseException:
            self._drop(connection, "the device could not be opened")
            raise
        connection.ends_s = math.inf
        return connection.session.record

    def run(self) -> None:
        """Serve until `stop`, or until an exception such as `KeyboardInterrupt`."""
        while self._running:
            self.step(HOUSEKEEPING_S)

    def stop(self) -> None:
        """Make `run` return soon; may be called from another thread or a signal handler."""
        self._running = False
        self._wake_out.send(b"\0")

    def step(self, timeout_s: float) -> None:
        """Wait for peers at most `timeout_s`, handle their requests, let time pass for the devices, send answers."""
        started_s = time.monotonic()
        ready = self._selector.select(self._wait(timeout_s))
        self._pass_time(time.monotonic() - started_s)
        for key, events in ready:
            key.data(events)
        for place, left_ms in tuple(self._bursts.items()):
            ended, left_ms = self._run(place, left_ms, BURST_S)
            if not ended and left_ms <= 0:
                del self._bursts[place]
            else:
                self._bursts[place] = BURST_MS if ended else left_ms
        for listener in self._listeners:
            listener.retry()
        for connection in tuple(self._connections):
            self._maintain(connection)

    def close(self) -> None:
        """Close every device and connection, all of them even if one fails. Harmless when repeated."""
        drops = [partial(self._drop, connection, "the server ends") for connection in self._connections]
        listeners = [listener.close for listener in self._listeners]
        self._listeners.clear()
        try_each(*drops, *listeners, self._end)

    def _end(self) -> None:
        if self._wake_in.fileno() >= 0:
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()

    # Time of the devices

    def _wait(self, timeout_s: float) -> float:
        if self._bursts:
            return 0
        if not any(connection.session and connection.session.pending for connection in self._connections):
            self._look_s = LOOK_FIRST_S
            return timeout_s
        look, self._look_s = self._look_s, min(self._look_s * 2, LOOK_LAST_S)
        return min(look, timeout_s)

    def _pass_time(self, waited_s: float) -> None:
        """Let as much time pass for the devices as has passed here, if it can be computed in as long."""
        for place in range(len(self.hosts)):
            if waited_s and self._run(place, min(waited_s * 1000, CATCH_UP_MS), waited_s)[0]:
                self._bursts[place] = BURST_MS

    def _run(self, place: int, time_ms: float, bound_s: float) -> tuple[int, float]:
        """Let the devices of a host work until transfers end, for at most `time_ms` of their time and `bound_s` of real
        time.

        Returns how many transfers ended, and the rest of `time_ms`.
        """
        host = self.hosts[place]
        holders = self._sessions(host)
        slice_ms, started_s = SLICE_MS, time.monotonic()
        try:
            while time_ms > 0:
                begun_s = time.monotonic()
                host.handle_events(min(slice_ms, time_ms))
                time_ms -= slice_ms
                ended = sum(connection.session.reap() for connection in holders if connection.session)
                now_s = time.monotonic()
                if ended or now_s - started_s > bound_s:
                    return ended, time_ms
                if (now_s - begun_s) * 4000 < slice_ms:
                    slice_ms *= 2
        # a model that refuses its guest's mistake stops its own importers
        except (RingupError, USBError) as error:
            LOG.warning("%s", error, exc_info=LOG.isEnabledFor(logging.DEBUG))
            for connection in holders:
                self._drop(connection, f"its device failed: {error}")
        return 0, 0

    def _sessions(self, host: Host) -> list[_Connection]:
        return [each for each in self._connections if each.session and each.session.host is host]

    # Connections

    def _take_peer(self, sock: socket.socket, address: Any) -> None:
        name = ":".join(map(str, address[:2])) if isinstance(address, tuple) else "unix"
        if len(self._connections) >= MAX_CONNECTIONS:
            LOG.warning("%s is refused: %d connections are open", name, len(self._connections))
            sock.close()
            return
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connect(sock, name)

    def _connect(self, sock: socket.socket, name: str) -> _Connection:
        sock.setblocking(False)
        connection = _Connection(sock, name)
        self._connections.append(connection)
        connection.ready = self._handler(connection)
        self._await(connection, selectors.EVENT_READ)
        return connection

    def _handler(self, connection: _Connection) -> Callable[[int], None]:
        def ready(events: int) -> None:
            # dropped earlier in this round
            if connection not in self._connections:
                return
            try:
                if events & selectors.EVENT_WRITE:
                    self._flush(connection)
                if events & selectors.EVENT_READ:
                    self._receive(connection)
            except OSError as error:
                self._drop(connection, str(error))
            except (TransportError, ValueError) as error:
                self._drop(connection, str(error), logging.WARNING)

        return ready

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._drop(connection, "it hung up")
            return
        connection.inbox += data
        while not connection.closing and connection in self._connections and self._take(connection):
            pass

    def _take(self, connection: _Connection) -> bool:
        """Handle one message of the inbox; return whether there was a complete one."""
        if connection.session:
            return self._take_transfer(connection, connection.session)
        if connection.asks_for_device:
            name = _cut(connection.inbox, wire.BUS_ID_BYTES)
            if name is not None:
                self._import(connection, wire.parse_bus_id(name))
            return name is not None
        request = _cut(connection.inbox, wire.OPERATION.size)
        if request is None:
            return False
        connection.asks_for_device = wire.parse_operation(request) == wire.REQ_IMPORT
        if not connection.asks_for_device:
            held = {each.session.record.bus_id for each in self._connections if each.session}
            connection.outbox += wire.device_list([one for one in self.records if one.bus_id not in held])
            connection.finish("it has received its list")
        return True

    def _take_transfer(self, connection: _Connection, session: Session) -> bool:
        command = connection.command
        if command is None:
            header = _cut(connection.inbox, wire.HEADER_BYTES)
            if header is None:
                return False
            parsed = wire.parse_command(header, MAX_TRANSFER_BYTES)
            if parsed.devid != session.record.devid:
                raise TransportError(f"a transfer for device {parsed.devid:#x}; this is {session.record.devid:#x}")
            if not isinstance(parsed, Submit):
                self._work(connection, lambda: session.unlink(parsed))
                return True
            command = connection.command = parsed
        payload = _cut(connection.inbox, command.payload_bytes)
        if payload is None:
            return False
        connection.command = None
        begun = command
        self._work(connection, lambda: session.submit(begun, payload))
        return True

    def _work(self, connection: _Connection, action: Callable[[], None]) -> None:
        """Make the device execute a command. An error of its model closes only this connection."""
        assert connection.session
        self._bursts[self.hosts.index(connection.session.host)] = BURST_MS
        self._look_s = LOOK_FIRST_S
        try:
            action()
        except RingupError as error:
            LOG.warning("%s", error, exc_info=LOG.isEnabledFor(logging.DEBUG))
            self._drop(connection, f"its device failed: {error}")

    def _import(self, connection: _Connection, bus_id: str) -> None:
        """Answer a request to import a device."""
        refusal = Refusal.NONE
        try:
            connection.session = self._open(bus_id, connection)
        except NoSuchCard:
            refusal = Refusal.NO_DEVICE
        except CardBusy:
            refusal = Refusal.BUSY
        except (USBError, TransportError) as error:
            LOG.warning("%s cannot be opened: %s", bus_id, error)
            refusal = Refusal.ERROR
        if connection.session:
            connection.outbox += wire.imported(connection.session.record)
            connection.ends_s = math.inf
            LOG.info("%s has %s", connection.name, bus_id)
        else:
            LOG.info("%s asked for %r: %s", connection.name, bus_id, refusal.name)
            connection.outbox += wire.refused(refusal)
            connection.finish("it was refused a device")

    def _open(self, bus_id: str, connection: _Connection) -> Session:
        exported = self._find(bus_id)
        holder = next(
            (each for each in self._connections if each.session and each.session.record.bus_id == bus_id), None
        )
        if holder:
            raise CardBusy(f"{bus_id} is imported by {holder.name}")
        return Session(exported, connection.outbox.extend)

    def _find(self, bus_id: str) -> Exported:
        found = {exported.record.bus_id: exported for exported in exports(self.hosts)}
        if bus_id not in found:
            raise NoSuchCard(f"no device {bus_id!r} is plugged in; there are: {', '.join(found) or 'none'}")
        return found[bus_id]

    def _flush(self, connection: _Connection) -> None:
        """Send what the peer accepts now."""
        while connection.outbox:
            try:
                sent = connection.sock.send(connection.outbox)
            except BlockingIOError:
                return
            del connection.outbox[:sent]

    def _maintain(self, connection: _Connection) -> None:
        """Send answers, check whether peer or device is gone, and update the awaited events."""
        try:
            self._flush(connection)
        except OSError as error:
            self._drop(connection, str(error))
            return
        session, now_s = connection.session, time.monotonic()
        if session and not session.pending and now_s - connection.seen_s > HOUSEKEEPING_S:
            connection.seen_s = now_s
            session.gone |= not self._is_there(session)
        if session and session.gone:
            connection.finish("the device is unplugged")
        if connection.closing and not connection.outbox:
            self._drop(connection, connection.closing)
        elif now_s > connection.ends_s:
            self._drop(connection, connection.closing or f"it sent no request within {PATIENCE_S:.0f} s")
        else:
            readable = not connection.closing and len(connection.outbox) <= FULL_BYTES
            wanted = selectors.EVENT_READ if readable else 0
            self._await(connection, wanted | (selectors.EVENT_WRITE if connection.outbox else 0))

    def _is_there(self, session: Session) -> bool:
        return any(one.host is session.host and one.record == session.record for one in exports(self.hosts))

    def _await(self, connection: _Connection, wanted: int) -> None:
        if wanted == connection.awaited:
            return
        if not connection.awaited:
            self._selector.register(connection.sock, wanted, connection.ready)
        elif not wanted:
            self._selector.unregister(connection.sock)
        else:
            self._selector.modify(connection.sock, wanted, connection.ready)
        connection.awaited = wanted

    def _drop(self, connection: _Connection, why: str, level: int = logging.INFO) -> None:
        """Close a connection; its device can be imported again."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        LOG.log(level, "%s is closed: %s", connection.name, why)
        self._await(connection, 0)
        connection.sock.close()
        if connection.session:
            # transfers of other connections may have ended meanwhile
            self._bursts[self.hosts.index(connection.session.host)] = BURST_MS
            try:
                connection.session.close()
            except (RingupError, USBError) as error:
                LOG.warning("releasing %s: %s", connection.session.record.bus_id, error)

    def _woken(self, events: int) -> None:
        self._wake_in.recv(64)


def _cut(inbox: bytearray, size_bytes: int) -> bytes | None:
    """Remove so many bytes from the front; return None if there are fewer."""
    if len(inbox) < size_bytes:
        return None
    data = bytes(memoryview(inbox)[:size_bytes])
    del inbox[:size_bytes]
    return data
