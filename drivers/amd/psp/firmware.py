"""A card's firmware files, and which of their parts go where: the device's own images if it has some, else those of a
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringup.drivers.amd.bus.discovery import Ips
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.psp.processor import PspFirmware
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device
from ringup.errors import FirmwareError
from ringup.firmware.amd.files import FirmwareSet, load
from ringup.firmware.amd.needs import Need, needs
from ringup.firmware.amd.parts import ip_parts
from ringup.firmware.store import FoundFile, Store

DEVICE_ID, REVISION_ID = 0x02, 0x08  # PCI Local Bus Specification, "Type 00h Configuration Space Header"


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


def firmware_set(device: Device, ips: Ips, store: Store) -> FirmwareSet:
    """Find, read and check the files that a card needs. Raises `FirmwareError` when one is missing or damaged,
    `NotSupported`.
    """
    doing = f"reading the ids of {device.name}"
    wanted = needs(
        ips.version("gc"),
        ips.version("mp0"),
        ips.version("mp1"),
        ips.version("sdma0"),
        ask(device.config, DEVICE_ID, 2, doing),
        ask(device.config, REVISION_ID, 1, doing),
    )
    check_named(store, wanted)
    return load(wanted, DeviceStore(device, store))


def check_named(store: Store, wanted: Sequence[Need]) -> None:
    """Raise `FirmwareError` for a named path without any file for the card: other files than intended would be
    loaded.
    """
    names = [name for need in wanted for name in need.names]
    for path in store.explicit:
        if Store((), (path,)).find_any(*names) is None:
            raise FirmwareError(
                f"{path}, where firmware should be, has none of the card's files, such as {names[0]}; a file serves the name that it has"
            )


def psp_firmware(files: FirmwareSet, gc: Version) -> PspFirmware:
    """Return the firmware for the security processor of a card with that graphics core."""
    registers = ip_parts(files.image("sos"), gc)
    return PspFirmware(files.boot_parts(), files.ip_parts(gc), registers[0] if registers else None)
