"""`ringup serve`: what it prints when it is ready, and how it ends."""

import json
import signal
import socket
import struct
from functools import partial

import pytest

from ringup.errors import NoSuchCard, NotSupported, TransportError
from ringup.tools.command_line import cli


@pytest.fixture
def serving(start_server):
    return partial(start_server, "usbip")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(serving, number):
    process = serving("virtual:usb-loopback", "virtual:navi31@asm2464pd", "--port", "0", "--json")
    ready = json.loads(process.stdout.readline())
    assert ready["devices"] == [
        {"name": "virtual:usb-loopback", "busid": "1-1"},
        {"name": "virtual:navi31@asm2464pd", "busid": "2-1"},
    ]
    with socket.create_connection(("127.0.0.1", ready["port"])) as sock:
        sock.sendall(struct.pack(">HHI", 0x0111, 0x8005, 0))
        assert sock.recv(12, socket.MSG_WAITALL) == bytes.fromhex("0111 0005 00000000 00000002")
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")


def test_a_pipe_is_told_where_connections_are_taken(serving, tmp_path):
    process = serving("virtual:usb-loopback", "--port", "0", "--unix", str(tmp_path / "socket"))
    said = [process.stdout.readline().strip() for _ in range(6)]
    port = int(said[1].removeprefix("listening on 127.0.0.1:"))
    assert said[0].startswith("1-1 ")
    assert said[3:] == [
        f"usbip --tcp-port {port} attach -r 127.0.0.1 -b 1-1",
        f"listening on {tmp_path / 'socket'}",
        "ctrl-C ends it",
    ]
    socket.create_connection(("127.0.0.1", port)).close()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/no/such/socket", "No such file or directory; choose a path in an existing folder"),
        ("/tmp", "the path already exists and is no socket; choose another path"),
        ("/tmp/" + "x" * 200, "a socket's path has 1 to 107 bytes; choose another one"),
    ],
)
def test_a_path_that_cannot_be_a_socket_is_said_with_what_to_do(path, text, capsys):
    assert cli.main(["serve", "usbip", "virtual:usb-loopback", "--unix", path]) == TransportError.exit_code
    assert capsys.readouterr() == ("", f"ringup serve: TransportError: listening at {path}: {text}\n")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("virtual:navi31", NotSupported.exit_code),
        ("pci:0000:03:00.0", NotSupported.exit_code),
        ("virtual:navi31@tb3", NoSuchCard.exit_code),
    ],
)
def test_what_cannot_be_served_is_said(name, code, capsys):
    assert cli.main(["serve", "usbip", name]) == code
    assert name.rpartition("@")[2] in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["serve", "usbip", "virtual:usb-loopback", "--port", str(taken.getsockname()[1])]) == 1
    assert "in use" in capsys.readouterr().err


def test_no_such_port(capsys):
    with pytest.raises(SystemExit):
        cli.main(["serve", "usbip", "virtual:usb-loopback", "--port", "70000"])
    assert "from 0 to 65535" in capsys.readouterr().err
