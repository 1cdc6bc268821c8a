"""Faults that a test or a demonstration injects by name. Blocks query them; nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault that a card's blocks implement. `argument` describes its number; empty if it takes none."""

    name: str
    text: str
    argument: str = ""


COMMON = (
    FaultKind("all_ones_after_reads", "the function answers all ones: fallen off the bus", "register reads until then"),
    FaultKind("link_drop_after_bytes", "the link goes down", "bytes of bulk traffic until then"),
    FaultKind(
        "lost_interrupt", "interrupts are raised in the card and never reach the host", "how many are lost; -1: all"
    ),
)


class Faults:
    """The faults of one card. `take` uses up a fault with a count; others stay until `clear`."""

    def __init__(self, kinds: tuple[FaultKind, ...] = COMMON) -> None:
        self.kinds = {kind.name: kind for kind in kinds}
        self._on: dict[str, int] = {}

    def know(self, *kinds: FaultKind) -> None:
        """Add the faults that a block offers."""
        self.kinds.update({kind.name: kind for kind in kinds})

    def inject(self, name: str, argument: int = -1) -> None:
        """Inject a fault; -1 means for ever, or at once, as its text says. An unknown name raises `ValueError`, which
        lists the known ones.
        """
        if name not in self.kinds:
            known = "; ".join(f"{kind.name}: {kind.text}" for kind in self.kinds.values())
            raise ValueError(f"this card has no fault {name!r}; it has {known}")
        self._on[name] = argument

    def clear(self, name: str = "") -> None:
        """Remove one fault, or all of them."""
        if name:
            self._on.pop(name, None)
        else:
            self._on.clear()

    @property
    def none_on(self) -> bool:
        """Whether no fault is injected."""
        return not self._on

    def get(self, name: str) -> int | None:
        """Return a fault's argument; None if it is not injected."""
        return self._on.get(name)

    def take(self, name: str, amount: int = 1) -> bool:
        """Return whether the fault strikes now, and decrement its count; -1 always strikes."""
        left = self._on.get(name)
        if left is None or left == 0:
            return False
        if left > 0:
            self._on[name] = max(0, left - amount)
        return True

    def reached(self, name: str, amount: int = 1) -> bool:
        """Count `amount` towards a fault's threshold; return whether it is reached. -1 and 0 are reached at once."""
        left = self._on.get(name)
        if left is None:
            return False
        if left > 0:
            self._on[name] = left = max(0, left - amount)
        return left <= 0
