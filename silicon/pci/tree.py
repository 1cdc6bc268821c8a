"""The functions of a board behind its own switch: routing of configuration requests, links, resets, enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ringup.autogen.linux import pci as regs
from ringup.silicon.pci.function import ONES, Function

# where `enumerate` puts BARs with 32-bit addresses
WINDOW_32 = 0x8000_0000
WINDOW_64 = 0x80_0000_0000  # and those with 64-bit addresses
MEGABYTE = 1 << 20


@dataclass(slots=True)
class Node:
    """A function, with the nodes below it if it is a switch port. `place`: device and function number on its bus."""

    function: Function
    place: tuple[int, int] = (0, 0)
    below: list[Node] = field(default_factory=list)

    @property
    def is_port(self) -> bool:
        """Whether it is a bridge."""
        return self.function.row.header_type == regs.PCI_HEADER_TYPE_BRIDGE


class Tree:
    """A board's functions as the slot sees them. While the slot's own link is down nothing answers."""

    def __init__(self, root: Node) -> None:
        self.root = root
        # number of the slot's bus, assigned by the host
        self.bus = 0
        self.link_up = True
        self.on_link: Callable[[], None] = lambda: None
        for node in self.nodes():
            if node.is_port:
                self._watch(node)

    def nodes(self, start: Node | None = None) -> Iterator[Node]:
        """Walk the functions, ports before the nodes below them."""
        node = start or self.root
        yield node
        for child in node.below:
            yield from self.nodes(child)

    def find(self, name: str) -> Function:
        """Return the function with a row of that name."""
        return next(node.function for node in self.nodes() if node.function.row.name == name)

    # --- configuration requests ---------------------------------------------------------------------------------
    def _route(self, bus: int, device: int, number: int) -> Function | None:
        if not self.link_up:
            return None
        nodes, here = [self.root], self.bus
        while True:
            if bus == here:
                return next((node.function for node in nodes if node.place == (device, number)), None)
            for node in nodes:
                secondary, last = (
                    node.function.config.get(at, 1) for at in (regs.PCI_SECONDARY_BUS, regs.PCI_SUBORDINATE_BUS)
                )
                if node.is_port and node.function.present and secondary and secondary <= bus <= last:
                    nodes, here = node.below, secondary
                    break
            else:
                return None

    def read(self, bus: int, device: int, function: int, offset: int, size_bytes: int = 4) -> int:
        """Handle a configuration read as the slot does; all ones if nothing answers."""
        found = self._route(bus, device, function)
        return (1 << 8 * size_bytes) - 1 if found is None else found.read(offset, size_bytes)

    def write(self, bus: int, device: int, function: int, offset: int, value: int, size_bytes: int = 4) -> None:
        """Handle a configuration write; it is dropped if nothing answers."""
        found = self._route(bus, device, function)
        if found is not None:
            found.write(offset, value, size_bytes)

    # --- the path to memory -------------------------------------------------------------------------------------
    def passes(self, target: Function, bit: int) -> bool:
        """Whether every port above `target` has a command bit set: memory for requests downstream, bus master for
        requests upstream.
        """
        return self.link_up and all(
            port.command & bit and port.power_state == 0 for port in self._above(target, self.root)
        )

    def _above(self, target: Function, node: Node) -> list[Function]:
        for child in node.below:
            if child.function is target:
                return [node.function]
            if child.below and (above := self._above(target, child)):
                return [node.function, *above]
        return []

    # --- links and resets ---------------------------------------------------------------------------------------
    def _watch(self, port: Node) -> None:
        """Make the link below a port follow the port's registers."""

        def bridge_control(old: int, new: int) -> None:
            held = regs.PCI_BRIDGE_CTL_BUS_RESET << 16
            if (old ^ new) & held:
                self._below(port, present=not new & held)

        def link_control(old: int, new: int) -> None:
            if (old ^ new) & regs.PCI_EXP_LNKCTL_LD:
                self._below(port, present=not new & regs.PCI_EXP_LNKCTL_LD)

        config = port.function.config
        # the dword with the bridge control register
        config.on_write(regs.PCI_INTERRUPT_LINE, bridge_control)
        if (place := port.function.places.get("express")) is not None:
            config.on_write(place + regs.PCI_EXP_LNKCTL, link_control)

    def _below(self, port: Node, *, present: bool) -> None:
        """Reset and remove the functions below a port, or bring them back."""
        for child in port.below:
            for node in self.nodes(child):
                if not present and node.function.present:
                    node.function.reset("hot")
                node.function.present = present
        if (place := port.function.places.get("express")) is not None:
            config, at = port.function.config, place + regs.PCI_EXP_LNKSTA
            active = config.get(at, 2) & ~regs.PCI_EXP_LNKSTA_DLLLA
            config.put(at, active | (regs.PCI_EXP_LNKSTA_DLLLA if present else 0), 2)
        self.on_link()

    def reset(self, kind: str = "hot") -> None:
        """Reset every function: the slot's reset signal (`power`) or a hot reset from above."""
        for node in self.nodes():
            node.function.reset(kind)
            node.function.present = self.link_up

    def reset_and_restore(self) -> None:
        """Reset every function from the slot and restore configuration space, as a host's kernel does around a bus
        reset.
        """
        saved = [(node.function, node.function.save()) for node in self.nodes()]
        self.reset("hot")
        for function, content in saved:
            function.restore(content)

    def set_link(self, up: bool) -> None:
        """Take the slot's link down, or train it again, which resets everything below it."""
        if up == self.link_up:
            return
        self.link_up = up
        for node in self.nodes():
            node.function.present = up
            if up:
                node.function.reset("hot")
        self.on_link()

    # --- the work of a host's firmware --------------------------------------------------------------------------
    def enumerate(self, first_bus: int = 1) -> dict[str, tuple[int, int, int]]:
        """Number the buses, assign addresses to every BAR and enable decoding; return the place of each function.

        This is the state before a driver starts: bus mastering of the endpoints stays off, interrupts stay as they are.
        """
        self.bus = first_bus
        places: dict[str, tuple[int, int, int]] = {}
        cursor = [WINDOW_32, WINDOW_64]
        self._number(self.root, first_bus, first_bus, places, cursor)
        return places

    def _number(
        self, node: Node, bus: int, last: int, places: dict[str, tuple[int, int, int]], cursor: list[int]
    ) -> int:
        function = node.function
        places[function.row.name] = (bus, *node.place)
        first32, first64 = cursor
        if node.is_port:
            function.write(regs.PCI_PRIMARY_BUS, bus | last + 1 << 8 | 0xFF << 16)
            secondary = last = last + 1
            for child in node.below:
                last = self._number(child, secondary, last, places, cursor)
            function.write(regs.PCI_SUBORDINATE_BUS, last, 1)
            cursor[:] = [-(-at // MEGABYTE) * MEGABYTE for at in cursor]
            limits = [at - MEGABYTE for at in cursor]
            function.write(regs.PCI_MEMORY_BASE, first32 >> 16 & 0xFFF0 | limits[0] & 0xFFF0_0000)
            function.write(regs.PCI_PREF_MEMORY_BASE, first64 >> 16 & 0xFFF0 | limits[1] & 0xFFF0_0000)
            function.write(regs.PCI_PREF_BASE_UPPER32, first64 >> 32)
            function.write(regs.PCI_PREF_LIMIT_UPPER32, limits[1] >> 32)
        for bar in function.row.bars:
            if bar.kind & regs.PCI_BASE_ADDRESS_SPACE_IO:
                continue
            size, wide = function.sizes[bar.index], int(bar.wide)
            address = -(-cursor[wide] // size) * size
            cursor[wide] = address + size
            at = regs.PCI_BASE_ADDRESS_0 + 4 * bar.index
            function.write(at, address & ONES)
            if wide:
                function.write(at + 4, address >> 32)
        if function.row.rom_bytes:
            cursor[0] = -(-cursor[0] // function.row.rom_bytes) * function.row.rom_bytes
            function.write(regs.PCI_ROM_ADDRESS, cursor[0])
            cursor[0] += function.row.rom_bytes
        command = regs.PCI_COMMAND_MEMORY | (regs.PCI_COMMAND_MASTER if node.is_port else 0)
        function.write(regs.PCI_COMMAND, command, 2)
        return last
