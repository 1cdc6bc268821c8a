"""Measures the time of a kernel on a card: the card's queue stamps the time of several launches,
and the median counts.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Final

from ringup.compiler.compile import Step
from ringup.compiler.graph.index import bounds
from ringup.compiler.runtime.memory import TIMEOUT_S, Memory, Pool
from ringup.compiler.target import target
from ringup.compiler.tuning import Judge

# Launches of each candidate that count.
RUNS: Final = 7
# Launches before them, which fill the caches and raise the clock.
WARM: Final = 2


class CardMeasure:
    """Microseconds of a launch on one card. The kernels work on memory that holds zeros, not on a user's data."""

    unit = "us"

    def __init__(self, card: Any, *, judge: Judge = "card", runs: int = RUNS, warm: int = WARM) -> None:
        """Use `card`, which `ringup.open` has returned and which the caller still has to close. `judge` must be
        "virtual" for a virtual card.
        """
        self.judge: Judge = judge
        self._card, self._runs, self._warm = card, runs, warm
        self._pool = Pool(card)
        self._memory: dict[int, list[Memory]] = {}

    def cost(self, step: Step) -> float:
        """Return the median time of a launch, with symbolic sizes at their maximum. Raises what the card raises."""
        lowered, binary = step.lowered, step.binary
        program = self._card.load(target(binary.target).code_object([binary]), "tuned")
        kernel = program[binary.name]
        # The memory of a STORE is as large as its buffer; `Param` has that size.
        sizes = [one.size_bytes for one in lowered.function.params[: len(lowered.memory)]]
        memory = self._take(sizes)
        arguments = [*(one.gpu_va for one in memory), *(one.hi for one in lowered.sizes)]
        groups = tuple(bounds(count)[1] for count in lowered.groups)
        with self._card.profile() as profile:
            stream = self._card.compute.stream()
            for i in range(self._warm + self._runs):
                if i:
                    stream.barrier()
                stream.dispatch(kernel, groups, (binary.group_size, 1, 1), arguments)
            self._card.compute.submit(stream).wait(TIMEOUT_S)
        times = [profile.duration_us(span) for span in profile.spans() if span.name == binary.name]
        profile.close()
        program.free()
        return float(median(times[self._warm :]))

    def _take(self, sizes: list[int]) -> list[Memory]:
        """Return memory of those sizes: the same pieces for every candidate of a kernel."""
        key = hash(tuple(sizes))
        if key not in self._memory:
            self._memory = {key: [self._pool.take(max(size, 4), "tuned") for size in sizes]}
            for one, size in zip(self._memory[key], sizes, strict=True):
                one.write(bytes(size))
        return self._memory[key]
