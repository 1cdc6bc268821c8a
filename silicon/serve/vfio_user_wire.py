"""The vfio-user protocol as bytes: the messages between a virtual machine monitor and the process that implements its
device.

Sources: QEMU docs/interop/vfio-user.rst (0.9.2), linux/vfio.h for the structures it borrows. Numbers are in the host's
byte order.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Any

import numpy as np

from ringup.autogen.linux import vfio
from ringup.errors import TransportError

MAJOR, MINOR = 0, 1
MAX_DATA_BYTES = 1 << 20  # in one transfer: the protocol's default
MAX_MESSAGE_BYTES = MAX_DATA_BYTES + 4096
MAX_DESCRIPTORS = 16  # in one message
MAX_DMA_MAPS = 65_535  # the protocol's default
PAGE_BYTES = 4096
REPLY, TYPE_MASK, NO_REPLY, ERROR = 0x1, 0xF, 0x10, 0x20
UNMAP_ALL = 1 << 1  # VFIO_DMA_UNMAP_FLAG_ALL
# lower bound of a peer's transfer limit: its memory is requested in such pieces
MIN_DATA_BYTES = PAGE_BYTES

HEADER = Struct("=HHIII")
VERSION = Struct("=HH")
DMA_MAP = Struct("=IIQQQ")
DMA_UNMAP = Struct("=IIQQ")
DEVICE_INFO = Struct("=IIII")
REGION_INFO = Struct("=IIIIQQ")
SPARSE = Struct("=HHIII")  # capability header, number of areas, padding
AREA = Struct("=QQ")
IRQ_INFO = Struct("=IIII")
IRQ_SET = Struct("=IIIII")
ACCESS = Struct("=QII")
MULTI = Struct("=Q")
MULTI_ENTRY = np.dtype([("offset", "=u8"), ("region", "=u4"), ("size_bytes", "=u4"), ("data", "u1", (8,))])
FEATURE = Struct("=II")
DMA_ACCESS = Struct("=QQ")


class Command(IntEnum):
    """The command of a message."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_REGION_IO_FDS = 6
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    DEVICE_RESET = 13
    DIRTY_PAGES = 14  # in older drafts
    REGION_WRITE_MULTI = 15
    DEVICE_FEATURE = 16
    MIG_DATA_READ = 17
    MIG_DATA_WRITE = 18


class Refused(Exception):
    """A command fails: the peer gets `errno`, and nothing has changed."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"{why} ({errno.errorcode.get(number, number)})")
        self.errno = number


@dataclass(slots=True)
class Message:
    """One message from a peer. The reader closes its `descriptors`."""

    number: int
    command: int
    flags: int
    payload: bytes
    descriptors: list[int] = field(default_factory=list)
    errno: int = 0

    @property
    def is_reply(self) -> bool:
        """Whether it answers a command of the server."""
        return self.flags & TYPE_MASK == REPLY

    @property
    def name(self) -> str:
        """The command's name."""
        return Command(self.command).name if self.command in set(Command) else f"command {self.command}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: payload, and descriptors that remain the sender's."""

    payload: bytes = b""
    descriptors: tuple[int, ...] = ()


def header(number: int, command: int, size_bytes: int, flags: int = 0, error: int = 0) -> bytes:
    """Return a header; `size_bytes` does not include it."""
    return HEADER.pack(number, command, HEADER.size + size_bytes, flags, error)


def parse_header(data: bytes | bytearray | memoryview) -> tuple[int, int, int, int, int]:
    """Return number, command, size of the whole message, flags and errno. Raises `TransportError` for bytes that cannot
    start a message.
    """
    number, command, size_bytes, flags, error = HEADER.unpack_from(data)
    if not HEADER.size <= size_bytes <= MAX_MESSAGE_BYTES:
        raise TransportError(f"a message of {size_bytes} bytes; one has {HEADER.size} to {MAX_MESSAGE_BYTES}")
    if flags & TYPE_MASK > REPLY:
        raise TransportError(f"a message of type {flags & TYPE_MASK}, which is neither command nor reply")
    return number, command, size_bytes, flags, error


def fields(layout: Struct, payload: bytes) -> tuple[Any, ...]:
    """Return the numbers at the start of a payload. Raises `Refused`."""
    if len(payload) < layout.size:
        raise Refused(errno.EINVAL, f"{len(payload)} bytes where {layout.size} are needed")
    return layout.unpack_from(payload)


def sized_fields(layout: Struct, payload: bytes) -> tuple[Any, ...]:
    """Return the numbers of a structure that begins with `argsz`. An `argsz` smaller than the structure is `Refused`,
    as by a kernel.
    """
    numbers = fields(layout, payload)
    if numbers[0] < layout.size:
        raise Refused(errno.EINVAL, f"an argsz of {numbers[0]} where the minimum is {layout.size}")
    return numbers


