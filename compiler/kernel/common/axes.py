"""How a kernel's axes are mapped to the machine: which part of the hardware runs along each piece.
For people to read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ringup.compiler.graph.index import Int

Role = Literal["grid", "wave", "lane", "reduce", "unroll", "loop"]


class Axis(NamedTuple):
    """One piece of an axis, and what runs along it.

    grid: groups; wave: waves of a group; lane: threads of a wave; reduce: threads whose values are combined; unroll:
    elements of one thread, each with its own instructions; loop: iterations. `meaning` describes the elements.
    """

    name: str
    role: Role
    size: Int
    meaning: str

    def __str__(self) -> str:
        return f"{self.role} {self.name}={self.size}"


def threads(count: int, wave: int) -> list[Axis]:
    """Return the axes of a group's threads: its waves of `wave` threads, and their lanes."""
    found = [Axis("wave", "wave", -(-count // wave), "waves of a group")] if count > wave else []
    return [*found, Axis("lane", "lane", min(count, wave), "threads of a wave")]
