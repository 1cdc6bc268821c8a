"""One open USB device. Its transfers run one after another or many in flight. They are counted and raise ringup's
errors.
"""

from __future__ import annotations

import errno
import logging
import platform
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import usb.core

from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.transport.seam import Clock
from ringup.drivers.usb4.counts import Counts
from ringup.drivers.usb4.host import COMPLETED, ERROR, NO_DEVICE, STALL, TIMED_OUT, Transfer, asynchronous
from ringup.drivers.usb4.naming import AGAIN, GONE, Naming
from ringup.drivers.usb4.naming import Stalled as Stalled
from ringup.errors import DeviceLost, DeviceTimeout, PermissionNeeded, RingupError, TransportError

LOG = logging.getLogger(__name__)
# USB 2.0 specification, 9.3
SETUP = struct.Struct("<BBHHH")
DIRECTION_IN = 0x80
# bmRequestType: vendor request, to the device or from it
VENDOR_OUT, VENDOR_IN = 0x40, 0xC0
GET_DESCRIPTOR, STRING, ENGLISH = 6, 3, 0x0409
STRING_BYTES = 255
# TIMEOUT: the bound of the bridge's other drivers for a control transfer
TIMEOUT_MS = 1_000
USB4_MODE = (
    "answers nothing on USB. Where the host took it as a USB4 device its card is an ordinary PCI device:"
    " `ringup list` shows pci:…, and for the USB path use a USB3 port or cable; else switch the enclosure off and on"
)
SILENT = "answers nothing on USB any more; switch the enclosure off and on or pull its cable, then open it again"
# TIMEOUT: added to a transfer's own bound, after which the host's USB stack must have ended it
SLACK_MS = 1_000
# posted transfers; if there are more, `post` waits for the oldest
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a device, and the ids in its descriptor. `speed_mbps`: 480, 5000, 10000, …; 0 if the host does not
    report it.
    """

    bus: int
    ports: tuple[int, ...]
    vid: int
    pid: int
    bcd_device: int
    speed_mbps: int

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return f"usb:{self.bus}-{'.'.join(map(str, self.ports))}" if self.ports else f"usb:{self.bus}-0"

    @property
    def ids(self) -> str:
        """Vendor and product id as they are usually written."""
        return f"{self.vid:04x}:{self.pid:04x}"


# enum libusb_speed: megabits a second
SPEEDS = {1: 2, 2: 12, 3: 480, 4: 5_000, 5: 10_000, 6: 20_000}


def places(backend: Any) -> list[tuple[Place, Any]]:
    """Return every device that a backend sees, with the backend's own object for it. Raises `PermissionNeeded`,
    `TransportError`.
    """
    doing, found = "looking for USB devices", []
    with Naming(doing):
        devices = list(backend.enumerate_devices())
    for device in devices:
        try:
            with Naming(doing):
                row = backend.get_device_descriptor(device)
        # it was unplugged meanwhile
        except DeviceLost:
            continue
        ports = tuple(row.port_numbers or ())
        speed = SPEEDS.get(row.speed or 0, 0)
        found.append((Place(row.bus or 0, ports, row.idVendor, row.idProduct, row.bcdDevice, speed), device))
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """One transfer that has ended, for the observer of a port. `endpoint`: 0 for a control transfer, else with bit 7
    set for IN. `size_bytes`: bytes that moved.

    `ended_us`: when the host noticed the end. Transfers of one endpoint run one after another, even if many were
    submitted.
    """

    endpoint: int
    doing: str
    size_bytes: int
    status: str
    submitted_us: int
    ended_us: int


class Pending:
    """A transfer that is queued, in flight, or has ended. `doing`: its purpose, for errors."""

    __slots__ = (
        "begin", "doing", "endpoint", "error", "exact", "expired", "posted", "sends", "timeout_ms", "transfer", "whole",
    )  # fmt: skip

    def __init__(
        self, begin: Callable[[], Transfer], endpoint: int, doing: str, timeout_ms: int, exact: int | None, sends: bool
    ) -> None:
        """`exact`: how many bytes must move; None if fewer are allowed. `sends`: the bytes go to the device."""
        self.begin, self.endpoint, self.doing, self.timeout_ms, self.exact = begin, endpoint, doing, timeout_ms, exact
        self.sends = sends
        # the host did not end it within its bound, so the port cancelled it
        self.expired = False
        # the caller takes it as sent and does not wait for it
        self.posted = False
        # of endpoint 0: the device has finished the request when the host has its status
        self.whole = False
        self.transfer: Transfer | None = None
        # why it could not be begun
        self.error: RingupError | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, with success or not."""
        return self.error is not None or (self.transfer is not None and self.transfer.done)

    @property
    def status(self) -> str:
        """How it ended; empty before the end."""
        return self.transfer.status if self.transfer is not None else ""

    @property
    def went_well(self) -> bool:
        """Whether it has ended with success."""
        return self.status == COMPLETED

    @property
    def actual(self) -> int:
        """Bytes that moved."""
        return self.transfer.actual if self.transfer is not None else 0

    @property
    def data(self) -> bytes:
        """The bytes that were received."""
        return self.transfer.data if self.transfer is not None else b""


