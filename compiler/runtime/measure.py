"""How long a kernel takes on a card: launches timed by the clock that the card's own queue stamps, the median of
several.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Final

from ringup.compiler.compile import Step
from ringup.compiler.graph.index import bounds
from ringup.compiler.runtime.memory import TIMEOUT_S, Memory, Pool
from ringup.compiler.target import target
from ringup.compiler.tuning import Judge

RUNS: Final = 7  # launches of each candidate that count
WARM: Final = 2  # launches before them: code and data come into the caches, the clock rises


class CardMeasure:
    """Microseconds of a launch on one card. The kernels' memory holds zeros: it is the card's, and nobody's data."""

    unit = "us"

    def __init__(self, card: Any, *, judge: Judge = "card", runs: int = RUNS, warm: int = WARM) -> None:
        """`card`: one that `ringup.open` gave; it stays the caller's to close. `judge` is "virtual" for one that is no
        metal.
        """
        self.judge: Judge = judge
        self._card, self._runs, self._warm = card, runs, warm
        self._pool = Pool(card)
        self._memory: dict[int, list[Memory]] = {}

    def cost(self, step: Step) -> float:
        """Return the median of the times of a launch at the greatest sizes. Raises what the card raises."""
        lowered, binary = step.lowered, step.binary
        program = self._card.load(target(binary.target).code_object([binary]), "tuned")
        kernel = program[binary.name]
        # a STORE's memory is as large as its buffer; `Param` knows
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
