"""Floating point: arithmetic, rounding, the hardware's functions, exact division, conversions.

The kernel descriptor sets MODE: denormals of all types kept, round to nearest even, IEEE mode off, DX10_CLAMP on.
Output modifiers (free multiplication by 2, 4 and 1/2) are never used, since the hardware ignores them while denormals
are kept.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.amd.instructions.code import Instr, Operand, Part, Reg, Signed
from ringup.compiler.amd.select.emitter import Emitter, Place, bank, is_literal, is_scalar
from ringup.compiler.amd.select.exchange import exchange_of
from ringup.compiler.machine.ir import Value
from ringup.errors import CompileError

Rule = Callable[[Emitter, Value, Place], None]

_KINDS = {"f16": "f16", "f32": "b32", "f64": "b64"}
_BINARY = {"fadd": "add", "fmul": "mul", "fmin": "min", "fmax": "max"}


def kind_of(v: Value) -> str:
    """Return the kind of constants of a float type. Raises CompileError for a type without arithmetic."""
    found = _KINDS.get(v.type.element)
    if found is None or v.type.count > 1:
        raise CompileError(
            f"{v.op} of {v.type}: RDNA computes f16, f32 and f64 scalars; convert first, or use `packed`"
        )
    return found


def _binary(e: Emitter, v: Value, d: Place) -> None:
    kind, element = kind_of(v), v.type.element
    name = _BINARY[v.op]
    a, b = v.args
    if bank(d) == "s":
        return e.emit(f"s_{name}_{element}", d, e.scalar(a, kind), e.scalar(b, kind))
    if v.op in ("fmin", "fmax") and element != "f64" and _three(e, v, d, kind):
        return None
    if element == "f32" and _across(e, f"v_{name}_f32", v, d):
        return None
    x, y = e.float(a, kind), e.float(b, kind)
    if is_scalar(y) and not is_scalar(x):
        x, y = y, x
    return e.valu(f"v_{name}_{element}", d, x, y)


def _sub(e: Emitter, v: Value, d: Place) -> None:
    kind, element = kind_of(v), v.type.element
    a, b = v.args
    if bank(d) == "s":
        return e.emit(f"s_sub_{element}", d, e.scalar(a, kind), e.scalar(b, kind))
    x, y = e.float(a, kind), e.float(b, kind)
    # There is no subtraction.
    if element == "f64":
        bits = e.bits.get(b)
        return e.valu("v_add_f64", d, x, _negated(y) if bits is None else e.scalar_pair(bits ^ 1 << 63))
    if is_scalar(y) and not is_scalar(x):
        return e.valu(f"v_subrev_{element}", d, y, x)
    return e.valu(f"v_sub_{element}", d, x, y)


def _negated(operand: Operand) -> Operand:
    if type(operand) is Signed:
        return Signed(operand.source, not operand.neg, operand.abs)
    return -operand if type(operand) is float else Signed(operand, True, False)


def _across(e: Emitter, mnemonic: str, v: Value, d: Place) -> bool:
    """Fuse a value from another lane by DPP: one instruction of a reduction over lanes."""
    for one, other in (v.args, v.args[::-1]):
        if one.op == "shuffle_xor" and isinstance(one.imm, int) and e.inner(one, "shuffle_xor"):
            control = exchange_of(e.row, one.imm)
            if control is None or one.args[0] in e.bits or other in e.bits or e.known.bank(one.args[0]) == "s":
                return False
            source, second = e.place(one.args[0]), e.vector(other)
            e.emit(mnemonic, d, source, second, **control)
            return True
    return False


def _three(e: Emitter, v: Value, d: Place, kind: str) -> bool:
    """Use one instruction for the extreme of three values, or for a value clamped between constants.

    For NaN, v_med3 returns the lower bound, as fmin(fmax(x, low), high) does. The other order would return the upper
    one, so it stays two instructions.
    """
    which, element = v.op[1:], v.type.element
    for one, other in (v.args, v.args[::-1]):
        if e.inner(one, v.op):
            x, y, z = (e.float(arg, kind) for arg in (*one.args, other))
            e.valu(f"v_{which}3_{element}", d, x, y, z)
            return True
        if which == "min" and other in e.bits and e.inner(one, "fmax"):
            inside, low = one.args
            if inside in e.bits:
                inside, low = low, inside
            if low.op == other.op == "const" and low.imm <= other.imm:
                e.valu(f"v_med3_{element}", d, e.float(inside, kind), e.any(low, kind), e.any(other, kind))
                return True
    return False


def _fma(e: Emitter, v: Value, d: Place) -> None:
    kind, element = kind_of(v), v.type.element
    a, b, c = v.args
    if bank(d) == "s":
        x, y, z = (e.scalar(one, kind) for one in v.args)
        made = e.temporary("s")
        e.emit("s_mov_b32", made, z)
        e.emit(f"s_fmac_{element}", made, x, y)
        return e.emit("s_mov_b32", d, made)
    if element == "f32" and _mixed(e, v, d):
        return None
    short = e.row.has(f"v_fmac_{element}") and element != "f64"
    if short:
        # An addend without a later use: its register becomes the sum's.
        e.claim(c, d)
    x, y, z = e.float(a, kind), e.float(b, kind), e.float(c, kind)
    if short:
        if is_scalar(y) and not is_scalar(x):
            x, y = y, x
        if _same(z, d):
            return e.valu(f"v_fmac_{element}", d, x, y)
        plain = Signed not in (type(x), type(y), type(z))
        if plain and is_literal(z) and not is_scalar(y) and not (is_literal(x) and x != z):
            return e.emit(f"v_fmaak_{element}", d, x, y, z)
        if plain and is_literal(x) and not is_scalar(y) and not is_scalar(z):
            return e.emit(f"v_fmamk_{element}", d, y, x, z)
    return e.valu(f"v_fma_{element}", d, x, y, z)


def _same(a: Operand, b: Operand) -> bool:
    return a is b or (type(a) is Part and a == b)


def _mixed(e: Emitter, v: Value, d: Place) -> bool:
    """Fuse conversions of f16 operands, which are exact."""
    halves = [one.op == "fconvert" and one.args[0].type.element == "f16" and e.inner(one, "fconvert") for one in v.args]
    if not any(halves):
        return False
    sources: list[Operand] = []
    selects, wide = [], []
    for one, half in zip(v.args, halves, strict=True):
        upper = 0
        if half:
            of = one.args[0]
            if of.op == "extract" and of not in e.views and of not in e.places and of not in e.bits and e.reachable(of):
                index = of.imm
                sources.append(e.parts(of.args[0])[index // 2])
                upper = 1
            elif of in e.bits:
                sources.append(e.vector(of))
            else:
                sources.append(e.place(of))
        else:
            sources.append(e.float(one, "b32"))
        selects.append(upper)
        wide.append(int(half))
    fitted = e.fit(tuple(sources))
    # Literals are not allowed.
    for i, source in enumerate(fitted):
        if is_literal(source):
            fitted[i] = e.copied([source], "v")
    e.emit("v_fma_mix_f32", d, *fitted, op_sel=tuple(selects), op_sel_hi=tuple(wide))
    return True


_UNARY = {
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rndne", "rcp": "rcp", "rsq": "rsq", "sqrt": "sqrt", "exp2": "exp",
    "log2": "log",
    "sin_turns": "sin", "frexp_mantissa": "frexp_mant",
}  # fmt: skip
_NO_DOUBLE = frozenset(("exp2", "log2", "sin_turns"))


def _unary(e: Emitter, v: Value, d: Place) -> None:
    kind, element = kind_of(v), v.type.element
    if element == "f64" and v.op in _NO_DOUBLE:
        raise CompileError(f"{v.op} of f64: RDNA has no such instruction; compute it by a polynomial before machine IR")
    if bank(d) == "s":
        return e.emit(f"s_{_UNARY[v.op]}_{element}", d, e.scalar(v.args[0], kind))
    return e.valu(f"v_{_UNARY[v.op]}_{element}", d, e.float(v.args[0], kind))


def _sign(e: Emitter, v: Value, d: Place) -> None:
    """Change or clear a sign that no use has fused."""
    negate = v.op == "fneg"
    parts = e.parts(v.args[0])
    to = e.pieces(d)
    bit = 0x8000 if v.type.bits == 16 else 0x80000000
    if v.type.count > 1:
        raise CompileError(f"{v.op} of {v.type}: only scalars; use `packed` with a factor")
    for i, (place, one) in enumerate(zip(to, parts, strict=True)):
        if i + 1 < len(to):
            e.move(place, one)
        elif bank(d) == "s":
            e.emit("s_xor_b32" if negate else "s_and_b32", place, one, bit if negate else bit - 1)
        else:
            e.valu("v_xor_b32" if negate else "v_and_b32", place, bit if negate else bit - 1, one)


def _ldexp(e: Emitter, v: Value, d: Place) -> None:
    kind = kind_of(v)
    exponent = e.any(v.args[1], "b16" if kind == "f16" else "b32")
    return e.valu(f"v_ldexp_{v.type.element}", d, e.float(v.args[0], kind), exponent)


def _exponent(e: Emitter, v: Value, d: Place) -> None:
    (a,) = v.args
    kind = _KINDS[a.type.element]
    if kind != "f16":
        return e.valu(f"v_frexp_exp_i32_{a.type.element}", d, e.float(a, kind))
    narrow = e.temporary()
    e.valu("v_frexp_exp_i16_f16", narrow, e.float(a, kind))
    return e.valu("v_bfe_i32", d, narrow, 0, 16)


def _divide(e: Emitter, v: Value, d: Place) -> None:
    """Divide exactly: a reciprocal, Newton steps on scaled operands, and a fix-up of scaled and special values.

    Source of the use of v_div_scale, v_div_fmas and v_div_fixup: RDNA3 ISA, their descriptions.
    """
    kind = kind_of(v)
    if kind == "f16":
        return _divide_half(e, v, d)
    form = v.type.element
    count = d.count
    n, by = (_plain(e, one, kind) for one in v.args)

    def new() -> Reg:
        return e.temporary("v", count)

    scaled_by, scaled_n = new(), new()
    e.line.append(Instr(f"v_div_scale_{form}", scaled_by, e.temporary("s", e.lanes), *e.fit((by, by, n))))
    minus = Signed(scaled_by, True)
    inverse, error = new(), new()
    e.emit(f"v_rcp_{form}", inverse, scaled_by)
    for _ in range(1 if form == "f32" else 2):
        error = new()
        e.emit(f"v_fma_{form}", error, minus, inverse, 1.0)
        if form == "f32":
            e.emit("v_fmac_f32", inverse, error, inverse)
            continue
        better = new()
        e.emit(f"v_fma_{form}", better, error, inverse, inverse)
        inverse = better
    e.line.append(Instr(f"v_div_scale_{form}", scaled_n, e.vcc, *e.fit((n, by, n))))
    quotient = new()
    e.emit(f"v_mul_{form}", quotient, scaled_n, inverse)
    if form == "f32":
        left = new()
        e.emit("v_fma_f32", left, minus, quotient, scaled_n)
        e.emit("v_fmac_f32", quotient, left, inverse)
    left, joined = new(), new()
    e.emit(f"v_fma_{form}", left, minus, quotient, scaled_n)
    # This reads VCC.
    e.emit(f"v_div_fmas_{form}", joined, left, inverse, quotient)
    return e.valu(f"v_div_fixup_{form}", d, joined, by, n)


def _plain(e: Emitter, value: Value, kind: str) -> Operand:
    """Return a source without sign changes: v_div_scale must have the same sources as v_div_fixup, and it has no
    absolute value.
    """
    found = e.any(value, kind)
    return e.copied([found], "v") if is_literal(found) else found


def _divide_half(e: Emitter, v: Value, d: Place) -> None:
    """Divide in f32 with one correction, then fix special values. The error is far below the distance of an 11-bit
    quotient from a tie.
    """
    n, by = (e.vector(one, "f16") for one in v.args)
    wide_n, wide_by, inverse, near, left, better, half = (e.temporary() for _ in range(7))
    e.emit("v_cvt_f32_f16", wide_n, n)
    e.emit("v_cvt_f32_f16", wide_by, by)
    e.emit("v_rcp_f32", inverse, wide_by)
    e.emit("v_mul_f32", near, wide_n, inverse)
    e.emit("v_fma_f32", left, Signed(wide_by, True), near, wide_n)
    e.emit("v_fma_f32", better, left, inverse, near)
    e.emit("v_cvt_f16_f32", half, better)
    return e.valu("v_div_fixup_f16", d, half, by, n)


_CONVERSIONS = {  # (from, to), or (from, to, sign): mnemonic
    ("f32", "f16"): "v_cvt_f16_f32", ("f16", "f32"): "v_cvt_f32_f16", ("f32", "f64"): "v_cvt_f64_f32", ("f64", "f32"): "v_cvt_f32_f64",
    ("i32", "f32", "s"): "v_cvt_f32_i32", ("i32", "f32", "u"): "v_cvt_f32_u32", ("i32", "f64", "s"): "v_cvt_f64_i32",
    ("i32", "f64", "u"): "v_cvt_f64_u32", ("i16", "f16", "s"): "v_cvt_f16_i16", ("i16", "f16", "u"): "v_cvt_f16_u16",
    ("f32", "i32", "s"): "v_cvt_i32_f32", ("f32", "i32", "u"): "v_cvt_u32_f32", ("f64", "i32", "s"): "v_cvt_i32_f64",
    ("f64", "i32", "u"): "v_cvt_u32_f64",
}  # fmt: skip


def _convert(e: Emitter, v: Value, d: Place) -> None:
    (a,) = v.args
    source = a.type.element
    pair = (source, v.type.element) if v.op == "fconvert" else (source, v.type.element, v.op[-1])
    found = _CONVERSIONS.get(pair)
    if found is None or v.type.count > 1:
        raise CompileError(f"{v.op} from {a.type} to {v.type} has no instruction")
    if bank(d) == "s" and not v.op.startswith("to_int"):
        return e.emit("s" + found[1:], d, e.scalar(a, "f16" if source == "f16" else "b32"))
    if (
        v.op == "to_float_u"
        and a.op == "and"
        and v.type.element == "f32"
        and e.bits.get(a.args[1]) == 0xFF
        and e.inner(a, "and")
    ):
        shifted = a.args[0]
        if shifted.op == "shr_u" and e.bits.get(shifted.args[1]) in (8, 16, 24) and e.inner(shifted, "shr_u"):
            return e.valu(f"v_cvt_f32_ubyte{e.bits[shifted.args[1]] // 8}", d, e.any(shifted.args[0]))
        return e.valu("v_cvt_f32_ubyte0", d, e.any(shifted))
    kind = _KINDS.get(source, "b16" if source == "i16" else "b32")
    return e.valu(found, d, e.float(a, kind) if a.type.is_float else e.any(a, kind))


RULES: dict[str, Rule] = {
    **dict.fromkeys(_BINARY, _binary), "fsub": _sub, "fma": _fma, **dict.fromkeys(_UNARY, _unary), "fneg": _sign, "fabs": _sign,
    "ldexp": _ldexp, "frexp_exponent": _exponent, "div": _divide,
    "to_float_s": _convert, "to_float_u": _convert, "to_int_s": _convert, "to_int_u": _convert, "fconvert": _convert,
}  # fmt: skip
