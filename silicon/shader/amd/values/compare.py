"""Vector comparisons: v_cmp_* and v_cmpx_* of floats and integers, and the class test.

A NaN compares false; the n- forms are negations. Source: RDNA3 ISA reference, "VOPC Instructions".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.context import Ctx, Vector
from ringup.silicon.shader.amd.values.floats import F16, F32, F64, Bits, Format, Mask

_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "f": lambda a, b: np.zeros(len(a), np.bool_),
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": operator.ge,
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}
_NEGATED = {"u": "o", "nge": "ge", "nlg": "lg", "ngt": "gt", "nle": "le", "neq": "eq", "nlt": "lt", "t": "f"}
_INTEGER: dict[str, Callable[[Any, Any], Any]] = {name: _ORDERED[name] for name in ("f", "lt", "eq", "le", "gt", "ge")}
_INTEGER |= {"ne": operator.ne, "t": lambda a, b: np.ones(len(a), np.bool_)}
_VIEWS = {"i64": np.int64, "u64": np.uint64, "i32": np.int32, "u32": np.uint32, "i16": np.int16, "u16": np.uint16}


def _float(form: Format, compare: Callable[[Any, Any], Any], is_negated: bool) -> Vector:
    def run(ctx: Ctx, a: Bits, b: Bits) -> Mask:
        found = compare(floats.widened(form, ctx.taken(form, a)), floats.widened(form, ctx.taken(form, b)))
        return ~found if is_negated else found

    return run


def _integer(type_: str, compare: Callable[[Any, Any], Any]) -> Vector:
    view = _VIEWS[type_]

    def typed(a: Bits) -> Any:
        return a.astype(np.uint16).view(view) if type_.endswith("16") else a.view(view)

    return lambda _, a, b: compare(typed(a), typed(b))


def _class(form: Format) -> Vector:
    """Test the class of a float against a mask of ten classes; no mode flushes denormals."""

    def run(_: Ctx, a: Bits, classes: Bits) -> Mask:
        magnitude = a & form.lane(form.magnitude)
        is_negative = (a & form.lane(form.sign)) != 0
        # Most special first: the condition, its class if negative, its class if positive.
        steps = [
            (floats.is_signalling(form, a), 0, 0),
            (floats.is_nan(form, a), 1, 1),
            (magnitude == form.lane(form.infinity), 2, 9),
            (magnitude > form.lane((1 << form.mantissa_bits) - 1), 3, 8),
            (magnitude != 0, 4, 7),
        ]
        negative = np.select([one for one, _, _ in steps], [number for _, number, _ in steps], 5)
        positive = np.select([one for one, _, _ in steps], [number for _, _, number in steps], 6)
        number = np.where(is_negative, negative, positive)
        return (classes.astype(np.int64) >> number & 1) != 0

    return run


_CASES: dict[str, Vector] = {}
for _form in (F16, F32, F64):
    _CASES |= {f"{name}_{_form.name}": _float(_form, compare, False) for name, compare in _ORDERED.items()}
    _CASES |= {f"{name}_{_form.name}": _float(_form, _ORDERED[other], True) for name, other in _NEGATED.items()}
    _CASES[f"class_{_form.name}"] = _class(_form)
for _type in _VIEWS:
    _names = [name for name in _INTEGER if not _type.endswith("16") or name not in ("f", "t")]
    _CASES |= {f"{name}_{_type}": _integer(_type, _INTEGER[name]) for name in _names}

COMPARE: dict[str, Vector] = {f"{prefix}_{name}": run for prefix in ("v_cmp", "v_cmpx") for name, run in _CASES.items()}
