"""What benches on a card share: opening it, both clocks, a description of its figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ringup
from ringup.tools.bench.bench import Bench

VIRTUAL = "virtual:"


def is_virtual(card: str) -> bool:
    """Return whether the name is that of a virtual card."""
    return card.startswith(VIRTUAL)


def note(card: str) -> str:
    """Return what times on this card mean."""
    if is_virtual(card):
        return (
            f"on {card}, a virtual card: wall time is the cost of the model on this computer, its own clock is a "
            "guess of the model"
        )
    return f"on {card}"


def open_card(bench: Bench) -> Any:
    """Bring up the bench's card."""
    return ringup.open(bench.card, firmware=bench.firmware)


@dataclass(frozen=True, slots=True)
class Took:
    """A duration in microseconds, by the wall clock and by the clock of the card's transport."""

    wall_us: float
    clock_us: float


def took(card: Any, work: Callable[[], object]) -> Took:
    """Run `work` once and time it."""
    clock = card.device.clock
    clock_us, start = clock.now_us, time.perf_counter_ns()
    work()
    return Took((time.perf_counter_ns() - start) / 1e3, clock.now_us - clock_us)
