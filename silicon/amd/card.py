"""A whole virtual Radeon: the blocks of its row wired together, power, resets, and the interface to its user."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path as Folder
from typing import TypeVar

from ringup.autogen.regdb import open_chip
from ringup.silicon.amd.board import chips, discovery, images, vbios
from ringup.silicon.amd.board.apertures import Doorbells, FrameBuffer, Registers
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.amd.board.core import GraphicsCore
from ringup.silicon.amd.board.df import DataFabric
from ringup.silicon.amd.board.ih import Ih
from ringup.silicon.amd.board.nbio import Nbio
from ringup.silicon.amd.board.smuio import Rom, Smuio
from ringup.silicon.amd.common.parts import Board, InterruptSink, Resettable
from ringup.silicon.amd.gc.local import Node, board_of, node_of_core, node_of_die
from ringup.silicon.amd.memory.athub import Athub
from ringup.silicon.amd.memory.caches import Caches
from ringup.silicon.amd.memory.hdp import Hdp
from ringup.silicon.amd.memory.hub import GFXHUBS, MEMORY_HUBS, VmHub
from ringup.silicon.amd.memory.umc import Channels
from ringup.silicon.amd.psp.processor import LATE_SIGN_OF_LIFE_US, SIGN_OF_LIFE_US, Psp
from ringup.silicon.amd.rows import unnamed
from ringup.silicon.amd.rows.unnamed import Unnamed
from ringup.silicon.amd.sdma.engine import Sdma
from ringup.silicon.amd.smu.controller import Smu
from ringup.silicon.amd.smu.instinct import InstinctSmu
from ringup.silicon.amd.smu.thm import Thm
from ringup.silicon.amd.stuck import mistakes, unfinished
from ringup.silicon.common.cells import Cells, RegisterSpace, block_map
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import FaultKind
from ringup.silicon.common.memory import Vram
from ringup.silicon.common.witness import Witness
from ringup.silicon.pci.capabilities import resizable_bars
from ringup.silicon.pci.function import Function, FunctionRow
from ringup.silicon.pci.path import Bar, Target
from ringup.silicon.pci.slot import SlotCard
from ringup.silicon.pci.tree import Node as TreeNode
from ringup.silicon.pci.tree import Tree
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.common.state import Engine
from ringup.silicon.shader.host.code_cache import CodeCache

Block = TypeVar("Block", bound=Resettable)
HALF_CORE = FaultKind("half_core", "from the next reset on, half of a graphics core is fused off", "which core")
PARTITIONED = FaultKind("partitioned", "from the next reset on, the graphics cores are found split", "number of parts")
# in 16 MiB units: where the board's firmware puts VRAM in the memory controllers' address space
FB_LOCATION = 0x8000
FB_UNIT = 1 << 24
# partitions of the graphics cores, and how their mode is reported: SPX, DPX, QPX, CPX
PARTITIONS = {1: 0, 2: 1, 4: 3, 8: 4}
# blocks that are listed, and have no model
UNMODELLED_BLOCKS = (("athub", 0), ("lsdma", 0), ("vcn", 0), ("vcn", 1), ("dcn", 0), ("pcie", 0))


class VirtualRadeon(SlotCard):
    """One card in one slot. Its own firmware has posted it: the discovery binary is in VRAM, the VBIOS in the ROM, the
    scratch registers are set.

    A transport uses `bars` (0: VRAM, 2: doorbells, 5: registers), `rom`, `config`, `interrupts`, `clock` and
    `alloc_host`. `tree` holds all functions of the board, its switch included. `log`, `faults` and `violations` show
    the inside of the card. `witness` describes it in words for a driver.
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
        code_folder: Folder | None = None,
        for_other_drivers: bool = False,
    ) -> None:
        """Make the card.

        `enumerated`: the host's firmware has assigned addresses and enabled memory decoding; the driver enables bus
        mastering. `engine`: runs the shader programs; the translator by default. `strict`: the engine stops at programs
        that work on metal only by luck. `clock`: that of the machine that the card is part of; a new one by default.
        `beside`: an executor that translates shader programs while the card runs on, for machines where real time
        passes meanwhile; without it the waves wait for the translation. Not for use with an `engine`. `caches`: the
        graphics core has caches that go stale (`memory/caches.py`); this is slower. `code_folder`: where translated
        shader programs are kept for other processes; nowhere by default. Not for use with an `engine`.
        `for_other_drivers`: the card bears what others' drivers do that runs on metal, most times by luck. The secure
        OS takes longer to start, since a busy guest looks late for the old value of its register. Strict mode does not
        look for a missing `s_wait_alu` in code for RDNA4: Debian 13's Mesa and LLVM leave it out, and metal reads an
        old scalar by chance only; the latter is not for use with an `engine`.
        """
        self.chip = _sized(chips.find(chip), vram_bytes, bar0_bytes)
        super().__init__(clock)
        self._sign_of_life_us = LATE_SIGN_OF_LIFE_US if for_other_drivers else SIGN_OF_LIFE_US
        self.faults.know(*discovery.FAULTS, HALF_CORE, PARTITIONED)
        self.vram = Vram(self.chip.vram_bytes)
        self.board = Board(
            self.chip.name, self.clock, self.log, self.faults, RegisterSpace(self.log.note), self.vram, self.host
        )
        self._wire_board()
        self._blocks: list[Resettable] = []
        self._firmware: dict[str, bytes] = {}
        wgp_count = self.chip.gc.core.compute_units // self.chip.gc.core.cus_per_wgp
        self._caches = caches
        on_disk = None if code_folder is None else CodeCache(code_folder)
        target = self.chip.gc.core.target
        translator = partial(
            Translator,
            wgp_count=wgp_count,
            beside=beside,
            on_disk=on_disk,
            target=target,
            trusts_scalars=for_other_drivers,
        )
        self._wire_blocks(engine or translator(), strict=strict)
        self._wire_apertures()
        self.witness = Witness([lambda: mistakes(self)], [lambda: unfinished(self)])
        self._post()
        self.places = self.tree.enumerate() if enumerated else {}
        self.bus_changed()

    # --- wiring -------------------------------------------------------------------------------------------------
    def _wire_board(self) -> None:
        upstream, downstream, *endpoint = self.chip.functions
        gpu = Function(endpoint[0], self.interrupts)
        below = [TreeNode(gpu)] + [TreeNode(Function(row), (0, n)) for n, row in enumerate(endpoint[1:], start=1)]
        self._wire_bus(Tree(TreeNode(Function(upstream), below=[TreeNode(Function(downstream), below=below)])), gpu)

    def _wire_blocks(self, engine: Engine, *, strict: bool) -> None:
        board, chip = self.board, self.chip
        self.image = vbios.build(chip)
        self.hdp = self._add(Hdp(board))
        self.nbio = Nbio(board, chip, self.hdp, {node.function.row.name: node.function for node in self.tree.nodes()})
        self.on_dma_refused = self.nbio.dma_refused
        self.smuio = self._add(Smuio(board, chip, self.image))
        self.df = self._add(DataFabric(board, chip))
        self._wire_memory()
        if chip.cores > 1:
            self._add(Athub(board))
        self._wire_cores(engine, strict=strict)
        power = InstinctSmu if chip.bus.chiplets else Smu
        self.smu = self._add(
            power(
                board,
                self._mp_cells,
                self.mmhub,
                chip.power,
                busy_ns=lambda: max(core.busy_ns for core in self.cores),
                on_mode1_reset=self.mode1_reset,
                on_mode2_reset=self.mode2_reset,
            )
        )
        self.thm = self._add(Thm(board, self.smu.power, self.ih))
        self.psp = self._add(
            Psp(
                board,
                self._mp_cells,
                self.mmhub,
                [self.smu, *self.cores, *self.sdma],
                tmr_bytes=chip.tmr_bytes,
                boot_tmr=chip.boot_tmr,
                reserved_bytes=chip.reserved_bytes,
                on_autoload=self.gc.autoload,
                on_mode1_reset=self.mode1_reset,
                waiting=lambda: self.hdp.holds,
                decrypts=chip.decrypts,
                hive=chip.hive,
                on_partition=self._partition if chip.cores > 1 else None,
                sign_of_life_us=self._sign_of_life_us,
            )
        )
        self._wire_doorbells()
        self._wire_rest()

    def _wire_memory(self) -> None:
        """Make the VM hubs: one for each graphics core, and one for the other blocks of each die."""
        board, chip = self.board, self.chip
        major = chip.gc.core.version[0]
        memory_cells = [self._registers("mmhub", die) for die in range(chip.dies)]
        self._gc_cells = [self._registers("gc", core) for core in range(chip.cores)]
        self._mp_cells = self._registers("mp")
        # an engine of a core finds its own registers at the first core's addresses
        self._boards = [board] if chip.cores == 1 else [board_of(board, core) for core in range(chip.cores)]
        self.mmhubs = [self._add(VmHub(board, cells, MEMORY_HUBS[major], None, major)) for cells in memory_cells]
        self.gfxhubs = [
            self._add(VmHub(home, cells, GFXHUBS[major], None, major))
            for home, cells in zip(self._boards, self._gc_cells, strict=True)
        ]
        self.mmhub, self.gfxhub = self.mmhubs[0], self.gfxhubs[0]
        self.ih = self._add(Ih(board, self.mmhub, self.gpu.interrupt, self.gpu.intx_done))
        for die, hub in enumerate(self.mmhubs):
            hub.interrupts = self._die_sink(die)
        for core, hub in enumerate(self.gfxhubs):
            hub.interrupts = self._core_sink(core)
        if self._caches:
            self.board.caches = self.gfxhub.caches = self._add(Caches(board, scoped=major == 12))

    def _die_sink(self, die: int) -> InterruptSink:
        return self.ih if self.chip.dies == 1 else Node(self.ih, node_of_die(die))

    def _core_sink(self, core: int) -> InterruptSink:
        return self.ih if self.chip.cores == 1 else Node(self.ih, node_of_core(core))

    def _wire_cores(self, engine: Engine, *, strict: bool) -> None:
        chip = self.chip
        self.sdma = [self._add(self._copier(index)) for index in range(chip.gc.sdma_engines)]
        shared, own = ((), tuple(self.sdma)) if chip.gc.sdma.local else (tuple(self.sdma), ())
        self.cores = [
            self._add(
                GraphicsCore(
                    self._boards[core],
                    self._gc_cells[core],
                    self.gfxhubs[core],
                    self._core_sink(core),
                    engine,
                    row=chip.gc.core,
                    sdma=shared,
                    copiers=own,
                    strict=strict,
                )
            )
            for core in range(chip.cores)
        ]
        self.gc = self.cores[0]
        for core in self.cores:
            core.cp.teams = self.gc.cp.teams
            core.cp.cores = [one.cp for one in self.cores]
        if chip.cores > 1:
            self._partition(1)

    def _copier(self, index: int) -> Sdma:
        chip = self.chip
        if not chip.gc.sdma.local:
            return Sdma(self.board, self.gfxhub, self.ih, self._gc_cells[0], index, chip.gc.sdma)
        die = index * chip.dies // chip.gc.sdma_engines
        cells = self._registers("sdma", index)
        return Sdma(self.board, self.mmhubs[die], self._die_sink(die), cells, index, chip.gc.sdma)

    def _partition(self, parts: int) -> bool:
        """Split the graphics cores into as many parts; return whether they can be. Source: gfx_v9_4_3.c
        (switch_compute_partition), nbio_v7_9.c (get_compute_partition_mode), amdgpu_gfx.h.
        """
        if parts not in PARTITIONS or self.chip.cores % parts:
            return False
        size = self.chip.cores // parts
        for number, cells in enumerate(self._gc_cells):
            cells.put("CP_HYP_XCP_CTL", VIRTUAL_XCC_ID=number % size, NUM_XCC_IN_XCP=size)
        self.nbio.cells.put("BIF_BX_PF0_PARTITION_COMPUTE_STATUS", PARTITION_MODE=PARTITIONS[parts])
        return True

    def _wire_doorbells(self) -> None:
        self.nbio.listen("ih", self.ih)
        for core in self.cores:
            self.nbio.listen("gc", core)
        for copier in self.sdma:
            self.nbio.listen("sdma", copier)

    def _wire_rest(self) -> None:
        """Put the blocks without a model on the bus, and dwords without a name."""
        places = {place.block: len(place.bases) for place in open_chip(self.chip.name).row.places}
        wanted: tuple[tuple[str, int], ...] = UNMODELLED_BLOCKS
        if self.chip.dies > 1:
            wanted = tuple((block, instance) for block, count in places.items() for instance in range(count))
        for block, instance in wanted:
            if block in places and not self.board.space.has(block, instance):
                self._registers(block, instance)
        for row in unnamed.ROWS:
            for core in range(self.chip.cores):
                self._unnamed(row, core)
        if self.chip.dies > 1:
            row = unnamed.RAS_CAPABILITY
            first = block_map(self.chip.name, row.block, 0).addresses[row.first] + row.distance
            self.board.space.door(first, 4, lambda address: unnamed.RAS_CAPABILITIES, lambda address, value: None)
            self._add(Channels(self.board, self.chip.dies))

    def _unnamed(self, row: Unnamed, core: int) -> None:
        """Map dwords that no header names: they read as 0 and ignore writes."""
        places = block_map(self.chip.name, row.block, core)
        if (row.chip and row.first in places.addresses) or (row.radeon and self.chip.dies > 1):
            return
        first = block_map(row.chip or self.chip.name, row.block, core).addresses[row.first] + row.distance
        for address in range(first, places.addresses[row.to] if row.to else first + 4, 4):
            # after a distance the range belongs to the row, even where a header names registers in it
            if row.distance or address not in places.names:
                self._map_unnamed_dword(address)

    def _map_unnamed_dword(self, address: int) -> None:
        self.board.space.door(address, 4, lambda address: 0, lambda address, value: None)

    def _registers(self, block: str, instance: int = 0) -> Cells:
        """Put a block's registers on the bus. A reset resets them before the block itself."""
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

    # --- what a transport uses: `Device` of the seam --------------------------------------------------------------
    # VRAM
    memory_bar = 0

    @property
    def name(self) -> str:
        """The name that opens a card of this kind."""
        return f"virtual:{self.chip.name}"

    def shared(self, index: int) -> tuple[int, int] | None:
        """Return the file descriptor and size in bytes of the memory behind a BAR, for a virtual machine to map; None
        if the BAR is not plain memory.

        From then on the host data path holds no writes back: see `Hdp.map`.
        """
        if index != 0:
            return None
        self.bars[0].map()
        return self.vram.fileno, self.vram.size_bytes

    def firmware(self, name: str) -> bytes | None:
        """Return the made-up firmware image for a file name that the kernel requests, the same each time; None if the
        chip has no such file.
        """
        if not self._firmware:
            self._firmware = images.build(self.chip)
        return self._firmware.get(name.removeprefix("amdgpu/"))

    # --- power and resets ---------------------------------------------------------------------------------------
    def _post(self) -> None:
        """Do what the board's own firmware does after a reset, before any driver: place VRAM, store the discovery
        binary.
        """
        self._locate((*self.mmhubs, *self.gfxhubs))
        self.vram.write(
            self.vram.size_bytes - discovery.TOP_OFFSET,
            discovery.build(self.chip, self.faults.get("discovery_contradicts") or 0),
        )
        half = self.faults.get("half_core")
        if half is not None and 0 <= half < len(self.cores):
            self.cores[half].grbm.lose_half()

    def _locate(self, hubs: Iterable[VmHub]) -> None:
        """Tell hubs where VRAM is. Drivers program these for virtual functions only; the VBIOS posts them for the
        card.
        """
        top = FB_LOCATION + -(-(self.vram.size_bytes + self.chip.kept_bytes) // FB_UNIT) - 1
        for hub in hubs:
            hub.cells[f"{hub.row.prefix}MC_VM_FB_LOCATION_BASE"] = FB_LOCATION
            hub.cells[f"{hub.row.prefix}MC_VM_FB_LOCATION_TOP"] = top
            # each of the linked cards has a region of as many bytes, and this one is the first
            if (hive := self.chip.hive) is not None:
                hub.cells.put("MC_VM_XGMI_LFB_CNTL", PF_MAX_REGION=hive.cards - 1, PF_LFB_REGION=0)
                hub.cells.put("MC_VM_XGMI_LFB_SIZE", PF_LFB_SIZE=top - FB_LOCATION + 1)

    def _reset_blocks(self, *, keep_scratch: bool) -> None:
        # writes that the host posted before the reset arrive first
        self.settle()
        # work in progress is dropped
        self.clock.forget()
        self.nbio.reset(keep_scratch=keep_scratch)
        for block in self._blocks:
            block.reset()
        if self.chip.cores > 1:
            self._partition(self.faults.get("partitioned") or 1)
        self.vram.lose()
        self._post()

    def mode1_reset(self) -> None:
        """Reset the whole chip except its PCI configuration space. VRAM is lost; the VBIOS scratch registers keep their
        values.
        """
        self.log.note("card", "reset", "mode 1")
        self._reset_blocks(keep_scratch=True)

    def mode2_reset(self) -> None:
        """Reset the graphics cores, the copy engines and the bus interface, configuration space included. Memory, its
        hubs, the security processor, the power controller and the interrupt handler go on.

        Source: aldebaran.c, which restores just these; smu_v13_0_6_ppt.c, mode2_reset, which restores configuration
        space. GUESS: that the firmware of all of these engines is lost.
        """
        self.log.note("card", "reset", "mode 2")
        self.settle()
        copies = [copier.cells for copier in self.sdma]
        parts: list[Resettable] = [*self._gc_cells, *copies, *self.gfxhubs, *self.cores, *self.sdma]
        self.nbio.reset(keep_scratch=True)
        for part in parts:
            part.reset()
        if self.chip.cores > 1:
            self._partition(1)
        self._locate(self.gfxhubs)
        self.psp.ring.forget_engines()
        self.gpu.forget()

    def _function_reset(self, kind: str) -> None:
        """Reset the chip too, after a reset that came over the bus."""
        self.log.note("card", "reset", "{}", kind)
        self._reset_blocks(keep_scratch=False)

    def _shown(self) -> tuple[str, str, dict[str, object]]:
        return self.chip.name, self.chip.product, {"bytes waiting in HDP": self.hdp.holds}


def _sized(chip: ChipRow, vram_bytes: int | None, bar0_bytes: int) -> ChipRow:
    """Return the row with another size of VRAM and of BAR 0."""
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
