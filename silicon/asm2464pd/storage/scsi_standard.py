"""The standard SCSI commands of the stock firmware, as a host's disk driver sends them.

Source: the stock image 240417, dispatch at code 0x38EE and its handlers; SPC-4 and SBC-3 for the meaning of fields.
"""

from __future__ import annotations

from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.asm2464pd.storage import scsi_pages as pages
from ringup.silicon.asm2464pd.storage.scsi import (
    BAD_FIELD,
    BAD_LUN,
    BAD_OPCODE,
    REPLY,
    Command,
    Device,
    Plan,
    Request,
    Sense,
)

WRITE_CACHE = 0x0000  # XDATA: the WCE bit of MODE SENSE
CAPACITY_VALID, CAPACITY, BLOCK_LENGTH = 0x053E, 0x0543, 0x0549
# byte 0 of inquiry data: no device can be at this LUN
NO_UNIT = 0x7F
SECTOR_BYTES = 512
READ_CAPACITY_16 = 0x10  # service action of 9E
READ_FAILED = Sense(3, 0x11)
LUN_LIST = (8).to_bytes(4, "big") + bytes(12)  # only LUN 0
WRITE_CACHE_PAGE = 8


def _ready(device: Device, request: Request) -> Job[Plan]:
    """TEST UNIT READY, and other commands that only check for a medium."""
    yield 0
    return Plan(device.not_ready())


def _nothing(device: Device, request: Request) -> Job[Plan]:
    """FORMAT UNIT, START STOP UNIT, SEND DIAGNOSTIC, PREVENT ALLOW: succeed without an effect."""
    yield 0
    return Plan()


def _refuse(device: Device, request: Request) -> Job[Plan]:
    yield 0
    return Plan(BAD_OPCODE)


def _request_sense(device: Device, request: Request) -> Job[Plan]:
    if request.cdb[1] & 1:  # descriptor format
        return Plan(BAD_FIELD)
    sense = BAD_LUN if request.lun else device.take_sense()
    return (yield from device.reply(sense.fixed(), request.asked))


def _inquiry(device: Device, request: Request) -> Job[Plan]:
    vital, page = request.cdb[1] & 1, request.cdb[2]
    data: bytes | None = None
    if vital:
        data = pages.vital_product_data(page, device.config)
    elif not page:
        data = pages.standard_inquiry(device.config, removable=device.not_ready() is not None, queuing=request.queued)
    if data is None:
        return Plan(BAD_FIELD)
    if request.lun:
        data = bytes([NO_UNIT]) + data[1:]
    return (yield from device.reply(data, request.asked))


def _mode_sense_6(device: Device, request: Request) -> Job[Plan]:
    control = request.cdb[2] >> 6
    # changeable and default values
    cache = control in (1, 2) or bool(device.xdata.read(WRITE_CACHE))
    data = pages.mode_sense_6(request.cdb[2] & 0x3F, request.cdb[3], cache)
    return Plan(BAD_FIELD) if data is None else (yield from device.reply(data, request.asked))


def _mode_sense_10(device: Device, request: Request) -> Job[Plan]:
    data = pages.mode_sense_10(request.cdb[2] & 0x3F)
    return Plan(BAD_FIELD) if data is None else (yield from device.reply(data, request.asked))


def _mode_select_6(device: Device, request: Request) -> Job[Plan]:
    yield 0

    def finish(data: bytes) -> Job[None]:
        yield 0
        page = data[4 + data[3] :] if len(data) > 3 else b""
        if len(page) > 2 and page[0] & 0x3F == WRITE_CACHE_PAGE:
            device.xdata.write(WRITE_CACHE, int(bool(page[2] & pages.WRITE_CACHE)))

    return Plan(take_bytes=request.asked, finish=finish)


def _report_luns(device: Device, request: Request) -> Job[Plan]:
    if request.asked < len(LUN_LIST):
        return Plan(BAD_FIELD)
    return (yield from device.reply(LUN_LIST, request.asked))


