"""How much engines are used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a span of time the engines have worked, 0 to 1. `place`: of the sample in its ring."""

    place: int
    end_ns: int
    graphics: float
    memory: float
