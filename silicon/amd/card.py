"""A whole virtual Radeon: the blocks of its row wired together, power, resets, and what a user of it holds in hand."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

from ringup.autogen.linux import pci as regs
from ringup.errors import CardBusy, DeviceLost
from ringup.silicon.amd.board import chips, discovery, images, vbios
from ringup.silicon.amd.board.apertures import Doorbells, FrameBuffer, Registers
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.amd.board.df import DataFabric
from ringup.silicon.amd.board.ih import Ih
from ringup.silicon.amd.board.nbio import Nbio
from ringup.silicon.amd.board.smuio import Rom, Smuio
from ringup.silicon.amd.common.parts import Board, Resettable
from ringup.silicon.amd.gc.core import GraphicsCore
from ringup.silicon.amd.memory.caches import Caches
from ringup.silicon.amd.memory.hdp import Hdp
from ringup.silicon.amd.memory.hub import GFXHUB, MMHUB, VmHub
from ringup.silicon.amd.psp.processor import Psp
from ringup.silicon.amd.rows import unnamed
from ringup.silicon.amd.rows.unnamed import Unnamed
from ringup.silicon.amd.sdma.engine import Sdma
from ringup.silicon.amd.smu.controller import Smu
from ringup.silicon.amd.smu.thm import Thm
from ringup.silicon.amd.stuck import mistakes, unfinished
from ringup.silicon.common.cells import Cells, RegisterSpace, block_map
from ringup.silicon.common.clock import PowerDomain, VirtualClock
from ringup.silicon.common.combining import Combining, Place
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.interrupts import Interrupts
from ringup.silicon.common.log import Event, EventLog
from ringup.silicon.common.memory import HostBuffer, HostMemory, Vram
from ringup.silicon.common.witness import Witness
from ringup.silicon.pci.capabilities import resizable_bars
from ringup.silicon.pci.function import Function, FunctionRow
from ringup.silicon.pci.path import Bar, ConfigAccess, Path, Target
from ringup.silicon.pci.tree import Node, Tree
from ringup.silicon.shader.common.state import Engine
from ringup.silicon.shader.rdna.translator.engine import Translator

Block = TypeVar("Block", bound=Resettable)
FB_LOCATION = 0x8000  # in 16 MiB: where the board's firmware puts VRAM in the address space of the memory controllers
FB_UNIT = 1 << 24
RESET_US = 100_000  # PCI Express 4.0, 6.6: a host gives a function that long before it asks again
VIOLATIONS_KEPT, UNHEARD_KEPT = 10_000, 4
KEPT_KINDS = ("violation", "fault", "unheard")
# blocks that are listed, and have no model
UNMODELLED_BLOCKS = (("athub", 0), ("lsdma", 0), ("vcn", 0), ("vcn", 1), ("dcn", 0))


class VirtualRadeon:
    """One card in one slot. Its own firmware has posted it: discovery binary in VRAM, VBIOS in the ROM, scratch
    registers set.

    `bars` (0: VRAM, 2: doorbells, 5: registers), `rom`, `config`, `interrupts`, `clock`, `alloc_host` are what a
    transport offers; `tree` are all functions of the board, its switch included; `log`, `faults`, `violations` are the
    view from inside; `witness` puts it into words for a driver.
    """

    def __init__(
        self,
        chip: str = "navi31",
        *,
        vram_bytes: int | None = None,
        bar0_bytes: int = 256 << 20,
        enumerated: bool = True,
        engine: Engine | None = None,
        strict: bool = True,
        clock: VirtualClock | None = None,
        beside: Executor | None = None,
        caches: bool = False,
    ) -> None:
        """`enumerated`: the host's firmware has given addresses and switched memory decoding on; bus mastering is the
        driver's.

        `engine`: what runs the shader programs, the translator when left out; `strict`: it stops at what metal lets
        pass by luck. `clock`: of the machine that the card is a part of, one of its own when left out. `beside`: what
        translates shader programs while the card goes on, where others' time passes meanwhile; they wait for it when
        left out. Not for an `engine`. `caches`: the graphics core has caches that go stale (`memory/caches.py`), at the
        cost of speed.
        """
        self.chip = _sized(chips.find(chip), vram_bytes, bar0_bytes)
        self.clock = PowerDomain(clock or VirtualClock())
        self.log = EventLog(self.clock)
        self.faults = Faults()
        self.violations: list[Event] = []
        self.page_faults: list[Event] = []
        self.unheard: deque[Event] = deque(maxlen=UNHEARD_KEPT)
        self.log.watch(self._collect, *KEPT_KINDS)
        self.host = HostMemory()
        self.vram = Vram(self.chip.vram_bytes)
        self.board = Board(
            self.chip.name, self.clock, self.log, self.faults, RegisterSpace(self.log.note), self.vram, self.host
        )
        self.interrupts = Interrupts(self.clock)
        self._holder = ""  # who has it open
        self._wire_bus()
        self._blocks: list[Resettable] = []
        self._firmware: dict[str, bytes] = {}
        wgp_count = self.chip.gc.core.compute_units // 2
        self._caches = caches
        self._wire_blocks(engine or Translator(wgp_count=wgp_count, beside=beside), strict=strict)
        self._wire_apertures()
        self.reaches_host: Callable[[], bool] = lambda: (
            True
        )  # whether what the slot belongs to lets requests pass upwards
        self.witness = Witness([lambda: mistakes(self)], [lambda: unfinished(self)])
        self._post()
        self.places = self.tree.enumerate() if enumerated else {}
        self.bus_changed()

    # --- wiring -------------------------------------------------------------------------------------------------
    def _wire_bus(self) -> None:
        upstream, downstream, *endpoint = self.chip.functions
        gpu = Function(endpoint[0], self.interrupts)
        below = [Node(gpu)] + [Node(Function(row), (0, n)) for n, row in enumerate(endpoint[1:], start=1)]
        self.tree = Tree(Node(Function(upstream), below=[Node(Function(downstream), below=below)]))
        self.gpu = gpu
        self.path = Path(self.tree, gpu, self.clock, self.faults, self.log)
        self.config = ConfigAccess(self.path, gpu)
        self.path.on_lost = self._cut_off
        self.tree.on_link = self.bus_changed
        for node in self.tree.nodes():
            node.function.on_change = self.bus_changed
            node.function.on_mistake = self._mistake
        gpu.on_reset = self._function_reset
        self.host.on_error = self._bus_error

    def _wire_blocks(self, engine: Engine, *, strict: bool) -> None:
        board, chip = self.board, self.chip
        self.image = vbios.build(chip)
        self.hdp = self._add(Hdp(board))
        self.nbio = Nbio(board, chip, self.hdp, {node.function.row.name: node.function for node in self.tree.nodes()})
        self.smuio = self._add(Smuio(board, chip, self.image))
        self.df = self._add(DataFabric(board, chip))
        mmhub_cells, gc_cells, mp_cells = (self._registers(block) for block in ("mmhub", "gc", "mp"))
        self.mmhub = self._add(VmHub(board, mmhub_cells, MMHUB, None))
        self.gfxhub = self._add(VmHub(board, gc_cells, GFXHUB, None))
        self.ih = self._add(Ih(board, self.mmhub, self.gpu.interrupt, self.gpu.intx_done))
        self.mmhub.interrupts = self.gfxhub.interrupts = self.ih
        if self._caches:
            self.board.caches = self.gfxhub.caches = self._add(Caches(board))
        engines = range(chip.gc.sdma_engines)
        self.sdma = [self._add(Sdma(board, self.gfxhub, self.ih, gc_cells, index)) for index in engines]
        self.gc = self._add(
            GraphicsCore(
                board, gc_cells, self.gfxhub, self.ih, engine, row=chip.gc.core, sdma=tuple(self.sdma), strict=strict
            )
        )
        self.smu = self._add(
            Smu(
                board,
                mp_cells,
                self.mmhub,
                chip.power,
                busy_ns=lambda: self.gc.busy_ns,
                on_mode1_reset=self.mode1_reset,
            )
        )
        self.thm = self._add(Thm(board, self.smu.power, self.ih))
        self.psp = self._add(
            Psp(
                board,
                mp_cells,
                self.mmhub,
                [self.smu, self.gc, *self.sdma],
                tmr_bytes=chip.tmr_bytes,
                on_autoload=self.gc.autoload,
                on_mode1_reset=self.mode1_reset,
                waiting=lambda: self.hdp.holds,
            )
        )
        self.nbio.listen("ih", self.ih)
        self.nbio.listen("gc", self.gc)
        for copier in self.sdma:
            self.nbio.listen("sdma", copier)
        for block, instance in UNMODELLED_BLOCKS:
            self._registers(block, instance)

        for row in unnamed.ROWS:
            self._unnamed(row)

    def _unnamed(self, row: Unnamed) -> None:
        """Make dwords that no header names read as 0 and take writes without effect."""
        places = block_map(self.chip.name, row.block, 0)
        if row.chip and row.first in places.addresses:
            return
        first = block_map(row.chip or self.chip.name, row.block, 0).addresses[row.first] + row.distance
        for address in range(first, places.addresses[row.to] if row.to else first + 4, 4):
            # behind a distance the space belongs to the row whatever is named there
            if row.distance or address not in places.names:
                self._hole(address)

    def _hole(self, address: int) -> None:
        self.board.space.door(address, 4, lambda address: 0, lambda address, value: None)

    def _registers(self, block: str, instance: int = 0) -> Cells:
        """Put a block's registers on the bus; they are reset before the block itself."""
        cells = Cells(self.chip.name, block, instance)
        self.board.space.attach(cells)
        return self._add(cells)

    def _add(self, block: Block) -> Block:
        self._blocks.append(block)
        return block

    def _wire_apertures(self) -> None:
        self.registers = Registers(self.board, self.hdp)
        targets: dict[int, Target] = {
            0: FrameBuffer(self.board, self.hdp, self.nbio),
            2: Doorbells(self.nbio),
            5: self.registers,
        }
        self.bars = {
            index: Bar(f"BAR {index}", self.path, target, self._size_of(index)) for index, target in targets.items()
        }
        rom_bytes = self.gpu.row.rom_bytes
        self.rom = Bar("ROM", self.path, Rom(self.image), lambda: rom_bytes, lambda: self.gpu.decodes_rom)

    def _size_of(self, index: int) -> Callable[[], int]:
        return lambda: self.gpu.sizes[index]

    # --- what a transport offers: `Device` of the seam ------------------------------------------------------------
    polls_vram = False  # host memory is within the card's reach
    why_lost = "is gone from the bus; check power and cable, then open it again"
    remote = None  # and its windows can be mapped

    @property
    def name(self) -> str:
        """The name that opens such a card."""
        return f"virtual:{self.chip.name}"

    def alloc_host(self, size_bytes: int) -> HostBuffer:
        """Return host memory that the card can reach; zeroed, freed by its `free`."""
        return self.host.allocate(size_bytes)

    def pin(self, buffer: memoryview) -> HostBuffer:
        """Let the card reach memory of the caller's: whole pages, writable."""
        return self.host.pin(buffer)

    def shared(self, index: int) -> tuple[int, int] | None:
        """Return the descriptor of the memory behind a BAR and how many bytes it has, for a virtual machine to map;
        None: no plain memory.

        From then on the host data path holds nothing back: see `Hdp.map`.
        """
        if index != 0:
            return None
        self.bars[0].map()
        return self.vram.fileno, self.vram.size_bytes

    def settle(self) -> None:
        """Let arrive what the host has written and the card has not got yet, for a look from inside; a driver reads
        something instead.
        """
        self.path.posted.push()

    def combine(self, pick: Callable[[Sequence[Place]], int] | None = None) -> None:
        """Map BAR 0 with write combining, as hosts do with memory; `pick` says which line of the processor's buffers
        leaves first.
        """
        self.path.posted.combining = Combining(pick)
        self.bars[0].combined = True

    @property
    def lost(self) -> bool:
        """Whether the card is gone from the bus; `replug` puts in what a driver must open as new."""
        return self.path.lost

    def resets(self) -> tuple[str, ...]:
        """Name the resets that reach the card over the bus, gentle first."""
        return ("function", "slot") if self.gpu.resettable else ("slot",)

    def reset(self, method: str) -> None:
        """Reset the card over the bus and put configuration space back. Raises `DeviceLost` for a card that is gone:
        nothing happens to it.
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

    def firmware(self, name: str) -> bytes | None:
        """Return the image that the kernel asks for by that name: made, and the same each time. None: this chip asks
        for no such file.
        """
        if not self._firmware:
            self._firmware = images.build(self.chip)
        return self._firmware.get(name.removeprefix("amdgpu/"))

    def hold(self) -> None:
        """Take the card for the calling thread's process. Raises `CardBusy` with who has it."""
        if self._holder:
            raise CardBusy(f"opening {self.name}: held by {self._holder}; close it there, or wait for it")
        self._holder = f"process {os.getpid()}, thread {threading.current_thread().name!r}"

    def kill_holder(self, *, memory: bool = True) -> None:
        """Let the process that has the card die, as by kill -9: nobody stops what runs, and `memory` of it is gone from
        the bus.
        """
        self._holder = ""
        if memory:
            self.host.detach_all()

    def close(self) -> None:
        """Switch bus mastering off and let go. Twice is harmless, and so is a card that is gone."""
        self._holder = ""
        command = self.config.read(regs.PCI_COMMAND, 2)
        self.config.write(regs.PCI_COMMAND, command & ~regs.PCI_COMMAND_MASTER, 2)

    # --- power and resets ---------------------------------------------------------------------------------------
    def _post(self) -> None:
        """Do what the board's own firmware does after a reset, before any driver: place VRAM, leave the discovery
        binary.
        """
        top = FB_LOCATION + -(-self.vram.size_bytes // FB_UNIT) - 1
        for hub in (
            self.mmhub,
            self.gfxhub,
        ):  # drivers program them for virtual functions only, "vbios post" does it for the card
            hub.cells[f"{hub.row.prefix}MC_VM_FB_LOCATION_BASE"] = FB_LOCATION
            hub.cells[f"{hub.row.prefix}MC_VM_FB_LOCATION_TOP"] = top
        self.vram.write(self.vram.size_bytes - discovery.TOP_OFFSET, discovery.build(self.chip))

    def _reset_blocks(self, *, keep_scratch: bool) -> None:
        self.settle()  # what resets it came behind them
        self.clock.forget()  # nothing that was under way goes on
        self.nbio.reset(keep_scratch=keep_scratch)
        for block in self._blocks:
            block.reset()
        self.vram.lose()
        self._post()

    def mode1_reset(self) -> None:
        """Reset the whole chip but its bus interface's configuration space. VRAM is lost, the VBIOS scratch registers
        stay.
        """
        self.log.note("card", "reset", "mode 1")
        self._reset_blocks(keep_scratch=True)

    def _function_reset(self, kind: str) -> None:
        """A reset that came over the bus reaches the chip too."""
        self.log.note("card", "reset", "{}", kind)
        self._reset_blocks(keep_scratch=False)

    def hot_reset(self) -> None:
        """Reset the board from its slot, then enumerate it again."""
        self.tree.reset("hot")
        self.places = self.tree.enumerate()

    def unplug(self) -> None:
        """Take the link away, as pulling the cable of an enclosure does."""
        self.tree.set_link(up=False)

    def replug(self) -> None:
        """Put power and link back, and enumerate the board as new."""
        self._holder = ""  # who had it has a card that is gone
        self.faults.clear()
        self.tree.set_link(up=True)
        self.tree.reset("power")
        self.places = self.tree.enumerate()

    # --- events -------------------------------------------------------------------------------------------------
    def _collect(self, event: Event) -> None:
        """Keep a violation: the first tell, the rest follow from them; what a card does that is cut off is nobody's
        mistake.
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
        """Stop: of what goes on inside nothing reaches the host any more, nor does the host's memory answer."""
        self.log.note("card", "lost", "the link is down" if not self.tree.link_up else "the function answers nothing")
        self.clock.forget()
        self.host.reachable = False

    def _mistake(self, text: str) -> None:
        self.log.note("pci", "violation", "{}", text)

    def bus_changed(self) -> None:
        """Look again at what passes the bus: a command register, a power state or a link changed, here or above the
        slot.
        """
        self.path.refresh()
        self.host.reachable = (
            not self.path.lost
            and self.gpu.masters_bus
            and self.tree.passes(self.gpu, regs.PCI_COMMAND_MASTER)
            and self.reaches_host()
        )

    def _bus_error(self, bus_addr: int, write: bool) -> None:
        verb = "write to" if write else "read of"
        if self.host.reachable:
            self.log.note("pci", "violation", "DMA {} bus address {:#x}, where no memory is", verb, bus_addr)
        else:
            self.nbio.dma_refused()
            self.log.note("pci", "violation", "DMA {} bus address {:#x} while bus mastering is off", verb, bus_addr)

    def summary(self) -> dict[str, object]:
        """Return the card's state in a few words, for reports."""
        return {
            "card": f"virtual {self.chip.name} ({self.chip.product})",
            "time_us": self.clock.now_us,
            "link": "up" if self.tree.link_up else "down",
            "memory decoding": self.gpu.decodes_memory,
            "bus mastering": self.gpu.masters_bus,
            "power state": f"D{self.gpu.power_state}",
            "bytes waiting in HDP": self.hdp.holds,
            "interrupts pending": len(self.interrupts.pending),
            "registers used that are not modelled": len({event.values[0] for event in self.log.find("unmodelled")}),
            "violations": [event.text for event in self.violations],
        }


def _sized(chip: ChipRow, vram_bytes: int | None, bar0_bytes: int) -> ChipRow:
    """Return the row with another amount of VRAM and another size of BAR 0."""
    vram_bytes = chip.vram_bytes if vram_bytes is None else vram_bytes
    if vram_bytes % FB_UNIT or vram_bytes < 2 * FB_UNIT:
        raise ValueError(f"VRAM is a multiple of 16 MiB and at least 32 MiB, not {vram_bytes:#x} bytes")
    functions = tuple(_with_bar0(row, bar0_bytes) if row.name == "gpu" else row for row in chip.functions)
    return replace(chip, vram_bytes=vram_bytes, functions=functions)


def _with_bar0(row: FunctionRow, size_bytes: int) -> FunctionRow:
    bar0 = row.bars[0]
    if size_bytes % (1 << 20) or size_bytes >> 20 not in bar0.sizes_mib:
        offered = ", ".join(f"{size} MiB" for size in bar0.sizes_mib)
        raise ValueError(f"BAR 0 is {offered}; not {size_bytes:#x} bytes")
    bars = (replace(bar0, size_bytes=size_bytes), *row.bars[1:])
    capabilities = tuple(
        resizable_bars(cap.offset, bars) if cap.name == "resizable bar" else cap for cap in row.capabilities
    )
    return replace(row, bars=bars, capabilities=capabilities)
