"""Which driver drives a device: by vendor and device id of its configuration space."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device
from ringup.errors import NotSupported

DRIVERS = {
    0x1002: "ringup.drivers.amd.card"
}  # vendor id: the module whose `start` brings a card up; imported when wanted
LATER = {0x10DE: "NVIDIA"}
# vendor id: the module whose `unsupported` knows cards of its that are not driven, by device id
IDS = {0x1002: "ringup.drivers.amd.bus.ids"}
VENDOR_ID = 0


def unsupported(vendor: int, device: int) -> str:
    """Say why no driver drives a card, by its ids alone; empty where one may."""
    if vendor not in DRIVERS:
        return f"there is no driver for {LATER.get(vendor, f'vendor {vendor:#06x}')} cards yet"
    reason: str = import_module(IDS[vendor]).unsupported(device)
    return reason


def start(device: Device, **options: Any) -> Any:
    """Bring the card behind `device` up and return it; the device is closed when that fails.

    Raises `NotSupported` for a vendor without a driver, and what the driver's bring-up raises.
    """
    try:
        return import_module(_driver(device)).start(device, **options)
    except BaseException:
        device.close()
        raise


def _driver(device: Device) -> str:
    ids = ask(device.config, VENDOR_ID, 4, f"opening {device.name}")
    vendor = ids & 0xFFFF
    if reason := unsupported(vendor, ids >> 16):
        raise NotSupported(f"opening {device.name}: {reason}")
    return DRIVERS[vendor]
