"""ASMedia's firmware on the bridge, patched or not: USB mass storage whose vendor commands access chip memory and
flash.

Source: the stock image 240417; asm2464pd-firmware registers.h for the register values after its boot;
extra/usbgpu/patch.py for the patch.
"""

from __future__ import annotations

from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.flash import SpiFlash
from ringup.silicon.asm2464pd.hardware.flash_image import BUILT_IN, STOCK_VERSION, kind_of, version_of
from ringup.silicon.asm2464pd.hardware.running_firmware import Answer, Descriptors, Setup
from ringup.silicon.asm2464pd.hardware.timing import Speed
from ringup.silicon.asm2464pd.hardware.tlp import LENGTH as TLP_LENGTH
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.asm2464pd.storage import scsi_standard, scsi_vendor
from ringup.silicon.asm2464pd.storage.mass_storage import MassStorage
from ringup.silicon.asm2464pd.storage.scsi import NO_MEDIUM_FLAG, Commands, Device, Power
from ringup.silicon.asm2464pd.storage.scsi_descriptors import descriptors
from ringup.silicon.asm2464pd.storage.sram_slots import SlotWriter

# from E8 50 to the enumerated device takes about 3 s (asm2464pd-soft-replug, measured), including restart and
# enumeration
BOOT_US = 2_500_000
VERSION, RAM_BYTES = 0x07F0, 0x6000
RESTART = 0xCC31  # bit 0
# bit 0; the image's ready check needs 1: the device below is up
MANAGED = 0xB480
# the value of E764 after the image has booted
TRAINED = 0x19
TRAINING = 0xE764
SLOT = {0xB431: 0x0E, 0xC656: 0x20, 0xC659: 0x01, TRAINING: TRAINED}  # width cap x1, 3.3 V, lanes, training
ADD1 = 0xADD1
# the value of B450 in L0, by the flash's vendor id; else 48. Source: registers.h (measured)
LINK_CODES = {ADD1: 0x78}
LINK_CODE = 0x48
# asm2464pd-firmware pull request 81 (measured)
GENERATION, LANES = 3, 1


class StockMemory:
    """External memory under the stock firmware. UNKNOWN: what the host's writes to the slot's switches do; here they
    are dropped.
    """

    def __init__(self, chip: Chip) -> None:
        self._xdata, self._link = chip.xdata, chip.link

    def read(self, address: int, page: int = 0) -> int:
        """Read a byte, side effects included."""
        if (address, page) == (MANAGED, 0):
            return int(self._link.up)
        return self._xdata.read(address, page)

    def write(self, address: int, value: int, page: int = 0) -> None:
        """Write a byte. Writes to the slot's switches are dropped."""
        if page or (address != MANAGED and address not in SLOT):
            self._xdata.write(address, value, page)


class StockFirmware:
    """The firmware in copy `copy` of the flash, with code `body`. Its version, and whether it is patched, are read from
    `body`.
    """

    def __init__(self, chip: Chip, flash: SpiFlash, body: bytes, copy: int = 0) -> None:
        self.version, self.patched = version_of(body), kind_of(body) == "patched"
        self.config = flash.config(copy) or BUILT_IN
        self._chip = chip
        memory = StockMemory(chip)
        self._writer = SlotWriter(memory, self._land, self.patched, self._complain)
        power = Power(
            restart=lambda: chip.xdata.write(RESTART, 1), detach=self._detach, lose=lambda: chip.on_power_lost()
        )
        known = self.version == STOCK_VERSION
        device = Device(memory, flash, self.config, power, self._writer, can_be_ready=known)
        commands = Commands(device, scsi_standard.TABLE | scsi_vendor.TABLE, chip.faults)
        self.usb = MassStorage(chip, commands, self.descriptors, attached_scsi=True)

    def descriptors(self, speed: Speed) -> Descriptors:
        """Return the device's descriptors at a speed."""
        return descriptors(self.config, speed, attached_scsi=True)

    def boot(self) -> Job[bool]:
        """Clear memory, let the slot train, and come up on USB whether or not the link is up."""
        xdata, link = self._chip.xdata, self._chip.link
        xdata.put_bytes(0, bytes(RAM_BYTES))
        xdata.put_bytes(VERSION, self.version)
        xdata.put(NO_MEDIUM_FLAG, 1)
        xdata.write(TLP_LENGTH, 1)
        self._writer.boot()
        link.trained_code = LINK_CODES.get(self.config.vendor_id, LINK_CODE)
        link.generation, link.lanes, link.training_codes = GENERATION, LANES, (TRAINED,)
        link.on_change = self._link_changed
        for register, value in SLOT.items():
            xdata.write(register, value)
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

    def _complain(self, text: str) -> None:
        self._chip.log.note("bridge", "violation", "{}", text)

    def _link_changed(self) -> None:
        """Stop training after a lost link: the image trains once (E764 = 19), and the link stays down until the next
        start. Source: pull request 81.
        """
        link = self._chip.link
        if not link.up and self._chip.xdata.get(TRAINING) == TRAINED:
            link.training_codes = ()

    def _land(self, offset: int, data: bytes) -> None:
        """Store the data of a WRITE. USB completes the transfer before memory has the data. Bytes past the end of
        memory are lost.
        """
        view = self._chip.sram.view
        fits = data[: max(0, len(view) - offset)]

        def land() -> None:
            view[offset : offset + len(fits)] = fits

        self._chip.clock.after(timing.SRAM_LANDING_US, land)

    def _detach(self) -> None:
        """E8 51: switch the slot's power off and leave USB."""
        for register in SLOT:
            self._chip.xdata.write(register, 0)
        self._chip.on_detach()
