"""A virtual USB device imported by a remote kernel: its transfers, and the configuration that the kernel sets.

It uses a USB host by shape: a pyusb backend that also has `submit`, `handle_events` and `cancel`. Requests that a USB
stack must know of (configuration, alternate setting, cleared halts) use the host's own calls, as in Linux's stub
driver; all others are passed on unchanged.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from usb.core import USBError

from ringup.silicon.serve import usbip_wire as wire
from ringup.silicon.serve.usbip_wire import Record, Speed, Status, Submit, Unlink

LOG = logging.getLogger(__name__)
# by libusb's number
SPEEDS = {1: Speed.LOW, 2: Speed.FULL, 3: Speed.HIGH, 4: Speed.SUPER, 5: Speed.SUPER, 6: Speed.SUPER}
MAX_PENDING = 1024
MAX_PENDING_BYTES = 64 << 20
# TIMEOUT: in the device's time; a host ends a cancelled transfer within about a frame
CANCEL_MS = 1000.0
# bmRequestType, bRequest
SET_ADDRESS, CLEAR_HALT, SET_CONFIGURATION, SET_INTERFACE = (0x00, 5), (0x02, 1), (0x00, 9), (0x01, 11)
ENDED = {  # by the host's name for the end of a transfer
    "completed": Status.OK,
    "timed_out": Status.ETIMEDOUT,
    "stall": Status.EPIPE,
    "no_device": Status.ESHUTDOWN,
    "overflow": Status.EOVERFLOW,
    "error": Status.EPROTO,
    "cancelled": Status.ECONNRESET,
}
# by USBError.errno; else EPROTO
REFUSED = {errno.EPIPE: Status.EPIPE, errno.ENODEV: Status.ESHUTDOWN, errno.ENOMEM: Status.ENOMEM}


class Transfer(Protocol):
    """A transfer in flight, or one that has ended."""

    done: bool
    status: str
    data: bytes
    actual: int


class Host(Protocol):
    """A USB host: the used part of pyusb's backend, and non-blocking transfers. `handle_events` lets the devices' time
    pass.
    """

    def enumerate_devices(self) -> Any: ...
    def get_device_descriptor(self, dev: Any) -> Any: ...
    def get_configuration_descriptor(self, dev: Any, config: int) -> Any: ...
    def get_interface_descriptor(self, dev: Any, intf: int, alt: int, config: int) -> Any: ...
    def get_endpoint_descriptor(self, dev: Any, ep: int, intf: int, alt: int, config: int) -> Any: ...
    def open_device(self, dev: Any) -> Any: ...
    def close_device(self, dev_handle: Any) -> None: ...
    def set_configuration(self, dev_handle: Any, config_value: int) -> None: ...
    def get_configuration(self, dev_handle: Any) -> int: ...
    def set_interface_altsetting(self, dev_handle: Any, intf: int, altsetting: int) -> None: ...
    def claim_interface(self, dev_handle: Any, intf: int) -> None: ...
    def release_interface(self, dev_handle: Any, intf: int) -> None: ...
    def clear_halt(self, dev_handle: Any, ep: int) -> None: ...
    def is_kernel_driver_active(self, dev_handle: Any, intf: int) -> bool: ...
    def detach_kernel_driver(self, dev_handle: Any, intf: int) -> None: ...
    def submit(
        self, handle: Any, endpoint: int, payload: Any, *, setup: bytes = b"", timeout_ms: int, stream: int = 0
    ) -> Transfer: ...
    def handle_events(self, timeout_ms: float) -> None: ...
    def cancel(self, transfer: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Exported:
    """A device of a host that can be imported."""

    host: Host
    device: Any
    record: Record


def exports(hosts: Sequence[Host]) -> Iterator[Exported]:
    """List the devices plugged in now. A device's bus is the index of its host in `hosts`, from 1; the rest of its name
    are its ports: `1-1`, `2-1.4`.
    """
    for bus, host in enumerate(hosts, 1):
        for device in host.enumerate_devices():
            yield Exported(host, device, _record(bus, host, device))


def _record(bus: int, host: Host, device: Any) -> Record:
    seen = host.get_device_descriptor(device)
    config = host.get_configuration_descriptor(device, 0)
    interfaces = [host.get_interface_descriptor(device, number, 0, 0) for number in range(config.bNumInterfaces)]
    ports = ".".join(map(str, seen.port_numbers or (seen.address,)))
    return Record(
        bus_id=f"{bus}-{ports}",
        bus=bus,
        address=seen.address,
        speed=SPEEDS.get(seen.speed, Speed.UNKNOWN),
        vendor=seen.idVendor,
        product=seen.idProduct,
        release=seen.bcdDevice,
        device_class=(seen.bDeviceClass, seen.bDeviceSubClass, seen.bDeviceProtocol),
        configuration=config.bConfigurationValue,
        configurations=seen.bNumConfigurations,
        interfaces=tuple((one.bInterfaceClass, one.bInterfaceSubClass, one.bInterfaceProtocol) for one in interfaces),
    )


@dataclass(slots=True)
class _Pending:
    """A transfer in progress. `tail`: the empty packet after it; `taken_back`: the command that cancels it."""

    command: Submit
    transfer: Transfer
    tail: Transfer | None = None
    taken_back: Unlink | None = None

    @property
    def done(self) -> bool:
        return self.transfer.done and (self.tail is None or self.tail.done)


class Session:
    """One imported device. `send` sends messages to the importer; `gone` is set once the device has disappeared."""

    def __init__(self, exported: Exported, send: Callable[[bytes], None]) -> None:
        """Open the device and detach its host's drivers. Raises `USBError` if it cannot be opened."""
        self.host, self.record = exported.host, exported.record
        self.gone = False
        self._device, self._send = exported.device, send
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._claimed: list[int] = []
        self._settings: dict[int, int] = {}
        self._handle: Any = None
        self._packet_bytes: dict[int, int] = {}
        self._special = {
            SET_ADDRESS: self._refuse,
            SET_CONFIGURATION: lambda value, index: self._configure(value),
            SET_INTERFACE: lambda value, index: self._set_interface(index, value),
            CLEAR_HALT: lambda value, index: self.host.clear_halt(self._handle, index & 0xFF),
        }
        self._handle = self.host.open_device(self._device)
        try:
            if self.host.get_configuration(self._handle):
                self._claim()
        except BaseException:
            self.host.close_device(self._handle)
            raise

    @property
    def pending(self) -> int:
        """How many transfers are in flight."""
        return len(self._pending)

    def submit(self, command: Submit, payload: bytes) -> None:
        """Begin a transfer, or answer at once why not. Raises `ValueError` for a sequence number in use."""
        if command.seqnum in self._pending:
            raise ValueError(f"transfer {command.seqnum} is already in flight")
        if self.gone:
            self._send(wire.ret_submit(command, Status.ESHUTDOWN, 0))
        elif self.pending >= MAX_PENDING or self._pending_bytes + command.size_bytes > MAX_PENDING_BYTES:
            self._send(wire.ret_submit(command, Status.ENOMEM, 0))
        elif command.endpoint:
            self._bulk(command, payload)
        else:
            self._control(command, payload)

    def unlink(self, command: Unlink) -> None:
        """Cancel a transfer; the answer follows when the host has ended it."""
        pending = self._pending.get(command.target)
        if pending is None or pending.taken_back:
            self._send(wire.ret_unlink(command, Status.OK))
            return
        pending.taken_back = command
        self._cancel(pending)

    def reap(self) -> int:
        """Answer transfers that have ended, in the order of their submission; return how many."""
        ended = [pending for pending in self._pending.values() if pending.done]
        for pending in ended:
            del self._pending[pending.command.seqnum]
            self._pending_bytes -= pending.command.size_bytes
            self._answer(pending)
        return len(ended)

    def close(self) -> None:
        """End everything in flight and release the device. Harmless for a device that is gone."""
        for pending in self._pending.values():
            self._cancel(pending)
        waiting = self.pending
        while waiting and not self.gone:
            self.host.handle_events(CANCEL_MS)
            self._pending = {number: pending for number, pending in self._pending.items() if not pending.done}
            if self.pending == waiting:
                LOG.warning("%s: %d cancelled transfers did not end", self.record.bus_id, waiting)
                break
            waiting = self.pending
        self._pending.clear()
        try:
            self._release()
        except USBError as error:
            LOG.debug("%s: releasing it: %s", self.record.bus_id, error)
        finally:
            self.host.close_device(self._handle)

    def _bulk(self, command: Submit, payload: bytes) -> None:
        packet = self._packet_bytes.get(command.endpoint)
        # as on a bus: no endpoint answers
        if packet is None:
            self._send(wire.ret_submit(command, Status.EPROTO, 0))
            return
        empty_last = (
            command.flags & wire.URB_ZERO_PACKET and not command.into_host and payload and len(payload) % packet == 0
        )
        self._begin(command, command.size_bytes if command.into_host else payload, b"\0" if empty_last else b"")

    def _control(self, command: Submit, payload: bytes) -> None:
        kind, request = command.setup[0], command.setup[1]
        value, index, length = (int.from_bytes(command.setup[at : at + 2], "little") for at in (2, 4, 6))
        # Source: Linux drivers/usb/core/urb.c, usb_submit_urb
        if length != command.size_bytes:
            self._send(wire.ret_submit(command, Status.EBADR, 0))
        elif length and bool(kind & 0x80) != command.into_host:
            self._send(wire.ret_submit(command, Status.EINVAL, 0))
        elif (kind, request) in self._special and not length:
            self._send(wire.ret_submit(command, self._try(self._special[kind, request], value, index), 0))
        else:
            self._begin(command, length if command.into_host else payload)

    def _begin(self, command: Submit, payload: int | bytes, tail: bytes = b"") -> None:
        setup = b"" if command.endpoint else command.setup

        def start() -> None:
            first = self.host.submit(self._handle, command.endpoint, payload, setup=setup, timeout_ms=0)
            self._pending[command.seqnum] = pending = _Pending(command, first)
            self._pending_bytes += command.size_bytes
            if tail:
                pending.tail = self.host.submit(self._handle, command.endpoint, b"", timeout_ms=0)

        status = self._try(start)
        if status:
            self._send(wire.ret_submit(command, status, 0))

    def _answer(self, pending: _Pending) -> None:
        command, transfer = pending.command, pending.transfer
        status = ENDED.get(transfer.status, Status.EPROTO)
        if status == Status.OK and pending.tail is not None:
            status = ENDED.get(pending.tail.status, Status.EPROTO)
        self.gone |= status == Status.ESHUTDOWN
        short = command.into_host and transfer.actual < command.size_bytes
        if status == Status.OK and short and command.flags & wire.URB_SHORT_NOT_OK:
            status = Status.EREMOTEIO
        if pending.taken_back and status == Status.ECONNRESET and not transfer.actual:
            self._send(wire.ret_unlink(pending.taken_back, Status.ECONNRESET))
            return
        # Bytes that moved before the cancellation need an ordinary answer: the answer to an unlink carries no data.
        self._send(wire.ret_submit(command, status, transfer.actual, transfer.data if command.into_host else b""))
        if pending.taken_back:
            self._send(wire.ret_unlink(pending.taken_back, Status.OK))

    def _cancel(self, pending: _Pending) -> None:
        for transfer in (pending.transfer, pending.tail):
            if transfer is not None and not transfer.done:
                self.host.cancel(transfer)

    def _try(self, action: Callable[..., object], *arguments: int) -> Status:
        """Call the host and turn its refusal into a status."""
        try:
            action(*arguments)
        except USBError as error:
            status = REFUSED.get(error.errno or 0, Status.EPROTO)
            self.gone |= status == Status.ESHUTDOWN
            LOG.debug("%s: the host refused: %s", self.record.bus_id, error)
            return status
        except (NotImplementedError, IndexError) as error:
            LOG.debug("%s: the host refused: %r", self.record.bus_id, error)
            return Status.EPIPE
        return Status.OK

    def _refuse(self, value: int, index: int) -> None:
        raise NotImplementedError("a device's address is assigned by the host that it is plugged into")

    def _configure(self, value: int) -> None:
        self._release()
        self.host.set_configuration(self._handle, value)
        if value:
            self._claim()

    def _claim(self) -> None:
        """Claim every interface of the configuration, so that all transfers can be passed on."""
        config = self.host.get_configuration_descriptor(self._device, self._config_index())
        for number in range(config.bNumInterfaces):
            if self._try(self._detach, number) == Status.ESHUTDOWN:
                return
            self.host.claim_interface(self._handle, number)
            self._claimed.append(number)
            self._settings[number] = 0
        self._read_endpoints()

    def _detach(self, number: int) -> None:
        if self.host.is_kernel_driver_active(self._handle, number):
            self.host.detach_kernel_driver(self._handle, number)

    def _release(self) -> None:
        self._packet_bytes.clear()
        self._settings.clear()
        while self._claimed:
            self.host.release_interface(self._handle, self._claimed.pop())

    def _set_interface(self, number: int, setting: int) -> None:
        self.host.set_interface_altsetting(self._handle, number, setting)
        self._settings[number] = setting
        self._read_endpoints()

    def _config_index(self) -> int:
        """Return the index of the current configuration's descriptor."""
        value = self.host.get_configuration(self._handle)
        count = self.host.get_device_descriptor(self._device).bNumConfigurations
        values = [self.host.get_configuration_descriptor(self._device, at).bConfigurationValue for at in range(count)]
        return values.index(value) if value in values else 0

    def _read_endpoints(self) -> None:
        """Store the packet size of every active endpoint."""
        config = self._config_index()
        self._packet_bytes.clear()
        for number, setting in self._settings.items():
            count = self.host.get_interface_descriptor(self._device, number, setting, config).bNumEndpoints
            for at in range(count):
                endpoint = self.host.get_endpoint_descriptor(self._device, at, number, setting, config)
                self._packet_bytes[endpoint.bEndpointAddress] = endpoint.wMaxPacketSize & 0x7FF
