"""Reciprocals, roots, exponentials, logarithms and circular functions.

The hardware's tables are within 1 ulp (f16: 0.51 ulp; f64: 2**29 ulp). Results here are computed in f64 and rounded to
nearest even in any rounding mode: a program must not rely on the last bit. QUIRK: the f32 functions except sine and
cosine flush denormals in any mode. Source: RDNA3 ISA reference, "V_EXP_F32" ... "V_COS_F16".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import Ctx, Vector, with_nans
from ringup.silicon.shader.amd.values.floats import F16, F32, F64, Bits, Format, Wide


def _turned(values: Wide, quarter: int) -> Wide:
    """Return the sine of a number of turns and quarter turns, exact at multiples of a quarter."""
    quarters = np.rint(4 * values)
    rest = 2 * np.pi * (values - quarters / 4)
    place = (np.where(np.isfinite(quarters), np.fmod(quarters, 4), 0).astype(np.int64) + quarter) & 3
    sine = np.choose(place, [np.sin(rest), np.cos(rest), 0.0 - np.sin(rest), 0.0 - np.cos(rest)])
    return np.where(np.isfinite(values), sine, np.nan)


def _sine(values: Wide) -> Wide:
    return np.where(values == 0, values, _turned(values, 0))


def _cosine(values: Wide) -> Wide:
    return _turned(values, 1)


def _reciprocal(values: Wide) -> Wide:
    return 1.0 / values


def _reciprocal_root(values: Wide) -> Wide:
    """Return 1 / sqrt. QUIRK: -0 gives -infinity."""
    return 1.0 / np.sqrt(values)


def _function(form: Format, compute: Callable[[Wide], Wide], flushes: bool) -> Vector:
    def run(ctx: Ctx, a: Bits) -> Bits:
        a = floats.flushed(form, a) if flushes else ctx.taken(form, a)
        values = compute(floats.widened(form, a))
        bits = values.view(np.uint64) if form is F64 else floats.rounded(form, values)
        bits = floats.flushed(form, bits) if flushes else ctx.given(form, bits)
        return with_nans(form, bits, np.isnan(values), (a,))

    return run


_COMPUTE: dict[str, Callable[[Wide], Wide]] = {
    "exp": np.exp2, "log": np.log2, "rcp": _reciprocal, "rsq": _reciprocal_root, "sqrt": np.sqrt, "sin": _sine, "cos": _cosine,
}  # fmt: skip

TRANSCENDENTAL: dict[str, Vector] = {
    f"v_{name}_{form.name}": _function(form, compute, form is F32 and name not in ("sin", "cos"))
    for name, compute in _COMPUTE.items()
    for form in (F16, F32)
}
TRANSCENDENTAL |= {f"v_{name}_f64": _function(F64, _COMPUTE[name], False) for name in ("rcp", "rsq", "sqrt")}
# Of scalars, which are the same in all lanes. The result is that of the first lane.
TRANSCENDENTAL |= {
    f"v_s_{name}_{form.name}": TRANSCENDENTAL[f"v_{name}_{form.name}"]
    for name in ("exp", "log", "rcp", "rsq", "sqrt")
    for form in (F16, F32)
}
TRANSCENDENTAL["v_rcp_iflag_f32"] = TRANSCENDENTAL["v_rcp_f32"]
