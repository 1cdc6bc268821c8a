"""One finding of `ringup doctor`: the checked object, its state, what to do."""

from __future__ import annotations

from dataclasses import dataclass

FINE, OPTIONAL, WRONG = "fine", "missing", "wrong"  # `missing`: some function needs it


@dataclass(frozen=True, slots=True)
class Line:
    """One finding. `todo` is empty if nothing is to do."""

    group: str
    what: str
    state: str
    seen: str
    todo: str = ""
