"""Floats of eight bits: FP8 has four exponent bits and no infinity, BF8 has five. Conversions and dot products.

Source: RDNA4 ISA reference, "8-bit Math", "OPSEL with FP8 and BF8 Conversions", "V_CVT_PK_FP8_F32",
"V_DOT4_F32_FP8_BF8".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ringup.silicon.shader.amd.decoding.decode import selected_byte
from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import KEEP_INPUTS, KEEP_RESULTS, Ctx, Vector
from ringup.silicon.shader.amd.values.float_arithmetic import add, multiply
from ringup.silicon.shader.amd.values.floats import F32, NEAREST, ZERO, Bits, Format, Wide
from ringup.silicon.shader.amd.values.integers import U32

FP8 = Format("fp8", 8, 3)
BF8 = Format("bf8", 8, 2)
FORMS = {"fp8": FP8, "bf8": BF8}
# FP8's only NaN takes the place of infinity's last mantissa.
_NAN = 0x7F
_LARGEST = {"fp8": 448.0, "bf8": 57344.0}


def _table(form: Format) -> Wide:
    """Return the values of the 256 numbers of a format."""
    found = []
    for bits in range(256):
        magnitude = bits & form.magnitude
        if form is FP8 and magnitude == _NAN:
            value = float("nan")
        elif form is BF8 and magnitude >= form.infinity:
            value = float("inf") if magnitude == form.infinity else float("nan")
        else:
            field, mantissa = magnitude >> form.mantissa_bits, magnitude & (1 << form.mantissa_bits) - 1
            size = mantissa | bool(field) << form.mantissa_bits
            value = size * 2.0 ** (max(field, 1) - form.bias - form.mantissa_bits)
        found.append(-value if bits & form.sign else value)
    return np.array(found)


_VALUES = {name: _table(form) for name, form in FORMS.items()}
_HALVES = {name: values.astype(np.float16).view(np.uint16) for name, values in _VALUES.items()}


def widened(form: Format, octets: Bits) -> Bits:
    """Return 8-bit floats as f32."""
    found: Bits = _VALUES[form.name].astype(np.float32).view(np.uint32)[octets & U32(0xFF)]
    return found


def as_halves(form: Format, dwords: Bits) -> Bits:
    """Return (lane, dword) of four 8-bit floats as (lane, dword) of two f16, which are exact."""
    octets = np.ascontiguousarray(dwords, "<u4").view(np.uint8)
    return np.ascontiguousarray(_HALVES[form.name][octets]).view("<u4")


@np.errstate(invalid="ignore")
def narrowed(form: Format, bits: Bits, mode: int = NEAREST, *, saturates: bool = False) -> Bits:
    """Return f32 as 8-bit floats. What is too large becomes infinity or FP8's NaN, or the largest if `saturates`."""
    values = floats.widened(F32, bits)
    size, largest = np.abs(values), _LARGEST[form.name]
    # Multiples of the last place: of the value's own exponent, or of the denormals'.
    exponent = np.maximum(np.frexp(size)[1] - 1, 1 - form.bias) - form.mantissa_bits
    scaled = np.ldexp(size, -exponent)
    rounded = np.ldexp(np.rint(scaled) if mode == NEAREST else np.floor(scaled), exponent)
    too_large = (rounded > largest) & ~np.isnan(values)
    kept = np.where(np.isfinite(rounded) & ~too_large, rounded, 0.0)
    # Numbers of one sign are in the order of their bits.
    places = np.searchsorted(_VALUES[form.name][: (_NAN if form is FP8 else form.infinity)], kept)
    overflow = (
        int(np.searchsorted(_VALUES[form.name][:_NAN], largest))
        if saturates
        else (_NAN if form is FP8 else form.infinity)
    )
    found = np.where(too_large, overflow, places)
    found = np.where(np.isnan(values), _NAN, found)
    return (found | np.where(bits >> U32(31) != 0, form.sign, 0)).astype(U32)


def _convert_one(form: Format) -> Vector:
    """Return v_cvt_f32_fp8 or v_cvt_f32_bf8: the byte that op_sel selects."""
    return lambda ctx, a: widened(form, a >> U32(8 * selected_byte(ctx.ins)))


def of_two_bytes(widen: Callable[[Bits], Bits]) -> Vector:
    """Return the conversion of two bytes into two registers. `widen` takes the low byte of dwords."""

    def run(_: Ctx, a: Bits) -> Bits:
        low, high = (widen(a >> U32(shift)).astype(np.uint64) for shift in (0, 8))
        return low | high << np.uint64(32)

    return run


def _pack(form: Format) -> Vector:
    def run(ctx: Ctx, _: Bits, a: Bits, b: Bits) -> Bits:
        low, high = (narrowed(form, one, saturates=ctx.saturates) for one in (a, b))
        return low | high << U32(8)

    return run


def _stochastic(form: Format) -> Vector:
    """Return a conversion that adds the top bits of src1 below the last place, and truncates.

    GUESS: the document's formula drops a carry out of the mantissa and then rounds to nearest; its text says that these
    conversions truncate.
    """
    shift = U32(32 - (F32.mantissa_bits - form.mantissa_bits))

    def run(ctx: Ctx, old: Bits, a: Bits, noise: Bits) -> Bits:
        is_finite = (a & U32(F32.infinity)) != U32(F32.infinity)
        moved = np.where(is_finite, a + (noise >> shift), a)
        place = U32(8 * selected_byte(ctx.ins))
        return old & ~(U32(0xFF) << place) | narrowed(form, moved, ZERO, saturates=ctx.saturates) << place

    return run


def _dot4(first: Format, second: Format) -> Vector:
    """Return src2 plus four products, added one after the other and rounded to nearest even."""

    def run(ctx: Ctx, a: Bits, b: Bits, c: Bits) -> Bits:
        inside = replace(ctx, round_f32=NEAREST, denorm_f32=KEEP_INPUTS | KEEP_RESULTS)
        total = c
        for shift in range(0, 32, 8):
            left, right = (widened(form, one >> U32(shift)) for form, one in ((first, a), (second, b)))
            total = add(inside, F32, total, multiply(inside, F32, left, right))
        return total

    return run


EIGHT_BITS: dict[str, Vector] = {}
for _name, _form in FORMS.items():
    EIGHT_BITS |= {
        f"v_cvt_f32_{_name}": _convert_one(_form), f"v_cvt_pk_f32_{_name}": of_two_bytes(partial(widened, _form)),
        f"v_cvt_pk_{_name}_f32": _pack(_form), f"v_cvt_sr_{_name}_f32": _stochastic(_form),
    }  # fmt: skip
    EIGHT_BITS |= {f"v_dot4_f32_{_name}_{other}": _dot4(_form, FORMS[other]) for other in FORMS}
