"""`--card NAME`: the tests marked `metal` run on that card, and nothing else runs: `pytest --card pci:0000:03:00.0`.

Without it they run on the virtual cards, as every other test does. Such a test takes the card from `metal_card` and
checks results only through the card itself (bytes that come back, points, reports). It leaves the card working, and
resets at most a queue.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import ringup

CARDS = ("virtual:navi31", "virtual:navi32", "virtual:navi33")
# The memory of a virtual card: the scratch of every wave that could run comes from it.
# MI300X: eight dies of waves.
VRAM_BYTES, VRAM_BYTES_OF_EIGHT = 1 << 30, 16 << 30


def pytest_addoption(parser):
    group = parser.getgroup("metal")
    group.addoption("--card", metavar="NAME", help="run the tests marked `metal` on this card, and nothing else")


def pytest_generate_tests(metafunc):
    if "card_name" in metafunc.fixturenames:
        given = metafunc.config.getoption("--card")
        metafunc.parametrize("card_name", [given] if given else CARDS, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption("--card"):
        others = [item for item in items if item.get_closest_marker("metal") is None]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.get_closest_marker("metal") is not None]


@contextmanager
def opened(name):
    """Yield an open card. A virtual one must have recorded no violation at its end."""
    vram_bytes = VRAM_BYTES_OF_EIGHT if name.startswith("virtual:mi300x") else VRAM_BYTES
    transport = {"vram_bytes": vram_bytes} if name.startswith("virtual:") else {}
    with ringup.open(name, transport=transport) as card:
        yield card
        seen = card.mistakes
    assert seen == []
    assert card.report().mistakes == []


@pytest.fixture(scope="module")
def metal_card(card_name):
    """The card of `--card`, or a virtual one of each chip, for the tests of one file."""
    with opened(card_name) as card:
        yield card


@pytest.fixture(scope="session")
def open_metal():
    """`with open_metal(card_name) as card`: for tests that start and close a card themselves."""
    return opened
