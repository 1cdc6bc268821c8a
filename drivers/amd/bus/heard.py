"""When a processor of the card answered last: for the post-mortem of one that does not answer any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringup.drivers.transport.seam import Clock
from ringup.errors import DeviceTimeout


class Heard:
    """The answers of one processor. `name` is its name in errors. Times are the transport's clock."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self._clock = name, clock
        self.last_us: int | None = None  # of the last answer
        # of the first question of those that have no answer
        self._since_us: int | None = None
        self._what = ""

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Wait for an answer inside. An answer, even a refusal, is noted, and so is a wait that runs out."""
        begun_us = self._clock.now_us
        try:
            yield
        except DeviceTimeout:
            if self._since_us is None:
                self._since_us, self._what = begun_us, what
            raise
        self.answered()

    def answered(self) -> None:
        """Note an answer."""
        self.last_us, self._since_us = self._clock.now_us, None

    def forget(self) -> None:
        """Forget all answers: the card was reset."""
        self.last_us = self._since_us = None

    @property
    def silent(self) -> str:
        """Which question it does not answer, since when, and how old its last answer is; empty for one that answers."""
        if self._since_us is None:
            return ""
        now = self._clock.now_us
        age = (
            "it has answered nothing before"
            if self.last_us is None
            else f"its last answer is {_seconds(now - self.last_us)} old"
        )
        return f"{self.name} is silent: no answer to {self._what} for {_seconds(now - self._since_us)}; {age}"


def _seconds(time_us: int) -> str:
    return f"{time_us / 1e6:.3g} s"
