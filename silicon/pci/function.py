"""The configuration space of a PCI Express function: header, BARs, capabilities, power states, MSI. It is
vendor-neutral.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ringup.autogen.linux import pci as regs
from ringup.silicon.common.interrupts import Interrupts

SIZE = regs.PCI_CFG_SPACE_EXP_SIZE
ONES = 0xFFFF_FFFF
D3HOT = 3
COMMAND_WRITABLE = (
    regs.PCI_COMMAND_IO
    | regs.PCI_COMMAND_MEMORY
    | regs.PCI_COMMAND_MASTER
    | regs.PCI_COMMAND_PARITY
    | regs.PCI_COMMAND_SERR
    | regs.PCI_COMMAND_INTX_DISABLE
)
# parity, target abort, master abort, system error: cleared by writing 1
STATUS_ERRORS = 0xF900
ROM_OFFSET = {
    regs.PCI_HEADER_TYPE_NORMAL: regs.PCI_ROM_ADDRESS,
    regs.PCI_HEADER_TYPE_BRIDGE: regs.PCI_ROM_ADDRESS1,
}


@dataclass(frozen=True, slots=True)
class Bits:
    """A dword of configuration space: value after reset; bits that writes change; bits that writing 1 clears; bits that
    survive a reset.
    """

    offset: int
    value: int = 0
    writable: int = 0
    clears: int = 0
    sticky: int = 0


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability structure at `offset`; offsets of its dwords count from there. `version` above 0 makes it an
    extended one.

    Linking the list creates the lower half of the first dword (id and pointer, or id, version and pointer).
    """

    name: str
    number: int
    offset: int
    words: tuple[Bits, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Bar:
    """A base address register. `sizes_mib`: the sizes that a resizable BAR offers, in MiB, smallest first."""

    index: int
    size_bytes: int
    kind: int = regs.PCI_BASE_ADDRESS_MEM_TYPE_64 | regs.PCI_BASE_ADDRESS_MEM_PREFETCH
    sizes_mib: tuple[int, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether the BAR takes two registers."""
        memory = not self.kind & regs.PCI_BASE_ADDRESS_SPACE_IO
        return memory and self.kind & regs.PCI_BASE_ADDRESS_MEM_TYPE_MASK == regs.PCI_BASE_ADDRESS_MEM_TYPE_64


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """The properties of a function, in its card's row."""

    name: str
    vendor_id: int
    device_id: int
    # base class, sub-class, programming interface: 0x030000 is a VGA controller
    class_code: int
    revision: int = 0
    subsystem: tuple[int, int] = (0, 0)
    bars: tuple[Bar, ...] = ()
    rom_bytes: int = 0
    capabilities: tuple[Capability, ...] = ()
    interrupt_pin: int = 1
    header_type: int = regs.PCI_HEADER_TYPE_NORMAL
    multifunction: bool = False


class ConfigSpace:
    """4 KiB of registers by byte, with masks for bus writes and hooks by dword."""

    def __init__(self) -> None:
        self._value = bytearray(SIZE)
        self._reset = bytearray(SIZE)
        self._writable = bytearray(SIZE)
        self._clears = bytearray(SIZE)
        self._sticky = bytearray(SIZE)
        self._hooks: dict[int, Callable[[int, int], None]] = {}

    def define(self, bits: Bits) -> None:
        """Add bits to a dword: reset value and masks. Bits from earlier calls stay."""
        at = slice(bits.offset, bits.offset + 4)
        parts = (self._reset, bits.value), (self._writable, bits.writable), (self._clears, bits.clears)
        for store, mask in (*parts, (self._sticky, bits.sticky)):
            store[at] = (int.from_bytes(store[at], "little") | mask).to_bytes(4, "little")
        self._value[at] = self._reset[at]

    def on_write(self, offset: int, hook: Callable[[int, int], None]) -> None:
        """Call `hook(old, new)` after each write to the dword at `offset`."""
        self._hooks[offset] = hook

    def get(self, offset: int, size_bytes: int = 4) -> int:
        """Return stored bytes, for use by the function itself."""
        return int.from_bytes(self._value[offset : offset + size_bytes], "little")

    def put(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Store bytes, for use by the function itself: this may change what bus writes cannot."""
        self._value[offset : offset + size_bytes] = value.to_bytes(size_bytes, "little")

    def restore(self, saved: bytes, skip: frozenset[int]) -> None:
        """Restore the writable bits of all dwords except those at `skip`. Status bits stay as they are; no
        hook runs.
        """
        for at in range(0, SIZE, 4):
            if at not in skip:
                writable = int.from_bytes(self._writable[at : at + 4], "little")
                self.put(at, self.get(at) & ~writable | int.from_bytes(saved[at : at + 4], "little") & writable)

    def mask(self, offset: int, writable: int) -> None:
        """Set which bits of a dword bus writes change."""
        self._writable[offset : offset + 4] = writable.to_bytes(4, "little")

    def reset(self, keep_sticky: bool) -> None:
        """Return to the reset values. With `keep_sticky`, sticky bits survive: always, except in a loss of power."""
        if not keep_sticky:
            self._value[:] = self._reset
            return
        old, new, kept = (int.from_bytes(store, "little") for store in (self._value, self._reset, self._sticky))
        self._value[:] = (old & kept | new & ~kept).to_bytes(SIZE, "little")

    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Read 1, 2 or 4 bytes inside one dword."""
        _check(offset, size_bytes)
        return self.get(offset, size_bytes)

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Write 1, 2 or 4 bytes inside one dword."""
        _check(offset, size_bytes)
        at, shift = offset & ~3, (offset & 3) * 8
        lanes = ((1 << 8 * size_bytes) - 1) << shift
        placed = value << shift & lanes
        old = self.get(at)
        writable, clears = (int.from_bytes(store[at : at + 4], "little") for store in (self._writable, self._clears))
        changes = writable & lanes
        self.put(at, old & ~changes & ~(placed & clears) | placed & changes)
        hook = self._hooks.get(at)
        if hook is not None:
            hook(old, self.get(at))


def _check(offset: int, size_bytes: int) -> None:
    if size_bytes not in (1, 2, 4) or offset % size_bytes or not 0 <= offset <= SIZE - size_bytes:
        raise ValueError(f"no configuration access has {size_bytes} bytes at {offset:#x}")


class Function:
    """One PCI Express function: its configuration space, and what it permits its device to do.

    `present` is false while the link above is down or a reset is held. Then the host reads all ones, and writes are
    dropped.
    """

    def __init__(self, row: FunctionRow, interrupts: Interrupts | None = None) -> None:
        self.row = row
        self.config = ConfigSpace()
        self.interrupts = Interrupts() if interrupts is None else interrupts
        self.present = True
        self.places = {cap.name: cap.offset for cap in row.capabilities}
        self.sizes = {bar.index: bar.size_bytes for bar in row.bars}
        self.on_reset: Callable[[str], None] = lambda kind: None
        # called when bus mastering, decoding, power state or a BAR's size has changed
        self.on_change: Callable[[], None] = lambda: None
        self.on_mistake: Callable[[str], None] = lambda text: None
        self._bars = {bar.index: bar for bar in row.bars}
        self._header()
        self._link()
        for bar in row.bars:
            self.config.define(Bits(regs.PCI_BASE_ADDRESS_0 + 4 * bar.index, bar.kind))
            self._lay_bar(bar)
        self._hook()

    # --- making it ----------------------------------------------------------------------------------------------
    def _header(self) -> None:
        row, define = self.row, self.config.define
        bridge = row.header_type == regs.PCI_HEADER_TYPE_BRIDGE
        define(Bits(regs.PCI_VENDOR_ID, row.vendor_id | row.device_id << 16))
        status = regs.PCI_STATUS_CAP_LIST if row.capabilities else 0
        define(Bits(regs.PCI_COMMAND, status << 16, COMMAND_WRITABLE, STATUS_ERRORS << 16))
        define(Bits(regs.PCI_CLASS_REVISION, row.class_code << 8 | row.revision))
        kind = row.header_type | (regs.PCI_HEADER_TYPE_MFD if row.multifunction else 0)
        define(Bits(regs.PCI_CACHE_LINE_SIZE, kind << 16, writable=0xFF))
        if bridge:
            define(Bits(regs.PCI_PRIMARY_BUS, writable=0x00FF_FFFF))
            define(Bits(regs.PCI_IO_BASE, 0x0101, 0xF0F0, STATUS_ERRORS << 16))
            define(Bits(regs.PCI_MEMORY_BASE, writable=0xFFF0_FFF0))
            define(Bits(regs.PCI_PREF_MEMORY_BASE, 0x0001_0001, 0xFFF0_FFF0))
            for upper in (regs.PCI_PREF_BASE_UPPER32, regs.PCI_PREF_LIMIT_UPPER32, regs.PCI_IO_BASE_UPPER16):
                define(Bits(upper, writable=ONES))
        else:
            define(Bits(regs.PCI_SUBSYSTEM_VENDOR_ID, row.subsystem[0] | row.subsystem[1] << 16))
        if row.rom_bytes:
            mask = ~(row.rom_bytes - 1) & regs.PCI_ROM_ADDRESS_MASK
            define(Bits(ROM_OFFSET[row.header_type], writable=mask | regs.PCI_ROM_ADDRESS_ENABLE))
        # parity, SERR, bus reset and master-abort mode of a bridge
        control = 0x0073 << 16 if bridge else 0
        define(Bits(regs.PCI_INTERRUPT_LINE, 0xFF | row.interrupt_pin << 8, 0xFF | control))

    def _link(self) -> None:
        """Chain the capabilities in the row's order and define their registers."""
        plain = [cap for cap in self.row.capabilities if not cap.version]
        extended = [cap for cap in self.row.capabilities if cap.version]
        self.config.define(Bits(regs.PCI_CAPABILITY_LIST, plain[0].offset if plain else 0))
        for caps, is_extended in ((plain, False), (extended, True)):
            pointers = [*(cap.offset for cap in caps[1:]), 0]
            for cap, pointer in zip(caps, pointers, strict=False):
                first = cap.number | (cap.version << 16 | pointer << 20 if is_extended else pointer << 8)
                self.config.define(Bits(cap.offset, first))
                for word in cap.words:
                    place = cap.offset + word.offset
                    self.config.define(Bits(place, word.value, word.writable, word.clears, word.sticky))

    def _lay_bar(self, bar: Bar) -> None:
        """Set the writable address bits of a BAR according to its size, and clear the lower bits of its address."""
        at = regs.PCI_BASE_ADDRESS_0 + 4 * bar.index
        mask = ~(self.sizes[bar.index] - 1)
        self.config.mask(at, mask & ONES & ~0xF)
        self.config.put(at, self.config.get(at) & (mask | 0xF))
        if bar.wide:
            self.config.mask(at + 4, mask >> 32 & ONES)
            self.config.put(at + 4, self.config.get(at + 4) & mask >> 32 & ONES)

    def _hook(self) -> None:
        on_write = self.config.on_write
        on_write(regs.PCI_COMMAND, lambda old, new: self._changed())
        if (place := self.places.get("pm")) is not None:
            on_write(place + regs.PCI_PM_CTRL, self._power)
        if (place := self.places.get("express")) is not None:
            on_write(place + regs.PCI_EXP_DEVCTL, self._device_control)
        if (place := self.places.get("msi")) is not None:
            for offset in range(place, place + 24, 4):
                on_write(offset, lambda old, new: self._changed())
        if (place := self.places.get("resizable bar")) is not None:
            for number in range(self.config.get(place + 8) >> 5 & 7):
                on_write(place + 8 + 8 * number, self._resize)

    # --- accesses by the host -----------------------------------------------------------------------------------
    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Handle a configuration read; all ones while the function is not present."""
        if not self.present:
            _check(offset, size_bytes)
            return (1 << 8 * size_bytes) - 1
        return self.config.read(offset, size_bytes)

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Handle a configuration write; it is dropped while the function is not present."""
        if self.present:
            self.config.write(offset, value, size_bytes)

    def _changed(self) -> None:
        self._deliver_pending()
        self.on_change()

    def _power(self, old: int, new: int) -> None:
        before, after = old & regs.PCI_PM_CTRL_STATE_MASK, new & regs.PCI_PM_CTRL_STATE_MASK
        if before == D3HOT and after == 0 and not new & regs.PCI_PM_CTRL_NO_SOFT_RESET:
            # PCI PM 1.2, 5.4.1: leaving D3hot resets a function without No_Soft_Reset
            self.reset("d3hot")
        self._changed()

    def _device_control(self, old: int, new: int) -> None:
        if not new & regs.PCI_EXP_DEVCTL_BCR_FLR:
            return
        place = self.places["express"]
        self.config.put(place + regs.PCI_EXP_DEVCTL, new & ~regs.PCI_EXP_DEVCTL_BCR_FLR)  # always reads 0
        if self.resettable:
            self.reset("flr")

    def _resize(self, old: int, new: int) -> None:
        """Apply a size written to a resizable BAR control register. PCI Express 4.0, 7.8.6.3."""
        place = self.places["resizable bar"]
        for number in range(self.config.get(place + 8) >> 5 & 7):
            control = self.config.get(place + 8 + 8 * number)
            bar = self._bars[control & regs.PCI_REBAR_CTRL_BAR_IDX]
            size_mib = 1 << (control >> 8 & 0x3F)
            if size_mib << 20 == self.sizes[bar.index]:
                continue
            if size_mib not in bar.sizes_mib:
                self.on_mistake(f"BAR {bar.index} was given {size_mib} MiB, which it does not offer")
                continue
            if self.command & regs.PCI_COMMAND_MEMORY:
                self.on_mistake(f"BAR {bar.index} was resized while memory decoding was on")
            self.sizes[bar.index] = size_mib << 20
            self._lay_bar(bar)
        self._changed()

    # --- state for the device -----------------------------------------------------------------------------------
    @property
    def command(self) -> int:
        """The command register."""
        return self.config.get(regs.PCI_COMMAND, 2)

    @property
    def power_state(self) -> int:
        """The power state: 0 for D0 up to 3 for D3hot."""
        place = self.places.get("pm")
        return 0 if place is None else self.config.get(place + regs.PCI_PM_CTRL) & regs.PCI_PM_CTRL_STATE_MASK

    @property
    def decodes_memory(self) -> bool:
        """Whether it answers memory requests to its BARs."""
        return self.present and bool(self.command & regs.PCI_COMMAND_MEMORY) and self.power_state == 0

    @property
    def masters_bus(self) -> bool:
        """Whether it may send requests: DMA and MSI."""
        return self.present and bool(self.command & regs.PCI_COMMAND_MASTER) and self.power_state == 0

    @property
    def decodes_rom(self) -> bool:
        """Whether it answers reads of its expansion ROM."""
        enabled = self.config.get(ROM_OFFSET[self.row.header_type]) & regs.PCI_ROM_ADDRESS_ENABLE
        return self.decodes_memory and bool(enabled) and bool(self.row.rom_bytes)

    def bar_address(self, index: int) -> int:
        """Return the bus address of a BAR."""
        at = regs.PCI_BASE_ADDRESS_0 + 4 * index
        low = self.config.get(at) & ~(0x3 if self._bars[index].kind & regs.PCI_BASE_ADDRESS_SPACE_IO else 0xF)
        return low | (self.config.get(at + 4) << 32 if self._bars[index].wide else 0)

    @property
    def resettable(self) -> bool:
        """Whether it has a function level reset (FLR)."""
        place = self.places.get("express")
        return place is not None and bool(self.config.get(place + regs.PCI_EXP_DEVCAP) & regs.PCI_EXP_DEVCAP_FLR)

    def unsupported_request(self) -> None:
        """Record an unsupported request in device status and AER. PCI Express 4.0, 6.2."""
        if not self.present:
            return
        if (place := self.places.get("express")) is not None:
            status = place + regs.PCI_EXP_DEVSTA
            self.config.put(status, self.config.get(status, 2) | regs.PCI_EXP_DEVSTA_URD, 2)
        if (place := self.places.get("aer")) is not None:
            status = place + regs.PCI_ERR_UNCOR_STATUS
            self.config.put(status, self.config.get(status) | regs.PCI_ERR_UNC_UNSUP)

    def interrupt(self, vector: int = 0) -> None:
        """Signal the host: by MSI if enabled, else by INTx. A masked vector stays pending until it is unmasked."""
        place = self.places.get("msi")
        flags = 0 if place is None else self.config.get(place + regs.PCI_MSI_FLAGS, 2)
        if place is None or not flags & regs.PCI_MSI_FLAGS_ENABLE:
            self._intx()
            return
        # the number of granted vectors is a power of two
        vector %= 1 << (flags & regs.PCI_MSI_FLAGS_QSIZE) // 0x10
        if flags & regs.PCI_MSI_FLAGS_MASKBIT and self.config.get(place + regs.PCI_MSI_MASK_64) >> vector & 1:
            pending = place + regs.PCI_MSI_PENDING_64
            self.config.put(pending, self.config.get(pending) | 1 << vector)
        elif self.masters_bus:
            self.interrupts.deliver(vector)
        else:
            self.on_mistake("an MSI could not be sent: bus mastering is off")

    def _intx(self) -> None:
        if not self.row.interrupt_pin:
            return
        status = self.config.get(regs.PCI_STATUS, 2)
        self.config.put(regs.PCI_STATUS, status | regs.PCI_STATUS_INTERRUPT, 2)
        if not self.command & regs.PCI_COMMAND_INTX_DISABLE:
            self.interrupts.deliver(0)

    def intx_done(self) -> None:
        """Deassert INTx: the device's cause is gone."""
        status = self.config.get(regs.PCI_STATUS, 2)
        self.config.put(regs.PCI_STATUS, status & ~regs.PCI_STATUS_INTERRUPT, 2)

    def _deliver_pending(self) -> None:
        """Send vectors that a mask bit or disabled bus mastering held back."""
        place = self.places.get("msi")
        if place is None:
            return
        flags = self.config.get(place + regs.PCI_MSI_FLAGS, 2)
        if not flags & regs.PCI_MSI_FLAGS_MASKBIT or not flags & regs.PCI_MSI_FLAGS_ENABLE or not self.masters_bus:
            return
        mask, pending = (self.config.get(place + at) for at in (regs.PCI_MSI_MASK_64, regs.PCI_MSI_PENDING_64))
        self.config.put(place + regs.PCI_MSI_PENDING_64, pending & mask)
        for vector in _bits(pending & ~mask):
            self.interrupts.deliver(vector)

    def save(self) -> bytes:
        """Return configuration space, for `restore` after a reset."""
        return b"".join(self.config.get(at).to_bytes(4, "little") for at in range(0, SIZE, 4))

    def restore(self, saved: bytes) -> None:
        """Restore configuration space as a host does after a reset: sizes of BARs first. The power state stays as after
        the reset.
        """
        skip = set()
        if (place := self.places.get("pm")) is not None:
            skip.add(place + regs.PCI_PM_CTRL)
        if (place := self.places.get("resizable bar")) is not None:
            for number in range(self.config.get(place + 8) >> 5 & 7):
                at = place + 8 + 8 * number
                control = int.from_bytes(saved[at : at + 4], "little")
                bar, size_mib = self._bars[control & regs.PCI_REBAR_CTRL_BAR_IDX], 1 << (control >> 8 & 0x3F)
                # the guest may have written a size that is not offered
                if size_mib in bar.sizes_mib:
                    self.config.put(at, control)
                    self.sizes[bar.index] = size_mib << 20
        for bar in self.row.bars:
            self._lay_bar(bar)
        self.config.restore(saved, frozenset(skip))
        self._changed()

    def reset(self, kind: str) -> None:
        """Reset the function: `flr`, `d3hot`, `hot` or `power`. `on_reset` tells its device."""
        self._clear(keep_sticky=kind != "power")
        self.on_reset(kind)
        self.on_change()

    def forget(self) -> None:
        """Lose configuration space, in a reset that the device itself has done."""
        self._clear(keep_sticky=True)
        self.on_change()

    def _clear(self, *, keep_sticky: bool) -> None:
        self.sizes = {bar.index: bar.size_bytes for bar in self.row.bars}
        self.config.reset(keep_sticky=keep_sticky)
        for bar in self.row.bars:
            self._lay_bar(bar)
        self.interrupts.clear()


def _bits(word: int) -> Iterable[int]:
    return (bit for bit in range(32) if word >> bit & 1)
