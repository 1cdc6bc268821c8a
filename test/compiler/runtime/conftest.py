"""Fixtures of the runtime's tests: virtual cards in strict mode, and evaluators of tensors on them."""

import pytest

import ringup
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import device


@pytest.fixture(scope="module")
def card():
    """A card for tests that do not break it."""
    with ringup.open("virtual:navi31") as opened:
        yield opened


@pytest.fixture(scope="module")
def evaluator(card):
    """The card's evaluator. It lives for a module, so little is compiled twice."""
    return Device(card)


@pytest.fixture
def on_card(evaluator, card):
    """Compute tensors on the card, and check that the card recorded no mistake."""
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
