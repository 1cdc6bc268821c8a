"""Ctrl-C, or a pulled cable, at any moment of a command on a card in an enclosure: the card comes up again at once."""

import random

import pytest

from ringup.tools.command_line import cli

ENCLOSED = "virtual:navi31@asm2464pd"


class Waiting:
    """A USB host that counts waits and presses Ctrl-C during wait number `at`."""

    def __init__(self, host):
        self.count, self.at = 0, -1
        self._wait = host.handle_events
        host.handle_events = self.wait

    def wait(self, timeout_ms):
        self.count += 1
        if self.count == self.at:
            raise KeyboardInterrupt
        return self._wait(timeout_ms)


@pytest.mark.parametrize("name", ["up", "info"])
def test_a_command_interrupted_on_usb_leaves_an_enclosure_that_comes_up(ringup, dock, name):
    enclosure = dock()
    host = Waiting(enclosure.host)
    assert ringup(name, ENCLOSED)[0] == 0
    count, points = host.count, 3
    for part in range(points):
        host.count = 0
        host.at = random.Random(part).randrange(part * count // points, (part + 1) * count // points) + 1
        status, out, err = ringup(name, ENCLOSED)
        assert (status, out, err) == (cli.INTERRUPTED, "", f"ringup {name}: interrupted\n"), host.at
        host.at = -1
        status, out, err = ringup("up", ENCLOSED)
        assert status == 0, (host.at, err)
        assert not enclosure.violations, (part, enclosure.violations)


@pytest.mark.parametrize("transfers", [200, 700, 1200])
def test_an_enclosure_pulled_during_a_start_is_lost_and_comes_back(ringup, dock, transfers):
    enclosure = dock()
    host = enclosure.host
    enclosure.faults.inject("disconnect_after_transfers", transfers)
    status, out, err = ringup("up", ENCLOSED)
    assert (status, out, err.count("\n")) == (20, "", 1), err
    enclosure.faults.clear()
    if enclosure.host is not None:
        host.unplug("1-1")
    host.plug(enclosure)
    assert ringup("up", ENCLOSED)[0] == 0
