"""Float instructions on pairs of f16 or bf16 as IR. What they compute is as in `interpreter/halves.py`, which names the
sources.

Sums and products of f16 are computed in f32, those of bf16 in f64. Where that is not exact, results are rounded to odd
before they are rounded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Value, bits
from ringup.silicon.shader.nv.decoding.instruction import PT, Kind
from ringup.silicon.shader.nv.translator.float_rules import accumulate, comparison, plain, without_infinities
from ringup.silicon.shader.nv.translator.writer import NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.decoding.instruction import Operand

NAN = 0x7FFF


def _word(w: Writer, value: Value) -> Value:
    """Return a float's bits."""
    return w.code.cast("bitcast", value, f"i{bits(value.type)}")


def rounded_half(w: Writer, value: Value) -> Value:
    """Return the bits (i16) of an f32 that is exact or rounded to odd."""
    code = w.code
    found = code.cast("bitcast", code.cast("fptrunc", value, "half"), "i16")
    return code.select(code.fcmp("uno", value, value), w.const(NAN, "i16"), found)


def rounded_bfloat(w: Writer, value: Value) -> Value:
    """Return the bits (i16) of an f32 that is exact or rounded to odd, as bf16."""
    code = w.code
    word = _word(w, value)
    odd = code.op("and", code.op("lshr", word, w.const(16)), w.const(1))
    found = code.op("lshr", code.op("add", code.op("add", word, w.const(0x7FFF)), odd), w.const(16))
    return code.select(code.fcmp("uno", value, value), w.const(NAN, "i16"), code.resize(found, "i16"))


def odd_single(w: Writer, value: Value) -> Value:
    """Return an f64 rounded to an odd f32."""
    code = w.code
    near = code.cast("fptrunc", value, "float")
    back = code.cast("fpext", near, "double")
    inexact = code.cast("zext", code.fcmp("one", back, value), "i32")
    away = code.fcmp("ogt", code.intrinsic("fabs", back), code.intrinsic("fabs", value))
    towards = code.op("sub", _word(w, near), code.cast("zext", away, "i32"))
    return code.cast("bitcast", code.op("or", towards, inexact), "float")


def _odd_sum(w: Writer, a: Value, b: Value) -> Value:
    """Return a sum rounded to odd."""
    code = w.code
    total = code.op("fadd", a, b)
    part = code.op("fsub", total, a)
    error = code.op("fadd", code.op("fsub", a, code.op("fsub", total, part)), code.op("fsub", b, part))
    none = code.real(0.0, total.type)
    word = _word(w, total)
    kind = f"i{bits(total.type)}"
    even = code.icmp("eq", code.op("and", word, w.const(1, kind)), w.const(0, kind))
    inexact = code.op("and", code.fcmp("one", error, none), even)
    away = code.op("xor", code.fcmp("ogt", error, none), code.fcmp("ogt", total, none))
    step = code.select(away, w.const(-1, kind), w.const(1, kind))
    return code.cast("bitcast", code.select(inexact, code.op("add", word, step), word), total.element)


def halves(w: Writer, operand: Operand) -> list[Value]:
    """Return both halves of a source: f32 for f16, f64 for bf16."""
    code, is_bfloat = w.code, w.ins.has("BF16_V2")
    word = w.raw(operand)
    if operand.absolute:
        word = code.op("and", word, w.const(0x7FFF_7FFF))
    if operand.negate:
        word = code.op("xor", word, w.const(0x8000_8000))
    found = []
    for shift in (0, 16):
        half = code.resize(code.op("lshr", word, w.const(shift)) if shift else word, "i16")
        if plain(w):
            half = _without_denormals(w, half)
        if is_bfloat:
            wide = code.op("shl", code.resize(half, "i32"), w.const(16))
            found.append(code.cast("fpext", code.cast("bitcast", wide, "float"), "double"))
        else:
            found.append(code.cast("fpext", code.cast("bitcast", half, "half"), "float"))
    if operand.half in ("H0_H0", "H0"):
        return [found[0], found[0]]
    return [found[1], found[1]] if operand.half in ("H1_H1", "H1") else found


