"""A host's side of USB mass storage by the specifications, over pyusb and the virtual host: Bulk-Only and USB Attached
SCSI without a driver.
"""

import struct
from dataclasses import dataclass

import pytest
import usb.core

from ringup.silicon import card as make_card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

CBW_SIGNATURE, CSW_SIGNATURE = b"USBC", b"USBS"
# LIBUSB_ERROR_PIPE: a stall.
PIPE = -9


@dataclass
class Done:
    """How a command ended: the status wrapper's fields, the data received, and the endpoints that stalled on
    the way.
    """

    status: int
    residue: int
    data: bytes
    stalls: list[int]


class StorageHost:
    """One enclosure and a host that uses it. `bot` sends a command over Bulk-Only, `uas` over USB Attached SCSI."""

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
        # The handle that the backend's open_device returned.
        return self.dev._ctx.handle

    @property
    def clock(self):
        return self.enclosure.machine

    # --- Bulk-Only ---------------------------------------------------------------------------------------------------
    def wrapper(self, cdb, length, to_host, lun=0):
        self.tag += 1
        return CBW_SIGNATURE + struct.pack("<IIBBB16s", self.tag, length, 0x80 * to_host, lun, len(cdb), cdb)

    def bot(self, cdb, read=0, data=b"", lun=0):
        """Send a command that reads up to `read` bytes or sends `data`. Clear halts as 5.3 and 6.7 of the specification
        say.
        """
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
        """Send one command with streams; return its status unit and the data received."""
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
    """Make a `StorageHost` whose enclosure has that firmware, with or without a card in its slot. Options are the
    enclosure's.
    """

    def make(firmware="stock", speed="super", card=False, **options):
        inside = make_card("navi31", vram_bytes=64 << 20, enumerated=False) if card else None
        return StorageHost(Enclosure(inside, firmware, speed, **options))

    return make


# --- the open firmware ------------------------------------------------------------------------------------------------
# Format bytes of requests; those to memory have 64-bit addresses.
CONFIG_READ, CONFIG_WRITE, MEMORY_READ, MEMORY_WRITE = 0x04, 0x44, 0x20, 0x60
GPU_BUS = 4
WINDOW_32, WINDOW_64 = 0x1000_0000, 0x8_0000_0000


class OpenBridge:
    """An enclosure with the open firmware, and a host that sends its requests as handmade/src/main.c takes them."""

    def __init__(self, enclosure, host=None, port="1-1"):
        self.enclosure, self.radeon, self.port = enclosure, enclosure.card, port
        self.host = host or VirtualUsbHost(enclosure.machine)
        if enclosure.host is None:
            self.host.plug(enclosure, port)
        self.open()

    def open(self):
        number = self.port.partition("-")[2]
        self.dev = usb.core.find(backend=self.host, custom_match=lambda one: str(one.port_number) == number)
        self.dev.set_configuration()
        self.host.claim_interface(self.dev._ctx.handle, 0)

    @property
    def clock(self):
        return self.enclosure.machine

    @property
    def handle(self):
        return self.dev._ctx.handle

    def peek(self, address, count=1, page=0):
        return bytes(self.dev.ctrl_transfer(0xC0, 0xE4, address, page << 8, count))

    def poke(self, address, *values, page=0):
        for at, value in enumerate(values):
            self.dev.ctrl_transfer(0x40, 0xE5, address + at, page << 8 | value, None)

    def begin(self, kind, address, value=0, enables=0xF, mode=0):
        self.dev.ctrl_transfer(0x40, 0xF0, kind | enables << 8, mode, struct.pack("<QI", address, value))

    def completion(self):
        """Return (data, completion status, byte count, whether it carried data, result)."""
        reply = bytes(self.dev.ctrl_transfer(0xC0, 0xF0, 0, 0, 8, timeout=5000))
        data, high, low, carried, result = struct.unpack("<IBBBB", reply)
        return data, high >> 5, (high & 0xF) << 8 | low, carried, result

    def request(self, kind, address, value=0, enables=0xF):
        self.begin(kind, address, value, enables)
        return self.completion()

    def config_read(self, bus, register, device=0, function=0):
        data, status, _, _, result = self.request(
            CONFIG_READ | (bus > 0), bus << 24 | device << 19 | function << 16 | register
        )
        assert (status, result) == (0, 0)
        return data

    def config_write(self, bus, register, value, enables=0xF):
        _, status, _, _, result = self.request(CONFIG_WRITE | (bus > 0), bus << 24 | register, value, enables)
        assert (status, result) == (0, 0)

    def set_up_buses(self, command=7):
        """Number the buses, open the windows as pcie/pcie_probe.py of the firmware does, and give the GPU's BARs
        addresses.
        """
        for bus in range(GPU_BUS):
            self.config_write(bus, 0x18, bus | bus + 1 << 8 | GPU_BUS << 16)
            self.config_write(bus, 0x20, WINDOW_32 >> 16 | 0xFFF0_0000)
            self.config_write(bus, 0x24, WINDOW_64 >> 16 & 0xFFF0 | 0xFFF0_0000)
            self.config_write(bus, 0x28, WINDOW_64 >> 32)
            self.config_write(bus, 0x2C, 0xFFFF_FFFF)
            self.config_write(bus, 0x04, command, 0x3)
        self.vram, self.doorbells, self.registers = WINDOW_64, WINDOW_64 + (4 << 30), WINDOW_32
        for register, value in (
            (0x10, self.vram & 0xFFFF_FFFF), (0x14, self.vram >> 32), (0x18, self.doorbells & 0xFFFF_FFFF),
            (0x1C, self.doorbells >> 32), (0x24, self.registers),
        ):  # fmt: skip
            self.config_write(GPU_BUS, register, value)
        self.config_write(GPU_BUS, 0x04, command, 0x3)
        return self

    def write(self, address, data, timeout=1000):
        """Write dwords as a stream."""
        self.begin(MEMORY_WRITE, address, len(data) // 4, mode=1)
        return self.dev.write(0x02, data, timeout)

    def read(self, address, size, timeout=1000):
        """Read dwords as a stream."""
        self.begin(MEMORY_READ, address, size // 4, mode=2)
        return bytes(self.dev.read(0x81, size, timeout))

    def arm(self, sectors, first=0, slots=1, to_host=False):
        self.dev.ctrl_transfer(0x40, 0xF2, sectors | to_host << 15, first | slots << 8, None)

    def fill(self, data, first=0, slots=None):
        """Send whole sectors to SRAM."""
        self.arm(len(data) // 512, first, slots or -(-len(data) // 0x4000))
        return self.dev.write(0x02, data)

    def power(self, on):
        self.dev.ctrl_transfer(0x40, 0xF3, int(on), 0, None, timeout=10_000)

    @property
    def sram(self):
        return self.enclosure.chip.sram.view


@pytest.fixture
def bridge():
    """Make an `OpenBridge` with a navi31 in its slot. Options are the enclosure's. Tests check violations
    themselves.
    """

    def make(speed="super_plus", card=True, **options):
        inside = make_card("navi31", vram_bytes=64 << 20, enumerated=False) if card else None
        return OpenBridge(Enclosure(inside, "open", speed, **options))

    return make
