"""Float instructions: f32 and f64.

Sources: PTX ISA, "Floating-Point Instructions", "Half Precision"; Mesa's NAK for flags (MIT). A NaN result of f32 is
0x7fffffff, of f16 0x7fff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.interpreter.integers import combined
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.values.rounding import (
    DOWN,
    UP,
    ZERO,
    directed,
    double,
    double_fma,
    odd_fma,
    odd_sum,
    single,
)

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


def without_infinities(step: Step, left: Doubles, right: Doubles) -> tuple[Doubles, Doubles]:
    if step.ins.has("FMZ"):
        none = (left == 0) | (right == 0)
        return np.where(none, 0.0, left), np.where(none, 0.0, right)
    return left, right


# of a product. Source: Mesa's nv50_ir_emit_gv100.cpp, emitFMUL
SCALES = {"D4": 0.25, "D2": 0.5}


def _fmul(step: Step) -> None:
    rd, a, b = step.ins.operands
    flush = flushes(step.ins)
    left, right = without_infinities(step, step.f32(a, flush=flush), step.f32(b, flush=flush))
    scale = next((factor for name, factor in SCALES.items() if step.ins.has(name)), 1.0)
    with np.errstate(all="ignore"):
        _store(step, rd, left * right * scale)


def _ffma(step: Step) -> None:
    rd, a, b, c = step.ins.operands
    flush = flushes(step.ins)
    left, right = without_infinities(step, step.f32(a, flush=flush), step.f32(b, flush=flush))
    _store(step, rd, odd_fma(left, right, step.f32(c, flush=flush)))


def least_of(left: Doubles, right: Doubles, least: Flags) -> Doubles:
    """Return the lesser or greater; a NaN loses, and -0 is less than +0."""
    less = (left < right) | ((left == right) & np.signbit(left) & ~np.signbit(right))
    found = np.where(less == least, left, right)
    found = np.where(np.isnan(left), right, found)
    return np.where(np.isnan(right), left, found)


def extreme_of(step: Step, left: Doubles, right: Doubles, least: Operand) -> Doubles:
    """Return the lesser or greater. `.NAN`: of a NaN and a number it is NaN; `.XORSIGN`: the sign is the product's.

    Source: PTX ISA, min.
    """
    found = least_of(left, right, step.flags(least))
    if step.ins.has("XORSIGN"):
        found = np.copysign(found, np.where(np.signbit(left) ^ np.signbit(right), -1.0, 1.0))
    return np.where(np.isnan(left) | np.isnan(right), np.nan, found) if step.ins.has("NAN") else found


def _fmnmx(step: Step) -> None:
    rd, a, b, least = step.ins.operands
    flush = flushes(step.ins)
    _store(step, rd, extreme_of(step, step.f32(a, flush=flush), step.f32(b, flush=flush), least))


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


def comparison_of(ins: Instruction) -> str:
    return next(one for one in ins.modifiers if one in _COMPARISONS)


def _fsetp(step: Step) -> None:
    _, _, a, b, accumulated = step.ins.operands
    flush = flushes(step.ins)
    left, right = step.f32(a, flush=flush), step.f32(b, flush=flush)
    combined(step, compared(comparison_of(step.ins), left, right), accumulated)


def _dsetp(step: Step) -> None:
    _, _, a, b, accumulated = step.ins.operands
    combined(step, compared(comparison_of(step.ins), step.f64(a), step.f64(b)), accumulated)


def accumulate(ins: Instruction, found: Flags, given: Flags) -> Flags:
    """Combine a comparison with a predicate."""
    if ins.has("OR"):
        return found | given
    return found ^ given if ins.has("XOR") else found & given


def _fset(step: Step) -> None:
    rd, a, b, accumulated = step.ins.operands
    flush = flushes(step.ins)
    found = compared(comparison_of(step.ins), step.f32(a, flush=flush), step.f32(b, flush=flush))
    true = np.uint32(0x3F80_0000 if step.ins.has("BF") else 0xFFFF_FFFF)
    step.write(rd, np.where(accumulate(step.ins, found, step.flags(accumulated)), true, np.uint32(0)))


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
    if step.ins.has("F16") or step.ins.has("BF16"):
        raise Unmodelled(f"{step.ins.text}: a function of f16")
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


def _dadd(step: Step) -> None:
    rd, a, b = step.ins.operands
    left, right = step.f64(a), step.f64(b)
    with np.errstate(all="ignore"):
        value = left + right
    step.write64(rd, double(directed(value, left, np.ones(LANES), right, mode_of(step.ins))))


def _dmul(step: Step) -> None:
    rd, a, b = step.ins.operands
    left, right = step.f64(a), step.f64(b)
    with np.errstate(all="ignore"):
        value = left * right
    step.write64(rd, double(directed(value, left, right, _NOTHING, mode_of(step.ins))))


def _dfma(step: Step) -> None:
    rd, a, b, c = step.ins.operands
    left, right, addend = step.f64(a), step.f64(b), step.f64(c)
    value = double_fma(left, right, addend)
    step.write64(rd, double(directed(value, left, right, addend, mode_of(step.ins))))


RULES: dict[str, Callable[[Step], None]] = {
    "FADD": _fadd, "FMUL": _fmul, "FFMA": _ffma, "FMNMX": _fmnmx, "FSEL": _fsel, "FSETP": _fsetp, "FSET": _fset,
    "MUFU": _mufu, "FCHK": _fchk, "DADD": _dadd, "DMUL": _dmul, "DFMA": _dfma, "DSETP": _dsetp,
}  # fmt: skip
