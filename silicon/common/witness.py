"""A virtual card's reports of its driver's mistakes and of stalled work. A real card has none, so a driver checks for
it.

It is the seam's `Device.witness`, by shape. Texts name the rule, the address and the instruction or packet. The driver
adds what only it knows from `pc` and `gpu_va`, such as names of kernels and buffers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ringup.errors import RingupError
from ringup.silicon.common.log import Event, EventLog

NONE = -1
# different mistakes of one log that a server reports
MAX_REPORTED = 200
ACCESSED = re.compile(r"(?:read of|write to|bytes at) (0x[0-9a-f]+)")
Source = Callable[[], Iterable["Observation"]]


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation. `key` is unique for the card; -1 means that there is no such address or VMID."""

    key: str
    time_us: float
    text: str
    pc: int = NONE
    gpu_va: int = NONE
    vmid: int = NONE


class Witness:
    """The observations of several parts, in order of time: the card, and the bridge in front of it."""

    def __init__(self, mistakes: Iterable[Source], unfinished: Iterable[Source]) -> None:
        self._mistakes, self._unfinished = tuple(mistakes), tuple(unfinished)

    def mistakes(self) -> list[Observation]:
        """Return what the driver and its work did wrong and a real card punishes, oldest first."""
        return sorted((one for source in self._mistakes for one in source()), key=lambda one: one.time_us)

    def unfinished(self) -> list[Observation]:
        """Return the stalled work: packets and what they wait for, waves by place."""
        return [one for source in self._unfinished for one in source()]


def observations(events: Iterable[Event], place: str) -> Iterator[Observation]:
    """Yield the observations of a log's events. `place` identifies the log within the machine."""
    for event in events:
        broken = next((value for value in event.values if hasattr(value, "gpu_va") or hasattr(value, "pc")), None)
        yield Observation(
            f"{place}{event.number}",
            event.time_ns / 1000,
            f"{event.block}: {event.text}{_lane(event.text, broken)}",
            _number(broken, "pc"),
            _accessed(broken),
            _number(broken, "vmid"),
        )


def _accessed(broken: object) -> int:
    """Return the address of a fault; for a rule that a shader program broke, it is taken from the text."""
    if getattr(broken, "gpu_va", None) is not None:
        return _number(broken, "gpu_va")
    named = ACCESSED.search(getattr(broken, "detail", ""))
    return int(named[1], 16) if named else NONE


def _lane(text: str, broken: object) -> str:
    """Return the lane of a broken shader rule, if the text lacks it."""
    lane = getattr(broken, "lane", None)
    return "" if lane is None or f"lane {lane}" in text else f", lane {lane}"


def _number(of: object, name: str) -> int:
    found: Any = getattr(of, name, None)
    return NONE if found is None else int(found)


def describe_wait(look: Callable[[], str]) -> str:
    """Return `look()`, or the text of its error."""
    try:
        return look()
    except RingupError as error:
        return str(error)


def log_mistakes(log: EventLog, name: str, to: logging.Logger) -> None:
    """Log a warning for each new mistake in a log, once: for users of a card that another program drives, where it is
    called `name`.
    """
    reported: set[str] = set()

    def watch(event: Event) -> None:
        if event.kind != "violation" or len(reported) > MAX_REPORTED:
            return
        text = f"{event.block}: {event.text}"
        if text in reported:
            return
        reported.add(text)
        if len(reported) > MAX_REPORTED:
            to.warning("%s: more mistakes than %d; the others are only in its log", name, MAX_REPORTED)
        else:
            to.warning("%s: a mistake that a real card punishes: %s", name, text)

    log.watch(watch)
