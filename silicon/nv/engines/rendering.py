"""Conditional work: whether copies and launches are done depends on words in memory.

Source: SET_RENDER_ENABLE_C of clc7c0.h. Mesa (nvk_cmd_draw.c) says that the comparison is of 64 bits. GUESS: the two
reports that are compared are 16 bytes apart, and CONDITIONAL tests the first for not being zero.
"""

from __future__ import annotations

from enum import IntEnum

from ringup.silicon.nv.engines.engine import Refused
from ringup.silicon.nv.memory.space import AddressSpace

REPORT_BYTES, DISTANCE_BYTES = 8, 16


class Mode(IntEnum):
    """SET_RENDER_ENABLE_C.mode."""

    FALSE = 0
    TRUE = 1
    CONDITIONAL = 2
    RENDER_IF_EQUAL = 3
    RENDER_IF_NOT_EQUAL = 4


def enabled(space: AddressSpace, mode: int, gpu_va: int, *, fresh: bool) -> bool:
    """Return whether work is done. `fresh`: no mode was ever set, so it is."""
    if fresh or mode == Mode.TRUE:
        return True
    if mode == Mode.FALSE:
        return False
    if mode not in list(Mode):
        raise Refused(f"SET_RENDER_ENABLE_C has mode {mode}")
    first = space.read(gpu_va, REPORT_BYTES)
    if mode == Mode.CONDITIONAL:
        return any(first)
    same = first == space.read(gpu_va + DISTANCE_BYTES, REPORT_BYTES)
    return same == (mode == Mode.RENDER_IF_EQUAL)
