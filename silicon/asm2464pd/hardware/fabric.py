"""The PCI Express side of the bridge: its own two switch ports, the card's functions below them, and the routing of
requests.

Bus 0 has the upstream port, which answers for all 32 device numbers; its secondary bus has the downstream port; below
that is the slot. Source: asm2464pd-firmware app/README.md (measured with a Radeon RX 7900 XTX). Routing: PCI Express
4.0, 2.2.9 and 7.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringup.autogen.linux import pci as regs
from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog
from ringup.silicon.pci.capabilities import advanced_errors, express, msi, power_management, subsystem
from ringup.silicon.pci.function import Function, FunctionRow
from ringup.silicon.pci.tree import Node, Tree

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon

# completion status. Source: PCI Express 4.0, table 2-34
SUCCESS, UNSUPPORTED, RETRY = 0, 1, 2
NO_COMPLETION = -1
# in the dword that contains the bridge control register
RESET_HELD = regs.PCI_BRIDGE_CTL_BUS_RESET << 16
# GUESS: the device id matches the name under which the ports are reported, ASM2461
ASMEDIA, SWITCH = 0x1B21, 0x2461
RUNS = {0b0001: (0, 1), 0b0010: (1, 1), 0b0100: (2, 1), 0b1000: (3, 1), 0b0011: (0, 2), 0b1100: (2, 2), 0b1111: (0, 4)}


def _port(name: str, kind: int) -> Function:
    row = FunctionRow(
        name,
        ASMEDIA,
        SWITCH,
        0x060400,
        1,
        capabilities=(
            power_management(0x80, regs.PCI_PM_CAP_PME_D0 | regs.PCI_PM_CAP_PME_D3hot | 3, True),
            express(0x90, kind, generation=4, lanes=4, bridge=True),
            msi(0x50),
            subsystem(0xC0, ASMEDIA, SWITCH),
            advanced_errors(0x100),
        ),
        header_type=regs.PCI_HEADER_TYPE_BRIDGE,
    )
    return Function(row)


@dataclass(frozen=True, slots=True)
class Claim:
    """A range of memory addresses, from `first` up to `end`, that a BAR of a function claims (`index`; None: its
    expansion ROM).
    """

    first: int
    end: int
    function: Function
    index: int | None


def lanes(enables: int) -> list[tuple[int, int]]:
    """Split byte enables into (first byte, count) register accesses."""
    if enables in RUNS:
        return [RUNS[enables]]
    return [(byte, 1) for byte in range(4) if enables >> byte & 1]


class Fabric:
    """Executes requests one dword at a time and returns the status of their completion."""

    def __init__(self, card: VirtualRadeon | None, clock: VirtualClock, log: EventLog) -> None:
        self.card, self._clock, self._log = card, clock, log
        self.upstream = _port("ASM2461 upstream", regs.PCI_EXP_TYPE_UPSTREAM)
        self.downstream = _port("ASM2461 downstream", regs.PCI_EXP_TYPE_DOWNSTREAM)
        self.on_change: Callable[[], None] = lambda: None
        # called when the card's link goes down
        self.on_lost: Callable[[], None] = lambda: None
        # by 64 KiB, until something changes
        self._claims: dict[int, Claim] = {}
        self._retry_until_ns = 0
        slot = [] if card is None else [card.tree.root]
        self._below = Node(self.downstream, below=slot)
        self._root = Node(self.upstream, below=[self._below])
        # for resets of secondary buses and disabled links, of the card's ports too
        self._tree = Tree(self._root)
        self._tree.on_link = self._changed
        for port in (self.upstream, self.downstream):
            port.on_change = self._changed
            port.on_mistake = self._mistake
        if card is not None:
            card.reaches_host = self._passes
            card.tree.set_link(up=False)
            self._cut_off = card.path.on_lost
            card.path.on_lost = self._lost

    # --- the slot -----------------------------------------------------------------------------------------------
    @property
    def linked(self) -> bool:
        """Whether the slot's link is up."""
        return self.card is not None and self.card.tree.link_up

    def link_up(self, generation: int, lanes: int) -> None:
        """Bring the link up: the card in the slot has come out of reset."""
        assert self.card is not None
        self.card.tree.set_link(up=True)
        self.card.tree.reset("power")
        for function, active in ((self.downstream, regs.PCI_EXP_LNKSTA_DLLLA), (self.card.tree.root.function, 0)):
            at = function.places["express"] + regs.PCI_EXP_LNKSTA
            kept = function.config.get(at, 2) & ~(regs.PCI_EXP_LNKSTA_CLS | regs.PCI_EXP_LNKSTA_NLW)
            function.config.put(at, kept | generation | lanes << 4 | active, 2)
        self._retry()
        self._changed()

    def _retry(self) -> None:
        """Make the card answer configuration requests with a retry for a while: it was reset."""
        self._retry_until_ns = self._clock.now_ns + round(timing.RETRY_STATUS_US * 1_000)

    def link_down(self) -> None:
        """Take the link down: the card is reset, or without power."""
        if self.card is not None:
            self.card.tree.set_link(up=False)
        at = self.downstream.places["express"] + regs.PCI_EXP_LNKSTA
        self.downstream.config.put(at, self.downstream.config.get(at, 2) & ~regs.PCI_EXP_LNKSTA_DLLLA, 2)
        self._changed()

    def _lost(self) -> None:
        """Take the link down after the card has reported that it is gone."""
        self._cut_off()
        self.on_lost()

    def reset(self) -> None:
        """Reset the bridge's own ports, as a restart of the chip does."""
        self.link_down()
        for port in (self.upstream, self.downstream):
            port.reset("power")
        self._changed()

    @property
    def _silent(self) -> bool:
        """Whether the card has fallen off its bus: nothing completes, although the link is up."""
        return self.card is not None and self.card.path.fallen

    def _passes(self) -> bool:
        """Return whether the bridge's ports pass requests of the card upstream. Called after every change on the card's
        bus.
        """
        self._claims.clear()
        return all(port.masters_bus for port in (self.upstream, self.downstream))

    def _changed(self) -> None:
        self._claims.clear()
        if self.card is not None:
            self.card.bus_changed()
        self.on_change()

    def _mistake(self, text: str) -> None:
        self._log.note("pci", "violation", "{}", text)

    # --- configuration requests ---------------------------------------------------------------------------------
    def config(self, kind: int, address: int, enables: int, value: int | None) -> tuple[int, int]:
        """Execute a configuration request of type `kind` (0 or 1); return (status, dword). `address`: bus, device,
        function and register.
        """
        bus, device, number = address >> 24 & 0xFF, address >> 19 & 0x1F, address >> 16 & 7
        function, in_slot = self._function(kind, bus, device, number)
        if function is None or not function.present:
            return UNSUPPORTED, 0
        if in_slot and self._silent:
            return NO_COMPLETION, 0
        if in_slot and self._clock.now_ns < self._retry_until_ns:
            return RETRY, 0
        offset = address & 0xFFC
        if value is None:
            return SUCCESS, function.read(offset)
        held = function.config.get(regs.PCI_INTERRUPT_LINE) & RESET_HELD
        for byte, count in lanes(enables):
            function.write(offset + byte, value >> 8 * byte & (1 << 8 * count) - 1, count)
        self._claims.clear()
        if not in_slot:
            if held and not function.config.get(regs.PCI_INTERRUPT_LINE) & RESET_HELD:
                self._retry()
            # a window of the bridge may have moved
            self.on_change()
        return SUCCESS, 0

    def _function(self, kind: int, bus: int, device: int, number: int) -> tuple[Function | None, bool]:
        """Return the function that a request addresses, and whether it is in the slot."""
        # QUIRK: the port ignores the device number
        if kind == 0:
            if bus:
                self._log.note("pci", "violation", "a type 0 request for bus {} reached the port of bus 0", bus)
            return (self.upstream if number == 0 else None), False
        node, slot = self._root, False
        while True:
            config = node.function.config
            secondary, last = config.get(regs.PCI_SECONDARY_BUS, 1), config.get(regs.PCI_SUBORDINATE_BUS, 1)
            if not secondary or not secondary <= bus <= last:
                return None, slot
            slot = slot or node is self._below
            if slot and not self.linked:
                return None, slot
            if bus == secondary:
                found = next((child for child in node.below if child.place == (device, number)), None)
                return (None if found is None else found.function), slot
            for child in node.below:
                if child.is_port and self._holds(child.function, bus):
                    node = child
                    break
            else:
                return None, slot

    @staticmethod
    def _holds(port: Function, bus: int) -> bool:
        secondary, last = port.config.get(regs.PCI_SECONDARY_BUS, 1), port.config.get(regs.PCI_SUBORDINATE_BUS, 1)
        return port.present and bool(secondary) and secondary <= bus <= last

    # --- memory requests ----------------------------------------------------------------------------------------
    def read(self, address: int, enables: int) -> tuple[int, int]:
        """Execute a memory read of one dword; return (status, dword). Bytes that are not enabled are undefined: here
        0xA5.
        """
        claim = self.claim(address)
        if claim is None:
            return UNSUPPORTED, 0
        if self._silent:
            return NO_COMPLETION, 0
        data = bytearray(b"\xa5" * 4)
        for byte, count in lanes(enables):
            part = self._load(claim, address - claim.first + byte, count)
            if part is None:
                return UNSUPPORTED, 0
            data[byte : byte + count] = part
        return SUCCESS, int.from_bytes(data, "little")

    def write(self, address: int, enables: int, value: int) -> bool:
        """Execute a posted write of one dword; return False if nothing claims the address."""
        claim = self.claim(address)
        if claim is None:
            return False
        data = value.to_bytes(4, "little")
        return all(
            self._store(claim, address - claim.first + byte, data[byte : byte + count])
            for byte, count in lanes(enables)
        )

    def claim(self, address: int) -> Claim | None:
        """Return the claim of an address; None: an unsupported request."""
        page = address >> 16
        known = self._claims.get(page)
        if known is not None and known.first <= address < known.end:
            return known
        found = self._route(self._root, address)
        if found is not None:
            self._claims[page] = found
        return found

    def _route(self, node: Node, address: int) -> Claim | None:
        function = node.function
        if node is self._below and not self.linked:
            return None
        if not function.decodes_memory:
            return None
        if (mine := _bar_of(function, address)) is not None:
            return mine
        if not node.is_port or not _forwards(function, address):
            return None
        for child in node.below:
            if (found := self._route(child, address)) is not None:
                return found
        return None

    def forwards_down(self, first: int, end: int) -> bool:
        """Whether a window of the bridge's ports overlaps the range: then requests for it from below do not go up."""
        return any(
            port.decodes_memory and any(low < end and first < high for low, high in windows(port))
            for port in (self.upstream, self.downstream)
        )

    def _load(self, claim: Claim, offset: int, count: int) -> bytes | None:
        card = self.card
        assert card is not None
        if claim.function is not card.gpu:
            self._log.note("pci", "unmodelled", "a read of {} at {:#x}", claim.function.row.name, offset)
            return bytes(count)
        bar = card.rom if claim.index is None else card.bars[claim.index]
        return bar.answer(offset, count)

    def _store(self, claim: Claim, offset: int, data: bytes) -> bool:
        card = self.card
        assert card is not None
        if claim.function is not card.gpu:
            self._log.note("pci", "unmodelled", "a write to {} at {:#x}", claim.function.row.name, offset)
            return True
        bar = card.rom if claim.index is None else card.bars[claim.index]
        return bar.accept(offset, data)

    def is_memory(self, claim: Claim) -> bool:
        """Whether the claim is plain memory, where consecutive dwords equal one run of bytes."""
        return self.card is not None and claim.function is self.card.gpu and claim.index == 0

    def load_run(self, claim: Claim, address: int, size_bytes: int) -> bytes | None:
        """Read plain memory of a claim."""
        return self._load(claim, address - claim.first, size_bytes)

    def store_run(self, claim: Claim, address: int, data: bytes) -> bool:
        """Write plain memory of a claim."""
        return self._store(claim, address - claim.first, data)


