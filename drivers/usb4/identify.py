"""The firmware of an enclosure, identified by its descriptors: by its ids, and by the product string if two firmwares
have the same ids. Nothing is guessed.

Source: docs/asm2464pd.md, "Identity".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ringup.drivers.usb4.port import Place


class Firmware(Enum):
    """The program that answers on USB."""

    OPEN = "open"
    PATCHED = "patched"
    STOCK = "stock"
    # the loader in the chip's ROM: it can only flash
    ROM = "rom"
    # the open firmware's loader: it can only flash, too
    BOOT_STUB = "bootstub"


@dataclass(frozen=True, slots=True)
class Row:
    """One identity. `product` returns whether a product string fits."""

    ids: tuple[int, int]
    firmware: Firmware
    maker: str
    product: Callable[[str], bool] = bool


def _open(product: str) -> bool:
    return product.startswith("custom")


def _any(product: str) -> bool:
    return True


ROM_PRODUCT = "AS2462"
# the first row that fits is the right one
ROWS = (
    Row((0xADD1, 0x0001), Firmware.OPEN, "open firmware", _open),
    Row((0xADD1, 0x0001), Firmware.PATCHED, "patched stock firmware", _any),
    # its product string may be a revision
    Row((0x3801, 0x0001), Firmware.OPEN, "open firmware", _any),
    Row((0xADD1, 0xB007), Firmware.BOOT_STUB, "open firmware's loader", _any),
    Row((0x3801, 0xB007), Firmware.BOOT_STUB, "open firmware's loader", _any),
    Row((0x174C, 0x2463), Firmware.ROM, "mask ROM", lambda product: product.startswith(ROM_PRODUCT)),
    Row((0x174C, 0x2462), Firmware.STOCK, "ASMedia", _any),
    Row((0x174C, 0x2463), Firmware.STOCK, "ASMedia", _any),
    Row((0x174C, 0x2464), Firmware.STOCK, "ASMedia", _any),
    Row((0x1E91, 0xDE79), Firmware.STOCK, "OWC", _any),
)
KNOWN_IDS = frozenset(row.ids for row in ROWS)


def known(place: Place) -> bool:
    """Return whether a device may be a bridge: whether its ids are those of a bridge."""
    return (place.vid, place.pid) in KNOWN_IDS


def identify(place: Place, product: str) -> Row | None:
    """Return the row of a device; None for an unknown device."""
    return next((row for row in ROWS if row.ids == (place.vid, place.pid) and row.product(product)), None)
