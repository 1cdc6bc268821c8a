"""What becomes of a kernel's axes: which part of the machine walks through each piece of them, for people to read."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ringup.compiler.graph.index import Int

Role = Literal["grid", "wave", "lane", "reduce", "unroll", "loop"]
WAVE = 32  # lanes of a wave, as kernels are compiled


class Axis(NamedTuple):
    """One piece of an axis and who walks through it.

    grid: groups; wave: waves of a group; lane: threads of a wave; reduce: threads whose values are combined; unroll: a
    thread's own elements, each with instructions of its own; loop: turns. `meaning` says of what.
    """

    name: str
    role: Role
    size: Int
    meaning: str

    def __str__(self) -> str:
        return f"{self.role} {self.name}={self.size}"


def threads(count: int) -> list[Axis]:
    """Return the axes of a group's threads: its waves and their lanes."""
    found = [Axis("wave", "wave", -(-count // WAVE), "waves of a group")] if count > WAVE else []
    return [*found, Axis("lane", "lane", min(count, WAVE), "threads of a wave")]
