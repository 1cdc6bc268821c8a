"""Scalar ALU: integer arithmetic, bit fields, compares and conditional moves on the scalar file.

Source: RDNA3 ISA reference, "SOP2 Instructions", "SOPK Instructions", "SOP1 Instructions", "SOPC Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.writer.arithmetic import reads
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.emitter import Value, bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Code

    Compute = Callable[..., Value]
    ComputeFlag = Callable[..., tuple[Value, Value]]


def _sources(wave: Wave, ins: Instruction) -> list[Value]:
    return [wave.scalar(one, "i64" if one.size_bits == 64 else "i32") for one in reads(ins)]


def _nonzero(code: Code, a: Value) -> Value:
    return code.icmp("ne", a, code.const(0, a.type))


def _is(name: str) -> Compute:
    return lambda code, a, b: code.op(name, a, b)


def _inverse(name: str) -> Compute:
    return lambda code, a, b: code.invert(code.op(name, a, b))


def _with_inverse(name: str) -> Compute:
    return lambda code, a, b: code.op(name, a, code.invert(b))


def shift(name: str) -> Compute:
    """Return a shift of `a` by `b`, with its count taken modulo the width."""

    def compute(code: Code, a: Value, b: Value) -> Value:
        count = code.op("and", code.resize(b, a.element), code.const(bits(a.type) - 1, a.type))
        return code.op(name, a, count)

    return compute


def _mask(code: Code, width: Value, offset: Value, kind: str) -> Value:
    one = code.const(1, kind)
    ones = code.op("sub", shift("shl")(code, one, width), one)
    return shift("shl")(code, ones, offset)


def _field(*, signed: bool) -> Compute:
    """Extract the bit field whose offset and width the second operand packs."""

    def compute(code: Code, a: Value, b: Value) -> Value:
        size = bits(a.type)
        moved = shift("ashr" if signed else "lshr")(code, a, b)
        width = code.op("and", code.op("lshr", b, code.const(16, b.type)), code.const(127, b.type))
        width = code.resize(code.intrinsic("umin", width, code.const(size, b.type)), a.type)
        empty = code.op("sub", code.const(size, a.type), width)
        spare = code.op("and", empty, code.const(size - 1, a.type))
        kept = code.op("ashr" if signed else "lshr", code.op("shl", moved, spare), spare)
        return code.select(_nonzero(code, width), kept, code.const(0, a.type))

    return compute


def _high(extend: str) -> Compute:
    def compute(code: Code, a: Value, b: Value) -> Value:
        product = code.op("mul", code.cast(extend, a, "i64"), code.cast(extend, b, "i64"))
        return code.cast("trunc", code.op("lshr", product, code.const(32, "i64")), "i32")

    return compute


def _pack(low: int, high: int) -> Compute:
    """Pack the low (0) or high (1) halves of both operands."""

    def compute(code: Code, a: Value, b: Value) -> Value:
        sixteen = code.const(16, "i32")
        first = code.op("lshr", a, sixteen) if low else code.op("and", a, code.const(0xFFFF, "i32"))
        second = code.op("and", b, code.const(0xFFFF_0000, "i32")) if high else code.op("shl", b, sixteen)
        return code.op("or", first, second)

    return compute


def _sign_extended(kind: str) -> Compute:
    return lambda code, a: code.cast("sext", code.cast("trunc", a, kind), "i32")


def count_or_minus_one(code: Code, count: Value, none: Value) -> Value:
    """Return a count as i32 a lane, -1 where `none` holds."""
    narrow = code.resize(count, "i32")
    return code.select(none, code.const(-1, narrow.type), narrow)


def first_one(name: str) -> Compute:
    """Return a count of zeroes before the first one, from the low (cttz) or the high end (ctlz)."""

    def compute(code: Code, a: Value) -> Value:
        count = code.intrinsic(name, a, Value("false", "i1"), overload=(a.type,))
        return count_or_minus_one(code, count, code.icmp("eq", a, code.const(0, a.type)))

    return compute


def sign_bits(code: Code, a: Value) -> Value:
    """Count the leading bits that equal the sign, -1 if all do."""
    return first_one("ctlz")(code, code.op("xor", a, code.op("ashr", a, code.const(bits(a.type) - 1, a.type))))


def _ones(*, inverted: bool) -> Compute:
    return lambda code, a: code.resize(code.intrinsic("ctpop", code.invert(a) if inverted else a), "i32")


def _quads(code: Code, a: Value) -> Value:
    """Return each nibble's lowest bit, set if any bit of the nibble is."""
    pairs = code.op("or", a, code.op("lshr", a, code.const(1, a.type)))
    fours = code.op("or", pairs, code.op("lshr", pairs, code.const(2, a.type)))
    return code.op("and", fours, code.const(0x1111_1111_1111_1111, a.type))


