"""What the other end of a path saw of its driver's mistakes, put into errors and reports. Only virtual cards say any of
it; see `seam.Witness`.

The first mistake is the cause; what follows is told in short. Where there is none, what stands still is told: packets,
waves, barriers.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.drivers.transport.seam import Device, Observation, witness_of
from ringup.errors import DeviceLost, GuestError, RingupError

SAW = "what the virtual card saw, and a real one does not tell"
STANDS = "what stands still in the virtual card"
MAX_NOTES, SHORT = 6, 240  # of what follows the first; characters of each


class Mistakes:
    """The mistakes since the last start or reset. `locate` adds what a driver knows of an observation's addresses."""

    def __init__(self, device: Device, locate: Callable[[Observation], str]) -> None:
        self._witness, self._locate = witness_of(device), locate
        self._known: frozenset[str] = frozenset()
        self._last: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Take what was seen so far as settled: what comes now is not its consequence."""
        if self._witness is not None:
            self._known = frozenset(one.key for one in (*self._witness.mistakes(), *self._witness.unfinished()))

    def close(self) -> None:
        """Keep what there is: the path to the card ends."""
        self._last, self._witness = self.seen(), None

    def seen(self) -> list[str]:
        """Return the mistakes since then, oldest first."""
        if self._witness is None:
            return list(self._last)
        return [self._told(one) for one in self._witness.mistakes() if one.key not in self._known]

    def unfinished(self) -> list[str]:
        """Return what waits or stands still now."""
        if self._witness is None:
            return []
        return [self._told(one) for one in self._witness.unfinished() if one.key not in self._known]

    def _told(self, one: Observation) -> str:
        where = self._locate(one)
        return f"{one.text} ({where})" if where else one.text

    def explain(self, error: RingupError) -> None:
        """Add to an error that is about to be raised what led to it: the first mistake to its message, the others as
        notes.
        """
        if self._witness is None or isinstance(error, DeviceLost):
            return
        seen = self.seen()
        told, words = (seen, SAW) if seen else (self.unfinished(), STANDS)
        if not told or told[0] in str(error):
            return
        error.args = (f"{error}; {words}: {told[0]}",)
        if seen and error.__cause__ is None:
            error.__cause__ = GuestError(seen[0])
        for line in told[1 : 1 + MAX_NOTES]:
            error.add_note(f"{'then' if seen else 'also'}: {shortened(line)}")
        if len(told) > 1 + MAX_NOTES:
            error.add_note(f"and {len(told) - 1 - MAX_NOTES} more; `card.report()` has them")


def shortened(text: str) -> str:
    """Return a text that is only told in part where it is long."""
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"
