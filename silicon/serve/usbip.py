"""A USB/IP server for virtual USB devices: a real kernel (vhci_hcd) attaches them and its drivers and libusb find them
as if plugged in.

One loop, no threads. Devices live in virtual time, kernels do not, and neither waits for the other in vain:

- while the loop waits for a peer, time passes for every device with the wall clock, imported or not: what was unplugged
  may come back;
- after a request its time runs ahead, `BURST_MS` at most, as far as the device ends transfers by itself;
- a transfer that depends on what the peer sends next just waits, with the wall clock.

So what a device does by itself within a burst costs no waiting, and it is never slower than its model computes: a model
that needs longer for its time than the wall clock falls behind rather than keep peers waiting. A USB reset is not
carried by this protocol (vhci resets its own port only), and neither are streams.

Peers are hostile: sizes, counts and time are bounded, nonsense closes a connection with a line in the log and touches
no other.
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
from ringup.silicon.common.witness import tell_mistakes
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
SLICE_MS = 0.02  # of a device's time, before it is known how long that takes to compute
BURST_S = 0.05  # how long a burst is computed before peers are looked at again
CATCH_UP_MS = 1000.0  # what passes at most after one wait
HOUSEKEEPING_S = 0.25
LOOK_FIRST_S, LOOK_LAST_S = 0.001, 0.016  # how often pending transfers are looked at while nothing happens
PATIENCE_S = 10.0  # TIMEOUT: a peer asks for something within this, and takes its last answer within this
MAX_CONNECTIONS = 32
MAX_TRANSFER_BYTES = 16 << 20  # what Linux's usbfs takes in all (usbfs_memory_mb)
RECEIVE_BYTES = 1 << 20
FULL_BYTES = 32 << 20  # a peer that leaves this much unread is read no further


class _Connection:
    """A peer: first it asks (a list, a device), then its transfers come. `session` is the device it holds."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.sock, self.name = sock, name
        self.inbox, self.outbox = bytearray(), bytearray()
        self.session: Session | None = None
        self.asks_for_device = False
        self.command: Submit | None = None  # whose payload is awaited
        self.closing = ""  # why it is closed once the rest is sent
        self.ends_s = (
            time.monotonic() + PATIENCE_S
        )  # when it is closed whatever it awaits; for ever while it has a device
        self.seen_s = 0.0  # when its device was last seen plugged in
        self.awaited = 0
        self.ready: Callable[[int], None] = lambda events: None

    def finish(self, why: str) -> None:
        """Take nothing more, send what is left, and end."""
        self.closing = self.closing or why
        self.ends_s = min(self.ends_s, time.monotonic() + PATIENCE_S)


