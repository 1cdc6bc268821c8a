"""A Radeon's registers: the register BAR, the index registers for what lies beyond it, and typed access by block.

Addresses: a register's place is (dword offset, segment); the discovery table gives a block's segment bases in dwords;
their sum times four is a byte offset in BAR 5, or an SMN address when BAR 5 ends before it. A card of several I/O dies
(AIDs) has the same 32-bit addresses on each; bits above them select the die. Source: amdgpu soc15_common.h,
SOC15_REG_OFFSET; amdgpu_device.c, amdgpu_device_indirect_rreg and _rreg_ext; aqua_vanjaram.c,
aqua_vanjaram_encode_ext_smn_addressing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ringup.autogen.amd.nbio import RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE
from ringup.autogen.layout import Word
from ringup.drivers.transport import bars
from ringup.drivers.transport.seam import Device, Mmio
from ringup.drivers.transport.wait import until
from ringup.errors import DeviceLost, FirmwareError, NotSupported
from ringup.firmware.stated import named

W = TypeVar("W", bound=Word)
V = TypeVar("V", bound=Word)
T = TypeVar("T")
Version = tuple[int, int, int]
ONES = 0xFFFF_FFFF
REGISTER_BAR = 5
NO_VENDOR = 0xFFFF
# The bus interface's facts and bases that amdgpu_discovery.c has compiled in: mmRCC_CONFIG_MEMSIZE 0xde3
NBIO_EVERYWHERE = ((4, 3, 0), (0x0, 0x14, 0xD20))
MAX_AIDS = 4
LAST_ADDRESS = 0xFFFF_FFFC  # what the index register takes: 32 bits, a byte address of a dword
SILENT = "registers read all ones though the card is on the bus: it sleeps or hangs; reset its slot or power it off"
POLL_US = 10  # between two reads of a wait: a read over PCIe itself takes about 1


class FarIndex(NamedTuple):
    """Byte offsets of the registers that reach addresses beyond the BAR. `high`: for bits 39:32; None: there is
    none.
    """

    select: int
    data: int
    high: int | None = None


# RSMU_INDEX and RSMU_DATA: dwords 0x14 and 0x15 of nbio_4_3_0_offset.h, segment 0
RSMU = FarIndex(0x50, 0x54)


def die_address(aid: int) -> int:
    """Return the bits of an address that select an I/O die: bit 34 for another die than the first, 33:32 for which."""
    if not 0 <= aid < MAX_AIDS:
        raise ValueError(f"a card has I/O dies 0 to {MAX_AIDS - 1}, not {aid}")
    return aid << 32 | 1 << 34 if aid else 0


class Registers:
    """The register BAR of one card. It counts accesses. When a register reads all ones, it checks whether the card is
    still there and its registers answer.

    The registers of a card that is on the bus may not answer: its firmware has hung, its power is off, or its window
    was moved. To tell that from a register that holds all ones, the size of memory is read, which never does.
    """

    def __init__(self, device: Device) -> None:
        self.device, self.clock = device, device.clock
        self._mmio: Mmio = bars.window(device, REGISTER_BAR)
        self._size_bytes = self._mmio.size_bytes
        self.reads = self.writes = 0
        self._returning = False
        self.far = RSMU
        # what the index's high half holds, and whether it may stay so between two accesses
        self._high, self._stays = 0, False
        base, segments = NBIO_EVERYWHERE
        offset, segment = RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE.place(base)
        self._memory_size = 4 * (segments[segment] + offset)

    def read(self, address: int) -> int:
        """Read the register at a byte address. Raises `DeviceLost` when the card is gone."""
        self.reads += 1
        if address < self._size_bytes:
            value = self._mmio.read32(address)
        else:
            self._select(address)
            value = self._mmio.read32(self.far.data)
            self._unselect()
        if value == ONES:
            self.check(f"reading register {address:#x}")
        return value

    def read_all(self, addresses: Sequence[int]) -> list[int]:
        """Read several registers, one after another; one round trip on a slow link. Raises `DeviceLost` when the card
        is gone.
        """
        if any(address >= self._size_bytes for address in addresses):
            return [self.read(address) for address in addresses]
        self.reads += len(addresses)
        with self._mmio.batch() as batch:
            replies = [batch.read32(address) for address in addresses]
        values = [reply.value for reply in replies]
        if ONES in values:
            self.check(f"reading {len(addresses)} registers from {addresses[0]:#x} on")
        return values

    def push(self, address: int) -> None:
        """Read a register so that writes posted before have arrived; its value is not used."""
        if self.device.remote is None:
            self.read(address)
        else:
            self.reads += 1
            self.device.remote.push(REGISTER_BAR, address)

    def write(self, address: int, value: int) -> None:
        """Write the register at a byte address."""
        self.writes += 1
        if address < self._size_bytes:
            self._mmio.write32(address, value)
            return
        self._select(address)
        self._mmio.write32(self.far.data, value)
        self._unselect()

    def _select(self, address: int) -> None:
        """Point the index registers at an address beyond the BAR. Raises `NotSupported` for another die where nothing
        selects it.
        """
        self.writes += 1
        self._mmio.write32(self.far.select, address & ONES)
        if address > ONES and self.far.high is None:
            raise NotSupported(f"{self.device.name}: register {address:#x} lies on another die, which is not reached")
        self._select_die(address >> 32)

    def _select_die(self, high: int) -> None:
        """Write the high half of the index where it is another."""
        if high != self._high and self.far.high is not None:
            self.writes += 1
            self._mmio.write32(self.far.high, high)
            self._high = high

    def _unselect(self) -> None:
        """Select the first die again, which whoever uses the index next expects."""
        if not self._stays:
            self._select_die(0)

    @contextmanager
    def far_run(self) -> Iterator[None]:
        """Leave a die selected between two accesses inside; the first one is selected again at the end."""
        self._stays = True
        try:
            yield
        finally:
            self._stays = False
            self._unselect()

    def write_run(self, address: int, values: Sequence[int]) -> None:
        """Write registers that follow one another, the first at a byte address; one round trip on a slow link."""
        if address + 4 * len(values) > self._size_bytes:
            for at, value in enumerate(values):
                self.write(address + 4 * at, value)
            return
        self.writes += len(values)
        with self._mmio.batch() as batch:
            for at, value in enumerate(values):
                batch.write32(address + 4 * at, value)

    @property
    def answer(self) -> bool:
        """Whether registers read as registers; false while the chip is in reset, sleeps or hangs. Never raises."""
        return self._mmio.read32(self._memory_size) != ONES

    @contextmanager
    def returning(self) -> Iterator[None]:
        """Accept reads of all ones inside: registers return them for a while after a reset of the bus."""
        self._returning = True
        try:
            yield
        finally:
            self._returning = False

    def check(self, doing: str) -> None:
        """Raise `DeviceLost` if the card no longer answers configuration reads or register reads; `doing` is for the
        error.
        """
        self.check_link(doing)
        if not self._returning and not self.answer:
            raise DeviceLost(f"{doing}: {self.device.name}: {SILENT}")

    def check_link(self, doing: str) -> None:
        """Raise `DeviceLost` if the card no longer answers configuration reads. Registers are not read: a card that
        sleeps has none.
        """
        if self.device.lost or self.device.config.read(0, 2) == NO_VENDOR:
            raise DeviceLost(f"{doing}: {self.device.name} {self.device.why_lost}")


class Block:
    """The registers of one instance of a block: words in, words out.

    `version` picks the row of a word's module; `bases` are the discovery table's, in dwords by segment. `plus_dwords`
    reaches a sibling of the named register: another VM context, invalidation engine, SDMA queue. `aid`: the I/O die
    that the bases count from, where the table gives those of the first die alone.
    """

    def __init__(
        self, registers: Registers, name: str, version: Version, bases: Sequence[int], *, aid: int = 0
    ) -> None:
        self.registers, self.name, self.version, self.bases = registers, name, version, tuple(bases)
        self._die = die_address(aid)
        self._addresses: dict[type[Word], int] = {}

    def address(self, word: type[Word], plus_dwords: int = 0) -> int:
        """Return the byte address of a register."""
        at = self._addresses.get(word)
        if at is None:
            offset, segment = self._known(lambda: word.place(self.version))
            if segment >= len(self.bases):
                raise FirmwareError(
                    f"{self.name} has {len(self.bases)} segments by the card's discovery table, {word.__name__} lies in segment {segment}"
                )
            at = (self.bases[segment] + offset) * 4
            if at > LAST_ADDRESS:
                raise FirmwareError(
                    f"{self.name}: segment {segment} begins at dword {named(self.bases[segment])} by the card's discovery table, so "
                    f"{word.__name__} would lie at {at:#x}; no register lies beyond {LAST_ADDRESS:#x}"
                )
            at = self._addresses[word] = at | self._die
        return at + plus_dwords * 4

    def typed(self, word: type[W]) -> type[W]:
        """Return a register's word as this version lays it out."""
        return self._known(lambda: word.at(self.version))

    def _known(self, look: Callable[[], T]) -> T:
        """Look a word up by the version that the card reports. Raises `NotSupported` for a version without facts."""
        try:
            return look()
        except ValueError as error:
            raise NotSupported(
                f"{self.name} is version {'.'.join(map(str, self.version))} by the card's discovery table: {error}"
            ) from error

    def read(self, word: type[W], plus_dwords: int = 0) -> W:
        """Read a register as its word of this version."""
        return self.typed(word)(self.registers.read(self.address(word, plus_dwords)))

    def write(self, word: Word, plus_dwords: int = 0) -> None:
        """Write a register."""
        self.registers.write(self.address(type(word).BASE or type(word), plus_dwords), int(word))

    def write_pair(self, low: type[Word], high: type[Word], value: int, plus_dwords: int = 0) -> None:
        """Write a number of up to 64 bits to the two registers that hold its halves. Raises a `ValueError` for bits
        that they do not have.
        """
        self.write(self.typed(low)(value & ONES), plus_dwords)
        self.write(self.typed(high)(value >> 32), plus_dwords)

    def read_pair(self, low: type[Word], high: type[Word], plus_dwords: int = 0) -> int:
        """Read the number whose halves two registers hold."""
        return int(self.read(low, plus_dwords)) | int(self.read(high, plus_dwords)) << 32

    def distance(self, first: type[Word], second: type[Word]) -> int:
        """Return the dwords from a register to its sibling: the stride of contexts, engines, queues."""
        return (self.address(second) - self.address(first)) // 4

    def update(self, word: type[W], plus_dwords: int = 0, /, **fields: int) -> W:
        """Change fields of a register and leave the others; return what was written."""
        changed = self.read(word, plus_dwords).replace(**fields)
        self.write(changed, plus_dwords)
        return changed

    def ensure(self, word: type[W], plus_dwords: int = 0, /, **fields: int) -> W:
        """Change fields of a register as `update` does, but write nothing if all are so already; return what it holds.

        Only for registers of plain settings: a write may also start something, or clear a bit that reads 1.
        """
        seen = self.read(word, plus_dwords)
        wanted = seen.replace(**fields)
        if wanted != seen:
            self.write(wanted, plus_dwords)
        return wanted

    def make(self, word: type[W], /, **fields: int) -> W:
        """Make a word as this version lays it out, unnamed fields zero."""
        return self.typed(word)(**fields)

    def read_both(self, first: type[W], second: type[V]) -> tuple[W, V]:
        """Read two registers, one after the other; one round trip on a slow link."""
        one, other = self.registers.read_all([self.address(first), self.address(second)])
        return self.typed(first)(one), self.typed(second)(other)

    def ensure_each(self, word: type[Word], places: Sequence[int], /, **fields: int) -> list[int]:
        """Change fields of a register and its siblings, each `places` dwords on, as `ensure` does: all are read, then
        those that differ are written. Return the places of those.
        """
        addresses = [self.address(word, place) for place in places]
        typed, changed = self.typed(word), []
        for place, address, value in zip(places, addresses, self.registers.read_all(addresses), strict=True):
            wanted = int(typed(value).replace(**fields))
            if wanted != value:
                self.registers.write(address, wanted)
                changed.append(place)
        return changed

    def push(self, word: type[Word]) -> None:
        """Read a register only to push posted writes."""
        self.registers.push(self.address(word))

    def wait(
        self,
        word: type[W],
        done: Callable[[W], bool],
        timeout_us: int,
        doing: str,
        plus_dwords: int = 0,
        poll_us: float = POLL_US,
    ) -> W:
        """Read a register until `done(word)`; return the word. Raises `DeviceTimeout` after `timeout_us`
        (microseconds).

        `poll_us` lies between two reads: longer for what takes milliseconds.
        """
        value = self.read(word, plus_dwords)
        if done(value):
            return value
        return until(
            lambda: self.read(word, plus_dwords),
            done,
            clock=self.registers.clock,
            timeout_us=timeout_us,
            poll_us=poll_us,
            doing=doing,
            describe=lambda seen: f"{word.__name__} read 0x{int(seen):08x} ({seen!r})",
        )

    @contextmanager
    def selecting(self, restore: Word) -> Iterator[Callable[[Word], None]]:
        """Give what writes a selector (`GRBM_GFX_CNTL`, `GRBM_GFX_INDEX`) for the block's banked registers, as often as
        wanted; `restore` is written once at the end.
        """
        try:
            yield self.write
        finally:
            self.write(restore)

    @contextmanager
    def selected(self, select: Word, restore: Word) -> Iterator[None]:
        """Write one selector for the block's banked registers, and `restore` at the end."""
        with self.selecting(restore) as choose:
            choose(select)
            yield
