"""The VBIOS of a card: found in its expansion ROM, or behind it in the flash part that the system management I/O block
reads.

The VBIOS's own code is never run here: a card's firmware trains its memory at power on, before any host could.

Source: amdgpu amdgpu_bios.c, amdgpu_read_bios and amdgpu_soc15_read_bios_from_rom; smuio_v13_0.c, nbio_v4_3.c,
nbio_v4_3_get_rom_offset; amdgpu_atombios.c, amdgpu_atombios_get_data_table; smu_v13_0_0_ppt.c,
smu_v13_0_0_append_powerplay_table.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ringup.autogen.amd.atom import atom_common_table_header
from ringup.autogen.amd.nbio import REGS_ROM_OFFSET_CTRL
from ringup.autogen.amd.smuio import ROM_DATA, ROM_INDEX
from ringup.autogen.linux import pci
from ringup.drivers.amd.bus.discovery import Ips
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.transport.config_space import ask
from ringup.drivers.transport.seam import ConfigSpace, Device, Mmio
from ringup.errors import FirmwareError
from ringup.firmware.amd import vbios
from ringup.firmware.amd.vbios import ROM_BLOCK_BYTES, Vbios

LOG = logging.getLogger(__name__)
MAGIC = vbios.MAGIC.to_bytes(2, "little")
ROM_OFFSET_UNIT = 1 << 17  # amdgpu_bios.c, amdgpu_soc15_read_bios_from_rom: the strap counts 128 KiB
ROM_ADDRESS = pci.PCI_ROM_ADDRESS_MASK & 0xFFFF_FFFF
POWER_TABLE = "smc_dpm_info"


def read(device: Device, ips: Ips) -> Vbios:
    """Return the checked VBIOS. Raises `FirmwareError` that says what the ROM and the flash part held when neither
    holds a sound one.
    """
    try:
        with _decoded(device.config):
            image = _rom(device.rom)
        return vbios.parse(image, f"{device.name} expansion ROM")
    except FirmwareError as error:
        ips.block("nbio").registers.check("reading the expansion ROM")
        LOG.debug("%s", error)
        reason = str(error)
    try:
        return vbios.parse(_flash(ips), f"{device.name} flash part")
    except FirmwareError as error:
        raise FirmwareError(f"{reason}; {error}") from error


def board_table(image: Vbios) -> bytes | None:
    """Return the board's part of the power table (`smc_dpm_info` behind its header); None when the VBIOS has none."""
    if POWER_TABLE not in image.data:
        return None
    return image.table_bytes(POWER_TABLE)[atom_common_table_header.SIZE :]


@contextmanager
def _decoded(config: ConfigSpace) -> Iterator[None]:
    """Have the function answer at its ROM's address meanwhile. A ROM without an address stays off: it would answer at
    0.
    """
    before = ask(config, pci.PCI_ROM_ADDRESS, 4, "switching the expansion ROM on")
    switched = bool(before & ROM_ADDRESS) and not before & pci.PCI_ROM_ADDRESS_ENABLE
    if switched:
        config.write(pci.PCI_ROM_ADDRESS, before | pci.PCI_ROM_ADDRESS_ENABLE)
    try:
        yield
    finally:
        if switched:
            config.write(pci.PCI_ROM_ADDRESS, before)


def _rom(rom: Mmio | None) -> bytes:
    """Read as much of the expansion ROM as its image has."""
    if rom is None or rom.size_bytes < ROM_BLOCK_BYTES:
        raise FirmwareError("the card shows no expansion ROM")
    head = rom.read_block(0, ROM_BLOCK_BYTES)
    return head + rom.read_block(len(head), min(_size(head, "the expansion ROM"), rom.size_bytes) - len(head))


def _flash(ips: Ips) -> bytes:
    """Read the image from the flash part, a dword at a time through the index registers."""
    smuio = ips.block("smuio")
    start = int(ips.block("nbio").read(REGS_ROM_OFFSET_CTRL).rom_offset) * ROM_OFFSET_UNIT
    smuio.write(smuio.make(ROM_INDEX, rom_index=start))
    head = _dwords(smuio, ROM_BLOCK_BYTES)
    return head + _dwords(smuio, _size(head, "the flash part") - len(head))  # the index moves on by itself


def _dwords(smuio: Block, size_bytes: int) -> bytes:
    return b"".join(struct.pack("<I", int(smuio.read(ROM_DATA))) for _ in range(size_bytes // 4))


def _size(head: bytes, where: str) -> int:
    """Return how long the image that begins with `head` says to be."""
    size = head[2] * ROM_BLOCK_BYTES
    if head[:2] != MAGIC or not size:
        raise FirmwareError(
            f"{where} holds no image: it begins with {head[:3].hex(' ')}, a VBIOS with 55 aa and its size"
        )
    return size
