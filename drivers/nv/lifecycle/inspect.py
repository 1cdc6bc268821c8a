"""In which state a card's GSP was found, from its registers alone."""

from __future__ import annotations

from enum import Enum

from ringup.drivers.nv.bus.registers import Block, Registers
from ringup.drivers.nv.gsp import layout
from ringup.drivers.nv.gsp.falcon import GSP, Falcon


class Found(Enum):
    """The state in which a card was found.

    Whose GSP-RM runs, nobody can tell: its queues lie in memory of the process that started it, and that is gone, or
    the kernel's driver would still hold the card.
    """

    COLD = "cold: GSP does not run, and no memory is protected"
    RUNNING = "running: a GSP-RM that another process or driver has started"
    DIRTY = "left: memory is protected, and no GSP-RM runs"


def look(registers: Registers) -> Found:
    """Return the state in which the card is; nothing is changed."""
    gsp = Falcon(registers, GSP)
    if not gsp.open:
        # FSP keeps GSP's registers closed while it boots GSP
        return Found.RUNNING
    protected = layout.wpr2(Block(registers)) is not None
    if gsp.riscv_active:
        return Found.RUNNING
    return Found.DIRTY if protected else Found.COLD
