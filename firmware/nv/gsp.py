"""GSP-RM, the resource manager that runs on a card's GSP: an ELF file with the program, its release and a signature for
each family of chips.

linux-firmware's `gsp-535.113.01.bin` and the `gsp_ga10x.bin` and `gsp_tu10x.bin` of NVIDIA's own packages are the same
container. Source: OGKM kernel_gsp.c, _kgspPrepareGspRmBinaryImage; nv-firmware.h, nv_firmware_chip_family_to_string;
nouveau r535/gsp.c, r535_gsp_elf_section, and `sig_section` of tu102.c, tu116.c, ga100.c, ga102.c, ad102.c, gh100.c,
gb100.c, gb202.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.nv import elf

MAX_BYTES = 256 << 20  # release 570 has 64 MB, and grows
MAX_SIGNATURE_BYTES = 64 << 10  # published ones have 4 KB
MAX_RELEASE = 64  # OGKM, _kgspFwContainerVerifyVersion
IMAGE, VERSION, SIGNATURE = ".fwimage", ".fwversion", ".fwsignature_"
# In front of the family: the signature for a card with confidential computing.
# Source: OGKM, GSP_CC_SIGNATURE_SECTION_NAME_PREFIX.
CONFIDENTIAL = "cc_"
# Chip: family, as the sections' names write it.
FAMILIES = {
    "tu102": "tu10x",
    "tu104": "tu10x",
    "tu106": "tu10x",
    "tu116": "tu11x",
    "tu117": "tu11x",
    # QUIRK: nova-core of Linux 6.17 to 6.19 takes GA100 for tu10x; OGKM and nouveau do not.
    "ga100": "ga100",
    "ga102": "ga10x",
    "ga103": "ga10x",
    "ga104": "ga10x",
    "ga106": "ga10x",
    "ga107": "ga10x",
    "ad102": "ad10x",
    "ad103": "ad10x",
    "ad104": "ad10x",
    "ad106": "ad10x",
    "ad107": "ad10x",
    "gh100": "gh100",
    "gb100": "gb10x",
    "gb102": "gb10x",
    "gb202": "gb20x",
    "gb203": "gb20x",
    "gb205": "gb20x",
    "gb206": "gb20x",
    "gb207": "gb20x",
}


@dataclass(frozen=True, slots=True)
class GspImage:
    """A checked GSP-RM file.

    `release` is such as `535.113.01`; None if the file does not say it, which only NVIDIA's own driver refuses. `image`
    is the program, an ELF file itself, that the GSP's bootloader receives page by page. `signatures` are by family
    (`ga10x`), those for confidential computing by `cc_` and the family.
    """

    name: str
    release: str | None
    image: bytes = field(repr=False)
    signatures: Mapping[str, bytes] = field(repr=False)
    sections: tuple[elf.Section, ...] = field(repr=False)

    def signature(self, chip: str, *, confidential: bool = False) -> bytes:
        """Return the signature for a chip such as `ga102`.

        Raises `FirmwareError` if the file has none, which is the case for a file of another family; `NotSupported` for
        an unknown chip.
        """
        if chip not in FAMILIES:
            raise NotSupported(f"no GSP firmware is known for chip {chip}; known chips: {', '.join(FAMILIES)}")
        family = (CONFIDENTIAL if confidential else "") + FAMILIES[chip]
        if family not in self.signatures:
            have = ", ".join(self.signatures) or "none"
            raise FirmwareError(f"{self.name}: the file has no signature for {chip} ({family}); it has: {have}")
        return self.signatures[family]


def parse(blob: bytes, name: str) -> GspImage:
    """Read and check a GSP-RM file. Signatures are cut out, nobody on the host can check them.

    Raises `FirmwareError` for a file that is truncated, that is no such ELF file, or that lacks the image or all
    signatures.
    """
    if len(blob) > MAX_BYTES:
        raise FirmwareError(f"{name}: {len(blob)} bytes are more than any GSP firmware has ({MAX_BYTES})")
    found = elf.sections(blob, name, elf.CLASS_64)
    image = elf.require(found, IMAGE, name).data(blob)
    release = _release(found[VERSION], blob, name) if VERSION in found else None
    signatures = {}
    for title, section in found.items():
        if not title.startswith(SIGNATURE) or not section.size_bytes:
            continue
        if section.size_bytes > MAX_SIGNATURE_BYTES:
            raise FirmwareError(
                f"{name}: {title} has {section.size_bytes} bytes; a signature has at most {MAX_SIGNATURE_BYTES}"
            )
        signatures[title.removeprefix(SIGNATURE)] = section.data(blob)
    if not signatures:
        raise FirmwareError(f"{name}: the file has no section {SIGNATURE}…; the GSP starts no unsigned image")
    return GspImage(name, release, image, signatures, tuple(found.values()))


def _release(section: elf.Section, blob: bytes, name: str) -> str:
    """Return the release text, such as 535.113.01. It ends with a zero byte."""
    if section.size_bytes > MAX_RELEASE:
        raise FirmwareError(f"{name}: {VERSION} has {section.size_bytes} bytes; a release has at most {MAX_RELEASE}")
    raw = section.data(blob)
    text = raw[:-1].decode("latin-1")
    if raw[-1:] != b"\0" or not text or not all("!" <= letter <= "~" for letter in text):
        raise FirmwareError(f"{name}: {VERSION} holds {raw[:16]!r}, not a release such as 535.113.01")
    return text
