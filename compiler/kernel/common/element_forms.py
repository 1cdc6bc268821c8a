"""The form of an element of each dtype in registers, and the conversions from and to its form in memory.

In registers, a bool is a condition. Integers below 32 bits are an i32 of the same value. bfloat16 and float8 are an f32
whose value the dtype can represent. Other dtypes have the same form as in memory.
"""

from __future__ import annotations

from ringup.compiler.graph import dtypes
from ringup.compiler.graph.dtypes import DType, Scalar
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import BF16, F16, F32, F64, I1, I8, I16, I32, I64, Type, Value

_HELD = {"float16": F16, "float64": F64}
_STORED = {8: I8, 16: I16, 32: I32, 64: I64}


def held(dtype: DType) -> Type:
    """Return the machine type of an element in registers."""
    if dtype.kind == "bool":
        return I1
    if dtype.is_float:
        return _HELD.get(dtype.name, F32)
    return I64 if dtype.bits == 64 else I32


def stored(dtype: DType) -> Type:
    """Return the machine type of an element in memory."""
    if dtype is dtypes.bfloat16:
        return BF16
    if dtype.is_float and dtype.bits > 8:
        return held(dtype)
    return _STORED[dtype.bits]


def constant(build: Builder, value: Scalar, dtype: DType) -> Value:
    """Return a constant in its register form. Floats are rounded to the dtype."""
    type_ = held(dtype)
    if not dtype.is_float:
        return build.const(int(value), type_)
    made = build.const(float(value), F64 if dtype is dtypes.float64 else F32)
    return made if type_ is F32 and dtype is dtypes.float32 else narrowed(build, made, dtype)


def from_memory(build: Builder, value: Value, dtype: DType) -> Value:
    """Convert a loaded element to its register form."""
    if dtype.kind == "bool":
        return build.compare("ne", build.op("zext", I32, value), build.const(0))
    if dtype.bits < 32 and dtype.is_integer:
        return build.op("sext" if dtype.kind == "int" else "zext", I32, value)
    if dtype is dtypes.bfloat16:
        return build.op("fconvert", F32, value)
    if dtype.is_float and dtype.bits == 8:
        bits = build.op("zext", I32, value)
        made = float8_value(build, bits, dtype)
        build.narrow_forms[made, dtype.name] = bits
        return made
    return value


def to_memory(build: Builder, value: Value, dtype: DType) -> Value:
    """Convert an element from its register form to its form in memory."""
    if dtype.kind == "bool":
        return build.op("zext", I8, value)
    if dtype.bits < 32 and dtype.is_integer:
        return build.op("truncate", stored(dtype), value)
    if dtype is dtypes.bfloat16:
        return build.op("fconvert", BF16, value)
    if dtype.is_float and dtype.bits == 8:
        bits = float8_loaded(build, value, dtype)
        return build.op("truncate", I8, float8_bits(build, value, dtype) if bits is None else bits)
    return value


def wrapped(build: Builder, value: Value, dtype: DType) -> Value:
    """Wrap an i32 result to an integer dtype below 32 bits: keep the low bits and extend them."""
    if dtype.bits >= 32 or not dtype.is_integer:
        return value
    low = build.op("truncate", stored(dtype), value)
    return build.op("sext" if dtype.kind == "int" else "zext", I32, low)


def narrowed(build: Builder, value: Value, dtype: DType) -> Value:
    """Round an f32 or f64 value once to a float dtype below 32 bits; return it in its register form."""
    if value.type == F64 and held(dtype) is F32:
        value = odd_single(build, value)
    if dtype is dtypes.bfloat16:
        single = build.op("fconvert", F32, value)
        return build.op("fconvert", F32, build.op("fconvert", BF16, single))
    if dtype.bits == 8:
        return float8_value(build, float8_bits(build, build.op("fconvert", F32, value), dtype), dtype)
    return build.op("fconvert", held(dtype), value)


