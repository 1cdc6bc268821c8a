"""The bridge's serial flash controller: registers C8A1 to C8AF, which a host can also drive by XDATA writes, under any
firmware.

Source: asm2464pd-firmware handmade/e4_flash.py and src/flash.h (order of registers, switches, limits), registers.h; its
issue 83 for USB 2.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.flash import ERASE_US, PROGRAM_BYTES, PROGRAM_US, PROTECTED, PowerLost, SpiFlash

CLOCKS, READY_SWITCH, SPI_SWITCH = (0xCC33, 0x04), (0xCA81, 0x01), (0xC805, 0x02)  # must be on
ADDRESS_LOW, ADDRESS_MIDDLE, LENGTH_HIGH, LENGTH_LOW = 0xC8A1, 0xC8A2, 0xC8A3, 0xC8A4
DIVIDER, CONTROL, COMMAND, ADDRESS_HIGH, ADDRESS_MODE, MODE, OFFSET = (
    0xC8A6,
    0xC8A9,
    0xC8AA,
    0xC8AB,
    0xC8AC,
    0xC8AD,
    0xC8AE,
)
GO, WRITES, WITH_ADDRESS = 0x01, 0x01, 0x07
# makes the bulk OUT endpoint fill the buffer
ARM, ARM_OUT = 0x9094, 0x10
BUFFER, BUFFER_BYTES = 0x7000, 0x1000
# bytes of a packet that reach the buffer at USB 2
HIGH_SPEED_BYTES = 64
# GUESS: a command and its address at the controller's clock
TRANSACTION_US = 5.0
BYTE_US = 0.1  # GUESS
IN_PROGRESS, WRITE_ENABLED = 0x01, 0x02  # in the flash chip's status register
JEDEC_ID = bytes.fromhex("ef4012")  # GUESS: some chip of 256 KiB
OTP_BYTES = 16
# at USB 2 every third read begins with a byte of the previous one
STALE_READS = 3


class FlashController:
    """Executes one flash command when C8A9 is written; data passes through the buffer at 7000. `otp`: the flash chip's
    one-time area.
    """

    def __init__(self, chip: Chip, flash: SpiFlash, otp: bytes = b"") -> None:
        self._chip, self._flash = chip, flash
        flash.on_mistake = lambda text: chip.log.note("bridge", "violation", "{}", text)
        self._otp = otp.ljust(OTP_BYTES, b"\xff")
        self._in_otp = self._enabled = False
        self._busy_until_ns = self._free_at_ns = 0
        self._reads = 0
        xdata = chip.xdata
        for first, last in ((ADDRESS_LOW, LENGTH_LOW), (DIVIDER, DIVIDER), (COMMAND, OFFSET + 1)):
            xdata.storage(first, last)
        for address, _ in (CLOCKS, READY_SWITCH, SPI_SWITCH):
            xdata.storage(address, address)
        xdata.on_read(CONTROL, lambda: GO if self._now_ns < self._busy_until_ns else 0)
        xdata.on_write(CONTROL, self._go)
        xdata.on_write(ARM, self._arm)
        self._commands: dict[int, Callable[[int, int], None]] = {
            0x01: self._write_status,
            0x02: self._program,
            0x03: self._read,
            0x04: lambda address, length: self._enable(False),
            0x05: lambda address, length: self._fill_buffer(bytes([self._status()]) * length),
            0x06: lambda address, length: self._enable(True),
            0x9F: lambda address, length: self._fill_buffer(JEDEC_ID[:length]),
            0xB1: lambda address, length: self._enter_otp(True),
            0xC1: lambda address, length: self._enter_otp(False),
            0xD8: self._erase,
        }

    @property
    def _now_ns(self) -> int:
        return self._chip.clock.now_ns

    # --- registers --------------------------------------------------------------------------------------------------
    def _go(self, value: int) -> None:
        get = self._chip.xdata.get
        if not value & GO:
            return
        if any(not get(address) & bits for address, bits in (CLOCKS, READY_SWITCH, SPI_SWITCH)):
            self._complain("was started while CC33, CA81 or C805 keep it off")
            return
        if self._now_ns < self._busy_until_ns:
            self._complain("was started while it was busy")
            return
        command = self._commands.get(get(COMMAND))
        length = get(LENGTH_HIGH) << 8 | get(LENGTH_LOW)
        self._busy_until_ns = self._now_ns + round(1_000 * (TRANSACTION_US + BYTE_US * length))
        if self._now_ns < self._free_at_ns and get(COMMAND) != 0x05:
            self._complain("sent the flash chip a command during a program or erase: the chip ignores it")
        elif command is None:
            self._complain(f"sent the flash chip command {get(COMMAND):#04x}, which it does not know")
        else:
            command(get(ADDRESS_HIGH) << 16 | get(ADDRESS_MIDDLE) << 8 | get(ADDRESS_LOW), length)

    def _complain(self, what: str) -> None:
        self._chip.log.note("bridge", "violation", "the flash controller {}", what)

    def _arm(self, value: int) -> None:
        if value == ARM_OUT:
            self._chip.out(0x02).arm(self._chip.speed.packet_bytes, self._packet)

    def _packet(self, data: bytes, complete: bool, more: bool) -> None:
        reaches = data if self._chip.speed.super_speed else data[:HIGH_SPEED_BYTES]
        self._chip.xdata.put_bytes(BUFFER, reaches)

    # --- commands of the flash chip -----------------------------------------------------------------------------------
    def _status(self) -> int:
        busy = self._now_ns < self._free_at_ns
        return IN_PROGRESS * busy | WRITE_ENABLED * self._enabled | self._flash.protection

    def _fill_buffer(self, data: bytes) -> None:
        self._chip.xdata.put_bytes(BUFFER, data[:BUFFER_BYTES])

    def _enable(self, on: bool) -> None:
        self._enabled = on

    def _enter_otp(self, on: bool) -> None:
        self._in_otp = on

    def _spend(self, time_us: float) -> bool:
        """Clear the write enable; return whether it was set."""
        enabled, self._enabled = self._enabled, False
        if enabled:
            self._free_at_ns = self._now_ns + round(1_000 * time_us)
        else:
            self._complain("sent a program or erase without a write enable: the chip ignores it")
        return enabled

    def _read(self, address: int, length: int) -> None:
        if self._chip.xdata.get(ADDRESS_MODE) != WITH_ADDRESS:
            self._complain("sent a read without its address")
            return
        length = min(length, BUFFER_BYTES)
        data = (
            self._otp[address : address + length].ljust(length, b"\xff")
            if self._in_otp
            else self._flash.read(address, length)
        )
        self._reads += 1
        if not self._chip.speed.super_speed and not self._reads % STALE_READS:
            data = (bytes([self._chip.xdata.get(BUFFER)]) + data)[:length]
        self._fill_buffer(data)

    def _write_status(self, address: int, length: int) -> None:
        if self._spend(PROGRAM_US):
            self._flash.protection = self._chip.xdata.get(BUFFER) & PROTECTED

    def _program(self, address: int, length: int) -> None:
        get = self._chip.xdata.get
        if get(MODE) != WRITES or get(ADDRESS_MODE) != WITH_ADDRESS:
            self._complain("sent a program without its mode or address")
            return
        if length > PROGRAM_BYTES:
            self._complain(
                f"programmed {length} bytes: the firmware's own data is in the buffer after byte {PROGRAM_BYTES}"
            )
        if self._spend(PROGRAM_US) and not self._in_otp:
            data = self._chip.xdata.get_bytes(BUFFER, min(length, PROGRAM_BYTES)).ljust(length, b"\0")
            self._carry_out(lambda: self._flash.program(address, data))

    def _erase(self, address: int, length: int) -> None:
        if self._spend(ERASE_US):
            self._carry_out(lambda: self._flash.erase_block(address))

    def _carry_out(self, action: Callable[[], bool]) -> None:
        try:
            action()
        except PowerLost:
            self._chip.on_power_lost()
