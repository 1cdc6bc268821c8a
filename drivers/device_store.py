"""A firmware store that also has the images of one device, such as a model's."""

from __future__ import annotations

from pathlib import Path

from ringup.drivers.transport.seam import Device
from ringup.firmware.store import FoundFile, Store


class DeviceStore(Store):
    """A store and a device's own images, such as a model's. Files named to the store come before those images, its
    folders after them.
    """

    def __init__(self, device: Device, behind: Store) -> None:
        super().__init__(behind.folders, behind.explicit)
        self._device = device
        self._named = Store((), behind.explicit)

    def find(self, name: str) -> FoundFile | None:
        """Return the named file, else the device's own image, else the store's file."""
        named = self._named.find(name)
        if named is not None:
            return named
        own = self._device.firmware(name)
        return super().find(name) if own is None else FoundFile(name, Path(self._device.name), own)
