"""What a virtual card says of a command whose work went well and broke a rule that a real card punishes."""

from __future__ import annotations

from typing import Any

from ringup.errors import GuestError


def seen_by(card: Any) -> list[str]:
    """Return the mistakes that a card saw so far; none for a card of another driver."""
    return list(getattr(card, "mistakes", ()))


def refuse(name: str, seen: list[str]) -> None:
    """Raise a `GuestError` that tells the first mistake, if there is one. The printed result has them all, as
    `mistakes`.
    """
    if seen:
        more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
        error = GuestError(f"{name} went on after a mistake that a real card punishes: {seen[0]}{more}")
        error.in_result = True
        raise error
