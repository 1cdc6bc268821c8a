"""Mistakes that a virtual card recorded while a command succeeded, such as broken rules of the hardware."""

from __future__ import annotations

from typing import Any

from ringup.errors import GuestError


def seen_by(card: Any) -> list[str]:
    """Return the mistakes that a card recorded so far; none for a card of another driver."""
    return list(getattr(card, "mistakes", ()))


def refuse(name: str, seen: list[str]) -> None:
    """Raise a `GuestError` with the first mistake, if there is one. The printed result has all, as `mistakes`."""
    if seen:
        more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
        error = GuestError(f"{name} continued after a mistake that fails on a real card: {seen[0]}{more}")
        error.in_result = True
        raise error