class Port:
    """An open device with one configuration and interface 0 claimed. Every transfer has a bound. If the device is gone,
    calls raise `DeviceLost`.

    Transfers are begun in the order of the calls. Those of endpoint 0 are queued, and each is begun when the one before
    has ended: the bridge's firmware answers before it has finished a request, and breaks if the next one comes at once.
    Two successive requests that are both `whole` do not have that problem; the second is begun at once.
    """

    def __init__(self, backend: Any, device: Any, place: Place, clock: Clock, name: str = "") -> None:
        """Open the device and claim it. The kernel's storage driver is detached, and attached again at `close`.

        Raises `PermissionNeeded`, `CardBusy` if another program has it open, `DeviceLost`, `TransportError`.
        """
        self.place, self.clock, self.name = place, clock, name or place.name
        self.counts = Counts()
        self.lost = False
        # used when `lost` is set
        self.why_lost = GONE
        self._torn = False
        # the first posted write that failed: its caller took it as sent
        self.lost_write = ""
        # called for every transfer that ends
        self.observer: Callable[[Seen], None] | None = None
        # transfers that the observer has not seen yet: with endpoint and time of submission
        self._observed: deque[tuple[Pending, int, int]] = deque()
        self._backend, self._host = backend, asynchronous(backend)
        self._posted: deque[Pending] = deque()
        # queued, not begun
        self._line: deque[Pending] = deque()
        # the transfer that is being submitted. If it stays set, an interruption came in between
        self._beginning: Pending | None = None
        # the last of endpoint 0 that was begun
        self._control: Pending | None = None
        # begun; the first of them has not ended
        self._live: deque[Pending] = deque()
        self._detached = self._claimed = False
        self._streamed: tuple[int, ...] = ()
        self._handle: Any = None
        with undone_on_error(self.close):
            with Naming(f"opening {self.name} ({place.ids})", self):
                descriptor = backend.get_device_descriptor(device)
                self._handle = backend.open_device(device)
            with Naming(f"claiming {self.name} ({place.ids})", self):
                self._claim()
            self.manufacturer = self.string(descriptor.iManufacturer)
            self.product = self.string(descriptor.iProduct)
            self.serial = self.string(descriptor.iSerialNumber)

    def _claim(self) -> None:
        backend, handle = self._backend, self._handle
        self._detached = self._take_from_kernel()
        if self._detached or backend.get_configuration(handle) != 1:
            # a reset ends the transfers that the kernel's driver left. An unused device is not reset: with every reset
            # it may fall back to USB2
            self._reset()
            backend.set_configuration(handle, 1)
        backend.claim_interface(handle, 0)
        self._claimed = True

    def _take_from_kernel(self) -> bool:
        """Detach the kernel's driver from the interface; return whether there was one."""
        backend, handle = self._backend, self._handle
        try:
            if not backend.is_kernel_driver_active(handle, 0):
                return False
            backend.detach_kernel_driver(handle, 0)
        # on this host the kernel claims no interfaces
        except NotImplementedError:
            return False
        except usb.core.USBError as error:
            if error.errno == errno.ENOENT:
                # QUIRK: on macOS an interface without a system driver is not in the registry. The driver may also have
                # been detached meanwhile
                return False
            if error.errno == errno.EACCES and platform.system() == "Darwin":
                raise PermissionNeeded(
                    f"opening {self.name}: the system's storage driver has it, and only root may take it from there:"
                    " run ringup with sudo, or flash other firmware"
                ) from error
            raise
        LOG.info("%s: the kernel's storage driver was detached", self.name)
        return True

    def _reset(self) -> None:
        """Reset the device over USB. If it comes back as another device, it is lost, and so is this handle."""
        try:
            self._backend.reset_device(self._handle)
        except usb.core.USBError as error:
            if error.errno != errno.ENOENT:
                raise
            # Source: libusb API reference, libusb_reset_device: "not found" asks for the device to be opened anew
            self.lost, self.why_lost = True, "came back from a reset as another device; open it again"
            raise self.gone("resetting it over USB") from error

    @property
    def torn(self) -> bool:
        """Whether a transfer was ended early, or may run unknown to the port. The caller knows what state that leaves
        the device in, and repairs it.
        """
        return self._torn or self._beginning is not None

    @torn.setter
    def torn(self, torn: bool) -> None:
        self._torn = torn

    @property
    def vid(self) -> int:
        """Vendor id."""
        return self.place.vid

    @property
    def pid(self) -> int:
        """Product id."""
        return self.place.pid

    @property
    def speed_mbps(self) -> int:
        """Signalling rate, megabits a second."""
        return self.place.speed_mbps

    # --- one at a time ----------------------------------------------------------------------------------------------
    def control_in(
        self, request: int, value: int, index: int, length: int, timeout_ms: int = TIMEOUT_MS, doing: str = ""
    ) -> bytes:
        """Do a vendor request that returns up to `length` bytes."""
        pending = self.start_control_in(request, value, index, length, timeout_ms, doing)
        self.wait(pending)
        return pending.data

    def control_out(
        self, request: int, value: int, index: int, data: bytes = b"", timeout_ms: int = TIMEOUT_MS, doing: str = ""
    ) -> None:
        """Do a vendor request that returns nothing."""
        self.wait(self.start_control_out(request, value, index, data, timeout_ms, doing))

    def bulk_out(self, endpoint: int, data: bytes | bytearray | memoryview, timeout_ms: int, stream: int = 0) -> None:
        """Send bytes, all of them."""
        self.wait(self.start_bulk_out(endpoint, data, timeout_ms, stream))

    def bulk_in(self, endpoint: int, length: int, timeout_ms: int, stream: int = 0) -> bytes:
        """Receive up to `length` bytes."""
        pending = self.start_bulk_in(endpoint, length, timeout_ms, stream)
        self.wait(pending)
        return pending.data

    # --- many in flight ---------------------------------------------------------------------------------------------
    def start_control_in(
        self,
        request: int,
        value: int,
        index: int,
        length: int,
        timeout_ms: int = TIMEOUT_MS,
        doing: str = "",
        kind: int = VENDOR_IN,
    ) -> Pending:
        """Begin a request that returns data; call `wait` for it. `kind`: bmRequestType."""
        setup = SETUP.pack(kind, request, value, index, length)
        doing = doing or f"request {request:#04x} (value {value:#06x}, index {index:#06x})"
        return self._start(0, length, setup, timeout_ms, 0, doing, None)

    def start_control_out(
        self,
        request: int,
        value: int,
        index: int,
        data: bytes = b"",
        timeout_ms: int = TIMEOUT_MS,
        doing: str = "",
        kind: int = VENDOR_OUT,
        *,
        whole: bool = False,
    ) -> Pending:
        """Begin a request. `whole`: the device has finished the request when it answers. The next request may follow at
        once if it is `whole` too.
        """
        setup = SETUP.pack(kind, request, value, index, len(data))
        doing = doing or f"request {request:#04x} (value {value:#06x}, index {index:#06x})"
        return self._start(0, data, setup, timeout_ms, 0, doing, len(data), whole=whole)

    def start_bulk_out(
        self, endpoint: int, data: bytes | bytearray | memoryview, timeout_ms: int, stream: int = 0, doing: str = ""
    ) -> Pending:
        """Begin to send; `data` must not change until the transfer is waited for."""
        doing = doing or f"sending {len(data)} bytes to endpoint {endpoint:#04x}"
        return self._start(endpoint, data, b"", timeout_ms, stream, doing, len(data))

    def start_bulk_in(
        self, endpoint: int, length: int, timeout_ms: int, stream: int = 0, doing: str = "", exact: bool = False
    ) -> Pending:
        """Begin to receive. `exact`: raise an error for fewer bytes."""
        doing = doing or f"receiving {length} bytes from endpoint {endpoint:#04x}"
        return self._start(endpoint, length, b"", timeout_ms, stream, doing, length if exact else None)

    def post(self, pending: Pending) -> None:
        """Leave a transfer in flight. A later `wait` raises its error. At most `IN_FLIGHT` are left so."""
        self.leave(pending)
        self._posted.append(pending)
        if len(self._posted) > IN_FLIGHT:
            self.wait(*[self._posted.popleft() for _ in range(IN_FLIGHT // 2)])

    def leave(self, *pending: Pending) -> None:
        """Mark transfers that the caller takes as done. If one fails, it is recorded as a `lost_write`."""
        for one in pending:
            one.posted = True

    def wait(self, *pending: Pending) -> None:
        """Wait until all transfers have ended; then raise the error of the first that failed.

        Raises `DeviceLost`, `DeviceTimeout` with the bound, `Stalled`, `TransportError`, also for transfers that were
        posted before.
        """
        self._pump(pending)
        posted = self._posted
        while posted and posted[0].done:
            self._finish(posted.popleft())
        for one in pending:
            self._finish(one)

    def ended_well(self, *pending: Pending) -> bool:
        """Wait until transfers have ended and return whether all succeeded. The error of a failed one is raised by the
        `wait` for it, not here.
        """
        self._pump(pending)
        return all(one.went_well for one in pending)

    def settle(self) -> None:
        """Wait for all posted transfers."""
        posted, self._posted = list(self._posted), deque()
        self.wait(*posted)

    def flush(self) -> None:
        """Begin all queued transfers. Each waits for the one before it; the last one is not waited for."""
        if self._line:
            self._pump([self._line[-1]], begun=True)

    def drop(self) -> None:
        """End all transfers that are queued or in flight, also those unknown to the port. Their outcome is ignored.
        Raises `DeviceLost` if one does not end.
        """
        if not self.lost and self._beginning is None:
            with suppress(RingupError):
                self._let_end(())
        self._end()

    def cancel(self, *pending: Pending) -> None:
        """End transfers early. Their outcome is ignored. They are done when this returns."""
        self._cancel(pending)

    def _start(
        self,
        endpoint: int,
        payload: bytes | bytearray | memoryview | int,
        setup: bytes,
        timeout_ms: int,
        stream: int,
        doing: str,
        exact: int | None,
        *,
        whole: bool = False,
    ) -> Pending:
        if self.lost:
            raise self.gone(doing)
        counts = self.counts
        begin = partial(
            self._host.submit, self._handle, endpoint, payload, setup=setup, timeout_ms=timeout_ms, stream=stream
        )
        pending = Pending(begin, endpoint, doing, timeout_ms, exact, not isinstance(payload, int))
        pending.whole = whole
        if self._beginning is not None:
            self._end()
        if endpoint:
            counts.bulk += 1
        else:
            counts.control += 1
        if not isinstance(payload, int):
            counts.bytes_out += len(payload)
        # a transfer that has ended meanwhile lets the next one begin
        if self._line:
            self._events(0, doing)
        self._line.append(pending)
        self._advance()
        if pending.error is not None:
            raise pending.error
        return pending

    def _advance(self) -> bool:
        """Begin the transfers that may be begun; return whether there was one."""
        line, moved = self._line, False
        while line and (line[0].endpoint or self._free(line[0])):
            self._begin()
            moved = True
        return moved

    def _free(self, pending: Pending) -> bool:
        """Return whether another request may be begun on endpoint 0."""
        before = self._control
        return before is None or before.done or (before.whole and pending.whole)

    def _begin(self) -> None:
        """Begin the first queued transfer. An interruption, for instance by ctrl-C, leaves `_beginning` set: the host
        may then have a transfer that the port does not know.
        """
        # ORDER: set before the transfer is submitted, and until everything about it is stored
        self._beginning = pending = self._line[0]
        try:
            with Naming(pending.doing, self):
                pending.transfer = pending.begin()
        except RingupError as error:
            pending.error = error
        else:
            if not pending.endpoint:
                self._control = pending
            live = self._live
            while live and live[0].done:
                live.popleft()
            live.append(pending)
            if self.observer is not None:
                self._observed.append((pending, pending.endpoint, self.clock.now_us))
        self._line.popleft()
        self._beginning = None

    def _end(self) -> None:
        """Drop all queued transfers and end every transfer of the device at the host, also one whose submission was
        interrupted.

        Raises `DeviceLost` if some do not end. It may be interrupted anywhere and called again.
        """
        doing, line = "ending what is under way", self._line
        self._torn = self.torn
        self._live += self._posted
        while line:
            pending = line[0]
            self._live.append(pending)
            if pending.error is None and pending.transfer is None:
                when = "interrupted as" if pending is self._beginning else "given up before"
                pending.error = TransportError(f"{self.name}: {pending.doing}: {when} it was begun")
            line.popleft()
        with Naming(doing, self):
            left = self._host.end(self._handle)
        self._note_loss(self._live)
        self._live.clear()
        self._beginning = None
        self._posted.clear()
        if self._observed:
            self._tell()
        if left:
            raise self.give_up(doing)

    def _note_loss(self, pending: Iterable[Pending]) -> None:
        """Record the first posted write that failed, completely or in part."""
        lost = next((one.doing for one in pending if one.posted and one.sends and not one.went_well), "")
        self.lost_write = self.lost_write or lost

    def _events(self, timeout_ms: float, doing: str) -> None:
        """Handle the host's events for up to `timeout_ms`, and pass transfers that have ended to the observer."""
        with Naming(doing, self):
            self._host.handle_events(timeout_ms)
        if self._observed:
            self._tell()

    def _tell(self) -> None:
        observed, self._observed = self._observed, deque()
        now_us = self.clock.now_us
        for one in observed:
            pending, endpoint, submitted_us = one
            transfer = pending.transfer
            if transfer is None or not transfer.done:
                self._observed.append(one)
            elif self.observer is not None:
                self.observer(Seen(endpoint, pending.doing, transfer.actual, transfer.status, submitted_us, now_us))

    def _pump(self, pending: Sequence[Pending], *, begun: bool = False) -> None:
        """Handle events until all transfers are done, or, with `begun`, until all are begun. If the host does not end a
        transfer within its bound, cancel it.
        """

        def still_open() -> list[Pending]:
            return [one for one in pending if not (one.done or (begun and one.transfer is not None))]

        if self._observed:
            self._tell()
        clock = self.clock
        try:
            if self._beginning is not None:
                self._end()
            self._advance()
            open_ones = still_open()
            if not open_ones:
                return
            self.counts.waits += 1
            longest_ms = max(one.timeout_ms for one in (*open_ones, *self._line)) + SLACK_MS
            end_us = clock.now_us + longest_ms * 1_000
            while open_ones:
                left_ms = (end_us - clock.now_us) / 1_000
                if left_ms <= 0:
                    break
                self._events(min(left_ms, longest_ms), open_ones[0].doing)
                before = len(open_ones)
                moved = self._advance()
                open_ones = still_open()
                # the bound of each transfer counts from its own start
                if moved or len(open_ones) < before:
                    end_us = clock.now_us + longest_ms * 1_000
        # also ctrl-C: transfers must end before their buffers are freed
        except BaseException as error:
            try:
                if not isinstance(error, RingupError):
                    with suppress(RingupError):
                        self._let_end(pending)
            finally:
                # `error` is raised, not a later one
                with suppress(RingupError):
                    self._cancel(pending)
            raise
        if open_ones:
            for one in open_ones:
                one.expired = True
            self._cancel(open_ones)

    def _let_end(self, pending: Sequence[Pending]) -> None:
        """Give transfers that are queued or in flight a short time to end normally, so that nothing is lost."""
        wanted = [one for one in (*pending, *self._live, *self._line) if not one.done]
        end_us = self.clock.now_us + SLACK_MS * 1_000
        while self._beginning is None and wanted and (left_us := end_us - self.clock.now_us) > 0:
            self._events(left_us / 1_000, wanted[0].doing)
            self._advance()
            wanted = [one for one in wanted if not one.done]

    def _cancel(self, pending: Sequence[Pending]) -> None:
        """Cancel transfers and wait for their end, within a bound."""
        self._torn = self.torn or any(not one.done for one in pending)
        if self._beginning is not None:
            self._end()
        try:
            for one in pending:
                if one in self._line:
                    one.error = TransportError(f"{self.name}: {one.doing}: given up before it was begun")
                    self._line.remove(one)
                elif one.transfer is not None and not one.transfer.done:
                    with Naming(f"ending {one.doing}", self):
                        self._host.cancel(one.transfer)
            end_us = self.clock.now_us + SLACK_MS * 1_000
            while (left := [one for one in pending if not one.done]) and self.clock.now_us < end_us:
                self._events(SLACK_MS, f"ending {left[0].doing}")
        finally:
            self._note_loss(pending)

    def _finish(self, pending: Pending) -> None:
        """Count the received bytes and raise the transfer's error, if it has one."""
        self._note_loss((pending,))
        if pending.error is not None:
            raise pending.error
        transfer = pending.transfer
        # without an error, it was begun
        assert transfer is not None
        self.counts.bytes_in += len(transfer.data)
        status = transfer.status
        if status == COMPLETED:
            if pending.exact is not None and transfer.actual != pending.exact:
                raise TransportError(
                    f"{self.name}: {pending.doing}: {transfer.actual} of {pending.exact} bytes were moved; "
                    "close the card and open it again"
                )
            return
        if status == NO_DEVICE or self.lost:
            self.lost = True
            raise self.gone(pending.doing)
        self.torn = True
        if pending.expired:
            raise DeviceTimeout(
                f"{self.name}: {pending.doing}: the host's USB did not end the transfer"
                f" within {pending.timeout_ms + SLACK_MS} ms ({transfer.actual} bytes moved); {AGAIN}"
            )
        if status == TIMED_OUT:
            raise DeviceTimeout(
                f"{self.name}: {pending.doing}: the bridge did not answer for {pending.timeout_ms} ms "
                f"({transfer.actual} bytes moved); {AGAIN}"
            )
        if status == STALL:
            raise Stalled(f"{self.name}: {pending.doing}: the bridge refused it (stall); {AGAIN}")
        if status == ERROR and platform.system() == "Darwin" and not self.present:
            # QUIRK: when a device is unplugged, macOS ends its transfers with the error of a bad cable
            self.lost = True
            raise self.gone(pending.doing)
        raise TransportError(
            f"{self.name}: {pending.doing}: the transfer ended as {status or 'nothing: the host gave it up'};"
            " check the cable"
        )

    def gone(self, doing: str) -> DeviceLost:
        """Make the error for a lost device."""
        return DeviceLost(f"{self.name}: {doing}: the enclosure {self.why_lost}")

    def give_up(self, doing: str, why: str = SILENT) -> DeviceLost:
        """Mark the device as lost, although it is plugged in: it does not answer a request that every device must
        answer. Return the error.
        """
        self.lost, self.why_lost = True, why
        return self.gone(doing)

    # --- the device itself ------------------------------------------------------------------------------------------
    def string(self, index: int) -> str:
        """Return a string descriptor's text. Empty if there is none."""
        if not index:
            return ""
        pending = self.start_control_in(
            GET_DESCRIPTOR,
            STRING << 8 | index,
            ENGLISH,
            STRING_BYTES,
            doing=f"reading string {index}",
            kind=DIRECTION_IN,
        )
        try:
            self.wait(pending)
        except (Stalled, DeviceTimeout):
            return ""
        text = pending.data[2 : pending.data[0] if pending.data else 0].decode("utf-16-le", errors="replace")
        return "".join(letter for letter in text if letter.isprintable())

    def configuration(self) -> bytes:
        """Return the configuration descriptor with its interface and endpoint descriptors. Raises `DeviceLost` if the
        device does not answer.
        """
        doing = "reading the configuration descriptor"
        pending = self.start_control_in(GET_DESCRIPTOR, 2 << 8, 0, 4096, doing=doing, kind=DIRECTION_IN)
        try:
            self.wait(pending)
        except DeviceTimeout as error:
            raise self.give_up(doing, USB4_MODE) from error
        return pending.data

    def set_alt(self, number: int) -> None:
        """Select an alternate setting of interface 0. That resets its endpoints."""
        with Naming(f"choosing alternate setting {number}", self):
            self._backend.set_interface_altsetting(self._handle, 0, number)

    def clear_halt(self, endpoint: int) -> None:
        """Clear the halt of a stalled endpoint. That resets its data toggle."""
        with Naming(f"clearing endpoint {endpoint:#04x}", self):
            self._backend.clear_halt(self._handle, endpoint)

    def reset(self) -> None:
        """Reset the device over USB; it keeps its address."""
        with Naming("resetting the bridge over USB", self):
            self._reset()
            self._backend.set_configuration(self._handle, 1)
            self._backend.claim_interface(self._handle, 0)

    def alloc_streams(self, count: int, endpoints: Sequence[int]) -> int:
        """Allocate streams for bulk endpoints. Return how many there are; 0 if the system has no streams."""
        with Naming("allocating streams", self):
            given = self._host.alloc_streams(self._handle, count, endpoints)
        self._streamed = tuple(endpoints)
        return given

    @property
    def present(self) -> bool:
        """Whether the host sees a device at this place now: this one or another."""
        place = self.place
        return any((one.bus, one.ports) == (place.bus, place.ports) for one, _ in places(self._backend))

    def close(self) -> None:
        """End all transfers and release the device. May be called twice. An interruption is raised after every step was
        tried.

        If a transfer does not end, the device stays open until the process ends: libusb may still write to its buffer.
        """
        handle, backend = self._handle, self._backend
        if handle is None:
            return
        expected = (usb.core.USBError, NotImplementedError, RingupError)
        with Teardown(f"closing {self.name}", logged=expected) as teardown:
            # the first call may be interrupted
            ended = teardown.attempt(self.drop) or teardown.attempt(self.drop)
            usable = ended and not self.lost
            if usable and self._streamed:
                teardown.attempt(partial(self._host.free_streams, handle, self._streamed))
            if usable and self._claimed:
                teardown.attempt(partial(backend.release_interface, handle, 0))
            # QUIRK: on macOS this call of libusb crashes or stalls (libusb issue 1635).
            # GUESS: macOS takes a captured device back when its last user closes it.
            if usable and self._detached and platform.system() != "Darwin":
                teardown.attempt(partial(backend.attach_kernel_driver, handle, 0))
            # ORDER: cleared before the close, because libusb must not close a handle twice
            self._handle = None
            if ended:
                teardown.attempt(partial(backend.close_device, handle))
            else:
                LOG.warning("closing %s: not every transfer ended, so it stays open until the process ends", self.name)
