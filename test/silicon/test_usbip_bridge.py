"""A virtual enclosure served over USB/IP. Its requests, its streams and its loss arrive unchanged at the far end."""

import socket
import struct

import pytest

from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.silicon.serve.usbip import UsbipServer

ESHUTDOWN = -108


class Far:
    """The far end of a socketpair, in place of a kernel."""

    def __init__(self, server, host):
        self.server = server
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        self.devid = server.adopt(theirs, "1-1").devid
        self.seqnum = 0

    def read(self, size):
        data = b""
        for _ in range(3000):
            if len(data) == size:
                break
            try:
                piece = self.sock.recv(size - len(data))
            except BlockingIOError:
                self.server.step(0.001)
                continue
            if not piece:
                break
            data += piece
        return data

    def submit(self, endpoint, payload, setup=bytes(8)):
        self.seqnum += 1
        size, out = (payload, b"") if isinstance(payload, int) else (len(payload), payload)
        fields = (1, self.seqnum, self.devid, isinstance(payload, int), endpoint & 15, 0, size, 0, 0, 0, setup)
        self.sock.sendall(struct.pack(">5I5I8s", *fields) + out)

    def answer(self, into_host):
        head = self.read(48)
        status, actual = struct.unpack_from(">iI", head, 20)
        return status, self.read(actual) if into_host else actual

    def control(self, kind, request, value, index, payload):
        size = payload if isinstance(payload, int) else len(payload)
        self.submit(0, payload, struct.pack("<BBHHH", kind, request, value, index, size))
        return self.answer(isinstance(payload, int))


@pytest.fixture
def host():
    return VirtualUsbHost()


@pytest.fixture
def enclosure(host):
    made = Enclosure(None, "open", clock=None)
    host.plug(made)
    return made


@pytest.fixture
def far(host, enclosure):
    with UsbipServer([host]) as server:
        made = Far(server, host)
        assert made.control(0x00, 9, 1, 0, b"") == (0, 0)
        yield made


def test_its_descriptors_and_registers(far):
    status, descriptor = far.control(0x80, 6, 0x0100, 0, 18)
    # ADD1:0001, which the open firmware reports.
    assert (status, descriptor[8:12]) == (0, bytes.fromhex("d1ad0100"))
    status, text = far.control(0x80, 6, 0x0302, 0x0409, 255)
    assert text[2:].decode("utf-16-le").startswith("custom")
    assert far.control(0x40, 0xE5, 0x5000, 0x005A, b"") == (0, 0)
    assert far.control(0xC0, 0xE4, 0x5000, 0, 1) == (0, b"\x5a")


def test_an_alternate_setting_brings_its_endpoints(far, host):
    assert far.control(0x01, 11, 1, 0, b"") == (0, 0)
    attached = next(iter(host.enumerate_devices()))
    assert attached.alternates == {0: 1}


def test_unplugged_mid_transfer(far, host):
    far.submit(0x81, 1024)
    far.server.step(0)
    host.unplug()
    assert far.answer(into_host=True) == (ESHUTDOWN, b"")
    assert far.read(1) == b""


def test_let_go_it_can_be_had_again(far, host):
    far.submit(0x81, 1024)
    far.server.step(0)
    far.sock.close()
    far.server.step(0.1)
    again = Far(far.server, host)
    assert again.control(0x00, 9, 1, 0, b"") == (0, 0)
    assert again.control(0xC0, 0xE4, 0xB450, 0, 1)[0] == 0
