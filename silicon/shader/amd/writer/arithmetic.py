"""Building blocks of the float rules: formats, denormals by MODE, single rounding to half precision, output modifiers.

Half precision is computed in single precision and rounded once. Single precision has more than twice its bits, so sums,
products, quotients and square roots round correctly. `Float.fma` handles the one case where that fails.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, NamedTuple

from llvmlite import binding as llvm

from ringup.silicon.shader.host.emitter import Value, bits, like

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.wave import Rule, Wave
    from ringup.silicon.shader.host.emitter import Code

    Combine = Callable[..., Value]


class Format(NamedTuple):
    """An IEEE interchange format. `work` is the LLVM type it is computed in, `bits` the integer of its size."""

    kind: str
    work: str
    bits: str
    width: int
    mantissa: int
    bias: int

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """The bits of +inf, which are those of the exponent field."""
        return self.sign - (1 << self.mantissa)

    @property
    def quiet(self) -> int:
        """The mantissa's first bit, set in quiet NaNs."""
        return 1 << (self.mantissa - 1)


FORMATS = {
    "f16": Format("half", "float", "i16", 16, 10, 15),
    "f32": Format("float", "float", "i32", 32, 23, 127),
    "f64": Format("double", "double", "i64", 64, 52, 1023),
}
_BITS = {one.kind: one.bits for one in FORMATS.values()}
# x86 without F16C has no instructions for halves; LLVM would call the compiler's library.
HOST_CONVERTS_HALF = platform.machine() not in ("x86_64", "AMD64") or llvm.get_host_cpu_features().get("f16c", False)
# The same for a fused multiply-add.
HOST_FUSES = platform.machine() not in ("x86_64", "AMD64") or llvm.get_host_cpu_features().get("fma", False)
OUTPUT_SCALES = {1: 2.0, 2: 4.0, 3: 0.5}  # omod. Source: RDNA3 ISA reference, "Table 26", OMOD


def reads(ins: Instruction) -> list[Operand]:
    """Return the sources in the order of the document's S0, S1, S2.

    A destination that is also read comes last; immediates keep their place.
    """
    return [one for one in ins.operands if one.direction == "use"] + [
        one for one in ins.operands if one.direction == "both"
    ]


def as_bits(code: Code, a: Value) -> Value:
    """Return the bits of a float."""
    return code.bitcast(a, like(_BITS[a.element], a))


def is_nan(code: Code, raw: Value, fmt: Format) -> Value:
    """Return which bits of `fmt` are NaNs."""
    magnitude = code.op("and", raw, code.const(fmt.sign - 1, raw.type))
    return code.icmp("ugt", magnitude, code.const(fmt.infinity, raw.type))


def is_signalling(code: Code, raw: Value, fmt: Format) -> Value:
    """Return which bits of `fmt` are signalling NaNs."""
    quiet = code.op("and", raw, code.const(fmt.quiet, raw.type))
    return code.op("and", is_nan(code, raw, fmt), code.icmp("eq", quiet, code.const(0, raw.type)))


def flushed(code: Code, raw: Value, fmt: Format) -> Value:
    """Return zeroes of the same sign for denormals among the bits of `fmt`."""
    exponent = code.op("and", raw, code.const(fmt.infinity, raw.type))
    tiny = code.icmp("eq", exponent, code.const(0, raw.type))
    return code.select(tiny, code.op("and", raw, code.const(fmt.sign, raw.type)), raw)


def widened(code: Code, raw: Value) -> Value:
    """Convert half (its bits) to float, exactly."""
    if not HOST_CONVERTS_HALF:
        return widened_by_integers(code, raw)
    return code.cast("fpext", code.bitcast(raw, like("half", raw)), "float")


def narrowed(code: Code, value: Value) -> Value:
    """Convert float to the bits of half, rounding to nearest even."""
    if not HOST_CONVERTS_HALF:
        return narrowed_by_integers(code, value)
    return as_bits(code, code.cast("fptrunc", value, "half"))


