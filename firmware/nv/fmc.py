"""The GSP's first code on cards with an FSP (GH100 and later), `fmc-570.144.bin`: an ELF file with the code, its hash,
the public key and the signature, which the host sends to the FSP.

The FSP checks all of them (chain of trust). Source: nouveau gsp/gh100.c, gh100_gsp_oneinit and elf_validate_sections;
fsp/gh100.c, gb100.c and gb202.c, the sizes of `cot`; nova-core firmware/fsp.rs; OGKM NVDM_PAYLOAD_COT.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from ringup.autogen.nv.fsp import NVDM_PAYLOAD_COT
from ringup.autogen.structs import element_size
from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.nv import elf

MAX_BYTES = 16 << 20  # published files have 150 KB
HASH_BYTES = 48  # SHA-384


class KeySizes(NamedTuple):
    """Bytes of the public key and of a signature."""

    public_key_bytes: int
    signature_bytes: int


RSA3K, ECDSA_P384 = KeySizes(384, 384), KeySizes(97, 96)
# Chip: what its FSP checks with.
KEYS = {
    "gh100": RSA3K,
    "gb100": ECDSA_P384,
    "gb102": ECDSA_P384,
    "gb202": ECDSA_P384,
    "gb203": ECDSA_P384,
    "gb205": ECDSA_P384,
    "gb206": ECDSA_P384,
    "gb207": ECDSA_P384,
}


@dataclass(frozen=True, slots=True)
class Fmc:
    """A checked file. `hash384`, `public_key` and `signature` go into `NVDM_PAYLOAD_COT` and are filled with zeros to
    its fields' sizes; `image` is what the FSP fetches.
    """

    name: str
    image: bytes = field(repr=False)
    hash384: bytes = field(repr=False)
    public_key: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    sizes: KeySizes

    def check_for(self, chip: str) -> None:
        """Check that key and signature have the sizes that a chip's FSP takes.

        Raises `FirmwareError` if the file is for another chip, `NotSupported` for a chip without an FSP.
        """
        if chip not in KEYS:
            raise NotSupported(f"{chip} does not boot through an FSP; chips that do: {', '.join(KEYS)}")
        if self.sizes != KEYS[chip]:
            raise FirmwareError(
                f"{self.name}: key and signature have {self.sizes.public_key_bytes} and {self.sizes.signature_bytes}"
                f" bytes, {chip} takes {KEYS[chip].public_key_bytes} and {KEYS[chip].signature_bytes}"
            )


def _field_bytes(member: str) -> int:
    row = NVDM_PAYLOAD_COT.members()[member]
    return element_size(NVDM_PAYLOAD_COT, row) * row.dims[0]


def parse(blob: bytes, name: str) -> Fmc:
    """Read and check a file.

    A section whose `sh_info` is not zero states a CRC there. Raises `FirmwareError` for a truncated file, a missing
    section, a wrong CRC, and for a hash, key or signature that is longer than its field of the message to the FSP.
    """
    if len(blob) > MAX_BYTES:
        raise FirmwareError(f"{name}: {len(blob)} bytes are more than any such file has ({MAX_BYTES})")
    found = elf.sections(blob, name, elf.CLASS_32)
    data = {}
    for title, member in (
        ("image", None),
        ("hash", "hash384"),
        ("publickey", "publicKey"),
        ("signature", "signature"),
    ):
        section = elf.require(found, title, name)
        limit = len(blob) if member is None else _field_bytes(member)
        if section.size_bytes > limit:
            raise FirmwareError(f"{name}: {title} has {section.size_bytes} bytes; the FSP takes at most {limit}")
        data[title] = section.data(blob)
        if section.info and section.info != zlib.crc32(data[title]):
            raise FirmwareError(
                f"{name}: section {title} has CRC {zlib.crc32(data[title]):#010x}, its header says {section.info:#010x}"
            )
    if len(data["hash"]) != HASH_BYTES:
        raise FirmwareError(f"{name}: hash has {len(data['hash'])} bytes, SHA-384 has {HASH_BYTES}")
    return Fmc(
        name,
        data["image"],
        data["hash"],
        data["publickey"].ljust(_field_bytes("publicKey"), b"\0"),
        data["signature"].ljust(_field_bytes("signature"), b"\0"),
        KeySizes(len(data["publickey"]), len(data["signature"])),
    )
