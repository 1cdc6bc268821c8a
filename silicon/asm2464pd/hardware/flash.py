"""The SPI flash of an ASM2464PD: NOR cells that only an erase sets, and how firmware and mask ROM read and write it.

Source: handmade/e4_flash.py (commands, 64 KiB erase, pages of 128 bytes), the stock image 240417 (what E1 and E3 do to
the cells).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware.flash_image import (
    CONFIG_BYTES,
    COPIES,
    COPY_BYTES,
    ERASED,
    IMAGE_AT,
    Config,
    body_of,
    copy_bytes,
    parse_config,
)
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.common.faults import FaultKind, Faults

BLOCK_BYTES = 0x1_0000  # command D8
PAGE_BYTES = 256  # a program command wraps inside its page
PROGRAM_BYTES = 128  # bytes that firmware programs at a time
# UNKNOWN: the chips' size; the firmware addresses this much
BYTES = COPIES * COPY_BYTES
# GUESS: a block of a usual serial NOR flash, typical
ERASE_US = 150_000
PROGRAM_US = 400  # GUESS: half a page of it, typical
# protection bits in the chip's status register. UNKNOWN: which are set in the factory; here all
PROTECTED = 0x1C
# GUESS: half a page at the bridge's clock
READ_US = 10

WRITE_FAILS, BAD_PAGE, POWER_LOST = "flash_write_fails", "flash_bad_page", "flash_power_lost"
FAULTS = (
    FaultKind(WRITE_FAILS, "a program or erase of the flash reports failure", "how many times; -1: always"),
    FaultKind(BAD_PAGE, "a page of the flash accepts programs without changing its cells", "byte address in the page"),
    FaultKind(POWER_LOST, "the enclosure loses power while the flash is written", "bytes programmed until then"),
)


class PowerLost(Exception):
    """Power was lost during an operation: nothing in progress ends. It never leaves the bridge."""


class SpiFlash:
    """The cells. `protection`: the chip's block protection bits; while any is set, programs and erases are ignored.

    `on_mistake` reports operations without effect. `erase_block` and `program` take effect at once; the jobs further
    down let their time pass.
    """

    def __init__(self, faults: Faults, content: bytes = b"") -> None:
        """`content`: the first bytes; the rest is erased."""
        if len(content) > BYTES:
            raise ValueError(f"{len(content)} bytes do not fit a flash of {BYTES}")
        faults.know(*FAULTS)
        self.protection = PROTECTED
        self.on_mistake: Callable[[str], None] = lambda text: None
        self.cells = bytearray(content.ljust(BYTES, bytes([ERASED])))
        self._faults = faults

    def read(self, address: int, size_bytes: int) -> bytes:
        """Return cells; reading past the end wraps around, as in such chips."""
        start = address % BYTES
        first = bytes(self.cells[start : start + size_bytes])
        return first + bytes(self.cells[: size_bytes - len(first)])

    def erase_block(self, address: int) -> bool:
        """Erase the 64 KiB block that contains `address`: set its bits. Return False if the chip reports failure."""
        if self._faults.take(WRITE_FAILS):
            return False
        if self._ignores("an erase"):
            return True
        start = address % BYTES // BLOCK_BYTES * BLOCK_BYTES
        lost = self._faults.reached(POWER_LOST, 0)
        self.cells[start : start + BLOCK_BYTES] = bytes([ERASED]) * BLOCK_BYTES
        if lost:
            raise PowerLost
        return True

    def program(self, address: int, data: bytes) -> bool:
        """Clear bits within one page, at whose end the address wraps. Return False if the chip reports failure."""
        if self._faults.take(WRITE_FAILS):
            return False
        if self._ignores("a program"):
            return True
        page = address % BYTES // PAGE_BYTES * PAGE_BYTES
        bad = self._faults.get(BAD_PAGE)
        if bad is not None and page <= bad < page + PAGE_BYTES:
            return True
        places = [page + (address + index) % PAGE_BYTES for index in range(len(data))]
        if any(value & ~self.cells[place] for place, value in zip(places, data, strict=True)):
            self.on_mistake(f"the flash was programmed at {address:#07x} over cells that were not erased")
        left = self._faults.get(POWER_LOST)
        count = len(data) if left is None else min(len(data), max(0, left))
        for place, value in zip(places[:count], data, strict=False):
            self.cells[place] &= value
        if self._faults.reached(POWER_LOST, len(data)):
            raise PowerLost
        return True

    def _ignores(self, what: str) -> bool:
        if self.protection:
            self.on_mistake(f"the flash ignores {what}: its blocks are protected")
        return bool(self.protection)

    # --- operations of firmware and ROM: jobs for the CPU -----------------------------------------------------------
    def fetch(self, address: int, size_bytes: int) -> Job[bytes]:
        """Read cells."""
        yield READ_US * -(-size_bytes // PROGRAM_BYTES)
        return self.read(address, size_bytes)

    def write(self, address: int, data: bytes) -> Job[bool]:
        """Program any number of bytes, 128 at a time, without an erase. Return False if the chip reports failure."""
        for at in range(0, len(data), PROGRAM_BYTES):
            if not self.program(address + at, data[at : at + PROGRAM_BYTES]):
                return False
            yield PROGRAM_US
        return True

    def erase_copy(self, copy: int) -> Job[bool]:
        """Clear the protection and erase both 64 KiB blocks of a copy. Return False if the chip reports failure."""
        self.protection = 0
        for half in (0, BLOCK_BYTES):
            if not self.erase_block(copy * COPY_BYTES + half):
                return False
            yield ERASE_US
        return True

    # --- contents ---------------------------------------------------------------------------------------------------
    def config(self, copy: int = 0) -> Config | None:
        """Return the configuration in block 0 of a copy; None if it is invalid."""
        at = copy * COPY_BYTES
        return parse_config(bytes(self.cells[at : at + CONFIG_BYTES]))

    def body(self, copy: int = 0) -> bytes | None:
        """Return the firmware of a copy; None if its container is invalid."""
        at = copy * COPY_BYTES
        return body_of(memoryview(self.cells)[at + IMAGE_AT : at + COPY_BYTES])

    def boot(self, second_copy: bool = False) -> tuple[int, bytes] | None:
        """Return what the mask ROM starts: number and body of a copy; None if it stays in its loader.

        UNKNOWN: whether the ROM tries the second copy. By default it does not, which is stricter; with `second_copy` it
        does.
        """
        for copy in range(COPIES if second_copy else 1):
            body = self.body(copy)
            if body is not None:
                return copy, body
        return None


def filled(faults: Faults, image: bytes, config: Config, both: bool = False) -> SpiFlash:
    """Return a flash as from the factory; `both`: the second copy equals the first."""
    copy = copy_bytes(image, config.pack())
    return SpiFlash(faults, copy * (COPIES if both else 1))
