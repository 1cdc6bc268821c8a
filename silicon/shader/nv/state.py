"""The state of a warp: registers in one array of words, threads as masks, and a group (CTA) of warps.

A thread has a program counter of its own, as on Volta and later. The warp runs one path at a time: the threads of
`active`, which are at `pc`. All others are at `pcs`, ready or waiting. Convergence barriers are kept for each thread:
the set of threads that it takes part with. So two paths may use one barrier register at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.nv.strict.tracker import Tracker

    Words = NDArray[np.uint32]

LANES = 32
EVERY = (1 << LANES) - 1
UNIFORMS = 64
PREDICATES = 8
CONVERGENCE_BARRIERS = 16
GROUP_BARRIERS = 16

# Words of the array: uniform registers, what only the translator uses, then rows of 32 lanes: convergence barriers,
# what only the translator uses, registers.
ROWS = 96
CONVERGENCE_END = ROWS + CONVERGENCE_BARRIERS * LANES
REGISTER_ROWS = CONVERGENCE_END + 20 * LANES


class Wait(IntEnum):
    """What a thread waits for."""

    NOTHING = 0
    # the threads of its convergence barrier
    CONVERGENCE = 1
    # the threads that its WARPSYNC names
    WARP = 2
    # the threads of its group
    GROUP = 3


class Warp:
    """One warp. `registers` are `(register, lane)`, `convergence` are `(barrier, lane)` masks of threads."""

    __slots__ = (
        "active", "alive", "convergence", "copies", "group", "last", "number", "pc", "pcs", "predicates", "reduced", "registers", "track",
        "turn", "uniform", "uniform_predicates", "waits", "waits_at", "words",
    )  # fmt: skip

    def __init__(
        self, group: Group, number: int, registers: int, threads: int, pc: int, words: Words | None = None
    ) -> None:
        self.words: Words = np.zeros(REGISTER_ROWS + registers * LANES, np.uint32) if words is None else words
        self.uniform: Words = self.words[:UNIFORMS]
        self.convergence: Words = self.words[ROWS:CONVERGENCE_END].reshape(CONVERGENCE_BARRIERS, LANES)
        self.registers: Words = self.words[REGISTER_ROWS:].reshape(registers, LANES)
        # As Python's integers, because they are masks that are asked for bits all the time. Number 7 is true.
        self.predicates = [0] * (PREDICATES - 1) + [EVERY]
        self.uniform_predicates = [False] * (PREDICATES - 1) + [True]
        self.group, self.number = group, number
        self.alive = self.active = (1 << threads) - 1
        self.pc = pc
        self.pcs = [pc] * LANES
        # of each thread, and which barrier or mask it waits for
        self.waits = [Wait.NOTHING] * LANES
        self.waits_at = [0] * LANES
        self.turn = 0
        # what the last reduction at a barrier of the group found: a count, or all bits or none
        self.reduced = 0
        # bytes of shared memory that copies write, by batch; the last batch is open
        self.copies: list[list[tuple[int, int]]] = [[]]
        # its history, in strict mode
        self.track: Tracker | None = None
        # cycles that the warp has issued for, and the thread whose path ran last
        self.last = LANES - 1

    @property
    def name(self) -> tuple[int, int, int, int]:
        """The group's x, y, z and the warp's number in it."""
        return (*self.group.ident, self.number)

    def waiting(self, why: Wait) -> int:
        """Return the mask of living threads that wait for something."""
        return sum(1 << lane for lane in lanes(self.alive & ~self.active) if self.waits[lane] is why)


@dataclass(slots=True)
class GroupBarrier:
    """A barrier of a group: threads that have arrived, how many it opens for (0: all of the group that live), and what
    a reduction has gathered of them. `how`: the reduction, empty if there is none.
    """

    arrived: int = 0
    needs: int = 0
    how: str = ""
    waiting: list[tuple[Warp, int]] = field(default_factory=list)
    count: int = 0
    every: bool = True
    some: bool = False

    @property
    def reduced(self) -> int:
        """The reduction's result."""
        if self.how == "POPC":
            return self.count
        return EVERY * (self.every if self.how == "AND" else self.some)


@dataclass(slots=True)
class Group:
    """One resident group (CTA): its warps and its shared memory."""

    launch: Launch
    ident: tuple[int, int, int]
    shared: NDArray[np.uint8]
    # by byte, for strict mode
    shared_written: NDArray[np.bool_]
    warps: list[Warp] = field(default_factory=list)
    barriers: list[GroupBarrier] = field(default_factory=list)
    # local memory `(warp, word, lane)`, made when it is first used
    local: Words | None = None

    @property
    def threads_left(self) -> int:
        """How many threads have not ended."""
        return sum(warp.alive.bit_count() for warp in self.warps)


def lanes(mask: int) -> list[int]:
    """Return the numbers of the lanes of a mask."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def start_group(launch: Launch, ident: tuple[int, int, int]) -> Group:
    """Make a group with its warps. Threads are numbered x first and packed into warps."""
    x, y, z = launch.block
    threads = x * y * z
    group = Group(launch, ident, np.zeros(launch.shared_bytes, np.uint8), np.zeros(launch.shared_bytes, np.bool_))
    group.barriers = [GroupBarrier() for _ in range(GROUP_BARRIERS)]
    for number in range(-(-threads // LANES)):
        count = min(LANES, threads - number * LANES)
        group.warps.append(Warp(group, number, launch.registers, count, launch.program))
    return group
