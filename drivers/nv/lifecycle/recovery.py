"""Making a card quiet whose GSP was left running or its memory protected, gentle ways first: its own unload programs,
then resets of the bus. Each is verified by reading back.

Bus mastering is off before anything else: a GSP-RM that was left writes to memory of a process that is gone. Source:
OGKM kernel_gsp.c, kgspUnloadRm_IMPL and _kgspBootGspRm (which refuses a card whose WPR2 is up); Linux nouveau, gsp
fini; PCI Express base specification, "Function Level Reset".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ringup.autogen.linux import pci
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.lifecycle.inspect import Found, look
from ringup.drivers.transport.config_space import change_command, set_master
from ringup.drivers.transport.seam import Device
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceHung, DeviceLost, RingupError

LOG = logging.getLogger(__name__)
# TIMEOUT: ours; PCI Express gives a function 1 s after a reset before it must answer
ANSWER_US, ANSWER_POLL_US = 2_000_000, 10_000
UNLOAD = "unload"


@dataclass(frozen=True, slots=True)
class Rung:
    """One attempt; `error` is empty for the one that helped."""

    name: str
    error: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.error or 'helped'}"


class Recovery:
    """One climb from a state that was found to a cold card. `rungs` says what was tried."""

    def __init__(self, registers: Registers, running: Callable[[], Running]) -> None:
        """`running` makes an unstarted GSP-RM, whose unload programs are run."""
        self._registers, self._device, self._running = registers, registers.device, running
        self.rungs: list[Rung] = []

    def climb(self) -> None:
        """Try one way after another until the card is cold. Raises `DeviceLost` when it is gone, `DeviceHung` with the
        error of every way when none helped.
        """
        for name in self._names():
            try:
                self._unload() if name == UNLOAD else self._reset(name)
                self._verify(name)
            except RingupError as error:
                if isinstance(error, DeviceLost) and self._device.lost:
                    raise
                LOG.info("%s: %s failed: %s", self._device.name, name, error)
                self.rungs.append(Rung(name, str(error)))
                continue
            self.rungs.append(Rung(name))
            return
        tried = "; ".join(map(str, self.rungs)) or "this path offers none"
        raise DeviceHung(f"{self._device.name}: no reset helped ({tried}); switch the card's power off and on")

    def _names(self) -> tuple[str, ...]:
        # FSP alone may reset GSP: nothing of the driver's can unload a GSP-RM there without its queues
        gentle = () if self._registers.chip.family.cot_version else (UNLOAD,)
        return (*gentle, *self._device.resets())

    def _unload(self) -> None:
        """Stop GSP's processor by its reset, then run the programs that follow a GSP-RM's end."""
        running = self._running()
        # ORDER: SEC2 first: a program of a dead process may be about to start GSP-RM. Both are in reset before bus
        # mastering is on again. UNKNOWN: whether a chip resets them without it, as they read from the flush page then
        running.sec2.reset()
        running.gsp.reset()
        if running.gsp.riscv_active:
            raise DeviceHung("GSP's processor runs on after its reset")
        try:
            # ORDER: the flush page first: the chip still has the address of one that is gone
            running.tell_flush_page()
            set_master(self._device.config, on=True)
            running.way.teardown()
        finally:
            running.abandon()

    def _reset(self, name: str) -> None:
        self._device.reset(name)
        # a reset of the bus may leave the function as it was restored, or quiet
        change_command(self._device.config, on=pci.PCI_COMMAND_MEMORY, off=pci.PCI_COMMAND_MASTER)
        registers = self._registers
        if not poll(
            lambda: registers.answer, bool, clock=registers.clock, timeout_us=ANSWER_US, poll_us=ANSWER_POLL_US
        ):
            raise DeviceHung(f"registers do not answer {ANSWER_US / 1000:g} ms after the reset")
        running = self._running()
        try:
            running.way.wait_ready()
        finally:
            running.abandon()

    def _verify(self, name: str) -> None:
        running = self._running()
        try:
            seen = look(running.gsp)
        finally:
            running.abandon()
        if seen is not Found.COLD:
            raise DeviceHung(f"after {name}, {seen.value}")


def quiet(device: Device) -> None:
    """Let the function decode memory, and nothing else. Raises `DeviceLost`."""
    change_command(device.config, on=pci.PCI_COMMAND_MEMORY, off=pci.PCI_COMMAND_MASTER)
