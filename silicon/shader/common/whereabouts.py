"""Report where the waves of a dispatch are, for errors about limits and deadlocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringup.silicon.shader.common.state import STATUS

if TYPE_CHECKING:
    from ringup.silicon.shader.common.state import Run, WaveState

MAX_REPORTED = 4  # places
STATUS_HALT = 1 << 13


def whereabouts(run: Run) -> str:
    """Return where waves are, the most frequent places first.

    Each place has a count, the PC, whether waves wait at a barrier or have halted, and one wave as example.
    """
    waiting = {wave.name for wave in run.arrived}
    places: Counter[tuple[int, str]] = Counter()
    first: dict[tuple[int, str], WaveState] = {}
    for wave in run.waves:
        halted = bool(int(wave.words[STATUS]) & STATUS_HALT)
        doing = "waiting at the barrier before" if wave.name in waiting else "halted at" if halted else "running at"
        places[wave.pc, doing] += 1
        first.setdefault((wave.pc, doing), wave)
    reported = [
        f"{count} {doing} {pc:#x}, such as wave {first[pc, doing].name}"
        for (pc, doing), count in places.most_common(MAX_REPORTED)
    ]
    others = len(places) - len(reported)
    return (
        "waves " + "; ".join(reported) + (f"; others at {others} more places" if others else "")
        if reported
        else "no wave is left"
    )
