"""What the PSP sees of an image before it checks the signature: the `$PS1` header in front of every signed part.

Source: the images of Debian's firmware-amd-graphics 20250410; all 769 parts in 376 files agree with this reading, no public header describes
it. What follows the stated size is no part of the image: the stacks of the micro engines are sent with room behind them. AMD's signatures
cannot be checked here; an image that names the virtual cards' key has one that can. An image without this header is what a test builds, and
counts as signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import shake_128

MAGIC = b"$PS1"
MAGIC_AT, BODY_SIZE_AT, KIND_AT, VERSION_AT, SIZE_AT = 0x10, 0x14, 0x58, 0x60, 0x6C
KEY_AT, KEY_BYTES = 0x38, 16  # which key has signed it
VIRTUAL_KEY = b"virtual cards\0\0\0"
SIGNATURE_BYTES = 0x100
HEADER_BYTES = 0x100
FRAME_LIMIT_BYTES = 0x400  # header, signature (256 or 512 bytes, none on some) and padding around the body


class BadImage(Exception):
    """An image that the PSP refuses, and why."""


@dataclass(frozen=True, slots=True)
class Image:
    """One part as it lies in memory. `kind` is the low byte of the header's type word, None without a header."""

    data: bytes
    kind: int | None
    version: int


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def size_from_header(start: bytes) -> int | None:
    """Return the size that an image's first 256 bytes tell; None when they are no signed header, or one that does not say."""
    return _word(start, SIZE_AT) or None if start[MAGIC_AT : MAGIC_AT + 4] == MAGIC else None


def sign(data: bytes) -> bytes:
    """Return what makes header and body that name the virtual cards' key a whole image."""
    return shake_128(data).digest(SIGNATURE_BYTES)


def check(data: bytes) -> Image:
    """Check an image of known size. Raises `BadImage` when it is empty, or its header contradicts itself or the size."""
    if len(data) < 4 or not any(data):
        raise BadImage(f"{len(data)} bytes of nothing")
    if data[MAGIC_AT : MAGIC_AT + 4] != MAGIC:
        return Image(data, None, 0)
    if len(data) < HEADER_BYTES:
        raise BadImage(f"a signed image of {len(data)} bytes, less than its header")
    size, body = _word(data, SIZE_AT) or len(data), _word(data, BODY_SIZE_AT)  # newer images do not say
    if size > len(data):
        raise BadImage(f"its header says {size:#x} bytes, it has {len(data):#x}")
    if not HEADER_BYTES <= size - body <= FRAME_LIMIT_BYTES:
        raise BadImage(f"a body of {body:#x} bytes in an image of {size:#x}")
    if data[KEY_AT : KEY_AT + KEY_BYTES] == VIRTUAL_KEY:
        signed = size - SIGNATURE_BYTES
        if data[signed:size] != sign(data[:signed]):
            raise BadImage("its signature is that of another content")
    return Image(data, data[KIND_AT], _word(data, VERSION_AT))
