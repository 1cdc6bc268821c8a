"""Opening a card without starting it: held by us if it is free, read-only if another process holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ringup
from ringup.drivers import select
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.left import LeftCard
from ringup.drivers.transport.linux.readonly import holder, open_readonly
from ringup.drivers.transport.seam import Device
from ringup.errors import CardBusy, NotSupported, RingupError

PCI = "pci:"


@dataclass(frozen=True, slots=True)
class Attached:
    """A card in the state in which it was found. `holder` names the process that holds it, empty if we do."""

    card: LeftCard
    holder: str = ""


@contextmanager
def attached(name: str, *, change: bool = False) -> Iterator[Attached]:
    """Hold the card called `name`. `change`: it will be written, so read-only access is not enough.

    Raises `CardBusy` for a card that cannot even be read, `NotSupported` for one whose kernel driver gives no access to
    registers, and the errors of opening.
    """
    device, who = _device(name, change=change)
    try:
        yield Attached(select.left(device, own=not who), who)
    finally:
        device.close()


def radeon(found: Attached, what: str) -> Bare:
    """Return an attached card as a Radeon. Raises `NotSupported` for another vendor's, of which `what` is not known."""
    if not isinstance(found.card, Bare):
        raise NotSupported(f"{what} of {found.card.device.name}: that is known of Radeons only")
    return found.card


def _device(name: str, *, change: bool) -> tuple[Device, str]:
    try:
        device = ringup.connect(name)
    except CardBusy as busy:
        if change or not name.startswith(PCI):
            raise
        address = name.removeprefix(PCI)
        try:
            return open_readonly(address), holder(address) or "another process"
        except RingupError:
            raise busy from None
    if not isinstance(device, Device):
        device.close()
        raise NotSupported(f"{name} is driven by its kernel driver, which gives no access to registers")
    return device, ""
