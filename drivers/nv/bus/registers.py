"""An NVIDIA card's registers: BAR 0, and typed access by the chip's rows of the generated facts.

A register's place is a byte offset, or (byte offset, stride, count) for an array; an engine's are relative to its base.
Reads that the bus inside the chip does not answer return 0xbadfxxxx. Source: OGKM published/*/dev_*.h; gpu_access.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ringup.autogen.layout import Word
from ringup.drivers.nv.bus.chips import Chip, identify
from ringup.drivers.nv.bus.words import NV_PMC_BOOT_42, OLDER
from ringup.drivers.transport.seam import Device, Mmio
from ringup.drivers.transport.wait import until
from ringup.errors import DeviceLost, NotSupported

W = TypeVar("W", bound=Word)
ONES = 0xFFFF_FFFF
REGISTER_BAR = 0
# what the driver uses of it: 16 MiB on all chips. Source: Linux nova-core driver.rs, BAR0_SIZE
REGISTER_BYTES = 16 << 20
NO_VENDOR = 0xFFFF
POLL_US = 10  # between two reads of a wait: a read over PCIe itself takes about 1
SILENT = "registers read all ones though the card is on the bus: it sleeps or hangs; reset its slot or power it off"
# The bus inside the chip has no answer for this. Source: OGKM gpu_access.c, GPU_READ_PRI_ERROR_MASK and _CODE
PRI_ERROR, PRI_ERROR_MASK = 0xBADF_0000, 0xFFFF_0000
# NV_VIRTUAL_FUNCTION_PRIV's place in BAR 0, for the physical function. Source: Linux nouveau, vfn of tu102
VIRTUAL_FUNCTION = 0xB8_0000


def is_pri_error(value: int) -> bool:
    """Whether a value says that nothing inside the chip answered the read."""
    return value & PRI_ERROR_MASK == PRI_ERROR


def answers(device: Device) -> bool:
    """Whether a card's registers read as registers; false while the chip is in reset, sleeps or hangs. Never raises."""
    mmio = device.bars.get(REGISTER_BAR)
    return mmio is not None and mmio.read32(0) != ONES


class Registers:
    """The register BAR of one card. It counts accesses. When a register reads all ones, it checks whether the card is
    still there and its registers answer.
    """

    def __init__(self, device: Device) -> None:
        """Raises `NotSupported` for a card without the BAR, or a chip that is not known; `DeviceLost`."""
        self.device, self.clock = device, device.clock
        mmio = device.bars.get(REGISTER_BAR)
        if mmio is None or mmio.size_bytes < REGISTER_BYTES:
            size = 0 if mmio is None else mmio.size_bytes
            raise NotSupported(
                f"{device.name}: BAR {REGISTER_BAR} (its registers) shows {size} bytes, {REGISTER_BYTES} are the least"
            )
        self._mmio: Mmio = mmio
        self.reads = self.writes = 0
        self.chip: Chip = identify(NV_PMC_BOOT_42(self.read(OLDER[NV_PMC_BOOT_42])), device.name)
        self.boot_0 = self.read(0)

    def read(self, address: int) -> int:
        """Read the register at a byte address. Raises `DeviceLost` when the card is gone."""
        self.reads += 1
        value = self._mmio.read32(address)
        if value == ONES:
            self.check(f"reading register {address:#x}")
        return value

    def write(self, address: int, value: int) -> None:
        """Write the register at a byte address."""
        self.writes += 1
        self._mmio.write32(address, value)

    def write_run(self, writes: Sequence[tuple[int, int]]) -> None:
        """Write (byte address, value) pairs in order; one round trip on a slow link."""
        self.writes += len(writes)
        with self._mmio.batch() as batch:
            for address, value in writes:
                batch.write32(address, value)

    def read_run(self, address: int, size_bytes: int) -> bytes:
        """Read whole dwords that follow one another. Raises `DeviceLost` when the card is gone.

        QUIRK: not as a block: that may be read in quadwords, which registers need not answer.
        """
        count = size_bytes // 4
        self.reads += count
        with self._mmio.batch() as batch:
            replies = [batch.read32(at) for at in range(address, address + 4 * count, 4)]
        values = [reply.value for reply in replies]
        if ONES in values[-1:]:
            self.check(f"reading {size_bytes} bytes from register {address:#x} on")
        return struct.pack(f"<{count}I", *values)

    def check(self, doing: str) -> None:
        """Raise `DeviceLost` if the card no longer answers configuration reads or register reads; `doing` is for the
        error.
        """
        if self.device.lost or self.device.config.read(0, 2) == NO_VENDOR:
            raise DeviceLost(f"{doing}: {self.device.name} {self.device.why_lost}")
        if not answers(self.device):
            raise DeviceLost(f"{doing}: {self.device.name}: {SILENT}")


