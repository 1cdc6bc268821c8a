"""The places of the elements of 16x16 matrices in a wave's registers, for `matrix`: A (M, K), B (K, N), C and D (M, N),
all 16 wide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ringup.compiler.amd.instructions.targets import row

Cell = tuple[int, int]


class MatrixLayout(NamedTuple):
    """The fragments of one lane of a wave. `*_count`: elements of a lane. `a`, `b`, `c` return (row, column) of
    element `i` of a lane.

    Where several lanes have the same element (A and B of RDNA3: both halves of the wave), all of them must hold it.
    """

    a_count: int
    b_count: int
    c_count: int
    a: Callable[[int, int], Cell]
    b: Callable[[int, int], Cell]
    c: Callable[[int, int], Cell]


# RDNA3: lane l holds row l % 16 of A and column l % 16 of B, so both halves of the wave hold the same; rows of C
# alternate between the halves. Source: AMD GPUOpen, "How to accelerate AI applications on RDNA 3 using WMMA"; RDNA3
# ISA, "WMMA". RDNA4: no element is held twice; each half of the wave holds 8 consecutive k of A and B, and 8
# consecutive rows of C. Source: AMD GPUOpen, "Using the Matrix Cores of AMD RDNA 4 architecture GPUs". UNKNOWN: not run
# on a card or a model here. CDNA3: each quarter of the wave holds 4 consecutive k of A and B (8 of bytes) and 4
# consecutive rows of C; the rows of f64 alternate between the quarters. Source: AMD's matrix instruction calculator.
_LAYOUTS = {
    "rdna3": MatrixLayout(
        16, 16, 8, lambda lane, i: (lane % 16, i), lambda lane, i: (i, lane % 16), lambda lane, i: (2 * i + lane // 16, lane % 16)
    ),
    "rdna4": MatrixLayout(
        8, 8, 8, lambda lane, i: (lane % 16, 8 * (lane // 16) + i), lambda lane, i: (8 * (lane // 16) + i, lane % 16),
        lambda lane, i: (8 * (lane // 16) + i, lane % 16),
    ),
    "cdna3": MatrixLayout(
        4, 4, 4, lambda lane, i: (lane % 16, 4 * (lane // 16) + i), lambda lane, i: (4 * (lane // 16) + i, lane % 16),
        lambda lane, i: (4 * (lane // 16) + i, lane % 16),
    ),
}  # fmt: skip
_LAYOUTS["cdna4"] = _LAYOUTS["cdna3"]


def _deeper(count: int) -> MatrixLayout:
    """Return CDNA's layout with `count` consecutive k in each quarter of the wave."""
    return _LAYOUTS["cdna3"]._replace(
        a_count=count,
        b_count=count,
        a=lambda lane, i: (lane % 16, count * (lane // 16) + i),
        b=lambda lane, i: (count * (lane // 16) + i, lane % 16),
    )


_OF_KINDS = {
    ("cdna3", "f64"): _LAYOUTS["cdna3"]._replace(c=lambda lane, i: (4 * i + lane // 16, lane % 16)),
    ("cdna3", "i8x32"): _deeper(8),
    ("cdna4", "f64"): _LAYOUTS["cdna3"]._replace(c=lambda lane, i: (4 * i + lane // 16, lane % 16)),
    ("cdna4", "f16x32"): _deeper(8),
    ("cdna4", "bf16x32"): _deeper(8),
    ("cdna4", "i8x64"): _deeper(16),
    # UNKNOWN: which k those of 128 are; see `instructions/traits.py`.
    **{
        ("cdna4", f"{a}_{b}x{depth}"): _deeper(depth // 4)
        for a in ("fp8", "bf8")
        for b in ("fp8", "bf8")
        for depth in (32, 128)
    },
}


def matrix_layout(target: str, kind: str = "f16") -> MatrixLayout:
    """Return the layout of a processor's matrix fragments, by the name of the factors' type in the machine IR."""
    matrix = row(target).matrix
    return _OF_KINDS.get((matrix, kind), _LAYOUTS[matrix])