def number(capabilities: dict[str, Any], name: str, default: int) -> int:
    """Return a number from the capabilities. Raises `Refused` if it is no number."""
    value = capabilities.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(errno.EINVAL, f"a {name} that is not a number")
    return value


def dma_written(payload: bytes) -> int:
    """Return how many bytes a peer reports as written. The protocol's text has 32 bits, its implementations 64."""
    return int.from_bytes(payload[8:16], sys.byteorder)


def agree(payload: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the answer to a proposed version, and the peer's capabilities. Raises `Refused` for an unacceptable
    proposal.

    The answer has no capability that was not proposed; limits are the protocol's defaults, so leaving one out changes
    nothing. The answer is not longer than a proposal whose numbers are as long: QEMU accepts no longer one.
    """
    major, minor = fields(VERSION, payload)
    if major != MAJOR:
        raise Refused(errno.EPROTONOSUPPORT, f"protocol {major}.{minor}; this is {MAJOR}.{MINOR}")
    text = payload[VERSION.size :].split(b"\0", 1)[0]
    try:
        proposed = json.loads(text) if text else {}
        capabilities = proposed.get("capabilities", {})
        names = set(capabilities)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise Refused(errno.EINVAL, "capabilities that are not a JSON object of objects") from error
    if not isinstance(capabilities, dict):
        raise Refused(errno.EINVAL, "capabilities that are not a JSON object")
    ours: dict[str, object] = {
        "max_msg_fds": MAX_DESCRIPTORS,
        "max_data_xfer_size": MAX_DATA_BYTES,
        "max_dma_maps": MAX_DMA_MAPS,
        "pgsizes": PAGE_BYTES,
        "write_multiple": True,
    }
    max_bytes = number(capabilities, "max_data_xfer_size", MAX_DATA_BYTES)
    if max_bytes < MIN_DATA_BYTES:
        raise Refused(errno.EINVAL, f"a max_data_xfer_size of {max_bytes}; {MIN_DATA_BYTES} is the minimum")
    number(capabilities, "max_msg_fds", 1)
    head = VERSION.pack(MAJOR, min(minor, MINOR))
    return head + (_json({name: ours[name] for name in ours if name in names}) if text else b""), capabilities


def _json(capabilities: dict[str, object]) -> bytes:
    return json.dumps({"capabilities": capabilities}, separators=(",", ":")).encode() + b"\0"


def with_twin_socket(payload: bytes) -> bytes:
    """Return the answer to a version, with the second socket named: the first descriptor sent with it."""
    capabilities = json.loads(payload[VERSION.size :].rstrip(b"\0"))["capabilities"]
    return payload[: VERSION.size] + _json(capabilities | {"twin_socket": {"supported": True, "fd_index": 0}})


def runs(entries: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return the writes of a multiple write, adjacent ones of a size together: region, offset, bytes of each write, and
    the bytes of all. Raises `Refused` for an entry that holds fewer bytes than it states.
    """
    rows = np.frombuffer(entries, MULTI_ENTRY)
    if not len(rows):
        return []
    offsets, regions, sizes = rows["offset"], rows["region"], rows["size_bytes"]
    if sizes.max() > MULTI_ENTRY["data"].itemsize:
        raise Refused(errno.EINVAL, "a multiple write with more than 8 bytes in one entry")
    adjacent = (offsets[1:] == offsets[:-1] + sizes[:-1]) & (sizes[1:] == sizes[:-1]) & (regions[1:] == regions[:-1])
    firsts = [0, *(np.flatnonzero(~adjacent) + 1).tolist()]
    found = []
    for first, end in zip(firsts, [*firsts[1:], len(rows)], strict=True):
        size_bytes = int(sizes[first])
        data = rows["data"][first:end, :size_bytes].tobytes()
        found.append((int(regions[first]), int(offsets[first]), size_bytes, data))
    return found


def region_info(
    index: int, size_bytes: int, flags: int, areas: Sequence[tuple[int, int]], room_bytes: int, cookie: int = 0
) -> bytes:
    """Return a region's description; its capabilities only if they fit in `room_bytes`."""
    capability = b""
    if areas:
        flags |= vfio.VFIO_REGION_INFO_FLAG_CAPS
        capability = SPARSE.pack(vfio.VFIO_REGION_INFO_CAP_SPARSE_MMAP, 1, 0, len(areas), 0)
        capability += b"".join(AREA.pack(*area) for area in areas)
    needed = REGION_INFO.size + len(capability)
    # QUIRK: the offset of capabilities is given even if they do not fit: QEMU's client requires it,
    # hw/vfio-user/device.c
    offset = REGION_INFO.size if capability else 0
    answer = REGION_INFO.pack(needed, flags, index, offset, size_bytes, cookie)
    return answer + capability if room_bytes >= needed else answer
