"""Float instructions: f32, f64, pairs of f16.

Sources: PTX ISA, "Floating-Point Instructions", "Half Precision"; Mesa's NAK for flags (MIT). A NaN result of f32 is
0x7fffffff, of f16 0x7fff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.interpreter.integers import combined
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.values.rounding import DOWN, UP, ZERO, double_fma, half, odd_fma, odd_sum, single

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.nv.decoding.instruction import Instruction, Operand
    from ringup.silicon.shader.nv.interpreter.step import Flags, Step

    Doubles = NDArray[np.float64]

_NOTHING = np.zeros(LANES, np.float64)


def mode_of(ins: Instruction) -> str:
    """Return the rounding mode among the modifiers; empty for nearest."""
    return next((one for one in ins.modifiers if one in (DOWN, UP, ZERO)), "")


def flushes(ins: Instruction) -> bool:
    """Return whether denormals count as zero. `.FMZ` does so too, and makes zero times anything zero."""
    return ins.has("FTZ") or ins.has("FMZ")


def _store(step: Step, rd: Operand, value: Doubles) -> None:
    ins = step.ins
    step.write(rd, single(value, mode_of(ins), flush=flushes(ins), saturate=ins.has("SAT")))


def _fadd(step: Step) -> None:
    rd, a, b = step.ins.operands
    flush = flushes(step.ins)
    _store(step, rd, odd_sum(step.f32(a, flush=flush), step.f32(b, flush=flush)))


def _times(step: Step, left: Doubles, right: Doubles) -> tuple[Doubles, Doubles]:
    if step.ins.has("FMZ"):
        none = (left == 0) | (right == 0)
        return np.where(none, 0.0, left), np.where(none, 0.0, right)
    return left, right


def _fmul(step: Step) -> None:
    rd, a, b = step.ins.operands
    flush = flushes(step.ins)
    left, right = _times(step, step.f32(a, flush=flush), step.f32(b, flush=flush))
    with np.errstate(all="ignore"):
        _store(step, rd, left * right)


def _ffma(step: Step) -> None:
    rd, a, b, c = step.ins.operands
    flush = flushes(step.ins)
    left, right = _times(step, step.f32(a, flush=flush), step.f32(b, flush=flush))
    _store(step, rd, odd_fma(left, right, step.f32(c, flush=flush)))


def _least(left: Doubles, right: Doubles, least: Flags) -> Doubles:
    """Return the lesser or greater; a NaN loses, and -0 is less than +0."""
    less = (left < right) | ((left == right) & np.signbit(left) & ~np.signbit(right))
    found = np.where(less == least, left, right)
    found = np.where(np.isnan(left), right, found)
    return np.where(np.isnan(right), left, found)


def _fmnmx(step: Step) -> None:
    rd, a, b, least = step.ins.operands
    flush = flushes(step.ins)
    _store(step, rd, _least(step.f32(a, flush=flush), step.f32(b, flush=flush), step.flags(least)))


def _fsel(step: Step) -> None:
    """Select, with signs; denormals are flushed with `.FTZ`, NaNs keep their bits."""
    rd, a, b, choice = step.ins.operands
    found = np.where(step.flags(choice), _signed_bits(step, a), _signed_bits(step, b))
    if step.ins.has("FTZ"):
        found = np.where(found & np.uint32(0x7F80_0000) == 0, found & np.uint32(0x8000_0000), found)
    step.write(rd, found)


def _signed_bits(step: Step, operand: Operand) -> NDArray[np.uint32]:
    bits = step.raw(operand)
    if operand.absolute:
        bits = bits & np.uint32(0x7FFF_FFFF)
    return bits ^ np.uint32(0x8000_0000) if operand.negate else bits


ORDERED: dict[str, Callable[[Doubles, Doubles], Flags]] = {
    "LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


def compared(how: str, left: Doubles, right: Doubles) -> Flags:
    """Return a comparison; names that end in U are true if either is a NaN. Source: PTX ISA, set."""
    nan = np.isnan(left) | np.isnan(right)
    if how in ("F", "T"):
        return np.full(left.shape, how == "T")
    if how in ("NUM", "NAN"):
        return nan if how == "NAN" else ~nan
    base = how.removesuffix("U")
    found = ~nan & (left != right) if base == "NE" else ORDERED[base](left, right)
    return found | nan if how.endswith("U") else found


_COMPARISONS = ("F", "T", "NUM", "NAN", *(one + suffix for one in (*ORDERED, "NE") for suffix in ("", "U")))


def _how(ins: Instruction) -> str:
    return next(one for one in ins.modifiers if one in _COMPARISONS)


def _fsetp(step: Step) -> None:
    _, _, a, b, accumulated = step.ins.operands
    flush = flushes(step.ins)
    left, right = step.f32(a, flush=flush), step.f32(b, flush=flush)
    combined(step, compared(_how(step.ins), left, right), accumulated)


def _dsetp(step: Step) -> None:
    _, _, a, b, accumulated = step.ins.operands
    combined(step, compared(_how(step.ins), step.f64(a), step.f64(b)), accumulated)


def _fset(step: Step) -> None:
    rd, a, b, accumulated = step.ins.operands
    flush = flushes(step.ins)
    found = compared(_how(step.ins), step.f32(a, flush=flush), step.f32(b, flush=flush)) & step.flags(accumulated)
    step.write(rd, np.where(found, np.uint32(0x3F80_0000), np.uint32(0)))


def _functions(how: str, value: Doubles) -> Doubles:
    """Return a function of the multifunction unit, from f64. Sine and cosine take turns: 1 is a whole circle."""
    with np.errstate(all="ignore"):
        if how in ("SIN", "COS"):
            angle = (value - np.floor(value)) * (2 * np.pi)
            return np.sin(angle) if how == "SIN" else np.cos(angle)
        if how == "EX2":
            return np.exp2(value)
        if how == "LG2":
            return np.log2(value)
        if how.startswith("RCP"):
            return 1.0 / value
        if how.startswith("RSQ"):
            return 1.0 / np.sqrt(value)
        return np.sqrt(value) if how == "SQRT" else np.tanh(value)


def _mufu(step: Step) -> None:
    """Approximate a function: here its value, rounded to nearest, which is within every documented bound.

    GUESS: denormal sources and results are zero. ptxas and NAK scale both where denormals matter. Source of bounds: PTX
    ISA, rcp.approx, rsqrt.approx, sin.approx, cos.approx, lg2.approx, ex2.approx, tanh.approx.
    """
    rd, source = step.ins.operands
    how = step.ins.modifiers[0]
    if how.endswith("64H"):
        value = (step.u32(source).astype(np.uint64) << np.uint64(32)).view(np.float64)
        if source.absolute or source.negate:
            raise Unmodelled(f"{step.ins.text}: signs of its source")
        step.write(rd, (_functions(how, value).view(np.uint64) >> np.uint64(32)).astype(np.uint32))
        return
    step.write(rd, single(_functions(how, step.f32(source, flush=True)), "", flush=True))


def _fchk(step: Step) -> None:
    """Say whether a / b needs the slow way of dividing.

    GUESS: its conditions are those under which Newton's method from 1/b may overflow or lose bits: exponents of b or
    of the quotient near the ends, a small a, and all that is no finite number.
    """
    pu, a, b = step.ins.operands
    upper, lower = (step.raw(one) >> np.uint32(23) & np.uint32(255) for one in (a, b))
    top, bottom = upper.astype(np.int32), lower.astype(np.int32)
    gap = top - bottom
    slow = (bottom <= 1) | (bottom >= 253) | (top == 255) | (top <= 24) | (gap >= 126) | (gap <= -125)
    step.set_flags(pu, slow)


# f64 ------------------------------------------------------------------------------------------------------------------


def _nearest_only(step: Step) -> None:
    if mode_of(step.ins):
        raise Unmodelled(f"{step.ins.text}: rounding of f64 other than to nearest")


def _dadd(step: Step) -> None:
    _nearest_only(step)
    rd, a, b = step.ins.operands
    with np.errstate(all="ignore"):
        step.write64(rd, (step.f64(a) + step.f64(b)).view(np.uint64))


def _dmul(step: Step) -> None:
    _nearest_only(step)
    rd, a, b = step.ins.operands
    with np.errstate(all="ignore"):
        step.write64(rd, (step.f64(a) * step.f64(b)).view(np.uint64))


def _dfma(step: Step) -> None:
    _nearest_only(step)
    rd, a, b, c = step.ins.operands
    step.write64(rd, double_fma(step.f64(a), step.f64(b), step.f64(c)).view(np.uint64))


# pairs of f16 ---------------------------------------------------------------------------------------------------------


def halves(step: Step, operand: Operand) -> tuple[Doubles, Doubles]:
    """Return the lower and upper f16 of a source, as its `.H0_H0` and signs say."""
    bits = step.raw(operand)
    if operand.absolute:
        bits = bits & np.uint32(0x7FFF_7FFF)
    if operand.negate:
        bits = bits ^ np.uint32(0x8000_8000)
    low, high = bits.astype(np.uint16), (bits >> np.uint32(16)).astype(np.uint16)
    if flushes(step.ins):
        low, high = (np.where(one & 0x7C00 == 0, one & 0x8000, one).astype(np.uint16) for one in (low, high))
    pair = [one.view(np.float16).astype(np.float64) for one in (low, high)]
    if operand.half == "H0_H0":
        return pair[0], pair[0]
    return (pair[1], pair[1]) if operand.half == "H1_H1" else (pair[0], pair[1])


def _pairs(operation: Callable[[Step, list[Doubles]], Doubles]) -> Callable[[Step], None]:
    def execute(step: Step) -> None:
        ins = step.ins
        if ins.has("F32"):
            raise Unmodelled(f"{ins.text}: results in f32")
        rd, *sources = ins.operands
        read = [halves(step, one) for one in sources]
        found = []
        for side in (0, 1):
            value = operation(step, [one[side] for one in read])
            found.append(half(value, "", flush=flushes(ins), saturate=ins.has("SAT")).astype(np.uint32))
        step.write(rd, found[0] | found[1] << np.uint32(16))

    return execute


def _sum(step: Step, values: list[Doubles]) -> Doubles:
    return odd_sum(values[0], values[1])


def _scaled(step: Step, values: list[Doubles]) -> Doubles:
    left, right = _times(step, values[0], values[1])
    return odd_fma(
        left, right, values[2] if len(values) > 2 else np.where(np.signbit(left) ^ np.signbit(right), -0.0, 0.0)
    )


def _hmnmx2(step: Step) -> None:
    rd, a, b, least = step.ins.operands
    first, second = halves(step, a), halves(step, b)
    flags = step.flags(least)
    low, high = (half(_least(first[side], second[side], flags), "").astype(np.uint32) for side in (0, 1))
    step.write(rd, low | high << np.uint32(16))


def _accumulate(ins: Instruction, found: Flags, given: Flags) -> Flags:
    if ins.has("OR"):
        return found | given
    return found ^ given if ins.has("XOR") else found & given


def _hsetp2(step: Step) -> None:
    """Compare both halves: a predicate for each, or `.H_AND`: one for both and its complement."""
    pu, pv, a, b, accumulated = step.ins.operands
    first, second = halves(step, a), halves(step, b)
    low, high = (compared(_how(step.ins), first[side], second[side]) for side in (0, 1))
    if step.ins.has("H_AND"):
        low, high = low & high, ~(low & high)
    given = step.flags(accumulated)
    step.set_flags(pu, _accumulate(step.ins, low, given))
    step.set_flags(pv, _accumulate(step.ins, high, given))


def _hset2(step: Step) -> None:
    """Compare both halves; each result is 1.0 or 0."""
    rd, a, b, accumulated = step.ins.operands
    first, second, given = halves(step, a), halves(step, b), step.flags(accumulated)
    low, high = (
        np.where(_accumulate(step.ins, compared(_how(step.ins), first[side], second[side]), given), 0x3C00, 0)
        for side in (0, 1)
    )
    step.write(rd, (low | high << 16).astype(np.uint32))


RULES: dict[str, Callable[[Step], None]] = {
    "FADD": _fadd, "FMUL": _fmul, "FFMA": _ffma, "FMNMX": _fmnmx, "FSEL": _fsel, "FSETP": _fsetp, "FSET": _fset,
    "MUFU": _mufu, "FCHK": _fchk, "DADD": _dadd, "DMUL": _dmul, "DFMA": _dfma, "DSETP": _dsetp, "HADD2": _pairs(_sum),
    "HMUL2": _pairs(_scaled), "HFMA2": _pairs(_scaled), "HMNMX2": _hmnmx2, "HSETP2": _hsetp2, "HSET2": _hset2,
}  # fmt: skip
