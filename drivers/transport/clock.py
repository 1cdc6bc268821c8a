"""The host's monotonic clock, as a transport's time."""

from __future__ import annotations

import time

NS = 1000
SPIN_US = 20  # a sleep this short would take the scheduler's slack of 50 us instead


class HostClock:
    """Microseconds since the host booted; suspended time does not count."""

    @property
    def now_us(self) -> int:
        """Microseconds."""
        return time.monotonic_ns() // NS

    def sleep_us(self, time_us: float) -> None:
        """Let time pass. What is shorter than a sleep can be is spun away."""
        if time_us > SPIN_US:
            time.sleep(time_us / 1_000_000)
            return
        end = time.monotonic_ns() + int(time_us * NS)
        while time.monotonic_ns() < end:
            pass