class UsbipServer:
    """Serves the devices plugged into `hosts`. Loopback only, unless told an address."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = tuple(hosts)
        self._selector = selectors.DefaultSelector()
        self._connections: list[_Connection] = []
        self._listeners: list[Listener] = []
        self._bursts: dict[
            int, float
        ] = {}  # milliseconds that hosts, by place, may run ahead, for they have something new to do
        self._look_s = LOOK_FIRST_S
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._woken)
        self._running = True
        for host in self.hosts:
            for name, log in getattr(host, "logs", dict)().items():
                tell_mistakes(log, name, LOG)

    def __enter__(self) -> UsbipServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[Record]:
        """What is plugged in, imported or not."""
        return [exported.record for exported in exports(self.hosts)]

    def listen(self, port: int = PORT, address: str = LOOPBACK) -> int:
        """Take connections at a TCP port; 0 takes any that is free. Returns it. Raises `OSError`."""
        sock = socket.create_server((address, port))
        self._listeners.append(Listener(self._selector, sock, self._take_peer))
        return int(sock.getsockname()[1])

    def listen_unix(self, path: str) -> None:
        """Take connections at a socket in the file system; one that nobody listens at any more is replaced.

        Raises `CardBusy` where somebody listens, `PermissionNeeded`, `TransportError` for a path that cannot be.
        """
        self._listeners.append(Listener(self._selector, unix_socket.listen(path), self._take_peer, path))

    def adopt(self, sock: socket.socket, bus_id: str) -> Record:
        """Serve the transfers of one device on a stream socket, asking nothing first: its other end goes to vhci_hcd's
        `attach`.

        The socket is the server's from now on. Raises `NoSuchCard` for a name that is not plugged in, `CardBusy` for an
        imported one.
        """
        connection = self._connect(sock, "socket")
        try:
            connection.session = self._open(bus_id, connection)
        except BaseException:
            self._drop(connection, "the device was not to be had")
            raise
        connection.ends_s = math.inf
        return connection.session.record

    def run(self) -> None:
        """Serve until `stop`, or until an exception such as `KeyboardInterrupt`."""
        while self._running:
            self.step(HOUSEKEEPING_S)

    def stop(self) -> None:
        """End `run` soon; may be called from another thread or a signal handler."""
        self._running = False
        self._wake_out.send(b"\0")

    def step(self, timeout_s: float) -> None:
        """Wait for peers, `timeout_s` at most, serve what they ask, let time pass for the devices, answer."""
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
            listener.keep_house()
        for connection in tuple(self._connections):
            self._keep_house(connection)

    def close(self) -> None:
        """Let go of every device and peer, of all of them even if one fails; closing twice is harmless."""
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
        """Let time pass for the devices as it did here, as far as it can be computed in as long."""
        for place in range(len(self.hosts)):
            if waited_s and self._run(place, min(waited_s * 1000, CATCH_UP_MS), waited_s)[0]:
                self._bursts[place] = BURST_MS

    def _run(self, place: int, time_ms: float, bound_s: float) -> tuple[int, float]:
        """Let the devices of a host work until transfers end, `time_ms` of theirs at most, `bound_s` of ours.

        Returns how many ended, and what was left of their time.
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
        except (RingupError, USBError) as error:  # a model that refuses its guest's mistake stops its own importers
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
            LOG.warning("%s is turned away: %d connections are open", name, len(self._connections))
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
            if connection not in self._connections:  # dropped by what came before in this round
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
        """Serve one message of the inbox; tell whether there was a whole one."""
        if connection.session:
            return self._take_transfer(connection, connection.session)
        if connection.asks_for_device:
            name = _cut(connection.inbox, wire.BUS_ID_BYTES)
            if name is not None:
                self._give(connection, wire.parse_bus_id(name))
            return name is not None
        request = _cut(connection.inbox, wire.OPERATION.size)
        if request is None:
            return False
        connection.asks_for_device = wire.parse_operation(request) == wire.REQ_IMPORT
        if not connection.asks_for_device:
            held = {each.session.record.bus_id for each in self._connections if each.session}
            connection.outbox += wire.device_list([one for one in self.records if one.bus_id not in held])
            connection.finish("it has its list")
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
        """Have the device take a command; what its model refuses costs this connection only."""
        assert connection.session
        self._bursts[self.hosts.index(connection.session.host)] = BURST_MS
        self._look_s = LOOK_FIRST_S
        try:
            action()
        except RingupError as error:
            LOG.warning("%s", error, exc_info=LOG.isEnabledFor(logging.DEBUG))
            self._drop(connection, f"its device failed: {error}")

    def _give(self, connection: _Connection, bus_id: str) -> None:
        """Answer a request for a device."""
        refusal = Refusal.NONE
        try:
            connection.session = self._open(bus_id, connection)
        except NoSuchCard:
            refusal = Refusal.NO_DEVICE
        except CardBusy:
            refusal = Refusal.BUSY
        except (USBError, TransportError) as error:
            LOG.warning("%s cannot be given: %s", bus_id, error)
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
        """Send what the peer takes now."""
        while connection.outbox:
            try:
                sent = connection.sock.send(connection.outbox)
            except BlockingIOError:
                return
            del connection.outbox[:sent]

    def _keep_house(self, connection: _Connection) -> None:
        """Send, look whether the peer or the device went, and say what is awaited of the peer."""
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
            self._drop(connection, connection.closing or f"it asked for nothing within {PATIENCE_S:.0f} s")
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
        """Close a connection; its device can be imported anew."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        LOG.log(level, "%s is closed: %s", connection.name, why)
        self._await(connection, 0)
        connection.sock.close()
        if connection.session:
            # transfers of others may have ended meanwhile
            self._bursts[self.hosts.index(connection.session.host)] = BURST_MS
            try:
                connection.session.close()
            except (RingupError, USBError) as error:
                LOG.warning("letting go of %s: %s", connection.session.record.bus_id, error)

    def _woken(self, events: int) -> None:
        self._wake_in.recv(64)


def _cut(inbox: bytearray, size_bytes: int) -> bytes | None:
    """Take that many bytes from the front; None when there are fewer."""
    if len(inbox) < size_bytes:
        return None
    data = bytes(memoryview(inbox)[:size_bytes])
    del inbox[:size_bytes]
    return data
