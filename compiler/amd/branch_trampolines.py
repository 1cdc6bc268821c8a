"""Links branches when the length of all code is known, and inserts trampolines where a branch does not reach its
target. This is the last pass over a kernel's bytes.

The offset of a branch has 16 bits and counts dwords, so a branch reaches 128 KiB. If one does not reach its target,
*groups* of trampolines are inserted, at distances below that reach. A group starts with a branch that skips it. It has
one *trampoline* for each target that is too far for some branch: a branch to the next group on the way, or to the
target. This needs no register and does not change SCC, which may be live there. A conditional branch keeps its
condition and goes to a trampoline. Code in which every branch reaches its target does not change. Source: RDNA3 ISA
reference, "SOPP": PC = PC + signext(SIMM16 * 4) + 4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from itertools import accumulate
from typing import Final, NamedTuple

from ringup.errors import CompileError

# Dwords that a branch reaches, counted from its end; forwards one less.
MAX_REACH: Final = 1 << 15
BRANCH_BYTES: Final = 4

Encode = Callable[[str, list[int]], bytes]


class Branch(NamedTuple):
    """One branch: the number of its own chunk, the number of the target chunk, and its mnemonic."""

    place: int
    target: int
    mnemonic: str


class Group(NamedTuple):
    """A group of trampolines, one for each of `targets` in their order, after a branch that skips the group. It stands
    before the chunk `before`.
    """

    before: int
    targets: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Return the size of the group's code: 0 if it has no target."""
        return BRANCH_BYTES * (1 + len(self.targets)) if self.targets else 0


class _Layout:
    """The addresses of all code with some groups inserted. `ends[i]`: bytes of the chunks before chunk i."""

    def __init__(self, ends: Sequence[int], groups: Sequence[Group]) -> None:
        self._ends, self.groups = ends, groups
        self._befores = [one.before for one in groups]
        self._added = list(accumulate((one.size_bytes for one in groups), initial=0))

    def chunk(self, number: int) -> int:
        """Return the byte of a chunk. A group before the chunk has a lower address."""
        return self._ends[number] + self._added[bisect_right(self._befores, number)]

    def group(self, number: int) -> int:
        """Return the byte of a group."""
        return self._ends[self._befores[number]] + self._added[number]

    def trampoline(self, number: int, target: int) -> int:
        """Return the byte of a group's trampoline for a target."""
        return self.group(number) + BRANCH_BYTES * (1 + self.groups[number].targets.index(target))

    def next(self, place: int, target: int) -> int | None:
        """Return the first group on the way from a chunk to a target, None if there is none."""
        if place < target:
            found = bisect_right(self._befores, place)
            return found if found < len(self._befores) and self._befores[found] <= target else None
        found = bisect_right(self._befores, place) - 1
        return found if found >= 0 and self._befores[found] > target else None

    def next_on_the_way(self, number: int, target: int) -> int:
        """Return the byte that a group's trampoline for a target jumps to: the trampoline of the next group, or the
        target.
        """
        before = self._befores[number]
        following = number + 1 if target >= before else number - 1
        if 0 <= following < len(self._befores):
            other = self._befores[following]
            if before < other <= target or target < other < before:
                return self.trampoline(following, target)
        return self.chunk(target)


def link(
    chunks: Sequence[bytes], branches: Sequence[Branch], barred: Callable[[], Set[int]], encode: Encode
) -> list[bytes]:
    """Return the chunks with every branch encoded, and with groups of trampolines between them where branches need
    these.

    `barred()` returns the chunks before which no group may stand; it is called only if groups are needed. Raises
    CompileError where it leaves no place for a group within reach.
    """
    ends = list(accumulate(map(len, chunks), initial=0))
    far: set[Branch] = set()
    layout = _Layout(ends, ())
    while beyond := {
        one for one in branches if one not in far and not _reaches(layout.chunk(one.place), layout.chunk(one.target))
    }:
        far |= beyond
        layout = _Layout(ends, _groups(ends, far, barred()))
    made = list(chunks)
    for one in branches:
        first = layout.next(one.place, one.target) if one in far else None
        target = layout.chunk(one.target) if first is None else layout.trampoline(first, one.target)
        made[one.place] = _encoded(one.mnemonic, layout.chunk(one.place), target, encode)
    for number, group in reversed(list(enumerate(layout.groups))):
        made[group.before : group.before] = _code(layout, number, encode)
    return made


def _groups(ends: Sequence[int], far: Set[Branch], barred: Set[int]) -> list[Group]:
    """Return the groups that far branches need, at such distances that each group reaches its neighbours and everything
    between.
    """
    targets = sorted({one.target for one in far})
    # A group's own length counts on both sides.
    apart = BRANCH_BYTES * (MAX_REACH - 2 * (len(targets) + 2))
    befores: list[int] = []
    start, last = 0, len(ends) - 1
    while ends[last] - ends[start] > apart:
        place = bisect_right(ends, ends[start] + apart) - 1
        while place > start and place in barred:
            place -= 1
        if place == start:
            raise CompileError(
                f"branches reach {BRANCH_BYTES * MAX_REACH} bytes; this code has no place for a trampoline within that reach"
            )
        befores.append(place)
        start = place
    return [Group(before, tuple(target for target in targets if _passed(before, target, far))) for before in befores]


def _passed(before: int, target: int, far: Set[Branch]) -> bool:
    """Return whether a group is on the way of a branch to a target."""
    return any(one.target == target and (one.place < before <= target or target < before <= one.place) for one in far)


def _code(layout: _Layout, number: int, encode: Encode) -> list[bytes]:
    """Return the branches of a group."""
    group, at = layout.groups[number], layout.group(number)
    if not group.targets:
        return []
    places = [(at, at + group.size_bytes)]
    places += [(layout.trampoline(number, target), layout.next_on_the_way(number, target)) for target in group.targets]
    return [_encoded("s_branch", place, target, encode) for place, target in places]


def _distance(place: int, target: int) -> int:
    return (target - place) // BRANCH_BYTES - 1


def _reaches(place: int, target: int) -> bool:
    return -MAX_REACH <= _distance(place, target) < MAX_REACH


def _encoded(mnemonic: str, place: int, target: int, encode: Encode) -> bytes:
    assert _reaches(place, target), "groups of trampolines are within reach of each other"
    return encode(mnemonic, [_distance(place, target) & 0xFFFF])
