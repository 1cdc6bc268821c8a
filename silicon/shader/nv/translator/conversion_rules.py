"""Conversions between formats of numbers as IR. What they compute is as in `interpreter/conversions.py`, which names
the sources. Roundings other than to nearest are the interpreter's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.nv.translator.float_rules import plain, store_f32, store_f64
from ringup.silicon.shader.nv.translator.half_rules import odd_single, rounded_bfloat, rounded_half
from ringup.silicon.shader.nv.translator.writer import NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.host.emitter import Value
    from ringup.silicon.shader.nv.decoding.instruction import Operand

_FLOATS = {"F16": "half", "F32": "float", "F64": "double"}
_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")
_ROUNDINGS = {"FLOOR": "floor", "CEIL": "ceil", "TRUNC": "trunc"}


def _read(w: Writer, operand: Operand, kind: str) -> Value:
    if kind == "F64":
        return w.f64(operand)
    if kind == "F32":
        return w.f32(operand, flush=w.ins.has("FTZ"))
    bits = w.raw(operand)
    if operand.half.startswith("H1"):
        bits = w.code.op("lshr", bits, w.const(16))
    if operand.absolute:
        bits = w.code.op("and", bits, w.const(0x7FFF))
    if operand.negate:
        bits = w.code.op("xor", bits, w.const(0x8000))
    return w.code.cast("bitcast", w.code.resize(bits, "i16"), "half")


def _whole(w: Writer, value: Value) -> Value:
    how = next((one for one in w.ins.modifiers if one in _ROUNDINGS), "")
    return w.code.intrinsic(_ROUNDINGS[how] if how else "rint", value)


def _f2i(w: Writer) -> None:
    code, ins = w.code, w.ins
    rd, source = ins.operands
    to = next((one for one in ins.modifiers if one in _INTEGERS), "S32")
    kind = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    value = _read(w, source, kind)
    value = _whole(w, code.cast("fpext", value, "float") if kind == "F16" else value)
    size = int(to[1:])
    result = f"<{value.lanes} x i{size}>" if value.lanes else f"i{size}"
    name = "fptosi.sat" if to[0] == "S" else "fptoui.sat"
    found = code.intrinsic(name, value, result=result, overload=(result, value.type))
    if not ins.has("NTZ"):
        found = code.select(code.fcmp("uno", value, value), w.const(1 << size - 1, f"i{size}"), found)
    if size == 64:
        w.write64(rd, found)
    else:
        w.write(rd, code.resize(found, "i32", signed=to[0] == "S"))


def _i2f(w: Writer) -> None:
    code, ins = w.code, w.ins
    plain(w)
    rd, source = ins.operands
    kind = next((one for one in ins.modifiers if one in _INTEGERS), "S32")
    to = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    size = int(kind[1:])
    if to == "F16" and size == 64:
        raise NotTranslated(f"{ins.text}: 64 bits to 16")
    bits = w.raw64(source) if size == 64 else w.raw(source)
    if source.half.startswith("B"):
        bits = code.op("lshr", bits, w.const(8 * int(source.half[1])))
    if size < 32:
        bits = code.resize(bits, f"i{size}")
    value = code.cast("sitofp" if kind[0] == "S" else "uitofp", bits, "double" if to == "F16" else _FLOATS[to])
    if to == "F64":
        store_f64(w, rd, value)
    elif to == "F16":
        w.write(rd, code.resize(rounded_half(w, odd_single(w, value)), "i32"))
    else:
        w.write(rd, code.cast("bitcast", value, "i32"))


def _f2f(w: Writer) -> None:
    code, ins = w.code, w.ins
    flush = plain(w)
    rd, source = ins.operands
    to, kind = [one for one in ins.modifiers if one in _FLOATS]
    value = _read(w, source, kind)
    order = list(_FLOATS)
    if to == "F16" and kind == "F64":
        w.write(rd, code.resize(rounded_half(w, odd_single(w, value)), "i32"))
        return
    if to != kind:
        value = code.cast("fpext" if order.index(to) > order.index(kind) else "fptrunc", value, _FLOATS[to])
    if to == "F64":
        store_f64(w, rd, value)
    elif to == "F32":
        store_f32(w, rd, value, flush=flush)
    else:
        bits = code.select(code.fcmp("uno", value, value), w.const(0x7FFF, "i16"), code.cast("bitcast", value, "i16"))
        w.write(rd, code.resize(bits, "i32"))


def _frnd(w: Writer) -> None:
    ins = w.ins
    rd, source = ins.operands
    kind = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    value = _read(w, source, kind)
    value = _whole(w, w.code.cast("fpext", value, "float") if kind == "F16" else value)
    if kind == "F64":
        store_f64(w, rd, value)
    elif kind == "F32":
        store_f32(w, rd, value, flush=ins.has("FTZ"))
    else:
        w.write(rd, w.code.resize(rounded_half(w, value), "i32"))


def _f2fp(w: Writer) -> None:
    """Convert two f32 to a pair."""
    code, ins = w.code, w.ins
    plain(w)
    rd, a, b = ins.operands[:3]
    rounded = rounded_bfloat if ins.has("BF16") else rounded_half
    high, low = (code.resize(rounded(w, w.f32(one)), "i32") for one in (a, b))
    w.write(rd, code.op("or", low, code.op("shl", high, w.const(16))))


RULES: dict[str, Callable[[Writer], None]] = {
    "F2I": _f2i, "I2F": _i2f, "I2FP": _i2f, "F2F": _f2f, "FRND": _frnd, "F2FP": _f2fp,
}  # fmt: skip
