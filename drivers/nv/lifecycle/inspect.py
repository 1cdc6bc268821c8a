"""In which state a card's GSP was found, from its registers alone."""

from __future__ import annotations

from enum import Enum

from ringup.drivers.nv.bus.registers import Block
from ringup.drivers.nv.gsp import layout
from ringup.drivers.nv.gsp.falcon import Falcon


class Found(Enum):
    """The state in which a card was found.

    Whose GSP-RM runs, nobody can tell: its queues lie in memory of the process that started it, and that is gone, or
    the kernel's driver would still hold the card.
    """

    COLD = "nothing is protected, GSP does not run"
    RUNNING = "a GSP-RM runs that another process or driver has started"
    DIRTY = "memory is protected, and no GSP-RM runs"


def look(gsp: Falcon) -> Found:
    """Return the state in which the card is; nothing is changed."""
    if not gsp.open:
        # FSP keeps GSP's registers closed while it boots GSP
        return Found.RUNNING
    protected = layout.wpr2(Block(gsp.registers)) is not None
    if gsp.riscv_active:
        return Found.RUNNING
    return Found.DIRTY if protected else Found.COLD
