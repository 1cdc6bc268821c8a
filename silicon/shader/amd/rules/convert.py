"""Conversions of the vector ALU between floats, integers and packed integers.

Floats to integers truncate and saturate; NaN becomes 0. Source: RDNA3 ISA reference, "VOP1 Instructions", "VOP3 &
VOP3SD Instructions", V_CVT_*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.rules.integers import low_bits, saturated
from ringup.silicon.shader.amd.writer.arithmetic import FORMATS, Float, flushed, narrowed, widened
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Value, like

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave

    Step = Callable[[Float, Value], Value]


def to_integer(wave: Wave, value: Value, kind: str, *, signed: bool) -> Value:
    """Truncate floats to integers of `kind`, saturating; NaN becomes 0."""
    name, result = ("fptosi.sat" if signed else "fptoui.sat"), like(kind, value)
    return wave.code.intrinsic(name, value, result=result, overload=(result, value.type))


def pack(wave: Wave, low: Value, high: Value) -> Value:
    """Put two 16-bit values a lane into a dword a lane."""
    code = wave.code
    top = code.op("shl", code.resize(high, "i32"), wave.const(16, "i32"))
    return code.op("or", code.resize(low, "i32"), top)


# floats to integers ---------------------------------------------------------------------------------------------------


def _nearest(f: Float, value: Value) -> Value:
    """Round halves up. The sum is taken in double precision, so that it does not round."""
    wide = f.code.cast("fpext", value, "double")
    return f.code.intrinsic("floor", f.code.op("fadd", wide, f.code.real(0.5, wide.type)))


# Name: source, result, signed, the step before the conversion.
FROM_FLOAT: dict[str, tuple[str, str, bool, Step]] = {
    f"v_cvt_{'iu'[not signed]}{size}_{source}": (source, f"i{size}", signed, lambda f, value: value)
    for source, size in (("f64", 32), ("f32", 32), ("f16", 16))
    for signed in (True, False)
} | {
    "v_cvt_nearest_i32_f32": ("f32", "i32", True, _nearest),
    "v_cvt_floor_i32_f32": ("f32", "i32", True, lambda f, value: f.code.intrinsic("floor", value)),
}


def _from_float(type_: str, kind: str, signed: bool, first: Step) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = Float(wave, type_)
        value = first(unit, unit.source(ins.uses[0], ins))
        wave.put(ins.defs[0], to_integer(wave, value, kind, signed=signed), ins)

    return emit


for _name, _row in FROM_FLOAT.items():
    rule(_name)(_from_float(*_row))


# integers to floats ---------------------------------------------------------------------------------------------------

# Name: the source's lowest bit, count of bits, signed; result.
TO_FLOAT = {
    "v_cvt_f64_i32": (0, 32, True, "f64"), "v_cvt_f64_u32": (0, 32, False, "f64"), "v_cvt_f32_i32": (0, 32, True, "f32"),
    "v_cvt_f32_u32": (0, 32, False, "f32"), "v_cvt_f16_i16": (0, 16, True, "f16"), "v_cvt_f16_u16": (0, 16, False, "f16"),
} | {f"v_cvt_f32_ubyte{i}": (8 * i, 8, False, "f32") for i in range(4)}  # fmt: skip


def _to_float(low: int, count: int, signed: bool, type_: str) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        if wave.mode.round(FORMATS[type_].kind):
            wave.bail(ins)
            return
        unit, code, operand = Float(wave, type_), wave.code, ins.uses[0]
        value = wave.src(operand, "i16" if operand.size_bits == 16 else "i32", ins)
        if count == 8:
            value = low_bits(code, code.op("lshr", value, wave.const(low, "i32")), 8, signed=False)
        number = code.cast("sitofp" if signed else "uitofp", value, unit.fmt.work)
        wave.put(ins.defs[0], unit.result(number, ins), ins)

    return emit


for _name, _bits in TO_FLOAT.items():
    rule(_name)(_to_float(*_bits))


@rule("v_cvt_off_f32_i4")
def _offset(wave: Wave, ins: Instruction) -> None:
    """Convert four bits to sixteenths."""
    unit, code = Float(wave, "f32"), wave.code
    value = low_bits(code, wave.src(ins.uses[0], "i32", ins), 4, signed=True)
    number = code.op("fmul", code.cast("sitofp", value, "float"), unit.real(1 / 16))
    wave.put(ins.defs[0], unit.result(number, ins), ins)


# between floats -------------------------------------------------------------------------------------------------------


def _between(source: str, target: str, how: str) -> Rule:
    """Convert between float formats. Denormals of the source follow its format's mode, those of the result its own."""

    def emit(wave: Wave, ins: Instruction) -> None:
        if how == "fptrunc" and wave.mode.round(FORMATS[target].kind):
            wave.bail(ins)
            return
        value = Float(wave, source).source(ins.uses[0], ins)
        unit = Float(wave, target)
        # half is single precision until it is written
        same = value.element == unit.fmt.work
        wave.put(ins.defs[0], unit.result(value if same else wave.code.cast(how, value, unit.fmt.work), ins), ins)

    return emit


rule("v_cvt_f32_f16")(_between("f16", "f32", "fpext"))
rule("v_cvt_f16_f32")(_between("f32", "f16", "fptrunc"))
rule("v_cvt_f64_f32")(_between("f32", "f64", "fpext"))
rule("v_cvt_f32_f64")(_between("f64", "f32", "fptrunc"))


