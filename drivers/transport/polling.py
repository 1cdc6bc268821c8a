"""Interrupts of a path that has none: time passes, and the caller looks."""

from __future__ import annotations

from ringup.drivers.transport.seam import Clock


class Polling:
    """The seam's `Interrupts` without any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Let the time pass."""
        self._clock.sleep_us(timeout_us)
        return ()
