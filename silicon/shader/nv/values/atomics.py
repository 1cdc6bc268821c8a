"""What an atomic operation stores. Source: PTX ISA, atom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.values.rounding import bfloat, flushed, half, odd_sum, single

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WHOLE: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda old, data: old + data, "AND": lambda old, data: old & data, "OR": lambda old, data: old | data,
    "XOR": lambda old, data: old ^ data, "EXCH": lambda old, data: data, "MIN": min, "MAX": max,
    "INC": lambda old, data: 0 if old >= data else old + 1,
    "DEC": lambda old, data: data if old == 0 or old > data else old - 1,
}  # fmt: skip


def combined_value(how: str, kind: str, old: int, data: Sequence[int]) -> int:
    """Return the bits to store. `data`: the operand; for CAS the value to compare with, then the new one."""
    if how == "CAS":
        return data[1] if old == data[0] else old
    if kind.startswith(("F", "BF")):
        return _float_sum(how, kind, old, data[0])
    bits = 64 if kind.endswith("64") else 32
    if kind[0] == "S":
        signed = [one - (one >> bits - 1 << bits) for one in (old, data[0])]
        return _WHOLE[how](signed[0], signed[1]) & (1 << bits) - 1
    return _WHOLE[how](old, data[0]) & (1 << bits) - 1


def _float_sum(how: str, kind: str, old: int, data: int) -> int:
    if how == "EXCH":
        return data
    if how != "ADD":
        raise Unmodelled(f"an atomic {how} of {kind}")
    if kind == "F64":
        pair = np.array([old, data], np.uint64).view(np.float64)
        with np.errstate(all="ignore"):
            return int((pair[:1] + pair[1:]).view(np.uint64)[0])
    if kind.startswith("F32"):
        words, flush = np.array([old, data], np.uint32), kind.endswith("FTZ")
        left, right = (flushed(words) if flush else words).view(np.float32).astype(np.float64)
        return int(single(odd_sum(np.array([left]), np.array([right])), "", flush=flush)[0])
    total = 0
    for shift in (0, 16):
        parts = np.array([old >> shift & 0xFFFF, data >> shift & 0xFFFF], np.uint32)
        if kind == "BF16x2":
            first, second = (parts << np.uint32(16)).view(np.float32).astype(np.float64)
        else:
            first, second = parts.astype(np.uint16).view(np.float16).astype(np.float64)
        both = odd_sum(np.array([first]), np.array([second]))
        total |= int((bfloat(both) if kind == "BF16x2" else half(both, ""))[0]) << shift
    return total
