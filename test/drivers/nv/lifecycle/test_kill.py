"""Processes that die anywhere in a start or an end, as by kill -9: the next one starts the card."""

from __future__ import annotations

import pytest

from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.lifecycle.bringup import Bringup
from ringup.drivers.nv.lifecycle.inspect import Found
from ringup.drivers.stages import Stages
from ringup.firmware.store import Store

# accesses of a start and an end, at least, without reading the ROM
ACCESSES = {"tu102": 260, "ga100": 200, "ga102": 560, "gh100": 70, "gb202": 70}


class Killed(BaseException):
    """What ends a process in a test; nothing catches it."""


@pytest.fixture
def dying(monkeypatch):
    """Let a process die at its nth access to registers: that one and all later ones raise `Killed`."""
    left = [None]

    def watch(name):
        access = getattr(Registers, name)

        def watched(self, *args):
            if left[0] is not None:
                if not left[0]:
                    raise Killed
                left[0] -= 1
            return access(self, *args)

        monkeypatch.setattr(Registers, name, watched)

    for name in ("read", "write", "write_run"):
        watch(name)

    def die_at(count):
        left[0] = count

    return die_at


def take_over(one):
    """Start a card whose owner died; return what was found."""

    def watch(stage):
        # until now, what the dead process has started accesses its freed memory
        if stage == "preparing memory":
            one.card.violations.clear()

    stages = Stages(one.card.name, one.card.clock, watch)
    bringup = Bringup(one.card, stages, Store(()), rom=one.rom)
    bringup.run()
    assert bringup.running.static.name
    bringup.running.stop()
    return bringup.found


@pytest.mark.parametrize("chip", ACCESSES)
def test_a_card_is_taken_over_from_processes_that_died_at_any_access(bench, dying, chip, sample):
    one = bench(chip)
    with one.running():
        pass
    seen = set()
    for count in sample(range(1, ACCESSES[chip], 3), few=2):
        dying(count)
        with pytest.raises(Killed):
            one.start().running.stop()
        dying(None)
        one.card.kill_holder(memory=bool(count % 2))
        seen.add(take_over(one))
    assert seen <= set(Found)
