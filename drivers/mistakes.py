"""Mistakes of the driver that a virtual card saw, for errors and reports. Real cards report none; see `seam.Witness`.

The first mistake is the cause; later ones are shortened. Without a mistake, what does not make progress is reported:
packets, waves, barriers.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.transport.seam import Device, Observation, witness_of
from ringup.errors import DeviceLost, GuestError, RingupError

SAW = "what the virtual card saw, and a real one does not tell"
STANDS = "what stands still in the virtual card"
# notes for the mistakes after the first; characters of each
MAX_NOTES, SHORT = 6, 240


class Mistakes:
    """The mistakes since the last start or reset. `locate` adds what a driver knows of an observation's addresses."""

    def __init__(self, device: Device, locate: Callable[[Observation], str]) -> None:
        self._witness, self._locate = witness_of(device), locate
        self._known: frozenset[str] = frozenset()
        self._last: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Leave out of later answers what was seen so far."""
        if self._witness is not None:
            self._known = frozenset(one.key for one in (*self._witness.mistakes(), *self._witness.unfinished()))

    def close(self) -> None:
        """Keep what was seen: the path to the card ends."""
        self._last, self._witness = self.seen(), None

    def seen(self) -> list[str]:
        """Return the mistakes since the last `forget`, oldest first."""
        if self._witness is None:
            return list(self._last)
        return [self._described(one) for one in self._witness.mistakes() if one.key not in self._known]

    def unfinished(self) -> list[str]:
        """Return what waits or makes no progress now."""
        if self._witness is None:
            return []
        return [self._described(one) for one in self._witness.unfinished() if one.key not in self._known]

    def _described(self, one: Observation) -> str:
        where = self._locate(one)
        return f"{one.text} ({where})" if where else one.text

    def explain(self, error: RingupError) -> None:
        """Add the mistakes to an error that is about to be raised: the first to its message, the others as notes."""
        if self._witness is None or isinstance(error, DeviceLost):
            return
        seen = self.seen()
        lines, words = (seen, SAW) if seen else (self.unfinished(), STANDS)
        if not lines or lines[0] in str(error):
            return
        error.args = (f"{error}; {words}: {lines[0]}",)
        if seen and error.__cause__ is None:
            error.__cause__ = GuestError(seen[0])
        for line in lines[1 : 1 + MAX_NOTES]:
            error.add_note(f"{'then' if seen else 'also'}: {shortened(line)}")
        if len(lines) > 1 + MAX_NOTES:
            error.add_note(f"and {len(lines) - 1 - MAX_NOTES} more; `card.report()` has them")


def shortened(text: str) -> str:
    """Return the beginning of a text that is long, all of one that is not."""
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"
