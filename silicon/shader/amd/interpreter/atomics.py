"""Atomic operations on one value in memory or LDS: (old, source, compare) to new, on integers of `bits` bits.

Source: RDNA3 ISA reference, "LDS & GDS Instructions", "Global Instructions", "Float Memory Atomics"; RDNA4 ISA
reference, "VDS Instructions", "Float Memory Atomics".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ringup.silicon.shader.amd.values import floats

Operation = Callable[[int, int, int], int]


@dataclass(frozen=True, slots=True)
class Flush:
    """Which denormals an operation on floats flushes."""

    inputs: bool
    outputs: bool


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """An IEEE format, by its width."""

    bits: int
    fraction_bits: int
    code: str

    @property
    def magnitude(self) -> int:
        """The bits without the sign."""
        return (1 << self.bits - 1) - 1

    @property
    def infinity(self) -> int:
        """+inf."""
        return self.magnitude >> self.fraction_bits << self.fraction_bits

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return 1 << self.fraction_bits - 1

    def is_nan(self, value: int) -> bool:
        """Return whether these bits are a NaN."""
        return value & self.magnitude > self.infinity

    def flushed(self, value: int) -> int:
        """Return a zero of the same sign for a denormal."""
        return value & ~self.magnitude if not value & self.infinity else value

    def order(self, value: int) -> int:
        """Return a number that sorts as values do, -0 below +0."""
        return -(value & self.magnitude) - 1 if value > self.magnitude else value

    def number(self, value: int) -> float:
        """Return the value of these bits."""
        if self is BF16:
            return F32.number(value << 16)
        return float(struct.unpack(f"<{self.code}", value.to_bytes(self.bits // 8, "little"))[0])


F16 = FloatFormat(16, 10, "e")
BF16 = FloatFormat(16, 7, "")
F32 = FloatFormat(32, 23, "f")
F64 = FloatFormat(64, 52, "d")


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _integers(bits: int) -> dict[str, Operation]:
    mask = (1 << bits) - 1
    return {
        f"add_u{bits}": lambda old, src, _: old + src & mask,
        f"sub_u{bits}": lambda old, src, _: old - src & mask,
        f"rsub_u{bits}": lambda old, src, _: src - old & mask,
        f"inc_u{bits}": lambda old, src, _: 0 if old >= src else old + 1,
        f"dec_u{bits}": lambda old, src, _: src if old == 0 or old > src else old - 1,
        f"min_i{bits}": lambda old, src, _: min(old, src, key=lambda value: _signed(value, bits)),
        f"max_i{bits}": lambda old, src, _: max(old, src, key=lambda value: _signed(value, bits)),
        f"min_u{bits}": lambda old, src, _: min(old, src),
        f"max_u{bits}": lambda old, src, _: max(old, src),
        f"and_b{bits}": lambda old, src, _: old & src,
        f"or_b{bits}": lambda old, src, _: old | src,
        f"xor_b{bits}": lambda old, src, _: old ^ src,
        f"swap_b{bits}": lambda _, src, __: src,
        f"cmpswap_b{bits}": lambda old, src, compare: src if old == compare else old,
        f"mskor_b{bits}": lambda old, mask, new: old & ~mask | new,
    }


# VGT_GS_MAX_WAVE_ID, which wraps the number of the next in order. GUESS: amdgpu's value for gfx9 and gfx10; it leaves
# the register alone on gfx12.
MAX_WAVE_ID = 0x3FF


def _ordered_add(old: int, src: int) -> int:
    """Add to the upper dword if the lower ones are equal, and count the lower one up.

    Source: RDNA4 ISA reference, "GLOBAL_ATOMIC_ORDERED_ADD_B64".
    """
    number = old & 0xFFFF_FFFF
    if number != src & 0xFFFF_FFFF:
        return old
    return (number + 1 & MAX_WAVE_ID) | ((old >> 32) + (src >> 32) & 0xFFFF_FFFF) << 32


INTEGER_OPERATIONS: dict[str, Operation] = (
    _integers(32)
    | _integers(64)
    | {
        "csub_u32": lambda old, src, _: max(old - src, 0),
        "sub_clamp_u32": lambda old, src, _: max(old - src, 0),
        "cond_sub_u32": lambda old, src, _: old - src if old >= src else old,
        "ordered_add_b64": lambda old, src, _: _ordered_add(old, src),
        "wrap_b32": lambda old, src, more: (old - src if old >= src else old + more) & 0xFFFF_FFFF,
    }
)


def float_add(kind: FloatFormat, flush: Flush, old: int, src: int) -> int:
    """Add, rounding to nearest even.

    The first NaN of (source, memory) is the result, made quiet. Infinities of opposite sign give -QNaN.
    """
    if flush.inputs:
        old, src = kind.flushed(old), kind.flushed(src)
    for one in (src, old):
        if kind.is_nan(one):
            return one | kind.quiet
    if old & kind.magnitude == src & kind.magnitude == kind.infinity:
        return old if old == src else kind.infinity | kind.quiet | 1 << kind.bits - 1
    total = kind.number(old) + kind.number(src)
    if kind.bits == 16:
        form = floats.BF16 if kind is BF16 else floats.F16
        with np.errstate(over="ignore"):
            result = int(floats.rounded(form, np.array([total]))[0])
        return kind.flushed(result) if flush.outputs else result
    # The f64 sum of two f32 is rounded once more: 53 bits are more than twice 24, so this equals one rounding.
    try:
        packed = struct.pack(f"<{kind.code}", total)
    except OverflowError:
        packed = struct.pack(f"<{kind.code}", float("inf") if total > 0 else float("-inf"))
    result = int.from_bytes(packed, "little")
    return kind.flushed(result) if flush.outputs else result


def float_select(kind: FloatFormat, flush: Flush, old: int, src: int, *, largest: bool) -> int:
    """Return the smaller or larger value, unchanged.

    A signalling NaN wins and becomes quiet; a quiet NaN loses against a number.
    """
    for one in (src, old):
        if kind.is_nan(one) and not one & kind.quiet:
            return one | kind.quiet
    if kind.is_nan(src) or kind.is_nan(old):
        return old if kind.is_nan(src) else src
    compared = [kind.order(kind.flushed(one) if flush.inputs else one) for one in (old, src)]
    replaces = compared[1] > compared[0] if largest else compared[1] < compared[0]
    return src if replaces else old


def float_select_number(kind: FloatFormat, flush: Flush, old: int, src: int, *, largest: bool) -> int:
    """Return the smaller or larger number; any NaN loses against a number, and two NaNs give the source's, made
    quiet.
    """
    if flush.inputs:
        old, src = kind.flushed(old), kind.flushed(src)
    if kind.is_nan(src):
        return old if not kind.is_nan(old) else src | kind.quiet
    if kind.is_nan(old):
        return src
    replaces = kind.order(src) > kind.order(old) if largest else kind.order(src) < kind.order(old)
    return src if replaces else old


def _packed_add(kind: FloatFormat, flush: Flush, old: int, src: int) -> int:
    low, high = (float_add(kind, flush, old >> shift & 0xFFFF, src >> shift & 0xFFFF) for shift in (0, 16))
    return low | high << 16


def float_cmpswap(kind: FloatFormat, flush: Flush, old: int, src: int, compare: int) -> int:
    """Return `src` if memory equals `compare` as a number, else the old value."""
    seen = old
    if flush.inputs:
        seen, src, compare = kind.flushed(old), kind.flushed(src), kind.flushed(compare)
    if kind.is_nan(seen) or kind.is_nan(compare):
        return old
    equal = seen == compare or not (seen | compare) & kind.magnitude
    return src if equal else old


def operation(name: str, flush: Flush) -> Operation:
    """Return the operation of `name` (add_f32, cmpswap_b64, …); `flush` applies to floats."""
    if name in INTEGER_OPERATIONS:
        return INTEGER_OPERATIONS[name]
    verb, _, kind_name = name.rpartition("_")
    kind = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}[kind_name]
    if verb == "add":
        return lambda old, src, _: float_add(kind, flush, old, src)
    if verb == "pk_add":
        return lambda old, src, _: _packed_add(kind, flush, old, src)
    if verb == "cmpswap":
        return lambda old, src, compare: float_cmpswap(kind, flush, old, src, compare)
    if verb.endswith("_num"):
        return lambda old, src, _: float_select_number(kind, flush, old, src, largest=verb == "max_num")
    return lambda old, src, _: float_select(kind, flush, old, src, largest=verb == "max")
