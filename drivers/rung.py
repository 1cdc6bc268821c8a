"""A rung of the ladder by which a card is made usable again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rung:
    """The outcome of one rung. `error` is empty when it was verified; `survived` says what the card still has then."""

    name: str
    survived: str
    error: str = ""

    def __str__(self) -> str:
        return f"{self.name}: " + (f"failed: {self.error}" if self.error else f"verified; survived: {self.survived}")
