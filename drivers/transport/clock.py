"""The host's monotonic clock, as a transport's time."""

from __future__ import annotations

import time

NS = 1000
# a sleep up to this long is a busy loop: a call of `sleep` would take the scheduler's slack of 50 us instead
SPIN_US = 20


class HostClock:
    """Microseconds since the host booted; suspended time does not count."""

    @property
    def now_us(self) -> int:
        """Microseconds."""
        return time.monotonic_ns() // NS

    def sleep_us(self, time_us: float) -> None:
        """Sleep. A time that is too short for a sleep passes in a busy loop."""
        if time_us > SPIN_US:
            time.sleep(time_us / 1_000_000)
            return
        end = time.monotonic_ns() + int(time_us * NS)
        while time.monotonic_ns() < end:
            pass
