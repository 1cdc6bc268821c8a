"""Float instructions and conversions as IR: f32 and f64, rounded to nearest.

What they compute is as in `interpreter/floats.py` and `interpreter/conversions.py`, which name the sources. Other
rounding modes and sums and products of f16 are the interpreter's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Value
from ringup.silicon.shader.nv.translator.integer_rules import combined
from ringup.silicon.shader.nv.translator.writer import NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.decoding.instruction import Operand

_FLOATS = {"F16": "half", "F32": "float", "F64": "double"}
_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")
_ROUNDINGS = {"FLOOR": "floor", "CEIL": "ceil", "TRUNC": "trunc"}
COMPARISONS = {
    "LT": "olt", "EQ": "oeq", "LE": "ole", "GT": "ogt", "GE": "oge", "NE": "one", "LTU": "ult", "EQU": "ueq", "LEU": "ule",
    "GTU": "ugt", "GEU": "uge", "NEU": "une", "NUM": "ord", "NAN": "uno",
}  # fmt: skip


def _plain(w: Writer) -> bool:
    """Return whether denormals are flushed; raise for what is not translated."""
    for one in ("RM", "RP", "RZ", "FMZ"):
        if w.ins.has(one):
            raise NotTranslated(f"{w.ins.text}: .{one}")
    return w.ins.has("FTZ")


def store_f32(w: Writer, rd: Operand, value: Value, *, flush: bool) -> None:
    """Write an f32 result: saturated, its NaN made the one NaN, its denormals flushed."""
    code = w.code
    bits = code.cast("bitcast", value, "i32")
    if w.ins.has("SAT"):
        one, none = w.code.real(1.0, value.type), w.code.real(0.0, value.type)
        positive = code.fcmp("ogt", value, none)
        value = code.select(positive, code.select(code.fcmp("olt", value, one), value, one), none)
        bits = code.cast("bitcast", value, "i32")
    else:
        bits = code.select(code.fcmp("uno", value, value), w.const(0x7FFF_FFFF), bits)
    w.write(rd, w.without_denormals(bits) if flush else bits)


def _fadd(w: Writer) -> None:
    rd, a, b = w.ins.operands
    flush = _plain(w)
    store_f32(w, rd, w.code.op("fadd", w.f32(a, flush=flush), w.f32(b, flush=flush)), flush=flush)


def _fmul(w: Writer) -> None:
    rd, a, b = w.ins.operands
    flush = _plain(w)
    store_f32(w, rd, w.code.op("fmul", w.f32(a, flush=flush), w.f32(b, flush=flush)), flush=flush)


def _ffma(w: Writer) -> None:
    rd, *sources = w.ins.operands
    flush = _plain(w)
    store_f32(w, rd, w.code.intrinsic("fma", *(w.f32(one, flush=flush) for one in sources)), flush=flush)


def _ordered(w: Writer, bits: Value) -> Value:
    """Return a signed integer that grows with a float: -inf, -0, +0, +inf."""
    code = w.code
    flip = code.op("lshr", code.op("ashr", bits, w.const(31)), w.const(1))
    return code.op("xor", bits, flip)


def _fmnmx(w: Writer) -> None:
    code = w.code
    rd, a, b, least = w.ins.operands
    flush = _plain(w)
    values = [w.f32(one, flush=flush) for one in (a, b)]
    bits = [code.cast("bitcast", one, "i32") for one in values]
    keys = [_ordered(w, one) for one in bits]
    less = code.op("xor", code.icmp("slt", *keys), code.invert(w.condition(least)))
    # Equal keys have equal bits.
    found = code.select(less, bits[0], bits[1])
    found = code.select(code.fcmp("uno", values[0], values[0]), bits[1], found)
    found = code.select(code.fcmp("uno", values[1], values[1]), bits[0], found)
    store_f32(w, rd, code.cast("bitcast", found, "float"), flush=flush)


def _fsel(w: Writer) -> None:
    code = w.code
    rd, a, b, choice = w.ins.operands
    left, right = (code.cast("bitcast", w.f32(one), "i32") for one in (a, b))
    found = code.select(w.condition(choice), left, right)
    w.write(rd, w.without_denormals(found) if w.ins.has("FTZ") else found)


def _comparison(w: Writer, left: Value, right: Value) -> Value:
    for one in w.ins.modifiers:
        if one in COMPARISONS:
            return w.code.fcmp(COMPARISONS[one], left, right)
    raise NotTranslated(f"{w.ins.text}: this comparison")


def _fsetp(w: Writer) -> None:
    _, _, a, b, accumulated = w.ins.operands
    flush = _plain(w)
    combined(w, _comparison(w, w.f32(a, flush=flush), w.f32(b, flush=flush)), accumulated)


def _dsetp(w: Writer) -> None:
    _, _, a, b, accumulated = w.ins.operands
    combined(w, _comparison(w, w.f64(a), w.f64(b)), accumulated)


def _fset(w: Writer) -> None:
    rd, a, b, accumulated = w.ins.operands
    flush = _plain(w)
    found = w.code.op("and", _comparison(w, w.f32(a, flush=flush), w.f32(b, flush=flush)), w.condition(accumulated))
    w.write(rd, w.code.select(found, w.const(0x3F80_0000), w.const(0)))


def _mufu(w: Writer) -> None:
    """Compute in f64 and round once, as the interpreter does."""
    code = w.code
    rd, source = w.ins.operands
    how = w.ins.modifiers[0]
    if len(w.ins.modifiers) > 1 or how.endswith("64H"):
        raise NotTranslated(f"{w.ins.text}: this form")
    value = code.cast("fpext", w.f32(source, flush=True), "double")
    one = code.real(1.0, value.type)
    if how in ("SIN", "COS"):
        turn = code.op("fsub", value, code.intrinsic("floor", value))
        found = code.intrinsic(how.lower(), code.op("fmul", turn, code.real(6.283185307179586, value.type)))
    elif how == "RCP":
        found = code.op("fdiv", one, value)
    elif how in ("RSQ", "SQRT"):
        found = code.intrinsic("sqrt", value)
        found = code.op("fdiv", one, found) if how == "RSQ" else found
    elif how in ("EX2", "LG2"):
        found = code.intrinsic("exp2" if how == "EX2" else "log2", value)
    else:
        raise NotTranslated(f"{w.ins.text}: this function")
    store_f32(w, rd, code.cast("fptrunc", found, "float"), flush=True)


def _store_f64(w: Writer, rd: Operand, value: Value) -> None:
    w.write64(rd, w.code.cast("bitcast", value, "i64"))


def _double(name: str) -> Callable[[Writer], None]:
    def rule(w: Writer) -> None:
        _plain(w)
        rd, *sources = w.ins.operands
        values = [w.f64(one) for one in sources]
        _store_f64(w, rd, w.code.intrinsic("fma", *values) if name == "fma" else w.code.op(name, *values))

    return rule


# conversions ----------------------------------------------------------------------------------------------------------


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
    if kind == "F16":
        raise NotTranslated(f"{ins.text}: from f16")
    value = _whole(w, _read(w, source, kind))
    size = int(to[1:])
    result = f"<{value.lanes} x i{size}>" if value.lanes else f"i{size}"
    name = "fptosi.sat" if to[0] == "S" else "fptoui.sat"
    found = code.intrinsic(name, value, result=result, overload=(result, value.type))
    if size == 64:
        w.write64(rd, found)
    else:
        w.write(rd, code.resize(found, "i32", signed=to[0] == "S"))


def _i2f(w: Writer) -> None:
    code, ins = w.code, w.ins
    _plain(w)
    rd, source = ins.operands
    kind = next((one for one in ins.modifiers if one in _INTEGERS), "S32")
    to = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    size = int(kind[1:])
    if to == "F16" or size < 32:
        raise NotTranslated(f"{ins.text}: this conversion")
    bits = w.raw64(source) if size == 64 else w.u32(source)
    value = code.cast("sitofp" if kind[0] == "S" else "uitofp", bits, _FLOATS[to])
    if to == "F64":
        _store_f64(w, rd, value)
    else:
        w.write(rd, code.cast("bitcast", value, "i32"))


def _f2f(w: Writer) -> None:
    code, ins = w.code, w.ins
    flush = _plain(w)
    rd, source = ins.operands
    to, kind = [one for one in ins.modifiers if one in _FLOATS]
    value = _read(w, source, kind)
    order = list(_FLOATS)
    if {to, kind} == {"F16", "F64"}:
        raise NotTranslated(f"{ins.text}: between f16 and f64")
    if to != kind:
        value = code.cast("fpext" if order.index(to) > order.index(kind) else "fptrunc", value, _FLOATS[to])
    if to == "F64":
        _store_f64(w, rd, value)
    elif to == "F32":
        store_f32(w, rd, value, flush=flush)
    else:
        bits = code.select(code.fcmp("uno", value, value), w.const(0x7FFF, "i16"), code.cast("bitcast", value, "i16"))
        w.write(rd, code.resize(bits, "i32"))


def _frnd(w: Writer) -> None:
    ins = w.ins
    rd, source = ins.operands
    kind = next((one for one in ins.modifiers if one in _FLOATS), "F32")
    value = _whole(w, _read(w, source, kind))
    if kind == "F64":
        _store_f64(w, rd, value)
    elif kind == "F32":
        store_f32(w, rd, value, flush=ins.has("FTZ"))
    else:
        raise NotTranslated(f"{ins.text}: f16")


RULES: dict[str, Callable[[Writer], None]] = {
    "FADD": _fadd, "FMUL": _fmul, "FFMA": _ffma, "FMNMX": _fmnmx, "FSEL": _fsel, "FSETP": _fsetp, "FSET": _fset,
    "MUFU": _mufu, "DADD": _double("fadd"), "DMUL": _double("fmul"), "DFMA": _double("fma"), "DSETP": _dsetp,
    "F2I": _f2i, "I2F": _i2f, "I2FP": _i2f,
    "F2F": _f2f, "FRND": _frnd,
}  # fmt: skip
