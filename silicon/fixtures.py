"""A pytest plugin for tests on virtual cards: `pytest_plugins = ["ringup.silicon.fixtures"]` in a conftest.

`virtual_card` makes cards; the test fails at its end when a card saw a mistake that metal would have punished and the test did not
look at `card.violations` itself by clearing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ringup.silicon import card

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon

MakeCard = Callable[..., "VirtualRadeon"]


def check(made: list[VirtualRadeon]) -> None:
    """Fail the test with every violation of its cards, and the last events before the first of them."""
    for one in made:
        if one.violations:
            first = one.violations[0]
            before = [str(event) for event in one.log if event.time_ns <= first.time_ns][-10:]
            found = [str(event) for event in one.violations]
            lines = ["mistakes that metal punishes:", *found, "the events before the first:", *before]
            pytest.fail("\n".join(lines), pytrace=False)


@pytest.fixture
def virtual_card() -> Iterator[MakeCard]:
    """`virtual_card("navi31", vram_bytes=…)` makes a card; every card must end the test without violations."""
    made: list[VirtualRadeon] = []

    def make(name: str = "navi31", **options: Any) -> VirtualRadeon:
        made.append(card(name, **options))
        return made[-1]

    yield make
    check(made)
