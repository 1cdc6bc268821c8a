"""A whole virtual NVIDIA card: the parts of its row wired together, power, resets, and the interface to its user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ringup.autogen.nv import engines, falcon, fifo, mmu
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.memory import Vram
from ringup.silicon.common.witness import Observation, Witness, observations
from ringup.silicon.nv.board import vbios
from ringup.silicon.nv.board.falcon import IRQ_SWGEN0, Falcon, Target
from ringup.silicon.nv.board.fsp import Fsp
from ringup.silicon.nv.board.identity import Identity
from ringup.silicon.nv.board.interrupts import InterruptTree, wire_master
from ringup.silicon.nv.board.power import Power
from ringup.silicon.nv.board.timer import Timer
from ringup.silicon.nv.chips import find
from ringup.silicon.nv.chips.row import MIB, ChipRow
from ringup.silicon.nv.common.faults import KINDS as FAULT_KINDS
from ringup.silicon.nv.common.registers import ALL, PRIV_BASE, RegisterBar, Registers
from ringup.silicon.nv.common.signed import Part
from ringup.silicon.nv.compute.launch import MissingCores
from ringup.silicon.nv.firmware import nouveau
from ringup.silicon.nv.firmware.booter import Booter
from ringup.silicon.nv.firmware.fmc import ChainOfTrust
from ringup.silicon.nv.firmware.fwsec import Fwsec
from ringup.silicon.nv.firmware.region import Loaded
from ringup.silicon.nv.firmware.sec2_rtos import Sec2Rtos
from ringup.silicon.nv.gsp.firmware import GspFirmware
from ringup.silicon.nv.gsp.ports import Boot
from ringup.silicon.nv.gsp_side import GspEvents, GspMemory
from ringup.silicon.nv.host import channel_ram
from ringup.silicon.nv.host.host import Host
from ringup.silicon.nv.memory.access_counters import AccessCounters
from ringup.silicon.nv.memory.fault_buffers import Buffer, Which
from ringup.silicon.nv.memory.protected import ProtectedVram
from ringup.silicon.nv.memory.windows import Memory, Windows
from ringup.silicon.nv.rm.boards import rows as boards
from ringup.silicon.nv.rm.boards.facts import EngineKind
from ringup.silicon.pci.function import Function
from ringup.silicon.pci.path import Bar
from ringup.silicon.pci.path import Target as BarTarget
from ringup.silicon.pci.slot import SlotCard
from ringup.silicon.pci.tree import Node, Tree
from ringup.silicon.shader.host.code_cache import CodeCache
from ringup.silicon.shader.nv.translator.engine import Translator

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

# whose programs a card runs; a launch on others is refused
CORES = ("sm_75", "sm_80", "sm_86", "sm_89")
# what GSP-RM enables and directs to the CPU once it runs
GSP_IRQS = IRQ_SWGEN0 | 1 << 4


class VirtualNvidia(SlotCard):
    """One card in one slot. Its own firmware has posted it.

    `bars`: registers, memory, instance memory (drivers call it BAR2), by the numbers of `chip.memory_bars`. Memory is
    reached through page tables, so no BAR can be mapped.
    """

    def __init__(
        self,
        chip: str = "ga102",
        *,
        vram_bytes: int | None = None,
        enumerated: bool = True,
        clock: VirtualClock | None = None,
        beside: Executor | None = None,
        code_folder: Path | None = None,
    ) -> None:
        """Make the card.

        `enumerated`: the host's firmware has assigned addresses and enabled memory decoding; the driver enables bus
        mastering. `clock`: that of the machine that the card is part of; a new one by default. `beside` translates
        shader programs while time passes; without it a launch waits for the translation. `code_folder`: where
        translated shader programs are kept for other processes; nowhere by default.
        """
        super().__init__(clock)
        self.faults.know(*FAULT_KINDS)
        self.chip = _sized(find(chip), vram_bytes)
        self.memory_bar = self.chip.memory_bars[1]
        self.vram = Vram(self.chip.vram_bytes)
        self.image = vbios.build(self.chip)
        gpu = Function(self.chip.function, self.interrupts)
        self._wire_bus(Tree(Node(gpu)), gpu)
        self.registers = Registers(self.chip, self.log.note)
        self.protected = ProtectedVram(self.vram, self.registers, self.log)
        self.memory = Memory(self.protected, self.host, self.log)
        self.windows = Windows(self.registers, self.memory, self.log, self.faults)
        self.tree_of_interrupts = InterruptTree(self.registers, gpu.interrupt)
        if self.chip.pascal_interrupts:
            wire_master(self.registers)
        self.timer = Timer(self.registers, self.clock)
        AccessCounters(self.registers)
        Identity(self.chip, self.registers, self.image, gpu, self.tree_of_interrupts.rearm)
        self._wire_falcons()
        if self.chip.cores in CORES:
            self.engines.core = Translator(
                self.chip.cores,
                beside=beside,
                on_disk=None if code_folder is None else CodeCache(code_folder),
                now_ns=lambda: self.timer.now_ns,
            )
        else:
            self.engines.core = MissingCores(self.chip.cores)
        self._wire_apertures()
        self.witness = Witness([lambda: observations(self.violations, "")], [self._unfinished])
        self.places = self.tree.enumerate() if enumerated else {}
        self.bus_changed()

    def _wire_falcons(self) -> None:
        chip, registers = self.chip, self.registers
        make = partial(
            Falcon,
            chip,
            registers=registers,
            memory=_FalconMemory(self),
            clock=self.clock,
            log=self.log,
            faults=self.faults,
        )
        self.gsp, self.sec2 = make(chip.falcon("gsp")), make(chip.falcon("sec2"))
        self._wire_boot()
        self.gsp.on_interrupt = lambda: self.tree_of_interrupts.pulse(chip.gsp_vector)
        if not registers.has(falcon.NV_PFALCON_FALCON_INTR_RETRIGGER):
            # a line without a retrigger register: the tree sees a cause that stays
            self.tree_of_interrupts.levels[chip.gsp_vector] = lambda: self.gsp.interrupts_host
        self.gsp.on_reset = self._stop_gsp
        self.engines = Host(
            chip.name, self.memory, self.windows.gmmu, self.clock, self.log, self.tree_of_interrupts.pulse, self.faults
        )
        board = boards.find(chip.name)
        channel_ram.wire(registers, board, self.engines)
        if registers.has(fifo.NV_CE_BASE_GRCE_MASK):
            # which copy engines are on the graphics engine's runlist
            mask = sum(1 << lce for lce in board.copying.graphics_lces)
            base = board.of_kind(EngineKind.CE)[0].register_base
            registers.cell(fifo.NV_CE_BASE_GRCE_MASK, 0, base, reset=mask, fixed=ALL)
        self.power = Power(self.clock, chip.name)
        self.engines.load = self.power
        self.engines.replayable = self._fault_buffers()
        self.windows.on_replay = self.engines.replay
        rtos: Sec2Rtos | None = None
        if self.chain is None:
            rtos = Sec2Rtos(chip, registers, self.vram, self.gsp, self._resume_gsp)
            self.sec2.programs[Part.SEC2_RTOS] = rtos.run
        events = GspEvents(self.gsp, self.windows, self.engines, self.power, self.log)
        if self.chain is not None:
            events.on_suspended = self.chain.ended
        self.firmware_of_gsp = GspFirmware(
            chip, GspMemory(self.vram, self.host), events, self.clock, self.log, self.faults, self._crash_gsp, rtos
        )
        self.engines.fail = self.firmware_of_gsp.channel_failed
        self.engines.offer_fault = self.firmware_of_gsp.offer_fault
        doorbell = registers.cell(mmu.NV_VIRTUAL_FUNCTION_DOORBELL, 0, PRIV_BASE)
        doorbell.on_write = self._ring
        for index in range(registers.count(engines.NV_PGSP_QUEUE_HEAD)):
            head = registers.cell(engines.NV_PGSP_QUEUE_HEAD, index)
            if index == 0:
                head.on_write = lambda value: self._doorbell()
        for word in (engines.NV_PGSP_MAILBOX, engines.NV_PSEC_MAILBOX):
            for index in range(registers.count(word)):
                registers.cell(word, index)

    def _wire_boot(self) -> None:
        """Make what starts the GSP: the FSP, or programs that the driver runs on the falcons."""
        chip, registers = self.chip, self.registers
        self.fsp: Fsp | None = None
        self.chain: ChainOfTrust | None = None
        if chip.fsp is not None:
            self.fsp = Fsp(registers, self.clock, self.log, self.faults)
            self.chain = ChainOfTrust(
                chip, chip.fsp, self.fsp, self.gsp, registers, self.protected, self.clock, self.faults,
                self._take_gsp, self._start_gsp,
            )  # fmt: skip
            return
        self.gsp.programs[Part.FWSEC] = Fwsec(chip, registers, self.protected, self.faults).run
        booter = Booter(chip, self.protected, self.gsp, self._start_gsp, self.faults)
        self.sec2.programs[Part.BOOTER_LOAD] = booter.load
        self.sec2.programs[Part.BOOTER_UNLOAD] = booter.unload

    def _fault_buffers(self) -> Buffer:
        """Make the MMU's buffers; return the one for faults that may be replayed. The firmware owns the other, and
        takes packets out of it at once.
        """
        vectors, pulse = boards.find(self.chip.name).vectors, self.tree_of_interrupts.pulse
        made = [
            Buffer(which, self.registers, self.host, partial(pulse, vector), partial(pulse, lost))
            for which, vector, lost in (
                (Which.NON_REPLAYABLE, vectors.non_replayable_fault, vectors.non_replayable_fault_error),
                (Which.REPLAYABLE, vectors.replayable_fault, vectors.replayable_fault_error),
            )
        ]
        # nothing is prefetched, so there are no faults of prefetches for this to hold back
        self.registers.cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_PAGE_FAULT_CTRL, base=PRIV_BASE)
        return made[Which.REPLAYABLE]

    def _wire_apertures(self) -> None:
        registers = RegisterBar(self.registers, lambda: self.log.accesses, self.log.note)
        numbers = self.chip.memory_bars
        targets = dict[int, BarTarget](zip(numbers, (registers, self.windows.bar1, self.windows.bar2), strict=True))
        self.bars = {
            index: Bar(f"BAR {index}", self.path, target, self._size_of(index)) for index, target in targets.items()
        }
        for index in numbers[1:]:
            self.bars[index].is_memory = True
        rom_bytes = self.gpu.row.rom_bytes
        self.rom = Bar("ROM", self.path, _Rom(self.image), lambda: rom_bytes, lambda: self.gpu.decodes_rom)

    def _unfinished(self) -> list[Observation]:
        """Describe the channels that wait."""
        texts = self.engines.waiting()
        return [Observation(f"host {index}", self.clock.now_us, text) for index, text in enumerate(texts)]

    def _size_of(self, index: int) -> Callable[[], int]:
        return lambda: self.gpu.sizes[index]

    @property
    def name(self) -> str:
        """The name that opens a card of this kind."""
        return f"virtual:{self.chip.name}"

    def firmware(self, name: str) -> bytes | None:
        """Return the made-up firmware for a file name that Linux's nouveau requests; None if it requests no such file
        for this chip. The images alone are in `firmware/images.py`.
        """
        return nouveau.files(self.chip).get(name)

    # --- the GSP ------------------------------------------------------------------------------------------------
    def _start_gsp(self, loaded: Loaded) -> None:
        """Start the RISC-V core on GSP-RM."""
        self._activate_gsp()
        if loaded.resumes:
            self.firmware_of_gsp.resume()
        else:
            boot = Boot(
                loaded.arguments, loaded.release, loaded.reserved_start, loaded.fb_bytes, frts_start=loaded.frts_start
            )
            self.firmware_of_gsp.start(boot)

    def _resume_gsp(self, arguments: int) -> bool:
        """Start the core again where GSP-RM waits for it; return whether it does."""
        if not self.firmware_of_gsp.proceed(arguments):
            return False
        self._activate_gsp()
        return True

    def _activate_gsp(self) -> None:
        self.gsp.run_riscv()
        for cell in (self.gsp.riscv_irq_mask, self.gsp.riscv_irq_destination):
            if cell is not None:
                cell.value = GSP_IRQS
        # GSP-RM takes the mailboxes over
        self.gsp.mailbox0.value = self.gsp.mailbox1.value = 0

    def _take_gsp(self) -> None:
        """Reset the GSP's falcon, as the FSP does before it starts the FMC there."""
        self.gsp.reset()
        self._stop_gsp()

    def _stop_gsp(self) -> None:
        if self.firmware_of_gsp.waits_for_cpu:
            # the reset is part of the sequence
            return
        self.firmware_of_gsp.unload()
        self.engines.reset()
        self.windows.reset()

    def _crash_gsp(self) -> None:
        """Halt the RISC-V core. What it has started goes on."""
        self.log.note("card", "crash", "the GSP's core halts")
        self.gsp.riscv_active = False

    def _ring(self, token: int) -> None:
        """Pass the doorbell of a channel on. GUESS: without the bit that enables it, it does nothing."""
        enable = boards.find(self.chip.name).doorbell_enable
        if token & enable != enable:
            self.log.note("host", "violation", "doorbell {:#x} does not enable its runlist's doorbell", token)
        else:
            self.engines.doorbell(token)

    def _doorbell(self) -> None:
        if self.gsp.riscv_active:
            self.firmware_of_gsp.doorbell()

    # --- power and resets ---------------------------------------------------------------------------------------
    def _function_reset(self, kind: str) -> None:
        self.log.note("card", "reset", "{}", kind)
        # writes that the host posted before the reset arrive first
        self.settle()
        self.clock.forget()
        self.firmware_of_gsp.unload()
        self.engines.reset()
        self.registers.reset()
        for part in (self.gsp, self.sec2, self.windows, self.protected, self.tree_of_interrupts):
            part.reset()
        for booted in (self.fsp, self.chain):
            if booted is not None:
                booted.reset()
        self.vram.lose()

    def _shown(self) -> tuple[str, str, dict[str, object]]:
        return self.chip.name, self.chip.product, {"GSP-RM runs": self.gsp.riscv_active}


