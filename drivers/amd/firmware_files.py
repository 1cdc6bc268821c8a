"""Where a card's firmware comes from: what the caller names, what belongs to the device itself, the system's folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ringup.drivers.transport.seam import Device
from ringup.firmware.amd.files import FirmwareSet, load
from ringup.firmware.amd.needs import FOLDER, Need
from ringup.firmware.store import FoundFile, Store


class CardStore(Store):
    """Files for one device. `explicit` folders or files come before the device's own images (a model's), those before the system's folders."""

    def __init__(self, device: Device, explicit: Iterable[Path | str] = ()) -> None:
        super().__init__(explicit=explicit)
        self._device = device
        self._named = Store(folders=(), explicit=explicit)

    def find(self, name: str) -> FoundFile | None:
        """Return a file, or None where there is none."""
        named = self._named.find(name)
        if named is not None:
            return named
        own = self._device.firmware(name.removeprefix(FOLDER))
        if own is not None:
            return FoundFile(name, Path(self._device.name) / name, own)
        return super().find(name)


def load_for(device: Device, needs: Iterable[Need], explicit: Iterable[Path | str] = ()) -> FirmwareSet:
    """Find, read and check what a card needs. Raises `FirmwareError`."""
    return load(needs, CardStore(device, explicit))
