"""Conversions of CDNA4 from and to floats of eight, six and four bits, with and without a scale, and to 16-bit floats.

A scale is the exponent of an f32: conversions to small floats divide by 2**(exponent - 127), conversions from them
multiply; an exponent of 255 gives NaN. What is narrowed is computed in f64, in which numbers and their quotients are
exact. Source: CDNA4 ISA reference, "V_CVT_SCALEF32_*", "V_CVT_SR_BF16_F32". GUESS: see `values/small_floats.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.decode import selected_byte
from ringup.silicon.shader.amd.decoding.generations import CDNA4, OCP
from ringup.silicon.shader.amd.rules.eight_bits import FORMATS, SMALLER, Small, widened_small
from ringup.silicon.shader.amd.writer.arithmetic import Float, as_bits, flushed, from_brain, narrowed, to_brain, widened
from ringup.silicon.shader.amd.writer.wave import own_rule, rule
from ringup.silicon.shader.host.emitter import Code, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave

FORMS = FORMATS[OCP] | SMALLER
WIDE_FRACTIONS = {"f32": 23, "f16": 10, "bf16": 7}
_FRACTION, _BIAS, _INFINITY = 52, 1023, 0x7FF << 52
_SCALE_BIAS, _NAN_SCALE = 127, 255
# Of a random number the next one. Source: CDNA4 ISA reference, "V_PRNG_B32".
_FEEDBACK = 197
_NARROWING = re.compile(r"v_cvt_scalef32_(sr_)?(pk_|pk32_|2xpk16_)?(fp8|bf8|fp6|bf6|fp4)_(f32|f16|bf16)")
_WIDENING = re.compile(r"v_cvt_scalef32_(pk_|pk32_)?(f32|f16|bf16)_(fp8|bf8|fp6|bf6|fp4)")


class Rounding(NamedTuple):
    """How a number is rounded: to nearest even, or truncated after so many random bits are added below the last
    place. What is too large becomes infinity or NaN unless it `saturates`.
    """

    saturates: bool
    noise_bits: int = 0


def random_after(wave: Wave, seed: Value) -> Value:
    """Return the next number of the shift register."""
    code = wave.code
    fed = code.op("and", code.op("ashr", seed, wave.const(31, "i32")), wave.const(_FEEDBACK, "i32"))
    return code.op("xor", code.op("shl", seed, wave.const(1, "i32")), fed)


# ---- to a small format


def _rounded_size(code: Code, size: Value, fraction: int, bias: int, noise: Value | None, noise_bits: int) -> Value:
    """Return f64 magnitudes in units of a format's last place (f64). Denormals have that of the smallest normal."""
    raw = as_bits(code, size)

    def const(value: int) -> Value:
        return code.const(value, raw.type)

    field = code.intrinsic("umax", code.op("lshr", raw, const(_FRACTION)), const(_BIAS + 1 - bias))
    inverse = code.op("shl", code.op("sub", const(2 * _BIAS + fraction), field), const(_FRACTION))
    scaled = code.op("fmul", size, code.bitcast(inverse, size.type))
    if noise is None:
        return code.intrinsic("rint", scaled)
    added = code.cast("uitofp", code.op("lshr", noise, code.const(32 - noise_bits, noise.type)), "double")
    finer = code.intrinsic("floor", code.op("fmul", scaled, code.real(2.0**noise_bits, size.type)))
    whole = code.op("fmul", code.op("fadd", finer, added), code.real(2.0**-noise_bits, size.type))
    return code.intrinsic("floor", whole)


