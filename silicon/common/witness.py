"""What a virtual card says of its driver's mistakes, and of what does not go on: a real card lacks this, so a driver
asks whether it is there.

`Device.witness` of the seam, by shape. Texts name the rule, the address and the instruction or packet; what only the
driver knows, such as names of kernels and buffers, it adds from `pc` and `gpu_va`.
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
MAX_TOLD = 200  # different mistakes that a server tells of one log
ACCESSED = re.compile(r"(?:read of|write to|bytes at) (0x[0-9a-f]+)")
Source = Callable[[], Iterable["Observation"]]


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was seen. `key` tells it apart from all others of the card; -1 where there is no such address or
    VMID.
    """

    key: str
    time_us: float
    text: str
    pc: int = NONE
    gpu_va: int = NONE
    vmid: int = NONE


class Witness:
    """What several parts saw, in order of time: the card, and the bridge that it sits behind."""

    def __init__(self, mistakes: Iterable[Source], unfinished: Iterable[Source]) -> None:
        self._mistakes, self._unfinished = tuple(mistakes), tuple(unfinished)

    def mistakes(self) -> list[Observation]:
        """Return what the driver and its work did that a real card punishes, oldest first."""
        return sorted((one for source in self._mistakes for one in source()), key=lambda one: one.time_us)

    def unfinished(self) -> list[Observation]:
        """Return what does not go on now: packets that wait and for what, waves by the place they are at."""
        return [one for source in self._unfinished for one in source()]


def seen(events: Iterable[Event], place: str) -> Iterator[Observation]:
    """Give the observations of a log's events. `place` tells the log from others of the machine."""
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
    """Return the address that a fault names; a rule that a shader program broke has it in its words."""
    if getattr(broken, "gpu_va", None) is not None:
        return _number(broken, "gpu_va")
    named = ACCESSED.search(getattr(broken, "detail", ""))
    return int(named[1], 16) if named else NONE


def _lane(text: str, broken: object) -> str:
    """Return the lane of a rule that a shader program broke, where its words do not have it."""
    lane = getattr(broken, "lane", None)
    return "" if lane is None or f"lane {lane}" in text else f", lane {lane}"


def _number(of: object, name: str) -> int:
    found: Any = getattr(of, name, None)
    return NONE if found is None else int(found)


def asked(look: Callable[[], str]) -> str:
    """Return what `look` says; where looking is what the card cannot do, that."""
    try:
        return look()
    except RingupError as error:
        return str(error)


def tell_mistakes(log: EventLog, name: str, to: logging.Logger) -> None:
    """Warn of each mistake in a log from now on, once: for whoever runs a card that another program drives, called
    `name` there.
    """
    told: set[str] = set()

    def watch(event: Event) -> None:
        if event.kind != "violation" or len(told) > MAX_TOLD:
            return
        text = f"{event.block}: {event.text}"
        if text in told:
            return
        told.add(text)
        if len(told) > MAX_TOLD:
            to.warning("%s: more mistakes than %d; they are in its log alone", name, MAX_TOLD)
        else:
            to.warning("%s: a mistake that a real card punishes: %s", name, text)

    log.watch(watch)