def widened_by_integers(code: Code, raw: Value) -> Value:
    """Convert like `widened`, for hosts that would call a library for each lane."""

    def const(value: int) -> Value:
        return code.const(value, wide.type)

    wide = code.resize(raw, "i32")
    size = code.op("shl", code.op("and", wide, const(0x7FFF)), const(13))
    # A half's exponent is 112 less than a float's; the product makes denormals normal.
    number = code.op("fmul", code.bitcast(size, like("float", raw)), code.real(2.0**112, like("float", raw)))
    special = code.op("or", size, const(0x7F80_0000))
    special = code.select(
        code.icmp("ugt", special, const(0x7F80_0000)), code.op("or", special, const(0x40_0000)), special
    )
    large = code.icmp("uge", size, const(0x7C00 << 13))
    magnitude = code.select(large, special, code.bitcast(number, wide.type))
    sign = code.op("shl", code.op("and", wide, const(0x8000)), const(16))
    return code.bitcast(code.op("or", magnitude, sign), number.type)


def narrowed_by_integers(code: Code, value: Value) -> Value:
    """Convert like `narrowed`, for hosts that would call a library for each lane."""

    def const(number: int) -> Value:
        return code.const(number, raw.type)

    raw = as_bits(code, value)
    size = code.op("and", raw, const(0x7FFF_FFFF))
    odd = code.op("and", code.op("lshr", size, const(13)), const(1))
    rounded = code.op("add", code.op("sub", size, const(112 << 23)), code.op("add", odd, const(0xFFF)))
    normal = code.op("lshr", rounded, const(13))
    # In the sum with 0.5 the last bit has the weight of a denormal half's last bit.
    total = code.op("fadd", code.bitcast(size, value.type), code.real(0.5, value.type))
    tiny = code.op("sub", as_bits(code, total), const(0x3F00_0000))
    payload = code.op("and", code.op("lshr", size, const(13)), const(0x3FF))
    nan = code.op("or", payload, const(0x7E00))
    special = code.select(code.icmp("ugt", size, const(0x7F80_0000)), nan, const(0x7C00))
    result = code.select(code.icmp("ult", size, const(0x3880_0000)), tiny, normal)
    result = code.select(code.icmp("uge", size, const(0x4780_0000)), special, result)
    sign = code.op("and", code.op("lshr", raw, const(16)), const(0x8000))
    return code.resize(code.op("or", result, sign), "i16")


def from_brain(code: Code, raw: Value) -> Value:
    """Convert bf16 (its bits) to float: bf16 is the high half of a float."""
    wide = code.resize(raw, "i32")
    return code.bitcast(code.op("shl", wide, code.const(16, wide.type)), like("float", raw))


def to_brain(code: Code, value: Value) -> Value:
    """Round float to the bits of bf16, to nearest even."""
    raw = as_bits(code, value)
    odd = code.op("and", code.op("lshr", raw, code.const(16, raw.type)), code.const(1, raw.type))
    rounded = code.op("add", code.op("add", raw, code.const(0x7FFF, raw.type)), odd)
    quiet = code.op("or", raw, code.const(0x40_0000, raw.type))
    whole = code.select(code.fcmp("uno", value, value), quiet, rounded)
    return code.resize(code.op("lshr", whole, code.const(16, raw.type)), "i16")


def flushed_single(code: Code, value: Value) -> Value:
    """Return zeroes of the same sign for denormal floats."""
    return code.bitcast(flushed(code, as_bits(code, value), FORMATS["f32"]), value.type)


def powers(code: Code, value: Value, coefficients: Sequence[str]) -> Value:
    """Evaluate a polynomial, lowest coefficient first (hexadecimal floats), by Horner's scheme."""
    total = code.real(float.fromhex(coefficients[-1]), value.type)
    for one in reversed(coefficients[:-1]):
        total = code.intrinsic("fma", total, value, code.real(float.fromhex(one), value.type))
    return total


