"""Integer arithmetic of the vector ALU: sums, products, order, bit fields, shifts, carries, bytes.

Source: RDNA3 ISA reference, "VOP2 Instructions", "VOP1 Instructions", "VOP3 & VOP3SD Instructions". With CLAMP results
saturate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.salu import first_one, shift, sign_bits
from ringup.silicon.shader.amd.writer import dpp
from ringup.silicon.shader.amd.writer.arithmetic import reads
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Value, bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Code

    Compute = Callable[..., Value]

_KINDS = {16: "i16", 32: "i32", 64: "i64"}


def source(wave: Wave, operand: Operand, ins: Instruction) -> Value:
    """Return a source as integers of its size; 24-bit operands are extended to 32 bits."""
    value = wave.src(operand, _KINDS[operand.size_bits], ins)
    if operand.type in ("i24", "u24"):
        value = low_bits(wave.code, value, 24, signed=operand.type == "i24")
    return value


def low_bits(code: Code, a: Value, width: int, *, signed: bool) -> Value:
    """Extend the low `width` bits to the whole value."""
    spare = code.const(bits(a.type) - width, a.type)
    return code.op("ashr" if signed else "lshr", code.op("shl", a, spare), spare)


def _op(name: str) -> Compute:
    return lambda code, a, b: code.op(name, a, b)


def _call(name: str) -> Compute:
    return lambda code, a, b: code.intrinsic(name, a, b)


def _swapped(function: Compute) -> Compute:
    return lambda code, a, b: function(code, b, a)


def _then(first: Compute, second: Compute) -> Compute:
    """Apply `first` to S0 and S1, `second` to its result and S2."""
    return lambda code, a, b, c: second(code, first(code, a, b), c)


def saturated(code: Code, wide: Value, kind: str, *, signed: bool) -> Value:
    """Narrow integers to `kind`, limited to its range."""
    width = bits(kind)
    if signed:
        top = (1 << (width - 1)) - 1
        wide = code.intrinsic("smin", wide, code.const(top, wide.type))
        wide = code.intrinsic("smax", wide, code.const(-top - 1, wide.type))
    else:
        wide = code.intrinsic("umin", wide, code.const((1 << width) - 1, wide.type))
    return code.resize(wide, kind)


def _product(kind: str, *, signed: bool) -> Compute:
    """Multiply (and add S2) in twice the width, saturating to `kind`."""

    def compute(code: Code, a: Value, b: Value, *c: Value) -> Value:
        wide = "i32" if kind == "i16" else "i64"
        total, *rest = (code.resize(one, wide, signed=signed) for one in (a, b, *c))
        total = code.op("mul", total, rest[0])
        for one in rest[1:]:
            total = code.op("add", total, one)
        return saturated(code, total, kind, signed=signed)

    return compute


def _high_product(*, signed: bool) -> Compute:
    def compute(code: Code, a: Value, b: Value) -> Value:
        product = code.op("mul", code.resize(a, "i64", signed=signed), code.resize(b, "i64", signed=signed))
        return code.resize(code.op("lshr", product, code.const(32, product.type)), "i32")

    return compute


def _wide_product(*, signed: bool) -> Compute:
    """Multiply 16-bit factors and add a 32-bit term."""

    def compute(code: Code, a: Value, b: Value, c: Value) -> Value:
        product = code.op("mul", code.resize(a, "i32", signed=signed), code.resize(b, "i32", signed=signed))
        return code.op("add", product, c)

    return compute


def _multiply_add(code: Code, a: Value, b: Value, c: Value) -> Value:
    return code.op("add", code.op("mul", a, b), c)


def _median(low: Compute, high: Compute) -> Compute:
    def compute(code: Code, a: Value, b: Value, c: Value) -> Value:
        return high(code, low(code, a, b), low(code, high(code, a, b), c))

    return compute


def _mask(code: Code, width: Value) -> Value:
    one = code.const(1, width.type)
    return code.op("sub", shift("shl")(code, one, width), one)


def _bfe_u32(code: Code, a: Value, offset: Value, width: Value) -> Value:
    return code.op("and", shift("lshr")(code, a, offset), _mask(code, width))


def _bfe_i32(code: Code, a: Value, offset: Value, width: Value) -> Value:
    width = code.op("and", width, code.const(31, width.type))
    empty = code.icmp("eq", width, code.const(0, width.type))
    spare = code.op("sub", code.const(32, width.type), width)
    moved = shift("shl")(code, shift("ashr")(code, a, offset), spare)
    return code.select(empty, code.const(0, a.type), shift("ashr")(code, moved, spare))


def _bfi(code: Code, mask: Value, a: Value, b: Value) -> Value:
    return code.op("or", code.op("and", mask, a), code.op("and", code.invert(mask), b))


def _funnel(scale: int) -> Compute:
    """Shift the 64 bits of S0 and S1 right by S2 bits or bytes and keep the low dword."""

    def compute(code: Code, a: Value, b: Value, c: Value) -> Value:
        count = code.op("and", code.resize(c, "i32"), code.const(32 // scale - 1, a.type))
        count = code.op("mul", count, code.const(scale, a.type))
        # Not LLVM's fshr: its x86 back end expects that a distance of 0 was combined away. Quick code does not do that.
        upper = code.op("shl", a, code.const(1, a.type))
        upper = code.op("shl", upper, code.op("xor", count, code.const(31, a.type)))
        return code.op("or", upper, code.op("lshr", b, count))

    return compute


_shl, _lshr, _ashr = shift("shl"), shift("lshr"), shift("ashr")
_add, _and, _or, _xor = _op("add"), _op("and"), _op("or"), _op("xor")
_MIN = {"i": _call("smin"), "u": _call("umin")}
_MAX = {"i": _call("smax"), "u": _call("umax")}

SIMPLE: dict[str, Compute] = {
    "v_mov_b32": lambda code, a: a, "v_mov_b16": lambda code, a: a, "v_not_b32": lambda code, a: code.invert(a),
    "v_not_b16": lambda code, a: code.invert(a), "v_xnor_b32": lambda code, a, b: code.invert(code.op("xor", a, b)),
    "v_lshlrev_b64": _swapped(_shl), "v_lshrrev_b64": _swapped(_lshr), "v_ashrrev_i64": _swapped(_ashr),
    "v_ashrrev_i32": _swapped(_ashr), "v_ashrrev_i16": _swapped(_ashr), "v_lshl_add_u32": _then(_shl, _add),
    "v_add_lshl_u32": _then(_add, _shl), "v_lshl_or_b32": _then(_shl, _or), "v_and_or_b32": _then(_and, _or),
    "v_or3_b32": _then(_or, _or), "v_xor3_b32": _then(_xor, _xor), "v_xad_u32": _then(_xor, _add), "v_add3_u32": _then(_add, _add),
    "v_mul_hi_u32": _high_product(signed=False), "v_mul_hi_i32": _high_product(signed=True), "v_mul_lo_u32": _op("mul"),
    "v_mul_hi_u32_u24": _high_product(signed=False), "v_mul_hi_i32_i24": _high_product(signed=True), "v_mul_lo_u16": _op("mul"),
    "v_bfe_u32": _bfe_u32, "v_bfe_i32": _bfe_i32, "v_bfi_b32": _bfi, "v_bfm_b32": lambda code, a, b: _shl(code, _mask(code, a), b),
    "v_alignbit_b32": _funnel(1), "v_alignbyte_b32": _funnel(8), "v_bfrev_b32": lambda code, a: code.intrinsic("bitreverse", a),
    "v_clz_i32_u32": first_one("ctlz"), "v_ctz_i32_b32": first_one("cttz"), "v_cls_i32": sign_bits,
    "v_bcnt_u32_b32": lambda code, a, b: code.op("add", code.intrinsic("ctpop", a), b),
    "v_cvt_i32_i16": lambda code, a: code.resize(a, "i32", signed=True), "v_cvt_u32_u16": lambda code, a: code.resize(a, "i32"),
}  # fmt: skip
for _name, _function in (
    ("and", _and),
    ("or", _or),
    ("xor", _xor),
    ("lshlrev", _swapped(_shl)),
    ("lshrrev", _swapped(_lshr)),
):
    SIMPLE |= {f"v_{_name}_b{size}": _function for size in (16, 32)}
for _sign in "iu":
    _low, _high = _MIN[_sign], _MAX[_sign]
    for _type in (f"{_sign}16", f"{_sign}32"):
        SIMPLE |= {
            f"v_min_{_type}": _low, f"v_max_{_type}": _high, f"v_min3_{_type}": _then(_low, _low), f"v_max3_{_type}": _then(_high, _high),
            f"v_med3_{_type}": _median(_low, _high),
        }  # fmt: skip
    SIMPLE |= {f"v_minmax_{_sign}32": _then(_low, _high), f"v_maxmin_{_sign}32": _then(_high, _low)}


# bytes ----------------------------------------------------------------------------------------------------------------


def _bytes(code: Code, a: Value) -> Value:
    return code.bitcast(a, f"<{a.lanes * 4} x i8>")


def _lerp(code: Code, a: Value, b: Value, c: Value) -> Value:
    """Average the bytes; the low bit of each of S2's bytes rounds up."""
    one = code.op("and", c, code.const(0x0101_0101, c.type))
    first, second, third = (code.cast("zext", _bytes(code, one), "i16") for one in (a, b, one))
    total = code.op("add", code.op("add", first, second), third)
    return code.bitcast(code.cast("trunc", code.op("lshr", total, code.const(1, total.type)), "i8"), a.type)


