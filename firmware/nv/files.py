"""The firmware of one card's GSP: its files, found, read and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from ringup.errors import FirmwareError
from ringup.firmware.nv import booter, bootloader, fmc, gsp, loader
from ringup.firmware.nv.booter import Booter
from ringup.firmware.nv.bootloader import Bootloader
from ringup.firmware.nv.fmc import Fmc
from ringup.firmware.nv.gsp import GspImage
from ringup.firmware.nv.loader import Loader
from ringup.firmware.nv.needs import Need, chip, needs
from ringup.firmware.nv.ucode import FalconUcode
from ringup.firmware.store import FoundFile, Store

Image = GspImage | Bootloader | Booter | Loader | Fmc
Kind = TypeVar("Kind", bound=Image)
PARSERS: dict[str, Callable[[bytes, str], Image]] = {
    "gsp": gsp.parse,
    "bootloader": bootloader.parse,
    "booter_load": booter.parse,
    "booter_unload": booter.parse,
    "loader": loader.parse,
    "fmc": fmc.parse,
}


@dataclass(frozen=True)
class FirmwareSet:
    """Checked files of one chip and one release, by what they serve as (`Need.kind`)."""

    chip: str
    release: str
    files: Mapping[str, FoundFile]
    images: Mapping[str, Image] = field(repr=False)

    @property
    def gsp(self) -> GspImage:
        """GSP-RM."""
        return self._image("gsp", GspImage)

    @property
    def signature(self) -> bytes:
        """GSP-RM's signature for the chip."""
        return self.gsp.signature(self.chip)

    @property
    def bootloader(self) -> Bootloader:
        """The GSP's bootloader."""
        return self._image("bootloader", Bootloader)

    @property
    def loader(self) -> Loader:
        """The generic falcon loader, for FWSEC of cards up to GA100."""
        return self._image("loader", Loader)

    @property
    def fmc(self) -> Fmc:
        """The GSP's first code on cards with an FSP."""
        return self._image("fmc", Fmc)

    def booter(self, kind: str) -> FalconUcode:
        """Return `booter_load` or `booter_unload` as the chip's SEC2 loads it, without a signature."""
        return self._image(kind, Booter).ucode(boot_from_hs=chip(self.chip).boot.from_hs)

    @cached_property
    def fingerprint(self) -> int:
        """A 32-bit number, never 0, that changes with any file's use or content."""
        total = hashlib.sha256()
        for kind in sorted(self.files):
            total.update(f"{kind} {self.files[kind].sha256}\n".encode())
        return int.from_bytes(total.digest()[:4], "little") or 1

    def _image(self, kind: str, expected: type[Kind]) -> Kind:
        image = self.images.get(kind)
        if not isinstance(image, expected):
            raise FirmwareError(f"{self.chip} boots without {kind}; its files are {', '.join(self.images)}")
        return image


def read(need: Need, found: FoundFile, chip_name: str, release: str) -> Image:
    """Read a file and check that it is one for the chip and the release.

    Raises `FirmwareError` otherwise; the message gives the file, its path and what to do.
    """
    try:
        image = PARSERS[need.kind](found.data, found.name)
        _check(image, chip_name, release)
    except FirmwareError as error:
        raise FirmwareError(f"{error}; the file is {found.path}: install it again") from error
    return image


def _check(image: Image, chip_name: str, release: str) -> None:
    if isinstance(image, GspImage):
        image.signature(chip_name)
        # A file without a release is accepted: only NVIDIA's own driver refuses it.
        if image.release not in (None, release):
            raise FirmwareError(f"{image.name}: the file holds release {image.release}, not {release}")
    if isinstance(image, Fmc):
        image.check_for(chip_name)


def load(chip_name: str, store: Store, release: str | None = None) -> FirmwareSet:
    """Find, read and check the files of a chip.

    Without `release`, the first release of the chip's row serves that has all its files. Raises `FirmwareError` for a
    missing or damaged file; if no release is complete, for the first one's.
    """
    releases = chip(chip_name).boot.releases if release is None else (release,)
    for one in releases:
        wanted = needs(chip_name, one)
        files = {need.kind: found for need in wanted if (found := store.find_any(*need.names)) is not None}
        if len(files) == len(wanted):
            return _read_all(chip_name, one, files)
    # The error names the first missing file, where it was searched, and the package.
    return _read_all(
        chip_name, releases[0], {need.kind: store.load(*need.names) for need in needs(chip_name, releases[0])}
    )


def _read_all(chip_name: str, release: str, files: Mapping[str, FoundFile]) -> FirmwareSet:
    images = {need.kind: read(need, files[need.kind], chip_name, release) for need in needs(chip_name, release)}
    return FirmwareSet(chip_name, release, files, images)
