"""What the resource manager does when the machine goes to sleep: it saves video memory where the CPU said, and puts it
back. Whoever holds the manager keeps its objects over the sleep.

Source: nouveau 6.12, nvkm/subdev/instmem/r535.c, which describes the memory, and says that it is restored already when
the firmware is up again. Inference from its arithmetic: the firmware's own memory goes behind the last region. nouveau
7.3, rm/r570/fbsr.c: later firmware is told to halt the channels before, and to let them go on afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringup.autogen.nv import status
from ringup.silicon.nv.common.pages import PAGE, runs
from ringup.silicon.nv.rm.objects import Paged
from ringup.silicon.nv.rm.parts import Aperture, Channel, PhysicalMemory, RmError

if TYPE_CHECKING:
    from ringup.silicon.nv.rm.manager import Manager

# GUESS: the bound for a hostile CPU
MAX_REGIONS = 1 << 16


@dataclass(frozen=True, slots=True)
class Region:
    """A part of video memory, and where in the save area it goes. All in bytes."""

    memory: Paged
    offset: int
    saved_at: int
    size_bytes: int


@dataclass(slots=True)
class Saving:
    """The save area, the regions, and where the firmware's own memory goes. `own_bytes`: how much of that was saved.

    `metadata`: the bus address of those that say where the protected region goes; 0 if the firmware is not told.
    """

    area: Paged
    wanted: int
    own_at: int
    regions: list[Region] = field(default_factory=list)
    own_bytes: int = 0
    metadata: int = 0

    def add(self, region: Region) -> None:
        """Add a region. Raises `RmError` if it does not fit."""
        if len(self.regions) >= self.wanted:
            raise RmError(status.NV_ERR_INVALID_STATE, f"{self.wanted} regions were announced")
        for what, memory, offset in (
            ("region", region.memory, region.offset),
            ("save area", self.area, region.saved_at),
        ):
            if offset % PAGE or region.size_bytes % PAGE or not fits(memory, offset, region.size_bytes):
                raise RmError(
                    status.NV_ERR_INVALID_ARGUMENT,
                    f"{region.size_bytes:#x} bytes at {offset:#x} of a {what} of {len(memory.pages)} pages",
                )
        self.regions.append(region)


def fits(memory: Paged, offset: int, size_bytes: int) -> bool:
    """Return whether bytes lie within a memory."""
    return 0 < size_bytes <= len(memory.pages) * PAGE - offset


def _runs(memory: Paged, offset: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Return a memory's pieces without gaps: address and bytes. Offsets are multiples of a page."""
    return runs(memory.pages[offset // PAGE : (offset + size_bytes) // PAGE])


def _move(memory: PhysicalMemory, region: Region, area: Paged, *, back: bool) -> None:
    """Copy a region into the save area, or back."""
    pieces = _runs(area, region.saved_at, region.size_bytes)
    saved, room = next(pieces)
    for address, length in _runs(region.memory, region.offset, region.size_bytes):
        while length:
            part = min(length, room)
            places = ((region.memory.aperture, address), (area.aperture, saved))
            source, target = reversed(places) if back else places
            memory.write(*target, memory.read(*source, part))
            address, length, saved, room = address + part, length - part, saved + part, room - part
            if not room:
                saved, room = next(pieces, (0, 0))


def halt(manager: Manager, off: bool) -> None:
    """Take all channels off their runlists; or put those back that a driver had scheduled."""
    if manager.halted == off:
        return
    manager.halted = off
    for channel in manager.numbers:
        if channel.scheduled:
            manager.effects.channel_scheduled(channel, not off)


def suspend(manager: Manager) -> None:
    """Take the channels off the card and save memory. Raises `ValueError` for an address that the card cannot reach."""
    for channel in manager.numbers:
        if channel.scheduled and not manager.halted:
            manager.effects.channel_scheduled(channel, False)
        manager.effects.channel_saved(channel)
    saving = manager.saving
    if saving is None:
        return
    for region in saving.regions:
        _move(manager.memory, region, saving.area, back=False)
    own = _own(manager, saving)
    if own is not None:
        _move(manager.memory, own, saving.area, back=False)
        saving.own_bytes = own.size_bytes


def resume(manager: Manager) -> bool:
    """Put everything back; return whether the firmware's own memory is there again."""
    saving, manager.saving = manager.saving, None
    whole = False
    if saving is not None:
        for region in saving.regions:
            _move(manager.memory, region, saving.area, back=True)
        own = _own(manager, saving)
        if own is not None and saving.own_bytes:
            _move(manager.memory, own, saving.area, back=True)
            whole = True
    return whole


def announce(manager: Manager) -> None:
    """Tell the card of the channels that there are, after a sleep in which it forgot them."""
    for channel in manager.numbers:
        _announce(manager, channel)


def _announce(manager: Manager, channel: Channel) -> None:
    manager.effects.channel_allocated(channel)
    if channel.scheduled and not manager.halted:
        manager.effects.channel_scheduled(channel, True)


def _own(manager: Manager, saving: Saving) -> Region | None:
    """Return the firmware's own memory that matters: the roots of BAR 1 and BAR 2. None if there is no room for it."""
    pages = (manager.map.bar1_root, manager.map.bar2_root)
    own = Region(Paged(Aperture.VRAM, pages), 0, saving.own_at, len(pages) * PAGE)
    return own if saving.own_at % PAGE == 0 and fits(saving.area, saving.own_at, own.size_bytes) else None
