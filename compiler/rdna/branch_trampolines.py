"""Branches put into code whose length is known, over islands where they do not reach: the last thing that happens to a
kernel's bytes.

A branch holds 16 bits of dwords, so it reaches 128 KiB. Where one does not reach its goal, *stations* lie in the code,
closer than that: a branch that leads control past the station, and one *island* for each goal that is too far for
somebody, a branch to the next station on the way there, or to the goal. No register is needed, nor SCC, which may be
alive there; a conditional branch keeps its condition and goes to an island. Code in which every branch reaches stays as
it is. Source: RDNA3 ISA reference, "SOPP": PC = PC + signext(SIMM16 * 4) + 4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from itertools import accumulate
from typing import Final, NamedTuple

from ringup.errors import CompileError

FARTHEST: Final = 1 << 15  # dwords a branch reaches, from behind itself; forwards one less
BRANCH_BYTES: Final = 4

Encode = Callable[[str, list[int]], bytes]


class Branch(NamedTuple):
    """One branch: the number of the chunk that it is, of the chunk it goes to, and its mnemonic."""

    place: int
    goal: int
    mnemonic: str


class Station(NamedTuple):
    """Where islands lie: before the chunk `before`, in the order of `goals`, behind a branch around them."""

    before: int
    goals: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Return how much code it is; none where nobody's goal is behind it."""
        return BRANCH_BYTES * (1 + len(self.goals)) if self.goals else 0


class _Layout:
    """Where everything lies with some stations in the code. `ends[i]`: bytes of the chunks before chunk i."""

    def __init__(self, ends: Sequence[int], stations: Sequence[Station]) -> None:
        self._ends, self.stations = ends, stations
        self._befores = [one.before for one in stations]
        self._added = list(accumulate((one.size_bytes for one in stations), initial=0))

    def chunk(self, number: int) -> int:
        """Return the byte of a chunk; a station before it lies before that."""
        return self._ends[number] + self._added[bisect_right(self._befores, number)]

    def station(self, number: int) -> int:
        """Return the byte of a station."""
        return self._ends[self._befores[number]] + self._added[number]

    def island(self, number: int, goal: int) -> int:
        """Return the byte of a station's island of a goal."""
        return self.station(number) + BRANCH_BYTES * (1 + self.stations[number].goals.index(goal))

    def next(self, place: int, goal: int) -> int | None:
        """Return the first station on the way from a chunk to a goal, None if there is none."""
        if place < goal:
            found = bisect_right(self._befores, place)
            return found if found < len(self._befores) and self._befores[found] <= goal else None
        found = bisect_right(self._befores, place) - 1
        return found if found >= 0 and self._befores[found] > goal else None

    def onwards(self, number: int, goal: int) -> int:
        """Return the byte that a station's island of a goal goes to: of the next station's, or of the goal."""
        before = self._befores[number]
        following = number + 1 if goal >= before else number - 1
        if 0 <= following < len(self._befores):
            other = self._befores[following]
            if before < other <= goal or goal < other < before:
                return self.island(following, goal)
        return self.chunk(goal)


def link(
    chunks: Sequence[bytes], branches: Sequence[Branch], barred: Callable[[], Set[int]], encode: Encode
) -> list[bytes]:
    """Return the chunks with every branch encoded and with stations between them where branches need these.

    `barred()` is asked then: before which chunks no station may stand. Raises CompileError where these leave no room
    for one within reach.
    """
    ends = list(accumulate(map(len, chunks), initial=0))
    far: set[Branch] = set()
    layout = _Layout(ends, ())
    while beyond := {
        one for one in branches if one not in far and not _reaches(layout.chunk(one.place), layout.chunk(one.goal))
    }:
        far |= beyond
        layout = _Layout(ends, _stations(ends, far, barred()))
    made = list(chunks)
    for one in branches:
        first = layout.next(one.place, one.goal) if one in far else None
        goal = layout.chunk(one.goal) if first is None else layout.island(first, one.goal)
        made[one.place] = _encoded(one.mnemonic, layout.chunk(one.place), goal, encode)
    for number, station in reversed(list(enumerate(layout.stations))):
        made[station.before : station.before] = _code(layout, number, encode)
    return made


def _stations(ends: Sequence[int], far: Set[Branch], barred: Set[int]) -> list[Station]:
    """Return stations so close that each is within reach of its neighbours and of all between: as many as the far
    branches need.
    """
    goals = sorted({one.goal for one in far})
    apart = BRANCH_BYTES * (FARTHEST - 2 * (len(goals) + 2))  # a station's own length counts on both sides
    befores: list[int] = []
    start, last = 0, len(ends) - 1
    while ends[last] - ends[start] > apart:
        place = bisect_right(ends, ends[start] + apart) - 1
        while place > start and place in barred:
            place -= 1
        if place == start:
            raise CompileError(
                f"branches reach {BRANCH_BYTES * FARTHEST} bytes, and so much code has no place for another on the way"
            )
        befores.append(place)
        start = place
    return [Station(before, tuple(goal for goal in goals if _passed(before, goal, far))) for before in befores]


def _passed(before: int, goal: int, far: Set[Branch]) -> bool:
    """Return whether a station lies on the way of a branch to a goal."""
    return any(one.goal == goal and (one.place < before <= goal or goal < before <= one.place) for one in far)


def _code(layout: _Layout, number: int, encode: Encode) -> list[bytes]:
    """Return a station's branches."""
    station, at = layout.stations[number], layout.station(number)
    if not station.goals:
        return []
    places = [(at, at + station.size_bytes)]
    places += [(layout.island(number, goal), layout.onwards(number, goal)) for goal in station.goals]
    return [_encoded("s_branch", place, goal, encode) for place, goal in places]


def _distance(place: int, goal: int) -> int:
    return (goal - place) // BRANCH_BYTES - 1


def _reaches(place: int, goal: int) -> bool:
    return -FARTHEST <= _distance(place, goal) < FARTHEST


def _encoded(mnemonic: str, place: int, goal: int, encode: Encode) -> bytes:
    assert _reaches(place, goal), "stations are within reach of each other"
    return encode(mnemonic, [_distance(place, goal) & 0xFFFF])
