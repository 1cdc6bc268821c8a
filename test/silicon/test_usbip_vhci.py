"""Plugging devices into the kernel's own virtual controller: what is written to which file. `make guest` tests it with
the real controller.
"""

import socket

import pytest

from ringup.errors import CardBusy, NotSupported, PermissionNeeded
from ringup.silicon.serve.usbip_vhci import Vhci
from ringup.silicon.serve.usbip_wire import Record, Speed

# The text that Linux 6.12's status_show_vhci prints: VDEV_ST_NULL is 4, VDEV_ST_USED 6.
STATUS = """hub port sta spd dev      sockfd local_busid
hs  0000 006 003 00010002 000003 1-1
hs  0001 004 000 00000000 000000 0-0
ss  0008 006 005 00010003 000004 2-1
ss  0009 004 000 00000000 000000 0-0
"""
MORE = """hub port sta spd dev      sockfd local_busid
hs  0016 004 000 00000000 000000 0-0
ss  0024 004 000 00000000 000000 0-0
"""


def record(speed):
    return Record("1-1", 1, 7, speed, 0x1209, 1, 0x100, (0, 0, 0), 1, 1, ((255, 255, 255),))


@pytest.fixture
def controller(tmp_path):
    for name, text in (("status", STATUS), ("status.1", MORE), ("attach", ""), ("detach", "")):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("speed", "ports"), [(Speed.SUPER, [9, 24]), (Speed.HIGH, [1, 16])])
def test_free_ports_are_those_of_the_hub_for_that_speed(controller, speed, ports):
    assert list(Vhci(controller).free_ports(speed)) == ports


def test_a_device_goes_to_the_first_free_port_by_its_socket(controller):
    with socket.socketpair()[0] as sock:
        assert Vhci(controller).attach(sock, record(Speed.SUPER)) == 9
        assert (controller / "attach").read_text() == f"9 {sock.fileno()} {0x10007} 5"
    Vhci(controller).detach(9)
    assert (controller / "detach").read_text() == "9"


def test_no_free_port(controller):
    (controller / "status").write_text(STATUS.replace(" 004 ", " 006 "))
    (controller / "status.1").unlink()
    with socket.socketpair()[0] as sock, pytest.raises(CardBusy, match="every port"):
        Vhci(controller).attach(sock, record(Speed.HIGH))


def test_a_kernel_without_the_module_is_told_how_to_get_it(tmp_path):
    with pytest.raises(NotSupported, match="modprobe vhci-hcd"):
        Vhci(tmp_path / "vhci_hcd.0")


def test_only_root_may(controller, monkeypatch):
    def refuse(path, text):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    with socket.socketpair()[0] as sock, pytest.raises(PermissionNeeded, match="only root"):
        Vhci(controller).attach(sock, record(Speed.HIGH))
