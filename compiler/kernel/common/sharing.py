"""How the threads of a group divide rows: `parts` threads work on each of `own` rows. Adjacent threads are adjacent
along the row, or across rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I32, Value


@dataclass(frozen=True)
class Sharing:
    """The assignment of rows to threads. `vector`: adjacent elements that a thread takes in each iteration. `across`:
    adjacent threads have adjacent rows. `wave`: threads of a wave.
    """

    kind: ClassVar[str]
    parts: int
    own: int
    vector: int
    across: bool
    wave: int

    def __str__(self) -> str:
        return f"{self.kind} parts={self.parts} own={self.own} vector={self.vector}{' across' if self.across else ''}"

    @property
    def group(self) -> int:
        """Return the number of threads of a group: whole waves."""
        return max(self.wave, self.parts * self.own)


def place_of_thread(build: Builder, parts: int, own: int, *, across: bool) -> tuple[Value, Value]:
    """Return which part of a row a thread works on, and which row of the group. Both counts are powers of two."""
    thread, wave = build.op("thread_id", I32), build.function.wave_size
    fast, slow = (own, parts) if across else (parts, own)
    # A group has whole waves: spare threads repeat the work of others.
    if fast * slow < wave:
        thread = build.op("and", I32, thread, build.const(fast * slow - 1))
    if slow == 1 or fast == 1:
        low, high = (thread, build.const(0)) if slow == 1 else (build.const(0), thread)
    elif fast >= wave:
        low = build.op("lane_id", I32) if fast == wave else build.op("and", I32, thread, build.const(fast - 1))
        high = build.op("shr_u", I32, build.op("wave_id", I32), build.const((fast // wave).bit_length() - 1))
    else:
        low = build.op("and", I32, thread, build.const(fast - 1))
        high = build.op("shr_u", I32, thread, build.const(fast.bit_length() - 1))
    return (high, low) if across else (low, high)
