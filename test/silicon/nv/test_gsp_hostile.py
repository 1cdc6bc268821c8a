"""A hostile CPU: whatever it sends, the firmware refuses or drops it, names it, and goes on."""

import random
import struct

import pytest

from ringup.silicon.nv.gsp.functions import ROWS as FUNCTIONS
from ringup.silicon.nv.rm.classes import ROWS as CLASSES
from ringup.silicon.nv.rm.controls.every import CONTROLS

RELEASE = "535.261.03"
STEPS = 400
WORDS = (0, 1, 2, 3, 8, 9, 0x40, 0x5A, 0x60, 0x80, 0xC0, 0x1000, 0x2080, 0x10000, 0xC1D00001, 0x7FFFFFFF, 0xFFFFFFFF)
LONGEST = 30_000
UNLOADING = 47


class Hostile:
    """Makes requests of a known size with a few words that mean something, on objects that exist."""

    def __init__(self, cpu, seed):
        self.cpu, self.random = cpu, random.Random(seed)
        cpu.root(0xC1D00001)
        cpu.alloc(0xC1D00001, 0x80, 0x5A, 0x90F1, bytes(48))
        cpu.alloc(0xC1D00001, 0x80, 0x60, 0xA06C, struct.pack("<IIIIB3x", 0, 0, 0x5A, 1, 0))

    def params(self, size):
        if self.random.random() < 0.3:
            return self.random.randbytes(size)
        made = bytearray(size)
        for _ in range(self.random.randrange(10) if size >= 4 else 0):
            struct.pack_into("<I", made, self.random.randrange(size // 4) * 4, self.random.choice(WORDS))
        return bytes(made)

    def target(self, kinds=None):
        """An object of some kinds if there is one; else a handle of nothing."""
        found = [
            resource
            for client in self.cpu.firmware.session.manager.clients
            for resource in client.resources.values()
            if kinds is None or resource.row.kind in kinds
        ]
        if not found:
            return 0xC1D00001, 0xBAD
        chosen = self.random.choice(found)
        return chosen.client.handle, chosen.handle

    def control(self):
        row = self.random.choice([*CONTROLS.rows.values()])
        size = row.size_bytes if row.layout is None else row.layout.at(RELEASE).SIZE
        if size <= LONGEST:
            self.cpu.control(*self.target((row.kind,)), row.command, self.params(size))

    def alloc(self):
        row = self.random.choice(CLASSES)
        size = 0 if row.params is None else row.params.at(RELEASE).SIZE
        client, parent = self.target(row.parents)
        handle = self.random.randrange(1, 1 << 8)
        self.cpu.alloc(client, parent, handle, row.number, self.params(size), in_length=self.random.random() < 0.5)

    def free(self):
        client, handle = self.target()
        if handle not in (0x80, 0x2080, client):
            self.cpu.free(client, handle)

    def dup(self):
        client, parent = self.target()
        self.cpu.call(21, struct.pack("<7I", client, parent, self.random.randrange(256), *self.target(), 0, 0))

    def raw(self):
        """A call with a body of any length, which may be too short for it."""
        function = self.random.choice([*FUNCTIONS, 1, 200])
        if function != UNLOADING:
            self.cpu.push(function, self.params(self.random.choice((0, 4, 24, 56, 100, 600))))
            self.drain()

    def damaged(self):
        """A whole element with damaged bytes, its checksum right or wrong; then the queue is made anew."""
        element = bytearray(self.cpu.element(self.cpu.header(76, self.params(64))))
        for _ in range(3):
            element[self.random.randrange(36, len(element))] = self.random.randrange(256)
        if self.random.random() < 0.7:
            element[32:36] = bytes(4)
            struct.pack_into("<I", element, 32, self.cpu.sum(bytes(element[32:])))
        self.cpu.push_raw(bytes(element))
        self.drain()

    def drain(self):
        self.cpu.ring()
        while self.cpu.receive() is not None:
            pass


@pytest.mark.parametrize("chip", ["tu102", "ga102", "ad102"])
def test_nothing_that_the_cpu_sends_is_more_than_refused(up, chip):
    cpu = up(chip, release=RELEASE)
    hostile = Hostile(cpu, f"hostile {chip}")
    for _ in range(STEPS):
        hostile.random.choice(
            (hostile.control, hostile.control, hostile.alloc, hostile.alloc, hostile.free, hostile.dup, hostile.raw)
        )()
    manager = cpu.firmware.session.manager
    assert all(len(client.resources) < STEPS for client in manager.clients)
    cpu.firmware.unload()
    assert not [*manager.clients]


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_element_is_named_or_answered(up, seed):
    cpu = up(release=RELEASE)
    hostile = Hostile(cpu, f"damaged {seed}")
    hostile.damaged()
    assert cpu.firmware.phase.value == "running"
    assert len(cpu.firmware.violations) <= 1
