"""`ringup serve vfio-user`: what it prints when it is ready, how it ends, what its log holds, and how the log is
decoded.
"""

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ringup.errors import CardBusy, NoSuchCard, NotSupported, TransportError
from ringup.silicon import nvidia_firmware
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog
from ringup.tools.cards import access_log
from ringup.tools.command_line import cli

USAGE = 2
SCRATCH = 0x53 * 4


@pytest.fixture
def serving(start_server):
    return partial(start_server, "vfio-user")


def converse(path, *messages):
    """Agree on a version, then send messages. Return errno and payload of each answer."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(path)
        answers = []
        for command, payload in ((1, struct.pack("=HH", 0, 1)), *messages):
            sock.sendall(struct.pack("=HHIII", 7, command, 16 + len(payload), 0, 0) + payload)
            number, _, size, _, error = struct.unpack("=HHIII", sock.recv(16, socket.MSG_WAITALL))
            assert number == 7
            answers.append((error, sock.recv(size - 16, socket.MSG_WAITALL) if size > 16 else b""))
    return answers[1:]


def end(process, number=signal.SIGTERM):
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cards_are_served_until_it_is_told_to_end(serving, tmp_path, number):
    paths = [str(tmp_path / name) for name in ("a", "b")]
    process = serving(paths[0], "virtual:navi31", paths[1], "virtual:navi33", "--vram", "64M", "--json")
    assert json.loads(process.stdout.readline()) == {
        "devices": [{"name": "virtual:navi31", "socket": paths[0]}, {"name": "virtual:navi33", "socket": paths[1]}]
    }
    devices = [converse(path, (9, struct.pack("=QII", 0, 7, 4)))[0][1][16:] for path in paths]
    assert [device[:2] for device in devices] == [b"\x02\x10"] * 2
    assert devices[0] != devices[1]
    assert end(process, number) == ""
    assert not any(map(os.path.exists, paths))


def test_a_person_is_told_how_to_attach(serving, tmp_path):
    path = str(tmp_path / "card")
    process = serving(path, "virtual:navi31", "--bar0", "512M")
    said = []
    while not said or said[-1] != "ctrl-C ends it":
        said.append(process.stdout.readline().rstrip())
    assert said[0] == f"virtual:navi31 at {path}"
    words = said[3].removeprefix("  -device '").removesuffix("'")
    assert json.loads(words) == {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": path}}
    info = converse(path, (5, struct.pack("=IIIIQQ", 32, 0, 0, 0, 0, 0)))[0][1]
    assert struct.unpack_from("=Q", info, 16) == (512 << 20,)
    end(process)


def test_a_guest_gets_firmware_for_an_nvidia_card(serving, tmp_path):
    path, folder = str(tmp_path / "card"), tmp_path / "firmware"
    process = serving(path, "virtual:tu102", "--firmware", str(folder), "--json")
    process.stdout.readline()
    written = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert written == nvidia_firmware("tu102")
    assert "nvidia/tu102/gsp/gsp-535.113.01.bin" in written
    assert converse(path, (9, struct.pack("=QII", 0, 7, 4)))[0][1][16:] == struct.pack("<HH", 0x10DE, 0x1E37)
    end(process)


def test_what_the_cards_did_can_be_read_afterwards(serving, tmp_path, capsys):
    path, log = str(tmp_path / "card"), tmp_path / "log"
    process = serving(path, "virtual:navi31", "--log", str(log), "--json")
    process.stdout.readline()
    write = (10, struct.pack("=QIII", SCRATCH, 5, 4, 0x1234))
    wrong = (10, struct.pack("=QIIB", SCRATCH, 5, 1, 1))
    assert [error for error, _ in converse(path, write, write, write, wrong)] == [0, 0, 0, errno.EIO]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "registers are written as dwords" in errors
    assert cli.main(["trace", "--decode", str(log), "--rows", "0"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert "card 0: virtual:navi31" in output.splitlines()[0]
    assert "write        3" in output
    rows = [line for line in output.splitlines() if "SCRATCH_7 = 0x00001234" in line or "SCRATCH_REG7" in line]
    assert [line.split("  ")[-1] for line in rows] == ["(x3)"]
    assert cli.main(["trace", "--decode", str(log), "--json", "--window", "bus"]) == 0
    shown = json.loads(capsys.readouterr().out)["shown"]
    assert [(row["card"], row["kind"]) for row in shown] == [(0, "violation")]
    assert cli.main(["trace", "--decode", str(log), "--window", "moon"]) == USAGE
    assert "has nothing of moon; it has bus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["{}/a"], USAGE, "sockets and cards alternate; add a card"),
        (["{}/a", "virtual:navi31", "{}/b"], USAGE, "add a card"),
        (["{}/a", "virtual:navi31", "{}/a", "virtual:navi33"], USAGE, "name a socket for each"),
        (["{}/a", "virtual:navi31", "--vram", "100M"], USAGE, "VRAM is a multiple of 16 MiB"),
        (["{}/a", "virtual:navi31", "--bar0", "300M"], USAGE, "BAR 0 is 256 MiB"),
        (["{}/a", "virtual:navi31", "--firmware", "{}"], USAGE, "there is none to be written for virtual:navi31"),
        (["virtual:navi31", "{}/a"], NotSupported.exit_code, "is not a virtual card in a slot; use virtual:navi31"),
        (["{}/a", "navi31"], NotSupported.exit_code, "use virtual:navi31"),
        (["{}/a", "virtual:navi31@asm2464pd"], NotSupported.exit_code, "use virtual:navi31"),
        (["{}/a", "virtual:moon"], NoSuchCard.exit_code, "moon"),
        (["{}/no/a", "virtual:navi31"], TransportError.exit_code, "choose a path in an existing folder"),
        (["{}", "virtual:navi31"], TransportError.exit_code, "the path already exists and is no socket"),
        (["{}/" + "x" * 200, "virtual:navi31"], TransportError.exit_code, "1 to 107 bytes"),
        (["{}/a", "virtual:navi31", "{}/no/b", "virtual:navi31"], TransportError.exit_code, "no/b"),
        (["{}/a", "virtual:navi31", "--log", "{}/no/log"], 1, "check its path"),
        (["{}/a", "virtual:navi31", "--log", "{}"], 1, "name a file in it"),
    ],
)
def test_what_cannot_be_served_is_one_line(words, code, text, tmp_path, capsys):
    assert cli.main(["serve", "vfio-user", *(word.replace("{}", str(tmp_path)) for word in words)]) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("ringup serve: ")
    assert errors.count("\n") == 1
    assert text in errors
    assert not (tmp_path / "a").exists()


def test_a_socket_that_is_served_already_is_said(serving, tmp_path, capsys):
    path = str(tmp_path / "card")
    process = serving(path, "virtual:navi31", "--json")
    process.stdout.readline()
    assert cli.main(["serve", "vfio-user", path, "virtual:navi31"]) == CardBusy.exit_code
    assert "another server already does; stop it, or choose another path" in capsys.readouterr().err
    assert converse(path, (4, struct.pack("=IIII", 16, 0, 0, 0)))[0][0] == 0
    end(process)


# the log itself


class Card:
    name = "virtual:made up"

    def __init__(self):
        self.log = EventLog(VirtualClock())


def test_a_log_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "log"
    first, second = Card(), Card()
    with access_log.writing(path) as log:
        log.follow(first)
        log.follow(second)
        log.mark("boot\nends")
        for _ in range(3):
            first.log.note("gc", "write", "{} = {:#x}", "CP", 1)
        second.log.note("gc", "write", "{} = {:#x}", "CP", 1)
        second.log.note("unheard-of", "something-long", "")
        second.log.note("gc", "text", "{}", "two\nlines\r, a tab\t, \x85\u2028 and \udcff a \x1b[0m " + "x" * 10_000)
    entries, remarks = access_log.read(path)
    assert remarks == ["card 0: virtual:made up", "card 1: virtual:made up", "boot ends"]
    assert [(one.card, one.block, one.kind, one.count) for one in entries] == [
        (0, "gc", "write", 3),
        (1, "gc", "write", 1),
        (1, "unheard-of", "something-long", 1),
        (1, "gc", "text", 1),
    ]
    assert entries[0].text == "CP = 0x1"
    assert entries[3].text.startswith("two lines , a tab ,")
    assert "\x1b" not in path.read_text()


def test_what_happens_after_its_end_is_not_written(tmp_path):
    path, card = tmp_path / "log", Card()
    with access_log.writing(path) as log:
        log.follow(card)
        card.log.note("gc", "write", "one")
    written = path.read_text()
    for number in range(3):
        card.log.note("gc", "write", "{}", number)
    assert path.read_text() == written


def test_a_full_disk_ends_the_log_and_not_the_card():
    card = Card()

    def write_much():
        with access_log.writing(Path("/dev/full")) as log:
            log.follow(card)
            for number in range(20_000):
                card.log.note("gc", "write", "{}", number)

    with pytest.raises(OSError, match="No space left") as caught:
        write_much()
    assert caught.value.filename == "/dev/full"
    assert len(card.log) == 20_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{head}\n# card 0: x\nnonsense\n", 3),
        ("{head} and more\n", 1),
        ("{head}\n{entry}\n{half}\n", 3),
        ("{head}\n\n", 2),
        ("{head}\n\0\0\0\0", 2),
        ("{head}\n" + "9" * 20_000, 2),
        ("{head}\n           1.0 us  card 0  gc       " + "x" * 5000, 2),
    ],
)
def test_a_damaged_log_is_one_clear_error(tmp_path, capsys, text, line):
    entry = str(access_log.Entry(1.5, 0, "gc", "write", "CP = 1"))
    path = tmp_path / "log"
    path.write_text(text.format(head=access_log.HEAD, entry=entry, half=entry[:20]))
    assert cli.main(["trace", "--decode", str(path)]) == TransportError.exit_code
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert f"line {line} is not an event" in errors
    assert len(errors) < 400


@pytest.mark.parametrize("left", [3, 20, 40, -1])
def test_a_log_that_ends_within_a_line_is_read_up_to_there(tmp_path, capsys, left):
    """The log of a running or killed server ends like this. Half a value counts as no value."""
    entry = str(access_log.Entry(1.5, 0, "gc", "write", "CP = 0x1234"))
    path = tmp_path / "log"
    path.write_text(f"{access_log.HEAD}\n# card 0: x\n{entry}\n{entry[:left]}")
    entries, remarks = access_log.read(path)
    assert [one.text for one in entries] == ["CP = 0x1234"]
    assert remarks == ["card 0: x", f"the last line is incomplete: {entry[:left].strip()}"]
    assert cli.main(["trace", "--decode", str(path)]) == 0
    assert "the last line is incomplete" in capsys.readouterr().out


def test_bytes_that_are_no_text_are_one_clear_error(tmp_path, capsys):
    path = tmp_path / "log"
    path.write_bytes(access_log.HEAD.encode() + b"\n\xff\xfe\x00damaged\n")
    assert cli.main(["trace", "--decode", str(path)]) == TransportError.exit_code
    assert "line 2 is not an event" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_not_taken_for_an_unreadable_log(tmp_path):
    path = tmp_path / "log"
    entry = access_log.Entry(1.5, 0, "gc", "write", "CP = 1")
    path.write_text("\n".join([access_log.HEAD, *[str(entry)] * 50_000]) + "\n")
    command = [sys.executable, "-m", "ringup.tools.command_line.cli", "trace", "--decode", str(path), "--rows", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert "cannot be read" not in errors
