"""The mark that ringup leaves on a card: whether its firmware may be reused, whether its last owner closed it.

Kept in scratch registers of the graphics core, which lose their values with every reset of it. `SCRATCH_REG7` holds
`MAGIC`, `SCRATCH_REG6` the state, `SCRATCH_REG5` the firmware set's fingerprint, `SCRATCH_REG4` the size of the trusted
memory region in MiB.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ringup.autogen.amd.gc import SCRATCH_REG4, SCRATCH_REG5, SCRATCH_REG6, SCRATCH_REG7
from ringup.drivers.amd.bus.registers import Block

MAGIC = 0x52_55_00_01  # "RU", and the version of drivers/amd/memory/layout.py


class State(IntEnum):
    """The state in which the last owner left the card."""

    RUNNING = 1
    CLEAN = 2


class Mark(NamedTuple):
    """A mark. `tmr_mib`: MiB at the end of VRAM that the firmware keeps (its trusted memory region)."""

    state: int
    fingerprint: int
    tmr_mib: int


def read(gc: Block) -> Mark | None:
    """Return the mark, None where there is none. The graphics core must be awake."""
    if int(gc.read(SCRATCH_REG7)) != MAGIC:
        return None
    return Mark(*(int(gc.read(word)) for word in (SCRATCH_REG6, SCRATCH_REG5, SCRATCH_REG4)))


def write(gc: Block, mark: Mark) -> None:
    """Write a mark. ORDER: the magic last, so that a half-written mark is none."""
    gc.write(SCRATCH_REG7(0))
    for word, value in zip((SCRATCH_REG6, SCRATCH_REG5, SCRATCH_REG4), mark, strict=True):
        gc.write(word(value))
    gc.write(SCRATCH_REG7(MAGIC))


def erase(gc: Block) -> None:
    """Erase the mark: the next start resets the card."""
    gc.write(SCRATCH_REG7(0))


def set_state(gc: Block, state: State) -> None:
    """Change the state of an existing mark."""
    gc.write(SCRATCH_REG6(state))
