"""The message queues that CPU and GSP share in system memory.

Each queue is a header page and a ring of 4 KiB elements. A message is one or more elements with a header of 48 bytes:
checksum, sequence number, number of elements. The CPU makes the command queue before it starts the GSP; the GSP makes
the status queue. Whoever reads a queue keeps its read pointer in the header of its *own* queue if both ask for that
(MSGQ_FLAGS_SWAP_RX).

Source: msgq.c, message_queue_cpu.c, message_queue_priv.h of NVIDIA's open kernel modules 535; nouveau 6.12, r535.c.
Inference: the firmware's half does as the CPU's does, in the other direction: it checks length, checksum and sequence
of what it reads, and drops old messages. Neither source has the firmware's half.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from ringup.autogen.nv import gsp_queue as q
from ringup.autogen.structs import memory as struct_bytes
from ringup.silicon.nv.rm.parts import Aperture, PhysicalMemory

PAGE = q.GSP_MSG_QUEUE_ELEMENT_SIZE_MIN
ELEMENT_HEADER = q.GSP_MSG_QUEUE_ELEMENT_HDR_SIZE
MESSAGE_LIMIT = q.GSP_MSG_QUEUE_ELEMENT_SIZE_MAX
RPC_HEADER = q.rpc_message_header_v03_00.SIZE
RPC_LIMIT = q.GSP_MSG_QUEUE_RPC_SIZE_MAX
# both drivers' queues have 256 KiB; the registry lets NVIDIA's be larger. GUESS: the bound for a hostile CPU
MAX_PAGES = 8192
CHECKSUM, SEQUENCE, ELEMENTS = (q.GSP_MSG_QUEUE_ELEMENT.offset_of(name) for name in ("checkSum", "seqNum", "elemCount"))
LENGTH = ELEMENT_HEADER + q.rpc_message_header_v03_00.offset_of("length")
READ_POINTER, WRITE_POINTER, FLAGS = (
    q.msgqTxHeader.SIZE,
    q.msgqTxHeader.offset_of("writePtr"),
    q.msgqTxHeader.offset_of("flags"),
)


class QueueError(Exception):
    """A queue or message that the firmware cannot use. `kind` is a short stable word."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class SharedMemory:
    """The pages that both queues are in: contiguous for neither side, so a table of bus addresses is in front."""

    def __init__(self, memory: PhysicalMemory, first_page: int, count: int) -> None:
        """`first_page`: bus address of the table, which describes its own pages too."""
        if not 0 < count <= MAX_PAGES:
            raise QueueError("length", f"the queues' page table has {count} entries")
        if first_page % PAGE:
            raise QueueError("alignment", f"the queues begin at {first_page:#x}")
        self._memory = memory
        self._pages: list[int] = []
        here, entries_per_page = first_page, PAGE // 8
        while len(self._pages) < count:
            wanted = min(entries_per_page, count - len(self._pages))
            self._pages += struct.unpack(f"<{wanted}Q", memory.read(Aperture.SYSMEM, here, wanted * 8))
            # the next page of the table is the table's own second entry, and so on
            number = len(self._pages) // entries_per_page
            if len(self._pages) < count:
                here = self._pages[number]
        bad = next((page for page in self._pages if page % PAGE), None)
        if bad is not None or self._pages[0] != first_page:
            raise QueueError("page table", f"the queues' page table has the entry {bad or self._pages[0]:#x}")

    @property
    def size_bytes(self) -> int:
        """Bytes of all pages."""
        return len(self._pages) * PAGE

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a range that may cross pages."""
        parts = []
        try:
            while size_bytes > 0:
                within = offset % PAGE
                part = min(size_bytes, PAGE - within)
                parts.append(self._memory.read(Aperture.SYSMEM, self._pages[offset // PAGE] + within, part))
                offset, size_bytes = offset + part, size_bytes - part
        except ValueError as error:
            raise QueueError("memory", str(error)) from error
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes to a range that may cross pages."""
        try:
            while data:
                within = offset % PAGE
                part = data[: PAGE - within]
                self._memory.write(Aperture.SYSMEM, self._pages[offset // PAGE] + within, part)
                offset, data = offset + len(part), data[len(part) :]
        except ValueError as error:
            raise QueueError("memory", str(error)) from error

    def word(self, offset: int) -> int:
        """Return the 32-bit word at an offset."""
        return int.from_bytes(self.read(offset, 4), "little")

    def set_word(self, offset: int, value: int) -> None:
        """Store a 32-bit word."""
        self.write(offset, value.to_bytes(4, "little"))


@dataclass(frozen=True, slots=True)
class Ring:
    """Where a queue's parts are, as its header says. `base` and `entries` are offsets in the shared memory."""

    base: int
    count: int
    entries: int
    read_pointer: int
    swapped: bool


def ring_of_cpu(shared: SharedMemory, base: int) -> Ring:
    """Return the command queue as its header describes it; msgqRxLink checks the same of the status queue."""
    if base % PAGE or base + PAGE > shared.size_bytes:
        raise QueueError("length", f"the command queue begins at byte {base:#x} of {shared.size_bytes:#x}")
    header = q.msgqTxHeader.view(bytearray(shared.read(base, q.msgqTxHeader.SIZE)))
    size, entry = header.size, header.entryOff
    if header.version != q.MSGQ_VERSION or header.msgSize != PAGE:
        raise QueueError(
            "header", f"the command queue has version {header.version} and elements of {header.msgSize} bytes"
        )
    if base + size > shared.size_bytes or not q.msgqTxHeader.SIZE + 4 <= entry <= size - PAGE or entry % PAGE:
        raise QueueError("length", f"the command queue has {size:#x} bytes and elements from byte {entry:#x}")
    if header.rxHdrOff < q.msgqTxHeader.SIZE or header.rxHdrOff + 4 > entry:
        raise QueueError("header", f"the command queue has its read pointer at byte {header.rxHdrOff:#x}")
    if header.msgCount != (size - entry) // PAGE or header.msgCount < 2:
        raise QueueError("header", f"the command queue has {header.msgCount} elements in {size:#x} bytes")
    return Ring(base, header.msgCount, base + entry, base + header.rxHdrOff, bool(header.flags & q.MSGQ_FLAGS_SWAP_RX))


def make_ring(shared: SharedMemory, base: int, size: int) -> Ring:
    """Make the status queue: write its header. It has the shape that the CPU gives its own."""
    if base % PAGE or size < 3 * PAGE or base + size > shared.size_bytes:
        raise QueueError("length", f"the status queue has {size:#x} bytes at byte {base:#x} of {shared.size_bytes:#x}")
    header = q.msgqTxHeader(
        version=q.MSGQ_VERSION,
        size=size,
        msgSize=PAGE,
        msgCount=(size - PAGE) // PAGE,
        writePtr=0,
        flags=q.MSGQ_FLAGS_SWAP_RX,
        rxHdrOff=READ_POINTER,
        entryOff=PAGE,
    )
    shared.write(base, bytes(struct_bytes(header)))
    return Ring(base, (size - PAGE) // PAGE, base + PAGE, base + READ_POINTER, True)


def checksum(data: bytes) -> int:
    """Return the exclusive or of all 64-bit words, folded to 32 bits. `data` is padded with zeros."""
    padded = data + bytes(-len(data) % 8)
    total = 0
    for (word,) in struct.iter_unpack("<Q", padded):
        total ^= word
    return total >> 32 ^ total & 0xFFFFFFFF


class Receiver:
    """The command queue as the firmware reads it."""

    def __init__(self, shared: SharedMemory, ring: Ring, read_pointer: int) -> None:
        """`read_pointer`: offset of the word that tells the CPU how far the firmware has read."""
        self._shared, self.ring, self._read_pointer = shared, ring, read_pointer
        self.position = 0
        self.sequence = 0
        shared.set_word(read_pointer, 0)

    def _available(self) -> int:
        written = self._shared.word(self.ring.base + WRITE_POINTER)
        if written >= self.ring.count:
            raise QueueError("pointer", f"the command queue's write pointer is {written} of {self.ring.count}")
        return (written - self.position) % self.ring.count

    def _element(self, index: int) -> bytes:
        return self._shared.read(self.ring.entries + (self.position + index) % self.ring.count * PAGE, PAGE)

    def _consume(self, count: int) -> None:
        self.position = (self.position + count) % self.ring.count
        self._shared.set_word(self._read_pointer, self.position)

    def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next message: its call, and the bytes of its elements behind it; None if there is none.

        The second part matters because NVIDIA's driver leaves the parameters of an allocation out of the length.
        Raises `QueueError`; the message is consumed if its extent is known.
        """
        available = self._available()
        if not available:
            return None
        first = self._element(0)
        count, sequence = (int.from_bytes(first[at : at + 4], "little") for at in (ELEMENTS, SEQUENCE))
        length = int.from_bytes(first[LENGTH : LENGTH + 4], "little")
        size = ELEMENT_HEADER + length
        if not RPC_HEADER <= length <= RPC_LIMIT or count != -(-size // PAGE):
            self._consume(1)
            raise QueueError("length", f"message {sequence} has {count} elements for a call of {length} bytes")
        if count > available:
            raise QueueError("incomplete", f"message {sequence} has {count} elements, of which {available} are written")
        data = first + b"".join(self._element(index) for index in range(1, count))
        self._consume(count)
        if checksum(data[:size]):
            raise QueueError("checksum", f"message {sequence} of {length} bytes has a wrong checksum")
        if sequence != self.sequence:
            raise QueueError("sequence", f"message {sequence} came where {self.sequence} was due")
        self.sequence = self.sequence + 1 & 0xFFFFFFFF
        return data[ELEMENT_HEADER:size], data[ELEMENT_HEADER:]


class Sender:
    """The status queue as the firmware writes it. Messages wait while the CPU does not read."""

    def __init__(
        self, shared: SharedMemory, ring: Ring, read_pointer: int, is_damaged: Callable[[], bool] = lambda: False
    ) -> None:
        """`read_pointer`: offset of the word that tells the firmware how far the CPU has read. `is_damaged`: whether
        the next message gets a wrong checksum.
        """
        self._shared, self.ring, self._read_pointer, self._is_damaged = shared, ring, read_pointer, is_damaged
        self.position = 0
        self.sequence = 0

    def free(self) -> int:
        """Return the elements that can be written now."""
        read = self._shared.word(self._read_pointer)
        if read >= self.ring.count:
            raise QueueError("pointer", f"the status queue's read pointer is {read} of {self.ring.count}")
        return (read - self.position - 1) % self.ring.count

    def send(self, call: bytes) -> bool:
        """Write one message of at most `RPC_LIMIT` bytes; return False if there is no room yet."""
        size = ELEMENT_HEADER + len(call)
        count = -(-size // PAGE)
        if count > self.free():
            return False
        data = bytearray(count * PAGE)
        data[ELEMENT_HEADER:size] = call
        data[SEQUENCE : SEQUENCE + 4] = self.sequence.to_bytes(4, "little")
        data[ELEMENTS : ELEMENTS + 4] = count.to_bytes(4, "little")
        found = checksum(bytes(data)) ^ (1 if self._is_damaged() else 0)
        data[CHECKSUM : CHECKSUM + 4] = found.to_bytes(4, "little")
        for index in range(count):
            place = self.ring.entries + (self.position + index) % self.ring.count * PAGE
            self._shared.write(place, bytes(data[index * PAGE : (index + 1) * PAGE]))
        self.position = (self.position + count) % self.ring.count
        self.sequence = self.sequence + 1 & 0xFFFFFFFF
        # ORDER: the CPU may read the elements as soon as the pointer has moved
        self._shared.set_word(self.ring.base + WRITE_POINTER, self.position)
        return True