def _capacity(device: Device) -> tuple[int, int] | None:
    """Return the last block and block length of the supposed namespace; None if they are not set."""
    read = device.xdata.read
    if not read(CAPACITY_VALID):
        return None
    last = int.from_bytes(bytes(read(CAPACITY + at) for at in range(4)), "big")
    return last, int.from_bytes(bytes(read(BLOCK_LENGTH + at) for at in range(2)), "big")


def _read_capacity_10(device: Device, request: Request) -> Job[Plan]:
    sense = device.not_ready()
    if sense is None and not request.cdb[8] & 1 and any(request.cdb[2:6]):  # an address without PMI
        sense = BAD_FIELD
    if sense is not None:
        return Plan(sense)
    capacity = _capacity(device)
    # QUIRK: the handler then sends the old contents of the buffer
    if capacity is None:
        data = bytes(device.xdata.read(REPLY + at) for at in range(8))
    else:
        data = capacity[0].to_bytes(4, "big") + capacity[1].to_bytes(4, "big")
    return (yield from device.reply(data, request.asked))


def _service_action_in(device: Device, request: Request) -> Job[Plan]:
    sense = device.not_ready()
    if sense is None and (
        request.cdb[1] & 0x1F not in (0, READ_CAPACITY_16) or (not request.cdb[14] & 1 and any(request.cdb[2:10]))
    ):
        sense = BAD_FIELD
    if sense is not None:
        return Plan(sense)
    last, block = _capacity(device) or (0, 0)
    return (
        yield from device.reply((last.to_bytes(8, "big") + block.to_bytes(4, "big")).ljust(32, b"\0"), request.asked)
    )


def _synchronize(device: Device, request: Request) -> Job[Plan]:
    yield 0
    return Plan(device.not_ready() or (BAD_FIELD if request.cdb[1] & 2 else None))  # IMMED


def _unmap(device: Device, request: Request) -> Job[Plan]:
    yield 0
    return Plan(device.not_ready() or BAD_OPCODE)


def _read(device: Device, request: Request) -> Job[Plan]:
    """UNKNOWN: how a READ ends if a medium seems to be present and no SSD answers. It fails here; no success
    is known.
    """
    yield 0
    return Plan(device.not_ready() or READ_FAILED)


def _write(blocks: slice) -> Command:
    def run(device: Device, request: Request) -> Job[Plan]:
        yield 0
        sense = device.not_ready()
        if sense is not None:
            return Plan(sense)
        return device.bulk.write_plan(int.from_bytes(request.cdb[blocks], "big") * SECTOR_BYTES)

    return Command(run)


# where CDBs of so many bytes have their length
SIX, TEN, TWELVE, SIXTEEN = slice(4, 5), slice(7, 9), slice(6, 10), slice(10, 14)
TABLE = {
    0x00: Command(_ready),
    0x03: Command(_request_sense, SIX, optional=True, any_lun=True),
    0x04: Command(_nothing),
    0x12: Command(_inquiry, slice(3, 5), optional=True, any_lun=True),
    0x15: Command(_mode_select_6, SIX, optional=True),
    0x1A: Command(_mode_sense_6, SIX, optional=True),
    0x1B: Command(_nothing),
    0x1D: Command(_nothing),
    0x1E: Command(_nothing),
    0x25: Command(_read_capacity_10, 8),
    0x28: Command(_read),
    0x2A: _write(TEN),
    0x35: Command(_synchronize),
    0x42: Command(_unmap, TEN, optional=True),
    0x5A: Command(_mode_sense_10, TEN, optional=True),
    0x88: Command(_read),
    0x8A: _write(SIXTEEN),
    0x91: Command(_synchronize),
    0x9E: Command(_service_action_in, SIXTEEN, optional=True),
    0xA0: Command(_report_luns, TWELVE, optional=True, any_lun=True),
    0xA3: Command(_refuse, TWELVE, optional=True),
}
