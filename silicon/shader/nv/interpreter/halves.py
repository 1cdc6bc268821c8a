"""Float instructions on pairs of f16 or bf16.

Sources: PTX ISA, "Half Precision Floating-Point Instructions"; Mesa's NAK for flags (MIT). A NaN result is 0x7fff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import PT, Instruction, Kind
from ringup.silicon.shader.nv.interpreter.floats import (
    accumulate,
    compared,
    comparison_of,
    extreme_of,
    flushes,
    without_infinities,
)
from ringup.silicon.shader.nv.values.rounding import bfloat, half, odd_fma, odd_sum, single

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.nv.decoding.instruction import Operand
    from ringup.silicon.shader.nv.interpreter.step import Step

    Doubles = NDArray[np.float64]
    Halves = NDArray[np.uint16]


def is_bfloat(ins: Instruction) -> bool:
    """Return whether the pairs are of bf16."""
    return ins.has("BF16_V2")


def halves(step: Step, operand: Operand) -> tuple[Doubles, Doubles]:
    """Return both halves of a source in f64, as `.H0_H0` and signs say."""
    bits = step.raw(operand)
    if operand.absolute:
        bits = bits & np.uint32(0x7FFF_7FFF)
    if operand.negate:
        bits = bits ^ np.uint32(0x8000_8000)
    pair = [_value(step.ins, one) for one in (bits.astype(np.uint16), (bits >> np.uint32(16)).astype(np.uint16))]
    if operand.half in ("H0_H0", "H0"):
        return pair[0], pair[0]
    return (pair[1], pair[1]) if operand.half in ("H1_H1", "H1") else (pair[0], pair[1])


def _value(ins: Instruction, bits: Halves) -> Doubles:
    exponent = np.uint16(0x7F80 if is_bfloat(ins) else 0x7C00)
    if flushes(ins):
        bits = np.where(bits & exponent == 0, bits & np.uint16(0x8000), bits).astype(np.uint16)
    if is_bfloat(ins):
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(np.float16).astype(np.float64)


def _write(step: Step, rd: Operand, found: list[Doubles]) -> None:
    ins = step.ins
    if ins.has("RELU"):
        # A NaN stays one.
        found = [np.where(one <= 0, 0.0, one) for one in found]
    rounded = [
        bfloat(one, flush=flushes(ins), saturate=ins.has("SAT"))
        if is_bfloat(ins)
        else half(one, "", flush=flushes(ins), saturate=ins.has("SAT"))
        for one in found
    ]
    step.write(rd, rounded[0].astype(np.uint32) | rounded[1].astype(np.uint32) << np.uint32(16))


def _sources(ins: Instruction) -> list[Operand]:
    """Return the sources without the predicate that `.RELU` forms have."""
    found = [one for one in ins.operands[1:] if one.kind is not Kind.PREDICATE]
    if any(one.kind is Kind.PREDICATE and (one.value != PT or one.invert) for one in ins.operands):
        raise Unmodelled(f"{ins.text}: a predicate")
    return found


def _pairs(operation: Callable[[Step, list[Doubles]], Doubles]) -> Callable[[Step], None]:
    def execute(step: Step) -> None:
        ins = step.ins
        read = [halves(step, one) for one in _sources(ins)]
        if ins.has("F32"):
            if ins.name != "HADD2":
                raise Unmodelled(f"{ins.text}: results in f32")
            # GUESS: the sum of the lower halves; ptxas converts to f32 so, by adding -0.
            value = operation(step, [one[0] for one in read])
            step.write(ins.operands[0], single(value, "", flush=flushes(ins), saturate=ins.has("SAT")))
            return
        _write(step, ins.operands[0], [operation(step, [one[side] for one in read]) for side in (0, 1)])

    return execute


def _sum(step: Step, values: list[Doubles]) -> Doubles:
    return odd_sum(values[0], values[1])


def _scaled(step: Step, values: list[Doubles]) -> Doubles:
    left, right = without_infinities(step, values[0], values[1])
    if len(values) > 2:
        return odd_fma(left, right, values[2])
    with np.errstate(all="ignore"):
        # exact in f64
        return left * right


def _hmnmx2(step: Step) -> None:
    rd, a, b, least = step.ins.operands
    first, second = halves(step, a), halves(step, b)
    _write(step, rd, [extreme_of(step, first[side], second[side], least) for side in (0, 1)])


def _hsetp2(step: Step) -> None:
    """Compare both halves: a predicate for each, or `.H_AND`: one for both and its complement."""
    pu, pv, a, b, accumulated = step.ins.operands
    first, second = halves(step, a), halves(step, b)
    low, high = (compared(comparison_of(step.ins), first[side], second[side]) for side in (0, 1))
    if step.ins.has("H_AND"):
        low, high = low & high, ~(low & high)
    given = step.flags(accumulated)
    step.set_flags(pu, accumulate(step.ins, low, given))
    step.set_flags(pv, accumulate(step.ins, high, given))


def _hset2(step: Step) -> None:
    """Compare both halves; each result is all ones or 0, with `.BF` 1.0 or 0. Source: PTX ISA, set."""
    rd, a, b, accumulated = step.ins.operands
    first, second, given = halves(step, a), halves(step, b), step.flags(accumulated)
    true = 0x3C00 if step.ins.has("BF") else 0xFFFF
    low, high = (
        np.where(accumulate(step.ins, compared(comparison_of(step.ins), first[side], second[side]), given), true, 0)
        for side in (0, 1)
    )
    step.write(rd, (low | high << 16).astype(np.uint32))


RULES: dict[str, Callable[[Step], None]] = {
    "HADD2": _pairs(_sum), "HMUL2": _pairs(_scaled), "HFMA2": _pairs(_scaled), "HMNMX2": _hmnmx2, "HSETP2": _hsetp2,
    "HSET2": _hset2,
}  # fmt: skip
