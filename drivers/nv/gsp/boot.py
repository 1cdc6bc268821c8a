"""How GSP-RM is started, and how what it leaves is taken down: with signed programs of SEC2 ("booter"), or by FSP.

Up to Ada: FWSEC protects the end of memory (FRTS), GSP waits in reset, the booter checks and starts GSP-RM, and another
booter takes the protection away. From Hopper on, FSP starts code of GSP's that does all of that. Source: OGKM
kernel_gsp_tu102.c, kernel_gsp_ga102.c, kgspBootstrapRiscvOSEarly; kernel_gsp_booter_tu102.c; kernel_gsp_frts_tu102.c;
kernel_gsp_gh100.c, kgspBootstrap_GH100, kgspTeardown_GH100.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ringup.autogen.nv.boot import (
    NV_PBUS_SW_SCRATCH,
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT,
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT_PROGRESS_COMPLETED,
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_PRIV_LEVEL_MASK,
)
from ringup.autogen.nv.falcon import NV_PFALCON_FALCON_OS
from ringup.drivers.cleanup import Teardown
from ringup.drivers.nv.bus.chips import Boot
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp import fsp, layout
from ringup.drivers.nv.gsp.falcon import Falcon
from ringup.drivers.nv.gsp.host_memory import HostMemory
from ringup.drivers.nv.gsp.programs import execute, fuse_version
from ringup.drivers.transport.wait import until
from ringup.errors import DeviceHung, FirmwareError, RingupError
from ringup.firmware.nv import fwsec
from ringup.firmware.nv.files import FirmwareSet
from ringup.firmware.nv.ucode import FalconUcode

# TIMEOUT: OGKM gpuWaitForGfwBootComplete_TU102 waits 4 s: memory training takes most of it
GFW_US, GFW_POLL_US = 4_000_000, 1_000
# TIMEOUT: OGKM kgspBootstrap_GH100 has its default of 4 s; nova-core waits 30 s for the protection's end
LOCKDOWN_US, LOCKDOWN_POLL_US = 30_000_000, 1_000
# TIMEOUT: OGKM's default for both
SUSPEND_US, HALT_US, POLL_US = 4_000_000, 5_000_000, 500
ACTIVE_US = 100_000
GFW_COMPLETED = NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT_PROGRESS_COMPLETED
# what LIBOS leaves in its mailbox: LIBOS_INTERRUPT_PROCESSOR_SUSPENDED
SUSPENDED = 0x8000_0000
# FWSEC's errors: FRTS' in bits 31:16 of the one, SB's in bits 15:0 of the other. Source: kernel_gsp_frts_tu102.c
FRTS_SCRATCH, SB_SCRATCH = 0x0E, 0x15
# the booter that takes the protection away wants no metadata
NO_ADDRESS = 0xFF


@dataclass(frozen=True, slots=True)
class Firmware:
    """The files of one release, and FWSEC from the VBIOS, where it is used."""

    files: FirmwareSet
    fwsec: FalconUcode | None = None

    @property
    def release(self) -> str:
        """The release of GSP-RM."""
        return self.files.release


class Way(Protocol):
    """One way to start GSP-RM."""

    def protect(self, frts_vram_pa: int) -> None:
        """Set up what must be protected before GSP-RM comes; does nothing where that is part of `start`."""
        ...

    def start(self, metadata: int, libos: int) -> None:
        """Start GSP-RM; the addresses are of its metadata and of LIBOS' arguments."""
        ...

    def teardown(self) -> None:
        """Take down what GSP-RM leaves after its end, or after it has died."""
        ...


