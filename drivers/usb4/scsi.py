"""SCSI commands of an ASM2464PD with stock firmware or in its mask ROM: command blocks, sense data, and the choice
between two transports.

Source: docs/asm2464pd.md (vendor commands E0 to E8, read from the machine code of stock image 240417); SPC-4, 4.5
(sense data); SBC-3 (WRITE(16)); USB Attached SCSI, 5.3 (pipe usage descriptors); USB 3.2 specification, 9.6.7
(companion descriptors).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from ringup.drivers.usb4.port import Port
from ringup.errors import NotSupported, TransportError

# TIMEOUT: the bound of the bridge's other drivers for a command that does not access the flash
TIMEOUT_MS = 1_000
# TIMEOUT: erasing and writing 64 KiB takes about 2 s; the data sheets of flash chips allow ten times that
FLASH_TIMEOUT_MS = 30_000
TEST_UNIT_READY, REQUEST_SENSE, INQUIRY, WRITE_16 = 0x00, 0x03, 0x12, 0x8A
CONFIG_READ, CONFIG_WRITE, FLASH_READ, FLASH_WRITE, XDATA_READ, XDATA_WRITE, RESET = (
    0xE0,
    0xE1,
    0xE2,
    0xE3,
    0xE4,
    0xE5,
    0xE8,
)
# marks the vendor commands of this chip family; older chips have 0 there. Bit 0: the page, the set or the kind of reset
ASM246X = 0x50
# in FLASH_READ and FLASH_WRITE: the second part of an image
SECOND_PART = 0x80
# in RESET: leave the bus until the power is switched off
DETACH = ASM246X | 1
SENSE_BYTES, INQUIRY_BYTES, CONFIG_BYTES = 18, 36, 128
# of one command: its length field has one byte
MAX_XDATA_BYTES = 255
GOOD, CHECK_CONDITION, BUSY, TASK_SET_FULL, TASK_ABORTED = 0x00, 0x02, 0x08, 0x28, 0x40
STATUS = {
    BUSY: "busy",
    TASK_SET_FULL: "too many commands at once",
    TASK_ABORTED: "aborted",
    0x18: "reservation conflict",
}
# SPC-4, table 43
KEYS = (
    *(
        "no sense",
        "recovered error",
        "not ready",
        "medium error",
        "hardware error",
        "illegal request",
        "unit attention",
    ),
    *(
        "data protect",
        "blank check",
        "vendor specific",
        "copy aborted",
        "aborted command",
        "reserved",
        "volume overflow",
    ),
    *("miscompare", "completed"),
)
# (additional sense code, qualifier): SPC-4, annex D; those that this firmware and storage bridges send
REASONS = {
    (0x00, 0x00): "no reason given",
    (0x03, 0x00): "the flash could not be written",
    (0x0C, 0x00): "write error",
    (0x11, 0x00): "the flash could not be read",
    (0x20, 0x00): "the command is not known",
    (0x24, 0x00): "a field of the command is not valid",
    (0x25, 0x00): "no such logical unit",
    (0x28, 0x00): "the medium may have changed",
    (0x29, 0x00): "it was reset or switched on",
    (0x3A, 0x00): "no medium: the bridge sees no drive, or its fast path is not set up",
    (0x04, 0x01): "becoming ready",
    (0x04, 0x02): "a start command is needed",
    (0x55, 0x00): "its resources ran out",
}


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `data`: the bytes to send; `read_bytes`: how many to receive. Only one of them may be set."""

    cdb: bytes
    read_bytes: int = 0
    data: bytes | memoryview = b""
    timeout_ms: int = TIMEOUT_MS
    # the device may send fewer bytes than `read_bytes`
    short_ok: bool = False

    def __str__(self) -> str:
        return f"{NAMES.get(self.cdb[0], 'command')} ({self.cdb.rstrip(bytes(1)).hex(' ') or '00'})"


NAMES = {
    TEST_UNIT_READY: "test whether it is ready",
    REQUEST_SENSE: "request for sense data",
    INQUIRY: "inquiry",
    WRITE_16: "write to the buffer",
    CONFIG_READ: "read of a configuration block",
    CONFIG_WRITE: "write of a configuration block",
    FLASH_READ: "read of the flash",
    FLASH_WRITE: "write of firmware",
    XDATA_READ: "read of the chip's memory",
    XDATA_WRITE: "write of the chip's memory",
    RESET: "reset",
}


@dataclass(frozen=True, slots=True)
class Sense:
    """Why a command failed."""

    key: int
    code: int
    qualifier: int

    def __str__(self) -> str:
        key = KEYS[self.key & 15]
        reason = REASONS.get((self.code, self.qualifier), "a reason that is not in our list")
        return f"{key}, {reason} ({self.key:02x}/{self.code:02x}/{self.qualifier:02x})"


