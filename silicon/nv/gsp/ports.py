"""What the GSP's firmware needs of the card: memory, the interrupt line, and effects of the resource manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ringup.silicon.nv.rm.parts import Aperture, Channel, Chip, Effects, PageDirectory, PhysicalMemory, Place

__all__ = ["Aperture", "Boot", "Channel", "Chip", "Events", "HandOver", "Memory", "PageDirectory", "Place"]

Memory = PhysicalMemory


@dataclass(frozen=True, slots=True)
class Boot:
    """What the loader left for the firmware.

    `libos_arguments`: bus address, from the GSP's mailboxes. `release`: the driver release that the firmware image
    names. `reserved_start`: the first byte of VRAM that the CPU may not use (WPR metadata, nonWprHeapOffset).
    `fb_bytes`: all of VRAM. `frts_start`: where FRTS data is, which GSP-RM tells with the start of that memory.
    """

    libos_arguments: int
    release: str
    reserved_start: int
    fb_bytes: int
    frts_start: int = 0


class HandOver(Protocol):
    """How the firmware gets over its core's reset while it starts."""

    def prepare(self, vram_pa: int) -> list[int]:
        """Put what resumes the firmware at this place, and return the words of the CPU's sequence."""
        ...


class Events(Effects, Protocol):
    """What the firmware does to the card."""

    def interrupt(self) -> None:
        """The status queue has a message: raise SWGEN0 of the GSP's falcon."""
        ...

    def suspended(self, metadata: int) -> None:
        """The firmware has stopped after UNLOADING_GUEST_DRIVER: set bit 31 of the GSP's mailbox 0.

        `metadata`: the bus address of those of a sleep, if the firmware was told; else 0.
        """
        ...

    def bar1_page_directory(self, address: int) -> None:
        """BAR 1 is walked from this page of VRAM."""
        ...

    def bar2_page_directory(self, address: int) -> None:
        """BAR 2 is walked from this page of VRAM."""
        ...

    def update_bar_pde(self, bar: int, entry_value: int, level_shift: int) -> None:
        """An entry of a BAR's root has changed; it is in VRAM already. `bar`: 1 or 2."""
        ...
