"""Counts of a USB cable's traffic: transfers, bytes, and how often the host waited for a transfer."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(slots=True)
class Counts:
    """Counters of one device; they only grow. `waits`: round trips during which the host could do nothing else."""

    control: int = 0
    bulk: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    waits: int = 0

    @property
    def transfers(self) -> int:
        """All transfers."""
        return self.control + self.bulk

    def copy(self) -> Counts:
        """Return a copy, for a later comparison."""
        return replace(self)

    def since(self, before: Counts) -> Counts:
        """Return what was added since `before`."""
        return Counts(
            self.control - before.control,
            self.bulk - before.bulk,
            self.bytes_out - before.bytes_out,
            self.bytes_in - before.bytes_in,
            self.waits - before.waits,
        )

    def __str__(self) -> str:
        moved = (self.bytes_out + self.bytes_in) / 1e6
        return f"{self.transfers} transfers ({self.waits} waited for), {moved:.1f} MB"