class Refused(TransportError):
    """The bridge executed a command and reports that it failed. `sense`: the reason; None if the bridge gave none."""

    def __init__(self, text: str, sense: Sense | None) -> None:
        super().__init__(text)
        self.sense = sense


class Scsi(Protocol):
    """A transport for SCSI commands over USB."""

    port: Port

    @property
    def name(self) -> str:
        """The name of the transport."""
        ...

    def execute(self, commands: Sequence[Command]) -> list[bytes]:
        """Do commands in order, as many at the same time as possible, and return the bytes that each received.

        Raises `Refused` for the first command that failed; later ones may have been done. Also raises `DeviceLost`,
        `DeviceTimeout`, `TransportError`.
        """
        ...

    def post(self, commands: Sequence[Command]) -> None:
        """Begin commands that receive nothing, in order after all earlier ones. A later call raises their errors."""
        ...

    def settle(self) -> None:
        """Wait for all posted commands."""
        ...


def parse_sense(data: bytes) -> Sense | None:
    """Read sense data of fixed or descriptor format. Return None for other data, and for data that is too short."""
    kind = data[0] & 0x7F if data else 0
    if kind in (0x70, 0x71) and len(data) >= 14:
        return Sense(data[2] & 0xF, data[12], data[13])
    if kind in (0x72, 0x73) and len(data) >= 4:
        return Sense(data[1] & 0xF, data[2], data[3])
    return None


def refusal(name: str, command: Command, status: int, sense: Sense | None) -> Refused:
    """Make the error for a command that ended with a status other than good."""
    what = str(sense) if sense else STATUS.get(status, f"status {status:#04x}")
    return Refused(f"{name}: {command}: the bridge refused it: {what}", sense)


# --- command blocks -------------------------------------------------------------------------------------------------
def inquiry() -> Command:
    """Ask for the device's names: maker, product and revision."""
    return Command(bytes([INQUIRY, 0, 0, 0, INQUIRY_BYTES, 0]), INQUIRY_BYTES, short_ok=True)


def request_sense() -> Command:
    """Ask why the last command failed."""
    return Command(bytes([REQUEST_SENSE, 0, 0, 0, SENSE_BYTES, 0]), SENSE_BYTES, short_ok=True)


def xdata_read(address: int, count: int, page: int = 0) -> Command:
    """Read 1 to 255 bytes of the chip's memory, page 0 or 1."""
    if not 0 < count <= MAX_XDATA_BYTES:
        raise ValueError(f"one command reads 1 to {MAX_XDATA_BYTES} bytes, not {count}")
    return Command(_xdata(XDATA_READ, count, address, page), count)


def xdata_write(address: int, value: int, page: int = 0) -> Command:
    """Write one byte of the chip's memory."""
    return Command(_xdata(XDATA_WRITE, value, address, page))


def _xdata(opcode: int, operand: int, address: int, page: int) -> bytes:
    if page not in (0, 1):
        raise ValueError(f"the chip's memory has pages 0 and 1, not {page}")
    return struct.pack(">BBBHB", opcode, operand, ASM246X | page, address, 0)


def config_read(block: int, copy: int = 0) -> Command:
    """Read configuration block 0 or 1 of a set."""
    return Command(bytes([CONFIG_READ, ASM246X | copy, block, 0, 0, 0]), CONFIG_BYTES, timeout_ms=FLASH_TIMEOUT_MS)


def config_write(block: int, data: bytes) -> Command:
    """Write configuration block 0 or 1 of the first set, 128 bytes."""
    if len(data) != CONFIG_BYTES:
        raise ValueError(f"a configuration block has {CONFIG_BYTES} bytes, not {len(data)}")
    return Command(bytes([CONFIG_WRITE, ASM246X, block]).ljust(15, b"\0"), data=data, timeout_ms=FLASH_TIMEOUT_MS)


def flash_read(part: int, count: int, copy: int = 0) -> Command:
    """Read part 0 or 1 of a set's image, from the part's start."""
    return Command(_flash(FLASH_READ, part, count, copy), count, timeout_ms=FLASH_TIMEOUT_MS)


def flash_write(part: int, data: bytes) -> Command:
    """Write part 0 or 1 of the first set's image, from the part's start. The cells must be erased."""
    return Command(_flash(FLASH_WRITE, part, len(data), 0), data=data, timeout_ms=FLASH_TIMEOUT_MS)


def _flash(opcode: int, part: int, count: int, copy: int) -> bytes:
    return struct.pack(">BBI", opcode, (SECOND_PART if part else 0) | ASM246X | copy, count)