def _quadmask(code: Code, a: Value) -> Value:
    value = _quads(code, a)
    steps = ((3, 0x0303_0303_0303_0303), (6, 0x000F_000F_000F_000F), (12, 0x0000_00FF_0000_00FF), (24, 0xFFFF))
    for count, mask in steps[: 3 if a.type == "i32" else 4]:
        moved = code.op("or", value, code.op("lshr", value, code.const(count, a.type)))
        value = code.op("and", moved, code.const(mask, a.type))
    return value


def _bitreplicate(code: Code, a: Value) -> Value:
    value = code.cast("zext", a, "i64")
    steps = (
        (16, 0x0000_FFFF_0000_FFFF), (8, 0x00FF_00FF_00FF_00FF), (4, 0x0F0F_0F0F_0F0F_0F0F), (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    )  # fmt: skip
    for count, mask in steps:
        moved = code.op("or", value, code.op("shl", value, code.const(count, "i64")))
        value = code.op("and", moved, code.const(mask, "i64"))
    return code.op("or", value, code.op("shl", value, code.const(1, "i64")))


def _bit(value: int) -> Compute:
    """Set or clear the bit of the old destination (the last source) whose number is the operand."""

    def compute(code: Code, a: Value, old: Value) -> Value:
        one = shift("shl")(code, code.const(1, old.type), a)
        return code.op("or", old, one) if value else code.op("and", old, code.invert(one))

    return compute


def _absolute(code: Code, a: Value) -> Value:
    return code.intrinsic("abs", a, Value("false", "i1"), overload=(a.type,))


# Result from the sources; SCC is set if it is not zero.
LOGIC: dict[str, Compute] = {
    "s_and": _is("and"), "s_or": _is("or"), "s_xor": _is("xor"), "s_nand": _inverse("and"), "s_nor": _inverse("or"),
    "s_xnor": _inverse("xor"), "s_and_not1": _with_inverse("and"), "s_or_not1": _with_inverse("or"), "s_lshl": shift("shl"),
    "s_lshr": shift("lshr"), "s_not": lambda code, a: code.invert(a), "s_quadmask": _quadmask,
    "s_wqm": lambda code, a: code.op("mul", _quads(code, a), code.const(15, a.type)),
}  # fmt: skip
TESTED: dict[str, Compute] = {f"{name}_b{size}": function for name, function in LOGIC.items() for size in (32, 64)} | {
    "s_ashr_i32": shift("ashr"), "s_ashr_i64": shift("ashr"), "s_bfe_u32": _field(signed=False), "s_bfe_i32": _field(signed=True),
    "s_bfe_u64": _field(signed=False), "s_bfe_i64": _field(signed=True), "s_abs_i32": _absolute,
    "s_absdiff_i32": lambda code, a, b: _absolute(code, code.op("sub", a, b)),
    "s_bcnt0_i32_b32": _ones(inverted=True), "s_bcnt0_i32_b64": _ones(inverted=True), "s_bcnt1_i32_b32": _ones(inverted=False),
    "s_bcnt1_i32_b64": _ones(inverted=False),
}  # fmt: skip
# Result from the sources; SCC keeps its value.
PLAIN: dict[str, Compute] = {
    "s_mov_b32": lambda code, a: a, "s_mov_b64": lambda code, a: a, "s_movk_i32": lambda code, a: a,
    "s_brev_b32": lambda code, a: code.intrinsic("bitreverse", a), "s_brev_b64": lambda code, a: code.intrinsic("bitreverse", a),
    "s_ctz_i32_b32": first_one("cttz"), "s_ctz_i32_b64": first_one("cttz"), "s_clz_i32_u32": first_one("ctlz"),
    "s_clz_i32_u64": first_one("ctlz"), "s_cls_i32": sign_bits, "s_cls_i32_i64": sign_bits,
    "s_sext_i32_i8": _sign_extended("i8"), "s_sext_i32_i16": _sign_extended("i16"), "s_bitset0_b32": _bit(0),
    "s_bitset0_b64": _bit(0), "s_bitset1_b32": _bit(1), "s_bitset1_b64": _bit(1), "s_bitreplicate_b64_b32": _bitreplicate,
    "s_bfm_b32": lambda code, a, b: _mask(code, a, b, "i32"), "s_bfm_b64": lambda code, a, b: _mask(code, a, b, "i64"),
    "s_mul_i32": _is("mul"), "s_mulk_i32": _is("mul"), "s_mul_hi_u32": _high("zext"), "s_mul_hi_i32": _high("sext"),
    "s_pack_ll_b32_b16": _pack(0, 0), "s_pack_lh_b32_b16": _pack(0, 1), "s_pack_hh_b32_b16": _pack(1, 1),
    "s_pack_hl_b32_b16": _pack(1, 0), "s_mul_u64": _is("mul"), "s_add_nc_u64": _is("add"), "s_sub_nc_u64": _is("sub"),
}  # fmt: skip


def _overflowing(name: str) -> ComputeFlag:
    """Return a sum or difference with its carry or overflow: uadd, usub, sadd, ssub."""

    def compute(code: Code, a: Value, b: Value) -> tuple[Value, Value]:
        both = "{ i32, i1 }"
        pair = code.intrinsic(f"{name}.with.overflow", a, b, result=both, overload=("i32",))
        return code.emit(f"extractvalue {both} {pair.text}, 0", "i32"), code.emit(
            f"extractvalue {both} {pair.text}, 1", "i1"
        )

    return compute


def _scaled_sum(power: int) -> ComputeFlag:
    def compute(code: Code, a: Value, b: Value) -> tuple[Value, Value]:
        wide = code.op("shl", code.cast("zext", a, "i64"), code.const(power, "i64"))
        total = code.op("add", wide, code.cast("zext", b, "i64"))
        return code.cast("trunc", total, "i32"), code.icmp("ugt", total, code.const(0xFFFF_FFFF, "i64"))

    return compute


def _chosen(how: str) -> ComputeFlag:
    def compute(code: Code, a: Value, b: Value) -> tuple[Value, Value]:
        first = code.icmp(how, a, b)
        return code.select(first, a, b), first

    return compute


# Result and SCC from the sources.
FLAGGED: dict[str, ComputeFlag] = {
    "s_add_u32": _overflowing("uadd"), "s_sub_u32": _overflowing("usub"), "s_add_i32": _overflowing("sadd"),
    "s_sub_i32": _overflowing("ssub"), "s_lshl1_add_u32": _scaled_sum(1), "s_lshl2_add_u32": _scaled_sum(2),
    "s_lshl3_add_u32": _scaled_sum(3), "s_lshl4_add_u32": _scaled_sum(4), "s_min_i32": _chosen("slt"), "s_min_u32": _chosen("ult"),
    "s_max_i32": _chosen("sgt"), "s_max_u32": _chosen("ugt"),
    "s_addk_i32": lambda code, k, old: _overflowing("sadd")(code, old, k),
}  # fmt: skip


def _plain(function: Compute, *, tested: bool) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        value = function(wave.code, *_sources(wave, ins))
        wave.put_scalar(ins.defs[0], value)
        if tested:
            wave.set_scc(_nonzero(wave.code, value))

    return emit


def _flagged(function: ComputeFlag) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        value, flag = function(wave.code, *_sources(wave, ins))
        wave.put_scalar(ins.defs[0], value)
        wave.set_scc(flag)

    return emit


for _name, _function in TESTED.items():
    rule(_name)(_plain(_function, tested=True))
for _name, _function in PLAIN.items():
    rule(_name)(_plain(_function, tested=False))
for _name, _pair in FLAGGED.items():
    rule(_name)(_flagged(_pair))


@rule("s_addc_u32", "s_subb_u32")
def _with_carry(wave: Wave, ins: Instruction) -> None:
    code = wave.code
    a, b = (code.cast("zext", one, "i64") for one in _sources(wave, ins))
    name = "add" if ins.mnemonic == "s_addc_u32" else "sub"
    total = code.op(name, code.op(name, a, b), code.cast("zext", wave.scc(), "i64"))
    wave.put_scalar(ins.defs[0], code.cast("trunc", total, "i32"))
    wave.set_scc(_nonzero(code, code.op("lshr", total, code.const(32, "i64"))))


# conditional moves and compares ---------------------------------------------------------------------------------------


@rule("s_cselect_b32", "s_cselect_b64", "s_cmov_b32", "s_cmov_b64", "s_cmovk_i32")
def _choose(wave: Wave, ins: Instruction) -> None:
    first, second = _sources(wave, ins)
    wave.put_scalar(ins.defs[0], wave.code.select(wave.scc(), first, second))


CONDITIONS = {
    "eq": ("eq", "eq"),
    "lg": ("ne", "ne"),
    "gt": ("sgt", "ugt"),
    "ge": ("sge", "uge"),
    "lt": ("slt", "ult"),
    "le": ("sle", "ule"),
}


def _compare(how: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        wave.set_scc(wave.code.icmp(how, *_sources(wave, ins)))

    return emit


def _test_bit(value: int) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        code = wave.code
        bit = code.cast("trunc", shift("lshr")(code, *_sources(wave, ins)), "i1")
        wave.set_scc(bit if value else code.invert(bit))

    return emit


for _name, (_signed, _unsigned) in CONDITIONS.items():
    rule(f"s_cmp_{_name}_i32", f"s_cmpk_{_name}_i32")(_compare(_signed))
    rule(f"s_cmp_{_name}_u32", f"s_cmpk_{_name}_u32")(_compare(_unsigned))
rule("s_cmp_eq_u64")(_compare("eq"))
rule("s_cmp_lg_u64")(_compare("ne"))
for _value in (0, 1):
    rule(f"s_bitcmp{_value}_b32", f"s_bitcmp{_value}_b64")(_test_bit(_value))


# the exec mask --------------------------------------------------------------------------------------------------------

# The new EXEC from the operand and the old EXEC.
MASKS: dict[str, Compute] = {
    "and": _is("and"), "or": _is("or"), "xor": _is("xor"), "nand": _inverse("and"), "nor": _inverse("or"), "xnor": _inverse("xor"),
    "and_not0": lambda code, a, b: code.op("and", code.invert(a), b), "or_not0": lambda code, a, b: code.op("or", code.invert(a), b),
    "and_not1": _with_inverse("and"), "or_not1": _with_inverse("or"),
}  # fmt: skip


def _masked(function: Compute, size: int, *, saves: bool) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        (operand,) = _sources(wave, ins)
        old = wave.sgpr(state.EXEC_LO) if size == 32 else wave.sgpr64(state.EXEC_LO)
        new = function(wave.code, operand, old)
        wave.put_scalar(ins.defs[0], old if saves else new)
        (wave.set_sgpr if size == 32 else wave.set_sgpr64)(state.EXEC_LO, new)
        wave.set_scc(_nonzero(wave.code, new))

    return emit


for _name, _function in MASKS.items():
    for _size in (32, 64):
        rule(f"s_{_name}_saveexec_b{_size}")(_masked(_function, _size, saves=True))
        if _name in ("and_not0", "and_not1"):
            rule(f"s_{_name}_wrexec_b{_size}")(_masked(_function, _size, saves=False))
