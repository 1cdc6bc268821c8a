"""Whose image this is. A chip checks signatures with keys that nobody else has, so the model recognises images instead:
published ones by fingerprint, made-up ones by a stamp that covers every byte. Anything else is refused, as a chip
refuses what NVIDIA did not sign for it.

GUESS: the published image behind a fingerprint does what its name says; its code is never run.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import Enum

MAGIC = b"RINGUPFW"
# magic, part, chips with blanks between them, release, bytes of the body; then the SHA-256 of these and of the body
HEAD = struct.Struct("<8s16s24s16sI")
DIGEST_BYTES = 32
STAMP_BYTES = HEAD.size + DIGEST_BYTES


class Part(Enum):
    """What an image is for."""

    FWSEC = "fwsec"
    LOADER = "loader"
    BOOTER_LOAD = "booter load"
    BOOTER_UNLOAD = "booter unload"
    SEC2_RTOS = "sec2-rtos"
    BOOTLOADER = "bootloader"
    GSP_RM = "gsp-rm"
    SIGNATURE = "signature"
    FMC = "fmc"


@dataclass(frozen=True, slots=True)
class Identity:
    """An image that a chip accepts: its part, its chips, and the releases of the driver that it belongs to.

    No release: it goes with any.
    """

    part: Part
    chips: tuple[str, ...]
    releases: tuple[str, ...]


def stamp(part: Part, chips: str, release: str, body: bytes) -> bytes:
    """Return a made-up image: the stamp, then `body`. `chips`: one name, or several with blanks between them."""
    head = HEAD.pack(MAGIC, part.value.encode(), chips.encode(), release.encode(), len(body))
    return head + hashlib.sha256(head + body).digest() + body


def identify(image: bytes) -> Identity | None:
    """Return whose image this is; None for bytes that no key has signed. Bytes after a made-up image do not count."""
    # the table costs an import that only real firmware needs
    from ringup.silicon.nv.common.published import PUBLISHED

    if not image.startswith(MAGIC) or len(image) < STAMP_BYTES:
        return PUBLISHED.get(hashlib.sha256(image).hexdigest())
    _, part, chips, release, size_bytes = HEAD.unpack_from(image)
    body = image[STAMP_BYTES : STAMP_BYTES + size_bytes]
    digest = hashlib.sha256(image[: HEAD.size] + body).digest()
    if len(body) != size_bytes or digest != image[HEAD.size : STAMP_BYTES]:
        return None
    named = _text(release)
    return Identity(Part(_text(part)), tuple(_text(chips).split()), (named,) if named else ())


def stamped_bytes(head: bytes) -> int:
    """Return how long the made-up image is that begins with these bytes; 0 for none."""
    return STAMP_BYTES + HEAD.unpack_from(head)[-1] if head.startswith(MAGIC) and len(head) >= HEAD.size else 0


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode()
