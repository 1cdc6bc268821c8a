"""The VBIOS: images of an expansion ROM behind a header of NVIDIA's own, read through the registers.

The ROM begins with an image (0x55 0xaa), or with init-from-ROM data (IFR), which says where the images begin. Each
image has a structure `PCIR` with its length and, with NVIDIA, one `NPDE`, which may give a shorter one. Source: OGKM
kernel_gsp_vbios_tu102.c, s_romImgFindPciHeader_TU102, s_locateExpansionRoms; PCI firmware specification 3.0, 5.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ringup.autogen.nv.boot import NV_PBUS_IFR_FMT_FIXED0_SIGNATURE_VALUE, NV_PROM_DATA
from ringup.drivers.nv.bus.registers import Block
from ringup.errors import FirmwareError

MAX_BYTES = 1 << 20  # what the registers show of the ROM
ROM_SIGNATURE = 0xAA55
NVIDIA_SIGNATURES = (ROM_SIGNATURE, 0x4E56, 0xBB77)  # "VN": images of the chip's own. Source: OGKM pci_exp_table.h
PCIR, NPDS, RGIS, NPDE = b"PCIR", b"NPDS", b"RGIS", b"NPDE"
DIRECTORY = 0x4452_4652  # "RFRD". Source: NV_ROM_DIRECTORY_IDENTIFIER
FLASH_STATUS_BYTES = 4096
BLOCK_BYTES = 512
MAX_IMAGES = 16
# places in the PCI data structure and in NVIDIA's extension of it
PCIR_BYTES, PCIR_LENGTH, PCIR_TYPE, PCIR_INDICATOR = 0x0A, 0x10, 0x14, 0x15
NPDE_BYTES, NPDE_LENGTH, NPDE_LAST = 6, 8, 10
EFI, LAST = 3, 0x80
HEADER_BYTES = 0x40


Fetch = Callable[[int, int], bytes]


class Span(NamedTuple):
    """One image in the ROM."""

    start: int
    size_bytes: int
    code_type: int


def read(block: Block) -> bytes:
    """Return the VBIOS' images, the first at byte 0; of images for EFI only their heads, the rest is zeros.

    A dword is a request of its own: a whole ROM takes some 0.2 s. Raises `FirmwareError` for a ROM without images.
    """
    window = block.address(NV_PROM_DATA)
    # what was read is kept, and nothing is read twice
    kept: dict[int, bytes] = {}

    def fetch(start: int, size_bytes: int) -> bytes:
        if start < 0 or start + size_bytes > MAX_BYTES:
            raise FirmwareError(f"the VBIOS: bytes {start:#x} to {start + size_bytes:#x} lie outside of the ROM")
        low, high = start & ~3, start + size_bytes + 3 & ~3
        kept[low] = block.registers.read_run(window + low, high - low)
        return kept[low][start - low :][:size_bytes]

    begin = _first_image(fetch)
    images = list(_images(fetch, begin))
    end = images[-1].start + images[-1].size_bytes
    for image in images:
        if image.code_type != EFI:
            fetch(image.start, image.size_bytes)
    whole = bytearray(end)
    for at, data in kept.items():
        whole[at : at + len(data)] = data
    return bytes(whole[begin:end])


def _first_image(fetch: Fetch) -> int:
    fixed0, fixed1, fixed2 = struct.unpack("<3I", fetch(0, 12))
    if fixed0 & 0xFFFF == ROM_SIGNATURE:
        return 0
    if fixed0 != NV_PBUS_IFR_FMT_FIXED0_SIGNATURE_VALUE:
        raise FirmwareError(
            f"the VBIOS: the ROM begins with {fixed0:#010x}, neither with an image (0xaa55) nor with IFR data; "
            "reset the card's slot, or power it off and on"
        )
    version = fixed1 >> 8 & 0xFF
    if version in (1, 2):
        begin = _dword(fetch, (fixed1 >> 16 & 0x7FFF) + 4)
    elif version == 3:
        directory = _dword(fetch, fixed2 & 0xF_FFFF) + FLASH_STATUS_BYTES
        if (seen := _dword(fetch, directory)) != DIRECTORY:
            raise FirmwareError(f"the VBIOS: at {directory:#x} is {seen:#010x}, not the ROM's directory")
        begin = _dword(fetch, directory + 8)
    else:
        raise FirmwareError(f"the VBIOS: IFR data of version {version}, which this driver does not know")
    if begin % 4 or begin + HEADER_BYTES > MAX_BYTES:
        raise FirmwareError(f"the VBIOS: the IFR data puts the first image to {begin:#x}")
    if (seen := struct.unpack("<H", fetch(begin, 2))[0]) != ROM_SIGNATURE:
        raise FirmwareError(f"the VBIOS: the first image begins with {seen:#06x}, not with 0xaa55")
    return begin


def _images(fetch: Fetch, begin: int) -> Iterator[Span]:
    at = begin
    for _ in range(MAX_IMAGES):
        signature, pointer = struct.unpack("<H22xH", fetch(at, 0x1A))
        if signature not in NVIDIA_SIGNATURES:
            raise FirmwareError(f"the VBIOS: an image at {at:#x} begins with {signature:#06x}")
        pcir = fetch(at + pointer, 0x18)
        if pcir[:4] not in (PCIR, NPDS, RGIS):
            raise FirmwareError(f"the VBIOS: the image at {at:#x} has no PCI data structure at {pointer:#x}")
        length: int = struct.unpack_from("<H", pcir, PCIR_LENGTH)[0]
        last = bool(pcir[PCIR_INDICATOR] & LAST)
        extension = fetch(at + pointer + struct.unpack_from("<H", pcir, PCIR_BYTES)[0] + 15 & ~15, 16)
        if extension[:4] == NPDE:
            full, length = length, struct.unpack_from("<H", extension, NPDE_LENGTH)[0]
            has_last = struct.unpack_from("<H", extension, NPDE_BYTES)[0] > NPDE_LAST
            last = bool(extension[NPDE_LAST] & LAST) if has_last else last and length >= full
        if not length:
            raise FirmwareError(f"the VBIOS: the image at {at:#x} has no bytes")
        yield Span(at, length * BLOCK_BYTES, pcir[PCIR_TYPE])
        at += length * BLOCK_BYTES
        if last:
            return
    raise FirmwareError(f"the VBIOS: more than {MAX_IMAGES} images")


def _dword(fetch: Fetch, at: int) -> int:
    return int.from_bytes(fetch(at, 4), "little")
