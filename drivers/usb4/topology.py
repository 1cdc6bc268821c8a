"""Enumeration behind the bridge: number the buses, assign addresses to the card's memory, open the ports on the way to
the card. It is done at every open.

Only the way to one function is opened. The other functions of the board keep decoding off and get no addresses.
Source: PCI Express base specification 4.0, 7.3 and 7.5.1; PCI-to-PCI bridge architecture 1.2, 3.2.5.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringup.autogen.linux import pci
from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.config import Fabric, Place, capability, extended_capability, present
from ringup.errors import LinkDown, NotSupported, TransportError

LOG = logging.getLogger(__name__)
BARS = 6
MIB = 1 << 20
# ports one below another. No board has more: then the answers are nonsense
DEEPEST = 8
DEVICES, FUNCTIONS = 32, 8
LAST_BUS = 0xFF
# base class
DISPLAY = 0x03
# the addresses for the card's memory. The low window does not overlap the bridge's own range, 0x20_0000 to 0x82_FFFF
LOW_START, LOW_END = 0x1000_0000, 0xE000_0000
HIGH_START, HIGH_END = 0x8_0000_0000, 1 << 44
# a port's window whose limit is below its base: no address is in it
CLOSED = 0x0000_FFF0
# TIMEOUT: PCI Express base specification 4.0, 6.6.1: between the end of a reset and the first request
SETTLE_US = 100_000
# PCI-to-PCI bridge architecture 1.2: a secondary bus reset lasts at least a millisecond
PULSE_US = 2_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One memory BAR with its address. `index`: of its first register."""

    index: int
    size_bytes: int
    wide: bool
    prefetchable: bool
    address: int = 0


@dataclass(slots=True)
class Found:
    """A function behind the bridge. If it is a port, `below` holds the functions below it."""

    place: Place
    ids: int  # first dword: device and vendor id
    class_code: int  # 24 bits
    header: int
    port_type: int | None = None
    below: list[Found] = field(default_factory=list)

    @property
    def is_port(self) -> bool:
        """Whether the function is a port, with a bus behind it."""
        return self.header & pci.PCI_HEADER_TYPE_MASK == pci.PCI_HEADER_TYPE_BRIDGE

    @property
    def shown(self) -> str:
        """Ids as they are usually written."""
        return f"{self.ids & 0xFFFF:04x}:{self.ids >> 16:04x}"

    def walk(self, way: tuple[Found, ...] = ()) -> Iterator[tuple[Found, tuple[Found, ...]]]:
        """Yield this function and every function below it, each with the ports above it."""
        yield self, way
        for child in self.below:
            yield from child.walk((*way, self))


@dataclass(frozen=True, slots=True)
class Board:
    """The card's function with its BARs, ROM and the ports on the way to it."""

    function: Found
    way: tuple[Found, ...]
    bars: tuple[Bar, ...]
    rom: Bar | None
    all: tuple[Found, ...]


def find_board(fabric: Fabric) -> Board:
    """Number the buses behind the bridge, find the display function, and open the way to its memory.

    Raises `LinkDown` if nothing answers behind the bridge, `NotSupported` if there is no GPU.
    """
    root = _number(fabric)
    functions = list(root.walk())
    gpu = next(((found, way) for found, way in functions if found.class_code >> 16 == DISPLAY), None)
    if gpu is None:
        seen = ", ".join(f"{found.shown} at {found.place}" for found, _ in functions)
        ends = [found for found, _ in functions if not found.is_port]
        if not ends:
            raise LinkDown(
                f"looking for the card behind the bridge: only ports answer ({seen});"
                " check the card's seat and its power"
            )
        raise NotSupported(f"looking for the card behind the bridge: there is no GPU among {seen}")
    found, way = gpu
    sizes, rom_size = _measure(fabric, found)
    wide = all(_has_wide_window(fabric, port) for port in way)
    bars, rom = _place(sizes, rom_size, wide)
    board = Board(found, way, bars, rom, tuple(each for each, _ in functions))
    open_way(fabric, board)
    return board


# --- buses ------------------------------------------------------------------------------------------------------------
def _number(fabric: Fabric) -> Found:
    first = Place(0, 0, 0)
    if fabric.first_answer(first) is None:
        raise LinkDown("looking behind the bridge: its own port does not answer; switch the enclosure off and on")
    (root,) = _look(fabric, first)
    _descend(fabric, root, 0, 0)
    return root


