"""A falcon: a small processor with its own code and data memory, loaded by the CPU through ports or by its DMA.

Its instructions are not run. When it is started, the model checks what a boot ROM checks, recognises the signed image
that was loaded, and lets that image's model act on the card.

Sources: dev_falcon_v4.h, dev_falcon_second_pri.h, dev_riscv_pri.h and dev_fbif_v4.h of NVIDIA's open kernel modules;
open-gpu-doc (falcon); the order of accesses in kernel_falcon_tu102.c and kernel_gsp_falcon_ga102.c.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Protocol

from ringup.autogen.nv import falcon as regs
from ringup.autogen.nv import riscv
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.board.falcon_memory import BLOCK_BYTES, CodeMemory, DataMemory
from ringup.silicon.nv.board.loader import load
from ringup.silicon.nv.chips.row import ChipRow, FalconRow
from ringup.silicon.nv.common.faults import FALCON_STUCK
from ringup.silicon.nv.common.registers import ALL, Cell, Registers
from ringup.silicon.nv.common.signed import Part, identify

# GUESS: how long scrubbing both memories and running a program take
SCRUB_US, RUN_US = 10, 500
# RSA-3072
SIGNATURE_BYTES = 384
CONTEXTS = 8
IRQ_HALT, IRQ_SWGEN0 = 1 << 4, 1 << 6
HWCFG2_RISCV, HWCFG2_SCRUBBING, HWCFG2_LOCKDOWN, HWCFG2_RESET_READY = 1 << 10, 1 << 12, 1 << 13, 1 << 31
DMACTL_SCRUBBING = 0x6
CPUCTL_START, CPUCTL_HALTED, CPUCTL_ALIAS = 1 << 1, 1 << 4, 1 << 6
BCR_VALID, BCR_RISCV = 1 << 0, 1 << 4
DMA_IDLE = 1 << 1
# not in NVIDIA's manuals; nouveau falcon/base.c: version, secure modes, ports of code and of data memory; ITFEN;
# sec2/tu102.c: bit 20 tells that debug signatures count, which a production board's do not
HWCFG1, HWCFG1_VALUE, ITFEN, DEBUG_STATUS = 0x12C, 0x1136, 0x48, 0x408
ENGINE_RESET = 0x3C0


class Target(IntEnum):
    """Where a falcon's DMA goes, FBIF_TRANSCFG.target."""

    LOCAL_FB = 0
    COHERENT_SYSMEM = 1
    NONCOHERENT_SYSMEM = 2


class DmaMemory(Protocol):
    """The memory that a falcon's DMA reaches by physical addresses."""

    def fetch(self, target: Target, address: int, size_bytes: int) -> bytes:
        """Return bytes."""
        ...

    def store(self, target: Target, address: int, data: bytes) -> None:
        """Store bytes."""
        ...


