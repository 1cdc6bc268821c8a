"""Who the board says it is. One place, because drivers compare what several controls and the static information say."""

from __future__ import annotations

import hashlib
from uuid import UUID

from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.silicon.nv.rm.parts import Chip

NAME_LENGTH = gpu.NV2080_GPU_MAX_NAME_STRING_LENGTH
UUID_LENGTH = 16
VENDOR = 0x10DE


def uuid(chip: Chip) -> bytes:
    """Return the board's identity, the same for every card of a chip: virtual cards have no serial numbers."""
    return hashlib.sha256(f"ringup virtual {chip.name}".encode()).digest()[:UUID_LENGTH]


def uuid_text(chip: Chip) -> bytes:
    """Return the identity as drivers print it."""
    return f"GPU-{UUID(bytes=uuid(chip))}".encode("ascii")


def name(chip: Chip) -> bytes:
    """Return the product's name, padded with zeros."""
    return chip.product.encode("ascii")[: NAME_LENGTH - 1].ljust(NAME_LENGTH, b"\0")


def short_name(chip: Chip) -> bytes:
    """Return the chip's name, padded with zeros."""
    return chip.name.upper().encode("ascii").ljust(NAME_LENGTH, b"\0")


def pci_ids(chip: Chip) -> tuple[int, int]:
    """Return device and subsystem IDs as registers have them: the vendor in the low half."""
    return chip.device_id << 16 | VENDOR, chip.subsystem_id << 16 | VENDOR