def _look(fabric: Fabric, *places: Place) -> list[Found]:
    """Read the ids and classes of functions, and the type of ports."""
    wanted = [
        (place, at) for place in places for at in (pci.PCI_VENDOR_ID, pci.PCI_CLASS_REVISION, pci.PCI_CACHE_LINE_SIZE)
    ]
    values = fabric.read(*wanted)
    for (place, _), value in zip(wanted, values, strict=True):
        # these registers of a function are never all ones, and the function answered before
        if value == tlp.ONES:
            raise _gone(place, "looking for the card behind the bridge")
    each = iter(values)
    found = [Found(place, next(each), next(each) >> 8, next(each) >> 16 & 0xFF) for place in places]
    for port in found:
        at = capability(fabric, port.place, pci.PCI_CAP_ID_EXP) if port.is_port else None
        if at is not None:
            (flags,) = fabric.read((port.place, at))
            port.port_type = (flags >> 16 & pci.PCI_EXP_FLAGS_TYPE) >> 4
    return found


def _gone(place: Place, doing: str) -> LinkDown:
    """Make the error for a function that stopped answering during the enumeration."""
    return LinkDown(
        f"{doing}: the function {place} reads as ones now and answered before;"
        " check the card's seat and its power, then open it again"
    )


def _descend(fabric: Fabric, port: Found, last: int, depth: int) -> int:
    """Number the bus below a port and all buses below that one. Return the highest number used."""
    if not port.is_port:
        return last
    if depth == DEEPEST or last == LAST_BUS:
        raise TransportError(
            f"numbering buses: {depth} ports one below another; the bridge answers nonsense: switch it off and on"
        )
    secondary = last + 1
    # one write of all three numbers: others found byte writes unreliable, and with half a range requests go astray
    fabric.write((port.place, pci.PCI_PRIMARY_BUS, port.place.bus | secondary << 8 | LAST_BUS << 16, 4))
    # a link has one device at its other end. Only the bus inside a switch, below its upstream port, has more
    inside = port.port_type == pci.PCI_EXP_TYPE_UPSTREAM
    heads = [Place(secondary, device, 0) for device in range(DEVICES if inside else 1)]
    if not inside and fabric.first_answer(heads[0]) is None:
        heads = []
    answers = present(fabric.read(*((head, 0) for head in heads)))
    port.below = _functions(fabric, [head for head, there in zip(heads, answers, strict=True) if there])
    highest = secondary
    for child in port.below:
        highest = _descend(fabric, child, highest, depth + 1)
    fabric.write((port.place, pci.PCI_PRIMARY_BUS, port.place.bus | secondary << 8 | highest << 16, 4))
    return highest


def _functions(fabric: Fabric, heads: list[Place]) -> list[Found]:
    """Return the functions of devices. `heads`: the first function of each."""
    found = _look(fabric, *heads)
    more = [head.place for head in found if head.header & pci.PCI_HEADER_TYPE_MFD]
    others = [place._replace(function=number) for place in more for number in range(1, FUNCTIONS)]
    answers = present(fabric.read(*((other, 0) for other in others)))
    return found + _look(fabric, *(other for other, there in zip(others, answers, strict=True) if there))


