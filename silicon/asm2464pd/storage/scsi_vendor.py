"""The vendor commands of the stock firmware, E0 to E8: chip memory, flash, reset.

Source: the handlers of the stock image 240417; extra/usbgpu/patch.py and cyrozap's Notes.md for what hosts send.
"""

from __future__ import annotations

from ringup.silicon.asm2464pd.hardware.flash_image import CONFIG_BYTES, COPY_BYTES, IMAGE_AT, PART_ONE_BYTES
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.asm2464pd.storage.scsi import (
    BAD_FIELD,
    BAD_OPCODE,
    BYTE_US,
    NEVER,
    REPLY,
    Command,
    Device,
    Ending,
    Plan,
    Request,
    Sense,
)

SELECTS = (0x50, 0x51)
RESTART = 0x50
# in byte 1 of E2 and E3: the image's second part
PART_TWO = 0x80
PART_TWO_AT = 0x1_0000
PART_LIMIT = 0x1_0000
# source of the second: code 0x3300 and 0x33B6 of the image
FLASH_READ_FAILED, FLASH_WRITE_FAILED = Sense(3, 0x11), Sense(3, 0x03)
NVME_LOG, NVME_IDENTIFY = 0x02, 0x06
LENGTH = slice(2, 6)  # of E2 and E3


def _read_config(device: Device, request: Request) -> Job[Plan]:
    select, block = request.cdb[1], request.cdb[2]
    if select not in SELECTS or request.asked != CONFIG_BYTES:
        return Plan(BAD_FIELD)
    if block > 1:
        return Plan(FLASH_READ_FAILED)
    data = yield from device.flash.fetch((select & 1) * COPY_BYTES + block * CONFIG_BYTES, CONFIG_BYTES)
    return Plan(send=data)


def _write_config(device: Device, request: Request) -> Job[Plan]:
    """Write a configuration block. QUIRK: block 0 first erases both 64 KiB of its copy, including the image; block 1
    and E3 erase nothing. ORDER: block 0, block 1, image.
    """
    select, block = request.cdb[1], request.cdb[2]
    yield 0
    if select not in SELECTS:
        return Plan(BAD_FIELD)
    copy, flash = select & 1, device.flash

    def finish(data: bytes) -> Job[Ending]:
        if request.asked > CONFIG_BYTES:
            return BAD_FIELD
        done = block == 1 or (block == 0 and (yield from flash.erase_copy(copy)))
        done = done and (yield from flash.write(copy * COPY_BYTES + block * CONFIG_BYTES, data))
        return None if done else FLASH_WRITE_FAILED

    return Plan(take_bytes=CONFIG_BYTES if request.queued else max(CONFIG_BYTES, request.asked), finish=finish)


def _part(request: Request) -> int | None:
    """Return the offset in the flash of the image part that byte 1 names; None if it names none."""
    select = request.cdb[1]
    if select & ~PART_TWO not in SELECTS:
        return None
    return (select & 1) * COPY_BYTES + (PART_TWO_AT if select & PART_TWO else IMAGE_AT)


def _read_flash(device: Device, request: Request) -> Job[Plan]:
    start = _part(request)
    if start is None or request.asked > PART_LIMIT:
        return Plan(BAD_FIELD)
    data = yield from device.flash.fetch(start, request.asked)
    return Plan(send=data if data else None)


def _write_flash(device: Device, request: Request) -> Job[Plan]:
    yield 0
    start = _part(request)
    limit = PART_LIMIT if request.cdb[1] & PART_TWO else PART_ONE_BYTES
    if start is None or request.asked > limit:
        return Plan(BAD_FIELD)
    at, flash = start, device.flash

    def finish(data: bytes) -> Job[Ending]:
        done = yield from flash.write(at, data)
        return None if done else FLASH_WRITE_FAILED

    return Plan(take_bytes=request.asked, finish=finish)


def _read_memory(device: Device, request: Request) -> Job[Plan]:
    """Copy bytes to the reply buffer one by one, then send it. A register's read side effect occurs once; reads of the
    buffer itself return bytes copied before.
    """
    count, select, address = request.cdb[1], request.cdb[2], int.from_bytes(request.cdb[3:5], "big")
    if select not in SELECTS:
        return Plan(BAD_FIELD)
    read, write = device.xdata.read, device.xdata.write
    for at in range(count):
        write(REPLY + at, read(address + at & 0xFFFF, select & 1))
    yield BYTE_US * count
    return Plan(send=bytes(read(REPLY + at) for at in range(count)))


def _write_memory(device: Device, request: Request) -> Job[Plan]:
    yield 0
    if request.cdb[2] not in SELECTS:
        return Plan(BAD_FIELD)
    device.xdata.write(int.from_bytes(request.cdb[3:5], "big"), request.cdb[1], request.cdb[2] & 1)
    return Plan()


def _nvme_admin(device: Device, request: Request) -> Job[Plan]:
    """Send an admin command to the device below. That is no SSD, so the command never ends if a medium seems to be
    present.
    """
    yield 0
    bad = None if request.cdb[1] in (NVME_LOG, NVME_IDENTIFY) else BAD_FIELD
    return Plan(device.not_ready() or bad or NEVER)


def _reset(device: Device, request: Request) -> Job[Plan]:
    yield 0
    if request.cdb[1] not in SELECTS:
        return Plan(BAD_OPCODE)
    return Plan(after=device.power.restart if request.cdb[1] == RESTART else device.power.detach)


TABLE = {
    0xE0: Command(_read_config, CONFIG_BYTES),
    0xE1: Command(_write_config, CONFIG_BYTES),
    0xE2: Command(_read_flash, LENGTH),
    0xE3: Command(_write_flash, LENGTH),
    0xE4: Command(_read_memory, slice(1, 2)),
    0xE5: Command(_write_memory),
    0xE6: Command(_nvme_admin, 0x1000),
    0xE8: Command(_reset),
}