class Block:
    """Some of the chip's registers: words in, words out. `base` is the byte address that their places count from; 0 for
    those that have addresses of their own.
    """

    def __init__(self, registers: Registers, name: str = "", base: int = 0) -> None:
        self.registers, self.name, self.base, self.facts = registers, name, base, registers.chip.facts
        self._places: dict[type[Word], tuple[int, int, int]] = {}

    def address(self, word: type[Word], index: int = 0) -> int:
        """Return the byte address of a register. Raises `NotSupported` for a chip without it, `ValueError` for an index
        outside of an array.
        """
        found = self._places.get(word)
        if found is None:
            found = self._places[word] = self._place(word)
        at, stride, count = found
        if index and (not stride or index < 0 or (count and index >= count)):
            raise ValueError(f"{word.__name__} has {count or 'no'} elements, and none of index {index}")
        return self.base + at + index * stride

    def count(self, word: type[Word]) -> int:
        """Return how many elements an array of registers has; 1 for a single one. Raises as `address`."""
        self.address(word)
        return self._places[word][2] or 1

    def has(self, word: type[Word]) -> bool:
        """Whether the chip has the register, as far as is known."""
        try:
            self.address(word)
        except NotSupported:
            return False
        return True

    def typed(self, word: type[W]) -> type[W]:
        """Return a register's word as this chip lays it out."""
        return word.at(self.facts)

    def read(self, word: type[W], index: int = 0) -> W:
        """Read a register as its word of this chip."""
        return self.typed(word)(self.registers.read(self.address(word, index)))

    def write(self, word: Word, index: int = 0) -> None:
        """Write a register."""
        self.registers.write(self.address(type(word).BASE or type(word), index), int(word))

    def set(self, word: type[Word], value: int = 0, index: int = 0, /, **fields: int) -> None:
        """Write a register from a number, or from fields as this chip has them; the other bits are 0."""
        self.registers.write(self.address(word, index), int(self.typed(word)(value, **fields)))

    def update(self, word: type[W], index: int = 0, /, **fields: int) -> W:
        """Change fields of a register and leave the others; return what was written."""
        changed = self.read(word, index).replace(**fields)
        self.write(changed, index)
        return changed

    def wait(
        self,
        word: type[W],
        done: Callable[[W], bool],
        timeout_us: int,
        doing: str,
        index: int = 0,
        poll_us: float = POLL_US,
        advice: str = "",
    ) -> W:
        """Read a register until `done(word)`; return the word. Raises `DeviceTimeout` after `timeout_us`
        (microseconds).
        """
        value = self.read(word, index)
        if done(value):
            return value
        return until(
            lambda: self.read(word, index),
            done,
            clock=self.registers.clock,
            timeout_us=timeout_us,
            poll_us=poll_us,
            doing=doing,
            describe=lambda seen: f"{word.__name__} read 0x{int(seen):08x} ({seen!r})",
            advice=advice,
        )

    def _place(self, word: type[Word]) -> tuple[int, int, int]:
        try:
            place: Any = word.place(self.facts)
        except ValueError as error:
            raise NotSupported(f"{self.registers.device.name} ({self.registers.chip.name}): {error}") from error
        return place if isinstance(place, tuple) else (place, 0, 0)
