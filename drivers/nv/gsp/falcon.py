"""A falcon: the small processor in GSP, SEC2 and other engines, with memories of its own for code (IMEM) and data
(DMEM), which are loaded from outside. Many have a RISC-V core beside it.

Before GA102, code is loaded through ports of registers, and secure code is checked when it runs. From GA102 on, the
engine fetches code itself, and its boot ROM checks a signature in DMEM before the code runs. Source: OGKM
kernel_falcon_tu102.c, _ga100.c, _ga102.c; kernel_gsp_falcon_tu102.c, _ga102.c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringup.autogen.layout import Word
from ringup.autogen.nv import engines, falcon, riscv
from ringup.autogen.nv.engines import NV_PGSP_FALCON_ENGINE, NV_PSEC_FALCON_ENGINE
from ringup.drivers.nv.bus.registers import PRI_ERROR, PRI_ERROR_MASK, Block, Registers, is_pri_error
from ringup.drivers.transport.wait import poll, until
from ringup.errors import DeviceHung, DeviceTimeout, FirmwareError, NotSupported

# TIMEOUT: OGKM's own default for all of these waits is 4 s (GPU_TIMEOUT_DEFAULT)
WAIT_US = 4_000_000
HALT_POLL_US = 250
# QUIRK: GA102 and later sometimes never report it; OGKM waits this long and goes on. PRE_RESET_TIMEOUT_US
RESET_READY_US = 150
# TIMEOUT: OGKM kgspResetHw_GH100: the worst case of a reset's two halves
RESET_US = 10
BLOCK_BYTES = 256
# DMATRFBASE and DMATRFBASE1 hold bits 40:8 and 48:41 of an address
MAX_DMA_ADDRESS = 1 << 49
HIGH_SHIFT = 32
# Which of the engine's eight ways to memory a transfer takes, and what it is set up for. Source:
# kgspExecuteHsFalcon_GA102; s_prepareHsFalconWithLoader
DMA_INDEX = 0
LOADER_DMA_INDEX = 4
TARGET_COHERENT_SYSMEM, MEM_PHYSICAL = 1, 1
SIZE_256B = 6
ALGO_RSA3K = 1
# The published header of GB202 has the core's control register without its bits: they are taken for those of GB100
CORE_FACTS = {"gb202": "gb100"}
# While FSP boots GSP, its registers are closed to the host and read so; the low byte has more of the error. Source:
# OGKM kern_fsp_gh100.c, _kfspIsGspTargetMaskReleased
LOCKED, LOCKED_MASK = 0xBADF_4100, 0xFFFF_FF00


@dataclass(frozen=True, slots=True)
class Engine:
    """Where one falcon's registers lie. Source: OGKM dev_gsp.h, dev_sec_pri.h, dev_falcon_second_pri.h."""

    name: str
    base: int
    riscv_base: int
    fbif_base: int
    reset: type[Word]
    # bit of the engine in the boot ROM's mask, and its first fuse for versions of microcode
    fuses: str


