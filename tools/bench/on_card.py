"""What benches that run on a card share: opening it, both clocks, what its figures are of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ringup
from ringup.tools.bench.bench import Bench

VIRTUAL = "virtual:"


def is_virtual(card: str) -> bool:
    """Tell whether the name is a device model's."""
    return card.startswith(VIRTUAL)


def note(card: str) -> str:
    """Say what times on this card are of."""
    if is_virtual(card):
        return f"on {card}, a device model: wall time is what the model costs this computer, its own clock is the model's guess"
    return f"on {card}"


def open_card(bench: Bench) -> Any:
    """Bring up the bench's card."""
    return ringup.open(bench.card, firmware=bench.firmware)


@dataclass(frozen=True, slots=True)
class Took:
    """How long something took, in microseconds: of the wall's clock and of the card's transport."""

    wall_us: float
    clock_us: float


def took(card: Any, work: Callable[[], object]) -> Took:
    """Run `work` once and time it."""
    clock = card.device.clock
    clock_us, start = clock.now_us, time.perf_counter_ns()
    work()
    return Took((time.perf_counter_ns() - start) / 1e3, clock.now_us - clock_us)
