"""The stock firmware's inquiry data, vital product data and mode pages.

Source: the tables of the stock image 240417 at code 0x5BC3-0x5C9C and XDATA 0x01B5; names of fields as in SPC-4 and
SBC-3.
"""

from __future__ import annotations

import struct

from ringup.silicon.asm2464pd.hardware.flash_image import Config

# version descriptors: SPC-4, UAS revision 4, SBC-3
SPC4, UAS, SBC3 = 0x0460, 0x1747, 0x04C0
STANDARD_BYTES = 76
REMOVABLE, COMMAND_QUEUING = 0x80, 0x02
PAGE_ALL, PAGE_FLEXIBLE, PAGE_CACHING, PAGE_EXCEPTIONS = 0x3F, 0x05, 0x08, 0x1C
WRITE_CACHE = 0x04  # WCE of the caching page
# maximum and optimal transfer length of the block limits page
TRANSFER_BLOCKS = 0x1000


def standard_inquiry(config: Config, removable: bool, queuing: bool) -> bytes:
    """Return the 76 bytes of standard inquiry data; `queuing`: over UAS."""
    names = config.scsi_maker.encode("ascii", "replace").ljust(8) + config.scsi_product.encode(
        "ascii", "replace"
    ).ljust(16)
    head = bytes([0, REMOVABLE * removable, 6, 2, STANDARD_BYTES - 5, 0, 0, COMMAND_QUEUING * queuing])
    return (head + names + b"0   ").ljust(58, b"\0") + struct.pack(">HHH", SBC3, UAS, SPC4).ljust(18, b"\0")


def vital_product_data(page: int, config: Config) -> bytes | None:
    """Return a page of vital product data; None for a page that the firmware lacks."""
    bodies = {
        0x00: (bytes([0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2]), 6),
        0x80: (config.serial.encode("ascii", "replace"), 0),
        0x83: (bytes([1, 3, 0, 8]) + (5 << 60 | 1).to_bytes(8, "big"), 12),  # one designator: binary, NAA 5
        0xB0: (struct.pack(">BBHII", 0, 0, 1, TRANSFER_BLOCKS, TRANSFER_BLOCKS), 60),
        0xB1: (struct.pack(">H", 1), 60),  # does not rotate
        0xB2: (b"", 4),
    }
    if page not in bodies:
        return None
    body, size = bodies[page]
    body = body.ljust(size, b"\0")
    return struct.pack(">BBH", 0, page, len(body)) + body


def _mode_pages(write_cache: bool) -> dict[int, bytes]:
    return {
        PAGE_FLEXIBLE: bytes([PAGE_FLEXIBLE, 0x1E]) + struct.pack(">HBBH", 0, 0, 0, 512).ljust(0x1E, b"\0"),
        PAGE_CACHING: bytes([PAGE_CACHING, 0x12, WRITE_CACHE * write_cache]).ljust(0x14, b"\0"),
        PAGE_EXCEPTIONS: bytes([PAGE_EXCEPTIONS, 0x0A]).ljust(0x0C, b"\0"),
    }


def mode_sense_6(page: int, subpage: int, write_cache: bool) -> bytes | None:
    """Return the mode data of MODE SENSE(6); None for a page that the firmware lacks."""
    pages = _mode_pages(write_cache)
    if page == PAGE_ALL:
        body = b"".join(pages.values())
    elif page == PAGE_EXCEPTIONS and subpage:
        return None
    elif page in pages:
        body = pages[page]
    else:
        return None
    return bytes([len(body) + 3, 0, 0, 0]) + body


def mode_sense_10(page: int) -> bytes | None:
    """Return the mode data of MODE SENSE(10), which has only the flexible disk page."""
    if page not in (PAGE_ALL, PAGE_FLEXIBLE):
        return None
    body = _mode_pages(write_cache=False)[PAGE_FLEXIBLE]
    return struct.pack(">HBBHH", len(body) + 6, 0, 0, 0, 0) + body