# --- memory -----------------------------------------------------------------------------------------------------------
def _measure(fabric: Fabric, found: Found) -> tuple[list[Bar], Bar | None]:
    """Choose the largest size of resizable BARs, then write ones to all BARs and read which bits are writable. Return
    the BARs and the ROM, without addresses.
    """
    place = found.place
    fabric.write((place, pci.PCI_COMMAND, 0, 2))
    _grow(fabric, place)
    registers = [pci.PCI_BASE_ADDRESS_0 + 4 * index for index in range(BARS)] + [pci.PCI_ROM_ADDRESS]
    probes = [
        tlp.config_write(*place, at, tlp.ONES if at != pci.PCI_ROM_ADDRESS else pci.PCI_ROM_ADDRESS_MASK)
        for at in registers
    ]
    asked = [tlp.config_read(*place, at) for at in registers]
    answers = fabric.exchange([*probes, *asked])[len(probes) :]
    values = [answer.value if answer.status == tlp.SUCCESS else 0 for answer in answers]
    fabric.write(*((place, at, 0, 4) for at in registers))
    # the high half of a wide BAR may be all ones. A low half and the ROM may not: some of their bits hold no address
    if values[BARS] == tlp.ONES:
        raise _gone(place, "measuring the card's BARs")
    bars, index = [], 0
    while index < BARS:
        low = values[index]
        wide = low & pci.PCI_BASE_ADDRESS_MEM_TYPE_MASK == pci.PCI_BASE_ADDRESS_MEM_TYPE_64 and not low & 1
        if low == tlp.ONES:
            raise _gone(place, "measuring the card's BARs")
        if low and not low & pci.PCI_BASE_ADDRESS_SPACE_IO:
            high = values[index + 1] if wide and index + 1 < BARS else tlp.ONES
            size = _size((high << 32 | low) & ~0xF, 64, f"BAR {index} of {place}")
            bars.append(Bar(index, size, wide, bool(low & pci.PCI_BASE_ADDRESS_MEM_PREFETCH)))
        index += 2 if wide else 1
    rom = values[BARS] & pci.PCI_ROM_ADDRESS_MASK
    if not rom:
        return bars, None
    return bars, Bar(BARS, _size(rom, 32, f"the ROM of {place}"), wide=False, prefetchable=False)


def _size(mask: int, bits: int, what: str) -> int:
    """Return the size of a BAR from its writable bits: all bits from that of the size on. Raises `NotSupported` for
    other bits.
    """
    size = -mask & ((1 << bits) - 1)
    if not mask or size & (size - 1):
        raise NotSupported(
            f"measuring {what}: all ones were written and {mask:#x} was read, which is no size;"
            " the card or its link is bad"
        )
    return size


def _grow(fabric: Fabric, place: Place) -> None:
    """Choose the largest size of every resizable BAR."""
    at = extended_capability(fabric, place, pci.PCI_EXT_CAP_ID_REBAR)
    if at is None:
        return
    (control,) = fabric.read((place, at + pci.PCI_REBAR_CTRL))
    if control == tlp.ONES:
        raise _gone(place, "choosing the sizes of the card's BARs")
    count = min(BARS, (control & pci.PCI_REBAR_CTRL_NBAR_MASK) >> pci.PCI_REBAR_CTRL_NBAR_SHIFT)
    for number in range(count):
        here = at + 8 * number
        sizes, control = fabric.read((place, here + pci.PCI_REBAR_CAP), (place, here + pci.PCI_REBAR_CTRL))
        offered = (sizes & pci.PCI_REBAR_CAP_SIZES) >> 4
        if tlp.ONES in (sizes, control):
            raise _gone(place, "choosing the sizes of the card's BARs")
        if offered:
            largest = offered.bit_length() - 1
            changed = control & ~pci.PCI_REBAR_CTRL_BAR_SIZE | largest << pci.PCI_REBAR_CTRL_BAR_SHIFT
            fabric.write((place, here + pci.PCI_REBAR_CTRL, changed, 4))


def _has_wide_window(fabric: Fabric, port: Found) -> bool:
    (window,) = fabric.read((port.place, pci.PCI_PREF_MEMORY_BASE))
    return window & pci.PCI_PREF_RANGE_TYPE_MASK == pci.PCI_PREF_RANGE_TYPE_64


def _place(bars: list[Bar], rom: Bar | None, wide: bool) -> tuple[tuple[Bar, ...], Bar | None]:
    """Assign addresses: above 4 GiB to wide prefetchable BARs if every port has a window there, below to all others."""
    high = [bar for bar in bars if bar.wide and bar.prefetchable and wide]
    low = [bar for bar in bars if bar not in high] + ([rom] if rom else [])
    placed = _lay(high, HIGH_START, HIGH_END) | _lay(low, LOW_START, LOW_END)
    return tuple(placed[bar.index] for bar in bars), placed[rom.index] if rom else None


