"""The firmware for one card: its files, and FWSEC from the card's own VBIOS."""

from __future__ import annotations

from ringup.autogen.nv.boot import NV_FUSE_OPT_SECURE_GSP_DEBUG_DIS
from ringup.drivers.device_store import DeviceStore
from ringup.drivers.nv.bus import prom
from ringup.drivers.nv.bus.chips import Boot
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp import releases
from ringup.drivers.nv.gsp.boot import Firmware
from ringup.firmware.nv import vbios
from ringup.firmware.nv.files import load
from ringup.firmware.store import Store


def read(registers: Registers, store: Store, release: str | None, rom: bytes | None) -> tuple[Firmware, bytes | None]:
    """Return the firmware of `release`, or of the best known one that is there, and the VBIOS' images that were read;
    `rom`: where an earlier start has them.

    Raises `FirmwareError` for a missing or damaged file or VBIOS, `NotSupported` for a release that is not known.
    """
    chip, block, device = registers.chip, Block(registers), registers.device
    parsed, debug = None, False
    if chip.family.boot is Boot.BOOTER:
        if rom is None:
            rom = prom.read(block)
        parsed = vbios.parse(rom, f"the VBIOS of {device.name}")
        debug = not block.read(NV_FUSE_OPT_SECURE_GSP_DEBUG_DIS).data
    if release is not None:
        releases.check(release)
    files = load(chip.name, DeviceStore(device, store), release)
    return Firmware(files, None if parsed is None else parsed.fwsec(debug)), rom
