"""Floats of eight, six and four bits as OCP has them, and CDNA4's conversions of them, with and without a scale.

A scale is the exponent of an f32: conversions to small floats divide by 2**(exponent - 127), conversions from them
multiply. An exponent of 255 gives NaN. FP6, BF6 and FP4 have no NaN: it becomes the largest number of its sign.
Stochastic rounding adds the top bits of a random number below the last place and truncates.

Source: CDNA4 ISA reference, "BF8 / FP8 and Smaller Formats and Conversions", "V_CVT_SCALEF32_*", "V_PRNG_B32"; HIP
amd_hip_ocp_host.hpp (directions of the scale, NaNs, random bits, overflow to infinity as on gfx950).
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from ringup.silicon.shader.amd.decoding.decode import selected_byte
from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.eight_bits import of_two_bytes
from ringup.silicon.shader.amd.values.floats import BF16, F16, F32, NEAREST, Bits, Format, Wide
from ringup.silicon.shader.amd.values.integers import U32


class Small(NamedTuple):
    """A format by its widths. `specials`: 2 has infinity and NaNs, 1 a NaN that is all ones, 0 neither."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: int

    @property
    def bits(self) -> int:
        """The bits of a number."""
        return 1 + self.exponent_bits + self.mantissa_bits


FP8, BF8 = Small("fp8", 4, 3, 7, 1), Small("bf8", 5, 2, 15, 2)
FP6, BF6, FP4 = Small("fp6", 2, 3, 1, 0), Small("bf6", 3, 2, 3, 0), Small("fp4", 2, 1, 1, 0)
FORMS = {one.name: one for one in (FP8, BF8, FP6, BF6, FP4)}
WIDE_FORMS = {"f32": F32, "f16": F16, "bf16": BF16}
_NAN_SCALE, _SCALE_BIAS = 255, 127
# The polynomial of the shift register. Source: CDNA4 ISA reference, "V_PRNG_B32".
_FEEDBACK = 197


@cache
def _magnitudes(form: Small) -> Wide:
    """Return the values of the numbers without a sign, infinity and NaN too."""
    bits = np.arange(1 << form.bits - 1)
    field, fraction = bits >> form.mantissa_bits, bits & (1 << form.mantissa_bits) - 1
    size = np.where(field > 0, fraction | 1 << form.mantissa_bits, fraction)
    found: Wide = np.ldexp(size.astype(np.float64), np.maximum(field, 1) - form.bias - form.mantissa_bits)
    if form.specials == 1:
        found[-1] = np.nan
    if form.specials == 2:
        found[field == field[-1]] = np.nan
        found[bits == field[-1] << form.mantissa_bits] = np.inf
    return found


@cache
def _table(form: Small) -> Wide:
    magnitudes = _magnitudes(form)
    return np.concatenate([magnitudes, -magnitudes])


def values(form: Small, codes: Bits) -> Wide:
    """Return the values of numbers. Bits above the format's own are ignored."""
    found: Wide = _table(form)[codes & U32((1 << form.bits) - 1)]
    return found


def narrowed(form: Small, numbers: Wide, *, saturates: bool, noise: Bits | None = None, noise_bits: int = 0) -> Bits:
    """Return f64 numbers in a small format, to nearest even, or truncated after `noise_bits` of `noise` are added."""
    magnitudes = _magnitudes(form)
    finite = magnitudes[np.isfinite(magnitudes)]
    largest = finite.size - 1
    size = np.abs(np.where(np.isfinite(numbers), numbers, 0.0))
    exponent = np.maximum(np.frexp(size)[1] - 1, 1 - form.bias) - form.mantissa_bits
    scaled = np.ldexp(size, -exponent)
    if noise is None:
        whole = np.rint(scaled)
    else:
        added = (noise >> U32(32 - noise_bits)).astype(np.float64)
        whole = np.floor(np.floor(np.ldexp(scaled, noise_bits)) + added)
        whole = np.floor(np.ldexp(whole, -noise_bits))
    rounded = np.ldexp(whole, exponent)
    too_large = (rounded > finite[-1]) | np.isinf(numbers)
    places = np.searchsorted(finite, np.where(too_large, 0.0, rounded))
    nan = (1 << form.bits - 1) - (2 if form.specials == 2 else 1)
    overflow = largest if saturates or not form.specials else largest + 1
    found = np.where(too_large, overflow, places)
    found = np.where(np.isnan(numbers), nan, found)
    result: Bits = (found | np.signbit(numbers).astype(np.int64) << form.bits - 1).astype(U32)
    return result


def packed(codes: Bits, bits: int) -> Bits:
    """Return (lane, element) as (lane, dword)."""
    places = codes[:, :, None] >> np.arange(bits, dtype=U32) & U32(1)
    octets = np.packbits(places.reshape(len(codes), -1).astype(np.uint8), axis=1, bitorder="little")
    return np.ascontiguousarray(octets).view("<u4")