def _lay(bars: list[Bar], start: int, end: int) -> dict[int, Bar]:
    """Assign addresses to BARs one after another, the largest first. Each address is a multiple of the BAR's size."""
    placed, at = {}, start
    for bar in sorted(bars, key=lambda bar: -bar.size_bytes):
        at = -(-at // bar.size_bytes) * bar.size_bytes
        if at + bar.size_bytes > end:
            raise NotSupported(
                f"BAR {bar.index} of {bar.size_bytes // MIB} MiB has no room between {start:#x} and {end:#x}"
            )
        placed[bar.index] = Bar(bar.index, bar.size_bytes, bar.wide, bar.prefetchable, at)
        at += bar.size_bytes
    return placed


def open_way(fabric: Fabric, board: Board) -> None:
    """Write the addresses, open the windows of every port for them, and let ports pass requests both ways. Bus
    mastering of the function stays off.
    """
    regions = [*board.bars, *([board.rom] if board.rom else [])]
    low = _span([bar for bar in regions if bar.address < tlp.FOUR_GIB])
    high = _span([bar for bar in regions if bar.address >= tlp.FOUR_GIB])
    rows: list[tuple[Place, int, int, int]] = []
    for port in board.way:
        memory = low[0] >> 16 & 0xFFF0 | low[1] & 0xFFF0_0000 if low else CLOSED
        prefetch = high[0] >> 16 & 0xFFF0 | high[1] & 0xFFF0_0000 if high else CLOSED
        upper = (high[0] >> 32, high[1] >> 32) if high else (0, 0)
        rows += [
            (port.place, pci.PCI_MEMORY_BASE, memory, 4),
            (port.place, pci.PCI_PREF_MEMORY_BASE, prefetch, 4),
            (port.place, pci.PCI_PREF_BASE_UPPER32, upper[0], 4),
            (port.place, pci.PCI_PREF_LIMIT_UPPER32, upper[1], 4),
            (port.place, pci.PCI_COMMAND, pci.PCI_COMMAND_MEMORY | pci.PCI_COMMAND_MASTER, 2),
        ]
    place = board.function.place
    for bar in board.bars:
        at = pci.PCI_BASE_ADDRESS_0 + 4 * bar.index
        rows.append((place, at, bar.address & tlp.ONES, 4))
        if bar.wide:
            rows.append((place, at + 4, bar.address >> 32, 4))
    if board.rom:
        rows.append((place, pci.PCI_ROM_ADDRESS, board.rom.address, 4))
    rows.append((place, pci.PCI_COMMAND, pci.PCI_COMMAND_MEMORY, 2))
    fabric.write(*rows)


def _span(bars: list[Bar]) -> tuple[int, int] | None:
    """Return the addresses of the first and the last MiB that contain BARs: the windows of ports count in MiB."""
    if not bars:
        return None
    first = min(bar.address for bar in bars) // MIB * MIB
    return first, (max(bar.address + bar.size_bytes for bar in bars) - 1) // MIB * MIB


# --- resets -----------------------------------------------------------------------------------------------------------
def reset_slot(fabric: Fabric, board: Board) -> None:
    """Reset the whole board through the last of the bridge's own ports. Number its buses and open the way again."""
    port = slot_port(board)
    (dword,) = fabric.read((port.place, pci.PCI_INTERRUPT_LINE))
    # writing all ones back would set every bit of the bridge control register
    if dword == tlp.ONES:
        raise LinkDown(
            f"resetting the slot: the bridge's port {port.place} does not answer; switch the enclosure off and on"
        )
    held = pci.PCI_BRIDGE_CTL_BUS_RESET << 16
    fabric.write((port.place, pci.PCI_INTERRUPT_LINE, dword | held, 4))
    fabric.clock.sleep_us(PULSE_US)
    fabric.write((port.place, pci.PCI_INTERRUPT_LINE, dword & ~held, 4))
    fabric.clock.sleep_us(SETTLE_US)
    root = _number(fabric)
    here = next((found for found, _ in root.walk() if found.place == board.function.place), None)
    if here is None or here.ids != board.function.ids:
        raise LinkDown("resetting the slot: the card did not come back; switch the enclosure off and on")
    _grow(fabric, board.function.place)
    open_way(fabric, board)


def slot_port(board: Board) -> Found:
    """Return the port to which the board is connected: the last port on the way with the bridge's own vendor id. The
    board may have a switch of its own.
    """
    maker = board.way[0].ids & 0xFFFF
    return next(port for port in reversed(board.way) if port.ids & 0xFFFF == maker)
