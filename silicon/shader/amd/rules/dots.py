"""Dot products of 16-bit floats that add to an f32: one integer sum of three terms, as measured on cards.

A term is an integer of at most 24 bits times a power of two. All terms are truncated to multiples of one unit, which is
so far below the largest term that the sum fits 32 bits. A term whose sign differs from S2's counts as the complement of
its bits, even a zero. The sum is rounded once, to nearest even. MODE has no effect: f16 denormals are used; those of
bf16, of S2 and of the result count as zero. There is one helper function of the module for each format. Source:
github.com/ROCm/rocm-systems, issue 12056 (gfx1151) and rocjitsu's notes on DOT2 (gfx1100); LLVM SIISelLowering.cpp,
performFMACombine, on the denormals of f32.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.writer.arithmetic import reads
from ringup.silicon.shader.amd.writer.wave import rule
from ringup.silicon.shader.host.emitter import Code, Value, like

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Wave

SIGN, INFINITY, QUIET = 0x8000_0000, 0x7F80_0000, 0x0040_0000
# NaNs: the result of a NaN among the factors; of 0 * inf and inf - inf.
BAD_FACTOR, BAD_SUM = 0xFFC0_0A3D, 0xFFC0_0000
ABSENT = -2000  # exponent of a zero
FRACTIONS = {"f16": (10, 15), "bf16": (7, 127), "f32": (23, 127)}  # bits of the fraction, bias


class _Number(NamedTuple):
    """A float taken apart: number * 2**(place - fraction bits). The last three are lane masks."""

    number: Value
    place: Value
    negative: Value
    infinite: Value
    nan: Value


class _Sum:
    """Writes the sum of one format into a function's code."""

    def __init__(self, code: Code, row: str) -> None:
        self.code, self.row = code, row

    def const(self, value: int) -> Value:
        return self.code.const(value, self.row)

    def op(self, name: str, a: Value, b: Value | int) -> Value:
        return self.code.op(name, a, self.const(b) if isinstance(b, int) else b)

    def any(self, first: Value, *others: Value) -> Value:
        for one in others:
            first = self.code.op("or", first, one)
        return first

    def is_zero(self, a: Value) -> Value:
        return self.code.icmp("eq", a, self.const(0))

    def opened(self, raw: Value, form: str) -> _Number:
        """Take a float apart; `raw` has its bits at the low end."""
        fraction, bias = FRACTIONS[form]
        size = 32 if form == "f32" else 16
        top = (1 << size - 1) - (1 << fraction)
        exponent = self.op("and", raw, top)
        low = self.op("and", raw, (1 << fraction) - 1)
        denormal = self.is_zero(exponent)
        hidden = self.op("or", low, 1 << fraction)
        number = self.code.select(denormal, low if form == "f16" else self.const(0), hidden)
        field = self.code.intrinsic("umax", self.op("lshr", exponent, fraction), self.const(1))
        special = self.code.icmp("eq", exponent, self.const(top))
        whole = self.is_zero(low)
        return _Number(
            number,
            self.op("sub", field, bias),
            self.code.icmp("ne", self.op("and", raw, 1 << size - 1), self.const(0)),
            self.code.op("and", special, whole),
            self.code.op("and", special, self.code.invert(whole)),
        )

    def leading(self, number: Value, unit: Value) -> Value:
        """Return the exponent of a term's leading bit: that of its number as a float, which is exact."""
        raw = self.code.cast("bitcast", self.code.cast("uitofp", number, "float"), "i32")
        at = self.op("add", self.op("sub", self.op("lshr", raw, 23), 127), unit)
        return self.code.select(self.is_zero(number), self.const(ABSENT), at)

    def cut(self, number: Value, shift: Value) -> Value:
        left = self.op("shl", number, self.code.intrinsic("smax", shift, self.const(0)))
        down = self.code.intrinsic(
            "smin", self.code.intrinsic("smax", self.op("sub", self.const(0), shift), self.const(0)), self.const(31)
        )
        left = self.code.select(self.is_zero(number), self.const(0), left)
        return self.op("lshr", left, down)

    def finite(self, terms: list[tuple[Value, Value, Value]], places: list[Value]) -> Value:
        """Return the sum of (number, unit, negative), S2 first.

        `places` are the products' exponents, from the exponent fields of their factors.
        """
        code = self.code
        bounds = [self.op("sub", self.leading(number, unit), 26) for number, unit, _ in terms]
        for (number, _, _), place in zip(terms[1:], places, strict=True):
            bounds.append(code.select(self.is_zero(number), self.const(ABSENT), self.op("sub", place, 24)))
        grid = bounds[0]
        for one in bounds[1:]:
            grid = code.intrinsic("smax", grid, one)
        frame, total = terms[0][2], self.const(0)
        for number, unit, negative in terms:
            size = self.cut(number, self.op("sub", unit, grid))
            against = code.op("xor", negative, frame)
            total = self.op("add", total, self.op("xor", size, code.cast("sext", against, "i32")))
        # The sum has 24 bits at most after its conversion to float, which is exact in double precision.
        value = code.cast("fpext", code.cast("sitofp", total, "float"), "double")
        power = self.op("add", grid, 1023)
        power = code.op("shl", code.resize(power, "i64"), code.const(52, like("i64", power)))
        value = code.op("fmul", value, code.bitcast(power, like("double", value)))
        value = code.select(frame, code.neg(value), value)
        tiny = code.fcmp("olt", code.intrinsic("fabs", value), code.real(2.0**-126, value.type))
        nothing = code.icmp("slt", grid, self.const(ABSENT // 2))
        raw = code.cast("bitcast", code.cast("fptrunc", value, "float"), "i32")
        return code.select(self.any(tiny, nothing), self.const(0), raw)


def _products(one: _Sum, form: str, a: Value, b: Value) -> list[tuple[_Number, _Number]]:
    halves = [[one.op("and", word, 0xFFFF), one.op("lshr", word, 16)] for word in (a, b)]
    return [(one.opened(left, form), one.opened(right, form)) for left, right in zip(*halves, strict=True)]


def _specials(one: _Sum, pairs: list[tuple[_Number, _Number]], c: Value, addend: _Number, result: Value) -> Value:
    """Return `result` if no infinity and no NaN is involved, else what those give."""
    code = one.code
    never = code.icmp("ne", c, c)
    above, below, invalid = never, never, never
    for left, right in pairs:
        infinite = code.op("or", left.infinite, right.infinite)
        negative = code.op("xor", left.negative, right.negative)
        below = one.any(below, code.op("and", infinite, negative))
        above = one.any(above, code.op("and", infinite, code.invert(negative)))
        for first, second in ((left, right), (right, left)):
            invalid = one.any(invalid, code.op("and", first.infinite, one.is_zero(second.number)))
    invalid = one.any(invalid, code.op("and", above, below))
    sign = one.op("and", c, SIGN)
    above_all, below_all = (
        one.any(mask, code.icmp("eq", c, one.const(bits)))
        for mask, bits in ((above, INFINITY), (below, SIGN | INFINITY))
    )
    both = code.op("and", above_all, below_all)
    result = code.select(addend.infinite, one.op("or", sign, INFINITY), result)
    result = code.select(above, one.const(INFINITY), result)
    result = code.select(below, one.const(SIGN | INFINITY), result)
    result = code.select(both, one.const(BAD_SUM), result)
    result = code.select(addend.nan, one.op("or", c, QUIET), result)
    result = code.select(invalid, one.const(BAD_SUM), result)
    bad = one.any(*(each.nan for pair in pairs for each in pair))
    return code.select(bad, one.const(BAD_FACTOR), result)


@cache
def _function(form: str, lanes: int) -> Mapping[str, str]:
    """Return the helper and its declarations, by name: dwords of two halves twice and an f32 in, the f32's bits out."""
    code, row = Code(), f"<{lanes} x i32>"
    one = _Sum(code, row)
    a, b, c = (Value(f"%{letter}", row) for letter in "abc")
    pairs, addend = _products(one, form, a, b), one.opened(c, "f32")
    fraction = FRACTIONS[form][0]
    terms = [(addend.number, one.op("sub", addend.place, 23), addend.negative)]
    places = []
    for left, right in pairs:
        places.append(one.op("add", left.place, right.place))
        unit = one.op("sub", places[-1], 2 * fraction)
        terms.append((one.op("mul", left.number, right.number), unit, code.op("xor", left.negative, right.negative)))
    result = _specials(one, pairs, c, addend, one.finite(terms, places))
    code.line(f"ret {row} {result.text}")
    name = _name(form, lanes)
    head = f"define internal {row} @{name}({row} %a, {row} %b, {row} %c)"
    attributes = 'nounwind noinline "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    code.define(name, "\n".join([f"{head} {attributes} {{", *code.lines, "}"]))
    return code.declarations


def _name(form: str, lanes: int) -> str:
    return f"dot2.{form}.{lanes}"


def dot_step(code: Code, form: str, a: Value, b: Value, c: Value) -> Value:
    """Return the bits of a.lo * b.lo + a.hi * b.hi + c, for dwords of halves and bits of f32, in vectors of any
    length.
    """
    for name, text in _function(form, c.lanes).items():
        code.define(name, text)
    return code.call(_name(form, c.lanes), c.type, a, b, c)


def _factors(wave: Wave, operand: Operand, ins: Instruction) -> Value:
    """Return two factors in a dword: the halves that op_sel selects, with the signs of abs and neg."""
    code, halves = wave.code, []
    whole = wave.src(replace(operand, neg=False, abs=False), "i32", ins)
    for i in range(2):
        half = (
            code.op("lshr", whole, wave.const(16, "i32"))
            if operand.sel[i]
            else code.op("and", whole, wave.const(0xFFFF, "i32"))
        )
        if operand.abs:
            half = code.op("and", half, wave.const(0x7FFF, "i32"))
        if operand.neg or operand.neg_halves[i]:
            half = code.op("xor", half, wave.const(0x8000, "i32"))
        halves.append(half)
    return code.op("or", halves[0], code.op("shl", halves[1], wave.const(16, "i32")))


@rule("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2acc_f32_f16", "v_dot2acc_f32_bf16")
def _dot_single(wave: Wave, ins: Instruction) -> None:
    """Add both products and S2 (dot2acc: the destination); neither omod nor clamp applies."""
    form = "bf16" if ins.mnemonic.endswith("bf16") else "f16"
    first, second, third = reads(ins)
    addend = wave.src(replace(third, neg=third.neg_halves[0], abs=third.neg_halves[1]), "i32", ins)
    wave.put(
        ins.defs[0], dot_step(wave.code, form, _factors(wave, first, ins), _factors(wave, second, ins), addend), ins
    )
