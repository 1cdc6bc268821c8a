"""The bridge's memory that both USB and the card reach, under the vendor's firmware. The host writes one page byte by
byte, or the SRAM by writes to a drive.

Patched firmware acts as if it had an NVMe drive. Bytes that are written to the drive go into the SRAM, slot after slot,
and stay there for the card to read. Source: tinygrad, tinygrad/runtime/support/usb.py before it dropped this firmware;
docs/asm2464pd.md, "Bulk write path".
"""

from __future__ import annotations

from typing import Protocol

from ringup.drivers.usb4.bridge import SRAM_BUS_ADDR
from ringup.drivers.usb4.landing import Landing
from ringup.drivers.usb4.port import Port
from ringup.drivers.usb4.scsi import Command, Scsi, write_16, xdata_write
from ringup.errors import NotSupported

PAGE_BYTES = 4096
# XDATA: the first page of the SRAM
WINDOW = 0xF000
# XDATA and PCI Express address of the page that would hold a drive's submission queue
QUEUE_PAGE, QUEUE_BUS_ADDR = 0xA000, 0x82_0000
SECTOR_BYTES, SLOT_BYTES = 512, 0x4000
# of one write: a group of slots
CHUNK_BYTES = 4 * SLOT_BYTES
# TIMEOUT: a chunk takes 2 ms at USB 2 speed
WRITE_TIMEOUT_MS = 5_000
# the variables of version 240417 that describe a drive that is ready; written once after the bridge was switched on
POKES = (
    (0x054B, 0x20),  # sectors of a slot
    (0x054E, 0x04),  # slots of a group
    (0x05A8, 0x02),  # unit 0's entry in the port table
    (0x05F8, 0x04),  # that entry's state: ready
    (0x07EC, 0x01),
    (0x07ED, 0x00),
    (0x07EE, 0x00),
    # if it is not zero, every write is refused
    (0x07EF, 0x00),
    (0xC422, 0x02),  # sector size, high byte
    # UNKNOWN: the meaning of this byte
    (0x0000, 0x33),
)
MARKERS = (0x0171, 0x0172, 0x0173)
FREE = 0xFF
TAKEN = (0xCE6E, 0xCE6F)
COUNTERS = (0xCE40, 0xCE41, 0xCE42, 0xCE43)


class Chip(Protocol):
    """The methods of `StockFirmware` that this module uses."""

    port: Port

    def xdata_read(self, address: int, count: int, page: int = 0) -> bytes: ...

    def xdata_write(self, address: int, data: bytes, page: int = 0) -> None: ...

    def settle(self) -> None: ...


class PageBulk:
    """The common part: the host reads bytes from a page of the chip's memory when the card's work is done."""

    size_bytes: int
    progress_bus_addr: int | None = None
    release_bus_addr: int | None = None
    go_bus_addr: int | None = None
    drain_bytes = PAGE_BYTES
    # a dword through a window takes several commands
    min_fill_bytes = 1 << 10
    page = WINDOW

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._armed = 0

    @property
    def total_bytes(self) -> int:
        """All bytes of the memory: every one may be filled."""
        return self.size_bytes

    @property
    def windows(self) -> tuple[range, ...]:
        """One window with all of the memory: the card reads one fill before the next begins."""
        return (range(self.size_bytes),)

    def progress(self) -> int:
        """Raise `NotSupported`: this firmware has no progress word."""
        raise NotSupported("this firmware shows no word that the card could store")

    def tell(self, value: int) -> None:
        """Raise `NotSupported`: with this firmware, drains do not wait for the card, so there is no word to tell it."""
        raise NotSupported("this firmware's drains are not released by the card")

    def arm(self, offset: int, size_bytes: int) -> None:
        """Store how many bytes to read. Nothing is sent."""
        if offset or not 0 < size_bytes <= self.drain_bytes:
            raise ValueError(
                f"1 to {self.drain_bytes} bytes at the start can be drained, not {size_bytes} at {offset:#x}"
            )
        self._armed = size_bytes

    def settle(self, under_way: int) -> None:
        """Wait for all posted commands if `under_way` is 0, else for none: commands are not waited for one by one."""
        if not under_way:
            self._chip.settle()

    def land(self) -> None:
        """Wait until the bytes of all fills have arrived: until all posted commands are done."""
        self._chip.settle()

    def give_up(self) -> None:
        """Do nothing: no engine of this firmware waits for bytes."""

    def drain(self) -> bytes:
        """Read the bytes of the armed drain."""
        size, self._armed = self._armed, 0
        if not size:
            raise ValueError("nothing was armed to be drained")
        return self._chip.xdata_read(self.page, size)


