"""Float instructions as IR: f32 and f64, rounded to nearest.

What they compute is as in `interpreter/floats.py`, which names the sources. Other rounding modes are the interpreter's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.host.emitter import Value
from ringup.silicon.shader.nv.translator.integer_rules import combined
from ringup.silicon.shader.nv.translator.writer import NotTranslated, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.nv.decoding.instruction import Operand

F64_NAN = 0xFFF8_0000_0000_0000  # as `values/rounding.py` has it
COMPARISONS = {
    "LT": "olt", "EQ": "oeq", "LE": "ole", "GT": "ogt", "GE": "oge", "NE": "one", "LTU": "ult", "EQU": "ueq", "LEU": "ule",
    "GTU": "ugt", "GEU": "uge", "NEU": "une", "NUM": "ord", "NAN": "uno",
}  # fmt: skip


def plain(w: Writer) -> bool:
    """Return whether denormals are flushed; raise for what is not translated."""
    for one in ("RM", "RP", "RZ", "D2", "D4"):
        if w.ins.has(one):
            raise NotTranslated(f"{w.ins.text}: .{one}")
    return w.ins.has("FTZ") or w.ins.has("FMZ")


def without_infinities(w: Writer, left: Value, right: Value) -> tuple[Value, Value]:
    """Return factors for `.FMZ`: both are zero if either is."""
    if not w.ins.has("FMZ"):
        return left, right
    code, none = w.code, w.code.real(0.0, left.type)
    is_none = code.op("or", code.fcmp("oeq", left, none), code.fcmp("oeq", right, none))
    return code.select(is_none, none, left), code.select(is_none, none, right)


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
    flush = plain(w)
    store_f32(w, rd, w.code.op("fadd", w.f32(a, flush=flush), w.f32(b, flush=flush)), flush=flush)


def _fmul(w: Writer) -> None:
    rd, a, b = w.ins.operands
    flush = plain(w)
    left, right = without_infinities(w, w.f32(a, flush=flush), w.f32(b, flush=flush))
    store_f32(w, rd, w.code.op("fmul", left, right), flush=flush)


def _ffma(w: Writer) -> None:
    rd, *sources = w.ins.operands
    flush = plain(w)
    a, b, c = (w.f32(one, flush=flush) for one in sources)
    store_f32(w, rd, w.code.intrinsic("fma", *without_infinities(w, a, b), c), flush=flush)


def _ordered(w: Writer, bits: Value) -> Value:
    """Return a signed integer that grows with a float: -inf, -0, +0, +inf."""
    code = w.code
    flip = code.op("lshr", code.op("ashr", bits, w.const(31)), w.const(1))
    return code.op("xor", bits, flip)


def _fmnmx(w: Writer) -> None:
    code = w.code
    rd, a, b, least = w.ins.operands
    if w.ins.has("NAN") or w.ins.has("XORSIGN"):
        raise NotTranslated(f"{w.ins.text}: this form")
    flush = plain(w)
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


def comparison(w: Writer, left: Value, right: Value) -> Value:
    """Return what the instruction's comparison says of two floats."""
    for one in w.ins.modifiers:
        if one in COMPARISONS:
            return w.code.fcmp(COMPARISONS[one], left, right)
    raise NotTranslated(f"{w.ins.text}: this comparison")


def accumulate(w: Writer, found: Value, given: Value) -> Value:
    """Combine a comparison with a predicate."""
    return w.code.op("or" if w.ins.has("OR") else "xor" if w.ins.has("XOR") else "and", found, given)


def _fsetp(w: Writer) -> None:
    _, _, a, b, accumulated = w.ins.operands
    flush = plain(w)
    combined(w, comparison(w, w.f32(a, flush=flush), w.f32(b, flush=flush)), accumulated)


def _dsetp(w: Writer) -> None:
    _, _, a, b, accumulated = w.ins.operands
    combined(w, comparison(w, w.f64(a), w.f64(b)), accumulated)


def _fset(w: Writer) -> None:
    rd, a, b, accumulated = w.ins.operands
    flush = plain(w)
    found = comparison(w, w.f32(a, flush=flush), w.f32(b, flush=flush))
    found = accumulate(w, found, w.condition(accumulated))
    w.write(rd, w.code.select(found, w.const(0x3F80_0000 if w.ins.has("BF") else -1), w.const(0)))


def _mufu(w: Writer) -> None:
    """Compute in f64 and round once, as the interpreter does."""
    code = w.code
    rd, source = w.ins.operands
    how = w.ins.modifiers[0]
    if len(w.ins.modifiers) > 1:
        raise NotTranslated(f"{w.ins.text}: this form")
    if how.endswith("64H"):
        _upper_half(w, rd, source, how)
        return
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


def _upper_half(w: Writer, rd: Operand, source: Operand, how: str) -> None:
    """Compute a reciprocal of the upper half of an f64."""
    code = w.code
    if source.absolute or source.negate:
        raise NotTranslated(f"{w.ins.text}: signs of its source")
    bits = code.op("shl", code.resize(w.raw(source), "i64"), w.const(32, "i64"))
    value = code.cast("bitcast", bits, "double")
    if how.startswith("RSQ"):
        value = code.intrinsic("sqrt", value)
    found = code.cast("bitcast", code.op("fdiv", code.real(1.0, value.type), value), "i64")
    w.write(rd, code.resize(code.op("lshr", found, w.const(32, "i64")), "i32"))


def _fchk(w: Writer) -> None:
    code = w.code
    pu, a, b = w.ins.operands
    top, bottom = (code.op("and", code.op("lshr", w.raw(one), w.const(23)), w.const(255)) for one in (a, b))
    gap = code.op("sub", top, bottom)
    slow = code.icmp("sle", bottom, w.const(1))
    for how, value, bound in (
        ("sge", bottom, 253), ("eq", top, 255), ("sle", top, 24), ("sge", gap, 126), ("sle", gap, -125),
    ):  # fmt: skip
        slow = code.op("or", slow, code.icmp(how, value, w.const(bound)))
    w.set_condition(pu, slow)


def store_f64(w: Writer, rd: Operand, value: Value) -> None:
    """Write an f64 result; there is one NaN."""
    bits = w.code.cast("bitcast", value, "i64")
    w.write64(rd, w.code.select(w.code.fcmp("uno", value, value), w.const(F64_NAN, "i64"), bits))


def _double(name: str) -> Callable[[Writer], None]:
    def rule(w: Writer) -> None:
        plain(w)
        rd, *sources = w.ins.operands
        values = [w.f64(one) for one in sources]
        store_f64(w, rd, w.code.intrinsic("fma", *values) if name == "fma" else w.code.op(name, *values))

    return rule


RULES: dict[str, Callable[[Writer], None]] = {
    "FADD": _fadd, "FMUL": _fmul, "FFMA": _ffma, "FMNMX": _fmnmx, "FSEL": _fsel, "FSETP": _fsetp, "FSET": _fset,
    "MUFU": _mufu, "DADD": _double("fadd"), "DMUL": _double("fmul"), "DFMA": _double("fma"), "DSETP": _dsetp,
    "FCHK": _fchk,
}  # fmt: skip