class BooterWay:
    """FWSEC on GSP's falcon, the booters on SEC2."""

    def __init__(self, gsp: Falcon, sec2: Falcon, memory: HostMemory, firmware: Firmware) -> None:
        self._gsp, self._sec2, self._memory, self._firmware = gsp, sec2, memory, firmware
        self._family = gsp.family
        self._block = Block(gsp.registers)

    def protect(self, frts_vram_pa: int) -> None:
        """Run FWSEC's FRTS command and check what it has done. Raises `FirmwareError`, `DeviceTimeout`."""
        if not self._family.frts:
            return
        doing = "protecting memory with FWSEC (FRTS)"
        # a program that a dead process has started
        self._sec2.reset()
        self._run_fwsec(fwsec.CMD_FRTS, fwsec.frts_arguments(frts_vram_pa, layout.FRTS_BYTES), doing)
        if error := int(self._block.read(NV_PBUS_SW_SCRATCH, FRTS_SCRATCH)) >> 16:
            raise FirmwareError(f"{doing}: FWSEC reports error {error:#x}; reset the card")
        made = layout.wpr2(self._block)
        if made is None or made.start != frts_vram_pa:
            at = "nowhere" if made is None else f"at {made.start:#x}"
            raise FirmwareError(f"{doing}: the protected region is {at}, not at {frts_vram_pa:#x}; reset the card")

    def start(self, metadata: int, libos: int) -> None:
        """Put GSP into reset, and let the booter start GSP-RM. Raises `FirmwareError` if the booter refuses it."""
        if self._family.boot_rom:
            self._gsp.reset_to_riscv()
        else:
            self._gsp.reset()
        self._gsp.post_address(libos)
        booter = self._firmware.files.booter("booter_load")
        doing = f"loading GSP-RM with {booter.name}"
        error, _ = self._run_booter(booter, (metadata & 0xFFFF_FFFF, metadata >> 32), doing)
        if error:
            raise FirmwareError(
                f"{doing}: the booter reports error {error:#x}; take firmware files of one release made for this card, "
                "and reset it"
            )
        self._gsp.block.set(NV_PFALCON_FALCON_OS, self._firmware.files.bootloader.app_version)
        wait_active(self._gsp, doing)

    def teardown(self) -> None:
        """Give GSP's falcon back to the VBIOS' programs (FWSEC-SB), and take the protection away. Raises
        `FirmwareError`, `DeviceTimeout`.
        """
        # ORDER: SEC2 first: a program whose wait was interrupted may be about to start GSP-RM
        self._sec2.reset()
        self._gsp.reset()
        # memory is unprotected also after a FWSEC that failed. Source: OGKM kgspTeardown_TU102
        with Teardown("taking GSP-RM down", kept=RingupError) as steps:
            steps.attempt(self._restore)
            steps.attempt(self._unprotect)

    def _restore(self) -> None:
        doing = "restoring the VBIOS' programs with FWSEC (SB)"
        self._run_fwsec(fwsec.CMD_SB, fwsec.sb_arguments(), doing)
        wait_gfw(self._block)
        if error := int(self._block.read(NV_PBUS_SW_SCRATCH, SB_SCRATCH)) & 0xFFFF:
            raise FirmwareError(f"{doing}: FWSEC reports error {error:#x}; reset the card")

    def _unprotect(self) -> None:
        if layout.wpr2(self._block) is None:
            return
        booter = self._firmware.files.booter("booter_unload")
        doing = f"unprotecting memory with {booter.name}"
        error, _ = self._run_booter(booter, (NO_ADDRESS, NO_ADDRESS), doing)
        if error:
            raise FirmwareError(f"{doing}: the booter reports error {error:#x}; reset the card")
        if (left := layout.wpr2(self._block)) is not None:
            raise DeviceHung(f"{doing}: {left.size_bytes} bytes from {left.start:#x} on stay protected; reset the card")

    def _run_fwsec(self, command: int, arguments: bytes, doing: str) -> None:
        program = self._firmware.fwsec
        if program is None:
            raise FirmwareError(f"{doing}: the VBIOS has no FWSEC")
        ready = program.commanded(command, arguments).signed(fuse_version(self._block, program))
        loader = self._firmware.files.loader if program.needs_loader else None
        self._gsp.reset()
        execute(self._gsp, ready, self._memory, doing, loader=loader)

    def _run_booter(self, program: FalconUcode, mailboxes: tuple[int, int], doing: str) -> tuple[int, int]:
        self._sec2.reset()
        ready = program.signed(fuse_version(self._block, program))
        return execute(self._sec2, ready, self._memory, doing, mailboxes)