class _FalconMemory:
    """Memory by a falcon's DMA targets."""

    def __init__(self, card: VirtualNvidia) -> None:
        self._vram, self._host = card.protected, card.host

    def fetch(self, target: Target, address: int, size_bytes: int) -> bytes:
        """Return bytes."""
        if target is Target.LOCAL_FB:
            return self._vram.read(address, size_bytes)
        return self._host.read(address, size_bytes)

    def store(self, target: Target, address: int, data: bytes) -> None:
        """Store bytes."""
        if target is Target.LOCAL_FB:
            self._vram.write(address, data)
        else:
            self._host.write(address, data)


class _Rom:
    """The expansion ROM."""

    def __init__(self, image: bytes) -> None:
        self._image = image

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes; all ones past the image."""
        return self._image[offset : offset + size_bytes].ljust(size_bytes, b"\xff")

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Ignore writes."""

    def check(self, offset: int, size_bytes: int) -> bool:
        """Accept any access."""
        return True


def _sized(chip: ChipRow, vram_bytes: int | None) -> ChipRow:
    """Return the row with another size of VRAM."""
    if vram_bytes is None:
        return chip
    if vram_bytes % (64 * MIB) or vram_bytes < 512 * MIB:
        raise ValueError(f"VRAM is a multiple of 64 MiB and at least 512 MiB, not {vram_bytes:#x} bytes")
    return replace(chip, vram_bytes=vram_bytes)