def unpacked(dwords: Bits, bits: int) -> Bits:
    """Return (lane, dword) as (lane, element)."""
    octets = np.ascontiguousarray(dwords, "<u4").view(np.uint8)
    if bits == 8:
        return octets.astype(U32)
    places = np.unpackbits(octets, axis=1, bitorder="little").reshape(len(octets), -1, bits)
    found: Bits = (places.astype(U32) << np.arange(bits, dtype=U32)).sum(axis=2, dtype=U32)
    return found


def random_after(seed: Bits) -> Bits:
    """Return the next number of the shift register."""
    found: Bits = (seed << U32(1) ^ np.where(seed >> U32(31) != 0, U32(_FEEDBACK), U32(0))).astype(U32)
    return found


# ---- conversions with a scale

_NARROWING = re.compile(r"v_cvt_scalef32_(sr_)?(pk_|pk32_|2xpk16_)?(fp8|bf8|fp6|bf6|fp4)_(f32|f16|bf16)")
_WIDENING = re.compile(r"v_cvt_scalef32_(pk_|pk32_)?(f32|f16|bf16)_(fp8|bf8|fp6|bf6|fp4)")


def _factor(scale: Bits) -> Wide:
    """Return 2**(exponent - 127), NaN for the exponent of NaN."""
    exponent = (scale >> U32(23) & U32(0xFF)).astype(np.int64)
    return np.where(exponent == _NAN_SCALE, np.nan, np.ldexp(1.0, exponent - _SCALE_BIAS))


def _numbers(ctx: Ctx, form: Format, bits: Bits) -> Wide:
    """Return wide floats as f64; MODE may flush denormals of f32."""
    found: Wide = floats.widened(form, ctx.taken(form, bits) if form is F32 else bits)
    return found


def _given(form: Format, numbers: Wide) -> Bits:
    """Return f64 numbers rounded to nearest even; denormals are kept."""
    bits = floats.rounded(form, numbers, NEAREST)
    return np.where(np.isnan(numbers), form.lane(form.infinity | form.quiet), bits)


def _opsel(ctx: Ctx) -> int:
    return ctx.ins.fields.get("opsel", 0)


def _placed(ctx: Ctx, codes: Bits, at: int, bits: int) -> Bits:
    """Return the destination with a part replaced."""
    old, mask = ctx.vgprs[ctx.ins.defs[0].index], U32(((1 << bits) - 1) << at)
    found: Bits = old & ~mask | codes << U32(at)
    return found


def _elements(wide: Format, source: Bits) -> Bits:
    """Return a packed source as (lane, element)."""
    if source.dtype.itemsize == 8:
        return np.stack([(source & np.uint64(0xFFFF_FFFF)).astype(U32), (source >> np.uint64(32)).astype(U32)], axis=1)
    dwords = source.reshape(len(source), -1)
    if wide is F32:
        return dwords
    return np.ascontiguousarray(dwords).view("<u2").astype(U32)


def _narrow_many(ctx: Ctx, small: Small, wide: Format, elements: Bits, scale: Bits, seed: Bits | None) -> Bits:
    """Return (lane, element) of codes. Each element has a random number of its own, from the one before."""
    numbers = _numbers(ctx, wide, elements) / _factor(scale)[:, None]
    saturates = ctx.saturates or not small.specials
    if seed is None:
        return narrowed(small, numbers, saturates=saturates)
    noise = [seed.astype(U32)]
    while len(noise) < elements.shape[1]:
        noise.append(random_after(noise[-1]))
    count = wide.mantissa_bits - small.mantissa_bits
    return narrowed(small, numbers, saturates=saturates, noise=np.stack(noise, axis=1), noise_bits=count)


def _narrowing(small: Small, wide: Format, count: str, *, stochastic: bool) -> Vector:
    def run(ctx: Ctx, *sources: Bits) -> Bits:
        *given, scale = sources[1:] if ctx.ins.uses[0].field == "vdst" else sources
        seed = given.pop() if stochastic else None
        if count == "2xpk16_":
            elements = np.stack([one.reshape(ctx.lanes, -1) for one in given], axis=2).reshape(ctx.lanes, -1)
        elif count == "pk_" and wide is F32 and not stochastic:
            elements = np.stack(given, axis=1)
        elif not count:
            elements = given[0][:, None] & U32(0xFFFF if wide is not F32 else 0xFFFF_FFFF)
        else:
            elements = _elements(wide, given[0])
        codes = _narrow_many(ctx, small, wide, elements, scale, seed)
        if codes.shape[1] == 32:
            return packed(codes, small.bits)
        if not count:
            return _placed(ctx, codes[:, 0], 8 * (_opsel(ctx) >> 2), 8)
        both = codes[:, 0] | codes[:, 1] << U32(small.bits)
        if small.bits == 4:
            return _placed(ctx, both, 8 * (_opsel(ctx) >> 2), 8)
        return _placed(ctx, both, 16 * (_opsel(ctx) >> 3), 16)

    return run


