"""The contents of an ASM2464PD's SPI flash: two configuration blocks and a firmware image, twice; how the mask ROM
validates them.

Source: extra/usbgpu/patch.py (blocks, order, patch), cyrozap asm2464_fw.ksy and asm236x_fw.ksy (containers), the stock
image 240417 itself.
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass, replace

# two consecutive copies; each may hold both blocks and an image
COPY_BYTES = 0x2_0000
COPIES = 2
CONFIG_BYTES = 0x80
IMAGE_AT = 0x100  # in a copy, after the two blocks
# bytes that a vendor command writes after the blocks; the rest of an image goes to the copy's second 64 KiB
PART_ONE_BYTES = 0xFF00
IMAGE_MAGIC = 0xA5  # asm2464_fw.ksy
BODY_BYTES = 0x1_7ED6  # both known images
VERSION_AT, VERSION_BYTES = 0x200, 6  # in the body
# in the body of 240417: the end of the routine for WRITE commands
WRITE_EXIT_AT = 0x2A0E
# wait for an NVMe completion; finish with status: patch.py's one byte
WRITE_EXIT_WAIT, WRITE_EXIT_FINISH = 0x0A, 0x05
STOCK_VERSION = bytes.fromhex("240417850000")
OTHER_VERSION = bytes.fromhex("241129850000")
# string descriptor in the open firmware: handmade/src/usb.h
OPEN_MARK = "tiny".encode("utf-16le")
ERASED = 0xFF
HEAD, TAIL = struct.Struct("<I"), struct.Struct("<BBI")


def sum8(data: bytes | memoryview) -> int:
    """Return the 8-bit sum at the end of blocks and bodies."""
    return sum(data) & 0xFF


def pack_image(body: bytes) -> bytes:
    """Put a body into its container: length, body, magic, sum and CRC-32."""
    return HEAD.pack(len(body)) + body + TAIL.pack(IMAGE_MAGIC, sum8(body), zlib.crc32(body))


def body_of(image: bytes | memoryview) -> bytes | None:
    """Return the body of the image that begins here; None if length, magic, sum or CRC are wrong. Bytes after it are
    ignored.
    """
    if len(image) < HEAD.size + TAIL.size:
        return None
    (length,) = HEAD.unpack_from(image)
    if not VERSION_AT + VERSION_BYTES <= length <= len(image) - HEAD.size - TAIL.size:
        return None
    body = bytes(image[HEAD.size : HEAD.size + length])
    if TAIL.unpack_from(image, HEAD.size + length) != (IMAGE_MAGIC, sum8(body), zlib.crc32(body)):
        return None
    return body


def kind_of(body: bytes) -> str:
    """Return which firmware a valid body is: `open`, `patched` or `stock`."""
    if OPEN_MARK in body:
        return "open"
    patched = body[WRITE_EXIT_AT : WRITE_EXIT_AT + 1] == bytes([WRITE_EXIT_FINISH])
    return "patched" if patched and version_of(body) == STOCK_VERSION else "stock"


def version_of(body: bytes) -> bytes:
    """Return the six version bytes of a body: binary-coded decimals of a date and a suffix."""
    return body[VERSION_AT : VERSION_AT + VERSION_BYTES]


def synthetic_image(kind: str, version: bytes = STOCK_VERSION, seed: int = 0, body_bytes: int = BODY_BYTES) -> bytes:
    """Return an image of a kind that `kind_of` recognises: random bytes instead of the vendor's code, valid wherever a
    loader checks.
    """
    body = bytearray(random.Random(f"{kind} {version.hex()} {seed}").randbytes(body_bytes).replace(OPEN_MARK, b"\0"))
    body[VERSION_AT : VERSION_AT + VERSION_BYTES] = version
    body[WRITE_EXIT_AT] = WRITE_EXIT_FINISH if kind == "patched" else WRITE_EXIT_WAIT
    if kind == "open":
        body[-len(OPEN_MARK) :] = OPEN_MARK
    if kind_of(bytes(body)) != kind:
        raise ValueError(f"no image of version {version.hex()} is {kind!r}")
    return pack_image(bytes(body))


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration block 0: what the firmware reports to hosts. Numbers are the fields' sizes in bytes, the limits of
    the strings.
    """

    serial: str = "000000000000"  # 20
    usb_maker: str = "ASMedia"  # 36
    scsi_maker: str = "ASMT"  # 8
    usb_product: str = "ASM2464"  # 32; UNKNOWN: what unbranded units say here
    scsi_product: str = "ASM2464"  # 16
    vendor_id: int = 0x174C
    product_id: int = 0x2464
    device_release: int = 0x0100
    # U1/U2, PCI Express lanes, speed and ASPM: cyrozap's ASM236x defaults
    policy: bytes = b"\xff\xff\x02\xff"

    def pack(self) -> bytes:
        """Return the 128 bytes of the block."""
        texts = (self.serial, self.usb_maker, self.scsi_maker, self.usb_product, self.scsi_product)
        body = b"".join(_padded(text, size) for text, size in zip(texts, TEXT_BYTES, strict=True))
        body += struct.pack("<HHH", self.vendor_id, self.product_id, self.device_release) + self.policy
        return _closed(body, CONFIG_MAGIC)


