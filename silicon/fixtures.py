"""A pytest plugin for tests on virtual cards: `pytest_plugins = ["ringup.silicon.fixtures"]` in a conftest.

`virtual_card` makes cards. The test fails at its end if a card recorded a mistake that metal would have punished. A
test that expects mistakes looks at `card.violations` and clears it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ringup.silicon import card, nvidia_card, nvidia_cards

if TYPE_CHECKING:
    from ringup.silicon.pci.slot import SlotCard

# mistakes listed after the first, and characters of each
MAX_FOLLOWING, MAX_TEXT = 50, 200
CARDS = pytest.StashKey[list["SlotCard"]]()
# the card is a `VirtualRadeon` or a `VirtualNvidia`
MakeCard = Callable[..., Any]


def check(made: list[SlotCard]) -> None:
    """Fail the test if its cards have violations; list them, with the last events before the first."""
    for one in made:
        one.settle()
        if one.violations:
            first = one.violations[0]
            before = [str(event) for event in one.log if event.time_ns <= first.time_ns][-10:]
            found = [str(event) for event in one.violations]
            others = [f"then: {text[:MAX_TEXT]}" for text in found[1:MAX_FOLLOWING]]
            if len(found) > MAX_FOLLOWING:
                others.append(f"and {len(found) - MAX_FOLLOWING} more")
            lines = ["mistakes that metal punishes; the first is the cause:", found[0], *others]
            lines += ["the events before the first:", *before]
            pytest.fail("\n".join(lines), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to the report of a failed test what its cards recorded: mistakes, stalled work, use of
    unmodelled parts.
    """
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
    """`virtual_card("navi31", vram_bytes=…)` makes a card, as `ringup.silicon.card` or `nvidia_card` does. Every card
    must end the test without violations.
    """
    made: list[SlotCard] = request.node.stash.setdefault(CARDS, [])

    def make(name: str = "navi31", **options: Any) -> SlotCard:
        made.append((nvidia_card if name in nvidia_cards() else card)(name, **options))
        return made[-1]

    yield make
    check(made)