def _widening(small: Small, wide: Format, count: str) -> Vector:
    def run(ctx: Ctx, *sources: Bits) -> Bits:
        source, scale = sources[-2:]
        if count == "pk32_":
            codes = unpacked(source, small.bits)
        elif count and small.bits == 8:
            half = source >> U32(16 * (_opsel(ctx) & 1))
            codes = np.stack([half, half >> U32(8)], axis=1)
        else:
            octet = source >> U32(8 * (_opsel(ctx) & 3))
            codes = np.stack([octet, octet >> U32(4)], axis=1) if count else octet[:, None]
        found = _given(wide, values(small, codes) * _factor(scale)[:, None])
        if not count:
            return found[:, 0] if wide is F32 else _placed(ctx, found[:, 0].astype(U32), 16 * (_opsel(ctx) >> 3), 16)
        if wide is F32:
            return found if count == "pk32_" else _pair(found)
        dwords = np.ascontiguousarray(found.astype("<u2")).view("<u4")
        return dwords if count == "pk32_" else dwords[:, 0]

    return run


def _pair(words: Bits) -> Bits:
    return words[:, 0].astype(np.uint64) | words[:, 1].astype(np.uint64) << np.uint64(32)


def scaled_conversion(mnemonic: str) -> Vector | None:
    """Return the function of a conversion with a scale; None for another instruction."""
    found = _NARROWING.fullmatch(mnemonic)
    if found is not None:
        return _narrowing(FORMS[found[3]], WIDE_FORMS[found[4]], found[2] or "", stochastic=bool(found[1]))
    found = _WIDENING.fullmatch(mnemonic)
    return _widening(FORMS[found[3]], WIDE_FORMS[found[2]], found[1] or "") if found is not None else None


# ---- conversions without one


def _widened(form: Small, octets: Bits) -> Bits:
    return _given(F32, values(form, octets))


def _convert_one(form: Small) -> Vector:
    return lambda _, a: _widened(form, a)


def _pack(form: Small) -> Vector:
    def run(ctx: Ctx, _: Bits, a: Bits, b: Bits) -> Bits:
        low, high = (narrowed(form, _numbers(ctx, F32, one), saturates=ctx.saturates) for one in (a, b))
        return _placed(ctx, low | high << U32(8), 16 * (_opsel(ctx) >> 3), 16)

    return run


def _stochastic(form: Small) -> Vector:
    count = F32.mantissa_bits - form.mantissa_bits

    def run(ctx: Ctx, _: Bits, a: Bits, noise: Bits) -> Bits:
        numbers = _numbers(ctx, F32, a)
        codes = narrowed(form, numbers, saturates=ctx.saturates, noise=noise, noise_bits=count)
        return _placed(ctx, codes, 8 * selected_byte(ctx.ins), 8)

    return run


def _to_halves(form: Format) -> Vector:
    """Return the conversion of two f32 to a pair of 16-bit floats, to nearest even."""

    def run(ctx: Ctx, a: Bits, b: Bits) -> Bits:
        low, high = (_given(form, _numbers(ctx, F32, one)).astype(U32) for one in (a, b))
        return low | high << U32(16)

    return run


def _stochastic_half(form: Format) -> Vector:
    """Return an f32 as a 16-bit float: random bits are added below the last place. GUESS: those of denormals too."""
    count = F32.mantissa_bits - form.mantissa_bits

    def run(ctx: Ctx, _: Bits, a: Bits, noise: Bits) -> Bits:
        numbers = _numbers(ctx, F32, a)
        size = np.abs(np.where(np.isfinite(numbers), numbers, 0.0))
        exponent = np.maximum(np.frexp(size)[1] - 1, 1 - form.bias) - form.mantissa_bits
        added = (noise >> U32(32 - count)).astype(np.float64)
        whole = np.floor(np.ldexp(np.floor(np.ldexp(size, count - exponent)) + added, -count))
        moved = np.where(np.isfinite(numbers), np.copysign(np.ldexp(whole, exponent), numbers), numbers)
        return _placed(ctx, _given(form, moved).astype(U32), 16 * (_opsel(ctx) >> 3), 16)

    return run


SMALL_FLOATS: dict[str, Vector] = {
    "v_cvt_pk_f16_f32": _to_halves(F16), "v_cvt_pk_bf16_f32": _to_halves(BF16),
    "v_cvt_sr_f16_f32": _stochastic_half(F16), "v_cvt_sr_bf16_f32": _stochastic_half(BF16),
}  # fmt: skip
for _name, _form in (("fp8", FP8), ("bf8", BF8)):
    SMALL_FLOATS |= {
        f"v_cvt_f32_{_name}": _convert_one(_form), f"v_cvt_pk_f32_{_name}": of_two_bytes(partial(_widened, _form)),
        f"v_cvt_pk_{_name}_f32": _pack(_form), f"v_cvt_sr_{_name}_f32": _stochastic(_form),
    }  # fmt: skip
