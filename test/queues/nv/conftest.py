"""A host in memory: it fetches what GPFIFO entries name, runs semaphores and notes all other methods."""

import struct
import subprocess
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ringup.errors import DeviceTimeout
from ringup.queues.arena import Arena
from ringup.queues.kept import KeptMemory
from ringup.queues.nv.gpfifo import Gpfifo, GpfifoQueue
from ringup.queues.queue import Inline, Owner, QueueParts
from ringup.queues.ring import Ring
from ringup.queues.timeline import Timeline

BASE = 0x1_2340_0000  # where this memory is in the channel's address space


def methods_of(words):
    """Return (subchannel, method, value) of a pushbuffer's words, after "dma method formats" of clc56f.h."""
    found, words = [], list(words)
    while words:
        header = words.pop(0)
        operation, count = header >> 29, header >> 16 & 0x1FFF
        subchannel, method = header >> 13 & 7, (header & 0xFFF) * 4
        if header == 0:
            continue
        if operation == 4:
            found.append((subchannel, method, count))
            continue
        assert operation in (1, 3, 5), f"header {header:#x}"
        assert 0 < count <= len(words), f"header {header:#x} counts more than its segment has"
        for number in range(count):
            step = {1: number, 3: 0, 5: min(number, 1)}[operation]
            found.append((subchannel, method + 4 * step, words.pop(0)))
    return found


class PutCell:
    """GP_PUT of a channel."""

    def __init__(self, channel):
        self.channel = channel

    def __setitem__(self, index, value):
        assert index == 0
        self.channel.store_put(value)