def _difference(code: Code, a: Value, b: Value) -> Value:
    return code.op("sub", code.intrinsic("umax", a, b), code.intrinsic("umin", a, b))


def _byte_distance(code: Code, a: Value, b: Value, *, masked: bool = False) -> Value:
    """Sum the absolute differences of four bytes; `masked` skips bytes that are zero in S1."""
    first, second = _bytes(code, a), _bytes(code, b)
    apart = _difference(code, first, second)
    if masked:
        zero = code.const(0, apart.type)
        apart = code.select(code.icmp("eq", second, zero), zero, apart)
    whole = code.bitcast(apart, a.type)
    total = code.op("and", whole, code.const(0xFF, a.type))
    for count in (8, 16, 24):
        total = code.op(
            "add", total, low_bits(code, code.op("lshr", whole, code.const(count, a.type)), 8, signed=False)
        )
    return total


def _masked_distance(code: Code, a: Value, b: Value) -> Value:
    return _byte_distance(code, a, b, masked=True)


def _high_distance(code: Code, a: Value, b: Value) -> Value:
    return code.op("shl", _byte_distance(code, a, b), code.const(16, a.type))


def _word_distance(code: Code, a: Value, b: Value) -> Value:
    words = [code.bitcast(one, f"<{a.lanes * 2} x i16>") for one in (a, b)]
    whole = code.bitcast(_difference(code, *words), a.type)
    return code.op("add", low_bits(code, whole, 16, signed=False), code.op("lshr", whole, code.const(16, a.type)))


