"""A test of your own driver code on a virtual card: it fails where a real card would punish a mistake.

pytest -p ringup.silicon.fixtures examples/test_own_driver.py
"""

import pytest

import ringup


def square_on(card: ringup.Card, values: list[float]) -> list[float]:
    """The code under test: yours would be larger."""
    numbers = card.tensor(values)
    result: list[float] = (numbers * numbers).tolist()
    return result


def test_squares(virtual_card):  # type: ignore[no-untyped-def]
    # `virtual_card` makes cards; at the end of the test each must have seen no mistake
    radeon = virtual_card("navi31", vram_bytes=1 << 30)
    with ringup.open("virtual:navi31", transport={"card": radeon}) as card:
        assert square_on(card, [1.0, 2.0, 3.0]) == [1.0, 4.0, 9.0]


def test_an_unplugged_cable(virtual_card):  # type: ignore[no-untyped-def]
    radeon = virtual_card("navi31", vram_bytes=1 << 30)
    with ringup.open("virtual:navi31", transport={"card": radeon}) as card:
        radeon.unplug()
        with pytest.raises(ringup.RingupError, match="virtual:navi31"):
            square_on(card, [1.0])
