"""Report semaphores: words that an object of the graphics engine writes once the work before them is done.

Sources: SET_REPORT_SEMAPHORE_D and REPORT_SEMAPHORE_EXECUTE of clc7c0.h and clc797.h of open-gpu-doc. All work of this
model is done before the next method, so a release never has to wait, and the place in the pipeline does not matter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from ringup.autogen.layout import Word
from ringup.silicon.nv.engines.engine import ClassEngine, Context, Lacking, Progress, Refused, field_of
from ringup.silicon.nv.memory.semaphores import Idle, Reduction, reduced

# RED_* of SET_REPORT_SEMAPHORE_D, of inline uploads and of launch descriptors
RED = (
    Reduction.ADD,
    Reduction.MIN,
    Reduction.MAX,
    Reduction.INC,
    Reduction.DEC,
    Reduction.AND,
    Reduction.OR,
    Reduction.XOR,
)
# GUESS: between two looks at a word that an object waits for
LOOK_US, MAX_LOOK_US = 2.0, 1_000.0
TRAP_UNCONDITIONAL = 1
REPORT_NONE, REPORT_TIMESTAMP = 0, 0x14


class Operation(IntEnum):
    """SET_REPORT_SEMAPHORE_D.operation."""

    RELEASE = 0
    ACQUIRE = 1
    REPORT_ONLY = 2
    TRAP = 3


class Words(IntEnum):
    """The words of a semaphore. FOUR are 64 bits of payload and 64 bits of time."""

    ONE = 1
    TWO = 2
    FOUR = 4


def report(
    context: Context,
    gpu_va: int,
    payload: int,
    words: Words,
    *,
    wide: bool = False,
    how: Reduction | None = None,
    signed: bool = False,
) -> bool:
    """Write a semaphore; return whether its payload in memory has changed. `wide`: the payload has 64 bits."""
    if gpu_va % 4:
        raise Refused(f"a report semaphore at {gpu_va:#x}")
    size_bytes = 8 if wide else 4
    before = int.from_bytes(context.space.read(gpu_va, size_bytes), "little") if how is not None else None
    if how is not None and before is not None:
        payload = reduced(how, before, payload, 8 * size_bytes, signed=signed)
    if words is Words.FOUR:
        data = struct.pack("<QQ", payload, context.now_ns())
    elif words is Words.TWO:
        data = struct.pack("<Q", payload)
    else:
        data = payload.to_bytes(size_bytes, "little")
    context.space.write(gpu_va, data)
    return before is None or before != payload


class Reports:
    """The part of a class that reports. It has the object's methods."""

    def __init__(self, owner: ClassEngine, older: type[Word], newer: type[Word] | None) -> None:
        """`older` and `newer`: SET_REPORT_SEMAPHORE_D and REPORT_SEMAPHORE_EXECUTE of the class."""
        self._methods, self._context, self._older, self._newer = owner.methods, owner.context, older, newer
        owner.act("SET_REPORT_SEMAPHORE_D", self._set)
        owner.act("REPORT_SEMAPHORE_EXECUTE", self._execute)

    def _set(self, data: int) -> Progress:
        word = self._older(data)
        gpu_va = self._methods.pair("SET_REPORT_SEMAPHORE_A", "SET_REPORT_SEMAPHORE_B")
        words = Words.ONE if field_of(word, "structure_size") else Words.FOUR
        return self._do(word, gpu_va, self._methods.get("SET_REPORT_SEMAPHORE_C"), words, wide=False)

    def _execute(self, data: int) -> Progress:
        assert self._newer is not None
        word = self._newer(data)
        gpu_va = self._methods.pair("SET_REPORT_SEMAPHORE_ADDRESS_UPPER", "SET_REPORT_SEMAPHORE_ADDRESS_LOWER")
        sizes = {0: Words.FOUR, 1: Words.ONE, 2: Words.TWO}
        size = field_of(word, "structure_size")
        if size not in sizes:
            raise Refused(f"REPORT_SEMAPHORE_EXECUTE {data:#x} has structure size {field_of(word, 'structure_size')}")
        wide = bool(field_of(word, "payload_size64"))
        payload = self._methods.get("SET_REPORT_SEMAPHORE_PAYLOAD_LOWER")
        if wide:
            payload |= self._methods.get("SET_REPORT_SEMAPHORE_PAYLOAD_UPPER") << 32
        return self._do(word, gpu_va, payload, sizes[size], wide=wide)

    def _do(self, word: Word, gpu_va: int, payload: int, words: Words, *, wide: bool) -> Progress:
        operation = field_of(word, "operation")
        if operation == Operation.ACQUIRE:
            return self._acquire(word, gpu_va, payload, wide=wide)
        if operation == Operation.TRAP:
            self._context.notify()
            return None
        if operation == Operation.REPORT_ONLY:
            payload = self._value(word)
        elif field_of(word, "report") != REPORT_NONE:
            raise Lacking(f"a release with report {field_of(word, 'report'):#x} is not modelled")
        how = RED[field_of(word, "reduction_op")] if field_of(word, "reduction_enable") else None
        changed = report(
            self._context,
            gpu_va,
            payload,
            words,
            wide=wide,
            how=how,
            signed=bool(field_of(word, "reduction_format") & 1),
        )
        trap = field_of(word, "trap_type") or field_of(word, "conditional_trap") * 2
        if field_of(word, "awaken_enable") or trap == TRAP_UNCONDITIONAL or (trap and changed):
            self._context.notify()
        return None

    def _value(self, word: Word) -> int:
        """Return what a report counts. Nothing is ever drawn, so counters of drawing are 0."""
        return self._context.now_ns() & 0xFFFF_FFFF if field_of(word, "report") == REPORT_TIMESTAMP else 0

    def _acquire(self, word: Word, gpu_va: int, payload: int, *, wide: bool) -> Iterator[float]:
        """Wait until the word in memory equals the payload, or has reached it."""
        size_bytes, delay_us = 8 if wide else 4, LOOK_US
        while True:
            value = int.from_bytes(self._context.space.read(gpu_va, size_bytes), "little")
            reached = (value - payload & (1 << 8 * size_bytes) - 1) < 1 << 8 * size_bytes - 1
            if value == payload or (field_of(word, "comparison") and reached):
                return
            yield Idle(delay_us)
            delay_us = min(2 * delay_us, MAX_LOOK_US)
