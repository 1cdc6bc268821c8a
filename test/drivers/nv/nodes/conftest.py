"""A card behind a model of NVIDIA's kernel driver, opened as a user does, and programs for it."""

import pytest
from nvidia_code import sass_programs

import ringup

CHIPS = ("tu102", "ga100", "ga102", "ad102")


def kernel_of(card):
    """The model of the machine whose driver has the card."""
    return card.device.system.model


@pytest.fixture
def opened():
    """`opened("ga102", release=…)` opens a card. At the end each is closed, and its driver has nothing left of it."""
    cards = []

    def make(chip="ga102", **transport):
        card = ringup.open(f"virtual:{chip}@nvidia", transport=transport)
        cards.append(card)
        return card

    yield make
    for card in cards:
        card.close()
        assert not kernel_of(card).files
        assert not kernel_of(card).owners
        assert not kernel_of(card).card.violations


@pytest.fixture(params=CHIPS)
def card(request, opened):
    return opened(request.param)


@pytest.fixture
def ga102(opened):
    return opened("ga102")


@pytest.fixture
def program():
    """`program(card)` loads the kernels of `sass_programs`."""
    return lambda card: card.load(sass_programs.cubin(card.target), "sass_programs")
