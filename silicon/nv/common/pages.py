"""Memory that is given as a list of its pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PAGE = 4096


def runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return pages of 4 KiB that follow each other as one piece: address and bytes. There is at least one page."""
    start, length = places[0], PAGE
    for place in places[1:]:
        if place == start + length:
            length += PAGE
        else:
            yield start, length
            start, length = place, PAGE
    yield start, length
