"""A host's side of USB mass storage by the books, over pyusb and the virtual host: Bulk-Only and USB Attached SCSI without any driver."""

import struct
from dataclasses import dataclass

import pytest
import usb.core

from ringup.silicon import card as make_card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

CBW_SIGNATURE, CSW_SIGNATURE = b"USBC", b"USBS"
PIPE = -9  # LIBUSB_ERROR_PIPE: a stall


@dataclass
class Done:
    """How a command ended: the status wrapper's fields, what came, and which endpoints stalled on the way."""

    status: int
    residue: int
    data: bytes
    stalls: list[int]


class StorageHost:
    """One enclosure and the host that talks to it. `bot` sends a command over Bulk-Only, `uas` over USB Attached SCSI."""

    def __init__(self, enclosure):
        self.enclosure = enclosure
        self.host = VirtualUsbHost(enclosure.machine)
        self.host.plug(enclosure)
        self.tag = 0
        self.open()

    def open(self):
        self.dev = usb.core.find(backend=self.host)
        if self.dev.is_kernel_driver_active(0):
            self.dev.detach_kernel_driver(0)
        self.dev.set_interface_altsetting(0, 0)

    @property
    def handle(self):
        return self.dev._ctx.handle  # what the backend's open_device returned

    @property
    def clock(self):
        return self.enclosure.machine

    # --- Bulk-Only ---------------------------------------------------------------------------------------------------
    def wrapper(self, cdb, length, to_host, lun=0):
        self.tag += 1
        return CBW_SIGNATURE + struct.pack("<IIBBB16s", self.tag, length, 0x80 * to_host, lun, len(cdb), cdb)

    def bot(self, cdb, read=0, data=b"", lun=0):
        """Send a command that reads up to `read` bytes or sends `data`, clearing halts as 5.3 and 6.7 say."""
        stalls, got = [], b""
        self.dev.write(0x02, self.wrapper(bytes(cdb), read or len(data), to_host=bool(read), lun=lun))
        try:
            if read:
                got = bytes(self.dev.read(0x81, read))
            elif data:
                self.dev.write(0x02, data)
        except usb.core.USBError as error:
            if error.backend_error_code != PIPE:
                raise
            stalls.append(0x81 if read else 0x02)
            self.dev.clear_halt(stalls[-1])
        return self.status(stalls, got)

    def status(self, stalls, got=b""):
        try:
            csw = bytes(self.dev.read(0x81, 13))
        except usb.core.USBError as error:
            if error.backend_error_code != PIPE:
                raise
            stalls.append(0x81)
            self.dev.clear_halt(0x81)
            csw = bytes(self.dev.read(0x81, 13))
        assert csw[:4] == CSW_SIGNATURE
        tag, residue, status = struct.unpack("<IIB", csw[4:])
        assert tag == self.tag
        return Done(status, residue, got, stalls)

    def sense(self):
        """Ask for sense data; return key, ASC, ASCQ."""
        data = self.bot(bytes.fromhex("030000001200"), 18).data
        return data[2] & 0x0F, data[12], data[13]

    def peek(self, address, count, page=0):
        done = self.bot(struct.pack(">BBBHB", 0xE4, count, 0x50 | page, address, 0), count)
        assert done.status == 0
        return done.data

    def poke(self, address, *values, page=0):
        for at, value in enumerate(values):
            assert self.bot(struct.pack(">BBBHB", 0xE5, value, 0x50 | page, address + at, 0)).status == 0

    # --- USB Attached SCSI --------------------------------------------------------------------------------------------
    def start_uas(self):
        self.dev.set_interface_altsetting(0, 1)
        self.streams = self.host.alloc_streams(self.handle, 31, (0x81, 0x83, 0x02)) if self.super_speed else 0

    @property
    def super_speed(self):
        return self.enclosure.chip.speed.super_speed

    def submit(self, endpoint, payload, tag=0, timeout_ms=2_000):
        stream = tag if self.super_speed and endpoint != 0x04 else 0
        return self.host.submit(self.handle, endpoint, payload, timeout_ms=timeout_ms, stream=stream)

    def wait(self, *transfers):
        while not all(one.done for one in transfers):
            self.host.handle_events(10_000)
        return transfers[-1]

    def send_unit(self, unit):
        assert self.wait(self.submit(0x04, unit)).status == "completed"

    @staticmethod
    def command_unit(tag, cdb, lun=0):
        return struct.pack(">BxHxxBx8s16s", 1, tag, 0, bytes([0, lun, 0, 0, 0, 0, 0, 0]), bytes(cdb))

    def uas(self, cdb, read=0, data=b"", tag=1, lun=0):
        """Send one command with streams; return its status unit and what came."""
        status = self.submit(0x83, 64, tag)
        more = [self.submit(0x81, read, tag)] if read else [self.submit(0x02, data, tag)] if data else []
        self.send_unit(self.command_unit(tag, cdb, lun))
        self.wait(status)
        for transfer in more:
            if not transfer.done and status.data[6:7] != b"\0":
                self.host.cancel(transfer)
            self.wait(transfer)
        return status.data, more[0].data if read else b""

    def manage(self, function, task=0, tag=30, lun=0):
        """Send a task management unit; return the response unit."""
        status = self.submit(0x83, 64, tag)
        self.send_unit(struct.pack(">BxHBxH8s", 5, tag, function, task, bytes([0, lun, 0, 0, 0, 0, 0, 0])))
        return self.wait(status).data


@pytest.fixture
def storage():
    """Make a `StorageHost` with an enclosure of that firmware, with a card in its slot or without; options are the enclosure's."""

    def make(firmware="stock", speed="super", card=False, **options):
        inside = make_card("navi31", vram_bytes=64 << 20, enumerated=False) if card else None
        return StorageHost(Enclosure(inside, firmware, speed, **options))

    return make