DISTANCES: dict[str, Compute] = {
    "v_sad_u8": _byte_distance, "v_sad_hi_u8": _high_distance, "v_sad_u16": _word_distance, "v_sad_u32": _difference,
    "v_msad_u8": _masked_distance,
}  # fmt: skip


def _permute(code: Code, a: Value, b: Value, selectors: Value) -> Value:
    """Build each byte as S2's byte selects: a byte of S1 (0..3) or S0 (4..7), a sign (8..11), 0 (12) or 255."""
    whole = code.op("or", code.op("shl", code.resize(a, "i64"), code.const(32, like64(a))), code.resize(b, "i64"))
    result = code.const(0, a.type)
    for i in range(4):
        chosen = low_bits(code, code.op("lshr", selectors, code.const(8 * i, a.type)), 8, signed=False)
        at = code.op("and", chosen, code.const(7, a.type))
        by_bit = code.op("shl", at, code.const(3, a.type))
        # The sign bits of bytes 1, 3, 5, 7 for selectors 8, 9, 10, 11.
        odd = code.op(
            "or",
            code.op("shl", code.op("and", chosen, code.const(3, a.type)), code.const(4, a.type)),
            code.const(8, a.type),
        )
        is_sign = code.op(
            "and", code.icmp("ugt", chosen, code.const(7, a.type)), code.icmp("ult", chosen, code.const(12, a.type))
        )
        moved = code.resize(code.op("lshr", whole, code.resize(code.select(is_sign, odd, by_bit), "i64")), "i32")
        byte = code.op("and", moved, code.const(0xFF, a.type))
        sign = low_bits(
            code, code.op("and", low_bits(code, moved, 8, signed=True), code.const(0x80, a.type)), 8, signed=True
        )
        filled = code.op("and", code.op("ashr", sign, code.const(7, a.type)), code.const(0xFF, a.type))
        byte = code.select(is_sign, filled, byte)
        byte = code.select(code.icmp("eq", chosen, code.const(12, a.type)), code.const(0, a.type), byte)
        byte = code.select(code.icmp("ugt", chosen, code.const(12, a.type)), code.const(0xFF, a.type), byte)
        result = code.op("or", result, code.op("shl", byte, code.const(8 * i, a.type)))
    return result


