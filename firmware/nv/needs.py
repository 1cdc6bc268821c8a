"""The firmware files that a chip needs to boot its GSP, by release.

Names are the kernel's, `nvidia/ga102/gsp/gsp-535.113.01.bin`. Chips of one family share files: their folders, or single
files, are links in linux-firmware. Where a link is missing, the file that it points to serves. Source: linux-firmware's
WHENCE, as OGKM nouveau/extract-firmware-nouveau.py writes it; nouveau gsp/tu102.c, ga102.c and gh100.c, the *_load
functions and the `fwif` lists; gsp/fwsec.c, nvkm_gsp_fwsec_v2; nova-core fwsec/bootloader.rs.
"""

from __future__ import annotations

from typing import NamedTuple

from ringup.errors import NotSupported

FOLDER = "nvidia/"
R535, R570 = "535.113.01", "570.144"


class Need(NamedTuple):
    """One file. `kind` is what it serves as; `fallbacks` replace it if it is missing, in their order."""

    name: str
    kind: str
    fallbacks: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.fallbacks)


class Boot(NamedTuple):
    """A way to boot the GSP: its files by kind, the releases that have them, and whether SEC2's boot ROM checks the
    booter's signature.
    """

    kinds: tuple[str, ...]
    releases: tuple[str, ...]
    from_hs: bool = False


class Chip(NamedTuple):
    """A chip's folder, the folders that its links point to, and how it boots."""

    boot: Boot
    folder: str
    # The folder of the GSP-RM file, which several families share.
    gsp_folder: str
    # The folder that the whole of this one is a link to.
    same_as: str = ""


FALCON = ("gsp", "bootloader", "booter_load", "booter_unload")
WITH_LOADER = Boot((*FALCON, "loader"), (R535, R570))
FROM_HS = Boot(FALCON, (R535, R570), from_hs=True)
WITH_FSP = Boot(("gsp", "bootloader", "fmc"), (R570,))
CHIPS = {
    "tu102": Chip(WITH_LOADER, "tu102", "tu102"),
    "tu104": Chip(WITH_LOADER, "tu104", "tu102", "tu102"),
    "tu106": Chip(WITH_LOADER, "tu106", "tu102", "tu102"),
    "tu116": Chip(WITH_LOADER, "tu116", "tu102"),
    "tu117": Chip(WITH_LOADER, "tu117", "tu102", "tu116"),
    "ga100": Chip(WITH_LOADER, "ga100", "tu102"),
    "ga102": Chip(FROM_HS, "ga102", "ga102"),
    "ga103": Chip(FROM_HS, "ga103", "ga102", "ga102"),
    "ga104": Chip(FROM_HS, "ga104", "ga102", "ga102"),
    "ga106": Chip(FROM_HS, "ga106", "ga102", "ga102"),
    "ga107": Chip(FROM_HS, "ga107", "ga102", "ga102"),
    "ad102": Chip(FROM_HS, "ad102", "ga102"),
    "ad103": Chip(FROM_HS, "ad103", "ga102", "ad102"),
    "ad104": Chip(FROM_HS, "ad104", "ga102", "ad102"),
    "ad106": Chip(FROM_HS, "ad106", "ga102", "ad102"),
    "ad107": Chip(FROM_HS, "ad107", "ga102", "ad102"),
    "gh100": Chip(WITH_FSP, "gh100", "ga102"),
    "gb100": Chip(WITH_FSP, "gb100", "ga102"),
    "gb102": Chip(WITH_FSP, "gb102", "ga102", "gb100"),
    "gb202": Chip(WITH_FSP, "gb202", "ga102"),
    "gb203": Chip(WITH_FSP, "gb203", "ga102", "gb202"),
    "gb205": Chip(WITH_FSP, "gb205", "ga102", "gb202"),
    "gb206": Chip(WITH_FSP, "gb206", "ga102", "gb202"),
    "gb207": Chip(WITH_FSP, "gb207", "ga102", "gb202"),
}
# TU11x has the bootloader of TU10x.
BOOTLOADERS = {"tu116": "tu102", "tu117": "tu102"}
# The generic loader belongs to no release: one file serves all. Release 570 has it below gsp/, older files are the
# graphics engines' boot loader, which linux-firmware has for Turing only.
LOADER_OF_570, LOADER_OF_ACR = "gsp/gen_bootloader-570.144.bin", "acr/bl.bin"


def chip(name: str) -> Chip:
    """Return a chip's row. Raises `NotSupported` for an unknown one."""
    if name not in CHIPS:
        raise NotSupported(f"no GSP firmware is known for chip {name}; known chips: {', '.join(CHIPS)}")
    return CHIPS[name]


def needs(name: str, release: str | None = None) -> tuple[Need, ...]:
    """Return the files of a chip for a release, by default the first one that its row lists.

    Raises `NotSupported` for an unknown chip, and for a release that has no files for it.
    """
    row = chip(name)
    release = release or row.boot.releases[0]
    if release not in row.boot.releases:
        raise NotSupported(f"{name} has no firmware of release {release}; releases: {', '.join(row.boot.releases)}")
    return tuple(_need(row, kind, release) for kind in row.boot.kinds)


def _need(row: Chip, kind: str, release: str) -> Need:
    folders = [row.folder, *([row.same_as] if row.same_as else [])]
    if kind == "loader":
        order = (LOADER_OF_ACR, LOADER_OF_570) if release == R535 else (LOADER_OF_570, LOADER_OF_ACR)
        places = [f"{FOLDER}{folder}/{file}" for folder in (*folders, row.gsp_folder) for file in order]
    else:
        shared = {"gsp": row.gsp_folder, "bootloader": BOOTLOADERS.get(row.folder, "")}.get(kind, "")
        places = [f"{FOLDER}{folder}/gsp/{kind}-{release}.bin" for folder in (*folders, shared) if folder]
    first, *rest = dict.fromkeys(places)
    return Need(first, kind, tuple(rest))