class Float:
    """Operands and results of one float format under the MODE of the code being written."""

    def __init__(self, wave: Wave, name: str, *, denormals: int | None = None, lanes: int = 0) -> None:
        """Prepare a format.

        `denormals` replaces MODE's two bits (1 keeps those of inputs, 2 of results) for opcodes that ignore MODE.
        `lanes` is the number of values, if it is not the wave's.
        """
        self.wave, self.code, self.fmt = wave, wave.code, FORMATS[name]
        self.lanes = lanes or wave.lanes
        self.work = f"<{self.lanes} x {self.fmt.work}>"
        self.denormals = wave.mode.denorm(self.fmt.kind) if denormals is None else denormals

    # sources and results ----------------------------------------------------------------------------------------------

    def raw(self, operand: Operand, ins: Instruction) -> Value:
        """Return the bits of a source, with denormals flushed as MODE says."""
        raw = self.wave.src(operand, self.fmt.bits, ins)
        if self.denormals & 1 or (operand.kind == "constant" and not self._is_denormal(operand.bits)):
            return raw
        return flushed(self.code, raw, self.fmt)

    def source(self, operand: Operand, ins: Instruction) -> Value:
        """Return a source in the type it is computed in."""
        return self.opened(self.raw(operand, ins))

    def opened(self, raw: Value) -> Value:
        """Return bits of the format as the type it is computed in."""
        return widened(self.code, raw) if self.fmt.kind == "half" else self.code.bitcast(raw, self.work)

    def closed(self, value: Value) -> Value:
        """Return a computed value as bits of the format: half is rounded, denormals are kept."""
        return narrowed(self.code, value) if self.fmt.kind == "half" else as_bits(self.code, value)

    def result(self, value: Value, ins: Instruction) -> Value:
        """Return the bits to write: rounded, omod and clamp applied, denormals flushed as MODE says."""
        value = self._scaled_output(value, ins)
        raw = self.closed(self.clamped(value) if ins.clamp else value)
        return raw if self.denormals & 2 else flushed(self.code, raw, self.fmt)

    def result_bits(self, raw: Value, ins: Instruction) -> Value:
        """Return the bits to write for a result that is one of the sources.

        Nothing is rounded, and only omod flushes denormals.
        """
        if not (ins.omod or ins.clamp):
            return raw
        value = self._scaled_output(self.opened(raw), ins, selects=True)
        return self.closed(self.clamped(value) if ins.clamp else value)

    def _scaled_output(self, value: Value, ins: Instruction, *, selects: bool = False) -> Value:
        """Apply omod. A result that one of the sources is (`selects`) has not been flushed.

        Source: RDNA3 ISA reference, "Output Operand Modifiers": it is ignored where denormal results are kept and with
        MODE.ieee; RDNA4 ISA reference, the same: it works there, and its own result is flushed.
        """
        code = self.code
        if not ins.omod or not self.wave.mode.scales_results(self.denormals):
            return value
        raw = self.closed(value)
        value = self.opened(raw if selects or self.denormals & 2 else flushed(code, raw, self.fmt))
        value = code.op("fmul", value, code.real(OUTPUT_SCALES[ins.omod], value.type))
        value = self.opened(flushed(code, self.closed(value), self.fmt))
        return code.op("fadd", value, code.real(0.0, value.type))  # "-0 is flushed to +0"

    def clamped(self, value: Value) -> Value:
        """Limit to 0..1; NaN becomes 0 under dx10_clamp."""
        code = self.code
        zero, one = code.real(0.0, value.type), code.real(1.0, value.type)
        low = code.select(code.fcmp("ogt", value, zero), value, zero)
        both = code.select(code.fcmp("olt", low, one), low, one)
        return both if self.wave.mode.dx10_clamp else code.select(code.fcmp("uno", value, value), value, both)

    def real(self, value: float) -> Value:
        """Return a constant of the type that is computed in."""
        return self.code.real(value, self.work)

    def const(self, value: int) -> Value:
        """Return a constant of the format's bits."""
        return self.code.const(value, f"<{self.lanes} x {self.fmt.bits}>")

    # arithmetic -------------------------------------------------------------------------------------------------------

    def op(self, name: str, a: Value, b: Value) -> Value:
        """Emit fadd, fsub, fmul or fdiv."""
        return self.code.op(name, a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Multiply and add with one rounding."""
        if self.fmt.kind != "half":
            return self.code.intrinsic("fma", a, b, c)
        return self.odd_sum(self.op("fmul", a, b), c)

    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Add floats; return the rounded sum and its error, which is exactly a float."""
        total = self.op("fadd", a, b)
        came = self.op("fsub", total, a)
        return total, self.op("fadd", self.op("fsub", a, self.op("fsub", total, came)), self.op("fsub", b, came))

    def odd_sum(self, a: Value, b: Value) -> Value:
        """Add floats, and set the last bit if the sum is inexact.

        Rounding that to fewer bits gives the result of a single rounding.
        """
        code = self.code
        total, lost = self.two_sum(a, b)
        raw, error = as_bits(code, total), as_bits(code, lost)
        one, zero = code.const(1, raw.type), code.const(0, raw.type)
        # Towards the error: away from zero if its sign is the sum's, else towards zero.
        sign = code.op("ashr", code.op("xor", raw, error), code.const(bits(raw.type) - 1, raw.type))
        even = code.icmp("eq", code.op("and", raw, one), zero)
        odd = code.op("and", even, code.fcmp("one", lost, code.real(0.0, lost.type)))
        return code.bitcast(code.op("add", raw, code.select(odd, code.op("or", sign, one), zero)), total.type)

    # order ------------------------------------------------------------------------------------------------------------

    def extreme(self, a: Value, b: Value, *, larger: bool) -> Value:
        """Return the bits of the smaller or larger of two values given as bits.

        -0 is below +0; a NaN loses to a number. Source: RDNA3 ISA reference, "V_MIN_F32": with MODE.ieee a signalling
        NaN wins, quieted.
        """
        best = self._chosen(a, b, larger=larger)
        return self._quieted(best, (b, a), is_signalling) if self.wave.mode.ieee else best

    def _chosen(self, a: Value, b: Value, *, larger: bool) -> Value:
        code, fmt = self.code, self.fmt
        less = code.icmp("sgt" if larger else "slt", self._key(a), self._key(b))
        best = code.select(less, a, b)
        best = code.select(is_nan(code, a, fmt), b, best)
        return code.select(is_nan(code, b, fmt), a, best)

    def _quieted(self, best: Value, sources: Sequence[Value], test: Callable[[Code, Value, Format], Value]) -> Value:
        """Return the last of the sources that passes a test, quieted; `best` if none does."""
        for one in sources:
            quiet = self.code.op("or", one, self.const(self.fmt.quiet))
            best = self.code.select(test(self.code, one, self.fmt), quiet, best)
        return best

    def number(self, a: Value, b: Value, *, larger: bool) -> Value:
        """Return IEEE's minimumNumber or maximumNumber of values given as bits: the first of two NaNs, quieted."""
        code, fmt = self.code, self.fmt
        both = code.op("and", is_nan(code, a, fmt), is_nan(code, b, fmt))
        quiet = code.op("or", a, self.const(fmt.quiet))
        return code.select(both, quiet, self._chosen(a, b, larger=larger))

    def any(self, a: Value, b: Value, *, larger: bool) -> Value:
        """Return IEEE's minimum or maximum of values given as bits: a NaN wins, a signalling one first, quieted."""
        best = self._quieted(self._chosen(a, b, larger=larger), (b, a), is_nan)
        return self._quieted(best, (b, a), is_signalling)

    def minimum(self, a: Value, b: Value) -> Value:
        """Return the smaller of two values given as bits."""
        return self.extreme(a, b, larger=False)

    def maximum(self, a: Value, b: Value) -> Value:
        """Return the larger of two values given as bits."""
        return self.extreme(a, b, larger=True)

    def _key(self, raw: Value) -> Value:
        """Map bits to signed integers of the same order: magnitudes of negative numbers are complemented."""
        code, fmt = self.code, self.fmt
        fill = code.op("ashr", raw, self.const(fmt.width - 1))
        return code.op("xor", raw, code.op("and", fill, self.const(fmt.sign - 1)))

    # parts ------------------------------------------------------------------------------------------------------------

    def exponent(self, raw: Value) -> Value:
        """Return the biased exponent field as i32 a lane."""
        code, fmt = self.code, self.fmt
        field = code.op("and", code.op("lshr", raw, self.const(fmt.mantissa)), self.const(fmt.infinity >> fmt.mantissa))
        return code.resize(field, "i32")

    def split(self, raw: Value) -> tuple[Value, Value]:
        """Return significand bits (sign kept, magnitude 1 up to 2) and exponent (i32) of nonzero finite values.

        Denormals are normalised.
        """
        code, fmt = self.code, self.fmt
        magnitude = code.op("and", raw, self.const(fmt.sign - 1))
        tiny = code.icmp("ult", magnitude, self.const(1 << fmt.mantissa))
        # Shift out a denormal's leading zeroes beyond those of a normal number.
        zeroes = code.intrinsic("ctlz", magnitude, Value("false", "i1"), overload=(magnitude.type,))
        shift = code.op("sub", zeroes, self.const(fmt.width - 1 - fmt.mantissa))
        mantissa = code.select(tiny, code.op("shl", magnitude, shift), magnitude)
        mantissa = code.op("and", mantissa, self.const((1 << fmt.mantissa) - 1))
        sign = code.op("and", raw, self.const(fmt.sign))
        one = self.const(fmt.bias << fmt.mantissa)
        significand = code.op("or", code.op("or", mantissa, sign), one)
        low = code.op("sub", self.wave.const(1, "i32"), code.resize(shift, "i32"))
        exponent = code.select(tiny, low, self.exponent(raw))
        return significand, code.op("sub", exponent, self.wave.const(fmt.bias, "i32"))

    def scaled(self, raw: Value, power: Value) -> Value:
        """Multiply by 2**power (i32 a lane) with one rounding; bits in, bits out."""
        code, fmt = self.code, self.fmt
        significand, exponent = self.split(raw)
        # beyond it every result is 0 or inf, and sums stay in range
        limit = 4 * fmt.bias
        power = self._limited(power, limit)
        total = self._limited(code.op("add", exponent, power), fmt.bias + fmt.mantissa + 6)
        first = code.op("ashr", total, self.wave.const(1, "i32"))
        second = code.op("sub", total, first)
        # In half precision the work type holds every result exactly, so closing it is the only rounding.
        steps = [self._power_of_two(one) for one in (first, second)]
        value = self.op("fmul", self.op("fmul", self.opened(significand), steps[0]), steps[1])
        magnitude = code.op("and", raw, self.const(fmt.sign - 1))
        odd = code.op(
            "or", code.icmp("eq", magnitude, self.const(0)), code.icmp("uge", magnitude, self.const(fmt.infinity))
        )
        quiet = code.select(is_nan(code, raw, fmt), code.op("or", raw, self.const(fmt.quiet)), raw)
        return code.select(odd, quiet, self.closed(value))

    def _limited(self, value: Value, limit: int) -> Value:
        low, high = self.wave.const(-limit, "i32"), self.wave.const(limit, "i32")
        return self.code.intrinsic("smin", self.code.intrinsic("smax", value, low), high)

    def _power_of_two(self, power: Value) -> Value:
        """Return 2**power (i32 a lane, normal) in the work type."""
        code = self.code
        bias, mantissa, kind = (1023, 52, "i64") if self.fmt.work == "double" else (127, 23, "i32")
        field = code.resize(code.op("add", power, self.wave.const(bias, "i32")), kind)
        return code.bitcast(code.op("shl", field, code.const(mantissa, field.type)), self.work)

    def _is_denormal(self, constant: int) -> bool:
        magnitude = constant & (self.fmt.sign - 1)
        return 0 < magnitude < 1 << self.fmt.mantissa


def float_rule(
    name: str, function: Combine, *, rounds: bool = True, selects: bool = False, denormals: int | None = None
) -> Rule:
    """Return the rule of an opcode whose sources and result have one format.

    `function` takes a `Float` and the sources as S0, S1, S2. `rounds` says that the opcode rounds, as omod does; the
    interpreter executes it unless MODE rounds to nearest even. The result of an opcode that only `selects` is not
    flushed. `denormals` is as in `Float`.
    """

    def emit(wave: Wave, ins: Instruction) -> None:
        if (rounds or ins.omod) and wave.mode.round(FORMATS[name].kind):
            wave.bail(ins)
            return
        unit = Float(wave, name, denormals=denormals)
        value = function(unit, *(unit.source(one, ins) for one in reads(ins)))
        raw = unit.result_bits(unit.closed(value), ins) if selects else unit.result(value, ins)
        wave.put(ins.defs[0], raw, ins)

    return emit


def bits_rule(name: str, function: Combine, *, denormals: int | None = None) -> Rule:
    """Return the rule of an opcode that selects a source or part of it: like `float_rule`, on bits and without
    rounding.
    """

    def emit(wave: Wave, ins: Instruction) -> None:
        if ins.omod and wave.mode.round(FORMATS[name].kind):
            wave.bail(ins)
            return
        unit = Float(wave, name, denormals=denormals)
        raw = function(unit, *(unit.raw(one, ins) for one in reads(ins)))
        wave.put(ins.defs[0], unit.result_bits(raw, ins), ins)

    return emit
