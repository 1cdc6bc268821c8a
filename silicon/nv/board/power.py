"""How work warms a board, and what its sensors and counters of use tell.

The die's sensor is above the cooler's temperature by what the power drops between them, at once; the cooler follows
slowly. GUESS: all constants are plausible, only the limits are those of the data sheets (T10, A10, L40S, H100, RTX PRO
6000).
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.heat import Cooling, Heat
from ringup.silicon.nv.common.usage import Usage

# the counters of use: 72 samples in 10 s. Source: ctrl2080perf.h, NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL
SAMPLES, SPAN_NS = 72, 10_000_000_000
# how much of the power limit the shader cores take when they work, and a copy engine
GRAPHICS_SHARE, COPY_SHARE = 0.9, 0.6


@dataclass(frozen=True, slots=True)
class PowerRow:
    """A board: W that it takes at rest and at most, °C for each W between die and cooler, and its cooler."""

    idle: float
    limit: float
    die_degrees_per_watt: float
    cooling: Cooling


ROWS = {
    "tu102": PowerRow(18.0, 150.0, 0.1, Cooling(28.0, 0.27, 20.0)),
    "ga100": PowerRow(35.0, 250.0, 0.06, Cooling(28.0, 0.18, 20.0)),
    "ga102": PowerRow(16.0, 150.0, 0.1, Cooling(28.0, 0.27, 20.0)),
    "ad102": PowerRow(24.0, 350.0, 0.05, Cooling(28.0, 0.13, 20.0)),
    "gh100": PowerRow(45.0, 350.0, 0.05, Cooling(28.0, 0.13, 20.0)),
    "gb202": PowerRow(30.0, 600.0, 0.03, Cooling(28.0, 0.08, 20.0)),
}


@dataclass(slots=True)
class _Worked:
    """Nanoseconds for which engines have worked."""

    graphics: int = 0
    copies: int = 0


class Power(Heat):
    """A board's power and temperature. Whoever lets engines work calls `advance` when work begins and ends, so that
    each span between two calls is even.
    """

    def __init__(self, clock: VirtualClock, chip: str) -> None:
        self.row = ROWS[chip]
        self._worked, self._seen = _Worked(), _Worked()
        self._samples: dict[int, _Worked] = {}
        self._seen_ns = clock.now_ns
        super().__init__(clock, self._busy, self.row.cooling, self.row.idle)

    def _busy(self) -> int:
        """Return the time for which shader cores would have worked to take the same power."""
        return round(self._worked.graphics + self._worked.copies * COPY_SHARE / GRAPHICS_SHARE)

    def worked(self, ns: int, *, graphics: bool) -> None:
        """Count the time for which an engine works, from now on."""
        if graphics:
            self._worked.graphics += ns
        else:
            self._worked.copies += ns

    def demand(self) -> float:
        """Return the power that the present activity takes, in W."""
        return self.row.idle + self.activity * GRAPHICS_SHARE * (self.row.limit - self.row.idle)

    def advance(self) -> None:
        """Bring power, temperature and samples to the current time."""
        self._sample()
        super().advance()

    @property
    def celsius(self) -> int:
        """What the die's sensor shows."""
        self.advance()
        return round(self.temperature + self.row.die_degrees_per_watt * self.power)

    # --- counters of use --------------------------------------------------------------------------------------------
    def _sample(self) -> None:
        """Spread the work since the last call over the samples of that time."""
        start_ns, end_ns = self._seen_ns, self._clock.now_ns
        done = _Worked(self._worked.graphics - self._seen.graphics, self._worked.copies - self._seen.copies)
        if end_ns <= start_ns:
            return
        span_ns = end_ns - start_ns
        at_ns = max(start_ns, end_ns - SPAN_NS)
        while (done.graphics or done.copies) and at_ns < end_ns:
            number = _number(at_ns)
            part_ns = min(_begin(number + 1), end_ns) - at_ns
            sample = self._samples.setdefault(number, _Worked())
            sample.graphics += done.graphics * part_ns // span_ns
            sample.copies += done.copies * part_ns // span_ns
            at_ns += part_ns
        oldest = _number(end_ns) - SAMPLES
        self._samples = {number: sample for number, sample in self._samples.items() if number >= oldest}
        self._seen_ns, self._seen = end_ns, _Worked(self._worked.graphics, self._worked.copies)

    def usage(self) -> tuple[Usage, ...]:
        """Return the finished samples of the last 10 s, oldest first."""
        self.advance()
        last = _number(self._clock.now_ns)
        return tuple(self._usage(number) for number in range(max(last - SAMPLES, 0), last))

    def _usage(self, number: int) -> Usage:
        sample = self._samples.get(number, _Worked())
        span_ns = _begin(number + 1) - _begin(number)
        return Usage(
            number % SAMPLES,
            _begin(number + 1),
            min(sample.graphics / span_ns, 1.0),
            # copies take the memory's bandwidth; shaders some of it
            min((sample.copies + sample.graphics * 0.5) / span_ns, 1.0),
        )


def _number(ns: int) -> int:
    return ns * SAMPLES // SPAN_NS


def _begin(number: int) -> int:
    return -(-number * SPAN_NS // SAMPLES)
