"""Bring-up as a list of named stages: each has a bound, is timed on the transport's clock and reported to a watcher; a
failure names its stage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ringup.drivers.transport.seam import Clock, Device
from ringup.errors import DeviceTimeout, RingupError

LOG = logging.getLogger(__name__)
# TIMEOUT: ours; over a bridge's stock firmware an access takes milliseconds, and other projects saw starts of 18 s
REMOTE_PATIENCE = 30


def patience_with(device: Device) -> int:
    """Return how many times its bound a stage may take on this path."""
    return REMOTE_PATIENCE if device.polls_vram else 1


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage that has ended. Times are microseconds of the transport's clock; `error` is empty for success."""

    name: str
    started_us: int
    took_us: int
    bound_us: int
    error: str = ""


# called with a stage's name when it begins, and with the stage when it ends
Watcher = Callable[[Stage | str], None]


class Stages:
    """The stages of one bring-up, in order."""

    def __init__(self, card: str, clock: Clock, watch: Watcher | None = None, *, patience: int = 1) -> None:
        """`patience` multiplies the stages' bounds, for a path to the card where every access is slow."""
        self.card, self._clock, self._watch, self._patience = card, clock, watch, patience
        self.done: list[Stage] = []

    @contextmanager
    def stage(self, name: str, bound_us: int) -> Iterator[None]:
        """Run one stage. An error of our tree comes out as its own class with the stage's name in front.

        `bound_us` is for the whole stage; the waits inside have bounds of their own. Raises `DeviceTimeout` when it
        took longer.
        """
        bound_us *= self._patience
        if self._watch is not None:
            self._watch(name)
        started = self._clock.now_us
        try:
            yield
            took = self._clock.now_us - started
            if took > bound_us:
                raise DeviceTimeout(f"took {took / 1000:.0f} ms, {bound_us / 1000:g} ms are the bound")
        except RingupError as error:
            self._end(name, started, bound_us, str(error))
            raised = type(error)(f"{self.card}: {name}: {error}")
            # a refusal's number, notes
            vars(raised).update(vars(error))
            raise raised from error
        self._end(name, started, bound_us, "")

    def _end(self, name: str, started: int, bound_us: int, error: str) -> None:
        stage = Stage(name, started, self._clock.now_us - started, bound_us, error)
        self.done.append(stage)
        LOG.debug("%s: %s: %.1f ms%s", self.card, name, stage.took_us / 1000, f": {error}" if error else "")
        if self._watch is not None:
            self._watch(stage)
