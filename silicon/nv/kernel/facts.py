"""Where the machine has the card, and which release its modules are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """`release`: of the modules. The card's place on the bus, and the addresses of its windows."""

    release: str
    domain: int
    bus: int
    slot: int
    windows: tuple[int, int, int]

    @property
    def gpu_id(self) -> int:
        """The number by which the driver names the card: gpuGenerate32BitId of gpu_mgr.c, for small domains."""
        return self.domain << 16 | self.bus << 8 | self.slot