def like64(a: Value) -> str:
    """Return the type of 64-bit integers in the shape of `a`."""
    return f"<{a.lanes} x i64>"


SIMPLE |= {"v_lerp_u8": _lerp, "v_perm_b32": _permute}

# Name: the function without and with CLAMP.
SATURATING: dict[str, tuple[Compute, Compute]] = {
    "v_add_nc_u32": (_add, _call("uadd.sat")), "v_sub_nc_u32": (_op("sub"), _call("usub.sat")),
    "v_subrev_nc_u32": (_swapped(_op("sub")), _swapped(_call("usub.sat"))), "v_add_nc_i32": (_add, _call("sadd.sat")),
    "v_sub_nc_i32": (_op("sub"), _call("ssub.sat")), "v_add_nc_u16": (_add, _call("uadd.sat")),
    "v_sub_nc_u16": (_op("sub"), _call("usub.sat")), "v_add_nc_i16": (_add, _call("sadd.sat")),
    "v_sub_nc_i16": (_op("sub"), _call("ssub.sat")), "v_mul_u32_u24": (_op("mul"), _product("i32", signed=False)),
    "v_mul_i32_i24": (_op("mul"), _product("i32", signed=True)), "v_mad_u32_u24": (_multiply_add, _product("i32", signed=False)),
    "v_mad_i32_i24": (_multiply_add, _product("i32", signed=True)), "v_mad_u16": (_multiply_add, _product("i16", signed=False)),
    "v_mad_i16": (_multiply_add, _product("i16", signed=True)), "v_mad_u32_u16": (_wide_product(signed=False), _product("i32", signed=False)),
    "v_mad_i32_i16": (_wide_product(signed=True), _product("i32", signed=True)),
    "v_mad_legacy_u16": (_multiply_add, _product("i16", signed=False)), "v_mad_legacy_i16": (_multiply_add, _product("i16", signed=True)),
} | {name: (_then(function, _add), _then(function, _call("uadd.sat"))) for name, function in DISTANCES.items()}  # fmt: skip


def _integer(function: Compute, clamped: Compute | None = None) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        chosen = clamped if clamped and ins.clamp else function
        wave.put(ins.defs[0], chosen(wave.code, *(source(wave, one, ins) for one in reads(ins))), ins)

    return emit


for _name, _function in SIMPLE.items():
    rule(_name)(_integer(_function))
for _name, (_function, _clamped) in SATURATING.items():
    rule(_name)(_integer(_function, _clamped))


# third operands of v_mad_*24 are whole dwords -------------------------------------------------------------------------


def _mad24(*, signed: bool) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        code = wave.code
        a, b = (low_bits(code, wave.src(one, "i32", ins), 24, signed=signed) for one in ins.uses[:2])
        c = wave.src(ins.uses[2], "i32", ins)
        function = SATURATING["v_mad_i32_i24" if signed else "v_mad_u32_u24"][ins.clamp]
        wave.put(ins.defs[0], function(code, a, b, c), ins)

    return emit


rule("v_mad_i32_i24")(_mad24(signed=True))
rule("v_mad_u32_u24")(_mad24(signed=False))


# sums of differences at four offsets ----------------------------------------------------------------------------------