def _narrower(code: Code, form: Small, how: Rounding, lanes: int) -> str:
    """Define the helper that converts f64 magnitudes to a format (i32, without a sign); return its name."""
    name = f"narrowed.{form.bits}.{form.fraction}.{int(how.saturates)}.{how.noise_bits}.w{lanes}"
    if name in code.declarations:
        return name
    body, double, dword = Code(), f"<{lanes} x double>", f"<{lanes} x i32>"
    size, noise = Value("%size", double), Value("%noise", dword) if how.noise_bits else None
    raw = as_bits(body, size)
    lowest = body.const(_BIAS + 1 - form.bias, raw.type)
    field = body.intrinsic("umax", body.op("lshr", raw, body.const(_FRACTION, raw.type)), lowest)
    whole = _rounded_size(body, size, form.fraction, form.bias, noise, how.noise_bits)
    # An infinity or a NaN is no integer.
    whole = body.intrinsic("minnum", whole, body.real(2.0 ** (form.fraction + 2), double))
    above = body.op("shl", body.op("sub", field, lowest), body.const(form.fraction, raw.type))
    found = body.op("add", body.cast("trunc", above, "i32"), body.cast("fptosi", whole, "i32"))
    overflow = form.largest if how.saturates or form.bits < 8 else form.overflow
    too_large = body.icmp("ugt", found, body.const(form.largest, dword))
    found = body.select(too_large, body.const(overflow, dword), found)
    nan = form.nan - form.has_infinity if form.bits == 8 else form.largest
    is_nan = body.icmp("ugt", raw, body.const(_INFINITY, raw.type))
    found = body.select(is_nan, body.const(nan, dword), found)
    body.line(f"ret {dword} {found.text}")
    arguments = ", ".join(f"{one.type} {one.text}" for one in (size, noise) if one is not None)
    attributes = 'nounwind noinline "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    for needed, text in body.declarations.items():
        code.define(needed, text)
    head = f"define internal {dword} @{name}({arguments}) {attributes} {{"
    code.define(name, "\n".join([head, *body.lines, "}"]))
    return name


def _narrow(wave: Wave, form: Small, wide: Wide, how: Rounding, scale: Scale | None, noise: Value | None) -> Value:
    """Return numbers in a small format (i32)."""
    code = wave.code
    number, is_negative = wide.number, wide.is_negative
    if scale is not None:
        number, is_negative = scale.divided(code, wide)
    size = code.intrinsic("fabs", number)
    arguments = (size,) if noise is None else (size, noise)
    found = code.call(_narrower(code, form, how, wave.lanes), wave.row, *arguments)
    sign = code.select(is_negative, wave.const(form.sign, "i32"), wave.const(0, "i32"))
    return code.op("or", found, sign)


class Wide(NamedTuple):
    """An element of 16 or 32 bits: its number as f64, and its sign (i1), which a NaN has too."""

    number: Value
    is_negative: Value


def _opened(wave: Wave, raw: Value, type_: str) -> Wide:
    """Return an element from its bits, which are the low ones. MODE may flush denormals of f32."""
    code = wave.code
    if type_ == "f32":
        unit = Float(wave, "f32")
        single = code.bitcast(raw if unit.denormals & 1 else flushed(code, raw, unit.fmt), wave.vec("float"))
        sign = raw
    else:
        half = code.resize(raw, "i16")
        single = widened(code, half) if type_ == "f16" else from_brain(code, half)
        sign = code.op("shl", raw, wave.const(16, "i32"))
    return Wide(code.cast("fpext", single, "double"), code.icmp("slt", sign, wave.const(0, "i32")))


class Scale(NamedTuple):
    """A scale: its exponent (i64), and where it is NaN (i1)."""

    exponent: Value
    is_nan: Value

    def _power(self, code: Code, *, negative: bool) -> Value:
        """Return 2 to the power of the exponent, or of its negative, as f64."""
        if negative:
            field = code.op("sub", code.const(_BIAS + _SCALE_BIAS, self.exponent.type), self.exponent)
        else:
            field = code.op("add", self.exponent, code.const(_BIAS - _SCALE_BIAS, self.exponent.type))
        return code.cast("bitcast", code.op("shl", field, code.const(_FRACTION, field.type)), "double")

    def divided(self, code: Code, wide: Wide) -> tuple[Value, Value]:
        """Return a number divided by the scale, and its sign. A NaN that the scale makes is positive."""
        number = code.op("fmul", wide.number, self._power(code, negative=True))
        made = code.op("and", self.is_nan, code.fcmp("ord", wide.number, wide.number))
        return (
            code.select(self.is_nan, code.real(float("nan"), number.type), number),
            code.op("and", wide.is_negative, code.invert(made)),
        )

    def multiplied(self, code: Code, number: Value) -> Value:
        """Return a small float (f32) times the scale, rounded to f32. All NaNs are the same."""
        wide = code.cast("fpext", number, "double")
        found = code.cast("fptrunc", code.op("fmul", wide, self._power(code, negative=False)), "float")
        is_nan = code.op("or", self.is_nan, code.fcmp("uno", number, number))
        return code.select(is_nan, code.bitcast(code.const(0x7FC0_0000, f"<{found.lanes} x i32>"), found.type), found)


