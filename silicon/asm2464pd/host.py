"""A USB host in virtual time: a backend for pyusb, plus non-blocking transfers. Enclosures plug into its ports.

There are no threads: time passes, and the devices' engines run, while the caller waits for a transfer.
"""

from __future__ import annotations

import errno
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from usb.backend import IBackend
from usb.core import USBError, USBTimeoutError

from ringup.errors import GuestError
from ringup.silicon.asm2464pd import usb_descriptors
from ringup.silicon.asm2464pd.enclosure import Enclosure
from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.running_firmware import SETUP
from ringup.silicon.asm2464pd.transfers import Bus, Count, Transfer
from ringup.silicon.asm2464pd.usb_descriptors import Alternate, Configuration
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog

# virtual time after which a transfer without a time-out counts as one that never ends
NO_LIMIT_MS = 600_000
STREAMS = 31  # of 32: xHCI reserves stream 0
SET_CONFIGURATION, SET_INTERFACE, CLEAR_FEATURE = (0x00, 9), (0x01, 11), (0x02, 1)
# TIMEOUT: USB_CTRL_SET_TIMEOUT, the time-out of Linux's own requests
REQUEST_MS = 5_000
# TIMEOUT: cancelled transfers end within microseconds
END_MS = 1_000
# GUESS: from a port reset until the device answers again
RESET_US = 60_000
ERRORS = {  # libusb's code, errno and text. Source: libusb.h; pyusb usb/backend/libusb1.py
    "no_device": (-4, errno.ENODEV, "No such device (it may have been disconnected)"),
    "access": (-3, errno.EACCES, "Access denied (insufficient permissions)"),
    "busy": (-6, errno.EBUSY, "Resource busy"),
    "not_found": (-5, errno.ENOENT, "Entity not found"),
    "stall": (-9, errno.EPIPE, "Pipe error"),
    "timed_out": (-7, errno.ETIMEDOUT, "Operation timed out"),
    "overflow": (-8, errno.EOVERFLOW, "Overflow"),
    "error": (-1, errno.EIO, "Input/Output Error"),
    "cancelled": (-10, errno.EINTR, "System call interrupted (perhaps due to signal)"),
    "invalid": (-2, errno.EINVAL, "Invalid parameter"),
}


def usb_error(what: str) -> USBError:
    """Return pyusb's exception as its libusb1 backend makes it."""
    code, number, text = ERRORS[what]
    return (USBTimeoutError if what == "timed_out" else USBError)(text, code, number)


class Attached:
    """A device on a port, as the host's operating system sees it."""

    def __init__(self, port: str, address: int, enclosure: Enclosure, bus: Bus) -> None:
        self.port, self.address, self.enclosure, self.bus = port, address, enclosure, bus
        self.speed = enclosure.chip.speed
        self.texts = enclosure.firmware.descriptors(self.speed)
        self.layout = Configuration.parse(self.texts.configuration)
        self.configuration = 0
        self.alternates: dict[int, int] = {}
        self.claims: dict[int, Handle] = {}
        # the kernel's drivers, by interface
        self.drivers: dict[int, str] = {}
        self.streams: dict[int, int] = {}

    @property
    def ports(self) -> tuple[int, ...]:
        """The port numbers on the path from the root hub."""
        return tuple(int(number) for number in self.port.partition("-")[2].split("."))

    def alternate(self, interface: int) -> Alternate:
        """Return the selected alternate setting."""
        number = self.alternates.get(interface, 0)
        return next(one for one in self.layout.interfaces[interface] if one.descriptor.bAlternateSetting == number)

    def interface_of(self, endpoint: int) -> int | None:
        """Return the interface whose selected setting has an endpoint."""
        return next((number for number in self.layout.interfaces if self.alternate(number).has(endpoint)), None)

    def bind_drivers(self) -> None:
        """Bind the kernel's drivers: for each interface, the driver of the last alternate setting that has one."""
        for number, settings in self.layout.interfaces.items():
            names = [setting.kernel_driver for setting in settings if setting.kernel_driver]
            if names:
                self.drivers[number] = names[-1]


class Handle:
    """An open device."""

    def __init__(self, attached: Attached) -> None:
        self.attached = attached
        # transfers that it submitted; the oldest one is not done yet
        self.transfers: deque[Transfer] = deque()

    @property
    def in_flight(self) -> list[Transfer]:
        """Its unfinished transfers."""
        return [transfer for transfer in self.transfers if not transfer.done]


