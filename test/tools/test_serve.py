"""`ringup serve`: what is said when all is ready, and how it ends."""

import json
import signal
import socket
import struct
import subprocess
import sys

import pytest

from ringup.errors import NoSuchCard, NotSupported
from ringup.tools import cli


@pytest.fixture
def serving():
    started = []

    def start(*words):
        command = [sys.executable, "-m", "ringup.tools.cli", "serve", "usbip", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


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


def test_it_is_quiet_in_a_pipe(serving, tmp_path):
    process = serving("virtual:usb-loopback", "--unix", str(tmp_path / "socket"), "-v")
    while not (tmp_path / "socket").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == ""


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