class StockBulk(PageBulk):
    """A `Bulk` of one page. Unpatched firmware lets the host write it with one command a byte. The drive is not used:
    the firmware would wait for a real one for ever.

    Reading a page takes 17 commands; requests for its dwords would take 9,000. Filling it is no faster than writing to
    the card.
    """

    bus_addr, size_bytes = QUEUE_BUS_ADDR, PAGE_BYTES
    page = QUEUE_PAGE

    def fill(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes."""
        if not 0 <= offset <= self.size_bytes - len(data):
            raise ValueError(f"{self.size_bytes} bytes can be filled, not {len(data)} at {offset:#x}")
        if len(data):
            self._chip.xdata_write(self.page + offset, bytes(data))


class PatchedBulk(PageBulk):
    """A `Bulk` of 28 slots. The firmware fills slots in order, from the first one on; the block number has no effect.

    So a fill of a later slot sends the bytes before it again, unchanged: a concurrent reader sees no difference. More
    than a slot is sent in whole chunks of four slots. The last chunk is not used, because it contains the last slot.
    """

    bus_addr, size_bytes = SRAM_BUS_ADDR, 7 * CHUNK_BYTES

    def __init__(self, chip: Chip, scsi: Scsi) -> None:
        super().__init__(chip)
        self._scsi = scsi
        self._ready = False
        self._landing = Landing(chip.port, chip.xdata_read)
        # the present contents of the memory
        self._image = bytearray(self.size_bytes)

    def fill(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes at a slot's start, and the old bytes after them up to the end of the sector or chunk."""
        end = offset + len(data)
        if offset % SLOT_BYTES or not offset < end <= self.size_bytes:
            raise ValueError(f"{len(data)} bytes at {offset:#x}: whole slots up to {self.size_bytes:#x} can be filled")
        if not self._ready:
            self._run(*(xdata_write(address, value) for address, value in POKES))
            # a program that died may have left slots marked as taken
            self._free()
            self._rewind()
            self._ready = True
        self._image[offset:end] = data
        unit = CHUNK_BYTES if end > SLOT_BYTES else SECTOR_BYTES
        sent = bytes(memoryview(self._image)[: -(-end // unit) * unit])
        try:
            for at in range(0, len(sent), CHUNK_BYTES):
                self._free(write_16(sent[at : at + CHUNK_BYTES], WRITE_TIMEOUT_MS))
            self._rewind()
        except BaseException:
            # the next fill sets everything up again
            self._ready = False
            raise

    def land(self) -> None:
        """Wait until the bytes of all fills have arrived."""
        self._landing.wait(lambda mark: self.fill(0, mark))

    def _free(self, *write: Command) -> None:
        """Do a write, if one is given, then free the slots that it took. ORDER: the markers of the slots directly after
        the write, or the next write is never accepted; then the counts.
        """
        self._run(*write, *(xdata_write(address, FREE) for address in MARKERS))
        self._run(*(xdata_write(address, 0) for address in TAKEN))

    def _rewind(self) -> None:
        """Go back to the first slot. ORDER: one register at a time."""
        for address in COUNTERS:
            self._run(xdata_write(address, 0))

    def _run(self, *commands: Command) -> None:
        self._scsi.execute(commands)
