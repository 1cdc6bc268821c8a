"""A small USB device and its host: bulk data is returned, a source and a sink run freely, and faults can be requested.

It tests a path (USB/IP, a kernel, libusb) without a bridge. The host is a pyusb backend with non-blocking transfers.

| vendor request | |
|---|---|
| 1 OUT, IN | store up to 4096 bytes; return them |
| 2 OUT | wValue: from now on every transfer takes so many milliseconds |
| 3 OUT | wIndex: that endpoint stalls until its halt is cleared |
| 4 OUT | unplug itself after wValue milliseconds; return wIndex milliseconds later (0: never) |
| 5 IN | number of bytes received by endpoint 0x04: 8 bytes, little-endian |

Alternate setting 0: data from 0x02 OUT returns at 0x81 IN, packet by packet. Setting 1 adds 0x83 IN, a source that
repeats the bytes 0…250, and 0x04 OUT, a sink. Any other request stalls.
"""

from __future__ import annotations

import errno
import struct
from array import array
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from usb.backend import IBackend
from usb.core import USBError, USBTimeoutError

from ringup.silicon.common.clock import VirtualClock

VENDOR, PRODUCT = 0x1209, 0x0001  # the test id of pid.codes
STRINGS = ("", "ringup", "loopback", "000001")
SUPER, HIGH = 4, 3  # libusb's speed numbers
PACKET_BYTES = {SUPER: 1024, HIGH: 512}
LOOP_IN, LOOP_OUT, SOURCE, SINK = 0x81, 0x02, 0x83, 0x04
SETTINGS = ((LOOP_IN, LOOP_OUT), (LOOP_IN, LOOP_OUT, SOURCE, SINK))
# with more held bytes, 0x02 accepts nothing until some are fetched
HELD_BYTES = 1 << 20
KEPT_BYTES = 4096
KEEP, DELAY, STALL, UNPLUG, COUNT = 1, 2, 3, 4, 5
BYTES_PER_US = 400
TRANSFER_US = 30.0
# 251 is no power of two, so a lost packet is noticed
PATTERN = bytes(range(251)) * 67
LIBUSB = {errno.ENODEV: -4, errno.ENOENT: -5, errno.EBUSY: -6, errno.EPIPE: -9, errno.EINVAL: -2, errno.EIO: -1}
ERRNO = {"stall": errno.EPIPE, "no_device": errno.ENODEV}
DEVICE, CONFIG, STRING, INTERFACE, ENDPOINT, BOS, COMPANION = 1, 2, 3, 4, 5, 15, 48


def usb_error(number: int, text: str) -> USBError:
    """Return the exception that pyusb's libusb backend would raise."""
    return USBError(text, LIBUSB.get(number, -99), number)


class LoopbackTransfer:
    """One transfer. `size_bytes`: its length, or the capacity of an IN transfer."""

    def __init__(self, endpoint: int, setup: bytes, payload: bytes, size_bytes: int) -> None:
        self.endpoint, self.setup, self.payload, self.size_bytes = endpoint, setup, payload, size_bytes
        self.done, self.status, self.actual = False, "", 0
        self.arrived = bytearray()

    @property
    def data(self) -> bytes:
        """The received bytes."""
        return bytes(self.arrived)


