"""Fixtures of the command's tests: a virtual card that stays plugged in between commands, and a machine without any
card.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from ringup import silicon
from ringup.drivers.transport.recording import replay
from ringup.drivers.usb4 import transport as usb
from ringup.silicon import fixtures, transport
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.command_line import cli
from ringup.tools.demo.kernels import compile_for

MIB = 1 << 20
VRAM_BYTES = 256 * MIB


class Slot:
    """A transport that gives the same card or enclosure at every opening, as a real slot does."""

    name, value = "virtual", "a slot"

    def __init__(self, **there):
        self.there = there

    def load(self):
        return self

    def find(self):
        return transport.find()

    def open(self, rest, **options):
        return transport.open(rest, **self.there, **options)


class Installed:
    """Stands for a transport that is installed."""

    def __init__(self, name, module):
        self.name, self.value, self._module = name, module.__name__, module

    def load(self):
        return self._module


@pytest.fixture
def plug(monkeypatch):
    """`plug(name, **options)` puts a virtual card into the slot that `virtual:name` opens. At the end no card may have
    recorded a mistake.
    """
    made = []

    def put(name="navi31", **options):
        make = silicon.nvidia_card if name in silicon.nvidia_cards() else silicon.card
        card = make(name, **{"vram_bytes": VRAM_BYTES, **options})
        made.append(card)
        monkeypatch.setattr("ringup.cards.entry_points", lambda group: [Slot(card=card)])
        return card

    yield put
    fixtures.check(made)


@pytest.fixture
def dock(monkeypatch):
    """`dock("navi31", "open")` plugs an enclosure with a card into USB. From then on `virtual:navi31@asm2464pd` opens
    it.
    """
    made, others = [], [Installed("usb", usb), Installed("replay", replay)]

    def put(name="navi31", firmware="open", **options):
        card = silicon.card(name, vram_bytes=VRAM_BYTES, enumerated=False)
        enclosure = Enclosure(card, firmware, **options)
        VirtualUsbHost().plug(enclosure)
        made.append(card)
        monkeypatch.setattr("ringup.cards.entry_points", lambda group: [Slot(enclosure=enclosure), *others])
        return enclosure

    yield put
    fixtures.check(made)


@pytest.fixture
def start_server():
    """`start_server("usbip", ...)` starts `ringup serve usbip ...` as a process. At the end the fixture ends all of
    them.
    """
    started = []

    def start(*words):
        command = [sys.executable, "-m", "ringup.tools.command_line.cli", "serve", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def nowhere(monkeypatch):
    """A machine without a real card, and without a card in the environment."""
    monkeypatch.delenv("RINGUP_CARD", raising=False)
    monkeypatch.setattr("ringup.tools.command_line.card_argument.cards", list)


@pytest.fixture
def ringup(capsys):
    """`ringup("up", "virtual:navi31")` runs a command; returns (status, output, errors)."""

    def run(*words):
        status = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def ask(ringup, tmp_path, monkeypatch):
    """`ringup`, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return ringup


@pytest.fixture(scope="session")
def mandelbrot(tmp_path_factory):
    """A code object for gfx1100 with one kernel, `mandelbrot`. Its arguments are (buffer, width, steps, left, top,
    pixel), and a group has 256 threads.
    """
    path = tmp_path_factory.mktemp("code") / "mandelbrot.o"
    path.write_bytes(compile_for("gfx1100"))
    return path
