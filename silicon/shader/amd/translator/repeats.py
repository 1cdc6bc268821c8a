"""Notices that a run has come back to an earlier state. Then it does the same for ever, unless memory changes: its
waves wait in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

# A larger state is not looked at. A smaller one is, in one of so many steps for each piece of so many bytes, so that
# looking costs less than running.
MAX_STATE_BYTES = 16 << 20
BYTES_A_STEP = 64 << 10
# Looks between two states that are kept, at most.
MAX_PATIENCE = 1 << 16


@dataclass(slots=True)
class Repeats:
    """Compares each state with one kept earlier, which is replaced after 1, 2, 4, … looks (R. Brent, 1980). `period` is
    the number of looks after which the state came back, 0 while it has not.
    """

    period: int = 0
    _kept: bytes | None = None
    _patience: int = 1
    _since: int = 0

    def look(self, now: bytes) -> None:
        """Take the next state."""
        self._since += 1
        if now == self._kept:
            self.period, self._since = self._since, 0
        elif self.period and self._since > self.period:
            # what it waited for has come
            self._keep(now, 1)
        elif not self.period and self._since >= self._patience:
            self._keep(now, min(2 * self._patience, MAX_PATIENCE))

    def _keep(self, now: bytes, patience: int) -> None:
        self._kept, self._patience, self.period, self._since = now, patience, 0, 0
