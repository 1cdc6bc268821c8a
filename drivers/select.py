"""Which driver drives a device: by vendor and device id of its configuration space."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from ringup.drivers.card import Card
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.left import LeftCard
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device, Driven
from ringup.errors import NotSupported

# vendor id: the module whose `start` brings a card up; imported when wanted
DRIVERS = {0x1002: "ringup.drivers.amd.card", 0x10DE: "ringup.drivers.nv.card"}
# vendor id: the module whose `unsupported` knows cards of its that are not driven, by device id
IDS = {0x1002: "ringup.drivers.amd.bus.ids", 0x10DE: "ringup.drivers.nv.bus.ids"}
# vendor id: the module whose `LEFT` is a card of the vendor's that nobody has started
LEFT = {0x1002: "ringup.drivers.amd.left", 0x10DE: "ringup.drivers.nv.left"}
VENDOR_ID = 0


def unsupported(vendor: int, device: int) -> str:
    """Say why no driver drives a card, by its ids alone; empty where one may."""
    if vendor not in DRIVERS:
        return f"there is no driver for vendor {vendor:#06x} cards yet"
    reason: str = import_module(IDS[vendor]).unsupported(device)
    return reason


def start(device: Device | Driven, kind: type[Any] | None = None, **options: Any) -> Card:
    """Bring the card behind `device` up and return it; the device is closed when that fails.

    Raises `NotSupported` for a vendor without a driver or, before the card is touched, one whose cards are not of
    `kind`; and what the driver's bring-up raises.
    """
    with undone_on_error(device.close):
        card: Card = _driver(device, kind).start(device, **options)
    return card


def left(device: Device, *, own: bool = True) -> LeftCard:
    """Return the card behind `device` as it is found; nothing is started. `own`: this process holds it, and wakes it.

    Raises `NotSupported` for a vendor without a driver, `DeviceLost`.
    """
    vendor = ask(device.config, VENDOR_ID, 2, f"looking at {device.name}")
    if vendor not in LEFT:
        raise NotSupported(f"looking at {device.name}: {unsupported(vendor, 0)}")
    card: LeftCard = import_module(LEFT[vendor]).LEFT(device, own=own)
    return card


def _driver(device: Device | Driven, kind: type[Any] | None) -> ModuleType:
    driver = import_module(_module_of(device))
    if kind not in (None, Card) and not issubclass(driver.CARD, kind):
        raise NotSupported(f"opening {device.name}: it is a {driver.CARD.__name__}, not a {kind.__name__}")
    return driver


def _module_of(device: Device | Driven) -> str:
    if isinstance(device, Driven):
        return device.driver_module
    ids = ask(device.config, VENDOR_ID, 4, f"opening {device.name}")
    vendor = ids & 0xFFFF
    if reason := unsupported(vendor, ids >> 16):
        raise NotSupported(f"opening {device.name}: {reason}")
    return DRIVERS[vendor]
