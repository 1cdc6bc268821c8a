"""Semaphores: words in memory that channels wait for, change, and stamp with the time.

Source: clc56f.h of open-gpu-doc (NVC56F_SEM_EXECUTE, NVC56F_SEMAPHORED). GUESS: the older ACQ_GEQ compares around the
wrap of 32 bits, as ACQ_CIRC_GEQ does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from ringup.silicon.nv.memory.space import AddressSpace


class Idle(float):
    """Microseconds for which a channel only waits, so that others may have the engine."""


class Reduction(IntEnum):
    """What a reduction does with the word in memory and the payload."""

    MIN = 0
    MAX = 1
    XOR = 2
    AND = 3
    OR = 4
    ADD = 5
    INC = 6
    DEC = 7


class Acquire(IntEnum):
    """When a wait ends, SEM_EXECUTE.operation."""

    EQUAL = 0
    STRICT_GEQ = 2
    CIRC_GEQ = 3
    AND = 4
    NOR = 5


def holds(how: Acquire, value: int, payload: int, bits: int) -> bool:
    """Return whether a wait for `payload` ends at `value`, both of `bits` bits."""
    mask = (1 << bits) - 1
    return {
        Acquire.EQUAL: value == payload,
        Acquire.STRICT_GEQ: value >= payload,
        Acquire.CIRC_GEQ: (value - payload & mask) < 1 << bits - 1,
        Acquire.AND: bool(value & payload),
        Acquire.NOR: bool(~(value | payload) & mask),
    }[how]


def reduced(how: Reduction, value: int, payload: int, bits: int, *, signed: bool) -> int:
    """Return what a reduction stores. INC and DEC wrap at the payload."""
    mask = (1 << bits) - 1

    def order(word: int) -> int:
        return word - (1 << bits) if signed and word >> bits - 1 else word

    return {
        Reduction.MIN: min(value, payload, key=order),
        Reduction.MAX: max(value, payload, key=order),
        Reduction.XOR: value ^ payload,
        Reduction.AND: value & payload,
        Reduction.OR: value | payload,
        Reduction.ADD: value + payload & mask,
        Reduction.INC: 0 if value >= payload else value + 1,
        Reduction.DEC: payload if value == 0 or value > payload else value - 1,
    }[how]


def release(space: AddressSpace, gpu_va: int, payload: int, bits: int, now_ns: Callable[[], int] | None) -> None:
    """Store a payload; with `now_ns` the semaphore has 16 bytes, and the time in its last eight."""
    if now_ns is None:
        space.write(gpu_va, payload.to_bytes(bits // 8, "little"))
    else:
        space.write(gpu_va, struct.pack("<QQ", payload, now_ns()))
