"""Fixtures for the bare driver of NVIDIA's cards: virtual cards, and starts on them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from ringup.drivers.nv.card import GspCard
from ringup.drivers.nv.lifecycle.bringup import Bringup
from ringup.drivers.stages import Stages
from ringup.firmware.store import Store
from ringup.silicon import nvidia_card

# by chip: what the first start has read of the VBIOS, which takes most of a start's time
ROMS = {}


class Bench:
    """One virtual card. `start` starts it as another process would."""

    def __init__(self, name):
        self.model = self.card = nvidia_card(name)

    @property
    def rom(self):
        """What an earlier start has read of the VBIOS; None before."""
        return ROMS.get(self.card.name)

    def start(self, **options):
        """Start the card; return the start."""
        bringup = Bringup(self.card, Stages(self.card.name, self.card.clock), Store(()), rom=self.rom, **options)
        bringup.run()
        ROMS[self.card.name] = bringup.rom
        return bringup

    @contextmanager
    def running(self, **options):
        """Start the card for the body, and stop it."""
        bringup = self.start(**options)
        try:
            yield bringup.running
        finally:
            bringup.running.stop()


@pytest.fixture
def bench():
    """Make benches by the chip's name; in the end, none may have seen a mistake of the driver."""
    made = []

    def make(name):
        made.append(Bench(name))
        return made[-1]

    yield make
    for one in made:
        assert not one.model.violations


@pytest.fixture
def bare(virtual_card):
    """`bare("ga102", model=…)` starts a card as `ringup.open` does; `card.device` is the model. At the end each card is
    closed, and the models have seen no mistake that the test has not taken.
    """
    cards = []

    def make(chip="ga102", *, model=None, **options):
        model = model or virtual_card(chip)
        card = GspCard(model, rom=ROMS.get(model.name), **options)
        ROMS[model.name] = card.rom
        cards.append(card)
        return card

    yield make
    for card in cards:
        card.close()
