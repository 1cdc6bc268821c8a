"""How VRAM is divided: what the CPU may use, and what the firmware keeps."""

from __future__ import annotations

from dataclasses import dataclass

# GUESS: how much the firmware keeps below its protected region. It needs a few pages for the roots of BAR 1 and 2.
OWN_BYTES = 16 << 20
PAGE = 4096


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """`usable`: bytes from 0 that the CPU's driver may use; `total`: all of VRAM."""

    usable: int
    total: int

    @property
    def bar1_root(self) -> int:
        """The page that BAR 1's address space begins with."""
        return self.usable

    @property
    def bar2_root(self) -> int:
        """The page that BAR 2's address space begins with."""
        return self.usable + PAGE

    @property
    def sec2_program(self) -> int:
        """Where the firmware puts what SEC2 is to run."""
        return self.usable + 2 * PAGE


def divide(reserved_start: int, total: int) -> MemoryMap:
    """Return the map for a firmware whose protected region begins at `reserved_start`.

    Raises `ValueError` if the loader left no room.
    """
    if not OWN_BYTES < reserved_start <= total or reserved_start % PAGE:
        raise ValueError(f"the firmware's memory begins at {reserved_start:#x} of {total:#x} bytes")
    return MemoryMap(reserved_start - OWN_BYTES, total)
