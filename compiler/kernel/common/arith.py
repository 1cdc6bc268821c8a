"""Elementwise operations of the graph as machine IR, by operation and kind of dtype. The comments of `graph.Op` define
what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType
from ringup.compiler.graph.nodes import COMPARISONS, Node, Op
from ringup.compiler.kernel.common import element_forms, functions
from ringup.compiler.kernel.common.element_forms import held, wrapped
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F32, F64, I1, I32, I64, Type, Value

_SIMPLE_FLOATS = {
    Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "div", Op.NEG: "fneg", Op.ABS: "fabs", Op.SQRT: "fsqrt",
    Op.FLOOR: "floor", Op.CEIL: "ceil", Op.TRUNC: "trunc", Op.ROUND: "round",
}  # fmt: skip
# Results of these are exact in a narrower dtype: they need no rounding.
_EXACT_FLOATS = frozenset((Op.NEG, Op.ABS, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND))
_SIMPLE_INTEGERS = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.AND: "and", Op.OR: "or", Op.XOR: "xor"}
_WRAPS = frozenset((Op.ADD, Op.SUB, Op.MUL))
_BOOLS = {
    Op.ADD: "or", Op.MUL: "and", Op.AND: "and", Op.OR: "or", Op.XOR: "xor", Op.NE: "xor", Op.MAX: "or", Op.MIN: "and",
}  # fmt: skip
_COMPARE = {Op.LT: "lt", Op.LE: "le", Op.EQ: "eq", Op.NE: "ne"}


def apply(build: Builder, node: Node, args: Sequence[Value]) -> Value:
    """Return the value of an elementwise node from the values of its operands, all in their register form."""
    return operate(build, node.op, node.dtype, node.sources[0].dtype if node.sources else node.dtype, args)


def operate(build: Builder, op: Op, dtype: DType, operand: DType, args: Sequence[Value]) -> Value:
    """Return the value of an operation with a result of `dtype`. `operand` is the dtype of the first operand, for
    comparisons that of both.
    """
    if op is Op.WHERE:
        return build.op("select", held(dtype), *args)
    if op is Op.CAST:
        return cast(build, args[0], operand, dtype)
    if op is Op.BITCAST:
        return _bitcast(build, args[0], operand, dtype)
    if op in COMPARISONS:
        return _compared(build, op, operand, args)
    if dtype.kind == "bool":
        return _of_bools(build, op, args)
    return _of_floats(build, op, dtype, args) if dtype.is_float else _of_integers(build, op, dtype, args)


def _of_bools(build: Builder, op: Op, args: Sequence[Value]) -> Value:
    if op is Op.NOT:
        return build.op("not", I1, args[0])
    if op in _BOOLS:
        return build.op(_BOOLS[op], I1, *args)
    raise ValueError(f"{op.value} is not defined for bool")


def _of_floats(build: Builder, op: Op, dtype: DType, args: Sequence[Value]) -> Value:
    type_ = held(dtype)
    if op in _SIMPLE_FLOATS:
        value = build.op(_SIMPLE_FLOATS[op], type_, *args)
        if op in _EXACT_FLOATS:
            return value
    elif op is Op.RECIP:
        value = build.op("div", type_, build.const(1.0, type_), args[0])
    elif op in (Op.MAX, Op.MIN):
        return _extreme(build, op, type_, args)
    else:
        wide = F64 if dtype is dtypes.float64 else F32
        value = _FUNCTIONS[op](build, *(build.op("fconvert", wide, one) for one in args))
        return value if value.type == type_ and dtype.bits >= 32 else element_forms.narrowed(build, value, dtype)
    return element_forms.narrowed(build, value, dtype) if type_ is F32 and dtype.bits < 32 else value


_FUNCTIONS: dict[Op, Callable[..., Value]] = {
    Op.EXP2: functions.exp2,
    Op.LOG2: functions.log2,
    Op.RSQRT: functions.inverse_root,
    Op.SIN: functions.sin,
    Op.POW: functions.power,
    Op.LOGADDEXP: functions.log_add_exp,
    Op.MOD: functions.modulo,
}


def _extreme(build: Builder, op: Op, type_: Type, args: Sequence[Value]) -> Value:
    a, b = args
    for value, bound in ((a, b), (b, a)):
        if bound.op == "const" and bound.imm == bound.imm:
            return _bounded(build, op, value, bound)
    best = build.op("fmax" if op is Op.MAX else "fmin", type_, a, b)
    unordered = build.op("or", I1, build.compare("fne", a, a), build.compare("fne", b, b))
    return build.op("select", type_, unordered, build.const(float("nan"), type_), best)


def _bounded(build: Builder, op: Op, value: Value, bound: Value) -> Value:
    """Return the maximum or minimum of a value and a constant that is not NaN. A NaN value compares
    false, so it stays.
    """
    if bound.imm == (-math.inf if op is Op.MAX else math.inf):
        return value
    beyond = build.compare("fle", *((value, bound) if op is Op.MAX else (bound, value)))
    return build.op("select", value.type, beyond, bound, value)


def _of_integers(build: Builder, op: Op, dtype: DType, args: Sequence[Value]) -> Value:
    type_ = held(dtype)
    sign = "s" if dtype.kind == "int" else "u"
    if op in _SIMPLE_INTEGERS:
        value = build.op(_SIMPLE_INTEGERS[op], type_, *args)
        return wrapped(build, value, dtype) if op in _WRAPS else value
    if op is Op.NEG:
        return wrapped(build, build.op("sub", type_, build.const(0, type_), args[0]), dtype)
    if op is Op.NOT:
        return wrapped(build, build.op("not", type_, args[0]), dtype)
    if op is Op.ABS:
        if sign == "u":
            return args[0]
        negative = build.op("sub", type_, build.const(0, type_), args[0])
        return wrapped(build, build.op("max_s", type_, args[0], negative), dtype)
    if op in (Op.MAX, Op.MIN):
        return build.op(f"{op.value}_{sign}", type_, *args)
    return _INTEGERS[op](build, dtype, type_, *args)


def _shifted(op: Op) -> Callable[..., Value]:
    def shifted(build: Builder, dtype: DType, type_: Type, value: Value, amount: Value) -> Value:
        count = build.op("truncate", I32, amount) if type_ is I64 else amount
        limit = build.const(dtype.bits, type_)
        inside = build.compare("lt_u", amount, limit)
        if op is Op.SHR and dtype.kind == "int":
            most = build.const(dtype.bits - 1)
            return build.op("shr_s", type_, value, build.op("select", I32, inside, count, most))
        safe = build.op("and", I32, count, build.const(type_.bits - 1))
        moved = build.op("shl" if op is Op.SHL else "shr_u", type_, value, safe)
        moved = wrapped(build, moved, dtype) if op is Op.SHL else moved
        if inside.op == "const":
            return moved if inside.imm else build.const(0, type_)
        return build.op("select", type_, inside, moved, build.const(0, type_))

    return shifted


def _divided(build: Builder, dtype: DType, type_: Type, a: Value, b: Value) -> Value:
    zero = build.const(0, type_)
    if dtype.kind == "uint":
        quotient = build.op("div_u", type_, a, b)
    else:
        quotient, _, off = _floor(build, type_, a, b)
        quotient = build.op("sub", type_, quotient, build.op("zext", type_, off))
    quotient = wrapped(build, quotient, dtype)
    return (
        quotient
        if b.op == "const" and b.imm
        else build.op("select", type_, build.compare("eq", b, zero), zero, quotient)
    )


def _remainder(build: Builder, dtype: DType, type_: Type, a: Value, b: Value) -> Value:
    zero = build.const(0, type_)
    if dtype.kind == "uint":
        rest = build.op("rem_u", type_, a, b)
    else:
        _, rest, off = _floor(build, type_, a, b)
        rest = build.add(rest, build.op("select", type_, off, b, zero))
    return rest if b.op == "const" and b.imm else build.op("select", type_, build.compare("eq", b, zero), zero, rest)


def _floor(build: Builder, type_: Type, a: Value, b: Value) -> tuple[Value, Value, Value]:
    """Return quotient and remainder of a division that truncates, and whether the floor is one less
    than the quotient.
    """
    zero = build.const(0, type_)
    quotient = build.op("div_s", type_, a, b)
    rest = build.op("sub", type_, a, build.mul(quotient, b))
    unlike = build.compare("lt_s", build.op("xor", type_, rest, b), zero)
    return quotient, rest, build.op("and", I1, build.compare("ne", rest, zero), unlike)


def _raised(build: Builder, dtype: DType, type_: Type, base: Value, exponent: Value) -> Value:
    one, zero = build.const(1, type_), build.const(0, type_)
    first = exponent
    with build.loop(0, dtype.bits, 1, [one, base, exponent]) as loop:
        result, square, left = loop.carried
        odd = build.compare("ne", build.op("and", type_, left, one), zero)
        loop.following = [
            build.op("select", type_, odd, build.mul(result, square), result),
            build.mul(square, square),
            build.op("shr_u", type_, left, build.const(1)),
        ]
    found = wrapped(build, loop.results[0], dtype)
    if dtype.kind == "uint":
        return found
    minus = build.const(-1, type_)
    parity = build.compare("ne", build.op("and", type_, first, one), zero)
    of_minus = build.op("select", type_, parity, minus, one)
    small = build.op("select", type_, build.compare("eq", base, one), one, zero)
    small = build.op("select", type_, build.compare("eq", base, minus), of_minus, small)
    return build.op("select", type_, build.compare("lt_s", first, zero), small, found)


_INTEGERS: dict[Op, Callable[..., Value]] = {
    Op.SHL: _shifted(Op.SHL),
    Op.SHR: _shifted(Op.SHR),
    Op.IDIV: _divided,
    Op.MOD: _remainder,
    Op.POW: _raised,
}


def _compared(build: Builder, op: Op, operand: DType, args: Sequence[Value]) -> Value:
    a, b = args
    name = _COMPARE[op]
    if operand.kind == "bool":
        if op in (Op.EQ, Op.NE):
            unlike = build.op("xor", I1, a, b)
            return unlike if op is Op.NE else build.op("not", I1, unlike)
        return build.op("and" if op is Op.LT else "or", I1, build.op("not", I1, a), b)
    if operand.is_float:
        return build.compare("f" + name, a, b)
    if op in (Op.EQ, Op.NE):
        return build.compare(name, a, b)
    return build.compare(f"{name}_{'s' if operand.kind == 'int' else 'u'}", a, b)


def cast(build: Builder, value: Value, source: DType, dtype: DType) -> Value:
    """Convert a value in the register form of one dtype to that of another."""
    if source is dtype:
        return value
    if dtype.kind == "bool":
        return build.compare("fne" if source.is_float else "ne", value, build.const(0, value.type))
    if source.kind == "bool":
        if not dtype.is_float:
            return build.op("zext", held(dtype), value)
        return build.op("select", held(dtype), value, build.const(1.0, held(dtype)), build.const(0.0, held(dtype)))
    if source.is_float:
        if dtype.is_float:
            return _float_to_float(build, value, source, dtype)
        return _float_to_integer(build, value, dtype)
    if dtype.is_float:
        # Of the narrow floats, only bfloat16 has a range in which f32 has already rounded the integer.
        if dtype is dtypes.bfloat16 and source.bits >= 32:
            return element_forms.narrowed(build, _sticky_f64(build, value, source), dtype)
        wide = F64 if dtype is dtypes.float64 else F32
        number = build.op("to_float_s" if source.kind == "int" else "to_float_u", wide, value)
        return number if dtype.bits >= 32 else element_forms.narrowed(build, number, dtype)
    return _integer_to_integer(build, value, source, dtype)


def _float_to_float(build: Builder, value: Value, source: DType, dtype: DType) -> Value:
    if dtype.bits >= 32:
        return build.op("fconvert", held(dtype), value)
    wide = value if value.type in (F32, F64) else build.op("fconvert", F32, value)
    return element_forms.narrowed(build, wide, dtype)


def _sticky_f64(build: Builder, value: Value, source: DType) -> Value:
    """Return an integer as an f64 that rounds to any narrower float as the integer itself would. The low bits that do
    not fit are merged into one sticky bit.
    """
    signed = source.kind == "int"
    if value.type is I32:
        return build.op("to_float_s" if signed else "to_float_u", F64, value)
    shift = "shr_s" if signed else "shr_u"
    top = build.op(shift, I64, value, build.const(52))
    small = build.compare("lt_u", build.add(top, 1) if signed else top, build.const(2 if signed else 1, I64))
    lost = build.compare("ne", build.op("and", I64, value, build.const(0x7FF, I64)), build.const(0, I64))
    kept = build.op("or", I64, build.op(shift, I64, value, build.const(11)), build.op("zext", I64, lost))
    number = build.op("to_float_s", F64, build.op("select", I64, small, value, kept))
    scale = build.op("select", F64, small, build.const(1.0, F64), build.const(2048.0, F64))
    return build.op("fmul", F64, number, scale)


def _float_to_integer(build: Builder, value: Value, dtype: DType) -> Value:
    sign = "s" if dtype.kind == "int" else "u"
    number = build.op(f"to_int_{sign}", held(dtype), value)
    if dtype.bits < 32:
        number = build.op(f"min_{sign}", I32, number, build.const(int(dtype.greatest)))
        if sign == "s":
            number = build.op("max_s", I32, number, build.const(int(dtype.least)))
    return number


def _integer_to_integer(build: Builder, value: Value, source: DType, dtype: DType) -> Value:
    if held(dtype) is I64:
        return value if value.type is I64 else build.op("sext" if source.kind == "int" else "zext", I64, value)
    low = build.op("truncate", I32, value) if value.type is I64 else value
    return low if dtype.bits >= 32 else wrapped(build, low, dtype)


def _bitcast(build: Builder, value: Value, source: DType, dtype: DType) -> Value:
    lying = element_forms.to_memory(build, value, source)
    wanted = element_forms.stored(dtype)
    return element_forms.from_memory(
        build, lying if lying.type == wanted else build.op("bitcast", wanted, lying), dtype
    )
