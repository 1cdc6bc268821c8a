"""Finds pairs of instructions that become one, within a short window: a later instruction moves up to an earlier one
where nothing between depends on it. It does not wait for a load that the earlier one would not wait for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from ringup.compiler.amd.instructions.code import Instr
from ringup.compiler.amd.instructions.effects import EXEC_LO
from ringup.compiler.amd.instructions.steps import Step

Half = TypeVar("Half")


class PairFinder(ABC, Generic[Half]):
    """Joins pairs in blocks. `window`: instructions after the first of a pair among which the second is searched.
    `pairs` counts those found.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self.pairs = 0

    @abstractmethod
    def half(self, step: Step) -> Half | None:
        """Return an instruction as half of a pair, None if it cannot be one."""

    @abstractmethod
    def join(self, first: Half, second: Half, overwrites: bool) -> Instr | None:
        """Return the instruction for both, None if there is none. `overwrites`: the second writes what the first
        reads.
        """

    def step(self, joined: Instr, first: Step, second: Step) -> Step:
        """Return the step of the instruction for both."""
        return Step(joined, first.effects, first.reads + second.reads, first.writes + second.writes)

    def block(self, steps: list[Step]) -> list[Step]:
        """Return a block's steps with pairs joined."""
        halves = [self.half(step) for step in steps]
        if sum(half is not None for half in halves) < 2:
            return steps
        stops = [step.effects.ordered or EXEC_LO in step.writes for step in steps]
        reads, writes = [_bits(step.reads) for step in steps], [_bits(step.writes) for step in steps]
        made: list[Step] = []
        gone = bytearray(len(steps))
        loads = _Loads()
        for i, step in enumerate(steps):
            if gone[i]:
                continue
            loads.passed(step, reads[i], writes[i])
            on_its_way = loads.out
            first = halves[i]
            found, joined = -1, None
            if first is not None:
                # Units that the steps between read and write.
                read, written = 0, 0
                for j in range(i + 1, min(i + 1 + self._window, len(steps))):
                    if gone[j]:
                        continue
                    second = halves[j]
                    if (
                        second is not None
                        and not reads[j] & (writes[i] | written)
                        and not writes[j] & (writes[i] | written | read)
                        and (not (read | written) or not reads[j] & on_its_way)
                    ):
                        joined = self.join(first, second, bool(writes[j] & reads[i]))
                        if joined is not None:
                            found = j
                            break
                    if stops[j]:
                        break
                    read |= reads[j]
                    written |= writes[j]
            if found < 0:
                made.append(step)
                continue
            gone[found] = 1
            other = steps[found]
            assert joined is not None
            made.append(self.step(joined, step, other))
            loads.passed(other, reads[found], writes[found])
            self.pairs += 1
        return made


class _Loads:
    """The destination registers of loads that no instruction has waited for yet (`out`), by counter and in the order of
    issue. An instruction that reads one waits for all loads before it.
    """

    def __init__(self) -> None:
        self.out = 0
        self._by_counter: dict[str, list[int]] = {}

    def passed(self, step: Step, reads: int, writes: int) -> None:
        """Update the state by one instruction."""
        touched = (reads | writes) & self.out
        counters = step.effects.counters
        if touched:
            for masks in self._by_counter.values():
                for k in range(len(masks) - 1, -1, -1):
                    if masks[k] & touched:
                        del masks[: k + 1]
                        break
        if counters and step.effects.access in ("read", "atomic"):
            self._by_counter.setdefault(counters[0], []).append(writes)
        if touched or counters:
            self.out = 0
            for masks in self._by_counter.values():
                for mask in masks:
                    self.out |= mask


def _bits(units: tuple[int, ...]) -> int:
    found = 0
    for unit in units:
        found |= 1 << unit
    return found
