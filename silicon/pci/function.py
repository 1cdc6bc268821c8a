"""The configuration space of a PCI Express function: header, BARs, capabilities, power states, MSI. Knows no vendor."""

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
STATUS_ERRORS = 0xF900  # parity, target abort, master abort, system error: a written 1 clears
ROM_OFFSET = {
    regs.PCI_HEADER_TYPE_NORMAL: regs.PCI_ROM_ADDRESS,
    regs.PCI_HEADER_TYPE_BRIDGE: regs.PCI_ROM_ADDRESS1,
}


@dataclass(frozen=True, slots=True)
class Bits:
    """A dword of configuration space: its value after reset, what a write changes, what a written 1 clears, what
    survives a reset.
    """

    offset: int
    value: int = 0
    writable: int = 0
    clears: int = 0
    sticky: int = 0


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability structure at `offset`; offsets of its dwords count from there. `version` above 0: an extended one.

    The lower half of the first dword (id and pointer, or id, version and pointer) is made when the list is linked.
    """

    name: str
    number: int
    offset: int
    words: tuple[Bits, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Bar:
    """A base address register. `sizes_mib`: what a resizable BAR offers, in MiB, smallest first."""

    index: int
    size_bytes: int
    kind: int = regs.PCI_BASE_ADDRESS_MEM_TYPE_64 | regs.PCI_BASE_ADDRESS_MEM_PREFETCH
    sizes_mib: tuple[int, ...] = ()

    @property
    def wide(self) -> bool:
        """Whether it takes two registers."""
        memory = not self.kind & regs.PCI_BASE_ADDRESS_SPACE_IO
        return memory and self.kind & regs.PCI_BASE_ADDRESS_MEM_TYPE_MASK == regs.PCI_BASE_ADDRESS_MEM_TYPE_64


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """What a function is, as its card's row says."""

    name: str
    vendor_id: int
    device_id: int
    class_code: int  # base class, sub-class, programming interface: 0x030000 is a VGA controller
    revision: int = 0
    subsystem: tuple[int, int] = (0, 0)
    bars: tuple[Bar, ...] = ()
    rom_bytes: int = 0
    capabilities: tuple[Capability, ...] = ()
    interrupt_pin: int = 1
    header_type: int = regs.PCI_HEADER_TYPE_NORMAL
    multifunction: bool = False


