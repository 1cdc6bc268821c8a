"""A peer of a vfio-user server, written byte by byte from QEMU's docs/interop/vfio-user.rst. `bench` makes servers,
cards and peers.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import mmap
import os
import resource
import select
import socket
import struct
import threading
import time

import pytest

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.serve import vfio_user_channel
from ringup.silicon.serve.vfio_user import VfioUserServer

STEPS = 4000
VRAM = 64 << 20
VERSION, DMA_MAP, DMA_UNMAP, INFO, REGION_INFO, IRQ_INFO, SET_IRQS = 1, 2, 3, 4, 5, 7, 8
READ, WRITE, DMA_READ, DMA_WRITE, RESET, MULTI = 9, 10, 11, 12, 13, 15
NONE, BOOL, EVENTFD, MASK, UNMASK, TRIGGER = 1, 2, 4, 8, 16, 32


def descriptors():
    """Return how many descriptors this process has, without those of cards that nothing refers to any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def receive(sock, size, most=16):
    """Return (bytes, descriptors, whether the other end is open) of one recvmsg."""
    room = array.array("i")
    data, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(most * 4))
    for level, kind, payload in ancillary:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        room.frombytes(payload)
    return data, room.tolist(), bool(data)


class Reply:
    def __init__(self, data, fds):
        self.number, self.command, self.size, self.flags, self.errno = struct.unpack_from("=HHIII", data)
        self.payload, self.fds = data[16:], fds


class Peer:
    """A virtual machine monitor: it sends, lets the server work, and reads answers. The test's end closes the
    descriptors it received.
    """

    def __init__(self, bench, path):
        self.bench, self.server = bench, bench.server
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.sock.setblocking(False)
        self.inbox, self.fds, self.came, self.number, self.ended = b"", [], [], 0x1233, False

    def send(self, data, fds=()):
        """Send bytes; the descriptors go with the first of them."""
        view, fds = memoryview(data), list(fds)
        while view:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                view = view[self.sock.sendmsg([view], rights) :]
                fds = []
            except BlockingIOError:
                self.server.step(0)

    def message(self, command, payload=b"", flags=0):
        self.number = self.number + 1 & 0xFFFF
        return struct.pack("=HHIII", self.number, command, 16 + len(payload), flags, 0) + payload

    def read(self, size):
        """Return so many bytes, or fewer if the server has closed."""
        for _ in range(STEPS):
            if len(self.inbox) >= size:
                break
            try:
                data, came, there = receive(self.sock, 1 << 20)
            except BlockingIOError:
                self.server.step(0.001)
                continue
            except ConnectionResetError:
                data, came, there = b"", [], False
            self.inbox += data
            self.came += came
            self.fds += came
            self.ended = not there
            if self.ended:
                break
        data, self.inbox = self.inbox[:size], self.inbox[size:]
        return data

    @property
    def gone(self):
        """Whether the server closes. What it sent before is dropped."""
        self.read(1 << 30)
        return self.ended

    def answer(self):
        head = self.read(16)
        assert len(head) == 16, "the server closed"
        reply = Reply(head + self.read(struct.unpack_from("=I", head, 4)[0] - 16), [])
        reply.fds, self.came = self.came, []
        return reply

    def exchange(self, command, payload=b"", fds=()):
        self.send(self.message(command, payload), fds)
        number = self.number
        reply = self.answer()
        assert (reply.number, reply.command, reply.flags & 0xF) == (number, command, 1)
        assert reply.size == 16 + len(reply.payload)
        assert bool(reply.flags & 0x20) == bool(reply.errno)
        assert not (reply.errno and reply.payload)
        return reply

    def ask(self, command, payload=b"", fds=()):
        """Return the payload of a request that must succeed."""
        reply = self.exchange(command, payload, fds)
        assert reply.errno == 0, os.strerror(reply.errno)
        return reply.payload

    def refused(self, command, payload=b"", fds=()):
        """Return the errno of a request that must fail."""
        reply = self.exchange(command, payload, fds)
        assert reply.errno
        return reply.errno

    def agree(self, major=0, minor=1, **capabilities):
        text = json.dumps({"capabilities": capabilities}).encode() + b"\0"
        payload = self.ask(VERSION, struct.pack("=HH", major, minor) + text)
        return struct.unpack_from("=HH", payload), json.loads(payload[4:-1])

    # regions

    def get(self, region, offset, size):
        payload = self.ask(READ, struct.pack("=QII", offset, region, size))
        assert struct.unpack_from("=QII", payload) == (offset, region, size)
        assert len(payload) == 16 + size
        return payload[16:]

    def put(self, region, offset, data):
        head = struct.pack("=QII", offset, region, len(data))
        assert self.ask(WRITE, head + data) == head

    def get32(self, region, offset):
        return int.from_bytes(self.get(region, offset, 4), "little")

    def put32(self, region, offset, value):
        self.put(region, offset, value.to_bytes(4, "little"))

    def master(self):
        self.put(7, 4, b"\x06\x00")

    # memory

    def map(self, address, size, fd=None, offset=0, flags=3):
        return self.exchange(
            DMA_MAP, struct.pack("=IIQQQ", 32, flags, offset, address, size), [] if fd is None else [fd]
        ).errno

    def unmap(self, address, size, flags=0):
        reply = self.exchange(DMA_UNMAP, struct.pack("=IIQQ", 24, flags, address, size))
        assert reply.errno or reply.payload == struct.pack("=IIQQ", 24, flags, address, size)
        return reply.errno

    # interrupts

    def irqs(self, index, flags, start=0, count=1, data=b"", fds=()):
        return self.exchange(
            SET_IRQS, struct.pack("=IIIII", 20 + len(data), flags, index, start, count) + data, fds
        ).errno

    def settle(self, steps=3):
        for _ in range(steps):
            self.server.step(0)

    def close(self):
        self.sock.close()
        while self.fds:
            os.close(self.fds.pop())


