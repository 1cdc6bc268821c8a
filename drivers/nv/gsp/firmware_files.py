"""Which files start a chip's GSP: names of linux-firmware below nvidia/, all of one release.

Source: linux-firmware WHENCE; Linux nouveau nvkm/subdev/gsp/{tu102,ga102,ad102,gh100,gb202}.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringup.drivers.device_store import DeviceStore
from ringup.drivers.nv.bus.chips import Boot, Chip
from ringup.drivers.nv.gsp.boot import Firmware
from ringup.drivers.nv.gsp.releases import NEAR
from ringup.drivers.transport.seam import Device
from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.nv import booter, bootloader, fmc, gsp, loader
from ringup.firmware.nv.gsp import GspImage
from ringup.firmware.nv.vbios import Vbios
from ringup.firmware.store import FoundFile, Store

# the releases that linux-firmware has, the best known first
RELEASES = {Boot.BOOTER: ("535.113.01", "570.144"), Boot.FSP: ("570.144",)}


@dataclass(frozen=True, slots=True)
class Files:
    """The parsed files of one release, and the image of GSP-RM with the chip's signature."""

    firmware: Firmware
    image: GspImage
    signature: bytes


def read(device: Device, chip: Chip, store: Store, vbios: Vbios | None, release: str | None, *, debug: bool) -> Files:
    """Find, read and check the files for a chip. `release`: this one alone. `debug`: the card has debug fuses.

    Raises `FirmwareError` when one is missing, damaged or of another release; `NotSupported` for a release whose
    structs are not known.
    """
    found = DeviceStore(device, store)
    names = RELEASES[chip.family.boot] if release is None else (release,)
    if release is not None and release not in NEAR:
        raise NotSupported(f"GSP firmware of release {release} is not known; known releases: {', '.join(NEAR)}")
    file = found.load(*(_name(chip, "gsp", one) for one in names))
    release = next(one for one in names if _name(chip, "gsp", one) == file.name)
    image = gsp.parse(file.data, file.name)
    if image.release not in (None, "", release):
        raise FirmwareError(f"{file.name}: the file is of release {image.release} by its own account")

    def load(kind: str) -> FoundFile:
        return found.load(_name(chip, kind, release))

    boot = load("bootloader")
    parts = bootloader.parse(boot.data, boot.name)
    if chip.family.boot is Boot.FSP:
        one = load("fmc")
        firmware = Firmware(release, parts, fmc=fmc.parse(one.data, one.name))
    else:
        start, end = load("booter_load"), load("booter_unload")
        fwsec = vbios.fwsec(debug) if vbios is not None and chip.family.frts else None
        small = None
        if fwsec is not None and fwsec.needs_loader:
            small_file = found.load(f"nvidia/{chip.firmware}/acr/bl.bin", _name(chip, "gen_bootloader", release))
            small = loader.parse(small_file.data, small_file.name)
        firmware = Firmware(
            release, parts, booter.parse(start.data, start.name), booter.parse(end.data, end.name), small, fwsec
        )
    return Files(firmware, image, image.signature(chip.name))


def _name(chip: Chip, kind: str, release: str) -> str:
    return f"nvidia/{chip.firmware}/gsp/{kind}-{release}.bin"
