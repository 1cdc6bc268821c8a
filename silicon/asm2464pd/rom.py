"""The mask ROM: it starts the firmware in the flash, or stays in its loader, a mass storage device that can only write
the flash.

Source: cyrozap USB-descriptor-ASM2464-ROM.txt; asm2464pd-firmware ftdi_debug.py (the strap); extra/usbgpu/patch.py (E1,
E3, E8 over BOT).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.asm2464pd.firmware_stock import RESTART, StockFirmware
from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.flash import SpiFlash
from ringup.silicon.asm2464pd.hardware.flash_image import BUILT_IN, Config, kind_of
from ringup.silicon.asm2464pd.hardware.running_firmware import Answer, Descriptors, Firmware, Setup
from ringup.silicon.asm2464pd.hardware.timing import Speed
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.asm2464pd.storage import scsi_standard, scsi_vendor
from ringup.silicon.asm2464pd.storage.mass_storage import MassStorage
from ringup.silicon.asm2464pd.storage.scsi import NEVER, Commands, Device, Plan, Power
from ringup.silicon.asm2464pd.storage.scsi_descriptors import descriptors

BOOT_US = 100_000  # GUESS
CONFIG = Config(
    serial="0" * 20, usb_maker="ASMedia", scsi_maker=BUILT_IN.scsi_maker, usb_product="AS2462", scsi_product=BUILT_IN.scsi_product,
    product_id=0x2463, device_release=0x0001,
)  # fmt: skip
# UNKNOWN: which standard commands it answers; a host needs at least these
STANDARD = (0x00, 0x03, 0x12, 0x1A, 0xA0)
VENDOR = (0xE1, 0xE3, 0xE8)


class _NoBulk:
    """The target of WRITE commands, which the loader does not have."""

    def write_plan(self, size_bytes: int) -> Plan:
        """Return the plan for a WRITE."""
        return Plan(NEVER)


class RomLoader:
    """The loader: Bulk-Only, no link, no memory to read."""

    def __init__(self, chip: Chip, flash: SpiFlash) -> None:
        power = Power(
            restart=lambda: chip.xdata.write(RESTART, 1),
            detach=lambda: chip.on_detach(),
            lose=lambda: chip.on_power_lost(),
        )
        device = Device(chip.xdata, flash, CONFIG, power, _NoBulk(), can_be_ready=False)
        known = scsi_standard.TABLE | scsi_vendor.TABLE
        commands = Commands(device, {opcode: known[opcode] for opcode in STANDARD + VENDOR}, chip.faults)
        self.usb = MassStorage(chip, commands, self.descriptors, attached_scsi=False)

    def descriptors(self, speed: Speed) -> Descriptors:
        """Return the device's descriptors at a speed."""
        return descriptors(CONFIG, speed, attached_scsi=False)

    def boot(self) -> Job[bool]:
        """Come up on USB."""
        yield BOOT_US
        return True

    def bus_reset(self) -> None:
        """Handle a reset of the USB device by the host."""
        self.usb.bus_reset()

    def after_status_us(self, setup: Setup) -> float:
        """Return 0: a request is done when the host has its status."""
        return 0.0

    def control(self, setup: Setup, data: bytes) -> Job[Answer]:
        """Answer a control request."""
        return self.usb.control(setup, data)


def load(
    chip: Chip,
    flash: SpiFlash,
    open_firmware: Callable[[], Firmware],
    *,
    strap: bool = False,
    second_copy: bool = False,
) -> Firmware:
    """Return what runs after a reset: the firmware in the flash, or the loader if the image is bad or the boot strap is
    set.

    `open_firmware` makes the open firmware, if the image is one. `second_copy`: the ROM also tries the flash's second
    copy (UNKNOWN).
    """
    found = None if strap else flash.boot(second_copy)
    if found is None:
        return RomLoader(chip, flash)
    copy, body = found
    return open_firmware() if kind_of(body) == "open" else StockFirmware(chip, flash, body, copy)
