"""One finding of `ringup doctor`: what was looked at, how it is, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

FINE, OPTIONAL, WRONG = "fine", "missing", "wrong"  # `missing`: something works less without it


@dataclass(frozen=True, slots=True)
class Line:
    """One finding. `todo` is empty when all is fine."""

    group: str
    what: str
    state: str
    seen: str
    todo: str = ""
