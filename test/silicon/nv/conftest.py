"""The CPU's side of the GSP: memory, queues and calls as drivers have them, written from the headers of 535."""

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.gsp.firmware import GspFirmware
from ringup.silicon.nv.gsp.ports import Aperture, Boot

PAGE = 4096
CHIPS = {
    "tu102": (0x1E37, 16 << 30, "Tesla T10"),
    "ga102": (0x2236, 24 << 30, "NVIDIA A10"),
    "ad102": (0x26B9, 48 << 30, "NVIDIA L40S"),
    "gb202": (0x2BB5, 96 << 30, "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
}
# an address that is not the offset of anything
HOST = 0x1_0000_0000
RECORD_BODY = 65488 - 32  # of the longest record, header off
RESERVED = 0x7_0000_0000 // 4  # where the firmware's region begins, in every chip's memory


class Memory:
    """System memory and VRAM, in pages that exist when they are written; each counts its reads by aperture."""

    def __init__(self):
        self.pages = {}

    def read(self, aperture, address, size_bytes):
        if aperture is Aperture.SYSMEM and address < HOST:
            raise ValueError(f"nothing answers at {address:#x}")
        parts = []
        while size_bytes:
            within = address % PAGE
            part = min(size_bytes, PAGE - within)
            page = self.pages.get((aperture, address - within), bytes(PAGE))
            parts.append(bytes(page[within : within + part]))
            address, size_bytes = address + part, size_bytes - part
        return b"".join(parts)

    def write(self, aperture, address, data):
        if aperture is Aperture.SYSMEM and address < HOST:
            raise ValueError(f"nothing answers at {address:#x}")
        data = bytes(data)
        while data:
            within = address % PAGE
            part = data[: PAGE - within]
            page = self.pages.setdefault((aperture, address - within), bytearray(PAGE))
            page[within : within + len(part)] = part
            address, data = address + len(part), data[len(part) :]


@dataclass
class Card:
    """Notes what the firmware does to the card."""

    calls: list = field(default_factory=list)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.calls.append((name, *args))

    def named(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


class Queue:
    """One queue's place: header page, then elements."""

    def __init__(self, base, count):
        self.base, self.count = base, count


class Cpu:
    """A driver's side. `pages` may lie anywhere; `elements` for each queue."""

    COMMAND_HEADER = struct.Struct("<8I")  # version size msgSize msgCount writePtr flags rxHdrOff entryOff

    def __init__(self, firmware, memory, card, clock, elements=63, release="535.113.01"):
        self.firmware, self.memory, self.card, self.clock, self.release = firmware, memory, card, clock, release
        self.count = elements
        self.queue_bytes = (elements + 1) * PAGE
        self.sequence = self.received = self.read = self.written = 0
        self.rpc_sequence = 0
        self.events = []

    def word(self, address):
        return struct.unpack("<I", self.memory.read(Aperture.SYSMEM, address, 4))[0]

    def put(self, address, data):
        self.memory.write(Aperture.SYSMEM, address, data)

    def prepare(self, *, system_info=True):
        """Lay out the shared memory in scattered pages, the libos arguments, and the first two calls."""
        data_pages = 2 * self.queue_bytes // PAGE
        table_pages = 1
        while (data_pages + table_pages) * 8 > table_pages * PAGE:
            table_pages += 1
        total = data_pages + table_pages
        # every second page, backwards: no two neighbours are neighbours on the bus
        self.places = [HOST + 0x10_0000 + (total - number) * 2 * PAGE for number in range(total)]
        table = struct.pack(f"<{total}Q", *self.places)
        for number in range(table_pages):
            self.put(self.places[number], table[number * PAGE : (number + 1) * PAGE])
        self.command, self.status = table_pages * PAGE, table_pages * PAGE + self.queue_bytes
        self.store(self.command, self.COMMAND_HEADER.pack(0, self.queue_bytes, PAGE, self.count, 0, 1, 32, PAGE))
        self.arguments = HOST + 0x1000
        rmargs = HOST + 0x2000
        self.put(rmargs, struct.pack("<QI4xQQQQ", self.places[0], total, self.command, self.status, 0, 0))
        rows = b""
        for name, address, size in (
            (b"LOGINIT", HOST + 0x20000, 0x10000),
            (b"LOGINTR", HOST + 0x30000, 0x10000),
            (b"LOGRM", HOST + 0x40000, 0x10000),
            (b"RMARGS", rmargs, PAGE),
        ):
            rows += struct.pack("<QQQBB6x", int.from_bytes(name, "big"), address, size, 1, 1)
        self.put(self.arguments, rows)
        if system_info:
            self.push(72, bytes({"535.113.01": 664, "535.261.03": 672, "570.144": 928}[self.release]))
            self.push(73, self.registry({"RMSecBusResetEnable": 1}))
        return self

    def registry(self, values):
        head = 8 + 16 * len(values)
        names, entries = b"", b""
        for name, value in values.items():
            entries += struct.pack("<IB3xII", head + len(names), 1, value, 4)
            names += name.encode() + b"\0"
        return struct.pack("<II", head + len(names), len(values)) + entries + names

    def store(self, offset, data):
        while data:
            within = offset % PAGE
            part = data[: PAGE - within]
            self.put(self.places[offset // PAGE] + within, part)
            offset, data = offset + len(part), data[len(part) :]

    def load(self, offset, size):
        return b"".join(
            self.memory.read(Aperture.SYSMEM, self.places[at // PAGE] + at % PAGE, 1)
            for at in range(offset, offset + size)
        )

    def start(self, **boot):
        boot = {"libos_arguments": self.arguments, "release": self.release} | boot
        vram = self.firmware.chip.vram_bytes
        self.firmware.start(Boot(reserved_start=RESERVED, fb_bytes=vram, **boot))
        self.settle()
        return self

    def settle(self):
        self.clock.advance_ns(20_000_000)

    @staticmethod
    def sum(data):
        total = 0
        for (word,) in struct.iter_unpack("<Q", data + bytes(-len(data) % 8)):
            total ^= word
        return total >> 32 ^ total & 0xFFFFFFFF

    def element(self, record, sequence=None, count=None, checksum=None):
        size = 48 + len(record)
        count = -(-size // PAGE) if count is None else count
        sequence = self.sequence if sequence is None else sequence
        head = bytes(32) + struct.pack("<IIII", 0, sequence, count, 0)
        total = self.sum(head + record) if checksum is None else checksum
        return bytes(32) + struct.pack("<IIII", total, sequence, count, 0) + record

    def header(self, function, body, length=None):
        self.rpc_sequence += 1
        length = 32 + len(body) if length is None else length
        return (
            struct.pack("<8I", 3 << 24, 0x43505256, length, function, 0xFFFFFFFF, 0xFFFFFFFF, self.rpc_sequence, 0)
            + body
        )

    def push(self, function, body, **how):
        """Write one message; `beyond` is what NVIDIA's driver leaves behind the message's own length."""
        beyond = how.pop("beyond", b"")
        self.push_raw(self.element(self.header(function, body, how.pop("length", None)), **how) + beyond)

    def push_raw(self, element):
        pages = -(-len(element) // PAGE)
        for number in range(pages):
            part = element[number * PAGE : (number + 1) * PAGE].ljust(PAGE, b"\0")
            self.store(self.command + PAGE + (self.written + number) % self.count * PAGE, part)
        self.written = (self.written + pages) % self.count
        self.sequence += 1
        self.store(self.command + 16, struct.pack("<I", self.written))

    def ring(self):
        self.firmware.doorbell()
        self.settle()

    def receive(self):
        """Return the next message; None if there is none. Checks what drivers check."""
        written = struct.unpack("<I", self.load(self.status + 16, 4))[0]
        if self.read == written:
            return None
        page = self.status + PAGE
        first = self.fast(page + self.read * PAGE, PAGE)
        sequence, count = struct.unpack_from("<II", first, 36)
        data = first + b"".join(
            self.fast(page + (self.read + number) % self.count * PAGE, PAGE) for number in range(1, count)
        )
        length = struct.unpack_from("<I", data, 48 + 8)[0]
        assert count == -(-(48 + length) // PAGE)
        assert self.sum(data[: 48 + length]) == 0, "Bad checksum."
        assert sequence == self.received, "Bad sequence number."
        self.received += 1
        self.read = (self.read + count) % self.count
        # the read pointer of the status queue is in the command queue's header: MSGQ_FLAGS_SWAP_RX
        self.store(self.command + 32, struct.pack("<I", self.read))
        version, signature, _, function, result, private, _, _ = struct.unpack_from("<8I", data, 48)
        assert (version, signature) == (3 << 24, 0x43505256)
        return SimpleNamespace(function=function, result=result, private=private, body=data[80 : 48 + length])

    def fast(self, offset, size):
        return self.memory.read(Aperture.SYSMEM, self.places[offset // PAGE] + offset % PAGE, size)

    def call(self, function, body, **how):
        """Send a call and return its answer; events that come before it are kept."""
        self.push(function, body[:RECORD_BODY], **how)
        for number, offset in enumerate(range(RECORD_BODY, len(body), RECORD_BODY)):
            if number % 2:
                # the queue has room for three long records
                self.ring()
            self.push(71, body[offset : offset + RECORD_BODY])
        self.ring()
        return self.answer(function)

    def answer(self, function):
        while (message := self.receive()) is not None:
            if message.function == function:
                last = message
                while len(last.body) == RECORD_BODY:
                    last = self.receive()
                    assert last.function == 71
                    message.body += last.body
                return message
            self.events.append(message)
        return None

    def alloc(self, client, parent, handle, number, params=b"", *, in_length=True):
        """RM_ALLOC; return its status and the parameters that came back."""
        head = struct.pack("<7I4x", client, parent, handle, number, 0, len(params), 0)
        message = self.call(103, head + params) if in_length else self.call(103, head, beyond=params)
        answer, status = message.body, struct.unpack_from("<I", message.body, 16)[0]
        assert message.result == status
        return status, answer[32:]

    def control(self, client, handle, command, params=b"", flags=0):
        """RM_CONTROL; return its status and the parameters that came back."""
        message = self.call(76, struct.pack("<6I", client, handle, command, 0, len(params), flags) + params)
        assert message.result == 0
        return struct.unpack_from("<I", message.body, 12)[0], message.body[24:]

    def free(self, client, handle):
        message = self.call(10, struct.pack("<4I", client, 0, handle, 0))
        assert message.result == struct.unpack_from("<I", message.body, 12)[0]
        return message.result

    def root(self, client=0xC1D00001):
        """Make a client, a device 0x80 and a subdevice 0x2080 of it; return the client."""
        size = 120 if self.release == "570.144" else 108
        assert self.alloc(client, 0, 0, 0, struct.pack("<II", client, 1).ljust(size, b"\0"))[0] == 0
        assert self.alloc(client, client, 0x80, 0x80, bytes(56))[0] == 0
        assert self.alloc(client, 0x80, 0x2080, 0x2080, bytes(4))[0] == 0
        return client

    def internal(self):
        """Return the handles of the firmware's own client and subdevice, from the static information."""
        size, at = (1656, 1600) if self.release == "570.144" else (2168, 2152)
        body = self.call(65, bytes(size)).body
        assert len(body) == size
        client, _, subdevice = struct.unpack_from("<3I", body, at)
        return client, subdevice


@pytest.fixture
def gsp():
    """Return a function that makes a firmware and the CPU beside it: `gsp("ga102", elements=63, release=…)`."""

    def make(chip="ga102", **cpu):
        device, vram, product = CHIPS[chip]
        clock = VirtualClock()
        memory, card = Memory(), Card()
        row = SimpleNamespace(
            name=chip,
            product=product,
            device_id=device,
            subsystem_id=0x1482,
            revision=0xA1,
            vram_bytes=vram,
            bar1_bytes=256 << 20,
            generation=4,
            mmu_version=3 if chip == "gb202" else 2,
        )
        firmware = GspFirmware(row, memory, card, clock, EventLog(clock))
        return Cpu(firmware, memory, card, clock, **cpu)

    return make


@pytest.fixture
def cpu_of():
    """Return a function that makes the CPU's side of a whole card's firmware; `HOST` is in the card's reach."""

    def make(card, **cpu):
        firmware = card.firmware_of_gsp
        return Cpu(firmware, firmware.memory, card, card.clock, **cpu)

    return make


@pytest.fixture
def up(gsp):
    """Return the same, with the firmware running and INIT_DONE taken in."""

    def make(chip="ga102", **cpu):
        made = gsp(chip, **cpu).prepare().start()
        message = made.receive()
        assert (message.function, message.result) == (0x1001, 0)
        return made

    return make