class Falcon:
    """One falcon. `programs`: what signed images do, by part; a program returns the value that it leaves in mailbox 0,
    or None to leave it.
    """

    def __init__(
        self,
        chip: ChipRow,
        row: FalconRow,
        registers: Registers,
        memory: DmaMemory,
        clock: VirtualClock,
        log: EventLog,
        faults: Faults,
    ) -> None:
        self.chip, self.row, self.name, self._faults = chip, row, row.name, faults
        self._memory, self._clock, self._log = memory, clock, log
        self.imem, self.dmem = CodeMemory(row.imem_bytes), DataMemory(row.dmem_bytes)
        self.programs: dict[Part, Callable[[Falcon], int | None]] = {}
        # called when the engine is reset, and when an interrupt for the CPU rises
        self.on_reset: Callable[[], None] = lambda: None
        self.on_interrupt: Callable[[], None] = lambda: None
        self.riscv_active = False
        # whether the RISC-V core runs code that keeps the CPU from most registers; on chips with an FSP
        self.lockdown = False
        self._run = 0
        self._raised = False
        self._wire_registers(registers)
        self._wire_memory_ports(registers)
        self._wire_second_page(registers)
        self._power_up()

    # --- registers ----------------------------------------------------------------------------------------------
    def _wire_registers(self, registers: Registers) -> None:
        base = self.row.base
        cell = partial(registers.cell, base=base, owner=self.row.prefix)
        self.irq_status = cell(regs.NV_PFALCON_FALCON_IRQSTAT, fixed=ALL)
        cell(regs.NV_PFALCON_FALCON_IRQSCLR).on_write = self._clear_irqs
        self._irq_mask = cell(regs.NV_PFALCON_FALCON_IRQMASK, fixed=ALL)
        cell(regs.NV_PFALCON_FALCON_IRQMSET).on_write = lambda value: self._set_mask(self._irq_mask.value | value)
        cell(regs.NV_PFALCON_FALCON_IRQMCLR).on_write = lambda value: self._set_mask(self._irq_mask.value & ~value)
        self._irq_destination = cell(regs.NV_PFALCON_FALCON_IRQDEST)
        self._irq_destination.on_write = lambda value: self._update()
        self.mailbox0 = cell(regs.NV_PFALCON_FALCON_MAILBOX0)
        self.mailbox1 = cell(regs.NV_PFALCON_FALCON_MAILBOX1)
        # software's own: the version of the program, and the chip's id that a driver leaves for it
        self.os_version = cell(regs.NV_PFALCON_FALCON_OS)
        self.chip_id = cell(regs.NV_PFALCON_FALCON_RM)
        cell(regs.NV_PFALCON_FALCON_DEBUGINFO)
        registers.at(base + ITFEN, f"{self.row.prefix}FALCON_ITFEN")
        registers.at(base + DEBUG_STATUS, f"{self.row.prefix}FALCON_DEBUG_STATUS", fixed=ALL)
        blocks = self.row.imem_bytes // BLOCK_BYTES | self.row.dmem_bytes // BLOCK_BYTES << 9
        cell(regs.NV_PFALCON_FALCON_HWCFG, reset=blocks, fixed=ALL)
        registers.at(base + HWCFG1, f"{self.row.prefix}FALCON_HWCFG1", reset=HWCFG1_VALUE, fixed=ALL)
        self._hwcfg2 = cell(regs.NV_PFALCON_FALCON_HWCFG2, fixed=ALL)
        self._hwcfg2.on_read = self._configuration
        self._dma_control = cell(regs.NV_PFALCON_FALCON_DMACTL, fixed=DMACTL_SCRUBBING)
        self._dma_control.on_read = lambda: self._dma_control.value | (DMACTL_SCRUBBING if self._scrubbing else 0)
        self._control = cell(regs.NV_PFALCON_FALCON_CPUCTL, fixed=CPUCTL_HALTED)
        self._control.on_write = self._start
        self._control.on_read = lambda: self._control.value & ~CPUCTL_START
        cell(regs.NV_PFALCON_FALCON_CPUCTL_ALIAS).on_write = self._start_by_alias
        self._boot_vector = cell(regs.NV_PFALCON_FALCON_BOOTVEC)
        registers.at(base + ENGINE_RESET, f"{self.row.prefix}FALCON_ENGINE").on_write = self._engine_reset
        for group in range(4):
            word = getattr(regs, f"NV_PFALCON_FALCON_COMMON_SCRATCH_GROUP_{group}")
            for index in range(4):
                cell(word, index)

    def _wire_memory_ports(self, registers: Registers) -> None:
        cell = partial(registers.cell, base=self.row.base, owner=self.row.prefix)
        self._code_port = cell(regs.NV_PFALCON_FALCON_IMEMC)
        self._code_tag = cell(regs.NV_PFALCON_FALCON_IMEMT)
        code = cell(regs.NV_PFALCON_FALCON_IMEMD)
        code.on_read, code.on_write = self._read_code, self._write_code
        self._data_port = cell(regs.NV_PFALCON_FALCON_DMEMC)
        data = cell(regs.NV_PFALCON_FALCON_DMEMD)
        data.on_read, data.on_write = self._read_data, self._write_data
        self._dma_base = cell(regs.NV_PFALCON_FALCON_DMATRFBASE)
        self._dma_base1 = cell(regs.NV_PFALCON_FALCON_DMATRFBASE1)
        self._dma_inside = cell(regs.NV_PFALCON_FALCON_DMATRFMOFFS)
        self._dma_outside = cell(regs.NV_PFALCON_FALCON_DMATRFFBOFFS)
        command = cell(regs.NV_PFALCON_FALCON_DMATRFCMD)
        # a transfer ends within the time of the write
        command.on_read, command.on_write = lambda: DMA_IDLE, self._transfer
        interface = partial(registers.cell, base=self.row.fbif, owner=self.row.prefix)
        self._contexts = [interface(regs.NV_PFALCON_FBIF_TRANSCFG, index) for index in range(CONTEXTS)]
        self._interface = interface(regs.NV_PFALCON_FBIF_CTL)

    def _wire_second_page(self, registers: Registers) -> None:
        cell = partial(registers.cell, base=self.row.base2, owner=self.row.prefix)
        self.riscv_irq_mask: Cell | None = None
        self.riscv_irq_destination: Cell | None = None
        self._core_select: Cell | None = None
        if registers.has(regs.NV_PFALCON_FALCON_INTR_RETRIGGER):
            for index in range(2):
                again = registers.cell(
                    regs.NV_PFALCON_FALCON_INTR_RETRIGGER, index, self.row.base, owner=self.row.prefix
                )
                again.on_write = lambda value: self._retrigger()
        if self.chip.boots_from_hs:
            self._algorithm = cell(regs.NV_PFALCON2_FALCON_MOD_SEL)
            self._ucode_id = cell(regs.NV_PFALCON2_FALCON_BROM_CURR_UCODE_ID)
            self._engine_mask = cell(regs.NV_PFALCON2_FALCON_BROM_ENGIDMASK)
            self._signature_at = cell(regs.NV_PFALCON2_FALCON_BROM_PARAADDR)
            self._core_select = cell(riscv.NV_PRISCV_RISCV_BCR_CTRL, fixed=BCR_VALID)
            self._core_select.on_write = self._select_core
            active = cell(riscv.NV_PRISCV_RISCV_CPUCTL, fixed=ALL)
            active.on_read = lambda: int(self.riscv_active) << 7 | int(not self.riscv_active) << 4
        elif self.row.riscv:
            active = cell(riscv.NV_PRISCV_RISCV_CORE_SWITCH_RISCV_STATUS, fixed=ALL)
            active.on_read = lambda: int(self.riscv_active)
        if self.row.riscv:
            self.riscv_irq_mask = cell(riscv.NV_PRISCV_RISCV_IRQMASK, fixed=ALL)
            self.riscv_irq_destination = cell(riscv.NV_PRISCV_RISCV_IRQDEST)

    def _power_up(self) -> None:
        self._scrubbing = False
        self._control.value |= CPUCTL_HALTED
        if self._core_select is not None:
            self._core_select.value |= BCR_VALID

    def reset(self) -> None:
        """Lose everything: the chip was reset. Registers are reset before."""
        self._run += 1
        self.riscv_active = self.lockdown = self._raised = False
        self.imem.clear()
        self.dmem.clear()
        self._power_up()

    def _configuration(self) -> int:
        scrubbing = HWCFG2_SCRUBBING if self._scrubbing and self.chip.boots_from_hs else 0
        lockdown = HWCFG2_LOCKDOWN if self.lockdown else 0
        return (HWCFG2_RISCV if self.row.riscv else 0) | scrubbing | lockdown | HWCFG2_RESET_READY

    def mistake(self, form: str, *values: object) -> None:
        """Record a mistake of the driver, and what the falcon does about it."""
        self._log.note(self.name, "violation", form, *values)

    # --- reset ------------------------------------------------------------------------------------------------------
    def _engine_reset(self, value: int) -> None:
        """Hold the engine in reset while bit 0 is set, then scrub both memories. Source: kflcnSecureReset_TU102."""
        if not value & 1:
            return
        self._run += 1
        run = self._run
        self.riscv_active = self.lockdown = self._raised = False
        self.imem.clear()
        self.dmem.clear()
        for cell in (self.irq_status, self._irq_mask, self._dma_control, self._interface, *self._contexts):
            cell.value = 0
        self._control.value = CPUCTL_HALTED
        if self._core_select is not None:
            self._core_select.value = BCR_VALID
        if self.riscv_irq_mask is not None:
            self.riscv_irq_mask.value = 0
        self._scrubbing = True
        self._clock.after(SCRUB_US, lambda: self._scrubbed(run))
        self._log.note(self.name, "reset", "the engine is reset")
        self.on_reset()

    def _scrubbed(self, run: int) -> None:
        if run == self._run:
            self._scrubbing = False

    def _select_core(self, value: int) -> None:
        """Choose which core the next start runs: the falcon's own or RISC-V. It takes effect at once."""
        if value & BCR_RISCV and not self.row.riscv:
            self.mistake("RISC-V is selected, which this falcon lacks")

    def run_riscv(self) -> None:
        """Start the RISC-V core, as signed programs of another falcon do. They select it themselves: nova-core leaves
        the falcon's own core selected (gsp/boot.rs), NVIDIA's driver and nouveau select RISC-V before.
        """
        if self._core_select is not None:
            self._core_select.value = BCR_VALID | BCR_RISCV
        self.riscv_active = True

    @property
    def selects_riscv(self) -> bool:
        """Whether the next start runs the RISC-V core. On Turing the program that starts it switches by itself."""
        return self._core_select is None or bool(self._core_select.value & BCR_RISCV)

    # --- memory -----------------------------------------------------------------------------------------------------
    def _write_code(self, value: int) -> None:
        port = self._code_port.value
        at = port & 0xFF_FFFC
        if at % BLOCK_BYTES == 0:
            self.imem.tag(at // BLOCK_BYTES, self._code_tag.value & 0xFFFF, secure=bool(port >> 28 & 1))
        if self._ready("IMEM") and not self.imem.write(at, value.to_bytes(4, "little")):
            self.mistake("IMEMD writes byte {:#x} of an IMEM of {:#x}", at, self.row.imem_bytes)
        if port >> 24 & 1:
            self._code_port.value = port & ~0xFF_FFFC | at + 4 & 0xFF_FFFC

    def _read_code(self) -> int:
        port = self._code_port.value
        at = port & 0xFF_FFFC
        if port >> 25 & 1:
            self._code_port.value = port & ~0xFF_FFFC | at + 4 & 0xFF_FFFC
        if self.imem.is_secure(at):
            # dev_falcon_v4.h does not say what the CPU gets; GUESS: the bus's pattern for a refused read
            self.mistake("IMEMD reads byte {:#x} of signed code, which the CPU may not", at)
            return 0xDEAD_5EC1
        return int.from_bytes(self.imem.read(at, 4), "little")

    def _write_data(self, value: int) -> None:
        port = self._data_port.value
        at = port & 0xFF_FFFC
        if self._ready("DMEM") and not self.dmem.write(at, value.to_bytes(4, "little")):
            self.mistake("DMEMD writes byte {:#x} of a DMEM of {:#x}", at, self.row.dmem_bytes)
        if port >> 24 & 1:
            self._data_port.value = port & ~0xFF_FFFC | at + 4 & 0xFF_FFFC

    def _read_data(self) -> int:
        port = self._data_port.value
        at = port & 0xFF_FFFC
        if port >> 25 & 1:
            self._data_port.value = port & ~0xFF_FFFC | at + 4 & 0xFF_FFFC
        return int.from_bytes(self.dmem.read(at, 4), "little")

    def _ready(self, what: str) -> bool:
        if self._scrubbing:
            self.mistake("{} is written while it is scrubbed", what)
        return not self._scrubbing

    def context(self, index: int) -> Target | None:
        """Return where a DMA context leads; None, with a record of the mistake, if it may not be used that way."""
        config = self._contexts[index].value
        if not config >> 2 & 1:
            self.mistake("DMA context {} is virtual, and no instance block is bound", index)
            return None
        if not self._interface.value >> 7 & 1 or self._dma_control.value & 1:
            self.mistake("physical DMA without FBIF_CTL.allow_phys_no_ctx, or with DMACTL.require_ctx set")
            return None
        try:
            return Target(config & 3)
        except ValueError:
            self.mistake("DMA context {} has target {}, which is none", index, config & 3)
            return None

    def fetch(self, target: Target, address: int, size_bytes: int) -> bytes:
        """Return bytes that a program of this falcon reads."""
        return self._memory.fetch(target, address, size_bytes)

    def store(self, target: Target, address: int, data: bytes) -> None:
        """Store bytes that a program of this falcon writes."""
        self._memory.store(target, address, data)

    def _transfer(self, command: int) -> None:
        """Do a DMATRFCMD: 4 << size bytes between this falcon's memory and a context's."""
        size_bytes = 4 << (command >> 8 & 7)
        inside = self._dma_inside.value & 0xFFFF
        offset = self._dma_outside.value
        base = (self._dma_base.value | (self._dma_base1.value & 0x1FF) << 32) << 8
        target = self.context(command >> 12 & 7)
        if target is None or not self._ready("a memory"):
            return
        in_code = bool(command >> 4 & 1)
        memory = self.imem if in_code else self.dmem
        if inside % size_bytes or offset % size_bytes or inside + size_bytes > memory.size_bytes:
            self.mistake("DMA of {} bytes at {:#x} of a memory of {:#x}", size_bytes, inside, memory.size_bytes)
        elif command >> 5 & 1:
            self._memory.store(target, base + offset, memory.read(inside, size_bytes))
        else:
            data = self._memory.fetch(target, base + offset, size_bytes)
            if in_code and inside % BLOCK_BYTES == 0:
                self.imem.tag(inside // BLOCK_BYTES, offset // BLOCK_BYTES & 0xFFFF, secure=bool(command >> 2 & 3))
            memory.write(inside, data)

    # --- running ------------------------------------------------------------------------------------------------
    def _start_by_alias(self, value: int) -> None:
        if not self._control.value & CPUCTL_ALIAS:
            self.mistake("CPUCTL_ALIAS is written while CPUCTL.alias_en is off")
        else:
            self._start(value)

    def _start(self, value: int) -> None:
        if not value & CPUCTL_START:
            return
        if not self._control.value & CPUCTL_HALTED:
            self.mistake("the falcon is started while it runs")
            return
        if self._scrubbing:
            self.mistake("the falcon is started while its memories are scrubbed")
            return
        if self._core_select is not None and self.selects_riscv:
            self.mistake("the falcon is started while BCR_CTRL selects RISC-V")
            return
        self._control.value &= ~CPUCTL_HALTED
        self._log.note(self.name, "start", "started at {:#x}, mailboxes {:#x} {:#x}", self._boot_vector.value,
                       self.mailbox0.value, self.mailbox1.value)  # fmt: skip
        run = self._run
        self._clock.after(RUN_US, lambda: self._execute(run))

    def _execute(self, run: int) -> None:
        if run != self._run:
            return
        part = self._signed_program()
        if part is None:
            # GUESS: the core stops in its boot ROM or at the first instruction, without an answer
            self._halt()
            return
        self._log.note(self.name, "program", "runs {}", part.value)
        if self._faults.take(FALCON_STUCK):
            return
        answer = self.programs[part](self)
        if answer is not None:
            self.mailbox0.value = answer
        self._halt()

    def _halt(self) -> None:
        self._control.value |= CPUCTL_HALTED
        self.raise_irq(IRQ_HALT)

    def _signed_program(self) -> Part | None:
        """Return what the loaded code is; None, with a record of the mistake, if the boot ROM or the signature check
        refuses it.
        """
        block = self.imem.find(self._boot_vector.value // BLOCK_BYTES)
        if block is None:
            self.mistake("BOOTVEC {:#x} points at code that was not loaded", self._boot_vector.value)
            return None
        if self.chip.boots_from_hs:
            if not self._boot_rom_accepts():
                return None
        elif not self.imem.secure_code() and not self._load():
            return None
        identity = identify(self.imem.secure_code())
        if identity is None:
            self.mistake(
                "the signed code in IMEM has no signature that is known: {} bytes", len(self.imem.secure_code())
            )
            return None
        if self.chip.name not in identity.chips:
            self.mistake("{} for {} was loaded into {}", identity.part.value, ", ".join(identity.chips), self.chip.name)
            return None
        if identity.part not in self.programs:
            self.mistake("{} was loaded, which does not run on this falcon", identity.part.value)
            return None
        return identity.part

    def _boot_rom_accepts(self) -> bool:
        """Check what the boot ROM checks before it verifies the signature."""
        at = self._signature_at.value
        signature = self.dmem.read(at, SIGNATURE_BYTES) if at + SIGNATURE_BYTES <= self.dmem.size_bytes else b""
        checks = (
            (self._algorithm.value & 0xFF == 1, "MOD_SEL selects no RSA-3072"),
            (bool(self._engine_mask.value & self.row.engine_id), "BROM_ENGIDMASK leaves this falcon out"),
            (0 < self._ucode_id.value & 0xFF <= 16, "BROM_CURR_UCODE_ID is none of 1 to 16"),
            (any(signature), "there is no signature at BROM_PARAADDR"),
        )
        for passed, why in checks:
            if not passed:
                self.mistake("the boot ROM refuses the code: {}", why)
                return False
        return True

    def _load(self) -> bool:
        """Run the unsigned loader that Turing's drivers put at the end of IMEM; return whether it loaded anything."""
        identity = identify(self.imem.plain_code(self._boot_vector.value // BLOCK_BYTES))
        if identity is None or identity.part is not Part.LOADER:
            self.mistake("the code at BOOTVEC is neither signed nor a known loader")
            return False
        return load(self)

    # --- interrupts -------------------------------------------------------------------------------------------------
    def raise_irq(self, bits: int) -> None:
        """Set status bits, and tell the interrupt tree when that matters to the CPU."""
        self.irq_status.value |= bits
        self._update()

    def _clear_irqs(self, value: int) -> None:
        self.irq_status.value &= ~value
        self._update()

    def _set_mask(self, value: int) -> None:
        self._irq_mask.value = value & ALL
        self._update()

    @property
    def interrupts_host(self) -> bool:
        """Whether a status bit is set, unmasked and directed to the CPU, by either core.

        Source: kflcnReadIntrStatus_TU102.
        """
        status = self.irq_status.value
        by_falcon = status & self._irq_mask.value & self._irq_destination.value
        if self.riscv_irq_mask is None or self.riscv_irq_destination is None:
            return bool(by_falcon)
        return bool(by_falcon | status & self.riscv_irq_mask.value & self.riscv_irq_destination.value)

    def _update(self) -> None:
        now = self.interrupts_host
        if now and not self._raised:
            self.on_interrupt()
        self._raised = now

    def _retrigger(self) -> None:
        """Send the interrupt again if its cause is still there. Source: kflcnIntrRetrigger_GA100."""
        if self.interrupts_host:
            self.on_interrupt()
