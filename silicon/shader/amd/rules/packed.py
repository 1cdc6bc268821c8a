"""Packed math: two 16-bit results a lane, dot products, multiply-adds of mixed precision.

Source: RDNA3 ISA reference, "Packed Math", "VOP3P Instructions". op_sel and op_sel_hi select the half of a source that
feeds the low and the high result. Here the halves of all lanes are one vector of twice as many elements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.floats import ORDER
from ringup.silicon.shader.amd.rules.integers import SATURATING, SIMPLE, low_bits
from ringup.silicon.shader.amd.writer.arithmetic import (
    Float,
    flushed,
    flushed_single,
    from_brain,
    reads,
    to_brain,
    widened,
)
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.arithmetic import Combine
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave

    Compute = Callable[..., Value]

HALF_SIGN = 0x8000


def halves(wave: Wave, operand: Operand, ins: Instruction) -> Value:
    """Return a packed source as 16-bit integers: the low and the high result's element of each lane, alternating."""
    code, count = wave.code, 2 * wave.lanes
    plain = replace(operand, neg=False, abs=False)
    value = code.bitcast(wave.src(plain, "i32", ins), f"<{count} x i16>")
    # GCN's modifiers of a source act on both halves (v_pk_fmac_f16).
    value = wave.modified(value, neg=operand.neg, abs_=operand.abs)
    if operand.sel != (False, True):
        value = code.shuffle(value, None, [i & ~1 | operand.sel[i & 1] for i in range(count)])
    return value


def _joined(wave: Wave, value: Value) -> Value:
    return wave.code.bitcast(value, wave.row)


# integers -------------------------------------------------------------------------------------------------------------

PACKED_SIMPLE: dict[str, Compute] = {
    f"v_pk_{name}": SIMPLE[f"v_{name}"]
    for name in ("lshlrev_b16", "lshrrev_b16", "ashrrev_i16", "min_i16", "max_i16", "min_u16", "max_u16", "mul_lo_u16")
}
PACKED_SATURATING: dict[str, tuple[Compute, Compute]] = {
    "v_pk_add_u16": SATURATING["v_add_nc_u16"], "v_pk_sub_u16": SATURATING["v_sub_nc_u16"], "v_pk_add_i16": SATURATING["v_add_nc_i16"],
    "v_pk_sub_i16": SATURATING["v_sub_nc_i16"], "v_pk_mad_u16": SATURATING["v_mad_u16"], "v_pk_mad_i16": SATURATING["v_mad_i16"],
}  # fmt: skip


def _integers(function: Compute, clamped: Compute) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        chosen = clamped if ins.clamp else function
        wave.put(ins.defs[0], _joined(wave, chosen(wave.code, *(halves(wave, one, ins) for one in ins.uses))), ins)

    return emit


for _name, _function in PACKED_SIMPLE.items():
    rule(_name)(_integers(_function, _function))
for _name, _pair in PACKED_SATURATING.items():
    rule(_name)(_integers(*_pair))


# halves ---------------------------------------------------------------------------------------------------------------


def _half_sources(wave: Wave, ins: Instruction, unit: Float) -> list[Value]:
    """Return packed half sources as bits, with signs changed and denormals flushed."""
    code, found = wave.code, []
    for one in reads(ins):
        value = halves(wave, one, ins)
        if any(one.neg_halves):
            signs = [HALF_SIGN * one.neg_halves[i & 1] for i in range(unit.lanes)]
            value = code.op("xor", value, code.lane_const(signs, "i16"))
        found.append(value if unit.denormals & 1 else flushed(code, value, unit.fmt))
    return found


def _half_arithmetic(function: Combine) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        if wave.mode.round("half"):
            wave.bail(ins)
            return
        unit = Float(wave, "f16", lanes=2 * wave.lanes)
        value = function(unit, *(unit.opened(one) for one in _half_sources(wave, ins, unit)))
        wave.put(ins.defs[0], _joined(wave, unit.result(value, ins)), ins)

    return emit


def _half_order(function: Combine) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = Float(wave, "f16", lanes=2 * wave.lanes)
        value = unit.result_bits(function(unit, *_half_sources(wave, ins, unit)), ins)
        wave.put(ins.defs[0], _joined(wave, value), ins)

    return emit


rule("v_pk_add_f16")(_half_arithmetic(lambda f, a, b: f.op("fadd", a, b)))
rule("v_pk_mul_f16")(_half_arithmetic(lambda f, a, b: f.op("fmul", a, b)))
rule("v_pk_fma_f16", "v_pk_fmac_f16")(_half_arithmetic(lambda f, a, b, c: f.fma(a, b, c)))
for _name in ("min", "max", "min_num", "max_num", "minimum", "maximum", "minimum3", "maximum3"):
    rule(f"v_pk_{_name}_f16")(_half_order(ORDER[_name]))


# dot products of floats -----------------------------------------------------------------------------------------------


def _half_of(wave: Wave, whole: Value, *, high: bool) -> Value:
    code = wave.code
    return code.resize(code.op("lshr", whole, wave.const(16, "i32")) if high else whole, "i16")


