"""Ctrl-C at any moment of a command: the command exits with 130, and the card comes up again at once."""

import os
import random
import signal

import pytest
from mandelbrot_words import ARGUMENTS

from ringup.tools.command_line import cli

RADEON = "virtual:navi31"
POINTS = 6


def ctrl_c():
    raise KeyboardInterrupt


class Pressing:
    """Wraps the way to a card. It counts accesses and presses Ctrl-C before access number `at`."""

    def __init__(self, card, press=ctrl_c):
        self.count, self.at = 0, -1
        self.press = press
        self._arrives = card.path.arrives
        card.path.arrives = self.arrives

    def arrives(self, size_bytes, write):
        self.count += 1
        if self.count == self.at:
            self.press()
        return self._arrives(size_bytes, write)


def words_of(name, mandelbrot):
    work = [mandelbrot, "--block", "256", *ARGUMENTS]
    return [name, "--card", RADEON, *(work if name == "run" else [])]


@pytest.mark.parametrize("name", ["up", "run", "down", "reset", "info", "mem"])
def test_an_interrupted_command_leaves_a_card_that_comes_up(ringup, plug, mandelbrot, name):
    card = plug()
    words = words_of(name, mandelbrot) if name != "mem" else ["mem", "--card", RADEON, "write", "0x400000", "00" * 4096]
    whole = Pressing(card)
    assert ringup(*words)[0] == 0
    # This leaves the card in the state that each interruption below finds.
    ringup("up", RADEON)
    before = whole.count
    assert ringup(*words)[0] == 0
    count = whole.count - before
    for part in range(POINTS):
        whole.count, whole.at = (
            0,
            random.Random(part).randrange(part * count // POINTS, (part + 1) * count // POINTS) + 1,
        )
        status, out, err = ringup(*words)
        assert (status, out, err) == (cli.INTERRUPTED, "", f"ringup {name}: interrupted\n"), whole.at
        whole.at = -1
        status, out, err = ringup("up", RADEON)
        assert status == 0, (whole.at, err)
        assert not card.violations, (part, card.violations)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_card_at_work_comes_to_rest_before_a_signal_ends_the_command(ringup, plug, number, status):
    card = plug()
    whole = Pressing(card, lambda: os.kill(os.getpid(), number))
    assert ringup("up", RADEON)[0] == 0
    before = whole.count
    assert ringup("up", RADEON)[0] == 0
    # Bus mastering is on by then.
    whole.count, whole.at = 0, (whole.count - before) // 2
    assert ringup("up", RADEON) == (status, "", f"ringup up: ended by {signal.Signals(number).name}\n")
    assert not card.gpu.masters_bus
    assert signal.getsignal(number) is signal.SIG_DFL
    whole.at = -1
    assert ringup("up", RADEON)[0] == 0