class Channel:
    """Memory, a channel in it and the host that reads it, while somebody waits."""

    def __init__(self, commands, ring_bytes=1024, entries=256, start=0, mapped=True, args_bytes=4096, inline=False):
        self.memory = memoryview(bytearray(1 << 18))
        self.words = self.memory.cast("Q")
        self.free = 256
        self.methods, self.segments, self.order = [], [], []
        self.get = self.gp_put = 0
        self.stuck, self.doorbells, self.clock_ns = False, 0, 0
        self.semaphore, self.waiting = {}, None
        self.ring_at, self.entries_at, self.word = self.take(ring_bytes), self.take(8 * entries), self.take(64)
        self.entries, self.ring_bytes, self.mapped = entries, ring_bytes, mapped
        self.owner = Owner("channel")
        cell = self.memory[self.word : self.word + 8].cast("Q")
        self.timeline = Timeline("channel timeline", lambda: cell[0], BASE + self.word, self, self)
        self.gpfifo = Gpfifo(
            BASE + self.ring_at,
            ring_bytes,
            entries,
            self.writer(self.entries_at),
            PutCell(self),
            self.doorbell,
            fence=lambda: self.order.append("fence"),
            view=self.memory[self.entries_at : self.entries_at + 8 * entries] if mapped else None,
            start=start,
        )
        ring_view = self.memory[self.ring_at : self.ring_at + ring_bytes]
        self.ring = Ring(
            "channel ring",
            ring_bytes,
            self.writer(self.ring_at),
            self.gpfifo.publish,
            view=ring_view if mapped else None,
            start=start,
        )
        parts = QueueParts(
            name="channel",
            commands=commands,
            timeline=self.timeline,
            ring=self.ring,
            args=self.arena(args_bytes),
            indirect=self.arena(16384),
            owner=self.owner,
            inline=Inline(BASE + self.ring_at, commands.carry) if inline else None,
        )
        self.queue = GpfifoQueue(parts, self.gpfifo)

    def take(self, size_bytes):
        at = -(-self.free // 256) * 256
        self.free = at + size_bytes
        assert self.free <= len(self.memory)
        return at

    def arena(self, size_bytes):
        at = self.take(size_bytes)
        return Arena(BASE + at, size_bytes, self.writer(at))

    def writer(self, base):
        def write(at, data):
            self.memory[base + at : base + at + len(data)] = data

        return write

    def kept_memory(self, size_bytes):
        at = self.take(size_bytes)
        view = self.memory[at : at + size_bytes] if self.mapped else None
        return KeptMemory(BASE + at, self.writer(at), lambda: None, view)

    def store_put(self, index):
        assert 0 <= index < self.entries
        assert self.order[-1:] == ["fence"], "GP_PUT was stored before the entries were visible"
        ahead, more = (self.gp_put - self.get) % self.entries, (index - self.gp_put) % self.entries
        assert ahead + more < self.entries, "the GPFIFO was overrun"
        self.order.append("put")
        self.next_put = index

    def doorbell(self):
        assert self.order[-2:] == ["put", "fence"]
        self.order.clear()
        self.gp_put, self.doorbells = self.next_put, self.doorbells + 1

    def wait(self, timeline, value, timeout_us):
        for _ in range(timeout_us // 100):
            if timeline.completed >= value:
                return
            if not self.stuck:
                self.step()
        raise DeviceTimeout(f"{timeline.name} stayed at {timeline.completed}, {value} was asked")

    def step(self):
        """Run one entry, unless the channel waits for a semaphore."""
        if self.waiting is not None:
            gpu_va, value = self.waiting
            if self.words[(gpu_va - BASE) // 8] < value:
                return
            self.waiting = None
        if self.get == self.gp_put:
            return
        (word,) = struct.unpack_from("<Q", self.memory, self.entries_at + 8 * self.get)
        # clc56f.h: fetch 0, address 39:2, level 41, length in dwords 62:42, sync 63
        assert not word & 1
        assert not word >> 40 & 3
        assert not word >> 63
        gpu_va, count = word & 0xFF_FFFF_FFFC, word >> 42
        assert count
        at = gpu_va - BASE
        self.segments.append((at, 4 * count))
        self.run(struct.unpack_from(f"<{count}I", self.memory, at))
        self.get = (self.get + 1) % self.entries

    def run(self, words):
        for subchannel, method, value in methods_of(words):
            # the host's NOP
            if method == 8:
                continue
            if subchannel != 0 or method >= 0x100:
                self.methods.append((subchannel, method, value))
                continue
            self.semaphore[method] = value
            if method == 0x6C:
                self.execute(value)

    def execute(self, execute):
        low, high, payload, upper = (self.semaphore[method] for method in (0x5C, 0x60, 0x64, 0x68))
        gpu_va, payload = high << 32 | low, upper << 32 | payload
        assert execute >> 24 & 1, "32 bits"
        if execute & 7 == 1:
            assert execute >> 20 & 1, "a signal that does not wait for idle"
            self.words[(gpu_va - BASE) // 8] = payload
            # RELEASE_TIMESTAMP: the clock goes behind the payload, and the address is a multiple of 16
            if execute >> 25 & 1:
                assert gpu_va % 16 == 0
                self.clock_ns += 1000
                self.words[(gpu_va - BASE) // 8 + 1] = self.clock_ns
        else:
            assert execute & 7 == 3
            assert self.words[(gpu_va - BASE) // 8] >= payload, "waits are not run in this test"


@pytest.fixture(name="methods_of")
def decode_methods():
    return methods_of


@pytest.fixture
def channel():
    return Channel


# what ptxas 12.2 and 13.5 store in the header of a cubin for sm_86: OS/ABI, ABI version, flags without the target
ABIS = {7: (0x33, 0x4B0500, 0), 8: (0x41, 0x0600_0004, 8)}


class Part(NamedTuple):
    """A section of a file that is made. `size` is for one without contents."""

    name: str
    kind: int = 1
    data: bytes = b""
    size: int = 0
    info: int = 0
    flags: int = 2
    align: int = 16


def info(attribute, data):
    """Return an entry of `.nv.info`: bytes, or a number of 16 bits."""
    if isinstance(data, int):
        return struct.pack("<BBH", 3, attribute, data)
    return struct.pack("<BBH", 4, attribute, len(data)) + data


def make_elf(parts, symbols=(), *, sm=86, abi=8, machine=190):
    """Return an ELF file. `symbols`: (name, section's name or None, value, bytes, type, other)."""
    parts = [Part("", 0), *parts]
    numbers = {part.name: number for number, part in enumerate(parts)}
    strings, rows = b"\0", [bytes(24)]
    for name, section, value, size, kind, other in symbols:
        number = numbers[section] if section else 0
        rows.append(struct.pack("<IBBHQQ", len(strings), 16 | kind, other, number, value, size))
        strings += name.encode() + b"\0"
    parts += [Part(".symtab", 2, b"".join(rows)), Part(".strtab", 3, strings), Part(".shstrtab", 3)]
    names = b"\0".join(part.name.encode() for part in parts) + b"\0"
    body, headers, at_name = b"", b"", 0
    for part in parts:
        data = names if part.name == ".shstrtab" else part.data
        link = {2: len(parts) - 2, 4: len(parts) - 3, 9: len(parts) - 3}.get(part.kind, 0)
        headers += struct.pack(
            "<IIQQQQIIQQ",
            at_name, part.kind, part.flags, 0, 64 + len(body), len(data) or part.size, link, part.info, part.align, 0,
        )  # fmt: skip
        at_name += len(part.name) + 1
        body += data + bytes(-len(data) % 16)
    osabi, flags, shift = ABIS[abi]
    identity = b"\x7fELF\x02\x01\x01" + bytes([osabi, abi]) + bytes(7)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        identity, 2, machine, 1, 0, 0, 64 + len(body), flags | sm << shift, 64, 56, 0, 64, len(parts), len(parts) - 1,
    )  # fmt: skip
    return head + body + headers


def make_cubin(
    *, sm=86, abi=8, registers=24, sizes=(8, 4), params_at=0x160, shared=0, frame=0, barriers=1, more=(), infos=(),
    more_symbols=(), code=bytes(range(128)), stack=None, module=(),
):  # fmt: skip
    """Return a cubin with one kernel, `work`. `sizes`: of its parameters, each aligned to its size up to 8."""
    table, end = b"", 0
    for number, size in enumerate(sizes):
        end += -end % min(size, 8)
        table += info(0x17, struct.pack("<III", 0, number | end << 16, 0x1F000 | size << 18))
        end += size
    own = info(0x0A, struct.pack("<II", 1, params_at | end << 16)) + table + struct.pack("<BBH", 2, 0x4C, barriers)
    pairs = [(0x2F, registers), (0x11, frame), (0x12, frame if stack is None else stack)]
    module = b"".join([*(info(number, struct.pack("<II", 1, value)) for number, value in pairs), *module])
    parts = [
        Part(".text.work", data=code, info=(registers & 0xFF) << 24 | 1, flags=6, align=128),
        Part(".nv.info", 0x7000_0000, module, flags=0),
        Part(".nv.info.work", 0x7000_0000, own + b"".join(infos), flags=0),
        Part(".nv.constant0.work", data=bytes(params_at + end)),
    ]
    if shared:
        parts.append(Part(".nv.shared.work", 8, size=shared, flags=3))
    symbols = [("work", ".text.work", 0, len(code), 2, 0x10), *more_symbols]
    return make_elf([*parts, *more], symbols, sm=sm, abi=abi)


@pytest.fixture
def maker():
    """`maker.cubin(...)`, `maker.elf(parts, symbols)`, `maker.part(...)`, `maker.info(attribute, data)`."""
    return SimpleNamespace(cubin=make_cubin, elf=make_elf, part=Part, info=info)


@pytest.fixture(name="real_cubin")
def compile_ptx(headers, tmp_path):
    """`real_cubin(ptx, "sm_86")` is ptxas's cubin."""
    program = headers("ptxas") / "nvidia" / "cu13" / "bin" / "ptxas"

    def call(text, target):
        (tmp_path / "text.ptx").write_text(text)
        argv = [program, f"-arch={target}", "-O1", tmp_path / "text.ptx", "-o", tmp_path / "text.cubin"]
        subprocess.run(argv, check=True, timeout=60, capture_output=True)
        return (tmp_path / "text.cubin").read_bytes()

    return call
