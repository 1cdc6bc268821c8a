"""The keys of a PSP: those in its ROM, and those of the booted key database (KDB). They check the signatures of all
other images.

Source: PSPTool's key_store_file.py and crypto.py (layout, RSASSA-PSS over header and body with SHA-256, or SHA-384 for
4096 bits), RFC 8017. In three releases, all 31 to 40 parts of each chip that are signed with a key of its database
verify this way. AMD's root keys are in the chips' ROMs and in no public file: images signed with them are recognised by
their fingerprint alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256, sha384
from typing import Any

from ringup.silicon.amd.psp import signing

MAGIC = b"$KDB"
HEADER_BYTES = ENTRY_BYTES = 0x50
DIGESTS: dict[int, Callable[..., Any]] = {2048: sha256, 4096: sha384}
EXPONENT = 0x10001
VERDICTS_KEPT = 512


class BadDatabase(Exception):
    """A key database that cannot be read, and the reason."""


@dataclass(frozen=True, slots=True)
class Key:
    """One public key. `usage`: what it may sign, a number of the database."""

    usage: int
    modulus: int
    bits: int


ROOT = Key(0, signing.MODULUS, signing.KEY_BYTES * 8)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def read(body: bytes) -> dict[bytes, Key]:
    """Return the keys of a database by id. Raises `BadDatabase`."""
    if len(body) < HEADER_BYTES or body[8:12] != MAGIC or _word(body, 0) != len(body):
        raise BadDatabase(f"no key database ($KDB) of {len(body):#x} bytes")
    keys: dict[bytes, Key] = {}
    at = HEADER_BYTES
    while at < len(body):
        size, bits, exponent = _word(body, at), _word(body, at + 0x20), _word(body, at + 0xC)
        if bits not in DIGESTS or size != ENTRY_BYTES + bits // 8 or at + size > len(body) or exponent != EXPONENT:
            raise BadDatabase(f"the key at {at:#x} has {size:#x} bytes, {bits} bits and exponent {exponent:#x}")
        modulus = int.from_bytes(body[at + ENTRY_BYTES : at + size], "little")
        keys[body[at + 0x10 : at + 0x20]] = Key(_word(body, at + 8), modulus, bits)
        at += size
    return keys


def is_signed(data: bytes, signature: bytes, key: Key) -> bool:
    """Whether `signature` signs `data`, which is header and body."""
    return len(signature) == key.bits // 8 and _verdict(DIGESTS[key.bits](data).digest(), signature, key)


@lru_cache(maxsize=VERDICTS_KEPT)
def _verdict(digest: bytes, signature: bytes, key: Key) -> bool:
    """Check a signature. Source: RFC 8017, 9.1.2; the salt is as long as the digest."""
    sum_of = DIGESTS[key.bits]
    number = int.from_bytes(signature, "big")
    if number >= key.modulus:
        return False
    plain = pow(number, EXPONENT, key.modulus).to_bytes(key.bits // 8, "big")
    masked, summed = plain[: -len(digest) - 1], plain[-len(digest) - 1 : -1]
    if plain[-1] != signing.TRAILER or masked[0] & 0x80:
        return False
    rounds = -(-len(masked) // len(digest))
    mask = b"".join(sum_of(summed + n.to_bytes(4, "big")).digest() for n in range(rounds))
    opened = bytearray(a ^ b for a, b in zip(masked, mask, strict=False))
    opened[0] &= 0x7F
    salt = bytes(opened[-len(digest) :])
    padding = opened[: -len(digest)]
    return padding == bytes(len(padding) - 1) + b"\1" and sum_of(bytes(8) + digest + salt).digest() == summed