TEXT_BYTES = (20, 36, 8, 32, 16)
IDS_AT, POLICY_AT, CLOSING_AT = 0x74, 0x7A, 0x7E
CONFIG_MAGIC, ROUTER_MAGIC = 0x5A, 0xA5  # in block 0 and in block 1
# what the firmware reports when block 0 is invalid: descriptors and strings in the image 240417
BUILT_IN = Config(
    usb_maker="Asmedia", usb_product="AS2462", scsi_product="2462 NVME", product_id=0x2462, device_release=0x0001
)
TINY = replace(
    Config(), serial="AAAABBBB0060", usb_maker="tiny", scsi_maker="tiny", usb_product="USB 3.2 PCIe TinyEnclosure"
)
PATCHED = replace(TINY, scsi_product="TinyEnclosure", vendor_id=0xADD1, product_id=0x0001, policy=b"\xcf\xff\x02\xff")


def parse_config(block: bytes | memoryview) -> Config | None:
    """Parse block 0; return None if its magic or sum is wrong."""
    if not _closes(block, CONFIG_MAGIC):
        return None
    starts = [4 + sum(TEXT_BYTES[:index]) for index in range(len(TEXT_BYTES))]
    serial, usb_maker, scsi_maker, usb_product, scsi_product = (
        bytes(block[at : at + size]).split(b"\xff")[0].decode("ascii", "replace")
        for at, size in zip(starts, TEXT_BYTES, strict=True)
    )
    vendor_id, product_id, device_release = struct.unpack_from("<HHH", block, IDS_AT)
    policy = bytes(block[POLICY_AT:CLOSING_AT])
    return Config(
        serial, usb_maker, scsi_maker, usb_product, scsi_product, vendor_id, product_id, device_release, policy
    )


def router_block(maker: str = "ASMedia", product: str = "USB4 enclosure") -> bytes:
    """Return configuration block 1, which names the enclosure to a USB4 host. UNKNOWN: the bytes between its strings
    and its magic.
    """
    return _closed(_padded(maker, 0x28) + _padded(product, CLOSING_AT - 0x2C), ROUTER_MAGIC)


def copy_bytes(image: bytes, config: bytes, router: bytes | None = None) -> bytes:
    """Return one copy as in the flash: both blocks and an image, the rest erased."""
    content = config + (router or router_block()) + image
    if len(content) > COPY_BYTES:
        raise ValueError(f"an image of {len(image)} bytes does not fit behind the blocks of a copy of {COPY_BYTES}")
    return content.ljust(COPY_BYTES, bytes([ERASED]))


def _padded(text: str, size: int) -> bytes:
    data = text.encode("ascii")
    if len(data) > size:
        raise ValueError(f"{text!r} has {len(data)} bytes, its field {size}")
    return data.ljust(size, bytes([ERASED]))


def _closed(body: bytes, magic: int) -> bytes:
    summed = body + bytes([magic])
    return bytes([ERASED]) * 4 + summed + bytes([sum8(summed)])


def _closes(block: bytes | memoryview, magic: int) -> bool:
    return len(block) == CONFIG_BYTES and block[CLOSING_AT] == magic and block[-1] == sum8(block[4:-1])
