"""Floats of the scalar ALU: what the vector ALU computes for one lane, without modifiers.

An f16 is in the low half of its register; a result clears the high half. Source: RDNA3.5 and RDNA4 ISA
references, "SALU Floating Point".
"""

from __future__ import annotations

import numpy as np

from ringup.silicon.shader.amd.values.compare import COMPARE
from ringup.silicon.shader.amd.values.context import Ctx, Scalar, Vector
from ringup.silicon.shader.amd.values.convert import CONVERT
from ringup.silicon.shader.amd.values.float_arithmetic import FLOAT

_COMPARED = ("lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt")
_COMPUTED = (
    "add", "sub", "mul", "min", "max", "min_num", "max_num", "minimum", "maximum", "fmac", "ceil", "floor", "trunc", "rndne",
)  # fmt: skip
_CONVERTED = ("f32_i32", "f32_u32", "i32_f32", "u32_f32", "f16_f32", "f32_f16", "pk_rtz_f16_f32")


def _lane(bits: int, size_bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array([bits & (1 << size_bits) - 1], np.uint32)


def _size(name: str) -> int:
    return 16 if name.endswith("f16") else 32


def _computed(vector: Vector, size_bits: int) -> Scalar:
    def run(ctx: Ctx, *sources: int) -> tuple[int, None]:
        return int(vector(ctx, *(_lane(one, size_bits) for one in sources))[0]), None

    return run


def _compared(vector: Vector, size_bits: int) -> Scalar:
    def run(ctx: Ctx, a: int, b: int) -> tuple[None, int]:
        return None, int(vector(ctx, _lane(a, size_bits), _lane(b, size_bits))[0])

    return run


def _high_half(ctx: Ctx, a: int) -> tuple[int, None]:
    return int(CONVERT["v_cvt_f32_f16"](ctx, _lane(a >> 16, 16))[0]), None


SCALAR_FLOATS: dict[str, Scalar] = {
    f"s_{name}_{form}": _computed(FLOAT[f"v_{name}_{form}"], _size(form))
    for name in _COMPUTED
    for form in ("f16", "f32")
}
SCALAR_FLOATS |= {
    f"s_cmp_{name}_{form}": _compared(COMPARE[f"v_cmp_{name}_{form}"], _size(form))
    for name in _COMPARED
    for form in ("f16", "f32")
}
SCALAR_FLOATS |= {f"s_cvt_{name}": _computed(CONVERT[f"v_cvt_{name}"], _size(name)) for name in _CONVERTED}
SCALAR_FLOATS |= {
    "s_fmaak_f32": _computed(FLOAT["v_fmaak_f32"], 32),
    "s_fmamk_f32": _computed(FLOAT["v_fmamk_f32"], 32),
    "s_cvt_hi_f32_f16": _high_half,
}
