"""The servers that give tinygrad a virtual card: what they count, which error codes they answer, and what ends them."""

import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest

from ringup.errors import RingupError
from ringup.silicon import card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.competitor.pci_door import READ_BAR, REQUEST, PciDoor
from ringup.tools.competitor.usb_door import KEY, UsbDoor

LTSSM, L0 = 0xB450, 0x78  # FW registers.h; docs/asm2464pd.md, "Link and power"


def plugged():
    host = VirtualUsbHost()
    host.plug(Enclosure(card("navi31", vram_bytes=1 << 30, enumerated=False)))
    return host


@pytest.fixture
def door():
    with UsbDoor(plugged()) as made:
        yield made


@pytest.fixture
def ask(door):
    """`ask(name, …)` sends what the competitor's libusb asks. The device is open and its interface claimed."""
    host, port = door.address.split(":")
    with Client((host, int(port)), authkey=KEY) as line:

        def asked(name, *arguments):
            line.send((name, arguments))
            return line.recv()

        (row,) = asked("list")
        for step in (("open", row["address"]), ("configure", 1), ("claim", 0), ("alternate", 0, 0)):
            assert asked(*step) == (0, b"")
        yield asked


def test_every_call_that_stands_still_is_a_wait_and_transfers_side_by_side_are_one(door, ask):
    ask("mark", "")
    assert ask("control", 0xC0, 0xE4, LTSSM, 0, 1, 1_000) == (1, bytes([L0]))
    ask("mark", "one read")
    setup = bytes((0xC0, 0xE4)) + LTSSM.to_bytes(2, "little") + bytes(2) + (1).to_bytes(2, "little")
    for tag in (1, 2, 3):
        assert ask("submit", tag, 0, setup, 1, 1_000) == (0, b"")
    ask("sleep", 0.001)
    ended = [row for _ in range(3) for row in ask("events")]
    ask("mark", "three at once")
    assert (door.costs["one read"].transfers, door.costs["one read"].waits) == (1, 1)
    assert ended == [(tag, 0, 1, bytes([L0])) for tag in (1, 2, 3)]
    assert door.costs["three at once"].transfers == 3
    assert door.costs["three at once"].waits == 1
    assert door.costs["three at once"].time_us >= 1_000


def test_what_fails_on_the_bus_is_a_code_of_libusb(door, ask):
    # Nothing answers an unknown request: LIBUSB_ERROR_TIMEOUT.
    assert ask("control", 0xC0, 0x99, 0, 0, 4, 10) == (-7, b"")
    assert ask("alternate", 0, 7) == (-5, b"")  # LIBUSB_ERROR_NOT_FOUND


def test_a_door_that_broke_is_reported_and_one_that_nobody_came_to_closes():
    UsbDoor(plugged()).close()
    door = UsbDoor(plugged())
    host, port = door.address.split(":")
    with Client((host, int(port)), authkey=KEY) as line:
        line.send(("no such call", ()))
        with pytest.raises(EOFError):
            line.recv()
    with pytest.raises(RingupError, match="the server of the virtual host broke"):
        door.close()


def test_a_client_with_another_key_breaks_the_door_and_it_closes():
    door = UsbDoor(plugged())
    host, port = door.address.split(":")
    with pytest.raises(AuthenticationError):
        Client((host, int(port)), authkey=b"another")
    with pytest.raises(RingupError, match="the server of the virtual host broke: AuthenticationError"):
        door.close()


def test_a_door_serves_on_when_it_broke_and_tells_every_error():
    door = PciDoor(card("navi31", vram_bytes=64 << 20))
    host, port = door.address.split(":")
    # This address is far outside the BAR.
    for offset in (1 << 40, 1 << 41):
        with socket.create_connection((host, int(port))) as line:
            line.sendall(REQUEST.pack(READ_BAR, 0, 5, offset, 4, 0))
            assert line.recv(1) == b""
    with pytest.raises(RingupError, match=f"the card's server broke: .*{1 << 40:#x}.*; .*{1 << 41:#x}"):
        door.close()
