"""A toy engine that obeys rings as hardware does: it reads up to the write pointer at times of its own, executes, and
stores the timeline.
"""

import functools
import struct
import subprocess
from collections import deque
from pathlib import Path

import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.errors import DeviceTimeout
from ringup.queues.arena import Arena
from ringup.queues.queue import Owner, Queue, QueueParts, Stream
from ringup.queues.ring import Ring
from ringup.queues.timeline import Timeline

PACKET = struct.Struct("<IIQQ")  # op, spare, operand, operand
NOP, SIGNAL, WAIT, CALL, BEGIN, NOTE, NOTE_ARGS = range(7)
PAD = bytes(8)  # a NOP has no operands


class ToyCommands:
    """Packets of 24 bytes, NOPs of 8. `padded` pads as engines do that fetch several packets at a time, and needs each
    packet whole in the ring.
    """

    kind = "toy"
    call_period = 1
    begin = PACKET.pack(BEGIN, 0, 0, 0)
    signal_places = ((16, struct.Struct("<Q"), 0),)

    def __init__(self, padded=False):
        self.pad = PAD if padded else b""

    def padding(self, count):
        return self.pad * count

    def signal(self, gpu_va, value):
        return PACKET.pack(SIGNAL, 0, gpu_va, value)

    def wait(self, gpu_va, value):
        return PACKET.pack(WAIT, value & 0xFFFF_FFFF, gpu_va, 0)

    def call(self, gpu_va, size_bytes, at_bytes):
        return PACKET.pack(CALL, 0, gpu_va, size_bytes)


class Machine:
    """Memory, and the engines that work on it. While somebody waits, the engines take turns and run a packet each."""

    def __init__(self, size_bytes=1 << 16):
        self.memory = memoryview(bytearray(size_bytes))
        self.words = self.memory.cast("Q")
        self.engines = []
        self.free = 64  # address 0 means no address
        self.owner = Owner("toy")
        self.stuck = False

    def take(self, size_bytes):
        self.free = -(-self.free // 256) * 256
        at = self.free
        self.free += size_bytes
        assert self.free <= len(self.memory)
        return at

    def wait(self, timeline, value, timeout_us):
        for _ in range(timeout_us // 100):
            if timeline.completed >= value:
                return
            if not self.stuck:
                for engine in self.engines:
                    engine.step()
        raise DeviceTimeout(f"{timeline.name} stayed at {timeline.completed}, {value} was asked")

    def queue(self, ring_bytes=1024, start=0, wptr=0, word_bits=64, padded=False, mapped=True):
        return ToyQueue(self, ring_bytes, start, wptr, word_bits, padded, mapped)


class ToyQueue:
    """A queue and its engine; `notes` lists the numbers that the engine executed, in order."""

    def __init__(self, machine, ring_bytes, start, wptr, word_bits, padded, mapped):
        self.machine, self.notes, self.waiting, self.calls = machine, [], 0, deque()
        self.base, self.size = machine.take(ring_bytes), ring_bytes
        self.word = machine.take(64)
        machine.words[self.word // 8] = start & ((1 << word_bits) - 1)
        self.rptr = self.wptr = wptr
        form = "I" if word_bits == 32 else "Q"
        cell = machine.memory[self.word : self.word + 8].cast(form)
        self.timeline = Timeline(
            "toy timeline", lambda: cell[0], self.word, machine, machine, word_bits=word_bits, start=start
        )
        view = machine.memory[self.base : self.base + ring_bytes]

        def write(at, data):
            view[at : at + len(data)] = data

        ring = Ring("toy ring", ring_bytes, write, self.doorbell, view=view if mapped else None, start=wptr)
        self.ring = ring
        self.queue = Queue(
            QueueParts(
                name="toy",
                commands=ToyCommands(padded),
                timeline=self.timeline,
                ring=ring,
                args=self._arena(2048),
                indirect=self._arena(4096),
                owner=machine.owner,
            )
        )
        machine.engines.append(self)

    def _arena(self, size_bytes):
        at = self.machine.take(size_bytes)
        memory = self.machine.memory

        def write(offset, data):
            memory[at + offset : at + offset + len(data)] = data

        return Arena(at, size_bytes, write)

    def stream(self, *numbers):
        stream = Stream(self.queue.commands, self.machine.owner)
        for number in numbers:
            stream.body += PACKET.pack(NOTE, 0, number, 0)
        return stream

    def doorbell(self, wptr):
        assert self.rptr <= self.wptr <= wptr
        assert wptr - self.rptr < self.size, "the ring was overrun"
        self.wptr = wptr

    def _fetch(self):
        if self.calls:
            at, end = self.calls[0]
            if at == end:
                self.calls.popleft()
                return self._fetch()
            packet = bytes(self.machine.memory[at : at + PACKET.size])
            self.calls[0] = (at + _size(packet), end)
            return packet
        if self.rptr == self.wptr:
            return None
        ring = bytes(self.machine.memory[self.base : self.base + self.size]) * 2
        at = self.rptr % self.size
        packet = ring[at : at + PACKET.size]
        self.rptr += _size(packet)
        assert self.rptr <= self.wptr, "half a packet was published"
        assert at + _size(packet) <= self.size or not self.queue.commands.pad, "a packet runs over the ring's end"
        return packet

    def step(self):
        if self.waiting:
            address, value = self.waiting
            if self.machine.words[address // 8] & 0xFFFF_FFFF < value:
                return
            self.waiting = 0
        packet = self._fetch()
        if packet is None:
            return
        op, low, first, second = PACKET.unpack(packet)
        words = self.machine.words
        if op == SIGNAL:
            bits = self.timeline.word_bits
            words[first // 8] = second & ((1 << bits) - 1)
        elif op == WAIT:
            self.waiting = (first, low)
        elif op == CALL:
            self.calls.append((first, first + second))
        elif op == NOTE:
            self.notes.append(first)
        elif op == NOTE_ARGS:
            self.notes.append(words[first // 8])
        else:
            assert op in (NOP, BEGIN), f"the engine read {packet!r}"


def _size(packet):
    """Return a packet's size in bytes, from its first dword."""
    return PACKET.size if int.from_bytes(packet[:4], "little") else len(PAD)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture(scope="session")
def compile_cl(tmp_path_factory):
    """`compile_cl(source, *flags, cpu="gfx1100", version=5, linked=True)` is clang 19's code object of
    OpenCL source.
    """
    folder = tmp_path_factory.mktemp("cl")

    @functools.cache
    def compile_source(source, *flags, cpu="gfx1100", version=5, linked=True):
        (folder / "source.cl").write_text(source)
        argv = [
            "clang-19",
            "-w",
            "-x",
            "cl",
            "-cl-std=CL2.0",
            "-target",
            "amdgcn-amd-amdhsa",
            f"-mcpu={cpu}",
            "-nogpulib",
        ]
        argv += ["-O2", f"-mcode-object-version={version}", *flags, *(() if linked else ("-c", "-Xclang", "-emit-obj"))]
        subprocess.run([*argv, folder / "source.cl", "-o", folder / "out.elf"], check=True, timeout=60)
        return (folder / "out.elf").read_bytes()

    return compile_source


@pytest.fixture(scope="session")
def llvm_tool(headers):
    """`llvm_tool("llvm-readobj", *argv, stdin=b"")` is the output of LLVM 22's program, as bytes."""
    loader, option, libraries, program = llvm_mc(headers("llvm-22"))

    def call(name, *argv, stdin=b""):
        command = [loader, option, libraries, str(Path(program).with_name(name)), *argv]
        return subprocess.run(command, check=True, timeout=60, input=stdin, capture_output=True).stdout

    return call