def truncated_half(wave: Wave, value: Value) -> Value:
    """Convert float to the bits of half, towards zero: round, and step back where that went away from zero.

    A finite value that is too large rounds to infinity; the step back gives the largest half.
    """
    code = wave.code
    near = narrowed(code, value)
    size = code.intrinsic("fabs", value)
    back = code.intrinsic("fabs", widened(code, near))
    finite = code.fcmp("one", size, code.real(float("inf"), value.type))
    beyond = code.op("and", finite, code.fcmp("ogt", back, size))
    # Far above the range of half the step back from infinity is still right.
    return code.select(beyond, code.op("sub", near, code.const(1, near.type)), near)


@rule("v_cvt_pk_rtz_f16_f32")
def _pack_truncated(wave: Wave, ins: Instruction) -> None:
    unit, half = Float(wave, "f32"), Float(wave, "f16")
    parts = []
    for one in ins.uses:
        raw = truncated_half(wave, unit.source(one, ins))
        # Packed results ignore omod.
        if ins.clamp:
            raw = half.closed(half.clamped(half.opened(raw)))
        parts.append(raw if half.denormals & 2 else flushed(wave.code, raw, half.fmt))
    wave.put(ins.defs[0], pack(wave, *parts), ins)


# packed integers ------------------------------------------------------------------------------------------------------


def _normalised(*, signed: bool) -> Step:
    """Make 16-bit fractions: -1..1 becomes -32767..32767, 0..1 becomes 0..65535, to the nearest."""
    scale = 32767.0 if signed else 65535.0

    def convert(f: Float, value: Value) -> Value:
        code, wave = f.code, f.wave
        wide = code.cast("fpext", value, "double")
        low, high = code.real(-1.0 if signed else 0.0, wide.type), code.real(1.0, wide.type)
        wide = code.select(code.fcmp("olt", wide, low), low, wide)
        wide = code.select(code.fcmp("ogt", wide, high), high, wide)
        # The product is exact in double precision.
        product = code.intrinsic("roundeven", code.op("fmul", wide, code.real(scale, wide.type)))
        return code.resize(to_integer(wave, product, "i32", signed=True), "i16")

    return convert


def _to_word(*, signed: bool) -> Step:
    def convert(f: Float, value: Value) -> Value:
        return saturated(f.code, to_integer(f.wave, value, "i32", signed=signed), "i16", signed=signed)

    return convert


NORMALISED = {"i16": True, "u16": False}
PACKED: dict[str, tuple[str, Step]] = {
    "v_cvt_pk_i16_f32": ("f32", _to_word(signed=True)),
    "v_cvt_pk_u16_f32": ("f32", _to_word(signed=False)),
} | {
    f"v_cvt_pk_norm_{name}_{source}": (source, _normalised(signed=signed))
    for name, signed in NORMALISED.items()
    for source in ("f16", "f32")
}


def _packed(type_: str, convert: Step) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = Float(wave, type_)
        wave.put(ins.defs[0], pack(wave, *(convert(unit, unit.source(one, ins)) for one in ins.uses)), ins)

    return emit


def _single(type_: str, convert: Step) -> Rule:
    def emit(wave: Wave, ins: Instruction) -> None:
        unit = Float(wave, type_)
        wave.put(ins.defs[0], convert(unit, unit.source(ins.uses[0], ins)), ins)

    return emit


for _name, (_source, _convert) in PACKED.items():
    rule(_name)(_packed(_source, _convert))
for _name, _signed in NORMALISED.items():
    rule(f"v_cvt_norm_{_name}_f16")(_single("f16", _normalised(signed=_signed)))


@rule("v_cvt_pk_u16_u32", "v_cvt_pk_i16_i32")
def _narrow(wave: Wave, ins: Instruction) -> None:
    signed = ins.mnemonic == "v_cvt_pk_i16_i32"
    parts = [saturated(wave.code, wave.src(one, "i32", ins), "i16", signed=signed) for one in ins.uses]
    wave.put(ins.defs[0], pack(wave, *parts), ins)


@rule("v_sat_pk_u8_i16")
def _narrow_words(wave: Wave, ins: Instruction) -> None:
    """Limit both words to 0..255 and pack them into 16 bits."""
    code = wave.code
    words = code.bitcast(wave.src(ins.uses[0], "i32", ins), f"<{2 * wave.lanes} x i16>")
    limited = code.intrinsic("smax", words, code.const(0, words.type))
    limited = code.intrinsic("smin", limited, code.const(255, words.type))
    whole = code.bitcast(limited, wave.row)
    both = code.op("or", whole, code.op("lshr", whole, wave.const(8, "i32")))
    wave.put(ins.defs[0], code.resize(both, "i16"), ins)


@rule("v_cvt_pk_u8_f32")
def _insert_byte(wave: Wave, ins: Instruction) -> None:
    """Convert S0 to a byte and put it into byte S1 of S2."""
    unit, code = Float(wave, "f32"), wave.code
    number, place, into = ins.uses
    byte = saturated(code, to_integer(wave, unit.source(number, ins), "i32", signed=False), "i8", signed=False)
    at = code.op("shl", code.op("and", wave.src(place, "i32", ins), wave.const(3, "i32")), wave.const(3, "i32"))
    mask = code.op("shl", wave.const(0xFF, "i32"), at)
    kept = code.op("and", wave.src(into, "i32", ins), code.invert(mask))
    wave.put(ins.defs[0], code.op("or", kept, code.op("shl", code.resize(byte, "i32"), at)), ins)


@rule("v_pack_b32_f16")
def _pack_halves(wave: Wave, ins: Instruction) -> None:
    wave.put(ins.defs[0], pack(wave, *(wave.src(one, "i16", ins) for one in ins.uses)), ins)
