"""A host in memory: it fetches what GPFIFO entries name, runs semaphores and notes all other methods."""

import struct

import pytest

from ringup.errors import DeviceTimeout
from ringup.queues.arena import Arena
from ringup.queues.kept import KeptMemory
from ringup.queues.nv.gpfifo import Gpfifo, GpfifoQueue
from ringup.queues.queue import Owner, QueueParts
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


class Channel:
    """Memory, a channel in it and the host that reads it, while somebody waits."""

    def __init__(self, commands, ring_bytes=1024, entries=256, start=0, mapped=True, args_bytes=4096):
        self.memory = memoryview(bytearray(1 << 18))
        self.words = self.memory.cast("Q")
        self.free = 256
        self.methods, self.segments, self.order = [], [], []
        self.get = self.gp_put = 0
        self.stuck, self.doorbells = False, 0
        self.semaphore, self.waiting = {}, None
        self.ring_at, self.entries_at, self.word = self.take(ring_bytes), self.take(8 * entries), self.take(64)
        self.entries, self.ring_bytes = entries, ring_bytes
        self.owner = Owner("channel")
        cell = self.memory[self.word : self.word + 8].cast("Q")
        self.timeline = Timeline("channel timeline", lambda: cell[0], BASE + self.word, self, self)
        self.gpfifo = Gpfifo(
            BASE + self.ring_at,
            ring_bytes,
            entries,
            self.writer(self.entries_at),
            self.store_put,
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
        return KeptMemory(BASE + at, self.writer(at), lambda: None)

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
        else:
            assert execute & 7 == 3
            assert self.words[(gpu_va - BASE) // 8] >= payload, "waits are not run in this test"


@pytest.fixture(name="methods_of")
def decode_methods():
    return methods_of


@pytest.fixture
def channel():
    return Channel
