"""Compares of the vector ALU: a bit a lane, to VCC or an SGPR (v_cmp) or to EXEC (v_cmpx).

Source: RDNA3 ISA reference, "VOPC Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.integers import put_flags, source
from ringup.silicon.shader.amd.writer.arithmetic import FORMATS, Float, is_nan, is_signalling
from ringup.silicon.shader.amd.writer.wave import rule

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Value

FLOATS = {
    "f": "false", "lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord", "u": "uno", "nge": "ult",
    "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge", "t": "true",
}  # fmt: skip
INTEGERS = {"lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "ne": "ne", "ge": "ge"}
CONSTANTS = {"f": 0, "t": 1}


def _put(wave: Wave, ins: Instruction, flags: Value) -> None:
    """Write the result. On CDNA a comparison that writes EXEC writes VCC or an SGPR too."""
    for one in ins.defs:
        put_flags(wave, one, flags, ins)


def _float_compare(type_: str, how: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = Float(wave, type_)
        a, b = (unit.source(one, ins) for one in ins.uses)
        _put(wave, ins, wave.code.fcmp(how, a, b))

    return emit


def _integer_compare(how: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        a, b = (source(wave, one, ins) for one in ins.uses)
        _put(wave, ins, wave.code.icmp(how, a, b))

    return emit


def _constant(value: int) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        _put(wave, ins, wave.code.const(-value, wave.bools))

    return emit


def _class(type_: str) -> Rule:
    """Test the class of S0 against the mask of ten classes in S1; MODE flushes nothing."""

    def emit(wave: Wave, ins: Instruction) -> None:
        unit, code, fmt = Float(wave, type_, denormals=3), wave.code, FORMATS[type_]
        number, mask = ins.uses
        raw = unit.raw(number, ins)
        size = code.op("and", raw, unit.const(fmt.sign - 1))
        negative = code.icmp("slt", raw, unit.const(0))

        def below(limit: int) -> Value:
            return code.icmp("ult", size, unit.const(limit))

        # Bit number of the class: negative numbers count down from 5 (-0) to 2 (-inf), positive ones up from 6 (+0) to
        # 9.
        rank = wave.const(3, "i32")
        for step, limit in ((2, fmt.infinity), (1, 1 << fmt.mantissa), (0, 1)):
            rank = code.select(below(limit), wave.const(step, "i32"), rank)
        signed = code.select(
            negative, code.op("sub", wave.const(5, "i32"), rank), code.op("add", wave.const(6, "i32"), rank)
        )
        bit = code.select(is_nan(code, raw, fmt), wave.const(1, "i32"), signed)
        bit = code.select(is_signalling(code, raw, fmt), wave.const(0, "i32"), bit)
        wanted = code.resize(wave.src(mask, "i16" if mask.size_bits == 16 else "i32", ins), "i32")
        _put(wave, ins, code.cast("trunc", code.op("lshr", wanted, bit), "i1"))

    return emit


for _type in FORMATS:
    for _name, _how in FLOATS.items():
        rule(f"v_cmp_{_name}_{_type}", f"v_cmpx_{_name}_{_type}")(_float_compare(_type, _how))
    rule(f"v_cmp_class_{_type}", f"v_cmpx_class_{_type}")(_class(_type))
for _sign in "iu":
    for _size in (16, 32, 64):
        for _name, _how in INTEGERS.items():
            _full = _how if _how in ("eq", "ne") else f"{'s' if _sign == 'i' else 'u'}{_how}"
            rule(f"v_cmp_{_name}_{_sign}{_size}", f"v_cmpx_{_name}_{_sign}{_size}")(_integer_compare(_full))
        for _name, _value in CONSTANTS.items():
            rule(f"v_cmp_{_name}_{_sign}{_size}", f"v_cmpx_{_name}_{_sign}{_size}")(_constant(_value))
