"""Integers: sums, products, shifts, logic, extrema, widths. The SALU computes values in SGPRs, the VALU all others."""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.amd.instructions.code import Operand
from ringup.compiler.amd.select.emitter import Emitter, Place, bank, is_scalar, part
from ringup.compiler.machine.ir import Value
from ringup.errors import CompileError

Rule = Callable[[Emitter, Value, Place], None]


def _commuted(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Return the operands with one that is not a VGPR first, as the short encodings require."""
    return (b, a) if is_scalar(b) and not is_scalar(a) else (a, b)


def _add(e: Emitter, v: Value, d: Place) -> None:
    a, b = v.args
    bits = v.type.bits
    if bits == 64:
        return _add_long(e, v, d, "add")
    if bank(d) == "s":
        return e.emit("s_add_i32", d, e.scalar(a), e.scalar(b))
    if bits == 16:
        return e.valu("v_add_nc_u16", d, e.any(a, "b16"), e.any(b, "b16"))
    for one, other in ((a, b), (b, a)):
        op = one.op
        fused = _ADD_FUSED.get(op)
        if fused is not None and e.inner(one, op):
            if op == "bit_count":
                return e.valu(fused, d, e.any(one.args[0]), e.any(other))
            if op == "mul":
                if e.top(one.args[0]) >> 24 or e.top(one.args[1]) >> 24:
                    continue
            elif op == "shl" and one.args[1] not in e.bits:
                continue
            return e.valu(fused, d, e.any(one.args[0]), e.any(one.args[1]), e.any(other))
    return e.valu("v_add_nc_u32", d, *_commuted(e.any(a), e.any(b)))


_ADD_FUSED = {
    "shl": "v_lshl_add_u32",
    "add": "v_add3_u32",
    "mul": "v_mad_u32_u24",
    "xor": "v_xad_u32",
    "bit_count": "v_bcnt_u32_b32",
}


def _add_long(e: Emitter, v: Value, d: Place, name: str) -> None:
    """Add or subtract in halves, with a carry from the lower to the upper one."""
    low, high = e.pieces(d)
    scalar = bank(d) == "s"
    (a_low, a_high), (b_low, b_high) = (_halves(e, one, scalar) for one in v.args)
    if scalar:
        first, second = ("s_add_u32", "s_addc_u32") if name == "add" else ("s_sub_u32", "s_subb_u32")
        e.emit(first, low, a_low, b_low)
        return e.emit(second, high, a_high, b_high)
    carry = e.vcc
    e.emit(f"v_{name}_co_u32", low, carry, *e.fit((a_low, b_low)))
    return e.emit(f"v_{name}_co_ci_u32", high, carry, *e.fit((a_high, b_high), 1), carry)


def _halves(e: Emitter, value: Value, scalar: bool) -> list[Operand]:
    """Return the halves of a 64-bit operand. The upper one of a number that was zero-extended from 32 bits is 0."""
    if value.op == "zext" and value not in e.bits and value.args[0].type.bits == 32 and e.reachable(value):
        return [e.scalar(value.args[0]) if scalar else e.any(value.args[0]), 0]
    if not scalar or value in e.bits:
        return e.parts(value)
    return list(e.pieces(e.scalar_register(value)))


def _sub(e: Emitter, v: Value, d: Place) -> None:
    a, b = v.args
    bits = v.type.bits
    if bits == 64:
        return _add_long(e, v, d, "sub")
    if bank(d) == "s":
        return e.emit("s_sub_i32", d, e.scalar(a), e.scalar(b))
    if bits == 16:
        return e.valu("v_sub_nc_u16", d, e.any(a, "b16"), e.any(b, "b16"))
    x, y = e.any(a), e.any(b)
    if is_scalar(y) and not is_scalar(x):
        return e.valu("v_subrev_nc_u32", d, y, x)
    return e.valu("v_sub_nc_u32", d, x, y)


def _mul(e: Emitter, v: Value, d: Place) -> None:
    a, b = v.args
    if bank(d) == "s":
        return e.emit("s_mul_i32", d, e.scalar(a), e.scalar(b))
    if v.type.bits == 16:
        return e.valu("v_mul_lo_u16", d, e.any(a, "b16"), e.any(b, "b16"))
    if not (e.top(a) >> 24 or e.top(b) >> 24):
        # QUIRK: full rate; v_mul_lo_u32 has a quarter of it.
        return e.valu("v_mul_u32_u24", d, *_commuted(e.any(a), e.any(b)))
    return e.valu("v_mul_lo_u32", d, e.any(a), e.any(b))


def _mul_high(e: Emitter, v: Value, d: Place) -> None:
    kind = "u32" if v.op == "mul_hi_u" else "i32"
    if bank(d) == "s":
        return e.emit(f"s_mul_hi_{kind}", d, e.scalar(v.args[0]), e.scalar(v.args[1]))
    return e.valu(f"v_mul_hi_{kind}", d, e.any(v.args[0]), e.any(v.args[1]))


def _mad(e: Emitter, v: Value, d: Place) -> None:
    # `legalize` leaves only those of 24 bits.
    a, b, c = v.args
    e.valu("v_mad_u32_u24", d, e.any(a), e.any(b), e.any(c))


def _mad_wide(e: Emitter, v: Value, d: Place) -> None:
    a, b, c = v.args
    if bank(d) == "v":
        addend = e.any(c, "b64")
        fitted = e.fit((e.any(a), e.any(b), addend))
        return e.emit("v_mad_u64_u32", d, e.vcc, *fitted)
    x, y = e.scalar(a), e.scalar(b)
    low, high = e.pieces(d)
    if e.bits.get(c) == 0:
        upper = e.temporary("s")
        e.emit("s_mul_hi_u32", upper, x, y)
        e.emit("s_mul_i32", low, x, y)
        return e.emit("s_mov_b32", high, upper)
    c_low, c_high = e.pieces(e.scalar_register(c)) if c not in e.bits else e.parts(c)
    lower, upper = e.temporary("s"), e.temporary("s")
    e.emit("s_mul_i32", lower, x, y)
    e.emit("s_mul_hi_u32", upper, x, y)
    e.emit("s_add_u32", low, lower, c_low)
    return e.emit("s_addc_u32", high, upper, c_high)


def _logic(e: Emitter, v: Value, d: Place) -> None:
    op, (a, b) = v.op, v.args
    if v.type.element == "i1":
        return _mask_logic(e, v, d)
    bits = v.type.bits * v.type.count
    if bank(d) == "s":
        if bits == 64:
            return e.emit(f"s_{op}_b64", d, e.scalar(a, "b64"), e.scalar(b, "b64"))
        return e.emit(f"s_{op}_b32", d, e.scalar(a), e.scalar(b))
    if bits > 32:
        for to, x, y in zip(e.pieces(d), e.parts(a), e.parts(b), strict=True):
            e.valu(f"v_{op}_b32", to, *_commuted(x, y))
        return None
    if bits == 32:
        for one, other in ((a, b), (b, a)):
            if op == "and" and _bitfield(e, one, other, d):
                return None
            fused = _LOGIC_FUSED.get((op, one.op))
            if fused is not None and e.row.has(fused) and e.inner(one, one.op):
                return e.valu(fused, d, e.any(one.args[0]), e.any(one.args[1]), e.any(other))
    return e.valu(f"v_{op}_b32", d, *_commuted(e.any(a), e.any(b)))


_LOGIC_FUSED = {
    ("or", "shl"): "v_lshl_or_b32", ("or", "and"): "v_and_or_b32", ("or", "or"): "v_or3_b32", ("xor", "xor"): "v_xor3_b32",
}  # fmt: skip


def _bitfield(e: Emitter, shifted: Value, mask: Value, d: Place) -> bool:
    """Use one instruction for `x >> n & ones`."""
    ones = e.bits.get(mask)
    if ones is None or ones & ones + 1 or not ones or not e.inner(shifted, "shr_u") or shifted.args[1] not in e.bits:
        return False
    e.valu("v_bfe_u32", d, e.any(shifted.args[0]), e.any(shifted.args[1]), ones.bit_length())
    return True


def _mask_logic(e: Emitter, v: Value, d: Place) -> None:
    pair = nan_pair(e, v)
    if pair is not None:
        name, x, y = nan_test(e, *pair)
        return e.emit(f"v_cmp_{name}", d, x, y)
    a, b = (mask(e, one) for one in v.args)
    return e.emit(f"s_{v.op}_{e.b}", d, a, b)


def nan_pair(e: Emitter, v: Value) -> tuple[str, Value, Value] | None:
    """Return (relation, a, b) if one comparison replaces two that are emitted at this use: whether either value is NaN,
    or neither.
    """
    found = _NAN_TESTS.get(v.op)
    if found is None or v.uniform:
        return None
    for one in v.args:
        if one.op != found[0] or one.args[0] is not one.args[1] or one.uniform or not e.inner_condition(one):
            return None
    a, b = (one.args[0] for one in v.args)
    return (found[1], a, b) if a.type == b.type and v.args[0] is not v.args[1] else None


def nan_test(e: Emitter, relation: str, a: Value, b: Value) -> tuple[str, Operand, Operand]:
    """Return (relation and type, a, b) of that comparison."""
    bits = a.type.bits
    kind = {16: "f16", 32: "b32", 64: "b64"}[bits]
    x, y = e.fit(_commuted(e.float(a, kind), e.float(b, kind)))
    return f"{relation}_f{bits}", x, y


_NAN_TESTS = {"or": ("fne", "u"), "and": ("feq", "o")}


def mask(e: Emitter, condition: Value) -> Operand:
    """Return a condition as a mask of lanes. A uniform constant is all ones or all zeros."""
    bits = e.bits.get(condition)
    return e.place(condition) if bits is None else -1 if bits & 1 else 0


def _not(e: Emitter, v: Value, d: Place) -> None:
    (a,) = v.args
    if v.type.element == "i1":
        return e.emit(f"s_not_{e.b}", d, mask(e, a))
    if bank(d) == "s":
        bits = v.type.bits
        return e.emit("s_not_b64" if bits == 64 else "s_not_b32", d, e.scalar(a, "b64" if bits == 64 else "b32"))
    for to, x in zip(e.pieces(d), e.parts(a), strict=True):
        e.valu("v_not_b32", to, x)
    return None


# (operation, bits): the SALU's instruction, and the VALU's, which has the amount first.
_SHIFTS = {
    ("shl", 16): ("s_lshl_b32", "v_lshlrev_b16"), ("shl", 32): ("s_lshl_b32", "v_lshlrev_b32"), ("shl", 64): ("s_lshl_b64", "v_lshlrev_b64"),
    ("shr_u", 16): ("s_lshr_b32", "v_lshrrev_b16"), ("shr_u", 32): ("s_lshr_b32", "v_lshrrev_b32"), ("shr_u", 64): ("s_lshr_b64",
    "v_lshrrev_b64"),
    ("shr_s", 16): ("s_ashr_i32", "v_ashrrev_i16"), ("shr_s", 32): ("s_ashr_i32", "v_ashrrev_i32"), ("shr_s", 64): ("s_ashr_i64",
    "v_ashrrev_i64"),
}  # fmt: skip


def _shift(e: Emitter, v: Value, d: Place) -> None:
    a, amount = v.args
    bits = v.type.bits
    scalar, vector = _SHIFTS[v.op, bits]
    if bank(d) == "s":
        count = e.scalar(amount)
        of = e.scalar(a, "b64" if bits == 64 else "b32")
        if bits == 16 and v.op != "shl":
            wide = e.temporary("s")
            widen_scalar(e, wide, of, 16, v.op == "shr_s")
            of = wide
        return e.emit(scalar, d, of, count)
    if bits == 64:
        # QUIRK: 64-bit shifts read one scalar. Source: LLVM SIInstrInfo.
        return e.valu(vector, d, e.any(amount), e.any(a, "b64"), limit=1)
    if bits == 16:
        return e.valu(vector, d, e.any(amount, "b16"), e.any(a, "b16"))
    if v.op == "shl":
        if e.inner(a, "add"):
            return e.valu("v_add_lshl_u32", d, e.any(a.args[0]), e.any(a.args[1]), e.any(amount))
        if (
            a.op in ("zext", "sext")
            and a not in e.bits
            and a.args[0].type.bits == 16
            and e.bits.get(amount, 0) >= 16
            and e.reachable(a)
        ):
            # The upper half is shifted out.
            return e.valu(vector, d, e.any(amount), e.any(a.args[0]))
    return e.valu(vector, d, e.any(amount), e.any(a))


def widen_scalar(e: Emitter, d: Place, source: Operand, bits: int, signed: bool) -> None:
    """Extend a narrow number in an SGPR to 32 bits."""
    if signed:
        e.emit("s_sext_i32_i16" if bits == 16 else "s_sext_i32_i8", d, source)
    else:
        e.emit("s_and_b32", d, source, (1 << bits) - 1)


def _extreme(e: Emitter, v: Value, d: Place) -> None:
    which, sign = v.op.split("_")
    a, b = v.args
    kind = "i" if sign == "s" else "u"
    if bank(d) == "s":
        x, y = e.scalar(a), e.scalar(b)
        if v.type.bits == 16:
            wide = [e.temporary("s"), e.temporary("s")]
            for to, of in zip(wide, (x, y), strict=True):
                widen_scalar(e, to, of, 16, sign == "s")
            x, y = wide
        return e.emit(f"s_{which}_{kind}32", d, x, y)
    if v.type.bits == 16:
        return e.valu(f"v_{which}_{kind}16", d, e.any(a, "b16"), e.any(b, "b16"))
    for one, other in ((a, b), (b, a)):
        if e.inner(one, v.op):
            return e.valu(f"v_{which}3_{kind}32", d, e.any(one.args[0]), e.any(one.args[1]), e.any(other))
        if _median(e, v, one, other, d, kind):
            return None
    return e.valu(f"v_{which}_{kind}32", d, *_commuted(e.any(a), e.any(b)))


def _median(e: Emitter, v: Value, inside: Value, bound: Value, d: Place, kind: str) -> bool:
    """Use one instruction, the median of three, for a value clamped between constants."""
    other = v.op.replace("min", "max") if v.op.startswith("min") else v.op.replace("max", "min")
    if bound not in e.bits or not e.inner(inside, other):
        return False
    x, y = inside.args
    if x in e.bits:
        x, y = y, x
    if y not in e.bits:
        return False
    first, second = e.bits[y], e.bits[bound]
    low, high = (first, second) if v.op.startswith("min") else (second, first)
    if kind == "i":
        low, high = (one - (1 << 32) if one >> 31 else one for one in (low, high))
    if low > high:
        return False
    e.valu(f"v_med3_{kind}32", d, e.any(x), e.any(y), e.any(bound))
    return True


def _bit_count(e: Emitter, v: Value, d: Place) -> None:
    if bank(d) == "s":
        return e.emit("s_bcnt1_i32_b32", d, e.scalar(v.args[0]))
    return e.valu("v_bcnt_u32_b32", d, e.any(v.args[0]), 0)


def _leading_zeros(e: Emitter, v: Value, d: Place) -> None:
    """Count leading zeros. The instructions return -1 for 0; read as unsigned, that is above 32."""
    where = bank(d)
    made = e.temporary(where)
    if where == "s":
        e.emit("s_clz_i32_u32", made, e.scalar(v.args[0]))
        return e.emit("s_min_u32", d, made, 32)
    e.valu("v_clz_i32_u32", made, e.any(v.args[0]))
    return e.valu("v_min_u32", d, 32, made)


def _widen(e: Emitter, v: Value, d: Place) -> None:
    """Extend to 16, 32 or 64 bits. A condition becomes 0 or 1."""
    (a,) = v.args
    signed = v.op == "sext"
    if a.type.element == "i1":
        return _number_of(e, v, a, d)
    low = part(d, 0, 1)
    source = a.type.bits
    where = bank(d)
    if source == 32:
        x = e.scalar(a) if where == "s" else e.any(a)
        e.move(low, x)
        x = low
    elif where == "s":
        widen_scalar(e, low, e.scalar(a), source, signed)
    elif _inline_widen(e, a, low, source, signed):
        pass
    elif signed:
        e.valu("v_bfe_i32", low, e.any(a), 0, source)
    elif source == 16:
        e.valu("v_and_b32", low, 0xFFFF, e.any(a))
    else:
        e.valu("v_and_b32", low, 0xFF, e.any(a))
    if v.type.bits == 64:
        high = part(d, 1, 1)
        if not signed:
            e.move(high, 0)
        elif where == "s":
            e.emit("s_ashr_i32", high, low, 31)
        else:
            e.valu("v_ashrrev_i32", high, 31, low)
    return None


def _inline_widen(e: Emitter, a: Value, d: Place, bits: int, signed: bool) -> bool:
    """Extend an element from the middle of a dword with one instruction."""
    if a.op != "extract" or a in e.views or a in e.places or a in e.bits or not e.reachable(a):
        return False
    first = a.imm * bits
    of = e.parts(a.args[0])[first // 32]
    if bank(of) == "s" and not isinstance(of, int | float):
        return False
    e.valu("v_bfe_i32" if signed else "v_bfe_u32", d, of, first % 32, bits)
    return True


def _number_of(e: Emitter, v: Value, condition: Value, d: Place) -> None:
    from ringup.compiler.amd.select.conditions import choose, to_scc

    low = part(d, 0, 1)
    one = -1 if v.op == "sext" else 1
    if bank(d) == "s":
        true = to_scc(e, condition)
        e.emit("s_cselect_b32", low, *((one, 0) if true else (0, one)))
    else:
        choose(e, condition, [(low, one, 0)])
    if v.type.bits == 64:
        e.move(part(d, 1, 1), low if one < 0 else 0)


def _truncate(e: Emitter, v: Value, d: Place) -> None:
    """Truncate to a condition: the lowest bit. Other truncations need no instruction."""
    (a,) = v.args
    if v.type.element != "i1":
        raise CompileError(f"{v.op} to {v.type} has no instruction; `legalize` must rewrite it first")
    low = e.parts(a)[0]
    if v.uniform:
        if bank(low) == "v":
            low = e.copied([low], "s")
        e.emit("s_bitcmp1_b32", low, 0)
        return e.emit(f"s_cselect_{e.b}", d, -1, 0)
    bit = e.temporary()
    e.valu("v_and_b32", bit, 1, low)
    return e.valu("v_cmp_ne_u32", d, 0, bit)


RULES: dict[str, Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "mul_hi_u": _mul_high, "mul_hi_s": _mul_high, "mad": _mad, "mad_wide_u": _mad_wide,
    "and": _logic, "or": _logic, "xor": _logic, "not": _not, "shl": _shift, "shr_u": _shift, "shr_s": _shift,
    "min_s": _extreme, "max_s": _extreme, "min_u": _extreme, "max_u": _extreme,
    "bit_count": _bit_count, "leading_zeros": _leading_zeros, "zext": _widen, "sext": _widen, "truncate": _truncate,
}  # fmt: skip