class ConfigSpace:
    """4 KiB of registers, by byte, with what a bus write may change and hooks by dword."""

    def __init__(self) -> None:
        self._value = bytearray(SIZE)
        self._reset = bytearray(SIZE)
        self._writable = bytearray(SIZE)
        self._clears = bytearray(SIZE)
        self._sticky = bytearray(SIZE)
        self._hooks: dict[int, Callable[[int, int], None]] = {}

    def define(self, bits: Bits) -> None:
        """Set a dword's reset value and what may be done to it; bits defined before at the same place stay defined."""
        at = slice(bits.offset, bits.offset + 4)
        parts = (self._reset, bits.value), (self._writable, bits.writable), (self._clears, bits.clears)
        for store, mask in (*parts, (self._sticky, bits.sticky)):
            store[at] = (int.from_bytes(store[at], "little") | mask).to_bytes(4, "little")
        self._value[at] = self._reset[at]

    def on_write(self, offset: int, hook: Callable[[int, int], None]) -> None:
        """Call `hook(old, new)` after a write changed or touched the dword at `offset`."""
        self._hooks[offset] = hook

    def get(self, offset: int, size_bytes: int = 4) -> int:
        """Return what is stored: the function's own hand."""
        return int.from_bytes(self._value[offset : offset + size_bytes], "little")

    def put(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Store: the function's own hand, which may change what a bus write cannot."""
        self._value[offset : offset + size_bytes] = value.to_bytes(size_bytes, "little")

    def restore(self, saved: bytes, skip: frozenset[int]) -> None:
        """Put back what a bus write may change, of all dwords but those at `skip`; status bits stay as they are, no
        hook runs.
        """
        for at in range(0, SIZE, 4):
            if at not in skip:
                writable = int.from_bytes(self._writable[at : at + 4], "little")
                self.put(at, self.get(at) & ~writable | int.from_bytes(saved[at : at + 4], "little") & writable)

    def mask(self, offset: int, writable: int) -> None:
        """Say anew which bits of a dword a bus write changes."""
        self._writable[offset : offset + 4] = writable.to_bytes(4, "little")

    def reset(self, keep_sticky: bool) -> None:
        """Return to the reset values; sticky bits survive all but a loss of power."""
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
    """One PCI Express function: what the host sees of it, and what it lets its device do.

    `present` is false while the link above is down or a reset is held; then the host reads all ones and writes vanish.
    """

    def __init__(self, row: FunctionRow, interrupts: Interrupts | None = None) -> None:
        self.row = row
        self.config = ConfigSpace()
        self.interrupts = Interrupts() if interrupts is None else interrupts
        self.present = True
        self.places = {cap.name: cap.offset for cap in row.capabilities}
        self.sizes = {bar.index: bar.size_bytes for bar in row.bars}
        self.on_reset: Callable[[str], None] = lambda kind: None
        self.on_change: Callable[[], None] = lambda: (
            None
        )  # bus mastering, decoding, power state or a BAR's size changed
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
        control = 0x0073 << 16 if bridge else 0  # parity, SERR, bus reset and master-abort mode of a bridge
        define(Bits(regs.PCI_INTERRUPT_LINE, 0xFF | row.interrupt_pin << 8, 0xFF | control))

    def _link(self) -> None:
        """Chain the capabilities in the order of the row and lay out their registers."""
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
        """Make the address bits of a BAR match its size; an address that it holds loses its lower bits."""
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

    # --- what the host does -------------------------------------------------------------------------------------
    def read(self, offset: int, size_bytes: int = 4) -> int:
        """Answer a configuration read; all ones while the function is not there."""
        if not self.present:
            _check(offset, size_bytes)
            return (1 << 8 * size_bytes) - 1
        return self.config.read(offset, size_bytes)

    def write(self, offset: int, value: int, size_bytes: int = 4) -> None:
        """Take a configuration write; it vanishes while the function is not there."""
        if self.present:
            self.config.write(offset, value, size_bytes)

    def _changed(self) -> None:
        self._deliver_pending()
        self.on_change()

    def _power(self, old: int, new: int) -> None:
        before, after = old & regs.PCI_PM_CTRL_STATE_MASK, new & regs.PCI_PM_CTRL_STATE_MASK
        if before == D3HOT and after == 0 and not new & regs.PCI_PM_CTRL_NO_SOFT_RESET:
            self.reset("d3hot")  # PCI PM 1.2, 5.4.1: leaving D3hot resets a function that does not promise otherwise
        self._changed()

    def _device_control(self, old: int, new: int) -> None:
        if not new & regs.PCI_EXP_DEVCTL_BCR_FLR:
            return
        place = self.places["express"]
        self.config.put(place + regs.PCI_EXP_DEVCTL, new & ~regs.PCI_EXP_DEVCTL_BCR_FLR)  # always reads 0
        if self.resettable:
            self.reset("flr")

    def _resize(self, old: int, new: int) -> None:
        """Take a size from a resizable BAR control register. PCI Express 4.0, 7.8.6.3."""
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

    # --- what the device asks -----------------------------------------------------------------------------------
    @property
    def command(self) -> int:
        """The command register."""
        return self.config.get(regs.PCI_COMMAND, 2)

    @property
    def power_state(self) -> int:
        """0 for D0 up to 3 for D3hot."""
        place = self.places.get("pm")
        return 0 if place is None else self.config.get(place + regs.PCI_PM_CTRL) & regs.PCI_PM_CTRL_STATE_MASK

    @property
    def decodes_memory(self) -> bool:
        """Whether memory requests to its BARs are answered."""
        return self.present and bool(self.command & regs.PCI_COMMAND_MEMORY) and self.power_state == 0

    @property
    def masters_bus(self) -> bool:
        """Whether it may send requests: DMA and MSI."""
        return self.present and bool(self.command & regs.PCI_COMMAND_MASTER) and self.power_state == 0

    @property
    def decodes_rom(self) -> bool:
        """Whether its expansion ROM is answered."""
        enabled = self.config.get(ROM_OFFSET[self.row.header_type]) & regs.PCI_ROM_ADDRESS_ENABLE
        return self.decodes_memory and bool(enabled) and bool(self.row.rom_bytes)

    def bar_address(self, index: int) -> int:
        """Return the bus address a BAR was given."""
        at = regs.PCI_BASE_ADDRESS_0 + 4 * index
        low = self.config.get(at) & ~(0x3 if self._bars[index].kind & regs.PCI_BASE_ADDRESS_SPACE_IO else 0xF)
        return low | (self.config.get(at + 4) << 32 if self._bars[index].wide else 0)

    @property
    def resettable(self) -> bool:
        """Whether it has a reset of its own (FLR)."""
        place = self.places.get("express")
        return place is not None and bool(self.config.get(place + regs.PCI_EXP_DEVCAP) & regs.PCI_EXP_DEVCAP_FLR)

    def unsupported_request(self) -> None:
        """Log that a request was for it and could not be answered: device status and AER. PCI Express 4.0, 6.2."""
        if not self.present:
            return
        if (place := self.places.get("express")) is not None:
            status = place + regs.PCI_EXP_DEVSTA
            self.config.put(status, self.config.get(status, 2) | regs.PCI_EXP_DEVSTA_URD, 2)
        if (place := self.places.get("aer")) is not None:
            status = place + regs.PCI_ERR_UNCOR_STATUS
            self.config.put(status, self.config.get(status) | regs.PCI_ERR_UNC_UNSUP)

    def interrupt(self, vector: int = 0) -> None:
        """Signal the host: by MSI when enabled, else by INTx; a masked vector stays pending until it is unmasked."""
        place = self.places.get("msi")
        flags = 0 if place is None else self.config.get(place + regs.PCI_MSI_FLAGS, 2)
        if place is None or not flags & regs.PCI_MSI_FLAGS_ENABLE:
            self._intx()
            return
        vector %= 1 << (flags & regs.PCI_MSI_FLAGS_QSIZE) // 0x10  # a power of two of vectors was granted
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
        """Take the INTx level back: the device's cause is gone."""
        status = self.config.get(regs.PCI_STATUS, 2)
        self.config.put(regs.PCI_STATUS, status & ~regs.PCI_STATUS_INTERRUPT, 2)

    def _deliver_pending(self) -> None:
        """Send what a mask bit or a missing bus master held back."""
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
        """Write configuration space back as a host does after a reset: sizes of BARs first; the power state stays what
        the reset made it.
        """
        skip = set()
        if (place := self.places.get("pm")) is not None:
            skip.add(place + regs.PCI_PM_CTRL)
        if (place := self.places.get("resizable bar")) is not None:
            for number in range(self.config.get(place + 8) >> 5 & 7):
                at = place + 8 + 8 * number
                control = int.from_bytes(saved[at : at + 4], "little")
                bar, size_mib = self._bars[control & regs.PCI_REBAR_CTRL_BAR_IDX], 1 << (control >> 8 & 0x3F)
                if size_mib in bar.sizes_mib:  # one that is not offered was written, and not taken
                    self.config.put(at, control)
                    self.sizes[bar.index] = size_mib << 20
        for bar in self.row.bars:
            self._lay_bar(bar)
        self.config.restore(saved, frozenset(skip))
        self._changed()

    def reset(self, kind: str) -> None:
        """Reset the function: `flr`, `d3hot`, `hot` or `power`. Its device hears of it through `on_reset`."""
        self.sizes = {bar.index: bar.size_bytes for bar in self.row.bars}
        self.config.reset(keep_sticky=kind != "power")
        for bar in self.row.bars:
            self._lay_bar(bar)
        self.interrupts.clear()
        self.on_reset(kind)
        self.on_change()


def _bits(word: int) -> Iterable[int]:
    return (bit for bit in range(32) if word >> bit & 1)
