"""Made-up GSP firmware that a virtual card accepts, for drivers and tests without NVIDIA's files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.common.signed import STAMP_BYTES, Part, stamp

# what nouveau asks for: that of Linux 6.12, and that of later kernels, which take the older one if it is missing
RELEASE, LATER = "535.113.01", "570.144"
CODE_BYTES, DATA_BYTES = 0x1000, 0x1000
# in a booter's data
SIGNATURE_AT, SIGNATURE_BYTES = 0x10, 384
# SEC2's booter images have this id among signed ones
BOOTER_UCODE_ID = 3
SECTION_BYTES, BOOTLOADER_BYTES, GSP_BYTES = 0x1000, 0x2000, 0x10_0000


@dataclass(frozen=True, slots=True)
class SignedProgram:
    """A falcon program: signed code, and data with room for the signature."""

    code: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Images:
    """What a driver needs to start GSP-RM. `signature`: the section of GSP-RM's container for this chip."""

    booter_load: SignedProgram
    booter_unload: SignedProgram
    bootloader: bytes
    gsp: bytes
    signature: bytes


@cache
def build(chip: ChipRow, release: str = RELEASE) -> Images:
    """Return the images of a chip and a release, the same each time."""

    def filled(part: Part, size_bytes: int) -> bytes:
        return stamp(part, chip.name, release, bytes(size_bytes - STAMP_BYTES))

    def program(part: Part) -> SignedProgram:
        data = bytearray(DATA_BYTES)
        data[SIGNATURE_AT : SIGNATURE_AT + SIGNATURE_BYTES] = b"\x5a" * SIGNATURE_BYTES
        return SignedProgram(filled(part, CODE_BYTES), bytes(data))

    return Images(
        program(Part.BOOTER_LOAD),
        program(Part.BOOTER_UNLOAD),
        filled(Part.BOOTLOADER, BOOTLOADER_BYTES),
        filled(Part.GSP_RM, GSP_BYTES),
        filled(Part.SIGNATURE, SECTION_BYTES),
    )


def loader(chip: ChipRow) -> bytes:
    """Return the loader that drivers for Turing bring along, in whole blocks."""
    return stamp(Part.LOADER, chip.name, "", bytes(512 - STAMP_BYTES))
