"""An NVIDIA card that nobody has started here: what `drivers.left` asks of every vendor's card.

What a GSP-RM knows, such as the card's SMs, its channels and memory, only its own process can ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ringup.autogen.nv.boot import (
    NV_PBUS_SW_SCRATCH,
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT,
    NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE,
)
from ringup.autogen.nv.engines import NV_PGSP_QUEUE_HEAD
from ringup.drivers.left import HELD, AsFound, LeftReport, Rest, from_first, settle
from ringup.drivers.nv.bus import timer
from ringup.drivers.nv.bus.chips import Boot
from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp import boot, crash_queue, fsp, layout
from ringup.drivers.nv.gsp.falcon import GSP, SEC2, Falcon
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.lifecycle import firmware
from ringup.drivers.nv.lifecycle.inspect import Found, look
from ringup.drivers.nv.lifecycle.recovery import Recovery, by_bus, offered, quiet
from ringup.drivers.nv.memory.pramin import Pramin
from ringup.drivers.rung import Rung, climb
from ringup.drivers.transport.config_space import wake
from ringup.errors import DeviceLost, NotSupported
from ringup.firmware.store import Store

NVIDIA = 0x10DE
ONLY_GSP_RM = "SMs, channels and memory in use: GSP-RM tells them to the process that started it"
NOT_UP = "SMs and sensors: GSP-RM tells them once it is started, as `ringup up` does"


@dataclass(slots=True)
class LeftNvidiaReport(LeftReport):
    """What is known of an NVIDIA card."""

    chip: str = ""
    protected: str = ""
    firmware: str = ""

    def _of_maker(self) -> Iterator[str]:
        if self.chip:
            yield f"  chip {self.chip}, its own firmware: {self.firmware or 'not known'}"
            yield f"  protected memory: {self.protected or 'none'}"


class _Window:
    """VRAM through the small window in BAR 0, which is moved to what is wanted: nothing of it is seen without writing
    to the card. What is protected reads as an error pattern.
    """

    visible_bytes = 0

    def __init__(self, registers: Registers, size_bytes: int) -> None:
        self._pramin, self.size_bytes = Pramin(registers), size_bytes

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return bytes."""
        skipped = vram_pa % 4
        return self._pramin.read(vram_pa - skipped, -(-(skipped + size_bytes) // 4) * 4)[skipped:][:size_bytes]

    def write(self, vram_pa: int, data: bytes) -> None:
        """Store bytes."""
        before, after = vram_pa % 4, -(vram_pa + len(data)) % 4
        whole = self.read(vram_pa - before, before) + data + self.read(vram_pa + len(data), after)
        self._pramin.write(vram_pa - before, whole)


class LeftNvidia(AsFound):
    """One NVIDIA card as found."""

    VENDOR, MAKER = NVIDIA, "NVIDIA"

    def _wake(self) -> None:
        wake(self.device.config, self.device.clock)
        # ORDER: a GSP-RM that was left writes to memory that now belongs to another process
        quiet(self.device)

    @cached_property
    def registers(self) -> Registers:
        """Its registers. Raises `NotSupported` for a chip that is not known, `DeviceLost` while they do not answer."""
        return Registers(self.device)

    @property
    def vram_bytes(self) -> int:
        """The size of its memory. Raises `FirmwareError` while the VBIOS has not set it up."""
        return layout.memory_bytes(Block(self.registers))

    @cached_property
    def memory(self) -> _Window:
        """The card's memory. Raises `NotSupported` for a card that another process holds."""
        if not self.own:
            raise NotSupported(f"memory of {self.device.name}: it is seen through a window that its holder moves")
        return _Window(self.registers, self.vram_bytes)

    def state(self) -> str:
        """Return in which state the card was found."""
        return look(self.registers).value if self.own else HELD

    def offered(self) -> tuple[str, ...]:
        """Return the names of the resets of the whole card that the path to it offers, gentle ones first."""
        try:
            return offered(self.registers)
        except (DeviceLost, NotSupported):
            # the bus does not ask its registers
            return self.device.resets()

    def reset(self, first: str | None = None) -> list[Rung]:
        """Reset the whole card by the rungs of `offered` from `first` on; return those tried. Left: a cold card, bus
        mastering off.

        Without `first` it begins with the unload programs of a GSP-RM, or with the bus where nothing is left to unload.
        Raises a `ValueError` for a rung that is not offered, `DeviceLost`, `DeviceHung` when none helped.
        """
        names = self.offered()
        if first is not None:
            names = from_first(self.device, names, first)
        try:
            registers = self.registers
        except DeviceLost:
            if self.device.lost:
                raise
            rungs = list[Rung]()
            climb(self.device, names, lambda name: by_bus(self.device, name), rungs)
            return rungs
        if first is None and look(registers) is Found.COLD:
            names = self.device.resets()
        return self._climb(names)

    def rest(self, *, sleep: bool = True) -> Rest:
        """Shut the card down: what runs is ended by the gentlest way that helps; `sleep`: put it to D3hot. Raises
        `DeviceLost`, `DeviceHung` when its work cannot be stopped.
        """
        found = look(self.registers)
        done = Rest(found.value)
        if found is not Found.COLD:
            done.rungs = self._climb(self.offered())
        self.registers.check("looking at it a last time")
        done.power = settle(self.device, sleep=sleep)
        return done

    def _climb(self, names: tuple[str, ...]) -> list[Rung]:
        def running() -> Running:
            files, _ = firmware.read(self.registers, Store(), None, None)
            return Running(self.registers, files)

        recovery = Recovery(self.registers, running)
        recovery.climb(names)
        return recovery.rungs

    def examine(self, holder: str = "") -> LeftNvidiaReport:
        """Report on the card as found. Never raises for what the card does."""
        left = LeftNvidiaReport(self.device.name, holder=holder)
        steps: list[tuple[str, Callable[[], None]]] = [
            ("bus", lambda: left.bus(self)),
            ("state", lambda: self._state(left)),
            ("registers", lambda: self._registers(left)),
            ("crash reports", lambda: self._crashes(left)),
        ]
        left.take(self.device, steps)
        left.unknown.append(NOT_UP if left.state == Found.COLD.value else ONLY_GSP_RM)
        return left

    def _state(self, left: LeftNvidiaReport) -> None:
        left.chip = self.registers.chip.name
        left.state = self.state()
        left.firmware = self.own_firmware()
        region = layout.wpr2(Block(self.registers))
        if region is not None:
            left.protected = f"{region.size_bytes} bytes from {region.start:#x} on"

    def own_firmware(self) -> str:
        """Say whether the card's own firmware has set it up."""
        block = Block(self.registers)
        if self.registers.chip.family.boot is Boot.FSP:
            seen = int(block.read(NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE))
            return f"FSP {'has booted' if seen == fsp.BOOT_COMPLETE else f'stands at {seen:#x}'}"
        progress = block.read(NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT).progress
        return (
            "that of the VBIOS has ended"
            if progress == boot.GFW_COMPLETED
            else f"that of the VBIOS stands at {progress:#x}"
        )

    def _registers(self, left: LeftNvidiaReport) -> None:
        block = Block(self.registers)
        shown = left.registers
        shown["card"] = {
            "NV_PMC_BOOT_0": f"{self.registers.boot_0:#x}",
            "PTIMER, ns": str(timer.clock_ns(self.registers)),
        }
        if self.registers.chip.family.boot is Boot.BOOTER:
            for name, index in (("FRTS error", boot.FRTS_SCRATCH), ("SB error", boot.SB_SCRATCH)):
                shown["card"][f"NV_PBUS_SW_SCRATCH, {name}"] = f"{int(block.read(NV_PBUS_SW_SCRATCH, index)):#x}"
        for engine in (GSP, SEC2):
            processor = Falcon(self.registers, engine)
            shown[engine.name] = {name: f"{value:#x}" for name, value in processor.describe()}
        shown["GSP"]["RISC-V core"] = "runs" if Falcon(self.registers, GSP).riscv_active else "does not run"
        shown["GSP"]["NV_PGSP_QUEUE_HEAD"] = f"{int(block.read(NV_PGSP_QUEUE_HEAD)):#x}"

    def _crashes(self, left: LeftNvidiaReport) -> None:
        """Add what GSP's processor reports of its end; only its holder may move the port through which that is read."""
        if not self.own:
            left.unknown.append("crash reports of GSP: they are read through a port that belongs to the card's holder")
            return
        seen = crash_queue.read(Falcon(self.registers, GSP))
        left.faults += map(str, seen.reports)
        left.unknown += seen.unread


LEFT = LeftNvidia