class VirtualUsbHost(IBackend):  # type: ignore[misc]  # pyusb has no types
    """Ports, devices, transfers. `denied` names ports whose devices may not be opened; `binds_drivers`: the kernel has
    its storage drivers.

    `waits` counts how often the caller had to let time pass for a transfer; `counts(port)` has the count by endpoint.
    """

    def __init__(self, clock: VirtualClock | None = None) -> None:
        """`clock`: that of the machine; by default that of the first enclosure."""
        self.clock = clock
        self.denied: set[str] = set()
        self.binds_drivers = True
        self.waits = 0
        self._attached: dict[str, Attached] = {}
        self._enclosures: dict[str, Enclosure] = {}
        self._addresses: dict[int, int] = {}
        self._finished: deque[Transfer] = deque()

    # --- ports ------------------------------------------------------------------------------------------------------
    def plug(self, enclosure: Enclosure, port: str = "1-1") -> None:
        """Plug an enclosure into a port (`BUS-PORT.PORT`) and let time pass until it appears, or `SHOWS_WITHIN_US` is
        over.

        Raises `ValueError` for a port in use, and for a card made with another machine's clock.
        """
        if port in self._enclosures:
            raise ValueError(f"port {port} already has an enclosure")
        if self.clock is None:
            self.clock = enclosure.machine
        if enclosure.machine is not self.clock:
            raise ValueError("this card has its own clock: make it with clock= the clock of the host")
        self._enclosures[port] = enclosure
        enclosure.host, enclosure.port = self, port
        enclosure.on_attach = lambda: self._attach(port)
        enclosure.on_detach = lambda: self._detach(port)
        enclosure.connect()
        self.clock.run_until(lambda: port in self._attached, enclosure.SHOWS_WITHIN_US)

    def unplug(self, port: str = "1-1") -> None:
        """Pull the cable: every transfer ends, and the enclosure loses power."""
        enclosure = self._enclosures.pop(port)
        self._detach(port)
        self._forget(enclosure)
        enclosure.disconnect()

    def logs(self) -> dict[str, EventLog]:
        """Return the logs of the plugged-in bridges and cards, by name."""
        found = {}
        for port, enclosure in self._enclosures.items():
            found[f"bridge at {port}"] = enclosure.log
            if enclosure.card is not None:
                found[f"{enclosure.card.name} at {port}"] = enclosure.card.log
        return found

    @staticmethod
    def _forget(enclosure: Enclosure) -> None:
        enclosure.on_attach = enclosure.on_detach = lambda: None
        enclosure.host, enclosure.port = None, ""

    def counts(self, port: str = "1-1") -> dict[int, Count]:
        """Return the traffic of each endpoint of a device since it was attached, by address."""
        return self._attached[port].bus.counts

    def _attach(self, port: str) -> None:
        """Enumerate a device that has appeared, unless it disappears meanwhile."""
        assert self.clock is not None
        enclosure = self._enclosures[port]
        bus = Bus(
            enclosure.chip, enclosure.firmware, self.clock, self._finished, lambda returns: self._leave(port, returns)
        )

        def enumerated() -> None:
            if not bus.connected or self._enclosures.get(port) is not enclosure:
                return
            number = int(port.partition("-")[0])
            self._addresses[number] = address = self._addresses.get(number, 0) % 127 + 1
            attached = Attached(port, address, enclosure, bus)
            self._attached[port] = attached
            if self.binds_drivers:
                attached.bind_drivers()
            bus.submit(self._request(attached, SET_CONFIGURATION, 1), REQUEST_MS)
            attached.configuration = 1

        enclosure.leave_bus = bus.disconnect
        self.clock.after(timing.ENUMERATION_US, enumerated)

    def _detach(self, port: str) -> None:
        attached = self._attached.pop(port, None)
        if attached is not None:
            attached.bus.disconnect()

    def _leave(self, port: str, returns: bool) -> None:
        """Take a device off the bus, for an injected fault."""
        enclosure = self._enclosures[port]
        self._detach(port)
        enclosure.disconnect()
        if returns:
            enclosure.return_later()
        else:
            self._forget(self._enclosures.pop(port))

    # --- the interface to pyusb ---------------------------------------------------------------------------------------
    def enumerate_devices(self) -> Iterator[Attached]:
        """Yield the attached devices."""
        yield from list(self._attached.values())

    def get_parent(self, dev: Attached) -> None:
        """Return None: the device's hub is not visible."""
        return

    def get_device_descriptor(self, dev: Attached) -> SimpleNamespace:
        """Return the device descriptor, with bus, address, ports and speed."""
        number = int(dev.port.partition("-")[0])
        return usb_descriptors.device(
            dev.texts.device, bus=number, address=dev.address, ports=dev.ports, speed=dev.speed.number
        )

    def get_configuration_descriptor(self, dev: Attached, config: int) -> SimpleNamespace:
        """Return the configuration descriptor; there is only one."""
        if config:
            raise IndexError(f"no configuration {config}")
        return dev.layout.descriptor

    def get_interface_descriptor(self, dev: Attached, intf: int, alt: int, config: int) -> SimpleNamespace:
        """Return an interface descriptor by logical numbers; pyusb expects an `IndexError` after the last."""
        return list(dev.layout.interfaces.values())[intf][alt].descriptor

    def get_endpoint_descriptor(self, dev: Attached, ep: int, intf: int, alt: int, config: int) -> SimpleNamespace:
        """Return an endpoint descriptor by logical numbers."""
        return list(dev.layout.interfaces.values())[intf][alt].endpoints[ep]

    def open_device(self, dev: Attached) -> Handle:
        """Open a device."""
        self._check_attached(dev)
        if dev.port in self.denied:
            raise usb_error("access")
        return Handle(dev)

    def close_device(self, dev_handle: Handle) -> None:
        """Release a handle's interfaces. Transfers in flight end as cancelled and are a violation: with libusb the
        behaviour is undefined.
        """
        attached, left = dev_handle.attached, dev_handle.in_flight
        if left:
            log = attached.enclosure.chip.log
            log.note("host", "violation", "a device was closed with transfers in flight: {}", len(left))
        for transfer in left:
            self.cancel(transfer)
        attached.claims = {number: holder for number, holder in attached.claims.items() if holder is not dev_handle}

    def get_configuration(self, dev_handle: Handle) -> int:
        """Return the configuration that the operating system has set."""
        return self._check_attached(dev_handle.attached).configuration

    def set_configuration(self, dev_handle: Handle, config_value: int) -> None:
        """Set the configuration; refused while an interface is claimed or has a driver."""
        attached = self._check_attached(dev_handle.attached)
        if attached.claims or attached.drivers:
            raise usb_error("busy")
        self._control_request(attached, SET_CONFIGURATION, config_value)
        attached.configuration = config_value
        attached.alternates.clear()

    def claim_interface(self, dev_handle: Handle, intf: int) -> None:
        """Claim an interface for this handle."""
        attached = self._check_attached(dev_handle.attached)
        if intf not in attached.layout.interfaces or not attached.configuration:
            raise usb_error("not_found")
        if attached.drivers.get(intf) or attached.claims.get(intf, dev_handle) is not dev_handle:
            raise usb_error("busy")
        attached.claims[intf] = dev_handle

    def release_interface(self, dev_handle: Handle, intf: int) -> None:
        """Release an interface; its first alternate setting is selected again."""
        attached = self._check_attached(dev_handle.attached)
        if attached.claims.get(intf) is not dev_handle:
            raise usb_error("not_found")
        del attached.claims[intf]
        if attached.alternates.pop(intf, 0):
            self._control_request(attached, SET_INTERFACE, 0, intf)

    def set_interface_altsetting(self, dev_handle: Handle, intf: int, altsetting: int) -> None:
        """Select an alternate setting of a claimed interface."""
        attached = self._check_attached(dev_handle.attached)
        settings = attached.layout.interfaces.get(intf, [])
        if attached.claims.get(intf) is not dev_handle:
            raise usb_error("not_found")
        if all(setting.descriptor.bAlternateSetting != altsetting for setting in settings):
            raise usb_error("not_found")
        self._control_request(attached, SET_INTERFACE, altsetting, intf)
        attached.alternates[intf] = altsetting

    def clear_halt(self, dev_handle: Handle, ep: int) -> None:
        """Clear an endpoint's halt, here and in the device."""
        self._control_request(self._check_attached(dev_handle.attached), CLEAR_FEATURE, 0, ep)

    def reset_device(self, dev_handle: Handle) -> None:
        """Reset the port. The configuration is set again, claims stay, transfers end as cancelled."""
        attached = self._check_attached(dev_handle.attached)
        assert self.clock is not None
        attached.bus.cancel_all()
        for endpoint in attached.enclosure.chip.endpoints.values():
            endpoint.reset()
        attached.enclosure.firmware.bus_reset()
        attached.alternates.clear()
        self.clock.sleep_us(RESET_US)
        self._check_attached(attached)
        if attached.enclosure.firmware.descriptors(attached.speed).device != attached.texts.device:
            # it is another device now and must be opened again
            raise usb_error("not_found")
        self._control_request(attached, SET_CONFIGURATION, attached.configuration)

    def is_kernel_driver_active(self, dev_handle: Handle, intf: int) -> bool:
        """Whether the kernel's driver has an interface."""
        return bool(self._check_attached(dev_handle.attached).drivers.get(intf))

    def detach_kernel_driver(self, dev_handle: Handle, intf: int) -> None:
        """Take an interface from the kernel's driver."""
        if not self._check_attached(dev_handle.attached).drivers.pop(intf, ""):
            raise usb_error("not_found")

    def attach_kernel_driver(self, dev_handle: Handle, intf: int) -> None:
        """Give an interface back to the kernel's driver."""
        attached = self._check_attached(dev_handle.attached)
        if attached.claims.get(intf) or attached.drivers.get(intf):
            raise usb_error("busy")
        names = [one.kernel_driver for one in attached.layout.interfaces[intf] if one.kernel_driver]
        if not names:
            raise usb_error("not_found")
        attached.drivers[intf] = names[-1]

    def ctrl_transfer(
        self, dev_handle: Handle, kind: int, request: int, value: int, index: int, data: array[int], timeout: int
    ) -> int:
        """Execute a control transfer: `data` is sent or filled. Returns the number of bytes in the data stage."""
        length = len(data) * data.itemsize
        setup = SETUP.pack(kind, request, value, index, length)
        payload = length if kind & 0x80 else data.tobytes()
        return self._finish(self.submit(dev_handle, 0, payload, setup=setup, timeout_ms=timeout), data)

    def bulk_write(self, dev_handle: Handle, ep: int, intf: int, data: array[int], timeout: int) -> int:
        """Send bytes; return how many were sent."""
        return self._finish(self.submit(dev_handle, ep, data.tobytes(), timeout_ms=timeout), data)

    def bulk_read(self, dev_handle: Handle, ep: int, intf: int, buff: array[int], timeout: int) -> int:
        """Read bytes into `buff`; return how many arrived."""
        return self._finish(self.submit(dev_handle, ep, len(buff) * buff.itemsize, timeout_ms=timeout), buff)

    # --- non-blocking transfers ---------------------------------------------------------------------------------------
    def submit(
        self, handle: Handle, endpoint: int, payload: Any, *, setup: bytes = b"", timeout_ms: int, stream: int = 0
    ) -> Transfer:
        """Start a transfer: `payload` is the bytes to send, or the length to receive. `setup`: the eight bytes of the
        SETUP packet, for endpoint 0.
        """
        attached = self._check_attached(handle.attached)
        if endpoint:
            interface = attached.interface_of(endpoint)
            if interface is None or attached.claims.get(interface) is not handle:
                raise usb_error("not_found" if interface is None or not attached.drivers.get(interface) else "busy")
            if stream > attached.streams.get(endpoint, 0) or (not stream and attached.streams.get(endpoint)):
                raise usb_error("invalid")
        elif len(setup) != SETUP.size:
            raise ValueError(f"a SETUP packet has {SETUP.size} bytes, not {len(setup)}")
        length, data = (payload, b"") if isinstance(payload, int) else (0, bytes(payload))
        transfer = Transfer(endpoint, stream, setup, data, length)
        while handle.transfers and handle.transfers[0].done:
            handle.transfers.popleft()
        handle.transfers.append(transfer)
        attached.bus.submit(transfer, timeout_ms)
        return transfer

    def handle_events(self, timeout_ms: float) -> None:
        """Return once a pending transfer has ended, or the time is over. A transfer that ended before costs no time."""
        if self.clock is None:
            return
        finished, clock, turn_ns = self._finished, self.clock, round(1_000 * timing.TURNAROUND_US)
        if not finished:
            clock.run_until(lambda: bool(finished), 1_000 * timeout_ms)
        if finished and clock.now_ns < finished[0].ended_ns + turn_ns and timeout_ms > 0:
            self.waits += 1
            for endpoint, bus in {(one.endpoint, one.bus) for one in finished if one.bus is not None}:
                bus.counts.setdefault(endpoint, Count()).waits += 1
            clock.advance_ns(finished[0].ended_ns + turn_ns - clock.now_ns)
        # the host needs time to handle each transfer
        while finished and clock.now_ns >= finished[0].ended_ns + turn_ns:
            transfer = finished.popleft()
            transfer.status, transfer.done = transfer.ended, True

    def cancel(self, transfer: Transfer) -> None:
        """Make a transfer end as cancelled; one that has already ended stays as it is."""
        if not transfer.ended and transfer.bus is not None:
            transfer.bus.end(transfer, "cancelled")

    def end(self, handle: Handle) -> int:
        """Cancel all transfers of a handle and wait for their ends, which must come before closing it; return how many
        remain.
        """
        for transfer in handle.in_flight:
            self.cancel(transfer)
        for _ in handle.in_flight:
            if handle.in_flight:
                self.handle_events(END_MS)
        return len(handle.in_flight)

    def alloc_streams(self, handle: Handle, count: int, endpoints: Sequence[int]) -> int:
        """Allocate streams 1 to `count` for bulk endpoints of a SuperSpeed device; return how many there are."""
        attached = self._check_attached(handle.attached)
        count = min(count, STREAMS)
        if not attached.speed.super_speed or count < 1:
            raise usb_error("invalid")
        for endpoint in endpoints:
            interface = attached.interface_of(endpoint)
            if interface is None or attached.claims.get(interface) is not handle:
                raise usb_error("not_found")
            count = min(count, _streams_of(attached.alternate(interface), endpoint))
        if count < 1:
            raise usb_error("invalid")
        attached.streams.update(dict.fromkeys(endpoints, count))
        return count

    def free_streams(self, handle: Handle, endpoints: Sequence[int]) -> None:
        """Free the streams of endpoints."""
        attached = self._check_attached(handle.attached)
        for endpoint in endpoints:
            attached.streams.pop(endpoint, None)

    # --- inside -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _check_attached(attached: Attached) -> Attached:
        if not attached.bus.connected:
            raise usb_error("no_device")
        return attached

    @staticmethod
    def _request(attached: Attached, key: tuple[int, int], value: int, index: int = 0) -> Transfer:
        return Transfer(0, 0, SETUP.pack(*key, value, index, 0), b"", 0)

    def _control_request(self, attached: Attached, key: tuple[int, int], value: int, index: int = 0) -> None:
        """Send a standard request without data, as the operating system does, and wait for it."""
        transfer = self._request(attached, key, value, index)
        attached.bus.submit(transfer, REQUEST_MS)
        self._wait(transfer)
        if transfer.status != "completed":
            raise usb_error(transfer.status)

    def _wait(self, transfer: Transfer) -> None:
        assert self.clock is not None
        end_ns = self.clock.now_ns + NO_LIMIT_MS * 1_000_000
        while not transfer.done:
            if self.clock.now_ns >= end_ns:
                self.cancel(transfer)
                raise GuestError(f"a transfer on endpoint {transfer.endpoint:#04x} has no time-out and never ends")
            self.handle_events(NO_LIMIT_MS)

    def _finish(self, transfer: Transfer, buffer: array[int]) -> int:
        """Wait as libusb does: a bulk transfer that timed out after some bytes returns their count."""
        self._wait(transfer)
        partial = transfer.endpoint and transfer.status == "timed_out" and transfer.actual
        if transfer.status != "completed" and not partial:
            raise usb_error(transfer.status)
        data = transfer.data
        memoryview(buffer).cast("B")[: len(data)] = data
        return transfer.actual


def _streams_of(alternate: Alternate, address: int) -> int:
    """Return how many streams an endpoint's companion descriptor offers."""
    for endpoint in alternate.endpoints:
        if endpoint.bEndpointAddress == address:
            extra = bytes(endpoint.extra_descriptors)
            return 1 << (extra[3] & 0x1F) if len(extra) >= 6 and extra[1] == 0x30 and extra[3] else 0
    return 0
