"""The key of the virtual cards, which signs the images made for them, and its key database. Both halves of the key are
public.

No real card knows this key, and a card that has booted AMD's key database refuses images signed with it. The modulus is
a product of eight primes, so signing takes only a millisecond; verification is the same. Source: RFC 8017, 8.1 and 9.1
(RSASSA-PSS); layout of a key database: PSPTool's key_store_file.py, and the files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache, reduce
from hashlib import sha256, shake_128
from operator import mul

PRIMES = (
    0xF0EB19D11048F9F0B5ABEFD6DFA4C320C2391102B671FBBA5F78652F468D4921,
    0xF9A500F010564F810344744F552BB6F9A41075ABF6FA66CD267C1D3A4ABE7E2B,
    0xFFFA5FE785446C9A98AED921E20E351FA33EB271A4BADD8B7FCB77B035E05597,
    0xFD39FE62F03A5A8D07EC3734D54802C8FD9EBFE352455DBDC84C254FA7CFBC59,
    0xFEAB33466E7E6DAD2145335627C2456F97DCD18DBFB006C36635FEA493059445,
    0xF6C77F35A5BB8CDF3AAF9C3E4FE1BDBA26B1E8C74306D598ECF642277388A591,
    0xFFB4449098248EEB67B09170E0082E96D02E601D3330588A749720E15900FF5D,
    0xF1788772093648A00CC72A053C1B8D15272B09BF8804D9F699280B00E3F537C9,
)
MODULUS = reduce(mul, PRIMES)
EXPONENT = 0x10001
KEY_BYTES = 0x100
# id of the key in the boot loader's ROM
ROOT_ID = b"virtual cards\0\0\0"
SALT_BYTES = DIGEST_BYTES = 32
TRAILER = 0xBC
SIGNATURES_KEPT = 512


def key_id(usage: int) -> bytes:
    """Return the id of the virtual cards' key for one usage, as in their key database."""
    return f"virtual key {usage:#04x}".encode()


def spread(seed: bytes, size_bytes: int) -> bytes:
    """MGF1 with SHA-256. Source: RFC 8017, B.2.1."""
    rounds = -(-size_bytes // DIGEST_BYTES)
    return b"".join(sha256(seed + n.to_bytes(4, "big")).digest() for n in range(rounds))[:size_bytes]


def sign(data: bytes) -> bytes:
    """Return the signature of header and body. It is the same each time: the salt comes from the data."""
    return _signature(sha256(data).digest())


@lru_cache(maxsize=SIGNATURES_KEPT)
def _signature(digest: bytes) -> bytes:
    salt = shake_128(digest).digest(SALT_BYTES)
    summed = sha256(bytes(8) + digest + salt).digest()
    plain = (b"\1" + salt).rjust(KEY_BYTES - DIGEST_BYTES - 1, b"\0")
    masked = bytearray(a ^ b for a, b in zip(plain, spread(summed, len(plain)), strict=True))
    # the modulus has one bit more than the signed number
    masked[0] &= 0x7F
    return _power(int.from_bytes(bytes(masked) + summed + bytes([TRAILER]), "big")).to_bytes(KEY_BYTES, "big")


def _power(number: int) -> int:
    """Raise `number` to the private exponent, prime by prime. Source: RFC 8017, 5.1.2."""
    return sum(pow(number % prime, exponent, prime) * factor for prime, exponent, factor in _crt()) % MODULUS


@lru_cache(maxsize=1)
def _crt() -> tuple[tuple[int, int, int], ...]:
    """Return for each prime its private exponent, and the factor of its share in the result."""
    return tuple(
        (prime, pow(EXPONENT, -1, prime - 1), MODULUS // prime * pow(MODULUS // prime, -1, prime)) for prime in PRIMES
    )


def database(usages: Iterable[int]) -> bytes:
    """Return the body of a key database that contains this key once for each usage."""
    keys = b"".join(
        struct.pack("<4I16sI44x", 0x50 + KEY_BYTES, 1, usage, EXPONENT, key_id(usage), KEY_BYTES * 8)
        + MODULUS.to_bytes(KEY_BYTES, "little")
        for usage in usages
    )
    return struct.pack("<II4s68x", 0x50 + len(keys), 1, b"$KDB") + keys
