"""SMUIO: the window to the flash that holds the VBIOS, the golden time stamp counter, package straps.

Source: amdgpu smuio_v13_0_6.c, amdgpu_bios.c (amdgpu_soc15_read_bios_from_rom).
"""

from __future__ import annotations

from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.common.cells import ALL, Cells

TSC_UPPER_MASK = 0xFF_FFFF


class Smuio:
    """ROM_INDEX is an address in the flash; each read of ROM_DATA returns a dword and advances it."""

    def __init__(self, board: Board, chip: ChipRow, rom: bytes) -> None:
        self._clock = board.clock
        self._rom = rom
        self._hertz = chip.reference_clock_10khz * 10_000
        self.cells = cells = Cells(board.chip, "smuio")
        # some boards' flash is behind the ROM BAR only
        if "ROM_DATA" in cells:
            cells.on_read("ROM_DATA", self._data)
        if chip.package:
            cells.resets_to("SMUIO_MCM_CONFIG", cells.replace("SMUIO_MCM_CONFIG", 0, PKG_TYPE=chip.package))
        for name, hook in (
            ("GOLDEN_TSC_COUNT_UPPER", lambda: self.ticks() >> 32 & TSC_UPPER_MASK),
            ("GOLDEN_TSC_COUNT_LOWER", lambda: self.ticks() & ALL),
        ):
            cells.on_read(name, hook)
        board.space.attach(cells)

    def reset(self) -> None:
        """Reset the window to the start of the flash; the counter keeps running."""
        self.cells.reset()

    def ticks(self) -> int:
        """Return the golden time stamp counter."""
        return self._clock.ticks(self._hertz)

    def _data(self) -> int:
        index = self.cells["ROM_INDEX"]
        self.cells["ROM_INDEX"] = self.cells.replace("ROM_INDEX", 0, ROM_INDEX=index + 4 & 0x1FF_FFFF)
        word = self._rom[index : index + 4]
        return int.from_bytes(word.ljust(4, b"\xff"), "little")  # erased flash after the image


class Rom:
    """The flash behind the expansion ROM BAR."""

    def __init__(self, image: bytes) -> None:
        self.image = image

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes of the image, and erased flash after its end."""
        return self.image[offset : offset + size_bytes].ljust(size_bytes, b"\xff")

    def check(self, offset: int, size_bytes: int) -> bool:
        """Accept the write; it has no effect."""
        return True

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Ignore the write: flash is not written through its BAR."""