def _scale(wave: Wave, ins: Instruction) -> Scale:
    code = wave.code
    raw = wave.src(_sources(ins)[-1], "i32", ins)
    exponent = code.op("and", code.op("lshr", raw, wave.const(23, "i32")), wave.const(0xFF, "i32"))
    return Scale(code.resize(exponent, "i64"), code.icmp("eq", exponent, wave.const(_NAN_SCALE, "i32")))


# ---- operands


def _sources(ins: Instruction) -> list[Operand]:
    """Return the sources without the destination."""
    return [one for one in ins.uses if one.field != "vdst"]


def _dwords(wave: Wave, operand: Operand, ins: Instruction) -> list[Value]:
    """Return the dwords of a source, with its signs."""
    code = wave.code
    if operand.size_bits > 64:
        return [wave.vgpr(operand.index + at) for at in range(operand.size_bits // 32)]
    if operand.size_bits == 64:
        pair = wave.src(operand, "i64", ins)
        return [code.resize(pair, "i32"), code.resize(code.op("lshr", pair, wave.const(32, "i64")), "i32")]
    raw = wave.src(replace(operand, neg=False, abs=False), "i32", ins)
    # Two halves have a sign each.
    sign = 0x8000_8000 if operand.type in ("f16", "bf16") else 0x8000_0000
    if operand.abs:
        raw = code.op("and", raw, wave.const(~sign & 0xFFFF_FFFF, "i32"))
    return [code.op("xor", raw, wave.const(sign, "i32")) if operand.neg else raw]


def _elements(wave: Wave, dwords: Sequence[Value], type_: str) -> list[Value]:
    """Return the elements of dwords, in the low bits."""
    if type_ == "f32":
        return list(dwords)
    high = wave.const(16, "i32")
    return [part for one in dwords for part in (one, wave.code.op("lshr", one, high))]


def _put_all(wave: Wave, ins: Instruction, dwords: Sequence[Value]) -> None:
    for at, one in enumerate(dwords):
        wave.set_vgpr(ins.defs[0].index + at, one)


def _put_part(wave: Wave, ins: Instruction, codes: Value, at: int, bits: int) -> None:
    """Replace a part of the destination."""
    code, mask = wave.code, ((1 << bits) - 1) << at
    old = code.op("and", wave.vgpr(ins.defs[0].index), wave.const(~mask & 0xFFFF_FFFF, "i32"))
    wave.put(ins.defs[0], code.op("or", old, code.op("shl", codes, wave.const(at, "i32"))), ins)


def unpacked(code: Code, dwords: Sequence[Value], bits: int) -> list[Value]:
    """Return the numbers of so many bits in dwords."""
    found = []
    for first in range(0, 32 * len(dwords), bits):
        word, low = divmod(first, 32)
        kind = dwords[word].type
        part = code.op("lshr", dwords[word], code.const(low, kind))
        if low + bits > 32:
            part = code.op("or", part, code.op("shl", dwords[word + 1], code.const(32 - low, kind)))
        found.append(code.op("and", part, code.const((1 << bits) - 1, kind)))
    return found


def packed(code: Code, codes: Sequence[Value], bits: int) -> list[Value]:
    """Return numbers of so many bits in dwords."""
    kind = codes[0].type
    found = [code.const(0, kind)] * (len(codes) * bits // 32)
    for at, one in enumerate(codes):
        word, low = divmod(at * bits, 32)
        found[word] = code.op("or", found[word], code.op("shl", one, code.const(low, kind)))
        if low + bits > 32:
            found[word + 1] = code.op("lshr", one, code.const(32 - low, kind))
    return found


# ---- with a scale


def _narrowing(small: str, type_: str, count: str, *, stochastic: bool) -> Rule:
    form = FORMS[small]
    noise_bits = WIDE_FRACTIONS[type_] - form.fraction if stochastic else 0

    def given(wave: Wave, ins: Instruction) -> list[Value]:
        sources = _sources(ins)[: -2 if stochastic else -1]
        parts = [_elements(wave, _dwords(wave, one, ins), type_) for one in sources]
        if count == "2xpk16_":
            return [one for pair in zip(*parts, strict=True) for one in pair]
        return [one for part in parts for one in part][: None if count else 1]

    def emit(wave: Wave, ins: Instruction) -> None:
        code, scale = wave.code, _scale(wave, ins)
        how = Rounding(wave.mode.fp16_ovfl, noise_bits)
        noise = wave.src(_sources(ins)[-2], "i32", ins) if stochastic else None
        codes = []
        for raw in given(wave, ins):
            codes.append(_narrow(wave, form, _opened(wave, raw, type_), how, scale, noise))
            # Each element has a random number of its own, from the one before.
            noise = None if noise is None else random_after(wave, noise)
        opsel = ins.fields.get("opsel", 0)
        if len(codes) > 2:
            _put_all(wave, ins, packed(code, codes, form.bits))
        elif not count:
            _put_part(wave, ins, codes[0], 8 * (opsel >> 2), 8)
        else:
            both = code.op("or", codes[0], code.op("shl", codes[1], wave.const(form.bits, "i32")))
            at = 8 * (opsel >> 2) if form.bits == 4 else 16 * (opsel >> 3)
            _put_part(wave, ins, both, at, 2 * form.bits)

    return emit


def _widening(small: str, type_: str, count: str) -> Rule:
    form = FORMS[small]

    def codes_of(wave: Wave, ins: Instruction) -> list[Value]:
        dwords, opsel = _dwords(wave, _sources(ins)[0], ins), ins.fields.get("opsel", 0)
        if count == "pk32_":
            return unpacked(wave.code, dwords, form.bits)
        place = 2 * (opsel & 1) if count and form.bits == 8 else opsel & 3
        moved = wave.code.op("lshr", dwords[0], wave.const(8 * place, "i32"))
        return unpacked(wave.code, [moved], form.bits)[: 2 if count else 1]

    def emit(wave: Wave, ins: Instruction) -> None:
        code, scale = wave.code, _scale(wave, ins)
        numbers = [scale.multiplied(code, widened_small(code, one, form)) for one in codes_of(wave, ins)]
        if type_ == "f32":
            _put_all(wave, ins, [as_bits(code, one) for one in numbers])
            return
        halves = [code.resize(_half(code, one, type_), "i32") for one in numbers]
        if not count:
            _put_part(wave, ins, halves[0], 16 * (ins.fields.get("opsel", 0) >> 3), 16)
            return
        _put_all(wave, ins, packed(code, halves, 16))

    return emit


def _half(code: Code, number: Value, type_: str) -> Value:
    """Return floats as bits of 16-bit ones, to nearest even. All NaNs are the same."""
    found = narrowed(code, number) if type_ == "f16" else to_brain(code, number)
    nan = code.const(0x7E00 if type_ == "f16" else 0x7FC0, found.type)
    return code.select(code.fcmp("uno", number, number), nan, found)


def _register() -> None:
    for row in isa.target(CDNA4.facts).instructions:
        found = _NARROWING.fullmatch(row.mnemonic)
        if found is not None:
            rule(row.mnemonic)(_narrowing(found[3], found[4], found[2] or "", stochastic=bool(found[1])))
        found = _WIDENING.fullmatch(row.mnemonic)
        if found is not None:
            rule(row.mnemonic)(_widening(found[3], found[2], found[1] or ""))


_register()


# ---- without one


def _number(wave: Wave, operand: Operand, ins: Instruction) -> Wide:
    return _opened(wave, wave.src(operand, "i32", ins), "f32")


def _pack(small: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        how = Rounding(wave.mode.fp16_ovfl)
        low, high = (_narrow(wave, FORMS[small], _number(wave, one, ins), how, None, None) for one in _sources(ins))
        both = wave.code.op("or", low, wave.code.op("shl", high, wave.const(8, "i32")))
        _put_part(wave, ins, both, 16 * (ins.fields["opsel"] >> 3), 16)

    return emit


def _stochastic(small: str) -> Rule:
    form = FORMS[small]

    def emit(wave: Wave, ins: Instruction) -> None:
        number, noise = _sources(ins)
        how = Rounding(wave.mode.fp16_ovfl, WIDE_FRACTIONS["f32"] - form.fraction)
        found = _narrow(wave, form, _number(wave, number, ins), how, None, wave.src(noise, "i32", ins))
        _put_part(wave, ins, found, 8 * selected_byte(ins), 8)

    return emit


for _small in ("fp8", "bf8"):
    own_rule(CDNA4, f"v_cvt_pk_{_small}_f32")(_pack(_small))
    own_rule(CDNA4, f"v_cvt_sr_{_small}_f32")(_stochastic(_small))


def _to_halves(type_: str) -> Rule:
    """Return the conversion of two f32 to a pair of 16-bit floats."""

    def emit(wave: Wave, ins: Instruction) -> None:
        code, unit, found = wave.code, Float(wave, "f32"), []
        for one in ins.uses:
            number = unit.source(one, ins)
            found.append(code.resize(_half(code, unit.clamped(number) if ins.clamp else number, type_), "i32"))
        wave.put(ins.defs[0], packed(code, found, 16)[0], ins)

    return emit


def _stochastic_half(type_: str) -> Rule:
    fraction, bias = WIDE_FRACTIONS[type_], {"f16": 15, "bf16": 127}[type_]
    noise_bits = WIDE_FRACTIONS["f32"] - fraction

    def emit(wave: Wave, ins: Instruction) -> None:
        code, (number, noise) = wave.code, _sources(ins)
        wide = _number(wave, number, ins)
        size = code.intrinsic("fabs", wide.number)
        whole = _rounded_size(code, size, fraction, bias, wave.src(noise, "i32", ins), noise_bits)
        raw = as_bits(code, size)
        lowest = code.const(_BIAS + 1 - bias, raw.type)
        field = code.intrinsic("umax", code.op("lshr", raw, code.const(_FRACTION, raw.type)), lowest)
        place = code.op("shl", code.op("sub", field, code.const(fraction, raw.type)), code.const(_FRACTION, raw.type))
        moved = code.cast("fptrunc", code.op("fmul", whole, code.bitcast(place, size.type)), "float")
        is_finite = code.icmp("ult", raw, code.const(_INFINITY, raw.type))
        moved = code.select(is_finite, moved, code.cast("fptrunc", size, "float"))
        half = code.resize(_half(code, moved, type_), "i32")
        sign = code.select(wide.is_negative, wave.const(0x8000, "i32"), wave.const(0, "i32"))
        # A NaN has no sign.
        is_nan = code.icmp("ugt", raw, code.const(_INFINITY, raw.type))
        half = code.op("or", half, code.select(is_nan, wave.const(0, "i32"), sign))
        _put_part(wave, ins, half, 16 * (ins.fields["opsel"] >> 3), 16)

    return emit


for _type in ("f16", "bf16"):
    rule(f"v_cvt_pk_{_type}_f32")(_to_halves(_type))
    rule(f"v_cvt_sr_{_type}_f32")(_stochastic_half(_type))


@rule("v_cvt_f32_bf16")
def _from_brain(wave: Wave, ins: Instruction) -> None:
    """Convert bf16, the low half of a register, exactly. It is the high half of the result."""
    code, operand = wave.code, ins.uses[0]
    raw = wave.src(replace(operand, neg=False, abs=False), "i32", ins)
    raw = wave.modified(code.op("shl", raw, wave.const(16, "i32")), neg=operand.neg, abs_=operand.abs)
    wave.put(ins.defs[0], Float(wave, "f32").result_bits(raw, ins), ins)