class FspWay:
    """FSP starts code of GSP's own (FMC), which does the rest."""

    def __init__(self, gsp: Falcon, memory: HostMemory, firmware: Firmware) -> None:
        self._gsp, self._memory, self._firmware = gsp, memory, firmware
        self._fsp = fsp.Fsp(gsp.registers)

    def protect(self, frts_vram_pa: int) -> None:
        """Do nothing: FSP does it as part of the start."""

    def start(self, metadata: int, libos: int) -> None:
        """Have FSP start GSP. Raises `FirmwareError` if FSP or the first code refuses it, `DeviceTimeout`."""
        fmc = self._firmware.files.fmc
        image = self._memory.put(fmc.image, fmc.name)
        told = self._memory.put(
            fsp.boot_arguments(metadata, libos, self._firmware.release), "the first code's arguments"
        )
        self._fsp.boot_gsp(fmc, fsp.CotPlaces(image.bus_addr(), told.bus_addr()))
        doing = f"starting GSP-RM with {fmc.name}"
        self._gsp.wait_open(doing)
        self._wait_unlocked(told.bus_addr(), doing)
        self._gsp.block.set(NV_PFALCON_FALCON_OS, self._firmware.files.bootloader.app_version)
        wait_active(self._gsp, doing)

    def teardown(self) -> None:
        """Wait until GSP has halted: its own code takes the protection away. Raises `DeviceTimeout`."""
        self._gsp.wait_open("waiting for GSP's end")
        until(
            lambda: self._gsp.riscv_halted,
            bool,
            clock=self._gsp.clock,
            timeout_us=HALT_US,
            poll_us=POLL_US,
            doing="waiting for GSP's end",
            describe=lambda _: "its RISC-V core does not halt",
            advice="; reset the card",
        )

    def _wait_unlocked(self, told: int, doing: str) -> None:
        """Wait until the first code opens GSP to the host, or reports an error in its mailbox."""

        def look() -> tuple[bool, int]:
            low, high = self._gsp.mailboxes
            # until it has read its arguments' address, that is what the mailboxes hold
            error = 0 if high << 32 | low == told else low
            return self._gsp.locked_down, error

        _, error = until(
            look,
            lambda seen: bool(not seen[0] or seen[1]),
            clock=self._gsp.clock,
            timeout_us=LOCKDOWN_US,
            poll_us=LOCKDOWN_POLL_US,
            doing=doing,
            describe=lambda seen: f"GSP stays locked down, its mailbox reads {seen[1]:#x}",
            advice="; reset the card",
        )
        if error:
            raise FirmwareError(f"{doing}: GSP's first code reports error {error:#x}; reset the card")


def wait_own_firmware(registers: Registers) -> None:
    """Wait until the card's own firmware has set it up: that of the VBIOS (GFW), or FSP, which takes commands then.
    Raises `DeviceTimeout`.
    """
    if registers.chip.family.boot is Boot.BOOTER:
        wait_gfw(Block(registers))
        return
    processor = fsp.Fsp(registers)
    processor.wait_booted()
    processor.wait_free("waiting for FSP to take commands")


def wait_gfw(block: Block) -> None:
    """Wait until the VBIOS' firmware has ended and its progress may be read. Raises `DeviceTimeout`.

    Source: OGKM gpu_tu102.c, gpuWaitForGfwBootComplete_TU102.
    """
    doing = "waiting for the VBIOS' firmware (GFW)"
    advice = "; reset the card's slot, or power it off and on"
    wait = partial(block.wait, timeout_us=GFW_US, doing=doing, poll_us=GFW_POLL_US, advice=advice)
    wait(NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_PRIV_LEVEL_MASK, lambda seen: bool(seen.read_protection_level0))
    wait(
        NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT,
        lambda seen: bool(seen.progress == GFW_COMPLETED),
    )


def wait_active(gsp: Falcon, doing: str) -> None:
    """Wait until GSP's RISC-V core runs. Raises `DeviceTimeout`."""
    until(
        lambda: gsp.riscv_active,
        bool,
        clock=gsp.clock,
        timeout_us=ACTIVE_US,
        poll_us=POLL_US,
        doing=doing,
        describe=lambda _: f"GSP's RISC-V core does not run; its mailboxes read {gsp.mailboxes}",
        advice="; reset the card",
    )


def wait_suspended(gsp: Falcon) -> None:
    """Wait until GSP-RM has ended after it was told to. Raises `DeviceTimeout`."""
    until(
        lambda: gsp.mailboxes[0],
        lambda seen: seen == SUSPENDED,
        clock=gsp.clock,
        timeout_us=SUSPEND_US,
        poll_us=POLL_US,
        doing="waiting for GSP-RM to end",
        describe=lambda seen: f"its mailbox reads {seen:#x}",
        advice="; reset the card",
    )


def way(gsp: Falcon, sec2: Falcon, memory: HostMemory, firmware: Firmware) -> Way:
    """Return the way that a chip's GSP-RM is started."""
    if gsp.family.boot is Boot.FSP:
        return FspWay(gsp, memory, firmware)
    return BooterWay(gsp, sec2, memory, firmware)
