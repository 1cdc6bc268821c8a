"""Conversions between formats of numbers.

Source: PTX ISA, cvt: integers are clamped, a NaN becomes 0; names by Mesa's NAK (MIT).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.interpreter.floats import flushes, mode_of
from ringup.silicon.shader.nv.values.rounding import F16_NAN, bfloat, double, half, single

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringup.silicon.shader.nv.decoding.instruction import Operand
    from ringup.silicon.shader.nv.interpreter.step import Step

_FLOATS = ("F16", "F32", "F64")
_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")
_ROUNDINGS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "FLOOR": np.floor, "CEIL": np.ceil, "TRUNC": np.trunc,
}  # fmt: skip


def _read(step: Step, operand: Operand, kind: str) -> NDArray[np.float64]:
    if kind == "F64":
        return step.f64(operand)
    if kind == "F32":
        return step.f32(operand, flush=flushes(step.ins))
    bits = step.raw(operand)
    if operand.half.startswith("H1"):
        bits = bits >> np.uint32(16)
    if operand.absolute:
        bits = bits & np.uint32(0x7FFF)
    if operand.negate:
        bits = bits ^ np.uint32(0x8000)
    return bits.astype(np.uint16).view(np.float16).astype(np.float64)


def _write(step: Step, operand: Operand, kind: str, value: NDArray[np.float64]) -> None:
    mode, flush = mode_of(step.ins), flushes(step.ins)
    if kind == "F64":
        step.write64(operand, double(value))
    elif kind == "F32":
        step.write(operand, single(value, mode, flush=flush))
    else:
        step.write(operand, half(value, mode).astype(np.uint32))


def _whole(step: Step, value: NDArray[np.float64]) -> NDArray[np.float64]:
    how = next((one for one in step.ins.modifiers if one in _ROUNDINGS), "")
    with np.errstate(all="ignore"):
        return _ROUNDINGS[how](value) if how else np.rint(value)


def _f2i(step: Step) -> None:
    ins = step.ins
    rd, source = ins.operands
    to = next((one for one in ins.modifiers if one in _INTEGERS), "S32")
    kind = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    value = _whole(step, _read(step, source, kind))
    bits = int(to[1:])
    lowest, highest = (0, (1 << bits) - 1) if to[0] == "U" else (-1 << bits - 1, (1 << bits - 1) - 1)
    # Source: PTX ISA, cvt, which says both of a NaN. GUESS: `.NTZ` is the one that gives zero.
    nan = 0 if ins.has("NTZ") else lowest or 1 << bits - 1
    whole = [nan if np.isnan(one) else _clamped(one, lowest, highest) for one in value.tolist()]
    mask = (1 << max(bits, 32)) - 1
    result = np.array([one & mask for one in whole], np.uint64)
    if bits == 64:
        step.write64(rd, result)
    else:
        step.write(rd, result.astype(np.uint32))


def _clamped(value: float, lowest: int, highest: int) -> int:
    if value <= lowest:
        return lowest
    return highest if value >= highest else int(value)


def _i2f(step: Step) -> None:
    ins = step.ins
    rd, source = ins.operands
    kind = next((one for one in ins.modifiers if one in _INTEGERS), "S32")
    to = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    bits = int(kind[1:])
    raw = step.raw64(source) if bits == 64 else _part(step, source).astype(np.uint64)
    whole = [one & (1 << bits) - 1 for one in raw.tolist()]
    if kind[0] == "S":
        whole = [one - (one >> bits - 1 << bits) for one in whole]
    if to == "F64":
        if mode_of(ins) and bits == 64:
            raise Unmodelled(f"{ins.text}: rounding other than to nearest")
        value = np.array([float(one) for one in whole], np.float64)
    else:
        # An integer of more than 53 bits is rounded to odd first.
        value = np.array([_odd(one) for one in whole], np.float64)
    _write(step, rd, to, value)


def _part(step: Step, source: Operand) -> NDArray[np.uint32]:
    """Return a source, or the byte of it that `.B1` and so on name."""
    bits = step.raw(source)
    return bits >> np.uint32(8 * int(source.half[1])) if source.half.startswith("B") else bits


def _odd(value: int) -> float:
    size = abs(value)
    spare = max(size.bit_length() - 53, 0)
    if spare and size & (1 << spare) - 1:
        size = (size >> spare | 1) << spare
    return float(size if value >= 0 else -size)


def _f2f(step: Step) -> None:
    ins = step.ins
    rd, source = ins.operands
    to, kind = [one for one in ins.modifiers if one in _FLOATS]
    _write(step, rd, to, _read(step, source, kind))


def _frnd(step: Step) -> None:
    ins = step.ins
    rd, source = ins.operands
    kind = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    _write(step, rd, kind, _whole(step, _read(step, source, kind)))


def _f2fp(step: Step) -> None:
    """Convert two f32 to a pair of f16 or bf16; the first source is the upper one. `.RZ` cuts, others round to nearest.

    Source: PTX ISA, cvt.rn.f16x2.f32, cvt.rz.bf16x2.f32.
    """
    rd, a, b = step.ins.operands[:3]
    mode, values = mode_of(step.ins), [step.f32(one) for one in (a, b)]
    if not step.ins.has("BF16"):
        high, low = (half(one, mode) for one in values)
    elif mode:
        high, low = (np.where(np.isnan(one), F16_NAN, single(one, "") >> np.uint32(16)) for one in values)
    else:
        high, low = (bfloat(one) for one in values)
    step.write(rd, low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16))


RULES: dict[str, Callable[[Step], None]] = {
    "F2I": _f2i, "I2F": _i2f, "I2FP": _i2f, "F2F": _f2f, "FRND": _frnd, "F2FP": _f2fp,
}  # fmt: skip