class Ram(threading.Thread):
    """A peer's memory. A thread serves it byte by byte on a socket, as a monitor would. `spoil` makes the answers
    wrong.
    """

    def __init__(self, sock, size=1 << 20, base=0, spoil=None):
        super().__init__(daemon=True)
        self.sock, self.base, self.bytes, self.spoil = sock, base, bytearray(size), spoil
        self.asked = []
        # Other messages that arrived.
        self.others = b""
        self._ends, self._end = socket.socketpair()
        # poll takes descriptors of any number. A worker that has run many tests has high ones.
        self._poll = select.poll()
        for one in (sock, self._ends):
            self._poll.register(one, select.POLLIN)
        sock.setblocking(True)

    def _all(self, size):
        data = b""
        while len(data) < size:
            # All that arrived is read first.
            if self.sock.fileno() not in (ready for ready, _ in self._poll.poll()):
                return None
            piece = self.sock.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data

    def run(self):
        with contextlib.suppress(OSError):
            while (head := self._all(16)) is not None:
                number, command, size, flags, _ = struct.unpack("=HHIII", head)
                payload = self._all(size - 16)
                if payload is None:
                    return
                if flags & 0xF or command not in (DMA_READ, DMA_WRITE):
                    self.others += head + payload
                    continue
                address, count = struct.unpack_from("=QQ", payload)
                self.asked.append((command, address, count))
                answer = self._serve(number, command, address, count, payload[16:])
                self.sock.sendall(self.spoil(self, answer) if self.spoil else answer)

    def _serve(self, number, command, address, count, data):
        at = address - self.base
        if command == DMA_WRITE:
            assert len(data) == count
            self.bytes[at : at + count] = data
            body = struct.pack("=QQ", address, count)
        else:
            body = struct.pack("=QQ", address, count) + bytes(self.bytes[at : at + count])
        return struct.pack("=HHIII", number, command, 16 + len(body), 1, 0) + body

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.send(b"x")
        self.join(10)
        assert not self.is_alive()
        self._end.close()
        self._ends.close()
        self.sock.setblocking(False)


class Bench:
    """A server whose cards share its clock, and their peers."""

    def __init__(self, folder, make):
        self.clock = VirtualClock()
        self.server = VfioUserServer(self.clock)
        self._folder, self._make = folder, make
        self.peers, self.paths, self.closing = [], [], []

    def card(self, name="navi31", **options):
        card = self._make(name, clock=self.clock, **{"vram_bytes": VRAM, **options})
        self.paths.append(str(self._folder / f"card{len(self.paths)}"))
        self.server.serve(self.paths[-1], card)
        return card

    def connect(self, number=0):
        """Connect a peer that has sent nothing yet."""
        self.peers.append(Peer(self, self.paths[number]))
        return self.peers[-1]

    def peer(self, number=0, **capabilities):
        """Connect a peer and agree on a version."""
        peer = self.connect(number)
        peer.agree(**capabilities)
        return peer

    def ram(self, peer, **options):
        return Ram(peer if isinstance(peer, socket.socket) else peer.sock, **options)

    def memfd(self, size, flags=os.MFD_ALLOW_SEALING):
        """Return (descriptor, mapping) of a memory file."""
        fd = os.memfd_create("ram", os.MFD_CLOEXEC | flags)
        os.ftruncate(fd, size)
        self.closing.append(fd)
        return fd, mmap.mmap(fd, size)

    def eventfd(self):
        self.closing.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        return self.closing[-1]

    @staticmethod
    def count(fd):
        """Return how often an eventfd was signalled since the last call."""
        try:
            return os.eventfd_read(fd)
        except BlockingIOError:
            return 0

    def until(self, done, seconds=10):
        """Let the server work until a condition holds."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end
            self.server.step(0.001)

    def close(self):
        for peer in self.peers:
            peer.close()
        self.server.close()
        for fd in self.closing:
            os.close(fd)


@pytest.fixture
def rounds_without_descriptors():
    """Return how often a server polls in 0.6 s while a connection waits and no descriptor is left for it."""

    def count(server, connect):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            connect()
            rounds, end = 0, time.monotonic() + 0.6
            while time.monotonic() < end:
                server.step(0.1)
                rounds += 1
        finally:
            for one in taken:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return rounds

    return count


@pytest.fixture
def bench(tmp_path, virtual_card, monkeypatch):
    """A bench that waits for answers longer than any test lasts. Tests of this wait set their own time."""
    monkeypatch.setattr(vfio_user_channel, "ANSWER_S", 30)
    made = Bench(tmp_path, virtual_card)
    made.descriptors = descriptors
    yield made
    made.close()


@pytest.fixture
def card(bench):
    """The bench's first card."""
    return bench.card()


@pytest.fixture
def peer(bench, card):
    """A peer of the first card, which has agreed on a version."""
    return bench.peer()
