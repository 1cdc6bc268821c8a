"""The two queues in host memory through which driver and GSP-RM send each other messages, 4 KiB elements each.

The memory begins with the addresses of its own pages, then the command queue, then the status queue, 256 KiB each: a
page with the header of the side that writes the queue, then 63 elements. A side writes in its own queue alone: the
elements, its write pointer, and behind its header the read pointer of the other queue. A message takes up to 16
elements; the first begins with a checksum, a running number, the count of elements, and the message's own header.

The driver writes a message, then its write pointer, then rings the doorbell; GSP-RM the same without a doorbell, but
with an interrupt. Everything that GSP-RM writes is checked before it is used. Source: OGKM message_queue_cpu.c, msgq.c.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from functools import reduce
from operator import xor
from typing import NamedTuple

from ringup.autogen.nv.gsp_queue import (
    GSP_MSG_QUEUE_ELEMENT,
    GSP_MSG_QUEUE_ELEMENT_HDR_SIZE,
    GSP_MSG_QUEUE_ELEMENT_SIZE_MAX,
    GSP_MSG_QUEUE_ELEMENT_SIZE_MIN,
    GSP_MSG_QUEUE_RPC_SIZE_MAX,
    MSGQ_FLAGS_SWAP_RX,
    MSGQ_VERSION,
    msgqTxHeader,
    rpc_message_header_v03_00,
)
from ringup.drivers.nv.gsp.host_memory import HostMemory, pages
from ringup.drivers.transport.seam import Clock
from ringup.drivers.transport.wait import poll, until
from ringup.errors import DeviceHung, DeviceTimeout

PAGE_BYTES = 4096
QUEUE_BYTES = 0x4_0000  # defaultCommandQueueSize, defaultStatusQueueSize
ELEMENT_BYTES = GSP_MSG_QUEUE_ELEMENT_SIZE_MIN
HEADER_BYTES = GSP_MSG_QUEUE_ELEMENT_HDR_SIZE
MAX_ELEMENTS = GSP_MSG_QUEUE_ELEMENT_SIZE_MAX // ELEMENT_BYTES
MAX_MESSAGE_BYTES = GSP_MSG_QUEUE_RPC_SIZE_MAX
MESSAGE_HEADER_BYTES = rpc_message_header_v03_00.SIZE
RX_OFFSET = msgqTxHeader.SIZE  # aligned to 1 << GSP_MSG_QUEUE_HEADER_ALIGN
ENTRY_OFFSET = PAGE_BYTES  # aligned to 1 << GSP_MSG_QUEUE_ELEMENT_ALIGN
COUNT = (QUEUE_BYTES - ENTRY_OFFSET) // ELEMENT_BYTES
ENTRY_BYTES = 8
QUEUE_PAGES = 2 * QUEUE_BYTES // PAGE_BYTES
TABLE_ENTRIES = QUEUE_PAGES + -(-QUEUE_PAGES * ENTRY_BYTES // PAGE_BYTES)
TABLE_BYTES = -(-TABLE_ENTRIES * ENTRY_BYTES // PAGE_BYTES) * PAGE_BYTES
WRITE_POINTER = msgqTxHeader.offset_of("writePtr")
CHECKSUM, SEQUENCE, ELEMENTS = (GSP_MSG_QUEUE_ELEMENT.offset_of(name) for name in ("checkSum", "seqNum", "elemCount"))
LENGTH = HEADER_BYTES + rpc_message_header_v03_00.offset_of("length")
# TIMEOUT: GspMsgQueueSendCommand and GspStatusQueueInit
SPACE_US, LINK_US = 1_000_000, 4_000_000
SPACE_POLL_US, LINK_POLL_US = 50, 1_000
# a message whose checksum is wrong may still be on its way: GspMsgQueueReceiveStatus looks three times
READ_TRIES, RETRY_US = 3, 100


def checksum(data: bytes | bytearray | memoryview) -> int:
    """Return the XOR of all dwords; the last one is filled with zeros."""
    padded = bytes(data) + bytes(-len(data) % 8)
    folded = reduce(xor, array("Q", padded), 0)
    return (folded >> 32 ^ folded) & 0xFFFF_FFFF


class Arrived(NamedTuple):
    """A message that GSP-RM has sent, and how many elements it takes."""

    message: bytes
    elements: int


class Queues:
    """Both queues. `send`, `peek` and `advance` move whole messages: the message header and what follows. `sent` and
    `received` count those that were sent and taken, modulo 2^32.
    """

    def __init__(self, memory: HostMemory, clock: Clock, ring: Callable[[], None]) -> None:
        """`ring` tells GSP that there is a command."""
        self._clock, self._ring = clock, ring
        self._shared = memory.alloc(TABLE_BYTES + 2 * QUEUE_BYTES, "the message queues")
        view = self._shared.view
        addresses = list(pages(self._shared))
        struct.pack_into(f"<{TABLE_ENTRIES}Q", view, 0, *addresses[:TABLE_ENTRIES])
        self._command = view[TABLE_BYTES : TABLE_BYTES + QUEUE_BYTES]
        self._status = view[TABLE_BYTES + QUEUE_BYTES : TABLE_BYTES + 2 * QUEUE_BYTES]
        msgqTxHeader.pack_into(
            self._command,
            0,
            MSGQ_VERSION,
            QUEUE_BYTES,
            ELEMENT_BYTES,
            COUNT,
            0,
            MSGQ_FLAGS_SWAP_RX,
            RX_OFFSET,
            ENTRY_OFFSET,
        )
        self.sent = self._write = 0
        # (element, count of messages): both or none, for whoever is interrupted
        self._taken = 0, 0
        self._linked = False

    @property
    def bus_addr(self) -> int:
        """Where the shared memory begins: its page table."""
        return self._shared.bus_addr()

    def link(self, check: Callable[[], None]) -> None:
        """Wait until GSP-RM has set up its side. `check` raises if GSP has died. Raises `DeviceTimeout`, also for
        a queue of another shape.
        """
        wanted = (MSGQ_VERSION, QUEUE_BYTES, ELEMENT_BYTES, COUNT)

        def whole(seen: tuple[int, ...]) -> bool:
            # the header may be written in any order: one that differs is looked at again, as GspStatusQueueInit does
            return seen[:4] == wanted and seen[6] == RX_OFFSET and seen[7] == ENTRY_OFFSET

        def look() -> tuple[int, ...]:
            seen: tuple[int, ...] = msgqTxHeader.unpack(self._status)
            if not whole(seen):
                check()
            return seen

        until(
            look,
            whole,
            clock=self._clock,
            timeout_us=LINK_US,
            poll_us=LINK_POLL_US,
            doing="waiting for GSP-RM to set up its queue",
            describe=lambda seen: f"its header has {seen}, not {(*wanted, '…', RX_OFFSET, ENTRY_OFFSET)}",
            advice="; reset the card, or take firmware whose release is what its file says",
        )
        self._linked = True

    def send(self, message: bytes | bytearray, doing: str) -> None:
        """Put a message into the command queue and ring the doorbell. Raises `DeviceTimeout` if there is no space."""
        if not MESSAGE_HEADER_BYTES <= len(message) <= MAX_MESSAGE_BYTES:
            raise ValueError(f"a message has {MESSAGE_HEADER_BYTES} to {MAX_MESSAGE_BYTES} bytes, not {len(message)}")
        count = -(-(HEADER_BYTES + len(message)) // ELEMENT_BYTES)
        element = bytearray(HEADER_BYTES)
        struct.pack_into("<II", element, SEQUENCE, self.sent, count)
        element += message
        struct.pack_into("<I", element, CHECKSUM, checksum(element))
        self._wait_space(count, doing)
        element += bytes(count * ELEMENT_BYTES - len(element))
        for at in range(count):
            to = ENTRY_OFFSET + (self._write + at) % COUNT * ELEMENT_BYTES
            self._command[to : to + ELEMENT_BYTES] = element[at * ELEMENT_BYTES : (at + 1) * ELEMENT_BYTES]
        # both or none, for whoever is interrupted
        self._write, self.sent = (self._write + count) % COUNT, self.sent + 1 & 0xFFFF_FFFF
        # ORDER: the pointer after the elements, the doorbell after the pointer
        struct.pack_into("<I", self._command, WRITE_POINTER, self._write)
        self._ring()

    @property
    def received(self) -> int:
        """How many messages were taken, modulo 2^32."""
        return self._taken[1]

    def peek(self) -> Arrived | None:
        """Return the next message of GSP-RM, None if there is none; it stays the next one until `advance`. Raises
        `DeviceHung` for one that is damaged.
        """
        # an interrupt may have come before
        self._tell()
        available = self._available()
        if not available:
            return None
        for _ in range(READ_TRIES):
            element, wrong = self._look(available)
            if not wrong:
                break
            self._clock.sleep_us(RETRY_US)
            available = self._available()
        else:
            raise DeviceHung(f"the message that GSP-RM sent after {self.received} others: {wrong}; reset the card")
        count = struct.unpack_from("<I", element, ELEMENTS)[0]
        end = HEADER_BYTES + struct.unpack_from("<I", element, LENGTH)[0]
        return Arrived(bytes(element[HEADER_BYTES:end]), count)

    def advance(self, arrived: Arrived) -> None:
        """Take the message that `peek` has returned, so that GSP-RM may use its elements again."""
        read, received = self._taken
        self._taken = (read + arrived.elements) % COUNT, received + 1 & 0xFFFF_FFFF
        self._tell()

    def receive(self) -> bytes | None:
        """Return the next message of GSP-RM and take it; see `peek`."""
        arrived = self.peek()
        if arrived is None:
            return None
        self.advance(arrived)
        return arrived.message

    def _tell(self) -> None:
        # both queues are made with MSGQ_FLAGS_SWAP_RX: what was read is told in the reader's own queue
        struct.pack_into("<I", self._command, RX_OFFSET, self._taken[0])

    def _available(self) -> int:
        written = struct.unpack_from("<I", self._status, WRITE_POINTER)[0]
        if written >= COUNT:
            raise DeviceHung(f"GSP-RM's write pointer is {written}; its queue has {COUNT} elements; reset the card")
        return int((written - self._taken[0]) % COUNT)

    def _look(self, available: int) -> tuple[bytearray, str]:
        """Copy the next message; return it, and what is wrong with it."""
        element = bytearray(self._element(0))
        count, length = struct.unpack_from("<I", element, ELEMENTS)[0], struct.unpack_from("<I", element, LENGTH)[0]
        if not 1 <= count <= MAX_ELEMENTS or count > available:
            return element, f"it counts {count} elements, of {available} that there are"
        if not MESSAGE_HEADER_BYTES <= length <= count * ELEMENT_BYTES - HEADER_BYTES:
            return element, f"it has {length} bytes in {count} elements"
        for at in range(1, count):
            element += self._element(at)
        if seen := checksum(element[: HEADER_BYTES + length]):
            return element, f"its checksum is wrong by {seen:#010x}"
        if (number := struct.unpack_from("<I", element, SEQUENCE)[0]) != self.received:
            return element, f"its number is {number}, not {self.received}"
        return element, ""

    def _element(self, at: int) -> memoryview:
        start = ENTRY_OFFSET + (self._taken[0] + at) % COUNT * ELEMENT_BYTES
        return self._status[start : start + ELEMENT_BYTES]

    def _wait_space(self, count: int, doing: str) -> None:
        def free() -> int:
            # before GSP-RM has set up its queue, this reads 0 as well
            read = struct.unpack_from("<I", self._status, RX_OFFSET)[0]
            if read >= COUNT:
                raise DeviceHung(f"GSP-RM's read pointer is {read}; the queue has {COUNT} elements; reset the card")
            return int((read - self._write - 1) % COUNT)

        space = poll(
            free,
            lambda space: space >= count,
            clock=self._clock,
            timeout_us=SPACE_US,
            poll_us=SPACE_POLL_US,
        )
        if space < count:
            raise DeviceTimeout(
                f"{doing}: GSP-RM does not read its queue: {space} elements are free of {COUNT}, {count} are needed, for "
                f"{SPACE_US / 1000:g} ms"
            )
