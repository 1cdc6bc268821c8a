"""The PSP's checks of an image: the `$PS1` header at its start, the digest of the body, the part it is for, and the
signature at its end.

There are two forms. In the older one (bit 0 of byte 0x5b) the header states the whole size and a digest of the body. In
the newer one (bit 1), which the images of 14.0.2, 14.0.3 and GC 12 have, it states neither: the signature alone covers
header and body, and its size word is 0, or that of header and body before padding. UNKNOWN: what the newer form has at
the digest's place.

Source: PSPTool's header_file.py (places, signature's length by type, digest in the header when bit 0 of byte 0x5b is
set), and the images of Debian's firmware-amd-graphics, three releases: all parts of the modelled chips agree. Bytes
after the stated size do not belong to the image: the stacks of the micro engines are sent with free space after them.
`psp_keys` checks signatures. AMD's root keys are not public, so images signed with them are recognised by fingerprints
of what AMD has published. UNKNOWN: which status metal returns for which mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

from ringup.autogen.amd import psp_published
from ringup.silicon.amd.psp import keys as psp_keys
from ringup.silicon.amd.psp import parts as psp_parts
from ringup.silicon.amd.psp import signing
from ringup.silicon.amd.psp.keys import Key
from ringup.silicon.amd.psp.parts import Part

MAGIC, CONTAINER_VERSIONS = b"$PS1", range(1, 5)
MAGIC_AT, BODY_SIZE_AT, ENCRYPTED_AT, SIGNED_AT, SIGNATURE_TYPE_AT, KEY_AT, COMPRESSED_AT = (
    0x10,
    0x14,
    0x18,
    0x30,
    0x34,
    0x38,
    0x48,
)
KIND_AT, FLAGS_AT, VERSION_AT, SIZE_AT, DIGEST_AT = 0x58, 0x5B, 0x60, 0x6C, 0xD0
KEY_BYTES, DIGEST_BYTES, HEADER_BYTES = 16, 32, 0x100
DIGEST_STATED, SIGNED_ALONE = 1, 2
SIGNATURE_BYTES = {0: 0x100, 2: 0x200}  # by type
# QUIRK: the digests of some bodies were computed before padding: the RLC's list of 2022
PADDING_BYTES = 16
FINGERPRINT_DIGITS = 24


class Status(IntEnum):
    """The status of the secure OS for a bad image. Source: GlobalPlatform's TEE client API, whose numbers psp_gfx_if.h
    has.
    """

    ACCESS_DENIED = 0xFFFF_0001
    BAD_FORMAT = 0xFFFF_0005
    BAD_PARAMETERS = 0xFFFF_0006
    BAD_STATE = 0xFFFF_0007
    NO_DATA = 0xFFFF_000B
    SECURITY = 0xFFFF_000F
    SHORT_BUFFER = 0xFFFF_0010


class BadImage(Exception):
    """An image that the PSP refuses, and the reason."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Image:
    """One image in memory. `remark`: what is odd about an accepted image."""

    data: bytes
    version: int
    remark: str = ""

    @property
    def body(self) -> bytes:
        """The bytes between header and signature."""
        return self.data[HEADER_BYTES : HEADER_BYTES + _word(self.data, BODY_SIZE_AT)]


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def kind_of(data: bytes) -> int:
    """Return the kind that an image's header states; 0 if it has none."""
    return _word(data, KIND_AT) & 0xFFFF


def not_arrived(bad: BadImage, waiting_bytes: int) -> str:
    """Return the addition to a refusal text if some of the host's writes have not reached memory."""
    suspect = bad.status in (Status.NO_DATA, Status.BAD_FORMAT, Status.SECURITY, Status.BAD_PARAMETERS)
    return f"; {waiting_bytes:#x} bytes written by the host wait for an HDP flush" if suspect and waiting_bytes else ""


def size_from_header(start: bytes) -> int | None:
    """Return the size that an image's first 256 bytes state; None if they are no consistent header."""
    size = _word(start, SIZE_AT)
    framed = HEADER_BYTES + _word(start, BODY_SIZE_AT) + SIGNATURE_BYTES.get(_word(start, SIGNATURE_TYPE_AT), 0)
    marked = start[MAGIC_AT : MAGIC_AT + 4] == MAGIC
    if marked and start[FLAGS_AT] & SIGNED_ALONE:
        return framed
    return size if size and (marked or framed == size) else None


def check(data: bytes, part: Part, keys: Mapping[bytes, Key], chip: str, *, decrypts: bool = False) -> Image:
    """Check an image of `part`. `keys`: those of the booted key database. `decrypts`: the processor takes encrypted
    images; their digest is that of the plain body, which nobody else knows, and the signature covers what is sent.
    Raises `BadImage`.
    """
    if not data.strip(b"\0"):
        raise BadImage(Status.NO_DATA, f"{len(data):#x} zero bytes: nothing has arrived")
    image = _framed(data, part, decrypts)
    kind = kind_of(image)
    if kind not in (part.kind, *part.or_kinds):
        other = psp_parts.NAMES.get(kind, f"kind {kind:#x}")
        raise BadImage(Status.BAD_PARAMETERS, f"an image of {other} where {part.name} is expected")
    body = image[HEADER_BYTES : HEADER_BYTES + _word(image, BODY_SIZE_AT)]
    stated = image[FLAGS_AT] & DIGEST_STATED
    if (
        stated
        and not _word(image, ENCRYPTED_AT)
        and not _digest_is_right(body, image[DIGEST_AT : DIGEST_AT + DIGEST_BYTES])
    ):
        raise BadImage(
            Status.SECURITY,
            "the SHA-256 of its body is not the one in its header: it was changed, or is incomplete",
        )
    remark = _signed(image, part, keys, chip)
    return Image(image, _word(image, VERSION_AT), remark)


