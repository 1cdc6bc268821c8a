"""Constant folding, and operations whose result equals an operand."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ringup.compiler.machine.ir import Type, Value

_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_PACKED_INTS = {16: "<H", 32: "<I", 64: "<Q"}

# (a, b, bits); unsigned numbers in and out.
_INTS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "shl": lambda a, b, n: a << b if b < n else 0,
    "shr_u": lambda a, b, n: a >> b,
    "shr_s": lambda a, b, n: signed(a, n) >> min(b, n - 1),
    "min_u": lambda a, b, n: min(a, b),
    "max_u": lambda a, b, n: max(a, b),
    "min_s": lambda a, b, n: min(signed(a, n), signed(b, n)),
    "max_s": lambda a, b, n: max(signed(a, n), signed(b, n)),
    "mul_hi_u": lambda a, b, n: a * b >> n,
    "mul_hi_s": lambda a, b, n: signed(a, n) * signed(b, n) >> n,
}
_COMPARE_INTS: dict[str, Callable[[int, int, int], bool]] = {
    "eq": lambda a, b, n: a == b,
    "ne": lambda a, b, n: a != b,
    "lt_u": lambda a, b, n: a < b,
    "le_u": lambda a, b, n: a <= b,
    "lt_s": lambda a, b, n: signed(a, n) < signed(b, n),
    "le_s": lambda a, b, n: signed(a, n) <= signed(b, n),
}
_FLOATS: dict[str, Callable[[float, float], float]] = {
    "fadd": lambda a, b: a + b,
    "fsub": lambda a, b: a - b,
    "fmul": lambda a, b: a * b,
}

_COMPARE_FLOATS: dict[str, Callable[[float, float], bool]] = {
    "feq": lambda a, b: a == b,
    "fne": lambda a, b: a != b,
    "flt": lambda a, b: a < b,
    "fle": lambda a, b: a <= b,
}


def signed(value: int, bits: int) -> int:
    """Return an unsigned number read as two's complement."""
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def rounded(value: float, type_: Type) -> float:
    """Return a float rounded to the type. Too large a number becomes infinity."""
    form = _FORMATS.get(type_.element)
    if form is None or not math.isfinite(value):
        return value
    try:
        return float(struct.unpack(form, struct.pack(form, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


_NEVER = frozenset(("const", "fma", "mad", "packed", "matrix"))


def fold(op: str, type_: Type, args: Sequence[Value], imm: object) -> Value | int | float | None:
    """Return an operand or a constant that equals the result, or None if it must be computed."""
    if op in _NEVER or not args:
        return None
    if op in ("zext", "truncate", "sext", "bitcast", "fconvert") and args[0].type == type_:
        return args[0]
    if op == "truncate" and args[0].op in ("sext", "zext") and args[0].args[0].type == type_:
        return args[0].args[0]
    if (
        op == "fconvert"
        and args[0].op == "fconvert"
        and args[0].args[0].type == type_
        and type_.bits < args[0].type.bits
    ):
        # Widened and narrowed again.
        return args[0].args[0]
    if op == "extract":
        return _extracted(args[0], imm)
    if op == "vector":
        return _whole(type_, args)
    constants = [one.imm if one.op == "const" else None for one in args]
    if op == "select":
        if constants[0] is not None:
            return args[1] if constants[0] else args[2]
        return args[1] if args[1] is args[2] else None
    if type_.count > 1 or args[0].type.count > 1:
        return None
    if None not in constants:
        return _computed(op, type_, args, constants)
    return _kept(op, type_, args, constants)


def _extracted(vector: Value, index: object) -> Value | None:
    return vector.args[index] if vector.op == "vector" and isinstance(index, int) else None


def _whole(type_: Type, parts: Sequence[Value]) -> Value | None:
    """Return the vector whose elements are all combined again in their order."""
    first = parts[0]
    if first.op != "extract" or first.args[0].type != type_:
        return None
    source = first.args[0]
    same = all(one.op == "extract" and one.args[0] is source and one.imm == i for i, one in enumerate(parts))
    return source if same else None


def _computed(op: str, type_: Type, args: Sequence[Value], constants: Sequence[Any]) -> int | float | None:
    bits = args[0].type.bits
    if op in _INTS:
        a, b = constants
        return _INTS[op](a, b, bits) & (1 << type_.bits) - 1
    if op in _COMPARE_INTS:
        a, b = constants
        return int(_COMPARE_INTS[op](a, b, bits))
    if op in _COMPARE_FLOATS:
        a, b = constants
        return int(_COMPARE_FLOATS[op](a, b))
    if op in _FLOATS and type_.element in _FORMATS:
        a, b = constants
        exact = _FLOATS[op](a, b)
        return rounded(exact, type_)
    a = constants[0]
    if op in ("zext", "truncate"):
        return int(a) & (1 << type_.bits) - 1
    if op == "sext":
        return signed(int(a), bits) & (1 << type_.bits) - 1
    if op == "fneg":
        return -a  # type: ignore[no-any-return]
    if op == "fabs":
        return abs(a)  # type: ignore[no-any-return]
    if op == "not":
        return ~int(a) & (1 << type_.bits) - 1
    if op in ("to_float_s", "to_float_u"):
        whole = signed(int(a), bits) if op == "to_float_s" else int(a)
        return rounded(float(whole), type_) if abs(whole) < 1 << 53 else None
    return None


def _kept(op: str, type_: Type, args: Sequence[Value], constants: Sequence[Any]) -> Value | int | None:
    """Fold integer operations with one constant. Floats are not folded: x + 0.0 is not x for -0.0, and x * 0 is not 0
    for NaN.
    """
    if type_.is_float or len(args) != 2:
        if op == "fmul" and constants[1] == 1.0:
            return args[0]
        return args[1] if op == "fmul" and constants[0] == 1.0 else None
    a, b = constants
    if a is not None and op in ("add", "mul", "and", "or", "xor"):
        return _kept(op, type_, (args[1], args[0]), (b, a))
    everything = (1 << type_.bits) - 1
    if type_.element == "i1" and (b is not None or a is not None) and op in ("and", "or", "xor"):
        return _kept_condition(op, args[0] if b is not None else args[1], b if b is not None else a)
    if b == 0 and op in ("add", "sub", "or", "xor", "shl", "shr_u", "shr_s"):
        return args[0]
    if b == 0 and op in ("mul", "and"):
        return 0
    if b == 1 and op in ("mul", "div_u", "div_s"):
        return args[0]
    if b == everything and op == "and":
        return args[0]
    if args[0] is args[1] and type_.element != "i1" and op in ("sub", "xor"):
        return 0
    return None


def _kept_condition(op: str, other: Value, constant: object) -> Value | int | None:
    if op == "and":
        return other if constant else 0
    if op == "or":
        return 1 if constant else other
    return None if constant else other