def _without_denormals(w: Writer, half: Value) -> Value:
    code = w.code
    exponent = w.const(0x7F80 if w.ins.has("BF16_V2") else 0x7C00, "i16")
    small = code.icmp("eq", code.op("and", half, exponent), w.const(0, "i16"))
    return code.select(small, code.op("and", half, w.const(-0x8000, "i16")), half)


def _write(w: Writer, rd: Operand, values: list[Value]) -> None:
    """Round and write a pair. Values are exact or rounded to odd."""
    code, ins = w.code, w.ins
    found = []
    for value in values:
        none, one = code.real(0.0, value.type), code.real(1.0, value.type)
        if ins.has("RELU"):
            value = code.select(code.fcmp("ole", value, none), none, value)
        if ins.has("SAT"):
            positive = code.select(code.fcmp("olt", value, one), value, one)
            value = code.select(code.fcmp("ogt", value, none), positive, none)
        half = rounded_bfloat(w, odd_single(w, value)) if value.element == "double" else rounded_half(w, value)
        found.append(code.resize(_without_denormals(w, half) if plain(w) else half, "i32"))
    w.write(rd, code.op("or", found[0], code.op("shl", found[1], w.const(16))))


def _sources(w: Writer) -> list[Operand]:
    found = [one for one in w.ins.operands[1:] if one.kind is not Kind.PREDICATE]
    if any(one.kind is Kind.PREDICATE and (one.value != PT or one.invert) for one in w.ins.operands):
        raise NotTranslated(f"{w.ins.text}: a predicate")
    return found


def _pairs(w: Writer) -> None:
    """Add, multiply, or both."""
    code, ins = w.code, w.ins
    if ins.has("F32"):
        raise NotTranslated(f"{ins.text}: results in f32")
    read = [halves(w, one) for one in _sources(w)]
    found = []
    for side in (0, 1):
        values = [one[side] for one in read]
        if ins.name == "HADD2":
            found.append(_odd_sum(w, *values))
            continue
        product = code.op("fmul", *without_infinities(w, values[0], values[1]))
        found.append(_odd_sum(w, product, values[2]) if len(values) > 2 else product)
    _write(w, ins.operands[0], found)


def _hmnmx2(w: Writer) -> None:
    code = w.code
    rd, a, b, least = w.ins.operands
    if w.ins.has("NAN") or w.ins.has("XORSIGN"):
        raise NotTranslated(f"{w.ins.text}: this form")
    first, second = halves(w, a), halves(w, b)
    found = []
    for left, right in zip(first, second, strict=True):
        # -0 is less than +0.
        sign = code.icmp("slt", _word(w, left), w.const(0, f"i{bits(left.type)}"))
        equal = code.op("and", code.fcmp("oeq", left, right), sign)
        less = code.op("or", code.fcmp("olt", left, right), equal)
        chosen = code.select(code.op("xor", less, code.invert(w.condition(least))), left, right)
        chosen = code.select(code.fcmp("uno", left, left), right, chosen)
        found.append(code.select(code.fcmp("uno", right, right), left, chosen))
    _write(w, rd, found)


def _compared(w: Writer, a: Operand, b: Operand) -> list[Value]:
    return [comparison(w, left, right) for left, right in zip(halves(w, a), halves(w, b), strict=True)]


def _hsetp2(w: Writer) -> None:
    code = w.code
    pu, pv, a, b, accumulated = w.ins.operands
    low, high = _compared(w, a, b)
    if w.ins.has("H_AND"):
        low = code.op("and", low, high)
        high = code.invert(low)
    given = w.condition(accumulated)
    w.set_condition(pu, accumulate(w, low, given))
    w.set_condition(pv, accumulate(w, high, given))


def _hset2(w: Writer) -> None:
    code = w.code
    rd, a, b, accumulated = w.ins.operands
    given = w.condition(accumulated)
    true = 0x3C00 if w.ins.has("BF") else 0xFFFF
    found = [accumulate(w, one, given) for one in _compared(w, a, b)]
    low, high = (code.select(one, w.const(true << at), w.const(0)) for one, at in zip(found, (0, 16), strict=True))
    w.write(rd, code.op("or", low, high))


RULES: dict[str, Callable[[Writer], None]] = {
    **dict.fromkeys(("HADD2", "HMUL2", "HFMA2"), _pairs), "HMNMX2": _hmnmx2, "HSETP2": _hsetp2, "HSET2": _hset2,
}  # fmt: skip
