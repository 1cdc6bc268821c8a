"""Messages of the USB/IP protocol 1.1.1: requests for a list or a device, then transfers with 48-byte headers. All
numbers are big-endian.

Source: Linux Documentation/usb/usbip_protocol.rst; status words: tools/usb/usbip/libsrc/usbip_common.h; URB flags: uapi
linux/usbip.h. Error numbers on the wire are Linux's, whatever this machine's are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ringup.errors import TransportError

VERSION = 0x0111
REQ_DEVLIST, REP_DEVLIST = 0x8005, 0x0005
REQ_IMPORT, REP_IMPORT = 0x8003, 0x0003
CMD_SUBMIT, CMD_UNLINK, RET_SUBMIT, RET_UNLINK = 1, 2, 3, 4
DIR_OUT, DIR_IN = 0, 1
URB_SHORT_NOT_OK, URB_ZERO_PACKET = 0x0001, 0x0040
# the protocol's text demands the second, Linux sends the first
NOT_ISOCHRONOUS = (0, 0xFFFF_FFFF)
ENDPOINTS = 16

OPERATION = struct.Struct(">HHI")  # version, code, status
BUS_ID_BYTES = 32
DEVICE = struct.Struct(">256s32sIIIHHHBBBBBB")
HEADER_BYTES = 48
BASIC = struct.Struct(">5I")  # command, seqnum, devid, direction, endpoint
# transfer flags, length, first frame, ISO packets, interval, SETUP packet
SUBMIT = struct.Struct(">5I5I8s")
UNLINK = struct.Struct(">5II24x")
# status, actual length, first frame, ISO packets, errors
RETURN = struct.Struct(">5IiIIII8x")


class Refusal(IntEnum):
    """Why an import is refused: the status of the reply."""

    NONE = 0
    BUSY = 2
    NO_DEVICE = 4
    ERROR = 5


class Status(IntEnum):
    """How a transfer ended: Linux's error numbers, negated."""

    OK = 0
    ENOMEM = -12
    EINVAL = -22
    EPIPE = -32
    EBADR = -53
    EPROTO = -71
    EOVERFLOW = -75
    ECONNRESET = -104
    ESHUTDOWN = -108
    ETIMEDOUT = -110
    EREMOTEIO = -121


class Speed(IntEnum):
    """Speeds as in Linux's enum usb_device_speed. vhci's root hub is at most SuperSpeed, so faster devices
    report that.
    """

    UNKNOWN = 0
    LOW = 1
    FULL = 2
    HIGH = 3
    SUPER = 5


@dataclass(frozen=True, slots=True)
class Submit:
    """A command to start a transfer. `endpoint` has the direction in bit 7; endpoint 0 has it clear."""

    seqnum: int
    devid: int
    endpoint: int
    into_host: bool
    flags: int
    size_bytes: int
    packets: int
    setup: bytes

    @property
    def payload_bytes(self) -> int:
        """How many bytes follow the header."""
        return 0 if self.into_host else self.size_bytes


@dataclass(frozen=True, slots=True)
class Unlink:
    """A command to cancel the transfer with sequence number `target`."""

    seqnum: int
    devid: int
    target: int


@dataclass(frozen=True, slots=True)
class Record:
    """A device's entry in a list. `interfaces`: class, subclass and protocol of each."""

    bus_id: str
    bus: int
    address: int
    speed: Speed
    vendor: int
    product: int
    release: int
    device_class: tuple[int, int, int]
    configuration: int
    configurations: int
    interfaces: tuple[tuple[int, int, int], ...]

    @property
    def devid(self) -> int:
        """The device's number in the headers of its transfers."""
        return self.bus << 16 | self.address


def parse_operation(data: bytes) -> int:
    """Return the code of an 8-byte request. Raises `TransportError` for another protocol or version."""
    version, code, _ = OPERATION.unpack(data)
    if version != VERSION or code not in (REQ_DEVLIST, REQ_IMPORT):
        raise TransportError(f"not a request of USB/IP {VERSION:#06x}: version {version:#06x}, code {code:#06x}")
    return int(code)


def parse_bus_id(data: bytes) -> str:
    """Return the name in an import request; bytes that are no text match no device."""
    return data.partition(b"\0")[0].decode("ascii", "replace")


def parse_command(header: bytes, max_bytes: int) -> Submit | Unlink:
    """Parse a 48-byte header. Raises `TransportError` for an invalid one, or a transfer of more than `max_bytes`."""
    command, seqnum, devid, direction, endpoint = BASIC.unpack_from(header)
    if command == CMD_UNLINK:
        return Unlink(seqnum, devid, UNLINK.unpack(header)[5])
    if command != CMD_SUBMIT or direction not in (DIR_OUT, DIR_IN) or endpoint >= ENDPOINTS:
        raise TransportError(f"invalid command: command {command}, direction {direction}, endpoint {endpoint}")
    flags, size, _, packets, _, setup = SUBMIT.unpack(header)[5:]
    if packets not in NOT_ISOCHRONOUS:
        raise TransportError(f"an isochronous transfer of {packets} packets; none of these devices has such endpoints")
    if size > max_bytes:
        raise TransportError(f"a transfer of {size} bytes; the limit is {max_bytes}")
    into_host = direction == DIR_IN
    address = endpoint | (0x80 if into_host and endpoint else 0)
    return Submit(seqnum, devid, address, into_host, flags, size, packets, setup)


def ret_submit(command: Submit, status: int, actual: int, data: bytes = b"") -> bytes:
    """Return the answer to a transfer; `data` is what was received."""
    head = RETURN.pack(RET_SUBMIT, command.seqnum, 0, 0, 0, status, actual, 0, command.packets, 0)
    return head + data


def ret_unlink(command: Unlink, status: int) -> bytes:
    """Return the answer to an unlink: `Status.ECONNRESET` if the transfer gets no other answer, 0 if it had already
    ended.
    """
    return RETURN.pack(RET_UNLINK, command.seqnum, 0, 0, 0, status, 0, 0, 0, 0)


def device_list(records: Sequence[Record]) -> bytes:
    """Return the reply that lists the devices that can be imported."""
    parts = [OPERATION.pack(VERSION, REP_DEVLIST, Refusal.NONE), struct.pack(">I", len(records))]
    for record in records:
        parts.append(_pack(record))
        parts += (bytes((*triple, 0)) for triple in record.interfaces)
    return b"".join(parts)


def imported(record: Record) -> bytes:
    """Return the reply that grants a device; its transfers follow on the same connection."""
    return OPERATION.pack(VERSION, REP_IMPORT, Refusal.NONE) + _pack(record)


def refused(why: Refusal) -> bytes:
    """Return the reply that refuses a device."""
    return OPERATION.pack(VERSION, REP_IMPORT, why)


def _pack(record: Record) -> bytes:
    return DEVICE.pack(
        f"/sys/devices/ringup/usb{record.bus}/{record.bus_id}".encode(),
        record.bus_id.encode(),
        record.bus,
        record.address,
        record.speed,
        record.vendor,
        record.product,
        record.release,
        *record.device_class,
        record.configuration,
        record.configurations,
        len(record.interfaces),
    )
