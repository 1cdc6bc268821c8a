"""A virtual card in a slot: what cards of every vendor share, the seam's `Device` without the blocks of a chip."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from ringup.autogen.linux import pci as regs
from ringup.errors import CardBusy, DeviceLost, NotSupported
from ringup.silicon.common.clock import PowerDomain, VirtualClock
from ringup.silicon.common.combining import Combining, Place
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.interrupts import Interrupts
from ringup.silicon.common.log import Event, EventLog
from ringup.silicon.common.memory import HostBuffer, HostMemory
from ringup.silicon.common.witness import Witness
from ringup.silicon.pci.function import Function
from ringup.silicon.pci.path import Bar, ConfigAccess, Path
from ringup.silicon.pci.peers import KINDS as PEER_FAULTS
from ringup.silicon.pci.peers import peer_span
from ringup.silicon.pci.tree import Tree

# PCI Express 4.0, 6.6: after resetting a function, a host waits this long before it accesses it
RESET_US = 100_000
VIOLATIONS_KEPT, UNHEARD_KEPT = 10_000, 4
KEPT_KINDS = ("violation", "fault", "unheard")


class SlotCard(ABC):
    """One card in one slot.

    A transport uses `bars`, `rom`, `config`, `interrupts`, `clock` and `alloc_host`. `tree` holds all functions of the
    board, its switch included. `log`, `faults` and `violations` show the inside of the card.
    """

    # the card reaches host memory by DMA, so fences lie there
    polls_vram = False
    why_lost = "is gone from the bus; check power and cable, then open it again"
    # the card is local: its windows can be mapped
    remote = None

    bars: dict[int, Bar]
    rom: Bar
    # the bus window to memory, which hosts map with write combining
    memory_bar: int
    # the expansion ROM's bytes
    image: bytes
    witness: Witness
    # assigned by the host: bus, device and function, by name of the function
    places: dict[str, tuple[int, int, int]]

    def __init__(self, clock: VirtualClock | None) -> None:
        self.clock = PowerDomain(clock or VirtualClock())
        self.log = EventLog(self.clock)
        self.faults = Faults()
        self.faults.know(*PEER_FAULTS)
        self.violations: list[Event] = []
        self.page_faults: list[Event] = []
        self.unheard: deque[Event] = deque(maxlen=UNHEARD_KEPT)
        self.log.watch(self._collect, *KEPT_KINDS)
        self.host = HostMemory()
        self.interrupts = Interrupts(self.clock)
        # who has the card open
        self._holder = ""
        # whether the machine that the slot belongs to passes the card's requests up to host memory
        self.reaches_host: Callable[[], bool] = lambda: True
        # called when a request is not sent, since bus mastering is off
        self.on_dma_refused: Callable[[], None] = lambda: None

    def _wire_bus(self, tree: Tree, gpu: Function) -> None:
        """Connect the board's functions to the slot; `gpu` is the one that drivers use."""
        self.tree, self.gpu = tree, gpu
        self.path = Path(tree, gpu, self.clock, self.faults, self.log)
        self.config = ConfigAccess(self.path, gpu)
        self.path.on_lost = self._cut_off
        tree.on_link = self.bus_changed
        for node in tree.nodes():
            node.function.on_change = self.bus_changed
            node.function.on_mistake = self._mistake
        gpu.on_reset = self._function_reset
        self.host.on_error = self._bus_error

    # --- what a transport uses: `Device` of the seam --------------------------------------------------------------
    @property
    @abstractmethod
    def name(self) -> str:
        """The name that opens a card of this kind."""

    @abstractmethod
    def _shown(self) -> tuple[str, str, dict[str, object]]:
        """Return the chip's name, its product, and what its summary tells beyond every card's."""

    def summary(self) -> dict[str, object]:
        """Return a short summary of the card's state, for reports."""
        chip, product, more = self._shown()
        return {
            "card": f"virtual {chip} ({product})",
            "time_us": self.clock.now_us,
            "link": "up" if self.tree.link_up else "down",
            "memory decoding": self.gpu.decodes_memory,
            "bus mastering": self.gpu.masters_bus,
            "power state": f"D{self.gpu.power_state}",
            **more,
            "interrupts pending": len(self.interrupts.pending),
            "registers used that are not modelled": len({event.values[0] for event in self.log.find("unmodelled")}),
            "violations": [event.text for event in self.violations],
        }

    @abstractmethod
    def _function_reset(self, kind: str) -> None:
        """Reset the chip too, after a reset that came over the bus."""

    def alloc_host(self, size_bytes: int) -> HostBuffer:
        """Return host memory that the card can reach; zeroed, freed by its `free`."""
        return self.host.allocate(size_bytes)

    def pin(self, buffer: memoryview) -> HostBuffer:
        """Let the card reach memory of the caller: whole pages, writable."""
        return self.host.pin(buffer)

    def reach(self, other: object, bar: int, offset: int, size_bytes: int) -> HostBuffer:
        """Let the card send requests to another virtual card's BAR, see `pci/peers.py`. Both sit below one root."""
        if not isinstance(other, SlotCard):
            raise NotSupported(f"{self.name} sits in a slot of a virtual computer, where {other!r:.80} does not")
        return self.host.place(peer_span(other.bars[bar], offset, size_bytes, self.faults))

    def shared(self, index: int) -> tuple[int, int] | None:
        """Return the file descriptor and size in bytes of the memory behind a BAR, for a virtual machine to map; None
        if the BAR is not plain memory.
        """
        return None

    def settle(self) -> None:
        """Deliver the host's posted writes to the card, before a test looks inside. A driver reads a register
        instead.
        """
        self.path.posted.push()

    def combine(self, pick: Callable[[Sequence[Place]], int] | None = None) -> None:
        """Map the memory BAR with write combining, as hosts do. `pick` chooses which line of the processor's buffers
        leaves first.
        """
        self.path.posted.combining = Combining(pick)
        self.bars[self.memory_bar].combined = True

    @property
    def lost(self) -> bool:
        """Whether the card is gone from the bus. After `replug` a driver must open it as a new card."""
        return self.path.lost

    def resets(self) -> tuple[str, ...]:
        """Name the resets that reach the card over the bus, the mildest first."""
        return ("function", "slot") if self.gpu.resettable else ("slot",)

    def reset(self, method: str) -> None:
        """Reset the card over the bus and restore configuration space. Raises `DeviceLost`, without effect, if the card
        is gone.
        """
        if method not in self.resets():
            raise ValueError(f"{self.name} has no reset {method!r}; it has {', '.join(self.resets())}")
        if self.lost:
            raise DeviceLost(f"resetting {self.name} ({method}): {self.name} {self.why_lost}")
        if method == "slot":
            self.tree.reset_and_restore()
        else:
            saved = self.gpu.save()
            self.gpu.reset("flr")
            self.gpu.restore(saved)
        self.clock.sleep_us(RESET_US)

    def hold(self) -> None:
        """Take the card for the process of the calling thread. Raises `CardBusy` with the holder's name."""
        if self._holder:
            raise CardBusy(f"opening {self.name}: held by {self._holder}; close it there, or wait for it")
        self._holder = f"process {os.getpid()}, thread {threading.current_thread().name!r}"

    def kill_holder(self, *, memory: bool = True) -> None:
        """Simulate the death of the holding process, as by kill -9: running work goes on, and with `memory` its host
        memory is unmapped from the bus.
        """
        self._holder = ""
        if memory:
            self.host.detach_all()

    def close(self) -> None:
        """Switch bus mastering off and release the card. Harmless when repeated, and for a card that is gone."""
        self._holder = ""
        command = self.config.read(regs.PCI_COMMAND, 2)
        self.config.write(regs.PCI_COMMAND, command & ~regs.PCI_COMMAND_MASTER, 2)

    # --- the slot ---------------------------------------------------------------------------------------------------
    def hot_reset(self) -> None:
        """Reset the board from its slot, then enumerate it again."""
        self.tree.reset("hot")
        self.places = self.tree.enumerate()

    def unplug(self) -> None:
        """Take the link down, as pulling the cable of an enclosure does."""
        self.tree.set_link(up=False)

    def replug(self) -> None:
        """Put power and link back, and enumerate the board as new."""
        # the old holder's card is gone
        self._holder = ""
        self.faults.clear()
        self.tree.set_link(up=True)
        self.tree.reset("power")
        self.places = self.tree.enumerate()

    def bus_changed(self) -> None:
        """Recompute what passes the bus, after a change of a command register, power state or link, here or above the
        slot.
        """
        self.path.refresh()
        self.host.reachable = (
            not self.path.lost
            and self.gpu.masters_bus
            and self.tree.passes(self.gpu, regs.PCI_COMMAND_MASTER)
            and self.reaches_host()
        )

    # --- events -------------------------------------------------------------------------------------------------
    def _collect(self, event: Event) -> None:
        """Keep violations and faults, up to a limit: the first are the causes, the rest follow from them. What a card
        does after it left the bus is no mistake of the driver.
        """
        if self.path.lost:
            return
        if event.kind == "violation" and len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(event)
        elif event.kind == "fault" and len(self.page_faults) < VIOLATIONS_KEPT:
            self.page_faults.append(event)
        elif event.kind == "unheard":
            self.unheard.append(event)

    def _cut_off(self) -> None:
        """Stop all work: nothing inside reaches the host any more, and host memory does not answer."""
        self.log.note("card", "lost", "the link is down" if not self.tree.link_up else "the function answers nothing")
        self.clock.forget()
        self.host.reachable = False

    def _mistake(self, text: str) -> None:
        self.log.note("pci", "violation", "{}", text)

    def _bus_error(self, bus_addr: int, write: bool) -> None:
        verb = "write to" if write else "read of"
        if self.host.reachable:
            self.log.note("pci", "violation", "DMA {} bus address {:#x}, where no memory is", verb, bus_addr)
        else:
            self.on_dma_refused()
            self.log.note("pci", "violation", "DMA {} bus address {:#x} while bus mastering is off", verb, bus_addr)
