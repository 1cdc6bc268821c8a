"""Where the waves of a dispatch are that does not end: for errors of limits and dead-locks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringup.silicon.shader.common.state import STATUS

if TYPE_CHECKING:
    from ringup.silicon.shader.common.state import Run, WaveState

MAX_REPORTED = 4  # places
STATUS_HALT = 1 << 13


def whereabouts(run: Run) -> str:
    """Say where waves are, most of them first: how many, the first one of them, at which PC, and whether at a barrier
    or halted.
    """
    waiting = {wave.name for wave in run.arrived}
    places: Counter[tuple[int, str]] = Counter()
    first: dict[tuple[int, str], WaveState] = {}
    for wave in run.waves:
        halted = bool(int(wave.words[STATUS]) & STATUS_HALT)
        doing = "waiting at the barrier before" if wave.name in waiting else "halted at" if halted else "running at"
        places[wave.pc, doing] += 1
        first.setdefault((wave.pc, doing), wave)
    told = [
        f"{count} {doing} {pc:#x}, such as wave {first[pc, doing].name}"
        for (pc, doing), count in places.most_common(MAX_REPORTED)
    ]
    others = len(places) - len(told)
    return (
        "waves " + "; ".join(told) + (f"; others at {others} more places" if others else "")
        if told
        else "no wave is left"
    )
