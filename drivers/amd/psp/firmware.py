"""A card's firmware files, and which of their parts go where: the device's own images if it has some, else those of a
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringup.autogen.amd import ucode
from ringup.drivers.amd.bus.discovery import Ips
from ringup.drivers.amd.bus.registers import Version
from ringup.drivers.amd.psp.processor import PspFirmware, PspRow
from ringup.drivers.device_store import DeviceStore
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import Device
from ringup.errors import FirmwareError
from ringup.firmware.amd.files import FirmwareSet, load
from ringup.firmware.amd.needs import Need, needs
from ringup.firmware.amd.parts import REG_LIST, p2s_table
from ringup.firmware.store import Store

DEVICE_ID, REVISION_ID = 0x02, 0x08  # PCI Local Bus Specification, "Type 00h Configuration Space Header"


def firmware_set(device: Device, ips: Ips, store: Store, *, force: bool = False) -> FirmwareSet:
    """Find, read and check the files that a card needs; `force`: of unknown versions too, as `needs` says. Raises
    `FirmwareError` when one is missing or damaged, `NotSupported`.
    """
    doing = f"reading the ids of {device.name}"
    wanted = needs(
        ips.stated("gc"),
        ips.stated("mp0"),
        ips.stated("mp1"),
        ips.stated("sdma0"),
        ask(device.config, DEVICE_ID, 2, doing),
        ask(device.config, REVISION_ID, 1, doing),
        force=force,
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


def psp_firmware(
    files: FirmwareSet, gc: Version, row: PspRow, pci_device: int = 0, *, aux: bool = False
) -> PspFirmware:
    """Return the firmware for the security processor of a card with that graphics core. `row`: of its processor; `aux`:
    the second set of the image for it is taken, where it has one.
    """
    boot, parts = files.boot_parts(aux=aux), files.ip_parts(gc)
    if row.table_since and boot[ucode.PSP_FW_TYPE_PSP_SOS].version >= row.table_since:
        table = p2s_table(files.image("smu"), pci_device)
        parts = [*([] if table is None else [table]), *parts]
    registers = boot.get(ucode.PSP_FW_TYPE_PSP_RL)
    listed = None if registers is None else replace(registers, fw_type=REG_LIST, name="sos.rl")
    return PspFirmware(boot, parts, listed)
