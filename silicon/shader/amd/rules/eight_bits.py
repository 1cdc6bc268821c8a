"""Floats of eight bits: FP8 has four exponent bits and no infinity, BF8 has five. Conversions and dot products.

Source: RDNA4 ISA reference, "8-bit Math", "OPSEL with FP8 and BF8 Conversions", "V_CVT_PK_FP8_F32",
"V_DOT4_F32_FP8_BF8".
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.decode import selected_byte
from ringup.silicon.shader.amd.decoding.generations import FNUZ, OCP
from ringup.silicon.shader.amd.writer.arithmetic import Float, as_bits
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Value, like

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Code


class Small(NamedTuple):
    """A format of eight bits or fewer: bits of the fraction, bias, the largest number's bits, NaN's bits, all bits.

    Where a zero has no sign (FNUZ), NaN has the bits of -0, and nothing is infinite. Those of six and four bits have
    neither: their largest number has all bits of a magnitude.
    """

    fraction: int
    bias: int
    largest: int
    nan: int = 0x7F
    bits: int = 8

    @property
    def overflow(self) -> int:
        """The bits of what is too large: infinity, or NaN."""
        return self.largest + 1

    @property
    def signs_zero(self) -> bool:
        """Whether a zero has a sign."""
        return self.nan != MINUS_ZERO

    @property
    def has_infinity(self) -> bool:
        """Whether it has infinities."""
        return self.largest + 1 < self.nan and self.bits == 8

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << self.bits - 1


MINUS_ZERO = 0x80
# By the row of a generation, and by the name that mnemonics have.
FORMATS = {
    OCP: {"fp8": Small(3, 7, 0x7E), "bf8": Small(2, 15, 0x7B)},
    FNUZ: {"fp8": Small(3, 8, 0x7F, MINUS_ZERO), "bf8": Small(2, 16, 0x7F, MINUS_ZERO)},
}
NAMES = ("fp8", "bf8")
SMALLER = {"fp6": Small(3, 1, 0x1F, bits=6), "bf6": Small(2, 3, 0x1F, bits=6), "fp4": Small(1, 1, 7, bits=4)}
_F32_FRACTION, _F32_BIAS, _INFINITY = 23, 127, 0x7F80_0000


def widened_small(code: Code, octet: Value, form: Small) -> Value:
    """Convert numbers (i32 a lane, with zeroes above) to floats, exactly."""

    def const(value: int) -> Value:
        return code.const(value, octet.type)

    size = code.op("and", octet, const(form.sign - 1))
    raw = code.op("shl", size, const(_F32_FRACTION - form.fraction))
    # An exponent is so much less than a float's; the product makes denormals normal.
    scale = code.real(2.0 ** (_F32_BIAS - form.bias), like("float", octet))
    number = as_bits(code, code.op("fmul", code.bitcast(raw, scale.type), scale))
    special = const(_INFINITY | 1 << 22)
    sign = code.op("shl", code.op("and", octet, const(form.sign)), const(32 - form.bits))
    if not form.signs_zero:
        number = code.select(code.icmp("eq", octet, const(form.nan)), special, code.op("or", number, sign))
        return code.bitcast(number, scale.type)
    if form.has_infinity:
        special = code.select(code.icmp("eq", size, const(form.overflow)), const(_INFINITY), special)
    if form.largest < form.sign - 1:
        number = code.select(code.icmp("ugt", size, const(form.largest)), special, number)
    return code.bitcast(code.op("or", number, sign), scale.type)


def narrowed_octet(code: Code, raw: Value, form: Small, *, rounds: bool, saturates: bool) -> Value:
    """Convert floats (their bits) to eight bits: to nearest even if it `rounds`, else towards zero.

    What is too large becomes infinity or FP8's NaN, or the largest number if it `saturates`.
    """

    def const(value: int) -> Value:
        return code.const(value, raw.type)

    size = code.op("and", raw, const(0x7FFF_FFFF))
    shift = _F32_FRACTION - form.fraction
    lowest = _F32_BIAS - form.bias + 1  # a float's exponent field for the smallest normal number
    field = code.op("lshr", size, const(_F32_FRACTION))
    # Below that exponent the last place keeps its weight: the significand is shifted further.
    further = code.intrinsic("usub.sat", const(lowest), code.intrinsic("umax", field, const(1)))
    further = code.intrinsic("umin", further, const(31 - shift))
    fraction = code.op("and", size, const((1 << _F32_FRACTION) - 1))
    hidden = code.icmp("ne", field, const(0))
    significand = code.op("or", fraction, code.select(hidden, const(1 << _F32_FRACTION), const(0)))
    by = code.op("add", further, const(shift))
    # A number that is too small for this shift is less than half of the last place.
    kept = code.op("lshr", significand, by)
    if rounds:
        half = code.op("sub", code.op("shl", const(1), code.op("sub", by, const(1))), const(1))
        kept = code.op("lshr", code.op("add", code.op("add", significand, half), code.op("and", kept, const(1))), by)
    is_normal = code.icmp("uge", field, const(lowest))
    base = code.op("shl", code.op("sub", field, const(lowest)), const(form.fraction))
    found = code.select(is_normal, code.op("add", base, kept), kept)
    too_large = code.icmp("ugt", found, const(form.largest))
    huge = code.icmp("uge", size, const(_INFINITY))
    too_large = code.op("or", too_large, huge)
    found = code.select(too_large, const(form.largest if saturates else form.overflow), found)
    sign = code.op("and", code.op("lshr", raw, const(24)), const(0x80))
    if not form.signs_zero:
        sign = code.select(code.icmp("eq", found, const(0)), const(0), sign)
    is_nan = code.icmp("ugt", size, const(_INFINITY))
    found = code.op("or", code.select(is_nan, const(form.nan), found), sign)
    return found if form.signs_zero else code.select(is_nan, const(form.nan), found)


def _octet(code: Code, whole: Value, at: int) -> Value:
    moved = code.op("lshr", whole, code.const(8 * at, whole.type))
    return code.op("and", moved, code.const(0xFF, whole.type))


def _form(wave: Wave, name: str) -> Small:
    return FORMATS[wave.generation.octets][name]


def _convert_one(wave: Wave, ins: Instruction, name: str) -> None:
    whole = wave.src(ins.uses[0], "i32", ins)
    octet = _octet(wave.code, whole, selected_byte(ins))
    number = as_bits(wave.code, widened_small(wave.code, octet, _form(wave, name)))
    wave.put(ins.defs[0], Float(wave, "f32").result_bits(number, ins), ins)


def _convert_two(wave: Wave, ins: Instruction, name: str) -> None:
    """Convert two bytes into two registers."""
    code = wave.code
    operand = ins.uses[0]
    whole = wave.src(operand, "i16", ins) if operand.size_bits == 16 else wave.src(operand, "i32", ins)
    whole = code.resize(whole, "i32")
    numbers = (as_bits(code, widened_small(code, _octet(code, whole, at), _form(wave, name))) for at in range(2))
    low, high = (Float(wave, "f32").result_bits(one, ins) for one in numbers)
    wide = code.op("shl", code.resize(high, "i64"), wave.const(32, "i64"))
    wave.put(ins.defs[0], code.op("or", code.resize(low, "i64"), wide), ins)


def _packed(wave: Wave, ins: Instruction, name: str) -> Value:
    """Return two sources as bytes."""
    code = wave.code
    low, high = (
        narrowed_octet(code, wave.src(one, "i32", ins), _form(wave, name), rounds=True, saturates=wave.mode.fp16_ovfl)
        for one in ins.uses
        if one.direction == "use"
    )
    return code.op("or", low, code.op("shl", high, wave.const(8, "i32")))


def _pack(wave: Wave, ins: Instruction, name: str) -> None:
    """Write two bytes to a half of the destination. On GCN the destination is a dword, and op_sel selects the half."""
    code, both = wave.code, _packed(wave, ins, name)
    if not wave.generation.is_gcn:
        wave.put(ins.defs[0], code.resize(both, "i16"), ins)
        return
    place = 16 * (ins.fields["opsel"] >> 3 & 1)
    old = code.op("and", wave.vgpr(ins.defs[0].index), wave.const(0xFFFF_0000 >> place, "i32"))
    wave.put(ins.defs[0], code.op("or", old, code.op("shl", both, wave.const(place, "i32"))), ins)


def _stochastic(wave: Wave, ins: Instruction, name: str) -> None:
    """Add the top bits of src1 below the last place, and truncate. GUESS: see `values/eight_bits.py`."""
    code, (number, noise) = wave.code, (one for one in ins.uses if one.direction == "use")
    form, raw, random = _form(wave, name), wave.src(number, "i32", ins), wave.src(noise, "i32", ins)
    shift = 32 - (_F32_FRACTION - form.fraction)
    special = code.op("and", raw, wave.const(_INFINITY, "i32"))
    finite = code.icmp("ne", special, wave.const(_INFINITY, "i32"))
    moved = code.op("add", raw, code.op("lshr", random, wave.const(shift, "i32")))
    raw = code.select(finite, moved, raw)
    octet = narrowed_octet(code, raw, form, rounds=False, saturates=wave.mode.fp16_ovfl)
    place = 8 * selected_byte(ins)
    old = code.op("and", wave.vgpr(ins.defs[0].index), wave.const(~(0xFF << place) & 0xFFFF_FFFF, "i32"))
    wave.put(ins.defs[0], code.op("or", old, code.op("shl", octet, wave.const(place, "i32"))), ins)


def _dot4(wave: Wave, ins: Instruction, first: str, second: str) -> None:
    """Add four products to src2, one after the other, and round each sum to nearest even."""
    code, (a, b, c) = wave.code, ins.uses
    left, right = wave.src(a, "i32", ins), wave.src(b, "i32", ins)
    total = wave.code.bitcast(wave.src(c, "i32", ins), wave.vec("float"))
    total = wave.modified(total, neg=c.neg_halves[0], abs_=c.neg_halves[1])
    for at in range(4):
        factors = (
            widened_small(code, _octet(code, one, at), _form(wave, name))
            for one, name in ((left, first), (right, second))
        )
        # The product is exact.
        total = code.op("fadd", total, code.op("fmul", *factors))
    wave.put(ins.defs[0], as_bits(code, total), ins)


for _name in NAMES:
    rule(f"v_cvt_f32_{_name}")(partial(_convert_one, name=_name))
    rule(f"v_cvt_pk_f32_{_name}")(partial(_convert_two, name=_name))
    rule(f"v_cvt_pk_{_name}_f32")(partial(_pack, name=_name))
    rule(f"v_cvt_sr_{_name}_f32")(partial(_stochastic, name=_name))
    for _other in NAMES:
        rule(f"v_dot4_f32_{_name}_{_other}")(partial(_dot4, first=_name, second=_other))