def _framed(data: bytes, part: Part, decrypts: bool) -> bytes:
    """Return header, body and signature, without the bytes after them."""
    magic = data[MAGIC_AT : MAGIC_AT + 4]
    if magic != MAGIC and not (part.unmarked and magic == bytes(4) and size_from_header(data)):
        raise BadImage(Status.BAD_FORMAT, _misread(data))
    if len(data) < HEADER_BYTES:
        raise BadImage(Status.SHORT_BUFFER, f"a signed image of {len(data):#x} bytes, shorter than its header")
    if (_word(data, ENCRYPTED_AT) and not decrypts) or _word(data, COMPRESSED_AT):
        raise BadImage(Status.BAD_FORMAT, "an encrypted or compressed image; this card has none")
    signature = SIGNATURE_BYTES.get(_word(data, SIGNATURE_TYPE_AT))
    if _word(data, SIGNED_AT) != 1 or signature is None or not data[FLAGS_AT] & (DIGEST_STATED | SIGNED_ALONE):
        raise BadImage(Status.BAD_FORMAT, "its header says that it is not signed, or without a digest")
    size, body = _word(data, SIZE_AT), _word(data, BODY_SIZE_AT)
    if data[FLAGS_AT] & SIGNED_ALONE:
        size = HEADER_BYTES + body + signature
    if not body or size != HEADER_BYTES + body + signature:
        raise BadImage(Status.BAD_FORMAT, f"a body of {body:#x} bytes in an image of {size:#x}")
    if size > len(data):
        raise BadImage(Status.SHORT_BUFFER, f"its header says {size:#x} bytes, it has {len(data):#x}")
    return data[:size]


def _misread(data: bytes) -> str:
    """Guess what bytes without a header are. Source: common_firmware_header, amdgpu_ucode.h."""
    size, header, major = _word(data, 0), _word(data, 4), _word(data, 8) & 0xFFFF
    if 0x20 <= header <= 0x400 and major in CONTAINER_VERSIONS and header <= _word(data, 24) <= size:
        return "a whole file of the kernel's firmware folder, not the signed part inside it"
    further = data.find(MAGIC)
    if further > MAGIC_AT:
        return f"no signed header ($PS1); there is one at byte {further - MAGIC_AT:#x}"
    return "no signed header ($PS1): a part without its header, or not firmware"


def _digest_is_right(body: bytes, digest: bytes) -> bool:
    paddings = range(PADDING_BYTES) if body else ()
    return any(
        sha256(body[: len(body) - padding]).digest() == digest
        for padding in paddings
        if not any(body[len(body) - padding :])
    )


def _signed(image: bytes, part: Part, keys: Mapping[bytes, Key], chip: str) -> str:
    """Check who signed an image, and that it is for this chip; return a remark."""
    key_id = image[KEY_AT : KEY_AT + KEY_BYTES]
    key = keys.get(key_id)
    if part.rooted and key_id == signing.ROOT_ID:
        key = psp_keys.ROOT
    elif part.rooted and key is None and chip in psp_published.ROOT_KEYS.get(key_id.hex(), "").split():
        _refuse_changed(image)
        return _known(image, chip, "signature not checked")
    if key is None or (key is not psp_keys.ROOT and key.usage not in part.usages):
        raise BadImage(
            Status.ACCESS_DENIED,
            f"signed with key {key_id.hex()}, "
            + (
                "which this card does not know"
                if key is None
                else f"which is for usage {key.usage:#x}, not for {part.name}"
            ),
        )
    signature = key.bits // 8
    if not psp_keys.is_signed(image[:-signature], image[-signature:], key):
        raise BadImage(Status.SECURITY, "its signature does not match its content")
    return "" if key.modulus == signing.MODULUS else _known(image, chip, "signature is right")


def _refuse_changed(image: bytes) -> None:
    """Refuse an image that has half of a published signature, and is not that image: something in it was changed. AMD
    publishes the same body, or the same header and body, again with a new signature, as the patch levels (SPL) of GC 12
    in 2026.
    """
    at = len(image) - SIGNATURE_BYTES[_word(image, SIGNATURE_TYPE_AT)]
    middle = (at + len(image)) // 2
    content, *halves = (_fingerprint(piece) for piece in (image[:at], image[at:middle], image[middle:]))
    for row in psp_published.SIGNED:
        published, *signature = row.split()
        if any(half in signature for half in halves) and (content, halves) != (published, signature):
            raise BadImage(Status.SECURITY, "the signature of a published image, or half of it, on something else")


def _fingerprint(data: bytes) -> str:
    return sha256(data).hexdigest()[:FINGERPRINT_DIGITS]


def _known(image: bytes, chip: str, else_: str) -> str:
    """Look up an image from AMD among the published ones."""
    row = psp_published.PUBLISHED.get(_fingerprint(image))
    if row is None:
        return f"not among the known published images: {else_}"
    if chip not in row[3].split():
        # GUESS: the engines of all chips share a key; how metal tells them apart is not public
        raise BadImage(Status.BAD_PARAMETERS, f"an image published for {row[3].replace(' ', ', ')}, not for {chip}")
    return ""
