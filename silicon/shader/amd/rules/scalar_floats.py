"""Floats of the scalar ALU, and the vector ALU's functions of scalars: what the vector ALU computes for one lane.

An f16 is in the low half of its register; a result clears the high half. Source: RDNA3.5 and RDNA4 ISA
references, "SALU Floating Point", "Pseudo-scalar Transcendental Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.compare import FLOATS
from ringup.silicon.shader.amd.rules.convert import to_integer, truncated_half
from ringup.silicon.shader.amd.rules.floats import ARITHMETIC, INTEGRAL, ORDER
from ringup.silicon.shader.amd.rules.functions import CURVES, FLUSHING, FUNCTIONS
from ringup.silicon.shader.amd.writer.arithmetic import FORMATS, Float, flushed, reads
from ringup.silicon.shader.amd.writer.wave import rule

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.arithmetic import Combine
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Value

_PLAIN = ("add", "sub", "mul", "fmac", "fmaak", "fmamk")
_SELECTED = ("min", "max", "min_num", "max_num", "minimum", "maximum")


def _single(wave: Wave, name: str, *, denormals: int | None = None) -> Float:
    """Return a format for vectors of one element."""
    return Float(wave, name, denormals=denormals, lanes=1)


def _raw(unit: Float, operand: Operand) -> Value:
    """Return the bits of a source as one element, with denormals flushed as MODE says."""
    code = unit.code
    value = code.bitcast(unit.wave.scalar(operand, unit.fmt.bits), f"<1 x {unit.fmt.bits}>")
    return value if unit.denormals & 1 else flushed(code, value, unit.fmt)


def _put(wave: Wave, operand: Operand, value: Value) -> None:
    """Write one element to a scalar register."""
    wave.put_scalar(operand, wave.code.resize(wave.code.extract(value, 0), "i32"))


def _computed(type_: str, function: Combine, *, rounds: bool, denormals: int | None = None) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        if (rounds or ins.omod) and wave.mode.round(FORMATS[type_].kind):
            wave.bail(ins)
            return
        unit = _single(wave, type_, denormals=denormals)
        value = function(unit, *(unit.opened(_raw(unit, one)) for one in reads(ins)))
        _put(wave, ins.defs[0], unit.result(value, ins))

    return emit


def _selected(type_: str, function: Combine) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = _single(wave, type_)
        _put(wave, ins.defs[0], function(unit, *(_raw(unit, one) for one in reads(ins))))

    return emit


def _compared(type_: str, how: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = _single(wave, type_)
        a, b = (unit.opened(_raw(unit, one)) for one in ins.uses)
        wave.set_scc(wave.code.extract(wave.code.fcmp(how, a, b), 0))

    return emit


for _type in ("f16", "f32"):
    for _name in _PLAIN if _type == "f32" else _PLAIN[:4]:
        rule(f"s_{_name}_{_type}")(_computed(_type, ARITHMETIC[_name], rounds=True))
    for _name, _function in INTEGRAL.items():
        rule(f"s_{_name}_{_type}")(_computed(_type, _function, rounds=False))
    for _name in _SELECTED:
        rule(f"s_{_name}_{_type}")(_selected(_type, ORDER[_name]))
    for _name, _how in FLOATS.items():
        if _name not in ("f", "t"):
            rule(f"s_cmp_{_name}_{_type}")(_compared(_type, _how))
    for _name, _function in (FUNCTIONS | CURVES).items():
        if _name not in ("sin", "cos"):
            _denormals = 0 if _type == "f32" and _name in FLUSHING else None
            rule(f"v_s_{_name}_{_type}")(_computed(_type, _function, rounds=False, denormals=_denormals))


# conversions ----------------------------------------------------------------------------------------------------------


def _to_float(*, signed: bool) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        if wave.mode.round("float"):
            wave.bail(ins)
            return
        unit, code = _single(wave, "f32"), wave.code
        value = code.bitcast(wave.scalar(ins.uses[0], "i32"), "<1 x i32>")
        number = code.cast("sitofp" if signed else "uitofp", value, "float")
        _put(wave, ins.defs[0], unit.result(number, ins))

    return emit


def _from_float(*, signed: bool) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = _single(wave, "f32")
        value = unit.opened(_raw(unit, ins.uses[0]))
        _put(wave, ins.defs[0], to_integer(wave, value, "i32", signed=signed))

    return emit


rule("s_cvt_f32_i32")(_to_float(signed=True))
rule("s_cvt_f32_u32")(_to_float(signed=False))
rule("s_cvt_i32_f32")(_from_float(signed=True))
rule("s_cvt_u32_f32")(_from_float(signed=False))


@rule("s_cvt_f16_f32")
def _narrow(wave: Wave, ins: Instruction) -> None:
    if wave.mode.round("half"):
        wave.bail(ins)
        return
    unit = _single(wave, "f32")
    _put(wave, ins.defs[0], _single(wave, "f16").result(unit.opened(_raw(unit, ins.uses[0])), ins))


@rule("s_cvt_f32_f16", "s_cvt_hi_f32_f16")
def _widen(wave: Wave, ins: Instruction) -> None:
    code, half = wave.code, _single(wave, "f16")
    whole = wave.scalar(ins.uses[0], "i32")
    if ins.mnemonic == "s_cvt_hi_f32_f16":
        whole = code.op("lshr", whole, code.const(16, "i32"))
    raw = code.bitcast(code.resize(whole, "i16"), "<1 x i16>")
    raw = raw if half.denormals & 1 else flushed(code, raw, half.fmt)
    _put(wave, ins.defs[0], _single(wave, "f32").result(half.opened(raw), ins))


@rule("s_cvt_pk_rtz_f16_f32")
def _pack_truncated(wave: Wave, ins: Instruction) -> None:
    code, unit, half = wave.code, _single(wave, "f32"), _single(wave, "f16")
    parts = []
    for one in ins.uses:
        raw = truncated_half(wave, unit.opened(_raw(unit, one)))
        raw = raw if half.denormals & 2 else flushed(code, raw, half.fmt)
        parts.append(code.resize(code.extract(raw, 0), "i32"))
    wave.put_scalar(ins.defs[0], code.op("or", parts[0], code.op("shl", parts[1], code.const(16, "i32"))))
