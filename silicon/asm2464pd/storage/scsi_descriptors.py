"""Descriptors of the bridge as a mass storage device: Bulk-Only in alternate setting 0, USB Attached SCSI in setting 1.

Source: the stock images 231204 and 240417 (bytes of the tables), cyrozap USB-descriptor-ASM2464-ROM.txt; USB 3.2, 9.6;
INCITS 471, "Pipe usage".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringup.silicon.asm2464pd.hardware.flash_image import Config
from ringup.silicon.asm2464pd.hardware.running_firmware import Descriptors
from ringup.silicon.asm2464pd.hardware.timing import Speed

DEVICE, CONFIGURATION, INTERFACE, ENDPOINT, BOS, CAPABILITY, PIPE_USAGE, COMPANION = 1, 2, 4, 5, 15, 16, 0x24, 48
BULK = 2
SELF_POWERED = 0xC0
MASS_STORAGE, SCSI, BULK_ONLY, ATTACHED_SCSI = 8, 6, 0x50, 0x62
SERIAL, MAKER, PRODUCT = 1, 2, 3  # indices of strings
# bcdUSB; a device with a BOS reports 2.10 at high speed (USB 3.2, 9.6.1)
SUPER_RELEASE, HIGH_RELEASE = 0x0320, 0x0210


class Pipe(NamedTuple):
    """A bulk endpoint and its use by UAS; at SuperSpeed its burst and the log2 of its streams."""

    address: int
    usage: int
    burst: int
    streams: int


DATA_IN, DATA_OUT, STATUS, COMMAND = 0x81, 0x02, 0x83, 0x04
PIPES = (Pipe(DATA_IN, 3, 15, 5), Pipe(DATA_OUT, 4, 15, 5), Pipe(STATUS, 2, 15, 5), Pipe(COMMAND, 1, 0, 0))

# one lane at 10 Gb/s, symmetric: the ROM's own values
BOS_CAPABILITIES = (
    struct.pack("<BBBI", 7, CAPABILITY, 2, 0xF41E),  # USB 2.0 extension: link power management
    # SuperSpeed: full, high and super; exit latencies
    struct.pack("<BBBBHBBH", 10, CAPABILITY, 3, 0, 0x0E, 1, 10, 2047),
    struct.pack("<BBBBIHHII", 20, CAPABILITY, 10, 0, 1, 0x1100, 0, 0x000A_4030, 0x000A_40B0),  # SuperSpeedPlus
)


def descriptors(config: Config, speed: Speed, *, attached_scsi: bool) -> Descriptors:
    """Return the device's descriptors; `attached_scsi`: include the second alternate setting."""
    # bMaxPacketSize0 is an exponent at SuperSpeed
    release, ep0 = (SUPER_RELEASE, 9) if speed.super_speed else (HIGH_RELEASE, speed.ep0_bytes)
    ids = config.vendor_id, config.product_id, config.device_release
    device = struct.pack("<BBHBBBBHHHBBBB", 18, DEVICE, release, 0, 0, 0, ep0, *ids, MAKER, PRODUCT, SERIAL, 1)
    body = _interface(0, PIPES[:2], BULK_ONLY) + b"".join(_endpoint(pipe, speed, uas=False) for pipe in PIPES[:2])
    if attached_scsi:
        body += _interface(1, PIPES, ATTACHED_SCSI) + b"".join(_endpoint(pipe, speed, uas=True) for pipe in PIPES)
    configuration = struct.pack("<BBHBBBBB", 9, CONFIGURATION, 9 + len(body), 1, 1, 0, SELF_POWERED, 0) + body
    capabilities = b"".join(BOS_CAPABILITIES)
    bos = struct.pack("<BBHB", 5, BOS, 5 + len(capabilities), len(BOS_CAPABILITIES)) + capabilities
    return Descriptors(
        device, configuration, {SERIAL: config.serial, MAKER: config.usb_maker, PRODUCT: config.usb_product}, bos
    )


def _interface(setting: int, pipes: tuple[Pipe, ...], protocol: int) -> bytes:
    return struct.pack("<BBBBBBBBB", 9, INTERFACE, 0, setting, len(pipes), MASS_STORAGE, SCSI, protocol, 0)


def _endpoint(pipe: Pipe, speed: Speed, *, uas: bool) -> bytes:
    data = struct.pack("<BBBBHB", 7, ENDPOINT, pipe.address, BULK, speed.packet_bytes, 0)
    if speed.super_speed:
        data += struct.pack("<BBBBH", 6, COMPANION, pipe.burst, pipe.streams if uas else 0, 0)
    if uas:
        data += struct.pack("<BBBB", 4, PIPE_USAGE, pipe.usage, 0)
    return data