def _quad_distance(*, masked: bool, wide: bool) -> Rule:
    """Compare S1's bytes with those of S0 at byte offsets 0, 1, 2, 3; add four words or dwords of S2."""

    def emit(wave: Wave, ins: Instruction) -> None:
        code, (first, second, third) = wave.code, ins.uses
        window, b = wave.src(first, "i64", ins), wave.src(second, "i32", ins)
        terms = [wave.vgpr(third.index + i) for i in range(4)] if wide else []
        packed = None if wide else wave.src(third, "i64", ins)
        result: Value | None = None
        for i in range(4):
            a = code.resize(code.op("lshr", window, code.const(8 * i, window.type)), "i32")
            total = _byte_distance(code, a, b, masked=masked)
            if packed is None:
                terms[i] = code.intrinsic("uadd.sat", total, terms[i]) if ins.clamp else code.op("add", total, terms[i])
                continue
            term = low_bits(code, code.op("lshr", packed, code.const(16 * i, packed.type)), 16, signed=False)
            total = code.op("add", code.resize(total, "i64"), term)
            limited = code.intrinsic("umin", total, code.const(0xFFFF, total.type))
            total = limited if ins.clamp else low_bits(code, total, 16, signed=False)
            moved = code.op("shl", total, code.const(16 * i, total.type))
            result = moved if result is None else code.op("or", result, moved)
        if result is not None:
            wave.put(ins.defs[0], result, ins)
        for i, one in enumerate(terms):
            wave.set_vgpr(ins.defs[0].index + i, one)

    return emit


rule("v_qsad_pk_u16_u8")(_quad_distance(masked=False, wide=False))
rule("v_mqsad_pk_u16_u8")(_quad_distance(masked=True, wide=False))
rule("v_mqsad_u32_u8")(_quad_distance(masked=True, wide=True))


# carries --------------------------------------------------------------------------------------------------------------


def _carrying(name: str, *, swapped: bool, carry_in: bool) -> Rule:
    """Add or subtract dwords with carry; the sum has 64 bits so that bit 32 is the carry."""

    def emit(wave: Wave, ins: Instruction) -> None:
        code = wave.code
        a, b, *carry = ins.uses
        first, second = (code.resize(source(wave, one, ins), "i64") for one in (a, b))
        if swapped:
            first, second = second, first
        total = code.op(name, first, second)
        if carry_in:
            total = code.op(name, total, code.cast("zext", wave.mask(carry[0]), "i64"))
        flag = code.icmp("ugt", total, code.const(0xFFFF_FFFF, total.type))
        value = code.resize(total, "i32")
        if ins.clamp:
            value = code.select(flag, wave.const(-1 if name == "add" else 0, "i32"), value)
        target, out = ins.defs
        wave.put(target, value, ins)
        put_flags(wave, out, flag, ins)

    return emit


def put_flags(wave: Wave, operand: Operand, flags: Value, ins: Instruction) -> None:
    """Write a lane mask; lanes that DPP disables get 0."""
    enabled = dpp.writable(wave.code, ins.dpp, wave.exec()) if ins.dpp else None
    wave.put_mask(operand, flags if enabled is None else wave.code.op("and", flags, enabled))


for _name, _kind, _swap in (("add", "add", False), ("sub", "sub", False), ("subrev", "sub", True)):
    rule(f"v_{_name}_co_u32")(_carrying(_kind, swapped=_swap, carry_in=False))
    rule(f"v_{_name}_co_ci_u32")(_carrying(_kind, swapped=_swap, carry_in=True))


def _multiply_add_64(*, signed: bool) -> Rule:
    """Multiply dwords and add 64 bits.

    The mask gets bit 64 of the sum: the carry if unsigned, the true sign if signed.
    """

    def emit(wave: Wave, ins: Instruction) -> None:
        code, (a, b, c) = wave.code, ins.uses
        product = code.op("mul", *(code.resize(wave.src(one, "i32", ins), "i64", signed=signed) for one in (a, b)))
        term = wave.src(c, "i64", ins)
        total = code.op("add", product, term)
        if signed:
            wrong = code.op("and", code.op("xor", total, product), code.op("xor", total, term))
            flag = code.icmp("slt", code.op("xor", total, wrong), code.const(0, total.type))
        else:
            flag = code.icmp("ult", total, term)
        if ins.clamp:
            total = code.intrinsic("sadd.sat" if signed else "uadd.sat", product, term)
        target, out = ins.defs
        wave.put(target, total, ins)
        put_flags(wave, out, flag, ins)

    return emit


rule("v_mad_u64_u32")(_multiply_add_64(signed=False))
rule("v_mad_i64_i32")(_multiply_add_64(signed=True))
