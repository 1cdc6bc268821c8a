"""The firmware of one card: its files, found, read and checked, and one number that identifies all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ringup.errors import FirmwareError
from ringup.firmware.amd.image import Image, parse
from ringup.firmware.amd.needs import Need
from ringup.firmware.amd.parts import Part, Version, boot_parts, ip_parts, load_order, trusted_applications
from ringup.firmware.store import FoundFile, Store


@dataclass(frozen=True)
class FirmwareSet:
    """Checked files by what they serve as (`Need.kind`). A missing optional file is not in it."""

    files: Mapping[str, FoundFile]
    images: Mapping[str, Image] = field(repr=False)

    def image(self, kind: str) -> Image:
        """Return the file that serves as `kind`. Raises `FirmwareError` if the set has none."""
        if kind not in self.images:
            raise FirmwareError(f"no {kind} firmware is loaded; there are {', '.join(self.images)}")
        return self.images[kind]

    @cached_property
    def fingerprint(self) -> int:
        """A 32-bit number, never 0, that changes with any file's use or content.

        It marks a card that runs this set.
        """
        total = hashlib.sha256()
        for kind in sorted(self.files):
            total.update(f"{kind} {self.files[kind].sha256}\n".encode())
        return int.from_bytes(total.digest()[:4], "little") or 1

    @property
    def versions(self) -> dict[str, int]:
        """The version in each file's header, by what the file serves as."""
        return {kind: image.version for kind, image in self.images.items()}

    def boot_parts(self, *, aux: bool = False) -> dict[int, Part]:
        """Return the parts for the PSP's boot loader, by `PSP_FW_TYPE_*`."""
        return boot_parts(self.image("sos"), aux=aux)

    def ip_parts(self, gc: Version) -> list[Part]:
        """Return every piece for `LOAD_IP_FW` in amdgpu's order.

        The RLC's code follows the rest of the graphics core, then the SMU's comes. A driver sends the SMU's piece
        first, and the register list (`ip_parts` of the sos image) after the boot of the RLC.
        """
        kinds = [kind for kind in self.images if kind not in ("sos", "ta")]
        return load_order(part for kind in kinds for part in ip_parts(self.images[kind], gc, kind))

    def trusted_applications(self) -> dict[int, Part]:
        """Return the trusted applications by `TA_FW_TYPE_*`; none if the optional file is missing."""
        return trusted_applications(self.images["ta"]) if "ta" in self.images else {}


def load(needs: Iterable[Need], store: Store) -> FirmwareSet:
    """Find, read and check the files of a card.

    Raises `FirmwareError` for a missing file that is not optional, and for any damaged file.
    """
    files: dict[str, FoundFile] = {}
    images: dict[str, Image] = {}
    known: dict[str, Image] = {}
    for need in needs:
        found = store.find_any(*need.names) if need.optional else store.load(*need.names)
        if found is None:
            continue
        image = known.get(found.name)
        if image is None:
            try:
                image = known[found.name] = parse(found.data, found.name)
            except FirmwareError as error:
                raise FirmwareError(f"{error}; the file is {found.path}: install it again") from error
        files[need.kind], images[need.kind] = found, image
    return FirmwareSet(files, images)