def _bar_of(function: Function, address: int) -> Claim | None:
    for bar in function.row.bars:
        if bar.kind & regs.PCI_BASE_ADDRESS_SPACE_IO:
            continue
        first = function.bar_address(bar.index)
        if first <= address < first + function.sizes[bar.index]:
            return Claim(first, first + function.sizes[bar.index], function, bar.index)
    if function.decodes_rom:
        first = function.config.get(regs.PCI_ROM_ADDRESS) & ~(function.row.rom_bytes - 1)
        if first <= address < first + function.row.rom_bytes:
            return Claim(first, first + function.row.rom_bytes, function, None)
    return None


def windows(port: Function) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ranges that a port forwards downstream, from and up to: its memory window and its prefetchable one.
    PCI-to-PCI bridge 1.2, 3.2.5.
    """
    get = port.config.get
    low = get(regs.PCI_MEMORY_BASE, 2) >> 4 << 20, (get(regs.PCI_MEMORY_LIMIT, 2) >> 4) + 1 << 20
    first = (get(regs.PCI_PREF_BASE_UPPER32) << 32) | get(regs.PCI_PREF_MEMORY_BASE, 2) >> 4 << 20
    end = ((get(regs.PCI_PREF_LIMIT_UPPER32) << 32) | get(regs.PCI_PREF_MEMORY_LIMIT, 2) >> 4 << 20) + (1 << 20)
    return low, (first, end)


def _forwards(port: Function, address: int) -> bool:
    return any(first <= address < end for first, end in windows(port))
