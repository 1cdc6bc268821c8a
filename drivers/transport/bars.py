"""Which memory BARs a card of a known vendor must have before it can be driven, and the error for a missing one.

A kernel that found no address space for a BAR lists the card as without it; so the needed BARs are listed by vendor.
Source: amdgpu amdgpu_device.c, amdgpu_device_init (register BAR 5, doorbells BAR 2), gmc_v11_0.c, gmc_v11_0_mc_init
(memory BAR 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.drivers.transport.seam import Device, Mmio
from ringup.errors import NotSupported

REMEDY = (
    "switch on 'Above 4G decoding' in the firmware set-up, or boot with pci=realloc; behind a hot-plug port, with the card plugged in, or with "
    "pci=hpmmioprefsize=1G"
)


class Needed(NamedTuple):
    """A BAR that a driver needs: what it shows, and how many of its bytes are always used."""

    number: int
    holds: str
    min_bytes: int


AMD = 0x1002
# by vendor; there is no driver yet for a vendor without a row
NEEDED: Mapping[int, tuple[Needed, ...]] = {
    AMD: (Needed(0, "its memory", 1 << 20), Needed(2, "its doorbells", 4096), Needed(5, "its registers", 4096)),
}


def trouble(vendor: int, sizes: Mapping[int, int]) -> str:
    """Return what is wrong with the BARs of a vendor's card, empty when nothing is; `sizes` are the bytes of those that
    have an address.
    """
    return "; ".join(text for row in NEEDED.get(vendor, ()) if (text := _wrong(row, sizes.get(row.number, 0))))


def _wrong(row: Needed, size_bytes: int) -> str:
    if not size_bytes:
        return f"BAR {row.number} ({row.holds}) has no address"
    if size_bytes < row.min_bytes:
        return f"BAR {row.number} ({row.holds}) shows {size_bytes} bytes, {row.min_bytes} are the least"
    return ""


def window(device: Device, number: int, vendor: int = AMD) -> Mmio:
    """Return a BAR that must be there. Raises `NotSupported` with its name when the path has none or too little of
    it.
    """
    found = device.bars.get(number)
    row = next(row for row in NEEDED[vendor] if row.number == number)
    wrong = _wrong(row, found.size_bytes if found is not None else 0)
    if wrong or found is None:
        raise NotSupported(f"{device.name}: {wrong}; {REMEDY}")
    return found