class LoopbackHost(IBackend):  # type: ignore[misc]  # pyusb has no types
    """The host with its one port. `clock` is the device's time."""

    def __init__(self, speed: int = SUPER, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.speed = speed
        self.address = 1
        self.plugged = True
        self.opened = 0
        self.claimed: set[int] = set()
        self._packet = PACKET_BYTES[speed]
        self._queues: dict[int, deque[LoopbackTransfer]] = {}
        self._power_on()

    def _power_on(self) -> None:
        self.configuration, self.setting = 0, 0
        self.halted: set[int] = set()
        self.kept, self.swallowed, self.delay_us = b"", 0, 0.0
        self._held: deque[bytes] = deque()
        self._source_at = 0

    # Actions of a person

    def unplug(self) -> None:
        """Remove the device: transfers in flight end as `no_device`."""
        self.plugged = False
        self.claimed.clear()
        for queue in self._queues.values():
            while queue:
                self._end(queue[0], "no_device")

    def plug(self) -> None:
        """Plug the device in as new, with another address."""
        self._power_on()
        self.plugged, self.address = True, self.address + 1

    # Non-blocking transfers

    def submit(
        self, handle: Any, endpoint: int, payload: Any, *, setup: bytes = b"", timeout_ms: int, stream: int = 0
    ) -> LoopbackTransfer:
        """Begin a transfer. Raises `USBError` if the device is unplugged or lacks the endpoint, or the interface is not
        claimed.
        """
        self._check()
        if stream:
            raise usb_error(errno.EINVAL, "none of these endpoints has streams")
        if endpoint and (not self.configuration or endpoint not in SETTINGS[self.setting]):
            raise usb_error(errno.ENOENT, f"no endpoint {endpoint:#x}")
        if endpoint and 0 not in self.claimed:
            raise usb_error(errno.EBUSY, "the interface is not claimed")
        size = payload if isinstance(payload, int) else len(payload)
        transfer = LoopbackTransfer(endpoint, setup, b"" if isinstance(payload, int) else bytes(payload), size)
        queue = self._queues.setdefault(endpoint, deque())
        queue.append(transfer)
        if timeout_ms:
            self.clock.after(timeout_ms * 1000, lambda: self._end(transfer, "timed_out"))
        if len(queue) == 1:
            self._start(transfer)
        return transfer

    def cancel(self, transfer: LoopbackTransfer) -> None:
        """Cancel a transfer; it ends as soon as time passes."""
        self.clock.after(0, lambda: self._end(transfer, "cancelled"))

    def handle_events(self, timeout_ms: float) -> None:
        """Let time pass until a transfer in flight has ended, or for `timeout_ms`."""
        before = self._in_flight()
        self.clock.run_until(lambda: self._in_flight() < before, timeout_ms * 1000)

    def alloc_streams(self, handle: Any, count: int, endpoints: Any) -> int:
        """Refuse: there are none."""
        raise usb_error(errno.EINVAL, "none of these endpoints has streams")

    def free_streams(self, handle: Any, endpoints: Any) -> None:
        """Refuse: there are none."""
        raise usb_error(errno.EINVAL, "none of these endpoints has streams")

    def _in_flight(self) -> int:
        return sum(map(len, self._queues.values()))

    def _start(self, transfer: LoopbackTransfer) -> None:
        took_us = TRANSFER_US + transfer.size_bytes / BYTES_PER_US + self.delay_us
        self.clock.after(took_us, lambda: self._work(transfer))

    def _end(self, transfer: LoopbackTransfer, status: str) -> None:
        if transfer.done:
            return
        transfer.done, transfer.status = True, status
        queue = self._queues[transfer.endpoint]
        first = queue[0] is transfer
        queue.remove(transfer)
        if first and queue and self.plugged:
            self._start(queue[0])

    def _work(self, transfer: LoopbackTransfer) -> None:
        if transfer.done:
            return
        if transfer.endpoint in self.halted:
            self._end(transfer, "stall")
        elif transfer.endpoint == 0:
            self._control(transfer)
        elif transfer.endpoint == SOURCE:
            self._emit(transfer)
        elif transfer.endpoint == SINK:
            self.swallowed += transfer.size_bytes
            self._finish(transfer)
        elif transfer.endpoint == LOOP_OUT:
            self._hold(transfer)
        else:
            self._fetch(transfer)

    def _finish(self, transfer: LoopbackTransfer) -> None:
        transfer.actual = len(transfer.arrived) if transfer.endpoint & 0x80 else transfer.size_bytes
        self._end(transfer, "completed")

    def _emit(self, transfer: LoopbackTransfer) -> None:
        while len(transfer.arrived) < transfer.size_bytes:
            start = self._source_at % 251
            piece = PATTERN[start : start + min(16 << 10, transfer.size_bytes - len(transfer.arrived))]
            transfer.arrived += piece
            self._source_at += len(piece)
        self._finish(transfer)

    def _hold(self, transfer: LoopbackTransfer) -> None:
        if sum(map(len, self._held)) + transfer.size_bytes > HELD_BYTES and self._held:
            # full: retried when data has been fetched
            return
        pieces = range(0, max(transfer.size_bytes, 1), self._packet)
        self._held += (transfer.payload[at : at + self._packet] for at in pieces)
        self._finish(transfer)
        self._retry(LOOP_IN)

    def _fetch(self, transfer: LoopbackTransfer) -> None:
        while self._held:
            room = transfer.size_bytes - len(transfer.arrived)
            if room < len(self._held[0]):
                self._end(transfer, "overflow")
                return
            packet = self._held.popleft()
            transfer.arrived += packet
            transfer.actual = len(transfer.arrived)
            if len(packet) < self._packet or transfer.actual == transfer.size_bytes:
                self._finish(transfer)
                break
        self._retry(LOOP_OUT)

    def _retry(self, endpoint: int) -> None:
        """Retry the first transfer of an endpoint, which could not be served before."""
        queue = self._queues.get(endpoint)
        if queue:
            first = queue[0]
            self.clock.after(0, lambda: self._work(first))

    # Requests

    def _control(self, transfer: LoopbackTransfer) -> None:
        kind, request, value, index, length = struct.unpack("<BBHHH", transfer.setup)
        answer = (
            self._standard(kind, request, value)
            if not kind & 0x60
            else self._vendor(transfer, kind, request, value, index)
        )
        if answer is None:
            self._end(transfer, "stall")
            return
        transfer.arrived += answer[:length]
        transfer.actual = len(transfer.arrived) if kind & 0x80 else length
        self._end(transfer, "completed")

    def _standard(self, kind: int, request: int, value: int) -> bytes | None:
        if (kind, request) == (0x80, 6):
            return self._descriptor(value >> 8, value & 0xFF)
        answers = {
            (0x80, 0): b"\x01\x00",
            (0x82, 0): b"\x00\x00",
            (0x81, 0): b"\x00\x00",
            (0x80, 8): bytes((self.configuration,)),
            (0x81, 10): bytes((self.setting,)),
            (0x00, 48): b"",  # SET_SEL
            (0x00, 49): b"",  # SET_ISOCH_DELAY
            (0x00, 3): b"",  # SET_FEATURE: U1, U2
            (0x00, 1): b"",
        }
        return answers.get((kind, request))

    def _vendor(self, transfer: LoopbackTransfer, kind: int, request: int, value: int, index: int) -> bytes | None:
        into_host = bool(kind & 0x80)
        if request == KEEP and not into_host and transfer.size_bytes <= KEPT_BYTES:
            self.kept = transfer.payload
        elif request == KEEP and into_host:
            return self.kept
        elif request == COUNT and into_host:
            return self.swallowed.to_bytes(8, "little")
        elif request == DELAY and not into_host:
            self.delay_us = value * 1000.0
        elif request == STALL and not into_host:
            self.halted.add(index)
        elif request == UNPLUG and not into_host:
            self.clock.after(value * 1000, self.unplug)
            if index:
                self.clock.after((value + index) * 1000, self.plug)
        else:
            return None
        return b""

    # Descriptors: the bytes, and the objects for pyusb

    def _descriptor(self, kind: int, number: int) -> bytes | None:
        if kind == DEVICE:
            return self._device_bytes()
        if kind == CONFIG and number == 0:
            return self._config_bytes()
        if kind == STRING and number < len(STRINGS):
            text = STRINGS[number].encode("utf-16-le") if number else b"\x09\x04"
            return bytes((len(text) + 2, STRING)) + text
        if kind == BOS and self.speed == SUPER:
            capabilities = (struct.pack("<BBBI", 7, 16, 2, 2), struct.pack("<BBBBHBBH", 10, 16, 3, 0, 0x000E, 3, 0, 0))
            return struct.pack("<BBHB", 5, BOS, 5 + sum(map(len, capabilities)), 2) + b"".join(capabilities)
        return None

    def _device_bytes(self) -> bytes:
        version, first = (0x0300, 9) if self.speed == SUPER else (0x0200, 64)
        return struct.pack("<BBHBBBBHHHBBBB", 18, DEVICE, version, 0, 0, 0, first, VENDOR, PRODUCT, 0x0100, 1, 2, 3, 1)

    def _config_bytes(self) -> bytes:
        body = b""
        for setting, endpoints in enumerate(SETTINGS):
            body += struct.pack("<9B", 9, INTERFACE, 0, setting, len(endpoints), 0xFF, 0xFF, 0xFF, 0)
            for address in endpoints:
                body += struct.pack("<BBBBHB", 7, ENDPOINT, address, 2, self._packet, 0)
                body += struct.pack("<BBBBH", 6, COMPANION, 15, 0, 0) if self.speed == SUPER else b""
        return struct.pack("<BBHBBBBB", 9, CONFIG, 9 + len(body), 1, 1, 0, 0xC0, 0) + body

    def enumerate_devices(self) -> Iterator[LoopbackHost]:
        """Iterate over the one device, if it is plugged in."""
        return iter((self,) if self.plugged else ())

    def get_parent(self, dev: Any) -> None:
        """Return None: the device is plugged into the root."""

    def get_device_descriptor(self, dev: Any) -> Any:
        names = "bLength bDescriptorType bcdUSB bDeviceClass bDeviceSubClass bDeviceProtocol bMaxPacketSize0 idVendor idProduct bcdDevice"
        names += " iManufacturer iProduct iSerialNumber bNumConfigurations"
        values = struct.unpack("<BBHBBBBHHHBBBB", self._device_bytes())
        place = {"bus": 1, "address": self.address, "speed": self.speed, "port_number": 1, "port_numbers": (1,)}
        return SimpleNamespace(**dict(zip(names.split(), values, strict=True)), **place)

    def get_configuration_descriptor(self, dev: Any, config: int) -> Any:
        if config:
            raise IndexError(f"no configuration {config}")
        names = "bLength bDescriptorType wTotalLength bNumInterfaces bConfigurationValue iConfiguration bmAttributes bMaxPower"
        values = struct.unpack("<BBHBBBBB", self._config_bytes()[:9])
        return SimpleNamespace(**dict(zip(names.split(), values, strict=True)), extra_descriptors=[])

    def get_interface_descriptor(self, dev: Any, intf: int, alt: int, config: int) -> Any:
        if intf or config or alt >= len(SETTINGS):
            raise IndexError(f"no interface {intf}, setting {alt}")
        names = "bLength bDescriptorType bInterfaceNumber bAlternateSetting bNumEndpoints bInterfaceClass bInterfaceSubClass bInterfaceProtocol"
        values = (9, INTERFACE, 0, alt, len(SETTINGS[alt]), 0xFF, 0xFF, 0xFF)
        return SimpleNamespace(**dict(zip(names.split(), values, strict=True)), iInterface=0, extra_descriptors=[])

    def get_endpoint_descriptor(self, dev: Any, ep: int, intf: int, alt: int, config: int) -> Any:
        if alt >= len(SETTINGS) or ep >= len(SETTINGS[alt]):
            raise IndexError(f"no endpoint {ep} of setting {alt}")
        names = "bLength bDescriptorType bEndpointAddress bmAttributes wMaxPacketSize bInterval"
        values = (7, ENDPOINT, SETTINGS[alt][ep], 2, self._packet, 0)
        more = {"bRefresh": 0, "bSynchAddress": 0, "extra_descriptors": []}
        return SimpleNamespace(**dict(zip(names.split(), values, strict=True)), **more)

    # Blocking calls

    def _check(self) -> None:
        if not self.plugged:
            raise usb_error(errno.ENODEV, "the device is unplugged")

    def open_device(self, dev: Any) -> LoopbackHost:
        self._check()
        self.opened += 1
        return self

    def close_device(self, dev_handle: Any) -> None:
        self.opened -= 1
        self.claimed.clear()

    def get_configuration(self, dev_handle: Any) -> int:
        self._check()
        return self.configuration

    def set_configuration(self, dev_handle: Any, config_value: int) -> None:
        self._check()
        if config_value not in (0, 1):
            raise usb_error(errno.ENOENT, f"no configuration {config_value}")
        self.configuration, self.setting = config_value, 0
        self.halted.clear()
        self._held.clear()

    def set_interface_altsetting(self, dev_handle: Any, intf: int, altsetting: int) -> None:
        self._check()
        if intf or altsetting >= len(SETTINGS):
            raise usb_error(errno.ENOENT, f"no interface {intf}, setting {altsetting}")
        self.setting, self._source_at = altsetting, 0
        self.halted.clear()

    def claim_interface(self, dev_handle: Any, intf: int) -> None:
        self._check()
        self.claimed.add(intf)

    def release_interface(self, dev_handle: Any, intf: int) -> None:
        self._check()
        self.claimed.discard(intf)

    def clear_halt(self, dev_handle: Any, ep: int) -> None:
        self._check()
        self.halted.discard(ep)

    def is_kernel_driver_active(self, dev_handle: Any, intf: int) -> bool:
        return False

    def ctrl_transfer(
        self, dev_handle: Any, request_type: int, request: int, value: int, index: int, data: Any, timeout: int
    ) -> int:
        setup = struct.pack("<BBHHH", request_type, request, value, index, len(data))
        payload = len(data) if request_type & 0x80 else data.tobytes()
        return self._wait(self.submit(dev_handle, 0, payload, setup=setup, timeout_ms=timeout), data)

    def bulk_write(self, dev_handle: Any, ep: int, intf: int, data: Any, timeout: int) -> int:
        return self._wait(self.submit(dev_handle, ep, data.tobytes(), timeout_ms=timeout), data)

    def bulk_read(self, dev_handle: Any, ep: int, intf: int, buff: Any, timeout: int) -> int:
        return self._wait(self.submit(dev_handle, ep, len(buff) * buff.itemsize, timeout_ms=timeout), buff)

    def _wait(self, transfer: LoopbackTransfer, buffer: array[int]) -> int:
        while not transfer.done:
            self.handle_events(60_000)
        if transfer.status == "timed_out" and not transfer.actual:
            raise USBTimeoutError("the transfer timed out", -7, errno.ETIMEDOUT)
        if transfer.status not in ("completed", "timed_out"):
            number = ERRNO.get(transfer.status, errno.EIO)
            raise usb_error(number, f"the transfer ended as {transfer.status}")
        buffer[: len(transfer.arrived)] = array("B", transfer.arrived)
        return transfer.actual
