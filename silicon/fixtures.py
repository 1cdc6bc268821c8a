"""A pytest plugin for tests on virtual cards: `pytest_plugins = ["ringup.silicon.fixtures"]` in a conftest.

`virtual_card` makes cards; the test fails at its end when a card saw a mistake that metal would have punished and the
test did not look at `card.violations` itself by clearing it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ringup.silicon import card

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon

MAX_FOLLOWING, SHORT = 50, 200  # mistakes behind the first, and characters of each
CARDS = pytest.StashKey[list["VirtualRadeon"]]()
MakeCard = Callable[..., "VirtualRadeon"]


def check(made: list[VirtualRadeon]) -> None:
    """Fail the test with every violation of its cards, and the last events before the first of them."""
    for one in made:
        one.settle()
        if one.violations:
            first = one.violations[0]
            before = [str(event) for event in one.log if event.time_ns <= first.time_ns][-10:]
            found = [str(event) for event in one.violations]
            others = [f"then: {text[:SHORT]}" for text in found[1:MAX_FOLLOWING]]
            if len(found) > MAX_FOLLOWING:
                others.append(f"and {len(found) - MAX_FOLLOWING} more")
            lines = ["mistakes that metal punishes; the first is the cause:", found[0], *others]
            lines += ["the events before the first:", *before]
            pytest.fail("\n".join(lines), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that failed what its cards saw, what stood still in them, and what of it they do not model."""
    report = yield
    if report.failed and report.when == "call":
        for one in item.stash.get(CARDS, []):
            one.settle()
            seen = [f"mistake: {each.text}" for each in one.witness.mistakes()[:MAX_FOLLOWING]]
            seen += [f"stands still: {each.text}" for each in one.witness.unfinished()[:MAX_FOLLOWING]]
            if seen:
                report.sections.append((f"what {one.name} saw", "\n".join(seen)))
            lacking = [event.text for kind in ("unmodelled", "reserved") for event in one.log.find(kind)]
            if lacking:
                report.sections.append((f"what {one.name} does not model", "\n".join(lacking[-MAX_FOLLOWING:])))
    return report


@pytest.fixture
def virtual_card(request: pytest.FixtureRequest) -> Iterator[MakeCard]:
    """`virtual_card("navi31", vram_bytes=…)` makes a card; every card must end the test without violations."""
    made: list[VirtualRadeon] = request.node.stash.setdefault(CARDS, [])

    def make(name: str = "navi31", **options: Any) -> VirtualRadeon:
        made.append(card(name, **options))
        return made[-1]

    yield make
    check(made)
