"""Making a card quiet whose GSP was left running or its memory protected, gentle ways first: its own unload programs,
then resets of the bus. Each is verified by reading back.

Bus mastering is off before anything else: a GSP-RM that was left writes to memory of a process that is gone. Source:
OGKM kernel_gsp.c, kgspUnloadRm_IMPL and _kgspBootGspRm (which refuses a card whose WPR2 is up); Linux nouveau, gsp
fini; PCI Express base specification, "Function Level Reset".
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.linux import pci
from ringup.drivers.nv.bus.registers import Registers, answers
from ringup.drivers.nv.gsp import boot
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.lifecycle.inspect import Found, look
from ringup.drivers.rung import Rung, climb
from ringup.drivers.transport.config_space import change_command, set_master
from ringup.drivers.transport.seam import Device
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceHung

# TIMEOUT: ours; PCI Express gives a function 1 s after a reset before it must answer
ANSWER_US, ANSWER_POLL_US = 2_000_000, 10_000
UNLOAD = "unload"


class Recovery:
    """One climb from a state that was found to a cold card. `rungs` says what was tried."""

    def __init__(self, registers: Registers, running: Callable[[], Running]) -> None:
        """`running` makes an unstarted GSP-RM, whose unload programs are run; it may raise `FirmwareError`."""
        self._registers, self._device, self._running = registers, registers.device, running
        self.rungs: list[Rung] = []

    def climb(self, names: tuple[str, ...] | None = None) -> None:
        """Try one way after another, or those of `names`, until the card is cold. Raises `DeviceLost` when it is gone,
        `DeviceHung` with the error of every way when none helped.
        """
        climb(self._device, offered(self._registers) if names is None else names, self._take, self.rungs)

    def _take(self, name: str) -> None:
        if name == UNLOAD:
            self._unload()
            verify(self._registers, name)
        else:
            by_bus(self._device, name)

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


def offered(registers: Registers) -> tuple[str, ...]:
    """Return the rungs that a card and the path to it offer, gentle ones first."""
    # FSP alone may reset GSP: nothing of the driver's can unload a GSP-RM there without its queues
    gentle = () if registers.chip.family.cot_version else (UNLOAD,)
    return (*gentle, *registers.device.resets())


def by_bus(device: Device, name: str) -> None:
    """Reset the card from the bus, and wait until its registers answer and its own firmware has set it up. Raises
    `DeviceHung` unless it is cold then.
    """
    device.reset(name)
    # a reset of the bus may leave the function as it was restored, or quiet
    quiet(device)
    if not poll(lambda: answers(device), bool, clock=device.clock, timeout_us=ANSWER_US, poll_us=ANSWER_POLL_US):
        raise DeviceHung(f"registers do not answer {ANSWER_US / 1000:g} ms after the reset")
    registers = Registers(device)
    boot.wait_own_firmware(registers)
    verify(registers, name)


def verify(registers: Registers, name: str) -> None:
    """Raise `DeviceHung` unless the card is cold after a rung."""
    if (seen := look(registers)) is not Found.COLD:
        raise DeviceHung(f"after {name}, {seen.value}")


def quiet(device: Device) -> None:
    """Let the function decode memory, and nothing else. Raises `DeviceLost`."""
    change_command(device.config, on=pci.PCI_COMMAND_MEMORY, off=pci.PCI_COMMAND_MASTER)
