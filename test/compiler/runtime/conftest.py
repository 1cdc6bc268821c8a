"""Fixtures of the runtime's tests: virtual cards in strict mode, and evaluators of tensors on them."""

import pytest

import ringup
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device


@pytest.fixture(scope="module")
def card():
    """A card for the tests that leave it whole."""
    with ringup.open("virtual:navi31") as opened:
        yield opened


@pytest.fixture(scope="module")
def evaluator(card):
    """Its evaluator, kept for a module so that little is compiled twice."""
    return Device(card)


@pytest.fixture
def on_card(evaluator, card):
    """Let tensors be computed on the card, and see that it saw no mistake."""
    with device(evaluator):
        yield evaluator
    assert card.device.violations == []


@pytest.fixture
def own_card():
    """`own_card(vram_bytes=…)` opens a card that the test may break."""
    opened = []

    def make(**options):
        opened.append(ringup.open("virtual:navi31", transport=options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
