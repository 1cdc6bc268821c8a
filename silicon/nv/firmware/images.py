"""Made-up GSP firmware that a virtual card accepts, for drivers and tests without NVIDIA's files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from ringup.silicon.nv.chips.row import ChipRow, FspRow
from ringup.silicon.nv.common.signed import STAMP_BYTES, Part, stamp

# what nouveau asks for: that of Linux 6.12, and that of later kernels, which take the older one if it is missing
RELEASE, LATER = "535.113.01", "570.144"
CODE_BYTES, DATA_BYTES = 0x1000, 0x1000
# in a booter's data
SIGNATURE_AT, SIGNATURE_BYTES = 0x10, 384
# SEC2's booter images have this id among signed ones
BOOTER_UCODE_ID = 3
SECTION_BYTES, BOOTLOADER_BYTES, GSP_BYTES, FMC_BYTES = 0x1000, 0x2000, 0x10_0000, 0x4000


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


@dataclass(frozen=True, slots=True)
class Fmc:
    """The GSP's first code on a chip with an FSP, with what the FSP verifies it by."""

    image: bytes
    digest: bytes
    public_key: bytes
    signature: bytes


def fmc(chip: ChipRow, release: str = LATER) -> Fmc | None:
    """Return the FMC of a chip and a release; None for a chip without an FSP."""
    if chip.fsp is None:
        return None
    image = stamp(Part.FMC, chip.name, release, bytes(FMC_BYTES - STAMP_BYTES))
    digest = hashlib.sha384(image).digest()
    return Fmc(image, digest, fmc_key(chip.fsp), fmc_signature(chip.fsp, digest))


def fmc_key(row: FspRow) -> bytes:
    """Return the made-up public key, which is no key: the model recognises it. A point of P-384 begins with 4."""
    return _filled(b"\x04", b"RINGUP FMC key", row.public_key_bytes)


def fmc_signature(row: FspRow, digest: bytes) -> bytes:
    """Return the made-up signature of an image with this hash."""
    return _filled(b"", b"RINGUP FMC signature" + digest, row.signature_bytes)


def _filled(start: bytes, seed: bytes, size_bytes: int) -> bytes:
    """Return bytes that follow from a seed and fill a field."""
    return (start + hashlib.shake_256(seed).digest(size_bytes))[:size_bytes]


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
