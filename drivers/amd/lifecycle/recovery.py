"""The ladder: resets that make a card usable again that was left running, hung or in an unknown state, gentle ones
first.

Every rung is verified by reading back, and records what survived it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringup.autogen.linux import pci
from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Registers
from ringup.drivers.amd.gfx.reset import soft_reset
from ringup.drivers.amd.lifecycle import mode2
from ringup.drivers.amd.psp.processor import Psp
from ringup.drivers.amd.smu.controller import Smu
from ringup.drivers.amd.smu.reset import mode1_reset
from ringup.drivers.rung import Rung, climb
from ringup.drivers.transport.config_space import change_command
from ringup.drivers.transport.seam import Device
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceHung

RESET_POLL_US = 10_000
BUS_TIMEOUT_US = 2_000_000  # TIMEOUT: ours; PCI Express gives a function 1 s after a reset before it must answer


class Parts(Protocol):
    """What resets of a whole card need: `Blocks`, or the few parts of a card that was not started."""

    @property
    def device(self) -> Device:
        """The path to the card."""
        ...

    @property
    def registers(self) -> Registers:
        """Its registers."""
        ...

    @property
    def nbio(self) -> Nbio:
        """Its bus interface."""
        ...

    @property
    def psp(self) -> Psp:
        """Its security processor."""
        ...

    @property
    def smu(self) -> Smu:
        """Its power controller."""
        ...


class Ladder:
    """Tries rungs, from a given one on, until one is verified."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.rungs: list[Rung] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The rungs that this card and the path to it offer, gentle ones first."""
        mode2 = ("mode2",) if self._blocks.smu.row.mode2 else ()
        return ("queue", "engine", *mode2, "mode1", *self._blocks.device.resets())

    def climb(self, first: str = "queue") -> Rung:
        """Try rungs from `first` on until one is verified; return it.

        Raises `DeviceLost` when the card is gone, `DeviceHung` with the error of every rung when none helped.
        """
        names, blocks = self.names, self._blocks
        chosen = names[names.index(first) :]
        return climb(blocks.device, chosen, lambda name: RUNGS[name](blocks), self.rungs, SURVIVED)


def _queues(blocks: Blocks) -> None:
    """Kill the work of compute queues and take them off the hardware; stop the copy engines."""
    for core in blocks.cores:
        core.drop_queues()
    left = [place for core in blocks.cores for place in core.active_queues()]
    for engine in blocks.sdma:
        # one that cannot be halted must be idle by itself
        engine.stop() if engine.row.resets else engine.reset()
    if left:
        raise DeviceHung(f"compute queues {', '.join(map(str, left))} are still mapped")


def _engines(blocks: Blocks) -> None:
    """Reset the graphics core and the copy engines; their firmware is loaded again from the trusted memory region."""
    for engine in blocks.sdma:
        engine.reset()
    reset_cores(blocks)


def reset_cores(blocks: Blocks) -> None:
    """Reset the graphics core, all of its dies, and wait until it is idle."""
    for core in blocks.cores:
        soft_reset(core)
    for core in blocks.cores:
        core.wait_idle()


def _mode1(blocks: Parts) -> None:
    """Reset the whole chip except its bus interface."""
    mode1_reset(blocks.device, blocks.nbio, blocks.psp, blocks.smu)


def by_bus(device: Device, method: str, look: Callable[[], Parts]) -> None:
    """Reset from the bus and wait until the card is cold and its boot loader listens; `look` returns its parts after
    the reset.
    """
    device.reset(method)
    change_command(device.config, on=pci.PCI_COMMAND_MEMORY)
    blocks = look()
    blocks.smu.mailbox.forget()
    _wait_cold(blocks, BUS_TIMEOUT_US)
    # ORDER: the card's own firmware trains memory and sets the hubs up first, as after power on
    blocks.psp.wait_loader(f"waiting for the boot loader behind a reset of the {method}")


def _by_bus(method: str) -> Callable[[Parts], None]:
    def reset(blocks: Parts) -> None:
        by_bus(blocks.device, method, lambda: blocks)

    reset.__doc__ = f"Reset the {method} from the bus."
    return reset


def _wait_cold(blocks: Parts, timeout_us: int) -> None:
    """Wait until registers answer and no secure OS runs."""
    if poll(
        lambda: blocks.nbio.answers and not blocks.psp.alive,
        bool,
        clock=blocks.registers.clock,
        timeout_us=timeout_us,
        poll_us=RESET_POLL_US,
    ):
        return
    blocks.registers.check_link("waiting for the end of a reset")
    alive = blocks.nbio.answers and blocks.psp.alive
    raise DeviceHung(
        "the secure OS runs as if nothing had happened" if alive else "registers do not answer after the reset"
    )


# rungs that reset everything, and need no block of the card up
WHOLE: dict[str, Callable[[Parts], None]] = {
    "mode1": _mode1,
    "function": _by_bus("function"),
    "slot": _by_bus("slot"),
}
RUNGS: dict[str, Callable[[Blocks], None]] = {"queue": _queues, "engine": _engines, "mode2": mode2.reset, **WHOLE}
SURVIVED = {
    "queue": "firmware, VRAM, clocks",
    "engine": "firmware in the trusted region, VRAM, clocks",
    "mode2": "the secure OS, VRAM, clocks",
}
# rungs behind which a start is warm, and an open card keeps its memory
KEEPS_FIRMWARE = ("queue", "engine", "mode2")