def _products(wave: Wave, ins: Instruction, *, is_brain: bool, denormals: int) -> list[Value]:
    """Return the two products of a dot product as exact floats.

    Denormal factors count as zero unless bit 0 of `denormals` is set.
    """
    code = wave.code
    half = Float(wave, "f16", denormals=denormals)
    factors = []
    for one in reads(ins)[:2]:
        plain = replace(one, neg=False, abs=False)
        whole = wave.src(plain, "i32", ins)
        pair = []
        for i in range(2):
            raw = _half_of(wave, whole, high=one.sel[i])
            if one.abs:
                raw = code.op("and", raw, wave.const(HALF_SIGN - 1, "i16"))
            if one.neg or one.neg_halves[i]:
                raw = code.op("xor", raw, wave.const(HALF_SIGN, "i16"))
            if is_brain:
                value = from_brain(code, raw)
                pair.append(value if denormals & 1 else flushed_single(code, value))
            else:
                pair.append(widened(code, raw if denormals & 1 else flushed(code, raw, half.fmt)))
        factors.append(pair)
    return [code.op("fmul", a, b) for a, b in zip(*factors, strict=True)]


@rule("v_dot2_f16_f16")
def _dot_half(wave: Wave, ins: Instruction) -> None:
    """Round each product and sum to half precision, to nearest even in any MODE; denormals are kept."""
    unit, code = Float(wave, "f16", denormals=3), wave.code
    total, second = (unit.opened(unit.closed(one)) for one in _products(wave, ins, is_brain=False, denormals=3))
    for term in (second, unit.source(ins.uses[2], ins)):
        total = unit.opened(unit.closed(code.op("fadd", total, term)))
    wave.put(ins.defs[0], unit.closed(total), ins)


@rule("v_dot2_bf16_bf16")
def _dot_brain(wave: Wave, ins: Instruction) -> None:
    """Round each product and sum to bf16, to nearest even in any MODE; denormals are flushed."""
    code = wave.code

    def rounded(value: Value) -> Value:
        return flushed_single(code, from_brain(code, to_brain(code, value)))

    third = ins.uses[2]
    term = from_brain(code, wave.src(third, "i16", ins))
    total, second = (rounded(one) for one in _products(wave, ins, is_brain=True, denormals=0))
    for one in (second, flushed_single(code, term)):
        total = rounded(code.op("fadd", total, one))
    wave.put(ins.defs[0], to_brain(code, total), ins)


# dot products of integers ---------------------------------------------------------------------------------------------


def _elements(wave: Wave, operand: Operand, ins: Instruction, width: int) -> list[Value]:
    """Return the elements of a dword, sign-extended if neg says that they are signed."""
    code, whole = wave.code, wave.src(operand, "i32", ins)
    signed = operand.neg_halves[0] and "_iu" in ins.mnemonic
    return [
        low_bits(code, code.op("lshr", whole, wave.const(at, "i32")), width, signed=signed)
        for at in range(0, 32, width)
    ]


def _dot_integer(width: int, *, signed: bool) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        code, (a, b, c) = wave.code, ins.uses
        total = wave.const(0, "i32")
        for first, second in zip(_elements(wave, a, ins, width), _elements(wave, b, ins, width), strict=True):
            total = code.op("add", total, code.op("mul", first, second))
        term = wave.src(c, "i32", ins)
        name = "sadd.sat" if signed else "uadd.sat"
        value = code.intrinsic(name, total, term) if ins.clamp else code.op("add", total, term)
        wave.put(ins.defs[0], value, ins)

    return emit


for _name, _width, _signed in (
    ("4_i32_iu8", 8, True),
    ("4_u32_u8", 8, False),
    ("8_i32_iu4", 4, True),
    ("8_u32_u4", 4, False),
):
    rule(f"v_dot{_name}")(_dot_integer(_width, signed=_signed))


# mixed precision ------------------------------------------------------------------------------------------------------


def _mixed(wave: Wave, operand: Operand, ins: Instruction) -> Value:
    """Return a source that op_sel_hi makes a half and op_sel its high one; else it is single."""
    is_half = operand.sel[1]
    return Float(wave, "f16" if is_half else "f32").source(replace(operand, high=operand.sel[0] and is_half), ins)


@rule("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _fma_mix(wave: Wave, ins: Instruction) -> None:
    is_single = ins.mnemonic == "v_fma_mix_f32"
    if wave.mode.round("float") or (not is_single and wave.mode.round("half")):
        wave.bail(ins)
        return
    sources = [one for one in ins.operands if one.direction == "use"]
    total = wave.code.intrinsic("fma", *(_mixed(wave, one, ins) for one in sources))
    target = ins.defs[0]
    if not is_single:
        target = replace(target, size_bits=16, high=ins.mnemonic == "v_fma_mixhi_f16")
    wave.put(target, Float(wave, "f32" if is_single else "f16").result(total, ins), ins)