def detach() -> Command:
    """Take the bridge off the bus until its power is switched off. Only for the end of flashing."""
    return Command(bytes([RESET, DETACH]).ljust(15, b"\0"))


def write_16(data: bytes | memoryview, timeout_ms: int) -> Command:
    """Write whole sectors at logical block 0."""
    return Command(struct.pack(">BBQIBB", WRITE_16, 0, 0, len(data) // 512, 0, 0), data=data, timeout_ms=timeout_ms)


# --- which transport ------------------------------------------------------------------------------------------------
MASS_STORAGE, SCSI_COMMANDS, BULK_ONLY, ATTACHED = 0x08, 0x06, 0x50, 0x62
# types of descriptors
INTERFACE, ENDPOINT, PIPE_USAGE, COMPANION = 0x04, 0x05, 0x24, 0x30
COMMAND_PIPE, STATUS_PIPE, DATA_IN_PIPE, DATA_OUT_PIPE = 1, 2, 3, 4
PIPES = (COMMAND_PIPE, STATUS_PIPE, DATA_IN_PIPE, DATA_OUT_PIPE)
BULK_TYPE, DIRECTION_IN = 2, 0x80


@dataclass(frozen=True, slots=True)
class Setting:
    """One alternate setting with SCSI. `pipes`: the endpoint of each use. `streams`: how many streams an endpoint
    has.
    """

    number: int
    protocol: int
    pipes: Mapping[int, int]
    streams: Mapping[int, int]


def settings(configuration: bytes) -> list[Setting]:
    """Find the settings of interface 0 with SCSI in a configuration descriptor. Settings whose descriptors are
    truncated or contradict each other are left out.
    """
    found: list[Setting] = []
    pipes: dict[int, int] = {}
    streams: dict[int, int] = {}
    endpoint, protocol = 0, 0
    for kind, body in descriptors(configuration):
        if kind == INTERFACE and len(body) >= 7:
            number, setting, endpoint = body[0], body[1], 0
            protocol = body[5] if number == 0 and tuple(body[3:5]) == (MASS_STORAGE, SCSI_COMMANDS) else 0
            if protocol in (BULK_ONLY, ATTACHED):
                pipes, streams = {}, {}
                found.append(Setting(setting, protocol, MappingProxyType(pipes), MappingProxyType(streams)))
        elif kind == ENDPOINT and len(body) >= 2:
            endpoint = body[0] if body[1] & 3 == BULK_TYPE else 0
            if protocol == BULK_ONLY and endpoint:
                pipes.setdefault(DATA_IN_PIPE if endpoint & DIRECTION_IN else DATA_OUT_PIPE, endpoint)
        elif kind == COMPANION and len(body) >= 2 and endpoint and body[1] & 0x1F:
            streams[endpoint] = 1 << (body[1] & 0x1F)
        elif kind == PIPE_USAGE and body and endpoint and protocol == ATTACHED:
            pipes[body[0]] = endpoint
    return [one for one in found if all(pipe in one.pipes for pipe in _needed(one.protocol))]


def _needed(protocol: int) -> tuple[int, ...]:
    return PIPES if protocol == ATTACHED else (DATA_IN_PIPE, DATA_OUT_PIPE)


def descriptors(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and body of each descriptor, up to one with a wrong length."""
    at = 0
    while at + 2 <= len(data):
        length = data[at]
        if length < 2 or at + length > len(data):
            return
        yield data[at + 1], data[at + 2 : at + length]
        at += length


def connect(port: Port, *, bulk_only: bool = False) -> Scsi:
    """Choose a transport by the device's descriptors and set it up: Attached SCSI if its pipes have streams, else
    Bulk-Only.

    Without streams (USB 2), Attached SCSI also does one command after another, and the chip was seen to send a status
    where it should ask for data. So it is used then only if there is nothing else. `bulk_only`: never choose Attached
    SCSI, for commands that the mask ROM knows too. Raises `NotSupported`.
    """
    from ringup.drivers.usb4.bot import Bot
    from ringup.drivers.usb4.uas import Uas

    offered = settings(port.configuration())
    attached = next((one for one in offered if one.protocol == ATTACHED), None)
    plain = next((one for one in offered if one.protocol == BULK_ONLY), None)
    streamed = attached is not None and all(attached.streams.get(attached.pipes[pipe]) for pipe in PIPES[1:])
    if attached and not bulk_only and (streamed or plain is None):
        return Uas(port, attached)
    if plain:
        return Bot(port, plain)
    raise NotSupported(
        f"{port.name}: interface 0 speaks no SCSI over USB: no stock firmware of an ASM2464PD;"
        " `ringup bridge info` tells what it is"
    )