GSP = Engine(
    "GSP", 0x11_0000, engines.NV_FALCON2_GSP_BASE, engines.NV_PGSP_FBIF_BASE, NV_PGSP_FALCON_ENGINE, "GSP_UCODE1"
)
SEC2 = Engine(
    "SEC2", 0x84_0000, engines.NV_FALCON2_SEC_BASE, engines.NV_PSEC_FBIF_BASE, NV_PSEC_FALCON_ENGINE, "SEC2_UCODE1"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes of an image that go to one of the memories: `offset_bytes` in the image, to address `to`; `tag` is the
    virtual address that code is called by.
    """

    offset_bytes: int
    size_bytes: int
    to: int = 0
    tag: int = 0


class Falcon:
    """One falcon of a card. `reset` leaves it halted with empty memories; `run` returns when the program has halted."""

    def __init__(self, registers: Registers, engine: Engine) -> None:
        self.engine, self.registers, self.clock = engine, registers, registers.clock
        self.family = registers.chip.family
        self.block = Block(registers, engine.name, engine.base)
        self.riscv = Block(registers, f"{engine.name}'s RISC-V core", engine.riscv_base)
        self.fbif = Block(registers, f"{engine.name}'s way to memory", engine.fbif_base)
        self._top = Block(registers)

    # resets and cores

    def reset(self) -> None:
        """Reset the engine and select its falcon core, with memories scrubbed. Raises `DeviceTimeout`."""
        self._reset_engine()
        self._wait_scrubbed()
        self.select_falcon()
        self.block.set(falcon.NV_PFALCON_FALCON_RM, self.registers.boot_0)

    def reset_to_riscv(self) -> None:
        """Reset the engine and select its RISC-V core, whose boot ROM waits for what starts it. Only from GA102 on.

        Source: kernel_gsp_ga102.c, _kgspResetIntoRiscv; kflcnRiscvProgramBcr_GA102.
        """
        self._reset_engine()
        self._wait_scrubbed()
        self.riscv.set(riscv.NV_PRISCV_RISCV_BCR_CTRL, core_select=1, valid=1, brfetch=1)

    def select_falcon(self) -> None:
        """Make the falcon core the one that runs. ORDER: not while the engine is in reset."""
        if not self.family.boot_rom or not self.has_riscv:
            return
        word = riscv.NV_PRISCV_RISCV_BCR_CTRL
        if not self.riscv.read(word).core_select:
            return
        self.riscv.set(word, core_select=0)
        doing = f"selecting {self.engine.name}'s falcon core"
        self.riscv.wait(word, lambda seen: bool(seen.valid), WAIT_US, doing)

    @property
    def has_riscv(self) -> bool:
        """Whether the engine has a RISC-V core."""
        return bool(self.block.read(falcon.NV_PFALCON_FALCON_HWCFG2).riscv)

    @property
    def riscv_active(self) -> bool:
        """Whether the RISC-V core runs."""
        word = riscv.NV_PRISCV_RISCV_CORE_SWITCH_RISCV_STATUS
        seen = self._core_control() if self.family.boot_rom else self.riscv.read(word)
        # a core that is closed to the host reads as an error, whose bits say nothing
        return not is_pri_error(int(seen)) and bool(seen.active_stat)

    @property
    def riscv_halted(self) -> bool:
        """Whether the RISC-V core has halted; from GA102 on."""
        seen = self._core_control()
        return not is_pri_error(int(seen)) and bool(seen.halted)

    def _core_control(self) -> Any:
        word = riscv.NV_PRISCV_RISCV_CPUCTL
        facts = self.riscv.facts
        return word.at(CORE_FACTS.get(facts, facts))(int(self.riscv.read(word)))

    @property
    def open(self) -> bool:
        """Whether the host may read the engine's registers: false while FSP keeps them closed."""
        value = int(self.block.read(falcon.NV_PFALCON_FALCON_HWCFG2))
        return value != 0 and value & LOCKED_MASK != LOCKED

    @property
    def locked_down(self) -> bool:
        """Whether the boot ROM keeps the host from the RISC-V core; from GH100 on."""
        return bool(self._configuration().riscv_br_priv_lockdown)

    def _configuration(self) -> Any:
        """Return HWCFG2, whose fields differ by chip."""
        return self.block.read(falcon.NV_PFALCON_FALCON_HWCFG2)

    # mailboxes

    @property
    def mailboxes(self) -> tuple[int, int]:
        """The two mailboxes' values."""
        return (
            int(self.block.read(falcon.NV_PFALCON_FALCON_MAILBOX0)),
            int(self.block.read(falcon.NV_PFALCON_FALCON_MAILBOX1)),
        )

    def post(self, mailbox_0: int, mailbox_1: int) -> None:
        """Write both mailboxes."""
        self.block.set(falcon.NV_PFALCON_FALCON_MAILBOX0, mailbox_0)
        self.block.set(falcon.NV_PFALCON_FALCON_MAILBOX1, mailbox_1)

    def post_address(self, bus_addr: int) -> None:
        """Write an address to the mailboxes, low half first."""
        self.post(bus_addr & 0xFFFF_FFFF, bus_addr >> HIGH_SHIFT)

    # loading

    def allow_physical(self) -> None:
        """Let the engine reach memory by physical addresses, without a context. Source: kflcnDisableCtxReq_TU102."""
        self.fbif.update(falcon.NV_PFALCON_FBIF_CTL, allow_phys_no_ctx=1)
        self.block.set(falcon.NV_PFALCON_FALCON_DMACTL)

    def aim(self, index: int) -> None:
        """Let one of the engine's ways to memory lead to the host's memory."""
        word = falcon.NV_PFALCON_FBIF_TRANSCFG
        self.fbif.update(word, index, target=TARGET_COHERENT_SYSMEM, mem_type=MEM_PHYSICAL)

    def load_imem(self, data: bytes | memoryview, to: int, tag: int, *, secure: bool = False) -> None:
        """Copy code into IMEM through its port. `to` is a multiple of 256, as is `tag`, the first byte's virtual
        address.
        """
        if to % BLOCK_BYTES or tag % BLOCK_BYTES or len(data) % 4:
            raise ValueError(f"code of whole dwords goes to whole blocks, not {len(data)} bytes to {to:#x}, {tag:#x}")
        control = falcon.NV_PFALCON_FALCON_IMEMC
        self.block.set(control, offs=to % BLOCK_BYTES // 4, blk=to // BLOCK_BYTES, aincw=1, secure=int(secure))
        at_tag, at_data = (
            self.block.address(word) for word in (falcon.NV_PFALCON_FALCON_IMEMT, falcon.NV_PFALCON_FALCON_IMEMD)
        )
        writes = []
        for index, (value,) in enumerate(struct.iter_unpack("<I", data)):
            if index % (BLOCK_BYTES // 4) == 0:
                writes.append((at_tag, (tag >> 8) + index // (BLOCK_BYTES // 4)))
            writes.append((at_data, value))
        self.registers.write_run(writes)

    def load_dmem(self, data: bytes | memoryview, to: int) -> None:
        """Copy data into DMEM through its port. `to` is a multiple of 4."""
        if to % 4 or len(data) % 4:
            raise ValueError(f"data of whole dwords goes to a dword, not {len(data)} bytes to {to:#x}")
        self.block.set(falcon.NV_PFALCON_FALCON_DMEMC, offs=to % BLOCK_BYTES // 4, blk=to // BLOCK_BYTES, aincw=1)
        at = self.block.address(falcon.NV_PFALCON_FALCON_DMEMD)
        self.registers.write_run([(at, value) for (value,) in struct.iter_unpack("<I", data)])

    def fetch(self, bus_addr: int, segment: Segment, *, code: bool, tagged: bool = False) -> None:
        """Let the engine fetch a segment of an image that lies at `bus_addr` of the host's memory.

        Code is fetched as secure code, by its virtual address `segment.tag`; `tagged` data too. Raises `DeviceTimeout`.
        """
        start = bus_addr + segment.offset_bytes - segment.tag
        if start % BLOCK_BYTES or segment.size_bytes % BLOCK_BYTES:
            raise FirmwareError(
                f"{self.engine.name} fetches whole blocks of 256 bytes, not {segment.size_bytes} from {start:#x} on"
            )
        if not 0 <= start < MAX_DMA_ADDRESS:
            raise NotSupported(f"{self.engine.name} does not reach the host's memory at {bus_addr:#x}")
        block, word = self.block, falcon.NV_PFALCON_FALCON_DMATRFCMD
        doing = f"{self.engine.name} fetches {'code' if code else 'data'}"
        command = int(
            block.typed(word)(
                size=SIZE_256B, ctxdma=DMA_INDEX, imem=int(code), sec=int(code), set_dmtag=int(tagged and not code)
            )
        )
        # ORDER: a register that is written while the queue is full corrupts a transfer
        block.wait(word, lambda seen: not seen.full, WAIT_US, doing)
        block.set(falcon.NV_PFALCON_FALCON_DMATRFBASE, start >> 8 & 0xFFFF_FFFF)
        block.set(falcon.NV_PFALCON_FALCON_DMATRFBASE1, start >> 8 >> 32)
        addresses = [
            block.address(one)
            for one in (falcon.NV_PFALCON_FALCON_DMATRFMOFFS, falcon.NV_PFALCON_FALCON_DMATRFFBOFFS, word)
        ]
        for at in range(0, segment.size_bytes, BLOCK_BYTES):
            block.wait(word, lambda seen: not seen.full, WAIT_US, doing)
            values = segment.to + at, segment.tag + at, command
            self.registers.write_run(list(zip(addresses, values, strict=True)))
        # ORDER: from GA102 on, the next transfer may overtake this one
        block.wait(word, lambda seen: bool(seen.idle), WAIT_US, doing)

    def set_signature(self, dmem: int, engine_mask: int, ucode_id: int) -> None:
        """Tell the boot ROM where in DMEM the signature lies, and whose it is."""
        self.riscv.set(falcon.NV_PFALCON2_FALCON_BROM_PARAADDR, dmem)
        self.riscv.set(falcon.NV_PFALCON2_FALCON_BROM_ENGIDMASK, engine_mask)
        self.riscv.set(falcon.NV_PFALCON2_FALCON_BROM_CURR_UCODE_ID, val=ucode_id)
        self.riscv.set(falcon.NV_PFALCON2_FALCON_MOD_SEL, algo=ALGO_RSA3K)

    # running

    def start(self, vector: int) -> None:
        """Start the falcon core at a virtual address."""
        self.block.set(falcon.NV_PFALCON_FALCON_BOOTVEC, vector)
        self.start_core()

    def start_core(self) -> None:
        """Start the falcon core where its vector is. Through the alias if the register itself is protected."""
        control = int(self.block.read(falcon.NV_PFALCON_FALCON_CPUCTL))
        alias = self.block.typed(falcon.NV_PFALCON_FALCON_CPUCTL_ALIAS)
        # CPUCTL.alias_en has the bit that the generated facts give to the alias register
        if alias(control & alias.FIELDS["en"].mask).en:
            self.block.set(falcon.NV_PFALCON_FALCON_CPUCTL_ALIAS, startcpu=1)
        else:
            self.block.set(falcon.NV_PFALCON_FALCON_CPUCTL, startcpu=1)

    def wait_halted(self, doing: str, timeout_us: int = WAIT_US) -> None:
        """Wait until the falcon core halts. Raises `DeviceTimeout` with the mailboxes."""
        word = falcon.NV_PFALCON_FALCON_CPUCTL
        seen = poll(
            partial(self.block.read, word),
            lambda word: bool(word.halted),
            clock=self.clock,
            timeout_us=timeout_us,
            poll_us=HALT_POLL_US,
        )
        if not seen.halted:
            zero, one = self.mailboxes
            raise DeviceTimeout(
                f"{doing}: {self.engine.name} does not halt: {word.__name__} read {int(seen):#010x} for "
                f"{timeout_us / 1000:g} ms; its mailboxes read {zero:#x}, {one:#x}; reset the card"
            )

    def run(
        self, vector: int, doing: str, mailboxes: tuple[int, int] | None = None, timeout_us: int = WAIT_US
    ) -> tuple[int, int]:
        """Start what was loaded, wait until it halts, and return the mailboxes. Raises `DeviceTimeout`."""
        if mailboxes is not None:
            self.post(*mailboxes)
        self.start(vector)
        self.wait_halted(doing, timeout_us)
        return self.mailboxes

    def describe(self) -> Iterator[tuple[str, int]]:
        """Yield names and values of registers for a report; nothing is changed."""
        for word in (
            falcon.NV_PFALCON_FALCON_HWCFG2,
            falcon.NV_PFALCON_FALCON_CPUCTL,
            falcon.NV_PFALCON_FALCON_MAILBOX0,
            falcon.NV_PFALCON_FALCON_MAILBOX1,
        ):
            yield word.__name__, int(self.block.read(word))

    def _reset_engine(self) -> None:
        name = self.engine.name
        ready = self.block.typed(falcon.NV_PFALCON_FALCON_HWCFG2)
        if "reset_ready" in ready.FIELDS:
            poll(
                self._configuration,
                lambda seen: bool(seen.reset_ready),
                clock=self.clock,
                timeout_us=RESET_READY_US,
                poll_us=RESET_US,
            )
        self._top.update(self.engine.reset, reset=1)
        self.clock.sleep_us(RESET_US)
        seen = self._top.read(self.engine.reset)
        if int(seen) & PRI_ERROR_MASK == PRI_ERROR:
            raise DeviceHung(f"resetting {name}: its reset register reads {int(seen):#010x}; reset the card")
        self._top.write(seen.replace(reset=0))
        self.clock.sleep_us(RESET_US)

    def _wait_scrubbed(self) -> None:
        doing = f"waiting until {self.engine.name}'s memories are scrubbed"
        newer = self.block.typed(falcon.NV_PFALCON_FALCON_HWCFG2)
        if "mem_scrubbing" in newer.FIELDS:
            until(
                self._configuration,
                lambda seen: not seen.mem_scrubbing,
                clock=self.clock,
                timeout_us=WAIT_US,
                poll_us=RESET_US,
                doing=doing,
            )
            return
        self.block.wait(
            falcon.NV_PFALCON_FALCON_DMACTL,
            lambda seen: not seen.dmem_scrubbing and not seen.imem_scrubbing,
            WAIT_US,
            doing,
        )

    def wait_open(self, doing: str, timeout_us: int = WAIT_US) -> None:
        """Wait until the host may read the engine's registers. Raises `DeviceTimeout`."""
        until(
            lambda: self.open,
            bool,
            clock=self.clock,
            timeout_us=timeout_us,
            poll_us=HALT_POLL_US,
            doing=doing,
            describe=lambda _: f"{self.engine.name}'s registers stay closed",
        )