def odd_single(build: Builder, value: Value) -> Value:
    """Round an f64 to f32 to odd: the last bit is set where bits were lost. A second rounding of the result then gives
    what a single rounding of the f64 would have given.

    Source: Boldo and Melquiond, Emulation of FMA and Correctly Rounded Sums: rounding to odd needs two more bits than
    the last format has.
    """
    near = build.op("fconvert", F32, value)
    back = build.op("fconvert", F64, near)
    bits = build.op("bitcast", I32, near)
    beyond = build.compare("flt", build.op("fabs", F64, value), build.op("fabs", F64, back))
    bits = build.op("sub", I32, bits, build.op("zext", I32, beyond))
    inexact = build.op("zext", I32, build.compare("fne", back, value))
    return build.op("bitcast", F32, build.op("or", I32, bits, inexact))


def float8_value(build: Builder, bits: Value, dtype: DType) -> Value:
    """Return the f32 value of eight bits (an i32 below 256). Source: OCP 8-bit Floating Point Specification, "FP8
    encodings".
    """
    # E5M2 is the upper half of an f16.
    if dtype is dtypes.float8_e5m2:
        half = build.op("truncate", I16, build.op("shl", I32, bits, build.const(8)))
        return build.op("fconvert", F32, build.op("bitcast", F16, half))
    # E4M3: the bits are placed as an f32 whose exponent is too small by 127 - 7. A multiplication corrects it, for
    # denormals too. 0x7f is NaN.
    magnitude = build.op("and", I32, bits, build.const(0x7F))
    sign = build.op("shl", I32, build.op("and", I32, bits, build.const(0x80)), build.const(24))
    small = build.op("bitcast", F32, build.op("shl", I32, magnitude, build.const(20)))
    value = build.op("fmul", F32, small, build.const(2.0**120, F32))
    is_nan = build.compare("eq", magnitude, build.const(0x7F))
    # A NaN keeps its sign.
    value = build.op("select", F32, is_nan, build.const(float("nan"), F32), value)
    return build.op("bitcast", F32, build.op("or", I32, build.op("bitcast", I32, value), sign))


def float8_loaded(build: Builder, value: Value, dtype: DType) -> Value | None:
    """Return the eight bits (an i32) from which `from_memory` made a value, None if it made it of something else."""
    return build.narrow_forms.get((value, dtype.name))


def float8_bits(build: Builder, value: Value, dtype: DType) -> Value:
    """Return the eight bits nearest to an f32, halves to even, as an i32. Too large a value gives infinity for e5m2 and
    NaN for e4m3 (no saturation).
    """
    mantissa = dtype.mantissa_bits
    bias = (1 << dtype.exponent_bits - 1) - 1
    bits = build.op("bitcast", I32, value)
    sign = build.op("and", I32, build.op("shr_u", I32, bits, build.const(24)), build.const(0x80))
    magnitude = build.op("and", I32, bits, build.const(0x7FFF_FFFF))
    # Normal results: rebias and round the mantissa in integers.
    drop = 23 - mantissa
    odd = build.op("and", I32, build.op("shr_u", I32, magnitude, build.const(drop)), build.const(1))
    rebiased = build.add(build.add(magnitude, odd), (1 << drop - 1) - 1 - (127 - bias << 23))
    normal = build.op("shr_u", I32, rebiased, build.const(drop))
    # Denormal results: after the addition of a large number, the wanted bits are at the bottom of the sum, and the
    # adder has rounded them.
    shift = build.const(2.0 ** (23 - mantissa + 1 - bias), F32)
    sum_ = build.op("fadd", F32, build.op("bitcast", F32, magnitude), shift)
    denormal = build.op("sub", I32, build.op("bitcast", I32, sum_), build.op("bitcast", I32, shift))
    is_denormal = build.compare("lt_u", magnitude, build.const(127 + 1 - bias << 23))
    found = build.op("select", I32, is_denormal, denormal, normal)
    if dtype is dtypes.float8_e5m2:
        top, nan = 0x7C, 0x7E
        found = build.op("min_u", I32, found, build.const(top))
        is_nan = build.compare("lt_u", build.const(0x7F80_0000), magnitude)
    else:
        nan = 0x7F
        # The largest value is 448. A value that rounds to 480 or above is NaN.
        is_nan = build.compare("lt_u", build.const(0x43E8_0000), magnitude)
    found = build.op("select", I32, is_nan, build.const(nan), found)
    return build.op("or", I32, found, sign)
