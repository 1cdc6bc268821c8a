"""A whole virtual NVIDIA card: the parts of its row wired together, power, resets, and the interface to its user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ringup.autogen.nv import engines, mmu
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.memory import Vram
from ringup.silicon.common.witness import Observation, Witness, observations
from ringup.silicon.nv.board import vbios
from ringup.silicon.nv.board.falcon import IRQ_SWGEN0, Falcon, Target
from ringup.silicon.nv.board.identity import Identity
from ringup.silicon.nv.board.interrupts import InterruptTree
from ringup.silicon.nv.board.power import Power
from ringup.silicon.nv.board.timer import Timer
from ringup.silicon.nv.chips import find
from ringup.silicon.nv.chips.row import MIB, ChipRow
from ringup.silicon.nv.common.faults import KINDS as FAULT_KINDS
from ringup.silicon.nv.common.registers import PRIV_BASE, RegisterBar, Registers
from ringup.silicon.nv.common.signed import Part
from ringup.silicon.nv.firmware import nouveau
from ringup.silicon.nv.firmware.booter import Booter, Loaded
from ringup.silicon.nv.firmware.fwsec import Fwsec
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
from ringup.silicon.pci.function import Function
from ringup.silicon.pci.path import Bar
from ringup.silicon.pci.path import Target as BarTarget
from ringup.silicon.pci.slot import SlotCard
from ringup.silicon.pci.tree import Node, Tree
from ringup.silicon.shader.nv.translator.engine import Translator

# what GSP-RM enables and directs to the CPU once it runs
GSP_IRQS = IRQ_SWGEN0 | 1 << 4


class VirtualNvidia(SlotCard):
    """One card in one slot. Its own firmware has posted it.

    `bars`: 0 registers, 1 memory, 3 instance memory (drivers call it BAR2). Memory is reached through page tables, so
    no BAR can be mapped.
    """

    memory_bar = 1

    def __init__(
        self,
        chip: str = "ga102",
        *,
        vram_bytes: int | None = None,
        enumerated: bool = True,
        clock: VirtualClock | None = None,
    ) -> None:
        """Make the card.

        `enumerated`: the host's firmware has assigned addresses and enabled memory decoding; the driver enables bus
        mastering. `clock`: that of the machine that the card is part of; a new one by default.
        """
        super().__init__(clock)
        self.faults.know(*FAULT_KINDS)
        self.chip = _sized(find(chip), vram_bytes)
        self.vram = Vram(self.chip.vram_bytes)
        self.image = vbios.build(self.chip)
        gpu = Function(self.chip.function, self.interrupts)
        self._wire_bus(Tree(Node(gpu)), gpu)
        self.registers = Registers(self.chip, self.log.note)
        self.protected = ProtectedVram(self.vram, self.registers, self.log)
        self.memory = Memory(self.protected, self.host, self.log)
        self.windows = Windows(self.registers, self.memory, self.log, self.faults)
        self.tree_of_interrupts = InterruptTree(self.registers, gpu.interrupt)
        self.timer = Timer(self.registers, self.clock)
        AccessCounters(self.registers)
        Identity(self.chip, self.registers, self.image, gpu, self.tree_of_interrupts.rearm)
        self._wire_falcons()
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
        self.gsp.programs[Part.FWSEC] = Fwsec(chip, registers, self.protected, self.faults).run
        booter = Booter(chip, self.protected, self.gsp, self._start_gsp, self.faults)
        self.sec2.programs[Part.BOOTER_LOAD] = booter.load
        self.sec2.programs[Part.BOOTER_UNLOAD] = booter.unload
        self.gsp.on_interrupt = lambda: self.tree_of_interrupts.pulse(chip.gsp_vector)
        if not chip.boots_from_hs:
            # a line without a retrigger register: the tree sees a cause that stays
            self.tree_of_interrupts.levels[chip.gsp_vector] = lambda: self.gsp.interrupts_host
        self.gsp.on_reset = self._stop_gsp
        self.engines = Host(
            chip.name, self.memory, self.windows.gmmu, self.clock, self.log, self.tree_of_interrupts.pulse, self.faults
        )
        channel_ram.wire(registers, boards.find(chip.name), self.engines)
        self.engines.core = Translator(chip.cores)
        self.power = Power(self.clock, chip.name)
        self.engines.load = self.power
        self.engines.replayable = self._fault_buffers()
        self.windows.on_replay = self.engines.replay
        events = GspEvents(self.gsp, self.windows, self.engines, self.power, self.log)
        self.firmware_of_gsp = GspFirmware(
            chip, GspMemory(self.vram, self.host), events, self.clock, self.log, self.faults, self._crash_gsp
        )
        self.engines.fail = self.firmware_of_gsp.channel_failed
        self.engines.offer_fault = self.firmware_of_gsp.offer_fault
        doorbell = registers.cell(mmu.NV_VIRTUAL_FUNCTION_DOORBELL, 0, PRIV_BASE)
        doorbell.on_write = self.engines.doorbell
        for index in range(registers.count(engines.NV_PGSP_QUEUE_HEAD)):
            head = registers.cell(engines.NV_PGSP_QUEUE_HEAD, index)
            if index == 0:
                head.on_write = lambda value: self._doorbell()
        for word in (engines.NV_PGSP_MAILBOX, engines.NV_PSEC_MAILBOX):
            for index in range(registers.count(word)):
                registers.cell(word, index)

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
        targets: dict[int, BarTarget] = {0: registers, 1: self.windows.bar1, 3: self.windows.bar2}
        self.bars = {
            index: Bar(f"BAR {index}", self.path, target, self._size_of(index)) for index, target in targets.items()
        }
        for index in (1, 3):
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
        self.gsp.riscv_active = True
        for cell in (self.gsp.riscv_irq_mask, self.gsp.riscv_irq_destination):
            if cell is not None:
                cell.value = GSP_IRQS
        # GSP-RM takes the mailboxes over
        self.gsp.mailbox0.value = self.gsp.mailbox1.value = 0
        if loaded.resumes:
            self.firmware_of_gsp.resume()
        else:
            boot = Boot(loaded.arguments, loaded.release, loaded.reserved_start, loaded.fb_bytes)
            self.firmware_of_gsp.start(boot)

    def _stop_gsp(self) -> None:
        self.firmware_of_gsp.unload()
        self.engines.reset()
        self.windows.reset()

    def _crash_gsp(self) -> None:
        """Halt the RISC-V core. What it has started goes on."""
        self.log.note("card", "crash", "the GSP's core halts")
        self.gsp.riscv_active = False

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
